"""Measure device times with pairs of events, for device kinds that do not report how long their work takes.

A pair of events is recorded around each outermost call of an op, on the current stream of its device. Before the first
pair of a device the host records an event and waits for it, which aligns the device's clock with the host's; a kind's
own stopwatch may compare the clocks again at the end. Nothing is recorded while the stream is being captured, because a
captured event has no time.

If nothing was given to the stream since the last call ended, its last event is also the first one of the next call. The
caller says so, because it sees how much time the host spent in between.

On an idle device the first event passes at once, and the pair lasts as long as the host's call. But work cannot begin
before the host launches it. The first two calls with a signature note when they launch, and later ones are taken to
launch as long before their end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from math import inf
from time import perf_counter
from typing import Any

from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.core.watchers import Occurrence
from cuassay.observe.assembly import Moment, Way
from cuassay.ops import Op, registry

__all__ = ["NEVER", "Pair", "Pairs", "Watch", "counted", "needs_pairs"]

_Quietly = Callable[[Callable[[], Any]], Any]

#: The end of a call that no other one may follow.
NEVER = -inf

#: On an idle device, the seconds from the host's launch to the beginning of the kernel, and from there to the end of a
#: call that launches only one: recording its last event takes the host that long. Both on an H200.
_AFTER_LAUNCH, _BEFORE_END = 3e-6, 2e-6

#: The least seconds of a kernel.
_SHORTEST = 1e-6


@dataclass(slots=True)
class Watch:
    """The functions of a device's stopwatch, and by the number of the pair what was called, its moment and its end."""

    start: Callable[[], Any]
    follow: Callable[[], Any]
    stop: Callable[[Any], int]
    read: Callable[[], list[tuple[int, int, float, float]]]
    called: dict[int, tuple[Way, int, float]] = field(default_factory=dict)


#: A pair whose first event is recorded: what times it, and its mark.
Pair = tuple[Watch, Any]


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
    of_type : dict of type to Watch
        What times calls whose first operand is of that type, for kinds with one device that needs pairs.
    ended : float
        The host's time when the last timed call ended, or `NEVER` if its stream may have been given work since.
    last : Watch, optional
        What timed it; only a call on the same device may follow. The caller sets both.
    """

    def __init__(self, quietly: _Quietly, is_wanted: Callable[[Backend], bool] | None = None) -> None:
        self.quietly = quietly
        self._is_wanted = is_wanted or needs_pairs
        self._watches: dict[Device, Watch] = {}
        self._known: dict[tuple[type, int], Watch] = {}
        self._wanted: dict[type, Backend | None] = {}
        self.of_type: dict[type, Watch] = {}
        self.unwanted: set[type] = set()
        self.ended = NEVER
        self.last: Watch | None = None
        self._begun: dict[int, float] = {}

    def begin(self, operands: Sequence[Any], *, is_next: bool = False) -> Pair | None:
        """Record the first event of a pair.

        `is_next` means that no work was given to the stream since the last call ended. Returns None if no operand is on
        a device that needs pairs, or if the stream is being captured.
        """
        for given in operands:
            if given.__class__ in (list, tuple):
                if not given:
                    continue
                operand = given[0]
            else:
                operand = given
            array_type = operand.__class__
            backend = self._wanted[array_type] if array_type in self._wanted else self._meet(array_type)
            if backend is not None:
                device = backend.device_of(operand)
                # by a tuple, because hashing a Device takes longer
                watch = self._known.get((array_type, device.index)) or self._begin(backend, device, array_type)
                mark = watch.follow() if is_next and watch is self.last else watch.start()
                return None if mark is None else (watch, mark)
        return None

    def meet(self, way: Way, operands: Sequence[Any], *, is_next: bool, keeps: bool) -> Pair | None:
        """Do as `begin`, and if `keeps` find out what times all calls with the signature of `way`."""
        pair = self.begin(operands, is_next=is_next)
        if keeps:
            watch = self.of_type.get(operands[0].__class__) if operands else None
            if watch is not None or self.unwanted.issuperset(map(type, operands)):
                way.watch = watch
        return pair

    def note_launches(self, way: Way, number: int, launches: Sequence[Any], ended: float) -> None:
        """Note the launches of the call at moment `number`, which ended at `ended` on the host's clock."""
        if launches:
            begun = self._begun[number] = launches[0].time + _AFTER_LAUNCH
            way.before_end = _BEFORE_END if len(launches) == 1 else ended - begun

    def _meet(self, array_type: type) -> Backend | None:
        found = registry.backend_of(array_type)
        wanted = self._wanted[array_type] = found if found is not None and self._is_wanted(found) else None
        if wanted is None:
            self.unwanted.add(array_type)
        return wanted

    def _begin(self, backend: Any, device: Device, array_type: type) -> Watch:
        found = self._watches.get(device)
        if found is None:
            make = getattr(backend, "new_stopwatch", None)
            made: Any = (
                self.quietly(lambda: make(device.index)) if make else _Events(backend, device.index, self.quietly)
            )
            follow = getattr(made, "follow", made.start)
            found = self._watches[device] = Watch(made.start, follow, made.stop, made.read)
        self._known[array_type, device.index] = found
        if backend.count() == 1:
            self.of_type[array_type] = found
        return found

    def read(self, *, is_host_clock: bool = False) -> list[Moment]:
        """Wait for the devices, and return one moment for each timed call.

        `is_host_clock` means that the ends of calls are times of the host's clock, as those of the pairs are.
        """
        numbers = count(-2, -1)
        return [moment for device in self._watches for moment in self._read(device, numbers, is_host_clock)]

    def _read(self, device: Device, numbers: Any, is_host_clock: bool) -> list[Moment]:
        watch = self._watches[device]
        self.quietly(lambda: registry.backend(device.kind).synchronize(device.index))
        found = []
        for pair, stream, first, end in self.quietly(watch.read):
            way, parent, ended = watch.called.get(pair, (None, -1, NEVER))  # another thread may just have ended a call
            if way is not None and parent >= 0:
                launched = self._begun.get(parent, ended - way.before_end) if is_host_clock else first
                begin = max(first, min(launched, end - _SHORTEST))
                moment = Moment("launched", way.name, next(numbers), parent, 0, begin, end)
                moment.occurrence = Occurrence("launched", str(device), 0, stream, way.nbytes, way.name, begin, end)
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


def counted(op: Op, operands: Sequence[Any]) -> AbstractContextManager[Sequence[Any]]:
    """Return a context that yields a list of the kernels launched inside; it is empty if the kind does not tell."""
    found = registry.backend_of(operands[0].__class__) if operands else None
    counting = getattr(found, "launches_of", None)
    return nullcontext(()) if counting is None else counting(op, operands)


def needs_pairs(backend: Backend) -> bool:
    """Return whether the device kind has streams but does not report how long its work takes."""
    return backend.kind != "cpu" and not hasattr(backend, "now_s")


def _is_capturing(stream: Any) -> bool:
    method = getattr(stream, "is_capturing", None)  # a method of CuPy's streams; sim's have a property `capturing`
    return bool(method()) if callable(method) else bool(getattr(stream, "capturing", False))
