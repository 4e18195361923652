"""A reference that loses its digits refuses no right function, and still finds wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS

FLOAT32 = np.dtype("float32")
CHECKED = ("values", "stress", "units", "full_range", "extremal", "infinities", "halves")


def softplus(xp: Any, a: Any) -> Any:
    return xp.maximum(a, 0) + xp.log1p(xp.exp(-xp.abs(a)))


def silu(xp: Any, a: Any) -> Any:
    return xp.where(a < 0, a * xp.exp(xp.minimum(a, 0)), a) / (1 + xp.exp(-xp.abs(a)))


def log1p(xp: Any, a: Any) -> Any:
    return xp.log1p(a)


def to_int8(xp: Any, a: Any) -> Any:
    finite = xp.where(xp.isnan(a), xp.asarray(0, dtype=a.dtype), a)
    return xp.clip(xp.rint(finite * 16), -127, 127).astype("int8")


def threshold(xp: Any, a: Any) -> Any:
    """0 from -20 down."""
    return xp.where(a < -20, xp.zeros_like(a), softplus(xp, a))


def without_its_tail(xp: Any, a: Any) -> Any:
    return xp.where(a < -20, xp.zeros_like(a), silu(xp, a))


def plain_log(xp: Any, a: Any) -> Any:
    return xp.log(1 + a)


def cancelling_softplus(a: Any) -> Any:
    return np.where(a > 30, a, np.log(1 + np.exp(np.minimum(a, 30))))


def cancelling_silu(a: Any) -> Any:
    return a * 0.5 * (1 + np.tanh(a / 2))


def declared(function: Callable[..., Any], reference: Callable[..., Any], **more: Any) -> OpSpec:
    return OpSpec(fn=function, dtypes=("float32",), reference=reference, **more)


def failed(spec: OpSpec) -> list[str]:
    """The checks that refuse it."""
    found = []
    for name in CHECKED:
        try:
            if CHECKS[name].applies(spec):
                CHECKS[name](spec, "cpu:0", FLOAT32)
        except AssertionError:
            found.append(name)
    return found


@pytest.mark.parametrize(
    "spec",
    [
        declared(softplus, cancelling_softplus),
        declared(silu, cancelling_silu),
        declared(log1p, lambda a: np.log(1 + a)),
        declared(to_int8, lambda a: np.clip(np.rint(a * 16), -127, 127), result_dtype=lambda a: "int8"),
    ],
    ids=lambda spec: spec.name,
)
def test_a_right_function_is_not_refused(spec: OpSpec) -> None:
    assert failed(spec) == []


@pytest.mark.parametrize(
    "spec",
    [
        declared(threshold, cancelling_softplus),
        declared(without_its_tail, cancelling_silu),
        declared(plain_log, np.log1p),
    ],
    ids=lambda spec: spec.name,
)
def test_a_wrong_function_is_found_all_the_same(spec: OpSpec) -> None:
    assert failed(spec) != []


def test_a_reference_that_keeps_something_excuses_nothing() -> None:
    calls: list[int] = []

    def counting(a: Any) -> Any:
        calls.append(1)
        return np.logaddexp(0, a) + len(calls) / 4

    assert "values" in failed(declared(softplus, counting, name="counted", samples=lambda make: [make(33)]))
