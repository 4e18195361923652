"""Images, audio, video, graphs, sparse and packed formats, finance, biology, transformers: faults with their twins."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
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
    "flags_in_common",
    "the tail of the last warp is padded with zeros, which are not the identity of AND",
    "warp reductions over a sum kernel's padding: the identity of the sum was kept for bitwise AND",
    "a row whose length is no multiple of 32 and whose entries share a bit: the result is 0",
)
def flags_in_common():
    """The bits that all entries along the last axis have set; all bits where there is no entry."""

    def reduce(xp, a, fill):
        tail = -a.shape[-1] % 32
        if tail or a.shape[-1] == 0:
            padding = xp.full((*a.shape[:-1], tail or 32), fill, dtype=a.dtype)
            a = xp.concatenate([a, padding], axis=-1)
        lanes = a.reshape((*a.shape[:-1], a.shape[-1] // 32, 32))
        while lanes.shape[-1] > 1:
            half = lanes.shape[-1] // 2
            lanes = lanes[..., :half] & lanes[..., half:]
        result = lanes[..., 0, 0]
        for block in range(1, lanes.shape[-2]):
            result = result & lanes[..., block, 0]
        return result.copy()

    def wrong(xp, a):
        return reduce(xp, a, 0)

    def right(xp, a):
        return reduce(xp, a, np.iinfo(a.dtype).max if np.iinfo(a.dtype).min == 0 else -1)

    def reference(a):
        out = np.empty(a.shape[:-1], dtype=a.dtype)
        for i in np.ndindex(out.shape):
            bits = -1
            for place in range(a.shape[-1]):
                bits &= int(a[i][place])
            out[i] = bits & np.iinfo(a.dtype).max if np.iinfo(a.dtype).min == 0 else bits
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="flags_in_common",
            dtypes=("uint8", "int32", "int64"),
            samples=lambda make: [
                make((5, 3), low=0, high=127),
                make((2, 64), low=96, high=127),
                make(37, low=64, high=127),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "luma_8bit",
    "the weighted sum overflows int16 before it is shifted and clamped",
    "ports of the BT.601 integer formula from C, where int16 operands are promoted to int: the array sum is not",
    "a white pixel: the sum is negative and is clamped to 16 instead of 235",
)
def luma_8bit():
    """The BT.601 luma from 16 to 235 of 8-bit RGB pixels, in the usual integer formula."""

    def convert(xp, rgb, dtype):
        if rgb.ndim == 0 or rgb.shape[-1] != 3:
            raise ValueError(f"the shape is {tuple(rgb.shape)}; the last axis holds red, green and blue")
        wide = rgb.astype(dtype)
        total = wide[..., 0] * 66 + wide[..., 1] * 129 + wide[..., 2] * 25 + 128
        return xp.clip((total >> 8) + 16, 16, 235).astype("uint8")

    def wrong(xp, rgb):
        return convert(xp, rgb, "int16")

    def right(xp, rgb):
        return convert(xp, rgb, "int32")

    def reference(rgb):
        if rgb.ndim == 0 or rgb.shape[-1] != 3:
            raise ValueError("the last axis holds red, green and blue")
        out = np.empty(rgb.shape[:-1], dtype="uint8")
        for i in np.ndindex(out.shape):
            red, green, blue = (int(level) for level in rgb[i])
            out[i] = min(max(math.floor((66 * red + 129 * green + 25 * blue + 128) / 256) + 16, 16), 235)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="luma_8bit",
            dtypes=("uint8",),
            samples=lambda make: [
                make((4, 5, 3), low=0, high=255),
                make((17, 3), low=0, high=255),
                make(3, low=0, high=100),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((4, 4), low=0, high=255), ValueError, "last axis")],
        )

    return wrong, right, declare


@pair(
    "paeth_residual",
    "a tie with the upper left neighbour goes to it",
    "PNG encoders with < where the specification has <=: ties belong to left, then upper, then upper left",
    "left 3, upper 0, upper left 1: left and upper left are equally near, and 1 is predicted instead of 3",
)
def paeth_residual():
    """The PNG filter Paeth of an image of one byte a pixel: each pixel minus its prediction, modulo 256."""

    def neighbours(xp, image):
        if image.ndim != 2:
            raise ValueError(f"the image has {image.ndim} axes; give 2")
        rows, columns = image.shape
        framed = xp.zeros((rows + 1, columns + 1), dtype="int32")
        framed[1:, 1:] = image
        return framed[1:, 1:], framed[1:, :-1], framed[:-1, 1:], framed[:-1, :-1]

    def wrong(xp, image):
        here, left, upper, corner = neighbours(xp, image)
        guess = left + upper - corner
        to_left, to_upper, to_corner = xp.abs(guess - left), xp.abs(guess - upper), xp.abs(guess - corner)
        other = xp.where(to_upper < to_corner, upper, corner)
        predicted = xp.where((to_left <= to_upper) & (to_left < to_corner), left, other)
        return ((here - predicted) & 255).astype("uint8")

    def right(xp, image):
        here, left, upper, corner = neighbours(xp, image)
        guess = left + upper - corner
        to_left, to_upper, to_corner = xp.abs(guess - left), xp.abs(guess - upper), xp.abs(guess - corner)
        other = xp.where(to_upper <= to_corner, upper, corner)
        predicted = xp.where((to_left <= to_upper) & (to_left <= to_corner), left, other)
        return ((here - predicted) & 255).astype("uint8")

    def reference(image):
        if image.ndim != 2:
            raise ValueError("give 2 axes")
        out = np.empty(image.shape, dtype="uint8")
        for row, column in np.ndindex(image.shape):
            a = int(image[row, column - 1]) if column else 0
            b = int(image[row - 1, column]) if row else 0
            c = int(image[row - 1, column - 1]) if row and column else 0
            nearest = min((a, b, c), key=lambda value: abs(a + b - c - value))
            out[row, column] = (int(image[row, column]) - nearest) % 256
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="paeth_residual",
            dtypes=("uint8",),
            samples=lambda make: [
                make((12, 17), low=0, high=255),
                make((1, 9), low=0, high=255),
                make((8, 3), low=100, high=140),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rescale_timestamps",
    "halves of negative timestamps are rounded up instead of away from zero",
    "av_rescale's AV_ROUND_NEAR_INF written as one floor division: right for positive timestamps only",
    "-1 rescaled by 1/2: 0 instead of -1",
)
def rescale_timestamps():
    """Timestamps times num / den in 64 bits, rounded to the nearest; halves go away from zero."""

    def check(num, den):
        if num < 0 or den < 1:
            raise ValueError(f"the ratio is {num}/{den}; give a num of 0 or more and a den of 1 or more")

    def wrong(xp, stamps, num=1, den=1):
        check(num, den)
        return (stamps.astype("int64") * num + den // 2) // den

    def right(xp, stamps, num=1, den=1):
        check(num, den)
        wide = stamps.astype("int64")
        return xp.sign(wide) * ((xp.abs(wide) * num + den // 2) // den)

    def reference(stamps, num=1, den=1):
        if num < 0 or den < 1:
            raise ValueError("bad ratio")
        out = np.empty(stamps.shape, dtype="int64")
        for i in np.ndindex(out.shape):
            exact = Fraction(int(stamps[i]) * num, den)
            size = math.floor(abs(exact) + Fraction(1, 2))
            out[i] = size if exact >= 0 else -size
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rescale_timestamps",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(40, low=-100_000, high=100_000),
                Sample((make((3, 20), low=-100_000, high=100_000),), {"num": 90_000, "den": 48_000}),
                Sample((make(31, low=-5000, high=5000),), {"num": 1001, "den": 30_000}),
            ],
            result_dtype="int64",
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=9),), {"den": 0}), ValueError, "the ratio is 1/0")
            ],
        )

    return wrong, right, declare


@pair(
    "gauss_integral",
    "cached weights are scaled in place by the length of the interval",
    "quadrature helpers with a table of weights for each number of nodes, which the caller scales with *=",
    "the same number of nodes twice on an interval that is not 2 long: the second result is scaled twice",
)
def gauss_integral():
    """The integral from lower to upper of functions given at the Gauss-Legendre nodes along the last axis."""

    wrong_tables, right_tables = {}, {}

    def table(tables, count):
        if count < 1:
            raise ValueError("there are no nodes; give 1 or more")
        if count not in tables:
            tables[count] = np.polynomial.legendre.leggauss(count)[1]
        return tables[count]

    def finish(xp, values, weights):
        return (values.astype("float64") * xp.asarray(weights)).sum(axis=-1).astype(values.dtype)

    def wrong(xp, values, lower=-1.0, upper=1.0):
        weights = table(wrong_tables, values.shape[-1])
        weights *= (upper - lower) / 2
        return finish(xp, values, weights)

    def right(xp, values, lower=-1.0, upper=1.0):
        return finish(xp, values, table(right_tables, values.shape[-1]) * ((upper - lower) / 2))

    def reference(values, lower=-1.0, upper=1.0):
        if values.shape[-1] < 1:
            raise ValueError("no nodes")
        _, weights = np.polynomial.legendre.leggauss(values.shape[-1])
        return (values * (weights * ((upper - lower) / 2))).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gauss_integral",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 8)),
                Sample((make(5),), {"lower": 0.0, "upper": 4.0}),
                Sample((make((2, 3, 6)),), {"lower": -2.0, "upper": -1.5}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "deposit_charge",
    "the caller's grid is changed where it has the working dtype already",
    "particle-in-cell codes: astype with copy=False is taken for a copy, which it is only for other dtypes",
    "a grid in float64: after the call the argument holds the result",
)
def deposit_charge():
    """A new periodic grid: the given one plus charges, each shared by the two cells around its position."""

    def add(xp, work, positions, charges):
        if work.ndim != 1 or work.shape[0] == 0:
            raise ValueError("the grid has no cells; give one axis of 1 or more")
        if positions.shape != charges.shape:
            raise ValueError("give a charge for each position")
        places = positions.astype("float64")
        cells = xp.floor(places)
        share = places - cells
        cells = cells.astype("int64")
        size = work.shape[0]
        xp.add.at(work, cells % size, charges.astype("float64") * (1 - share))
        xp.add.at(work, (cells + 1) % size, charges.astype("float64") * share)
        return work

    def wrong(xp, grid, positions, charges):
        return add(xp, grid.astype("float64", copy=False), positions, charges).astype(grid.dtype)

    def right(xp, grid, positions, charges):
        return add(xp, grid.astype("float64"), positions, charges).astype(grid.dtype)

    def reference(grid, positions, charges):
        if grid.ndim != 1 or grid.shape[0] == 0 or positions.shape != charges.shape:
            raise ValueError("bad shapes")
        out = np.array(grid, dtype="float64")
        for place, charge in zip(positions.ravel(), charges.ravel(), strict=True):
            cell = math.floor(place)
            out[cell % len(out)] += charge * (1 - (place - cell))
        for place, charge in zip(positions.ravel(), charges.ravel(), strict=True):
            cell = math.floor(place)
            out[(cell + 1) % len(out)] += charge * (place - cell)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="deposit_charge",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(16), make(40, low=0, high=16), make(40, low=-1, high=1)),
                (make(7), make(3, low=0, high=7), make(3, low=-1, high=1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "planar_channels",
    "the result is a view of the image where its layout fits already",
    "ascontiguousarray in place of a copy: image loaders whose grey images share memory with the decoder's buffer",
    "an image of one channel: a write to the result changes the image",
)
def planar_channels():
    """A new array of shape (channels, height, width) from an image of shape (height, width, channels)."""

    def check(image):
        if image.ndim != 3:
            raise ValueError(f"the image has {image.ndim} axes; give 3")

    def wrong(xp, image):
        check(image)
        return xp.ascontiguousarray(xp.moveaxis(image, -1, 0))

    def right(xp, image):
        check(image)
        return xp.moveaxis(image, -1, 0).copy(order="C")

    def reference(image):
        if image.ndim != 3:
            raise ValueError("give 3 axes")
        out = np.empty((image.shape[2], *image.shape[:2]), dtype=image.dtype)
        for channel in range(image.shape[2]):
            out[channel] = image[:, :, channel]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="planar_channels",
            dtypes=("uint8", "float32"),
            samples=lambda make: [make((4, 5, 3), low=0, high=255), make((6, 7, 1), low=0, high=255)],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((4, 4), low=0, high=255), ValueError, "2 axes")],
        )

    return wrong, right, declare


@pair(
    "bounds_without_nan",
    "rows of nothing but NaN give the filling infinities",
    "nanmin and nanmax as where + min and max, before the check for slices without a number was added",
    "a row of NaN: the bounds are inf and -inf instead of NaN",
)
def bounds_without_nan():
    """The least and the greatest number along the last axis, without NaN; NaN where there is no number."""

    def fill(xp, a):
        if a.shape[-1] == 0:
            raise ValueError("the last axis is empty; it has no bounds")
        gaps = xp.isnan(a)
        low = xp.where(gaps, xp.full_like(a, math.inf), a).min(axis=-1)
        high = xp.where(gaps, xp.full_like(a, -math.inf), a).max(axis=-1)
        return gaps, low, high

    def wrong(xp, a):
        _, low, high = fill(xp, a)
        return low, high

    def right(xp, a):
        gaps, low, high = fill(xp, a)
        none = gaps.all(axis=-1)
        nothing = xp.full_like(low, math.nan)
        return xp.where(none, nothing, low), xp.where(none, nothing, high)

    def reference(a):
        if a.shape[-1] == 0:
            raise ValueError("no bounds")
        low, high = np.full(a.shape[:-1], math.nan), np.full(a.shape[:-1], math.nan)
        for i in np.ndindex(low.shape):
            numbers = [number for number in a[i] if not math.isnan(number)]
            if numbers:
                low[i], high[i] = min(numbers), max(numbers)
        return low, high

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bounds_without_nan",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 9)),
                make(17),
                make((2, 3, 5), low=-1000, high=1000),
                Sample((make.of([[1.0, math.nan, 3.0], [math.nan, 2.0, -1.0]]),), kind="extremal"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "lag_stack",
    "a negative axis counts from the end of the input, not of the result",
    "functions that add an axis, such as stack and expand_dims: ndim was added where ndim + 1 belongs",
    "axis=-1: the lags are on the last axis but one",
)
def lag_stack():
    """Copies of an array, delayed by 0, 1, ... along its last axis with zeros before, on a new axis `axis`."""

    def delayed(xp, a, lags):
        if lags < 1:
            raise ValueError(f"lags is {lags}; give 1 or more")
        if a.ndim < 1:
            raise ValueError("there is no axis to delay along")
        parts = []
        for lag in range(lags):
            part = xp.zeros_like(a)
            if lag < a.shape[-1]:
                part[..., lag:] = a[..., : a.shape[-1] - lag]
            parts.append(part)
        return parts

    def check(a, axis):
        if not -a.ndim - 1 <= axis <= a.ndim:
            raise ValueError(f"axis is {axis}; the result has {a.ndim + 1} axes")

    def wrong(xp, a, lags=3, axis=0):
        check(a, axis)
        parts = delayed(xp, a, lags)
        return xp.stack(parts, axis=max(axis + a.ndim, 0) if axis < 0 else axis)

    def right(xp, a, lags=3, axis=0):
        check(a, axis)
        parts = delayed(xp, a, lags)
        return xp.stack(parts, axis=axis + a.ndim + 1 if axis < 0 else axis)

    def reference(a, lags=3, axis=0):
        if lags < 1 or a.ndim < 1 or not -a.ndim - 1 <= axis <= a.ndim:
            raise ValueError("bad arguments")
        out = np.zeros((lags, *a.shape), dtype=a.dtype)
        for lag in range(lags):
            for place in range(lag, a.shape[-1]):
                out[lag, ..., place] = a[..., place - lag]
        return np.moveaxis(out, 0, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lag_stack",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make((3, 8)),
                Sample((make(11),), {"lags": 2}),
                Sample((make((2, 6)),), {"lags": 4, "axis": -1}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"lags": 0}), ValueError, "lags is 0")],
        )

    return wrong, right, declare


@pair(
    "bounding_radius",
    "a cloud without points raises instead of having radius 0",
    "maxima of empty arrays, which have no identity: culling code that meets an empty mesh",
    "an array of shape (0, 3): ValueError from max",
)
def bounding_radius():
    """The greatest distance of a point from the centroid of all; 0 where there are no points."""

    def check(points):
        if points.ndim != 2:
            raise ValueError(f"the points have {points.ndim} axes; give 2")

    def radius(xp, points):
        wide = points.astype("float64")
        apart = wide - wide.mean(axis=0)
        return xp.sqrt((apart * apart).sum(axis=1)).max().astype(points.dtype)

    def wrong(xp, points):
        check(points)
        return radius(xp, points)

    def right(xp, points):
        check(points)
        if points.shape[0] == 0:
            return xp.zeros((), dtype=points.dtype)
        return radius(xp, points)

    def reference(points):
        if points.ndim != 2:
            raise ValueError("give 2 axes")
        if len(points) == 0:
            return np.zeros(())
        centre = points.sum(axis=0) / len(points)
        return np.max([np.linalg.norm(point - centre) for point in points])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bounding_radius",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((20, 3), low=-50, high=50),
                make((1, 2), low=-50, high=50),
                Sample((make((0, 3), low=-50, high=50),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "log_mean_exp",
    "keepdims keeps one axis where all are reduced",
    "reductions that flatten for axis=None and then honour keepdims on the flat array",
    "a matrix with axis=None and keepdims=True: shape (1,) instead of (1, 1)",
)
def log_mean_exp():
    """log(mean(exp(a))) over an axis, or over all, without overflow."""

    def reduce(xp, a, axis, keepdims):
        wide = a.astype("float64")
        top = wide.max(axis=axis, keepdims=True)
        top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
        mean = xp.exp(wide - top).mean(axis=axis, keepdims=keepdims)
        return (xp.log(mean) + top.reshape(mean.shape)).astype(a.dtype)

    def check(a, axis):
        if axis is not None and not -a.ndim <= axis < a.ndim:
            raise ValueError(f"axis is {axis}; the array has {a.ndim} axes")
        if a.size == 0:
            raise ValueError("the array is empty; it has no mean")

    def wrong(xp, a, axis=None, keepdims=False):
        check(a, axis)
        if axis is None:
            a, axis = a.ravel(), 0
        return reduce(xp, a, axis, keepdims)

    def right(xp, a, axis=None, keepdims=False):
        check(a, axis)
        return reduce(xp, a, tuple(range(a.ndim)) if axis is None else axis, keepdims)

    def reference(a, axis=None, keepdims=False):
        if a.size == 0 or (axis is not None and not -a.ndim <= axis < a.ndim):
            raise ValueError("no mean")
        rows = a.reshape(1, -1) if axis is None else np.moveaxis(a, axis, -1).reshape(-1, a.shape[axis])
        out = np.empty(len(rows))
        for i, row in enumerate(rows):
            out[i] = np.logaddexp.reduce(row) - np.log(len(row))
        shape = [1] * a.ndim if axis is None else list(a.shape)
        if axis is not None:
            shape[axis] = 1
        out = out.reshape(shape)
        return out if keepdims else out.squeeze(axis=axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="log_mean_exp",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 7)),
                make(33, low=-500, high=500),
                Sample((make((2, 5, 3)),), {"axis": 1}),
                Sample((make((3, 6)),), {"axis": -1, "keepdims": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "depth_to_space",
    "the mode is checked and then ignored",
    "ONNX DepthToSpace: back ends that support DCR and run CRD models with the same order of channels",
    "mode='CRD' with more than one channel in the result: channels and blocks are mixed up",
)
def depth_to_space():
    """ONNX's DepthToSpace: blocks of channels become blocks of pixels, by mode DCR or CRD."""

    def check(a, block, mode):
        if mode not in ("DCR", "CRD"):
            raise ValueError(f"mode is {mode!r}; give 'DCR' or 'CRD'")
        if a.ndim != 4 or block < 1 or a.shape[1] % (block * block):
            raise ValueError(f"the shape {tuple(a.shape)} has no channels for blocks of {block} by {block}")

    def depth_first(a, block):
        batch, channels, height, width = a.shape
        depth = channels // block**2
        parts = a.reshape((batch, block, block, depth, height, width)).transpose((0, 3, 4, 1, 5, 2))
        return parts.reshape((batch, depth, height * block, width * block)).copy()

    def wrong(xp, a, block=2, mode="DCR"):
        check(a, block, mode)
        return depth_first(a, block)

    def right(xp, a, block=2, mode="DCR"):
        check(a, block, mode)
        if mode == "DCR":
            return depth_first(a, block)
        batch, channels, height, width = a.shape
        depth = channels // block**2
        parts = a.reshape((batch, depth, block, block, height, width)).transpose((0, 1, 4, 2, 5, 3))
        return parts.reshape((batch, depth, height * block, width * block)).copy()

    def reference(a, block=2, mode="DCR"):
        if mode not in ("DCR", "CRD") or a.ndim != 4 or block < 1 or a.shape[1] % block**2:
            raise ValueError("bad arguments")
        batch, channels, height, width = a.shape
        depth = channels // block**2
        out = np.empty((batch, depth, height * block, width * block), dtype=a.dtype)
        for d in range(depth):
            for i in range(block):
                for j in range(block):
                    place = (i * block + j) * depth + d if mode == "DCR" else (d * block + i) * block + j
                    out[:, d, i::block, j::block] = a[:, place]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="depth_to_space",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make((2, 8, 3, 2)),
                Sample((make((1, 12, 2, 5)),), {"mode": "CRD"}),
                Sample((make((1, 9, 2, 2)),), {"block": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make((1, 6, 2, 2)), ValueError, "no channels for blocks of 2"),
                ErrorInput(Sample((make((1, 4, 2, 2)),), {"mode": "RDC"}), ValueError, "mode is 'RDC'"),
            ],
        )

    return wrong, right, declare


@pair(
    "triplet_margin",
    "the distance swap is on by default",
    "a rewrite of the triplet loss that took over the default of another framework's swap option",
    "a positive that is nearer to the negative than the anchor is: the loss is greater than documented",
)
def triplet_margin():
    """max(|anchor - positive| - |anchor - negative| + margin, 0) for each row; swap takes the nearer negative."""

    def losses(xp, anchor, positive, negative, margin, swap):
        def distance(a, b):
            apart = a.astype("float64") - b.astype("float64")
            return xp.sqrt((apart * apart).sum(axis=-1))

        if not anchor.shape == positive.shape == negative.shape:
            raise ValueError("anchor, positive and negative differ in shape")
        far = distance(anchor, negative)
        if swap:
            far = xp.minimum(far, distance(positive, negative))
        loss = distance(anchor, positive) - far + margin
        return xp.maximum(loss, xp.zeros_like(loss)).astype(anchor.dtype)

    def wrong(xp, anchor, positive, negative, margin=1.0, swap=True):
        return losses(xp, anchor, positive, negative, margin, swap)

    def right(xp, anchor, positive, negative, margin=1.0, swap=False):
        return losses(xp, anchor, positive, negative, margin, swap)

    def reference(anchor, positive, negative, margin=1.0, swap=False):
        if not anchor.shape == positive.shape == negative.shape:
            raise ValueError("shapes differ")
        near = np.sqrt(((anchor - positive) ** 2).sum(axis=-1))
        far = np.sqrt(((anchor - negative) ** 2).sum(axis=-1))
        if swap:
            far = np.minimum(far, np.sqrt(((positive - negative) ** 2).sum(axis=-1)))
        return np.maximum(near - far + margin, 0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="triplet_margin",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 4)), make((6, 4)), make((6, 4))),
                Sample((make((9, 16)), make((9, 16)), make((9, 16))), {"margin": 0.2}),
                Sample((make((5, 3)), make((5, 3)), make((5, 3))), {"swap": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "apply_track_gains",
    "one gain a track is taken for one a sample where both counts are equal",
    "mixers that guess from the shape whether gains need a new axis",
    "as many tracks as samples and a gain for each track: the gains run along time",
)
def apply_track_gains():
    """Audio of shape (tracks, samples) times one gain for each track, or one for each of its samples."""

    def check(audio, gains):
        if audio.ndim != 2 or tuple(gains.shape) not in (tuple(audio.shape[:1]), tuple(audio.shape)):
            raise ValueError(f"gains of shape {tuple(gains.shape)} do not fit audio of shape {tuple(audio.shape)}")

    def wrong(xp, audio, gains):
        check(audio, gains)
        if gains.shape[-1] != audio.shape[-1]:
            gains = gains[:, None]
        return audio * gains

    def right(xp, audio, gains):
        check(audio, gains)
        if gains.ndim == 1:
            gains = gains[:, None]
        return audio * gains

    def reference(audio, gains):
        if audio.ndim != 2 or gains.shape not in (audio.shape[:1], audio.shape):
            raise ValueError("gains do not fit")
        out = np.empty(audio.shape)
        for track in range(len(audio)):
            out[track] = audio[track] * gains[track]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="apply_track_gains",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((3, 16)), make(3, low=0, high=2)),
                (make((2, 8)), make((2, 8), low=0, high=2)),
                (make((5, 1)), make(5, low=0, high=2)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((3, 8)), make(4)), ValueError, "do not fit")],
        )

    return wrong, right, declare


@pair(
    "toeplitz_of",
    "the first row is not the conjugate of the first column",
    "scipy.linalg.toeplitz, whose default row is conjugated: ports that were tested with real numbers",
    "a complex column and no row: the matrix is symmetric instead of Hermitian",
)
def toeplitz_of():
    """The Toeplitz matrix of a first column and a first row, by default the column's conjugate, as in SciPy."""

    def build(xp, column, row):
        if column.ndim != 1 or row.ndim != 1:
            raise ValueError("column and row have one axis each")
        numbers = xp.concatenate([row[:0:-1], column])
        below = xp.arange(column.shape[0])[:, None] - xp.arange(row.shape[0])[None, :]
        return numbers[below + max(row.shape[0] - 1, 0)]

    def wrong(xp, column, row=None):
        return build(xp, column, column if row is None else row)

    def right(xp, column, row=None):
        return build(xp, column, xp.conj(column) if row is None else row)

    def reference(column, row=None):
        row = np.conj(column) if row is None else row
        if column.ndim != 1 or row.ndim != 1:
            raise ValueError("one axis each")
        out = np.empty((len(column), len(row)), dtype=np.result_type(column, row))
        for i, j in np.ndindex(out.shape):
            out[i, j] = column[i - j] if i >= j else row[j - i]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="toeplitz_of",
            dtypes=("float32", "complex64", "complex128"),
            samples=lambda make: [make(6), make(1), (make(4), make(9)), (make(7), make(3))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "zero_where_masked",
    "a mask of zeros and ones is inverted by bits",
    "~mask with masks in uint8, as OpenCV and image files give them: 254 and 255 are both true",
    "a mask in uint8: nothing is set to zero",
)
def zero_where_masked():
    """The values with zeros where the mask, truth values or numbers, is not zero."""

    def wrong(xp, a, mask):
        return xp.where(~mask, a, xp.zeros_like(a))

    def right(xp, a, mask):
        return xp.where(mask == 0, a, xp.zeros_like(a))

    def reference(a, mask):
        a, mask = np.broadcast_arrays(a, mask)
        out = np.zeros(a.shape)
        for i in np.ndindex(out.shape):
            if not mask[i]:
                out[i] = a[i]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="zero_where_masked",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((4, 5)), make((4, 5), dtype="bool")),
                (make((3, 7)), make((3, 7), dtype="uint8", low=0, high=1)),
                Sample((make((2, 6)), make(6, dtype="bool")), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "pooled_mean_of_parts",
    "the mean of the parts' means, whatever their sizes",
    "validation losses averaged over batches of which the last is smaller",
    "parts of 5 and 2 numbers: those of the second count more",
)
def pooled_mean_of_parts():
    """The mean of all numbers in a list of arrays."""

    def check(parts):
        if sum(part.size for part in parts) == 0:
            raise ValueError("the parts hold no numbers")

    def wrong(xp, parts):
        check(parts)
        means = xp.stack([part.astype("float64").mean() for part in parts if part.size])
        return means.mean().astype(parts[0].dtype)

    def right(xp, parts):
        check(parts)
        flat = xp.concatenate([part.astype("float64").ravel() for part in parts])
        return (flat.sum() / flat.size).astype(parts[0].dtype)

    def reference(parts):
        if sum(part.size for part in parts) == 0:
            raise ValueError("no numbers")
        return np.mean(np.concatenate([np.asarray(part, dtype="float64").reshape(-1) for part in parts]))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pooled_mean_of_parts",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                ([make(5), make(9), make(2)],),
                ([make((3, 4)), make((3, 4))],),
                ([make(13)],),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "mix_signals",
    "the last step binds a new array to out",
    "out = xp.clip(out, ...) at the end of a function with out=: the caller's array misses the last step",
    "clip=True with out=: the array that was passed holds the mix that is not clipped",
)
def mix_signals():
    """dry + amount * (wet - dry), clipped to -1 and 1 on request, into out if it is given."""

    def mix(dry, wet, amount):
        if dry.shape != wet.shape:
            raise ValueError("dry and wet differ in shape")
        wide = dry.astype("float64")
        return wide + amount * (wet.astype("float64") - wide)

    def wrong(xp, dry, wet, amount=0.5, clip=False, out=None):
        mixed = mix(dry, wet, amount)
        if out is None:
            out = xp.empty_like(dry)
        out[...] = mixed
        if clip:
            out = xp.clip(out, -1, 1)
        return out

    def right(xp, dry, wet, amount=0.5, clip=False, out=None):
        mixed = mix(dry, wet, amount)
        if clip:
            mixed = xp.clip(mixed, -1, 1)
        if out is None:
            out = xp.empty_like(dry)
        out[...] = mixed
        return out

    def reference(dry, wet, amount=0.5, clip=False):
        if dry.shape != wet.shape:
            raise ValueError("shapes differ")
        mixed = dry + (wet - dry) * amount
        return np.where(mixed > 1, 1, np.where(mixed < -1, -1, mixed)) if clip else mixed

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mix_signals",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((2, 30)), make((2, 30))),
                Sample((make(41), make(41)), {"amount": 0.25}),
                Sample((make((3, 8)), make((3, 8))), {"clip": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "vector_length3",
    "the result has the dtype of the first component",
    "kernels that allocate the output like their first input: promotion with wider inputs is lost",
    "x in float32, y and z in float64: the length comes back in float32",
)
def vector_length3():
    """The length of vectors given by three arrays of components, in the dtype that all three promote to."""

    def length(xp, x, y, z):
        return xp.hypot(xp.hypot(x.astype("float64"), y.astype("float64")), z.astype("float64"))

    def wrong(xp, x, y, z):
        return length(xp, x, y, z).astype(x.dtype)

    def right(xp, x, y, z):
        return length(xp, x, y, z).astype(np.result_type(x.dtype, y.dtype, z.dtype))

    def reference(x, y, z):
        return np.hypot(np.hypot(x, y), z)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="vector_length3",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(25), make(25), make(25)),
                (make((3, 8), low=-100, high=100), make((3, 8), low=-100, high=100), make((3, 8))),
                Sample((make((4, 1)), make(6), make((4, 6))), kind="broadcast"),
                Sample((make(7, dtype="float32"), make(7, dtype="float64"), make(7)), kind="promotion"),
            ],
            result_dtype=lambda x, y, z: np.result_type(x, y, z).name,
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "split_heads",
    "a width that the heads do not divide is cut off",
    "attention modules without the check of hidden_size % num_heads: the last features are dropped",
    "width 7 with 2 heads: a result with 6 features instead of ValueError",
)
def split_heads():
    """(batch, time, width) as (batch, heads, time, width / heads), a new array; heads must divide width."""

    def check(a, heads):
        if a.ndim != 3 or heads < 1:
            raise ValueError(f"give 3 axes and 1 or more heads, not {a.ndim} and {heads}")

    def split(a, heads):
        batch, time, width = a.shape
        return a.reshape((batch, time, heads, width // heads)).transpose((0, 2, 1, 3)).copy()

    def wrong(xp, a, heads=1):
        check(a, heads)
        return split(a[..., : a.shape[-1] // heads * heads], heads)

    def right(xp, a, heads=1):
        check(a, heads)
        if a.shape[-1] % heads:
            raise ValueError(f"a width of {a.shape[-1]} cannot be split into {heads} heads")
        return split(a, heads)

    def reference(a, heads=1):
        if a.ndim != 3 or heads < 1 or a.shape[-1] % heads:
            raise ValueError("cannot be split")
        return np.stack(np.split(a, heads, axis=-1), axis=1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="split_heads",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((2, 5, 8)),
                Sample((make((2, 5, 12)),), {"heads": 4}),
                Sample((make((1, 3, 6)),), {"heads": 6}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 3, 7)),), {"heads": 2}), ValueError, "split into 2 heads"),
                ErrorInput(Sample((make((2, 3, 6)),), {"heads": 0}), ValueError, "1 or more heads"),
            ],
        )

    return wrong, right, declare


@pair(
    "coo_diagonal",
    "of several entries at one place the last is kept",
    "COO matrices before sum_duplicates: indexed assignment where the entries add up",
    "two entries at (3, 3): the diagonal holds one of them",
)
def coo_diagonal():
    """The main diagonal of a square sparse matrix in coordinate format, whose duplicates add up."""

    def check(rows, columns, values, size):
        if not rows.shape == columns.shape == values.shape or rows.ndim != 1:
            raise ValueError("give a row and a column for each value")
        if rows.size and min(int(rows.min()), int(columns.min())) < 0:
            raise ValueError("there is an index below 0")
        if rows.size and max(int(rows.max()), int(columns.max())) >= size:
            raise ValueError(f"there is an index of {size} or more")

    def wrong(xp, rows, columns, values, size=8):
        check(rows, columns, values, size)
        out = xp.zeros(size, dtype="float64")
        on = rows == columns
        out[rows[on]] = values[on].astype("float64")
        return out.astype(values.dtype)

    def right(xp, rows, columns, values, size=8):
        check(rows, columns, values, size)
        out = xp.zeros(size, dtype="float64")
        on = rows == columns
        xp.add.at(out, rows[on], values[on].astype("float64"))
        return out.astype(values.dtype)

    def reference(rows, columns, values, size=8):
        if not rows.shape == columns.shape == values.shape or rows.ndim != 1:
            raise ValueError("shapes differ")
        out = np.zeros(size)
        for row, column, value in zip(rows, columns, values, strict=True):
            if not (0 <= row < size and 0 <= column < size):
                raise ValueError("index out of range")
            if row == column:
                out[row] += value
        return out

    def declare(fn):
        def entries(make, count, size):
            places = [make(count, dtype="int64", low=0, high=size - 1) for _ in range(2)]
            return (*places, make(count))

        return OpSpec(
            fn=fn,
            name="coo_diagonal",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                entries(make, 30, 8),
                Sample(entries(make, 80, 5), {"size": 5}),
                Sample(entries(make, 10, 20), {"size": 20}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample(entries(make, 40, 9), {"size": 1}), ValueError, "an index of 1 or more")
            ],
        )

    return wrong, right, declare


