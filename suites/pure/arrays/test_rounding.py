"""Rounding of float32 to narrower formats, against all their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cuassay.arrays.dtypes import FP8, HALVES, as_dtype, largest
from cuassay.arrays.rounding import narrowed, round_tf32, round_to, split
from cuassay.errors import ArgumentError, DTypeError

NARROW = (*HALVES, *FP8)
BITS = st.integers(0, 2**32 - 1).map(lambda bits: np.array(bits, dtype=np.uint32).view(np.float32))


def finite_numbers(name: str) -> NDArray[np.float32]:
    """Every finite number of the format, ascending, zero once."""
    dtype = as_dtype(name)
    raw = np.arange(2 ** (8 * dtype.itemsize), dtype=f"uint{8 * dtype.itemsize}")
    values = raw.view(dtype).astype(np.float32)
    return np.unique(values[np.isfinite(values)])


def identical(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Equal bit by bit, but for which NaN it is."""
    same = a.view(np.uint32) == b.view(np.uint32)
    return bool(np.all(same | (np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("name", NARROW)
def test_numbers_of_the_format_stay(name: str) -> None:
    values = finite_numbers(name)

    assert identical(round_to(values, name), values)


@pytest.mark.parametrize("name", NARROW)
def test_numbers_go_to_the_nearest_neighbour(name: str) -> None:
    values = finite_numbers(name)
    middle = (values[:-1].astype(np.float64) + values[1:]) / 2
    exact = middle.astype(np.float32) == middle
    low, high, tie = values[:-1][exact], values[1:][exact], middle[exact].astype(np.float32)

    assert identical(np.abs(round_to(np.nextafter(tie, np.float32(-np.inf)), name)), np.abs(low))
    assert identical(np.abs(round_to(np.nextafter(tie, np.float32(np.inf)), name)), np.abs(high))


@pytest.mark.parametrize("name", NARROW)
def test_ties_go_to_the_even_neighbour(name: str) -> None:
    values = finite_numbers(name)
    low, high = values[:-1], values[1:]
    tie = ((low.astype(np.float64) + high) / 2).astype(np.float32)
    tied = tie.astype(np.float64) * 2 == low.astype(np.float64) + high
    rounded = round_to(tie[tied], name).astype(as_dtype(name))

    assert set(np.unique(rounded.view(f"uint{8 * rounded.itemsize}") & 1)) == {0}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("special", [0.0, -0.0, np.nan])
def test_zeros_and_nan_stay(name: str, special: float) -> None:
    x = np.full(3, special, np.float32)

    assert identical(round_to(x, name), x)
    assert identical(round_to(x, name, saturate=True), x)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("float16", np.inf), ("bfloat16", np.inf), ("float8_e5m2", np.inf), ("float8_e4m3fn", np.nan)],
)
@pytest.mark.parametrize("x", [np.finfo(np.float32).max, np.inf])
def test_overflow_is_the_formats_own(name: str, expected: float, x: float) -> None:
    rounded = round_to(np.array([x, -x], np.float32), name)

    np.testing.assert_array_equal(rounded, np.array([expected, -expected], np.float32))


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("x", [np.finfo(np.float32).max, np.inf])
def test_saturation_gives_the_largest_finite_number(name: str, x: float) -> None:
    rounded = round_to(np.array([x, -x], np.float32), name, saturate=True)

    assert rounded.tolist() == [largest(name), -largest(name)]


@pytest.mark.parametrize(("x", "expected"), [(464.0, 448.0), (np.nextafter(np.float32(464), np.float32(1e9)), np.nan)])
def test_e4m3_overflows_past_half_a_step_above_its_largest(x: float, expected: float) -> None:
    np.testing.assert_array_equal(round_to(np.array([x], np.float32), "float8_e4m3fn"), [expected])


@given(x=BITS)
def test_tf32_is_the_nearest_number_of_ten_mantissa_bits(x: NDArray[np.float32]) -> None:
    rounded = round_tf32(x)
    with np.errstate(over="ignore"):  # after the largest number comes infinity
        step = np.spacing(np.abs(x)).astype(np.float64) * 2**13

    assert int(rounded.view(np.uint32)) & 0x1FFF == 0 or np.isnan(x)
    assert np.signbit(rounded) == np.signbit(x)
    if np.isfinite(rounded):
        assert abs(float(rounded) - float(x)) <= step / 2


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1 + 2**-11, 1.0),
        (1 + 3 * 2**-11, 1 + 2**-9),
        (1 + 2**-11 + 2**-23, 1 + 2**-10),
        (-1 - 3 * 2**-11, -1 - 2**-9),
        (2 - 2**-23, 2.0),
        (2.0**-149, 0.0),
        (2.0**-126 - 2.0**-149, 2.0**-126),
        (np.finfo(np.float32).max, np.inf),
        (-np.inf, -np.inf),
    ],
    ids=["tie-down", "tie-up", "above-tie", "negative", "carry", "denormal", "to-normal", "overflow", "infinity"],
)
def test_tf32_at_its_corners(x: float, expected: float) -> None:
    assert round_tf32(np.array([x], np.float32)).tolist() == [expected]


