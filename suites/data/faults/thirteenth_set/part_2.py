"""Indexing, segments, sparse formats, graphs, bins, sets, bytes, windows, solvers, bits: faults with their twins."""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay import Device, devices  # noqa: F401
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
    "segment_softmax",
    "one maximum for all segments",
    "GAT layers on TensorFlow and early graph libraries: the maximum of all edges is subtracted, not the segment's",
    "scores of two segments that lie far apart, such as [300, 301] and [-500, -501]: the low segment is 0 / 0",
)
def segment_softmax():
    """Softmax among the scores that have the same segment id."""

    def normalise(xp, scores, segment, count, per_segment):
        if scores.shape != segment.shape:
            raise ValueError(f"scores have shape {scores.shape}, segment ids {segment.shape}")
        if scores.shape[0] == 0:
            return scores.copy()
        wide = scores.astype("float64" if scores.dtype == "float64" else "float32")
        member = segment[None, :] == xp.arange(count)[:, None]
        peak = xp.where(member, wide[None, :], -xp.inf).max(axis=1)[segment] if per_segment else wide.max()
        e = xp.exp(wide - peak)
        total = xp.where(member, e[None, :], 0).sum(axis=1)
        return (e / total[segment]).astype(scores.dtype)

    def wrong(xp, scores, segment, count):
        return normalise(xp, scores, segment, count, per_segment=False)

    def right(xp, scores, segment, count):
        return normalise(xp, scores, segment, count, per_segment=True)

    def reference(scores, segment, count):
        out = np.zeros(scores.shape)
        for s in range(count):
            chosen = segment == s
            if chosen.any():
                e = np.exp(scores[chosen] - scores[chosen].max())
                out[chosen] = e / e.sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segment_softmax",
            dtypes=("float32", "float64"),
            result_dtype=lambda scores, segment: scores,
            samples=lambda make: [
                Sample((make(7), np.array([0, 0, 1, 1, 1, 3, 3])), {"count": 4}),
                Sample((make(12), np.array([2, 0, 1, 2, 2, 0, 1, 1, 0, 2, 2, 0])), {"count": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3), np.array([0, 1])), {"count": 2}), ValueError, "segment ids"),
            ],
        )

    return wrong, right, declare


@pair(
    "top_indices",
    "ties come in reverse order",
    "jax.lax.top_k and numpy recipes argsort(a)[::-1]: a stable ascending sort, reversed, puts the later of two first",
    "two equal numbers among the largest, such as [1, 5, 5, 2] with k = 2: [2, 1] instead of [1, 2]",
)
def top_indices():
    """Where the k largest numbers of each row are, the earlier of equal ones first, NaN before all."""

    def check(a, k):
        if not 0 <= k <= a.shape[-1]:
            raise ValueError(f"k is {k}, rows have {a.shape[-1]} numbers")

    def wrong(xp, a, k=1):
        check(a, k)
        return xp.argsort(a, axis=-1, kind="stable")[..., ::-1][..., :k].copy()

    def right(xp, a, k=1):
        check(a, k)
        backwards = xp.argsort(a[..., ::-1], axis=-1, kind="stable")
        return a.shape[-1] - 1 - backwards[..., ::-1][..., :k]

    def reference(a, k=1):
        check(a, k)
        out = np.empty((*a.shape[:-1], k), np.int64)
        for place in np.ndindex(a.shape[:-1]):
            row = a[place].tolist()
            keys = [(0, 0, i) if math.isnan(x) else (1, -x, i) for i, x in enumerate(row)]
            out[place] = [key[2] for key in sorted(keys)][:k]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="top_indices",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                Sample((make(17),), {"k": 5}),
                Sample((make((4, 9)),), {"k": 3}),
                Sample((make((2, 3, 6)),), {"k": 6}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"k": 5}), ValueError, "k is 5")],
        )

    return wrong, right, declare


@pair(
    "csr_row_sums",
    "differences of a running sum",
    "segment sums in DGL, TensorFlow ragged and CUB recipes: cumsum at the row ends, subtracted",
    "a row that holds inf or 1e30 before rows of ordinary numbers: the later rows are nan or 0",
)
def csr_row_sums():
    """Sums of the rows of a sparse matrix in CSR form."""

    def check(indptr):
        if indptr.ndim != 1 or indptr.shape[0] == 0:
            raise ValueError(f"indptr has shape {indptr.shape}; it needs one number more than there are rows")

    def wrong(xp, data, indptr):
        check(indptr)
        running = xp.concatenate([xp.zeros(1, dtype="float64"), xp.cumsum(data.astype("float64"))])
        return (running[indptr[1:]] - running[indptr[:-1]]).astype(data.dtype)

    def right(xp, data, indptr):
        check(indptr)
        place = xp.arange(data.shape[0])[None, :]
        member = (place >= indptr[:-1, None]) & (place < indptr[1:, None])
        return xp.where(member, data.astype("float64")[None, :], 0.0).sum(axis=1).astype(data.dtype)

    def reference(data, indptr):
        rows = zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
        return np.array([data[start:end].sum() for start, end in rows])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="csr_row_sums",
            dtypes=("float32", "float64"),
            result_dtype=lambda data, indptr: data,
            samples=lambda make: [
                (make(10), np.array([0, 3, 4, 10])),
                (make(14), np.array([0, 0, 6, 6, 9, 14])),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(3), np.zeros(0, np.int64)), ValueError, "one number more"),
            ],
        )

    return wrong, right, declare


