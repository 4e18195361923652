"""Rotary tables, averages, signals, blocks, colour, bands, survival, checksums, bars, tokens: faults with twins.

The origins are recalled, not looked up: they name where such a fault may happen, not one issue.
"""

import math
import zlib
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
    "dynamic_rotary",
    "the base that a long call has stretched stays in use for the short calls after it",
    "transformers: dynamic NTK scaling of rotary embeddings was not reset after one sequence that was too long",
    "a call of shape (40, 8) and then one of (10, 8), both with trained=16: the second one is rotated by slower angles",
)
def dynamic_rotary():
    """Rotary position embedding whose base grows for sequences longer than those of the training."""

    def check(a, trained):
        if a.ndim < 2 or a.shape[-1] % 2:
            raise ValueError(f"give an array of length by an even width, not of shape {tuple(a.shape)}")
        if trained < 1:
            raise ValueError(f"trained is {trained}; give 1 or more")

    def stretched(base, length, trained, width):
        if length <= trained or width <= 2:
            return base
        return base * (2 * length / trained - 1) ** (width / (width - 2))

    def rotate(xp, a, base):
        length, width = a.shape[-2:]
        half = width // 2
        slow = xp.asarray([base ** (-2 * i / width) for i in range(half)], dtype="float64")
        angles = xp.arange(length, dtype="float64")[:, None] * slow
        cos, sin = xp.cos(angles), xp.sin(angles)
        wide = a.astype("float64")
        first, second = wide[..., :half], wide[..., half:]
        turned = xp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
        return turned.astype(a.dtype)

    longest: dict[tuple[int, float, int], int] = {}

    def wrong(xp, a, trained=16, base=10000.0):
        check(a, trained)
        length, width = a.shape[-2:]
        key = (trained, base, width)
        longest[key] = max(longest.get(key, 0), length)
        return rotate(xp, a, stretched(base, longest[key], trained, width))

    def right(xp, a, trained=16, base=10000.0):
        check(a, trained)
        length, width = a.shape[-2:]
        return rotate(xp, a, stretched(base, length, trained, width))

    def reference(a, trained=16, base=10000.0):
        check(a, trained)
        length, width = a.shape[-2:]
        if length > trained and width > 2:
            base = base * (2 * length / trained - 1) ** (width / (width - 2))
        out = np.array(a, dtype="float64")
        for at in range(length):
            for i in range(width // 2):
                angle = at * base ** (-2 * i / width)
                one, two = a[..., at, i], a[..., at, i + width // 2]
                out[..., at, i] = one * np.cos(angle) - two * np.sin(angle)
                out[..., at, i + width // 2] = two * np.cos(angle) + one * np.sin(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dynamic_rotary",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((2, 12, 8)),
                make((40, 8)),
                Sample((make((2, 3, 9, 16)),), {"trained": 8}),
                Sample((make((20, 4)),), {"base": 500.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((4, 5)),)), ValueError, "even width")],
        )

    return wrong, right, declare


