"""The configuration string: torch's keys, kept values, clear errors; and how sizes are rounded by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.errors import SettingError
from cuassay.memory import AllocatorConfig, CachingAllocator, IntegerSource, parse_config

MIB = 2**20

#: Keys whose value is a whole number.
WHOLE = ("max_split_size_mb", "roundup_power2_divisions", "pinned_num_register_threads")


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("max_split_size_mb:128", "max_split_size", 128 * MIB),
        ("max_non_split_rounding_mb: 40", "max_non_split_rounding", 40 * MIB),
        ("garbage_collection_threshold:0.8", "garbage_collection_threshold", 0.8),
        ("roundup_power2_divisions:4", "roundup_power2_divisions", ((None, 4),)),
        ("roundup_power2_divisions:[256:1, >:8]", "roundup_power2_divisions", ((256 * MIB, 1), (None, 8))),
        ("large_segment_size_mb:64,", "large_segment_size", 64 * MIB),
        ("per_process_memory_fraction:1", "per_process_memory_fraction", 1.0),
        ("backend:cudaMallocAsync", "backend", "cudaMallocAsync"),
        ("expandable_segments:False", "expandable_segments", False),
        ("expandable_segments_reserve:0.5", "expandable_segments_reserve", 0.5),
        ("expandable_segments_reserve:1.125", "expandable_segments_reserve", 1.125),
        ("expandable_segments_reserve:64K", "expandable_segments_reserve", 2**16),
        ("expandable_segments_reserve:0.5m", "expandable_segments_reserve", 2**19),
        ("expandable_segments_reserve:40G", "expandable_segments_reserve", 40 * 2**30),
        ("expandable_segments_reserve:2T", "expandable_segments_reserve", 2**41),
        ("expandable_segments_reserve:4194304", "expandable_segments_reserve", 4 * MIB),
        ("expandable_segments_reserve_by_class:[compute:0.5]", "expandable_segments_reserve_by_class", "[compute:0.5]"),
        ("release_lock_on_hipmalloc:False", "release_lock_on_cudamalloc", False),
        ("max_split_size_mb:20", "max_split_size", 20 * MIB),
        ("large_segment_size_mb:10", "large_segment_size", 10 * MIB),
        ("per_process_memory_fraction:0", "per_process_memory_fraction", 0.0),
        ("pinned_max_cached_size_mb:1", "pinned_max_cached_size", MIB),
        ("pinned_num_register_threads:1", "pinned_num_register_threads", 1),
        ("pinned_num_register_threads:128", "pinned_num_register_threads", 128),
        ("throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom", True),
        ("graph_capture_record_stream_reuse:True", "graph_capture_record_stream_reuse", True),
        ("", "max_split_size", None),
    ],
)
def test_each_key_sets_its_field(text: str, field: str, value: object) -> None:
    assert getattr(parse_config(text), field) == value


def test_keys_that_are_not_mentioned_keep_their_value() -> None:
    allocator = CachingAllocator(IntegerSource(), config="max_split_size_mb:128")

    allocator.configure("large_segment_size_mb:64")

    assert str(allocator.config) == "max_split_size_mb:128,large_segment_size_mb:64"


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:19",
        "max_split_size_mb:20.5",
        "max_split_size_mb:",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:nan",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[256:1,128:2]",
        "roundup_power2_divisions:[>:1,256:2]",
        "roundup_power2_divisions:[256]",
        "roundup_power2_divisions:[]",
        "large_segment_size_mb:-1",
        "per_process_memory_fraction:1.01",
        "backend:jemalloc",
        "expandable_segments:true",
        "expandable_segments_reserve:0",
        "expandable_segments_reserve:-1G",
        "expandable_segments_reserve:much",
        "expandable_segments_reserve:1048576T",
        "max_non_split_rounding_mb:19",
        "large_segment_size_mb:9",
        "per_process_memory_fraction:-0.01",
        "pinned_num_register_threads:256",
        *(f"{key}:{text}" for key in WHOLE for text in ("+64", "6_4")),  # int takes them
    ],
)
def test_a_bad_value_is_named_with_its_rule(text: str) -> None:
    with pytest.raises(SettingError, match=rf"^{text.partition(':')[0]} must be .*; got "):
        parse_config(text)


@pytest.mark.parametrize("text", ["max_split_size:128", "expandable_segment:True", ":1"])
def test_an_unknown_key_lists_those_there_are(text: str) -> None:
    with pytest.raises(SettingError, match="options: backend, "):
        parse_config(text)


@pytest.mark.parametrize("text", ["max_split_size_mb", "a,b", "max_split_size_mb:128,,"])
def test_what_is_no_pair_is_shown(text: str) -> None:
    with pytest.raises(SettingError, match="is not an option; write key:value"):
        parse_config(text)


@pytest.mark.parametrize("divisions", ["4", "[256:4]", "[256:1,512:2,>:8]"])
def test_a_configuration_is_shown_as_it_was_written(divisions: str) -> None:
    text = f"roundup_power2_divisions:{divisions}"

    assert str(parse_config(text)) == text


def test_the_backend_is_fixed_once_there_is_an_allocator() -> None:
    allocator = CachingAllocator(IntegerSource())

    with pytest.raises(SettingError, match="before the first allocation"):
        allocator.configure("backend:cudaMallocAsync,large_segment_size_mb:64")

    assert str(allocator.config) == ""


def test_a_bad_string_changes_nothing() -> None:
    allocator = CachingAllocator(IntegerSource(), config="max_split_size_mb:128")

    with pytest.raises(SettingError):
        allocator.configure("large_segment_size_mb:64,garbage_collection_threshold:2")

    assert str(allocator.config) == "max_split_size_mb:128"


@pytest.mark.parametrize(
    ("text", "nbytes", "rounded"),
    [
        ("", 1, 512),
        ("", 513, 1024),
        ("roundup_power2_divisions:1", 1200 * 1024, 1200 * 1024),
        ("roundup_power2_divisions:4", 1200, 1536),
        ("roundup_power2_divisions:4", 1200 * 1024, 1280 * 1024),
        ("roundup_power2_divisions:4", 1024 * 1024, 1024 * 1024),
        ("roundup_power2_divisions:[2:1,>:2]", 5 * MIB, 6 * MIB),
        ("roundup_power2_divisions:[2:2]", 5 * MIB, 5 * MIB),
    ],
)
def test_sizes_are_rounded_to_steps_of_a_power_of_two(text: str, nbytes: int, rounded: int) -> None:
    assert parse_config(text).round_size(nbytes) == rounded


@given(nbytes=st.integers(0, 2**45), divisions=st.sampled_from([0, 1, 2, 8, 64]))
def test_rounding_is_aligned_and_bounded(nbytes: int, divisions: int) -> None:
    config = AllocatorConfig(roundup_power2_divisions=((None, divisions),))

    rounded = config.round_size(nbytes)

    assert rounded % 512 == 0
    assert nbytes <= rounded <= max(512, nbytes + 511, nbytes + nbytes // max(divisions, 2) + 1)
    assert config.round_size(rounded) == rounded
    assert config.segment_size(rounded) >= rounded


@pytest.mark.parametrize(
    ("nbytes", "block", "is_served"),
    [(MIB, 19 * MIB, True), (MIB, 20 * MIB, False), (20 * MIB, 39 * MIB, True), (20 * MIB, 40 * MIB, False)],
)
def test_oversize_blocks_serve_requests_near_their_size(nbytes: int, block: int, is_served: bool) -> None:
    assert parse_config("max_split_size_mb:20").may_serve(nbytes, block) is is_served
