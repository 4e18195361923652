"""Arrays: search, sets, padding, resampling, joins, packing, filters, frames, masks: faults with their twins."""

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
    "digitize_monotonic",
    "for descending edges the side is turned together with the edges, so numbers on an edge fall on its other side",
    "ports of numpy.digitize to searchsorted (JAX, torch.bucketize): decreasing bins with the closed side swapped",
    "a number equal to an edge, with descending edges [2.5, 1, -0.5, -2]: the neighbouring bin",
)
def digitize_monotonic():
    """The bin of each number, as numpy.digitize: edges ascend or descend, `right` closes bins on the right."""

    def places(xp, x, edges, side, turned):
        up = xp.searchsorted(edges, x, side=side)
        down = edges.shape[0] - xp.searchsorted(edges[::-1], x, side=turned)
        return xp.where(edges[0] > edges[-1], down, up)

    def wrong(xp, x, edges, right=False):
        side, turned = ("left", "right") if right else ("right", "left")
        return places(xp, x, edges, side, turned)

    def right(xp, x, edges, right=False):
        side = "left" if right else "right"
        return places(xp, x, edges, side, side)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="digitize_monotonic",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40), make.of([-2.0, -0.5, 1.0, 2.5])),
                (make((5, 7)), make.of([2.5, 1.0, -0.5, -2.0])),
                Sample((make((5, 7)), make.of([-2.0, 0.0, 0.0, 1.5])), {"right": True}),
                Sample((make(33), make.of([2.0, 0.0, -2.5])), {"right": True}),
            ],
            reference=lambda x, edges, right=False: np.digitize(x, edges, right=right),
        )

    return wrong, right, declare


@pair(
    "isin_by_table",
    "the distance to the smallest member is taken in the narrow dtype and wraps around",
    "numpy.isin(kind='table'): ar1 - ar2_min overflowed for int8 and int16 in NumPy 1.24",
    "int8, members from -100 to 90: 60 is among them, 60 + 100 wraps to -96, and the result is False",
)
def isin_by_table():
    """Whether each number is a member, by a table of truth values over the range of the members."""

    def look_up(xp, a, members, distance, low, invert):
        table = xp.zeros(int(members.max()) - low + 1, dtype="bool")
        table[members.astype("int64") - low] = True
        inside = (distance >= 0) & (distance < table.shape[0])
        return (table[xp.where(inside, distance, 0)] & inside) ^ invert

    def wrong(xp, a, members, invert=False):
        if members.size == 0:
            return xp.full(a.shape, invert, dtype="bool")
        low = members.min()
        return look_up(xp, a, members, a - low, int(low), invert)

    def right(xp, a, members, invert=False):
        if members.size == 0:
            return xp.full(a.shape, invert, dtype="bool")
        low = int(members.min())
        return look_up(xp, a, members, a.astype("int64") - low, low, invert)

    def reference(a, members, invert=False):
        known = set(members.ravel().tolist())
        return np.array([(n in known) != invert for n in a.ravel().tolist()], dtype="bool").reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="isin_by_table",
            dtypes=("int8", "int16"),
            result_dtype=lambda *dtypes: "bool",
            samples=lambda make: [
                (make((4, 9)), make(5)),
                (make(50, low=-20, high=20), make((3, 4), low=-20, high=20)),
                Sample((make(30), make(3)), {"invert": True}),
                Sample((make(0), make(3)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "pad_reflect",
    "a pad longer than the array is reflected once and then clipped",
    "numpy.pad(mode='reflect') reflects again and again; CUDA kernels and LLM-written ports reflect once and clamp",
    "rows of 3 numbers with 5 before: the outermost ones repeat the first number",
)
def pad_reflect():
    """The last axis padded by reflection about its end numbers, as often as it takes, as numpy.pad does."""

    def place(xp, a, before, after):
        if before < 0 or after < 0:
            raise ValueError("pads must be 0 or more")
        if a.shape[-1] == 0:
            raise ValueError("can't reflect an empty axis")
        return xp.arange(-before, a.shape[-1] + after)

    def wrong(xp, a, before=0, after=0):
        index, last = abs(place(xp, a, before, after)), a.shape[-1] - 1
        index = xp.where(index > last, 2 * last - index, index)
        return a[..., xp.clip(index, 0, last)]

    def right(xp, a, before=0, after=0):
        index, last = place(xp, a, before, after), a.shape[-1] - 1
        index = index % max(2 * last, 1)
        return a[..., xp.where(index > last, 2 * last - index, index)]

    def reference(a, before=0, after=0):
        return np.pad(a, [(0, 0)] * (a.ndim - 1) + [(before, after)], mode="reflect")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pad_reflect",
            dtypes=("int32", "float16", "float32"),
            samples=lambda make: [
                Sample((make((3, 12)),), {"before": 4, "after": 3}),
                Sample((make(9),), {"after": 5}),
                Sample((make((2, 3, 8)),), {"before": 6}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"before": -1}), ValueError, "0 or more")],
        )

    return wrong, right, declare