@pair(
    "range_counts",
    "NaN passes a mask that is written as a negation",
    "torch.histc, scikit-image and CuPy histograms: not (a < low or a > high) is true of NaN",
    "any array that holds a NaN: it is counted in the last bin",
)
def range_counts():
    """How many numbers are in each of `bins` equal bins from low to high, both included; others are not counted."""

    def check(bins, low, high):
        if bins < 1 or not low < high:
            raise ValueError(f"{bins} bins from {low} to {high}")

    def count(xp, flat, keep, bins, low, high):
        edges = xp.asarray(np.linspace(low, high, bins + 1))
        place = xp.searchsorted(edges, flat, side="right") - 1
        place = xp.clip(place, 0, bins - 1)  # high itself belongs to the last bin
        return ((place[:, None] == xp.arange(bins)[None, :]) & keep[:, None]).sum(axis=0)

    def wrong(xp, a, bins=8, low=-2.0, high=2.0):
        check(bins, low, high)
        flat = a.reshape(-1).astype("float64")
        outside = (flat < low) | (flat > high)
        return count(xp, flat, ~outside, bins, low, high)

    def right(xp, a, bins=8, low=-2.0, high=2.0):
        check(bins, low, high)
        flat = a.reshape(-1).astype("float64")
        return count(xp, flat, (flat >= low) & (flat <= high), bins, low, high)

    def reference(a, bins=8, low=-2.0, high=2.0):
        return np.histogram(a[np.isfinite(a)], bins, (low, high))[0]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="range_counts",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(100),
                Sample((make((6, 11)),), {"bins": 5, "low": -1.0, "high": 3.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"bins": 0}), ValueError, "0 bins")],
        )

    return wrong, right, declare


@pair(
    "unpack_flags",
    "a count of 0 is taken for no count",
    "numpy.unpackbits ports: `if count:` where None means all and 0 means none",
    "count=0: all bits are returned instead of none",
)
def unpack_flags():
    """The bits of bytes along the last axis; `count` of them, or all but the last -count."""

    def bits_of(xp, packed, count, order):
        if order not in ("big", "little"):
            raise ValueError(f"order is {order!r}; give 'big' or 'little'")
        size = 8 * packed.shape[-1]
        if count is not None and abs(count) > size:
            raise ValueError(f"count is {count}, there are {size} bits")
        shifts = xp.arange(8) if order == "little" else 7 - xp.arange(8)
        bits = (packed[..., None] >> shifts.astype("uint8")) & 1
        return bits.astype("uint8").reshape((*packed.shape[:-1], size))

    def wrong(xp, packed, count=None, order="big"):
        bits = bits_of(xp, packed, count, order)
        return bits[..., :count].copy() if count else bits

    def right(xp, packed, count=None, order="big"):
        bits = bits_of(xp, packed, count, order)
        return bits if count is None else bits[..., :count].copy()

    def reference(packed, count=None, order="big"):
        return np.unpackbits(packed, axis=-1, count=count, bitorder=order)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unpack_flags",
            dtypes=("uint8",),
            result_dtype="uint8",
            samples=lambda make: [
                make(5, low=0, high=255),
                Sample((make((3, 4), low=0, high=255),), {"count": 19}),
                Sample((make((2, 3), low=0, high=255),), {"count": -3, "order": "little"}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(2),), {"count": 17}), ValueError, "count is 17"),
                ErrorInput(Sample((make(2),), {"order": "middle"}), ValueError, "order is"),
            ],
        )

    return wrong, right, declare


@pair(
    "fnv_of_rows",
    "bytes from 128 on are taken for negative",
    "FNV and Murmur hashes in C with a signed char, in Java, and in their ports: not the hash of the specification",
    "a text with a byte from 128 on, such as UTF-8 of any letter with an accent",
)
def fnv_of_rows():
    """The 32-bit FNV-1a hash of the first lengths[i] bytes of each row."""

    def hashes(xp, text, lengths, signed):
        if text.ndim != 2 or lengths.shape != text.shape[:1]:
            raise ValueError(f"text has shape {text.shape}, lengths {lengths.shape}")
        h = xp.full(text.shape[0], 2166136261, dtype="int64")
        for j in range(text.shape[1]):
            column = text[:, j].astype("int8" if signed else "uint8").astype("int64")
            h = xp.where(j < lengths, ((h ^ column) * 16777619) & 0xFFFFFFFF, h)
        return h

    def wrong(xp, text, lengths):
        return hashes(xp, text, lengths, signed=True)

    def right(xp, text, lengths):
        return hashes(xp, text, lengths, signed=False)

    def reference(text, lengths):
        out = []
        for row, length in zip(text.tolist(), lengths.tolist(), strict=True):
            h = 0x811C9DC5
            for byte in row[: max(length, 0)]:
                h = (h ^ byte) * 0x01000193 % 2**32
            out.append(h)
        return np.array(out, np.int64)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fnv_of_rows",
            dtypes=("uint8",),
            result_dtype="int64",
            samples=lambda make: [
                (make((4, 9), low=32, high=126), np.array([9, 4, 0, 7])),
                (make((2, 20), low=97, high=122), np.array([20, 1])),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((2, 3)), np.array([1, 2, 3])), ValueError, "lengths")],
        )

    return wrong, right, declare


