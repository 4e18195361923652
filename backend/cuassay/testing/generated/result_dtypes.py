"""The dtypes of a call: the one that its result must have, and the least precise one that it may be rounded to."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name, epsilon, is_complex, is_float
from cuassay.testing.once import once_if_large
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample
from cuassay.testing.terms import arrays_of

__all__ = ["coarsest", "floats_of", "result_dtype"]


def floats_of(sample: Sample) -> list[Any]:
    """The floating-point arrays among a call's arguments."""
    return [array for array in arrays_of(*sample.host()) if is_float(array.dtype)]


def coarsest(sample: Sample, dtype: Any) -> Any:
    """The least precise floating-point dtype of inputs and result; an intermediate step may be rounded to it."""
    found = [dtype, *(array.dtype for array in arrays_of(*sample.host()))]
    inexact = [one for one in found if is_float(one) or is_complex(one)]
    return max(inexact, key=epsilon, default=dtype)


def _input_dtypes(sample: Sample, args: Sequence[Any]) -> Iterator[str]:
    """The dtype names passed to a callable `OpSpec.result_dtype`; a Python number gets the dtype of the array."""
    array = next((one for one in args if isinstance(one, np.ndarray)), None)
    for one in args:
        if isinstance(one, np.ndarray):
            yield dtype_name(one.dtype)
        elif sample.kind == "python" and array is not None and isinstance(one, int | float | complex):
            yield dtype_name(array.dtype)


def result_dtype(spec: OpSpec, sample: Sample) -> np.dtype[Any] | None:
    """The dtype that the result must have.

    For an op it follows from the schema. For a function it is the declared one, or else that of the function's result
    on the host. None if the function does not run on the host.
    """
    args, kwargs = sample.host()
    if spec.op is not None and spec.op.schema.is_single:
        return as_dtype(spec.op.meta(*args, **kwargs).dtype)
    if callable(spec.result_dtype):
        return as_dtype(spec.result_dtype(*_input_dtypes(sample, args)))
    if spec.result_dtype is not None and sample.kind != "promotion":  # promotion mixes in dtypes the spec omits
        return as_dtype(spec.result_dtype)
    return once_if_large(spec, "dtype", args, kwargs, functools.partial(_dtype_on_host, spec, sample))


def _dtype_on_host(spec: OpSpec, sample: Sample) -> np.dtype[Any] | None:
    try:
        with np.errstate(all="ignore"):
            return np.asarray(spec.run("cpu", *sample.copied())).dtype
    except Exception:  # noqa: BLE001  a function for one device may fail in any way on the host's arrays
        return None
