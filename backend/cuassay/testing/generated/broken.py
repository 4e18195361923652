"""Calls that break within a library, or give another shape or dtype, where the reference gives a result."""

from __future__ import annotations

import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.device import Device
from cuassay.errors import RaceError
from cuassay.testing.generated.execution import is_raised_on_purpose, is_safely_taken, on_sample, refusal_of, run_sample
from cuassay.testing.generated.extents import shape_on_host
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

__all__ = ["assert_dtype_of", "assert_whole", "breaking"]


def assert_whole(spec: OpSpec, sample: Sample, base: Sample) -> Exception | None:
    """Fail if the function breaks, or gives another shape than the reference, for other numbers than those of `base`.

    If a declared reference refuses the call, nothing is required, and the reference's error is returned.
    Shapes and options of the two calls are the same, so checks of other sizes and options do not cover this. Nothing is
    required if the shape of the reference's result depends on the numbers, or if the function rejects the call itself.
    """
    if spec.is_its_own_reference:
        return None
    if (refusal := refusal_of(spec, sample)) is not None:
        return refusal
    shape = spec.expected(sample).shape
    if not shape == spec.expected(base).shape == shape_on_host(spec, base):
        return None
    with on_sample(sample):
        error, got = breaking(spec, sample), shape_on_host(spec, sample)
        if error is not None:
            raise AssertionError(
                f"right for the sample's own numbers, breaks for others: {type(error).__name__}: {error}; the "
                f"reference gives a result of shape {shape}: give it too, or raise an error for such inputs"
            ) from error
        if got not in (None, shape):
            raise AssertionError(
                f"the shape of the result changes with the numbers: {got}, where the reference gives {shape}"
            )
    return None


def assert_dtype_of(spec: OpSpec, device: Device, sample: Sample, base: Sample) -> None:
    """Fail if the result has another dtype than that of `base`, a call with the same options and dtypes of inputs.

    A device's library may refuse what NumPy accepts, such as the median of nothing.
    """
    if is_safely_taken(spec, sample) and is_safely_taken(spec, base):
        with on_sample(sample):
            try:
                got, usual = (getattr(run_sample(spec, device, one), "dtype", None) for one in (sample, base))
            except RaceError:
                raise
            except Exception:  # noqa: BLE001  libraries refuse inputs by errors of different types
                return
            if got is not None and usual is not None and got != usual:
                raise AssertionError(
                    f"the result is {dtype_name(got)}, and {dtype_name(usual)} for ordinary inputs: is it made here "
                    "without a dtype?"
                )


def breaking(spec: OpSpec, sample: Sample) -> Exception | None:
    """The error with which a library that the function calls rejects its arguments on the host.

    None if there is no error, or if the function raises it on purpose.
    """
    try:
        with np.errstate(all="ignore"):
            spec.run("cpu", *sample.copied())
    except (ArithmeticError, IndexError, ValueError) as error:
        return None if is_raised_on_purpose(error) else error
    except Exception:  # noqa: BLE001  libraries reject inputs with errors of different types
        return None
    return None
