"""Pooling, special functions, in-place writes, rotary tables, rotations, sorting, dates, spectra: faults with twins."""

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
    "avg_pool1d",
    "ceil_mode keeps a last window that starts behind the input, in the right padding",
    "PyTorch's pooling: with ceil_mode the last window must start inside the input or the left padding; several "
    "backends (MPS, ONNX export, AvgPool with count_include_pad=False) left that rule out and divided by zero",
    "5 elements, kernel 2, stride 2, padding 1, ceil_mode: a fourth output appears and is NaN, where there are three",
)
def avg_pool1d():
    """Averages of windows of the last axis; padding counts for nothing."""

    def check(a, kernel, stride, padding):
        if kernel < 1 or stride < 1:
            raise ValueError(f"kernel is {kernel} and stride is {stride}; give 1 or more")
        if not 0 <= padding <= kernel // 2:
            raise ValueError(f"padding is {padding}; give 0 to half of kernel")

    def pool(xp, a, kernel, stride, padding, windows):
        length = a.shape[-1]
        wide = a.astype("float64")
        right_side = max(0, (windows - 1) * stride + kernel - length - padding)
        parts = [xp.zeros((*a.shape[:-1], padding), dtype="float64"), wide]
        parts.append(xp.zeros((*a.shape[:-1], right_side), dtype="float64"))
        padded = xp.concatenate(parts, axis=-1)
        total = xp.zeros((*a.shape[:-1], windows), dtype="float64")
        for tap in range(kernel):
            total = total + padded[..., tap : tap + (windows - 1) * stride + 1 : stride][..., :windows]
        starts = xp.arange(windows) * stride
        counts = xp.minimum(starts + kernel, length + padding) - xp.maximum(starts, padding)
        return xp.where(counts > 0, total / xp.maximum(counts, 1), math.nan).astype(a.dtype)

    def wrong(xp, a, kernel=2, stride=None, padding=0, ceil_mode=False):
        stride = kernel if stride is None else stride
        check(a, kernel, stride, padding)
        room = a.shape[-1] + 2 * padding - kernel
        windows = max(0, (-(-room // stride) if ceil_mode else room // stride) + 1)
        if windows == 0:
            return xp.zeros((*a.shape[:-1], 0), dtype=a.dtype)
        return pool(xp, a, kernel, stride, padding, windows)

    def right(xp, a, kernel=2, stride=None, padding=0, ceil_mode=False):
        stride = kernel if stride is None else stride
        check(a, kernel, stride, padding)
        room = a.shape[-1] + 2 * padding - kernel
        windows = max(0, (-(-room // stride) if ceil_mode else room // stride) + 1)
        if ceil_mode and windows and (windows - 1) * stride >= a.shape[-1] + padding:
            windows -= 1
        if windows == 0:
            return xp.zeros((*a.shape[:-1], 0), dtype=a.dtype)
        return pool(xp, a, kernel, stride, padding, windows)

    def reference(a, kernel=2, stride=None, padding=0, ceil_mode=False):
        stride = kernel if stride is None else stride
        length, columns, start = a.shape[-1], [], -padding
        last = length + padding - kernel
        while start <= last or (ceil_mode and start < min(last + stride, length)):
            inside = a[..., max(start, 0) : max(min(start + kernel, length), 0)]
            columns.append(inside.sum(-1) / inside.shape[-1] if inside.shape[-1] else np.full(a.shape[:-1], np.nan))
            start += stride
        return np.stack(columns, axis=-1) if columns else np.zeros((*a.shape[:-1], 0))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="avg_pool1d",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((2, 3, 10)),
                Sample((make((4, 17)),), {"kernel": 3, "stride": 2, "padding": 1}),
                Sample((make((4, 12)),), {"kernel": 3, "stride": 2, "ceil_mode": True}),
                Sample((make((2, 16)),), {"kernel": 2, "stride": 2, "padding": 1, "ceil_mode": True}),
                Sample((make((0, 10)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(8),), {"kernel": 0}), ValueError, "kernel is 0"),
                ErrorInput(Sample((make(8),), {"padding": 2}), ValueError, "padding is 2"),
            ],
        )

    return wrong, right, declare


@pair(
    "xlogy",
    "NaN in the second argument is lost where the first is zero",
    "xlogy of several array libraries, written as where(x == 0, 0, x * log(y)); SciPy and PyTorch test isnan(y) first",
    "x = 0 and y = NaN: 0 instead of NaN",
)
def xlogy():
    """x * log(y), which is 0 where x is 0, unless y is NaN."""

    def wrong(xp, x, y):
        zero = x == 0
        return xp.where(zero, 0.0, x * xp.log(xp.where(zero, 1.0, y)))

    def right(xp, x, y):
        zero = (x == 0) & ~xp.isnan(y)
        return xp.where(zero, 0.0, x * xp.log(xp.where(zero, 1.0, y)))

    def reference(x, y):
        x, y = np.broadcast_arrays(x, y)
        out = np.empty(x.shape)
        with np.errstate(all="ignore"):
            for i in np.ndindex(out.shape):
                out[i] = 0.0 if x[i] == 0 and not np.isnan(y[i]) else x[i] * np.log(y[i])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="xlogy",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 7)), make((6, 7))),
                (make.of([0, 0, 1, 2.5, -1]), make.of([0, 3, 1, 0.5, 2])),
                Sample((make((4, 1)), make((3, 1, 5))), kind="broadcast"),
                Sample((make((0, 3)), make((0, 3))), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "fill_diagonal_",
    "writes through ravel(), which is a copy where the array is not contiguous",
    "fill_diagonal on F-ordered and sliced arrays in GPU libraries (as I remember CuPy's first version, and "
    "reshape(-1)[...] = in PyTorch code): the flat array is a view only while the memory is contiguous",
    "a transposed or sliced matrix: nothing is written",
)
def fill_diagonal_():
    """Writes `value` on the main diagonal of a matrix, in place."""

    def check(a):
        if a.ndim != 2:
            raise ValueError(f"a has {a.ndim} axes; give a matrix")

    def wrong(xp, a, value=1.0):
        check(a)
        rows, columns = a.shape
        a.ravel()[: min(rows, columns) * columns : columns + 1] = value
        return a

    def right(xp, a, value=1.0):
        check(a)
        along = xp.arange(min(a.shape))
        a[along, along] = value
        return a

    def reference(a, value=1.0):
        out = a.copy()
        for i in range(min(a.shape)):
            out[i, i] = value
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fill_diagonal_",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make((5, 5)),
                make((9, 4)),
                Sample((make((4, 9)),), {"value": 3}),
                Sample((make((0, 4)),), kind="empty"),
            ],
            reference=reference,
            without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"},
            error_inputs=lambda make: [ErrorInput(make(4), ValueError, "1 axes")],
        )

    return wrong, right, declare


