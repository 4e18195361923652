"""Tiles, workspaces, caches, autotuning, index widths, rounding, aliasing, fast paths: faults with their twins."""

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
    "blocked_argmin",
    "the second pass loses a NaN of a later block",
    "CuPy and PyTorch argmin/argmax on CUDA: NaN was honoured within a block, but partial results were merged with <",
    "300 numbers with a NaN at 200: the index of the smallest number, where numpy.argmin gives 200",
)
def blocked_argmin():
    """numpy.argmin along the last axis in two passes: blocks of 128, then the blocks' results; the first NaN wins."""

    def merge(xp, a, better):
        if a.ndim == 0:
            a = a.reshape(1)
        if a.shape[-1] == 0:
            raise ValueError("argmin of an empty axis")
        index = a[..., :128].argmin(axis=-1)
        value = a[..., :128].min(axis=-1)
        for start in range(128, a.shape[-1], 128):
            block = a[..., start : start + 128]
            smallest = block.min(axis=-1)
            wins = better(smallest, value)
            index = xp.where(wins, block.argmin(axis=-1) + start, index)
            value = xp.where(wins, smallest, value)
        return index

    def wrong(xp, a):
        return merge(xp, a, lambda new, old: new < old)

    def right(xp, a):
        return merge(xp, a, lambda new, old: (new < old) | ((new != new) & (old == old)))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="blocked_argmin",
            dtypes=("float32", "float64", "int32"),
            samples=lambda make: [make(50), make((4, 300)), make((2, 3, 128)), make(1000)],
            reference=lambda a: np.argmin(a, axis=-1),
            result_dtype=lambda a: "int64",
        )

    return wrong, right, declare


@pair(
    "gather_rows",
    "16-bit offsets, because row and column each fit",
    "PyTorch canUse32BitIndexMath and CuPy's 32-bit indexer: the width was chosen by each dimension, not by their product",
    "a table of (1000, 48): row 700 starts at 33600, which wraps to a negative offset, and another row comes back",
)
def gather_rows():
    """table[ids] for a table of two dimensions, by offsets into the flat table."""

    def gather(xp, table, ids, index):
        rows, width = table.shape
        ids = xp.where(ids < 0, ids + rows, ids).astype(index)
        offsets = ids[..., None] * width + xp.arange(width, dtype=index)
        return table.reshape(-1)[offsets]

    def wrong(xp, table, ids):
        small = max(table.shape) <= 32767
        return gather(xp, table, ids, "int16" if small else "int64")

    def right(xp, table, ids):
        return gather(xp, table, ids, "int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gather_rows",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((40, 16)), make(25, dtype="int64", low=0, high=39)),
                (make((300, 64)), make((4, 9), dtype="int64", low=0, high=299)),
                (make((7, 5)), make(12, dtype="int64", low=-7, high=6)),
                Sample((make((6, 8)), make(0, dtype="int64", low=0, high=5)), kind="empty"),
            ],
            reference=lambda table, ids: table[ids],
            bench=lambda make, sizes: [
                (
                    make((sizes.length, sizes.width)),
                    make((sizes.batch, sizes.length), dtype="int64", low=0, high=sizes.length - 1),
                )
            ],
        )

    return wrong, right, declare


