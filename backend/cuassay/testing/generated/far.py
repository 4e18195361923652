"""Checks with numbers far beyond those of the samples: overflowing exponentials, and finite stand-ins for infinity.

They apply only to inputs drawn from the default range. A result is compared only where the reference gives the same
number in the sample's own dtype as in float64. There the reference neither overflows nor underflows in an intermediate
step, so the function must not do so either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import epsilon, is_complex
from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare_values, of_reference, on_host
from cuassay.testing.generated.execution import explained, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.filling import Change, conditioning, is_changed, refilled
from cuassay.testing.generated.natively import decided
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample
from cuassay.testing.tolerance import FUNCTION, allowed

__all__ = ["check_branch_cuts", "check_far", "check_far_complex", "check_large_complex", "check_small_complex"]

Array = NDArray[Any]


def _times(factor: float, *, sign: int = 0) -> Change:
    def put(array: Array) -> Array:
        wide = array.astype(np.float64)
        return np.asarray(((sign * np.abs(wide) if sign else wide) * factor).astype(array.dtype))

    return put


#: In float32 the exponential of 384 overflows. Functions use -1e4 as a mask, 1e6 or 1e9 as the initial value of a
#: minimum, and 32-bit integers in intermediate steps. A mask of -1e9 is common and not reported as a fault.
_FAR: dict[str, Change] = {
    "times 128": _times(2.0**7),
    "negative, times 2^20": _times(2.0**20, sign=-1),
    "positive, times 2^34": _times(2.0**34, sign=1),
}

_LOST = (
    "wrong for numbers far beyond the samples, where the reference is right in the same dtype: does an exponential "
    "overflow, or a finite constant replace infinity? If such numbers are not meant, give the samples a range: "
    "make(shape, low=, high=)"
)


def check_far(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try numbers 128 times as large, far below zero, and far above it."""
    _compare_each(spec, device, dtype, (refilled(sample, change, label) for label, change in _FAR.items()), _LOST)


def _compare_each(spec: OpSpec, device: Device, dtype: Any, samples: Iterable[Sample], said: str) -> None:
    """Compare each call that function and reference accept, if there is a reference; a failure begins with `said`."""
    for filled in () if spec.is_its_own_reference else samples:
        if is_safely_taken(spec, filled):
            with on_sample(filled), explained(said):
                _compare_decided(spec, device, dtype, filled)


def _compare_decided(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    narrow, expected = of_reference(spec, sample, errors="of casts"), spec.expected(sample)
    if narrow is None or narrow.shape != expected.shape or not narrow.size:
        return
    result = run_sample(spec, device, sample)
    got = on_host(result)
    if got.shape != expected.shape:
        return
    if got.dtype.kind in "iu" and expected.dtype.kind in "iu":
        sure = (narrow == expected) & _grows(spec, sample, expected)
        compare_values(spec, device, dtype, sample, result, expected=np.where(sure, expected, got))
    elif got.dtype.kind in "fc" and expected.dtype.kind in "fc":
        sure = decided(narrow, expected, dtype, np.abs(expected))
        if sure.any() and not _is_equal(got[sure], expected[sure]):
            magnitude, terms = spec.scale(sample, expected)
            limit = allowed(FUNCTION, dtype, terms=terms, magnitude=np.nan_to_num(magnitude, posinf=0.0, neginf=0.0))
            off = np.where(sure, np.abs(narrow.astype(expected.dtype) - expected), 0.0)  # includes a rounded exponent
            limit = limit + 2 * conditioning(spec, sample) + _PRECISION_FACTOR * off
            compare_values(spec, device, dtype, sample, result, expected=np.where(sure, expected, got), limit=limit)


#: A function may be this many times less precise than the reference in the same dtype.
_PRECISION_FACTOR = 4


def _is_equal(got: Array, expected: Array) -> bool:
    """Whether all results agree closely, as they usually do; then the costlier tolerance need not be computed."""
    with np.errstate(all="ignore"):
        return bool((np.abs(got - expected) <= epsilon(got.dtype) * np.abs(expected)).all())


def _grows(spec: OpSpec, sample: Sample, expected: Array) -> Any:
    """Where integers are at least as large as those for halved inputs: there the reference has not wrapped around."""
    half = refilled(sample, _times(0.5), "")
    if not is_safely_taken(spec, half):
        return False
    less = spec.expected(half)
    if less.shape != expected.shape:
        return False
    return (np.abs(expected) >= np.abs(less)) & ((less == 0) | (np.sign(expected) == np.sign(less)))


#: Exponents of the factors at which the squares of complex64 numbers overflow or underflow.
_EXPONENTS = (80, -80)


def check_far_complex(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try complex numbers whose squares overflow or underflow: an absolute value must not be lost."""
    if np.dtype(dtype) == np.complex64:
        meant = (one for one in _of_other_units(sample) if of_reference(spec, one, errors="raise") is not None)
        _compare_each(spec, device, dtype, meant, _LOST)


#: Exponent of the factor at which ``exp(z) - 1`` has lost half of the digits of complex128.
_SMALL = -27


def check_small_complex(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try complex numbers close to zero: the function must be as precise there as the reference."""
    said = "wrong for small complex numbers: does a difference lose their digits?"
    _compare_each(spec, device, dtype, _of_other_units(sample, (_SMALL,)), said)


#: Exponent of the factor at which ``exp(z)`` overflows in each dtype for most numbers.
_LARGE = 9


def check_large_complex(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try complex numbers of which exponentials overflow: what the reference has in the same dtype must not be NaN."""
    if spec.reference is None:
        return
    for filled in _of_other_units(sample, (_LARGE,)):
        if not is_safely_taken(spec, filled):
            continue
        narrow, expected = of_reference(spec, filled, errors="of casts"), spec.expected(filled)
        if narrow is None or narrow.shape != expected.shape or expected.dtype.kind != "c":
            continue
        with on_sample(filled), explained("NaN for large complex numbers: is infinity divided by infinity?"):
            result = run_sample(spec, device, filled)
            got = on_host(result)
            if got.shape == expected.shape:
                is_lost = np.isnan(got) & np.isfinite(narrow) & np.isfinite(expected)
                wanted = np.where(is_lost, expected, got)
                compare_values(spec, device, dtype, filled, result, expected=wanted, limit=0.0)


def check_branch_cuts(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Try imaginary parts of 0 and -0: on a branch cut the sign chooses the side, as for the root of -4 - 0j."""
    for zero in (0.0, -0.0):
        filled = _changed(sample, partial(_with_imaginary, zero=zero), f"imaginary parts of {zero:g}")
        _compare_each(spec, device, dtype, filled, "wrong on a branch cut: is the sign of zero ignored?")


def _with_imaginary(array: Array, zero: float) -> Array:
    made = array.copy()
    made.imag = zero
    return made


def _of_other_units(sample: Sample, exponents: tuple[int, ...] = _EXPONENTS) -> Iterator[Sample]:
    for exponent in exponents:
        yield from _changed(sample, partial(np.multiply, 2.0**exponent), f"times 2^{exponent}")


def _changed(sample: Sample, change: Change, label: str) -> Iterator[Sample]:
    """Yield the call with its complex arrays changed whose numbers may be any; nothing if there are none."""

    def put(given: Any) -> Any:
        is_free = isinstance(given, HostArray) and is_complex(given.dtype) and given.is_free
        return HostArray(change(given.values)) if is_free else given

    args = tuple(put(given) for given in sample.args)
    if is_changed(args, sample.args):
        yield Sample(args, sample.kwargs, f"{sample.label}, {label}")
