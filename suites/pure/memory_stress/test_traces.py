"""Real traces: replayed against the shadow model, and how much memory the policy reserves for them."""

from __future__ import annotations

import gzip
from pathlib import Path
from statistics import geometric_mean
from typing import Any
from unittest.mock import Mock

import pytest

from cuassay.errors import ArgumentError
from cuassay.memory import Block, CachingAllocator, IntegerSource
from cuassay.memory.trace import Event, Replay, ShadowModel, load_trace, replay

FOLDER = Path(__file__).parents[2] / "data" / "traces"
TRACES = {path.name.removesuffix(".csv.gz"): path for path in sorted(FOLDER.glob("*.gz"))}

#: Reserved over live: the goals, for each and for their geometric mean. The simulation is exact.
WORST, MEAN = 1.06, 1.02


@pytest.fixture(scope="module")
def replays() -> dict[str, Replay]:
    """Every trace, run twice through an allocator of its own."""
    found = {}
    for name, path in TRACES.items():
        source = IntegerSource()
        found[name] = replay(load_trace(path), CachingAllocator(source))
    return found


@pytest.mark.parametrize("name", TRACES)
def test_no_block_overlaps_and_nothing_is_lost(name: str) -> None:
    source = IntegerSource()
    allocator, shadow, live = CachingAllocator(source), ShadowModel(source), {}
    events = load_trace(TRACES[name])[:12_000]

    for position, event in enumerate(events):
        if event.is_malloc:
            live[event.id] = allocator.malloc(event.nbytes, event.stream)
            shadow.took(live[event.id], event.nbytes, event.stream)
        else:
            shadow.gave(live[event.id])
            allocator.free(live.pop(event.id))
        if position % 2000 == 0:
            shadow.check(allocator)

    shadow.check(allocator)


@pytest.mark.parametrize("name", TRACES)
def test_the_peak_is_the_traces_own(name: str, replays: dict[str, Replay]) -> None:
    now, peak, sizes = 0, 0, {}
    for event in load_trace(TRACES[name]):
        sizes.setdefault(event.id, event.nbytes)
        now += event.nbytes if event.is_malloc else -sizes.pop(event.id)
        peak = max(peak, now)

    assert replays[name].live_peak == peak


@pytest.mark.parametrize("name", TRACES)
def test_little_more_is_reserved_than_is_live(name: str, replays: dict[str, Replay]) -> None:
    ratio = replays[name].ratio

    print(f"{name}: reserved / live = {ratio:.4f}")  # noqa: T201  # shown by -rP
    assert 1.0 <= ratio <= WORST


def test_next_to_nothing_is_wasted_on_average(replays: dict[str, Replay]) -> None:
    assert geometric_mean(found.ratio for found in replays.values()) <= MEAN


@pytest.mark.parametrize("name", TRACES)
def test_a_repeated_step_asks_the_driver_for_next_to_nothing(name: str, replays: dict[str, Replay]) -> None:
    events = len(load_trace(TRACES[name]))

    assert replays[name].driver_calls <= max(events // 100, 16)


@pytest.mark.parametrize("name", TRACES)
def test_a_step_that_was_repeated_a_few_times_asks_for_nothing(name: str) -> None:
    """Views are found again, for every step begins with its memory in the same state."""
    allocator, events = CachingAllocator(IntegerSource()), load_trace(TRACES[name])
    replay(events, allocator, passes=5)

    found = replay(events, allocator, passes=2)

    assert found.driver_calls == 0
    assert found.ratio <= WORST


class TestLoading:
    def write(self, folder: Path, *lines: str) -> Path:
        path = folder / "t.csv.gz"
        path.write_bytes(gzip.compress("\n".join(["op,id,size,stream,time_us", *lines]).encode()))
        return path

    def test_events_come_in_order(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "0,7,512,1,-1", "1,7,0,1,3")

        assert load_trace(path) == (Event(True, 7, 512, 1), Event(False, 7, 0, 1))

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            (["2,7,512,0,0"], "t.csv.gz:2 is not an event"),
            (["0,7,many,0,0"], "t.csv.gz:2 is not an event"),
            (["0,7"], "t.csv.gz:2 is not an event"),
            (["0,7,1,0,0", "0,7,1,0,0"], "t.csv.gz:3 allocates what is live: id 7"),
            (["1,7,0,0,0"], "t.csv.gz:2 frees what is not live: id 7"),
        ],
        ids=["operation", "size", "short", "twice", "unknown"],
    )
    def test_what_is_wrong_is_shown_at_its_line(self, tmp_path: Path, lines: list[str], message: str) -> None:
        with pytest.raises(ArgumentError, match=message):
            load_trace(self.write(tmp_path, *lines))


