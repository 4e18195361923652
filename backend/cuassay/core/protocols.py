"""What a kind of device must offer, as protocols: the seam between policy above and drivers below.

Arrays are `Any` here: each kind has its own type, and this storey knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cuassay.core.capability import Answer
from cuassay.core.device import Device

__all__ = [
    "Backend",
    "Capture",
    "DeviceMemory",
    "Event",
    "MemorySource",
    "Observable",
    "PinnedMemory",
    "Spinning",
    "Stream",
    "StreamFacts",
]


@runtime_checkable
class Event(Protocol):
    """A point in a stream's order. Names follow ``torch.cuda.Event``; times are milliseconds."""

    @property
    def device(self) -> Device:
        """The device it belongs to."""

    def record(self, stream: Any = None) -> None:
        """Mark the end of what `stream` (None: the current one) has been given so far."""

    def wait(self, stream: Any = None) -> None:
        """Hold `stream` (None: the current one) until the recorded point is reached; the host does not wait."""

    def query(self) -> bool:
        """True when the recorded work is done, or nothing was recorded."""

    def synchronize(self) -> None:
        """Block the host until the recorded work is done."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds of device time from this event to `end`; both must have been made with timing."""


@runtime_checkable
class Stream(Protocol):
    """An ordered queue of work on one device. Names follow ``torch.cuda.Stream``."""

    @property
    def device(self) -> Device:
        """The device it queues work on."""

    def query(self) -> bool:
        """True when everything given to the stream is done."""

    def synchronize(self) -> None:
        """Block the host until everything given to the stream is done."""

    def record_event(self, event: Any = None) -> Any:
        """Record `event`, or a new one, here; gives the event."""

    def wait_event(self, event: Any) -> None:
        """Later work of this stream waits for `event`."""

    def wait_stream(self, stream: Any) -> None:
        """Later work of this stream waits for everything given to `stream` so far."""


@runtime_checkable
class Capture(Protocol):
    """Records the work given to a stream, without running it, into something replayable."""

    def begin(self, stream: Any = None) -> None:
        """From here, work given to `stream` is recorded."""

    def end(self) -> None:
        """Stop recording; the work can be replayed."""

    def replay(self) -> None:
        """Give the recorded work to the current stream."""

    def reset(self) -> None:
        """Forget the recorded work and free what it held; twice is allowed."""


