"""Spectra, shares, checksums, dither, segments, reflectors, codebooks, energy, keys, graphs, distances: with twins."""

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
    "amplitude_at_bins",
    "the bin at half the sampling rate is doubled like the others",
    "one-sided spectra of instrument code: only bin 0 is excepted from the doubling",
    "[1, -1, 1, -1] at bin 2: amplitude 2 where it is 1; odd lengths have no such bin",
)
def amplitude_at_bins():
    """One-sided amplitudes of a real signal at some bins of its Fourier transform, without the whole transform."""

    def amplitudes(xp, signal, bins, alone):
        n = signal.shape[-1]
        turns = (bins[:, None] * xp.arange(n)) % n
        angle = turns * (2 * math.pi / n)
        wide = signal.astype("float64")[..., None, :]
        size = xp.hypot((wide * xp.cos(angle)).sum(axis=-1), (wide * xp.sin(angle)).sum(axis=-1)) / n
        return (size * xp.where(alone, 1.0, 2.0)).astype(signal.dtype)

    def check(signal):
        if signal.shape[-1] == 0:
            raise ValueError("the signal has no samples")

    def wrong(xp, signal, bins):
        check(signal)
        return amplitudes(xp, signal, bins, bins % signal.shape[-1] == 0)

    def right(xp, signal, bins):
        check(signal)
        return amplitudes(xp, signal, bins, (2 * bins) % signal.shape[-1] == 0)

    def reference(signal, bins):
        n = signal.shape[-1]
        if n == 0:
            raise ValueError("the signal has no samples")
        out = np.zeros((*signal.shape[:-1], len(bins)))
        for j, k in enumerate(bins):
            angle = 2 * np.pi * ((int(k) * np.arange(n)) % n) / n
            size = np.hypot((signal * np.cos(angle)).sum(-1), (signal * np.sin(angle)).sum(-1)) / n
            out[..., j] = size if (2 * int(k)) % n == 0 else 2 * size
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="amplitude_at_bins",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(33), make(6, dtype="int64", low=0, high=16)),
                (make((3, 128)), make(3, dtype="int64", low=0, high=64)),
                (make((2, 2, 75)), make(4, dtype="int64", low=0, high=37)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 0)), make(3, dtype="int64", low=0, high=1))), ValueError, "no samples")
            ],
        )

    return wrong, right, declare


@pair(
    "allocate_lots",
    "equal remainders are served from the back",
    "largest-remainder allocation written as argsort(remainder)[::-1], which also reverses the order of ties",
    "100 lots over three equal accounts: 33, 33, 34 where the first account gets the odd one",
)
def allocate_lots():
    """Whole lots in proportion to weights; what is left goes to the largest remainders, of equal ones to the first."""

    def parts(xp, weights, total):
        if total < 0:
            raise ValueError(f"total is {total}; give 0 or more")
        wide = weights.astype("int64")
        whole = int(wide.sum())
        if whole <= 0:
            raise ValueError("the weights add up to nothing")
        return wide * total // whole, wide * total % whole

    def wrong(xp, weights, total=100):
        shares, rest = parts(xp, weights, total)
        left = total - int(shares.sum())
        order = xp.argsort(rest, kind="stable")[::-1]
        shares[order[:left]] += 1
        return shares

    def right(xp, weights, total=100):
        shares, rest = parts(xp, weights, total)
        left = total - int(shares.sum())
        order = xp.argsort(-rest, kind="stable")
        shares[order[:left]] += 1
        return shares

    def reference(weights, total=100):
        weights = [int(w) for w in weights]
        whole = sum(weights)
        if whole <= 0:
            raise ValueError("the weights add up to nothing")
        shares = [w * total // whole for w in weights]
        order = sorted(range(len(weights)), key=lambda i: (-(weights[i] * total % whole), i))
        for i in order[: total - sum(shares)]:
            shares[i] += 1
        return np.array(shares, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="allocate_lots",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make(12, low=1, high=100_000),
                Sample((make(7, low=1, high=9_999),), {"total": 10_007}),
                Sample((make(40, low=1, high=1_000_000),), {"total": 250}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=1, high=9),), {"total": -1}), ValueError, "total is -1"),
                ErrorInput(make.full(3, 0), ValueError, "add up to nothing"),
            ],
        )

    return wrong, right, declare


