"""Attention, normalisation, losses, convolution, resizing, sampling, top-k, segments, quantisation: faults and twins."""

import math
from collections.abc import Callable
from fractions import Fraction
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
    "causal_attention",
    "an option is wrong for shapes that no sample has it with: causal with fewer or more queries than keys",
    "FlashAttention before 2.1 and torch.nn.functional.scaled_dot_product_attention(is_causal=True): the mask starts at "
    "the top left corner, so a decoder with cached keys sees only the first of them",
    "causal=True, 2 queries and 5 keys: the last query sees two keys and not five",
)
def causal_attention():
    """Softmax attention; with `causal` the last query sees all keys, the one before all but one, and so on."""

    def attend(xp, q, k, v, causal, offset):
        m, n = q.shape[-2], k.shape[-2]
        if q.shape[-1] != k.shape[-1] or v.shape[-2] != n:
            raise ValueError(f"shapes {q.shape}, {k.shape} and {v.shape} do not fit")
        if n == 0:
            return xp.zeros((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
        scores = q.astype("float64") @ xp.swapaxes(k, -1, -2).astype("float64") / math.sqrt(max(q.shape[-1], 1))
        if causal:
            visible = xp.arange(n)[None, :] <= xp.arange(m)[:, None] + offset
            scores = xp.where(visible, scores, -math.inf)
        top = scores.max(axis=-1, keepdims=True)
        weights = xp.exp(scores - xp.where(xp.isfinite(top), top, 0.0))
        total = weights.sum(axis=-1, keepdims=True)
        weights = xp.where(total == 0, 0.0, weights / xp.where(total == 0, 1.0, total))
        return (weights @ v).astype(q.dtype)

    def wrong(xp, q, k, v, causal=False):
        return attend(xp, q, k, v, causal, 0)

    def right(xp, q, k, v, causal=False):
        return attend(xp, q, k, v, causal, k.shape[-2] - q.shape[-2])

    def reference(q, k, v, causal=False):
        if q.shape[-1] != k.shape[-1] or v.shape[-2] != k.shape[-2] or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
            raise ValueError("shapes do not fit")
        m, n = q.shape[-2], k.shape[-2]
        out = np.zeros((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
        for i in np.ndindex(q.shape[:-1]):
            batch, row = i[:-1], i[-1]
            scores = (k[batch] @ q[i]) / np.sqrt(max(q.shape[-1], 1))
            if causal:
                scores[max(n - (m - 1 - row), 0) :] = -math.inf
            top = scores.max(initial=-math.inf)
            weights = np.exp(scores - (top if np.isfinite(top) else 0.0))
            total = weights.sum()
            out[i] = (weights / (1.0 if total == 0 else total)) @ v[batch]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="causal_attention",
            dtypes=("float32", "float64"),
            result_dtype=lambda q, k, v: q,
            samples=lambda make: [
                (make((5, 4)), make((7, 4)), make((7, 3))),
                (make((2, 3, 6, 8)), make((2, 3, 4, 8)), make((2, 3, 4, 8))),
                Sample((make((6, 4)), make((6, 4)), make((6, 4))), {"causal": True}),
                Sample((make((2, 9, 5)), make((2, 9, 5)), make((2, 9, 2))), {"causal": True}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((3, 4)), make((3, 5)), make((3, 4))), ValueError, "do not fit"),
                ErrorInput((make((3, 4)), make((3, 4)), make((2, 4))), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "dynamic_rotary",
    "state kept between calls: the base of the longest sequence seen stays in use for later short ones",
    "Hugging Face transformers, LlamaDynamicNTKScalingRotaryEmbedding: the cache was rebuilt for longer sequences only "
    "and kept the scaled frequencies afterwards",
    "a call of length 40 and then one of length 10 of equal width (limit 16): the second is rotated with the base of 40",
)
def dynamic_rotary():
    """Rotary position embedding; beyond `limit` positions the base grows with the length of this sequence."""
    longest = {}

    def check(a, limit):
        if a.shape[-1] % 2:
            raise ValueError(f"width {a.shape[-1]} is odd")
        if limit < 1:
            raise ValueError(f"limit is {limit}; give 1 or more")

    def rotate(xp, a, limit, scaled_for):
        length, width = a.shape[-2], a.shape[-1]
        base = 10000.0
        if scaled_for > limit and width > 2:
            base *= (scaled_for / limit) ** (width / (width - 2))
        powers = xp.asarray([base ** (-2 * i / width) for i in range(width // 2)], dtype="float64")
        angles = xp.arange(length).astype("float64")[:, None] * powers[None, :]
        cos, sin = xp.cos(angles), xp.sin(angles)
        left, right = a[..., : width // 2].astype("float64"), a[..., width // 2 :].astype("float64")
        return xp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1).astype(a.dtype)

    def wrong(xp, a, limit=16):
        check(a, limit)
        key = (a.shape[-1], limit)
        longest[key] = max(longest.get(key, limit), a.shape[-2])
        return rotate(xp, a, limit, longest[key])

    def right(xp, a, limit=16):
        check(a, limit)
        return rotate(xp, a, limit, a.shape[-2])

    def reference(a, limit=16):
        length, width = a.shape[-2:]
        half = width // 2
        base = 10000.0 if length <= limit or width <= 2 else 10000.0 * (length / limit) ** (width / (width - 2))
        out = np.empty_like(a)
        for position in range(length):
            for i in range(half):
                angle = position / base ** (i / half)
                x, y = a[..., position, i], a[..., position, i + half]
                out[..., position, i] = x * math.cos(angle) - y * math.sin(angle)
                out[..., position, i + half] = y * math.cos(angle) + x * math.sin(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dynamic_rotary",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((10, 8)),
                make((2, 3, 16, 4)),
                make((40, 6)),
                Sample((make((2, 8, 8)),), {"limit": 9}),
                Sample((make((2, 20, 10)),), {"limit": 9}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make((4, 5)), ValueError, "width 5 is odd"),
                ErrorInput(Sample((make((4, 6)),), {"limit": 0}), ValueError, "limit is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "standardise_columns",
    "an input in Fortran order is changed, in the dtype that needs no conversion",
    "scikit-learn, X converted by check_array(order='F') and centred in place (lars_path, enet_path); CuPy's wrappers of "
    "LAPACK, which overwrite operands that are already in Fortran order",
    "a float64 matrix in Fortran order, or of one column: it is standardised in place",
)
def standardise_columns():
    """Columns less their mean, over their deviation; constant columns become zeros."""

    def check(a, ddof):
        if a.ndim != 2:
            raise ValueError(f"{a.ndim} dimensions; give 2")
        if a.shape[0] <= ddof:
            raise ValueError(f"{a.shape[0]} rows; give more than {ddof}")

    def finish(xp, a, work, ddof):
        constant = a.max(axis=0) == a.min(axis=0)
        work -= work.mean(axis=0)
        variance = (work * work).sum(axis=0) / (a.shape[0] - ddof)
        work /= xp.where(constant, 1.0, xp.sqrt(variance))
        return xp.where(constant, 0.0, work).astype(a.dtype)

    def wrong(xp, a, ddof=0):
        check(a, ddof)
        columns = a.T if a.dtype == "float64" else a.T.astype("float64")
        return finish(xp, a, xp.ascontiguousarray(columns).T, ddof)

    def right(xp, a, ddof=0):
        check(a, ddof)
        return finish(xp, a, a.astype("float64"), ddof)

    def reference(a, ddof=0):
        if len(a) <= ddof:
            raise ValueError("too few rows")
        out = np.zeros_like(a)
        for j, column in enumerate(a.T):
            if not column.max() == column.min():
                out[:, j] = (column - np.mean(column)) / np.std(column, ddof=ddof)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="standardise_columns",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((20, 3)),
                make((7, 12), low=-50, high=100),
                Sample((make((9, 4)),), {"ddof": 1}),
                Sample((make((5, 0)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make(5), ValueError, "1 dimensions"),
                ErrorInput(Sample((make((1, 5)),), {"ddof": 1}), ValueError, "1 rows; give more than 1"),
            ],
        )

    return wrong, right, declare


@pair(
    "resize_like",
    "the input itself is returned where nothing is to do",
    "tf.image.resize returned the image itself when the size was the same already; likewise Tensor.to, "
    "scipy.ndimage and scikit-image shortcuts",
    "a and like of equal length: writing to the result changes the input",
)
def resize_like():
    """Linear interpolation along the last axis, at pixel centres, to the length of `like`; a new array."""

    def resample(xp, a, m):
        n = a.shape[-1]
        place = xp.clip((2 * xp.arange(m) + 1) * n - m, 0, 2 * m * (n - 1))
        low = place // (2 * m) if m else place
        share = ((place - low * (2 * m)) / max(2 * m, 1)).astype("float64")
        high = xp.minimum(low + 1, n - 1)
        first = a[..., low].astype("float64")
        mixed = first * (1 - share) + a[..., high].astype("float64") * share
        return xp.where(share == 0, first, mixed).astype(a.dtype)

    def check(a):
        if a.shape[-1] == 0:
            raise ValueError("nothing to resize from")

    def wrong(xp, a, like):
        check(a)
        if a.shape[-1] == like.shape[-1]:
            return a
        return resample(xp, a, like.shape[-1])

    def right(xp, a, like):
        check(a)
        if a.shape[-1] == like.shape[-1]:
            return a.copy()
        return resample(xp, a, like.shape[-1])

    def reference(a, like):
        n, m = a.shape[-1], like.shape[-1]
        if n == 0:
            raise ValueError("nothing to resize from")
        out = np.empty((*a.shape[:-1], m), dtype=a.dtype)
        for j in range(m):
            x = min(max(Fraction(2 * j + 1, 2) * Fraction(n, m) - Fraction(1, 2), Fraction(0)), Fraction(n - 1))
            i = math.floor(x)
            t = float(x - i)
            out[..., j] = a[..., i] * (1 - t) + a[..., i + 1] * t if t else a[..., i]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="resize_like",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, like: a,
            samples=lambda make: [
                (make(5), make(9)),
                (make((3, 12)), make((3, 5))),
                (make((2, 4, 7)), make(14)),
                (make((2, 1)), make(3)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((2, 0)), make(3)), ValueError, "nothing to resize")],
        )

    return wrong, right, declare


@pair(
    "top_k",
    "axis 0 of three dimensions: the axes come back in another order",
    "a swapaxes that is undone as a moveaxis (or rollaxis), as in early axis support of sort and percentile in CuPy and "
    "of scipy.signal filters; equal for two dimensions",
    "shape (3, 4, 5) with axis=0: the result has the shape (k, 5, 4)",
)
def top_k():
    """The k largest values along an axis, largest first; NaN counts as the largest."""

    def check(a, k, axis):
        if not 1 <= k <= a.shape[axis]:
            raise ValueError(f"k is {k}; give 1 to {a.shape[axis]}")

    def wrong(xp, a, k=1, axis=-1):
        check(a, k, axis)
        ordered = xp.sort(xp.swapaxes(a, axis, -1), axis=-1)[..., ::-1][..., :k]
        return xp.ascontiguousarray(xp.moveaxis(ordered, -1, axis))

    def right(xp, a, k=1, axis=-1):
        check(a, k, axis)
        ordered = xp.sort(xp.swapaxes(a, axis, -1), axis=-1)[..., ::-1][..., :k]
        return xp.ascontiguousarray(xp.swapaxes(ordered, -1, axis))

    def reference(a, k=1, axis=-1):
        if not 1 <= k <= a.shape[axis]:
            raise ValueError("no such k")
        return np.flip(np.sort(a, axis=axis), axis=axis).take(range(k), axis=axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="top_k",
            dtypes=("float32", "float64", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(7),
                make((2, 3, 4)),
                Sample((make((5, 6)),), {"k": 2, "axis": 0}),
                Sample((make((3, 4, 5)),), {"k": 3, "axis": 1}),
                Sample((make((4, 3)),), {"k": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 3)),), {"k": 4}), ValueError, "k is 4; give 1 to 3"),
                ErrorInput(Sample((make((4, 3)),), {"k": 0}), ValueError, "k is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "quantise",
    "overflow on the way: the zero point is added in int32 before the clamp",
    "PyTorch, fake_quantize_per_tensor_affine and quantize_per_tensor of large values: the sum with the zero point "
    "wrapped in int32, later done in int64",
    "a value of 1e9 with scale 0.05 and zero_point 10 gives -128 and not 127",
)
def quantise():
    """int8 codes: round(a / scale), half to even, plus zero_point, clamped; NaN becomes zero_point."""

    def check(scale, zero_point):
        if not scale > 0:
            raise ValueError(f"scale is {scale}; give more than 0")
        if not -128 <= zero_point <= 127:
            raise ValueError(f"zero_point is {zero_point}; give -128 to 127")

    def steps(xp, a, scale):
        ratio = xp.rint(a.astype("float64") / scale)
        return xp.where(xp.isnan(ratio), 0.0, ratio)

    def wrong(xp, a, scale=0.1, zero_point=0):
        check(scale, zero_point)
        whole = xp.clip(steps(xp, a, scale), -(2.0**31), 2.0**31 - 1).astype("int32")
        return xp.clip(whole + xp.asarray(zero_point, dtype="int32"), -128, 127).astype("int8")

    def right(xp, a, scale=0.1, zero_point=0):
        check(scale, zero_point)
        return xp.clip(steps(xp, a, scale) + zero_point, -128, 127).astype("int8")

    def reference(a, scale=0.1, zero_point=0):
        out = np.empty(a.shape, dtype="int8")
        for i in np.ndindex(a.shape):
            x = float(a[i]) / scale
            if math.isnan(x):
                out[i] = zero_point
            elif math.isinf(x):
                out[i] = 127 if x > 0 else -128
            else:
                out[i] = min(max(round(x) + zero_point, -128), 127)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="quantise",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: "int8",
            samples=lambda make: [
                make((6, 11)),
                make((40,), low=-100, high=100),
                Sample((make((3, 20)),), {"scale": 0.05, "zero_point": 10}),
                Sample((make((3, 4, 5)),), {"scale": 0.02, "zero_point": -128}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"scale": 0.0}), ValueError, "scale is 0"),
                ErrorInput(Sample((make(4),), {"zero_point": 128}), ValueError, "zero_point is 128"),
            ],
        )

    return wrong, right, declare


@pair(
    "cross_entropy",
    "rows that are left out are multiplied by zero, and infinity times zero is NaN",
    "JAX and optax losses masked by multiplication, and PyTorch reimplementations of ignore_index; the rule of "
    "torch.nn.functional.cross_entropy is that ignored rows count for nothing",
    "an ignored row with an infinite logit, as masking writes them: the mean is NaN",
)
def cross_entropy():
    """The mean of -log softmax at the label; 0 without rows. Rows labelled `ignore`, or with no class, are left out."""

    def losses(xp, logits, labels, ignore):
        if logits.shape[:-1] != labels.shape:
            raise ValueError(f"logits {logits.shape} do not fit labels {labels.shape}")
        wide = logits.astype("float64")
        top = wide.max(axis=-1, keepdims=True)
        top = xp.where(xp.isfinite(top), top, 0.0)
        total = xp.log(xp.exp(wide - top).sum(axis=-1)) + top[..., 0]
        chosen = labels[..., None] == xp.arange(logits.shape[-1])
        kept = (labels != ignore) & (labels >= 0) & (labels < logits.shape[-1])
        return total - xp.where(chosen, wide, 0.0).sum(axis=-1), kept

    def wrong(xp, logits, labels, ignore=-1):
        each, kept = losses(xp, logits, labels, ignore)
        return ((each * kept).sum() / xp.maximum(kept.sum(), 1)).astype(logits.dtype)

    def right(xp, logits, labels, ignore=-1):
        each, kept = losses(xp, logits, labels, ignore)
        return (xp.where(kept, each, 0.0).sum() / xp.maximum(kept.sum(), 1)).astype(logits.dtype)

    def reference(logits, labels, ignore=-1):
        from scipy.special import logsumexp

        each = []
        for i in np.ndindex(labels.shape):
            if labels[i] != ignore and 0 <= labels[i] < logits.shape[-1]:
                each.append(logsumexp(logits[i]) - logits[i][labels[i]])
        return np.asarray(np.sum(each) / max(len(each), 1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cross_entropy",
            dtypes=("float32", "float64"),
            result_dtype=lambda logits, labels: logits,
            samples=lambda make: [
                (make((8, 5)), make(8, dtype="int64", low=-1, high=4)),
                (make((3, 4, 6), low=-200, high=200), make((3, 4), dtype="int64", low=0, high=5)),
                Sample((make((12, 4)), make(12, dtype="int64", low=0, high=3)), {"ignore": 2}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((8, 5)), make(7, dtype="int64", low=0, high=4)), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "segment_max",
    "a sentinel that is also a value: a segment of minus infinities passes for an empty one",
    "DGL copy_reduce max and torch_scatter / PyG max aggregation: -inf in the result was replaced with 0 to fill nodes "
    "without neighbours",
    "a segment whose values are all -inf gives 0",
)
def segment_max():
    """The largest value of each of `count` segments; 0 for a segment without values; other ids are left out."""

    def best_of(xp, values, ids, count):
        if values.shape != ids.shape or values.ndim != 1:
            raise ValueError(f"values {values.shape} do not fit ids {ids.shape}")
        hits = ids[None, :] == xp.arange(count)[:, None]
        return hits, xp.where(hits, values[None, :], -math.inf).max(axis=-1)

    def wrong(xp, values, ids, count=4):
        if not values.size:
            return xp.zeros(count, dtype=values.dtype)
        _, best = best_of(xp, values, ids, count)
        return xp.where(best == -math.inf, 0.0, best).astype(values.dtype)

    def right(xp, values, ids, count=4):
        if not values.size:
            return xp.zeros(count, dtype=values.dtype)
        hits, best = best_of(xp, values, ids, count)
        return xp.where(hits.any(axis=-1), best, 0.0).astype(values.dtype)

    def reference(values, ids, count=4):
        if values.shape != ids.shape:
            raise ValueError("do not fit")
        groups = [[] for _ in range(count)]
        for value, i in zip(values, ids, strict=True):
            if 0 <= i < count:
                groups[i].append(value)
        return np.asarray([np.max(group) if group else 0.0 for group in groups], dtype=values.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segment_max",
            dtypes=("float32", "float64"),
            result_dtype=lambda values, ids: values,
            samples=lambda make: [
                (make(20), make(20, dtype="int64", low=0, high=3)),
                (make(3, low=-900, high=0), make(3, dtype="int64", low=0, high=3)),
                Sample((make(50), make(50, dtype="int64", low=0, high=9)), {"count": 10}),
                Sample((make(0), make(0, dtype="int64", low=0, high=3)), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(5), make(4, dtype="int64", low=0, high=3)), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "unit_lower_solve",
    "a matrix of right sides passes for a stack of vectors where the batch is as long as the matrices are high",
    "numpy.linalg.solve before 2.0 and torch.linalg.solve: b is a stack of vectors if b.ndim == a.ndim - 1 and "
    "the shapes agree; NumPy 2 takes 1-D only",
    "l of shape (4, 4, 4) and b of (4, 4): a result of shape (4, 4) and not (4, 4, 4)",
)
def unit_lower_solve():
    """Solves L x = b, L the part of `l` below the diagonal and ones on it; b is a vector only if it is 1-D."""

    def solve(xp, lower, b, vector):
        n = lower.shape[-1]
        if lower.shape[-2] != n or b.shape[-1 if b.ndim == 1 else -2] != n:
            raise ValueError(f"shapes {lower.shape} and {b.shape} do not fit")
        b = b[..., None] if vector else b
        shape = (*np.broadcast_shapes(lower.shape[:-2], b.shape[:-2]), *b.shape[-2:])
        x = xp.zeros(shape, dtype=b.dtype)
        for i in range(n):
            done = (lower[..., i, :i, None] * x[..., :i, :]).sum(axis=-2)
            x[..., i, :] = b[..., i, :] - done
        return x[..., 0] if vector else x

    def wrong(xp, lower, b):
        vector = b.ndim == 1 or (b.ndim == lower.ndim - 1 and b.shape == lower.shape[:-1])
        return solve(xp, lower, b, vector)

    def right(xp, lower, b):
        return solve(xp, lower, b, b.ndim == 1)

    def reference(lower, b):
        n = lower.shape[-1]
        x = b[:, None] if b.ndim == 1 else b
        if lower.shape[-2] != n or x.shape[-2] != n:
            raise ValueError("shapes do not fit")
        x = np.array(np.broadcast_to(x, (*np.broadcast_shapes(lower.shape[:-2], x.shape[:-2]), *x.shape[-2:])))
        for j in range(n):  # by columns: what is known is taken off all rows below
            x[..., j + 1 :, :] -= lower[..., j + 1 :, j, None] * x[..., j, None, :]
        return x[..., 0] if b.ndim == 1 else x

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unit_lower_solve",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((5, 5), low=-0.5, high=0.5), make(5)),
                (make((6, 6), low=-0.5, high=0.5), make((6, 2))),
                (make((3, 4, 4), low=-0.5, high=0.5), make((3, 4, 2))),
                Sample((make((2, 4, 4), low=-0.5, high=0.5), make(4)), kind="broadcast"),
                Sample((make((2, 4, 4), low=-0.5, high=0.5), make((4, 3))), kind="broadcast"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((4, 4)), make(3)), ValueError, "do not fit"),
                ErrorInput((make((2, 4, 4)), make((2, 4))), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "correlate1d",
    "a valid call is refused: the check of the kernel's extent forgets the padding",
    "'Kernel size can't be greater than actual input size' in torch and in Chainer/CuPy convolutions where the check "
    "looked at the size without padding",
    "length 4, a kernel of 5 and padding=2: ValueError where 4 results are due",
)
def correlate1d():
    """Cross-correlation along the last axis with a 1-D kernel, after `padding` zeros on both sides."""

    def check(kernel, padding, dilation):
        if kernel.ndim != 1 or kernel.shape[0] == 0:
            raise ValueError(f"a kernel of shape {kernel.shape}; give one dimension, not empty")
        if padding < 0 or dilation < 1:
            raise ValueError(f"padding {padding} and dilation {dilation}; give 0 and 1 or more")
        return dilation * (kernel.shape[0] - 1) + 1

    def slide(xp, a, kernel, padding, dilation, extent):
        edge = xp.zeros((*a.shape[:-1], padding), dtype=a.dtype)
        padded = xp.concatenate([edge, a, edge], axis=-1)
        length = padded.shape[-1] - extent + 1
        out = padded[..., :length] * kernel[0]
        for tap in range(1, kernel.shape[0]):
            out = out + padded[..., tap * dilation : tap * dilation + length] * kernel[tap]
        return out

    def refuse(extent, length):
        raise ValueError(f"the kernel extends over {extent}, more than the input of {length}")

    def wrong(xp, a, kernel, padding=0, dilation=1):
        extent = check(kernel, padding, dilation)
        if extent > a.shape[-1]:
            refuse(extent, a.shape[-1])
        return slide(xp, a, kernel, padding, dilation, extent)

    def right(xp, a, kernel, padding=0, dilation=1):
        extent = check(kernel, padding, dilation)
        if extent > a.shape[-1] + 2 * padding:
            refuse(extent, a.shape[-1] + 2 * padding)
        return slide(xp, a, kernel, padding, dilation, extent)

    def reference(a, kernel, padding=0, dilation=1):
        padded = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(padding, padding)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, dilation * (len(kernel) - 1) + 1, axis=-1)
        return (windows[..., ::dilation] * kernel).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="correlate1d",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(20), make(3)),
                (make((2, 3, 9)), make(9)),
                Sample((make((4, 11)), make(5)), {"padding": 4}),
                Sample((make((2, 15)), make(4)), {"padding": 1, "dilation": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(4), make(5)), ValueError, "extends over 5"),
                ErrorInput(Sample((make(4), make(4)), {"padding": 1, "dilation": 3}), ValueError, "extends over 10"),
                ErrorInput(Sample((make(4), make(3)), {"padding": -1}), ValueError, "padding -1"),
                ErrorInput((make(4), make(0)), ValueError, "not empty"),
            ],
        )

    return wrong, right, declare


