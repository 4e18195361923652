"""Write a timeline in the Trace Event format, which Perfetto and Chrome read.

Source: Trace Event Format, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: complete events
(``X``), instants (``i``), flows (``s`` and ``f``), counters (``C``) and metadata (``M``), times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from cuassay.observe.spans import DEVICE_KINDS, Span, Timeline

__all__ = ["trace_events", "write"]

_HOST = 1


def write(timeline: Timeline, path: str | Path) -> None:
    """Write `timeline` to `path` as JSON."""
    head = json.dumps({"unit": timeline.unit, "missed": timeline.missed})
    with Path(path).open("w", encoding="utf-8") as file:
        file.write(f'{{"displayTimeUnit":"ns","otherData":{head},"traceEvents":[\n')
        separator = ""
        for event in trace_events(timeline):
            file.write(separator + event)
            separator = ",\n"
        file.write("\n]}\n")


def trace_events(timeline: Timeline) -> Iterator[str]:
    """Yield the events as JSON, metadata first.

    The host and each device is a process of the trace, and each track is a thread. The text is assembled from parts
    that were encoded once, which is three times as fast as encoding a dictionary per event.
    """
    numbers = _Numbers(timeline)
    yield from map(json.dumps, numbers.metadata())
    for place, span in enumerate(timeline.spans):
        phase = f'"X","dur":{span.seconds * 1e6:.3f}' if span.is_timed and span.kind != "mark" else '"i","s":"t"'
        yield (
            f'{{"ph":{phase},"name":{_text(span.name)},"cat":"{span.kind}",{numbers.of(span.track)},'
            f'"ts":{span.begin * 1e6:.3f}{_args(timeline, place, span)}}}'
        )
    for number, flow in enumerate(timeline.flows):
        shared = f'"name":{_text(flow.name)},"cat":"wait","id":{number}'
        yield f'{{"ph":"s",{shared},{numbers.of(flow.track)},"ts":{flow.begin * 1e6:.3f}}}'
        yield f'{{"ph":"f","bp":"e",{shared},{numbers.of(flow.waiter)},"ts":{flow.end * 1e6:.3f}}}'
    live: dict[str, int] = {}
    for change in timeline.changes:
        live[change.device] = live.get(change.device, 0) + change.nbytes
        pid, ts = numbers.process(change.device), f"{change.time * 1e6:.3f}"
        yield f'{{"ph":"C","name":"bytes taken","pid":{pid},"ts":{ts},"args":{{"bytes":{live[change.device]}}}}}'


_text = lru_cache(maxsize=65536)(json.dumps)


def _args(timeline: Timeline, place: int, span: Span) -> str:
    found = [f'"site":{_text(span.site)}'] if span.site else []
    if span.nbytes:
        found.append(f'"bytes":{span.nbytes}')
    if span.parent >= 0:
        around = "launched by" if span.kind in DEVICE_KINDS else "inside"
        found.append(f'"{around}":{_text(timeline.spans[span.parent].name)}')
    if place in timeline.ways:
        found.append(f'"way":{_text(timeline.ways[place])}')
    return f',"args":{{{",".join(found)}}}' if found else ""


class _Numbers:
    """The process and thread numbers of tracks."""

    def __init__(self, timeline: Timeline) -> None:
        flown = [track for flow in timeline.flows for track in (flow.track, flow.waiter)]
        tracks = list(dict.fromkeys([*timeline.tracks(), *flown]))
        names = dict.fromkeys(track.partition(" ")[0] for track in tracks if not track.startswith("host"))
        names |= dict.fromkeys(change.device for change in timeline.changes)
        self._processes = {"host": _HOST} | {name: _HOST + 1 + number for number, name in enumerate(names)}
        self._threads = {
            track: (self.process(track.partition(" ")[0]), number) for number, track in enumerate(tracks, 1)
        }
        self._texts = {track: f'"pid":{pid},"tid":{tid}' for track, (pid, tid) in self._threads.items()}

    def process(self, name: str) -> int:
        return self._processes[name]

    def of(self, track: str) -> str:
        """Return the JSON text of the process and thread of `track`."""
        return self._texts[track]

    def metadata(self) -> Iterator[dict[str, Any]]:
        for name, pid in self._processes.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
        for track, (pid, tid) in self._threads.items():
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": track}}
