"""One simulated device: its memory, the log of accesses to it, its queues, and the only way to submit work.

Arrays, streams and captures use it to allocate, to launch and to wait. The machine's lock is held while work runs, so
that program order is one order for all threads.
"""

from __future__ import annotations

import gc
import math
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cuassay.core import watchers
from cuassay.core.callers import is_shipped
from cuassay.core.device import Device
from cuassay.core.round_robin import RoundRobin
from cuassay.core.watchers import Occurrence
from cuassay.devices.sim.memory import Arena, Block, aligned, poison
from cuassay.devices.sim.memory_source import SimSource
from cuassay.errors import CapabilityError, RaceError
from cuassay.memory import CachingAllocator
from cuassay.order.accesses import Access, AccessLog, Span
from cuassay.order.clock import Queue
from cuassay.order.extents import Extent
from cuassay.order.sites import Site, call_site

if TYPE_CHECKING:
    from cuassay.core.graph_pools import PoolId
    from cuassay.devices.sim.device_array import DeviceArray
    from cuassay.devices.sim.graph_pools import Pool
    from cuassay.devices.sim.machine import Machine

__all__ = ["HOST_CALL", "NOTES", "Accessed", "Owner", "SimDevice", "extent", "tell_accesses"]

#: In virtual seconds: the host time of a call, and the least device time of a launch.
HOST_CALL = 2e-6
LAUNCH = 3e-6

#: Called before each launch in this process with a description of the launch and its call site.
NOTES: list[Callable[[str], None]] = []


class Owner(Protocol):
    """The owner of an array's memory, with addresses from `base`: a device, or the machine's pinned host memory."""

    log: AccessLog
    base: int


class Accessed(Protocol):
    """An array that a launch reads or writes: of a device, in pinned memory, or as a graph recorded it."""

    @property
    def raw(self) -> np.ndarray[Any, Any]:
        """The memory, as a NumPy array."""

    @property
    def span(self) -> Span:
        """The bytes it occupies, as its owner's log counts them."""

    @property
    def owner(self) -> Owner:
        """The owner whose log records its accesses."""


def extent(array: Accessed) -> Extent:
    """Return where `array` is, in a sanitizer's terms."""
    raw, owner = array.raw, array.owner
    low = raw.__array_interface__["data"][0] - owner.base
    form = "offset {}" if owner.base else "address {:#x} of the host"
    return Extent(owner.log.memory, low, raw.shape, raw.strides, raw.dtype, array.span, form)


def tell_accesses(queue: Queue, name: str, touched: Iterable[tuple[Accessed, bool]]) -> None:
    """Report to watchers that want accesses what a launch accesses."""
    if watchers.wants_accesses():
        accesses = tuple((extent(array), write) for array, write in touched if array.raw.size)
        told = Occurrence("accessed", str(queue.device), 0, queue.number, name=name, lane=queue.label)
        watchers.tell(told._replace(accesses=accesses))


