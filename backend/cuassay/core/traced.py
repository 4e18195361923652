"""Protocols by which a device kind can time its work: a tracer such as CUPTI, or a stopwatch."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

__all__ = ["Stopwatch", "Traced", "TracedWork", "Tracer"]


class TracedWork(NamedTuple):
    """One kernel, copy or fill of a device, as a `Tracer` reports it. Times are seconds of `time.perf_counter`.

    Attributes
    ----------
    event : str
        ``"launched"`` or ``"copied"``.
    stream : int
        The number by which watchers know the stream; -1 if it is unknown, and `lane` then names the stream.
    called : float
        The time of the host call that launched the work.
    thread : int
        The low 32 bits of `threading.get_ident` of the launching thread.
    """

    event: str
    name: str
    device_index: int
    stream: int
    lane: str
    begin: float
    end: float
    called: float
    nbytes: int
    thread: int


class Tracer(Protocol):
    """Reports each piece of work of a kind's devices. `missed` counts those dropped because buffers were full."""

    missed: int

    def start(self) -> None:
        """Start tracing. Raises `StateError` if another profiler is tracing."""

    def meet(self, index: int, number: int | None = None) -> None:
        """Learn stream `number` (None: the current one) of device `index`. The stream must exist."""

    def stop(self) -> list[TracedWork]:
        """Stop tracing and return the work. The caller has waited for all devices."""


@runtime_checkable
class Traced(Protocol):
    """The additional methods of a `Backend` whose work can be traced."""

    def new_tracer(self) -> Tracer:
        """Return a tracer of all devices. Raises `LibraryNotFoundError`, which says what to install."""


class Stopwatch(Protocol):
    """Times work of one device by pairs of marks on its streams. A kind may offer one as ``new_stopwatch(index)``.

    A stopwatch may also have a method ``follow()``, which is called instead of `start` if no work was given to the
    streams since the last `stop`. It may return the last mark of that pair, if the stream is the same.
    """

    def start(self) -> Any:
        """Mark the current stream, and return the mark; None if the stream cannot be marked."""

    def stop(self, mark: Any) -> int:
        """Mark the stream of `mark` again, and return the number of the pair."""

    def read(self) -> list[tuple[int, int, float, float]]:
        """Return for each pair its number, its stream's number for watchers, and begin and end in seconds."""
