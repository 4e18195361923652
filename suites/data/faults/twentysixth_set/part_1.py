"""Attention, routing, caches, quantisation, optimizers, norms, losses, bags, sampling: faults with their twins."""

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
    "group_limited_routing",
    "experts outside the chosen groups get score 0, which beats a negative score inside",
    "transformers DeepseekV3 router: masked_fill(~score_mask, 0.0), where the model of the authors has -inf",
    "a token whose k-th best expert of the chosen groups has sigmoid plus bias below 0: an expert outside is taken",
)
def group_limited_routing():
    """Weights of the k chosen experts of each token: first the best groups, then the best experts in these."""

    def check(experts, groups, top_groups, k):
        if experts % groups or experts < 2 * groups or top_groups > groups or k > experts // groups * top_groups:
            raise ValueError(f"{experts} experts in {groups} groups: cannot choose {k} from {top_groups} groups")

    def route(xp, logits, bias, groups, top_groups, k, outside):
        tokens, experts = logits.shape
        check(experts, groups, top_groups, k)
        scores = 0.5 * (1 + xp.tanh(0.5 * logits.astype("float64")))
        biased = scores + bias.astype("float64")
        best_two = xp.sort(biased.reshape(tokens, groups, experts // groups), axis=-1)[..., -2:].sum(axis=-1)
        place = xp.argsort(xp.argsort(-best_two, axis=-1, kind="stable"), axis=-1, kind="stable")
        inside = xp.repeat(place < top_groups, experts // groups, axis=-1)
        limited = xp.where(inside, biased, outside)
        place = xp.argsort(xp.argsort(-limited, axis=-1, kind="stable"), axis=-1, kind="stable")
        weights = xp.where(place < k, scores, 0.0)
        return (weights / weights.sum(axis=-1, keepdims=True)).astype(logits.dtype)

    def wrong(xp, logits, bias, groups=4, top_groups=2, k=3):
        return route(xp, logits, bias, groups, top_groups, k, 0.0)

    def right(xp, logits, bias, groups=4, top_groups=2, k=3):
        return route(xp, logits, bias, groups, top_groups, k, -math.inf)

    def reference(logits, bias, groups=4, top_groups=2, k=3):
        experts, out = logits.shape[1], np.zeros(logits.shape)
        check(experts, groups, top_groups, k)
        size = experts // groups
        for row, result in zip(logits, out, strict=True):
            scores = 0.5 * (1 + np.tanh(0.5 * row))
            biased = scores + bias
            best_two = [sum(sorted(biased[g * size : (g + 1) * size])[-2:]) for g in range(groups)]
            allowed = sorted(range(groups), key=lambda g: -best_two[g])[:top_groups]
            chosen = sorted((e for e in range(experts) if e // size in allowed), key=lambda e: -biased[e])[:k]
            result[chosen] = scores[chosen] / scores[chosen].sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="group_limited_routing",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((5, 16), low=-4, high=4), make(16, low=-0.25, high=0.25)),
                Sample((make((7, 12), low=-4, high=4), make(12, low=-0.25, high=0.25)), {"groups": 3, "k": 2}),
                Sample((make((4, 8), low=-4, high=4), make(8, low=-0.1, high=0.1)), {"groups": 2, "top_groups": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 9)), make(9))), ValueError, "9 experts")],
        )

    return wrong, right, declare


