"""Order, ties, integers, tails, layouts, kept state, options, lists, lookups, transforms: faults with their twins."""

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
    "stable_partition",
    "the entries that are not selected come in reverse order",
    "cub::DevicePartition: rejected items are written from the end of the output, in reverse; callers expect order",
    "[1, 2, 3, 4] with flags [1, 0, 0, 1]: the rest is 3, 2 where 2, 3 is right",
)
def stable_partition():
    """The flagged entries first, then the others, both in their order."""

    def check(a, flags):
        if a.ndim != 1 or a.shape != flags.shape:
            raise ValueError(f"shapes {a.shape} and {flags.shape}; give two vectors of one length")

    def wrong(xp, a, flags):
        check(a, flags)
        return xp.concatenate([a[flags], a[~flags][::-1]])

    def right(xp, a, flags):
        check(a, flags)
        return xp.concatenate([a[flags], a[~flags]])

    def reference(a, flags):
        check(a, flags)
        front = [i for i in range(len(a)) if flags[i]]
        back = [i for i in range(len(a)) if not flags[i]]
        return np.array([a[i] for i in front + back], dtype=a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="stable_partition",
            dtypes=("float32", "float64", "int32"),
            samples=lambda make: [
                (make(50), make(50, dtype="bool")),
                (make(7), make(7, dtype="bool")),
                Sample((make(0), make(0, dtype="bool")), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(5), make(4, dtype="bool")), ValueError, "one length")],
        )

    return wrong, right, declare


