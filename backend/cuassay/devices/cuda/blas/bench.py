"""Times ways to compute one problem as a program would meet them: cold operands, random data, no launch gaps.

A sample is the replay of a graph of several calls, each on operands of its own, between two events. Where the operands
of all its calls do not exceed three times the level-2 cache, the cache is flushed before each sample. All is given to a
stream of the bench's own, and memory to its allocator as any other: from the pool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.cuda import runtime
from cuassay.devices.cuda.blas import providers
from cuassay.devices.cuda.blas.problem import Operand, Problem
from cuassay.devices.cuda.memory import hook
from cuassay.errors import OutOfMemoryError
from cuassay.tune.space import Candidate

__all__ = ["Bench"]

#: A sample lasts about so long, in at most so many calls: events resolve 0.5 µs, and capturing a call takes 10 µs.
_SAMPLE_SECONDS, _MOST_CALLS = 200e-6, 32

#: Operand sets exceed the level-2 cache so many times, and take at most this part of the free memory.
_CACHES, _PART_OF_MEMORY = 3, 0.25

#: Between two operands, and where the first begins.
_APART = 512

#: Random numbers, one block repeated; a prime, so that no two rows are equal.
_BLOCK = 1_048_573

#: How far results of two right ways may be apart: (relative to the element, to the root mean square of all). By the
#: output's dtype: two roundings of it. By the compute type: sums in another order, operands rounded another way.
_OF_OUTPUT = {"float16": 2e-3, "bfloat16": 1.6e-2, "float8_e4m3fn": 0.13, "float8_e5m2": 0.26}
_OF_COMPUTE = {
    "16F": 0.1,
    "32F": 1e-4,
    "64F": 1e-11,
    "32F_FAST_16F": 1e-2,
    "32F_FAST_16BF": 5e-2,
    "32F_FAST_TF32": 1e-2,
}
#: By the operands' dtype: tensor cores truncate while they accumulate, fp8 sums after 13 bits.
_OF_OPERANDS = {"float16": 1e-3, "bfloat16": 1e-3, "float8_e4m3fn": 3e-2, "float8_e5m2": 3e-2}


@dataclass(frozen=True, slots=True)
class _Set:
    """Addresses of one set of operands, and what holds them."""

    a: int
    b: int
    c: int
    d: int
    memory: Any


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
        Bytes that all operand sets exceed together; by default three times the level-2 cache.
    tolerances : (float, float), optional
        How far a result may be from the default's: relative to the element, and to the root mean square of all.
    """

    def __init__(
        self,
        problem: Problem,
        device: int,
        default: Candidate,
        make: Callable[[Candidate], providers.Plan],
        *,
        rotating_nbytes: int | None = None,
        tolerances: tuple[float, float] | None = None,
    ) -> None:
        self.problem, self._device, self._make = problem, device, make
        self._tolerances = tolerances or _tolerances(problem)
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._events = cupy.cuda.Event(), cupy.cuda.Event()
        self._plans: dict[Candidate, providers.Plan] = {}
        self._graphs: dict[Candidate, Any] = {}
        self._workspaces: dict[int, Any] = {}
        target = _CACHES * runtime.get_device_properties(device).L2_cache_size
        target = target if rotating_nbytes is None else rotating_nbytes
        with self._stream:
            self._extras = _extras(problem)
            self._sets = [_operands(problem)]
            self._calls = self._calls_of(default)
            nbytes = self._sets[0].memory.mem.size
            free = cupy.cuda.runtime.memGetInfo()[0] * _PART_OF_MEMORY
            wanted = min(self._calls, math.ceil(target / nbytes), int(free / nbytes))
            self._sets += _more(problem, wanted - 1)
            self._is_flushing = len(self._sets) * nbytes < target
            self._expected = self._computed(default)

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
                graph = self._graphs[candidate] = self._captured(candidate)
            if self._is_flushing:
                _flush(self._device)
            start, end = self._events
            start.record(self._stream)
            graph.launch(self._stream)
            end.record(self._stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3 / self._calls

    def check(self, candidate: Candidate) -> str | None:
        """How the result of `candidate` differs from the default's, or None: see the table of tolerances."""
        with self._stream:
            return _difference(self._computed(candidate), self._expected, self._tolerances)

    def describe(self, candidate: Candidate) -> str:
        """Its plan's own words."""
        plan = self._plan(candidate)
        return plan.library if plan.algorithm is None else f"{plan.library}, {plan.algorithm}"

    # ---------------------------------------------------------------------------------------- inside

    def _plan(self, candidate: Candidate) -> providers.Plan:
        plan = self._plans.get(candidate)
        if plan is None:
            plan = self._plans[candidate] = self._make(candidate)
            for name, array in self._extras.items():
                plan.point(name, array.ptr)
        return plan

    def _run(self, candidate: Candidate, count: int) -> None:
        plan = self._plan(candidate)
        workspace = self._workspace(plan.workspace_nbytes)
        for call in range(count):
            one = self._sets[call % len(self._sets)]
            plan.run(one.a, one.b, one.c, one.d, workspace=workspace)

    def _workspace(self, nbytes: int) -> int:
        """Of at least so many bytes, one for all: the calls of a sample follow one another."""
        if not nbytes:
            return 0
        size = max(nbytes, *self._workspaces, 0)
        if size not in self._workspaces:
            self._workspaces[size] = hook.allocate(size)
        return int(self._workspaces[size].ptr)

    def _calls_of(self, candidate: Candidate) -> int:
        start, end = self._events
        self._run(candidate, 1)
        start.record(self._stream)
        self._run(candidate, 3)
        end.record(self._stream)
        end.synchronize()
        seconds = float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3 / 3
        return max(1, min(_MOST_CALLS, round(_SAMPLE_SECONDS / seconds)))

    def _captured(self, candidate: Candidate) -> Any:
        """A graph of the calls; after a call that loads the kernel, and shows what is wrong."""
        self._run(candidate, 1)
        self._stream.synchronize()
        self._stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeThreadLocal)
        try:
            self._run(candidate, self._calls)
        finally:
            graph = self._stream.end_capture()
        graph.upload(self._stream)
        return graph

    def _computed(self, candidate: Candidate) -> Any:
        """What it makes of the first operands, in the widest dtype of the output's kind: one vector, gaps included."""
        one, d = self._sets[0], self.problem.d
        nbytes = _nbytes(d, self.problem.batch)
        view = cupy.ndarray((nbytes,), np.uint8, cupy.cuda.MemoryPointer(one.memory.mem, one.d - one.memory.ptr))
        view.fill(_NAN_BYTE)
        plan = self._plan(candidate)
        plan.run(one.a, one.b, one.c, one.d, workspace=self._workspace(plan.workspace_nbytes))
        return _wide(view, d.dtype)


# ------------------------------------------------------------------------------------------------ operands


def _nbytes(operand: Operand, batch: int) -> int:
    elements = (operand.columns - 1) * operand.leading + operand.rows + (batch - 1) * operand.batch_stride
    return elements * as_dtype(operand.dtype).itemsize


def _operands(problem: Problem) -> _Set:
    """One set in one piece, random, each operand aligned exactly as the problem says."""
    offset = problem.alignment if problem.alignment < _APART else 0
    parts = {"a": problem.a, "b": problem.b, "d": problem.d} | ({"c": problem.c} if problem.beta else {})
    places, size = {}, 0
    for name, operand in parts.items():
        places[name] = size + offset
        size += -(-(_nbytes(operand, problem.batch) + offset) // _APART) * _APART
    memory = hook.allocate(size)
    for name, operand in parts.items():
        if name != "d":
            _fill(memory.ptr + places[name], _nbytes(operand, problem.batch), operand.dtype)
    at = {name: memory.ptr + place for name, place in places.items()}
    return _Set(at["a"], at["b"], at.get("c", at["d"]), at["d"], memory)


def _more(problem: Problem, count: int) -> Iterator[_Set]:
    """As many more sets as there is room for."""
    for _ in range(count):
        try:
            yield _operands(problem)
        except OutOfMemoryError:
            return


def _fill(address: int, nbytes: int, dtype: str) -> None:
    """Random numbers: one block, doubled until it is enough, in order of the current stream."""
    block = _block(cupy.cuda.runtime.getDevice(), dtype)
    stream, done = cupy.cuda.get_current_stream().ptr, min(block.nbytes, nbytes)
    copy, kind = cupy.cuda.runtime.memcpyAsync, cupy.cuda.runtime.memcpyDeviceToDevice
    copy(address, block.data.ptr, done, kind, stream)
    while done < nbytes:
        length = min(done, nbytes - done)
        copy(address + done, address, length, kind, stream)
        done += length


@cache
def _block(device: int, dtype: str) -> Any:
    """Normal numbers of `dtype` as bytes on the current device `device`."""
    numbers = np.random.default_rng(0).standard_normal(2 * _BLOCK if dtype.startswith("complex") else _BLOCK)
    if dtype.startswith("complex"):
        numbers = numbers.view(np.complex128)
    return cupy.asarray(numbers.astype(as_dtype(dtype)).view(np.uint8))


def _extras(problem: Problem) -> dict[str, Any]:
    """What is pointed at beside the operands: a bias; scales, all of them 1."""
    found = {}
    if "bias" in problem.epilogue:
        nbytes = problem.m * as_dtype(problem.d.dtype).itemsize
        found["BIAS_POINTER"] = hook.allocate(nbytes)
        _fill(found["BIAS_POINTER"].ptr, nbytes, problem.d.dtype)
    if problem.scaling != "none":
        lengths = {"A_SCALE_POINTER": problem.m, "B_SCALE_POINTER": problem.n}
        for name, length in lengths.items():
            memory = found[name] = hook.allocate(4 * length)
            cupy.ndarray((length,), np.float32, memory).fill(1)
    return found


def _flush(device: int) -> None:
    from cuassay.devices.cuda.backend import BACKEND

    BACKEND.flush_cache(device)


# ------------------------------------------------------------------------------------------------ comparing


def _tolerances(problem: Problem) -> tuple[float, float]:
    relative = _OF_OUTPUT.get(problem.d.dtype, 0.0)
    return relative, _OF_COMPUTE[problem.compute] + _OF_OPERANDS.get(problem.a.dtype, 0.0) + relative


#: All bits of an element set is NaN in every floating dtype: what is not written does not agree.
_NAN_BYTE = 255


def _wide(view: Any, dtype: str) -> Any:
    """Bytes of `dtype` as float32, or wider where it is: CuPy computes in neither bfloat16 nor fp8."""
    if dtype == "bfloat16":
        return (view.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("float8"):
        return _fp8_values(dtype)[view]
    values = view.view(as_dtype(dtype))
    return values.astype(np.float32) if dtype == "float16" else values.copy()


@cache
def _fp8_values(dtype: str) -> Any:
    return cupy.asarray(np.arange(256, dtype=np.uint8).view(as_dtype(dtype)).astype(np.float32))


def _difference(got: Any, expected: Any, tolerance: tuple[float, float]) -> str | None:
    """In words; elements in gaps, which neither wrote, are NaN in both."""
    relative, of_all = tolerance
    is_gap = cupy.isnan(expected)
    magnitude = cupy.where(is_gap, 0, abs(expected))
    scale = float(cupy.sqrt((magnitude.astype(np.float64) ** 2).sum() / max(1, int((~is_gap).sum()))))
    away = abs(cupy.where(is_gap, 0, got - expected)) - relative * magnitude
    away = cupy.where(cupy.isnan(away) | (is_gap & ~cupy.isnan(got)), np.inf, away)
    worst = float(away.max())
    if worst <= of_all * scale:
        return None
    place = int(away.argmax())
    return (
        f"its result differs from the default's: {float(abs(got[place])):.6g} for {float(abs(expected[place])):.6g} in "
        f"magnitude at element {place}, with a tolerance of {of_all:.3g} x {scale:.3g} + {relative:.3g} of it"
    )
