"""Part of the check of NaN: the index of a NaN, as NumPy's argmax gives it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["check_place_of_nan"]


def check_place_of_nan(sample: Sample, got: NDArray[Any], expected: NDArray[Any]) -> None:
    """Where the reference gives the index of the NaN, as `argmax` does, the function must give it too.

    Only functions of one array are checked, whose results are single indices, or the index of what is largest so far:
    from the NaN on, all of these are the NaN's. An order of all numbers, as that of `argsort`, is left out.
    """
    arrays = arrays_of(*sample.host())
    if len(arrays) != 1 or expected.shape != got.shape or not got.dtype.kind == expected.dtype.kind == "i":
        return
    at = np.argwhere(np.isnan(arrays[0]))
    if len(at) != 1:
        return
    if expected.shape == arrays[0].shape:
        _check_from_there_on(sample, tuple(map(int, at[0])), got, expected)
    if expected.ndim >= max(1, arrays[0].ndim):
        return
    for element, place in _places(arrays[0].shape, at[0]):
        if _is_shape_of(element, expected) and expected[element] == place != got[element]:
            raise AssertionError(
                f"the index of a NaN is lost: got {got[element].item()!r}, but the reference gives the NaN's index, "
                f"{place}; NumPy's argmax and argmin give the first NaN\n  sample: {sample.label}"
            )


def _check_from_there_on(sample: Sample, at: tuple[int, ...], got: NDArray[Any], expected: NDArray[Any]) -> None:
    """Where all results behind the NaN along an axis are its index along that axis, the function's must be."""
    for axis, place in enumerate(at):
        behind: Any = (*at[:axis], slice(place, None), *at[axis + 1 :])
        if expected[behind].size > 1 and (expected[behind] == place).all() and (got[behind] != place).any():
            raise AssertionError(
                f"the index of a NaN is lost: from the NaN at {place} of axis {axis} on, the reference gives {place}, "
                f"got {got[behind].tolist()}\n  sample: {sample.label}"
            )


def _places(shape: tuple[int, ...], at: NDArray[Any]) -> list[tuple[tuple[int, ...], int]]:
    """Results that may be the index of the NaN, with that index: in the flat array, and along each axis."""
    index = tuple(int(one) for one in at)
    flat = int(np.ravel_multi_index(index, shape)) if index else 0
    return [((), flat), *(((*index[:axis], *index[axis + 1 :]), index[axis]) for axis in range(len(index)))]


def _is_shape_of(element: tuple[int, ...], expected: NDArray[Any]) -> bool:
    return len(element) == expected.ndim and all(
        one < extent for one, extent in zip(element, expected.shape, strict=True)
    )
