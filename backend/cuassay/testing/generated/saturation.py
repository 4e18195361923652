"""A check of functions that limit sums and products of integers to the range of 64 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare_values, on_host
from cuassay.testing.generated.execution import explained, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.filling import is_changed
from cuassay.testing.generated.selection import by_options, generator
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample

__all__ = ["check_saturation"]

#: The most elements of each array.
_COUNT = 1025


def check_saturation(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Compare the results that the reference limits to an end of the range, where no input is that end.

    There is no wider integer that the function could use. Where the reference wraps around instead, its result is not
    an end of the range, and nothing is compared.
    """
    if dtype_name(dtype) != "int64" or spec.reference is None:
        return
    for like in by_options(spec, device, dtype, most=_COUNT):
        sample = _of_large(like, dtype)
        if sample is None or not is_safely_taken(spec, sample):
            continue
        expected, limits = spec.expected(sample), np.iinfo(np.int64)
        is_limited = (expected == limits.max) | (expected == limits.min) if expected.dtype == np.int64 else None
        if is_limited is None or not is_limited.any():
            continue
        with on_sample(sample), explained("wrong where the result does not fit: is there a step that wraps around?"):
            result = run_sample(spec, device, sample)
            got = on_host(result)
            if got.shape == expected.shape and got.dtype == expected.dtype:
                compare_values(spec, device, dtype, sample, result, expected=np.where(is_limited, expected, got))


def _of_large(like: Sample, dtype: Any) -> Sample | None:
    """The call with integers beyond a half of the range, of both signs, without its ends."""
    chance = generator()

    def drawn(given: Any) -> Any:
        if not isinstance(given, HostArray) or given.dtype != dtype or not given.is_free:
            return given
        size = chance.integers(2**62, 2**63 - 1, given.shape, dtype=np.int64)
        return HostArray(np.where(chance.random(given.shape) < 0.5, size, -size))

    args = tuple(drawn(given) for given in like.args)
    large = replace(like, args=args, label=f"{like.label}, integers beyond a half of the range")
    return large if is_changed(args, like.args) else None
