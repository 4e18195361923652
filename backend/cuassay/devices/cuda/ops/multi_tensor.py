"""Operations over lists of CuPy arrays, each one launch whatever the list: tables in device memory, and what uses them.

`Tables` is for other kernels of this shape too (the fused optimizer's). A call builds them, uploads them and launches;
a plan keeps them.
Kernels: kernels/multi_tensor.cu. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.multi_tensor`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import FLOATS, as_dtype, compute_dtype, dtype_name
from cuassay.core.device import Device
from cuassay.core.participants import join
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.driver.graph_driver import relaxed
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.perthread import PER_THREAD
from cuassay.devices.cuda.streams.event import Event
from cuassay.errors import ArgumentError
from cuassay.ops import Op, registry

__all__ = ["BLOCK", "Tables", "elements_of", "hold", "register", "upload"]

Array = Any
Arrays = Sequence[Any]
Ints = np.ndarray[Any, Any]
Bound = Mapping[str, Any]
Run = Callable[[], None]

#: Threads a block; `kThreads` of multi_tensor.cuh.
BLOCK = 256
_PACK_NBYTES = 16

#: Packs a thread, elementwise and for norms; a norm's block leaves one number, so it takes more.
_PACKS, _NORM_PACKS = 1, 64

_current_stream = cupy.cuda.get_current_stream
_record = cupy.cuda.runtime.eventRecord
_wait = cupy.cuda.runtime.streamWaitEvent

#: What `Tensor` of multi_tensor.cuh has beside the addresses: elements, origin, chunks, first chunk.
_COUNTS = 4


def elements_of(*dtypes: Any) -> int:
    """Elements that one access of the widest of `dtypes` takes: all lists are walked in step."""
    return _PACK_NBYTES // max(as_dtype(dtype).itemsize for dtype in dtypes)


class Tables:
    """Where the tensors of some lists lie, and how they are cut into chunks; in device memory of the current device.

    Parameters
    ----------
    lists : sequence of (sequence of array, or None)
        One list after another as the kernel numbers them; None where a list is missing. The first is present.
    packs : int
        Packs that a thread takes.
    accesses : sequence of int, optional
        How often a kernel goes to each list: where they begin differently, those it goes to most have the boundary.
    parts : bool
        There is a float64 a chunk as well.
    from_zero : bool
        Chunks begin at element 0, at a 16-byte boundary or not: packs of a thread are then whole groups of elements.

    Attributes
    ----------
    blocks : int
        Chunks of all tensors. A tensor without elements has one, so that its step count moves as the others' do.
    off : int
        A bit for each list that, of some tensor, begins differently far past a 16-byte boundary than most others.
    tensors, chunks, arrivals, parts : int
        Addresses: of the tables, of a counter a tensor, of a float64 a chunk.
    """

    def __init__(
        self,
        lists: Sequence[Arrays | None],
        packs: int,
        *,
        accesses: Sequence[int] = (),
        parts: bool = False,
        from_zero: bool = False,
    ) -> None:
        self._lists = tuple(lists)
        self._accesses = np.array(accesses or [1] * len(lists))
        self._from_zero = from_zero
        self._length = elements_of(*(arrays[0].dtype for arrays in lists if arrays))
        self._addresses = np.zeros((len(lists[0] or ()), len(lists)), np.int64)
        for place, arrays in enumerate(lists):
            if arrays is not None:
                self._addresses[:, place] = [array.data.ptr for array in arrays]
        self._origin, self.off = self._begin(self._addresses)
        sizes = np.array([array.size for array in lists[0] or ()], np.int64)
        counts = np.maximum(1, -(-(sizes - self._origin) // (BLOCK * self._length * packs)))
        first = np.cumsum(counts) - counts
        self.blocks = int(counts.sum())
        self._counts = np.stack([sizes, self._origin, counts, first], axis=1)
        tensor = np.repeat(np.arange(sizes.size, dtype=np.int64), counts)
        index = np.arange(self.blocks, dtype=np.int64) - np.repeat(first, counts)
        zeros = np.zeros(-(-sizes.size // 2), np.int64)
        self._cut = upload(np.concatenate([tensor | index << 32, zeros]))
        self._parts = cupy.empty(self.blocks if parts else 0, np.float64)
        self._uploaded: Event | None = None
        self.chunks, self.parts = self._cut.data.ptr, self._parts.data.ptr
        self.arrivals = self.chunks + 8 * self.blocks
        self._fill()

    def __repr__(self) -> str:
        return f"Tables({len(self._lists)} lists, {len(self._counts):,} tensors, {self.blocks:,} chunks)"

    def _begin(self, addresses: Ints) -> tuple[Ints, int]:
        """Where each tensor's chunk 0 begins: where most of its lists have a boundary; and which lists have not."""
        present = [place for place, arrays in enumerate(self._lists) if arrays]
        itemsizes = np.array([arrays[0].dtype.itemsize for arrays in self._lists if arrays])
        begins, astray = np.divmod(addresses[:, present], itemsizes)
        if astray.any():
            raise ArgumentError(
                "each array of a list must begin at a multiple of its elements' size; got one at "
                f"{int(addresses[:, present][astray > 0][0]):#x}; copy it first with cuassay.ops.copy"
            )
        past = begins % self._length
        if self._from_zero:
            origin = np.zeros(len(past), np.int64)
        else:
            alike = (past[:, :, None] == past[:, None, :]) @ self._accesses[present]
            origin = -np.take_along_axis(past, np.argmax(alike, axis=1)[:, None], axis=1)[:, 0]
        unlike = np.any(past != -origin[:, None], axis=0)
        return origin, sum(1 << place for place, off in zip(present, unlike, strict=True) if off)

    def _fill(self) -> None:
        """The table of tensors gets new memory: a launch given to another stream may still read the old one."""
        self._table = upload(np.concatenate([self._addresses, self._counts], axis=1))
        self.tensors = self._table.data.ptr
        stream = _current_stream()
        self._stream, self._streams = _known(stream.ptr), {stream.ptr} - {PER_THREAD}
        if stream.is_capturing():  # each replay uploads, in order of what else was captured
            self._await()
        else:
            self._uploaded = Event()
            self._uploaded.admit(self._table.data.device_id)
            _record(self._uploaded.handle, stream.ptr)

    def use(self, kept: Any) -> None:
        """Before a launch: its stream comes after the upload, and what captures replay is kept, as `kept` is."""
        stream = _current_stream()
        if stream.ptr != self._stream:
            self._use_on(stream)
        if _KEEPER.open:
            hold(kept)
            if stream.is_capturing():
                self._await()

    def _use_on(self, stream: Any) -> None:
        """Another stream than the last: it waits for the upload once, and the memory is not used again before it."""
        if stream.is_capturing():
            self._await()
            return
        if stream.ptr not in self._streams:
            if self._uploaded is not None:
                _wait(stream.ptr, self._uploaded.handle)
            for memory in (self._table, self._cut, self._parts):
                if hook.block_of(memory) is not None:
                    hook.record_stream(memory, stream)
            self._streams.add(stream.ptr)
            self._streams.discard(PER_THREAD)
        self._stream = _known(stream.ptr)

    def _await(self) -> None:
        """The host waits for the upload: a captured stream cannot, and no one knows which will replay the launch."""
        uploaded, self._uploaded = self._uploaded, None
        if uploaded is not None:
            with relaxed():
                cupy.cuda.runtime.eventSynchronize(uploaded.handle)

    def replaced(self, place: int, arrays: Arrays) -> Tables | None:
        """These tables with another list at `place`; None where its arrays do not match, or begin elsewhere."""
        former = self._lists[place]
        if former is None or len(arrays) != len(former) or not _alike(arrays, former):
            return None
        stream = _current_stream()
        if stream.ptr != self._stream:  # what the new tables share with these is there for it, too
            self._use_on(stream)
        new = object.__new__(Tables)
        vars(new).update(vars(self))
        new._lists = (*self._lists[:place], arrays, *self._lists[place + 1 :])
        new._addresses = self._addresses.copy()
        new._addresses[:, place] = [array.data.ptr for array in arrays]
        origin, off = new._begin(new._addresses)
        if off != self.off or not np.array_equal(origin, self._origin):
            return None
        new._fill()
        return new


