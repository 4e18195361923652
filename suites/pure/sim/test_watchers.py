"""Watchers: who is told, what, in which order, and that nothing is left behind when they go."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import ops
from cuassay.core import graph_hooks, watchers
from cuassay.core.watchers import EVENTS, Occurrence, replace_while_watched, tell, watch
from cuassay.cuda import _gpu_trace
from cuassay.devices.sim import BACKEND
from cuassay.errors import ArgumentError
from cuassay.memory import CachingAllocator, IntegerSource


@pytest.fixture
def sim() -> Iterator[Any]:
    with BACKEND.simulated(devices=1) as backend:
        yield backend


def seen(run: Callable[[], object], *events: str) -> list[Occurrence]:
    """What a watcher of `events` hears while `run` runs."""
    found: list[Occurrence] = []
    with watch(found.append, events or None):
        run()
    return found


def array(value: float = 1.0) -> Any:
    return cuassay.from_host(np.full(64, value, np.float32), "sim")


# ------------------------------------------------------------------------------------------------ the table


def test_watchers_are_told_in_the_order_they_came() -> None:
    order: list[tuple[str, Occurrence]] = []
    told = Occurrence("copied", "sim:0")
    with watch(lambda one: order.append(("first", one))), watch(lambda one: order.append(("second", one))):
        tell(told)

    # A collection of garbage frees arrays of other tests, which watchers are told too.
    assert [name for name, one in order if one is told] == ["first", "second"]


def test_a_watcher_is_told_only_what_it_asked_for() -> None:
    found = seen(lambda: [tell(Occurrence(event, "sim:0")) for event in EVENTS], "copied", "event_made")

    assert [occurrence.event for occurrence in found] == ["event_made", "copied"]


def test_a_removed_watcher_is_told_nothing_and_may_be_removed_twice() -> None:
    found: list[Occurrence] = []
    handle = watch(found.append)
    handle.remove()
    handle.remove()
    tell(Occurrence("copied", "sim:0"))

    assert found == []
    assert watchers.state.watchers == ()


def test_watcher_that_another_thread_adds_during_a_removal_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Occurrence] = []
    first, added = watch(lambda _: None), threading.Event()
    change = watchers._change

    def slow(*changed: Any) -> None:
        thread = threading.Thread(target=lambda: (watch(found.append), added.set()))
        monkeypatch.setattr(watchers, "_change", change)
        thread.start()
        added.wait(0.2)  # in vain, if the removal holds the lock
        change(*changed)
        threads.append(thread)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(watchers, "_change", slow)
    first.remove()
    threads[0].join()
    tell(Occurrence("copied", "sim:0"))
    for one in watchers.state.watchers:
        watchers.WatchHandle(one.watcher, one).remove()

    assert [one.event for one in found] == ["copied"]


def test_one_function_may_watch_twice_and_each_handle_ends_its_own() -> None:
    found: list[Occurrence] = []
    watcher = found.append  # a second `found.append` would be another object
    with watch(watcher):
        watch(watcher).remove()
        tell(Occurrence("copied", "sim:0"))

    assert len(found) == 1


@pytest.mark.parametrize("watcher", [None, 3], ids=["none", "number"])
def test_what_cannot_be_called_is_refused(watcher: Any) -> None:
    with pytest.raises(ArgumentError, match="called with the occurrence"):
        watch(watcher)


def test_an_unknown_event_is_refused_with_those_there_are() -> None:
    with pytest.raises(ArgumentError, match=r"no event event_mad .*event_made"):
        watch(print, ["event_mad"])
    assert watchers.state.watchers == ()


def test_what_a_watcher_raises_reaches_who_caused_it() -> None:
    def fail(occurrence: Occurrence) -> None:
        raise RuntimeError(occurrence.event)

    with watch(fail, ["copied"]), pytest.raises(RuntimeError, match="copied"):  # finalizers of others tell of memory
        tell(Occurrence("copied", "sim:0"))


class Counter:
    def count(self) -> str:
        return "plain"


def test_a_method_is_replaced_only_while_somebody_watches() -> None:
    plain = Counter.count
    replace_while_watched(Counter, "count", lambda method: lambda self: f"watched {method(self)}")
    with watch(print), watch(print):
        assert Counter().count() == "watched plain"

    assert Counter.count is plain


# ------------------------------------------------------------------------------------------------ sim


def test_an_event_tells_its_life(sim: Any) -> None:
    def live() -> None:
        event = sim.new_event(0)
        event.record()
        sim.new_stream(0).wait_event(event)
        event.synchronize()
        del event
        gc.collect()

    told = seen(live, "event_made", "event_recorded", "event_waited", "event_synchronized", "event_dropped")

    assert [one.event for one in told] == [
        "event_made",
        "event_recorded",
        "event_waited",
        "event_synchronized",
        "event_dropped",
    ]
    assert len({one.subject for one in told}) == 1


def test_an_event_never_recorded_makes_no_wait(sim: Any) -> None:
    event, stream = sim.new_event(0), sim.new_stream(0)

    assert seen(lambda: stream.wait_event(event), "event_waited") == []


def test_wait_stream_is_a_record_and_a_wait_of_one_event(sim: Any) -> None:
    first, second = sim.new_stream(0), sim.new_stream(0)
    recorded, waited = seen(lambda: second.wait_stream(first), "event_recorded", "event_waited")

    assert recorded.subject == waited.subject
    assert (recorded.stream, waited.stream) == (first.queue.number, second.queue.number)


def test_memory_is_told_when_taken_used_by_a_stream_and_returned(sim: Any) -> None:
    def use() -> None:
        made = sim.empty((256,), np.dtype("float32"), 0)
        made.record_stream(sim.new_stream(0))
        del made
        sim.synchronize(0)

    told = seen(use, "memory_taken", "memory_recorded", "memory_returned")

    assert [one.event for one in told] == ["memory_taken", "memory_recorded", "memory_returned"]
    assert len({one.subject for one in told}) == 1
    assert told[0].nbytes == told[2].nbytes == 1024


@pytest.mark.parametrize("event", ["device_synchronized", "stream_synchronized"])
def test_a_host_wait_tells_how_long_it_took(sim: Any, event: str) -> None:
    sim.spin(0, 2_000_000)
    wait = {
        "device_synchronized": lambda: sim.synchronize(0),
        "stream_synchronized": sim.current_stream(0).synchronize,
    }[event]
    (told,) = seen(wait, event)

    assert told.end - told.begin == pytest.approx(1e-3, rel=0.01)
    assert told.subject == {"device_synchronized": 0, "stream_synchronized": sim.current_stream(0).queue.number}[event]


def test_a_query_tells_that_a_stream_is_done_only_if_it_is(sim: Any) -> None:
    stream = sim.current_stream(0)
    sim.spin(0, 2_000_000)
    busy = seen(stream.query, "stream_found_done")
    stream.synchronize()
    done = seen(stream.query, "stream_found_done")

    assert busy == []
    assert [one.subject for one in done] == [stream.queue.number]


def test_a_new_stream_is_told_with_its_name(sim: Any) -> None:
    made: list[Any] = []
    (told,) = seen(lambda: made.append(sim.new_stream(0)), "stream_made")

    assert (told.subject, told.stream, told.name) == (made[0].queue.number, made[0].queue.number, made[0].queue.label)


def test_a_launch_tells_its_name_time_bytes_and_line(sim: Any) -> None:
    x = array()
    (told,) = seen(lambda: ops.add(x, x), "launched")

    assert (told.name, told.device, told.nbytes) == ("add", "sim:0", 3 * 256)
    assert told.end > told.begin
    assert told.site.startswith("test_watchers.py:")


def test_copies_are_told_with_their_bytes(sim: Any) -> None:
    told = seen(lambda: array().get(), "copied")

    assert [(one.name, one.nbytes) for one in told] == [("from_host", 256), ("get", 256)]


def test_a_replay_tells_the_graph_and_each_launch_with_the_line_of_the_capture(sim: Any) -> None:
    x, stream, graph = array(), sim.new_stream(0), sim.new_capture(0)

    def run() -> None:
        graph.begin(stream)
        y = ops.add(x, x)
        ops.mul(y, y, out=y)
        graph.end()
        graph.replay()

    stream.wait_stream(sim.current_stream(0))
    told = seen(run, "graph_captured", "graph_replay_begun", "launched", "graph_replayed")

    assert [one.event for one in told] == [
        "graph_captured",
        "graph_replay_begun",
        "launched",
        "launched",
        "graph_replayed",
    ]
    assert {one.subject for one in told if one.event.startswith("graph")} == {id(graph)}
    assert all(one.site.startswith("test_watchers.py:") for one in told if one.event == "launched")


def test_a_replay_takes_the_time_of_the_work_that_was_captured(sim: Any) -> None:
    stream, graph = sim.new_stream(0), sim.new_capture(0)
    graph.begin(stream)
    sim.spin(0, 2_000_000)
    graph.end()
    (told,) = seen(graph.replay, "launched")

    assert told.end - told.begin == pytest.approx(1e-3, rel=0.01)


def test_nobody_watching_leaves_no_hook(sim: Any) -> None:
    with watch(print):
        assert graph_hooks.has_replay_hooks()

    assert not graph_hooks.has_replay_hooks()


# ------------------------------------------------------------------------------------------------ the allocator


def test_every_request_and_free_is_told_hits_too() -> None:
    allocator = CachingAllocator(IntegerSource(), name="cuda:0")

    def twice() -> None:
        for _ in range(2):
            allocator.free(allocator.malloc(1000, 7))

    twice()
    told = seen(twice)

    assert [one.event for one in told] == ["memory_taken", "memory_returned"] * 2
    assert {(one.device, one.stream, one.nbytes) for one in told} == {("cuda:0", 7, 1024)}


def test_an_allocator_made_while_somebody_watches_tells_too() -> None:
    def make() -> None:
        CachingAllocator(IntegerSource()).malloc(1000)

    assert [one.event for one in seen(make)] == ["memory_taken"]


def test_the_quick_lists_serve_again_when_nobody_watches() -> None:
    allocator = CachingAllocator(IntegerSource())
    seen(lambda: allocator.free(allocator.malloc(1000)))
    allocator.free(allocator.malloc(1000))
    block = allocator.malloc(1000)

    assert allocator.history is None
    assert block.uses > 0


@pytest.mark.parametrize(("event", "is_slowed"), [("memory_taken", True), ("memory_returned", True), ("copied", False)])
def test_the_quick_lists_serve_on_while_only_other_events_are_watched(event: str, is_slowed: bool) -> None:
    allocator = CachingAllocator(IntegerSource())
    with watch(print, (event,)):
        assert (allocator.history is not None) == is_slowed
        assert (CachingAllocator(IntegerSource()).history is not None) == is_slowed

    assert allocator.history is None


def test_a_history_of_the_user_tells_and_goes_on_after() -> None:
    allocator = CachingAllocator(IntegerSource())
    allocator.record_history()
    told = seen(lambda: allocator.malloc(1000))
    allocator.malloc(2000)

    assert [one.event for one in told] == ["memory_taken"]
    assert [entry.nbytes for entry in allocator.history.entries if entry.action == "alloc"] == [1024, 2048]


def test_a_history_that_its_user_ends_keeps_its_entries_and_memory_is_still_told() -> None:
    allocator = CachingAllocator(IntegerSource())
    allocator.record_history()
    allocator.malloc(1000)

    def end() -> None:
        allocator.record_history(None)
        allocator.malloc(2000)

    told = seen(end)

    assert [one.nbytes for one in told] == [2048]
    assert [entry.nbytes for entry in allocator.history.entries if entry.action == "alloc"] == [1024]
    assert not allocator.history.is_on


# ------------------------------------------------------------------------------------------------ torch's names

CALLS = {
    "event_creation": ("event_made", (5,)),
    "event_deletion": ("event_dropped", (5,)),
    "event_record": ("event_recorded", (5, 7)),
    "event_wait": ("event_waited", (5, 7)),
    "memory_allocation": ("memory_taken", (5,)),
    "memory_deallocation": ("memory_returned", (5,)),
    "stream_creation": ("stream_made", (5,)),
    "device_synchronization": ("device_synchronized", ()),
    "stream_synchronization": ("stream_synchronized", (5,)),
    "event_synchronization": ("event_synchronized", (5,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_callback_by_torchs_name_gets_torchs_arguments(name: str) -> None:
    event, expected = CALLS[name]
    got: list[tuple[int, ...]] = []
    with getattr(_gpu_trace, f"register_callback_for_{name}")(lambda *numbers: got.append(numbers)):
        tell(Occurrence(event, "cuda:0", 5, 7))
        tell(Occurrence(event, "sim:0", 6, 8))

    assert got == [expected]


def test_a_callback_that_raises_is_logged_and_the_next_is_called(caplog: pytest.LogCaptureFixture) -> None:
    got: list[int] = []

    def fail(event: int) -> None:
        raise RuntimeError(f"not for {event}")

    register = _gpu_trace.register_callback_for_event_creation
    with register(fail), register(got.append):
        tell(Occurrence("event_made", "cuda:0", 5))

    assert got == [5]
    assert "a callback for event_made raised" in caplog.text


def test_accesses_are_told_with_what_is_written_and_not_where_nobody_asks_for_them(sim: Any) -> None:
    x = array()
    told = seen(lambda: np.multiply(x, 2.0, out=x), "accessed")
    others = seen(lambda: np.multiply(x, 2.0, out=x), "launched")

    assert [(one.name, [write for _, write in one.accesses]) for one in told] == [("multiply", [True])]
    assert [one.lane for one in told] == ["stream 0"]
    assert [one.accesses for one in others] == [()]


def test_work_is_told_at_its_capture_and_not_at_replays(sim: Any) -> None:
    x, graph, stream = array(), sim.new_capture(0), sim.new_stream(0)
    sim.synchronize(0)

    def capture() -> None:
        graph.begin(stream)
        ops.mul(x, 2.0, out=x)
        graph.end()

    assert [one.name for one in seen(capture, "accessed")] == ["mul"]
    assert seen(graph.replay, "accessed") == []


def test_the_body_of_a_conditional_node_begins_and_ends(sim: Any) -> None:
    x, predicate = array(), cuassay.from_host(np.ones(1, bool), "sim")
    graph, stream = sim.new_capture(0), sim.new_stream(0)
    sim.synchronize(0)

    def capture() -> None:
        graph.begin(stream)
        with graph.if_node(predicate):
            ops.mul(x, 2.0, out=x)
        graph.end()

    found = seen(capture, "graph_capture_begun", "graph_body_begun", "accessed", "graph_body_ended", "graph_captured")
    assert [one.event for one in found] == [
        *("graph_capture_begun", "accessed", "graph_body_begun", "accessed", "graph_body_ended", "graph_captured")
    ]
    assert {one.subject for one in found if one.event != "accessed"} == {id(graph)}
    assert [one.event for one in seen(graph.reset, "graph_dropped")] == ["graph_dropped"]


def test_blocks_that_another_stream_uses_are_told() -> None:
    allocator = CachingAllocator(IntegerSource(), name="cuda:7")
    block = allocator.malloc(512, 1)

    (told,) = seen(lambda: [allocator.record_stream(block, 2) for _ in range(2)], "memory_recorded")

    assert (told.device, told.subject, told.stream, told.nbytes) == ("cuda:7", block.address, 2, block.nbytes)


def test_a_listener_of_one_event_is_called_when_that_is_asked_for() -> None:
    heard: list[bool] = []
    watchers.on_change(heard.append, "marked")
    with watch(print, ("copied",)), watch(print, ("marked",)), watch(print, ("marked",)):
        pass
    watchers.state.listeners.pop()

    assert heard == [False, True, False]
