"""Reductions, losses, statistics, dates, periods, rotation, signals, quantisation, complex: faults with their twins."""

import calendar
import datetime
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
    "weighted_logsumexp",
    "entries of weight zero still set the shift",
    "scipy.special.logsumexp with b: zero weights were handled only after the maximum had been taken",
    "an entry of 1000 with weight 0 next to ordinary ones: the sum underflows and the result is -inf",
)
def weighted_logsumexp():
    """log(sum(weights * exp(a))) along an axis; entries of weight zero count for nothing."""

    def finish(xp, a, shifted_by, values, weights, axis):
        top = xp.where(xp.isfinite(shifted_by), shifted_by, 0.0)
        total = (weights * xp.exp(values - top)).sum(axis=axis)
        return (xp.log(total) + top.reshape(total.shape)).astype(a.dtype)

    def none(xp, a, axis):
        shape = list(a.shape)
        del shape[axis]
        return xp.full(tuple(shape), -math.inf, dtype=a.dtype)

    def wrong(xp, a, weights, axis=-1):
        if a.shape[axis] == 0:
            return none(xp, a, axis)
        values = a.astype("float64")
        return finish(xp, a, values.max(axis=axis, keepdims=True), values, weights.astype("float64"), axis)

    def right(xp, a, weights, axis=-1):
        if a.shape[axis] == 0:
            return none(xp, a, axis)
        weights = weights.astype("float64")
        values = xp.where(weights > 0, a.astype("float64"), -math.inf)
        return finish(xp, a, values.max(axis=axis, keepdims=True), values, weights, axis)

    def reference(a, weights, axis=-1):
        a, weights = np.moveaxis(a, axis, -1), np.moveaxis(np.asarray(weights, dtype="float64"), axis, -1)
        out = np.full(a.shape[:-1], -math.inf)
        for i in np.ndindex(out.shape):
            values, factors = a[i][weights[i] > 0], weights[i][weights[i] > 0]
            if len(values):
                top = values.max()
                out[i] = top + np.log((factors * np.exp(values - top)).sum()) if np.isfinite(top) else top
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weighted_logsumexp",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(30), make(30, low=0, high=1)),
                (make((4, 9)), make((4, 9), dtype="bool")),
                Sample((make((5, 6, 3), low=-200, high=200), make((5, 6, 3), low=0, high=1)), {"axis": 1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "encoder_unwrap",
    "a jump of exactly half a period gets the wrong sign",
    "numpy.unwrap: the boundary correction for jumps of exactly half a period, which reimplementations leave out",
    "counts [0, 2048] with period 4096: a step of -2048 where numpy.unwrap keeps +2048",
)
def encoder_unwrap():
    """Counts of a rotary encoder made continuous, as numpy.unwrap does; half a period keeps its sign."""

    def check(period):
        if period < 2:
            raise ValueError(f"period is {period}; give 2 or more")

    def add_up(xp, counts, steps):
        first = counts[..., :1].astype("int64")
        return xp.cumsum(xp.concatenate([first, steps], axis=-1), axis=-1).astype(counts.dtype)

    def wrong(xp, counts, period=4096):
        check(period)
        half = period // 2
        jumps = xp.diff(counts.astype("int64"), axis=-1)
        return add_up(xp, counts, (jumps + half) % period - half)

    def right(xp, counts, period=4096):
        check(period)
        half = period // 2
        jumps = xp.diff(counts.astype("int64"), axis=-1)
        steps = (jumps + half) % period - half
        if period % 2 == 0:
            steps = xp.where((steps == -half) & (jumps > 0), half, steps)
        return add_up(xp, counts, steps)

    def reference(counts, period=4096):
        out = np.array(counts, dtype="int64")
        for i in np.ndindex(counts.shape[:-1]):
            for k in range(1, counts.shape[-1]):
                jump = int(counts[i][k]) - int(counts[i][k - 1])
                step = jump % period
                if 2 * step > period or (2 * step == period and jump < 0):
                    step -= period
                out[i][k] = out[i][k - 1] + step
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="encoder_unwrap",
            dtypes=("int32", "int64"),
            result_dtype=lambda counts: counts,
            samples=lambda make: [
                make(100, low=0, high=4095),
                Sample((make((3, 25), low=0, high=359),), {"period": 360}),
                Sample((make((2, 2, 12), low=0, high=6),), {"period": 7}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"period": 0}), ValueError, "period is 0")],
        )

    return wrong, right, declare


@pair(
    "weighted_quantile",
    "the lowest level picks a value of weight zero",
    "numpy.quantile with weights, fixed in numpy#27549",
    "q=0 where the smallest value has weight 0, as values [0, 1, 2] with weights [0, 0, 1]: 0 instead of 2",
)
def weighted_quantile():
    """Inverse of the weighted distribution function along the last axis; values of weight zero are left out."""

    def check(a, q):
        if not 0 <= q <= 1:
            raise ValueError(f"q is {q}; give 0 to 1")
        if a.shape[-1] == 0:
            raise ValueError("no values")

    def ordered(xp, a, weights):
        order = xp.argsort(a, axis=-1)
        cdf = xp.cumsum(xp.take_along_axis(weights.astype("float64"), order, axis=-1), axis=-1)
        return xp.take_along_axis(a, order, axis=-1), cdf

    def pick(xp, values, index):
        index = xp.minimum(index, values.shape[-1] - 1)
        return xp.take_along_axis(values, index[..., None], axis=-1)[..., 0]

    def wrong(xp, a, weights, q=0.5):
        check(a, q)
        values, cdf = ordered(xp, a, weights)
        return pick(xp, values, (cdf < q * cdf[..., -1:]).sum(axis=-1))

    def right(xp, a, weights, q=0.5):
        check(a, q)
        values, cdf = ordered(xp, a, weights)
        return pick(xp, values, ((cdf < q * cdf[..., -1:]) | (cdf <= 0)).sum(axis=-1))

    def reference(a, weights, q=0.5):
        check(a, q)
        out = np.empty(a.shape[:-1])
        for i in np.ndindex(out.shape):
            order = np.argsort(a[i], kind="stable")
            cdf = np.cumsum(np.asarray(weights[i], dtype="float64")[order])
            reached = [k for k in range(len(cdf)) if cdf[k] >= q * cdf[-1] and cdf[k] > 0]
            out[i] = a[i][order][reached[0] if reached else -1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weighted_quantile",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(41), make(41, low=0, high=1)),
                Sample((make((4, 10)), make((4, 10), dtype="int64", low=0, high=3)), {"q": 0.1}),
                Sample((make((2, 3, 8)), make((2, 3, 8), low=0, high=1)), {"q": 1.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5), make(5, low=0, high=1)), {"q": 1.5}), ValueError, "q is 1.5")
            ],
        )

    return wrong, right, declare


@pair(
    "weighted_mean",
    "the error is raised only if every row is bad",
    "numpy.average and cupy.average raise where any sum of weights is zero; ports that test the whole array do not",
    "two rows of which one has weights that sum to zero: that row is NaN, without ZeroDivisionError",
)
def weighted_mean():
    """Mean with weights along an axis; weights that sum to zero are an error, as in numpy.average."""

    def wrong(xp, a, weights, axis=-1):
        weights = weights.astype("float64")
        total = weights.sum(axis=axis)
        if total.size and not bool(total.any()):
            raise ZeroDivisionError("weights sum to zero, can't be normalized")
        return ((a.astype("float64") * weights).sum(axis=axis) / total).astype(a.dtype)

    def right(xp, a, weights, axis=-1):
        weights = weights.astype("float64")
        total = weights.sum(axis=axis)
        if bool((total == 0).any()):
            raise ZeroDivisionError("weights sum to zero, can't be normalized")
        return ((a.astype("float64") * weights).sum(axis=axis) / total).astype(a.dtype)

    def reference(a, weights, axis=-1):
        return np.average(a, axis=axis, weights=weights)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weighted_mean",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, weights: a,
            samples=lambda make: [
                (make(25), make(25, low=0, high=1)),
                (make((4, 13)), make((4, 13), low=0, high=1)),
                Sample((make((3, 8, 5)), make((3, 8, 5), low=0, high=1)), {"axis": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(6), make.full((6,), 0)), ZeroDivisionError, "sum to zero"),
                ErrorInput((make((2, 3)), make.full((2, 3), 0)), ZeroDivisionError, "sum to zero"),
            ],
        )

    return wrong, right, declare


@pair(
    "akima_slopes",
    "a threshold relative to the largest value of the whole batch",
    "scipy.interpolate.Akima1DInterpolator: f12 > 1e-9 * max(f12) over everything, scipy#22882",
    "two rows of which one is 1e12 times larger: the slopes of the small one become plain averages",
)
def akima_slopes():
    """Akima's slopes at knots one apart, along the last axis."""

    def check(y):
        if y.shape[-1] < 3:
            raise ValueError(f"{y.shape[-1]} knots; give 3 or more")

    def secants(xp, y):
        m = xp.diff(y.astype("float64"), axis=-1)
        left = 2.0 * m[..., :1] - m[..., 1:2]
        right = 2.0 * m[..., -1:] - m[..., -2:-1]
        return xp.concatenate(
            [2.0 * left - m[..., :1], left, m, right, 2.0 * right - m[..., -1:]],
            axis=-1,
        )

    def parts(xp, y):
        m = secants(xp, y)
        change = xp.abs(xp.diff(m, axis=-1))
        return m[..., 1:-2], m[..., 2:-1], change[..., 2:], change[..., :-2]

    def combine(xp, y, before, after, w1, w2, usable):
        total = xp.where(usable, w1 + w2, 1.0)
        akima = w1 / total * before + w2 / total * after
        return xp.where(usable, akima, 0.5 * (before + after)).astype(y.dtype)

    def wrong(xp, y):
        check(y)
        before, after, w1, w2 = parts(xp, y)
        tiny = 1e-9 * (w1 + w2).max() if y.size else 0.0
        return combine(xp, y, before, after, w1, w2, w1 + w2 > tiny)

    def right(xp, y):
        check(y)
        before, after, w1, w2 = parts(xp, y)
        return combine(xp, y, before, after, w1, w2, w1 + w2 > 0)

    def reference(y):
        check(y)
        n = y.shape[-1]
        out = np.empty(y.shape)
        for i in np.ndindex(y.shape[:-1]):
            m = [y[i][k + 1] - y[i][k] for k in range(n - 1)]
            for _ in range(2):
                m = [2.0 * m[0] - m[1], *m, 2.0 * m[-1] - m[-2]]
            for k in range(n):
                w1, w2 = abs(m[k + 3] - m[k + 2]), abs(m[k + 1] - m[k])
                if w1 + w2 > 0:
                    out[i][k] = w1 / (w1 + w2) * m[k + 1] + w2 / (w1 + w2) * m[k + 2]
                else:
                    out[i][k] = 0.5 * (m[k + 1] + m[k + 2])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="akima_slopes",
            dtypes=("float32", "float64"),
            result_dtype=lambda y: y,
            samples=lambda make: [
                make(20),
                make((3, 9), low=-100, high=100),
                make.of([0.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0]),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make(2), ValueError, "2 knots")],
        )

    return wrong, right, declare


