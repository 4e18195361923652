"""The out-of-memory message: what was requested, what is free, who holds the rest, and the one thing to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from cuassay.core.units import format_bytes
from cuassay.errors import OutOfMemoryError
from cuassay.memory.blocks import Segment

__all__ = ["OomReport", "out_of_memory"]

_HOLDERS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OomReport:
    """What is known when a request fails; sizes in bytes.

    Attributes
    ----------
    asked, stream
        The request.
    allowed : int
        The most that may be reserved.
    total : int or None
        The device's memory, if known.
    reserved, live, pending, largest_free : int
        Bytes taken from the device; live; freed but in use by other streams; and the largest free range of this stream.
    private : int
        Bytes in private pools, live or free.
    settings : str
        Options that are not at their defaults, in the form of ``CUASSAY_ALLOC_CONF``.
    is_paged : bool
        Whether memory comes in pages if the source has them, so that free pages can be stitched.
    """

    name: str
    asked: int
    stream: int
    allowed: int
    total: int | None
    reserved: int
    live: int
    pending: int
    largest_free: int
    private: int
    settings: str = ""
    is_paged: bool = True

    def advice(self) -> str:
        """Return the one thing to try."""
        cached = self.reserved - self.live - self.pending
        if self.asked > (self.allowed if self.total is None else self.total):
            return "it can never fit: ask for less"
        if self.total is not None and self.asked > self.allowed - self.reserved + cached and self.allowed < self.total:
            return "raise per_process_memory_fraction in CUASSAY_ALLOC_CONF, or drop arrays"
        if self.pending >= self.asked:
            return "end the capture, or synchronize the streams that still use freed blocks"
        if 2 * self.private > self.reserved:
            return "release the private pools (graphs and MemPools) that hold most of it"
        if cached >= self.asked:
            remedy = "work in smaller parts" if self.is_paged else "set expandable_segments:True in CUASSAY_ALLOC_CONF"
            return f"free memory is in pieces: allocate the largest arrays first, or {remedy}"
        return "drop arrays, or work in smaller parts"


def out_of_memory(shortage: OomReport, segments: Iterable[Segment]) -> OutOfMemoryError:
    """Make the error, with all of this in its message."""
    s = shortage
    of = "" if s.total is None else f" of {format_bytes(s.total)}"
    limit = "" if s.total is None or s.allowed >= s.total else f" ({format_bytes(s.allowed)} allowed)"
    waiting = f", {format_bytes(s.pending)} freed but in use by other streams" if s.pending else ""
    return OutOfMemoryError(
        f"{s.name} has no room for {s.asked:,} bytes ({format_bytes(s.asked)}) on stream {s.stream}; reserved: "
        f"{format_bytes(s.reserved)}{of}{limit}, {format_bytes(s.live)} of it live{waiting}; largest free range of "
        f"this stream: {format_bytes(s.largest_free)}; held by {_holders(segments)}; "
        f"{f'set: {s.settings}; ' if s.settings else ''}{s.advice()}"
    )


def _holders(segments: Iterable[Segment]) -> str:
    """Describe the largest holders of live memory, by stream and pool."""
    held: Counter[str] = Counter()
    for segment in segments:
        pool = segment.stream_pool.pool
        name = f"stream {segment.stream_pool.stream}" + (
            f" of pool {pool.id[0]}_{pool.id[1]}" if pool.is_private else ""
        )
        held[name] += sum(block.nbytes for block in segment if block.is_live)
    shown = [f"{name} ({format_bytes(nbytes)})" for name, nbytes in held.most_common(_HOLDERS_SHOWN) if nbytes]
    return ", ".join(shown) or "nobody here: other processes, or other libraries in this one"
