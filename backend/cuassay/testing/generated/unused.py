"""Checks of numbers that results do not depend on: a NaN behind a mask or times zero, and an unread triangle.

The reference decides which numbers these are: it gives the same results for three other numbers, and no NaN for NaN.
Such elements are padding or uninitialized memory. `numbers` checks other NaN.

If an option names one triangle of a matrix, the other one must not be read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.failures import inputs_there
from cuassay.testing.generated.comparison import compare, on_host
from cuassay.testing.generated.execution import explained, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.filling import free_floats, refilled, with_element
from cuassay.testing.generated.options import options_of
from cuassay.testing.generated.selection import by_options, generator
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample
from cuassay.testing.terms import arrays_of

__all__ = ["check_unread_triangle", "check_unused"]

Array = NDArray[Any]

#: The numbers that replace the NaN.
_NUMBERS = (-1e3, 0.5, 1e3)

#: The most elements of an array that are tried, and the most rows that belong to a mark.
_PLACES, _ROWS = 8, 2


def check_unused(spec: OpSpec, device: Device, sample: Sample) -> None:
    """One NaN behind a mask, or in an operand that an option of 0.0 cancels, must not spoil a result.

    A mask is an array of that input's shape: of truth values, or of integers, some of which are 0. Where an array of
    integers has negative numbers, which mark unused places of an index or rows without a label, a NaN at the first or
    last place of an array, or in such a row, must not spoil a result that does not depend on it: code that replaces the
    mark by an index reads one of these. Other NaN are not checked here, because products and transforms spread them,
    even if they are multiplied by zero.
    """
    if spec.is_its_own_reference:
        return
    if any(array.dtype.kind == "i" and (array < 0).any() for array in arrays_of(*sample.host())):
        _check_marked(spec, device, sample)
    is_left_out = any(type(value) is float and value == 0 for value in sample.kwargs.values())
    masks = [array for array in arrays_of(*sample.host()) if array.dtype.kind in "biu" and not array.all()]
    for number, array in enumerate(free_floats(sample)):
        unmarked = [np.flatnonzero(mask == 0) for mask in masks if mask.shape == array.shape]
        if not is_left_out and not unmarked:
            continue
        chance = generator()
        behind = [place for places in unmarked for place in chance.permutation(places)[:_PLACES]]
        for place in (*behind, *chance.integers(0, max(array.size, 1), _PLACES)[: array.size]):
            filled = refilled(
                sample,
                partial(with_element, place=place, number=np.nan),
                f"a NaN in float array {number}",
                chosen=[array],
            )
            if is_safely_taken(spec, filled) and _not_using(spec, sample, filled, array, place).all():
                _check(spec, device, filled, np.True_)
                break


def _check_marked(spec: OpSpec, device: Device, sample: Sample) -> None:
    """Try a NaN at the first and at the last place of each array of floats, and in rows that belong to a mark."""
    for number, array in enumerate(free_floats(sample)):
        for place in {0, array.size - 1, *_in_marked_rows(sample, array)} if array.size else ():
            filled = refilled(
                sample,
                partial(with_element, place=place, number=np.nan),
                f"a NaN in float array {number}",
                chosen=[array],
            )
            if is_safely_taken(spec, filled):
                _check(spec, device, filled, _not_using(spec, sample, filled, array, place))


def _in_marked_rows(sample: Sample, array: Array) -> list[int]:
    """The first place of some rows for which an array of labels, one for each row, has a negative number."""
    if not array.ndim:
        return []
    labels = [one for one in arrays_of(*sample.host()) if one.dtype.kind == "i" and one.shape == array.shape[:1]]
    rows = {int(row) for one in labels for row in np.flatnonzero(one < 0)[:_ROWS]}
    return [row * (array.size // array.shape[0]) for row in sorted(rows)]


def _not_using(spec: OpSpec, base: Sample, filled: Sample, array: Array, place: int) -> NDArray[np.bool_]:
    """For each result, whether the reference is finite, and the same for any number at this index."""
    expected = spec.expected(filled)
    if expected.dtype.kind not in "fc" or not expected.size:
        return np.zeros(1, np.bool_)
    is_same: NDArray[np.bool_] = np.isfinite(expected)
    for number in _NUMBERS:
        other = refilled(base, partial(with_element, place=place, number=number), "", chosen=[array])
        if not is_safely_taken(spec, other) or spec.expected(other).shape != expected.shape:
            return np.zeros(1, np.bool_)
        is_same &= spec.expected(other) == expected
    return is_same


def _check(spec: OpSpec, device: Device, sample: Sample, is_unused: NDArray[np.bool_] | np.bool_) -> None:
    """Results that do not depend on the NaN must be no NaN."""
    got = on_host(run_sample(spec, device, sample))
    if got.dtype.kind not in "fc" or is_unused.shape not in ((), got.shape):
        return
    spoilt = np.isnan(got) & is_unused
    if not spoilt.any():
        return
    where = tuple(int(at) for at in np.argwhere(spoilt)[0])
    counts = f"{int(spoilt.sum()):,} of {got.size:,} results, the first at {where}"
    lines = [
        f"a NaN that a result does not depend on spoils it: {counts}; {_SAME}",
        *inputs_there(where, got.shape, sample.host()),
        f"sample: {sample.label}",
    ]
    raise AssertionError("\n  ".join(lines))


_SAME = (
    "the reference gives the same for any number there; leave it out, for example by where(), "
    "rather than multiply it by zero"
)


# ------------------------------------------------------------------------------------------------ triangles

#: Names of options that say which triangle of a matrix is read.
_TRIANGLES = frozenset({"lower", "upper", "uplo", "UPLO", "triangle", "fill_mode"})

#: The most elements of a sample.
_MOST_ELEMENTS = 9000


def check_unread_triangle(spec: OpSpec, device: Device, dtype: Any) -> None:
    """If an option names a triangle of a matrix, try other numbers in the triangle that the reference does not read."""
    if spec.is_its_own_reference:
        return
    for sample in by_options(spec, device, dtype, most=_MOST_ELEMENTS):
        if not _TRIANGLES & options_of(spec, sample).keys():
            continue
        for place, array in enumerate(sample.host()[0]):
            for name, cut in (("lower", np.tril_indices), ("upper", np.triu_indices)):
                other = _with_triangle(sample, place, array, cut, name)
                if other is None or not is_safely_taken(spec, other):
                    continue
                if np.array_equal(spec.expected(other), spec.expected(sample)):
                    with on_sample(other), explained(_OTHER_TRIANGLE):
                        compare(spec, device, dtype, other, run_sample(spec, device, other))


def _with_triangle(sample: Sample, place: int, array: Any, cut: Any, name: str) -> Sample | None:
    """The call with the numbers of one triangle of a matrix, or of a batch of matrices, reordered and halved."""
    if not isinstance(array, np.ndarray) or array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        return None
    rows, columns = cut(array.shape[-1], {"lower": -1, "upper": 1}[name])
    if not rows.size or array.dtype.kind not in "fc":
        return None
    changed = array.copy()
    changed[..., rows, columns] = np.roll(array[..., rows, columns], 1, axis=-1) * array.dtype.type(0.5)
    args = (*sample.args[:place], HostArray(changed), *sample.args[place + 1 :])
    return replace(sample, args=args, label=f"{sample.label}, other numbers in the {name} triangle of input {place}")


_OTHER_TRIANGLE = "wrong for other numbers in the triangle that the reference does not read: is the wrong one read?"