@pair(
    "longitude_in_range",
    "the full circle wraps to an empty range",
    "Elasticsearch geo_bounding_box from -180 to 180, elasticsearch#7340",
    "west=-180, east=180: only the meridian 180 itself is in the range",
)
def longitude_in_range():
    """Whether longitudes in degrees are from `west` eastwards to `east`, bounds included, across the date line too."""

    def wrong(xp, longitude, west, east):
        offset = (longitude.astype("float64") - west) % 360.0
        return offset <= (east - west) % 360.0

    def right(xp, longitude, west, east):
        wide = longitude.astype("float64")
        if east - west >= 360:
            return xp.isfinite(wide)
        return (wide - west) % 360.0 <= (east - west) % 360.0

    def reference(longitude, west, east):
        def within(value):
            if not math.isfinite(value):
                return False
            return east - west >= 360 or (value - west) % 360.0 <= (east - west) % 360.0

        return np.array([within(float(v)) for v in longitude.ravel()], dtype="bool").reshape(longitude.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="longitude_in_range",
            dtypes=("float32", "float64"),
            result_dtype="bool",
            samples=lambda make: [
                Sample((make(100, low=-180, high=180),), {"west": -10.0, "east": 30.0}),
                Sample((make((4, 20), low=-180, high=180),), {"west": 150.0, "east": -120.0}),
                Sample((make((3, 2, 7), low=0, high=360),), {"west": -20.0, "east": 60.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "fourier_resample",
    "the Nyquist bin is folded for longer but not for shorter results",
    "scipy.signal.resample, scipy#7278 and scipy#7584, and cusignal#517",
    "50 samples to 20, an even number that is smaller: the Nyquist component has half its amplitude",
)
def fourier_resample():
    """A periodic signal along the last axis with `num` samples; a row that is not finite is NaN."""

    def check(a, num):
        if num < 1:
            raise ValueError(f"num is {num}; give 1 or more")
        if a.shape[-1] == 0:
            raise ValueError("no samples")

    def resample(xp, a, num, fold):
        n = a.shape[-1]
        shape = (*a.shape[:-1], num)
        if a.size == 0:
            return xp.zeros(shape, dtype=a.dtype)
        wide = a.astype("float64")
        spectrum = xp.fft.rfft(wide, axis=-1)
        least = min(n, num)
        kept = xp.zeros((*a.shape[:-1], num // 2 + 1), dtype="complex128")
        kept[..., : least // 2 + 1] = spectrum[..., : least // 2 + 1]
        if least % 2 == 0:
            kept[..., least // 2] *= fold(n, num)
        out = xp.fft.irfft(kept, num, axis=-1) * (num / n)
        finite = xp.isfinite(wide).all(axis=-1, keepdims=True)
        return xp.where(finite, out, math.nan).astype(a.dtype)

    def wrong(xp, a, num):
        check(a, num)
        return resample(xp, a, num, lambda n, num: 0.5 if num > n else 1.0)

    def right(xp, a, num):
        check(a, num)
        return resample(xp, a, num, lambda n, num: 0.5 if num > n else 2.0 if num < n else 1.0)

    def reference(a, num):
        check(a, num)
        n = a.shape[-1]
        least = min(n, num)
        out = np.full((*a.shape[:-1], num), math.nan)
        for i in np.ndindex(a.shape[:-1]):
            if np.isfinite(a[i]).all():
                spectrum, kept = np.fft.fft(a[i]), np.zeros(num, dtype="complex128")
                for k in range(-(least // 2), least // 2 + 1):
                    if 2 * abs(k) < least or n == num:
                        kept[k] = spectrum[k]
                    else:
                        kept[k] += spectrum[k] * (0.5 if num > n else 1.0)
                out[i] = np.fft.ifft(kept).real * num / n
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fourier_resample",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                Sample((make(20),), {"num": 50}),
                Sample((make((3, 40)),), {"num": 25}),
                Sample((make((2, 2, 15)),), {"num": 30}),
                Sample((make(16),), {"num": 16}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"num": 0}), ValueError, "num is 0")],
        )

    return wrong, right, declare


@pair(
    "standard_error",
    "axis 0 is taken for no axis",
    "`if axis:` for `if axis is not None:`, in pandas, dask and scipy.stats wrappers more than once",
    "axis=0 of a two-dimensional array: divided by the root of the size of all of it",
)
def standard_error():
    """Standard error of the mean along an axis, or of all numbers if axis is None."""

    def finish(xp, a, axis, ddof, n):
        if n <= ddof:
            raise ValueError(f"{n} numbers for ddof={ddof}")
        return (a.astype("float64").std(axis=axis, ddof=ddof) / math.sqrt(n)).astype(a.dtype)

    def wrong(xp, a, axis=-1, ddof=1):
        return finish(xp, a, axis, ddof, a.shape[axis] if axis else a.size)

    def right(xp, a, axis=-1, ddof=1):
        return finish(xp, a, axis, ddof, a.size if axis is None else a.shape[axis])

    def reference(a, axis=-1, ddof=1):
        n = a.size if axis is None else a.shape[axis]
        if n <= ddof:
            raise ValueError(f"{n} numbers for ddof={ddof}")
        mean = a.mean(axis=axis, keepdims=True)
        return np.sqrt(((a - mean) ** 2).sum(axis=axis) / (n - ddof) / n)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="standard_error",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(50),
                make((4, 30)),
                Sample((make((3, 7, 5)),), {"axis": 1, "ddof": 0}),
                Sample((make((6, 5)),), {"axis": None}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((5, 1)), ValueError, "1 numbers")],
        )

    return wrong, right, declare


@pair(
    "smoothed_cross_entropy",
    "two options that are right alone and wrong together",
    "torch.nn.functional.cross_entropy with label_smoothing and ignore_index, pytorch#73205",
    "label_smoothing=0.1 with a target of -1: the uniform part of the loss counts the ignored row",
)
def smoothed_cross_entropy():
    """Mean cross entropy of the rows whose target is not `ignore_index`; NaN if there is none."""

    def check(label_smoothing):
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; give 0 to below 1")

    def log_softmax(xp, logits):
        shifted = logits.astype("float64") - logits.max(axis=-1, keepdims=True).astype("float64")
        return shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))

    def loss(xp, logits, target, label_smoothing, ignore_index, smooth_of):
        check(label_smoothing)
        scores = log_softmax(xp, logits)
        kept = target != ignore_index
        chosen = xp.take_along_axis(scores, xp.where(kept, target, 0)[:, None], axis=-1)[:, 0]
        total = -xp.where(kept, chosen, 0.0).sum()
        if label_smoothing:
            total = (1 - label_smoothing) * total + label_smoothing * smooth_of(kept, -scores.mean(axis=-1)).sum()
        return (total / kept.sum()).astype(logits.dtype)

    def wrong(xp, logits, target, label_smoothing=0.0, ignore_index=-1):
        return loss(xp, logits, target, label_smoothing, ignore_index, lambda kept, smooth: smooth)

    def right(xp, logits, target, label_smoothing=0.0, ignore_index=-1):
        return loss(xp, logits, target, label_smoothing, ignore_index, lambda kept, smooth: xp.where(kept, smooth, 0.0))

    def reference(logits, target, label_smoothing=0.0, ignore_index=-1):
        check(label_smoothing)
        losses = []
        for row, t in zip(logits, target, strict=True):
            if t != ignore_index:
                shifted = row - row.max()
                scores = shifted - np.log(np.exp(shifted).sum())
                one = -scores[t]
                if label_smoothing:
                    one = (1 - label_smoothing) * one - label_smoothing * scores.mean()
                losses.append(one)
        return np.array(np.mean(losses) if losses else math.nan)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smoothed_cross_entropy",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((16, 7)), make(16, dtype="int64", low=0, high=6)),
                (make((20, 4)), make(20, dtype="int64", low=-1, high=3)),
                Sample((make((12, 10)), make(12, dtype="int64", low=0, high=9)), {"label_smoothing": 0.1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((3, 4)), make(3, dtype="int64", low=0, high=3)), {"label_smoothing": 1.5}),
                    ValueError,
                    "label_smoothing is 1.5",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "fake_quantize",
    "the range of a row is not widened to hold zero",
    "TensorFlow Lite's and torch.ao's rule min(low, 0), max(high, 0) for affine quantisation, left out in observers",
    "a row whose numbers are all positive, such as 100 to 101: the zero point is clamped and everything saturates",
)
def fake_quantize():
    """Rows rounded to 2**bits levels by an affine quantiser that holds zero exactly, and back."""

    def check(bits):
        if not 2 <= bits <= 16:
            raise ValueError(f"bits is {bits}; give 2 to 16")

    def quantize(xp, a, bits, low, high):
        most = 2**bits - 1
        scale = (high - low) / most
        scale = xp.where(scale == 0, 1.0, scale)
        zero = xp.clip(xp.rint(-low / scale), 0, most)
        levels = xp.clip(xp.rint(a.astype("float64") / scale) + zero, 0, most)
        return ((levels - zero) * scale).astype(a.dtype)

    def extent(a):
        wide = a.astype("float64")
        return wide.min(axis=-1, keepdims=True), wide.max(axis=-1, keepdims=True)

    def wrong(xp, a, bits=8):
        check(bits)
        if a.size == 0:
            return a.copy()
        return quantize(xp, a, bits, *extent(a))

    def right(xp, a, bits=8):
        check(bits)
        if a.size == 0:
            return a.copy()
        low, high = extent(a)
        return quantize(xp, a, bits, xp.minimum(low, 0.0), xp.maximum(high, 0.0))

    def reference(a, bits=8):
        check(bits)
        out = np.empty(a.shape)
        most = 2**bits - 1
        for i in np.ndindex(a.shape[:-1]):
            if a.shape[-1]:
                low, high = np.minimum(a[i].min(), 0.0), np.maximum(a[i].max(), 0.0)
                scale = (high - low) / most
                scale = scale if scale != 0 else np.float64(1.0)
                zero = np.clip(np.rint(-low / scale), 0, most)
                out[i] = (np.clip(np.rint(a[i] / scale) + zero, 0, most) - zero) * scale
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fake_quantize",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((4, 64)),
                Sample((make(33),), {"bits": 4}),
                make((2, 3, 20), low=-10, high=5),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"bits": 1}), ValueError, "bits is 1")],
        )

    return wrong, right, declare


