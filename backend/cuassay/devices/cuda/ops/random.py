"""Random numbers on CuPy arrays, and the state that captured graphs draw from.

A launch gets its seed and offset by value. A captured launch gets the address of a *cell* instead: 16 bytes of device
memory with the state that its replay draws from, written before each replay on the replay's stream.
Kernels: kernels/random.cu, kernels/philox.cuh. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.random`.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import cupy
import numpy as np

from cuassay.arrays import distributions
from cuassay.arrays.dtypes import compute_dtype
from cuassay.core import participants
from cuassay.core.device import Device
from cuassay.core.recordings import DrawState, Place, Recordings, ReplayState
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.driver.context import at
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.driver.graph_driver import status
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import order, perthread
from cuassay.devices.cuda.memory.alignment import aligned, deliver, is_aligned
from cuassay.devices.cuda.ops.elementwise import c_name
from cuassay.devices.cuda.ops.layouts import pack_length
from cuassay.devices.cuda.streams.stream import ExternalStream
from cuassay.errors import ArgumentError
from cuassay.ops import registry

__all__ = ["RECORDINGS", "PhiloxState", "drawn", "register"]

Array = Any

_BLOCK = 256
_PACK_NBYTES = 16


class PhiloxState(ctypes.Structure):
    """``PhiloxState`` of philox.cuh: the state that a launch draws from."""

    _fields_ = (("seed", ctypes.c_uint64), ("offset", ctypes.c_uint64), ("cell", ctypes.c_uint64))


def drawn(state: DrawState) -> tuple[PhiloxState, bool]:
    """Return the kernel argument for `state`, and whether a cell holds the state (``IN_CELL`` of the kernels).

    Raises
    ------
    ArgumentError
        If the state was recorded in a capture of another device kind.
    """
    if not isinstance(state, ReplayState):
        return PhiloxState(state.seed, state.offset, 0), False
    cell = state.place.cell
    if not isinstance(cell, _Cell):
        raise ArgumentError(f"{state!r} was not recorded in a capture on a CUDA device; draw it from its own generator")
    return PhiloxState(0, state.start, cell.address), True


# ------------------------------------------------------------------------------------------------ distributions


@cache
def _structure(*types: Any) -> type[ctypes.Structure]:
    """Return a ctypes structure with fields of `types`, for the kernels' ``Draw``."""
    fields = tuple((f"field{place}", kind) for place, kind in enumerate(types))
    return type("Draw", (ctypes.Structure,), {"_fields_": fields})


@cache
def _wide(dtype: np.dtype[Any]) -> Any:
    return ctypes.c_double if compute_dtype(dtype).itemsize == 8 else ctypes.c_float