@pair(
    "adler_digest",
    "the second sum outgrows 32 bits before it is reduced",
    "vectorised Adler-32: zlib reduces every 5552 bytes (NMAX), before the sums no longer fit",
    "10,000 bytes of 255: not what zlib.adler32 gives",
)
def adler_digest():
    """Adler-32 of the bytes along the last axis, as zlib.adler32 computes it."""

    def digest(xp, data, accumulator):
        n = data.shape[-1]
        running = xp.cumsum(data, axis=-1, dtype=accumulator)
        first = (data.sum(axis=-1, dtype=accumulator) + 1) % 65521
        second = (running.sum(axis=-1, dtype=accumulator) + n) % 65521
        return (second.astype("uint32") << 16) | first.astype("uint32")

    def wrong(xp, data):
        return digest(xp, data, "uint32")

    def right(xp, data):
        return digest(xp, data, "uint64")

    def reference(data):
        out = np.zeros(data.shape[:-1], dtype="uint32")
        for i in np.ndindex(out.shape):
            a, b = 1, 0
            for byte in data[i].tolist():
                a = (a + byte) % 65521
                b = (b + a) % 65521
            out[i] = b << 16 | a
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adler_digest",
            dtypes=("uint8",),
            result_dtype="uint32",
            samples=lambda make: [
                make(1, low=0, high=255),
                make(300, low=0, high=255),
                make((4, 1000), low=0, high=255),
                make((2, 3, 17), low=0, high=255),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "ordered_dither",
    "pixels are read in the order in which they lie in memory, thresholds in that of the image",
    "ravel(order='K') taken to spare a copy; channel or column order of the caller then leaks into the result",
    "the same picture in Fortran order gives another dither pattern, and a scrambled one",
)
def ordered_dither():
    """Grey levels reduced by a 4 by 4 Bayer matrix of thresholds."""

    bayer = [[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]

    def thresholds(xp, shape):
        rows, columns = shape[-2:]
        matrix = xp.asarray(bayer, dtype="int32") * 16 + 8
        tiled = matrix[xp.arange(rows)[:, None] % 4, xp.arange(columns)[None, :] % 4]
        return xp.broadcast_to(tiled, shape)

    def check(levels):
        if not 2 <= levels <= 256:
            raise ValueError(f"levels is {levels}; give 2 to 256")

    def wrong(xp, image, levels=2):
        check(levels)
        pixels = image.ravel(order="K").astype("int32")
        out = (pixels * (levels - 1) + thresholds(xp, image.shape).ravel()) >> 8
        return out.astype("uint8").reshape(image.shape)

    def right(xp, image, levels=2):
        check(levels)
        pixels = image.ravel().astype("int32")
        out = (pixels * (levels - 1) + thresholds(xp, image.shape).ravel()) >> 8
        return out.astype("uint8").reshape(image.shape)

    def reference(image, levels=2):
        out = np.zeros(image.shape, dtype="uint8")
        for i in np.ndindex(image.shape):
            out[i] = (int(image[i]) * (levels - 1) + bayer[i[-2] % 4][i[-1] % 4] * 16 + 8) // 256
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ordered_dither",
            dtypes=("uint8",),
            samples=lambda make: [
                make((12, 20), low=0, high=255),
                Sample((make((7, 9), low=0, high=255),), {"levels": 4}),
                Sample((make((3, 8, 5), low=0, high=255),), {"levels": 16}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 4), low=0, high=255),), {"levels": 1}), ValueError, "levels is 1")
            ],
        )

    return wrong, right, declare


