"""Record the states that generators hand out, so that a computation can be repeated with the same random numbers.

`Generator.take` calls this module. States are pure values, so nothing needs to be restored afterwards, and a repetition
may be captured.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cuassay.core.device import Device
from cuassay.core.recordings import DrawState
from cuassay.errors import StateError

__all__ = ["Drawn", "is_watched", "recorded", "repeated", "taken"]

#: A device, and a state that was handed out for it.
Drawn = tuple[Device, DrawState]


class _Repetition:
    def __init__(self, states: Sequence[Drawn]) -> None:
        self._states = states
        self._count = 0

    def take(self, device: Device) -> DrawState:
        place, self._count = self._count, self._count + 1
        if place >= len(self._states) or self._states[place][0] != device:
            known = f"on {self._states[place][0]}" if place < len(self._states) else f"fewer than {self._count}"
            raise StateError(
                f"a repeated computation draws random numbers for the {self._count}. time, on {device}; the first time "
                f"that was {known}; let the function do the same each time it is called"
            )
        return self._states[place][1]

    def finish(self) -> None:
        if self._count != len(self._states):
            raise StateError(
                f"a repeated computation drew random numbers {self._count} times, the first time {len(self._states)} "
                "times; let the function do the same each time it is called"
            )


class _Watchers(threading.local):
    """The recordings and repetitions that are active in this thread, outermost first."""

    stack: tuple[list[Drawn] | _Repetition, ...] = ()


_watchers = _Watchers()


@contextmanager
def _watched(watcher: list[Drawn] | _Repetition) -> Iterator[None]:
    former = _watchers.stack
    _watchers.stack = (*former, watcher)
    try:
        yield
    finally:
        _watchers.stack = former


@contextmanager
def recorded() -> Iterator[list[Drawn]]:
    """Yield a list to which this thread's draws inside the block are added."""
    states: list[Drawn] = []
    with _watched(states):
        yield states


@contextmanager
def repeated(states: Sequence[Drawn]) -> Iterator[None]:
    """Make this thread's draws inside the block return `states` in order, without advancing generators.

    Raises
    ------
    StateError
        If the number of draws differs from that of `states`, or a draw is for another device.
    """
    repetition = _Repetition(states)
    with _watched(repetition):
        yield
    repetition.finish()


def is_watched() -> bool:
    """Return whether draws of this thread are recorded or repeated."""
    return bool(_watchers.stack)


def taken(device: Device, take: Callable[[], DrawState]) -> DrawState:
    """Return the next state for `device`: from the innermost repetition if there is one, else from `take`.

    The state is added to every recording inside that repetition.
    """
    notes = []
    for watcher in reversed(_watchers.stack):
        if isinstance(watcher, _Repetition):
            state = watcher.take(device)
            break
        notes.append(watcher)
    else:
        state = take()
    for note in notes:
        note.append((device, state))
    return state
