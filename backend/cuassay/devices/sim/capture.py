"""Graphs of the simulated device: work submitted to a stream is recorded, and replayed as a whole.

Nothing runs while a stream is captured, and its outputs stay poisoned. A stream joins the capture by waiting for an
event recorded inside it, and must be waited for before the end. A replay submits the recorded launches to the current
stream, and to a queue of the graph for each stream that joined, with the recorded waits. So a missing wait is a race,
as it is outside of graphs.

Arrays made inside are in the graph's pool (`graph_pools`). Arrays made outside must be kept by their owner: a replay
that would access memory freed since then is rejected, where a real device would compute on somebody else's numbers.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cuassay.core.graph_pools import PoolId, graph_pool_handle
from cuassay.core.graphs import Graph, GraphStatistics
from cuassay.devices.sim import graph_pools
from cuassay.devices.sim.device import Owner, SimDevice, tell_accesses
from cuassay.devices.sim.machine import OPEN
from cuassay.devices.sim.memory import Block
from cuassay.devices.sim.stream import SimStream, as_stream
from cuassay.errors import CaptureError
from cuassay.order.accesses import Span
from cuassay.order.clock import Clock, Queue, join
from cuassay.order.sites import call_site

__all__ = ["Marker", "SimCapture"]


@dataclass(frozen=True, slots=True, eq=False)
class Marker:
    """An event recorded inside a capture: what it waits for, by lane."""

    capture: SimCapture
    lane: int
    clock: Clock = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Touched:
    """An array as a launch saw it, not kept alive; `block` is None if it is the pool's, or has no elements."""

    raw: np.ndarray[Any, Any]
    span: Span
    owner: Owner
    block: weakref.ref[Block] | None


@dataclass(frozen=True, slots=True)
class _Launch:
    lane: int
    name: str
    accesses: Sequence[tuple[_Touched, bool]]
    work: Callable[[], object]
    site: tuple[str, int]
    flops: float
    event: str


@dataclass(frozen=True, slots=True)
class _Record:
    lane: int
    marker: Marker


@dataclass(frozen=True, slots=True)
class _Wait:
    lane: int
    marker: Marker


@dataclass(frozen=True, slots=True)
class _Branch:
    """A conditional node: its `nodes` run once, or repeatedly, while the value that `test` reads is true."""

    lane: int
    kind: str
    test: _Launch
    predicate: np.ndarray[Any, Any]
    nodes: list[_Node]


_Node = _Launch | _Record | _Wait | _Branch