@pair(
    "dct_rows",
    "the cached basis has the dtype of the first call",
    "plan and window caches as in CuPy's fft plans and librosa on GPU: keyed by the length, and not by the dtype",
    "a float64 row of 64 after a float32 row of 64: errors of 1e-7 where float64 has 1e-15",
)
def dct_rows():
    """The orthonormal DCT-II along the last axis, as a product with a basis."""

    def make_basis(xp, n):
        k = xp.arange(n, dtype="float64")
        basis = xp.cos(math.pi * (2 * k[:, None] + 1) * k / (2 * max(n, 1)))
        return basis * xp.where(k == 0, math.sqrt(1 / max(n, 1)), math.sqrt(2 / max(n, 1)))

    bases = {}

    def wrong(xp, a):
        key = (xp, a.shape[-1])
        if key not in bases:
            bases[key] = make_basis(xp, a.shape[-1]).astype(a.dtype)
        return (a @ bases[key]).astype(a.dtype)

    def right(xp, a):
        return (a.astype("float64") @ make_basis(xp, a.shape[-1])).astype(a.dtype)

    def reference(a):
        n = a.shape[-1]
        i = np.arange(n)
        out = np.empty(a.shape)
        for k in range(n):
            factor = math.sqrt((1 if k == 0 else 2) / n)
            out[..., k] = a @ (np.cos(math.pi * (2 * i + 1) * k / (2 * n)) * factor)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dct_rows",
            dtypes=("float32", "float64"),
            samples=lambda make: [make(8), make((3, 33)), make((2, 5, 64))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "tile_sums",
    "the tail of a kept workspace holds numbers of an earlier call",
    "split-k and two-pass reductions with a kept workspace (PyTorch, cuBLAS wrappers): cleared when allocated, not when used",
    "100 numbers after 1000: the last tile also adds 28 of the earlier numbers",
)
def tile_sums():
    """The sums of consecutive tiles of the flattened array; the last tile may be short."""

    def check(tile):
        if tile < 1:
            raise ValueError(f"tile is {tile}; give 1 or more")

    def add(work, a, tile, count):
        work[: a.size] = a.reshape(-1)
        return work[: count * tile].reshape(count, tile).sum(axis=1).astype(a.dtype)

    workspaces = {}

    def wrong(xp, a, tile=32):
        check(tile)
        count = -(-a.size // tile)
        work = workspaces.get(xp)
        if work is None or work.size < count * tile:
            work = workspaces[xp] = xp.zeros(count * tile, dtype="float64")
        return add(work, a, tile, count)

    def right(xp, a, tile=32):
        check(tile)
        count = -(-a.size // tile)
        return add(xp.zeros(count * tile, dtype="float64"), a, tile, count)

    def reference(a, tile=32):
        flat = a.reshape(-1)
        return np.array([flat[i : i + tile].sum() for i in range(0, flat.size, tile)], dtype="float64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="tile_sums",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(100),
                make((4, 33)),
                make(1024),
                Sample((make((3, 5, 7)),), {"tile": 8}),
                Sample((make((0,)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"tile": 0}), ValueError, "tile is 0")],
        )

    return wrong, right, declare


@pair(
    "bfloat16_round",
    "float64 is rounded twice, by way of float32",
    "ml_dtypes, Eigen and XLA: float64 to bfloat16 went through float32 and rounded to even from a false tie",
    "1 + 2**-8 + 2**-40 in float64: 1.0, where the nearest is 1.0078125",
)
def bfloat16_round():
    """Each number rounded to the nearest bfloat16, ties to even, in the dtype of the input; too large is infinite."""

    def nearest(xp, wide):
        _, exponent = xp.frexp(wide)
        unit = xp.ldexp(xp.ones_like(wide), xp.maximum(exponent, -125) - 8)
        rounded = xp.rint(wide / unit) * unit
        return xp.where(xp.abs(rounded) >= 2.0**128, xp.copysign(math.inf, rounded), rounded)

    def wrong(xp, a):
        return nearest(xp, a.astype("float32").astype("float64")).astype(a.dtype)

    def right(xp, a):
        return nearest(xp, a.astype("float64")).astype(a.dtype)

    def one(x):
        if not math.isfinite(x) or x == 0:
            return x
        unit = Fraction(2) ** (max(math.frexp(x)[1], -125) - 8)
        rounded = round(Fraction(x) / unit) * unit
        return math.copysign(math.inf if abs(rounded) >= 2**128 else float(rounded), x)

    def reference(a):
        a = np.asarray(a)
        return np.array([one(float(x)) for x in a.reshape(-1)], dtype="float64").reshape(a.shape)

    def declare(fn):
        return OpSpec(fn=fn, name="bfloat16_round", dtypes=("float32", "float64"), reference=reference)

    return wrong, right, declare


@pair(
    "rounding_shift",
    "half is rounded up instead of away from zero",
    "gemmlowp's RoundingDivideByPOT in GPU ports of requantisation: the correction of the threshold for negatives left out",
    "-2 shifted by 2: 0, where -1 is right",
)
def rounding_shift():
    """a / 2**bits for integers, rounded to nearest, halves away from zero."""

    def check(a, bits):
        if not 0 <= bits < 8 * a.dtype.itemsize:
            raise ValueError(f"bits is {bits}; give 0 to {8 * a.dtype.itemsize - 1}")

    def wrong(xp, a, bits=4):
        check(a, bits)
        mask = (1 << bits) - 1
        return (a >> bits) + ((a & mask) > (mask >> 1)).astype(a.dtype)

    def right(xp, a, bits=4):
        check(a, bits)
        mask = (1 << bits) - 1
        threshold = (a < 0).astype(a.dtype) + (mask >> 1)
        return (a >> bits) + ((a & mask) > threshold).astype(a.dtype)

    def one(x, bits):
        quotient, rest = divmod(abs(x), 1 << bits)
        quotient += 2 * rest >= 1 << bits
        return -quotient if x < 0 else quotient

    def reference(a, bits=4):
        return np.array([one(int(x), bits) for x in a.reshape(-1)], dtype="int64").reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rounding_shift",
            dtypes=("int16", "int32", "int64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(100, low=-10000, high=10000),
                Sample((make((4, 33), low=-10000, high=10000),), {"bits": 7}),
                Sample((make((3, 5)),), {"bits": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"bits": -1}), ValueError, "bits is -1")],
        )

    return wrong, right, declare


