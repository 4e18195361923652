"""One call of a candidate as the judge saw it: private copies, its own clock, and words that are safe to print."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from cuassay.core.capability import DTYPE_NAMES
from cuassay.judging.arena import interpreted, unwritten
from cuassay.judging.protocol import RawReply

__all__ = ["Output", "Raised", "Reply", "escaped", "heard", "output_of", "polled", "printed", "raised_of"]

#: Characters of a candidate's text that are kept.
_TEXT = 500


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """One output of a call.

    Attributes
    ----------
    array : numpy.ndarray or None
        A private copy of what was written, in the shape and dtype that the candidate says; None where there is none.
    shape, dtype : tuple of int and str
        What the candidate says.
    problem : str
        Why there is no array: ``missing``, ``too large``, ``not an array`` or ``unknown dtype``; else empty.
    unwritten_nbytes : int
        Bytes of the room that still hold the poison of this call.
    """

    array: NDArray[Any] | None
    shape: tuple[int, ...]
    dtype: str
    problem: str
    unwritten_nbytes: int


@dataclass(frozen=True, slots=True)
class Raised:
    """What `run` raised, in the candidate's own words, cut and escaped."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """One call, as the judge saw it.

    Attributes
    ----------
    outputs : tuple of Output
        One for each that was asked for; those beyond are in `extra`.
    extra : int
        How many more outputs the candidate gave.
    asked_ns, begun_ns, ended_ns : int
        By the judge's clock (`time.perf_counter_ns`): when the process was asked to be ready, when the call's arguments
        began to be written, and when the outputs had been taken. The copies that the judge makes are part of the time,
        so that work done early or late gains nothing.
    changed : tuple of int
        The arrays among the arguments, by position, that the call changed.
    device_s : float
        Of tier ``kernel``, seconds of its launches by the device's clock, the empty interval in it. Else 0.
    is_queued : bool
        Of tier ``kernel``, whether the device never waited for the host in that time.
    raised : Raised or None
        The exception of `run`, where it raised one.
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
    """Output number `index` of a reply, from the bytes of its room and the poison that was there."""
    left = unwritten(*taken)
    if index >= len(reply.claims):
        return Output(None, (), "", "missing", left)
    claim = reply.claims[index]
    array, problem = interpreted(taken[0], claim)
    return Output(array, claim.shape, DTYPE_NAMES[claim.dtype], problem, left)


def escaped(text: str) -> str:
    """Words of a candidate as one line that is safe to print: at most 500 characters, the others escaped."""
    shown = text if len(text) <= _TEXT else f"{text[:_TEXT]}..."
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)


def raised_of(error: tuple[bytes, bytes]) -> Raised:
    """An exception by the type and the message that a candidate's process gives."""
    kind, message = (escaped(one.decode(errors="replace")) for one in error)
    return Raised(kind, message)


def printed(ended: Mapping[str, Any]) -> str:
    """What a candidate printed, as its supervisor reports it."""
    text = bytes.fromhex(ended.get("output", "")).decode(errors="replace")
    dropped = ended.get("dropped", 0)
    return f"{text}\n[{dropped:,} more bytes were printed]" if dropped else text


def heard(report: int, begun: bytearray) -> tuple[list[dict[str, Any]], bool]:
    """What a supervisor has reported, and whether it may report more; `begun` keeps a line without an end."""
    is_open = True
    with suppress(BlockingIOError):
        while text := os.read(report, 1 << 16):
            begun += text
        is_open = False
    *lines, rest = bytes(begun).split(b"\n")
    begun[:] = rest
    return [json.loads(line) for line in lines], is_open


def polled(*files: int) -> select.poll:
    """What waits until one of some open files can be read."""
    found = select.poll()
    for file in files:
        found.register(file, select.POLLIN)
    return found
