"""Recorded traces: load a trace, replay it, and check every result against a shadow model.

A trace is a table ``op,id,size,stream,time_us``: op 0 allocates `size` bytes under `id`, 1 frees them.
"""

from __future__ import annotations

import csv
import gzip
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple, Protocol

from cuassay.errors import ArgumentError
from cuassay.memory.blocks import Block
from cuassay.memory.caching import CachingAllocator
from cuassay.memory.config import MIN_BLOCK
from cuassay.memory.integer_source import IntegerSource

__all__ = ["Event", "Replay", "Replayed", "ShadowModel", "Tagger", "load_trace", "replay"]


class Event(NamedTuple):
    """One line of a trace; `nbytes` is 0 for a free."""

    is_malloc: bool
    id: int
    nbytes: int
    stream: int


def load_trace(path: Path) -> tuple[Event, ...]:
    """Return the events of a ``.csv.gz`` file, in order.

    Raises
    ------
    ArgumentError
        If a line is not an event, or frees something that is not live.
    """
    try:
        with gzip.open(path, "rt", encoding="ascii", newline="") as lines:
            events = tuple(_event(path, number, row) for number, row in enumerate(csv.DictReader(lines), start=2))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read as a trace: {error}; give the .csv.gz file of a trace") from error
    _check_pairs(path, events)
    return events


