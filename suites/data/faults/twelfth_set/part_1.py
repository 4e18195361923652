"""Elementwise math, activations and losses, images, signals, physics, interpolation, colour, quantisation, complex: faults with their twins."""

import math
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


@pair(
    "gaussian_blur",
    "cached coefficients keyed without the dtype",
    "librosa filter cache, torchvision and Kornia kernels kept in the dtype of the first caller",
    "a float32 call and then a float64 call with the same sigma: weights rounded to float32 (error near 1e-8)",
)
def gaussian_blur():
    """Gaussian smoothing along the last axis, edges repeated."""
    cache = {}

    def check(sigma):
        if sigma <= 0:
            raise ValueError(f"sigma is {sigma}; give more than 0")

    def weights_of(sigma):
        radius = int(4 * sigma + 0.5)
        weights = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
        total = math.fsum(weights)
        return [w / total for w in weights]

    def blur(xp, a, weights):
        n = a.shape[-1]
        if n == 0:
            return a.copy()
        radius = len(weights) // 2
        index = xp.clip(xp.arange(-radius, n + radius), 0, n - 1)
        padded = xp.take(a.astype("float64"), index, axis=-1)
        out = xp.zeros(a.shape, dtype="float64")
        for k, weight in enumerate(weights):
            out = out + weight * padded[..., k : k + n]
        return out.astype(a.dtype)

    def wrong(xp, a, sigma=1.0):
        check(sigma)
        if sigma not in cache:
            cache[sigma] = [float(w) for w in np.array(weights_of(sigma)).astype(str(a.dtype))]
        return blur(xp, a, cache[sigma])

    def right(xp, a, sigma=1.0):
        check(sigma)
        return blur(xp, a, weights_of(sigma))

    def reference(a, sigma=1.0):
        if a.shape[-1] == 0:
            return a.copy()
        radius = int(4 * sigma + 0.5)
        bell = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
        out = np.zeros(a.shape)
        for i in range(a.shape[-1]):
            for k, b in zip(range(i - radius, i + radius + 1), bell, strict=True):
                out[..., i] += a[..., min(max(k, 0), a.shape[-1] - 1)] * (b / math.fsum(bell))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gaussian_blur",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                Sample((make((3, 33)),), {"sigma": 2.0}),
                Sample((make(21),), {"sigma": 0.7}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"sigma": 0.0}), ValueError, "sigma is 0")],
        )

    return wrong, right, declare


