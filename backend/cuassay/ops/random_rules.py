"""The shape rules of operations that draw random numbers.

They check the scalars too, so that a bad one is rejected at the call, on every kind and during capture, before anything
is drawn. Each takes the arguments by name and returns the shape of ``like``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cuassay.arrays.distributions import bounds
from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core.generator import GeneratorState
from cuassay.core.numbers import as_real
from cuassay.core.recordings import ReplayState
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, ShapeError

__all__ = ["dropout", "integers", "mask", "normal", "permutation", "probabilities", "uniform"]

Shape = tuple[int, ...]


def uniform(bound: Mapping[str, Any]) -> Shape:
    """Check that ``low`` and ``high`` are finite and in order."""
    bounds(_number(bound, "low"), _number(bound, "high"), as_dtype(bound["like"].dtype))
    return _drawn(bound, "like")


def normal(bound: Mapping[str, Any]) -> Shape:
    """Check that ``mean`` and ``std`` are finite and ``std`` is not negative."""
    mean, std = _number(bound, "mean"), _number(bound, "std")
    if not (math.isfinite(mean) and math.isfinite(std) and std >= 0):
        raise ArgumentError(f"normal numbers need a finite mean and std >= 0; got {mean!r} and {std!r}; give such")
    return _drawn(bound, "like")


def integers(bound: Mapping[str, Any]) -> Shape:
    """Check that ``low < high``, and that both ``low`` and ``high - 1`` are whole numbers within the dtype."""
    low, high = bound["low"], bound["high"]
    reach = np.iinfo(as_dtype(bound["like"].dtype))
    least, most = int(reach.min), int(reach.max)
    if not (_is_whole(low) and _is_whole(high) and least <= low < high <= most + 1):
        raise ArgumentError(
            f"integers of {dtype_name(as_dtype(bound['like'].dtype))} need whole numbers {least:,} <= low < high <= "
            f"{most + 1:,}; got low {low!r}, high {high!r}; give such bounds, or another dtype"
        )
    return _drawn(bound, "like")


def mask(bound: Mapping[str, Any]) -> Shape:
    """Check that ``p`` is a probability."""
    _check_probability(bound)
    return _drawn(bound, "like")


def dropout(bound: Mapping[str, Any]) -> Shape:
    """Check that ``p`` is a probability."""
    _check_probability(bound)
    return _drawn(bound, "a")


def probabilities(bound: Mapping[str, Any]) -> Shape:
    """Return the shape of ``p``; its values are not checked."""
    return _drawn(bound, "p")


def permutation(bound: Mapping[str, Any]) -> Shape:
    """Check for one dimension, with every index within the dtype."""
    shape = _drawn(bound, "like")
    if len(shape) != 1:
        raise ShapeError(f"a permutation has one dimension; got shape {shape}; give a vector")
    most = int(np.iinfo(as_dtype(bound["like"].dtype)).max)
    if shape[0] - 1 > most:
        raise ArgumentError(
            f"a permutation of {shape[0]:,} does not fit into {dtype_name(as_dtype(bound['like'].dtype))}, whose "
            f"largest number is {most:,}; take a wider dtype"
        )
    return shape


def _drawn(bound: Mapping[str, Any], name: str) -> Shape:
    if not isinstance(bound["state"], (GeneratorState, ReplayState)):
        raise ArgumentError(
            f"state must say where to draw from; got {bound['state']!r:.200}; give GeneratorState(seed, offset), or "
            "what a generator's take() gives; cuassay.random calls this with the next one"
        )
    return tuple(bound[name].shape)


def _number(bound: Mapping[str, Any], name: str) -> float:
    found = as_real(bound[name])
    if found is None:
        raise ArgumentError(f"{name} must be a real number; got {shown(bound[name])}; give a float")
    return found


def _check_probability(bound: Mapping[str, Any]) -> None:
    if not 0 <= _number(bound, "p") <= 1:
        raise ArgumentError(f"p is a probability; got {bound['p']!r}; give a number from 0 to 1")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
