"""The only way in which NumPy's functions reach simulated memory: log the accesses, unwrap, run, place the result.

A function gets arrays that it only reads as read-only views, so that a write that this module does not know of raises
instead of escaping the log. A result in the arena stays a view of it; any other result is copied in. A result that is
neither an array nor a plain value is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from cuassay.core import syncdebug
from cuassay.devices.sim.device import SimDevice
from cuassay.devices.sim.device_array import DeviceArray
from cuassay.devices.sim.machine import refuse_capture, refuse_wait
from cuassay.devices.sim.memory import Block
from cuassay.errors import CaptureError, DeviceError
from cuassay.order.accesses import Span
from cuassay.order.clock import Queue

if TYPE_CHECKING:
    from cuassay.devices.sim.capture import SimCapture

__all__ = ["call", "has_arrays", "new_array", "new_like", "submit", "to_host", "unwrapped"]

#: Types of results that are values, not arrays: the host has waited for them.
_PLAIN = (bool, int, float, complex, str, bytes)

#: Gets an array's memory.
_RAW = attrgetter("raw")


def call(
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    writes: Sequence[Any] = (),
    reads: bool = True,
    views: bool = False,
    waits: bool = False,
    sim_device: SimDevice | None = None,
) -> Any:
    """Run `function` on the arrays inside `args` and `kwargs`, in order of the current stream.

    Parameters
    ----------
    name : str
        Its name in messages.
    writes : sequence
        The arrays it writes.
    reads : bool
        Whether it reads the values of the other arrays.
    views : bool
        Whether it may return a view; then it has read nothing.
    waits : bool
        Whether the host must wait for it, as for a result whose shape depends on values.
    sim_device : SimDevice, optional
        The device of the result if no argument is an array.

    Raises
    ------
    TypeError
        If a `numpy.ndarray` is among the arguments, or the result cannot be kept on the device.
    RaceError, DeviceError, CaptureError, CapabilityError, OutOfMemoryError
        Raised for the access, the arrays' devices, a capture, the result's dtype, or memory.
    """
    found: list[DeviceArray] = []
    _collect(name, args, found)
    if kwargs:
        _collect(name, tuple(kwargs.values()), found)
    for array in writes:
        if not isinstance(array, DeviceArray):
            raise _mixed(name, array)
    home = _home(name, found, sim_device)
    with home.machine.working():
        queue = home.machine.current_queue(home)
        work = _Work(name, function, args, kwargs, found, list(writes), home, queue, reads=reads)
        result = work.compute() if views else None
        if views and home.machine.has_views and work.is_view(result):
            return work.place(result)
        if queue.capture is None:
            return work.run(result, waits=waits)
        return work.record(queue.capture, waits=waits)


class _Work:
    """One call in progress: what it accesses, and where its results go."""

    __slots__ = ("args", "found", "function", "home", "kwargs", "name", "plain", "queue", "reads", "site", "writes")

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        found: list[DeviceArray],
        writes: list[DeviceArray],
        home: SimDevice,
        queue: Queue,
        *,
        reads: bool,
    ) -> None:
        self.name, self.function, self.args, self.kwargs = name, function, args, kwargs
        self.found, self.writes, self.home, self.queue = found, writes, home, queue
        self.reads, self.plain, self.site = reads, False, ("", 0)

    def run(self, result: Any, *, waits: bool) -> Any:
        """Run now, in order of the queue; `result` exists already if it might have been a view."""
        if waits:
            syncdebug.waits(f"{self.name}, whose result's shape or value the host needs")
        flops = _flops(self.name, self.found)
        self.site = self.home.launch(self.queue, self.name, self._accesses(), flops=flops)
        placed = self.place(self.compute() if result is None else result)
        if waits or self.plain:
            self.home.host_waits(self.queue)
        return placed

    def record(self, capture: SimCapture, *, waits: bool) -> Any:
        """Record into the queue's `capture`: stand-ins determine shapes, and outputs are poisoned until a replay."""
        if waits:
            raise CaptureError(
                f"{self.name} is illegal while {self.queue.label} is being captured: the host would wait for its "
                f"shape or value, and nothing has run yet; call it outside, or use a form of fixed shape such as where"
            )
        replaced = {id(array): _stand_in(array.raw) for array in self.found}
        result = self.function(*self._swapped(self.args, replaced), **self._swapped(self.kwargs, replaced))
        outputs: list[DeviceArray | None] = []
        placed = self.place(result, outputs, {id(replaced[id(array)]): array for array in self.writes})
        if self.plain:
            return self.record(capture, waits=True)
        args, kwargs = self._given(self.args), self._given(self.kwargs)
        function, targets = self.function, [None if array is None else array.raw for array in outputs]
        accesses = [*self._accesses(), *((array, True) for array in outputs if array is not None)]
        flops = _flops(self.name, self.found)
        capture.add(self.queue, self.name, accesses, lambda: _fill(targets, function(*args, **kwargs)), flops)
        return placed

    def _swapped(self, value: Any, replaced: Mapping[int, Any]) -> Any:
        return unwrapped(value, DeviceArray, lambda array: replaced[id(array)])

    def _accesses(self) -> list[tuple[DeviceArray, bool]]:
        written = {id(array) for array in self.writes}
        touched = [(array, False) for array in self.found if self.reads and id(array) not in written]
        touched += [(array, True) for array in self.writes]
        return touched

    def compute(self) -> Any:
        """Return NumPy's result on the arrays themselves; arrays that are only read are read-only views."""
        return self.function(*self._given(self.args), **self._given(self.kwargs))

    def _given(self, value: Any) -> Any:
        return unwrapped(value, DeviceArray, self._raw)

    def _raw(self, array: DeviceArray) -> np.ndarray[Any, Any]:
        for one in self.writes:
            if array is one:
                return array.raw
        return _read_only(array.raw)

    def is_view(self, result: Any) -> bool:
        """Whether all of `result` is memory of the device, or it has no elements."""
        if isinstance(result, (tuple, list)):
            return all(map(self.is_view, result))
        return isinstance(result, np.ndarray) and (not result.size or _inside(result, self.home))

    def place(
        self,
        result: Any,
        outputs: list[DeviceArray | None] | None = None,
        known: Mapping[int, DeviceArray] | None = None,
    ) -> Any:
        """Return `result` with every array on the device.

        `outputs` gets each new array, and None for each given one.
        """
        if isinstance(result, (np.ndarray, np.generic)):
            if isinstance(result, (np.ma.MaskedArray, np.matrix)):
                raise self._not_kept(result)
            return self._place_array(np.asanyarray(result), outputs, known or {})
        if isinstance(result, (tuple, list)):
            placed = [self.place(one, outputs, known) for one in result]
            return type(result)(*placed) if hasattr(result, "_fields") else type(result)(placed)
        if isinstance(result, _PLAIN):
            self.plain = True
        elif result is not None and not isinstance(result, (np.dtype, type)):
            raise self._not_kept(result)
        return result

    def _not_kept(self, result: Any) -> TypeError:
        what = type(result).__qualname__
        return TypeError(f"{self.name} gives a {what}, which cannot be kept on {self.home.device}; call .get() first")

    def _place_array(
        self,
        result: np.ndarray[Any, Any],
        outputs: list[DeviceArray | None] | None,
        known: Mapping[int, DeviceArray],
    ) -> DeviceArray:
        for array in self.writes:
            if result is array.raw:
                return array
        if outputs is not None and id(result) in known:
            outputs.append(None)
            return known[id(result)]
        if result.size and self.home.machine.has_views and _inside(result, self.home):
            return _view(result, self.home, self.found)
        made = new_like(result, self.home, self.queue)
        if outputs is None:
            made.raw[...] = result
            self.home.also(self.queue, self.name, made, self.site)
        else:
            outputs.append(made)
        return made


