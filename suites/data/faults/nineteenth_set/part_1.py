"""Finance, histograms, filters, quantisation, images, embeddings, time, averages, audio, windows: faults and twins."""

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
    "ewm_mean",
    "weights do not decay while values are missing",
    "pandas ewm: ignore_na=False and ignore_na=True were mixed up; cuDF and others reimplement it",
    "[1, NaN, 3]: the weight of 1 must have decayed over two steps, not one",
)
def ewm_mean():
    """Exponentially weighted mean along the last axis; weights follow positions, NaN is a missing value.

    As pandas' ewm(alpha, adjust=True, ignore_na=False).mean(): a missing value repeats the mean so far, and leading
    ones give NaN.
    """

    def check(alpha):
        if not 0 < alpha < 1:
            raise ValueError(f"alpha is {alpha}; give a number between 0 and 1")

    def run(xp, a, alpha, decay_missing):
        values = a.astype("float64")
        out = xp.empty(values.shape, dtype="float64")
        mean = xp.zeros(values.shape[:-1], dtype="float64")
        weight = xp.zeros(values.shape[:-1], dtype="float64")
        seen = xp.zeros(values.shape[:-1], dtype="bool")
        for t in range(values.shape[-1]):
            value = values[..., t]
            valid = ~xp.isnan(value)
            old = weight * (1 - alpha)
            before = xp.where(old > 0, mean * (old / (old + 1)), 0.0)
            mean = xp.where(valid, before + value / (old + 1), mean)
            weight = xp.where(valid, old + 1, old if decay_missing else weight)
            seen = seen | valid
            out[..., t] = xp.where(seen, mean, math.nan)
        return out.astype(a.dtype)

    def wrong(xp, a, alpha=0.3):
        check(alpha)
        return run(xp, a, alpha, decay_missing=False)

    def right(xp, a, alpha=0.3):
        check(alpha)
        return run(xp, a, alpha, decay_missing=True)

    def reference(a, alpha=0.3):
        out = np.full(a.shape, np.nan)
        for where in np.ndindex(a.shape[:-1]):
            row = a[where]
            for t in range(len(row)):
                present = np.flatnonzero(~np.isnan(row[: t + 1]))
                if len(present):
                    weights = (1.0 - alpha) ** (present[-1] - present)
                    present, weights = present[weights > 0], weights[weights > 0]
                    out[where][t] = (row[present] * (weights / weights.sum())).sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ewm_mean",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                make((3, 25), low=1, high=500),
                Sample((make((2, 3, 17)),), {"alpha": 0.05}),
                Sample((make((0, 5)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5),), {"alpha": 0}), ValueError, "alpha is 0"),
                ErrorInput(Sample((make(5),), {"alpha": 1.5}), ValueError, "alpha is 1.5"),
            ],
        )

    return wrong, right, declare


@pair(
    "fixed_histogram",
    "a value next to an edge is put into a bin by arithmetic that disagrees with the edges",
    "numpy.histogram's fast path for equal bins: values near edges needed a correction against the edges themselves",
    "float64, 100 bins from 0 to 1: the edges 0.29, 0.57 and 0.58 themselves are counted one bin too low",
)
def fixed_histogram():
    """Counts in equal bins whose edges are numpy.linspace's; the last bin is closed, others are half open."""

    def check(bins, span):
        if bins < 1:
            raise ValueError(f"bins is {bins}; give 1 or more")
        if not span[0] < span[1]:
            raise ValueError(f"span is {span}; give a lower and a higher number")

    def inside(a, span):
        flat = a.astype("float64").ravel()
        return flat[(flat >= span[0]) & (flat <= span[1])]

    def wrong(xp, a, bins=10, span=(-3.0, 3.0)):
        check(bins, span)
        values = inside(a, span)
        places = xp.floor((values - span[0]) * (bins / (span[1] - span[0]))).astype("int64")
        return xp.bincount(xp.minimum(places, bins - 1), minlength=bins).astype("int64")

    def right(xp, a, bins=10, span=(-3.0, 3.0)):
        check(bins, span)
        values = inside(a, span)
        edges = xp.asarray(np.linspace(span[0], span[1], bins + 1))
        places = xp.searchsorted(edges, values, side="right").astype("int64") - 1
        return xp.bincount(xp.minimum(places, bins - 1), minlength=bins).astype("int64")

    def reference(a, bins=10, span=(-3.0, 3.0)):
        edges = np.linspace(span[0], span[1], bins + 1)
        counts = [((a >= low) & (a < high)).sum() for low, high in zip(edges[:-1], edges[1:], strict=True)]
        counts[-1] += (a == edges[-1]).sum()
        return np.array(counts, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fixed_histogram",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(400),
                Sample((make((20, 31), low=-1, high=2),), {"bins": 100, "span": (0.0, 1.0)}),
                Sample((make((5, 6, 7)),), {"bins": 64, "span": (-2.5, 1.0)}),
                Sample((make((0, 4)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5),), {"bins": 0}), ValueError, "bins is 0"),
                ErrorInput(Sample((make(5),), {"span": (1.0, 1.0)}), ValueError, "span is"),
            ],
        )

    return wrong, right, declare


