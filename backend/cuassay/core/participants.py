"""What takes part in every capture of a device: things that must change between two replays of the same work.

A random-number generator is the example: while a capture runs it draws from a place in device memory, and before each
replay that place gets a new offset. The capture knows only this protocol; who takes part says so with `join`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cuassay.core.device import Device

__all__ = ["Participant", "join", "participants"]

#: What a capture calls before each replay, on the thread and with the stream current that the replay is given to.
Prologue = Callable[[], None]


class Participant(Protocol):
    """Told of every capture of the kind of device it joined; `capture` is any object, compared by identity."""

    def capture_begin(self, capture: object, device: Device) -> None:
        """Work of this thread on `device` is recorded from here."""

    def capture_end(self, capture: object, device: Device) -> Prologue | None:
        """Recording ended; return what must happen before each replay, or None if nothing must."""

    def capture_forget(self, capture: object, device: Device) -> None:
        """The capture was reset, or failed: drop what is kept for it. Called once for each begin."""


_JOINED: dict[str, list[Participant]] = {}


def join(kind: str, participant: Participant) -> None:
    """Notify `participant` of every later capture on devices of `kind`; a second call changes nothing."""
    joined = _JOINED.setdefault(kind, [])
    if not any(known is participant for known in joined):
        joined.append(participant)


def participants(kind: str) -> tuple[Participant, ...]:
    """The participants in captures on devices of `kind`, in the order in which they joined."""
    return tuple(_JOINED.get(kind, ()))
