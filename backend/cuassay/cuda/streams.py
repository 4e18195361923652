"""Streams and events by ``torch.cuda.streams``' names; CuPy is imported at the first use of one.

They are CuPy's, extended. `cuassay.devices.cuda.streams.stream` and `.event` say how, and how others' streams and
events are adopted. Three things differ from torch: a stream is entered as it is (``with s:``), `set_stream` holds to
the end of the ``with`` block it is called in, and errors say why no time can be read from an event.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuassay.core.device import Device
    from cuassay.devices.cuda.streams.event import Event
    from cuassay.devices.cuda.streams.stream import ExternalStream, Stream

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "set_stream",
    "set_sync_debug_mode",
    "spin",
    "stream",
]

_CLASSES = ("Event", "ExternalStream", "Stream")


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its classes: {', '.join(_CLASSES)}")
    found = globals()[name] = getattr(_room(), name)
    return found


@cache
def _room() -> Any:
    from cuassay.devices.cuda.driver import runtime

    runtime.init()
    from cuassay.devices.cuda.streams import stream as room

    return room


def _first(index: int = -1) -> Any:
    """Makes CuPy's function and what tells its streams from ours known to `current_stream`."""
    room = _room()
    globals().update(_get=room.get_current_stream, _ours=room.OURS)
    if room.runtime.device_count() == 1:
        default = room.cupy_default()
        globals().update(_default=default, _only=room.ours_for(default, 0))
    return _get(index)


_get: Callable[..., Any] = _first
_ours: frozenset[type] = frozenset()

#: CuPy's default stream, and ours for it where there is one device: to tell them costs one comparison.
_default: Any = object()
_only: Any = None


def current_stream(device: int | str | Device | None = None) -> Stream | ExternalStream:
    """The stream that work of this thread goes to on `device` (None: the current one), by ours or by CuPy's doing."""
    found: Any = _get() if device is None else _get(_index(device))
    if found is _default:
        found = _only
    elif found.__class__ not in _ours:
        found = _room().ours_for(found, _index(device))
    return found  # type: ignore[no-any-return]


def default_stream(device: int | str | Device | None = None) -> ExternalStream:
    """The legacy default stream of `device` (None: the current one): address 0."""
    found: ExternalStream = _room().default_stream(_index(device))
    return found


def get_stream_from_external(data_ptr: int, device: int | str | Device | None = None) -> ExternalStream:
    """Somebody else's stream by its address, on `device` (None: the current one); it is never destroyed here.

    Raises
    ------
    ArgumentError
        If no stream can have this address. One that a stream had, or that is of something else, ends the process when
        the stream is used: only the driver knows its streams.
    """
    from cuassay.devices.cuda.driver.addresses import stream_at

    found: ExternalStream = _room().ExternalStream(stream_at(data_ptr), device)
    return found


def set_stream(stream: Any) -> None:
    """Work of this thread goes to `stream` from here, and again after each ``with`` block; None changes nothing."""
    _room().set_stream(stream)


def stream(stream: Any) -> AbstractContextManager[Any]:
    """Work of this thread goes to `stream` inside the block: ours, CuPy's, an address, a ``__cuda_stream__`` object.

    Its device is current there too, and both are restored. None changes nothing.
    """
    entered: AbstractContextManager[Any] = _room().use(stream)
    return entered


def spin(cycles: int) -> None:
    """Keep the current stream busy for `cycles` clock cycles of its device, without touching memory: to test order by.

    About 2 million are a millisecond on an H200.
    """
    from cuassay.devices.cuda.launch.launch import kernel

    _room()
    kernel("spin.cu", "spin")(1, 1, (int(cycles),))


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What a wait of the host does in this process: ``"default"`` (0) nothing, ``"warn"`` (1), ``"error"`` (2).

    Seen are waits of our streams, events and devices, and reads of arrays by the host, on every kind of device; not
    those inside other libraries than CuPy.

    Raises
    ------
    ArgumentError
        If there is no such mode.
    """
    from cuassay.core import syncdebug

    syncdebug.set_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """The sync debug mode's number."""
    from cuassay.core import syncdebug

    return syncdebug.get_mode()


def _index(device: int | str | Device | None) -> int:
    _room()  # where there is no CUDA it says so, and how to get it
    from cuassay.devices.cuda.driver.context import index_of

    return index_of(device)


def _in_child() -> None:
    globals().update(_get=_first)
    _room.cache_clear()


os.register_at_fork(after_in_child=_in_child)
