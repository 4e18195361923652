"""Functions called at events of CUDA streams and memory, by the names of ``torch.cuda._gpu_trace``.

They are called with integers: handles of events and streams, addresses of memory. `cuassay.core.watchers` tells more,
and of every kind of device. Where we differ from torch: each returns a handle whose ``remove()`` ends it, and the trace
is on while a callback is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cuassay.core.watchers import Occurrence, WatchHandle, watch

__all__ = [
    "register_callback_for_device_synchronization",
    "register_callback_for_event_creation",
    "register_callback_for_event_deletion",
    "register_callback_for_event_record",
    "register_callback_for_event_synchronization",
    "register_callback_for_event_wait",
    "register_callback_for_memory_allocation",
    "register_callback_for_memory_deallocation",
    "register_callback_for_stream_creation",
    "register_callback_for_stream_synchronization",
]

_log = logging.getLogger(__name__)


def register_callback_for_event_creation(cb: Callable[[int], object]) -> WatchHandle:
    """``cb(event)`` is called when an event gets its handle: at its first record."""
    return _register("event_made", lambda occurrence: cb(occurrence.subject))


def register_callback_for_event_deletion(cb: Callable[[int], object]) -> WatchHandle:
    """``cb(event)`` is called when an event gives its handle back; another event may get it."""
    return _register("event_dropped", lambda occurrence: cb(occurrence.subject))


def register_callback_for_event_record(cb: Callable[[int, int], object]) -> WatchHandle:
    """``cb(event, stream)`` is called after an event was recorded."""
    return _register("event_recorded", lambda occurrence: cb(occurrence.subject, occurrence.stream))


def register_callback_for_event_wait(cb: Callable[[int, int], object]) -> WatchHandle:
    """``cb(event, stream)`` is called after a stream was told to wait for an event."""
    return _register("event_waited", lambda occurrence: cb(occurrence.subject, occurrence.stream))


def register_callback_for_memory_allocation(cb: Callable[[int], object]) -> WatchHandle:
    """``cb(address)`` is called when the caching allocator gave out a block."""
    return _register("memory_taken", lambda occurrence: cb(occurrence.subject))


def register_callback_for_memory_deallocation(cb: Callable[[int], object]) -> WatchHandle:
    """``cb(address)`` is called when a block was freed."""
    return _register("memory_returned", lambda occurrence: cb(occurrence.subject))


def register_callback_for_stream_creation(cb: Callable[[int], object]) -> WatchHandle:
    """``cb(stream)`` is called when a stream of the pool is made: at its first use."""
    return _register("stream_made", lambda occurrence: cb(occurrence.subject))


def register_callback_for_device_synchronization(cb: Callable[[], object]) -> WatchHandle:
    """``cb()`` is called after the host waited for a device."""
    return _register("device_synchronized", lambda _: cb())


def register_callback_for_stream_synchronization(cb: Callable[[int], object]) -> WatchHandle:
    """``cb(stream)`` is called after the host waited for a stream."""
    return _register("stream_synchronized", lambda occurrence: cb(occurrence.subject))


def register_callback_for_event_synchronization(cb: Callable[[int], object]) -> WatchHandle:
    """``cb(event)`` is called after the host waited for an event."""
    return _register("event_synchronized", lambda occurrence: cb(occurrence.subject))


def _register(event: str, call: Callable[[Occurrence], object]) -> WatchHandle:
    """What a callback raises is logged, as torch does: the program that is watched goes on."""

    def told(occurrence: Occurrence) -> None:
        if not occurrence.device.startswith("cuda:"):
            return
        try:
            call(occurrence)
        except Exception:  # noqa: BLE001  whatever a callback raises
            _log.exception("a callback for %s raised", event)

    return watch(told, (event,))
