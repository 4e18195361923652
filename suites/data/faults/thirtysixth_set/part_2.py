"""Scatter, convolution, interpolation, FFT, sorting, random, algebra, losses, frames, sparse, geometry, reductions."""

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
    "scatter_mean",
    "places that receive nothing are zeroed instead of kept",
    "PyTorch scatter_reduce with include_self=False: backends that cleared the whole destination first, so that "
    "places without a source lost their value",
    "include_self=False with an index that leaves some place out, such as all sources going to place 0",
)
def scatter_mean():
    """The mean of the sources of each place, with or without what is there; places without a source keep theirs."""

    def gathered(xp, base, index, source):
        hits = index[None, :] == xp.arange(base.shape[0])[:, None]
        totals = xp.where(hits, source.astype("float64")[None, :], 0.0).sum(axis=1)
        return totals, hits.sum(axis=1)

    def wrong(xp, base, index, source, include_self=True):
        totals, counts = gathered(xp, base, index, source)
        if include_self:
            totals, counts = totals + base.astype("float64"), counts + 1
        return (totals / xp.maximum(counts, 1)).astype(base.dtype)

    def right(xp, base, index, source, include_self=True):
        totals, counts = gathered(xp, base, index, source)
        if include_self:
            totals, counts = totals + base.astype("float64"), counts + 1
        return xp.where(counts > 0, totals / xp.maximum(counts, 1), base).astype(base.dtype)

    def reference(base, index, source, include_self=True):
        out = np.array(base, dtype="float64")
        sources = [[v] if include_self else [] for v in out]
        for place, value in zip(index, source, strict=True):
            sources[place].append(value)
        for place, values in enumerate(sources):
            if values:
                out[place] = np.sum(values) / len(values)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="scatter_mean",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(6), make(40, dtype="int64", low=0, high=5), make(40)),
                Sample((make(5), make(60, dtype="int64", low=0, high=4), make(60)), {"include_self": False}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "strided_same_conv",
    "padding of SAME ignores the stride",
    "TensorFlow's SAME against ports of it: the padding depends on length and stride, ports always pad kernel - 1",
    "stride 2, kernel of 3 and an even length: every output comes from windows that are shifted by one",
)
def strided_same_conv():
    """A convolution over the last axis as in TensorFlow with padding SAME: ceil(length / stride) outputs."""

    def check(a, kernel, stride):
        if stride < 1:
            raise ValueError(f"stride is {stride}; give 1 or more")
        if a.shape[1] != kernel.shape[1]:
            raise ValueError(f"{a.shape[1]} channels, but the kernel has {kernel.shape[1]}")

    def convolve(xp, a, kernel, stride, total):
        batch, channels, length = a.shape
        left, count = total // 2, -(-length // stride)
        out = xp.zeros((batch, kernel.shape[0], count), dtype=a.dtype)
        if count == 0:
            return out
        padded = xp.zeros((batch, channels, length + total), dtype=a.dtype)
        padded[:, :, left : left + length] = a
        for tap in range(kernel.shape[2]):
            window = padded[:, :, tap : tap + (count - 1) * stride + 1 : stride]
            out = out + xp.matmul(kernel[:, :, tap], window)
        return out

    def wrong(xp, a, kernel, stride=1):
        check(a, kernel, stride)
        return convolve(xp, a, kernel, stride, max(kernel.shape[2] - 1, 0))

    def right(xp, a, kernel, stride=1):
        check(a, kernel, stride)
        count = -(-a.shape[2] // stride)
        return convolve(xp, a, kernel, stride, max((count - 1) * stride + kernel.shape[2] - a.shape[2], 0))

    def reference(a, kernel, stride=1):
        batch, _, length = a.shape
        filters, _, taps = kernel.shape
        count = -(-length // stride)
        left = max((count - 1) * stride + taps - length, 0) // 2
        out = np.zeros((batch, filters, count))
        for place in range(count):
            for tap in range(taps):
                source = place * stride + tap - left
                if 0 <= source < length:
                    out[:, :, place] += a[:, :, source] @ kernel[:, :, tap].T
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="strided_same_conv",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((2, 3, 16)), make((4, 3, 3))),
                (make((1, 2, 11)), make((3, 2, 4))),
                Sample((make((2, 3, 17)), make((4, 3, 3))), {"stride": 2}),
                Sample((make((2, 1, 22)), make((2, 1, 5))), {"stride": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((1, 1, 4)), make((1, 1, 3))), {"stride": 0}), ValueError, "stride is 0"),
                ErrorInput((make((1, 2, 4)), make((1, 3, 3))), ValueError, "2 channels"),
            ],
        )

    return wrong, right, declare


@pair(
    "ring_interp",
    "the cell between the last and the first entry is flat",
    "scipy.ndimage and CuPy map_coordinates, mode wrap: the right neighbour of the last entry was clamped, not wrapped "
    "around, before grid-wrap came",
    "a position such as 11.5 or -0.5 on a ring of 12: the last entry alone instead of its mean with the first",
)
def ring_interp():
    """Linear interpolation in a table that is periodic with its length."""

    def check(table):
        if table.shape[0] == 0:
            raise ValueError("the table is empty")

    def wrong(xp, table, positions):
        check(table)
        count = table.shape[0]
        place = positions.astype("float64") % count
        below = xp.minimum(xp.floor(place).astype("int64"), count - 1)
        part = place - below
        above = xp.minimum(below + 1, count - 1)
        return (table[below] * (1 - part) + table[above] * part).astype(table.dtype)

    def right(xp, table, positions):
        check(table)
        count = table.shape[0]
        place = positions.astype("float64")
        whole = xp.floor(place)
        part = place - whole
        below = whole.astype("int64") % count
        above = (below + 1) % count
        return (table[below] * (1 - part) + table[above] * part).astype(table.dtype)

    def reference(table, positions):
        check(table)
        whole = np.floor(positions)
        part = positions - whole
        before = np.take(table, whole.astype("int64"), mode="wrap")
        after = np.take(table, whole.astype("int64") + 1, mode="wrap")
        return before * (1 - part) + after * part

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ring_interp",
            dtypes=("float32", "float64"),
            result_dtype=lambda table, positions: table,
            samples=lambda make: [
                (make(64), make(30, low=0, high=63)),
                (make(50), make((4, 3), low=0, high=49)),
                (make(360), make(10, low=-180, high=359)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(0), make(3, low=0, high=1)), ValueError, "the table is empty")],
        )

    return wrong, right, declare


@pair(
    "amplitude_spectrum",
    "the orthonormal scale is that of the input's length, not of the transform's",
    "torch.fft and CuPy's norm=ortho: the factor was computed from the size before n had padded or cropped the input",
    "norm='ortho' together with an n that is not the length: off by sqrt(n / length)",
)
def amplitude_spectrum():
    """Absolute values of numpy.fft.rfft(a, n, norm=norm)."""

    def check(a, n, norm):
        if norm not in ("backward", "ortho", "forward"):
            raise ValueError(f"norm is {norm!r}; give backward, ortho or forward")
        if (a.shape[-1] if n is None else n) < 1:
            raise ValueError(f"n is {n}; give 1 or more")

    def wrong(xp, a, n=None, norm="backward"):
        check(a, n, norm)
        amplitudes = xp.abs(xp.fft.rfft(a.astype("float64"), n, norm=norm))
        if norm == "ortho" and n is not None:
            amplitudes = amplitudes * math.sqrt(n / max(a.shape[-1], 1))
        return amplitudes.astype(a.dtype)

    def right(xp, a, n=None, norm="backward"):
        check(a, n, norm)
        return xp.abs(xp.fft.rfft(a.astype("float64"), n, norm=norm)).astype(a.dtype)

    def reference(a, n=None, norm="backward"):
        return np.abs(np.fft.rfft(a, n, norm=norm))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="amplitude_spectrum",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(24),
                make((3, 15)),
                Sample((make((2, 20)),), {"n": 32}),
                Sample((make(20),), {"n": 9, "norm": "forward"}),
                Sample((make((4, 16)),), {"norm": "ortho"}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"norm": "unit"}), ValueError, "norm is 'unit'"),
                ErrorInput(Sample((make(4),), {"n": 0}), ValueError, "n is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "insertion_places",
    "radix keys order -0.0 before 0.0",
    "Thrust and CUB radix sorts, searchsorted in JAX by a total order: -0.0 and 0.0 had different keys",
    "an edge of -0.0 and a value of 0.0 with side='left': one place too far, and the reverse with side='right'",
)
def insertion_places():
    """Where each value would be inserted among the sorted edges, as numpy.searchsorted; NaN comes last."""

    def check(side):
        if side not in ("left", "right"):
            raise ValueError(f"side is {side!r}; give left or right")

    def keys(xp, a):
        a = xp.where(xp.isnan(a), xp.full_like(a, math.nan), a)  # one NaN of positive sign
        width = 8 * a.dtype.itemsize
        bits = a.view(f"int{width}")
        return xp.where(bits < 0, bits ^ (2 ** (width - 1) - 1), bits)

    def wrong(xp, edges, values, side="left"):
        check(side)
        return xp.searchsorted(xp.sort(keys(xp, edges)), keys(xp, values), side=side)

    def right(xp, edges, values, side="left"):
        check(side)
        return xp.searchsorted(xp.sort(keys(xp, edges + 0)), keys(xp, values + 0), side=side)

    def reference(edges, values, side="left"):
        return np.searchsorted(np.sort(edges), values, side=side)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="insertion_places",
            dtypes=("float16", "float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(20), make(50)),
                (make(7), make((3, 4))),
                Sample((make(12), make(30)), {"side": "right"}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3), make(3)), {"side": "middle"}), ValueError, "side is 'middle'")
            ],
        )

    return wrong, right, declare