class SimDevice:
    """One device of a machine: its memory, the log of accesses to it, and its queues."""

    def __init__(self, machine: Machine, index: int, nbytes: int) -> None:
        self.machine = machine
        self.index = index
        self.device = Device("sim", index)
        self.arena = Arena(str(self.device), nbytes, machine.host)
        self.base = self.arena.base
        self.log = machine.log_of(str(self.device))
        self.queues: list[Queue] = []
        self.default = self.new_queue("stream 0")
        self._pools: dict[int, RoundRobin[Queue]] = {}
        self.allocator = CachingAllocator(SimSource(self), total=self.arena.total, name=str(self.device))
        self.graph_pools: weakref.WeakValueDictionary[PoolId, Pool] = weakref.WeakValueDictionary()
        self._freed: deque[Block] = deque()
        self._late: RaceError | None = None

    @property
    def is_watched(self) -> bool:
        """Whether watchers are told what happens here."""
        return bool(watchers.state.watchers) and not self.machine.is_hidden

    def new_queue(self, label: str = "", *, blocking: bool = False) -> Queue:
        """Make a queue; `blocking` queues are ordered with the default one."""
        number = self.machine.next_number()
        queue = Queue(number, label or f"stream {number}", self.device, blocking)
        self.queues.append(queue)
        if self.is_watched:
            watchers.tell(Occurrence("stream_made", str(self.device), number, number, name=queue.label))
        return queue

    def pooled_queue(self, priority: int) -> Queue:
        """Return one of the 32 queues of `priority`, in turn; queues that are being captured are skipped."""
        make, free = self.new_queue, lambda queue: queue.capture is None
        return self._pools.setdefault(priority, RoundRobin(make, usable=free)).take()

    def forget_queue(self, queue: Queue) -> None:
        """Mark the queue of a stream that is gone; it is removed when the host waits for the device."""
        queue.dropped = True

    @cached_property
    def namespace(self) -> Any:
        """The array namespace of the device: a single object, as a module is, so that it can be a dict's key."""
        return self.machine.types.namespace(self)

    def array(self, raw: np.ndarray[Any, Any], block: Block | None, span: Span | None = None) -> DeviceArray:
        """Wrap `raw`, which is in the arena, as an array of the device."""
        return self.machine.types.array(raw, self, block, span)

    def require(self, name: str, instead: str) -> None:
        """Raise `CapabilityError` unless the device has capability `name`; `instead` says what to do without it."""
        found = self.machine.answer(name)
        if not found:
            raise CapabilityError(f"{self.device}: no {name}: {found.reason}; {instead}")

    # ---------------------------------------------------------------------------------------------- allocation

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], queue: Queue
    ) -> tuple[np.ndarray[Any, Any], Block]:
        """Return a poisoned C-contiguous array of at least one byte, and its block."""
        self.machine.require_storage(self.device, dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        block = self.reserve(nbytes, queue) if queue.capture is None else queue.capture.allocate(nbytes, queue)
        self.arena.buffer[block.low : block.low + nbytes].fill(poison(dtype))
        return np.ndarray(shape, dtype, self.arena.buffer, block.low), block

    def reserve(self, nbytes: int, queue: Queue) -> Block:
        """Return a range of the arena, in the order of `queue`."""
        low = self._take(nbytes, queue)
        if self.is_watched:
            watchers.tell_memory("memory_taken", str(self.device), low, queue.number, aligned(nbytes))
        return Block(low, low + aligned(nbytes), queue, self.release)

    def _take(self, nbytes: int, queue: Queue) -> int:
        self.raise_late()
        low = self.arena.try_take(nbytes, queue)
        for _ in range(2) if low is None else ():
            self.wait_all()
            self.arena.merge()
            low = self.arena.try_take(nbytes, queue)
            if low is not None:
                break
            gc.collect()  # arrays in reference cycles, such as those a traceback holds
            self.settle()
        if low is None:
            raise self.arena.no_room(nbytes)
        return low

    def release(self, block: Block) -> None:
        """Free a block when the last array on it is gone; called at any time and in any thread."""
        if self.machine.is_lost:
            return
        self._freed.append(block)
        if self.machine.lock.acquire(blocking=False):
            try:
                if not self.machine.busy:
                    with self.machine:  # a block that is collected meanwhile is freed after this one
                        self.settle()
            finally:
                self.machine.lock.release()

    def settle(self) -> None:
        """Free the dropped blocks, each in the order of its queue; the machine is marked as working meanwhile."""
        while self._freed:
            self._give_back(self._freed.popleft())

    def _give_back(self, block: Block) -> None:
        span = Span(block.low, block.high, dense=True)
        after = {} if block.queue.epoch == 0 else {block.queue.number: block.queue.epoch}
        after |= {user.number: user.epoch for user in block.users}
        if not self.machine.finds_races:  # the log then does not tell whose work the queue waited for
            after |= block.queue.clock
        for old in self.log.users(span):
            after[old.queue.number] = max(after.get(old.queue.number, 0), old.epoch)
            ordered = block.queue.clock.get(old.queue.number, 0) >= old.epoch
            if not ordered and old.queue not in block.users:
                self._late = self._late or self._early_free(block, old)
        self.log.forget(span)
        self.arena.give_back(block.low, block.high, after)
        if self.is_watched:
            nbytes = block.high - block.low
            watchers.tell_memory("memory_returned", str(self.device), block.low, block.queue.number, nbytes)

    def _early_free(self, block: Block, old: Access) -> RaceError:
        owner, user, site = block.queue, old.queue, call_site()
        # An array that a user's function drops when it returns is dropped in the line of the harness that called the
        # function.
        where = "" if is_shipped(site[0]) else f" at {site[0]}:{site[1]}"
        return RaceError(
            f"{self.device}: early free{where} of {owner.label}'s memory, not ordered after the {old}; "
            f"the memory may be used again too soon: insert {owner.variable}.wait_stream({user.variable}) before the "
            f"array is dropped, or array.record_stream({user.variable})"
        )

    def raise_late(self) -> None:
        """Raise the early free found since the last call, once.

        Then continue as if the host had waited for the machine.
        """
        self.settle()
        if self._late is not None:
            late, self._late = self._late, None
            self.wait_all()
            raise late

    # ---------------------------------------------------------------------------------------------- order and time

    def launch(
        self,
        queue: Queue,
        name: str,
        accesses: Iterable[tuple[Accessed, bool]],
        *,
        flops: float = 0.0,
        site: Site | None = None,
        event: str = "launched",
    ) -> Site:
        """Submit one launch: its order, its time, and its accesses (each array, and whether it is written).

        Return the call site, for `also`. Watchers are told `event`: ``"launched"`` or ``"copied"``.

        Raises
        ------
        RaceError
            If an access is not ordered after one it conflicts with; the host then counts as having waited.
        """
        machine, is_replay = self.machine, site is not None
        site = site or call_site()
        for note in NOTES:
            note(f"{name} on {self.device}, at {site[0].rpartition(os.sep)[2]}:{site[1]}")
        self.raise_late()
        self._legacy_order(queue)
        touched = list(accesses)
        nbytes = sum(array.raw.nbytes for array, _ in touched)
        machine.host.now += HOST_CALL
        seconds = LAUNCH + machine.profile.seconds(nbytes, flops)
        epoch = queue.launch(machine.host.now, seconds)
        if self.is_watched:
            line = f"{site[0].rpartition(os.sep)[2]}:{site[1]}"
            begin, end = queue.finished - seconds, queue.finished
            told = Occurrence(event, str(self.device), 0, queue.number, nbytes, name, begin, end, line, queue.label)
            watchers.tell(told)
            if not is_replay:
                tell_accesses(queue, name, touched)
        try:
            for array, write in touched:
                if array.raw.size:
                    new = Access(queue, epoch, write, array.span, array.raw, name, site)
                    array.owner.log.add(new)
        except RaceError:
            machine.wait_all()  # each race is reported once: later work is judged as if the wait existed
            raise
        return site

    def also(self, queue: Queue, name: str, array: Accessed, site: Site) -> None:
        """Record that the last launch also made `array`, in memory that nothing else uses."""
        if array.raw.size:
            if self.is_watched:
                tell_accesses(queue, name, [(array, True)])
            self.log.add(Access(queue, queue.epoch, True, array.span, array.raw, name, site))

    def _legacy_order(self, queue: Queue) -> None:
        """Order the legacy default stream and blocking streams, which wait for each other in CUDA."""
        if queue is self.default:
            for other in self.queues:
                if other.blocking:
                    queue.waits(other.clock, other.finished)
        elif queue.blocking:
            queue.waits(self.default.clock, self.default.finished)

    def wait_all(self) -> None:
        """Make the host wait for all queues of this device."""
        for queue in self.queues:
            self.machine.host.joins(queue.clock, queue.finished)
        self.queues = [queue for queue in self.queues if not queue.dropped]
        self.log.clear()

    def host_waits(self, queue: Queue) -> None:
        """Make the host wait for the work of `queue`."""
        begin = self.machine.host.now
        self.machine.host.joins(queue.clock, queue.finished)
        if self.is_watched:
            watchers.tell(self.waited("stream_synchronized", queue.number, begin))

    def waited(self, event: str, subject: int, begin: float) -> Occurrence:
        """Return the occurrence of a host wait from `begin` until now, for watchers."""
        return Occurrence(event, str(self.device), subject, begin=begin, end=self.machine.host.now)

    def capturing(self) -> bool:
        """Whether any queue of this device is being captured."""
        return any(queue.capture is not None for queue in self.queues)
