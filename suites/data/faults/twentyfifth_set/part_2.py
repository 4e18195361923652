"""Images, signals, geometry, frames, strings, histograms, morphology, dates, genomes: faults with their twins."""

import datetime
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.ndimage

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
    "text_hash",
    "the terms of a modular sum are added up in int32",
    "LLM-written CUDA kernels of Rabin-Karp: int accumulators, which hold a few hundred terms below 2**24",
    "int32 codes of one text of 2,000 letters: the sum passes 2**31 and the hash is another one",
)
def text_hash():
    """The polynomial hash of each text, a row of byte codes, modulo the largest prime below 2**24."""
    prime = 16_777_213

    def terms(xp, codes, base):
        powers = [1] * codes.shape[-1]
        for i in range(len(powers) - 2, -1, -1):
            powers[i] = powers[i + 1] * base % prime
        return codes.astype("int64") * xp.asarray(powers, dtype="int64") % prime

    def wrong(xp, codes, base=257):
        small = terms(xp, codes, base).astype(codes.dtype)
        return small.sum(axis=-1, dtype=codes.dtype) % prime

    def right(xp, codes, base=257):
        return (terms(xp, codes, base).sum(axis=-1) % prime).astype(codes.dtype)

    def reference(codes, base=257):
        out = np.zeros(codes.shape[:-1], dtype="int64")
        for i in np.ndindex(out.shape):
            value = 0
            for code in codes[i].tolist():
                value = (value * base + code) % prime
            out[i] = value
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="text_hash",
            dtypes=("int32", "int64"),
            result_dtype=lambda codes: codes,
            samples=lambda make: [
                make(12, low=0, high=255),
                make((5, 60), low=0, high=255),
                Sample((make((2, 3, 33), low=0, high=255),), {"base": 31}),
                Sample((make((3, 0), low=0, high=255),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "numbers_in_bins",
    "the bin is a rounded product; numbers next to an edge are not compared with it",
    "numpy.histogram before 1.11 and torch.histc on CUDA: numbers just below an edge counted in the bin above",
    "float32 0.7 (which is below 0.7) in 10 bins from 0 to 1: bin 7 for numpy's 6; float64 0.3 is in bin 3 for 2",
)
def numbers_in_bins():
    """How many numbers lie in each of equal bins, as numpy.histogram with a range; others and NaN do not count."""

    def check(bins, low, high):
        if bins < 1 or not low < high:
            raise ValueError(f"{bins} bins from {low} to {high}; give 1 or more, in ascending order")

    def count(xp, inside, numbers, bins):
        numbers = xp.where(inside, xp.minimum(numbers.astype("int64"), bins - 1), bins)
        return xp.bincount(numbers, minlength=bins + 1)[:bins]

    def wrong(xp, a, bins=10, low=-3.0, high=3.0):
        check(bins, low, high)
        flat = a.reshape(-1)
        inside = (flat >= low) & (flat <= high)
        return count(xp, inside, (xp.where(inside, flat, low) - low) * (bins / (high - low)), bins)

    def right(xp, a, bins=10, low=-3.0, high=3.0):
        check(bins, low, high)
        flat = a.reshape(-1).astype("float64")
        inside = (flat >= low) & (flat <= high)
        edges = xp.asarray(np.linspace(low, high, bins + 1))
        return count(xp, inside, xp.searchsorted(edges, xp.where(inside, flat, low), side="right") - 1, bins)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="numbers_in_bins",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: "int64",
            samples=lambda make: [
                make(200),
                Sample((make((16, 9), low=-0.25, high=1.25),), {"low": 0.0, "high": 1.0}),
                Sample((make((3, 5, 7)),), {"bins": 64}),
            ],
            reference=lambda a, bins=10, low=-3.0, high=3.0: np.histogram(a, bins, (low, high))[0],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"bins": 0}), ValueError, "give 1 or more")],
        )

    return wrong, right, declare