@pair(
    "philox_bits",
    "the carry into the counter's high word is lost",
    "Triton's tl.rand and counter-based generators in general: lane + offset was added in 32 bits, so that the stream "
    "repeats at 2**32",
    "a lane of 2**32 - 1 with any offset above 0: the numbers are those of counter 0 of the same block",
)
def philox_bits():
    """The first word of Philox-2x32-10 for the 64-bit counters lane + offset."""
    factor, weyl, mask = 0xD256D193, 0x9E3779B9, 0xFFFFFFFF

    def check(offset):
        if offset < 0:
            raise ValueError(f"offset is {offset}; give 0 or more")

    def rounds(low, high, key):
        for _ in range(10):
            product = low * factor
            low, high = (product >> 32) ^ key ^ high, product & mask
            key = (key + weyl) & mask
        return low

    def wrong(xp, lanes, offset=0, key=1234):
        check(offset)
        low = (lanes.astype("uint64") + (offset & mask)) & mask
        high = xp.full_like(low, offset >> 32)
        return rounds(low, high, key & mask).astype("int64")

    def right(xp, lanes, offset=0, key=1234):
        check(offset)
        counters = lanes.astype("uint64") + offset
        return rounds(counters & mask, counters >> 32, key & mask).astype("int64")

    def reference(lanes, offset=0, key=1234):
        counters = [int(lane) + offset for lane in lanes.ravel()]
        words = [rounds(counter & mask, counter >> 32, key & mask) for counter in counters]
        return np.array(words, dtype="int64").reshape(lanes.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="philox_bits",
            dtypes=("int64",),
            samples=lambda make: [
                make(50, low=0, high=mask),
                Sample((make((4, 5), low=0, high=mask),), {"offset": 16}),
                Sample((make(30, low=0, high=mask),), {"offset": 2**40 + 256, "key": 99}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3, low=0, high=9),), {"offset": -1}), ValueError, "offset is -1")
            ],
        )

    return wrong, right, declare