@pair(
    "complex_expm1",
    "the real part cancels for small numbers",
    "complex expm1 written as exp(z) - 1: why scipy.special and NumPy have a loop of their own for it",
    "z = 1e-10 + 1e-10j: the real part is off by 1e-17, that is in the seventh digit",
)
def complex_expm1():
    """exp(z) - 1 for complex numbers, exact near zero."""

    def wrong(xp, z):
        return (xp.exp(z.astype("complex128")) - 1.0).astype(z.dtype)

    def right(xp, z):
        wide = z.astype("complex128")
        x, y = xp.real(wide), xp.imag(wide)
        half = xp.sin(0.5 * y)
        real = xp.expm1(x) * xp.cos(y) - 2.0 * half * half
        imag = xp.where(y == 0, y, xp.exp(x) * xp.sin(y))
        return xp.stack([real, imag], axis=-1).view("complex128")[..., 0].astype(z.dtype)

    def reference(z):
        out = np.array(np.expm1(z), dtype="complex128")
        out.imag = np.where(z.imag == 0, z.imag, out.imag)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="complex_expm1",
            dtypes=("complex64", "complex128"),
            result_dtype=lambda z: z,
            samples=lambda make: [make(40), make((3, 17))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "add_months",
    "the end of the month is looked up in the year before the move",
    "end-of-month clipping in month offsets of date libraries: cuDF add_calendrical_months, pandas DateOffset, polars",
    "2024-01-31 plus 13 months: 2025-02-29, a day that does not exist; 2023-01-31 plus 13 months: 2024-02-28",
)
def add_months():
    """Dates (year, month, day) moved by months; a day that the month does not have becomes its last day."""

    def move(xp, year, month, day, months, leap_of):
        wide = year.astype("int64")
        index = wide * 12 + month.astype("int64") - 1 + months.astype("int64")
        year_after, month_after = index // 12, index % 12 + 1
        y = leap_of(wide, year_after)
        leap = ((y % 4 == 0) & (y % 100 != 0)) | (y % 400 == 0)
        length = 30 + (month_after + month_after // 8) % 2
        length = xp.where(month_after == 2, xp.where(leap, 29, 28), length)
        return xp.stack([year_after, month_after, xp.minimum(day.astype("int64"), length)]).astype(year.dtype)

    def wrong(xp, year, month, day, months):
        return move(xp, year, month, day, months, lambda before, after: before)

    def right(xp, year, month, day, months):
        return move(xp, year, month, day, months, lambda before, after: after)

    def reference(year, month, day, months):
        out = np.empty((3, *year.shape), dtype="int64")
        for i in np.ndindex(year.shape):
            y, m = divmod(int(year[i]) * 12 + int(month[i]) - 1 + int(months[i]), 12)
            length = calendar.mdays[m + 1] + (m + 1 == 2 and calendar.isleap(y))
            out[(slice(None), *i)] = y, m + 1, min(int(day[i]), length)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="add_months",
            dtypes=("int32", "int64"),
            result_dtype=lambda year, month, day, months: year,
            samples=lambda make: [
                (
                    make(60, low=1980, high=2040),
                    make(60, low=1, high=12),
                    make(60, low=1, high=28),
                    make(60, low=-40, high=40),
                ),
                (
                    make.of([2021, 2020, 2020, 2019, 2021]),
                    make.of([1, 1, 3, 5, 12]),
                    make.of([31, 31, 31, 31, 31]),
                    make.of([1, 1, -1, -13, 0]),
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "iso_week",
    "days before week 1 are always in week 52",
    "hand-written ISO week numbers: 0 is mapped to 52, not to the last week of the year before, which may be 53",
    "2021-01-01, day 18628: week 53 of 2020, but 52 is given",
)
def iso_week():
    """ISO 8601 week number of days counted from 1970-01-01."""

    def year_and_day(days):
        shifted = days + 719468  # years from March on, in eras of 400 years
        era = shifted // 146097
        of_era = shifted - era * 146097
        year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
        day = of_era - (365 * year + year // 4 - year // 100)
        year = year + 400 * era
        late = (day >= 306).astype("int64")
        leap = (((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)).astype("int64")
        return year + late, late * (day - 306) + (1 - late) * (day + 59 + leap)

    def wrong(xp, days):
        wide = days.astype("int64")
        year, day = year_and_day(wide)
        week = (day + 10 - (wide + 3) % 7) // 7
        before = year - 1
        ends = (year + year // 4 - year // 100 + year // 400) % 7
        ended = (before + before // 4 - before // 100 + before // 400) % 7
        weeks = xp.where((ends == 4) | (ended == 3), 53, 52)
        return xp.where(week < 1, 52, xp.where(week > weeks, 1, week)).astype(days.dtype)

    def right(xp, days):
        wide = days.astype("int64")
        _, day = year_and_day(wide - (wide + 3) % 7 + 3)  # the Thursday of a week is in the year of the week
        return (day // 7 + 1).astype(days.dtype)

    def reference(days):
        weeks = [datetime.date.fromordinal(719163 + int(d)).isocalendar()[1] for d in days.ravel()]
        return np.array(weeks, dtype="int64").reshape(days.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="iso_week",
            dtypes=("int32", "int64"),
            result_dtype=lambda days: days,
            samples=lambda make: [
                make(80, low=0, high=40000),
                make((4, 10), low=-20000, high=20000),
                make.of([0, 59, 10956, 11016, 17896]),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "categorical_from_uniform",
    "the wrong side of the search: below instead of at most",
    "torch.multinomial gave elements of weight zero, pytorch#4858 and pytorch#48841",
    "u = 0 where the first weight is 0: class 0 is drawn though it can not occur",
)
def categorical_from_uniform():
    """The first class whose cumulated share of the weights is above u, for given uniform numbers from 0 to below 1."""

    def shares(xp, weights, u):
        if weights.shape[-1] == 0:
            raise ValueError("no classes")
        cdf = xp.cumsum(weights.astype("float64"), axis=-1)
        total = cdf[..., -1:]
        last = (cdf < total).sum(axis=-1)
        return cdf, u.astype("float64")[..., None] * total, last

    def wrong(xp, weights, u):
        cdf, level, last = shares(xp, weights, u)
        return xp.minimum((cdf < level).sum(axis=-1), last).astype("int64")

    def right(xp, weights, u):
        cdf, level, last = shares(xp, weights, u)
        return xp.minimum((cdf <= level).sum(axis=-1), last).astype("int64")

    def reference(weights, u):
        if weights.shape[-1] == 0:
            raise ValueError("no classes")
        out = np.empty(u.shape, dtype="int64")
        for i in np.ndindex(u.shape):
            cdf = np.cumsum(np.asarray(weights[i], dtype="float64"))
            above = np.flatnonzero(cdf > u[i] * cdf[-1])
            out[i] = above[0] if len(above) else np.flatnonzero(cdf == cdf[-1])[0]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="categorical_from_uniform",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make((40, 6), low=0, high=1), make(40, low=0, high=1)),
                (make((30, 4), dtype="int64", low=0, high=5), make(30, low=0, high=1)),
                (make((3, 5, 9), low=0, high=1), make((3, 5), low=0, high=1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "random_integers",
    "scaled and shifted in the dtype of the uniform numbers before rounding down",
    "low + u * (high - low) that rounds up to high: cupy#4139, numpy#26978, and curand_uniform for indices",
    "float32 u = 0.9999999 with low=1000, high=1003: 1003, which is out of range",
)
def random_integers():
    """Integers from `low` to below `high` for given uniform numbers from 0 to below 1."""

    def check(low, high):
        if high <= low:
            raise ValueError(f"high is {high}; give more than {low}")

    def wrong(xp, u, low=0, high=10):
        check(low, high)
        return xp.floor(u * (high - low) + low).astype("int64")

    def right(xp, u, low=0, high=10):
        check(low, high)
        steps = xp.floor(u.astype("float64") * (high - low)).astype("int64")
        return xp.minimum(steps, high - low - 1) + low

    def reference(u, low=0, high=10):
        check(low, high)
        steps = [min(math.floor(float(v) * (high - low)), high - low - 1) for v in u.ravel()]
        return np.array([low + step for step in steps], dtype="int64").reshape(u.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="random_integers",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(60, low=0, high=0.9999999),
                Sample((make((5, 12), low=0, high=0.9999999),), {"low": 100, "high": 200}),
                Sample((make((2, 3, 4), low=0, high=0.9999999),), {"low": 1, "high": 7}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3, low=0, high=0.9999999),), {"low": 3, "high": 3}), ValueError, "high is 3")
            ],
        )

    return wrong, right, declare


@pair(
    "merge_moments",
    "a product of counts in 32-bit integers",
    "n_a * n_b of Chan's formula and of scipy.stats rank tests wrapped around where NumPy's default int was 32 bits",
    "counts of 48000 and 50000 in int32: the product 2.4e9 wraps around and the merged m2 is far too small",
)
def merge_moments():
    """Mean and sum of squared deviations of two groups together, from count, mean and sum of each."""

    def wrong(xp, count_a, mean_a, m2_a, count_b, mean_b, m2_b):
        total = xp.maximum(count_a + count_b, 1)
        delta = mean_b.astype("float64") - mean_a.astype("float64")
        mean = mean_a + delta * (count_b / total)
        m2 = m2_a.astype("float64") + m2_b.astype("float64") + delta * delta * (count_a * count_b / total)
        return mean.astype(mean_a.dtype), m2.astype(mean_a.dtype)

    def right(xp, count_a, mean_a, m2_a, count_b, mean_b, m2_b):
        count_a, count_b = count_a.astype("float64"), count_b.astype("float64")
        total = xp.maximum(count_a + count_b, 1.0)
        delta = mean_b.astype("float64") - mean_a.astype("float64")
        mean = mean_a + delta * (count_b / total)
        m2 = m2_a.astype("float64") + m2_b.astype("float64") + delta * delta * (count_a * count_b / total)
        return mean.astype(mean_a.dtype), m2.astype(mean_a.dtype)

    def reference(count_a, mean_a, m2_a, count_b, mean_b, m2_b):
        count_a, count_b = np.asarray(count_a, dtype="float64"), np.asarray(count_b, dtype="float64")
        total = np.maximum(count_a + count_b, 1.0)
        delta = mean_b - mean_a
        return mean_a + delta * (count_b / total), m2_a + m2_b + delta * delta * (count_a * count_b / total)

    def declare(fn):
        def group(make, shape):
            return make(shape, dtype="int32", low=1, high=50000), make(shape), make(shape, low=0, high=100)

        return OpSpec(
            fn=fn,
            name="merge_moments",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (*group(make, (12,)), *group(make, (12,))),
                (*group(make, (3, 5)), *group(make, (3, 5))),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "so3_exp_map",
    "a guard against division by zero that reaches too far",
    "pytorch3d.transforms.so3_exp_map: the squared angle is clamped to eps=0.0001, so to 0.01 rad",
    "rotations by less than 0.01 rad, such as (0.001, -0.002, 0.0005): off by a factor of 1 - 1.7e-5",
)
def so3_exp_map():
    """Rotation matrices (..., 3, 3) of rotation vectors (..., 3)."""

    def check(vectors):
        if vectors.ndim == 0 or vectors.shape[-1] != 3:
            raise ValueError(f"shape is {vectors.shape}; give (..., 3)")

    def matrix(xp, vectors, factors):
        v = vectors.astype("float64")
        x, y, z = v[..., 0], v[..., 1], v[..., 2]
        square = x * x + y * y + z * z
        a, b = factors(square)
        rows = [
            [1.0 - b * (y * y + z * z), b * x * y - a * z, b * x * z + a * y],
            [b * x * y + a * z, 1.0 - b * (x * x + z * z), b * y * z - a * x],
            [b * x * z - a * y, b * y * z + a * x, 1.0 - b * (x * x + y * y)],
        ]
        return xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-2).astype(vectors.dtype)

    def wrong(xp, vectors, eps=1e-4):
        check(vectors)

        def factors(square):
            angle = xp.sqrt(xp.maximum(square, eps))
            return xp.sin(angle) / angle, (1.0 - xp.cos(angle)) / (angle * angle)

        return matrix(xp, vectors, factors)

    def right(xp, vectors, eps=1e-4):
        check(vectors)

        def factors(square):
            angle = xp.sqrt(xp.maximum(square, eps))
            half = xp.sin(0.5 * angle) / angle
            small = square < eps
            return (
                xp.where(small, 1.0 - square / 6.0 + square * square / 120.0, xp.sin(angle) / angle),
                xp.where(small, 0.5 - square / 24.0 + square * square / 720.0, 2.0 * half * half),
            )

        return matrix(xp, vectors, factors)

    def reference(vectors, eps=1e-4):
        check(vectors)
        out = np.empty((*vectors.shape, 3))
        for i in np.ndindex(vectors.shape[:-1]):
            x, y, z = vectors[i]
            cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
            angle = np.sqrt(x * x + y * y + z * z)
            out[i] = np.eye(3) + np.sinc(angle / np.pi) * cross + 0.5 * np.sinc(angle / 2 / np.pi) ** 2 * cross @ cross
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="so3_exp_map",
            dtypes=("float32", "float64"),
            result_dtype=lambda vectors: vectors,
            samples=lambda make: [
                make((20, 3), low=-2, high=2),
                make((3,), low=-2, high=2),
                make((2, 5, 3), low=-0.5, high=0.5),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((4, 2)), ValueError, "give")],
        )

    return wrong, right, declare


@pair(
    "image_correlation",
    "pixels are paired in the order of memory",
    'ravel(order="A") and order="K" as a cheap flatten: two arrays of different layout are paired wrongly',
    "one image in Fortran order and the other in C order, both two-dimensional",
)
def image_correlation():
    """Pearson's correlation of the pixels of two images; NaN if one is constant."""

    def check(a, b):
        if a.shape != b.shape:
            raise ValueError(f"shapes are {a.shape} and {b.shape}; give equal ones")
        if a.size == 0:
            raise ValueError("no pixels")

    def correlate(xp, a, b, dtype):
        constant = (a.max() == a.min()) | (b.max() == b.min())
        a, b = a - a.mean(), b - b.mean()
        r = (a * b).sum() / xp.sqrt((a * a).sum()) / xp.sqrt((b * b).sum())
        return xp.where(constant, math.nan, r).astype(dtype)

    def wrong(xp, a, b):
        check(a, b)
        return correlate(xp, a.ravel(order="A").astype("float64"), b.ravel(order="A").astype("float64"), a.dtype)

    def right(xp, a, b):
        check(a, b)
        return correlate(xp, a.ravel().astype("float64"), b.ravel().astype("float64"), a.dtype)

    def reference(a, b):
        check(a, b)
        a, b = a.ravel(), b.ravel()
        if a.max() == a.min() or b.max() == b.min():
            return np.array(math.nan)
        a, b = a - a.mean(), b - b.mean()
        return np.array((a * b).sum() / np.sqrt((a * a).sum()) / np.sqrt((b * b).sum()))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="image_correlation",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: a,
            samples=lambda make: [
                (make((12, 17)), make((12, 17))),
                (make((3, 8, 9), low=0, high=255), make((3, 8, 9), low=0, high=255)),
                (make(50), make(50)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((3, 4)), make((4, 3))), ValueError, "shapes are")],
        )

    return wrong, right, declare