@pair(
    "ewm_mean",
    "ignore_na has no effect together with adjust=False",
    "pandas: ewm(adjust=False, ignore_na=True) took the weights of ignore_na=False; each option had its own code",
    "[1, NaN, 4] with alpha=0.5, adjust=False, ignore_na=True: 3.0 where pandas gives 2.5",
)
def ewm_mean():
    """The exponentially weighted mean along the last axis, as pandas' ewm(alpha=...).mean()."""

    def check(a, alpha):
        if a.ndim == 0:
            raise ValueError("give an array of one dimension or more")
        if not 0 < alpha < 1:
            raise ValueError(f"alpha is {alpha}; give a number between 0 and 1")

    def walk(xp, a, step, alpha):
        columns = []
        state = None
        values = a.astype("float64")
        for i in range(a.shape[-1]):
            now = values[..., i]
            seen = ~xp.isnan(now)
            if state is None:
                state = (now, seen, xp.ones(now.shape, dtype="float64"))
            else:
                mean, started, weight = state
                new, old, after = step(seen, weight, alpha)
                mixed = mean * (old / (old + new)) + now * (new / (old + new))
                mean = xp.where(seen, xp.where(started, mixed, now), mean)
                state = (mean, started | seen, xp.where(started, after, 1.0))
            columns.append(state[0])
        if not columns:
            return xp.zeros(a.shape, dtype=a.dtype)
        return xp.stack(columns, axis=-1).astype(a.dtype)

    def wrong(xp, a, alpha=0.5, adjust=True, ignore_na=False):
        check(a, alpha)

        def adjusted(seen, weight, alpha):
            old = xp.where(seen, weight * (1 - alpha), weight if ignore_na else weight * (1 - alpha))
            return 1.0, old, xp.where(seen, old + 1.0, old)

        def recursive(seen, weight, alpha):
            old = weight * (1 - alpha)
            return alpha, old, xp.where(seen, 1.0, old)

        return walk(xp, a, adjusted if adjust else recursive, alpha)

    def right(xp, a, alpha=0.5, adjust=True, ignore_na=False):
        check(a, alpha)

        def step(seen, weight, alpha):
            old = xp.where(seen, weight * (1 - alpha), weight if ignore_na else weight * (1 - alpha))
            new = 1.0 if adjust else alpha
            return new, old, xp.where(seen, old + new if adjust else 1.0, old)

        return walk(xp, a, step, alpha)

    def reference(a, alpha=0.5, adjust=True, ignore_na=False):
        check(a, alpha)
        out = np.full(a.shape, np.nan)
        new = 1.0 if adjust else alpha
        for row in np.ndindex(a.shape[:-1]):
            mean, weight, started = math.nan, 1.0, False
            for i, x in enumerate(a[row]):
                if not started:
                    mean, started = x, not np.isnan(x)
                elif not np.isnan(x):
                    weight *= 1 - alpha
                    mean = mean * (weight / (weight + new)) + x * (new / (weight + new))
                    weight = weight + new if adjust else 1.0
                elif not ignore_na:
                    weight *= 1 - alpha
                out[(*row, i)] = mean
        return out

    def declare(fn):
        gaps = [2.0, math.nan, 1.0, 1.5, math.nan, math.nan, -1.0, 0.5]
        return OpSpec(
            fn=fn,
            name="ewm_mean",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(25),
                make.of(gaps),
                Sample((make((3, 14)),), {"adjust": False}),
                Sample((make.of(gaps),), {"ignore_na": True, "alpha": 0.3}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"alpha": 1.5}), ValueError, "alpha is 1.5")],
        )

    return wrong, right, declare


@pair(
    "debounce",
    "a signal shorter than the hold time is judged by a window cut to its length",
    "scipy.signal and pandas: window=min(window, len(x)) in rolling code, so that short inputs count as whole windows",
    "[True, True] with hold=3: the last output is True, although two samples are not yet three",
)
def debounce():
    """A switch without its bounces: the output follows once `hold` samples in succession agree; it starts as False."""

    def check(a, hold):
        if a.ndim == 0:
            raise ValueError("give an array of one dimension or more")
        if hold < 1:
            raise ValueError(f"hold is {hold}; give 1 or more")

    def follow(xp, a, hold):
        length = a.shape[-1]
        count = xp.cumsum(a.astype("int64"), axis=-1)
        count = xp.concatenate([xp.zeros((*a.shape[:-1], 1), dtype="int64"), count], axis=-1)
        inside = count[..., hold:] - count[..., : length + 1 - hold]
        early = xp.zeros((*a.shape[:-1], hold - 1), dtype="bool")
        stable = xp.concatenate([early, (inside == 0) | (inside == hold)], axis=-1)
        latest = xp.maximum.accumulate(xp.where(stable, xp.arange(length), -1), axis=-1)
        held = xp.take_along_axis(a, xp.maximum(latest, 0), axis=-1)
        return held & (latest >= 0)

    def wrong(xp, a, hold=3):
        check(a, hold)
        if a.shape[-1] == 0:
            return xp.zeros(a.shape, dtype="bool")
        return follow(xp, a, min(hold, a.shape[-1]))

    def right(xp, a, hold=3):
        check(a, hold)
        if a.shape[-1] < hold:
            return xp.zeros(a.shape, dtype="bool")
        return follow(xp, a, hold)

    def reference(a, hold=3):
        check(a, hold)
        out = np.zeros(a.shape, dtype="bool")
        for row in np.ndindex(a.shape[:-1]):
            state, run, before = False, 0, None
            for i, value in enumerate(a[row].tolist()):
                run = run + 1 if value == before else 1
                before = value
                if run >= hold:
                    state = value
                out[(*row, i)] = state
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="debounce",
            dtypes=("bool",),
            samples=lambda make: [
                make(60),
                Sample((make((4, 31)),), {"hold": 2}),
                Sample((make((2, 3, 16)),), {"hold": 4}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"hold": 0}), ValueError, "hold is 0")],
        )

    return wrong, right, declare


