"""Scans over warps and chunks, packed indices, narrow sums, state between calls, special values: faults with twins."""

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
    "suffix_max",
    "NaN is lost between warps, not within one",
    "Triton: tl.max and tl.associative_scan with reverse=True, whose combination by a comparison drops NaN",
    "100 numbers with NaN at place 40: results 0 to 31 are numbers where NaN is right",
)
def suffix_max():
    """The largest number from each place to the end of its row; NaN counts as the largest."""

    def scan(xp, a, larger):
        n = a.shape[-1]
        warps = -(-n // 32)
        least = -math.inf if a.dtype.kind == "f" else int(np.iinfo(str(a.dtype)).min)
        tail = xp.full((*a.shape[:-1], warps * 32 - n), least, dtype=a.dtype)
        lanes = xp.concatenate([a, tail], axis=-1).reshape((*a.shape[:-1], warps, 32))
        for step in (1, 2, 4, 8, 16):
            beyond = xp.full((*lanes.shape[:-1], step), least, dtype=a.dtype)
            lanes = xp.maximum(lanes, xp.concatenate([lanes[..., step:], beyond], axis=-1))
        carry = xp.full(a.shape[:-1], least, dtype=a.dtype)
        out = []
        for warp in reversed(range(warps)):
            out.append(larger(lanes[..., warp, :], carry[..., None]))
            carry = larger(carry, lanes[..., warp, 0])
        return xp.concatenate(out[::-1], axis=-1)[..., :n] if out else a.copy()

    def wrong(xp, a):
        return scan(xp, a, lambda x, y: xp.where(y > x, y, x))

    def right(xp, a):
        return scan(xp, a, xp.maximum)

    def reference(a):
        return np.flip(np.maximum.accumulate(np.flip(a, -1), axis=-1), -1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="suffix_max",
            dtypes=("float32", "float64", "int32"),
            samples=lambda make: [make(20), make((3, 100)), make((2, 3, 65))],
            reference=reference,
            result_dtype=lambda a: a,
        )

    return wrong, right, declare


@pair(
    "run_ids",
    "the first lane of a warp compares with itself",
    "CUDA: __shfl_up_sync leaves the value of lane 0 as it is; boundaries in segmented scans and unique_consecutive",
    "32 zeros and then ones: the change at place 32 is not seen, and all are run 0",
)
def run_ids():
    """The number of the run of equal neighbours that each element of a row belongs to, from 0; NaN equals nothing."""

    def number(xp, a, neighbour):
        n = a.shape[-1]
        if n == 0:
            return xp.zeros(a.shape, dtype="int64")
        warps = -(-n // 32)
        tail = xp.zeros((*a.shape[:-1], warps * 32 - n), dtype=a.dtype)
        lanes = xp.concatenate([a, tail], axis=-1).reshape((*a.shape[:-1], warps, 32))
        before = xp.concatenate([neighbour(lanes), lanes[..., :-1]], axis=-1)
        starts = (lanes != before).reshape((*a.shape[:-1], warps * 32))[..., 1:n].astype("int64")
        first = xp.zeros((*a.shape[:-1], 1), dtype="int64")
        return xp.cumsum(xp.concatenate([first, starts], axis=-1), axis=-1)

    def wrong(xp, a):
        return number(xp, a, lambda lanes: lanes[..., :1])

    def right(xp, a):
        def last_of_warp_before(lanes):
            return xp.concatenate([lanes[..., :1, :1], lanes[..., :-1, -1:]], axis=-2)

        return number(xp, a, last_of_warp_before)

    def reference(a):
        out = np.zeros(a.shape, dtype="int64")
        if a.shape[-1]:
            out[..., 1:] = np.cumsum(a[..., 1:] != a[..., :-1], axis=-1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="run_ids",
            dtypes=("int32", "int64", "float32"),
            samples=lambda make: [
                make(24, low=0, high=3),
                make((4, 70), low=0, high=2),
                make((2, 2, 40), low=0, high=1),
            ],
            reference=reference,
            result_dtype="int64",
        )

    return wrong, right, declare


@pair(
    "triangle_place",
    "the row comes from a square root in float32",
    "torch.tril_indices on CUDA: the row of a flat index by a square root, which needs more than the float's precision",
    "k = 999961559, the last of row 44719: row 44720 and column -1; 0.2% of k near 10**9 are wrong",
)
def triangle_place():
    """Row and column of the k-th element of a lower triangle that is stored row by row."""

    def wrong(xp, k):
        root = xp.sqrt((8 * k + 1).astype("float32"))
        row = xp.floor((root - 1) / 2).astype("int64")
        return row, k - row * (row + 1) // 2

    def right(xp, k):
        root = xp.sqrt((8 * k + 1).astype("float64"))
        row = xp.floor((root - 1) / 2).astype("int64")
        row = xp.where(row * (row + 1) // 2 > k, row - 1, row)
        row = xp.where((row + 1) * (row + 2) // 2 <= k, row + 1, row)
        return row, k - row * (row + 1) // 2

    def reference(k):
        row = np.array([(math.isqrt(8 * int(each) + 1) - 1) // 2 for each in k.ravel()], dtype="int64").reshape(k.shape)
        return row, k - row * (row + 1) // 2

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="triangle_place",
            dtypes=("int64",),
            samples=lambda make: [
                make(300, low=0, high=10**9),
                make((8, 16), low=0, high=10**6),
                make(30, low=0, high=100),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "carry_forward",
    "a value is carried into the next chunk only",
    "xarray: ffill on dask arrays, where a gap longer than a chunk was not filled from chunks further back",
    "one value and then 40 missing: places 32 and later stay NaN",
)
def carry_forward():
    """Missing entries of a row take the last present value before them, at most `limit` places away, or are NaN."""

    size = 16

    def last_places(xp, present, carried):
        n = present.shape[-1]
        chunks = -(-n // size)
        places = xp.where(present, xp.arange(n), -1)
        tail = xp.full((*present.shape[:-1], chunks * size - n), -1, dtype=places.dtype)
        last = xp.concatenate([places, tail], axis=-1).reshape((*present.shape[:-1], chunks, size))
        for step in (1, 2, 4, 8):
            before = xp.full((*last.shape[:-1], step), -1, dtype=last.dtype)
            last = xp.maximum(last, xp.concatenate([before, last[..., :-step]], axis=-1))
        carry = xp.full(present.shape[:-1], -1, dtype=last.dtype)
        out = []
        for chunk in range(chunks):
            out.append(xp.maximum(last[..., chunk, :], carry[..., None]))
            carry = carried(carry, last[..., chunk, -1])
        return xp.concatenate(out, axis=-1)[..., :n]

    def fill(xp, a, present, limit, carried):
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}; give 0 or more")
        n = a.shape[-1]
        if n == 0:
            return a.copy()
        last = last_places(xp, present, carried)
        known = last >= 0
        if limit is not None:
            known = known & (xp.arange(n) - last <= limit)
        values = xp.take_along_axis(a, xp.maximum(last, 0), axis=-1)
        return xp.where(known, values, math.nan).astype(a.dtype)

    def wrong(xp, a, present, limit=None):
        return fill(xp, a, present, limit, lambda carry, end: end)

    def right(xp, a, present, limit=None):
        return fill(xp, a, present, limit, xp.maximum)

    def reference(a, present, limit=None):
        if limit is not None and limit < 0:
            raise ValueError("limit")
        out = np.full(a.shape, math.nan)
        for row in np.ndindex(a.shape[:-1]):
            last = None
            for i in range(a.shape[-1]):
                last = i if present[row][i] else last
                if last is not None and (limit is None or i - last <= limit):
                    out[row][i] = a[row][last]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="carry_forward",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((3, 50)), make((3, 50), dtype="bool")),
                (make(70), make(70, dtype="bool")),
                Sample((make((2, 30)), make((2, 30), dtype="bool")), {"limit": 2}),
            ],
            reference=reference,
            result_dtype=lambda a, present: a,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(4, dtype="bool")), {"limit": -1}), ValueError, "limit is -1")
            ],
        )

    return wrong, right, declare


