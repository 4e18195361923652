"""Text, storage, grids, coding, equilibria, intervals, telemetry, plots, weather, residues: faults with their twins."""

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
    "count_words",
    "the padding of the last block counts as data",
    "tokenisers and string counters on GPUs that fill the last tile of a row with zero bytes, which are no white space",
    "a row that ends in a space and whose length is no multiple of 32: one word too many",
)
def count_words():
    """Words in each row of bytes: runs of anything but white space, counted in blocks of 32."""

    block = 32

    def count(xp, codes, filler):
        length = codes.shape[-1]
        if length == 0:
            return xp.zeros(codes.shape[:-1], dtype="int64")
        blocks = -(-length // block)
        padded = xp.full((*codes.shape[:-1], blocks * block), filler, dtype="uint8")
        padded[..., :length] = codes
        inside = (padded != 32) & ((padded < 9) | (padded > 13))
        before = xp.zeros(inside.shape, dtype="bool")
        before[..., 1:] = inside[..., :-1]
        starts = (inside & ~before).reshape(*codes.shape[:-1], blocks, block)
        return starts.astype("int64").sum(axis=-1).sum(axis=-1)

    def wrong(xp, codes):
        return count(xp, codes, 0)

    def right(xp, codes):
        return count(xp, codes, 32)

    def reference(codes):
        counts = np.zeros(codes.shape[:-1], dtype="int64")
        for i in np.ndindex(counts.shape):
            counts[i] = len(codes[i].astype("uint8").tobytes().split())
        return counts

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="count_words",
            dtypes=("uint8",),
            samples=lambda make: [
                make(64, low=32, high=122),
                make((4, 50), low=32, high=122),
                make((2, 3, 7), low=32, high=122),
                Sample((make((3, 0), low=32, high=122),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "pack_triangle",
    "memory order taken for index order",
    "wrappers of column-major solvers that avoid a copy of Fortran arrays with order='A' and do not swap the triangle",
    "a matrix in Fortran order that is not symmetric: the other triangle is packed",
)
def pack_triangle():
    """A triangle of each matrix, row after row, as packed storage holds it."""

    def pack(xp, a, lower, order):
        if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
            raise ValueError(f"shape {a.shape} is of no square matrices")
        n = a.shape[-1]
        rows, columns = np.tril_indices(n) if lower else np.triu_indices(n)
        batch = math.prod(a.shape[:-2])
        places = np.arange(batch)[:, None] * (n * n) + (rows * n + columns)
        flat = a.ravel(order=order)
        return flat[xp.asarray(places.reshape(-1))].reshape(*a.shape[:-2], len(rows))

    def wrong(xp, a, lower=True):
        return pack(xp, a, lower, "A")

    def right(xp, a, lower=True):
        return pack(xp, a, lower, "C")

    def reference(a, lower=True):
        if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
            raise ValueError(f"shape {a.shape} is of no square matrices")
        rows, columns = np.tril_indices(a.shape[-1]) if lower else np.triu_indices(a.shape[-1])
        return a[..., rows, columns]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pack_triangle",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((5, 5)),
                make((3, 4, 4)),
                Sample((make((6, 6)),), {"lower": False}),
                Sample((make((2, 0, 0)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((3, 4)), ValueError, "no square matrices")],
        )

    return wrong, right, declare


@pair(
    "smoothing_residual",
    "the input is one of two buffers that are exchanged",
    "multi-pass stencils with two buffers: astype(copy=False) keeps the caller's array, and the second pass writes it",
    "float64 and two or more passes: the input is overwritten, and the difference is taken from what overwrote it",
)
def smoothing_residual():
    """What passes of a (1, 2, 1)/4 filter along rows take away; the two ends stay as they are."""

    def smooth(source, target, passes):
        for _ in range(passes):
            target[..., :1] = source[..., :1]
            target[..., -1:] = source[..., -1:]
            target[..., 1:-1] = (source[..., :-2] + 2 * source[..., 1:-1] + source[..., 2:]) / 4
            source, target = target, source
        return source

    def check(passes):
        if passes < 0:
            raise ValueError(f"{passes} passes; give 0 or more")

    def wrong(xp, a, passes=1):
        check(passes)
        if a.shape[-1] < 3:
            return xp.zeros(a.shape, dtype=a.dtype)
        work = a.astype("float64", copy=False)
        smoothed = smooth(work, xp.empty(a.shape, dtype="float64"), passes)
        return (a - smoothed).astype(a.dtype)

    def right(xp, a, passes=1):
        check(passes)
        if a.shape[-1] < 3:
            return xp.zeros(a.shape, dtype=a.dtype)
        smoothed = smooth(a.astype("float64"), xp.empty(a.shape, dtype="float64"), passes)
        return (a - smoothed).astype(a.dtype)

    def reference(a, passes=1):
        check(passes)
        smoothed = a.copy()
        for _ in range(passes if a.shape[-1] >= 3 else 0):
            middle = (smoothed[..., :-2] + 2 * smoothed[..., 1:-1] + smoothed[..., 2:]) / 4
            smoothed = np.concatenate([smoothed[..., :1], middle, smoothed[..., -1:]], axis=-1)
        return a - smoothed

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smoothing_residual",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40, low=-50, high=50),
                make((3, 9), low=-50, high=50),
                Sample((make((2, 17), low=-50, high=50),), {"passes": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"passes": -1}), ValueError, "-1 passes")],
        )

    return wrong, right, declare


