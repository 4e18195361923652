"""Special values and dtypes, after bug reports of array and GPU libraries: faults with their twins."""

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
    "split_complex_root",
    "the side of the branch cut is chosen by `im < 0`, which is false for -0.0",
    "jax-ml/jax#39110: the complex square root ignores a negative zero on the branch cut",
    "re = -4, im = -0.0: the root has imaginary part 2 where numpy.sqrt(complex(-4, -0.0)) has -2",
)
def split_complex_root():
    """The principal square root of re + i im, as a stack of its real and its imaginary part; as numpy.sqrt."""

    def root(xp, re, im, negative):
        wide, other = re.astype("float64"), xp.abs(im.astype("float64"))
        large = xp.sqrt(0.5 * (xp.abs(wide) + xp.hypot(wide, other)))
        small = xp.where(large > 0, other / xp.where(large > 0, 2 * large, 1.0), large)
        real = xp.where(wide >= 0, large, small)
        imaginary = xp.where(wide >= 0, small, large)
        endless = xp.isinf(other)
        real = xp.where(endless, other, real)
        imaginary = xp.where(endless, other, imaginary)
        return xp.stack([real, xp.where(negative, -imaginary, imaginary)]).astype(re.dtype)

    def wrong(xp, re, im):
        return root(xp, re, im, im < 0)

    def right(xp, re, im):
        return root(xp, re, im, xp.signbit(im) & ~xp.isnan(im))

    def reference(re, im):
        z = np.empty(np.broadcast_shapes(re.shape, im.shape), dtype="complex128")
        z.real, z.imag = re, np.where(np.isnan(im), np.nan, im)
        with np.errstate(all="ignore"):
            z = np.sqrt(z)
        return np.stack([z.real, z.imag])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="split_complex_root",
            dtypes=("float16", "float32"),
            result_dtype=lambda re, im: re,
            samples=lambda make: [
                (make(40), make(40)),
                (make((3, 4, 5)), make((3, 4, 5))),
                (make((6, 7), low=-1000, high=1000), make((6, 7), low=-1000, high=1000)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rounding_shift",
    "adding a half before the arithmetic shift rounds negative halves up instead of away from zero",
    "apache/tvm#3531: requantize rounds halves upward where TFLite rounds them away from zero",
    "[-40] with shift 4 is -2.5: the result is -2 where -3 is right; +40 gives 3 in both",
)
def rounding_shift():
    """Integers divided by 2 ** shift and rounded to the nearest, halves away from zero, as TFLite does."""

    def check(shift):
        if not 0 <= shift < 31:
            raise ValueError(f"shift is {shift}; give 0 to 30")

    def wrong(xp, a, shift=4):
        check(shift)
        half = (1 << shift) >> 1
        return ((a.astype("int64") + half) >> shift).astype(a.dtype)

    def right(xp, a, shift=4):
        check(shift)
        half = (1 << shift) >> 1
        wide = a.astype("int64")
        size = (xp.abs(wide) + half) >> shift
        return xp.where(wide < 0, -size, size).astype(a.dtype)

    def reference(a, shift=4):
        return (np.sign(a) * np.floor(np.abs(a.astype("float64")) / 2**shift + 0.5)).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rounding_shift",
            dtypes=("int16", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(50, low=-1000, high=1000),
                Sample((make((4, 25)),), {"shift": 1}),
                Sample((make((2, 3, 11), low=-30000, high=30000),), {"shift": 8}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"shift": -1}), ValueError, "shift is -1")],
        )

    return wrong, right, declare


@pair(
    "peak_level",
    "the magnitude is taken before widening, so the least integer stays negative",
    "numpy/numpy#14984: abs of the least integer of a dtype is that integer",
    "int16 samples [-32768, 5]: the peak is 5 where 32768 is right",
)
def peak_level():
    """The largest magnitude along an axis of integer audio, as int32; silence and no samples are 0."""

    def none(xp, a, axis):
        shape = list(a.shape)
        del shape[axis]
        return xp.zeros(tuple(shape), dtype="int32")

    def wrong(xp, a, axis=-1):
        if a.shape[axis] == 0:
            return none(xp, a, axis)
        return xp.abs(a).max(axis=axis).astype("int32")

    def right(xp, a, axis=-1):
        if a.shape[axis] == 0:
            return none(xp, a, axis)
        return xp.abs(a.astype("int32")).max(axis=axis)

    def reference(a, axis=-1):
        return np.abs(a.astype("int64")).max(axis=axis, initial=0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="peak_level",
            dtypes=("int8", "int16"),
            result_dtype="int32",
            samples=lambda make: [
                make(64),
                make((2, 100), low=-100, high=100),
                Sample((make((30, 4)),), {"axis": 0}),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "phase_counter_distance",
    "an unsigned difference wraps at 2 ** bits before the modulo, which is right only for periods that are powers of 2",
    "(head - tail) % capacity in ring buffers with unsigned indices, which needs a capacity that is a power of two",
    "uint32 counters 10 and 350 with period 360: the distance is 84 where 20 is right; period 256 is never wrong",
)
def phase_counter_distance():
    """The shorter way round between two counters that return to 0 at `period`."""

    def check(period):
        if not 2 <= period <= 10000:
            raise ValueError(f"period is {period}; give 2 to 10000")

    def wrong(xp, a, b, period=256):
        check(period)
        forth = (a - b) % period
        return xp.minimum(forth, period - forth)

    def right(xp, a, b, period=256):
        check(period)
        forth = (a % period + (period - b % period)) % period
        return xp.minimum(forth, period - forth)

    def reference(a, b, period=256):
        forth = (a.astype(object) - b.astype(object)) % period
        return np.minimum(forth, period - forth).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="phase_counter_distance",
            dtypes=("uint16", "uint32"),
            samples=lambda make: [
                (make(40, low=0, high=255), make(40, low=0, high=255)),
                (make((5, 8)), make((5, 8))),
                Sample((make(30, low=0, high=359), make(30, low=0, high=359)), {"period": 360}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(4)), {"period": 1}), ValueError, "period is 1")
            ],
        )

    return wrong, right, declare


@pair(
    "occupancy",
    "hits are counted in the dtype of the data: a float16 count down the rows stops at 2048",
    "numpy/numpy#15785: a sum of float16 ones over axis 0 stops at 2048",
    "6000 rows of ones in float16 above threshold 0: the occupancy is 0.3413 where 1 is right",
)
def occupancy():
    """For each column, the part of the rows that are above `threshold`; 0 where there are no rows."""

    def wrong(xp, a, threshold=0.0):
        hits = (a > threshold).astype(a.dtype)
        return (hits.sum(axis=0).astype("float64") / max(a.shape[0], 1)).astype(a.dtype)

    def right(xp, a, threshold=0.0):
        hits = (a > threshold).astype("float64")
        return (hits.sum(axis=0) / max(a.shape[0], 1)).astype(a.dtype)

    def reference(a, threshold=0.0):
        return np.count_nonzero(a > threshold, axis=0) / max(len(a), 1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="occupancy",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((30, 5)),
                make((200, 3, 4)),
                Sample((make((64, 7)),), {"threshold": 0.5}),
                Sample((make((0, 4)),), kind="empty"),
            ],
            reference=reference,
            bench=lambda make, sizes: [make((sizes.batch * sizes.length, sizes.width))],
        )

    return wrong, right, declare


@pair(
    "agreement",
    "the relative tolerance of an infinite expected number is infinite, so that every finite number agrees with it",
    "tracel-ai/burn#3340 and data-apis/array-api-extra#143: isclose(0, inf) is true",
    "values [0, inf] against expected [inf, inf]: 2 agree where 1 is right",
)
def agreement():
    """How many numbers along the last axis are close to the expected ones, by the rule of numpy.isclose."""

    def wrong(xp, a, expected, rtol=0.1, atol=0.25):
        a, expected = a.astype("float64"), expected.astype("float64")
        close = xp.abs(a - expected) <= atol + rtol * xp.abs(expected)
        return ((a == expected) | close).sum(axis=-1)

    def right(xp, a, expected, rtol=0.1, atol=0.25):
        a, expected = a.astype("float64"), expected.astype("float64")
        close = xp.abs(a - expected) <= atol + rtol * xp.abs(expected)
        return ((a == expected) | (close & xp.isfinite(expected))).sum(axis=-1)

    def reference(a, expected, rtol=0.1, atol=0.25):
        with np.errstate(all="ignore"):
            return np.isclose(a, expected, rtol=rtol, atol=atol).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="agreement",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(50), make(50)),
                (make((4, 30)), make((4, 30))),
                Sample((make((3, 20), low=-100, high=100), make((3, 20), low=-100, high=100)), {"rtol": 0.5}),
                Sample((make(12), make(12)), {"rtol": 0.0, "atol": 1.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "size_class",
    "integers are compared in the float32 of the bounds, so that those from 2 ** 24 on round up to a bound they miss",
    "after numpy/numpy#29727: searchsorted promotes to a floating dtype that cannot hold the integers",
    "a size of 2 ** 30 - 1 with the float32 bound 2 ** 30: the class is 1 where 0 is right",
)
def size_class():
    """How many of the bounds each size reaches: sizes are integers, bounds are floating and in any order."""

    def wrong(xp, sizes, bounds):
        return (sizes.astype(bounds.dtype)[..., None] >= bounds).sum(axis=-1)

    def right(xp, sizes, bounds):
        return (sizes.astype("float64")[..., None] >= bounds.astype("float64")).sum(axis=-1)

    def reference(sizes, bounds):
        return (sizes[..., None].astype("float64") >= bounds).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="size_class",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(40, dtype="int32", low=0, high=2000), make(6, low=0, high=2000)),
                (make((5, 8), dtype="int32"), make(4)),
                (make(60, dtype="int32", low=0, high=2**31 - 1), make.of([2.0**10, 2.0**20, 2.0**30])),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rising_edges",
    "the difference of truth values is exclusive or, so falling edges are counted too",
    "numpy/numpy#9259: diff of bool is exclusive or, so diff(a) > 0 counts both edges of a mask",
    "the mask [True, True, False]: 1 edge where 0 is right; [0, 0, 1] and floating signals are never wrong",
)
def rising_edges():
    """How often a signal rises from one sample to the next along the last axis."""

    def wrong(xp, a):
        return (xp.diff(a, axis=-1) > 0).sum(axis=-1)

    def right(xp, a):
        return (a[..., 1:] > a[..., :-1]).sum(axis=-1)

    def reference(a):
        return np.greater(a[..., 1:], a[..., :-1]).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rising_edges",
            dtypes=("bool", "float32"),
            result_dtype="int64",
            samples=lambda make: [make(40), make((3, 17)), make((2, 3, 9))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "running_peak",
    "a comparison chooses between the earlier peak and the new number, and loses an earlier NaN",
    "ml-explore/mlx#4044: the scan kernels of cummax drop NaN, or keep it at its own place only",
    "[1, 3, nan, 5, 4]: [1, 3, nan, 5, 5] where [1, 3, nan, nan, nan] is right",
)
def running_peak():
    """The largest number so far along the last axis, as numpy.maximum.accumulate, in log2(n) steps."""

    def scan(xp, a, larger):
        out, step = a.copy(), 1
        while step < a.shape[-1]:
            out = xp.concatenate([out[..., :step], larger(out[..., :-step], out[..., step:])], axis=-1)
            step *= 2
        return out

    def wrong(xp, a):
        return scan(xp, a, lambda before, now: xp.where(before > now, before, now))

    def right(xp, a):
        return scan(xp, a, xp.maximum)

    def reference(a):
        return np.maximum.accumulate(a, axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="running_peak",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(37),
                make((4, 16)),
                make((2, 3, 5), low=-1000, high=1000),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


def quantile_of(row, q):
    """The quantile q of a list of numbers, interpolated linearly."""
    if not row or any(map(math.isnan, row)):
        return math.nan
    row = sorted(row)
    low = int(q * (len(row) - 1))
    part = q * (len(row) - 1) - low
    if part == 0 or row[low] == row[low + 1]:
        return row[low]
    return row[low] + (row[low + 1] - row[low]) * part


@pair(
    "row_quantile",
    "interpolating between equal infinities, or by 0 towards an infinity, computes inf - inf or 0 * inf",
    "numpy/numpy#12282 and #21091: percentile gives nan for data with infinities, because it interpolates towards them",
    "the median of [1, inf, inf]: nan where inf is right; that of [1, 2, inf] is nan where 2 is right",
)
def row_quantile():
    """The quantile q along the last axis, interpolated linearly; NaN where a row is empty or holds NaN."""

    def between(xp, a, q, interpolate):
        if not 0 <= q <= 1:
            raise ValueError(f"q is {q}; give 0 to 1")
        if a.shape[-1] == 0:
            return xp.full(a.shape[:-1], math.nan, dtype=a.dtype)
        ordered = xp.sort(a.astype("float64"), axis=-1)
        place = q * (a.shape[-1] - 1)
        low = math.floor(place)
        lower, upper = ordered[..., low], ordered[..., min(low + 1, a.shape[-1] - 1)]
        result = interpolate(lower, upper, place - low)
        return xp.where(xp.isnan(a).any(axis=-1), math.nan, result).astype(a.dtype)

    def wrong(xp, a, q=0.5):
        return between(xp, a, q, lambda lower, upper, part: lower + (upper - lower) * part)

    def right(xp, a, q=0.5):
        def interpolate(lower, upper, part):
            return xp.where(lower == upper, lower, lower + (upper - lower) * part) if part else lower

        return between(xp, a, q, interpolate)

    def reference(a, q=0.5):
        out = np.empty(a.shape[:-1])
        for i in np.ndindex(out.shape):
            out[i] = quantile_of(a[i].tolist(), q)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="row_quantile",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(21),
                make((4, 10)),
                Sample((make((3, 2, 16)),), {"q": 0.9}),
                Sample((make((5, 9), low=-1000, high=1000),), {"q": 0.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"q": 1.5}), ValueError, r"q is 1\.5")],
        )

    return wrong, right, declare


@pair(
    "scale_by_power",
    "2 ** exponent is computed in the dtype of the numbers and overflows though the product fits",
    "jax-ml/jax#28040 and pytorch/pytorch#133265: ldexp(x, n) as x * 2 ** n returns infinity for float16 0.5 and 16",
    "float16 0.5 with exponent 16: inf where 32768 is right; 0 with exponent 16 gives nan",
)
def scale_by_power():
    """a * 2 ** exponents, as numpy.ldexp."""

    def wrong(xp, a, exponents):
        return a * xp.exp2(exponents.astype(a.dtype))

    def right(xp, a, exponents):
        power = xp.exp2(xp.clip(exponents, -600, 600).astype("float64"))
        return (a.astype("float64") * power).astype(a.dtype)

    def reference(a, exponents):
        with np.errstate(all="ignore"):
            return np.ldexp(a, exponents)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="scale_by_power",
            dtypes=("float16", "float32"),
            result_dtype=lambda a, exponents: a,
            samples=lambda make: [
                (make(40), make(40, dtype="int32")),
                (make((5, 9)), make((5, 9), dtype="int32", low=-16, high=16)),
                (make((3, 4, 6)), make(6, dtype="int32", low=-8, high=8)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cross_phase",
    "the product of two small spectra underflows to 0, and that of two large ones overflows, before it is normalised",
    "scikit-image#5461, opencv/opencv#29850: the magnitude that divides the cross power spectrum may be 0 in float32",
    "a = b = 1e-25 + 0j in complex64: 0 where 1 is right; a = b = 1e25 gives nan",
)
def cross_phase():
    """The phase of a * conj(b) as a number of magnitude 1; 0 where a or b is 0, NaN where one is not finite."""

    def finish(xp, a, b, product):
        size = xp.abs(product)
        unit = xp.where(size > 0, product / xp.where(size > 0, size, 1.0), 0.0)
        return xp.where(xp.isfinite(a) & xp.isfinite(b), unit, complex(math.nan, math.nan)).astype(a.dtype)

    def wrong(xp, a, b):
        return finish(xp, a, b, a * xp.conj(b))

    def right(xp, a, b):
        return finish(xp, a, b, a.astype("complex128") * xp.conj(b.astype("complex128")))

    def reference(a, b):
        with np.errstate(all="ignore"):
            product = a * np.conj(b)
            size = np.hypot(product.real, product.imag)
            out = product / np.where(size > 0, size, 1.0)
        out[~(np.isfinite(a) & np.isfinite(b))] = complex(np.nan, np.nan)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cross_phase",
            dtypes=("complex64",),
            result_dtype=lambda a, b: a,
            samples=lambda make: [(make(33), make(33)), (make((4, 8)), make((4, 8)))],
            reference=reference,
        )

    return wrong, right, declare
