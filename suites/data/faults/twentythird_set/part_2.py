"""Periodic boxes, images, averages, months, scans, histograms, max-plus, DCT, bits, FP4, loads: faults with twins."""

import calendar
import heapq
import itertools
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
    "periodic_displacement",
    "the wrap into the box is done once, not as often as needed",
    "minimum-image code of particle simulations, written for positions that were wrapped before",
    "positions 20 and 0 in a box of 8: 12 is returned, the nearest image is at -4",
)
def periodic_displacement():
    """The displacement from b to the nearest periodic image of a, from -box/2 (included) to box/2."""

    def check(box):
        if not box > 0:
            raise ValueError(f"box is {box}; give more than 0")

    def nearest(xp, d, box, dtype):
        d = xp.where(d >= box / 2, d - box, d)
        return xp.where(d < -box / 2, d + box, d).astype(dtype)

    def wrong(xp, a, b, box=8.0):
        check(box)
        return nearest(xp, a.astype("float64") - b.astype("float64"), box, xp.result_type(a, b))

    def right(xp, a, b, box=8.0):
        check(box)
        d = xp.fmod(a.astype("float64") - b.astype("float64"), box)
        return nearest(xp, d, box, xp.result_type(a, b))

    def reference(a, b, box=8.0):
        check(box)
        d = np.asarray(a - b)
        out = np.empty(d.shape)
        for i in np.ndindex(d.shape):
            r = math.remainder(d[i], box) if np.isfinite(d[i]) else math.nan
            out[i] = -box / 2 if r == box / 2 else r
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="periodic_displacement",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((40, 3)), make((40, 3))),
                Sample((make((25, 2)), make((25, 2))), {"box": 6.5}),
                Sample((make((7, 1, 3)), make((5, 3))), {"box": 12.0}, kind="broadcast"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4), make(4)), {"box": 0.0}), ValueError, "box is 0")],
        )

    return wrong, right, declare


@pair(
    "hysteresis_mask",
    "growth stops after a fixed number of sweeps",
    "Canny edge detection on GPUs: hysteresis is launched a fixed number of times instead of until nothing changes",
    "one row of 40 weak pixels whose first is strong: only 17 pixels are kept",
)
def hysteresis_mask():
    """Pixels of at least `weak` that touch (8 neighbours), through such pixels, one of at least `strong`."""

    def check(shape, weak, strong):
        if len(shape) != 2:
            raise ValueError(f"{len(shape)} axes; give an image of 2")
        if weak > strong:
            raise ValueError(f"weak is {weak}; give at most strong, {strong}")

    def grow(xp, kept, allowed):
        height, width = kept.shape
        padded = xp.zeros((height + 2, width + 2), dtype="bool")
        padded[1:-1, 1:-1] = kept
        across = padded[:, :-2] | padded[:, 1:-1] | padded[:, 2:]
        return (across[:-2] | across[1:-1] | across[2:]) & allowed

    def wrong(xp, a, weak=0.5, strong=2.0):
        check(a.shape, weak, strong)
        allowed, kept = a >= weak, a >= strong
        for _ in range(16):
            kept = grow(xp, kept, allowed)
        return kept

    def right(xp, a, weak=0.5, strong=2.0):
        check(a.shape, weak, strong)
        allowed, kept = a >= weak, a >= strong
        while True:
            grown = grow(xp, kept, allowed)
            if not bool(xp.any(grown != kept)):
                return kept
            kept = grown

    def reference(a, weak=0.5, strong=2.0):
        check(a.shape, weak, strong)
        out = a >= strong
        todo = [tuple(place) for place in np.argwhere(out)]
        while todo:
            y, x = todo.pop()
            for i in range(max(y - 1, 0), min(y + 2, a.shape[0])):
                for j in range(max(x - 1, 0), min(x + 2, a.shape[1])):
                    if a[i, j] >= weak and not out[i, j]:
                        out[i, j] = True
                        todo.append((i, j))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="hysteresis_mask",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((20, 24)),
                Sample((make((33, 40)),), {"weak": -1.0, "strong": 2.5}),
                Sample((make((6, 90)),), {"strong": 1.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9),), {}), ValueError, "1 axes"),
                ErrorInput(Sample((make((3, 3)),), {"weak": 3.0}), ValueError, "weak is 3"),
            ],
        )

    return wrong, right, declare


