"""Right functions of float16 are not refused for rounding their terms, nor beyond the range that they are meant for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay.testing import OpSpec, Tolerance
from cuassay.testing.generated.checks import CHECKS

FLOAT16 = np.dtype("float16")


def rotary(xp: Any, q: Any, cos: Any, sin: Any) -> Any:
    half = q.shape[-1] // 2
    a, b = q[..., :half], q[..., half:]
    return xp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@pytest.mark.parametrize("seed", [2026, 6])
def test_terms_that_cancel_may_round(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv("CUASSAY_SEED", str(seed))
    spec = OpSpec(
        fn=rotary, dtypes=("float16",), reference=lambda *arrays: rotary(np, *arrays),
        samples=lambda make: [
            (make((2, 5, 64)), make((5, 32), low=-1, high=1), make((5, 32), low=-1, high=1)),
        ],
    )  # fmt: skip

    CHECKS["units"](spec, "cpu:0", FLOAT16)


def mean_in_float16(xp: Any, a: Any) -> Any:
    return xp.cumsum(a, axis=-1, dtype="float16")[..., -1] / xp.asarray(a.shape[-1], dtype="float16")


def declared(**more: Any) -> OpSpec:
    samples = more.pop("samples", lambda make: [make((3, 33))])
    return OpSpec(
        fn=mean_in_float16, dtypes=("float16",), reference=lambda a: a.mean(-1), samples=samples, **more
    )  # fmt: skip


def test_a_sum_that_overflows_on_the_way_is_told_as_such() -> None:
    with pytest.raises(AssertionError, match=r"a step overflows float16, although the result fits: add in float32"):
        CHECKS["units"](declared(), "cpu:0", FLOAT16)


@pytest.mark.parametrize(
    "more",
    [
        {"samples": lambda make: [make((3, 33), low=-3, high=3)]},
        {"samples": lambda make: [make((3, 33), low=-2)]},
        {"tolerance": Tolerance(ulps=64, growth="linear", computed_in="self")},
    ],
    ids=["the default range said", "one end said", "computed in float16"],
)
def test_who_says_so_may_overflow(more: dict[str, Any]) -> None:
    CHECKS["units"](declared(**more), "cpu:0", FLOAT16)