@pair(
    "reflect_pad",
    "only one reflection",
    "border helpers of dask.array.pad, torchaudio and image libraries: -i and 2 (n - 1) - i, then a clip to the array",
    "a pad on the right of n or more, or on the left of more than 2 (n - 1): an array of 3 with after=5",
)
def reflect_pad():
    """Pad the last axis by reflection without repeating the edge, however wide the pad is."""

    def check(a, before, after):
        if before < 0 or after < 0:
            raise ValueError(f"pads are {before} and {after}; give 0 or more")
        if a.shape[-1] == 0:
            raise ValueError("an empty axis has nothing to reflect")

    def wrong(xp, a, before=2, after=2):
        check(a, before, after)
        n = a.shape[-1]
        place = xp.abs(xp.arange(-before, n + after))
        place = xp.where(place >= n, 2 * (n - 1) - place, place)
        return xp.take(a, xp.clip(place, 0, n - 1), axis=-1)

    def right(xp, a, before=2, after=2):
        check(a, before, after)
        n = a.shape[-1]
        period = max(2 * (n - 1), 1)
        place = xp.arange(-before, n + after) % period
        return xp.take(a, xp.where(place < n, place, period - place), axis=-1)

    def reference(a, before=2, after=2):
        return np.pad(a, [(0, 0)] * (a.ndim - 1) + [(before, after)], mode="reflect")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="reflect_pad",
            dtypes=("float32", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(9),
                Sample((make((3, 6)),), {"before": 4, "after": 1}),
                Sample((make((2, 2, 5)),), {"before": 0, "after": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"before": -1}), ValueError, "pads are -1"),
                ErrorInput(make((2, 0)), ValueError, "nothing to reflect"),
            ],
        )

    return wrong, right, declare


@pair(
    "average_pool",
    "a divisor that ignores where the padded row ends",
    "ONNX Runtime and TVM AveragePool: ceil_mode together with count_include_pad divides by the whole kernel",
    "ceil_mode=True with a last window that sticks out of the padding, such as 6 numbers, kernel 3, stride 2",
)
def average_pool():
    """Averages of windows of the last axis, as torch.nn.AvgPool1d defines them."""

    def pool(xp, a, kernel, stride, padding, ceil_mode, count_include_pad, cut):
        n = a.shape[-1]
        if kernel < 1 or stride < 1 or not 0 <= 2 * padding <= kernel:
            raise ValueError(f"kernel {kernel}, stride {stride} and padding {padding} do not fit")
        windows = (n + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)) // stride + 1
        if n == 0 or windows < 1:
            raise ValueError(f"a row of {n} is shorter than kernel {kernel}")
        if ceil_mode and (windows - 1) * stride >= n + padding:
            windows -= 1  # it would begin in the padding on the right
        wide = a.astype("float64")
        means = []
        for i in range(windows):
            start = i * stride - padding
            end = min(start + kernel, n + padding)
            low, high = max(start, 0), min(end, n)
            size = (end - start if cut else kernel) if count_include_pad else high - low
            means.append(wide[..., low:high].sum(axis=-1) / size)
        return xp.stack(means, axis=-1).astype(a.dtype)

    def wrong(xp, a, kernel=3, stride=2, padding=0, ceil_mode=False, count_include_pad=True):
        return pool(xp, a, kernel, stride, padding, ceil_mode, count_include_pad, cut=False)

    def right(xp, a, kernel=3, stride=2, padding=0, ceil_mode=False, count_include_pad=True):
        return pool(xp, a, kernel, stride, padding, ceil_mode, count_include_pad, cut=True)

    def reference(a, kernel=3, stride=2, padding=0, ceil_mode=False, count_include_pad=True):
        n = a.shape[-1]
        total = n + 2 * padding
        columns, start = [], 0
        while start + kernel <= total or (ceil_mode and start + kernel < total + stride and start < n + padding):
            taken = range(start, min(start + kernel, total))
            inside = [p - padding for p in taken if 0 <= p - padding < n]
            summed = sum((a[..., p] for p in inside), np.zeros(a.shape[:-1]))
            columns.append(summed / (len(taken) if count_include_pad else len(inside)))
            start += stride
        return np.stack(columns, axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="average_pool",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((2, 12)),
                Sample((make((3, 10)),), {"padding": 1}),
                Sample((make((2, 11)),), {"ceil_mode": True}),
                Sample((make(10),), {"ceil_mode": True, "padding": 1, "count_include_pad": False}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9),), {"padding": 2}), ValueError, "do not fit"),
                ErrorInput(make(2), ValueError, "shorter"),
            ],
        )

    return wrong, right, declare


