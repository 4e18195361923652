"""Peers' policies: what each takes from the device for small and large requests, and the most that was asked for."""

from __future__ import annotations

import pytest

from cuassay.memory.peers import PEERS, PeerModel

MIB = 2**20


@pytest.mark.parametrize(("name", "calls"), [("segments", 2), ("expandable", 2), ("cupy", 1)])
def test_small_requests_have_segments_of_their_own_where_a_peer_has_pools(name: str, calls: int) -> None:
    model = PeerModel(PEERS[name])
    model.free(model.malloc(2 * MIB))

    model.malloc(1000)

    assert model.driver_calls == calls


@pytest.mark.parametrize("name", PEERS)
def test_the_most_that_was_asked_for_outlasts_what_is_freed(name: str) -> None:
    model = PeerModel(PEERS[name])
    blocks = [model.malloc(nbytes) for nbytes in (30 * MIB, 4 * MIB, 1000)]
    for block in blocks:
        model.free(block)
    model.malloc(30 * MIB)

    live, reserved = model.peaks()
    assert live == 34 * MIB + 1000
    assert reserved >= live


@pytest.mark.parametrize(
    ("name", "nbytes"), [("segments", 12 * MIB), ("expandable", 23 * MIB // 2), ("cupy", 23 * MIB // 2)]
)
def test_remainders_are_split_off_as_the_peer_does(name: str, nbytes: int) -> None:
    assert PeerModel(PEERS[name]).malloc(23 * MIB // 2).nbytes == nbytes


@pytest.mark.parametrize("name", PEERS)
def test_a_block_that_fits_exactly_leaves_no_remainder(name: str) -> None:
    block = PeerModel(PEERS[name]).malloc(20 * MIB)

    assert (block.nbytes, block.after) == (20 * MIB, None)


@pytest.mark.parametrize("name", PEERS)
def test_blocks_of_different_streams_have_different_addresses(name: str) -> None:
    model = PeerModel(PEERS[name])

    first, second = (model.malloc(4 * MIB, stream) for stream in range(2))

    assert second.address >= first.address + first.nbytes
