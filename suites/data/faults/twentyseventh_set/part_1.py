"""Scans, masks, sparse products, quantisation, losses, positions, string codes: faults with their twins."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay.testing import OpSpec, Sample


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
    "masked_argmax",
    "the filler of masked entries is greater than a kept -inf",
    "attention and sampling code that fills with finfo.min instead of -inf: transformers, JAX's where= in argmax",
    "a row [1, -inf, 2] of which only the second is kept: 0 instead of 1",
)
def masked_argmax():
    """The position of the greatest kept entry of each row, the first of equals; -1 where none is kept."""

    def none(xp, a):
        return xp.full(a.shape[:-1], -1, dtype="int64")

    def wrong(xp, a, mask):
        if a.shape[-1] == 0:
            return none(xp, a)
        kept = xp.where(mask, a, xp.asarray(np.finfo(str(a.dtype)).min, dtype=a.dtype))
        return xp.where(mask.any(axis=-1), xp.argmax(kept, axis=-1), -1)

    def right(xp, a, mask):
        if a.shape[-1] == 0:
            return none(xp, a)
        kept = xp.where(mask, a, xp.asarray(-math.inf, dtype=a.dtype))
        top = kept.max(axis=-1, keepdims=True)
        hits = mask & ((a == top) | (xp.isnan(a) & xp.isnan(top)))
        return xp.where(mask.any(axis=-1), xp.argmax(hits, axis=-1), -1)

    def reference(a, mask):
        out = np.full(a.shape[:-1], -1, dtype="int64")
        for i in np.ndindex(out.shape):
            places = np.flatnonzero(mask[i])
            if len(places):
                out[i] = places[np.argmax(a[i][places])]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="masked_argmax",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                (make((4, 9)), make((4, 9), dtype="bool")),
                (make((2, 3, 33)), make((2, 3, 33), dtype="bool")),
                (make(17), make(17, dtype="bool")),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cross_entropy",
    "ignored rows are multiplied by zero, not left out",
    "masked losses in optax examples and Triton kernels: loss * mask is NaN where a padding row is not finite",
    "a row of which the target is -1 and a logit is inf or NaN: the whole loss is NaN",
)
def cross_entropy():
    """Cross entropy with class weights; rows of target -1 count for nothing, and the mean of none is 0."""

    def parts(xp, logits, target, weights):
        wide = logits.astype("float64")
        shifted = wide - wide.max(axis=-1, keepdims=True)
        log_p = shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))
        valid = target >= 0
        safe = xp.where(valid, target, 0)
        factors = xp.where(valid, weights.astype("float64")[safe], 0.0)
        return valid, -xp.take_along_axis(log_p, safe[:, None], axis=-1)[:, 0], factors

    def finish(xp, logits, losses, factors, reduction):
        total = losses.sum()
        if reduction == "mean":
            count = factors.sum()
            total = total / xp.where(count > 0, count, 1.0)
        return total.astype(logits.dtype)

    def wrong(xp, logits, target, weights, reduction="mean"):
        _, losses, factors = parts(xp, logits, target, weights)
        return finish(xp, logits, losses * factors, factors, reduction)

    def right(xp, logits, target, weights, reduction="mean"):
        valid, losses, factors = parts(xp, logits, target, weights)
        return finish(xp, logits, xp.where(valid, losses * factors, 0.0), factors, reduction)

    def reference(logits, target, weights, reduction="mean"):
        total = count = np.float64(0)
        for row, t in zip(logits, target, strict=True):
            if t >= 0:
                total += weights[t] * (np.log(np.exp(row - row.max()).sum()) - (row[t] - row.max()))
                count += weights[t]
        return np.asarray(total / count if reduction == "mean" and count > 0 else total)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cross_entropy",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 5)), make(6, dtype="int64", low=-1, high=4), make(5, low=0.5, high=2)),
                Sample(
                    (make((20, 11)), make(20, dtype="int64", low=-1, high=10), make(11, low=0.5, high=2)),
                    {"reduction": "sum"},
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "coo_times_dense",
    "row sums as differences of a running sum",
    "segment sums by cumsum and difference, as in LLM-written CSR products and in old JAX and torch recipes",
    "dense has an infinity that an entry of row 0 meets: all later rows become NaN",
)
def coo_times_dense():
    """base + alpha * (sparse @ dense); the sparse matrix is given by its entries, in any order, repeated or not."""

    def wrong(xp, values, rows, columns, dense, base, alpha=1.0):
        order = xp.argsort(rows)
        products = values.astype("float64")[order][:, None] * dense.astype("float64")[columns[order]]
        sums = xp.concatenate([xp.zeros((1, dense.shape[1])), xp.cumsum(products, axis=0)])
        bounds = xp.searchsorted(rows[order], xp.arange(base.shape[0] + 1))
        product = sums[bounds[1:]] - sums[bounds[:-1]]
        return (base.astype("float64") + alpha * product).astype(base.dtype)

    def right(xp, values, rows, columns, dense, base, alpha=1.0):
        products = values.astype("float64")[:, None] * dense.astype("float64")[columns]
        product = xp.zeros(base.shape)
        xp.add.at(product, rows, products)
        return (base.astype("float64") + alpha * product).astype(base.dtype)

    def reference(values, rows, columns, dense, base, alpha=1.0):
        product = np.zeros(base.shape)
        for value, i, j in zip(values, rows, columns, strict=True):
            product[i] = product[i] + value * dense[j]
        return base + alpha * product

    def inputs(make, count, height, depth, width):
        rows, columns = (make(count, dtype="int64", low=0, high=n - 1) for n in (height, depth))
        return make(count), rows, columns, make((depth, width)), make((height, width))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="coo_times_dense",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                inputs(make, 12, 5, 4, 3),
                inputs(make, 60, 9, 20, 7),
                Sample(inputs(make, 15, 8, 6, 1), {"alpha": -0.5}),
            ],
            reference=reference,
            deterministic=False,
        )

    return wrong, right, declare


@pair(
    "top_k_places",
    "descending order by negation, which the least integer does not have",
    "argsort(-a) for a descending sort, as in scikit-learn's and CuPy users' top-k on integers",
    "int8 scores that hold -128: it comes first instead of last",
)
def top_k_places():
    """The places of the k greatest of each row, greatest first, equals in order; NaN comes last."""

    def wrong(xp, a, k=3):
        return xp.argsort(-a, axis=-1, kind="stable")[..., :k]

    def right(xp, a, k=3):
        key = ~a if a.dtype.kind == "i" else -a
        return xp.argsort(key, axis=-1, kind="stable")[..., :k]

    def reference(a, k=3):
        count = min(k, a.shape[-1])
        out = np.zeros((*a.shape[:-1], count), dtype="int64")
        for i in np.ndindex(out.shape[:-1]):
            row = a[i].tolist()
            out[i] = sorted(range(len(row)), key=lambda j: (True, 0) if row[j] != row[j] else (False, -row[j]))[:count]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="top_k_places",
            dtypes=("int8", "int32", "float32"),
            samples=lambda make: [make(40), make((4, 25)), Sample((make((2, 3, 9)),), {"k": 5})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "affine_round_trip",
    "the range of the quantisation does not include zero",
    "min-max observers: torch.ao extends the range to zero, LLM-written uint8 quantisers clip the zero point instead",
    "a row from 5 to 6: the zero point clips to 0 and all come back as 1",
)
def affine_round_trip():
    """Each row quantised to unsigned integers with a scale and a zero point, and back."""

    def through(xp, a, low, high, bits):
        top = float(2**bits - 1)
        scale = (high - low) / top
        scale = xp.where(scale > 0, scale, 1.0)
        zero = xp.clip(xp.rint(-low / scale), 0.0, top)
        codes = xp.clip(xp.rint(a.astype("float64") / scale) + zero, 0.0, top)
        return ((codes - zero) * scale).astype(a.dtype)

    def wrong(xp, a, bits=8):
        wide = a.astype("float64")
        return through(xp, a, wide.min(axis=-1, keepdims=True), wide.max(axis=-1, keepdims=True), bits)

    def right(xp, a, bits=8):
        wide = a.astype("float64")
        low = xp.minimum(wide.min(axis=-1, keepdims=True), 0.0)
        return through(xp, a, low, xp.maximum(wide.max(axis=-1, keepdims=True), 0.0), bits)

    def reference(a, bits=8):
        out = np.empty(a.shape)
        for i in np.ndindex(a.shape[:-1]):
            row = np.append(a[i], 0.0)
            step = (row.max() - row.min()) / (2**bits - 1)
            step = step if step > 0 else 1.0
            least = -min(max(np.rint(-row.min() / step), 0), 2**bits - 1)
            out[i] = np.clip(np.rint(a[i] / step), least, least + 2**bits - 1) * step
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="affine_round_trip",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((4, 32), low=-8, high=8),
                make(50, low=-8, high=8),
                Sample((make((2, 3, 24), low=-8, high=8),), {"bits": 4}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "gated_scan",
    "division by the product of the gates, which underflows or is zero",
    "linear recurrences as cumprod * cumsum(x / cumprod), in LLM-written Mamba, minGRU and RG-LRU code",
    "a gate of exactly 0, or 2000 steps with gates near 0.5: NaN from there on",
)
def gated_scan():
    """The recurrence h[t] = gate[t] * h[t - 1] + x[t] along the last axis, from h = 0."""

    def wrong(xp, x, gate):
        products = xp.cumprod(gate.astype("float64"), axis=-1)
        return (products * xp.cumsum(x.astype("float64") / products, axis=-1)).astype(x.dtype)

    def right(xp, x, gate):
        if x.shape[-1] == 0:
            return x.copy()
        wide, gate = x.astype("float64"), gate.astype("float64")
        states = [wide[..., 0]]
        for t in range(1, x.shape[-1]):
            states.append(gate[..., t] * states[-1] + wide[..., t])
        return xp.stack(states, axis=-1).astype(x.dtype)

    def reference(x, gate):
        out = np.zeros(x.shape)
        for i in np.ndindex(x.shape[:-1]):
            state = np.float64(0)
            for t, (value, factor) in enumerate(zip(x[i], gate[i], strict=True)):
                state = value if t == 0 else factor * state + value
                out[*i, t] = state
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gated_scan",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(20), make(20, low=0, high=1)),
                (make((3, 32)), make((3, 32), low=0, high=1)),
                (make((2, 4, 7)), make((2, 4, 7), low=0, high=1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rotary",
    "the cached table is looked up without its base",
    "cos and sin caches of rotary embeddings in transformers and vLLM that outlived a change of base or scaling",
    "two calls of one shape, the second with another base: it gets the angles of the first",
)
def rotary():
    """Rotary position encoding of (..., length, width), halves paired; an odd last channel stays as it is."""

    def apply(xp, x, table):
        half = x.shape[-1] // 2
        cos, sin = xp.asarray(np.cos(table)), xp.asarray(np.sin(table))
        first, second = x[..., :half].astype("float64"), x[..., half : 2 * half].astype("float64")
        rest = x[..., 2 * half :].astype("float64")
        turned = [first * cos - second * sin, first * sin + second * cos, rest]
        return xp.concatenate(turned, axis=-1).astype(x.dtype)

    def table(length, width, base):
        half = width // 2
        return np.arange(length)[:, None] * base ** (-np.arange(half) / max(half, 1))

    by_shape, by_all = {}, {}

    def wrong(xp, x, base=10000.0):
        key = x.shape[-2:]
        if key not in by_shape:
            by_shape[key] = table(*key, base)
        return apply(xp, x, by_shape[key])

    def right(xp, x, base=10000.0):
        key = (*x.shape[-2:], base)
        if key not in by_all:
            by_all[key] = table(*key)
        return apply(xp, x, by_all[key])

    def reference(x, base=10000.0):
        out, half = x.copy(), x.shape[-1] // 2
        for t in range(x.shape[-2]):
            for j in range(half):
                angle = t / base ** (j / half)
                a, b = x[..., t, j], x[..., t, j + half]
                out[..., t, j] = a * math.cos(angle) - b * math.sin(angle)
                out[..., t, j + half] = a * math.sin(angle) + b * math.cos(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                make((2, 10, 8)),
                make((7, 6)),
                Sample((make((3, 12, 4)),), {"base": 500.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rank_of_pairs",
    "two int64 keys in one int64 overflow",
    "pandas get_group_index and group-by code that fold several keys into one int64 without a check of the range",
    "int64 keys such as hashes or times of ten to the 12th and more: the order of the groups is wrong",
)
def rank_of_pairs():
    """The dense rank, from 0, of each pair (a[i], b[i]) in the order of a, then b: the numbers of groups."""

    def wrong(xp, a, b):
        if a.size == 0:
            return xp.zeros(a.shape, dtype="int64")
        a, b = a.astype("int64"), b.astype("int64")
        least = b.min(keepdims=True)
        keys = a * (b.max(keepdims=True) - least + 1) + (b - least)
        return xp.unique(keys, return_inverse=True)[1].reshape(a.shape)

    def right(xp, a, b):
        order = xp.argsort(b, kind="stable")
        order = order[xp.argsort(a[order], kind="stable")]
        a, b = a[order], b[order]
        new = xp.concatenate([xp.zeros(a[:1].shape, dtype="bool"), (a[1:] != a[:-1]) | (b[1:] != b[:-1])])
        out = xp.zeros(a.shape, dtype="int64")
        out[order] = xp.cumsum(new.astype("int64"))
        return out

    def reference(a, b):
        pairs = list(zip(a.tolist(), b.tolist(), strict=True))
        ranks = {p: i for i, p in enumerate(sorted(set(pairs)))}
        return np.array([ranks[p] for p in pairs], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rank_of_pairs",
            dtypes=("int16", "int32", "int64"),
            samples=lambda make: [(make(30), make(30)), (make(7), make(7)), (make(200), make(200))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "poisson_loss",
    "Stirling's term also for a count of 1",
    "torch.nn.functional.poisson_nll_loss adds Stirling's term for targets above 1 only; ports write >= 1",
    "full=True and a count of exactly 1: 0.081 too small",
)
def poisson_loss():
    """Poisson loss of log rates, as torch's: with full=True plus Stirling's approximation of log(n!) for n > 1."""

    def loss(xp, log_rate, count, full, above):
        wide, n = log_rate.astype("float64"), count.astype("float64")
        out = xp.exp(wide) - n * wide
        if full:
            safe = xp.where(above, n, 1.0)
            term = safe * xp.log(safe) - safe + 0.5 * xp.log(2 * math.pi * safe)
            out = out + xp.where(above, term, 0.0)
        return out.astype(log_rate.dtype)

    def wrong(xp, log_rate, count, full=False):
        return loss(xp, log_rate, count, full, count >= 1)

    def right(xp, log_rate, count, full=False):
        return loss(xp, log_rate, count, full, count > 1)

    def reference(log_rate, count, full=False):
        out = np.exp(log_rate) - count * log_rate
        for i in np.ndindex(out.shape):
            n = int(count[i])
            if full and n > 1:
                out[i] += (n + 0.5) * math.log(n) - n + 0.5 * math.log(2 * math.pi)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="poisson_loss",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(30), make(30, dtype="int64", low=0, high=500)),
                Sample((make((4, 6)), make((4, 6), dtype="int64", low=0, high=500)), {"full": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "reverse_strings",
    "the length is the number of characters that are not NUL",
    "lengths of padded strings by counting, where NumPy's S and U dtypes strip only the NULs at the end",
    "'a', NUL, 'b' in a field of four: NUL, 'a', 'b' instead of 'b', NUL, 'a'",
)
def reverse_strings():
    """Strings as rows of character codes, padded with NUL at the end as NumPy's are, each reversed."""

    def turn(xp, codes, lengths):
        places = xp.arange(codes.shape[-1])
        back = lengths - 1 - places
        return xp.take_along_axis(codes, xp.where(back >= 0, back, places), axis=-1)

    def wrong(xp, codes):
        return turn(xp, codes, (codes != 0).sum(axis=-1, keepdims=True))

    def right(xp, codes):
        if codes.size == 0:
            return codes.copy()
        ends = xp.where(codes != 0, xp.arange(1, codes.shape[-1] + 1), 0)
        return turn(xp, codes, ends.max(axis=-1, keepdims=True))

    def reference(codes):
        out = np.zeros_like(codes)
        for i in np.ndindex(codes.shape[:-1]):
            row = codes[i].tolist()
            while row and row[-1] == 0:
                row.pop()
            out[i][: len(row)] = row[::-1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="reverse_strings",
            dtypes=("uint8", "int32"),
            samples=lambda make: [
                make((5, 8), low=0, high=126),
                make((2, 3, 6), low=0, high=126),
                make(10, low=0, high=126),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "blocked_sum",
    "each block gets the total of the block before it, not of all before it",
    "two-level scans in CUDA and Triton kernels whose second level was left out; tests had two blocks at most",
    "rows longer than 512: wrong from the third block of 256 on",
)
def blocked_sum():
    """Running sums of rows in blocks of 256, inclusive or exclusive; integers are added in int64."""
    block = 256

    def scan(xp, a, exclusive, carry):
        whole = a.dtype.kind == "i"
        wide = a.astype("int64" if whole else "float64")
        length = a.shape[-1]
        blocks = -(-length // block)
        pad = xp.zeros((*a.shape[:-1], blocks * block - length), dtype=wide.dtype)
        sums = xp.cumsum(xp.concatenate([wide, pad], axis=-1).reshape(*a.shape[:-1], blocks, block), axis=-1)
        zero = xp.zeros((*a.shape[:-1], 1), dtype=wide.dtype)
        before = xp.concatenate([zero, carry(sums[..., :-1, -1])], axis=-1) if blocks else zero[..., :0]
        out = (sums + before[..., None]).reshape(*a.shape[:-1], blocks * block)[..., :length]
        if exclusive:
            out = xp.concatenate([zero, out], axis=-1)[..., :length]
        return out if whole else out.astype(a.dtype)

    def wrong(xp, a, exclusive=False):
        return scan(xp, a, exclusive, lambda totals: totals)

    def right(xp, a, exclusive=False):
        return scan(xp, a, exclusive, lambda totals: xp.cumsum(totals, axis=-1))

    def reference(a, exclusive=False):
        out = np.zeros(a.shape, dtype="int64" if a.dtype.kind == "i" else "float64")
        total = np.zeros(a.shape[:-1], dtype=out.dtype)
        for i in range(a.shape[-1]):
            out[..., i] = total if exclusive else total + a[..., i]
            total = total + a[..., i]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="blocked_sum",
            dtypes=("int32", "float32", "float64"),
            samples=lambda make: [make(300), make((3, 100)), Sample((make((2, 400)),), {"exclusive": True})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "embedding",
    "out is written through a reshape, which copies if out is not contiguous",
    "wrappers of CUDA and Triton kernels that pass out.reshape(-1, width) where view was meant",
    "out is a transposed or strided array: it keeps its old contents",
)
def embedding():
    """Rows of a table by index, of any shape; the rows of `padding` are zero."""

    def rows(xp, table, index, padding):
        return xp.where((index == padding)[..., None], xp.zeros((), dtype=table.dtype), table[index])

    def wrong(xp, table, index, padding=-1, out=None):
        found = rows(xp, table, index, padding)
        if out is None:
            return found
        out.reshape(index.size, table.shape[1])[...] = found.reshape(index.size, table.shape[1])
        return out

    def right(xp, table, index, padding=-1, out=None):
        found = rows(xp, table, index, padding)
        if out is None:
            return found
        out[...] = found
        return out

    def reference(table, index, padding=-1):
        out = np.zeros((*index.shape, table.shape[1]))
        for i in np.ndindex(index.shape):
            if index[i] != padding:
                out[i] = table[index[i]]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="embedding",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((20, 6)), make((3, 5), dtype="int64", low=0, high=19)),
                (make((9, 4)), make(12, dtype="int64", low=0, high=8)),
                Sample((make((7, 5)), make((2, 6), dtype="int64", low=0, high=6)), {"padding": 0}),
            ],
            reference=reference,
        )

    return wrong, right, declare
