"""Rolling windows, joins, ranks, tokens, masks, dates, histograms, colours, blurs, codes: faults with their twins."""

import bisect
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
    "rolling_mean",
    "the running sum never forgets an infinity",
    "pandas rolling mean and sum: a running total that subtracts what leaves the window stays NaN after an infinity",
    "an infinity early in the series: all windows behind it are NaN, though they hold ordinary numbers only",
)
def rolling_mean():
    """Mean of each window along the last axis; NaN before the first full window and where a window holds NaN."""

    def check(window):
        if window < 1:
            raise ValueError(f"window is {window}; give 1 or more")

    def finish(xp, a, means):
        start = xp.full(a.shape[:-1] + (a.shape[-1] - means.shape[-1],), math.nan, dtype="float64")
        return xp.concatenate([start, means], axis=-1).astype(a.dtype)

    def wrong(xp, a, window=3):
        check(window)
        if a.shape[-1] < window:
            return xp.full(a.shape, math.nan, dtype=a.dtype)
        missing = xp.isnan(a)
        zero = xp.zeros(a.shape[:-1] + (1,), dtype="float64")
        wide = xp.where(missing, 0.0, a.astype("float64"))
        sums = xp.concatenate([zero, xp.cumsum(wide, axis=-1)], axis=-1)
        holes = xp.concatenate([zero, xp.cumsum(missing.astype("float64"), axis=-1)], axis=-1)
        total = sums[..., window:] - sums[..., :-window]
        none = holes[..., window:] == holes[..., :-window]
        return finish(xp, a, xp.where(none, total / window, math.nan))

    def right(xp, a, window=3):
        check(window)
        count = a.shape[-1] - window + 1
        if count < 1:
            return xp.full(a.shape, math.nan, dtype=a.dtype)
        shares = a.astype("float64") / window
        means = shares[..., :count]
        for k in range(1, window):
            means = means + shares[..., k : k + count]
        return finish(xp, a, means)

    def reference(a, window=3):
        a = np.asarray(a, dtype="float64")
        out = np.full(a.shape, math.nan)
        for i in range(window - 1, a.shape[-1]):
            out[..., i] = (a[..., i - window + 1 : i + 1] / window).sum(axis=-1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rolling_mean",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40),
                Sample((make((3, 25)),), {"window": 5}),
                Sample((make((2, 2, 9)),), {"window": 1}),
                Sample((make((2, 4)),), {"window": 6}, label="shorter than the window"),
                Sample((make((3, 0)),), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"window": 0}), ValueError, "window is 0")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rank_of_pairs",
    "two keys combined to one number overflow",
    "pandas get_group_index: products of key ranges above int64 gave wrong groups before keys were compressed first",
    "keys over the whole range of int32 or int64: -2147483648 and 2147483647 in both columns sort in the wrong order",
)
def rank_of_pairs():
    """Dense rank, from 0, of rows (first, second) that are sorted by `first`, then by `second`."""

    def check(first, second):
        if first.shape != second.shape:
            raise ValueError(f"keys of shapes {first.shape} and {second.shape}; give equal ones")

    def wrong(xp, first, second):
        check(first, second)
        if first.size == 0:
            return xp.zeros(first.shape, dtype="int64")
        major = first.ravel().astype("int64")
        minor = second.ravel().astype("int64")
        minor = minor - minor.min()
        key = (major - major.min()) * (minor.max() + 1) + minor
        return xp.searchsorted(xp.unique(key), key).reshape(first.shape).astype("int64")

    def right(xp, first, second):
        check(first, second)
        if first.size == 0:
            return xp.zeros(first.shape, dtype="int64")
        major, minor = first.ravel(), second.ravel()
        major = xp.searchsorted(xp.unique(major), major).astype("int64")
        minor = xp.searchsorted(xp.unique(minor), minor).astype("int64")
        key = major * first.size + minor
        return xp.searchsorted(xp.unique(key), key).reshape(first.shape).astype("int64")

    def reference(first, second):
        first, second = np.asarray(first), np.asarray(second)
        rows = list(zip(first.ravel().tolist(), second.ravel().tolist(), strict=True))
        rank = {row: i for i, row in enumerate(sorted(set(rows)))}
        return np.array([rank[row] for row in rows], dtype="int64").reshape(first.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rank_of_pairs",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                (make(30), make(30)),
                (make((4, 7)), make((4, 7))),
                (make(50, low=-1000, high=1000), make(50, low=0, high=20)),
                Sample((make(0), make(0)), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput((make(4), make(3)), ValueError, "give equal ones")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "repetition_penalties",
    "a token that comes twice is counted once",
    "samplers of language models: counts[rows, tokens] += 1 writes once for equal indices, as NumPy documents",
    "tokens [[7, 7, 7]]: the frequency penalty is taken once, not three times",
)
def repetition_penalties():
    """Logits less `frequency` for each time a token was written before, and `presence` once if it was at all."""

    def check(logits, tokens):
        if logits.ndim != 2 or tokens.ndim != 2 or len(logits) != len(tokens):
            raise ValueError(f"logits {logits.shape} and tokens {tokens.shape}; give two axes and one batch")

    def finish(logits, counts, frequency, presence):
        penalty = counts * frequency + (counts > 0) * presence
        return (logits.astype("float64") - penalty).astype(logits.dtype)

    def wrong(xp, logits, tokens, frequency=0.5, presence=0.25):
        check(logits, tokens)
        counts = xp.zeros(logits.shape, dtype="int64")
        counts[xp.arange(len(tokens))[:, None], tokens] += 1
        return finish(logits, counts, frequency, presence)

    def right(xp, logits, tokens, frequency=0.5, presence=0.25):
        check(logits, tokens)
        if logits.size == 0:
            return logits.copy()
        batch, vocabulary = logits.shape
        places = (tokens + xp.arange(batch)[:, None] * vocabulary).ravel()
        counts = xp.bincount(places, minlength=batch * vocabulary).reshape(logits.shape)
        return finish(logits, counts, frequency, presence)

    def reference(logits, tokens, frequency=0.5, presence=0.25):
        out = np.array(logits, dtype="float64")
        for row, written in zip(out, np.asarray(tokens).tolist(), strict=True):
            for token in set(written):
                row[token] -= written.count(token) * frequency + presence
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="repetition_penalties",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((2, 4000)), make((2, 2), dtype="int64", low=0, high=3999)),
                Sample(
                    (make((1, 2000), low=-50, high=50), make((1, 2), dtype="int64", low=0, high=1999)),
                    {"frequency": 1.5, "presence": 0.0},
                ),
                Sample((make((3, 40)), make((3, 1), dtype="int64", low=0, high=39)), {"frequency": -0.5}),
                Sample((make((2, 9)), make((2, 0), dtype="int64", low=0, high=8)), label="nothing written"),
            ],
            error_inputs=lambda make: [
                ErrorInput((make((2, 9)), make((3, 4), dtype="int64", low=0, high=8)), ValueError, "one batch")
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "calendar_date",
    "nanoseconds are divided as floats",
    "pandas and cuDF: timestamps that went through float64, which cannot hold nanoseconds of our time, moved",
    "one nanosecond before a midnight of 2024: the date is that of the next day",
)
def calendar_date():
    """Year, month and day of nanoseconds since 1970, in a new last axis."""

    day_ns = 86_400 * 10**9

    def from_days(xp, days):
        shifted = days + 719_468  # since 1 March of the year 0
        era = shifted // 146_097
        of_era = shifted - era * 146_097
        year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * year + year // 4 - year // 100)
        month = (5 * of_year + 2) // 153  # 0 is March
        day = of_year - (153 * month + 2) // 5 + 1
        month = xp.where(month < 10, month + 3, month - 9)
        return xp.stack([year + era * 400 + (month <= 2), month, day], axis=-1)

    def wrong(xp, stamps):
        return from_days(xp, xp.floor(stamps / day_ns).astype("int64"))

    def right(xp, stamps):
        return from_days(xp, stamps // day_ns)

    def reference(stamps):
        stamps = np.asarray(stamps)
        out = np.zeros((*stamps.shape, 3), dtype="int64")
        for i in np.ndindex(stamps.shape):
            date = datetime.date(1970, 1, 1) + datetime.timedelta(days=int(stamps[i]) // day_ns)
            out[i] = date.year, date.month, date.day
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="calendar_date",
            dtypes=("int64",),
            samples=lambda make: [
                make(40, low=0, high=1_800_000_000 * 10**9),
                make((4, 6), low=-(2**62), high=2**62),
                make((3, 5)),
                Sample((make((2, 0)),), kind="empty"),
                Sample((make((), low=0, high=2**61),), kind="scalar"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "causal_softmax",
    "the mask is aligned to the first key, not to the last",
    "flash-attention before 2.1, xformers: causal masks of fewer queries than keys were aligned at the top left",
    "fewer queries than keys, such as scores of shape (1, 6): the only query sees one key where it should see all",
)
def causal_softmax():
    """Softmax of scores (..., queries, keys), where the queries are the last positions and see no later key."""

    def check(scores):
        queries, keys = scores.shape[-2:]
        if queries > keys:
            raise ValueError(f"{queries} queries of {keys} keys; give at most one for each key")

    def finish(xp, scores, seen):
        if scores.size == 0:
            return scores.copy()
        masked = xp.where(seen, scores.astype("float64"), -math.inf)
        e = xp.exp(masked - masked.max(axis=-1, keepdims=True))
        return xp.where(seen, e / e.sum(axis=-1, keepdims=True), 0.0).astype(scores.dtype)

    def wrong(xp, scores):
        check(scores)
        return finish(xp, scores, xp.tril(xp.ones(scores.shape[-2:], dtype="bool")))

    def right(xp, scores):
        check(scores)
        queries, keys = scores.shape[-2:]
        last = xp.arange(keys - queries, keys)  # the position of each query
        return finish(xp, scores, xp.arange(keys)[None, :] <= last[:, None])

    def reference(scores):
        scores = np.asarray(scores, dtype="float64")
        out = np.zeros(scores.shape)
        queries, keys = scores.shape[-2:]
        if queries > keys:
            raise ValueError("more queries than keys")
        if scores.size:
            for i in range(queries):
                row = scores[..., i, : keys - queries + i + 1]
                e = np.exp(row - row.max(axis=-1, keepdims=True))
                out[..., i, : keys - queries + i + 1] = e / e.sum(axis=-1, keepdims=True)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="causal_softmax",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((8, 8)),
                make((2, 3, 5, 5)),
                make((4, 17, 17), low=-50, high=50),
                Sample((make((2, 0, 0)),), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput(make((3, 2)), ValueError, "at most one for each key")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "histogram_counts",
    "the bin is computed, and rounding moves a number over an edge",
    "numpy.histogram of equal bins before it corrected the computed index against the edges; torch.histc",
    "-1e-20 in bins whose edges include 0: it is counted right of 0",
)
def histogram_counts():
    """Counts in equal bins [edge, next edge); the last one holds its right edge too; NaN and the rest are dropped."""

    def check(bins, low, high):
        if bins < 1 or not low < high:
            raise ValueError(f"{bins} bins from {low} to {high}; give 1 or more, and low < high")

    def inside(a, low, high):
        flat = a.ravel()
        return flat[(flat >= low) & (flat <= high)]

    def wrong(xp, a, bins=12, low=-3.0, high=3.0):
        check(bins, low, high)
        places = xp.floor((inside(a, low, high) - low) * (bins / (high - low))).astype("int64")
        return xp.bincount(xp.minimum(places, bins - 1), minlength=bins)

    def right(xp, a, bins=12, low=-3.0, high=3.0):
        check(bins, low, high)
        edges = xp.linspace(low, high, bins + 1)
        places = xp.searchsorted(edges[1:-1], inside(a.astype("float64"), low, high), side="right")
        return xp.bincount(places, minlength=bins)

    def reference(a, bins=12, low=-3.0, high=3.0):
        edges = np.linspace(low, high, bins + 1).tolist()
        out = np.zeros(bins, dtype="int64")
        for number in np.asarray(a, dtype="float64").ravel().tolist():
            if low <= number <= high:
                out[min(bisect.bisect_right(edges, number), bins) - 1] += 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="histogram_counts",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(100),
                Sample((make((6, 15), low=-4, high=4),), {"bins": 16, "low": -2.0, "high": 2.0}),
                Sample((make((3, 4, 5)),), {"bins": 6, "low": -1.0, "high": 2.0}),
                Sample((make(0),), kind="empty"),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"bins": 0}), ValueError, "0 bins"),
                ErrorInput(Sample((make(4),), {"low": 2.0, "high": 1.0}), ValueError, "low < high"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "product_of_others",
    "the product of all is divided by each factor, which may be zero",
    "torch.prod: its first gradient divided the product by the input, and was NaN where that is zero",
    "a row with a zero: NaN at its place instead of the product of the others",
)
def product_of_others():
    """For each number the product of all others along an axis: the gradient of the product."""

    def wrong(xp, a, axis=-1):
        wide = a.astype("float64")
        return (wide.prod(axis=axis, keepdims=True) / wide).astype(a.dtype)

    def right(xp, a, axis=-1):
        wide = xp.moveaxis(a.astype("float64"), axis, -1)
        one = xp.ones(wide.shape[:-1] + (1,), dtype="float64")
        before = xp.cumprod(xp.concatenate([one, wide], axis=-1), axis=-1)[..., :-1]
        after = xp.cumprod(xp.concatenate([one, wide[..., ::-1]], axis=-1), axis=-1)[..., :-1][..., ::-1]
        return xp.moveaxis(before * after, -1, axis).astype(a.dtype)

    def reference(a, axis=-1):
        a = np.asarray(a, dtype="float64")
        out = np.empty(a.shape)
        for i in range(a.shape[axis]):
            place = [slice(None)] * a.ndim
            place[axis] = i
            out[tuple(place)] = np.delete(a, i, axis=axis).prod(axis=axis)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="product_of_others",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(20, low=-3, high=3),
                make((5, 8), low=-3, high=3),
                Sample((make((3, 4, 6), low=-3, high=3),), {"axis": 1}),
                Sample((make((7, 2), low=-3, high=3),), {"axis": 0}),
                Sample((make((3, 0), low=-3, high=3),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "latest_price",
    "an index of -1 for `none` takes the last one",
    "searchsorted(...) - 1 in hand-written merge_asof: a time before the first stamp gets the newest price",
    "all stamps after the time: the last price instead of NaN",
)
def latest_price():
    """For each time the price of the latest stamp up to it, NaN if there is none; of equal stamps the last counts."""

    def check(stamps, prices):
        if stamps.ndim != 1 or stamps.shape != prices.shape:
            raise ValueError(f"stamps {stamps.shape} and prices {prices.shape}; give one price a stamp")

    def wrong(xp, times, stamps, prices):
        check(stamps, prices)
        if len(stamps) == 0:
            return xp.full(times.shape, math.nan, dtype=prices.dtype)
        order = xp.argsort(stamps, kind="stable")
        places = xp.searchsorted(stamps[order], times, side="right") - 1
        return prices[order][places]

    def right(xp, times, stamps, prices):
        check(stamps, prices)
        if len(stamps) == 0:
            return xp.full(times.shape, math.nan, dtype=prices.dtype)
        order = xp.argsort(stamps, kind="stable")
        places = xp.searchsorted(stamps[order], times, side="right") - 1
        none = xp.full(times.shape, math.nan, dtype=prices.dtype)
        return xp.where(places >= 0, prices[order][xp.maximum(places, 0)], none)

    def reference(times, stamps, prices):
        times = np.asarray(times)
        out = np.full(times.shape, math.nan)
        for i in np.ndindex(times.shape):
            newest = None
            for stamp, price in zip(np.asarray(stamps).tolist(), np.asarray(prices).tolist(), strict=True):
                if stamp <= times[i] and (newest is None or stamp >= newest):
                    newest, out[i] = stamp, price
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="latest_price",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(12, dtype="int64", low=40, high=99), make(60, dtype="int64", low=0, high=99), make(60)),
                (
                    make((3, 5), dtype="int64", low=500, high=2000),
                    make(45, dtype="int64", low=0, high=1000),
                    make(45, low=0, high=1e4),
                ),
                (make(4, dtype="int64", low=0, high=9), make(0, dtype="int64", low=0, high=9), make(0)),
                Sample((make(0, dtype="int64"), make(3, dtype="int64"), make(3)), kind="empty"),
            ],
            error_inputs=lambda make: [
                ErrorInput(
                    (make(2, dtype="int64"), make(4, dtype="int64"), make(3)), ValueError, "give one price a stamp"
                )
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "circular_blur",
    "the centre of a kernel of even size is one off",
    "padding='same' and psf2otf reimplementations: (size - 1) // 2 and size // 2 agree for odd kernels only",
    "a kernel of shape (2, 2) or (4, 3): the picture moves by one",
)
def circular_blur():
    """Convolution of a picture, which repeats beyond its border, with a kernel whose centre is at size // 2."""

    def check(picture, kernel):
        if picture.ndim != 2 or kernel.ndim != 2:
            raise ValueError(f"picture {picture.shape}, kernel {kernel.shape}; give two axes each")

    def blur(xp, picture, kernel, centre):
        wide, factors = picture.astype("float64"), kernel.astype("float64")
        out = xp.zeros(picture.shape, dtype="float64")
        for i in range(kernel.shape[0]):
            for j in range(kernel.shape[1]):
                out = out + factors[i, j] * xp.roll(wide, (i - centre[0], j - centre[1]), axis=(0, 1))
        return out.astype(picture.dtype)

    def wrong(xp, picture, kernel):
        check(picture, kernel)
        return blur(xp, picture, kernel, [(n - 1) // 2 for n in kernel.shape])

    def right(xp, picture, kernel):
        check(picture, kernel)
        return blur(xp, picture, kernel, [n // 2 for n in kernel.shape])

    def reference(picture, kernel):
        picture, kernel = np.asarray(picture, dtype="float64"), np.asarray(kernel, dtype="float64")
        (height, width), (rows, columns) = picture.shape, kernel.shape
        out = np.zeros(picture.shape)
        for y, x in np.ndindex(picture.shape):
            for i, j in np.ndindex(kernel.shape):
                out[y, x] += kernel[i, j] * picture[(y + rows // 2 - i) % height, (x + columns // 2 - j) % width]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="circular_blur",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((9, 12)), make((3, 3))),
                (make((8, 8), low=0, high=255), make((5, 3), low=0, high=1)),
                (make((4, 15)), make((1, 7))),
                Sample((make((0, 5)), make((3, 3))), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput((make(5), make((3, 3))), ValueError, "give two axes each")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dense_rank",
    "zeros of both signs are two keys, by their bits",
    "Spark, cuDF and pandas hashing: -0.0 and 0.0 fell into two groups where keys were compared by their bits",
    "-0.0 next to 0.0: two ranks instead of one, and all higher ranks one too high",
)
def dense_rank():
    """Dense rank from 1, by a radix order of the bits; all NaN share the last rank."""

    def ranks(xp, a):
        integer = {4: "int32", 8: "int64"}[a.dtype.itemsize]
        flat = xp.where(xp.isnan(a), xp.full(a.shape, math.nan, dtype=a.dtype), a).ravel()
        bits = flat.view(integer)
        keys = xp.where(bits < 0, bits ^ int(np.iinfo(integer).max), bits)  # sorts as the numbers do
        return (xp.searchsorted(xp.unique(keys), keys) + 1).reshape(a.shape).astype("int64")

    def wrong(xp, a):
        return ranks(xp, a)

    def right(xp, a):
        return ranks(xp, xp.where(a == 0, xp.zeros(a.shape, dtype=a.dtype), a))

    def reference(a):
        a = np.asarray(a, dtype="float64")
        numbers = sorted({number for number in a.ravel().tolist() if not math.isnan(number)})
        out = np.full(a.shape, len(numbers) + 1, dtype="int64")
        for i in np.ndindex(a.shape):
            if not math.isnan(a[i]):
                out[i] = bisect.bisect_left(numbers, a[i]) + 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dense_rank",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(60),
                make((5, 9)),
                make((2, 3, 4), low=-1e6, high=1e6),
                Sample((make(0),), kind="empty"),
                Sample((make(()),), kind="scalar"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "draw_category",
    "a number on a boundary takes the category before, even one of weight zero",
    "torch.multinomial and hand-written inverse sampling: searchsorted on the wrong side draws what has no weight",
    "a number of 0 where the first weight is 0, or 0.5 with weights [1, 1]: the category before is drawn",
)
def draw_category():
    """Category whose share [start, end) of the weights holds u * total; 1 takes the last share, no weight gives -1."""

    def check(weights, u):
        if weights.ndim < 1 or weights.shape[:-1] != u.shape:
            raise ValueError(f"weights {weights.shape} and numbers {u.shape}; give one number a row")

    def finish(xp, weights, places):
        known = weights.shape[-1]
        numbers = xp.where(weights > 0, xp.arange(known), -1)
        return xp.minimum(places, numbers.max(axis=-1)).astype("int64")

    def wrong(xp, weights, u):
        check(weights, u)
        if weights.shape[-1] == 0:
            return xp.full(u.shape, -1, dtype="int64")
        ends = xp.cumsum(weights, axis=-1)
        goal = u.astype("float64") * ends[..., -1]
        return finish(xp, weights, (ends < goal[..., None]).sum(axis=-1))

    def right(xp, weights, u):
        check(weights, u)
        if weights.shape[-1] == 0:
            return xp.full(u.shape, -1, dtype="int64")
        ends = xp.cumsum(weights, axis=-1)
        goal = u.astype("float64") * ends[..., -1]
        return finish(xp, weights, (ends <= goal[..., None]).sum(axis=-1))

    def reference(weights, u):
        weights, u = np.asarray(weights), np.asarray(u, dtype="float64")
        out = np.full(u.shape, -1, dtype="int64")
        for i in np.ndindex(u.shape):
            row = weights[i].tolist()
            goal, end = float(u[i]) * sum(row), 0
            for category, weight in enumerate(row):
                if weight:
                    out[i], end = category, end + weight
                    if goal < end:
                        break
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="draw_category",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((20, 6), dtype="int64", low=0, high=9), make(20, low=0, high=1)),
                (make((2, 5, 11), dtype="int64", low=0, high=100), make((2, 5), low=0, high=1)),
                (make(8, dtype="int64", low=0, high=3), make((), low=0, high=1)),
                Sample((make((0, 4), dtype="int64", low=0, high=9), make(0, low=0, high=1)), kind="empty"),
            ],
            error_inputs=lambda make: [
                ErrorInput(
                    (make((3, 4), dtype="int64", low=0, high=9), make(4, low=0, high=1)), ValueError, "one number a row"
                )
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "hue_sector",
    "a colour with two largest channels counts for both",
    "rgb_to_hsv by masks, as of torchvision and scikit-image: terms are added up, so masks must exclude each other",
    "pure yellow, (1, 1, 0): a hue of 2 (green) instead of 1",
)
def hue_sector():
    """Hue in sixths of a turn, from -1 (magenta) over 0 (red) up to 5; red, green, blue in the last axis; grey: 0."""

    def check(colours):
        if colours.ndim < 1 or colours.shape[-1] != 3:
            raise ValueError(f"colours of shape {colours.shape}; give three channels last")

    def channels(xp, colours):
        wide = colours.astype("float64")
        r, g, b = wide[..., 0], wide[..., 1], wide[..., 2]
        top = xp.maximum(xp.maximum(r, g), b)
        chroma = top - xp.minimum(xp.minimum(r, g), b)
        return r, g, b, top, chroma, xp.where(chroma > 0, chroma, 1.0)

    def wrong(xp, colours):
        check(colours)
        r, g, b, top, chroma, divisor = channels(xp, colours)
        red = (top == r) * ((g - b) / divisor)
        green = (top == g) * ((b - r) / divisor + 2.0)
        blue = (top == b) * ((r - g) / divisor + 4.0)
        return xp.where(chroma > 0, red + green + blue, 0.0).astype(colours.dtype)

    def right(xp, colours):
        check(colours)
        r, g, b, top, chroma, divisor = channels(xp, colours)
        hue = xp.where(top == g, (b - r) / divisor + 2.0, (r - g) / divisor + 4.0)
        hue = xp.where(top == r, (g - b) / divisor, hue)
        return xp.where(chroma > 0, hue, 0.0).astype(colours.dtype)

    def reference(colours):
        colours = np.asarray(colours, dtype="float64")
        out = np.zeros(colours.shape[:-1])
        for i in np.ndindex(out.shape):
            rgb = colours[i].tolist()
            if max(rgb) > min(rgb):
                first = rgb.index(max(rgb))
                change = rgb[(first + 1) % 3] - rgb[(first + 2) % 3]
                out[i] = 2 * first + change / (max(rgb) - min(rgb))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="hue_sector",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((6, 7, 3), low=0, high=1),
                make((40, 3), low=0, high=255),
                make(3, low=0, high=1),
                Sample((make((0, 3), low=0, high=1),), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput(make((5, 4), low=0, high=1), ValueError, "three channels last")],
            reference=reference,
        )

    return wrong, right, declare