@pair(
    "row_mode",
    "of equally frequent values the first is taken, not the smallest",
    "scipy.stats.mode and its ports: the smallest of several modes is documented, argmax of the counts takes another",
    "[3, 1, 3, 1]: 3 where 1 is right",
)
def row_mode():
    """The most frequent value of each row; the smallest of several."""

    def counted(xp, a):
        if a.shape[-1] == 0:
            raise ValueError("the rows have no entries")
        return (a[..., :, None] == a[..., None, :]).sum(axis=-1)

    def wrong(xp, a):
        place = counted(xp, a).argmax(axis=-1)
        return xp.take_along_axis(a, place[..., None], axis=-1)[..., 0]

    def right(xp, a):
        counts = counted(xp, a)
        often = counts == counts.max(axis=-1, keepdims=True)
        return xp.where(often, a, np.iinfo(a.dtype).max).min(axis=-1)

    def reference(a):
        if a.shape[-1] == 0:
            raise ValueError("the rows have no entries")
        out = np.empty(a.shape[:-1], dtype=a.dtype)
        for i in np.ndindex(out.shape):
            values = a[i].tolist()
            out[i] = min(value for value in values if values.count(value) == max(map(values.count, values)))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="row_mode",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make((6, 12), low=0, high=5),
                make(31, low=-4, high=4),
                make((2, 3, 8), low=0, high=20),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "nan_weighted_mean",
    "the weights of missing entries stay in the denominator",
    "weighted means over missing data: xarray and pandas recipes that divide by the sum of all weights",
    "[1, nan] with weights [1, 1]: 0.5 where 1 is right",
)
def nan_weighted_mean():
    """The weighted mean of each row without its NaN; NaN if no weight is left."""

    def wrong(xp, a, weights):
        missing = xp.isnan(a)
        weights = weights.astype("float64")
        upper = xp.where(missing, 0.0, a.astype("float64") * weights).sum(axis=-1)
        lower = weights.sum(axis=-1)
        return (upper / xp.where(lower == 0, math.nan, lower)).astype(a.dtype)

    def right(xp, a, weights):
        missing = xp.isnan(a)
        weights = xp.where(missing, 0.0, weights.astype("float64"))
        upper = xp.where(missing, 0.0, a.astype("float64") * weights).sum(axis=-1)
        lower = weights.sum(axis=-1)
        return (upper / xp.where(lower == 0, math.nan, lower)).astype(a.dtype)

    def reference(a, weights):
        out = np.full(a.shape[:-1], math.nan)
        for i in np.ndindex(out.shape):
            there = ~np.isnan(a[i])
            values, factors = a[i][there], weights[i][there]
            if factors.sum() != 0:
                with np.errstate(all="ignore"):
                    out[i] = np.sum(values * factors) / factors.sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nan_weighted_mean",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((5, 30)), make((5, 30), low=0, high=1)),
                (make(17), make(17, low=0, high=10)),
                Sample(
                    (make.of([[1.0, math.nan, 3.0], [math.nan, math.nan, 2.0]]), make((2, 3), low=0.5, high=1)),
                    kind="extremal",
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "bit_key_order",
    "-0.0 is sorted before 0.0",
    "radix sorts by bits, such as early cub::DeviceRadixSort: the two zeros had different keys, so ties were reordered",
    "[0.0, -0.0]: order [1, 0] where [0, 1] is right",
)
def bit_key_order():
    """The stable ascending order of each row, by integer keys; NaN comes last."""

    def order(xp, a):
        bits = a.view("int32" if a.dtype.itemsize == 4 else "int64")
        keys = xp.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
        return xp.argsort(keys, axis=-1, kind="stable")

    def wrong(xp, a):
        return order(xp, xp.where(xp.isnan(a), math.nan, a))

    def right(xp, a):
        return order(xp, xp.where(xp.isnan(a), math.nan, xp.where(a == 0, 0.0, a)))

    def reference(a):
        out = np.empty(a.shape, dtype="int64")
        for i in np.ndindex(a.shape[:-1]):
            row = a[i].tolist()
            numbers = [j for j in range(len(row)) if not math.isnan(row[j])]
            missing = [j for j in range(len(row)) if math.isnan(row[j])]
            out[i] = sorted(numbers, key=row.__getitem__) + missing
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bit_key_order",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(60),
                make((4, 25), low=-1000, high=1000),
                Sample((make((3, 0)),), kind="empty"),
                Sample((make.of([2.0, 0.0, -0.0, math.inf, -1.0, math.nan, -0.0, 0.0, -math.inf]),), kind="extremal"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "times_power_of_two",
    "the power of two overflows although the product does not",
    "jax.numpy.ldexp: x * 2**n was infinite, or zero, where x is small and n is large",
    "0.001 * 2**128 in float32: inf where 3.4e35 is right",
)
def times_power_of_two():
    """a * 2**exponents."""

    def wrong(xp, a, exponents):
        return a * xp.exp2(exponents.astype(a.dtype))

    def right(xp, a, exponents):
        return xp.ldexp(a, exponents)

    def reference(a, exponents):
        return a * 2.0 ** exponents.astype("float64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="times_power_of_two",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40), make(40, dtype="int32", low=-20, high=20)),
                (make((3, 8), low=-1e-3, high=1e-3), make((3, 8), dtype="int32", low=0, high=132)),
                Sample((make((4, 1)), make(6, dtype="int32", low=-10, high=10)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "round_robin_merge",
    "after the shortest list ends the rest is appended list by list",
    "interleaved data loaders: taking turns stops at the shortest source, as zip does, and the remainders are chained",
    "[1], [2, 4, 6], [3, 5]: 1, 2, 3, 4, 6, 5 where 1, 2, 3, 4, 5, 6 is right",
)
def round_robin_merge():
    """The entries of several vectors in turn; a vector that has ended is skipped."""

    def check(arrays):
        if not arrays:
            raise ValueError("give at least one array")
        if any(x.ndim != 1 for x in arrays):
            raise ValueError("give vectors")

    def wrong(xp, arrays):
        check(arrays)
        shortest = min(x.shape[0] for x in arrays)
        head = xp.stack([x[:shortest] for x in arrays], axis=1).reshape(-1)
        return xp.concatenate([head, *(x[shortest:] for x in arrays)])

    def right(xp, arrays):
        check(arrays)
        turns = [xp.arange(x.shape[0]) * len(arrays) + i for i, x in enumerate(arrays)]
        return xp.concatenate(list(arrays))[xp.argsort(xp.concatenate(turns))]

    def reference(arrays):
        check(arrays)
        longest = max(len(x) for x in arrays)
        merged = [x[turn] for turn in range(longest) for x in arrays if turn < len(x)]
        return np.array(merged, dtype=np.result_type(*arrays))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="round_robin_merge",
            dtypes=("float32", "float64", "int64"),
            samples=lambda make: [
                ([make(5), make(5), make(5)],),
                ([make(4), make(9), make(6), make(7)],),
                ([make(12)],),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "standardised_affine",
    "the shift is applied only if a scale is given",
    "layer norms with optional weight and bias: `if weight is not None: y = y * weight + bias`, so bias alone is lost",
    "shift=1 without scale: rows of mean 0 where mean 1 is right",
)
def standardised_affine():
    """Rows of mean 0 and variance 1, then scaled and shifted if asked for."""

    def standard(xp, a):
        wide = a.astype("float64")
        centred = wide - wide.mean(axis=-1, keepdims=True)
        return centred / xp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)

    def wrong(xp, a, scale=None, shift=None):
        out = standard(xp, a)
        if scale is not None:
            out = out * scale
            if shift is not None:
                out = out + shift
        return out.astype(a.dtype)

    def right(xp, a, scale=None, shift=None):
        out = standard(xp, a)
        if scale is not None:
            out = out * scale
        if shift is not None:
            out = out + shift
        return out.astype(a.dtype)

    def reference(a, scale=None, shift=None):
        out = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)
        out = out if scale is None else out * scale
        return out if shift is None else out + shift

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="standardised_affine",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 32)),
                Sample((make((4, 32)),), {"scale": make(32)}),
                Sample((make((2, 3, 16)),), {"scale": make(16), "shift": make(16)}),
                Sample((make((5, 8)),), {"shift": make(8)}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "absolute_spread",
    "axis=0 is taken for no axis",
    "`axis = axis or -1`: the falsy zero, seen in many wrappers of reductions",
    "axis=0 of a matrix: one number a row where one a column is right",
)
def absolute_spread():
    """The mean absolute deviation from the mean, along an axis, the last by default."""

    def spread(xp, a, axis):
        wide = a.astype("float64")
        return xp.abs(wide - wide.mean(axis=axis, keepdims=True)).mean(axis=axis).astype(a.dtype)

    def wrong(xp, a, axis=None):
        return spread(xp, a, axis or -1)

    def right(xp, a, axis=None):
        return spread(xp, a, -1 if axis is None else axis)

    def reference(a, axis=None):
        rows = np.moveaxis(a, -1 if axis is None else axis, -1)
        return np.mean(np.abs(rows - np.mean(rows, -1)[..., None]), -1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="absolute_spread",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((6, 20)),
                Sample((make((6, 20)),), {"axis": 0}),
                Sample((make((3, 4, 5)),), {"axis": 1}),
                Sample((make((3, 4, 5)),), {"axis": -1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "seeded_signs",
    "seed 0 is replaced by the default seed",
    "`seed = seed or DEFAULT`: seed=0 gave the numbers of another seed, in several samplers",
    "seed=0: the signs of seed 2024",
)
def seeded_signs():
    """The entries with random signs; entry i of seed s has the sign that splitmix64 gives for (s, i)."""

    full = 2**64 - 1

    def signed(xp, a, seed):
        z = xp.arange(a.size, dtype="uint64").reshape(a.shape)
        z = (z + 1) * 0x9E3779B97F4A7C15 + (seed * 0xD1342543DE82EF95 & full)
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB
        return xp.where((z >> 63) == 1, -a, a)

    def wrong(xp, a, seed=None):
        return signed(xp, a, seed or 2024)

    def right(xp, a, seed=None):
        return signed(xp, a, 2024 if seed is None else seed)

    def reference(a, seed=None):
        out = np.array(a, order="C")
        flat = out.reshape(-1)
        for i in range(flat.size):
            z = ((i + 1) * 0x9E3779B97F4A7C15 + (2024 if seed is None else seed) * 0xD1342543DE82EF95) & full
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & full
            z = (z ^ (z >> 27)) * 0x94D049BB133111EB & full
            if z >> 63:
                flat[i] = -flat[i]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="seeded_signs",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(70),
                Sample((make((4, 9)),), {"seed": 0}),
                Sample((make((2, 3, 5)),), {"seed": 7}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "by_magnitude",
    "the result has the first array's dtype instead of the common one",
    "binary operations that allocate the output with empty_like(first)",
    "int32 [1] and float64 [2.5]: 2 where 2.5 is right",
)
def by_magnitude():
    """Of two numbers the one of larger magnitude, the first if both are equal; in the common dtype."""

    def below_zero(xp, a):
        return xp.where(a > 0, -a, a)  # -2**31 has no absolute value in int32

    def chosen(xp, a, b):
        common = xp.result_type(a.dtype, b.dtype)
        a, b = a.astype(common), b.astype(common)
        return xp.where(below_zero(xp, a) <= below_zero(xp, b), a, b)

    def wrong(xp, a, b):
        return chosen(xp, a, b).astype(a.dtype)

    def right(xp, a, b):
        return chosen(xp, a, b)

    def reference(a, b):
        first = np.abs(a.astype("float64")) >= np.abs(b.astype("float64"))
        return np.where(first, a, b)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="by_magnitude",
            dtypes=("int32", "float32"),
            result_dtype=lambda a, b: np.result_type(a, b).name,
            samples=lambda make: [
                (make(40), make(40)),
                (make((5, 6), low=-100, high=100), make((5, 6), low=-100, high=100)),
                Sample((make(20), make(20, dtype="float64")), kind="promotion"),
                Sample((make((4, 1)), make(5)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "plane_rotation_",
    "the second vector is rotated with the first one's new values",
    "hand-written drot: x is overwritten before y has been computed from it",
    "x = [1], y = [0] with cosine 0.8, sine 0.6: y is -0.48 where -0.6 is right",
)
def plane_rotation_():
    """Rotate two vectors in their plane, in place: x = c x + s y and y = c y - s x."""

    def wrong(xp, x, y, cosine=0.8, sine=0.6):
        x[...] = cosine * x + sine * y
        y[...] = cosine * y - sine * x
        return x, y

    def right(xp, x, y, cosine=0.8, sine=0.6):
        rotated = cosine * x + sine * y
        y[...] = cosine * y - sine * x
        x[...] = rotated
        return x, y

    def reference(x, y, cosine=0.8, sine=0.6):
        return cosine * x + sine * y, cosine * y - sine * x

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="plane_rotation_",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(50), make(50)),
                Sample((make((4, 7)), make((4, 7))), {"cosine": 0.0, "sine": 1.0}),
            ],
            reference=reference,
            without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"},
        )

    return wrong, right, declare


@pair(
    "discrete_hartley",
    "the matrix is cached by length alone, so the norm of the first call stays",
    "plans of transforms that are cached by size and not by norm",
    "norm='ortho' after a call without norm: the result is sqrt(n) too large",
)
def discrete_hartley():
    """The Hartley transform of each row; norm='ortho' divides by the root of the length."""

    kept: dict[Any, Any] = {}

    def check(norm):
        if norm not in (None, "ortho"):
            raise ValueError(f"norm is {norm!r}; give None or 'ortho'")

    def matrix(n, norm):
        place = np.arange(n)
        angle = 2 * np.pi * (np.outer(place, place) % max(n, 1)) / max(n, 1)
        return (np.cos(angle) + np.sin(angle)) / (math.sqrt(max(n, 1)) if norm else 1.0)

    def transformed(xp, a, host):
        return (xp.asarray(host) * a.astype("float64")[..., None, :]).sum(axis=-1).astype(a.dtype)

    def wrong(xp, a, norm=None):
        check(norm)
        n = a.shape[-1]
        if n not in kept:
            kept[n] = matrix(n, norm)
        return transformed(xp, a, kept[n])

    def right(xp, a, norm=None):
        check(norm)
        n = a.shape[-1]
        if (n, norm) not in kept:
            kept[n, norm] = matrix(n, norm)
        return transformed(xp, a, kept[n, norm])

    def reference(a, norm=None):
        check(norm)
        n = a.shape[-1]
        out = np.empty(a.shape)
        for k in range(n):
            angle = np.array([2 * np.pi * (j * k % n) / n for j in range(n)])
            out[..., k] = (a * (np.cos(angle) + np.sin(angle))).sum(-1)
        return out / math.sqrt(n) if norm and n else out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="discrete_hartley",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 16)),
                Sample((make((3, 16)),), {"norm": "ortho"}),
                make(21),
                Sample((make((2, 2, 9)),), {"norm": "ortho"}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"norm": "forward"}), ValueError, "norm is")],
        )

    return wrong, right, declare


