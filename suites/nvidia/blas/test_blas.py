"""Matrix products by CUDA's libraries: plans, handles, captures, controls, the seams for a tuner and for emulations."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy
from gpu_products import host

from cuassay import cuda, devices, ops
from cuassay.arrays.dtypes import as_dtype
from cuassay.core.precision import set_matmul_options
from cuassay.devices.cuda.blas import controls, cublas, cublaslt, fp8, gemm, offline, plans
from cuassay.devices.cuda.blas.problem import Problem
from cuassay.devices.cuda.blas.product import Product
from cuassay.errors import ArgumentError
from cuassay.testing import exclusive
from cuassay.tune.shapes import GemmShape

BACKEND = devices.backend("cuda")
DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


@pytest.fixture(autouse=True)
def restored(on_cuda: None) -> Iterator[None]:
    yield
    controls.preferred_blas_library("default")
    plans.set_selector(None)


def random(*shape: int, dtype: str = "float32") -> Any:
    """There before it is returned: tests read it on streams of their own."""
    values = np.random.default_rng(sum(shape)).uniform(-1, 1, shape)
    found = cupy.asarray(values.astype(as_dtype(dtype)))
    cupy.cuda.get_current_stream().synchronize()
    return found


# ------------------------------------------------------------------------------------------------ plans


def test_a_layout_is_looked_up_once_prepared() -> None:
    a, b = random(32, 64), random(64, 16)
    ops.mm(a, b)
    before = len(gemm.table())

    for _ in range(3):
        ops.mm(a + 1, b)

    assert len(gemm.table()) == before


@pytest.mark.parametrize("make", [lambda a: a.T.copy().T, lambda a: a[::2], lambda a: a[:, ::2][:, :8]])
def test_another_layout_gets_a_plan_of_its_own(make: Any) -> None:
    a, b = make(random(32, 16)), random(16, 8)
    b = b[: a.shape[1]]

    result = ops.mm(a, b)

    np.testing.assert_allclose(result.get(), a.get() @ b.get(), rtol=1e-5, atol=1e-6)


def test_a_plan_is_a_graph_from_its_third_run_on() -> None:
    a, b = random(32, 64), random(64, 16)
    plan = ops.mm.prepare(a, b)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for factor in range(5):
            a.fill(factor)
            np.testing.assert_allclose(
                plan.run().get(), factor * np.broadcast_to(b.get().sum(0), (32, 16)), rtol=1e-5, atol=1e-5
            )

    assert "graph" in repr(plan.execute)


def test_a_plan_may_be_dropped_while_its_graph_runs() -> None:
    a = random(512, 512)
    out = cupy.empty_like(a)
    plan = ops.mm.prepare(a, a, out=out)
    for _ in range(50):
        plan.run()
    del plan

    np.testing.assert_allclose(out.get(), (a @ a).get(), rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------------ handles


def test_two_threads_on_their_own_streams_have_their_own_handles() -> None:
    """One handle in two threads would have one stream and one workspace for both."""
    a, b = random(256, 256), random(256, 256)
    expected = (a @ b).get()
    seen = {"here": cuda.current_blas_handle(0)}
    wrong: list[str] = []
    together = threading.Barrier(2)

    def work(name: str) -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            together.wait()
            results = (ops.mm(a, b).get() for _ in range(50))
            wrong.extend(name for result in results if not np.allclose(result, expected, rtol=1e-4, atol=1e-4))
            stream.synchronize()
            seen[name] = cuda.current_blas_handle(0)
            together.wait()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert len(set(seen.values())) == 3


def test_a_handle_is_not_given_to_another_thread_while_a_plan_uses_it() -> None:
    made: list[cublas.CublasPlan] = []
    given: list[Any] = []
    problem = offline.problem_of(GemmShape(m=32, n=16, k=64))

    for work in (lambda: made.append(cublas.CublasPlan(problem, 0)), lambda: given.append(cublas._handles.on(0).value)):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert given != [made[0]._handle.value]


@pytest.mark.usefixtures("cublaslt")
def test_a_handle_is_used_again_after_its_thread() -> None:
    seen: list[int] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: seen.append(cublaslt.handle(0)))
        thread.start()
        thread.join()

    assert len(set(seen)) == 1


def test_the_current_handle_is_on_the_current_stream() -> None:
    found = ctypes.c_void_p()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        handle = ctypes.c_void_p(cuda.current_blas_handle())

        assert cublas._library().cublasGetStream_v2(handle, ctypes.byref(found)) == 0
        assert found.value == stream.ptr


# ------------------------------------------------------------------------------------------------ captures


@exclusive
@pytest.mark.parametrize("library", ["cublas", "cublaslt"])
def test_a_hundred_captures_keep_little_memory(library: str, request: pytest.FixtureRequest) -> None:
    if library == "cublaslt":
        request.getfixturevalue("cublaslt")  # skips where it is absent
    controls.preferred_blas_library(library)
    a, b = random(16, 7168, dtype="bfloat16"), random(7168, 2112, dtype="bfloat16")  # split along K: a workspace
    out = cupy.empty((16, 2112), a.dtype)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        ops.mm(a, b, out=out)
        stream.synchronize()
        before = cupy.cuda.runtime.memGetInfo()[0]
        for _ in range(100):
            capture = BACKEND.new_capture(0)
            capture.begin()
            ops.mm(a, b, out=out)
            capture.end()
            capture.replay()
            stream.synchronize()
            capture.reset()

    assert before - cupy.cuda.runtime.memGetInfo()[0] < 100 * 2**20


def test_two_graphs_that_run_at_once_have_their_own_workspace() -> None:
    a, b = random(16, 7168, dtype="bfloat16"), random(7168, 2112, dtype="bfloat16")
    expected = host(ops.mm(a, b))
    graphs = []
    for _ in range(2):
        stream, out = cupy.cuda.Stream(non_blocking=True), cupy.empty((16, 2112), a.dtype)
        with stream:
            ops.mm(a, b, out=out)
            stream.synchronize()
            capture = BACKEND.new_capture(0)
            capture.begin()
            ops.mm(a, b, out=out)
            capture.end()
        graphs.append((stream, capture, out))

    for _ in range(50):
        for stream, capture, _ in graphs:
            with stream:
                capture.replay()
    for stream, capture, out in graphs:
        stream.synchronize()
        np.testing.assert_array_equal(host(out), expected)
        capture.reset()


# ------------------------------------------------------------------------------------------------ controls


@pytest.mark.usefixtures("cublaslt")
@pytest.mark.parametrize("dtype", DTYPES)
def test_both_libraries_agree(dtype: str) -> None:
    a, b = random(3, 33, 40, dtype=dtype), random(3, 40, 17, dtype=dtype)
    results = {}
    for library in ("cublas", "cublaslt"):
        assert cuda.preferred_blas_library(library) == library
        results[library] = host(ops.bmm(a, b))

    tolerance = 1e-2 if dtype in ("float16", "bfloat16") else 1e-5
    np.testing.assert_allclose(results["cublas"], results["cublaslt"], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", [None, "relu", "gelu_tanh"])
def test_cublas_does_bias_and_activation_apart(activation: Any) -> None:
    arrays = random(8, 16), random(24, 16), random(24)
    fused = ops.linear(*arrays, activation=activation).get()
    cuda.preferred_blas_library("cublas")

    found = ops.explain(lambda: ops.linear(*arrays, activation=activation))

    assert "cuBLAS" in str(found)
    assert "cuBLASLt" not in str(found)
    np.testing.assert_allclose(found.result.get(), fused, rtol=1e-4, atol=1e-5)


def test_a_call_says_why_cublas_computes_where_no_library_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = random(8, 16), random(16, 4)
    monkeypatch.setattr(controls, "why_no_cublaslt", lambda: "it was taken away")
    controls.renew()

    found = ops.explain(lambda: ops.mm(a, b))
    controls.preferred_blas_library("cublas")
    named = ops.explain(lambda: ops.mm(a, b))

    assert "; cuBLAS, since it was taken away" in str(found)
    assert str(named).endswith("; cuBLAS")
    np.testing.assert_allclose(found.result.get(), a.get() @ b.get(), rtol=1e-5, atol=1e-6)


def test_fp8_without_cublaslt_is_decoded_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).standard_normal((32, 64)).astype(as_dtype("float8_e4m3fn"))
    codes, scale = cupy.asarray(values.view(np.uint8)), cupy.full((1, 1), 2, np.float32)
    formats = dict.fromkeys(("format_a", "format_b"), "float8_e4m3fn")
    monkeypatch.setattr(fp8, "why_no_cublaslt", lambda: "it was taken away")
    fp8._has_fp8.cache_clear()
    try:
        found = ops.explain(lambda: ops.scaled_mm(codes, codes.T, scale, scale, out_dtype="float32", **formats))
    finally:
        fp8._has_fp8.cache_clear()

    assert "decoded to float16: it was taken away" in str(found)
    exact = values.astype(np.float64)
    np.testing.assert_allclose(found.result.get(), 4 * exact @ exact.T, rtol=1e-4, atol=1e-4)


def test_another_library_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'mkl' is not a BLAS library; give one of default, cublas, cublaslt"):
        cuda.preferred_blas_library("mkl")


@pytest.mark.usefixtures("cublaslt")
def test_a_limit_of_the_workspace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "_workspaces", {})
    a, b = random(16, 7168, dtype="bfloat16"), random(7168, 2112, dtype="bfloat16")
    assert cuda.cublas_workspace_size() >= 2**20
    assert "workspace 0 B" not in str(ops.explain(lambda: ops.mm(a, b)))

    cuda.cublas_workspace_size(0, 0)  # for problems that were met before, too

    assert cuda.cublas_workspace_size() == 0
    assert "workspace 0 B" in str(ops.explain(lambda: ops.mm(a, b)))
    with pytest.raises(ArgumentError, match="-1 bytes"):
        cuda.cublas_workspace_size(0, -1)


def test_options_hold_for_calls_after_them() -> None:
    a, b = cupy.full((8, 4096), 1, "float16"), cupy.full((4096, 8), 1, "float16")
    former = set_matmul_options(fp16_accumulation=True)
    try:
        assert " in 16F" in str(ops.explain(lambda: ops.mm(a, b)))
    finally:
        set_matmul_options(fp16_accumulation=former.fp16_accumulation)
    assert " in 32F" in str(ops.explain(lambda: ops.mm(a, b)))
    np.testing.assert_array_equal(ops.mm(a, b).get(), 4096)


# ------------------------------------------------------------------------------------------------ seams


def problem_of(a: Any, b: Any) -> Problem:
    seen: list[Problem] = []
    plans._observers.append(lambda problem, device: seen.append(problem))
    try:
        controls.renew()
        ops.mm(a, b)
    finally:
        plans._observers.pop()
    return seen[-1]


@pytest.mark.usefixtures("cublaslt")
def test_every_candidate_computes_the_product() -> None:
    a, b = random(64, 512, dtype="bfloat16"), random(512, 48, dtype="bfloat16")
    problem, expected = problem_of(a, b), host(ops.mm(a, b))
    found = plans.candidates(problem, count=16)

    assert len(found) > 1
    for algorithm in found:
        out = cupy.zeros((64, 48), a.dtype)
        plans.plan_on_current_device(problem, algorithm).run(b.data.ptr, a.data.ptr, out.data.ptr, out.data.ptr)
        np.testing.assert_allclose(host(out), expected, rtol=0.02, atol=0.05)


@pytest.mark.usefixtures("cublaslt")
def test_a_selector_chooses_for_calls_after_it() -> None:
    a, b = random(64, 512, dtype="bfloat16"), random(512, 48, dtype="bfloat16")
    chosen = plans.candidates(problem_of(a, b), count=4)[-1]

    plans.set_selector(lambda problem, device: chosen)

    assert str(chosen) in str(ops.explain(lambda: ops.mm(a, b)))


def test_a_problem_is_observed_once_a_plan() -> None:
    a, b = random(40, 24), random(24, 56)

    problem = problem_of(a, b)

    assert (problem.m, problem.n, problem.k, problem.batch) == (56, 40, 24, 1)


def test_an_emulated_mode_takes_over_float32_products_of_that_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "_emulations", {})
    seen: list[Product] = []

    def multiply(product: Product) -> None:
        seen.append(product)
        product.out.fill(7)

    gemm.register_emulation("bf16x9", lambda product, *layouts: multiply)
    a, b = random(8, 16), random(16, 4)

    assert (ops.mm(a, b, precision="bf16x9").get() == 7).all()
    assert (ops.mm.prepare(a, b, precision="bf16x9").run().get() == 7).all()
    assert not (ops.mm(a, b).get() == 7).any()
    assert not (ops.mm(a.astype("float64"), b, precision="bf16x9").get() == 7).any()
    assert [product.mode for product in seen] == ["bf16x9"] * 2
    controls.renew()


# ------------------------------------------------------------------------------------------------ what is not copied


@pytest.mark.parametrize(
    ("shape", "copied"),
    [((8, 12, 64, 32), False), ((8, 1, 64, 32), False), ((1, 12, 64, 32), True)],
    ids=["full", "broadcast inside", "broadcast outside"],
)
def test_only_what_the_library_cannot_read_is_copied(shape: tuple[int, ...], copied: bool) -> None:
    a, b = random(*shape, dtype="float16"), random(8, 12, 32, 16, dtype="float16")

    found = ops.explain(lambda: ops.matmul(a, b))

    assert ("copied" in str(found)) == (copied or shape[1] == 1)
    expected = host(a) @ host(b)
    np.testing.assert_allclose(host(found.result), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("shared", [False, True])
def test_large_heads_inside_rows_are_not_copied(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    monkeypatch.setattr(gemm, "_LEAST_FLOPS", 0)
    a = random(2, 64, 3, 32, dtype="float16").transpose(0, 2, 1, 3)
    b = random(1, 3, 32, 16, dtype="float16") if shared else random(2, 3, 32, 16, dtype="float16")
    expected = host(a) @ host(b)

    found = ops.explain(lambda: ops.matmul(a, b))
    plan = ops.matmul.prepare(a, b)

    assert "one product a first index" in str(found)
    assert "copied" not in str(found)
    for result in (found.result, *(plan.run().copy() for _ in range(4))):
        np.testing.assert_allclose(host(result), expected, rtol=1e-2, atol=1e-2)
    controls.renew()


def test_a_transposed_operand_and_a_column_major_output_are_not_copied() -> None:
    a, b, out = random(16, 8).T, random(24, 16).T, cupy.empty((24, 8), "float32").T

    found = ops.explain(lambda: ops.mm(a, b, out=out))

    assert "copied" not in str(found)
    np.testing.assert_allclose(out.get(), a.get() @ b.get(), rtol=1e-5, atol=1e-5)
    assert cublas.CublasPlan.library == "cuBLAS"
