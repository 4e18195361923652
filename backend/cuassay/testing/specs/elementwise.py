"""OpSpecs of elementwise operations; implemented in ``devices/<kind>/elementwise.py``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.testing.default_samples import binary, unary
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec, Work
from cuassay.testing.samples import Sample, Samples

__all__ = [
    "LIKE_ADD",
    "LIKE_EXP",
    "SPECS",
    "activations",
    "erf",
    "not_for_bool",
    "one_flop",
    "positive",
    "residual",
    "sigmoid",
    "unmatched",
]

Array = NDArray[Any]

#: The error function of each element of an array.
erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(a: Array, *, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return np.asarray(0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))))
    return np.asarray(0.5 * a * (1 + erf(a / math.sqrt(2))))


def _gelu_backward(grad: Array, a: Array, *, approximate: str = "none") -> Array:
    a = np.asarray(a, np.float64)  # 8-bit integers would wrap around
    near = np.clip(a, -40, 40)
    if approximate == "none":
        slope = 0.5 * (1 + erf(a / math.sqrt(2))) + near * np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
        return np.asarray(grad * slope)
    root = math.sqrt(2 / math.pi)
    inner = np.clip(root * (near + 0.044715 * near**3), -300, 300)  # cosh overflows beyond, and 1 - tanh^2 cancels
    slope = root * (1 + 3 * 0.044715 * near**2) / np.cosh(inner) ** 2
    return np.asarray(grad * (1 / (1 + np.exp(-2 * inner)) + 0.5 * near * slope))


def sigmoid(a: Array) -> Array:
    """Compute it with an exponential that never overflows."""
    small = np.exp(-np.abs(a))
    return np.asarray(np.where(a < 0, small, 1) / (1 + small))


def _of_log(a: Array) -> Array:
    """Near 1 the logarithm is small, but the effect of the input's rounding is not."""
    return np.maximum(np.abs(np.log(np.abs(a))), 1)


def _gelu_backward_samples(make: Samples) -> Iterator[Sample]:
    yield from (Sample((make(257), make(257, low=-6, high=6)), {"approximate": how}) for how in ("none", "tanh"))
    yield from (one for one in binary(make) if one.kind != "values" or max(one.args[0].shape) < 65)
    edge = make.extremal().values
    edge[np.isinf(edge)] = 2  # for infinity the reference would give about 1e-257
    yield Sample((make.full(edge.shape, 1), edge), {"approximate": "tanh"}, "edges", "extremal")


def _gelu_samples(make: Samples) -> Iterator[Sample]:
    yield from unary(make)
    yield from (Sample((make(257, low=-6, high=6),), {"approximate": how}) for how in ("none", "tanh"))
    yield Sample((make.extremal(largest=False),), {"approximate": "tanh"}, "edges", "extremal")


def unmatched(make: Samples) -> Iterator[ErrorInput]:
    """Yield two arrays that do not broadcast, and calls with wrong arguments."""
    yield ErrorInput(Sample((make((3, 4)), make(5)), label="shapes that do not broadcast"), ShapeError, "broadcast")
    yield ErrorInput(Sample((make(3),), label="one operand missing"), ArgumentError, "needs 'b'")
    yield ErrorInput(Sample((2.0, 3.0), label="no array at all"), ArgumentError, "at least one array")
    yield ErrorInput(Sample((make(3), make(3)), {"alpha": 2}, "an unknown name"), ArgumentError, "no parameter 'alpha'")


def not_for_bool(make: Samples) -> Iterator[ErrorInput]:
    """Yield an array of truth values, and an unknown option."""
    yield ErrorInput(Sample((make(3, dtype="bool"),), label="bool"), DTypeError, "not defined for bool")
    yield ErrorInput(Sample((make(3),), {"axis": 0}, "an unknown name"), ArgumentError, "no parameter 'axis'")


def _gelu_errors(make: Samples) -> Iterator[ErrorInput]:
    yield from not_for_bool(make)
    yield ErrorInput(Sample((make(3),), {"approximate": "erf"}, "an unknown form"), ArgumentError, "'none' or 'tanh'")


def _gelu_backward_errors(make: Samples) -> Iterator[ErrorInput]:
    unknown = Sample((make(3), make(3)), {"approximate": "erf"}, "an unknown form")
    yield ErrorInput(unknown, ArgumentError, "'none' or 'tanh'")
    yield ErrorInput(Sample((make((3, 4)), make(5)), label="shapes that do not broadcast"), ShapeError, "broadcast")


def activations(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield a hidden layer of four times a block's width."""
    yield Sample((make((sizes.batch, sizes.length, 4 * sizes.width)),))


def residual(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield two arrays of a block's width."""
    shape = sizes.batch, sizes.length, sizes.width
    yield Sample((make(shape), make(shape)))


def positive(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    """Yield the array of `activations`, but positive, so that it has roots and logarithms."""
    yield Sample((make((sizes.batch, sizes.length, 4 * sizes.width), low=0.5, high=2),))


def _ratios(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    shape = sizes.batch, sizes.length, sizes.width
    yield Sample((make(shape), make(shape, low=0.5, high=2)))


def one_flop(*arrays: Array, **scalars: object) -> Work:
    """The work of one operation for each element: read the arguments, and write a result of their size."""
    return Work(bytes=sum(a.nbytes for a in arrays) + max(a.nbytes for a in arrays), flops=max(a.size for a in arrays))


#: For members of the tables of elementwise functions: on cpu and sim they differ only in their formulas.
LIKE_EXP, LIKE_ADD = {"cpu": "exp", "sim": "cpu"}, {"cpu": "add", "sim": "cpu"}

SPECS = (
    OpSpec(
        op=ops.add, reference=lambda a, b: a + b, error_inputs=unmatched, bench=residual, work=one_flop,
        supports_grad=True,
        magnitude=lambda a, b: np.abs(a) + np.abs(b),
    ),
    OpSpec(
        op=ops.mul, reference=lambda a, b: a * b, error_inputs=unmatched, bench=residual, work=one_flop,
        like=LIKE_ADD,
        supports_grad=True,
    ),
    OpSpec(
        op=ops.sub, reference=lambda a, b: a - b, error_inputs=unmatched, bench=residual, work=one_flop,
        like=LIKE_ADD,
        supports_grad=True,
        magnitude=lambda a, b: np.abs(a) + np.abs(b),
    ),
    OpSpec(
        op=ops.div, reference=lambda a, b: a / b, error_inputs=unmatched, bench=_ratios, work=one_flop,
        like=LIKE_ADD,
        supports_grad=True,
    ),
    OpSpec(
        op=ops.neg, reference=lambda a: -a, error_inputs=not_for_bool, bench=activations, work=one_flop,
        like=LIKE_EXP,
        supports_grad=True,
    ),
    OpSpec(
        op=ops.sqrt, reference=np.sqrt, error_inputs=not_for_bool, bench=positive, work=one_flop,
        like=LIKE_EXP,
        supports_grad=True,
    ),
    OpSpec(
        op=ops.log, reference=np.log, error_inputs=not_for_bool, bench=positive, work=one_flop,
        like=LIKE_EXP,
        supports_grad=True, magnitude=_of_log,
    ),
    OpSpec(
        op=ops.tanh, reference=np.tanh, error_inputs=not_for_bool, bench=activations, work=one_flop,
        like=LIKE_EXP,
        supports_grad=True,
    ),
    OpSpec(
        op=ops.sigmoid, reference=sigmoid, error_inputs=not_for_bool, bench=activations, work=one_flop,
        like=LIKE_EXP,
        supports_grad=True,
    ),
    OpSpec(op=ops.exp, supports_grad=True, reference=np.exp, error_inputs=not_for_bool, bench=activations),
    OpSpec(
        op=ops.relu, reference=lambda a: np.where(np.isnan(a), a, np.where(a > 0, a, 0)).astype(a.dtype),
        like=LIKE_EXP,
        supports_grad=True,
        error_inputs=not_for_bool, bench=activations, work=one_flop,
    ),
    OpSpec(
        op=ops.gelu, reference=_gelu, samples=_gelu_samples, error_inputs=_gelu_errors, bench=activations,
        supports_grad=True,
        # 1 + erf(x) cancels for negative x, so the error is relative to x, not to the result.
        magnitude=lambda a, **scalars: a,
    ),
    OpSpec(
        op=ops.gelu_backward, reference=_gelu_backward, samples=_gelu_backward_samples, bench=residual,
        like={"cpu": "gelu", "sim": "cpu"},
        error_inputs=_gelu_backward_errors, supports_grad=True,
        # The derivative is 0 near -0.75, so the error is relative to the gradient, not to the result.
        magnitude=lambda grad, a, **scalars: np.asarray(grad) + 0 * np.asarray(a),
    ),
)  # fmt: skip
