"""Indices on cuda: what a place outside of an array gives, where no host looks at it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import ops

pytestmark = pytest.mark.usefixtures("on_cuda")


@pytest.mark.parametrize("length", [0, 5])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_gather_from_no_place_gives_nan_or_bits_of_ones(dtype: str, length: int) -> None:
    a, index = cupy.ones((3, length), dtype), cupy.full((3, 2), length, np.int64)

    found = ops.gather(a, index, axis=1).get()

    assert found.shape == (3, 2)
    assert (np.isnan(found) if dtype == "float32" else found == -1).all()


@pytest.mark.parametrize("columns", [1, 5, 128])
@pytest.mark.parametrize("outside", [7, -1, 2**40])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_a_row_that_is_not_there_is_nan_or_bits_of_ones(dtype: str, outside: int, columns: int) -> None:
    weight, index = cupy.ones((7, columns), dtype), cupy.array([0, outside, 6], np.int64)

    found = ops.embedding(index, weight).get()

    assert (found[[0, 2]] == 1).all()
    assert (np.isnan(found[1]) if dtype != "int32" else found[1] == -1).all()
