"""OpSpecs of elementwise operations: implemented in ``devices/<kind>/elementwise.py``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.default_samples import unary
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples

__all__ = ["SPECS"]

Array = NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(a: Array, *, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return np.asarray(0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))))
    return np.asarray(0.5 * a * (1 + _erf(a / math.sqrt(2))))


def _gelu_samples(make: Samples) -> Iterator[Sample]:
    yield from unary(make)
    yield from (Sample((make(257, low=-6, high=6),), {"approximate": how}) for how in ("none", "tanh"))


def _unmatched(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make((3, 4)), make(5)), label="shapes that do not broadcast"), ShapeError, "broadcast")
    yield ErrorInput(Sample((make(3),), label="one operand missing"), ArgumentError, "needs 'b'")
    yield ErrorInput(Sample((2.0, 3.0), label="no array at all"), ArgumentError, "at least one array")
    yield ErrorInput(Sample((make(3), make(3)), {"alpha": 2}, "an unknown name"), ArgumentError, "no parameter 'alpha'")


def _not_for_bool(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make(3, dtype="bool"),), label="bool"), DTypeError, "not defined for bool")
    yield ErrorInput(Sample((make(3),), {"axis": 0}, "an unknown name"), ArgumentError, "no parameter 'axis'")


def _gelu_errors(make: Samples) -> Iterator[ErrorInput]:
    yield from _not_for_bool(make)
    yield ErrorInput(Sample((make(3),), {"approximate": "erf"}, "an unknown form"), ArgumentError, "'none' or 'tanh'")


def _activations(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """The four-fold wide hidden layer of a block."""
    yield Sample((make((sizes.batch, sizes.length, 4 * sizes.width)),))


def _residual(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    shape = sizes.batch, sizes.length, sizes.width
    yield Sample((make(shape), make(shape)))


def _one_flop(*arrays: Array, **scalars: object) -> Work:
    """Bytes of the arguments and of a result of their size."""
    return Work(bytes=sum(a.nbytes for a in arrays) + max(a.nbytes for a in arrays), flops=max(a.size for a in arrays))


SPECS = (
    OpSpec(
        op=ops.add, reference=lambda a, b: a + b, error_inputs=_unmatched, bench=_residual, work=_one_flop,
        magnitude=lambda a, b: np.abs(a) + np.abs(b),
    ),
    OpSpec(op=ops.mul, reference=lambda a, b: a * b, error_inputs=_unmatched, bench=_residual, work=_one_flop),
    OpSpec(op=ops.exp, reference=np.exp, error_inputs=_not_for_bool, bench=_activations),
    OpSpec(
        op=ops.relu, reference=lambda a: np.where(np.isnan(a), a, np.where(a > 0, a, 0)).astype(a.dtype),
        error_inputs=_not_for_bool, bench=_activations, work=_one_flop,
    ),
    OpSpec(
        op=ops.gelu, reference=_gelu, samples=_gelu_samples, error_inputs=_gelu_errors, bench=_activations,
        # 1 + erf(x) cancels where x is negative: the error is relative to x, not to the result.
        magnitude=lambda a, **scalars: a,
    ),
)  # fmt: skip
