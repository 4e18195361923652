"""Sixty wrong functions with right twins, declared as a user would, and frozen before the first run."""

from collections.abc import Callable
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from cuassay import devices
from cuassay.testing import Sample

F16, F32, F64 = ("float16", "float32"), ("float32",), ("float32", "float64")


class Pair(NamedTuple):
    """A wrong function, its right twin, why the wrong one is wrong, and what its user declares besides."""

    name: str
    reason: str
    wrong: Callable[..., Any]
    right: Callable[..., Any]
    declared: dict[str, Any]
    group: str


PAIRS: list[Pair] = []


def pair(name, group, wrong, right, **declared):
    PAIRS.append(Pair(name, wrong.__doc__, wrong, right, declared, group))


def rows(make):
    return [make((3, 257)), make((2, 4, 64))]


def short_rows(make):
    return [make((3, 40)), make((2, 4, 7))]


def two(make):
    return [(make((5, 33)), make((5, 33)))]


def double(a):
    return a.astype("float64")


def same(*arrays, **_):
    return arrays[0]


# Axes.
def flip_wrong(xp, a, *, axis=-1):
    """A negative axis flips the first axis, because the index is built by repeating a slice axis times."""
    return a[(slice(None),) * axis + (slice(None, None, -1),)].copy()


def flip_right(xp, a, *, axis=-1):
    return a[(slice(None),) * (axis % a.ndim) + (slice(None, None, -1),)].copy()


pair(
    "flip",
    "axis",
    flip_wrong,
    flip_right,
    dtypes=("float32", "int32"),
    reference=lambda a, *, axis=-1: np.flip(a, axis),
    samples=lambda make: [Sample((make((4, 5, 6)),), {"axis": axis}) for axis in (0, 1, -1)],
)


def l2_normalize_wrong(xp, a, *, axis=-1):
    """The norms get their axis back at the end whatever the axis was: wrong for other axes than the last."""
    wide = double(a)
    norm = xp.sqrt((wide * wide).sum(axis=axis))[..., None]
    return (wide / xp.maximum(norm, 1e-12)).astype(a.dtype)


def l2_normalize_right(xp, a, *, axis=-1):
    wide = double(a)
    norm = xp.sqrt((wide * wide).sum(axis=axis, keepdims=True))
    return (wide / xp.maximum(norm, 1e-12)).astype(a.dtype)


pair(
    "l2_normalize",
    "axis",
    l2_normalize_wrong,
    l2_normalize_right,
    dtypes=F32,
    reference=lambda a, *, axis=-1: a / np.maximum(np.sqrt((a * a).sum(axis, keepdims=True)), 1e-12),
    samples=lambda make: [Sample((make((6, 6)),), {"axis": axis}) for axis in (0, -1)],
)


# Promotion of dtypes.
def lerp_wrong(xp, a, b, *, weight=0.25):
    """The weight becomes a float64 array and promotes a float32 result to float64: every float32 input."""
    weight = xp.asarray(weight)
    return (1 - weight) * a + weight * b


def lerp_right(xp, a, b, *, weight=0.25):
    return (1 - weight) * a + weight * b


pair(
    "lerp",
    "promotion",
    lerp_wrong,
    lerp_right,
    dtypes=F64,
    result_dtype=lambda a, b: a,
    reference=lambda a, b, *, weight=0.25: (1 - weight) * a + weight * b,
)


def proportions_wrong(xp, counts):
    """Integers are divided in float32 although the result is float64: any quotient that float32 rounds."""
    narrow = counts.astype("float32")
    total = double(counts).sum(axis=-1, keepdims=True)
    quotient = narrow / xp.where(total == 0, 1, total).astype("float32")
    return xp.where(total == 0, 0, double(quotient))


def proportions_right(xp, counts):
    wide = double(counts)
    total = wide.sum(axis=-1, keepdims=True)
    return xp.where(total == 0, 0, wide / xp.where(total == 0, 1, total))


def proportions(counts):
    total = counts.astype(np.int64).sum(-1, keepdims=True)
    return np.where(total == 0, 0, counts / np.where(total == 0, 1, total))


pair(
    "proportions",
    "promotion",
    proportions_wrong,
    proportions_right,
    dtypes=("int32",),
    result_dtype="float64",
    reference=proportions,
    samples=short_rows,
)


# Precision of sums.
def variance_wrong(xp, a):
    """E[x^2] - E[x]^2 cancels: rows whose mean is far larger than their deviation."""
    return (a * a).mean(axis=-1) - a.mean(axis=-1) ** 2


def variance_right(xp, a):
    wide = double(a)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    return (centred * centred).mean(axis=-1).astype(a.dtype)


pair(
    "row_variance",
    "precision of sums",
    variance_wrong,
    variance_right,
    dtypes=F32,
    reference=lambda a: a.var(-1),
    samples=rows,
)


def moving_average_wrong(xp, a, *, width=4):
    """Differences of a running sum: one huge number, infinity or NaN spoils every later window."""
    total = xp.cumsum(a, axis=-1)
    total = xp.concatenate([xp.zeros((*a.shape[:-1], 1), a.dtype), total], axis=-1)
    return (total[..., width:] - total[..., :-width]) / width


def moving_average_right(xp, a, *, width=4):
    count = max(a.shape[-1] - width + 1, 0)
    total = xp.zeros((*a.shape[:-1], count), "float64")
    for start in range(width):
        total = total + a[..., start : start + count]
    return (total / width).astype(a.dtype)


def moving_average(a, *, width=4):
    count = max(a.shape[-1] - width + 1, 0)
    return sum((a[..., start : start + count] for start in range(width)), np.zeros((*a.shape[:-1], count))) / width


pair(
    "moving_average",
    "precision of sums",
    moving_average_wrong,
    moving_average_right,
    dtypes=F32,
    reference=moving_average,
    samples=lambda make: [make((3, 100)), make(17)],
)


