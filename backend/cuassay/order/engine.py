"""Find races and early frees from a program's launches, events, waits, allocations, captures and replays.

The engine knows streams, events and graphs by number and arrays by `Extent`, so it works for any kind of device and
also without one. After it reports an error it assumes that the host has waited for everything, so that later work is
checked as if the missing wait had been there.

What the queue that is ahead of all others does cannot be an error, so it is only noted; see `journal`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, count

from cuassay.core.device import Device
from cuassay.errors import RaceError
from cuassay.order.accesses import Access, AccessLog, Span
from cuassay.order.clock import Clock, Host, Queue
from cuassay.order.early_frees import early_free, replayed_free
from cuassay.order.extents import Extent
from cuassay.order.journal import GIVEN_BACK, LAUNCHED, MOST_ENTRIES, TAKEN, Journal, Traits
from cuassay.order.memory import Block, Blocks, Seen
from cuassay.order.recording import Launch, Marker, Recording
from cuassay.order.sites import Site, call_site

__all__ = ["Engine"]

_UNTOLD = "accesses of memory whose allocator does not report when it is freed"


class Engine:
    """The order of one process's work on all devices. Two threads must not use it at the same time.

    Attributes
    ----------
    found : list of str
        The messages of the errors raised so far.
    is_quiet : bool
        Whether errors are neither raised nor recorded.
    journal : Journal
        What the queue that is ahead has done; callers may add allocations and frees of its memory themselves.
    """

    def __init__(self) -> None:
        self._unseen: Counter[str] = Counter()
        self.found: list[str] = []
        self.is_quiet = False
        self._host = Host()
        self._numbers = count(1)
        self._queues: dict[tuple[Device, int], Queue] = {}
        self._branches: dict[Device, list[Queue]] = {}
        self._blocking: dict[Device, list[Queue]] = {}
        self._events: dict[tuple[str, int], Clock | Marker] = {}
        self._logs: dict[str, AccessLog] = {}
        self._blocks: dict[str, Blocks] = {}
        self._graphs: dict[int, Recording] = {}
        self._late: RaceError | None = None
        self.journal = Journal(self._host, self._blocks, self._logs, self._enter_elsewhere, self._give_back)

    def __len__(self) -> int:
        """How many accesses a later launch could still race with."""
        self.journal.enter()
        return sum(map(len, self._logs.values())) + sum(sum(map(len, blocks)) for blocks in self._blocks.values())

    @property
    def unseen(self) -> Counter[str]:
        """The number of accesses and replays that could not be checked, by reason."""
        self.journal.enter()
        return self._unseen

    # -------------------------------------------------------------------------------------------- queues

    def queue(self, device: Device, stream: int, label: str = "", *, blocking: bool = False) -> Queue:
        """Return the queue of stream `stream` on `device`; an unknown stream gets a new queue."""
        found = self._queues.get((device, stream))
        if found is None:
            label = label or f"stream {stream}"
            found = self._queues[device, stream] = Queue(next(self._numbers), label, device, blocking)
            if blocking:
                self._blocking.setdefault(device, []).append(found)
        return found

    def knows(self, device: Device, stream: int) -> bool:
        """Return whether the stream already has a queue."""
        return (device, stream) in self._queues

    def _of(self, device: Device) -> list[Queue]:
        return [queue for (where, _), queue in self._queues.items() if where == device] + self._branches.get(device, [])

    def _legacy_order(self, queue: Queue) -> None:
        """Let the legacy default stream and blocking streams wait for each other, as CUDA does."""
        if not self._blocking:
            return
        default = self._queues.get((queue.device, 0))
        if queue is default:
            self.joins(queue, self._blocking.get(queue.device, ()))
        elif queue.blocking and default is not None:
            queue.waits(default.clock, 0.0)

    def forget_devices(self, kind: str) -> None:
        """Forget the queues, accesses and blocks of `kind`, because new devices now use the same names."""
        self.journal.end()
        self._queues = {of: queue for of, queue in self._queues.items() if of[0].kind != kind}
        for of_device in (self._branches, self._blocking):
            for device in [device for device in of_device if device.kind == kind]:
                del of_device[device]
        for of_memory in (self._logs, self._blocks):
            for memory in [memory for memory in of_memory if memory.partition(":")[0] == kind]:
                del of_memory[memory]

    # -------------------------------------------------------------------------------------------- events and waits

    def record(self, queue: Queue, kind: str, event: int) -> None:
        """Record event `event` of `kind` on `queue`."""
        recording = queue.capture
        self._legacy_order(queue)
        self._events[kind, event] = recording.record(queue) if recording is not None else dict(queue.clock)

    def wait(self, queue: Queue, kind: str, event: int) -> None:
        """Order later work of `queue` after the event. An event that was never recorded has no effect."""
        reached = self._events.get((kind, event))
        if isinstance(reached, Marker):
            reached.recording.wait(queue, reached)
        elif reached is not None:
            queue.waits(reached, 0.0)

    def drop_event(self, kind: str, event: int) -> None:
        """Forget the event, because its number may be reused."""
        self._events.pop((kind, event), None)

    def host_waits_for_event(self, kind: str, event: int) -> None:
        """Note that the host has seen the event reached."""
        self.raise_late()
        reached = self._events.get((kind, event))
        if reached is not None and not isinstance(reached, Marker):
            self._host.joins(reached, 0.0)

    def host_waits_for(self, queue: Queue) -> None:
        """Note that the host has seen all work of `queue` finished."""
        self.raise_late()
        self._legacy_order(queue)
        self._host.joins(queue.clock, 0.0)

    def host_waits_for_device(self, device: Device) -> None:
        """Note that the host has seen all work of the device finished."""
        self._host_joins(device)
        self.raise_late()

    def _host_joins(self, device: Device) -> None:
        for queue in self._of(device):
            self._host.joins(queue.clock, 0.0)

    def _wait_all(self) -> None:
        self.journal.end()
        for device in {device for device, _ in self._queues}:
            self._host_joins(device)
        for log in self._logs.values():
            log.clear()
        for blocks in self._blocks.values():
            for block in blocks:
                block.clear()

    # -------------------------------------------------------------------------------------------- launches

    def launch(
        self, queue: Queue, name: str, accesses: Iterable[tuple[Extent, bool]], site: Site | None = None
    ) -> None:
        """Check work given to `queue`. If the queue is being captured, record the work instead.

        Parameters
        ----------
        accesses : iterable of (Extent, bool)
            The arrays that the work touches, each with whether it is written.

        Raises
        ------
        RaceError
            If an access conflicts with an earlier one that it is not ordered after, or if an early free was found
            since the last launch or wait.
        """
        site = site or call_site()
        self.journal.enter()
        recording = queue.capture
        if recording is not None:
            seen = [one for one in accesses if self._is_seen(one[0])]
            recording.add(queue, name, site, [(extent, write, self._block_of(extent)) for extent, write in seen])
            return
        if self._late is not None:
            self.raise_late()
        if self.journal.queue not in (None, queue):
            self.journal.end()
        if self._blocking:
            self._legacy_order(queue)
        self._enter(queue, name, site, accesses)
        if self.journal.queue is None:
            self.journal.look(queue, chain(self._queues.values(), *self._branches.values()))

    def launch_on(
        self,
        queue: Queue,
        name: str,
        memory: str,
        arrays: Sequence[Traits],
        writes: Sequence[bool],
        locate: Callable[[Traits], Extent],
        site: Site,
    ) -> None:
        """`launch` for arrays in one memory, given by their traits.

        `writes` tells whether each is written. `locate` makes extents, only of the arrays that are compared.
        """
        if queue is not self.journal.queue or queue.capture is not None:
            self.launch(queue, name, zip(map(locate, arrays), writes, strict=True), site)
            return
        clock, number, entries = queue.clock, queue.number, self.journal.entries
        epoch = clock[number] = clock.get(number, 0) + 1
        entries.append((LAUNCHED, memory, epoch, arrays, writes, locate, name, site))
        if len(entries) > MOST_ENTRIES:
            self.journal.enter()

    def joins(self, queue: Queue, others: Iterable[Queue]) -> None:
        """Order later work of `queue` after all work given to `others` so far."""
        for other in others:
            queue.waits(other.clock, 0.0)

    def _enter(self, queue: Queue, name: str, site: Site, accesses: Iterable[tuple[Extent, bool]]) -> None:
        """Number a launch of `queue`, and check its accesses."""
        epoch = queue.clock[queue.number] = queue.epoch + 1  # there is no virtual time
        for extent, write in accesses:
            blocks, span = self._blocks.get(extent.memory), extent.span
            block = None if blocks is None else blocks.at(extent.address)
            if block is None or block.is_private or span[0] == span[1]:
                self._enter_elsewhere(queue, epoch, write, extent, name, site)
                continue
            try:
                block.enter(queue, epoch, write, extent, name, site, self._host)
            except RaceError as error:
                self._report(error)

    def _enter_elsewhere(self, queue: Queue, epoch: int, write: bool, extent: Extent, name: str, site: Site) -> None:
        """Check and enter an access of an array that is in no block, in the private pool of a graph, or empty."""
        span = extent.span
        if not extent.is_told and self._block_of(extent) is None:
            self._unseen[_UNTOLD] += 1
        elif span[0] != span[1]:
            try:
                self._log(extent.memory).add(Seen(queue, epoch, write, span, extent, name, site))
            except RaceError as error:
                self._report(error)

    def _report(self, error: RaceError) -> None:
        """Raise and record an error, unless the engine is quiet."""
        self._wait_all()
        if not self.is_quiet:
            self.found.append(str(error))
            raise error

    def _log(self, memory: str) -> AccessLog:
        found = self._logs.get(memory)
        if found is None:
            found = self._logs[memory] = AccessLog(memory, self._host)
        return found

    def _is_seen(self, extent: Extent) -> bool:
        if extent.is_told or self._block_of(extent) is not None:
            return True
        self._unseen[_UNTOLD] += 1
        return False

    # -------------------------------------------------------------------------------------------- memory

    def take(self, memory: str, address: int, nbytes: int, queue: Queue) -> None:
        """Note that a block was allocated, in the order of `queue`."""
        if queue is self.journal.queue and queue.capture is None:
            self.journal.entries.append((TAKEN, memory, address, nbytes))
            return
        self.journal.enter()
        block = Block(address, address + nbytes, queue, is_private=queue.capture is not None)
        self._blocks.setdefault(memory, Blocks()).add(block)
        log = self._logs.get(memory)
        if log is not None and not block.is_private:  # otherwise other graphs of the pool may still use it
            log.forget(Span(block.low, block.high, True))

    def use(self, memory: str, address: int, queue: Queue) -> None:
        """Note that freeing the block at `address` will wait for all work given to `queue` until then."""
        self.journal.enter()
        block = self._blocks[memory].at(address) if memory in self._blocks else None
        if block is not None and queue not in block.users:
            block.users = (*block.users, queue)

    def give_back(self, memory: str, address: int, nbytes: int, queue: Queue) -> None:
        """Note that a block was freed, in the order of `queue`.

        The next launch or wait raises an early free, because this method is called inside finalizers.
        """
        if queue is self.journal.queue:
            self.journal.entries.append((GIVEN_BACK, memory, address, nbytes))
        else:
            self.journal.enter()
            self._give_back(memory, address, nbytes, queue)

    def _give_back(self, memory: str, address: int, nbytes: int, queue: Queue) -> None:
        """`give_back` that is entered at once."""
        block = self._blocks[memory].pop(address) if memory in self._blocks else None
        if block is None:
            span = Span(address, address + nbytes, dense=True)
            self._look_for_users(memory, self._log(memory).users(span), queue, ())
            self._log(memory).forget(span)
        elif not block.is_private:
            self._look_for_users(memory, block.unfinished(self._host), queue, block.users)

    def _look_for_users(
        self, memory: str, accesses: Iterable[Access], owner: Queue, waited_for: Collection[Queue]
    ) -> None:
        """Store an early free of `owner`'s memory for later if one of `accesses` is not ordered before the free."""
        for old in accesses:
            user = old.queue
            if user is not owner and user not in waited_for and owner.clock.get(user.number, 0) < old.epoch:
                self._late = self._late or early_free(memory, owner, old)
                self.journal.end()  # so that the next launch raises it

    def forget(self, memory: str, address: int, nbytes: int) -> None:
        """Forget accesses of memory that was freed to an allocator which waits for every user before reusing it."""
        self.journal.enter()
        self._log(memory).forget(Span(address, address + nbytes, dense=True))

    def raise_late(self) -> None:
        """Raise the early free, if one was found since the last call."""
        if self._late is not None:
            late, self._late = self._late, None
            self._report(late)

    def _block_of(self, extent: Extent) -> Block | None:
        blocks = self._blocks.get(extent.memory)
        return None if blocks is None else blocks.at(extent.address)

    # -------------------------------------------------------------------------------------------- graphs

    def begin_capture(self, graph: int, queue: Queue) -> None:
        """Start to record the work of `queue`."""
        recording = self._graphs[graph] = Recording(queue.label)
        recording.enter(queue)

    def end_capture(self, graph: int) -> None:
        """End the capture of the graph."""
        if graph in self._graphs:
            self._graphs[graph].leave()

    def body(self, graph: int, queue: Queue, *, begins: bool) -> None:
        """Begin or end the body of a conditional node on `queue`. It is assumed to run once in each replay."""
        recording = self._graphs.get(graph)
        if recording is not None:
            if begins:
                recording.enter_body(queue)
            else:
                recording.leave_body()

    def drop_graph(self, graph: int) -> None:
        """Forget the graph, because it was reset or its capture was abandoned."""
        recording = self._graphs.pop(graph, None)
        if recording is not None:
            recording.leave()

    def move_graph(self, graph: int, other: int) -> None:
        """Move the recorded work of `other` to `graph`."""
        recording = self._graphs.pop(other, None)
        self._graphs.pop(graph, None)
        if recording is not None:
            self._graphs[graph] = recording

    def replay(self, graph: int, queue: Queue) -> None:
        """Launch the recorded work on `queue`.

        Raises
        ------
        RaceError
            As `launch` does, and if memory that the graph uses but does not own was freed since the capture.
        """
        if queue.capture is not None:  # every kind raises an error in this case
            return
        self.raise_late()
        recording = self._graphs.get(graph)
        if recording is None:
            self._unseen["replays of graphs that were captured before the sanitizer was on"] += 1
            return
        self.journal.end()
        self._legacy_order(queue)
        recording.replay(queue, lambda label: self._branch(queue.device, label), self._replayed)

    def _branch(self, device: Device, label: str) -> Queue:
        made = Queue(next(self._numbers), label, device)
        self._branches.setdefault(device, []).append(made)
        return made

    def _replayed(self, queue: Queue, node: Launch) -> None:
        for extent, write, block in node.accesses:
            if block is not None and not block.is_live and not block.is_private:
                self._report(replayed_free(node, extent, write=write))
        self._enter(queue, node.name, node.site, [(extent, write) for extent, write, _ in node.accesses])
