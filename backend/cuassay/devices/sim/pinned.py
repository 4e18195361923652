"""Pinned host memory of the simulated machine: the same clocks order what copies read and write there.

A pinned array wraps a NumPy array, as a device array does, and forwards NumPy's functions, operators and methods. Each
first checks the log of copies. So the classic mistakes are found whenever they are made: the host reads data that a
copy has yet to bring, or overwrites data that a copy has yet to read. The host's own accesses need no entry, because
every launch comes after the accesses made before it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from operator import setitem
from typing import Any, SupportsIndex

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cuassay.arrays import layout
from cuassay.arrays.dtypes import as_dtype
from cuassay.core import syncdebug
from cuassay.core.participants import join
from cuassay.core.units import format_bytes
from cuassay.devices.sim import calls
from cuassay.devices.sim.array import SimArray
from cuassay.devices.sim.device import HOST_CALL
from cuassay.devices.sim.functions import WRITING_METHODS, written
from cuassay.devices.sim.machine import Machine, refuse_capture, refuse_wait
from cuassay.devices.sim.memory import poison
from cuassay.errors import RaceError
from cuassay.memory.blocks import Block
from cuassay.memory.host import HOST, CaptureKeepAlive, HostAllocator, HostSource
from cuassay.order.accesses import Span
from cuassay.order.clock import Clock, Queue
from cuassay.order.sites import call_site

__all__ = ["HostMemory", "SimPinned", "empty", "host_memory", "transfer"]

#: Virtual bytes per second between host and device, as measured on an H200 with pinned memory in both directions.
_LINK = 55e9

#: The alignment in bytes of a reserved piece: memory is pinned by whole pages.
_PAGE = 4096

_FACTS = frozenset("shape dtype ndim size itemsize nbytes strides flags".split())
#: Attributes that would expose the memory to code that does not check the log.
_HIDDEN = frozenset("base ctypes data tofile dump setflags resize".split())


_captured = CaptureKeepAlive()
join("sim", _captured)


class HostMemory:
    """The pinned memory of one machine: its allocator, and the log of the copies' accesses to it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.log = machine.log_of("pinned host memory")
        self.base = 0
        self.source = _Source(machine)
        self.allocator = HostAllocator(self.source, name="pinned host memory of the simulated machine")


def host_memory(machine: Machine) -> HostMemory:
    """Return the pinned memory of `machine`, made on first use."""
    with machine.working():
        machine.pinned = machine.pinned or HostMemory(machine)
        return machine.pinned


