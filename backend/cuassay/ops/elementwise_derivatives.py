"""Derivatives of elementwise ops; `cuassay.ops.derivatives` describes what a formula may do.

At points where the result is not differentiable, the gradient is torch's: both operands of `maximum` share it if they
are equal, and `clamp` passes it at its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from cuassay.arrays.dtypes import HALVES, dtype_name
from cuassay.ops import catalog as ops
from cuassay.ops import rules
from cuassay.ops.rules import Formula, Forward

__all__ = ["ELEMENTWISE", "NONE", "by", "wide"]

Array = Any

#: For ops whose result does not change when a parameter changes a little.
NONE: Mapping[str, Formula | str] = {}


def by(*reads: str) -> Callable[[Callable[[Array, Forward], Array]], Formula]:
    """Return a decorator that makes a `Formula` of a function that reads these values."""
    return lambda function: Formula(function, reads)


def wide(array: Array) -> Array:
    """Cast 16-bit floats to float32, so that the sums and differences of a formula are not rounded at each step."""
    return ops.cast(array, dtype="float32") if dtype_name(array.dtype) in HALVES else array


def _silu(grad: Array, forward: Forward) -> Array:
    """Compute ``s * (1 + a * (1 - s))``; s is the sigmoid."""
    a = wide(forward.a)
    gate = ops.sigmoid(a)
    return ops.mul(wide(grad), ops.mul(gate, ops.add(1.0, ops.mul(a, ops.sub(1.0, gate)))))


def _erf(grad: Array, forward: Forward) -> Array:
    a = wide(forward.a)
    return ops.mul(ops.mul(wide(grad), 2 / math.sqrt(math.pi)), ops.exp(ops.neg(ops.mul(a, a))))


def _pow_a(grad: Array, forward: Forward) -> Array:
    """Compute ``b * a ** (b - 1)``, and 0 where b is 0, even if `a` is 0."""
    b = forward.b
    if not hasattr(b, "dtype"):
        return ops.mul(wide(grad), ops.mul(ops.pow(wide(forward.a), b - 1), b)) if b else ops.mul(grad, 0.0)
    found = ops.mul(wide(grad), ops.mul(b, ops.pow(wide(forward.a), ops.sub(wide(b), 1.0))))
    return ops.where(ops.equal(b, 0), 0.0, found)


def _pow_b(grad: Array, forward: Forward) -> Array:
    """Compute ``a ** b * log(a)``, and 0 where `a` is 0 and b is at least 0."""
    out = wide(forward.out)
    if not hasattr(forward.a, "dtype"):
        return ops.mul(ops.mul(wide(grad), out), math.log(forward.a)) if forward.a > 0 else ops.mul(grad, 0.0)
    found = ops.mul(wide(grad), ops.mul(out, ops.log(wide(forward.a))))
    return ops.where(ops.logical_and(ops.equal(forward.a, 0), ops.greater_equal(forward.b, 0)), 0.0, found)


def _of_larger(grad: Array, this: Array, other: Array, *, is_less: Callable[..., Array]) -> Array:
    """Pass the gradient where `this` was taken, half of it where both are equal, and all of it at NaN, as in torch."""
    halved = ops.where(ops.equal(this, other), ops.mul(grad, 0.5), grad)
    return ops.where(is_less(this, other), 0.0, halved)


def _clamp(grad: Array, forward: Forward) -> Array:
    """Pass the gradient where the value is within the bounds or equal to one."""
    if forward.min is not None:
        grad = ops.where(ops.less(forward.a, forward.min), 0.0, grad)
    return grad if forward.max is None else ops.where(ops.greater(forward.a, forward.max), 0.0, grad)


ELEMENTWISE: dict[str, rules.Derivative] = {
    "rsqrt": {"a": by("out")(lambda g, f: ops.mul(wide(g), ops.mul(ops.pow(wide(f.out), 3.0), -0.5)))},
    "reciprocal": {"a": by("out")(lambda g, f: ops.neg(ops.mul(wide(g), ops.mul(wide(f.out), wide(f.out)))))},
    "abs": {"a": by("a")(lambda g, f: ops.mul(g, ops.sign(f.a)))},
    "sign": {"a": by()(lambda g, f: ops.mul(g, 0.0))},
    "expm1": {"a": by("out")(lambda g, f: ops.mul(g, ops.add(f.out, 1.0)))},
    "log1p": {"a": by("a")(lambda g, f: ops.div(g, ops.add(f.a, 1.0)))},
    "sin": {"a": by("a")(lambda g, f: ops.mul(g, ops.cos(f.a)))},
    "cos": {"a": by("a")(lambda g, f: ops.neg(ops.mul(g, ops.sin(f.a))))},
    "erf": {"a": by("a")(_erf)},
    "silu": {"a": by("a")(_silu)},
    "pow": {"a": by("a", "b")(_pow_a), "b": by("a", "b", "out")(_pow_b)},
    "maximum": {
        "a": by("a", "b")(lambda g, f: _of_larger(g, f.a, f.b, is_less=ops.less)),
        "b": by("a", "b")(lambda g, f: _of_larger(g, f.b, f.a, is_less=ops.less)),
    },
    "minimum": {
        "a": by("a", "b")(lambda g, f: _of_larger(g, f.a, f.b, is_less=ops.greater)),
        "b": by("a", "b")(lambda g, f: _of_larger(g, f.b, f.a, is_less=ops.greater)),
    },
    "clamp": {"a": by("a")(_clamp)},
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), NONE),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), NONE),
}
