"""Constants of a function: which are found, which are changed, and when the check says that one is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device, ops
from cuassay.testing import OpSpec, Tolerance
from cuassay.testing.generated.constants import changed, check_constants, variants
from cuassay.testing.generated.execution import REGISTERED

CPU = Device("cpu")

#: What a change multiplies a constant by.
LARGER = 1 + 2.0**-16


def effects(fn: Any, *args: Any, depth: int | None = None) -> list[tuple[float, Any]]:
    """Each constant of a function, with what the function gives when that constant is larger."""
    made = variants(fn) if depth is None else variants(fn, depth)
    return [(number, copy(*args)) for number, copy in made]


def numbers(fn: Any) -> list[float]:
    """The constants of a function, in order."""
    return [number for number, _ in variants(fn)]


def test_number_is_changed_by_a_power_of_two_of_itself() -> None:
    assert changed(3.0) == 3 + 3 * 2.0**-16
    assert changed(-0.5) == -0.5 - 2.0**-17


def test_each_constant_of_the_code_is_changed_alone() -> None:
    def fn(a: float) -> float:
        return a * 0.25 + 1.5

    assert effects(fn, 2.0) == [(0.25, 2.0 * 0.25 * LARGER + 1.5), (1.5, 2.0 * 0.25 + 1.5 * LARGER)]
    assert fn(2.0) == 2.0


def test_constants_of_inner_functions_are_changed() -> None:
    def fn(a: float) -> Any:
        def inner(b: float) -> float:
            return b + 0.75

        return inner(a) * 1.25

    assert sorted(effects(fn, 2.0)) == [(0.75, (2 + 0.75 * LARGER) * 1.25), (1.25, 2.75 * 1.25 * LARGER)]


def test_integers_truth_values_zeros_and_infinities_are_left_alone() -> None:
    infinity, nothing = float("inf"), float("nan")

    def fn(a: float) -> Any:
        return (a + 3) * 0.0, True, 1e999, infinity, nothing, "0.5"

    assert effects(fn, 2.0) == []


def test_variables_that_a_function_closes_over_are_changed_one_by_one() -> None:
    one, other, many = 0.25, 1.5, 7

    def fn(a: float) -> float:
        return a * one + other + many

    assert effects(fn, 2.0) == [(0.25, 0.5 * LARGER + 8.5), (1.5, 0.5 + 1.5 * LARGER + 7)]


def test_variable_that_is_not_set_yet_is_left_alone() -> None:
    def fn(a: float) -> float:
        return a * 0.5 + later

    assert numbers(fn) == [0.5]
    later = 1.5
    assert numbers(fn) == [0.5, later]


GLOBAL = 0.375
COUNT = 5


def of_global(a: float) -> float:
    return a * GLOBAL + COUNT


def test_globals_are_changed_in_the_copy_only() -> None:
    assert effects(of_global, 2.0) == [(0.375, 0.75 * LARGER + 5)]
    assert (of_global(2.0), GLOBAL) == (5.75, 0.375)


def first(a: float) -> float:
    return a + 0.5


def second(a: float) -> float:
    return first(a) * 2.5


def third(a: float) -> float:
    return second(a) - 3.5


def test_functions_that_are_called_are_followed_to_a_depth() -> None:
    own = (3.5, 4.5 * 2.5 - 3.5 * LARGER)
    called = (2.5, 4.5 * (2.5 * LARGER) - 3.5)
    deepest = (0.5, (4 + 0.5 * LARGER) * 2.5 - 3.5)

    assert effects(third, 4.0, depth=0) == [own]
    assert effects(third, 4.0, depth=1) == [own, called]
    assert effects(third, 4.0, depth=2) == [own, called, deepest]


def fourth(a: float) -> float:
    return third(a) * 4.5


def fifth(a: float) -> float:
    return fourth(a) + 5.5


def test_three_calls_are_followed() -> None:
    assert numbers(fifth) == [5.5, 4.5, 3.5, 2.5]


def endless(a: float) -> float:
    return endless(a - 1) * 6.5 if a > 0 else a


def test_function_that_calls_itself_is_followed_to_the_same_depth() -> None:
    assert numbers(endless) == [6.5] * 4


def test_functions_of_other_modules_are_left_alone() -> None:
    def inner(a: float) -> float:
        return a + 0.5

    def fn(a: float) -> float:
        return inner(a) * 2.5

    assert numbers(fn) == [2.5, 0.5]
    inner.__module__ = "elsewhere"
    assert numbers(fn) == [2.5]


def test_copy_keeps_defaults_name_and_closure() -> None:
    shift = 7

    def fn(a: float, b: float = 3.0, *, c: float = 4.0) -> float:
        return (a + b + c + shift) * 0.5

    function: Any = fn
    ((number, copy),) = variants(function)

    assert (number, copy.__name__) == (0.5, "fn")
    assert copy(2.0) == 16 * 0.5 * LARGER
    assert copy(2.0, 5.0, c=6.0) == 20 * 0.5 * LARGER


# ------------------------------------------------------------------------------------------------ the check


def said(wrong: Any, reference: Any, **declared: Any) -> str:
    """What the check says; empty if it passes."""
    spec = OpSpec(**{
        "fn": wrong, "reference": reference, "name": "constant", "dtypes": ("float32",),
        "samples": lambda make: [make(40)], **declared,
    })  # fmt: skip
    try:
        check_constants(spec, CPU)
    except AssertionError as error:
        return str(error)
    return ""


def scaled(factor: float) -> Callable[..., Any]:
    def fn(xp: Any, a: Any) -> Any:
        return xp.exp(a) * factor + 1.0

    return fn


def exact(a: Any) -> Any:
    return np.exp(a) * 0.7 + 1.0


def test_wrong_constant_is_named_with_the_right_one() -> None:
    told = said(scaled(0.70001), exact)

    assert told.startswith("the constant 0.70001 is wrong: with 0.7 the function agrees with the reference\n")
    assert "relative error 1.4e-05, where that of rounding to float32 is at most 6e-08" in told
    assert told.endswith("sample: 0: shape 40")


@pytest.mark.parametrize(
    ("relative", "is_wrong"),
    [
        pytest.param(0, False, id="right"),
        pytest.param(1.4 * 2.0**-23, False, id="rounded"),
        pytest.param(1.6 * 2.0**-23, True, id="more than rounded"),
        pytest.param(-1.6 * 2.0**-23, True, id="too small"),
        pytest.param(1.02e-4, True, id="off"),
        pytest.param(1.15e-4, False, id="fails in float32 as well"),
    ],
)
def test_constant_is_wrong_if_it_is_off_by_more_than_rounding(relative: float, is_wrong: bool) -> None:
    assert (said(scaled(0.7 * (1 + relative)), exact) != "") is is_wrong


@pytest.mark.parametrize(("off", "is_wrong"), [(0.9e-3, True), (1.1e-3, False)])
def test_constant_that_is_far_off_is_another_one(off: float, is_wrong: bool) -> None:
    small = 0.01 * (1 + off)  # its error is small next to the result

    def fn(xp: Any, a: Any) -> Any:
        return xp.sin(a) * small + 1.0

    assert (said(fn, lambda a: np.sin(a) * 0.01 + 1.0) != "") is is_wrong


def test_errors_are_relative_to_the_largest_result_of_either_sign() -> None:
    def fn(xp: Any, a: Any) -> Any:
        return -xp.exp(a) * 1000.0 + xp.sin(a) * 1.001

    assert said(fn, lambda a: -np.exp(a) * 1000 + np.sin(a)).startswith("the constant 1.001 is wrong: with 1 ")


@pytest.mark.parametrize(("off", "is_wrong"), [(0.9e-10, False), (1.1e-10, True)])
def test_small_relative_errors_are_rounding(off: float, is_wrong: bool) -> None:
    part = 1e-6 * (1 + 1e6 * off)  # off by more than its rounding, and the result by `off`

    def fn(xp: Any, a: Any) -> Any:
        return a * part + xp.where(a == a.max(), 1.0, 0.0)

    assert (
        said(fn, lambda a: a * 1e-6 + (a == a.max()), samples=lambda make: [make.of([*[-1.0] * 9, 1.0])]) != ""
    ) is is_wrong


def test_check_runs_the_largest_sample_of_at_most_4096_elements() -> None:
    told = said(scaled(0.70001), exact, samples=lambda make: [make(4), make(4097), make(4096)])

    assert told.endswith("sample: 2: shape 4096")


def test_error_that_no_constant_explains_is_not_reported() -> None:
    def fn(xp: Any, a: Any) -> Any:
        return xp.exp(a) * 0.7 + 1.0 + 1e-5 * xp.sin(40 * a)

    assert said(fn, exact) == ""


@pytest.mark.parametrize(("count", "is_wrong"), [(0, False), (7, False), (8, True)])
def test_eight_results_tell_constants_apart(count: int, is_wrong: bool) -> None:
    found = said(scaled(0.70001), exact, samples=lambda make: [make(count, low=0, high=1)])

    assert (found != "") is is_wrong


@pytest.mark.parametrize("most", [100.0, -100.0, 0.01], ids=str)
@pytest.mark.parametrize(
    ("count", "least", "is_wrong"),
    [
        pytest.param(7, 0.0, False, id="seven"),
        pytest.param(8, 0.0, True, id="eight"),
        pytest.param(7, 0.019, False, id="seven, the others a little"),
        pytest.param(7, 0.021, True, id="all of them"),
    ],
)
def test_eight_results_must_depend_on_the_constant(count: int, least: float, is_wrong: bool, most: float) -> None:
    def weights(a: Any) -> Any:
        return np.where(np.arange(a.size) < count, most, most * least)

    def fn(xp: Any, a: Any) -> Any:
        return weights(a) * 0.70001

    assert (said(fn, lambda a: weights(a) * 0.7) != "") is is_wrong


def test_result_at_a_fiftieth_of_the_largest_dependence_does_not_count() -> None:
    def weights(a: Any) -> Any:
        return np.where(np.arange(a.size) < 7, 50.0, 1.0)

    def fn(xp: Any, a: Any) -> Any:
        return weights(a) * 0.75

    assert said(fn, lambda a: weights(a) * 0.75001) == ""


@pytest.mark.parametrize(("part", "is_wrong"), [(0.0195, True), (0.0205, False)])
def test_constant_explains_all_but_a_fiftieth_of_the_error(part: float, is_wrong: bool) -> None:
    rest = 1e-5 * part  # the same for all results, where the constant's own error has both signs

    def fn(xp: Any, a: Any) -> Any:
        return a * 0.70001 + rest

    assert (said(fn, lambda a: a * 0.7, samples=lambda make: [make.of([1.0, -1.0] * 8)]) != "") is is_wrong


def test_infinite_results_do_not_count() -> None:
    def with_gaps(a: Any, numbers: Any) -> Any:
        gaps = np.array([np.inf, np.nan, -np.inf, 0, 0, 0, 0, 0])
        places = np.arange(a.size) % 8
        return np.where(places < 3, gaps[places], numbers)

    def fn(xp: Any, a: Any) -> Any:
        return with_gaps(a, xp.exp(a) * 7.0001e-9)

    assert said(fn, lambda a: with_gaps(a, np.exp(a) * 7e-9)).startswith(
        "the constant 7.0001e-09 is wrong: with 7e-09 "
    )


def test_function_may_give_nan_with_a_warning() -> None:
    def fn(xp: Any, a: Any) -> Any:
        return xp.log(a) * 0.70001

    assert said(fn, lambda a: np.log(a) * 0.7).startswith("the constant 0.70001 is wrong: with 0.7 ")


def test_function_gets_the_numbers_of_float32_in_float64() -> None:
    seen: list[Any] = []

    def fn(xp: Any, a: Any) -> Any:
        seen.append(a)
        return a * 0.7

    assert said(fn, lambda a: a * 0.7) == ""
    assert seen[-1].dtype == np.float64
    assert (seen[-1] == seen[-1].astype(np.float32)).all()
    assert (seen[-1] != seen[-1].astype(np.float16)).any()


def rejects_float64(xp: Any, a: Any) -> Any:
    if a.dtype != np.float32:
        raise TypeError("float32 only")
    return xp.exp(a) * 0.70001 + 1.0


def always_float32(xp: Any, a: Any) -> Any:
    return (xp.exp(a) * 0.70001 + 1.0).astype("float32")


def of_another_shape(xp: Any, a: Any) -> Any:
    return (xp.exp(a) * 0.70001 + 1.0)[:-1]


def mean(xp: Any, a: Any) -> Any:
    return xp.mean(xp.exp(a)) * 0.70001


class WithoutCode:
    def __call__(self, xp: Any, a: Any) -> Any:
        return xp.exp(a) * 0.70001 + 1.0


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        pytest.param(rejects_float64, exact, id="rejects float64"),
        pytest.param(always_float32, exact, id="gives float32"),
        pytest.param(of_another_shape, exact, id="gives another shape"),
        pytest.param(mean, lambda a: np.mean(np.exp(a)) * 0.7, id="gives one number"),
        pytest.param(WithoutCode(), exact, id="has no code"),
        pytest.param(lambda xp, a: a * 0.0, lambda a: a * 0.0, id="gives zeros"),
    ],
)
def test_function_that_cannot_be_judged_passes(fn: Any, reference: Any) -> None:
    assert said(fn, reference) == ""


def test_constant_whose_change_changes_the_shape_is_skipped() -> None:
    def fn(xp: Any, a: Any) -> Any:
        return xp.exp(a[: int(a.size / 40.0 * 40)]) * 0.70001 + 1.0

    assert said(fn, exact).startswith("the constant 0.70001 is wrong")


def test_function_that_does_not_support_float32_on_the_device_passes() -> None:
    assert said(scaled(0.70001), exact, unclaimed={"cpu": ("float32",)}) == ""


@pytest.mark.parametrize(
    ("declared", "applies"),
    [
        pytest.param({}, True, id="float32"),
        pytest.param({"dtypes": ("float16", "float32")}, True, id="float16 and float32"),
        pytest.param({"dtypes": ("float32", "float64")}, False, id="float64 as well"),
        pytest.param({"dtypes": ("float16",)}, False, id="float16"),
        pytest.param({"reference": None}, False, id="no reference"),
        pytest.param({"tolerance": Tolerance(ulps=8)}, False, id="a tolerance"),
    ],
)
def test_check_is_of_functions_of_float32_with_a_reference(declared: Any, applies: bool) -> None:
    spec = OpSpec(**{"fn": scaled(0.7), "reference": exact, "dtypes": ("float32",), **declared})

    assert REGISTERED["constants"].applies(spec) is applies


def test_check_is_not_of_ops() -> None:
    assert not REGISTERED["constants"].applies(OpSpec(op=ops.exp, reference=np.exp, dtypes=("float32",)))
