"""A check of many pairs of input and output length: rounding must not change which element is selected.

``floor(i * (n / size))`` is wrong for a few percent of the pairs, even in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import explained, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.extents import resized
from cuassay.testing.generated.options import options_of
from cuassay.testing.generated.selection import generator
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["check_ratios"]

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
