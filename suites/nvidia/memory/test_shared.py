"""Memory that two processes map: here one process maps it twice, by a descriptor as the other process would get it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from cuassay.devices import backend
from cuassay.devices.cuda.memory.virtual import granularity


@pytest.fixture
def shared(on_cuda: None) -> Any:
    """The class, on a device that can map pages."""
    if not granularity(0):
        pytest.skip("cuda:0 cannot map pages")
    from cuassay.devices.cuda.memory.shared import SharedMemory

    return SharedMemory


def test_second_mapping_sees_what_the_first_wrote(shared: Any) -> None:
    with shared(0, 1000) as first:
        descriptor = first.descriptor()
        with shared(0, 1000, descriptor) as second:
            os.close(descriptor)
            first.array((10,), np.int32, 40)[...] = 7

            whole = second.array((250,), np.int32, 0).get()
            assert whole[10:20].tolist() == [7] * 10
            assert second.array((5,), np.int32, 76, (-8,)).get().tolist() == [7] * 5


@pytest.mark.parametrize("pattern", [bytes([9]), bytes(range(64))], ids=["one byte", "64 bytes"])
@pytest.mark.parametrize("nbytes", [0, 1, 64, 100, 100_000])
def test_pattern_fills_all_bytes(shared: Any, nbytes: int, pattern: bytes) -> None:
    with shared(0, 200_000) as one:
        whole = one.array((200_000,), np.uint8, 0)
        whole[...] = 255
        backend("cuda").synchronize(0)

        one.fill(whole[7 : 7 + nbytes], pattern)

        due = bytes([255]) * 7 + (pattern * nbytes)[:nbytes] + bytes([255])
        assert one.on_host(whole[: nbytes + 8]).tobytes() == due


def test_pinned_copy_grows_and_is_reused(shared: Any) -> None:
    with shared(0, 10_000) as one:
        whole = one.array((10_000,), np.uint8, 0)
        whole[...] = 3
        backend("cuda").synchronize(0)
        assert one.seen(whole[:10]).tolist() == [3] * 10
        large = one.seen(whole)
        whole[...] = 4
        backend("cuda").synchronize(0)

        again = one.seen(whole)

        assert np.shares_memory(large, again)
        assert set(again.tolist()) == {4}


def test_size_is_whole_pages(shared: Any) -> None:
    with shared(0, 1) as one:
        assert one.nbytes == granularity(0)


def test_it_is_closed_once(shared: Any) -> None:
    one = shared(0, 1)

    one.close()
    one.close()
