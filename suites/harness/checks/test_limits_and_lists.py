"""Saturated sums, arrays of one and of no elements, and lists that a call changes: wrong functions and right ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.arrays.dtypes import as_dtype
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS

Function = Callable[..., Any]
LIMITS = np.iinfo(np.int64)


def checked(name: str, dtype: str, fn: Function, **declared: Any) -> None:
    spec = OpSpec(fn=fn, name="f", dtypes=(dtype,), **declared)
    check = CHECKS[name]
    check(spec, "cpu:0", as_dtype(dtype)) if name in ("stress", "inputs_unchanged") else check(spec, "cpu:0")


def saturated(a: Any, b: Any) -> Any:
    """The sum in Python's integers, limited to 64 bits."""
    sums = [min(max(int(x) + int(y), LIMITS.min), LIMITS.max) for x, y in zip(a.flat, b.flat, strict=True)]
    return np.array(sums, np.int64).reshape(a.shape)


def added(xp: Any, a: Any, b: Any) -> Any:
    return a + b


def limited(xp: Any, a: Any, b: Any) -> Any:
    total = a + b
    end = xp.where(a < 0, xp.asarray(LIMITS.min), xp.asarray(LIMITS.max))
    return xp.where(((a ^ total) & (b ^ total)) < 0, end, total)


def pairs(make: Any) -> list[Sample]:
    return [Sample((make((5, 33)), make((5, 33)))), Sample((make(100), make(100)))]


def test_a_sum_that_wraps_around_where_the_reference_saturates() -> None:
    with pytest.raises(AssertionError, match="is there a step that wraps around"):
        checked("stress", "int64", added, samples=pairs, reference=saturated)
    checked("stress", "int64", limited, samples=pairs, reference=saturated)


def test_a_sum_may_wrap_around_where_the_reference_does() -> None:
    checked("stress", "int64", limited, samples=pairs, reference=lambda a, b: a + b)


def broadcasts(make: Any) -> list[Sample]:
    shapes = ((8, 33), (8, 33)), ((4, 9), (9,))
    kinds = "values", "broadcast"
    return [Sample((make(a), make(b)), kind=kind) for (a, b), kind in zip(shapes, kinds, strict=True)]


def as_scalar(xp: Any, a: Any, b: Any) -> Any:
    return a - (b.reshape(()) if b.size == 1 else b)


def test_an_array_of_one_element_keeps_its_axes() -> None:
    with pytest.raises(AssertionError, match="an input that is broadcast has an extent of 1"):
        checked("broadcast_views", "float32", as_scalar, samples=broadcasts, reference=np.subtract)
    checked("broadcast_views", "float32", lambda xp, a, b: a - b, samples=broadcasts, reference=np.subtract)


def test_functions_that_are_not_declared_to_broadcast_may_take_a_scalar() -> None:
    alike = [((8, 33), (8, 33))]
    checked(
        "broadcast_views", "float32", as_scalar, reference=np.subtract,
        samples=lambda make: [Sample((make(a), make(b))) for a, b in alike],
    )  # fmt: skip


def at_levels(change: Callable[[list[float]], None]) -> Function:
    def run(xp: Any, a: Any, levels: list[float]) -> Any:
        out = xp.stack([a * level for level in levels])
        change(levels)
        return out

    return run


CHANGES: dict[str, Callable[[list[float]], None]] = {
    "sorted": lambda levels: levels.sort(),
    "one more": lambda levels: levels.append(1.0),
    "a whole number": lambda levels: levels.__setitem__(1, 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_list_that_a_call_changes(change: Callable[[list[float]], None]) -> None:
    declared: dict[str, Any] = {
        "samples": lambda make: [Sample((make((3, 4)),), {"levels": [0.9, 1.0, 0.5]})],
        "reference": lambda a, levels: np.stack([a * level for level in levels]),
    }

    with pytest.raises(AssertionError, match=r"after the call; sort or change a copy|leaves 5 in its lists"):
        checked("inputs_unchanged", "float32", at_levels(change), **declared)
    checked("inputs_unchanged", "float32", at_levels(lambda levels: None), **declared)


def in_range(least: Callable[[Any], Any]) -> Function:
    def run(xp: Any, a: Any) -> Any:
        if least(a) < 0:
            raise ValueError("a must not be negative")
        return a + 1

    return run


def one_by_one(a: Any) -> Any:
    out = np.empty_like(a)
    for place in np.ndindex(a.shape):
        out[place] = a[place] + 1
    return out


@pytest.mark.parametrize("shape", [(30,), (4, 5)], ids=str)
def test_a_maximum_of_no_elements_is_no_refusal(shape: tuple[int, ...]) -> None:
    declared: dict[str, Any] = {"samples": lambda make: [make(shape, low=0, high=9)], "reference": one_by_one}

    with pytest.raises(AssertionError, match=r"inputs without elements .* zero-size array to reduction"):
        checked("sizes", "float32", in_range(lambda a: a.min()), **declared)
    checked("sizes", "float32", in_range(lambda a: a.min() if a.size else 0), **declared)


def test_a_maximum_of_rows_may_fail_for_rows_of_no_elements() -> None:
    declared: dict[str, Any] = {"samples": lambda make: [make((4, 5))], "reference": one_by_one}

    checked("sizes", "float32", lambda xp, a: a + 1 - 0 * a.min(axis=-1, keepdims=True), **declared)