def test_tf32_keeps_every_nan() -> None:
    nans = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF], dtype=np.uint32).view(np.float32)

    assert np.isnan(round_tf32(nans)).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
@given(x=st.floats(-(2.0**120), 2.0**120, width=32).filter(lambda x: x == 0 or abs(x) > 2.0**-100))
def test_three_parts_hold_a_float32(dtype: str, x: float) -> None:
    parts = split(np.array([x], np.float32), dtype, 3)

    assert sum(float(part[0]) for part in parts) == x


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", 8), ("tf32", 11)])
@given(x=st.floats(2.0**-60, 2.0**60, width=32))
def test_each_part_leaves_a_smaller_rest(dtype: str, bits: int, x: float) -> None:
    first, second = split(np.array([x], np.float32), dtype, 2)

    assert abs(x - float(first[0])) <= x * 2.0**-bits
    assert abs(x - float(first[0]) - float(second[0])) <= x * 2.0 ** (-2 * bits)


@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_do_not_round_to_infinity(dtype: str, sign: int) -> None:
    x = sign * np.finfo(np.float32).max

    parts = split(np.array([x]), dtype, 3)

    assert np.isfinite(parts).all()
    assert sum(float(part[0]) for part in parts) == float(x)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_the_first_part_takes_what_is_not_finite(special: float) -> None:
    first, *rest = split(np.array([special], np.float32), "bfloat16", 3)

    np.testing.assert_array_equal(first, [special])
    assert [part.tolist() for part in rest] == [[0.0], [0.0]]


@pytest.mark.parametrize("call", [round_tf32, lambda x: round_to(x, "bfloat16"), lambda x: split(x, "tf32", 2)])
def test_rounding_starts_from_float32_alone(call: Callable[[Any], object]) -> None:
    with pytest.raises(DTypeError, match="got float64"):
        call(np.ones(2))


def test_integers_are_no_format_to_round_to() -> None:
    with pytest.raises(DTypeError, match="int8 is not a format"):
        round_to(np.ones(2, np.float32), "int8")


@pytest.mark.parametrize(("dtype", "parts"), [("float8_e5m2", 2), ("int8", 2), ("float32", 2), ("tf32", 0)])
def test_only_whole_parts_of_two_formats(dtype: str, parts: int) -> None:
    with pytest.raises(ArgumentError, match="give one or more of 'bfloat16' or 'tf32'"):
        split(np.ones(2, np.float32), dtype, parts)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_a_float64_is_narrowed_by_one_rounding(dtype: str) -> None:
    exact = np.arange(256, dtype=np.uint8) if dtype.startswith("float8") else np.arange(2**16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN
        held = finite(exact.view(as_dtype(dtype)).astype(np.float64))
    low, high = held[:-1], held[1:]
    middle = low + (high - low) / 2

    for side, wanted in ((np.nextafter(middle, -np.inf), low), (np.nextafter(middle, np.inf), high)):
        assert np.array_equal(narrowed(side, dtype).astype(np.float64), wanted)


def finite(values: Any) -> Any:
    return np.unique(values[np.isfinite(values)])
