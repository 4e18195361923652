"""Bugs that reached releases of array, statistics, signal and image libraries, retold: faults with their twins."""

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
    "table_lookup",
    "an infinite entry of weight zero makes NaN at the entry before it",
    "numpy.interp: NaN exactly at a knot whose neighbour is infinite, because zero was multiplied by infinity",
    "x = 1.0 in the table [0, 2, inf]: NaN where the entry 2 is meant",
)
def table_lookup():
    """A table at fractional places, linear between entries and constant outside; entries may be infinite."""

    def neighbours(xp, x, table):
        if table.shape[0] == 0:
            raise ValueError("table is empty; give at least one entry")
        last = table.shape[0] - 1
        place = xp.clip(x, 0, last)
        low = xp.floor(xp.where(xp.isnan(place), 0.0, place))
        weight = (place - low).astype(x.dtype)
        low = low.astype("int64")
        return weight, table[low], table[xp.minimum(low + 1, last)]

    def wrong(xp, x, table):
        weight, left, right = neighbours(xp, x, table)
        return ((1 - weight) * left + weight * right).astype(table.dtype)

    def right(xp, x, table):
        weight, left, right = neighbours(xp, x, table)
        return xp.where(weight == 0, left, (1 - weight) * left + weight * right).astype(table.dtype)

    def reference(x, table):
        if len(table) == 0:
            raise ValueError("table is empty; give at least one entry")
        out = np.empty(np.shape(x))
        for i in np.ndindex(out.shape):
            if np.isnan(x[i]):
                out[i] = np.nan
                continue
            place = min(max(float(x[i]), 0.0), len(table) - 1.0)
            low = math.floor(place)
            weight = place - low
            out[i] = table[low] if weight == 0 else (1 - weight) * table[low] + weight * table[low + 1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="table_lookup",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40, low=0, high=11), make(12)),
                (make((3, 7), low=-2, high=10), make(9)),
                Sample((make(20, low=0, high=4), make.of([-math.inf, -2.0, -1.0, -0.5, 0.0])), kind="extremal"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "pairwise_distance",
    "cancellation in the expanded square, used from 26 points on",
    "torch.cdist: use_mm_for_euclid_dist_if_necessary takes the product when there are more than 25 rows",
    "30 points around 10,000, in float64, and the same again: 3e-4 between equal points, not 0; 25 points are right",
)
def pairwise_distance():
    """Euclidean distances between all points of two sets."""

    def check(a, b):
        if a.shape[-1] != b.shape[-1]:
            raise ValueError(f"points of {a.shape[-1]} and {b.shape[-1]} coordinates do not fit")

    def direct(xp, a, b):
        step = a.astype("float64")[:, None, :] - b.astype("float64")[None, :, :]
        return xp.sqrt((step * step).sum(axis=-1)).astype(a.dtype)

    def wrong(xp, a, b):
        check(a, b)
        if max(a.shape[0], b.shape[0]) <= 25:
            return direct(xp, a, b)
        wide, other = a.astype("float64"), b.astype("float64")
        squares = (wide * wide).sum(axis=-1)[:, None] + (other * other).sum(axis=-1)[None, :]
        return xp.sqrt(xp.maximum(squares - 2 * xp.matmul(wide, other.T), 0)).astype(a.dtype)

    def right(xp, a, b):
        check(a, b)
        return direct(xp, a, b)

    def reference(a, b):
        if a.shape[-1] != b.shape[-1]:
            raise ValueError(f"points of {a.shape[-1]} and {b.shape[-1]} coordinates do not fit")
        out = np.empty((a.shape[0], b.shape[0]))
        for i, point in enumerate(a):
            out[i] = np.sqrt(((b - point) ** 2).sum(axis=-1))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pairwise_distance",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((5, 3)), make((4, 3))),
                (make((40, 3)), make((30, 3))),
                (make((1, 8)), make((17, 8))),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 3)), make((2, 4)))), ValueError, "points of 3 and 4"),
            ],
            reference=reference,
            bench=lambda make, sizes: [(make((sizes.length, 3)), make((sizes.length, 3)))],
        )

    return wrong, right, declare


