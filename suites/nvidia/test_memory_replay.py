"""Recorded traces with real memory: what they take by the driver's own count, and that no two blocks share any.

Streams of a trace are numbers of another process; here they order what is reused, and all work is on one stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

import cuassay.cuda
from cuassay import devices
from cuassay.memory import CachingAllocator
from cuassay.memory.trace import load_trace, replay

if not cuassay.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*.csv.gz"))
NAMES = [path.name.removesuffix(".csv.gz") for path in TRACES]

#: What may be reserved for what is live at its peak: of one trace, and the geometric mean of all.
WORST, MEAN = 1.06, 1.02


class Measured:
    """A source that reads the driver's count of free memory after each growth."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._before, _ = cuassay.cuda.mem_get_info()
        self.peak = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def reserve(self, nbytes: int, stream: int) -> int:
        address: int = self._source.reserve(nbytes, stream)
        self._note()
        return address

    def map(self, address: int, pages: Sequence[int]) -> None:
        self._source.map(address, pages)
        self._note()

    def _note(self) -> None:
        self.peak = max(self.peak, self._before - cuassay.cuda.mem_get_info()[0])


def replayed(path: Path) -> tuple[float, Any]:
    """Bytes taken by the driver's count over the live peak, and what the allocator says itself."""
    make, tagger = devices.backend("cuda").replay_target(0)
    events, source = load_trace(path), Measured(make())
    allocator = CachingAllocator(source, config="", name="cuda:0")
    try:
        found = replay(events, allocator, passes=3)
        replay(events, allocator, passes=1, tagger=tagger)
    finally:
        cuassay.cuda.synchronize()
        allocator.empty_cache()
    return source.peak / found.live_peak, found


def measured(path: Path) -> tuple[float, Any]:
    """`replayed`, again where the two figures differ: what other processes take and give back counts as ours."""
    for _ in range(_ATTEMPTS):
        ratio, found = replayed(path)
        if ratio == pytest.approx(found.ratio, rel=_CLOSE):
            break
    return ratio, found


#: How often to measure, and how close the driver's count and the allocator's must be.
_ATTEMPTS, _CLOSE = 3, 0.01

_ratios: dict[str, float] = {}


@pytest.mark.parametrize("path", TRACES, ids=NAMES)
def test_a_trace_takes_little_more_than_is_live_and_its_blocks_share_nothing(path, record_property):
    live = replay_peak(path)
    free, _ = cuassay.cuda.mem_get_info()
    if live * WORST > free:
        pytest.skip(f"{live:,} bytes are live at once; {free:,} are free")

    ratio, found = measured(path)

    _ratios[path.name] = ratio
    record_property("ratio", ratio)
    record_property("driver calls after the first pass", found.driver_calls)
    assert ratio <= WORST
    assert ratio == pytest.approx(found.ratio, rel=_CLOSE)


def replay_peak(path: Path) -> int:
    """The most bytes that are asked for at once."""
    live, held, peak = 0, dict[int, int](), 0
    for event in load_trace(path):
        held[event.id] = held.get(event.id, 0) + event.nbytes
        live += event.nbytes if event.is_malloc else -held.pop(event.id)
        peak = max(peak, live)
    return peak


def test_all_traces_together_waste_at_most_two_percent():
    if len(_ratios) < len(TRACES):
        pytest.skip("not every trace was replayed in this run")

    assert geometric_mean(_ratios.values()) <= MEAN
