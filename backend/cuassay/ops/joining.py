"""Shape rules of operations that join the arrays of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cuassay.arrays.layout import normalize_axis
from cuassay.errors import ShapeError
from cuassay.ops.shapes import limited, shape_of

__all__ = ["joined", "stacked"]

Shape = tuple[int, ...]


def joined(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of the arrays of ``a``, with the sum of their extents along ``axis``."""
    shapes = list(map(shape_of, bound["a"]))
    axis = normalize_axis(bound["axis"], len(shapes[0]))
    rest = [(*shape[:axis], *shape[axis + 1 :]) for shape in shapes]
    for place, shape in enumerate(shapes):
        if len(shape) != len(shapes[0]) or rest[place] != rest[0]:
            raise ShapeError(
                f"cat needs arrays that differ along axis {axis} alone; a[0] has {shapes[0]}, a[{place}] {shape}; "
                "reshape one, or use stack for a new axis"
            )
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def stacked(bound: Mapping[str, Any]) -> Shape:
    """Return the common shape of ``a``, with a new axis ``axis`` as long as the list."""
    shapes = list(map(shape_of, bound["a"]))
    _check_equal(shapes)
    axis = normalize_axis(bound["axis"], len(shapes[0]) + 1)
    return limited("stack", (*shapes[0][:axis], len(shapes), *shapes[0][axis:]))


def _check_equal(shapes: Sequence[Shape]) -> None:
    for place, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ShapeError(
                f"stack needs arrays of one shape; a[0] has {shapes[0]}, a[{place}] {shape}; broadcast one with "
                "expand, or use cat"
            )
