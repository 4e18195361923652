"""Device times by pairs of events, for kinds that do not tell how long their work takes.

A pair is recorded around an outermost call of an op, on the current stream of its device; the first pair of a device
comes after an event that the host has waited for, which puts the device's clock on the host's. Nothing is recorded
while the stream is captured: times of a capture mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from time import perf_counter
from typing import Any

from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.core.watchers import Occurrence
from cuassay.observe.assembly import Moment
from cuassay.ops import registry

__all__ = ["Pair", "Pairs", "needs_pairs"]

_Quietly = Callable[[Callable[[], Any]], Any]


class Pair:
    """Two events around one call."""

    def __init__(self, pairs: Pairs, backend: Backend, device: Device, stream: Any) -> None:
        self.device, self.stream = device, stream
        self._pairs = pairs
        self.first = backend.new_event(device.index, timing=True)
        self.last = backend.new_event(device.index, timing=True)
        self.name, self.parent = "", -1
        self.first.record(stream)

    def end(self, name: str, parent: int) -> None:
        """The call is over; it was `name`, recorded as `parent`."""
        self.name, self.parent = name, parent
        self._pairs.quietly(lambda: self.last.record(self.stream))


class Pairs:
    """Every pair of one recording.

    Parameters
    ----------
    quietly : callable
        Runs a function without recording what it does.
    is_wanted : callable, optional
        Whether a kind needs pairs: by default those with streams and without virtual time.
    """

    def __init__(self, quietly: _Quietly, is_wanted: Callable[[Backend], bool] | None = None) -> None:
        self.quietly = quietly
        self._is_wanted = is_wanted or needs_pairs
        self._pairs: list[Pair] = []
        self._anchors: dict[Device, tuple[Any, float]] = {}
        self._wanted: dict[type, Backend | None] = {}

    def __len__(self) -> int:
        return len(self._pairs)

    def begin(self, operands: Sequence[Any]) -> Pair | None:
        """A pair whose first event is recorded, or None where none is needed or can be."""
        for operand in operands:
            array_type = operand.__class__
            if array_type not in self._wanted:
                found = registry.backend_of(array_type)
                self._wanted[array_type] = found if found is not None and self._is_wanted(found) else None
            backend = self._wanted[array_type]
            if backend is not None:
                made: Pair | None = self.quietly(lambda: self._begin(backend, operand))  # noqa: B023  runs at once
                return made
        return None

    def _begin(self, backend: Backend, array: Any) -> Pair | None:
        device = backend.device_of(array)
        stream = backend.current_stream(device.index)
        if _is_capturing(stream):
            return None
        if device not in self._anchors:
            anchor = backend.new_event(device.index, timing=True)
            anchor.record(stream)
            anchor.synchronize()
            self._anchors[device] = anchor, getattr(backend, "now_s", perf_counter)()
        pair = Pair(self, backend, device, stream)
        self._pairs.append(pair)
        return pair

    def read(self) -> list[Moment]:
        """The kernels as they were timed; waits for the devices."""
        return list(self.quietly(self._read)) if self._pairs else []

    def _read(self) -> list[Moment]:
        for device in self._anchors:
            registry.backend(device.kind).synchronize(device.index)
        numbers = count(-2, -1)
        return [self._moment(pair, next(numbers)) for pair in self._pairs if pair.parent >= 0]

    def _moment(self, pair: Pair, number: int) -> Moment:
        anchor, at = self._anchors[pair.device]
        begin = at + anchor.elapsed_time(pair.first) / 1e3
        end = begin + pair.first.elapsed_time(pair.last) / 1e3
        moment = Moment("launched", pair.name, number, pair.parent, 0, begin, end)
        stream = int(getattr(pair.stream, "ptr", 0))
        moment.occurrence = Occurrence("launched", str(pair.device), 0, stream, 0, pair.name, begin, end)
        return moment


def needs_pairs(backend: Backend) -> bool:
    """Whether the kind has streams, and does not tell itself how long its work takes."""
    return backend.kind != "cpu" and not hasattr(backend, "now_s")


def _is_capturing(stream: Any) -> bool:
    asked = getattr(stream, "is_capturing", None)  # CuPy's method; ours on sim is a property
    return bool(asked()) if callable(asked) else bool(getattr(stream, "capturing", False))
