"""How far a reference is off that loses digits in float64, where extended precision does not show it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.reference_errors import for_long_sums, reference_errors

SMALL = Sample((np.array([3e-9, -2e-9, 5e-9, 1e-9, -4e-9, 2.5e-9]),))


def errors_of(reference: Any, sample: Sample = SMALL) -> Any:
    spec = OpSpec(fn=lambda xp, a: a, name="same", dtypes=("float64",), reference=reference)
    return reference_errors(spec, sample, spec.expected(sample))


def in_float64(formula: Any) -> Any:
    """The formula as a library computes it that turns every input into float64."""
    return lambda a: formula(np.asarray(a, np.float64))


def test_digits_that_cancel_are_seen_as_scatter() -> None:
    cancelling = in_float64(lambda a: 1 - (1 - a))
    true = np.abs(cancelling(SMALL.args[0]) - SMALL.args[0])

    found = errors_of(cancelling)

    assert (found >= true).all()
    assert (found <= 1e-6 * np.abs(SMALL.args[0])).all()


@pytest.mark.parametrize(
    "formula", [np.sin, np.exp, lambda a: a * 3, lambda a: a**2], ids=["sin", "exp", "times", "square"]
)
def test_a_precise_reference_is_off_by_a_few_roundings(formula: Any) -> None:
    found = errors_of(in_float64(formula))

    limit = 64 * np.finfo(np.float64).eps * np.maximum(np.abs(formula(SMALL.args[0])), np.abs(SMALL.args[0]))
    assert found is None or (found <= limit).all()


@pytest.mark.parametrize("formula", [np.floor, np.sign, lambda a: a > 1], ids=["floor", "sign", "comparison"])
def test_a_step_is_not_taken_for_scatter(formula: Any) -> None:
    at_steps = Sample((np.array([1.0, 2.0, -1.0, 3.0, 0.5]),))

    assert errors_of(in_float64(lambda a: formula(a) + 4.0), at_steps) is None


@pytest.mark.parametrize(("exact", "share"), [(1, 4e-9), (2, 2e-9), (3, 0.0)], ids=str)
def test_results_that_are_exact_by_chance_are_as_far_off_as_most(exact: int, share: float) -> None:
    """The reference is off by 1e-9 of a result, but for those of the four that it happens to give exactly."""
    sample = Sample((np.array([1.0, -2.0, 3.0, -4.0]),))
    off = np.where(np.arange(4) < exact, 0.0, 1e-9)

    def reference(a: Any) -> Any:
        return a if a.dtype == np.longdouble else a * (1 + off)

    found = errors_of(reference, sample)

    assert found == pytest.approx(np.abs(sample.args[0]) * np.where(off > 0, 4e-9, share), rel=1e-6)


def test_results_that_lost_their_digits_say_nothing_of_the_exact_one() -> None:
    sample = Sample((np.array([1.0, -2.0, 3.0, -4.0]),))
    off = np.array([0.0, 1e-3, 1e-3, 1e-3])

    found = errors_of(lambda a: a if a.dtype == np.longdouble else a * (1 + off), sample)

    assert found == pytest.approx(4 * np.abs(sample.args[0]) * off, rel=1e-6)


@pytest.mark.parametrize(
    ("times", "is_asked"), [(2, True), (4, True), (4.5, False), (np.inf, False), (np.nan, True)], ids=str
)
def test_a_reference_is_asked_for_its_sums_only_if_these_may_excuse_the_result(times: float, is_asked: bool) -> None:
    """The order of a sum excuses at most four times the tolerance."""
    asked = list[str]()
    sample = Sample((np.linspace(1, 2, 512, dtype=np.float32),))
    spec = OpSpec(
        fn=lambda xp, a: a, name="total", terms=lambda a: 512,
        reference=lambda a: (asked.append(a.dtype.name), np.cumsum(a)[-1:])[1],
    )  # fmt: skip
    expected = spec.expected(sample)
    asked.clear()

    wider = for_long_sums(spec, sample, expected + times * 0.25, expected, 0.25)

    assert asked == ["float32"] * is_asked
    assert wider is None  # the reference's own error is far smaller
