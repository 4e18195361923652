"""The judge's side of the arrays of a call: their places in shared memory, their initial contents, their copies.

Each call gets new places: inputs and outputs are in random order with random gaps, so that neither an address nor a
distance identifies the call. The gaps and the rooms for outputs are filled with poison.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core.capability import DTYPE_NAMES
from cuassay.core.generator import GeneratorState
from cuassay.core.words import shown
from cuassay.errors import ArgumentError
from cuassay.judging.protocol import ARENA_ALIGNMENT, Claim, Placed, Room, dtype_number

__all__ = [
    "Arena",
    "Asked",
    "Layout",
    "bytes_of",
    "fill",
    "form_of",
    "interpreted",
    "poison",
    "repeated",
    "same_bits",
    "unwritten",
    "words_of",
]

#: An expected output: its shape and dtype, or the bytes of room that it may take.
Asked = tuple[tuple[int, ...], Any] | int

_BYTE = np.dtype(np.uint8)

#: The largest gap between two arrays, in units of their alignment.
_MOST_GAP = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of the arrays of one call."""

    inputs: tuple[Placed, ...]
    rooms: tuple[Room, ...]
    poisons: tuple[bytes, ...] = ()

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first byte of each array and its number of bytes, in the order of the addresses."""
        return sorted([(one.low, one.nbytes) for one in self.inputs] + [(one.offset, one.nbytes) for one in self.rooms])

    @property
    def end(self) -> int:
        """The bytes from the start of the arena that hold arrays."""
        return max(map(sum, self.spans), default=0)


def form_of(arguments: Sequence[Any], options: Mapping[str, Any]) -> tuple[bytes, list[NDArray[Any]]]:
    """Return a call's arguments as JSON, and the arrays in them in order.

    Parameters
    ----------
    arguments, options : sequence and mapping
        Positional and named arguments: arrays, numbers, strings, None, generator states, and lists, tuples and
        mappings of them.

    Raises
    ------
    ArgumentError
        If there is any other object.
    """
    arrays: list[NDArray[Any]] = []
    form = [
        [_encoded(one, arrays) for one in arguments],
        {str(name): _encoded(one, arrays) for name, one in options.items()},
    ]
    return json.dumps(form).encode(), arrays


def _encoded(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Return `value` as JSON; a value without a JSON type becomes an object with one name."""
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, list):
        return [_encoded(one, arrays) for one in value]
    for kind, (types, what) in _ENCODED.items():
        if isinstance(value, types):
            return {kind: what(value, arrays)}
    raise ArgumentError(
        f"a candidate cannot be called with {shown(value)} ({type(value).__name__}); got it among the arguments; "
        "give arrays, numbers, words, None, a GeneratorState, or lists, tuples and mappings of them"
    )


def _kept(value: Any, arrays: list[NDArray[Any]]) -> int:
    arrays.append(np.asarray(value))
    return len(arrays) - 1


_ENCODED: dict[str, tuple[type | tuple[type, ...], Callable[[Any, list[NDArray[Any]]], Any]]] = {
    "array": (np.ndarray, _kept),
    "scalar": (np.generic, _kept),
    "complex": (complex, lambda value, _: [value.real, value.imag]),
    "generator": (GeneratorState, lambda value, _: [value.seed, value.offset]),
    "tuple": (tuple, lambda value, arrays: [_encoded(one, arrays) for one in value]),
    "mapping": (
        Mapping,
        lambda value, arrays: [[_encoded(key, arrays), _encoded(one, arrays)] for key, one in value.items()],
    ),
}