@pair(
    "cached_attention",
    "a causal mask aligned at the first key",
    "FlashAttention before 2.1 and torch's is_causal with a key-value cache: tril of a mask that is not square",
    "fewer queries than keys with causal=True, as in decoding: 2 queries against 5 keys",
)
def cached_attention():
    """Attention of queries that are the last ones of the sequence of keys; a causal query sees no later key."""

    def attend(xp, q, k, v, limits):
        columns = [xp.zeros((*q.shape[:-2], 0, v.shape[-1]), dtype="float64")]
        q, k, v = (part.astype("float64") for part in (q, k, v))
        for i, limit in enumerate(limits):
            if limit == 0:
                columns.append(xp.zeros((*q.shape[:-2], 1, v.shape[-1]), dtype="float64"))
                continue
            scores = q[..., i : i + 1, :] @ xp.swapaxes(k[..., :limit, :], -1, -2) / math.sqrt(q.shape[-1])
            e = xp.exp(scores - scores.max(axis=-1, keepdims=True))
            columns.append(e / e.sum(axis=-1, keepdims=True) @ v[..., :limit, :])
        return xp.concatenate(columns, axis=-2)

    def check(q, k, v):
        if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
            raise ValueError(f"queries {q.shape}, keys {k.shape} and values {v.shape} do not fit")

    def wrong(xp, q, k, v, causal=True):
        check(q, k, v)
        queries, keys = q.shape[-2], k.shape[-2]
        limits = [min(i + 1, keys) if causal else keys for i in range(queries)]
        return attend(xp, q, k, v, limits).astype(q.dtype)

    def right(xp, q, k, v, causal=True):
        check(q, k, v)
        queries, keys = q.shape[-2], k.shape[-2]
        limits = [max(i + 1 + keys - queries, 0) if causal else keys for i in range(queries)]
        return attend(xp, q, k, v, limits).astype(q.dtype)

    def reference(q, k, v, causal=True):
        queries, keys = q.shape[-2], k.shape[-2]
        out = np.zeros((*q.shape[:-1], v.shape[-1]))
        for place in np.ndindex(q.shape[:-1]):
            batch, i = place[:-1], place[-1]
            seen = [j for j in range(keys) if not causal or j - keys <= i - queries]
            if seen:
                scores = k[batch][seen] @ q[place] / math.sqrt(q.shape[-1])
                e = np.exp(scores - scores.max())
                out[place] = e / e.sum() @ v[batch][seen]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cached_attention",
            dtypes=("float32", "float64"),
            result_dtype=lambda q, k, v: q,
            samples=lambda make: [
                (make((5, 4)), make((5, 4)), make((5, 3))),
                (make((2, 6, 4)), make((2, 6, 4)), make((2, 6, 4))),
                Sample((make((3, 4)), make((7, 4)), make((7, 2))), {"causal": False}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((2, 4)), make((2, 3)), make((2, 3))), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "posdef_solve",
    "the other triangle is read",
    "scipy.linalg.cho_factor ports to numpy.linalg.cholesky, which reads the lower triangle whatever is asked for",
    "lower=False with a matrix whose lower triangle holds no copy, such as zeros or what a factorization left there",
)
def posdef_solve():
    """Solve a x = b for a symmetric positive definite a, of which only the named triangle is read."""

    def check(a, b):
        if a.ndim < 2 or a.shape[-1] != a.shape[-2] or a.shape[:-1] != b.shape:
            raise ValueError(f"a has shape {a.shape}, b {b.shape}")

    def solve(xp, wide, b):
        factor = xp.linalg.cholesky(wide)
        y = xp.linalg.solve(factor, b.astype("float64")[..., None])
        return xp.linalg.solve(xp.swapaxes(factor, -1, -2), y)[..., 0].astype(b.dtype)

    def wrong(xp, a, b, lower=True):
        check(a, b)
        wide = a.astype("float64")
        if lower:
            return solve(xp, wide, b)
        upper = xp.swapaxes(xp.linalg.cholesky(wide), -1, -2)
        y = xp.linalg.solve(xp.swapaxes(upper, -1, -2), b.astype("float64")[..., None])
        return xp.linalg.solve(upper, y)[..., 0].astype(b.dtype)

    def right(xp, a, b, lower=True):
        check(a, b)
        wide = a.astype("float64")
        if not lower:
            wide = xp.swapaxes(wide, -1, -2)
        return solve(xp, xp.tril(wide) + xp.swapaxes(xp.tril(wide, -1), -1, -2), b)

    def reference(a, b, lower=True):
        half = np.tril(a, -1) if lower else np.triu(a, 1)
        full = half + np.swapaxes(half, -1, -2) + np.where(np.eye(a.shape[-1]), a, 0)
        if not np.isfinite(full).all() or not np.isfinite(b).all():
            raise np.linalg.LinAlgError("not finite")
        np.linalg.cholesky(full)  # raises where it is not positive definite
        return np.linalg.solve(full, b[..., None])[..., 0]

    def declare(fn):
        square = np.random.default_rng(7).normal(size=(2, 5, 5))
        posdef = square @ np.swapaxes(square, -1, -2) + 5 * np.eye(5)
        return OpSpec(
            fn=fn,
            name="posdef_solve",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: a,
            samples=lambda make: [
                (make.of(posdef[0]), make(5)),
                Sample((make.of(posdef[1]), make(5)), {"lower": False}),
                (make.of(posdef), make((2, 5))),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((3, 2)), make(3)), ValueError, "a has shape")],
        )

    return wrong, right, declare