@pair(
    "abs_times",
    "the flat fast path asks for equal sizes, not equal shapes",
    "PyTorch's pointwise fallback before 0.2: operands of as many elements were taken as flat instead of broadcast",
    "shapes (4, 1) and (1, 4): a result of (4, 1), where broadcasting gives (4, 4)",
)
def abs_times():
    """abs(a) * b with broadcasting."""

    def wrong(xp, a, b):
        if hasattr(a, "shape") and hasattr(b, "shape") and a.size == b.size:
            return (abs(a.reshape(-1)) * b.reshape(-1)).reshape(a.shape)
        return abs(a) * b

    def right(xp, a, b):
        return abs(a) * b

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="abs_times",
            dtypes=("float16", "float32", "float64"),
            reference=lambda a, b: abs(a) * b,
        )

    return wrong, right, declare


@pair(
    "rotate_pairs",
    "the first half is written before the second has read it",
    "rotary embeddings applied in place (vLLM, flash-attn, xformers ports): out= was the input itself",
    "out=x: the second half is computed from rotated instead of given numbers",
)
def rotate_pairs():
    """Rotary embedding: (first, second) halves of the last axis, rotated by angles given as cos and sin."""

    def split(x):
        if x.shape[-1] % 2:
            raise ValueError(f"the last axis has {x.shape[-1]} entries; give an even number")
        half = x.shape[-1] // 2
        return half, x[..., :half], x[..., half:]

    def wrong(xp, x, cos, sin, out=None):
        half, first, second = split(x)
        if out is None:
            out = xp.empty(x.shape, dtype=x.dtype)
        out[..., :half] = first * cos - second * sin
        out[..., half:] = second * cos + first * sin
        return out

    def right(xp, x, cos, sin, out=None):
        half, first, second = split(x)
        if out is None:
            out = xp.empty(x.shape, dtype=x.dtype)
        turned = first * cos - second * sin, second * cos + first * sin
        out[..., :half], out[..., half:] = turned
        return out

    def reference(x, cos, sin):
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotate_pairs",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((5, 8)), make((5, 4), low=-1, high=1), make((5, 4), low=-1, high=1)),
                (make((2, 3, 16, 64)), make((16, 32), low=-1, high=1), make((16, 32), low=-1, high=1)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(3), make(1), make(1))), ValueError, "even number")],
        )

    return wrong, right, declare


@pair(
    "random_below",
    "the high word of the product misses the carry of the low halves",
    "mulhi emulated by 16-bit halves in Philox and bounded-integer kernels (Triton, WebGPU ports): partial sums truncated first",
    "bits 0x2aaaaaab below 6: 0, where 1 is right",
)
def random_below():
    """Random 32-bit words mapped to integers from 0 to bound - 1: the high word of the 64-bit product."""

    def check(bound):
        if not 1 <= bound <= 1 << 32:
            raise ValueError(f"bound is {bound}; give 1 to 2**32")

    def wrong(xp, bits, bound):
        check(bound)
        wide = bits.astype("uint64")
        high, low = wide >> 16, wide & 0xFFFF
        bound_high, bound_low = bound >> 16, bound & 0xFFFF
        word = high * bound_high + ((high * bound_low) >> 16) + ((low * bound_high) >> 16)
        return word.astype("int64")

    def right(xp, bits, bound):
        check(bound)
        if bound == 1 << 32:
            return bits.astype("int64")
        return ((bits.astype("uint64") * bound) >> 32).astype("int64")

    def reference(bits, bound):
        words = [int(x) * bound >> 32 for x in bits.reshape(-1)]
        return np.array(words, dtype="int64").reshape(bits.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="random_below",
            dtypes=("uint32",),
            result_dtype=lambda bits: "int64",
            samples=lambda make: [
                Sample((make(1000, low=0, high=2**32 - 1),), {"bound": 6}),
                Sample((make((20, 50), low=0, high=2**32 - 1),), {"bound": 1000}),
                Sample((make(64, low=0, high=2**32 - 1),), {"bound": 2**32}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"bound": 0}), ValueError, "bound is 0")],
        )

    return wrong, right, declare


