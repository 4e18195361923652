"""The stopwatch of kind `cuda`, with a made-up driver: which events it records, shares, reads and returns."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.devices.cuda.streams import event_handles, stopwatch

#: Not a default stream, and the stream of the stopwatch itself.
STREAM, OWN = 0x5000, 0x7000


class Driver:
    """Streams whose work takes 1 ms for each call of `work`; events have the time at which their stream reaches them.

    Attributes
    ----------
    reached : dict of int to float
        The time of each event in ms.
    stream : int
        The current stream.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.stream = 0
        self.made = 0
        self.records = 0
        self.is_behind = self.is_capturing = self.is_relaxed = False
        self.reached: dict[int, float] = {}
        self.idle: list[int] = []
        self.streams: list[int] = []
        self.empty = 0.0
        self.ahead = 100.0
        self.rate = 1.0

    def make_stream(self, flags: int) -> int:
        assert flags == stopwatch._NON_BLOCKING
        self.streams.append(OWN)
        return OWN

    def host(self) -> float:
        """The host's clock in seconds."""
        return self.ahead + self.rate * self.now / 1e3

    def work(self, count: float = 1) -> None:
        self.now += count

    def take(self, index: int, flags: int) -> int:
        assert (index, flags) == (0, 0)
        self.made += 1
        return self.made

    def record(self, handle: int, stream: int) -> None:
        if stream != OWN:
            assert stream == self.stream
            self.records += 1
        self.now += self.empty
        self.reached[handle] = self.now

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        self.is_relaxed = True
        yield
        self.is_relaxed = False

    def query(self, handle: int) -> int:
        assert handle in self.reached
        assert self.is_relaxed, "it would break a capture of another thread"
        return 600 if self.is_behind else 0

    def elapsed(self, first: int, last: int) -> float:
        return self.reached[last] - self.reached[first]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    replaced: dict[str, Callable[..., Any]] = {
        "_record": made.record,
        "_elapsed": made.elapsed,
        "_query": made.query,
        "relaxed": made.relaxed,
        "_is_capturing": lambda stream: made.is_capturing,
        "at": lambda index: nullcontext(),
        "get_current_stream": lambda index: SimpleNamespace(ptr=made.stream),
        "_wait": lambda handle: None,
        "_make_stream": made.make_stream,
        "_destroy_stream": made.streams.remove,
        "perf_counter": made.host,
        "_has_many": False,
    }
    for name, function in replaced.items():
        monkeypatch.setattr(stopwatch, name, function)
    monkeypatch.setattr(event_handles, "take", made.take)
    monkeypatch.setattr(event_handles, "give_back", lambda index, handle, flags: made.idle.append(handle))
    return made


def timed(watch: Any, driver: Driver, *, is_next: bool, stream: int = 0) -> int:
    driver.stream = stream
    mark = watch.follow() if is_next else watch.start()
    driver.work()
    return int(watch.stop(mark))


def milliseconds(watch: Any) -> list[tuple[float, float]]:
    """Begin and end of each pair since the stopwatch was made, by number."""
    return [(round((begin - 100) * 1e3, 6), round((end - 100) * 1e3, 6)) for _, _, begin, end in sorted(watch.read())]


def test_each_pair_has_its_times_and_what_lies_between_two_belongs_to_none(driver: Driver) -> None:
    watch = stopwatch.Stopwatch(0)
    driver.work(2)
    numbers = [timed(watch, driver, is_next=False)]
    driver.work(3)
    numbers.append(timed(watch, driver, is_next=False))

    assert numbers == [0, 1]
    assert repr(watch) == "Stopwatch(cuda:0, 2 pairs)"
    assert milliseconds(watch) == [(2, 3), (6, 7)]


def test_a_pair_that_follows_another_one_records_one_event(driver: Driver) -> None:
    watch = stopwatch.Stopwatch(0)
    before = driver.records
    for _ in range(5):
        timed(watch, driver, is_next=True)

    assert driver.records - before == 6
    assert milliseconds(watch) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_a_pair_on_another_stream_follows_none(driver: Driver) -> None:
    watch = stopwatch.Stopwatch(0)
    before = driver.records
    for stream in (0, STREAM, STREAM, 0):
        timed(watch, driver, is_next=True, stream=stream)

    assert driver.records - before == 7
    assert [stream for _, stream, _, _ in sorted(watch.read())] == [0, STREAM, STREAM, 0]


@pytest.mark.parametrize("is_next", [False, True], ids=["start", "follow"])
def test_nothing_is_recorded_on_a_stream_that_is_captured(driver: Driver, is_next: bool) -> None:
    watch = stopwatch.Stopwatch(0)
    timed(watch, driver, is_next=False, stream=STREAM)
    driver.is_capturing, before = True, driver.records

    assert (watch.follow() if is_next else watch.start()) is None
    assert driver.records == before
    assert milliseconds(watch) == [(0, 1)]


@pytest.mark.parametrize("is_next", [False, True], ids=["start", "follow"])
def test_few_handles_serve_many_pairs_and_all_are_given_back_once(driver: Driver, is_next: bool) -> None:
    watch = stopwatch.Stopwatch(0)
    for _ in range(1000):
        timed(watch, driver, is_next=is_next)

    assert driver.made < 300
    assert milliseconds(watch) == [(begin, begin + 1) for begin in range(1000)]
    assert sorted(driver.idle) == list(range(1, driver.made + 1))


def test_pairs_wait_while_the_device_is_behind(driver: Driver) -> None:
    watch = stopwatch.Stopwatch(0)
    driver.is_behind = True
    for number in range(300):
        timed(watch, driver, is_next=number % 3 > 0, stream=STREAM * (number % 2))
    made = driver.made
    driver.is_behind = False
    for _ in range(300):
        timed(watch, driver, is_next=True)

    assert driver.made < made + 100
    assert milliseconds(watch) == [(begin, begin + 1) for begin in range(600)]


def test_the_time_between_two_events_is_not_work(driver: Driver) -> None:
    driver.empty = 0.00125  # of the device for each event, in ms
    watch = stopwatch.Stopwatch(0)
    for is_next in (False, True, True):
        timed(watch, driver, is_next=is_next)

    assert [round(1e3 * (end - begin), 6) for _, _, begin, end in sorted(watch.read())] == [1.0] * 3
    assert driver.streams == []


def test_what_the_host_takes_for_an_event_is_no_time_of_the_device(driver: Driver) -> None:
    driver.empty = 0.05
    watch = stopwatch.Stopwatch(0)
    timed(watch, driver, is_next=False)

    ((_, _, begin, end),) = watch.read()
    assert 1e3 * (end - begin) == pytest.approx(1.05 - 0.002)


@pytest.mark.parametrize("drift", [5e-5, -5e-5])
def test_times_are_the_hosts_although_the_clocks_drift(driver: Driver, drift: float) -> None:
    driver.rate = 1 + drift
    watch = stopwatch.Stopwatch(0)
    driver.work(10_000)
    timed(watch, driver, is_next=False)
    driver.work(10_000)

    ((_, _, begin, end),) = watch.read()
    assert (begin, end) == pytest.approx((100 + 10 * (1 + drift), 100 + 10.001 * (1 + drift)), abs=1e-9)


def test_two_comparisons_of_the_clocks_close_together_do_not_change_lengths(driver: Driver) -> None:
    watch = stopwatch.Stopwatch(0)
    timed(watch, driver, is_next=False)
    driver.ahead += 5e-6  # the error of a comparison

    ((_, _, begin, end),) = watch.read()
    assert end - begin == pytest.approx(1e-3, rel=2e-4)


def test_times_stay_exact_in_a_long_recording(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_elapsed", lambda first, last: float(np.float32(driver.elapsed(first, last))))
    watch = stopwatch.Stopwatch(0)
    begun = []
    for number in range(1200):
        driver.work(400 + number / 7)
        begun.append(driver.host())
        timed(watch, driver, is_next=False)

    assert begun[-1] - begun[0] > 500
    assert [begin for _, _, begin, _ in sorted(watch.read())] == pytest.approx(begun, abs=2e-6, rel=0)
    assert sorted(driver.idle) == list(range(1, driver.made + 1))


def test_two_threads_do_not_follow_the_same_pair(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = stopwatch.Stopwatch(0)
    timed(watch, driver, is_next=False, stream=STREAM)
    marks: list[Any] = []

    def while_another_thread_runs(_: int) -> bool:
        monkeypatch.setattr(stopwatch, "_is_capturing", lambda _: False)
        marks.append(watch.follow())
        return False

    monkeypatch.setattr(stopwatch, "_is_capturing", while_another_thread_runs)
    marks.append(watch.follow())
    for mark in marks:
        watch.stop(mark)
    watch.read()

    assert sorted(driver.idle) == list(range(1, driver.made + 1))


def test_pairs_that_were_read_are_freed(driver: Driver) -> None:
    watch = stopwatch.Stopwatch(0)
    stream = 0x5EED_0000_0000
    for _ in range(1000):
        timed(watch, driver, is_next=True, stream=stream)

    alive = [one for one in gc.get_objects() if type(one) is list and one[:1] == [stream]]
    assert len(alive) < 200
    watch.read()


def test_a_call_after_the_end_of_a_recording_does_not_share_an_event(driver: Driver) -> None:
    watch = stopwatch.Stopwatch(0)
    timed(watch, driver, is_next=False)
    watch.read()
    before = driver.records

    timed(watch, driver, is_next=True)  # of another thread, which had begun it before

    assert driver.records == before + 2


def test_the_end_of_a_recording_waits_for_a_thread_that_reads_pairs(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = stopwatch.Stopwatch(0)
    for _ in range(64):
        timed(watch, driver, is_next=True)
    begun, resumed = threading.Event(), threading.Event()

    def slow_elapsed(first: int, last: int) -> float:
        begun.set()
        assert resumed.wait(60)
        return driver.elapsed(first, last)

    monkeypatch.setattr(stopwatch, "_elapsed", slow_elapsed)
    with ThreadPoolExecutor(2) as pool:
        last = pool.submit(timed, watch, driver, is_next=True)  # reads the oldest pairs
        assert begun.wait(60)
        monkeypatch.setattr(stopwatch, "_elapsed", driver.elapsed)
        found = pool.submit(milliseconds, watch)
        wait([found], timeout=0.2)  # time to read pairs that the other thread is reading, which it must not use
        resumed.set()

        assert last.result() == 64
        assert found.result() == [(begin, begin + 1) for begin in range(65)]