def uniform(like: Array, *, state: DrawState, low: float, high: float, out: Array) -> None:
    """Draw uniformly from ``[low, high)``."""
    within = distributions.bounds(float(low), float(high), out.dtype)
    draw = _structure(*[_wide(out.dtype)] * 3)(within.low, within.step, within.last)
    _fill("Uniform", 16 // out.itemsize, draw, state, out)


def normal(like: Array, *, state: DrawState, mean: float, std: float, out: Array) -> None:
    """Draw from a normal distribution by the Box-Muller transform, in float, or in double for float64."""
    draw = _structure(*[_wide(out.dtype)] * 2)(mean, std)
    _fill("Normal", 2 if out.itemsize == 8 else 4, draw, state, out)


def integers(like: Array, *, state: DrawState, low: int, high: int, out: Array) -> None:
    """Draw integers uniformly from ``[low, high)``."""
    reach = high - low
    draw = _structure(ctypes.c_uint64, ctypes.c_uint64)(reach % 2**64, low % 2**64)
    if reach <= 2**32:
        _fill("Integers", 2, draw, state, out)
    else:
        _fill("LongIntegers", 1, draw, state, out)


def dropout_mask(like: Array, *, state: DrawState, p: float, out: Array) -> None:
    """Write True where `dropout` keeps the element."""
    draw = _structure(ctypes.c_uint64)(distributions.dropped_words(p))
    _fill("Keep", 4, draw, state, out)


def dropout(a: Array, *, state: DrawState, p: float, out: Array) -> None:
    """Write ``a / (1 - p)`` where the element is kept, else 0."""
    draw = _structure(ctypes.c_uint64, _wide(out.dtype))(distributions.dropped_words(p), distributions.kept_scale(p))
    _map("Dropout", a, draw, state, out)


def bernoulli(p: Array, *, state: DrawState, out: Array) -> None:
    """Write 1 with the given probability, else 0."""
    _map("Bernoulli", p, _structure(ctypes.c_uint64)(0), state, out)


def permutation(like: Array, *, state: DrawState, out: Array) -> None:
    """Write the numbers below ``out.size`` in random order."""
    if not out.size:
        return
    target = _dense(out)
    length = pack_length([target])
    where, in_cell = drawn(state)
    name = f"random_permutation<{c_name(out.dtype)}, {length}, {_c_bool(in_cell)}>"
    bits = distributions.permutation_bits(out.size)
    kernel("random.cu", name)(-(-out.size // (_BLOCK * length)), _BLOCK, (target, out.size, where, bits))
    deliver(target, out)


# ------------------------------------------------------------------------------------------------ launches


def _fill(draw: str, per_call: int, how: ctypes.Structure, state: DrawState, out: Array) -> None:
    if not out.size:
        return
    target = _dense(out)
    where, in_cell = drawn(state)
    name = _name("fill", draw, out.dtype, pack_length([target]), in_cell)
    grid = _grid(out.size, out.itemsize, per_call)
    kernel("random.cu", name)(grid, _BLOCK, (target, out.size, where, how))
    deliver(target, out)


def _map(draw: str, a: Array, how: ctypes.Structure, state: DrawState, out: Array) -> None:
    if not out.size:
        return
    source, target = cupy.ascontiguousarray(aligned(a)), _dense(out)
    where, in_cell = drawn(state)
    name = _name("map", draw, out.dtype, pack_length([source, target]), in_cell)
    kernel("random.cu", name)(_grid(out.size, out.itemsize, 4), _BLOCK, (source, target, out.size, where, how))
    deliver(target, out)


@cache
def _name(form: str, draw: str, dtype: np.dtype[Any], length: int, in_cell: bool) -> str:
    held = c_name(dtype)
    return f"random_{form}<{draw}<{held}>, {held}, {length}, {_c_bool(in_cell)}>"


def _c_bool(value: bool) -> str:
    return "true" if value else "false"


def _grid(size: int, itemsize: int, per_call: int) -> tuple[int, int, int]:
    """Return the number of blocks for `size` elements; ``Share`` of random.cu defines a thread's part."""
    group = max(_PACK_NBYTES // itemsize, per_call)
    groups = max(4 // (group // per_call), 1)
    return -(-size // (_BLOCK * group * groups)), 1, 1


def _dense(out: Array) -> Array:
    """Return `out`, or another array in C order if `out` is not: the numbers follow the logical order."""
    if is_c_contiguous(out) and is_aligned(out):
        return out
    return cupy.empty(out.shape, out.dtype)


# ------------------------------------------------------------------------------------------------ captured graphs


class _Cell:
    """16 bytes of device memory for the seed and offset of the next replay, and the stream that last wrote them."""

    __slots__ = ("address", "device", "memory", "name", "stream")

    def __init__(self, memory: Any, address: int, device: Device) -> None:
        self.memory = memory
        self.address = address
        self.device = device
        self.stream: Any = None
        self.name = 0

    def write_on(self, stream: Any) -> None:
        """Make `stream` the writer from now on, after the replays on the previous one, which may still be reading."""
        name = order.name_of(stream.ptr, self.device.index)
        if self.stream is not None and self.name != name:
            stream.wait_event(self.last_stream().record())
        self.stream, self.name = stream, name

    def last_stream(self) -> Any:
        """Return the stream that last wrote the cell, as this thread can name it."""
        address = perthread.handle(self.name)
        return self.stream if address == self.stream.ptr else ExternalStream(address, self.device.index)


class _Cells:
    """The cells of all devices; a cell is in use until its graph is gone and the graph's last replay is done."""

    #: The number of cells in one allocation.
    SLAB = 256

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[Device, list[_Cell]] = {}
        self._dropped: deque[_Cell] = deque()
        self._leaving: deque[tuple[Any, _Cell]] = deque()

    def take(self, device: Device) -> _Cell:
        """Return a cell of `device`; called during a capture."""
        with self._lock, _allowed(device):
            for _ in range(len(self._dropped)):
                self._mark(self._dropped.popleft())
            self._return()
            free = self._free.setdefault(device, [])
            if not free:
                memory = cupy.cuda.Memory(16 * self.SLAB)  # outside of all pools, because graphs outlive pools
                free += [_Cell(memory, memory.ptr + 16 * place, device) for place in range(self.SLAB)]
            return free.pop()

    def drop(self, cell: object) -> None:
        """Release the cell of a graph that is gone, after its last replay.

        Takes no lock, because finalisers call it.
        """
        if isinstance(cell, _Cell):
            self._mark(cell)

    def _mark(self, cell: _Cell) -> None:
        """Record an event on the stream of the last replay.

        If that stream is being captured, leave it to a later `take`.
        """
        if cell.stream is None:
            self._free.setdefault(cell.device, []).append(cell)
            return
        with _allowed(cell.device):
            if _is_captured(cell.stream):
                self._dropped.append(cell)
                return
            event = cupy.cuda.Event(disable_timing=True)
            event.record(cell.last_stream())
        cell.stream = None
        self._leaving.append((event, cell))

    def _return(self) -> None:
        while self._leaving and self._leaving[0][0].done:
            _, cell = self._leaving.popleft()
            self._free.setdefault(cell.device, []).append(cell)


def _is_captured(stream: Any) -> bool:
    """Whether `stream` is being captured; also True if the driver gives no answer, as for a default stream then."""
    found = ctypes.c_int()
    return bool(status("cuStreamIsCapturing", stream.ptr, ctypes.byref(found)) or found.value)


@contextmanager
def _allowed(device: Device) -> Iterator[None]:
    """Allow this thread to allocate and query on `device` inside the block, whatever the mode of running captures."""
    from cuda.bindings import driver

    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    former = check(driver.cuThreadExchangeStreamCaptureMode(relaxed), "allowing calls during a capture")
    try:
        with cupy.cuda.Device(device.index):
            yield
    finally:
        check(driver.cuThreadExchangeStreamCaptureMode(former), "restoring the capture mode")


def _publish(place: Place) -> None:
    """Write the state of the next replay on the current stream, after the previous replay."""
    cell = place.cell
    if not isinstance(cell, _Cell):
        return
    with at(cell.device.index):
        cell.write_on(cupy.cuda.get_current_stream())
        kernel("random.cu", "random_renew")(1, 1, (PhiloxState(place.state.seed, place.state.offset, cell.address),))


_CELLS = _Cells()

#: Takes part in every capture on CUDA devices, for all generators.
RECORDINGS = Recordings(_CELLS.take, _publish, _CELLS.drop)


def register() -> None:
    """Add these implementations to the registry, and let generators take part in captures."""
    for implementation in (uniform, normal, integers, permutation, bernoulli, dropout_mask, dropout):
        name = implementation.__name__
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
    participants.join("cuda", RECORDINGS)
