"""The performance limits of a device, measured in the same run as the results that are compared with them.

Bandwidth is measured by a copy, compute by a large square matrix product, and launch by a call with almost no work. In
contrast to the peak of a data sheet, these rates are reached by real code on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import numpy as np

from cuassay import devices, ops
from cuassay.arrays.dtypes import as_dtype
from cuassay.benchmarking.sampling import time_unit
from cuassay.benchmarking.timing import Timing, measure
from cuassay.core.device import HOST_KINDS, Device
from cuassay.core.units import format_bytes
from cuassay.testing.opspec import Work

__all__ = ["Limit", "fraction", "limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One performance limit, with the columns of a ``limit`` row."""

    device: str
    limit: Literal["bandwidth", "compute", "launch"]
    value: float
    unit: Literal["B/s", "FLOP/s", "s"]
    how: str
    dtype: str | None = None

    def columns(self) -> dict[str, object]:
        """Return the columns of a ``limit`` row."""
        return asdict(self)


def limits(device: str | Device, dtypes: Sequence[str] = ("float32", "bfloat16")) -> tuple[Limit, ...]:
    """Measure the limits of `device`; compute is measured in each of `dtypes` that it supports.

    A simulated device has no limits, because its times come from a model.
    """
    found = devices.find(device)
    is_modelled = time_unit(devices.backend(found.kind)) != "s"
    return () if is_modelled else tuple(_limits(found, dtypes))


def fraction(work: Work, timing: Timing, ceilings: Sequence[Limit], dtype: str) -> float | None:
    """Return the shortest time that the limits allow, divided by the measured time. 1 is the roofline.

    The result is None if no limit applies or no time was measured.

    Source: Williams, Waterman, Patterson, "Roofline", CACM 52 (2009), doi 10.1145/1498765.1498785.
    """
    rates = {one.limit: one.value for one in ceilings if one.dtype in (None, dtype)}
    needed = [
        amount / rates[limit]
        for limit, amount in (("bandwidth", work.bytes), ("compute", work.flops))
        if limit in rates
    ]
    return max(needed) / timing.net_s if needed and timing.net_s else None


def _limits(device: Device, dtypes: Sequence[str]) -> Iterator[Limit]:
    yield _bandwidth(device)
    for dtype in dtypes:
        if devices.why_unsupported(ops.matmul, device, dtype) is None:
            yield _compute(device, dtype)
    yield _launch(device)


def _is_host(device: Device) -> bool:
    return device.kind in HOST_KINDS


def _bandwidth(device: Device) -> Limit:
    """Measure reading and writing an array that is much larger than any cache."""
    nbytes = 32 * 2**20 if _is_host(device) else 2**30
    source, target = (devices.from_host(np.zeros(nbytes, np.uint8), device) for _ in range(2))
    timing = measure(lambda: ops.copy(source, out=target), device, max_seconds=0.3)
    how = f"copy of {format_bytes(nbytes)}, read and write counted"
    return Limit(device=str(device), limit="bandwidth", value=2 * nbytes / timing.median_s, unit="B/s", how=how)


def _compute(device: Device, dtype: str) -> Limit:
    extent = 1024 if _is_host(device) else 8192
    # Random, because bits that do not flip take no power: an H200 multiplied constants 8 to 13 % faster.
    values = np.random.default_rng(0).standard_normal((extent, extent), np.float32).astype(as_dtype(dtype))
    a, b, out = (devices.from_host(values, device) for _ in range(3))
    timing = measure(lambda: ops.matmul(a, b, out=out), device, cache="warm", max_seconds=0.3)
    how = f"matmul of {extent} x {extent}, random"
    rate = 2 * extent**3 / timing.median_s
    return Limit(device=str(device), limit="compute", value=rate, unit="FLOP/s", how=how, dtype=dtype)


def _launch(device: Device) -> Limit:
    one, out = (devices.from_host(np.zeros(1, np.float32), device) for _ in range(2))
    timing = measure(partial(ops.relu, one, out=out), device, cache="warm", max_seconds=0.2)
    return Limit(device=str(device), limit="launch", value=timing.median_s, unit="s", how="relu of one element, warm")
