"""Infinities, complex lags, saturation, caches, ties, masks, boxes, axes, offsets, windows: faults with their twins."""

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
    "log_add",
    "two equal infinities are subtracted from each other",
    "torch.logaddexp: its first version gave NaN where both inputs were the same infinity",
    "-inf and -inf, two events of probability zero: NaN instead of -inf",
)
def log_add():
    """log(exp(a) + exp(b)), element by element, without overflow."""

    def wrong(xp, a, b):
        top, bottom = xp.maximum(a, b), xp.minimum(a, b)
        return top + xp.log1p(xp.exp(bottom - top))

    def right(xp, a, b):
        return xp.logaddexp(a, b)

    def declare(fn):
        first, second = [-math.inf, -math.inf, 0, math.inf], [-math.inf, 1, -math.inf, 0]
        return OpSpec(
            fn=fn,
            name="log_add",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                (make((5, 33)), make((5, 33))),
                Sample((make((4, 9)), make(9)), kind="broadcast"),
                Sample((make(0), make(0)), kind="empty"),
                Sample((make.of(first), make.of(second)), kind="extremal"),
            ],
            reference=np.logaddexp,
        )

    return wrong, right, declare


@pair(
    "lag_products",
    "the exchange of the two inputs leaves out the conjugate",
    "numpy.correlate before 1.4 and reimplementations: the shorter input becomes the filter, and is never conjugated",
    "complex inputs of which the second is longer than the first: the imaginary parts have the wrong sign",
)
def lag_products():
    """Cross-correlation at all lags, as numpy.correlate with mode "full": sums of a[n + lag] * conj(v[n])."""

    def check(a, v):
        if 0 in (a.shape[0], v.shape[0]):
            raise ValueError("an input is empty")

    def add_up(xp, a, v):
        out = xp.zeros(a.shape[0] + v.shape[0] - 1, dtype="complex128" if a.dtype.kind == "c" else "float64")
        a, v = a.astype(out.dtype), xp.conj(v.astype(out.dtype))
        for i in range(v.shape[0]):
            start = v.shape[0] - 1 - i
            out[start : start + a.shape[0]] += a * v[i : i + 1]
        return out

    def wrong(xp, a, v):
        check(a, v)
        out = add_up(xp, a, v) if v.shape[0] <= a.shape[0] else add_up(xp, v, a)[::-1]
        return out.astype(a.dtype)

    def right(xp, a, v):
        check(a, v)
        out = add_up(xp, a, v) if v.shape[0] <= a.shape[0] else xp.conj(add_up(xp, v, a)[::-1])
        return out.astype(a.dtype)

    def reference(a, v):
        check(a, v)
        products = a[:, None] * np.conj(v)[None, :]
        return np.array([np.trace(products, offset=-lag) for lag in range(1 - len(v), len(a))])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lag_products",
            dtypes=("float32", "complex64"),
            samples=lambda make: [(make(40), make(9)), (make(12), make(12)), (make(10), make(25))],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(4), make(0)), ValueError, "is empty")],
        )

    return wrong, right, declare


