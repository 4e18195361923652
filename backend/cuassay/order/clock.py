"""The order of work: vector clocks of queues and of the host.

Each queue (the implementation of a stream) numbers its launches. For every other queue it knows the last launch that it
waits for. The host knows which launches it has seen finished. A launch comes after the host call that made it, so work
that the host has seen finished is ordered before every later launch on every queue and can be forgotten.

All host threads share one host clock. Their order relative to each other is not tracked, so a race between two Python
threads may be missed, but no false race is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cuassay.core.device import Device

__all__ = ["Clock", "Host", "Queue", "join"]

#: From a queue's number to the last of its launches that is waited for.
Clock = dict[int, int]


def join(into: Clock, other: Mapping[int, int]) -> None:
    """Make `into` wait for everything that `other` waits for."""
    for number, epoch in other.items():
        if into.get(number, 0) < epoch:
            into[number] = epoch


@dataclass(slots=True)
class Host:
    """The launches that the host has seen finished, and its virtual time in seconds."""

    clock: Clock = field(default_factory=dict)
    now: float = 0.0

    def joins(self, clock: Mapping[int, int], finished: float) -> None:
        """Note that the host waited for `clock`, which is reached at virtual time `finished`."""
        join(self.clock, clock)
        self.now = max(self.now, finished)


@dataclass(slots=True, eq=False)
class Queue:
    """One ordered queue of launches, which implements a stream.

    Attributes
    ----------
    number : int
        Unique among all queues of the machine.
    label : str
        The name of the queue in messages.
    clock : dict
        What the next launch waits for, including earlier launches of this queue.
    finished : float
        The virtual time in seconds at which everything launched so far is done.
    blocking : bool
        Whether it synchronizes with the legacy default stream, as streams of `cudaStreamCreate` do. Ours do not.
    capture : object, optional
        The capture that records this queue's launches now. Its type is up to the owner of the queue.
    dropped : bool
        Whether its stream was destroyed, so that nothing more will be launched on it.
    """

    number: int
    label: str
    device: Device
    blocking: bool = False
    clock: Clock = field(default_factory=dict)
    finished: float = 0.0
    capture: Any = None
    dropped: bool = False

    @property
    def epoch(self) -> int:
        """The number of the last launch."""
        return self.clock.get(self.number, 0)

    @property
    def variable(self) -> str:
        """The name of the queue in code that a message suggests: ``stream3``."""
        return self.label.replace(" ", "")

    def launch(self, now: float, seconds: float) -> int:
        """Number the next launch, which the host makes at `now` and which takes `seconds`. Returns its epoch."""
        epoch = self.clock[self.number] = self.epoch + 1
        self.finished = max(self.finished, now) + seconds
        return epoch

    def waits(self, clock: Mapping[int, int], finished: float) -> None:
        """Order later launches after `clock`, which is reached at virtual time `finished`."""
        join(self.clock, clock)
        self.finished = max(self.finished, finished)
