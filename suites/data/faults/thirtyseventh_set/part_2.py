"""Scientific computing, from finite differences to units: faults with their twins."""

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
    "spread_second_difference",
    "a mirrored index is folded back once, not until it is inside",
    "scipy.ndimage and its GPU ports, mode mirror: wrong borders where the filter is longer than the array",
    "reach 3 on an axis of 3 elements, or any reach not below the length of the axis",
)
def spread_second_difference():
    """a[i - reach] - 2 a[i] + a[i + reach] along an axis, mirrored about the first and the last element."""

    def difference(xp, a, reach, axis, fold):
        if reach < 1:
            raise ValueError(f"reach is {reach}; give 1 or more")
        values = xp.moveaxis(a, axis, -1).astype("float64")
        n = values.shape[-1]
        places = xp.arange(n)
        left, right = values[..., fold(xp, places - reach, n)], values[..., fold(xp, places + reach, n)]
        return xp.moveaxis(left - 2 * values + right, -1, axis).astype(a.dtype)

    def fold_once(xp, places, n):
        places = xp.abs(places)
        return xp.clip(xp.where(places > n - 1, 2 * (n - 1) - places, places), 0, max(n - 1, 0))

    def fold_all(xp, places, n):
        period = max(2 * (n - 1), 1)
        places = places % period
        return xp.where(places > n - 1, period - places, places)

    def wrong(xp, a, reach=1, axis=-1):
        return difference(xp, a, reach, axis, fold_once)

    def right(xp, a, reach=1, axis=-1):
        return difference(xp, a, reach, axis, fold_all)

    def reference(a, reach=1, axis=-1):
        if reach < 1:
            raise ValueError("reach")
        a = np.moveaxis(a, axis, -1)
        n, out = a.shape[-1], np.zeros(a.shape)

        def inside(i):
            while not 0 <= i < n:
                i = -i if i < 0 else 2 * (n - 1) - i
            return i if n > 1 else 0

        for i in range(n):
            here = (i, i) if n == 1 else (inside(i - reach), inside(i + reach))
            out[..., i] = a[..., here[0]] - 2 * a[..., i] + a[..., here[1]]
        return np.moveaxis(out, -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="spread_second_difference",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(24),
                Sample((make((5, 17)),), {"reach": 3}),
                Sample((make((12, 4)),), {"reach": 8, "axis": 0}),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(6),), {"reach": 0}), ValueError, "reach is 0")],
        )

    return wrong, right, declare


@pair(
    "neighbours_within",
    "a particle is told from itself by its distance of zero",
    "neighbour lists and radius graphs that drop pairs with r == 0: two particles in one place do not see each other",
    "two equal positions, or positions one whole box apart",
)
def neighbours_within():
    """How many other particles are within the cutoff of each one, in a periodic cube."""

    def check(positions, box, cutoff):
        if positions.ndim != 2:
            raise ValueError(f"positions have {positions.ndim} dimensions; give 2")
        if cutoff > box / 2:
            raise ValueError(f"cutoff {cutoff} is more than half of the box {box}")

    def squares(xp, positions, box):
        p = positions.astype("float64")
        step = p[:, None, :] - p[None, :, :]
        step = step - box * xp.round(step / box)
        return (step * step).sum(axis=-1)

    def wrong(xp, positions, box=6.0, cutoff=1.5):
        check(positions, box, cutoff)
        squared = squares(xp, positions, box)
        near = (squared > 0) & (squared <= cutoff * cutoff)
        return near.sum(axis=1).astype("int64")

    def right(xp, positions, box=6.0, cutoff=1.5):
        check(positions, box, cutoff)
        near = (squares(xp, positions, box) <= cutoff * cutoff) & ~xp.eye(positions.shape[0], dtype=bool)
        return near.sum(axis=1).astype("int64")

    def reference(positions, box=6.0, cutoff=1.5):
        check(positions, box, cutoff)
        counts = np.zeros(len(positions), dtype="int64")
        for i in range(len(positions)):
            for j in range(len(positions)):
                step = positions[i] - positions[j]
                step = step - box * np.round(step / box)
                counts[i] += i != j and (step * step).sum() <= cutoff * cutoff
        return counts

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="neighbours_within",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make((24, 3), low=0, high=6),
                Sample((make((30, 2), low=0, high=8),), {"box": 8.0, "cutoff": 2.5}),
                Sample((make((0, 3), low=0, high=6),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 3), low=0, high=6),), {"cutoff": 3.5}), ValueError, "half of the box"),
            ],
        )

    return wrong, right, declare