class SimCapture(Graph):
    """Work captured on a simulated device; see `cuassay.core.graphs.Graph`."""

    def __init__(self, sim_device: SimDevice, *, keep_graph: bool = False) -> None:
        super().__init__(sim_device.device, keep_graph=keep_graph)
        self.sim_device = sim_device
        self.mode = "global"
        self._broken_by = ""
        self._thread = 0
        self._nodes: list[_Node] = []
        self._recording = self._nodes
        self._captured: list[Queue] = []  # by lane number, while capturing
        self._clocks: list[Clock] = []  # by lane number: what it waits for, by lane
        self._lanes: list[Queue] = []  # by lane number minus 1: the queue of replays
        self._pool: graph_pools.Pool | None = None
        self._former: tuple[SimStream | None] | None = None
        self._last: tuple[Clock, float] = {}, 0.0

    def __repr__(self) -> str:
        launches = sum(isinstance(node, _Launch) for node in self._nodes)
        return f"SimCapture({self.device}, {self._state}, {launches} launches)"

    def forbids(self) -> bool:
        """Whether this thread must not wait for the device during the capture, not even for other streams."""
        return self.mode == "global" or (self.mode == "thread_local" and self._thread == threading.get_ident())

    def break_by(self, what: str) -> None:
        """Record that the call `what` was rejected; a driver would have invalidated the capture."""
        self._broken_by = self._broken_by or what

    @property
    def is_broken(self) -> bool:
        """Whether a call has already broken the open capture."""
        return bool(self._broken_by)

    @property
    def label(self) -> str:
        """The stream that the capture began on."""
        return self._captured[0].label

    # -------------------------------------------------------------------------------------------- begin and end

    def _open(self, stream: SimStream | None, pool: PoolId | None, mode: str) -> None:
        machine = self.sim_device.machine
        with machine.working():
            queue = machine.current_queue(self.sim_device) if stream is None else as_stream(stream).queue
            if queue is self.sim_device.default:
                raise CaptureError("the default stream cannot be captured, as in CUDA; use one from new_stream")
            if queue.capture is not None:
                raise CaptureError(f"{queue.label} is being captured already; end that capture first")
            self.mode, self._thread = mode, threading.get_ident()
            self._pool = graph_pools.pool(self.sim_device, pool or graph_pool_handle())
            self._pool.tidy()
            self._nodes = self._recording = []
            self._clocks = []
            self._enter(queue)
            OPEN.add(self)
            if stream is not None:
                self._former = (machine.set_current(self.sim_device.index, stream),)

    def _close(self) -> None:
        with self.sim_device.machine.working():
            unjoined = [queue.label for lane, queue in enumerate(self._captured) if not self._joined(lane)]
            origin, broken_by = self.label, self._broken_by
            self._leave()
            if broken_by:
                raise CaptureError(
                    f"the work on {origin} between begin and end cannot be captured: {broken_by} was rejected and its "
                    "error was caught; call it before or after"
                )
            if unjoined:
                raise CaptureError(
                    f"the capture on {origin} ended with work of {', '.join(unjoined)} that it does not wait for; "
                    f"let {origin} wait for {'them' if len(unjoined) > 1 else 'it'} before end()"
                )
            branches = range(1, len(self._clocks))
            self._lanes = [self.sim_device.new_queue(f"{origin}.branch{lane}") for lane in branches]

    def _abandon(self) -> None:
        with self.sim_device.machine.working():
            self._leave()

    def _discard(self) -> None:
        with self.sim_device.machine.working():
            self._nodes = self._recording = []
            for queue in self._lanes:
                self.sim_device.forget_queue(queue)
            self._lanes, self._clocks, self._pool = [], [], None

    def _enter(self, queue: Queue) -> None:
        queue.capture = weakref.proxy(self)  # a capture that is dropped while it is open also ends
        self._captured.append(queue)
        self._clocks.append({})

    def _leave(self) -> None:
        for queue in self._captured:
            queue.capture = None
        self._captured, self._broken_by = [], ""
        OPEN.discard(self)
        if self._former is not None:
            (stream,), self._former = self._former, None
            self.sim_device.machine.set_current(self.sim_device.index, stream)

    def _joined(self, lane: int) -> bool:
        return self._clocks[0].get(lane, 0) >= self._clocks[lane].get(lane, 0)

    # -------------------------------------------------------------------------------------------- recording

    def allocate(self, nbytes: int, queue: Queue) -> Block:
        """Allocate memory for an array that captured work of `queue` makes."""
        if self._pool is None:  # a queue has a capture only while the capture has a pool
            raise CaptureError(f"{self!r} is not capturing; begin first")
        return self._pool.take(nbytes, queue, self)

    def clock_of(self, queue: Queue) -> Clock:
        """Return what later work of `queue` waits for within the capture; nothing if it has no part in it."""
        return dict(self._clocks[self._captured.index(queue)]) if queue in self._captured else {}

    def comes_after(self, queue: Queue, clock: Clock) -> bool:
        """Whether later work of `queue` waits for `clock`."""
        own = self._clocks[self._captured.index(queue)]
        return all(own.get(lane, 0) >= epoch for lane, epoch in clock.items())

    def add(
        self,
        queue: Queue,
        name: str,
        accesses: Sequence[tuple[Any, bool]],
        work: Callable[[], object],
        flops: float = 0.0,
        event: str = "launched",
    ) -> None:
        """Record one launch of `queue`, with the arrays it accesses and whether it writes each.

        Replays of it take the time of `flops`, and report `event` to watchers.
        """
        self._recording.append(self._launch_node(queue, name, accesses, work, flops, event))

    def _launch_node(
        self,
        queue: Queue,
        name: str,
        accesses: Sequence[tuple[Any, bool]],
        work: Callable[[], object],
        flops: float = 0.0,
        event: str = "launched",
    ) -> _Launch:
        lane = self._captured.index(queue)
        self._clocks[lane][lane] = self._clocks[lane].get(lane, 0) + 1
        touched = [(self._touched(array), write) for array, write in accesses]
        tell_accesses(queue, name, touched)
        return _Launch(lane, name, touched, work, call_site(), flops, event)

    def _touched(self, array: Any) -> _Touched:
        own = array.block is None or (self._pool is not None and self._pool.owns(array.block))
        return _Touched(array.raw, array.span, array.owner, None if own else weakref.ref(array.block))

    def record(self, queue: Queue) -> Marker:
        """Record an event on `queue`; return the marker that waiting for it needs."""
        lane = self._captured.index(queue)
        marker = Marker(self, lane, dict(self._clocks[lane]))
        self._recording.append(_Record(lane, marker))
        return marker

    def fork(self, queue: Queue, marker: Marker) -> None:
        """Make `queue` wait for `marker`; it joins the capture if it was outside.

        Raises
        ------
        CaptureError
            If the capture has ended, or `queue` is part of another one.
        """
        if not self._captured:
            raise CaptureError(f"{queue.label} cannot wait for an event of a capture that has ended; record it again")
        if queue.capture is None:
            self._enter(queue)
        elif queue not in self._captured:
            raise CaptureError(f"{queue.label} is part of another capture; two captures cannot wait for each other")
        lane = self._captured.index(queue)
        join(self._clocks[lane], marker.clock)
        self._recording.append(_Wait(lane, marker))

    @contextmanager
    def _body(self, kind: str, predicate: Any) -> Iterator[None]:
        self.sim_device.require("conditional_graphs", "call both branches")
        machine = self.sim_device.machine
        queue = machine.current_queue(self.sim_device)
        with machine.working():
            test = self._launch_node(queue, f"{kind}_node", [(predicate, False)], lambda: None)
            branch = _Branch(test.lane, kind, test, predicate.raw, [])
            self._recording.append(branch)
        outer, self._recording = self._recording, branch.nodes
        try:
            yield
        finally:
            self._recording = outer

    # -------------------------------------------------------------------------------------------- replaying

    def _make_executable(self) -> None:
        """Do nothing: the list of nodes is executable."""

    def _may_launch(self) -> None:
        queue = self.sim_device.machine.current_queue(self.sim_device)
        if queue.capture is not None:
            raise CaptureError(
                f"{self!r} cannot be replayed into a capture ({queue.label} is being captured); "
                "replay it outside, or capture its work again"
            )

    def _launch(self) -> None:
        machine = self.sim_device.machine
        with machine.working():
            queue = machine.current_queue(self.sim_device)
            lanes = [queue, *self._lanes]
            queue.waits(*self._last)
            self._run(self._nodes, lanes, {})
            if self._pool is not None:
                self._pool.used_by(lanes)
            self._last = dict(queue.clock), queue.finished

    def _run(self, nodes: Sequence[_Node], lanes: Sequence[Queue], reached: dict[int, tuple[Clock, float]]) -> None:
        for node in nodes:
            queue = lanes[node.lane]
            if isinstance(node, _Launch):
                self._run_launch(node, queue)
            elif isinstance(node, _Record):
                reached[id(node.marker)] = dict(queue.clock), queue.finished
            elif isinstance(node, _Wait):
                queue.waits(*reached[id(node.marker)])
            else:
                self._run_branch(node, lanes, reached)

    def _run_branch(self, branch: _Branch, lanes: Sequence[Queue], reached: dict[int, tuple[Clock, float]]) -> None:
        self._run_launch(branch.test, lanes[branch.lane])
        while branch.predicate.any():
            self._run(branch.nodes, lanes, reached)
            if branch.kind == "if":
                return
            self._run_launch(branch.test, lanes[branch.lane])

    def _run_launch(self, node: _Launch, queue: Queue) -> None:
        for array, write in node.accesses:
            if array.block is None:
                continue
            block = array.block()
            if block is None:
                verb, (file, line) = "writes" if write else "reads", node.site
                raise CaptureError(
                    f"{node.name}, captured at {file}:{line}, {verb} an array of {array.raw.shape} {array.raw.dtype} "
                    "that was dropped since; keep the arrays that a graph uses for as long as it is replayed"
                )
            block.used_by(queue)  # as the driver frees a graph's memory after its last replay
        self.sim_device.launch(queue, node.name, node.accesses, flops=node.flops, site=node.site, event=node.event)
        node.work()

    def current_lane(self) -> int:
        """See `cuassay.core.graphs.Graph`."""
        return self.sim_device.machine.current_queue(self.sim_device).number

    def _take_over(self, other: SimCapture) -> bool:
        same = _shape(self._nodes) == _shape(other._nodes)
        for queue in self._lanes:
            self.sim_device.forget_queue(queue)
        self._nodes, self._lanes, self._clocks, self._pool = other._nodes, other._lanes, other._clocks, other._pool
        other._nodes, other._lanes, other._clocks, other._pool = [], [], [], None
        other._recording = other._nodes
        return same

    # -------------------------------------------------------------------------------------------- looks

    def statistics(self) -> GraphStatistics:
        """Return the graph's state, nodes and memory; event records and waits do not count as nodes, as in CUDA."""
        nodes = sum(isinstance(node, (_Launch, _Branch)) for node in self._nodes)
        return GraphStatistics(self._state, nodes, 0 if self._pool is None else self._pool.nbytes)

    def _dump(self, path: Path) -> None:
        lines = [f'  n{place} [label="{_label(node)}"];' for place, node in enumerate(self._nodes)]
        last: dict[int, int] = {}
        for place, node in enumerate(self._nodes):
            if node.lane in last:
                lines.append(f"  n{last[node.lane]} -> n{place};")
            last[node.lane] = place
        path.write_text("\n".join(["digraph capture {", *lines, "}", ""]), encoding="utf-8")


def _label(node: _Node) -> str:
    if isinstance(node, _Launch):
        return f"{node.name} (lane {node.lane})"
    return f"{type(node).__name__.strip('_').lower()} (lane {node.lane})"


def _shape(nodes: Sequence[_Node]) -> list[Any]:
    """Return what an update in place must not change: kinds, names and lanes, in order."""
    return [
        (type(node), node.lane, getattr(node, "name", None), _shape(node.nodes) if isinstance(node, _Branch) else None)
        for node in nodes
    ]