@pair(
    "bond_days",
    "28 February counts as the end of February in leap years too",
    "day counts 30/360 US in spreadsheets and pricing libraries: the test for the end of February left out leap years",
    "from 28 February 2024 to 15 April 2024: 45 days instead of 47",
)
def bond_days():
    """The days between dates (days since 1970), by 30/360 US with its rule for the end of February."""

    def civil(days):  # years from March, in cycles of 400 years
        days = days.astype("int64") + 719_468
        era = days // 146_097
        of_era = days - era * 146_097
        year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * year + year // 4 - year // 100)
        month = (5 * of_year + 2) // 153
        day = of_year - (153 * month + 2) // 5 + 1
        late = (month >= 10).astype("int64")
        return year + era * 400 + late, month + 3 - 12 * late, day

    def count(xp, start, end, ends_february):
        (y1, m1, d1), (y2, m2, d2) = civil(start), civil(end)
        first, second = ends_february(y1, m1, d1), ends_february(y2, m2, d2)
        d2 = xp.where(first & second, 30, d2)
        d1 = xp.where(first, 30, xp.minimum(d1, 30))
        d2 = xp.where((d2 == 31) & (d1 == 30), 30, d2)
        return (360 * (y2 - y1) + 30 * (m2 - m1) + d2 - d1).astype(start.dtype)

    def wrong(xp, start, end):
        return count(xp, start, end, lambda year, month, day: (month == 2) & (day >= 28))

    def right(xp, start, end):
        def last(year, month, day):
            leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
            return (month == 2) & (day == 28 + leap.astype("int64"))

        return count(xp, start, end, last)

    def reference(start, end):
        def one(start, end):
            a, b = (datetime.date(1970, 1, 1) + datetime.timedelta(int(days)) for days in (start, end))
            ends = [day.month == 2 and (day + datetime.timedelta(1)).month == 3 for day in (a, b)]
            d1 = 30 if ends[0] or a.day == 31 else a.day
            d2 = 30 if all(ends) or (b.day == 31 and d1 == 30) else b.day
            return 360 * (b.year - a.year) + 30 * (b.month - a.month) + d2 - d1

        return np.vectorize(one, otypes=["int64"])(start, end)

    def declare(fn):
        years = {"low": -25_000, "high": 47_000}
        return OpSpec(
            fn=fn,
            name="bond_days",
            dtypes=("int32", "int64"),
            samples=lambda make: [tuple(make(n, **years) for _ in range(2)) for n in (40, (6, 5))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "minimizers",
    "of equal smallest hashes in a window the last is taken",
    "minimizer schemes of sequence mappers: two implementations differ in < and <=, so their seeds do not match",
    "a repeat such as poly-A, where hashes in one window are equal: the position is the last one, not the first",
)
def minimizers():
    """The position of the smallest hash in each window of a sequence; of equal ones the leftmost."""

    def scan(xp, hashes, window, smaller):
        if window < 1:
            raise ValueError(f"window is {window}; give 1 or more")
        count = max(hashes.shape[-1] - window + 1, 0)
        first = xp.arange(count, dtype="int64")
        best = hashes[..., :count]
        position = xp.zeros(best.shape, dtype="int64") + first
        for step in range(1, window if count else 1):
            following = hashes[..., step : step + count]
            taken = smaller(following, best)
            best, position = xp.where(taken, following, best), xp.where(taken, first + step, position)
        return position

    def wrong(xp, hashes, window=5):
        return scan(xp, hashes, window, lambda following, best: following <= best)

    def right(xp, hashes, window=5):
        return scan(xp, hashes, window, lambda following, best: following < best)

    def reference(hashes, window=5):
        count = max(hashes.shape[-1] - window + 1, 0)
        out = np.zeros((*hashes.shape[:-1], count), dtype="int64")
        for i in np.ndindex(out.shape):
            row = hashes[i[:-1]][i[-1] : i[-1] + window].tolist()
            out[i] = i[-1] + row.index(min(row))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="minimizers",
            dtypes=("int32", "int64"),
            result_dtype=lambda hashes: "int64",
            samples=lambda make: [
                make(70, low=0, high=2**31 - 1),
                Sample((make((3, 40), low=0, high=2**31 - 1),), {"window": 10}),
                make((2, 3), low=0, high=2**31 - 1),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"window": 0}), ValueError, "window is 0")],
        )

    return wrong, right, declare