@pair(
    "centred_blur",
    "fftshift where ifftshift is needed",
    "FFT convolution in image and optics codes: the two shifts are the same for even lengths only",
    "an odd length: the result is moved by one place",
)
def centred_blur():
    """Circular convolution with a kernel as long as the signal whose origin is at place n // 2."""

    def check(signal, kernel):
        if kernel.ndim != 1 or signal.shape[-1:] != kernel.shape:
            raise ValueError(f"the kernel's shape is {kernel.shape}; give one as long as the last axis of the signal")

    def product(xp, signal, kernel):
        spectrum = xp.fft.fft(signal.astype("float64"), axis=-1) * xp.fft.fft(kernel)
        return xp.fft.ifft(spectrum, axis=-1).real.astype(signal.dtype)

    def wrong(xp, signal, kernel):
        check(signal, kernel)
        if signal.size == 0:
            return xp.zeros(signal.shape, dtype=signal.dtype)
        return product(xp, signal, xp.fft.fftshift(kernel.astype("float64")))

    def right(xp, signal, kernel):
        check(signal, kernel)
        if signal.size == 0:
            return xp.zeros(signal.shape, dtype=signal.dtype)
        return product(xp, signal, xp.fft.ifftshift(kernel.astype("float64")))

    def reference(signal, kernel):
        check(signal, kernel)
        n, out = len(kernel), np.zeros(signal.shape)
        for i in range(n):
            for j in range(n):
                out[..., i] += kernel[j] * signal[..., (i - (j - n // 2)) % n]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="centred_blur",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make(32, low=-1, high=1), make(32, low=0, high=1)),
                (make((3, 64), low=-1, high=1), make(64, low=0, high=1)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(8, low=-1, high=1), make(5, low=0, high=1)), ValueError, "as long as the last axis"),
            ],
        )

    return wrong, right, declare


@pair(
    "surface_at",
    "the cell is clamped at the last node, its fraction is not",
    "regular-grid interpolators: at the last node the cell is the one before, but the fraction stays 0",
    "a row or column that is exactly the last node of the grid: the value of the node before it",
)
def surface_at():
    """A surface on a grid at fractional rows and columns, bilinear; places outside count as on the border."""

    def check(grid, rows, columns):
        if grid.ndim != 2 or grid.size == 0:
            raise ValueError(f"the grid's shape is {grid.shape}; give two axes that are not empty")
        if rows.shape != columns.shape:
            raise ValueError(f"{rows.shape} rows and {columns.shape} columns; give as many of each")

    def blend(xp, grid, rows, columns, locate):
        values = grid.astype("float64")
        r0, r1, r = locate(xp, rows.astype("float64"), grid.shape[0])
        c0, c1, c = locate(xp, columns.astype("float64"), grid.shape[1])
        top = values[r0, c0] * (1 - c) + values[r0, c1] * c
        bottom = values[r1, c0] * (1 - c) + values[r1, c1] * c
        return (top * (1 - r) + bottom * r).astype(grid.dtype)

    def locate_floor(xp, at, n):
        at = xp.clip(at, 0, n - 1)
        whole = xp.floor(at)
        fraction = at - whole
        first = xp.clip(whole.astype("int64"), 0, max(n - 2, 0))
        return first, xp.minimum(first + 1, n - 1), fraction

    def locate_cell(xp, at, n):
        at = xp.clip(at, 0, n - 1)
        first = xp.clip(xp.floor(at).astype("int64"), 0, max(n - 2, 0))
        return first, xp.minimum(first + 1, n - 1), at - first

    def wrong(xp, grid, rows, columns):
        check(grid, rows, columns)
        return blend(xp, grid, rows, columns, locate_floor)

    def right(xp, grid, rows, columns):
        check(grid, rows, columns)
        return blend(xp, grid, rows, columns, locate_cell)

    def reference(grid, rows, columns):
        check(grid, rows, columns)
        out = np.zeros(rows.shape)
        for i in np.ndindex(out.shape):
            weights = []
            for at, n in ((rows[i], grid.shape[0]), (columns[i], grid.shape[1])):
                at = min(max(at, 0.0), n - 1.0)
                first = min(math.floor(at), max(n - 2, 0))
                weights.append(((first, 1 - (at - first)), (min(first + 1, n - 1), at - first)))
            out[i] = sum(u * sum(v * grid[p, q] for q, v in weights[1]) for p, u in weights[0])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="surface_at",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 9), low=-5, high=5), make(20, low=0, high=5), make(20, low=0, high=8)),
                (make((4, 4), low=-5, high=5), make((3, 7), low=0, high=3), make((3, 7), low=0, high=3)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    (make((0, 3), low=-5, high=5), make(2, low=0, high=1), make(2, low=0, high=1)),
                    ValueError,
                    "not empty",
                ),
            ],
        )

    return wrong, right, declare


