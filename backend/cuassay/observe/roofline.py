"""How close kernels come to the roofline of a device's memory, as far as their bytes and its peak rate are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cuassay.core.device import Device
from cuassay.observe.spans import DEVICE_KINDS, Span, Timeline
from cuassay.ops import registry
from cuassay.ops.operation import Op

__all__ = ["Shares", "bandwidths", "bytes_of"]


def bandwidths(timeline: Timeline) -> dict[str, float]:
    """Return the peak rate in bytes per second of the memory of each device that worked and states it."""
    found: dict[str, float] = {}
    for name in {span.track.partition(" ")[0] for span in timeline.spans if span.kind in DEVICE_KINDS}:
        device = Device(name)
        state = getattr(registry.backend(device.kind), "bandwidth", None)
        if state is not None:
            found[name] = state(device.index)
    return found


def bytes_of(op: Op, args: Sequence[Any], result: Any) -> int:
    """Return the bytes of the arrays of a call, as if each was read or written once.

    They are 0 for a view, and for a call that takes a list: calls with other lists count as alike.
    """
    if op.schema.view_of or any(isinstance(one, list | tuple) for one in args):
        return 0
    results = result if isinstance(result, tuple) else (result,)
    return sum(int(getattr(one, "nbytes", 0)) for one in (*args, *results))


class Shares:
    """The share of the memory bandwidth that the kernels of each name reach.

    Copies do not count, because most of them are limited by the bus between host and device.
    """

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = rates
        self._needed: dict[str, float] = {}
        self._taken: dict[str, float] = {}

    def add(self, name: str, span: Span) -> None:
        """Count a span of a device under `name`, if it is a kernel of which bytes and time are known."""
        rate = self._rates.get(span.track.partition(" ")[0])
        if rate and span.kind == "kernel" and span.nbytes and span.is_timed:
            self._needed[name] = self._needed.get(name, 0.0) + span.nbytes / rate
            self._taken[name] = self._taken.get(name, 0.0) + span.seconds

    def of(self, name: str) -> float | None:
        """Return the time that the bytes need at the peak rate, divided by the time taken; None if it is not known."""
        taken = self._taken.get(name, 0.0)
        return self._needed[name] / taken if taken else None
