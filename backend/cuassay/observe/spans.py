"""The timeline of a program as plain data: its work on the host and on each stream, memory, waits and replays.

Times are seconds since the profile began, on one clock: the virtual time of a device kind, or the host's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["DEVICE_KINDS", "HOST_KINDS", "Change", "Flow", "Span", "Timeline"]

#: The kinds of spans on the host, and on streams.
HOST_KINDS = ("range", "op", "replay", "wait")
DEVICE_KINDS = ("kernel", "copy")


@dataclass(slots=True)
class Span:
    """One piece of work of the host or of a stream.

    Attributes
    ----------
    kind : str
        One of `HOST_KINDS` or `DEVICE_KINDS`.
    name : str
        The name of the op, kernel or range, or what was waited for.
    track : str
        The track that it is drawn on: ``"host"``, ``"host thread 2"``, ``"sim:0 stream 3"``.
    begin, end : float
        Seconds since the profile began.
    parent : int
        The index in `Timeline.spans` of the span that contains or launched this one; -1 for none.
    nbytes : int
        The number of bytes moved; 0 if that is not known. Where calls of ops are timed by events, it is the bytes of
        the arrays of the first call with the same types and shapes, as if each was read or written once.
    site : str
        The caller's line, as ``file.py:12``. For a replayed kernel it is the line of the capture.
    is_timed : bool
        False if only the time of the host's call is known. A copy then has length 0.
    """

    kind: str
    name: str
    track: str
    begin: float
    end: float
    parent: int = -1
    nbytes: int = 0
    site: str = ""
    is_timed: bool = True

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes allocated (positive) or freed (negative) on a device, with the call site that allocated them."""

    time: float
    device: str
    nbytes: int
    site: str


@dataclass(frozen=True, slots=True)
class Flow:
    """A wait between streams: work at `end` on `waiter` waited for the event recorded at `begin` on `track`."""

    track: str
    begin: float
    waiter: str
    end: float
    name: str


@dataclass(slots=True)
class Timeline:
    """A recorded profile.

    Attributes
    ----------
    spans : list of Span
        The spans in the order of recording. A parent comes before its children.
    changes : list of Change
        Allocations and frees, in order.
    flows : list of Flow
        Waits between streams.
    ways : dict
        From the index of an op's span to the dispatch steps that `explain` reported for a call with its shapes.
    seconds : float
        The duration of the profile.
    unit : str
        The unit of times: ``"s"`` or ``"virtual s"``.
    missed : int
        The number of spans left out because of the limit.
    bandwidths : dict
        From a device to the peak rate of its memory in bytes per second; without devices of which it is not known.
    """

    spans: list[Span] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    ways: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    unit: str = "s"
    missed: int = 0
    bandwidths: dict[str, float] = field(default_factory=dict)

    def tracks(self) -> list[str]:
        """Return the tracks: the host's first, then the streams by name."""
        found = dict.fromkeys(span.track for span in self.spans)
        return sorted(found, key=lambda track: (not track.startswith("host"), _natural(track)))

    def of_kinds(self, kinds: Sequence[str]) -> Iterator[tuple[int, Span]]:
        """Return the spans of these kinds, each with its index in `spans`."""
        return ((place, span) for place, span in enumerate(self.spans) if span.kind in kinds)


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts ``stream 10`` after ``stream 9``."""
    words = text.replace(":", " ").split(" ")
    return tuple((int(word) if word.isdigit() else -1, word) for word in words)
