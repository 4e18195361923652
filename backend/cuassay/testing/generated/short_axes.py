"""Checks of axes with few or no elements, where the function fails although the reference does not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from cuassay.core.device import Device
from cuassay.errors import CuassayError
from cuassay.testing.generated.broken import breaking
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import is_raised_on_purpose, on_sample, refusal_of, run_sample
from cuassay.testing.generated.extents import has_expected_shape, resized, shape_on_host, swapped
from cuassay.testing.generated.partial_errors import assert_taken, declared_refusals
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["check_empty_batch", "check_short"]

#: Lengths added to an axis to find out how the shape of the result depends on it.
_LONGER = (1, 2, 5)


def check_short(spec: OpSpec, device: Device, dtype: Any, sample: Sample, options: Sample) -> None:
    """Fail if the result for a short axis lacks elements that the reference's has, as if a pad is as long as the axis.

    Few references are meant for any length. This one counts only if its result grows by one element for each element
    of the axis, and does so down to this length. For a call that breaks it is enough that both agree on the shapes of
    the results for longer axes.
    """
    if spec.is_its_own_reference or refusal_of(spec, sample) is not None:
        return
    got = shape_on_host(spec, sample)
    if got is None:
        if _may_index(sample):
            return
        _check_index(spec, sample)
    if got == spec.expected(sample).shape:
        return
    (extent, length), *others = _changes(options, sample)
    if others or length >= extent:
        return
    more = [resized(options, {extent: extent + by}) for by in _LONGER]
    if not all(has_expected_shape(spec, one) for one in more):
        return
    if got is None:
        _check_breaking(spec, sample)
    elif _grown(spec, options, sample) == length - extent and all(
        _grown(spec, options, one) == by for one, by in zip(more, _LONGER, strict=True)
    ):
        with on_sample(sample):
            compare(spec, device, dtype, sample, run_sample(spec, device, sample))


def _check_breaking(spec: OpSpec, sample: Sample) -> None:
    """Fail if a library that the function calls rejects its arguments where the reference gives finite numbers."""
    expected, error = spec.expected(sample), breaking(spec, sample)
    if error is not None and expected.size and np.isfinite(expected).all():
        with on_sample(sample):
            raise AssertionError(_breaks("a call with a short axis breaks", spec, sample, error)) from error


def _check_index(spec: OpSpec, sample: Sample) -> None:
    """Fail if the function reads beyond the end of a short axis where the reference gives a result.

    On a GPU such a read is not an error: it returns whatever memory holds. An error raised on purpose is accepted.
    """
    try:
        with np.errstate(all="ignore"):
            spec.run("cpu", *sample.copied())
    except IndexError as error:
        if not is_raised_on_purpose(error):
            with on_sample(sample):
                what = "the function reads beyond the end of a short axis"
                raise AssertionError(_breaks(what, spec, sample, error)) from error
    except Exception:  # noqa: BLE001  libraries reject inputs with errors of different types
        return


def _may_index(sample: Sample) -> bool:
    """Whether one of several arrays may be an index array, which was meant for the longer axis."""
    arrays = arrays_of(*sample.host())
    return len(arrays) > 1 and any(array.dtype.kind in "iu" for array in arrays)


def _breaks(what: str, spec: OpSpec, sample: Sample, error: Exception) -> str:
    return (
        f"{what}: {type(error).__name__}: {error}; the reference gives a result of shape "
        f"{spec.expected(sample).shape}: give it too, or raise an error for such inputs"
    )


def _changes(before: Sample, after: Sample) -> list[tuple[int, int]]:
    """The pairs of old and new extents that differ, each pair once."""
    pairs = zip(arrays_of(*before.host()), arrays_of(*after.host()), strict=True)
    changes = {change for one, other in pairs for change in zip(one.shape, other.shape, strict=True)}
    return [(old, new) for old, new in changes if old != new]


def _grown(spec: OpSpec, before: Sample, after: Sample) -> int | None:
    """By how much the expected result's shape grows along the only axis that changes; None if not exactly one does."""
    shapes = spec.expected(before).shape, spec.expected(after).shape
    if len(shapes[0]) != len(shapes[1]):
        return None
    steps = [new - old for old, new in zip(*shapes, strict=True) if old != new]
    return steps[0] if len(steps) == 1 else None


def check_empty_batch(spec: OpSpec, device: Device, dtype: Any, options: Sample) -> None:
    """Fail if a call without rows breaks within a library, as ``reshape(0, -1)`` does, and the reference accepts it.

    An error that the function raises on purpose is accepted, unless it is one that is declared for other inputs.
    """
    arrays = arrays_of(*options.host())
    extent = max((array.shape[0] for array in arrays if array.ndim > 1), default=0)
    is_of_one = sum(extent in array.shape for array in arrays) == 1  # an extent of two arrays may be that of a product
    if spec.is_its_own_reference or extent < 2 or not is_of_one:
        return
    empty, shape = resized(options, {extent: 0}), spec.expected(options).shape
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # NumPy warns about the mean of an empty array
        if shape.count(extent) != 1 or shape[0] != extent or not _gives(spec, empty, swapped(shape, {extent: 0})):
            return
        try:
            run_sample(spec, device, empty)
        except CuassayError:
            return
        except Exception as error:
            if is_raised_on_purpose(error) or any(words in str(error) for words in _OF_NOTHING):
                assert_taken(spec, empty, declared_refusals(spec, dtype))
                return
            with on_sample(empty):
                raise AssertionError(
                    f"a call without rows breaks: {type(error).__name__}: {error}; the reference gives an empty result "
                    f"of shape {swapped(shape, {extent: 0})}: accept empty arrays, or raise an error for them"
                ) from error


#: Parts of NumPy's messages about the maximum of an empty array, which it rejects on purpose.
_OF_NOTHING = ("has no identity", "of an empty sequence")


def _gives(spec: OpSpec, sample: Sample, shape: tuple[int, ...]) -> bool:
    """Whether the reference gives a result of this shape."""
    try:
        return spec.expected(sample).shape == shape
    except Exception:  # noqa: BLE001  libraries reject inputs with errors of different types
        return False
