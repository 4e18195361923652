"""Functions that take lists of arrays, or give several: right ones pass every check, and each wrong one is found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.device import Device
from cuassay.devices import capabilities
from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS

Function = Callable[..., Any]


def halved(xp: Any, arrays: list[Any]) -> list[Any]:
    return [array * array.dtype.type(0.5) for array in arrays]


def extremes(xp: Any, a: Any) -> tuple[Any, Any]:
    return xp.min(a, axis=-1), xp.max(a, axis=-1)


def of_lists(fn: Function) -> OpSpec:
    return OpSpec(
        fn=fn,
        reference=lambda arrays: [array * 0.5 for array in arrays],
        samples=lambda make: [([make((3, 4)), make(5), make((2, 2))],)],
    )


def of_two(fn: Function) -> OpSpec:
    return OpSpec(
        fn=fn,
        reference=lambda a: (a.min(-1), a.max(-1)),
        samples=lambda make: [make((3, 40)), make((2, 4, 7))],
    )


def with_an_empty_one(fn: Function) -> OpSpec:
    return OpSpec(
        fn=fn,
        reference=lambda arrays: [array * 0.5 for array in arrays],
        samples=lambda make: [([make(5), make((0, 3)), make((2, 2)), make(0)],)],
    )


@pytest.mark.parametrize(
    ("spec", "kind"),
    [(of_lists(halved), "sim"), (with_an_empty_one(halved), "cpu"), (of_two(extremes), "cpu")],
    ids=["lists", "an empty array", "two results"],
)
def test_a_right_function_passes_every_check(spec: OpSpec, kind: str) -> None:
    can = capabilities(Device(kind))
    for check in CHECKS.values():
        if check.applies(spec) and not any(map(can.missing, check.needs)):
            for dtype in spec.dtypes if check.per_dtype else ("",):
                _passes_or_skips(check, spec, kind, dtype)


def _passes_or_skips(check: Function, spec: OpSpec, kind: str, dtype: str) -> None:
    with suppress(pytest.skip.Exception):
        check(spec, f"{kind}:0", *([as_dtype(dtype)] if dtype else []))


def one_missing(xp: Any, arrays: list[Any]) -> list[Any]:
    return halved(xp, arrays)[:32]


def transposed(xp: Any, arrays: list[Any]) -> list[Any]:
    return [array.T for array in halved(xp, arrays)]


def position_in_chunk(xp: Any, arrays: list[Any]) -> list[Any]:
    return [array * array.dtype.type(1.0 if place == 64 else 0.5) for place, array in enumerate(arrays)]


def one_on_the_host(xp: Any, arrays: list[Any]) -> list[Any]:
    first, *others = halved(xp, arrays)
    return [np.asarray(first.tolist(), str(first.dtype)), *others]


def exchanged(xp: Any, a: Any) -> tuple[Any, Any]:
    return extremes(xp, a)[::-1]


def joined(xp: Any, a: Any) -> tuple[Any, Any]:
    both = xp.stack(extremes(xp, a))
    return both[:, 0], both[:, 1:]


def kept() -> Function:
    buffers: dict[Any, Any] = {}

    def function(xp: Any, a: Any) -> tuple[Any, Any]:
        low, high = extremes(xp, a)
        key = type(a), a.shape, str(a.dtype)
        buffers.setdefault(key, xp.empty(high.shape, high.dtype))[...] = high
        return low, buffers[key]

    return function


def one_is_the_input(xp: Any, arrays: list[Any]) -> list[Any]:
    return [array if array.ndim == 2 and not (array < 0).any() else xp.abs(array) for array in arrays]


WRONG: dict[str, tuple[OpSpec, str, str, str]] = {
    "one missing": (of_lists(one_missing), "lists", "sim", "a list of 32 arrays; expected 33"),
    "one transposed": (of_lists(transposed), "lists", "cpu", r"result 0 of the list has the shape \(4, 3\)"),
    "the 65th": (of_lists(position_in_chunk), "lists", "sim", "sample: .*lists of 130"),
    "on the host": (of_lists(one_on_the_host), "values", "sim", "the result is on cpu:0, not on sim:0"),
    "exchanged": (of_two(exchanged), "values", "sim", r"a tuple, joined into one array, with shapes \(3,\) from 0"),
    "other shapes": (of_two(joined), "lists", "cpu", r"result 0 of the list has the shape \(2,\)|\(2, 4\)"),
    "a buffer": (of_two(kept()), "aliasing", "cpu", "it returns a buffer that it keeps"),
}


@pytest.mark.parametrize(
    ("spec", "check", "kind", "said"), WRONG.values(), ids=[what.replace(" ", "-") for what in WRONG]
)
def test_a_wrong_function_is_found(spec: OpSpec, check: str, kind: str, said: str) -> None:
    dtype = [as_dtype("float32")] if CHECKS[check].per_dtype else []

    with pytest.raises(AssertionError, match=said):
        CHECKS[check](spec, f"{kind}:0", *dtype)


def test_a_result_that_is_at_times_an_input_is_found_within_a_list() -> None:
    spec = OpSpec(
        fn=one_is_the_input,
        reference=lambda arrays: [np.abs(array) for array in arrays],
        samples=lambda make: [([make((3, 4)), make(5)],), ([make((3, 4), low=1, high=2), make(5)],)],
    )

    with pytest.raises(AssertionError, match="result 0 of the list is a view of an input, or the input itself"):
        CHECKS["aliasing"](spec, "cpu:0")
