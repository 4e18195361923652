"""A source of integers: addresses with nothing behind them, for tests, trace replay and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from cuassay.core.capability import format_bytes
from cuassay.errors import ArgumentError, OutOfMemoryError

__all__ = ["IntegerSource"]

#: Apart from each other, so that blocks of two segments are never neighbours by accident.
_GAP = 2**21


class IntegerSource:
    """A `cuassay.core.protocols.MemorySource` that hands out numbers.

    Events are reached at once, unless `is_lazy`: then each waits for `complete`.

    Parameters
    ----------
    total : int
        Bytes there are.
    is_lazy : bool
        Whether events wait for `complete`.

    Attributes
    ----------
    ranges : dict of int to int
        Every range in use: address to bytes.
    reserves, releases : int
        Calls so far.
    waits : list of (stream, event)
        Device-side waits asked for.
    """

    def __init__(self, total: int = 2**60, *, is_lazy: bool = False) -> None:
        self.total = total
        self.ranges: dict[int, int] = {}
        self.reserves = 0
        self.releases = 0
        self.waits: list[tuple[int, int]] = []
        self._is_lazy = is_lazy
        self._used = 0
        self._next = _GAP
        self._event = 0
        self._open: set[int] = set()

    @property
    def free(self) -> int:
        """Bytes not in use."""
        return self.total - self._used

    def reserve(self, nbytes: int, stream: int) -> int:
        """A range never given before. Raises `OutOfMemoryError`."""
        if nbytes > self.free:
            raise OutOfMemoryError(
                f"no room for {format_bytes(nbytes)} on stream {stream}; {format_bytes(self.free)} of "
                f"{format_bytes(self.total)} are free; release something"
            )
        address = self._next
        self._next += -(-nbytes // _GAP) * _GAP + _GAP
        self._used += nbytes
        self.reserves += 1
        self.ranges[address] = nbytes
        return address

    def release(self, address: int) -> None:
        """Take the range back. Raises `ArgumentError` for one that is not in use."""
        if address not in self.ranges:
            raise ArgumentError(f"{address:#x} is not in use here; release what `reserve` gave, once")
        self._used -= self.ranges.pop(address)
        self.releases += 1

    def alias(self, pages: Sequence[tuple[int, int]]) -> int:
        """A second address of the pages; it takes no memory."""
        address = self._next
        self._next += sum(nbytes for _, nbytes in pages) + _GAP
        self.ranges[address] = 0
        return address

    def record(self, stream: int) -> int:
        """A new event."""
        self._event += 1
        if self._is_lazy:
            self._open.add(self._event)
        return self._event

    def wait(self, stream: int, event: int) -> None:
        """Note the wait."""
        self.waits.append((stream, event))

    def query(self, event: int) -> bool:
        """True when the event was reached."""
        return event not in self._open

    def pending(self) -> tuple[int, ...]:
        """Events not reached yet, in the order they were recorded."""
        return tuple(sorted(self._open))

    def complete(self, event: int) -> None:
        """Let the event be reached."""
        self._open.discard(event)

    def __repr__(self) -> str:
        return f"IntegerSource({format_bytes(self.free)} free of {format_bytes(self.total)})"
