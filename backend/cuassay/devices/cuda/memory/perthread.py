"""The default stream of each thread: its handle, 2, means another stream in each, so allocators know it by a number.

A number is odd, which no stream's address is, and represents the stream of one thread on one device. When the thread
ends, the next thread that has none gets its number, with the memory kept for it, and first waits for what the former
gave its stream. Only the thread itself can name its stream to the driver: see `handle` for what others say.
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

#: Addresses that the driver reserves for its default streams: the legacy one, as 0 is, too, and each thread's own.
LEGACY, PER_THREAD = 1, 2

_numbers = count(3, 2)

#: The device of each number.
_devices: dict[int, int] = {}

#: By device, the numbers of threads that have ended, each with a marker of all that its stream was given.
_idle: dict[int, dict[int, Any]] = {}


class _Lease:
    """The numbers of one thread, by device; they become idle when it ends, and this goes with its variables."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.numbers: dict[int, int] = {}
        self.orders: dict[int, Any] = {}

    def __del__(self, idle: Any = _idle, is_finalizing: Any = sys.is_finalizing) -> None:
        # In another thread the handle would be another stream's, so that nobody could tell when this one is done.
        if is_finalizing() or forks.is_child() or threading.get_ident() != self.thread:
            return
        for index, mine in self.numbers.items():
            with suppress(CuassayError):  # a number that cannot be marked is not used again
                idle.setdefault(index, {})[mine] = self.orders[index].record(PER_THREAD)


class Own(threading.local):
    """The `lease` of each thread."""

    def __init__(self) -> None:
        self.lease = _Lease()


#: What this thread has.
own = Own()


def is_number(stream: int) -> bool:
    """Whether it represents the default stream of some thread; an address does not."""
    return bool(stream & 1) and stream != LEGACY


def take(index: int, order: Any) -> int:
    """A number for this thread's default stream on device `index`, whose streams `order` orders."""
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
    """The device of a number; None for an address, which does not say."""
    return _devices.get(stream)


def ended(stream: int) -> Any:
    """The marker of all that the stream of a number was given, where its thread has ended; else None."""
    return _idle.get(_devices.get(stream, -1), {}).get(stream)


def handle(stream: int) -> int:
    """What this thread calls `stream` when it speaks to the driver: an address as it is, its own number 2.

    Another thread's default stream it calls 1, the legacy one: an event recorded there follows what every blocking
    stream was given, each thread's default stream among them, and all of them wait for what it waits for.
    """
    if not is_number(stream):
        return stream
    return PER_THREAD if stream in own.lease.numbers.values() else LEGACY
