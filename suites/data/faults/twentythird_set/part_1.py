"""Signals, statistics, sampling, losses, normalisation, sparse formats, tokens: faults with their twins."""

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
    "fourier_resample",
    "the unpaired bin at half the sampling rate is weighted like the others",
    "early scipy.signal.resample, and resamplers that copy FFT bins: an even shorter length is not treated apart",
    "[1, -1, 1, -1] to 8 samples: an amplitude of 2 instead of 1",
)
def fourier_resample():
    """Band-limited resampling along the last axis, as scipy.signal.resample does for real signals."""

    def check(n, size):
        if size < 1:
            raise ValueError(f"size is {size}; give 1 or more")
        if n < 1:
            raise ValueError("there is nothing to resample")

    def waves(xp, bins, n):
        turns = xp.arange(bins)[:, None] * xp.arange(n)[None, :] % n
        angles = turns.astype("float64") * (2 * math.pi / n)
        return xp.cos(angles), xp.sin(angles)

    def synthesise(xp, a, size, weights):
        n = a.shape[-1]
        cosines, sines = waves(xp, len(weights), n)
        wide = a.astype("float64")
        weights = xp.asarray(weights, dtype="float64")
        real = xp.matmul(wide, cosines.T) * weights
        imaginary = xp.matmul(wide, sines.T) * weights
        cosines, sines = waves(xp, len(weights), size)
        return ((xp.matmul(real, cosines) + xp.matmul(imaginary, sines)) / n).astype(a.dtype)

    def wrong(xp, a, size=40):
        n = a.shape[-1]
        check(n, size)
        weights = [1.0] + [2.0] * (min(n, size) // 2)
        if size % 2 == 0 and size <= n:
            weights[-1] = 1.0  # the inverse transform counts its own last bin once
        return synthesise(xp, a, size, weights)

    def right(xp, a, size=40):
        n = a.shape[-1]
        check(n, size)
        weights = [1.0] + [2.0] * (min(n, size) // 2)
        if n % 2 == 0 and n <= size:
            weights[-1] = 1.0  # half of it belongs to the negative frequency, unless both are one bin
        return synthesise(xp, a, size, weights)

    def reference(a, size=40):
        n = a.shape[-1]
        check(n, size)
        out = np.zeros((*a.shape[:-1], size))
        shorter = min(n, size)
        for k in range(-((shorter - 1) // 2), (shorter - 1) // 2 + 1):
            bin_ = (a * np.exp(-2j * np.pi * (k * np.arange(n) % n) / n)).sum(-1, keepdims=True)
            out += (bin_ * np.exp(2j * np.pi * (k * np.arange(size) % size) / size)).real / n
        if shorter % 2 == 0:
            for k in (shorter // 2, -(shorter // 2)):
                bin_ = (a * np.exp(-2j * np.pi * (k * np.arange(n) % n) / n)).sum(-1, keepdims=True)
                share = 1.0 if size < n else 0.5
                out += share * (bin_ * np.exp(2j * np.pi * (k * np.arange(size) % size) / size)).real / n
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fourier_resample",
            dtypes=("float32",),
            samples=lambda make: [
                make(31),
                make((3, 17)),
                Sample((make((2, 48)),), {"size": 25}),
                Sample((make(27),), {"size": 15}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"size": 0}), ValueError, "size is 0")],
        )

    return wrong, right, declare


@pair(
    "kaiser_smooth",
    "a kept table is found again by a part of what it depends on",
    "window and filter caches of STFT layers, keyed by the length alone",
    "length 9 with beta 2, then length 9 with beta 5: the second call uses the taps of the first",
)
def kaiser_smooth():
    """Smoothing along the last axis with a Kaiser window of sum 1; there are zeros beyond the ends."""

    def check(length, beta):
        if length < 1 or length % 2 == 0:
            raise ValueError(f"length is {length}; give an odd number")
        if beta < 0:
            raise ValueError(f"beta is {beta}; give 0 or more")

    def bessel(x):
        total = term = 1.0
        k = 0
        while term > total * 1e-18:
            k += 1
            term *= (x / 2 / k) ** 2
            total += term
        return total

    def taps(length, beta):
        middle = (length - 1) / 2
        window = [bessel(beta * math.sqrt(max(0.0, 1 - ((i - middle) / (middle or 1)) ** 2))) for i in range(length)]
        total = sum(window)
        return tuple(value / total for value in window)

    def smooth(xp, a, table):
        n = a.shape[-1]
        beyond = xp.zeros((*a.shape[:-1], len(table) // 2), dtype="float64")
        padded = xp.concatenate([beyond, a.astype("float64"), beyond], axis=-1)
        out = xp.zeros(a.shape, dtype="float64")
        for i, tap in enumerate(table):
            out = out + tap * padded[..., i : i + n]
        return out.astype(a.dtype)

    tables: dict[Any, tuple[float, ...]] = {}

    def wrong(xp, a, length=15, beta=5.0):
        check(length, beta)
        if length not in tables:
            tables[length] = taps(length, beta)
        return smooth(xp, a, tables[length])

    complete: dict[Any, tuple[float, ...]] = {}

    def right(xp, a, length=15, beta=5.0):
        check(length, beta)
        if (length, beta) not in complete:
            complete[length, beta] = taps(length, beta)
        return smooth(xp, a, complete[length, beta])

    def reference(a, length=15, beta=5.0):
        check(length, beta)
        n = a.shape[-1]
        window = np.kaiser(length, beta)
        window = window / window.sum()
        out = np.zeros(a.shape)
        for i in range(n):
            for j in range(length):
                if 0 <= i + j - length // 2 < n:
                    out[..., i] += window[j] * a[..., i + j - length // 2]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="kaiser_smooth",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make(60),
                Sample((make((3, 25)),), {"length": 9, "beta": 2.0}),
                Sample((make((2, 2, 40)),), {"length": 21, "beta": 8.6}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(20),), {"length": 8}), ValueError, "length is 8"),
                ErrorInput(Sample((make(20),), {"beta": -1.0}), ValueError, "beta is -1"),
            ],
        )

    return wrong, right, declare


@pair(
    "peak_normalise",
    "the absolute value of the lowest integer is negative",
    "peak meters and normalisers of 16-bit audio: abs() of an int16 -32768 stays -32768",
    "[-32768, 100]: the peak is taken as 100 and the result is -295 instead of -0.9",
)
def peak_normalise():
    """16-bit samples scaled so that the peak of each channel (the last axis) is `target`; silence stays silence."""

    def check(target):
        if not 0 < target <= 1:
            raise ValueError(f"target is {target}; give more than 0 and at most 1")

    def scale(xp, pcm, peak, target):
        factor = xp.where(peak > 0, target / xp.maximum(peak, 1), 0.0)
        return (pcm.astype("float64") * factor).astype("float32")

    def wrong(xp, pcm, target=0.9):
        check(target)
        if pcm.size == 0:
            return xp.zeros(pcm.shape, dtype="float32")
        peak = xp.abs(pcm).max(axis=-1, keepdims=True).astype("int32")
        return scale(xp, pcm, peak, target)

    def right(xp, pcm, target=0.9):
        check(target)
        if pcm.size == 0:
            return xp.zeros(pcm.shape, dtype="float32")
        peak = xp.abs(pcm.astype("int32")).max(axis=-1, keepdims=True)
        return scale(xp, pcm, peak, target)

    def reference(pcm, target=0.9):
        check(target)
        n = pcm.shape[-1]
        out = np.zeros(pcm.shape)
        for i in np.ndindex(pcm.shape[:-1]):
            channel = [int(value) for value in pcm[i]]
            peak = max((abs(value) for value in channel), default=0)
            for j in range(n):
                out[(*i, j)] = channel[j] * target / peak if peak else 0.0
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="peak_normalise",
            dtypes=("int16",),
            result_dtype="float32",
            samples=lambda make: [
                make(50, low=-32768, high=32767),
                make((2, 40), low=-32768, high=32767),
                Sample((make((3, 20), low=-2000, high=2000),), {"target": 0.5}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5, low=-9, high=9),), {"target": 0.0}), ValueError, "target is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "trimmed_mean",
    "axis 0 is taken for no axis",
    "`if not axis` for `if axis is None` in a reduction with an optional axis",
    "shape (6, 15) with axis 0: one mean of all 90 numbers instead of 15",
)
def trimmed_mean():
    """The mean along an axis, or of all numbers, without the lowest and the highest part `cut` of them."""

    def check(cut):
        if not 0 <= cut < 0.5:
            raise ValueError(f"cut is {cut}; give 0 or more and less than 0.5")

    def trim(xp, a, cut, axis):
        wide = xp.moveaxis(a.astype("float64"), axis, -1)
        n = wide.shape[-1]
        if n == 0:
            return xp.full(wide.shape[:-1], math.nan, dtype=a.dtype)
        drop = int(cut * n)
        inner = xp.sort(wide, axis=-1)[..., drop : n - drop]
        means = inner.sum(axis=-1) / (n - 2 * drop)
        return xp.where(xp.isnan(wide).any(axis=-1), math.nan, means).astype(a.dtype)

    def wrong(xp, a, cut=0.1, axis=None):
        check(cut)
        if not axis:
            return trim(xp, a.reshape(-1), cut, 0)
        return trim(xp, a, cut, axis)

    def right(xp, a, cut=0.1, axis=None):
        check(cut)
        if axis is None:
            return trim(xp, a.reshape(-1), cut, 0)
        return trim(xp, a, cut, axis)

    def reference(a, cut=0.1, axis=None):
        check(cut)
        lines = np.ravel(a) if axis is None else np.moveaxis(a, axis, -1)
        out = np.full(lines.shape[:-1], np.nan)
        for i in np.ndindex(out.shape):
            if lines.shape[-1] and not np.isnan(lines[i]).any():
                numbers = sorted(lines[i].tolist())
                drop = int(cut * len(numbers))
                kept = numbers[drop : len(numbers) - drop]
                out[i] = sum(kept) / len(kept)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="trimmed_mean",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make(40),
                Sample((make(25),), {"axis": 0, "cut": 0.2}),
                Sample((make((6, 15)),), {"axis": 1}),
                Sample((make((3, 4, 10)),), {"axis": -1, "cut": 0.25}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"cut": 0.5}), ValueError, "cut is 0.5")],
        )

    return wrong, right, declare


