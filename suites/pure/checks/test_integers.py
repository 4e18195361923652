"""When sums of integers wrap around in the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.integers import wraps_in_reference


def doubled(a: Any) -> Any:
    return a + a


def refusing_few(a: Any) -> Any:
    if a.size < 3:
        raise ValueError("give three numbers or more")
    return a * 1


@pytest.mark.parametrize(
    ("number", "dtype", "reference", "wraps"),
    [
        pytest.param(100, "int8", doubled, True, id="signed"),
        pytest.param(63, "int8", doubled, False, id="small"),
        pytest.param(200, "uint8", doubled, False, id="unsigned"),
        pytest.param(2**62, "int64", doubled, False, id="64 bits"),
        pytest.param(1, "int8", refusing_few, True, id="refused"),
    ],
)
def test_signed_integers_wrap_where_64_bits_give_another_result(
    number: int, dtype: str, reference: Callable[[Any], Any], wraps: bool
) -> None:
    spec = OpSpec(
        fn=lambda xp, a: reference(a), reference=reference, name="f", dtypes=(dtype,), samples=lambda make: [make(4)]
    )

    assert wraps_in_reference(spec, Sample((np.array([number, 1], dtype),))) is wraps
