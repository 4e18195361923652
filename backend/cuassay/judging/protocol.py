"""The language between the judge and a candidate's process: structs of fixed size in shared memory, and bells.

A *control block* holds two regions. The judge writes the request and never reads it again; the candidate's process
writes the reply, and whatever lies there is read once, into private bytes, and checked before a word of it is
believed. Each region starts with a counter that is stored last, so that a reader may poll it; a pipe for each
direction, the *bell*, wakes a reader that has stopped polling. Arrays lie in an *arena*, shared memory of a fixed
size, and are described by offset, shape, strides and the number of their dtype. Nothing is pickled.

A call's arguments are a *form*: JSON, written by the judge alone, in which ``{"array": 3}`` means array number 3.
"""

from __future__ import annotations

import os
import select
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from cuassay.core.capability import DTYPE_NAMES

__all__ = [
    "ARENA_ALIGNMENT",
    "CONTROL_NBYTES",
    "LOADED",
    "MAX_ARRAYS",
    "MAX_NDIM",
    "MAX_OUTPUTS",
    "Bell",
    "Buffer",
    "Claim",
    "Placed",
    "ProtocolError",
    "RawReply",
    "Request",
    "Room",
    "dtype_number",
    "read_reply",
    "read_request",
    "reply_number",
    "request_number",
    "write_reply",
    "write_request",
]

Buffer = memoryview

#: Bytes of a control block: the request, then the reply.
CONTROL_NBYTES = 1 << 20
_REPLY = CONTROL_NBYTES // 2

#: The most axes of an array, arrays of a request and arrays of a reply.
MAX_NDIM = 16
MAX_ARRAYS = 512
MAX_OUTPUTS = 64

#: Where arrays may begin in an arena, in bytes; what CUDA's allocations are aligned to.
ARENA_ALIGNMENT = 256

#: The number of the reply that says that the candidate's file was loaded, or was not. Calls have those after it.
LOADED = 1

_HEAD = 64  # bytes before a region's message: its counter, alone on its cache line

_REQUEST = struct.Struct("<QIIIII")  # number, arrays, outputs, bytes of the form, whether inputs are copied back, pad
_PLACED = struct.Struct(f"<QQQII{MAX_NDIM}q{MAX_NDIM}q")  # low, nbytes, first, dtype, ndim, shape, strides
_ROOM = struct.Struct("<QQ")  # offset, nbytes
_REPLY_HEAD = struct.Struct(
    "<QIIIIId"
)  # number, status, outputs, bytes of an error's type and message, queued, seconds
_CLAIM = struct.Struct(f"<III{MAX_NDIM}q")  # state, dtype, ndim, shape
_TEXT_NBYTES = 4096

#: The most elements of an array, extents of 0 left out: NumPy takes fewer than 2^63 bytes.
_MOST_ELEMENTS = 1 << 58

#: Seconds of no call.
_LONGEST_S = 1e6

#: What became of one output.
_STATES = ("written", "too large", "not an array", "unknown dtype")


class ProtocolError(ValueError):
    """What a candidate's process wrote is not a reply."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One input in the arena: its bytes, its first element, and how its elements lie; all offsets in bytes."""

    low: int
    nbytes: int
    first: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """Where one output may be written in the arena, C-contiguous."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Request:
    """One call; one without a form asks the process to be ready for the next one."""

    number: int
    form: bytes
    arrays: tuple[Placed, ...]
    rooms: tuple[Room, ...]
    returns_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """What a candidate's process says of one output; `problem` is empty where it was written."""

    shape: tuple[int, ...]
    dtype: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RawReply:
    """What a candidate's process says of one call.

    Attributes
    ----------
    error : tuple of bytes, optional
        Type and message of an exception.
    device_s : float
        Seconds by the device's clock; 0 where nobody took them. Only the kernel tier's runner takes them.
    is_queued : bool
        Whether the device never waited for the host meanwhile.
    """

    number: int
    claims: tuple[Claim, ...] = ()
    error: tuple[bytes, bytes] | None = None
    device_s: float = 0.0
    is_queued: bool = False


