"""Filters, windows, interpolation, statistics, dates, colour, images, simulation: faults with their twins."""

import colorsys
import datetime
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.signal

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
    "fourier_resample",
    "the Nyquist bin of an even length keeps its full weight when the signal gets longer",
    "scipy.signal.resample before 1.1: the unpaired bin of an even length was not halved for a longer result",
    "an alternating signal of 8 numbers made 12 long: the Nyquist part has twice its amplitude; odd lengths are right",
)
def fourier_resample():
    """Real signals along the last axis in `num` samples, by the Fourier method."""

    def resample(xp, a, num, halve):
        n = a.shape[-1]
        if n < 1 or num < 1:
            raise ValueError(f"{n} samples cannot become {num}; both must be 1 or more")
        kept = min(n, num)
        bins = kept // 2 + 1
        spectrum = xp.fft.rfft(a.astype("float64"), axis=-1)
        result = xp.zeros((*a.shape[:-1], num // 2 + 1), dtype="complex128")
        result[..., :bins] = spectrum[..., :bins]
        if kept % 2 == 0:
            if num < n:
                result[..., bins - 1] *= 2.0
            elif n < num and halve:
                result[..., bins - 1] *= 0.5
        return (xp.fft.irfft(result, n=num, axis=-1) * (num / n)).astype(a.dtype)

    def wrong(xp, a, num=50):
        return resample(xp, a, num, halve=False)

    def right(xp, a, num=50):
        return resample(xp, a, num, halve=True)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fourier_resample",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 33)),
                Sample((make(64),), {"num": 40}),
                Sample((make((2, 5, 21)),), {"num": 27}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"num": 0}), ValueError, "become 0")],
            reference=lambda a, num=50: scipy.signal.resample(a, num, axis=-1),
        )

    return wrong, right, declare


