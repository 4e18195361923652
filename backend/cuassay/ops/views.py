"""Operations that move no data: their shape rules, and the functions that make the views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from cuassay.arrays.layout import as_shape, broadcast_shapes, normalize_axis
from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, ShapeError
from cuassay.ops import registry
from cuassay.ops.shapes import limited, reduced_axes, shape_of

__all__ = [
    "exchanged",
    "expand",
    "expanded",
    "index_of",
    "permute",
    "permuted",
    "reshape",
    "reshaped",
    "slice_of",
    "sliced",
    "squeeze",
    "squeezed",
    "transpose",
    "unsqueeze",
    "unsqueezed",
]

Array = Any
Bound = Mapping[str, Any]
Shape = tuple[int, ...]


# ------------------------------------------------------------------------------------------------ order of axes


def _exchange(axis0: int, axis1: int, ndim: int) -> list[int]:
    """Return the order of the axes with two of them exchanged."""
    first, second = normalize_axis(axis0, ndim), normalize_axis(axis1, ndim)
    order = list(range(ndim))
    order[first], order[second] = second, first
    return order


def exchanged(bound: Bound) -> Shape:
    """Return the shape of ``a`` with the extents of ``axis0`` and ``axis1`` exchanged."""
    shape = shape_of(bound["a"])
    return tuple(shape[axis] for axis in _exchange(bound["axis0"], bound["axis1"], len(shape)))


def transpose(a: Array, *, axis0: int, axis1: int) -> Array:
    """Exchange two axes."""
    return a.transpose(_exchange(axis0, axis1, a.ndim))


def _order(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return `axes` counted from the front; each axis must appear once."""
    given = tuple(normalize_axis(axis, ndim) for axis in axes) if isinstance(axes, tuple | list) else ()
    if sorted(given) != list(range(ndim)):
        raise ShapeError(
            f"permute's axes must name each of {ndim} axes once; got {shown(axes)}; write "
            f"{tuple(reversed(range(ndim)))} to reverse them"
        )
    return given


def permuted(bound: Bound) -> Shape:
    """Return the extents of ``a`` in the order ``axes``."""
    shape = shape_of(bound["a"])
    return tuple(shape[axis] for axis in _order(bound["axes"], len(shape)))


def permute(a: Array, *, axes: Sequence[int]) -> Array:
    """Put the axes in this order."""
    return a.transpose(_order(axes, a.ndim))


# ------------------------------------------------------------------------------------------------ extents


def reshaped(bound: Bound) -> Shape:
    """Return ``shape``, which must have as many elements as ``a``; one extent may be -1."""
    shape, wanted = shape_of(bound["a"]), bound["shape"]
    extents = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
    free = [place for place, extent in enumerate(extents) if as_whole(extent) == -1]
    size = prod(shape)
    known = prod(as_shape([extent for place, extent in enumerate(extents) if place not in free]))
    fits = size == known if not free else len(free) == 1 and known > 0 and size % known == 0
    if not fits:
        raise ShapeError(
            f"reshape cannot give {shape} the shape {shown(wanted)}: it has {size:,} elements; give extents with that "
            "product, one of which may be -1"
        )
    for place in free:
        extents[place] = size // known
    return limited("reshape", as_shape(extents))


def reshape(a: Array, *, shape: Any) -> Array:
    """Give the same elements, in C order, another shape."""
    return a.reshape(reshaped({"a": a, "shape": shape}))


def expanded(bound: Bound) -> Shape:
    """Return ``shape``, to which ``a`` must broadcast."""
    shape, wanted = shape_of(bound["a"]), as_shape(bound["shape"])
    if broadcast_shapes(shape, wanted) != wanted:
        raise ShapeError(f"expand cannot broadcast {shape} to {wanted}; an axis is longer there than in shape")
    return limited("expand", wanted)


def expand(a: Array, *, shape: Any) -> Array:
    """Broadcast; axes that are new, or had extent 1, get a stride of 0."""
    backend = registry.owner_of(a, "expand's a")
    return backend.namespace(backend.device_of(a).index).broadcast_to(a, as_shape(shape))


def _single(axis: Any, shape: Shape) -> tuple[int, ...]:
    """Return the axes of extent 1 that are removed."""
    if axis is None:
        return tuple(place for place, extent in enumerate(shape) if extent == 1)
    axes = reduced_axes(axis, len(shape))
    longer = [place for place in axes if shape[place] != 1]
    if longer:
        raise ShapeError(
            f"squeeze removes axes of extent 1; axis {longer[0]} of {shape} has {shape[longer[0]]}; use slice to take "
            "one place of it"
        )
    return axes


def squeezed(bound: Bound) -> Shape:
    """Return the shape of ``a`` without the axes ``axis``, which must have extent 1 (None: all of extent 1)."""
    shape = shape_of(bound["a"])
    removed = _single(bound["axis"], shape)
    return tuple(extent for place, extent in enumerate(shape) if place not in removed)


def squeeze(a: Array, *, axis: Any) -> Array:
    """Remove axes of extent 1."""
    removed = _single(axis, tuple(a.shape))
    return a[(*(0 if place in removed else slice(None) for place in range(a.ndim)), Ellipsis)]


def unsqueezed(bound: Bound) -> Shape:
    """Return the shape of ``a`` with a new axis ``axis`` of extent 1."""
    shape = shape_of(bound["a"])
    axis = normalize_axis(bound["axis"], len(shape) + 1)
    return limited("unsqueeze", (*shape[:axis], 1, *shape[axis:]))


def unsqueeze(a: Array, *, axis: int) -> Array:
    """Add an axis of extent 1."""
    return a[(*(slice(None),) * normalize_axis(axis, a.ndim + 1), None, Ellipsis)]


# ------------------------------------------------------------------------------------------------ slices


def _limit(name: str, value: object, extent: int) -> int | None:
    """Clip a bound or step to just past the ends, where all values are equivalent, so that it fits a C integer."""
    if value is None:
        return None
    whole = as_whole(value)
    if whole is None:
        raise ArgumentError(f"slice's {name} must be a whole number or None; got {shown(value)}")
    return max(-extent - 1, min(whole, extent + 1))


def _index(shape: Shape, axis: int, start: Any, stop: Any, step: Any) -> tuple[Any, ...]:
    axis = normalize_axis(axis, len(shape))
    first, end, by = (
        _limit(name, value, shape[axis]) for name, value in (("start", start), ("stop", stop), ("step", step))
    )
    if by == 0:
        raise ArgumentError("slice's step must not be 0; a negative step goes backwards")
    return (*(slice(None),) * axis, slice(first, end, by), Ellipsis)


def index_of(bound: Bound) -> tuple[Any, ...]:
    """Return the slice of a call as an index of its array."""
    return _index(shape_of(bound["a"]), bound["axis"], bound["start"], bound["stop"], bound["step"])


def sliced(bound: Bound) -> Shape:
    """Return the shape of ``a`` sliced along ``axis`` from ``start`` to ``stop`` by ``step``, as in Python."""
    shape = shape_of(bound["a"])
    index = index_of(bound)
    axis = len(index) - 2
    return (*shape[:axis], len(range(*index[axis].indices(shape[axis]))), *shape[axis + 1 :])


def slice_of(a: Array, *, axis: int, start: Any, stop: Any, step: Any) -> Array:
    """Slice along `axis` from `start` to `stop` by `step`."""
    return a[_index(tuple(a.shape), axis, start, stop, step)]
