"""Callbacks for events of CUDA streams and memory, under the names of ``torch.cuda._gpu_trace``.

Callbacks get integers: handles of events and streams, and addresses of memory. `cuassay.core.watchers` offers more, for
every device kind. Differences from torch: each function returns a handle whose ``remove()`` unregisters the callback,
and the trace is on as long as a callback is registered.
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
    """Call ``cb(event)`` when an event gets its handle, which is at its first record."""
    return _register("event_made", lambda occurrence: cb(occurrence.subject))


def register_callback_for_event_deletion(cb: Callable[[int], object]) -> WatchHandle:
    """Call ``cb(event)`` when an event returns its handle, which another event may then get."""
    return _register("event_dropped", lambda occurrence: cb(occurrence.subject))


def register_callback_for_event_record(cb: Callable[[int, int], object]) -> WatchHandle:
    """Call ``cb(event, stream)`` after an event is recorded."""
    return _register("event_recorded", lambda occurrence: cb(occurrence.subject, occurrence.stream))


def register_callback_for_event_wait(cb: Callable[[int, int], object]) -> WatchHandle:
    """Call ``cb(event, stream)`` after a stream is made to wait for an event."""
    return _register("event_waited", lambda occurrence: cb(occurrence.subject, occurrence.stream))


def register_callback_for_memory_allocation(cb: Callable[[int], object]) -> WatchHandle:
    """Call ``cb(address)`` when the caching allocator returns a block."""
    return _register("memory_taken", lambda occurrence: cb(occurrence.subject))


def register_callback_for_memory_deallocation(cb: Callable[[int], object]) -> WatchHandle:
    """Call ``cb(address)`` when a block is freed."""
    return _register("memory_returned", lambda occurrence: cb(occurrence.subject))


def register_callback_for_stream_creation(cb: Callable[[int], object]) -> WatchHandle:
    """Call ``cb(stream)`` when a stream of the pool is created, which is at its first use."""
    return _register("stream_made", lambda occurrence: cb(occurrence.subject))


def register_callback_for_device_synchronization(cb: Callable[[], object]) -> WatchHandle:
    """Call ``cb()`` after the host has waited for a device."""
    return _register("device_synchronized", lambda _: cb())


def register_callback_for_stream_synchronization(cb: Callable[[int], object]) -> WatchHandle:
    """Call ``cb(stream)`` after the host has waited for a stream."""
    return _register("stream_synchronized", lambda occurrence: cb(occurrence.subject))


def register_callback_for_event_synchronization(cb: Callable[[int], object]) -> WatchHandle:
    """Call ``cb(event)`` after the host has waited for an event."""
    return _register("event_synchronized", lambda occurrence: cb(occurrence.subject))


def _register(event: str, call: Callable[[Occurrence], object]) -> WatchHandle:
    """Register a callback whose exceptions are logged, as in torch, so that the observed program continues."""

    def run_logged(occurrence: Occurrence) -> None:
        if not occurrence.device.startswith("cuda:"):
            return
        try:
            call(occurrence)
        except Exception:  # noqa: BLE001  a callback may raise anything
            _log.exception("a callback for %s raised", event)

    return watch(run_logged, (event,))