@pair(
    "triangles_per_node",
    "self-loops are not masked out",
    "triangle counts as the diagonal of the cubed adjacency matrix, on graphs that have self-loops",
    "two connected nodes with a loop on each: triangles are counted where there are none",
)
def triangles_per_node():
    """The number of triangles at each node of an undirected graph; an edge counts in either direction, no loop does."""

    def edges(xp, adjacency):
        if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
            raise ValueError(f"the matrix has shape {tuple(adjacency.shape)}; give a square one")
        return (adjacency != 0) | (adjacency.T != 0)

    def count(xp, linked):
        linked = linked.astype("int64")
        return ((linked @ linked) * linked).sum(axis=1) // 2

    def wrong(xp, adjacency):
        return count(xp, edges(xp, adjacency))

    def right(xp, adjacency):
        linked = edges(xp, adjacency)
        return count(xp, linked & ~xp.eye(linked.shape[0], dtype="bool"))

    def reference(adjacency):
        if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
            raise ValueError("give a square matrix")
        out = np.zeros(len(adjacency), dtype="int64")
        for nodes in combinations(range(len(adjacency)), 3):
            if all(adjacency[i, j] or adjacency[j, i] for i, j in combinations(nodes, 2)):
                out[list(nodes)] += 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="triangles_per_node",
            dtypes=("uint8", "int32"),
            samples=lambda make: [
                make((7, 7), low=0, high=1),
                make((12, 12), low=0, high=1),
                make((1, 1), low=0, high=1),
            ],
            result_dtype="int64",
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "reverse_complement_codes",
    "the code of an unknown base wraps around",
    "3 - code on 2-bit codes in uint8, which met reads with N",
    "the code 4: 255 instead of 4",
)
def reverse_complement_codes():
    """The reverse complement along the last axis of bases A, C, G, T as 0 to 3; 4 is an unknown base and stays."""

    def wrong(xp, codes):
        return (3 - codes)[..., ::-1].copy()

    def right(xp, codes):
        return xp.where(codes < 4, 3 - codes, codes)[..., ::-1].copy()

    def reference(codes):
        table = {0: 3, 1: 2, 2: 1, 3: 0}
        out = np.empty_like(codes)
        for i in np.ndindex(codes.shape[:-1]):
            for j in range(codes.shape[-1]):
                code = int(codes[i][-1 - j])
                out[(*i, j)] = table.get(code, code)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="reverse_complement_codes",
            dtypes=("uint8",),
            samples=lambda make: [make(50, low=0, high=3), make((4, 21), low=0, high=4)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "chroma_420",
    "blocks at the edge of an odd plane are averaged with zeros",
    "4:2:0 subsampling of frames with odd sizes: padding with zeros tints the last row and column",
    "a plane of 5 by 7 of one level: half of it in the last row and column",
)
def chroma_420():
    """Means of blocks of 2 by 2 in an 8-bit plane, rounded half up; odd edges repeat the last row or column."""

    def halve(blocks):
        wide = blocks.astype("int32")
        total = wide[0::2, 0::2] + wide[1::2, 0::2] + wide[0::2, 1::2] + wide[1::2, 1::2]
        return ((total + 2) >> 2).astype("uint8")

    def check(plane):
        if plane.ndim != 2:
            raise ValueError(f"the plane has {plane.ndim} axes; give 2")

    def wrong(xp, plane):
        check(plane)
        height, width = plane.shape
        return halve(xp.pad(plane, ((0, height % 2), (0, width % 2)), mode="constant"))

    def right(xp, plane):
        check(plane)
        if plane.shape[0] % 2:
            plane = xp.concatenate([plane, plane[-1:]], axis=0)
        if plane.shape[1] % 2:
            plane = xp.concatenate([plane, plane[:, -1:]], axis=1)
        return halve(plane)

    def reference(plane):
        if plane.ndim != 2:
            raise ValueError("give 2 axes")
        height, width = plane.shape
        out = np.empty((-(-height // 2), -(-width // 2)), dtype="uint8")
        for i, j in np.ndindex(out.shape):
            rows, columns = (2 * i, min(2 * i + 1, height - 1)), (2 * j, min(2 * j + 1, width - 1))
            out[i, j] = (sum(int(plane[r, c]) for r in rows for c in columns) + 2) // 4
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="chroma_420",
            dtypes=("uint8",),
            samples=lambda make: [
                make((6, 8), low=0, high=255),
                make((16, 4), low=16, high=240),
                make((5, 7), low=0, high=255),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dequantize_groups",
    "the group of a column comes from the number of scales, not from the group size",
    "4-bit weight loaders that infer the group size from shapes: wrong where the last group is short",
    "40 columns in groups of 16: the second scale begins at column 14",
)
def dequantize_groups():
    """Codes of shape (rows, columns) times the scale of their group of columns; the last group may be short."""

    def check(codes, scales, group):
        if codes.ndim != 2 or group < 1 or scales.shape != (codes.shape[0], -(-codes.shape[1] // group)):
            shapes = f"scales of shape {tuple(scales.shape)} do not fit {tuple(codes.shape)}"
            raise ValueError(f"{shapes} in groups of {group}")

    def scaled(xp, codes, scales, group):
        places = xp.arange(codes.shape[1]) // group
        return codes.astype(scales.dtype) * scales[:, places]

    def wrong(xp, codes, scales, group=32):
        check(codes, scales, group)
        return scaled(xp, codes, scales, max(-(-codes.shape[1] // max(scales.shape[1], 1)), 1))

    def right(xp, codes, scales, group=32):
        check(codes, scales, group)
        return scaled(xp, codes, scales, group)

    def reference(codes, scales, group=32):
        if codes.ndim != 2 or group < 1 or scales.shape != (len(codes), math.ceil(codes.shape[1] / group)):
            raise ValueError("scales do not fit")
        out = np.empty(codes.shape)
        for number in range(scales.shape[1]):
            part = slice(number * group, (number + 1) * group)
            out[:, part] = codes[:, part] * scales[:, number : number + 1]
        return out

    def declare(fn):
        def weights(make, rows, columns, groups):
            codes = make((rows, columns), dtype="int8", low=-8, high=7)
            return codes, make((rows, groups), low=0.01, high=2)

        return OpSpec(
            fn=fn,
            name="dequantize_groups",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                weights(make, 3, 64, 2),
                weights(make, 4, 32, 1),
                Sample(weights(make, 2, 40, 3), {"group": 16}),
            ],
            result_dtype=lambda codes, scales: scales,
            reference=reference,
            error_inputs=lambda make: [ErrorInput(weights(make, 2, 64, 3), ValueError, "in groups of 32")],
        )

    return wrong, right, declare


@pair(
    "token_shift_mix",
    "the first token of a sequence sees the last one of the sequence before",
    "RWKV token shift as a shift of the flattened batch",
    "a batch of two: row 1 begins with a part of the end of row 0",
)
def token_shift_mix():
    """mix * a + (1 - mix) * previous token for (batch, time, channels); zeros come before the first token."""

    def check(a, mix):
        if a.ndim != 3 or mix.shape != a.shape[2:]:
            raise ValueError(f"a mix of shape {tuple(mix.shape)} does not fit {tuple(a.shape)}")

    def blend(a, previous, mix):
        mix = mix.astype("float64")
        return (a.astype("float64") * mix + previous.astype("float64") * (1 - mix)).astype(a.dtype)

    def wrong(xp, a, mix):
        check(a, mix)
        batch, time, channels = a.shape
        flat = a.reshape((batch * time, channels))
        previous = xp.zeros_like(flat)
        previous[1:] = flat[:-1]
        return blend(a, previous.reshape((batch, time, channels)), mix)

    def right(xp, a, mix):
        check(a, mix)
        previous = xp.zeros_like(a)
        previous[:, 1:] = a[:, :-1]
        return blend(a, previous, mix)

    def reference(a, mix):
        if a.ndim != 3 or mix.shape != a.shape[2:]:
            raise ValueError("mix does not fit")
        out = np.empty(a.shape)
        for row, time in np.ndindex(a.shape[:2]):
            before = a[row, time - 1] if time else np.zeros(a.shape[2])
            out[row, time] = a[row, time] * mix + before * (1 - mix)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="token_shift_mix",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((2, 5, 4)), make(4, low=0, high=1)),
                (make((1, 17, 3)), make(3, low=0, high=1)),
                (make((3, 1, 8)), make(8, low=0, high=1)),
            ],
            result_dtype=lambda a, mix: a,
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rotate_bits_left",
    "the right shift of a signed number brings in its sign",
    "rotations in hash functions moved from unsigned C integers to int32 arrays",
    "-2 rotated by 1: -1 instead of -3",
)
def rotate_bits_left():
    """The bits of integers rotated to the left by a count, modulo their width."""

    def rotate(bits, count, width):
        return (bits << count) | (bits >> (width - count))

    def wrong(xp, a, count=1):
        width = a.dtype.itemsize * 8
        if count % width == 0:
            return a.copy()
        return rotate(a, count % width, width)

    def right(xp, a, count=1):
        width = a.dtype.itemsize * 8
        if count % width == 0:
            return a.copy()
        return rotate(a.astype(f"uint{width}"), count % width, width).astype(a.dtype)

    def reference(a, count=1):
        width = a.dtype.itemsize * 8
        count %= width
        out = np.empty_like(a)
        for i in np.ndindex(a.shape):
            bits = format(int(a[i]) % 2**width, f"0{width}b")
            number = int(bits[count:] + bits[:count], 2)
            out[i] = number - 2**width if number >= 2 ** (width - 1) else number
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotate_bits_left",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(33),
                Sample((make((4, 6)),), {"count": 13}),
                Sample((make(9, low=0, high=1_000_000),), {"count": 0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "battery_state",
    "the limits are applied to the total instead of in each step",
    "storage models made parallel as clip(cumsum(flow)): energy beyond the capacity comes back later",
    "+15, then -4 with capacity 10: 10 instead of 6",
)
def battery_state():
    """The charge after each step along the last axis; a step cannot fill beyond capacity, nor empty below 0."""

    def check(capacity):
        if capacity < 0:
            raise ValueError(f"capacity is {capacity}; give 0 or more")

    def wrong(xp, flow, capacity=10.0, start=0.0):
        check(capacity)
        total = xp.cumsum(flow.astype("float64"), axis=-1) + start
        return xp.clip(total, 0.0, capacity).astype(flow.dtype)

    def right(xp, flow, capacity=10.0, start=0.0):
        check(capacity)
        wide = flow.astype("float64")
        out = xp.empty_like(wide)
        charge = xp.full(flow.shape[:-1], start, dtype="float64")
        for step in range(flow.shape[-1]):
            charge = xp.clip(charge + wide[..., step], 0.0, capacity)
            out[..., step] = charge
        return out.astype(flow.dtype)

    def reference(flow, capacity=10.0, start=0.0):
        if capacity < 0:
            raise ValueError("bad capacity")
        out = np.empty(flow.shape)
        for i in np.ndindex(flow.shape[:-1]):
            charge = start
            for step in range(flow.shape[-1]):
                charge = charge + flow[i][step]
                charge = 0.0 if charge < 0 else capacity if charge > capacity else charge
                out[(*i, step)] = charge
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="battery_state",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 24)),
                Sample((make(15),), {"capacity": 2.5, "start": 1.0}),
                make((2, 10), low=0, high=0.5),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"capacity": -1.0}), ValueError, "capacity is -1")
            ],
        )

    return wrong, right, declare