@pair(
    "adjusted_rand",
    "the squares of the counts are of the table's dtype",
    "scikit-learn: adjusted_rand_score and pair_confusion_matrix overflowed with counts in int32",
    "counts of 50,000 in int32: a square is 2.5e9 and wraps around",
)
def adjusted_rand():
    """The adjusted Rand index of two clusterings, from the table of their common counts; 1 where they agree."""

    def index(xp, table, squares):
        rows, columns = table.sum(axis=1, dtype="int64"), table.sum(axis=0, dtype="int64")
        n = rows.sum()
        by_rows, by_columns = (rows * rows).sum() - squares, (columns * columns).sum() - squares
        together = (squares - n).astype("float64")
        apart = (n * n - by_rows - by_columns - squares).astype("float64")
        only_one, only_other = by_rows.astype("float64"), by_columns.astype("float64")
        below = (together + only_other) * (only_other + apart) + (together + only_one) * (only_one + apart)
        agree = (by_rows == 0) & (by_columns == 0)
        value = 2 * (together * apart - only_one * only_other) / xp.where(agree, 1.0, below)
        return xp.where(agree, 1.0, value)

    def wrong(xp, table):
        return index(xp, table, (table * table).sum(dtype="int64"))

    def right(xp, table):
        wide = table.astype("int64")
        return index(xp, table, (wide * wide).sum())

    def reference(table):
        counts = [[int(count) for count in row] for row in table]
        n = sum(map(sum, counts))
        both = sum(count * (count - 1) // 2 for row in counts for count in row)
        in_rows = sum(sum(row) * (sum(row) - 1) // 2 for row in counts)
        in_columns = sum(sum(column) * (sum(column) - 1) // 2 for column in zip(*counts, strict=True))
        if both == in_rows == in_columns:
            return np.float64(1.0)
        pairs = n * (n - 1) // 2
        return np.float64(
            (2 * (both * pairs - in_rows * in_columns)) / ((in_rows + in_columns) * pairs - 2 * in_rows * in_columns)
        )

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adjusted_rand",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make((3, 4), low=0, high=50),
                make((2, 2), low=0, high=1000),
                make((4, 3), low=0, high=100_000),
            ],
            reference=reference,
            result_dtype="float64",
        )

    return wrong, right, declare


@pair(
    "mean_timestamp",
    "the mean of the distances to the first time is of float64",
    "pandas and xarray: the mean of datetime64[ns] went through float64 and lost nanoseconds",
    "times years apart: 2**53 ns are 104 days, so the result is some nanoseconds off",
)
def mean_timestamp():
    """The mean of times in nanoseconds since 1970, rounded down to a whole nanosecond."""

    def check(times, axis):
        if times.shape[axis] == 0:
            raise ValueError("no times to average")

    def wrong(xp, times, axis=-1):
        check(times, axis)
        start = times.min(axis=axis, keepdims=True)
        after = xp.floor(xp.mean(times - start, axis=axis, keepdims=True)).astype("int64")
        return (start + after).sum(axis=axis)

    def right(xp, times, axis=-1):
        check(times, axis)
        n = times.shape[axis]
        parts = times // n
        rests = times - parts * n
        return parts.sum(axis=axis) + rests.sum(axis=axis) // n

    def reference(times, axis=-1):
        check(times, axis)
        exact = np.moveaxis(times, axis, -1)
        out = np.empty(exact.shape[:-1], dtype="int64")
        for i in np.ndindex(out.shape):
            out[i] = sum(int(time) for time in exact[i]) // exact.shape[-1]
        return out

    def declare(fn):
        first, last = 1_500_000_000 * 10**9, 1_700_000_000 * 10**9
        return OpSpec(
            fn=fn,
            name="mean_timestamp",
            dtypes=("int64",),
            samples=lambda make: [
                make(9, low=first, high=last),
                make((4, 6), low=first, high=last),
                Sample((make((3, 5, 2), low=first, high=last),), {"axis": 1}),
            ],
            reference=reference,
            result_dtype=lambda times: times,
            error_inputs=lambda make: [ErrorInput(make((3, 0), low=first, high=last), ValueError, "no times")],
        )

    return wrong, right, declare


@pair(
    "graph_smooth",
    "the degrees are those of the last graph with as many nodes and edges",
    "PyTorch Geometric: GCNConv(cached=True), and caches of the normalisation, reused for another graph",
    "two calls with 6 nodes and 10 edges but other edges: the second divides by the degrees of the first",
)
def graph_smooth():
    """The mean of each node's features and those of the sources of the edges that lead to it."""

    def count(xp, arrives):
        return 1 + arrives.sum(axis=1, dtype="int64")

    def mean(xp, features, source, arrives, members):
        wide = features.astype("float64")
        if source.shape[0] == 0:
            return wide.astype(features.dtype)
        total = wide + xp.where(arrives[:, :, None], wide[source][None], 0.0).sum(axis=1)
        return (total / members[:, None]).astype(features.dtype)

    def edges_by_node(xp, features, target):
        return target[None, :] == xp.arange(features.shape[0])[:, None]

    degrees = {}

    def wrong(xp, features, source, target):
        arrives = edges_by_node(xp, features, target)
        key = (id(xp), *arrives.shape)
        if key not in degrees:
            degrees[key] = count(xp, arrives)
        return mean(xp, features, source, arrives, degrees[key])

    def right(xp, features, source, target):
        arrives = edges_by_node(xp, features, target)
        return mean(xp, features, source, arrives, count(xp, arrives))

    def reference(features, source, target):
        total = features.astype("float64")
        members = np.ones(features.shape[0])
        for start, end in zip(source, target, strict=True):
            total[end] += features[start]
            members[end] += 1
        return total / members[:, None]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="graph_smooth",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (
                    make((6, 4), low=-10, high=10),
                    make(10, dtype="int64", low=0, high=5),
                    make(10, dtype="int64", low=0, high=5),
                ),
                (
                    make((15, 3), low=-10, high=10),
                    make(40, dtype="int64", low=0, high=14),
                    make(40, dtype="int64", low=0, high=14),
                ),
            ],
            reference=reference,
            result_dtype=lambda features, source, target: features,
        )

    return wrong, right, declare


