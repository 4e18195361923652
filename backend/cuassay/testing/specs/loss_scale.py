"""OpSpec of the loss scale's update; implemented in ``devices/<kind>/loss_scale.py``.

The op returns nothing. The test compares everything that it writes: scale, inverse, tracker and flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples

__all__ = ["SPECS"]

Array = NDArray[Any]

_LARGEST = float(np.finfo(np.float32).max)

#: Scale, tracker and found_inf; options; what the case shows.
_STATES: tuple[tuple[float, int, float, dict[str, Any], str], ...] = (
    (65536.0, 3, 0.0, {}, "a good step"),
    (65536.0, 1998, 0.0, {}, "the step before the one that grows it"),
    (65536.0, 1999, 0.0, {}, "the step that grows it"),
    (65536.0, 1999, 1.0, {}, "an overflow where it would have grown"),
    (65536.0, 7, 2.0, {}, "an overflow counted by two"),
    (3.0, 0, 0.0, {"growth_interval": 1, "growth_factor": 1.7}, "no power of two"),
    (3.0, 0, 1.0, {"backoff_factor": 0.3}, "backed off by no power of two"),
    (_LARGEST / 1.5, 0, 0.0, {"growth_interval": 1}, "growth beyond float32: it stays"),
)


def _sample(make: Samples, scale: float, tracker: int, found: float, how: dict[str, Any], label: str) -> Sample:
    numbers = make.full((), scale), make.full((), 0), make.full((), tracker, dtype="int32"), make.full((), found)
    return Sample(numbers, how, label)


def _updates(make: Samples) -> Iterator[Sample]:
    for state in _STATES:
        yield _sample(make, *state)


def _updated(
    scale: Array,
    inv_scale: Array,
    growth_tracker: Array,
    found_inf: Array,
    *,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
) -> Array:
    if found_inf:
        new, steps = float(scale) * backoff_factor, 0
    elif growth_tracker + 1 == growth_interval:
        grown = float(scale) * growth_factor
        new, steps = grown if grown <= _LARGEST else float(scale), 0
    else:
        new, steps = float(scale), int(growth_tracker) + 1
    return np.array([new, 1 / np.float64(np.float32(new)), steps, 0.0])


def _errors(make: Samples) -> Iterator[ErrorInput]:
    for name, value in (("growth_factor", 1.0), ("backoff_factor", 1.0), ("growth_interval", 0)):
        bad = _sample(make, 2.0, 0, 0.0, {name: value}, f"{name} {value}")
        yield ErrorInput(bad, ArgumentError, f"{name} must be")
    scale, inverse, tracker, _ = _sample(make, 2.0, 0, 0.0, {}, "").args
    two_flags = Sample((scale, inverse, tracker, make.full((2,), 1)), label="two flags")
    yield ErrorInput(two_flags, ShapeError, "found_inf must have one element")
    yield ErrorInput(Sample((scale,) * 4, label="a tracker of floats"), DTypeError, "growth_tracker must be int32")


def _one(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield _sample(make, *_STATES[0])


SPECS = (
    OpSpec(
        op=ops.update_scale_, samples=_updates, reference=_updated, error_inputs=_errors, bench=_one,
        work=lambda *arrays, **scalars: Work(bytes=32, flops=2),
    ),
)  # fmt: skip
