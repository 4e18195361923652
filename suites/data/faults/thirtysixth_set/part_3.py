"""Numerics: cancellation, overflow, accumulators, loops, ties, zeros, infinities, sizes, shapes: faults with twins."""

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
    "sinc_slope",
    "two nearly equal numbers are subtracted next to zero",
    "Julia's cosc: exact at 0 but without correct digits close to it, until a series was added for small arguments",
    "arguments such as 1e-4 in float32: the difference of cosine and sinc is all rounding error",
)
def sinc_slope():
    """The derivative of sin(pi a) / (pi a)."""

    def quotient(xp, a):
        turn = a - 2 * xp.round(a / 2)
        return (xp.cos(math.pi * turn) - xp.sin(math.pi * turn) / (math.pi * a)) / a

    def finish(xp, a, result):
        return xp.where(xp.isinf(a), 0.0, result).astype(a.dtype)

    def wrong(xp, a):
        plain = (a != 0) & ~xp.isinf(a)
        result = quotient(xp, xp.where(plain, a, 1.0).astype(a.dtype))
        return finish(xp, a, xp.where(a == 0, 0.0, result))

    def right(xp, a):
        near = xp.abs(a) < 0.5
        result = quotient(xp, xp.where(near | xp.isinf(a), 1.0, a).astype(a.dtype))
        close = xp.where(near, a, 0.0).astype(a.dtype)
        square = (math.pi * close) * (math.pi * close)
        series = xp.zeros_like(close)
        for k in range(12, 0, -1):
            series = series * square + (-1) ** k * 2 * k / math.factorial(2 * k + 1)
        return finish(xp, a, xp.where(near, series * (math.pi * math.pi) * close, result))

    def reference(a):
        a = np.asarray(a)
        out = np.zeros(a.shape)
        for i in np.ndindex(a.shape):
            v = float(a[i])
            if abs(v) < 0.5:
                out[i] = math.fsum(
                    (-1) ** k * math.pi ** (2 * k) * v ** (2 * k - 1) * 2 * k / math.factorial(2 * k + 1)
                    for k in range(1, 16)
                )
            elif not math.isinf(v):
                turn = v - 2 * np.round(v / 2)
                out[i] = (np.cos(math.pi * turn) - np.sin(math.pi * turn) / (math.pi * v)) / v
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sinc_slope",
            dtypes=("float32", "float64"),
            samples=lambda make: [make(60), make((4, 9)), make.of([0.0, 0.5, -1.0, 2.25])],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "floored_remainder",
    "the remainder is computed from the quotient",
    "torch.remainder for floats was a - b * floor(a / b): NaN where Python's modulo of an infinite divisor is finite",
    "an infinite divisor under a finite number: 5 modulo inf is NaN instead of 5",
)
def floored_remainder():
    """The remainder with the sign of the divisor, as Python's and NumPy's for floats."""

    def wrong(xp, a, divisor):
        return (a - divisor * xp.floor(a / divisor)).astype(a.dtype)

    def right(xp, a, divisor):
        rest = xp.fmod(a, divisor)
        lift = (rest != 0) & ((rest < 0) != (divisor < 0))
        return xp.where(lift, rest + divisor, rest).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="floored_remainder",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, divisor: a,
            samples=lambda make: [
                (make(50), make(50)),
                (make((4, 7), low=-20, high=20), make((4, 7), low=0.5, high=9)),
                Sample((make((3, 8)), make(8)), kind="broadcast"),
            ],
            reference=lambda a, divisor: np.remainder(a, divisor),
        )

    return wrong, right, declare


