"""Slices, flat blocks, orders, searches, groups, text, hashes, sparse rows, forests, sets, windows, masks: faults with
their twins."""

import math
import struct
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
    "slice_by_bounds",
    "a backward slice that ends before the first element leaves that element out",
    "dask, h5py and array-API shims: negative steps, where a stop below -n was clamped to 0 instead of to one before 0",
    "stop -10 and step -1 on 9 elements or fewer: the last element taken, number 0, is missing",
)
def slice_by_bounds():
    """a[..., start:stop:step] by Python's rules, with indices that are computed, as a kernel needs them."""

    def indices(length, start, stop, step, clamp):
        if step == 0:
            raise ValueError("step is 0; give another one")
        first = (length - 1 if step < 0 else 0) if start is None else clamp(start, length, step)
        last = (-1 if step < 0 else length) if stop is None else clamp(stop, length, step)
        return first, max(0, -((first - last) // step))

    def take(xp, a, start, stop, step, clamp):
        first, count = indices(a.shape[-1], start, stop, step, clamp)
        return a[..., first + step * xp.arange(count)]

    def wrong(xp, a, start=None, stop=None, step=1):
        def clamp(bound, length, step):
            bound = bound + length if bound < 0 else bound
            return min(max(bound, 0), length - 1 if step < 0 else length)

        return take(xp, a, start, stop, step, clamp)

    def right(xp, a, start=None, stop=None, step=1):
        def clamp(bound, length, step):
            bound = bound + length if bound < 0 else bound
            return min(max(bound, -1), length - 1) if step < 0 else min(max(bound, 0), length)

        return take(xp, a, start, stop, step, clamp)

    def reference(a, start=None, stop=None, step=1):
        return a[..., start:stop:step]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="slice_by_bounds",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                Sample((make((3, 12)),), {"start": -2, "stop": -9, "step": -2}),
                Sample((make(10),), {"start": 1, "stop": 9, "step": 3}),
                Sample((make((2, 15)),), {"step": -1}),
                Sample((make(13),), {"stop": -10, "step": -1}),
                Sample((make((2, 2, 14)),), {"start": -30, "stop": 6}),
                make((4, 5)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"step": 0}), ValueError, "step")],
        )

    return wrong, right, declare


@pair(
    "flat_blocks",
    "the elements are taken in the order of memory",
    "block-wise quantizers and flat gradient buckets that read an array that is not C-contiguous through its pointer",
    "a transposed (Fortran-ordered) matrix: its elements come out column by column",
)
def flat_blocks():
    """All elements in row-major order, in blocks of one length; the last block is filled up."""

    def cut(xp, flat, block, fill):
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")
        count = -(-flat.size // block)
        out = xp.full(count * block, fill, dtype=flat.dtype)
        out[: flat.size] = flat
        return out.reshape(count, block)

    def wrong(xp, a, block=16, fill=0):
        return cut(xp, a.ravel(order="A"), block, fill)

    def right(xp, a, block=16, fill=0):
        return cut(xp, a.ravel(order="C"), block, fill)

    def reference(a, block=16, fill=0):
        if block < 1:
            raise ValueError("block")
        numbers = [a[i] for i in np.ndindex(a.shape)]
        numbers += [fill] * (-len(numbers) % block)
        return np.array(numbers, dtype=a.dtype).reshape(-1, block)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="flat_blocks",
            dtypes=("float16", "float32", "int8"),
            samples=lambda make: [
                make(50),
                make((7, 9)),
                Sample((make((4, 3, 5)),), {"block": 8, "fill": -1}),
                Sample((make((0, 6)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 3)),), {"block": 0}), ValueError, "block is 0")],
        )

    return wrong, right, declare