@pair(
    "channel_affine",
    "the axis is guessed by its length",
    "scikit-image guess_spatial_dimensions, imageio and PIL-to-tensor helpers: the axis whose length fits is taken",
    "an image whose batch has as many entries as there are channels, such as (3, 3, 8, 9): the batch is scaled",
)
def channel_affine():
    """Images (..., C, H, W) times a scale per channel plus a shift per channel."""

    def apply(image, scale, shift):
        return (image.astype("float64") * scale + shift).astype(image.dtype)

    def wrong(xp, image, scale, shift):
        axis = image.shape.index(scale.shape[0])
        shape = [1] * image.ndim
        shape[axis] = scale.shape[0]
        return apply(image, scale.reshape(shape), shift.reshape(shape))

    def right(xp, image, scale, shift):
        return apply(image, scale[:, None, None], shift[:, None, None])

    def reference(image, scale, shift):
        return np.einsum("...chw,c->...chw", image, scale) + np.reshape(shift, (-1, 1, 1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="channel_affine",
            dtypes=("float32", "float64"),
            result_dtype=lambda image, scale, shift: image,
            samples=lambda make: [
                (make((2, 3, 8, 9)), make(3), make(3)),
                (make((4, 7, 5)), make(4), make(4)),
                (make((5, 1, 6, 4)), make(1), make(1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "srgb_to_linear",
    "the threshold of the inverse function",
    "colour conversions in shaders and image libraries: 0.0031308, the threshold of the other direction, was copied",
    "dark values between 0.0031308 and 0.04045, such as 0.02: 13 percent too bright",
)
def srgb_to_linear():
    """sRGB values to linear light; below the toe and for negative numbers linear."""

    def convert(xp, x, threshold):
        curve = ((xp.maximum(x, threshold) + 0.055) / 1.055) ** 2.4
        return xp.where(x <= threshold, x / 12.92, curve)

    def wrong(xp, x):
        return convert(xp, x, 0.0031308)

    def right(xp, x):
        return convert(xp, x, 0.04045)

    def reference(x):
        x = np.asarray(x)
        out = np.array(x / 12.92)
        bright = ~(x <= 0.04045)
        out[bright] = ((x[bright] + 0.055) / 1.055) ** 2.4
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="srgb_to_linear",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [make(20), make((3, 7)), Sample((make(()),), kind="scalar")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "saturation",
    "epsilon in the denominator",
    "Kornia rgb_to_hsv: delta / (v + eps) with eps 1e-8 instead of a case for black",
    "very dark pixels, such as (3e-9, 1e-9, 0): saturation 0.23 instead of 1",
)
def saturation():
    """Saturation of pixels (..., 3) in HSV; black has none."""

    def wrong(xp, rgb):
        value = xp.max(rgb, axis=-1)
        return (value - xp.min(rgb, axis=-1)) / (value + 1e-8)

    def right(xp, rgb):
        value = xp.max(rgb, axis=-1)
        black = value == 0
        return xp.where(black, 0.0, (value - xp.min(rgb, axis=-1)) / xp.where(black, 1.0, value)).astype(rgb.dtype)

    def reference(rgb):
        value, low = rgb.max(axis=-1), rgb.min(axis=-1)
        return np.divide(value - low, value, out=np.zeros(value.shape), where=value != 0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="saturation",
            dtypes=("float32",),
            result_dtype=lambda rgb: rgb,
            samples=lambda make: [make((12, 3), low=0, high=1), make((4, 5, 3), low=0, high=1)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "as_complex",
    "multiplication by the imaginary unit",
    "SciPy, JAX and CuPy code that builds complex numbers as re + 1j * im (NumPy issues on 1j * inf)",
    "an infinite imaginary part: the real part becomes NaN; -0.0 as imaginary part loses its sign",
)
def as_complex():
    """Complex numbers from their real and imaginary parts."""
    kinds = {"float32": "complex64", "float64": "complex128"}

    def wrong(xp, re, im):
        return re + 1j * im

    def right(xp, re, im):
        re, im = xp.broadcast_arrays(re, im)
        both = xp.stack([re, im], axis=-1)
        return both.view(kinds[str(both.dtype)])[..., 0]

    def reference(re, im):
        out = np.zeros(np.broadcast(re, im).shape, np.complex128)
        out.real = re
        out.imag = im
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="as_complex",
            dtypes=("float32", "float64"),
            result_dtype=lambda re, im: kinds[max(re, im)],
            samples=lambda make: [(make(40), make(40)), (make((3, 17)), make((3, 17)))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "nearest_resample",
    "a position accumulated by repeated addition",
    "resampy and other resamplers: time_register += time_increment drifts from i * n / size",
    "sizes whose step is no binary fraction and that share factors, such as 36 samples to 30: neighbours are taken",
)
def nearest_resample():
    """The last axis taken to `size` samples: sample i is that at floor(i * n / size)."""

    def check(size):
        if size < 1:
            raise ValueError(f"size is {size}; give 1 or more")

    def pick(xp, a, index):
        return xp.take(a, xp.asarray(np.array(index, dtype=np.int64)), axis=-1)

    def wrong(xp, a, size=30):
        check(size)
        n = a.shape[-1]
        if n == 0:
            return a.copy()
        index, position = [], 0.0
        for _ in range(size):
            index.append(min(int(position), n - 1))
            position += n / size
        return pick(xp, a, index)

    def right(xp, a, size=30):
        check(size)
        n = a.shape[-1]
        if n == 0:
            return a.copy()
        return pick(xp, a, [i * n // size for i in range(size)])

    def reference(a, size=30):
        n = a.shape[-1]
        if n == 0:
            return a.copy()
        return a[..., np.arange(size) * n // size]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nearest_resample",
            dtypes=("float32", "int16"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(47),
                Sample((make((3, 33)),), {"size": 20}),
                Sample((make((2, 70)),), {"size": 45}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"size": 0}), ValueError, "size is 0")],
        )

    return wrong, right, declare


@pair(
    "unwrap",
    "the open and the closed end of the interval are swapped",
    "ports of numpy.unwrap (dask, CuPy, JAX) without its case for a difference of exactly half a period",
    "a rise of exactly half a period, such as 0 then 1 with period 2: unwrapped to -1 instead of left at 1",
)
def unwrap():
    """Phases along the last axis without jumps of more than half a period."""

    def check(period):
        if period <= 0:
            raise ValueError(f"period is {period}; give more than 0")

    def follow(xp, a, period, tie):
        wide = a.astype("float64")
        step = wide[..., 1:] - wide[..., :-1]
        half = period / 2
        wrapped = (step + half) % period - half
        if tie:
            wrapped = xp.where((wrapped == -half) & (step > 0), half, wrapped)
        correct = xp.where(xp.abs(step) < half, 0.0, wrapped - step)
        rest = wide[..., 1:] + xp.cumsum(correct, axis=-1)
        return xp.concatenate([wide[..., :1], rest], axis=-1).astype(a.dtype)

    def wrong(xp, a, period=2 * math.pi):
        check(period)
        return follow(xp, a, period, False)

    def right(xp, a, period=2 * math.pi):
        check(period)
        return follow(xp, a, period, True)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unwrap",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                Sample((make((3, 33)),), {"period": 2.0}),
                Sample((make((2, 4, 9)),), {"period": 1.5}),
            ],
            reference=lambda a, period=2 * math.pi: np.unwrap(a, period=period, axis=-1),
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"period": 0.0}), ValueError, "period is 0")],
        )

    return wrong, right, declare


@pair(
    "mirror_mean",
    "a border that is reflected once only",
    "CuPy and scikit-image 'mirror' borders: a filter wider than the image reflects into the wrong place or outside",
    "an axis of at most `radius` samples, such as 3 samples with radius 3: wrong neighbours, an IndexError for one sample",
)
def mirror_mean():
    """Mean of 2 * radius + 1 neighbours along the last axis; beyond the ends it is mirrored without the end itself."""

    def check(radius):
        if radius < 0:
            raise ValueError(f"radius is {radius}; give 0 or more")

    def mean(xp, a, radius, index):
        n = a.shape[-1]
        padded = xp.take(a.astype("float64"), index, axis=-1)
        out = xp.zeros(a.shape, dtype="float64")
        for k in range(2 * radius + 1):
            out = out + padded[..., k : k + n]
        return (out / (2 * radius + 1)).astype(a.dtype)

    def wrong(xp, a, radius=3):
        check(radius)
        n = a.shape[-1]
        if n == 0:
            return a.copy()
        index = xp.abs(xp.arange(-radius, n + radius))
        return mean(xp, a, radius, xp.where(index >= n, 2 * (n - 1) - index, index))

    def right(xp, a, radius=3):
        check(radius)
        n = a.shape[-1]
        if n == 0:
            return a.copy()
        period = max(2 * (n - 1), 1)
        index = xp.arange(-radius, n + radius) % period
        return mean(xp, a, radius, xp.where(index >= n, period - index, index))

    def reference(a, radius=3):
        n = a.shape[-1]
        out = np.zeros(a.shape)
        for i in range(n):
            for k in range(i - radius, i + radius + 1):
                while n > 1 and not 0 <= k < n:
                    k = -k if k < 0 else 2 * (n - 1) - k
                out[..., i] += a[..., k if n > 1 else 0]
        return out / (2 * radius + 1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mirror_mean",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                Sample((make((3, 33)),), {"radius": 1}),
                Sample((make((2, 19)),), {"radius": 6}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"radius": -1}), ValueError, "radius is -1")],
        )

    return wrong, right, declare


