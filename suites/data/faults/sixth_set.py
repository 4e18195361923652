"""Forty wrong functions with right twins, declared as a user would, and frozen before the first run."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay.testing import Sample

F16, F32, F64 = ("float16", "float32"), ("float32",), ("float32", "float64")


class Pair(NamedTuple):
    """A wrong function, its right twin, why the wrong one is wrong, and what its user declares besides."""

    name: str
    reason: str
    wrong: Callable[..., Any]
    right: Callable[..., Any]
    declared: dict[str, Any]


PAIRS: list[Pair] = []


def pair(name, reason, wrong, right, **declared):
    PAIRS.append(Pair(name, reason, wrong, right, declared))


def rows(make):
    return [make((3, 257)), make((2, 4, 64))]


def two(make):
    return [(make((5, 33)), make((5, 33)))]


def by_axis(make):
    return [Sample((make((4, 5, 6)),), {"axis": axis}) for axis in (0, 1, 2, -1, -2)]


# Reductions.
def tiled(stop):
    def tile_sum(xp, a):
        total = xp.zeros(a.shape[:-1], a.dtype)
        for start in range(0, stop(a.shape[-1]), 64):
            total = total + a[..., start : start + 64].sum(axis=-1)
        return total

    return tile_sum


pair(
    "tile_sum",
    "the last tile is dropped where it holds one element",
    tiled(lambda n: n - 1),
    tiled(lambda n: n),
    dtypes=F32,
    reference=lambda a: a.sum(-1),
    samples=rows,
)
pair(
    "half_sum",
    "sums float16 in float16",
    lambda xp, a: xp.cumsum(a, axis=-1, dtype=a.dtype)[..., -1],
    lambda xp, a: a.astype("float32").sum(axis=-1).astype(a.dtype),
    dtypes=("float16",),
    reference=lambda a: a.sum(-1),
    samples=lambda make: [make((4, 1000))],
)
pair(
    "half_dot",
    "products are rounded to float16, the result is float32",
    lambda xp, a, b: (a * b).astype("float32").sum(axis=-1),
    lambda xp, a, b: (a.astype("float32") * b.astype("float32")).sum(axis=-1),
    dtypes=F16,
    result_dtype="float32",
    reference=lambda a, b: (a * b).sum(-1),
    samples=two,
)
pair(
    "peak",
    "keepdims is dropped for axis 0 only",
    lambda xp, a, axis=0: a.max(axis=axis, keepdims=bool(axis)),
    lambda xp, a, axis=0: a.max(axis=axis, keepdims=True),
    dtypes=F32,
    reference=lambda a, axis=0: a.max(axis=axis, keepdims=True),
    samples=by_axis,
)
pair(
    "reverse_cumsum",
    "a negative axis is resolved as if there were two dimensions",
    lambda xp, a, axis=-1: xp.flip(xp.cumsum(xp.flip(a, axis % 2 if axis < 0 else axis), axis=axis), axis),
    lambda xp, a, axis=-1: xp.flip(xp.cumsum(xp.flip(a, axis), axis=axis), axis),
    dtypes=F32,
    samples=by_axis,
    reference=lambda a, axis=-1: np.flip(np.cumsum(np.flip(a, axis), axis=axis), axis),
)
pair(
    "spread",
    "the variance is E[x^2] - E[x]^2, which cancels",
    lambda xp, a: xp.sqrt(xp.maximum((a * a).mean(axis=-1) - a.mean(axis=-1) ** 2, 0)),
    lambda xp, a: xp.sqrt(((a - a.mean(axis=-1, keepdims=True)) ** 2).mean(axis=-1)),
    dtypes=F32,
    reference=lambda a: a.std(-1),
    samples=lambda make: [make((3, 257)), make((3, 64), low=1000, high=1001)],
)
pair(
    "logsumexp",
    "an empty row gives NaN, not -inf",
    lambda xp, a: (
        a.max(axis=-1) + xp.log(xp.exp(a - a.max(axis=-1, keepdims=True)).sum(axis=-1))
        if a.shape[-1]
        else xp.full(a.shape[:-1], xp.nan, a.dtype)
    ),
    lambda xp, a: (
        a.max(axis=-1) + xp.log(xp.exp(a - a.max(axis=-1, keepdims=True)).sum(axis=-1))
        if a.shape[-1]
        else xp.full(a.shape[:-1], -xp.inf, a.dtype)
    ),
    dtypes=F32,
    samples=lambda make: [make((3, 257)), Sample((make((3, 0)),), kind="empty")],
    reference=lambda a: np.logaddexp.reduce(a, axis=-1, initial=-np.inf),
)
pair(
    "median",
    "an even row gives the upper middle",
    lambda xp, a: xp.sort(a, axis=-1)[..., a.shape[-1] // 2],
    lambda xp, a: (xp.sort(a, axis=-1)[..., (a.shape[-1] - 1) // 2] + xp.sort(a, axis=-1)[..., a.shape[-1] // 2]) / 2,
    dtypes=F32,
    reference=lambda a: np.median(a, axis=-1),
    samples=rows,
)


# Normalisations.
def norm_reference(a, eps=1e-5):
    return a / np.sqrt((a * a).mean(-1, keepdims=True) + eps)


pair(
    "rms_norm",
    "eps is added outside the root",
    lambda xp, a, eps=1e-5: a / (xp.sqrt((a * a).mean(axis=-1, keepdims=True)) + eps),
    lambda xp, a, eps=1e-5: a / xp.sqrt((a * a).mean(axis=-1, keepdims=True) + eps),
    dtypes=F32,
    reference=norm_reference,
    samples=rows,
)
pair(
    "layer_norm",
    "the variance is the unbiased one",
    lambda xp, a: (a - a.mean(axis=-1, keepdims=True)) / xp.sqrt(a.var(axis=-1, keepdims=True, ddof=1) + 1e-5),
    lambda xp, a: (a - a.mean(axis=-1, keepdims=True)) / xp.sqrt(a.var(axis=-1, keepdims=True) + 1e-5),
    dtypes=F32,
    reference=lambda a: (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5),
    samples=rows,
)


def softmax_reference(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_in_place(xp, a):
    if a.dtype == xp.float32:
        a -= a.max(axis=-1, keepdims=True)
    else:
        a = a - a.max(axis=-1, keepdims=True)
    e = xp.exp(a)
    return e / e.sum(axis=-1, keepdims=True)


def softmax(xp, a):
    e = xp.exp(a - a.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


pair(
    "softmax",
    "float32 input is changed in place",
    softmax_in_place,
    softmax,
    dtypes=F64,
    reference=softmax_reference,
    samples=rows,
)
pair(
    "gelu",
    "the constant is wrong in the seventh digit",
    lambda xp, a: 0.5 * a * (1 + xp.tanh(0.797885 * (a + 0.044715 * a**3))),
    lambda xp, a: 0.5 * a * (1 + xp.tanh(0.7978845608 * (a + 0.044715 * a**3))),
    dtypes=F32,
    reference=lambda a: 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))),
    samples=rows,
)
pair(
    "relu",
    "NaN becomes 0",
    lambda xp, a: xp.where(a > 0, a, xp.zeros_like(a)),
    lambda xp, a: xp.maximum(a, xp.zeros_like(a)),
    dtypes=F16,
    reference=lambda a: np.maximum(a, 0),
)
pair(
    "hard_tanh",
    "-0.0 becomes 0.0",
    lambda xp, a: xp.clip(a, -1, 1) + 0.0,
    lambda xp, a: xp.clip(a, -1, 1),
    dtypes=F32,
    reference=lambda a: np.clip(a, -1, 1),
)


# Attention.
def scores(scale):
    return lambda xp, q, k: (q @ xp.swapaxes(k, -1, -2)) / xp.asarray(scale(q.shape[-1]), q.dtype)


pair(
    "scores",
    "the scale is a whole number",
    scores(lambda d: int(d**0.5)),
    scores(lambda d: d**0.5),
    dtypes=F32,
    reference=lambda q, k: q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]),
    samples=lambda make: [(make((2, 5, 16)), make((2, 7, 16))), (make((2, 5, 24)), make((2, 7, 24)))],
)


def masked(fill, offset=True):
    def causal(xp, a):
        queries, keys = a.shape
        seen = xp.asarray(np.tri(queries, keys, keys - queries if offset else 0, dtype=bool))
        return softmax(xp, xp.where(seen, a, xp.asarray(fill, a.dtype)))

    return causal


def causal_reference(a):
    return softmax_reference(np.where(np.tri(*a.shape, a.shape[1] - a.shape[0], dtype=bool), a, -np.inf))


pair(
    "causal",
    "the mask starts at the first key, not at the last",
    masked(-np.inf, False),
    masked(-np.inf),
    dtypes=F32,
    reference=causal_reference,
    samples=lambda make: [make((6, 6)), make((3, 9))],
)
pair(
    "causal_fill",
    "masked scores are -1e4, not -inf",
    masked(-1e4),
    masked(-np.inf),
    dtypes=F32,
    reference=causal_reference,
    samples=lambda make: [make((6, 6)), make((3, 9))],
)


# Losses.
def cross_entropy(divisor):
    def loss(xp, a, target):
        valid = target >= 0
        shifted = a - a.max(axis=-1, keepdims=True)
        logs = shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))
        hot = (xp.arange(a.shape[-1])[None, :] == target[:, None]).astype(a.dtype)
        return -(logs * hot).sum() / divisor(valid).astype(a.dtype)

    return loss


def cross_entropy_reference(a, target):
    logs = a - np.logaddexp.reduce(a, axis=-1, keepdims=True)
    return -sum(logs[i, t] for i, t in enumerate(target) if t >= 0) / (target >= 0).sum()


pair(
    "cross_entropy",
    "the mean counts ignored rows",
    cross_entropy(lambda valid: (valid | ~valid).sum()),
    cross_entropy(lambda valid: valid.sum()),
    dtypes=F32,
    reference=cross_entropy_reference,
    samples=lambda make: [(make((4, 7)), make.of([0, 6, -1, 3], dtype="int64"))],
)
pair(
    "bce",
    "exp overflows for large negative logits",
    lambda xp, a, y: xp.log(1 + xp.exp(-a)) + (1 - y) * a,
    lambda xp, a, y: xp.maximum(a, 0) - a * y + xp.log1p(xp.exp(-xp.abs(a))),
    dtypes=F32,
    reference=lambda a, y: np.logaddexp(0, -a) + (1 - y) * a,
    samples=two,
)


def huber(half):
    return lambda xp, a, delta=1.0: xp.where(xp.abs(a) < delta, 0.5 * a * a, delta * (xp.abs(a) - half(delta)))


pair(
    "huber",
    "the linear part is right for delta=1 only",
    huber(lambda delta: 0.5),
    huber(lambda delta: 0.5 * delta),
    dtypes=F32,
    samples=lambda make: [make((40,)), Sample((make((40,)),), {"delta": 2.0})],
    reference=lambda a, delta=1.0: np.where(np.abs(a) < delta, 0.5 * a * a, delta * (np.abs(a) - 0.5 * delta)),
)


# Optimizer steps.
def adam(inside):
    def step(xp, p, g, v, count=1):
        v = 0.999 * v + 0.001 * g * g
        corrected = v / (1 - 0.999**count)
        return p - 0.01 * g / (xp.sqrt(corrected + 1e-8) if inside else xp.sqrt(corrected) + 1e-8)

    return step


pair(
    "adam",
    "eps is inside the root",
    adam(True),
    adam(False),
    dtypes=F32,
    reference=lambda p, g, v, count=1: (
        p - 0.01 * g / (np.sqrt((0.999 * v + 0.001 * g * g) / (1 - 0.999**count)) + 1e-8)
    ),
    samples=lambda make: [Sample((make((64,)), make((64,)), make((64,), low=0, high=1)), {"count": 3})],
)


def sgd(always):
    def step(xp, p, g, m, momentum=0.9, decay=0.1):
        if always or momentum:
            g = g + decay * p
        return p - 0.1 * (momentum * m + g)

    return step


pair(
    "sgd",
    "weight decay is lost without momentum",
    sgd(False),
    sgd(True),
    dtypes=F32,
    reference=lambda p, g, m, momentum=0.9, decay=0.1: p - 0.1 * (momentum * m + g + decay * p),
    samples=lambda make: [Sample((make(9), make(9), make(9)), {"momentum": m}) for m in (0.9, 0.0)],
)


# Scatter, segments, sorting.
def scatter_lost(xp, a, index):
    out = xp.zeros(8, a.dtype)
    out[index] += a
    return out


def scatter_reference(a, index):
    return np.bincount(index, a, minlength=8)


pair(
    "scatter_add",
    "one of two equal indices is lost",
    scatter_lost,
    lambda xp, a, index: ((index[:, None] == xp.arange(8)[None, :]).astype(a.dtype) * a[:, None]).sum(axis=0),
    dtypes=F32,
    reference=scatter_reference,
    samples=lambda make: [(make((20,)), make((20,), dtype="int64", low=0, high=7))],
)


def segment_max(fill):
    def run(xp, a, index):
        hit = index[:, None] == xp.arange(8)[None, :]
        return xp.where(hit, a[:, None], xp.asarray(fill, a.dtype)).max(axis=0)

    return run


pair(
    "segment_max",
    "segments start at 0, not at -inf",
    segment_max(0),
    segment_max(-np.inf),
    dtypes=F32,
    reference=lambda a, index: np.array([a[index == k].max(initial=-np.inf) for k in range(8)]),
    samples=lambda make: [(make((20,)), make((20,), dtype="int64", low=0, high=6))],
)
pair(
    "top_k",
    "the smallest integer, negated, stays the smallest",
    lambda xp, a: -xp.sort(-a, axis=-1)[..., :3],
    lambda xp, a: xp.flip(xp.sort(a, axis=-1), -1)[..., :3],
    dtypes=("int8", "int32"),
    reference=lambda a: np.sort(a, axis=-1)[..., ::-1][..., :3],
    samples=lambda make: [make((3, 9)), make((2, 4))],
)
pair(
    "sort_down",
    "NaN comes first",
    lambda xp, a: xp.flip(xp.sort(a, axis=-1), -1),
    lambda xp, a: -xp.sort(-a, axis=-1),
    dtypes=F32,
    reference=lambda a: -np.sort(-a, axis=-1),
    samples=rows,
)
pair(
    "argmax",
    "of equal elements the last one wins",
    lambda xp, a: a.shape[-1] - 1 - xp.argmax(xp.flip(a, -1), axis=-1),
    lambda xp, a: xp.argmax(a, axis=-1),
    dtypes=("float32", "int32"),
    result_dtype="int64",
    reference=lambda a: np.argmax(a, axis=-1),
    samples=rows,
)

# Quantisation and integers.
pair(
    "quantise",
    "halves are rounded up, not to even",
    lambda xp, a: xp.clip(xp.floor(a * 16 + 0.5), -128, 127).astype("int8"),
    lambda xp, a: xp.clip(xp.rint(a * 16), -128, 127).astype("int8"),
    dtypes=F32,
    result_dtype="int8",
    reference=lambda a: np.clip(np.rint(a * 16), -128, 127).astype("int8"),
    samples=lambda make: [make((3, 257))],
)
pair(
    "dequantise",
    "the difference wraps in int8",
    lambda xp, q: (q - xp.asarray(5, q.dtype)).astype("float32") * 0.25,
    lambda xp, q: (q.astype("float32") - 5) * 0.25,
    dtypes=("int8",),
    result_dtype="float32",
    reference=lambda q: (q.astype(float) - 5) * 0.25,
    samples=lambda make: [make((3, 257))],
)
pair(
    "absdiff",
    "the difference of unsigned numbers wraps",
    lambda xp, a, b: xp.abs(a - b),
    lambda xp, a, b: xp.maximum(a, b) - xp.minimum(a, b),
    dtypes=("uint8", "uint16"),
    reference=lambda a, b: abs(a.astype(int) - b.astype(int)).astype(a.dtype),
)
pair(
    "bucket",
    "integers are divided towards zero",
    lambda xp, a: (a / 4).astype(a.dtype),
    lambda xp, a: a // 4,
    dtypes=("int32",),
    reference=lambda a: a // 4,
)
pair(
    "midpoint",
    "the sum overflows",
    lambda xp, a, b: (a + b) // 2,
    lambda xp, a, b: (a & b) + ((a ^ b) >> 1),
    dtypes=("int32",),
    reference=lambda a, b: ((a.astype("int64") + b) // 2).astype(a.dtype),
)
pair(
    "fixed",
    "goes through int32 on the way to int64",
    lambda xp, a: xp.rint(a * 1000).astype("int32").astype("int64"),
    lambda xp, a: xp.rint(a * 1000).astype("int64"),
    dtypes=("float64",),
    result_dtype="int64",
    reference=lambda a: np.rint(a * 1000).astype("int64"),
    samples=lambda make: [make((3, 40)), make((3, 40), low=-1e5, high=1e5)],
)

# Windows and complex numbers.
pair(
    "hann",
    "the window is symmetric, not periodic",
    lambda xp, a: a * xp.asarray(np.hanning(a.shape[-1])).astype(a.dtype),
    lambda xp, a: a * xp.asarray(np.hanning(a.shape[-1] + 1)[:-1]).astype(a.dtype),
    dtypes=F32,
    samples=rows,
    reference=lambda a: a * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(a.shape[-1]) / a.shape[-1])),
)
pair(
    "vdot",
    "the first argument is not conjugated",
    lambda xp, a, b: (a * b).sum(axis=-1),
    lambda xp, a, b: (xp.conj(a) * b).sum(axis=-1),
    dtypes=("complex64",),
    reference=lambda a, b: (np.conj(a) * b).sum(-1),
    samples=two,
)
pair(
    "phase",
    "the quadrant is lost",
    lambda xp, a: xp.arctan(a.imag / a.real),
    lambda xp, a: xp.arctan2(a.imag, a.real),
    dtypes=("complex64",),
    result_dtype="float32",
    reference=np.angle,
    samples=lambda make: [make((3, 40))],
)

# Layout, views, caches, workspaces.
pair(
    "flatten",
    "returns a view of its input",
    lambda xp, a: a.reshape(-1),
    lambda xp, a: a.reshape(-1).copy(),
    dtypes=F32,
    reference=lambda a: a.flatten(),
)
pair(
    "ravel",
    "follows the memory, not the indices",
    lambda xp, a: xp.ravel(a.T if a.ndim == 2 and a.flags.f_contiguous else a) * 2,
    lambda xp, a: xp.ravel(a) * 2,
    dtypes=F32,
    reference=lambda a: a.flatten() * 2,
)


def positions(key):
    tables: dict[Any, Any] = {}

    def add(xp, a):
        n = a.shape[-1]
        if key(n, a) not in tables:
            tables[key(n, a)] = np.sin(np.arange(n) / 100).astype(str(a.dtype))
        return a + xp.asarray(tables[key(n, a)])

    return add


pair(
    "positions",
    "the table is cached by length, without the dtype",
    positions(lambda n, a: n),
    positions(lambda n, a: (n, str(a.dtype))),
    dtypes=F64,
    samples=rows,
    reference=lambda a: a + np.sin(np.arange(a.shape[-1]) / 100),
)


def scaled(fresh):
    kept: dict[Any, Any] = {}

    def run(xp, a):
        key = (xp.__name__, a.shape, str(a.dtype))
        if fresh or key not in kept:
            kept[key] = xp.empty(a.shape, a.dtype)
        out = kept.pop(key) if fresh else kept[key]
        out[...] = a * 3
        return out

    return run


pair(
    "workspace",
    "the result is a buffer that the next call writes",
    scaled(False),
    scaled(True),
    dtypes=F32,
    reference=lambda a: a * 3,
    samples=rows,
)