@pair(
    "sparse_adagrad",
    "a row given twice is squared before it is added up",
    "TensorFlow and torch sparse optimisers without coalescing: the state gets the sum of squares of duplicate rows",
    "a row index that occurs twice, such as rows [1, 1]: the state grows by g1^2 + g2^2, not by (g1 + g2)^2",
)
def sparse_adagrad():
    """One step of Adagrad for the given rows of a table; gradients of the same row are added up first."""

    def check(weight, state, rows, grad):
        if weight.shape != state.shape or weight.ndim != 2:
            raise ValueError(f"weight has shape {weight.shape}, state {state.shape}")
        if grad.shape != (rows.shape[0], weight.shape[1]):
            raise ValueError(f"grad has shape {grad.shape}, there are {rows.shape[0]} rows")

    def step(weight, state, total, squares, touched, xp, lr, eps):
        new_state = state.astype("float64") + squares
        new_weight = weight.astype("float64") - lr * total / (xp.sqrt(new_state) + eps)
        return (
            xp.where(touched, new_weight.astype(weight.dtype), weight),
            xp.where(touched, new_state.astype(state.dtype), state),
        )

    def wrong(xp, weight, state, rows, grad, lr=0.1, eps=1e-10):
        check(weight, state, rows, grad)
        same = (rows[None, :] == xp.arange(weight.shape[0])[:, None])[:, :, None]
        each = xp.where(same, grad.astype("float64")[None, :, :], 0.0)
        return step(weight, state, each.sum(axis=1), (each * each).sum(axis=1), same.any(axis=1), xp, lr, eps)

    def right(xp, weight, state, rows, grad, lr=0.1, eps=1e-10):
        check(weight, state, rows, grad)
        same = (rows[None, :] == xp.arange(weight.shape[0])[:, None])[:, :, None]
        total = xp.where(same, grad.astype("float64")[None, :, :], 0.0).sum(axis=1)
        return step(weight, state, total, total * total, same.any(axis=1), xp, lr, eps)

    def reference(weight, state, rows, grad, lr=0.1, eps=1e-10):
        weight, state = weight.copy(), state.copy()
        for row in set(rows.tolist()):
            total = grad[rows == row].sum(axis=0)
            state[row] += total**2
            weight[row] -= lr * total / (np.sqrt(state[row]) + eps)
        return weight, state

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sparse_adagrad",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 3)), make((6, 3), low=0.0, high=4.0), np.array([4, 0, 5]), make((3, 3))),
                Sample((make((4, 5)), make((4, 5), low=0.1, high=1.0), np.array([2]), make((1, 5))), {"lr": 0.5}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    (make((4, 2)), make((4, 2)), np.array([0, 1]), make((3, 2))), ValueError, "there are 2 rows"
                ),
            ],
        )

    return wrong, right, declare


@pair(
    "merged_variance",
    "the product of two counts overflows",
    "Chan's formula in SyncBatchNorm and histogram mergers on 32-bit counters: count_a * count_b before the division",
    "two counts whose product is over 2^31, such as 50000 and 60000 in int32, with different means",
)
def merged_variance():
    """The population variance of two groups together, from mean, variance and count of each."""

    def check(parts):
        if len({part.shape for part in parts}) > 1:
            raise ValueError(f"shapes {[part.shape for part in parts]} differ")

    def merge(xp, mean_a, var_a, count_a, mean_b, var_b, count_b, cross):
        delta = mean_b.astype("float64") - mean_a
        total = xp.maximum(count_a.astype("float64") + count_b, 1.0)
        inner = (count_a * var_a.astype("float64") + count_b * var_b.astype("float64")) / total
        return (inner + delta * delta * (cross / total / total)).astype(mean_a.dtype)

    def wrong(xp, mean_a, var_a, count_a, mean_b, var_b, count_b):
        check((mean_a, var_a, count_a, mean_b, var_b, count_b))
        return merge(xp, mean_a, var_a, count_a, mean_b, var_b, count_b, count_a * count_b)

    def right(xp, mean_a, var_a, count_a, mean_b, var_b, count_b):
        check((mean_a, var_a, count_a, mean_b, var_b, count_b))
        cross = count_a.astype("float64") * count_b.astype("float64")
        return merge(xp, mean_a, var_a, count_a, mean_b, var_b, count_b, cross)

    def reference(mean_a, var_a, count_a, mean_b, var_b, count_b):
        total = np.maximum(count_a.astype(np.int64) + count_b, 1)
        share_a, share_b = count_a / total, count_b / total
        return share_a * var_a + share_b * var_b + share_a * share_b * (mean_b - mean_a) ** 2

    def declare(fn):
        def groups(make, shape, most):
            counts = [make(shape, low=1, high=most, dtype="int32") for _ in range(2)]
            spreads = [make(shape, low=0.0, high=2.0) for _ in range(2)]
            return (make(shape), spreads[0], counts[0], make(shape), spreads[1], counts[1])

        return OpSpec(
            fn=fn,
            name="merged_variance",
            dtypes=("float32", "float64"),
            result_dtype=lambda mean_a, var_a, count_a, mean_b, var_b, count_b: mean_a,
            samples=lambda make: [groups(make, (8,), 100), groups(make, (3, 5), 5000)],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((*groups(make, (3,), 9)[:3], *groups(make, (4,), 9)[3:]), ValueError, "differ"),
            ],
        )

    return wrong, right, declare


