"""Live bytes over time by call site, out of a snapshot: what is drawn, without how.

A snapshot has the events of a ring and the blocks of one moment. Blocks that are freed in the events, or live at the
end, and were allocated in none of them, were there from the beginning. Events are gathered into at most `COLUMNS`
columns, of which each keeps its moment of most bytes, so that a peak is never lost; the call sites that hold most at
some time keep their names, all others are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["COLUMNS", "EARLIER", "HOST", "OTHERS", "SITES", "Site", "Usage", "lines_of", "site_of", "usages"]

#: Columns of a picture, and call sites with a name of their own in it.
COLUMNS = 800
SITES = 12

#: Who asked for blocks that were there before the first event, and for those of sites without a name.
EARLIER = "before the recording"
OTHERS = "other call sites"

#: What pinned host memory is called.
HOST = "pinned host memory"

#: Libraries whose own code is passed over for a site's name.
_LIBRARIES = ("site-packages", "dist-packages", "/torch/", "<frozen", "??")

#: Blocks of one device: address to (bytes, site).
_Live = dict[int, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Site:
    """One call site: its most bytes at once, its bytes at the whole's peak, how often it asked, and a stack of it."""

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
        Which: ``"device 0"``, or `HOST`.
    segments : tuple of mapping
        What it held at the end, in the snapshot's schema.
    peak : int
        The most live bytes.
    peak_us : int
        When that was, microseconds since the first event.
    events : int
        How many were read.
    sites : tuple of Site
        Those with a name, most bytes first; then `OTHERS`, where there are any.
    times : tuple of int
        Microseconds since the first event, of each column.
    columns : tuple of tuple of int
        Bytes by site, in the order of `sites`, of each column.
    reserved : tuple of int
        Bytes taken from the device, of each column; 0 throughout where the events do not tell.
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
    """One of each device that has events, or blocks; pinned host memory, where there is any, after them."""
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
    pinned, told = snapshot.get("host_segments") or [], snapshot.get("host_traces") or []
    if pinned or any(told):
        found.append(_usage(HOST, told[0] if told else [], pinned))
    return tuple(found)


def _blocks(segments: Iterable[Mapping[str, Any]]) -> _Live:
    """The blocks that hold memory at the end."""
    return {
        block["address"]: (block["size"], site_of(block["frames"]) if block["frames"] else EARLIER)
        for segment in segments
        for block in segment["blocks"]
        if block["state"] != "inactive"
    }


def site_of(frames: Iterable[Mapping[str, Any]]) -> str:
    """A stack's name: the innermost line outside libraries, as ``file:line function``."""
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
    """What came and went: (time, address, bytes, site); negative bytes for what went."""
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
    """What was live before the first event, by site."""
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
    """Totals along the events: the peak, what each site held then, and the most of each."""

    def __init__(self, start: Counter[str]) -> None:
        self.held, self.most, self.at_peak = Counter(start), Counter(start), Counter(start)
        self.total = self.peak = sum(start.values())
        self.peak_move = -1
        self._number = -1
        self._is_rising = False

    def move(self, nbytes: int, site: str) -> None:
        """One more event."""
        if nbytes < 0:
            self.finish()
        self._number += 1
        self.held[site] += nbytes
        self.total += nbytes
        self.most[site] = max(self.most[site], self.held[site])
        if self.total > self.peak:
            self.peak, self.peak_move, self._is_rising = self.total, self._number, True

    def finish(self) -> None:
        """There are no more events."""
        if self._is_rising:
            self.at_peak, self._is_rising = Counter(self.held), False


class _Columns:
    """Events gathered by time; each column keeps its fullest moment."""

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
        """One more event."""
        self._held[self._place.get(site, -1)] += nbytes
        self._total += nbytes
        self.most_of_others = max(self.most_of_others, self._held[-1])
        column = min(int((time - self._begin) / self._width), COLUMNS - 1)
        if column not in self._found or self._total > self._found[column][0]:
            self._found[column] = self._total, time - self._begin, tuple(self._held)

    def done(self, count: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """Times, bytes by the first `count` sites, and bytes reserved, by column."""
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


#: What moves reserved memory, and which way.
_RESERVING = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def _reserved(trace: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Reserved bytes by time, as far as the events tell; what was there before is what must have been."""
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
    """One stack of each site, innermost first."""
    found: dict[str, tuple[str, ...]] = {}
    seen: set[int] = set()
    for event in trace:
        if event["action"] == "alloc" and id(event["frames"]) not in seen:
            seen.add(id(event["frames"]))
            found.setdefault(site_of(event["frames"]), lines_of(event["frames"]))
    return found


def lines_of(frames: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """A stack in words, innermost first."""
    return tuple(f"{frame['filename']}:{frame['line']} {frame['name']}" for frame in frames)