@pair(
    "gamma_correct",
    "the input itself as the result",
    "scikit-image rescale and Pillow/torchvision adjust functions: nothing to do, so the caller gets his own array back",
    "gamma 1: the result is the input array, and writing into it changes the input",
)
def gamma_correct():
    """Numbers to the power 1 / gamma with their sign kept, in an array of its own."""

    def check(gamma):
        if gamma <= 0:
            raise ValueError(f"gamma is {gamma}; give more than 0")

    def wrong(xp, image, gamma=2.2):
        check(gamma)
        if gamma == 1:
            return image
        return xp.copysign(xp.abs(image) ** (1 / gamma), image)

    def right(xp, image, gamma=2.2):
        check(gamma)
        if gamma == 1:
            return image.copy()
        return xp.copysign(xp.abs(image) ** (1 / gamma), image)

    def reference(image, gamma=2.2):
        return np.where(np.signbit(image), -1.0, 1.0) * np.power(np.abs(image), 1 / gamma)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gamma_correct",
            dtypes=("float32", "float64"),
            result_dtype=lambda image: image,
            samples=lambda make: [
                make((6, 7)),
                Sample((make((2, 5, 3)),), {"gamma": 1.0}),
                Sample((make(33),), {"gamma": 0.5}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"gamma": 0.0}), ValueError, "gamma is 0")],
        )

    return wrong, right, declare


@pair(
    "mu_law_expand",
    "flattened in memory order, shaped back in C order",
    "CuPy and NumPy kernels over ravel(order='K'), reshaped without the order",
    "an input in Fortran order (a transposed image): the elements of the result are permuted",
)
def mu_law_expand():
    """Numbers from -1 to 1 that were compressed by the mu law, expanded in pieces of 512."""

    def expand(xp, flat, mu):
        pieces = []
        for start in range(0, flat.shape[0], 512):
            x = flat[start : start + 512]
            pieces.append(xp.copysign(xp.expm1(xp.abs(x) * math.log1p(mu)) / mu, x))
        return xp.concatenate(pieces) if pieces else flat.copy()

    def wrong(xp, a, mu=255.0):
        fortran = a.flags.f_contiguous and not a.flags.c_contiguous
        return expand(xp, a.ravel(order="F" if fortran else "C"), mu).reshape(a.shape)

    def right(xp, a, mu=255.0):
        return expand(xp, a.ravel(), mu).reshape(a.shape)

    def reference(a, mu=255.0):
        return np.where(np.signbit(a), -1.0, 1.0) * np.expm1(np.abs(a) * np.log1p(mu)) / mu

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mu_law_expand",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40, low=-1, high=1),
                make((5, 33), low=-1, high=1),
                Sample((make((2, 3, 9), low=-1, high=1),), {"mu": 100.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "softplus",
    "a shortcut that is exact in float32 only",
    "PyTorch softplus: above threshold 20 it returns x, also in float64",
    "float64 numbers with 20 < beta * x < 36, such as 20.5: wrong by 1e-9",
)
def softplus():
    """log(1 + exp(beta * x)) / beta."""

    def check(beta):
        if beta <= 0:
            raise ValueError(f"beta is {beta}; give more than 0")

    def smooth(xp, x, beta):
        return xp.maximum(x, 0.0) + xp.log1p(xp.exp(-xp.abs(x) * beta)) / beta

    def wrong(xp, x, beta=1.0):
        check(beta)
        return xp.where(x * beta > 20, x, smooth(xp, x, beta))

    def right(xp, x, beta=1.0):
        check(beta)
        return smooth(xp, x, beta)

    def reference(x, beta=1.0):
        plain = np.logaddexp(0.0, beta * x) / beta
        return np.where(np.abs(x) * beta < 700, plain, np.maximum(x, 0.0))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="softplus",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [
                make(40),
                Sample((make((3, 33)),), {"beta": 2.0}),
                Sample((make(()),), kind="scalar"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"beta": 0.0}), ValueError, "beta is 0")],
        )

    return wrong, right, declare