@pair(
    "int8_linear",
    "products of int8 are added up in float32, which is exact to 2**24 only",
    "int8 layers that fall back on a float32 product where no int8 product exists (bitsandbytes and ports of it)",
    "1500 activations and weights that are all from 100 to 127: sums beyond 2**24 lose their last bits",
)
def int8_linear():
    """The exact int32 product of int8 activations (rows, k) and int8 weights (k, columns), plus an int32 bias."""

    def wrong(xp, a, w, bias=None):
        total = xp.rint(xp.matmul(a.astype("float32"), w.astype("float32"))).astype("int32")
        return total if bias is None else total + bias.astype("int32")

    def right(xp, a, w, bias=None):
        total = xp.zeros((a.shape[0], w.shape[1]), dtype="int32")
        for start in range(0, a.shape[1], 1024):  # 1024 * 128 * 128 is 2**24
            some = slice(start, start + 1024)
            total = total + xp.matmul(a[:, some].astype("float32"), w[some].astype("float32")).astype("int32")
        return total if bias is None else total + bias.astype("int32")

    def reference(a, w, bias=None):
        total = np.einsum("ik,kj->ij", np.asarray(a, "int64"), np.asarray(w, "int64"))
        return total if bias is None else total + np.asarray(bias, "int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="int8_linear",
            dtypes=("int8",),
            result_dtype="int32",
            samples=lambda make: [
                (make((3, 64), low=-127, high=127), make((64, 5), low=-127, high=127)),
                (make((2, 1500), low=-127, high=127), make((1500, 4), low=-127, high=127)),
                (
                    make((4, 33), low=-127, high=127),
                    make((33, 6), low=-127, high=127),
                    make(6, dtype="int32", low=-5000, high=5000),
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "sgd_step",
    "maximize turns the sign of the weight decay too",
    "fused and hand-written copies of torch.optim.SGD, which negates the gradient before it adds the decay",
    "maximize=True together with weight_decay=0.1: the parameters grow instead of shrinking",
)
def sgd_step():
    """New parameters and momentum after one step, in the order of torch.optim.SGD."""

    def check(momentum, dampening, nesterov):
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("nesterov needs a momentum and zero dampening")

    def step(xp, p, d, velocity, lr, momentum, dampening, nesterov):
        velocity = momentum * velocity.astype("float64") + (1 - dampening) * d
        d = d + momentum * velocity if nesterov else velocity
        return (p.astype("float64") - lr * d).astype(p.dtype), velocity.astype(p.dtype)

    def wrong(
        xp, p, g, velocity, lr=0.1, momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False
    ):
        check(momentum, dampening, nesterov)
        d = g.astype("float64")
        if weight_decay:
            d = d + weight_decay * p
        return step(xp, p, -d if maximize else d, velocity, lr, momentum, dampening, nesterov)

    def right(
        xp, p, g, velocity, lr=0.1, momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False
    ):
        check(momentum, dampening, nesterov)
        d = -g.astype("float64") if maximize else g.astype("float64")
        if weight_decay:
            d = d + weight_decay * p
        return step(xp, p, d, velocity, lr, momentum, dampening, nesterov)

    def reference(
        p, g, velocity, lr=0.1, momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False
    ):
        check(momentum, dampening, nesterov)
        slope = np.where(maximize, -1.0, 1.0) * g
        slope += weight_decay * p if weight_decay else 0.0
        new = momentum * velocity + slope * (1 - dampening)
        return p - lr * (slope + momentum * new if nesterov else new), new

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sgd_step",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40), make(40), make(40)),
                Sample((make((5, 7)), make((5, 7)), make((5, 7))), {"weight_decay": 0.1, "lr": 0.5}),
                Sample((make((5, 7)), make((5, 7)), make((5, 7))), {"maximize": True, "dampening": 0.3}),
                Sample((make(9), make(9), make(9)), {"nesterov": True, "momentum": 0.5}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "draw_from_counts",
    "the product of a 32-bit random number and the total leaves int64 from a total of 2**31 on",
    "multiply-shift sampling (Lemire) in int64, as in samplers of negative words and in data loaders",
    "60 counts of about 10**8, so a total of 6 * 10**9, and a random number of 4 * 10**9: category 0 is drawn",
)
def draw_from_counts():
    """The category that each random number from 0 to 2**32 - 1 draws, as likely as its count; -1 if all are 0."""

    def pick(xp, counts, target):
        if counts.shape[0] == 0:
            return xp.full(target.shape, -1, dtype="int64")
        sums = xp.cumsum(counts)
        found = xp.searchsorted(sums, target, side="right").astype("int64")
        return xp.where(sums[-1:] > 0, found, -1)

    def wrong(xp, counts, random):
        return pick(xp, counts, (random * counts.sum().reshape(1)) >> 32)

    def right(xp, counts, random):
        total = counts.sum().reshape(1)
        high, low = random >> 16, random & 0xFFFF
        return pick(xp, counts, (high * total + (low * total >> 16)) >> 16)

    def reference(counts, random):
        counts = [int(n) for n in counts]
        out = np.full(len(random), -1, "int64")
        for i, number in enumerate(random):
            target = int(number) * sum(counts) // 2**32
            for category, n in enumerate(counts):
                target -= n
                if target < 0:
                    out[i] = category
                    break
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="draw_from_counts",
            dtypes=("int64",),
            samples=lambda make: [
                (make(6, low=0, high=9), make(50, low=0, high=2**32 - 1)),
                (make(12, low=0, high=10**8), make(40, low=0, high=2**32 - 1)),
                (make(30, low=0, high=10**8), make(7, low=0, high=2**32 - 1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "top_k_logits",
    "all entries that equal the k-th largest are kept",
    "transformers TopKLogitsWarper and nanoGPT: logits < topk[..., -1] are removed, so ties give more than k",
    "[2, 1, 1, 0] with k=2: three entries stay",
)
def top_k_logits():
    """The k largest entries of each row and -inf elsewhere; of equal ones those to the left are kept."""

    def check(k):
        if k < 1:
            raise ValueError(f"k is {k}; give 1 or more")

    def wrong(xp, logits, k=4):
        check(k)
        size = logits.shape[-1]
        if size <= k:
            return logits.copy()
        least = xp.sort(logits, axis=-1)[..., size - k : size - k + 1]
        return xp.where(logits < least, -math.inf, logits).astype(logits.dtype)

    def right(xp, logits, k=4):
        check(k)
        if logits.shape[-1] <= k:
            return logits.copy()
        order = xp.argsort(-logits, axis=-1, kind="stable")
        place = xp.argsort(order, axis=-1, kind="stable")
        return xp.where(place < k, logits, -math.inf).astype(logits.dtype)

    def reference(logits, k=4):
        check(k)
        out = np.full(logits.shape, -np.inf)
        for i in np.ndindex(logits.shape[:-1]):
            kept = sorted(range(logits.shape[-1]), key=lambda j: (np.isnan(logits[i][j]), -logits[i][j]))[:k]
            out[i][kept] = logits[i][kept]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="top_k_logits",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 50), low=-20, high=20),
                Sample((make((2, 3, 17), low=-20, high=20),), {"k": 1}),
                Sample((make(9, low=-20, high=20),), {"k": 20}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"k": 0}), ValueError, "k is 0")],
        )

    return wrong, right, declare


@pair(
    "embedding_bag",
    "an assignment through equal indices counts once, so an empty bag inside shifts all later bags",
    "segment numbers from offsets by marks[offsets] += 1 and cumsum, in NumPy, CuPy and torch code alike",
    "cuts [3, 3, 7] of 10 indices: the second bag should be empty, and gets the entries 3 to 6",
)
def embedding_bag():
    """Rows of a table added up, averaged or their maximum, in bags; `cuts`, in any order, are where bags begin."""

    def reduce(xp, table, indices, number, bags, mode):
        member = (number[None, :] == xp.arange(bags)[:, None])[..., None]
        rows = table[indices].astype("float64")[None]
        size = member.sum(axis=1)
        if mode == "max":
            if rows.shape[1] == 0:
                return xp.zeros((bags, table.shape[1]), dtype=table.dtype)
            top = xp.where(member, rows, -math.inf).max(axis=1)
            return xp.where(size > 0, top, 0.0).astype(table.dtype)
        total = xp.where(member, rows, 0.0).sum(axis=1)
        return (total / xp.maximum(size, 1) if mode == "mean" else total).astype(table.dtype)

    def wrong(xp, table, indices, cuts, mode="sum"):
        count = indices.shape[0]
        marks = xp.zeros(count + 1, dtype="int64")
        marks[xp.clip(cuts, 0, count)] += 1
        return reduce(xp, table, indices, xp.cumsum(marks)[:count], cuts.shape[0] + 1, mode)

    def right(xp, table, indices, cuts, mode="sum"):
        number = xp.searchsorted(xp.sort(cuts), xp.arange(indices.shape[0]), side="right")
        return reduce(xp, table, indices, number, cuts.shape[0] + 1, mode)

    def reference(table, indices, cuts, mode="sum"):
        bags = np.split(indices, np.sort(np.clip(cuts, 0, len(indices))))
        out = np.zeros((len(bags), table.shape[1]))
        for i, bag in enumerate(bags):
            if len(bag):
                out[i] = getattr(np, mode)(table[bag], axis=0)
        return out

    def declare(fn):
        def call(make, rows, width, count, cuts):
            indices = make(count, dtype="int64", low=0, high=rows - 1)
            return make((rows, width)), indices, make(cuts, dtype="int64", low=0, high=count)

        return OpSpec(
            fn=fn,
            name="embedding_bag",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                call(make, 20, 5, 50, 3),
                Sample(call(make, 7, 3, 40, 2), {"mode": "mean"}),
                Sample(call(make, 11, 4, 60, 4), {"mode": "max"}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dynamic_rope",
    "frequencies stretched for a longer sequence stay until a short one comes",
    "transformers dynamic_frequency_update: recomputed only for a new longest sequence or below the trained length",
    "a call with 40 positions, then one with 24, both beyond the trained 16: the second uses the base of 40",
)
def dynamic_rope():
    """Rotary embedding of (..., length, width); beyond `trained` positions the base grows with the length (NTK)."""

    def check(width, length):
        if width < 4 or width % 2:
            raise ValueError(f"width is {width}; give an even number from 4 on")
        return width, length

    def grown(base, trained, width, length):
        return base * max(1.0, length / trained) ** (width / (width - 2))

    def rotate(xp, x, base):
        length, width = x.shape[-2:]
        angle = xp.arange(length)[:, None] * base ** (-xp.arange(0, width, 2) / width)
        left, right = x[..., : width // 2].astype("float64"), x[..., width // 2 :].astype("float64")
        cos, sin = xp.cos(angle), xp.sin(angle)
        return xp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1).astype(x.dtype)

    longest = {}

    def wrong(xp, x, base=10000.0, trained=16):
        width, length = check(x.shape[-1], x.shape[-2])
        key = (width, base, trained)
        longest[key] = trained if length < trained else max(length, longest.get(key, trained))
        return rotate(xp, x, grown(base, trained, width, longest[key]))

    def right(xp, x, base=10000.0, trained=16):
        return rotate(xp, x, grown(base, trained, *check(x.shape[-1], x.shape[-2])))

    def reference(x, base=10000.0, trained=16):
        width, length = check(x.shape[-1], x.shape[-2])
        base = base if length <= trained else base * (length / trained) ** (width / (width - 2))
        half = width // 2
        out = np.empty(x.shape)
        for i in range(half):
            turn = np.exp(1j * np.arange(length) * base ** (-2 * i / width))
            out[..., i] = x[..., i] * turn.real - x[..., i + half] * turn.imag
            out[..., i + half] = x[..., i] * turn.imag + x[..., i + half] * turn.real
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dynamic_rope",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((2, 6, 8)),
                make((40, 8)),
                Sample((make((2, 3, 9, 6)),), {"trained": 8, "base": 500.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "paged_gather",
    "the result is a workspace that the next call of the same size overwrites",
    "attention backends that keep one buffer for gathered pages (workspaces in vLLM and FlashInfer wrappers)",
    "keys = gather(key pages), values = gather(value pages), both of one size: keys then holds the values",
)
def paged_gather():
    """Pages (pages, block, width) of each sequence in a row, by its table of pages; zero from its length on."""

    def fill(xp, out, pages, table, lengths):
        block, width = pages.shape[1:]
        count, most = table.shape
        found = pages[table].reshape(count, most * block, width)
        valid = xp.arange(most * block)[None, :] < lengths[:, None]
        out[...] = xp.where(valid[..., None], found, 0)
        return out

    def shape(pages, table):
        return table.shape[0], table.shape[1] * pages.shape[1], pages.shape[2]

    kept = {}

    def wrong(xp, pages, table, lengths):
        key = (id(xp), shape(pages, table), str(pages.dtype))
        if key not in kept:
            kept.clear()
            kept[key] = xp.empty(shape(pages, table), dtype=pages.dtype)
        return fill(xp, kept[key], pages, table, lengths)

    def right(xp, pages, table, lengths):
        return fill(xp, xp.empty(shape(pages, table), dtype=pages.dtype), pages, table, lengths)

    def reference(pages, table, lengths):
        block = pages.shape[1]
        out = np.zeros(shape(pages, table))
        for s, length in enumerate(lengths):
            for t in range(min(int(length), out.shape[1])):
                out[s, t] = pages[table[s, t // block], t % block]
        return out

    def declare(fn):
        def call(make, pages, block, width, count, most):
            table = make((count, most), dtype="int64", low=0, high=pages - 1)
            return make((pages, block, width)), table, make(count, dtype="int64", low=0, high=most * block)

        return OpSpec(
            fn=fn,
            name="paged_gather",
            dtypes=("float16", "float32"),
            samples=lambda make: [call(make, 9, 4, 8, 3, 2), call(make, 5, 3, 2, 1, 4), call(make, 6, 1, 5, 2, 3)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "add_rms_norm",
    "out is flattened by reshape, which copies where its rows are not evenly spaced",
    "wrappers that flatten to rows before a launch: reshape in place of view, with out= in NumPy, CuPy and torch",
    "x of shape (2, 3, 8) and out=cache[:, :3] of a cache (2, 5, 8): the cache stays as it was",
)
def add_rms_norm():
    """RMS norm of x plus residual over the last axis, times a weight; into `out` where that is given."""

    def rows_of(xp, x, residual, weight, eps):
        rows = (math.prod(x.shape[:-1]), x.shape[-1])
        total = x.reshape(rows).astype("float64") + residual.reshape(rows).astype("float64")
        scale = xp.sqrt((total * total).mean(axis=-1, keepdims=True) + eps)
        return (total / scale * weight.astype("float64")).astype(x.dtype)

    def wrong(xp, x, residual, weight, eps=1e-6, out=None):
        rows = rows_of(xp, x, residual, weight, eps)
        if out is None:
            return rows.reshape(x.shape)
        out.reshape(rows.shape)[...] = rows
        return out

    def right(xp, x, residual, weight, eps=1e-6, out=None):
        rows = rows_of(xp, x, residual, weight, eps).reshape(x.shape)
        if out is None:
            return rows
        out[...] = rows
        return out

    def reference(x, residual, weight, eps=1e-6):
        total = x + residual
        power = np.einsum("...i,...i->...", total, total) / total.shape[-1]
        return weight * (total / np.sqrt(power + eps)[..., None])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="add_rms_norm",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((2, 3, 8)), make((2, 3, 8)), make(8)),
                (make((5, 33)), make((5, 33)), make(33)),
                Sample((make((3, 4, 6)), make((3, 4, 6)), make(6)), {"eps": 0.1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "blocked_attention",
    "a first block whose keys are all masked gives exp(-inf - -inf), and NaN stays in the running sums",
    "hand-written FlashAttention kernels (Triton, CUDA): the running maximum is still -inf after a masked block",
    "40 keys of which the first 16 are masked for a query: NaN, though 24 keys are visible",
)
def blocked_attention():
    """Attention of q (n, d) to k (m, d) and v (m, e) in blocks of keys, with a mask (n, m); no visible key gives 0."""

    def attend(xp, q, k, v, mask, block, guard):
        wide = [a.astype("float64") for a in (q, k, v)]
        top, total = xp.full((q.shape[0], 1), -math.inf), xp.zeros((q.shape[0], 1))
        out = xp.zeros((q.shape[0], v.shape[1]))
        for start in range(0, k.shape[0], block):
            some = slice(start, start + block)
            scores = xp.matmul(wide[0], wide[1][some].T) / math.sqrt(max(q.shape[1], 1))
            scores = xp.where(mask[:, some], scores, -math.inf)
            new = xp.maximum(top, scores.max(axis=1, keepdims=True))
            shift = guard(new)
            weights, factor = xp.exp(scores - shift), xp.exp(top - shift)
            total = total * factor + weights.sum(axis=1, keepdims=True)
            out = out * factor + xp.matmul(weights, wide[2][some])
            top = new
        seen = mask.any(axis=1)[:, None]
        return xp.where(seen, out / xp.where(seen, total, 1.0), 0.0).astype(q.dtype)

    def wrong(xp, q, k, v, mask, block=16):
        return attend(xp, q, k, v, mask, block, lambda top: top)

    def right(xp, q, k, v, mask, block=16):
        return attend(xp, q, k, v, mask, block, lambda top: xp.where(top == -math.inf, 0.0, top))

    def reference(q, k, v, mask, block=16):
        out = np.zeros((len(q), v.shape[1]))
        for i in range(len(q)):
            keys = np.flatnonzero(mask[i])
            if len(keys):
                scores = k[keys] @ q[i] / np.sqrt(max(q.shape[1], 1))
                weights = np.exp(scores - scores.max())
                out[i] = weights @ v[keys] / weights.sum()
        return out

    def declare(fn):
        def call(make, n, m, d, e):
            q, k, v = make((n, d), low=-3, high=3), make((m, d), low=-3, high=3), make((m, e), low=-3, high=3)
            return q, k, v, make((n, m), dtype="bool")

        return OpSpec(
            fn=fn,
            name="blocked_attention",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                call(make, 5, 40, 8, 4),
                call(make, 3, 7, 4, 4),
                Sample(call(make, 2, 50, 6, 3), {"block": 32}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "fake_fp8_e4m3",
    "numbers below the smallest normal one keep three bits of fraction, which the format has no room for",
    "FP8 emulation by frexp and a step of the exponent (quantisation-aware training, LLM-written): no least exponent",
    "0.0149, below 2**-6: stays at 0.0146484375, where the nearest E4M3 number is 0.015625",
)
def fake_fp8_e4m3():
    """Numbers rounded to FP8 E4M3 in units of `scale`, half to even, beyond 448 held at 448; NaN stays NaN."""

    def rounded(xp, a, scale, least):
        wide = a.astype("float64") / scale
        exponent = xp.frexp(xp.where(xp.isfinite(wide), wide, 1.0))[1].astype("float64") - 1
        step = xp.exp2(xp.maximum(exponent, least) - 3)
        return (xp.clip(xp.rint(wide / step) * step, -448.0, 448.0) * scale).astype(a.dtype)

    def wrong(xp, a, scale=1.0):
        return rounded(xp, a, scale, -200.0)

    def right(xp, a, scale=1.0):
        return rounded(xp, a, scale, -6.0)

    numbers = [m * 2.0**-9 for m in range(8)]
    numbers += [(8 + m) * 2.0 ** (e - 3) for e in range(-6, 9) for m in range(8)][:-1]
    numbers = np.array(numbers)

    def reference(a, scale=1.0):
        size = np.minimum(np.abs(a) / scale, 448.0)
        above = np.clip(np.searchsorted(numbers, size), 1, len(numbers) - 1)
        low, high = numbers[above - 1], numbers[above]
        up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
        out = np.copysign(np.where(up, high, low), a) * scale
        return np.where(np.isnan(a), np.nan, out)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fake_fp8_e4m3",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(60),
                make((4, 5), low=-600, high=600),
                Sample((make((3, 7)),), {"scale": 0.125}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "padded_cross_entropy",
    "the row is padded with zeros to a power of two, and these count in the sum",
    "Triton and LLM-written losses: tl.load(..., mask=mask, other=0.0) under tl.exp, with BLOCK = next_power_of_2(V)",
    "10 classes: six classes of logit 0 are added; 8 or 32 classes are right",
)
def padded_cross_entropy():
    """Cross entropy of logits (rows, classes) and class numbers; mean, sum or each ("none"); no rows give 0."""

    def loss(xp, logits, targets, reduction, fill):
        rows, classes = logits.shape
        padded = xp.full((rows, 1 << (classes - 1).bit_length()), fill)
        padded[:, :classes] = logits
        top = padded.max(axis=1)
        each = xp.log(xp.exp(padded - top[:, None]).sum(axis=1)) + top - padded[xp.arange(rows), targets]
        if reduction != "none":
            each = each.sum() / (max(rows, 1) if reduction == "mean" else 1)
        return each.astype(logits.dtype)

    def wrong(xp, logits, targets, reduction="mean"):
        return loss(xp, logits, targets, reduction, 0.0)

    def right(xp, logits, targets, reduction="mean"):
        return loss(xp, logits, targets, reduction, -math.inf)

    def reference(logits, targets, reduction="mean"):
        each = np.zeros(len(logits))
        for i, (row, target) in enumerate(zip(logits, targets, strict=True)):
            top = row.max()
            each[i] = top + np.log(np.exp(row - top).sum()) - row[target]
        return {"mean": each.sum() / max(len(each), 1), "sum": each.sum(), "none": each}[reduction]

    def declare(fn):
        def call(make, rows, classes):
            return make((rows, classes)), make(rows, dtype="int64", low=0, high=classes - 1)

        return OpSpec(
            fn=fn,
            name="padded_cross_entropy",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                call(make, 5, 32),
                Sample(call(make, 3, 8), {"reduction": "sum"}),
                Sample(call(make, 6, 64), {"reduction": "none"}),
            ],
            reference=reference,
        )

    return wrong, right, declare