@pair(
    "overlap_add_filter",
    "the last tail is lost where the signal fills its blocks exactly",
    "scipy.signal.oaconvolve and streaming filters of audio libraries: the flush at the end of the last full block",
    "a signal of 256 samples with blocks of 128: the last len(taps) - 1 results are 0",
)
def overlap_add_filter():
    """The full convolution of a signal with a filter, block by block: len(signal) + len(taps) - 1 results."""

    def check(signal, taps, block):
        if signal.ndim != 1 or taps.ndim != 1:
            raise ValueError("signal and taps must have one dimension")
        if taps.shape[0] == 0:
            raise ValueError("taps is empty")
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")

    def wrong(xp, signal, taps, block=128):
        check(signal, taps, block)
        length, order = signal.shape[0], taps.shape[0] - 1
        block = max(block, order)
        full = length // block
        out = xp.zeros(length + order, dtype=signal.dtype)
        carry = xp.zeros(order, dtype=signal.dtype)
        for i in range(full):
            filtered = xp.convolve(signal[i * block : (i + 1) * block], taps)
            filtered[:order] += carry
            out[i * block : (i + 1) * block] = filtered[:block]
            carry = filtered[block:]
        rest = signal[full * block :]
        if rest.shape[0]:
            out[full * block :] = xp.convolve(rest, taps)
            out[full * block : full * block + order] += carry
        return out

    def right(xp, signal, taps, block=128):
        check(signal, taps, block)
        length, order = signal.shape[0], taps.shape[0] - 1
        block = max(block, order)
        out = xp.zeros(length + order, dtype=signal.dtype)
        for start in range(0, length, block):
            stop = min(start + block, length)
            out[start : stop + order] += xp.convolve(signal[start:stop], taps)
        return out

    def reference(signal, taps, block=128):
        out = np.zeros(len(signal) + len(taps) - 1)
        for j in range(len(taps)):
            out[j : j + len(signal)] += signal * taps[j]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="overlap_add_filter",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(30), make(5)),
                (make(1000), make(33)),
                Sample((make(201), make(8)), {"block": 16}),
                Sample((make(75), make(20)), {"block": 8}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(9), make(0)), ValueError, "taps is empty"),
                ErrorInput(Sample((make(9), make(3)), {"block": 0}), ValueError, "block is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "blockwise_quantize",
    "blocks follow the memory of a transposed array rather than its rows",
    "bitsandbytes quantize_blockwise: tensors that are not contiguous were read in the order of their memory",
    "a Fortran-ordered matrix (the transpose of a contiguous one): its blocks are columns, so scales differ",
)
def blockwise_quantize():
    """Round to 8 bits with one scale for each block of the elements in row-major order, and back."""

    def check(block):
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")

    def round_trip(xp, flat, block):
        count = -(-flat.shape[0] // block)
        padded = xp.zeros(count * block, dtype="float64")
        padded[: flat.shape[0]] = flat
        rows = padded.reshape(count, block)
        top = xp.abs(rows).max(axis=1, keepdims=True)
        codes = xp.clip(xp.round(rows / xp.where(top == 0, 1.0, top) * 127), -127, 127)
        # Padding in a block with an infinite scale becomes NaN, but is cut off.
        return (codes / 127 * top).ravel()[: flat.shape[0]]

    def wrong(xp, a, block=64):
        check(block)
        if a.size == 0:
            return a.copy()
        order = "F" if a.flags.f_contiguous and not a.flags.c_contiguous else "C"
        flat = a.ravel(order=order)  # no copy, whichever way the matrix lies
        return round_trip(xp, flat, block).reshape(a.shape, order=order).astype(a.dtype)

    def right(xp, a, block=64):
        check(block)
        if a.size == 0:
            return a.copy()
        return round_trip(xp, a.ravel(), block).reshape(a.shape).astype(a.dtype)

    def reference(a, block=64):
        flat = [float(x) for x in np.asarray(a, dtype="float64").flat]
        out = np.empty(len(flat))
        for start in range(0, len(flat), block):
            chunk = np.array(flat[start : start + block])
            scale = np.max(np.abs(chunk))
            if scale == 0:
                out[start : start + block] = 0
            else:
                out[start : start + block] = np.rint(chunk / scale * 127) / 127 * scale
        return out.reshape(np.shape(a))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="blockwise_quantize",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(300),
                make((9, 70), low=-100, high=100),
                Sample((make((4, 6, 10)),), {"block": 16}),
                Sample((make((0, 3)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(5),), {"block": 0}), ValueError, "block is 0")],
        )

    return wrong, right, declare