@pair(
    "monotone_slopes",
    "the product of two small steps underflows and counts as a change of direction",
    "PCHIP slopes written as where(d0 * d1 > 0, ...); scipy's PchipInterpolator compares signs for this reason",
    "float16 [0, 1e-4, 2e-4, 3e-4], or float32 steps of 1e-24: interior slopes are 0 instead of the step",
)
def monotone_slopes():
    """Slopes at the knots of a monotone cubic with unit spacing: harmonic means of the steps on both sides."""

    def slopes(xp, a, turns):
        if a.shape[-1] < 2:
            return xp.zeros_like(a)
        steps = a[..., 1:] - a[..., :-1]
        before, after = steps[..., :-1], steps[..., 1:]
        smaller = abs(before) < abs(after)
        small, big = xp.where(smaller, before, after), xp.where(smaller, after, before)
        big = xp.where(big == 0, xp.ones_like(big), big)
        mean = small * (2 / (1 + small / big))
        inner = xp.where(turns(xp, before, after), xp.zeros_like(mean), mean)
        return xp.concatenate([steps[..., :1], inner, steps[..., -1:]], axis=-1)

    def wrong(xp, a):
        return slopes(xp, a, lambda xp, before, after: before * after <= 0)

    def right(xp, a):
        return slopes(xp, a, lambda xp, before, after: xp.sign(before) * xp.sign(after) <= 0)

    def reference(a):
        out = np.zeros(a.shape)
        if a.shape[-1] < 2:
            return out
        for i in np.ndindex(a.shape[:-1]):
            steps = np.diff(a[i])
            out[i][0], out[i][-1] = steps[0], steps[-1]
            for j in range(1, len(steps)):
                one, two = sorted(steps[j - 1 : j + 1], key=abs)
                if not np.sign(one) * np.sign(two) <= 0:
                    out[i][j] = 2 * one / (1 + one / two)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="monotone_slopes",
            dtypes=("float16", "float32"),
            samples=lambda make: [make(40), make((3, 17)), Sample((make((2, 0)),), kind="empty")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "nan_quantile",
    "interpolation between infinities gives NaN",
    "numpy.quantile and nanquantile: lo + (hi - lo) * t is NaN where a neighbour is infinite",
    "[1, inf, inf] with q=0.5 gives NaN instead of inf, and [1, 2, inf] NaN instead of 2; finite numbers are right",
)
def nan_quantile():
    """The q-quantile along the last axis without the NaN; NaN where nothing is left."""

    def around(xp, a, q):
        if not 0 <= q <= 1:
            raise ValueError(f"q is {q}; give 0 to 1")
        if a.shape[-1] == 0:
            a = xp.full((*a.shape[:-1], 1), math.nan, dtype=a.dtype)
        count = (~xp.isnan(a)).sum(axis=-1, keepdims=True)
        place = q * xp.maximum(count - 1, 0).astype("float64")
        low = xp.floor(place).astype("int64")
        high = xp.minimum(low + 1, xp.maximum(count - 1, 0))
        ordered = xp.sort(a, axis=-1).astype("float64")
        lower, upper = xp.take_along_axis(ordered, low, axis=-1), xp.take_along_axis(ordered, high, axis=-1)
        return lower[..., 0], upper[..., 0], (place - low)[..., 0]

    def wrong(xp, a, q=0.5):
        lower, upper, t = around(xp, a, q)
        return (lower + (upper - lower) * t).astype(a.dtype)

    def right(xp, a, q=0.5):
        lower, upper, t = around(xp, a, q)
        between = lower * (1 - t) + upper * t
        return xp.where((t == 0) | (lower == upper), lower, between).astype(a.dtype)

    def reference(a, q=0.5):
        out = np.full(a.shape[:-1], math.nan)
        for i in np.ndindex(out.shape):
            values = sorted(x for x in a[i].tolist() if not math.isnan(x))
            if values:
                t, low = math.modf(q * (len(values) - 1))
                lower, upper = (values[int(low)], *values[int(low) + 1 :][:1], math.nan)[:2]
                out[i] = lower if t == 0 or lower == upper else lower * (1 - t) + upper * t
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nan_quantile",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 9)),
                Sample((make((3, 2, 12)),), {"q": 0.9}),
                Sample((make.of([[1.0, math.nan, 3.0, 2.5], [math.nan] * 4]),), {"q": 0.25}),
                Sample((make((3, 0)),), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"q": 1.5}), ValueError, "q is 1.5")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "iso_week",
    "leap years that begin on a Thursday lose their week 53",
    "hand-written week numbers that test only whether 31 December is a Thursday; date libraries had such week 53 bugs",
    "1 January 2005 (day 12784) is in week 53 of 2004 and gets 52; 31 December 2004 gets 1",
)
def iso_week():
    """The ISO 8601 week number of days since 1970-01-01."""

    def week(xp, days, long_year):
        days = days.astype("int64")
        shifted = days + 719468
        era = shifted // 146097
        within = shifted - era * 146097
        years = (within - within // 1460 + within // 36524 - within // 146096) // 365
        day_of_march_year = within - (365 * years + years // 4 - years // 100)
        year = years + era * 400 + (day_of_march_year >= 306)
        before = year - 1
        new_year = 365 * (year - 1970) + before // 4 - before // 100 + before // 400 - 477
        weekday = (days + 3) % 7 + 1
        number = (days - new_year + 1 - weekday + 10) // 7
        number = xp.where(number < 1, 52 + long_year(year - 1), number)
        this_year = (number > 52 + long_year(year)) & (days - new_year > 300)
        return xp.where(this_year, 1, number).astype("int64")

    def last_weekday(year):
        return (year + year // 4 - year // 100 + year // 400) % 7

    def wrong(xp, days):
        return week(xp, days, lambda year: (last_weekday(year) == 4).astype("int64"))

    def right(xp, days):
        return week(xp, days, lambda year: ((last_weekday(year) == 4) | (last_weekday(year - 1) == 3)).astype("int64"))

    def reference(days):
        start = datetime.date(1970, 1, 1).toordinal()
        weeks = [datetime.date.fromordinal(start + int(day)).isocalendar()[1] for day in days.ravel()]
        return np.array(weeks, dtype="int64").reshape(days.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="iso_week",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make(50, low=-20000, high=40000),
                make((6, 40), low=0, high=30000),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rgb_from_hsv",
    "a hue of exactly 1 belongs to no sector",
    "skimage.color.hsv2rgb and many kernels: floor(h * 6) is 6 for h = 1; colorsys takes it modulo 6",
    "h = 1, s = 1, v = 1 is black instead of red; every hue below 1 is right",
)
def rgb_from_hsv():
    """HSV to RGB along the last axis; all numbers from 0 to 1."""

    def convert(xp, hsv, wrap):
        if hsv.shape[-1] != 3:
            raise ValueError(f"the last axis has {hsv.shape[-1]} entries; give 3")
        h, s, v = hsv[..., 0] * 6, hsv[..., 1], hsv[..., 2]
        whole = xp.floor(h)
        f = h - whole
        sector = whole.astype("int32")
        if wrap:
            sector = sector % 6
        p, q, t = v * (1 - s), v * (1 - s * f), v * (1 - s * (1 - f))
        tables = ((v, q, p, p, t, v), (t, v, v, q, p, p), (p, p, t, v, v, q))
        channels = []
        for table in tables:
            channel = xp.zeros_like(v)
            for number, values in enumerate(table):
                channel = xp.where(sector == number, values, channel)
            channels.append(channel)
        return xp.stack(channels, axis=-1)

    def wrong(xp, hsv):
        return convert(xp, hsv, wrap=False)

    def right(xp, hsv):
        return convert(xp, hsv, wrap=True)

    def reference(hsv):
        return np.array([colorsys.hsv_to_rgb(*pixel) for pixel in hsv.reshape(-1, 3)]).reshape(hsv.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rgb_from_hsv",
            dtypes=("float32", "float64"),
            samples=lambda make: [make((20, 3), low=0, high=1), make((5, 6, 3), low=0, high=1)],
            error_inputs=lambda make: [ErrorInput(Sample((make((4, 2)),)), ValueError, "2 entries")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "exponential_filter",
    "the caller's initial state is overwritten where no conversion copies it",
    "scipy.signal.sosfilt once wrote to the caller's zi; astype(copy=False) copies for float32 only",
    "float64: the same call twice; the first changes zi, so the second starts from another state",
)
def exponential_filter():
    """y[t] = alpha * a[t] + (1 - alpha) * y[t - 1] along the last axis, with y[-1] = zi for each channel."""

    def run(xp, a, state, alpha):
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha is {alpha}; give more than 0 and at most 1")
        if a.shape[-1] == 0:
            return a.copy()
        results = []
        for t in range(a.shape[-1]):
            state *= 1 - alpha
            state += alpha * a[..., t]
            results.append(state.copy())
        return xp.stack(results, axis=-1).astype(a.dtype)

    def wrong(xp, a, zi, alpha=0.25):
        return run(xp, a, zi.astype("float64", copy=False), alpha)

    def right(xp, a, zi, alpha=0.25):
        return run(xp, a, zi.astype("float64"), alpha)

    def reference(a, zi, alpha=0.25):
        if not a.size:
            return a
        return scipy.signal.lfilter([alpha], [1, alpha - 1], a, axis=-1, zi=(1 - alpha) * zi[..., None])[0]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="exponential_filter",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((4, 12)), make(4)),
                Sample((make((2, 3, 9)), make((2, 3))), {"alpha": 0.8}),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 4)), make(2)), {"alpha": 0}), ValueError, "alpha is 0")
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "box_filter",
    "a window that reaches further than the signal is long is reflected only once",
    "hand-written filter kernels that reflect an index once; numpy.pad and scipy.ndimage repeat it for short arrays",
    "a signal of 2 numbers with size 9; every signal of at least size // 2 numbers is right",
)
def box_filter():
    """The running mean of `size` numbers along the last axis; the ends are reflected, (b a | a b c | c b)."""

    def places(xp, a, size):
        if size % 2 == 0 or size < 1:
            raise ValueError(f"size is {size}; give an odd number")
        if a.shape[-1] == 0:
            raise ValueError("the signal is empty")
        return xp.arange(a.shape[-1])[:, None] + xp.arange(size)[None, :] - size // 2

    def wrong(xp, a, size=5):
        i, n = places(xp, a, size), a.shape[-1]
        i = xp.where(i < 0, -1 - i, i)
        i = xp.clip(xp.where(i >= n, 2 * n - 1 - i, i), 0, n - 1)
        return a[..., i].mean(axis=-1)

    def right(xp, a, size=5):
        i, n = places(xp, a, size) % (2 * a.shape[-1]), a.shape[-1]
        return a[..., xp.where(i >= n, 2 * n - 1 - i, i)].mean(axis=-1)

    def reference(a, size=5):
        pads = [(0, 0)] * (a.ndim - 1) + [(size // 2, size // 2)]
        wide = np.pad(a, pads, mode="symmetric")
        return sum(wide[..., k : k + a.shape[-1]] for k in range(size)) / size

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="box_filter",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(33),
                Sample((make((3, 40)),), {"size": 9}),
                Sample((make((2, 2, 12)),), {"size": 15}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"size": 4}), ValueError, "size is 4")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "sample_slope",
    "differences of integers wrap around before they become floating point",
    "older numpy.gradient subtracted unsigned integers in their own dtype; LLM-written ports do it for all integers",
    "int16 sound that goes from 30000 to -30000: the slope has the wrong sign; quiet sound is right",
)
def sample_slope():
    """The derivative of evenly sampled data along the last axis, with central differences; integers give float64."""

    def slope(xp, a, rate, dtype):
        if a.shape[-1] < 2:
            raise ValueError(f"{a.shape[-1]} samples have no slope; give 2 or more")
        first = (a[..., 1:2] - a[..., :1]).astype(dtype) * rate
        inner = (a[..., 2:] - a[..., :-2]).astype(dtype) * (rate / 2)
        last = (a[..., -1:] - a[..., -2:-1]).astype(dtype) * rate
        return xp.concatenate([first, inner, last], axis=-1)

    def wrong(xp, a, rate=1.0):
        return slope(xp, a, rate, a.dtype if a.dtype.kind == "f" else "float64")

    def right(xp, a, rate=1.0):
        dtype = a.dtype if a.dtype.kind == "f" else "float64"
        return slope(xp, a.astype(dtype), rate, dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sample_slope",
            dtypes=("int16", "int32", "float32"),
            result_dtype=lambda a: a if a.startswith("float") else "float64",
            samples=lambda make: [make(64), Sample((make((3, 40)),), {"rate": 48000.0})],
            error_inputs=lambda make: [ErrorInput(Sample((make(1),)), ValueError, "1 samples")],
            reference=lambda a, rate=1.0: np.gradient(a.astype("float64"), 1 / rate, axis=-1),
        )

    return wrong, right, declare


