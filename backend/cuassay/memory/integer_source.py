"""A source of integers (addresses without memory) for tests and trace replay, and a base for sources without pages."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import accumulate
from typing import Concatenate, NoReturn, ParamSpec, TypeVar

from cuassay.core.units import format_bytes
from cuassay.errors import ArgumentError, CapabilityError, OutOfMemoryError

__all__ = ["IntegerSource", "Pageless"]

#: The gap between ranges, so that blocks of two segments are never neighbours by accident.
_GAP = 2**21


class Pageless:
    """The page methods of a `cuassay.core.protocols.MemorySource` that has only segments."""

    granularity = 0

    #: The advice in the error.
    instead = "reserve segments"

    def span(self, nbytes: int, stream: int) -> int:
        """Raise `CapabilityError`: there are no pages."""
        self._refuse()

    def map(self, address: int, pages: Sequence[int]) -> None:
        """Raise `CapabilityError`: there are no pages."""
        self._refuse()

    def unmap(self, pages: Sequence[int]) -> None:
        """Raise `CapabilityError`: there are no pages."""
        self._refuse()

    def alias(self, pages: Sequence[int]) -> int:
        """Raise `CapabilityError`: there are no pages."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise CapabilityError(f"{self!r} has no pages; {self.instead}")


P = ParamSpec("P")
R = TypeVar("R")


def _locked(method: Callable[Concatenate[IntegerSource, P], R]) -> Callable[Concatenate[IntegerSource, P], R]:
    """Let threads call the method one at a time."""

    @wraps(method)
    def alone(source: IntegerSource, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with source._lock:  # noqa: SLF001  # this wraps a method
            return method(source, *args, **kwargs)

    return alone


class IntegerSource:
    """A `cuassay.core.protocols.MemorySource` that hands out numbers.

    Each range gets the lowest address that has room for it, so addresses are reused, as a driver's are. Events are
    reached at once, unless `is_lazy`: then each event waits for `complete`.

    Parameters
    ----------
    total : int
        The bytes in total.
    is_lazy : bool
        Whether events wait for `complete`.
    granularity : int
        Page sizes are multiples of this many bytes; 0 for a source that has only segments.

    Attributes
    ----------
    ranges : dict of int to int
        Every segment, span and alias in use: address to bytes.
    pages : dict of int to int
        Every page: its address in a span, to bytes.
    aliases : dict of int to tuple of int
        Every alias: its address to the pages that it maps.
    reserves, releases, maps, unmaps, aliased : int
        The numbers of calls of `reserve`, `release`, `map`, `unmap` and `alias`.
    waits : list of (stream, event)
        The waits on the device that were requested.
    synchronized : list of int
        The streams that the host waited for.
    """

    def __init__(self, total: int = 2**60, *, is_lazy: bool = False, granularity: int = _GAP) -> None:
        self.total = total
        self.granularity = granularity
        self.ranges: dict[int, int] = {}
        self.pages: dict[int, int] = {}
        self.aliases: dict[int, tuple[int, ...]] = {}
        self.reserves = self.releases = self.maps = self.unmaps = self.aliased = 0
        self.waits: list[tuple[int, int]] = []
        self.synchronized: list[int] = []
        self._is_lazy = is_lazy
        self._used = 0
        self._held: dict[int, int] = {}
        self._starts: list[int] = []
        self._sorted: list[int] = []
        self._lock = threading.RLock()
        self._event = 0
        self._open: dict[int, int] = {}

    @property
    def free(self) -> int:
        """The bytes that are not in use."""
        return self.total - self._used

    @property
    def driver_calls(self) -> int:
        """The number of calls that a driver would have received, not counting events."""
        return self.reserves + self.releases + self.maps + self.unmaps + self.aliased

    @_locked
    def reserve(self, nbytes: int, stream: int) -> int:
        """Reserve a range. Raises `OutOfMemoryError`."""
        self._take(nbytes, stream)
        self.reserves += 1
        address = self._addresses(nbytes)
        self._held[address] = nbytes
        return address

    def _take(self, nbytes: int, stream: int) -> None:
        if nbytes > self.free:
            raise OutOfMemoryError(
                f"no room for {format_bytes(nbytes)} on stream {stream}; {format_bytes(self.free)} of "
                f"{format_bytes(self.total)} are free; release something"
            )
        self._used += nbytes

    def _addresses(self, nbytes: int) -> int:
        """Return the lowest address that has room for that many bytes."""
        address = _GAP
        for start in self._starts:
            if start - address >= _room(nbytes):
                break
            address = start + _room(self.ranges[start])
        self.ranges[address] = nbytes
        insort(self._starts, address)
        return address

    @_locked
    def span(self, nbytes: int, stream: int) -> int:
        """Reserve addresses without memory."""
        self._demand_pages(nbytes)
        return self._addresses(nbytes)

    @_locked
    def map(self, address: int, pages: Sequence[int]) -> None:
        """Record the pages. Raises `OutOfMemoryError`, and `ArgumentError` for addresses that are mapped already."""
        self._demand_pages(address, *pages)
        placed = dict(zip(accumulate(pages[:-1], initial=address), pages, strict=True))
        if not self.pages.keys().isdisjoint(placed):
            raise ArgumentError(f"pages are at {address:#x} already; unmap them first")
        self._take(sum(pages), 0)
        self.pages |= placed
        self._sorted = sorted(self.pages)
        self.maps += 1

    @_locked
    def unmap(self, pages: Sequence[int]) -> None:
        """Drop the pages. Raises `ArgumentError` for an address without a page, and for a page that an alias maps."""
        shown = {page for alias in self.aliases.values() for page in alias}
        for page in pages:
            if page not in self.pages or page in shown:
                raise ArgumentError(f"{page:#x} is not a page, or is in an alias; release the alias first")
        self._used -= sum(map(self.pages.pop, pages))
        self._sorted = sorted(self.pages)
        self.unmaps += 1

    @_locked
    def alias(self, pages: Sequence[int]) -> int:
        """Make a second address for the pages, without memory. Raises `ArgumentError` for an address without a page."""
        if not self.pages.keys() >= set(pages) or len(set(pages)) != len(pages):
            raise ArgumentError(f"{len(pages)} pages are not all mapped, or not all different; map them first")
        address = self._addresses(sum(map(self.pages.__getitem__, pages)))
        self.aliases[address] = tuple(pages)
        self.aliased += 1
        return address

    def _demand_pages(self, *numbers: int) -> None:
        if not self.granularity or any(number % self.granularity for number in numbers):
            raise ArgumentError(f"{numbers} are not all multiples of {self.granularity} bytes; align them")

    @_locked
    def release(self, address: int) -> None:
        """Release the range. Raises `ArgumentError` for a range that is not in use."""
        if address not in self.ranges:
            raise ArgumentError(f"{address:#x} is not in use here; release what `reserve` gave, once")
        if address not in self._held and address not in self.aliases and self._mapped_in(address):
            raise ArgumentError(f"pages are mapped in the span at {address:#x}; unmap them first")
        del self.ranges[address]
        self._starts.remove(address)
        self.aliases.pop(address, None)
        self._used -= self._held.pop(address, 0)
        self.releases += 1

    @_locked
    def synchronize(self, streams: Sequence[int]) -> None:
        """Record the streams; their events are reached, and so are the events that they waited for."""
        self.synchronized.extend(streams)
        reached = {event for event, stream in self._open.items() if stream in streams}
        reached |= {event for stream, event in self.waits if stream in streams}
        for event in reached:
            self._open.pop(event, None)

    @_locked
    def physical(self, address: int, nbytes: int) -> list[tuple[int, int]]:
        """Return the ranges of segments and spans behind ``[address, address + nbytes)``, in order.

        Raises `ArgumentError` for an address in no range, or in a span without a page.
        """
        position = bisect_right(self._starts, address) - 1
        start = self._starts[position] if position >= 0 else -1
        if start < 0 or address + nbytes > start + self.ranges[start]:
            raise ArgumentError(f"{nbytes:,} bytes at {address:#x} are in no range; give what is in use")
        if start in self._held:
            return [(address, address + nbytes)]
        return self._through_pages(self.aliases.get(start), start, address, address + nbytes)

    def _through_pages(self, shown: Sequence[int] | None, start: int, low: int, high: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        at = start
        for page in shown if shown is not None else self._pages_of(low, high):
            at = page if shown is None else at
            begin, end = max(at, low) - at + page, min(at + self.pages[page], high) - at + page
            at += self.pages[page]
            if begin < end:
                joins = bool(found) and found[-1][1] == begin
                found[-1:] = [(found[-1][0], end)] if joins else [*found[-1:], (begin, end)]
        if sum(end - begin for begin, end in found) != high - low:
            raise ArgumentError(f"{low:#x} to {high:#x} has memory in part only; map pages first")
        return found

    def _mapped_in(self, address: int) -> bool:
        position = bisect_left(self._sorted, address)
        return position < len(self._sorted) and self._sorted[position] < address + self.ranges[address]

    def _pages_of(self, low: int, high: int) -> list[int]:
        return self._sorted[max(bisect_right(self._sorted, low) - 1, 0) : bisect_left(self._sorted, high)]

    @_locked
    def record(self, stream: int) -> int:
        """Make an event."""
        self._event += 1
        if self._is_lazy:
            self._open[self._event] = stream
        return self._event

    @_locked
    def wait(self, stream: int, event: int) -> None:
        """Record the wait."""
        self.waits.append((stream, event))

    def query(self, event: int) -> bool:
        """Return True if the event has been reached."""
        return event not in self._open

    @_locked
    def pending(self) -> tuple[int, ...]:
        """Return the events that are not reached yet, in the order in which they were recorded."""
        return tuple(self._open)

    @_locked
    def complete(self, event: int) -> None:
        """Mark the event as reached."""
        self._open.pop(event, None)

    def __repr__(self) -> str:
        return f"IntegerSource({format_bytes(self.free)} free of {format_bytes(self.total)})"


def _room(nbytes: int) -> int:
    """Return the bytes of addresses that a range of that many bytes takes, including the gap after it."""
    return -(-nbytes // _GAP) * _GAP + _GAP
