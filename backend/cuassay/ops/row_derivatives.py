"""Derivatives of normalizations of rows; `cuassay.ops.derivatives` describes what a formula may do.

On plain arrays a gradient is a single op. If it is differentiated itself, it is built from ops that have formulas.
"""

from __future__ import annotations

from typing import Any

from cuassay.ops import catalog as ops
from cuassay.ops import registry, rules
from cuassay.ops.elementwise_derivatives import by, wide
from cuassay.ops.rules import Forward

__all__ = ["ROWS"]

Array = Any


def _is_recorded(*arrays: Array) -> bool:
    """Return whether this derivative is differentiated too; the single fused op has no derivative."""
    return None in map(registry.backend_of, map(type, arrays))


def _softmax(grad: Array, forward: Forward) -> Array:
    if not _is_recorded(grad, forward.out):
        return ops.softmax_backward(grad, forward.out, axis=forward.axis)
    grad, out = wide(grad), wide(forward.out)
    return ops.mul(out, ops.sub(grad, ops.sum(ops.mul(grad, out), axis=forward.axis, keepdims=True)))


def _mean(array: Array) -> Array:
    return ops.mul(ops.sum(array, axis=-1, keepdims=True), 1 / array.shape[-1])


def _normalized(forward: Forward) -> tuple[Array, Array]:
    """Return the rows with mean 0 and variance 1, and the factor that scaled them."""

    def make() -> tuple[Array, Array]:
        a = wide(forward.a)
        centred = ops.sub(a, _mean(a))
        scale = ops.div(1.0, ops.sqrt(ops.add(_mean(ops.mul(centred, centred)), float(forward.eps))))
        return ops.mul(centred, scale), scale

    found: tuple[Array, Array] = forward.once("normalized", make)
    return found


def _layer_norm(grad: Array, forward: Forward) -> Array:
    if not _is_recorded(grad, forward.a, forward.weight):
        return ops.layer_norm_backward(grad, forward.a, forward.weight, eps=forward.eps)
    rows, scale = _normalized(forward)
    grad = ops.mul(wide(grad), wide(forward.weight))
    across = ops.add(_mean(grad), ops.mul(rows, _mean(ops.mul(grad, rows))))
    return ops.mul(ops.sub(grad, across), scale)


def _layer_norm_weight(grad: Array, forward: Forward) -> Array:
    if _is_recorded(grad, forward.a):
        return ops.mul(wide(grad), _normalized(forward)[0])
    a, grad = wide(forward.a), wide(grad)
    rows = ops.layer_norm(a, _filled(1.0, a), _filled(0.0, a), eps=forward.eps)
    return ops.mul(grad, rows, out=rows if rows.dtype == grad.dtype else None)


def _filled(value: float, rows: Array) -> Array:
    """Return a vector of one value, as long as the rows."""
    backend = registry.owner_of(rows, "an array")
    made = backend.empty(tuple(rows.shape[-1:]), rows.dtype, backend.device_of(rows).index)
    made.fill(value)
    return made


ROWS: dict[str, rules.Derivative] = {
    "softmax": {"a": by("out")(_softmax)},
    "softmax_backward": "the derivative of softmax has one: differentiate a function of softmax twice",
    "layer_norm_backward": "the derivative of layer_norm has one: differentiate a function of layer_norm twice",
    "layer_norm": {
        "a": by("a", "weight")(_layer_norm),
        "weight": by("a")(_layer_norm_weight),
        "bias": by()(lambda g, f: wide(g)),
    },
}
