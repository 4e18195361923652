"""Device times of each kernel and copy, for kinds that have a tracer, such as CUDA with CUPTI.

Pairs of events time an op as a whole. A tracer reports each piece of work, including that of other libraries, with the
thread that launched it and the host time of the launch. The work belongs to the op, replay or range that was open in
that thread at that time. A copy that the recorder saw keeps its name and line, and gets the traced times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from cuassay.core.protocols import Backend
from cuassay.core.traced import Traced, TracedWork, Tracer
from cuassay.core.watchers import Occurrence
from cuassay.observe.assembly import OPEN, Moment
from cuassay.ops import registry

__all__ = ["Traces"]

_Quietly = Callable[[Callable[[], Any]], Any]

#: The kinds of host spans that can launch device work or contain a span that does.
_OPEN = ("op", "replay", "range")

#: Watcher events whose `stream` is known to exist.
_OF_STREAM = ("copied", "event_recorded", "event_waited")


class Traces:
    """The tracers of one recording: one for each kind that has a tracer and that the program has used.

    Parameters
    ----------
    quietly : callable
        Runs a function without recording what it does.

    Raises
    ------
    LibraryNotFoundError
        If a library that a kind's tracer needs is not installed. A kind without a tracer is skipped.
    """

    def __init__(self, quietly: _Quietly) -> None:
        self._quietly = quietly
        self._backends: dict[str, Backend] = {}
        self._tracers: dict[str, Tracer] = {}
        for one in registry.backends():
            if isinstance(one, Traced) and one.why_absent() is None:
                self._backends[one.kind], self._tracers[one.kind] = one, one.new_tracer()
        self._met: dict[type, str] = {}
        self.missed = 0

    def start(self) -> None:
        """Start tracing. Raises `StateError` if another profiler is tracing."""
        for tracer in self._tracers.values():
            self._quietly(tracer.start)

    def covers(self, backend: Backend) -> bool:
        """Return whether this kind's work is traced."""
        return backend.kind in self._tracers

    def meet(self, operands: Sequence[Any]) -> None:
        """Let the tracer learn the current stream of the device that `operands` are on."""
        for given in operands:
            operand = given[0] if given.__class__ in (list, tuple) and given else given
            kind = self._kind_of(operand.__class__)
            if kind:
                index = self._backends[kind].device_of(operand).index
                self._quietly(lambda: self._tracers[kind].meet(index))  # noqa: B023  runs at once
                return

    def _kind_of(self, array_type: type) -> str:
        if array_type not in self._met:
            found = registry.backend_of(array_type)
            self._met[array_type] = found.kind if found is not None and self.covers(found) else ""
        return self._met[array_type]

    def note(self, occurrence: Occurrence) -> None:
        """Let the tracer learn the stream that `occurrence` names."""
        kind, _, index = occurrence.device.partition(":")
        tracer = self._tracers.get(kind)
        if tracer is not None and occurrence.event in _OF_STREAM:
            self._quietly(lambda: tracer.meet(int(index), occurrence.stream))

    def read(self, moments: Sequence[Moment], threads: Mapping[int, int]) -> list[Moment]:
        """Wait for the devices, and return `moments` with the traced work. Copies get their traced times.

        Parameters
        ----------
        threads : mapping
            From the low 32 bits of a thread's ident to its number.
        """
        found: list[Moment] = []
        for kind, tracer in self._tracers.items():
            backend = self._backends[kind]
            for index in range(backend.count()):
                self._quietly(lambda: backend.synchronize(index))  # noqa: B023  runs at once
            work = self._quietly(tracer.stop)
            self.missed += tracer.missed
            found += _placed(kind, work, moments, threads)
        replaced = {id(moment) for moment in found}
        return [*(one for one in moments if id(one) not in replaced), *found]


def _placed(
    kind: str, work: Iterable[TracedWork], moments: Sequence[Moment], threads: Mapping[int, int]
) -> list[Moment]:
    """Return a moment for each piece of `work`. A copy that `moments` holds already keeps its moment."""
    spans, copies = _Spans(moments), _Copies(kind, moments)
    numbers = count(-2, -1)
    made = []
    for one in sorted(work, key=lambda one: one.called):
        thread = threads.get(one.thread, 0)
        where, stream = f"{kind}:{one.device_index}", max(one.stream, 0)
        times = one.begin, one.end
        occurrence = Occurrence(one.event, where, 0, stream, one.nbytes, one.name, *times, lane=one.lane)
        moment = copies.claim(thread, one) if one.event == "copied" else None
        if moment is None:
            moment = Moment(one.event, one.name, next(numbers), spans.around(thread, one.called), thread, *times)
        elif moment.occurrence is not None:
            occurrence = occurrence._replace(name=moment.occurrence.name)
        moment.occurrence = occurrence
        made.append(moment)
    return made


class _Spans:
    """The spans of each thread, searchable by time."""

    def __init__(self, moments: Iterable[Moment]) -> None:
        self._by_number = {moment.number: moment for moment in moments if moment.kind in _OPEN}
        self._of_thread: dict[int, list[Moment]] = {}
        for moment in self._by_number.values():
            self._of_thread.setdefault(moment.thread, []).append(moment)
        self._begins = {thread: [one.begin for one in opened] for thread, opened in self._of_thread.items()}

    def around(self, thread: int, time: float) -> int:
        """Return the number of the innermost span that was open on `thread` at `time`, or -1."""
        place = bisect_right(self._begins.get(thread, []), time) - 1
        if place < 0:
            return -1
        found: Moment | None = self._of_thread[thread][place]
        while found is not None and found.end != OPEN and found.end < time:
            found = self._by_number.get(found.parent)
        return -1 if found is None else found.number


class _Copies:
    """The copies that the recorder saw, by thread. It sees a copy after the call that launched it."""

    def __init__(self, kind: str, moments: Iterable[Moment]) -> None:
        self._of_thread: dict[int, deque[tuple[int, Moment]]] = {}
        for moment in moments:
            seen = moment.occurrence
            if moment.kind == "copied" and seen is not None and seen.device.partition(":")[0] == kind:
                self._of_thread.setdefault(moment.thread, deque()).append((seen.nbytes, moment))

    def claim(self, thread: int, work: TracedWork) -> Moment | None:
        """Return the first copy of the same size that was seen after the host launched `work`, or None.

        Each copy is returned once.
        """
        copies = self._of_thread.get(thread, deque())
        for place, (nbytes, moment) in enumerate(copies):
            if moment.begin >= work.called and nbytes == work.nbytes:
                del copies[place]
                return moment
        return None
