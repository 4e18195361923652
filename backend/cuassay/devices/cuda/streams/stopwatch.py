"""Times of work on streams, by pairs of events with reused handles, which costs less than two `Event` objects.

Watchers are not notified of these events. Completed pairs are read while later ones are recorded, so few handles are
needed.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter

import cupy

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.context import at
from cuassay.devices.cuda.streams import event_handles
from cuassay.devices.cuda.streams.stream import get_current_stream

__all__ = ["Stopwatch"]

_record = cupy.cuda.runtime.eventRecord
_query = cupy.cuda.runtime.eventQuery
_elapsed = cupy.cuda.runtime.eventElapsedTime
_is_capturing = cupy.cuda.runtime.streamIsCapturing
_device = cupy.cuda.runtime.getDevice

#: The most pairs that wait to be read before the oldest ones are checked.
_WAITING = 64
#: How many pairs are recorded between two looks at whether the oldest are done.
_EACH = 32
#: Flags of an event with timing.
_TIMED = 0
#: The last address of a default stream; default streams are never captured.
_LAST_DEFAULT = 2


#: Number of the pair, stream, first event, last event.
_Pair = tuple[int, int, int, int]

#: With one device, it is always the current one.
_has_many = runtime.device_count() > 1


class Stopwatch:
    """A `cuassay.core.traced.Stopwatch` of device `index`.

    Its construction waits for an event of the current stream.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._waiting: deque[_Pair] = deque()
        self._times: list[tuple[int, int, float, float]] = []
        self._idle: list[int] = []
        self._count = 0
        self._anchor = event_handles.take(index, _TIMED)
        with at(index):
            _record(self._anchor, get_current_stream(index).ptr)
            cupy.cuda.runtime.eventSynchronize(self._anchor)
        self._began = perf_counter()

    def __repr__(self) -> str:
        return f"Stopwatch(cuda:{self._index}, {self._count:,} pairs)"

    def start(self) -> tuple[int, int] | None:
        """Mark the current stream; return None while it is captured."""
        stream = get_current_stream(self._index).ptr
        if stream > _LAST_DEFAULT and _is_capturing(stream):
            return None
        return stream, self._mark(stream)

    def stop(self, mark: tuple[int, int]) -> int:
        """Mark the stream of `mark` again; return the pair's number."""
        stream, first = mark
        number = self._count
        self._count = number + 1
        waiting = self._waiting
        waiting.append((number, stream, first, self._mark(stream)))
        if len(waiting) > _WAITING and not number % _EACH:
            self._read_done()
        return number

    def _mark(self, stream: int) -> int:
        handle = self._idle.pop() if self._idle else event_handles.take(self._index, _TIMED)
        if _has_many and _device() != self._index:
            with at(self._index):
                _record(handle, stream)
        else:
            _record(handle, stream)
        return handle

    def _read_done(self) -> None:
        waiting = self._waiting
        while waiting and _query(waiting[0][3]) == 0:
            self._read(waiting.popleft())

    def _read(self, pair: _Pair) -> None:
        number, stream, first, last = pair
        begin = self._began + _elapsed(self._anchor, first) / 1e3
        self._times.append((number, stream, begin, begin + _elapsed(first, last) / 1e3))
        self._idle += first, last

    def read(self) -> list[tuple[int, int, float, float]]:
        """Return all pairs, after the device was waited for; the stopwatch cannot be used again."""
        while self._waiting:
            self._read(self._waiting.popleft())
        for handle in (*self._idle, self._anchor):
            event_handles.give_back(self._index, handle, _TIMED)
        self._idle = []
        return self._times
