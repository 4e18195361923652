"""The protocols that a device kind implements. They separate policy from drivers.

Arrays are `Any` here, because each kind has its own array type and this storey imports none of them.
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
    """A point in a stream's order. Names follow ``torch.cuda.Event``. Times are milliseconds."""

    @property
    def device(self) -> Device:
        """The device it belongs to."""

    def record(self, stream: Any = None) -> None:
        """Mark the end of the work given to `stream` (None: the current one) so far."""

    def wait(self, stream: Any = None) -> None:
        """Hold `stream` (None: the current one) until the recorded point is reached; the host does not wait."""

    def query(self) -> bool:
        """Return True if the recorded work is done or nothing was recorded."""

    def synchronize(self) -> None:
        """Block the host until the recorded work is done."""

    def elapsed_time(self, end: Any) -> float:
        """Return the device time from this event to `end` in milliseconds. Both must have been made with timing."""


@runtime_checkable
class Stream(Protocol):
    """An ordered queue of work on one device. Names follow ``torch.cuda.Stream``."""

    @property
    def device(self) -> Device:
        """The device it queues work on."""

    def query(self) -> bool:
        """Return True if all work given to the stream is done."""

    def synchronize(self) -> None:
        """Block the host until all work given to the stream is done."""

    def record_event(self, event: Any = None) -> Any:
        """Record `event`, or a new event if it is None, on this stream, and return it."""

    def wait_event(self, event: Any) -> None:
        """Make later work of this stream wait for `event`."""

    def wait_stream(self, stream: Any) -> None:
        """Make later work of this stream wait for all work given to `stream` so far."""


@runtime_checkable
class Capture(Protocol):
    """Records the work given to a stream, without running it, so that it can be replayed."""

    def begin(self, stream: Any = None) -> None:
        """Start to record the work given to `stream` (None: the current one)."""

    def end(self) -> None:
        """Stop recording. The work can then be replayed."""

    def replay(self) -> None:
        """Launch the recorded work on the current stream."""

    def reset(self) -> None:
        """Drop the recorded work and free its memory. Calling this twice is allowed."""


class MemorySource(Protocol):
    """The source of an allocator's memory. Addresses and sizes are integers, in bytes; streams are integers.

    Every source provides whole *segments* (`reserve`). A source whose `granularity` is not 0 also provides *pages*. A
    page is a piece of physical memory with one handle, and its size is a multiple of `granularity`. The allocation
    policy maps pages at addresses of a `span`, and may map them again, in any order, at an `alias`. The policy decides
    which page is where, which pages are free, and when a mapping is removed. The source keeps only what the driver
    needs to undo a call (the handle of the page at an address, the pages of an alias).

    The contract between the policy and a source:

    - Any method may be called from any thread, and from several at once for disjoint addresses. The allocator holds no
      lock during the call. A source need not order calls for the same address, because the policy makes one at a time.
    - A call that raises must leave everything unchanged, and must undo any part of its work. `OutOfMemoryError` means
      that there is not enough memory; every other error is passed on to the caller of the allocator. Interrupts
      (exceptions that are not an `Exception`) are different in `release` and `unmap`, because they may be raised after
      the work is done. They, and errors that come too late, are marked (`cuassay.core.interrupts`): `mark_early` if
      nothing was done, `mark_late` if everything was. An unmarked interrupt counts as late, so the range is never used
      again.
    - `reserve`, `span`, `map` and `alias` may be called while a stream captures; `release`, `unmap` and `synchronize`
      are not. `record`, `wait` and `query` are not called for a block whose stream captures.
    - New addresses have no users, so creating a mapping does not wait. Before the policy removes a mapping (`unmap`,
      `release` of an alias or a span), it calls `synchronize` with every stream that was given work on the page at any
      of its addresses. These calls therefore need not wait. `release` of a segment is not preceded by `synchronize`,
      so it must be safe while work is running, as ``cudaFree`` is, or stream-ordered.
    - `unmap` returns a page's memory to the device only if no alias maps it; the policy releases aliases first.

    Attributes
    ----------
    granularity : int
        The size in bytes that page sizes and addresses are multiples of. It is constant. It is 0 for a source without
        pages; `span`, `map`, `unmap` and `alias` are then never called, and raise `CapabilityError`.
    """

    @property
    def granularity(self) -> int:
        """The size in bytes that pages are multiples of; 0 if there are no pages."""

    def reserve(self, nbytes: int, stream: int) -> int:
        """Allocate a contiguous segment of `nbytes` for `stream`, and return its address, a multiple of 512.

        Raises
        ------
        OutOfMemoryError
            If there is not enough memory.
        """

    def span(self, nbytes: int, stream: int) -> int:
        """Reserve addresses without memory for `stream`, and return the first.

        `nbytes` is a multiple of `granularity`, and the address is aligned to it.

        Raises
        ------
        OutOfMemoryError
            If not enough addresses are left. The policy then asks for fewer.
        """

    def map(self, address: int, pages: Sequence[int]) -> None:
        """Map new pages of these sizes, one handle each, next to each other from `address` on, inside one span.

        Either all pages are mapped, accessible by the device and its peers, or none. The addresses have no memory
        before the call.

        Raises
        ------
        OutOfMemoryError
            If there is not enough memory for all pages.
        """

    def unmap(self, pages: Sequence[int]) -> None:
        """Return the pages that `map` placed at these addresses to the device. The addresses stay reserved."""

    def alias(self, pages: Sequence[int]) -> int:
        """Map the pages at these addresses of spans again, in this order, at a new range, and return its address.

        The pages also stay where they are, and no memory is taken. Both addresses may be used by one stream or by
        streams that events order, but not by one kernel. A page may be in many aliases, but only once in each.

        Raises
        ------
        OutOfMemoryError
            If the driver has no room for the mappings. The policy then continues without the alias.
        """

    def release(self, address: int) -> None:
        """Release the segment, span or alias at `address`. No page may be mapped in a span that is released."""

    def synchronize(self, streams: Sequence[int]) -> None:
        """Block the host until all work given to these streams so far is done."""

    def record(self, stream: int) -> Any:
        """Return a marker of the work given to `stream` so far. The marker is dropped when it is no longer needed."""

    def wait(self, stream: int, event: Any) -> None:
        """Make later work of `stream` wait for `event` on the device."""

    def query(self, event: Any) -> bool:
        """Return True if `event` was reached."""


@runtime_checkable
class DeviceMemory(Protocol):
    """The additional methods of a `Backend` whose memory is allocated by `cuassay.memory`.

    Allocators are `Any` here, because this storey does not import them.
    """

    def allocator(self, index: int) -> Any:
        """Return the `cuassay.memory.CachingAllocator` of device `index`. It identifies streams by number."""

    def stream_number(self, stream: Any) -> int:
        """Return the number by which the allocator knows `stream`."""

    def memory_in_use(self, index: int) -> int:
        """Return the bytes that this process's live arrays and blocks use on device `index`."""

    def replay_target(self, index: int) -> tuple[Callable[[], MemorySource], Any]:
        """Return a function that makes new sources on device `index`, and a `cuassay.memory.trace.Tagger` for them."""


@runtime_checkable
class PinnedMemory(Protocol):
    """The additional methods of a `Backend` that can page-lock host memory (capability ``pinned_memory``)."""

    def empty_pinned(self, shape: tuple[int, ...], dtype: Any, index: int) -> Any:
        """Return an uninitialized C-contiguous host array in page-locked memory for copies with device `index`."""

    def is_pinned(self, array: Any) -> bool:
        """Return whether `array` is in page-locked memory."""

    def transfer(self, src: Any, dst: Any, *, non_blocking: bool = False) -> None:
        """Copy between host and device in the order of the device's current stream. Waits unless `non_blocking`.

        `cuassay.devices.copy` guarantees that both arrays have the same shape and dtype.
        """


class StreamFacts(NamedTuple):
    """The properties of a stream that determine the order of work.

    Attributes
    ----------
    device_index : int
        The device whose work it orders.
    number : int
        The number by which watchers know it; 0 is the legacy default stream of its device.
    label : str
        The name of the stream in messages: ``"stream 3"``.
    is_blocking : bool
        Whether it and the legacy default stream wait for each other.
    is_of_thread : bool
        Whether the same number means another stream in other threads.
    """

    device_index: int
    number: int
    label: str
    is_blocking: bool = False
    is_of_thread: bool = False


@runtime_checkable
class Observable(Protocol):
    """The additional methods of a `Backend` that reports accesses to watchers, so that the sanitizer can check them.

    If other libraries may capture its streams, it also has a method ``is_capturing(number)``. Optional attributes make
    the sanitizer faster: ``stream_functions`` is a pair of functions that do what `current_number` and `is_capturing`
    do. ``traits`` is a pair of functions: the first returns the traits of an array, a hashable tuple of its address,
    the index of its device and whatever else decides its extent, which does not keep the array alive. The second makes
    the extent from the traits.
    """

    def extent(self, array: Any) -> Any:
        """Return the `cuassay.order.extents.Extent` of `array`."""

    def current_number(self, index: int) -> int:
        """Return the number by which watchers know the current stream of device `index`."""

    def stream_facts(self, index: int, number: int) -> StreamFacts:
        """Return the properties of the stream that watchers know by `number` on device `index`."""