# ---------------------------------------------------------------------------------------------- shared


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any], sim_device: SimDevice, queue: Queue) -> DeviceArray:
    """Return a poisoned array; without elements it takes no memory."""
    if 0 in shape:
        sim_device.machine.require_storage(sim_device.device, dtype)
        return sim_device.array(np.empty(shape, dtype), None)
    raw, block = sim_device.allocate(shape, dtype, queue)
    return sim_device.array(raw, block, Span(block.low, block.low + raw.nbytes, dense=True))


def new_like(like: np.ndarray[Any, Any], sim_device: SimDevice, queue: Queue) -> DeviceArray:
    """Return a poisoned array of the shape and dtype of `like`, with its axes in the same order in memory."""
    made = new_array(like.shape, like.dtype, sim_device, queue)
    if like.flags.c_contiguous or made.block is None:
        return made
    strides = np.empty_like(like, order="K").strides
    raw: np.ndarray[Any, Any] = np.ndarray(like.shape, like.dtype, sim_device.arena.buffer, made.block.low, strides)
    return sim_device.array(raw, made.block)


def submit(
    queue: Queue,
    sim_device: SimDevice,
    name: str,
    accesses: Iterable[tuple[DeviceArray, bool]],
    work: Callable[[], object],
    *,
    flops: float = 0.0,
    event: str = "launched",
) -> None:
    """Run `work` in order of `queue`, or record it if the queue is being captured; report `event` to watchers."""
    if queue.capture is not None:
        queue.capture.add(queue, name, list(accesses), work, flops, event)
        return
    sim_device.launch(queue, name, accesses, flops=flops, event=event)
    work()


def to_host(array: DeviceArray, what: str) -> np.ndarray[Any, Any]:
    """Return `array` for the host, read in order of the current stream and waited for; copy it before passing it on."""
    syncdebug.waits(f"a read of an array by the host ({what})")
    home = array.owner
    with home.machine.working():
        queue = home.machine.current_queue(home)
        refuse_capture(queue, f"reading an array on the host ({what})", "read it after the replay")
        refuse_wait(f"reading an array on the host ({what})")
        home.launch(queue, what, [(array, False)], event="copied")
        home.host_waits(queue)
        return _read_only(array.raw)


