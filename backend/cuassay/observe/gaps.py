"""Find the idle gaps of a device: when none of its streams worked, and what the host did meanwhile."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cuassay.observe.spans import DEVICE_KINDS, Span, Timeline

__all__ = ["Gap", "idle_gaps"]

#: How many calls before a gap are searched for the one that ended last.
_NEAR = 100


@dataclass(frozen=True, slots=True)
class Gap:
    """A time between two pieces of work in which a device was idle.

    `begin` and `end` are seconds since the profile began. `reason` names what the host did for most of the gap.
    """

    device: str
    begin: float
    end: float
    reason: str

    @property
    def seconds(self) -> float:
        """The length of the gap in seconds."""
        return self.end - self.begin


def idle_gaps(timeline: Timeline, *, most: int = 200) -> list[Gap]:
    """Return the `most` longest gaps of each device, the longest first.

    The time before the first work of a device is not a gap.
    """
    host = _Host([span for span in timeline.spans if span.track.startswith("host") and span.kind != "mark"])
    found: list[Gap] = []
    for device, work in sorted(_by_device(timeline).items()):
        holes = sorted(_holes(work), key=lambda hole: hole[0] - hole[1])[:most]
        found += [Gap(device, begin, end, host.reason(begin, end)) for begin, end in holes]
    return sorted(found, key=lambda gap: -gap.seconds)


def _by_device(timeline: Timeline) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in timeline.spans:
        if span.kind in DEVICE_KINDS and span.is_timed:
            found.setdefault(span.track.partition(" ")[0], []).append(span)
    return found


def _holes(work: Sequence[Span]) -> Iterator[tuple[float, float]]:
    """Yield the times between spans that no span covers."""
    reached: float | None = None
    for span in sorted(work, key=lambda span: span.begin):
        if reached is not None and span.begin > reached:
            yield reached, span.begin
        reached = span.end if reached is None else max(reached, span.end)


class _Host:
    """The host's spans, searchable by time."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = sorted((span for span in spans if span.kind != "range"), key=lambda span: span.begin)
        self._begins = [span.begin for span in self._spans]
        self._longest = max((span.seconds for span in self._spans), default=0.0)

    def reason(self, begin: float, end: float) -> str:
        """Name the call that covers most of the gap, or the calls around it if most of it is outside of all calls."""
        covered: dict[str, float] = {}
        first = bisect_left(self._begins, begin - self._longest)
        meeting = [span for span in self._spans[first : bisect_right(self._begins, end)] if span.end > begin]
        outer = _outermost(meeting)
        for span in outer:
            inside = min(span.end, end) - max(span.begin, begin)
            covered[_label(span)] = covered.get(_label(span), 0.0) + inside
        outside = (end - begin) - sum(covered.values())
        if covered and max(covered.values()) >= outside:
            return max(covered, key=lambda name: covered[name])
        return self._between(begin, end, outer)

    def _between(self, begin: float, end: float, meeting: Sequence[Span]) -> str:
        """Name the calls before and after the longest part of the gap that is outside of all calls."""
        edges = [begin, *(edge for span in meeting for edge in (max(span.begin, begin), min(span.end, end))), end]
        stretches = list(zip(edges[::2], edges[1::2], strict=True))
        low, high = max(stretches, key=lambda stretch: stretch[1] - stretch[0])
        middle = (low + high) / 2
        place = bisect_left(self._begins, middle)
        after = _label(self._spans[place]) if place < len(self._spans) else "the end"
        near = self._spans[max(place - _NEAR, 0) : place]
        before = max((span for span in near if span.end <= middle), key=lambda span: span.end, default=None)
        return f"outside of calls, after {_label(before) if before else 'the beginning'}, before {after}"


def _outermost(spans: Sequence[Span]) -> list[Span]:
    """Return the spans that are not inside another one. `spans` must be sorted by beginning."""
    found: list[Span] = []
    for span in spans:
        if not found or span.begin >= found[-1].end:
            found.append(span)
    return found


def _label(span: Span) -> str:
    return f"{span.name} at {span.site}" if span.site else span.name
