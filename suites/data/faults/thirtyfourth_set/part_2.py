"""Linear algebra, metrics, layers, optimiser states, special functions, sampling, geometry, gaps: faults with twins."""

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
    "hermitian_from_lower",
    "the diagonal keeps its imaginary part",
    "LAPACK, cuSOLVER: heevd and potrf read a lower triangle and take the diagonal as real; array libraries that"
    " mirror the triangle themselves (symmetrised eigh inputs in JAX, CuPy) have to do that too",
    "a complex matrix with 1+2j on its diagonal: the result equals not its own conjugate transpose",
)
def hermitian_from_lower():
    """The Hermitian matrix whose lower triangle is given; what is above it and the diagonal's phase are not read."""

    def check(a):
        if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
            raise ValueError(f"the shape is {a.shape}; give square matrices")

    def wrong(xp, a):
        check(a)
        return xp.tril(a) + xp.conj(xp.swapaxes(xp.tril(a, -1), -1, -2))

    def right(xp, a):
        check(a)
        places = xp.arange(a.shape[-1])
        row, column = places[:, None], places[None, :]
        out = xp.where(row > column, a, xp.conj(xp.swapaxes(a, -1, -2)))
        return xp.where(row == column, xp.real(a).astype(a.dtype), out)

    def reference(a):
        check(a)
        out = np.array(a)
        for i in range(a.shape[-1]):
            out[..., i, i] = a[..., i, i].real
            for j in range(i):
                out[..., j, i] = np.conj(a[..., i, j])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="hermitian_from_lower",
            dtypes=("float32", "float64", "complex64", "complex128"),
            samples=lambda make: [
                make((6, 6)),
                make((3, 4, 4)),
                Sample((make((0, 0)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((3, 4)), ValueError, "square")],
        )

    return wrong, right, declare


@pair(
    "mean_iou",
    "a class that occurs nowhere counts as an overlap of zero",
    "torchmetrics and MONAI issues: the mean intersection over union falls because of classes absent from the image",
    "labels of 5 classes of which class 4 is in neither image: the mean is 4/5 of what it should be",
)
def mean_iou():
    """The mean over classes of intersection over union of each row's labels; classes in neither row are left out."""

    def check(predicted, target, classes):
        if classes < 1:
            raise ValueError(f"classes is {classes}; give 1 or more")
        if predicted.shape != target.shape:
            raise ValueError(f"labels of shapes {predicted.shape} and {target.shape}")

    def overlaps(xp, predicted, target, classes):
        names = xp.arange(classes)
        of_predicted, of_target = predicted[..., None] == names, target[..., None] == names
        return (of_predicted & of_target).sum(axis=-2), (of_predicted | of_target).sum(axis=-2)

    def wrong(xp, predicted, target, classes=5):
        check(predicted, target, classes)
        both, either = overlaps(xp, predicted, target, classes)
        return (both / xp.maximum(either, 1)).mean(axis=-1)

    def right(xp, predicted, target, classes=5):
        check(predicted, target, classes)
        both, either = overlaps(xp, predicted, target, classes)
        present = (either > 0).sum(axis=-1)
        mean = (both / xp.maximum(either, 1)).sum(axis=-1) / xp.maximum(present, 1)
        return xp.where(present > 0, mean, math.nan)

    def reference(predicted, target, classes=5):
        check(predicted, target, classes)
        out = np.full(predicted.shape[:-1], math.nan)
        for i in np.ndindex(out.shape):
            ratios = []
            for c in range(classes):
                p, t = predicted[i] == c, target[i] == c
                if (p | t).any():
                    ratios.append((p & t).sum() / (p | t).sum())
            if ratios:
                out[i] = sum(ratios) / len(ratios)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mean_iou",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                (make((3, 60), low=0, high=4), make((3, 60), low=0, high=4)),
                (make(200, low=0, high=4), make(200, low=0, high=4)),
                Sample((make((2, 2, 40), low=0, high=2), make((2, 2, 40), low=0, high=2)), {"classes": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, low=0, high=2), make(4, low=0, high=2)), {"classes": 0}), ValueError, "classes is 0"
                ),
            ],
        )

    return wrong, right, declare


@pair(
    "channel_shuffle",
    "the inverse permutation",
    "ports of ShuffleNet, and exporters that write it as reshape and transpose: (channels / groups, groups)"
    " instead of (groups, channels / groups); both agree where channels is the square of groups",
    "6 channels in 2 groups: 0 2 4 1 3 5 instead of 0 3 1 4 2 5",
)
def channel_shuffle():
    """Channels (axis 1) dealt out from each group in turn."""

    def check(a, groups):
        if a.ndim < 2:
            raise ValueError(f"the shape is {a.shape}; give (batch, channels, ...)")
        if groups < 1 or a.shape[1] % groups:
            raise ValueError(f"{a.shape[1]} channels do not make {groups} groups")

    def wrong(xp, a, groups=2):
        check(a, groups)
        parts = a.reshape((a.shape[0], a.shape[1] // groups, groups, *a.shape[2:]))
        return xp.swapaxes(parts, 1, 2).reshape(a.shape)

    def right(xp, a, groups=2):
        check(a, groups)
        parts = a.reshape((a.shape[0], groups, a.shape[1] // groups, *a.shape[2:]))
        return xp.swapaxes(parts, 1, 2).reshape(a.shape)

    def reference(a, groups=2):
        check(a, groups)
        each = a.shape[1] // groups
        return a[:, [group * each + i for i in range(each) for group in range(groups)]]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="channel_shuffle",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((2, 4, 5)),
                make((1, 4, 3, 3)),
                Sample((make((3, 9, 4)),), {"groups": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 4, 3)),), {"groups": 3}), ValueError, "3 groups")],
        )

    return wrong, right, declare


@pair(
    "factored_update",
    "the product of two guards of 1e-30 is zero in float32",
    "Adafactor in fairseq and Hugging Face: the second moment as rows times columns over their mean underflows where"
    " a whole gradient is zero or tiny; they multiply two inverse roots instead",
    "a gradient of zeros, as of an embedding that no token of the batch used: 0 / 0, and the weights are NaN",
)
def factored_update():
    """Adafactor's first update: gradients over the root of a second moment factored into rows and columns."""

    def moments(xp, grad, eps):
        wide = grad.astype("float32")
        squares = wide * wide + eps
        rows, columns = max(grad.shape[-2], 1), max(grad.shape[-1], 1)
        by_row = squares.sum(axis=-1, keepdims=True) / columns
        by_column = squares.sum(axis=-2, keepdims=True) / rows
        return wide, by_row, by_column, by_row.sum(axis=-2, keepdims=True) / rows

    def wrong(xp, grad, eps=1e-30):
        wide, by_row, by_column, mean = moments(xp, grad, eps)
        return (wide / xp.sqrt(by_row * by_column / mean)).astype(grad.dtype)

    def right(xp, grad, eps=1e-30):
        wide, by_row, by_column, mean = moments(xp, grad, eps)
        return (wide / xp.sqrt(by_row / mean) / xp.sqrt(by_column)).astype(grad.dtype)

    def reference(grad, eps=1e-30):
        if 0 in grad.shape:
            return np.zeros(grad.shape)
        squares = grad * grad + eps
        by_row, by_column = squares.mean(axis=-1, keepdims=True), squares.mean(axis=-2, keepdims=True)
        return grad / np.sqrt(by_row / by_row.mean(axis=-2, keepdims=True)) / np.sqrt(by_column)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="factored_update",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((8, 13), low=-10, high=10),
                make((3, 4, 5), low=-1, high=1),
                Sample((make((6, 7), low=-1, high=1),), {"eps": 1e-8}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rprop_step",
    "the agreement of signs is taken from a product that underflows",
    "Rprop in PyTorch (grad.mul(prev).sign()) and in ports of it: in float16 the product of two ordinary small"
    " gradients is zero, so the step size neither grows nor shrinks",
    "float16 gradients of 1e-4 and 2e-4: the step stays as it was instead of growing by 1.2",
)
def rprop_step():
    """One step of Rprop: new weights, the gradient to remember (0 after a change of sign), and step sizes."""

    def finish(xp, weights, grad, step, agreement, options):
        shrink, grow, smallest, largest = options
        wide = grad.astype("float32")
        factor = xp.where(agreement > 0, grow, xp.where(agreement < 0, shrink, 1.0)).astype("float32")
        new_step = xp.clip(step.astype("float32") * factor, smallest, largest)
        kept = xp.where(agreement < 0, xp.zeros_like(wide), wide)
        moved = weights.astype("float32") - xp.sign(kept) * new_step
        return moved.astype(weights.dtype), kept.astype(grad.dtype), new_step.astype(step.dtype)

    def wrong(xp, weights, grad, previous, step, shrink=0.5, grow=1.2, smallest=1e-6, largest=50.0):
        agreement = xp.sign(grad * previous)
        return finish(xp, weights, grad, step, agreement, (shrink, grow, smallest, largest))

    def right(xp, weights, grad, previous, step, shrink=0.5, grow=1.2, smallest=1e-6, largest=50.0):
        agreement = xp.sign(grad) * xp.sign(previous)
        return finish(xp, weights, grad, step, agreement, (shrink, grow, smallest, largest))

    def reference(weights, grad, previous, step, shrink=0.5, grow=1.2, smallest=1e-6, largest=50.0):
        same = ((grad > 0) & (previous > 0)) | ((grad < 0) & (previous < 0))
        opposite = ((grad > 0) & (previous < 0)) | ((grad < 0) & (previous > 0))
        step = np.clip(np.where(same, step * grow, np.where(opposite, step * shrink, step)), smallest, largest)
        kept = np.where(opposite, 0.0, grad)
        return weights - np.sign(kept) * step, kept, step

    def declare(fn):
        def inputs(make, shape, **limits):
            return (make(shape), make(shape, **limits), make(shape, **limits), make(shape, low=0.01, high=2))

        return OpSpec(
            fn=fn,
            name="rprop_step",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                inputs(make, 64),
                inputs(make, (6, 7), low=-0.01, high=0.01),
                Sample(inputs(make, (3, 5)), {"shrink": 0.4, "grow": 1.1, "largest": 1.5}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "project_to_simplex",
    "argmin of a mask without a false entry is 0",
    "sparsemax and simplex projections of attention and optimisation libraries: the size of the support as the first"
    " place where the condition fails, which does not exist where it holds everywhere",
    "[0.1, 0.2, 0.15]: every entry stays positive, so the threshold is divided by 0",
)
def project_to_simplex():
    """The nearest point of the probability simplex, along the last axis."""

    def sorted_sums(xp, a):
        wide = a.astype("float64")
        wide = wide - wide.max(axis=-1, keepdims=True)
        down = xp.flip(xp.sort(wide, axis=-1), axis=-1)
        excess = xp.cumsum(down, axis=-1) - 1
        return wide, excess, down * xp.arange(1, a.shape[-1] + 1) > excess

    def wrong(xp, a):
        if a.shape[-1] == 0:
            return a.copy()
        wide, excess, holds = sorted_sums(xp, a)
        size = xp.argmin(holds, axis=-1, keepdims=True)
        threshold = xp.take_along_axis(excess, size - 1, axis=-1) / size
        return xp.maximum(wide - threshold, 0).astype(a.dtype)

    def right(xp, a):
        if a.shape[-1] == 0:
            return a.copy()
        wide, excess, holds = sorted_sums(xp, a)
        size = holds.sum(axis=-1, keepdims=True)
        threshold = xp.take_along_axis(excess, size - 1, axis=-1) / size
        return xp.maximum(wide - threshold, 0).astype(a.dtype)

    def reference(a):
        out = np.zeros(a.shape)
        for i in np.ndindex(a.shape[:-1]):
            if not a.shape[-1]:
                break
            row = a[i] - a[i].max()
            down = sorted(row, reverse=True)
            threshold = max((math.fsum(down[:k]) - 1) / k for k in range(1, len(down) + 1))
            out[i] = np.maximum(row - threshold, 0)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="project_to_simplex",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                make(12, low=-5, high=5),
                make((4, 9), low=-5, high=5),
                make((2, 3, 16), low=0, high=2),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "choose",
    "binomial coefficients by way of float64",
    "scipy.special.comb and its copies on GPUs: integers in, integers out, but the product runs in float64, which is"
    " exact only up to 2**53",
    "choose(60, 30) is 118264581564861424; the float64 product misses it by some units",
)
def choose():
    """The number of ways to choose k of n, exactly, for n from 0 to 60; 0 where k exceeds n."""

    def product(xp, n, k, dtype, divide):
        n, k = n.astype("int64"), k.astype("int64")
        fewer = xp.minimum(k, n - k)
        out = (n + k + 1 > 0).astype(dtype)
        for i in range(1, 31):
            out = xp.where(i <= fewer, divide(out * (n - fewer + i).astype(dtype), i), out)
        return xp.where(k <= n, out, xp.zeros_like(out))

    def wrong(xp, n, k):
        return xp.rint(product(xp, n, k, "float64", lambda a, i: a / i)).astype("int64")

    def right(xp, n, k):
        return product(xp, n, k, "int64", lambda a, i: a // i)

    def reference(n, k):
        n, k = np.broadcast_arrays(n, k)
        out = np.zeros(n.shape, dtype="int64")
        for i in np.ndindex(n.shape):
            out[i] = math.comb(int(n[i]), int(k[i]))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="choose",
            dtypes=("int32", "int64"),
            result_dtype=lambda n, k: "int64",
            samples=lambda make: [
                (make(40, low=0, high=60), make(40, low=0, high=60)),
                (make((3, 5), low=10, high=30), make((3, 5), low=0, high=15)),
                Sample((make((4, 1), low=0, high=60), make(7, low=0, high=30)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "spherical_j1",
    "two nearly equal terms are subtracted near zero",
    "spherical_jn of SciPy and of GPU ports of scattering codes: the closed form is guarded at 0 itself only",
    "x of 0.001 in float32: the two terms agree in all digits but the last, and the result is off by percents",
)
def spherical_j1():
    """The spherical Bessel function of order 1, (sin(x) / x - cos(x)) / x."""

    def closed(xp, x, safe):
        return (xp.sin(x) / safe - xp.cos(x)) / safe

    def wrong(xp, x):
        at_zero = x == 0
        safe = xp.where(at_zero, xp.ones_like(x), x)
        return xp.where(at_zero, xp.zeros_like(x), closed(xp, x, safe))

    def right(xp, x):
        near = xp.abs(x) < 1
        square = xp.where(near, x, xp.zeros_like(x)) ** 2
        series = xp.ones_like(x)
        for k in range(8, 0, -1):
            series = 1 - square / (2 * k * (2 * k + 3)) * series
        safe = xp.where(near, xp.ones_like(x), x)
        return xp.where(near, x / 3 * series, closed(xp, x, safe))

    def reference(x):
        near = np.abs(x) < 1
        small = np.where(near, x, 0.0)
        term = small / 3
        total = np.zeros(np.shape(x))
        for k in range(1, 12):
            total = total + term
            term = term * -(small * small) / (2 * k * (2 * k + 3))
        large = np.where(near, 1.0, x)
        return np.where(near, total, (np.sin(large) / large - np.cos(large)) / large)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="spherical_j1",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(60),
                make((5, 7), low=-20, high=20),
                Sample((make(()),), kind="scalar"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "geometric_from_uniform",
    "a uniform of exactly 0, or a sure success, takes 0 trials",
    "geometric samplers of NumPy, PyTorch and JAX: uniforms come from [0, 1), and ceil of the quotient of logarithms"
    " is 0 there, below the distribution's support",
    "a uniform of 0, or a probability of 1: 0 trials instead of 1",
)
def geometric_from_uniform():
    """The number of trials up to the first success, 1 or more, by inversion; u is in [0, 1), p in (0, 1]."""

    def wrong(xp, u, p):
        return xp.ceil(xp.log1p(-u.astype("float64")) / xp.log1p(-p.astype("float64"))).astype("int64")

    def right(xp, u, p):
        u, p = u.astype("float64"), p.astype("float64")
        sure = p >= 1
        trials = xp.ceil(xp.log1p(-u) / xp.log1p(-xp.where(sure, 0.5, p)))
        return xp.where(sure, 1, xp.maximum(trials, 1)).astype("int64")

    def reference(u, p):
        with np.errstate(divide="ignore"):
            trials = np.ceil(np.log1p(-u) / np.log1p(-p))
        return np.where(trials < 1, 1, trials).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="geometric_from_uniform",
            dtypes=("float32", "float64"),
            result_dtype=lambda u, p: "int64",
            samples=lambda make: [
                (make(50, low=0, high=0.99), make(50, low=0.1, high=1)),
                (make((4, 9), low=0, high=0.99), make((4, 9), low=0.4, high=0.6)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "inside_polygon",
    "an edge includes both of its ends",
    "cuSpatial and many ray-casting point-in-polygon kernels: a ray through a corner crosses two edges that share it",
    "a point at the height of a corner, as with pixel coordinates: it is taken for outside where it is inside",
)
def inside_polygon():
    """Whether points (..., 2) lie inside a polygon of corners (n, 2): a ray to the right crosses an odd number."""

    def check(points, corners):
        if points.ndim < 1 or points.shape[-1] != 2 or corners.ndim != 2 or corners.shape[-1] != 2:
            raise ValueError(f"shapes {points.shape} and {corners.shape}; give (..., 2) and (n, 2)")
        if corners.shape[0] < 3:
            raise ValueError(f"{corners.shape[0]} corners; give 3 or more")

    def odd(xp, points, corners, crossed):
        check(points, corners)
        points, start = points.astype("float64"), corners.astype("float64")
        end = xp.roll(start, -1, axis=0)
        x, y = points[..., 0:1], points[..., 1:2]
        rise = end[:, 1] - start[:, 1]
        safe = xp.where(rise == 0, 1.0, rise)
        at = start[:, 0] + (y - start[:, 1]) * (end[:, 0] - start[:, 0]) / safe
        hits = crossed(xp, start[:, 1], end[:, 1], y) & (x < at)
        return hits.sum(axis=-1) % 2 == 1

    def wrong(xp, points, corners):
        def crossed(xp, start, end, y):
            return (start != end) & (xp.minimum(start, end) <= y) & (y <= xp.maximum(start, end))

        return odd(xp, points, corners, crossed)

    def right(xp, points, corners):
        return odd(xp, points, corners, lambda xp, start, end, y: (start > y) != (end > y))

    def reference(points, corners):
        check(points, corners)
        out = np.zeros(points.shape[:-1], dtype=bool)
        for i in np.ndindex(out.shape):
            x, y = points[i]
            for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
                if (y1 > y) != (y2 > y) and x < x1 + (y - y1) * (x2 - x1) / (y2 - y1):
                    out[i] = not out[i]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="inside_polygon",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((40, 2), low=0, high=10), make((5, 2), low=0, high=10)),
                (make((4, 6, 2), low=-2, high=2), make((8, 2), low=-2, high=2)),
                Sample((make((0, 2), low=0, high=10), make((3, 2), low=0, high=10)), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((4, 2), low=0, high=1), make((2, 2), low=0, high=1)), ValueError, "2 corners"),
            ],
        )

    return wrong, right, declare


