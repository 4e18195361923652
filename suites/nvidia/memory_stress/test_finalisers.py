"""What a finaliser may do while the collector runs within a call of the allocator: free, release a pool, empty it.

And what is left where a call that a capture forbids is refused.
"""

from __future__ import annotations

import gc
import os
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.memory import allocator as allocators
from cuassay.devices.cuda.memory.allocator import DeviceAllocator
from cuassay.errors import DriverError
from cuassay.memory import AllocatorConfig, CachingAllocator, IntegerSource

MIB = 2**20


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(runtime, "get_device_properties", lambda index: SimpleNamespace(total_memory=2**40))
    return allocators.DeviceAllocator(0, IntegerSource(), AllocatorConfig())


class Graph:
    """In a cycle, so that the collector finds it; gives its pool and its block back when it does."""

    def __init__(self, allocator: Any) -> None:
        self.allocator, self.me, self.pool = allocator, self, allocator.create_pool()
        with allocator.use_pool(self.pool):
            self.block = allocator.malloc(MIB)

    def __del__(self) -> None:
        self.allocator.free(self.block)
        self.allocator.release_pool(self.pool)
        self.allocator.empty_cache(self.pool)


def test_it_prints_what_it_holds(allocator: DeviceAllocator) -> None:
    block = allocator.malloc(3 * MIB)

    assert repr(allocator) == "DeviceAllocator(cuda:0, 3 MiB live of 4 MiB reserved)"
    allocator.free(block)


def churn(allocator: Any) -> None:
    """New sizes all the time, and the collector at nearly every object made."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for nbytes in range(512, 200 * 512, 512):
            Graph(allocator)
            allocator.free(allocator.malloc(nbytes))
    finally:
        gc.set_threshold(*before)


def test_pools_released_within_malloc_neither_lock_up_nor_stay(allocator: DeviceAllocator) -> None:
    thread = threading.Thread(target=churn, args=(allocator,), daemon=True)
    thread.start()
    thread.join(20)

    assert not thread.is_alive(), "the allocator waits for itself"
    gc.collect()
    allocator.empty_cache()
    assert allocator.statistics().reserved_bytes.all.current == 0
    assert not allocator.statistics().reserved_bytes_by_private_pools


def test_within_a_call_a_pool_is_left_to_the_next_emptying(allocator: DeviceAllocator) -> None:
    pool = allocator.create_pool()
    with allocator.heap.lock:
        allocator.release_pool(pool)
        assert allocator.empty_cache() == 0
        assert pool.use_count == 1

    allocator.empty_cache()

    assert pool.use_count == 0


def test_a_block_whose_event_cannot_be_asked_for_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    source = IntegerSource(is_lazy=True, granularity=0)
    allocator = CachingAllocator(source)
    block = allocator.malloc(20 * MIB)
    allocator.record_stream(block, 1)
    allocator.free(block)

    with monkeypatch.context() as broken:
        broken.setattr(source, "query", refused)
        with pytest.raises(DriverError):
            allocator.malloc(20 * MIB)
    for event in source.pending():
        source.complete(event)

    assert allocator.malloc(20 * MIB).address == block.address


def refused(event: int) -> bool:
    raise DriverError("the query is refused; this is a test")


def test_the_thread_that_pins_ahead_survives_a_refusal() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from cuassay.devices.cuda.memory import pinned

    calls: list[int] = []

    def maintain() -> None:
        calls.append(1)
        refused(0)

    pinned._Keeper(SimpleNamespace(maintain=maintain), 0)._maintain()  # type: ignore[arg-type]

    assert calls == [1]


@pytest.mark.parametrize(
    ("status", "is_open"),
    [("cudaSuccess", False), ("cudaErrorLaunchFailure", False), ("cudaErrorStreamCaptureUnsupported", True)],
)
def test_the_lock_of_another_processes_memory_is_kept_only_while_it_may_be_used(
    status: str, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    import cuda.bindings

    from cuassay.devices.cuda.memory import ipc

    closed: list[int] = []
    cudart = SimpleNamespace(
        cudaDeviceSynchronize=lambda: (SimpleNamespace(name=status),), cudaIpcCloseMemHandle=closed.append
    )
    monkeypatch.setattr(cuda.bindings, "runtime", cudart, raising=False)
    monkeypatch.setattr(ipc, "at", nullcontext)
    monkeypatch.setattr(ipc, "relaxed", nullcontext)
    read, write = os.pipe()
    opened = object.__new__(ipc._Opened)
    opened.base, opened._index, opened._descriptor = 4096, 0, write

    del opened

    assert closed == [] if is_open else [4096]
    with pytest.raises(OSError, match="Bad file descriptor") if not is_open else nullcontext():
        os.close(write)
    os.close(read)