@pair(
    "add_saturating",
    "the wider integers that should hold the sum are not wider than the widest dtype",
    "plausible: saturating addition of images, extended from int8 and int16 to int64 by adding a dtype to a list",
    "int64: 2**63 - 1 and 1 give -2**63 instead of 2**63 - 1",
)
def add_saturating():
    """a + b; a sum that does not fit becomes the nearest number of the dtype."""

    def wrong(xp, a, b):
        limits = np.iinfo(a.dtype)
        return xp.clip(a.astype("int64") + b.astype("int64"), limits.min, limits.max).astype(a.dtype)

    def right(xp, a, b):
        limits = np.iinfo(a.dtype)
        total = a + b
        wrapped = ((a ^ total) & (b ^ total)) < 0
        limit = xp.where(a < 0, xp.asarray(limits.min, dtype=a.dtype), xp.asarray(limits.max, dtype=a.dtype))
        return xp.where(wrapped, limit, total)

    def reference(a, b):
        limits = np.iinfo(a.dtype)
        a, b = np.broadcast_arrays(a, b)
        out = np.empty(a.shape, a.dtype)
        for i in np.ndindex(a.shape):
            out[i] = min(max(int(a[i]) + int(b[i]), limits.min), limits.max)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="add_saturating",
            dtypes=("int8", "int16", "int32", "int64"),
            samples=lambda make: [
                (make((5, 33)), make((5, 33))),
                (make(100), make(100)),
                Sample((make((4, 7)), make(7)), kind="broadcast"),
                Sample((make(0), make(0)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "shift_periods",
    "the cache is keyed by a hash, and -1 and -2 have the same",
    "plausible: caches of plans that keep hash(options) as the key; in CPython hash(-1) == hash(-2)",
    "a call with periods=-1, then one of the same length with periods=-2: the second is shifted by 1",
)
def shift_periods():
    """The last axis shifted by some periods, as pandas' shift does; places that become free hold NaN."""

    def plan(extent, periods):
        count = min(abs(periods), extent)
        front, back = slice(0, extent - count), slice(count, extent)
        return (front, back) if periods >= 0 else (back, front)

    def shifted(xp, a, plans, key, periods):
        if key not in plans:
            plans[key] = plan(a.shape[-1], periods)
        source, target = plans[key]
        out = xp.full(a.shape, math.nan, dtype=a.dtype)
        out[..., target] = a[..., source]
        return out

    plans_by_hash: dict[int, tuple[slice, slice]] = {}
    plans_by_options: dict[tuple[int, int], tuple[slice, slice]] = {}

    def wrong(xp, a, periods=1):
        return shifted(xp, a, plans_by_hash, hash((a.shape[-1], periods)), periods)

    def right(xp, a, periods=1):
        return shifted(xp, a, plans_by_options, (a.shape[-1], periods), periods)

    def reference(a, periods=1):
        out = np.full(a.shape, math.nan)
        for i in range(a.shape[-1]):
            if 0 <= i - periods < a.shape[-1]:
                out[..., i] = a[..., i - periods]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="shift_periods",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((6, 40)),
                Sample((make((6, 40)),), {"periods": -1}),
                Sample((make(40),), {"periods": -2}),
                Sample((make((2, 3, 5)),), {"periods": 3}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "lower_quantiles",
    "the caller's list of levels is sorted in place",
    "plausible: quantiles read in ascending order, as of a t-digest, where the levels are sorted with list.sort",
    "levels [0.9, 0.1, 0.5] are [0.1, 0.5, 0.9] after the call, so the next call with that list has another order",
)
def lower_quantiles():
    """Quantiles along the last axis, the lower neighbour where one lies between two numbers; NaN if any is NaN."""

    def given(levels):
        return [0.25, 0.5, 0.75] if levels is None else levels

    def places(extent, levels):
        if extent == 0:
            raise ValueError("there are no numbers")
        for level in levels:
            if not 0 <= level <= 1:
                raise ValueError(f"a level is {level}; give 0 to 1")
        return [math.floor(level * (extent - 1)) for level in levels]

    def read(xp, a, at):
        ordered = xp.sort(a, axis=-1)  # NaN comes last
        out = ordered[..., xp.asarray(at, dtype="int64")]
        return xp.where(xp.isnan(ordered[..., -1:]), ordered[..., -1:], out)

    def wrong(xp, a, levels=None):
        levels = given(levels)
        order = sorted(range(len(levels)), key=levels.__getitem__)
        levels.sort()
        out = read(xp, a, places(a.shape[-1], levels))
        return out[..., xp.asarray(np.argsort(order), dtype="int64")]

    def right(xp, a, levels=None):
        return read(xp, a, places(a.shape[-1], given(levels)))

    def reference(a, levels=None):
        at = places(a.shape[-1], given(levels))
        out = np.empty((*a.shape[:-1], len(at)))
        for i in np.ndindex(a.shape[:-1]):
            numbers = a[i].tolist()
            out[i] = math.nan if any(map(math.isnan, numbers)) else np.array(sorted(numbers))[at]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lower_quantiles",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(101),
                make((4, 30)),
                Sample((make((3, 2, 17)),), {"levels": [0.9, 0.1, 0.5]}),
                Sample((make((5, 64)),), {"levels": [0.05, 0.95]}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"levels": [1.5]}), ValueError, "give 0 to 1")],
        )

    return wrong, right, declare


@pair(
    "first_equal",
    "the sort is not stable, so the first of equal entries is any of them",
    "numpy.unique with return_index needs a stable sort for first occurrences; ports took the default kind of argsort",
    "200 numbers from 0 to 9: later places of equal numbers, where a short input has the right ones",
)
def first_equal():
    """For each number, the place of the first number that equals it."""

    def by_order(xp, a, order):
        ordered = a[order]
        starts = xp.concatenate([xp.ones(min(1, a.shape[0]), dtype="bool"), ordered[1:] != ordered[:-1]])
        out = xp.empty(a.shape, dtype="int64")
        out[order] = order[starts][xp.cumsum(starts) - 1]
        return out

    def wrong(xp, a):
        return by_order(xp, a, xp.argsort(a))

    def right(xp, a):
        return by_order(xp, a, xp.argsort(a, kind="stable"))

    def reference(a):
        first: dict[int, int] = {}
        return np.array([first.setdefault(number, i) for i, number in enumerate(a.tolist())], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="first_equal",
            dtypes=("int32", "int64"),
            samples=lambda make: [make(12), make(200, low=0, high=9), make(64, low=-1000, high=1000)],
            result_dtype=lambda a: "int64",
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "carry_forward",
    "integers with gaps go through float64, which has 53 bits",
    "pandas: shift, fill and group operations converted int64 with missing entries to float64 and back",
    "2**60 - 1 comes back as 2**60",
)
def carry_forward():
    """Numbers that are not valid replaced by the last valid one before; `missing` where there is none."""

    def filled(xp, numbers, present, missing):
        known = xp.concatenate([xp.full(1, missing, dtype=numbers.dtype), numbers[present]])
        return known[xp.cumsum(present)]

    def wrong(xp, numbers, valid, missing=-1):
        gaps = xp.where(valid, numbers.astype("float64"), math.nan)
        return filled(xp, gaps, ~xp.isnan(gaps), missing).astype(numbers.dtype)

    def right(xp, numbers, valid, missing=-1):
        return filled(xp, numbers, valid, missing)

    def reference(numbers, valid, missing=-1):
        out, last = np.empty(numbers.shape, numbers.dtype), missing
        for i in range(len(numbers)):
            last = numbers[i] if valid[i] else last
            out[i] = last
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="carry_forward",
            dtypes=("int64",),
            samples=lambda make: [
                (make(80), make(80, dtype="bool")),
                (make(200, low=0, high=2**60), make(200, dtype="bool")),
                Sample((make(9), make(9, dtype="bool")), {"missing": 0}),
                Sample((make(0), make(0, dtype="bool")), kind="empty"),
            ],
            result_dtype="int64",
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "bright_box",
    "the box of no pixel at all is the whole image",
    "boxes of masks, as torchvision.ops.masks_to_boxes and copies of it: a mask without a true pixel was forgotten",
    "an image of which no pixel exceeds the level: [0, 0, height, width] instead of zeros",
)
def bright_box():
    """Top, left, bottom, right of the pixels above the level, the last two exclusive; zeros if there are none."""

    def past_last(flags):
        return flags.shape[-1] - flags[..., ::-1].argmax(axis=-1)

    def corners(xp, bright):
        if 0 in bright.shape[-2:]:
            return xp.zeros((*bright.shape[:-2], 4), dtype="int64")
        rows, columns = bright.any(axis=-1), bright.any(axis=-2)
        found = [rows.argmax(axis=-1), columns.argmax(axis=-1), past_last(rows), past_last(columns)]
        return xp.stack([xp.asarray(each, dtype="int64") for each in found], axis=-1)

    def wrong(xp, image, level=0.5):
        return corners(xp, image > level)

    def right(xp, image, level=0.5):
        bright = image > level
        return xp.where(bright.any(axis=(-2, -1))[..., None], corners(xp, bright), 0)

    def reference(image, level=0.5):
        out = np.zeros((*image.shape[:-2], 4), dtype="int64")
        for i in np.ndindex(image.shape[:-2]):
            rows, columns = np.nonzero(image[i] > level)
            if len(rows):
                out[i] = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bright_box",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((24, 32), low=0, high=1),
                Sample((make((5, 12, 16), low=0, high=1),), {"level": 0.875}),
            ],
            result_dtype=lambda image: "int64",
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "euclidean_length",
    "keepdims is ignored on the fast path of the whole array",
    "numpy.linalg.norm before 1.10: with axis=None the flattened array was multiplied, and keepdims forgotten",
    "keepdims=True without an axis: a result of shape () instead of (1, 1, 1)",
)
def euclidean_length():
    """The square root of the sum of squares, of the whole array or along axes."""

    def along(xp, wide, axis, keepdims):
        return xp.sqrt((wide * wide).sum(axis=axis, keepdims=keepdims))

    def wrong(xp, a, axis=None, keepdims=False):
        wide = a.astype("float64")
        if axis is None:
            flat = wide.reshape(-1)
            return xp.sqrt(xp.dot(flat, flat)).astype(a.dtype)
        return along(xp, wide, axis, keepdims).astype(a.dtype)

    def right(xp, a, axis=None, keepdims=False):
        return along(xp, a.astype("float64"), axis, keepdims).astype(a.dtype)

    def reference(a, axis=None, keepdims=False):
        return np.sqrt(np.square(a).sum(axis=axis, keepdims=keepdims))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="euclidean_length",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((4, 9)),
                Sample((make((3, 5, 4)),), {"axis": -1}),
                Sample((make((3, 5, 4)),), {"axis": 1, "keepdims": True}),
                Sample((make((2, 6, 3)),), {"axis": (0, 2)}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "flat_offsets",
    "only the flat offset is checked, not each index",
    "kernels and sparse formats that compare only the flat offset with the number of elements of the array",
    "row 1, column 9 of a 6 by 9 grid: the offset of row 2, column 0 instead of an error",
)
def flat_offsets():
    """Offsets of places in a grid that is stored row by row; an index outside the grid raises ValueError."""

    def wrong(xp, rows, columns, shape=(6, 9)):
        offsets = rows.astype("int64") * shape[1] + columns
        if ((offsets < 0) | (offsets >= shape[0] * shape[1])).any():
            raise ValueError(f"an index is outside the grid {shape}")
        return offsets

    def right(xp, rows, columns, shape=(6, 9)):
        for indices, extent in zip((rows, columns), shape, strict=True):
            if ((indices < 0) | (indices >= extent)).any():
                raise ValueError(f"an index is outside the grid {shape}")
        return rows.astype("int64") * shape[1] + columns

    def reference(rows, columns, shape=(6, 9)):
        return np.ravel_multi_index((rows.astype("int64"), columns.astype("int64")), shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="flat_offsets",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                (make(40, low=0, high=5), make(40, low=0, high=8)),
                Sample((make((4, 7), low=0, high=2), make((4, 7), low=0, high=49)), {"shape": (3, 50)}),
            ],
            result_dtype=lambda rows, columns: "int64",
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make.of([0, 6]), make.of([0, 0])), ValueError, "outside the grid"),
                ErrorInput((make.of([0, 1]), make.of([3, 9])), ValueError, "outside the grid"),
            ],
        )

    return wrong, right, declare


