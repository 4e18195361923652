"""Images, sparse matrices and graphs, geometry, statistics, sequences, sorting: faults with their twins."""

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
    "rank_equalise",
    "results are written through reshape(-1) of an array that has the input's memory order",
    "zeros_like keeps the order of a Fortran image, so that reshape(-1) is a copy and the write is lost, in "
    "code that was only run on images in C order",
    "an image in Fortran order: the result is all zeros",
)
def rank_equalise():
    """Exact histogram equalisation: each pixel's rank in the image over the highest rank, in float32.

    Equal pixels are ranked in reading order; NaN are highest.
    """

    def levels(xp, count):
        return (xp.arange(count).astype("float64") / max(count - 1, 1)).astype("float32")

    def wrong(xp, image):
        out = xp.zeros_like(image, dtype="float32")
        order = xp.argsort(image.reshape(-1), kind="stable")
        out.reshape(-1)[order] = levels(xp, image.size)
        return out

    def right(xp, image):
        out = xp.zeros(image.size, dtype="float32")
        order = xp.argsort(image.reshape(-1), kind="stable")
        out[order] = levels(xp, image.size)
        return out.reshape(image.shape)

    def reference(image):
        pixels = [(math.isnan(value), 0.0 if math.isnan(value) else float(value)) for value in image.ravel()]
        out = np.zeros(image.size)
        for rank, i in enumerate(sorted(range(image.size), key=lambda i: (pixels[i], i))):
            out[i] = rank / max(image.size - 1, 1)
        return out.reshape(image.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rank_equalise",
            dtypes=("uint8", "float32", "float64"),
            result_dtype=lambda image: "float32",
            samples=lambda make: [make((9, 14)), make((6, 6), low=0, high=9), make(25)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dilate",
    "the offsets of a neighbourhood are kept between calls by the radius alone, not by the metric",
    "footprint and kernel tables behind a cache whose key lacks one option, as in lru_cache on a helper that reads it",
    "radius 2 with chessboard, then radius 2 with taxicab: the second call takes the maximum over the square",
)
def dilate():
    """Grey dilation of images (..., height, width): the maximum over all pixels within `radius`.

    `metric` is "chessboard" (squares) or "taxicab" (diamonds). What is outside the image does not count; NaN spreads.
    """

    def check(radius, metric):
        if radius < 0:
            raise ValueError(f"radius is {radius}; give 0 or more")
        if metric not in ("chessboard", "taxicab"):
            raise ValueError(f"metric is {metric!r}; give 'chessboard' or 'taxicab'")

    def neighbourhood(radius, metric):
        steps = range(-radius, radius + 1)
        return [(y, x) for y in steps for x in steps if metric == "chessboard" or abs(y) + abs(x) <= radius]

    def largest(xp, image, offsets):
        height, width = image.shape[-2:]
        out = image.copy()
        for y, x in offsets:
            top, bottom, left, right = max(0, -y), min(height, height - y), max(0, -x), min(width, width - x)
            if top < bottom and left < right:
                moved = image[..., top + y : bottom + y, left + x : right + x]
                out[..., top:bottom, left:right] = xp.maximum(out[..., top:bottom, left:right], moved)
        return out

    kept: dict[Any, Any] = {}
    kept_by_both: dict[Any, Any] = {}

    def wrong(xp, image, radius=1, metric="chessboard"):
        check(radius, metric)
        if radius not in kept:
            kept[radius] = neighbourhood(radius, metric)
        return largest(xp, image, kept[radius])

    def right(xp, image, radius=1, metric="chessboard"):
        check(radius, metric)
        if (radius, metric) not in kept_by_both:
            kept_by_both[radius, metric] = neighbourhood(radius, metric)
        return largest(xp, image, kept_by_both[radius, metric])

    def reference(image, radius=1, metric="chessboard"):
        out = np.empty_like(image)
        rows, columns = np.indices(image.shape[-2:])
        for y in range(image.shape[-2]):
            for x in range(image.shape[-1]):
                away = abs(rows - y), abs(columns - x)
                near = (np.maximum(*away) if metric == "chessboard" else sum(away)) <= radius
                out[..., y, x] = image[..., near].max(axis=-1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dilate",
            dtypes=("uint8", "float32", "float64"),
            samples=lambda make: [
                make((9, 11)),
                Sample((make((2, 8, 7)),), {"radius": 2, "metric": "taxicab"}),
                Sample((make((10, 6)),), {"radius": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 4)),), {"metric": "round"}), ValueError, "metric is 'round'"),
                ErrorInput(Sample((make((4, 4)),), {"radius": -1}), ValueError, "radius is -1"),
            ],
        )

    return wrong, right, declare