class Arena:
    """Shared memory of a fixed size that holds the arrays of one call at a time.

    Parameters
    ----------
    memory : memoryview
        The writable bytes shared with the candidate's process.
    """

    def __init__(self, memory: memoryview) -> None:
        self._bytes = np.frombuffer(memory, _BYTE)

    def __repr__(self) -> str:
        return f"Arena({self._bytes.nbytes:,} bytes)"

    def close(self) -> None:
        """Let the memory go; it is freed once no view of it is left."""
        self._bytes = np.empty(0, _BYTE)

    def place(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Asked], seed: int | None = None) -> Layout:
        """Choose the place of each array, by `seed` or at random, and write the poison; `give` writes the inputs.

        Raises
        ------
        ArgumentError
            If they do not fit, or an input has a dtype that the protocol does not support.
        """
        chance = random.Random(os.urandom(16) if seed is None else seed)  # noqa: S311  the draw is not secret
        spans = [_span(one) for one in inputs]
        sizes = [*(high - low for low, high in spans), *map(_room_nbytes, outputs)]
        starts = self._starts(sizes, chance)
        placed = tuple(map(_placed, inputs, starts, spans))
        rooms = tuple(map(Room, starts[len(inputs) :], sizes[len(inputs) :]))
        poisons = tuple(poison(_BYTE if isinstance(one, int) else as_dtype(one[1]), chance) for one in outputs)
        layout = Layout(placed, rooms, poisons)
        self._poison(layout, chance.randrange(256))
        return layout

    def _poison(self, layout: Layout, gap: int) -> None:
        """Write the poison of each room, and the number `gap` into all other bytes that are not of inputs."""
        at = 0
        for first, nbytes in layout.spans:
            self._bytes[at:first] = gap
            at = first + nbytes
        for one in layout.inputs:
            if one.nbytes != prod(one.shape) * as_dtype(DTYPE_NAMES[one.dtype]).itemsize:  # there are bytes inside it
                self._bytes[one.low : one.low + one.nbytes] = gap
        for room, pattern in zip(layout.rooms, layout.poisons, strict=True):
            fill(self._bytes[room.offset : room.offset + room.nbytes], pattern)

    def holds(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Asked]) -> bool:
        """Return whether the arrays of a call fit, with the largest gaps between them."""
        sizes = [*(high - low for low, high in map(_span, inputs)), *map(_room_nbytes, outputs)]
        return sum(sizes) + ARENA_ALIGNMENT * (_MOST_GAP + 1) * (len(sizes) + 1) <= self._bytes.nbytes

    def _starts(self, sizes: Sequence[int], chance: random.Random) -> list[int]:
        order = list(range(len(sizes)))
        chance.shuffle(order)
        starts, at = [0] * len(sizes), ARENA_ALIGNMENT
        for index in order:
            starts[index] = at
            filled = -(-sizes[index] // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
            at += filled + ARENA_ALIGNMENT * chance.randrange(1, _MOST_GAP + 1)
        if at > self._bytes.nbytes:
            raise ArgumentError(
                f"the arrays of one call take {at:,} bytes; the arena has {self._bytes.nbytes:,}; "
                "raise Limits.arena_nbytes, or judge smaller cases"
            )
        return starts

    def rouse(self) -> None:
        """Bring the device to the speed that it has at work, just before the clock is started."""

    def prepare(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> None:
        """Do what `give` needs and no candidate can see, before the clock is started."""

    def give(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> None:
        """Write the inputs, after the clock was started: a candidate can read the arena at any time."""
        for placed, array in zip(layout.inputs, inputs, strict=True):
            self._view(placed.first, array.shape, array.dtype, array.strides)[...] = array

    def _view(self, first: int, shape: Sequence[int], dtype: Any, strides: Sequence[int]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, self._bytes.data, first, strides)

    def changed(self, layout: Layout, inputs: Sequence[NDArray[Any]]) -> tuple[int, ...]:
        """Return the indices of the inputs whose bits have changed."""
        return tuple(
            index
            for index, (placed, array) in enumerate(zip(layout.inputs, inputs, strict=True))
            if not same_bits(self._view(placed.first, array.shape, array.dtype, array.strides), array)
        )

    def is_as_taken(self, layout: Layout, taken: Sequence[NDArray[Any]]) -> bool:
        """Return whether the rooms still hold the bytes that the last `take` copied."""
        rooms = (self._bytes[room.offset : room.offset + room.nbytes] for room in layout.rooms)
        return all(same_bits(now, then) for now, then in zip(rooms, taken, strict=True))

    def take(self, layout: Layout) -> Callable[[], list[NDArray[Any]]]:
        """Copy the bytes of all rooms, safe from later writes; return a function that gives these copies."""
        taken = [self._bytes[room.offset : room.offset + room.nbytes].copy() for room in layout.rooms]
        return lambda: taken


def interpreted(taken: NDArray[Any], claim: Claim) -> tuple[NDArray[Any] | None, str]:
    """Return the array that a candidate claims to have written, read from `taken`, or None and the reason."""
    if claim.problem:
        return None, claim.problem
    dtype = as_dtype(DTYPE_NAMES[claim.dtype])
    nbytes = prod(claim.shape) * dtype.itemsize
    if nbytes > taken.nbytes:
        return None, "too large"
    raw = taken[:nbytes]
    if dtype == np.bool_:
        return (raw != 0).reshape(claim.shape), ""
    return raw.view(dtype).reshape(claim.shape), ""


#: The largest part that is copied at a time, in bytes; it stays in the processor's cache.
_BLOCK = 1 << 18


def unwritten(taken: NDArray[Any], pattern: bytes) -> int:
    """Return how many bytes of a room still hold its poison, counted in words of 8 bytes."""
    words = taken.nbytes // 8
    found, expected = taken[: words * 8].view(np.uint64), repeated(pattern, words * 8).view(np.uint64)
    return 8 * int(np.count_nonzero(found == expected))


def _placed(array: NDArray[Any], start: int, span: tuple[int, int]) -> Placed:
    low, high = span
    number = dtype_number(dtype_name(array.dtype))
    return Placed(start, high - low, start - low, number, array.shape, array.strides)


def _span(array: NDArray[Any]) -> tuple[int, int]:
    """Return the bytes of an array relative to its first element: begin and end."""
    if array.size == 0:
        return 0, 0
    reaches = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    low = sum(reach for reach in reaches if reach < 0)
    return low, sum(reach for reach in reaches if reach > 0) + array.itemsize


def _room_nbytes(asked: Asked) -> int:
    if isinstance(asked, int):
        return asked
    shape, dtype = asked
    return prod(shape) * as_dtype(dtype).itemsize


def poison(dtype: np.dtype[Any], chance: random.Random) -> bytes:
    """Return 64 random bytes, different for each call; for a floating dtype they are NaNs with random payloads."""
    pattern = bytearray(chance.randbytes(64))
    if dtype.kind in "fcV" and dtype.itemsize > 1:  # V is bfloat16
        size = dtype.itemsize // (2 if dtype.kind == "c" else 1)
        for end in range(size, 65, size):  # little-endian: the exponent is in the last two bytes
            pattern[end - 2] |= 0xF0
            pattern[end - 1] |= 0x7F
    return bytes(pattern)


def repeated(pattern: bytes, nbytes: int) -> NDArray[np.uint8]:
    """Return `nbytes` bytes of a repeated pattern."""
    found = np.empty(nbytes, _BYTE)
    fill(found, pattern)
    return found


def fill(room: NDArray[np.uint8], pattern: bytes) -> None:
    """Fill contiguous bytes with a repeated pattern: the first block, and then copies of what is filled already."""
    done = min(len(pattern), room.nbytes)
    room[:done] = np.frombuffer(pattern, _BYTE, done)
    while done < room.nbytes:
        count = min(done, _BLOCK, room.nbytes - done)
        room[done : done + count] = room[:count]
        done += count


def bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array in C order, without a copy if it is in C order already."""
    return np.ascontiguousarray(array).reshape(-1).view(_BYTE)


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return whether two arrays hold the same bytes in C order."""
    (words, rest), (others, other_rest) = words_of(a), words_of(b)
    return np.array_equal(words, others) and np.array_equal(rest, other_rest)


def words_of(array: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Return the bits of an array in C order as words of 8 bytes, and the remaining bytes."""
    flat = bytes_of(array)
    whole = flat.size // 8 * 8
    return flat[:whole].view(np.uint64), flat[whole:]
