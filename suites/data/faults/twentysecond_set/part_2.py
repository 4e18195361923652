"""Optimizers, losses, signals, finance, linear solves, sampling, bits, calendars: faults with their twins."""

import datetime
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
    "days_30_360",
    "the second day is looked at before the first has been brought from 31 to 30",
    "day counts of bond libraries: the two adjustments of 30/360 written in the other order",
    "from 1970-01-31 to 1970-03-31: 61 days where 30/360 counts 60",
)
def days_30_360():
    """Days between two dates by the bond basis 30/360; dates are days since 1970-01-01.

    A first day of 31 counts as 30; then a second day of 31 counts as 30 where the first day counts as 30.
    """

    def civil(days):
        days = days.astype("int64") + 719468
        era = days // 146097
        of_era = days - era * 146097
        year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
        of_year = of_era - (365 * year + year // 4 - year // 100)
        shifted = (5 * of_year + 2) // 153
        day = of_year - (153 * shifted + 2) // 5 + 1
        month = (shifted + 2) % 12 + 1
        return year + era * 400 + (month <= 2), month, day

    def count(first, second):
        return 360 * (second[0] - first[0]) + 30 * (second[1] - first[1]) + second[2] - first[2]

    def wrong(xp, start, end):
        y1, m1, d1 = civil(start)
        y2, m2, d2 = civil(end)
        d2 = xp.where((d2 == 31) & (d1 == 30), 30, d2)
        d1 = xp.minimum(d1, 30)
        return count((y1, m1, d1), (y2, m2, d2))

    def right(xp, start, end):
        y1, m1, d1 = civil(start)
        y2, m2, d2 = civil(end)
        d1 = xp.minimum(d1, 30)
        d2 = xp.where((d2 == 31) & (d1 == 30), 30, d2)
        return count((y1, m1, d1), (y2, m2, d2))

    def reference(start, end):
        start, end = np.broadcast_arrays(start, end)
        out = np.zeros(start.shape, dtype="int64")
        epoch = datetime.date(1970, 1, 1)
        for i in np.ndindex(out.shape):
            first = epoch + datetime.timedelta(days=int(start[i]))
            second = epoch + datetime.timedelta(days=int(end[i]))
            a, b = first.day, second.day
            if a == 31:
                a = 30
            if b == 31 and a == 30:
                b = 30
            out[i] = (second.year - first.year) * 360 + (second.month - first.month) * 30 + b - a
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="days_30_360",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                (make(40, low=0, high=40000), make(40, low=0, high=40000)),
                (make((3, 7), low=-25000, high=0), make((3, 7), low=0, high=25000)),
                Sample((make((4, 6), low=0, high=20000), make(6, low=0, high=20000)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "mel_energies",
    "the filter bank is kept by the numbers of bins and bands, without the sampling rate",
    "audio front ends: caches of filter banks keyed by their shape alone",
    "two calls with 65 bins, at 16000 Hz and then at 8000 Hz: the second gets the first one's bands",
)
def mel_energies():
    """Energies in triangular mel bands (HTK's scale) of power spectra (..., bins), from 0 Hz to half of `rate`."""

    def check(mels, rate):
        if mels < 1:
            raise ValueError(f"mels is {mels}; give 1 or more")
        if rate <= 0:
            raise ValueError(f"rate is {rate}; give more than 0")

    def filters(bins, mels, rate):
        top = 2595.0 * np.log10(1.0 + rate / 2 / 700.0)
        edges = 700.0 * (10.0 ** (np.linspace(0.0, top, mels + 2) / 2595.0) - 1.0)
        edges[-1] = rate / 2
        bins = np.linspace(0.0, rate / 2, bins)
        up = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        down = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
        return np.maximum(0.0, np.minimum(up, down))

    def apply(xp, power, bank):
        wide = power.astype("float64")
        return (wide[..., None, :] * xp.asarray(bank)).sum(axis=-1).astype(power.dtype)

    kept_by_shape = {}
    kept = {}

    def wrong(xp, power, mels=8, rate=16000):
        check(mels, rate)
        key = (power.shape[-1], mels)
        if key not in kept_by_shape:
            kept_by_shape[key] = filters(*key, rate)
        return apply(xp, power, kept_by_shape[key])

    def right(xp, power, mels=8, rate=16000):
        check(mels, rate)
        key = (power.shape[-1], mels, rate)
        if key not in kept:
            kept[key] = filters(*key)
        return apply(xp, power, kept[key])

    def reference(power, mels=8, rate=16000):
        bins = power.shape[-1]

        def hertz(i):
            return rate / 2 if i == mels + 1 else 700.0 * ((1.0 + rate / 2 / 700.0) ** (i / (mels + 1)) - 1.0)

        out = np.zeros((*power.shape[:-1], mels))
        for band in range(mels):
            low, centre, high = hertz(band), hertz(band + 1), hertz(band + 2)
            for k in range(bins):
                f = k * (rate / 2) / (bins - 1) if bins > 1 else 0.0
                if f <= centre:
                    weight = (f - low) / (centre - low)
                else:
                    weight = (high - f) / (high - centre)
                out[..., band] += power[..., k] * max(0.0, weight)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mel_energies",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((5, 65), low=0, high=10),
                Sample((make((2, 3, 33), low=0, high=10),), {"rate": 8000}),
                Sample((make(129, low=0, high=10),), {"mels": 13, "rate": 22050}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 9), low=0, high=1),), {"mels": 0}), ValueError, "mels is 0"),
                ErrorInput(Sample((make((2, 9), low=0, high=1),), {"rate": 0}), ValueError, "rate is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "hamming_distance",
    "counts of bits are added up in uint8 for 32 words, and 32 times 8 bits are 256",
    "population counts with NEON or AVX2: the lanes of bytes were widened after 32 steps, not after 31",
    "fingerprints of 2048 bits, all 0 and all 1: the distance is 0 where it is 2048",
)
def hamming_distance():
    """The number of bits in which rows of packed bits (uint8, any length) differ, along the last axis."""

    def bits(x):
        x = x - ((x >> 1) & 0x55)
        x = (x & 0x33) + ((x >> 2) & 0x33)
        return (x + (x >> 4)) & 0x0F

    def total(xp, a, b, steps):
        counts = bits(a ^ b)
        lanes = 8
        rest = -counts.shape[-1] % lanes
        if rest:
            counts = xp.concatenate([counts, xp.zeros((*counts.shape[:-1], rest), dtype="uint8")], axis=-1)
        words = counts.reshape((*counts.shape[:-1], counts.shape[-1] // lanes, lanes))
        wide = xp.zeros((*counts.shape[:-1], lanes), dtype="int64")
        for start in range(0, words.shape[-2], steps):
            narrow = words[..., start, :]
            for step in range(start + 1, min(start + steps, words.shape[-2])):
                narrow = narrow + words[..., step, :]
            wide = wide + narrow.astype("int64")
        return wide.sum(axis=-1)

    def wrong(xp, a, b):
        return total(xp, a, b, 32)

    def right(xp, a, b):
        return total(xp, a, b, 31)

    def reference(a, b):
        a, b = np.broadcast_arrays(a, b)
        return np.unpackbits(np.bitwise_xor(a, b), axis=-1).sum(axis=-1, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="hamming_distance",
            dtypes=("uint8",),
            samples=lambda make: [
                (make((6, 64), low=0, high=255), make((6, 64), low=0, high=255)),
                (make(33, low=0, high=255), make(33, low=0, high=255)),
                (make((2, 3, 300), low=0, high=255), make((2, 3, 300), low=0, high=255)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cloglog_loss",
    "log(1 - exp(-t)) is computed by log1p(-exp(-t)) where t is small too",
    "statsmodels' link CLogLog and losses that copy it: 1 - exp(-exp(eta)) rounds to 0 for a small rate",
    "float32, eta = -20 for an event that happened: the loss is inf where it is 20",
)
def cloglog_loss():
    """Negative log-likelihood of events under the complementary log-log link, for each element.

    The probability of an event is 1 - exp(-exp(eta)). `happened` says which events happened.
    """

    def wrong(xp, eta, happened):
        rate = xp.exp(eta)
        return xp.where(happened, -xp.log1p(-xp.exp(-rate)), rate)

    def right(xp, eta, happened):
        wide = eta.astype("float64")
        small = wide < -37.0
        rate = xp.exp(wide)
        of_event = xp.where(small, 1.0, rate)
        event = xp.where(small, -wide, -xp.log(-xp.expm1(-of_event)))
        # for large rates 1 - exp(-rate) is near 1, and log1p keeps what it lacks
        event = xp.where(of_event > 0.7, xp.where(small, -wide, -xp.log1p(-xp.exp(-of_event))), event)
        return xp.where(happened, event, rate).astype(eta.dtype)

    def reference(eta, happened):
        eta, happened = np.broadcast_arrays(eta, happened)
        out = np.zeros(eta.shape)
        for i in np.ndindex(out.shape):
            value = float(eta[i])
            try:
                rate = math.exp(value)
            except OverflowError:
                rate = math.inf
            if not happened[i]:
                out[i] = rate
            elif value < -40:
                out[i] = -value
            elif rate < 0.5:
                out[i] = -math.log(-math.expm1(-rate))
            else:
                out[i] = -math.log1p(-math.exp(-rate))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cloglog_loss",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40), make(40, dtype="bool")),
                (make((4, 9), low=-5, high=2), make((4, 9), dtype="bool")),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "digit_count",
    "the logarithm is taken in float64, which rounds 10**k - 1 up to 10**k from 10**16 on",
    "column widths of printers of tables (NumPy, pandas): floor(log10(x)) + 1 for 64-bit integers",
    "int64, 999999999999999999: 19 digits where it has 18",
)
def digit_count():
    """How many decimal digits an integer has, without its sign; 0 has one."""

    def wrong(xp, n):
        magnitude = xp.abs(n.astype("float64"))
        return xp.floor(xp.log10(xp.maximum(magnitude, 1.0))).astype("int64") + 1

    def right(xp, n):
        wide = n.astype("int64")
        # one less than the magnitude of a negative number: that of the lowest one does not fit
        negative = wide < 0
        magnitude = xp.where(negative, -(wide + 1), wide)
        less = negative.astype("int64")
        digits = xp.ones(n.shape, dtype="int64")
        for k in range(1, 19):
            digits = digits + (magnitude >= 10**k - less).astype("int64")
        return digits

    def reference(n):
        out = np.zeros(n.shape, dtype="int64")
        for i in np.ndindex(out.shape):
            out[i] = len(str(abs(int(n[i]))))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="digit_count",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(50),
                make((4, 9), low=-(10**6), high=10**6),
                make(64, dtype="int64", low=-(2**62), high=2**62),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "radical_inverse",
    "the number of digits is the rounded-up logarithm of the largest index, one too few for a power of the base",
    "Halton and van der Corput generators: ceil(log(n) / log(base)) digits",
    "indices 0 to 8 in base 2: index 8 gives 0 where it gives 1/16",
)
def radical_inverse():
    """Van der Corput numbers: the digits of each index (0 or more) in `base`, mirrored at the point."""

    def check(base):
        if base < 2:
            raise ValueError(f"base is {base}; give 2 or more")

    def mirror(xp, index, base, digits):
        rest = index.astype("int64")
        value = xp.zeros(index.shape, dtype="float64")
        weight = 1.0
        for _ in range(digits):
            weight = weight / base
            value = value + (rest % base).astype("float64") * weight
            rest = rest // base
        return value

    def wrong(xp, index, base=2):
        check(base)
        top = int(index.max()) if index.size else 0
        return mirror(xp, index, base, max(1, math.ceil(math.log(top, base))) if top else 0)

    def right(xp, index, base=2):
        check(base)
        top = int(index.max()) if index.size else 0
        digits = 0
        while top > 0:
            top //= base
            digits += 1
        return mirror(xp, index, base, digits)

    def reference(index, base=2):
        out = np.zeros(index.shape)
        for i in np.ndindex(out.shape):
            rest, mirrored, size = int(index[i]), 0, 1
            while rest:
                rest, digit = divmod(rest, base)
                mirrored = mirrored * base + digit
                size *= base
            out[i] = mirrored / size
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="radical_inverse",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(40, low=0, high=1000),
                Sample((make((4, 9), low=0, high=500),), {"base": 3}),
                Sample((make((3, 5), low=0, high=10**6),), {"base": 10}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=9),), {"base": 1}), ValueError, "base is 1"),
            ],
        )

    return wrong, right, declare


