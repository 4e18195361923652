"""Derivatives of operations that join arrays: each array gets its part of the gradient, as a view.

`cuassay.ops.derivatives` describes what a formula may do.
"""

from __future__ import annotations

from typing import Any

from cuassay.arrays.layout import normalize_axis
from cuassay.ops import rules
from cuassay.ops.elementwise_derivatives import by
from cuassay.ops.rules import Forward

__all__ = ["JOINING"]

Array = Any


def _parts(grad: Array, forward: Forward) -> list[Array]:
    axis = normalize_axis(forward.axis, grad.ndim)
    before, found, start = (slice(None),) * axis, [], 0
    for one in forward.a:
        end = start + one.shape[axis]
        found.append(grad[(*before, slice(start, end))])
        start = end
    return found


def _slices(grad: Array, forward: Forward) -> list[Array]:
    before = (slice(None),) * normalize_axis(forward.axis, grad.ndim)
    return [grad[(*before, place, Ellipsis)] for place in range(len(forward.a))]


JOINING: dict[str, rules.Derivative] = {
    "cat": {"a": by()(_parts)},
    "stack": {"a": by()(_slices)},
}
