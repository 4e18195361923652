"""The tolerance of a sample that was made larger, and how it is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.sizes import MOST_OF_SMALL, check_larger, limit_of_larger


def declared(reference: Callable[..., Any], dtype: str = "float32") -> OpSpec:
    return OpSpec(
        fn=lambda xp, a: reference(a), reference=reference, name="larger", dtypes=(dtype,),
        samples=lambda make: [make(4)],
    )  # fmt: skip


def limit(reference: Any, values: Any, times: int = 1, dtype: str = "float32", few: int = 1) -> Any:
    """The tolerance of the first result, of a base and a sample with its numbers several times."""
    base, sample = (Sample((np.tile(np.array(values, dtype), count),)) for count in (1, times))
    spec = declared(reference, dtype)
    found = limit_of_larger(spec, dtype, sample, base, spec.expected(sample), few)
    return None if found is None else float(np.asarray(found).reshape(-1)[0])


def test_the_tolerance_is_relative_to_the_inputs_however_small_they_are() -> None:
    small, large = (limit(lambda a: a - a, [size] * 4) for size in (2.0**-12, 1.0))

    assert large / small == pytest.approx(2.0**12)


def test_the_tolerance_of_a_sum_grows_with_its_terms_and_that_of_an_element_does_not() -> None:
    sums, elements = (
        [limit(reference, [1.0, -1.0], times) for times in (1, 16)] for reference in (np.sum, np.negative)
    )

    assert sums[1] == pytest.approx(4 * sums[0])
    assert elements[1] == elements[0]


@pytest.mark.parametrize(("few", "is_known"), [(7, False), (8, True)])
def test_sums_of_more_than_a_few_terms_in_sixteen_bits_have_no_tolerance(few: int, is_known: bool) -> None:
    assert (limit(np.sum, [1.0] * 8, dtype="float16", few=few) is not None) is is_known
    assert limit(np.sum, [1.0] * 8, few=1) is not None


@pytest.mark.parametrize(("error", "passes"), [(2.0**-21, True), (2.0**-13, False), (2.0**-11, False)])
def test_a_larger_result_is_compared_within_its_tolerance(error: float, passes: bool) -> None:
    base, sample = Sample((np.ones(4, np.float32),)), Sample((np.ones(9, np.float32),))
    wrong = np.where(np.arange(9) == 8, 1 + error, 1).astype(np.float32)
    spec = declared(lambda a: a)
    message = ""
    try:
        check_larger(spec, Device("cpu"), np.dtype("float32"), sample, base, result=wrong)
    except AssertionError as failure:
        message = str(failure)

    assert ("worst at (8,)" in message) is not passes


@pytest.mark.parametrize("size", [2.0**-12, 1.0, 2.0**12])
def test_an_extent_that_nobody_declared_may_have_inexact_positions(size: float) -> None:
    base, sample = (Sample((np.full(count, size, np.float32),)) for count in (4, 9))
    spec = declared(lambda a: a)
    near, far = (np.full(9, size * (1 + error), np.float32) for error in (2.0**-11, 2.0**-9))

    check_larger(spec, Device("cpu"), np.dtype("float32"), sample, base, is_grown=True, result=near)
    with pytest.raises(AssertionError, match="out of tolerance"):
        check_larger(spec, Device("cpu"), np.dtype("float32"), sample, base, is_grown=True, result=far)


@pytest.mark.parametrize(("count", "is_small"), [(MOST_OF_SMALL, True), (MOST_OF_SMALL + 1, False)])
def test_an_input_that_a_small_call_writes_is_found(count: int, is_small: bool) -> None:
    def negated(xp: Any, a: Any) -> Any:
        result = -a
        a[...] = 0
        return result

    spec = OpSpec(
        fn=lambda xp, a: negated(xp, a) if len(a) > 9 else -a, reference=lambda a: -a, name="negated",
        dtypes=("float32",), samples=lambda make: [make(4)],
    )  # fmt: skip
    base, sample = (Sample((np.ones(length, np.float32),)) for length in (4, count))
    message = ""
    try:
        check_larger(spec, Device("cpu"), np.dtype("float32"), sample, base)
    except AssertionError as failure:
        message = "\n".join([str(failure), *getattr(failure, "__notes__", ())])

    assert ("the function writes an input of this size" in message) is is_small
