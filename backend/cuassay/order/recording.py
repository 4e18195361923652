"""Record the order and accesses of a capture, so that each replay of its graph can be checked like live work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cuassay.order.clock import Clock, Queue
from cuassay.order.extents import Extent
from cuassay.order.memory import Block
from cuassay.order.sites import Site

__all__ = ["Launch", "Marker", "Recording"]


class Launch(NamedTuple):
    """One recorded launch. Each access holds the block that contained the array during capture, or None if unknown."""

    lane: int
    name: str
    site: Site
    accesses: tuple[tuple[Extent, bool, Block | None], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Marker:
    """An event recorded inside a capture."""

    recording: Recording


class _Record(NamedTuple):
    lane: int
    marker: Marker


class _Wait(NamedTuple):
    lane: int
    marker: Marker


#: Checks a replayed launch on a queue.
Enter = Callable[[Queue, Launch], None]


@dataclass(eq=False)
class Recording:
    """The recorded work of one graph.

    Attributes
    ----------
    captured : list of Queue
        The queues being captured, by lane; empty after the capture.
    bodies : list
        For each open conditional body: the queue that records it, and its lane.
    is_complete : bool
        Whether all of the work was seen.
    """

    origin: str
    captured: list[Queue] = field(default_factory=list)
    bodies: list[tuple[Queue, int]] = field(default_factory=list)
    is_complete: bool = True
    _nodes: list[Launch | _Record | _Wait] = field(default_factory=list)
    _lanes: int = 0
    _branches: list[Queue] = field(default_factory=list)
    _last: Clock = field(default_factory=dict)

    def enter(self, queue: Queue) -> None:
        """Start to record the work of `queue`."""
        queue.capture = self
        self.captured.append(queue)
        self._lanes = len(self.captured)

    def leave(self) -> None:
        """End the capture."""
        for queue in [*self.captured, *(queue for queue, _ in self.bodies)]:
            queue.capture = None
        self.captured, self.bodies = [], []

    def enter_body(self, queue: Queue) -> None:
        """Record work of `queue` as the body of a conditional node, in the order of the capture's first lane."""
        if queue.capture is None:
            queue.capture = self
            self.bodies.append((queue, 0))

    def leave_body(self) -> None:
        """End the body that was entered last."""
        if self.bodies:
            queue, _ = self.bodies.pop()
            queue.capture = None

    def lane_of(self, queue: Queue) -> int:
        """Return the lane of a queue that is being captured."""
        known = {id(one): lane for lane, one in enumerate(self.captured)}
        known.update((id(one), lane) for one, lane in self.bodies)
        return known[id(queue)]

    def add(self, queue: Queue, name: str, site: Site, accesses: Sequence[tuple[Extent, bool, Block | None]]) -> None:
        """Record a launch of `queue`."""
        self._nodes.append(Launch(self.lane_of(queue), name, site, tuple(accesses)))

    def record(self, queue: Queue) -> Marker:
        """Record an event on `queue`."""
        marker = Marker(self)
        self._nodes.append(_Record(self.lane_of(queue), marker))
        return marker

    def wait(self, queue: Queue, marker: Marker) -> None:
        """Record that `queue` waits for an event of this capture. A queue outside the capture joins it.

        Nothing is recorded if the capture has ended.
        """
        if not self.captured:
            return
        if queue.capture is None:
            self.enter(queue)
        if queue.capture is self:
            self._nodes.append(_Wait(self.lane_of(queue), marker))

    def replay(self, queue: Queue, branch: Callable[[str], Queue], enter: Enter) -> None:
        """Launch the work on `queue`, and on one private queue for each further stream of the capture."""
        while len(self._branches) < self._lanes - 1:
            self._branches.append(branch(f"{self.origin}.branch{len(self._branches) + 1}"))
        queue.waits(self._last, 0.0)
        lanes = [queue, *self._branches]
        reached: dict[int, Clock] = {}
        for node in self._nodes:
            lane = lanes[node.lane]
            if isinstance(node, Launch):
                enter(lane, node)
            elif isinstance(node, _Record):
                reached[id(node.marker)] = dict(lane.clock)
            elif id(node.marker) in reached:
                lane.waits(reached[id(node.marker)], 0.0)
        for one in self._branches:  # a replay is finished when all of its branches are
            queue.waits(one.clock, 0.0)
        self._last = dict(queue.clock)
