"""Where pinned host memory comes from: pages that are mapped, touched by several threads and registered, or the driver.

The driver makes pinned memory at about 2 GB/s in one thread, however many threads ask (8.2 s for 16 GiB on the host of
an H200), and most of that time the kernel clears pages. So cuassay maps pages and touches them with several threads
first, using huge pages if the system has them; registering these pages is quick. A forked child does not get the pages:
the kernel would have to copy them all, because the device works on the parent's.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

from cuassay.core.interrupts import is_late, is_marked_late, mark_late
from cuassay.core.units import format_bytes
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.memory.order import Marker, Order, at, attempt, finished, name_of, relaxed
from cuassay.errors import CuassayError, OutOfMemoryError
from cuassay.memory.config import AllocatorConfig
from cuassay.memory.host import HostSource

__all__ = ["DEVICE_SHIFT", "PinnedSource", "is_registered", "register", "stream_key", "unregister"]

#: The size of huge pages on x86 and Arm servers; each thread's share begins at a multiple of it.
_HUGE = 2**21
#: The bytes that one thread touches at a time.
_SHARE = 64 * 2**20
#: Below this size the available memory is not checked: the system has other ways to find some.
_CERTAIN = 64 * 2**20
#: A stream's number in the allocator: its address, and above it its device's index, because every device has address 0.
DEVICE_SHIFT = 56


def stream_key(index: int, address: int) -> int:
    """Return the number of the stream at `address` on device `index`."""
    return index << DEVICE_SHIFT | name_of(address, index)


def register(address: int, nbytes: int) -> None:
    """Pin existing memory for all devices.

    Raises
    ------
    DriverError, OutOfMemoryError
        If the driver cannot pin it.
    """
    from cuda.bindings import runtime

    with relaxed():  # otherwise it would break another thread's capture
        undo = runtime.cudaHostUnregister
        pinned = finished(
            runtime.cudaHostRegister, address, nbytes, runtime.cudaHostRegisterPortable, undo=lambda _: undo(address)
        )
    check(pinned, f"pinning {format_bytes(nbytes)} of host memory")


def unregister(address: int) -> None:
    """Undo `register`; no copy may be running. Raises `DriverError`."""
    from cuda.bindings import runtime

    with attempt(runtime.cudaHostUnregister, address) as unpin, relaxed():
        check(unpin(), f"unpinning host memory at {address:#x}")


class PinnedSource(HostSource):
    """A `cuassay.core.protocols.MemorySource` of pinned host memory that every device can use.

    Parameters
    ----------
    config : callable
        Returns the current configuration, whose ``pinned_*`` keys decide how pages are made.
    index : int
        The device in whose context the calls are made.
    """

    def __init__(self, config: Callable[[], AllocatorConfig], index: int) -> None:
        self._config = config
        self._index = index
        self._pages: dict[int, tuple[int, int] | None] = {}
        self._orders: dict[int, Order] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"PinnedSource({len(self._pages)} pieces)"

    def reserve(self, nbytes: int, stream: int) -> int:
        """Pin `nbytes`. Raises `OutOfMemoryError`."""
        _require_memory(nbytes)
        with at(self._index):
            address, pages = self._registered(nbytes) if self._config().pinned_use_cuda_host_register else _made(nbytes)
        with self._lock:
            self._pages[address] = pages
        return address

    def _registered(self, nbytes: int) -> tuple[int, tuple[int, int]]:
        pages, address = _mapped(nbytes)
        try:
            _touch(address, nbytes, min(self._config().pinned_num_register_threads, os.cpu_count() or 1))
            register(address, nbytes)
        except BaseException:
            _unmapped(*pages)
            raise
        return address, pages

    def release(self, address: int) -> None:
        """Unpin memory that nothing uses. Raises `DriverError`, unless ``pinned_free_catch_all`` is set."""
        with self._lock:
            pages = self._pages.pop(address)
        catching = suppress(CuassayError) if self._config().pinned_free_catch_all else nullcontext()
        is_unpinned = False
        try:
            with catching, at(self._index):
                (_unmade if pages is None else unregister)(address)
                is_unpinned = True
        except BaseException as error:
            if is_unpinned:
                mark_late(error)
            is_unpinned = is_marked_late(error)
            if not is_late(error):
                with self._lock:
                    self._pages[address] = pages
            raise
        finally:
            if is_unpinned and pages is not None:
                _unmapped(*pages)

    def record(self, stream: int) -> tuple[Order, Marker | None]:
        """Return a marker of the work that the stream has been given so far."""
        order = self._order(stream >> DEVICE_SHIFT)
        return order, order.record(stream & (1 << DEVICE_SHIFT) - 1)

    def _order(self, index: int) -> Order:
        try:
            return self._orders[index]
        except KeyError:
            return self._orders.setdefault(index, Order(index))

    def query(self, event: tuple[Order, Marker | None]) -> bool:
        """Return True if the marker has been reached."""
        order, marker = event
        return order.query(marker)

    def wait(self, stream: int, event: tuple[Order, Marker | None]) -> None:
        """Make the host, which `stream` represents, wait for `event`."""
        from cuda.bindings import runtime

        _, marker = event
        if marker is not None:
            with relaxed():
                check(runtime.cudaEventSynchronize(marker.event), "waiting for copies of pinned memory")


def _require_memory(nbytes: int) -> None:
    """Raise `OutOfMemoryError` instead of touching more than is available: the system would kill a process."""
    if nbytes < _CERTAIN:
        return
    try:
        words = Path("/proc/meminfo").read_text(encoding="ascii").partition("MemAvailable:")[2].split()
    except OSError:
        return
    available = int(words[0]) * 1024 if words else nbytes
    if nbytes > available:
        raise OutOfMemoryError(
            f"pinning {format_bytes(nbytes)} needs as much free host memory; {format_bytes(available)} is available; "
            "pin less, or free host memory"
        )


def _mapped(nbytes: int) -> tuple[tuple[int, int], int]:
    """Map private pages; return their address and size, and the address aligned to huge pages where `nbytes` begin."""
    whole = nbytes + _HUGE
    start = _libc().mmap(None, whole, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if start == ctypes.c_void_p(-1).value:
        reason = errno.errorcode.get(ctypes.get_errno(), "an error")
        raise OutOfMemoryError(
            f"the system has no addresses for {format_bytes(nbytes)} ({reason}); pin less, or raise the limit of "
            "addresses (ulimit -v)"
        )
    for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):
        if hasattr(mmap, advice):  # an error means a kernel without huge pages
            _libc().madvise(start, whole, getattr(mmap, advice))
    return (start, whole), -(-start // _HUGE) * _HUGE


def _unmapped(start: int, nbytes: int) -> None:
    _libc().munmap(start, nbytes)


@cache
def _libc() -> Any:
    """Return the C library: a Python mmap object would be unmapped in a forked child, where it was never mapped."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library


def _touch(address: int, nbytes: int, threads: int) -> None:
    """Make the system provide the pages, by writing (which faults whole huge pages), several at a time."""
    shares = [(address + low, 0, min(_SHARE, nbytes - low)) for low in range(0, nbytes, _SHARE)]
    if len(shares) == 1 or threads == 1:
        for share in shares:
            ctypes.memset(*share)
        return
    with ThreadPoolExecutor(threads, "cuassay-touch") as pool:
        list(pool.map(lambda share: ctypes.memset(*share), shares))


def _made(nbytes: int) -> tuple[int, None]:
    from cuda.bindings import runtime

    with relaxed():
        made = finished(
            runtime.cudaHostAlloc,
            nbytes,
            runtime.cudaHostAllocPortable,
            undo=lambda found: found and runtime.cudaFreeHost(found[1]),
        )
    return int(check(made, f"making {format_bytes(nbytes)} of pinned host memory")), None


def _unmade(address: int) -> None:
    from cuda.bindings import runtime

    with attempt(runtime.cudaFreeHost, address) as free, relaxed():
        check(free(), f"giving pinned host memory at {address:#x} back")


def is_registered(address: int) -> bool:
    """Whether the driver knows the memory as pinned, whoever pinned it; the driver must be in use already."""
    from cuda.bindings import runtime

    attributes: Any = check(runtime.cudaPointerGetAttributes(address), f"asking about {address:#x}")
    return bool(attributes.type == runtime.cudaMemoryType.cudaMemoryTypeHost)