@pair(
    "stacked_rank",
    "the threshold is that of the largest singular value of the whole stack",
    "CuPy's pinv and matrix_rank with stacks: the cutoff was taken from s.max() over all matrices",
    "a stack of a matrix of entries near 100 and one of entries near 0.01: the rank of the small one is 0",
)
def stacked_rank():
    """The rank of each matrix: singular values above rtol times its largest one."""

    def check(a, rtol):
        if not 0 < rtol < 1:
            raise ValueError(f"rtol is {rtol}; give a number between 0 and 1")
        if a.ndim < 2:
            raise ValueError(f"a has {a.ndim} dimensions; give 2 or more")

    def wrong(xp, a, rtol=1e-3):
        check(a, rtol)
        if a.size == 0:
            return xp.zeros(a.shape[:-2], dtype="int64")
        values = xp.linalg.svd(a.astype("float64"), compute_uv=False)
        return (values > rtol * values.max()).sum(axis=-1)

    def right(xp, a, rtol=1e-3):
        check(a, rtol)
        if a.size == 0:
            return xp.zeros(a.shape[:-2], dtype="int64")
        values = xp.linalg.svd(a.astype("float64"), compute_uv=False)
        return (values > rtol * values.max(axis=-1, keepdims=True)).sum(axis=-1)

    def reference(a, rtol=1e-3):
        out = np.zeros(a.shape[:-2], dtype="int64")
        for i in np.ndindex(out.shape):
            if a[i].size:
                values = np.linalg.svd(a[i], compute_uv=False)
                out[i] = (values > rtol * values[0]).sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="stacked_rank",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make((5, 4), low=-100, high=100),
                make((3, 4, 4), low=-100, high=100),
                make((2, 3, 6, 2), low=-100, high=100),
                Sample((make((4, 5), low=-100, high=100),), {"rtol": 0.05}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 2), low=-1, high=1),), {"rtol": 0}), ValueError, "rtol is 0"),
                ErrorInput(make(4, low=-1, high=1), ValueError, "a has 1 dimensions"),
            ],
        )

    return wrong, right, declare


@pair(
    "multilabel_margin",
    "labels behind the first -1 count",
    "PyTorch's multilabel_margin_loss ends the labels at the first -1; kernels that test each label for -1 do not",
    "labels [2, -1, 0, -1]: class 0 is taken for a target though the list ended before it",
)
def multilabel_margin():
    """The multilabel margin loss of each row; the labels of a row end at the first -1."""

    def check(scores, labels):
        if scores.shape != labels.shape:
            raise ValueError(f"scores are {scores.shape}, labels {labels.shape}; give equal shapes")

    def loss(xp, scores, labels, valid):
        classes = scores.shape[1]
        wide = scores.astype("float64")
        hits = (labels[:, :, None] == xp.arange(classes)[None, None, :]) & valid[:, :, None]
        chosen = xp.where(hits, wide[:, None, :], 0.0).sum(axis=2)
        others = ~hits.any(axis=1)
        margins = xp.maximum(1 - chosen[:, :, None] + wide[:, None, :], 0.0)
        margins = xp.where(valid[:, :, None] & others[:, None, :], margins, 0.0)
        return (margins.sum(axis=(1, 2)) / max(classes, 1)).astype(scores.dtype)

    def wrong(xp, scores, labels):
        check(scores, labels)
        return loss(xp, scores, labels, labels >= 0)

    def right(xp, scores, labels):
        check(scores, labels)
        return loss(xp, scores, labels, xp.cumsum(labels < 0, axis=1) == 0)

    def reference(scores, labels):
        out = np.zeros(scores.shape[0])
        for row, (values, given) in enumerate(zip(scores, labels, strict=True)):
            targets = []
            for label in given:
                if label < 0:
                    break
                targets.append(int(label))
            others = [i for i in range(len(values)) if i not in targets]
            for target in targets:
                out[row] += np.maximum(1 - values[target] + values[others], 0).sum() / len(values)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="multilabel_margin",
            dtypes=("float32", "float64"),
            result_dtype=lambda scores, labels: scores,
            samples=lambda make: [
                (make((6, 8)), make((6, 8), dtype="int64", low=-1, high=7)),
                (make((3, 5)), make((3, 5), dtype="int64", low=-1, high=4)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((2, 3)), make((2, 2), dtype="int64", low=-1, high=1)), ValueError, "give equal shapes")
            ],
        )

    return wrong, right, declare