@pair(
    "local_mean",
    "sums of windows are held in 16 bits",
    "integral images in a narrow type: wrapping around cancels in differences, but the window's own sum must fit",
    "an image of 255 with radius 8: 17 * 17 * 255 is over 65535 and the mean is 28",
)
def local_mean():
    """The rounded mean of the pixels in a square window, cut off at the borders; halves are rounded up."""

    def check(shape, radius):
        if len(shape) != 2:
            raise ValueError(f"{len(shape)} axes; give an image of 2")
        if radius < 0:
            raise ValueError(f"radius is {radius}; give 0 or more")

    def mean(xp, a, radius, accumulator):
        check(a.shape, radius)
        height, width = a.shape
        table = xp.zeros((height + 1, width + 1), dtype=accumulator)
        table[1:, 1:] = xp.cumsum(
            xp.cumsum(a.astype(accumulator), axis=0, dtype=accumulator), axis=1, dtype=accumulator
        )
        rows, columns = xp.arange(height, dtype="int64"), xp.arange(width, dtype="int64")
        top, bottom = xp.clip(rows - radius, 0, height), xp.clip(rows + radius + 1, 0, height)
        left, right = xp.clip(columns - radius, 0, width), xp.clip(columns + radius + 1, 0, width)
        lower, upper = xp.take(table, bottom, axis=0), xp.take(table, top, axis=0)
        strips = lower - upper
        sums = (xp.take(strips, right, axis=1) - xp.take(strips, left, axis=1)).astype("int64")
        counts = (bottom - top)[:, None] * (right - left)[None, :]
        return ((sums + counts // 2) // counts).astype("uint8")

    def wrong(xp, a, radius=1):
        return mean(xp, a, radius, "uint16")

    def right(xp, a, radius=1):
        return mean(xp, a, radius, "int64")

    def reference(a, radius=1):
        check(a.shape, radius)
        out = np.empty(a.shape, dtype="int64")
        for y, x in np.ndindex(a.shape):
            window = a[max(y - radius, 0) : y + radius + 1, max(x - radius, 0) : x + radius + 1]
            total = sum(int(pixel) for pixel in window.ravel())
            out[y, x] = (2 * total + window.size) // (2 * window.size)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="local_mean",
            dtypes=("uint8",),
            result_dtype="uint8",
            samples=lambda make: [
                make((20, 31), low=0, high=255),
                Sample((make((18, 24), low=0, high=255),), {"radius": 8}),
                Sample((make((7, 40), low=0, high=255),), {"radius": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((3, 3), low=0, high=255),), {"radius": -1}), ValueError, "radius is -1"),
                ErrorInput(Sample((make(9, low=0, high=255),), {}), ValueError, "1 axes"),
            ],
        )

    return wrong, right, declare


@pair(
    "smoothed_prices",
    "the closed form divides by powers that vanish in a long series",
    "the well-known vectorised exponential moving average, cumsum(x / d**k) * d**k, without blocks",
    "400 prices of 100 with alpha 0.9: the quotient overflows at element 307, and the end of the result is nan",
)
def smoothed_prices():
    """Exponential smoothing along the last axis: y[0] = a[0], y[t] = (1 - alpha) y[t - 1] + alpha a[t]."""

    def check(a, alpha):
        if a.ndim == 0:
            raise ValueError("0 axes; give at least 1")
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha is {alpha}; give more than 0 and at most 1")

    def parts(xp, a, alpha):
        wide = a.astype("float64")
        return xp.concatenate([wide[..., :1], alpha * wide[..., 1:]], axis=-1)

    def wrong(xp, a, alpha=0.25):
        check(a, alpha)
        if alpha == 1:
            return a.astype(a.dtype, copy=True)
        powers = (1 - alpha) ** xp.arange(a.shape[-1], dtype="float64")
        return (xp.cumsum(parts(xp, a, alpha) / powers, axis=-1) * powers).astype(a.dtype)

    def right(xp, a, alpha=0.25):
        check(a, alpha)
        if alpha == 1:
            return a.astype(a.dtype, copy=True)
        y, step = parts(xp, a, alpha), 1
        while step < a.shape[-1]:  # each pass doubles how many terms are in
            y = xp.concatenate([y[..., :step], y[..., step:] + (1 - alpha) ** step * y[..., :-step]], axis=-1)
            step *= 2
        return y.astype(a.dtype)

    def reference(a, alpha=0.25):
        check(a, alpha)
        out = np.array(a, dtype="float64")
        for t in range(1, a.shape[-1]):
            out[..., t] = (1 - alpha) * out[..., t - 1] + alpha * a[..., t]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smoothed_prices",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(120, low=1, high=500),
                Sample((make((4, 60), low=1, high=500),), {"alpha": 0.9}),
                Sample((make((2, 3, 35), low=1, high=500),), {"alpha": 0.05}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5, low=1, high=500),), {"alpha": 0.0}), ValueError, "alpha is 0"),
                ErrorInput(Sample((make(5, low=1, high=500),), {"alpha": 1.5}), ValueError, "alpha is 1.5"),
            ],
        )

    return wrong, right, declare


