"""The simulated machine: its host, its devices, the current stream of each thread, and what captures forbid.

One lock guards everything; it is held while the work of a device runs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.capability import Answer
from cuassay.core.device import Device
from cuassay.devices.sim import forks
from cuassay.devices.sim.device import HOST_CALL, SimDevice
from cuassay.devices.sim.profiles import Profile
from cuassay.errors import CapabilityError, CaptureError, DeviceLostError
from cuassay.order.accesses import Access, AccessLog
from cuassay.order.clock import Clock, Host, Queue

if TYPE_CHECKING:
    from cuassay.devices.sim.capture import SimCapture
    from cuassay.devices.sim.device_array import DeviceArray
    from cuassay.devices.sim.pinned import HostMemory
    from cuassay.devices.sim.stream import SimStream

__all__ = [
    "OPEN",
    "Machine",
    "Types",
    "refuse_capture",
    "refuse_wait",
]

#: Every open capture of this process; a capture may forbid calls on all streams.
OPEN: weakref.WeakSet[SimCapture] = weakref.WeakSet()


class Types(NamedTuple):
    """The classes of a machine's arrays and namespaces.

    They are passed in, so that nothing here imports from upper layers.
    """

    array: Callable[..., DeviceArray]
    namespace: Callable[[SimDevice], Any]


class Machine:
    """A host and its devices.

    Parameters
    ----------
    devices : int
        The number of devices.
    memory : int
        The bytes of each device.
    profile : Profile
        The capabilities of each device.
    finds_races : bool
        Whether unordered accesses raise; a real device computes on.
    types : Types
        The classes of arrays and namespaces, which are in upper layers.
    """

    def __init__(self, devices: int, memory: int, profile: Profile, types: Types, *, finds_races: bool = True) -> None:
        self.types = types
        self.lock = threading.RLock()
        self.busy = 0
        self.is_lost = False
        self.is_hidden = False  # another machine uses its devices' names: watchers do not hear of this one
        self.fault: str | None = None
        self.host = Host()
        self.finds_races = finds_races
        self.profile = profile
        self.has_views = "views" not in profile.features
        self._numbers = count()
        self._refused: dict[np.dtype[Any], str | None] = {}
        self._current = _Current()
        self.memory = memory
        self.pinned: HostMemory | None = None  # made on first use: see `pinned.host_memory`
        self.devices = [SimDevice(self, index, memory) for index in range(devices)]
        forks.watch(self)

    def next_number(self) -> int:
        """Return a number that no queue has."""
        return next(self._numbers)

    def log_of(self, memory: str) -> AccessLog:
        """Make a log of accesses to `memory`."""
        return (AccessLog if self.finds_races else _Blind)(memory, self.host)

    def lose(self) -> None:
        """Handle a fork, in the child: another thread of the parent may have been working on the machine."""
        self.is_lost, self.lock, self.busy = True, threading.RLock(), 0
        OPEN.clear()

    def renewed(self) -> Machine:
        """Make a fresh machine with as many devices, as much memory and the same profile."""
        return Machine(len(self.devices), self.memory, self.profile, self.types, finds_races=self.finds_races)

    def working(self) -> Machine:
        """Hold the lock in ``with machine.working():``; blocks dropped meanwhile are freed later.

        Raises
        ------
        ForkError
            In a child that was forked after the machine was made.
        DeviceLostError
            After an injected fault.
        """
        if self.is_lost:
            raise forks.error()
        if self.fault is not None:
            raise DeviceLostError(f"the simulated machine is lost: {self.fault}; start a new process")
        return self

    def __enter__(self) -> None:
        self.lock.acquire()
        self.busy += 1

    def __exit__(self, *error: object) -> None:
        self.busy -= 1
        self.lock.release()

    def wait_all(self) -> None:
        """Make the host wait for every device."""
        for device in self.devices:
            device.wait_all()

    def answer(self, name: str) -> Answer:
        """Return whether these devices have capability `name`."""
        return self.profile.answer(name, memory=self.memory, devices=len(self.devices))

    def require_storage(self, device: Device, dtype: np.dtype[Any]) -> None:
        """Raise `CapabilityError` if arrays of `dtype` cannot be on these devices."""
        if dtype not in self._refused:
            self._refused[dtype] = self._why_refused(dtype)
        reason = self._refused[dtype]
        if reason is not None:
            raise CapabilityError(f"{device}: no storage:{dtype}: {reason}; cast before the array goes to the device")

    def _why_refused(self, dtype: np.dtype[Any]) -> str | None:
        if dtype.kind in "OSUVMm" and dtype.type.__module__ != "ml_dtypes":
            return "device memory holds numbers only"
        return self.answer(f"storage:{dtype_name(dtype)}").reason or None

    def is_reached(self, clock: Clock, reached: float) -> bool:
        """Whether virtual time has passed `reached`; the query takes time, and a positive answer orders the work."""
        self.host.now += HOST_CALL
        if self.host.now < reached:
            return False
        self.host.joins(clock, reached)
        return True

    # ---------------------------------------------------------------------------------------------- per thread

    def current_queue(self, device: SimDevice) -> Queue:
        """Return the queue to which this thread submits the device's work."""
        stream = self.current_stream(device.index)
        return device.default if stream is None else stream.queue

    def current_stream(self, index: int) -> SimStream | None:
        """Return the stream that is current in this thread on device `index`, or None."""
        return self._current.streams.get(index)

    def set_current(self, index: int, stream: SimStream | None) -> SimStream | None:
        """Make `stream` (None: the default) current in this thread on device `index`; return the previous one."""
        former = self._current.streams.get(index)
        self._current.streams[index] = stream
        return former

    def enter(self, index: int, stream: SimStream | None) -> None:
        """Make `stream` current in this thread on device `index` until `leave`; calls may be nested."""
        self._current.entered.append((index, self.set_current(index, stream)))

    def leave(self) -> None:
        """Restore the state before the last `enter`."""
        self.set_current(*self._current.entered.pop())


class _Blind(AccessLog):
    """A log that records nothing, and so finds no races."""

    def add(self, new: Access) -> None:
        """See `AccessLog`."""


class _Current(threading.local):
    """For each thread: the stream by device index, and what each entered block restores."""

    def __init__(self) -> None:
        self.streams: dict[int, SimStream | None] = {}
        self.entered: list[tuple[int, SimStream | None]] = []


def refuse_capture(queue: Queue, what: str, instead: str, *, breaks: bool = False) -> None:
    """Raise `CaptureError` if `queue` is being captured.

    A call that `breaks` the capture is reported at its end too.
    """
    if queue.capture is not None:
        if breaks:
            queue.capture.break_by(what)
        raise CaptureError(f"{what} is illegal while {queue.label} is being captured: nothing has run yet; {instead}")


def refuse_wait(what: str) -> None:
    """Raise `CaptureError` if an open capture forbids this thread to query or wait for the device."""
    for capture in tuple(OPEN):
        if capture.forbids():
            capture.break_by(what)
            raise CaptureError(
                f"{what} is illegal while {capture.label} is captured in mode {capture.mode!r}, for other streams too; "
                "do it before or after, or capture with capture_error_mode='relaxed'"
            )
