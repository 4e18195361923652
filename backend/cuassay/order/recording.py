"""What a capture records of order and accesses, to be entered again at each replay of its graph."""

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
    """One launch that was recorded; of each array the block that it lay in then, None where that is not known."""

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


#: Enters a launch of a replay on a queue.
Enter = Callable[[Queue, Launch], None]


@dataclass(eq=False)
class Recording:
    """The work of one graph.

    Attributes
    ----------
    captured : list of Queue
        The queues that are captured, by lane; none once the capture is over.
    bodies : list
        For each conditional body that is open: the queue whose work it is.
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
        """Work of `queue` is recorded from here."""
        queue.capture = self
        self.captured.append(queue)
        self._lanes = len(self.captured)

    def leave(self) -> None:
        """The capture is over."""
        for queue in [*self.captured, *(queue for queue, _ in self.bodies)]:
            queue.capture = None
        self.captured, self.bodies = [], []

    def enter_body(self, queue: Queue) -> None:
        """Work of `queue` is the body of a conditional node, in the order of the lane that the capture began on."""
        if queue.capture is None:
            queue.capture = self
            self.bodies.append((queue, 0))

    def leave_body(self) -> None:
        """The body that was entered last is over."""
        if self.bodies:
            queue, _ = self.bodies.pop()
            queue.capture = None

    def lane_of(self, queue: Queue) -> int:
        """The lane that `queue` is captured as."""
        known = {id(one): lane for lane, one in enumerate(self.captured)}
        known.update((id(one), lane) for one, lane in self.bodies)
        return known[id(queue)]

    def add(self, queue: Queue, name: str, site: Site, accesses: Sequence[tuple[Extent, bool, Block | None]]) -> None:
        """A launch of `queue`."""
        self._nodes.append(Launch(self.lane_of(queue), name, site, tuple(accesses)))

    def record(self, queue: Queue) -> Marker:
        """An event is recorded on `queue`."""
        marker = Marker(self)
        self._nodes.append(_Record(self.lane_of(queue), marker))
        return marker

    def wait(self, queue: Queue, marker: Marker) -> None:
        """`queue`, which joins the capture if it was outside, waits for an event of it; of one that is over, not."""
        if not self.captured:
            return
        if queue.capture is None:
            self.enter(queue)
        if queue.capture is self:
            self._nodes.append(_Wait(self.lane_of(queue), marker))

    def replay(self, queue: Queue, branch: Callable[[str], Queue], enter: Enter) -> None:
        """Give the work to `queue`, and to a queue of the graph's own for each stream that joined."""
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
        for one in self._branches:  # a replay ends with all of its branches
            queue.waits(one.clock, 0.0)
        self._last = dict(queue.clock)
