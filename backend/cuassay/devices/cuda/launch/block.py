"""The argument block of a kernel, which each launch writes and the driver reads.

It is one piece of memory: the driver's launch configuration, pointers to the arguments, the arguments, and the launch
attributes. Whoever keeps the block, as a bound launch does, keeps everything that the driver reads. A launch writes
into it and passes two addresses to the driver by ctypes; cuda.bindings converts eleven arguments at each launch, which
took 0.6 µs longer on the H200 host. `launch` decides which thread uses which block, and on which stream.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from cuassay.core.handle import Handle
from cuassay.errors import ArgumentError, DTypeError

__all__ = ["STREAM_WORD", "Dims", "Launch", "argument_nbytes", "first_argument_word"]

Dims = int | Sequence[int]

#: ``CUlaunchConfig`` up to its stream: grid and block along x, y, z, shared bytes, stream. The address and the number
#: of the attributes follow; there are none unless `Launch.arrange` sets some.
_CONFIG = struct.Struct("7I4xQ")
_CONFIG_WORDS = 7
STREAM_WORD = 4
_ATTRIBUTES_WORD = 5

#: ``CUlaunchAttribute``: its id, and as much of its value as is used. It gives the extents of a cluster, or is the flag
#: ``PROGRAMMATIC_STREAM_SERIALIZATION``.
_ATTRIBUTE = struct.Struct("I4x3I52x")
_CLUSTER, _EARLY = 4, 6

#: Words of a block that are reserved for both attributes.
_ATTRIBUTES_WORDS = 2 * _ATTRIBUTE.size // 8

_DOUBLE = struct.Struct("d")


def first_argument_word(count: int) -> int:
    """Return the position of the first of `count` arguments in a block's words.

    Arguments of 8 bytes take one word each.
    """
    return _CONFIG_WORDS + count


class Launch(Handle):
    """One kernel's argument block for one tuple of argument types.

    `write` stores the values, `launch` passes the block to the driver, `bind` turns that into a call without arguments,
    and `arrange` requests clusters or an early start. `slots` may be written directly, one integer for each argument of
    up to 8 bytes: ``launch.slots[0] = array.data.ptr``. So may ``words[STREAM_WORD]``, the stream's address.
    """

    __slots__ = ("_addresses", "_attributes_at", "_fire", "_handle", "_memory", "_others", "_shape", "slots", "words")

    def __init__(self, handle: int | None, types: Sequence[type]) -> None:
        sizes = [argument_nbytes(kind) for kind in types]
        lengths = [-(-size // 8) for size in sizes]
        first = first_argument_word(len(types))
        starts = [first + sum(lengths[:position]) for position in range(len(lengths))]
        self._handle = handle or 0
        self._attributes_at = 8 * (first + sum(lengths))
        self._memory = (ctypes.c_uint64 * (first + sum(lengths) + _ATTRIBUTES_WORDS))()
        base = ctypes.addressof(self._memory)
        self._memory[_CONFIG_WORDS:first] = [base + 8 * start for start in starts]
        self.words = memoryview(self._memory).cast("B").cast("Q")
        self.slots = (ctypes.c_uint64 * sum(lengths)).from_buffer(self._memory, 8 * first)
        writers = [(start, place, _writer(types[place], sizes[place])) for place, start in enumerate(starts)]
        self._addresses = tuple((start, place) for start, place, store in writers if store is None)
        self._others = tuple((start, place, store) for start, place, store in writers if store is not None)
        self._fire: Callable[[], int] | None = None
        self._shape: tuple[Dims, Dims, int] | None = None

    def __repr__(self) -> str:
        return f"Launch(kernel {self._handle:#x}, {len(self.slots)} words of arguments)"

    @property
    def address_words(self) -> tuple[tuple[int, int], ...]:
        """The words that hold the addresses of CuPy's arrays, each with its argument's position."""
        return self._addresses

    def write(self, arguments: Sequence[Any]) -> None:
        """Store `arguments`, whose types must be those that the block was made for."""
        words = self.words
        for start, place in self._addresses:  # CuPy's arrays, inline: calls would double the cost
            words[start] = arguments[place].data.ptr
        for start, place, store in self._others:
            store(words, start, arguments[place])

    def arrange(self, *, cluster: int = 1, early: bool = False) -> None:
        """Set launch attributes for later launches.

        Parameters
        ----------
        cluster : int
            The number of neighbouring blocks along x that form a cluster; it divides the grid.
        early : bool
            Whether blocks may start while the previous kernel in the stream ends. The kernel must wait
            (``griddepcontrol.wait``) before it reads or writes what the previous one accesses.
        """
        chosen = [(_CLUSTER, cluster, 1, 1)] * (cluster > 1) + [(_EARLY, 1, 0, 0)] * early
        for place, one in enumerate(chosen):
            _ATTRIBUTE.pack_into(self._memory, self._attributes_at + place * _ATTRIBUTE.size, *one)
        self.words[_ATTRIBUTES_WORD] = ctypes.addressof(self._memory) + self._attributes_at if chosen else 0
        self.words[_ATTRIBUTES_WORD + 1] = len(chosen)

    def launch(self, grid: Dims, block: Dims, shared: int, stream: int) -> int:
        """Launch on `stream` with the block as it is now; return the driver's status, 0 for success."""
        if (grid, block, shared) != self._shape or self._fire is None:
            return self.bind(grid, block, shared, stream)()
        self.words[STREAM_WORD] = stream
        return self._fire()

    def bind(self, grid: Dims, block: Dims, shared: int = 0, stream: int = 0) -> Callable[[], int]:
        """Return `launch` as a call without arguments, which has the least overhead.

        Valid until another shape is launched.

        The call keeps the block's memory alive, including the attributes, but not the arrays whose addresses it holds.

        Raises
        ------
        ArgumentError
            If an extent is negative or exceeds 32 bits.
        """
        try:
            _CONFIG.pack_into(self._memory, 0, *_dims(grid), *_dims(block), shared, stream)
        except struct.error as error:
            raise ArgumentError(
                f"grid {grid}, block {block}, {shared!r} shared bytes is not a launch shape: {error}; "
                "give one to three whole numbers each, below 2**32"
            ) from None
        self._shape = None if list in (type(grid), type(block)) else (grid, block, shared)  # a list may change
        return self._fire or self._armed()

    def _armed(self) -> Callable[[], int]:
        """Prepare the driver's call and its arguments; `byref` objects are what ctypes converts fastest."""
        config, pointers = ctypes.byref(self._memory), ctypes.byref(self._memory, 8 * _CONFIG_WORDS)
        handle = ctypes.byref(ctypes.c_char.from_address(self._handle))
        self._fire = partial(_driver_launch(), config, handle, pointers, None)
        return self._fire