@pair(
    "trapezoid_rule",
    "neighbours are added in the narrow integer dtype of the samples",
    "numpy.trapezoid and its ports: sums of two int8 or int16 samples wrap before they are halved",
    "int16 samples whose neighbours add up to more than 32767",
)
def trapezoid_rule():
    """The integral along the last axis by the trapezoidal rule; float64 for integers."""

    def kind_of(y):
        return y.dtype if y.dtype.kind == "f" else "float64"

    def wrong(xp, y, dx=1.0):
        pairs = (y[..., 1:] + y[..., :-1]) if y.dtype.kind == "i" else wide_pairs(y)
        return (pairs.astype("float64") * (0.5 * dx)).sum(axis=-1).astype(kind_of(y))

    def wide_pairs(y):
        y = y.astype("float64")
        return y[..., 1:] + y[..., :-1]

    def right(xp, y, dx=1.0):
        return (wide_pairs(y) * (0.5 * dx)).sum(axis=-1).astype(kind_of(y))

    def reference(y, dx=1.0):
        y = np.asarray(y, dtype="float64")
        return ((y[..., 1:] + y[..., :-1]) * (0.5 * dx)).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="trapezoid_rule",
            dtypes=("int16", "float32"),
            samples=lambda make: [
                make(33),
                Sample((make((4, 9)),), {"dx": 0.25}),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cubic_balance",
    "the largest step of the batch is compared, so one NaN ends the iteration for all",
    "batched Newton and Krylov solvers whose loop condition is max(error) > tol, which is False for NaN",
    "one NaN among ordinary numbers: all others are left after their first step",
)
def cubic_balance():
    """The real root x of x**3 + x = a for each a, by Newton's method."""

    def start(xp, a):
        values = xp.where(xp.isinf(a), 0.0, a.astype("float64"))
        return values, xp.sign(values) * xp.minimum(xp.abs(values), xp.abs(values) ** (1 / 3))

    def step_of(x, values):
        squared = x * x
        return (x - values / (squared + 1)) * ((squared + 1) / (3 * squared + 1))

    def finish(xp, a, x):
        return xp.where(xp.isinf(a) | (a == 0), a, x.astype(a.dtype))

    def wrong(xp, a):
        values, x = start(xp, a)
        worst = math.inf if a.size else 0.0
        left = 100
        while worst > 1e-15 and left:
            step = step_of(x, values)
            x = x - step
            worst = float(xp.max(xp.abs(step) / (xp.abs(x) + 1e-300)))
            left -= 1
        return finish(xp, a, x)

    def right(xp, a):
        values, x = start(xp, a)
        for _ in range(100):
            step = step_of(x, values)
            x = x - step
            if not bool(xp.any(xp.abs(step) > 1e-15 * (xp.abs(x) + 1e-300))):
                break
        return finish(xp, a, x)

    def reference(a):
        with np.errstate(all="ignore"):
            middle = 2 / math.sqrt(3) * np.sinh(np.arcsinh(1.5 * math.sqrt(3) * a) / 3)
            squared = middle * middle  # sinh of a large number loses digits: improve it once
            middle = middle - (middle - a / (squared + 1)) * ((squared + 1) / (3 * squared + 1))
        return np.where(np.abs(a) > 1e30, np.cbrt(a), middle)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cubic_balance",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40),
                make((5, 7), low=-1000, high=1000),
                Sample((make.of([0.5, math.nan, -3.0, math.inf, -math.inf, 0.0, 20.0]),), kind="extremal"),
                Sample((make((2, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "heun_step",
    "the predictor is added in place to an array that astype did not copy",
    "integrators that overwrite the caller's y0: astype(copy=False) or asarray gives the same memory back",
    "float64 states: no copy is made, so the state itself is moved before the corrector uses it",
)
def heun_step():
    """One step of Heun's method for the logistic equation y' = rate y (1 - y)."""

    def slope(y, rate):
        return rate * y * (1 - y)

    def wrong(xp, y, rate=1.0, step=0.1):
        predicted = y.astype("float64", copy=False)
        first = slope(predicted, rate)
        predicted += step * first
        return (y + (0.5 * step) * (first + slope(predicted, rate))).astype(y.dtype)

    def right(xp, y, rate=1.0, step=0.1):
        state = y.astype("float64", copy=False)
        first = slope(state, rate)
        predicted = state + step * first
        return (state + (0.5 * step) * (first + slope(predicted, rate))).astype(y.dtype)

    def reference(y, rate=1.0, step=0.1):
        first = rate * y * (1 - y)
        moved = y + step * first
        return y + (0.5 * step) * (first + rate * moved * (1 - moved))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="heun_step",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(50, low=0, high=2),
                Sample((make((6, 8), low=0, high=2),), {"rate": 2.5, "step": 0.05}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "interpolated_quantile",
    "low + (high - low) * t between neighbours that may be infinite",
    "numpy.percentile and ports of it: NaN for quantiles next to infinities, because inf - inf is NaN",
    "the quantile 1 of a row with an infinity, or equal infinities around the quantile",
)
def interpolated_quantile():
    """A quantile of each row, linear between order statistics; NaN for rows with NaN."""

    def check(a, q):
        if not 0 <= q <= 1:
            raise ValueError(f"q is {q}; give a number from 0 to 1")
        if a.ndim == 0 or a.shape[-1] == 0:
            raise ValueError("no values along the last axis")

    def around(xp, a, q):
        ordered = xp.sort(a.astype("float64"), axis=-1)
        at = q * (a.shape[-1] - 1)
        first = math.floor(at)
        return ordered[..., first], ordered[..., min(first + 1, a.shape[-1] - 1)], at - first

    def finish(xp, a, value):
        return xp.where(xp.isnan(a).any(axis=-1), math.nan, value).astype(a.dtype)

    def wrong(xp, a, q=0.5):
        check(a, q)
        low, high, t = around(xp, a, q)
        return finish(xp, a, low + (high - low) * t)

    def right(xp, a, q=0.5):
        check(a, q)
        low, high, t = around(xp, a, q)
        return finish(xp, a, low * (1 - t) + high * t if t else low)

    def reference(a, q=0.5):
        check(a, q)
        at = q * (a.shape[-1] - 1)
        out = np.zeros(a.shape[:-1])
        for i in np.ndindex(out.shape):
            row = np.sort(a[i]) if not np.isnan(a[i]).any() else np.full(a.shape[-1], math.nan)
            t = at - int(at)
            out[i] = row[int(at)] if t == 0 else row[int(at)] * (1 - t) + row[int(at) + 1] * t
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="interpolated_quantile",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(30),
                Sample((make((4, 11)),), {"q": 0.9}),
                Sample((make((6, 5)),), {"q": 1.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"q": 1.5}), ValueError, "q is 1.5"),
                ErrorInput(make((3, 0)), ValueError, "no values"),
            ],
        )

    return wrong, right, declare


