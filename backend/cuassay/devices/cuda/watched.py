"""Reports CUDA streams, events, host waits and copies to watchers.

The methods of cuassay are fast because they check for no watcher. So they are replaced while there are watchers, and
restored afterwards. The allocator reports memory (`cuassay.memory.watched`), hooks report graphs
(`cuassay.core.graph_hooks`), and a pool's stream is reported where it is made. Waits that cuassay's own code issues by
handle, and the work of other libraries, are not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from cuassay.core.watchers import Occurrence, replace_while_watched, tell
from cuassay.devices.cuda import accesses
from cuassay.devices.cuda.backend import CudaBackend
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.streams.event import Event, handle_of
from cuassay.devices.cuda.streams.stream import Ordering, adopt, current_stream

__all__ = ["register"]

_Method = Callable[..., Any]


def register() -> None:
    """Report to watchers from now on."""
    for name, make in (
        ("_own", _making),
        ("__del__", _dropping),
        ("record", _recording),
        ("wait", _waiting),
        ("query", _event_asking),
        ("synchronize", _event_synchronizing),
    ):
        replace_while_watched(Event, name, make)
    for name, make in (
        ("wait_event", _stream_waiting),
        ("wait_stream", _joining),
        ("query", _stream_asking),
        ("synchronize", _stream_synchronizing),
    ):
        replace_while_watched(Ordering, name, make)
    replace_while_watched(runtime, "synchronize", _device_synchronizing)
    for name, make in (
        ("synchronize", _backend_synchronizing),
        ("transfer", _transferring),
        ("from_host", _writing),
        ("to_host", _reading),
    ):
        replace_while_watched(CudaBackend, name, make)


def _tell(event: str, index: int, subject: int, stream: int = 0) -> None:
    tell(Occurrence(event, f"cuda:{index}", subject, stream))


def _address(stream: Any, index: int) -> int:
    found = current_stream(index) if stream is None else adopt(stream)
    return int(found.ptr)


# ------------------------------------------------------------------------------------------------ events


def _making(plain: _Method) -> _Method:
    def own(event: Event, index: int, handle: int) -> None:
        plain(event, index, handle)
        _tell("event_made", index, handle)

    return own


def _dropping(plain: _Method) -> _Method:
    def drop(event: Event) -> None:
        index, handle = event.device.index if event.handle else -1, event.handle
        plain(event)
        if handle:
            _tell("event_dropped", index, handle)

    return drop


def _recording(plain: _Method) -> _Method:
    def record(event: Event, stream: Any = None) -> None:
        plain(event, stream)
        index = event.device.index
        _tell("event_recorded", index, event.handle, _address(stream, index))

    return record


def _waiting(plain: _Method) -> _Method:
    def wait(event: Event, stream: Any = None) -> None:
        plain(event, stream)
        if event.handle:
            waiter = current_stream() if stream is None else adopt(stream)
            _tell("event_waited", waiter.device_id, event.handle, int(waiter.ptr))

    return wait


def _event_asking(plain: _Method) -> _Method:
    def query(event: Event) -> bool:
        is_done = bool(plain(event))
        if is_done and event.handle:
            _tell("event_found_done", event.device.index, event.handle)
        return is_done

    return query


def _event_synchronizing(plain: _Method) -> _Method:
    def synchronize(event: Event) -> None:
        begin = perf_counter()
        plain(event)
        if event.handle:
            device = f"cuda:{event.device.index}"
            tell(Occurrence("event_synchronized", device, event.handle, begin=begin, end=perf_counter()))

    return synchronize


# ------------------------------------------------------------------------------------------------ streams


def _stream_waiting(plain: _Method) -> _Method:
    def wait_event(stream: Ordering, event: Any) -> None:
        plain(stream, event)
        handle = handle_of(event)
        if handle:
            _tell("event_waited", stream.device_id, handle, stream.ptr)

    return wait_event


def _joining(plain: _Method) -> _Method:
    def wait_stream(stream: Ordering, other: Any) -> None:
        plain(stream, other)
        waited = adopt(other)
        handle = vars(waited).get("join_ptr", 0)  # for a foreign stream, the event is gone with the wrapper
        _tell("event_recorded", waited.device_id, handle, waited.ptr)
        _tell("event_waited", stream.device_id, handle, stream.ptr)

    return wait_stream


def _stream_synchronizing(plain: _Method) -> _Method:
    def synchronize(stream: Ordering) -> None:
        begin = perf_counter()
        plain(stream)
        device = f"cuda:{stream.device_id}"
        tell(Occurrence("stream_synchronized", device, stream.ptr, begin=begin, end=perf_counter()))

    return synchronize


def _stream_asking(plain: _Method) -> _Method:
    def query(stream: Ordering) -> bool:
        is_done = bool(plain(stream))
        if is_done:
            _tell("stream_found_done", stream.device_id, stream.ptr)
        return is_done

    return query


def _device_synchronizing(plain: _Method) -> _Method:
    def synchronize(index: int | None = None) -> None:
        begin = perf_counter()
        plain(index)
        device = f"cuda:{runtime.current_device() if index is None else index}"
        tell(Occurrence("device_synchronized", device, begin=begin, end=perf_counter()))

    return synchronize


def _backend_synchronizing(plain: _Method) -> _Method:
    def synchronize(backend: CudaBackend, index: int) -> None:
        begin = perf_counter()
        plain(backend, index)
        tell(Occurrence("device_synchronized", f"cuda:{index}", begin=begin, end=perf_counter()))

    return synchronize


# ------------------------------------------------------------------------------------------------ copies


def _transferring(plain: _Method) -> _Method:
    def transfer(backend: CudaBackend, src: Any, dst: Any, *, non_blocking: bool = False) -> None:
        accesses.tell_copy(src, dst)
        with accesses.inside():
            plain(backend, src, dst, non_blocking=non_blocking)
        is_upward = isinstance(src, np.ndarray)
        _tell_copy("to the device" if is_upward else "to the host", dst if is_upward else src)

    return transfer


def _writing(plain: _Method) -> _Method:
    def from_host(backend: CudaBackend, array: np.ndarray[Any, Any], index: int) -> Any:
        with accesses.inside():
            made = plain(backend, array, index)
        accesses.tell_copy(array, made)
        if not backend.is_pinned(array):  # otherwise `transfer` reported it
            _tell_copy("to the device", made)
        return made

    return from_host


def _reading(plain: _Method) -> _Method:
    def to_host(backend: CudaBackend, array: Any) -> Any:
        accesses.tell_copy(array, None)
        with accesses.inside():
            found = plain(backend, array)
        _tell_copy("to the host", array)
        accesses.tell_wait(array.data.device_id)
        return found

    return to_host


def _tell_copy(name: str, array: Any) -> None:
    index = array.data.device_id
    tell(Occurrence("copied", f"cuda:{index}", 0, _address(None, index), array.nbytes, name))