def _event(path: Path, number: int, row: dict[str, str]) -> Event:
    try:
        return Event({"0": True, "1": False}[row["op"]], int(row["id"]), int(row["size"]), int(row["stream"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"{path.name}:{number} is not an event: {row!r}; columns are op,id,size,stream") from error


def _check_pairs(path: Path, events: Iterable[Event]) -> None:
    live: set[int] = set()
    for number, event in enumerate(events, start=2):
        if event.is_malloc == (event.id in live):
            what = "allocates what is live" if event.is_malloc else "frees what is not live"
            raise ArgumentError(f"{path.name}:{number} {what}: id {event.id}; record the trace again")
        (live.add if event.is_malloc else live.remove)(event.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a replay; sizes in bytes.

    Attributes
    ----------
    live_peak : int
        The most bytes that were requested at the same time.
    reserved_peak : int
        The most bytes that were taken from the device.
    ratio : float
        `reserved_peak` over `live_peak`: 1 wastes nothing.
    driver_calls : int
        Source calls after the first pass, not counting those about events.
    ns_per_op : float
        Host time for an operation in the last pass.
    """

    live_peak: int
    reserved_peak: int
    ratio: float
    driver_calls: int
    ns_per_op: float


class Replayed(Protocol):
    """The interface of an allocator that a trace is replayed through."""

    @property
    def driver_calls(self) -> int:
        """The number of source calls so far, not counting those about events."""

    def malloc(self, nbytes: int, stream: int = 0, /) -> Block:
        """Allocate a block."""

    def free(self, block: Block, /) -> None:
        """Free a block."""

    def peaks(self) -> tuple[int, int]:
        """Return the most bytes that were requested, and reserved, at the same time."""


class Tagger(Protocol):
    """Writes a tag into both ends of a block, and later checks whether it is still there."""

    def write(self, block: Block, tag: int) -> None:
        """Write `tag` to both ends of `block`, in the order of its stream."""

    def check(self, block: Block, tag: int) -> None:
        """Raise `AssertionError` unless both ends hold `tag`, now or at `finish`; in the order of its stream."""

    def finish(self) -> None:
        """Wait for all checks. Raises `AssertionError` if one failed."""


def replay(events: Iterable[Event], allocator: Replayed, *, passes: int = 2, tagger: Tagger | None = None) -> Replay:
    """Run `events` through `allocator`; blocks that are still live are freed after each pass.

    A `tagger` writes every block's ends when it is allocated and checks them when it is freed; ``ns_per_op`` then
    includes that time.
    """
    events = tuple(events)
    spent, calls = 0, 0
    for number in range(passes):
        if number == 1:
            calls = allocator.driver_calls
        spent = _replay_once(events, allocator) if tagger is None else _replay_tagged(events, allocator, tagger)
    live, reserved = allocator.peaks()
    return Replay(
        live_peak=live,
        reserved_peak=reserved,
        ratio=reserved / max(live, 1),
        driver_calls=allocator.driver_calls - calls if passes > 1 else 0,
        ns_per_op=spent / max(len(events), 1),
    )


def _replay_once(events: tuple[Event, ...], allocator: Replayed) -> int:
    malloc, free = allocator.malloc, allocator.free
    live: dict[int, Block] = {}
    begin = perf_counter_ns()
    for is_malloc, name, nbytes, stream in events:
        if is_malloc:
            live[name] = malloc(nbytes, stream)
        else:
            free(live.pop(name))
    spent = perf_counter_ns() - begin
    for block in live.values():
        free(block)
    return spent


def _replay_tagged(events: tuple[Event, ...], allocator: Replayed, tagger: Tagger) -> int:
    live: dict[int, tuple[Block, int]] = {}
    begin = perf_counter_ns()
    for tag, event in enumerate(events, start=1):
        if event.is_malloc:
            block = allocator.malloc(event.nbytes, event.stream)
            live[event.id] = (block, tag)
            tagger.write(block, tag)
        else:
            _check_and_free(allocator, tagger, *live.pop(event.id))
    for block, tag in live.values():
        _check_and_free(allocator, tagger, block, tag)
    tagger.finish()
    return perf_counter_ns() - begin


def _check_and_free(allocator: Replayed, tagger: Tagger, block: Block, tag: int) -> None:
    tagger.check(block, tag)
    allocator.free(block)


class ShadowModel:
    """What must be true of every block; it shares nothing with the allocator.

    Each check raises `AssertionError` with the blocks at fault.
    """

    def __init__(self, source: IntegerSource) -> None:
        self._source = source
        #: Where live ranges begin, whatever alias maps them; and where each range ends.
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}
        self._live: dict[int, tuple[int, int, list[tuple[int, int]]]] = {}
        self.requested = 0
        self.peak = 0
        self.most = 0
        self.given = 0

    def took(self, block: Block, nbytes: int, stream: int) -> None:
        """Check a new block for `nbytes` on `stream`: large enough, aligned, in its segment, without overlap."""
        _demand(
            block.nbytes >= max(nbytes, 1) and block.requested == nbytes, "{!r} was given for {} bytes", block, nbytes
        )
        _demand(block.address % MIN_BLOCK == 0 and block.nbytes % MIN_BLOCK == 0, "{!r} is not aligned", block)
        _demand(block.stream == stream, "{!r} was given to stream {}", block, stream)
        ranges = self._source.physical(block.address, block.nbytes)
        for low, high in ranges:
            self._demand_apart(block, low, high)
            self._starts.insert(bisect_left(self._starts, low), low)
            self._ends[low] = high
        self._live[block.address] = (block.nbytes, nbytes, ranges)
        self.given += 1
        self.requested += nbytes
        self.peak = max(self.peak, self.requested)
        self.most = max(self.most, len(self._live))

    def _demand_apart(self, block: Block, low: int, high: int) -> None:
        position = bisect_left(self._starts, low)
        for start in self._starts[max(position - 1, 0) : position + 1]:
            _demand(self._ends[start] <= low or high <= start, "{!r} overlaps {:#x}", block, start)

    def reset_peaks(self) -> None:
        """Start new peaks."""
        self.peak, self.most = self.requested, len(self._live)

    def gave(self, block: Block) -> None:
        """Check a block about to be freed: it is unchanged since `took`, and maps the same memory."""
        nbytes, requested, ranges = self._live.pop(block.address)
        _demand(block.nbytes == nbytes and block.requested == requested, "{!r} changed while it was live", block)
        _demand(self._source.physical(block.address, nbytes) == ranges, "{!r} shows other memory", block)
        for low, _ in ranges:
            del self._starts[bisect_left(self._starts, low)]
            del self._ends[low]
        self.requested -= requested

    def check(self, allocator: CachingAllocator, *, with_peaks: bool = True) -> None:
        """Check that nothing is lost and nothing counted twice, in every segment and in the statistics.

        Peaks are compared too, unless several threads allocate, because then the model learns of blocks too late.
        """
        figures, segments = allocator.statistics(), allocator.segments()
        for segment in segments:
            position = segment.address
            for block in segment:
                _demand(block.address == position and block.nbytes > 0, "{!r} leaves a hole", block)
                position += block.nbytes
            _demand(position == segment.address + segment.nbytes, "{!r} is not covered", segment)
        live = {block.address: block.nbytes for segment in segments for block in segment if block.is_live}
        _demand(live == {start: row[0] for start, row in self._live.items()}, "other blocks are live than were given")
        held = sum(segment.held for segment in segments)
        _demand(figures.reserved_bytes.all.current == held, "reserved bytes are not those of the segments")
        _demand(
            figures.allocated_bytes.all.current == sum(live.values()), "allocated bytes are not those that are live"
        )
        _demand(figures.requested_bytes.all.current == self.requested, "requested bytes are not those asked for")
        _demand(figures.allocation.all.allocated == self.given, "another number of blocks was given")
        if with_peaks:
            _demand(figures.requested_bytes.all.peak == self.peak, "the peak was another")
            _demand(figures.allocation.all.peak == self.most, "another number of blocks was live at once")


def _demand(condition: object, message: str, *values: object) -> None:
    """Raise `AssertionError` unless `condition` holds; the text is made only then, because most checks succeed."""
    if not condition:
        raise AssertionError(message.format(*values))
