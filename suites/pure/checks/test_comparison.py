"""How often a comparison asks the reference, and that what it skips for that changes no verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.compare import collecting
from cuassay.testing.generated.comparison import compare, compare_values

CPU = Device("cpu")
X = np.linspace(-3, 3, 101, dtype=np.float32)


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, a: Any) -> Any:
        self.calls += 1
        return np.cumsum(a)


def made() -> tuple[OpSpec, Counted]:
    reference = Counted()
    spec = OpSpec(
        fn=lambda xp, a: xp.cumsum(a),
        name="cumsum",
        dtypes=("float32",),
        samples=lambda make: [make(101)],
        reference=reference,
    )
    reference.calls = 0  # the declaration itself is checked by a call
    return spec, reference


@pytest.mark.parametrize("compared", [compare, compare_values])
def test_result_next_to_the_right_one_costs_no_further_call_of_the_reference(compared: Any) -> None:
    spec, reference = made()
    right = np.cumsum(X.astype(np.float64))

    compared(spec, CPU, "float32", Sample((X,)), right.astype(np.float32), expected=right)

    assert reference.calls == 0


@pytest.mark.parametrize("compared", [compare, compare_values])
def test_whole_tolerance_is_found_for_one_further_off(compared: Any) -> None:
    spec, reference = made()
    right = np.cumsum(X.astype(np.float64))
    off = (right + 20 * np.finfo(np.float32).eps).astype(np.float32)  # the sums of 101 terms near 0 may be as far off

    compared(spec, CPU, "float32", Sample((X,)), off, expected=right)

    assert reference.calls > 0


@pytest.mark.parametrize("compared", [compare, compare_values])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda right: right + np.float32(0.01), "out of tolerance"),
        (lambda right: right.astype(np.float64), "dtype is float64"),
        (lambda right: right[:-1], "shape is"),
    ],
)
def test_wrong_result_is_refused(compared: Any, changed: Any, message: str) -> None:
    spec, _ = made()

    with pytest.raises(AssertionError, match=message):
        compared(spec, CPU, "float32", Sample((X,)), changed(np.cumsum(X)))


def test_ratio_of_the_whole_tolerance_is_kept_where_it_is_asked_for() -> None:
    spec, _ = made()
    right = np.cumsum(X.astype(np.float64)).astype(np.float32)
    plain: dict[str, Any] = {}
    asked: dict[str, Any] = {}

    with collecting(plain):
        compare(spec, CPU, "float32", Sample((X,)), right)
    with collecting(asked):
        compare(spec, CPU, "float32", Sample((X,)), right, keeps_ratio=True)

    assert plain == {}
    assert 0 < asked["headroom"] < 1


@pytest.mark.parametrize(
    ("given", "declared"), [("float32", "float64"), ("float64", "float32"), ("float16", "float32")]
)
def test_right_numbers_in_another_dtype_than_the_declared_one_are_wrong(given: str, declared: str) -> None:
    spec = OpSpec(fn=lambda xp, a: a.astype(given), name="cast", result_dtype=declared, reference=lambda a: a)
    result = np.arange(9).astype(given)

    with pytest.raises(AssertionError, match=f"dtype is {given}"):
        compare(spec, CPU, np.dtype("float32"), Sample((np.arange(9, dtype=np.float32),)), result)
