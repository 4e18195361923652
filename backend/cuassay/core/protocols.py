"""What a kind of device must offer, as protocols: the seam between policy above and drivers below.

Arrays are `Any` here: each kind has its own type, and this storey knows none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from cuassay.core.capability import Answer
from cuassay.core.device import Device

__all__ = ["Backend", "Capture", "Communicator", "Event", "MemorySource", "Stream"]


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
    """Where an allocator's memory comes from. Addresses and sizes are integers, in bytes."""

    def reserve(self, nbytes: int, stream: int) -> int:
        """Take `nbytes` from the device; gives its address. Raises `OutOfMemoryError`."""

    def release(self, address: int) -> None:
        """Give back what `reserve` or `alias` gave."""

    def alias(self, pages: Sequence[tuple[int, int]]) -> int:
        """One new range made of the `(address, nbytes)` pages, which stay where they are too."""

    def record(self, stream: int) -> Any:
        """A marker of what `stream` was given so far."""

    def wait(self, stream: int, event: Any) -> None:
        """Later work of `stream` waits for `event`."""

    def query(self, event: Any) -> bool:
        """True when `event` was reached."""


class Communicator(Protocol):
    """One rank's way to the others; collectives act on arrays in place, in stream order."""

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def all_reduce(self, array: Any, operation: str = "sum") -> None:
        """Every rank's `array` becomes the reduction of all of them."""

    def broadcast(self, array: Any, root: int = 0) -> None:
        """Every rank's `array` becomes that of `root`."""

    def barrier(self) -> None:
        """Wait until every rank is here."""


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

        Names are those of `cuassay_reports.columns.FINGERPRINT`: ``uuid``, ``driver``, ``capability``, ``profile``...
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
        """The array namespace (``xp``): NumPy's names over this kind's arrays, created on device `index`."""

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int) -> Any:
        """An uninitialised C-contiguous array on device `index`. Raises `OutOfMemoryError`, `CapabilityError`."""

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

    def new_capture(self, index: int) -> Capture:
        """A capture for device `index`. Raises `CapabilityError` where there are no graphs."""

    def flush_cache(self, index: int) -> None:
        """Evict this device's level-2 cache, in stream order, so that the next reads come from memory."""
