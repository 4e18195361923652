"""The protocol between the judge and a candidate's process: structs of fixed size in shared memory, and bells.

A *control block* has two regions. The judge writes the request and never reads it again. The candidate's process writes
the reply; the judge copies it once into private memory and checks the copy before using any of it. Each region starts
with a counter that is stored last, so that a reader may poll it; a pipe for each direction, the *bell*, wakes a reader
that has stopped polling. Arrays are in an *arena*, shared memory of a fixed size on the host or on the device, and are
described by offset, shape, strides and the number of their dtype. Nothing is pickled.

A call's arguments are a *form*: JSON, written only by the judge, in which ``{"array": 3}`` means array number 3.
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
    "BUSY_CYCLES",
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
    "packed",
    "read_reply",
    "read_request",
    "reply_number",
    "request_number",
    "send",
    "write_reply",
    "write_request",
]

Buffer = memoryview

#: The bytes of a control block: the request, then the reply.
CONTROL_NBYTES = 1 << 20
_REPLY = CONTROL_NBYTES // 2

#: The most axes of an array, arrays of a request and arrays of a reply.
MAX_NDIM = 16
MAX_ARRAYS = 512
MAX_OUTPUTS = 64

#: The alignment of arrays in an arena in bytes, that of CUDA's allocations.
ARENA_ALIGNMENT = 256

#: The number of the reply that says whether the candidate's file was loaded. Calls have the following numbers.
LOADED = 1

#: Cycles of its clock for which an empty call keeps a GPU busy, about 0.3 ms. In other calls the host prepares the
#: copies of the outputs while the GPU still works; without this work only the empty call would contain that time.
BUSY_CYCLES = 600_000

_HEAD = 64  # bytes before a region's message; its counter has its own cache line

_REQUEST = struct.Struct("<QIIIII")  # number, arrays, outputs, bytes of the form, whether on the device, whether empty
_PLACED = struct.Struct(f"<QQQII{MAX_NDIM}q{MAX_NDIM}q")  # low, nbytes, first, dtype, ndim, shape, strides
_ROOM = struct.Struct("<QQ")  # offset, nbytes
_REPLY_HEAD = struct.Struct(
    "<QIIIIId"
)  # number, status, outputs, bytes of an error's type and message, queued, seconds
_CLAIM = struct.Struct(f"<III{MAX_NDIM}q")  # state, dtype, ndim, shape
_TEXT_NBYTES = 4096

#: Where the longest reply ends.
_REPLY_END = _REPLY + _HEAD + _REPLY_HEAD.size + MAX_OUTPUTS * _CLAIM.size + 2 * _TEXT_NBYTES

#: The most elements of an array, ignoring extents of 0: NumPy allows fewer than 2^63 bytes.
_MOST_ELEMENTS = 1 << 58

#: A longer time in seconds cannot be that of a call.
_LONGEST_S = 1e6

#: The states of an output.
_STATES = ("written", "too large", "not an array", "unknown dtype")


class ProtocolError(ValueError):
    """Data from a candidate's process is not a valid reply."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One input in the arena: its bytes, its first element, and its layout; all offsets are in bytes."""

    low: int
    nbytes: int
    first: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """The range of the arena for one C-contiguous output."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Request:
    """One call, with its arrays in the host's or the device's arena; one without a form asks to be ready for a call.

    An empty call is handled like any other, but the candidate's function is not called; see `BUSY_CYCLES`.
    """

    number: int
    form: bytes
    arrays: tuple[Placed, ...]
    rooms: tuple[Room, ...]
    is_on_device: bool = False
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a candidate's process about one output; `problem` is empty if it was written."""

    shape: tuple[int, ...]
    dtype: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RawReply:
    """The reply of a candidate's process to one call.

    Attributes
    ----------
    error : tuple of bytes, optional
        Type and message of an exception.
    device_s : float
        Seconds by the device's clock, which only the kernel tier's runner measures; else 0.
    is_queued : bool
        Whether the device never waited for the host during that time.
    """

    number: int
    claims: tuple[Claim, ...] = ()
    error: tuple[bytes, bytes] | None = None
    device_s: float = 0.0
    is_queued: bool = False


def dtype_number(name: str) -> int:
    """Return the number of a dtype; raises `ValueError` if it has none."""
    return DTYPE_NAMES.index(name)


def request_number(control: Buffer) -> int:
    """Return the number of the last request."""
    return int(control.cast("Q")[0])


def reply_number(control: Buffer) -> int:
    """Return the number of the last reply, as the candidate's process wrote it."""
    return int(control.cast("Q")[_REPLY // 8])


def _publish(control: Buffer, at: int, message: bytes, number: int) -> None:
    control[at + _HEAD : at + _HEAD + len(message)] = message
    _fence()
    control.cast("Q")[at // 8] = number  # a single store: `struct` would write zeros first, which a reader might see
    _fence()


def _fence() -> None:
    """Order earlier stores before later ones on every machine, by locking twice, because lock operations are atomic."""
    for _ in range(2):
        with _lock:
            pass


_lock = threading.Lock()


# ------------------------------------------------------------------------------------------------ request


def write_request(control: Buffer, request: Request) -> None:
    """Store a request; raises `ValueError` if it is larger than its region."""
    send(control, packed(request))


def send(control: Buffer, message: bytes) -> None:
    """Store a request that `packed` made."""
    _publish(control, 0, message, int.from_bytes(message[:8], "little"))


def packed(request: Request) -> bytes:
    """Return a request as `send` stores it; raises `ValueError` if it is larger than its region."""
    if len(request.arrays) > MAX_ARRAYS or len(request.rooms) > MAX_OUTPUTS:
        raise ValueError(
            f"a call takes at most {MAX_ARRAYS} arrays and {MAX_OUTPUTS} outputs; got {len(request.arrays)} and "
            f"{len(request.rooms)}; use fewer"
        )
    counts = (len(request.arrays), len(request.rooms), len(request.form))
    head = _REQUEST.pack(request.number, *counts, request.is_on_device, request.is_empty)
    arrays = b"".join(map(_packed_array, request.arrays))
    rooms = b"".join(_ROOM.pack(room.offset, room.nbytes) for room in request.rooms)
    message = head + arrays + rooms + request.form
    if len(message) > _REPLY - _HEAD:
        raise ValueError(f"a call's arguments take {len(message):,} bytes; at most {_REPLY - _HEAD:,}; use fewer")
    return message


def _packed_array(placed: Placed) -> bytes:
    ndim = len(placed.shape)
    if ndim > MAX_NDIM:
        raise ValueError(f"an array has at most {MAX_NDIM} axes here; got {ndim}; reshape it")
    padding = (0,) * (MAX_NDIM - ndim)
    extents = (*placed.shape, *padding, *placed.strides, *padding)
    return _PLACED.pack(placed.low, placed.nbytes, placed.first, placed.dtype, ndim, *extents)


def read_request(control: Buffer) -> Request:
    """Return the last request; called by the candidate's process, which trusts the judge."""
    number, arrays, rooms, form_nbytes, is_on_device, is_empty = _REQUEST.unpack_from(control, _HEAD)
    at = _HEAD + _REQUEST.size
    placed = tuple(_unpacked(_PLACED.unpack_from(control, at + i * _PLACED.size)) for i in range(arrays))
    at += arrays * _PLACED.size
    given = tuple(Room(*_ROOM.unpack_from(control, at + i * _ROOM.size)) for i in range(rooms))
    at += rooms * _ROOM.size
    return Request(number, bytes(control[at : at + form_nbytes]), placed, given, bool(is_on_device), bool(is_empty))


def _unpacked(fields: tuple[int, ...]) -> Placed:
    low, nbytes, first, dtype, ndim, *extents = fields
    return Placed(low, nbytes, first, dtype, tuple(extents[:ndim]), tuple(extents[MAX_NDIM : MAX_NDIM + ndim]))


# ------------------------------------------------------------------------------------------------ reply


def write_reply(control: Buffer, reply: RawReply) -> None:
    """Store a reply; texts are shortened."""
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
    """Return the reply to request `number`, after checking all of it.

    Raises
    ------
    ProtocolError
        If it is not a reply to that request, or contains impossible values: an unknown dtype, a negative extent, or an
        array that does not fit its room.
    """
    message = bytes(control[_REPLY + _HEAD : _REPLY_END])  # copied once, because it may be written while it is read
    received, status, count, kind_nbytes, text_nbytes, is_queued, device_s = _REPLY_HEAD.unpack_from(message, 0)
    if received != number or status > 1 or not 0 <= device_s < _LONGEST_S:
        raise ProtocolError(f"reply {received} with status {status} and {device_s} s where reply {number} was due")
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
    if not state and room is not None and prod(shape) > room:  # every dtype has at least one byte
        raise ProtocolError(f"an output of shape {shape} in a room of {room:,} bytes")
    return Claim(shape, dtype, _STATES[state] if state else "")


# ------------------------------------------------------------------------------------------------ bells


class Bell:
    """One end of a pair of pipes that wake the other side; neither end ever blocks.

    Parameters
    ----------
    listen, ring : int
        File descriptors of the pipe that this side reads and the pipe that it writes.
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
        """Wake the other side; return False if it has closed its end."""
        try:
            os.write(self._ring, b"\x01")
        except BlockingIOError:  # the pipe is full of earlier rings
            return True
        except BrokenPipeError:
            return False
        return True

    def wait(self, seconds: float) -> bool:
        """Sleep until the other side rings, at most `seconds`; return False after it has closed its end."""
        if not self._poll.poll(max(seconds, 0.0) * 1000):
            return True
        try:
            return os.read(self._listen, 4096) != b""
        except BlockingIOError:
            return True
