"""Options and shapes: axes, windows, strides, dilations, padding, ragged and empty groups: faults with their twins."""

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
    "lp_pool",
    "a partial last window is scaled up as if it were whole",
    "torch.nn.functional.lp_pool1d with ceil_mode: the mean of a window, cut short at the end, times the kernel size",
    "ones of length 4, window 3, ceil: the last result is sqrt(3) where the window holds a single 1",
)
def lp_pool():
    """The p-norm of each window of the last axis; `ceil` adds one more window that reaches past the end."""

    def starts(n, window, stride, ceil):
        stride = window if stride is None else stride
        if window < 1 or stride < 1:
            raise ValueError(f"window is {window} and stride is {stride}; give 1 or more")
        count = (n - window) // stride + 1 if n >= window else 0
        covered = (count - 1) * stride + window if count else 0
        if ceil and covered < n and count * stride < n:
            count += 1
        return [i * stride for i in range(count)]

    def pool(xp, a, window, stride, ceil, p, whole):
        powers = xp.abs(a.astype("float64")) ** p
        results = []
        for start in starts(a.shape[-1], window, stride, ceil):
            part = powers[..., start : start + window]
            results.append(part.mean(axis=-1) * window if whole else part.sum(axis=-1))
        if not results:
            return xp.zeros((*a.shape[:-1], 0), dtype=a.dtype)
        return (xp.stack(results, axis=-1) ** (1 / p)).astype(a.dtype)

    def wrong(xp, a, window=3, stride=None, ceil=False, p=2):
        return pool(xp, a, window, stride, ceil, p, whole=True)

    def right(xp, a, window=3, stride=None, ceil=False, p=2):
        return pool(xp, a, window, stride, ceil, p, whole=False)

    def reference(a, window=3, stride=None, ceil=False, p=2):
        first = starts(a.shape[-1], window, stride, ceil)
        out = np.zeros((*a.shape[:-1], len(first)))
        for j, start in enumerate(first):
            for i in np.ndindex(a.shape[:-1]):
                out[(*i, j)] = (np.abs(a[i][start : start + window]) ** p).sum() ** (1 / p)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lp_pool",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 12), low=-10, high=10),
                Sample((make((2, 3, 20), low=-10, high=10),), {"window": 4, "stride": 2}),
                Sample((make((3, 17), low=-10, high=10),), {"window": 5, "ceil": True}),
                Sample((make((2, 15), low=-10, high=10),), {"p": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"window": 0}), ValueError, "window is 0")],
        )

    return wrong, right, declare


@pair(
    "norm_over_axes",
    "keepdims keeps one axis, not all, where the norm is of the whole array",
    "numpy.linalg.norm: the short cut for axis=None works on the flat array; rewrites of it reshape to a single axis",
    "shape (2, 3), keepdims and no axis: a result of shape (1,), not (1, 1)",
)
def norm_over_axes():
    """The Euclidean norm over one axis, several axes, or the whole array."""

    def wrong(xp, a, axis=None, keepdims=False):
        wide = a.astype("float64")
        if axis is None:
            flat = wide.reshape(-1)
            norm = xp.sqrt((flat * flat).sum()).astype(a.dtype)
            return norm.reshape((1,)) if keepdims else norm
        return xp.sqrt((wide * wide).sum(axis=axis, keepdims=keepdims)).astype(a.dtype)

    def right(xp, a, axis=None, keepdims=False):
        wide = a.astype("float64")
        return xp.sqrt((wide * wide).sum(axis=axis, keepdims=keepdims)).astype(a.dtype)

    def reference(a, axis=None, keepdims=False):
        return np.sqrt(np.sum(np.square(a), axis=axis, keepdims=keepdims))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="norm_over_axes",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 5), low=-100, high=100),
                Sample((make((3, 7), low=-100, high=100),), {"axis": -1}),
                Sample((make((2, 3, 4), low=-100, high=100),), {"axis": (0, -1), "keepdims": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "sine_window",
    "the periodic window of an odd length is the symmetric one",
    "scipy.signal windows before 1.0: sym=False lengthened the window only where the length was even",
    "five samples, periodic: the factors are those of the symmetric window",
)
def sine_window():
    """The signal along the last axis times scipy.signal's cosine window, symmetric or periodic."""

    def taper(xp, a, length):
        n = a.shape[-1]
        if n <= 1:
            return a.copy()
        window = xp.sin((xp.arange(n, dtype="float64") + 0.5) * (math.pi / length))
        return (a.astype("float64") * window).astype(a.dtype)

    def wrong(xp, a, periodic=False):
        n = a.shape[-1]
        return taper(xp, a, n + 1 if periodic and n % 2 == 0 else n)

    def right(xp, a, periodic=False):
        n = a.shape[-1]
        return taper(xp, a, n + 1 if periodic else n)

    def reference(a, periodic=False):
        n = a.shape[-1]
        if n <= 1:
            return a.copy()
        length = n + 1 if periodic else n
        return a * np.sin(math.pi / length * (np.arange(n) + 0.5))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sine_window",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(16),
                make((3, 25)),
                Sample((make((2, 64)),), {"periodic": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rolling_total",
    "min_periods=0 is taken for 1",
    "pandas 0.21, rolling(min_periods=0).sum(): NaN, not 0, where a window has no number at all",
    "[nan, 1] with min_periods 0: the first result is NaN, not 0",
)
def rolling_total():
    """Sums of the last `window` entries; NaN counts for nothing, and too few numbers give NaN."""

    def check(window, min_periods):
        least = window if min_periods is None else min_periods
        if window < 1 or not 0 <= least <= window:
            raise ValueError(f"window is {window} and min_periods is {min_periods}; give 0 <= min_periods <= window")
        return least

    def total(xp, a, window, least):
        n = a.shape[-1]
        known = ~xp.isnan(a)
        values = xp.where(known, a, 0).astype("float64")
        counts = known.astype("int64")
        before = (*a.shape[:-1], window - 1)
        values = xp.concatenate([xp.zeros(before, dtype="float64"), values], axis=-1)
        counts = xp.concatenate([xp.zeros(before, dtype="int64"), counts], axis=-1)
        added, count = values[..., :n], counts[..., :n]
        for j in range(1, window):
            added, count = added + values[..., j : j + n], count + counts[..., j : j + n]
        return xp.where(count >= least, added, math.nan).astype(a.dtype)

    def wrong(xp, a, window=3, min_periods=None):
        return total(xp, a, window, max(check(window, min_periods), 1))

    def right(xp, a, window=3, min_periods=None):
        return total(xp, a, window, check(window, min_periods))

    def reference(a, window=3, min_periods=None):
        least = check(window, min_periods)
        out = np.full(a.shape, math.nan)
        for i in np.ndindex(a.shape):
            part = a[i[:-1]][max(0, i[-1] - window + 1) : i[-1] + 1]
            part = part[~np.isnan(part)]
            if len(part) >= least:
                out[i] = part.sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rolling_total",
            dtypes=("float32",),
            samples=lambda make: [
                make(20),
                Sample((make((3, 14)),), {"window": 5, "min_periods": 1}),
                Sample((make((2, 15)),), {"window": 4, "min_periods": 0}),
                Sample((make.of([1, math.nan, 2, 5, math.nan, math.nan, 4]),), {"window": 2}, kind="extremal"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(8),), {"window": 2, "min_periods": 3}), ValueError, "min_periods is 3"),
                ErrorInput(Sample((make(8),), {"window": 0}), ValueError, "window is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "chunk_peaks",
    "the chunks have the rounded-up length, so the last ones are short or empty",
    "torch.chunk next to numpy.array_split: a port that takes one for the other",
    "ten entries in four chunks: lengths 3, 3, 3, 1, not 3, 3, 2, 2",
)
def chunk_peaks():
    """The largest magnitude of each of `chunks` parts of the last axis, cut as by numpy.array_split; 0 if empty."""

    def check(chunks):
        if chunks < 1:
            raise ValueError(f"chunks is {chunks}; give 1 or more")

    def peaks(xp, a, edges):
        results = []
        for low, high in zip(edges[:-1], edges[1:], strict=True):
            if high > low:
                results.append(xp.abs(a[..., low:high]).max(axis=-1))
            else:
                results.append(xp.zeros(a.shape[:-1], dtype=a.dtype))
        return xp.stack(results, axis=-1)

    def wrong(xp, a, chunks=4):
        check(chunks)
        n = a.shape[-1]
        step = -(-n // chunks)
        return peaks(xp, a, [min(i * step, n) for i in range(chunks + 1)])

    def right(xp, a, chunks=4):
        check(chunks)
        size, longer = divmod(a.shape[-1], chunks)
        return peaks(xp, a, [i * size + min(i, longer) for i in range(chunks + 1)])

    def reference(a, chunks=4):
        check(chunks)
        parts = np.array_split(a, chunks, axis=-1)
        return np.stack([np.abs(part).max(axis=-1, initial=0) for part in parts], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="chunk_peaks",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(16),
                make((3, 24)),
                Sample((make((2, 5, 23)),), {"chunks": 6}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"chunks": 0}), ValueError, "chunks is 0")],
        )

    return wrong, right, declare


@pair(
    "subtract_first",
    "out is written through a copy where the axis is a middle one",
    "a moveaxis and a reshape of `out` that copy where the strides do not allow a view, as in wrappers of row kernels",
    "shape (2, 3, 4), axis 1 and out: the array that was passed keeps its old contents",
)
def subtract_first():
    """Every entry minus the first one of its line along the axis, into `out` if that is given."""

    def differences(a, axis):
        where = [slice(None)] * a.ndim
        where[axis] = slice(0, 1)
        return a - a[tuple(where)]

    def wrong(xp, a, axis=-1, out=None):
        result = differences(a, axis)
        if out is None:
            return result
        lines = xp.moveaxis(result, axis, -1)
        shape = (math.prod(lines.shape[:-1]), lines.shape[-1])
        xp.moveaxis(out, axis, -1).reshape(shape)[...] = lines.reshape(shape)
        return out

    def right(xp, a, axis=-1, out=None):
        result = differences(a, axis)
        if out is None:
            return result
        out[...] = result
        return out

    def reference(a, axis=-1):
        lines = np.moveaxis(a, axis, -1)
        return np.moveaxis(lines - lines[..., :1], -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="subtract_first",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(9),
                make((4, 11)),
                Sample((make((5, 6)),), {"axis": 0}),
                Sample((make((2, 3, 7)),), {"axis": -2}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "final_state",
    "a sequence of length zero gives the last step of the padding",
    "transformers, sequence classification of GPT-2: the place of the last token is -1 for an empty row, and wraps",
    "lengths [0]: the state at the end of the padded row, not zeros",
)
def final_state():
    """The state at the last valid step of each padded row; zeros where there is none. Lengths are cut to the steps."""

    def check(a, lengths):
        if a.ndim < 2 or lengths.shape != a.shape[:1]:
            raise ValueError(f"lengths have shape {lengths.shape}; give one per row of {a.shape}")

    def wrong(xp, a, lengths):
        check(a, lengths)
        rows, steps = a.shape[:2]
        if steps == 0:
            return xp.zeros((rows, *a.shape[2:]), dtype=a.dtype)
        return a[xp.arange(rows), xp.clip(lengths, 0, steps) - 1]

    def right(xp, a, lengths):
        check(a, lengths)
        rows, steps = a.shape[:2]
        if steps == 0:
            return xp.zeros((rows, *a.shape[2:]), dtype=a.dtype)
        last = a[xp.arange(rows), xp.clip(lengths, 1, steps) - 1]
        some = (lengths > 0).reshape((rows, *([1] * (a.ndim - 2))))
        return xp.where(some, last, xp.zeros_like(last))

    def reference(a, lengths):
        check(a, lengths)
        out = np.zeros((a.shape[0], *a.shape[2:]))
        for i, length in enumerate(lengths):
            valid = a[i, : max(int(length), 0)]
            if len(valid):
                out[i] = valid[-1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="final_state",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((4, 6, 3)), make(4, dtype="int64", low=0, high=6)),
                (make((7, 5)), make(7, dtype="int64", low=0, high=5)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((3, 5)), make(2, dtype="int64", low=0, high=5)), ValueError, "lengths have shape")
            ],
        )

    return wrong, right, declare


@pair(
    "unfold_taps",
    "the number of frames takes the span of the taps to be taps * dilation",
    "im2col helpers: `dilation * taps` for `dilation * (taps - 1) + 1` in the output length, as with no dilation",
    "five entries, three taps, dilation 2: no frame, where one fits",
)
def unfold_taps():
    """All frames of `taps` entries of the last axis, `dilation` apart, one frame every `stride` entries."""

    def check(taps, stride, dilation):
        if min(taps, stride, dilation) < 1:
            raise ValueError(f"taps, stride and dilation are {taps}, {stride} and {dilation}; give 1 or more")

    def unfold(xp, a, frames, taps, stride, dilation):
        places = xp.arange(max(frames, 0))[:, None] * stride + xp.arange(taps)[None, :] * dilation
        return a[..., places]

    def wrong(xp, a, taps=3, stride=1, dilation=1):
        check(taps, stride, dilation)
        frames = (a.shape[-1] - dilation * taps) // stride + 1
        return unfold(xp, a, frames, taps, stride, dilation)

    def right(xp, a, taps=3, stride=1, dilation=1):
        check(taps, stride, dilation)
        frames = (a.shape[-1] - dilation * (taps - 1) - 1) // stride + 1
        return unfold(xp, a, frames, taps, stride, dilation)

    def reference(a, taps=3, stride=1, dilation=1):
        check(taps, stride, dilation)
        starts = [i for i in range(0, a.shape[-1], stride) if i + dilation * (taps - 1) < a.shape[-1]]
        out = np.zeros((*a.shape[:-1], len(starts), taps), dtype=a.dtype)
        for j, start in enumerate(starts):
            for k in range(taps):
                out[..., j, k] = a[..., start + k * dilation]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unfold_taps",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make(20),
                Sample((make((2, 3, 18)),), {"taps": 5, "stride": 2}),
                Sample((make((3, 30)),), {"taps": 4, "stride": 2, "dilation": 2}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"stride": 0}), ValueError, "give 1 or more")],
        )

    return wrong, right, declare


@pair(
    "pad_stack",
    "an empty row, padded on the left, is written to the whole row",
    "transformers, _torch_collate_batch: result[i, -len(row):] = row, which is the whole row where the length is 0",
    "rows of lengths 2 and 0, left: the assignment of no numbers to two places raises",
)
def pad_stack():
    """Rows of different lengths as one array, filled up with `value` on the right or on the left."""

    def check(rows, side):
        if side not in ("left", "right"):
            raise ValueError(f"side is {side!r}; give 'left' or 'right'")
        if any(row.ndim != 1 for row in rows):
            raise ValueError("a row has more or less than one axis")

    def wrong(xp, rows, value=0, side="right"):
        check(rows, side)
        out = xp.full((len(rows), max(len(row) for row in rows)), value, dtype=rows[0].dtype)
        for i, row in enumerate(rows):
            if side == "left":
                out[i, -len(row) :] = row
            else:
                out[i, : len(row)] = row
        return out

    def right(xp, rows, value=0, side="right"):
        check(rows, side)
        longest = max(len(row) for row in rows)
        out = xp.full((len(rows), longest), value, dtype=rows[0].dtype)
        for i, row in enumerate(rows):
            first = longest - len(row) if side == "left" else 0
            out[i, first : first + len(row)] = row
        return out

    def reference(rows, value=0, side="right"):
        check(rows, side)
        longest = max(len(row) for row in rows)
        before = [(longest - len(row)) * (side == "left") for row in rows]
        pads = [(first, longest - len(row) - first) for row, first in zip(rows, before, strict=True)]
        return np.stack([np.pad(row, pad, constant_values=value) for row, pad in zip(rows, pads, strict=True)])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pad_stack",
            dtypes=("float32", "int64"),
            samples=lambda make: [
                ([make(5), make(3), make(8)],),
                Sample(([make(4), make(0), make(7)],), {"value": -1}),
                Sample(([make(6), make(1), make(6), make(2)],), {"side": "left"}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample(([make(2), make(3)],), {"side": "both"}), ValueError, "side is 'both'")
            ],
        )

    return wrong, right, declare


@pair(
    "cyclic_shift",
    "several shifts of one axis: only the first is made",
    "ports of numpy.roll that pair shifts with axes by zip, which stops at the shorter one, where NumPy broadcasts",
    "shifts (1, -2) of axis 1: the entries move by 1, not by -1",
)
def cyclic_shift():
    """The image rolled as by numpy.roll: one shift or several, one axis or several, or the flat image."""

    def listed(number):
        return tuple(number) if isinstance(number, (tuple, list)) else (number,)

    def rolled(xp, a, steps):
        a = a.copy()
        for shift, axis in steps:
            n = a.shape[axis]
            if n:
                head, tail = [slice(None)] * a.ndim, [slice(None)] * a.ndim
                head[axis], tail[axis] = slice(0, n - shift % n), slice(n - shift % n, n)
                a = xp.concatenate([a[tuple(tail)], a[tuple(head)]], axis=axis)
        return a

    def wrong(xp, a, shift=1, axis=None):
        lines, axes = (a.reshape(-1), (0,)) if axis is None else (a, listed(axis))
        shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
        return rolled(xp, lines, zip(shifts, axes, strict=False)).reshape(a.shape)

    def right(xp, a, shift=1, axis=None):
        lines, axes = (a.reshape(-1), (0,)) if axis is None else (a, listed(axis))
        shifts = listed(shift)
        if len(shifts) == 1:
            shifts = shifts * len(axes)
        elif len(axes) == 1:
            axes = axes * len(shifts)
        return rolled(xp, lines, zip(shifts, axes, strict=True)).reshape(a.shape)

    def reference(a, shift=1, axis=None):
        return np.roll(a, shift, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cyclic_shift",
            dtypes=("float32", "int16"),
            samples=lambda make: [
                make(7),
                Sample((make((4, 5)),), {"shift": (1, -2), "axis": (0, 1)}),
                Sample((make((6, 5, 3)),), {"shift": 3, "axis": (0, -2)}),
                Sample((make((3, 8)),), {"shift": -1, "axis": 1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "adjacency_counts",
    "a loop counts twice in an undirected graph",
    "adjacency matrices made symmetric by A + A.T, as networkx avoids with a case of its own for self-loops",
    "the single edge 2-2, undirected: 2 on the diagonal, not 1",
)
def adjacency_counts():
    """How many edges join each two nodes; edges with an end outside the nodes are left out."""

    def check(sources, targets, nodes):
        if sources.ndim != 1 or sources.shape != targets.shape:
            raise ValueError(f"the ends have shapes {sources.shape} and {targets.shape}; give two equal lengths")
        if nodes < 1:
            raise ValueError(f"nodes is {nodes}; give 1 or more")

    def count(xp, sources, targets, nodes):
        numbers = xp.arange(nodes)
        leaving = (sources[None, :] == numbers[:, None]).astype("int64")
        entering = (targets[:, None] == numbers[None, :]).astype("int64")
        return leaving @ entering

    def wrong(xp, sources, targets, nodes=6, directed=True):
        check(sources, targets, nodes)
        counts = count(xp, sources, targets, nodes)
        return counts if directed else counts + counts.T

    def right(xp, sources, targets, nodes=6, directed=True):
        check(sources, targets, nodes)
        counts = count(xp, sources, targets, nodes)
        if directed:
            return counts
        return counts + counts.T * (1 - xp.eye(nodes, dtype="int64"))

    def reference(sources, targets, nodes=6, directed=True):
        check(sources, targets, nodes)
        out = np.zeros((nodes, nodes), dtype="int64")
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            if 0 <= source < nodes and 0 <= target < nodes:
                out[source, target] += 1
                if not directed and source != target:
                    out[target, source] += 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adjacency_counts",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(14, low=0, high=5), make(14, low=0, high=5)),
                Sample((make(9, low=0, high=8), make(9, low=0, high=8)), {"nodes": 9, "directed": False}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(3, low=0, high=5), make(2, low=0, high=5)), ValueError, "the ends have shapes")
            ],
        )

    return wrong, right, declare


@pair(
    "group_variance",
    "NaN for as many rows as ddof only, not for fewer",
    "group variances as of pandas' group_var, which needs `count <= ddof`; written with `==`, they give 0 for no rows",
    "a group without rows, ddof 1: variance 0, not NaN",
)
def group_variance():
    """The variance of the values of each group; NaN where a group has no more than `ddof` rows."""

    def check(values, codes, groups, ddof):
        if values.ndim != 1 or values.shape != codes.shape:
            raise ValueError(f"values and codes have shapes {values.shape} and {codes.shape}; give equal lengths")
        if groups < 1 or ddof < 0:
            raise ValueError(f"groups is {groups} and ddof is {ddof}; give at least 1 and 0")

    def parts(xp, values, codes, groups):
        member = codes[None, :] == xp.arange(groups)[:, None]
        wide = values.astype("float64")[None, :]
        count = member.sum(axis=1)
        mean = xp.where(member, wide, 0.0).sum(axis=1) / xp.maximum(count, 1)
        far = xp.where(member, wide - mean[:, None], 0.0)
        return count, (far * far).sum(axis=1)

    def wrong(xp, values, codes, groups=4, ddof=1):
        check(values, codes, groups, ddof)
        count, squares = parts(xp, values, codes, groups)
        undefined = count == ddof
        return xp.where(undefined, math.nan, squares / xp.where(undefined, 1, count - ddof)).astype(values.dtype)

    def right(xp, values, codes, groups=4, ddof=1):
        check(values, codes, groups, ddof)
        count, squares = parts(xp, values, codes, groups)
        undefined = count <= ddof
        return xp.where(undefined, math.nan, squares / xp.where(undefined, 1, count - ddof)).astype(values.dtype)

    def reference(values, codes, groups=4, ddof=1):
        check(values, codes, groups, ddof)
        out = np.full(groups, math.nan)
        for group in range(groups):
            chosen = values[codes == group]
            if len(chosen) > ddof:
                out[group] = chosen.var(ddof=ddof)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="group_variance",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40, low=-100, high=100), make(40, dtype="int64", low=0, high=3)),
                Sample(
                    (make(25, low=-100, high=100), make(25, dtype="int64", low=0, high=5)), {"groups": 6, "ddof": 0}
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(3), make(2, dtype="int64", low=0, high=3)), ValueError, "values and codes have shapes")
            ],
        )

    return wrong, right, declare
