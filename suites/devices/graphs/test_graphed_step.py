"""A transformer block with dropout, captured once: every replay equals the eager call bit for bit, on new numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cuassay import Device, cuda, devices, from_host, ops, random, to_host
from cuassay.random import Generator
from cuassay.testing import requires

SEED = 1234


@dataclass(frozen=True)
class Size:
    """Of one block and of the run."""

    batch: int
    tokens: int
    width: int
    heads: int
    replays: int


#: GPT-2 small's block where there is a GPU; the same in small where Python computes.
SIZES = {"cuda": Size(batch=4, tokens=1024, width=768, heads=12, replays=1000)}
SMALL = Size(batch=2, tokens=8, width=16, heads=2, replays=40)


class Block:
    """Layer norm, attention, layer norm, two products and GELU, with residuals and three dropouts."""

    def __init__(self, device: Device, size: Size) -> None:
        draw = np.random.default_rng(SEED)

        def made(*shape: int, scale: float = 0.02) -> Any:
            return from_host((draw.standard_normal(shape) * scale).astype(np.float32), device)

        width = size.width
        self.size = size
        self.norms = [(made(width, scale=1.0), made(width)) for _ in range(2)]
        self.qkv, self.projection = (made(3 * width, width), made(3 * width)), (made(width, width), made(width))
        self.up, self.down = (made(4 * width, width), made(4 * width)), (made(width, 4 * width), made(width))
        self.mask = from_host(np.triu(np.full((size.tokens, size.tokens), -1e9, np.float32), 1), device)
        self.x = made(size.batch, size.tokens, width, scale=1.0)

    def __call__(self, x: Any, generator: Generator) -> Any:
        x = ops.add(x, self._dropped(self._attention(ops.layer_norm(x, *self.norms[0]), generator), generator))
        hidden = ops.gelu(ops.linear(ops.layer_norm(x, *self.norms[1]), *self.up), approximate="tanh")
        return ops.add(x, self._dropped(ops.linear(hidden, *self.down), generator))

    def _attention(self, x: Any, generator: Generator) -> Any:
        size = self.size
        depth = size.width // size.heads
        parts = ops.linear(x, *self.qkv).reshape(size.batch, size.tokens, 3, size.heads, depth)
        query, key, value = (parts[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
        scores = ops.mul(ops.matmul(query, key.transpose(0, 1, 3, 2)), 1 / math.sqrt(depth))
        weights = self._dropped(ops.softmax(ops.add(scores, self.mask)), generator)
        mixed = ops.matmul(weights, value).transpose(0, 2, 1, 3).reshape(size.batch, size.tokens, size.width)
        return ops.linear(mixed, *self.projection)

    @staticmethod
    def _dropped(a: Any, generator: Generator) -> Any:
        return random.dropout(a, 0.1, generator=generator)


@pytest.fixture
def block(device: Device) -> Block:
    return Block(device, SIZES.get(device.kind, SMALL))


@pytest.fixture
def graph(device: Device) -> Iterator[Any]:
    made = devices.backend(device.kind).new_capture(device.index)
    yield made
    made.reset()


@requires("graphs")
def test_every_replay_equals_the_eager_step_and_draws_new_numbers(device: Device, block: Block, graph: Any) -> None:
    xp, eager, replayed = devices.namespace(device), Generator(device, seed=SEED), Generator(device, seed=SEED)
    block(block.x, Generator(device, seed=0))  # compiled and tuned outside of the capture
    with cuda.graph(graph):
        out = block(block.x, replayed)
    differs, repeats = (from_host(np.zeros(1, np.int64), device) for _ in range(2))
    last = ops.copy(out)

    for _ in range(block.size.replays):
        expected = block(block.x, eager)
        graph.replay()
        xp.add(differs, (expected != out).any(), out=differs)
        xp.add(repeats, (last == out).all(), out=repeats)
        ops.copy(out, out=last)

    assert to_host(differs).tolist() == [0]
    assert to_host(repeats).tolist() == [0]
    assert replayed.get_state() == eager.get_state()
    assert np.isfinite(to_host(out)).all()