@pair(
    "blockwise_affine",
    "the zeros that fill up the last block take part in its minimum and maximum",
    "bitsandbytes and DeepSpeed: the padding of the last, partial block changed the range of asymmetric quantisation",
    "[5, 6, 7, 8, 6, 9] with block=4 and bits=1: the tail [6, 9] comes back as [9, 9]; a tail of both signs is right",
)
def blockwise_affine():
    """Numbers rounded to 2**bits levels between the minimum and the maximum of their block, in blocks of C order."""

    def check(block, bits):
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")
        if not 1 <= bits <= 16:
            raise ValueError(f"bits is {bits}; give 1 to 16")

    def rounded(xp, blocks, bits):
        low, high = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
        scale = (high - low) / (2**bits - 1)
        scale = xp.where(scale > 0, scale, 1.0)
        return xp.rint((blocks - low) / scale) * scale + low

    def wrong(xp, a, block=32, bits=4):
        check(block, bits)
        if a.size == 0:
            return xp.zeros(a.shape, dtype=a.dtype)
        flat = a.reshape(-1).astype("float64")
        flat = xp.concatenate([flat, xp.zeros(-a.size % block, dtype="float64")])
        out = rounded(xp, flat.reshape(-1, block), bits).reshape(-1)
        return out[: a.size].reshape(a.shape).astype(a.dtype)

    def right(xp, a, block=32, bits=4):
        check(block, bits)
        if a.size == 0:
            return xp.zeros(a.shape, dtype=a.dtype)
        flat = a.reshape(-1).astype("float64")
        flat = xp.concatenate([flat, xp.broadcast_to(flat[-1:], (-a.size % block,))])
        out = rounded(xp, flat.reshape(-1, block), bits).reshape(-1)
        return out[: a.size].reshape(a.shape).astype(a.dtype)

    def reference(a, block=32, bits=4):
        check(block, bits)
        flat = np.array(a, dtype="float64").reshape(-1)
        for start in range(0, flat.size, block):
            part = flat[start : start + block]
            scale = (part.max() - part.min()) / (2**bits - 1)
            if not scale > 0:
                scale = 1.0
            flat[start : start + block] = np.rint((part - part.min()) / scale) * scale + part.min()
        return flat.reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="blockwise_affine",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((4, 32)),
                make((3, 70), low=-10, high=10),
                Sample((make((5, 19)),), {"block": 16}),
                Sample((make(100),), {"bits": 8}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"block": 0}), ValueError, "block is 0")],
        )

    return wrong, right, declare


