"""Ctrl-C while the driver waits for the device to take memory back: what the books say is what the driver holds."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any

import pytest

import cuassay

if not cuassay.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

import cupy

from cuassay import cuda
from cuassay.devices.cuda.memory.sources import make_source
from cuassay.memory import CachingAllocator

MIB = 2**20

#: Cycles of about half a second; the interrupt comes long before.
_CYCLES = 1_000_000_000


def allocators() -> dict[str, Callable[[], CachingAllocator]]:
    """With segments of ``cudaMalloc``, with the driver's pool, and with pages."""
    return {
        "segments": lambda: CachingAllocator(make_source("native", 0), config="expandable_segments:False"),
        "the driver's pool": lambda: CachingAllocator(make_source("cudaMallocAsync", 0), config=""),
        "pages": lambda: CachingAllocator(make_source("native", 0), config=""),
    }


def write(block: Any) -> None:
    """Fails where the block's memory is gone."""
    cupy.cuda.runtime.memset(block.address, 1, block.nbytes)
    cuda.synchronize()


@pytest.mark.parametrize("kind", ["segments", "the driver's pool", "pages"])
def test_ctrl_c_while_memory_goes_back_leaves_books_that_are_true(kind: str) -> None:
    allocator = allocators()[kind]()
    allocator.free(allocator.malloc(256 * MIB))
    cuda.synchronize()
    cuda.spin(_CYCLES)

    with pytest.raises(KeyboardInterrupt):
        interrupted(allocator.empty_cache)

    cuda.synchronize()
    block = allocator.malloc(256 * MIB)
    write(block)
    allocator.free(block)
    allocator.empty_cache()
    assert allocator.statistics().reserved_bytes.all.current == 0
    assert not allocator.segments()


def interrupted(work: Callable[[], object]) -> None:
    """Do `work`, and press Ctrl-C while it waits."""
    timer = threading.Timer(0.05, _thread.interrupt_main)
    timer.start()
    try:
        work()
    finally:
        timer.join()
