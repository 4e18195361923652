"""Plans by problem: chosen once for the process, made once for each thread and device. The tuner's seam.

See the package's docstring for how a tuner takes part.
"""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import cupy
import numpy as np

from cuassay.core import settings
from cuassay.core.graph_pools import graph_pool_handle
from cuassay.core.handle import Handle
from cuassay.devices.cuda.blas import controls, cublas, cublaslt, providers
from cuassay.devices.cuda.blas.cublaslt import Algorithm
from cuassay.devices.cuda.blas.problem import Problem, representative
from cuassay.devices.cuda.blas.providers import ProductPlan
from cuassay.devices.cuda.driver import forks
from cuassay.devices.cuda.driver.graph_driver import relaxed
from cuassay.devices.cuda.graphs import pool as graph_pool
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.perthread import PER_THREAD
from cuassay.errors import CuassayError
from cuassay.tune.space import Candidate

__all__ = [
    "Algorithm",
    "BoundProduct",
    "Choice",
    "bind",
    "candidates",
    "choose",
    "default",
    "fallback",
    "make",
    "observe",
    "offer",
    "plan_on_current_device",
    "set_selector",
]

#: An algorithm of cuBLASLt, or what any provider offers.
Choice = Algorithm | Candidate

#: From a problem and a device's index to what computes it there, or None: the library in force, its first algorithm.
Selector = Callable[[Problem, int], Choice | None]


def _by_settings(problem: Problem, device: int) -> Choice | None:
    """The first selector: the tuner, where a setting turns it on. No plan exists yet, so none has to be made again."""
    global _selector  # noqa: PLW0603  one a process
    chosen: Selector | None = None
    if settings.get("CUASSAY_TUNABLEOP_ENABLED"):
        chosen = _offered()
    if _selector is _by_settings:  # no other thread has set one meanwhile
        _selector = chosen
    return None if chosen is None else chosen(problem, device)


def offer(selector: Callable[[], Selector]) -> None:
    """Ask `selector` for the selector that ``CUASSAY_TUNABLEOP_ENABLED`` turns on: the tuner's, which is above."""
    global _offered  # noqa: PLW0603  one a process
    _offered = selector


_offered: Callable[[], Selector]
_selector: Selector | None = _by_settings
_observers: list[Callable[[Problem, int], object]] = []

#: Choices that could not be made, and were told of.
_told: set[tuple[Problem, Candidate, int]] = set()

#: What the library's search gave, by problem, device and most workspace: threads share it.
_found: dict[tuple[Problem, int, int], tuple[Algorithm, ...]] = {}


def plan_on_current_device(problem: Problem, algorithm: Algorithm) -> cublaslt.CublasLtPlan:
    """A plan of exactly this algorithm, for this thread and the current device."""
    return cublaslt.CublasLtPlan(problem, algorithm, cupy.cuda.runtime.getDevice())


def candidates(problem: Problem, *, count: int = 100, workspace_nbytes: int | None = None) -> tuple[Algorithm, ...]:
    """Up to `count` algorithms of cuBLASLt for `problem` on the current device, its favourite first."""
    device = cupy.cuda.runtime.getDevice()
    limit = controls.workspace_nbytes(device) if workspace_nbytes is None else workspace_nbytes
    return cublaslt.candidates(problem, device, count=count, workspace_nbytes=limit)


def set_selector(selector: Selector | None) -> Selector | None:
    """Let `selector` choose from here on, and make earlier plans again; gives the former selector.

    It is not asked while a library is preferred by name.
    """
    global _selector
    former, _selector = _selector, selector
    controls.renew()
    return former


def observe(observer: Callable[[Problem, int], object]) -> None:
    """Call `observer` with each problem and its device's index when a plan is made for it."""
    _observers.append(observer)