@pair(
    "spectral_scale",
    "the vector of the last call is where the iteration starts",
    "torch.nn.utils.spectral_norm: each forward call moved the vector that the next one starts from",
    "the same matrix twice: the second result is of one more iteration",
)
def spectral_scale():
    """A matrix divided by an estimate of its largest singular value, by power iterations that start from ones."""

    def unit(xp, v):
        return v / xp.maximum(xp.sqrt((v * v).sum()), 1e-12)

    def divide(xp, w, u, iterations):
        if iterations < 1:
            raise ValueError(f"iterations is {iterations}; give 1 or more")
        wide = w.astype("float64")
        for _ in range(iterations):
            v = unit(xp, (wide * u[:, None]).sum(axis=0))
            u = unit(xp, (wide * v[None, :]).sum(axis=1))
        sigma = (u * (wide * v[None, :]).sum(axis=1)).sum()
        return (wide / xp.maximum(sigma, 1e-12)).astype(w.dtype), u

    starts = {}

    def wrong(xp, w, iterations=1):
        key = (id(xp), w.shape[0])
        u = starts[key] if key in starts else unit(xp, xp.ones(w.shape[0], dtype="float64"))
        out, starts[key] = divide(xp, w, u, iterations)
        return out

    def right(xp, w, iterations=1):
        return divide(xp, w, unit(xp, xp.ones(w.shape[0], dtype="float64")), iterations)[0]

    def reference(w, iterations=1):
        if iterations < 1:
            raise ValueError("iterations")
        u = np.ones(w.shape[0])
        for _ in range(iterations):
            v = w.T @ u
            v = v / max(np.linalg.norm(v), 1e-12)
            u = w @ v
            u = u / max(np.linalg.norm(u), 1e-12)
        return w / max(u @ w @ v, 1e-12)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="spectral_scale",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((6, 4), low=-2, high=2),
                Sample((make((5, 9), low=-2, high=2),), {"iterations": 3}),
            ],
            reference=reference,
            result_dtype=lambda w: w,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((3, 3)),), {"iterations": 0}), ValueError, "iterations is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "soft_minimum",
    "two equal infinities give NaN if they are negative",
    "jax.numpy.logaddexp and torch.logaddexp: of two equal infinities the difference is NaN; one sign was repaired",
    "soft_minimum(-inf, -inf) is NaN where -inf is right",
)
def soft_minimum():
    """-log(exp(-a) + exp(-b)), element by element."""

    def combine(xp, a, b, same, low):
        with np.errstate(invalid="ignore", over="ignore"):
            gap = xp.where(same, 0.0, xp.abs(a - b))
        return low - xp.log1p(xp.exp(-gap))

    def wrong(xp, a, b):
        low = xp.minimum(a, b)
        return combine(xp, a, b, low == math.inf, low)

    def right(xp, a, b):
        return combine(xp, a, b, a == b, xp.minimum(a, b))

    def reference(a, b):
        return -np.logaddexp(np.negative(a, dtype="float64"), np.negative(b, dtype="float64"))

    def declare(fn):
        return OpSpec(fn=fn, name="soft_minimum", dtypes=("float32", "float64"), reference=reference)

    return wrong, right, declare