def _dims(dims: Dims) -> tuple[int, int, int]:
    if not isinstance(dims, tuple | list):  # not Sequence: testing for an abstract class takes 0.3 µs
        return dims, 1, 1  # type: ignore[return-value] # an int, or NumPy's
    x, y, z = (*dims, 1, 1)[:3]
    return x, y, z


@cache
def _driver_launch() -> Callable[..., int]:
    """Return ``cuLaunchKernelEx``, which every driver since CUDA 11.8 has.

    `CDLL` releases the GIL, as it must: a launch waits while the stream's queue is full, and the queue may be waiting
    for a host function that needs the GIL.
    """
    found: Callable[..., int] = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    return found


@cache
def argument_nbytes(kind: type) -> int:
    """Return the bytes that an argument of type `kind` takes.

    Raises
    ------
    DTypeError
        If a kernel cannot take an argument of this type.
    """
    if kind is bool:
        return 1
    if kind in (int, float) or _has_address(kind):
        return 8
    if issubclass(kind, np.generic):
        return int(np.dtype(kind).itemsize)
    if issubclass(kind, ctypes.Structure | ctypes.Union | ctypes.Array):
        return ctypes.sizeof(kind)
    hint = "copy it to the device first (cupy.asarray)" if issubclass(kind, np.ndarray) else "pass its parts"
    raise DTypeError(
        f"a kernel takes device arrays, bool, int (64 bits), float (double), NumPy scalars and ctypes structures; "
        f"got {kind.__module__}.{kind.__qualname__}; {hint}"
    )


def _has_address(kind: type) -> bool:
    return hasattr(kind, "__cuda_array_interface__")


def _writer(kind: type, size: int) -> Callable[[memoryview, int, Any], None] | None:
    """Return how a value of type `kind` is stored at a word; None means the address of a CuPy array."""
    if kind is float:
        return _store_double
    if kind in (int, bool):
        return _store_int
    if _has_address(kind):
        return None if kind.__module__.partition(".")[0] == "cupy" else _store_address
    return _store_scalar if issubclass(kind, np.generic) and size <= 8 else _store_bytes


def _store_double(words: memoryview, start: int, value: float) -> None:
    _DOUBLE.pack_into(words, 8 * start, value)


def _store_int(words: memoryview, start: int, value: int) -> None:
    try:
        words[start] = value
    except ValueError:  # negative, or too large
        if not -(2**63) <= value < 0:
            raise ArgumentError(
                f"{value} does not fit the 64 bits an int is passed in; give a smaller one, or a float"
            ) from None
        words[start] = value + 2**64


def _store_scalar(words: memoryview, start: int, value: np.generic[Any]) -> None:
    words[start] = int.from_bytes(value.tobytes(), "little")


def _store_address(words: memoryview, start: int, array: Any) -> None:
    words[start] = array.__cuda_array_interface__["data"][0]


def _store_bytes(words: memoryview, start: int, value: Any) -> None:
    data = value.tobytes() if isinstance(value, np.generic) else bytes(value)
    count = -(-len(data) // 8)
    words[start : start + count] = memoryview(data.ljust(8 * count, b"\0")).cast("Q")
