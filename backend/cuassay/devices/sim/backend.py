"""The kind `sim` as a `cuassay.core.protocols.Backend`; its machine is made from the settings on first use."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import metadata
from operator import index as index_of
from typing import Any

import numpy as np

from cuassay.arrays import layout
from cuassay.arrays.dtypes import as_dtype
from cuassay.core import settings, syncdebug, watchers
from cuassay.core.capability import Answer, absent
from cuassay.core.device import Device
from cuassay.core.protocols import MemorySource, StreamFacts
from cuassay.core.watchers import Occurrence
from cuassay.devices.sim import calls, forks, pinned
from cuassay.devices.sim.array import SimArray
from cuassay.devices.sim.capture import SimCapture
from cuassay.devices.sim.creation import from_host
from cuassay.devices.sim.device import NOTES, SimDevice, extent
from cuassay.devices.sim.device_array import DeviceArray
from cuassay.devices.sim.machine import Machine, Types
from cuassay.devices.sim.memory_source import SimSource
from cuassay.devices.sim.namespace import Namespace
from cuassay.devices.sim.profiles import profile
from cuassay.devices.sim.stream import SimEvent, SimStream, as_stream
from cuassay.devices.sim.tags import SimTagger
from cuassay.errors import CaptureError, DeviceError
from cuassay.memory import CachingAllocator
from cuassay.memory.trace import Tagger
from cuassay.order.clock import Queue

__all__ = ["SimBackend"]

#: Cycles for a second of virtual time; the harness assumes the same number, so that a hold lasts as long as requested.
_SPIN_HZ = 2e9


#: The counterpart of CUDA_VISIBLE_DEVICES for simulated devices.
_VISIBLE = "CUASSAY_SIM_VISIBLE_DEVICES"


class SimBackend:
    """The kind `sim`; see `cuassay.core.protocols.Backend`."""

    kind = "sim"

    #: Holding streams costs only virtual time: figures do not depend on how busy the host is.
    longest_hold_s = math.inf

    #: The unit of its times, which come from a cost model and are never compared with measured times.
    time_unit = "virtual s"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._machine: Machine | None = None
        forks.watch(self)

    def lose(self) -> None:
        """Handle a fork, in the child: the thread that held the lock may not exist here."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"SimBackend({self.count()} devices, profile {self.machine.profile.name})"

    @property
    def machine(self) -> Machine:
        """The simulated machine, made from the settings on first use.

        In a forked child, a new one like the parent's.
        """
        with self._lock:
            if self._machine is None:
                self._machine = _machine({})
            elif self._machine.is_lost:
                self._machine = self._machine.renewed()
            return self._machine

    @property
    def finds_races(self) -> bool:
        """Whether unordered accesses raise immediately."""
        return self.machine.finds_races

    @contextmanager
    def simulated(self, **changed: Any) -> Iterator[SimBackend]:
        """Make this kind a fresh machine inside the block, for tests that depend on the machine.

        Parameters
        ----------
        **changed : int, str or bool
            ``devices``, ``memory`` (bytes) and ``profile`` replace the settings; ``finds_races=False`` makes a machine
            that computes on after a race, as a real device does. Arrays made outside stay on the machine outside.
            `cuassay.devices.capabilities` caches its answers for the process, so call `probe` here instead.
        """
        former = self._replaced(_machine(changed))
        try:
            yield self
        finally:
            self._replaced(former)

    def _replaced(self, machine: Machine | None) -> Machine | None:
        """Make `machine` this kind's machine, and tell watchers.

        Return the previous one, which they hear no more about.
        """
        with self._lock:
            former, self._machine = self._machine, machine
            if former is not None:
                former.is_hidden = True
            if machine is not None:
                machine.is_hidden = False
        if watchers.state.watchers:
            watchers.tell(Occurrence("devices_replaced", self.kind))
        return former

    def _device(self, index: int) -> SimDevice:
        devices = self.machine.devices
        if not 0 <= index < len(devices):
            raise DeviceError(
                f"sim:{index} does not exist; {len(devices)} simulated devices are here; raise CUASSAY_SIM_DEVICES"
            )
        return devices[index]

    # ---------------------------------------------------------------------------------------------- what is here

    def why_absent(self) -> str | None:
        """Return why there are no devices, if the number of devices is set to 0."""
        return None if self.count() else "CUASSAY_SIM_DEVICES is 0; set it to 1 or more"

    def count(self) -> int:
        """Return ``CUASSAY_SIM_DEVICES``, or the number of devices that ``CUASSAY_SIM_VISIBLE_DEVICES`` names."""
        return len(self.machine.devices)

    def probe(self, index: int, name: str) -> Answer:
        """Answer as the profile says."""
        machine = self.machine
        if not 0 <= index < len(machine.devices):
            return absent(f"there is no sim:{index}")
        return machine.answer(name)

    def identity(self, index: int) -> Mapping[str, str]:
        """Return a name that contains the profile, a uuid and a driver like those of a real device."""
        return {
            "name": f"simulated accelerator ({self.machine.profile.name})",
            "uuid": self._uuids()[index],
            "driver": f"cuassay {metadata.version('cuassay')}" if _installed() else "cuassay (not installed)",
            "numpy": np.__version__,
        }

    def visibility(self) -> tuple[str, Sequence[str]]:
        """Return the variable that selects devices for a new process, and the word of each device that is here now."""
        return _VISIBLE, self._uuids()

    def _uuids(self) -> tuple[str, ...]:
        chosen: tuple[str, ...] = settings.get(_VISIBLE)
        return chosen if len(chosen) == self.count() else tuple(f"SIM-{index}" for index in range(self.count()))

    def health(self, index: int) -> str | None:
        """Return the injected fault, if any.

        A race does not count, because it raises and does not affect later work.
        """
        return self.machine.fault

    def note_launches(self, note: Callable[[str], None] | None) -> None:
        """Call `note` with the name, the device and the line of each launch in this process."""
        NOTES[:] = [] if note is None else [note]

    def inject_fault(self, reason: str) -> None:
        """Make every later call on this machine raise `DeviceLostError`, as a CUDA context does after a sticky error.

        This is for tests of what must survive a lost device. Only a new process, or `simulated`, has a healthy machine.

        Parameters
        ----------
        reason : str
            The error's text, such as ``"an illegal address was read"``.
        """
        self.machine.fault = reason

    def memory_info(self, index: int) -> tuple[int, int]:
        """Return the free and the total bytes of the arena."""
        device = self._device(index)
        with device.machine.working():
            device.settle()
            return device.arena.free, device.arena.total

    def memory_in_use(self, index: int) -> int:
        """Return the bytes of the arena that live arrays and blocks hold; `cuassay.testing.guards` uses it."""
        free, total = self.memory_info(index)
        figures = self.allocator(index).statistics()
        return total - free - figures.reserved_bytes.all.current + figures.allocated_bytes.all.current

    def release_cached(self, index: int) -> None:
        """Release free segments of the allocator to the arena."""
        self.allocator(index).empty_cache()

    def allocator(self, index: int) -> CachingAllocator:
        """Return an allocator of blocks of the arena, for callers without arrays.

        It numbers streams by `stream_number`.
        """
        return self._device(index).allocator

    def replay_target(self, index: int) -> tuple[Callable[[], MemorySource], Tagger]:
        """Return what makes separate sources over the arena, and tags for their memory; for replays and tests."""
        device = self._device(index)
        return lambda: SimSource(device), SimTagger()

    def stream_number(self, stream: SimStream) -> int:
        """Return the number of `stream` for `allocator`."""
        return stream.queue.number

    extent = staticmethod(extent)

    def current_number(self, index: int) -> int:
        """See `cuassay.core.protocols.Observable`."""
        device = self._device(index)
        return device.machine.current_queue(device).number

    def stream_facts(self, index: int, number: int) -> StreamFacts:
        """See `cuassay.core.protocols.Observable`; the default stream of each device is numbered 0."""
        device = self._device(index)
        gone = Queue(number, f"stream {number}", device.device)
        queue = next((queue for queue in device.queues if queue.number == number), gone)
        return StreamFacts(index, 0 if queue is device.default else queue.number, queue.label, queue.blocking)

    # ---------------------------------------------------------------------------------------------- arrays

    def owns(self, array_type: type) -> bool:
        """Whether the type is `SimArray`."""
        return issubclass(array_type, SimArray)

    def device_of(self, array: SimArray) -> Device:
        """Return the device of `array`."""
        return array.device

    def namespace(self, index: int) -> Namespace:
        """Return NumPy's names over arrays of device `index`; the object is the same each time."""
        found: Namespace = self._device(index).namespace
        return found

    def empty(self, shape: tuple[int, ...], dtype: Any, index: int, stream: SimStream | None = None) -> DeviceArray:
        """Return a poisoned C-contiguous array, in order of `stream` (None: the current one) of that device."""
        device = self._device(index)
        if stream is not None and as_stream(stream).sim_device is not device:
            raise DeviceError(
                f"memory of sim:{index} is not ordered by {stream!r} of {stream.device}; give a stream of sim:{index}, "
                f"or take memory of {stream.device}"
            )
        with device.machine.working():
            queue = device.machine.current_queue(device) if stream is None else stream.queue
            return calls.new_array(tuple(map(index_of, shape)), as_dtype(dtype), device, queue)

    def from_host(self, array: np.ndarray[Any, Any], index: int) -> DeviceArray:
        """Return a copy in order of the current stream, with the axes in the same order in memory."""
        return from_host(np.asarray(array), self._device(index))

    def to_host(self, array: SimArray) -> np.ndarray[Any, Any]:
        """Return a copy, read in order of the current stream, which the host waits for."""
        return array.get()

    def empty_pinned(self, shape: tuple[int, ...], dtype: Any, index: int) -> pinned.SimPinned:
        """Return a poisoned array in pinned memory, which all devices of the machine share."""
        device = self._device(index)
        device.require("pinned_memory", "use numpy.empty")
        return pinned.empty(shape, dtype, device.machine)

    def is_pinned(self, array: Any) -> bool:
        """Whether `array` is a result of `empty_pinned`, or a view of one."""
        return isinstance(array, pinned.SimPinned)

    def transfer(self, src: Any, dst: Any, *, non_blocking: bool = False) -> None:
        """Copy in order of the device's current stream; see `pinned`."""
        pinned.transfer(src, dst, non_blocking=non_blocking)

    def overlap(self, a: SimArray, b: SimArray) -> str:
        """Compare device and address, then elements within bounds."""
        if a.owner is not b.owner or a.block is not b.block:
            return "none"
        if not layout.overlap(a.raw, b.raw):
            return "none"
        same = a.span == b.span and a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
        return "same" if same else "partial"

    # ---------------------------------------------------------------------------------------------- order

    def activate(self, index: int) -> AbstractContextManager[Any]:
        """Check the device and do nothing else: every call names its device, so none is current."""
        self._device(index)
        return nullcontext()

    def is_current(self, index: int) -> bool:
        """Return True: no device has to be current."""
        return True

    def synchronize(self, index: int) -> None:
        """Make the host wait for all streams of the device. Raises for an early free found since the last call."""
        syncdebug.waits("synchronize")
        device = self._device(index)
        with device.machine.working():
            if device.capturing():
                raise CaptureError(
                    f"synchronize is illegal while a stream of {device.device} is being captured; end the capture first"
                )
            device.raise_late()
            begin = device.machine.host.now
            device.wait_all()
            if device.is_watched:
                watchers.tell(device.waited("device_synchronized", 0, begin))

    def current_stream(self, index: int) -> SimStream:
        """Return the stream set by `use_stream` in this thread, or the default stream."""
        device = self._device(index)
        return device.machine.current_stream(index) or SimStream(device, device.default)

    def new_stream(self, index: int, priority: int = 0, *, blocking: bool = False) -> SimStream:
        """Return a stream of the pool.

        A `blocking` one is not pooled, and is ordered with the default stream, as in CUDA.
        """
        device = self._device(index)
        device.require("streams", "use the default stream")
        queue = device.new_queue(blocking=True) if blocking else device.pooled_queue(priority)
        return SimStream(device, queue, priority)

    def use_stream(self, stream: SimStream | None) -> AbstractContextManager[SimStream | None]:
        """Submit this thread's work to `stream`, on its device, inside the block; None changes nothing."""
        return nullcontext() if stream is None else as_stream(stream)

    def set_stream(self, stream: SimStream | None) -> None:
        """Submit this thread's work to `stream`, on its device, from now on; None changes nothing."""
        if stream is not None:
            as_stream(stream).sim_device.machine.set_current(stream.sim_device.index, stream)

    def spin(self, index: int, cycles: int) -> None:
        """Keep the current stream of device `index` busy for `cycles` of virtual time, at 2 GHz."""
        device = self._device(index)
        with device.machine.working():
            queue = device.machine.current_queue(device)
            flops = cycles / _SPIN_HZ * device.machine.profile.throughput
            calls.submit(queue, device, "spin", (), lambda: None, flops=flops)

    def bandwidth(self, index: int) -> float:
        """Return the bytes per virtual second that the memory of device `index` moves."""
        return self._device(index).machine.profile.bandwidth

    def now_s(self) -> float:
        """Return the host's virtual time in seconds."""
        return self.machine.host.now

    def new_event(self, index: int, *, timing: bool = False) -> SimEvent:
        """Return an event; with `timing` it measures virtual time."""
        return SimEvent(self._device(index), timing=timing)

    def new_capture(self, index: int, *, keep_graph: bool = False) -> SimCapture:
        """Return a graph. Raises `CapabilityError` if the profile has no graphs."""
        device = self._device(index)
        device.require("graphs", "call the work each time")
        return SimCapture(device, keep_graph=keep_graph)

    def flush_cache(self, index: int) -> None:
        """Submit an empty launch, to keep its place in the order: there is no cache to flush."""
        device = self._device(index)
        with device.machine.working():
            calls.submit(device.machine.current_queue(device), device, "flush_cache", (), lambda: None)


def _machine(changed: Mapping[str, Any]) -> Machine:
    return Machine(
        changed.get("devices", len(settings.get(_VISIBLE)) or settings.get("CUASSAY_SIM_DEVICES")),
        changed.get("memory", settings.get("CUASSAY_SIM_MEMORY")),
        profile(changed.get("profile", settings.get("CUASSAY_SIM_PROFILE"))),
        Types(SimArray, Namespace),
        finds_races=changed.get("finds_races", True),
    )


def _installed() -> bool:
    try:
        metadata.version("cuassay")
    except metadata.PackageNotFoundError:
        return False
    return True
