"""OpSpecs of further functions of one and two arrays; implemented in ``devices/<kind>/elementwise.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import INTEGERS
from cuassay.errors import ArgumentError
from cuassay.ops import Op
from cuassay.testing.declared import ModelSizes
from cuassay.testing.default_samples import unary
from cuassay.testing.opspec import ErrorInput, OpSpec
from cuassay.testing.samples import Sample, Samples
from cuassay.testing.specs.elementwise import (
    LIKE_ADD,
    LIKE_EXP,
    activations,
    erf,
    not_for_bool,
    one_flop,
    positive,
    residual,
    sigmoid,
    unmatched,
)

__all__ = ["SPECS"]

Array = NDArray[Any]


def _function(op: Op, reference: Callable[..., Any], **more: Any) -> OpSpec:
    """The spec of a function of one array that shares all code but the formula with `exp`."""
    declared = {"bench": activations, **more}
    return OpSpec(
        op=op,
        reference=reference,
        like=LIKE_EXP,
        error_inputs=not_for_bool,
        work=one_flop,
        supports_grad=True,
        **declared,
    )


def _pair(op: Op, reference: Callable[..., Any], **more: Any) -> OpSpec:
    """The spec of a function of two arrays that shares all code but the formula with `add`."""
    declared = {"bench": residual, **more}
    return OpSpec(
        op=op, reference=reference, like=LIKE_ADD, error_inputs=unmatched, work=one_flop, supports_grad=True, **declared
    )


def _powers(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    shape = sizes.batch, sizes.length, sizes.width
    yield Sample((make(shape, low=0.5, high=2), make(shape)))


def _sign(a: Array) -> Array:
    return np.asarray((a > 0).astype(a.dtype) - (a < 0).astype(a.dtype))


def _clamp(a: Array, *, min: float | None = None, max: float | None = None) -> Array:  # noqa: A002  the op's names
    found = a if min is None else np.maximum(a, a.dtype.type(min))
    return np.asarray(found if max is None else np.minimum(found, a.dtype.type(max)))


def _clamp_samples(make: Samples) -> Iterator[Sample]:
    bounds: tuple[dict[str, Any], ...] = ({"min": 1}, {"max": 1}, {"min": 1, "max": 2}, {"min": 2, "max": 1})
    for place, one in enumerate(unary(make)):
        yield Sample(one.args, bounds[place % len(bounds)], f"{one.label}, {bounds[place % len(bounds)]}", one.kind)
    yield from (Sample((make(257),), given) for given in bounds)
    if make.dtype not in INTEGERS:
        yield Sample((make(257),), {"min": -0.7, "max": 1.1})
        for given in ({"min": float("nan")}, {"max": float("-inf")}, {"min": float("-inf"), "max": 1.5}):
            yield Sample((make.extremal(),), given, f"edges of the dtype, {given}", "extremal")


def _clamp_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make(3),), label="no bound"), ArgumentError, "needs min=, max= or both")
    yield ErrorInput(Sample((make(3),), {"min": "low"}, "a word"), ArgumentError, "must be a real number")
    if make.dtype in INTEGERS:
        yield ErrorInput(Sample((make(3),), {"max": 1.5}, "not a whole number"), ArgumentError, "a whole number")
        yield ErrorInput(Sample((make(3),), {"max": 2**65}, "too large"), ArgumentError, "too large")


SPECS = (
    _function(ops.abs, np.abs),
    _function(ops.sign, _sign),
    _function(ops.rsqrt, lambda a: 1 / np.sqrt(a), bench=positive),
    _function(ops.reciprocal, lambda a: 1 / a),
    _function(ops.expm1, np.expm1),
    _function(ops.log1p, np.log1p, bench=positive),
    _function(ops.sin, np.sin),
    _function(ops.cos, np.cos),
    _function(ops.erf, erf),
    _function(ops.silu, lambda a: a * sigmoid(a)),
    _pair(ops.pow, np.power, bench=_powers),
    _pair(ops.maximum, np.maximum),
    _pair(ops.minimum, np.minimum),
    OpSpec(
        op=ops.clamp, reference=_clamp, samples=_clamp_samples, error_inputs=_clamp_errors,
        like={"cpu": "gelu", "sim": "cpu"},
        bench=lambda make, sizes: (Sample(one.args, {"min": -1, "max": 1}) for one in activations(make, sizes)),
        work=one_flop, supports_grad=True,
    ),
)  # fmt: skip
