"""Detection, finance, strings, encodings, ragged sums, resampling, filters, regions, checksums, ranks, gaps."""

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
    "suppress_boxes",
    "equal scores are visited from the last to the first",
    "torchvision.ops.nms on CUDA and TensorRT's NMS: a reversed ascending sort, so ties went to the later box",
    "two boxes that overlap, with equal scores: the second is kept where the first should be",
)
def suppress_boxes():
    """Which boxes (x, y, width, height) survive greedy suppression by score; of equal scores the first box wins."""

    def keep(xp, boxes, order, threshold):
        boxes = boxes.astype("float64")[order]
        n = boxes.shape[0]
        low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
        area = boxes[:, 2] * boxes[:, 3]
        sides = xp.minimum(high[:, None], high[None]) - xp.maximum(low[:, None], low[None])
        sides = xp.maximum(sides, 0.0)
        shared = sides[..., 0] * sides[..., 1]
        over = shared > threshold * (area[:, None] + area[None] - shared)
        kept = xp.ones(n, dtype="bool")
        places = xp.arange(n)
        for i in range(n):
            kept = kept & ~(kept[i : i + 1] & over[i] & (places > i))
        return kept[xp.argsort(order)]

    def wrong(xp, boxes, scores, threshold=0.5):
        return keep(xp, boxes, xp.argsort(scores, kind="stable")[::-1], threshold)

    def right(xp, boxes, scores, threshold=0.5):
        return keep(xp, boxes, xp.argsort(-scores, kind="stable"), threshold)

    def reference(boxes, scores, threshold=0.5):
        kept = np.zeros(len(boxes), dtype=bool)
        for i in np.argsort(-scores, kind="stable"):
            x, y, w, h = boxes[i]
            for j in np.flatnonzero(kept):
                other_x, other_y, other_w, other_h = boxes[j]
                wide = max(min(x + w, other_x + other_w) - max(x, other_x), 0.0)
                tall = max(min(y + h, other_y + other_h) - max(y, other_y), 0.0)
                if wide * tall > threshold * (other_w * other_h + w * h - wide * tall):
                    break
            else:
                kept[i] = True
        return kept

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="suppress_boxes",
            dtypes=("float32", "float64"),
            result_dtype="bool",
            samples=lambda make: [
                (make((12, 4), low=0, high=10), make(12, low=0, high=1)),
                Sample((make((25, 4), low=0, high=8), make(25, low=0, high=1)), {"threshold": 0.2}),
                Sample((make((0, 4), low=0, high=10), make(0, low=0, high=1)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "drawdown",
    "a block starts from the maximum of the block before it only, not of all before it",
    "scans in two levels, as CuPy's cumulative kernels: the totals of the blocks are not scanned themselves",
    "800 prices whose peak is the third: from the 513th on the drawdown is from the peak of later blocks",
)
def drawdown():
    """How far each price of the last axis is below the highest so far, as a fraction of it or in currency."""

    block = 256

    def below(xp, prices, relative, carry_on):
        wide = prices.astype("float64")
        parts = [wide[..., :0]]
        highest = xp.full(wide[..., :1].shape, -math.inf, dtype="float64")
        for start in range(0, wide.shape[-1], block):
            part = wide[..., start : start + block]
            peaks = xp.maximum(xp.maximum.accumulate(part, axis=-1), highest)
            parts.append((peaks - part) / peaks if relative else peaks - part)
            highest = carry_on(part, peaks)
        return xp.concatenate(parts, axis=-1).astype(prices.dtype)

    def wrong(xp, prices, relative=True):
        return below(xp, prices, relative, lambda part, peaks: part.max(axis=-1, keepdims=True))

    def right(xp, prices, relative=True):
        return below(xp, prices, relative, lambda part, peaks: peaks[..., -1:])

    def reference(prices, relative=True):
        peaks = np.maximum.accumulate(prices, axis=-1)
        return (peaks - prices) / peaks if relative else peaks - prices

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="drawdown",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((5, 40), low=1, high=100),
                make(300, low=10, high=20),
                Sample((make((2, 3, 65), low=1, high=500),), {"relative": False}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "edit_cost",
    "the operands are exchanged for speed, but not the costs of insertion and deletion",
    "weighted Levenshtein of string libraries (NLTK, rapidfuzz): the shorter string becomes the outer loop",
    "from 5 codes to 3 with insertion=2, deletion=1: each of the two deletions costs 2",
)
def edit_cost():
    """Least cost of turning each row of codes of `a` into the row of `b`."""

    def dynamic(xp, a, b, insertion, deletion, substitution):
        n, m = a.shape[-1], b.shape[-1]
        places = xp.arange(m + 1) * insertion
        row = xp.zeros((*a.shape[:-1], 1), dtype="int64") + places
        for i in range(n):
            down = row + deletion
            across = row[..., :-1] + xp.where(a[..., i : i + 1] == b, 0, substitution)
            best = xp.concatenate([down[..., :1], xp.minimum(down[..., 1:], across)], axis=-1)
            row = xp.minimum.accumulate(best - places, axis=-1) + places  # a run of insertions ends here
        return row[..., -1]

    def wrong(xp, a, b, insertion=1, deletion=1, substitution=1):
        if a.shape[-1] > b.shape[-1]:
            a, b = b, a
        return dynamic(xp, a, b, insertion, deletion, substitution)

    def right(xp, a, b, insertion=1, deletion=1, substitution=1):
        if a.shape[-1] > b.shape[-1]:
            a, b, insertion, deletion = b, a, deletion, insertion
        return dynamic(xp, a, b, insertion, deletion, substitution)

    def reference(a, b, insertion=1, deletion=1, substitution=1):
        out = np.zeros(a.shape[:-1], dtype="int64")
        for i in np.ndindex(out.shape):
            costs = [insertion * j for j in range(b.shape[-1] + 1)]
            for x in a[i]:
                before, costs = costs, [costs[0] + deletion]
                for j, y in enumerate(b[i]):
                    change = before[j] + (0 if x == y else substitution)
                    costs.append(min(change, before[j + 1] + deletion, costs[j] + insertion))
            out[i] = costs[-1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="edit_cost",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make((4, 6), low=0, high=3), make((4, 9), low=0, high=3)),
                (make((2, 8), low=0, high=25), make((2, 5), low=0, high=25)),
                Sample(
                    (make((3, 5), low=0, high=3), make((3, 7), low=0, high=3)),
                    {"insertion": 2, "deletion": 1, "substitution": 2},
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "zigzag_deltas",
    "the sign is shifted down by the width of int32 in int64 too",
    "zigzag encoding of protobuf and of Parquet's DELTA_BINARY_PACKED: n >> 31 was kept for 64 bits",
    "int64 [1700000000000000000, 1700000000000000007], times in nanoseconds: the first code is garbled",
)
def zigzag_deltas():
    """Differences along the last axis (modulo the width of the dtype), zigzag-encoded: 0, -1, 1, -2 become 0 to 3."""

    def encode(xp, a, shift):
        delta = a - xp.concatenate([xp.zeros_like(a[..., :1]), a[..., :-1]], axis=-1)
        return ((delta << 1) ^ (delta >> shift)).astype("u" + a.dtype.name)

    def wrong(xp, a):
        return encode(xp, a, 31)

    def right(xp, a):
        return encode(xp, a, 8 * a.dtype.itemsize - 1)

    def reference(a):
        modulus = 1 << (8 * a.dtype.itemsize)
        out = np.zeros(a.shape, dtype=f"u{a.dtype}")
        for i in np.ndindex(a.shape):
            delta = int(a[i]) - (int(a[(*i[:-1], i[-1] - 1)]) if i[-1] else 0)
            delta = (delta + modulus // 2) % modulus - modulus // 2
            out[i] = 2 * delta if delta >= 0 else -2 * delta - 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="zigzag_deltas",
            dtypes=("int32", "int64"),
            result_dtype=lambda a: f"u{a}",
            samples=lambda make: [make(50), make((4, 30)), make((2, 3, 17))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "ragged_sums",
    "empty segments at the end cut the last element off the segment before them",
    "numpy.add.reduceat over offsets: those equal to the length are clipped to length - 1 (scipy.sparse, Awkward)",
    "values [1, 2, 3] with lengths [1, 2, 0]: sums [1, 2, 0] where [1, 5, 0] is right",
)
def ragged_sums():
    """Sums of consecutive segments, given their lengths; values left over are in none, missing ones are none."""

    def segments(xp, values, lengths):
        ends = xp.cumsum(lengths.astype("int64"))
        total = min(int(lengths.sum()), values.shape[0])
        starts = xp.minimum(ends - lengths, total)
        return starts, xp.minimum(ends, total) > starts, total

    def wrong(xp, values, lengths):
        starts, filled, total = segments(xp, values, lengths)
        if not total:
            return xp.zeros(lengths.shape, dtype=values.dtype)
        sums = xp.add.reduceat(values[:total].astype("float64"), xp.minimum(starts, total - 1))
        return xp.where(filled, sums, 0.0).astype(values.dtype)

    def right(xp, values, lengths):
        starts, filled, total = segments(xp, values, lengths)
        if not total:
            return xp.zeros(lengths.shape, dtype=values.dtype)
        wide = xp.concatenate([values[:total].astype("float64"), xp.zeros(1, dtype="float64")])
        return xp.where(filled, xp.add.reduceat(wide, starts), 0.0).astype(values.dtype)

    def reference(values, lengths):
        out, start = np.zeros(len(lengths)), 0
        for i, length in enumerate(lengths):
            out[i] = values[start : start + length].sum()
            start += length
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ragged_sums",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40), make(8, dtype="int64", low=0, high=6)),
                (make(100), make(23, dtype="int64", low=0, high=9)),
                (make(9), make(3, dtype="int64", low=1, high=3)),
            ],
            result_dtype=lambda values, lengths: values,
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "hold_resample",
    "the place in the source is divided by a factor that was rounded to float32",
    "torch.nn.functional.interpolate(mode='nearest', scale_factor=...) and CuPy's zoom of order 0",
    "16 samples with up=6, down=5: result 18 is sample 14, where 18 * 5 // 6 is 15",
)
def hold_resample():
    """Resample the last axis by up/down, holding each value: result k is the value at k * down // up."""

    def check(up, down):
        if up < 1 or down < 1:
            raise ValueError(f"up is {up} and down {down}; give 1 or more")

    def wrong(xp, a, up=3, down=2):
        check(up, down)
        n = a.shape[-1]
        scale = np.float32(up / down)
        places = xp.floor(xp.arange(-(-n * up // down)).astype("float32") / scale).astype("int64")
        return a[..., xp.minimum(places, n - 1)]

    def right(xp, a, up=3, down=2):
        check(up, down)
        return a[..., xp.arange(-(-a.shape[-1] * up // down)) * down // up]

    def reference(a, up=3, down=2):
        length = math.ceil(a.shape[-1] * up / down)
        return np.take(a, [k * down // up for k in range(length)], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="hold_resample",
            dtypes=("int16", "float32", "float64"),
            samples=lambda make: [
                make(48),
                Sample((make((3, 12)),), {"up": 6, "down": 5}),
                Sample((make((2, 2, 31)),), {"up": 1, "down": 4}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"up": 0}), ValueError, "up is 0")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "smooth_derivative",
    "the kept coefficients are looked up without the spacing",
    "caches of filter designs (lru_cache around savgol_coeffs) whose key leaves out an option",
    "deriv=1 with delta=1.0, then the same with delta=0.5: the second result is half of what it should be",
)
def smooth_derivative():
    """Savitzky-Golay filter of the last axis, or its derivative for samples `delta` apart; edges are repeated."""

    def design(window, order, deriv, delta):
        if window % 2 == 0 or window <= order:
            raise ValueError(f"window is {window}; give an odd number above the order, {order}")
        if deriv > order:
            return [0.0] * window
        powers = np.vander(np.arange(window) - window // 2, order + 1, increasing=True)
        return (np.linalg.pinv(powers.astype("float64"))[deriv] * math.factorial(deriv) / delta**deriv).tolist()

    def run(xp, a, taps):
        half, n = len(taps) // 2, a.shape[-1]
        sides = [(0, 0)] * (a.ndim - 1) + [(half, half)]
        wide = xp.pad(a.astype("float64"), sides, mode="edge")
        total = taps[0] * wide[..., :n]
        for k in range(1, len(taps)):
            total = total + taps[k] * wide[..., k : k + n]
        return total.astype(a.dtype)

    kept: dict[tuple[Any, ...], list[float]] = {}

    def wrong(xp, a, window=5, order=2, deriv=0, delta=1.0):
        key = (window, order, deriv)
        if key not in kept:
            kept[key] = design(window, order, deriv, delta)
        return run(xp, a, kept[key])

    all_kept: dict[tuple[Any, ...], list[float]] = {}

    def right(xp, a, window=5, order=2, deriv=0, delta=1.0):
        key = (window, order, deriv, delta)
        if key not in all_kept:
            all_kept[key] = design(window, order, deriv, delta)
        return run(xp, a, all_kept[key])

    def reference(a, window=5, order=2, deriv=0, delta=1.0):
        return run(np, a, design(window, order, deriv, delta))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smooth_derivative",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 40)),
                Sample((make(64),), {"deriv": 1}),
                Sample((make((2, 30)),), {"window": 7, "order": 3, "deriv": 1, "delta": 0.5}),
                Sample((make((2, 2, 21)),), {"window": 9, "order": 4, "deriv": 2, "delta": 0.25}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"window": 4}), ValueError, "window is 4")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "box_blur",
    "the shortcut for radius 0 returns a copy and leaves `out` as it was",
    "cupyx.scipy.ndimage and scikit-image filters: early returns for trivial sizes that do not write the output",
    "box_blur(image, radius=0, out=buffer): buffer still holds what it held before",
)
def box_blur():
    """Mean over the square of pixels within `radius` (last two axes); pixels at the edge are repeated."""

    def check(radius):
        if radius < 0:
            raise ValueError(f"radius is {radius}; give 0 or more")

    def means(xp, image, radius):
        size = 2 * radius + 1
        height, width = image.shape[-2:]
        sides = [(0, 0)] * (image.ndim - 2) + [(radius, radius)] * 2
        padded = xp.pad(image.astype("float64") / size**2, sides, mode="edge")  # no sum overflows
        rows = padded[..., :height, :]
        for k in range(1, size):
            rows = rows + padded[..., k : k + height, :]
        total = rows[..., :width]
        for k in range(1, size):
            total = total + rows[..., k : k + width]
        return total.astype(image.dtype)

    def wrong(xp, image, radius=1, out=None):
        check(radius)
        if radius == 0:
            return image.copy()
        result = means(xp, image, radius)
        if out is None:
            return result
        out[...] = result
        return out

    def right(xp, image, radius=1, out=None):
        check(radius)
        result = image.copy() if radius == 0 else means(xp, image, radius)
        if out is None:
            return result
        out[...] = result
        return out

    def reference(image, radius=1):
        sides = [(0, 0)] * (image.ndim - 2) + [(radius, radius)] * 2
        size = 2 * radius + 1
        padded = np.pad(image / size**2, sides, mode="edge")
        return np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(-2, -1)).sum((-2, -1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="box_blur",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((9, 14)),
                Sample((make((2, 17, 8)),), {"radius": 3}),
                Sample((make((6, 7)),), {"radius": 0}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make((3, 3)),), {"radius": -1}), ValueError, "radius is -1")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "label_regions",
    "the labels spread for a fixed number of sweeps, too few for regions that wind",
    "label propagation on GPUs (connected components of cuGraph, labelling in Triton): no look for convergence",
    "a serpentine 9 x 9: its far end, 48 steps from the first pixel, keeps a label of its own after 9 sweeps",
)
def label_regions():
    """Connected regions of pixels above a threshold: each gets its smallest flat index, the background -1."""

    def begin(xp, image, threshold):
        height, width = image.shape
        inside = image.astype("float64") > threshold
        none = height * width
        return inside, xp.where(inside, xp.arange(none).reshape(height, width), none)

    def sweep(xp, labels, inside, diagonals):
        height, width = labels.shape
        padded = xp.pad(labels, ((1, 1), (1, 1)), mode="constant", constant_values=height * width)
        least = labels
        for i in range(3):
            for j in range(3):
                if (i, j) != (1, 1) and (diagonals or 1 in (i, j)):
                    least = xp.minimum(least, padded[i : i + height, j : j + width])
        return xp.where(inside, least, labels)

    def wrong(xp, image, threshold=0.0, diagonals=False):
        inside, labels = begin(xp, image, threshold)
        for _ in range(max(image.shape)):
            labels = sweep(xp, labels, inside, diagonals)
        return xp.where(inside, labels, -1)

    def right(xp, image, threshold=0.0, diagonals=False):
        inside, labels = begin(xp, image, threshold)
        while True:
            before, labels = labels, sweep(xp, labels, inside, diagonals)
            if not bool((before != labels).any()):
                return xp.where(inside, labels, -1)

    def reference(image, threshold=0.0, diagonals=False):
        height, width = image.shape
        labels = np.full(image.shape, -1, dtype="int64")
        for y, x in np.ndindex(image.shape):
            if image[y, x] > threshold and labels[y, x] < 0:
                labels[y, x] = y * width + x
                open_ends = [(y, x)]
                while open_ends:
                    v, u = open_ends.pop()
                    for dv, du in np.ndindex(3, 3):
                        q, p = v + dv - 1, u + du - 1
                        if not (0 <= q < height and 0 <= p < width) or not (diagonals or 1 in (dv, du)):
                            continue
                        if image[q, p] > threshold and labels[q, p] < 0:
                            labels[q, p] = y * width + x
                            open_ends.append((q, p))
        return labels

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="label_regions",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make((8, 11)),
                Sample((make((6, 9), low=0, high=1),), {"threshold": 0.5, "diagonals": True}),
                Sample((make((5, 16)),), {"threshold": 1.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "fletcher16",
    "the sums before the modulo are kept in 16 bits, which holds 22 bytes of 255",
    "Fletcher and Adler checksums with a deferred modulo, as in zlib, whose NMAX bounds the bytes between two",
    "40 bytes of 255: the weighted sum, 209100, wraps around, and the checksum is not 0",
)
def fletcher16():
    """Fletcher's checksum of 16 bits of the bytes along the last axis."""

    def checksum(xp, data, dtype):
        weights = xp.arange(data.shape[-1], 0, -1).astype(dtype)
        wide = data.astype(dtype)
        first = wide.sum(axis=-1, dtype=dtype) % 255
        second = (wide * weights).sum(axis=-1, dtype=dtype) % 255
        return (second * 256 + first).astype("uint16")

    def wrong(xp, data):
        return checksum(xp, data, "uint16")

    def right(xp, data):
        return checksum(xp, data, "int64")

    def reference(data):
        out = np.zeros(data.shape[:-1], dtype="uint16")
        for i in np.ndindex(out.shape):
            first = second = 0
            for byte in data[i].tolist():
                first = (first + byte) % 255
                second = (second + first) % 255
            out[i] = second * 256 + first
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fletcher16",
            dtypes=("uint8",),
            result_dtype="uint16",
            samples=lambda make: [
                make(8, low=0, high=255),
                make((3, 16), low=0, high=255),
                make((2, 3, 20), low=32, high=126),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dense_rank",
    "0.0 and -0.0 get two ranks, because the sort compares bits",
    "radix sorts of floats (CUB, Thrust, cuDF's ranks and group keys): a key from the bits tells the zeros apart",
    "[0.0, -0.0, 1.0]: ranks [2, 1, 3] where [1, 1, 2] is right",
)
def dense_rank():
    """Ranks from 1 without gaps, over the whole array; equal numbers share one, and NaN has the last."""

    def rank(xp, wide):
        bits = wide.view("uint64")
        keys = xp.where(bits >> 63 == 1, ~bits, bits | (1 << 63))
        keys = xp.where(xp.isnan(wide), (1 << 64) - 1, keys)
        return (xp.searchsorted(xp.unique(keys.ravel()), keys) + 1).astype("int64")

    def wrong(xp, a, descending=False):
        wide = a.astype("float64")
        return rank(xp, -wide if descending else wide)

    def right(xp, a, descending=False):
        wide = a.astype("float64")
        wide = -wide if descending else wide
        return rank(xp, xp.where(wide == 0, 0.0, wide))

    def reference(a, descending=False):
        a = -a if descending else a
        values = sorted({x for x in a.ravel().tolist() if not math.isnan(x)})
        ranks = {x: i + 1 for i, x in enumerate(values)}
        out = [ranks.get(x, len(values) + 1) for x in a.ravel().tolist()]
        return np.array(out, dtype="int64").reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dense_rank",
            dtypes=("float16", "float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(30),
                make((5, 8), low=-100, high=100),
                Sample((make((4, 9)),), {"descending": True}),
                Sample((make.of([1.5, math.nan, -math.inf, 1.5, 2.0, math.nan]),), kind="extremal"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "smooth_with_gaps",
    "a series that begins with a gap never starts",
    "ewm(adjust=False).mean() of pandas and cuDF and their relatives: the first value is the first state",
    "[nan, 1, 2] with alpha=0.5: all NaN where [nan, 1, 1.5] is right",
)
def smooth_with_gaps():
    """Exponential smoothing of the last axis; NaN is a gap, where the last mean is held."""

    def check(alpha):
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha is {alpha}; give a number above 0, up to 1")

    def wrong(xp, a, alpha=0.3):
        check(alpha)
        wide = a.astype("float64")
        if a.shape[-1] == 0:
            return a.copy()
        state, means = wide[..., 0], [wide[..., 0]]
        for i in range(1, a.shape[-1]):
            value = wide[..., i]
            state = xp.where(xp.isnan(value), state, (1 - alpha) * state + alpha * value)
            means.append(state)
        return xp.stack(means, axis=-1).astype(a.dtype)

    def right(xp, a, alpha=0.3):
        check(alpha)
        wide = a.astype("float64")
        if a.shape[-1] == 0:
            return a.copy()
        state, means = wide[..., 0], [wide[..., 0]]
        begun = ~xp.isnan(state)
        for i in range(1, a.shape[-1]):
            value = wide[..., i]
            mixed = xp.where(begun, (1 - alpha) * state + alpha * value, value)
            state = xp.where(xp.isnan(value), state, mixed)
            begun = begun | ~xp.isnan(value)
            means.append(state)
        return xp.stack(means, axis=-1).astype(a.dtype)

    def reference(a, alpha=0.3):
        out = np.full(a.shape, math.nan)
        for i in np.ndindex(a.shape[:-1]):
            state = None
            for k, value in enumerate(a[i]):
                if not np.isnan(value):
                    state = value if state is None else (1 - alpha) * state + alpha * value
                out[(*i, k)] = math.nan if state is None else state
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smooth_with_gaps",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 20)),
                Sample((make((2, 2, 13)),), {"alpha": 0.9}),
                Sample((make.of([[1.0, math.nan, 2.0, -3.0], [0.5, 4.0, math.nan, math.nan]]),), kind="extremal"),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(5),), {"alpha": 0.0}), ValueError, "alpha is 0.0")],
            reference=reference,
        )

    return wrong, right, declare
