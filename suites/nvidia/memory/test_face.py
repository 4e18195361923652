"""`cuassay.cuda.memory`: names, figures and refusals, over an allocator of integers where there is no device."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

import cuassay.cuda
from cuassay.cuda import memory, memory_parts
from cuassay.errors import ArgumentError, SettingError
from cuassay.memory import CachingAllocator, IntegerSource

MIB = 2**20


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> CachingAllocator:
    """What the face finds on every device: an allocator of 64 MiB of integers."""
    found = CachingAllocator(IntegerSource(64 * MIB), total=64 * MIB, config="", name="cuda:0")

    def configure(text: str, index: int | None = None) -> None:
        found.configure(text)

    stand_in = SimpleNamespace(
        allocator=lambda index: found,
        existing=lambda index: found,
        configure=configure,
        every_allocator=lambda index=None: iter([found]),
        indices=lambda: [0],
    )
    blocks = SimpleNamespace(take=lambda nbytes, index, stream: found.malloc(nbytes, stream or 0))
    modules: dict[str, Any] = {"allocator": stand_in, "hook": blocks}
    monkeypatch.setattr(memory_parts, "module", modules.__getitem__)
    for part in (memory, memory_parts):
        monkeypatch.setattr(part, "index_of", lambda device: 0)
    monkeypatch.setattr(cuassay.cuda, "is_initialized", lambda: True)
    return found


@pytest.mark.parametrize("name", [name for name in memory.__all__ if name.islower()])
def test_every_function_is_annotated_and_documented(name: str) -> None:
    function = getattr(memory, name)

    assert inspect.getdoc(function)
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty


def test_before_any_use_there_are_no_figures_and_nothing_is_initialised() -> None:
    if cuassay.cuda.is_initialized():
        pytest.skip("CUDA is in use already")

    assert memory.memory_stats() == memory.memory_stats_as_nested_dict() == {}
    assert memory.memory_allocated() == memory.max_memory_reserved() == 0
    memory.reset_peak_memory_stats()
    memory.empty_cache()
    assert not cuassay.cuda.is_initialized()


def test_memory_by_address_is_counted_and_given_back(allocator: CachingAllocator) -> None:
    address = memory.caching_allocator_alloc(3 * MIB)

    assert memory.memory_allocated() == memory.max_memory_allocated() == 3 * MIB
    assert memory.memory_reserved() >= 3 * MIB
    memory.caching_allocator_delete(address)
    assert memory.memory_allocated() == 0


@pytest.mark.parametrize("address", [0x1234, -1, None, "7"], ids=repr)
def test_a_foreign_address_is_refused_and_changes_nothing(
    allocator: CachingAllocator, address: int | str | None
) -> None:
    kept = memory.caching_allocator_alloc(MIB)

    with pytest.raises(ArgumentError, match="no block of caching_allocator_alloc is live at"):
        memory.caching_allocator_delete(address)

    assert memory.memory_allocated() == MIB
    memory.caching_allocator_delete(kept)


def test_a_second_delete_is_refused(allocator: CachingAllocator) -> None:
    address = memory.caching_allocator_alloc(MIB)
    memory.caching_allocator_delete(address)

    with pytest.raises(ArgumentError, match=f"is live at {address:#x}"):
        memory.caching_allocator_delete(address)


def test_an_arrays_block_is_not_to_be_deleted(allocator: CachingAllocator) -> None:
    block = allocator.malloc(MIB)

    with pytest.raises(ArgumentError, match="no block of caching_allocator_alloc is live"):
        memory.caching_allocator_delete(block.address)

    allocator.free(block)


def test_the_fraction_is_set_and_read(allocator: CachingAllocator) -> None:
    memory.set_per_process_memory_fraction(0.25)

    assert memory.get_per_process_memory_fraction() == 0.25
    assert memory.get_allocator_settings() == "per_process_memory_fraction:0.25"


@pytest.mark.parametrize(("fraction", "error"), [(1, TypeError), ("0.5", TypeError), (1.5, SettingError)], ids=repr)
def test_what_is_no_fraction_is_refused(
    allocator: CachingAllocator, fraction: float | str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        memory.set_per_process_memory_fraction(fraction)

    assert memory.get_per_process_memory_fraction() == 1.0


def test_settings_that_are_not_mentioned_keep_their_value(allocator: CachingAllocator) -> None:
    memory.set_allocator_settings("max_split_size_mb:64")
    memory.set_allocator_settings("garbage_collection_threshold:0.5")

    assert memory.get_allocator_settings() == "max_split_size_mb:64,garbage_collection_threshold:0.5"


def test_the_summary_is_a_table_of_75_columns(allocator: CachingAllocator) -> None:
    block = allocator.malloc(3 * MIB)

    full, short = memory.memory_summary(), memory.memory_summary(abbreviated=True)

    assert {len(line) for line in full.splitlines()} == {75}
    assert "| Allocated memory        |     3 MiB |" in full
    assert "from large pool" in full
    assert "from large pool" not in short
    allocator.free(block)


def test_the_snapshot_is_of_one_pool_where_it_is_named(allocator: CachingAllocator) -> None:
    pool = allocator.create_pool()
    blocks = [allocator.malloc(MIB)]
    with allocator.use_pool(pool):
        blocks.append(allocator.malloc(MIB))

    assert {segment["segment_pool_id"] for segment in memory.memory_snapshot()} == {(0, 0), pool.id}
    assert {segment["segment_pool_id"] for segment in memory.memory_snapshot(pool.id)} == {pool.id}
    for block in blocks:
        allocator.free(block)


@pytest.mark.parametrize(
    ("old", "new"),
    [("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved")],
)
def test_torchs_former_names_warn_and_do_the_same(allocator: CachingAllocator, old: str, new: str) -> None:
    block = allocator.malloc(MIB)

    with pytest.warns(FutureWarning, match=f"former name of {new}"):
        assert getattr(memory, old)() == getattr(memory, new)() > 0

    allocator.free(block)


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'memory_map'; it has CUDAPluggableAllocator, MemPool"):
        _ = memory.memory_map
