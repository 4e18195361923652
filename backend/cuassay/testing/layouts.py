"""The layouts in which generated checks pass an array: each is a view of a base array of another shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["LAYOUTS", "MARGIN", "Layout"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """How to make an array of a wanted shape as a view: the shape of its base array, and the view of that."""

    base: Callable[[Shape], Shape]
    view: Callable[[Any, Shape], Any]


def _every(step: slice) -> Callable[[Any, Shape], Any]:
    return lambda base, shape: base[(..., *(step,) * len(shape))]  # the ellipsis makes it a view even in 0-d


#: Elements on each side of an array whose surroundings are checked: more than a vector access, and a multiple of one.
MARGIN = 256

#: Only basic indexing, and reshapes that are views, so that every array library can make these layouts.
LAYOUTS: dict[str, Layout] = {
    "contiguous": Layout(lambda shape: shape, lambda base, shape: base),
    "transposed": Layout(lambda shape: shape[::-1], lambda base, shape: base.T),
    "reversed": Layout(lambda shape: shape, _every(slice(None, None, -1))),
    "strided": Layout(lambda shape: tuple(2 * extent for extent in shape), _every(slice(1, None, 2))),
    "odd_stride": Layout(
        lambda shape: (*shape[:-1], 3 * shape[-1]) if shape else shape,
        lambda base, shape: base[..., 2::3] if shape else base,
    ),
    # The first columns of a wider array: elements of a row are adjacent, but rows are not.
    "pitched": Layout(
        lambda shape: (*shape[:-1], shape[-1] + 3) if shape else shape,
        lambda base, shape: base[..., : shape[-1]] if shape else base,
    ),
    # An offset of three elements, so that vector loads wider than an element are misaligned.
    "offset": Layout(lambda shape: (math.prod(shape) + 3,), lambda base, shape: base[3:].reshape(shape)),
    # Contiguous and aligned, with poison on both sides, so that a read beyond the array shows in the result.
    "inside": Layout(
        lambda shape: (math.prod(shape) + 2 * MARGIN,),
        lambda base, shape: base[MARGIN : MARGIN + math.prod(shape)].reshape(shape),
    ),
}
