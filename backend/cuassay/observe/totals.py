"""Totals of a timeline by op, by kernel, or by call site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cuassay.core.units import format_bytes
from cuassay.errors import ArgumentError
from cuassay.observe.roofline import Shares
from cuassay.observe.spans import DEVICE_KINDS, Span, Timeline

__all__ = ["GROUPS", "Total", "table", "totals"]

#: The groupings that `totals` accepts.
GROUPS = ("op", "kernel", "site")


@dataclass(slots=True)
class Total:
    """The totals of one op, kernel or call site.

    Attributes
    ----------
    name : str
        The op, kernel or call site.
    calls : int
        The number of calls of an op, of launches of a kernel, or of both at a call site.
    launches : int
        The number of kernels and copies launched.
    nbytes : int
        The bytes moved by those launches, as far as known.
    host_self, host_total : float
        Seconds on the host, without and with nested calls.
    device_self, device_total : float
        Seconds of kernels and copies, without and with those of nested calls.
    of_bandwidth : float, optional
        The share of the roofline: the time in which the device's memory can move the bytes of the kernels, divided by
        the time that they took. None if no bytes or no peak rate are known. Kernels that compute much per byte, such as
        large matrix products, stay far below 1.
    """

    name: str
    calls: int = 0
    launches: int = 0
    nbytes: int = 0
    host_self: float = 0.0
    host_total: float = 0.0
    device_self: float = 0.0
    device_total: float = 0.0
    of_bandwidth: float | None = None


def totals(timeline: Timeline, by: str = "op") -> list[Total]:
    """Return totals by ``"op"``, ``"kernel"`` or ``"site"``, sorted by descending device time, then host time.

    The total time of an op that calls itself counts the nested calls once.

    Raises
    ------
    ArgumentError
        If `by` is not one of these names.
    """
    if by not in GROUPS:
        raise ArgumentError(f"a table is by {', '.join(GROUPS)}; got {by!r}; choose one")
    found: dict[str, Total] = {}
    shares = Shares(timeline.bandwidths)
    name_of = _NAMES[by]
    inside = _seconds_inside(timeline.spans)
    for place, span in enumerate(timeline.spans):
        name = name_of(span)
        if span.kind in DEVICE_KINDS:
            shares.add(_add_work(found, timeline.spans, place, name_of, by), span)
        elif name is not None and span.kind != "mark":
            total = found.setdefault(name, Total(name))
            total.calls += 1
            total.host_self += span.seconds - inside.get(place, 0.0)
            if name not in _names_around(timeline.spans, span, name_of):
                total.host_total += span.seconds
    for name, total in found.items():
        total.of_bandwidth = shares.of(name)
    return sorted(found.values(), key=lambda total: (-total.device_total, -total.host_total, total.name))


#: The name that a span is counted under, by grouping. None means that the span is not counted.
_NAMES: Mapping[str, Callable[[Span], str | None]] = {
    "op": lambda span: span.name if span.kind in ("op", "replay", "wait", "range") else None,
    "kernel": lambda span: span.name if span.kind in DEVICE_KINDS else None,
    "site": lambda span: span.site or "unknown",
}


def _add_work(
    found: dict[str, Total], spans: Sequence[Span], place: int, name_of: Callable[[Span], str | None], by: str
) -> str:
    """Add a kernel or copy to the total of its launcher, or of itself when grouping by kernel; return that name."""
    span = spans[place]
    own = name_of(span) or (spans[span.parent].name if span.parent >= 0 else span.name)
    total = found.setdefault(own, Total(own))
    total.launches += 1
    total.nbytes += span.nbytes
    total.device_self += span.seconds
    if by == "kernel":
        total.calls += 1
        total.device_total += span.seconds
        return own
    for name in {own, *_names_around(spans, span, name_of)}:
        found.setdefault(name, Total(name)).device_total += span.seconds
    return own


def _seconds_inside(spans: Sequence[Span]) -> dict[int, float]:
    """Return, by index of a span, the host seconds of its direct children."""
    found: dict[int, float] = {}
    for span in spans:
        if span.parent >= 0 and span.kind not in DEVICE_KINDS:
            found[span.parent] = found.get(span.parent, 0.0) + span.seconds
    return found


def _names_around(spans: Sequence[Span], span: Span, name_of: Callable[[Span], str | None]) -> set[str]:
    found, place = set(), span.parent
    while place >= 0:
        name = name_of(spans[place])
        if name is not None:
            found.add(name)
        place = spans[place].parent
    return found


_COLUMNS = ("calls", "host self", "host total", "device self", "device total", "launches", "bytes", "of bandwidth")


def table(timeline: Timeline, by: str = "op", *, limit: int = 40) -> str:
    """Format `totals` as text: at most `limit` rows, and the number of rows left out."""
    found = totals(timeline, by)
    rows = [(by, *_COLUMNS), *(_row(total) for total in found[:limit])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            (row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)))
        )
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    if len(found) > limit:
        lines.append(f"... and {len(found) - limit} more; give limit=")
    unit = "" if timeline.unit == "s" else f" of {timeline.unit.removesuffix(' s')} time"
    device = sum(span.seconds for span in timeline.spans if span.kind in DEVICE_KINDS)
    lines.append(f"{format_seconds(timeline.seconds)}{unit} in all; kernels and copies {format_seconds(device)}")
    return "\n".join(line.rstrip() for line in lines)


def _row(total: Total) -> tuple[str, ...]:
    times = (total.host_self, total.host_total, total.device_self, total.device_total)
    moved = format_bytes(total.nbytes) if total.nbytes else "-"
    share = "-" if total.of_bandwidth is None else f"{total.of_bandwidth:.1%}"
    return total.name, f"{total.calls:,}", *map(format_seconds, times), f"{total.launches:,}", moved, share


def format_seconds(seconds: float) -> str:
    """Format seconds with three digits and a suitable unit, such as ``1.25 ms``."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale * 0.9995:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0"
