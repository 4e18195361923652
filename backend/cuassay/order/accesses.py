"""Happens-before: which memory accesses are ordered after which, independent of the order in which they ran.

A race need not change any value. On a simulated device, which runs work at once in program order, it never does.
Order is therefore tracked separately, by the clocks of `cuassay.order.clock`. An array is any object with shape,
strides, itemsize, dtype, nbytes and ``__array_interface__``, by which NumPy learns its address. Its elements are never
read.

Source: Flanagan and Freund, FastTrack, PLDI 2009 (epochs instead of whole clocks per access).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from cuassay.arrays import layout
from cuassay.core.units import format_bytes
from cuassay.errors import RaceError
from cuassay.order.clock import Host, Queue

__all__ = ["Access", "AccessLog", "Span", "race"]

#: Host addresses are at least this; offsets in a simulated device's memory are below it.
_HOST_BEGINS = 2**40

_serial = count()


class Span(NamedTuple):
    """The byte range ``[low, high)`` of an array. `dense` is true if its elements fill the whole range."""

    low: int
    high: int
    dense: bool


@dataclass(slots=True, eq=False)
class Access:
    """One read or write of one array by one launch; `site` is the caller's file and line."""

    queue: Queue
    epoch: int
    write: bool
    span: Span
    array: Any
    name: str
    site: tuple[str, int]

    @property
    def verb(self) -> str:
        """``write`` or ``read``."""
        return "write" if self.write else "read"

    @property
    def place(self) -> str:
        """The text for where it begins."""
        low = self.span.low
        return f"offset {low}" if low < _HOST_BEGINS else f"address {low:#x} of the host"

    def __str__(self) -> str:
        size = format_bytes(self.array.nbytes)
        what = f"{self.array.dtype} array of shape {self.array.shape} ({size} at {self.place})"
        return f"{self.verb} by {self.name} of a {what} on {self.queue.label} at {self.site[0]}:{self.site[1]}"

    def covers(self, other: Access) -> bool:
        """Return True if this access certainly includes every byte of `other`."""
        if self.span.dense:
            return self.span.low <= other.span.low and other.span.high <= self.span.high
        a, b = self.array, other.array
        return self.span == other.span and a.shape == b.shape and a.strides == b.strides and a.itemsize == b.itemsize

    def overlaps(self, other: Access) -> bool:
        """Return True if the two share a byte or if that is too hard to decide. Their spans must intersect."""
        return (self.span.dense and other.span.dense) or layout.overlap(self.array, other.array)


_Entry = tuple[int, int, Access]


class AccessLog:
    """The accesses of one memory, a device's or the host's, that a later launch could still race with.

    Accesses are grouped by the bit length of their size, and each group is sorted by start, so that a look-up bisects
    once per group. A look-up drops accesses that the host has seen finished and accesses that a later one covers.
    """

    def __init__(self, memory: str, host: Host) -> None:
        self.memory = memory
        self._host = host
        self._classes: dict[int, list[_Entry]] = {}
        self._newest: Access | None = None
        self._repeatable: dict[int, tuple[Any, bool, Access]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._classes.values()))

    def add(self, new: Access) -> None:
        """Check and enter `new`. Raises `RaceError` if it conflicts with an access that is not ordered before it."""
        self.check(new)
        self.insert(new)

    def insert(self, new: Access) -> None:
        """Enter `new` without a check."""
        length = (new.span.high - new.span.low).bit_length()
        insort(self._classes.setdefault(length, []), (new.span.low, next(_serial), new))
        self._newest = new

    def note_repeatable(self, array: Any, epoch: int, key: Any) -> None:
        """Let `repeat` find the newest access, if it is that of `array`, by `key`, whose first item is the address."""
        newest = self._newest
        if newest is not None and (newest.array, newest.epoch) == (array, epoch) and newest.span.low == key[0]:
            self._repeatable[key[0]] = key, newest.write, newest

    def repeat(self, queue: Queue, epoch: int, write: bool, key: Any, name: str, site: tuple[str, int]) -> bool:
        """Renew the access of `key` by `queue` instead of adding an equal one, or return False.

        The caller knows that the access is ordered after all others. It is renewed if no other access has met it since.
        """
        known = self._repeatable.get(key[0])
        if known is None or known[2].queue is not queue or known[1] is not write or known[0] != key:
            return False
        access = known[2]
        access.epoch, access.name, access.site = epoch, name, site
        return True

    def check(self, new: Access) -> None:
        """Raise `RaceError` if `new` conflicts with an access not ordered before it; drop the accesses it covers."""
        repeatable = self._repeatable
        for entries, position in self._meeting(new.span):
            old = entries[position][2]
            if repeatable:
                repeatable.pop(old.span.low, None)
            if self._host.clock.get(old.queue.number, 0) >= old.epoch:
                del entries[position]
            elif new.queue.clock.get(old.queue.number, 0) >= old.epoch:
                if (new.write or not old.write) and new.covers(old):
                    del entries[position]
            elif (new.write or old.write) and new.overlaps(old):
                raise race(self.memory, old, new)

    def users(self, span: Span) -> list[Access]:
        """Return the accesses in `span` that the host has not seen finished."""
        found = (entries[position][2] for entries, position in self._meeting(span))
        return [old for old in found if self._host.clock.get(old.queue.number, 0) < old.epoch]

    def forget(self, span: Span) -> None:
        """Drop every access that intersects `span`, because its memory was freed."""
        if self._classes:
            for entries, position in self._meeting(span):
                self._repeatable.pop(entries[position][0], None)
                del entries[position]

    def clear(self) -> None:
        """Drop all accesses, because the host has waited for the whole device."""
        self._classes.clear()
        self._repeatable.clear()

    def _meeting(self, span: Span) -> Iterator[tuple[list[_Entry], int]]:
        """Yield the list and index of each entry that intersects `span`.

        Within a list the last index comes first, so that the caller may delete each entry.
        """
        low, end = span.low, (span.high,)
        for length, entries in self._classes.items():
            if not entries or entries[0][0] >= span.high:
                continue
            first, position = low - (1 << length), bisect_left(entries, end) - 1
            while position >= 0 and entries[position][0] >= first:
                if entries[position][2].span.high > low:
                    yield entries, position
                position -= 1


def race(memory: str, old: Access, new: Access) -> RaceError:
    """Return the error for `new`, which conflicts with `old` and is not ordered after it."""
    waiter, other = (_variable(queue, new.queue.device != old.queue.device) for queue in (new.queue, old.queue))
    return RaceError(
        f"{memory}: {new} is not ordered after the {old}; insert {waiter}.wait_stream({other}) "
        f"before the {new.verb}, or wait for an event recorded after the {old.verb}"
    )


def _variable(queue: Queue, show_device: bool) -> str:
    """Name a queue in advice: ``stream3``, followed by its device if the advice concerns two devices."""
    return f"{queue.variable}@{queue.device}" if show_device else queue.variable
