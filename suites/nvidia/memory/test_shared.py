"""Memory that two processes map: here one process maps it twice, by a descriptor as the other process would get it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

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


def test_size_is_whole_pages(shared: Any) -> None:
    with shared(0, 1) as one:
        assert one.nbytes == granularity(0)


def test_it_is_closed_once(shared: Any) -> None:
    one = shared(0, 1)

    one.close()
    one.close()
