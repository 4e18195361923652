"""Which allocator serves a CUDA device: what was set by call outlives a change, pools made before it do not."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.memory import allocator as allocators
from cuassay.devices.cuda.memory import pools
from cuassay.errors import ArgumentError
from cuassay.memory import IntegerSource

MIB = 2**20


@pytest.fixture(autouse=True)
def integers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Devices whose memory is numbers."""
    monkeypatch.setattr(runtime, "init", lambda: None)
    monkeypatch.setattr(runtime, "current_device", lambda: 0)
    monkeypatch.setattr(runtime, "get_device_properties", lambda index: SimpleNamespace(total_memory=64 * MIB))
    monkeypatch.setattr(allocators, "_current", {})
    monkeypatch.setattr(allocators, "_former", {})
    monkeypatch.setattr(allocators._State, "texts", ())
    monkeypatch.setattr(allocators._State, "source", lambda index: IntegerSource(64 * MIB))
    yield
    allocators.malloc_by_stream.clear()


def test_what_was_set_for_a_device_holds_after_a_change_of_allocator() -> None:
    allocators.allocator(0)
    allocators.configure("per_process_memory_fraction:0.25", 0)
    allocators.configure("garbage_collection_threshold:0.5")

    allocators.change_allocator(lambda index: IntegerSource())

    first, second = allocators.allocator(0).config, allocators.allocator(1).config
    assert (first.per_process_memory_fraction, first.garbage_collection_threshold) == (0.25, 0.5)
    assert (second.per_process_memory_fraction, second.garbage_collection_threshold) == (1.0, 0.5)


def test_a_pool_of_a_former_allocator_serves_nobody() -> None:
    pool = pools.MemPool()
    with pool.routed():
        block = allocators.find_malloc(0, 0)(1000)
    assert block.stream_pool.pool.id == pool.id

    allocators.change_allocator(lambda index: IntegerSource())

    with pytest.raises(ArgumentError, match="was made before change_current_allocator"), pool.routed():
        pass


def test_options_of_pinned_memory_are_known_to_who_asks_later() -> None:
    allocators.configure("pinned_max_cached_size_mb:64")

    assert allocators.config().pinned_max_cached_size == 64 * MIB


def test_a_bad_option_of_one_device_changes_nothing() -> None:
    allocators.allocator(0)
    before: Any = allocators._State.texts

    with pytest.raises(ValueError, match="per_process_memory_fraction"):
        allocators.configure("per_process_memory_fraction:7", 0)

    assert allocators._State.texts == before