@runtime_checkable
class Spinning(Protocol):
    """A backend whose streams can be kept busy. A kind that runs each call at once, as cpu does, cannot do this.

    Optional attributes: ``longest_hold_s`` is the longest time in seconds for which it is worth holding a stream to
    measure it; it is infinite for virtual time. A backend with virtual time has ``time_unit = "virtual s"``, and its
    method ``now_s()`` returns the host's virtual time. A method ``throttled(index)`` returns whether the device
    currently limits its clocks, or None if that is unknown. A method ``bandwidth(index)`` returns the peak rate of the
    device's memory in bytes per second. A method ``watched_generators(index)`` returns a context manager that yields
    getters of the state of other libraries' default random generators, by a name for messages.
    """

    def spin(self, index: int, cycles: int) -> None:
        """Keep the current stream of device `index` busy for `cycles` clock cycles without touching memory."""


@runtime_checkable
class Backend(Protocol):
    """A kind of device, which `cuassay.devices.<kind>` exports as ``BACKEND``.

    Devices are addressed by index. The driver must not be touched before the first method is called, and
    `why_absent`, `count`, `probe` and `identity` must not leave a context behind on any device.
    """

    kind: str

    def why_absent(self) -> str | None:
        """Return why no device of this kind is usable here, or None if at least one is."""

    def count(self) -> int:
        """Return the number of devices of this kind."""

    def probe(self, index: int, name: str) -> Answer:
        """Return whether device `index` has capability `name` (see `cuassay.core.capability`)."""

    def identity(self, index: int) -> Mapping[str, str]:
        """Return facts that identify the device: at least ``name``.

        Names are those of `cuassay_reports.facts.FINGERPRINT`: ``uuid``, ``driver``, ``capability``, ``profile``...
        """

    def health(self, index: int) -> str | None:
        """Return why device `index` cannot be used any more in this process, or None if it can."""

    def memory_info(self, index: int) -> tuple[int, int]:
        """Return the free and total memory of device `index` in bytes."""

    def owns(self, array_type: type) -> bool:
        """Return True if arrays of this type belong to this kind."""

    def device_of(self, array: Any) -> Device:
        """Return the device that `array` is on."""

    def namespace(self, index: int) -> Any:
        """Return the array namespace (``xp``): NumPy's names for arrays of this kind, created on device `index`.

        A kind that wraps an array library returns the library itself if device `index` is the current one.
        """

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int, stream: Any = None) -> Any:
        """Return an uninitialized C-contiguous array on device `index`, in the order of `stream` (None: current).

        A kind outside this package may omit the parameter `stream`, which is passed only if the caller named one.
        Raises `OutOfMemoryError`, `CapabilityError`.
        """

    def from_host(self, array: Any, index: int) -> Any:
        """Copy a `numpy.ndarray` to device `index`. Strides are kept if the kind supports them."""

    def to_host(self, array: Any) -> Any:
        """Copy `array` to a `numpy.ndarray`, and wait for the copy."""

    def overlap(self, a: Any, b: Any) -> str:
        """Return ``"none"``, ``"same"`` (identical elements in identical order) or ``"partial"``."""

    def activate(self, index: int) -> AbstractContextManager[Any]:
        """Make device `index` the current one of this thread inside the block."""

    def is_current(self, index: int) -> bool:
        """Return True if device `index` can be given work without `activate`. Called at every call of an op."""

    def synchronize(self, index: int) -> None:
        """Block the host until all work given to device `index` is done."""

    def current_stream(self, index: int) -> Stream:
        """Return the current stream of this thread on device `index`."""

    def new_stream(self, index: int, priority: int = 0) -> Stream:
        """Return a new stream. Lower numbers have higher priority."""

    def use_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Make `stream` the current one of this thread inside the block."""

    def new_event(self, index: int, *, timing: bool = False) -> Event:
        """Return a new event of device `index`."""

    def new_capture(self, index: int, *, keep_graph: bool = False) -> Capture:
        """Return a new capture for device `index`. Raises `CapabilityError`.

        With `keep_graph`, the first replay makes the graph executable instead of the end of the capture.
        """

    def flush_cache(self, index: int) -> None:
        """Evict this device's level-2 cache, in stream order, so that the next reads come from memory."""
