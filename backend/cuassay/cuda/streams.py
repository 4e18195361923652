"""Streams and events under ``torch.cuda.streams``' names; CuPy is imported at first use.

They extend CuPy's streams and events. `cuassay.devices.cuda.streams.stream` and `.event` describe how, and how streams
and events of other libraries are adopted. Differences from torch: a stream is itself a context manager (``with s:``);
`set_stream` holds until the end of the ``with`` block it is called in; errors say why an event has no time.
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
    found = globals()[name] = getattr(_streams(), name)
    return found


@cache
def _streams() -> Any:
    from cuassay.devices.cuda.driver import runtime

    runtime.init()
    from cuassay.devices.cuda.streams import stream as module

    return module


def _first(index: int = -1) -> Any:
    """Bind CuPy's current-stream function and the package's stream types for `current_stream`, at its first call."""
    module = _streams()
    globals().update(_get=module.get_current_stream, _ours=module.OURS)
    if module.runtime.device_count() == 1:
        default = module.cupy_default()
        globals().update(_default=default, _only=module.ours_for(default, 0))
    return _get(index)


_get: Callable[..., Any] = _first
_ours: frozenset[type] = frozenset()

#: CuPy's default stream, and this package's object for it if there is only one device, for a fast comparison.
_default: Any = object()
_only: Any = None


def current_stream(device: int | str | Device | None = None) -> Stream | ExternalStream:
    """Return this thread's current stream on `device` (None: the current device), set by this package or by CuPy."""
    found: Any = _get() if device is None else _get(_index(device))
    if found is _default:
        found = _only
    elif found.__class__ not in _ours:
        found = _streams().ours_for(found, _index(device))
    return found  # type: ignore[no-any-return]


def default_stream(device: int | str | Device | None = None) -> ExternalStream:
    """Return the legacy default stream of `device` (None: the current one), whose address is 0."""
    found: ExternalStream = _streams().default_stream(_index(device))
    return found


def get_stream_from_external(data_ptr: int, device: int | str | Device | None = None) -> ExternalStream:
    """Return another library's stream on `device` (None: the current one) by its address; it is never destroyed here.

    Raises
    ------
    ArgumentError
        If no stream can have this address. An address of a destroyed stream, or of something else, ends the process
        when the stream is used, because only the driver knows its streams.
    """
    from cuassay.devices.cuda.driver.addresses import stream_at

    found: ExternalStream = _streams().ExternalStream(stream_at(data_ptr), device)
    return found


def set_stream(stream: Any) -> None:
    """Make `stream` this thread's current stream, also after later ``with`` blocks end; None changes nothing."""
    _streams().set_stream(stream)


def stream(stream: Any) -> AbstractContextManager[Any]:
    """Make `stream` current inside the block: a cuassay or CuPy stream, an address, or a ``__cuda_stream__`` object.

    Its device becomes current too, and both are restored. None changes nothing.
    """
    entered: AbstractContextManager[Any] = _streams().use(stream)
    return entered


def spin(cycles: int) -> None:
    """Keep the current stream busy for `cycles` clock cycles of its device without touching memory, to test ordering.

    About 2 million cycles take a millisecond on an H200.
    """
    from cuassay.devices.cuda.launch.launch import kernel

    _streams()
    kernel("spin.cu", "spin")(1, 1, (int(cycles),))


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Set the reaction to waits of the host in this process: ``"default"`` (0) none, ``"warn"`` (1), ``"error"`` (2).

    It covers waits for this package's streams, events and devices, and reads of arrays by the host, on every device
    kind. It does not cover waits inside other libraries than CuPy.

    Raises
    ------
    ArgumentError
        If there is no such mode.
    """
    from cuassay.core import syncdebug

    syncdebug.set_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """Return the number of the sync debug mode."""
    from cuassay.core import syncdebug

    return syncdebug.get_mode()


def _index(device: int | str | Device | None) -> int:
    _streams()  # without CUDA, this raises an error that says how to get it
    from cuassay.devices.cuda.driver.context import index_of

    return index_of(device)


def _in_child() -> None:
    globals().update(_get=_first)
    _streams.cache_clear()


os.register_at_fork(after_in_child=_in_child)
