"""Find the idle gaps of a device: when none of its streams worked, and what the host did meanwhile."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
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
        holes = sorted(_holes((span.begin, span.end) for span in work), key=lambda hole: hole[0] - hole[1])[:most]
        found += [Gap(device, begin, end, host.reason(begin, end)) for begin, end in holes]
    return sorted(found, key=lambda gap: -gap.seconds)


def _by_device(timeline: Timeline) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in timeline.spans:
        if span.kind in DEVICE_KINDS and span.is_timed:
            found.setdefault(span.track.partition(" ")[0], []).append(span)
    return found


def _holes(times: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the stretches between `times` that none of them covers."""
    reached: float | None = None
    for begin, end in sorted(times):
        if reached is not None and begin > reached:
            yield reached, begin
        reached = end if reached is None else max(reached, end)


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
        for span in _outermost(meeting):
            inside = min(span.end, end) - max(span.begin, begin)
            covered[_label(span)] = covered.get(_label(span), 0.0) + inside
        outside = list(_holes([(begin, begin), *((span.begin, span.end) for span in meeting), (end, end)]))
        if covered and max(covered.values()) >= sum(high - low for low, high in outside):
            return max(covered, key=lambda name: covered[name])
        return self._around(*max(outside, key=lambda stretch: stretch[1] - stretch[0]))

    def _around(self, low: float, high: float) -> str:
        """Name the calls before and after a stretch that is outside of all calls."""
        middle = (low + high) / 2
        place = bisect_left(self._begins, middle)
        after = _label(self._spans[place]) if place < len(self._spans) else "the end"
        near = self._spans[max(place - _NEAR, 0) : place]
        before = max((span for span in near if span.end <= middle), key=lambda span: span.end, default=None)
        return f"outside of calls, after {_label(before) if before else 'the beginning'}, before {after}"


def _outermost(spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans that are not inside another one of their thread. `spans` must be sorted by beginning."""
    ended: dict[str, float] = {}
    for span in spans:
        if span.begin >= ended.get(span.track, span.begin):
            ended[span.track] = span.end
            yield span


def _label(span: Span) -> str:
    return f"{span.name} at {span.site}" if span.site else span.name
