"""Numbers that a function names: which are found, and what is wrong exactly at one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.named import named_numbers

Function = Callable[..., Any]

KNEE, SLOPES = 2.5, (0.25, 7)


def helper(a: Any) -> Any:
    return a * 11.0


def combined(fn: Function, dtype: str = "float32", **declared: Any) -> None:
    CHECKS["combined"](OpSpec(fn=fn, name="f", dtypes=(dtype,), **declared), "cpu:0", np.dtype(dtype))


def test_numbers_of_code_defaults_closures_globals_helpers_options_and_the_reference() -> None:
    inside = 13

    def fn(xp: Any, a: Any, k: int = 3, *, kept: float = 37.5) -> Any:
        def within(b: Any) -> Any:
            return b + 17

        return within(helper(a)) * inside + KNEE * SLOPES[1] + k + kept + -5

    spec = OpSpec(fn=fn, reference=lambda a, k=3, pair=(): a + 19)

    named = named_numbers(spec, Sample((np.ones(3),), {"k": 29, "pair": (31, 0.5), "mode": "same"}))

    assert {3, 5, 7, 11.0, 13, 17, 19, 29, 31, 37.5, 0.5, 2.5, 0.25} <= {abs(one) for one in named}
    assert not {0, 1, -1} & set(named)
    assert named == sorted(set(named))


def test_an_op_a_builtin_and_an_unset_variable_name_none() -> None:
    def outer() -> Function:
        later = 23

        def fn(xp: Any, a: Any) -> Any:
            return a if a.size else later  # noqa: F821  it is deleted below, so that the function closes over nothing

        del later
        return fn

    assert named_numbers(OpSpec(fn=outer(), reference=np.negative), Sample((np.ones(3),))) == []


def hard_shrink(kept: str) -> Function:
    def fn(xp: Any, a: Any, bound: float = 0.5) -> Any:
        return xp.where(abs(a) > bound if kept == "above" else abs(a) >= bound, a, 0).astype(a.dtype)

    return fn


def shrunk(a: Any, bound: float = 0.5) -> Any:
    return np.where(np.abs(a) > bound, a, 0.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("samples", [
    lambda make: [make(40)],
    lambda make: [Sample((make((3, 9), low=-4, high=4),), {"bound": 0.75})],
])  # fmt: skip
def test_a_number_that_is_the_bound_itself(dtype: str, samples: Any) -> None:
    combined(hard_shrink("above"), dtype, samples=samples, reference=shrunk)
    with pytest.raises(AssertionError, match="wrong for a number of the function's code") as told:
        combined(hard_shrink("from"), dtype, samples=samples, reference=shrunk)
    assert "numbers from the function's code" in str(told.value)


def test_a_bound_that_float32_rounds_is_left_out() -> None:
    """0.1 in float32 is more than 0.1: what float64 says of it is another question."""
    declared: Any = {"samples": lambda make: [make(40, low=0, high=1)], "reference": lambda a: np.where(a > 0.1, a, 0)}

    combined(lambda xp, a: xp.where(a > np.float32(0.1), a, 0).astype(a.dtype), **declared)


def test_a_number_outside_of_the_range_is_not_asked_for() -> None:
    def fn(xp: Any, a: Any) -> Any:
        assert float(a.max()) < 2.0
        return xp.where(a > 3.5, 0, a).astype(a.dtype)

    combined(fn, samples=lambda make: [make(40, low=0, high=1.5)], reference=lambda a: np.array(a))


def test_integers_next_to_multiples_of_what_the_function_names() -> None:
    """Days of nanoseconds, where float64 rounds up to the next one."""
    day = 86_400 * 10**9

    def declared(make: Any) -> list[Any]:
        return [make(40, low=0, high=2**60)]

    combined(lambda xp, a: a // day, "int64", samples=declared, reference=lambda a: a // day)
    with pytest.raises(AssertionError, match="wrong for a number of the function's code"):
        combined(
            lambda xp, a: xp.floor(a / day).astype("int64"), "int64", samples=declared, reference=lambda a: a // day
        )


def test_numbers_below_a_power_of_two_where_a_logarithm_is_taken() -> None:
    """In float32 the logarithm of the number below 8 is that of 8."""
    declared: Any = {
        "samples": lambda make: [make(64, low=0.1, high=500)],
        "reference": lambda a: np.frexp(a)[1] - 1 + 0 * np.log2(a).astype("int64"), "result_dtype": "int64",
    }  # fmt: skip

    combined(lambda xp, a: xp.frexp(a)[1].astype("int64") - 1, **declared)
    with pytest.raises(AssertionError, match="wrong for a number of the function's code"):
        combined(lambda xp, a: xp.floor(xp.log2(a)).astype("int64"), **declared)