def split_k(stored):
    def matmul(xp, a, b):
        total = xp.zeros((a.shape[0], b.shape[1]), "float32")
        for k in range(0, a.shape[1], 32):
            part = a[:, k : k + 32].astype("float32") @ b[k : k + 32].astype("float32")
            total = total + part.astype(stored).astype("float32")
        return total.astype(a.dtype)

    return matmul


split_k_wrong, split_k_right = split_k("float16"), split_k("float32")
split_k_wrong.__doc__ = "Partial products are stored in float16 and summed in float32: every long float16 product."
pair(
    "split_k_matmul",
    "precision of sums",
    split_k_wrong,
    split_k_right,
    dtypes=("float16",),
    reference=lambda a, b: a @ b,
    samples=lambda make: [(make((5, 64)), make((64, 7))), (make((3, 100)), make((100, 4)))],
)


# Special values.
def maximum_wrong(xp, a, b):
    """A comparison loses NaN in the first array, although NaN is documented to propagate."""
    return xp.where(a > b, a, b)


def maximum_right(xp, a, b):
    return xp.maximum(a, b)


pair("larger", "special values", maximum_wrong, maximum_right, dtypes=("float32", "int32"), reference=np.maximum)


def isclose_wrong(xp, a, b):
    """Infinity is not close to itself (inf - inf), and everything is close to an infinite b."""
    a, b = double(a), double(b)
    return xp.abs(a - b) <= 1e-8 + 1e-5 * xp.abs(b)


def isclose_right(xp, a, b):
    a, b = double(a), double(b)
    return (a == b) | (xp.isfinite(b) & (xp.abs(a - b) <= 1e-8 + 1e-5 * xp.abs(b)))


pair("is_close", "special values", isclose_wrong, isclose_right, dtypes=F32, result_dtype="bool", reference=np.isclose)


# Overflow on the way.
def softplus_wrong(xp, a):
    """exp overflows: infinity instead of x for inputs above 88."""
    return xp.log1p(xp.exp(a.astype("float32"))).astype(a.dtype)


def softplus_right(xp, a):
    return xp.logaddexp(a.astype("float32"), 0).astype(a.dtype)


pair("softplus", "overflow", softplus_wrong, softplus_right, dtypes=F16, reference=lambda a: np.logaddexp(a, 0))


# Tiles and tails.
def tiled_max(fill):
    def row_max(xp, a):
        length = a.shape[-1]
        if length == 0:
            return xp.full(a.shape[:-1], -xp.inf, a.dtype)
        tail = xp.full((*a.shape[:-1], -length % 64), fill, a.dtype)
        tiles = xp.concatenate([a, tail], axis=-1).reshape(*a.shape[:-1], -(-length // 64), 64)
        return tiles.max(axis=-1).max(axis=-1)

    return row_max


row_max_wrong, row_max_right = tiled_max(0), tiled_max(-np.inf)
row_max_wrong.__doc__ = "The last tile is padded with zeros: rows of negative numbers with a part tile."
pair(
    "row_max",
    "tails",
    row_max_wrong,
    row_max_right,
    dtypes=F32,
    reference=lambda a: a.max(-1, initial=-np.inf),
    samples=lambda make: [make((3, 100)), make((2, 4, 64))],
)


def by_fours(tail):
    def subtract(xp, a, b):
        x, y = a.reshape(-1), b.reshape(-1)
        body = x.size // 4 * 4
        out = xp.zeros(x.shape, a.dtype)
        out[:body] = x[:body] - y[:body]
        out[body : body + tail] = x[body : body + tail] - y[body : body + tail]
        return out.reshape(a.shape)

    return subtract


vector4_wrong, vector4_right = by_fours(2), by_fours(3)
vector4_wrong.__doc__ = "The tail behind groups of four handles two elements: sizes that leave three."
pair(
    "vector4_subtract",
    "tails",
    vector4_wrong,
    vector4_right,
    dtypes=F32,
    reference=lambda a, b: a - b,
    samples=lambda make: [(make((5, 33)), make((5, 33))), (make((4, 64)), make((4, 64)))],
)


# Strides and layouts.
def raveled(order):
    def tanh(xp, a):
        return xp.tanh(a.ravel(order=order)).reshape(a.shape)

    return tanh


raveled_wrong, raveled_right = raveled("K"), raveled("C")
raveled_wrong.__doc__ = "Elements are taken in the order of memory and put back in C order: transposed inputs."
pair("flat_tanh", "strides", raveled_wrong, raveled_right, dtypes=F32, reference=np.tanh)


def windowed(stride):
    def window_max(xp, a, *, width=3):
        count = max(a.shape[0] - width + 1, 0)
        if count == 0:
            return xp.empty((0,), a.dtype)
        step = stride(a)
        return xp.lib.stride_tricks.as_strided(a, (count, width), (step, step)).max(axis=-1)

    return window_max


window_max_wrong, window_max_right = windowed(lambda a: a.dtype.itemsize), windowed(lambda a: a.strides[0])
window_max_wrong.__doc__ = "The windows assume that the input is contiguous: every second element of an array, say."


def window_max(a, *, width=3):
    count = max(a.shape[0] - width + 1, 0)
    return np.stack([a[i : i + count] for i in range(width)]).max(0) if count else np.empty(0)


pair(
    "window_max",
    "strides",
    window_max_wrong,
    window_max_right,
    dtypes=F32,
    reference=window_max,
    samples=lambda make: [make(40), Sample((make(33),), {"width": 5})],
)


def flat_out(fresh):
    def arctan(xp, a):
        out = fresh(xp, a)
        out.reshape(-1)[...] = xp.arctan(a.reshape(-1))
        return out

    return arctan


flat_out_wrong, flat_out_right = (
    flat_out(lambda xp, a: xp.empty_like(a)),
    flat_out(lambda xp, a: xp.empty(a.shape, a.dtype)),
)
flat_out_wrong.__doc__ = "The output has the input's layout, so that reshape copies and nothing is written: transposed."
pair("flat_arctan", "strides", flat_out_wrong, flat_out_right, dtypes=F32, reference=np.arctan)


# In place.
def softmax_wrong(xp, a):
    """Subtracts the maximum from the caller's array: every input is changed."""
    a -= a.max(axis=-1, keepdims=True, initial=-xp.inf)
    e = xp.exp(a)
    return e / e.sum(axis=-1, keepdims=True)


def softmax_right(xp, a):
    e = xp.exp(a - a.max(axis=-1, keepdims=True, initial=-xp.inf))
    return e / e.sum(axis=-1, keepdims=True)


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


pair("softmax", "in place", softmax_wrong, softmax_right, dtypes=F32, reference=softmax, samples=rows)


def batch_norm_right(xp, a, mean, var, *, eps=1e-5):
    return ((double(a) - double(mean)) / xp.sqrt(double(var) + eps)).astype(a.dtype)


def batch_norm_wrong(xp, a, mean, var, *, eps=1e-5):
    """Updates the running mean in evaluation too: every batch changes the caller's mean."""
    out = batch_norm_right(xp, a, mean, var, eps=eps)
    if a.shape[0]:
        mean *= 0.9
        mean += 0.1 * a.mean(axis=0)
    return out


pair(
    "batch_norm_eval",
    "in place",
    batch_norm_wrong,
    batch_norm_right,
    dtypes=F32,
    reference=lambda a, mean, var, *, eps=1e-5: (a - mean) / np.sqrt(var + eps),
    samples=lambda make: [(make((6, 4)), make(4), np.array([1, 2, 0.5, 4], np.float32))],
)


# Caches.
def windowing(key, tables):
    def hann(xp, a):
        length = a.shape[-1]
        table = tables.get(key(length, a.dtype.name))
        if table is None:
            table = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / max(length, 1))).astype(a.dtype.name)
            tables[key(length, a.dtype.name)] = table
        return a * xp.asarray(table).astype(a.dtype)

    return hann


hann_wrong, hann_right = (
    windowing(lambda length, dtype: length, {}),
    windowing(lambda length, dtype: (length, dtype), {}),
)
hann_wrong.__doc__ = "The table is cached by length alone: float64 gets float32's table after a float32 call."
pair(
    "hann",
    "caches",
    hann_wrong,
    hann_right,
    dtypes=F64,
    reference=lambda a: a * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(a.shape[-1]) / max(a.shape[-1], 1))),
    samples=rows,
)


def banded(key, masks):
    def band(xp, a, *, width=1):
        shape = a.shape[-2:]
        mask = masks.get(key(shape, width))
        if mask is None:
            mask = np.abs(np.subtract.outer(np.arange(shape[0]), np.arange(shape[1]))) <= width
            masks[key(shape, width)] = mask
        return xp.where(xp.asarray(mask), a, xp.zeros_like(a))

    return band


band_wrong, band_right = banded(lambda shape, width: shape, {}), banded(lambda shape, width: (shape, width), {})
band_wrong.__doc__ = "The mask is cached by shape without the width: a second width for the same shape."
pair(
    "band",
    "caches",
    band_wrong,
    band_right,
    dtypes=F32,
    reference=lambda a, *, width=1: np.where(
        np.abs(np.arange(a.shape[-2])[:, None] - np.arange(a.shape[-1])) <= width, a, 0
    ),
    samples=lambda make: [make((5, 6)), Sample((make((2, 7, 7)),), {"width": 2})],
)

LARGEST = {}


def scaled_wrong(xp, a):
    """The largest magnitude of the first array is cached by shape: a second array of that shape."""
    key = (a.shape, a.dtype.name)
    if key not in LARGEST:
        LARGEST[key] = float(xp.abs(a).max(initial=0))
    return a / (LARGEST[key] or 1.0)


def scaled_right(xp, a):
    largest = xp.abs(a).max(initial=0)
    return a / xp.where(largest == 0, xp.ones_like(largest), largest)


pair(
    "scaled_by_largest",
    "caches",
    scaled_wrong,
    scaled_right,
    dtypes=F32,
    result_dtype=lambda a: a,
    reference=lambda a: a / (np.abs(a).max(initial=0) or 1.0),
    samples=rows,
)

# State between calls.
WORK = {}


def workspace_wrong(xp, a):
    """The result lies in a buffer that is kept by shape: a second call overwrites the first result."""
    key = (xp.__name__, a.shape, a.dtype.name)
    if key not in WORK:
        WORK[key] = xp.empty(a.shape, a.dtype)
    return xp.tanh(a, out=WORK[key])


def workspace_right(xp, a):
    return xp.tanh(a, out=xp.empty(a.shape, a.dtype))


pair("tanh_in_workspace", "state", workspace_wrong, workspace_right, dtypes=F32, reference=np.tanh)


# Streams.
def on_side_stream(before, after):
    def negate(xp, a):
        if xp is np:
            return np.negative(a)
        backend = devices.backend(a.device.kind)
        current, side = backend.current_stream(a.device.index), backend.new_stream(a.device.index)
        out = xp.empty(a.shape, a.dtype)
        if before:
            side.wait_stream(current)
        with backend.use_stream(side):
            xp.negative(a, out=out)
        if after:
            current.wait_stream(side)
        return out

    return negate


stream_right = on_side_stream(True, True)
no_wait_before, no_wait_after = on_side_stream(False, True), on_side_stream(True, False)
no_wait_before.__doc__ = "The side stream does not wait for the current stream, which wrote the input: any on a device."
no_wait_after.__doc__ = "The current stream does not wait for the side stream before the result: any on a device."
for name, wrong in (("negate_without_first_wait", no_wait_before), ("negate_without_last_wait", no_wait_after)):
    pair(name, "streams", wrong, stream_right, dtypes=F32, reference=np.negative)

FIRST = {}


def first_stream_wrong(xp, a):
    """Runs on the stream that was current at the first call: any call under another stream."""
    if xp is np:
        return np.arcsinh(a)
    backend = devices.backend(a.device.kind)
    stream = FIRST.setdefault(a.device.kind, backend.current_stream(a.device.index))
    with backend.use_stream(stream):
        return xp.arcsinh(a)


def first_stream_right(xp, a):
    return xp.arcsinh(a)


