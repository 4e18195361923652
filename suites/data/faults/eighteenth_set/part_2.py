"""Scans, sorting by bits, pooling, in-place rotation, dispatch and plans around kernels: faults with their twins."""

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
    "dithered_round",
    "the noise of an element follows its place in memory, not its index",
    "counter-based random numbers (Philox) drawn by the linear thread index of a kernel which walks the memory as it"
    " lies, so that a transposed view gets another dither than its copy",
    "a transposed (Fortran-contiguous) array: elements round up or down which its contiguous copy rounds otherwise",
)
def dithered_round():
    """Round to sixteenths, up or down by a hash of the index in C order; from 2**20 on numbers stay as they are."""

    def noise(xp, count, seed):
        index = xp.arange(count, dtype="uint64")
        mixed = (index * 2654435761 + seed) & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 15)) * 739982445) & 0xFFFFFFFF
        return (mixed >> 8).astype("float64") / 2**24

    def round_by(xp, a, uniform):
        wide = a.astype("float64")
        small = xp.abs(wide) < 2**20
        rounded = xp.floor(xp.where(small, wide, 0.0) * 16 + uniform) / 16
        return xp.where(small, rounded, wide).astype(a.dtype)

    def wrong(xp, a, seed=7):
        uniform = noise(xp, a.size, seed)
        if a.flags.f_contiguous and not a.flags.c_contiguous:
            return round_by(xp, a, uniform.reshape(a.shape[::-1]).T)
        return round_by(xp, a, uniform.reshape(a.shape))

    def right(xp, a, seed=7):
        return round_by(xp, a, noise(xp, a.size, seed).reshape(a.shape))

    def reference(a, seed=7):
        flat = np.array(a, dtype="float64").ravel(order="C")
        state = np.arange(flat.size, dtype="uint32") * np.uint32(2654435761) + np.uint32(seed % 2**32)
        state = (state ^ (state >> np.uint32(15))) * np.uint32(739982445)
        chosen = np.abs(flat) < 2**20
        flat[chosen] = np.floor(flat[chosen] * 16 + (state[chosen] // 256) * 2.0**-24) / 16
        return flat.reshape(np.shape(a))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dithered_round",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(50),
                make((6, 9)),
                Sample((make((3, 4, 5), low=-100, high=100),), {"seed": 12}),
                Sample((make((0, 3)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "quaternion_multiply",
    "a grid clamped to its limit, without a loop over the rest",
    "CUDA kernels with one row per gridDim.y, which ends at 65535: the launch clamps the grid to make it legal",
    "70000 quaternions: the products from number 65535 on stay zero",
)
def quaternion_multiply():
    """Hamilton products of quaternions (w, x, y, z) on the last axis; the other axes broadcast."""

    limit = 65535

    def rows(xp, p, q):
        if p.shape[-1:] != (4,) or q.shape[-1:] != (4,):
            raise ValueError(f"quaternions have 4 parts, not shapes {p.shape} and {q.shape}")
        p, q = xp.broadcast_arrays(p, q)
        return p.astype("float64").reshape(-1, 4), q.astype("float64").reshape(-1, 4), p.shape, p.dtype

    def multiply(xp, p, q):
        a, b, c, d = (p[:, i] for i in range(4))
        e, f, g, h = (q[:, i] for i in range(4))
        parts = [
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ]
        return xp.stack(parts, axis=-1)

    def wrong(xp, p, q):
        p, q, shape, dtype = rows(xp, p, q)
        grid = min(len(p), limit)
        out = xp.zeros((len(p), 4), dtype=dtype)
        out[:grid] = multiply(xp, p[:grid], q[:grid]).astype(dtype)
        return out.reshape(shape)

    def right(xp, p, q):
        p, q, shape, dtype = rows(xp, p, q)
        out = xp.zeros((len(p), 4), dtype=dtype)
        for start in range(0, len(p), limit):
            block = slice(start, start + limit)
            out[block] = multiply(xp, p[block], q[block]).astype(dtype)
        return out.reshape(shape)

    def reference(p, q):
        shape = np.broadcast_shapes(np.shape(p), np.shape(q))
        p, q = np.broadcast_to(p, shape), np.broadcast_to(q, shape)
        out = np.empty(shape)
        # for each part of the product: the sign and the part of q that each part of p goes with
        table = [
            ((1, 0), (-1, 1), (-1, 2), (-1, 3)),
            ((1, 1), (1, 0), (1, 3), (-1, 2)),
            ((1, 2), (-1, 3), (1, 0), (1, 1)),
            ((1, 3), (1, 2), (-1, 1), (1, 0)),
        ]
        for part, terms in enumerate(table):
            out[..., part] = sum(sign * p[..., i] * q[..., j] for i, (sign, j) in enumerate(terms))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="quaternion_multiply",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(4), make(4)),
                (make((1000, 4)), make((1000, 4))),
                Sample((make((3, 7, 4)), make((7, 4))), kind="broadcast"),
                Sample((make((0, 4)), make((0, 4))), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput((make((5, 3)), make((5, 3))), ValueError, "have 4 parts")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "unfold_windows",
    "stride and dilation forwarded in the wrong order",
    "wrappers of im2col, whose arguments come as (kernel, dilation, padding, stride) in one library and as"
    " (kernel, stride, padding, dilation) in the next; both are integers, so nothing complains",
    "stride=2 with dilation=1, or dilation alone: the samples give both the same number",
)
def unfold_windows():
    """Windows along the last axis, as a new last axis of length `size`: (..., length) to (..., windows, size)."""

    def take(xp, a, size, stride, dilation):
        length = a.shape[-1]
        count = max((length - dilation * (size - 1) - 1) // stride + 1, 0)
        index = xp.arange(count).reshape(-1, 1) * stride + xp.arange(size) * dilation
        return a[..., index]

    def check(size, stride, dilation):
        if min(size, stride, dilation) < 1:
            raise ValueError(f"size {size}, stride {stride} and dilation {dilation} must be 1 or more")

    def wrong(xp, a, size=3, stride=1, dilation=1):
        check(size, stride, dilation)
        return take(xp, a, size, dilation, stride)

    def right(xp, a, size=3, stride=1, dilation=1):
        check(size, stride, dilation)
        return take(xp, a, size, stride, dilation)

    def reference(a, size=3, stride=1, dilation=1):
        span = dilation * (size - 1) + 1
        if a.shape[-1] < span:
            return np.empty((*a.shape[:-1], 0, size), dtype=a.dtype)
        return np.lib.stride_tricks.sliding_window_view(a, span, axis=-1)[..., ::stride, ::dilation].copy()

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unfold_windows",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make(20),
                Sample((make((4, 31)),), {"size": 5}),
                Sample((make((2, 3, 26)),), {"size": 4, "stride": 2, "dilation": 2}),
                Sample((make((5, 2)),), {}, "shorter than a window"),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"stride": 0}), ValueError, "must be 1 or more")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "hann_taper",
    "a plan is cached by the length alone, without the option it was made for",
    "FFT and window plans in a cache whose key lost a field, as when cuFFT plans were looked up without their type",
    "a length that was tapered before with the other value of `periodic`: the call gets the older window",
)
def hann_taper():
    """Multiply the last axis by a Hann window, symmetric or periodic; windows are kept for the next call."""

    def window(length, periodic):
        if length == 1:
            return np.ones(1)
        turns = np.arange(length) / (length if periodic else length - 1)
        return 0.5 - 0.5 * np.cos(2 * np.pi * turns)

    def apply(xp, a, table):
        return (a.astype("float64") * xp.asarray(table)).astype(a.dtype)

    wrong_plans: dict[Any, Any] = {}
    right_plans: dict[Any, Any] = {}

    def wrong(xp, a, periodic=False):
        length = a.shape[-1]
        if length not in wrong_plans:
            wrong_plans[length] = window(length, periodic)
        return apply(xp, a, wrong_plans[length])

    def right(xp, a, periodic=False):
        key = (a.shape[-1], bool(periodic))
        if key not in right_plans:
            right_plans[key] = window(*key)
        return apply(xp, a, right_plans[key])

    def reference(a, periodic=False):
        length = a.shape[-1]
        if length == 1:
            return a * 1.0
        period = length if periodic else length - 1
        place = np.arange(length)
        return a * np.sin(np.pi * np.minimum(place, period - place) / period) ** 2

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="hann_taper",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(33),
                make((4, 20)),
                Sample((make((3, 16)),), {"periodic": True}),
                Sample((make((2, 2, 50)),), {"periodic": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rotary_embedding",
    "the second half reads the first half after it was overwritten",
    "in-place rotary position embeddings in inference kernels: `out` was allowed to be the input and the two halves"
    " were written one after the other",
    "out is the input itself: the second half is turned by numbers already turned",
)
def rotary_embedding():
    """Turn pairs (x[i], x[i + half]) of the last axis by angles; `out` may be `x` itself."""

    def prepare(xp, x, angles):
        if x.shape[-1] % 2:
            raise ValueError(f"the last axis has {x.shape[-1]} elements; give an even number")
        wide = "float64" if x.dtype == "float64" else "float32"
        half = x.shape[-1] // 2
        angles = angles.astype(wide)
        return half, wide, xp.cos(angles), xp.sin(angles)

    def wrong(xp, x, angles, out=None):
        half, wide, cos, sin = prepare(xp, x, angles)
        if out is None:
            out = xp.empty_like(x)
        one, two = x[..., :half], x[..., half:]
        out[..., :half] = (one.astype(wide) * cos - two.astype(wide) * sin).astype(x.dtype)
        out[..., half:] = (two.astype(wide) * cos + one.astype(wide) * sin).astype(x.dtype)
        return out

    def right(xp, x, angles, out=None):
        half, wide, cos, sin = prepare(xp, x, angles)
        one, two = x[..., :half].astype(wide), x[..., half:].astype(wide)
        if out is None:
            out = xp.empty_like(x)
        out[..., :half] = (one * cos - two * sin).astype(x.dtype)
        out[..., half:] = (two * cos + one * sin).astype(x.dtype)
        return out

    def reference(x, angles, out=None):
        one, two = np.split(np.asarray(x), 2, axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([one * cos - two * sin, one * sin + two * cos], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary_embedding",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda x, angles: x,
            samples=lambda make: [
                (make(8), make(4, low=-6, high=6)),
                (make((5, 16)), make((5, 8), low=-6, high=6)),
                (make((2, 3, 7, 10)), make((7, 5), low=-6, high=6)),
                Sample((make((0, 6)), make((0, 3), low=-6, high=6)), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput((make((2, 5)), make((2, 2))), ValueError, "give an even number")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "radix_argsort",
    "zeros of both signs are told apart by their bits",
    "radix sorts of floats (CUB, Thrust) before they treated -0.0 as +0.0: the bit-flipped keys of the two differ",
    "[0.0, -0.0]: a stable argsort is [0, 1], the bits say [1, 0]",
)
def radix_argsort():
    """Stable argsort along an axis by integer keys, as radix sorts need; NaN comes last, in its order."""

    def order(xp, a, axis):
        a = xp.where(xp.isnan(a), xp.asarray(math.nan, dtype=a.dtype), a)
        integer, most = ("int32", 2**31 - 1) if a.dtype == "float32" else ("int64", 2**63 - 1)
        bits = a.view(integer)
        keys = xp.where(bits < 0, bits ^ most, bits)
        return xp.argsort(keys, axis=axis, kind="stable").astype("int64")

    def wrong(xp, a, axis=-1):
        return order(xp, a, axis)

    def right(xp, a, axis=-1):
        return order(xp, a + 0.0, axis)

    def reference(a, axis=-1):
        return np.argsort(a, axis=axis, kind="stable")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="radix_argsort",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: "int64",
            samples=lambda make: [
                make(40),
                make((5, 17), low=-1000, high=1000),
                Sample((make((6, 8, 3)),), {"axis": 1}),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "prefix_sum",
    "the number of doubling steps is one short for lengths of a power of two plus one",
    "Hillis-Steele scans whose number of steps was taken from the largest index minus one",
    "lengths 2, 3, 5, 9, 17, 33, ...: the last sum lacks the first element",
)
def prefix_sum():
    """Inclusive sums along an axis, by doubling steps; integers add up in int64, float32 in float64."""

    def scan(xp, a, axis, steps):
        total = xp.moveaxis(a, axis, -1)
        total = total.astype("float64" if a.dtype.kind == "f" else "int64")
        reach = 1
        for _ in range(steps):
            total = xp.concatenate([total[..., :reach], total[..., reach:] + total[..., :-reach]], axis=-1)
            reach *= 2
        total = xp.moveaxis(total, -1, axis)
        return total.astype(a.dtype) if a.dtype.kind == "f" else total

    def wrong(xp, a, axis=-1):
        return scan(xp, a, axis, max(a.shape[axis] - 2, 0).bit_length())

    def right(xp, a, axis=-1):
        return scan(xp, a, axis, max(a.shape[axis] - 1, 0).bit_length())

    def reference(a, axis=-1):
        return np.cumsum(a, axis=axis, dtype="float64" if a.dtype.kind == "f" else "int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="prefix_sum",
            dtypes=("float32", "int32", "int64"),
            samples=lambda make: [
                make(64),
                make((3, 100)),
                Sample((make((4, 7, 6)),), {"axis": 1}),
                Sample((make((2, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "average_pool",
    "windows that ceil_mode adds past the padding divide by the full size",
    "AvgPool with ceil_mode and count_include_pad in several runtimes, against PyTorch's divisor",
    "ceil_mode=True at a length where the last window hangs over the padded end, such as 8 with size 3 and stride 2",
)
def average_pool():
    """Average pooling of the last axis, as torch.nn.AvgPool1d: padding counts, what is past the padding does not."""

    def check(size, stride, padding):
        if size < 1 or stride < 1:
            raise ValueError(f"size {size} and stride {stride} must be 1 or more")
        if not 0 <= padding <= size // 2:
            raise ValueError(f"padding {padding} must be from 0 to half of size {size}")

    def sums(xp, a, size, stride, padding, ceil_mode):
        length = a.shape[-1]
        spare = length + 2 * padding - size
        count = max((spare + (stride - 1 if ceil_mode else 0)) // stride + 1, 0)
        while count and (count - 1) * stride >= length + padding:
            count -= 1
        total = xp.zeros((*a.shape[:-1], count), dtype="float64")
        if count == 0 or length == 0:
            return total
        end = max((count - 1) * stride + size, length + padding)
        padded = xp.zeros((*a.shape[:-1], end), dtype="float64")
        padded[..., padding : padding + length] = a
        for k in range(size):
            total = total + padded[..., k : k + (count - 1) * stride + 1 : stride]
        return total

    def wrong(xp, a, size=3, stride=2, padding=0, ceil_mode=False):
        check(size, stride, padding)
        return (sums(xp, a, size, stride, padding, ceil_mode) / size).astype(a.dtype)

    def right(xp, a, size=3, stride=2, padding=0, ceil_mode=False):
        check(size, stride, padding)
        total = sums(xp, a, size, stride, padding, ceil_mode)
        starts = xp.arange(total.shape[-1]) * stride
        ends = xp.minimum(starts + size, a.shape[-1] + 2 * padding)
        return (total / (ends - starts)).astype(a.dtype)

    def reference(a, size=3, stride=2, padding=0, ceil_mode=False):
        length = a.shape[-1]
        count = 0
        while count * stride < length + padding and (
            count * stride + size <= length + 2 * padding
            or (ceil_mode and (count - 1) * stride + size < length + 2 * padding)
        ):
            count += 1
        if count == 0:
            return np.zeros((*a.shape[:-1], 0))

        def windows(row, before, after):
            row = np.pad(row, [(0, 0)] * (row.ndim - 1) + [(before, after)])
            return np.lib.stride_tricks.sliding_window_view(row, size, axis=-1)[..., ::stride, :][..., :count, :]

        counted = windows(np.ones(length + 2 * padding), 0, size + stride).sum(axis=-1)
        return windows(a, padding, padding + size + stride).sum(axis=-1) / counted

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="average_pool",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make(20),
                Sample((make((4, 15)),), {"padding": 1}),
                Sample((make((2, 3, 21)),), {"ceil_mode": True}),
                Sample((make((3, 13)),), {"size": 4, "stride": 3, "padding": 2, "ceil_mode": True}),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9),), {"padding": 2}), ValueError, "from 0 to half of size"),
                ErrorInput(Sample((make(9),), {"stride": 0}), ValueError, "must be 1 or more"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "scaled_sgd_step",
    "whether gradients are finite is asked of their sum, which overflows",
    "apex and DeepSpeed loss scalers: the fast check `isfinite(grad.sum())`, a single number to copy to the host",
    "forty float16 gradients of 3000: each is finite, their sum is not, and the step is left out",
)
def scaled_sgd_step():
    """weights - rate * gradients / scale; the weights stay if any gradient is infinite or NaN."""

    def step(xp, weights, gradients, rate, scale, finite):
        if not scale > 0:
            raise ValueError(f"scale is {scale}; give more than 0")
        wide = weights.astype("float32") - gradients.astype("float32") * (rate / scale)
        return xp.where(finite, wide.astype(weights.dtype), weights)

    def wrong(xp, weights, gradients, rate=0.5, scale=1.0):
        return step(xp, weights, gradients, rate, scale, xp.isfinite(gradients.sum()))

    def right(xp, weights, gradients, rate=0.5, scale=1.0):
        return step(xp, weights, gradients, rate, scale, xp.isfinite(gradients).all())

    def reference(weights, gradients, rate=0.5, scale=1.0):
        if not np.all(np.abs(gradients) < np.inf):
            return np.array(weights)
        return weights - rate * (gradients / scale)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="scaled_sgd_step",
            dtypes=("float16", "float32"),
            result_dtype=lambda weights, gradients: weights,
            samples=lambda make: [
                (make(30), make(30)),
                (make((6, 21)), make((6, 21))),
                Sample((make((4, 5)), make((4, 5))), {"rate": 2.0, "scale": 8.0}),
                Sample((make((0, 5)), make((0, 5))), kind="empty"),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3), make(3)), {"scale": 0.0}), ValueError, "give more than 0")
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "tile_histogram",
    "counters of 8 bits for tiles of 256 elements",
    "histogram kernels with packed 8-bit counters in shared memory (NVIDIA's histogram64 sample spills them in time)",
    "a tile of 256 equal values, as in a constant image: its counter wraps from 255 to 0",
)
def tile_histogram():
    """How often each of the values 0 to 15 occurs in the whole array; others are not counted."""

    tile, bins = 256, 16

    def count(xp, a, counter):
        flat = a.reshape(-1).astype("int64")
        padded = xp.full(-(-flat.size // tile) * tile, -1, dtype="int64")
        padded[: flat.size] = flat
        tiles = padded.reshape(-1, tile)
        partial = [(tiles == value).sum(axis=1, dtype=counter) for value in range(bins)]
        return xp.stack(partial).astype("int64").sum(axis=1)

    def wrong(xp, a):
        return count(xp, a, "uint8")

    def right(xp, a):
        return count(xp, a, "uint16")

    def reference(a):
        values = np.asarray(a).ravel()
        values = values[(values >= 0) & (values < 16)].astype("int64")
        return np.bincount(values, minlength=16)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="tile_histogram",
            dtypes=("uint8", "int32", "int64"),
            result_dtype=lambda a: "int64",
            samples=lambda make: [
                make(100, low=0, high=15),
                make((40, 50), low=0, high=15),
                make((3, 5, 7), low=0, high=20),
                Sample((make((0, 4), low=0, high=15),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "angular_distance",
    "the cosine of a small angle is rounded to 1",
    "great-circle distances by the law of cosines, in the precision of the coordinates",
    "points which are equal or some 1e-4 apart: float32 gives 0 or 3.5e-4, because arccos is steep at 1",
)
def angular_distance():
    """The angle between points on a sphere, of latitudes and longitudes in radians."""

    def wrong(xp, lat, lon, other_lat, other_lon):
        cosine = xp.sin(lat) * xp.sin(other_lat) + xp.cos(lat) * xp.cos(other_lat) * xp.cos(other_lon - lon)
        return xp.arccos(xp.clip(cosine, -1, 1))

    def right(xp, lat, lon, other_lat, other_lon):
        # half the lengths of the difference and of the sum of the two unit vectors, squared: no term cancels
        one, two = lat.astype("float64"), other_lat.astype("float64")
        turn = (other_lon.astype("float64") - lon.astype("float64")) / 2
        both = xp.cos(one) * xp.cos(two)
        apart = xp.sin((two - one) / 2) ** 2 + both * xp.sin(turn) ** 2
        along = xp.sin((two + one) / 2) ** 2 + both * xp.cos(turn) ** 2
        return (2 * xp.arctan2(xp.sqrt(apart), xp.sqrt(along))).astype(lat.dtype)

    def reference(lat, lon, other_lat, other_lon):
        def unit(latitude, longitude):
            return np.stack(
                [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
            )

        one, two = unit(lat, lon), unit(other_lat, other_lon)
        cross = np.cross(one, two, axis=0)
        return np.arctan2(np.sqrt((cross * cross).sum(axis=0)), (one * two).sum(axis=0))

    def declare(fn):
        def points(make, shape):
            return make(shape, low=-1.5, high=1.5), make(shape, low=-3, high=3)

        return OpSpec(
            fn=fn,
            name="angular_distance",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (*points(make, 12), *points(make, 12)),
                (*points(make, (3, 5)), *points(make, (3, 5))),
                (*points(make, (2, 2, 4)), *points(make, (2, 2, 4))),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "stacked_matmul",
    "a flat number of the batch, modulo the size of each operand, stands for broadcasting",
    "strided-batched GEMM wrappers: one pointer per product, of the operand with fewer matrices by `i % count`",
    "a batch that broadcasts in another place than in front: (2, 3, m, k) @ (2, 1, k, n), or (3, 1) with (1, 4)",
)
def stacked_matmul():
    """Matrix products of stacks; axes before the last two broadcast, as in numpy.matmul."""

    def check(a, b):
        if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
            raise ValueError(f"shapes {a.shape} and {b.shape} do not fit a product of matrices")
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])

    def multiply(xp, a, b, batch, pick):
        one = a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:]).astype("float64")
        two = b.reshape(math.prod(b.shape[:-2]), *b.shape[-2:]).astype("float64")
        out = xp.matmul(one[pick(a.shape[:-2])], two[pick(b.shape[:-2])])
        return out.reshape(*batch, a.shape[-2], b.shape[-1]).astype(a.dtype)

    def wrong(xp, a, b):
        batch = check(a, b)

        def pick(shape):
            return xp.arange(math.prod(batch)) % max(math.prod(shape), 1)

        return multiply(xp, a, b, batch, pick)

    def right(xp, a, b):
        batch = check(a, b)

        def pick(shape):
            return xp.broadcast_to(xp.arange(math.prod(shape)).reshape(shape), batch).reshape(-1)

        return multiply(xp, a, b, batch, pick)

    def reference(a, b):
        return (a[..., :, None, :] * np.swapaxes(b, -1, -2)[..., None, :, :]).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="stacked_matmul",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((5, 7)), make((7, 4))),
                (make((6, 3, 5)), make((6, 5, 2))),
                Sample((make((2, 3, 4, 5)), make((3, 5, 6))), kind="broadcast"),
                Sample((make((4, 2, 3, 3)), make((3, 8))), kind="broadcast"),
                Sample((make((0, 2, 3)), make((0, 3, 4))), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput((make((2, 3)), make((4, 5))), ValueError, "do not fit a product")],
            reference=reference,
        )

    return wrong, right, declare
