"""Integers as addresses of CUDA streams: what can be none is refused before the driver follows it."""

from __future__ import annotations

import pytest

from cuassay.devices.cuda.driver.addresses import stream_at
from cuassay.errors import ArgumentError


@pytest.mark.parametrize("address", [0, 1, 2, 0x40_0000, 0x55D0_1234_5678, 0x7F5D_89D4_E590, 2**56 - 8], ids=hex)
def test_an_address_that_a_stream_can_have_is_taken(address: int) -> None:
    assert stream_at(address) == address


@pytest.mark.parametrize("number", [-8, 3, 16, 1_000_000, 0x3F_FFF8, 0x40_0001, 0x40_0004, 2**56, 2**62, 2**70])
def test_a_number_that_no_stream_can_have_is_refused(number: int) -> None:
    with pytest.raises(ArgumentError, match=r"is not a CUDA stream: no stream can have this address; give one of"):
        stream_at(number)


@pytest.mark.parametrize("junk", [True, 1.5, "stream", None, object()], ids=lambda junk: type(junk).__name__)
def test_anything_else_is_refused(junk: object) -> None:
    with pytest.raises(ArgumentError, match=r"is not a CUDA stream; give one of"):
        stream_at(junk)
