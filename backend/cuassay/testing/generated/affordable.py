"""How far the extents of a sample can grow until a call of the function or its reference takes long."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import numpy as np

from cuassay.core.device import Device
from cuassay.testing.generated.execution import run_sample
from cuassay.testing.generated.extents import MOST_OF_SMALL, elements_of, resized, seconds_of_reference
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

__all__ = ["affordable"]

#: The most elements of the inputs, and of the result.
_MOST_ELEMENTS = 2**20 + 2**18

#: Seconds of one call on the host; a Python loop over all elements does not run over a million of them.
_PATIENCE_S = 0.25
#: Seconds of one call on the device. Each step of such a loop is a launch, which sim compares with all earlier ones.
_DEVICE_PATIENCE_S = 1.0
#: Seconds of the reference. One with two nested Python loops over the elements would take hours for a million.
_REFERENCE_PATIENCE_S = 1.0


def affordable(
    spec: OpSpec, device: Device, base: Sample, longer: Iterable[dict[int, int]], most: int = _MOST_ELEMENTS
) -> Iterator[Sample]:
    """Yield `base` with growing extents as long as the next sample is affordable; a larger one is not even drawn.

    Time is assumed to grow with the square of the size.
    """
    took, before = 0.0, 1
    for extents in longer:
        size = elements_of(base, extents)
        if size > most or took * (size / before) ** 2 > _PATIENCE_S:
            return
        sample = resized(base, extents)
        began = time.thread_time()
        if _size_on_host(spec, sample) > _MOST_ELEMENTS:
            return
        took = time.thread_time() - began
        if not spec.is_its_own_reference:
            took = max(took, seconds_of_reference(spec, sample) * _PATIENCE_S / _REFERENCE_PATIENCE_S)
        if device.kind != "cpu":
            try:
                took = max(took, _seconds_on(spec, device, sample) * _PATIENCE_S / _DEVICE_PATIENCE_S)
            except MemoryError:  # the function may allocate the square of the length
                return
        before = max(size, 1)
        yield sample


def _seconds_on(spec: OpSpec, device: Device, sample: Sample) -> float:
    """Seconds that one call on `device` keeps the host busy, without compilation; 0 if the call fails.

    Raises
    ------
    MemoryError
        If the device has too little memory.
    """
    try:
        if elements_of(sample) <= MOST_OF_SMALL:
            run_sample(spec, device, sample)
        began = time.thread_time()
        run_sample(spec, device, sample)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  the comparison that follows reports it
        return 0.0
    return time.thread_time() - began


def _size_on_host(spec: OpSpec, sample: Sample) -> int:
    """The number of elements of the result; a huge number if the host cannot compute it."""
    try:
        with np.errstate(all="ignore"):
            return int(np.size(spec.run("cpu", *sample.copied())))
    except Exception:  # noqa: BLE001  a larger shape may be rejected with any error
        return 2**62