@pair(
    "nearest_resize",
    "the ratio of the sizes is rounded before it is multiplied",
    "torch.nn.functional.interpolate(mode='nearest') and OpenCV: source indices off by one for some pairs of sizes",
    "16 rows made 98: place 49 takes row 7 rather than 8; 68 columns made 28, 54 rows made 98 and others likewise",
)
def nearest_resize():
    """Resize the last two axes: place i of `size` takes element floor(i * old / size)."""

    def check(image, size):
        if image.ndim < 2 or 0 in image.shape[-2:]:
            raise ValueError(f"an image of shape {tuple(image.shape)} has no pixels")
        if min(size) < 1:
            raise ValueError(f"size is {size}; give 1 or more pixels")

    def wrong(xp, image, size=(32, 32)):
        check(image, size)
        for axis, new in ((-2, size[0]), (-1, size[1])):
            old = image.shape[axis]
            scale = old / new
            places = xp.floor(xp.arange(new) * scale).astype("int64")
            image = xp.take(image, xp.minimum(places, old - 1), axis=axis)
        return image

    def right(xp, image, size=(32, 32)):
        check(image, size)
        for axis, new in ((-2, size[0]), (-1, size[1])):
            places = xp.arange(new, dtype="int64") * image.shape[axis] // new
            image = xp.take(image, places, axis=axis)
        return image

    def reference(image, size=(32, 32)):
        rows = [divmod(i * image.shape[-2], size[0])[0] for i in range(size[0])]
        columns = [divmod(j * image.shape[-1], size[1])[0] for j in range(size[1])]
        return np.stack([np.stack([image[..., r, c] for c in columns], axis=-1) for r in rows], axis=-2)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nearest_resize",
            dtypes=("uint8", "float32"),
            result_dtype=lambda image: image,
            samples=lambda make: [
                make((8, 13)),
                Sample((make((3, 24, 20)),), {"size": (12, 30)}),
                Sample((make((2, 1, 7, 15)),), {"size": (98, 28)}),
                Sample((make((0, 5, 6)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((3, 0)),), ValueError, "has no pixels"),
                ErrorInput(Sample((make((3, 4)),), {"size": (0, 4)}), ValueError, "give 1 or more pixels"),
            ],
        )

    return wrong, right, declare


