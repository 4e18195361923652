"""Write a timeline as one HTML page that needs no other file and no network.

This module packs the data, and the script in `timeline.html` draws it. Each span is one integer per column: names,
call sites and dispatch paths are stored once and referred to by index, a beginning is stored as the difference from the
previous one, and times are whole nanoseconds. 100,000 spans then take about 3 MB.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from cuassay.observe.gaps import idle_gaps
from cuassay.observe.spans import DEVICE_KINDS, HOST_KINDS, Change, Timeline
from cuassay.observe.totals import GROUPS, totals

__all__ = ["COLUMNS", "SITES", "render"]

#: The number of columns in the memory picture, and of call sites that are shown separately in it.
COLUMNS, SITES = 1000, 10

#: The largest number of waits between streams, of gaps, and of table rows that a page lists.
_FLOWS, _GAPS, _ROWS = 20_000, 100, 200

_OTHERS = "other call sites"
_KINDS = (*HOST_KINDS, *DEVICE_KINDS)


def render(timeline: Timeline, title: str = "timeline") -> str:
    """Return the page of `timeline` as HTML."""
    template = files("cuassay.observe").joinpath("timeline.html").read_text(encoding="utf-8")
    data = json.dumps(packed(timeline), separators=(",", ":")).replace("<", "\\u003c")
    return template.replace("{{title}}", escape(title)).replace("{{data}}", data)


def packed(timeline: Timeline) -> dict[str, Any]:
    """Return the data that the page's script reads."""
    flown = [track for flow in timeline.flows for track in (flow.track, flow.waiter)]
    tracks = _List(timeline.tracks(), flown)
    return {
        "unit": timeline.unit,
        "ns": _ns(timeline.seconds),
        "missed": timeline.missed,
        "kinds": _KINDS,
        **_spans(timeline, tracks),
        "tracks": tracks.values,
        "flows": [
            [tracks.place(flow.track), _ns(flow.begin), tracks.place(flow.waiter), _ns(flow.end)]
            for flow in timeline.flows[:_FLOWS]
        ],
        "gaps": [[gap.device, _ns(gap.begin), _ns(gap.end), gap.reason] for gap in idle_gaps(timeline)[:_GAPS]],
        "memory": _memory(timeline),
        "tables": {by: [_row(total) for total in totals(timeline, by)[:_ROWS]] for by in GROUPS},
    }


class _List:
    """A list of distinct values, and the index of each."""

    def __init__(self, *values: Iterable[str]) -> None:
        self._places: dict[str, int] = {}
        for value in (one for some in values for one in some):
            self.place(value)

    @property
    def values(self) -> list[str]:
        return list(self._places)

    def place(self, value: str) -> int:
        return self._places.setdefault(value, len(self._places))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _spans(timeline: Timeline, tracks: _List) -> dict[str, Any]:
    """Return the columns of the spans, sorted by beginning. A parent is an index in that order."""
    spans = timeline.spans
    order = sorted(range(len(spans)), key=lambda place: (spans[place].begin, -spans[place].end, place))
    places = {place: number for number, place in enumerate(order)}
    names, sites, ways = _List(), _List([""]), _List([""])
    columns: dict[str, list[int]] = {name: [] for name in "tkbdnspyw"}
    former = 0
    for place in order:
        span = spans[place]
        begin, end = _ns(span.begin), _ns(span.end)
        for name, value in (
            ("t", tracks.place(span.track)),
            ("k", _KINDS.index(span.kind) if span.kind in _KINDS else 0),
            ("b", begin - former),
            ("d", end - begin),
            ("n", names.place(span.name)),
            ("s", sites.place(span.site)),
            ("p", places.get(span.parent, -1)),
            ("y", span.nbytes),
            ("w", ways.place(timeline.ways.get(place, ""))),
        ):
            columns[name].append(value)
        former = begin
    return {"spans": columns, "names": names.values, "sites": sites.values, "ways": ways.values}


def _row(total: Any) -> list[Any]:
    times = (total.host_self, total.host_total, total.device_self, total.device_total)
    share = -1 if total.of_bandwidth is None else round(total.of_bandwidth, 4)
    return [total.name, total.calls, *map(_ns, times), total.launches, total.nbytes, share]


# ------------------------------------------------------------------------------------------------ memory


def _memory(timeline: Timeline) -> list[dict[str, Any]]:
    devices = dict.fromkeys(change.device for change in timeline.changes)
    return [_device(device, [one for one in timeline.changes if one.device == device], timeline) for device in devices]


def _device(device: str, changes: Sequence[Change], timeline: Timeline) -> dict[str, Any]:
    """Return live bytes by call site in at most `COLUMNS` columns of time.

    A column shows the moment at which most bytes were live, so that peaks are kept.
    """
    sites = _largest(changes)
    others = len(sites)
    numbers = {site: number for number, site in enumerate(sites)}
    width = max(timeline.seconds, 1e-9) / COLUMNS
    live = [0] * (others + 1)
    columns: list[tuple[int, list[int]]] = []
    best: list[int] | None = None
    column = 0
    for change in changes:
        at = min(int(change.time / width), COLUMNS - 1)
        if at != column:
            if best is not None:
                columns.append((_ns(column * width), best))
                columns.append((_ns((column + 1) * width), list(live)))
            best, column = None, at
        live[numbers.get(change.site, others)] += change.nbytes
        if best is None or sum(live) > sum(best):
            best = list(live)
    if best is not None:
        columns.append((_ns(column * width), best))
        columns.append((_ns((column + 1) * width), list(live)))
    low = [min(0, *(values[number] for _, values in columns)) for number in range(others + 1)]
    return {
        "device": device,
        "sites": [*sites, _OTHERS],
        "times": [time for time, _ in columns],
        "bytes": [[value - base for value, base in zip(values, low, strict=True)] for _, values in columns],
    }


def _largest(changes: Sequence[Change]) -> list[str]:
    """Return the call sites whose live bytes had the highest peaks."""
    live: dict[str, int] = {}
    most: dict[str, int] = {}
    for change in changes:
        live[change.site] = live.get(change.site, 0) + change.nbytes
        most[change.site] = max(most.get(change.site, 0), live[change.site])
    return sorted((site for site in most if most[site] > 0), key=lambda site: -most[site])[:SITES]
