"""Measure device times with pairs of events, for device kinds that do not report how long their work takes.

A pair of events is recorded around each outermost call of an op, on the current stream of its device. Before the first
pair of a device the host records an event and waits for it, which aligns the device's clock with the host's. Nothing is
recorded while the stream is being captured, because a captured event has no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from time import perf_counter
from typing import Any

from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.core.traced import Stopwatch
from cuassay.core.watchers import Occurrence
from cuassay.observe.assembly import Moment
from cuassay.ops import registry

__all__ = ["Pair", "Pairs", "needs_pairs"]

_Quietly = Callable[[Callable[[], Any]], Any]


#: A pair whose first event is recorded: the stopwatch, its mark, and the calls by the numbers of their pairs.
Pair = tuple[Stopwatch, Any, dict[int, tuple[str, int]]]

#: A stopwatch, and the op and the moment of each call, by the number of its pair.
_Watch = tuple[Stopwatch, dict[int, tuple[str, int]]]


class Pairs:
    """All pairs of events of one recording.

    Parameters
    ----------
    quietly : callable
        Runs a function without recording what it does.
    is_wanted : callable, optional
        Returns whether a device kind needs pairs; `needs_pairs` by default.

    Attributes
    ----------
    unwanted : set of type
        The types of operands that were met and are not on devices that need pairs.
    """

    def __init__(self, quietly: _Quietly, is_wanted: Callable[[Backend], bool] | None = None) -> None:
        self.quietly = quietly
        self._is_wanted = is_wanted or needs_pairs
        self._watches: dict[Device, _Watch] = {}
        self._known: dict[tuple[type, int], _Watch] = {}
        self._wanted: dict[type, Backend | None] = {}
        self.unwanted: set[type] = set()

    def begin(self, operands: Sequence[Any]) -> Pair | None:
        """Record the first event of a pair.

        Returns None if no operand is on a device that needs pairs, or if the stream is being captured.
        """
        for operand in operands:
            array_type = operand.__class__
            backend = self._wanted[array_type] if array_type in self._wanted else self._meet(array_type)
            if backend is not None:
                device = backend.device_of(operand)
                # by a tuple, because hashing a Device takes longer
                watch, called = self._known.get((array_type, device.index)) or self._begin(backend, device, array_type)
                mark = watch.start()
                return None if mark is None else (watch, mark, called)
        return None

    @staticmethod
    def end(pair: Pair, name: str, parent: int) -> None:
        """Record the second event. `name` is the op that was called, and `parent` the number of its moment."""
        watch, mark, called = pair
        called[watch.stop(mark)] = name, parent

    def _meet(self, array_type: type) -> Backend | None:
        found = registry.backend_of(array_type)
        wanted = self._wanted[array_type] = found if found is not None and self._is_wanted(found) else None
        if wanted is None:
            self.unwanted.add(array_type)
        return wanted

    def _begin(self, backend: Any, device: Device, array_type: type) -> _Watch:
        found = self._watches.get(device)
        if found is None:
            made = getattr(backend, "new_stopwatch", None)
            watch = self.quietly(lambda: made(device.index)) if made else _Events(backend, device.index, self.quietly)
            found = self._watches[device] = watch, {}
        self._known[array_type, device.index] = found
        return found

    def read(self) -> list[Moment]:
        """Wait for the devices, and return one moment for each timed call."""
        numbers = count(-2, -1)
        return [moment for device in self._watches for moment in self._read(device, numbers)]

    def _read(self, device: Device, numbers: Any) -> list[Moment]:
        watch, called = self._watches[device]
        self.quietly(lambda: registry.backend(device.kind).synchronize(device.index))
        found = []
        for pair, stream, begin, end in self.quietly(watch.read):
            name, parent = called[pair]
            if parent >= 0:
                moment = Moment("launched", name, next(numbers), parent, 0, begin, end)
                moment.occurrence = Occurrence("launched", str(device), 0, stream, 0, name, begin, end)
                found.append(moment)
        return found


class _Events:
    """A stopwatch for device kinds that have events but no stopwatch."""

    def __init__(self, backend: Backend, index: int, quietly: _Quietly) -> None:
        self._backend, self._index, self._quietly = backend, index, quietly
        self._pairs: list[tuple[Any, Any, Any]] = []
        self._anchor, self._began = quietly(self._synchronized)

    def _synchronized(self) -> tuple[Any, float]:
        anchor = self._backend.new_event(self._index, timing=True)
        anchor.record(self._backend.current_stream(self._index))
        anchor.synchronize()
        return anchor, getattr(self._backend, "now_s", perf_counter)()

    def start(self) -> Any:
        stream = self._backend.current_stream(self._index)
        return None if _is_capturing(stream) else (stream, self._quietly(lambda: self._recorded(stream)))

    def _recorded(self, stream: Any) -> Any:
        event = self._backend.new_event(self._index, timing=True)
        event.record(stream)
        return event

    def stop(self, mark: Any) -> int:
        stream, first = mark
        self._pairs.append((stream, first, self._quietly(lambda: self._recorded(stream))))
        return len(self._pairs) - 1

    def read(self) -> list[tuple[int, int, float, float]]:
        found = []
        for number, (stream, first, last) in enumerate(self._pairs):
            begin = self._began + self._anchor.elapsed_time(first) / 1e3
            end = begin + first.elapsed_time(last) / 1e3
            found.append((number, int(getattr(stream, "ptr", 0)), begin, end))
        return found


def needs_pairs(backend: Backend) -> bool:
    """Return whether the device kind has streams but does not report how long its work takes."""
    return backend.kind != "cpu" and not hasattr(backend, "now_s")


def _is_capturing(stream: Any) -> bool:
    method = getattr(stream, "is_capturing", None)  # a method of CuPy's streams; sim's have a property `capturing`
    return bool(method()) if callable(method) else bool(getattr(stream, "capturing", False))