@pair(
    "fourier_upsample",
    "for an even length the bin at the Nyquist frequency is not halved",
    "scipy.signal.resample in early releases and many ports of it: the unpaired bin of even lengths",
    "8 numbers, alternating 1 and -1, upsampled twice: the samples grow to 2",
)
def fourier_upsample():
    """The last axis sampled `factor` times as densely, by the trigonometric polynomial through its numbers."""

    def bins(xp, a, factor):
        if factor < 1:
            raise ValueError(f"factor is {factor}; give 1 or more")
        if a.shape[-1] == 0:
            raise ValueError("no samples")
        return xp.fft.rfft(a.astype("float64"), axis=-1)

    def back(xp, a, spectrum, factor):
        return (xp.fft.irfft(spectrum, n=a.shape[-1] * factor, axis=-1) * factor).astype(a.dtype)

    def wrong(xp, a, factor=2):
        return back(xp, a, bins(xp, a, factor), factor)

    def right(xp, a, factor=2):
        spectrum = bins(xp, a, factor)
        if a.shape[-1] % 2 == 0 and factor > 1:
            spectrum[..., -1] *= 0.5
        return back(xp, a, spectrum, factor)

    def reference(a, factor=2):
        n = a.shape[-1]
        if n == 0:
            raise ValueError("no samples")
        apart = np.arange(n * factor)[:, None] / factor - np.arange(n)
        around = np.where(apart % n == 0, 0.5, apart / n) * np.pi
        kernel = np.sin(np.pi * apart) / (n * (np.sin(around) if n % 2 else np.tan(around)))
        return a @ np.where(apart % n == 0, 1.0, kernel).T

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fourier_upsample",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 15), low=-1, high=1),
                Sample((make(21, low=-1, high=1),), {"factor": 3}),
                Sample((make((2, 2, 9), low=-1, high=1),), {"factor": 5}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(5),), {"factor": 0}), ValueError, "1 or more")],
        )

    return wrong, right, declare


@pair(
    "group_cumcount",
    "the sort that brings equal codes together is not stable",
    "pandas groupby internals and CuPy ports: argsort without kind='stable' keeps order up to 16 entries only",
    "40 category codes from 0 to 2: entries of one group are numbered out of order",
)
def group_cumcount():
    """For each entry, how many earlier entries have its category code, as pandas' groupby().cumcount()."""

    def count(xp, codes, order):
        ordered = codes[order]
        inside = xp.arange(codes.shape[0]) - xp.searchsorted(ordered, ordered, side="left")
        out = xp.empty(codes.shape[0], dtype="int64")
        out[order] = inside
        return out

    def wrong(xp, codes, ascending=True):
        if not ascending:
            return wrong(xp, codes[::-1])[::-1].copy()
        return count(xp, codes, xp.argsort(codes))

    def right(xp, codes, ascending=True):
        if not ascending:
            return right(xp, codes[::-1])[::-1].copy()
        return count(xp, codes, xp.argsort(codes, kind="stable"))

    def reference(codes, ascending=True):
        seen, out = {}, []
        for code in codes.tolist() if ascending else codes.tolist()[::-1]:
            out.append(seen.get(code, 0))
            seen[code] = out[-1] + 1
        return np.array(out if ascending else out[::-1], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="group_cumcount",
            dtypes=("int8", "int16"),
            result_dtype=lambda codes: "int64",
            samples=lambda make: [
                make(12, low=0, high=3),
                make(7),
                Sample((make(15, low=0, high=5),), {"ascending": False}),
                Sample((make(0),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "asof_join",
    "without exact matches it steps back over one equal key only",
    "pandas.merge_asof(allow_exact_matches=False) as LLM-written ports do it; keys that repeat are forgotten",
    "keys 3, 5, 5 and time 5 with exact=False: the value of the first 5 and not that of 3",
)
def asof_join():
    """For each time the value of the last key before it, or at it if `exact`; NaN where there is none."""

    def gather(xp, place, values, order):
        found = values[order][xp.maximum(place, 0)]
        return xp.where(place >= 0, found, np.nan)

    def wrong(xp, times, keys, values, exact=True):
        if keys.shape[0] == 0:
            return xp.full(times.shape, np.nan, dtype=values.dtype)
        order = xp.argsort(keys, kind="stable")
        ordered = keys[order]
        place = xp.searchsorted(ordered, times, side="right") - 1
        if not exact:
            place = place - (ordered[xp.maximum(place, 0)] == times)
        return gather(xp, place, values, order)

    def right(xp, times, keys, values, exact=True):
        if keys.shape[0] == 0:
            return xp.full(times.shape, np.nan, dtype=values.dtype)
        order = xp.argsort(keys, kind="stable")
        place = xp.searchsorted(keys[order], times, side="right" if exact else "left") - 1
        return gather(xp, place, values, order)

    def reference(times, keys, values, exact=True):
        out = np.full(times.shape, np.nan)
        for i, time in np.ndenumerate(times):
            before = keys <= time if exact else keys < time
            if before.any():
                out[i] = values[np.flatnonzero(before & (keys == keys[before].max()))[-1]]
        return out

    def declare(fn):
        def samples(make):
            def call(times, keys):
                return make(times, low=0, high=1000), make(keys, low=0, high=1000), make(keys, dtype="float64")

            return [call(15, 9), Sample(call((4, 5), 12), {"exact": False}), Sample(call(30, 40), {"exact": False})]

        return OpSpec(fn=fn, name="asof_join", dtypes=("int32", "int64"), samples=samples, reference=reference)

    return wrong, right, declare


@pair(
    "zigzag_encode",
    "the sign is fetched by a shift of 31 bits for 64-bit integers too",
    "protobuf's ZigZag32 formula used for int64 columns, as in ports of Parquet and Avro encoders",
    "int64 numbers of 2**31 and more, or below -2**31: the high bits get mixed into the code",
)
def zigzag_encode():
    """0, -1, 1, -2, 2, ... as 0, 1, 2, 3, 4, ...: small unsigned codes for numbers near zero."""

    def check(a):
        if a.dtype.kind != "i":
            raise TypeError(f"can't encode {a.dtype}; give signed integers")
        return f"uint{8 * a.dtype.itemsize}"

    def wrong(xp, a):
        unsigned = check(a)
        return ((a << 1) ^ (a >> 31)).astype(unsigned)

    def right(xp, a):
        unsigned = check(a)
        return ((a << 1) ^ (a >> (8 * a.dtype.itemsize - 1))).astype(unsigned)

    def reference(a):
        wide = a.astype("int64")
        return np.where(wide < 0, ~wide, wide).astype("uint64") * np.uint64(2) + (wide < 0).astype("uint64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="zigzag_encode",
            dtypes=("int8", "int16", "int32", "int64"),
            result_dtype=lambda a: "u" + a,
            samples=lambda make: [
                make(30),
                make((4, 7), low=-100, high=100),
                Sample((make((2, 0)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4, dtype="uint8"),)), TypeError, "signed integers")],
        )

    return wrong, right, declare


@pair(
    "unsharp_mask",
    "the blurred image is written to out before the image is read for the last time",
    "filters with output=input, as in scipy.ndimage and cupyx.scipy.ndimage before they copied",
    "out is the image itself: the result is the blurred image, not the sharpened one",
)
def unsharp_mask():
    """a + amount * (a - the mean of 3 by 3 pixels), edges repeated; `out` may be the image itself."""

    def blur(xp, a):
        height, width = a.shape[-2:]
        wide = xp.pad(a, [(0, 0)] * (a.ndim - 2) + [(1, 1), (1, 1)], mode="edge")
        rows = wide[..., :height, :] + wide[..., 1 : height + 1, :] + wide[..., 2:, :]
        return (rows[..., :width] + rows[..., 1 : width + 1] + rows[..., 2:]) / 9

    def target(xp, a, out):
        if out is not None and out.shape != a.shape:
            raise ValueError(f"out has shape {out.shape}, the image {a.shape}")
        return xp.empty_like(a) if out is None else out

    def wrong(xp, a, amount=1.0, out=None):
        out = target(xp, a, out)
        if a.size:
            out[...] = blur(xp, a)
            out *= -amount
            out += (1 + amount) * a
        return out

    def right(xp, a, amount=1.0, out=None):
        out = target(xp, a, out)
        if a.size:
            out[...] = (1 + amount) * a - amount * blur(xp, a)
        return out

    def reference(a, amount=1.0):
        around = np.zeros(a.shape)
        for down, along in np.ndindex(3, 3):
            rows = np.clip(np.arange(a.shape[-2]) + down - 1, 0, a.shape[-2] - 1)
            columns = np.clip(np.arange(a.shape[-1]) + along - 1, 0, a.shape[-1] - 1)
            around += a[..., rows, :][..., columns] / 9
        return a + amount * (a - around)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unsharp_mask",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((6, 9), low=0, high=1),
                Sample((make((2, 5, 5), low=0, high=1),), {"amount": 0.5}),
                Sample((make((1, 7), low=0, high=1),), {"amount": 2.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "frame_signal",
    "frames are strided by the item size instead of the strides of the signal",
    "librosa.util.frame before 0.8, which demanded contiguous input later; LLM-written as_strided code",
    "one channel of interleaved stereo, a[:, 0] or a[::2]: frames hold samples of both channels",
)
def frame_signal():
    """Overlapping frames of the last axis, each times the window; an incomplete last frame is left out."""

    def cut(xp, a, window, hop, step):
        length = window.shape[0]
        if hop < 1:
            raise ValueError(f"hop is {hop}; give 1 or more")
        if a.shape[-1] < length or length == 0:
            raise ValueError("the signal is shorter than one frame, or the frame is empty")
        shape = (*a.shape[:-1], 1 + (a.shape[-1] - length) // hop, length)
        strides = (*a.strides[:-1], hop * step, step)
        return xp.lib.stride_tricks.as_strided(a, shape=shape, strides=strides) * window

    def wrong(xp, a, window, hop=4):
        return cut(xp, a, window, hop, a.itemsize)

    def right(xp, a, window, hop=4):
        return cut(xp, a, window, hop, a.strides[-1])

    def reference(a, window, hop=4):
        length = len(window)
        if a.shape[-1] < length or length == 0:
            raise ValueError("too short")
        starts = range(0, a.shape[-1] - length + 1, hop)
        return np.stack([a[..., start : start + length] * window for start in starts], axis=-2)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="frame_signal",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(50), make(8, low=0, high=1)),
                (make((2, 37)), make(16, low=0, high=1)),
                Sample((make((2, 3, 21)), make(5, low=0, high=1)), {"hop": 7}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9), make(4)), {"hop": 0}), ValueError, "hop is 0")],
        )

    return wrong, right, declare


