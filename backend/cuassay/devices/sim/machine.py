"""The simulated machine: its host, devices and queues, and the one way work is given to them.

Everything above (arrays, streams, captures) comes here to allocate, to launch and to wait. One lock guards it
all; it is held while the work runs, so that program order is one order for all threads.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import count
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.callers import is_ours
from cuassay.core.capability import Answer
from cuassay.core.device import Device
from cuassay.core.round_robin import RoundRobin
from cuassay.devices.sim import forks
from cuassay.devices.sim.clock import Access, AccessLog, Clock, Host, Queue, Span
from cuassay.devices.sim.memory import Arena, Block, aligned, poison
from cuassay.devices.sim.memory_source import SimSource
from cuassay.devices.sim.profiles import Profile
from cuassay.errors import CapabilityError, CaptureError, RaceError
from cuassay.memory import CachingAllocator

if TYPE_CHECKING:
    from cuassay.core.graphs import PoolId
    from cuassay.devices.sim.capture import SimCapture
    from cuassay.devices.sim.held import DeviceArray
    from cuassay.devices.sim.pinned import HostMemory
    from cuassay.devices.sim.private import Pool
    from cuassay.devices.sim.stream import SimStream

__all__ = [
    "HOST_CALL",
    "OPEN",
    "Accessed",
    "Machine",
    "Owner",
    "SimDevice",
    "Types",
    "call_site",
    "refuse_capture",
    "refuse_wait",
]

#: Every capture that is open in this process: what one forbids, it may forbid to all streams.
OPEN: weakref.WeakSet[SimCapture] = weakref.WeakSet()

#: Virtual seconds: what a call costs the host, and what a launch costs the device at least.
HOST_CALL = 2e-6
LAUNCH = 3e-6

#: What is passed over beside this package: NumPy, and finalizers.
_LIBRARIES = (f"{Path(np.__file__).parent}{os.sep}", weakref.__file__, "<__array_function__")
_is_library: dict[CodeType, bool] = {}

#: File and line.
Site = tuple[str, int]


def call_site() -> Site:
    """File and line of the nearest caller that is neither this package nor NumPy."""
    frame = sys._getframe(1)  # inspect.currentframe is the same, and its stack() reads files
    while (library := _is_library.get(frame.f_code)) is not False and frame.f_back is not None:
        if library is None:
            filename = frame.f_code.co_filename
            library = _is_library[frame.f_code] = is_ours(filename) or filename.startswith(_LIBRARIES)
        if not library:
            break
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class Owner(Protocol):
    """Whose memory an array lies in: a device, or the machine's pinned host memory."""

    log: AccessLog


class Accessed(Protocol):
    """An array that a launch reads or writes: of a device, in pinned memory, or as a graph recorded it."""

    @property
    def raw(self) -> np.ndarray[Any, Any]:
        """The memory, as NumPy shows it."""

    @property
    def span(self) -> Span:
        """The bytes it occupies, as its owner's log counts them."""

    @property
    def owner(self) -> Owner:
        """Whose log its accesses are entered in."""


class Types(NamedTuple):
    """What a machine makes its arrays and its devices' namespaces of; given, so that nothing here imports upwards."""

    array: Callable[..., DeviceArray]
    namespace: Callable[[SimDevice], Any]


