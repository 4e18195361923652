"""Which integers the check of limited sums is given, and which results it compares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import saturation
from cuassay.testing.generated.saturation import check_saturation
from cuassay.testing.samples import HostArray

CPU, INT64, FREE = Device("cpu"), np.dtype("int64"), np.arange(1000)
ENDS = np.iinfo(np.int64)


def limited(a: Any) -> Any:
    """Twice the number, limited to the range of 64 bits."""
    return np.where(a > 2**62 - 1, ENDS.max, np.where(a < -(2**62), ENDS.min, a * 2))


def wrapping(a: Any) -> Any:
    return a * 2


def one_more_above(a: Any) -> Any:
    """Wrong by one for large positive numbers."""
    return np.where(a > 2**62 - 1, ENDS.max - 1, limited(a))


def one_more_below(a: Any) -> Any:
    return np.where(a < -(2**62), ENDS.min + 1, limited(a))


def failed(fn: Any, reference: Any = limited, dtype: str = "int64", **fields: Any) -> str:
    spec = OpSpec(
        fn=lambda xp, a: fn(a), reference=reference, name="twice",
        **{"dtypes": (dtype,), "samples": lambda make: [make(99)], **fields},
    )  # fmt: skip
    return failure(check_saturation, spec, CPU, np.dtype(dtype))


@pytest.mark.parametrize("fn", [wrapping, one_more_above, one_more_below])
def test_result_that_is_not_limited_is_found(fn: Any) -> None:
    said = failed(fn)

    assert said.startswith("wrong where the result does not fit: is there a step that wraps around?\n")
    assert "sample: 0: shape 99, integers beyond a half of the range" in said


@pytest.mark.parametrize(
    ("fn", "reference", "fields"),
    [
        pytest.param(limited, limited, {}, id="right"),
        pytest.param(one_more_above, wrapping, {}, id="a reference that wraps around"),
        pytest.param(wrapping, None, {}, id="its own reference"),
        pytest.param(lambda a: a // 2 * 2, lambda a: a // 2 * 2.0, {}, id="floats"),
        pytest.param(lambda a: wrapping(a)[:5], limited, {}, id="another shape"),
        pytest.param(lambda a: wrapping(a).astype("int32"), limited, {}, id="another dtype"),
        pytest.param(wrapping, limited, {"samples": lambda make: [make(9, low=-5, high=5)]}, id="a range"),
        pytest.param(wrapping, limited, {"samples": lambda make: [make(1026)]}, id="1026 numbers"),
        pytest.param(wrapping, limited, {"dtype": "int32"}, id="int32"),
    ],
)
def test_other_results_are_not_compared(fn: Any, reference: Any, fields: dict[str, Any]) -> None:
    assert failed(fn, reference, **fields) == ""


def test_1025_numbers_are_tried() -> None:
    assert failed(wrapping, samples=lambda make: [make(1025)]) != ""


def test_only_limited_results_are_compared() -> None:
    """A number that fits may be wrong here; other checks compare those."""
    assert failed(lambda a: np.where(abs(a) < 2**62, 7, limited(a)), samples=lambda make: [make(99)]) == ""
    assert failed(lambda a: np.append(limited(a)[:-1], 7), lambda a: np.append(limited(a)[:-1], 8)) == ""


@pytest.mark.parametrize(("wrong", "is_found"), [(1, True), (0, False)], ids=["taken", "rejected"])
def test_call_that_the_reference_rejects_is_left_out_and_the_next_one_is_tried(wrong: int, is_found: bool) -> None:
    def picky(a: Any, axis: int) -> Any:
        if axis == 0 and (abs(a) > 2**61).any():
            raise ValueError("too large")
        return limited(a)

    spec = OpSpec(
        fn=lambda xp, a, axis: np.where((abs(a) > 2**61) & (axis == wrong), 7, picky(a, axis)),
        reference=picky, name="f", dtypes=("int64",),
        samples=lambda make: [Sample((make(9),), {"axis": axis}) for axis in (0, 1)],
    )  # fmt: skip

    assert bool(failure(check_saturation, spec, CPU, INT64)) is is_found


def test_numbers_are_beyond_a_half_of_the_range_and_of_both_signs() -> None:
    given = HostArray(FREE, is_free=True)
    found = saturation._of_large(Sample((given, 2), {"k": 3}, "drawn"), INT64)

    assert found is not None
    drawn = found.args[0].values
    assert drawn.shape == (1000,)
    assert ((abs(drawn) >= 2**62) & (abs(drawn) < 2**63 - 1)).all()
    assert 400 < (drawn < 0).sum() < 600
    assert abs(drawn).max() > 2**63 - 2**57
    assert abs(drawn).min() < 2**62 + 2**57
    assert (found.args[1], found.kwargs) == (2, {"k": 3})
    assert found.label == "drawn, integers beyond a half of the range"


@pytest.mark.parametrize(
    "other",
    [FREE, HostArray(FREE), HostArray(FREE.astype("int32"), is_free=True), 3],
    ids=["an array", "not free", "int32", "a number"],
)
def test_other_arguments_stay(other: Any) -> None:
    assert saturation._of_large(Sample((other,)), INT64) is None
    both = saturation._of_large(Sample((other, HostArray(FREE, is_free=True))), INT64)
    assert both is not None
    assert both.args[0] is other
