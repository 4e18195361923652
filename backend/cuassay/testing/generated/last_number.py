"""A check that a reduction uses the numbers at both ends: missing one of 65,537 is within every tolerance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import Device
from cuassay.testing.generated.comparison import on_host
from cuassay.testing.generated.execution import is_safely_taken, run_sample
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample

__all__ = ["check_last_number"]


#: Indices of the numbers that must count. The last two and the first show a reduction that leaves out an end.
_PLACES = {"the last number": -1, "the last number but one": -2, "the first number": 0}


def check_last_number(spec: OpSpec, device: Device, sample: Sample) -> None:
    """Fail if the function gives the same for zeros and for zeros with a 1 at one end, and the reference does not."""
    none = _zeros_except(sample, "the last number", 0)
    if not is_safely_taken(spec, none):
        return
    without, first = spec.expected(none), on_host(run_sample(spec, device, none))
    for name in _PLACES:
        one = _zeros_except(sample, name, 1)
        if is_safely_taken(spec, one):
            _check_one(spec, device, one, name, without, first)


def _check_one(
    spec: OpSpec, device: Device, one: Sample, name: str, without: NDArray[Any], first: NDArray[Any]
) -> None:
    with_it, second = spec.expected(one), on_host(run_sample(spec, device, one))
    if not first.shape == second.shape == without.shape == with_it.shape:
        return
    ignored = _are_far(with_it, without) & (first == second)
    if ignored.any():
        place = tuple(int(index) for index in np.argwhere(ignored)[0])
        raise AssertionError(
            f"{name} has no part in the result: for zeros, and for zeros with a 1 there, the function gives "
            f"{first[place]} at {place}; the reference gives {without[place]} and {with_it[place]}; "
            f"does a loop over chunks end too early?\n  sample: {one.label}"
        )


def _are_far(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where two answers of the reference differ by more than a tolerance, or at all if they are not floats."""
    if a.dtype.kind in "biu":
        return np.asarray(a != b)
    return np.asarray(np.abs(a - b) > _SEEN * np.maximum(np.abs(a), np.abs(b)))


#: The 1 must change the reference's result by more than this fraction of it.
_SEEN = 2.0**-6


def _zeros_except(sample: Sample, name: str, number: int) -> Sample:
    def put(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        filled = np.zeros_like(value)
        if filled.ndim and filled.shape[-1] > 1:
            filled[..., _PLACES[name]] = number
        return HostArray(filled)

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, zeros and {name} {number}")