@pair(
    "segment_distance",
    "an absolute epsilon in the denominator decides where short segments end",
    "geometry helpers that divide by max(length**2, 1e-8) against segments of no length; other units break them",
    "a segment of 2e-5 and a point above its middle: the foot of the perpendicular stays at its start",
)
def segment_distance():
    """Distances of points from segments; a segment of no length is a point. Coordinates along the last axis."""

    def measure(xp, points, start, end, part_of):
        p, a, b = (each.astype("float64") for each in (points, start, end))
        along = b - a
        part = xp.clip(part_of((p - a) * along, along * along), 0.0, 1.0)
        away = p - (a + part[..., None] * along)
        return xp.sqrt((away * away).sum(axis=-1)).astype(points.dtype)

    def wrong(xp, points, start, end):
        def part(dots, squares):
            return dots.sum(axis=-1) / xp.maximum(squares.sum(axis=-1), 1e-8)

        return measure(xp, points, start, end, part)

    def right(xp, points, start, end):
        def part(dots, squares):
            length = squares.sum(axis=-1)
            return xp.where(length == 0, 0.0, dots.sum(axis=-1) / xp.where(length == 0, 1.0, length))

        return measure(xp, points, start, end, part)

    def reference(points, start, end):
        points, start, end = np.broadcast_arrays(points, start, end)
        out = np.zeros(points.shape[:-1])
        for i in np.ndindex(out.shape):
            along = end[i] - start[i]
            length = (along * along).sum()
            part = 0.0 if length == 0 else np.clip(((points[i] - start[i]) * along).sum() / length, 0, 1)
            away = points[i] - (start[i] + part * along)
            out[i] = np.sqrt((away * away).sum())
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segment_distance",
            dtypes=("float32", "float64"),
            result_dtype=lambda points, start, end: points,
            samples=lambda make: [
                (make((30, 2)), make((30, 2)), make((30, 2))),
                (make((4, 7, 3)), make((7, 3)), make((7, 3))),
                (make((9, 2)), make.full((9, 2), 1), make.full((9, 2), 1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "householder_vector",
    "sign(0) is 0, so nothing is reflected where the first entry is zero",
    "Householder QR written with sign(x[0]) instead of copysign; numpy.sign gives 0 for 0",
    "[0, 3, 4]: the reflection gives [-0, -3, -4] and promises alpha 0 instead of -5",
)
def householder_vector():
    """Unit v and alpha such that x - 2 v (v . x) is (alpha, 0, 0, ...); alpha has the sign that does not cancel."""

    def finish(xp, x, wide, alpha):
        v = wide.copy()
        v[..., 0] -= alpha
        length = xp.sqrt((v * v).sum(axis=-1, keepdims=True))
        v = v / xp.where(length == 0, 1.0, length)
        return v.astype(x.dtype), alpha.astype(x.dtype)

    def check(x):
        if x.ndim == 0 or x.shape[-1] == 0:
            raise ValueError("a vector of no entries has no reflection")

    def wrong(xp, x):
        check(x)
        wide = x.astype("float64")
        norm = xp.sqrt((wide * wide).sum(axis=-1))
        return finish(xp, x, wide, -xp.sign(wide[..., 0]) * norm)

    def right(xp, x):
        check(x)
        wide = x.astype("float64")
        norm = xp.sqrt((wide * wide).sum(axis=-1))
        return finish(xp, x, wide, xp.where(wide[..., 0] < 0, norm, -norm))

    def reference(x):
        if x.ndim == 0 or x.shape[-1] == 0:
            raise ValueError("a vector of no entries has no reflection")
        vectors, alphas = np.zeros(x.shape), np.zeros(x.shape[:-1])
        for i in np.ndindex(alphas.shape):
            norm = np.sqrt((x[i] * x[i]).sum())
            alphas[i] = norm if x[i][0] < 0 else -norm
            v = x[i].copy()
            v[0] -= alphas[i]
            length = np.sqrt((v * v).sum())
            vectors[i] = v if length == 0 else v / length
        return vectors, alphas

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="householder_vector",
            dtypes=("float32", "float64"),
            samples=lambda make: [make(8), make((5, 3)), make((2, 3, 20)), make((4, 1))],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((3, 0)), ValueError, "no entries")],
        )

    return wrong, right, declare