# ---------------------------------------------------------------------------------------------- helpers


def has_arrays(value: Any) -> bool:
    """Whether `value`, a nest of lists, tuples and dicts, contains a simulated array."""
    if isinstance(value, (tuple, list)):
        return any(map(has_arrays, value))
    if isinstance(value, dict):
        return any(map(has_arrays, value.values()))
    return isinstance(value, DeviceArray)


def _collect(name: str, value: Any, found: list[DeviceArray]) -> None:
    """Collect the simulated arrays inside `value`, each once. Raises `TypeError` for a `numpy.ndarray`."""
    if isinstance(value, DeviceArray):
        for one in found:
            if value is one:
                return
        found.append(value)
    elif isinstance(value, np.ndarray) or hasattr(type(value), "is_host_memory"):
        if value.ndim:
            raise _mixed(name, value)
    elif isinstance(value, (tuple, list)):
        for one in value:
            _collect(name, one, found)
    elif isinstance(value, dict):
        _collect(name, tuple(value.values()), found)


def _read_only(raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = raw.view()
    view.setflags(write=False)
    return view


def _mixed(name: str, value: Any) -> TypeError:
    return TypeError(
        f"{name} got a {type(value).__module__}.{type(value).__qualname__} and an array on a simulated device; "
        f"move it there with xp.asarray(array), or the other to the host with .get()"
    )


def _home(name: str, found: Sequence[DeviceArray], sim_device: SimDevice | None) -> SimDevice:
    home = sim_device if sim_device is not None else found[0].owner
    for array in found:
        if array.owner is not home:
            raise DeviceError(
                f"{name} needs all arrays on one device; got {home.device} and {array.device}; "
                f"move one with cuassay.ops.copy(array, device=...)"
            )
    return home


def unwrapped(value: Any, kind: type, raw: Callable[[Any], Any] = _RAW) -> Any:
    """Return `value`, a nest of lists, tuples and dicts, with ``raw(array)`` in place of each array of type `kind`."""
    if isinstance(value, kind):
        return raw(value)
    if isinstance(value, tuple):
        return tuple(unwrapped(one, kind, raw) for one in value)
    if isinstance(value, list):
        return [unwrapped(one, kind, raw) for one in value]
    if isinstance(value, Mapping):
        return {key: unwrapped(one, kind, raw) for key, one in value.items()}
    return value


def _address(raw: np.ndarray[Any, Any], home: SimDevice) -> int:
    address: int = raw.__array_interface__["data"][0]
    return address - home.arena.base


def _inside(raw: np.ndarray[Any, Any], home: SimDevice) -> bool:
    return raw.base is not None and 0 <= _address(raw, home) < home.arena.total


def _view(raw: np.ndarray[Any, Any], home: SimDevice, sources: Sequence[DeviceArray]) -> DeviceArray:
    """Return the part of the arena that `raw` shows, writable, kept alive by the block of its source array."""
    offset = _address(raw, home)
    view: np.ndarray[Any, Any] = np.ndarray(raw.shape, raw.dtype, home.arena.buffer, offset, raw.strides)
    return home.array(view, _block_at(offset, sources))


def _block_at(offset: int, sources: Sequence[DeviceArray]) -> Block | None:
    return next((s.block for s in sources if s.block is not None and s.block.low <= offset < s.block.high), None)


def _stand_in(raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return harmless values in the array's shape: the identity in the last two axes, to be inverted, or zeros."""
    stand = np.zeros_like(raw)
    if raw.ndim >= 2 and raw.dtype.kind not in "biu":
        extent = min(raw.shape[-2:])
        stand[..., range(extent), range(extent)] = 1
    return stand


def _fill(targets: Sequence[np.ndarray[Any, Any] | None], result: Any) -> None:
    """Copy each array of `result`, a nest as `_Work.place` walks it, to its target; None needs no copy."""
    for target, one in zip(targets, _leaves(result), strict=True):
        if target is not None and target.shape != one.shape:
            raise CaptureError(
                f"a captured call gives shape {one.shape} in a replay, but {target.shape} in the capture: its shape "
                "depends on values; call it outside the capture"
            )
        if target is not None:
            target[...] = one


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list)):
        for one in result:
            yield from _leaves(one)
    elif isinstance(result, (np.ndarray, np.generic)):
        yield result


def _flops(name: str, found: Sequence[DeviceArray]) -> float:
    """Estimate the operations: one for each element, times the contracted extent in a product."""
    size = max((array.size for array in found), default=0)
    is_product = name in ("matmul", "dot", "einsum", "tensordot", "inner")
    product = is_product and max((array.ndim for array in found), default=0) > 1 and found[0].ndim
    return 2.0 * size * (found[0].shape[-1] if product else 1)