@pair(
    "rank_share",
    "dense ranks as shares are divided by the count of values, not by that of distinct ones",
    "pandas and cuDF rank(method='dense', pct=True): the largest share was below 1 as soon as there were ties",
    "method='dense' together with pct=True and ties: [1, 1, 2] gives 1/3, 1/3, 2/3 instead of 1/2, 1/2, 1",
)
def rank_share():
    """Ranks of the values of a column as in pandas, if asked as shares of the largest possible; NaN has none."""

    def check(method):
        if method not in ("min", "max", "dense"):
            raise ValueError(f"method is {method!r}; give min, max or dense")

    def ranks(xp, a, method):
        valid = ~xp.isnan(a)
        below = a[None, :] < a[:, None]
        equal = a[None, :] == a[:, None]
        places = xp.arange(a.shape[0])
        first = valid & ~(equal & (places[None, :] < places[:, None])).any(axis=1)
        if method == "min":
            rank = below.sum(axis=1) + 1
        elif method == "max":
            rank = below.sum(axis=1) + equal.sum(axis=1)
        else:
            rank = (below & first[None, :]).sum(axis=1) + 1
        return xp.where(valid, rank.astype("float64"), math.nan), valid, first

    def wrong(xp, a, method="min", pct=False):
        check(method)
        rank, valid, _ = ranks(xp, a, method)
        return rank / xp.maximum(valid.sum(), 1) if pct else rank

    def right(xp, a, method="min", pct=False):
        check(method)
        rank, valid, first = ranks(xp, a, method)
        counted = first if method == "dense" else valid
        return rank / xp.maximum(counted.sum(), 1) if pct else rank

    def reference(a, method="min", pct=False):
        out = np.full(a.shape, math.nan)
        ordered = sorted(v for v in a.tolist() if not math.isnan(v))
        distinct = sorted(set(ordered))
        for i, value in enumerate(a.tolist()):
            if not math.isnan(value):
                if method == "dense":
                    out[i] = distinct.index(value) + 1
                else:
                    out[i] = ordered.index(value) + (1 if method == "min" else ordered.count(value))
        return out / max(len(distinct if method == "dense" else ordered), 1) if pct else out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rank_share",
            dtypes=("float32", "float64", "int64"),
            result_dtype="float64",
            samples=lambda make: [
                make(30),
                Sample((make(25),), {"method": "max"}),
                Sample((make(25),), {"method": "dense"}),
                Sample((make(20),), {"pct": True}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3),), {"method": "mean"}), ValueError, "method is 'mean'")
            ],
        )

    return wrong, right, declare


@pair(
    "coo_filled_cells",
    "stored entries are counted, not cells",
    "scipy.sparse and CuPy count_nonzero against getnnz: duplicates of a COO matrix counted before their sum",
    "two entries for one cell: counted as two cells, and as two even where they cancel",
)
def coo_filled_cells():
    """How many cells of each row of a COO matrix are not zero; entries for one cell are added."""

    def check(rows, columns, values):
        if not rows.shape == columns.shape == values.shape:
            raise ValueError(f"shapes {rows.shape}, {columns.shape} and {values.shape} differ")

    def wrong(xp, rows, columns, values, height=40, width=30):
        check(rows, columns, values)
        stored = (rows[None, :] == xp.arange(height)[:, None]) & (values != 0)[None, :]
        return stored.sum(axis=1)

    def right(xp, rows, columns, values, height=40, width=30):
        check(rows, columns, values)
        cells = rows * width + columns
        hits = cells[None, :] == xp.arange(height * width)[:, None]
        totals = xp.where(hits, values.astype("int64")[None, :], 0).sum(axis=1)
        return (totals != 0).reshape(height, width).sum(axis=1)

    def reference(rows, columns, values, height=40, width=30):
        check(rows, columns, values)
        dense = np.zeros((height, width), dtype="int64")
        np.add.at(dense, (rows, columns), values.astype("int64"))
        return np.count_nonzero(dense, axis=1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="coo_filled_cells",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (
                    make(12, dtype="int64", low=0, high=39),
                    make(12, dtype="int64", low=0, high=29),
                    make(12),
                ),
                Sample(
                    (make(9, dtype="int64", low=0, high=24), make(9, dtype="int64", low=0, high=49), make(9)),
                    {"height": 25, "width": 50},
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    (make(3, dtype="int64", low=0, high=1), make(2, dtype="int64", low=0, high=1), make(3)),
                    ValueError,
                    "differ",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "segments_meet",
    "segments of one line meet although there is a gap between them",
    "cuSpatial's and many other segment intersections: sides of zero pass the straddling test for collinear segments",
    "(0, 0)-(1, 1) and (3, 3)-(5, 5): both lie on one line, so all sides are zero and they are said to meet",
)
def segments_meet():
    """Whether two segments, rows of x, y, x, y in whole units, have a point in common; ends belong to them."""

    def check(first, second):
        for a in (first, second):
            if a.ndim != 2 or a.shape[1] != 4:
                raise ValueError(f"segments are {a.shape}; give rows of 4 numbers")

    def side(xp, a, x, y):
        return xp.sign((a[:, 2] - a[:, 0]) * (y - a[:, 1]) - (a[:, 3] - a[:, 1]) * (x - a[:, 0]))

    def straddle(xp, a, b):
        return side(xp, a, b[:, 0], b[:, 1]) * side(xp, a, b[:, 2], b[:, 3]) <= 0

    def overlap(xp, a, b, axis):
        low = xp.maximum(xp.minimum(a[:, axis], a[:, axis + 2]), xp.minimum(b[:, axis], b[:, axis + 2]))
        high = xp.minimum(xp.maximum(a[:, axis], a[:, axis + 2]), xp.maximum(b[:, axis], b[:, axis + 2]))
        return low <= high

    def wrong(xp, first, second):
        check(first, second)
        a, b = first.astype("int64"), second.astype("int64")
        return straddle(xp, a, b) & straddle(xp, b, a)

    def right(xp, first, second):
        check(first, second)
        a, b = first.astype("int64"), second.astype("int64")
        return straddle(xp, a, b) & straddle(xp, b, a) & overlap(xp, a, b, 0) & overlap(xp, a, b, 1)

    def reference(first, second):
        def turn(p, q, r):
            product = (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])
            return (product > 0) - (product < 0)

        def within(p, q, r):
            return min(p[0], q[0]) <= r[0] <= max(p[0], q[0]) and min(p[1], q[1]) <= r[1] <= max(p[1], q[1])

        out = []
        for a, b in zip(first.tolist(), second.tolist(), strict=True):
            p, q, r, s = a[:2], a[2:], b[:2], b[2:]
            turns = turn(p, q, r), turn(p, q, s), turn(r, s, p), turn(r, s, q)
            proper = turns[0] * turns[1] < 0 and turns[2] * turns[3] < 0
            ends = ((p, q, r), (p, q, s), (r, s, p), (r, s, q))
            out.append(proper or any(t == 0 and within(*end) for t, end in zip(turns, ends, strict=True)))
        return np.array(out, dtype=bool)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segments_meet",
            dtypes=("int32", "int64"),
            result_dtype="bool",
            samples=lambda make: [
                (make((30, 4), low=-9, high=9), make((30, 4), low=-9, high=9)),
                (make((7, 4), low=0, high=100), make((7, 4), low=0, high=100)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((2, 3), low=0, high=9), make((2, 3), low=0, high=9)), ValueError, "rows of 4 numbers")
            ],
        )

    return wrong, right, declare


@pair(
    "signal_present",
    "numbers below one are false",
    "torch.any and all, cupy.any and Numba reductions: the truth value of a float was that of its cast to an integer",
    "a row of numbers such as 0.25 and -0.5 alone: said to be all zero",
)
def signal_present():
    """Whether any number along an axis is not zero."""

    def wrong(xp, a, axis=-1, keepdims=False):
        return (a.astype("int32") != 0).any(axis=axis, keepdims=keepdims)

    def right(xp, a, axis=-1, keepdims=False):
        return (a != 0).any(axis=axis, keepdims=keepdims)

    def reference(a, axis=-1, keepdims=False):
        return np.count_nonzero(a, axis=axis, keepdims=keepdims) > 0

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="signal_present",
            dtypes=("float16", "float32", "float64"),
            result_dtype="bool",
            samples=lambda make: [
                make((6, 9)),
                make(12),
                Sample((make((3, 8, 5)),), {"axis": 1, "keepdims": True}),
                Sample((make((10, 7)),), {"axis": 0}),
            ],
            reference=reference,
        )

    return wrong, right, declare
