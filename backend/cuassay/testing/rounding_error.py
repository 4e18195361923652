"""How far a user's function is off by rounding alone: found by running it on the host, in its dtype and in float64.

A bound that holds for every function is of no use in 16 bits: a sum of a thousand numbers, each step rounded to
float16, may be off by a quarter, and a softmax that gives zeros would be within that. So the function itself is asked.
What it gets wrong in both runs does not count; whether it is right the reference tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype, compute_dtype, epsilon, is_float, reference_dtype
from cuassay.testing.samples import over_lists

__all__ = ["RoundingError", "is_coarse", "rounding_error", "rounding_errors"]

#: Runs on numbers that differ by about a unit: one alone may be rounded without an error by chance.
_RUNS = 4

Call = Callable[[Sequence[Any], Mapping[str, Any]], NDArray[Any]]


def is_coarse(dtype: Any) -> bool:
    """Whether it is a float of 16 bits or fewer, in which a few roundings already show."""
    return is_float(dtype) and compute_dtype(dtype) != as_dtype(dtype)


class RoundingError(NamedTuple):
    """What rounding does to a function on some numbers.

    Attributes
    ----------
    rounding : float
        The largest absolute error of an element.
    inputs : float
        The largest change of an element of the exact answer where inputs move by a unit in their last place at most.
    """

    rounding: float
    inputs: float


def rounding_error(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RoundingError | None:
    """What rounding does to ``call(args, kwargs)``, over a few runs on nearly these numbers.

    Parameters
    ----------
    call : callable
        From arguments and keywords of NumPy arrays to an array.
    args, kwargs
        In the dtypes of the sample, and laid out as they are.

    Returns
    -------
    RoundingError or None
        None where the function does not run on NumPy's arrays.
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
        except Exception:  # noqa: BLE001  whatever it raises, it does not tell
            return None
    with np.errstate(all="ignore"):
        return RoundingError(max(errors), max(_largest(other - exact[0]) for other in exact[1:]))


def rounding_errors(
    call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], *, runs: int = _RUNS
) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
    """What rounding does to each element of ``call(args, kwargs)``, and which of them leave the range on the way.

    Returns
    -------
    tuple of numpy.ndarray, or None
        The largest error of each over a few runs on nearly these numbers; which of them are infinite, NaN or zero in
        the dtype itself only. None where the function does not run on NumPy's arrays.
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
                # Twice infinity, as of what overflows in both, tells of the way as well.
                outside = outside | ~np.isfinite(rounded) | ((rounded == 0) & (exact != 0))
                largest = np.maximum(largest, np.where(np.isfinite(error), error, 0.0))
        except Exception:  # noqa: BLE001  whatever it raises, it does not tell
            return None
    return np.asarray(largest), np.asarray(outside)


def _largest(difference: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(difference[np.isfinite(difference)]), initial=0.0))


def _moved(array: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    """Each number by a unit in its last place at most, up or down."""
    if not is_float(array.dtype):
        return array
    moved = np.empty_like(array)  # its axes in the same order in memory, which decides how NumPy adds
    moved[...] = array.astype(np.float64) * (1 + epsilon(array.dtype) * chance.uniform(-1, 1, array.shape))
    return moved


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(reference_dtype(array.dtype))


def _changed(
    args: Sequence[Any], kwargs: Mapping[str, Any], change: Callable[[NDArray[Any]], NDArray[Any]]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, every array changed."""

    def put(value: Any) -> Any:
        return change(value) if isinstance(value, np.ndarray) else value

    return [over_lists(one, put) for one in args], {name: over_lists(one, put) for name, one in kwargs.items()}
