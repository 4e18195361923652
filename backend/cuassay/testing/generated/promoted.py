"""A check with operands of two dtypes, for a function whose `result_dtype` says which dtype the result then has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name, is_float
from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare
from cuassay.testing.generated.execution import is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.selection import one
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, each

__all__ = ["check_promoted", "says_what_promotes"]

#: Dtypes that are mixed. 16-bit floats are left out, because libraries mix them with 32 bits in different ways.
_MIXED = ("int8", "int16", "int32", "int64", "float32", "float64")


def says_what_promotes(spec: OpSpec) -> bool:
    """Whether `result_dtype` is a callable that gives the same for two dtypes in either order, as promotion does."""
    return spec.op is None and next(_pairs(spec), None) is not None


def _pairs(spec: OpSpec) -> Iterator[tuple[str, str]]:
    """The pairs of declared dtypes for which the rule is symmetric, in both orders."""
    rule = spec.result_dtype
    if not callable(rule):
        return
    for one_name, other in permutations([name for name in spec.dtypes if name in _MIXED], 2):
        with suppress(Exception):  # the rule is for another number of dtypes, or not for these two
            if dtype_name(rule(one_name, other)) == dtype_name(rule(other, one_name)):
                yield one_name, other


def check_promoted(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Pass two arrays, the first in `dtype` and the second in another one; check the dtype and values of the result."""
    for name, other in _pairs(spec):
        if name != dtype_name(dtype) or spec.why_unsupported(device, other) is not None:
            continue
        mixed = _mixed(one(spec, device, dtype, most=4096), as_dtype(dtype), as_dtype(other))
        if mixed is not None and is_safely_taken(spec, mixed):
            with on_sample(mixed):
                compare(spec, device, _coarser(name, other), mixed, run_sample(spec, device, mixed))


def _mixed(sample: Sample, dtype: np.dtype[Any], other: np.dtype[Any]) -> Sample | None:
    """The call with its second array in another dtype; None unless it has two arrays of `dtype`.

    If only the second one is of floats, its numbers get fractions.
    """
    given = [array for array in each(sample.args) if isinstance(array, HostArray)]
    if len(given) != 2 or any(array.dtype != dtype for array in given):
        return None
    second = given[1].values
    values = second.astype(other) + (other.type(0.25) if is_float(other) and not is_float(dtype) else other.type(0))
    args, kwargs = sample.changed(lambda array: HostArray(values) if array is second else array)
    label = f"{sample.label}, the second array in {dtype_name(other)}"
    return replace(sample, args=args, kwargs=kwargs, label=label)


def _coarser(name: str, other: str) -> Any:
    """The less precise floating-point dtype of the two; if neither is one, the first."""
    floats = [one for one in (name, other) if is_float(as_dtype(one))]
    return as_dtype("float32" if "float32" in floats else (floats or [name])[0])