@pair(
    "codebook_assign",
    "the norms of the codebook are kept while the same array is given, also after it was updated in place",
    "vector quantisation layers that cache |c|^2 by the identity of the parameter, which the optimiser writes in place",
    "assign, move the codebook in place as a training step does, assign again: the old norms decide",
)
def codebook_assign():
    """For each row of x, which row of the codebook is nearest; of equally near ones the first."""

    def check(x, codebook):
        if x.shape[-1] != codebook.shape[-1]:
            raise ValueError(f"rows of {x.shape[-1]} do not match a codebook of {codebook.shape[-1]}")

    def norms_of(codebook):
        wide = codebook.astype("float64")
        return (wide * wide).sum(axis=-1)

    def nearest(xp, x, codebook, norms):
        products = (x.astype("float64")[..., None, :] * codebook.astype("float64")).sum(axis=-1)
        return xp.argmin(norms - 2 * products, axis=-1)

    kept: dict[str, Any] = {}

    def wrong(xp, x, codebook):
        check(x, codebook)
        if kept.get("codebook") is not codebook:
            kept.update(codebook=codebook, norms=norms_of(codebook))
        return nearest(xp, x, codebook, kept["norms"])

    def right(xp, x, codebook):
        check(x, codebook)
        return nearest(xp, x, codebook, norms_of(codebook))

    def reference(x, codebook):
        products = (x[..., None, :] * codebook).sum(axis=-1)
        return np.argmin((codebook * codebook).sum(axis=-1) - 2 * products, axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="codebook_assign",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make((20, 4)), make((6, 4))),
                (make((2, 5, 8)), make((16, 8))),
                (make((7, 1)), make((3, 1))),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((4, 3)), make((5, 2))), ValueError, "do not match")],
        )

    return wrong, right, declare


@pair(
    "cumulative_energy",
    "the work array is the caller's own where moving the axis needed no copy",
    "ascontiguousarray taken for a copy: it is one only if the layout changes",
    "a single meter, a series of one dimension: the powers that were given are overwritten by the energies",
)
def cumulative_energy():
    """Energy up to each reading of a power meter by the trapezoid rule; 0 at the first. Readings along `axis`."""

    def integrate(xp, work, dtype, dt, axis):
        steps = 0.5 * dt * (work[..., 1:] + work[..., :-1])
        work[..., :1] = 0
        work[..., 1:] = xp.cumsum(steps, axis=-1)
        return xp.moveaxis(work, -1, axis).astype(dtype)

    def check(dt):
        if dt <= 0:
            raise ValueError(f"dt is {dt}; give a positive step")

    def wrong(xp, power, dt=1.0, axis=0):
        check(dt)
        work = xp.ascontiguousarray(xp.moveaxis(power, axis, -1))
        return integrate(xp, work, power.dtype, dt, axis)

    def right(xp, power, dt=1.0, axis=0):
        check(dt)
        work = xp.moveaxis(power, axis, -1).copy()
        return integrate(xp, work, power.dtype, dt, axis)

    def reference(power, dt=1.0, axis=0):
        moved = np.moveaxis(power, axis, 0)
        out = np.zeros(moved.shape)
        for i in range(1, len(moved)):
            out[i] = out[i - 1] + dt * (moved[i] + moved[i - 1]) / 2
        return np.moveaxis(out, 0, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cumulative_energy",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((24, 3)),
                Sample((make((5, 9, 4)),), {"dt": 0.25, "axis": 1}),
                Sample((make((6, 10, 2)),), {"axis": -2}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((4, 2)),), {"dt": 0}), ValueError, "dt is 0")],
        )

    return wrong, right, declare


