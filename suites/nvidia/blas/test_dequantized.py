"""Weights of 8 and 4 bits as an array of a floating dtype: every number, its scale, and what rounding took away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_places import KINDS, Place

from cuassay import Device
from cuassay.arrays.dtypes import compute_dtype
from cuassay.testing import devices, dtypes

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.devices.cuda.blas import mixed
from cuassay.ops.products import MixedForm

#: Rows and bytes of a row, by how many bytes a thread reads. More bytes than a block of threads reads, and few.
LINES = {8: (37, 120), 4: (5, 4), 2: (260, 2), 1: (300, 9)}

ROUNDED = ("bfloat16", "float16", "float32", "float64")


def weights(rows: int, line: int, bits: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The bytes of weights, and their numbers: each that a byte can hold, in turn."""
    codes = (np.arange(rows * line) * 37 % 256).astype(np.uint8).reshape(rows, line)
    if bits == 8:
        return codes.view(np.int8), codes.view(np.int8)
    halves = np.stack([codes & 15, codes >> 4], axis=-1).reshape(rows, 2 * line).astype(np.int8)
    return codes, np.where(halves > 7, halves - 16, halves)


@devices(*KINDS)
@dtypes(*ROUNDED)
@pytest.mark.parametrize("unit", LINES)
@pytest.mark.parametrize("bits", [8, 4])
def test_numbers_without_scales_are_exact(device: Device, dtype: np.dtype[Any], bits: int, unit: int) -> None:
    place, (rows, line) = Place(device), LINES[unit]
    codes, numbers = weights(rows, line, bits)

    found = mixed._dequantized(place(codes), None, dtype, MixedForm(rows, numbers.shape[1], bits, 1))

    np.testing.assert_array_equal(place.back(found).astype(np.float64), numbers)


@devices(*KINDS)
@dtypes(*ROUNDED)
@pytest.mark.parametrize("low", [False, True], ids=["rounded", "rest"])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("unit", [8, 1])
@pytest.mark.parametrize("bits", [8, 4])
def test_each_group_of_each_row_has_its_scale(
    device: Device, dtype: np.dtype[Any], bits: int, unit: int, groups: int, low: bool
) -> None:
    place, (rows, line) = Place(device), {8: (37, 24), 1: (300, 3 * bits // 4)}[unit]
    codes, numbers = weights(rows, line, bits)
    depth = numbers.shape[1]
    wide = compute_dtype(dtype)
    # Few bits, so that products are exact: a GPU may round a product and a difference once.
    scales = (np.random.default_rng(2026).integers(600, 4096, (rows, groups)) / 1024).astype(wide)

    found = mixed._dequantized(place(codes), place(scales), dtype, MixedForm(rows, depth, bits, groups), low=low)

    scaled = numbers * np.repeat(scales, depth // groups, axis=1)
    rounded = scaled.astype(dtype)
    wanted = (scaled - rounded.astype(wide)).astype(dtype) if low else rounded
    np.testing.assert_array_equal(place.back(found).astype(np.float64), wanted.astype(np.float64))