@pair(
    "months_later",
    "every fourth year is a leap year",
    "date arithmetic with (year & 3) == 0, which holds from 1901 to 2099 only",
    "31 December 1900 and -10 months: 29 February 1900, which never was",
)
def months_later():
    """The dates `shift` months later, as year * 10000 + month * 100 + day; too late days become the month's last."""

    def move(xp, years, months, days, shift, leap):
        total = years.astype("int64") * 12 + months.astype("int64") - 1 + shift
        year = total // 12
        month = total - 12 * year
        lengths = xp.asarray([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype="int64")
        last = xp.take(lengths, month) + ((month == 1) & leap(year)).astype("int64")
        day = xp.minimum(days.astype("int64"), last)
        return (year * 10000 + (month + 1) * 100 + day).astype(years.dtype)

    def wrong(xp, years, months, days, shift=1):
        return move(xp, years, months, days, shift, lambda year: (year & 3) == 0)

    def right(xp, years, months, days, shift=1):
        def leap(year):
            return ((year & 3) == 0) & ((year % 100 != 0) | (year % 400 == 0))

        return move(xp, years, months, days, shift, leap)

    def reference(years, months, days, shift=1):
        years, months, days = np.broadcast_arrays(years, months, days)
        out = np.empty(years.shape, dtype="int64")
        for i in np.ndindex(out.shape):
            year, month, left = int(years[i]), int(months[i]), shift
            while left:
                month += 1 if left > 0 else -1
                left -= 1 if left > 0 else -1
                if month == 13:
                    year, month = year + 1, 1
                elif month == 0:
                    year, month = year - 1, 12
            out[i] = year * 10000 + month * 100 + min(int(days[i]), calendar.monthrange(year, month)[1])
        return out

    def dates(make, shape):
        return make(shape, low=1900, high=2100), make(shape, low=1, high=12), make(shape, low=1, high=31)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="months_later",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                dates(make, 30),
                Sample(dates(make, (4, 6)), {"shift": -10}),
                Sample(dates(make, 17), {"shift": 14}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "segmented_cumsum",
    "a tile without a head hands on its own sum only",
    "single-pass scans with look-back: the aggregate of the tile before is taken for its inclusive prefix",
    "200 ones without a head: element 128 is 65 instead of 129",
)
def segmented_cumsum():
    """Running sums that begin anew wherever `heads` is true."""

    tile = 64

    def check(a, heads):
        if a.ndim != 1 or a.shape != heads.shape:
            raise ValueError(f"shapes {a.shape} and {heads.shape}; give two equal ones of 1 axis")

    def scan(xp, sums, seen):
        """Inclusive segmented scan along the last axis, and where a head was at or before a place."""
        step = 1
        while step < sums.shape[-1]:
            before = xp.where(seen[..., step:], 0.0, sums[..., :-step])
            sums = xp.concatenate([sums[..., :step], sums[..., step:] + before], axis=-1)
            seen = xp.concatenate([seen[..., :step], seen[..., step:] | seen[..., :-step]], axis=-1)
            step *= 2
        return sums, seen

    def tiled(xp, a, heads, prefixes):
        check(a, heads)
        n = a.shape[0]
        tiles = -(-n // tile)
        sums, seen = xp.zeros(tiles * tile, dtype="float64"), xp.zeros(tiles * tile, dtype="bool")
        sums[:n], seen[:n] = a, heads
        sums, seen = scan(xp, sums.reshape(tiles, tile), seen.reshape(tiles, tile))
        ends = prefixes(sums[:, -1], seen[:, -1])
        carried = xp.concatenate([xp.zeros(1, dtype="float64"), ends])[:tiles]
        sums = sums + xp.where(seen, 0.0, carried[:, None])
        return sums.reshape(-1)[:n].astype(a.dtype)

    def wrong(xp, a, heads):
        return tiled(xp, a, heads, lambda sums, seen: sums)

    def right(xp, a, heads):
        return tiled(xp, a, heads, lambda sums, seen: scan(xp, sums, seen)[0])

    def reference(a, heads):
        check(a, heads)
        out, total = np.empty(a.shape), 0.0
        for i, (number, head) in enumerate(zip(a, heads, strict=True)):
            total = number if head else total + number
            out[i] = total
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segmented_cumsum",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(30, low=-50, high=50), make(30, dtype="bool")),
                (make(200, low=-50, high=50), make(200, dtype="bool")),
                (make(1000, low=0, high=1), make(1000, dtype="bool")),
                Sample((make(0, low=0, high=1), make(0, dtype="bool")), {}, kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5), make(4, dtype="bool")), {}), ValueError, "shapes"),
            ],
        )

    return wrong, right, declare


@pair(
    "row_histogram",
    "the result is written through out.reshape(-1), which copies what is not contiguous",
    "NumPy: reshape returns a view only where strides allow it; kernels with flat results lose a strided out=",
    "out is a transposed array of zeros: it is still zeros after the call",
)
def row_histogram():
    """How many numbers of each row lie in each of `bins` equal bins from -4 to 4; the last bin includes 4."""

    at_once = 16

    def check(a, bins):
        if a.ndim == 0:
            raise ValueError("0 axes; give at least 1")
        if bins < 1:
            raise ValueError(f"bins is {bins}; give 1 or more")

    def count(xp, rows, bins, flat):
        """Write the counts of `rows` one after another."""
        edges, places = xp.asarray(np.linspace(-4.0, 4.0, bins + 1)), xp.arange(bins, dtype="int64")
        for start in range(0, rows.shape[0], at_once):
            block = rows[start : start + at_once].astype("float64")
            found = xp.searchsorted(edges, block.reshape(-1), side="right").reshape(block.shape) - 1
            found = xp.where(block == 4.0, bins - 1, found)
            inside = (block >= -4.0) & (block <= 4.0)
            hits = (found[..., None] == places) & inside[..., None]
            flat[start * bins : (start + block.shape[0]) * bins] = hits.sum(axis=1).astype("int64").reshape(-1)

    def prepare(a, bins, out):
        check(a, bins)
        shape = (*a.shape[:-1], bins)
        if out is not None and out.shape != shape:
            raise ValueError(f"out has shape {out.shape}; give {shape}")
        return a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), shape

    def wrong(xp, a, bins=8, out=None):
        rows, shape = prepare(a, bins, out)
        if out is None:
            out = xp.empty(shape, dtype="int64")
        count(xp, rows, bins, out.reshape(-1))
        return out

    def right(xp, a, bins=8, out=None):
        rows, shape = prepare(a, bins, out)
        flat = xp.empty(math.prod(shape), dtype="int64")
        count(xp, rows, bins, flat)
        if out is None:
            return flat.reshape(shape)
        out[...] = flat.reshape(shape)
        return out

    def reference(a, bins=8):
        check(a, bins)
        edges = np.linspace(-4.0, 4.0, bins + 1)
        out = np.zeros((*a.shape[:-1], bins), dtype="int64")
        for i in np.ndindex(a.shape[:-1]):
            for k in range(bins):
                below = a[i] <= edges[k + 1] if k == bins - 1 else a[i] < edges[k + 1]
                out[(*i, k)] = np.count_nonzero((a[i] >= edges[k]) & below)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="row_histogram",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make((6, 50)),
                make((21, 30), low=-5, high=5),
                Sample((make((3, 4, 25)),), {"bins": 5}),
                Sample((make((0, 7)),), {}, kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 3)),), {"bins": 0}), ValueError, "bins is 0")],
        )

    return wrong, right, declare


@pair(
    "maxplus_product",
    "tiles are filled up with 0, which is not neutral for the maximum",
    "tiled matrix products turned into semiring products: shared memory past the edge is still cleared to 0",
    "negative matrices with 5 inner places: the product is 0 everywhere",
)
def maxplus_product():
    """The max-plus product: max over k of a[i, k] + b[k, j], the best of all two-step paths."""

    tile = 16

    def check(a, b):
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise ValueError(f"shapes {a.shape} and {b.shape}; give (m, k) and (k, n)")

    def product(xp, a, b, fill):
        check(a, b)
        (m, k), n, dtype = a.shape, b.shape[1], xp.result_type(a, b)
        padded = -(-k // tile) * tile
        left, right = xp.full((m, padded), fill, dtype=dtype), xp.zeros((padded, n), dtype=dtype)
        left[:, :k], right[:k] = a, b
        best = xp.full((m, n), -math.inf, dtype=dtype)
        for start in range(0, padded, tile):
            stop = start + tile
            best = xp.maximum(best, (left[:, start:stop, None] + right[None, start:stop, :]).max(axis=1))
        return best

    def wrong(xp, a, b):
        return product(xp, a, b, 0.0)

    def right(xp, a, b):
        return product(xp, a, b, -math.inf)

    def reference(a, b):
        check(a, b)
        out = np.full((a.shape[0], b.shape[1]), -math.inf)
        for i, j in np.ndindex(out.shape):
            if a.shape[1]:
                out[i, j] = (a[i] + b[:, j]).max()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="maxplus_product",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((9, 40)), make((40, 7))),
                (make((12, 32)), make((32, 12))),
                (make((5, 70), low=-100, high=100), make((70, 3), low=-100, high=100)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((3, 4)), make((5, 2))), {}), ValueError, "shapes"),
            ],
        )

    return wrong, right, declare


@pair(
    "cosine_transform",
    "the cached matrix does not depend on the option that scales it",
    "plan and basis caches keyed by the length alone, older than the option norm=",
    "length 16 first without and then with ortho=True: the second result has the scale of the first",
)
def cosine_transform():
    """The DCT-II along the last axis: 2 * sum of a[j] cos(pi k (2 j + 1) / (2 n)); `ortho` makes it orthonormal."""

    def check(a):
        if a.ndim == 0:
            raise ValueError("0 axes; give at least 1")

    def build(n, ortho):
        k, j = np.arange(n)[:, None], np.arange(n)[None, :]
        matrix = 2 * np.cos(np.pi * (k * (2 * j + 1) % (4 * n)) / (2 * n)) if n else np.zeros((0, 0))
        if ortho and n:
            matrix *= math.sqrt(1 / (2 * n))
            matrix[0] *= math.sqrt(0.5)
        return matrix

    matrices = {}

    def apply(xp, a, matrix):
        return xp.matmul(a.astype("float64"), xp.asarray(matrix).T).astype(a.dtype)

    def wrong(xp, a, ortho=False):
        check(a)
        n = a.shape[-1]
        if n not in matrices:
            matrices[n] = build(n, ortho)
        return apply(xp, a, matrices[n])

    def right(xp, a, ortho=False):
        check(a)
        return apply(xp, a, build(a.shape[-1], ortho))

    def reference(a, ortho=False):
        check(a)
        n = a.shape[-1]
        out = np.empty(a.shape)
        for k in range(n):
            out[..., k] = sum(2 * a[..., j] * math.cos(math.pi * k * (2 * j + 1) / (2 * n)) for j in range(n))
            if ortho:
                out[..., k] /= math.sqrt(4 * n) if k == 0 else math.sqrt(2 * n)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cosine_transform",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((7, 16), low=-10, high=10),
                Sample((make((3, 24), low=-10, high=10),), {"ortho": True}),
                make((2, 4, 9), low=-10, high=10),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "packed_signs",
    "bits are taken in the order of memory",
    "ravel(order='K'), meant to save a copy: a transposed gradient is packed in another order than its neighbours'",
    "the transpose of [[1, -1], [1, 1]]: byte 13 instead of 11",
)
def packed_signs():
    """One bit for each number, set if it is positive, eight to a byte, the lowest bit first, in C order."""

    def pack(xp, bits):
        total = -(-bits.shape[0] // 8)
        padded = xp.zeros(total * 8, dtype="uint8")
        padded[: bits.shape[0]] = bits
        weights = xp.asarray([1, 2, 4, 8, 16, 32, 64, 128], dtype="uint8")
        return (padded.reshape(total, 8) * weights).sum(axis=1).astype("uint8")

    def wrong(xp, a):
        return pack(xp, (a > 0).ravel(order="K"))

    def right(xp, a):
        return pack(xp, (a > 0).reshape(-1))

    def reference(a):
        numbers = [float(a[i]) for i in np.ndindex(a.shape)]
        out = [0] * ((len(numbers) + 7) // 8)
        for place, number in enumerate(numbers):
            if number > 0:
                out[place // 8] += 1 << place % 8
        return np.array(out, dtype="uint8")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="packed_signs",
            dtypes=("float32", "float64"),
            result_dtype="uint8",
            samples=lambda make: [
                make(64),
                make((6, 15)),
                make((2, 5, 11)),
                Sample((make((0, 3)),), {}, kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "fp4_rounded",
    "numbers halfway between two representable ones go up, not to the even code",
    "FP4 (E2M1) quantisers that look up searchsorted(midpoints, x, side='right')",
    "0.25 becomes 0.5 and 5 becomes 6; round to nearest even gives 0 and 4",
)
def fp4_rounded():
    """Numbers rounded to scale times an E2M1 value, to nearest even, at most 6 * scale; nan stays nan."""

    values = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    middles = tuple((low + high) / 2 for low, high in itertools.pairwise(values))

    def check(scale):
        if not scale > 0:
            raise ValueError(f"scale is {scale}; give more than 0")

    def rounded(xp, a, scale, code_of):
        check(scale)
        wide = a.astype("float64") / scale
        size = xp.abs(wide)
        code = code_of(xp.asarray(middles, dtype="float64"), size)
        out = xp.take(xp.asarray(values, dtype="float64"), code)
        out = xp.where(wide < 0, -out, out) * scale
        return xp.where(xp.isnan(wide), wide, out).astype(a.dtype)

    def wrong(xp, a, scale=1.0):
        return rounded(xp, a, scale, lambda table, size: xp.searchsorted(table, size, side="right"))

    def right(xp, a, scale=1.0):
        def code_of(table, size):
            low = xp.searchsorted(table, size, side="left")
            return xp.where(low % 2 == 0, low, xp.searchsorted(table, size, side="right"))

        return rounded(xp, a, scale, code_of)

    def reference(a, scale=1.0):
        check(scale)
        out = np.empty(a.shape)
        for i in np.ndindex(a.shape):
            number = float(a[i]) / scale
            if math.isnan(number):
                out[i] = math.nan
                continue
            size = min(abs(number), 6.0)
            code = min(range(8), key=lambda code: (abs(size - values[code]), code % 2))
            out[i] = scale * (-values[code] if number < 0 else values[code])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fp4_rounded",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((6, 32)),
                Sample((make(90),), {"scale": 0.25}),
                Sample((make((3, 5, 8)),), {"scale": 2.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"scale": 0.0}), ValueError, "scale is 0")],
        )

    return wrong, right, declare


@pair(
    "greedy_loads",
    "loads that already are float64 are added to in place",
    "asarray(loads, dtype=float64) taken for a copy; it is one for every other dtype",
    "costs [2.0] and loads [1.0, 0.0] in float64: the caller's loads become [1.0, 2.0]",
)
def greedy_loads():
    """The loads of workers after each chunk in turn went to the least loaded one, the first of equals."""

    def check(costs, loads):
        if costs.ndim != 1 or loads.ndim != 1:
            raise ValueError(f"{costs.ndim} and {loads.ndim} axes; give 1 each")
        if loads.shape[0] == 0:
            raise ValueError("no workers; give at least 1")

    def spread(xp, costs, loads, dtype):
        for place in range(costs.shape[0]):
            worker = int(xp.argmin(loads))
            loads[worker] += costs[place]
        return loads.astype(dtype)

    def wrong(xp, costs, loads):
        check(costs, loads)
        return spread(xp, costs, xp.asarray(loads, dtype="float64"), loads.dtype)

    def right(xp, costs, loads):
        check(costs, loads)
        return spread(xp, costs, xp.array(loads, dtype="float64"), loads.dtype)

    def reference(costs, loads):
        check(costs, loads)
        heap = [(float(load), worker) for worker, load in enumerate(loads)]
        heapq.heapify(heap)
        for cost in costs:
            load, worker = heap[0]
            heapq.heapreplace(heap, (load + float(cost), worker))
        return np.array([load for load, _ in sorted(heap, key=lambda entry: entry[1])])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="greedy_loads",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40, low=0, high=20), make(6, low=0, high=30)),
                (make(25, low=0, high=5), make(9, low=0, high=30)),
                Sample((make(0, low=0, high=20), make(4, low=0, high=30)), {}, kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3, low=0, high=20), make(0, low=0, high=30)), {}), ValueError, "no workers"),
            ],
        )

    return wrong, right, declare