@pair(
    "component_labels",
    "too few rounds of propagation",
    "label propagation on GPUs (cuGraph's WCC, cucim.label): log2(n) rounds, which only pointer jumping allows",
    "a long chain of vertices, such as 16 vertices each linked to the next: the last ones keep a label of their own",
)
def component_labels():
    """For each vertex the smallest vertex that it is connected with; links go both ways."""

    def spread(xp, linked, rounds):
        n = linked.shape[0]
        label = xp.arange(n, dtype="int64")
        near = linked | linked.T | (label[:, None] == label[None, :])
        for _ in range(rounds):
            label = xp.where(near, label[None, :], n).min(axis=1)
        return label

    def check(linked):
        if linked.ndim != 2 or linked.shape[0] != linked.shape[1]:
            raise ValueError(f"the adjacency matrix has shape {linked.shape}")

    def wrong(xp, linked):
        check(linked)
        n = linked.shape[0]
        return spread(xp, linked, rounds=math.ceil(math.log2(n)) + 1 if n else 0)

    def right(xp, linked):
        check(linked)
        return spread(xp, linked, rounds=max(linked.shape[0] - 1, 0))

    def reference(linked):
        label = np.full(linked.shape[0], -1, np.int64)
        for start in range(len(label)):
            stack = [start] if label[start] < 0 else []
            while stack:
                vertex = stack.pop()
                if label[vertex] < 0:
                    label[vertex] = start
                    stack.extend(np.flatnonzero(linked[vertex] | linked[:, vertex]).tolist())
        return label

    def declare(fn):
        pieces = np.zeros((10, 10), bool)
        pieces[[0, 0, 4, 5, 7], [3, 8, 5, 6, 9]] = True
        return OpSpec(
            fn=fn,
            name="component_labels",
            dtypes=("bool",),
            result_dtype="int64",
            samples=lambda make: [make((9, 9)), make((24, 24)), make.of(pieces)],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((3, 4)), ValueError, "adjacency")],
        )

    return wrong, right, declare


@pair(
    "dia_matvec",
    "diagonals are cut at the shorter side",
    "spdiags conventions of MATLAB and scipy.sparse.dia_matrix: a wide matrix is treated as if it were square",
    "more columns than rows and a diagonal above the main one, such as 3 x 6 with offset 2",
)
def dia_matvec():
    """A matrix stored by diagonals times a vector: data[d, j] is the entry in column j and row j - offsets[d]."""

    def check(data, x, offsets):
        if data.shape != (len(offsets), x.shape[0]):
            raise ValueError(f"data has shape {data.shape}, there are {len(offsets)} offsets")

    def product(xp, data, x, offsets, rows, columns):
        out = xp.zeros(rows, dtype="float64")
        if columns == 0:
            return out.astype(x.dtype)
        terms = data.astype("float64") * x.astype("float64")
        for d, offset in enumerate(offsets):
            column = xp.arange(rows) + offset
            inside = (column >= 0) & (column < columns)
            out = out + xp.where(inside, terms[d][xp.clip(column, 0, columns - 1)], 0.0)
        return out.astype(x.dtype)

    def wrong(xp, data, x, offsets=(0,), rows=4):
        check(data, x, offsets)
        return product(xp, data, x, offsets, rows, min(rows, x.shape[0]))

    def right(xp, data, x, offsets=(0,), rows=4):
        check(data, x, offsets)
        return product(xp, data, x, offsets, rows, x.shape[0])

    def reference(data, x, offsets=(0,), rows=4):
        out = np.zeros(rows)
        for diagonal, offset in zip(data, offsets, strict=True):
            for j in range(len(x)):
                if 0 <= j - offset < rows:
                    out[j - offset] += diagonal[j] * x[j]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dia_matvec",
            dtypes=("float32", "float64"),
            result_dtype=lambda data, x: x,
            samples=lambda make: [
                Sample((make((3, 6)), make(6)), {"offsets": (-1, 0, 1), "rows": 6}),
                Sample((make((4, 5)), make(5)), {"offsets": (-6, -2, 0, 3), "rows": 9}),
                (make((1, 4)), make(4)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 4)), make(4)), {"offsets": (0, 1, 2)}), ValueError, "3 offsets"),
            ],
        )

    return wrong, right, declare