@pair(
    "ray_sphere",
    "from inside the sphere the nearer root is behind, and the ray counts as a miss",
    "ray casters of simulation and graphics libraries, with a camera inside a shape: only one root of the"
    " quadratic is tried",
    "an origin within the sphere: infinity instead of the distance to the far wall",
)
def ray_sphere():
    """How far along its direction each ray first meets a sphere about the centre; infinity where it does not."""

    def check(origins, directions, radius):
        if radius <= 0:
            raise ValueError(f"radius is {radius}; give more than 0")
        for a in (origins, directions):
            if a.ndim < 1 or a.shape[-1] != 3:
                raise ValueError(f"the shape is {a.shape}; give (..., 3)")

    def dot(a, b):
        return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]

    def roots(xp, origins, directions, radius):
        check(origins, directions, radius)
        o, d = origins.astype("float64"), directions.astype("float64")
        a, b, c = dot(d, d), dot(o, d), dot(o, o) - radius * radius
        under = b * b - a * c
        root = xp.sqrt(xp.maximum(under, 0))
        safe = xp.where(a > 0, a, 1.0)
        return (a > 0) & (under >= 0), (-b - root) / safe, (-b + root) / safe

    def wrong(xp, origins, directions, radius=1.0):
        meets, near, _ = roots(xp, origins, directions, radius)
        return xp.where(meets & (near >= 0), near, math.inf).astype(origins.dtype)

    def right(xp, origins, directions, radius=1.0):
        meets, near, far = roots(xp, origins, directions, radius)
        first = xp.where(near >= 0, near, far)
        return xp.where(meets & (first >= 0), first, math.inf).astype(origins.dtype)

    def reference(origins, directions, radius=1.0):
        check(origins, directions, radius)
        origins, directions = np.broadcast_arrays(origins, directions)
        out = np.full(origins.shape[:-1], math.inf)
        for i in np.ndindex(out.shape):
            o, d = origins[i], directions[i]
            a, b, c = dot(d, d), dot(o, d), dot(o, o) - radius * radius
            if a > 0 and b * b - a * c >= 0:
                root = np.sqrt(b * b - a * c)
                ahead = [t for t in ((-b - root) / a, (-b + root) / a) if t >= 0]
                out[i] = min(ahead, default=math.inf)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ray_sphere",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((30, 3), low=-3, high=3), make((30, 3), low=-1, high=1)),
                Sample((make((4, 5, 3), low=2, high=6), make((4, 5, 3), low=-1, high=1)), {"radius": 2.5}),
                Sample((make(3, low=-3, high=3), make((12, 3), low=-1, high=1)), kind="broadcast"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((2, 3), low=-3, high=3), make((2, 3), low=-1, high=1)), {"radius": 0.0}),
                    ValueError,
                    "radius is 0",
                ),
            ],
        )

    return wrong, right, declare


@pair(
    "interpolate_gaps",
    "a gap at the start is filled from the invalid first entry",
    "pandas, xarray and cuDF interpolation by a running maximum of valid places: place 0 stands for 'none yet'",
    "valid = [False, False, True, ...]: the first two entries come from the invalid entry 0",
)
def interpolate_gaps():
    """Invalid entries of each row by linear interpolation; gaps at the ends take the nearest valid entry, or NaN."""

    def check(values, valid):
        if values.shape != valid.shape or values.ndim < 1:
            raise ValueError(f"values of shape {values.shape}, valid of {valid.shape}; give two equal ones")

    def fill(xp, values, valid, before, after):
        places = xp.arange(values.shape[-1])
        left = xp.take_along_axis(values, before, axis=-1).astype("float64")
        right = xp.take_along_axis(values, after, axis=-1).astype("float64")
        share = (places - before) / xp.maximum(after - before, 1)
        between = xp.where(after == before, left, (1 - share) * left + share * right)
        filled = xp.where(valid, values.astype("float64"), between)
        return xp.where(valid.any(axis=-1, keepdims=True), filled, math.nan).astype(values.dtype)

    def next_valid(xp, valid, places, none):
        return xp.flip(xp.minimum.accumulate(xp.flip(xp.where(valid, places, none), axis=-1), axis=-1), axis=-1)

    def wrong(xp, values, valid):
        check(values, valid)
        length = values.shape[-1]
        places = xp.arange(length)
        before = xp.maximum.accumulate(xp.where(valid, places, 0), axis=-1)
        after = next_valid(xp, valid, places, length)
        after = xp.where(after == length, before, after)
        return fill(xp, values, valid, before, after)

    def right(xp, values, valid):
        check(values, valid)
        length = values.shape[-1]
        places = xp.arange(length)
        before = xp.maximum.accumulate(xp.where(valid, places, -1), axis=-1)
        after = next_valid(xp, valid, places, length)
        after = xp.where(after == length, xp.maximum(before, 0), after)
        before = xp.where(before < 0, after, before)
        return fill(xp, values, valid, before, after)

    def reference(values, valid):
        check(values, valid)
        out = np.full(values.shape, math.nan)
        for i in np.ndindex(values.shape[:-1]):
            known = np.flatnonzero(valid[i])
            for j in range(values.shape[-1] if len(known) else 0):
                before, after = known[known <= j], known[known >= j]
                low = before[-1] if len(before) else after[0]
                high = after[0] if len(after) else before[-1]
                out[(*i, j)] = values[(*i, low)]
                if low != high:
                    share = (j - low) / (high - low)
                    out[(*i, j)] = (1 - share) * values[(*i, low)] + share * values[(*i, high)]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="interpolate_gaps",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40), make(40, dtype="bool")),
                (make((4, 15)), make((4, 15), dtype="bool")),
            ],
            reference=reference,
        )

    return wrong, right, declare