def _known(address: int) -> int:
    """The address of a stream to compare others with; of each thread's default stream, one that no stream has."""
    return -1 if address == PER_THREAD else address


def _alike(arrays: Arrays, former: Arrays) -> bool:
    """Whether each array is one as its predecessor: CuPy's, of that shape and dtype, contiguous, on that device."""
    dtype, device = former[0].dtype, former[0].data.device_id
    return all(
        type(new) is cupy.ndarray
        and new.shape == old.shape
        and new.dtype == dtype
        and is_c_contiguous(new)
        and new.data.device_id == device
        for new, old in zip(arrays, former, strict=True)
    )


#: What the graphs of captures that others began read: nobody tells when these are gone.
_OF_OTHERS: list[tuple[Ints, Array]] = []


def upload(host: Ints) -> Array:
    """A copy on the device. In a capture the graph copies at each replay, so what it copies from is kept for it."""
    made = cupy.empty(host.shape, host.dtype)
    stream = cupy.cuda.get_current_stream()
    if stream.is_capturing():
        if _KEEPER.open:
            hold(host, made)
        else:
            _OF_OTHERS.append((host, made))
        cupy.cuda.runtime.memcpyAsync(
            made.data.ptr, host.ctypes.data, host.nbytes, cupy.cuda.runtime.memcpyHostToDevice, stream.ptr
        )
    else:
        made.set(host)
    return made


class _Keeper:
    """Keeps what captured launches read, as long as the capture is not reset; see `cuassay.core.participants`.

    Attributes
    ----------
    open : dict of int to list
        What is kept for each capture that has not ended.
    """

    def __init__(self) -> None:
        self._held: dict[int, list[Any]] = {}
        self.open: dict[int, list[Any]] = {}

    def capture_begin(self, capture: object, device: Device) -> None:
        """From here what is held is held for `capture`."""
        self._held[id(capture)] = self.open[id(capture)] = []

    def capture_end(self, capture: object, device: Device) -> None:
        """Nothing more is added."""
        self.open.pop(id(capture), None)

    def capture_forget(self, capture: object, device: Device) -> None:
        """The graph is gone."""
        self.open.pop(id(capture), None)
        self._held.pop(id(capture), None)

    def hold(self, *things: Any) -> None:
        """Keep `things` for every capture that is open; most of the time there is none."""
        for held in tuple(self.open.values()):
            held.extend(things)


_KEEPER = _Keeper()
hold = _KEEPER.hold


# ------------------------------------------------------------------------------------------------ the ops


class _Scalars(ctypes.Structure):
    """``Scalars`` of multi_tensor.cu."""

    _fields_ = (("cell", ctypes.c_uint64), ("b", ctypes.c_double), ("scalar", ctypes.c_double))


class _ListLaunch:
    """An implementation from a function that makes one launch ready: run at once, or kept as a plan."""

    def __init__(self, ready: Callable[..., Run]) -> None:
        self._ready = ready

    def __call__(self, *arguments: Any, **scalars: Any) -> None:
        """Build the tables, launch."""
        self._ready(*arguments, **scalars)()

    def prepare(self, op: Op, bound: Bound, out: Array) -> Run:
        """The launch, with its tables."""
        return self._ready(**bound) if out is None else self._ready(**bound, out=out)


def _name(dtype: Any) -> str:
    return dtype_name(dtype)


def _pointwise(operation: str, a: Arrays, b: Any = None, *, scalar: Any = 0.0) -> Run:
    """``a = operation(a, b, scalar)``; b is a list or a number, and so may be the scalar, on the host or the device."""
    listed = isinstance(b, list | tuple)
    kind = a[0].dtype, b[0].dtype if listed else a[0].dtype
    scalars = _Scalars()
    given: tuple[tuple[str, Any], ...] = (("b", None if listed else b), ("scalar", scalar))
    for field, value in given:
        if hasattr(value, "dtype"):
            scalars.cell = value.data.ptr
        elif value is not None:
            setattr(scalars, field, value)
    tables = Tables([a, b if listed else None], _PACKS)
    flags = f"{word(listed)}, {tables.off}"
    name = f"pointwise<{operation}, {_name(kind[0])}, {_name(kind[1])}, {flags}, {_PACKS}>"
    arguments = (tables.tensors, tables.chunks, scalars)
    return _held(name, tables, arguments, (a, b, scalar))


