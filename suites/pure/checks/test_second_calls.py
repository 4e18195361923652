"""What a call leaves behind for the next one, and whether a function is wrong in its first call with a shape too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.second_calls import is_wrong_at_first

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


@pytest.mark.parametrize("fills_again", [True, False])
def test_a_buffer_that_is_kept_for_all_lengths_of_one_padded_length(fills_again: bool) -> None:
    buffers: dict[Any, Any] = {}

    def block_sums(xp: Any, a: Any) -> Any:
        padded = -(-a.shape[0] // 16) * 16
        buffer = buffers.setdefault((padded, a.dtype), xp.zeros(padded, a.dtype))
        if fills_again:
            buffer[...] = 0
        buffer[: a.shape[0]] = a
        return buffer.reshape(-1, 16).sum(axis=1)

    spec = OpSpec(
        fn=block_sums, name="block_sums", dtypes=("float32",), samples=lambda make: [make(40)],
        reference=lambda a: np.add.reduceat(a, range(0, a.shape[0], 16)),
    )  # fmt: skip
    if fills_again:
        CHECKS["second_call"](spec, CPU)
    else:
        with pytest.raises(AssertionError, match=r"after a call with 64 elements .* than before it: does a buffer"):
            CHECKS["second_call"](spec, CPU)
