"""The shape rules of the declared operations, usable without calls.

Each rule takes the arguments by name: anything with a ``shape`` for an array, and scalars unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import FLOATS, FP8, as_dtype, dtype_name, is_float
from cuassay.arrays.layout import broadcast_shapes, normalize_axis
from cuassay.core.numbers import as_real, as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.ops.arguments import flag
from cuassay.ops.schema import ShapeRule

__all__ = [
    "along",
    "argument",
    "broadcast",
    "broadcast_arrays",
    "cast",
    "chosen",
    "clamped",
    "limited",
    "matmul",
    "non_empty",
    "normalized",
    "normalized_gradient",
    "padded",
    "reduced",
    "same",
    "shape_of",
    "softmax",
    "softmax_gradient",
    "variance",
]

Shape = tuple[int, ...]


def shape_of(value: Any) -> Shape:
    """Return the shape of an array, or ``()`` for a Python scalar."""
    return tuple(getattr(value, "shape", ()))


#: The most axes of a NumPy array, and so of arrays of every kind.
_MOST_AXES = 64


def limited(name: str, shape: Shape) -> Shape:
    """Return `shape` if it does not have more axes than arrays may have. Raises `ShapeError` otherwise."""
    if len(shape) > _MOST_AXES:
        raise ShapeError(
            f"{name} would give {len(shape)} axes; an array has {_MOST_AXES} at most; join some by reshape"
        )
    return shape


def broadcast(bound: Mapping[str, Any]) -> Shape:
    """Broadcast all arguments by NumPy's rule; Python scalars have shape ``()``."""
    shapes = [
        getattr(value, "shape", ()) for value in bound.values()
    ]  # not by `shape_of`: its frames cost 4 % per call
    return shapes[0] if len(set(shapes)) == 1 else broadcast_shapes(*shapes)


def broadcast_arrays(*names: str) -> ShapeRule:
    """Make the rule that broadcasts only these arguments, for an operation that has scalars."""

    def rule(bound: Mapping[str, Any]) -> Shape:
        return broadcast({name: bound[name] for name in names})

    return rule


def chosen(bound: Mapping[str, Any]) -> Shape:
    """Broadcast all arguments; ``condition`` must be an array of bool."""
    condition = bound["condition"]
    if getattr(condition, "dtype", None) != np.bool_:
        raise DTypeError(
            f"where's condition must be an array of bool; got {shown(condition)}; make one by ops.less_equal or equal"
        )
    return broadcast(bound)


def clamped(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``a``; ``min``, ``max`` or both must be given, as whole numbers for integer dtypes."""
    bounds = {name: bound[name] for name in ("min", "max") if bound[name] is not None}
    if not bounds:
        raise ArgumentError("clamp needs min=, max= or both; got neither; give a number")
    for name, value in bounds.items():
        if as_real(value) is None:
            raise ArgumentError(f"clamp's {name} must be a real number; got {shown(value)}; use maximum for an array")
        if bound["a"].dtype.kind in "iu" and as_whole(value) is None:
            raise ArgumentError(
                f"clamp's {name} must be a whole number for {dtype_name(bound['a'].dtype)}; got {shown(value)}; "
                "cast the array to a floating dtype, or give a whole number"
            )
    return shape_of(bound["a"])


def same(name: str) -> ShapeRule:
    """Make the rule that returns the shape of argument `name`; an ``axis`` argument, if any, must exist in it."""

    def rule(bound: Mapping[str, Any]) -> Shape:
        shape = shape_of(bound[name])
        if "axis" in bound:
            normalize_axis(bound["axis"], len(shape))
        return shape

    return rule


def softmax(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``a``, which must have the axis ``axis``; ``dtype`` must be a floating dtype or None."""
    named = bound["dtype"]
    if named is not None and dtype_name(as_dtype(named)) not in FLOATS:
        raise DTypeError(f"softmax gives one of {', '.join(FLOATS)}; got dtype {shown(named)}; cast the result")
    return same("a")(bound)


def along(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``a``, which must have the axis ``axis``."""
    shape = shape_of(bound["a"])
    normalize_axis(bound["axis"], len(shape))
    return shape


def padded(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``a``, with each axis extended by its pair of ``widths``."""
    shape, widths, value = shape_of(bound["a"]), bound["widths"], bound["value"]
    pairs = list(widths) if isinstance(widths, tuple | list) else []
    if len(pairs) != len(shape) or not all(_is_pair(pair) for pair in pairs):
        raise ArgumentError(
            f"pad's widths must have a pair of whole numbers of at least 0 for each of {len(shape)} axes; got "
            f"{shown(widths)}; write ((0, 0), (1, 2)) for two columns"
        )
    if not isinstance(value, bool) and as_real(value) is None:
        raise ArgumentError(f"pad's value must be a real number; got {shown(value)}")
    if bound["a"].dtype.kind in "iu" and not isinstance(value, bool) and as_whole(value) is None:
        raise ArgumentError(
            f"pad's value must be a whole number for {dtype_name(bound['a'].dtype)}; got {shown(value)}"
        )
    return tuple(extent + before + after for extent, (before, after) in zip(shape, pairs, strict=True))


def _is_pair(pair: Any) -> bool:
    whole = [as_whole(one) for one in pair] if isinstance(pair, tuple | list) else []
    return len(whole) == 2 and all(one is not None and one >= 0 for one in whole)


def cast(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``a``; `dtype` must be a floating dtype."""
    wanted = as_dtype(bound["dtype"])
    if not is_float(wanted) or dtype_name(wanted) in FP8:
        raise DTypeError(f"cast goes between {', '.join(FLOATS)}; got {dtype_name(wanted)}; use the array's astype")
    return shape_of(bound["a"])


def reduced(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``a`` without the axes in ``axis`` (None: all), or with extent 1 there if ``keepdims``."""
    shape = shape_of(bound["a"])
    axes = reduced_axes(bound["axis"], len(shape))
    keepdims = bound["keepdims"]
    if keepdims is not False and flag("keepdims", keepdims):
        return tuple(1 if i in axes else extent for i, extent in enumerate(shape))
    return tuple(extent for i, extent in enumerate(shape) if i not in axes)


def reduced_axes(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return the axes that a reduction runs over, counted from the front, ascending."""
    if axis is None:
        return tuple(range(ndim))
    given = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(sorted(normalize_axis(one, ndim) for one in given))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axis {axis!r} names an axis of {ndim} twice; name each once")
    return axes


def non_empty(what: str) -> ShapeRule:
    """Make the `reduced` rule of an operation whose value, named `what`, is undefined over zero elements."""

    def rule(bound: Mapping[str, Any]) -> Shape:
        shape = shape_of(bound["a"])
        result = reduced(bound)
        if 0 in (shape[axis] for axis in reduced_axes(bound["axis"], len(shape))) and 0 not in result:
            raise ShapeError(
                f"the {what} of no elements is undefined; got shape {shape}, axis {bound['axis']!r}; reduce a longer "
                "axis"
            )
        return result

    return rule


def argument(bound: Mapping[str, Any]) -> Shape:
    """Apply `non_empty` for a single axis or all axes."""
    if isinstance(bound["axis"], tuple | list):
        raise ArgumentError(
            f"argmax is over one axis, or all (None); got axis {bound['axis']!r}; reshape the array first"
        )
    return non_empty("maximum")(bound)


def variance(bound: Mapping[str, Any]) -> Shape:
    """Apply `reduced`; ``correction`` must be a real number."""
    if as_real(bound["correction"]) is None:
        raise ArgumentError(
            f"var's correction must be a real number; got {shown(bound['correction'])}; 0 or 1 is usual"
        )
    return reduced(bound)


def normalized(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``a``; ``weight`` and ``bias`` must be vectors as long as its last axis."""
    shape = shape_of(bound["a"])
    if not shape:
        raise ShapeError("layer_norm needs an axis to normalize over; got a 0-d array; give at least one dimension")
    if as_real(bound["eps"]) is None:
        raise ArgumentError(f"layer_norm's eps must be a real number; got {shown(bound['eps'])}; 1e-5 is usual")
    for name in ("weight", "bias"):
        if shape_of(bound[name]) != shape[-1:]:
            raise ShapeError(
                f"layer_norm's {name} must have shape {shape[-1:]}, the last axis of a {shape}; "
                f"got {shape_of(bound[name])}"
            )
    return shape


def softmax_gradient(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``result``, which ``grad`` must have too."""
    return _with_gradient("softmax_backward", bound, same("result")(bound))


def normalized_gradient(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``a``, which ``grad`` must have too; ``weight`` must be a vector as long as its last axis."""
    shape = normalized({**bound, "bias": bound["weight"]})
    return _with_gradient("layer_norm_backward", bound, shape)


def _with_gradient(name: str, bound: Mapping[str, Any], shape: Shape) -> Shape:
    if shape_of(bound["grad"]) != shape:
        raise ShapeError(
            f"{name}'s grad must have the shape of the result, {shape}; got {shape_of(bound['grad'])}; broadcast it"
        )
    return shape


def matmul(bound: Mapping[str, Any]) -> Shape:
    """Apply NumPy's matmul rule: the last two axes multiply, and those before them broadcast; vectors are allowed."""
    a, b = shape_of(bound["a"]), shape_of(bound["b"])
    if not a or not b:
        raise ShapeError(f"matmul needs arrays of one dimension or more; got shapes {a} and {b}; use mul for scalars")
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        raise ShapeError(
            f"matmul cannot contract {a} with {b}: {left[-1]} is not {right[-2]}; transpose or reshape an operand"
        )
    inner = left[-2:-1] * (len(a) > 1) + right[-1:] * (len(b) > 1)
    return broadcast_shapes(left[:-2], right[:-2]) + inner


def linear(bound: Mapping[str, Any]) -> Shape:
    """Map ``(..., K)`` with weight ``(N, K)`` and optional bias ``(N,)`` to ``(..., N)``."""
    a, weight = shape_of(bound["a"]), shape_of(bound["weight"])
    bias = weight[:1] if bound["bias"] is None else shape_of(bound["bias"])
    if not a or len(weight) != 2 or a[-1] != weight[1] or bias != weight[:1]:
        raise ShapeError(f"linear needs a (..., K), weight (N, K) and bias (N,); got {a}, {weight} and {bias}")
    return (*a[:-1], weight[0])