@pair(
    "rotary_ntk",
    "the base of the longest sequence seen so far is kept for shorter ones",
    "transformers' LlamaDynamicNTKScalingRotaryEmbedding: the cos/sin cache was remade when a sequence was longer than "
    "the cached one and never reset, so short inputs after a long one got the long one's base",
    "a call with 40 positions, then one with 12 and the same width: the second is rotated with the scaled base",
)
def rotary_ntk():
    """Rotary position embedding of (..., positions, width); beyond `trained` positions the base grows (dynamic NTK)."""

    def check(a):
        if a.ndim < 2 or a.shape[-1] % 2:
            raise ValueError(f"a has shape {tuple(a.shape)}; give positions and an even width")

    def rotate(xp, a, base, trained, length):
        half = a.shape[-1] // 2
        if length > trained and half > 1:
            base = base * (length / trained) ** (half / (half - 1))
        rates = xp.exp(xp.arange(half, dtype="float64") * (-math.log(base) / max(half, 1)))
        angles = xp.arange(a.shape[-2], dtype="float64")[:, None] * rates
        cos, sin = xp.cos(angles), xp.sin(angles)
        wide = a.astype("float64")
        first, second = wide[..., :half], wide[..., half:]
        return xp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(a.dtype)

    cached = {}

    def wrong(xp, a, base=10000.0, trained=16):
        check(a)
        key = (a.shape[-1], base, trained)
        if a.shape[-2] > cached.get(key, trained):
            cached[key] = a.shape[-2]
        return rotate(xp, a, base, trained, cached.get(key, trained))

    def right(xp, a, base=10000.0, trained=16):
        check(a)
        return rotate(xp, a, base, trained, a.shape[-2])

    def reference(a, base=10000.0, trained=16):
        length, width = a.shape[-2:]
        if length > trained and width > 2:
            base = base * (length / trained) ** (width / (width - 2))
        out = np.empty(a.shape)
        for position in range(length):
            for k in range(width // 2):
                angle = position * base ** (-2 * k / width)
                x, y = a[..., position, k], a[..., position, k + width // 2]
                out[..., position, k] = x * np.cos(angle) - y * np.sin(angle)
                out[..., position, k + width // 2] = y * np.cos(angle) + x * np.sin(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary_ntk",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((2, 3, 12, 8)),
                make((16, 8)),
                Sample((make((2, 9, 6)),), {"base": 500.0}),
                make((2, 40, 8)),
                Sample((make((2, 0, 8)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((4, 7)), ValueError, "even width")],
        )

    return wrong, right, declare


@pair(
    "slerp",
    "two equal rotations divide zero by zero",
    "slerp in diffusers and kornia: sin(omega) is 0 for equal quaternions, so a threshold on the dot product was added",
    "a equal to b, such as (0, 0, 0, 1) twice: NaN instead of (0, 0, 0, 1)",
)
def slerp():
    """Slerp between quaternions (..., 4) of any length, by the shorter way; results have length 1."""

    def check(a, b):
        if a.shape[-1] != 4 or b.shape[-1] != 4:
            raise ValueError(f"last axes are {a.shape[-1]} and {b.shape[-1]}; give quaternions")

    def prepare(xp, a, b):
        a, b = a.astype("float64"), b.astype("float64")
        a = a / xp.sqrt((a * a).sum(axis=-1, keepdims=True))
        b = b / xp.sqrt((b * b).sum(axis=-1, keepdims=True))
        dot = (a * b).sum(axis=-1, keepdims=True)
        return a, xp.where(dot < 0, -b, b), xp.minimum(xp.abs(dot), 1.0)

    def wrong(xp, a, b, t=0.5):
        check(a, b)
        p, q, dot = prepare(xp, a, b)
        omega = xp.arccos(dot)
        return ((xp.sin((1 - t) * omega) * p + xp.sin(t * omega) * q) / xp.sin(omega)).astype(a.dtype)

    def right(xp, a, b, t=0.5):
        check(a, b)
        p, q, dot = prepare(xp, a, b)
        omega = xp.arccos(dot)
        near = omega < 1e-6
        safe = xp.where(near, 1.0, omega)
        left = xp.where(near, 1.0 - t, xp.sin((1 - t) * safe) / xp.sin(safe))
        other = xp.where(near, t, xp.sin(t * safe) / xp.sin(safe))
        return (left * p + other * q).astype(a.dtype)

    def reference(a, b, t=0.5):
        a, b = np.broadcast_arrays(a, b)
        out = np.empty(a.shape)
        with np.errstate(all="ignore"):
            for i in np.ndindex(a.shape[:-1]):
                p, q = a[i] / np.sqrt((a[i] ** 2).sum()), b[i] / np.sqrt((b[i] ** 2).sum())
                dot = (p * q).sum()
                if dot < 0:
                    dot, q = -dot, -q
                if dot > 1 - 1e-13:
                    out[i] = (1 - t) * p + t * q
                else:
                    omega = np.arccos(dot)
                    out[i] = (np.sin((1 - t) * omega) * p + np.sin(t * omega) * q) / np.sin(omega)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="slerp",
            dtypes=("float32",),
            samples=lambda make: [
                (make((12, 4)), make((12, 4))),
                Sample((make((2, 5, 4)), make((2, 5, 4))), {"t": 0.2}),
                Sample((make((7, 4)), make(4)), {"t": 0.75}, kind="broadcast"),
                Sample((make((0, 4)), make((0, 4))), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((2, 3)), make((2, 3))), ValueError, "give quaternions")],
        )

    return wrong, right, declare


@pair(
    "argsort_descending",
    "negation leaves the smallest integer the smallest",
    "argsort(-x) for a stable descending order of integers, in array API wrappers and ranking metrics",
    "the dtype's smallest integer among others: it comes first instead of last",
)
def argsort_descending():
    """Places of the numbers from the largest to the smallest; equal ones keep their order."""

    def wrong(xp, a, axis=-1):
        return xp.argsort(-a, axis=axis, kind="stable")

    def right(xp, a, axis=-1):
        return xp.argsort(~a, axis=axis, kind="stable")

    def reference(a, axis=-1):
        rows = np.moveaxis(a, axis, -1)
        out = np.empty(rows.shape, dtype="int64")
        for i in np.ndindex(rows.shape[:-1]):
            row = [int(value) for value in rows[i]]
            out[i] = sorted(range(len(row)), key=lambda k, row=row: -row[k])
        return np.moveaxis(out, -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="argsort_descending",
            dtypes=("int16", "int32", "int64"),
            result_dtype=lambda a: "int64",
            samples=lambda make: [
                make((4, 25)),
                make(60, low=-1000, high=1000),
                Sample((make((9, 3, 2)),), {"axis": 0}),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "iso_week",
    "the last days of December that belong to week 1 are given week 53",
    "week numbers from the day of the year, as in dataframe libraries' first dt.isocalendar: week 0 was moved to the "
    "year before, and week 53 of a year with 52 was not moved to the next",
    "2024-12-30, day 20087 since 1970: 53 instead of 1",
)
def iso_week():
    """The ISO week, 1 to 53, of days since 1970-01-01."""

    def day_of_year(days):
        rest = (days + 719162) % 146097
        centuries = (rest // 36524).clip(0, 3)
        rest = rest - centuries * 36524
        rest = rest % 1461
        return rest - (rest // 365).clip(0, 3) * 365

    def weekday(days):
        return (days + 3) % 7

    def number(days):
        return (day_of_year(days) - weekday(days) + 10) // 7

    def wrong(xp, days):
        wide = days.astype("int64")
        week = number(wide)
        before = number(wide - day_of_year(wide) - 1)
        return xp.where(week < 1, before, week).astype(days.dtype)

    def right(xp, days):
        wide = days.astype("int64")
        thursday = wide - weekday(wide) + 3
        return (day_of_year(thursday) // 7 + 1).astype(days.dtype)

    def reference(days):
        out = np.empty(days.shape, dtype="int64")
        for i in np.ndindex(days.shape):
            # 400 years are a whole number of weeks
            out[i] = datetime.date.fromordinal(719163 + int(days[i]) % 146097).isocalendar().week
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="iso_week",
            dtypes=("int32",),
            result_dtype=lambda days: days,
            samples=lambda make: [
                make(40, low=0, high=30000),
                make((5, 6), low=-40000, high=60000),
                make.of([0, 364, 365, 16436, 18262, 19358]),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "periodogram",
    "the last bin of an odd length is not doubled, as if it were Nyquist's",
    "one-sided spectra (matplotlib's mlab.psd before 1.5, and ports of it): psd[1:-1] *= 2 holds for even lengths only",
    "9 samples: the last of the 5 bins is half of what it must be",
)
def periodogram():
    """One-sided power spectral density along the last axis, for samples taken at `rate`."""

    def check(a, rate):
        if a.shape[-1] == 0:
            raise ValueError("no samples")
        if rate <= 0:
            raise ValueError(f"rate is {rate}; give more than 0")

    def power(xp, a, rate):
        spectrum = xp.fft.rfft(a.astype("float64"), axis=-1)
        return (spectrum.real**2 + spectrum.imag**2) / (rate * a.shape[-1])

    def wrong(xp, a, rate=1.0):
        check(a, rate)
        density = power(xp, a, rate)
        bins = xp.arange(density.shape[-1])
        inner = (bins > 0) & (bins < max(density.shape[-1] - 1, 1))
        return xp.where(inner, 2 * density, density).astype(a.dtype)

    def right(xp, a, rate=1.0):
        check(a, rate)
        density = power(xp, a, rate)
        bins = xp.arange(density.shape[-1])
        inner = (bins > 0) & (2 * bins < a.shape[-1])
        return xp.where(inner, 2 * density, density).astype(a.dtype)

    def reference(a, rate=1.0):
        length = a.shape[-1]
        if length == 0:
            raise ValueError("no samples")
        spectrum = np.fft.rfft(a)
        out = (spectrum.real**2 + spectrum.imag**2) / (rate * length)
        for k in range(out.shape[-1]):
            if k != 0 and k != length - k:
                out[..., k] *= 2
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="periodogram",
            dtypes=("float32",),
            samples=lambda make: [
                make((3, 64)),
                make(128),
                Sample((make((2, 2, 30)),), {"rate": 250.0}),
                Sample((make((0, 16)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make((2, 0)), ValueError, "no samples"),
                ErrorInput(Sample((make(8),), {"rate": 0}), ValueError, "rate is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "masked_layer_norm",
    "masked entries are multiplied by 0, so that NaN and infinities in the padding reach the whole row",
    "masked means and norms in transformer code and early flax (a mask that multiplies, later where=): 0 * inf is NaN",
    "a masked infinity or NaN in a row of ordinary numbers: the whole row is NaN",
)
def masked_layer_norm():
    """Layer normalisation over the entries of the last axis where `mask` is true; 0 at the others."""

    def wrong(xp, a, mask, eps=1e-5):
        wide, weights = a.astype("float64"), mask.astype("float64")
        count = xp.maximum(weights.sum(axis=-1, keepdims=True), 1.0)
        mean = (wide * weights).sum(axis=-1, keepdims=True) / count
        centred = (wide - mean) * weights
        variance = (centred * centred).sum(axis=-1, keepdims=True) / count
        return (centred / xp.sqrt(variance + eps)).astype(a.dtype)

    def right(xp, a, mask, eps=1e-5):
        wide = xp.where(mask, a.astype("float64"), 0.0)
        count = xp.maximum(mask.astype("float64").sum(axis=-1, keepdims=True), 1.0)
        mean = wide.sum(axis=-1, keepdims=True) / count
        centred = xp.where(mask, wide - mean, 0.0)
        variance = (centred * centred).sum(axis=-1, keepdims=True) / count
        return xp.where(mask, centred / xp.sqrt(variance + eps), 0.0).astype(a.dtype)

    def reference(a, mask, eps=1e-5):
        out = np.zeros(a.shape)
        with np.errstate(all="ignore"):
            for i in np.ndindex(a.shape[:-1]):
                values = a[i][mask[i]]
                if len(values):
                    centred = values - values.mean()
                    out[i][mask[i]] = centred / np.sqrt((centred**2).mean() + eps)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="masked_layer_norm",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((6, 20)), make((6, 20), dtype="bool")),
                Sample((make((2, 3, 7)), make((2, 3, 7), dtype="bool")), {"eps": 0.1}),
                (make(9), make(9, dtype="bool")),
                Sample((make((0, 5)), make((0, 5), dtype="bool")), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "roc_auc",
    "equal scores are ranked by their place instead of sharing their mean rank",
    "roc_auc_score on GPUs (cuML's first, and metrics written with argsort): ties between the classes must count half",
    "scores all equal, labels [True, False]: 0 instead of 0.5",
)
def roc_auc():
    """The area under the ROC curve of scores for truth values; NaN if a class is absent or a score is NaN."""

    def check(scores, labels):
        if scores.ndim != 1 or scores.shape != labels.shape:
            raise ValueError(f"shapes are {tuple(scores.shape)} and {tuple(labels.shape)}; give two equal lengths")

    def area(xp, scores, labels, ranks):
        positive = labels.astype("float64")
        number = positive.sum()
        pairs = number * (scores.shape[0] - number)
        above = (ranks * positive).sum() - number * (number + 1) / 2
        known = (pairs > 0) & ~xp.isnan(scores).any()
        return xp.where(known, above / xp.maximum(pairs, 1.0), math.nan).astype(scores.dtype)

    def wrong(xp, scores, labels):
        check(scores, labels)
        order = xp.argsort(scores, kind="stable")
        ranks = xp.argsort(order, kind="stable") + 1.0
        return area(xp, scores, labels, ranks)

    def right(xp, scores, labels):
        check(scores, labels)
        ordered = xp.sort(scores)
        below = xp.searchsorted(ordered, scores, side="left")
        up_to = xp.searchsorted(ordered, scores, side="right")
        return area(xp, scores, labels, (below + up_to + 1) / 2)

    def reference(scores, labels):
        ones, others = scores[labels], scores[~labels]
        if not len(ones) or not len(others) or np.isnan(scores).any():
            return np.float64(np.nan)
        wins = (ones[:, None] > others).sum() + 0.5 * (ones[:, None] == others).sum()
        return wins / (len(ones) * len(others))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="roc_auc",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(50), make(50, dtype="bool")),
                (make(201, low=0, high=1), make(201, dtype="bool")),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(4), make(5, dtype="bool")), ValueError, "give two equal lengths"),
            ],
        )

    return wrong, right, declare


@pair(
    "unit_phase",
    "the absolute value squares its parts, which overflow and underflow",
    "PyTorch's vectorised complex abs and sgn: sqrt(re * re + im * im) before hypot was taken",
    "1e30+1e30j in complex64: 0 instead of 0.7071+0.7071j; 1e-30+0j: 0 instead of 1",
)
def unit_phase():
    """z / abs(z): the number of absolute value 1 with the same phase; 0 for 0, NaN for infinities."""

    def wrong(xp, z):
        size = xp.sqrt(z.real * z.real + z.imag * z.imag)
        safe = xp.where(size == 0, 1.0, size)
        return xp.where(size == 0, 0.0, z.real / safe) + 1j * xp.where(size == 0, 0.0, z.imag / safe)

    def right(xp, z):
        largest = xp.maximum(xp.abs(z.real), xp.abs(z.imag))
        safe = xp.where(largest == 0, 1.0, largest)
        real, imag = z.real / safe, z.imag / safe
        size = xp.where(largest == 0, 1.0, xp.hypot(real, imag))
        return real / size + 1j * (imag / size)

    def reference(z):
        out = np.zeros(z.shape, dtype="complex128")
        with np.errstate(all="ignore"):
            for i in np.ndindex(z.shape):
                x, y = z[i].real, z[i].imag
                if np.isfinite(x) and np.isfinite(y):
                    largest = max(abs(x), abs(y)) or 1.0
                    x, y = x / largest, y / largest
                    out[i] = complex(x, y) / (np.hypot(x, y) or 1.0)
                else:
                    out[i] = complex(np.nan, np.nan)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unit_phase",
            dtypes=("complex64", "complex128"),
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "embedding_bag_sum",
    "sums of bags are differences of one running sum, which loses digits and spreads NaN",
    "the cumsum trick of Lift-Splat-Shoot's voxel pooling and of segment sums in bird's-eye-view models: later bags "
    "carry the rounding, and the NaN, of all bags before",
    "a row of 1e8 in bag 0 and rows of 0.1 in bag 1, in float32: bag 1 is 0; a NaN in bag 0 makes bag 1 NaN",
)
def embedding_bag_sum():
    """Sums of the rows of a table at `indices`, one for each of `count` bags; empty bags are 0."""

    def wrong(xp, table, indices, bags, count=8):
        order = xp.argsort(bags, kind="stable")
        running = xp.cumsum(table[indices[order]].astype("float32"), axis=0)
        running = xp.concatenate([xp.zeros((1, table.shape[1]), dtype="float32"), running], axis=0)
        numbers = xp.arange(count)
        ordered = bags[order]
        ends = xp.searchsorted(ordered, numbers, side="right")
        starts = xp.searchsorted(ordered, numbers, side="left")
        return (running[ends] - running[starts]).astype(table.dtype)

    def right(xp, table, indices, bags, count=8):
        rows = table[indices].astype("float64")
        own = xp.arange(count)[:, None, None] == bags[None, :, None]
        return xp.where(own, rows[None], 0.0).sum(axis=1).astype(table.dtype)

    def reference(table, indices, bags, count=8):
        out = np.zeros((count, table.shape[1]))
        for index, bag in zip(indices, bags, strict=True):
            out[bag] += table[index]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="embedding_bag_sum",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (
                    make((20, 6)),
                    make(40, dtype="int64", low=0, high=19),
                    make(40, dtype="int64", low=0, high=7),
                ),
                Sample(
                    (
                        make((7, 3)),
                        make(15, dtype="int64", low=0, high=6),
                        make(15, dtype="int64", low=0, high=2),
                    ),
                    {"count": 4},
                ),
                Sample(
                    (make((5, 3)), make(0, dtype="int64", low=0, high=4), make(0, dtype="int64", low=0, high=7)),
                    kind="empty",
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare
