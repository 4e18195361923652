"""Which numbers and which code a function names, and which of its names tell what it is meant for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuassay.testing import Sample
from cuassay.testing.generated import mentions
from cuassay.testing.generated.named import codes_of, content_of, named_numbers

Function = Callable[..., Any]

KNEE, SLOPES, WORD = 41, (43, "tail", 47), "none"


def numbers(fn: Any, reference: Any = None, **options: Any) -> list[float]:
    """The numbers that a call of this function names; an `OpSpec` would run the function."""
    spec: Any = SimpleNamespace(fn=fn, reference=reference)
    return named_numbers(spec, Sample((np.ones(3), 53), options))


def foreign(fn: FunctionType, **globals_: Any) -> FunctionType:
    """The function with other globals, as if another module had defined it."""
    return FunctionType(fn.__code__, {"__name__": "elsewhere", **globals_}, fn.__name__)


# ------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (0, []), (1, []), (-1, []), (0.0, []), (-1.0, []), (2, [2]), (-2, [-2]), (0.5, [0.5]), (-0.5, [-0.5]),
        (2**62 - 1, [2**62 - 1]), (2**62, []), (-(2**62), []), (1 - 2**62, [1 - 2**62]), (2.0**61, [2.0**61]),
        (2.0**62, []), (float("inf"), []), (True, []), ("3", []), (None, []), (3j, []), ([3], []),
        ((3, "4", 5.5, 1), [3, 5.5]), (((3,),), []), (np.float64(3), []),
    ],
    ids=str,
)  # fmt: skip
def test_numbers_of_an_option_are_named(given: Any, found: list[float]) -> None:
    assert numbers(lambda xp, a: a, k=given) == found


def test_numbers_are_sorted_and_named_once() -> None:
    assert numbers(lambda xp, a: a * 7 + 2, lambda a: a * 7 - 3, k=(5, 7), n=2) == [2, 3, 5, 7]


def positional(xp: Any, a: Any, k: int = 3, l: Any = (5, 7)) -> Any:  # noqa: E741
    return a


def by_name(xp: Any, a: Any, *, k: int = 11, l: Any = (13, 17)) -> Any:  # noqa: E741
    return a


def helper(a: Any, k: int = 19) -> Any:
    return a * 23


def calling(xp: Any, a: Any) -> Any:
    return helper(a)


def using_globals(xp: Any, a: Any) -> Any:
    return a * KNEE + SLOPES[0] if WORD else a


def recursive(xp: Any, a: Any) -> Any:
    return recursive(xp, a - 29) if a.size else a


def nested(xp: Any, a: Any) -> Any:
    def inner(b: Any) -> Any:
        return b * 59

    return inner(a)


def closing_over(value: Any) -> Function:
    return lambda xp, a: a if value is None else value


@pytest.mark.parametrize(
    ("fn", "found"),
    [
        pytest.param(positional, [3, 5, 7], id="defaults"),
        pytest.param(by_name, [11, 13, 17], id="keyword defaults"),
        pytest.param(calling, [19, 23], id="a helper"),
        pytest.param(using_globals, [41, 43, 47], id="globals"),
        pytest.param(recursive, [29], id="itself"),
        pytest.param(closing_over(31), [31], id="a closure"),
        pytest.param(closing_over((31, 37)), [31, 37], id="a tuple of a closure"),
        pytest.param(closing_over(helper), [19, 23], id="a helper of a closure"),
        pytest.param(closing_over(foreign(helper)), [], id="a function of another module"),
        pytest.param(nested, [59], id="a nested function"),
        pytest.param(functools.partial(calling, 67, b=71), [19, 23, 67, 71], id="a partial call"),
        pytest.param(np.negative, [], id="no Python code"),
        pytest.param(None, [], id="nothing"),
    ],
)
def test_numbers_of_a_function_and_its_reference_are_named(fn: Any, found: list[float]) -> None:
    assert numbers(fn) == found
    assert numbers(lambda xp, a: a, fn) == found


def test_numbers_of_a_helper_that_function_and_reference_share_are_named_once() -> None:
    assert numbers(calling, lambda a: helper(a) * 61) == [19, 23, 61]


# ------------------------------------------------------------------------------------------------ code


def names(function: Any) -> list[str]:
    return sorted(code.co_name for code in codes_of(function))


def nesting(a: Any) -> Any:
    def outer(b: Any) -> Any:
        def inner(c: Any) -> Any:
            return c

        return inner(b)

    return outer(a)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        pytest.param(helper, ["helper"], id="one"),
        pytest.param(calling, ["calling", "helper"], id="a helper"),
        pytest.param(nesting, ["inner", "nesting", "outer"], id="nested"),
        pytest.param(recursive, ["recursive"], id="itself"),
        pytest.param(closing_over(helper), ["<lambda>", "helper"], id="a closure"),
        pytest.param(closing_over(foreign(helper)), ["<lambda>"], id="a function of another module"),
        pytest.param(foreign(calling, helper=helper), ["calling"], id="a global of another module"),
        pytest.param(functools.partial(calling, 67), ["calling", "helper"], id="a partial call"),
        pytest.param(closing_over(functools.partial(helper, 3)), ["<lambda>", "helper"], id="a closure over one"),
        pytest.param(np.negative, [], id="no Python code"),
        pytest.param(None, [], id="nothing"),
    ],
)
def test_code_of_a_function_and_of_those_that_it_uses(function: Any, found: list[str]) -> None:
    assert names(function) == found


def test_content_of_a_variable_that_is_not_set_is_none() -> None:
    def outer() -> Any:
        def fn() -> Any:
            return early, later  # noqa: F821  it is deleted below, so that its variable is empty

        early, later = 67, 71
        del later
        return fn

    cells = dict(zip(outer().__code__.co_freevars, outer().__closure__, strict=True))

    assert {name: content_of(cell) for name, cell in cells.items()} == {"early": 67, "later": None}


# ------------------------------------------------------------------------------------------------ what names tell


def nan_mean(a: Any) -> Any:
    return np.nanmean(a)


def within(a: Any) -> Any:
    def outer(b: Any) -> Any:
        def inner(c: Any) -> Any:
            return np.isnan(c)

        return inner(b)

    return outer(a)


@pytest.mark.parametrize(
    ("reference", "nan", "finite", "tests", "angles"),
    [
        pytest.param(nan_mean, True, True, False, False, id="nanmean"),
        pytest.param(within, True, True, True, False, id="isnan in a nested function"),
        pytest.param(lambda a: np.isfinite(a), False, True, True, False, id="isfinite"),
        pytest.param(lambda a: np.fmax(a, 0), True, True, False, False, id="fmax"),
        pytest.param(lambda a: np.fmin(a, 0), True, True, False, False, id="fmin"),
        pytest.param(lambda a: np.fmod(a, 2), False, False, False, False, id="fmod"),
        pytest.param(lambda a: a * np.pi, False, False, False, True, id="pi"),
        pytest.param(lambda a: np.piecewise(a, [], []), False, False, False, False, id="part of a name"),
        pytest.param(lambda a: np.fft.fft(a), False, False, False, True, id="fft"),
        pytest.param(lambda a: a.irfft2(), False, False, False, True, id="irfft2"),
        pytest.param(np.isnan, True, True, True, False, id="no Python code, isnan"),
        pytest.param(functools.partial(within), True, True, True, False, id="a partial call"),
        pytest.param(functools.partial(np.isfinite), False, True, True, False, id="a partial call of no Python code"),
        pytest.param(np.isfinite, False, True, True, False, id="no Python code, isfinite"),
        pytest.param(np.negative, False, False, False, False, id="no Python code"),
        pytest.param(None, False, False, False, False, id="nothing"),
    ],
)
def test_names_tell_what_a_reference_is_meant_for(
    reference: Any, nan: bool, finite: bool, tests: bool, angles: bool
) -> None:
    assert mentions.names_nan(reference) is nan
    assert mentions.names_finite(reference) is finite
    assert mentions.tests_nan(reference) is tests
    assert mentions.names_angles(reference) is angles


def test_names_are_those_of_nested_functions_too() -> None:
    assert mentions.names_of(within) == {"np", "isnan"}
    assert mentions.names_of(np.negative) == {"negative"}
    assert mentions.names_of(None) == {""}
