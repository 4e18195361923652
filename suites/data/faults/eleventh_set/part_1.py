"""Reductions, statistics, linear algebra, sparse, scans, sorting, integers and bits, histograms: twenty faults with their twins."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay import Device, devices  # noqa: F401
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
    "moving_sum",
    "running total remembers what left the window",
    "pandas rolling sum / bottleneck move_sum: inf and NaN poison later windows",
    "a NaN or an infinity (or one huge number) early in the row: every later window is NaN (or rounded away)",
)
def moving_sum():
    """Sums of all windows of `window` neighbours along the last axis."""

    def check(window):
        if window < 1:
            raise ValueError(f"window is {window}; give 1 or more")

    def wrong(xp, a, window=4):
        check(window)
        wide = a.astype("complex128" if a.dtype.kind == "c" else "float64")
        zero = xp.zeros(a.shape[:-1] + (1,), dtype=wide.dtype)
        totals = xp.cumsum(xp.concatenate([zero, wide], axis=-1), axis=-1)
        count = max(a.shape[-1] - window + 1, 0)
        return (totals[..., window : window + count] - totals[..., :count]).astype(a.dtype)

    def right(xp, a, window=4):
        check(window)
        wide = a.astype("complex128" if a.dtype.kind == "c" else "float64")
        count = max(a.shape[-1] - window + 1, 0)
        out = xp.zeros(a.shape[:-1] + (count,), dtype=wide.dtype)
        if count:
            for i in range(window):
                out = out + wide[..., i : i + count]
        return out.astype(a.dtype)

    def reference(a, window=4):
        count = max(a.shape[-1] - window + 1, 0)
        if not count:
            return np.zeros(a.shape[:-1] + (0,), a.dtype)
        return np.lib.stride_tricks.sliding_window_view(a, window, axis=-1).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="moving_sum",
            dtypes=("float32", "complex64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                Sample((make((3, 33)),), {"window": 3}),
                Sample((make((2, 70)),), {"window": 16}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"window": 0}), ValueError, "window is 0")],
        )

    return wrong, right, declare


@pair(
    "logcumsumexp",
    "infinity minus infinity in a combine step",
    "PyTorch logcumsumexp: NaN where the inputs are -inf",
    "two -inf (log of 0) or two +inf next to each other: NaN from there on instead of -inf or inf",
)
def logcumsumexp():
    """Running log of the sum of exponentials, by doubling steps."""

    def scan(xp, a, combine):
        out = a.copy()
        step = 1
        while step < a.shape[-1]:
            out = xp.concatenate([out[..., :step], combine(out[..., step:], out[..., :-step])], axis=-1)
            step *= 2
        return out

    def wrong(xp, a):
        def combine(x, y):
            return xp.maximum(x, y) + xp.log1p(xp.exp(-xp.abs(x - y)))

        return scan(xp, a, combine)

    def right(xp, a):
        return scan(xp, a, xp.logaddexp)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="logcumsumexp",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(40), make((3, 65))],
            reference=lambda a: np.logaddexp.accumulate(a, axis=-1),
        )

    return wrong, right, declare


@pair(
    "uniform_histogram",
    "bin by arithmetic, edges by linspace",
    "NumPy histogram (wrong bin for values on an edge, fixed by comparing with the edges), CuPy and JAX histogram",
    "values equal to an inner bin edge, such as np.linspace(-2, 2, 8) with bins=7, or one bit below an edge (float64)",
)
def uniform_histogram():
    """Counts in equal bins of [low, high], as np.histogram: the last bin is closed."""

    def count(xp, x, index, bins, low, high):
        keep = (x >= low) & (x <= high)
        index = xp.where(x == high, bins - 1, index)
        return xp.bincount(xp.where(keep, index, bins), minlength=bins + 1)[:bins]

    def wrong(xp, a, bins=10, low=0.0, high=1.0):
        x = a.reshape(-1).astype("float64")
        inside = xp.where((x >= low) & (x <= high), x, low)
        index = xp.floor((inside - low) * (bins / (high - low))).astype("int64")
        return count(xp, x, index, bins, low, high)

    def right(xp, a, bins=10, low=0.0, high=1.0):
        x = a.reshape(-1).astype("float64")
        edges = xp.linspace(low, high, bins + 1)
        index = xp.searchsorted(edges, x, side="right").astype("int64") - 1
        return count(xp, x, index, bins, low, high)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="uniform_histogram",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(200, low=0, high=1),
                Sample((make((5, 33)),), {"bins": 7, "low": -2.0, "high": 2.0}),
                Sample((make(100, low=-1, high=1),), {"bins": 6, "low": -0.3, "high": 0.6}),
            ],
            reference=lambda a, bins=10, low=0.0, high=1.0: np.histogram(a, bins, (low, high))[0].astype(np.int64),
        )

    return wrong, right, declare


@pair(
    "argsort_descending",
    "stable order lost by reversing",
    "array-api-compat argsort(descending=True, stable=True); scikit-learn ranking of ties",
    "equal values (ties, also 0.0 and -0.0, several NaN): their indices come in falling order",
)
def argsort_descending():
    """Indices that sort the last axis from large to small, stable, NaN first."""

    def wrong(xp, a):
        return xp.argsort(a, axis=-1, kind="stable")[..., ::-1].copy()

    def right(xp, a):
        return a.shape[-1] - 1 - xp.argsort(a[..., ::-1], axis=-1, kind="stable")[..., ::-1]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="argsort_descending",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [make(40), make((3, 57))],
            reference=lambda a: np.lexsort((-a, ~np.isnan(a)), axis=-1),
        )

    return wrong, right, declare


@pair(
    "coo_row_pointers",
    "size inferred from the data",
    "coo-to-csr conversions: trailing empty rows lost (cuDF/RAFT and scikit-learn-like helpers)",
    "the last row(s) hold no entry, or there is no entry at all: the pointers are too few",
)
def coo_row_pointers():
    """Row pointers of the CSR form, from the row of each entry."""

    def wrong(xp, rows, n_rows=4):
        ends = xp.cumsum(xp.bincount(rows)).astype("int64")
        return xp.concatenate([xp.zeros(1, dtype="int64"), ends])

    def right(xp, rows, n_rows=4):
        ends = xp.cumsum(xp.bincount(rows, minlength=n_rows)).astype("int64")
        return xp.concatenate([xp.zeros(1, dtype="int64"), ends])

    def reference(rows, n_rows=4):
        return np.array([int((rows < i).sum()) for i in range(n_rows + 1)], np.int64)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="coo_row_pointers",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make.of([0, 0, 1, 3, 3, 3]),
                Sample((make(60, low=0, high=5),), {"n_rows": 6}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "gray_decode",
    "steps for 32 bits used for 64",
    "own",
    "uint64 numbers of 2**32 and more: the high half does not reach the low half",
)
def gray_decode():
    """The number whose Gray code is given, by folding shifts."""

    def wrong(xp, a):
        out = a.copy()
        for step in (1, 2, 4, 8, 16):
            if step < 8 * a.dtype.itemsize:
                out = out ^ (out >> step)
        return out

    def right(xp, a):
        out = a.copy()
        for step in (1, 2, 4, 8, 16, 32):
            if step < 8 * a.dtype.itemsize:
                out = out ^ (out >> step)
        return out

    def reference(a):
        out, rest = a.copy(), a >> 1
        while rest.any():
            out, rest = out ^ rest, rest >> 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gray_decode",
            dtypes=("uint8", "uint16", "uint32", "uint64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(40), make((3, 17), low=0, high=200)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "isqrt",
    "exact integers by way of float64",
    "CPython math.isqrt was added for it; NumPy and JAX users' floor(sqrt(n))",
    "numbers just below a large square, such as (2**27 + 1)**2 - 1: one too large",
)
def isqrt():
    """The largest integer whose square is not larger."""
    last = math.isqrt(2**63 - 1)

    def wrong(xp, a):
        return xp.sqrt(a.astype("float64")).astype("int64")

    def right(xp, a):
        root = xp.minimum(xp.sqrt(a.astype("float64")).astype("int64"), last)
        root = root - (root * root > a).astype("int64")
        above = xp.minimum(root + 1, last)
        return xp.where(above * above <= a, above, root)

    def reference(a):
        return np.array([math.isqrt(int(number)) for number in a.reshape(-1)], np.int64).reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="isqrt",
            dtypes=("int64",),
            result_dtype="int64",
            samples=lambda make: [make(40, low=0, high=10_000), make((3, 33), low=0, high=2**62)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "linear_weighted_mean",
    "cache key lacks the dtype",
    "CuPy's and SciPy's FFT plan caches; librosa filter caches",
    "float32 and float64 calls with rows of one length in one process: the second gets the first one's weights (digits lost, or a float64 result)",
)
def linear_weighted_mean():
    """Mean of each row with weights that grow linearly; weights are kept on the host."""
    kept_wrong: dict[int, Any] = {}
    kept_right: dict[tuple[int, str], Any] = {}

    def weights(count, dtype):
        return (2 * np.arange(1, count + 1) / max(count * (count + 1), 1)).astype(dtype)

    def wrong(xp, a):
        count = a.shape[-1]
        if count not in kept_wrong:
            kept_wrong[count] = weights(count, a.dtype)
        return (a * xp.asarray(kept_wrong[count])).sum(axis=-1)

    def right(xp, a):
        key = a.shape[-1], str(a.dtype)
        if key not in kept_right:
            kept_right[key] = weights(a.shape[-1], a.dtype)
        return (a * xp.asarray(kept_right[key])).sum(axis=-1)

    def reference(a):
        return (a * weights(a.shape[-1], a.dtype)).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="linear_weighted_mean",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(40), make((3, 65))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "row_norms",
    "scratch kept between calls, shared by streams",
    "cuBLAS workspaces shared by streams (PyTorch, CuPy)",
    "sim: equal shapes on two streams that nothing orders; cpu: only two threads at once, and memory that stays in use",
)
def row_norms():
    """Euclidean norm of each row; squares go to a scratch array."""
    kept: dict[Any, Any] = {}

    def wrong(xp, a):
        key = type(a), str(a.device), a.shape, str(a.dtype)
        if key not in kept:
            kept[key] = xp.empty_like(a)
        squares = kept[key]
        xp.multiply(a, a, out=squares)
        return xp.sqrt(squares.sum(axis=-1))

    def right(xp, a):
        squares = xp.empty_like(a)
        xp.multiply(a, a, out=squares)
        return xp.sqrt(squares.sum(axis=-1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="row_norms",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(40), make((3, 65)), make((2, 3, 9))],
            reference=lambda a: np.sqrt((a * a).sum(axis=-1)),
        )

    return wrong, right, declare


@pair(
    "row_max",
    "lowest finite number as the identity",
    "CUB DeviceReduce::Max and Thrust: numeric_limits::lowest() in place of -infinity",
    "a row of -inf alone whose length is not a multiple of 32, or an empty row: the lowest finite number instead of -inf",
)
def row_max():
    """Maximum of each row in blocks of 32; -inf for an empty row."""

    def blocked(xp, a, identity):
        count = a.shape[-1]
        blocks = max((count + 31) // 32, 1)
        pad = xp.full(a.shape[:-1] + (32 * blocks - count,), identity, dtype=a.dtype)
        padded = xp.concatenate([a, pad], axis=-1)
        return padded.reshape(a.shape[:-1] + (blocks, 32)).max(axis=-1).max(axis=-1)

    def wrong(xp, a):
        return blocked(xp, a, float(np.finfo(a.dtype).min))

    def right(xp, a):
        return blocked(xp, a, -math.inf)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="row_max",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(40), make((3, 65)), make((2, 3, 32))],
            reference=lambda a: np.max(a, axis=-1, initial=-np.inf),
        )

    return wrong, right, declare


@pair(
    "row_abs_sums",
    "grid limit: rows beyond 65535 are not reached",
    "PyTorch and CuPy kernels with one block per row in gridDim.y",
    "more than 65535 rows: the rest stays 0",
)
def row_abs_sums():
    """Sum of magnitudes of each row, one block per row."""
    limit = 65535

    def launch(xp, rows, out, grid, start):
        stop = start + grid
        out[start:stop] = xp.abs(rows[start:stop]).sum(axis=-1)

    def wrong(xp, a):
        shape = a.shape[:-1]
        count = math.prod(shape)
        rows = a.reshape((count, a.shape[-1]))
        out = xp.zeros(count, dtype=a.dtype)
        launch(xp, rows, out, min(count, limit), 0)
        return out.reshape(shape)

    def right(xp, a):
        shape = a.shape[:-1]
        count = math.prod(shape)
        rows = a.reshape((count, a.shape[-1]))
        out = xp.zeros(count, dtype=a.dtype)
        for start in range(0, count, limit):
            launch(xp, rows, out, min(count - start, limit), start)
        return out.reshape(shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="row_abs_sums",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((5, 40)), make((2, 3, 17)), make((300, 4))],
            reference=lambda a: np.abs(a).sum(axis=-1),
        )

    return wrong, right, declare


@pair(
    "shift_diagonal_",
    "reshape taken for a view",
    "CuPy and NumPy fill_diagonal on arrays that are not contiguous (ravel copies)",
    "a transposed or strided matrix: the copy is changed, the matrix is not",
)
def shift_diagonal_():
    """Adds `shift` to the diagonal, in place, and returns the matrix (ridge, jitter before a Cholesky)."""

    def wrong(xp, a, shift=0.5):
        rows, columns = a.shape
        flat = a.reshape(-1)
        flat[: min(rows, columns) * columns : columns + 1] += shift
        return a

    def right(xp, a, shift=0.5):
        i = xp.arange(min(a.shape))
        a[i, i] += shift
        return a

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="shift_diagonal_",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((5, 5)),
                Sample((make((17, 17)),), {"shift": 1e-3}),
                Sample((make((7, 4)),), {"shift": 2.0}),
            ],
            reference=lambda a, shift=0.5: a + shift * np.eye(*a.shape),
            without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"},
        )

    return wrong, right, declare


@pair(
    "weighted_mean",
    "normalizer not broadcast along the reduced axis",
    "numpy.average and masked losses of ML libraries: weights of extent 1 in the reduced axis",
    "weights of shape (rows, 1), or of extent 1: the mean is as many times too large as a row is long",
)
def weighted_mean():
    """Weighted mean along the last axis; the weights broadcast against the numbers."""

    def wrong(xp, a, w):
        return (a * w).sum(axis=-1) / w.sum(axis=-1)

    def right(xp, a, w):
        a, w = xp.broadcast_arrays(a, w)
        return (a * w).sum(axis=-1) / w.sum(axis=-1)

    def reference(a, w):
        a, w = np.broadcast_arrays(a, w)
        return (a * w).sum(axis=-1) / w.sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weighted_mean",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, w: str(np.promote_types(a, w)),
            samples=lambda make: [
                (make((4, 33)), make((4, 33), low=0.1, high=1)),
                (make((2, 3, 20)), make(20, low=0.5, high=2)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rounding_shift",
    "ties of negative numbers rounded up",
    "TFLite/gemmlowp RoundingDivideByPOT: requantization that is one off for negative halves",
    "negative odd multiples of 2**(shift - 1), such as -2048 with shift=12: 0 instead of -1",
)
def rounding_shift():
    """a / 2**shift rounded to nearest, halves away from zero, for int accumulators."""

    def wrong(xp, a, shift=12):
        half = (1 << shift) >> 1
        return (a + half) >> shift

    def right(xp, a, shift=12):
        half = (1 << shift) >> 1
        return xp.sign(a) * ((xp.abs(a) + half) >> shift)

    def reference(a, shift=12):
        return np.sign(a) * ((2 * np.abs(a.astype(np.int64)) + 2**shift) // 2 ** (shift + 1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rounding_shift",
            dtypes=("int32", "int64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40, low=-1_000_000, high=1_000_000),
                Sample((make((3, 33), low=-(10**8), high=10**8),), {"shift": 16}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "nan_mean",
    "overwrites its input through a view, only where it holds NaN",
    "pandas nanops and SciPy nan-policies: NaN replaced in the caller's array",
    "a contiguous input with NaN: its NaN are 0 after the call",
)
def nan_mean():
    """Mean of each row without its NaN; NaN for a row of NaN."""

    def mean(xp, filled, count):
        total = filled.sum(axis=-1)
        return xp.where(count > 0, total / xp.maximum(count, 1).astype(filled.dtype), math.nan)

    def wrong(xp, a):
        count = (~xp.isnan(a)).sum(axis=-1)
        flat = a.reshape(-1)
        flat[xp.isnan(flat)] = 0
        return mean(xp, flat.reshape(a.shape), count)

    def right(xp, a):
        count = (~xp.isnan(a)).sum(axis=-1)
        return mean(xp, xp.where(xp.isnan(a), 0, a), count)

    def reference(a):
        is_nan = np.isnan(a)
        count = np.asarray((~is_nan).sum(axis=-1))
        total = np.where(is_nan, 0, a).sum(axis=-1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nan_mean",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(40), make((3, 65))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "row_median",
    "early return for empty input in the default dtype",
    "CuPy and PyTorch early returns for empty inputs (dtype of full/zeros forgotten)",
    "rows without elements in float16 or float32: NaN in float64",
)
def row_median():
    """Median of each row; NaN for a row that is empty or holds NaN."""

    def median(xp, a):
        ordered = xp.sort(a, axis=-1)
        count = a.shape[-1]
        if count % 2:
            middle = ordered[..., count // 2]
        else:
            low = ordered[..., count // 2 - 1].astype("float64")
            high = ordered[..., count // 2].astype("float64")
            middle = (low + high) * 0.5
        return xp.where(xp.isnan(ordered[..., -1]), math.nan, middle).astype(a.dtype)

    def wrong(xp, a):
        if a.shape[-1] == 0:
            return xp.full(a.shape[:-1], math.nan)
        return median(xp, a)

    def right(xp, a):
        if a.shape[-1] == 0:
            return xp.full(a.shape[:-1], math.nan, dtype=a.dtype)
        return median(xp, a)

    def reference(a):
        return np.median(a, axis=-1) if a.shape[-1] else np.full(a.shape[:-1], np.nan)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="row_median",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(40), make((3, 65)), make((2, 3, 8))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "segment_mean",
    "output not initialized where nothing is written",
    "NumPy divide(..., where=mask) without out; SpMV and scatter-mean kernels with empty rows",
    "a segment without elements: whatever the memory held instead of 0",
)
def segment_mean():
    """Mean of the numbers of each segment; 0 for a segment without numbers."""

    def fill(xp, out, a, ids, segments):
        count = xp.bincount(ids, minlength=segments)
        total = xp.bincount(ids, weights=a, minlength=segments)
        is_used = count > 0
        out[is_used] = (total[is_used] / count[is_used]).astype(a.dtype)
        return out

    def wrong(xp, a, ids, segments=4):
        return fill(xp, xp.empty(segments, dtype=a.dtype), a, ids, segments)

    def right(xp, a, ids, segments=4):
        return fill(xp, xp.zeros(segments, dtype=a.dtype), a, ids, segments)

    def reference(a, ids, segments=4):
        parts = [a[ids == i] for i in range(segments)]
        return np.array([part.mean() if part.size else 0.0 for part in parts], a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segment_mean",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, *ids: a,
            samples=lambda make: [
                (make(8), make.of([0, 1, 1, 2, 3, 3, 3, 0], dtype="int64")),
                Sample((make(90), make(90, dtype="int64", low=0, high=5)), {"segments": 6}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "determinant",
    "pivot chosen by value, not by magnitude",
    "own; hand-written batched LU kernels",
    "a column of 0 and negative numbers, such as [[0, 1], [-1, 0]]: 0 instead of 1",
)
def determinant():
    """Determinant of a square matrix by elimination with partial pivoting."""

    def eliminate(xp, a, size_of):
        if a.ndim != 2 or a.shape[0] != a.shape[1]:
            raise np.linalg.LinAlgError("the matrix must be square")
        m, sign = a.copy(), 1.0
        for k in range(m.shape[0]):
            pivot = k + int(xp.argmax(size_of(m[k:, k])))
            if pivot != k:
                row = m[k].copy()
                m[k] = m[pivot]
                m[pivot] = row
                sign = -sign
            if float(m[k, k]) == 0.0:
                return xp.zeros((), dtype=a.dtype)
            factors = m[k + 1 :, k] / m[k, k]
            m[k + 1 :, k:] = m[k + 1 :, k:] - factors[:, None] * m[k, k:]
        return xp.prod(xp.diagonal(m)) * sign

    def wrong(xp, a):
        return eliminate(xp, a, lambda column: column)

    def right(xp, a):
        return eliminate(xp, a, xp.abs)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="determinant",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((3, 3), low=-2, high=2), make((4, 4), low=-1, high=3)],
            reference=lambda a: np.linalg.det(a),
        )

    return wrong, right, declare


@pair(
    "diagonal_rank",
    "absolute threshold in place of a relative one",
    "matrix_rank and pinv cut-offs (SciPy pinv cond, torch.matrix_rank tol)",
    "numbers all below rcond, such as [1e-9, 2e-9] (rank 2, got 0), or large ones beside 1: [1e9, 1] (rank 1, got 2)",
)
def diagonal_rank():
    """How many entries of a diagonal count as nonzero, relative to its largest."""

    def wrong(xp, d, rcond=1e-6):
        return (xp.abs(d).astype("float64") > rcond).sum(axis=-1)

    def right(xp, d, rcond=1e-6):
        if d.shape[-1] == 0:
            return xp.zeros(d.shape[:-1], dtype="int64")
        size = xp.abs(d).astype("float64")
        return (size > rcond * size.max(axis=-1, keepdims=True)).sum(axis=-1)

    def reference(d, rcond=1e-6):
        size = np.abs(d)
        return (size > rcond * size.max(axis=-1, keepdims=True, initial=0)).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="diagonal_rank",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [make(12), Sample((make((3, 40)),), {"rcond": 1e-5})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "top_k",
    "descending order by negation",
    "scikit-learn and JAX users' sort(-x): the least integer is its own negative",
    "the least integer of the dtype, such as -128 in int8: it comes out as the largest",
)
def top_k():
    """The k largest integers of each row, from large to small; all if there are fewer."""

    def check(k):
        if k < 0:
            raise ValueError(f"k is {k}; give 0 or more")

    def wrong(xp, a, k=5):
        check(k)
        return -xp.sort(-a, axis=-1)[..., :k]

    def right(xp, a, k=5):
        check(k)
        return xp.sort(a, axis=-1)[..., ::-1][..., :k].copy()

    def reference(a, k=5):
        count = a.shape[-1]
        return np.sort(a, axis=-1)[..., count - min(k, count) :][..., ::-1]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="top_k",
            dtypes=("int8", "int16", "int32", "int64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                Sample((make((3, 33), low=-100, high=100),), {"k": 4}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"k": -1}), ValueError, "k is -1")],
        )

    return wrong, right, declare