@pair(
    "masked_mean",
    "the number of chosen entries is counted in the dtype of the data",
    "masked means of float16 activations (sentence-transformers pooling and others): mask.sum in half precision",
    "float16, 300 by 300 entries, all chosen: the count overflows to infinity and the mean is 0",
)
def masked_mean():
    """The mean of the entries where the mask is true, along an axis or of all; NaN where there are none."""

    def divide(xp, a, mask, axis, count):
        wide = "float32" if a.dtype.itemsize == 2 else "float64"
        total = xp.where(mask, a, 0).sum(axis=axis, dtype=wide)
        mean = total / xp.where(count > 0, count, 1).astype(wide)
        return xp.where(count > 0, mean, np.nan).astype(a.dtype)

    def wrong(xp, a, mask, axis=None):
        return divide(xp, a, mask, axis, mask.sum(axis=axis, dtype=a.dtype))

    def right(xp, a, mask, axis=None):
        return divide(xp, a, mask, axis, mask.sum(axis=axis, dtype="int64"))

    def reference(a, mask, axis=None):
        if axis is None:
            a, mask, axis = a.ravel(), mask.ravel(), 0
        a, mask = np.moveaxis(a, axis, -1), np.moveaxis(mask, axis, -1)
        out = np.full(a.shape[:-1], np.nan)
        for i in np.ndindex(out.shape):
            chosen = a[i][mask[i]]
            if len(chosen):
                out[i] = chosen.mean()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="masked_mean",
            dtypes=("float16", "float32"),
            result_dtype=lambda a, mask: a,
            samples=lambda make: [
                (make((5, 33)), make((5, 33), dtype="bool")),
                Sample((make((7, 4, 3)), make((7, 4, 3), dtype="bool")), {"axis": 1}),
                Sample((make((2, 70)), make((2, 70), dtype="bool")), {"axis": -1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "adjust_gamma",
    "tables are kept between calls by gamma alone, so another gain gets the table of the first one",
    "look-up tables of image augmentations and colour management kept under an incomplete key",
    "a call with gamma 2.2, gain 1, then one with gamma 2.2, gain 0.5: the second returns the first's levels",
)
def adjust_gamma():
    """gain * level**gamma of an 8-bit image with levels from 0 to 1, by a table, as skimage.exposure does."""

    def check(image, gamma, gain):
        if gamma < 0 or gain < 0:
            raise ValueError("gamma and gain must be 0 or more")
        if image.dtype != "uint8":
            raise TypeError(f"the image is {image.dtype}; give uint8")

    def table(gamma, gain):
        levels = np.arange(256) / 255
        return np.rint(np.minimum(gain * levels**gamma, 1) * 255).astype("uint8")

    kept_wrong, kept_right = {}, {}

    def wrong(xp, image, gamma=1.0, gain=1.0):
        check(image, gamma, gain)
        if gamma not in kept_wrong:
            kept_wrong[gamma] = table(gamma, gain)
        return xp.asarray(kept_wrong[gamma])[image]

    def right(xp, image, gamma=1.0, gain=1.0):
        check(image, gamma, gain)
        if (gamma, gain) not in kept_right:
            kept_right[gamma, gain] = table(gamma, gain)
        return xp.asarray(kept_right[gamma, gain])[image]

    def reference(image, gamma=1.0, gain=1.0):
        bright = np.clip(gain * (image.astype("float64") / 255) ** gamma, 0, 1)
        return np.rint(bright * 255).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adjust_gamma",
            dtypes=("uint8",),
            samples=lambda make: [
                Sample((make((8, 9), low=0, high=255),), {"gamma": 2.2}),
                Sample((make((4, 5, 3), low=0, high=255),), {"gamma": 0.5, "gain": 0.9}),
                Sample((make(20, low=0, high=255),), {"gamma": 1.8, "gain": 1.3}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"gamma": -1.0}), ValueError, "0 or more")],
        )

    return wrong, right, declare


@pair(
    "power_to_db",
    "the range below the peak is counted from the peak of the whole batch",
    "transformers' audio_utils.power_to_db on batches (power_to_db_batch came later): one recording's peak cut others",
    "a batch with one recording a thousand million times quieter: it is cut at the loud one's floor",
)
def power_to_db():
    """Decibels of power spectrograms (..., bands, frames), none more than `top_db` below its spectrogram's peak."""

    def decibels(xp, s, amin, top_db):
        if amin <= 0 or (top_db is not None and top_db < 0):
            raise ValueError("amin must be above 0, and top_db 0 or more")
        return 10 * xp.log10(xp.maximum(s, amin))

    def wrong(xp, s, amin=1e-10, top_db=80.0):
        db = decibels(xp, s, amin, top_db)
        if top_db is None or s.size == 0:
            return db
        return xp.maximum(db, db.max() - top_db)

    def right(xp, s, amin=1e-10, top_db=80.0):
        db = decibels(xp, s, amin, top_db)
        if top_db is None or s.size == 0:
            return db
        return xp.maximum(db, db.max(axis=(-2, -1), keepdims=True) - top_db)

    def reference(s, amin=1e-10, top_db=80.0):
        out = np.empty(s.shape)
        for i in np.ndindex(s.shape[:-2]):
            power = np.where(s[i] < amin, amin, s[i])
            if top_db is not None and power.size:
                power = np.maximum(power, power.max() * 10 ** (-top_db / 10))
            out[i] = np.log(power) * (10 / np.log(10))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="power_to_db",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((5, 8), low=0, high=100),
                make((2, 6, 7), low=0, high=1),
                Sample((make((3, 4, 9), low=0, high=1),), {"top_db": 60.0, "amin": 1e-8}),
                Sample((make((2, 2, 3, 5), low=0, high=10),), {"top_db": None}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 3)),), {"amin": 0.0}), ValueError, "above 0")],
        )

    return wrong, right, declare
