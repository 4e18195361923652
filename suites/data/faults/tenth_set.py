"""Sixty wrong functions with right twins, declared as a maintainer would, and frozen before the first run."""

import random
import time
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay import Device, devices
from cuassay.testing import ErrorInput, OpSpec, Sample


class Pair(NamedTuple):
    name: str
    kind: str  # class of the mistake
    origin: str  # "own", or the public bug report that it follows
    shows: str  # which input or circumstance shows the fault
    checks: tuple[str, ...]
    make: Callable[[], tuple[Any, Any, Any]]


PAIRS: list[Pair] = []


def pair(name, kind, origin, shows, *checks):
    def register(make):
        PAIRS.append(Pair(name, kind, origin, shows, checks, make))
        return make

    return register


def device_of(a):
    """The device of an array of NumPy, of the simulator, or of CuPy."""
    if isinstance(a, np.ndarray):
        return Device("cpu", 0)
    return a.device if hasattr(a.device, "kind") else Device("cuda", a.device.id)


# 1 to 10


@pair(
    "prefix_sum",
    "blocked algorithm",
    "own",
    "more than 1024 elements: the sums of blocks are scanned within groups of 32 blocks only",
)
def prefix_sum():
    """Running sum of a vector of weights, in blocks of 32 as a warp scans them."""

    def wrong(xp, a):
        n, block = a.shape[0], 32
        blocks = -(-n // block)
        padded = xp.zeros(blocks * block, dtype=a.dtype)
        padded[:n] = a
        local = xp.cumsum(padded.reshape(blocks, block), axis=1)
        totals = local[:, -1]
        carry = xp.zeros(blocks, dtype=a.dtype)
        for start in range(0, blocks, block):
            group = totals[start : start + block]
            carry[start + 1 : start + block] = xp.cumsum(group[:-1])
        return (local + carry[:, None]).reshape(-1)[:n]

    def right(xp, a):
        return xp.cumsum(a)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="prefix_sum",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(100, low=0, high=1),
                make(1000, low=0, high=1),
                make(32, low=0, high=1),
            ],
            reference=np.cumsum,
        )

    return wrong, right, declare


@pair(
    "first_peak",
    "ties across blocks",
    "own",
    "the largest value occurs in two blocks of 16: the index in the later block is given",
)
def first_peak():
    """Index of the first largest value of each row."""

    def wrong(xp, a):
        best = xp.argmax(a[:, :16], axis=1)
        top = a[:, :16].max(axis=1)
        for start in range(16, a.shape[1], 16):
            part = a[:, start : start + 16]
            value = part.max(axis=1)
            later = ((value >= top) | xp.isnan(value)) & ~xp.isnan(top)
            best = xp.where(later, part.argmax(axis=1) + start, best)
            top = xp.where(later, value, top)
        return best

    def right(xp, a):
        return xp.argmax(a, axis=1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="first_peak",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [make((3, 40)), make((2, 16)), make((5, 7))],
            reference=lambda a: np.argmax(a, axis=1),
        )

    return wrong, right, declare


@pair(
    "one_sided_power",
    "odd length",
    "matplotlib/matplotlib#4324",
    "an odd number of samples: the last bin is not the Nyquist frequency, and is not doubled",
)
def one_sided_power():
    """Power at each non-negative frequency; the negative ones are folded in, so that it adds up to the energy."""

    def wrong(xp, a):
        power = xp.abs(xp.fft.rfft(a)) ** 2 / a.shape[-1]
        power[..., 1:-1] *= 2
        return power

    def right(xp, a):
        power = xp.abs(xp.fft.rfft(a)) ** 2 / a.shape[-1]
        power[..., 1 : -1 if a.shape[-1] % 2 == 0 else None] *= 2
        return power

    def reference(a):
        n = a.shape[-1]
        power = np.abs(np.fft.fft(a)) ** 2 / n
        folded = power[..., : n // 2 + 1].copy()
        for k in range(1, n):
            if k > n // 2:
                folded[..., n - k] += power[..., k]
        return folded

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="one_sided_power",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(64, low=-1, high=1), make((3, 20), low=-1, high=1)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rms",
    "complex values",
    "own",
    "complex input: the square is taken instead of the square of the magnitude",
)
def rms():
    """Root mean square of each row, of real or complex samples."""

    def wrong(xp, a):
        return xp.abs(xp.sqrt((a * a).mean(axis=-1)))

    def right(xp, a):
        return xp.sqrt((xp.abs(a) ** 2).mean(axis=-1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rms",
            dtypes=("float32", "float64", "complex64"),
            result_dtype=lambda a: {"complex64": "float32"}.get(a, a),
            samples=lambda make: [make((3, 25)), make(8)],
            reference=lambda a: np.sqrt((np.abs(a) ** 2).mean(axis=-1)),
        )

    return wrong, right, declare


@pair(
    "annuity_payment",
    "division by zero",
    "razorpay/go-financial#13",
    "a rate of 0: 0 / 0 is NaN, where the payment is the principal over the number of periods",
)
def annuity_payment():
    """Payment for each period of a loan, from the rate for a period and the principal."""

    def wrong(xp, rate, principal, periods=24):
        return principal * rate / -xp.expm1(-periods * xp.log1p(rate))

    def right(xp, rate, principal, periods=24):
        free = rate == 0
        used = xp.where(free, xp.ones_like(rate), rate)
        return xp.where(free, principal / periods, principal * used / -xp.expm1(-periods * xp.log1p(used)))

    def reference(rate, principal, periods=24):
        out = np.empty_like(principal)
        for i in np.ndindex(out.shape):
            r, p = rate[i], principal[i]
            out[i] = p / periods if r == 0 else p * r / -np.expm1(-periods * np.log1p(r))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="annuity_payment",
            dtypes=("float32", "float64"),
            result_dtype=lambda rate, principal: rate,
            samples=lambda make: [
                (make(12, low=0, high=0.2), make(12, low=1000, high=9000)),
                Sample((make(5, low=0, high=0.02), make(5, low=1000, high=9000)), {"periods": 360}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "slerp",
    "singular point",
    "dfki-ric/pytransform3d#45",
    "two equal rotations: the sine of the angle between them is 0, and the result NaN",
)
def slerp():
    """Rotation at a fraction of the way between two rotations, as unit quaternions."""

    def unit(xp, q):
        return q / xp.sqrt((q * q).sum(axis=-1, keepdims=True))

    def wrong(xp, p, q, at=0.25):
        p, q = unit(xp, p), unit(xp, q)
        dot = (p * q).sum(axis=-1, keepdims=True)
        q, dot = xp.where(dot < 0, -q, q), xp.clip(xp.abs(dot), 0, 1)
        angle = xp.arccos(dot)
        return (xp.sin((1 - at) * angle) * p + xp.sin(at * angle) * q) / xp.sin(angle)

    def right(xp, p, q, at=0.25):
        p, q = unit(xp, p), unit(xp, q)
        dot = (p * q).sum(axis=-1, keepdims=True)
        q, dot = xp.where(dot < 0, -q, q), xp.clip(xp.abs(dot), 0, 1)
        near = dot > 1 - 4 * np.finfo(p.dtype).eps
        angle = xp.where(near, xp.ones_like(dot), xp.arccos(dot))
        sine = xp.sin(angle)
        first = xp.where(near, 1 - at, xp.sin((1 - at) * angle) / sine)
        second = xp.where(near, at, xp.sin(at * angle) / sine)
        return (first * p + second * q).astype(p.dtype)

    def reference(p, q, at=0.25):
        out = np.empty_like(p)
        for i in np.ndindex(p.shape[:-1]):
            a, b = p[i] / np.sqrt(p[i] @ p[i]), q[i] / np.sqrt(q[i] @ q[i])
            if a @ b < 0:
                b = -b
            angle = 2 * np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b))
            if angle < 1e-9:
                out[i] = a
            else:
                out[i] = (np.sin((1 - at) * angle) * a + np.sin(at * angle) * b) / np.sin(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="slerp",
            dtypes=("float32", "float64"),
            result_dtype=lambda p, q: p,
            samples=lambda make: [
                (make((5, 4), low=0.1, high=1), make((5, 4), low=-1, high=1)),
                Sample((make(4, low=0.1, high=1), make(4, low=0.1, high=1)), {"at": 0.5}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "nearest_image",
    "periodic boundary",
    "own",
    "particles more than one and a half boxes apart: only one box is added or taken away",
)
def nearest_image():
    """Shortest difference of two positions in a periodic box."""

    def wrong(xp, a, b, box=10.0):
        d = b - a
        d = xp.where(d > box / 2, d - box, d)
        return xp.where(d < -box / 2, d + box, d)

    def right(xp, a, b, box=10.0):
        d = b - a
        return d - box * xp.rint(d / box)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nearest_image",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: a,
            samples=lambda make: [
                (make((6, 3)), make((6, 3))),
                Sample((make(9), make(9)), {"box": 4.0}),
            ],
            reference=lambda a, b, box=10.0: (b - a) - box * np.round((b - a) / box),
        )

    return wrong, right, declare


@pair(
    "upper",
    "text: last letter",
    "own",
    "a text with a z: the comparison leaves it out",
)
def upper():
    """ASCII text in capital letters."""

    def wrong(xp, text):
        return xp.where((text >= ord("a")) & (text < ord("z")), text - 32, text)

    def right(xp, text):
        return xp.where((text >= ord("a")) & (text <= ord("z")), text - 32, text)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="upper",
            dtypes=("uint8",),
            result_dtype="uint8",
            samples=lambda make: [
                make.of(list(b"The quick brown fox")),
                make.of(list(b"GPU memory: 80 GiB")),
            ],
            reference=lambda text: np.frombuffer(text.tobytes().upper(), np.uint8).reshape(text.shape),
        )

    return wrong, right, declare


