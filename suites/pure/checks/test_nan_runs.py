"""Where several NaN are put, and what counts of NaN are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.nan_runs import check_counts_of_nan, has_declared_nan, with_nan_run
from cuassay.testing.generated.natively import with_row
from cuassay.testing.generated.selection import one

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")


def places(array: Any) -> Any:
    return np.isnan(array).astype(int).tolist()


@pytest.mark.parametrize(
    ("shape", "run", "row"),
    [
        ((4,), [1, 1, 0, 0], [1, 1, 1, 1]),
        ((5,), [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]),
        ((1,), [1], [1]),
        ((2, 3), [[1, 1, 0], [1, 1, 0]], [[1, 1, 1], [0, 0, 0]]),
        ((2, 2, 1), [[[1], [1]], [[1], [1]]], [[[1], [0]], [[0], [0]]]),
        ((), 0, 1),
    ],
    ids=str,
)
def test_first_half_of_each_row_or_all_of_the_first_row_becomes_nan(shape: Any, run: Any, row: Any) -> None:
    given = np.ones(shape)

    assert places(with_nan_run(given)) == run
    assert places(with_row(np.nan)(given)) == row
    assert (given == 1).all()
    assert np.nansum(with_nan_run(given)) == given.size - np.sum(run)


@pytest.mark.parametrize(
    ("samples", "has"),
    [
        (lambda make: [make(3)], False),
        (lambda make: [make(3), make.of([1.0, np.nan])], True),
        (lambda make: [make(3), Sample((make.of([1.0, np.nan]),), kind="extremal")], True),
        (lambda make: [make(3), Sample((make.of([1.0, np.nan]),), kind="broadcast")], False),
        (lambda make: [(make(3), make(3, dtype="int32"))], False),
    ],
    ids=["none", "ordinary", "extremal", "broadcast", "integers"],
)
def test_nan_is_declared_by_an_ordinary_or_an_extremal_sample(samples: Any, has: bool) -> None:
    spec = OpSpec(fn=lambda xp, a, b=0: a * 1, name="f", samples=samples, dtypes=("float32",))

    assert has_declared_nan(spec, CPU, FLOAT32) is has


def count(a: Any) -> Any:
    """How many numbers of each row are NaN."""
    return np.isnan(a).sum(axis=-1)


def failed(fn: Any, reference: Any = count) -> str:
    spec = OpSpec(
        fn=lambda xp, a: fn(a), reference=reference, name="count", dtypes=("float32",),
        samples=lambda make: [make((3, 5))],
    )  # fmt: skip
    return failure(check_counts_of_nan, spec, CPU, FLOAT32, one(spec, CPU, FLOAT32))


def test_count_that_is_right_for_one_nan_alone_is_found() -> None:
    said = failed(lambda a: np.isnan(a).any(axis=-1).astype(int))

    assert said.startswith("right for the sample's own numbers, wrong for others: ")
    assert "sample: 0: shape 3x5, the first half of each row is NaN" in said


def wrong_for(*counts: int) -> Any:
    """A count that is 7 in place of each of these."""
    return lambda a: np.where(np.isin(count(a), counts), 7, count(a))


@pytest.mark.parametrize(
    ("fn", "reference", "is_found"),
    [
        pytest.param(count, count, False, id="right"),
        pytest.param(wrong_for(3), count, True, id="wrong for several"),
        pytest.param(wrong_for(1), count, False, id="wrong for one"),
        pytest.param(wrong_for(1, 3), count, False, id="wrong for one and several"),
        pytest.param(wrong_for(3), None, False, id="its own reference"),
        pytest.param(lambda a: wrong_for(3)(a) * 1.0, lambda a: count(a) * 1.0, False, id="floats"),
        pytest.param(lambda a: wrong_for(3)(a).astype("u8"), lambda a: count(a).astype("u8"), True, id="unsigned"),
    ],
)
def test_count_of_several_nan_is_compared_where_that_of_one_is_right(fn: Any, reference: Any, is_found: bool) -> None:
    assert bool(failed(fn, reference)) is is_found


@pytest.mark.parametrize("most", [0, 1])
def test_nan_that_the_reference_rejects_is_not_tried(most: int) -> None:
    def picky(a: Any) -> Any:
        if count(a).max() > most:
            raise ValueError("too many NaN")
        return count(a)

    assert failed(wrong_for(3), picky) == ""


def test_a_number_without_axes_stays() -> None:
    spec = OpSpec(
        fn=lambda xp, a: np.isnan(a).sum(), reference=lambda a: np.isnan(a).sum() * 1, name="f", dtypes=("float32",),
        samples=lambda make: [make(())],
    )  # fmt: skip

    assert failure(check_counts_of_nan, spec, CPU, FLOAT32, one(spec, CPU, FLOAT32)) == ""
