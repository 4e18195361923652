"""What judges the allocator is judged: the shadow model refuses wrong blocks, and synthetic traces free in time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay.errors import ArgumentError
from cuassay.memory import IntegerSource
from cuassay.memory.trace import ShadowModel
from cuassay.memory.workloads import dynamic_batch, serving

Take = Callable[..., None]


@pytest.fixture
def take() -> Take:
    """Tells a model that the block at `offset` was given; only what it looks at of a block is there."""
    source = IntegerSource()
    start, model = source.reserve(2**21, 0), ShadowModel(source)

    def take(offset: int, nbytes: int, asked: int | None = None, stream: int = 0) -> None:
        requested = nbytes if asked is None else asked
        given: Any = SimpleNamespace(address=start + offset, nbytes=nbytes, requested=requested, stream=0)
        model.took(given, requested, stream)

    return take


@pytest.mark.parametrize(
    ("offset", "nbytes", "said"),
    [
        (256, 512, "is not aligned"),
        (0, 700, "is not aligned"),
        (1024, 512, "overlaps"),
        (512, 1024, "overlaps"),
        (1536, 1024, "overlaps"),
        (512, 4096, "overlaps"),
        (4096, 1024, "overlaps"),
        (6144, 512, "overlaps"),
    ],
)
def test_a_block_that_is_not_its_owners_alone_is_refused(take: Take, offset: int, nbytes: int, said: str) -> None:
    take(1024, 1024)
    take(4096, 4096)

    with pytest.raises(AssertionError, match=said):
        take(offset, nbytes)


def test_neighbours_are_taken(take: Take) -> None:
    for offset in (2048, 1024, 3072, 0):
        take(offset, 1024)


def test_blocks_too_small_or_of_another_stream_are_refused(take: Take) -> None:
    with pytest.raises(AssertionError, match="was given for"):
        take(0, 512, asked=600)
    with pytest.raises(AssertionError, match="was given to stream"):
        take(0, 512, stream=1)


@pytest.mark.parametrize("number", [0, 1, 7])
def test_a_span_is_released_without_its_pages_alone(number: int) -> None:
    source = IntegerSource(granularity=2**21)
    span, behind = (source.span(8 * 2**21, 0) for _ in range(2))
    page = span + number * 2**21
    source.map(behind, [2**21])
    source.map(page, [2**21])

    with pytest.raises(ArgumentError, match="unmap them first"):
        source.release(span)

    source.unmap([page])
    source.release(span)
    assert list(source.ranges) == [behind]


def test_a_server_holds_no_more_than_its_requests() -> None:
    live = most = 0
    for event in serving(seed=1):
        live += 1 if event.is_malloc else -1
        most = max(most, live)

    weights, caches, under_way = 4 * 8, 24 * 4, 1
    assert most <= weights + caches + under_way
    assert live == 0


def test_requests_to_a_server_do_not_arrive_in_every_step() -> None:
    steps = 20

    prompts = [event for event in serving(seed=1, steps=steps) if event.is_malloc and event.stream == 1]

    assert 0 < len(prompts) < steps


def test_the_gradient_of_a_hidden_layer_is_as_large_as_the_layer() -> None:
    layers = 3
    sizes = [event.nbytes for event in dynamic_batch(seed=1, steps=1, layers=layers, width=64) if event.is_malloc]

    queries_keys_values = sizes[9 * layers]  # the weights come first
    hidden = queries_keys_values // 3 * 4

    assert sizes.count(hidden) == 2 * layers
