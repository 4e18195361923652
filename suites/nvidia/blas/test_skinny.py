"""Products of few tokens by our own kernel, against float64: tilings, layouts, tails, epilogues, graphs, streams."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import devices
from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.cuda.blas import controls, skinny
from cuassay.devices.cuda.blas.problem import Operand, Problem
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.errors import CapabilityError
from cuassay.tune.space import Candidate

PROVIDER = skinny.SKINNY


@pytest.fixture(autouse=True)
def on_a_fitting_device() -> None:
    reason = devices.backend("cuda").why_absent() or skinny.why_not(0)
    if reason is not None:
        pytest.skip(f"the kernels cannot run here: {reason}")


def make_problem(
    rows: int,
    tokens: int,
    depth: int,
    *,
    dtype: str = "bfloat16",
    out: str | None = None,
    layout: str = "TN",
    gap: int = 0,
    **more: Any,
) -> Problem:
    """`layout` T: of each row all terms lie together; `gap`: elements between columns as stored."""
    shape = (depth, rows) if layout == "TN" else (rows, depth)
    a = Operand(*shape, shape[0] + gap, 0, dtype)
    b = Operand(depth, tokens, depth + gap, 0, dtype)
    d = Operand(rows, tokens, rows + gap, 0, out or dtype)
    fields: dict[str, Any] = {"compute": "32F", "c": d, **more}
    return Problem(
        m=rows, n=tokens, k=depth, batch=1, transpose_a=layout == "TN", transpose_b=False, a=a, b=b, d=d, **fields
    )


class Case:
    """A problem with random operands, NaN where none of their elements is, and its answer in float64."""

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        self.problem = p = problem
        self._numbers = np.random.default_rng(seed)
        self.stored_a, a = self._operand(p.a)
        self.stored_b, b = self._operand(p.b)
        stored_c, c = self._operand(p.c)
        self._blank, _ = self._operand(p.d, fill=False)
        self.a, self.b, self.c, self.d = map(cupy.asarray, (self.stored_a, self.stored_b, stored_c, self._blank))
        bias = self._numbers.standard_normal(p.m).astype(as_dtype(p.d.dtype))
        self.bias = cupy.asarray(bias)
        cupy.cuda.get_current_stream().synchronize()  # tests run it on streams of their own
        left = a.T if p.transpose_a else a
        total = p.alpha * (left @ b) + (p.beta * c if p.beta else 0)
        total += bias.astype(np.float64)[:, None] if "bias" in p.epilogue else 0
        self.expected = _activated(total, p.epilogue)
        half_ulp = {"bfloat16": 2.0**-9, "float16": 2.0**-11, "float32": 2.0**-24}[p.d.dtype]
        # Tensor cores truncate what they add: a unit of float32's last place each time, at most.
        self.bound = abs(p.alpha) * 2.0**-19 * (abs(left) @ abs(b)) + 2 * half_ulp * abs(self.expected) + 1e-6

    def _operand(self, operand: Operand, *, fill: bool = True) -> tuple[Any, Any]:
        """Columns below one another as stored; and (rows, columns) in float64."""
        dtype = as_dtype(operand.dtype)
        stored = np.full((operand.columns, operand.leading), np.nan).astype(dtype)
        if fill:
            values = self._numbers.standard_normal((operand.columns, operand.rows))
            stored[:, : operand.rows] = values.astype(dtype)
        return stored, stored[:, : operand.rows].T.astype(np.float64)

    def spoil(self, value: float) -> None:
        """One element of `a`, in row 17."""
        self.stored_a[17, 300] = value
        self.a.set(self.stored_a)

    def plan(self, candidate: Candidate | None = None) -> skinny.SkinnyPlan:
        found = PROVIDER.plan(self.problem, candidate or PROVIDER.candidates(self.problem, 0)[0], 0)
        if "bias" in self.problem.epilogue:
            found.point("BIAS_POINTER", self.bias.data.ptr)
        return found

    def clear(self) -> None:
        """NaN in the output."""
        self.d.set(self._blank)

    def run(self, plan: skinny.SkinnyPlan) -> None:
        c = self.c if self.problem.beta else self.d
        plan.run(self.a.data.ptr, self.b.data.ptr, c.data.ptr, self.d.data.ptr)

    def result(self) -> Any:
        """(columns, leading) as stored."""
        return np.asarray(self.d.get())

    def check(self) -> None:
        """Each element is within its bound, and what lies between the columns is as it was."""
        stored = self.result().astype(np.float64)
        got = stored[:, : self.problem.m].T
        away = np.where(np.isnan(got), np.inf, abs(got - self.expected)) / self.bound
        worst = np.unravel_index(away.argmax(), away.shape)
        assert away[worst] <= 1, f"{self.problem}: {got[worst]} for {self.expected[worst]} at (row, token) {worst}"
        assert np.isnan(stored[:, self.problem.m :]).all()


def copy(to: Any, of: Any) -> None:
    """In order of the current stream; CuPy's own copy is a kernel, which it has not for every dtype."""
    to.data.copy_from_device_async(of.data, of.nbytes)


