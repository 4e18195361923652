"""The order of work: vector clocks of queues and of the host.

Each queue (the inside of a stream) numbers its launches and knows, of every other queue, the last launch it waits for;
the host knows which launches it has seen finished. A launch comes after the host's call that made it, so what the host
has seen is ordered before every later launch, on every queue, and is forgotten.

Threads of the host share one host clock: their order among themselves is not looked at, so that a race
between two Python threads may be missed, and none is invented.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cuassay.core.device import Device

__all__ = ["Clock", "Host", "Queue", "join"]

#: Queue number to the last of its launches that is waited for.
Clock = dict[int, int]


def join(into: Clock, other: Mapping[int, int]) -> None:
    """Make `into` wait for all that `other` waits for."""
    for number, epoch in other.items():
        if into.get(number, 0) < epoch:
            into[number] = epoch


@dataclass(slots=True)
class Host:
    """What the host has seen finished, and its virtual time in seconds."""

    clock: Clock = field(default_factory=dict)
    now: float = 0.0

    def joins(self, clock: Mapping[int, int], finished: float) -> None:
        """The host waited for `clock`, which virtual time reaches at `finished`."""
        join(self.clock, clock)
        self.now = max(self.now, finished)


@dataclass(slots=True, eq=False)
class Queue:
    """One ordered queue of launches: what a stream is inside.

    Attributes
    ----------
    number : int
        Unique in the machine; `label` is how messages name it.
    clock : dict
        What the next launch waits for, its own former launches included.
    finished : float
        Virtual time at which everything launched so far is done, seconds.
    blocking : bool
        Ordered with the legacy default queue, as `cudaStreamCreate` makes them; ours are not.
    capture : object, optional
        What records this queue's launches now, as the owner of the queue has it.
    dropped : bool
        Its stream is gone, so that nothing follows what it was given.
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
        """How advice names it in code: ``stream3``."""
        return self.label.replace(" ", "")

    def launch(self, now: float, seconds: float) -> int:
        """Number the next launch, which the host makes at `now` and which takes `seconds`; gives its epoch."""
        epoch = self.clock[self.number] = self.epoch + 1
        self.finished = max(self.finished, now) + seconds
        return epoch

    def waits(self, clock: Mapping[int, int], finished: float) -> None:
        """Later launches come after `clock`, which virtual time reaches at `finished`."""
        join(self.clock, clock)
        self.finished = max(self.finished, finished)