@pair(
    "busy_minutes",
    "each entry is cut by the end of the entry before it, not by the latest end so far",
    "merging of intervals in calendars and in coverage tools: an interval inside another resets the end",
    "entries 0 to 10, 2 to 3, 4 to 12: 18 minutes where 12 are covered",
)
def busy_minutes():
    """Minutes that the entries of a calendar cover, each minute once; entries may overlap, in any order.

    `starts` and `durations` (0 or more) are 1-d, of one length.
    """

    def ordered(xp, starts, durations):
        order = xp.argsort(starts)
        begin = starts.astype("int64")[order]
        return begin, begin + durations.astype("int64")[order]

    def covered(xp, begin, end, reach):
        before = xp.concatenate([begin[:1], reach[:-1]])
        return xp.maximum(end - xp.maximum(begin, before), 0).sum()

    def wrong(xp, starts, durations):
        begin, end = ordered(xp, starts, durations)
        return covered(xp, begin, end, end)

    def right(xp, starts, durations):
        begin, end = ordered(xp, starts, durations)
        reach, step = end, 1
        while step < reach.shape[0]:
            reach = xp.concatenate([reach[:step], xp.maximum(reach[step:], reach[:-step])])
            step *= 2
        return covered(xp, begin, end, reach)

    def reference(starts, durations):
        total, reach = 0, None
        for begin, length in sorted(zip(starts.tolist(), durations.tolist(), strict=True)):
            end = begin + length
            if reach is None or begin >= reach:
                total += length
                reach = end
            elif end > reach:
                total += end - reach
                reach = end
        return np.asarray(total, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="busy_minutes",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                (make(8, low=0, high=1440), make(8, low=0, high=45)),
                (make(40, low=0, high=40000), make(40, low=0, high=120)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "delta_encode",
    "an array in Fortran's order is read in the order of memory",
    "numcodecs' filter Delta: the array was flattened by reshape(-1, order='A')",
    "the transpose of a C-ordered array [[0, 1], [5, 9]]: 0 1 4 4 where row by row it is 0 5 -4 8",
)
def delta_encode():
    """The entries of an array, row by row, as the first one and then differences; they wrap as the dtype does."""

    def differences(xp, flat):
        return xp.concatenate([flat[:1], flat[1:] - flat[:-1]])

    def wrong(xp, values):
        if values.flags.f_contiguous and not values.flags.c_contiguous:
            return differences(xp, values.T.reshape(-1))
        return differences(xp, values.reshape(-1))

    def right(xp, values):
        return differences(xp, values.reshape(-1))

    def reference(values):
        width = 8 * values.dtype.itemsize
        out, last = [], 0
        for i in np.ndindex(values.shape):
            value = int(values[i])
            out.append((value - last + (1 << width - 1)) % (1 << width) - (1 << width - 1))
            last = value
        return np.asarray(out, dtype=values.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="delta_encode",
            dtypes=("int16", "int32", "int64"),
            samples=lambda make: [
                make(50, low=-1000, high=1000),
                make((4, 9)),
                make((3, 5, 2), low=-1000, high=1000),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cyclic_solve",
    "systems of two unknowns lose the coefficients that wrap around",
    "periodic splines: too few points for corners of their own were passed on to the plain tridiagonal solver",
    "n = 2, diagonal 4, all others 1, right side 6, 6: 1.2, 1.2 where it is 1, 1",
)
def cyclic_solve():
    """Solve lower[i] x[i-1] + diagonal[i] x[i] + upper[i] x[i+1] = rhs[i], with i modulo n, along the last axis.

    Any n. The diagonal dominates; there is no pivoting.
    """

    def tridiagonal(xp, lower, diagonal, upper, rhs):
        n = rhs.shape[-1]
        pivots, values = [diagonal[..., 0]], [rhs[..., 0]]
        for i in range(1, n):
            factor = lower[..., i] / pivots[-1]
            pivots.append(diagonal[..., i] - factor * upper[..., i - 1])
            values.append(rhs[..., i] - factor * values[-1])
        out = [values[-1] / pivots[-1]]
        for i in range(n - 2, -1, -1):
            out.append((values[i] - upper[..., i] * out[-1]) / pivots[i])
        return xp.stack(out[::-1], axis=-1)

    def cyclic(xp, lower, diagonal, upper, rhs):
        # Sherman and Morrison: the corners are a product of two vectors
        first, last = diagonal[..., :1], diagonal[..., -1:]
        gamma = -first
        corner, other = upper[..., -1:], lower[..., :1]
        changed = xp.concatenate([first - gamma, diagonal[..., 1:-1], last - corner * other / gamma], axis=-1)
        column = xp.concatenate([gamma, xp.zeros(rhs[..., 1:-1].shape, dtype="float64"), corner], axis=-1)
        plain = tridiagonal(xp, lower, changed, upper, rhs)
        extra = tridiagonal(xp, lower, changed, upper, column)
        ratio = other / gamma
        along = plain[..., :1] + ratio * plain[..., -1:]
        return plain - extra * (along / (1.0 + extra[..., :1] + ratio * extra[..., -1:]))

    def wide(*arrays):
        return [array.astype("float64") for array in arrays]

    def wrong(xp, lower, diagonal, upper, rhs):
        low, middle, up, right_side = wide(lower, diagonal, upper, rhs)
        n = rhs.shape[-1]
        if n == 0:
            out = right_side
        elif n == 1:
            out = right_side / (low + middle + up)
        elif n == 2:
            out = tridiagonal(xp, low, middle, up, right_side)
        else:
            out = cyclic(xp, low, middle, up, right_side)
        return out.astype(rhs.dtype)

    def right(xp, lower, diagonal, upper, rhs):
        low, middle, up, right_side = wide(lower, diagonal, upper, rhs)
        n = rhs.shape[-1]
        if n == 0:
            out = right_side
        elif n == 1:
            out = right_side / (low + middle + up)
        elif n == 2:
            out = tridiagonal(xp, low + up, middle, low + up, right_side)
        else:
            out = cyclic(xp, low, middle, up, right_side)
        return out.astype(rhs.dtype)

    def reference(lower, diagonal, upper, rhs):
        n = rhs.shape[-1]
        out = np.zeros(rhs.shape)
        for row in np.ndindex(rhs.shape[:-1]):
            matrix = np.zeros((n, n))
            for i in range(n):
                matrix[i, i - 1] += lower[row][i]
                matrix[i, i] += diagonal[row][i]
                matrix[i, (i + 1) % n] += upper[row][i]
            out[row] = np.linalg.solve(matrix, rhs[row])
        return out

    def declare(fn):
        def system(make, shape):
            off = {"low": -1, "high": 1}
            return make(shape, **off), make(shape, low=4, high=6), make(shape, **off), make(shape, low=-10, high=10)

        return OpSpec(
            fn=fn,
            name="cyclic_solve",
            dtypes=("float32", "float64"),
            samples=lambda make: [system(make, 12), system(make, (3, 9)), system(make, (2, 2, 33))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "lars_step",
    "only the norm of the weights is tested for 0, not that of the gradient",
    "apex's LARC and its ports: param_norm != 0 and grad_norm != 0, of which one was left out",
    "a gradient of zeros, as of a frozen layer: the weights become nan where they stay as they are",
)
def lars_step():
    """One step of SGD with LARS for the weights of one layer; gives the new weights.

    The step along gradient + weight_decay * weights is scaled by trust * |weights| / (|gradient| + weight_decay *
    |weights|), or by 1 where the weights or the gradient are all zero.
    """

    def check(weight_decay):
        if weight_decay < 0:
            raise ValueError(f"weight_decay is {weight_decay}; give 0 or more")

    def norms(xp, weights, gradient):
        weights, gradient = weights.astype("float64"), gradient.astype("float64")
        return weights, gradient, xp.sqrt((weights * weights).sum()), xp.sqrt((gradient * gradient).sum())

    def wrong(xp, weights, gradient, rate=0.1, trust=0.02, weight_decay=0.0):
        check(weight_decay)
        w, g, of_weights, of_gradient = norms(xp, weights, gradient)
        scale = xp.where(of_weights > 0, trust * of_weights / (of_gradient + weight_decay * of_weights), 1.0)
        return (w - rate * scale * (g + weight_decay * w)).astype(weights.dtype)

    def right(xp, weights, gradient, rate=0.1, trust=0.02, weight_decay=0.0):
        check(weight_decay)
        w, g, of_weights, of_gradient = norms(xp, weights, gradient)
        neither = (of_weights == 0) | (of_gradient == 0)
        divisor = xp.where(neither, 1.0, of_gradient + weight_decay * of_weights)
        scale = xp.where(neither, 1.0, trust * of_weights / divisor)
        return (w - rate * scale * (g + weight_decay * w)).astype(weights.dtype)

    def reference(weights, gradient, rate=0.1, trust=0.02, weight_decay=0.0):
        of_weights, of_gradient = np.linalg.norm(weights.ravel()), np.linalg.norm(gradient.ravel())
        scale = 1.0
        if of_weights != 0 and of_gradient != 0:
            scale = trust * of_weights / (of_gradient + weight_decay * of_weights)
        return weights - rate * scale * (gradient + weight_decay * weights)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lars_step",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((8, 5)), make((8, 5))),
                Sample((make(40), make(40)), {"weight_decay": 0.01}),
                Sample((make((3, 4, 5)), make((3, 4, 5))), {"rate": 0.5, "trust": 0.1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(4)), {"weight_decay": -1}), ValueError, "weight_decay is -1"),
            ],
        )

    return wrong, right, declare


