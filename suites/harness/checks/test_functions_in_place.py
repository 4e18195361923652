"""Functions that work in place, and those that take `out=`: what is asked of them, and that right ones pass it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fault_sets import run_check

from cuassay.errors import SpecError
from cuassay.testing import OpSpec

IN_PLACE = {"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"}
KINDS = ["cpu", "sim"]


def clip_(xp: Any, a: Any) -> Any:
    xp.clip(a, -1, 1, out=a)
    return a


def clip(xp: Any, a: Any) -> Any:
    return xp.clip(a, -1, 1)


def clip_without_return(xp: Any, a: Any) -> None:
    xp.clip(a, -1, 1, out=a)


def into(xp: Any, a: Any, out: Any = None) -> Any:
    return xp.clip(a, -1, 1) if out is None else xp.clip(a, -1, 1, out=out)


def into_without_return(xp: Any, a: Any, out: Any = None) -> Any:
    if out is None:
        return xp.clip(a, -1, 1)
    xp.clip(a, -1, 1, out=out)
    return None


def ignores_it(xp: Any, a: Any, out: Any = None) -> Any:
    """It takes an array for the result, and does not write it."""
    return xp.clip(a, -1, 1)


def in_half(xp: Any, a: Any, out: Any = None) -> Any:
    """It writes the first half of the array."""
    result = xp.clip(a, -1, 1)
    if out is None:
        return result
    half = result.size // 2
    out.reshape(-1)[:half] = result.reshape(-1)[:half]
    return out


def spec(fn: Any, **declared: Any) -> OpSpec:
    return OpSpec(fn=fn, reference=lambda a: np.clip(a, -1, 1), dtypes=("float32",), **declared)


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_that_is_declared_in_place_must_write_its_input(kind: str) -> None:
    run_check("written", kind, "float32", spec(clip_, without=IN_PLACE))

    with pytest.raises(AssertionError, match=r"no call changed an input, although .* opts out of inputs_unchanged"):
        run_check("written", kind, "float32", spec(clip, without=IN_PLACE))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [("float32", [1, np.nan]), ("bfloat16", [1, np.nan]), ("complex64", [1, np.nan]), ("int8", [1, 2]), ("bool", [1])],
    ids=str,
)
def test_nothing_need_be_written_where_the_result_is_the_input(dtype: str, numbers: list[float], kind: str) -> None:
    same = OpSpec(
        fn=lambda xp, a: a, name="same", reference=lambda a: a, dtypes=(dtype,), without=IN_PLACE,
        samples=lambda make: [make.of(numbers)],
    )  # fmt: skip

    run_check("written", kind, dtype, same)


def test_an_in_place_function_without_a_return_is_told_what_to_return() -> None:
    with pytest.raises(SpecError, match=r"declared to work in place, so return the input that it writes: fn="):
        run_check("values", "cpu", "float32", spec(clip_without_return, without=IN_PLACE))


def test_a_result_that_is_the_written_input_is_told_as_such() -> None:
    with pytest.raises(AssertionError, match="whose numbers the call has changed"):
        run_check("aliasing", "cpu", "", spec(clip_))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fn", [ignores_it, in_half])
def test_an_out_that_is_not_written_is_found(fn: Any, kind: str) -> None:
    with pytest.raises(AssertionError, match="out= was given, but does not hold the result"):
        run_check("out", kind, "float32", spec(fn))


@pytest.mark.parametrize("kind", KINDS)
def test_an_out_that_is_written_passes(kind: str) -> None:
    run_check("out", kind, "float32", spec(into))


def test_a_function_with_out_may_return_nothing_then() -> None:
    run_check("out", "cpu", "float32", spec(into_without_return))
