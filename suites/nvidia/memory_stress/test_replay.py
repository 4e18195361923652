"""Recorded traces with real memory: what they take by the driver's own count, and that no two blocks share any.

Streams of a trace are numbers of another process; here they order what is reused, and all work is on one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

import cuassay.cuda
from cuassay import devices
from cuassay.memory import CachingAllocator
from cuassay.memory.trace import Event, load_trace, replay
from cuassay.memory.workloads import WORKLOADS
from cuassay.testing import exclusive

if not cuassay.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

pytestmark = exclusive  # the driver's count of free memory is everybody's

FILES = sorted((Path(__file__).parents[2] / "data" / "traces").glob("*.csv.gz"))
Events = tuple[Event, ...]
RECORDED: dict[str, Callable[[], Events]] = {
    path.name.removesuffix(".csv.gz"): partial(load_trace, path) for path in FILES
}
#: Programs that nobody recorded, by a seed that no constant of the policy was chosen with.
UNSEEN: dict[str, Callable[[], Events]] = {name: partial(make, 20261122) for name, make in WORKLOADS.items()}
TRACES = RECORDED | UNSEEN

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


def replayed(events: Events) -> tuple[float, Any]:
    """Bytes taken by the driver's count over the live peak, and what the allocator says itself."""
    make, tagger = devices.backend("cuda").replay_target(0)
    source = Measured(make())
    allocator = CachingAllocator(source, config="", name="cuda:0")
    try:
        found = replay(events, allocator, passes=2)
        replay(events, allocator, passes=1, tagger=tagger)
    finally:
        cuassay.cuda.synchronize()
        allocator.empty_cache()
    return source.peak / found.live_peak, found


def measured(events: Events) -> tuple[float, Any]:
    """`replayed`, again where the two figures differ: what other processes take and give back counts as ours."""
    for _ in range(_ATTEMPTS):
        ratio, found = replayed(events)
        if ratio == pytest.approx(found.ratio, rel=_CLOSE):
            break
    return ratio, found


#: How often to measure, and how close the driver's count and the allocator's must be.
_ATTEMPTS, _CLOSE = 3, 0.01

_ratios: dict[str, float] = {}


@pytest.fixture
def events(name: str) -> Events:
    """The trace, where the device has room for it."""
    found = TRACES[name]()
    live, (free, _) = live_peak(found), cuassay.cuda.mem_get_info()
    if live * WORST > free:
        pytest.skip(f"{live:,} bytes are live at once; {free:,} are free")
    return found


@pytest.fixture
def ratios(names: dict[str, Any]) -> list[float]:
    """What the tests above found."""
    if not set(names) <= set(_ratios):
        pytest.skip("not every one was replayed in this run")
    return [_ratios[name] for name in names]


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_takes_little_more_than_is_live_and_its_blocks_share_nothing(
    name: str, events: Any, record_property: Callable[[str, object], None]
) -> None:
    ratio, found = measured(events)

    _ratios[name] = ratio
    record_property("ratio", ratio)
    record_property("driver calls after the first pass", found.driver_calls)
    assert ratio <= WORST
    assert ratio == pytest.approx(found.ratio, rel=_CLOSE)


def live_peak(events: Events) -> int:
    """The most bytes that are asked for at once."""
    live, held, peak = 0, dict[int, int](), 0
    for event in events:
        held[event.id] = held.get(event.id, 0) + event.nbytes
        live += event.nbytes if event.is_malloc else -held.pop(event.id)
        peak = max(peak, live)
    return peak


@pytest.mark.parametrize("names", [RECORDED, UNSEEN], ids=["recorded", "unseen"])
def test_all_of_them_together_waste_at_most_two_percent(
    names: Sequence[str], ratios: Any, record_property: Callable[[str, object], None]
) -> None:
    mean = geometric_mean(ratios)

    record_property("geomean", mean)
    assert mean <= MEAN