@pair(
    "interest_payment",
    "payments at the beginning of periods bear interest in the first period too",
    "numpy-financial's ipmt: the first payment of when='begin' got its interest wrong until it was set to 0",
    "principal 1000, period 1, begin=True: 9.90 where it is 0",
)
def interest_payment():
    """The interest in the payment of a period (1 to `periods`) of a loan that is paid back in equal payments.

    `rate` is that of a period, more than 0. Payments come at the end of each period or, with `begin`, at its
    beginning. For periods before 1 or after `periods` the interest is 0.
    """

    def check(rate, periods):
        if rate <= 0:
            raise ValueError(f"rate is {rate}; give more than 0")
        if periods < 1:
            raise ValueError(f"periods is {periods}; give 1 or more")

    def interest(xp, principal, period, rate, periods, begin):
        growth = math.log1p(rate)
        left = xp.minimum(periods + 1 - period, periods).astype("float64")
        share = xp.expm1(-growth * left) / math.expm1(-growth * periods)
        amount = principal.astype("float64") * rate * share
        return amount / (1.0 + rate) if begin else amount

    def wrong(xp, principal, period, rate=0.01, periods=360, begin=False):
        check(rate, periods)
        amount = interest(xp, principal, period, rate, periods, begin)
        return xp.where((period >= 1) & (period <= periods), amount, 0.0).astype(principal.dtype)

    def right(xp, principal, period, rate=0.01, periods=360, begin=False):
        check(rate, periods)
        amount = interest(xp, principal, period, rate, periods, begin)
        first = 2 if begin else 1
        return xp.where((period >= first) & (period <= periods), amount, 0.0).astype(principal.dtype)

    def reference(principal, period, rate=0.01, periods=360, begin=False):
        payment = rate / (1.0 - (1.0 + rate) ** -periods)
        if begin:
            payment /= 1.0 + rate
        balance, schedule = 1.0, []
        for k in range(periods):
            due = 0.0 if begin and k == 0 else balance * rate
            schedule.append(due)
            balance += due - payment
        principal, period = np.broadcast_arrays(principal, period)
        out = np.zeros(principal.shape)
        for i in np.ndindex(out.shape):
            k = int(period[i])
            if 1 <= k <= periods and schedule[k - 1] != 0:
                out[i] = principal[i] * schedule[k - 1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="interest_payment",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(20, low=1000, high=500000), make(20, dtype="int64", low=1, high=360)),
                Sample(
                    (make((3, 5), low=1000, high=500000), make((3, 5), dtype="int64", low=1, high=120)),
                    {"rate": 0.004, "periods": 120, "begin": True},
                ),
                Sample((make(12, low=100, high=900), make(12, dtype="int64", low=0, high=30)), {"periods": 24}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, low=1, high=9), make(4, dtype="int64", low=1, high=9)), {"rate": 0}),
                    ValueError,
                    "rate is 0",
                ),
                ErrorInput(
                    Sample((make(4, low=1, high=9), make(4, dtype="int64", low=1, high=9)), {"periods": 0}),
                    ValueError,
                    "periods is 0",
                ),
            ],
        )

    return wrong, right, declare


@pair(
    "wealth_index",
    "the carry of a chunk is its own product alone, without that of the chunks before it",
    "block-wise scans on GPUs: rows longer than two blocks, where the carry has to be carried itself",
    "2049 returns of 0.001: the last value is 1.001 ** 1025 where it is 1.001 ** 2049",
)
def wealth_index():
    """What 1 becomes by returns along the last axis: the running product of 1 + returns."""

    chunk = 1024

    def wrong(xp, returns):
        factors = 1.0 + returns.astype("float64")
        pieces, carry = [factors[..., :0]], 1.0
        for start in range(0, factors.shape[-1], chunk):
            local = xp.cumprod(factors[..., start : start + chunk], axis=-1)
            pieces.append(local * carry)
            carry = local[..., -1:]
        return xp.concatenate(pieces, axis=-1).astype(returns.dtype)

    def right(xp, returns):
        factors = 1.0 + returns.astype("float64")
        pieces, carry = [factors[..., :0]], 1.0
        for start in range(0, factors.shape[-1], chunk):
            pieces.append(xp.cumprod(factors[..., start : start + chunk], axis=-1) * carry)
            carry = pieces[-1][..., -1:]
        return xp.concatenate(pieces, axis=-1).astype(returns.dtype)

    def reference(returns):
        out = np.zeros(returns.shape)
        wealth = np.ones(returns.shape[:-1])
        for i in range(returns.shape[-1]):
            wealth = wealth * (1.0 + returns[..., i])
            out[..., i] = wealth
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="wealth_index",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 257), low=-0.05, high=0.05),
                make(1500, low=-0.05, high=0.05),
                make((2, 3, 40), low=-0.5, high=0.5),
            ],
            reference=reference,
        )

    return wrong, right, declare