@pair(
    "draw_by_counts",
    "a search takes the interval that ends at the point, not the one that starts there",
    "torch.multinomial and particle filters: searchsorted without side='right' draws entries of probability zero",
    "counts [0, 5] and the point 0: entry 0 is drawn, which has no count",
)
def draw_by_counts():
    """For points from 0 to 1 the entries they hit, when each entry is as wide as its count; 1 hits the last one."""

    def prepare(xp, counts, points):
        ends = xp.cumsum(counts.astype("int64"))
        total = int(ends[-1]) if ends.shape[0] else 0
        if total <= 0:
            raise ValueError("all counts are 0")
        return ends.astype("float64"), points.reshape(-1).astype("float64") * total, total

    def last(xp, ends, total):
        return xp.searchsorted(ends, xp.full((1,), total, dtype="float64"), side="left")

    def wrong(xp, counts, points):
        ends, places, total = prepare(xp, counts, points)
        found = xp.searchsorted(ends, places)
        return xp.minimum(found, last(xp, ends, total)).reshape(points.shape).astype("int64")

    def right(xp, counts, points):
        ends, places, total = prepare(xp, counts, points)
        found = xp.searchsorted(ends, places, side="right")
        return xp.minimum(found, last(xp, ends, total)).reshape(points.shape).astype("int64")

    def reference(counts, points):
        total = sum(int(count) for count in counts)
        if total <= 0:
            raise ValueError("all counts are 0")
        out = np.zeros(points.shape, dtype="int64")
        for i in np.ndindex(points.shape):
            end, hit = 0, None
            for j, count in enumerate(counts):
                end += int(count)
                if end > points[i] * total:
                    hit = j
                    break
            out[i] = max(j for j, count in enumerate(counts) if count) if hit is None else hit
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="draw_by_counts",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(12, dtype="int64", low=0, high=9), make(40, low=0, high=1)),
                (make(5, dtype="int64", low=0, high=100), make((3, 11), low=0, high=1)),
                (make(30, dtype="int64", low=0, high=2), make(25, low=0, high=1)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, dtype="int64", low=0, high=0), make(3, low=0, high=1))),
                    ValueError,
                    "all counts are 0",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "fit_to_length",
    "where nothing is to be added the result is a view of the input",
    "copies of Whisper's pad_or_trim: a slice is returned when the input is long enough",
    "40 ids to a length of 32: the result shares its memory with the input",
)
def fit_to_length():
    """Token ids cut or padded to `length` along the last axis, at the end or, with `left`, at the start."""

    def check(length):
        if length < 0:
            raise ValueError(f"length is {length}; give 0 or more")

    def cut(ids, length, left):
        n = ids.shape[-1]
        return ids[..., n - length :] if left else ids[..., :length]

    def padded(xp, ids, length, pad, left):
        more = xp.full((*ids.shape[:-1], length - ids.shape[-1]), pad, dtype=ids.dtype)
        return xp.concatenate([more, ids] if left else [ids, more], axis=-1)

    def wrong(xp, ids, length=32, pad=0, left=False):
        check(length)
        if ids.shape[-1] >= length:
            return cut(ids, length, left)
        return padded(xp, ids, length, pad, left)

    def right(xp, ids, length=32, pad=0, left=False):
        check(length)
        if ids.shape[-1] >= length:
            return cut(ids, length, left).copy()
        return padded(xp, ids, length, pad, left)

    def reference(ids, length=32, pad=0, left=False):
        check(length)
        n = ids.shape[-1]
        out = np.zeros((*ids.shape[:-1], length), dtype=ids.dtype)
        for i in np.ndindex(ids.shape[:-1]):
            row = ids[i].tolist()
            more = [pad] * max(length - n, 0)
            row = (more + row)[max(n - length, 0) :] if left else (row + more)[:length]
            out[i] = row
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fit_to_length",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(20, low=0, high=50_000),
                Sample((make((3, 12), low=0, high=50_000),), {"length": 16, "pad": 7}),
                Sample((make((2, 3, 5), low=0, high=300),), {"length": 8, "left": True}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5, low=0, high=9),), {"length": -1}), ValueError, "length is -1")
            ],
        )

    return wrong, right, declare