class SimDevice:
    """One device of a machine: its memory, the log of accesses to it, and its queues."""

    def __init__(self, machine: Machine, index: int, nbytes: int) -> None:
        self.machine = machine
        self.index = index
        self.device = Device("sim", index)
        self.arena = Arena(str(self.device), nbytes, machine.host)
        self.log = AccessLog(str(self.device), machine.host)
        self.queues: list[Queue] = []
        self.default = self.new_queue("stream 0")
        self._pools: dict[int, RoundRobin[Queue]] = {}
        self.allocator = CachingAllocator(SimSource(self), total=self.arena.total, name=str(self.device))
        self.graph_pools: weakref.WeakValueDictionary[PoolId, Pool] = weakref.WeakValueDictionary()
        self._freed: deque[Block] = deque()
        self._late: RaceError | None = None

    def new_queue(self, label: str = "", *, blocking: bool = False) -> Queue:
        """Another queue; `blocking` ones are ordered with the default one."""
        number = self.machine.next_number()
        queue = Queue(number, label or f"stream {number}", self.index, blocking)
        self.queues.append(queue)
        return queue

    def pooled_queue(self, priority: int) -> Queue:
        """One of the 32 queues of `priority`, in turn; one left in a capture is passed over."""
        make, free = self.new_queue, lambda queue: queue.capture is None
        return self._pools.setdefault(priority, RoundRobin(make, usable=free)).take()

    def forget_queue(self, queue: Queue) -> None:
        """Its stream is gone; the queue goes when the host waits for the device."""
        queue.dropped = True

    @cached_property
    def namespace(self) -> Any:
        """The array namespace of the device: one object, as a module is, and so a dict's key."""
        return self.machine.types.namespace(self)

    def array(self, raw: np.ndarray[Any, Any], block: Block | None, span: Span | None = None) -> DeviceArray:
        """`raw`, which lies in the arena, as an array of the device."""
        return self.machine.types.array(raw, self, block, span)

    def require(self, name: str, instead: str) -> None:
        """Raise `CapabilityError` unless the device has capability `name`; `instead` is what to do without it."""
        found = self.machine.answer(name)
        if not found:
            raise CapabilityError(f"{self.device}: no {name}: {found.reason}; {instead}")

    # ---------------------------------------------------------------------------------------------- allocation

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], queue: Queue
    ) -> tuple[np.ndarray[Any, Any], Block]:
        """A poisoned C-contiguous array of at least one byte, and the block it lies in."""
        self.machine.require_storage(self.device, dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        block = self.reserve(nbytes, queue) if queue.capture is None else queue.capture.allocate(nbytes, queue)
        self.arena.buffer[block.low : block.low + nbytes].fill(poison(dtype))
        return np.ndarray(shape, dtype, self.arena.buffer, block.low), block

    def reserve(self, nbytes: int, queue: Queue) -> Block:
        """A range of the arena in the order of `queue`."""
        low = self._take(nbytes, queue)
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
        """Called when the last array on `block` is gone: at any moment, in any thread."""
        if self.machine.is_lost:
            return
        self._freed.append(block)
        if self.machine.lock.acquire(blocking=False):
            try:
                if not self.machine.busy:
                    self.settle()
            finally:
                self.machine.lock.release()

    def settle(self) -> None:
        """Give back what was dropped since, each block in the order of its queue."""
        while self._freed:
            self._give_back(self._freed.popleft())

    def _give_back(self, block: Block) -> None:
        span = Span(block.low, block.high, dense=True)
        after = {} if block.queue.epoch == 0 else {block.queue.number: block.queue.epoch}
        after |= {user.number: user.epoch for user in block.users}
        for old in self.log.users(span):
            after[old.queue.number] = max(after.get(old.queue.number, 0), old.epoch)
            ordered = block.queue.clock.get(old.queue.number, 0) >= old.epoch
            if not ordered and old.queue not in block.users:
                self._late = self._late or self._early_free(block, old)
        self.log.forget(span)
        self.arena.give_back(block.low, block.high, after)

    def _early_free(self, block: Block, old: Access) -> RaceError:
        owner, user, site = block.queue, old.queue, call_site()
        return RaceError(
            f"{self.device}: early free at {site[0]}:{site[1]} of {owner.label}'s memory, not ordered after the {old}; "
            f"the memory may be used again too soon: insert {owner.variable}.wait_stream({user.variable}) before the "
            f"array is dropped, or array.record_stream({user.variable})"
        )

    def raise_late(self) -> None:
        """Raise the early free found since the last call, once; the machine goes on as if it had been waited for."""
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
    ) -> Site:
        """Enter one launch: its order, its time, and its accesses (an array, and whether it is written).

        Gives the call site, for `also`.

        Raises
        ------
        RaceError
            If an access is not ordered after one it conflicts with; the host is then taken to have waited.
        """
        machine, site = self.machine, site or call_site()
        self.raise_late()
        self._legacy_order(queue)
        touched = list(accesses)
        nbytes = sum(array.raw.nbytes for array, _ in touched)
        machine.host.now += HOST_CALL
        epoch = queue.launch(machine.host.now, LAUNCH + machine.profile.seconds(nbytes, flops))
        try:
            for array, write in touched:
                if array.raw.size:
                    new = Access(queue, epoch, write, array.span, array.raw, name, site)
                    array.owner.log.add(new)
        except RaceError:
            machine.wait_all()  # reported once: what follows is judged as if the wait had been there
            raise
        return site

    def also(self, queue: Queue, name: str, array: Accessed, site: Site) -> None:
        """The launch just entered also made `array`, in memory that nobody else has."""
        if array.raw.size:
            self.log.add(Access(queue, queue.epoch, True, array.span, array.raw, name, site))

    def _legacy_order(self, queue: Queue) -> None:
        """The legacy default stream and blocking streams wait for each other, as CUDA has it."""
        if queue is self.default:
            for other in self.queues:
                if other.blocking:
                    queue.waits(other.clock, other.finished)
        elif queue.blocking:
            queue.waits(self.default.clock, self.default.finished)

    def wait_all(self) -> None:
        """The host waits for all queues of this device."""
        for queue in self.queues:
            self.machine.host.joins(queue.clock, queue.finished)
        self.queues = [queue for queue in self.queues if not queue.dropped]
        self.log.clear()

    def capturing(self) -> bool:
        """True while any queue of this device is being captured."""
        return any(queue.capture is not None for queue in self.queues)