@pair(
    "ridge_solve",
    "the right-hand side is transposed, not conjugated",
    "least-squares solvers (lsmr, lsqr, cg ports) that use A.T for the adjoint: wrong for complex matrices",
    "any complex matrix; real ones are right",
)
def ridge_solve():
    """The x that makes |a x - b|**2 + penalty |x|**2 least, by the normal equations."""

    def check(a, b, penalty):
        if a.ndim != 2 or b.ndim != 1 or a.shape[0] != b.shape[0]:
            raise ValueError(f"shapes {a.shape} and {b.shape} do not fit")
        if penalty <= 0:
            raise ValueError(f"penalty is {penalty}; give more than 0")

    def wide(a):
        return a.astype("complex128" if a.dtype.kind == "c" else "float64")

    def wrong(xp, a, b, penalty=0.5):
        check(a, b, penalty)
        matrix, adjoint = wide(a), xp.conj(wide(a)).T
        normal = adjoint @ matrix + penalty * xp.eye(a.shape[1])
        return xp.linalg.solve(normal, (matrix.T @ wide(b))[:, None])[:, 0].astype(a.dtype)

    def right(xp, a, b, penalty=0.5):
        check(a, b, penalty)
        matrix, adjoint = wide(a), xp.conj(wide(a)).T
        normal = adjoint @ matrix + penalty * xp.eye(a.shape[1])
        return xp.linalg.solve(normal, (adjoint @ wide(b))[:, None])[:, 0].astype(a.dtype)

    def reference(a, b, penalty=0.5):
        check(a, b, penalty)
        n = a.shape[1]
        if n == 0:
            return np.zeros(0, dtype=a.dtype)
        stacked = np.concatenate([a, math.sqrt(penalty) * np.eye(n)])
        return np.linalg.lstsq(stacked, np.concatenate([b, np.zeros(n)]), rcond=None)[0]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ridge_solve",
            dtypes=("float32", "complex64"),
            samples=lambda make: [
                (make((9, 4), low=-1, high=1), make(9, low=-1, high=1)),
                Sample((make((5, 7), low=-1, high=1), make(5, low=-1, high=1)), {"penalty": 2.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((3, 2), low=-1, high=1), make(3, low=-1, high=1)), {"penalty": 0}),
                    ValueError,
                    "penalty is 0",
                ),
                ErrorInput((make((3, 2), low=-1, high=1), make(4, low=-1, high=1)), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "tetrahedron_volumes",
    "determinants of the corners themselves, not of the edges",
    "mesh libraries with georeferenced coordinates: volumes and areas lose all digits far from the origin",
    "float64 corners moved by 10,000 or more",
)
def tetrahedron_volumes():
    """Signed volumes of tetrahedra, given by four corners each."""

    def check(corners):
        if corners.ndim < 2 or corners.shape[-2:] != (4, 3):
            raise ValueError(f"the shape is {corners.shape}; give four corners of three coordinates")

    def triple(u, v, w):
        return (
            u[..., 0] * (v[..., 1] * w[..., 2] - v[..., 2] * w[..., 1])
            + u[..., 1] * (v[..., 2] * w[..., 0] - v[..., 0] * w[..., 2])
            + u[..., 2] * (v[..., 0] * w[..., 1] - v[..., 1] * w[..., 0])
        )

    def wrong(xp, corners):
        check(corners)
        p = corners.astype("float64")
        a, b, c, d = p[..., 0, :], p[..., 1, :], p[..., 2, :], p[..., 3, :]
        total = triple(b, c, d) - triple(a, c, d) + triple(a, b, d) - triple(a, b, c)
        return (total / 6).astype(corners.dtype)

    def right(xp, corners):
        check(corners)
        p = corners.astype("float64")
        a = p[..., 0, :]
        return (triple(p[..., 1, :] - a, p[..., 2, :] - a, p[..., 3, :] - a) / 6).astype(corners.dtype)

    def reference(corners):
        check(corners)
        u, v, w = (corners[..., i, :] - corners[..., 0, :] for i in (1, 2, 3))
        normal = np.stack(
            [
                v[..., 1] * w[..., 2] - v[..., 2] * w[..., 1],
                v[..., 2] * w[..., 0] - v[..., 0] * w[..., 2],
                v[..., 0] * w[..., 1] - v[..., 1] * w[..., 0],
            ],
            axis=-1,
        )
        return (u * normal).sum(axis=-1) / 6

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="tetrahedron_volumes",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((12, 4, 3)),
                make((2, 5, 4, 3)),
                make((4, 3)),
                Sample((make((0, 4, 3)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((5, 3, 3)), ValueError, "four corners")],
        )

    return wrong, right, declare


