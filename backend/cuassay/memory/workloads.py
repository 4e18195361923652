"""Synthetic traces: seeded programs of kinds that are hard for an allocator, as events of a trace.

Each function gives the requests of a program of its kind, step by step, and frees everything at the end. Sizes are
those of the arrays in such a program; only their order and the numbers that vary depend on the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import pairwise

from cuassay.memory.trace import Event

__all__ = ["WORKLOADS", "dynamic_batch", "experts", "serving", "volumes"]


class _TraceBuilder:
    """Builds a trace, in which live blocks have names."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._count = 0
        self._live: dict[int, int] = {}

    def malloc(self, nbytes: int, stream: int = 0) -> int:
        """Allocate `nbytes`; return a name."""
        self._count += 1
        self._live[self._count] = stream
        self.events.append(Event(True, self._count, nbytes, stream))
        return self._count

    def free(self, *names: int) -> None:
        """Free the blocks of these names."""
        self.events += [Event(False, name, 0, self._live.pop(name)) for name in names]

    def end(self) -> tuple[Event, ...]:
        """Return all events, followed by frees of everything that is left."""
        self.free(*tuple(self._live))
        return tuple(self.events)


def _chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  # a program, not a secret


def volumes(seed: int, steps: int = 120) -> tuple[Event, ...]:
    """A few huge 3-D volumes that grow and shrink: a simulation with a moving region of interest."""
    chance, trace, side = _chance(seed), _TraceBuilder(), 256
    state = trace.malloc(4 * side**3)
    for _ in range(steps):
        side = min(max(side + chance.randrange(-40, 41, 4), 96), 448)
        neighbours = [trace.malloc(4 * side**3) for _ in range(chance.randrange(1, 4))]
        mask, following = trace.malloc(side**3), trace.malloc(4 * side**3)
        trace.free(state, mask, *neighbours)
        sums = trace.malloc(4 * side**2)
        trace.free(sums)
        state = following
    return trace.end()


def dynamic_batch(seed: int, steps: int = 12, layers: int = 12, width: int = 768) -> tuple[Event, ...]:
    """Training of a transformer on batches of varying number and length: weights stay, activations change."""
    chance, trace = _chance(seed), _TraceBuilder()
    weights = [12 * width * width, 4 * width, 2 * width]
    for _ in range(layers * 3):
        _ = [trace.malloc(4 * count) for count in weights]
    for _ in range(steps):
        tokens, length = chance.randrange(2, 17), chance.randrange(64, 1025)
        kept = [_forward(trace, tokens, length, width) for _ in range(layers)]
        logits = trace.malloc(4 * tokens * length * 50257 // 16)
        gradient = trace.malloc(2 * tokens * length * width)
        trace.free(logits)
        for saved in reversed(kept):
            gradient = _backward(trace, saved, gradient, tokens * length * width)
        trace.free(gradient)
    return trace.end()


def _forward(trace: _TraceBuilder, tokens: int, length: int, width: int) -> list[int]:
    """Allocate for one layer; return what its backward pass needs."""
    rows = tokens * length
    qkv, scores = trace.malloc(2 * rows * 3 * width), trace.malloc(2 * tokens * 12 * length * length)
    softmax, mixed = trace.malloc(2 * tokens * 12 * length * length), trace.malloc(2 * rows * width)
    trace.free(scores)
    hidden, normed = trace.malloc(2 * rows * 4 * width), trace.malloc(4 * rows * 2)
    return [qkv, softmax, mixed, hidden, normed]


def _backward(trace: _TraceBuilder, saved: list[int], gradient: int, elements: int) -> int:
    inner = trace.malloc(2 * elements * 4)
    following = trace.malloc(2 * elements)
    trace.free(inner, gradient, *saved)
    return following


def experts(seed: int, steps: int = 30, layers: int = 8, count: int = 16, width: int = 2048) -> tuple[Event, ...]:
    """A mixture of experts: each layer splits its tokens differently, so every size changes each time."""
    chance, trace, tokens = _chance(seed), _TraceBuilder(), 8192
    for _ in range(layers):
        _ = [trace.malloc(2 * 3 * width * width) for _ in range(count // 4)]
    for _ in range(steps):
        kept = []
        for _ in range(layers):
            cuts = sorted(chance.randrange(tokens + 1) for _ in range(count - 1))
            shares = [high - low for low, high in pairwise((0, *cuts, tokens))]
            inputs = [trace.malloc(2 * share * width) for share in shares]
            inner = [trace.malloc(2 * share * 2 * width) for share in shares]
            outputs = [trace.malloc(2 * share * width) for share in shares]
            combined = trace.malloc(2 * tokens * width)
            trace.free(*outputs)
            kept.append([*inputs, *inner, combined])
        for names in reversed(kept):
            trace.free(trace.malloc(2 * tokens * width), *names)
    return trace.end()


def serving(seed: int, steps: int = 1500, layers: int = 4, width: int = 1024) -> tuple[Event, ...]:
    """Requests whose key-value caches grow by copying and end at any time; prompts are read on a second stream."""
    chance, trace = _chance(seed), _TraceBuilder()
    for _ in range(layers * 8):
        trace.malloc(2 * width * width * 4)
    running: list[tuple[list[int], int]] = []
    for _ in range(steps):
        if len(running) < 24 and chance.random() < 0.3:
            length = chance.randrange(32, 2048)
            prompt = trace.malloc(2 * length * width * 4, 1)
            running.append(([trace.malloc(4 * length * width) for _ in range(layers)], length))
            trace.free(prompt)
        if not running:
            continue
        position = chance.randrange(len(running))
        caches, length = running.pop(position)
        if chance.random() < 0.06:
            trace.free(*caches)
            continue
        length += chance.randrange(16, 257)
        grown = []
        for cache in caches:
            grown.append(trace.malloc(4 * length * width))
            trace.free(cache)
        running.append((grown, length))
    return trace.end()


#: The workloads, by name.
WORKLOADS: Mapping[str, Callable[[int], tuple[Event, ...]]] = {
    "volumes": volumes,
    "dynamic_batch": dynamic_batch,
    "experts": experts,
    "serving": serving,
}