pair("arcsinh_on_first_stream", "streams", first_stream_wrong, first_stream_right, dtypes=F32, reference=np.arcsinh)


# What a capture refuses.
def nan_to_zero_wrong(xp, a):
    """Asks the device whether there is a NaN, so that the host waits in what is declared not to wait: any input."""
    if a.size and bool(xp.isnan(a).any()):
        return xp.where(xp.isnan(a), xp.zeros_like(a), a)
    return a.copy()


def nan_to_zero_right(xp, a):
    return xp.where(xp.isnan(a), xp.zeros_like(a), a)


pair(
    "nan_to_zero",
    "capture",
    nan_to_zero_wrong,
    nan_to_zero_right,
    dtypes=F32,
    waits=False,
    reference=lambda a: np.where(np.isnan(a), 0, a),
)


def positive_sum_wrong(xp, a):
    """Selects by a mask, whose number of elements the host has to wait for: any input."""
    wide = double(a)
    return wide[wide > 0].sum().astype(a.dtype)


def positive_sum_right(xp, a):
    wide = double(a)
    return xp.where(wide > 0, wide, xp.zeros_like(wide)).sum().astype(a.dtype)


pair(
    "positive_sum",
    "capture",
    positive_sum_wrong,
    positive_sum_right,
    dtypes=F32,
    waits=False,
    reference=lambda a: np.where(a > 0, a, 0).sum(),
    samples=lambda make: [make((3, 40)), make(17)],
)


# Integers: overflow.
def midpoint_wrong(xp, a, b):
    """The sum wraps around before it is halved: large numbers of one sign."""
    return (a + b) // 2


def midpoint_right(xp, a, b):
    return (a & b) + ((a ^ b) >> 1)


pair(
    "midpoint",
    "integer overflow",
    midpoint_wrong,
    midpoint_right,
    dtypes=("int16", "int32"),
    result_dtype=lambda a, b: a,
    reference=lambda a, b: (a.astype(np.int64) + b) // 2,
)


def counter(dtype):
    def count_positive(xp, a):
        return (a > 0).sum(axis=-1, dtype=dtype).astype("int64")

    return count_positive


count_wrong, count_right = counter("uint8"), counter("int64")
count_wrong.__doc__ = "Counts in uint8: rows with more than 255 positive numbers."
pair(
    "count_positive",
    "integer overflow",
    count_wrong,
    count_right,
    dtypes=("float32", "int32"),
    result_dtype="int64",
    reference=lambda a: (a > 0).sum(-1),
    samples=lambda make: [make((3, 100)), make((2, 4, 64))],
)


# Integers: bits and roots.
def folded(first):
    def parity(xp, a):
        out = a
        shift = first
        while shift:
            out = out ^ (out >> shift)
            shift //= 2
        return out & 1

    return parity


parity_wrong, parity_right = folded(16), folded(32)
parity_wrong.__doc__ = "Folds the lower 32 bits alone: int64 of 2^32 and more."
pair(
    "parity",
    "integer bits",
    parity_wrong,
    parity_right,
    dtypes=("int64",),
    reference=lambda a: (np.bitwise_count(a.view(np.uint64)) & 1).astype(np.int64),
)


def isqrt_wrong(xp, a):
    """The root is taken in float64 and never corrected: one less than a square above 2^53."""
    return xp.floor(xp.sqrt(double(xp.maximum(a, 0)))).astype("int64")


def isqrt_right(xp, a):
    a = xp.maximum(a, 0)
    root = xp.minimum(xp.floor(xp.sqrt(double(a))).astype("int64"), 3037000499)
    root = xp.where(root * root > a, root - 1, root)
    return xp.where(a - root * root > 2 * root, root + 1, root)


pair(
    "integer_root",
    "integer bits",
    isqrt_wrong,
    isqrt_right,
    dtypes=("int64",),
    reference=np.vectorize(lambda a: isqrt(max(int(a), 0)), otypes=[np.int64]),
)


# Rounding.
def round_wrong(xp, a):
    """Adds a half and takes the floor: 0.5 and 2.5 go up instead of to the even number."""
    return xp.floor(a + 0.5)


def round_right(xp, a):
    return xp.rint(a)


pair("round_half_to_even", "rounding", round_wrong, round_right, dtypes=F64, reference=np.rint)


# Masks.
def allowed_softmax(xp, a, mask):
    scores = xp.where(mask, double(a), -xp.inf)
    largest = scores.max(axis=-1, keepdims=True, initial=-xp.inf)
    e = xp.exp(scores - xp.where(largest == -xp.inf, 0, largest))
    total = e.sum(axis=-1, keepdims=True)
    return e / xp.where(total == 0, 1, total)


def masked_softmax_wrong(xp, a, mask):
    """Rows in which nothing is allowed become NaN, although zeros are documented: a row of False in the mask."""
    scores = xp.where(mask, double(a), -xp.inf)
    e = xp.exp(scores - scores.max(axis=-1, keepdims=True, initial=-xp.inf))
    return (e / e.sum(axis=-1, keepdims=True)).astype(a.dtype)


def masked_softmax_right(xp, a, mask):
    return allowed_softmax(xp, a, mask).astype(a.dtype)


pair(
    "masked_softmax",
    "masks",
    masked_softmax_wrong,
    masked_softmax_right,
    dtypes=F32,
    reference=lambda a, mask: allowed_softmax(np, a, mask),
    samples=lambda make: [(make((3, 6)), np.array([[True, False, True, True, False, True]] * 3))],
)


def causal(offset):
    def causal_softmax(xp, a):
        queries, keys = a.shape[-2:]
        allowed = xp.tril(xp.ones((queries, keys), bool), k=offset(queries, keys))
        return allowed_softmax(xp, a, allowed).astype(a.dtype)

    return causal_softmax


causal_wrong, causal_right = causal(lambda queries, keys: 0), causal(lambda queries, keys: keys - queries)
causal_wrong.__doc__ = "The diagonal starts at the first key, not so that it ends at the last: more keys than queries."
pair(
    "causal_softmax",
    "masks",
    causal_wrong,
    causal_right,
    dtypes=F32,
    reference=lambda a: allowed_softmax(np, a, np.tri(*a.shape[-2:], a.shape[-1] - a.shape[-2], dtype=bool)),
    samples=lambda make: [make((2, 5, 5)), make((2, 3, 7))],
)


# Broadcasting.
def clamp_min_wrong(xp, a, low):
    """The output has the first array's shape: a lower bound with more axes than the array."""
    return xp.maximum(a, low, out=xp.empty(a.shape, a.dtype))


def clamp_min_right(xp, a, low):
    return xp.maximum(a, low)


pair("clamp_min", "broadcasting", clamp_min_wrong, clamp_min_right, dtypes=F32, reference=np.maximum)


# Empty arrays.
def energy_wrong(xp, a):
    """reshape cannot guess the length of rows where there are none: a batch of zero."""
    flat = double(a).reshape(a.shape[0], -1)
    return (flat * flat).sum(axis=-1).astype(a.dtype)


def energy_right(xp, a):
    length = 1
    for extent in a.shape[1:]:
        length *= extent
    flat = double(a).reshape(a.shape[0], length)
    return (flat * flat).sum(axis=-1).astype(a.dtype)


pair(
    "energy",
    "empty arrays",
    energy_wrong,
    energy_right,
    dtypes=F32,
    reference=lambda a: (a * a).sum(tuple(range(1, a.ndim))),
    samples=lambda make: [make((4, 3, 5)), make((2, 7))],
)


# Axes of one element.
def row_norms_wrong(xp, a):
    """squeeze removes every axis of length one, also that of the batch: one row."""
    wide = double(a)
    return xp.sqrt((wide * wide).sum(axis=-1, keepdims=True)).squeeze().astype(a.dtype)


def row_norms_right(xp, a):
    wide = double(a)
    return xp.sqrt((wide * wide).sum(axis=-1)).astype(a.dtype)


pair(
    "row_norms",
    "one element",
    row_norms_wrong,
    row_norms_right,
    dtypes=F32,
    reference=lambda a: np.sqrt((a * a).sum(-1)),
    samples=rows,
)


def fade_in_wrong(xp, a):
    """Divides by n - 1: NaN for one element, where the ramp is documented as linspace(0, 1, n)."""
    length = a.shape[-1]
    return a * (xp.arange(length) / xp.asarray(length - 1)).astype(a.dtype)


def fade_in_right(xp, a):
    length = a.shape[-1]
    return a * (xp.arange(length) / max(length - 1, 1)).astype(a.dtype)


pair(
    "fade_in",
    "one element",
    fade_in_wrong,
    fade_in_right,
    dtypes=F64,
    reference=lambda a: a * np.linspace(0, 1, a.shape[-1]),
    samples=rows,
)


# Large sizes.
def two_stage(offset):
    def argmax(xp, a):
        length = a.shape[-1]
        if length <= 1024:
            return xp.argmax(a, axis=-1)
        blocks = -(-length // 1024)
        tail = xp.full((*a.shape[:-1], blocks * 1024 - length), -xp.inf, a.dtype)
        parts = xp.concatenate([a, tail], axis=-1).reshape(*a.shape[:-1], blocks, 1024)
        inside = xp.argmax(parts, axis=-1)
        block = xp.argmax(parts.max(axis=-1), axis=-1)
        return xp.take_along_axis(inside, block[..., None], axis=-1)[..., 0] + offset * block

    return argmax


argmax_wrong, argmax_right = two_stage(0), two_stage(1024)
argmax_wrong.__doc__ = "The second path, for more than 1024 elements, forgets where its block begins."
pair(
    "two_stage_argmax",
    "large sizes",
    argmax_wrong,
    argmax_right,
    dtypes=F32,
    result_dtype="int64",
    reference=lambda a: np.argmax(a, -1),
    samples=rows,
)


def launched(most):
    def row_sums(xp, a):
        out = xp.zeros((a.shape[0],), a.dtype)
        out[:most] = double(a[:most]).sum(axis=-1).astype(a.dtype)
        return out

    return row_sums


launched_wrong, launched_right = launched(65535), launched(None)
launched_wrong.__doc__ = "One block for each row, and at most 65535 blocks: later rows are zero."
pair(
    "row_sums",
    "large sizes",
    launched_wrong,
    launched_right,
    dtypes=F32,
    reference=lambda a: a.sum(-1),
    samples=lambda make: [make((3, 257)), make((64, 5))],
)


# Random numbers.
def uniform(xp, size, seed):
    return ((xp.arange(size, dtype="int64") * 1103515245 + 12345 * (seed + 1)) % 2147483648) / 2147483648


CALLS = [0]


def dropout_wrong(xp, a, *, p=0.5, seed=0):
    """A counter of calls joins the seed: the second call with a seed drops other elements than the first."""
    CALLS[0] += 1
    keep = uniform(xp, a.size, seed + 7919 * (CALLS[0] - 1)).reshape(a.shape) >= p
    return xp.where(keep, a / (1 - p), xp.zeros_like(a))


def dropout_right(xp, a, *, p=0.5, seed=0):
    keep = uniform(xp, a.size, seed).reshape(a.shape) >= p
    return xp.where(keep, a / (1 - p), xp.zeros_like(a))


pair(
    "seeded_dropout",
    "random numbers",
    dropout_wrong,
    dropout_right,
    dtypes=F32,
    reference=lambda a, *, p=0.5, seed=0: np.where(uniform(np, a.size, seed).reshape(a.shape) >= p, a / (1 - p), 0),
    samples=lambda make: [make((3, 40)), Sample((make(65),), {"p": 0.25, "seed": 3})],
)


# Lists of arrays.
def clip_norm(computed):
    def clip_grad_norm(xp, grads, *, most=1.0):
        total = xp.zeros((), "float64")
        for grad in grads:
            wide = grad.astype(computed(grad))
            total = total + double((wide * wide).sum())
        factor = xp.minimum(most / (xp.sqrt(total) + 1e-6), 1.0)
        return [(double(grad) * factor).astype(grad.dtype) for grad in grads]

    return clip_grad_norm


clip_norm_wrong, clip_norm_right = clip_norm(lambda grad: grad.dtype), clip_norm(lambda grad: "float64")
clip_norm_wrong.__doc__ = "Squares are summed in the dtype of the gradients: float16 rounds, and overflows for 256."


def clip_grad_norm(grads, *, most=1.0):
    factor = np.minimum(most / (np.sqrt(sum((grad * grad).sum() for grad in grads)) + 1e-6), 1.0)
    return [grad * factor for grad in grads]


pair(
    "clip_grad_norm",
    "lists",
    clip_norm_wrong,
    clip_norm_right,
    dtypes=F16,
    reference=clip_grad_norm,
    samples=lambda make: [([make((3, 4)), make(5)],)],
)


def decayed(chunk):
    def layer_decay(xp, arrays):
        return [array * 0.5 ** (i % chunk if chunk else i) for i, array in enumerate(arrays)]

    return layer_decay


decay_wrong, decay_right = decayed(8), decayed(0)
decay_wrong.__doc__ = "The position is counted within a chunk of eight arrays: lists of more than eight."
pair(
    "layer_decay",
    "lists",
    decay_wrong,
    decay_right,
    dtypes=F32,
    reference=lambda arrays: [array * 0.5**i for i, array in enumerate(arrays)],
    samples=lambda make: [([make((3, 4)), make(5), make((2, 2))],)],
)


# Scatter and gather.
def scatter_wrong(xp, a, index, source):
    """An indexed += adds the last source alone where an index comes twice."""
    out = double(a)
    out[index] += double(source)
    return out.astype(a.dtype)


def scatter_right(xp, a, index, source):
    out = double(a)
    xp.add.at(out, index, double(source))
    return out.astype(a.dtype)


def scatter_add(a, index, source):
    out = a.copy()
    np.add.at(out, index, source)
    return out


pair(
    "scatter_add",
    "indices",
    scatter_wrong,
    scatter_right,
    dtypes=F32,
    reference=scatter_add,
    samples=lambda make: [(make((5, 3)), np.array([0, 3, 1]), make((3, 3)))],
)


def picked(widen):
    def pick(xp, a, i, j):
        if widen:
            i, j = i.astype("int64"), j.astype("int64")
        return a.reshape(-1)[i * a.shape[1] + j]

    return pick


pick_wrong, pick_right = picked(False), picked(True)
pick_wrong.__doc__ = "The linear index is computed in the indices' int16 and wraps: more than 32767 elements."
pair(
    "pick",
    "indices",
    pick_wrong,
    pick_right,
    dtypes=F32,
    reference=lambda a, i, j: a[i, j],
    samples=lambda make: [(make((6, 7)), np.array([0, 5, 2], np.int16), np.array([1, 6, 3], np.int16))],
)


def segment(least):
    def segment_mean(xp, a, ids, *, segments=3):
        sums = xp.zeros((segments, *a.shape[1:]), "float64")
        xp.add.at(sums, ids, double(a))
        counts = (ids[None, :] == xp.arange(segments)[:, None]).sum(axis=1)
        return (sums / xp.maximum(counts, least).reshape(segments, *[1] * (a.ndim - 1))).astype(a.dtype)

    return segment_mean


segment_wrong, segment_right = segment(0), segment(1)
segment_wrong.__doc__ = "A segment without elements is 0 / 0, although 0 is documented: ids that leave one out."


def segment_mean(a, ids, *, segments=3):
    return np.stack([a[ids == i].sum(0) / max((ids == i).sum(), 1) for i in range(segments)])


pair(
    "segment_mean",
    "indices",
    segment_wrong,
    segment_right,
    dtypes=F32,
    reference=segment_mean,
    samples=lambda make: [
        (make(5), np.array([0, 0, 1, 2, 2])),
        (make((4, 3)), np.array([2, 0, 1, 0])),
    ],
)


# Padding and convolution.
def reflect_wrong(xp, a, *, pad=2):
    """Reflects once: a pad that is as long as the axis or longer gives too few elements."""
    if not pad:
        return a.copy()
    before, behind = a[..., 1 : pad + 1][..., ::-1], a[..., -pad - 1 : -1][..., ::-1]
    return xp.concatenate([before, a, behind], axis=-1)


def reflect_right(xp, a, *, pad=2):
    length = a.shape[-1]
    index = xp.arange(-pad, length + pad) % max(2 * (length - 1), 1)
    return xp.take(a, xp.where(index >= length, 2 * (length - 1) - index, index), axis=-1)


pair(
    "reflect_pad",
    "padding",
    reflect_wrong,
    reflect_right,
    dtypes=F32,
    reference=lambda a, *, pad=2: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(pad, pad)], mode="reflect"),
    samples=lambda make: [make((3, 7)), Sample((make(5),), {"pad": 1})],
)


def same_size(left):
    def correlate(xp, a, kernel):
        width = kernel.shape[0]
        before = left(width)
        padded = xp.concatenate([xp.zeros(before), double(a), xp.zeros(width - 1 - before)])
        total = xp.zeros(a.shape, "float64")
        for k in range(width):
            total = total + padded[k : k + a.shape[0]] * double(kernel[k])
        return total.astype(a.dtype)

    return correlate


correlate_wrong, correlate_right = same_size(lambda width: width // 2), same_size(lambda width: (width - 1) // 2)
correlate_wrong.__doc__ = "The odd element of padding goes to the left, not to the right: kernels of even length."


def correlate_same(a, kernel):
    before = (kernel.size - 1) // 2
    padded = np.pad(a, (before, kernel.size - 1 - before))
    return sum((padded[k : k + a.size] * kernel[k] for k in range(kernel.size)), np.zeros(a.shape))


pair(
    "correlate_same",
    "convolution",
    correlate_wrong,
    correlate_right,
    dtypes=F32,
    reference=correlate_same,
    samples=lambda make: [(make(20), make(3)), (make(33), make(4))],
)


# Normalisation.
def normed(denominator):
    def layer_norm(xp, a, *, eps=1e-5):
        wide = double(a)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        return (centred / denominator(xp, (centred * centred).mean(axis=-1, keepdims=True), eps)).astype(a.dtype)

    return layer_norm


layer_norm_wrong, layer_norm_right = (
    normed(lambda xp, var, eps: xp.sqrt(var) + eps),
    normed(lambda xp, var, eps: xp.sqrt(var + eps)),
)
layer_norm_wrong.__doc__ = "eps is added to the deviation instead of the variance: rows of nearly equal numbers."
pair(
    "layer_norm",
    "normalisation",
    layer_norm_wrong,
    layer_norm_right,
    dtypes=F32,
    reference=lambda a, *, eps=1e-5: (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + eps),
    samples=rows,
)


# Losses.
def xlogy_wrong(xp, a, b):
    """0 * log(0) is NaN, although x = 0 is documented to give 0."""
    return a * xp.log(b)


def xlogy_right(xp, a, b):
    return xp.where((a == 0) & ~xp.isnan(b), xp.zeros_like(a), a * xp.log(b))


pair(
    "xlogy",
    "losses",
    xlogy_wrong,
    xlogy_right,
    dtypes=F64,
    reference=lambda a, b: np.where((a == 0) & ~np.isnan(b), 0, a * np.log(b)),
)


# Optimizers.
def stepped(xp, weight, grad, momentum, lr, decay, first):
    weight, update = double(weight), lr * (0.9 * double(momentum) + double(grad))
    return weight * (1 - lr * decay) - update if first else (weight - update) * (1 - lr * decay)


def sgdw_wrong(xp, weight, grad, momentum, *, lr=1e-3, decay=1e-2):
    """Decays the weight after the step instead of before it: seen where lr^2 * decay is not negligible."""
    return stepped(xp, weight, grad, momentum, lr, decay, False).astype(weight.dtype)


def sgdw_right(xp, weight, grad, momentum, *, lr=1e-3, decay=1e-2):
    return stepped(xp, weight, grad, momentum, lr, decay, True).astype(weight.dtype)


pair(
    "sgdw",
    "optimizers",
    sgdw_wrong,
    sgdw_right,
    dtypes=F32,
    reference=lambda w, grad, momentum, *, lr=1e-3, decay=1e-2: w * (1 - lr * decay) - lr * (0.9 * momentum + grad),
    samples=lambda make: [
        (make((5, 7)), make((5, 7)), make((5, 7))),
        Sample((make(33), make(33), make(33)), {"lr": 0.1}),
    ],
)


# Quantisation.
def quantize_wrong(xp, a, *, scale=0.05):
    """Casts to int8 without saturation: numbers beyond 127 scales wrap around."""
    steps = xp.rint(double(a) / scale)
    return xp.where(xp.isnan(steps), 0, steps).astype("int64").astype("int8")


def quantize_right(xp, a, *, scale=0.05):
    steps = xp.clip(xp.rint(double(a) / scale), -128, 127)
    return xp.where(xp.isnan(steps), 0, steps).astype("int8")


def quantize(a, *, scale=0.05):
    steps = np.clip(np.rint(a / scale), -128, 127)
    return np.where(np.isnan(steps), 0, steps)


pair(
    "quantize_int8",
    "quantisation",
    quantize_wrong,
    quantize_right,
    dtypes=F32,
    result_dtype="int8",
    reference=quantize,
)


# Sorting and ties.
def descending_wrong(xp, a):
    """Sorts by the negative, which wraps around: 0 in uint8, and the smallest int32, come first."""
    return xp.argsort(-a, axis=-1, kind="stable")


def descending_right(xp, a):
    order = xp.argsort(xp.flip(a, axis=-1), axis=-1, kind="stable")
    return a.shape[-1] - 1 - xp.flip(order, axis=-1)


pair(
    "argsort_descending",
    "sorting",
    descending_wrong,
    descending_right,
    dtypes=("uint8", "int32"),
    result_dtype="int64",
    reference=lambda a: np.argsort(-a.astype(np.int64), axis=-1, kind="stable"),
    samples=lambda make: [make((3, 20)), make(65)],
)


def rank_wrong(xp, a):
    """Equal numbers get different ranks instead of their average."""
    return xp.argsort(xp.argsort(a, kind="stable"), kind="stable") + 1.0


def rank_right(xp, a):
    ordered = xp.sort(a)
    return (xp.searchsorted(ordered, a) + xp.searchsorted(ordered, a, side="right") + 1) / 2


def rank(a):
    ordered = np.sort(a)
    return (np.searchsorted(ordered, a) + np.searchsorted(ordered, a, side="right") + 1) / 2


pair(
    "average_rank",
    "sorting",
    rank_wrong,
    rank_right,
    dtypes=F32,
    result_dtype="float64",
    reference=rank,
    samples=lambda make: [make(40), make(17)],
)


# Cumulative operations.
def logcumsumexp_wrong(xp, a):
    """Subtracts the row's maximum: -inf before a number that is larger by more than 88, NaN with infinity."""
    largest = a.max(axis=-1, keepdims=True, initial=-xp.inf)
    return xp.log(xp.cumsum(xp.exp(a - largest), axis=-1)) + largest


def logcumsumexp_right(xp, a):
    out = double(a)
    for i in range(1, a.shape[-1]):
        out[..., i] = xp.logaddexp(out[..., i - 1], out[..., i])
    return out.astype(a.dtype)


pair(
    "logcumsumexp",
    "cumulative",
    logcumsumexp_wrong,
    logcumsumexp_right,
    dtypes=F32,
    reference=lambda a: np.logaddexp.accumulate(a, axis=-1),
    samples=short_rows,
)


def exclusive_cumprod_wrong(xp, a):
    """Divides the cumulative product by its last factor: NaN behind a zero."""
    wide = double(a)
    return (xp.cumprod(wide, axis=-1) / wide).astype(a.dtype)


def exclusive_cumprod_right(xp, a):
    wide = double(a)
    shifted = xp.concatenate([xp.ones((*a.shape[:-1], 1)), wide[..., :-1]], axis=-1)[..., : a.shape[-1]]
    return xp.cumprod(shifted, axis=-1).astype(a.dtype)


def exclusive_cumprod(a):
    out = np.ones(a.shape)
    out[..., 1:] = np.cumprod(a[..., :-1], -1)
    return out


pair(
    "exclusive_cumprod",
    "cumulative",
    exclusive_cumprod_wrong,
    exclusive_cumprod_right,
    dtypes=F32,
    reference=exclusive_cumprod,
    samples=lambda make: [make((3, 12)), make((2, 4, 7))],
)


# Interpolation.
def resized(clamp):
    def resize(xp, a, *, size=12):
        length = a.shape[-1]
        at = (xp.arange(size) + 0.5) * (length / size) - 0.5
        if clamp:
            at = xp.clip(at, 0, length - 1)
        left = xp.clip(xp.floor(at), 0, max(length - 2, 0)).astype("int64")
        weight, right = at - left, xp.minimum(left + 1, length - 1)
        before, behind = double(xp.take(a, left, axis=-1)), double(xp.take(a, right, axis=-1))
        mixed = (1 - weight) * before + weight * behind
        return xp.where(weight == 0, before, xp.where(weight == 1, behind, mixed)).astype(a.dtype)

    return resize


resize_wrong, resize_right = resized(False), resized(True)
resize_wrong.__doc__ = "Positions before the first centre extrapolate instead of repeating the edge: enlarging."


def resize(a, *, size=12):
    length = a.shape[-1]
    at = np.clip((np.arange(size) + 0.5) * (length / size) - 0.5, 0, length - 1)
    left = np.floor(at).astype(int)
    weight, right = at - left, np.minimum(left + 1, length - 1)
    return np.where(weight == 0, a[..., left], (1 - weight) * a[..., left] + weight * a[..., right])


pair(
    "resize_linear",
    "interpolation",
    resize_wrong,
    resize_right,
    dtypes=F32,
    reference=resize,
    samples=lambda make: [Sample((make((3, 8)),), {"size": 4}), Sample((make((3, 8)),), {"size": 12})],
)


# Distances.
def distances_wrong(xp, a, b):
    """|a|^2 + |b|^2 - 2ab cancels: equal or close points are not 0 apart, or NaN."""
    squares = (a * a).sum(axis=-1)[:, None] + (b * b).sum(axis=-1)[None, :]
    return xp.sqrt(squares - 2 * (a @ b.T))


def distances_right(xp, a, b):
    apart = double(a)[:, None, :] - double(b)[None, :, :]
    return xp.sqrt((apart * apart).sum(axis=-1)).astype(a.dtype)


pair(
    "distances",
    "distances",
    distances_wrong,
    distances_right,
    dtypes=F32,
    reference=lambda a, b: np.sqrt(((a[:, None] - b) ** 2).sum(-1)),
    samples=lambda make: [(make((6, 3)), make((5, 3)))],
)


def angle_wrong(xp, a, b):
    """The cosine exceeds 1 by rounding, and arccos is NaN: parallel vectors."""
    a, b, dtype = double(a), double(b), a.dtype
    norms = xp.sqrt((a * a).sum(axis=-1)) * xp.sqrt((b * b).sum(axis=-1))
    angle = xp.arccos((a * b).sum(axis=-1) / xp.where(norms == 0, 1, norms))
    return xp.where(norms == 0, 0, angle).astype(dtype)


def angle_right(xp, a, b):
    a, b, dtype = double(a), double(b), a.dtype
    a, b = (
        a * xp.sqrt((b * b).sum(axis=-1, keepdims=True)),
        b * xp.sqrt((a * a).sum(axis=-1, keepdims=True)),
    )
    apart, along = xp.sqrt(((a - b) ** 2).sum(axis=-1)), xp.sqrt(((a + b) ** 2).sum(axis=-1))
    return (2 * xp.arctan2(apart, along)).astype(dtype)


def angle(a, b):
    a, b = a * np.linalg.norm(b, axis=-1, keepdims=True), b * np.linalg.norm(a, axis=-1, keepdims=True)
    return 2 * np.arctan2(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1))


pair(
    "angle_between",
    "distances",
    angle_wrong,
    angle_right,
    dtypes=F32,
    reference=angle,
    samples=lambda make: [(make((7, 3)), make((7, 3)))],
)


# Fourier transforms.
def spectral(last):
    def power_spectrum(xp, a):
        length = a.shape[-1]
        f = xp.fft.rfft(double(a), axis=-1)
        power = (f.real * f.real + f.imag * f.imag) / length
        power[..., 1 : last(length)] *= 2
        return power.astype(a.dtype)

    return power_spectrum


spectrum_wrong, spectrum_right = spectral(lambda length: None), spectral(lambda length: (length + 1) // 2)
spectrum_wrong.__doc__ = "Doubles the Nyquist frequency, which has no negative twin: even lengths."


def power_spectrum(a):
    length = a.shape[-1]
    alone = np.isin(np.arange(length // 2 + 1) * 2, (0, length))
    f = np.fft.rfft(a)
    return (f.real**2 + f.imag**2) / length * np.where(alone, 1, 2)


pair(
    "power_spectrum",
    "Fourier transforms",
    spectrum_wrong,
    spectrum_right,
    dtypes=F32,
    reference=power_spectrum,
    samples=lambda make: [make((3, 33)), make((2, 64))],
)


# Complex numbers.
def phase_wrong(xp, z):
    """Divides by the magnitude: NaN for zero, although 0 is documented."""
    wide = z.astype("complex128")
    return (wide / xp.abs(wide)).astype(z.dtype)


def phase_right(xp, z):
    wide = z.astype("complex128")
    size = xp.abs(wide)
    return (wide / xp.where(size == 0, 1, size)).astype(z.dtype)


def phase(z):
    size = np.abs(z)
    return z / np.where(size == 0, 1, size)


pair("unit_phase", "complex numbers", phase_wrong, phase_right, dtypes=("complex64",), reference=phase)
