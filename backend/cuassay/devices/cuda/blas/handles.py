"""Handles of a library: one for each thread and device, because two threads must not use one handle at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import cupy

from cuassay.devices.cuda.driver.graph_driver import relaxed

__all__ = ["Lease", "ThreadHandles"]

T = TypeVar("T")


class Lease(Generic[T]):
    """The handles of one thread, by device; they become idle when the thread has ended and nobody holds the lease."""

    def __init__(self, idle: dict[int, list[T]]) -> None:
        self.by_device: dict[int, T] = {}
        self._idle = idle

    def __del__(self) -> None:
        for device, handle in self.by_device.items():
            self._idle.setdefault(device, []).append(handle)


class ThreadHandles(Generic[T]):
    """Makes a handle at a thread's first request on a device, unless an ended thread has left an idle one.

    Parameters
    ----------
    make : callable
        Makes a handle on the current device, which takes milliseconds.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._idle: dict[int, list[T]] = {}
        self._local = threading.local()

    @property
    def lease(self) -> Lease[T]:
        """The lease of the calling thread; as long as the lease exists, no other thread gets its handles."""
        if not hasattr(self._local, "lease"):
            self._local.lease = Lease(self._idle)
        found: Lease[T] = self._local.lease
        return found

    def on(self, device: int) -> T:
        """Return the calling thread's handle on the current device `device`."""
        by_device = self.lease.by_device
        if device not in by_device:
            try:
                by_device[device] = self._idle.setdefault(device, []).pop()
            except IndexError:
                by_device[device] = self._made()
        return by_device[device]

    def _made(self) -> T:
        with relaxed():  # making a handle allocates, which would break a capture
            cupy.cuda.runtime.free(0)  # creates a context, which a new thread does not have
            return self._make()