@pair(
    "cell_index",
    "a tiny negative position is wrapped to the far edge itself and gets a cell that does not exist",
    "cell lists of molecular dynamics: x - box * floor(x / box) can round to box itself, so the cell needs a clamp",
    "x = -1e-17 in a box of 8 with 16 cells: cell 16 instead of 15",
)
def cell_index():
    """The cell of each position in a periodic box that is cut into `cells` cells."""

    def wrong(xp, x, box=8.0, cells=16):
        x = x.astype("float64")
        inside = x - box * xp.floor(x / box)
        return xp.floor(inside * (cells / box)).astype("int64")

    def right(xp, x, box=8.0, cells=16):
        return xp.minimum(wrong(xp, x, box, cells), cells - 1)

    def reference(x, box=8.0, cells=16):
        return np.floor(x * (cells / box)).astype("int64") % cells

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cell_index",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make((20, 3), low=-100, high=100),
                Sample((make(50, low=0, high=4),), {"box": 4.0, "cells": 8}),
                Sample((make((4, 3), low=-8, high=8),), {"cells": 32}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "nearest_resize",
    "centres halfway between two pixels are rounded to the even one",
    "ports of torch's nearest-exact mode: rint((i + 0.5) * scale - 0.5) in place of floor((i + 0.5) * scale)",
    "6 columns made 3: columns 0, 2, 4 instead of 1, 3, 5; most other pairs of sizes have no ties and are right",
)
def nearest_resize():
    """Images (..., rows, columns) resized to the pixel in which the centre of the new one lies."""

    def check(rows, columns, a):
        if min(rows, columns, *a.shape[-2:]) < 1:
            raise ValueError(f"cannot resize {a.shape} to {rows} x {columns}")

    def wrong(xp, a, rows=5, columns=7):
        check(rows, columns, a)

        def places(n, m):
            return xp.clip(xp.rint((xp.arange(m) + 0.5) * n / m - 0.5).astype("int64"), 0, n - 1)

        return a[..., places(a.shape[-2], rows)[:, None], places(a.shape[-1], columns)]

    def right(xp, a, rows=5, columns=7):
        check(rows, columns, a)

        def places(n, m):
            return (2 * xp.arange(m) + 1) * n // (2 * m)

        return a[..., places(a.shape[-2], rows)[:, None], places(a.shape[-1], columns)]

    def reference(a, rows=5, columns=7):
        check(rows, columns, a)
        for axis, m in ((-2, rows), (-1, columns)):
            scale = Fraction(a.shape[axis], m)
            a = np.take(a, [math.floor((i + Fraction(1, 2)) * scale) for i in range(m)], axis=axis)
        return a

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nearest_resize",
            dtypes=("uint8", "float32"),
            samples=lambda make: [
                make((9, 12)),
                Sample((make((2, 11, 8)),), {"rows": 16, "columns": 20}),
                Sample((make((3, 15, 7)),), {"rows": 4}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make((4, 4)),), {"rows": 0}), ValueError, "to 0 x 7")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "decimate_mean",
    "the array is flattened in memory order",
    "wrappers of CuPy raw kernels that call ravel(order='K') to save a copy; it is not the order of the indices",
    "a transposed array of several rows, or one in Fortran order: numbers of other rows are averaged",
)
def decimate_mean():
    """Means of `factor` neighbours along the last axis, and their number shrinks by that factor; a rest is dropped."""

    def finish(xp, a, order, factor):
        if factor < 1:
            raise ValueError(f"factor is {factor}; give 1 or more")
        count = a.shape[-1] // factor
        flat = a[..., : count * factor].ravel(order=order)
        return flat.reshape(*a.shape[:-1], count, factor).mean(axis=-1)

    def wrong(xp, a, factor=4):
        return finish(xp, a, "K", factor)

    def right(xp, a, factor=4):
        return finish(xp, a, "C", factor)

    def reference(a, factor=4):
        count = a.shape[-1] // factor
        return (
            sum((a[..., k : count * factor : factor] for k in range(factor)), np.zeros((*a.shape[:-1], count))) / factor
        )

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="decimate_mean",
            dtypes=("float32", "float64"),
            samples=lambda make: [make((3, 32)), make(41), Sample((make((2, 4, 18)),), {"factor": 3})],
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"factor": 0}), ValueError, "factor is 0")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "kaiser_taper",
    "windows are kept by length and beta, but not by whether they are symmetric",
    "a memo of windows whose key leaves out an option, as in get_window caches of audio libraries",
    "64 numbers with sym=True, then 64 numbers with sym=False and the same beta: the second gets the first's window",
)
def kaiser_taper():
    """The array times a Kaiser window along its last axis; sym=False makes the window periodic, for FFTs."""

    def window(n, beta, sym):
        if n <= 1:
            return np.ones(n)
        return np.kaiser(n, beta) if sym else np.kaiser(n + 1, beta)[:-1]

    kept = {}

    def wrong(xp, a, beta=8.6, sym=True):
        key = (a.shape[-1], beta)
        if key not in kept:
            kept[key] = window(*key, sym)
        return a * xp.asarray(kept[key].astype(a.dtype))

    kept_right = {}

    def right(xp, a, beta=8.6, sym=True):
        key = (a.shape[-1], beta, sym)
        if key not in kept_right:
            kept_right[key] = window(*key)
        return a * xp.asarray(kept_right[key].astype(a.dtype))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="kaiser_taper",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(64),
                Sample((make((3, 50)),), {"beta": 5.0, "sym": False}),
                Sample((make((2, 2, 31)),), {"beta": 14.0}),
            ],
            reference=lambda a, beta=8.6, sym=True: a * scipy.signal.windows.kaiser(a.shape[-1], beta, sym=sym),
        )

    return wrong, right, declare