@pair(
    "integer_ramp",
    "the distance of the ends is taken in their own dtype",
    "torch.linspace for integers: the step came from end - start in the integer type, which overflows for wide ranges",
    "ends that are further apart than the dtype's largest number, such as -2e9 and 2e9 in int32",
)
def integer_ramp():
    """`count` evenly spaced integers from `first` to `last`, both included, rounded down, along a new last axis."""

    def check(count):
        if count < 2:
            raise ValueError(f"count is {count}; give 2 or more")

    def fill(xp, first, distance, count):
        places = xp.arange(count, dtype="int64")
        steps = distance.astype("int64")[..., None] * places // (count - 1)
        return (first.astype("int64")[..., None] + steps).astype(first.dtype)

    def wrong(xp, first, last, count=5):
        check(count)
        return fill(xp, first, last - first, count)

    def right(xp, first, last, count=5):
        check(count)
        return fill(xp, first, last.astype("int64") - first.astype("int64"), count)

    def reference(first, last, count=5):
        first, last = np.broadcast_arrays(np.asarray(first), np.asarray(last))
        out = np.zeros((*first.shape, count), dtype="int64")
        for i in np.ndindex(first.shape):
            low, high = int(first[i]), int(last[i])
            out[i] = [(low * (count - 1 - k) + high * k) // (count - 1) for k in range(count)]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="integer_ramp",
            dtypes=("int16", "int32"),
            result_dtype=lambda first, last: first,
            samples=lambda make: [
                (make(12), make(12)),
                Sample((make((3, 4)), make((3, 4))), {"count": 8}),
                Sample((make(9), make(9)), {"count": 2}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4), make(4)), {"count": 1}), ValueError, "count is 1")],
        )

    return wrong, right, declare