@pair(
    "pair_group_ids",
    "two keys are packed into one 64-bit number, which wraps for wide keys",
    "pandas get_group_index before its check for int64 overflow: different groups got the same number",
    "hashes as keys, (0, 0) and (2**40, 0) next to a second key of 2**24 - 1: both in one group",
)
def pair_group_ids():
    """The number of each row's group by two key columns, groups numbered in the order of (first, second)."""

    def check(first, second):
        if first.shape != second.shape or first.ndim != 1:
            raise ValueError(f"key columns have shapes {first.shape} and {second.shape}")

    def wrong(xp, first, second):
        check(first, second)
        if first.size == 0:
            return xp.zeros(0, dtype="int64")
        first, second = first.astype("int64"), second.astype("int64")
        first, second = first - first.min(), second - second.min()
        packed = first * (second.max() + 1) + second
        return xp.unique(packed, return_inverse=True)[1].astype("int64")

    def right(xp, first, second):
        check(first, second)
        if first.size == 0:
            return xp.zeros(0, dtype="int64")
        order = xp.lexsort(xp.stack([second, first]))
        a, b = first[order], second[order]
        new = ((a[1:] != a[:-1]) | (b[1:] != b[:-1])).astype("int64")
        out = xp.zeros(first.shape, dtype="int64")
        out[order[1:]] = xp.cumsum(new)
        return out

    def reference(first, second):
        if first.shape != second.shape or first.ndim != 1:
            raise ValueError("key columns have unlike shapes")
        rows = list(zip(first.tolist(), second.tolist(), strict=True))
        number = {row: i for i, row in enumerate(sorted(set(rows)))}
        return np.array([number[row] for row in rows], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pair_group_ids",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(40), make(40)),
                (make(150, low=0, high=20), make(150, low=-50, high=50)),
                (make(9), make(9)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(4), make(5)), ValueError, "key columns have shapes")],
        )

    return wrong, right, declare


@pair(
    "component_labels",
    "a fixed number of rounds is taken for enough",
    "label propagation on GPUs with a fixed count of hook and jump rounds; long paths need more",
    "a path through 400 nodes, 0-1-2-...: several labels in one component; random edges agree",
)
def component_labels():
    """For each node of an undirected graph, given by its edges, the smallest node that is connected to it."""

    def advance(xp, labels, source, target):
        one, other = labels[source], labels[target]
        least = xp.minimum(one, other)
        new = labels.copy()
        xp.minimum.at(new, one, least)
        xp.minimum.at(new, other, least)
        return new[new]

    def check(source, target):
        if source.shape != target.shape:
            raise ValueError(f"{source.shape} sources and {target.shape} targets make no edges")

    def wrong(xp, source, target, nodes=20):
        check(source, target)
        labels = xp.arange(nodes)
        for _ in range(6):
            labels = advance(xp, labels, source, target)
        return labels

    def right(xp, source, target, nodes=20):
        check(source, target)
        labels = xp.arange(nodes)
        while True:
            new = advance(xp, labels, source, target)
            if not bool((new != labels).any()):
                return labels
            labels = new

    def reference(source, target, nodes=20):
        if source.shape != target.shape:
            raise ValueError("sources and targets make no edges")
        parent = list(range(nodes))

        def root(i):
            while parent[i] != i:
                i = parent[i]
            return i

        for s, t in zip(source.tolist(), target.tolist(), strict=True):
            low, high = sorted((root(s), root(t)))
            parent[high] = low
        return np.array([root(i) for i in range(nodes)], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="component_labels",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(14, low=0, high=19), make(14, low=0, high=19)),
                Sample((make(60, low=0, high=63), make(60, low=0, high=63)), {"nodes": 64}),
                Sample((make(380, low=0, high=399), make(380, low=0, high=399)), {"nodes": 400}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(4, low=0, high=9), make(5, low=0, high=9)), ValueError, "make no edges")
            ],
        )

    return wrong, right, declare