class MemorySource(Protocol):
    """Where an allocator's memory comes from. Addresses and sizes are integers, in bytes; streams are integers.

    Every source gives whole *segments* (`reserve`). One whose `granularity` is not 0 also deals in *pages*: pieces of
    physical memory, each made in one piece (one handle) and a multiple of `granularity` long, which the policy places
    at addresses of a `span` and may show again, in any order, at an `alias`. The policy owns every decision: which
    page is where, which are free, and when a mapping goes; the source keeps only what the driver needs to undo a call
    (the handle of the page at an address, the pages of an alias).

    The rules that hold between the two:

    - Any method may be called from any thread, several at once, for disjoint addresses; none of the allocator's locks
      is held. A source need not order calls that concern one address: the policy never makes two at a time.
    - A call that raises has changed nothing, and what it had done of its work is undone. `OutOfMemoryError` says that
      there is no room; every other error is passed on to the caller of the allocator. Interrupts (what is not an
      `Exception`) are different in `release` and `unmap`: they can be raised when the work is done. They, and errors
      that come too late, are marked (`cuassay.core.interrupts`): `mark_early`, nothing was done; `mark_late`, all was.
      An interrupt without a mark is taken for late: the range is never used again.
    - `reserve`, `span`, `map` and `alias` may be called while a stream captures; `release`, `unmap` and `synchronize`
      are not. `record`, `wait` and `query` are not called for a block whose stream captures.
    - New addresses were used by nobody, so making a mapping waits for nothing. Before the policy takes a mapping
      away (`unmap`, `release` of an alias or a span) it calls `synchronize` with every stream that was given work on it
      through any of the page's addresses; so `unmap` and `release` of these need not wait. `release` of a segment
      is not preceded by `synchronize`: it must be safe with work under way, as ``cudaFree`` is, or stream-ordered.
    - A page's memory goes back to the device in `unmap` only when no alias shows it: the policy releases those first.

    Attributes
    ----------
    granularity : int
        Bytes that pages are multiples of, and aligned to; 0 for a source that has no pages: then `span`, `map`, `unmap`
        and `alias` are never called (and raise `CapabilityError`). It is constant.
    """

    @property
    def granularity(self) -> int:
        """Bytes that pages are multiples of; 0 where there are no pages."""

    def reserve(self, nbytes: int, stream: int) -> int:
        """Take a segment of `nbytes` in one piece for `stream`; gives its address, a multiple of 512.

        Raises
        ------
        OutOfMemoryError
            If there is no room.
        """

    def span(self, nbytes: int, stream: int) -> int:
        """Addresses without memory, for `stream`: a range of `nbytes`, a multiple of `granularity` and aligned to it.

        Raises
        ------
        OutOfMemoryError
            If not enough addresses are left; the policy then asks for less.
        """

    def map(self, address: int, pages: Sequence[int]) -> None:
        """Put new pages of these sizes, one handle each, side by side from `address` on, inside one span.

        All of them, accessible by the device (and its peers), or none. The addresses had no memory.

        Raises
        ------
        OutOfMemoryError
            If there is no room for all.
        """

    def unmap(self, pages: Sequence[int]) -> None:
        """Give the pages at these addresses of spans, as placed by `map`, back to the device; the addresses stay."""

    def alias(self, pages: Sequence[int]) -> int:
        """A new range that shows the pages at these addresses of spans, in this order; they stay where they are too.

        It takes no memory. Both addresses may be used by one stream, or by streams that events order; not by one
        kernel. A page may be in many aliases, and once in each.

        Raises
        ------
        OutOfMemoryError
            If the driver has no room for the mappings; the policy does without.
        """

    def release(self, address: int) -> None:
        """Give back what `reserve`, `span` (no page is mapped there any more) or `alias` gave at `address`."""

    def synchronize(self, streams: Sequence[int]) -> None:
        """Block the host until everything given to these streams so far is done."""

    def record(self, stream: int) -> Any:
        """A marker of what `stream` was given so far; dropped when it is no longer needed."""

    def wait(self, stream: int, event: Any) -> None:
        """Later work of `stream` waits for `event`, on the device."""

    def query(self, event: Any) -> bool:
        """True when `event` was reached."""


@runtime_checkable
class DeviceMemory(Protocol):
    """What a `Backend` also offers whose memory is handed out by the policy of `cuassay.memory`.

    Allocators are `Any` here: this storey knows none.
    """

    def allocator(self, index: int) -> Any:
        """The `cuassay.memory.CachingAllocator` of device `index`; its streams are numbers."""

    def stream_number(self, stream: Any) -> int:
        """The number of `stream` for `allocator`."""

    def memory_in_use(self, index: int) -> int:
        """Bytes of device `index` that live arrays and blocks of this process hold; `cuassay.testing.guards` asks."""

    def replay_target(self, index: int) -> tuple[Callable[[], MemorySource], Any]:
        """What makes sources of one's own on device `index`, and a `cuassay.memory.trace.Tagger` for their memory."""


@runtime_checkable
class PinnedMemory(Protocol):
    """What a `Backend` also offers where host memory can be page-locked (capability ``pinned_memory``)."""

    def empty_pinned(self, shape: tuple[int, ...], dtype: Any, index: int) -> Any:
        """An uninitialised C-contiguous host array that device `index` copies to and from without the host."""

    def is_pinned(self, array: Any) -> bool:
        """Whether `array` is in such memory."""

    def transfer(self, src: Any, dst: Any, *, non_blocking: bool = False) -> None:
        """Copy between host and device in order of the device's current stream; waits unless `non_blocking`.

        The arrays are of one shape and dtype: `cuassay.devices.copy` has made sure.
        """


class StreamFacts(NamedTuple):
    """A stream as the order of work needs it.

    Attributes
    ----------
    device_index : int
        The device whose work it orders.
    number : int
        How watchers know it; 0 is the legacy default stream of its device.
    label : str
        How messages name it: ``"stream 3"``.
    is_blocking : bool
        Whether it and the legacy default stream wait for each other.
    is_of_thread : bool
        Whether watchers know another thread's stream by the same number.
    """

    device_index: int
    number: int
    label: str
    is_blocking: bool = False
    is_of_thread: bool = False


@runtime_checkable
class Observable(Protocol):
    """What a `Backend` also offers whose accesses `cuassay.observe.sanitizer` can judge; it tells watchers of them.

    Where other libraries may capture its streams, a method ``is_capturing(number)`` says whether one is captured.
    """

    def extent(self, array: Any) -> Any:
        """Where `array` lies: a `cuassay.order.extents.Extent`."""

    def current_number(self, index: int) -> int:
        """By which number watchers know the current stream of device `index`."""

    def stream_facts(self, index: int, number: int) -> StreamFacts:
        """The stream that watchers know by `number`, met with device `index`."""


@runtime_checkable
class Spinning(Protocol):
    """A backend whose streams can be kept busy; a kind that runs each call at once, as cpu does, is not one.

    It may have an attribute ``longest_hold_s``: for how many seconds a stream is worth holding to be measured; without
    end if its time is virtual. A backend with virtual time says so by ``time_unit = "virtual s"``, and its method
    ``now_s()`` gives the host's. A method ``throttled(index)`` says whether the device holds its clocks down now, or
    None if that is unknown.
    """

    def spin(self, index: int, cycles: int) -> None:
        """Keep the current stream of device `index` busy for `cycles` of its clock, touching no memory."""


@runtime_checkable
class Backend(Protocol):
    """One kind of device: what `cuassay.devices.<kind>` exports as ``BACKEND``.

    A device is addressed by its index. Nothing may touch a driver before the first method is called, and
    `why_absent`, `count`, `probe` and `identity` must not leave a context behind on any device.
    """

    kind: str

    def why_absent(self) -> str | None:
        """Why no device of this kind is usable here, or None when at least one is."""

    def count(self) -> int:
        """Number of devices of this kind."""

    def probe(self, index: int, name: str) -> Answer:
        """Whether device `index` has capability `name` (see `cuassay.core.capability`)."""

    def identity(self, index: int) -> Mapping[str, str]:
        """Facts that tell this device from another: at least ``name``.

        Names are those of `cuassay_reports.facts.FINGERPRINT`: ``uuid``, ``driver``, ``capability``, ``profile``...
        """

    def health(self, index: int) -> str | None:
        """Why nothing more can run on device `index` in this process, or None when it is well."""

    def memory_info(self, index: int) -> tuple[int, int]:
        """Free and total memory of device `index`, bytes."""

    def owns(self, array_type: type) -> bool:
        """True when arrays of this type are of this kind."""

    def device_of(self, array: Any) -> Device:
        """Where `array` lives."""

    def namespace(self, index: int) -> Any:
        """The array namespace (``xp``): NumPy's names over this kind's arrays, created on device `index`.

        Of a library's arrays, where device `index` is the current one, the library itself.
        """

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> Any:
        """An uninitialised C-contiguous array on device `index`, in the order of `stream` (None: the current one).

        A kind outside this package may leave out `stream`: it is given only where the caller named one. Raises
        `OutOfMemoryError`, `CapabilityError`.
        """

    def from_host(self, array: Any, index: int) -> Any:
        """A copy of a `numpy.ndarray` on device `index`, its strides kept where the kind can."""

    def to_host(self, array: Any) -> Any:
        """A copy of `array` as a `numpy.ndarray`; waits for it."""

    def overlap(self, a: Any, b: Any) -> str:
        """``"none"``, ``"same"`` (identical elements in identical order) or ``"partial"``."""

    def activate(self, index: int) -> AbstractContextManager[Any]:
        """Make device `index` the current one of this thread inside the block."""

    def is_current(self, index: int) -> bool:
        """True when work may be given to device `index` as it is, without `activate`; asked at every call of an op."""

    def synchronize(self, index: int) -> None:
        """Block the host until everything given to device `index` is done."""

    def current_stream(self, index: int) -> Stream:
        """The stream that work goes to in this thread."""

    def new_stream(self, index: int, priority: int = 0) -> Stream:
        """A stream of its own; lower numbers go first."""

    def use_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Work goes to `stream` inside the block, in this thread."""

    def new_event(self, index: int, *, timing: bool = False) -> Event:
        """An event of device `index`."""

    def new_capture(self, index: int, *, keep_graph: bool = False) -> Capture:
        """A capture for device `index`; kept, it is made executable by its first replay. Raises `CapabilityError`."""

    def flush_cache(self, index: int) -> None:
        """Evict this device's level-2 cache, in stream order, so that the next reads come from memory."""
