"""Times candidates for one problem under realistic conditions: cold operands, random data, no gaps between launches.

A sample replays a graph of several calls, each with its own operands, between two events. If the operands of all calls
together are not larger than three times the level-2 cache, the cache is flushed before each sample. Everything runs on
one stream for each device, so that one bench after another reuses the pool's memory.
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

#: The duration of a sample and the most calls in it: events resolve 0.5 µs, and capturing a call takes 10 µs.
_SAMPLE_SECONDS, _MOST_CALLS = 200e-6, 32

#: Calls of the graph that measures how many calls a sample needs.
_FIRST_CALLS = 4

#: The operand sets exceed this many level-2 caches, but take at most this part of the free memory.
_CACHES, _PART_OF_MEMORY = 3, 0.25

#: About 20 µs, because the host needs 10 µs to record an event and launch a graph.
_HOLDING_CYCLES = 40_000

#: An element with all bits set is NaN in every floating dtype, so elements that a candidate does not write do not
#: agree.
_NAN_BYTE = 255


class Bench:
    """Times candidates for `problem` on the current device, and compares their results.

    Parameters
    ----------
    problem : Problem
        The problem to compute.
    device : int
        The index of the current device.
    default : Candidate
        The candidate whose result counts as right, and whose time decides how many calls a sample has.
    make : callable
        Maps a candidate to its plan.
    rotating_nbytes : int, optional
        The bytes that all operand sets together exceed; 0 uses the same operands for every call; by default three times
        the level-2 cache.
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
        """Take one more sample and return the seconds of a call.

        The first sample also makes the plan and captures the calls.

        Raises
        ------
        CuassayError
            If the plan cannot be made or cannot run.
        """
        with self._stream:
            graph = self._graphs.get(candidate)
            if graph is None:
                graph = self._graphs[candidate] = self._captured(candidate, self._calls)
            return self._timed(graph) / self._calls

    def check(self, candidate: Candidate) -> str | None:
        """Return how the result of `candidate` differs from the default's beyond the tolerances, or None."""
        with self._stream:
            self._compute(candidate)
            at, expected = self._sets[0].d, self._expected.ptr
            return agreement.difference(at, expected, self._result_nbytes, self.problem.d.dtype, self._tolerances)

    def describe(self, candidate: Candidate) -> str:
        """Return the plan's description."""
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
        """Return a workspace of at least `nbytes`, which all candidates share, as the calls run one after another."""
        if not nbytes:
            return 0
        size = max(nbytes, *self._workspaces, 0)
        if size not in self._workspaces:
            self._workspaces[size] = hook.allocate(size)  # graphs keep the smaller ones' addresses
        return int(self._workspaces[size].ptr)

    def _captured(self, candidate: Candidate, count: int) -> Any:
        """Capture a graph of `count` calls, after one call that loads the kernel and reveals errors."""
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
        """The output of the first operand set."""
        memory = self._sets[0].memory
        return memory + (self._sets[0].d - memory.ptr)

    @property
    def _result_nbytes(self) -> int:
        return operands.nbytes_of(self.problem.d, self.problem.batch)

    def _compute(self, candidate: Candidate) -> None:
        """Compute on the first operand set; elements that are not written stay NaN."""
        self._result.memset_async(_NAN_BYTE, self._result_nbytes)
        self._run(candidate, 1)


@cache
def _stream(device: int) -> Any:
    """The stream of the current device `device`."""
    return cupy.cuda.Stream(non_blocking=True)


def _hold(device: int, *, flushing: bool) -> None:
    """Keep the stream busy until the host has submitted the sample.

    Otherwise gaps between launches are measured too.
    """
    if flushing:
        occupation.flush_cache(device)
    else:
        occupation.spin(device, _HOLDING_CYCLES)