def _activated(total: Any, epilogue: str) -> Any:
    if epilogue.startswith("relu"):
        return np.maximum(total, 0)
    if epilogue.startswith("gelu"):
        return 0.5 * total * (1 + np.tanh(np.sqrt(2 / np.pi) * (total + 0.044715 * total**3)))
    return total


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 100, 128])
@pytest.mark.parametrize("layout", ["TN", "NN"])
def test_every_tiling_computes_the_product(layout: str, tokens: int) -> None:
    case = Case(make_problem(328, tokens, 2056, layout=layout, gap=8))

    for candidate in PROVIDER.candidates(case.problem, 0):
        case.clear()
        case.run(case.plan(candidate))
        case.check()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("out", [None, "float32"], ids=["same", "float32"])
@pytest.mark.parametrize("layout", ["TN", "NN"])
def test_dtypes(layout: str, out: str | None, dtype: str) -> None:
    case = Case(make_problem(264, 20, 520, layout=layout, dtype=dtype, out=out))

    case.run(case.plan())

    case.check()


@pytest.mark.parametrize("rows", [1, 3, 63, 130, 257], ids=str)
@pytest.mark.parametrize("tokens", [1, 19])
def test_rows_of_any_number_where_each_lies_in_one_piece(rows: int, tokens: int) -> None:
    case = Case(make_problem(rows, tokens, 1032))

    case.run(case.plan())

    case.check()


@pytest.mark.parametrize("depth", [8, 64, 72, 1000, 4104], ids=str)
@pytest.mark.parametrize("layout", ["TN", "NN"])
def test_depths_that_fill_no_stage(layout: str, depth: int) -> None:
    case = Case(make_problem(136, 12, depth, layout=layout, gap=8))

    for candidate in PROVIDER.candidates(case.problem, 0):
        case.clear()
        case.run(case.plan(candidate))
        case.check()


@pytest.mark.parametrize("epilogue", ["none", "bias", "relu", "relu_bias", "gelu", "gelu_bias"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.5, 0.0), (1.0, 1.0), (-2.0, 0.25)])
def test_factors_and_epilogues(alpha: float, beta: float, epilogue: str) -> None:
    case = Case(make_problem(200, 24, 512, gap=8, alpha=alpha, beta=beta, epilogue=epilogue))

    case.run(case.plan())

    case.check()


def test_the_third_operand_may_be_the_output() -> None:
    case = Case(make_problem(200, 24, 512, beta=1.0))
    copy(case.d, case.c)

    case.plan().run(*(array.data.ptr for array in (case.a, case.b, case.d, case.d)))

    case.check()


def test_without_beta_the_third_operand_is_not_read() -> None:
    case = Case(make_problem(200, 24, 512))  # d is NaN before

    case.run(case.plan())

    case.check()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row(value: float) -> None:
    case = Case(make_problem(200, 24, 512))
    case.spoil(value)

    case.run(case.plan())

    is_finite = np.isfinite(case.result().astype(np.float32))
    assert not is_finite[:, 17].any()
    assert np.delete(is_finite, 17, axis=1).all()


def test_relu_keeps_nan() -> None:
    case = Case(make_problem(200, 24, 512, epilogue="relu"))
    case.spoil(np.nan)

    case.run(case.plan())

    assert np.isnan(case.result()[:, 17].astype(np.float32)).all()


# ------------------------------------------------------------------------------------------------ order


@pytest.mark.parametrize("tokens", [16, 32, 64, 128])
def test_runs_are_equal_to_the_bit(tokens: int) -> None:
    case = Case(make_problem(512, tokens, 8192))
    for candidate in PROVIDER.candidates(case.problem, 0):
        plan, results = case.plan(candidate), set()

        for _ in range(20):
            case.run(plan)
            results.add(case.result().tobytes())

        assert len(results) == 1, candidate
        case.check()


def test_no_launch_leaves_a_mark_that_sums_are_there() -> None:
    """The next launch that gets the memory would not wait, and add the sums of this one."""
    case = Case(make_problem(2112, 16, 7168))
    offered = [one for one in PROVIDER.candidates(case.problem, 0) if case.plan(one).workspace_nbytes]
    assert offered, "no tiling of this problem shares sums by way of memory"
    for candidate in offered:
        plan = case.plan(candidate)
        memory = cupy.zeros(-(-plan.workspace_nbytes // 8), np.uint64)
        cupy.cuda.get_current_stream().synchronize()

        c = case.c if case.problem.beta else case.d
        plan.run(case.a.data.ptr, case.b.data.ptr, c.data.ptr, case.d.data.ptr, workspace=memory.data.ptr)

        case.check()
        assert not bool((memory == np.uint64(skinny._READY)).any()), candidate


def test_a_captured_product_reads_what_its_operands_hold_at_replay() -> None:
    case, other = (Case(make_problem(512, 16, 4096), seed) for seed in (0, 1))
    plan = case.plan()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        case.run(plan)
        stream.begin_capture()
        case.run(plan)
        case.run(plan)
        graph = stream.end_capture()

        copy(case.a, other.a)
        copy(case.b, other.b)
        graph.launch(stream)
        stream.synchronize()

    case.expected, case.bound = other.expected, other.bound
    case.check()


def test_two_streams_at_once_do_not_disturb_each_other() -> None:
    cases = [Case(make_problem(2112, 16, 7168), seed) for seed in range(2)]
    plans = [case.plan() for case in cases]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in cases]
    cupy.cuda.Device().synchronize()

    for _ in range(50):
        for case, plan, stream in zip(cases, plans, streams, strict=True):
            with stream:
                case.run(plan)
    cupy.cuda.Device().synchronize()

    for case in cases:
        case.check()


def test_a_product_follows_what_its_stream_was_given_before() -> None:
    case = Case(make_problem(1760, 16, 1760))
    plan, kept = case.plan(), case.b.copy()
    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(30):
            copy(case.b, kept)
            case.run(plan)
            case.b.data.memset_async(0xFF, case.b.nbytes)  # NaN, but not before the product has read it
        stream.synchronize()

    case.check()


def test_kernels_are_loaded_next_to_a_capture_that_another_thread_would_break() -> None:
    case, offered = Case(make_problem(512, 16, 512)), []
    PROVIDER.candidates(case.problem, 0)
    kernel.cache_clear()  # they are compiled, and not loaded

    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeGlobal)
        thread = threading.Thread(target=lambda: offered.extend(PROVIDER.candidates(case.problem, 0)))
        thread.start()
        thread.join()
        case.d.data.memset_async(0xFF, case.d.nbytes)  # NaN
        graph = stream.end_capture()
        case.run(case.plan(offered[-1]))
        graph.launch(stream)
        stream.synchronize()

    assert np.isnan(case.result().astype(np.float32)).all()


# ------------------------------------------------------------------------------------------------ what is not offered

FITTING = make_problem(512, 16, 512)


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 129},
        {"batch": 2},
        {"transpose_b": True},
        {"compute": "16F"},
        {"alignment": 8},
        {"k": 508},
        {"a": replace(FITTING.a, leading=514)},
        {"b": replace(FITTING.b, leading=514)},
        {"a": replace(FITTING.a, dtype="float32"), "b": replace(FITTING.b, dtype="float32")},
        {"scaling": "tensor"},
        {"d": replace(FITTING.d, dtype="float64")},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_what_it_cannot_compute_is_not_offered_and_refused(changes: dict[str, Any]) -> None:
    candidate = PROVIDER.candidates(FITTING, 0)[0]
    problem = replace(FITTING, **changes)

    assert PROVIDER.candidates(problem, 0) == ()
    with pytest.raises(CapabilityError):
        PROVIDER.plan(problem, candidate, 0)


def test_a_tiling_that_needs_more_workspace_than_allowed_is_not_offered_and_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = make_problem(8128, 64, 4096)
    needs = {one: PROVIDER.plan(problem, one, 0).workspace_nbytes for one in PROVIDER.candidates(problem, 0)}
    most = max(needs, key=lambda one: needs[one])
    assert needs[most] > 0
    monkeypatch.setattr(controls, "_workspaces", {0: needs[most] - 1})

    offered = PROVIDER.candidates(problem, 0)

    assert set(offered) == {one for one, nbytes in needs.items() if nbytes < needs[most]}
    with pytest.raises(CapabilityError, match=rf"with a workspace of {needs[most] - 1:,} bytes"):
        PROVIDER.plan(problem, most, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 48},
        {"stages": 40},
        {"splits": 9},
        {"splits": 0},
        {"warps": 0},
        {"blocks": 0},
        {"blocks": 10**6},
    ],
    ids=str,
)
def test_a_candidate_that_no_kernel_is_for_is_refused(changes: dict[str, int]) -> None:
    candidate = PROVIDER.candidates(FITTING, 0)[0]

    with pytest.raises(CapabilityError):
        PROVIDER.plan(FITTING, Candidate.of("skinny", **{**dict(candidate.parameters), **changes}), 0)