@pair(
    "group_mean",
    "empty groups",
    "own",
    "a group to which no element belongs: 0 / 0 is NaN, where 0 is documented",
)
def group_mean():
    """Mean of the elements of each group; 0 for a group without elements."""

    def totals(xp, a, group, groups):
        total = xp.zeros(groups, dtype=a.dtype)
        xp.add.at(total, group, a)
        return total, xp.bincount(group, minlength=groups).astype(a.dtype)

    def wrong(xp, a, group, groups=4):
        total, count = totals(xp, a, group, groups)
        return total / count

    def right(xp, a, group, groups=4):
        total, count = totals(xp, a, group, groups)
        return xp.where(count == 0, xp.zeros_like(total), total / xp.where(count == 0, xp.ones_like(count), count))

    def reference(a, group, groups=4):
        out = np.zeros(groups, a.dtype)
        for g in range(groups):
            members = a[group == g]
            for value in members:
                out[g] += value
            out[g] /= max(len(members), 1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="group_mean",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, *rest: a,
            samples=lambda make: [
                (make(60), make(60, dtype="int64", low=0, high=3)),
                Sample((make(40), make(40, dtype="int64", low=0, high=1)), {"groups": 2}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "csr_row_sums",
    "sparse: empty rows",
    "own",
    "a row without entries: reduceat gives the first entry of the next row for it",
)
def csr_row_sums():
    """Sum of each row of a matrix in CSR form."""

    def wrong(xp, data, indptr):
        return xp.add.reduceat(data, indptr[:-1])

    def right(xp, data, indptr):
        rows = xp.searchsorted(indptr, xp.arange(data.shape[0]), side="right") - 1
        out = xp.zeros(indptr.shape[0] - 1, dtype=data.dtype)
        xp.add.at(out, rows, data)
        return out

    def reference(data, indptr):
        out = np.zeros(len(indptr) - 1, data.dtype)
        for row in range(len(out)):
            for value in data[indptr[row] : indptr[row + 1]]:
                out[row] += value
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="csr_row_sums",
            dtypes=("float32", "float64"),
            result_dtype=lambda data, *rest: data,
            samples=lambda make: [
                (make(12), np.array([0, 3, 5, 9, 12])),
                (make(6), np.array([0, 1, 2, 6])),
            ],
            reference=reference,
        )

    return wrong, right, declare


# 11 to 20


@pair(
    "pagerank_step",
    "graph: nodes without links",
    "TheAlgorithms/Python#14885",
    "a page without links: its rank is lost instead of being spread over all pages",
)
def pagerank_step():
    """Ranks of pages after one more step; `links[i, j]` says whether page i links to page j."""

    def step(xp, rank, links):
        degree = links.sum(axis=1)
        return rank / xp.maximum(degree, 1).astype(rank.dtype), degree

    def wrong(xp, rank, links, damping=0.85):
        share, _ = step(xp, rank, links)
        return (1 - damping) / rank.shape[0] + damping * (share @ links.astype(rank.dtype))

    def right(xp, rank, links, damping=0.85):
        share, degree = step(xp, rank, links)
        lost = xp.where(degree == 0, rank, xp.zeros_like(rank)).sum() / rank.shape[0]
        return (1 - damping) / rank.shape[0] + damping * (share @ links.astype(rank.dtype) + lost)

    def reference(rank, links, damping=0.85):
        n = len(rank)
        out = np.full(n, (1 - damping) / n)
        for i in range(n):
            targets = np.flatnonzero(links[i])
            if len(targets) == 0:
                targets = np.arange(n)
            out[targets] += damping * rank[i] / len(targets)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pagerank_step",
            dtypes=("float32", "float64"),
            result_dtype=lambda rank, *rest: rank,
            samples=lambda make: [
                (make(8, low=0, high=1), make((8, 8), dtype="bool")),
                Sample((make(12, low=0, high=1), make((12, 12), dtype="bool")), {"damping": 0.5}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "weight_rows",
    "ambiguous broadcasting",
    "own",
    "a square matrix: the weights are taken for those of the columns",
)
def weight_rows():
    """Each row of a matrix times its weight."""

    def wrong(xp, a, weights):
        if weights.shape[0] == a.shape[1]:
            return a * weights
        return a * weights[:, None]

    def right(xp, a, weights):
        return a * weights[:, None]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weight_rows",
            dtypes=("float32", "float64", "int32"),
            result_dtype=lambda a, weights: a,
            samples=lambda make: [(make((4, 7)), make(4)), (make((9, 2)), make(9))],
            reference=lambda a, weights: np.einsum("ij,i->ij", a, weights),
        )

    return wrong, right, declare


@pair(
    "row_norms",
    "length-one axis",
    "own",
    "a batch of one row: squeeze removes the axis of the batch as well",
)
def row_norms():
    """Euclidean length of each vector along the last axis."""

    def wrong(xp, a):
        return xp.sqrt((a * a).sum(axis=-1, keepdims=True)).squeeze()

    def right(xp, a):
        return xp.sqrt((a * a).sum(axis=-1, keepdims=True)).squeeze(-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="row_norms",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((6, 3)), make((2, 5, 4))],
            reference=lambda a: np.sqrt(np.square(a).sum(-1)),
        )

    return wrong, right, declare


@pair(
    "max_over_axes",
    "several axes",
    "own",
    "axes that are not in ascending order, or negative: after the first one others are reduced",
)
def max_over_axes():
    """Largest value over some axes, which are reduced one by one."""

    def wrong(xp, a, axes=(0,)):
        for done, axis in enumerate(axes):
            a = a.max(axis=axis - done)
        return a

    def right(xp, a, axes=(0,)):
        for axis in sorted((axis % a.ndim for axis in axes), reverse=True):
            a = a.max(axis=axis)
        return a

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="max_over_axes",
            dtypes=("float32", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((3, 4)),
                Sample((make((3, 4, 5)),), {"axes": (0, 1)}),
                Sample((make((3, 4, 5)),), {"axes": (0, 2)}),
            ],
            reference=lambda a, axes=(0,): np.max(a, axis=tuple(axes)),
        )

    return wrong, right, declare


@pair(
    "cumulative_trapezoid",
    "negative axis",
    "own",
    "axis=-1 of an array of two axes: slices are taken along the first axis",
)
def cumulative_trapezoid():
    """Running integral by the trapezoidal rule."""

    def areas(a, lead, dx):
        return (a[(*lead, slice(1, None))] + a[(*lead, slice(None, -1))]) * (dx / 2)

    def wrong(xp, a, dx=1.0, axis=0):
        return xp.cumsum(areas(a, (slice(None),) * axis, dx), axis=axis)

    def right(xp, a, dx=1.0, axis=0):
        return xp.cumsum(areas(a, (slice(None),) * (axis % a.ndim), dx), axis=axis)

    def reference(a, dx=1.0, axis=0):
        a = np.moveaxis(a, axis, 0)
        total, out = np.zeros(a.shape[1:]), []
        for i in range(1, len(a)):
            total = total + (a[i] + a[i - 1]) * (dx / 2)
            out.append(total)
        return np.moveaxis(np.array(out).reshape((max(len(a) - 1, 0), *a.shape[1:])), 0, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cumulative_trapezoid",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(30),
                Sample((make((9, 4)),), {"dx": 0.5}),
                Sample((make((5, 12)),), {"axis": 1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "share_of_total",
    "option of value 0 taken for absent",
    "apache/tvm#3422",
    "axis=0, which is taken for no axis",
)
def share_of_total():
    """Each value as a share of the sum of all, or of those along an axis."""

    def wrong(xp, a, axis=None):
        if axis:
            return a / a.sum(axis=axis, keepdims=True)
        return a / a.sum()

    def right(xp, a, axis=None):
        return a / a.sum(axis=axis, keepdims=True)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="share_of_total",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((4, 6), low=0.1, high=3),
                Sample((make((4, 6), low=0.1, high=3),), {"axis": 1}),
                Sample((make((2, 3, 5), low=0.1, high=3),), {"axis": -1}),
            ],
            reference=lambda a, axis=None: a / np.sum(a, axis=axis, keepdims=True),
        )

    return wrong, right, declare


@pair(
    "weighted_variance",
    "two options together",
    "own",
    "weights and ddof in one call: ddof is ignored as soon as there are weights",
)
def weighted_variance():
    """Variance of repeated observations; `counts` says how often each was made."""

    def wrong(xp, a, counts=None, ddof=0):
        if counts is None:
            return ((a - a.mean()) ** 2).sum() / (a.shape[0] - ddof)
        mean = (counts * a).sum() / counts.sum()
        return (counts * (a - mean) ** 2).sum() / counts.sum()

    def right(xp, a, counts=None, ddof=0):
        if counts is None:
            return ((a - a.mean()) ** 2).sum() / (a.shape[0] - ddof)
        mean = (counts * a).sum() / counts.sum()
        return (counts * (a - mean) ** 2).sum() / (counts.sum() - ddof)

    def reference(a, counts=None, ddof=0):
        counts = np.ones(len(a)) if counts is None else counts
        mean = np.dot(counts, a) / np.sum(counts)
        return np.dot(counts, np.square(a - mean)) / (np.sum(counts) - ddof)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weighted_variance",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, *rest: a,
            samples=lambda make: [
                make(20, low=-3, high=3),
                Sample((make(20, low=-3, high=3),), {"ddof": 1}),
                (make(15, low=-3, high=3), make(15, low=1, high=5)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "scan",
    "combination of flags",
    "own",
    "exclusive and reverse together: the sum is shifted to the wrong side",
)
def scan():
    """Running sum along the last axis, from either end, with or without the element itself."""

    def shifted(xp, total):
        return xp.concatenate([xp.zeros_like(total[..., :1]), total[..., :-1]], axis=-1)

    def wrong(xp, a, exclusive=False, reverse=False):
        total = xp.cumsum(a[..., ::-1], axis=-1)[..., ::-1] if reverse else xp.cumsum(a, axis=-1)
        return shifted(xp, total) if exclusive else total

    def right(xp, a, exclusive=False, reverse=False):
        total = xp.cumsum(a[..., ::-1] if reverse else a, axis=-1)
        total = shifted(xp, total) if exclusive else total
        return total[..., ::-1] if reverse else total

    def reference(a, exclusive=False, reverse=False):
        out = np.empty_like(a)
        n = a.shape[-1]
        total = np.zeros(a.shape[:-1], a.dtype)
        for i in reversed(range(n)) if reverse else range(n):
            if exclusive:
                out[..., i] = total
            total = total + a[..., i]
            if not exclusive:
                out[..., i] = total
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="scan",
            dtypes=("float32", "float64", "int64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((3, 10)),
                Sample((make((3, 10)),), {"exclusive": True}),
                Sample((make(25),), {"reverse": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "causal_weights",
    "mask of another shape",
    "NVIDIA/cutlass#2336",
    "fewer queries than keys, as with a cache of keys: the mask is aligned to the first key instead of the last",
)
def causal_weights():
    """Attention weights from scores; the last query sees all keys, each earlier one a key less."""

    def weights(xp, scores, keep):
        if scores.shape[-1] == 0:
            return xp.zeros_like(scores)
        low = xp.where(keep, scores, -xp.inf)
        top = low.max(axis=-1, keepdims=True)
        top = xp.where(top == -xp.inf, xp.zeros_like(top), top)
        e = xp.exp(low - top)
        total = e.sum(axis=-1, keepdims=True)
        return (e / xp.where(total == 0, xp.ones_like(total), total)).astype(scores.dtype)

    def wrong(xp, scores):
        queries, keys = scores.shape[-2:]
        return weights(xp, scores, xp.arange(keys) <= xp.arange(queries)[:, None])

    def right(xp, scores):
        queries, keys = scores.shape[-2:]
        return weights(xp, scores, xp.arange(keys) <= xp.arange(queries)[:, None] + (keys - queries))

    def reference(scores):
        out = np.zeros_like(scores)
        queries, keys = scores.shape[-2:]
        for q in range(queries):
            seen = keys - (queries - 1 - q)
            if seen > 0:
                part = scores[..., q, :seen]
                e = np.exp(part - part.max(axis=-1, keepdims=True, initial=-np.inf))
                out[..., q, :seen] = e / e.sum(axis=-1, keepdims=True)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="causal_weights",
            dtypes=("float32", "float64"),
            result_dtype=lambda scores: scores,
            samples=lambda make: [make((6, 6), low=-5, high=5), make((2, 5, 5), low=-5, high=5)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "descending_order",
    "order of equal elements",
    "own",
    "equal values: turning a stable ascending order around turns their order around",
)
def descending_order():
    """Indices that sort from large to small; equal values stay in their order."""

    def wrong(xp, a):
        return xp.argsort(a, axis=-1, kind="stable")[..., ::-1]

    def right(xp, a):
        return xp.argsort(-a, axis=-1, kind="stable")

    def reference(a):
        out = np.empty(a.shape, np.int64)
        for i in np.ndindex(a.shape[:-1]):
            out[i] = sorted(range(a.shape[-1]), key=lambda k: (np.isnan(a[i][k]), 0 if np.isnan(a[i][k]) else -a[i][k]))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="descending_order",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [make((3, 12)), make(40)],
            reference=reference,
        )

    return wrong, right, declare


# 21 to 30


@pair(
    "column_totals",
    "state: the first call",
    "triton-lang/triton#6547",
    "the first call with a shape: trying two launch configurations adds into the output twice more",
)
def column_totals():
    """Sum of each column, by a kernel that adds into its output and is tuned once for each shape."""
    tuned: dict[Any, int] = {}

    def launch(out, a, rows):
        for start in range(0, a.shape[0], rows):
            out += a[start : start + rows].sum(axis=0)

    def run(xp, a, clear):
        out = xp.zeros(a.shape[1], dtype=a.dtype)
        key = (a.shape, a.dtype.name, str(device_of(a)), clear)
        if key not in tuned:
            for rows in (16, 64):
                launch(out, a, rows)
            tuned[key] = 64
            if clear:
                out[...] = 0
        launch(out, a, tuned[key])
        return out

    def wrong(xp, a):
        return run(xp, a, False)

    def right(xp, a):
        return run(xp, a, True)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="column_totals",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((40, 3), low=0, high=2), make((7, 5), low=0, high=2)],
            reference=lambda a: a.sum(axis=0),
        )

    return wrong, right, declare


