"""Audio, coding, robust statistics, windows, molecules, stars, joins and quadrature: faults with their twins."""

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
    "mulaw_encode",
    "the magnitude of the most negative integer is taken in its own dtype",
    "G.711 encoders that call abs on 16-bit samples before they clip: abs(-32768) is -32768",
    "a sample of -32768: the byte is that of a quiet one instead of 0, the loudest negative one",
)
def mulaw_encode():
    """16-bit samples as bytes of G.711 mu-law."""
    bias, loudest = 132, 32635

    def pack(xp, pcm, magnitude):
        magnitude = xp.minimum(magnitude, loudest).astype("int32") + bias
        segment = xp.zeros_like(magnitude)
        for k in range(7):
            segment = segment + (magnitude >= (256 << k)).astype("int32")
        mantissa = (magnitude >> (segment + 3)) & 15
        sign = xp.where(pcm < 0, 128, 0)
        return (255 - (sign + segment * 16 + mantissa)).astype("uint8")

    def wrong(xp, pcm):
        return pack(xp, pcm, xp.abs(pcm))

    def right(xp, pcm):
        return pack(xp, pcm, xp.abs(pcm.astype("int32")))

    def reference(pcm):
        out = np.zeros(pcm.shape, dtype="uint8")
        for i in np.ndindex(pcm.shape):
            value = int(pcm[i])
            magnitude = min(abs(value), loudest) + bias
            segment = magnitude.bit_length() - 8
            out[i] = (((value < 0) << 7) | (segment << 4) | ((magnitude >> (segment + 3)) & 15)) ^ 255
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mulaw_encode",
            dtypes=("int16",),
            result_dtype="uint8",
            samples=lambda make: [
                make((2, 120), low=-32768, high=32767),
                make(200, low=-900, high=900),
                make((3, 4, 11), low=-20, high=20),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "varint_sizes",
    "the length of an integer in bits comes from a floating-point logarithm",
    "encoders that size a buffer by floor(log2(x)) + 1: from 2**48 on, log2(2**k - 1) rounds to k",
    "2**63 - 1 gets 10 bytes instead of 9, and 2**49 - 1 gets 8 instead of 7",
)
def varint_sizes():
    """The bytes that each number, 0 or more, takes in LEB128: seven bits a byte, at least one byte."""

    def wrong(xp, values):
        bits = xp.floor(xp.log2(xp.maximum(values, 1))).astype("int64") + 1
        return (bits + 6) // 7

    def right(xp, values):
        sizes = xp.ones_like(values)
        for k in range(1, 9):
            sizes = sizes + (values >= (1 << (7 * k))).astype("int64")
        return sizes

    def reference(values):
        out = np.zeros(values.shape, dtype="int64")
        for i in np.ndindex(values.shape):
            rest, size = int(values[i]) >> 7, 1
            while rest:
                rest, size = rest >> 7, size + 1
            out[i] = size
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="varint_sizes",
            dtypes=("int64",),
            result_dtype="int64",
            samples=lambda make: [
                make(150, low=0, high=2**63 - 1),
                make((4, 50), low=0, high=40_000),
                make((6, 20), low=0, high=2**40),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "haar_lift",
    "the copy to work in is a view of the input where the layout lets reshape give one",
    "in-place lifting steps on moveaxis(...).reshape(-1): a copy, except where that axis is contiguous",
    "a vector, or a matrix in Fortran order with axis=0: the input holds the coefficients after the call",
)
def haar_lift():
    """One level of the Haar transform by lifting along an axis: all means of neighbours, then all differences."""

    def check(a, axis):
        if not -a.ndim <= axis < a.ndim:
            raise ValueError(f"axis is {axis}, the array has {a.ndim}")

    def lift(xp, flat, shape, axis):
        rows = flat.reshape((math.prod(shape[:-1]), shape[-1]))
        even, odd, count = rows[:, 0::2], rows[:, 1::2], shape[-1] // 2
        odd -= even[:, :count]
        even[:, :count] += odd / 2
        out = xp.concatenate([even, odd], axis=1)
        return xp.moveaxis(out.reshape(shape), -1, axis)

    def wrong(xp, a, axis=0):
        check(a, axis)
        moved = xp.moveaxis(a, axis, -1)
        return lift(xp, moved.reshape(-1), moved.shape, axis)

    def right(xp, a, axis=0):
        check(a, axis)
        moved = xp.moveaxis(a, axis, -1)
        return lift(xp, moved.reshape(-1).copy(), moved.shape, axis)

    def reference(a, axis=0):
        check(a, axis)
        a = np.moveaxis(a, axis, -1)
        out, size = np.zeros(a.shape), a.shape[-1]
        means = (size + 1) // 2
        with np.errstate(all="ignore"):
            for i in np.ndindex(a.shape[:-1]):
                for k in range(means):
                    out[i][k] = a[i][2 * k]
                for k in range(size // 2):
                    out[i][means + k] = a[i][2 * k + 1] - a[i][2 * k]
                    out[i][k] += out[i][means + k] / 2
        return np.moveaxis(out, -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="haar_lift",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((32, 6)),
                make((17, 5)),
                Sample((make((3, 12, 4)),), {"axis": 1}),
                Sample((make((4, 9, 3)),), {"axis": -2}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((4, 6)),), {"axis": 2}), ValueError, "axis is 2")],
        )

    return wrong, right, declare