@pair(
    "heading_angle",
    "a comparison with zero stands for the sign bit",
    "the array API's special cases of atan2, which backends that build it from a half plane miss for y = -0.0",
    "y = -0.0 with a negative x: pi instead of -pi",
)
def heading_angle():
    """The angle of the vector (x, y), as arctan2."""

    def scaled(xp, angle, degrees):
        return angle * (180 / math.pi) if degrees else angle

    def wrong(xp, y, x, degrees=False):
        half = xp.arctan2(xp.abs(y), x)
        return scaled(xp, xp.where(y < 0, -half, half), degrees).astype(y.dtype)

    def right(xp, y, x, degrees=False):
        half = xp.arctan2(xp.abs(y), x)
        return scaled(xp, xp.copysign(half, y), degrees).astype(y.dtype)

    def reference(y, x, degrees=False):
        angle = np.arctan2(y, x)
        return np.degrees(angle) if degrees else angle

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="heading_angle",
            dtypes=("float32", "float64"),
            result_dtype=lambda y, x: y,
            samples=lambda make: [
                (make(50), make(50)),
                Sample((make((5, 7)), make((5, 7))), {"degrees": True}),
                Sample((make((4, 6)), make(6)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "elliptic_k",
    "the loop has a fixed number of rounds, too few near the end of the range",
    "elliptic integrals in device code: a fixed number of arithmetic-geometric rounds that was tuned in the middle",
    "parameters close to 1, such as 0.9999: four rounds do not converge there",
)
def elliptic_k():
    """The complete elliptic integral of the first kind of the parameter m from 0 to 1; infinite at 1."""

    def mean_of_both(xp, m, rounds):
        upper, lower = xp.ones_like(m), xp.sqrt(1 - m)
        for _ in range(rounds):
            upper, lower = (upper + lower) / 2, xp.sqrt(upper * lower)
        return upper

    def finish(xp, m, mean):
        return xp.where(m == 1, math.inf, (math.pi / 2) / mean).astype(m.dtype)

    def wrong(xp, m):
        return finish(xp, m, mean_of_both(xp, m, 4))

    def right(xp, m):
        return finish(xp, m, mean_of_both(xp, m, 8))

    def reference(m):
        m = np.asarray(m, dtype="float64")
        out = np.full(m.shape, math.inf)
        for i in np.ndindex(m.shape):
            upper, lower = 1.0, math.sqrt(1 - m[i])
            while lower > 0 and abs(upper - lower) > 1e-9 * upper:
                upper, lower = (upper + lower) / 2, math.sqrt(upper * lower)
            if lower != 0:
                out[i] = math.pi / (upper + lower)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="elliptic_k",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(40, low=0, high=1),
                make((3, 7), low=0, high=1),
                make.of([0.0, 0.25, 0.5, 0.75]),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "running_xor",
    "the totals of the blocks are scanned within one block only",
    "textbook two-level scans on GPUs, which are right up to the square of the block size and are used beyond it",
    "rows of more than 1024 numbers, with blocks of 32",
)
def running_xor():
    """The exclusive-or of all numbers up to each, along the last axis, in blocks of 32."""

    size = 32

    def within(xp, a):
        """Each block's own scan, and the totals of the blocks."""
        length = a.shape[-1]
        blocks = -(-length // size)
        rest = xp.zeros((*a.shape[:-1], blocks * size - length), dtype=a.dtype)
        tiles = xp.concatenate([a, rest], axis=-1).reshape((*a.shape[:-1], blocks, size))
        step = 1
        while step < size:
            tiles = xp.concatenate([tiles[..., :step], tiles[..., step:] ^ tiles[..., :-step]], axis=-1)
            step *= 2
        return tiles, tiles[..., -1]

    def combine(xp, a, tiles, scanned):
        before = xp.concatenate([xp.zeros_like(scanned[..., :1]), scanned[..., :-1]], axis=-1)
        flat = (tiles ^ before[..., None]).reshape((*a.shape[:-1], tiles.shape[-2] * size))
        return flat[..., : a.shape[-1]].copy()

    def wrong(xp, a):
        if a.size == 0:
            return a.copy()
        tiles, totals = within(xp, a)
        scanned, _ = within(xp, totals)
        scanned = scanned.reshape((*totals.shape[:-1], scanned.shape[-2] * size))[..., : totals.shape[-1]]
        return combine(xp, a, tiles, scanned)

    def right(xp, a):
        if a.size == 0:
            return a.copy()
        tiles, totals = within(xp, a)
        return combine(xp, a, tiles, right(xp, totals) if totals.shape[-1] > 1 else totals)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="running_xor",
            dtypes=("uint8", "int32", "int64"),
            samples=lambda make: [
                make(100),
                make((3, 70)),
                make(32),
                Sample((make((2, 0)),), kind="empty"),
            ],
            reference=lambda a: np.bitwise_xor.accumulate(a, axis=-1),
        )

    return wrong, right, declare


@pair(
    "r_squared",
    "a small number in the denominator stands for the case of a constant target",
    "scikit-learn's r2_score defines a constant target as 0 or 1; ports clamp the denominator and return -1e8 or so",
    "a row of equal true values with any error in the prediction; also true values that differ by 1e-5 or less",
)
def r_squared():
    """The coefficient of determination along the last axis; of a constant target 1 if it is met, otherwise 0."""

    def check(truth):
        if truth.shape[-1] == 0:
            raise ValueError("no values to score")

    def sums(xp, truth, predicted):
        truth, predicted = truth.astype("float64"), predicted.astype("float64")
        off = truth - truth.mean(axis=-1, keepdims=True)
        return ((truth - predicted) ** 2).sum(axis=-1), (off * off).sum(axis=-1)

    def wrong(xp, truth, predicted):
        check(truth)
        residual, total = sums(xp, truth, predicted)
        return (1 - residual / xp.maximum(total, 1e-8)).astype(truth.dtype)

    def right(xp, truth, predicted):
        check(truth)
        residual, total = sums(xp, truth, predicted)
        constant = truth.max(axis=-1) == truth.min(axis=-1)
        score = 1 - residual / xp.where(constant, 1.0, total)
        met = xp.where(residual > 0, 0.0, 1 - residual)
        return xp.where(constant, met, score).astype(truth.dtype)

    def reference(truth, predicted):
        truth, predicted = np.asarray(truth), np.asarray(predicted)
        out = np.zeros(truth.shape[:-1])
        for i in np.ndindex(out.shape):
            residual = ((truth[i] - predicted[i]) ** 2).sum()
            if truth[i].max() == truth[i].min():
                out[i] = 0.0 if residual > 0 else 1 - residual
            else:
                out[i] = 1 - residual / ((truth[i] - truth[i].mean()) ** 2).sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="r_squared",
            dtypes=("float32",),
            samples=lambda make: [
                (make(30), make(30)),
                (make((4, 25)), make((4, 25))),
                (make((2, 3, 40), low=0, high=100), make((2, 3, 40), low=0, high=100)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((3, 0)), make((3, 0))), ValueError, "no values")],
        )

    return wrong, right, declare