@pair(
    "cosine_similarity",
    "an absolute epsilon below the norms, which small vectors fall under",
    "torch.nn.functional.cosine_similarity: the product of the norms was clamped at eps=1e-8",
    "vectors of about 1e-5, such as gradients: their similarity to themselves is 0.03 rather than 1",
)
def cosine_similarity():
    """Cosine of the angle between vectors along an axis, whatever their lengths; with a zero vector it is 0."""

    def wrong(xp, a, b, axis=-1):
        x, y = a.astype("float64"), b.astype("float64")
        norms = xp.sqrt((x * x).sum(axis=axis)) * xp.sqrt((y * y).sum(axis=axis))
        return ((x * y).sum(axis=axis) / xp.maximum(norms, 1e-8)).astype(a.dtype)

    def right(xp, a, b, axis=-1):
        x, y = a.astype("float64"), b.astype("float64")
        norms = xp.sqrt((x * x).sum(axis=axis)) * xp.sqrt((y * y).sum(axis=axis))
        return ((x * y).sum(axis=axis) / xp.where(norms == 0, 1.0, norms)).astype(a.dtype)

    def reference(a, b, axis=-1):
        a, b = np.broadcast_arrays(np.asarray(a, dtype="float64"), np.asarray(b, dtype="float64"))
        a, b = np.moveaxis(a, axis, -1), np.moveaxis(b, axis, -1)
        out = np.zeros(a.shape[:-1])
        for i in np.ndindex(out.shape):
            lengths = np.linalg.norm(a[i]), np.linalg.norm(b[i])
            if lengths[0] * lengths[1] != 0:
                out[i] = np.dot(a[i] / lengths[0], b[i]) / lengths[1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cosine_similarity",
            dtypes=("float16", "float32"),
            result_dtype=lambda a, b: a,
            samples=lambda make: [
                (make(20), make(20)),
                (make((6, 33)), make((6, 33))),
                Sample((make((4, 9, 3)), make((4, 9, 3))), {"axis": 1}),
                (make((5, 64), low=-100, high=100), make((5, 64), low=-100, high=100)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "time_of_day",
    "nanoseconds are divided in floating point, and the last ones of a day round up into the next",
    "pandas Timestamp.floor, round and normalize: nanoseconds were lost in a float division",
    "1700092799999999999, the last nanosecond of 2023-11-15: -1 rather than 86399999999999",
)
def time_of_day():
    """Nanoseconds since the start of the day (or of another period) of time stamps in nanoseconds; never negative."""

    def check(period):
        if period < 1:
            raise ValueError(f"period is {period}; give 1 or more")

    def wrong(xp, stamps, period=86_400_000_000_000):
        check(period)
        days = xp.floor(stamps / period).astype("int64")
        return stamps - days * period

    def right(xp, stamps, period=86_400_000_000_000):
        check(period)
        return stamps % period

    def reference(stamps, period=86_400_000_000_000):
        stamps = np.asarray(stamps)
        return np.array([int(s) % period for s in stamps.flat], dtype="int64").reshape(stamps.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="time_of_day",
            dtypes=("int64",),
            result_dtype="int64",
            samples=lambda make: [
                make(30),
                make((4, 25), low=0, high=2_000_000_000_000_000_000),
                Sample((make((3, 2, 8), low=-10**15, high=10**15),), {"period": 3_600_000_000_000}),
                Sample((make((0, 2)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(5),), {"period": 0}), ValueError, "period is 0")],
        )

    return wrong, right, declare


@pair(
    "weighted_average",
    "one weight a row is taken for one a column where the matrix is square",
    "numpy.average and class and sample weights in scikit-learn and Keras: the axis was guessed from the length",
    "a matrix of 4 by 4 with 4 weights and axis=0",
)
def weighted_average():
    """Average along an axis; weights have the shape of `a`, or one dimension that lies along the axis."""

    def check(a, weights, axis):
        if weights.shape != a.shape and weights.shape != (a.shape[axis],):
            raise ValueError(f"weights of shape {tuple(weights.shape)} do not fit {tuple(a.shape)} along {axis}")

    def finish(xp, a, weights, axis):
        weights = xp.broadcast_to(weights.astype("float64"), a.shape)
        total = (a.astype("float64") * weights).sum(axis=axis)
        return (total / weights.sum(axis=axis)).astype(a.dtype)

    def wrong(xp, a, weights, axis=-1):
        check(a, weights, axis)
        if weights.shape not in (a.shape, a.shape[-1:]):
            shape = [1] * a.ndim
            shape[axis] = a.shape[axis]
            weights = weights.reshape(shape)
        return finish(xp, a, weights, axis)

    def right(xp, a, weights, axis=-1):
        check(a, weights, axis)
        if weights.ndim != a.ndim:
            shape = [1] * a.ndim
            shape[axis] = a.shape[axis]
            weights = weights.reshape(shape)
        return finish(xp, a, weights, axis)

    def reference(a, weights, axis=-1):
        a = np.moveaxis(a, axis, -1)
        weights = np.moveaxis(weights, axis, -1) if weights.ndim == a.ndim else np.tile(weights, (*a.shape[:-1], 1))
        out = np.empty(a.shape[:-1])
        for i in np.ndindex(out.shape):
            out[i] = np.dot(a[i], weights[i]) / np.sum(weights[i])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weighted_average",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, weights: a,
            samples=lambda make: [
                (make(25), make(25, low=0.1, high=2)),
                (make((5, 7)), make(7, low=0.1, high=2)),
                Sample((make((5, 7)), make(5, low=0.1, high=2)), {"axis": 0}),
                Sample((make((3, 4, 6)), make(4, low=0.1, high=2)), {"axis": 1}),
                Sample((make((6, 8)), make((6, 8), low=0.1, high=2)), {"axis": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((5, 7)), make(6, low=0.1, high=2)), ValueError, "do not fit"),
                ErrorInput((make((5, 7)), make(5, low=0.1, high=2)), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "rotary_embedding",
    "positions are held in the dtype of the activations",
    "Hugging Face transformers and vLLM: positions of rotary embeddings in float16 or bfloat16 collide in long texts",
    "float16 and 2100 positions: from 2049 on, every second position is that of its neighbour",
)
def rotary_embedding():
    """Rotate pairs of features (i, i + d/2) by the position along the last axis but one."""

    def check(x):
        if x.ndim < 2 or x.shape[-1] % 2:
            raise ValueError(f"shape is {tuple(x.shape)}; give an even number of features")

    def rotate(xp, x, positions, base):
        half = x.shape[-1] // 2
        frequencies = base ** (-xp.arange(half, dtype="float64") / max(half, 1))
        angles = positions.astype("float64")[:, None] * frequencies
        cosines, sines = xp.cos(angles), xp.sin(angles)
        first, second = x[..., :half].astype("float64"), x[..., half:].astype("float64")
        parts = [first * cosines - second * sines, second * cosines + first * sines]
        return xp.concatenate(parts, axis=-1).astype(x.dtype)

    def wrong(xp, x, base=10000.0):
        check(x)
        return rotate(xp, x, xp.arange(x.shape[-2]).astype(x.dtype), base)

    def right(xp, x, base=10000.0):
        check(x)
        return rotate(xp, x, xp.arange(x.shape[-2]), base)

    def reference(x, base=10000.0):
        length, width = x.shape[-2:]
        out = np.empty(x.shape)
        for i in range(width // 2):
            for place in range(length):
                angle = place / base ** (2 * i / width)
                u, v = x[..., place, i], x[..., place, i + width // 2]
                out[..., place, i] = u * math.cos(angle) - v * math.sin(angle)
                out[..., place, i + width // 2] = u * math.sin(angle) + v * math.cos(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary_embedding",
            dtypes=("float16", "float32"),
            result_dtype=lambda x: x,
            samples=lambda make: [
                make((12, 8)),
                make((2, 3, 40, 16)),
                Sample((make((1, 130, 6)),), {"base": 500000.0}),
                Sample((make((0, 5, 4)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((4, 7)),), ValueError, "an even number of features")],
        )

    return wrong, right, declare


@pair(
    "mid_side",
    "the second channel is computed from a first one that has been overwritten",
    "in-place rotations and butterflies with out= (numpy overlap handling, CuPy elementwise with out aliasing input)",
    "out is the input itself",
)
def mid_side():
    """Half the sum and half the difference of two channels on the last axis; `out` may be the input."""

    def check(audio):
        if audio.ndim < 1 or audio.shape[-1] != 2:
            raise ValueError(f"shape is {tuple(audio.shape)}; give two channels on the last axis")

    def wrong(xp, audio, out=None):
        check(audio)
        if out is None:
            out = xp.empty(audio.shape, dtype=audio.dtype)
        left, right_ = audio[..., 0], audio[..., 1]
        out[..., 0] = left * 0.5 + right_ * 0.5
        out[..., 1] = left * 0.5 - right_ * 0.5
        return out

    def right(xp, audio, out=None):
        check(audio)
        if out is None:
            out = xp.empty(audio.shape, dtype=audio.dtype)
        left, right_ = audio[..., 0] * 0.5, audio[..., 1] * 0.5
        out[..., 0] = left + right_
        out[..., 1] = left - right_
        return out

    def reference(audio):
        flipped = audio[..., ::-1]
        signs = np.array([1.0, -1.0])
        return audio / 2 * signs + flipped / 2

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mid_side",
            dtypes=("float32", "float64"),
            result_dtype=lambda audio: audio,
            samples=lambda make: [
                make((50, 2)),
                make((3, 41, 2), low=-1, high=1),
                make(2),
                Sample((make((0, 2)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((4, 3)),), ValueError, "give two channels")],
        )

    return wrong, right, declare


@pair(
    "kaiser_taper",
    "the cache of windows forgets one of the parameters in its key",
    "memoized windows, plans and kernels (CuPy's plan cache, cached mel filters and windows in audio libraries)",
    "frames of the same length with another beta in a second call: the window of the first one is applied",
)
def kaiser_taper():
    """Multiply frames on the last axis by a Kaiser window of their length; windows are kept for later calls."""

    def check(frames, beta):
        if frames.ndim < 1:
            raise ValueError("frames must have a dimension")
        if beta < 0:
            raise ValueError(f"beta is {beta}; give 0 or more")

    by_length, by_both = {}, {}

    def wrong(xp, frames, beta=8.6):
        check(frames, beta)
        length = frames.shape[-1]
        if length not in by_length:
            by_length[length] = np.kaiser(length, beta)
        return (frames * xp.asarray(by_length[length])).astype(frames.dtype)

    def right(xp, frames, beta=8.6):
        check(frames, beta)
        length = frames.shape[-1]
        if (length, beta) not in by_both:
            by_both[length, beta] = np.kaiser(length, beta)
        return (frames * xp.asarray(by_both[length, beta])).astype(frames.dtype)

    def reference(frames, beta=8.6):
        length = frames.shape[-1]
        if length < 2:
            return frames.copy()
        ratios = np.linspace(-1, 1, length)
        return frames * (np.i0(beta * np.sqrt(np.maximum(1 - ratios * ratios, 0))) / np.i0(beta))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="kaiser_taper",
            dtypes=("float32", "float64"),
            result_dtype=lambda frames: frames,
            samples=lambda make: [
                make(257),
                Sample((make((4, 64)),), {"beta": 5.0}),
                Sample((make((3, 2, 33)),), {"beta": 14.0}),
                Sample((make((0, 10)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(5),), {"beta": -1}), ValueError, "beta is -1")],
        )

    return wrong, right, declare


@pair(
    "mirror_smooth",
    "positions beyond an edge are reflected once, which is not enough for short arrays",
    "cupyx.scipy.ndimage and numpy.pad(mode='reflect'): arrays shorter than the filter's radius",
    "3 elements with radius 3: place 5 becomes -1, which is silently the last element",
)
def mirror_smooth():
    """Moving average over 2 * radius + 1 elements of the last axis, mirrored at the edges as by numpy.pad's reflect."""

    def check(a, radius):
        if a.ndim < 1:
            raise ValueError("a must have a dimension")
        if radius < 0:
            raise ValueError(f"radius is {radius}; give 0 or more")

    def average(xp, a, places, radius):
        total = xp.zeros(a.shape, dtype="float64")
        for offset in range(2 * radius + 1):
            total = total + xp.take(a, places[offset : offset + a.shape[-1]], axis=-1)
        return (total / (2 * radius + 1)).astype(a.dtype)

    def wrong(xp, a, radius=3):
        check(a, radius)
        if a.size == 0:
            return a.copy()
        last = a.shape[-1] - 1
        places = xp.abs(xp.arange(-radius, last + radius + 1))
        places = xp.where(places > last, 2 * last - places, places)
        return average(xp, a, places, radius)

    def right(xp, a, radius=3):
        check(a, radius)
        if a.size == 0:
            return a.copy()
        last = a.shape[-1] - 1
        places = xp.arange(-radius, last + radius + 1) % max(2 * last, 1)
        places = xp.minimum(places, 2 * last - places)
        return average(xp, a, places, radius)

    def reference(a, radius=3):
        if a.size == 0:
            return a.copy()
        forth = list(range(a.shape[-1]))
        around = forth + forth[-2:0:-1]
        out = np.empty(a.shape)
        for i in forth:
            window = [around[(i + k) % len(around)] for k in range(-radius, radius + 1)]
            out[..., i] = np.mean(a[..., window], axis=-1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mirror_smooth",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(30),
                make((4, 17)),
                Sample((make((2, 3, 40)),), {"radius": 8}),
                Sample((make((5, 0)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(5),), {"radius": -1}), ValueError, "radius is -1")],
        )

    return wrong, right, declare