def choose(problem: Problem, device: int) -> Algorithm | None:
    """The first algorithm of cuBLASLt; None where it has none."""
    key = problem, device, controls.workspace_nbytes(device)
    found = _found.get(key)
    if found is None:
        found = _found[key] = cublaslt.candidates(problem, device, workspace_nbytes=key[2])
    return found[0] if found else None


def make(problem: Problem) -> ProductPlan | None:
    """A plan for this thread and the current device: the selector's, else `default`."""
    device = cupy.cuda.runtime.getDevice()
    plan = _selected(problem, device) or default(problem, device)
    for observer in _observers if plan is not None else ():
        observer(problem, device)
    return plan


def _selected(problem: Problem, device: int) -> ProductPlan | None:
    if _selector is None or controls.is_preferred():
        return None
    choice = _selector(problem, device)
    if isinstance(choice, Candidate):
        try:
            return providers.plan(problem, choice, device)
        except CuassayError as error:  # chosen with another factor, or where there was more to choose from
            _tell(representative(problem), choice, device, error)
            return None
    return None if choice is None else cublaslt.CublasLtPlan(problem, choice, device)


def _tell(problem: Problem, choice: Candidate, device: int, error: CuassayError) -> None:
    """Warn once of a choice that cannot be made."""
    if (problem, choice, device) in _told:
        return
    _told.add((problem, choice, device))
    warnings.warn(
        f"{problem} is computed on cuda:{device} as without tuning, since its choice {choice} cannot be made: {error}",
        stacklevel=2,
    )


def default(problem: Problem, device: int) -> ProductPlan | None:
    """What computes `problem` where nothing was chosen: the library in force; None where it cannot."""
    if controls.library() == "cublas" and problem.scaling == "none":
        # What is added must lie in the output, which a problem does not tell.
        return cublas.CublasPlan(problem, device) if problem.epilogue == "none" and not problem.beta else None
    algorithm = choose(problem, device)
    return None if algorithm is None else cublaslt.CublasLtPlan(problem, algorithm, device)


def fallback(problem: Problem, device: int) -> ProductPlan:
    """cuBLAS, for what cuBLASLt has no algorithm for; it says itself what it cannot."""
    return cublas.CublasPlan(problem, device)


class _Side(threading.local):
    def __init__(self) -> None:
        self.by_device: dict[int, Any] = {}


_side = _Side()


def _side_stream() -> Any:
    """A stream of this thread's own to capture on: the driver keeps half a MiB for each that was ever made."""
    device = cupy.cuda.runtime.getDevice()
    if device not in _side.by_device:
        _side.by_device[device] = cupy.cuda.Stream(non_blocking=True)
    return _side.by_device[device]


#: Direct calls before a graph is made of one: the first loads kernels, and a plan that is run once needs none.
_DIRECT_CALLS = 2


class BoundProduct(Handle):
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

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Destroy the graph; that would break a capture of another thread, such as one that waits for this to end."""
        if self._launch is not None and not is_finalizing() and not forks.is_child():
            with relaxed():
                self._launch = None

    def __repr__(self) -> str:
        return f"BoundProduct({'direct' if self._launch is None else 'graph'}, {self._calls} direct calls)"

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
        if self._streams is not None and address != PER_THREAD:  # which is another stream in another thread
            self._streams.add(address)

    def _capture(self, address: int) -> None:
        """Record one call."""
        stream, run = _side_stream(), self._run
        if self._nbytes:
            self._memory = hook.empty((self._nbytes,), np.uint8, cupy.cuda.runtime.getDevice())
            self._streams = {address} - {PER_THREAD}
            run = partial(run, workspace=self._memory.data.ptr)
        with ExitStack() as stack:
            stack.enter_context(relaxed())
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


def bind(plan: ProductPlan, a: int, b: int, c: int, d: int, keep: Any) -> BoundProduct:
    """`plan` on these addresses; `keep` is what must live as long as the result."""
    return BoundProduct(partial(plan.run, a, b, c, d), keep, plan.workspace_nbytes)
