"""Traces that nobody recorded: seeded programs of kinds that are hard for an allocator, as events of a trace.

Each yields what a program of its kind asks for, step by step, and frees everything in the end. Sizes are those of the
arrays such a program makes; only their order and the numbers that vary come from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import pairwise

from cuassay.memory.trace import Event

__all__ = ["WORKLOADS", "dynamic_batch", "experts", "serving", "volumes"]


class _Tape:
    """Events, with names for what is live."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._count = 0
        self._live: dict[int, int] = {}

    def malloc(self, nbytes: int, stream: int = 0) -> int:
        """Ask for `nbytes`; gives a name."""
        self._count += 1
        self._live[self._count] = stream
        self.events.append(Event(True, self._count, nbytes, stream))
        return self._count

    def free(self, *names: int) -> None:
        """Give these back."""
        self.events += [Event(False, name, 0, self._live.pop(name)) for name in names]

    def end(self) -> tuple[Event, ...]:
        """All of it, and a free of what is left."""
        self.free(*tuple(self._live))
        return tuple(self.events)


def _chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  # a program, no secret


def volumes(seed: int, steps: int = 120) -> tuple[Event, ...]:
    """A few huge 3-D volumes that grow and shrink: a simulation whose region of interest moves."""
    chance, tape, side = _chance(seed), _Tape(), 256
    state = tape.malloc(4 * side**3)
    for _ in range(steps):
        side = min(max(side + chance.randrange(-40, 41, 4), 96), 448)
        neighbours = [tape.malloc(4 * side**3) for _ in range(chance.randrange(1, 4))]
        mask, following = tape.malloc(side**3), tape.malloc(4 * side**3)
        tape.free(state, mask, *neighbours)
        sums = tape.malloc(4 * side**2)
        tape.free(sums)
        state = following
    return tape.end()


def dynamic_batch(seed: int, steps: int = 12, layers: int = 12, width: int = 768) -> tuple[Event, ...]:
    """Training of a transformer on batches of any number and length: weights stay, activations come and go."""
    chance, tape = _chance(seed), _Tape()
    weights = [12 * width * width, 4 * width, 2 * width]
    for _ in range(layers * 3):
        _ = [tape.malloc(4 * count) for count in weights]
    for _ in range(steps):
        tokens, length = chance.randrange(2, 17), chance.randrange(64, 1025)
        kept = [_forward(tape, tokens, length, width) for _ in range(layers)]
        logits = tape.malloc(4 * tokens * length * 50257 // 16)
        gradient = tape.malloc(2 * tokens * length * width)
        tape.free(logits)
        for saved in reversed(kept):
            gradient = _backward(tape, saved, gradient, tokens * length * width)
        tape.free(gradient)
    return tape.end()


def _forward(tape: _Tape, tokens: int, length: int, width: int) -> list[int]:
    """One layer; gives what its backward needs."""
    rows = tokens * length
    qkv, scores = tape.malloc(2 * rows * 3 * width), tape.malloc(2 * tokens * 12 * length * length)
    softmax, mixed = tape.malloc(2 * tokens * 12 * length * length), tape.malloc(2 * rows * width)
    tape.free(scores)
    hidden, normed = tape.malloc(2 * rows * 4 * width), tape.malloc(4 * rows * 2)
    return [qkv, softmax, mixed, hidden, normed]


def _backward(tape: _Tape, saved: list[int], gradient: int, elements: int) -> int:
    inner = tape.malloc(2 * elements * 4)
    following = tape.malloc(2 * elements)
    tape.free(inner, gradient, *saved)
    return following


def experts(seed: int, steps: int = 30, layers: int = 8, count: int = 16, width: int = 2048) -> tuple[Event, ...]:
    """A mixture of experts: each layer splits its tokens anew, so every size is another one each time."""
    chance, tape, tokens = _chance(seed), _Tape(), 8192
    for _ in range(layers):
        _ = [tape.malloc(2 * 3 * width * width) for _ in range(count // 4)]
    for _ in range(steps):
        kept = []
        for _ in range(layers):
            cuts = sorted(chance.randrange(tokens + 1) for _ in range(count - 1))
            shares = [high - low for low, high in pairwise((0, *cuts, tokens))]
            inputs = [tape.malloc(2 * share * width) for share in shares]
            inner = [tape.malloc(2 * share * 2 * width) for share in shares]
            outputs = [tape.malloc(2 * share * width) for share in shares]
            combined = tape.malloc(2 * tokens * width)
            tape.free(*outputs)
            kept.append([*inputs, *inner, combined])
        for names in reversed(kept):
            tape.free(tape.malloc(2 * tokens * width), *names)
    return tape.end()


def serving(seed: int, steps: int = 1500, layers: int = 4, width: int = 1024) -> tuple[Event, ...]:
    """Requests whose key-value caches grow by copying: each ends when it likes; prompts are read on a second stream."""
    chance, tape = _chance(seed), _Tape()
    for _ in range(layers * 8):
        tape.malloc(2 * width * width * 4)
    running: list[tuple[list[int], int]] = []
    for _ in range(steps):
        if len(running) < 24 and chance.random() < 0.3:
            length = chance.randrange(32, 2048)
            prompt = tape.malloc(2 * length * width * 4, 1)
            running.append(([tape.malloc(4 * length * width) for _ in range(layers)], length))
            tape.free(prompt)
        if not running:
            continue
        position = chance.randrange(len(running))
        caches, length = running.pop(position)
        if chance.random() < 0.06:
            tape.free(*caches)
            continue
        length += chance.randrange(16, 257)
        grown = []
        for cache in caches:
            grown.append(tape.malloc(4 * length * width))
            tape.free(cache)
        running.append((grown, length))
    return tape.end()


#: The workloads, by name.
WORKLOADS: Mapping[str, Callable[[int], tuple[Event, ...]]] = {
    "volumes": volumes,
    "dynamic_batch": dynamic_batch,
    "experts": experts,
    "serving": serving,
}