@pair(
    "seasonal_profile",
    "the last season is dropped if it is not whole",
    "seasonal decomposition by reshape(-1, period): the elements after the last whole season are cut off",
    "a length that is no multiple of the period",
)
def seasonal_profile():
    """The mean of each phase of a period along the last axis; NaN for phases that do not occur."""

    def check(a, period):
        if period < 1:
            raise ValueError(f"period is {period}; give 1 or more")
        if a.ndim == 0:
            raise ValueError("a number has no seasons; give an array")

    def wrong(xp, a, period=6):
        check(a, period)
        n = a.shape[-1]
        if n < period:
            rest = xp.full((*a.shape[:-1], period - n), math.nan, dtype=a.dtype)
            return xp.concatenate([a, rest], axis=-1)
        seasons = n // period
        whole = a[..., : seasons * period].astype("float64").reshape(*a.shape[:-1], seasons, period)
        return whole.mean(axis=-2).astype(a.dtype)

    def right(xp, a, period=6):
        check(a, period)
        n = a.shape[-1]
        seasons = max(-(-n // period), 1)
        missing = xp.full((*a.shape[:-1], seasons * period - n), -0.0, dtype="float64")  # -0.0 keeps signs of zeros
        whole = xp.concatenate([a.astype("float64"), missing], axis=-1)
        counts = (n + period - 1 - xp.arange(period)) // period
        totals = whole.reshape(*a.shape[:-1], seasons, period).sum(axis=-2)
        return xp.where(counts > 0, totals / xp.maximum(counts, 1), math.nan).astype(a.dtype)

    def reference(a, period=6):
        check(a, period)
        out = np.full((*a.shape[:-1], period), math.nan)
        for phase in range(min(period, a.shape[-1])):
            values = a[..., phase::period]
            out[..., phase] = values.sum(axis=-1) / values.shape[-1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="seasonal_profile",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(24),
                Sample((make((3, 20)),), {"period": 4}),
                Sample((make((2, 2, 14)),), {"period": 7}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(6),), {"period": 0}), ValueError, "period is 0")],
        )

    return wrong, right, declare


