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