@pair(
    "diagonal_scan",
    "a cache of tables is keyed by the number of elements alone",
    "codecs and FFT plans that look tables or plans up by the total size and mix shapes of equal size",
    "blocks of 4 by 8 after blocks of 8 by 4: the second are read in the order of the first",
)
def diagonal_scan():
    """The entries of each block in the zigzag order of JPEG, for blocks of any extents."""

    def table(rows, columns):
        places = [(i, j) for i in range(rows) for j in range(columns)]
        places.sort(key=lambda at: (at[0] + at[1], at[0] if (at[0] + at[1]) % 2 else -at[0]))
        return np.array([i * columns + j for i, j in places], dtype="int64")

    def scan(xp, blocks, tables, key):
        rows, columns = blocks.shape[-2:]
        if key not in tables:
            tables[key] = table(rows, columns)
        return blocks.reshape(*blocks.shape[:-2], rows * columns)[..., xp.asarray(tables[key])]

    by_size = {}
    by_extents = {}

    def wrong(xp, blocks):
        return scan(xp, blocks, by_size, blocks.shape[-2] * blocks.shape[-1])

    def right(xp, blocks):
        return scan(xp, blocks, by_extents, blocks.shape[-2:])

    def reference(blocks):
        rows, columns = blocks.shape[-2:]
        read = []
        for total in range(max(rows + columns - 1, 0)):
            diagonal = [(i, total - i) for i in range(rows) if 0 <= total - i < columns]
            read += diagonal if total % 2 else diagonal[::-1]
        out = np.empty((*blocks.shape[:-2], rows * columns), dtype=blocks.dtype)
        for place, (i, j) in enumerate(read):
            out[..., place] = blocks[..., i, j]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="diagonal_scan",
            dtypes=("int16", "float32"),
            samples=lambda make: [make((8, 8)), make((8, 4)), make((3, 4, 8))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "bound_complex",
    "the smaller root of a quadratic cancels",
    "solvers of quadratics that subtract the root from the linear term, as textbooks and many shaders write it",
    "a dissociation constant far above the concentrations, such as 250 for 1 and 1: few digits of float32 are left",
)
def bound_complex():
    """The concentration of the complex of two partners, from their totals and the dissociation constant."""

    def check(dissociation):
        if not dissociation > 0:
            raise ValueError(f"dissociation is {dissociation}; give a positive number")

    def wrong(xp, first, second, dissociation=1.0):
        check(dissociation)
        total = first + second + dissociation
        return (total - xp.sqrt(xp.maximum(total * total - 4 * first * second, 0))) / 2

    def right(xp, first, second, dissociation=1.0):
        check(dissociation)
        apart = first - second
        root = xp.sqrt(apart * apart + dissociation * (dissociation + 2 * (first + second)))
        return 2 * first * second / (first + second + dissociation + root)

    def reference(first, second, dissociation=1.0):
        check(dissociation)
        root = np.sqrt((first - second) ** 2 + dissociation**2 + 2 * dissociation * (first + second))
        return 2 * first * second / (first + second + dissociation + root)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bound_complex",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(60, low=0, high=5), make(60, low=0, high=5)),
                Sample((make((4, 9), low=0, high=5), make((4, 9), low=0, high=5)), {"dissociation": 0.5}),
                Sample((make(21, low=0, high=5), make(21, low=0, high=5)), {"dissociation": 250.0}),
                Sample((make((3, 1), low=0, high=5), make(7, low=0, high=5)), kind="broadcast"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, low=0, high=5), make(4, low=0, high=5)), {"dissociation": 0}),
                    ValueError,
                    "dissociation is 0",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "interval_product",
    "zero times infinity is NaN",
    "interval libraries whose product of [0, 1] and [1, inf] is NaN; bound propagation in verifiers of networks has it",
    "an end that is 0 in one interval and one that is infinite in the other",
)
def interval_product():
    """Lower and upper ends of the products of two intervals, given by their ends in any order; 0 * inf is 0 here."""

    def naive(xp, x, y):
        return x * y

    def bounded(xp, x, y):
        return xp.where((y == 0) & xp.isinf(x), 0.0, x) * xp.where((x == 0) & xp.isinf(y), 0.0, y)

    def ends(xp, times, a, b, c, d):
        dtype = np.result_type(a.dtype, b.dtype, c.dtype, d.dtype)
        a, b, c, d = (each.astype("float64") for each in (a, b, c, d))
        ac, ad, bc, bd = times(xp, a, c), times(xp, a, d), times(xp, b, c), times(xp, b, d)
        low = xp.minimum(xp.minimum(ac, ad), xp.minimum(bc, bd)) + 0.0
        high = xp.maximum(xp.maximum(ac, ad), xp.maximum(bc, bd)) + 0.0
        return xp.stack([low, high]).astype(dtype)

    def wrong(xp, a, b, c, d):
        return ends(xp, naive, a, b, c, d)

    def right(xp, a, b, c, d):
        return ends(xp, bounded, a, b, c, d)

    def reference(a, b, c, d):
        products = []
        for x in (a, b):
            for y in (c, d):
                x_all, y_all = np.broadcast_arrays(x, y)
                product = np.zeros(x_all.shape)
                needed = ((x_all != 0) & (y_all != 0)) | np.isnan(x_all) | np.isnan(y_all)
                np.multiply(x_all, y_all, out=product, where=needed)
                products.append(product)
        products = np.stack(np.broadcast_arrays(*products))
        return np.stack([products.min(axis=0), products.max(axis=0)]) + 0.0

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="interval_product",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(30), make(30), make(30), make(30)),
                (make((4, 5)), make((4, 5)), make((4, 5)), make((4, 5))),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "recent_average",
    "a start before the beginning counts from the end",
    "a[n - k:] for the last k entries: where n is less than k the start is negative, and slicing takes it from the end",
    "rows of 5 to 7 entries with a window of 8: the first entries are left out",
)
def recent_average():
    """The mean of the last `window` entries of each row, or of all where there are fewer."""

    def check(a, window):
        if window < 1:
            raise ValueError(f"window is {window}; give 1 or more")
        if a.shape[-1] == 0:
            raise ValueError("rows have no entries")

    def wrong(xp, a, window=8):
        check(a, window)
        return a[..., a.shape[-1] - window :].astype("float64").mean(axis=-1).astype(a.dtype)

    def right(xp, a, window=8):
        check(a, window)
        return a[..., max(a.shape[-1] - window, 0) :].astype("float64").mean(axis=-1).astype(a.dtype)

    def reference(a, window=8):
        check(a, window)
        return a[..., -window:].mean(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="recent_average",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 30)),
                make((5, 8)),
                make((3, 2)),
                Sample((make((2, 3, 20)),), {"window": 5}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"window": 0}), ValueError, "window is 0"),
                ErrorInput(make((3, 0)), ValueError, "no entries"),
            ],
        )

    return wrong, right, declare


@pair(
    "histogram_curve",
    "two options, each right alone, are wrong together",
    "plots whose cumulative density does not end in 1 for bins of unequal widths: densities are added, not shares",
    "density and cumulative together, with bins that are not 1 wide",
)
def histogram_curve():
    """Counts in bins whose edges are given, the last bin closed; as densities, as running totals, or as both."""

    def counted(xp, a, edges):
        if len(edges) < 2 or any(after <= before for before, after in zip(edges[:-1], edges[1:], strict=True)):
            raise ValueError(f"edges {edges} do not increase")
        values = a.reshape(-1).astype("float64")
        counts = []
        for place, (start, stop) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
            below = values <= stop if place == len(edges) - 2 else values < stop
            counts.append(((values >= start) & below).astype("float64").sum())
        return xp.stack(counts), xp.asarray(np.diff(np.asarray(edges, dtype="float64")))

    def wrong(xp, a, edges=(-3.0, -1.0, 0.0, 1.0, 3.0), density=False, cumulative=False):
        counts, widths = counted(xp, a, edges)
        if density:
            counts = counts / xp.maximum(counts.sum(), 1.0) / widths
        if cumulative:
            counts = xp.cumsum(counts)
        return counts.astype(a.dtype)

    def right(xp, a, edges=(-3.0, -1.0, 0.0, 1.0, 3.0), density=False, cumulative=False):
        counts, widths = counted(xp, a, edges)
        if density:
            shares = counts / xp.maximum(counts.sum(), 1.0)
            counts = shares if cumulative else shares / widths
        if cumulative:
            counts = xp.cumsum(counts)
        return counts.astype(a.dtype)

    def reference(a, edges=(-3.0, -1.0, 0.0, 1.0, 3.0), density=False, cumulative=False):
        if len(edges) < 2 or (np.diff(edges) <= 0).any():
            raise ValueError(f"edges {edges} do not increase")
        values = a[np.isfinite(a)]
        counts = np.histogram(values, np.asarray(edges, dtype="float64"))[0].astype("float64")
        if density:
            counts = counts / max(counts.sum(), 1)
        if cumulative:
            return np.cumsum(counts)
        return counts / np.diff(edges) if density else counts

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="histogram_curve",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(80, low=-3, high=3),
                Sample((make((6, 11), low=-3, high=3),), {"density": True}),
                Sample((make(50, low=-3, high=3),), {"cumulative": True}),
                Sample((make(33, low=-3, high=3),), {"edges": (-2.0, -0.5, 0.5, 2.0)}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9),), {"edges": (0.0, 1.0, 1.0)}), ValueError, "do not increase")
            ],
        )

    return wrong, right, declare


@pair(
    "dew_point",
    "broadcasting by the flat index modulo the size",
    "elementwise kernels that index the smaller operand with i % size, which holds for missing leading axes only",
    "shapes (4, 1) and (4, 5), or (4, 1) and (1, 5): a value of another row is used",
)
def dew_point():
    """The dew point in degrees Celsius from temperature and relative humidity in per cent, by Magnus."""

    def formula(xp, temperature, humidity):
        gamma = xp.log(humidity / 100) + 17.62 * temperature / (243.12 + temperature)
        return 243.12 * gamma / (17.62 - gamma)

    def wrong(xp, temperature, humidity):
        dtype = np.result_type(temperature.dtype, humidity.dtype)
        shape = np.broadcast_shapes(temperature.shape, humidity.shape)
        places = xp.arange(math.prod(shape))
        flat = [
            each.reshape(-1)[places % max(math.prod(each.shape), 1)].astype("float64")
            for each in (temperature, humidity)
        ]
        return formula(xp, *flat).reshape(shape).astype(dtype)

    def right(xp, temperature, humidity):
        dtype = np.result_type(temperature.dtype, humidity.dtype)
        return formula(xp, temperature.astype("float64"), humidity.astype("float64")).astype(dtype)

    def reference(temperature, humidity):
        return formula(np, temperature, humidity)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dew_point",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40, low=-30, high=45), make(40, low=1, high=100)),
                (make((6, 7), low=-30, high=45), make((6, 7), low=1, high=100)),
                Sample((make((4, 5), low=-30, high=45), make(5, low=1, high=100)), kind="broadcast"),
                Sample((make((0, 3), low=-30, high=45), make((0, 3), low=1, high=100)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "modular_power",
    "the base is squared before it is reduced",
    "square-and-multiply that reduces only products: the square of a base beyond 3.04e9 leaves int64",
    "int64 bases of 1e10 and more with an exponent of 2 or more",
)
def modular_power():
    """base ** exponent modulo `modulus`, for whole numbers; the result is from 0 to modulus - 1."""

    def check(exponent, modulus):
        if exponent < 0:
            raise ValueError(f"exponent is {exponent}; give 0 or more")
        if not 1 <= modulus < 2**31:
            raise ValueError(f"modulus is {modulus}; give 1 to {2**31 - 1}")

    def power(xp, base, exponent, modulus):
        result = xp.ones(base.shape, dtype="int64") % modulus
        while exponent:
            if exponent % 2:
                result = result * base % modulus
            exponent //= 2
            if exponent:
                base = base * base % modulus
        return result

    def wrong(xp, base, exponent=5, modulus=9973):
        check(exponent, modulus)
        return power(xp, base.astype("int64"), exponent, modulus)

    def right(xp, base, exponent=5, modulus=9973):
        check(exponent, modulus)
        return power(xp, base.astype("int64") % modulus, exponent, modulus)

    def reference(base, exponent=5, modulus=9973):
        check(exponent, modulus)
        out = np.zeros(base.shape, dtype="int64")
        for i in np.ndindex(base.shape):
            out[i] = pow(int(base[i]), exponent, modulus)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="modular_power",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(20),
                make((3, 8), low=0, high=10**9),
                Sample((make(30, low=-(10**6), high=10**6),), {"exponent": 65, "modulus": 1_000_003}),
                Sample((make(11),), {"exponent": 0, "modulus": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"exponent": -1}), ValueError, "exponent is -1"),
                ErrorInput(Sample((make(4),), {"modulus": 0}), ValueError, "modulus is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "most_sessions",
    "at equal times beginnings come before ends",
    "sweeps over sorted events, as for meeting rooms and licences: a stable sort with beginnings first counts both",
    "one session that begins at the moment at which another ends: counted as two at once",
)
def most_sessions():
    """The most sessions at one time in each row, from their beginnings and lengths; the end is not part of one."""

    def sweep(xp, times, steps):
        order = xp.argsort(times, axis=-1, kind="stable")
        return xp.cumsum(steps[order], axis=-1).max(axis=-1)

    def parts(xp, begins, lengths):
        begins = begins.astype("float64")
        ends = begins + lengths.astype("float64")
        return xp.broadcast_to(begins, ends.shape), ends, xp.ones(ends.shape[-1], dtype="int64")

    def wrong(xp, begins, lengths):
        begins, ends, one = parts(xp, begins, lengths)
        if ends.shape[-1] == 0:
            return xp.zeros(ends.shape[:-1], dtype="int64")
        return sweep(xp, xp.concatenate([begins, ends], axis=-1), xp.concatenate([one, -one]))

    def right(xp, begins, lengths):
        begins, ends, one = parts(xp, begins, lengths)
        if ends.shape[-1] == 0:
            return xp.zeros(ends.shape[:-1], dtype="int64")
        return sweep(xp, xp.concatenate([ends, begins], axis=-1), xp.concatenate([-one, one]))

    def reference(begins, lengths):
        ends = begins + lengths
        at = begins[..., :, None]  # the number is the highest just after one begins
        running = ((begins[..., None, :] <= at) & (at < ends[..., None, :])).sum(axis=-1)
        return running.max(axis=-1, initial=0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="most_sessions",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(25, low=0, high=24), make(25, low=0, high=6)),
                (make((4, 12), low=0, high=24), make((4, 12), low=0, high=6)),
                Sample((make((3, 0), low=0, high=24), make((3, 0), low=0, high=6)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "binary_entropy",
    "NaN passes a check of the range",
    "validators that ask whether any value is below or above the limits, which NaN is not",
    "a probability that is NaN: a result instead of a ValueError",
)
def binary_entropy():
    """The entropy in bits of events of the given probabilities; anything but a number from 0 to 1 is refused."""

    def bits(xp, p):
        wide = p.astype("float64")
        rest = 1 - wide
        known = wide * xp.log2(xp.where(wide > 0, wide, 1.0)) + rest * xp.log2(xp.where(rest > 0, rest, 1.0))
        return (-known).astype(p.dtype)

    def wrong(xp, p):
        if bool(((p < 0) | (p > 1)).any()):
            raise ValueError("probabilities are not all from 0 to 1")
        return bits(xp, p)

    def right(xp, p):
        if not bool(((p >= 0) & (p <= 1)).all()):
            raise ValueError("probabilities are not all from 0 to 1")
        return bits(xp, p)

    def reference(p):
        if not all(0 <= each <= 1 for each in p.reshape(-1).tolist()):
            raise ValueError("probabilities are not all from 0 to 1")
        out = np.zeros(p.shape)
        for each in (p, 1 - p):
            out -= each * np.log2(each, out=np.zeros(p.shape), where=each > 0)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="binary_entropy",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(50, low=0, high=1),
                make((3, 7), low=0, high=1),
                Sample((make((0, 4), low=0, high=1),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make.of([0.5, 1.5, 0.25]), ValueError, "not all from 0 to 1"),
                ErrorInput(make.of([-0.25, 0.5]), ValueError, "not all from 0 to 1"),
                ErrorInput(make.of([0.5, math.nan, 0.25]), ValueError, "not all from 0 to 1"),
            ],
        )

    return wrong, right, declare