@pair(
    "look_ahead_filter",
    "a padded scratch array used again without clearing its tail",
    "FFT and convolution workspaces kept per padded length (pyFFTW interfaces, cuDNN wrappers): the zeros are written once",
    "a signal of 60 samples and then one of 40: both are padded to 64, so the end of the second sees the first",
)
def look_ahead_filter():
    """Sum of taps[k] * x[i + k] along the last axis, with zeros after the end."""
    scratch = {}

    def padded_length(a, taps):
        length = 16
        while length < a.shape[-1] + taps.shape[0]:
            length *= 2
        return length

    def run(xp, a, taps, padded):
        n = a.shape[-1]
        padded[..., :n] = a
        taps = taps.astype("float64")
        out = xp.zeros(a.shape, dtype="float64")
        for k in range(taps.shape[0]):
            out = out + taps[k] * padded[..., k : k + n]
        return out.astype(a.dtype)

    def wrong(xp, a, taps):
        shape = a.shape[:-1] + (padded_length(a, taps),)
        key = (type(a), str(getattr(a, "device", "")), shape, str(a.dtype))
        if key not in scratch:
            scratch[key] = xp.zeros(shape, dtype=a.dtype)
        return run(xp, a, taps, scratch[key])

    def right(xp, a, taps):
        return run(xp, a, taps, xp.zeros(a.shape[:-1] + (padded_length(a, taps),), dtype=a.dtype))

    def reference(a, taps):
        n = a.shape[-1]
        padded = np.concatenate([a, np.zeros(a.shape[:-1] + (taps.shape[0],))], axis=-1)
        out = np.zeros(a.shape)
        for k, tap in enumerate(taps):
            out += tap * padded[..., k : k + n]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="look_ahead_filter",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, taps: a,
            samples=lambda make: [(make(40), make(5)), (make((3, 33)), make(4)), (make(90), make(9))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "bernoulli",
    "squeeze() takes away more axes than were added",
    "scikit-image, librosa and astropy functions that work on at least two axes and squeeze the result",
    "an input with an axis of length 1, such as (1, 5) or (4, 1): the result has shape (5,) or (4,)",
)
def bernoulli():
    """x / (exp(x) - 1), the weight of the Scharfetter-Gummel scheme; 1 at 0."""

    def weigh(xp, x):
        x = x.astype("float64")
        size = xp.where(x == 0, 1.0, xp.abs(x))
        below = size / -xp.expm1(-size)
        above = xp.where(xp.isinf(size), 0.0, below * xp.exp(-size))
        return xp.where(x == 0, 1.0, xp.where(x > 0, above, below))

    def wrong(xp, x):
        rows = x.reshape(1, -1) if x.ndim < 2 else x
        return weigh(xp, rows).astype(x.dtype).squeeze()

    def right(xp, x):
        rows = x.reshape(1, -1) if x.ndim < 2 else x
        return weigh(xp, rows).astype(x.dtype).reshape(x.shape)

    def reference(x):
        x = np.asarray(x, np.float64)
        out = np.ones(x.shape)
        low, high = (x < 0) | np.isnan(x), x > 0
        out[low] = x[low] / np.expm1(x[low])
        out[high] = np.where(np.isinf(x[high]), 0.0, x[high] * np.exp(-x[high]) / -np.expm1(-x[high]))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bernoulli",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [make(40), make((3, 17)), Sample((make(()),), kind="scalar")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "mix_down",
    "the phase is computed in float32 from the index",
    "librosa.tone, torchaudio oscillators and GNU Radio rotators: the phase of a long signal in single precision",
    "a long signal (100 000 samples): the phase is wrong by some 1e-3 at its end",
)
def mix_down():
    """A signal times cos(2 * pi * frequency * i) along the last axis."""

    def wrong(xp, a, frequency=0.12):
        index = xp.arange(a.shape[-1], dtype="float32")
        return (a * xp.cos(index * (2 * math.pi * frequency))).astype(a.dtype)

    def right(xp, a, frequency=0.12):
        turns = xp.arange(a.shape[-1], dtype="float64") * frequency % 1.0
        return (a.astype("float64") * xp.cos(turns * (2 * math.pi))).astype(a.dtype)

    def reference(a, frequency=0.12):
        turns = np.arange(a.shape[-1]) * float(frequency)
        return a * np.cos(2 * np.pi * (turns - np.floor(turns)))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mix_down",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(40), Sample((make((3, 33)),), {"frequency": 0.03}), make((2, 2, 21))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "table_lookup",
    "a weight of zero times infinity",
    "numpy.interp (NaN next to infinite values) and PyTorch grid_sample (NaN behind a weight of zero)",
    "a table with an infinity or a NaN, read exactly at a knot next to it, or left of the table: NaN instead of the knot",
)
def table_lookup():
    """Linear interpolation in a table at positions counted in entries; outside it the end values."""

    def neighbours(xp, x, table):
        last = table.shape[0] - 1
        if last < 0:
            raise ValueError("the table is empty")
        position = xp.clip(xp.where(xp.isnan(x), 0.0, x), 0, last)
        base = xp.floor(position)
        index = base.astype("int64")
        here, there = xp.take(table, index), xp.take(table, xp.minimum(index + 1, last))
        part = position - base
        return here, there, part, here * (1 - part) + there * part

    def wrong(xp, x, table):
        _, _, _, mixed = neighbours(xp, x, table)
        return xp.where(xp.isnan(x), xp.nan, mixed).astype(table.dtype)

    def right(xp, x, table):
        here, _, part, mixed = neighbours(xp, x, table)
        return xp.where(xp.isnan(x), xp.nan, xp.where(part == 0, here, mixed)).astype(table.dtype)

    def reference(x, table):
        last = table.shape[0] - 1
        out = np.zeros(np.shape(x))
        for place, number in np.ndenumerate(x):
            if np.isnan(number):
                out[place] = np.nan
                continue
            number = min(max(float(number), 0.0), float(last))
            k = int(number)
            part = number - k
            out[place] = table[k] if part == 0 else table[k] * (1 - part) + table[k + 1] * part
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="table_lookup",
            dtypes=("float32", "float64"),
            result_dtype=lambda x, table: table,
            samples=lambda make: [
                (make(40), make(4)),
                (make((3, 15), low=0, high=8), make(9)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(9), make(0)), ValueError, "table is empty")],
        )

    return wrong, right, declare