def dtype_number(name: str) -> int:
    """The number of a dtype; `ValueError` where it has none."""
    return DTYPE_NAMES.index(name)


def request_number(control: Buffer) -> int:
    """The number of the last request."""
    return int(control.cast("Q")[0])


def reply_number(control: Buffer) -> int:
    """The number of the last reply, as the candidate's process says."""
    return int(control.cast("Q")[_REPLY // 8])


def _publish(control: Buffer, at: int, message: bytes, number: int) -> None:
    control[at + _HEAD : at + _HEAD + len(message)] = message
    _fence()
    control.cast("Q")[at // 8] = number  # in one store: `struct` would write zeros first, which a reader might see
    _fence()


def _fence() -> None:
    """Keep stores before it before those after it, on every machine: two turns of a lock, which are atomic."""
    for _ in range(2):
        with _lock:
            pass


_lock = threading.Lock()


# ------------------------------------------------------------------------------------------------ request


def write_request(control: Buffer, request: Request) -> None:
    """Store a request; raises `ValueError` where it is larger than its region."""
    if len(request.arrays) > MAX_ARRAYS or len(request.rooms) > MAX_OUTPUTS:
        raise ValueError(
            f"a call takes at most {MAX_ARRAYS} arrays and {MAX_OUTPUTS} outputs; got {len(request.arrays)} and "
            f"{len(request.rooms)}; use fewer"
        )
    head = _REQUEST.pack(
        request.number, len(request.arrays), len(request.rooms), len(request.form), request.returns_inputs, 0
    )
    arrays = b"".join(map(_packed, request.arrays))
    rooms = b"".join(_ROOM.pack(room.offset, room.nbytes) for room in request.rooms)
    message = head + arrays + rooms + request.form
    if len(message) > _REPLY - _HEAD:
        raise ValueError(f"a call's arguments take {len(message):,} bytes; at most {_REPLY - _HEAD:,}; use fewer")
    _publish(control, 0, message, request.number)


def _packed(placed: Placed) -> bytes:
    ndim = len(placed.shape)
    if ndim > MAX_NDIM:
        raise ValueError(f"an array has at most {MAX_NDIM} axes here; got {ndim}; reshape it")
    padding = (0,) * (MAX_NDIM - ndim)
    extents = (*placed.shape, *padding, *placed.strides, *padding)
    return _PLACED.pack(placed.low, placed.nbytes, placed.first, placed.dtype, ndim, *extents)


def read_request(control: Buffer) -> Request:
    """The last request; read by the candidate's process, which trusts the judge."""
    number, arrays, rooms, form_nbytes, returns_inputs, _ = _REQUEST.unpack_from(control, _HEAD)
    at = _HEAD + _REQUEST.size
    placed = tuple(_unpacked(_PLACED.unpack_from(control, at + i * _PLACED.size)) for i in range(arrays))
    at += arrays * _PLACED.size
    given = tuple(Room(*_ROOM.unpack_from(control, at + i * _ROOM.size)) for i in range(rooms))
    at += rooms * _ROOM.size
    return Request(number, bytes(control[at : at + form_nbytes]), placed, given, bool(returns_inputs))


def _unpacked(fields: tuple[int, ...]) -> Placed:
    low, nbytes, first, dtype, ndim, *extents = fields
    return Placed(low, nbytes, first, dtype, tuple(extents[:ndim]), tuple(extents[MAX_NDIM : MAX_NDIM + ndim]))


# ------------------------------------------------------------------------------------------------ reply


def write_reply(control: Buffer, reply: RawReply) -> None:
    """Store a reply; texts are cut."""
    kind, message = reply.error or (b"", b"")
    kind, message = kind[:_TEXT_NBYTES], message[:_TEXT_NBYTES]
    counts = (len(reply.claims), len(kind), len(message))
    head = _REPLY_HEAD.pack(reply.number, reply.error is not None, *counts, reply.is_queued, reply.device_s)
    claims = b"".join(
        _CLAIM.pack(
            _STATES.index(claim.problem or "written"),
            claim.dtype,
            len(claim.shape),
            *claim.shape,
            *(0,) * (MAX_NDIM - len(claim.shape)),
        )
        for claim in reply.claims
    )
    _publish(control, _REPLY, head + claims + kind + message, reply.number)


def read_reply(control: Buffer, number: int, rooms: Sequence[Room]) -> RawReply:
    """The reply to request `number`, believed in nothing.

    Raises
    ------
    ProtocolError
        If it is not a reply to that request, or says what cannot be: a dtype that does not exist, a negative extent,
        an array that its room cannot hold.
    """
    message = bytes(control[_REPLY + _HEAD : CONTROL_NBYTES])  # one copy: it may be written while it is read
    said, status, count, kind_nbytes, text_nbytes, is_queued, device_s = _REPLY_HEAD.unpack_from(message, 0)
    if said != number or status > 1 or not 0 <= device_s < _LONGEST_S:
        raise ProtocolError(f"reply {said} with status {status} and {device_s} s where reply {number} was due")
    if count > MAX_OUTPUTS or kind_nbytes > _TEXT_NBYTES or text_nbytes > _TEXT_NBYTES:
        raise ProtocolError(f"a reply with {count} outputs and texts of {kind_nbytes} and {text_nbytes} bytes")
    at = _REPLY_HEAD.size
    claims = tuple(
        _claim(message, at + i * _CLAIM.size, rooms[i].nbytes if i < len(rooms) else None) for i in range(count)
    )
    at += count * _CLAIM.size
    kind, text = message[at : at + kind_nbytes], message[at + kind_nbytes : at + kind_nbytes + text_nbytes]
    return RawReply(number, claims, (kind, text) if status else None, device_s, bool(is_queued))


def _claim(message: bytes, at: int, room: int | None) -> Claim:
    state, dtype, ndim, *extents = _CLAIM.unpack_from(message, at)
    if state >= len(_STATES) or dtype >= len(DTYPE_NAMES) or ndim > MAX_NDIM or any(n < 0 for n in extents[:ndim]):
        raise ProtocolError(f"an output of state {state}, dtype {dtype} and {ndim} axes {extents[:4]}")
    shape = tuple(extents[:ndim])
    if prod(extent or 1 for extent in shape) > _MOST_ELEMENTS:
        raise ProtocolError(f"an output of shape {shape}, which no array can have")
    if not state and room is not None and prod(shape) > room:  # no dtype has less than one byte
        raise ProtocolError(f"an output of shape {shape} in a room of {room:,} bytes")
    return Claim(shape, dtype, _STATES[state] if state else "")


# ------------------------------------------------------------------------------------------------ bells


class Bell:
    """One end of a pipe that wakes the other side; neither end ever blocks on it.

    Parameters
    ----------
    listen, ring : int
        File descriptors: the pipe that this side reads, and the one that it writes.
    """

    __slots__ = ("_listen", "_poll", "_ring")

    def __init__(self, listen: int, ring: int) -> None:
        self._listen, self._ring = listen, ring
        os.set_blocking(listen, False)
        os.set_blocking(ring, False)
        self._poll = select.poll()
        self._poll.register(listen, select.POLLIN)

    def __repr__(self) -> str:
        return f"Bell(listen={self._listen}, ring={self._ring})"

    def ring(self) -> bool:
        """Wake the other side; False if nobody is there any more."""
        try:
            os.write(self._ring, b"\x01")
        except BlockingIOError:  # it has rung often enough
            return True
        except BrokenPipeError:
            return False
        return True

    def wait(self, seconds: float) -> bool:
        """Sleep until the other side rings, at most `seconds`; False once it has closed its end for good."""
        if not self._poll.poll(max(seconds, 0.0) * 1000):
            return True
        try:
            return os.read(self._listen, 4096) != b""
        except BlockingIOError:
            return True
