"""A user's own CUDA C++ as an operation under test: compiled, launched on CuPy arrays, and described by an OpSpec."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import cuda, devices
from cuassay.arrays.dtypes import as_dtype
from cuassay.errors import ArgumentError, CompileError, DriverError, DTypeError, LibraryNotFoundError
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.samples import Samples

AXPY = """
template <typename T> __device__ T axpy_of(T factor, T x, T y) { return factor * x + y; }

extern "C" __global__ void axpy(const float* x, const float* y, float* out, double factor, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = axpy_of(float(factor), x[i], y[i]);
}
"""
SHARED = """
extern "C" __global__ void reversed_block(const int* a, int* out) {
    extern __shared__ int values[];
    values[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}
"""
BLOCK = 128


def axpy_by(text: str) -> Any:
    """`axpy` on any kind: the kernel of `text` on CuPy's arrays, an expression elsewhere."""
    kernel = cuda.compile_kernel(text, "axpy")

    def axpy(xp: Any, x: Any, y: Any, *, factor: float = 2.0) -> Any:
        if xp is not cupy:
            return x.dtype.type(factor) * x + y
        x, y = (cupy.ascontiguousarray(array, cupy.float32) for array in (x, y))
        out = cupy.full(x.shape, cupy.nan, cupy.float32)  # so that an element nobody writes shows
        if out.size:
            kernel(-(-out.size // BLOCK), BLOCK, (x, y, out, factor, out.size))
        return out

    return axpy


def _samples(make: Samples) -> Iterator[Sample]:
    yield from (Sample((make(extent), make(extent))) for extent in (1, 127, 128, 129, 1025))
    yield Sample((make((5, 33)), make((5, 33))), {"factor": -0.5}, "two axes")
    yield Sample((make(0), make(0)), kind="empty")


def spec_of(text: str) -> OpSpec:
    return OpSpec(
        fn=axpy_by(text), name="axpy", samples=_samples, dtypes=("float32",),
        reference=lambda x, y, *, factor=2.0: factor * x + y,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ without a device


def test_the_spec_holds_where_there_is_no_cuda() -> None:
    CHECKS["values"](spec_of(AXPY), "cpu", as_dtype("float32"))


def test_the_signature_of_a_plain_function_is_read_next_to_templates() -> None:
    kernel = cuda.compile_kernel(AXPY, "axpy")

    assert kernel.signature == ("float32*", "float32*", "float32*", "float64", "int64")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1, 2), ArgumentError, r"has 5 parameters; got 2 arguments"),
        ((np.ones(3), np.ones(3), np.ones(3), 2.0, 3), DTypeError, "cannot read host memory"),
        ((7, 7, 7, 2.0, 3), DTypeError, r"parameter 0 is float32\*"),
    ],
    ids=["number", "host arrays", "integers for arrays"],
)
def test_wrong_arguments_are_refused_before_any_device_is_asked(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    kernel = cuda.compile_kernel(AXPY, "axpy")

    with pytest.raises(error, match=message):
        kernel(1, BLOCK, arguments)


@pytest.mark.parametrize("block", [0, (32, 0), (1, 1, 1, 1), 1.5])
def test_a_block_of_no_threads_is_refused_before_any_device_is_asked(block: Any) -> None:
    kernel = cuda.compile_kernel(AXPY, "axpy")

    with pytest.raises(ArgumentError, match="block must be one to three whole numbers"):
        kernel(1, block, ())


def test_a_kernel_that_is_not_there_is_named() -> None:
    with pytest.raises(ArgumentError, match="no kernel 'axpby'"):
        cuda.compile_kernel(AXPY, "axpby")


def test_a_kernel_that_no_header_defines_is_named_when_compiled_for_an_architecture(tmp_path: Path) -> None:
    (tmp_path / "own.cuh").write_text(AXPY)
    try:
        with pytest.raises(CompileError, match="no kernel 'axpby'"):
            cuda.compile_kernel('#include "own.cuh"', "axpby", arch="sm_90", include=[tmp_path])
    except LibraryNotFoundError as error:
        pytest.skip(str(error))


# ------------------------------------------------------------------------------------------------ on a device


@pytest.mark.parametrize("check", ["values", "layouts", "zero_size", "inputs_unchanged", "side_stream"])
def test_a_users_kernel_passes_the_generated_checks(check: str, on_cuda: None) -> None:
    CHECKS[check](spec_of(AXPY), "cuda:0", as_dtype("float32"))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("if (i < n)", "if (i + 1 < n)"), ("factor * x + y", "factor * x - y"), ("x[i], y[i]", "x[0], y[i]")],
    ids=["tail", "sign", "index"],
)
def test_a_fault_in_a_users_kernel_fails_a_check_that_names_it(right: str, wrong: str, on_cuda: None) -> None:
    assert AXPY.count(right) == 1

    with pytest.raises(AssertionError) as caught:
        CHECKS["values"](spec_of(AXPY.replace(right, wrong)), "cuda:0", as_dtype("float32"))

    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "op: axpy on cuda:0 in float32" in told


def test_a_template_is_named_by_its_arguments(on_cuda: None) -> None:
    text = "template <typename T> __global__ void fill(T* a, T value) { a[threadIdx.x] = value; }"
    out = cupy.zeros(32, cupy.int32)

    cuda.compile_kernel(text, "fill<int>")(1, 32, (out, np.int32(7)))

    assert out.tolist() == [7] * 32


def test_shared_memory_is_that_of_the_kernel_or_of_the_launch(on_cuda: None) -> None:
    kernel = cuda.compile_kernel(SHARED, "reversed_block", shared_memory=4 * BLOCK)
    a = cupy.arange(BLOCK, dtype=cupy.int32)
    out = cupy.zeros_like(a)

    kernel(1, BLOCK, (a, out))
    first = out.tolist()
    kernel(1, BLOCK, (out, a), shared=8 * BLOCK)

    assert first == list(range(BLOCK))[::-1]
    assert a.tolist() == list(range(BLOCK))


def test_a_launch_goes_to_the_current_stream_or_to_the_one_given(on_cuda: None) -> None:
    kernel = cuda.compile_kernel(AXPY, "axpy")
    stream = devices.backend("cuda").new_stream(0)
    x, y = cupy.ones(1000, cupy.float32), cupy.ones(1000, cupy.float32)
    out = cupy.zeros_like(x)
    stream.wait_stream(devices.backend("cuda").current_stream(0))

    with stream:
        kernel(8, BLOCK, (x, y, out, 1.0, 1000))
    kernel(8, BLOCK, (out, y, out, 1.0, 1000), stream=stream)
    stream.synchronize()

    assert float(out.min()) == float(out.max()) == 3


def test_every_launch_is_checked_as_the_first_was(on_cuda: None) -> None:
    kernel = cuda.compile_kernel(AXPY, "axpy")
    x, out = cupy.ones(100, cupy.float32), cupy.zeros(100, cupy.float32)
    kernel(1, BLOCK, (x, x, out, 2.0, 100))

    for grid, arguments, error in (
        (1, (x, cupy.ones(100), out, 2.0, 100), DTypeError),
        (1, (x, x, out, 2.0), ArgumentError),
        (1, (x, x, out, 2, 100.0), DTypeError),
        (0, (x, x, out, 2.0, 100), ArgumentError),
    ):
        with pytest.raises(error):
            kernel(grid, BLOCK, arguments)
    kernel(1, BLOCK, (x, out, out, 2.0, 100))

    assert out.tolist() == [5.0] * 100


def test_parameters_of_a_template_are_checked_by_their_size_at_the_launch(on_cuda: None) -> None:
    text = "template <typename T> __global__ void fill(T* a, T value) { a[threadIdx.x] = value; }"

    with pytest.raises(DTypeError, match="parameter 1 takes 4 bytes; got int of 8"):
        cuda.compile_kernel(text, "fill<int>")(1, 32, (cupy.zeros(32, cupy.int32), 7))


def test_a_source_that_does_not_compile_is_told_at_the_first_launch(on_cuda: None) -> None:
    kernel = cuda.compile_kernel("__global__ void broken(float* a) { b; }", "broken")

    with pytest.raises(CompileError, match="identifier"):
        kernel(1, 1, (cupy.zeros(1, cupy.float32),))


def test_more_shared_memory_than_the_card_has_is_refused_with_its_limit(on_cuda: None) -> None:
    kernel = cuda.compile_kernel(SHARED, "reversed_block")
    a = cupy.arange(BLOCK, dtype=cupy.int32)

    with pytest.raises(DriverError, match="shared memory a block"):
        kernel(1, BLOCK, (a, cupy.zeros_like(a)), shared=2**30)