@pair(
    "theil_sen",
    "pairs at equal places are left out only where their values are equal too",
    "Theil-Sen slopes that guard against 0/0 alone: scipy.stats.theilslopes takes pairs with deltax > 0 only",
    "x = [0, 0, 1], y = [0, 5, 6]: slopes of 6 and 1 have the median 3.5; with an infinite third one it is 6",
)
def theil_sen():
    """The median of the slopes between all pairs of points at different places, for each row of y."""

    def check(x, y):
        if x.ndim != 1 or y.ndim < 1 or x.shape[0] != y.shape[-1]:
            raise ValueError(f"places of shape {x.shape} for values of shape {y.shape}")

    def median_of_kept(xp, slopes, kept):
        count = kept.astype("int64").sum(axis=-1, keepdims=True)
        order = xp.sort(xp.where(kept, slopes, math.inf), axis=-1)
        low = xp.take_along_axis(order, xp.maximum((count - 1) // 2, 0), axis=-1)
        high = xp.take_along_axis(order, xp.minimum(count // 2, slopes.shape[-1] - 1), axis=-1)
        middle = xp.where(low == high, low, low / 2 + high / 2)
        unknown = (kept & xp.isnan(slopes)).any(axis=-1, keepdims=True) | (count == 0)
        return xp.where(unknown, math.nan, middle)[..., 0]

    def differences(xp, x, y):
        first, second = np.triu_indices(x.shape[0], 1)
        first, second = xp.asarray(first), xp.asarray(second)
        x, y = x.astype("float64"), y.astype("float64")
        return x[second] - x[first], y[..., second] - y[..., first]

    def wrong(xp, x, y):
        check(x, y)
        if x.shape[0] < 2:
            return xp.full(y.shape[:-1], math.nan, dtype=y.dtype)
        dx, dy = differences(xp, x, y)
        kept = (dx != 0) | (dy != 0)
        return median_of_kept(xp, dy / dx, kept).astype(y.dtype)

    def right(xp, x, y):
        check(x, y)
        if x.shape[0] < 2:
            return xp.full(y.shape[:-1], math.nan, dtype=y.dtype)
        dx, dy = differences(xp, x, y)
        kept = xp.broadcast_to(dx != 0, dy.shape)
        return median_of_kept(xp, dy / xp.where(dx == 0, 1.0, dx), kept).astype(y.dtype)

    def reference(x, y):
        check(x, y)
        out = np.full(y.shape[:-1], math.nan)
        with np.errstate(all="ignore"):
            for i in np.ndindex(out.shape):
                slopes = []
                for j in range(len(x)):
                    for k in range(j):
                        run = x[j] - x[k]
                        if run != 0:
                            slopes.append((y[i][j] - y[i][k]) / run)
                if slopes and not np.isnan(slopes).any():
                    slopes.sort()
                    low, high = slopes[(len(slopes) - 1) // 2], slopes[len(slopes) // 2]
                    out[i] = low if low == high else low / 2 + high / 2
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="theil_sen",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(18), make((4, 18))),
                (make(11, low=0, high=100), make((2, 3, 11))),
                (make(20), make((3, 20), low=-50, high=50)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(5), make((2, 6)))), ValueError, "places of shape")],
        )

    return wrong, right, declare


@pair(
    "tukey_loss",
    "the branch that is not wanted is multiplied by zero, and it is not finite",
    "robust losses written as inside * body + outside * constant: far outliers overflow the body and 0 * inf is nan",
    "a residual of 1e20 in float32, or an infinite one: nan instead of c * c / 6",
)
def tukey_loss():
    """Tukey's biweight loss of residuals: constant from c on."""

    def check(c):
        if c <= 0:
            raise ValueError(f"c is {c}; give more than 0")

    def body(square):
        return square * (3 - 3 * square + square * square)

    def wrong(xp, residuals, c=4.685):
        check(c)
        scaled = residuals / c
        inside = (xp.abs(scaled) <= 1).astype(residuals.dtype)
        unknown = xp.isnan(residuals)
        loss = inside * body(scaled * scaled) + (1 - inside)
        return xp.where(unknown, residuals, loss * (c * c / 6))

    def right(xp, residuals, c=4.685):
        check(c)
        scaled = xp.minimum(xp.abs(residuals) / c, 1)
        return body(scaled * scaled) * (c * c / 6)

    def reference(residuals, c=4.685):
        check(c)
        out = np.full(residuals.shape, c * c / 6)
        for i in np.ndindex(residuals.shape):
            r = float(residuals[i])
            if math.isnan(r):
                out[i] = r
            elif abs(r) < c:
                u = (r / c) ** 2
                out[i] = r * r / 2 * (1 - u + u * u / 3)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="tukey_loss",
            dtypes=("float32", "float64"),
            result_dtype=lambda residuals: residuals,
            samples=lambda make: [
                make(200),
                make((7, 30), low=-20, high=20),
                Sample((make((5, 33)),), {"c": 1.5}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"c": 0}), ValueError, "c is 0")],
        )

    return wrong, right, declare


