"""Kernels by hand, transformer inference, sampling, normalisation, convolution, precision: faults with their twins."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay.testing import ErrorInput, OpSpec, Sample


class Pair(NamedTuple):
    name: str
    kind: str
    origin: str
    shows: str
    checks: tuple[str, ...]
    make: Callable[[], tuple[Any, Any, Any]]


PAIRS: list[Pair] = []


def pair(name, kind, origin, shows, *checks):
    def register(make):
        PAIRS.append(Pair(name, kind, origin, shows, checks, make))
        return make

    return register


@pair(
    "ring_cache_attention",
    "the step at which the ring buffer wraps sees one slot",
    "sliding-window key-value caches (Mistral's rolling buffer and its ports): > where >= decides that it is full",
    "a position equal to the number of slots: one key is attended to instead of all",
)
def ring_cache_attention():
    """A decoding step over a ring buffer of keys and values; the token at position p was written to slot p % slots."""

    def check(query, keys, values, positions):
        if keys.ndim != 3 or keys.shape != values.shape or query.shape != (keys.shape[0], keys.shape[2]):
            raise ValueError("query is (rows, width), keys and values (rows, slots, width)")
        if positions.shape != query.shape[:1] or 0 in keys.shape[1:]:
            raise ValueError("positions has one entry a row, and there is at least one slot")

    def attend(xp, query, keys, values, count):
        live = xp.arange(keys.shape[1])[None, :] < count[:, None]
        scores = (keys.astype("float64") * query.astype("float64")[:, None, :]).sum(axis=-1)
        scores = xp.where(live, scores / math.sqrt(query.shape[-1]), -math.inf)
        weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return (weights[:, :, None] * values.astype("float64")).sum(axis=1).astype(query.dtype)

    def wrong(xp, query, keys, values, positions):
        check(query, keys, values, positions)
        slots = keys.shape[1]
        return attend(xp, query, keys, values, xp.where(positions > slots, slots, positions % slots + 1))

    def right(xp, query, keys, values, positions):
        check(query, keys, values, positions)
        slots = keys.shape[1]
        return attend(xp, query, keys, values, xp.where(positions >= slots, slots, positions % slots + 1))

    def reference(query, keys, values, positions):
        check(query, keys, values, positions)
        out = np.zeros(query.shape)
        for row, position in enumerate(positions):
            count = min(int(position) + 1, keys.shape[1])
            scores = keys[row, :count] @ query[row] / math.sqrt(query.shape[-1])
            weights = np.exp(scores - scores.max())
            out[row] = weights @ values[row, :count] / weights.sum()
        return out

    def declare(fn):
        def call(make, rows, slots, width, last):
            shape = (rows, slots, width)
            return (
                make((rows, width), low=-3, high=3),
                make(shape, low=-3, high=3),
                make(shape, low=-3, high=3),
                make(rows, dtype="int64", low=0, high=last),
            )

        return OpSpec(
            fn=fn,
            name="ring_cache_attention",
            dtypes=("float16", "float32"),
            samples=lambda make: [call(make, 4, 8, 16, 30), call(make, 3, 5, 4, 9)],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((2, 4)), make((2, 3, 4)), make((2, 3, 5)), make(2, dtype="int64")), ValueError, "keys")
            ],
        )

    return wrong, right, declare


@pair(
    "split_kv_decode",
    "parts without keys keep the zero of their workspace as logarithm of the sum",
    "split-KV decoding (flash-decoding, FlashInfer, Triton's attention): blocks beyond a row's length return early",
    "a length that ends before the last part: the result is drawn towards zero",
)
def split_kv_decode():
    """Attention of one query a row over `lengths` keys, computed in parts which are then combined."""

    def check(query, keys, values, lengths, splits):
        if splits < 1:
            raise ValueError(f"splits is {splits}; give 1 or more")
        if keys.ndim != 3 or keys.shape != values.shape or query.shape != (keys.shape[0], keys.shape[2]):
            raise ValueError("query is (rows, width), keys and values (rows, keys, width)")
        if lengths.shape != query.shape[:1] or 0 in keys.shape[1:]:
            raise ValueError("lengths has one entry a row, and there is at least one key")

    def combine(xp, query, keys, values, lengths, splits, unused):
        step = -(-keys.shape[1] // splits)
        logarithms, results = [], []
        for start in range(0, keys.shape[1], step):
            part = keys[:, start : start + step].astype("float64")
            live = xp.arange(start, start + part.shape[1])[None, :] < lengths[:, None]
            scores = (part * query.astype("float64")[:, None, :]).sum(axis=-1) / math.sqrt(query.shape[-1])
            used = lengths > start
            top = xp.where(used, xp.where(live, scores, -math.inf).max(axis=-1), 0.0)
            weights = xp.where(live, xp.exp(xp.where(live, scores - top[:, None], 0.0)), 0.0)
            total = xp.where(used, weights.sum(axis=-1), 1.0)
            sums = (weights[:, :, None] * values[:, start : start + step].astype("float64")).sum(axis=1)
            results.append(sums / total[:, None])
            logarithms.append(xp.where(used, xp.log(total) + top, unused))
        logarithms = xp.stack(logarithms, axis=1)
        share = xp.exp(logarithms - logarithms.max(axis=1, keepdims=True))
        share = share / share.sum(axis=1, keepdims=True)
        return (share[:, :, None] * xp.stack(results, axis=1)).sum(axis=1).astype(query.dtype)

    def wrong(xp, query, keys, values, lengths, splits=3):
        check(query, keys, values, lengths, splits)
        return combine(xp, query, keys, values, lengths, splits, 0.0)

    def right(xp, query, keys, values, lengths, splits=3):
        check(query, keys, values, lengths, splits)
        return combine(xp, query, keys, values, lengths, splits, -math.inf)

    def reference(query, keys, values, lengths, splits=3):
        check(query, keys, values, lengths, splits)
        out = np.zeros(query.shape)
        for row, length in enumerate(lengths):
            scores = keys[row, :length] @ query[row] / math.sqrt(query.shape[-1])
            weights = np.exp(scores - scores.max())
            out[row] = weights @ values[row, :length] / weights.sum()
        return out

    def declare(fn):
        def call(make, rows, keys, width):
            return (
                make((rows, width), low=-3, high=3),
                make((rows, keys, width), low=-3, high=3),
                make((rows, keys, width), low=-3, high=3),
                make(rows, dtype="int64", low=1, high=keys),
            )

        return OpSpec(
            fn=fn,
            name="split_kv_decode",
            dtypes=("float16", "float32"),
            samples=lambda make: [call(make, 3, 40, 16), Sample(call(make, 2, 17, 5), {"splits": 4})],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample(call(make, 2, 4, 3), {"splits": 0}), ValueError, "splits is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "packed_documents_attention",
    "the longest document is remembered by the number of tokens",
    "varlen attention: Transformer Engine and vLLM forks kept max_seqlen in a cache keyed by the shape of the batch",
    "a second call with as many tokens but a longer document: keys far behind are dropped",
)
def packed_documents_attention():
    """Causal attention within documents that are packed one after another; `starts` marks their first tokens."""

    def check(query, keys, values, starts):
        if query.ndim != 2 or not query.shape == keys.shape == values.shape or starts.shape != query.shape[:1]:
            raise ValueError("query, keys and values are (tokens, width), starts is (tokens,)")
        if 0 in query.shape:
            raise ValueError("there is at least one token")

    def documents(xp, starts):
        return xp.cumsum(starts.astype("int64"), axis=0)

    def longest(xp, document):
        same = document[:, None] == document[None, :]
        return int(same.sum(axis=1).max())

    def attend(xp, query, keys, values, document, reach):
        scores = xp.matmul(query.astype("float64"), keys.astype("float64").T) / math.sqrt(query.shape[-1])
        place = xp.arange(query.shape[0])
        behind = place[:, None] - place[None, :]
        seen = (document[:, None] == document[None, :]) & (behind >= 0) & (behind < reach)
        scores = xp.where(seen, scores, -math.inf)
        weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return xp.matmul(weights, values.astype("float64")).astype(query.dtype)

    reaches = {}

    def wrong(xp, query, keys, values, starts):
        check(query, keys, values, starts)
        document = documents(xp, starts)
        if starts.shape not in reaches:
            reaches[starts.shape] = longest(xp, document)
        return attend(xp, query, keys, values, document, reaches[starts.shape])

    def right(xp, query, keys, values, starts):
        check(query, keys, values, starts)
        document = documents(xp, starts)
        return attend(xp, query, keys, values, document, longest(xp, document))

    def reference(query, keys, values, starts):
        check(query, keys, values, starts)
        out = np.zeros(query.shape)
        first = 0
        for token in range(len(query)):
            first = token if starts[token] else first
            scores = keys[first : token + 1] @ query[token] / math.sqrt(query.shape[-1])
            weights = np.exp(scores - scores.max())
            out[token] = weights @ values[first : token + 1] / weights.sum()
        return out

    def declare(fn):
        def call(make, tokens, width):
            arrays = tuple(make((tokens, width), low=-3, high=3) for _ in range(3))
            return (*arrays, make(tokens, dtype="bool"))

        return OpSpec(
            fn=fn,
            name="packed_documents_attention",
            dtypes=("float16", "float32"),
            samples=lambda make: [call(make, 24, 8), call(make, 9, 5)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "top_k_top_p_draw",
    "the probabilities that top-k leaves are not normalised before top-p",
    "samplers of inference servers (vLLM, FlashInfer, exllama): top-p on the probabilities of the whole vocabulary",
    "top_k=6 and top_p=0.7 over 50 logits: tokens beyond the nucleus are drawn; either option alone is right",
)
def top_k_top_p_draw():
    """A token a row, drawn by a given uniform number from the nucleus of the top_k likeliest; top_k=0 means all."""

    def check(logits, uniforms, top_k, top_p):
        if logits.ndim != 2 or uniforms.shape != logits.shape[:1] or logits.shape[1] == 0:
            raise ValueError("logits is (rows, tokens), uniforms is (rows,)")
        if top_k < 0:
            raise ValueError(f"top_k is {top_k}; give 0 or more")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p is {top_p}; give a number above 0, up to 1")

    def draw(xp, logits, uniforms, top_k, top_p, normalised):
        check(logits, uniforms, top_k, top_p)
        order = xp.argsort(-logits.astype("float64"), axis=-1, kind="stable")
        ordered = xp.take_along_axis(logits.astype("float64"), order, axis=-1)
        chances = xp.exp(ordered - ordered[:, :1])
        chances = chances / xp.cumsum(chances, axis=-1)[:, -1:]
        if top_k:
            chances = chances[:, :top_k]
            if normalised:
                chances = chances / xp.cumsum(chances, axis=-1)[:, -1:]
        running = xp.cumsum(chances, axis=-1)
        kept = (running[:, :-1] < top_p).sum(axis=-1)  # entries after the first
        total = xp.take_along_axis(running, kept[:, None], axis=-1)
        place = (running <= uniforms.astype("float64")[:, None] * total).sum(axis=-1)
        place = xp.minimum(place, kept)
        return xp.take_along_axis(order, place[:, None], axis=-1)[:, 0].astype("int64")

    def wrong(xp, logits, uniforms, top_k=0, top_p=1.0):
        return draw(xp, logits, uniforms, top_k, top_p, normalised=False)

    def right(xp, logits, uniforms, top_k=0, top_p=1.0):
        return draw(xp, logits, uniforms, top_k, top_p, normalised=True)

    def reference(logits, uniforms, top_k=0, top_p=1.0):
        check(logits, uniforms, top_k, top_p)
        out = np.zeros(len(logits), dtype="int64")
        for row in range(len(logits)):
            order = np.argsort(-logits[row], kind="stable")
            chances = np.exp(logits[row][order] - logits[row].max())
            chances = chances / np.cumsum(chances)[-1]
            if top_k:
                chances = chances[:top_k] / np.cumsum(chances[:top_k])[-1]
            nucleus, mass = [], 0.0
            for token, chance in zip(order, chances, strict=False):
                if nucleus and mass >= top_p:
                    break
                mass += chance
                nucleus.append((token, mass))
            above = [token for token, reached in nucleus if reached > uniforms[row] * mass]
            out[row] = above[0] if above else nucleus[-1][0]
        return out

    def declare(fn):
        def call(make, rows, tokens):
            return make((rows, tokens), low=-4, high=4), make(rows, low=0, high=1)

        return OpSpec(
            fn=fn,
            name="top_k_top_p_draw",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                call(make, 5, 31),
                Sample(call(make, 4, 50), {"top_k": 6}),
                Sample(call(make, 4, 23), {"top_p": 0.7}),
                Sample(call(make, 6, 50), {"top_k": 40, "top_p": 0.95}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample(call(make, 2, 5), {"top_k": -1}), ValueError, "top_k is -1"),
                ErrorInput(Sample(call(make, 2, 5), {"top_p": 1.5}), ValueError, "top_p is 1.5"),
            ],
        )

    return wrong, right, declare


@pair(
    "race_draw",
    "a uniform number of exactly one divides zero by zero",
    "torch.multinomial and samplers that divide by exponentials: curand_uniform includes 1, its exponential is 0",
    "a forbidden token whose uniform number is 1: its chance is 0 / 0, and argmax returns it",
)
def race_draw():
    """A token a row: the largest of chance / exponential, among allowed tokens; -1 where none is allowed."""

    def check(logits, uniforms, allowed):
        if logits.ndim != 2 or not logits.shape == uniforms.shape == allowed.shape or logits.shape[1] == 0:
            raise ValueError("logits, uniforms and allowed are (rows, tokens)")

    def chances(xp, logits, allowed):
        logits = logits.astype("float64")
        logits = xp.where(allowed, logits, -math.inf)
        top = xp.where(allowed.any(axis=-1), logits.max(axis=-1), 0.0)
        return xp.exp(logits - top[:, None])

    def times(xp, uniforms):
        return -xp.log(xp.maximum(uniforms.astype("float64"), 1e-300))

    def wrong(xp, logits, uniforms, allowed):
        check(logits, uniforms, allowed)
        with np.errstate(divide="ignore", invalid="ignore"):
            first = xp.argmax(chances(xp, logits, allowed) / times(xp, uniforms), axis=-1)
        return xp.where(allowed.any(axis=-1), first, -1).astype("int64")

    def right(xp, logits, uniforms, allowed):
        check(logits, uniforms, allowed)
        speeds = chances(xp, logits, allowed) / xp.maximum(times(xp, uniforms), 1e-30)
        first = xp.argmax(xp.where(allowed, speeds, -1.0), axis=-1)
        return xp.where(allowed.any(axis=-1), first, -1).astype("int64")

    def reference(logits, uniforms, allowed):
        check(logits, uniforms, allowed)
        out = np.full(len(logits), -1, dtype="int64")
        for row in range(len(logits)):
            tokens = np.flatnonzero(allowed[row])
            if len(tokens):
                weights = np.exp(logits[row, tokens] - logits[row, tokens].max())
                waits = np.maximum(-np.log(np.maximum(uniforms[row, tokens], 1e-300)), 1e-30)
                out[row] = tokens[np.argmax(weights / waits)]
        return out

    def declare(fn):
        def call(make, rows, tokens):
            shape = (rows, tokens)
            return make(shape, low=-4, high=4), make(shape, low=0, high=1), make(shape, dtype="bool")

        return OpSpec(
            fn=fn,
            name="race_draw",
            dtypes=("float32", "float64"),
            samples=lambda make: [call(make, 4, 37), call(make, 1, 6), call(make, 9, 3)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "reorder_beams_",
    "rows are copied one by one into the array that they are read from",
    "beam search in fairseq and llama.cpp ports: the key-value cache was reordered in place, hypothesis by hypothesis",
    "parents [1, 0, 2, 3]: the second beam gets the row that has just replaced the first",
)
def reorder_beams_():
    """The caches of the beams replaced, in place, by those of their parents."""

    def check(cache, parents):
        if cache.ndim < 1 or parents.shape != cache.shape[:1]:
            raise ValueError("parents has one entry for each beam of the cache")

    def wrong(xp, cache, parents):
        check(cache, parents)
        for beam in range(cache.shape[0]):
            cache[beam : beam + 1] = xp.take(cache, parents[beam : beam + 1], axis=0)
        return cache

    def right(xp, cache, parents):
        check(cache, parents)
        cache[...] = xp.take(cache, parents, axis=0)
        return cache

    def reference(cache, parents):
        check(cache, parents)
        return np.array([cache[parent] for parent in parents], dtype=cache.dtype).reshape(cache.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="reorder_beams_",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((5, 3, 8)), make(5, dtype="int64", low=0, high=4)),
                (make((3, 2, 4, 5)), make(3, dtype="int64", low=0, high=2)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((3, 2)), make(2, dtype="int64", low=0, high=1)), ValueError, "one entry for each beam")
            ],
            without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"},
        )

    return wrong, right, declare


@pair(
    "silu_gate_packed",
    "vectors of four are taken where the whole result, not its row, is a multiple of four",
    "fused SwiGLU kernels with float4 loads: the test for the fast path looked at numel, so vectors cross rows",
    "shape (4, 26): 52 results, rows of 13; the last lanes of a row's vectors read the gate from the other half",
)
def silu_gate_packed():
    """silu(gate) * up, where each row holds the gates and then the ups; rows are of twice the width of the result."""

    def check(packed):
        if packed.ndim < 1 or packed.shape[-1] % 2:
            raise ValueError("the last axis holds gates and ups, so its length is even")

    def activate(xp, gate, up, shape, dtype):
        gate, up = gate.astype("float64"), up.astype("float64")
        small = xp.exp(-xp.abs(gate))
        with np.errstate(over="ignore", invalid="ignore"):
            return (gate * xp.where(gate >= 0, 1.0, small) / (1.0 + small) * up).reshape(shape).astype(dtype)

    def scalars(xp, packed, shape):
        half = shape[-1]
        return activate(xp, packed[..., :half], packed[..., half:], shape, packed.dtype)

    def vectors(xp, packed, shape):
        half, count = shape[-1], math.prod(shape)
        flat = packed.reshape(-1)
        first = 4 * xp.arange(count // 4)
        base = first // half * (2 * half) + first % half
        places = (base[:, None] + xp.arange(4)[None, :]).reshape(-1)
        return activate(xp, xp.take(flat, places), xp.take(flat, places + half), shape, packed.dtype)

    def run(xp, packed, by_row):
        check(packed)
        shape = (*packed.shape[:-1], packed.shape[-1] // 2)
        count = math.prod(shape)
        if count and (shape[-1] if by_row else count) % 4 == 0:
            return vectors(xp, packed, shape)
        return scalars(xp, packed, shape)

    def wrong(xp, packed):
        return run(xp, packed, by_row=False)

    def right(xp, packed):
        return run(xp, packed, by_row=True)

    def reference(packed):
        check(packed)
        gate, up = np.split(packed, 2, axis=-1)
        small = np.exp(-np.abs(gate))
        with np.errstate(over="ignore", invalid="ignore"):
            return gate * np.where(gate >= 0, 1 / (1 + small), small / (1 + small)) * up

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="silu_gate_packed",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((2, 5, 64)),
                make((5, 22)),
                make(34),
                Sample((make((0, 16)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((2, 7)), ValueError, "even")],
        )

    return wrong, right, declare


@pair(
    "dilated_depthwise",
    "the halo behind a tile is not widened by the dilation",
    "depthwise convolutions with a tile in shared memory: the halo was sized by the taps, and dilation came later",
    "more than 32 columns with dilation 2 and three taps: the last columns of a full tile miss a tap",
)
def dilated_depthwise():
    """Each row convolved with its own taps, centred, zeros outside; the taps are `dilation` columns apart."""

    tile = 32

    def check(rows, taps, dilation):
        if dilation < 1:
            raise ValueError(f"dilation is {dilation}; give 1 or more")
        if rows.ndim != 2 or taps.ndim != 2 or rows.shape[0] != taps.shape[0] or taps.shape[1] == 0:
            raise ValueError("rows is (channels, columns), taps is (channels, taps)")

    def run(xp, rows, taps, dilation, behind_per_tap):
        check(rows, taps, dilation)
        channels, columns = rows.shape
        count = taps.shape[1]
        before = count // 2 * dilation
        behind = (count - 1 - count // 2) * behind_per_tap
        out = xp.zeros(rows.shape, dtype=rows.dtype)
        wide, factors = rows.astype("float64"), taps.astype("float64")
        for start in range(0, columns, tile):
            width = min(tile, columns - start)
            shared = xp.zeros((channels, tile + (count - 1) * dilation), dtype="float64")
            low, high = max(start - before, 0), min(start + width + behind, columns)
            shared[:, low - start + before : high - start + before] = wide[:, low:high]
            total = xp.zeros((channels, width), dtype="float64")
            for tap in range(count):
                with np.errstate(over="ignore", invalid="ignore"):
                    total = total + factors[:, tap : tap + 1] * shared[:, tap * dilation : tap * dilation + width]
            with np.errstate(over="ignore"):
                out[:, start : start + width] = total.astype(rows.dtype)
        return out

    def wrong(xp, rows, taps, dilation=1):
        return run(xp, rows, taps, dilation, 1)

    def right(xp, rows, taps, dilation=1):
        return run(xp, rows, taps, dilation, dilation)

    def reference(rows, taps, dilation=1):
        check(rows, taps, dilation)
        count, columns = taps.shape[1], rows.shape[1]
        before = count // 2 * dilation
        padded = np.pad(rows, ((0, 0), (before, (count - 1) * dilation - before)))
        with np.errstate(over="ignore", invalid="ignore"):
            return sum(taps[:, tap : tap + 1] * padded[:, tap * dilation :][:, :columns] for tap in range(count))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dilated_depthwise",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((3, 70)), make((3, 5))),
                Sample((make((2, 24)), make((2, 3))), {"dilation": 2}),
                Sample((make((2, 0)), make((2, 3))), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 9)), make((2, 3))), {"dilation": 0}), ValueError, "dilation is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "conv_state_update",
    "the state after a short chunk is padded with zeros",
    "causal_conv1d and Mamba in inference servers: prompts and chunks shorter than the taps lost the previous state",
    "a chunk of one or two columns with four taps: the second result forgets the columns before the chunk",
)
def conv_state_update():
    """A chunk through a causal depthwise convolution: the results, and the last columns for the next chunk."""

    def check(chunk, state, taps):
        if chunk.ndim != 3 or state.ndim != 3 or taps.ndim != 2 or taps.shape[0] != chunk.shape[1]:
            raise ValueError("chunk is (rows, channels, columns), taps is (channels, taps)")
        if taps.shape[1] < 2 or state.shape != (*chunk.shape[:2], taps.shape[1] - 1):
            raise ValueError("state is (rows, channels, taps - 1)")

    def convolve(xp, history, taps, columns, dtype):
        history, taps = history.astype("float64"), taps.astype("float64")
        with np.errstate(over="ignore", invalid="ignore"):
            total = taps[:, :1] * history[:, :, :columns]
            for tap in range(1, taps.shape[1]):
                total = total + taps[:, tap : tap + 1] * history[:, :, tap : tap + columns]
            return total.astype(dtype)

    def wrong(xp, chunk, state, taps):
        check(chunk, state, taps)
        kept, columns = state.shape[2], chunk.shape[2]
        results = convolve(xp, xp.concatenate([state, chunk], axis=2), taps, columns, chunk.dtype)
        following = xp.zeros(state.shape, dtype=state.dtype)
        used = min(kept, columns)
        following[:, :, kept - used :] = chunk[:, :, columns - used :]
        return results, following

    def right(xp, chunk, state, taps):
        check(chunk, state, taps)
        history = xp.concatenate([state, chunk], axis=2)
        results = convolve(xp, history, taps, chunk.shape[2], chunk.dtype)
        return results, history[:, :, history.shape[2] - state.shape[2] :].copy()

    def reference(chunk, state, taps):
        check(chunk, state, taps)
        history = np.concatenate([state, chunk], axis=2)
        results = np.zeros(chunk.shape)
        for column in range(chunk.shape[2]):
            with np.errstate(over="ignore", invalid="ignore"):
                results[:, :, column] = (history[:, :, column : column + taps.shape[1]] * taps).sum(axis=-1)
        return results, history[:, :, chunk.shape[2] :]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="conv_state_update",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((2, 3, 11)), make((2, 3, 3)), make((3, 4))),
                (make((1, 4, 5)), make((1, 4, 2)), make((4, 3))),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((1, 2, 5)), make((1, 2, 4)), make((2, 4))), ValueError, "state is")
            ],
        )

    return wrong, right, declare


@pair(
    "pixel_norm",
    "epsilon is kept in the dtype of the input, where it is zero",
    "StyleGAN's pixel norm and other layers with 1e-8 as a buffer: model.half() turned it into 0",
    "a pixel of float16 whose channels are all zero: 0 / 0",
)
def pixel_norm():
    """Each pixel divided by the root mean square of its channels, which are the second axis."""

    def check(a, eps):
        if a.ndim < 2:
            raise ValueError("the second axis holds the channels")
        if eps <= 0:
            raise ValueError(f"eps is {eps}; give a positive number")

    def normalise(xp, a, eps):
        wide = a.astype("float64")
        mean = (wide * wide).sum(axis=1, keepdims=True) / max(a.shape[1], 1)
        return (wide / xp.sqrt(mean + eps)).astype(a.dtype)

    def wrong(xp, a, eps=1e-8):
        check(a, eps)
        with np.errstate(divide="ignore", invalid="ignore"):
            return normalise(xp, a, xp.asarray(eps, dtype=a.dtype).astype("float64"))

    def right(xp, a, eps=1e-8):
        check(a, eps)
        with np.errstate(invalid="ignore"):
            return normalise(xp, a, eps)

    def reference(a, eps=1e-8):
        check(a, eps)
        with np.errstate(invalid="ignore"):
            return a / np.sqrt((a * a).sum(axis=1, keepdims=True) / max(a.shape[1], 1) + eps)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pixel_norm",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((2, 5, 3, 4)),
                make((3, 17)),
                Sample((make((2, 4, 6)),), {"eps": 1e-4}),
                Sample((make((0, 3, 2)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 3)),), {"eps": 0.0}), ValueError, "eps is 0.0")],
        )

    return wrong, right, declare


@pair(
    "grow_loss_scale",
    "the loss scale grows to infinity",
    "torch.amp.GradScaler's update kernel: the scale doubled without end where gradients stayed finite; now checked",
    "a scale of 2e38 whose streak is complete: infinite instead of unchanged",
)
def grow_loss_scale():
    """Loss scales after a step: less after an overflow, more after `interval` steps without, but never infinite."""

    largest = float(np.finfo("float32").max)

    def check(scales, streaks, overflowed, interval):
        if not scales.shape == streaks.shape == overflowed.shape:
            raise ValueError("scales, streaks and overflowed are of one shape")
        if interval < 1:
            raise ValueError(f"interval is {interval}; give 1 or more")

    def step(xp, scales, streaks, overflowed, interval, grown):
        kept = xp.where(streaks + 1 >= interval, grown, scales.astype("float64"))
        with np.errstate(over="ignore"):
            return xp.where(overflowed, scales.astype("float64") * 0.5, kept).astype(scales.dtype)

    def wrong(xp, scales, streaks, overflowed, interval=4):
        check(scales, streaks, overflowed, interval)
        return step(xp, scales, streaks, overflowed, interval, scales.astype("float64") * 2.0)

    def right(xp, scales, streaks, overflowed, interval=4):
        check(scales, streaks, overflowed, interval)
        wide = scales.astype("float64")
        grown = xp.where(xp.abs(wide * 2.0) <= largest, wide * 2.0, wide)
        return step(xp, scales, streaks, overflowed, interval, grown)

    def reference(scales, streaks, overflowed, interval=4):
        check(scales, streaks, overflowed, interval)
        out = np.array(scales, dtype="float64")
        for place in np.ndindex(out.shape):
            if overflowed[place]:
                out[place] *= 0.5
            elif streaks[place] + 1 >= interval and abs(out[place]) <= largest / 2:
                out[place] *= 2.0
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="grow_loss_scale",
            dtypes=("float32",),
            samples=lambda make: [
                (make(40), make(40, dtype="int64", low=0, high=6), make(40, dtype="bool")),
                Sample(
                    (make((3, 5)), make((3, 5), dtype="int64", low=0, high=2), make((3, 5), dtype="bool")),
                    {"interval": 2},
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(2), make(2, dtype="int64"), make(2, dtype="bool")), {"interval": 0}),
                    ValueError,
                    "interval is 0",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "compensated_total",
    "the correction of an infinite sum is NaN",
    "CPython 3.12's compensated sum() and Kahan sums in array libraries: infinity minus itself was added at the end",
    "a row with one infinity among ordinary numbers: NaN instead of infinity",
)
def compensated_total():
    """Sums along the last axis, with Neumaier's correction of what each addition rounds off."""

    def check(a):
        if a.ndim < 1:
            raise ValueError("there is an axis to sum along")

    def add_up(xp, a, guarded):
        check(a)
        total = xp.zeros(a.shape[:-1], dtype=a.dtype)
        lost = xp.zeros(a.shape[:-1], dtype=a.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for column in range(a.shape[-1]):
                number = a[..., column]
                following = total + number
                larger = xp.abs(total) >= xp.abs(number)
                rest = xp.where(larger, (total - following) + number, (number - following) + total)
                lost = lost + (xp.where(xp.isfinite(following), rest, 0.0) if guarded else rest)
                total = following
            return xp.asarray(total + lost)

    def wrong(xp, a):
        return add_up(xp, a, guarded=False)

    def right(xp, a):
        return add_up(xp, a, guarded=True)

    def reference(a):
        check(a)
        out = np.zeros(a.shape[:-1])
        for place in np.ndindex(out.shape):
            try:
                out[place] = math.fsum(a[place])
            except (OverflowError, ValueError):  # it leaves the range on the way, or infinities of both signs
                with np.errstate(over="ignore", invalid="ignore"):
                    out[place] = np.cumsum(a[place])[-1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="compensated_total",
            dtypes=("float64",),
            samples=lambda make: [
                make((4, 60)),
                make((2, 3, 9)),
                make(25, low=-1e12, high=1e12),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare
