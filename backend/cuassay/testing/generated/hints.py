"""Signs in a failed comparison of what is wrong: indices of equal numbers, an order, a default, or a conjugate."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.testing.generated.inputs import parameters_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample
from cuassay.testing.terms import arrays_of
from cuassay.testing.tolerance import largest_size

__all__ = ["hint_at"]

#: The most elements of a result that is sorted, or whose reference is run again, to find a hint.
_MOST = 2**20


def hint_at(spec: OpSpec, sample: Sample, got: NDArray[Any], expected: NDArray[Any]) -> str | None:
    """Say what a wrong result suggests; None if nothing is known, or the function has no other reference."""
    if spec.op is not None or spec.is_its_own_reference or got.shape != expected.shape or got.size > _MOST:
        return None
    with np.errstate(all="ignore"):
        found = _of_equal_numbers(sample, got, expected) or _of_order(got, expected) or _of_defaults(spec, sample)
        return found or _of_conjugates(spec, sample, got, expected)


def _of_equal_numbers(sample: Sample, got: NDArray[Any], expected: NDArray[Any]) -> str | None:
    """Whether the result and the expected one are indices of equal numbers in an array of the call."""
    if not (got.size and got.dtype.kind in "iu" and expected.dtype.kind in "iu"):
        return None
    for place, array in enumerate(arrays_of(*sample.host())):
        for axis in range(array.ndim):
            its, own = _numbers_at(array, axis, expected), _numbers_at(array, axis, got)
            if its is not None and own is not None and np.array_equal(its, own):
                return (
                    f"got and expected are indices of equal numbers along axis {axis} of array {place}; if each of "
                    "these indices is right, let fn and reference= give the numbers at the indices; if only the first "
                    "is, fn needs a stable order"
                )
    return None


def _numbers_at(array: NDArray[Any], axis: int, indices: NDArray[Any]) -> NDArray[Any] | None:
    """The numbers at `indices` along `axis`, as those of `argsort` or `argmax`; None if they cannot be such indices."""
    if indices.ndim == array.ndim - 1:
        indices = np.expand_dims(indices, axis)
    others = [[*shape[:axis], *shape[axis + 1 :]] for shape in (array.shape, indices.shape)]
    is_in_range = indices.min() >= 0 and indices.max() < array.shape[axis]
    if indices.ndim != array.ndim or others[0] != others[1] or not is_in_range:
        return None
    return np.take_along_axis(array, indices.astype(np.int64), axis)


def _of_order(got: NDArray[Any], expected: NDArray[Any]) -> str | None:
    """Whether the result has the right numbers in another order; equal numbers would say little."""
    if got.size < 4 or got.dtype.kind != expected.dtype.kind or got.dtype.kind not in "iuf":
        return None
    right = expected.astype(got.dtype)
    ordered = np.sort(right, axis=None)
    if not np.array_equal(np.sort(got, axis=None), ordered) or np.array_equal(got, right):
        return None
    different = 1 + np.count_nonzero(ordered[1:] != ordered[:-1])  # NumPy's unique takes seconds for a million integers
    if different <= right.size // 2:
        return None
    first = tuple(int(at) for at in np.argwhere(got != right)[0])
    return f"the result has the right numbers in another order; the first that differs is at {first}"


def _of_defaults(spec: OpSpec, sample: Sample) -> str | None:
    """Whether a parameter that the call does not give has another default in the function than in the reference."""
    own = {one.name: one.default for one in parameters_of(spec.fn)[1:]}  # the first is the array module
    its = {one.name: one.default for one in parameters_of(spec.reference)}
    for place, (name, default) in enumerate(own.items()):
        is_given = name in sample.kwargs or place < len(sample.args)
        if is_given or name not in its or isinstance(default, np.ndarray) or default is inspect.Parameter.empty:
            continue
        if repr(default) != repr(its[name]):
            return f"{name} is {default!r} by default in the function, {its[name]!r} in reference=, and not given here"
    return None


def _of_conjugates(spec: OpSpec, sample: Sample, got: NDArray[Any], expected: NDArray[Any]) -> str | None:
    """Whether a conjugate, of the result or of an input, explains the difference."""
    if got.dtype.kind == "c" and _is_close(got, np.conj(expected)):
        return "the result is the conjugate of the expected one"
    for place, conjugated in _with_conjugates(sample):
        with suppress(Exception):  # the reference may refuse these numbers with any error
            if _is_close(got, spec.expected(conjugated)):
                return f"reference= gives this result for the conjugate of array {place}: is one missing or doubled?"
    return None


def _with_conjugates(sample: Sample) -> Iterator[tuple[int, Sample]]:
    """The call with each of its complex arrays replaced by its conjugate, and the number of that array."""
    arrays: list[NDArray[Any]] = []

    def collect(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(value)
        return value

    sample.changed(collect)
    for place, chosen in enumerate(arrays):
        if chosen.imag.any():
            seen = iter(range(len(arrays)))

            def put(value: Any, place: int = place, seen: Iterator[int] = seen) -> Any:
                if not isinstance(value, np.ndarray):
                    return value
                return HostArray(np.conj(value) if next(seen) == place else value)

            args, kwargs = sample.changed(put)
            yield place, replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, array {place} conjugated")


def _is_close(got: NDArray[Any], other: NDArray[Any]) -> bool:
    if got.shape != other.shape or not got.size:
        return False
    return bool(np.allclose(got, other, rtol=_CLOSE, atol=_CLOSE * largest_size(other), equal_nan=True))


#: The relative error within which a result is that of changed inputs.
_CLOSE = 1e-3