@pair(
    "label_regions",
    "the number of sweeps is the height plus the width of the image",
    "LLM-written kernels of connected components: a fixed number of passes instead of passes until nothing changes",
    "a spiral or winding corridor of bright pixels: its far end keeps another label",
)
def label_regions():
    """Connected regions (4 neighbours) of pixels above a threshold; the label is the first pixel's number, from 1.

    Other pixels get 0.
    """

    def start(xp, a, threshold):
        numbers = xp.arange(1, a.shape[0] * a.shape[1] + 1, dtype="int64").reshape(a.shape)
        return a > threshold, xp.where(a > threshold, numbers, 0)

    def sweep(xp, bright, labels):
        far = labels.size + 1
        near = xp.full((labels.shape[0] + 2, labels.shape[1] + 2), far, dtype="int64")
        near[1:-1, 1:-1] = xp.where(bright, labels, far)
        least = xp.minimum(xp.minimum(near[:-2, 1:-1], near[2:, 1:-1]), xp.minimum(near[1:-1, :-2], near[1:-1, 2:]))
        return xp.where(bright, xp.minimum(least, labels), 0)

    def wrong(xp, a, threshold=0.0):
        bright, labels = start(xp, a, threshold)
        for _ in range(a.shape[0] + a.shape[1]):
            labels = sweep(xp, bright, labels)
        return labels

    def right(xp, a, threshold=0.0):
        bright, labels = start(xp, a, threshold)
        while True:
            before, labels = labels, sweep(xp, bright, labels)
            if not bool((before != labels).any()):
                return labels

    def reference(a, threshold=0.0):
        regions, count = scipy.ndimage.label(a > threshold)
        first = [0] + [int(np.argmax(regions.reshape(-1) == i)) + 1 for i in range(1, count + 1)]
        return np.array(first, dtype="int64")[regions]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="label_regions",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: "int64",
            samples=lambda make: [
                make((12, 12)),
                make((5, 19)),
                Sample((make((16, 10)),), {"threshold": 1.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "distance_to_seeds",
    "a column without seeds gets the height of the image as its distance, which stands for infinity",
    "Meijster's distance transform needs height + width as infinity; versions with the height alone are common",
    "a low wide image, 4 x 20, with one seed at the left: far pixels have distance 4 instead of up to 19",
)
def distance_to_seeds():
    """The Euclidean distance of each pixel to the nearest seed, separably; infinity without any seed."""

    def separable(xp, seeds, spacing, missing):
        rows, columns = (xp.arange(n, dtype="float64") * s for n, s in zip(seeds.shape, spacing, strict=True))
        vertical = xp.abs(rows[:, None] - rows)[:, :, None]
        vertical = xp.where(seeds[None], vertical, missing).min(axis=1)
        horizontal = (columns[:, None] - columns)[None]
        return xp.sqrt((horizontal**2 + vertical[:, None, :] ** 2).min(axis=-1))

    def wrong(xp, seeds, spacing=(1.0, 1.0)):
        if 0 in seeds.shape:
            return xp.zeros(seeds.shape, dtype="float64")
        found = separable(xp, seeds != 0, spacing, seeds.shape[0] * spacing[0])
        return xp.where((seeds != 0).any(), found, math.inf)

    def right(xp, seeds, spacing=(1.0, 1.0)):
        if 0 in seeds.shape:
            return xp.zeros(seeds.shape, dtype="float64")
        return separable(xp, seeds != 0, spacing, math.inf)

    def reference(seeds, spacing=(1.0, 1.0)):
        out = np.full(seeds.shape, math.inf)
        places = np.argwhere(seeds != 0) * np.array(spacing)
        if len(places):
            for i in np.ndindex(seeds.shape):
                out[i] = np.linalg.norm(places - np.array(i) * np.array(spacing), axis=1).min()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="distance_to_seeds",
            dtypes=("bool", "uint8"),
            result_dtype=lambda seeds: "float64",
            samples=lambda make: [
                make((12, 12), low=0, high=1),
                make((5, 17), low=0, high=1),
                Sample((make((9, 6), low=0, high=1),), {"spacing": (2.0, 0.5)}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "zero_crossings",
    "two neighbours differ in sign if their product is negative, and the product of small numbers is zero",
    "zero-crossing rates in audio kernels, written as x[1:] * x[:-1] < 0; librosa compares sign bits",
    "float32 of amplitude 1e-23 (as gravitational strain) or float16 of 1e-4: most crossings are not counted",
)
def zero_crossings():
    """How often a signal changes its sign along its last axis; zero and NaN count as positive, as for librosa."""

    def wrong(xp, a):
        positive = xp.where((a > 0) | (a < 0), a, xp.ones((), dtype=a.dtype))
        return (positive[..., 1:] * positive[..., :-1] < 0).sum(axis=-1)

    def right(xp, a):
        return ((a[..., 1:] < 0) != (a[..., :-1] < 0)).sum(axis=-1)

    def reference(a):
        return np.abs(np.diff(np.where(a < 0, -1, 1), axis=-1)).sum(axis=-1) // 2

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="zero_crossings",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda a: "int64",
            samples=lambda make: [make(101), make((4, 33)), make((2, 3, 16)), make((3, 1))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rolling_max",
    "a centred window of even length lies one place too far to the right",
    "pandas' rolling with center=True and its copies in GPU data frames: half of an even window was rounded up",
    "window 4 with center=True; odd windows, and windows that end at the row, are right",
)
def rolling_max():
    """The largest number in a rolling window, as pandas: NaN is left out, and too few numbers give NaN."""

    def roll(xp, a, window, ahead, least):
        n = a.shape[-1]
        padded = xp.full((*a.shape[:-1], n + window - 1), math.nan, dtype=a.dtype)
        padded[..., window - 1 - ahead : window - 1 - ahead + n] = a
        top = xp.full(a.shape, -math.inf, dtype=a.dtype)
        count = xp.zeros(a.shape, dtype="int64")
        for i in range(window):
            part = padded[..., i : i + n]
            known = ~xp.isnan(part)
            top = xp.where(known, xp.maximum(top, part), top)
            count = count + known
        return xp.where(count >= max(least, 1), top, math.nan).astype(a.dtype)

    def wrong(xp, a, window=5, center=False, min_periods=None):
        least = window if min_periods is None else min_periods
        return roll(xp, a, window, window // 2 if center else 0, least)

    def right(xp, a, window=5, center=False, min_periods=None):
        least = window if min_periods is None else min_periods
        return roll(xp, a, window, (window - 1) // 2 if center else 0, least)

    def reference(a, window=5, center=False, min_periods=None):
        out = np.full(a.shape, math.nan)
        for i in np.ndindex(a.shape):
            stop = i[-1] + 1 + ((window - 1) // 2 if center else 0)
            part = a[i[:-1]][max(stop - window, 0) : stop]
            part = part[~np.isnan(part)]
            if len(part) >= max(window if min_periods is None else min_periods, 1):
                out[i] = part.max()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rolling_max",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40),
                Sample((make((3, 21)),), {"window": 4}),
                Sample((make((2, 17)),), {"center": True}),
                Sample((make(30),), {"min_periods": 2}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "pair_numbers",
    "two keys are joined to one by a product in their own dtype, which overflows",
    "pandas get_group_index: the product of the cardinalities of several keys exceeded int64; cuDF ports with int32",
    "int32 keys up to 100,000 (customers and articles): the groups are numbered in another order, or fall together",
)
def pair_numbers():
    """The number of the group of each row, for two integer keys; groups are sorted, as pandas' ngroup."""

    def wrong(xp, first, second):
        if first.size == 0:
            return xp.zeros(first.shape, dtype="int64")
        span = second.max() - second.min() + 1
        joined = (first - first.min()) * span + (second - second.min())
        return xp.unique(joined, return_inverse=True)[1].reshape(first.shape)

    def right(xp, first, second):
        if first.size == 0:
            return xp.zeros(first.shape, dtype="int64")
        ranks = [xp.unique(key, return_inverse=True)[1].reshape(key.shape).astype("int64") for key in (first, second)]
        joined = ranks[0] * (first.size + 1) + ranks[1]
        return xp.unique(joined, return_inverse=True)[1].reshape(first.shape)

    def reference(first, second):
        rows = list(zip(first.tolist(), second.tolist(), strict=True))
        numbers = {row: i for i, row in enumerate(sorted(set(rows)))}
        return np.array([numbers[row] for row in rows], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pair_numbers",
            dtypes=("int32", "int64"),
            result_dtype=lambda first, second: "int64",
            samples=lambda make: [
                (make(50), make(50)),
                (make(31, low=0, high=365), make(31, low=1, high=12)),
                Sample((make(0), make(0)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "peak_blocks",
    "a padded work buffer is kept between calls, and its padding is not filled again",
    "workspace caches in inference engines and audio viewers, keyed by the padded shape",
    "a signal of 35 numbers after one of 45, both padded to 48: the last block holds a peak of the earlier signal",
)
def peak_blocks():
    """The largest number of each block of a signal, for drawing it; the last block may be shorter."""
    buffers: dict[Any, Any] = {}

    def padded_shape(a, block):
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")
        return (*a.shape[:-1], -(-a.shape[-1] // block) * block)

    def peaks(padded, a, block):
        padded[..., : a.shape[-1]] = a
        return padded.reshape((*a.shape[:-1], padded.shape[-1] // block, block)).max(axis=-1)

    def wrong(xp, a, block=16):
        key = (xp.__name__, padded_shape(a, block), str(a.dtype))
        if key not in buffers:
            buffers[key] = xp.full(key[1], -math.inf, dtype=a.dtype)
        return peaks(buffers[key], a, block)

    def right(xp, a, block=16):
        return peaks(xp.full(padded_shape(a, block), -math.inf, dtype=a.dtype), a, block)

    def reference(a, block=16):
        starts = range(0, a.shape[-1], block)
        out = [a[..., i : i + block].max(axis=-1) for i in starts]
        return np.stack(out, axis=-1) if out else np.zeros((*a.shape[:-1], 0))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="peak_blocks",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(45),
                make((3, 64)),
                Sample((make((2, 30)),), {"block": 7}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"block": 0}), ValueError, "block is 0")],
        )

    return wrong, right, declare


@pair(
    "integral_image",
    "an out= that is not contiguous is flattened to a copy, and the result is written there",
    "torch extensions that call out.contiguous(), and reshape(-1) in NumPy code: both may copy, without a word",
    "out= is the transpose of an array: it keeps its old numbers",
)
def integral_image():
    """The sums of all pixels above and to the left of each pixel, of one image or a batch of them."""

    def sums(xp, a):
        return xp.cumsum(xp.cumsum(a.astype("float64"), axis=-2), axis=-1).astype(a.dtype)

    def check(a, out):
        if out.shape != a.shape:
            raise ValueError(f"out has shape {out.shape}, the image {a.shape}")

    def wrong(xp, a, out=None):
        if out is None:
            out = xp.empty(a.shape, dtype=a.dtype)
        check(a, out)
        flat = out.reshape(-1)
        flat[:] = sums(xp, a).reshape(-1)
        return out

    def right(xp, a, out=None):
        if out is None:
            out = xp.empty(a.shape, dtype=a.dtype)
        check(a, out)
        out[...] = sums(xp, a)
        return out

    def reference(a):
        lower = [np.tril(np.ones((n, n))) for n in a.shape[-2:]]
        return lower[0] @ a @ lower[1].T

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="integral_image",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((9, 14)), make((3, 6, 6)), make((2, 2, 5, 3)), make((1, 30))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "ray_meets_box",
    "a ray along a face of the box gives 0 / 0, and counts as a miss",
    "the slab test of ray tracers without a case for parallel rays: NaN where the origin lies in a face's plane",
    "origin (0, 0.5, -1), direction (0, 0, 1), box from 0 to 1: infinity instead of 1",
)
def ray_meets_box():
    """How far along each ray a cube begins, 0 from inside it and infinity past it; the faces belong to the cube."""

    def nearest(xp, first, second, dtype):
        near, far = xp.minimum(first, second).max(axis=-1), xp.maximum(first, second).min(axis=-1)
        near = xp.maximum(near, 0.0)
        return xp.where(far >= near, near, math.inf).astype(dtype)

    def slabs(origin, direction, low, high):
        start, along = origin.astype("float64"), direction.astype("float64")
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return start, along, (low - start) / along, (high - start) / along

    def wrong(xp, origin, direction, low=0.0, high=1.0):
        _, _, first, second = slabs(origin, direction, low, high)
        return nearest(xp, first, second, origin.dtype)

    def right(xp, origin, direction, low=0.0, high=1.0):
        start, along, first, second = slabs(origin, direction, low, high)
        parallel, inside = along == 0, (start >= low) & (start <= high)
        first = xp.where(parallel, xp.where(inside, -math.inf, math.inf), first)
        return nearest(xp, first, xp.where(parallel, math.inf, second), origin.dtype)

    def reference(origin, direction, low=0.0, high=1.0):
        def one(start, along):
            times = [0.0, math.inf]
            for p, v in zip(start, along, strict=True):
                if v == 0 and not low <= p <= high:
                    return math.inf
                if v != 0:
                    ends = ((low - p) / v, (high - p) / v)
                    if np.isnan(ends).any():
                        return math.inf
                    times = [max(times[0], min(ends)), min(times[1], max(ends))]
            return times[0] if times[0] <= times[1] else math.inf

        with np.errstate(all="ignore"):
            out = [one(*ray) for ray in zip(origin.reshape(-1, 3), direction.reshape(-1, 3), strict=True)]
        return np.array(out, dtype="float64").reshape(origin.shape[:-1])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ray_meets_box",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((40, 3)), make((40, 3))),
                (make((2, 9, 3), low=0, high=1), make((2, 9, 3))),
                Sample((make((25, 3)), make((25, 3))), {"low": -1.0, "high": 2.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare
