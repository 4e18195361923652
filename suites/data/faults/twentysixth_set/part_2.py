"""Splines, filters, ODE and PDE steps, solvers, sparse matrices, statistics, particles, graphs: faults with twins."""

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
    "bspline_design",
    "no interval holds the right end of the domain",
    "de Boor's recursion over half-open intervals, as in many spline and KAN layers; scipy.interpolate closes the last",
    "x equal to 1.0: a row of zeros where the last basis function is 1",
)
def bspline_design():
    """The values of all clamped B-splines on [0, 1], one row for each x; NaN outside."""

    def rows(xp, x, count, degree, closed):
        if not 1 <= degree < count:
            raise ValueError(f"degree is {degree}; give 1 to {count - 1}")
        inner = np.linspace(0, 1, count - degree + 1)
        t = np.concatenate([np.zeros(degree), inner, np.ones(degree)])
        wide = x.astype("float64")[..., None]
        left, end = xp.asarray(t[:-1]), xp.asarray(t[1:])
        inside = (left <= wide) & (wide < end)
        if closed:
            inside = inside | ((wide == 1) & (xp.arange(len(t) - 1) == count - 1))
        b = inside.astype("float64")
        for k in range(1, degree + 1):
            widths = t[k:] - t[:-k]
            inverse = xp.asarray(np.where(widths > 0, 1 / np.where(widths > 0, widths, 1), 0.0))
            rising = (wide - xp.asarray(t[: -k - 1])) * inverse[:-1]
            falling = (xp.asarray(t[k + 1 :]) - wide) * inverse[1:]
            b = rising * b[..., :-1] + falling * b[..., 1:]
        return xp.where((wide >= 0) & (wide <= 1), b, math.nan).astype(x.dtype)

    def wrong(xp, x, count=8, degree=3):
        return rows(xp, x, count, degree, closed=False)

    def right(xp, x, count=8, degree=3):
        return rows(xp, x, count, degree, closed=True)

    def reference(x, count=8, degree=3):
        from scipy.interpolate import BSpline

        t = np.r_[np.zeros(degree), np.linspace(0, 1, count - degree + 1), np.ones(degree)]
        return BSpline(t, np.eye(count), degree, extrapolate=False)(x)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bspline_design",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40, low=0, high=1),
                Sample((make((3, 11), low=0, high=1),), {"degree": 2}),
                Sample((make((2, 3, 5), low=0, high=1),), {"count": 13, "degree": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=1),), {"degree": 8}), ValueError, "degree is 8")
            ],
        )

    return wrong, right, declare


@pair(
    "coo_row_sums",
    "row sums are differences of one running sum, so a row reaches into all later ones",
    "segment sums by cumsum and difference, as in PyTorch and JAX code for ragged batches; torch_scatter replaced it",
    "an infinity, NaN or 1e30 in a low row: every later row is NaN, or has lost its digits",
)
def coo_row_sums():
    """The sum of each row of a sparse matrix, given as row numbers and values in any order."""

    def wrong(xp, rows, data, count=12):
        order = xp.argsort(rows)
        running = xp.concatenate([xp.zeros(1), xp.cumsum(data[order].astype("float64"))])
        ends = xp.searchsorted(rows[order], xp.arange(count + 1, dtype=rows.dtype))
        return (running[ends[1:]] - running[ends[:-1]]).astype(data.dtype)

    def right(xp, rows, data, count=12):
        return xp.bincount(rows, weights=data.astype("float64"), minlength=count).astype(data.dtype)

    def reference(rows, data, count=12):
        return np.array([data[rows == i].sum() for i in range(count)], dtype="float64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="coo_row_sums",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(60, dtype="int64", low=0, high=11), make(60)),
                Sample((make(9, dtype="int32", low=0, high=11), make(9)), {"count": 15}),
                (make(200, dtype="int64", low=0, high=11), make(200)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "savgol_valid",
    "kept coefficients forget one option",
    "filter caches keyed by some of the options, as librosa's and torchaudio's cached windows were at times",
    "deriv=1 with delta=1.0 and then with delta=0.5: the second result has the scale of the first",
)
def savgol_valid():
    """Savitzky-Golay filter along the last axis, where the whole window fits; derivatives for spacing delta."""

    def coefficients(window, order, deriv, delta):
        places = np.arange(window) - window // 2
        fit = np.linalg.pinv(places[:, None] ** np.arange(order + 1.0))
        return fit[deriv] * math.factorial(deriv) / delta**deriv

    def run(xp, a, taps):
        n = a.shape[-1] - len(taps) + 1
        wide = a.astype("float64")
        return sum(float(tap) * wide[..., j : j + n] for j, tap in enumerate(taps)).astype(a.dtype)

    def check(a, window, order, deriv):
        if window % 2 == 0 or a.shape[-1] < window or not deriv <= order < window:
            raise ValueError(f"window {window} with order {order} and deriv {deriv} on {a.shape[-1]} numbers")

    kept = {}

    def wrong(xp, a, window=7, order=2, deriv=0, delta=1.0):
        check(a, window, order, deriv)
        key = window, order, deriv
        if key not in kept:
            kept[key] = coefficients(window, order, deriv, delta)
        return run(xp, a, kept[key])

    def right(xp, a, window=7, order=2, deriv=0, delta=1.0):
        check(a, window, order, deriv)
        return run(xp, a, coefficients(window, order, deriv, delta))

    def reference(a, window=7, order=2, deriv=0, delta=1.0):
        from scipy.signal import savgol_filter

        check(a, window, order, deriv)
        whole = savgol_filter(a, window, order, deriv=deriv, delta=delta, mode="constant")
        return whole[..., window // 2 : a.shape[-1] - window // 2]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="savgol_valid",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 40), low=-3, high=3),
                Sample((make(25, low=-3, high=3),), {"deriv": 1, "delta": 0.5}),
                Sample((make((2, 30), low=-3, high=3),), {"window": 9, "order": 4, "deriv": 1, "delta": 0.25}),
                Sample((make((4, 21), low=-3, high=3),), {"window": 5, "deriv": 2}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "implicit_euler_step",
    "the diagonal is added through a flat view that is a copy for Fortran order",
    "a.reshape(-1)[::n+1] += 1 after an operation that keeps the layout, in NumPy and CuPy code for ridge terms",
    "a Jacobian in Fortran order, or jacobian.T: the identity is never added",
)
def implicit_euler_step():
    """One step of the implicit Euler method for y' = jacobian @ y: solve (I - h * jacobian) x = y."""

    def wrong(xp, jacobian, y, h=0.03):
        system = -h * jacobian
        system.reshape(-1)[:: len(system) + 1] += 1
        return xp.linalg.solve(system, y)

    def right(xp, jacobian, y, h=0.03):
        return xp.linalg.solve(xp.eye(len(jacobian), dtype=jacobian.dtype) - h * jacobian, y)

    def reference(jacobian, y, h=0.03):
        n = len(jacobian)
        system = np.array([[(i == j) - h * jacobian[i, j] for j in range(n)] for i in range(n)], dtype="float64")
        return np.linalg.inv(system.reshape(n, n)) @ y

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="implicit_euler_step",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 6), low=-1, high=1), make(6, low=-3, high=3)),
                (make((11, 11), low=-1, high=1), make((11, 2), low=-3, high=3)),
                Sample((make((4, 4), low=-1, high=1), make(4, low=-3, high=3)), {"h": 0.07}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "ks_statistic",
    "the walk over the merged samples takes the height between equal values",
    "Kolmogorov-Smirnov by argsort and cumsum of +1/n and -1/m, a frequent rewrite of scipy.stats.ks_2samp",
    "values that both samples have, such as two equal samples: the distance is 1/n or more where it is 0",
)
def ks_statistic():
    """The largest distance between the empirical distributions of two samples; NaN if there is one in them."""

    def check(a, b):
        if not a.size or not b.size:
            raise ValueError("a sample is empty")

    def wrong(xp, a, b):
        check(a, b)
        both = xp.concatenate([a, b])
        order = xp.argsort(both)
        steps = xp.where(order < a.size, 1.0 / a.size, -1.0 / b.size)
        largest = xp.abs(xp.cumsum(steps)).max()
        return xp.where(xp.isnan(both).any(), math.nan, largest)

    def right(xp, a, b):
        check(a, b)
        both = xp.concatenate([a, b])
        below_a = xp.searchsorted(xp.sort(a), both, side="right") / a.size
        below_b = xp.searchsorted(xp.sort(b), both, side="right") / b.size
        return xp.where(xp.isnan(both).any(), math.nan, xp.abs(below_a - below_b).max())

    def reference(a, b):
        check(a, b)
        if np.isnan(a).any() or np.isnan(b).any():
            return np.array(math.nan)
        return np.array(max(abs((a <= v).mean() - (b <= v).mean()) for v in [*a, *b]))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ks_statistic",
            dtypes=("float32", "float64"),
            result_dtype=lambda *names: "float64",
            samples=lambda make: [
                (make(30), make(20)),
                (make(17), make(64, low=-1, high=2)),
                (make(50), make(50)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "coo_reshape",
    "the flat index is computed in the dtype of the indices",
    "scipy.sparse: coo_matrix.reshape overflowed its index dtype before get_index_dtype was asked for the flat size",
    "int16, row 109 and column 299 of 300 columns: the flat index 32999 wraps to a negative one",
)
def coo_reshape():
    """Row and column numbers of a sparse matrix with `columns` columns after a reshape to `into` columns."""

    def wrong(xp, rows, cols, columns=300, into=200):
        flat = rows * columns + cols
        return flat // into, flat % into

    def right(xp, rows, cols, columns=300, into=200):
        flat = rows.astype("int64") * columns + cols
        return (flat // into).astype(rows.dtype), (flat % into).astype(rows.dtype)

    def reference(rows, cols, columns=300, into=200):
        pairs = [divmod(int(r) * columns + int(c), into) for r, c in zip(rows.ravel(), cols.ravel(), strict=True)]
        new = np.array(pairs, dtype="int64").reshape(*rows.shape, 2)
        return new[..., 0], new[..., 1]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="coo_reshape",
            dtypes=("int16", "int32"),
            samples=lambda make: [
                (make(25, low=0, high=109), make(25, low=0, high=299)),
                Sample((make(40, low=0, high=500), make(40, low=0, high=63)), {"columns": 64, "into": 16}),
                Sample((make(7, low=0, high=9), make(7, low=0, high=79)), {"columns": 80, "into": 100}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "normalised_legendre",
    "factorials of the norm are products in int64",
    "spherical harmonics with np.prod(np.arange(...)) or a cumulative product for factorials: 21! overflows int64",
    "degree 13 with order 10: 23! wraps, and all values have the wrong scale",
)
def normalised_legendre():
    """Associated Legendre functions times the norm of spherical harmonics."""

    def product(n):
        return int(np.prod(np.arange(1, n + 1, dtype="int64")))

    def check(degree, order):
        if not 0 <= order <= degree:
            raise ValueError(f"order is {order}; give 0 to {degree}")

    def values(xp, x, degree, order, factorial):
        check(degree, order)
        wide = x.astype("float64")
        double = math.prod(float(i) for i in range(1, 2 * order, 2))
        before, now = xp.zeros_like(wide), (-1) ** order * double * xp.sqrt(1 - wide * wide) ** order
        for n in range(order + 1, degree + 1):
            before, now = now, ((2 * n - 1) * wide * now - (n + order - 1) * before) / (n - order)
        ratio = factorial(degree - order) / factorial(degree + order)
        return (now * float(np.sqrt((2 * degree + 1) / (4 * math.pi) * ratio))).astype(x.dtype)

    def wrong(xp, x, degree=4, order=2):
        return values(xp, x, degree, order, product)

    def right(xp, x, degree=4, order=2):
        return values(xp, x, degree, order, math.factorial)

    def reference(x, degree=4, order=2):
        from scipy.special import gammaln, lpmv

        check(degree, order)
        log_ratio = gammaln(degree - order + 1) - gammaln(degree + order + 1)
        return lpmv(order, degree, x) * np.sqrt((2 * degree + 1) / (4 * np.pi)) * np.exp(log_ratio / 2)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="normalised_legendre",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((5, 7), low=-1, high=1),
                Sample((make(30, low=-1, high=1),), {"degree": 13, "order": 3}),
                Sample((make(12, low=-1, high=1),), {"degree": 10, "order": 10}),
                Sample((make((2, 9), low=-1, high=1),), {"degree": 5, "order": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3, low=-1, high=1),), {"order": 5}), ValueError, "order is 5")
            ],
        )

    return wrong, right, declare


@pair(
    "periodic_cells",
    "a tiny negative position wraps to the box length itself",
    "x % box equals box for small negative x, as for numpy.mod and torch.remainder: cell lists of molecular dynamics",
    "x = -1e-9 in float32: cell 8 of cells 0 to 7",
)
def periodic_cells():
    """The cell, 0 to cells - 1, of each position in a periodic box; -1 for one that is not finite."""

    def wrong(xp, x, cells=8, box=4.0):
        cell = xp.floor(xp.mod(x, box) * (cells / box))
        return xp.where(xp.isfinite(x), cell, -1).astype("int64")

    def right(xp, x, cells=8, box=4.0):
        cell = xp.floor(xp.fmod(x, box) * (cells / box))
        cell = xp.where(cell < 0, cell + cells, cell)
        return xp.where(xp.isfinite(x), cell, -1).astype("int64")

    def reference(x, cells=8, box=4.0):
        out = np.full(x.shape, -1, dtype="int64")
        for i in np.ndindex(x.shape):
            if np.isfinite(x[i]):
                out[i] = math.floor(Fraction(float(x[i])) * cells / Fraction(box)) % cells
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="periodic_cells",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: "int64",
            samples=lambda make: [
                make((20, 3)),
                make((7, 3), low=-50, high=50),
                Sample((make(33),), {"cells": 16, "box": 2.0}),
                Sample((make((2, 5)),), {"box": 8.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "heat_step",
    "the ends are computed after out, which may be the input, has been written",
    "stencils with an out argument in two parts, interior and edges: in place they read their own results",
    "out=u: both ends take the new value of their inner neighbour; each other call is right",
)
def heat_step():
    """One explicit step of the heat equation on a ring, along the last axis; out may be u, as for a ufunc."""

    def check(u):
        if u.shape[-1] < 2:
            raise ValueError(f"{u.shape[-1]} points on the ring; give 2 or more")

    def blend(left, middle, right, rate):
        return (1 - 2 * rate) * middle + rate * left + rate * right

    def wrong(xp, u, rate=0.2, out=None):
        check(u)
        out = xp.empty_like(u) if out is None else out
        out[..., 1:-1] = blend(u[..., :-2], u[..., 1:-1], u[..., 2:], rate)
        first = blend(u[..., -1], u[..., 0], u[..., 1], rate)
        last = blend(u[..., -2], u[..., -1], u[..., 0], rate)
        out[..., 0] = first
        out[..., -1] = last
        return out

    def right(xp, u, rate=0.2, out=None):
        check(u)
        new = blend(xp.roll(u, 1, axis=-1), u, xp.roll(u, -1, axis=-1), rate)
        if out is None:
            return new
        out[...] = new
        return out

    def reference(u, rate=0.2):
        check(u)
        n = u.shape[-1]
        new = np.empty_like(u)
        for i in range(n):
            new[..., i] = (1 - 2 * rate) * u[..., i] + rate * u[..., (i - 1) % n] + rate * u[..., (i + 1) % n]
        return new

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="heat_step",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(24),
                make((3, 2)),
                Sample((make((2, 4, 15)),), {"rate": 0.375}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((3, 1)),)), ValueError, "1 points")],
        )

    return wrong, right, declare


@pair(
    "autocorrelation",
    "zeros for the lags come from rounding up alone",
    "autocorrelation by FFT at the next power of two of n, as statsmodels and librosa avoid with n + lags",
    "60 numbers and 8 lags: 64 leaves room for 4, and lags 5 to 8 wrap around",
)
def autocorrelation():
    """Sums of a[t] * a[t + lag] for the lags 0 to max_lag, along the last axis."""

    def check(a, max_lag):
        if not 0 <= max_lag < a.shape[-1]:
            raise ValueError(f"max_lag is {max_lag} for {a.shape[-1]} numbers")

    def sums(xp, a, max_lag, least):
        size = 1 << (least - 1).bit_length()
        spectrum = xp.fft.rfft(a.astype("float64"), size)
        power = spectrum.real**2 + spectrum.imag**2
        return xp.fft.irfft(power, size)[..., : max_lag + 1].astype(a.dtype)

    def wrong(xp, a, max_lag=8):
        check(a, max_lag)
        return sums(xp, a, max_lag, max(a.shape[-1], 2))

    def right(xp, a, max_lag=8):
        check(a, max_lag)
        return sums(xp, a, max_lag, a.shape[-1] + max(max_lag, 1))

    def reference(a, max_lag=8):
        check(a, max_lag)
        n = a.shape[-1]
        return np.stack([(a[..., : n - k] * a[..., k:]).sum(-1) for k in range(max_lag + 1)], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="autocorrelation",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40, low=-3, high=3),
                Sample((make((3, 100), low=-3, high=3),), {"max_lag": 20}),
                Sample((make((2, 2, 17), low=-3, high=3),), {"max_lag": 15}),
            ],
            reference=reference,
            magnitude=lambda a, max_lag=8: np.repeat((a * a).sum(-1, keepdims=True) + 1, max_lag + 1, axis=-1),
        )

    return wrong, right, declare


@pair(
    "components",
    "too few rounds for a graph of large diameter",
    "LLM-written kernels for connected components: log2(n) rounds as with pointer jumping, without the jumps",
    "the path 0-1-...-23: the label 0 reaches node 5 only",
)
def components():
    """The smallest node that each node is connected with, by undirected edges."""

    def spread(xp, source, target, nodes, rounds):
        labels = xp.arange(nodes, dtype="int32")
        for _ in range(rounds):
            xp.minimum.at(labels, target, labels[source])
            xp.minimum.at(labels, source, labels[target])
        return labels

    def wrong(xp, source, target, nodes=24):
        return spread(xp, source, target, nodes, nodes.bit_length())

    def right(xp, source, target, nodes=24):
        return spread(xp, source, target, nodes, nodes)

    def reference(source, target, nodes=24):
        labels = list(range(nodes))
        for s, t in zip(source.tolist(), target.tolist(), strict=True):
            old, new = max(labels[s], labels[t]), min(labels[s], labels[t])
            labels = [new if label == old else label for label in labels]
        return np.array(labels, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="components",
            dtypes=("int32", "int64"),
            result_dtype=lambda *names: "int32",
            samples=lambda make: [
                (make(20, low=0, high=23), make(20, low=0, high=23)),
                (make(40, low=0, high=23), make(40, low=0, high=23)),
                Sample((make(30, low=0, high=23), make(30, low=0, high=23)), {"nodes": 40}),
                Sample((make(0, low=0, high=23), make(0, low=0, high=23)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "tridiagonal_solve",
    "the result is the workspace that the next call of this shape reuses",
    "solvers that keep a buffer for each shape, such as cached work arrays of FFT plans and of cuSPARSE gtsv2 wrappers",
    "two calls of one shape with different right sides: the first result then holds the second",
)
def tridiagonal_solve():
    """Thomas's algorithm along the last axis; the first of lower and the last of upper are not used."""

    kept = {}

    def solve(xp, lower, diagonal, upper, rhs, x, ratio):
        n = rhs.shape[-1]
        for i in range(n):
            pivot, value = diagonal[..., i], rhs[..., i]
            if i:
                pivot = pivot - lower[..., i] * ratio[..., i - 1]
                value = value - lower[..., i] * x[..., i - 1]
            ratio[..., i] = upper[..., i] / pivot
            x[..., i] = value / pivot
        for i in range(n - 2, -1, -1):
            x[..., i] -= ratio[..., i] * x[..., i + 1]
        return x

    def wrong(xp, lower, diagonal, upper, rhs):
        key = xp.__name__, rhs.shape, str(rhs.dtype)
        if key not in kept:
            kept[key] = xp.empty(rhs.shape, rhs.dtype), xp.empty(rhs.shape, rhs.dtype)
        return solve(xp, lower, diagonal, upper, rhs, *kept[key])

    def right(xp, lower, diagonal, upper, rhs):
        x, ratio = xp.empty(rhs.shape, rhs.dtype), xp.empty(rhs.shape, rhs.dtype)
        return solve(xp, lower, diagonal, upper, rhs, x, ratio)

    def reference(lower, diagonal, upper, rhs):
        n = rhs.shape[-1]
        out = np.empty(rhs.shape)
        for i in np.ndindex(rhs.shape[:-1]):
            dense = np.diag(diagonal[i]) + np.diag(lower[i][1:], -1) + np.diag(upper[i][: n - 1], 1)
            out[i] = np.linalg.solve(dense, rhs[i])
        return out

    def declare(fn):
        def call(make, shape):
            off = make(shape, low=-1, high=1), make(shape, low=-1, high=1)
            return off[0], make(shape, low=4, high=6), off[1], make(shape, low=-3, high=3)

        return OpSpec(
            fn=fn,
            name="tridiagonal_solve",
            dtypes=("float32", "float64"),
            samples=lambda make: [call(make, 12), call(make, (3, 7)), call(make, (2, 3, 5)), call(make, (4, 1))],
            reference=reference,
        )

    return wrong, right, declare