@pair(
    "byte_planes",
    "the bytes come in the order of memory, not of the array",
    "serialisers that call ravel(order='K') because it does not copy",
    "a transposed matrix: the bytes of another element",
)
def byte_planes():
    """The bytes of each integer, the lowest first, along a new last axis."""

    def wrong(xp, a):
        flat = xp.ravel(a, order="K")
        return xp.ascontiguousarray(flat).view("uint8").reshape(*a.shape, a.dtype.itemsize).copy()

    def right(xp, a):
        flat = xp.ravel(a)
        return xp.ascontiguousarray(flat).view("uint8").reshape(*a.shape, a.dtype.itemsize).copy()

    def reference(a):
        size = a.dtype.itemsize
        out = np.empty((*a.shape, size), dtype="uint8")
        for i in np.ndindex(a.shape):
            number = int(a[i]) % 256**size
            out[i] = [number // 256**k % 256 for k in range(size)]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="byte_planes",
            dtypes=("int16", "int32", "int64"),
            result_dtype=lambda a: "uint8",
            samples=lambda make: [
                make(33, low=-30000, high=30000),
                make((5, 8), low=-30000, high=30000),
                make((2, 3, 4), low=0, high=255),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "strict_take",
    "indices below zero are not refused",
    "bounds checks that look at the upper end alone: negative indices wrap around, as in array code",
    "index -1: the last entry where IndexError is right",
)
def strict_take():
    """Entries of a table; an index outside 0..length-1 raises IndexError."""

    def wrong(xp, table, index):
        if bool((index >= table.shape[0]).any()):
            raise IndexError(f"an index is outside the table of {table.shape[0]} entries")
        return table[index]

    def right(xp, table, index):
        if bool(((index < 0) | (index >= table.shape[0])).any()):
            raise IndexError(f"an index is outside the table of {table.shape[0]} entries")
        return table[index]

    def reference(table, index):
        places = np.asarray(index).reshape(-1).tolist()
        for place in places:
            if place not in range(len(table)):
                raise IndexError(f"an index is outside the table of {len(table)} entries")
        picked = [table[place] for place in places]
        return np.array(picked, dtype=table.dtype).reshape(np.shape(index) + table.shape[1:])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="strict_take",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(20), make(35, dtype="int64", low=0, high=19)),
                (make((9, 4)), make((3, 5), dtype="int64", low=0, high=8)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(6), np.array([0, 6])), IndexError, "outside the table"),
                ErrorInput((make(6), np.array([2, -1])), IndexError, "outside the table"),
            ],
        )

    return wrong, right, declare