@pair(
    "order_by_size",
    "the absolute value of the least integer is negative",
    "sorting by abs(): the least signed integer has no positive counterpart, so abs returns it unchanged",
    "int8 [5, -128, 3]: -128, the largest in size, comes first",
)
def order_by_size():
    """The stable order of the numbers of each row by their absolute value."""

    def wrong(xp, a):
        return xp.argsort(xp.abs(a), axis=-1, kind="stable")

    def right(xp, a):
        sizes = xp.abs(a)
        if a.dtype.kind == "i":
            sizes = sizes.astype(f"uint{8 * a.dtype.itemsize}")
        return xp.argsort(sizes, axis=-1, kind="stable")

    def reference(a):
        return np.argsort(np.abs(a.astype("int64") if a.dtype.kind == "i" else a), axis=-1, kind="stable")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="order_by_size",
            dtypes=("int8", "int16", "int32", "float32"),
            samples=lambda make: [
                make(30),
                make((4, 25)),
                make((2, 3, 7)),
                make((1, 1)),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "levels_below",
    "the search makes one round too few if the number of levels is a power of two",
    "branchless binary searches in array code (as jax's searchsorted): n levels have n + 1 answers, not n",
    "8 levels and a value between the least and the second: 0 instead of 1",
)
def levels_below():
    """How many of the levels, in any order, are less than each value; NaN counts as larger than all else."""

    def less(xp, a, b):
        if a.dtype.kind != "f":
            return a < b
        return (a < b) | (xp.isnan(b) & ~xp.isnan(a))

    def search(xp, values, levels, rounds):
        levels = xp.sort(levels)
        low = xp.zeros(values.shape, dtype="int64")
        high = xp.full(values.shape, levels.size, dtype="int64")
        for _ in range(rounds):
            middle = (low + high) // 2
            below = less(xp, levels[xp.minimum(middle, levels.size - 1)], values)
            is_open = low < high
            low = xp.where(is_open & below, middle + 1, low)
            high = xp.where(is_open & ~below, middle, high)
        return low

    def check(levels):
        if levels.ndim != 1:
            raise ValueError(f"levels have {levels.ndim} axes; give 1")

    def wrong(xp, values, levels):
        check(levels)
        return search(xp, values, levels, math.ceil(math.log2(levels.size)) if levels.size else 0)

    def right(xp, values, levels):
        check(levels)
        return search(xp, values, levels, levels.size.bit_length())

    def reference(values, levels):
        if levels.ndim != 1:
            raise ValueError("levels")
        return np.searchsorted(np.sort(levels), values, side="left")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="levels_below",
            dtypes=("float32", "float64", "int32"),
            samples=lambda make: [
                (make(40), make(11)),
                (make((6, 7)), make(25)),
                (make((2, 30), low=-100, high=100), make(100, low=-100, high=100)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(4), make((2, 3))), ValueError, "levels have 2 axes")],
        )

    return wrong, right, declare


@pair(
    "distinct_in_groups",
    "a run of equal values goes on across the border of two groups",
    "pandas and cuDF: nunique of a group-by from sorted rows, where only a change of the value started a new run",
    "values [5, 5] in groups [0, 1]: group 1 has 0 distinct values instead of 1",
)
def distinct_in_groups():
    """The number of distinct values in each of `count` groups."""

    def sorted_rows(xp, values, groups, count):
        if values.shape != groups.shape:
            raise ValueError(f"{values.shape} values and {groups.shape} groups; give as many")
        values, groups = values.ravel(), groups.ravel()
        if groups.size and not 0 <= int(groups.min()) <= int(groups.max()) < count:
            raise ValueError(f"a group is not among {count}")
        order = xp.argsort(values, kind="stable")
        order = order[xp.argsort(groups[order], kind="stable")]
        return values[order], groups[order]

    def wrong(xp, values, groups, count=4):
        values, groups = sorted_rows(xp, values, groups, count)
        starts = xp.ones(values.shape, dtype="bool")
        starts[1:] = values[1:] != values[:-1]
        return xp.bincount(groups[starts], minlength=count)

    def right(xp, values, groups, count=4):
        values, groups = sorted_rows(xp, values, groups, count)
        starts = xp.ones(values.shape, dtype="bool")
        starts[1:] = (values[1:] != values[:-1]) | (groups[1:] != groups[:-1])
        return xp.bincount(groups[starts], minlength=count)

    def reference(values, groups, count=4):
        if values.shape != groups.shape:
            raise ValueError("shapes")
        seen = [set() for _ in range(count)]
        for value, group in zip(values.ravel().tolist(), groups.ravel().tolist(), strict=True):
            if not 0 <= group < count:
                raise ValueError("group")
            seen[group].add(value)
        return np.array([len(values) for values in seen], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="distinct_in_groups",
            dtypes=("int16", "int32", "int64"),
            samples=lambda make: [
                (make(60), make(60, low=0, high=3, dtype="int64")),
                (make((5, 8), low=-1000, high=1000), make((5, 8), low=0, high=3, dtype="int64")),
                Sample(
                    (make(45, low=0, high=20), make(45, low=0, high=10, dtype="int64")),
                    {"count": 11},
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(5), make(4, low=0, high=3, dtype="int64")), ValueError, "give as many"),
                ErrorInput((make(4), make(4, low=4, high=9, dtype="int64")), ValueError, "not among 4"),
            ],
        )

    return wrong, right, declare


