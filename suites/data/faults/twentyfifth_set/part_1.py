"""Linear algebra helpers, statistics, draws, sparse formats, quantisation, losses, metrics: faults with their twins."""

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
    "pick_by_counts",
    "a draw on the edge of a bin falls into the bin below, even one with count zero",
    "torch.multinomial and JAX-like inverse sampling: outcomes of probability zero were drawn for u = 0 (side left)",
    "counts [0, 3, 5] and a draw of exactly 0: place 0, which has no count, instead of 1; or [2, 2] and 0.5",
)
def pick_by_counts():
    """Places drawn in proportion to counts, one for each draw in [0, 1]; -1 where all counts are zero."""

    def pick(xp, counts, draws, below):
        if counts.ndim != 1 or not counts.size:
            raise ValueError("give at least one count, in one dimension")
        ends = xp.cumsum(counts, dtype="int64")
        target = xp.clip(draws.astype("float64"), 0, 1) * ends[-1]
        last = (ends < ends[-1]).sum()
        place = xp.minimum(below(ends, target[..., None]).sum(axis=-1), last)
        return xp.where(ends[-1] > 0, place, -1).astype("int64")

    def wrong(xp, counts, draws):
        return pick(xp, counts, draws, lambda ends, target: ends < target)

    def right(xp, counts, draws):
        return pick(xp, counts, draws, lambda ends, target: ends <= target)

    def reference(counts, draws):
        if counts.ndim != 1 or not counts.size:
            raise ValueError("give at least one count, in one dimension")
        tickets = [place for place, count in enumerate(counts.tolist()) for _ in range(count)]
        out = np.full(draws.shape, -1, dtype="int64")
        for i in np.ndindex(draws.shape):
            if tickets:
                out[i] = tickets[max(0, min(int(draws[i] * len(tickets)), len(tickets) - 1))]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pick_by_counts",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(7, low=0, high=9, dtype="int64"), make(30, low=0, high=1)),
                (make(40, low=0, high=3, dtype="int64"), make((3, 5), low=0, high=1)),
                (make(1, low=0, high=3, dtype="int64"), make(4, low=0, high=1)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(0, dtype="int64"), make(2, low=0, high=1))), ValueError, "at least one count")
            ],
        )

    return wrong, right, declare


@pair(
    "jagged_sums",
    "a NaN, an infinity or a large number spoils the segments behind it",
    "segment sums as differences of a running sum: pandas' rolling sums, torch_scatter-like CSR kernels written by LLMs",
    "values [1, inf, 2, 3] and lengths [2, 2]: the second sum is NaN instead of 5",
)
def jagged_sums():
    """Sums of successive segments of rows, as many rows each as `lengths` says; rows beyond the last one count not."""

    def bounds(xp, values, lengths):
        if values.ndim != 2 or lengths.ndim != 1:
            raise ValueError("give values of two dimensions and lengths of one")
        ends = xp.cumsum(lengths, dtype="int64")
        return xp.minimum(ends - lengths, len(values)), xp.minimum(ends, len(values))

    def wrong(xp, values, lengths):
        start, stop = bounds(xp, values, lengths)
        running = xp.zeros((len(values) + 1, values.shape[1]), dtype="float64")
        running[1:] = xp.cumsum(values, axis=0, dtype="float64")
        return (running[stop] - running[start]).astype(values.dtype)

    def right(xp, values, lengths):
        start, stop = bounds(xp, values, lengths)
        row = xp.arange(len(values))
        inside = (row >= start[:, None]) & (row < stop[:, None])
        return xp.where(inside[:, :, None], values.astype("float64"), 0.0).sum(axis=1).astype(values.dtype)

    def reference(values, lengths):
        if values.ndim != 2 or lengths.ndim != 1:
            raise ValueError("give values of two dimensions and lengths of one")
        out, at = np.zeros((len(lengths), values.shape[1])), 0
        for i, length in enumerate(lengths.tolist()):
            out[i] = values[at : at + length].sum(axis=0)
            at += length
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="jagged_sums",
            dtypes=("float16", "float32"),
            result_dtype=lambda values, *_: values,
            samples=lambda make: [
                (make((20, 4)), make(6, low=0, high=5, dtype="int64")),
                (make((33, 1)), make(9, low=0, high=4, dtype="int64")),
                Sample((make((0, 3)), make(2, low=0, high=0, dtype="int64")), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "position_ids",
    "the running count is kept in the tokens' own dtype and wraps",
    "transformers' create_position_ids_from_input_ids: cumsum(...).type_as(mask); byte tokens make it uint8",
    "uint8 tokens with 300 that are not padding in a row: positions start again from 0 behind 255",
)
def position_ids():
    """Places of tokens that are not padding, counted from pad + 1, and pad for padding."""

    def places(xp, tokens, pad, dtype):
        if not tokens.ndim:
            raise ValueError("give a row of tokens")
        real = tokens != pad
        return xp.where(real, xp.cumsum(real, axis=-1, dtype=dtype).astype("int64") + pad, pad)

    def wrong(xp, tokens, pad=1):
        return places(xp, tokens, pad, tokens.dtype)

    def right(xp, tokens, pad=1):
        return places(xp, tokens, pad, "int64")

    def reference(tokens, pad=1):
        if not tokens.ndim:
            raise ValueError("give a row of tokens")
        out = np.full(tokens.shape, pad, dtype="int64")
        for row in np.ndindex(tokens.shape[:-1]):
            found = np.flatnonzero(tokens[row] != pad)
            out[row][found] = pad + 1 + np.arange(len(found))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="position_ids",
            dtypes=("uint8", "int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make((3, 40), low=0, high=9),
                make(100, low=0, high=120),
                Sample((make((2, 5, 17), low=0, high=4),), {"pad": 0}),
                Sample((make((2, 0), low=0, high=4),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "mxint8_quantise",
    "floor(log2(x)) is one too large just below a power of two",
    "microscaling libraries and Triton MX kernels: the shared exponent by floor(log2(amax)) in the input's precision",
    "a block whose largest magnitude is the number just below 1024 in float16 or float32: exponent 10 instead of 9",
)
def mxint8_quantise():
    """Blocks as int8 with one exponent each (MXINT8); infinities saturate, NaN is zero, a block of zeros gets -127."""

    def quantise(xp, a, block, exponent):
        if block < 1 or not a.ndim or a.shape[-1] % block:
            raise ValueError(f"the last axis is no multiple of block {block}")
        parts = a.reshape(*a.shape[:-1], a.shape[-1] // block, block)
        parts = xp.where(xp.isnan(parts), 0, parts)
        largest = xp.where(xp.isfinite(parts), xp.abs(parts), 0).max(axis=-1).astype(a.dtype)
        found = exponent(xp.where(largest > 0, largest, 1)).astype("int32")
        found = xp.clip(xp.where(largest > 0, found, -127), -127, 127).astype("int32")
        scaled = xp.ldexp(parts.astype("float64"), 6 - found[..., None])
        return xp.clip(xp.rint(scaled), -127, 127).astype("int8").reshape(a.shape), found.astype("int8")

    def wrong(xp, a, block=32):
        return quantise(xp, a, block, lambda largest: xp.floor(xp.log2(largest)))

    def right(xp, a, block=32):
        return quantise(xp, a, block, lambda largest: xp.frexp(largest)[1] - 1)

    def reference(a, block=32):
        if block < 1 or not a.ndim or a.shape[-1] % block:
            raise ValueError(f"the last axis is no multiple of block {block}")
        parts = np.nan_to_num(a, nan=0.0, posinf=math.inf, neginf=-math.inf).reshape(-1, block)
        whole, exponents = np.zeros(parts.shape, dtype="int8"), np.zeros(len(parts), dtype="int8")
        for i, part in enumerate(parts):
            top = max((abs(float(x)) for x in part if math.isfinite(x)), default=0.0)
            exponents[i] = max(-127, int(top.hex().split("p")[1])) if top else -127
            whole[i] = np.clip(np.rint(part / 2.0 ** (int(exponents[i]) - 6)), -127, 127)
        return whole.reshape(a.shape), exponents.reshape(*a.shape[:-1], a.shape[-1] // block)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mxint8_quantise",
            dtypes=("float16", "float32"),
            result_dtype="int8",
            samples=lambda make: [
                make((2, 64)),
                make((3, 2, 32), low=-1000, high=1000),
                Sample((make((5, 24)),), {"block": 8}),
                Sample((make((0, 32)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(33),)), ValueError, "no multiple of block 32")],
        )

    return wrong, right, declare


@pair(
    "merge_moments",
    "the product of two int32 counts wraps",
    "Chan's merge of variances with integer counts: na * nb overflows (scikit-learn's and CUDA reductions' reports)",
    "int32 counts 48000 and 49000 with different means: the sum of squares is too small, often negative",
)
def merge_moments():
    """Mean and sum of squared deviations of two batches together, for each feature; zeros where both are empty."""

    def merge(xp, count_a, mean_a, m2_a, count_b, mean_b, m2_b, product):
        kept, (mean_a, m2_a, mean_b, m2_b) = mean_a.dtype, (x.astype("float64") for x in (mean_a, m2_a, mean_b, m2_b))
        has_a, has_b, total = count_a > 0, count_b > 0, xp.maximum(count_a + count_b, 1)
        mean = xp.where(has_a, mean_a, 0) * (count_a / total) + xp.where(has_b, mean_b, 0) * (count_b / total)
        apart = xp.where(has_a & has_b, mean_b - mean_a, 0)
        between = apart * apart * (product(count_a, count_b) / total)
        return mean.astype(kept), (xp.where(has_a, m2_a, 0) + xp.where(has_b, m2_b, 0) + between).astype(kept)

    def wrong(xp, count_a, mean_a, m2_a, count_b, mean_b, m2_b):
        return merge(xp, count_a, mean_a, m2_a, count_b, mean_b, m2_b, lambda a, b: a * b)

    def right(xp, count_a, mean_a, m2_a, count_b, mean_b, m2_b):
        return merge(xp, count_a, mean_a, m2_a, count_b, mean_b, m2_b, lambda a, b: a.astype("float64") * b)

    def reference(count_a, mean_a, m2_a, count_b, mean_b, m2_b):
        mean, m2 = np.zeros(mean_a.shape), np.zeros(mean_a.shape)
        for i in np.ndindex(mean_a.shape):
            a, b = int(count_a[i]), int(count_b[i])
            if a and b:
                mean[i] = mean_a[i] * (a / (a + b)) + mean_b[i] * (b / (a + b))
                m2[i] = m2_a[i] + m2_b[i] + (mean_b[i] - mean_a[i]) ** 2 * (a * b / (a + b))
            elif a or b:
                mean[i], m2[i] = (mean_a[i], m2_a[i]) if a else (mean_b[i], m2_b[i])
        return mean, m2

    def declare(fn):
        def batch(make, shape, most):
            return make(shape, low=0, high=most, dtype="int32"), make(shape), make(shape, low=0, high=900)

        return OpSpec(
            fn=fn,
            name="merge_moments",
            dtypes=("float32", "float64"),
            result_dtype=lambda count, mean, *_: mean,
            samples=lambda make: [
                (*batch(make, 8, 1000), *batch(make, 8, 1000)),
                (*batch(make, (2, 3), 49_000), *batch(make, (2, 3), 49_000)),
                (*batch(make, 1, 3), *batch(make, 1, 3)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "smoothed_cross_entropy",
    "ignored rows are left out of the likelihood, not of the smoothing term",
    "label smoothing next to ignore_index: reports to torch, fairseq and transformers' early LabelSmoother",
    "smoothing 0.1 and one label of four equal to ignore_index: the smoothing term averages over all four rows",
)
def smoothed_cross_entropy():
    """Cross entropy of rows of logits with smoothed labels; rows with the ignored label count for nothing."""

    def losses(xp, logits, labels, smoothing, ignore_index):
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing is {smoothing}; give 0 or more and less than 1")
        wide = logits.astype("float64")
        wide = wide - wide.max(axis=-1, keepdims=True)
        wide = wide - xp.log(xp.exp(wide).sum(axis=-1, keepdims=True))
        used = labels != ignore_index
        picked = xp.take_along_axis(wide, xp.where(used, labels, 0)[:, None], axis=-1)[:, 0]
        return used, -picked, -wide.mean(axis=-1), xp.maximum(used.sum(), 1)

    def wrong(xp, logits, labels, smoothing=0.0, ignore_index=-100):
        used, picked, spread, count = losses(xp, logits, labels, smoothing, ignore_index)
        loss = xp.where(used, picked, 0).sum() / count
        if smoothing:
            loss = (1 - smoothing) * loss + smoothing * spread.sum() / max(len(labels), 1)
        return loss.astype(logits.dtype)

    def right(xp, logits, labels, smoothing=0.0, ignore_index=-100):
        used, picked, spread, count = losses(xp, logits, labels, smoothing, ignore_index)
        loss = xp.where(used, picked, 0).sum() / count
        if smoothing:
            loss = (1 - smoothing) * loss + smoothing * xp.where(used, spread, 0).sum() / count
        return loss.astype(logits.dtype)

    def reference(logits, labels, smoothing=0.0, ignore_index=-100):
        rows = []
        for row, label in zip(logits, labels.tolist(), strict=True):
            if label != ignore_index:
                logs = row - row.max()
                logs = logs - np.log(np.exp(logs).sum())
                loss = -logs[label]
                rows.append((1 - smoothing) * loss - smoothing * logs.mean() if smoothing else loss)
        return np.asarray(np.mean(rows) if rows else 0.0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smoothed_cross_entropy",
            dtypes=("float32", "float64"),
            result_dtype=lambda logits, *_: logits,
            samples=lambda make: [
                (make((6, 9)), make(6, low=0, high=8, dtype="int64")),
                Sample((make((4, 30)), make(4, low=0, high=29, dtype="int64")), {"smoothing": 0.1}),
                Sample((make((12, 5)), make(12, low=0, high=4, dtype="int64")), {"ignore_index": 0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "reciprocal_rank",
    "a row whose only relevant items are ranked behind the cut counts as a hit at the first rank",
    "metrics written by LLMs and early torchmetrics-like retrieval code: argmax of a row of False is 0",
    "k=3 and a row whose one relevant item has the lowest of 12 scores: 1 instead of 0",
)
def reciprocal_rank():
    """1 / rank of the first relevant item among the k best by score, or 0; equal scores keep their order."""

    def ranked(xp, scores, relevant, k):
        if k < 1:
            raise ValueError(f"k is {k}; give 1 or more")
        order = xp.argsort(-scores, axis=-1, kind="stable")
        return xp.take_along_axis(relevant, order, axis=-1)[..., :k]

    def rank(xp, scores, found, hits):
        return xp.where(found, 1 / (xp.argmax(hits, axis=-1) + 1.0), 0).astype(scores.dtype)

    def wrong(xp, scores, relevant, k=10):
        hits = ranked(xp, scores, relevant, k)
        return rank(xp, scores, relevant.any(axis=-1), hits)

    def right(xp, scores, relevant, k=10):
        hits = ranked(xp, scores, relevant, k)
        return rank(xp, scores, hits.any(axis=-1), hits)

    def reference(scores, relevant, k=10):
        if not scores.shape[-1]:
            raise ValueError("no items")
        out = np.zeros(scores.shape[:-1])
        for row in np.ndindex(out.shape):
            best = sorted(range(scores.shape[-1]), key=lambda i: (math.isnan(scores[row][i]), -scores[row][i]))
            out[row] = next((1 / (at + 1) for at, i in enumerate(best[:k]) if relevant[row][i]), 0)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="reciprocal_rank",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda scores, *_: scores,
            samples=lambda make: [
                (make((5, 12)), make((5, 12), dtype="bool")),
                Sample((make((2, 3, 20)), make((2, 3, 20), dtype="bool")), {"k": 8}),
                (make(30), make(30, dtype="bool")),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(4, dtype="bool")), {"k": 0}), ValueError, "k is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "householder",
    "sign(0) is 0, so that a vector that starts with zero is not reflected onto the first axis",
    "QR kernels written by LLMs and in tutorials: v[0] += sign(x[0]) * norm(x)",
    "x = [0, 3, 4]: the matrix maps x to -x instead of [-5, 0, 0]",
)
def householder():
    """The reflection that maps a vector onto the first axis, with the sign that does not cancel; 1 for zeros."""

    def reflection(xp, x, sign):
        if not x.ndim or not x.shape[-1]:
            raise ValueError("give vectors of at least one number")
        top = xp.abs(x).max(axis=-1, keepdims=True).astype("float64")
        v = x.astype("float64") / xp.where(top > 0, top, 1)
        first = v[..., :1] + sign(v[..., :1]) * xp.sqrt((v * v).sum(axis=-1, keepdims=True))
        v = xp.concatenate([first, v[..., 1:]], axis=-1)
        square = (v * v).sum(axis=-1)[..., None, None]
        twice = xp.where(square == 0, 0, 2 / xp.where(square == 0, 1, square))
        return (xp.eye(x.shape[-1]) - twice * v[..., :, None] * v[..., None, :]).astype(x.dtype)

    def wrong(xp, x):
        return reflection(xp, x, xp.sign)

    def right(xp, x):
        return reflection(xp, x, lambda first: xp.where(first < 0, -1.0, 1.0))

    def reference(x):
        if not x.ndim or not x.shape[-1]:
            raise ValueError("give vectors of at least one number")
        out = np.zeros((*x.shape, x.shape[-1]))
        for i in np.ndindex(x.shape[:-1]):
            out[i] = np.eye(x.shape[-1])
            if x[i].any():
                v = x[i] / np.abs(x[i]).max()
                norm = np.linalg.norm(v)
                v[0] += -norm if v[0] < 0 else norm
                v /= np.linalg.norm(v)
                out[i] -= 2 * np.outer(v, v)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="householder",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [
                make(5),
                make((4, 3)),
                make((2, 3, 8)),
                make((6, 1)),
                make((3, 4), low=0, high=1),
                Sample((make((0, 3)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "weighted_order",
    "u ** (1 / w) underflows for small weights, and their order is that of the places",
    "Efraimidis and Spirakis' sampling as usually written, with powers instead of log(u) / w (vLLM, DGL, torch forums)",
    "all weights between 0.0002 and 0.001, as shares of thousands of items: the order hardly depends on the draws",
)
def weighted_order():
    """Places in the order of weighted draws without replacement, the first k of them; weights of zero come last."""

    def first(xp, keys, k):
        if k is not None and k < 1:
            raise ValueError(f"k is {k}; give 1 or more")
        return xp.argsort(-keys, axis=-1, kind="stable")[..., :k].astype("int64")

    def wrong(xp, weights, draws, k=None):
        weights = weights.astype("float64")
        power = 1 / xp.where(weights > 0, weights, 1)
        return first(xp, xp.where(weights > 0, draws.astype("float64") ** power, 0), k)

    def right(xp, weights, draws, k=None):
        weights = weights.astype("float64")
        drawn = (weights > 0) & (draws > 0)
        share = xp.log(xp.where(drawn, draws, 1).astype("float64")) / xp.where(drawn, weights, 1)
        return first(xp, xp.where(drawn, share, -math.inf), k)

    def reference(weights, draws, k=None):
        out = np.zeros(weights.shape, dtype="int64")
        for row in np.ndindex(weights.shape[:-1]):
            waits = []
            for weight, draw in zip(weights[row].tolist(), draws[row].tolist(), strict=True):
                waits.append(-math.log(draw) / weight if weight > 0 and draw > 0 else math.inf)
            out[row] = sorted(range(len(waits)), key=waits.__getitem__)
        return out[..., :k]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weighted_order",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(9, low=0, high=1), make(9, low=0, high=1)),
                Sample((make((4, 40), low=0, high=1), make((4, 40), low=0, high=1)), {"k": 5}),
                (make((2, 3, 6), low=0, high=50), make((2, 3, 6), low=0, high=1)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=1), make(4, low=0, high=1)), {"k": 0}), ValueError, "k is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "ntk_rotary",
    "after a long sequence, shorter ones keep the frequencies of the longest",
    "transformers' dynamic NTK rotary embedding: the frequencies were rescaled for long sequences and not set back",
    "a call with 64 positions, then one with 20, with the same width and options: the second is rotated too little",
)
def ntk_rotary():
    """Rotary embedding of (..., positions, width); the base grows with the sequence beyond the trained length."""

    longest: dict[Any, int] = {}

    def rotate(xp, x, length, trained, base):
        width = x.shape[-1]
        if length > trained:
            base = base * (length / trained) ** (width / max(width - 2, 1))
        frequency = xp.exp(-math.log(base) * 2 / width * xp.arange(width // 2, dtype="float64"))
        angle = xp.arange(x.shape[-2], dtype="float64")[:, None] * frequency
        cos, sin = xp.cos(angle), xp.sin(angle)
        low, high = x[..., : width // 2].astype("float64"), x[..., width // 2 :].astype("float64")
        return xp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1).astype(x.dtype)

    def check(x):
        if x.ndim < 2 or x.shape[-1] < 2 or x.shape[-1] % 2:
            raise ValueError("give positions, and an even width")

    def wrong(xp, x, trained=16, base=10000.0):
        check(x)
        key = x.shape[-1], trained, base
        longest[key] = max(longest.get(key, 0), x.shape[-2])
        return rotate(xp, x, longest[key], trained, base)

    def right(xp, x, trained=16, base=10000.0):
        check(x)
        return rotate(xp, x, x.shape[-2], trained, base)

    def reference(x, trained=16, base=10000.0):
        check(x)
        length, width = x.shape[-2:]
        grown = base * max(1.0, length / trained) ** (width / (width - 2) if width > 2 else 1)
        angle = np.outer(np.arange(length), grown ** (-2 * np.arange(width // 2) / width))
        (low, high), cos, sin = np.split(x, 2, axis=-1), np.cos(angle), np.sin(angle)
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ntk_rotary",
            dtypes=("float16", "float32"),
            result_dtype=lambda x: x,
            samples=lambda make: [
                make((12, 8)),
                make((2, 3, 40, 4)),
                Sample((make((3, 24, 10)),), {"trained": 8, "base": 500.0}),
                Sample((make((0, 8)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "interleaved_product",
    "with out= one of the inputs, the imaginary part reads the real part that was just written",
    "in-place rotary and complex kernels on interleaved pairs: the first store comes before the second load",
    "interleaved_product(a, b, out=a), which the docstring allows: every second number is wrong",
)
def interleaved_product():
    """Products of complex numbers kept as real and imaginary parts in turn; `out` may be one of the inputs."""

    def prepare(xp, a, b, out):
        if a.shape != b.shape or not a.ndim or a.shape[-1] % 2:
            raise ValueError(f"shapes {a.shape} and {b.shape} are no pairs of parts")
        return xp.empty_like(a) if out is None else out

    def parts(x):
        return x[..., 0::2].astype("float64"), x[..., 1::2].astype("float64")

    def wrong(xp, a, b, out=None):
        out = prepare(xp, a, b, out)
        (ar, ai), (br, bi) = parts(a), parts(b)
        out[..., 0::2] = ar * br - ai * bi
        (ar, ai), (br, bi) = parts(a), parts(b)
        out[..., 1::2] = ar * bi + ai * br
        return out

    def right(xp, a, b, out=None):
        out = prepare(xp, a, b, out)
        (ar, ai), (br, bi) = parts(a), parts(b)
        out[..., 0::2] = ar * br - ai * bi
        out[..., 1::2] = ar * bi + ai * br
        return out

    def reference(a, b):
        if a.shape != b.shape or not a.ndim or a.shape[-1] % 2:
            raise ValueError("no pairs of parts")
        x, y = np.zeros(a[..., ::2].shape, dtype="complex128"), np.zeros(b[..., ::2].shape, dtype="complex128")
        x.real, x.imag, y.real, y.imag = a[..., ::2], a[..., 1::2], b[..., ::2], b[..., 1::2]
        product = x * y
        return np.stack([product.real, product.imag], axis=-1).reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="interleaved_product",
            dtypes=("float16", "float32"),
            result_dtype=lambda a, _: a,
            samples=lambda make: [
                (make(12), make(12)),
                (make((5, 8)), make((5, 8))),
                (make((2, 3, 2), low=-100, high=100), make((2, 3, 2), low=0, high=1)),
                Sample((make((3, 0)), make((3, 0))), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(3), make(3))), ValueError, "no pairs of parts")],
        )

    return wrong, right, declare


@pair(
    "coo_todense",
    "entries are added to a copy where out= is not contiguous",
    "scatter into out.reshape(-1) or ravel(): lost writes, as reported to CuPy, SciPy and xarray-like packages",
    "out= in Fortran order, or the first 8 columns of a wider array: the result is zero everywhere",
)
def coo_todense():
    """A dense matrix from coordinates; entries at the same place are added up."""

    def prepare(xp, rows, values, shape, out):
        if len(rows) != len(values):
            raise ValueError(f"{len(rows)} rows for {len(values)} values")
        if out is None:
            return xp.zeros(shape, dtype=values.dtype)
        if out.shape != tuple(shape):
            raise ValueError(f"out has shape {out.shape}; give {tuple(shape)}")
        out[...] = 0
        return out

    def wrong(xp, rows, cols, values, shape=(6, 8), out=None):
        out = prepare(xp, rows, values, shape, out)
        xp.add.at(out.reshape(-1), rows * shape[1] + cols, values)
        return out

    def right(xp, rows, cols, values, shape=(6, 8), out=None):
        out = prepare(xp, rows, values, shape, out)
        xp.add.at(out, (rows, cols), values)
        return out

    def reference(rows, cols, values, shape=(6, 8)):
        if len(rows) != len(values):
            raise ValueError("rows and values differ in length")
        out = np.zeros(shape, dtype=values.dtype)
        for row, col, value in zip(rows.tolist(), cols.tolist(), values, strict=True):
            out[row, col] += value
        return out

    def declare(fn):
        def entries(make, count, values):
            return make(count, low=0, high=5, dtype="int64"), make(count, low=0, high=7, dtype="int64"), values

        return OpSpec(
            fn=fn,
            name="coo_todense",
            dtypes=("float32", "float64", "int32"),
            result_dtype=lambda *_: _[-1],
            deterministic=False,  # atomic additions on a GPU come in any order
            samples=lambda make: [
                entries(make, 12, make(12)),
                entries(make, 30, make(30, low=-50, high=50)),
                entries(make, 1, make(1)),
                Sample(entries(make, 0, make(0)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare
