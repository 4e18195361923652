"""The messages between judge and candidate: what is written is read, and what a candidate writes is not believed."""

from __future__ import annotations

import os
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.judging import protocol
from cuassay.judging.protocol import Bell, Claim, Placed, ProtocolError, RawReply, Request, Room

REPLY = protocol.CONTROL_NBYTES // 2
MESSAGE = REPLY + 64

numbers = st.integers(0, 2**64 - 1)
small = st.integers(0, 2**40)
extents = st.integers(0, 2**31)


def control() -> memoryview:
    return memoryview(bytearray(protocol.CONTROL_NBYTES))


@st.composite
def placed(draw: st.DrawFn) -> Placed:
    ndim = draw(st.integers(0, protocol.MAX_NDIM))
    shape = tuple(draw(st.lists(extents, min_size=ndim, max_size=ndim)))
    strides = tuple(draw(st.lists(st.integers(-(2**40), 2**40), min_size=ndim, max_size=ndim)))
    return Placed(draw(small), draw(small), draw(small), draw(st.integers(0, 15)), shape, strides)


requests = st.builds(
    Request,
    numbers,
    st.binary(max_size=300),
    st.lists(placed(), max_size=5).map(tuple),
    st.lists(st.builds(Room, small, small), max_size=5).map(tuple),
    st.booleans(),
)


@given(requests)
def test_request_is_read_as_it_was_written(request: Request) -> None:
    block = control()

    protocol.write_request(block, request)

    assert protocol.request_number(block) == request.number
    assert protocol.read_request(block) == request


@pytest.mark.parametrize(
    "request_",
    [
        Request(2, b"", (Placed(0, 0, 0, 0, (), ()),) * (protocol.MAX_ARRAYS + 1), ()),
        Request(2, b"", (), (Room(0, 0),) * (protocol.MAX_OUTPUTS + 1)),
        Request(2, b"", (Placed(0, 0, 0, 0, (1,) * 17, (1,) * 17),), ()),
        Request(2, b" " * protocol.CONTROL_NBYTES, (), ()),
    ],
    ids=["arrays", "outputs", "axes", "form"],
)
def test_request_that_does_not_fit_is_refused(request_: Request) -> None:
    block = control()

    with pytest.raises(ValueError, match=r"at most"):
        protocol.write_request(block, request_)
    assert protocol.request_number(block) == 0


claims = st.builds(
    Claim,
    st.lists(st.integers(0, 3), max_size=protocol.MAX_NDIM).map(tuple),
    st.integers(0, 15),
    st.sampled_from(("", "too large", "not an array", "unknown dtype")),
)


@given(numbers, st.lists(claims, max_size=4).map(tuple), st.none() | st.tuples(st.binary(), st.binary()))
def test_reply_is_read_as_it_was_written(
    number: int, said: tuple[Claim, ...], error: tuple[bytes, bytes] | None
) -> None:
    block = control()
    reply = RawReply(number, said, error, device_s=2.5e-6, is_queued=True)

    protocol.write_reply(block, reply)

    assert protocol.reply_number(block) == number
    assert protocol.read_reply(block, number, [Room(0, 2**40)] * 4) == reply


def test_long_texts_of_an_error_are_cut() -> None:
    block = control()
    protocol.write_reply(block, RawReply(2, error=(b"k" * 10_000, b"m" * 10_000)))

    assert protocol.read_reply(block, 2, ()).error == (b"k" * 4096, b"m" * 4096)


@given(st.binary(min_size=24, max_size=400), st.lists(st.integers(0, 64), max_size=3))
def test_noise_is_refused_or_fits_its_rooms(noise: bytes, rooms: list[int]) -> None:
    block = control()
    block[MESSAGE : MESSAGE + len(noise)] = noise
    block[MESSAGE : MESSAGE + 8] = (2).to_bytes(8, "little")

    try:
        reply = protocol.read_reply(block, 2, [Room(0, nbytes) for nbytes in rooms])
    except ProtocolError:
        return
    for claim in reply.claims:
        assert all(extent >= 0 for extent in claim.shape)


GOOD = RawReply(2, (Claim((2, 3), 12),))
CLAIM = 36  # where the first output is described

#: What is changed in a good reply: at which byte of the message, and the bytes.
BAD = {
    "number": (0, b"\x03"),
    "status": (8, b"\x02"),
    "outputs": (12, b"\xff\xff\xff\xff"),
    "length of a text": (16, b"\xff\xff\xff\x7f"),
    "seconds": (28, struct.pack("<d", float("nan"))),
    "negative seconds": (28, struct.pack("<d", -1.0)),
    "state": (CLAIM, b"\x04"),
    "dtype": (CLAIM + 4, b"\x63"),
    "axes": (CLAIM + 8, b"\x11"),
    "negative extent": (CLAIM + 12 + 7, b"\x80"),
    "larger than its room": (CLAIM + 12, b"\x00\x00\x10"),
    "empty, and larger than any array": (CLAIM + 12, (2**62).to_bytes(8, "little") + bytes(8)),
}


@pytest.mark.parametrize(("at", "what"), BAD.values(), ids=BAD)
def test_impossible_reply_is_refused(at: int, what: bytes) -> None:
    block = control()
    protocol.write_reply(block, GOOD)
    assert protocol.read_reply(block, 2, [Room(0, 48)]).claims == GOOD.claims
    block[MESSAGE + at : MESSAGE + at + len(what)] = what

    with pytest.raises(ProtocolError):
        protocol.read_reply(block, 2, [Room(0, 48)])


def test_reply_that_changes_while_it_is_read_is_read_once() -> None:
    block = control()
    protocol.write_reply(block, GOOD)
    found = protocol.read_reply(block, 2, [Room(0, 48)])
    protocol.write_reply(block, replace(GOOD, claims=()))

    assert found == GOOD


def test_bell_wakes_and_ends_with_the_other_side() -> None:
    (ours, their_ring), (theirs, our_ring) = os.pipe(), os.pipe()
    bell, other = Bell(ours, our_ring), Bell(theirs, their_ring)
    assert bell.wait(0)  # nothing yet, and somebody is there
    for _ in range(100_000):  # more than a pipe holds
        assert other.ring()
    assert bell.wait(0)

    os.close(their_ring)
    while bell.wait(0):
        pass
    os.close(theirs)

    assert not bell.ring()
    os.close(ours)
    os.close(our_ring)


def test_longest_reply_is_read_whole() -> None:
    control = memoryview(bytearray(protocol.CONTROL_NBYTES))
    claims = (protocol.Claim((1,) * protocol.MAX_NDIM, 0),) * protocol.MAX_OUTPUTS
    text = bytes(range(1, 256)) * 17

    protocol.write_reply(control, protocol.RawReply(7, claims, (text, text[::-1])))

    found = protocol.read_reply(control, 7, [protocol.Room(0, 1)] * protocol.MAX_OUTPUTS)
    assert found.claims == claims
    assert found.error == (text[:4096], text[::-1][:4096])