@pair(
    "jpeg_colours",
    "chroma of pure blue and pure red rounds to 256 and wraps to 0",
    "libjpeg's jccolor.c notes it (CBCR_OFFSET + ONE_HALF - 1); ports round by ONE_HALF; OpenCV saturates",
    "the pixel (0, 0, 255): Cb is 0 instead of 255; every pixel but (0, 0, 255) and (255, 0, 0) is right",
)
def jpeg_colours():
    """RGB of 8 bits to JPEG's YCbCr, by fixed-point numbers of 16 bits; the colours are on the last axis."""

    def check(a, order):
        if a.ndim == 0 or a.shape[-1] != 3:
            raise ValueError(f"give 3 colours on the last axis, not the shape {tuple(a.shape)}")
        if order not in ("rgb", "bgr"):
            raise ValueError(f"order is {order!r}; give 'rgb' or 'bgr'")

    def parts(xp, a, order):
        wide = a.astype("int32")
        if order == "bgr":
            wide = wide[..., ::-1]
        r, g, b = wide[..., 0], wide[..., 1], wide[..., 2]
        middle, half = 128 << 16, 1 << 15
        luma = (19595 * r + 38470 * g + 7471 * b + half) >> 16
        blue = (-11059 * r - 21709 * g + 32768 * b + middle + half) >> 16
        red = (32768 * r - 27439 * g - 5329 * b + middle + half) >> 16
        return xp.stack([luma, blue, red], axis=-1)

    def wrong(xp, a, order="rgb"):
        check(a, order)
        return parts(xp, a, order).astype("uint8")

    def right(xp, a, order="rgb"):
        check(a, order)
        return xp.clip(parts(xp, a, order), 0, 255).astype("uint8")

    def reference(a, order="rgb"):
        check(a, order)
        table = np.array([[19595, 38470, 7471], [-11059, -21709, 32768], [32768, -27439, -5329]])
        rgb = a.astype("int64") if order == "rgb" else a.astype("int64")[..., ::-1]
        levels = (rgb @ table.T + [0, 128 << 16, 128 << 16] + 32768) // 65536
        return np.clip(levels, 0, 255)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="jpeg_colours",
            dtypes=("uint8",),
            result_dtype=lambda a: "uint8",
            samples=lambda make: [
                make((16, 3), low=0, high=255),
                make((5, 7, 3), low=0, high=255),
                Sample((make((2, 4, 4, 3), low=0, high=255),), {"order": "bgr"}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((4, 2)),)), ValueError, "3 colours")],
        )

    return wrong, right, declare


