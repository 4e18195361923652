"""Random programs over streams and events: the simulated device finds the first race exactly where a graph does.

The oracle draws every launch, wait and synchronization as a node and looks for paths by brute force; it shares
nothing with the clocks it checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from judged import ENGINES, judged

from cuassay.devices.sim import BACKEND
from cuassay.errors import RaceError

STREAMS, EVENTS = 3, 2

#: Parts of a vector of 12: some overlap, some touch, some interleave.
VIEWS = (np.s_[:6], np.s_[6:], np.s_[3:9], np.s_[::2], np.s_[1::2], np.s_[::3], np.s_[5], np.s_[:2], np.s_[10:])

_streams, _events = st.integers(0, STREAMS - 1), st.integers(0, EVENTS - 1)
_accesses = st.tuples(st.sampled_from(["read", "write"]), _streams, st.integers(0, len(VIEWS) - 1))
_waits = st.one_of(
    st.tuples(st.sampled_from(["record", "wait"]), _streams, _events),
    st.tuples(st.just("wait_stream"), _streams, _streams),
    st.tuples(st.just("synchronize"), _streams, st.just(0)),
    st.tuples(st.just("synchronize_event"), st.just(0), _events),
    st.tuples(st.just("synchronize_device"), st.just(0), st.just(0)),
)
PROGRAMS = st.lists(st.one_of(_accesses, _accesses, _waits), max_size=40)

Step = tuple[str, int, int]


@dataclass
class Oracle:
    """A graph of what comes after what; node 0 is the host's start."""

    after: list[set[int]] = field(default_factory=lambda: [set()])
    host: int = 0
    last: list[int] = field(default_factory=lambda: [0] * STREAMS)
    recorded: dict[int, int] = field(default_factory=dict)
    accesses: list[tuple[int, bool, frozenset[int]]] = field(default_factory=list)

    def node(self, *after: int) -> int:
        self.after.append({self.host, *after})
        return len(self.after) - 1

    def reaches(self, early: int, late: int) -> bool:
        pending, seen = [late], set[int]()
        while pending:
            one = pending.pop()
            if one == early:
                return True
            seen.add(one)
            pending.extend(self.after[one] - seen)
        return False

    def races(self, step: Step) -> bool:
        """Take `step`; True when it is an access that races with an earlier one."""
        name, stream, other = step
        if name in ("read", "write"):
            return self._access(stream, write=name == "write", elements=frozenset(np.arange(12)[VIEWS[other]].flat))
        if name == "record":
            self.recorded[other] = self.last[stream]
        elif name == "wait" and other in self.recorded:
            self.last[stream] = self.node(self.last[stream], self.recorded[other])
        elif name == "wait_stream":
            self.last[stream] = self.node(self.last[stream], self.last[other])
        elif name == "synchronize":
            self.host = self.node(self.last[stream])
        elif name == "synchronize_event" and other in self.recorded:
            self.host = self.node(self.recorded[other])
        elif name == "synchronize_device":
            self.host = self.node(*self.last)
        return False

    def _access(self, stream: int, *, write: bool, elements: frozenset[int]) -> bool:
        here = self.last[stream] = self.node(self.last[stream])
        conflicts = [node for node, wrote, touched in self.accesses if (write or wrote) and touched & elements]
        self.accesses.append((here, write, elements))
        return not all(self.reaches(node, here) for node in conflicts)


class Program:
    """The same steps on the simulated device."""

    def __init__(self) -> None:
        self.array = BACKEND.from_host(np.zeros(12, np.float32), 0)
        self.streams = [BACKEND.new_stream(0) for _ in range(STREAMS)]
        self.scratch = [BACKEND.from_host(np.zeros(12, np.float32), 0) for _ in range(STREAMS)]
        self.events = [BACKEND.new_event(0) for _ in range(EVENTS)]
        BACKEND.synchronize(0)

    def races(self, step: Step) -> bool:
        try:
            self._take(*step)
        except RaceError:
            return True
        return False

    def _take(self, name: str, stream: int, other: int) -> None:
        own = self.streams[stream]
        if name in ("read", "write"):
            self._access(name, stream, VIEWS[other])
        elif name == "record":
            self.events[other].record(own)
        elif name == "wait":
            own.wait_event(self.events[other])
        elif name == "wait_stream":
            own.wait_stream(self.streams[other])
        elif name == "synchronize":
            own.synchronize()
        elif name == "synchronize_event":
            self.events[other].synchronize()
        else:
            BACKEND.synchronize(0)

    def _access(self, name: str, stream: int, index: Any) -> None:
        with BACKEND.use_stream(self.streams[stream]):
            part = self.array[index]
            if name == "write":
                part.fill(1.0)
            else:
                np.copyto(self.scratch[stream][: part.size], part)


@contextmanager
def program(engine: str) -> Iterator[Program]:
    with judged(engine, devices=1, memory=2**16):
        yield Program()


def first_race(taker: Any, steps: list[Step]) -> int | None:
    return next((position for position, step in enumerate(steps) if taker.races(step)), None)


@pytest.mark.parametrize("engine", ENGINES)
@given(PROGRAMS)
@example([("write", 0, 0), ("read", 1, 0)])
@example([("write", 0, 0), ("wait_stream", 1, 0), ("read", 1, 0)])
@example([("write", 0, 3), ("write", 1, 4), ("write", 2, 2)])
@example([("write", 0, 0), ("record", 0, 0), ("write", 0, 0), ("wait", 1, 0), ("read", 1, 0)])
@example([("write", 0, 0), ("read", 0, 0), ("read", 1, 0)])
@example([("read", 0, 0), ("read", 1, 0), ("wait_stream", 2, 1), ("write", 2, 0)])
@example([("write", 0, 0), ("write", 0, 2), ("read", 1, 7)])
@example([("write", 0, 3), ("read", 1, 8)])
@example([("write", 0, 0), ("write", 1, 1)])
@example([("write", 0, 1), ("write", 1, 0)])
def test_the_first_race_is_where_the_graph_has_it(engine: str, steps: list[Step]) -> None:
    expected = first_race(Oracle(), steps)

    with program(engine) as simulated:
        found = first_race(simulated, steps)

    assert found == expected


def test_random_programs_have_both_outcomes() -> None:
    racing = [("write", 0, 0), ("write", 1, 2)]
    clean = [("write", 0, 0), ("write", 1, 1)]

    assert first_race(Oracle(), racing) == 1
    assert first_race(Oracle(), clean) is None


@pytest.mark.parametrize("waiter", ["host", "stream"])
def test_to_wait_for_what_is_past_takes_no_time_back(waiter: str) -> None:
    with BACKEND.simulated(devices=1, memory=2**16):
        stream, array = BACKEND.new_stream(0), BACKEND.from_host(np.zeros(12, np.float32), 0)
        early, end = (BACKEND.new_event(0, timing=True) for _ in range(2))
        BACKEND.synchronize(0)
        early.record(BACKEND.new_stream(0))
        with BACKEND.use_stream(stream):
            array.fill(1.0)

        if waiter == "stream":
            stream.wait_event(early)
        end.record(stream)
        end.synchronize()
        if waiter == "host":
            early.synchronize()

        assert early.elapsed_time(end) > 0
