"""One timeline: what a program did, on the host and on each stream, with memory, waits and replays; plain data.

Times are seconds since the profile began, of one clock: the kind's virtual time, or the host's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["DEVICE_KINDS", "HOST_KINDS", "Change", "Flow", "Span", "Timeline"]

#: Kinds of spans: what the host does, and what streams do.
HOST_KINDS = ("range", "op", "replay", "wait")
DEVICE_KINDS = ("kernel", "copy")


@dataclass(slots=True)
class Span:
    """Something that takes time.

    Attributes
    ----------
    kind : str
        One of `HOST_KINDS` or `DEVICE_KINDS`.
    name : str
        The op, the kernel, the range, or what was waited for.
    track : str
        Where it is drawn: ``"host"``, ``"host thread 2"``, ``"sim:0 stream 3"``.
    begin, end : float
        Seconds since the profile began.
    parent : int
        The place in `Timeline.spans` of what it is part of, or what launched it; -1 for none.
    nbytes : int
        Bytes that it moves, where that is known.
    site : str
        ``file.py:12``, the caller's line; of a replayed kernel it is the line of the capture.
    is_timed : bool
        False where only the host's call is known, so that a copy has no length.
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
        """How long it took."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes taken (positive) or given back (negative) on a device, at a time, for the call site that took them."""

    time: float
    device: str
    nbytes: int
    site: str


@dataclass(frozen=True, slots=True)
class Flow:
    """A wait between streams: `end` on `waiter` comes after `begin` on `track`, where an event was recorded."""

    track: str
    begin: float
    waiter: str
    end: float
    name: str


@dataclass(slots=True)
class Timeline:
    """What was recorded.

    Attributes
    ----------
    spans : list of Span
        In the order they began to be recorded: a parent comes before its children.
    changes : list of Change
        Of memory, in order.
    flows : list of Flow
        Waits between streams.
    ways : dict
        From an op's span, by its place, to the steps that `explain` gives of calls with its shapes.
    seconds : float
        From the beginning to the end.
    unit : str
        What a second is: ``"s"``, or ``"virtual s"``.
    missed : int
        Spans that were left out because there were more than the limit.
    """

    spans: list[Span] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    ways: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    unit: str = "s"
    missed: int = 0

    def tracks(self) -> list[str]:
        """The tracks: the host's first, then streams by name."""
        found = dict.fromkeys(span.track for span in self.spans)
        return sorted(found, key=lambda track: (not track.startswith("host"), _natural(track)))

    def of_kinds(self, kinds: Sequence[str]) -> Iterator[tuple[int, Span]]:
        """The spans of these kinds, with their places."""
        return ((place, span) for place, span in enumerate(self.spans) if span.kind in kinds)


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """A key by which ``stream 10`` comes after ``stream 9``."""
    words = text.replace(":", " ").split(" ")
    return tuple((int(word) if word.isdigit() else -1, word) for word in words)
