"""One call of a candidate as the judge saw it: private copies, times by the judge's clock, and printable text."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cuassay.core.capability import DTYPE_NAMES
from cuassay.judging.arena import interpreted, unwritten
from cuassay.judging.protocol import RawReply

__all__ = [
    "LOSSES",
    "Output",
    "Raised",
    "Reply",
    "escaped",
    "escaped_path",
    "heard",
    "output_of",
    "polled",
    "printed",
    "raised_of",
]

#: What a lost candidate did, by reason.
LOSSES: Mapping[str, str] = {
    "load": "its file could not be loaded",
    "crash": "its process crashed",
    "exit": "its process ended by itself",
    "closed": "its process was ended",
    "hang": "it does not answer",
    "memory": "it took more memory than it may",
    "processes": "it started more processes than it may",
    "protocol": "what its process wrote is not an answer",
    "jail": "its process could not be started",
}

#: The number of characters of a candidate's text that are kept.
_TEXT = 500


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """One output of a call.

    Attributes
    ----------
    array : numpy.ndarray or None
        A private copy of the written bytes, in the claimed shape and dtype; None if there is no array.
    shape, dtype : tuple of int and str
        The shape and dtype that the candidate claims.
    problem : str
        Why there is no array: ``missing``, ``too large``, ``not an array`` or ``unknown dtype``; else empty.
    taken, poison : numpy.ndarray and bytes
        The bytes of its room, and the pattern that they held before the call.
    """

    array: NDArray[Any] | None
    shape: tuple[int, ...]
    dtype: str
    problem: str
    taken: NDArray[Any]
    poison: bytes

    @property
    def unwritten_nbytes(self) -> int:
        """The bytes of the room that still hold the poison of this call."""
        return unwritten(self.taken, self.poison)


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that `run` raised, in the candidate's own text, shortened and escaped."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """One call as the judge saw it.

    Attributes
    ----------
    outputs : tuple of Output
        One for each requested output; further outputs are counted in `extra`.
    extra : int
        The number of outputs beyond the requested ones.
    asked_ns, begun_ns, ended_ns : int
        Times by the judge's clock (`time.perf_counter_ns`): when the process was asked to be ready, when the arguments
        began to be written, and when the outputs had been copied. The judge's copies are part of the time, so that work
        done early or late gains nothing.
    changed : tuple of int
        The positions of the array arguments that the call changed.
    device_s : float
        In tier ``kernel``, seconds of the launches by the device's clock, including the empty interval; else 0.
    is_queued : bool
        In tier ``kernel``, whether the device never waited for the host during that time.
    raised : Raised or None
        The exception of `run`, if it raised one.
    """

    outputs: tuple[Output, ...]
    extra: int
    asked_ns: int
    begun_ns: int
    ended_ns: int
    changed: tuple[int, ...]
    device_s: float
    is_queued: bool
    raised: Raised | None


def output_of(reply: RawReply, index: int, taken: tuple[NDArray[Any], bytes]) -> Output:
    """Return output number `index` of a reply, from the bytes of its room and the poison of that room."""
    if index >= len(reply.claims):
        return Output(None, (), "", "missing", *taken)
    claim = reply.claims[index]
    array, problem = interpreted(taken[0], claim)
    return Output(array, claim.shape, DTYPE_NAMES[claim.dtype], problem, *taken)


def escaped(text: str) -> str:
    """Return a candidate's text as one printable line: at most 500 characters, unprintable ones escaped."""
    shown = text if len(text) <= _TEXT else f"{text[:_TEXT]}..."
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)


def escaped_path(path: Path) -> str:
    """Return a path as given, safe to print. Its parts are escaped separately, so that the path is not shortened."""
    return str(Path(*map(escaped, path.parts)))


def raised_of(error: tuple[bytes, bytes]) -> Raised:
    """Return an exception from the type and message that a candidate's process reports."""
    kind, message = (escaped(one.decode(errors="replace")) for one in error)
    return Raised(kind, message)


def printed(ended: Mapping[str, Any]) -> str:
    """Return what a candidate printed, as its supervisor reports it."""
    text = bytes.fromhex(ended.get("output", "")).decode(errors="replace")
    dropped = ended.get("dropped", 0)
    return f"{text}\n[{dropped:,} more bytes were printed]" if dropped else text


def heard(report: int, begun: bytearray) -> tuple[list[dict[str, Any]], bool]:
    """Return the supervisor's new reports, and whether more may follow; `begun` keeps an incomplete line."""
    is_open = True
    with suppress(BlockingIOError):
        while text := os.read(report, 1 << 16):
            begun += text
        is_open = False
    *lines, rest = bytes(begun).split(b"\n")
    begun[:] = rest
    return [json.loads(line) for line in lines], is_open


def polled(*files: int) -> select.poll:
    """Return a poll object that waits until one of these files can be read."""
    found = select.poll()
    for file in files:
        found.register(file, select.POLLIN)
    return found