@pair(
    "accumulated_loss",
    "a mean of the means of parts that differ in size",
    "gradient accumulation in transformers before 4.46: the loss was averaged per micro-batch and then over them",
    "5 rows in parts of 4: the last row counts as much as the four others together",
)
def accumulated_loss():
    """Mean cross-entropy of rows of logits, computed in parts of `micro` rows; that of no rows is NaN."""

    def check(micro):
        if micro < 1:
            raise ValueError(f"micro is {micro}; give 1 or more")

    def losses(xp, logits, labels):
        wide = logits.astype("float64")
        shifted = wide - wide.max(axis=-1, keepdims=True)
        picked = xp.take_along_axis(shifted, labels[:, None], axis=-1)[:, 0]
        return xp.log(xp.exp(shifted).sum(axis=-1)) - picked

    def wrong(xp, logits, labels, micro=4):
        check(micro)
        n = logits.shape[0]
        if n == 0:
            return xp.full((), math.nan, dtype=logits.dtype)
        starts = range(0, n, micro)
        total = xp.zeros((), dtype="float64")
        for start in starts:
            part = losses(xp, logits[start : start + micro], labels[start : start + micro])
            total = total + part.mean() / len(starts)
        return total.astype(logits.dtype)

    def right(xp, logits, labels, micro=4):
        check(micro)
        n = logits.shape[0]
        if n == 0:
            return xp.full((), math.nan, dtype=logits.dtype)
        total = xp.zeros((), dtype="float64")
        for start in range(0, n, micro):
            part = losses(xp, logits[start : start + micro], labels[start : start + micro])
            total = total + part.sum() / n
        return total.astype(logits.dtype)

    def reference(logits, labels, micro=4):
        check(micro)
        n, classes = logits.shape
        if labels.shape != (n,):
            raise ValueError("give one label for each row")
        if n == 0:
            return np.array(math.nan)
        total = 0.0
        for row, label in zip(logits, labels, strict=True):
            if not 0 <= label < classes:
                raise IndexError(f"no class {label}")
            top = row.max()
            total += np.log(np.exp(row - top).sum()) - (row[label] - top)
        return np.array(total / n)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="accumulated_loss",
            dtypes=("float16", "float32"),
            result_dtype=lambda logits, labels: logits,
            samples=lambda make: [
                (make((8, 5)), make(8, dtype="int64", low=0, high=4)),
                (make((12, 9)), make(12, dtype="int64", low=0, high=8)),
                Sample((make((15, 7)), make(15, dtype="int64", low=0, high=6)), {"micro": 5}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((4, 3)), make(4, dtype="int64", low=0, high=2)), {"micro": 0}),
                    ValueError,
                    "micro is 0",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "nan_centre",
    "what is filled before the sum is the input itself where no conversion is needed",
    "nan-aware reductions that fill asarray(a, dtype=float), which copies in all dtypes but one",
    "a float64 row [1, NaN, 3]: the result is right, and the input is [1, 0, 3] after the call",
)
def nan_centre():
    """Each row (last axis) less the mean of its numbers that are not NaN; NaN stay."""

    def less_mean(xp, a, gaps, filled):
        count = xp.maximum((~gaps).sum(axis=-1, keepdims=True), 1)
        mean = (filled / count).sum(axis=-1, keepdims=True)  # the sum could overflow
        return xp.where(gaps, math.nan, filled - mean).astype(a.dtype)

    def wrong(xp, a):
        gaps = xp.isnan(a)
        filled = xp.asarray(a, dtype="float64")
        if bool(gaps.any()):
            filled[gaps] = 0.0
        return less_mean(xp, a, gaps, filled)

    def right(xp, a):
        gaps = xp.isnan(a)
        filled = xp.where(gaps, 0.0, a.astype("float64"))
        return less_mean(xp, a, gaps, filled)

    def reference(a):
        n = a.shape[-1]
        out = np.full(a.shape, math.nan)
        for i in np.ndindex(a.shape[:-1]):
            there = [j for j in range(n) if not np.isnan(a[(*i, j)])]
            if there:
                mean = (a[i][there] / len(there)).sum()
                for j in there:
                    out[(*i, j)] = a[(*i, j)] - mean
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nan_centre",
            dtypes=("float32", "float64"),
            samples=lambda make: [make(30), make((5, 12)), make((2, 3, 7))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "kl_to_target",
    "an epsilon that is 0 in half precision",
    "losses that add 1e-8 before log under float16 autocast, a standing source of NaN in mixed-precision training",
    "a target of 0 in float16: 0 * log(0) is NaN; in float32 the epsilon helps",
)
def kl_to_target():
    """sum(target * (log(target) - log_probs)) along an axis; a target of 0 adds nothing for finite log_probs."""

    def wrong(xp, log_probs, target, axis=-1):
        logs = xp.log((target + 1e-8).astype("float64"))  # so that log(0) does not occur
        terms = target.astype("float64") * (logs - log_probs.astype("float64"))
        return terms.sum(axis=axis).astype(log_probs.dtype)

    def right(xp, log_probs, target, axis=-1):
        wide = target.astype("float64")
        logs = xp.log(xp.where(wide == 0, 1.0, wide))
        return (wide * (logs - log_probs.astype("float64"))).sum(axis=axis).astype(log_probs.dtype)

    def reference(log_probs, target, axis=-1):
        log_probs, target = np.moveaxis(log_probs, axis, -1), np.moveaxis(target, axis, -1)
        if log_probs.shape != target.shape:
            raise ValueError("the shapes differ")
        out = np.zeros(target.shape[:-1])
        for i in np.ndindex(out.shape):
            for p, q in zip(target[i], log_probs[i], strict=True):
                out[i] += p * ((np.log(p) if p != 0 else 0.0) - q)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="kl_to_target",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make(25, low=-10, high=0), make(25, low=0, high=1)),
                (make((4, 12), low=-10, high=0), make((4, 12), low=0, high=1)),
                Sample((make((9, 5), low=-10, high=0), make((9, 5), low=0, high=1)), {"axis": 0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "ell_matvec",
    "padding of a sparse row reads entry 0, and 0 times infinity is NaN",
    "ELLPACK kernels whose padded slots hold value 0 and column 0",
    "x[0] infinite or NaN: each row with padding becomes NaN, though it has no entry in column 0",
)
def ell_matvec():
    """A matrix in the ELL format times a vector; column -1 marks a slot that is not used, whatever its value."""

    def gathered(xp, keep, columns, x):
        if x.shape[0] == 0:
            x = xp.zeros((1,), dtype=x.dtype)
        return x.astype("float64")[xp.where(keep, columns, 0)]

    def wrong(xp, values, columns, x):
        keep = columns >= 0
        products = xp.where(keep, values.astype("float64"), 0.0) * gathered(xp, keep, columns, x)
        return products.sum(axis=-1).astype(values.dtype)

    def right(xp, values, columns, x):
        keep = columns >= 0
        products = xp.where(keep, values.astype("float64") * gathered(xp, keep, columns, x), 0.0)
        return products.sum(axis=-1).astype(values.dtype)

    def reference(values, columns, x):
        rows, width = values.shape
        if columns.shape != (rows, width):
            raise ValueError("give a column for each value")
        out = np.zeros(rows)
        for i in range(rows):
            for value, column in zip(values[i], columns[i], strict=True):
                if column >= 0:
                    out[i] += value * x[column]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ell_matvec",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((6, 4)), make((6, 4), dtype="int64", low=-1, high=9), make(10)),
                (make((20, 3)), make((20, 3), dtype="int64", low=-1, high=19), make(20)),
                (make((1, 7)), make((1, 7), dtype="int32", low=-1, high=3), make(4)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "keep_largest",
    "zeros_like keeps the layout of a transposed input, so reshape(-1) of it is a copy and what is written is lost",
    "top-k gradient compressors that fill zeros_like(a).reshape(-1), ported from torch's view(-1), which would raise",
    "an array in Fortran order, as a.T: the result is all zeros",
)
def keep_largest():
    """The k numbers of largest magnitude, all others 0; of equal ones the first stay. NaN counts as largest."""

    def check(k):
        if k < 1:
            raise ValueError(f"k is {k}; give 1 or more")

    def chosen(xp, flat, k):
        n = flat.shape[0]
        if k >= n:
            return xp.ones((n,), dtype="bool")
        sizes = xp.abs(flat.astype("float64"))
        sizes = xp.where(xp.isnan(sizes), math.inf, sizes)
        least = xp.sort(sizes)[n - k]
        above, equal = sizes > least, sizes == least
        room = k - above.sum()
        return above | (equal & (xp.cumsum(equal.astype("int64")) <= room))

    def wrong(xp, a, k=8):
        check(k)
        flat = a.reshape(-1)
        keep = chosen(xp, flat, k)
        out = xp.zeros_like(a)
        out.reshape(-1)[keep] = flat[keep]
        return out

    def right(xp, a, k=8):
        check(k)
        flat = a.reshape(-1)
        keep = chosen(xp, flat, k)
        out = xp.zeros(flat.shape, dtype=a.dtype)
        out[keep] = flat[keep]
        return out.reshape(a.shape)

    def reference(a, k=8):
        check(k)
        numbers = np.ravel(a).tolist()
        sizes = [math.inf if math.isnan(number) else abs(number) for number in numbers]
        order = sorted(range(len(numbers)), key=lambda i: (-sizes[i], i))
        out = np.zeros(len(numbers))
        for i in order[:k]:
            out[i] = numbers[i]
        return out.reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="keep_largest",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                make((6, 11)),
                Sample((make(50),), {"k": 5}),
                Sample((make((3, 4, 5)),), {"k": 20}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"k": 0}), ValueError, "k is 0")],
        )

    return wrong, right, declare