@pair(
    "lowest_valid",
    "entries that do not count are the largest finite number",
    "torch.masked.amin and cuDF's minimum with nulls: the largest finite number as neutral element instead of infinity",
    "a row [inf, 5] where only inf counts: 3.4e38 where inf is right",
)
def lowest_valid():
    """The smallest of the entries that count, along an axis; infinity if none does; NaN if one of them is NaN."""

    def lowest(xp, a, valid, axis, neutral):
        if a.shape[axis] == 0:
            shape = list(a.shape)
            del shape[axis]
            return xp.full(tuple(shape), math.inf, dtype=a.dtype)
        low = xp.where(valid, a, neutral).min(axis=axis)
        return xp.where(valid.any(axis=axis), low, math.inf).astype(a.dtype)

    def wrong(xp, a, valid, axis=-1):
        return lowest(xp, a, valid, axis, float(np.finfo(str(a.dtype)).max))

    def right(xp, a, valid, axis=-1):
        return lowest(xp, a, valid, axis, math.inf)

    def reference(a, valid, axis=-1):
        return np.min(a, axis=axis, where=valid, initial=math.inf)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lowest_valid",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((4, 9)), make((4, 9), dtype="bool")),
                (make(33), make(33, dtype="bool")),
                Sample((make((5, 2, 3)), make((5, 2, 3), dtype="bool")), {"axis": 0}),
            ],
            reference=reference,
            result_dtype=lambda a, valid: a,
        )

    return wrong, right, declare


@pair(
    "silhouette",
    "a cluster of one point is taken as perfect",
    "scikit-learn: silhouette_samples, where a sample alone in its cluster has 0 by definition",
    "a label that occurs once: its point gets 1 where 0 is right",
)
def silhouette():
    """Silhouette of each point with city-block distances; 0 for a point alone in its cluster, or in the only one.

    Points with a label of `clusters` or more are in no cluster; they count for nothing and get 0.
    """

    def values(xp, points, labels, clusters, alone_is_zero):
        n = points.shape[0]
        if n == 0:
            return xp.zeros(0, dtype=points.dtype)
        wide = points.astype("float64")
        distances = xp.abs(wide[:, None, :] - wide[None, :, :]).sum(axis=-1)
        in_cluster = labels[:, None] == xp.arange(clusters)[None, :]
        itself = xp.arange(n)[:, None] == xp.arange(n)[None, :]
        counts = in_cluster[None, :, :] & ~itself[:, :, None]
        total = xp.where(counts, distances[:, :, None], 0.0).sum(axis=1)
        size = counts.sum(axis=1)
        mean = total / xp.maximum(size, 1)
        inside = xp.where(in_cluster, mean, 0.0).sum(axis=1)
        others = ~in_cluster & (size > 0)
        outside = xp.where(others, mean, math.inf).min(axis=1)
        larger = xp.maximum(inside, outside)
        defined = others.any(axis=1) & (larger != 0)
        if alone_is_zero:
            defined = defined & (in_cluster & (size > 0)).any(axis=1)
        with np.errstate(invalid="ignore"):
            ratio = (outside - inside) / xp.where(defined, larger, 1.0)
        return xp.where(defined, ratio, 0.0).astype(points.dtype)

    def wrong(xp, points, labels, clusters=3):
        return values(xp, points, labels, clusters, False)

    def right(xp, points, labels, clusters=3):
        return values(xp, points, labels, clusters, True)

    def reference(points, labels, clusters=3):
        out = np.zeros(len(points))
        for i, point in enumerate(points):
            distances = np.abs(points - point).sum(axis=1)
            distances_in = [
                [distances[j] for j in range(len(points)) if j != i and labels[j] == k] for k in range(clusters)
            ]
            own = distances_in[labels[i]] if labels[i] < clusters else []
            others = [np.mean(each) for k, each in enumerate(distances_in) if each and k != labels[i]]
            if own and others:
                inside, outside = np.mean(own), np.min(others)
                larger = np.maximum(inside, outside)
                out[i] = 0 if larger == 0 else (outside - inside) / larger
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="silhouette",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((20, 3)), make(20, dtype="int64", low=0, high=2)),
                Sample((make((14, 2)), make(14, dtype="int64", low=0, high=3)), {"clusters": 4}),
            ],
            reference=reference,
            result_dtype=lambda points, labels: points,
        )

    return wrong, right, declare