@pair(
    "tukey_taper",
    "kept windows are found by their length alone",
    "window and filter caches of librosa and torch.stft wrappers whose key lacks a parameter of the window",
    "64 samples with alpha=0.5 and then 64 with alpha=1.0: the second call gets the window of the first",
)
def tukey_taper():
    """Samples times Tukey's window, whose cosine flanks take the share alpha; windows are computed once."""

    def check(alpha):
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha is {alpha}; give 0 to 1")

    def window(n, alpha):
        flank = alpha * (n - 1) / 2
        if flank <= 0:
            return np.ones(n)
        nearer = np.minimum(np.arange(n), n - 1 - np.arange(n))
        return 0.5 - 0.5 * np.cos(np.pi * np.minimum(nearer / flank, 1.0))

    by_length: dict[Any, Any] = {}
    by_shape: dict[Any, Any] = {}

    def wrong(xp, a, alpha=0.5):
        check(alpha)
        n = a.shape[-1]
        if n not in by_length:
            by_length[n] = window(n, alpha)
        return a * xp.asarray(by_length[n].astype(str(a.dtype)))

    def right(xp, a, alpha=0.5):
        check(alpha)
        n = a.shape[-1]
        if (n, alpha) not in by_shape:
            by_shape[n, alpha] = window(n, alpha)
        return a * xp.asarray(by_shape[n, alpha].astype(str(a.dtype)))

    def reference(a, alpha=0.5):
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha is {alpha}; give 0 to 1")
        n = a.shape[-1]
        factors = np.ones(n)
        flank = alpha * (n - 1) / 2
        for i in range(n):
            nearer = min(i, n - 1 - i)
            if nearer < flank:
                factors[i] = math.sin(math.pi / 2 * nearer / flank) ** 2
        return a * factors

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="tukey_taper",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(64),
                Sample((make((3, 50)),), {"alpha": 0.1}),
                Sample((make((2, 33)),), {"alpha": 1.0}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"alpha": -1}), ValueError, "alpha is -1")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "tiled_argmin",
    "NaN after the first 64 elements loses against a number",
    "torch's and NumPy's vectorised min and argmin: NaN is kept within a block but lost where blocks are merged",
    "a row of 100 ones with NaN at 80: index 0 where numpy.argmin gives 80",
)
def tiled_argmin():
    """The index of the least element in each row, of the first one if there are several; NaN is least of all."""

    tile = 64

    def search(xp, a, is_less):
        n = a.shape[-1]
        if n == 0:
            raise ValueError("rows are empty; give at least one column")
        least = xp.min(a[..., :tile], axis=-1, keepdims=True)
        index = xp.argmin(a[..., :tile], axis=-1)[..., None]
        for start in range(tile, n, tile):
            part = a[..., start : start + tile]
            value = xp.min(part, axis=-1, keepdims=True)
            less = is_less(value, least)
            index = xp.where(less, xp.argmin(part, axis=-1)[..., None] + start, index)
            least = xp.where(less, value, least)
        return index[..., 0].astype("int64")

    def wrong(xp, a):
        return search(xp, a, lambda value, least: value < least)

    def right(xp, a):
        return search(xp, a, lambda value, least: (value < least) | (xp.isnan(value) & ~xp.isnan(least)))

    def reference(a):
        if a.shape[-1] == 0:
            raise ValueError("rows are empty; give at least one column")
        return np.argmin(a, axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="tiled_argmin",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(10),
                make((3, 150)),
                make((2, 5, 64)),
                Sample((make.of([2.0, math.nan, 1.0, math.nan, -math.inf]),), kind="extremal"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "complex_root",
    "an imaginary part of -0 counts as +0 on the negative real axis",
    "complex sqrt and its relatives in XLA (JAX) and CuPy, which ignored the sign of zero on the branch cut",
    "the root of -4 - 0j: +2j where numpy.sqrt gives -2j",
)
def complex_root():
    """The principal square root of complex numbers, as numpy.sqrt gives it, from real operations only."""

    def root(xp, a, with_sign):
        parts = xp.ascontiguousarray(a[..., None]).view("float32" if str(a.dtype) == "complex64" else "float64")
        real, imaginary = parts[..., 0].astype("float64"), parts[..., 1].astype("float64")
        size = xp.maximum(xp.abs(real), xp.abs(imaginary))
        scale = xp.where(size > 1e300, 2.0**-8, xp.where(size < 1e-280, 2.0**200, 1.0))
        x, y = real * scale, imaginary * scale
        large = xp.sqrt(0.5 * (xp.abs(x) + xp.hypot(x, y)))  # at least |z| ** 0.5 / 2 ** 0.5
        small = xp.abs(y) / xp.where(large == 0, 1.0, 2 * large)
        back = 1 / xp.sqrt(scale)
        large, small = large * back, small * back
        large = xp.where(xp.isinf(real) | xp.isinf(imaginary), math.inf, large)
        small = xp.where(xp.isinf(real), xp.where(xp.isnan(imaginary), math.nan, 0.0), small)
        small = xp.where(xp.isinf(imaginary), math.inf, small)
        first = xp.where(real < 0, small, large)
        second = with_sign(xp, xp.where(real < 0, large, small), imaginary)
        result = xp.stack([first, second], axis=-1).astype(parts.dtype)
        return xp.ascontiguousarray(result).view(a.dtype)[..., 0]

    def wrong(xp, a):
        return root(xp, a, lambda xp, value, imaginary: xp.where(imaginary < 0, -value, value))

    def right(xp, a):
        return root(xp, a, lambda xp, value, imaginary: xp.copysign(value, imaginary))

    def reference(a):
        return np.sqrt(a)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="complex_root",
            dtypes=("complex64", "complex128"),
            samples=lambda make: [make(50), make((4, 9)), make((2, 3, 5), low=-100, high=100)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "block_difference",
    "sums wrap around at 65,536",
    "sums of absolute differences in vectorised image code (OpenCV's norms add up in blocks for this reason)",
    "blocks of 20 x 24 pixels, 0 against 255: 56,864 where 122,400 is meant; 16 x 16 pixels never wrap",
)
def block_difference():
    """The sum of absolute differences of two images of bytes, over the last two axes."""

    def total(xp, a, b, dtype):
        apart = xp.where(a > b, a - b, b - a)
        return apart.sum(axis=(-2, -1), dtype=dtype).astype("int64")

    def wrong(xp, a, b):
        return total(xp, a, b, "uint16")

    def right(xp, a, b):
        return total(xp, a, b, "int64")

    def reference(a, b):
        return np.abs(a.astype("int64") - b.astype("int64")).sum(axis=(-2, -1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="block_difference",
            dtypes=("uint8",),
            result_dtype="int64",
            samples=lambda make: [
                (make((8, 8), low=0, high=255), make((8, 8), low=0, high=255)),
                (make((3, 16, 16), low=0, high=255), make((3, 16, 16), low=0, high=255)),
                (make((20, 24), low=0, high=255), make((20, 24), low=0, high=255)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "skewness",
    "equal numbers are recognised by a second moment of exactly zero",
    "scipy.stats.skew and zscore of constant input: the mean is rounded, so the deviations are not zero",
    "[0.1, 0.1, 0.1] in float64: -1 where 0 is meant; [2.0, 2.0, 2.0] is right",
)
def skewness():
    """The third standardised moment along an axis; 0 where all numbers are equal."""

    def check(a, axis):
        if a.shape[axis] == 0:
            raise ValueError("no numbers along the axis; give at least one")

    def centred(a, axis):
        wide = a.astype("float64")
        return wide - wide.mean(axis=axis, keepdims=True)

    def moments(xp, step, axis):
        largest = xp.abs(step).max(axis=axis, keepdims=True)
        step = step / xp.where(largest == 0, 1.0, largest)
        return (step**2).mean(axis=axis), (step**3).mean(axis=axis)

    def ratio(xp, a, second, third, constant):
        return xp.where(constant, 0.0, third / xp.where(constant, 1.0, second) ** 1.5).astype(a.dtype)

    def wrong(xp, a, axis=-1):
        check(a, axis)
        second, third = moments(xp, centred(a, axis), axis)
        return ratio(xp, a, second, third, second == 0)

    def right(xp, a, axis=-1):
        check(a, axis)
        step = centred(a, axis)
        second, third = moments(xp, step - step.mean(axis=axis, keepdims=True), axis)
        most = a.max(axis=axis)
        return ratio(xp, a, second, third, (a.min(axis=axis) == most) & xp.isfinite(most))

    def reference(a, axis=-1):
        if a.shape[axis] == 0:
            raise ValueError("no numbers along the axis; give at least one")
        rows = np.moveaxis(a, axis, -1)
        out = np.zeros(rows.shape[:-1])
        for i in np.ndindex(out.shape):
            if not (rows[i] == rows[i][0]).all() or not np.isfinite(rows[i][0]):
                step = rows[i] - rows[i].mean()
                step = step - step.mean()
                step = step / np.abs(step).max()
                out[i] = (step**3).mean() / (step**2).mean() ** 1.5
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="skewness",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(50),
                make((4, 21)),
                Sample((make((6, 5)),), {"axis": 0}),
                make.full((3, 8), 2.0),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "shift_columns",
    "integers go through float64 and lose bits above 2 ** 53",
    "pandas: shift, first, cummax and others of int64 that passed through float64 because of the missing values",
    "[9007199254740993, 5] in int64 shifted by 1: 9007199254740992",
)
def shift_columns():
    """Integers moved along the last axis by some places; the places that become free get a number."""

    def wrong(xp, a, periods=1, fill=0):
        n = a.shape[-1]
        count = min(abs(periods), n)
        missing = xp.full((*a.shape[:-1], count), math.nan)
        if periods >= 0:
            moved = xp.concatenate([missing, a[..., : n - count].astype("float64")], axis=-1)
        else:
            moved = xp.concatenate([a[..., count:].astype("float64"), missing], axis=-1)
        return xp.where(xp.isnan(moved), float(fill), moved).astype(a.dtype)

    def right(xp, a, periods=1, fill=0):
        n = a.shape[-1]
        count = min(abs(periods), n)
        free = xp.full((*a.shape[:-1], count), fill, dtype=a.dtype)
        if periods >= 0:
            return xp.concatenate([free, a[..., : n - count]], axis=-1)
        return xp.concatenate([a[..., count:], free], axis=-1)

    def reference(a, periods=1, fill=0):
        out = np.full_like(a, fill)
        n = a.shape[-1]
        for i in range(n):
            if 0 <= i - periods < n:
                out[..., i] = a[..., i - periods]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="shift_columns",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(20),
                Sample((make((3, 8)),), {"periods": -2}),
                Sample((make((2, 9)),), {"periods": 12, "fill": -1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "scaled_bessel",
    "a power series of 24 terms is used up to 30, where it has not converged",
    "series and continued fractions with a fixed number of terms in jax.scipy.special (igamma, betainc, Bessel)",
    "x = 28: relative error 4e-4; below 14 and above 30 all digits are right",
)
def scaled_bessel():
    """exp(-|x|) * I0(x), the modified Bessel function without its growth, as scipy.special.i0e."""

    def bessel(xp, a, terms):
        x = xp.abs(a.astype("float64"))
        near, far = xp.minimum(x, 30.0), xp.maximum(x, 30.0)
        quarter = near * near / 4
        term = xp.ones_like(near)
        series = xp.ones_like(near)
        for k in range(1, terms):
            term = term * quarter / (k * k)
            series = series + term
        term = xp.ones_like(far)
        asymptotic = xp.ones_like(far)
        for k in range(1, 21):
            term = term * (2 * k - 1) ** 2 / (8 * k) / far
            asymptotic = asymptotic + term
        asymptotic = asymptotic / xp.sqrt(far) / math.sqrt(2 * math.pi)
        return xp.where(x <= 30.0, series * xp.exp(-near), asymptotic).astype(a.dtype)

    def wrong(xp, a):
        return bessel(xp, a, 24)

    def right(xp, a):
        return bessel(xp, a, 80)

    def reference(a):
        x = np.abs(a)
        small = np.i0(np.minimum(x, 600.0)) * np.exp(-np.minimum(x, 600.0))
        y = 1 / np.maximum(x, 600.0)
        large = 1 + y / 8 * (1 + 9 * y / 16 * (1 + 25 * y / 24 * (1 + 49 * y / 32 * (1 + 81 * y / 40))))
        large = large * np.sqrt(y / (2 * np.pi))
        return np.where(x <= 600, small, large)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="scaled_bessel",
            dtypes=("float32", "float64"),
            samples=lambda make: [make(100), make((4, 7)), Sample((make(()),), kind="scalar")],
            reference=reference,
            relations=("even",),
        )

    return wrong, right, declare


@pair(
    "channel_affine",
    "the last axis is taken for the channels whenever its length fits",
    "scikit-image: guessed channel axes, before channel_axis replaced them, took a last axis of length 3 for colours",
    "an image of shape (3, 6, 3) with channel_axis=0: the columns are scaled",
)
def channel_affine():
    """An image times a factor plus an offset for each channel."""

    def spread(a, factor, offset, channel_axis):
        if factor.shape[0] != a.shape[channel_axis]:
            raise ValueError(f"{factor.shape[0]} factors for {a.shape[channel_axis]} channels")
        if offset.shape != factor.shape:
            raise ValueError(f"{offset.shape[0]} offsets for {factor.shape[0]} factors")
        shape = [1] * a.ndim
        shape[channel_axis] = -1 if factor.shape[0] else 0
        return tuple(shape)

    def wrong(xp, a, factor, offset, channel_axis=-1):
        shape = spread(a, factor, offset, channel_axis)
        if a.shape[-1] == factor.shape[0]:
            return a * factor + offset
        return a * factor.reshape(shape) + offset.reshape(shape)

    def right(xp, a, factor, offset, channel_axis=-1):
        shape = spread(a, factor, offset, channel_axis)
        return a * factor.reshape(shape) + offset.reshape(shape)

    def reference(a, factor, offset, channel_axis=-1):
        if len(factor) != a.shape[channel_axis]:
            raise ValueError(f"{len(factor)} factors for {a.shape[channel_axis]} channels")
        if len(offset) != len(factor):
            raise ValueError(f"{len(offset)} offsets for {len(factor)} factors")
        out = np.array(a)
        channels = np.moveaxis(out, channel_axis, 0)
        for i in range(len(factor)):
            channels[i] = channels[i] * factor[i] + offset[i]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="channel_affine",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((5, 7, 3)), make(3), make(3)),
                Sample((make((3, 6, 8)), make(3), make(3)), {"channel_axis": 0}),
                Sample((make((2, 4, 5, 6)), make(4), make(4)), {"channel_axis": 1}),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 3)), make(2), make(2))), ValueError, "2 factors for 3 channels"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "unit_slices",
    "the number that fills slices of zeros follows from the first axis, not from the given one",
    "librosa.util.normalize with fill=True: its fill value depends on norm and axis, whose defaults hide mistakes",
    "zeros of shape (6, 3) with axis=1, norm=2, fill=True: 0.408 where 0.577 has norm 1",
)
def unit_slices():
    """Slices along an axis divided by their norm; slices of zeros stay, or get equal numbers of norm 1."""

    def check(norm):
        if norm not in (1, 2, math.inf):
            raise ValueError(f"norm is {norm}; give 1, 2 or infinity")

    def finish(xp, a, norm, axis, fill, length):
        wide = a.astype("float64")
        if wide.size == 0:
            return a * 1
        largest = xp.abs(wide).max(axis=axis, keepdims=True)
        zero = largest == 0
        scaled = wide / xp.where(zero, 1.0, largest)
        if norm == 1:
            size = xp.abs(scaled).sum(axis=axis, keepdims=True)
        elif norm == 2:
            size = xp.sqrt((scaled * scaled).sum(axis=axis, keepdims=True))
        else:
            size = xp.abs(scaled).max(axis=axis, keepdims=True)
        filler = length ** (-1.0 / norm) if fill else 0.0
        return xp.where(zero, filler, scaled / xp.where(zero, 1.0, size)).astype(a.dtype)

    def wrong(xp, a, norm=math.inf, axis=0, fill=False):
        check(norm)
        return finish(xp, a, norm, axis, fill, a.shape[0])

    def right(xp, a, norm=math.inf, axis=0, fill=False):
        check(norm)
        return finish(xp, a, norm, axis, fill, a.shape[axis])

    def reference(a, norm=math.inf, axis=0, fill=False):
        if norm not in (1, 2, math.inf):
            raise ValueError(f"norm is {norm}; give 1, 2 or infinity")
        out = np.array(a)
        slices = np.moveaxis(out, axis, -1)
        if out.size:
            for i in np.ndindex(slices.shape[:-1]):
                if (slices[i] == 0).all():
                    slices[i] = float(fill)
                if fill or slices[i].any():
                    slices[i] /= np.abs(slices[i]).max()
                    slices[i] /= np.linalg.norm(slices[i], norm)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unit_slices",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((9, 4)),
                Sample((make((4, 5)),), {"norm": 1, "axis": 1}),
                Sample((make((2, 3, 7)),), {"norm": 2, "axis": -1}),
                Sample((make.full((6, 3), 0.0),), {"norm": 2, "fill": True}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"norm": 3}), ValueError, "norm is 3")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "wrap_pad",
    "pads longer than the axis continue from an array that no longer starts at a period",
    "numpy.pad with mode='wrap' before 1.25: pads that were not multiples of the axis did not repeat the original",
    "[0, 1, 2] with pad (1, 5): ends in ... 0, 1, 2, 2, 0 where ... 0, 1, 2, 0, 1 is meant",
)
def wrap_pad():
    """The last axis continued periodically before its start and after its end."""

    def check(a, pad):
        if min(pad) < 0:
            raise ValueError(f"pad is {pad}; give 0 or more")
        if a.shape[-1] == 0:
            raise ValueError("the last axis is empty; there is nothing to repeat")

    def wrong(xp, a, pad=(2, 3)):
        check(a, pad)
        before, after = pad
        out = a
        while before > 0 or after > 0:
            length = out.shape[-1]
            left, right = min(before, length), min(after, length)
            out = xp.concatenate([out[..., length - left :], out, out[..., :right]], axis=-1)
            before, after = before - left, after - right
        return out * 1

    def right(xp, a, pad=(2, 3)):
        check(a, pad)
        before, after = pad
        index = (xp.arange(before + a.shape[-1] + after) - before) % a.shape[-1]
        return a[..., index]

    def reference(a, pad=(2, 3)):
        if min(pad) < 0:
            raise ValueError(f"pad is {pad}; give 0 or more")
        n = a.shape[-1]
        if n == 0:
            raise ValueError("the last axis is empty; there is nothing to repeat")
        return np.stack([a[..., i % n] for i in range(-pad[0], n + pad[1])], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="wrap_pad",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make(20),
                Sample((make((3, 6)),), {"pad": (4, 1)}),
                Sample((make((2, 5)),), {"pad": (0, 12)}),
                Sample((make((2, 2, 4)),), {"pad": (7, 7)}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"pad": (-1, 2)}), ValueError, "give 0 or more")],
            reference=reference,
        )

    return wrong, right, declare
