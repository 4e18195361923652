"""Axes of few elements or none: what breaks there is found, what refuses them, or is not meant for them, is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS


def mean_of_rows(xp: Any, a: Any) -> Any:
    return xp.mean(a.reshape(a.shape[0], -1), axis=-1)


def mean_of_rows_there_are(xp: Any, a: Any) -> Any:
    if not a.shape[0]:
        raise ValueError("there must be a row")
    return mean_of_rows(xp, a)


def repeated_ends(xp: Any, a: Any, *, pad: int = 2) -> Any:
    """Wrong for axes shorter than the pad: the ends are slices of the axis."""
    return xp.concatenate([a[..., :pad] * 0, a, a[..., -pad:] * 0], axis=-1)


def differences(xp: Any, a: Any, *, lag: int = 3) -> Any:
    return a[..., lag:] - a[..., : max(0, a.shape[-1] - lag)]


def of_rows(make: Any) -> list[Any]:
    return [make((4, 3, 5)), make((2, 7))]


def declared(fn: Any, reference: Any) -> OpSpec:
    return OpSpec(fn=fn, reference=reference, samples=of_rows)


def mean(a: Any) -> Any:
    return a.sum(axis=tuple(range(1, a.ndim))) / max(1, a[:1].size)


@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_a_call_of_no_rows_that_breaks_in_reshape_is_found(kind: str) -> None:
    with pytest.raises(AssertionError, match=r"a call without rows breaks: ValueError: cannot reshape .* shape \(0,\)"):
        CHECKS["sizes"](declared(mean_of_rows, mean), f"{kind}:0")


def test_a_function_may_refuse_a_call_of_no_rows() -> None:
    CHECKS["sizes"](declared(mean_of_rows_there_are, mean), "cpu:0")


@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_an_axis_shorter_than_an_option_is_found(kind: str) -> None:
    spec = declared(repeated_ends, lambda a, *, pad=2: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(pad, pad)]))

    with pytest.raises(AssertionError, match=r"shape is .*; expected"):
        CHECKS["sizes"](spec, f"{kind}:0")


def test_a_reference_that_is_not_meant_for_short_axes_tells_nothing() -> None:
    spec = declared(differences, lambda a, *, lag=3: (a - np.roll(a, lag, -1))[..., lag:] if a.shape[-1] > 2 else a)

    CHECKS["sizes"](spec, "cpu:0")
