"""Tuning of products on a GPU: what is chosen computes the same, once, in captures and threads too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy
from gpu_products import host, problem_of, random
from json_rows import rows_of

from cuassay import cuda, ops
from cuassay.arrays.dtypes import as_dtype
from cuassay.cuda import tunable
from cuassay.devices.cuda.blas import agreement, controls, gemm, neighbours, offline, plans, providers, tuning
from cuassay.devices.cuda.blas.bench import Bench
from cuassay.devices.cuda.blas.problem import Problem, representative
from cuassay.devices.cuda.driver import runtime
from cuassay.errors import ArgumentError, CapabilityError
from cuassay.tune.shapes import GemmShape
from cuassay.tune.space import Candidate

pytestmark = pytest.mark.usefixtures("cublaslt", "own_tuner")


class Fixed:
    """A provider of one candidate, which claims to be as fast as what it calls."""

    name = "fixed"

    def __init__(self, change: Any = None) -> None:
        self.change = change or (lambda problem: problem)
        self.plans = 0

    def version(self) -> str:
        return "1"

    def candidates(self, problem: Problem, device: int) -> tuple[Candidate, ...]:
        return (Candidate.of("fixed"),)

    def plan(self, problem: Problem, candidate: Candidate, device: int) -> Any:
        self.plans += 1
        plan: Any = plans.default(self.change(problem), device)
        plan.problem, plan.library = problem, "fixed"
        return plan


def less_terms(problem: Problem) -> Problem:
    """Leaves out the last 32 terms of every sum: faster, and wrong."""
    a, b = replace(problem.a, rows=problem.a.rows - 32), replace(problem.b, rows=problem.b.rows - 32)
    return replace(problem, k=problem.k - 32, a=a, b=b)


# ------------------------------------------------------------------------------------------------ candidates


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_every_candidate_agrees_with_the_default(dtype: str) -> None:
    problem = problem_of(48, 256, 512, dtype)
    bench = Bench(problem, 0, tuning._default(problem, 0), lambda one: providers.plan(problem, one, 0))
    offered = providers.candidates(problem, 0)

    wrong = {str(one): bench.check(one) for one in (*offered, *neighbours.near(problem, offered[:3], 0))}

    assert len(wrong) > 3
    assert {candidate: reason for candidate, reason in wrong.items() if reason} == {}


def test_what_is_planted_wrong_does_not_agree() -> None:
    providers.register(Fixed(less_terms))
    problem = problem_of()
    bench = Bench(problem, 0, tuning._default(problem, 0), lambda one: providers.plan(problem, one, 0))

    assert "differs from the default's" in str(bench.check(Candidate.of("fixed")))


@pytest.mark.parametrize(
    "change",
    [{"algorithm": "00" * 63}, {"algorithm": "no hex"}, {"algorithm": 3}, {"workspace": "much"}, {"workspace": -1}],
    ids=["cut off", "no hexadecimal", "a number", "no number", "negative"],
)
def test_what_is_no_algorithm_is_told(change: dict[str, Any]) -> None:
    candidate = Candidate.of("cublaslt", **{"algorithm": "00" * 64, "workspace": 0} | change)

    with pytest.raises(ArgumentError, match="not an algorithm of cuBLASLt"):
        providers.plan(problem_of(), candidate, 0)


def nine_times_as_fast(bench: Bench, candidate: Candidate) -> float:
    """Replaces `Bench.sample`, so that the choice depends on no measured time."""
    return 1.0 if candidate == Candidate.of("fixed") else 9.0


def test_a_wrong_candidate_is_refused_however_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    providers.register(Fixed(less_terms))
    monkeypatch.setattr(Bench, "sample", nine_times_as_fast)

    report = tuning.tuner().tune(problem_of(), 0)

    assert report.result.choice == tuning.DEFAULT
    assert "differs" in dict(report.outcome.refused)[Candidate.of("fixed")]


def test_the_same_is_chosen_once_it_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    providers.register(Fixed())
    monkeypatch.setattr(Bench, "sample", nine_times_as_fast)

    assert tuning.tuner().tune(problem_of(), 0).result.choice == Candidate.of("fixed")


def test_tolerances_are_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    providers.register(Fixed(less_terms))
    monkeypatch.setattr(Bench, "sample", nine_times_as_fast)
    tunable.set_numerical_check_tolerances(True, 10.0, 1.0)
    assert tuning.tuner().tune(problem_of(), 0).result.choice == Candidate.of("fixed")

    tunable.set_numerical_check_tolerances(True)
    assert tuning.tuner().tune(problem_of(), 0).result.choice == tuning.DEFAULT

    tunable.set_numerical_check_tolerances(False)
    assert tuning.tuner().tune(problem_of(), 0).result.choice == Candidate.of("fixed")


@pytest.mark.parametrize(
    ("got", "expected", "agrees"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, 2.00001], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([np.nan, 2.0], [1.0, 2.0], False),
        ([1.0, 2.0], [np.nan, 2.0], False),
        ([np.nan, 2.0], [np.nan, 2.0], True),
        ([np.inf, 2.0], [np.inf, 2.0], True),
        ([np.inf, 2.0], [-np.inf, 2.0], False),
    ],
)
def test_results_agree_or_not(got: list[float], expected: list[float], agrees: bool) -> None:
    a, b = cupy.asarray(got, np.float32), cupy.asarray(expected, np.float32)

    assert (agreement.difference(a.data.ptr, b.data.ptr, 8, "float32", (1e-5, 1e-5)) is None) == agrees


def test_one_wrong_element_of_millions_is_found() -> None:
    a = cupy.zeros(3_000_001, np.float32)
    a[:] = 1
    b = a.copy()
    b[2_999_999] = 2

    assert agreement.difference(a.data.ptr, b.data.ptr, a.nbytes, "float32", (1e-5, 1e-5)) is not None


# ------------------------------------------------------------------------------------------------ problems


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(("dtype", "out_dtype"), [("bfloat16", "bfloat16"), ("float16", "float32"), ("float32", None)])
def test_a_listed_product_is_what_a_call_asks_for(layout: str, dtype: str, out_dtype: Any) -> None:
    """Else what was tuned offline would not be found."""
    a = random(48, 96, dtype=dtype) if layout[0] == "N" else random(96, 48, dtype=dtype).T
    b = random(96, 80, dtype=dtype) if layout[1] == "N" else random(80, 96, dtype=dtype).T
    out = cupy.empty((48, 80), as_dtype(out_dtype or dtype))
    seen: list[Problem] = []
    plans._observers.append(lambda problem, device: seen.append(problem))
    gemm.gemm(a, b, out)
    plans._observers.pop()

    assert seen == [offline.problem_of(GemmShape(m=48, n=80, k=96, layout=layout), dtype, out_dtype)]


# ------------------------------------------------------------------------------------------------ online


def test_a_tuned_product_is_what_it_was() -> None:
    a, b, c = random(64, 1024), random(1024, 512), random(64, 512)
    bias = random(512)
    calls = {
        "mm": lambda: ops.mm(a, b),
        "addmm": lambda: ops.addmm(c, a, b, beta=0.5, alpha=2.0),
        "linear": lambda: ops.linear(a, random(512, 1024), bias, activation="relu"),
        "bmm": lambda: ops.bmm(random(3, 16, 64), random(3, 64, 32)),
        "float32": lambda: ops.mm(random(33, 65, dtype="float32"), random(65, 17, dtype="float32")),
    }
    before = {name: host(call()) for name, call in calls.items()}

    tunable.enable()

    for name, call in calls.items():
        np.testing.assert_allclose(host(call()), before[name], rtol=0.03, atol=0.3, err_msg=name)
    assert len(tunable.get_results()) == len(calls)


def test_a_product_is_tuned_once() -> None:
    a, b = random(64, 256), random(256, 128)
    tunable.enable()
    tunable.tuning_enable(False)
    ops.mm(a, b)
    assert tunable.get_results() == ()

    tunable.tuning_enable(True)
    for _ in range(3):
        ops.mm(a, b)
        controls.renew()

    assert len(rows_of(tunable.get_filename())) == 2  # the header and it


def test_factors_that_differ_in_value_share_a_result() -> None:
    a, b, c = random(64, 256), random(256, 128), random(64, 128)
    tunable.enable()

    results = [host(ops.addmm(c, a, b, alpha=alpha)) for alpha in (0.25, 3.0, 7.0)]

    assert len(tunable.get_results()) == 1
    for alpha, result in zip((0.25, 3.0, 7.0), results, strict=True):
        np.testing.assert_allclose(result, host(c) + alpha * (host(a) @ host(b)), rtol=0.02, atol=0.5)


def test_what_was_chosen_is_used() -> None:
    providers.register(Fixed())
    a, b = random(64, 256), random(256, 128)
    tunable.enable()
    mine = tuning.tuner()
    seen: list[Problem] = []
    plans._observers.append(lambda problem, device: seen.append(problem))
    ops.mm(a, b)
    plans._observers.pop()
    found = mine.results(0).find("gemm", representative(seen[0]).plain())
    assert found is not None
    mine.results(0).add(replace(found, choice=Candidate.of("fixed")))
    controls.renew()

    assert "fixed" in str(ops.explain(lambda: ops.mm(a, b)))
    tunable.enable(False)
    assert "fixed" not in str(ops.explain(lambda: ops.mm(a, b)))


def test_a_library_preferred_by_name_computes() -> None:
    providers.register(Fixed())
    plans.set_selector(lambda problem, device: Candidate.of("fixed"))
    a, b = random(64, 256), random(256, 128)
    assert "fixed" in str(ops.explain(lambda: ops.mm(a, b)))

    cuda.preferred_blas_library("cublas")

    assert "cuBLAS" in str(ops.explain(lambda: ops.mm(a, b)))


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (Candidate.of("of another day", tile=3), "is not offered by any provider"),
        (Candidate.of("cublaslt", algorithm="00" * 64, workspace=2**40), "needs more workspace than the"),
        (Candidate.of("padded", algorithm="00" * 64, workspace=0, rounded=False), "its operands are aligned"),
        (Candidate.of("skinny", kernel="removed"), "is not offered for|compute capability"),
    ],
    ids=["provider", "workspace", "operands", "kernel"],
)
def test_a_choice_that_cannot_be_made_is_told_of_once_and_done_without(
    monkeypatch: pytest.MonkeyPatch, choice: Candidate, reason: str
) -> None:
    monkeypatch.setattr(plans, "_reported", set())
    a, b = random(64, 256), random(256, 128)
    expected = host(ops.mm(a, b))
    plans.set_selector(lambda problem, device: choice)

    with pytest.warns(UserWarning, match=rf"gemm NN m=128 n=64 k=256.* {choice.implementation}.*: .*({reason})"):
        first = host(ops.mm(a, b))
    controls.renew()
    second = host(ops.mm(a, b))  # a second warning would fail the test

    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, expected)


def test_in_a_capture_nothing_is_tuned_and_that_is_said() -> None:
    a, b = random(64, 320), random(320, 128)
    expected = host(ops.mm(a, b))
    tunable.enable()
    graph, out = cuda.CUDAGraph(), cupy.empty((64, 128), a.dtype)
    with pytest.warns(UserWarning, match="not tuned, as the stream is being captured"), cuda.graph(graph):
        ops.mm(a, b, out=out)
    assert tunable.get_results() == ()
    assert tuning.tuner().statistics().in_captures > 0

    graph.replay()
    np.testing.assert_array_equal(host(out), expected)
    ops.mm(a, b)
    assert len(tunable.get_results()) == 1


@contextmanager
def captured_by_cupy() -> Iterator[list[Callable[[], object]]]:
    """A capture that none of our hooks sees; what it gives gets the replay."""
    replay: list[Callable[[], object]] = []
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeGlobal)
        yield replay
        graph = stream.end_capture()
    replay.append(lambda: (graph.launch(stream), stream.synchronize()))


@contextmanager
def captured_by_torch() -> Iterator[list[Callable[[], object]]]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    replay: list[Callable[[], object]] = []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        yield replay
    replay.append(lambda: (graph.replay(), torch.cuda.synchronize()))


@pytest.mark.parametrize("captured", [captured_by_cupy, captured_by_torch], ids=["cupy", "torch"])
def test_what_a_capture_of_others_met_is_tuned_at_the_next_call_outside(captured: Any) -> None:
    a, b, other = random(64, 320), random(320, 128), random(320, 96)
    expected, out = host(ops.mm(a, b)), cupy.empty((64, 128), a.dtype)
    ops.mm(a, b, out=out)
    ops.mm(a, other)
    tunable.enable()
    ops.mm(a, other)
    out.fill(0)
    cupy.cuda.runtime.deviceSynchronize()

    with captured() as replay:
        with pytest.warns(UserWarning, match="not tuned, as the stream is being captured"):
            ops.mm(a, b, out=out)
        ops.mm(a, b, out=out)
    assert len(tunable.get_results()) == 1  # the other's
    assert tuning.tuner().statistics().in_captures == 1  # its plan serves the capture to its end

    replay[0]()
    np.testing.assert_array_equal(host(out), expected)
    ops.mm(a, b, out=out)
    ops.mm(a, b, out=out)
    assert len(tunable.get_results()) == 2
    np.testing.assert_allclose(host(out), expected, rtol=0.02, atol=0.1)


def test_a_tuned_product_is_captured() -> None:
    a, b = random(64, 320), random(320, 128)
    tunable.enable()
    expected = host(ops.mm(a, b))
    graph, out = cuda.CUDAGraph(), cupy.empty((64, 128), a.dtype)
    with cuda.graph(graph):
        ops.mm(a, b, out=out)
    graph.replay()

    np.testing.assert_allclose(host(out), expected, rtol=0.02, atol=0.1)


def test_two_threads_tune_one_problem_once() -> None:
    a, b = random(64, 384), random(384, 128)
    expected = host(ops.mm(a, b))
    tunable.enable()
    together, wrong = threading.Barrier(2), []

    def work() -> None:
        with cupy.cuda.Stream(non_blocking=True):
            together.wait()
            for _ in range(20):
                result = host(ops.mm(a, b))
                if not np.allclose(result, expected, rtol=0.02, atol=0.1):
                    wrong.append(result)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert len(rows_of(tunable.get_filename())) == 2
    assert tuning.tuner().statistics().searches == 1


# ------------------------------------------------------------------------------------------------ fp8

E4M3 = "float8_e4m3fn"


class Scaled:
    """A call of `scaled_mm` on random codes, and its answer in float64."""

    def __init__(self, scaling: str, *, biased: bool) -> None:
        if runtime.get_device_capability(0) < (8, 9):
            pytest.skip("tensor cores take fp8 from compute capability 8.9 on")
        rows, terms, columns = 64, 512, 256
        numbers = np.random.default_rng(0)
        a, b = (numbers.standard_normal(shape).astype(as_dtype(E4M3)) for shape in ((rows, terms), (columns, terms)))
        shapes = [(1, 1), (1, 1)] if scaling == "tensor" else [(rows, 1), (1, columns)]
        by_a, by_b = (numbers.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes)
        bias = numbers.standard_normal(columns).astype(as_dtype("bfloat16"))
        self.expected = by_a * (a.astype(np.float64) @ b.astype(np.float64).T) * by_b + biased * bias.astype(np.float64)
        codes = [cupy.asarray(one.view(np.uint8)) for one in (a, b)]
        scales = [cupy.asarray(one) for one in (by_a, by_b)]
        self._arguments = (codes[0], codes[1].T, *scales, *((cupy.asarray(bias),) if biased else ()))

    def __call__(self) -> Any:
        return ops.scaled_mm(*self._arguments, format_a=E4M3, format_b=E4M3)

    def check(self) -> None:
        """bfloat16 rounds to 8 bits, and fp8 sums are cut off after 13."""
        np.testing.assert_allclose(host(self()), self.expected, rtol=1e-2, atol=0.02 * self.expected.std())


@pytest.fixture
def seen() -> Iterator[list[Problem]]:
    """The problems for which plans are made."""
    problems: list[Problem] = []
    plans.observe(lambda problem, device: problems.append(problem))
    yield problems
    plans._observers.pop()


@pytest.mark.parametrize("biased", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("scaling", ["tensor", "outer"])
def test_an_fp8_product_is_tuned_and_computes_what_it_did(scaling: str, biased: bool) -> None:
    product = Scaled(scaling, biased=biased)
    product.check()

    tunable.enable()

    product.check()
    product.check()
    (found,) = tunable.get_results()
    assert (found.problem["scaling"], found.problem["a"]["dtype"]) == (scaling, E4M3)
    assert found.problem["epilogue"] == ("bias" if biased else "none")
    assert tuning.tuner().statistics().searches == 1
    assert len(rows_of(tunable.get_filename())) == 2


@pytest.mark.parametrize("scaling", ["tensor", "outer"])
def test_every_fp8_candidate_agrees_and_computes_when_it_is_chosen(scaling: str, seen: list[Problem]) -> None:
    product = Scaled(scaling, biased=True)
    product.check()
    (problem,) = seen
    bench = Bench(problem, 0, tuning._default(problem, 0), lambda one: providers.plan(problem, one, 0))
    offered = providers.candidates(problem, 0)

    assert {str(one): reason for one in offered if (reason := bench.check(one))} == {}
    assert offered
    plans.set_selector(lambda problem, device: offered[-1])
    product.check()
    assert str(providers.plan(problem, offered[-1], 0).algorithm) in str(ops.explain(product))


def test_an_fp8_candidate_that_leaves_terms_out_is_refused(
    monkeypatch: pytest.MonkeyPatch, seen: list[Problem]
) -> None:
    providers.register(Fixed(less_terms))
    monkeypatch.setattr(Bench, "sample", nine_times_as_fast)
    Scaled("tensor", biased=False).check()

    report = tuning.tuner().tune(seen[0], 0)

    assert report.result.choice == tuning.DEFAULT
    assert "differs" in dict(report.outcome.refused)[Candidate.of("fixed")]


def test_an_fp8_product_is_recorded_then_tuned() -> None:
    product = Scaled("outer", biased=True)
    tunable.enable()
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    product.check()

    tunable.tuning_enable()
    tunable.tune_gemm_in_file(tunable.get_untuned_filename())

    assert [found.problem["scaling"] for found in tunable.get_results()] == ["outer"]
    product.check()
    assert tuning.tuner().statistics().searches == 1


# ------------------------------------------------------------------------------------------------ libraries


def test_cublas_adds_what_lies_elsewhere() -> None:
    a, b, c = random(16, 32, dtype="float32"), random(32, 8, dtype="float32"), random(16, 8, dtype="float32")
    cuda.preferred_blas_library("cublas")

    np.testing.assert_allclose(host(ops.addmm(c, a, b)), host(c) + host(a) @ host(b), rtol=1e-5, atol=1e-5)


def test_more_workspace_than_allowed_is_refused() -> None:
    problem = problem_of()
    candidate = Candidate.of("cublaslt", algorithm="00" * 64, workspace=2**30)

    with pytest.raises(CapabilityError, match="more workspace than"):
        providers.plan(problem, candidate, 0)