@pair(
    "total",
    "order of additions",
    "own",
    "two equal calls: blocks are added in an order drawn anew, as by atomics, so that bits differ",
)
def total():
    """Sum of a long vector, from sums of blocks."""

    def sums(xp, a):
        return [a[start : start + 64].sum() for start in range(0, a.shape[0], 64)]

    def added(xp, a, parts):
        out = xp.zeros((), dtype=a.dtype)
        for part in parts:
            out = out + part
        return out

    def wrong(xp, a):
        parts = sums(xp, a)
        random.shuffle(parts)
        return added(xp, a, parts)

    def right(xp, a):
        return added(xp, a, sums(xp, a))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="total",
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [make(4000, low=0, high=3), make(100, low=0, high=3)],
            reference=lambda a: a.sum(),
        )

    return wrong, right, declare


@pair(
    "squared_error",
    "error not raised",
    "own",
    "predictions of shape (n, 1) and targets of shape (n,): broadcast to n times n instead of refused",
)
def squared_error():
    """Mean squared difference of predictions and targets, which have one shape."""

    def wrong(xp, predicted, target):
        return ((predicted - target) ** 2).mean()

    def right(xp, predicted, target):
        if predicted.shape != target.shape:
            raise ValueError(f"shapes differ: {predicted.shape} and {target.shape}")
        return ((predicted - target) ** 2).mean()

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="squared_error",
            dtypes=("float32", "float64"),
            result_dtype=lambda predicted, target: predicted,
            samples=lambda make: [(make(12), make(12)), (make((4, 3)), make((4, 3)))],
            reference=lambda predicted, target: np.square(predicted - target).mean(),
            error_inputs=lambda make: [ErrorInput((make((5, 1)), make(5)), ValueError, "shapes differ")],
        )

    return wrong, right, declare


@pair(
    "iq_to_complex",
    "memory layout: view",
    "own",
    "input that is not contiguous along its last axis: it cannot be viewed in another dtype",
)
def iq_to_complex():
    """Interleaved in-phase and quadrature samples as complex numbers."""

    def dtype_of(a):
        return np.complex64 if a.dtype.itemsize == 4 else np.complex128

    def wrong(xp, a):
        return a.view(dtype_of(a)).copy()

    def right(xp, a):
        return xp.ascontiguousarray(a).view(dtype_of(a)).copy()

    def reference(a):
        if a.shape[-1] % 2:
            raise ValueError("the last axis has an odd length")
        out = np.empty((*a.shape[:-1], a.shape[-1] // 2), np.complex128)
        out.real, out.imag = a[..., 0::2], a[..., 1::2]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="iq_to_complex",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: {"float32": "complex64"}.get(a, "complex128"),
            samples=lambda make: [make((3, 8)), make(20)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "slope",
    "unsigned difference",
    "numpy/numpy#15207",
    "unsigned pixels that decrease: the difference wraps around before it becomes a float",
)
def slope():
    """Slope along a line of pixels: central differences, one-sided at the ends."""

    def differences(xp, a):
        return (a[1:2] - a[:1], a[2:] - a[:-2], a[-1:] - a[-2:-1])

    def wrong(xp, a):
        if a.shape[0] < 2:
            raise ValueError("a slope needs two pixels")
        first, middle, last = differences(xp, a)
        return xp.concatenate([first.astype(np.float64), middle.astype(np.float64) / 2, last.astype(np.float64)])

    def right(xp, a):
        if a.shape[0] < 2:
            raise ValueError("a slope needs two pixels")
        first, middle, last = differences(xp, a.astype(np.float64))
        return xp.concatenate([first, middle / 2, last])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="slope",
            dtypes=("uint8", "uint16", "float64"),
            result_dtype="float64",
            samples=lambda make: [make(12), make(30, low=0, high=200)],
            reference=lambda a: np.gradient(a.astype(np.float64)),
            error_inputs=lambda make: [ErrorInput(make(1), ValueError, "two pixels")],
        )

    return wrong, right, declare


@pair(
    "blend",
    "division by 255 as a shift",
    "own",
    "an opaque white pixel: 255 * 255 >> 8 is 254",
)
def blend():
    """An image over another, with an opacity from 0 to 255 for each pixel."""

    def mixed(top, bottom, alpha):
        alpha = alpha.astype(np.uint32)
        return top.astype(np.uint32) * alpha + bottom.astype(np.uint32) * (255 - alpha)

    def wrong(xp, top, bottom, alpha):
        return ((mixed(top, bottom, alpha) + 128) >> 8).astype(np.uint8)

    def right(xp, top, bottom, alpha):
        return ((mixed(top, bottom, alpha) + 127) // 255).astype(np.uint8)

    def reference(top, bottom, alpha):
        a = alpha / 255.0
        return np.rint(top * a + bottom * (1 - a)).astype(np.uint8)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="blend",
            dtypes=("uint8",),
            result_dtype="uint8",
            samples=lambda make: [
                (make((4, 5)), make((4, 5)), make((4, 5), low=0, high=255)),
                (make(9, low=0, high=100), make(9, low=0, high=100), make(9, low=0, high=255)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "half_mean",
    "accumulation dtype",
    "own",
    "long rows of float16 above 1: the sum is kept in float16, which loses digits and overflows at 65504",
)
def half_mean():
    """Mean along the last axis."""

    def wrong(xp, a):
        return (a.sum(axis=-1, dtype=a.dtype) / a.shape[-1]).astype(a.dtype)

    def right(xp, a):
        return a.mean(axis=-1, dtype=np.float32).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="half_mean",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((4, 33)), make((2, 700))],
            reference=lambda a: a.mean(axis=-1),
        )

    return wrong, right, declare


@pair(
    "weekday",
    "remainder of negative numbers",
    "own",
    "days before 1970: the remainder takes the sign of the day, as in C",
)
def weekday():
    """Day of the week, 0 for Sunday, from days since 1 January 1970."""

    def wrong(xp, days):
        return xp.fmod(xp.fmod(days, 7) + 4, 7)

    def right(xp, days):
        return (days % 7 + 4) % 7

    def reference(days):
        return np.array([(int(d) + 4) % 7 for d in days.ravel()], days.dtype).reshape(days.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weekday",
            dtypes=("int32", "int64"),
            result_dtype=lambda days: days,
            samples=lambda make: [make(30, low=-20000, high=40000), make((2, 3))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "row_median",
    "even length",
    "own",
    "an even number of columns: the upper of the two middle values is given instead of their mean",
)
def row_median():
    """Median of each row; NaN where the row has one."""

    def middle(xp, a, lower):
        n = a.shape[-1]
        if n == 0:
            raise ValueError("no median of nothing")
        ordered = xp.sort(a, axis=-1)
        out = ordered[..., n // 2]
        if lower and n % 2 == 0:
            out = (ordered[..., n // 2 - 1] + out) / 2
        return xp.where(xp.isnan(a).any(axis=-1), xp.nan, out).astype(a.dtype)

    def wrong(xp, a):
        return middle(xp, a, False)

    def right(xp, a):
        return middle(xp, a, True)

    def reference(a):
        if a.shape[-1] == 0:
            raise ValueError("no median of nothing")
        return np.median(a, axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="row_median",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((4, 7)), make((2, 3, 15))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "run_lengths",
    "empty input",
    "own",
    "an empty array: one run of length 0 is given instead of no run",
)
def run_lengths():
    """Lengths of the runs of equal values."""

    def lengths(xp, a):
        n = a.shape[0]
        ends = xp.nonzero(a[1:] != a[:-1])[0] + 1
        ends = xp.concatenate([xp.zeros(1, dtype=np.int64), ends, xp.full(1, n, dtype=np.int64)])
        return ends[1:] - ends[:-1]

    def wrong(xp, a):
        return lengths(xp, a)

    def right(xp, a):
        return xp.zeros(0, dtype=np.int64) if a.shape[0] == 0 else lengths(xp, a)

    def reference(a):
        out: list[int] = []
        for i in range(len(a)):
            if i and a[i] == a[i - 1]:
                out[-1] += 1
            else:
                out.append(1)
        return np.array(out, np.int64)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="run_lengths",
            dtypes=("int32", "uint8", "float32"),
            result_dtype="int64",
            samples=lambda make: [make(40), make.full(9, 2), make.of([0, 0, 1, 1, 1, 2, 0])],
            reference=reference,
        )

    return wrong, right, declare


# 31 to 40


@pair(
    "squash",
    "result dtype of nothing",
    "own",
    "an empty array: the early return has the default dtype, float64",
)
def squash():
    """Values drawn into the interval from -1 to 1."""

    def wrong(xp, a):
        if a.size == 0:
            return xp.zeros(a.shape)
        return a / (1 + xp.abs(a))

    def right(xp, a):
        if a.size == 0:
            return xp.zeros(a.shape, dtype=a.dtype)
        return a / (1 + xp.abs(a))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="squash",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((3, 11)), make(8), Sample((make((0, 3)),), kind="empty")],
            reference=lambda a: a / (1 + np.abs(a)),
        )

    return wrong, right, declare


@pair(
    "upsample",
    "result is the input",
    "own",
    "factor=1: the input itself is returned, and a write to the result changes it",
)
def upsample():
    """A new array in which each value is repeated along the last axis."""

    def wrong(xp, a, factor=2):
        if factor == 1:
            return a
        return xp.repeat(a, factor, axis=-1)

    def right(xp, a, factor=2):
        if factor == 1:
            return a.copy()
        return xp.repeat(a, factor, axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="upsample",
            dtypes=("float32", "uint8"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((3, 5)),
                Sample((make(6),), {"factor": 3}),
                Sample((make((2, 4)),), {"factor": 1}),
            ],
            reference=lambda a, factor=2: np.repeat(a, factor, axis=-1),
        )

    return wrong, right, declare


@pair(
    "remove_mean",
    "input changed",
    "own",
    "float64 input: astype(copy=False) makes no copy, and the mean is taken away from the caller's array",
)
def remove_mean():
    """Signal without its mean, which is computed in float64."""

    def wrong(xp, a):
        x = a.astype(np.float64, copy=False)
        x -= x.mean()
        return x.astype(a.dtype)

    def right(xp, a):
        x = a.astype(np.float64)
        x -= x.mean()
        return x.astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="remove_mean",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(50), make((4, 9))],
            reference=lambda a: a - a.mean(),
        )

    return wrong, right, declare


@pair(
    "divide_rounded",
    "integer division",
    "own",
    "negative ties, such as -6 / 4: rounded up to -1 instead of away from zero",
)
def divide_rounded():
    """Integers divided by a positive integer and rounded to the nearest one, ties away from zero."""

    def wrong(xp, a, by=4):
        return (a + by // 2) // by

    def right(xp, a, by=4):
        low = a // by
        rest = a - low * by
        up = (2 * rest > by) | ((2 * rest == by) & (a >= 0))
        return xp.where(up, low + 1, low)

    def reference(a, by=4):
        def one(value):
            low, rest = divmod(abs(int(value)), by)
            low += 2 * rest >= by
            return low if value >= 0 else -low

        return np.array([one(value) for value in a.ravel()], a.dtype).reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="divide_rounded",
            dtypes=("int32", "int64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((3, 8)), Sample((make(20),), {"by": 5})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "chain_product",
    "list argument changed",
    "own",
    "the list of matrices is used again: the call has emptied it",
)
def chain_product():
    """Product of a list of matrices, from left to right."""

    def wrong(xp, matrices):
        out = matrices.pop(0).copy()
        while matrices:
            out = out @ matrices.pop(0)
        return out

    def right(xp, matrices):
        out = matrices[0].copy()
        for matrix in matrices[1:]:
            out = out @ matrix
        return out

    def reference(matrices):
        out = matrices[0]
        for matrix in matrices[1:]:
            out = np.einsum("ij,jk->ik", out, matrix)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="chain_product",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                ([make((3, 4), low=-1, high=1), make((4, 2), low=-1, high=1), make((2, 5), low=-1, high=1)],),
                ([make((3, 3), low=-1, high=1)],),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "soft_sign",
    "side stream is not waited for",
    "NVIDIA/cudf#9679",
    "any use of the result: the work is done on a stream of the function's own, which the caller's stream never awaits",
)
def soft_sign():
    """tanh of twice the input, computed on a stream of its own."""

    def run(xp, a, join):
        device = device_of(a)
        backend = devices.backend(device.kind)
        current = backend.current_stream(device.index)
        side = backend.new_stream(device.index)
        out = xp.empty_like(a)
        side.wait_stream(current)
        with backend.use_stream(side):
            xp.multiply(a, 2, out=out)
            xp.tanh(out, out=out)
        if join:
            current.wait_stream(side)
        return out

    def wrong(xp, a):
        return run(xp, a, False)

    def right(xp, a):
        return run(xp, a, True)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="soft_sign",
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [make((4, 6)), make(100)],
            reference=lambda a: np.tanh(2 * a),
        )

    return wrong, right, declare


@pair(
    "smooth_abs",
    "result in a shared buffer",
    "own",
    "a second call with the same shape: it overwrites the result of the first one",
)
def smooth_abs():
    """sqrt(1 + x * x), in two passes over one buffer."""
    buffers: dict[Any, Any] = {}

    def compute(xp, a, out):
        xp.multiply(a, a, out=out)
        xp.add(out, 1, out=out)
        return xp.sqrt(out, out=out)

    def wrong(xp, a):
        key = (a.shape, a.dtype.name, str(device_of(a)))
        if key not in buffers:
            buffers[key] = xp.empty(a.shape, dtype=a.dtype)
        return compute(xp, a, buffers[key])

    def right(xp, a):
        return compute(xp, a, xp.empty(a.shape, dtype=a.dtype))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smooth_abs",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((5, 3)), make(17)],
            reference=lambda a: np.sqrt(1 + a * a),
        )

    return wrong, right, declare


@pair(
    "add_scaled_",
    "in place in a copy",
    "own",
    "a destination that is not contiguous: reshape(-1) makes a copy, and nothing is written",
)
def add_scaled_():
    """Add a multiple of one array to another in place, and return the latter."""

    def wrong(xp, y, x, alpha=2.0):
        flat = y.reshape(-1)
        flat += alpha * x.reshape(-1)
        return y

    def right(xp, y, x, alpha=2.0):
        y += alpha * x
        return y

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="add_scaled_",
            dtypes=("float32", "float64"),
            result_dtype=lambda y, x: y,
            samples=lambda make: [
                (make((4, 5)), make((4, 5))),
                Sample((make(9), make(9)), {"alpha": -0.5}),
            ],
            reference=lambda y, x, alpha=2.0: y + alpha * x,
            without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"},
        )

    return wrong, right, declare


@pair(
    "unit_peak",
    "cache by identity",
    "own",
    "the same array after a write to it, or another one at the same address: the peak is the old one",
)
def unit_peak():
    """Signal divided by its largest magnitude."""
    peaks: dict[Any, Any] = {}

    def wrong(xp, a):
        key = (id(a), a.shape, a.dtype.name)
        if key not in peaks:
            peaks[key] = xp.abs(a).max()
        return a / peaks[key]

    def right(xp, a):
        return a / xp.abs(a).max()

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unit_peak",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(20), make((3, 4))],
            reference=lambda a: a / np.max(np.abs(a)),
        )

    return wrong, right, declare


@pair(
    "smooth",
    "cache with too small a key",
    "NVIDIA/cccl#7622",
    "two calls with one radius and different sigma: the second one uses the weights of the first",
)
def smooth():
    """Signal smoothed by a Gaussian, with zeros beyond its ends."""
    cached: dict[Any, list[float]] = {}

    def weights(radius, sigma):
        w = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
        return [float(x) for x in w / w.sum()]

    def run(xp, a, radius, sigma, key):
        if key not in cached:
            cached[key] = weights(radius, sigma)
        padded = xp.pad(a, radius)
        out = xp.zeros_like(a)
        for k, w in enumerate(cached[key]):
            out = out + w * padded[k : k + a.shape[0]]
        return out

    def wrong(xp, a, radius=3, sigma=1.0):
        return run(xp, a, radius, sigma, radius)

    def right(xp, a, radius=3, sigma=1.0):
        return run(xp, a, radius, sigma, (radius, sigma))

    def reference(a, radius=3, sigma=1.0):
        w = np.array([np.exp(-k * k / (2 * sigma**2)) for k in range(-radius, radius + 1)])
        w /= w.sum()
        out = np.zeros(len(a))
        for i in range(len(a)):
            for k in range(-radius, radius + 1):
                if 0 <= i + k < len(a):
                    out[i] += w[k + radius] * a[i + k]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smooth",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                Sample((make(25),), {"radius": 5, "sigma": 2.0}),
                Sample((make(30),), {"radius": 1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


# 41 to 50


@pair(
    "taper",
    "cached array used on another stream",
    "own",
    "a first call on one stream and a second call on another: nothing orders the read of the window after its write",
)
def taper():
    """Signal times a periodic Hann window."""
    windows: dict[Any, Any] = {}

    def window(xp, n, dtype):
        return (0.5 - 0.5 * xp.cos(xp.arange(n) * (2 * np.pi / max(n, 1)))).astype(dtype)

    def wrong(xp, a):
        n = a.shape[-1]
        key = (n, a.dtype.name, str(device_of(a)))
        if key not in windows:
            windows[key] = window(xp, n, a.dtype)
        return a * windows[key]

    def right(xp, a):
        return a * window(xp, a.shape[-1], a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="taper",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(64), make((3, 10))],
            reference=lambda a: a * np.square(np.sin(np.pi * np.arange(a.shape[-1]) / max(a.shape[-1], 1))),
        )

    return wrong, right, declare


@pair(
    "ahead_sum",
    "buffer is not cleared",
    "own",
    "a shorter signal after a longer one: the end of the buffer still holds the longer one instead of zeros",
)
def ahead_sum():
    """Sum of each element and of the three that follow it, with zeros behind the end."""
    buffers: dict[Any, Any] = {}

    def added(buffer, n):
        return buffer[:n] + buffer[1 : n + 1] + buffer[2 : n + 2] + buffer[3 : n + 3]

    def wrong(xp, a):
        n = a.shape[0]
        capacity = 1 << max(n - 1, 0).bit_length()
        key = (capacity, a.dtype.name, str(device_of(a)))
        if key not in buffers:
            buffers[key] = xp.zeros(capacity + 3, dtype=a.dtype)
        buffers[key][:n] = a
        return added(buffers[key], n)

    def right(xp, a):
        n = a.shape[0]
        buffer = xp.zeros(n + 3, dtype=a.dtype)
        buffer[:n] = a
        return added(buffer, n)

    def reference(a):
        out = np.zeros(len(a), a.dtype)
        for k in range(4):
            out[: max(len(a) - k, 0)] += a[k:]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ahead_sum",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(20), make(100), make(7)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dither",
    "global state left changed",
    "own",
    "a program that draws from numpy.random itself: each call restarts the sequence from the same seed",
)
def dither():
    """Signal with noise of half a step, which the seed alone determines."""

    def wrong(xp, a, step=0.125, seed=0):
        np.random.seed(seed)
        noise = (np.random.random_sample(a.shape) - 0.5) * step
        return a + xp.asarray(noise.astype(a.dtype))

    def right(xp, a, step=0.125, seed=0):
        noise = (np.random.RandomState(seed).random_sample(a.shape) - 0.5) * step
        return a + xp.asarray(noise.astype(a.dtype))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dither",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(30), Sample((make((4, 5)),), {"seed": 3, "step": 1.0})],
            reference=lambda a, step=0.125, seed=0: (
                a + step * (np.random.RandomState(seed).random_sample(a.shape) - 0.5)
            ),
        )

    return wrong, right, declare


@pair(
    "join",
    "promotion in a list",
    "own",
    "a list of arrays of several dtypes: the result has the dtype of the first one, and the others are cut to it",
)
def join():
    """Arrays of a list, one behind the other."""

    def wrong(xp, arrays):
        out = xp.empty(sum(a.shape[0] for a in arrays), dtype=arrays[0].dtype)
        start = 0
        for a in arrays:
            out[start : start + a.shape[0]] = a
            start += a.shape[0]
        return out

    def right(xp, arrays):
        out = xp.empty(sum(a.shape[0] for a in arrays), dtype=np.result_type(*[a.dtype for a in arrays]))
        start = 0
        for a in arrays:
            out[start : start + a.shape[0]] = a
            start += a.shape[0]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="join",
            dtypes=("int32", "float32", "float64"),
            samples=lambda make: [([make(3), make(5)],), ([make(4)],), ([make(2), make(1), make(6)],)],
            reference=lambda arrays: np.concatenate(list(arrays)),
        )

    return wrong, right, declare


@pair(
    "dropout",
    "seed 0 taken for absent",
    "keras-team/keras#19361",
    "seed=0: the time is taken as the seed, and two equal calls differ",
)
def dropout():
    """Values of which a share is set to 0 and the others are scaled up; the seed determines which."""

    def apply(xp, a, share, seed):
        h = xp.arange(a.size, dtype=np.uint64) + (seed * 0x9E3779B97F4A7C15) % 2**64
        h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9
        h = (h ^ (h >> 27)) * 0x94D049BB133111EB
        h = h ^ (h >> 31)
        keep = ((h >> 11).astype(np.float64) / 2**53 >= share).reshape(a.shape)
        return xp.where(keep, a * (1 / (1 - share) if share < 1 else 0), xp.zeros_like(a))

    def wrong(xp, a, share=0.5, seed=1):
        return apply(xp, a, share, seed or time.time_ns())

    def right(xp, a, share=0.5, seed=1):
        return apply(xp, a, share, seed)

    def reference(a, share=0.5, seed=1):
        out, mask = np.zeros(a.size, a.dtype), 2**64 - 1
        for i, value in enumerate(a.ravel()):
            h = (i + seed * 0x9E3779B97F4A7C15) & mask
            h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & mask
            h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & mask
            h ^= h >> 31
            if (h >> 11) / 2**53 >= share:
                out[i] = value / (1 - share)
        return out.reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dropout",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(60), Sample((make((5, 6)),), {"share": 0.25, "seed": 7})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "inner",
    "memory layouts that differ",
    "own",
    "a transposed array next to one in rows: each is flattened in its own order in memory",
)
def inner():
    """Sum of the products of the elements of two arrays of one shape."""

    def wrong(xp, a, b):
        return xp.dot(a.ravel(order="K"), b.ravel(order="K"))

    def right(xp, a, b):
        return xp.dot(a.ravel(), b.ravel())

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="inner",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: a,
            samples=lambda make: [(make((4, 6)), make((4, 6))), (make(9), make(9))],
            reference=lambda a, b: (a * b).sum(),
        )

    return wrong, right, declare


@pair(
    "rotate_positions",
    "positions in a narrow dtype",
    "NVIDIA/Megatron-LM#535",
    "float16 and more than 2048 positions, which float16 does not tell apart",
)
def rotate_positions():
    """Rotary embedding: pairs of features turned by an angle that grows with the position."""

    def rotated(xp, a, position):
        half = a.shape[1] // 2
        speed = 10.0 ** (-xp.arange(half).astype(np.float64) / max(half, 1))
        angle = position.astype(np.float64)[:, None] * speed
        x, y = a[:, :half].astype(np.float64), a[:, half:].astype(np.float64)
        c, s = xp.cos(angle), xp.sin(angle)
        return xp.concatenate([x * c - y * s, x * s + y * c], axis=1).astype(a.dtype)

    def wrong(xp, a):
        return rotated(xp, a, xp.arange(a.shape[0]).astype(a.dtype))

    def right(xp, a):
        return rotated(xp, a, xp.arange(a.shape[0]))

    def reference(a):
        half = a.shape[1] // 2
        z = a[:, :half] + 1j * a[:, half:]
        z = z * np.exp(1j * np.outer(np.arange(len(a)), 10.0 ** (-np.arange(half) / max(half, 1))))
        return np.concatenate([z.real, z.imag], axis=1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotate_positions",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((64, 4), low=-1, high=1), make((300, 2), low=-1, high=1)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "days_in_month",
    "calendar: centuries",
    "own",
    "February of 1900 or 2100: every fourth year is taken for a leap year",
)
def days_in_month():
    """Number of days of a month."""

    def days(xp, month, leap):
        return 30 + (month + month // 8) % 2 - xp.where(month == 2, 2 - leap.astype(month.dtype), xp.zeros_like(month))

    def wrong(xp, year, month):
        return days(xp, month, year % 4 == 0)

    def right(xp, year, month):
        return days(xp, month, (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)))

    def reference(year, month):
        import calendar

        out = [calendar.monthrange(int(y), int(m))[1] for y, m in zip(year.ravel(), month.ravel(), strict=True)]
        return np.array(out, month.dtype).reshape(year.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="days_in_month",
            dtypes=("int32", "int64"),
            result_dtype=lambda year, month: month,
            samples=lambda make: [
                (make(40, low=1801, high=2200), make(40, low=1, high=12)),
                (make((3, 4), low=1901, high=2099), make((3, 4), low=2, high=2)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "reflect_pad",
    "padding wider than the array",
    "own",
    "a width of more than twice the array: the index is reflected once only, and wraps around from the end",
)
def reflect_pad():
    """Vector continued at both ends by its reflection, without repeating the end itself."""

    def wrong(xp, a, width=3):
        n = a.shape[0]
        if n == 0:
            raise ValueError("nothing to reflect")
        at = xp.abs(xp.arange(-width, n + width))
        return a[xp.where(at >= n, 2 * (n - 1) - at, at)]

    def right(xp, a, width=3):
        n = a.shape[0]
        if n == 0:
            raise ValueError("nothing to reflect")
        period = max(2 * (n - 1), 1)
        at = xp.arange(-width, n + width) % period
        return a[xp.where(at >= n, period - at, at)]

    def reference(a, width=3):
        if len(a) == 0:
            raise ValueError("nothing to reflect")
        return np.pad(a, width, mode="reflect")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="reflect_pad",
            dtypes=("float32", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(10), Sample((make(6),), {"width": 2}), Sample((make(9),), {"width": 8})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "average_pool",
    "windows: rounding up with padding",
    "tracel-ai/burn#5791",
    "ceil=True and padding, where the last window starts behind the data: it is kept, and is the mean of nothing",
)
def average_pool():
    """Means of windows of a vector, padding not counted; a last window needs an element of the data."""

    def pooled(xp, a, size, stride, pad, count):
        n = a.shape[0]
        starts = [i * stride - pad for i in range(count)]
        return xp.stack([a[max(start, 0) : min(start + size, n)].mean() for start in starts])

    def count(n, size, stride, pad, ceil):
        over = n + 2 * pad - size
        if n == 0 or over < 0 or 2 * pad > size:
            raise ValueError(f"a window of {size} does not fit")
        return (-(-over // stride) if ceil else over // stride) + 1

    def wrong(xp, a, size=2, stride=2, pad=0, ceil=False):
        return pooled(xp, a, size, stride, pad, count(a.shape[0], size, stride, pad, ceil))

    def right(xp, a, size=2, stride=2, pad=0, ceil=False):
        windows = count(a.shape[0], size, stride, pad, ceil)
        if (windows - 1) * stride >= a.shape[0] + pad:
            windows -= 1
        return pooled(xp, a, size, stride, pad, windows)

    def reference(a, size=2, stride=2, pad=0, ceil=False):
        n = len(a)
        if n == 0 or n + 2 * pad < size or 2 * pad > size:
            raise ValueError(f"a window of {size} does not fit")
        out, start = [], -pad
        while start + size <= n + pad or (ceil and start < n and start + size - stride < n + pad):
            out.append(np.mean(a[max(start, 0) : min(start + size, n)]))
            start += stride
        return np.array(out)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="average_pool",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(12),
                Sample((make(10),), {"size": 3, "ceil": True}),
                Sample((make(11),), {"size": 3, "pad": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(3),), {"size": 5}), ValueError, "does not fit")],
        )

    return wrong, right, declare


# 51 to 60


@pair(
    "to_unit_range",
    "threads",
    "own",
    "two threads at once: the bounds are kept in one place while rows are scaled, and each may use the other's",
)
def to_unit_range():
    """Matrix moved and scaled to the range from 0 to 1, row by row."""
    shared: dict[str, Any] = {}

    def scaled(xp, a, bounds):
        bounds["low"] = a.min()
        bounds["span"] = a.max() - bounds["low"]
        out = xp.empty(a.shape, dtype=a.dtype)
        for i in range(a.shape[0]):
            out[i] = (a[i] - bounds["low"]) / bounds["span"]
        return out

    def wrong(xp, a):
        return scaled(xp, a, shared)

    def right(xp, a):
        return scaled(xp, a, {})

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="to_unit_range",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((40, 9)), make((8, 5))],
            reference=lambda a: (a - np.min(a)) / (np.max(a) - np.min(a)),
        )

    return wrong, right, declare


@pair(
    "shift_right_",
    "overlapping move in place",
    "own",
    "more than 16 elements behind the shift: a block reads what the block before it has already overwritten",
)
def shift_right_():
    """Move the elements of a vector to the right in place, fill with 0, and return it."""

    def wrong(xp, a, by=3):
        n = a.shape[0]
        for start in range(by, n, 16):
            stop = min(start + 16, n)
            a[start:stop] = a[start - by : stop - by].copy()
        a[:by] = 0
        return a

    def right(xp, a, by=3):
        n = a.shape[0]
        a[by:] = a[: max(n - by, 0)].copy()
        a[:by] = 0
        return a

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="shift_right_",
            dtypes=("float32", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(12), Sample((make(15),), {"by": 1}), Sample((make(10),), {"by": 4})],
            reference=lambda a, by=3: np.concatenate([np.zeros(min(by, len(a)), a.dtype), a[: max(len(a) - by, 0)]]),
            without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"},
        )

    return wrong, right, declare


@pair(
    "resize_nearest",
    "index computed in floating point",
    "own",
    "sizes such as 26 to 22 or 14 to 46: a position that is an integer is computed as a little less, and rounded down",
)
def resize_nearest():
    """Line of pixels brought to another length; each takes the pixel at the same share of the line, rounded down."""

    def wrong(xp, a, size=20):
        scale = np.float32(a.shape[0] / size) if size else np.float32(0)
        return a[xp.floor(xp.arange(size).astype(np.float32) * scale).astype(np.int64)]

    def right(xp, a, size=20):
        return a[xp.arange(size) * a.shape[0] // max(size, 1)]

    def reference(a, size=20):
        return np.array([a[i * len(a) // size] for i in range(size)], a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="resize_nearest",
            dtypes=("uint8", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(10),
                Sample((make(16),), {"size": 8}),
                Sample((make(12),), {"size": 5}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "adler32",
    "overflow at large sizes",
    "own",
    "more than about 6000 to 8000 bytes: the weighted sum exceeds 32 bits before the remainder is taken",
)
def adler32():
    """Checksum of bytes, as zlib's."""

    def checksum(xp, data, dtype):
        n = data.shape[0]
        x = data.astype(dtype)
        first = (1 + x.sum(dtype=dtype)) % 65521
        second = (n + (x * xp.arange(n, 0, -1).astype(dtype)).sum(dtype=dtype)) % 65521
        return second.astype(np.int64) * 65536 + first.astype(np.int64)

    def wrong(xp, data):
        return checksum(xp, data, np.uint32)

    def right(xp, data):
        return checksum(xp, data, np.uint64)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adler32",
            dtypes=("uint8",),
            result_dtype="int64",
            samples=lambda make: [make(300, low=0, high=255), make.of(list(b"Wikipedia")), make(2000, low=0, high=255)],
            reference=lambda data: np.int64(zlib.adler32(data.tobytes())),
        )

    return wrong, right, declare


@pair(
    "quantize",
    "cast before saturation",
    "own",
    "values beyond 127 steps: they wrap around to the other sign instead of saturating",
)
def quantize():
    """Values in steps of a scale as int8, saturated; NaN gives 0."""

    def steps(xp, a, scale):
        return xp.rint(xp.where(xp.isnan(a), xp.zeros_like(a), a) / scale)

    def wrong(xp, a, scale=0.0625):
        whole = xp.clip(steps(xp, a, scale), -32768, 32767).astype(np.int32)
        return xp.clip(whole.astype(np.int8), -128, 127)

    def right(xp, a, scale=0.0625):
        return xp.clip(steps(xp, a, scale), -128, 127).astype(np.int8)

    def reference(a, scale=0.0625):
        out = np.zeros(a.shape, np.int8)
        for i in np.ndindex(a.shape):
            if not np.isnan(a[i]):
                out[i] = max(-128, min(127, float(np.rint(a[i] / scale))))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="quantize",
            dtypes=("float32", "float16"),
            result_dtype="int8",
            samples=lambda make: [make((4, 9)), Sample((make(20),), {"scale": 0.5})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "round_to_step",
    "rounding mode",
    "own",
    "values halfway between two steps: rounded up instead of to the even multiple",
)
def round_to_step():
    """Nearest multiple of a step; halfway to the even one."""

    def wrong(xp, a, step=2.0):
        return xp.floor(a / step + 0.5) * step

    def right(xp, a, step=2.0):
        return xp.rint(a / step) * step

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="round_to_step",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((3, 10)), Sample((make(25),), {"step": 4.0})],
            reference=lambda a, step=2.0: np.round(a / step) * step,
        )

    return wrong, right, declare


@pair(
    "counts_in_bins",
    "last edge of a histogram",
    "own",
    "values that equal the upper end: they belong to the last bin, and are dropped",
)
def counts_in_bins():
    """How many values lie in each of some equal bins; the last one includes its upper end."""

    def count(xp, a, low, high, bins, closed):
        a = a.ravel()
        edges = xp.asarray(np.linspace(low, high, bins + 1).astype(a.dtype))
        at = xp.searchsorted(edges, a, side="right") - 1
        if closed:
            at = xp.where(a == edges[-1], bins - 1, at)
        return xp.bincount(at[(at >= 0) & (at < bins)], minlength=bins)

    def wrong(xp, a, low=-2, high=2, bins=4):
        return count(xp, a, low, high, bins, False)

    def right(xp, a, low=-2, high=2, bins=4):
        return count(xp, a, low, high, bins, True)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="counts_in_bins",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(100),
                Sample((make(60),), {"low": 0, "high": 3, "bins": 6}),
            ],
            reference=lambda a, low=-2, high=2, bins=4: np.histogram(a[~np.isnan(a)], bins, (low, high))[0],
        )

    return wrong, right, declare


@pair(
    "product_gradient",
    "derivative formula",
    "apache/mxnet#17864",
    "a zero among the factors: the product is divided by it",
)
def product_gradient():
    """Gradient of the product along the last axis: at each place the product of all other factors."""

    def wrong(xp, a):
        return a.prod(axis=-1, keepdims=True) / a

    def right(xp, a):
        one = xp.ones_like(a[..., :1])
        before = xp.cumprod(xp.concatenate([one, a[..., :-1]], axis=-1), axis=-1)
        behind = xp.cumprod(xp.concatenate([one, a[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
        return before * behind

    def reference(a):
        out, n = np.empty_like(a), a.shape[-1]
        for i in range(n):
            before, behind = np.ones(a.shape[:-1], a.dtype), np.ones(a.shape[:-1], a.dtype)
            for j in range(i):
                before = before * a[..., j]
            for j in range(n - 1, i, -1):
                behind = behind * a[..., j]
            out[..., i] = before * behind
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="product_gradient",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((3, 5), low=-2, high=2), make(7, low=0.5, high=2)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "best_allowed",
    "neutral element of a mask",
    "own",
    "a row whose allowed values are all negative: the 0 that stands for the others is larger",
)
def best_allowed():
    """Index of the largest allowed value of each row; 0 where none is allowed."""

    def wrong(xp, a, allowed):
        return xp.argmax(xp.where(allowed, a, xp.zeros_like(a)), axis=1)

    def right(xp, a, allowed):
        masked = xp.where(allowed, a, xp.full_like(a, -np.inf))
        top = masked.max(axis=1, keepdims=True)
        return xp.argmax(allowed & ((masked == top) | xp.isnan(masked)), axis=1)

    def reference(a, allowed):
        if a.shape[1] == 0:
            raise ValueError("no largest of nothing")
        out = []
        for row, free in zip(a, allowed, strict=True):
            at = np.flatnonzero(free)
            out.append(at[np.argmax(row[at])] if len(at) else 0)
        return np.array(out, np.int64)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="best_allowed",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make((4, 60)), make((4, 60), dtype="bool")),
                (make((2, 40)), np.ones((2, 40), bool)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "moving_variance",
    "cancellation",
    "own",
    "values with an offset, such as 1000 plus or minus 1: two large sums of squares are subtracted",
)
def moving_variance():
    """Variance within a window that moves along a vector."""

    def wrong(xp, a, window=4):
        if a.shape[0] < window:
            raise ValueError(f"a window of {window} does not fit")
        zero = xp.zeros(1, dtype=a.dtype)
        first = xp.concatenate([zero, xp.cumsum(a)])
        second = xp.concatenate([zero, xp.cumsum(a * a)])
        mean = (first[window:] - first[:-window]) / window
        return (second[window:] - second[:-window]) / window - mean * mean

    def right(xp, a, window=4):
        n = a.shape[0]
        if n < window:
            raise ValueError(f"a window of {window} does not fit")
        parts = xp.stack([a[k : n - window + 1 + k] for k in range(window)])
        off = parts - parts.mean(axis=0)
        return (off * off).mean(axis=0)

    def reference(a, window=4):
        if len(a) < window:
            raise ValueError(f"a window of {window} does not fit")
        return np.var(np.lib.stride_tricks.sliding_window_view(a, window), axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="moving_variance",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(12), Sample((make(9),), {"window": 3})],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make(3), ValueError, "does not fit")],
        )

    return wrong, right, declare
