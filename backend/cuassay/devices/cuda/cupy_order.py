"""Reports CuPy's own streams and events, and the runtime's waits that CuPy exposes, to a sanitizer.

`cuassay.devices.cuda.watched` reports cuassay's streams. Calls that CuPy's compiled code makes without its Python
interface are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cupy

from cuassay.core import watchers
from cuassay.core.watchers import Occurrence
from cuassay.devices.cuda.driver.cupy_private import BaseStream
from cuassay.devices.cuda.streams.stream import Ordering, adopt, current_stream

__all__ = ["replacements"]

_Method = Callable[..., Any]


def replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yield the owner, the name, and what replaces the attribute while a watcher wants accesses."""
    yield BaseStream, "synchronize", _stream_synchronize(BaseStream.synchronize)
    yield BaseStream, "record", _stream_record(BaseStream.record)
    yield BaseStream, "wait_event", _stream_wait(BaseStream.wait_event)
    yield cupy.cuda.Event, "record", _event_record(cupy.cuda.Event.record)
    yield cupy.cuda.Event, "synchronize", _event_synchronize(cupy.cuda.Event.synchronize)
    yield from _runtime_calls()
    yield BaseStream, "done", _stream_done(BaseStream.done)
    yield cupy.cuda.Event, "done", _event_done(cupy.cuda.Event.done)


def _report(event: str, index: int, subject: int, stream: int = 0) -> None:
    if watchers.state.watchers:
        watchers.tell(Occurrence(event, f"cuda:{index}", subject, stream))


def _stream_synchronize(plain: _Method) -> _Method:
    def synchronize(stream: Any) -> None:
        plain(stream)
        if not isinstance(stream, Ordering):
            found = adopt(stream)
            _report("stream_synchronized", found.device_id, int(found.ptr))

    return synchronize


def _stream_record(plain: _Method) -> _Method:
    def record(stream: Any, event: Any = None) -> Any:
        made = plain(stream, event)
        found = adopt(stream)
        _report("event_recorded", found.device_id, int(made.ptr), int(found.ptr))
        return made

    return record


def _stream_wait(plain: _Method) -> _Method:
    def wait_event(stream: Any, event: Any) -> None:
        plain(stream, event)
        found = adopt(stream)
        _report("event_waited", found.device_id, int(event.ptr), int(found.ptr))

    return wait_event


def _event_record(plain: _Method) -> _Method:
    def record(event: Any, stream: Any = None) -> None:
        plain(event, stream)
        found = current_stream() if stream is None else adopt(stream)
        _report("event_recorded", found.device_id, int(event.ptr), int(found.ptr))

    return record


def _event_synchronize(plain: _Method) -> _Method:
    def synchronize(event: Any) -> None:
        plain(event)
        _report("event_synchronized", cupy.cuda.runtime.getDevice(), int(event.ptr))

    return synchronize


def _device() -> int:
    return int(cupy.cuda.runtime.getDevice())


#: What is reported after a call of the runtime function of that name, from its arguments.
_RUNTIME: dict[str, Callable[..., None]] = {
    "deviceSynchronize": lambda: _report("device_synchronized", _device(), 0),
    "streamSynchronize": lambda stream: _report("stream_synchronized", _device(), stream),
    "eventSynchronize": lambda event: _report("event_synchronized", _device(), event),
    "eventRecord": lambda event, stream: _report("event_recorded", _device(), event, stream),
    "streamWaitEvent": lambda stream, event, flags=0: _report("event_waited", _device(), event, stream),
}


def _runtime_calls() -> Iterator[tuple[Any, str, Any]]:
    """Yield the runtime functions that CuPy exposes; CuPy itself calls them in another way."""
    for name, tell in _RUNTIME.items():
        yield cupy.cuda.runtime, name, _then(getattr(cupy.cuda.runtime, name), tell)


def _then(plain: _Method, tell: _Method) -> _Method:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        tell(*args, **kwargs)
        return result

    return call


def _stream_done(plain: Any) -> property:
    def done(stream: Any) -> bool:
        is_done = bool(plain.__get__(stream))
        if is_done:
            found = adopt(stream)
            _report("stream_found_done", found.device_id, int(found.ptr))
        return is_done

    return property(done)


def _event_done(plain: Any) -> property:
    def done(event: Any) -> bool:
        is_done = bool(plain.__get__(event))
        if is_done:
            _report("event_found_done", cupy.cuda.runtime.getDevice(), int(event.ptr))
        return is_done

    return property(done)
