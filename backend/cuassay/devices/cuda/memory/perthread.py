"""The default stream of each thread: its handle, 2, means another stream in each, so allocators number them.

A number is odd, unlike a stream's address, and represents the stream of one thread on one device. When the thread ends,
the next thread without a number gets it, together with the memory cached for it, and first waits for the work of the
previous thread's stream. Only the thread itself can name its stream to the driver; `handle` describes what other
threads use.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from itertools import count
from typing import Any

from cuassay.devices.cuda.driver import forks
from cuassay.errors import CuassayError

__all__ = ["LEGACY", "PER_THREAD", "device_of", "ended", "handle", "is_number", "own", "take"]

#: Addresses that the driver reserves for default streams: the legacy one, which is also 0, and each thread's own.
LEGACY, PER_THREAD = 1, 2

_numbers = count(3, 2)

#: The device of each number.
_devices: dict[int, int] = {}

#: By device, the numbers of threads that have ended, each with a marker of all work of its stream.
_idle: dict[int, dict[int, Any]] = {}


class _Lease:
    """The numbers of one thread, by device; they become idle when the thread ends, because this is thread-local."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.numbers: dict[int, int] = {}
        self.orders: dict[int, Any] = {}

    def __del__(self, idle: Any = _idle, is_finalizing: Any = sys.is_finalizing) -> None:
        # In another thread the handle would mean that thread's stream, and nobody could tell when this thread's work is
        # done.
        if is_finalizing() or forks.is_child() or threading.get_ident() != self.thread:
            return
        for index, mine in self.numbers.items():
            with suppress(CuassayError):  # a number that cannot be marked is not reused
                idle.setdefault(index, {})[mine] = self.orders[index].record(PER_THREAD)


class Own(threading.local):
    """The `lease` of each thread."""

    def __init__(self) -> None:
        self.lease = _Lease()


#: The state of this thread.
own = Own()


def is_number(stream: int) -> bool:
    """Whether it represents the default stream of some thread, rather than an address."""
    return bool(stream & 1) and stream != LEGACY


def take(index: int, order: Any) -> int:
    """Take a number for this thread's default stream on device `index`, whose streams `order` orders."""
    lease = own.lease
    try:
        mine, marker = _idle.setdefault(index, {}).popitem()
    except KeyError:
        mine, marker = next(_numbers), None
        _devices[mine] = index
    try:
        order.wait(PER_THREAD, marker)
    except BaseException:
        _idle[index][mine] = marker
        raise
    lease.orders[index], lease.numbers[index] = order, mine
    return mine


def device_of(stream: int) -> int | None:
    """Return the device of a number, or None for an address, which does not tell."""
    return _devices.get(stream)


def ended(stream: int) -> Any:
    """Return the marker of all work of a number's stream if its thread has ended, else None."""
    return _idle.get(_devices.get(stream, -1), {}).get(stream)


def handle(stream: int) -> int:
    """Return the handle by which this thread names `stream` to the driver: an address as it is, its own number as 2.

    For another thread's default stream it is 1, the legacy stream: an event recorded there follows the work of every
    blocking stream, including each thread's default stream, and all of these wait for what the legacy stream waits for.
    """
    if not is_number(stream):
        return stream
    return PER_THREAD if stream in own.lease.numbers.values() else LEGACY
