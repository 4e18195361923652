"""Operations over lists of NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.multi_tensor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import FLOATS, compute_dtype
from cuassay.arrays.rounding import narrowed
from cuassay.ops import registry

__all__ = ["as_computed", "foreach_zero_", "register"]

Array = NDArray[Any]
Arrays = Sequence[Array]


def as_computed(array: Array) -> Array:
    """Return a copy in the dtype that `array` is computed in."""
    return array.astype(compute_dtype(array.dtype))


def _each(a: Arrays, b: Any) -> list[tuple[Array, Any]]:
    """Pair every array of `a` with an array of the list `b`, or with the number, in the dtype of the computation."""
    if isinstance(b, list | tuple):
        return [(left, as_computed(right)) for left, right in zip(a, b, strict=True)]
    return [(left, compute_dtype(left.dtype).type(np.asarray(b).reshape(()))) for left in a]


def foreach_add_(a: Arrays, b: Any, *, alpha: float) -> None:
    """Compute ``a += alpha * b``."""
    for left, right in _each(a, b):
        left[...] = (as_computed(left) + compute_dtype(left.dtype).type(alpha) * right).astype(left.dtype)


def foreach_mul_(a: Arrays, b: Any) -> None:
    """Compute ``a *= b``."""
    for left, right in _each(a, b):
        left[...] = (as_computed(left) * right).astype(left.dtype)


def foreach_lerp_(a: Arrays, b: Arrays, weight: Any) -> None:
    """Compute ``a += weight * (b - a)``, exact at both ends."""
    for (left, right), (_, share) in zip(_each(a, b), _each(a, weight), strict=True):
        wide = as_computed(left)
        moved = wide + share * (right - wide) if share < 0.5 else right - (right - wide) * (1 - share)
        left[...] = moved.astype(left.dtype)


def foreach_copy_(a: Arrays, b: Arrays) -> None:
    """Copy ``a = b``."""
    for left, right in zip(a, b, strict=True):
        left[...] = narrowed(right, left.dtype)


def foreach_zero_(a: Arrays) -> None:
    """Set ``a = 0``."""
    for array in a:
        array[...] = 0


def foreach_norm(a: Arrays, *, ord: float, out: Array) -> None:  # noqa: A002  NumPy's name
    """Compute norms, with squares in float64; NaN wins."""
    for place, array in enumerate(a):
        out[place] = _norm(array, ord)


def foreach_max(a: Arrays, *, out: Array) -> None:
    """Compute maxima; NaN wins."""
    for place, array in enumerate(a):
        out[place] = np.max(as_computed(array))


def _norm(array: Array, order: float) -> float:
    wide = array.astype(np.float64)
    if order == math.inf:
        return float(np.max(np.abs(wide), initial=0.0))
    return float(np.sqrt(np.sum(wide * wide)))


def global_norm_(grads: Arrays, norm: Any, found_inf: Any, grad_scale: Any, *, accumulate: bool) -> None:
    """Compute the 2-norm of the whole list, and whether it has an element that is not finite."""
    total = math.hypot(*(_norm(grad, 2) for grad in grads))
    total = math.nan if any(np.isnan(grad.astype(np.float64)).any() for grad in grads) else total
    former = found_inf is not None and accumulate and bool(np.any(found_inf != 0))
    if found_inf is not None:
        found_inf[...] = not math.isfinite(total) or former
    if norm is not None:
        mine = total if grad_scale is None else total / float(grad_scale.reshape(()))
        norm[...] = math.hypot(mine, float(norm.reshape(()))) if accumulate else mine


def foreach_unscale_(grads: Arrays, found_inf: Array, inv_scale: Array) -> None:
    """Compute ``grads *= inv_scale``, and whether an element was not finite."""
    for grad, factor in _each(grads, inv_scale):
        if not np.isfinite(grad.astype(np.float64)).all():
            found_inf[...] = 1
        grad[...] = (as_computed(grad) * factor).astype(grad.dtype)


def register() -> None:
    """Add these implementations to the registry."""
    table: dict[str, Callable[..., None]] = {
        function.__name__: function
        for function in (
            foreach_add_,
            foreach_mul_,
            foreach_lerp_,
            foreach_copy_,
            foreach_zero_,
            foreach_norm,
            foreach_max,
            global_norm_,
            foreach_unscale_,
        )
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cpu", dtypes=FLOATS)(implementation)
