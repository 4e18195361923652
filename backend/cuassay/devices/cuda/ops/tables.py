"""Tables in device memory with the addresses of the tensors in lists, for kernels that take a whole list at a time.

`multi_tensor` and the fused optimizers use them. Kernels read them with kernels/multi_tensor.cuh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.device import Device
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.driver.graph_driver import relaxed
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.perthread import PER_THREAD
from cuassay.devices.cuda.streams.event import Event
from cuassay.errors import ArgumentError

__all__ = ["BLOCK", "KEEPER", "Keeper", "Tables", "elements_of"]

Array = Any
Arrays = Sequence[Any]
Ints = np.ndarray[Any, Any]

#: Threads of a block; `kThreads` of multi_tensor.cuh.
BLOCK = 256
_PACK_NBYTES = 16

_current_stream = cupy.cuda.get_current_stream
_record = cupy.cuda.runtime.eventRecord
_wait = cupy.cuda.runtime.streamWaitEvent

#: The number of words in `Tensor` of multi_tensor.cuh after the addresses: elements, origin, chunks, first chunk.
_COUNTS = 4


def elements_of(*dtypes: Any) -> int:
    """Return the elements that one access of the widest of `dtypes` takes: all lists are walked in the same steps."""
    return _PACK_NBYTES // max(as_dtype(dtype).itemsize for dtype in dtypes)


class Tables:
    """The addresses of the tensors of some lists, and how they are cut into chunks, in memory of the current device.

    Parameters
    ----------
    lists : sequence of (sequence of array, or None)
        The lists in the order in which the kernel numbers them; None for a missing list. The first list is present.
    packs : int
        Packs that a thread takes.
    accesses : sequence of int, optional
        How often a kernel accesses each list: if lists begin at different offsets, the most accessed ones get aligned.
    parts : bool
        Whether there is also a float64 for each chunk.
    from_zero : bool
        Whether chunks begin at element 0 even if it is not at a 16-byte boundary: a thread's packs are then whole
        groups of elements.

    Attributes
    ----------
    blocks : int
        Chunks of all tensors. A tensor without elements has one chunk, so that its step count advances with the others.
    off : int
        A bit for each list that, for some tensor, begins at another offset from a 16-byte boundary than most lists.
    tensors, chunks, arrivals, parts : int
        The addresses of the tables, of a counter for each tensor, and of a float64 for each chunk.
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
        self._cut = _upload(np.concatenate([tensor | index << 32, zeros]))
        self._parts = _empty((self.blocks if parts else 0,), np.float64)
        self._uploaded: Event | None = None
        self.chunks, self.parts = self._cut.data.ptr, self._parts.data.ptr
        self.arrivals = self.chunks + 8 * self.blocks
        self._fill()

    def __repr__(self) -> str:
        return f"Tables({len(self._lists)} lists, {len(self._counts):,} tensors, {self.blocks:,} chunks)"

    def _begin(self, addresses: Ints) -> tuple[Ints, int]:
        """Return the origin of each tensor's chunk 0, where most of its lists are aligned, and which lists are not."""
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
        """Put the table of tensors into new memory: a launch on another stream may still read the old one."""
        self._table = _upload(np.concatenate([self._addresses, self._counts], axis=1))
        self.tensors = self._table.data.ptr
        stream = _current_stream()
        self._stream, self._streams = _known(stream.ptr), {stream.ptr} - {PER_THREAD}
        if stream.is_capturing():  # each replay uploads, in order of the other captured work
            self._await()
        else:
            self._uploaded = Event()
            self._uploaded.admit(self._table.data.device_id)
            _record(self._uploaded.handle, stream.ptr)

    def use(self, kept: Any) -> None:
        """Prepare for a launch: order its stream after the upload, and keep alive what captured launches read."""
        stream = _current_stream()
        if stream.ptr != self._stream:
            self._use_on(stream)
        if KEEPER.open:
            KEEPER.hold(kept)
            if stream.is_capturing():
                self._await()

    def _use_on(self, stream: Any) -> None:
        """Switch to another stream: it waits once for the upload, and the memory is not reused before its work."""
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
        """Make the host wait for the upload: a captured stream cannot, and the replaying stream is unknown."""
        uploaded, self._uploaded = self._uploaded, None
        if uploaded is not None:
            with relaxed():
                cupy.cuda.runtime.eventSynchronize(uploaded.handle)

    def replaced(self, place: int, arrays: Arrays) -> Tables | None:
        """Return these tables with another list at `place`, or None if its arrays do not match or begin elsewhere."""
        former = self._lists[place]
        if former is None or len(arrays) != len(former) or not _alike(arrays, former):
            return None
        stream = _current_stream()
        if stream.ptr != self._stream:  # the new tables share memory with these, so it must be ready for this stream
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
    """Return the address by which streams are compared; each thread's default stream gets one that no stream has."""
    return -1 if address == PER_THREAD else address


def _alike(arrays: Arrays, former: Arrays) -> bool:
    """Whether each array matches its predecessor: CuPy's, with that shape, dtype and device, and contiguous."""
    dtype, device = former[0].dtype, former[0].data.device_id
    return all(
        type(new) is cupy.ndarray
        and new.shape == old.shape
        and new.dtype == dtype
        and is_c_contiguous(new)
        and new.data.device_id == device
        for new, old in zip(arrays, former, strict=True)
    )


#: What graphs of other libraries' captures read; nobody reports when such a graph is gone.
_OF_OTHERS: list[tuple[Ints, Array]] = []


def _empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an array of cuassay's allocator, even if CuPy uses another; only its memory can be recorded."""
    return hook.empty(shape, dtype, cupy.cuda.runtime.getDevice())


def _upload(host: Ints) -> Array:
    """Copy to the device. In a capture the graph copies at each replay, so the host array is kept for it."""
    made = _empty(host.shape, host.dtype)
    stream = cupy.cuda.get_current_stream()
    if stream.is_capturing():
        if KEEPER.open:
            KEEPER.hold(host, made)
        else:
            _OF_OTHERS.append((host, made))
        cupy.cuda.runtime.memcpyAsync(
            made.data.ptr, host.ctypes.data, host.nbytes, cupy.cuda.runtime.memcpyHostToDevice, stream.ptr
        )
    else:
        made.set(host)
    return made


class Keeper:
    """Keeps what captured launches read alive until the capture is reset; see `cuassay.core.participants`.

    Attributes
    ----------
    open : dict of int to list
        What is kept for each capture that has not ended.
    """

    def __init__(self) -> None:
        self._held: dict[int, list[Any]] = {}
        self.open: dict[int, list[Any]] = {}

    def capture_begin(self, capture: object, device: Device) -> None:
        """Start keeping objects for `capture`."""
        self._held[id(capture)] = self.open[id(capture)] = []

    def capture_end(self, capture: object, device: Device) -> None:
        """Stop adding objects for `capture`."""
        self.open.pop(id(capture), None)

    def capture_forget(self, capture: object, device: Device) -> None:
        """Drop the objects of a graph that is gone."""
        self.open.pop(id(capture), None)
        self._held.pop(id(capture), None)

    def hold(self, *things: Any) -> None:
        """Keep `things` for every open capture; most of the time there is none."""
        for held in tuple(self.open.values()):
            held.extend(things)


KEEPER = Keeper()