@pair(
    "ticks_to_microseconds",
    "ticks are multiplied by a million before they are divided",
    "performance counters: ticks * 1000000 / frequency wraps around in 64 bits after days of uptime",
    "counts beyond 9.2e12, which are ten days at ten million ticks a second",
)
def ticks_to_microseconds():
    """Whole microseconds, rounded down, of a counter's ticks."""

    def check(frequency):
        if frequency < 1_000_000:
            raise ValueError(f"frequency is {frequency}; give a million or more ticks a second")

    def wrong(xp, ticks, frequency=10_000_000):
        check(frequency)
        return ticks * 1_000_000 // frequency

    def right(xp, ticks, frequency=10_000_000):
        check(frequency)
        return ticks // frequency * 1_000_000 + ticks % frequency * 1_000_000 // frequency

    def reference(ticks, frequency=10_000_000):
        check(frequency)
        out = np.zeros(ticks.shape, dtype="int64")
        for i in np.ndindex(out.shape):
            out[i] = int(ticks[i]) * 1_000_000 // frequency
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ticks_to_microseconds",
            dtypes=("int64",),
            samples=lambda make: [
                make(40, low=0, high=86_400 * 10_000_000),
                Sample((make((3, 8)),), {"frequency": 3_579_545}),
                Sample((make((2, 5)),), {"frequency": 24_000_000}),
                Sample((make(0),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3),), {"frequency": 32_768}), ValueError, "frequency is 32768"),
            ],
        )

    return wrong, right, declare
