"""Checks of counts and positions that a function computes from a ratio: rounding must not change them.

``floor(i * (n / size))`` is wrong for a few percent of the lengths, even in float64. ``int(100 * 0.29)`` is 28.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import explained, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.extents import extents_of, resized, seconds_of_reference
from cuassay.testing.generated.options import is_number, keeps_bounds, options_of
from cuassay.testing.generated.selection import generator
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["check_ratios", "check_shares"]

Put = Callable[[int], Any]

#: The number of pairs of lengths on the host, and on a device, where each call costs more.
_PAIRS, _PAIRS_ON_DEVICE = 128, 24
#: The lengths are drawn from this range.
_LEAST, _MOST = 64, 400
#: The extent of all other axes.
_OTHERS = 2


def check_ratios(spec: OpSpec, device: Device, dtype: Any, options: Sample) -> None:
    """Vary the axis from which elements are selected, and the option that says how many of them to select."""
    found = None if spec.is_its_own_reference else _chosen_from(spec, options)
    if found is None:
        return
    name, extent, put = found
    others = {one: _OTHERS for array in arrays_of(*options.host()) for one in array.shape if one != extent}
    pairs = generator().integers(_LEAST, _MOST, (_PAIRS if device.kind == "cpu" else _PAIRS_ON_DEVICE, 2))
    for length, size in pairs.tolist():
        sample = resized(options, {**others, extent: length})
        sample = replace(sample, kwargs={**sample.kwargs, name: put(size)}, label=f"{sample.label}, {name}={put(size)}")
        if not is_safely_taken(spec, sample):
            return
        with on_sample(sample), explained(f"wrong elements are selected for some lengths and {name}: {_ROUNDED}"):
            compare(spec, device, dtype, sample, run_sample(spec, device, sample))


_ROUNDED = "is an index computed from a rounded ratio? compute it in integers"


def _chosen_from(spec: OpSpec, sample: Sample) -> tuple[str, int, Put] | None:
    """The option that says how many elements are selected, the extent of the input, and a function for new values."""
    arrays = arrays_of(*sample.host())
    if len(arrays) != 1 or not is_safely_taken(spec, sample):
        return None
    expected, given = spec.expected(sample), arrays[0]
    if expected.ndim != given.ndim or not np.isin(expected, given).all():
        return None
    changed = [(old, new) for old, new in zip(given.shape, expected.shape, strict=True) if old != new]
    if not changed or given.shape.count(changed[0][0]) != 1 or expected.shape.count(changed[0][1]) != 1:
        return None
    extent, size = changed[0]
    for name, value in options_of(spec, sample).items():
        put = _option_setter(value, size) if type(value) is tuple or len(changed) == 1 else None
        if put is None:
            continue
        more = replace(sample, kwargs={**sample.kwargs, name: put(size + 1)})
        if is_safely_taken(spec, more):
            longer = tuple(size + 1 if one == size else one for one in expected.shape)
            if spec.expected(more).shape == longer:
                return name, extent, put
    return None


def _option_setter(value: Any, size: int) -> Put | None:
    """Make a function from a size to an option value: the size itself, or the tuple with `size` replaced by it."""
    if type(value) is int and value == size:
        return lambda other: other
    if isinstance(value, tuple) and all(type(one) is int for one in value) and value.count(size) == 1:
        return lambda other: tuple(other if one == size else one for one in value)
    return None


#: The extent of the axes: each hundredth of it is a whole number of elements.
_HUNDRED = 100


#: How many shares are tried if one call of the reference takes this many seconds or more.
_FEW, _QUICK_S = 4, 0.1


def check_shares(spec: OpSpec, device: Device, dtype: Any, several: Sequence[Sample]) -> None:
    """Try each percentage or fraction between the declared ones on axes of 100 elements.

    The share of 100 elements is a whole number, which ``int(n * fraction)`` may miss by one.
    """
    if spec.is_its_own_reference:
        return
    for name, shares in _declared_shares(spec, several).items():
        base = max((one for one in several if name in one.kwargs), key=lambda one: len(one.kwargs))
        drawn = generator().permutation(shares)[:_PAIRS_ON_DEVICE].tolist()
        for sample in _of_hundred(base):
            tried = shares if device.kind == "cpu" else drawn
            for share in tried if seconds_of_reference(spec, sample) < _QUICK_S else drawn[:_FEW]:
                shared = replace(sample, kwargs={**sample.kwargs, name: share}, label=f"{sample.label}, {name}={share}")
                if not keeps_bounds(spec, several, shared):
                    continue
                if not is_safely_taken(spec, shared):
                    break
                with on_sample(shared), explained(f"wrong for {name}={share} of {_HUNDRED} elements: {_ROUNDED}"):
                    _compare_share(spec, device, dtype, shared, name)


def _compare_share(spec: OpSpec, device: Device, dtype: Any, shared: Sample, name: str) -> None:
    """Compare with the reference, or with the reference at the next larger fraction if its own count is rounded down.

    ``int(100 * 0.29)`` in a reference is 28, but a function that takes 29 elements is right.
    """
    result, share = run_sample(spec, device, shared), shared.kwargs[name]
    try:
        compare(spec, device, dtype, shared, result)
    except AssertionError:
        above = replace(shared, kwargs={**shared.kwargs, name: math.nextafter(share, 1.0)})
        if isinstance(share, int) or not is_safely_taken(spec, above):
            raise
        with suppress(AssertionError):
            return compare(spec, device, dtype, shared, result, expected=spec.expected(above))
        raise


def _declared_shares(spec: OpSpec, several: Sequence[Sample]) -> dict[str, list[float]]:
    """Find options that may be a percentage or a fraction, with all hundredths between the declared values."""
    found: dict[str, list[float]] = {}
    for name in dict.fromkeys(name for sample in several for name in sample.kwargs):
        values = [options_of(spec, sample).get(name) for sample in several]
        numbers = [value for value in values if is_number(value)]
        if len(numbers) < len(values) or len(set(numbers)) == 1:
            continue
        low, high = min(numbers), max(numbers)
        if all(isinstance(value, int) for value in numbers) and low >= 0 and high <= _HUNDRED:
            found[name] = list(range(int(low), int(high) + 1))
        elif low >= 0 and high <= 1 and any(0 < value < 1 for value in numbers):
            found[name] = [share / _HUNDRED for share in range(1, _HUNDRED) if low <= share / _HUNDRED <= high]
    return found


def _of_hundred(base: Sample) -> Iterator[Sample]:
    """Yield the sample with one of its extents at 100 and the others small, for each extent."""
    extents = extents_of(base)
    for extent in extents:
        yield resized(base, {**dict.fromkeys(extents, _OTHERS), extent: _HUNDRED})