@pair(
    "frame_ranks",
    "results are written through reshape(-1) of an array that took over the layout of the input",
    "zeros_like keeps Fortran order, so that reshape(-1) gives a copy and an assignment through it is lost",
    "a frame in Fortran order, such as a transposed one: all ranks are 0",
)
def frame_ranks():
    """The rank of each pixel among all of a frame, from 0; equal ones in order of place, NaN last."""

    def wrong(xp, frame):
        order = xp.argsort(frame.reshape(-1), kind="stable")
        ranks = xp.zeros_like(frame, dtype="int64")
        ranks.reshape(-1)[order] = xp.arange(frame.size, dtype="int64")
        return ranks

    def right(xp, frame):
        order = xp.argsort(frame.reshape(-1), kind="stable")
        ranks = xp.zeros(frame.size, dtype="int64")
        ranks[order] = xp.arange(frame.size, dtype="int64")
        return ranks.reshape(frame.shape)

    def reference(frame):
        values = [v.item() for v in frame.flat]
        out = np.zeros(len(values), dtype="int64")
        for i, v in enumerate(values):
            for j, w in enumerate(values):
                if v != v:
                    out[i] += w == w or j < i
                else:
                    out[i] += w < v or (w == v and j < i)
        return out.reshape(frame.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="frame_ranks",
            dtypes=("int32", "float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [make((9, 14)), make((12, 12)), make((2, 5, 7), low=0, high=255)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "minimum_image",
    "one period is taken off, although differences may span several",
    "molecular dynamics: the minimum image by one comparison with half the box, on unwrapped trajectories",
    "points 27 apart in a box of 10: the distance is 17 instead of 3",
)
def minimum_image():
    """Distances between points in a periodic cubic box, from the nearest images; points may lie in any cell."""

    def check(a, b, box):
        if box <= 0:
            raise ValueError(f"box is {box}; give more than 0")
        if a.ndim < 1 or b.ndim < 1:
            raise ValueError("give points, with their coordinates along the last axis")

    def wrong(xp, a, b, box=10.0):
        check(a, b, box)
        apart = xp.abs(a.astype("float64") - b.astype("float64"))
        apart = xp.where(apart > box / 2, apart - box, apart)
        return xp.sqrt((apart * apart).sum(axis=-1)).astype(a.dtype)

    def right(xp, a, b, box=10.0):
        check(a, b, box)
        apart = xp.remainder(xp.abs(a.astype("float64") - b.astype("float64")), box)
        apart = xp.minimum(apart, box - apart)
        return xp.sqrt((apart * apart).sum(axis=-1)).astype(a.dtype)

    def reference(a, b, box=10.0):
        check(a, b, box)
        a, b = np.broadcast_arrays(a, b)
        out = np.zeros(a.shape[:-1])
        for i in np.ndindex(out.shape):
            total = 0.0
            for p, q in zip(a[i].tolist(), b[i].tolist(), strict=True):
                total += math.remainder(p - q, box) ** 2 if math.isfinite(p - q) else math.nan
            out[i] = math.sqrt(total)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="minimum_image",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((40, 3)), make((40, 3))),
                (make((5, 9, 3)), make((5, 9, 3))),
                Sample((make((25, 3), low=0, high=12), make((25, 3), low=0, high=12)), {"box": 12.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 3)), make((4, 3))), {"box": -1.0}), ValueError, "box is -1")
            ],
        )

    return wrong, right, declare


@pair(
    "pulse_bins",
    "a phase just below zero is rounded up to one, behind the last bin",
    "folding by x - floor(x): for a small negative x the result is 1.0, and the index is the number of bins",
    "-1e-20 turns give the bin 64 of 64, instead of 63",
)
def pulse_bins():
    """The phase bin of each time of arrival, given in turns of a pulsar; -1 if it is not finite."""

    def check(bins):
        if bins < 1 or bins & (bins - 1):
            raise ValueError(f"bins is {bins}; give a power of 2")

    def wrong(xp, turns, bins=64):
        check(bins)
        known = xp.isfinite(turns)
        turns = xp.where(known, turns, 0)
        index = ((turns - xp.floor(turns)) * bins).astype("int64")
        return xp.where(known, index, -1)

    def right(xp, turns, bins=64):
        check(bins)
        known = xp.isfinite(turns)
        turns = xp.where(known, turns, 0)
        index = xp.floor((turns - xp.trunc(turns)) * bins).astype("int64")
        return xp.where(known, xp.where(index < 0, index + bins, index), -1)

    def reference(turns, bins=64):
        check(bins)
        out = np.full(turns.shape, -1, dtype="int64")
        for i in np.ndindex(turns.shape):
            if np.isfinite(turns[i]):
                out[i] = math.floor(Fraction(float(turns[i])) % 1 * bins)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pulse_bins",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(200),
                make((4, 40), low=-5000, high=5000),
                Sample((make((3, 50)),), {"bins": 8}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"bins": 48}), ValueError, "bins is 48")],
        )

    return wrong, right, declare


