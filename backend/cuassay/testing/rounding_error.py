"""Measure the rounding error of a user's function: run it on the host, in its own dtype and in float64.

A bound that holds for every function is useless in 16 bits. A sum of a thousand numbers may be off by a quarter if each
step is rounded to float16, and a softmax that returns zeros would be within that bound. So the function itself is
measured. An error that it makes in both runs does not count here; the reference shows whether the function is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype, compute_dtype, epsilon, is_float, reference_dtype
from cuassay.testing.samples import over_arguments

__all__ = ["RoundingError", "is_coarse", "rounding_error", "rounding_errors"]

#: The number of runs, on numbers that differ by about a unit: a single run may happen to be exact.
_RUNS = 4

Call = Callable[[Sequence[Any], Mapping[str, Any]], NDArray[Any]]


def is_coarse(dtype: Any) -> bool:
    """Whether it is a float of 16 bits or fewer, in which a few roundings already show."""
    return compute_dtype(dtype) != as_dtype(dtype)


class RoundingError(NamedTuple):
    """The effect of rounding on a function's result for some numbers.

    Attributes
    ----------
    rounding : float
        The largest absolute error of an element.
    inputs : float
        The largest change of an element of the exact result if inputs move by at most a unit in their last place.
    """

    rounding: float
    inputs: float


def rounding_error(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RoundingError | None:
    """Measure the effect of rounding on ``call(args, kwargs)``, in a few runs with slightly different numbers.

    Parameters
    ----------
    call : callable
        Takes positional and keyword arguments with NumPy arrays, and returns an array.
    args, kwargs
        The arguments, in the dtypes and layouts of the sample.

    Returns
    -------
    RoundingError or None
        None if the function does not run on NumPy arrays.
    """
    chance = np.random.default_rng(0)
    errors: list[float] = []
    exact: list[NDArray[np.float64]] = []
    for run in range(_RUNS):
        given = _changed(args, kwargs, partial(_moved, chance=chance)) if run else (args, kwargs)
        try:
            with np.errstate(all="ignore"):
                rounded = np.asarray(call(*_changed(*given, np.copy))).astype(np.float64)
                exact.append(np.asarray(call(*_changed(*given, _widened))).astype(np.float64))
                errors.append(_largest(rounded - exact[-1]))
        except Exception:  # noqa: BLE001  a function that raises cannot be measured
            return None
    with np.errstate(all="ignore"):
        return RoundingError(max(errors), max(_largest(other - exact[0]) for other in exact[1:]))


def rounding_errors(
    call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], *, runs: int = _RUNS
) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
    """Measure the effect of rounding on each element, and which elements leave the dtype's range in some step.

    Returns
    -------
    tuple of numpy.ndarray, or None
        For each element the largest error in a few runs with slightly different numbers, and whether it is infinite,
        NaN or zero in the dtype itself only. None if the function does not run on NumPy arrays.
    """
    chance = np.random.default_rng(0)
    largest: Any = 0.0
    outside: Any = False
    for run in range(runs):
        given = _changed(args, kwargs, partial(_moved, chance=chance)) if run else (args, kwargs)
        try:
            with np.errstate(all="ignore"):
                rounded = np.asarray(call(*_changed(*given, np.copy)))
                exact = np.asarray(call(*_changed(*given, _widened)))
                kind = np.complex128 if np.iscomplexobj(exact) else np.float64
                error = np.abs(rounded.astype(kind) - exact.astype(kind))
                # A step may have overflowed even if the exact result is infinite as well.
                outside = outside | ~np.isfinite(rounded) | ((rounded == 0) & (exact != 0))
                largest = np.maximum(largest, np.where(np.isfinite(error), error, 0.0))
        except Exception:  # noqa: BLE001  a function that raises cannot be measured
            return None
    return np.asarray(largest), np.asarray(outside)


def _largest(difference: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(difference[np.isfinite(difference)]), initial=0.0))


def _moved(array: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    """Move each number up or down by at most a unit in its last place."""
    if not is_float(array.dtype):
        return array
    moved = np.empty_like(array)  # keeps the order of axes in memory, which determines the order in which NumPy adds
    moved[...] = array.astype(np.float64) * (1 + epsilon(array.dtype) * chance.uniform(-1, 1, array.shape))
    return moved


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(reference_dtype(array.dtype))


def _changed(
    args: Sequence[Any], kwargs: Mapping[str, Any], change: Callable[[NDArray[Any]], NDArray[Any]]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with `change` applied to every array."""

    def put(value: Any) -> Any:
        return change(value) if isinstance(value, np.ndarray) else value

    return over_arguments(args, kwargs, put)