@pair(
    "coo_reshape",
    "the flat index row * columns + column is computed in the dtype of the indices",
    "scipy.sparse.coo_matrix.reshape: int32 indices overflowed before the dtype was chosen by the size of the matrix",
    "int32 indices, shape (70000, 70000), entry (69999, 5)",
)
def coo_reshape():
    """Rows and columns, stacked, of the entries of a COO matrix after reshape to `new_shape`, in reading order.

    The indices keep their dtype, which holds those of both shapes.
    """

    def check(shape, new_shape):
        if shape[0] * shape[1] != new_shape[0] * new_shape[1]:
            raise ValueError(f"cannot reshape {shape} to {new_shape}")

    def wrong(xp, rows, cols, shape, new_shape):
        check(shape, new_shape)
        flat = rows * shape[1] + cols
        return xp.stack([flat // new_shape[1], flat % new_shape[1]])

    def right(xp, rows, cols, shape, new_shape):
        check(shape, new_shape)
        flat = rows.astype("int64") * shape[1] + cols.astype("int64")
        return xp.stack([flat // new_shape[1], flat % new_shape[1]]).astype(rows.dtype)

    def reference(rows, cols, shape, new_shape):
        moved = [divmod(int(r) * shape[1] + int(c), new_shape[1]) for r, c in zip(rows, cols, strict=True)]
        return np.array(moved, dtype="int64").reshape(-1, 2).T

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="coo_reshape",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                Sample(
                    (make(30, low=0, high=39), make(30, low=0, high=34)),
                    {"shape": (40, 35), "new_shape": (70, 20)},
                ),
                Sample(
                    (make(50, low=0, high=999), make(50, low=0, high=1199)),
                    {"shape": (1000, 1200), "new_shape": (1, 1200000)},
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(3, low=0, high=1), make(3, low=0, high=1)), {"shape": (2, 2), "new_shape": (3, 2)}),
                    ValueError,
                    "cannot reshape",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "shortest_paths",
    "the number of squarings is log2(n - 1) rounded down, so that the longest paths are never tried",
    "repeated min-plus squaring with int(log2(n - 1)) rounds: enough only where n - 1 is a power of two",
    "a chain of 6 nodes with edges of 0.1, and 3 everywhere else: the path of 5 edges is not found",
)
def shortest_paths():
    """Lengths of the shortest paths between all nodes, from the edges' lengths (n, n): 0 or more, inf for no edge."""

    def check(lengths):
        if len(lengths.shape) != 2 or lengths.shape[0] != lengths.shape[1]:
            raise ValueError(f"lengths has shape {lengths.shape}; give a square matrix")

    def squared(xp, lengths, rounds):
        node = xp.arange(lengths.shape[0])
        best = xp.where(node[:, None] == node[None, :], 0.0, lengths.astype("float64"))
        for _ in range(rounds):
            best = (best[:, :, None] + best[None, :, :]).min(axis=1)
        return best.astype(lengths.dtype)

    def wrong(xp, lengths):
        check(lengths)
        n = lengths.shape[0]
        return squared(xp, lengths, int(math.log2(n - 1)) if n > 2 else 0)

    def right(xp, lengths):
        check(lengths)
        n = lengths.shape[0]
        return squared(xp, lengths, math.ceil(math.log2(n - 1)) if n > 2 else 0)

    def reference(lengths):
        check(lengths)
        best = lengths.copy()
        np.fill_diagonal(best, 0)
        for via in range(len(best)):
            best = np.minimum(best, best[:, via, None] + best[None, via, :])
        return best

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="shortest_paths",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((6, 6), low=0.1, high=3),
                make((9, 9), low=0, high=100),
                make((12, 12), low=0.1, high=3),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((3, 4)),)), ValueError, "give a square matrix")],
        )

    return wrong, right, declare


@pair(
    "directed_hausdorff",
    "the last block of points is filled up with zeros, which count as points at the origin",
    "tiled nearest-neighbour kernels that fill up the last tile with zeros where an infinity belongs",
    "33 points around (2.5, 2.5) as the second set and points around the origin as the first",
)
def directed_hausdorff():
    """The largest distance of a point of `a` (n, d) to the nearest of `b` (m, d); coordinates are finite."""

    block = 32

    def check(a, b):
        if a.shape[0] == 0 or b.shape[0] == 0:
            raise ValueError("a set has no points")
        if a.shape[1] != b.shape[1]:
            raise ValueError(f"points of {a.shape[1]} and of {b.shape[1]} coordinates")

    def farthest(xp, a, b, dtype):
        nearest = xp.full(a.shape[0], math.inf)
        for start in range(0, b.shape[0], block):
            apart = a[:, None, :] - b[None, start : start + block, :]
            nearest = xp.minimum(nearest, (apart * apart).sum(axis=-1).min(axis=1))
        return xp.sqrt(nearest.max()).astype(dtype)

    def wrong(xp, a, b):
        check(a, b)
        dtype, a, b = a.dtype, a.astype("float64"), b.astype("float64")
        lacking = -b.shape[0] % block
        if b.shape[0] > block and lacking:
            b = xp.concatenate([b, xp.zeros((lacking, b.shape[1]))])
        return farthest(xp, a, b, dtype)

    def right(xp, a, b):
        check(a, b)
        return farthest(xp, a.astype("float64"), b.astype("float64"), a.dtype)

    def reference(a, b):
        check(a, b)
        return np.array(max(min(math.dist(p, q) for q in b) for p in a))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="directed_hausdorff",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((40, 2), low=-3, high=3), make((50, 2), low=-3, high=3)),
                (make((20, 3), low=-3, high=3), make((32, 3), low=-3, high=3)),
                (make((7, 2), low=-100, high=100), make((5, 2), low=-100, high=100)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((3, 2)), make((0, 2)))), ValueError, "no points"),
                ErrorInput(Sample((make((3, 2)), make((4, 3)))), ValueError, "of 2 and of 3 coordinates"),
            ],
        )

    return wrong, right, declare


@pair(
    "trimmed_mean",
    "the number of values to cut is int(n * (percent / 100)), which is one too few where the product rounds down",
    "scipy.stats.trim_mean and train/test splits that truncate a product of a fraction and a count",
    "percent=29 of 100 values: 28 are cut at each end, not 29",
)
def trimmed_mean():
    """The mean along an axis without the lowest and the highest `percent` per cent of the values.

    `percent` is a whole number below 50; as many values are cut at each end as that percentage holds, rounded down.
    NaN among the values gives NaN, and so do no values.
    """

    def check(percent):
        if not 0 <= percent < 50:
            raise ValueError(f"percent is {percent}; give 0 to 49")

    def inner(xp, a, cut, axis):
        last = xp.moveaxis(a, axis, -1).astype("float64")
        n = last.shape[-1]
        if n == 0:
            return xp.full(last.shape[:-1], math.nan, dtype=a.dtype)
        kept = xp.sort(last, axis=-1)[..., cut : n - cut]
        mean = kept.sum(axis=-1) / (n - 2 * cut)
        return xp.where(xp.isnan(last).any(axis=-1), math.nan, mean).astype(a.dtype)

    def wrong(xp, a, percent=10, axis=-1):
        check(percent)
        return inner(xp, a, int(a.shape[axis] * (percent / 100)), axis)

    def right(xp, a, percent=10, axis=-1):
        check(percent)
        return inner(xp, a, a.shape[axis] * percent // 100, axis)

    def reference(a, percent=10, axis=-1):
        def mean(values):
            cut = math.floor(Fraction(percent, 100) * len(values))
            kept = sorted(values.tolist())[cut : len(values) - cut]
            if not kept or any(map(math.isnan, values)):
                return math.nan
            low, high = kept[0] == -math.inf, kept[-1] == math.inf
            return math.fsum(kept) / len(kept) if not low and not high else math.nan if low and high else kept[-high]

        shape = np.moveaxis(a, axis, -1).shape
        out = [mean(values) for values in np.moveaxis(a, axis, -1).reshape(math.prod(shape[:-1]), shape[-1])]
        return np.array(out, dtype="float64").reshape(shape[:-1])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="trimmed_mean",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40),
                Sample((make((3, 25, 4)),), {"percent": 20, "axis": 1}),
                Sample((make((6, 50)),), {"percent": 29}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"percent": 50}), ValueError, "percent is 50")],
        )

    return wrong, right, declare


@pair(
    "fisher_z",
    "log((1 + r) / (1 - r)) loses all digits of a small r",
    "the textbook formula, in many statistics packages, where arctanh or log1p belongs",
    "r = 1e-5 in float32: wrong by 0.1%",
)
def fisher_z():
    """Fisher's transformation of correlations from -1 to 1, as numpy.arctanh; the ends give infinities."""

    def wrong(xp, r):
        return (0.5 * xp.log((1 + r) / (1 - r))).astype(r.dtype)

    def right(xp, r):
        return (0.5 * (xp.log1p(r) - xp.log1p(-r))).astype(r.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fisher_z",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(30, low=-0.99, high=0.99),
                make((4, 9), low=-1, high=1),
                make((5, 3), low=0.9, high=1),
            ],
            reference=lambda r: np.arctanh(r),
        )

    return wrong, right, declare


@pair(
    "kaplan_meier",
    "of equal times the order of the input decides whether a censored subject is still at risk",
    "home-made survival codes that sort by time alone; the convention is events before censoring at equal times",
    "times [2, 2, 3], the first censored: 1/2 at time 2 where 2/3 is right",
)
def kaplan_meier():
    """Kaplan and Meier's estimate of survival at the time of each subject.

    `times` are finite, `observed` says where the event was seen; the others are censored and are at risk at
    their time.
    """

    def estimate(xp, times, observed, order):
        n = times.shape[0]
        at_risk = n - xp.arange(n).astype("float64")
        survival = xp.cumprod(xp.where(observed[order], 1 - 1 / at_risk, 1.0))
        last = (times[None, :] <= times[:, None]).sum(axis=1) - 1
        return survival[last].astype(times.dtype)

    def wrong(xp, times, observed):
        return estimate(xp, times, observed, xp.argsort(times, kind="stable"))

    def right(xp, times, observed):
        events_first = xp.argsort(xp.where(observed, 0, 1), kind="stable")
        order = events_first[xp.argsort(times[events_first], kind="stable")]
        return estimate(xp, times, observed, order)

    def reference(times, observed):
        def at(end):
            product = 1.0
            for time in sorted(set(times[observed & (times <= end)].tolist())):
                product *= 1 - (observed & (times == time)).sum() / (times >= time).sum()
            return product

        return np.array([at(time) for time in times], dtype="float64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="kaplan_meier",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(30, low=0, high=10), make(30, dtype="bool")),
                (make(7, low=0, high=1000), make(7, dtype="bool")),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "edit_distance_within",
    "a pair is given up when the best of a row reaches the limit, not when it exceeds it",
    "early exits of bounded Levenshtein distances, off by one at the cutoff",
    "[5, 1, 2] and [6, 1, 2] with limit 1: 2 (too far) instead of 1",
)
def edit_distance_within():
    """Levenshtein distances of the rows of `a` (rows, n) and of `b` (rows, m); limit + 1 where more than `limit`."""

    def check(a, b, limit):
        if limit < 0:
            raise ValueError(f"limit is {limit}; give 0 or more")
        if a.shape[0] != b.shape[0]:
            raise ValueError(f"{a.shape[0]} and {b.shape[0]} rows")

    def distances(xp, a, b, limit, given_up_from):
        rows, n, m = a.shape[0], a.shape[1], b.shape[1]
        column = xp.arange(m + 1)
        before = column[:, None] >= column[None, :]
        line = xp.zeros((rows, 1), dtype="int64") + column
        far = xp.zeros(rows, dtype="bool")
        for i in range(n):
            substituted = line[:, :-1] + xp.where(a[:, i : i + 1] != b, 1, 0)
            line = xp.concatenate([line[:, :1] + 1, xp.minimum(substituted, line[:, 1:] + 1)], axis=1)
            inserted = (line - column)[:, None, :]
            line = xp.where(before, inserted, n + m).min(axis=-1) + column
            far = far | (line.min(axis=1) >= given_up_from)
        return xp.where(far | (line[:, m] > limit), limit + 1, line[:, m]).astype("int64")

    def wrong(xp, a, b, limit=3):
        check(a, b, limit)
        return distances(xp, a, b, limit, limit)

    def right(xp, a, b, limit=3):
        check(a, b, limit)
        return distances(xp, a, b, limit, limit + 1)

    def reference(a, b, limit=3):
        check(a, b, limit)

        def distance(s, t):
            line = list(range(len(t) + 1))
            for i, left in enumerate(s):
                corner, line[0] = line[0], i + 1
                for j, right in enumerate(t):
                    corner, line[j + 1] = line[j + 1], min(corner + (left != right), line[j] + 1, line[j + 1] + 1)
            return line[-1]

        return np.array([min(distance(s, t), limit + 1) for s, t in zip(a.tolist(), b.tolist(), strict=True)], "int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="edit_distance_within",
            dtypes=("uint8", "int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make((6, 9), low=0, high=25), make((6, 7), low=0, high=25)),
                Sample((make((4, 12), low=0, high=3), make((4, 11), low=0, high=3)), {"limit": 20}),
                Sample((make((5, 3), low=0, high=9), make((5, 4), low=0, high=9)), {"limit": 2}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((2, 3), low=0, high=9), make((2, 3), low=0, high=9)), {"limit": -1}),
                    ValueError,
                    "limit is -1",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "ctc_collapse",
    "the label before the first one is taken to be 0, not the blank: with another blank a leading 0 counts as repeated",
    "greedy CTC decoders written for blank 0 and given an option for the blank later",
    "blank=30 and labels that begin with 0: the first label is lost",
)
def ctc_collapse():
    """Greedy CTC decoding: repeated labels merged, blanks removed, each row filled up with -1 at its end.

    `labels` (rows, steps) are 0 or more. Equal labels with a blank in between stay two.
    """

    def pack(xp, labels, before_first, blank):
        rows, steps = labels.shape
        previous = xp.concatenate([xp.full((rows, 1), before_first, dtype=labels.dtype), labels], axis=1)[:, :steps]
        step = xp.arange(steps)
        key = xp.sort(xp.where((labels != blank) & (labels != previous), step, step + steps), axis=1)
        found = key < steps
        return xp.where(found, labels[xp.arange(rows)[:, None], xp.where(found, key, 0)], -1).astype(labels.dtype)

    def wrong(xp, labels, blank=0):
        return pack(xp, labels, 0, blank)

    def right(xp, labels, blank=0):
        return pack(xp, labels, blank, blank)

    def reference(labels, blank=0):
        out = np.full(labels.shape, -1, dtype="int64")
        for row, filled in zip(labels.tolist(), out, strict=True):
            merged = [label for i, label in enumerate(row) if i == 0 or label != row[i - 1]]
            kept = [label for label in merged if label != blank]
            filled[: len(kept)] = kept
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ctc_collapse",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make((4, 20), low=0, high=5),
                Sample((make((4, 12), low=0, high=30),), {"blank": 30}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "order_missing",
    "NaN are replaced by an infinity for the sort, and mix with infinities that are there",
    "pandas rank filled NaN with an infinity, so that NaN and real infinities were ranked together",
    "[nan, inf]: order [0, 1] with the missing value first, though it belongs last",
)
def order_missing():
    """The stable order that sorts `values` (1-D), up or down, with NaN last or first by `missing`.

    Equal values, and NaN, keep their order.
    """

    def check(missing):
        if missing not in ("first", "last"):
            raise ValueError(f"missing is {missing!r}; give 'first' or 'last'")

    def wrong(xp, values, descending=False, missing="last"):
        check(missing)
        key = -values if descending else values
        key = xp.where(xp.isnan(values), math.inf if missing == "last" else -math.inf, key)
        return xp.argsort(key, kind="stable")

    def right(xp, values, descending=False, missing="last"):
        check(missing)
        absent = xp.isnan(values)
        order = xp.argsort(xp.where(absent, 0.0, -values if descending else values), kind="stable")
        group = xp.where(absent, 1, 0) if missing == "last" else xp.where(absent, 0, 1)
        return order[xp.argsort(group[order], kind="stable")]

    def reference(values, descending=False, missing="last"):
        absent = [i for i, value in enumerate(values) if math.isnan(value)]
        present = [i for i, value in enumerate(values) if not math.isnan(value)]
        present.sort(key=lambda i: values[i], reverse=descending)
        return np.array(present + absent if missing == "last" else absent + present, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="order_missing",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(30),
                Sample((make(17),), {"descending": True, "missing": "first"}),
                make.of([0.5, math.nan, -2.0, math.nan, 0.5]),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"missing": "drop"}), ValueError, "missing is 'drop'")
            ],
        )

    return wrong, right, declare


@pair(
    "factorize",
    "integers are compared as float64, so that neighbours above 2**53 become one",
    "pandas cast int64 keys to float64 to share the path that treats NaN as equal (factorize, merge, reindex)",
    "[2**53, 2**53 + 1] in int64: both get code 0",
)
def factorize():
    """A code for each value (1-D), from 0 in order of first appearance; equal values, and all NaN, share one."""

    def codes_of(xp, values):
        n = values.shape[0]
        order = xp.argsort(values, kind="stable")
        ordered = values[order]
        differs = ordered[1:] != ordered[:-1]
        if np.dtype(ordered.dtype).kind == "f":
            differs = differs & ~(xp.isnan(ordered[1:]) & xp.isnan(ordered[:-1]))
        starts = xp.concatenate([xp.ones(1, dtype="bool"), differs])[:n]
        code = xp.argsort(xp.argsort(order[starts]))
        out = xp.zeros(n, dtype="int64")
        out[order] = code[xp.cumsum(starts.astype("int64")) - 1]
        return out

    def wrong(xp, values):
        return codes_of(xp, values.astype("float64"))

    def right(xp, values):
        return codes_of(xp, values)

    def reference(values):
        codes: dict[Any, int] = {}
        keys = ["missing" if value != value else value for value in values.tolist()]
        return np.array([codes.setdefault(key, len(codes)) for key in keys], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="factorize",
            dtypes=("int32", "int64", "float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [make(30), make(50, low=0, high=20), make(9, low=-1000, high=1000)],
            reference=reference,
        )

    return wrong, right, declare
