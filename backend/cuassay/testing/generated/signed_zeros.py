"""A check of the sign of zero: of a user's functions near zero, and of this package's ops for each pair of zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay import ops
from cuassay.arrays.dtypes import FLOATS, FP8, epsilon, is_float, smallest_subnormal
from cuassay.core.device import Device
from cuassay.testing.failures import inputs_there
from cuassay.testing.generated.comparison import on_host
from cuassay.testing.generated.execution import check, is_op, is_safely_taken, on_sample, run_sample
from cuassay.testing.generated.filling import is_general, refilled
from cuassay.testing.generated.result_dtypes import floats_of
from cuassay.testing.generated.selection import by_options, one
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample
from cuassay.testing.terms import arrays_of

__all__ = ["EITHER_ZERO"]

Array = NDArray[Any]

#: Ops of this package that select one of several numbers, with the operands that are not arrays. If a zero of either
#: sign is among the operands, either result is right: IEEE 754-2019 orders the zeros, but NumPy and torch follow the
#: machine's instruction.
EITHER_ZERO: dict[str, tuple[float, ...]] = {"maximum": (), "minimum": (), "relu": (0.0,)}

#: Classes of ops that compute or move single elements. Reductions are left out: NumPy's sum of -0 is -0, but it is 0 if
#: the sum starts with 0.
_CLASSES = ("elementwise", "storage")


def _applies(spec: OpSpec) -> bool:
    if spec.op is None:
        return True
    has_floats = not {*FLOATS, *FP8}.isdisjoint(spec.dtypes)
    return has_floats and is_op(spec) and spec.op.schema.op_class in _CLASSES


@check(_applies, dtypes=(*FP8, *FLOATS))
def check_signed_zeros(spec: OpSpec, device: Device, dtype: Any) -> None:
    """f(0) and f(-0) have the signs of the reference; an op of this package has them for all numbers."""
    if spec.op is not None and getattr(ops, spec.name, None) is spec.op:
        _check_own_op(spec, device, dtype)
    else:
        _check_neighbours(spec, device, dtype)


# ------------------------------------------------------------------------------------------------ functions


def _check_neighbours(spec: OpSpec, device: Device, dtype: Any) -> None:
    """For a function of one array, f(0) must have the sign of f(small), and f(-0) that of f(-small)."""
    sample = one(spec, device, dtype)
    arrays = floats_of(sample)
    if len(arrays) != 1 or len(arrays_of(*sample.host())) != 1 or not is_general(spec, sample):
        return
    small = smallest_subnormal(dtype) / epsilon(dtype) * 8
    sample = refilled(sample, lambda _: np.array([0.0, -0.0, small, -small], dtype), "zeros of both signs")
    if not is_safely_taken(spec, sample):
        return
    expected, got = spec.expected(sample), on_host(run_sample(spec, device, sample))
    if got.shape != (4,) or expected.shape != (4,) or not is_float(got.dtype):
        return
    want, found = np.signbit(expected.real), np.signbit(got)
    exact = not (got[:2].any() or expected[:2].any()) and got[2:].all() and expected[2:].all()
    is_meant = list(want[2:]) == list(want[:2]) == list(found[2:])
    if exact and is_meant and list(found[:2]) != list(want[:2]):
        raise AssertionError(
            f"the sign of zero is lost: f(0) and f(-0) are {got[0].item()!r} and {got[1].item()!r}, expected "
            f"{expected[0].item()!r} and {expected[1].item()!r}; its neighbours have the signs of the reference"
        )


# ------------------------------------------------------------------------------------------------ operations

#: The most elements of a sample that is refilled; a kernel processes vectors and a tail of this size.
_MOST_ELEMENTS = 600

#: The numbers in each array; each of them meets each of the next array's.
_NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, -3.0)


def _check_own_op(spec: OpSpec, device: Device, dtype: Any) -> None:
    for sample in by_options(spec, device, dtype, most=_MOST_ELEMENTS):
        _compare(spec, device, _of_zeros(sample))
    if "python" in spec.kinds:
        array = HostArray(np.resize(_NUMBERS, _MOST_ELEMENTS // 2 + 1).astype(dtype))
        for zero in (0.0, -0.0):
            for args in ((array, zero), (zero, array)):
                _compare(spec, device, Sample(args, label=f"numbers with {zero}"))


def _of_zeros(sample: Sample) -> Sample:
    """The call with numbers and zeros of both signs in each floating-point array, in every combination."""
    period = 1

    def put(value: Any) -> Any:
        nonlocal period
        if not isinstance(value, np.ndarray) or not is_float(value.dtype):
            return value
        filled = np.array(_NUMBERS, value.dtype)[np.arange(value.size) // period % len(_NUMBERS)]
        period = period * len(_NUMBERS) if period < _MOST_ELEMENTS else 1  # repeat the pattern in a long list
        return HostArray(filled.reshape(value.shape))

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, zeros of both signs")


def _compare(spec: OpSpec, device: Device, sample: Sample) -> None:
    expected, got = spec.expected(sample), on_host(run_sample(spec, device, sample))
    if got.shape != expected.shape or not is_float(got.dtype):
        return  # `values` reports it
    with np.errstate(all="ignore"):
        zeros = (np.asarray(got, np.float64) == 0) & (expected == 0)
    lost = zeros & (np.signbit(got) != np.signbit(expected))
    if lost.any() and spec.name in EITHER_ZERO:
        lost &= ~_are_of_both_signs([*sample.host()[0], *EITHER_ZERO[spec.name]], got.shape)
    if lost.any():
        place = tuple(int(at) for at in np.argwhere(lost)[0])
        lines = [
            f"the sign of zero is wrong: {int(lost.sum()):,} of {int(zeros.sum()):,} zeros have the other sign",
            f"the first at {place}: got {got[place].item()!r}, expected {expected[place].item()!r}",
            *inputs_there(place, got.shape, sample.host()),
        ]
        with on_sample(sample):
            raise AssertionError("\n  ".join(lines))


def _are_of_both_signs(operands: Sequence[Any], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Where the operands include both 0 and -0."""
    wide = [np.broadcast_to(np.asarray(one, np.float64), shape) for one in operands]
    signs = [(one == 0) & (np.signbit(one) == negative) for negative in (False, True) for one in wide]
    half = len(wide)
    return np.asarray(np.any(signs[:half], axis=0) & np.any(signs[half:], axis=0))
