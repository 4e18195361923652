"""What a failed comparison says of the cause: the order of the result, a default, a conjugate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import run_sample

CPU = Device("cpu")
A = np.array([3.0, 1.0, 2.0, 5.0, 4.0], np.float32)
Z = np.array([1 + 2j, 3 - 1j, 2j], np.complex64)


def failure(fn: Any, reference: Any, *args: Any, **kwargs: Any) -> str:
    spec = OpSpec(fn=fn, name="wrong", reference=reference, dtypes=(str(args[0].dtype),))
    sample = Sample(args, kwargs)
    with pytest.raises(AssertionError) as caught:
        compare(spec, CPU, args[0].dtype, sample, run_sample(spec, CPU, sample))
    return str(caught.value)


def test_numbers_in_another_order_are_named() -> None:
    told = failure(lambda xp, a: xp.sort(a)[::-1], np.sort, A)

    assert "the right numbers in another order; the first that differs is at (0,)" in told


@pytest.mark.parametrize("result", [A, np.zeros(5, np.float32)], ids=["other numbers", "equal numbers"])
def test_other_results_are_not_called_another_order(result: Any) -> None:
    assert "another order" not in failure(lambda xp, a: xp.roll(result, 1) + 1, lambda a: result, A)


def clipped(xp: Any, a: Any, most: float = 2.0) -> Any:
    return xp.minimum(a, most)


def test_a_default_that_differs_is_named_where_the_call_leaves_it_out() -> None:
    def reference(a: Any, most: float = 3.0) -> Any:
        return np.minimum(a, most)

    told = failure(clipped, reference, A)
    assert "most is 2.0 by default in the function, 3.0 in reference=, and not given here" in told

    def twice(xp: Any, a: Any, most: float = 2.0) -> Any:
        return 2 * clipped(xp, a, most)

    assert "by default" not in failure(twice, reference, A, most=3.0)
    assert "by default" not in failure(twice, reference, A, 3.0)


def test_a_missing_conjugate_is_named() -> None:
    told = failure(lambda xp, a, b: xp.sum(a * b), lambda a, b: np.sum(a * np.conj(b)), Z, Z[::-1].copy())
    assert "reference= gives this result for the conjugate of array 1" in told

    assert "the result is the conjugate of the expected one" in failure(lambda xp, a: xp.conj(a), lambda a: a + 0, Z)


def test_nothing_is_said_of_a_function_that_is_wrong_by_a_factor() -> None:
    told = failure(lambda xp, a: 2 * a, lambda a: a + 0, A)
    assert not any(word in told for word in ("order", "default", "conjugate"))
