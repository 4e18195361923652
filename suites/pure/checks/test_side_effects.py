"""Whether a function is wrong in its first call with a shape too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.side_effects import is_wrong_at_first

CPU = Device("cpu")


@pytest.mark.parametrize(
    ("reference", "wrong"),
    [
        pytest.param(lambda a: a, False, id="right"),
        pytest.param(lambda a: a + 1, True, id="wrong"),
        pytest.param(lambda a: a + (a.shape[0] == 9 + 5 * 11), True, id="wrong in the last one"),
        pytest.param(lambda a: a + (a.shape[0] == 9 + 6 * 11), False, id="wrong in the next one"),
        pytest.param(lambda a: a + (a.shape[0] == 9), False, id="wrong in the shape itself"),
    ],
)
def test_a_function_is_wrong_at_first_where_one_of_five_new_shapes_is(reference: Any, wrong: bool) -> None:
    spec = OpSpec(fn=lambda xp, a: a.copy(), name="same", samples=lambda make: [make(8)], reference=reference)

    assert is_wrong_at_first(spec, CPU, np.dtype("float32"), Sample((np.ones(9, np.float32),))) is wrong


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_a_shape_that_the_reference_refuses_shows_nothing_of_first_calls(error: type[Exception]) -> None:
    def picky(a: Any) -> Any:
        if a.shape[0] > 9:
            raise error("too long")
        return a

    spec = OpSpec(fn=lambda xp, a: a.copy(), name="same", samples=lambda make: [make(9)], reference=picky)

    assert not is_wrong_at_first(spec, CPU, np.dtype("float32"), Sample((np.ones(9, np.float32),)))
