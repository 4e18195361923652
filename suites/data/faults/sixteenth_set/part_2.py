"""Tiles and tails, autotuning, workspaces, layouts, fast paths, aliasing, narrow partials: faults with their twins."""

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
    "tiled_row_max",
    "the masked tail of the last tile is filled with 0 before a maximum",
    "Triton: tl.load(pointer, mask=mask) without other=-inf in row-maximum kernels, reported again and again for softmax",
    "a row of 40 numbers that are all negative: the maximum is 0",
)
def tiled_row_max():
    """The maximum of each row, taken tile by tile; NaN is passed on as numpy.max does."""
    tile = 32

    def reduce(xp, a, fill):
        if a.shape[-1] == 0:
            raise ValueError("the maximum of an empty row is undefined")
        missing = -a.shape[-1] % tile
        if missing:
            tail = xp.broadcast_to(fill, (*a.shape[:-1], missing))
            a = xp.concatenate([a, tail], axis=-1)
        tiles = a.reshape((*a.shape[:-1], a.shape[-1] // tile, tile))
        return tiles.max(axis=-1).max(axis=-1)

    def wrong(xp, a):
        a = a.reshape(a.shape or (1,))
        return reduce(xp, a, xp.zeros((1,), dtype=a.dtype))

    def right(xp, a):
        a = a.reshape(a.shape or (1,))
        return reduce(xp, a, a[..., :1])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="tiled_row_max",
            dtypes=("float32", "float64", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(7), make((4, 64)), make((3, 100)), make((2, 3, 33))],
            error_inputs=lambda make: [ErrorInput(Sample((make((3, 0)),)), ValueError, "empty row")],
            reference=lambda a: a.max(axis=-1),
        )

    return wrong, right, declare


@pair(
    "rank_in_edges",
    "whether the edges are sorted is found out at the first call and remembered by shape and dtype",
    "Triton's autotune keys, which hold shapes and dtypes and not what the first data were like; pandas'"
    " is_monotonic flag that outlived the data",
    "sorted edges, then as many unsorted ones: the second call skips the sort",
)
def rank_in_edges():
    """How many edges are at most a, for each a; the edges come in any order, and NaN counts none and is not counted."""

    def count(xp, a, edges):
        found = xp.searchsorted(edges, a.ravel(), side="right").reshape(a.shape)
        return xp.where(xp.isnan(a), 0, found).astype("int64")

    chosen = {}

    def wrong(xp, a, edges):
        key = (edges.shape, edges.dtype.name)
        if key not in chosen:
            chosen[key] = bool((edges[1:] >= edges[:-1]).all())
        return count(xp, a, edges if chosen[key] else xp.sort(edges))

    def right(xp, a, edges):
        return count(xp, a, xp.sort(edges))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rank_in_edges",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(40), make.of([-2.5, -2, -1, -0.5, 0.5, 1, 2, 2.5])),
                (make((5, 6)), make(8)),
                Sample((make(5), make(0)), kind="empty"),
            ],
            reference=lambda a, edges: (edges <= a[..., None]).sum(axis=-1),
        )

    return wrong, right, declare


@pair(
    "rounding_shift",
    "the nudge of half a unit is added in the narrow type and wraps around near its maximum",
    "gemmlowp's RoundingDivideByPOT was written with a remainder and a threshold for this reason; ports to GPU"
    " requantisation kernels add the nudge and shift",
    "32760 in int16 with shift 5: -1024 where 1024 is right",
)
def rounding_shift():
    """a / 2**shift in integers, rounded to the nearest, halves away from zero."""

    def check(a, shift):
        if not 0 <= shift < 8 * a.dtype.itemsize:
            raise ValueError(f"shift is {shift}; give 0 or more, and less than the bits of {a.dtype}")

    def wrong(xp, a, shift=5):
        check(a, shift)
        if shift == 0:
            return a.copy()
        return (a + (1 << (shift - 1)) - (a < 0)) >> shift

    def right(xp, a, shift=5):
        check(a, shift)
        mask = (1 << shift) - 1
        remainder = a & mask
        up = xp.where(a < 0, remainder > (mask >> 1) + 1, remainder > (mask >> 1))
        return (a >> shift) + up

    def reference(a, shift=5):
        wide = a.astype("int64")
        return np.sign(wide) * ((np.abs(wide) + ((1 << shift) >> 1)) >> shift)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rounding_shift",
            dtypes=("int16", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(50),
                Sample((make((4, 9)),), {"shift": 1}),
                Sample((make((4, 9)),), {"shift": 0}),
                Sample((make(()),), {"shift": 2}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(3),), {"shift": -1}), ValueError, "shift is -1")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "radix_argsort",
    "the radix key tells -0.0 from 0.0, and a NaN with its sign set from other NaNs",
    "CUB's DeviceRadixSort: -0.0 was ordered before 0.0 until keys were normalised; NaN with a sign still sorts first",
    "[0.0, -0.0]: the order is [1, 0], and a stable sort gives [0, 1]",
)
def radix_argsort():
    """The stable order of the last axis, by integer keys; zeros are equal, NaN goes last."""

    def order(xp, a):
        kind, low_bits = {4: ("int32", 0x7FFFFFFF), 8: ("int64", 0x7FFFFFFFFFFFFFFF)}[a.dtype.itemsize]
        bits = a.view(kind)
        key = xp.where(bits < 0, bits ^ low_bits, bits)
        return xp.argsort(key, axis=-1, kind="stable")

    def wrong(xp, a):
        return order(xp, a)

    def right(xp, a):
        plain = xp.where(a == 0, xp.zeros_like(a), a)
        return order(xp, xp.where(xp.isnan(a), xp.full_like(a, math.nan), plain))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="radix_argsort",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(65),
                make((4, 17), low=-1000, high=1000),
                make((2, 3, 8)),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=lambda a: np.argsort(a, axis=-1, kind="stable"),
        )

    return wrong, right, declare


@pair(
    "segment_sum",
    "segments are differences of one running sum, so an infinity or NaN spoils every later segment",
    "segment sums by prefix sum in graph libraries (DGL, torch_scatter's gather_csr users) and pandas' rolling sum,"
    " where one inf turned all later windows into NaN",
    "inf in segment 0: every later segment is NaN; 1e20 there: later sums lose their digits",
)
def segment_sum():
    """The sum of the numbers that carry each segment's id; a segment without numbers is 0."""

    def wrong(xp, a, ids, segments=10):
        order = xp.argsort(ids, kind="stable")
        running = xp.cumsum(a[order].astype("float64"))
        running = xp.concatenate([xp.zeros((1,), dtype="float64"), running])
        edges = xp.searchsorted(ids[order], xp.arange(segments + 1))
        return (running[edges[1:]] - running[edges[:-1]]).astype(a.dtype)

    def right(xp, a, ids, segments=10):
        member = ids[None, :] == xp.arange(segments)[:, None]
        return xp.where(member, a.astype("float64")[None, :], 0.0).sum(axis=1).astype(a.dtype)

    def reference(a, ids, segments=10):
        return np.array([a[ids == segment].sum() for segment in range(segments)], dtype=a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segment_sum",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, ids: a,
            samples=lambda make: [
                (make(100), make(100, dtype="int64", low=0, high=9)),
                Sample((make(33), make(33, dtype="int64", low=0, high=2)), {"segments": 4}),
                Sample((make(0), make(0, dtype="int64", low=0, high=9)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "two_pass_mean",
    "the partial sums between the two passes are kept in the input's dtype",
    "float16 means in CuPy and PyTorch that were inf because the sum, not the mean, was held in half precision",
    "256 numbers of 1000 in float16: a partial sum of 128000 is inf",
)
def two_pass_mean():
    """The mean of the last axis: sums of blocks, then the sum of these; NaN for an empty axis."""
    block = 128

    def mean(xp, a, between):
        a = a.reshape(a.shape or (1,))
        length = a.shape[-1]
        if length == 0:
            return xp.full(a.shape[:-1], math.nan, dtype=a.dtype)
        partial = [
            a[..., start : start + block].astype("float64").sum(axis=-1, keepdims=True)
            for start in range(0, length, block)
        ]
        kept = xp.concatenate(partial, axis=-1).astype(between)
        return (kept.astype("float64").sum(axis=-1) / length).astype(a.dtype)

    def wrong(xp, a):
        return mean(xp, a, a.dtype)

    def right(xp, a):
        return mean(xp, a, "float64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="two_pass_mean",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(50),
                make((3, 257)),
                make((2, 3, 64), low=-100, high=100),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=lambda a: a.mean(axis=-1) if a.size else np.full(a.shape[:-1], math.nan),
        )

    return wrong, right, declare


@pair(
    "lerp_into",
    "out is written before the second input has been read",
    "PyTorch's out= variants composed of mul and add_ (lerp, addcmul, baddbmm), which were wrong where out was an"
    " operand; assert_no_overlap was added for them",
    "lerp(a, b, out=b): the result is made of a alone",
)
def lerp_into():
    """(1 - t) * a + t * b, also into out, which may be a or b or a view of them."""

    def wrong(xp, a, b, t=0.25, out=None):
        if out is None:
            return (1 - t) * a + t * b
        xp.multiply(a, 1 - t, out=out)
        out += t * b
        return out

    def right(xp, a, b, t=0.25, out=None):
        value = (1 - t) * a + t * b
        if out is None:
            return value
        out[...] = value
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lerp_into",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: a,
            samples=lambda make: [
                (make(30), make(30)),
                (make((4, 5)), make((4, 5))),
                Sample((make((3, 7)), make((3, 7))), {"t": 0.5}),
                Sample((make((3, 1)), make(4)), kind="broadcast"),
            ],
            reference=lambda a, b, t=0.25: (1 - t) * a + t * b,
        )

    return wrong, right, declare


@pair(
    "axpy_dense",
    "two dense arrays are combined in memory order although one is in C and the other in Fortran order",
    "PyTorch's _foreach fast path, which checked that tensors are dense and not that their strides are equal",
    "x of shape (2, 3) in C order and y in Fortran order: elements of y land in the wrong places",
)
def axpy_dense():
    """alpha * x + y; dense arrays go through one flat pass."""

    def flat(xp, alpha, x, y):
        return (alpha * x.ravel() + y.ravel()).reshape(x.shape)

    def wrong(xp, x, y, alpha=2.0):
        def dense(a):
            return a.flags.c_contiguous or a.flags.f_contiguous

        def in_memory(a):
            return a.ravel() if a.flags.c_contiguous else a.T.ravel()

        if x.shape == y.shape and dense(x) and dense(y):
            result = alpha * in_memory(x) + in_memory(y)
            return result.reshape(x.shape) if x.flags.c_contiguous else result.reshape(x.shape[::-1]).T
        return alpha * x + y

    def right(xp, x, y, alpha=2.0):
        if x.shape == y.shape:
            if x.flags.c_contiguous and y.flags.c_contiguous:
                return flat(xp, alpha, x, y)
            if x.flags.f_contiguous and y.flags.f_contiguous:
                return flat(xp, alpha, x.T, y.T).T
        return alpha * x + y

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="axpy_dense",
            dtypes=("float32", "float64"),
            result_dtype=lambda x, y: x,
            samples=lambda make: [
                (make(20), make(20)),
                (make((5, 7)), make((5, 7))),
                Sample((make((2, 3, 4)), make((2, 3, 4))), {"alpha": -0.5}),
                Sample((make((4, 1)), make(6)), kind="broadcast"),
                Sample((make((0, 3)), make((0, 3))), kind="empty"),
            ],
            reference=lambda x, y, alpha=2.0: alpha * x + y,
        )

    return wrong, right, declare


@pair(
    "image_bias",
    "vectors of four need a plane that is a multiple of four, but the size of the whole array is checked",
    "vectorised bias kernels in PyTorch and ONNX Runtime that tested numel % 4 and let a vector straddle two channels",
    "images of shape (4, 3, 5, 5): 300 numbers, planes of 25, and every vector over a border gets one channel's bias",
)
def image_bias():
    """Add a bias for each channel to images (n, c, ...), four numbers at a time where that is possible."""

    def check(images, bias):
        if images.ndim < 3 or bias.shape != images.shape[1:2]:
            raise ValueError(f"images {images.shape} and bias {bias.shape}; give (n, c, ...) and (c,)")

    def by_four(xp, images, bias, plane):
        vectors = images.reshape((images.size // 4, 4))
        channel = xp.arange(images.size // 4) * 4 // plane % bias.shape[0]
        return (vectors + bias[channel][:, None]).reshape(images.shape)

    def plain(images, bias):
        return images + bias.reshape((-1, *(1,) * (images.ndim - 2)))

    def wrong(xp, images, bias):
        check(images, bias)
        plane = math.prod(images.shape[2:])
        if images.size and images.size % 4 == 0:
            return by_four(xp, images, bias, plane)
        return plain(images, bias)

    def right(xp, images, bias):
        check(images, bias)
        plane = math.prod(images.shape[2:])
        if images.size and plane % 4 == 0:
            return by_four(xp, images, bias, plane)
        return plain(images, bias)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="image_bias",
            dtypes=("float16", "float32"),
            result_dtype=lambda images, bias: images,
            samples=lambda make: [
                (make((2, 3, 8, 8)), make(3)),
                (make((3, 5, 7)), make(5)),
                Sample((make((0, 3, 4, 4)), make(3)), kind="empty"),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 3, 4)), make(4))), ValueError, "bias")],
            reference=lambda images, bias: images + bias.reshape((-1,) + (1,) * (images.ndim - 2)),
        )

    return wrong, right, declare


@pair(
    "padded_energy",
    "the workspace is kept by its padded size, and only a new one has zeros behind the data",
    "cached split-K and padding workspaces (cuBLASLt and Triton users, RAPIDS' scratch buffers) that are cleared when"
    " allocated and not when used again",
    "rows of 60 numbers, then rows of 50: the last ten of the first call are added to the second's result",
)
def padded_energy():
    """The sum of squares of each row, in tiles of 64 of a padded workspace."""
    tile = 64

    def energy(xp, a, get):
        a = a.reshape(a.shape or (1,))
        length = a.shape[-1]
        rows, tiles = math.prod(a.shape[:-1]), -(-length // tile)
        workspace = get(xp, (rows, tiles * tile), a.dtype)
        workspace[:, :length] = a.reshape((rows, length))
        by_tile = (workspace * workspace).reshape((rows, tiles, tile)).sum(axis=-1)
        return by_tile.sum(axis=-1).reshape(a.shape[:-1])

    kept = {}

    def cached(xp, shape, dtype):
        key = (xp, shape, dtype.name)
        if key not in kept:
            kept[key] = xp.zeros(shape, dtype=dtype)
        return kept[key]

    def wrong(xp, a):
        return energy(xp, a, cached)

    def right(xp, a):
        return energy(xp, a, lambda xp, shape, dtype: xp.zeros(shape, dtype=dtype))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="padded_energy",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(64),
                make((3, 100)),
                make((2, 5, 33)),
                Sample((make((4, 0)),), kind="empty"),
            ],
            reference=lambda a: (a * a).sum(axis=-1),
        )

    return wrong, right, declare