@pair(
    "paired_correlation",
    "entries of b without a partner in a count for b's mean and spread",
    "xarray.corr and xarray.cov: missing values of one array must be taken out of the other one too",
    "a = [1, nan, 3, 4], b = [2, 50, 3, 5]: the 50 counts",
)
def paired_correlation():
    """Pearson's correlation of rows over the places where neither is NaN; NaN if a row has no two different numbers."""

    def centred(xp, a, valid):
        n = xp.maximum(valid.sum(axis=-1, keepdims=True), 1)
        mean = xp.where(valid, a, 0.0).sum(axis=-1, keepdims=True) / n
        varies = xp.where(valid, a, -math.inf).max(axis=-1) > xp.where(valid, a, math.inf).min(axis=-1)
        return xp.where(valid, a - mean, 0.0), varies

    def correlate(xp, a, b, valid_a, valid_b):
        if a.shape[-1] == 0:
            return xp.full(a.shape[:-1], math.nan, dtype=a.dtype)
        x, x_varies = centred(xp, a.astype("float64"), valid_a)
        y, y_varies = centred(xp, b.astype("float64"), valid_b)
        varies = x_varies & y_varies
        spread = xp.sqrt((x * x).sum(axis=-1)) * xp.sqrt((y * y).sum(axis=-1))
        value = (x * y).sum(axis=-1) / xp.where(varies, spread, 1.0)
        return xp.where(varies, value, math.nan).astype(a.dtype)

    def wrong(xp, a, b):
        return correlate(xp, a, b, ~xp.isnan(a) & ~xp.isnan(b), ~xp.isnan(b))

    def right(xp, a, b):
        valid = ~xp.isnan(a) & ~xp.isnan(b)
        return correlate(xp, a, b, valid, valid)

    def reference(a, b):
        out = np.full(a.shape[:-1], math.nan)
        for i in np.ndindex(out.shape):
            both = ~np.isnan(a[i]) & ~np.isnan(b[i])
            x, y = a[i][both], b[i][both]
            if len(x) and np.ptp(x) > 0 and np.ptp(y) > 0:
                x, y = x - x.mean(), y - y.mean()
                out[i] = x @ y / (np.linalg.norm(x) * np.linalg.norm(y))
        return out

    def declare(fn):
        gaps = [[1.5, math.nan, -2.0, 4.0, 0.5, 3.0], [math.nan, 2.0, 7.0, math.nan, 1.0, -1.0]]
        other = [[0.5, 6.5, math.nan, 2.5, -3.0, 4.0], [math.nan, 1.0, 2.0, math.nan, -4.0, 6.0]]
        return OpSpec(
            fn=fn,
            name="paired_correlation",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((3, 40), low=-10, high=10), make((3, 40), low=-10, high=10)),
                (make(12, low=-10, high=10), make(12, low=-10, high=10)),
                (make.of(gaps), make.of(other)),
            ],
            reference=reference,
        )

    return wrong, right, declare
