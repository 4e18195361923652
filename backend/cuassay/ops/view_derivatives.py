"""Derivatives of views: the inverse view of the gradient, or for a slice zeros around the gradient.

`cuassay.ops.derivatives` describes what a formula may do.
"""

from __future__ import annotations

from typing import Any

from cuassay.ops import rules, views
from cuassay.ops.conv_derivatives import placed
from cuassay.ops.elementwise_derivatives import by
from cuassay.ops.rules import Forward

__all__ = ["VIEWS"]

Array = Any


def _permute(grad: Array, forward: Forward) -> Array:
    axes = [axis % max(grad.ndim, 1) for axis in forward.axes]
    return grad.transpose(tuple(axes.index(place) for place in range(grad.ndim)))


def _slice(grad: Array, forward: Forward) -> Array:
    bound = {name: getattr(forward, name) for name in ("a", "axis", "start", "stop", "step")}
    return placed(grad, tuple(forward.a.shape), views.index_of(bound))


def _reshape(grad: Array, forward: Forward) -> Array:
    return grad.reshape(tuple(forward.a.shape))


VIEWS: dict[str, rules.Derivative] = {
    "transpose": {"a": by()(lambda g, f: g.swapaxes(f.axis0, f.axis1))},
    "permute": {"a": by()(_permute)},
    "expand": {"a": by()(lambda g, f: g)},
    "slice": {"a": by()(_slice)},
    "reshape": {"a": by()(_reshape)},
    "squeeze": {"a": by()(_reshape)},
    "unsqueeze": {"a": by()(_reshape)},
}
