"""Times of work on streams, by pairs of events with reused handles, which costs less than two `Event` objects.

Watchers are not notified of these events. Completed pairs are read while later ones are recorded, so few handles are
needed. A pair that follows another one on the same stream shares its event: recording and reading an event take the
host longer than all the rest.

The device's clock is compared with the host's at the beginning and at the end, because the two drift apart. The time
between two events without work in between is not counted as work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import count, islice
from time import perf_counter
from typing import Any

import cupy

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.context import at
from cuassay.devices.cuda.driver.graph_driver import relaxed
from cuassay.devices.cuda.streams import event_handles
from cuassay.devices.cuda.streams.stream import get_current_stream

__all__ = ["Stopwatch"]

_record = cupy.cuda.runtime.eventRecord
_query = cupy.cuda.runtime.eventQuery
_elapsed = cupy.cuda.runtime.eventElapsedTime
_is_capturing = cupy.cuda.runtime.streamIsCapturing
_device = cupy.cuda.runtime.getDevice
_wait = cupy.cuda.runtime.eventSynchronize
_make_stream = cupy.cuda.runtime.streamCreateWithFlags
_destroy_stream = cupy.cuda.runtime.streamDestroy
_NON_BLOCKING = cupy.cuda.runtime.streamNonBlocking

#: The most pairs that wait to be read before the oldest ones are checked.
_WAITING = 64
#: How many pairs are recorded between two looks at whether the oldest are done, and how many are read at a time.
_EACH = 32
#: Flags of an event with timing.
_TIMED = 0
#: The last address of a default stream; default streams are never captured.
_LAST_DEFAULT = 2

#: How often the two clocks are compared. The comparison that took the host least time counts.
_COMPARISONS = 8
#: The largest drift of the clocks, in seconds a second: a larger one is the error of two comparisons close together.
_MOST_DRIFT = 1e-4
#: Events recorded one after another to find out how far apart the device reaches two of them; on an H200 1.28 us.
_EMPTY = 16
#: The most seconds between two such events: more than that is the host's time.
_MOST_EMPTY = 2e-6
#: The seconds after which a later event becomes the anchor. The driver returns the time between two events as a float32
#: of milliseconds: a step is 0.06 us after a second, and 60 us after ten minutes.
_ANCHOR_S = 1.0


#: Stream, first event, the pair that it follows or None, last event, number, whether another pair follows, and the
#: end in seconds once it was read. A list, because it is filled step by step and a class would take longer.
_Pair = list[Any]
_STREAM, _FIRST, _BEFORE, _LAST, _NUMBER, _IS_FOLLOWED, _END = range(7)

#: With one device, it is always the current one.
_has_many = runtime.device_count() > 1


class Stopwatch:
    """A `cuassay.core.traced.Stopwatch` of device `index`.

    It compares clocks on a stream of its own, which waits for no other work.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._waiting: deque[_Pair] = deque()
        self._times: list[tuple[int, int, float, float]] = []
        self._idle: list[int] = []
        self._numbers = count()
        self._stopped: _Pair | None = None  # the last pair, which another one may follow
        self._reading = threading.Lock()
        self._anchor = event_handles.take(index, _TIMED)  # times of events are relative to it
        self._anchored_at = 0.0  # its own time, in seconds since the first anchor
        with at(index), relaxed():  # otherwise it would break another thread's capture
            self._own = _make_stream(_NON_BLOCKING)
            _record(self._anchor, self._own)
            self._empty = self._between_events()
            self._began = self._compared()

    def __repr__(self) -> str:
        return f"Stopwatch(cuda:{self._index}, {len(self._times) + len(self._waiting):,} pairs)"

    def _between_events(self) -> float:
        """Return the least seconds from one event to the next on an idle stream, at most `_MOST_EMPTY`."""
        handles = [event_handles.take(self._index, _TIMED) for _ in range(_EMPTY)]
        for handle in handles:
            _record(handle, self._own)
        _wait(handles[-1])
        self._idle += handles
        least: float = min(map(_elapsed, handles, handles[1:])) / 1e3
        return min(max(least, 0.0), _MOST_EMPTY)

    def _compared(self) -> tuple[float, float]:
        """Return the same moment on both clocks: the device's seconds since the first anchor, and the host's."""
        handle, found = event_handles.take(self._index, _TIMED), []
        for _ in range(_COMPARISONS):
            before = perf_counter()
            _record(handle, self._own)
            _wait(handle)
            after = perf_counter()
            found.append(
                (after - before, self._anchored_at + _elapsed(self._anchor, handle) / 1e3, (before + after) / 2)
            )
        self._idle.append(handle)
        return min(found)[1:]

    def start(self) -> _Pair | None:
        """Mark the current stream; return None while it is captured."""
        stream = get_current_stream(self._index).ptr
        if stream > _LAST_DEFAULT and _is_capturing(stream):
            return None
        return [stream, self._mark(stream), None, 0, 0, False, 0.0]

    def follow(self) -> _Pair | None:
        """`start` without an event, if nothing was given to the current stream since the last pair ended there."""
        before, self._stopped = self._stopped, None  # at once, because a driver call lets other threads run
        stream = get_current_stream(self._index).ptr
        if before is None or before[_STREAM] != stream:
            return self.start()
        if stream > _LAST_DEFAULT and _is_capturing(stream):
            return None
        before[_IS_FOLLOWED] = True
        return [stream, before[_LAST], before, 0, 0, False, 0.0]

    def stop(self, mark: _Pair) -> int:
        """Mark the stream of `mark` again; return the pair's number."""
        mark[_LAST] = self._mark(mark[_STREAM])
        mark[_NUMBER] = number = next(self._numbers)
        self._waiting.append(mark)
        self._stopped = mark
        if not number % _EACH and len(self._waiting) > _WAITING:
            self._read_done()
        return number

    def _mark(self, stream: int) -> int:
        try:
            handle = self._idle.pop()
        except IndexError:
            handle = event_handles.take(self._index, _TIMED)
        if _has_many and _device() != self._index:
            with at(self._index):
                _record(handle, stream)
        else:
            _record(handle, stream)
        return handle

    def _read_done(self) -> None:
        """Read the oldest pairs, if they are done: the last one of each stream tells."""
        if not self._reading.acquire(blocking=False):  # pairs are read in order, by one thread
            return
        try:
            waiting = self._waiting
            while len(waiting) > _WAITING:
                oldest = list(islice(waiting, _EACH))
                with relaxed():  # otherwise it would break another thread's capture
                    if any(map(_query, {pair[_STREAM]: pair[_LAST] for pair in oldest}.values())):
                        return
                self._read(_EACH)
        finally:
            self._reading.release()

    def _read(self, number_of_pairs: int) -> None:
        """Read that many of the oldest pairs, in one frame, because a call for each pair would take longer."""
        take, add, put = self._waiting.popleft, self._times.append, self._idle.append
        elapsed, anchor, anchored_at, empty = _elapsed, self._anchor, self._anchored_at, self._empty
        for _ in range(number_of_pairs):
            pair = take()
            stream, first, before, last, number, is_followed, _end = pair
            begin = anchored_at + elapsed(anchor, first) / 1e3 if before is None else before[_END]
            lasted = elapsed(first, last) / 1e3
            end = pair[_END] = begin + lasted
            pair[_BEFORE] = None  # so that pairs do not keep all those before them
            add((number, stream, begin + min(empty, lasted / 2), end))
            if begin - anchored_at > _ANCHOR_S:
                put(anchor)
                self._anchor, self._anchored_at = anchor, anchored_at = first, begin
            else:
                put(first)
            if not is_followed:
                if pair is self._stopped:
                    self._stopped = None
                put(last)

    def read(self) -> list[tuple[int, int, float, float]]:
        """Return all pairs, after the device was waited for; the stopwatch cannot be used again."""
        with self._reading:  # another thread may be reading the oldest pairs
            self._read(len(self._waiting))
            with at(self._index), relaxed():
                host = _conversion(self._began, self._compared())
                _destroy_stream(self._own)
        for handle in (*self._idle, self._anchor):
            event_handles.give_back(self._index, handle, _TIMED)
        self._idle = []
        return [(number, stream, host(begin), host(end)) for number, stream, begin, end in self._times]


def _conversion(first: tuple[float, float], last: tuple[float, float]) -> Callable[[float], float]:
    """Return what converts the device's seconds to the host's, from two moments on both clocks."""
    (device, host), (later, host_later) = first, last
    rate = (host_later - host) / (later - device) if later > device else 1.0
    rate = min(max(rate, 1 - _MOST_DRIFT), 1 + _MOST_DRIFT)
    return lambda seconds: host + (seconds - device) * rate
