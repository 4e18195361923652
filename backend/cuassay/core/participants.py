"""Participants in captures: state that must change between two replays of the same work.

An example is a random-number generator. During a capture its kernels read their offset from device memory, and before
each replay a new offset is written there. The capture knows only this protocol; a participant registers with `join`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cuassay.core.device import Device

__all__ = ["Participant", "join", "participants"]

#: Called before each replay, in the replaying thread, while the replay's stream is current.
Prologue = Callable[[], None]


class Participant(Protocol):
    """Notified of every capture on the device kind that it joined. `capture` is any object, compared by identity."""

    def capture_begin(self, capture: object, device: Device) -> None:
        """Called when this thread begins to capture on `device`."""

    def capture_end(self, capture: object, device: Device) -> Prologue | None:
        """Called when the capture ends. Returns what must be called before each replay, or None."""

    def capture_forget(self, capture: object, device: Device) -> None:
        """Called once for each begin, when the capture is reset or failed: drop what is kept for it."""


_JOINED: dict[str, list[Participant]] = {}


def join(kind: str, participant: Participant) -> None:
    """Notify `participant` of every later capture on devices of `kind`; a second call changes nothing."""
    joined = _JOINED.setdefault(kind, [])
    if not any(known is participant for known in joined):
        joined.append(participant)


def participants(kind: str) -> tuple[Participant, ...]:
    """Return the participants in captures on devices of `kind`, in the order in which they joined."""
    return tuple(_JOINED.get(kind, ()))
