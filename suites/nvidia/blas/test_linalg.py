"""Linear algebra by cuSOLVER and cuBLAS: nothing waits unless it must, and nothing is captured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import cuda, devices, linalg, ops
from cuassay.errors import CaptureError, SynchronizationError
from cuassay.testing.samples import Samples

BACKEND = devices.backend("cuda")


@pytest.fixture(autouse=True)
def restored(on_cuda: None) -> Iterator[None]:
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


def test_in_a_capture_it_is_refused_with_the_reason_and_works_after() -> None:
    a = regular(8, 8)

    with pytest.raises(CaptureError, match="CuPy calls neither cuSOLVER nor cuBLAS"), cuda.graph(cuda.CUDAGraph()):
        linalg.solve(a, a, check_errors=False)

    np.testing.assert_allclose(cupy.asnumpy(linalg.solve(a, a)), np.eye(8), atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_failed_is_told_on_the_device(shape: tuple[int, ...]) -> None:
    a = regular(*shape)
    a[..., 3] = 0

    info = ops.inv(a).info

    assert (cupy.asnumpy(info) > 0).all()