@pair(
    "join_counts",
    "two keys are packed into one with a stride from one table only",
    "joins on composite keys as day * (shop.max() + 1) + shop, with the maximum of the left table",
    "left row (1, 0), right row (0, 1): the stride is 1, both pack to 1, and a match is counted",
)
def join_counts():
    """For each row (day, shop) of the left table, the number of rows of the right table with the same two keys."""

    def check(*columns):
        if any(column.ndim != 1 for column in columns):
            raise ValueError("give columns with one dimension")
        if columns[0].shape != columns[1].shape or columns[2].shape != columns[3].shape:
            raise ValueError("columns of one table differ in length")

    def count(xp, left, right):
        right = xp.sort(right)
        ends, starts = (xp.searchsorted(right, left, side=side) for side in ("right", "left"))
        return (ends - starts).astype("int64")

    def wrong(xp, day, shop, days, shops):
        check(day, shop, days, shops)
        if day.shape[0] == 0 or days.shape[0] == 0:
            return xp.zeros(day.shape[0], dtype="int64")
        day, shop, days, shops = (column.astype("int64") for column in (day, shop, days, shops))
        stride = shop.max() + 1
        return count(xp, day * stride + shop, days * stride + shops)

    def right(xp, day, shop, days, shops):
        check(day, shop, days, shops)
        if day.shape[0] == 0 or days.shape[0] == 0:
            return xp.zeros(day.shape[0], dtype="int64")
        day, shop, days, shops = (column.astype("int64") for column in (day, shop, days, shops))
        stride = xp.maximum(shop.max(), shops.max()) + 1
        return count(xp, day * stride + shop, days * stride + shops)

    def reference(day, shop, days, shops):
        check(day, shop, days, shops)
        table = {}
        for key in zip(days.tolist(), shops.tolist(), strict=True):
            table[key] = table.get(key, 0) + 1
        rows = zip(day.tolist(), shop.tolist(), strict=True)
        return np.array([table.get(key, 0) for key in rows], dtype="int64")

    def declare(fn):
        def tables(make, left, right, days, shops):
            return tuple(make(rows, low=0, high=high) for rows in (left, right) for high in (days - 1, shops - 1))

        return OpSpec(
            fn=fn,
            name="join_counts",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                tables(make, 120, 150, 7, 10),
                tables(make, 200, 60, 5, 12),
                tables(make, 90, 300, 30, 4),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample(tuple(make(rows, low=0, high=3) for rows in (4, 5, 6, 6))), ValueError, "differ in length"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "quadrature",
    "where a vector lies is guessed from its length, which is ambiguous for square arrays",
    "helpers that reshape one-dimensional weights only if they do not fit the last axis already",
    "values of shape (2, 2), axis=0, weights [1, 3]: they are applied along the last axis",
)
def quadrature():
    """Integrals along an axis: sums of values by weights, which are a vector for that axis or as many as the values."""

    def check(values, weights, axis):
        if not -values.ndim <= axis < values.ndim:
            raise ValueError(f"axis is {axis}, the values have {values.ndim}")
        if weights.shape not in ((values.shape[axis],), values.shape):
            raise ValueError(f"weights of shape {weights.shape} for values of shape {values.shape} along {axis}")

    def along(values, weights, axis):
        shape = [1] * values.ndim
        shape[axis] = weights.shape[0]
        return weights.reshape(tuple(shape))

    def add_up(values, weights, axis):
        return (values.astype("float64") * weights.astype("float64")).sum(axis=axis).astype(values.dtype)

    def wrong(xp, values, weights, axis=-1):
        check(values, weights, axis)
        if weights.ndim == 1 and weights.shape[0] != values.shape[-1]:
            weights = along(values, weights, axis)
        return add_up(values, weights, axis)

    def right(xp, values, weights, axis=-1):
        check(values, weights, axis)
        if weights.ndim == 1:
            weights = along(values, weights, axis)
        return add_up(values, weights, axis)

    def reference(values, weights, axis=-1):
        check(values, weights, axis)
        if weights.ndim == values.ndim:
            weights = np.moveaxis(weights, axis, -1)
        values = np.moveaxis(values, axis, -1)
        out = np.zeros(values.shape[:-1])
        with np.errstate(all="ignore"):
            for i in np.ndindex(out.shape):
                factors = weights[i] if weights.ndim == values.ndim else weights
                for value, factor in zip(values[i], factors, strict=True):
                    out[i] += value * factor
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="quadrature",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 32)), make(32, low=0, high=1)),
                Sample((make((21, 8)), make(21, low=0, high=1)), {"axis": 0}),
                Sample((make((4, 9, 5)), make(9, low=0, high=1)), {"axis": 1}),
                Sample((make((10, 7)), make((10, 7), low=0, high=1)), {"axis": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((3, 4)), make(5))), ValueError, "weights of shape"),
                ErrorInput(Sample((make((3, 4)), make(4)), {"axis": 2}), ValueError, "axis is 2"),
            ],
        )

    return wrong, right, declare


