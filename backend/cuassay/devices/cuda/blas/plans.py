"""Plans by problem: chosen once for the process, made once for each thread and device. The tuner's seam.

See the package's docstring for how a tuner takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cupy

from cuassay.core.handle import Handle
from cuassay.devices.cuda.blas import controls, cublas, cublaslt
from cuassay.devices.cuda.blas.cublaslt import Algorithm
from cuassay.devices.cuda.blas.problem import Problem

__all__ = [
    "Algorithm",
    "AnyPlan",
    "Bound",
    "Plan",
    "bind",
    "candidates",
    "choose",
    "fallback",
    "make",
    "observe",
    "set_selector",
]

AnyPlan = cublaslt.Plan | cublas.Plan

#: From a problem and a device's index to the algorithm to use there, or None: the library's first.
Selector = Callable[[Problem, int], Algorithm | None]

_selector: Selector | None = None
_observers: list[Callable[[Problem, int], object]] = []

#: What the library's search gave, by problem, device and most workspace: threads share it.
_found: dict[tuple[Problem, int, int], tuple[Algorithm, ...]] = {}


def Plan(problem: Problem, algorithm: Algorithm) -> cublaslt.Plan:  # noqa: N802  it stands for the class
    """A plan of exactly this algorithm, for this thread and the current device."""
    return cublaslt.Plan(problem, algorithm, cupy.cuda.runtime.getDevice())


def candidates(problem: Problem, *, count: int = 100, workspace_nbytes: int | None = None) -> tuple[Algorithm, ...]:
    """Up to `count` algorithms of cuBLASLt for `problem` on the current device, its favourite first."""
    device = cupy.cuda.runtime.getDevice()
    limit = controls.workspace_nbytes(device) if workspace_nbytes is None else workspace_nbytes
    return cublaslt.candidates(problem, device, count=count, workspace_nbytes=limit)


def set_selector(selector: Selector | None) -> Selector | None:
    """From here `selector` chooses algorithms, and plans made before are made anew; gives the former selector."""
    global _selector
    former, _selector = _selector, selector
    controls.renew()
    return former


def observe(observer: Callable[[Problem, int], object]) -> None:
    """`observer` is told of each problem, with its device's index, when a plan is made for it."""
    _observers.append(observer)


def choose(problem: Problem, device: int) -> Algorithm | None:
    """The selector's algorithm, else the library's first; None where the library has none."""
    chosen = None if _selector is None else _selector(problem, device)
    if chosen is not None:
        return chosen
    key = problem, device, controls.workspace_nbytes(device)
    found = _found.get(key)
    if found is None:
        found = _found[key] = cublaslt.candidates(problem, device, workspace_nbytes=key[2])
    return found[0] if found else None


def make(problem: Problem) -> AnyPlan | None:
    """A plan of the library in force, for this thread and the current device; None where it cannot compute that."""
    device = cupy.cuda.runtime.getDevice()
    if controls.library() == "cublas" and problem.scaling == "none":
        return cublas.Plan(problem, device) if problem.epilogue == "none" and problem.c == problem.d else None
    algorithm = choose(problem, device)
    if algorithm is None:
        return None
    for observer in _observers:
        observer(problem, device)
    return cublaslt.Plan(problem, algorithm, device)


def fallback(problem: Problem, device: int) -> AnyPlan:
    """cuBLAS, for what cuBLASLt has no algorithm for; it says itself what it cannot."""
    return cublas.Plan(problem, device)


class Bound(Handle):
    """A plan on given addresses, called without arguments; from the second call on as a graph of one launch.

    Launching the graph costs the host a fraction of cuBLASLt's call. While the current stream is being captured, the
    library is called instead: a graph cannot be launched into another.
    """

    def __init__(self, run: Callable[[], None], keep: Any) -> None:
        self._run, self._keep = run, keep  # the arrays, whose addresses the graph has
        self._graph: Any = None
        self._memory: Any = None
        self._calls = 0
        self._stream, self._is_capturing = cupy.cuda.get_current_stream, cupy.cuda.runtime.streamIsCapturing

    def __repr__(self) -> str:
        return f"Bound({'graph' if self._graph is not None else 'direct'}, {self._calls} direct calls)"

    def __call__(self) -> None:
        """Compute, in order of the current stream."""
        stream = self._stream()
        if self._graph is not None and not self._is_capturing(stream.ptr):
            self._graph.launch(stream)
            return
        self._run()
        self._calls += 1
        if self._calls > 1 and not self._is_capturing(stream.ptr):
            self._capture()

    def _capture(self) -> None:
        """Record one call; its workspace comes from a pool that lives as long as the graph."""
        pool, stream = cupy.cuda.MemoryPool(), cupy.cuda.Stream(non_blocking=True)
        with stream, cupy.cuda.using_allocator(pool.malloc):
            stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeRelaxed)
            try:
                self._run()
            finally:
                graph = stream.end_capture()
        self._graph, self._memory = graph, pool


def bind(plan: AnyPlan, a: int, b: int, c: int, d: int, keep: Any) -> Bound:
    """`plan` on these addresses; `keep` is what must live as long as the result."""
    return Bound(partial(plan.run, a, b, c, d), keep)
