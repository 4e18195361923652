"""The numbers at both ends of a reduction count, also where the result is a truth value or an integer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.last_number import check_last_number

CPU = Device("cpu")
SAMPLE = Sample((np.ones((2, 5), np.float32),))


def check(function: Any, reference: Any, result_dtype: str) -> None:
    spec = OpSpec(
        fn=lambda xp, a: function(a), name="rows", dtypes=("float32",), reference=reference, result_dtype=result_dtype
    )
    check_last_number(spec, CPU, SAMPLE)


REDUCTIONS: dict[str, tuple[Any, str]] = {
    "truth value": (lambda a: (a != 0).any(axis=-1), "bool"),
    "unsigned integer": (lambda a: (a != 0).sum(axis=-1).astype("uint8"), "uint8"),
    "float": (lambda a: a.sum(axis=-1), "float32"),
    "complex": (lambda a: a.sum(axis=-1).astype("complex64"), "complex64"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_right_reduction_passes(name: str) -> None:
    function, dtype = REDUCTIONS[name]
    check(function, function, dtype)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(
    ("taken", "which"),
    [(slice(0, -1), "the last number"), (slice(1, None), "the first number")],
    ids=["without the last", "without the first"],
)
def test_a_reduction_without_an_end_fails(name: str, taken: slice, which: str) -> None:
    function, dtype = REDUCTIONS[name]
    with pytest.raises(AssertionError, match=f"^{which} has no part in the result"):
        check(lambda a: function(a[..., taken]), function, dtype)