@pair(
    "merge_pair",
    "matches that overlap are all replaced",
    "vectorised byte-pair encoders: all matches of a pair are found at once, though in 'aaa' the pair 'aa' fits twice",
    "[0, 0, 0] with the pair (0, 0): one token is left, [merged], instead of [merged, 0]",
)
def merge_pair():
    """One merge of byte-pair encoding, from left to right; -1 fills what becomes free at the end."""

    def check(merged):
        if merged < 0:
            raise ValueError(f"merged is {merged}; give 0 or more")

    def found(xp, ids, first, second):
        none = xp.zeros((1,), dtype="bool")
        return xp.concatenate([(ids[:-1] == first) & (ids[1:] == second), none])

    def replace(xp, ids, hits, merged):
        n = ids.shape[0]
        none = xp.zeros((1,), dtype="bool")
        after = xp.concatenate([none, hits[:-1]])
        left = xp.where(hits, xp.full(ids.shape, merged, dtype=ids.dtype), ids)[~after]
        return xp.concatenate([left, xp.full((n - left.shape[0],), -1, dtype=ids.dtype)])

    def wrong(xp, ids, first=1, second=2, merged=100):
        check(merged)
        if ids.shape[0] < 2:
            return ids.copy()
        return replace(xp, ids, found(xp, ids, first, second), merged)

    def right(xp, ids, first=1, second=2, merged=100):
        check(merged)
        n = ids.shape[0]
        if n < 2:
            return ids.copy()
        hits = found(xp, ids, first, second)
        misses = xp.nonzero(~hits)[0]  # the last place is always one
        places = xp.arange(n)
        before = xp.searchsorted(misses, places, side="right")
        last = xp.where(before > 0, misses[xp.maximum(before - 1, 0)], -1)
        return replace(xp, ids, hits & ((places - last) % 2 == 1), merged)

    def reference(ids, first=1, second=2, merged=100):
        check(merged)
        if ids.ndim != 1:
            raise ValueError("ids must have one axis")
        ids, out, i = ids.tolist(), [], 0
        while i < len(ids):
            if ids[i : i + 2] == [first, second]:
                out.append(merged)
                i += 2
            else:
                out.append(ids[i])
                i += 1
        return np.array(out + [-1] * (len(ids) - len(out)), dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="merge_pair",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(40, low=0, high=3),
                Sample((make(25, low=0, high=40),), {"first": 0, "second": 0, "merged": 41}),
                Sample((make.of([5, 0, 0, 7, 1, 0, 0, 9, 0]),), {"first": 0, "second": 0, "merged": 50}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(6, low=0, high=3),), {"merged": -1}), ValueError, "merged is -1")
            ],
        )

    return wrong, right, declare