@pair(
    "normalize_rows",
    "rows beyond the largest grid are not written",
    "PyTorch and CuPy kernels with a row per blockIdx.y: the grid was clamped to 65535 with no loop over the rest",
    "70000 rows of 4: the last 4465 are zero",
)
def normalize_rows():
    """Vectors along the last axis divided by their length; a vector of zeros stays."""

    def unit(xp, rows):
        wide = rows.astype("float64")
        length = xp.sqrt((wide * wide).sum(axis=-1, keepdims=True))
        return wide / xp.where(length == 0, 1.0, length)

    def wrong(xp, a):
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        out = xp.zeros(rows.shape, dtype=a.dtype)
        grid = min(rows.shape[0], 65535)
        out[:grid] = unit(xp, rows[:grid]).astype(a.dtype)
        return out.reshape(a.shape)

    def right(xp, a):
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        out = xp.zeros(rows.shape, dtype=a.dtype)
        for start in range(0, rows.shape[0], 65535):
            out[start : start + 65535] = unit(xp, rows[start : start + 65535]).astype(a.dtype)
        return out.reshape(a.shape)

    def reference(a):
        length = np.sqrt((a * a).sum(axis=-1, keepdims=True))
        return a / np.where(length == 0, 1.0, length)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="normalize_rows",
            dtypes=("float16", "float32"),
            samples=lambda make: [make(16), make((6, 33)), make((2, 12, 40, 64))],
            reference=reference,
            bench=lambda make, sizes: [make((sizes.batch, sizes.heads, sizes.length, sizes.width // sizes.heads))],
        )

    return wrong, right, declare


@pair(
    "count_below",
    "the branchless search takes a step too few for a power of two",
    "branchless lower_bound in CUDA searchsorted and bucketize kernels: ceil(log2(n)) steps reach n answers, not n + 1",
    "a value above all 128 entries: 127, where 128 is right",
)
def count_below():
    """How many entries of `population` sort before each value, as numpy.searchsorted gives; NaN sorts last."""

    def search(xp, values, population, steps):
        ordered = xp.sort(population.reshape(-1))
        found = xp.zeros(values.shape, dtype="int64")
        for bit in reversed(range(steps)):
            probe = found + (1 << bit)
            entry = ordered[xp.minimum(probe, ordered.size) - 1]
            before = (entry < values) | ((values != values) & (entry == entry))
            found = xp.where((probe <= ordered.size) & before, probe, found)
        return found

    def wrong(xp, values, population):
        return search(xp, values, population, max(population.size - 1, 0).bit_length())

    def right(xp, values, population):
        return search(xp, values, population, population.size.bit_length())

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="count_below",
            dtypes=("float32", "float64", "int32"),
            result_dtype=lambda *dtypes: "int64",
            samples=lambda make: [
                (make(30), make(200)),
                (make((4, 9)), make((6, 50))),
                Sample((make(7), make(0)), kind="empty"),
                Sample((make(()), make(20)), kind="scalar"),
            ],
            reference=lambda values, population: np.searchsorted(np.sort(population.reshape(-1)), values),
            bench=lambda make, sizes: [(make((sizes.length, sizes.heads)), make(sizes.length))],
        )

    return wrong, right, declare


@pair(
    "segment_sum",
    "the way chosen for the first call of a shape is kept for the others",
    "autotuned segment and scatter sums (JAX indices_are_sorted, Triton autotune keys): keyed by sizes, though it rests on order",
    "a call with sorted ids, then one of equal size with ids in other order: segments of wrong numbers",
)
def segment_sum():
    """Sums of the values of each segment, 0 to segments - 1; slices where the ids are sorted, a mask otherwise."""

    def is_sorted(ids):
        return bool((ids[1:] >= ids[:-1]).all())

    def by_slices(xp, values, ids, segments):
        out = xp.zeros(segments, dtype="float64")
        bounds = [int(i) for i in xp.searchsorted(ids, xp.arange(segments + 1))]
        for segment in range(segments):
            out[segment] = values[bounds[segment] : bounds[segment + 1]].sum(dtype="float64")
        return out.astype(values.dtype)

    def by_mask(xp, values, ids, segments):
        chosen = ids[:, None] == xp.arange(segments)
        return xp.where(chosen, values[:, None].astype("float64"), 0.0).sum(axis=0).astype(values.dtype)

    ways = {}

    def wrong(xp, values, ids, segments):
        key = (values.shape, segments)
        if key not in ways:
            ways[key] = by_slices if is_sorted(ids) else by_mask
        return ways[key](xp, values, ids, segments)

    def right(xp, values, ids, segments):
        return (by_slices if is_sorted(ids) else by_mask)(xp, values, ids, segments)

    def reference(values, ids, segments):
        return np.array([values[ids == segment].sum() for segment in range(segments)], dtype="float64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segment_sum",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                Sample((make(100), make(100, dtype="int64", low=0, high=6)), {"segments": 7}),
                Sample((make(40), make.of(np.repeat(np.arange(10), 4), dtype="int64")), {"segments": 10}),
                Sample((make(0), make(0, dtype="int64", low=0, high=3)), {"segments": 4}, kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare
