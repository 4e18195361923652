"""Linear algebra by cuSOLVER and cuBLAS: nothing waits unless it must, and what is captured computes on new numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import cuda, devices, linalg, ops
from cuassay.errors import SynchronizationError
from cuassay.testing.samples import Samples

BACKEND = devices.backend("cuda")


@pytest.fixture(autouse=True)
def on_a_device() -> Iterator[None]:
    reason = BACKEND.why_absent()
    if reason is not None:
        pytest.skip(f"no CUDA device: {reason}")
    yield
    cuda.set_sync_debug_mode("default")


def regular(*shape: int) -> Any:
    values = Samples(13, "float64", "linalg")(shape, low=-1, high=1).values
    return cupy.asarray(values + (2 + shape[-1]) * np.eye(shape[-1]))


#: One matrix (cuSOLVER), a stack of small ones (cuBLAS), a stack of larger ones (cuSOLVER in turn).
SHAPES = ((20, 20), (5, 20, 20), (2, 300, 300))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_solve_unchecked_does_not_wait(shape: tuple[int, ...]) -> None:
    a = regular(*shape)
    linalg.solve(a, a)  # loads the libraries

    cuda.set_sync_debug_mode("error")
    x = linalg.solve(a, a, check_errors=False)
    with pytest.raises(SynchronizationError):
        linalg.solve(a, a)
    cuda.set_sync_debug_mode("default")

    np.testing.assert_allclose(cupy.asnumpy(x), np.broadcast_to(np.eye(shape[-1]), shape), atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_captured_solve_computes_on_new_numbers(shape: tuple[int, ...]) -> None:
    a, b = regular(*shape), cupy.ones((*shape[:-1], 1))
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        linalg.solve(a, b, check_errors=False)
    side.synchronize()

    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        x = linalg.solve(a, b, check_errors=False)
    a[...] = a.swapaxes(-2, -1).copy()
    graph.replay()

    residual = cupy.asnumpy(a) @ cupy.asnumpy(x) - 1
    np.testing.assert_allclose(residual, 0, atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_failed_is_told_on_the_device(shape: tuple[int, ...]) -> None:
    a = regular(*shape)
    a[..., 3] = 0  # a column: of a row that is 0, pivoting makes the last
    x, info = cupy.empty(shape), cupy.full(shape[:-2], 7, np.int32)

    ops.inv_(a, x, info)

    assert (cupy.asnumpy(info) == 4).all()  # the place of the pivot that is 0, from 1, as LAPACK counts
