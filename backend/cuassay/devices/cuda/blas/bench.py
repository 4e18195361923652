"""Times ways to compute one problem as a program would meet them: cold operands, random data, no launch gaps.

A sample is the replay of a graph of several calls, each on operands of its own, between two events. Where the operands
of all its calls do not exceed three times the level-2 cache, the cache is flushed before each sample. All is given to
one stream a device, so that the pool's memory serves one bench after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

import cupy

from cuassay.devices.cuda.blas import agreement, operands, providers
from cuassay.devices.cuda.blas.problem import Problem
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.launch import occupation
from cuassay.devices.cuda.memory import hook
from cuassay.tune.space import Candidate

__all__ = ["Bench"]

#: How long a sample lasts, and its most calls: events resolve 0.5 µs, and capturing a call takes 10 µs.
_SAMPLE_SECONDS, _MOST_CALLS = 200e-6, 32

#: Calls of the graph by which it is found how many a sample takes.
_FIRST_CALLS = 4

#: How many level-2 caches the operand sets exceed, and the part of the free memory that they take at most.
_CACHES, _PART_OF_MEMORY = 3, 0.25

#: About 20 µs: the host takes 10 to record an event and launch a graph.
_HOLDING_CYCLES = 40_000

#: All bits of an element set is NaN in every floating dtype: what a candidate leaves out does not agree.
_NAN_BYTE = 255


class Bench:
    """Times candidates for `problem` on the current device, and compares what they compute.

    Parameters
    ----------
    problem : Problem
        What to compute.
    device : int
        The current device.
    default : Candidate
        Whose result is right; its time decides how many calls a sample has.
    make : callable
        From a candidate to its plan.
    rotating_nbytes : int, optional
        Bytes that all operand sets exceed together, 0: the same operands each time; by default three times the
        level-2 cache.
    tolerances : (float, float), optional
        See `agreement.Tolerances`; by default those of the problem.
    """

    def __init__(
        self,
        problem: Problem,
        device: int,
        default: Candidate,
        make: Callable[[Candidate], providers.ProductPlan],
        *,
        rotating_nbytes: int | None = None,
        tolerances: agreement.Tolerances | None = None,
    ) -> None:
        self.problem, self._device, self._make = problem, device, make
        self._tolerances = tolerances or agreement.tolerances(problem)
        self._stream = _stream(device)
        self._events = cupy.cuda.Event(), cupy.cuda.Event()
        self._plans: dict[Candidate, providers.ProductPlan] = {}
        self._graphs: dict[Candidate, Any] = {}
        self._workspaces: dict[int, Any] = {}
        target = _CACHES * runtime.get_device_properties(device).L2_cache_size
        target = target if rotating_nbytes is None else rotating_nbytes
        with self._stream:
            available = operands.sets(problem)
            self._extras = operands.extras(problem)
            self._sets = [next(available)]
            self._is_flushing = False
            self._calls = self._calls_for(default)
            nbytes = self._sets[0].nbytes
            free = cupy.cuda.runtime.memGetInfo()[0] * _PART_OF_MEMORY
            wanted = min(self._calls, math.ceil(target / nbytes), int(free / nbytes))
            self._sets += islice(available, max(0, wanted - 1))
            self._is_flushing = len(self._sets) * nbytes < target
            self._expected = hook.allocate(self._result_nbytes)
            self._compute(default)
            self._expected.copy_from_device_async(self._result, self._result_nbytes)

    def __repr__(self) -> str:
        flushed = ", flushed" if self._is_flushing else ""
        return f"Bench({self.problem}; {self._calls} calls on {len(self._sets)} sets of operands{flushed})"

    def sample(self, candidate: Candidate) -> float:
        """Seconds a call of one more sample; the first also makes the plan and captures the calls.

        Raises
        ------
        CuassayError
            If it cannot be made, or cannot run.
        """
        with self._stream:
            graph = self._graphs.get(candidate)
            if graph is None:
                graph = self._graphs[candidate] = self._captured(candidate, self._calls)
            return self._timed(graph) / self._calls

    def check(self, candidate: Candidate) -> str | None:
        """How the result of `candidate` differs from the default's, or None: see the table of tolerances."""
        with self._stream:
            self._compute(candidate)
            at, expected = self._sets[0].d, self._expected.ptr
            return agreement.difference(at, expected, self._result_nbytes, self.problem.d.dtype, self._tolerances)

    def describe(self, candidate: Candidate) -> str:
        """Its plan's own words."""
        plan = self._plan(candidate)
        return plan.library if plan.algorithm is None else f"{plan.library}, {plan.algorithm}"

    # ---------------------------------------------------------------------------------------- inside

    def _plan(self, candidate: Candidate) -> providers.ProductPlan:
        plan = self._plans.get(candidate)
        if plan is None:
            plan = self._plans[candidate] = self._make(candidate)
            for name, array in self._extras.items():
                plan.point(name, array.data.ptr)
        return plan

    def _run(self, candidate: Candidate, count: int) -> None:
        plan = self._plan(candidate)
        workspace = self._workspace(plan.workspace_nbytes)
        for call in range(count):
            one = self._sets[call % len(self._sets)]
            plan.run(one.a, one.b, one.c, one.d, workspace=workspace)

    def _workspace(self, nbytes: int) -> int:
        """A workspace of at least `nbytes`, shared by all: the calls of a sample follow one another."""
        if not nbytes:
            return 0
        size = max(nbytes, *self._workspaces, 0)
        if size not in self._workspaces:
            self._workspaces[size] = hook.allocate(size)  # graphs keep the smaller ones' addresses
        return int(self._workspaces[size].ptr)

    def _captured(self, candidate: Candidate, count: int) -> Any:
        """A graph of `count` calls, made after one call that loads the kernel and shows what is wrong."""
        self._run(candidate, 1)
        self._stream.synchronize()
        self._stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeThreadLocal)
        try:
            self._run(candidate, count)
        finally:
            graph = self._stream.end_capture()
        graph.upload(self._stream)
        return graph

    def _timed(self, graph: Any) -> float:
        start, end = self._events
        _hold(self._device, flushing=self._is_flushing)
        start.record(self._stream)
        graph.launch(self._stream)
        end.record(self._stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    def _calls_for(self, candidate: Candidate) -> int:
        graph = self._captured(candidate, _FIRST_CALLS)
        self._timed(graph)
        seconds = self._timed(graph) / _FIRST_CALLS
        return max(1, min(_MOST_CALLS, round(_SAMPLE_SECONDS / seconds)))

    @property
    def _result(self) -> Any:
        """The first set's output."""
        memory = self._sets[0].memory
        return memory + (self._sets[0].d - memory.ptr)

    @property
    def _result_nbytes(self) -> int:
        return operands.nbytes_of(self.problem.d, self.problem.batch)

    def _compute(self, candidate: Candidate) -> None:
        """What it makes of the first set; what it does not write stays NaN."""
        self._result.memset_async(_NAN_BYTE, self._result_nbytes)
        self._run(candidate, 1)


@cache
def _stream(device: int) -> Any:
    """Of the current device `device`."""
    return cupy.cuda.Stream(non_blocking=True)


def _hold(device: int, *, flushing: bool) -> None:
    """Keep the stream busy until the host has given it the sample, else its gaps are measured too."""
    if flushing:
        occupation.flush_cache(device)
    else:
        occupation.spin(device, _HOLDING_CYCLES)
