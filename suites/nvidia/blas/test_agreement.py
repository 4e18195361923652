"""The kernel that says how far a result is from a right one: what each block finds, and what it leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_places import KINDS, Place

from cuassay import Device
from cuassay.arrays.dtypes import as_dtype
from cuassay.testing import devices, dtypes

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.devices.cuda.launch.launch import kernel

COUNT, BLOCKS = 1_300, 3

#: Which of the blocks of 256 threads compares an element.
OWNERS = np.arange(COUNT) // 256 % BLOCKS


def compared(
    device: Device, got: Any, expected: Any, relative: float = 0.0, dtype: Any = "float32", blocks: int = 1
) -> tuple[list[float], ...]:
    """By block: the largest excess, the sum of squares, and how many elements it counted."""
    place = Place(device)
    a, b = (place(np.asarray(one).astype(as_dtype(dtype))) for one in (got, expected))
    found = place(np.full((3, blocks), -1.0))
    kernel("agreement.cu", f"compare<{as_dtype(dtype).name}>")(blocks, 256, (a, b, found, a.size, relative))
    excess, squares, elements = place.back(found).tolist()
    return excess, squares, elements


@devices(*KINDS)
@dtypes("bfloat16", "float16", "float32", "float64")
@pytest.mark.parametrize("at", [0, 31, 128, 255, 256, 700, COUNT - 1])
def test_each_block_finds_the_worst_of_its_elements(device: Device, dtype: np.dtype[Any], at: int) -> None:
    expected = np.where(np.arange(COUNT) % 2, 4.0, -8.0)
    got = expected + 0.5
    got[at] += 7.0

    excess, squares, elements = compared(device, got, expected, 0.0625, dtype, BLOCKS)

    away = np.abs(got - expected) - 0.0625 * np.abs(expected)
    own = [np.flatnonzero(block == OWNERS) for block in range(BLOCKS)]
    assert excess == [away[places].max() for places in own]
    assert squares == [(expected[places] ** 2).sum() for places in own]
    assert elements == [places.size for places in own]


@devices(*KINDS)
def test_what_is_within_the_relative_error_is_no_excess(device: Device) -> None:
    assert compared(device, [1.0, 103.0], [1.0, 100.0], relative=0.0625) == ([0.0], [10_001.0], [2.0])


@devices(*KINDS)
def test_equal_infinities_and_gaps_count_in_no_sum(device: Device) -> None:
    values = [np.nan, np.inf, -np.inf, 3.0]

    assert compared(device, values, values, relative=0.5) == ([0.0], [9.0], [1.0])


@devices(*KINDS)
@pytest.mark.parametrize(
    ("got", "expected"),
    [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (1.0, np.inf), (-np.inf, 1.0), (np.nan, np.inf)],
    ids=str,
)
def test_a_lone_nan_or_infinity_is_an_infinite_excess(device: Device, got: float, expected: float) -> None:
    excess, squares, elements = compared(device, [got, 2.0], [expected, 2.0], relative=0.5)

    of_first = [expected**2] if np.isfinite(expected) else []
    assert excess == [np.inf]
    assert (squares, elements) == ([sum(of_first, 4.0)], [1.0 + len(of_first)])


@devices(*KINDS)
def test_float64_is_compared_in_float64(device: Device) -> None:
    """Neither the difference nor the sum of squares fits in float32."""
    expected = [8193.0, 1.0]
    got = [8193.0 + 3 * 2.0**-36, 1.0]

    assert compared(device, got, expected, dtype="float64") == ([3 * 2.0**-36], [8193.0**2 + 1.0], [2.0])