class Machine:
    """N devices and a host.

    Parameters
    ----------
    devices : int
        How many.
    memory : int
        Bytes of each.
    profile : Profile
        What each can do.
    types : Types
        What arrays and namespaces are made of: they are classes of the rooms above.
    """

    def __init__(self, devices: int, memory: int, profile: Profile, types: Types) -> None:
        self.types = types
        self.lock = threading.RLock()
        self.busy = 0
        self.is_lost = False
        self.host = Host()
        self.profile = profile
        self.has_views = "views" not in profile.features
        self._numbers = count()
        self._refused: dict[np.dtype[Any], str | None] = {}
        self._current = _Current()
        self.memory = memory
        self.pinned: HostMemory | None = None  # made at the first use: see `pinned.host_memory`
        self.devices = [SimDevice(self, index, memory) for index in range(devices)]
        forks.watch(self)

    def next_number(self) -> int:
        """A number no queue has."""
        return next(self._numbers)

    def lose(self) -> None:
        """Called in a forked child: another thread of the parent may have been at work on it."""
        self.is_lost, self.lock, self.busy = True, threading.RLock(), 0
        OPEN.clear()

    def renewed(self) -> Machine:
        """A fresh machine with as many devices, as much memory and the same profile."""
        return Machine(len(self.devices), self.memory, self.profile, self.types)

    def working(self) -> Machine:
        """``with machine.working():`` holds the lock; blocks dropped meanwhile are given back later.

        Raises
        ------
        ForkError
            In a child that was forked after the machine was made.
        """
        if self.is_lost:
            raise forks.error()
        return self

    def __enter__(self) -> None:
        self.lock.acquire()
        self.busy += 1

    def __exit__(self, *error: object) -> None:
        self.busy -= 1
        self.lock.release()

    def wait_all(self) -> None:
        """The host waits for every device."""
        for device in self.devices:
            device.wait_all()

    def answer(self, name: str) -> Answer:
        """Whether these devices have capability `name`."""
        return self.profile.answer(name, memory=self.memory, devices=len(self.devices))

    def require_storage(self, device: Device, dtype: np.dtype[Any]) -> None:
        """Raise `CapabilityError` when arrays of `dtype` cannot be on these devices."""
        if dtype not in self._refused:
            self._refused[dtype] = self._why_refused(dtype)
        reason = self._refused[dtype]
        if reason is not None:
            raise CapabilityError(f"{device}: no storage:{dtype}: {reason}; cast before the array goes to the device")

    def _why_refused(self, dtype: np.dtype[Any]) -> str | None:
        if dtype.kind in "OSUVMm" and not _is_ml_dtype(dtype):
            return "device memory holds numbers only"
        return self.answer(f"storage:{dtype_name(dtype)}").reason or None

    def is_reached(self, clock: Clock, reached: float) -> bool:
        """Whether virtual time has passed `reached`; asking takes time, and a yes orders what was asked for."""
        self.host.now += HOST_CALL
        if self.host.now < reached:
            return False
        self.host.joins(clock, reached)
        return True

    # ---------------------------------------------------------------------------------------------- per thread

    def current_queue(self, device: SimDevice) -> Queue:
        """The queue this thread gives the device's work to."""
        stream = self.current_stream(device.index)
        return device.default if stream is None else stream.queue

    def current_stream(self, index: int) -> SimStream | None:
        """The stream this thread made current on device `index`, or None."""
        return self._current.streams.get(index)

    def set_current(self, index: int, stream: SimStream | None) -> SimStream | None:
        """Make `stream` (None: the default) this thread's current one on device `index`; gives the former."""
        former = self._current.streams.get(index)
        self._current.streams[index] = stream
        return former

    def enter(self, index: int, stream: SimStream | None) -> None:
        """Make `stream` this thread's current one on device `index` until `leave`; may be nested."""
        self._current.entered.append((index, self.set_current(index, stream)))

    def leave(self) -> None:
        """Restore what the last `enter` found."""
        self.set_current(*self._current.entered.pop())


class _Current(threading.local):
    """Of each thread: device index to stream, and what each block that is entered restores."""

    def __init__(self) -> None:
        self.streams: dict[int, SimStream | None] = {}
        self.entered: list[tuple[int, SimStream | None]] = []


def _is_ml_dtype(dtype: np.dtype[Any]) -> bool:
    return dtype.type.__module__ == "ml_dtypes"


def refuse_capture(queue: Queue, what: str, instead: str, *, breaks: bool = False) -> None:
    """Raise `CaptureError` when `queue` is being captured; one that `breaks` the capture is told again at its end."""
    if queue.capture is not None:
        if breaks:
            queue.capture.break_by(what)
        raise CaptureError(f"{what} is illegal while {queue.label} is being captured: nothing has run yet; {instead}")


def refuse_wait(what: str) -> None:
    """Raise `CaptureError` when an open capture forbids this thread to ask or wait for the device."""
    for capture in tuple(OPEN):
        if capture.forbids():
            capture.break_by(what)
            raise CaptureError(
                f"{what} is illegal while {capture.label} is captured in mode {capture.mode!r}, for other streams too; "
                "do it before or after, or capture with capture_error_mode='relaxed'"
            )
