"""A user's source of memory: Python callables, addresses of C functions, or a shared library and two names.

Unlike torch's, it is below the allocator: blocks are kept for reuse, split and counted as usual, and the user's
functions see only segments. Every segment is freed by the functions that allocated it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuassay.core.interrupts import nothing_done
from cuassay.devices.cuda.memory.sources import DeviceSource
from cuassay.errors import ArgumentError, LibraryNotFoundError, OutOfMemoryError

__all__ = ["CUDAPluggableAllocator", "PluggableSource"]

#: ``void* alloc(ssize_t size, int device, cudaStream_t stream)``, as in torch; null means that there is not enough
#: memory.
_ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
#: ``void free(void* ptr, ssize_t size, int device, cudaStream_t stream)``
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)

Alloc = Callable[[int, int, int], int | None]
Free = Callable[[int, int, int, int], object]


class CUDAPluggableAllocator:
    """Two functions that allocate and free device memory.

    Parameters
    ----------
    path_to_so_file : path, callable or int
        A shared library; or the allocating function itself, ``alloc(nbytes, device, stream) -> address``, as a Python
        callable or the address of a C function.
    alloc_fn_name : str, callable or int
        The name of that function in the library; or, without a library, the freeing function,
        ``free(address, nbytes, device, stream)``.
    free_fn_name : str
        The name of the freeing function in the library.

    Raises
    ------
    LibraryNotFoundError
        If the library cannot be loaded or lacks a name.
    ArgumentError
        If the arguments are of another kind.
    """

    def __init__(self, path_to_so_file: Any, alloc_fn_name: Any = None, free_fn_name: str | None = None) -> None:
        self._library: Any = None
        if isinstance(path_to_so_file, (str, Path)):
            self._library = _load(path_to_so_file)
            self._alloc: Alloc = _named(self._library, path_to_so_file, alloc_fn_name, _ALLOC)
            self._free: Free = _named(self._library, path_to_so_file, free_fn_name, _FREE)
        else:
            self._alloc = _function(path_to_so_file, _ALLOC)
            self._free = _function(alloc_fn_name, _FREE)

    def allocator(self) -> CUDAPluggableAllocator:
        """Return this object, which `MemPool` accepts, as in torch."""
        return self

    def source(self, index: int) -> PluggableSource:
        """Return the source of its segments on device `index`."""
        return PluggableSource(index, self._alloc, self._free)


class PluggableSource(DeviceSource):
    """Segments of device `index` from a user's functions; see `CUDAPluggableAllocator`."""

    def __init__(self, index: int, alloc: Alloc, free: Free) -> None:
        super().__init__(index)
        self._alloc, self._free = alloc, free
        self._given: dict[int, tuple[int, int]] = {}

    def reserve(self, nbytes: int, stream: int) -> int:
        """Return the address that the user's function returns.

        Raises
        ------
        OutOfMemoryError
            If the function returns null or None, or raises a `MemoryError`.
        """
        try:
            address = self._alloc(nbytes, self.index, stream)
        except MemoryError as error:
            raise self._no_room(nbytes) from error
        if not address:
            raise self._no_room(nbytes)
        self._given[address] = nbytes, stream
        return address

    def release(self, address: int) -> None:
        """Pass a segment to the user's function when the device is idle."""
        with nothing_done():
            self.synchronize(())
        nbytes, stream = self._given.pop(address)
        try:
            self._free(address, nbytes, self.index, stream)
        except Exception:
            self._given[address] = nbytes, stream
            raise

    def _no_room(self, nbytes: int) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"cuda:{self.index}: the pluggable allocator has no room for {nbytes:,} bytes; free arrays, or give it more"
        )


def _load(path: str | Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise LibraryNotFoundError(
            f"the allocator's library {os.fspath(path)!r} cannot be loaded: {error}; give a path built for this system"
        ) from error


def _named(library: ctypes.CDLL, path: Any, name: Any, kind: Any) -> Any:
    try:
        return kind((name, library))
    except (AttributeError, TypeError) as error:
        raise LibraryNotFoundError(
            f'the library {os.fspath(path)!r} has no function {name!r}; export it with C linkage (extern "C")'
        ) from error


def _function(given: Any, kind: Any) -> Any:
    if callable(given):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and given:
        return kind(given)
    raise ArgumentError(
        f"{given!r} is not a function; give a Python callable, the address of a C function, or a library and two names"
    )