@pair(
    "ecdf_gap",
    "the gap is also measured between equal values",
    "two-sample Kolmogorov-Smirnov by a cumulative sum over the merged order, which steps through ties one by one",
    "two equal samples [1, 1, 2]: a distance of 2/3 where it is 0; measured numbers without ties agree",
)
def ecdf_gap():
    """The largest distance between the empirical distributions of two samples; NaN if either holds one."""

    def check(a, b):
        if a.size == 0 or b.size == 0:
            raise ValueError("a sample is empty")

    def finish(xp, a, b, gap):
        unknown = xp.isnan(a).any() | xp.isnan(b).any()
        return xp.where(unknown, math.nan, gap).astype("float64")

    def wrong(xp, a, b):
        check(a, b)
        order = xp.argsort(xp.concatenate([a, b]), kind="stable")
        steps = xp.where(order < a.size, 1.0 / a.size, -1.0 / b.size)
        return finish(xp, a, b, xp.abs(xp.cumsum(steps)).max())

    def right(xp, a, b):
        check(a, b)
        merged = xp.concatenate([a, b])
        below_a = xp.searchsorted(xp.sort(a), merged, side="right") / a.size
        below_b = xp.searchsorted(xp.sort(b), merged, side="right") / b.size
        return finish(xp, a, b, xp.abs(below_a - below_b).max())

    def reference(a, b):
        if a.size == 0 or b.size == 0:
            raise ValueError("a sample is empty")
        if np.isnan(a).any() or np.isnan(b).any():
            return np.array(math.nan)
        return np.array(max(abs((a <= x).mean() - (b <= x).mean()) for x in [*a, *b]))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ecdf_gap",
            dtypes=("float32", "float64"),
            result_dtype="float64",
            samples=lambda make: [
                (make(40), make(40)),
                (make(25), make(60, low=-1, high=4)),
                (make(1), make(9)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(0), make(3)), ValueError, "a sample is empty")],
        )

    return wrong, right, declare


@pair(
    "permutation_parity",
    "what is no permutation passes if its least, largest and total are right",
    "a validation that avoids the sort: bounds and n (n - 1) / 2 are checked, duplicates can make up for each other",
    "[0, 0, 3, 3] gets a sign where it must be refused; [0, 0, 2] is refused",
)
def permutation_parity():
    """1 for an even permutation of 0 to n - 1, -1 for an odd one; all else is a ValueError."""

    def sign(xp, order):
        later = xp.arange(order.size)
        inversions = (order[:, None] > order[None, :]) & (later[:, None] < later[None, :])
        return 1 - 2 * (inversions.sum(dtype="int64") % 2)

    def wrong(xp, order):
        n = order.size
        if n and (int(order.min()) != 0 or int(order.max()) != n - 1 or int(order.sum()) != n * (n - 1) // 2):
            raise ValueError(f"not a permutation of 0 to {n - 1}")
        return sign(xp, order)

    def right(xp, order):
        n = order.size
        if not bool((xp.sort(order) == xp.arange(n)).all()):
            raise ValueError(f"not a permutation of 0 to {n - 1}")
        return sign(xp, order)

    def reference(order):
        order = [int(i) for i in order]
        if sorted(order) != list(range(len(order))):
            raise ValueError(f"not a permutation of 0 to {len(order) - 1}")
        out, seen = 1, set()
        for start in range(len(order)):
            length, i = 0, start
            while i not in seen:
                seen.add(i)
                i, length = order[i], length + 1
            if length and length % 2 == 0:
                out = -out
        return np.array(out, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="permutation_parity",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make.of([2, 0, 1]),
                make.of([1, 0, 3, 2, 5, 4, 6]),
                make.of([0]),
                make.of([7, 3, 9, 0, 1, 8, 2, 6, 5, 4]),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make.of([0, 0, 2]), ValueError, "not a permutation of 0 to 2"),
                ErrorInput(make.of([1, 2, 3]), ValueError, "not a permutation of 0 to 2"),
                ErrorInput(make.of([0, -1, 4, 3, 2]), ValueError, "not a permutation"),
            ],
        )

    return wrong, right, declare