@pair(
    "remove_trend",
    "the work array is a view of the input in one case",
    "astype(copy=False) and reshape before an in-place update: scipy.signal.detrend, sklearn's copy=True",
    "a contiguous float64 array with the last axis: the input itself loses its trend",
)
def remove_trend():
    """Rows along an axis less the line fitted to them by least squares."""

    def subtract(a, rows, n, axis, xp):
        t = xp.arange(n, dtype="float64") - 0.5 * (n - 1)
        slope = (rows * t).sum(axis=-1, keepdims=True) / max(n * (n * n - 1) / 12, 1)
        mean = rows.mean(axis=-1, keepdims=True)
        rows -= mean
        rows -= slope * t
        shape = xp.moveaxis(a, axis, -1).shape
        return xp.moveaxis(rows.reshape(shape), -1, axis).astype(a.dtype)

    def wrong(xp, a, axis=-1):
        if a.size == 0:
            return a.copy()
        n = a.shape[axis]
        rows = xp.moveaxis(a.astype("float64", copy=False), axis, -1).reshape(-1, n)
        return subtract(a, rows, n, axis, xp)

    def right(xp, a, axis=-1):
        if a.size == 0:
            return a.copy()
        n = a.shape[axis]
        rows = xp.moveaxis(a.astype("float64"), axis, -1).reshape(-1, n)
        return subtract(a, rows, n, axis, xp)

    def reference(a, axis=-1):
        if a.size == 0:
            return a.copy()
        n = a.shape[axis]
        t = np.arange(n) - 0.5 * (n - 1)

        def residual(row):
            return (row - row.mean()) - (row * t).sum() / max((t * t).sum(), 1) * t

        return np.apply_along_axis(residual, axis, a)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="remove_trend",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(30),
                make((4, 21)),
                Sample((make((3, 16, 2)),), {"axis": 1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dct",
    "a cached basis keyed without the norm",
    "plan and filter caches keyed by the length alone, as in FFT plan caches and torchaudio's and librosa's DCT bases",
    'a call with norm=None and then one with norm="ortho" of the same length: the second is not scaled',
)
def dct():
    """Discrete cosine transform of type 2 along the last axis, as scipy.fft.dct."""

    def check(norm):
        if norm not in (None, "ortho"):
            raise ValueError(f"norm is {norm!r}; give None or 'ortho'")

    def basis(n, norm):
        k, j = np.arange(n)[:, None], np.arange(n)[None, :]
        out = 2.0 * np.cos(np.pi * (k * (2 * j + 1) % (4 * n)) / (2 * n))
        if norm == "ortho":
            out *= np.where(k == 0, math.sqrt(1 / (4 * n)), math.sqrt(1 / (2 * n)))
        return out

    def transform(xp, a, matrix):
        return (a.astype("float64")[..., None, :] * xp.asarray(matrix)).sum(axis=-1).astype(a.dtype)

    bases = {}

    def wrong(xp, a, norm=None):
        check(norm)
        n = a.shape[-1]
        if n not in bases:
            bases[n] = basis(n, norm)
        return transform(xp, a, bases[n])

    def right(xp, a, norm=None):
        check(norm)
        n = a.shape[-1]
        if (n, norm) not in bases:
            bases[n, norm] = basis(n, norm)
        return transform(xp, a, bases[n, norm])

    def reference(a, norm=None):
        check(norm)
        n = a.shape[-1]
        out = np.empty(a.shape)
        for k in range(n):
            angles = np.pi * (k * (2 * np.arange(n) + 1) % (4 * n)) / (2 * n)
            scale = 1.0 if norm is None else math.sqrt(1 / ((4 if k == 0 else 2) * n))
            out[..., k] = (a * (2.0 * np.cos(angles) * scale)).sum(axis=-1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dct",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(16),
                make((3, 20)),
                Sample((make((2, 4, 13)),), {"norm": "ortho"}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(6),), {"norm": "max"}), ValueError, "norm is 'max'")],
        )

    return wrong, right, declare
