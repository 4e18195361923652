"""Indices where no host looks at them: places outside of an array, and sums in the order of the index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_places import KINDS

from cuassay import Device, from_host, ops, to_host
from cuassay.arrays.dtypes import as_dtype, compute_dtype
from cuassay.testing import devices, dtypes

pytest.importorskip("cupy", reason="CuPy is not installed")

#: By what is special: outer, rows, inner and the length of the index.
SUMS = {
    "one row a block": (1, 5, 3, 70),
    "a long list in each step": (1, 3, 2, 2_500),
    "a list over several steps": (1, 20, 2, 2_500),
    "two tiles of columns": (2, 4, 300, 40),
    "many rows a block": (86, 70, 1, 300),
    "many rows a block, several columns": (257, 5, 7, 20),
    "no number in the index": (1, 4, 3, 0),
}


@devices(*KINDS)
@pytest.mark.parametrize("length", [0, 5])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_gather_from_no_place_gives_nan_or_bits_of_ones(device: Device, dtype: str, length: int) -> None:
    a, index = from_host(np.ones((3, length), dtype), device), from_host(np.full((3, 2), length, np.int64), device)

    found = to_host(ops.gather(a, index, axis=1))

    assert found.shape == (3, 2)
    assert (np.isnan(found) if dtype == "float32" else found == -1).all()


@devices(*KINDS)
@pytest.mark.parametrize("columns", [1, 5, 128])
@pytest.mark.parametrize("outside", [7, -1, 2**40])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_a_row_that_is_not_there_is_nan_or_bits_of_ones(device: Device, dtype: str, outside: int, columns: int) -> None:
    weight = from_host(np.ones((7, columns), dtype), device)
    index = from_host(np.array([0, outside, 6], np.int64), device)

    found = to_host(ops.embedding(index, weight))

    assert (found[[0, 2]] == 1).all()
    assert (np.isnan(found[1]) if dtype != "int32" else found[1] == -1).all()


@devices(*KINDS)
@pytest.mark.parametrize("columns", [1, 3, 6, 64, 300])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_each_row_that_is_named_arrives(device: Device, dtype: str, columns: int) -> None:
    weight = (np.arange(37 * columns) % 120).astype(dtype).reshape(37, columns)
    index = np.arange(301) * 5 % 37

    found = ops.embedding(from_host(index, device), from_host(weight, device))

    np.testing.assert_array_equal(to_host(found), weight[index])


def summed(source: Any, index: Any, start: Any) -> Any:
    """`start` (outer, rows, inner) and the rows of `source` (outer, K, inner), one after another, rounded once."""
    wide = compute_dtype(start.dtype)
    sums = start.astype(wide)
    for k, row in enumerate(index):
        if 0 <= row < start.shape[1]:
            sums[:, row] += source[:, k].astype(wide)
    return sums.astype(start.dtype)


@devices(*KINDS)
@dtypes("bfloat16", "float32", "float64")
@pytest.mark.parametrize("shape", SUMS.values(), ids=SUMS)
def test_sums_by_an_index_are_in_its_order(
    device: Device, dtype: np.dtype[Any], shape: tuple[int, int, int, int]
) -> None:
    """An index just outside of the rows adds nothing, on either side."""
    outer, rows, inner, length = shape
    random = np.random.default_rng(2026)
    source = random.standard_normal((outer, length, inner)).astype(as_dtype(dtype))
    start = random.standard_normal((outer, rows, inner)).astype(as_dtype(dtype))
    index = random.integers(-1, rows + 1, length)
    a, b, c = (from_host(one, device) for one in (start, index, source))

    added = ops.index_add(a, b, c, axis=1)
    alone = ops.segment_sum(from_host(source[0], device), b, count=rows)

    np.testing.assert_array_equal(to_host(added), summed(source, index, start))
    np.testing.assert_array_equal(to_host(alone), summed(source[:1], index, np.zeros_like(start[:1]))[0])