@pair(
    "mel_energies",
    "a band whose left edge and centre share a bin loses the weight of that bin",
    "librosa and torchaudio: 'at least one mel filter has all zero values' for many bands and short transforms",
    "a spectrum of 17 bins in 10 bands: bands 1 and 2 share edges, and their only bin has weight 0 instead of 1",
)
def mel_energies():
    """Energies of triangular mel bands, with edges at whole bins, from power spectra on the last axis."""

    def check(power, bands):
        if power.ndim == 0 or power.shape[-1] < 2:
            raise ValueError(f"give 2 bins or more on the last axis, not the shape {tuple(power.shape)}")
        if bands < 1:
            raise ValueError(f"bands is {bands}; give 1 or more")

    def edges(bins, bands, rate):
        size = 2 * (bins - 1)
        top = 2595 * math.log10(1 + rate / 2 / 700)
        points = [700 * (10 ** (top * i / (bands + 1) / 2595) - 1) for i in range(bands + 2)]
        return [min(math.floor((size + 1) * hertz / rate), bins - 1) for hertz in points]

    def triples(xp, bins, bands, rate):
        at = xp.asarray(edges(bins, bands, rate), dtype="float64")
        return xp.arange(bins, dtype="float64"), at[:-2, None], at[1:-1, None], at[2:, None]

    def wrong(xp, power, bands=10, rate=16000):
        check(power, bands)
        k, left, centre, end = triples(xp, power.shape[-1], bands, rate)
        rise = (k - left) / xp.maximum(centre - left, 1e-9)
        fall = (end - k) / xp.maximum(end - centre, 1e-9)
        weights = xp.maximum(xp.minimum(rise, fall), 0.0)
        return (power.astype("float64") @ weights.T).astype(power.dtype)

    def right(xp, power, bands=10, rate=16000):
        check(power, bands)
        k, left, centre, end = triples(xp, power.shape[-1], bands, rate)
        rise = (k - left) / xp.maximum(centre - left, 1.0)
        fall = (end - k) / xp.maximum(end - centre, 1.0)
        weights = xp.where(k < centre, rise, fall)
        weights = xp.where((k >= left) & (k < end), weights, 0.0)
        return (power.astype("float64") @ weights.T).astype(power.dtype)

    def reference(power, bands=10, rate=16000):
        check(power, bands)
        bins = power.shape[-1]
        at = edges(bins, bands, rate)
        weights = np.zeros((bands, bins))
        for band in range(bands):
            left, centre, end = at[band : band + 3]
            for k in range(left, centre):
                weights[band, k] = (k - left) / (centre - left)
            for k in range(centre, end):
                weights[band, k] = (end - k) / (end - centre)
        return power @ weights.T

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mel_energies",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(129, low=0, high=20),
                make((3, 201), low=0, high=5),
                Sample((make((2, 4, 129), low=0, high=1),), {"bands": 6}),
                Sample((make((5, 257), low=0, high=1),), {"rate": 8000}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(129, low=0, high=1),), {"bands": 0}), ValueError, "bands is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "kaplan_meier",
    "a subject who leaves at the time of a death is no longer at risk for it if he comes first in the input",
    "scipy.stats.ecdf and lifelines: order of deaths and censored subjects at equal times",
    "times [2, 2, 5], died [False, True, False]: survival 1/2 after time 2 instead of 2/3",
)
def kaplan_meier():
    """Kaplan and Meier's estimate of survival just after each subject's time, in the order of the subjects."""

    def check(times, died):
        if times.ndim != 1 or tuple(times.shape) != tuple(died.shape):
            raise ValueError("give times and deaths of one length, in one dimension")

    def curve(xp, times, died, order):
        count = times.shape[0]
        ordered = times[order]
        at_risk = count - xp.arange(count, dtype="float64")
        steps = xp.where(died[order], 1 - 1 / at_risk, 1.0)
        survival = xp.cumprod(steps)
        last = xp.searchsorted(ordered, times, side="right") - 1
        return survival[last].astype(times.dtype)

    def wrong(xp, times, died):
        check(times, died)
        return curve(xp, times, died, xp.argsort(times, kind="stable"))

    def right(xp, times, died):
        check(times, died)
        deaths_first = xp.argsort(~died, kind="stable")
        order = deaths_first[xp.argsort(times[deaths_first], kind="stable")]
        return curve(xp, times, died, order)

    def reference(times, died):
        check(times, died)
        survival = np.ones(len(times))
        for i, now in enumerate(times):
            for t in np.unique(times[died & (times <= now)]):
                survival[i] *= 1 - np.sum(died & (times == t)) / np.sum(times >= t)
        return survival

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="kaplan_meier",
            dtypes=("float32", "float64"),
            result_dtype=lambda times, died: times,
            samples=lambda make: [
                (make(30, low=0, high=60), make(30, dtype="bool")),
                (make(77, low=0, high=10), make(77, dtype="bool")),
                (make(8, low=0, high=1), make(8, dtype="bool")),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=1), make(3, dtype="bool"))), ValueError, "of one length")
            ],
        )

    return wrong, right, declare