class _Source(HostSource):
    """Host arrays by their address; events are points of virtual time."""

    def __init__(self, machine: Machine) -> None:
        self._machine: Machine = weakref.proxy(machine)
        self._arrays: dict[int, np.ndarray[Any, Any]] = {}
        self._queues: dict[int, Queue] = {}

    def __repr__(self) -> str:
        return f"the simulated host ({len(self._arrays)} pieces)"

    def reserve(self, nbytes: int, stream: int) -> int:
        del stream
        _require_memory(nbytes)
        array = np.empty(nbytes + _PAGE, np.uint8)
        address = -(-_address(array) // _PAGE) * _PAGE
        self._arrays[address] = array[address - _address(array) :][:nbytes]
        return address

    def release(self, address: int) -> None:
        del self._arrays[address]

    def bytes_of(self, block: Block) -> np.ndarray[Any, Any]:
        """Return the memory of `block`."""
        start = block.address - block.segment.address
        return self._arrays[block.segment.address][start : start + block.nbytes]

    def know(self, queue: Queue) -> int:
        """Return the number that represents `queue` in `record`."""
        self._queues[queue.number] = queue
        return queue.number

    def record(self, stream: int) -> tuple[Clock, float]:
        queue = self._queues[stream]
        return dict(queue.clock), queue.finished

    def query(self, event: tuple[Clock, float]) -> bool:
        return self._machine.is_reached(*event)

    def wait(self, stream: int, event: tuple[Clock, float]) -> None:
        self._machine.host.joins(*event)


def _require_memory(nbytes: int) -> None:
    """Reject more memory than the machine has: systems that overcommit would kill the process when it is used."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > total:
        raise MemoryError(f"{format_bytes(nbytes)} asked for, {format_bytes(total)} in this machine")


class _Memory:
    """One block in use, which is freed when the last array on it is gone."""

    __slots__ = ("__weakref__", "block", "home")

    #: Its position in the arena: it is in none.
    low = -1

    def __init__(self, home: HostMemory, nbytes: int) -> None:
        self.home = home
        self.block = home.allocator.malloc(nbytes, HOST)

    def used_by(self, queue: Queue) -> None:
        """Keep the memory from being reused before the work that `queue` has when it is freed."""
        self.home.allocator.record_stream(self.block, self.home.source.know(queue))

    def __del__(self) -> None:
        if hasattr(self, "block") and not self.home.machine.is_lost:
            self.home.allocator.free(self.block)


class SimPinned(NDArrayOperatorsMixin):
    """An array in pinned host memory of the simulated machine, made only by `empty`."""

    __slots__ = ("__weakref__", "block", "owner", "raw")

    __hash__ = None  # type: ignore[assignment]

    #: Such arrays are rejected together with arrays of a device.
    is_host_memory = True

    def __init__(self, raw: np.ndarray[Any, Any], owner: HostMemory, memory: _Memory) -> None:
        self.raw: np.ndarray[tuple[int, ...], np.dtype[Any]] = raw
        self.owner = owner
        self.block = memory

    @property
    def span(self) -> Span:
        """The bytes it occupies, by address."""
        if not self.raw.size:
            return Span(0, 0, dense=True)
        low, high = np.lib.array_utils.byte_bounds(self.raw)
        return Span(low, high, dense=high - low == self.raw.nbytes)

    def __repr__(self) -> str:
        return f"SimPinned(shape={self.raw.shape}, dtype={self.raw.dtype})"

    def __len__(self) -> int:
        return len(self.raw)

    # ---------------------------------------------------------------------------------------------- the host looks

    def touch(self, name: str, *, write: bool = False) -> np.ndarray[Any, Any]:
        """Return the memory, for the host to read, or write, now.

        Raises
        ------
        RaceError
            If a copy that the host did not wait for writes it, or, for a write, reads it.
        """
        machine = self.owner.machine
        with machine.working():
            machine.host.now += HOST_CALL
            span = self.span
            for old in self.owner.log.users(span) if self.raw.size else ():
                if (write or old.write) and layout.overlap(self.raw, old.array):
                    site, verb = call_site(), "write" if write else "read"
                    machine.wait_all()  # reported once, as other races are
                    raise RaceError(
                        f"pinned host memory: {verb} by the host ({name}) of a {self.raw.dtype} array of shape "
                        f"{self.raw.shape} at {site[0]}:{site[1]} is not ordered after the {old}; call "
                        f"{old.queue.variable}.synchronize(), or synchronize an event recorded after the copy, first"
                    )
        return self.raw

    def _wrapped(self, result: Any) -> Any:
        """Wrap `result` if it shows this memory."""
        if isinstance(result, np.ndarray) and result.size and np.may_share_memory(result, self.raw):
            return self if result is self.raw else SimPinned(result, self.owner, self.block)
        if isinstance(result, (tuple, list)):
            wrapped = map(self._wrapped, result)
            return type(result)(*wrapped) if hasattr(result, "_fields") else type(result)(wrapped)
        return result

    def _run(self, name: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], writes: list[Any]) -> Any:
        if calls.has_arrays((tuple(args), dict(kwargs))):
            raise TypeError(
                f"{name} got an array of a simulated device and one in host memory; move one with devices.copy"
            )
        marked = [one for one in writes if isinstance(one, SimPinned)]
        for array in marked:
            array.touch(name, write=True)
        result = self._wrapped(function(*calls.unwrapped(args, SimPinned), **calls.unwrapped(kwargs, SimPinned)))
        if marked or not _shows(result):  # a view has read nothing
            for array in _arrays((args, kwargs)):
                array.touch(name)
        return result

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        outs = [inputs[0]] if method == "at" else [one for one in kwargs.get("out", ()) if one is not None]
        return self._run(ufunc.__name__, getattr(ufunc, method), inputs, kwargs, outs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        return self._run(function.__name__, function, args, kwargs, written(function.__name__, args, kwargs))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        """Return a read-only copy, because later accesses to the memory itself would not be checked."""
        if copy is False:
            raise ValueError(f"{self!r} must be copied to become a numpy.ndarray; omit copy=False")
        found = self.touch("asarray").astype(dtype or self.raw.dtype, copy=True)
        found.setflags(write=False)
        return found

    def __getitem__(self, index: Any) -> Any:
        part = self._part(index)
        if part is not None and part.raw.ndim == 0:
            return part.touch("getitem")[()]
        if part is not None:
            return part
        return self._run("getitem", lambda array, at: array[at], (self, index), {}, [])

    def __setitem__(self, index: Any, value: Any) -> None:
        part = self._part(index)
        if part is None:
            self._run("setitem", setitem, (self, index, value), {}, [self])
        else:
            part._run("setitem", setitem, (part, ..., value), {}, [part])  # noqa: SLF001  of the same class

    def _part(self, index: Any) -> SimPinned | None:
        """Return the elements at `index` if NumPy shows them without a copy, so that only they are checked."""
        parts = index if isinstance(index, tuple) else (index,)
        if not all(one is None or one is Ellipsis or isinstance(one, (int, np.integer, slice)) for one in parts):
            return None
        return SimPinned(self.raw[(*parts, ...)] if Ellipsis not in parts else self.raw[index], *self._place)

    @property
    def _place(self) -> tuple[HostMemory, _Memory]:
        return self.owner, self.block

    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        if name in _FACTS:
            return getattr(self.raw, name)
        if name.startswith("_") or name in _HIDDEN or not hasattr(np.ndarray, name):
            raise AttributeError(f"a pinned array has no {name!r}: it would show memory that copies use; copy it first")
        if not callable(getattr(np.ndarray, name)):
            return self._run(name, getattr, (self, name), {}, [])

        def method(*args: Any, **kwargs: Any) -> Any:
            writes = [self] if _writes_itself(name, args, kwargs) else written(name, args, kwargs)
            return self._run(name, getattr(np.ndarray, name), (self, *args), kwargs, writes)

        return method

    def __bool__(self) -> bool:
        return bool(self.touch("bool"))

    def __int__(self) -> int:
        return int(self.touch("int").item())

    def __float__(self) -> float:
        return float(self.touch("float").item())

    def __str__(self) -> str:
        return str(self.touch("str"))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(f"{self!r} cannot be pickled: copies may be at work on it; pickle a copy of it")


def _writes_itself(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the array method of that `name` writes the array."""
    if name == "byteswap":
        return bool(args[0] if args else kwargs.get("inplace", False))
    return name in WRITING_METHODS or name == "setfield"


def _shows(result: Any) -> bool:
    return all(map(_shows, result)) if isinstance(result, (tuple, list)) else isinstance(result, SimPinned)


def _arrays(value: Any) -> Iterator[SimPinned]:
    if isinstance(value, SimPinned):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _arrays(one)
    elif isinstance(value, dict):
        yield from _arrays(tuple(value.values()))


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


# ------------------------------------------------------------------------------------------------ made and copied


def empty(shape: tuple[int, ...], dtype: Any, machine: Machine) -> SimPinned:
    """Return a poisoned C-contiguous array in pinned memory."""
    home, wanted = host_memory(machine), as_dtype(dtype)
    nbytes = prod(shape) * wanted.itemsize
    memory = _Memory(home, nbytes)
    raw = home.source.bytes_of(memory.block)[:nbytes]
    SimPinned(raw, home, memory).touch("empty", write=True).fill(poison(wanted))
    if nbytes:
        low = memory.block.address
        with machine.working():
            home.log.forget(Span(low, low + memory.block.nbytes, dense=True))
    return SimPinned(raw.view(wanted).reshape(shape) if nbytes else np.empty(shape, wanted), home, memory)


def transfer(src: Any, dst: Any, *, non_blocking: bool) -> None:
    """Copy between host and device in order of the device's current stream; see `cuassay.devices.copy`.

    Raises
    ------
    RaceError
        If another stream's copy or work on either array is not ordered before it.
    CaptureError
        If the host would have to wait while the stream is being captured.
    """
    host, array = (dst, src) if isinstance(src, SimArray) else (src, dst)
    device = array.owner
    machine, is_left = device.machine, non_blocking and isinstance(host, SimPinned)
    if not is_left:
        syncdebug.waits("a copy between host and device")
    with machine.working():
        queue = machine.current_queue(device)
        if not is_left:
            refuse_capture(queue, "a copy that the host waits for", "use pinned memory and non_blocking=True")
            refuse_wait("a copy that the host waits for")
        if isinstance(host, SimPinned):
            host.block.used_by(queue)
            _captured.keep(host)
        known: list[Any] = [one for one in (src, dst) if isinstance(one, (SimArray, SimPinned))]
        accesses = [(one, one is dst) for one in known]
        target, origin = _inside(dst), _inside(src)
        seconds = src.nbytes / _LINK
        calls.submit(
            queue,
            device,
            "copy",
            accesses,
            lambda: np.copyto(target, origin),
            flops=seconds * machine.profile.throughput,
            event="copied",
        )
        if not is_left:
            device.host_waits(queue)


def _inside(array: Any) -> np.ndarray[Any, Any]:
    raw: np.ndarray[Any, Any] = array.raw if isinstance(array, (SimArray, SimPinned)) else array
    return raw
