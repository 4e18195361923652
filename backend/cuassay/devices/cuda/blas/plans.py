"""Plans by problem: chosen once for the process, made once for each thread and device. The tuner's seam.

See the package's docstring for how a tuner takes part.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import cupy
import numpy as np

from cuassay.core.graphs import graph_pool_handle
from cuassay.core.handle import Handle
from cuassay.devices.cuda import graph_pool
from cuassay.devices.cuda.blas import controls, cublas, cublaslt
from cuassay.devices.cuda.blas.cublaslt import Algorithm
from cuassay.devices.cuda.blas.problem import Problem
from cuassay.devices.cuda.memory import hook

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


#: Direct calls before a graph is made of one: the first loads kernels, and a plan that is run once needs none.
_DIRECT_CALLS = 2


class Bound(Handle):
    """A computation on given arrays, called without arguments; after two calls a graph of what it launches.

    Launching the graph costs the host a fraction of the library's call. While the current stream is being captured, the
    library is called instead: a graph cannot be launched into another.

    Parameters
    ----------
    run : callable
        Computes, in order of the current stream; takes ``workspace=``, an address, where `nbytes` is given.
    keep : object
        What the graph has addresses of.
    nbytes : int, optional
        Workspace of the one call that `run` makes; None where it allocates otherwise, and the graph needs its own pool.
    """

    def __init__(self, run: Callable[..., None], keep: Any, nbytes: int | None = None) -> None:
        self._run, self._keep, self._nbytes = run, keep, nbytes
        self._launch: Callable[[Any], None] | None = None
        self._memory: Any = None
        self._streams: set[int] | None = None
        self._calls = 0
        self._stream, self._is_capturing = cupy.cuda.get_current_stream, cupy.cuda.runtime.streamIsCapturing

    def __repr__(self) -> str:
        return f"Bound({'direct' if self._launch is None else 'graph'}, {self._calls} direct calls)"

    def __call__(self) -> None:
        """Compute, in order of the current stream."""
        stream = self._stream()
        if self._launch is not None and not self._is_capturing(stream.ptr):
            if self._streams is not None and stream.ptr not in self._streams:
                self._use_on(stream.ptr)
            self._launch(stream)
            return
        self._run()
        self._calls += 1
        if self._calls >= _DIRECT_CALLS and self._launch is None and not self._is_capturing(stream.ptr):
            self._capture(stream.ptr)

    def _use_on(self, address: int) -> None:
        """The workspace may not be used again before what this stream has been given is done."""
        hook.record_stream(self._memory, address)
        if self._streams is not None:
            self._streams.add(address)

    def _capture(self, address: int) -> None:
        """Record one call."""
        stream, run = cupy.cuda.Stream(non_blocking=True), self._run
        if self._nbytes:
            self._memory = hook.empty((self._nbytes,), np.uint8, cupy.cuda.runtime.getDevice())
            self._streams = {address}
            run = partial(run, workspace=self._memory.data.ptr)
        with ExitStack() as stack:
            stack.enter_context(stream)
            if self._nbytes is None:
                stack.enter_context(self._own_pool().routing())
            stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeRelaxed)
            try:
                run()
            finally:
                graph = stream.end_capture()
        self._launch = graph.launch

    def _own_pool(self) -> graph_pool.GraphPool:
        """Memory for what the captured call allocates, as long as the graph lives."""
        pool = graph_pool.acquire(graph_pool_handle(), cupy.cuda.runtime.getDevice())
        weakref.finalize(self, graph_pool.release, pool).atexit = False
        return pool


def bind(plan: AnyPlan, a: int, b: int, c: int, d: int, keep: Any) -> Bound:
    """`plan` on these addresses; `keep` is what must live as long as the result."""
    return Bound(partial(plan.run, a, b, c, d), keep, plan.workspace_nbytes)
