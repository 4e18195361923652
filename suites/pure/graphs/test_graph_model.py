"""Graphs and their pools under any order of calls, held to a model of a few lines; on the simulated device."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cuassay import ops
from cuassay.cuda import graph_pool_handle
from cuassay.devices.sim import BACKEND
from cuassay.errors import CaptureError

#: Call to the states it is legal in.
LEGAL = {
    "begin": {"empty"},
    "end": {"capturing"},
    "instantiate": {"captured", "ready"},
    "replay": {"captured", "ready"},
}


class Life(RuleBasedStateMachine):
    """One graph that is kept, one number that its work adds to, and both as a model has them."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = ExitStack()
        self.opened.enter_context(BACKEND.simulated(devices=1, memory=2**20))
        self.state, self.work, self.expected = "empty", [], 0.0

    @initialize()
    def make(self) -> None:
        self.total = BACKEND.from_host(np.zeros(1, np.float32), 0)
        self.graph, self.stream = BACKEND.new_capture(0, keep_graph=True), BACKEND.new_stream(0)
        BACKEND.synchronize(0)

    def call(self, name: str) -> bool:
        """Call it; whether it was legal, and so done."""
        if self.state in LEGAL[name]:
            with BACKEND.use_stream(self.stream):
                getattr(self.graph, name)()
            return True
        with BACKEND.use_stream(self.stream), pytest.raises(CaptureError, match=";"):
            getattr(self.graph, name)()
        return False

    @rule()
    def begin(self) -> None:
        if self.call("begin"):
            self.state, self.work = "capturing", []

    @rule()
    def end(self) -> None:
        if self.call("end"):
            self.state = "captured"

    @rule()
    def instantiate(self) -> None:
        if self.call("instantiate"):
            self.state = "ready"

    @rule()
    def replay(self) -> None:
        if self.call("replay"):
            self.state = "ready"
            self.expected += sum(self.work)

    @rule(amount=st.integers(1, 9))
    def add(self, amount: int) -> None:
        with BACKEND.use_stream(self.stream):
            ops.add(self.total, float(amount), out=self.total)
        if self.state == "capturing":
            self.work.append(amount)
        else:
            self.expected += amount

    @rule()
    def reset(self) -> None:
        self.graph.reset()
        self.state = "empty"

    @invariant()
    def is_as_the_model_has_it(self) -> None:
        assert self.graph.statistics().state == self.state
        if self.state == "capturing":
            return
        with BACKEND.use_stream(self.stream):
            assert float(self.total[0]) == self.expected

    def teardown(self) -> None:
        self.graph.reset()
        self.opened.close()


TestLife = Life.TestCase
TestLife.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)

#: What a capture does: None drops the oldest array it made, a number makes one of that many elements.
STEPS = st.lists(st.none() | st.integers(1, 2000), min_size=1, max_size=30)


@hypothesis_settings(deadline=None, max_examples=60)
@given(st.lists(STEPS, min_size=1, max_size=4))
def test_live_arrays_of_captures_that_share_a_pool_never_overlap(captures: list[list[int | None]]) -> None:
    with BACKEND.simulated(devices=1, memory=2**22):
        stream, pool, graphs = BACKEND.new_stream(0), graph_pool_handle(), []
        kept: list[Any] = []
        for steps in captures:
            graphs.append(BACKEND.new_capture(0))
            graphs[-1].begin(stream, pool=pool)
            live: list[Any] = []
            for step in steps:
                if step is not None:
                    live.append(BACKEND.empty((step,), "float32", 0))
                    check_apart([*kept, *live])
                elif live:
                    del live[0]
            kept += live[:1]
            del live
            graphs[-1].end()

        most = sum(aligned(step) for steps in captures for step in steps if step)
        assert graphs[0].statistics().pool_nbytes <= most
        assert len({graph.pool() for graph in graphs}) == 1
        kept.clear()
        for graph in graphs:
            graph.reset()
        BACKEND.synchronize(0)
        free, total = BACKEND.memory_info(0)
        assert free == total


def aligned(elements: int) -> int:
    return -(-4 * elements // 256) * 256


def check_apart(arrays: list[Any]) -> None:
    spans = sorted((array.span.low, array.span.high) for array in arrays)
    assert all(high <= low for (_, high), (low, _) in pairwise(spans))


@hypothesis_settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12))
def test_falling_sizes_take_what_the_largest_takes(sizes: list[int]) -> None:
    with BACKEND.simulated(devices=1, memory=2**22):
        stream, pool, taken = BACKEND.new_stream(0), graph_pool_handle(), []
        graphs = [BACKEND.new_capture(0) for _ in sizes]
        for graph, size in zip(graphs, sorted(sizes, reverse=True), strict=True):
            graph.begin(stream, pool=pool)
            for _ in range(3):
                chunk = BACKEND.empty((size,), "float32", 0)
            del chunk
            graph.end()
            taken.append(graph.statistics().pool_nbytes)

        assert taken == [2 * aligned(max(sizes))] * len(sizes)
