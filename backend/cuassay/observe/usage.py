"""Compute live bytes over time by call site from a snapshot. `cuassay.observe.timeline` draws them.

A snapshot holds the events of a ring buffer and the blocks at one moment. Blocks that are freed by an event or live at
the end, but that no event allocated, existed before the first event. Events are grouped into at most `COLUMNS` columns
of time. A column shows the moment at which most bytes were live, so peaks are kept. The call sites with the highest
peaks are listed by name; all others are summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["COLUMNS", "EARLIER", "HOST", "OTHERS", "SITES", "Site", "Usage", "lines_of", "site_of", "usages"]

#: The number of columns of a picture, and of call sites listed by name.
COLUMNS = 800
SITES = 12

#: The site names shown for blocks allocated before the first event, and for the call sites not listed by name.
EARLIER = "before the recording"
OTHERS = "other call sites"

#: The name of pinned host memory.
HOST = "pinned host memory"

#: Parts of file names that mark library code, which is skipped when naming a call site.
_LIBRARIES = ("site-packages", "dist-packages", "/torch/", "<frozen", "??")

#: Blocks of one device: address to (bytes, site).
_Live = dict[int, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Site:
    """One call site.

    Attributes
    ----------
    name : str
        ``file:line function``, `EARLIER` or `OTHERS`.
    most : int
        The peak of its live bytes.
    at_peak : int
        Its live bytes at the peak of all call sites together.
    requests : int
        How many allocations it made.
    stack : tuple of str
        The stack of one allocation, innermost frame first.
    """

    name: str
    most: int
    at_peak: int
    requests: int
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """Live bytes of one device, or of pinned host memory.

    Attributes
    ----------
    name : str
        ``"device 0"``, or `HOST`.
    segments : tuple of mapping
        The segments at the end, in the snapshot's schema.
    peak : int
        The largest number of live bytes.
    peak_us : int
        The time of the peak, in microseconds since the first event.
    events : int
        The number of events.
    sites : tuple of Site
        The call sites listed by name, the highest peak first, then `OTHERS` if there are more.
    times : tuple of int
        The time of each column, in microseconds since the first event.
    columns : tuple of tuple of int
        For each column, the live bytes of each of `sites`.
    reserved : tuple of int
        For each column, the bytes reserved from the device; 0 everywhere if the events do not include segments.
    """

    name: str
    segments: tuple[Mapping[str, Any], ...]
    peak: int
    peak_us: int
    events: int
    sites: tuple[Site, ...]
    times: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...]
    reserved: tuple[int, ...]


def usages(snapshot: Mapping[str, Any]) -> tuple[Usage, ...]:
    """Return the usage of each device that has events or blocks, then that of pinned host memory if there is any."""
    segments, traces = snapshot["segments"], snapshot.get("device_traces") or []
    indices = {segment["device"] for segment in segments} | {index for index, trace in enumerate(traces) if trace}
    found = [
        _usage(
            f"device {index}",
            traces[index] if index < len(traces) else [],
            [segment for segment in segments if segment["device"] == index],
        )
        for index in sorted(indices)
    ]
    pinned, pinned_traces = snapshot.get("host_segments") or [], snapshot.get("host_traces") or []
    if pinned or any(pinned_traces):
        found.append(_usage(HOST, pinned_traces[0] if pinned_traces else [], pinned))
    return tuple(found)


def _blocks(segments: Iterable[Mapping[str, Any]]) -> _Live:
    """Return the blocks that are live at the end."""
    return {
        block["address"]: (block["size"], site_of(block["frames"]) if block["frames"] else EARLIER)
        for segment in segments
        for block in segment["blocks"]
        if block["state"] != "inactive"
    }


def site_of(frames: Iterable[Mapping[str, Any]]) -> str:
    """Name a stack by its innermost frame outside libraries, as ``file:line function``."""
    frames = list(frames)
    own = [frame for frame in frames if not any(part in str(frame["filename"]) for part in _LIBRARIES)]
    for frame in own or frames:
        short = "/".join(str(frame["filename"]).split("/")[-2:])
        return f"{short}:{frame['line']} {frame['name']}"
    return "without a stack"


def _usage(name: str, trace: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, Any]]) -> Usage:
    at_end = _blocks(segments)
    moves = list(_moves(trace))
    start = _start(moves, at_end)
    begin = trace[0]["time_us"] if trace else 0
    walk = _Walk(start)
    for _, _, nbytes, site in moves:
        walk.move(nbytes, site)
    walk.finish()
    ranked = [site for site, _ in walk.most.most_common(SITES)]
    columns = _Columns(ranked, start, begin, trace[-1]["time_us"] if trace else 0, _reserved(trace))
    for time, _, nbytes, site in moves:
        columns.move(time, nbytes, site)
    requests = Counter(site for _, _, nbytes, site in moves if nbytes > 0)
    stacks = _stacks(trace)
    sites = [Site(name, walk.most[name], walk.at_peak[name], requests[name], stacks.get(name, ())) for name in ranked]
    if len(walk.most) > len(ranked):
        rest = [name for name in walk.most if name not in ranked]
        held = sum(walk.at_peak[name] for name in rest)
        sites.append(Site(OTHERS, columns.most_of_others, held, sum(requests[name] for name in rest), ()))
    times, values, reserved = columns.done(len(sites))
    peak_time = moves[walk.peak_move][0] - begin if walk.peak_move >= 0 else 0
    return Usage(name, tuple(segments), walk.peak, peak_time, len(trace), tuple(sites), times, values, reserved)


def _moves(trace: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, int, int, str]]:
    """Yield (time, address, bytes, site) for each allocation and free; bytes are negative for a free."""
    live: _Live = {}
    names: dict[int, str] = {}
    for event in trace:
        if event["action"] == "alloc":
            frames = event["frames"]
            site = names.get(id(frames)) or names.setdefault(id(frames), site_of(frames))
            live[event["addr"]] = event["size"], site
            yield event["time_us"], event["addr"], event["size"], site
        elif event["action"] == "free_completed":
            _, site = live.pop(event["addr"], (0, EARLIER))
            yield event["time_us"], event["addr"], -event["size"], site


def _start(moves: Iterable[tuple[int, int, int, str]], at_end: _Live) -> Counter[str]:
    """Return the bytes that were live before the first event, by call site."""
    start: Counter[str] = Counter()
    live: set[int] = set()
    for _, address, nbytes, _ in moves:
        if nbytes > 0:
            live.add(address)
        elif address in live:
            live.remove(address)
        else:
            start[EARLIER] -= nbytes
    for address, (nbytes, site) in at_end.items():
        if address not in live:
            start[site] += nbytes
    return start


class _Walk:
    """Follow the events to find the peak, what each site held at it, and the peak of each site."""

    def __init__(self, start: Counter[str]) -> None:
        self.held, self.most, self.at_peak = Counter(start), Counter(start), Counter(start)
        self.total = self.peak = sum(start.values())
        self.peak_move = -1
        self._number = -1
        self._is_rising = False

    def move(self, nbytes: int, site: str) -> None:
        """Add an event."""
        if nbytes < 0:
            self.finish()
        self._number += 1
        self.held[site] += nbytes
        self.total += nbytes
        self.most[site] = max(self.most[site], self.held[site])
        if self.total > self.peak:
            self.peak, self.peak_move, self._is_rising = self.total, self._number, True

    def finish(self) -> None:
        """Keep what each site holds if the current total is a new peak."""
        if self._is_rising:
            self.at_peak, self._is_rising = Counter(self.held), False


class _Columns:
    """Group events into columns of time. Each column keeps the moment of most live bytes."""

    def __init__(
        self, ranked: Sequence[str], start: Counter[str], begin: int, end: int, reserved: list[tuple[int, int]]
    ) -> None:
        self._place = {name: place for place, name in enumerate(ranked)}
        self._begin, self._width = begin, max(end - begin, 1) / COLUMNS
        self._held = [0] * (len(ranked) + 1)
        for name, nbytes in start.items():
            self._held[self._place.get(name, -1)] += nbytes
        self.most_of_others = self._held[-1]
        self._total = sum(self._held)
        self._found: dict[int, tuple[int, int, tuple[int, ...]]] = {0: (self._total, 0, tuple(self._held))}
        self._reserved = reserved

    def move(self, time: int, nbytes: int, site: str) -> None:
        """Add an event."""
        self._held[self._place.get(site, -1)] += nbytes
        self._total += nbytes
        self.most_of_others = max(self.most_of_others, self._held[-1])
        column = min(int((time - self._begin) / self._width), COLUMNS - 1)
        if column not in self._found or self._total > self._found[column][0]:
            self._found[column] = self._total, time - self._begin, tuple(self._held)

    def done(self, count: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """Return the times, the bytes of the first `count` sites, and the reserved bytes, each by column."""
        last = int(COLUMNS * self._width)
        rows = [self._found[column] for column in sorted(self._found)]
        rows.append((self._total, max(last, rows[-1][1]), tuple(self._held)))
        times = tuple(time for _, time, _ in rows)
        return times, tuple(held[:count] for _, _, held in rows), tuple(self._reserved_at(times))

    def _reserved_at(self, times: Iterable[int]) -> Iterator[int]:
        position, found = 0, self._reserved[0][1]
        for time in times:
            while position < len(self._reserved) and self._reserved[position][0] <= time:
                found = self._reserved[position][1]
                position += 1
            yield found


#: The events that change reserved memory, with the sign of the change.
_RESERVING = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def _reserved(trace: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Return the reserved bytes over time.

    The amount before the first event is the smallest that keeps the total from becoming negative.
    """
    moves = [
        (e["time_us"] - trace[0]["time_us"], _RESERVING[e["action"]] * e["size"])
        for e in trace
        if e["action"] in _RESERVING
    ]
    total = lowest = 0
    for _, nbytes in moves:
        total += nbytes
        lowest = min(lowest, total)
    found, total = [(0, -lowest)], -lowest
    for time, nbytes in moves:
        total += nbytes
        found.append((time, total))
    return found


def _stacks(trace: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return one stack of each call site, innermost frame first."""
    found: dict[str, tuple[str, ...]] = {}
    seen: set[int] = set()
    for event in trace:
        if event["action"] == "alloc" and id(event["frames"]) not in seen:
            seen.add(id(event["frames"]))
            found.setdefault(site_of(event["frames"]), lines_of(event["frames"]))
    return found


def lines_of(frames: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a stack as lines of text, innermost frame first."""
    return tuple(f"{frame['filename']}:{frame['line']} {frame['name']}" for frame in frames)