@pair(
    "is_member",
    "a distance that overflows the small integer type",
    "numpy.isin(kind='table') of 1.24: the distance from the smallest value is computed in int8 or int16",
    "members far apart, such as 100 among [-100, 100] in int8: the distance of 200 wraps around and it is not found",
)
def is_member():
    """Whether each number is one of `values`, by a table of the range of values."""

    def look_up(xp, place, table):
        inside = (place >= 0) & (place < table.shape[0])
        return inside & table[xp.clip(place, 0, table.shape[0] - 1)]

    def table_of(xp, values):
        low, high = int(values.min()), int(values.max())
        table = xp.zeros(high - low + 1, dtype="bool")
        table[values.reshape(-1).astype("int64") - low] = True
        return table, low

    def wrong(xp, a, values):
        if values.size == 0:
            return xp.zeros(a.shape, dtype="bool")
        table, low = table_of(xp, values)
        return look_up(xp, a - xp.asarray(low, dtype=a.dtype), table)

    def right(xp, a, values):
        if values.size == 0:
            return xp.zeros(a.shape, dtype="bool")
        table, low = table_of(xp, values)
        return look_up(xp, a.astype("int64") - low, table)

    def reference(a, values):
        return (a[..., None] == values.reshape(-1)).any(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="is_member",
            dtypes=("int8", "int16"),
            result_dtype="bool",
            samples=lambda make: [
                (make(30), make(3)),
                (make((4, 7), low=0, high=60), make(12, low=10, high=50)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "same_correlate",
    "'same' padding that does not depend on the stride",
    "TensorFlow's SAME carried over to PyTorch (EfficientNet, MobileNet): kernel - 1 zeros whatever the stride is",
    "a stride that does not divide n - 1, such as 6 numbers, 3 taps and stride 2: every window is one place off",
)
def same_correlate():
    """Correlate the last axis with taps, by TensorFlow's rule SAME: ceil(n / stride) results, more zeros at the end."""

    def check(taps, stride):
        if taps.ndim != 1 or taps.shape[0] == 0 or stride < 1:
            raise ValueError(f"taps have shape {taps.shape}, stride is {stride}")

    def correlate(xp, a, taps, stride, zeros):
        n = a.shape[-1]
        windows = -(-n // stride)
        out = xp.zeros((*a.shape[:-1], windows), dtype="float64")
        if n == 0:
            return out.astype(a.dtype)
        wide = a.astype("float64")
        for j in range(taps.shape[0]):
            place = xp.arange(windows) * stride + j - zeros // 2
            inside = (place >= 0) & (place < n)
            out = out + xp.where(inside, xp.take(wide, xp.clip(place, 0, n - 1), axis=-1) * taps[j], 0.0)
        return out.astype(a.dtype)

    def wrong(xp, a, taps, stride=1):
        check(taps, stride)
        return correlate(xp, a, taps, stride, zeros=taps.shape[0] - 1)

    def right(xp, a, taps, stride=1):
        check(taps, stride)
        last = (-(-a.shape[-1] // stride) - 1) * stride
        return correlate(xp, a, taps, stride, zeros=max(last + taps.shape[0] - a.shape[-1], 0))

    def reference(a, taps, stride=1):
        n, k = a.shape[-1], len(taps)
        windows = math.ceil(n / stride)
        left = max((windows - 1) * stride + k - n, 0) // 2
        out = np.zeros((*a.shape[:-1], windows))
        for w in range(windows):
            for j in range(k):
                if 0 <= w * stride + j - left < n:
                    out[..., w] += a[..., w * stride + j - left] * taps[j]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="same_correlate",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, taps: a,
            samples=lambda make: [
                (make((2, 12)), make(3)),
                (make(11), make(4)),
                Sample((make((3, 15)), make(3)), {"stride": 2}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5), make(3)), {"stride": 0}), ValueError, "stride is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "flat_gather",
    "flattened in the order of memory",
    "ravel('K') and reshape(order='A') in CuPy take and scatter helpers: no copy is made, and the order is another",
    "an array in Fortran order or transposed: the numbers come from other places",
)
def flat_gather():
    """The numbers at flat places of an array, counted row by row as numpy.take counts; negative ones from the end."""

    def check(a, index):
        if a.size == 0 and index.size:
            raise IndexError("an empty array has no places")

    def wrong(xp, a, index):
        check(a, index)
        return a.ravel(order="K")[index]

    def right(xp, a, index):
        check(a, index)
        return a.ravel()[index]

    def reference(a, index):
        out = np.empty(index.shape, a.dtype)
        for place in np.ndindex(index.shape):
            out[place] = a[np.unravel_index(index[place] % a.size, a.shape)]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="flat_gather",
            dtypes=("float32", "int64"),
            result_dtype=lambda a, index: a,
            samples=lambda make: [
                (make((4, 5)), make(9, dtype="int64", low=0, high=19)),
                (make((2, 3, 4)), make((3, 3), dtype="int64", low=-24, high=23)),
                (make(8), make((2, 5), dtype="int64", low=0, high=7)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((0, 3)), np.array([0])), IndexError, "no places")],
        )

    return wrong, right, declare


@pair(
    "gemm",
    "zero times NaN where the BLAS rule says not read",
    "addmm and gemm of PyTorch, OpenBLAS and CuPy: with beta = 0 the array c may hold anything, NaN as well",
    "beta=0 with a c that holds NaN or inf, such as memory that was never written",
)
def gemm():
    """alpha a b + beta c; as in BLAS, c is not read where beta is 0."""

    def check(a, b, c):
        if a.shape[-1] != b.shape[-2] or c.shape[-2:] != (a.shape[-2], b.shape[-1]):
            raise ValueError(f"shapes {a.shape}, {b.shape} and {c.shape} do not fit")

    def wrong(xp, a, b, c, alpha=1.0, beta=1.0):
        check(a, b, c)
        product = alpha * (a.astype("float64") @ b.astype("float64"))
        return (product + beta * c.astype("float64")).astype(c.dtype)

    def right(xp, a, b, c, alpha=1.0, beta=1.0):
        check(a, b, c)
        product = alpha * (a.astype("float64") @ b.astype("float64"))
        return (product if beta == 0 else product + beta * c.astype("float64")).astype(c.dtype)

    def reference(a, b, c, alpha=1.0, beta=1.0):
        out = alpha * np.einsum("...ij,...jk->...ik", a, b)
        return out + beta * c if beta else out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gemm",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b, c: c,
            samples=lambda make: [
                (make((3, 4)), make((4, 5)), make((3, 5))),
                Sample((make((2, 3, 4)), make((2, 4, 2)), make((2, 3, 2))), {"alpha": 0.5, "beta": -2.0}),
                Sample((make((6, 2)), make((2, 3)), make((6, 3))), {"beta": 0.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((3, 4)), make((3, 4)), make((3, 4))), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "equilibrated_solve",
    "the matrix is scaled in place where no cast copies it",
    "astype(copy=False) before an in-place step: scipy's overwrite_a, scikit-learn's copy=False, CuPy solvers",
    "a float64 matrix, used again after the call: its rows were divided, so a second right side gives another answer",
)
def equilibrated_solve():
    """Solve a x = b after dividing each row by its largest number."""

    def check(a, b):
        if a.ndim != 2 or a.shape[0] != a.shape[1] or b.shape != a.shape[:1]:
            raise ValueError(f"a has shape {a.shape}, b {b.shape}")

    def solve(xp, a, b, copy):
        if a.shape[0] == 0:
            return b.copy()
        wide = a.astype("float64", copy=copy)
        largest = xp.abs(wide).max(axis=1)
        largest = xp.where(largest > 0, largest, 1.0)
        wide /= largest[:, None]
        return xp.linalg.solve(wide, b.astype("float64") / largest).astype(b.dtype)

    def wrong(xp, a, b):
        check(a, b)
        return solve(xp, a, b, copy=False)

    def right(xp, a, b):
        check(a, b)
        return solve(xp, a, b, copy=True)

    def reference(a, b):
        largest = np.abs(a).max(axis=1, initial=0)
        largest[~(largest > 0)] = 1
        return np.linalg.solve(a / largest[:, None], b / largest)

    def declare(fn):
        rows = np.random.default_rng(11).uniform(-1, 1, (2, 6, 6)) + 4 * np.eye(6)
        return OpSpec(
            fn=fn,
            name="equilibrated_solve",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: a,
            samples=lambda make: [(make.of(rows[0]), make(6)), (make.of(100 * rows[1]), make(6))],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((3, 2)), make(3)), ValueError, "a has shape")],
        )

    return wrong, right, declare


@pair(
    "bucket_of",
    "edges are noted as checked before the check fails",
    "memoised validation, as in plan caches of FFT and sparse libraries: only the first call raises",
    "the same decreasing edges in a second call: numbers come back instead of ValueError",
)
def bucket_of():
    """In which bucket each number falls: how many edges are not greater than it; NaN comes after the last edge."""

    def place(xp, a, edges):
        limits = xp.asarray(np.array(edges, np.float64))
        return xp.searchsorted(limits, a.astype("float64"), side="right").astype("int64")

    def refuse(edges):
        if any(not low < high for low, high in itertools.pairwise(edges)):
            raise ValueError(f"edges must increase: {edges}")

    wrong_seen, right_seen = set(), set()

    def wrong(xp, a, edges=(-1.0, 0.0, 1.0)):
        if edges not in wrong_seen:
            wrong_seen.add(edges)
            refuse(edges)
        return place(xp, a, edges)

    def right(xp, a, edges=(-1.0, 0.0, 1.0)):
        if edges not in right_seen:
            refuse(edges)
            right_seen.add(edges)
        return place(xp, a, edges)

    def reference(a, edges=(-1.0, 0.0, 1.0)):
        return np.where(np.isnan(a), len(edges), sum((a >= edge).astype(np.int64) for edge in edges))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bucket_of",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(20),
                Sample((make((4, 6)),), {"edges": (-2.5, -0.5, 0.25, 2.0)}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5),), {"edges": (0.0, 2.0, 1.0)}), ValueError, "must increase"),
            ],
        )

    return wrong, right, declare