@pair(
    "gumbel_log_survival",
    "1 - cdf cancels in the upper tail",
    "logsf computed as log(1 - cdf), as scipy.stats does for distributions without a formula of their own",
    "x = 20 in float32: -inf where -20 is right",
)
def gumbel_log_survival():
    """The logarithm of the probability that a standard Gumbel variable exceeds x."""

    def wrong(xp, x):
        return xp.log(1 - xp.exp(-xp.exp(-x)))

    def right(xp, x):
        wide = x.astype("float64")
        rate = xp.exp(-xp.clip(wide, -700.0, 15.0))
        below = xp.log1p(-xp.exp(-xp.where(wide < 0, rate, 1.0)))
        middle = xp.log(-xp.expm1(-rate))
        tail = -wide - xp.exp(-xp.maximum(wide, 15.0)) / 2
        return xp.where(wide < 0, below, xp.where(wide < 15, middle, tail)).astype(x.dtype)

    def reference(x):
        def one(v):
            if math.isnan(v):
                return v
            if v > 30:
                return -v
            rate = math.exp(-max(v, -600.0))
            if rate < 0.5:
                return math.log(rate) + math.log(-math.expm1(-rate) / rate)
            return math.log1p(-math.exp(-rate))

        return np.array([one(v) for v in np.asarray(x).reshape(-1).tolist()]).reshape(np.shape(x))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gumbel_log_survival",
            dtypes=("float32", "float64"),
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "alpha_over",
    "division by 255 is replaced by a shift of 8",
    "compositing of 8-bit images: (v + 128) >> 8 darkens; Pillow's MULDIV255 exists for this reason",
    "white on white with alpha 255: 254 where 255 is right",
)
def alpha_over():
    """One 8-bit image over another, with 8-bit opacity: rounded (top * alpha + bottom * (255 - alpha)) / 255."""

    def mixed(xp, top, bottom, alpha):
        alpha = alpha.astype("int32")
        return top.astype("int32") * alpha + bottom.astype("int32") * (255 - alpha)

    def wrong(xp, top, bottom, alpha):
        return ((mixed(xp, top, bottom, alpha) + 128) >> 8).astype("uint8")

    def right(xp, top, bottom, alpha):
        return ((mixed(xp, top, bottom, alpha) + 127) // 255).astype("uint8")

    def reference(top, bottom, alpha):
        share = alpha.astype("float64")
        return np.rint((top * share + bottom * (255 - share)) / 255).astype("uint8")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="alpha_over",
            dtypes=("uint8",),
            samples=lambda make: [
                (make((6, 7), low=0, high=255), make((6, 7), low=0, high=255), make((6, 7), low=0, high=255)),
                Sample(
                    (make((4, 5, 3), low=0, high=255), make(3, low=0, high=255), make((4, 5, 1), low=0, high=255)),
                    kind="broadcast",
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "depth_to_space",
    "the mode is accepted and ignored",
    "converters of ONNX's DepthToSpace that knew the order DCR only, and took mode='CRD' without a word",
    "mode='CRD' with 8 channels and block 2: channels mixed up",
)
def depth_to_space():
    """Move blocks of channels into space, images as (batch, channels, height, width); orders DCR and CRD of ONNX."""

    def check(a, block, mode):
        if a.ndim != 4 or a.shape[1] % (block * block):
            raise ValueError(f"shape {a.shape} has no channels in multiples of {block * block}")
        if mode not in ("DCR", "CRD"):
            raise ValueError(f"mode is {mode!r}; give 'DCR' or 'CRD'")

    def moved(xp, a, block, mode):
        n, c, h, w = a.shape
        depth = c // (block * block)
        if mode == "DCR":
            parts = a.reshape(n, block, block, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            parts = a.reshape(n, depth, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        return parts.reshape(n, depth, h * block, w * block).copy()

    def wrong(xp, a, block=2, mode="DCR"):
        check(a, block, mode)
        return moved(xp, a, block, "DCR")

    def right(xp, a, block=2, mode="DCR"):
        check(a, block, mode)
        return moved(xp, a, block, mode)

    def reference(a, block=2, mode="DCR"):
        check(a, block, mode)
        n, c, h, w = a.shape
        depth = c // (block * block)
        out = np.empty((n, depth, h * block, w * block), dtype=a.dtype)
        for d in range(depth):
            for i in range(block):
                for j in range(block):
                    source = (i * block + j) * depth + d if mode == "DCR" else d * block * block + i * block + j
                    out[:, d, i::block, j::block] = a[:, source]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="depth_to_space",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make((2, 8, 3, 4)),
                Sample((make((1, 18, 2, 3)),), {"block": 3}),
                Sample((make((2, 8, 3, 2)),), {"mode": "CRD"}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make((1, 6, 2, 2)), ValueError, "multiples of 4"),
                ErrorInput(Sample((make((1, 4, 2, 2)),), {"mode": "RCD"}), ValueError, "mode is 'RCD'"),
            ],
        )

    return wrong, right, declare


@pair(
    "box_iou",
    "the area of the overlap is clamped, not its sides",
    "hand-written intersection over union: two negative sides have a positive product",
    "boxes that are apart in x and in y: a positive overlap where 0 is right",
)
def box_iou():
    """Intersection over union of each box of `a` with each of `b`; boxes are x, y, width, height."""

    def check(a, b):
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != 4 or b.shape[1] != 4:
            raise ValueError(f"shapes {a.shape} and {b.shape}; give (boxes, 4)")

    def sides(xp, a, b):
        a, b = a.astype("float64")[:, None, :], b.astype("float64")[None, :, :]
        low = xp.maximum(a[..., :2], b[..., :2])
        high = xp.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:])
        return high - low, a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3]

    def share(xp, overlap, total, dtype):
        union = total - overlap
        return xp.where(union == 0, 0.0, overlap / xp.where(union == 0, 1.0, union)).astype(dtype)

    def wrong(xp, a, b):
        check(a, b)
        extent, total = sides(xp, a, b)
        return share(xp, xp.maximum(extent[..., 0] * extent[..., 1], 0.0), total, a.dtype)

    def right(xp, a, b):
        check(a, b)
        extent, total = sides(xp, a, b)
        extent = xp.maximum(extent, 0.0)
        return share(xp, extent[..., 0] * extent[..., 1], total, a.dtype)

    def reference(a, b):
        check(a, b)
        out = np.zeros((len(a), len(b)))
        for i, (ax, ay, aw, ah) in enumerate(a):
            for j, (bx, by, bw, bh) in enumerate(b):
                across = np.maximum(np.minimum(ax + aw, bx + bw) - np.maximum(ax, bx), 0)
                along = np.maximum(np.minimum(ay + ah, by + bh) - np.maximum(ay, by), 0)
                union = aw * ah + bw * bh - across * along
                out[i, j] = across * along / union if union != 0 else 0.0
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="box_iou",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 4), low=0, high=10), make((5, 4), low=0, high=10)),
                (make((1, 4), low=0, high=1), make((8, 4), low=0, high=1)),
                Sample((make((0, 4), low=0, high=1), make((3, 4), low=0, high=1)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "van_leer_slopes",
    "the ratio of differences is 0/0 where the data are flat",
    "flux limiters written with the ratio r of slopes: NaN in uniform regions",
    "[1, 1, 1]: nan where 0 is right",
)
def van_leer_slopes():
    """Limited slopes of rows: the harmonic mean of both differences if they have one sign, else 0; 0 at the ends."""

    def differences(xp, a):
        wide = a.astype("float64")
        steps = wide[..., 1:] - wide[..., :-1]
        return steps[..., :-1], steps[..., 1:]

    def framed(xp, a, inner):
        out = xp.zeros(a.shape, dtype=a.dtype)
        if a.shape[-1] > 2:
            out[..., 1:-1] = inner.astype(a.dtype)
        return out

    def wrong(xp, a):
        before, after = differences(xp, a)
        ratio = before / after
        return framed(xp, a, (ratio + xp.abs(ratio)) / (1 + xp.abs(ratio)) * after)

    def right(xp, a):
        before, after = differences(xp, a)
        same = ((before > 0) & (after > 0)) | ((before < 0) & (after < 0))
        total = xp.where(same, before + after, 1.0)
        return framed(xp, a, xp.where(same, 2 * before * (after / total), 0.0))

    def reference(a):
        out = np.zeros(a.shape)
        for i in np.ndindex(a.shape[:-1]):
            row = a[i]
            for j in range(1, len(row) - 1):
                p, q = row[j] - row[j - 1], row[j + 1] - row[j]
                if (p > 0 and q > 0) or (p < 0 and q < 0):
                    out[(*i, j)] = 2 * p * (q / (p + q))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="van_leer_slopes",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40),
                make((3, 17), low=0, high=100),
                make((2, 4, 3)),
                make((5, 2)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "last_above",
    "a row without an entry above the threshold gives its last index",
    "argmax of the reversed mask: of a mask without true values it is 0",
    "[1, 2] with threshold 3: 1 where -1 is right",
)
def last_above():
    """The index of the last entry of each row above the threshold, or -1."""

    def wrong(xp, a, threshold=0.0):
        n = a.shape[-1]
        if n == 0:
            return xp.full(a.shape[:-1], -1, dtype="int64")
        above = a.astype("float64") > threshold
        return n - 1 - above[..., ::-1].argmax(axis=-1)

    def right(xp, a, threshold=0.0):
        n = a.shape[-1]
        if n == 0:
            return xp.full(a.shape[:-1], -1, dtype="int64")
        above = a.astype("float64") > threshold
        return xp.where(above, xp.arange(n, dtype="int64"), -1).max(axis=-1)

    def reference(a, threshold=0.0):
        out = np.full(a.shape[:-1], -1, dtype="int64")
        for i in np.ndindex(out.shape):
            for j, value in enumerate(a[i]):
                if value > threshold:
                    out[i] = j
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="last_above",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: "int64",
            samples=lambda make: [
                make((5, 40)),
                Sample((make((20, 6)),), {"threshold": 2.0}),
                Sample((make(30, low=0, high=1),), {"threshold": 0.5}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "full_convolution",
    "a kept accumulator is not cleared behind the first term",
    "workspaces that are allocated once, zeroed then, and reused by later calls",
    "the second call: the last entries contain those of the first",
)
def full_convolution():
    """The full convolution of two vectors."""

    kept: dict[Any, Any] = {}

    def check(a, taps):
        if a.ndim != 1 or taps.ndim != 1 or not a.size or not taps.size:
            raise ValueError("give two vectors that are not empty")

    def added(total, a, taps):
        n = a.shape[0]
        wide, factors = a.astype("float64"), taps.astype("float64")
        total[:n] = factors[:1] * wide
        for i in range(1, taps.shape[0]):
            total[i : i + n] += factors[i : i + 1] * wide
        return (total + 0.0).astype(a.dtype)

    def wrong(xp, a, taps):
        check(a, taps)
        length = a.shape[0] + taps.shape[0] - 1
        capacity = 1 << (length - 1).bit_length()
        key = (xp.__name__, capacity)
        if key not in kept:
            kept[key] = xp.zeros(capacity, dtype="float64")
        return added(kept[key][:length], a, taps)

    def right(xp, a, taps):
        check(a, taps)
        return added(xp.zeros(a.shape[0] + taps.shape[0] - 1, dtype="float64"), a, taps)

    def reference(a, taps):
        check(a, taps)
        out = np.zeros(len(a) + len(taps) - 1)
        for k in range(len(out)):
            out[k] = sum(taps[i] * a[k - i] for i in range(len(taps)) if 0 <= k - i < len(a))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="full_convolution",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40), make(5)),
                (make(33), make(9)),
                (make(6), make(1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "second_differences",
    "the result is a buffer that the next call of that shape overwrites",
    "inference engines that return their output binding: an earlier result changes",
    "two calls of one shape: both results hold the second one's numbers",
)
def second_differences():
    """The second differences of each row, two entries shorter than it."""

    kept: dict[Any, Any] = {}

    def bent(a):
        wide = a.astype("float64")
        return (wide[..., 2:] - wide[..., 1:-1]) - (wide[..., 1:-1] - wide[..., :-2])

    def wrong(xp, a):
        values = bent(a)
        key = (xp.__name__, values.shape, a.dtype.name)
        if key not in kept:
            kept[key] = xp.empty(values.shape, dtype=a.dtype)
        kept[key][...] = values
        return kept[key]

    def right(xp, a):
        values = bent(a)
        out = xp.empty(values.shape, dtype=a.dtype)
        out[...] = values
        return out

    def reference(a):
        return np.diff(np.diff(a, axis=-1), axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="second_differences",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(30),
                make((4, 11)),
                Sample((make((3, 2)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "matched_filter",
    "the template is not conjugated",
    "ports of numpy.correlate: correct for real signals, without the conjugate for complex ones",
    "signal [1j], template [1j]: -1 where 1 is right",
)
def matched_filter():
    """The correlation of a signal with a template at each place where it fits."""

    def check(signal, template):
        if not 0 < template.shape[0] <= signal.shape[0]:
            raise ValueError(f"the template has length {template.shape[0]}, the signal {signal.shape[0]}")

    def correlated(xp, signal, template):
        places = signal.shape[0] - template.shape[0] + 1
        total = xp.zeros(places, dtype="complex128")
        for i in range(template.shape[0]):
            total = total + signal[i : i + places].astype("complex128") * template[i : i + 1].astype("complex128")
        return total if signal.dtype.name == "complex128" else total.astype(signal.dtype)

    def wrong(xp, signal, template):
        check(signal, template)
        return correlated(xp, signal, template)

    def right(xp, signal, template):
        check(signal, template)
        return correlated(xp, signal, xp.conj(template))

    def reference(signal, template):
        check(signal, template)
        n = len(template)
        windows = [signal[k : k + n] for k in range(len(signal) - n + 1)]
        return np.array([(window * np.conj(template)).sum() for window in windows])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="matched_filter",
            dtypes=("complex64", "complex128"),
            samples=lambda make: [
                (make(50), make(7)),
                (make(9), make(9)),
                (make(20), make(1)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(3), make(4)), ValueError, "the template has length 4")],
        )

    return wrong, right, declare


@pair(
    "is_nondecreasing",
    "a row with NaN is said to be in order",
    "checks of sorted input written as `not any(next < previous)`: comparisons with NaN are false",
    "[1, nan, 0]: True where False is right",
)
def is_nondecreasing():
    """Whether each entry of a row is at least the one before it; NaN is neither more nor less."""

    def wrong(xp, a):
        return ~(a[..., 1:] < a[..., :-1]).any(axis=-1)

    def right(xp, a):
        return (a[..., 1:] >= a[..., :-1]).all(axis=-1)

    def reference(a):
        out = np.empty(a.shape[:-1], dtype="bool")
        for i in np.ndindex(out.shape):
            row = a[i].tolist()
            out[i] = all(p <= q for p, q in itertools.pairwise(row))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="is_nondecreasing",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: "bool",
            samples=lambda make: [
                make((30, 2)),
                make((8, 3)),
                Sample((make((4, 0)),), kind="empty"),
                Sample(
                    (make.of([[1.0, 2.0, math.inf], [1.0, math.nan, 3.0], [-math.inf, 0.0, -0.0], [3.0, 2.0, 1.0]]),),
                    kind="extremal",
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "one_pole",
    "the initial state is overwritten if it has the working dtype already",
    "astype(copy=False) or asarray before an in-place update: the caller's array is the state",
    "float64: after the call `initial` holds the last output, so a second call differs",
)
def one_pole():
    """A one-pole low-pass filter of each row of `a`, from the state `initial`: y += coefficient * (a - y)."""

    def check(a, initial, coefficient):
        if initial.shape != a.shape[:-1]:
            raise ValueError(f"initial has shape {initial.shape}; give {a.shape[:-1]}")
        if not 0 < coefficient <= 1:
            raise ValueError(f"coefficient is {coefficient}; give more than 0, at most 1")

    def filtered(xp, a, state, coefficient):
        out = xp.empty(a.shape, dtype=a.dtype)
        wide = a.astype("float64")
        for t in range(a.shape[-1]):
            state += coefficient * (wide[..., t] - state)
            out[..., t] = state
        return out

    def wrong(xp, a, initial, coefficient=0.25):
        check(a, initial, coefficient)
        return filtered(xp, a, initial.astype("float64", copy=False), coefficient)

    def right(xp, a, initial, coefficient=0.25):
        check(a, initial, coefficient)
        return filtered(xp, a, initial.astype("float64", copy=True), coefficient)

    def reference(a, initial, coefficient=0.25):
        check(a, initial, coefficient)
        columns, state = [], np.array(initial, dtype="float64")
        for column in np.moveaxis(a, -1, 0):
            state = state + coefficient * (column - state)
            columns.append(state)
        return np.stack(columns, axis=-1) if columns else np.empty(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="one_pole",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((4, 20)), make(4)),
                Sample((make((2, 3, 7)), make((2, 3))), {"coefficient": 1.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 3)), make(2)), {"coefficient": 0.0}), ValueError, "coefficient is 0.0"),
                ErrorInput((make((2, 3)), make(3)), ValueError, "initial has shape"),
            ],
        )

    return wrong, right, declare


@pair(
    "sine_degrees",
    "an empty array fails in the test for the fast path",
    "range checks by max() before an elementwise kernel: 'zero-size array to reduction operation maximum'",
    "an empty array: ValueError where an empty array is right",
)
def sine_degrees():
    """The sine of angles in degrees, exact at multiples of 90."""

    def sine(xp, wide):
        turned = xp.where(wide > 270, wide - 360, xp.where(wide < -270, wide + 360, wide))
        folded = xp.where(turned > 90, 180 - turned, xp.where(turned < -90, -180 - turned, turned))
        return xp.sin(xp.deg2rad(folded))

    def wrong(xp, a):
        wide = a.astype("float64")
        if not float(xp.abs(wide).max()) < 360:
            wide = xp.fmod(wide, 360.0)
        return sine(xp, wide).astype(a.dtype)

    def right(xp, a):
        return sine(xp, xp.fmod(a.astype("float64"), 360.0)).astype(a.dtype)

    def reference(a):
        def one(angle):
            if not math.isfinite(angle):
                return math.nan
            rest = math.remainder(angle, 360.0)
            if abs(rest) > 90:
                rest = math.copysign(180.0, rest) - rest
            elif rest == 0:
                rest = math.copysign(0.0, angle)
            return math.sin(rest / 180 * math.pi)

        return np.array([one(angle) for angle in np.asarray(a).reshape(-1).tolist()]).reshape(np.shape(a))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sine_degrees",
            dtypes=("float32", "float64"),
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "relative_difference",
    "the result has the larger input's shape, not the common one",
    "elementwise launchers that take the shape of the output from the input with more elements",
    "shapes (4, 1) and (1, 5): an error where (4, 5) is right",
)
def relative_difference():
    """(a - b) / max(|a|, |b|), and 0 where both are 0."""

    def difference(xp, a, b):
        a, b = a.astype("float64"), b.astype("float64")
        largest = xp.maximum(xp.abs(a), xp.abs(b))
        return xp.where(largest == 0, 0.0, (a - b) / xp.where(largest == 0, 1.0, largest))

    def wrong(xp, a, b):
        larger = a if a.size >= b.size else b
        out = xp.empty(larger.shape, dtype=xp.result_type(a.dtype, b.dtype))
        out[...] = difference(xp, a, b)
        return out

    def right(xp, a, b):
        out = xp.empty(np.broadcast_shapes(a.shape, b.shape), dtype=xp.result_type(a.dtype, b.dtype))
        out[...] = difference(xp, a, b)
        return out

    def reference(a, b):
        a, b = np.broadcast_arrays(a, b)
        out = np.zeros(a.shape)
        largest = np.maximum(np.abs(a), np.abs(b))
        with np.errstate(all="ignore"):
            np.divide(a - b, largest, out=out, where=largest != 0)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="relative_difference",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40), make(40)),
                (make((3, 7)), make((3, 7))),
                Sample((make((4, 5)), make(5)), kind="broadcast"),
                Sample((make((4, 1)), make((1, 5))), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "parallel_resistance",
    "product over sum is NaN for an open circuit and for two shorts",
    "the textbook formula a * b / (a + b), which simulators meet with inf and with 0",
    "inf and 5: nan where 5 is right",
)
def parallel_resistance():
    """The resistance of two resistors in parallel; inf is an open circuit, 0 a short."""

    def wrong(xp, a, b):
        wide, other = a.astype("float64"), b.astype("float64")
        return (wide * other / (wide + other)).astype(a.dtype)

    def right(xp, a, b):
        wide, other = a.astype("float64"), b.astype("float64")
        low, high = xp.minimum(wide, other), xp.maximum(wide, other)
        open_circuit = xp.isinf(low) & (low > 0)
        low = xp.where(open_circuit, 1.0, low)
        value = low / (1 + low / xp.where(high == 0, 1.0, high))
        return xp.where(open_circuit, math.inf, value).astype(a.dtype)

    def reference(a, b):
        def one(p, q):
            if math.isnan(p) or math.isnan(q):
                return math.nan
            low, high = min(p, q), max(p, q)
            if low == math.inf:
                return math.inf
            with np.errstate(all="ignore"):
                share = np.float64(low) / np.float64(high if high != 0 else 1.0)
                return np.float64(low) / (1 + share)

        a, b = np.broadcast_arrays(a, b)
        return np.array([one(p, q) for p, q in zip(a.flat, b.flat, strict=True)], dtype="float64").reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="parallel_resistance",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40, low=0, high=1000), make(40, low=0, high=1000)),
                (make((3, 7), low=1, high=10), make((3, 7), low=0, high=1e6)),
                Sample(
                    (make.of([0.0, 0.0, math.inf, math.inf, 2.0]), make.of([0.0, 4.0, 5.0, math.inf, 2.0])),
                    kind="extremal",
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "pairs_within_clusters",
    "the product is formed in int32 and widened too late",
    "pair counts of clustering scores: sklearn's pair_confusion_matrix and others overflowed for large clusters",
    "a cluster of 100000: 704982704 pairs where 4999950000 is right",
)
def pairs_within_clusters():
    """The number of pairs inside clusters of the given sizes, added up along the last axis, in int64."""

    def wrong(xp, sizes):
        return (sizes * (sizes - 1) // 2).sum(axis=-1, dtype="int64")

    def right(xp, sizes):
        wide = sizes.astype("int64")
        return (wide * (wide - 1) // 2).sum(axis=-1)

    def reference(sizes):
        out = np.zeros(sizes.shape[:-1], dtype="int64")
        for i in np.ndindex(out.shape):
            out[i] = sum(math.comb(n, 2) if n >= 0 else n * (n - 1) // 2 for n in sizes[i].tolist())
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pairs_within_clusters",
            dtypes=("int32", "int64"),
            result_dtype=lambda sizes: "int64",
            samples=lambda make: [
                make(30, low=0, high=50),
                make((4, 12), low=0, high=200_000),
                Sample((make((3, 0), low=0, high=9),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "blocked_cummin",
    "the carry is that of the previous block alone",
    "scans by blocks: a block passes on its own total where its total together with all before is needed",
    "the least entry in the first of three blocks: the third block does not know it",
)
def blocked_cummin():
    """The least entry so far of each row, found in blocks of 32."""

    width = 32

    def scanned(xp, block):
        step = 1
        while step < block.shape[-1]:
            block = xp.concatenate([block[..., :step], xp.minimum(block[..., step:], block[..., :-step])], axis=-1)
            step *= 2
        return block

    def wrong(xp, a):
        pieces, carry = [a[..., :0]], None
        for start in range(0, a.shape[-1], width):
            block = scanned(xp, a[..., start : start + width])
            pieces.append(block if carry is None else xp.minimum(block, carry))
            carry = block[..., -1:]
        return xp.concatenate(pieces, axis=-1)

    def right(xp, a):
        pieces, carry = [a[..., :0]], None
        for start in range(0, a.shape[-1], width):
            block = scanned(xp, a[..., start : start + width])
            pieces.append(block if carry is None else xp.minimum(block, carry))
            carry = pieces[-1][..., -1:]
        return xp.concatenate(pieces, axis=-1)

    def reference(a):
        out = np.array(a)
        for j in range(1, a.shape[-1]):
            out[..., j] = np.where(a[..., j] < out[..., j - 1], a[..., j], out[..., j - 1])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="blocked_cummin",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(20, low=-1000, high=1000),
                make((3, 64), low=-1000, high=1000),
                make((2, 150), low=-1000, high=1000),
                Sample((make((4, 0), low=0, high=9),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare
