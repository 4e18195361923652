"""Participants of a graph's life, and what is left when one of them fails; on the simulated device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import ops
from cuassay.core import graph_hooks, participants
from cuassay.core.graphs import Graph
from cuassay.devices.sim import BACKEND
from cuassay.errors import ArgumentError, CaptureError


class Recorded:
    """A participant that writes down what it is told."""

    def __init__(self, seen: list[str], name: str, *, fails: bool = False) -> None:
        self.seen, self.name, self.fails = seen, name, fails

    def capture_begin(self, capture: object, device: Any) -> None:
        if self.fails:
            raise KeyError(self.name)
        self.seen.append(f"{self.name} begins")

    def capture_end(self, capture: object, device: Any) -> Callable[[], None]:
        return lambda: self.seen.append(f"{self.name} renews")

    def capture_forget(self, capture: object, device: Any) -> None:
        self.seen.append(f"{self.name} forgets")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(participants, "_JOINED", {})
    with BACKEND.simulated(devices=2, memory=2**20):
        yield


@pytest.fixture
def seen() -> list[str]:
    return []


def graph_of(index: int = 0, *, keep_graph: bool = False) -> Graph:
    array = BACKEND.from_host(np.ones(4, np.float32), index)
    graph, stream = BACKEND.new_capture(index, keep_graph=keep_graph), BACKEND.new_stream(index)
    BACKEND.synchronize(index)
    with BACKEND.use_stream(stream):
        graph.begin()
        ops.add(array, 1.0, out=array)
        graph.end()
    graph.kept = array
    return graph


def test_each_participant_renews_before_each_replay(seen: list[str]) -> None:
    for name in ("first", "second"):
        participants.join("sim", Recorded(seen, name))
    graph = graph_of()
    seen.clear()

    graph.replay()

    assert seen == ["first renews", "second renews"]
    assert not graph.is_plain


def test_one_that_fails_ends_the_capture_for_those_told_before(seen: list[str]) -> None:
    participants.join("sim", Recorded(seen, "first"))
    participants.join("sim", Recorded(seen, "second", fails=True))
    graph, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)

    with pytest.raises(KeyError):
        graph.begin(stream)

    assert seen == ["first begins", "first forgets"]
    assert graph.statistics().state == "empty"
    assert not stream.capturing


def test_an_update_takes_what_renews_over_and_forgets_its_own(seen: list[str]) -> None:
    participants.join("sim", Recorded(seen, "it"))
    graph, other = graph_of(), graph_of(keep_graph=True)
    seen.clear()
    disarmed: list[bool] = []
    graph.disarm = lambda: disarmed.append(True)

    graph.update(other)
    graph.replay()
    other.reset()

    assert seen == ["it forgets", "it renews"]
    assert disarmed


def test_a_graph_is_not_updated_from_another_device() -> None:
    graph, other = graph_of(0), graph_of(1, keep_graph=True)

    with pytest.raises(CaptureError, match="same device"):
        graph.update(other)


def test_an_updated_graph_holds_the_memory_of_the_other() -> None:
    graph, other = graph_of(), graph_of(keep_graph=True)
    pool = other.pool()

    graph.update(other)

    assert graph.pool() == pool


def test_the_end_of_a_replay_is_told_also_when_it_fails(seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of()
    monkeypatch.setattr(graph, "_launch", lambda: {}["launch"])

    with graph_hooks.register_hook("replay_end", lambda graph: seen.append("end")), pytest.raises(KeyError):
        graph.replay()

    assert seen == ["end"]


@pytest.mark.parametrize("event", ["replay_start", "replay_end"])
def test_a_replay_made_ready_is_so_no_more_when_hooks_change(event: str, seen: list[str]) -> None:
    graph = graph_of()
    graph.disarm = lambda: seen.append("disarmed")
    plain = [graph.is_plain]

    with graph_hooks.register_hook(event, lambda graph: None):
        plain.append(graph.is_plain)
        told = list(seen)
    plain.append(graph.is_plain)

    assert plain == [True, False, True]
    assert (told, seen) == (["disarmed"], ["disarmed"] * 2)


def test_what_is_open_when_the_interpreter_exits_is_ended() -> None:
    graph, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
    graph.begin(stream)

    graph_hooks._at_exit()

    assert not stream.capturing
    assert graph.statistics().state == "empty"


def test_a_capture_that_is_open_says_so_when_it_is_begun_again() -> None:
    graph, stream = BACKEND.new_capture(0), BACKEND.new_stream(0)
    graph.begin(stream)

    with pytest.raises(CaptureError, match="begin was called twice; end the capture"):
        graph.begin(stream)
    graph.end()


def test_participants_are_told_apart_by_identity(seen: list[str]) -> None:
    class Equal(Recorded):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    twice, other = Equal(seen, "one"), Equal(seen, "another")
    for participant in (twice, other, twice):
        participants.join("sim", participant)

    assert [participant is twice for participant in participants.participants("sim")] == [True, False]


@pytest.mark.parametrize("keep_graph", [False, True], ids=["ready", "captured"])
def test_the_end_of_a_graph_is_told_once_it_holds_work(seen: list[str], keep_graph: bool) -> None:
    graph = graph_of(keep_graph=keep_graph)

    with graph_hooks.register_hook("destroy", lambda graph: seen.append("gone")):
        graph.reset()
        graph.reset()

    assert seen == ["gone"]


def test_what_is_recorded_can_be_shown_before_it_is_executable(tmp_path: Path) -> None:
    graph_of(keep_graph=True).debug_dump(tmp_path / "graph.dot")

    assert "add" in (tmp_path / "graph.dot").read_text()


def test_a_hook_may_remove_itself_when_it_is_called(seen: list[str]) -> None:
    handles = [
        graph_hooks.register_hook("capture_end", lambda graph: (handles[0].remove(), seen.append("first"))),
        graph_hooks.register_hook("capture_end", lambda graph: seen.append("second")),
    ]
    with handles[1]:
        for _ in range(2):
            graph_of()

    assert seen == ["first", "second", "second"]


def test_a_predicate_is_a_bool() -> None:
    number, graph = BACKEND.from_host(np.ones(1, np.float32), 0), BACKEND.new_capture(0)
    graph.begin(BACKEND.new_stream(0))

    with pytest.raises(ArgumentError, match="one bool"), graph.if_node(number):
        pass
    graph.end()
