"""Planted faults, part 3: signals, images, array manipulation, encodings, state, streams, dates, geometry, physics."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay import Device, devices  # noqa: F401
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


def _backend(xp, array):
    """The backend of `xp` and the index of the device of `array`."""
    if xp is np:
        return devices.backend("cpu"), 0
    return devices.backend(array.device.kind), array.device.index


@pair(
    "pad_reflect",
    "one reflection where several are needed",
    "own; torch.nn.ReflectionPad1d refuses such pads, NumPy and jax.numpy.pad reflect repeatedly",
    "an axis shorter than the pad: shape (3,) or (1,), before=3, after=3",
)
def pad_reflect():
    """Extend the last axis by mirror images about its end samples, as np.pad(mode='reflect')."""

    def wrong(xp, a, before=3, after=3):
        n = a.shape[-1]
        if n == 0:
            return xp.empty(a.shape, a.dtype)
        index = xp.abs(xp.arange(-before, n + after))
        index = xp.where(index >= n, 2 * (n - 1) - index, index)
        return xp.take(a, index, axis=-1)

    def right(xp, a, before=3, after=3):
        n = a.shape[-1]
        if n == 0:
            return xp.empty(a.shape, a.dtype)
        period = max(1, 2 * (n - 1))
        index = xp.remainder(xp.arange(-before, n + after), period)
        index = xp.minimum(index, period - index)
        return xp.take(a, index, axis=-1)

    def reference(a, before=3, after=3):
        if a.shape[-1] == 0:
            return a.copy()
        return np.pad(a, [(0, 0)] * (a.ndim - 1) + [(before, after)], mode="reflect")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pad_reflect",
            dtypes=("float32", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(20), Sample((make((3, 9)),), {"before": 2, "after": 4})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "frames",
    "truncating instead of flooring division",
    "own; as frame counts of torch.stft and librosa.util.frame for signals shorter than a frame",
    "a signal a little shorter than one frame: 5 to 7 samples with size=8, hop=4",
)
def frames():
    """Cut the last axis into overlapping frames; a rest that fills no frame is dropped."""

    def cut(xp, a, size, hop, count):
        index = xp.arange(count)[:, None] * hop + xp.arange(size)[None, :]
        return a[..., index]

    def wrong(xp, a, size=8, hop=4):
        count = int((a.shape[-1] - size) / hop) + 1
        return cut(xp, a, size, hop, max(0, count))

    def right(xp, a, size=8, hop=4):
        count = (a.shape[-1] - size) // hop + 1
        return cut(xp, a, size, hop, max(0, count))

    def reference(a, size=8, hop=4):
        if a.shape[-1] < size:
            return np.empty((*a.shape[:-1], 0, size), a.dtype)
        return np.lib.stride_tricks.sliding_window_view(a, size, axis=-1)[..., ::hop, :]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="frames",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(50), make((2, 33)), Sample((make(40),), {"size": 10, "hop": 5})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "hann_windowed",
    "cache key without the dtype",
    "own; as caches of FFT plans and windows keyed by length alone",
    "a float64 call after a float32 call of the same length: the window has float32's digits",
)
def hann_windowed():
    """The last axis times a Hann window, whose table is kept on the host."""
    tables: dict[Any, Any] = {}

    def table(key, n, dtype):
        found = tables.get(key)
        if found is None:
            found = tables[key] = np.hanning(n).astype(dtype)
        return found

    def wrong(xp, a):
        n = a.shape[-1]
        window = xp.asarray(table(n, n, a.dtype))
        return xp.multiply(a, window).astype(a.dtype)

    def right(xp, a):
        n = a.shape[-1]
        window = xp.asarray(table((n, str(a.dtype)), n, a.dtype))
        return xp.multiply(a, window).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="hann_windowed",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(64), make((3, 31))],
            reference=lambda a: a * np.hanning(a.shape[-1]),
        )

    return wrong, right, declare


@pair(
    "absolute_difference",
    "signed difference overflows",
    "numpy.ptp of signed integers (documented pitfall: int8 gives negative ranges); cv2.absdiff saturates",
    "int8 100 and -100: the distance is 200, and a - b wraps to -56",
)
def absolute_difference():
    """The distance of two integers, in the unsigned dtype of the same width, in which it always fits."""
    unsigned = {"int8": "uint8", "int16": "uint16", "int32": "uint32"}

    def wrong(xp, a, b):
        return xp.abs(a - b).astype(unsigned[str(xp.result_type(a.dtype, b.dtype))])

    def right(xp, a, b):
        u = unsigned[str(xp.result_type(a.dtype, b.dtype))]
        return xp.subtract(xp.maximum(a, b).astype(u), xp.minimum(a, b).astype(u))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="absolute_difference",
            dtypes=("int8", "int16", "int32"),
            result_dtype=lambda a, b: unsigned[str(np.result_type(a, b))],
            samples=lambda make: [(make((5, 7)), make((5, 7))), (make(40), make(40))],
            reference=lambda a, b: np.abs(a.astype(np.int64) - b.astype(np.int64)),
        )

    return wrong, right, declare


@pair(
    "lower_latin1",
    "a hole in a range of codes",
    "own; the classic case of the multiplication sign in Latin-1 case tables",
    "code 0xD7, the multiplication sign, becomes 0xF7, the division sign",
)
def lower_latin1():
    """Lower case of text in Latin-1, given as codes; other codes stay as they are."""

    def wrong(xp, codes):
        upper = ((codes >= 0x41) & (codes <= 0x5A)) | ((codes >= 0xC0) & (codes <= 0xDE))
        return xp.where(upper, codes | 0x20, codes)

    def right(xp, codes):
        upper = ((codes >= 0x41) & (codes <= 0x5A)) | ((codes >= 0xC0) & (codes <= 0xDE) & (codes != 0xD7))
        return xp.where(upper, codes | 0x20, codes)

    def reference(codes):
        table = np.array([ord(chr(c).lower()) for c in range(256)])
        inside = (codes >= 0) & (codes < 256)
        return np.where(inside, table[np.where(inside, codes, 0)], codes)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lower_latin1",
            dtypes=("uint8", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make.of([ord(c) for c in "Größe ÄÖÜ, São Tomé; ÉÀ ÇA"]),
                make.of([ord(c) for c in "The Quick Brown Fox [@Z] 0-9 {az}"]),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "days_in_month",
    "a missing rule of the calendar",
    "own; the leap year 1900 of spreadsheets",
    "February of 1700, 1800, 1900, 2100, ...: 29 instead of 28",
)
def days_in_month():
    """The number of days of a month, 1 to 12, of a Gregorian year."""

    def length(xp, month, leap):
        other = 30 + (month + month // 8) % 2
        return xp.where(month == 2, 28 + leap.astype(month.dtype), other)

    def wrong(xp, year, month):
        leap = year % 4 == 0
        return length(xp, month, leap)

    def right(xp, year, month):
        leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        return length(xp, month, leap)

    def reference(year, month):
        leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        other = np.where(np.isin(month, (4, 6, 9, 11)), 30, 31)
        return np.where(month == 2, 28 + leap, other)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="days_in_month",
            dtypes=("int32", "int64"),
            result_dtype=lambda a, b: b,
            samples=lambda make: [
                (make(40, low=1583, high=2400), make(40, low=1, high=12)),
                (make((3, 5), low=1583, high=2400), make((3, 5), low=1, high=12)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "digitize_edges",
    "ties in the mirrored case",
    "own; after numpy.digitize, whose descending bins keep the side of searchsorted",
    "a number equal to an edge, with descending bins",
)
def digitize_edges():
    """The bin of each number, as np.digitize; the edges ascend or descend."""

    def wrong(xp, a, bins=(2.0, 1.0, 0.0, -1.0), right=False):
        edges = xp.asarray(bins, dtype=a.dtype)
        if bins[0] > bins[-1]:
            side = "right" if right else "left"
            return len(bins) - xp.searchsorted(edges[::-1], a, side=side)
        return xp.searchsorted(edges, a, side="left" if right else "right")

    def right(xp, a, bins=(2.0, 1.0, 0.0, -1.0), right=False):
        edges = xp.asarray(bins, dtype=a.dtype)
        side = "left" if right else "right"
        if bins[0] > bins[-1]:
            return len(bins) - xp.searchsorted(edges[::-1], a, side=side)
        return xp.searchsorted(edges, a, side=side)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="digitize_edges",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make((4, 11)),
                Sample((make(40),), {"right": True}),
                Sample((make(40),), {"bins": (-2.0, 0.0, 2.0)}),
            ],
            reference=lambda a, bins=(2.0, 1.0, 0.0, -1.0), right=False: np.digitize(a, bins, right=right),
        )

    return wrong, right, declare


@pair(
    "fill_nan",
    "only the real part is looked at",
    "own; as isnan and nan_to_num of complex numbers in several libraries' first versions",
    "a complex number whose imaginary part alone is NaN",
)
def fill_nan():
    """Numbers that are NaN replaced by another one, for real and complex signals."""

    def wrong(xp, a, value=0.0):
        return xp.where(xp.isnan(xp.real(a)), value, a)

    def right(xp, a, value=0.0):
        return xp.where(xp.isnan(a), value, a)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fill_nan",
            dtypes=("float32", "complex64", "complex128"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((3, 17)), Sample((make(40),), {"value": -1.0})],
            reference=lambda a, value=0.0: np.where(np.isnan(a), value, a),
        )

    return wrong, right, declare


@pair(
    "minimum_image",
    "one period subtracted where several are needed",
    "own; the minimum image convention of molecular dynamics with unwrapped coordinates",
    "displacements beyond one and a half boxes, such as 9.0 with box=5.0",
)
def minimum_image():
    """Displacements between particles in a periodic box, each replaced by that to the nearest image."""

    def wrong(xp, d, box=5.0):
        half = box / 2
        return xp.where(d > half, d - box, xp.where(d < -half, d + box, d))

    def right(xp, d, box=5.0):
        half = box / 2
        r = xp.fmod(d, box)
        return xp.where(r > half, r - box, xp.where(r < -half, r + box, r))

    def reference(d, box=5.0):
        r = np.fmod(d, box)
        return np.where(r > box / 2, r - box, np.where(r < -box / 2, r + box, r))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="minimum_image",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((30, 3)), Sample((make((4, 5, 3)),), {"box": 4.0})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "polygon_area",
    "cancellation far from the origin",
    "own; as areas of small polygons in map coordinates in GIS libraries",
    "a polygon of size 1 whose vertices are near (12288, 40960), in float32",
)
def polygon_area():
    """The signed area of polygons, by the shoelace formula; vertices lie along the last axis."""

    def shoelace(xp, x, y):
        return 0.5 * xp.sum(x * xp.roll(y, -1, axis=-1) - y * xp.roll(x, -1, axis=-1), axis=-1)

    def wrong(xp, x, y):
        return shoelace(xp, x, y)

    def right(xp, x, y):
        return shoelace(xp, x - x[..., :1], y - y[..., :1])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="polygon_area",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: str(np.result_type(a, b)),
            samples=lambda make: [(make(12), make(12)), (make((4, 5)), make((4, 5)))],
            reference=lambda x, y: shoelace(np, x - x[..., :1], y - y[..., :1]),
        )

    return wrong, right, declare


@pair(
    "resize_nearest",
    "an index computed in float32",
    "torch.nn.functional.interpolate(mode='nearest'), whose scale is a float32 and misses exact positions",
    "lengths whose ratio is not exact in float32: 14 samples resized to 46, or 26 to 22",
)
def resize_nearest():
    """The last axis resized by the nearest sample at or before each position."""

    def wrong(xp, a, size=16):
        n = a.shape[-1]
        if n == 0:
            return xp.empty(a.shape, a.dtype)
        scale = np.float32(n / size)
        index = xp.floor(xp.arange(size, dtype="float32") * scale).astype("int64")
        return xp.take(a, xp.minimum(index, n - 1), axis=-1)

    def right(xp, a, size=16):
        n = a.shape[-1]
        if n == 0:
            return xp.empty(a.shape, a.dtype)
        index = xp.arange(size, dtype="int64") * n // size
        return xp.take(a, index, axis=-1)

    def reference(a, size=16):
        n = a.shape[-1]
        if n == 0:
            return a.copy()
        return a[..., [i * n // size for i in range(size)]]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="resize_nearest",
            dtypes=("uint8", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((5, 8)),
                Sample((make((3, 24)),), {"size": 12}),
                Sample((make((2, 3, 10)),), {"size": 15}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "mark_every",
    "a write into the copy that reshape makes",
    "own; numpy.copy keeps Fortran order (order='K'), so reshape(-1) of the copy is another copy and the write is lost",
    "a transposed two-dimensional input: nothing is marked",
)
def mark_every():
    """A copy of an array with each `step`-th element, in C order, set to `value`."""

    def wrong(xp, a, step=3, value=0):
        out = xp.copy(a)
        out.reshape(-1)[::step] = value
        return out

    def right(xp, a, step=3, value=0):
        flat = xp.copy(xp.reshape(a, -1))
        flat[::step] = value
        return xp.reshape(flat, a.shape)

    def reference(a, step=3, value=0):
        flat = a.reshape(-1).copy()
        flat[::step] = value
        return flat.reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mark_every",
            dtypes=("float32", "int16"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(20), make((4, 7)), Sample((make((3, 5)),), {"step": 2, "value": 7})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "interleave",
    "the result has the first operand's dtype",
    "own; as numpy-like stack and concatenate in early GPU libraries",
    "arrays of two dtypes: int32 with float32 loses fractions, float32 with float64 digits",
)
def interleave():
    """Two signals, sample by sample in turn along the last axis."""

    def woven(xp, a, b, dtype):
        shape = np.broadcast_shapes(a.shape, b.shape)
        out = xp.empty((*shape[:-1], 2 * shape[-1]), dtype)
        out[..., ::2] = a
        out[..., 1::2] = b
        return out

    def wrong(xp, a, b):
        return woven(xp, a, b, a.dtype)

    def right(xp, a, b):
        return woven(xp, a, b, xp.result_type(a.dtype, b.dtype))

    def reference(a, b):
        a, b = np.broadcast_arrays(a, b)
        return np.stack([a, b], axis=-1).reshape((*a.shape[:-1], 2 * a.shape[-1]))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="interleave",
            dtypes=("int32", "float32", "float64"),
            result_dtype=lambda a, b: str(np.result_type(a, b)),
            samples=lambda make: [(make(9), make(9)), (make((3, 4)), make((3, 4)))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "uncentre",
    "parity of the length",
    "own; fftshift used for ifftshift, the pitfall that numpy.fft's documentation names",
    "an odd length, such as 7",
)
def uncentre():
    """Move a spectrum's zero frequency from the centre to the front, as np.fft.ifftshift."""

    def wrong(xp, a):
        return xp.roll(a, a.shape[-1] // 2, axis=-1)

    def right(xp, a):
        return xp.roll(a, -(a.shape[-1] // 2), axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="uncentre",
            dtypes=("float32", "complex64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(16), make((3, 8)), make((2, 2, 64))],
            reference=lambda a: np.fft.ifftshift(a, axes=-1),
        )

    return wrong, right, declare


@pair(
    "gray_decode",
    "steps for 32 bits in a function of 64",
    "own; the five shifts of 32-bit code kept when uint64 was added",
    "uint64 numbers of 2**32 or more",
)
def gray_decode():
    """Numbers from their Gray codes: each bit is the parity of the code's bits from there up."""

    def wrong(xp, g):
        out = xp.copy(g)
        for shift in (1, 2, 4, 8, 16):
            if shift < 8 * g.dtype.itemsize:
                out = out ^ (out >> shift)
        return out

    def right(xp, g):
        out = xp.copy(g)
        shift = 1
        while shift < 8 * g.dtype.itemsize:
            out = out ^ (out >> shift)
            shift *= 2
        return out

    def reference(g):
        out = np.zeros_like(g)
        for shift in range(8 * g.dtype.itemsize):
            out ^= g >> g.dtype.type(shift)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gray_decode",
            dtypes=("uint8", "uint16", "uint32", "uint64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(50), make((3, 7)), make.of([0, 1, 3, 2, 6, 7, 5, 4, 12, 13, 200])],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "join_channels",
    "state left behind by a call that raised",
    "own; as scratch lists and context flags that are reset on the way out but not in a finally",
    "a valid call after one that raised: the first array of the failed call is in front of the result",
)
def join_channels():
    """One-dimensional signals end to end."""
    pieces: list[Any] = []

    def collect(into, channels):
        for number, channel in enumerate(channels):
            if channel.ndim != 1:
                raise ValueError(f"channel {number} has {channel.ndim} dimensions; give 1-D signals")
            into.append(channel)

    def wrong(xp, left, right):
        collect(pieces, (left, right))
        out = xp.concatenate(pieces)
        pieces.clear()
        return out

    def right(xp, left, right):
        here: list[Any] = []
        collect(here, (left, right))
        return xp.concatenate(here)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="join_channels",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: str(np.result_type(a, b)),
            samples=lambda make: [(make(5), make(7)), (make(40), make(40))],
            error_inputs=lambda make: [ErrorInput((make(4), make((2, 2))), ValueError, "1-D signals")],
            reference=lambda left, right: np.concatenate([left, right]),
        )

    return wrong, right, declare


@pair(
    "fir",
    "a negative start of a slice counts from the end",
    "own; overlap-save filters whose history is longer than a block",
    "more than 129 taps and a signal longer than 128: the second block has lost its history",
)
def fir():
    """A causal FIR filter of a 1-D signal, in blocks of 128: y[n] = sum of taps[k] * a[n - k]."""
    block = 128

    def filtered(xp, a, taps, start_of):
        n, reach = a.shape[0], taps.shape[0] - 1
        if n == 0 or reach < 0:
            return xp.zeros(n, xp.result_type(a.dtype, taps.dtype))
        out = []
        for start in range(0, n, block):
            history = a[start_of(start - reach) : start]
            full = xp.convolve(xp.concatenate([history, a[start : start + block]]), taps)
            out.append(full[history.shape[0] : history.shape[0] + min(block, n - start)])
        return xp.concatenate(out)

    def wrong(xp, a, taps):
        return filtered(xp, a, taps, lambda start: start)

    def right(xp, a, taps):
        return filtered(xp, a, taps, lambda start: max(0, start))

    def reference(a, taps):
        if a.size == 0 or taps.size == 0:
            return np.zeros(a.size)
        return np.convolve(a, taps)[: a.size]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fir",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: str(np.result_type(a, b)),
            samples=lambda make: [(make(300), make(9)), (make(40), make(5)), (make(6), make(21))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "modulate",
    "a cached device table is not ordered before other streams",
    "own; as constants made lazily on whichever stream came first",
    "sim only: the first call of a length on one stream, the next on another that does not wait for it",
)
def modulate():
    """A signal times a slow carrier, 1 + cos(k / 8) / 2, whose table is kept."""
    on_device: dict[Any, Any] = {}
    on_host: dict[Any, Any] = {}

    def carrier(n, dtype):
        return (1 + 0.5 * np.cos(np.arange(n) / 8)).astype(dtype)

    def wrong(xp, a):
        n = a.shape[-1]
        key = (xp.__name__, str(a.device), n, str(a.dtype))
        if key not in on_device:
            on_device[key] = xp.asarray(carrier(n, a.dtype))
        return a * on_device[key]

    def right(xp, a):
        n = a.shape[-1]
        key = (n, str(a.dtype))
        if key not in on_host:
            on_host[key] = carrier(n, a.dtype)
        return a * xp.asarray(on_host[key])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="modulate",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(50), make((3, 21))],
            reference=lambda a: a * (1 + 0.5 * np.cos(np.arange(a.shape[-1]) / 8)),
        )

    return wrong, right, declare