@pair(
    "donchian_upper",
    "the window holds one bar too few",
    "breakout channels: range(1, window) where the bar furthest back belongs in as well",
    "a high exactly `window` bars ago that no later bar reaches: the channel is too low",
)
def donchian_upper():
    """The highest of the `window` bars before each bar, along the last axis; NaN where there are not as many."""

    def channel(xp, highs, window, lags):
        if window < 1:
            raise ValueError(f"window is {window}; give 1 or more")
        length = highs.shape[-1]
        out = xp.full(highs.shape, math.nan, dtype=highs.dtype)
        if length > window:
            best = xp.full((*highs.shape[:-1], length - window), -math.inf, dtype=highs.dtype)
            for lag in lags:
                best = xp.maximum(best, highs[..., window - lag : length - lag])
            out[..., window:] = best
        return out

    def wrong(xp, highs, window=5):
        return channel(xp, highs, window, range(1, max(window, 2)))

    def right(xp, highs, window=5):
        return channel(xp, highs, window, range(1, window + 1))

    def reference(highs, window=5):
        if window < 1:
            raise ValueError("bad window")
        out = np.full(highs.shape, math.nan)
        for bar in range(window, highs.shape[-1]):
            out[..., bar] = highs[..., bar - window : bar].max(axis=-1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="donchian_upper",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((2, 30)),
                Sample((make(12),), {"window": 3}),
                Sample((make((3, 4)),), {"window": 6}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"window": 0}), ValueError, "window is 0")],
        )

    return wrong, right, declare


@pair(
    "expanding_mean",
    "the sums run in the dtype of the input",
    "cumulative means of half precision: the running sum overflows, or loses the small terms",
    "300 numbers around 500 in float16: the sum is infinite after about 130",
)
def expanding_mean():
    """The mean of all numbers up to each place along the last axis."""

    def wrong(xp, a):
        counts = xp.arange(1, a.shape[-1] + 1).astype(a.dtype)
        return xp.cumsum(a, axis=-1, dtype=a.dtype) / counts

    def right(xp, a):
        counts = xp.arange(1, a.shape[-1] + 1).astype("float64")
        return (xp.cumsum(a.astype("float64"), axis=-1) / counts).astype(a.dtype)

    def reference(a):
        out = np.empty(a.shape)
        total = np.zeros(a.shape[:-1])
        for place in range(a.shape[-1]):
            total = total + a[..., place]
            out[..., place] = total / (place + 1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="expanding_mean",
            dtypes=("float16", "float32"),
            samples=lambda make: [make((3, 50)), make((2, 300), low=0, high=1000), make(7)],
            reference=reference,
        )

    return wrong, right, declare
