"""Hooks see a graph's life, on every kind that captures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from arrays_read import values

from cuassay import cuda, ops
from cuassay.errors import ArgumentError
from cuassay.testing import requires

pytestmark = [requires("graphs"), pytest.mark.usefixtures("warm_kernels")]

EVENTS = ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end", "destroy")


@pytest.fixture
def events() -> Iterator[list[tuple[str, str]]]:
    """What happens to graphs, with their state by then."""
    seen: list[tuple[str, str]] = []
    register = {event: getattr(cuda, f"register_graph_{event}_hook") for event in EVENTS}
    handles = [
        register[event](lambda graph, event=event: seen.append((event, graph.statistics().state))) for event in EVENTS
    ]
    yield seen
    for handle in handles:
        handle.remove()
        handle.remove()


def test_hooks_see_a_graphs_life_in_order(made: Any, full: Any, events: Any) -> None:
    a, graph = full(1), made()
    with cuda.graph(graph):
        ops.add(a, a)
    graph.replay()
    graph.reset()

    assert [event for event, _ in events] == list(EVENTS)
    assert events[0] == ("capture_start", "capturing")


def test_a_removed_hook_is_not_called_and_one_added_late_is(made: Any, full: Any) -> None:
    a, graph, seen = full(1), made(), []
    with cuda.graph(graph):
        ops.add(a, a, out=a)
    graph.replay()

    with cuda.register_graph_replay_start_hook(seen.append) as handle:
        graph.replay()
        assert "registered" in repr(handle)
    graph.replay()

    assert seen == [graph]
    assert "removed" in repr(handle)
    assert values(a) == [8.0] * 8


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ArgumentError, match="function of one argument"):
        cuda.register_graph_destroy_hook(3)  # type: ignore[arg-type]
