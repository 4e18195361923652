"""What a kind may offer to time its work: a tracer, such as CUPTI, which reports each piece; or a stopwatch."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

__all__ = ["Stopwatch", "Traced", "TracedWork", "Tracer"]


class TracedWork(NamedTuple):
    """One kernel, copy or fill of a device, as a `Tracer` reports it; times are seconds of `time.perf_counter`.

    Attributes
    ----------
    event : str
        ``"launched"`` or ``"copied"``.
    stream : int
        How watchers know the stream; -1 where that is not known, and then `lane` names it.
    called : float
        When the host made the call that gave the work.
    thread : int
        The low 32 bits of `threading.get_ident` of the thread that made it.
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
    """Reports each piece of work of a kind's devices, but for `missed` pieces that it had no room for."""

    missed: int

    def start(self) -> None:
        """Trace from here. Raises `StateError` where something else traces."""

    def meet(self, index: int, number: int | None = None) -> None:
        """A stream of device `index` (None: the current one) is used; it is alive."""

    def stop(self) -> list[TracedWork]:
        """Trace no more; all devices have been waited for."""


@runtime_checkable
class Traced(Protocol):
    """What a `Backend` also offers whose work a library of its kind can trace."""

    def new_tracer(self) -> Tracer:
        """A tracer of all devices. Raises `LibraryNotFoundError`, which says what to install."""


class Stopwatch(Protocol):
    """Times work of one device by pairs of marks on its streams; a kind may offer one as ``new_stopwatch(index)``."""

    def start(self) -> Any:
        """Mark the current stream; None where that cannot be."""

    def stop(self, mark: Any) -> int:
        """Mark the stream of `mark` again; gives the pair's number."""

    def read(self) -> list[tuple[int, int, float, float]]:
        """Of each pair: its number, its stream as watchers know it, begin and end in seconds of the kind's clock."""
