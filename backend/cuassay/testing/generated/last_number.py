"""Whether the last of many numbers has its part in a reduction, where one of 65,537 is within every tolerance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.core.device import Device
from cuassay.testing.generated.execution import is_safely_taken, run_sample
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample

__all__ = ["check_last_number"]


def check_last_number(spec: OpSpec, device: Device, sample: Sample) -> None:
    """Fail where the reference tells a last number of 1 from one of 0, and the function gives the same for both."""
    none, last = _zeros_but_last(sample, 0), _zeros_but_last(sample, 1)
    if not (is_safely_taken(spec, none) and is_safely_taken(spec, last)):
        return
    without, with_it = spec.expected(none), spec.expected(last)
    first, second = (np.asarray(devices.to_host(run_sample(spec, device, one))) for one in (none, last))
    if not first.shape == second.shape == without.shape == with_it.shape:
        return
    far = np.abs(with_it - without) > _SEEN * np.maximum(np.abs(with_it), np.abs(without))
    ignored = far & (first == second)
    if ignored.any():
        place = tuple(int(index) for index in np.argwhere(ignored)[0])
        raise AssertionError(
            "the last number has no part in the result: for zeros, and for zeros with a last number of 1, the function "
            f"gives {first[place]} at {place}; the reference gives {without[place]} and {with_it[place]}; "
            f"does a loop over chunks end too early?\n  sample: {last.label}"
        )


#: Part of a result by which the last number must change the reference.
_SEEN = 2.0**-6


def _zeros_but_last(sample: Sample, number: int) -> Sample:
    def put(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        filled = np.zeros_like(value)
        filled[..., -1:] = number
        return HostArray(filled)

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, zeros and a last number of {number}")