@pair(
    "weber_contrast",
    "an array of one number is taken for a scalar without axes",
    "plausible: fast paths of binary functions for size == 1, which forget that such an array can have more axes",
    "a stimulus of shape (9,) and a background of shape (1, 1): a result of shape (9,) instead of (1, 9)",
)
def weber_contrast():
    """(stimulus - background) / background, element by element."""

    def wrong(xp, stimulus, background):
        wide = stimulus.astype("float64")
        below = background.astype("float64")
        if below.size == 1:
            below = below.reshape(())
        return ((wide - below) / below).astype(stimulus.dtype)

    def right(xp, stimulus, background):
        wide, below = stimulus.astype("float64"), background.astype("float64")
        return ((wide - below) / below).astype(stimulus.dtype)

    def reference(stimulus, background):
        return (stimulus - background) / background

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weber_contrast",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((8, 33), low=0, high=3), make((8, 33), low=0.5, high=3)),
                Sample((make((4, 9), low=0, high=3), make(9, low=0.5, high=3)), kind="broadcast"),
                Sample((make(9, low=0, high=3), make((4, 1), low=0.5, high=3)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dilated_windows",
    "the extent of a dilated window is counted with a gap after its last entry",
    "length formulas of dilated convolutions: width * dilation where (width - 1) * dilation + 1 is right",
    "width 3, stride 2, dilation 2 and an odd length: the last window is missing; an even length has all",
)
def dilated_windows():
    """Windows along the last axis that lie `stride` apart, with entries that lie `dilation` apart."""

    def check(width, stride, dilation):
        if min(width, stride, dilation) < 1:
            raise ValueError("width, stride and dilation must be 1 or more")

    def gather(xp, a, extent, width, stride, dilation):
        count = max(0, (a.shape[-1] - extent) // stride + 1)
        starts, steps = xp.arange(count) * stride, xp.arange(width) * dilation
        return a[..., starts[:, None] + steps[None, :]]

    def wrong(xp, a, width=4, stride=1, dilation=1):
        check(width, stride, dilation)
        return gather(xp, a, width * dilation, width, stride, dilation)

    def right(xp, a, width=4, stride=1, dilation=1):
        check(width, stride, dilation)
        return gather(xp, a, (width - 1) * dilation + 1, width, stride, dilation)

    def reference(a, width=4, stride=1, dilation=1):
        check(width, stride, dilation)
        windows, start = [], 0
        while start + (width - 1) * dilation < a.shape[-1]:
            windows.append([start + i * dilation for i in range(width)])
            start += stride
        return a[..., np.array(windows, dtype="int64").reshape(-1, width)]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dilated_windows",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make((3, 20)),
                Sample((make(50),), {"width": 5, "stride": 3}),
                Sample((make((4, 32)),), {"width": 3, "stride": 2, "dilation": 2}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"stride": 0}), ValueError, "1 or more")],
        )

    return wrong, right, declare