@pair(
    "gaussian_frames",
    "a table is kept by its length, not by the option that shapes it",
    "audio front ends that keep windows in a dictionary by frame length only",
    "two calls on frames of 16, spread=0.5 and then spread=0.4: the second gets the window of the first",
)
def gaussian_frames():
    """Frames, along the last axis, times a Gaussian window; spread is its deviation in halves of a frame."""

    def check(frames, spread):
        if frames.ndim < 1:
            raise ValueError("give frames, along the last axis")
        if spread <= 0:
            raise ValueError(f"spread is {spread}; give more than 0")

    def window(size, spread):
        places = (2.0 * np.arange(size) - size + 1) / max(size - 1, 1)
        return np.exp(-0.5 * (places / spread) ** 2)

    kept_by_length, kept = {}, {}

    def wrong(xp, frames, spread=0.5):
        check(frames, spread)
        size = frames.shape[-1]
        if size not in kept_by_length:
            kept_by_length[size] = window(size, spread)
        return frames * xp.asarray(kept_by_length[size].astype(frames.dtype))

    def right(xp, frames, spread=0.5):
        check(frames, spread)
        key = frames.shape[-1], float(spread)
        if key not in kept:
            kept[key] = window(*key)
        return frames * xp.asarray(kept[key].astype(frames.dtype))

    def reference(frames, spread=0.5):
        check(frames, spread)
        out, size = np.array(frames, dtype="float64"), frames.shape[-1]
        for k in range(size):
            place = (2 * k - size + 1) / max(size - 1, 1)
            out[..., k] *= math.exp(-place * place / (2 * spread * spread))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gaussian_frames",
            dtypes=("float32", "float64"),
            result_dtype=lambda frames: frames,
            samples=lambda make: [
                make((5, 64)),
                Sample((make((2, 3, 33)),), {"spread": 0.4}),
                Sample((make(100),), {"spread": 0.8}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 9)),), {"spread": 0.0}), ValueError, "spread is 0")],
        )

    return wrong, right, declare


@pair(
    "rolling_energy",
    "the result is a view of a workspace that the next call overwrites",
    "workspaces kept between calls to save allocations, returned without a copy",
    "first = f(ones(8)); f(zeros(8)): the numbers in first are now 0",
)
def rolling_energy():
    """Sums of squares over the last `window` numbers along the last axis; fewer at the beginning."""

    def check(a, window):
        if a.ndim < 1:
            raise ValueError("give signals, along the last axis")
        if window < 1:
            raise ValueError(f"window is {window}; give 1 or more")

    def fill(out, a, window):
        squares, size = a * a, a.shape[-1]
        out[...] = 0
        for k in range(min(window, size)):
            out[..., k:] += squares[..., : size - k]
        return out

    spaces = {}

    def wrong(xp, a, window=5):
        check(a, window)
        key = id(xp), str(a.dtype)
        if key not in spaces or spaces[key][1].size < a.size:
            spaces[key] = xp, xp.empty(a.size, dtype=a.dtype)
        return fill(spaces[key][1][: a.size].reshape(a.shape), a, window)

    def right(xp, a, window=5):
        check(a, window)
        return fill(xp.empty(a.shape, dtype=a.dtype), a, window)

    def reference(a, window=5):
        check(a, window)
        out = np.zeros(a.shape)
        with np.errstate(all="ignore"):
            for i in np.ndindex(a.shape):
                for k in range(max(0, i[-1] - window + 1), i[-1] + 1):
                    out[i] += a[(*i[:-1], k)] ** 2
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rolling_energy",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((4, 60)),
                Sample((make(90),), {"window": 12}),
                Sample((make((2, 3, 20)),), {"window": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"window": 0}), ValueError, "window is 0")],
        )

    return wrong, right, declare