@pair(
    "to_pcm",
    "the closed end of the range does not fit",
    "torchaudio, pydub and SciPy scripts: clipped to [-1, 1] first, then times 32768, so 1.0 wraps to -32768",
    "exactly 1.0 (or anything above): -32768 instead of 32767",
)
def to_pcm():
    """Audio from -1 to 1 as int16, rounded to even, clipped; NaN is silence."""

    def wrong(xp, a):
        clipped = xp.clip(xp.where(xp.isnan(a), 0.0, a), -1.0, 1.0)
        return xp.round(clipped * 32768.0).astype("int32").astype("int16")

    def right(xp, a):
        clipped = xp.clip(xp.where(xp.isnan(a), 0.0, a), -1.0, 1.0)
        return xp.minimum(xp.round(clipped * 32768.0), 32767.0).astype("int16")

    def reference(a):
        scaled = np.rint(np.nan_to_num(np.asarray(a, np.float64), nan=0.0, posinf=2.0, neginf=-2.0) * 32768)
        return np.clip(scaled, -32768, 32767).astype(np.int16)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="to_pcm",
            dtypes=("float32", "float64"),
            result_dtype="int16",
            samples=lambda make: [make(40, low=-1, high=1), make((2, 33), low=-1, high=1)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "lisht",
    "the last partial block is left out",
    "numexpr, Pillow-SIMD and hand-vectorised activations: no tail once the blocked path is taken",
    "more than 1024 elements and no multiple of 1024, such as 1500: zeros from 1024 on",
)
def lisht():
    """The activation x * tanh(x), large arrays in blocks of 1024."""
    block = 1024

    def blocked(xp, x, count):
        flat = x.reshape(-1)
        out = xp.zeros(flat.shape, dtype=flat.dtype)
        for i in range(count):
            part = flat[i * block : (i + 1) * block]
            out[i * block : (i + 1) * block] = part * xp.tanh(part)
        return out.reshape(x.shape)

    def wrong(xp, x):
        if x.size <= block:
            return x * xp.tanh(x)
        return blocked(xp, x, x.size // block)

    def right(xp, x):
        if x.size <= block:
            return x * xp.tanh(x)
        return blocked(xp, x, -(-x.size // block))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lisht",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [make(40), make((5, 33)), make((2, 3, 64)), Sample((make((0, 4)),), kind="empty")],
            reference=lambda x: np.abs(x) * np.abs(np.tanh(x)),
        )

    return wrong, right, declare


@pair(
    "to_unit_range",
    "the scale is guessed from the data",
    "matplotlib, Kornia and many loaders: 'if image.max() > 1: image / 255', so a dark image is taken for a scaled one",
    "an integer image of 0 and 1 only (a mask, a nearly black frame): 1.0 instead of 1 / 255",
)
def to_unit_range():
    """Unsigned integer images as float32 from 0 to 1, by the largest number of their dtype."""
    largest = {"uint8": 255.0, "uint16": 65535.0}

    def wrong(xp, image):
        out = image.astype("float32")
        if image.size and int(image.max()) > 1:
            out = out / largest[str(image.dtype)]
        return out

    def right(xp, image):
        return image.astype("float32") / largest[str(image.dtype)]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="to_unit_range",
            dtypes=("uint8", "uint16"),
            result_dtype="float32",
            samples=lambda make: [make((6, 7)), make((2, 5, 3)), make(40)],
            reference=lambda image: image.astype(np.float64) / np.iinfo(image.dtype).max,
        )

    return wrong, right, declare


@pair(
    "pre_emphasis",
    "a transposition for moveaxis",
    "SciPy, ObsPy and python_speech_features filters with an axis: a.T moves the axis of a matrix, not of a stack",
    "three axes with axis=1, such as (3, 4, 5), or four with axis=1 or 2: filtered along another axis",
)
def pre_emphasis():
    """x[i] - factor * x[i - 1] along an axis; the first element remains."""

    def check(a, axis):
        if not -a.ndim <= axis < a.ndim:
            raise ValueError(f"axis {axis} of an array of {a.ndim} axes")

    def filtered(xp, rows, factor):
        return xp.concatenate([rows[..., :1], rows[..., 1:] - factor * rows[..., :-1]], axis=-1)

    def wrong(xp, a, axis=-1, factor=0.97):
        check(a, axis)
        if axis in (-1, a.ndim - 1):
            return filtered(xp, a, factor)
        return filtered(xp, a.T, factor).T

    def right(xp, a, axis=-1, factor=0.97):
        check(a, axis)
        return xp.moveaxis(filtered(xp, xp.moveaxis(a, axis, -1), factor), -1, axis)

    def reference(a, axis=-1, factor=0.97):
        out = np.array(a)
        here, before = [slice(None)] * a.ndim, [slice(None)] * a.ndim
        here[axis], before[axis] = slice(1, None), slice(None, -1)
        out[tuple(here)] -= factor * a[tuple(before)]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pre_emphasis",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(40),
                Sample((make((5, 33)),), {"axis": 0}),
                Sample((make((3, 4, 9)),), {"factor": 0.5}),
                Sample((make((7, 3, 4)),), {"axis": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"axis": 1}), ValueError, "axis 1 of an array")],
        )

    return wrong, right, declare


@pair(
    "gaussian_kernel",
    "a shortcut for one object given twice",
    "scikit-learn euclidean_distances: X is Y, so the distance is set to zero without a look at the numbers",
    "the same array for both arguments, with NaN or an infinity in it: 1 instead of NaN",
)
def gaussian_kernel():
    """exp(-gamma * (x - y) ** 2), element by element."""

    def wrong(xp, x, y, gamma=0.5):
        if x is y:
            return xp.ones(x.shape, dtype=x.dtype)
        return xp.exp(-gamma * (x - y) ** 2)

    def right(xp, x, y, gamma=0.5):
        return xp.exp(-gamma * (x - y) ** 2)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gaussian_kernel",
            dtypes=("float32", "float64"),
            result_dtype=lambda x, y: x,
            samples=lambda make: [
                (make(40), make(40)),
                Sample((make((3, 33)), make((3, 33))), {"gamma": 0.1}),
            ],
            reference=lambda x, y, gamma=0.5: np.exp(-gamma * np.square(x - y)),
        )

    return wrong, right, declare
