"""The table of tolerances: what it says of dtypes, growth and precision modes."""

from __future__ import annotations

import numpy as np
import pytest

from cuassay import precision
from cuassay.core.capability import OP_CLASSES
from cuassay.core.precision import MODES
from cuassay.errors import SpecError
from cuassay.testing import Tolerance
from cuassay.testing.rounding_error import RoundingError
from cuassay.testing.tolerance import (
    BY_CLASS,
    GENERAL,
    GROWTH,
    MODE_EPS,
    allowed,
    by_rounding_error,
    finite_size,
    largest_size,
)

ONE = np.ones(1)


def test_every_class_of_operation_has_a_tolerance() -> None:
    assert set(BY_CLASS) == set(OP_CLASSES)


def test_every_listed_mode_exists() -> None:
    assert set(MODE_EPS) < set(MODES)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64"])
def test_exact_dtypes_get_no_tolerance(dtype: str) -> None:
    assert allowed(BY_CLASS["reduction"], dtype, terms=1000, magnitude=ONE) == 0


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "bfloat16", "float16"])
def test_narrow_floats_get_what_float32_gets(dtype: str) -> None:
    rule = BY_CLASS["elementwise"]

    assert allowed(rule, dtype, terms=1, magnitude=ONE) == allowed(rule, "float32", terms=1, magnitude=ONE)


def test_a_function_of_unknown_steps_is_judged_by_its_own_dtype() -> None:
    assert allowed(GENERAL, "bfloat16", terms=1, magnitude=ONE) > 2**-8


@pytest.mark.parametrize(("growth", "factor"), [("none", 1.0), ("sqrt", 32.0), ("linear", 1024.0)])
def test_growth_follows_the_number_of_terms(growth: str, factor: float) -> None:
    assert GROWTH[growth](1024) == factor
    assert GROWTH["sqrt"](0) == 1


@pytest.mark.parametrize(("mode", "bits"), [("tf32", 10), ("fp16", 10), ("bf16", 7), ("bf16x3", 16)])
def test_each_precision_mode_has_as_many_bits_as_its_operands_keep(mode: str, bits: int) -> None:
    rule = BY_CLASS["matmul"]
    ieee = allowed(rule, "float32", terms=16, magnitude=ONE, matmul=True)
    with precision(mode):
        widened = allowed(rule, "float32", terms=16, magnitude=ONE, matmul=True)

    assert widened - ieee == pytest.approx(2.0**-bits)


def test_tf32_widens_float32_products_only() -> None:
    rule = BY_CLASS["matmul"]
    ieee = allowed(rule, "float32", terms=16, magnitude=ONE, matmul=True)
    with precision("tf32"):
        widened = allowed(rule, "float32", terms=16, magnitude=ONE, matmul=True)
        double = allowed(rule, "float64", terms=16, magnitude=ONE, matmul=True)

    assert widened > 2**-10 > ieee > double


def test_a_composition_may_round_more_than_once() -> None:
    once, twice = (allowed(Tolerance(ulps=0, roundings=n), "bfloat16", terms=1, magnitude=ONE) for n in (1, 2))

    assert (once, twice) == (0, 2**-8)


@pytest.mark.parametrize("wrong", [{"ulps": -1}, {"ulps": float("nan")}, {"ulps": 1, "growth": "square"}])
def test_a_tolerance_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="finite ulps >= 0"):
        Tolerance(**wrong)


def test_the_size_of_what_is_not_finite_is_zero() -> None:
    assert finite_size([-2, np.inf, -np.inf, np.nan, 3 + 4j]).tolist() == [2, 0, 0, 0, 5]
    assert finite_size([-2, np.inf]).tolist() == [2, 0]
    assert [largest_size(numbers) for numbers in ([-2, np.inf, 1], [np.nan], [], True, -3)] == [2, 0, 0, 1, 3]


@pytest.mark.parametrize(
    ("rounding", "inputs", "terms", "passed", "limit"),
    [
        pytest.param(0.125, 0.0, 1, 1e6, 3 * 0.125, id="three times its own errors"),
        pytest.param(0.0, 0.125, 1, 0.0, 2 * 0.125, id="two units of the inputs"),
        pytest.param(9.0, 0.125, 1, 0.0, (4 + 1) * 0.125, id="five roundings of the inputs at most"),
        pytest.param(9.0, 0.0, 16, 128.0, (4 + 4) * 2.0**-10 * 128, id="more of a sum"),
    ],
)
def test_rounding_explains_what_it_does_to_a_function_on_the_host(
    rounding: float, inputs: float, terms: int, passed: float, limit: float
) -> None:
    zero = np.zeros(1)
    found = by_rounding_error(RoundingError(rounding, inputs), "float16", zero, terms, zero, np.array([-passed]))

    assert found[0] == pytest.approx(limit, rel=1e-6)


def test_sums_in_sixteen_bits_are_held_to_float32() -> None:
    exact, ones = RoundingError(0.0, 0.0), np.ones(1)
    few, many = (by_rounding_error(exact, "float16", ones, terms, ones, ones)[0] for terms in (1, 64))

    assert few == pytest.approx(8 * 2.0**-10 + 8 * 2.0**-23)
    assert many - few == pytest.approx(8 * (8 - 1) * 2.0**-23)


@pytest.mark.parametrize("ulps", [np.inf, np.nan, -1.0])
def test_units_of_a_tolerance_are_a_finite_number(ulps: float) -> None:
    with pytest.raises(SpecError, match="finite ulps >= 0"):
        Tolerance(ulps=ulps)