@pair(
    "adler32",
    "the weighted sum of a long buffer exceeds 32 bits before the remainder is taken",
    "zlib's NMAX of 5552 bytes, which vectorised ports of Adler-32 leave out",
    "6000 bytes of 255: the upper half differs; for 5000 bytes of 255, and 8000 random ones, it is right",
)
def adler32():
    """Adler-32 checksums of the bytes on the last axis."""

    def check(data):
        if data.ndim == 0:
            raise ValueError("give bytes in one dimension or more")

    def checksum(xp, data, wide):
        length = data.shape[-1]
        data = data.astype(wide)
        weights = xp.arange(length, 0, -1, dtype=wide)
        low = (data.sum(axis=-1, dtype=wide) + 1) % 65521
        high = ((data * weights).sum(axis=-1, dtype=wide) + length) % 65521
        return (high * 65536 + low).astype("uint32")

    def wrong(xp, data):
        check(data)
        return checksum(xp, data, "uint32")

    def right(xp, data):
        check(data)
        return checksum(xp, data, "uint64")

    def reference(data):
        check(data)
        out = np.zeros(data.shape[:-1], dtype="int64")
        for row in np.ndindex(out.shape):
            out[row] = zlib.adler32(data[row].tobytes())
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adler32",
            dtypes=("uint8",),
            result_dtype=lambda data: "uint32",
            samples=lambda make: [
                make(100, low=0, high=255),
                make(4096, low=0, high=255),
                make((3, 5, 17), low=0, high=255),
            ],
            reference=reference,
            bench=lambda make, sizes: [make((sizes.length * sizes.width,), low=0, high=255)],
        )

    return wrong, right, declare


@pair(
    "price_bars",
    "the second of two bars without trades in succession is NaN instead of the last close",
    "pandas: resample().ohlc() filled by close.shift(1), which reaches one bar back",
    "prices [10, 12] in bars 0 and 3 of 4: bar 1 is filled with 10, bar 2 with NaN",
)
def price_bars():
    """Open, high, low and close of bars; a bar without trades repeats the last close, and is NaN before the first."""

    def check(prices, bars, count):
        if prices.ndim != 1 or tuple(prices.shape) != tuple(bars.shape):
            raise ValueError("give prices and bars of one length, in one dimension")
        if count < 1:
            raise ValueError(f"count is {count}; give 1 or more")

    def traded(xp, prices, bars, count):
        """The four prices of each bar, NaN for those without trades, and which bars have trades."""
        inside = bars[None, :] == xp.arange(count)[:, None]
        first = xp.argmax(inside, axis=1)
        last = prices.shape[0] - 1 - xp.argmax(inside[:, ::-1], axis=1)
        high = xp.where(inside, prices[None, :], -math.inf).max(axis=1)
        low = xp.where(inside, prices[None, :], math.inf).min(axis=1)
        busy = inside.any(axis=1)
        table = xp.stack([prices[first], high, low, prices[last]], axis=1)
        return xp.where(busy[:, None], table, math.nan), busy

    def wrong(xp, prices, bars, count=6):
        check(prices, bars, count)
        if prices.shape[0] == 0:
            return xp.full((count, 4), math.nan, dtype=prices.dtype)
        table, busy = traded(xp, prices.astype("float64"), bars, count)
        unknown = xp.full((1,), math.nan, dtype="float64")
        before = xp.concatenate([unknown, table[:-1, 3]])
        return xp.where(busy[:, None], table, before[:, None]).astype(prices.dtype)

    def right(xp, prices, bars, count=6):
        check(prices, bars, count)
        if prices.shape[0] == 0:
            return xp.full((count, 4), math.nan, dtype=prices.dtype)
        table, busy = traded(xp, prices.astype("float64"), bars, count)
        latest = xp.maximum.accumulate(xp.where(busy, xp.arange(count), 0))
        before = table[latest, 3]
        return xp.where(busy[:, None], table, before[:, None]).astype(prices.dtype)

    def reference(prices, bars, count=6):
        check(prices, bars, count)
        out = np.full((count, 4), np.nan)
        close = np.nan
        for bar in range(count):
            inside = prices[bars == bar]
            if len(inside):
                close = inside[-1]
                out[bar] = inside[0], inside.max(), inside.min(), close
            else:
                out[bar] = close
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="price_bars",
            dtypes=("float32", "float64"),
            result_dtype=lambda prices, bars: prices,
            samples=lambda make: [
                (make(40, low=1, high=200), make(40, dtype="int64", low=0, high=5)),
                (make(15, low=90, high=110), make(15, dtype="int64", low=0, high=5)),
                Sample((make(50, low=1, high=9), make(50, dtype="int64", low=0, high=7)), {"count": 8}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, low=1, high=9), make(3, dtype="int64", low=0, high=5))), ValueError, "of one length"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "log_density",
    "the shift is the largest exponent of all queries instead of that of each one",
    "scipy.stats.gaussian_kde.logpdf: underflow to -inf far from the data; max without axis in ports of logsumexp",
    "points [0, 1], queries [0, 25], width 0.5: -inf for 25 where the log density is about -1153",
)
def log_density():
    """The log of a Gaussian kernel density estimate from `points`, at `queries`."""

    def check(queries, points, width):
        if queries.ndim != 1 or points.ndim != 1 or points.shape[0] == 0:
            raise ValueError("give queries and at least one point, in one dimension")
        if not width > 0:
            raise ValueError(f"width is {width}; give a positive number")

    def exponents(queries, points, width):
        apart = (queries.astype("float64")[:, None] - points.astype("float64")[None, :]) / width
        return -0.5 * apart * apart

    def finish(xp, queries, z, top, width):
        total = xp.log(xp.exp(z - top).mean(axis=1)) + top.reshape(-1)
        return (total - math.log(width * math.sqrt(2 * math.pi))).astype(queries.dtype)

    def wrong(xp, queries, points, width=0.5):
        check(queries, points, width)
        z = exponents(queries, points, width)
        if queries.shape[0] == 0:
            return xp.zeros((0,), dtype=queries.dtype)
        return finish(xp, queries, z, z.max(), width)

    def right(xp, queries, points, width=0.5):
        check(queries, points, width)
        z = exponents(queries, points, width)
        if queries.shape[0] == 0:
            return xp.zeros((0,), dtype=queries.dtype)
        return finish(xp, queries, z, z.max(axis=1, keepdims=True), width)

    def reference(queries, points, width=0.5):
        check(queries, points, width)
        z = -0.5 * ((queries[:, None] - points[None, :]) / width) ** 2
        top = z.max(axis=1)
        mean = np.exp(z - top[:, None]).mean(axis=1)
        return np.log(mean) + top - np.log(width * np.sqrt(2 * np.pi))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="log_density",
            dtypes=("float16", "float32"),
            result_dtype=lambda queries, points: queries,
            samples=lambda make: [
                (make(20, low=-10, high=10), make(50, low=-10, high=10)),
                (make(7, low=0, high=1), make(90, low=0, high=1)),
                Sample((make(33, low=-10, high=10), make(40, low=-10, high=10)), {"width": 0.2}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, low=0, high=1), make(3, low=0, high=1)), {"width": 0}), ValueError, "width is 0"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "keep_largest",
    "nothing is kept of an array in Fortran order: the flattened result is a copy, and the writes to it are lost",
    "NumPy and CuPy: zeros_like keeps the order of its argument, and reshape(-1) of that order copies",
    "the transpose of a C-ordered array of shape (4, 3): the result is all zeros",
)
def keep_largest():
    """An array with all but its `count` largest magnitudes set to zero; of equal ones the first in C order is kept."""

    def check(count):
        if count < 0:
            raise ValueError(f"count is {count}; give 0 or more")

    def places(xp, flat, count):
        return xp.argsort(-xp.abs(flat), kind="stable")[:count]

    def wrong(xp, a, count=5):
        check(count)
        flat = a.reshape(-1)
        kept = places(xp, flat, count)
        out = xp.zeros_like(a)
        out.reshape(-1)[kept] = flat[kept]
        return out

    def right(xp, a, count=5):
        check(count)
        flat = a.reshape(-1)
        kept = places(xp, flat, count)
        out = xp.zeros((flat.shape[0],), dtype=a.dtype)
        out[kept] = flat[kept]
        return out.reshape(a.shape)

    def reference(a, count=5):
        check(count)
        flat = np.array(a).reshape(-1)
        size = np.where(np.isnan(flat), -1.0, np.abs(flat))
        ranked = sorted(range(len(flat)), key=lambda i: (-size[i], i))
        for i in ranked[count:]:
            flat[i] = 0.0
        return flat.reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="keep_largest",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                make((6, 9)),
                Sample((make((2, 3, 5)),), {"count": 12}),
                Sample((make((0, 4)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"count": -1}), ValueError, "count is -1")],
        )

    return wrong, right, declare


@pair(
    "merge_pair",
    "of four or more equal tokens in a row only the first two are merged, if the pair is of that token twice",
    "byte-pair encoding: vectorised merges drop every match whose left neighbour matches, even if that one was dropped",
    "[7, 7, 7, 7] with the pair (7, 7): [new, 7, 7] instead of [new, new]; three in a row, and unlike pairs, are right",
)
def merge_pair():
    """One merge of byte-pair encoding, from left to right, on the last axis; the rest of a row is filled with -1."""

    def check(tokens):
        if tokens.ndim == 0:
            raise ValueError("give tokens in one dimension or more")

    def matches(xp, tokens, pair):
        """Whether a pair starts at each place."""
        found = (tokens[..., :-1] == pair[0]) & (tokens[..., 1:] == pair[1])
        return xp.concatenate([found, xp.zeros((*tokens.shape[:-1], 1), dtype="bool")], axis=-1)

    def shifted(xp, flags):
        first = xp.zeros((*flags.shape[:-1], 1), dtype="bool")
        return xp.concatenate([first, flags[..., :-1]], axis=-1)

    def compact(xp, tokens, merged, new):
        length = tokens.shape[-1]
        gone = shifted(xp, merged)
        values = xp.where(merged, new, tokens)
        order = xp.argsort(gone, axis=-1, kind="stable")
        kept = length - gone.sum(axis=-1, keepdims=True)
        values = xp.take_along_axis(values, order, axis=-1)
        return xp.where(xp.arange(length) < kept, values, -1).astype(tokens.dtype)

    def wrong(xp, tokens, pair=(1, 2), new=99):
        check(tokens)
        if tokens.shape[-1] == 0:
            return xp.zeros(tokens.shape, dtype=tokens.dtype)
        found = matches(xp, tokens, pair)
        return compact(xp, tokens, found & ~shifted(xp, found), new)

    def right(xp, tokens, pair=(1, 2), new=99):
        check(tokens)
        if tokens.shape[-1] == 0:
            return xp.zeros(tokens.shape, dtype=tokens.dtype)
        found = matches(xp, tokens, pair)
        places = xp.arange(tokens.shape[-1])
        start = xp.maximum.accumulate(xp.where(found & ~shifted(xp, found), places, 0), axis=-1)
        return compact(xp, tokens, found & ((places - start) % 2 == 0), new)

    def reference(tokens, pair=(1, 2), new=99):
        check(tokens)
        out = np.full(tokens.shape, -1, dtype="int64")
        for row in np.ndindex(tokens.shape[:-1]):
            given, i, merged = tokens[row].tolist(), 0, []
            while i < len(given):
                if tuple(given[i : i + 2]) == tuple(pair):
                    merged.append(new)
                    i += 2
                else:
                    merged.append(given[i])
                    i += 1
            out[row][: len(merged)] = merged
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="merge_pair",
            dtypes=("int32", "int64"),
            result_dtype=lambda tokens: tokens,
            samples=lambda make: [
                make(50, low=0, high=5),
                Sample((make((3, 24), low=0, high=5),), {"pair": (4, 0)}),
                Sample((make((2, 2, 20), low=0, high=5),), {"pair": (3, 3), "new": 6}),
            ],
            reference=reference,
        )

    return wrong, right, declare