@pair(
    "draw_categories",
    "ties: a uniform number on the edge of a category falls to the left, so one of weight zero can be drawn",
    "torch.multinomial on CUDA drew elements of probability zero when the uniform number was exactly 0",
    "a uniform number of 0 and weights [0, 3, 2]: category 0 is drawn",
)
def draw_categories():
    """Categories for uniform numbers in [0, 1], by whole weights; category i holds its left edge, not its right one.

    1 gives the last category of weight above zero. All weights zero: -1.
    """

    def draw(xp, uniform, weights, side):
        if weights.ndim != 1 or weights.shape[0] == 0:
            raise ValueError(f"weights of shape {weights.shape}; give one dimension, not empty")
        edges = xp.cumsum(weights).astype("float64")
        total = edges[-1]
        place = (uniform.astype("float64") * total)[..., None]
        below = (edges <= place) if side == "right" else (edges < place)
        last = (edges < total).sum()
        return xp.where(total == 0, -1, xp.minimum(below.sum(axis=-1), last)).astype("int64")

    def wrong(xp, uniform, weights):
        return draw(xp, uniform, weights, "left")

    def right(xp, uniform, weights):
        return draw(xp, uniform, weights, "right")

    def reference(uniform, weights):
        if not len(weights):
            raise ValueError("no weights")
        total = sum(int(w) for w in weights)
        out = np.full(uniform.shape, -1, dtype="int64")
        for i in np.ndindex(uniform.shape):
            place, running = float(uniform[i]) * total, 0
            for category, weight in enumerate(weights):
                if weight:
                    running += int(weight)
                    out[i] = category
                    if place < running:
                        break
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="draw_categories",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(30, low=0, high=1), make(6, dtype="int64", low=0, high=9)),
                (make((4, 7), low=0, high=1), make(3, dtype="int64", low=0, high=1000)),
                (make((2, 3, 5), low=0, high=1), make(1, dtype="int64", low=1, high=4)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    (make(3, low=0, high=1), make(0, dtype="int64", low=0, high=9)), ValueError, "weights of shape"
                ),
            ],
        )

    return wrong, right, declare


@pair(
    "layer_norm",
    "a wrong branch for some sizes: long rows are reduced in blocks, and a short last block weighs as much as a full one",
    "Welford / Chan merges that take blocks of equal counts: scikit-learn's incremental mean and variance with a short "
    "last batch, block reductions of layer-norm kernels (Apex, PyTorch) for widths that are no multiple of the block",
    "rows of 300: mean and variance are off, as the last 44 numbers weigh like 128",
)
def layer_norm():
    """(a - mean) / sqrt(variance + eps) along the last axis; long rows are reduced in blocks."""
    block = 128

    def normalise(xp, a, eps, share):
        if eps <= 0:
            raise ValueError(f"eps is {eps}; give more than 0")
        width = a.shape[-1]
        if width == 0:
            return a.copy()
        wide = a.astype("float64")
        wide = wide - wide[..., :1]
        parts = [wide[..., start : start + block] for start in range(0, width, block)]
        shares = [share(part.shape[-1], len(parts), width) for part in parts]
        means = [part.mean(axis=-1, keepdims=True) for part in parts]
        mean = sum(w * m for w, m in zip(shares, means, strict=True))
        variance = sum(
            w * (((part - m) ** 2).mean(axis=-1, keepdims=True) + (m - mean) ** 2)
            for w, part, m in zip(shares, parts, means, strict=True)
        )
        return ((wide - mean) / xp.sqrt(variance + eps)).astype(a.dtype)

    def wrong(xp, a, eps=1e-5):
        return normalise(xp, a, eps, lambda size, parts, width: 1 / parts)

    def right(xp, a, eps=1e-5):
        return normalise(xp, a, eps, lambda size, parts, width: size / width)

    def reference(a, eps=1e-5):
        if a.shape[-1] == 0:
            return a.copy()
        a = a - a[..., :1]
        return (a - a.mean(axis=-1, keepdims=True)) / np.sqrt(a.var(axis=-1, keepdims=True) + eps)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="layer_norm",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((4, 64)),
                make((2, 3, 100), low=-500, high=500),
                make((3, 512)),
                Sample((make((5, 256)),), {"eps": 0.1}),
                Sample((make((0, 8)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"eps": -1}), ValueError, "eps is -1")],
        )

    return wrong, right, declare