@pair(
    "kendall_tau",
    "pairs that are tied in both rankings are not counted as ties of either",
    "Kendall's tau-b in data frame and metrics libraries: ties in one ranking alone were subtracted, joint ties not",
    "two places that agree in both arrays, such as a repeated row of small integers",
)
def kendall_tau():
    """Kendall's tau-b of two arrays along their last axis; NaN where one of them has no two different values."""

    def orders(xp, a):
        here, there = a[..., :, None], a[..., None, :]
        return (here > there).astype("int64") - (here < there).astype("int64")

    def finish(xp, dtype, concord, first, second):
        product = first.astype("float64") * second.astype("float64")
        tau = concord.astype("float64") / xp.sqrt(xp.maximum(product, 1.0))
        return xp.where(product > 0, tau, math.nan).astype(dtype)

    def wrong(xp, a, b):
        x, y = orders(xp, a), orders(xp, b)
        pairs = a.shape[-1] * (a.shape[-1] - 1)
        only_x = ((x == 0) & (y != 0)).sum(axis=(-2, -1))
        only_y = ((y == 0) & (x != 0)).sum(axis=(-2, -1))
        return finish(xp, a.dtype, (x * y).sum(axis=(-2, -1)), pairs - only_x, pairs - only_y)

    def right(xp, a, b):
        x, y = orders(xp, a), orders(xp, b)
        different_x, different_y = (x != 0).sum(axis=(-2, -1)), (y != 0).sum(axis=(-2, -1))
        return finish(xp, a.dtype, (x * y).sum(axis=(-2, -1)), different_x, different_y)

    def reference(a, b):
        a, b = np.asarray(a), np.asarray(b)
        out = np.full(a.shape[:-1], math.nan)
        for i in np.ndindex(out.shape):
            x, y = a[i], b[i]
            concord, first, second = 0, 0, 0
            for k in range(1, len(x)):
                up = (x[k] > x[:k]).astype(int) - (x[k] < x[:k]).astype(int)
                right_of = (y[k] > y[:k]).astype(int) - (y[k] < y[:k]).astype(int)
                concord += int((up * right_of).sum())
                first += np.count_nonzero(up)
                second += np.count_nonzero(right_of)
            if first and second:
                out[i] = concord / math.sqrt(first) / math.sqrt(second)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="kendall_tau",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, b: a,
            samples=lambda make: [
                (make(20), make(20)),
                (make((3, 15)), make((3, 15))),
                (make(16), make(16, dtype="int64", low=0, high=3)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "soft_shrink",
    "NaN takes the branch of the numbers within the threshold",
    "torch's softshrink and hardshrink: NaN fails both comparisons and became 0, in some backends only",
    "a NaN in the input: 0 comes out",
)
def soft_shrink():
    """Each number moved towards zero by `threshold`, and 0 if it is closer than that; NaN stays."""

    def check(threshold):
        if threshold < 0:
            raise ValueError(f"threshold is {threshold}; give 0 or more")

    def wrong(xp, a, threshold=0.5):
        check(threshold)
        below = xp.where(a < -threshold, a + threshold, 0.0)
        return xp.where(a > threshold, a - threshold, below).astype(a.dtype)

    def right(xp, a, threshold=0.5):
        check(threshold)
        return xp.where(xp.abs(a) <= threshold, 0.0, a - xp.sign(a) * threshold).astype(a.dtype)

    def reference(a, threshold=0.5):
        return a - np.clip(a, -threshold, threshold)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="soft_shrink",
            dtypes=("float32", "float64"),
            samples=lambda make: [make(60), Sample((make((5, 8)),), {"threshold": 1.25}), make(7, low=-100, high=100)],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"threshold": -1}), ValueError, "threshold is -1")
            ],
        )

    return wrong, right, declare


@pair(
    "swept_sine",
    "the phase is added up in the dtype of the signal and never wrapped",
    "oscillator banks of audio libraries: cumsum of radians in float32 drifts audibly in long signals",
    "a long row of frequencies, some thousand samples in float32",
)
def swept_sine():
    """A sine whose frequency, in cycles per sample from 0 to 0.5, is given for each sample; phases add up exactly."""

    def wrong(xp, frequency):
        return xp.sin(xp.cumsum((2 * math.pi) * frequency, axis=-1)).astype(frequency.dtype)

    def right(xp, frequency):
        cycles = xp.cumsum(frequency.astype("float64"), axis=-1)
        return xp.sin((2 * math.pi) * (cycles - xp.round(cycles))).astype(frequency.dtype)

    def reference(frequency):
        cycles = np.cumsum(frequency, axis=-1)
        return np.sin(2 * np.pi * (cycles - np.floor(cycles)))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="swept_sine",
            dtypes=("float32",),
            samples=lambda make: [
                make(64, low=0, high=0.5),
                make((3, 50), low=0, high=0.01),
                make((2, 2, 30), low=0, high=0.1),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "gain_in_decibels",
    "the smaller operand is indexed by the flat index modulo its size",
    "element-wise kernels of small inference runtimes that broadcast by i % n, right for trailing axes only",
    "gains of shape (n, 1) for a signal of shape (n, m): one gain for each row",
)
def gain_in_decibels():
    """A signal times the factor of a gain in decibels; the two are broadcast."""

    def factors(xp, gain):
        return 10.0 ** (gain.astype("float64") / 20)

    def wrong(xp, signal, gain):
        shape = np.broadcast_shapes(signal.shape, gain.shape)
        count = math.prod(shape)
        if count == 0:
            return xp.zeros(shape, dtype=signal.dtype)
        cycled = factors(xp, gain).reshape(-1)[xp.arange(count) % gain.size].reshape(shape)
        return (signal.astype("float64") * cycled).astype(signal.dtype)

    def right(xp, signal, gain):
        return (signal.astype("float64") * factors(xp, gain)).astype(signal.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gain_in_decibels",
            dtypes=("float32", "float64"),
            result_dtype=lambda signal, gain: signal,
            samples=lambda make: [
                (make(40), make(40, low=-40, high=40)),
                (make((3, 5)), make((3, 5), low=-6, high=6)),
                Sample((make((4, 9)), make(9, low=-20, high=20)), kind="broadcast"),
            ],
            reference=lambda signal, gain: signal * 10 ** (gain / 20),
        )

    return wrong, right, declare


@pair(
    "projection_weight",
    "the squares overflow and underflow in the dtype of the input",
    "vector projection and complex division in array libraries: a quotient near 1 becomes NaN for large operands",
    "vectors with entries beyond 1e19 in float32 give NaN; below 1e-23 they count as zero vectors",
)
def projection_weight():
    """The factor of `onto` that is closest to `a`, along the last axis; 0 for a zero vector."""

    def weight(xp, a, onto):
        product, square = (a * onto).sum(axis=-1), (onto * onto).sum(axis=-1)
        return xp.where(square == 0, 0.0, product / xp.where(square == 0, 1.0, square))

    def wrong(xp, a, onto):
        return weight(xp, a, onto).astype(a.dtype)

    def right(xp, a, onto):
        return weight(xp, a.astype("float64"), onto.astype("float64")).astype(a.dtype)

    def reference(a, onto):
        product, square = np.asarray((a * onto).sum(-1)), np.asarray((onto * onto).sum(-1))
        return np.divide(product, square, out=np.zeros_like(product), where=square != 0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="projection_weight",
            dtypes=("float32",),
            samples=lambda make: [
                (make(24), make(24)),
                (make((5, 9)), make((5, 9))),
                (make((2, 3, 17)), make((2, 3, 17))),
            ],
            reference=reference,
        )

    return wrong, right, declare
