"""Derivatives of operations that write a list of arrays, in their functional form.

The gradient of ``ops.foreach_mul_.functional(a, b)`` is a list, as its result is.
`cuassay.ops.derivatives` describes what a formula may do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from cuassay.ops import catalog as ops
from cuassay.ops import rules
from cuassay.ops.elementwise_derivatives import NONE, by, wide
from cuassay.ops.rules import Forward

__all__ = ["LISTS"]

Array = Any
Arrays = Sequence[Any]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _paired(value: Any, arrays: Arrays) -> Iterator[tuple[Array, Any]]:
    """Yield each array with the array at its place in the list `value`, or with `value` itself if it is one number."""
    return zip(arrays, value if _is_list(value) else [value] * len(arrays), strict=True)


def _for(value: Any, grads: list[Array]) -> Any:
    """Return the gradient of `value`: `grads` for a list, and their sum for one number, which all arrays depend on."""
    return grads if _is_list(value) else reduce(ops.add, (ops.sum(wide(grad)) for grad in grads))


def _times(factor: Callable[[Forward], Any]) -> Callable[[Arrays, Forward], list[Array]]:
    return lambda grad, forward: [ops.mul(one, other) for one, other in _paired(factor(forward), grad)]


def _lerp_weight(grad: Arrays, forward: Forward) -> Array:
    steps = [ops.sub(wide(b), wide(a)) for a, b in zip(forward.a, forward.b, strict=True)]
    return _for(forward.weight, [ops.mul(one, step) for one, step in zip(grad, steps, strict=True)])


LISTS: dict[str, rules.Derivative] = {
    "foreach_add_": {
        "a": by()(lambda g, f: list(g)),
        "b": by()(lambda g, f: _for(f.b, [ops.mul(one, f.alpha) for one in g])),
    },
    "foreach_mul_": {
        "a": by("b")(_times(lambda f: f.b)),
        "b": by("a")(lambda g, f: _for(f.b, _times(lambda f: f.a)(g, f))),
    },
    "foreach_lerp_": {
        "a": by("weight")(_times(lambda f: ops.sub(1.0, f.weight) if hasattr(f.weight, "dtype") else 1 - f.weight)),
        "b": by("weight")(_times(lambda f: f.weight)),
        "weight": by("a", "b")(_lerp_weight),
    },
    "foreach_copy_": {"b": by()(lambda g, f: list(g))},
    "foreach_zero_": NONE,
    **dict.fromkeys(
        ("foreach_unscale_", "global_norm_", "update_scale_", "fused_adam_"),
        "it writes several arrays, and a formula is for one; use ops that make a new array, or call it after grad",
    ),
}
