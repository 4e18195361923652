"""Part of the check of special numbers: where a NaN is, as NumPy's argmax tells it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["check_place_of_nan"]


def check_place_of_nan(sample: Sample, got: NDArray[Any], expected: NDArray[Any]) -> None:
    """Where the reference gives the place of the NaN, as `argmax` does, the function gives it too.

    For one array, of which each result is one place; an order of all numbers, as of `argsort`, is left out.
    """
    arrays = arrays_of(*sample.host())
    if len(arrays) != 1 or expected.shape != got.shape or not got.dtype.kind == expected.dtype.kind == "i":
        return
    if expected.ndim >= max(1, arrays[0].ndim):
        return
    at = np.argwhere(np.isnan(arrays[0]))
    if len(at) != 1:
        return
    for element, place in _places(arrays[0].shape, at[0]):
        if _is_shape_of(element, expected) and expected[element] == place != got[element]:
            raise AssertionError(
                f"the place of a NaN is lost: got {got[element].item()!r}, the reference gives {place}, where it is; "
                f"NumPy's argmax and argmin give the first NaN\n  sample: {sample.label}"
            )


def _places(shape: tuple[int, ...], at: NDArray[Any]) -> list[tuple[tuple[int, ...], int]]:
    """Each element of a result that may be the place of the NaN, and that place: in all numbers, and on each axis."""
    index = tuple(int(one) for one in at)
    flat = int(np.ravel_multi_index(index, shape)) if index else 0
    return [((), flat), *(((*index[:axis], *index[axis + 1 :]), index[axis]) for axis in range(len(index)))]


def _is_shape_of(element: tuple[int, ...], expected: NDArray[Any]) -> bool:
    return len(element) == expected.ndim and all(
        one < extent for one, extent in zip(element, expected.shape, strict=True)
    )
