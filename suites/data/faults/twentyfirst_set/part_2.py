"""Signals, histograms, bits, calendar, images, graphs, finance, angles, physics: faults with their twins."""

import datetime
import math
from collections.abc import Callable
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
    "fft_resample",
    "a missing branch for one parity of the size and one direction",
    "scipy.signal.resample (#7278, #7584) and cusignal (#517): the Nyquist bin when the smaller size is even",
    "a length above num with num even, as 40 samples to 32: the highest frequency has half its amplitude",
)
def fft_resample():
    """A real signal resampled to `num` points by its spectrum, along the last axis, as scipy.signal.resample does."""

    def check(a, num):
        if num < 1:
            raise ValueError(f"num is {num}; give 1 or more")
        if a.shape[-1] == 0:
            raise ValueError("the signal is empty")

    def resample(xp, a, num, nyquist):
        check(a, num)
        count = a.shape[-1]
        spectrum = xp.fft.rfft(a.astype("float64"), axis=-1)
        fewer = min(count, num)
        kept = spectrum[..., : fewer // 2 + 1]
        factors = np.ones(fewer // 2 + 1)
        if fewer % 2 == 0:
            factors[-1] = nyquist(count, num)
        kept = kept * xp.asarray(factors)
        missing = num // 2 + 1 - kept.shape[-1]
        if missing:
            zeros = xp.zeros((*kept.shape[:-1], missing), dtype=kept.dtype)
            kept = xp.concatenate([kept, zeros], axis=-1)
        return (xp.fft.irfft(kept, n=num, axis=-1) * (num / count)).astype(a.dtype)

    def wrong(xp, a, num=32):
        return resample(xp, a, num, lambda count, num: 0.5 if num > count else 1.0)

    def right(xp, a, num=32):
        return resample(xp, a, num, lambda count, num: 0.5 if num > count else 2.0 if num < count else 1.0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fft_resample",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(25, low=-100, high=100),
                Sample((make((3, 24), low=-100, high=100),), {"num": 40}),
                Sample((make(30, low=-100, high=100),), {"num": 15}),
            ],
            reference=lambda a, num=32: scipy.signal.resample(a, num, axis=-1),
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9),), {"num": 0}), ValueError, "num is 0"),
                ErrorInput(Sample((make((2, 0)),)), ValueError, "empty"),
            ],
        )

    return wrong, right, declare


@pair(
    "bin_counts",
    "a value on an inner edge goes to the neighbouring bin",
    "torch.histc (#68946), fast-histogram (#63): the bin is computed by a product, not compared with the edges",
    "0.3 with 10 bins from 0 to 1 is below the edge 0.30000000000000004, yet is counted in the bin above it",
)
def bin_counts():
    """Counts in equal bins between two bounds, as numpy.histogram(a, bins, (start, stop)) gives."""

    def prepare(xp, a, bins, start, stop):
        if bins < 1:
            raise ValueError(f"bins is {bins}; give 1 or more")
        if not start < stop:
            raise ValueError(f"start {start} is not below stop {stop}")
        values = a.reshape(-1).astype("float64")
        return values[(values >= start) & (values <= stop)]

    def wrong(xp, a, bins=10, start=0.0, stop=1.0):
        values = prepare(xp, a, bins, start, stop)
        places = xp.floor((values - start) * (bins / (stop - start))).astype("int64")
        return xp.bincount(xp.minimum(places, bins - 1), minlength=bins)

    def right(xp, a, bins=10, start=0.0, stop=1.0):
        values = prepare(xp, a, bins, start, stop)
        edges = xp.asarray(np.linspace(start, stop, bins + 1))
        places = xp.searchsorted(edges, values, side="right").astype("int64") - 1
        return xp.bincount(xp.minimum(places, bins - 1), minlength=bins)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bin_counts",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(200),
                make((9, 14), low=0, high=1),
                Sample((make(150),), {"bins": 7, "start": -3.0, "stop": 3.0}),
                Sample((make((5, 20)),), {"bins": 12, "start": -0.5, "stop": 0.7}),
                Sample((make((0,)),), kind="empty"),
            ],
            reference=lambda a, bins=10, start=0.0, stop=1.0: np.histogram(a, bins, (start, stop))[0],
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9),), {"bins": 0}), ValueError, "bins is 0"),
                ErrorInput(Sample((make(9),), {"start": 1.0}), ValueError, "not below"),
            ],
        )

    return wrong, right, declare


