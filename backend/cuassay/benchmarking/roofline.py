"""What a device can do at most, measured in the same run as what is compared with it.

Bandwidth is that of a copy, compute that of a large square matrix product, launch the time of a call with nothing
to do. A data sheet's peak is a promise; these are reached by code on this machine today.
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
    """One ceiling, by the columns of a ``limit`` row."""

    device: str
    limit: Literal["bandwidth", "compute", "launch"]
    value: float
    unit: Literal["B/s", "FLOP/s", "s"]
    how: str
    dtype: str | None = None

    def columns(self) -> dict[str, object]:
        """Columns of a ``limit`` row."""
        return asdict(self)


def limits(device: str | Device, dtypes: Sequence[str] = ("float32", "bfloat16")) -> tuple[Limit, ...]:
    """Measure the ceilings of `device`, of compute in each of `dtypes` that it multiplies in.

    A simulated device has none: its times come from a model.
    """
    found = devices.find(device)
    is_modelled = time_unit(devices.backend(found.kind)) != "s"
    return () if is_modelled else tuple(_limits(found, dtypes))


def fraction(work: Work, timing: Timing, ceilings: Sequence[Limit], dtype: str) -> float | None:
    """Time the ceilings allow over the time it took: 1 is the roofline; None if no ceiling is known.

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
    """Read and write of an array far larger than any cache."""
    nbytes = 32 * 2**20 if _is_host(device) else 2**30
    source, target = (devices.from_host(np.zeros(nbytes, np.uint8), device) for _ in range(2))
    timing = measure(lambda: ops.copy(source, out=target), device, max_seconds=0.3)
    how = f"copy of {format_bytes(nbytes)}, read and write counted"
    return Limit(device=str(device), limit="bandwidth", value=2 * nbytes / timing.median_s, unit="B/s", how=how)


def _compute(device: Device, dtype: str) -> Limit:
    extent = 1024 if _is_host(device) else 8192
    # Random, as bits that do not flip take no power: an H200 multiplied constants 8 to 13 % faster.
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