class TestReplays:
    EVENTS = tuple(Event(is_malloc, name, 4 * 2**20, 0) for is_malloc in (True, False) for name in range(3))

    @pytest.mark.parametrize("passes", [1, 2, 3])
    def test_calls_of_the_first_pass_do_not_count(self, passes: int) -> None:
        allocator = CachingAllocator(IntegerSource(), config="")

        assert replay(self.EVENTS, allocator, passes=passes).driver_calls == 0
        assert allocator.driver_calls > 0

    @pytest.mark.parametrize("tagger", [None, Mock()], ids=["plain", "with tags"])
    def test_the_time_of_an_operation_is_that_of_the_last_pass(
        self, monkeypatch: pytest.MonkeyPatch, tagger: Any
    ) -> None:
        times = iter([1000, 10_000, 20_000, 20_600])
        monkeypatch.setattr("cuassay.memory.trace.perf_counter_ns", lambda: next(times))

        found = replay(self.EVENTS, CachingAllocator(IntegerSource(), config=""), tagger=tagger)

        assert found.ns_per_op == 600 / len(self.EVENTS)

    def test_replaying_no_events_uses_nothing(self) -> None:
        found = replay((), CachingAllocator(IntegerSource(), config=""))

        assert (found.live_peak, found.reserved_peak, found.ratio, found.driver_calls) == (0, 0, 0, 0)


class TestTheShadowModel:
    """The model itself finds planted faults."""

    @pytest.fixture
    def taken(self) -> tuple[ShadowModel, CachingAllocator, Block]:
        source = IntegerSource()
        allocator, shadow = CachingAllocator(source), ShadowModel(source)
        block = allocator.malloc(1000)
        shadow.took(block, 1000, 0)
        return shadow, allocator, block

    def test_a_block_given_twice_overlaps(self, taken: tuple[ShadowModel, CachingAllocator, Block]) -> None:
        shadow, _, block = taken

        with pytest.raises(AssertionError, match="overlaps"):
            shadow.took(block, 1000, 0)

    @pytest.mark.parametrize(("nbytes", "stream"), [(1001, 0), (1000, 1)])
    def test_a_wrong_size_or_stream_is_seen(
        self, taken: tuple[ShadowModel, CachingAllocator, Block], nbytes: int, stream: int
    ) -> None:
        shadow, allocator, _ = taken

        with pytest.raises(AssertionError, match="was given"):
            shadow.took(allocator.malloc(1000), nbytes, stream)

    @pytest.mark.parametrize("changed", ["nbytes", "requested"])
    def test_a_size_that_changed_while_the_block_was_live_is_seen(
        self, taken: tuple[ShadowModel, CachingAllocator, Block], changed: str
    ) -> None:
        shadow, _, block = taken
        setattr(block, changed, getattr(block, changed) + 8)

        with pytest.raises(AssertionError, match="changed while it was live"):
            shadow.gave(block)

    def test_a_lost_byte_is_seen(self, taken: tuple[ShadowModel, CachingAllocator, Block]) -> None:
        shadow, allocator, block = taken
        next(rest for rest in block.segment if rest is not block).nbytes -= 512

        with pytest.raises(AssertionError, match="is not covered"):
            shadow.check(allocator)

    def test_a_block_the_model_does_not_know_is_seen(self, taken: tuple[ShadowModel, CachingAllocator, Block]) -> None:
        shadow, allocator, _ = taken
        allocator.malloc(512)

        with pytest.raises(AssertionError, match="other blocks are live"):
            shadow.check(allocator)