def _held(name: str, tables: Tables, arguments: tuple[Any, ...], kept: Any) -> Run:
    """The launch of one block a chunk, which holds the tables and what lies at their addresses."""
    fire = kernel("multi_tensor.cu", name).bind(tables.blocks, BLOCK, arguments)

    def run(kept: Any = (tables, kept)) -> None:
        tables.use(kept)
        fire()

    return run


def word(truth: Any) -> str:
    """A template argument."""
    return "true" if truth else "false"


def _add(a: Arrays, b: Any, *, alpha: float) -> Run:
    return _pointwise("Add", a, b, scalar=alpha)


def _mul(a: Arrays, b: Any) -> Run:
    return _pointwise("Mul", a, b)


def _lerp(a: Arrays, b: Arrays, weight: Any) -> Run:
    return _pointwise("Lerp", a, b, scalar=weight)


def _copy(a: Arrays, b: Arrays) -> Run:
    return _pointwise("Copy", a, b)


def _zero(a: Arrays) -> Run:
    return _pointwise("Zero", a)


def _unscale(grads: Arrays, found_inf: Array, inv_scale: Array) -> Run:
    dtype = grads[0].dtype
    tables = Tables([grads], _PACKS)
    arguments = (tables.tensors, tables.chunks, found_inf, inv_scale)
    return _held(f"unscale<{_name(dtype)}, {_PACKS}>", tables, arguments, grads)


def _norm(a: Arrays, *, ord: float, out: Array) -> Run:  # noqa: A002  NumPy's name
    dtype = a[0].dtype
    order = "Largest" if ord == math.inf else "SumOfSquares"
    tables = Tables([a], _NORM_PACKS, parts=True)
    name = f"norms<{order}, {_name(dtype)}, {_name(compute_dtype(dtype))}, {_NORM_PACKS}>"
    if not is_c_contiguous(out):
        return _through(name, tables, out, a)
    return _held(name, tables, (tables.tensors, tables.chunks, tables.parts, tables.arrivals, out), a)


def _through(name: str, tables: Tables, out: Array, kept: Any) -> Run:
    """Into an array of its own, from which a strided `out` is filled."""
    dense = cupy.empty(out.shape, out.dtype)
    fire = _held(name, tables, (tables.tensors, tables.chunks, tables.parts, tables.arrivals, dense), (kept, dense))

    def run() -> None:
        fire()
        cupy.copyto(out, dense)

    return run


def _global_norm(grads: Arrays, norm: Any, found_inf: Any, grad_scale: Any, *, accumulate: bool) -> Run:
    return _GlobalNorm(grads, (norm, found_inf, grad_scale), accumulate=accumulate)


class _GlobalNorm:
    """The norm pass of one list, made ready; new gradients of the same shapes change only its table."""

    def __init__(self, grads: Arrays, cells: tuple[Any, Any, Any], *, accumulate: bool) -> None:
        self._cells, self._accumulate, self._dtype = cells, bool(accumulate), grads[0].dtype
        self._bind(Tables([grads], _NORM_PACKS, parts=True))

    def _bind(self, tables: Tables) -> None:
        self._tables = tables
        pointers = [0 if cell is None else cell for cell in self._cells]
        arguments = (tables.tensors, tables.chunks, tables.parts, tables.arrivals, *pointers, self._accumulate)
        name = f"global_norm<{_name(self._dtype)}, {_NORM_PACKS}>"
        self._fire = kernel("multi_tensor.cu", name).bind(tables.blocks, BLOCK, arguments)

    def __call__(self) -> None:
        """Launch."""
        self._tables.use(self._tables)
        self._fire()

    def rebind(self, changed: Bound) -> Run | None:
        """With other gradients, where nothing else changes and they fit."""
        tables = self._tables.replaced(0, changed["grads"]) if set(changed) == {"grads"} else None
        if tables is None:
            return None
        self._bind(tables)
        return self


def register() -> None:
    """Enter these into the registry."""
    join("cuda", _KEEPER)
    table: dict[str, Callable[..., Run]] = {
        "foreach_add_": _add,
        "foreach_mul_": _mul,
        "foreach_lerp_": _lerp,
        "foreach_copy_": _copy,
        "foreach_zero_": _zero,
        "foreach_unscale_": _unscale,
        "foreach_norm": _norm,
        "global_norm_": _global_norm,
    }
    for name, ready in table.items():
        registry.implement(name, kind="cuda", dtypes=FLOATS)(_ListLaunch(ready))
