"""Plans of problems: a choice is made once for the process, and a plan once for each thread and device.

A tuner connects to this module; the package's docstring describes how.
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

#: An algorithm of cuBLASLt, or a candidate of any provider.
Choice = Algorithm | Candidate

#: Maps a problem and a device's index to a choice; None: the current library with its first algorithm.
Selector = Callable[[Problem, int], Choice | None]


def _by_settings(problem: Problem, device: int) -> Choice | None:
    """The initial selector: installs the tuner if a setting enables it.

    No plan exists yet, so none must be made again.
    """
    global _selector  # noqa: PLW0603  one for the process
    chosen: Selector | None = None
    if settings.get("CUASSAY_TUNABLEOP_ENABLED"):
        chosen = _offered()
    if _selector is _by_settings:  # no other thread has set one meanwhile
        _selector = chosen
    return None if chosen is None else chosen(problem, device)


def offer(selector: Callable[[], Selector]) -> None:
    """Register the function that returns the tuner's selector, which ``CUASSAY_TUNABLEOP_ENABLED`` enables."""
    global _offered  # noqa: PLW0603  one for the process
    _offered = selector


_offered: Callable[[], Selector]
_selector: Selector | None = _by_settings
_observers: list[Callable[[Problem, int], object]] = []

#: Choices that could not be used and were reported.
_reported: set[tuple[Problem, Candidate, int]] = set()

#: The algorithms that the library found, by problem, device and workspace limit; threads share them.
_found: dict[tuple[Problem, int, int], tuple[Algorithm, ...]] = {}


def plan_on_current_device(problem: Problem, algorithm: Algorithm) -> cublaslt.CublasLtPlan:
    """Make a plan of exactly this algorithm, for this thread and the current device."""
    return cublaslt.CublasLtPlan(problem, algorithm, cupy.cuda.runtime.getDevice())


def candidates(problem: Problem, *, count: int = 100, workspace_nbytes: int | None = None) -> tuple[Algorithm, ...]:
    """Return up to `count` algorithms of cuBLASLt for `problem` on the current device, in the library's order."""
    device = cupy.cuda.runtime.getDevice()
    limit = controls.workspace_nbytes(device) if workspace_nbytes is None else workspace_nbytes
    return cublaslt.candidates(problem, device, count=count, workspace_nbytes=limit)


def set_selector(selector: Selector | None) -> Selector | None:
    """Use `selector` from now on, make earlier plans again, and return the previous selector.

    The selector is not called while a library is preferred by name.
    """
    global _selector
    former, _selector = _selector, selector
    controls.renew()
    return former


def observe(observer: Callable[[Problem, int], object]) -> None:
    """Call `observer` with the problem and the device's index whenever a plan is made."""
    _observers.append(observer)


def choose(problem: Problem, device: int) -> Algorithm | None:
    """Return the first algorithm of cuBLASLt, or None if it has none."""
    key = problem, device, controls.workspace_nbytes(device)
    found = _found.get(key)
    if found is None:
        found = _found[key] = cublaslt.candidates(problem, device, workspace_nbytes=key[2])
    return found[0] if found else None


def make(problem: Problem) -> ProductPlan | None:
    """Make a plan for this thread and the current device: the selector's choice, or else `default`."""
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
        except CuassayError as error:  # chosen with other factors, or where more was available
            _warn_once(representative(problem), choice, device, error)
            return None
    return None if choice is None else cublaslt.CublasLtPlan(problem, choice, device)


def _warn_once(problem: Problem, choice: Candidate, device: int, error: CuassayError) -> None:
    """Warn once about a choice that cannot be used."""
    if (problem, choice, device) in _reported:
        return
    _reported.add((problem, choice, device))
    warnings.warn(
        f"{problem} is computed on cuda:{device} without tuning, as its choice {choice} cannot be used: {error}",
        stacklevel=2,
    )


def default(problem: Problem, device: int) -> ProductPlan | None:
    """Make the plan that is used without a choice, with the current library; None if the library cannot compute it."""
    if controls.library() == "cublas" and problem.scaling == "none":
        # cuBLAS adds only what is in the output, and a problem does not say whether `c` is the output.
        return cublas.CublasPlan(problem, device) if problem.epilogue == "none" and not problem.beta else None
    algorithm = choose(problem, device)
    return None if algorithm is None else cublaslt.CublasLtPlan(problem, algorithm, device)


def fallback(problem: Problem, device: int) -> ProductPlan:
    """Make a plan of cuBLAS, for a problem without an algorithm of cuBLASLt; cuBLAS reports what it cannot compute."""
    return cublas.CublasPlan(problem, device)


class _Side(threading.local):
    def __init__(self) -> None:
        self.by_device: dict[int, Any] = {}


_side = _Side()


def _side_stream() -> Any:
    """Return this thread's stream for captures, made once: the driver keeps 0.5 MiB for every stream ever made."""
    device = cupy.cuda.runtime.getDevice()
    if device not in _side.by_device:
        _side.by_device[device] = cupy.cuda.Stream(non_blocking=True)
    return _side.by_device[device]


#: Direct calls before a graph is made: the first call loads kernels, and a plan that runs only once needs no graph.
_DIRECT_CALLS = 2


class BoundProduct(Handle):
    """A computation on given arrays, called without arguments; after two calls it is a graph.

    Launching the graph costs the host a fraction of the library's call. While the current stream is being captured, the
    library is called instead, because a graph cannot be launched into another graph.

    Parameters
    ----------
    run : callable
        Computes, in order of the current stream; it takes ``workspace=``, an address, if `nbytes` is given.
    keep : object
        The arrays whose addresses the graph holds.
    nbytes : int, optional
        The size of the workspace of the only call that `run` makes; None if `run` allocates in other ways, so that the
        graph needs its own pool.
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
        """Destroy the graph, without breaking a capture of another thread, such as one that waits for this thread."""
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
        """Keep the workspace from being reused before the work that this stream has received is done."""
        hook.record_stream(self._memory, address)
        if self._streams is not None and address != PER_THREAD:  # PER_THREAD is a different stream in each thread
            self._streams.add(address)

    def _capture(self, address: int) -> None:
        """Record one call into a graph."""
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
        """Return a pool for what the captured call allocates, which lives as long as the graph."""
        pool = graph_pool.acquire(graph_pool_handle(), cupy.cuda.runtime.getDevice())
        weakref.finalize(self, graph_pool.release, pool).atexit = False
        return pool


def bind(plan: ProductPlan, a: int, b: int, c: int, d: int, keep: Any) -> BoundProduct:
    """Bind `plan` to these addresses; `keep` must live as long as the result."""
    return BoundProduct(partial(plan.run, a, b, c, d), keep, plan.workspace_nbytes)
