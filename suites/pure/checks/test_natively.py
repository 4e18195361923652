"""Where a reference in the dtype itself decides."""

from __future__ import annotations

import numpy as np
import pytest

from cuassay.testing.generated.natively import decided, with_number

EPS = 2.0**-23


@pytest.mark.parametrize(
    ("narrow", "expected", "size", "is_decided"),
    [
        (1 + 64 * EPS, 1.0, 1.0, True),
        (1 + 65 * EPS, 1.0, 1.0, False),
        (1 - 65 * EPS, 1.0, 1.0, False),
        (1 + 65 * EPS, 1.0, 2.0, True),
        (np.inf, 1.0, 1.0, False),
        (1.0, np.nan, 1.0, False),
        (1j, 1j, 1.0, True),
        (2j, 1j, 1.0, False),
    ],
)
def test_a_narrow_answer_decides_where_it_is_off_by_rounding_only(
    narrow: complex, expected: complex, size: float, is_decided: bool
) -> None:
    kind, wide = (np.complex64, np.complex128) if isinstance(narrow, complex) else (np.float32, np.float64)
    found = decided(np.array([narrow], kind), np.array([expected], wide), "float32", size)

    assert found.tolist() == [is_decided]


@pytest.mark.parametrize(("size", "part", "place"), [(9, 1 / 3, 3), (9, 0.5, 4), (1, 0.5, 0), (9, 1.0, 8), (9, 0.0, 0)])
def test_a_number_is_put_behind_a_part_of_the_others(size: int, part: float, place: int) -> None:
    array = np.zeros((1, size))

    assert np.flatnonzero(with_number(7.0, part)(array)).tolist() == [place]
    assert not array.any()
    assert np.flatnonzero(with_number(7.0)(np.zeros(9))).tolist() == [3]