@pair(
    "centre_text",
    "in a field of odd width the odd blank goes to the wrong side",
    "numpy.char.center and its ports, which put the odd fill byte right where str.center puts it left",
    "'ab' in a field of 5 bytes: ' ab  ' instead of '  ab '",
)
def centre_text():
    """Text of given lengths, in rows of bytes, centred in its row as bytes.center does."""

    def place(xp, text, lengths, fill, odd):
        if lengths.shape != text.shape[:-1]:
            raise ValueError(f"{lengths.shape} lengths for {text.shape[:-1]} rows; give as many")
        width = text.shape[-1]
        if width == 0:
            return text.copy()
        lengths = xp.clip(lengths.astype("int64"), 0, width)[..., None]
        blanks = width - lengths
        source = xp.arange(width) - (blanks // 2 + (blanks & odd(width)))
        taken = xp.take_along_axis(text, xp.clip(source, 0, width - 1), axis=-1)
        blank = xp.full((), fill, dtype=text.dtype)
        return xp.where((source >= 0) & (source < lengths), taken, blank)

    def wrong(xp, text, lengths, fill=32):
        return place(xp, text, lengths, fill, lambda width: 0)

    def right(xp, text, lengths, fill=32):
        return place(xp, text, lengths, fill, lambda width: width & 1)

    def reference(text, lengths, fill=32):
        if lengths.shape != text.shape[:-1]:
            raise ValueError("lengths")
        out = np.empty(text.shape, dtype="uint8")
        for i in np.ndindex(lengths.shape):
            row = bytes(text[i].tolist())[: max(0, int(lengths[i]))]
            out[i] = np.frombuffer(row.center(text.shape[-1], bytes([fill])), dtype="uint8")
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="centre_text",
            dtypes=("uint8",),
            samples=lambda make: [
                (make((6, 12), low=97, high=122), make(6, low=0, high=12, dtype="int64")),
                (make((1, 40), low=32, high=126), make(1, low=0, high=40, dtype="int64")),
                Sample(
                    (make((2, 3, 8), low=48, high=57), make((2, 3), low=0, high=8, dtype="int64")),
                    {"fill": 46},
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    (make((3, 8), low=97, high=122), make(2, low=0, high=8, dtype="int64")),
                    ValueError,
                    "give as many",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "key_hash",
    "the two zeros, which are equal, have different hashes",
    "hash joins and group-bys of cuDF, Spark and pandas: -0.0 was hashed by its bits, so equal keys did not meet",
    "-0.0: its hash is not that of 0.0",
)
def key_hash():
    """A hash of floating-point keys (the finalizer of MurmurHash3 on their float32 bits): equal keys, equal hashes.

    All NaN count as one key.
    """

    def mix(xp, keys, seed):
        bits = xp.where(xp.isnan(keys), xp.full((), 0x7FC00000, dtype="uint32"), keys.view("uint32"))
        bits = bits.astype("uint64") ^ xp.full((), seed, dtype="uint64")
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            bits = bits ^ (bits >> xp.full((), shift, dtype="uint64"))
            bits = (bits * xp.full((), factor, dtype="uint64")) & xp.full((), 0xFFFFFFFF, dtype="uint64")
        return (bits ^ (bits >> xp.full((), 16, dtype="uint64"))).astype("uint32")

    def wrong(xp, keys, seed=0):
        return mix(xp, keys.astype("float32"), seed)

    def right(xp, keys, seed=0):
        keys = keys.astype("float32")
        return mix(xp, xp.where(keys == 0, xp.zeros((), dtype="float32"), keys), seed)

    def reference(keys, seed=0):
        out = np.empty(keys.shape, dtype="uint32")
        for i in np.ndindex(keys.shape):
            key = float(keys[i])
            if math.isnan(key):
                bits = 0x7FC00000
            else:
                bits = struct.unpack("<I", struct.pack("<f", key or 0.0))[0]
            bits ^= seed
            bits = ((bits ^ bits >> 16) * 0x85EBCA6B) % 2**32
            bits = ((bits ^ bits >> 13) * 0xC2B2AE35) % 2**32
            out[i] = bits ^ bits >> 16
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="key_hash",
            dtypes=("float16", "float32"),
            result_dtype="uint32",
            samples=lambda make: [
                make(40),
                make((3, 17)),
                Sample((make((5, 6)),), {"seed": 0x9747B28C}),
                Sample((make(0),), kind="empty"),
                Sample((make(()),), kind="scalar"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "coo_row_peaks",
    "a row counts as full by its stored entries, of which two may be of one cell",
    "scipy.sparse and cupyx max over an axis: nnz compared with the width before duplicates were summed",
    "width 2, a row with entries -1 and -2 of column 0 alone: -3 instead of the 0 of column 1",
)
def coo_row_peaks():
    """The largest number of each row of a matrix in coordinates; entries of one cell add up, others are zero."""

    def check(rows, columns, data, shape):
        if not rows.shape == columns.shape == data.shape or data.ndim != 1:
            raise ValueError("rows, columns and data must be of one length")
        for numbers, extent in zip((rows, columns), shape, strict=True):
            if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < extent:
                raise ValueError(f"an entry is outside of {shape}")

    def stored(xp, rows, columns, data, shape):
        cells = rows * shape[1] + columns
        sums = xp.bincount(cells, weights=data.astype("float64"), minlength=shape[0] * shape[1])
        filled = xp.zeros(shape[0] * shape[1], dtype="bool")
        filled[cells] = True
        return sums.reshape(shape), filled.reshape(shape)

    def peaks(xp, sums, filled, counts, dtype):
        best = xp.where(filled, sums, -math.inf).max(axis=1)
        return xp.where(counts < sums.shape[1], xp.maximum(best, 0.0), best).astype(dtype)

    def wrong(xp, rows, columns, data, shape=(5, 9)):
        check(rows, columns, data, shape)
        sums, filled = stored(xp, rows, columns, data, shape)
        return peaks(xp, sums, filled, xp.bincount(rows, minlength=shape[0]), data.dtype)

    def right(xp, rows, columns, data, shape=(5, 9)):
        check(rows, columns, data, shape)
        sums, filled = stored(xp, rows, columns, data, shape)
        return peaks(xp, sums, filled, filled.sum(axis=1), data.dtype)

    def reference(rows, columns, data, shape=(5, 9)):
        check(rows, columns, data, shape)
        dense = np.zeros(shape)
        np.add.at(dense, (rows, columns), data)
        return dense.max(axis=1)

    def entries(make, count, shape, **limits):
        rows = make(count, low=0, high=shape[0] - 1, dtype="int64")
        return rows, make(count, low=0, high=shape[1] - 1, dtype="int64"), make(count, **limits)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="coo_row_peaks",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                entries(make, 24, (5, 9)),
                entries(make, 60, (5, 9), low=-50, high=50),
                Sample(entries(make, 8, (4, 6), low=-9, high=0), {"shape": (4, 6)}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    (make(6, low=5, high=8, dtype="int64"), make(6, low=0, high=8, dtype="int64"), make(6)),
                    ValueError,
                    "outside",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "forest_roots",
    "pointers are doubled too few times for a long chain",
    "connected components and list ranking on GPUs: floor(log2(n)) rounds, which branching graphs never exhaust",
    "12 nodes in one chain, each one behind the other: the last nodes get node 1 to 3 as root instead of 0",
)
def forest_roots():
    """The root of each node of a forest, where `back` says how far before a node its parent is; 0 marks a root.

    A parent before the first node is the first node.
    """

    def jump(xp, back, rounds):
        places = xp.arange(back.size)
        roots = xp.maximum(places - xp.clip(back.astype("int64"), 0, back.size), 0)
        for _ in range(rounds):
            roots = roots[roots]
        return roots

    def check(back):
        if back.ndim != 1:
            raise ValueError(f"back has {back.ndim} axes; give 1")

    def wrong(xp, back):
        check(back)
        return jump(xp, back, int(math.log2(max(back.size, 1))))

    def right(xp, back):
        check(back)
        return jump(xp, back, back.size.bit_length())

    def reference(back):
        if back.ndim != 1:
            raise ValueError("axes")
        roots: list[int] = []
        for place, distance in enumerate(back.tolist()):
            roots.append(place if distance <= 0 or place == 0 else roots[max(place - distance, 0)])
        return np.array(roots, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="forest_roots",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(50, low=0, high=6),
                make(21, low=0, high=1),
                make(300, low=0, high=40),
                Sample((make(0, low=0, high=1),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((2, 3), low=0, high=1), ValueError, "back has 2 axes")],
        )

    return wrong, right, declare


@pair(
    "distinct_in_rows",
    "each NaN counts as a value of its own",
    "numpy.unique before equal_nan, and what was built upon it: neighbours in sorted order compared with !=",
    "[1, nan, nan]: 3 distinct values instead of 2",
)
def distinct_in_rows():
    """The number of distinct values in each row; all NaN are one value, and so are the two zeros."""

    def wrong(xp, a):
        if a.shape[-1] == 0:
            return xp.zeros(a.shape[:-1], dtype="int64")
        ordered = xp.sort(a, axis=-1)
        return 1 + (ordered[..., 1:] != ordered[..., :-1]).sum(axis=-1)

    def right(xp, a):
        if a.shape[-1] == 0:
            return xp.zeros(a.shape[:-1], dtype="int64")
        ordered = xp.sort(a, axis=-1)
        changes = ordered[..., 1:] != ordered[..., :-1]
        if a.dtype.kind == "f":
            changes = changes & ~xp.isnan(ordered[..., :-1])  # NaN is sorted to the end
        return 1 + changes.sum(axis=-1)

    def reference(a):
        if a.ndim == 0:
            raise IndexError("a has no axis")
        out = np.zeros(a.shape[:-1], dtype="int64")
        for i in np.ndindex(out.shape):
            missing = np.isnan(a[i])
            out[i] = len(set(a[i][~missing].tolist())) + bool(missing.any())
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="distinct_in_rows",
            dtypes=("float16", "float32", "int32"),
            samples=lambda make: [
                make((4, 20)),
                make((2, 3, 15), low=0, high=10),
                make(30),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rolling_product",
    "a zero stays in the running product for ever",
    "rolling products in pandas recipes and feature libraries: quotient of cumulative products, guarded against 0 / 0",
    "[2, 0, 3, 4, 5] with width 2: the last two windows are 0 instead of 12 and 20",
)
def rolling_product():
    """The product of each window of `width` numbers in a row."""

    def check(width):
        if width < 1:
            raise ValueError(f"width is {width}; give 1 or more")

    def wrong(xp, a, width=3):
        check(width)
        ones = xp.ones((*a.shape[:-1], 1), dtype="float64")
        if a.shape[-1] < width:
            return a[..., :0].copy()
        running = xp.cumprod(xp.concatenate([ones, a.astype("float64")], axis=-1), axis=-1)
        before = running[..., :-width]
        return (running[..., width:] / xp.where(before == 0, 1.0, before)).astype(a.dtype)

    def right(xp, a, width=3):
        check(width)
        if a.shape[-1] < width:
            return a[..., :0].copy()
        wide, count = a.astype("float64"), a.shape[-1] - width + 1
        product = wide[..., :count]
        for start in range(1, width):
            product = product * wide[..., start : start + count]
        return product.astype(a.dtype)

    def reference(a, width=3):
        if width < 1:
            raise ValueError("width")
        count = max(a.shape[-1] - width + 1, 0)
        out = np.ones((*a.shape[:-1], count))
        for place in range(count):
            for offset in range(width):
                out[..., place] *= a[..., place + offset]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rolling_product",
            dtypes=("float32",),
            samples=lambda make: [
                make(25),
                Sample((make((3, 20)),), {"width": 5}),
                Sample((make((2, 2, 9)),), {"width": 1}),
                Sample((make((4, 16), low=0, high=2),), {"width": 4}),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(5),), {"width": 0}), ValueError, "width is 0")],
        )

    return wrong, right, declare


@pair(
    "last_valid",
    "a row without a valid entry gives the entry at its end",
    "last_valid_index and group-by last: argmax of a mask that is false everywhere is 0, which passes for a place",
    "a row whose mask is all false: its last number instead of the fill value",
)
def last_valid():
    """The last valid number of each row, or `fill` if there is none."""

    def place_of_last(xp, values, valid):
        if values.shape != valid.shape:
            raise ValueError(f"a mask of {valid.shape} for values of {values.shape}; give one for each")
        if values.ndim == 0:
            raise ValueError("values have no axis; give 1 or more")
        return values.shape[-1] - 1 - xp.argmax(valid[..., ::-1], axis=-1)

    def pick(xp, values, place, found, fill):
        taken = xp.take_along_axis(values, place[..., None], axis=-1)[..., 0]
        return xp.where(found, taken, xp.full((), fill, dtype=values.dtype))

    def wrong(xp, values, valid, fill=0):
        if values.size == 0 and values.shape == valid.shape:
            return xp.full(values.shape[:-1], fill, dtype=values.dtype)
        place = place_of_last(xp, values, valid)
        return pick(xp, values, place, place >= 0, fill)

    def right(xp, values, valid, fill=0):
        if values.size == 0 and values.shape == valid.shape:
            return xp.full(values.shape[:-1], fill, dtype=values.dtype)
        place = place_of_last(xp, values, valid)
        return pick(xp, values, place, valid.any(axis=-1), fill)

    def reference(values, valid, fill=0):
        if values.shape != valid.shape:
            raise ValueError("mask")
        if values.ndim == 0:
            raise ValueError("axes")
        out = np.full(values.shape[:-1], fill, dtype=values.dtype)
        for i in np.ndindex(out.shape):
            kept = values[i][valid[i]]
            if len(kept):
                out[i] = kept[-1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="last_valid",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                (make((5, 14)), make((5, 14), dtype="bool")),
                Sample((make((2, 3, 10)), make((2, 3, 10), dtype="bool")), {"fill": -1}),
                (make(33), make(33, dtype="bool")),
                Sample((make((3, 0)), make((3, 0), dtype="bool")), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((3, 4)), make((3, 5), dtype="bool")), ValueError, "give one for each")
            ],
        )

    return wrong, right, declare