@pair(
    "pack_flags",
    "a wrong axis rule: swapped on the way in, moved on the way out",
    "swapaxes mixed with moveaxis/rollaxis, as in early axis= arguments of SciPy's fftpack and CuPy's packbits ports",
    "three dimensions and axis=0: the other two axes come back exchanged",
)
def pack_flags():
    """Eight flags to a byte along an axis, as numpy.packbits packs them."""

    def pack(xp, flags, bitorder):
        if bitorder not in ("big", "little"):
            raise ValueError(f"bitorder is {bitorder!r}; give 'big' or 'little'")
        bits = (flags != 0).astype("uint8")
        count = bits.shape[-1]
        size = -(-count // 8)
        if size * 8 != count:
            padding = xp.zeros((*bits.shape[:-1], size * 8 - count), dtype="uint8")
            bits = xp.concatenate([bits, padding], axis=-1)
        places = [7, 6, 5, 4, 3, 2, 1, 0] if bitorder == "big" else [0, 1, 2, 3, 4, 5, 6, 7]
        weights = xp.asarray([1 << place for place in places], dtype="int64")
        groups = bits.reshape((*bits.shape[:-1], size, 8))
        return (groups.astype("int64") * weights).sum(axis=-1).astype("uint8")

    def wrong(xp, flags, axis=-1, bitorder="big"):
        return xp.moveaxis(pack(xp, xp.swapaxes(flags, axis, -1), bitorder), -1, axis)

    def right(xp, flags, axis=-1, bitorder="big"):
        return xp.moveaxis(pack(xp, xp.moveaxis(flags, axis, -1), bitorder), -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pack_flags",
            dtypes=("uint8", "int32"),
            result_dtype="uint8",
            samples=lambda make: [
                make(19, low=0, high=1),
                Sample((make((21, 4), low=0, high=1),), {"axis": 0}),
                Sample((make((3, 17, 5), low=0, high=1),), {"axis": 1, "bitorder": "little"}),
                make((2, 3, 24), low=0, high=9),
            ],
            reference=lambda flags, axis=-1, bitorder="big": np.packbits(flags != 0, axis=axis, bitorder=bitorder),
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9, low=0, high=1),), {"bitorder": "middle"}), ValueError, "bitorder is"),
            ],
        )

    return wrong, right, declare


@pair(
    "add_months",
    "a rare calendar case: the length of February is taken from the year of the start",
    "month arithmetic with a February that is not the target year's: spacetime (#461), Lumenize (#8), cuDF's ports",
    "2019-01-31 and 13 months: 2020-02-28 where the answer is 2020-02-29; 2020-01-31 gives 2021-03-01",
)
def add_months():
    """Days since 1970-01-01 moved by whole months; a day that the month lacks becomes its last day."""

    lengths = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

    def civil(days):
        days = days.astype("int64") + 719468
        era = days // 146097
        of_era = days - era * 146097
        year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
        of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
        shifted = (5 * of_year + 2) // 153
        day = of_year - (153 * shifted + 2) // 5 + 1
        month = (shifted + 2) % 12 + 1
        return year_of_era + era * 400 + (month <= 2), month, day

    def count(year, month, day):
        year = year - (month <= 2)
        era = year // 400
        of_era = year - era * 400
        of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
        return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468

    def leap(year):
        return ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)

    def move(xp, days, months):
        year, month, day = civil(days)
        total = year * 12 + (month - 1) + months
        return year, total // 12, total % 12 + 1, day

    def finish(xp, days, year, month, day, long):
        limit = xp.take(xp.asarray(lengths, dtype="int64"), month - 1) + ((month == 2) & long)
        return count(year, month, xp.minimum(day, limit)).astype(days.dtype)

    def wrong(xp, days, months=1):
        start, year, month, day = move(xp, days, months)
        return finish(xp, days, year, month, day, leap(start))

    def right(xp, days, months=1):
        _, year, month, day = move(xp, days, months)
        return finish(xp, days, year, month, day, leap(year))

    def reference(days, months=1):
        out = np.empty(days.shape, dtype=days.dtype)
        epoch = datetime.date(1970, 1, 1)
        for i in np.ndindex(days.shape):
            start = epoch + datetime.timedelta(days=int(days[i]))
            years, month = divmod(start.month - 1 + months, 12)
            day = start.day
            while True:
                try:
                    moved = datetime.date(start.year + years, month + 1, day)
                    break
                except ValueError:
                    day -= 1
            out[i] = (moved - epoch).days
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="add_months",
            dtypes=("int32", "int64"),
            result_dtype=lambda days: days,
            samples=lambda make: [
                make(30, low=-40000, high=40000),
                Sample((make(5, low=-40000, high=40000),), {"months": 13}),
                Sample((make((4, 5), low=-40000, high=40000),), {"months": -1}),
                Sample((make(12, low=-40000, high=40000),), {"months": 48}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "kaiser_taper",
    "a cache keyed too coarsely",
    "window and plan caches keyed by the length without the shape parameter, as in torchaudio and librosa ports",
    "one length with two values of beta: the second call gets the window of the first",
)
def kaiser_taper():
    """A signal times a Kaiser window along the last axis; windows are kept on the host between calls."""

    def check(beta):
        if beta < 0:
            raise ValueError(f"beta is {beta}; give 0 or more")

    def tapered(xp, a, window):
        return (a.astype("float64") * xp.asarray(window)).astype(a.dtype)

    by_length: dict[int, Any] = {}
    by_both: dict[tuple[int, float], Any] = {}

    def wrong(xp, a, beta=8.6):
        check(beta)
        count = a.shape[-1]
        if count not in by_length:
            by_length[count] = np.kaiser(count, beta)
        return tapered(xp, a, by_length[count])

    def right(xp, a, beta=8.6):
        check(beta)
        count = a.shape[-1]
        if (count, beta) not in by_both:
            by_both[count, beta] = np.kaiser(count, beta)
        return tapered(xp, a, by_both[count, beta])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="kaiser_taper",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(64),
                Sample((make(51),), {"beta": 14.0}),
                Sample((make((3, 40)),), {"beta": 2.5}),
            ],
            reference=lambda a, beta=8.6: a * scipy.signal.windows.kaiser(a.shape[-1], beta, sym=True),
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"beta": -1.0}), ValueError, "beta is -1")],
        )

    return wrong, right, declare


@pair(
    "nan_anomaly",
    "the input is changed, in one dtype and only where there are NaNs",
    "bottleneck.nanmedian (#11), NaN functions that replace NaNs in what asarray(..., dtype) did not copy",
    "a float64 input with a NaN: after the call the NaN in the caller's array is 0",
)
def nan_anomaly():
    """Deviations from the mean of the numbers that are not NaN, along an axis; NaN stays NaN."""

    def finish(xp, a, filled, missing, axis):
        count = (~missing).astype("float64").sum(axis=axis, keepdims=True)
        mean = xp.where(count > 0, filled.sum(axis=axis, keepdims=True) / xp.maximum(count, 1.0), math.nan)
        return xp.where(missing, math.nan, filled - mean).astype(a.dtype)

    def wrong(xp, a, axis=-1):
        filled = xp.asarray(a, dtype="float64")
        missing = xp.isnan(filled)
        if bool(missing.any()):
            filled[missing] = 0.0
        return finish(xp, a, filled, missing, axis)

    def right(xp, a, axis=-1):
        wide = a.astype("float64")
        missing = xp.isnan(wide)
        return finish(xp, a, xp.where(missing, 0.0, wide), missing, axis)

    def reference(a, axis=-1):
        lines = np.moveaxis(a, axis, -1)
        out = np.full(lines.shape, math.nan)
        for i in np.ndindex(lines.shape[:-1]):
            numbers = lines[i][~np.isnan(lines[i])]
            if numbers.size:
                out[i] = lines[i] - numbers.mean()
        return np.moveaxis(out, -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nan_anomaly",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                Sample((make((7, 12)),), {"axis": 0}),
                Sample((make((3, 5, 8)),), {"axis": 1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "wrap_degrees",
    "the result is the input itself when there is nothing to do",
    "astropy's Angle.wrap_at and other shortcuts `if nothing needs wrapping`: what comes back shares memory",
    "an input within [-180, 180): the result is the same array, so that writing to it changes the input",
)
def wrap_degrees():
    """Angles moved into [-180, 180) by whole turns. The result is a new array."""

    def wrap(xp, a):
        wide = a.astype("float64")
        turned = wide - 360.0 * xp.floor((wide + 180.0) / 360.0)
        turned = xp.where(turned < -180.0, turned + 360.0, turned)
        turned = xp.where(turned >= 180.0, turned - 360.0, turned)
        return turned.astype(a.dtype)

    def wrong(xp, a):
        if bool(((a >= -180.0) & (a < 180.0)).all()):
            return a
        return wrap(xp, a)

    def right(xp, a):
        return wrap(xp, a)

    def reference(a):
        out = np.empty(a.shape)
        for i in np.ndindex(a.shape):
            turned = math.remainder(float(a[i]), 360.0) if math.isfinite(a[i]) else math.nan
            out[i] = -180.0 if turned == 180.0 else turned
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="wrap_degrees",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(60, low=-1000, high=1000),
                make((5, 9), low=-720, high=720),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "page_rank",
    "a missing branch for rows without entries",
    "PageRank of dangling nodes: cuGraph against NetworkX (#482), cassovary (#187), graphalytics (#90)",
    "a node without outgoing links: its rank is lost and the ranks no longer add up to 1",
)
def page_rank():
    """PageRank of the links in a mask, by weights; a node without links gives its rank to all nodes alike."""

    def check(weights, links, damping):
        if not 0 <= damping < 1:
            raise ValueError(f"damping is {damping}; give 0 or more and less than 1")
        if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or weights.shape != links.shape:
            raise ValueError("weights and links must be square and of one shape")

    def rank(xp, weights, links, damping, without):
        check(weights, links, damping)
        count = weights.shape[0]
        if count == 0:
            return xp.zeros((0,), dtype=weights.dtype)
        kept = xp.where(links, weights.astype("float64"), 0.0)
        total = kept.sum(axis=1, keepdims=True)
        steps = xp.where(total > 0, kept / xp.where(total > 0, total, 1.0), without(count))
        matrix = xp.eye(count, dtype="float64") - damping * steps.T
        start = xp.full((count, 1), (1 - damping) / count, dtype="float64")
        return xp.linalg.solve(matrix, start).reshape(-1).astype(weights.dtype)

    def wrong(xp, weights, links, damping=0.85):
        return rank(xp, weights, links, damping, lambda count: 0.0)

    def right(xp, weights, links, damping=0.85):
        return rank(xp, weights, links, damping, lambda count: 1.0 / count)

    def reference(weights, links, damping=0.85):
        count = len(weights)
        ranks = np.full(count, 1 / max(count, 1))
        for _ in range(400):
            following = np.full(count, (1 - damping) / max(count, 1))
            for node in range(count):
                targets = np.flatnonzero(links[node])
                if len(targets):
                    shares = weights[node, targets] / weights[node, targets].sum()
                    following[targets] += damping * ranks[node] * shares
                else:
                    following += damping * ranks[node] / count
            ranks = following
        return ranks

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="page_rank",
            dtypes=("float32", "float64"),
            result_dtype=lambda weights, links: weights,
            samples=lambda make: [
                (make((16, 16), low=0.5, high=2), make((16, 16), dtype="bool")),
                Sample((make((20, 20), low=0.5, high=4), make((20, 20), dtype="bool")), {"damping": 0.5}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((3, 3), low=0.5, high=2), make((3, 3), dtype="bool")), {"damping": 1.0}),
                    ValueError,
                    "damping is 1",
                ),
                ErrorInput(
                    Sample((make((3, 4), low=0.5, high=2), make((3, 4), dtype="bool"))), ValueError, "must be square"
                ),
            ],
        )

    return wrong, right, declare


@pair(
    "round_to_step",
    "state that a refused call leaves behind",
    "contexts set without try/finally: numpy.errstate-like settings, decimal contexts, JAX's enable_x64 on errors",
    "a call with mode='up' and step=0 is refused; the next call without a mode rounds up instead of to nearest",
)
def round_to_step():
    """Amounts in cents rounded to multiples of a step: to the nearest (ties to even), or down, or up, for one call."""

    def rounded(xp, amounts, step, mode):
        if step < 1:
            raise ValueError(f"step is {step}; give 1 or more")
        if mode not in ("nearest", "down", "up"):
            raise ValueError(f"mode is {mode!r}; give 'nearest', 'down' or 'up'")
        wide = amounts.astype("int64")
        times = wide // step
        left = wide - times * step
        if mode == "up":
            times = times + (left > 0)
        elif mode == "nearest":
            times = times + ((2 * left > step) | ((2 * left == step) & (times % 2 == 1)))
        return (times * step).astype(amounts.dtype)

    context_of_wrong = {"mode": "nearest"}
    context_of_right = {"mode": "nearest"}

    def wrong(xp, amounts, step=5, mode=None):
        before = context_of_wrong["mode"]
        if mode is not None:
            context_of_wrong["mode"] = mode
        result = rounded(xp, amounts, step, context_of_wrong["mode"])
        context_of_wrong["mode"] = before
        return result

    def right(xp, amounts, step=5, mode=None):
        before = context_of_right["mode"]
        if mode is not None:
            context_of_right["mode"] = mode
        try:
            return rounded(xp, amounts, step, context_of_right["mode"])
        finally:
            context_of_right["mode"] = before

    def reference(amounts, step=5, mode=None):
        out = np.empty(amounts.shape, dtype=amounts.dtype)
        for i in np.ndindex(amounts.shape):
            amount = int(amounts[i])
            if mode == "down":
                out[i] = math.floor(amount / step) * step
            elif mode == "up":
                out[i] = math.ceil(amount / step) * step
            else:
                out[i] = round(amount / step) * step
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="round_to_step",
            dtypes=("int32", "int64"),
            result_dtype=lambda amounts: amounts,
            samples=lambda make: [
                make(50, low=-100000, high=100000),
                Sample((make((6, 7), low=-100000, high=100000),), {"step": 100, "mode": "down"}),
                Sample((make(33, low=-100000, high=100000),), {"mode": "up"}),
                Sample((make((3, 11), low=-100000, high=100000),), {"step": 10}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=99),), {"step": 0, "mode": "up"}), ValueError, "step is 0"),
                ErrorInput(Sample((make(4, low=0, high=99),), {"step": 0}), ValueError, "step is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "savgol",
    "a wrong refusal for one combination of two options",
    "ports of scipy.signal.savgol_filter whose check is off by one: order must be less than window, not than window - 1",
    "window=5 with order=4, which interpolates: refused",
)
def savgol():
    """Savitzky-Golay smoothing along the last axis; ends are padded with their nearest number."""

    def smooth(xp, a, window, order):
        half = window // 2
        count = a.shape[-1]
        if count == 0:
            return a.copy()
        powers = (np.arange(-half, half + 1.0) / max(half, 1))[:, None] ** np.arange(order + 1)
        weights = np.linalg.pinv(powers)[0]
        wide = a.astype("float64")
        first = xp.repeat(wide[..., :1], half, axis=-1)
        last = xp.repeat(wide[..., -1:], half, axis=-1)
        padded = xp.concatenate([first, wide, last], axis=-1)
        total = xp.zeros(a.shape, dtype="float64")
        for place, weight in enumerate(weights):
            total = total + float(weight) * padded[..., place : place + count]
        return total.astype(a.dtype)

    def check(window, order, most):
        if window < 1 or window % 2 == 0:
            raise ValueError(f"window is {window}; give an odd number")
        if not 0 <= order <= most:
            raise ValueError(f"order is {order}; give less than window")

    def wrong(xp, a, window=7, order=2):
        check(window, order, window - 2)
        return smooth(xp, a, window, order)

    def right(xp, a, window=7, order=2):
        check(window, order, window - 1)
        return smooth(xp, a, window, order)

    def reference(a, window=7, order=2):
        if a.size == 0:
            return a.copy()
        return scipy.signal.savgol_filter(a, window, order, axis=-1, mode="nearest")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="savgol",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40, low=-100, high=100),
                Sample((make((3, 25), low=-100, high=100),), {"window": 5}),
                Sample((make(60, low=-100, high=100),), {"window": 9, "order": 4}),
                Sample((make((2, 31), low=-100, high=100),), {"order": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9),), {"window": 4}), ValueError, "window is 4"),
                ErrorInput(Sample((make(9),), {"window": 3, "order": 5}), ValueError, "order is 5"),
            ],
        )

    return wrong, right, declare


@pair(
    "bright_spots",
    "the dtype of a result without elements",
    "scikit-image's peak_local_max (#1731): another type of result where no peak is found",
    "an image without a spot above the threshold: coordinates of shape (0, 2) in float64, which cannot index",
)
def bright_spots():
    """Rows and columns of the inner pixels above a threshold and above their four neighbours, in int64, by rows."""

    def mark(image, threshold):
        if image.ndim != 2:
            raise ValueError(f"the image has {image.ndim} dimensions; give 2")
        middle = image[1:-1, 1:-1]
        above = (middle > image[:-2, 1:-1]) & (middle > image[2:, 1:-1])
        beside = (middle > image[1:-1, :-2]) & (middle > image[1:-1, 2:])
        return above & beside & (middle > threshold)

    def find(xp, marks):
        rows, columns = xp.nonzero(marks)
        return xp.stack([rows + 1, columns + 1], axis=-1).astype("int64")

    def wrong(xp, image, threshold=0.0):
        if min(image.shape, default=3) < 3 and image.ndim == 2:
            return xp.zeros((0, 2), dtype="int64")
        marks = mark(image, threshold)
        if not bool(marks.any()):
            return xp.zeros((0, 2))
        return find(xp, marks)

    def right(xp, image, threshold=0.0):
        if min(image.shape, default=3) < 3 and image.ndim == 2:
            return xp.zeros((0, 2), dtype="int64")
        return find(xp, mark(image, threshold))

    def reference(image, threshold=0.0):
        found = []
        for row in range(1, image.shape[0] - 1):
            for column in range(1, image.shape[1] - 1):
                around = [image[row - 1, column], image[row + 1, column], image[row, column - 1], image[row, column + 1]]
                if image[row, column] > threshold and all(image[row, column] > other for other in around):
                    found.append((row, column))
        return np.array(found, dtype="int64").reshape(-1, 2)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bright_spots",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make((12, 15)),
                Sample((make((9, 20)),), {"threshold": 0.5}),
                Sample((make((14, 14), low=0, high=255),), {"threshold": 128.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9),)), ValueError, "1 dimensions"),
            ],
        )

    return wrong, right, declare


@pair(
    "virial",
    "a fast path for dense arrays that does not compare their strides",
    "PyTorch's and CuPy's fast paths for dense arrays: each is C or F contiguous, but not both the same",
    "forces in C order and positions in Fortran order: elements of different places are multiplied",
)
def virial():
    """The sum of forces times positions over all particles and dimensions."""

    def check(forces, positions):
        if forces.shape != positions.shape:
            raise ValueError(f"shapes differ: {forces.shape} and {positions.shape}")

    def dense(a):
        return a.flags.c_contiguous or a.flags.f_contiguous

    def total(xp, forces, positions):
        return (forces.astype("float64") * positions.astype("float64")).sum().astype(forces.dtype)

    def wrong(xp, forces, positions):
        check(forces, positions)
        if dense(forces) and dense(positions):  # in the order of memory: no copy
            return total(xp, forces.ravel(order="K"), positions.ravel(order="K"))
        return total(xp, forces, positions)

    def right(xp, forces, positions):
        check(forces, positions)
        same = forces.strides == positions.strides
        if same and dense(forces) and dense(positions):
            return total(xp, forces.ravel(order="K"), positions.ravel(order="K"))
        return total(xp, forces, positions)

    def reference(forces, positions):
        return np.asarray(math.fsum(float(f) * float(p) for f, p in zip(forces.flat, positions.flat, strict=True)))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="virial",
            dtypes=("float32", "float64"),
            result_dtype=lambda forces, positions: forces,
            samples=lambda make: [
                (make((20, 3), low=-50, high=50), make((20, 3), low=-50, high=50)),
                (make((2, 9, 3), low=-50, high=50), make((2, 9, 3), low=-50, high=50)),
                (make(30, low=-50, high=50), make(30, low=-50, high=50)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 3)), make((3, 3)))), ValueError, "shapes differ"),
            ],
        )

    return wrong, right, declare