@pair(
    "soft_limit",
    "the event is recorded before the last launch",
    "own; overlap of two halves on a side stream, joined by an event",
    "sim only: 1024 or more along the first axis; the second half is not ordered before the caller's stream",
)
def soft_limit():
    """a / (1 + |a|); of long inputs the second half is computed on a side stream."""
    threshold = 1024

    def limited(xp, a, early):
        if a.ndim == 0 or a.shape[0] < threshold:
            return a / (1 + xp.abs(a))
        backend, index = _backend(xp, a)
        half = a.shape[0] // 2
        out = xp.empty(a.shape, a.dtype)
        main, side = backend.current_stream(index), backend.new_stream(index)
        side.wait_stream(main)
        with backend.use_stream(side):
            scale = 1 + xp.abs(a[half:])
            if early:
                done = side.record_event()
            xp.divide(a[half:], scale, out=out[half:])
            if not early:
                done = side.record_event()
        xp.divide(a[:half], 1 + xp.abs(a[:half]), out=out[:half])
        main.wait_event(done)
        return out

    def wrong(xp, a):
        return limited(xp, a, early=True)

    def right(xp, a):
        return limited(xp, a, early=False)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="soft_limit",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((60, 5)), make(300)],
            reference=lambda a: a / (1 + np.abs(a)),
        )

    return wrong, right, declare


@pair(
    "two_stream_mix",
    "a temporary is given back while a side stream reads it",
    "own; a missing Tensor.record_stream, torch's documented pitfall; the temporary exists for non-contiguous inputs only",
    "sim only: a non-contiguous input, such as a transposed matrix",
)
def two_stream_mix():
    """a / 4 + |a| / 2, each term on a stream of its own, from a contiguous copy where the input is not contiguous."""

    def start(xp, a, out):
        backend, index = _backend(xp, a)
        main, side = backend.current_stream(index), backend.new_stream(index)
        packed = xp.ascontiguousarray(a) if a.ndim else a
        side.wait_stream(main)
        with backend.use_stream(side):
            xp.multiply(packed, 0.25, out=out)
        return packed, main, side

    def wrong(xp, a):
        out = xp.empty(a.shape, a.dtype)
        main, side = start(xp, a, out)[1:]
        size = xp.abs(a) * 0.5
        main.wait_stream(side)
        return out + size

    def right(xp, a):
        out = xp.empty(a.shape, a.dtype)
        packed, main, side = start(xp, a, out)
        size = xp.abs(a) * 0.5
        main.wait_stream(side)
        del packed  # not before the wait: the side stream reads it
        return out + size

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="two_stream_mix",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((40, 30)), make(300)],
            reference=lambda a: a * 0.25 + np.abs(a) * 0.5,
        )

    return wrong, right, declare
