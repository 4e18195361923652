"""Normalisation, loss, pooling, ranking, linear algebra, rotation, dates, spectra, boxes, sparse: faults with twins."""

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
    "group_norm",
    "the variance is the mean of squares less the square of the mean, in float32",
    "flax's use_fast_variance: reports of NaN and of wrong outputs where the mean is large against the spread",
    "float32 values around 1000 with a spread of 1: the variance is wrong in its first digits",
)
def group_norm():
    """Groups of channels of (batch, channels, ...), each brought to mean 0 and variance 1."""

    def check(a, groups):
        if a.ndim < 2:
            raise ValueError(f"a has {a.ndim} axes; give (batch, channels, ...)")
        if groups < 1 or a.shape[1] % groups:
            raise ValueError(f"{a.shape[1]} channels do not divide into {groups} groups")

    def wrong(xp, a, groups=2, eps=1e-5):
        check(a, groups)
        if a.size == 0:
            return a.copy()
        x = a.astype("float32").reshape(a.shape[0], groups, -1)
        mean = x.mean(axis=-1, keepdims=True)
        variance = xp.maximum((x * x).mean(axis=-1, keepdims=True) - mean * mean, 0)
        return ((x - mean) / xp.sqrt(variance + eps)).reshape(a.shape).astype(a.dtype)

    def right(xp, a, groups=2, eps=1e-5):
        check(a, groups)
        if a.size == 0:
            return a.copy()
        x = a.astype("float64").reshape(a.shape[0], groups, -1)
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return (centred / xp.sqrt(variance + eps)).reshape(a.shape).astype(a.dtype)

    def reference(a, groups=2, eps=1e-5):
        out = np.empty(a.shape)
        width = a.shape[1] // groups
        for n in range(a.shape[0]):
            for g in range(groups):
                part = a[n, g * width : (g + 1) * width]
                if part.size:
                    out[n, g * width : (g + 1) * width] = (part - part.mean()) / np.sqrt(part.var() + eps)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="group_norm",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((2, 8, 5, 5)),
                make((3, 4, 17)),
                Sample((make((2, 6, 10)),), {"groups": 3}),
                Sample((make((0, 4, 8)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 6, 3)),), {"groups": 4}), ValueError, "6 channels do not divide into 4")
            ],
        )

    return wrong, right, declare


@pair(
    "soft_cross_entropy",
    "a class of probability 0 whose logit is -inf gives 0 * inf",
    "PyTorch's cross_entropy with probabilities and kl_div: NaN where masked classes have logits of -inf",
    "logits [0, -inf] with targets [1, 0]: nan instead of 0",
)
def soft_cross_entropy():
    """-sum(targets * log_softmax(logits)) over the last axis; a target of 0 adds nothing."""

    def log_softmax(xp, logits):
        z = logits.astype("float64")
        z = z - z.max(axis=-1, keepdims=True)
        return z - xp.log(xp.exp(z).sum(axis=-1, keepdims=True))

    def check(logits, targets):
        if logits.shape != targets.shape:
            raise ValueError(f"logits have shape {logits.shape}, targets {targets.shape}")

    def wrong(xp, logits, targets):
        check(logits, targets)
        if logits.shape[-1] == 0:
            return xp.zeros(logits.shape[:-1], dtype=logits.dtype)
        terms = targets.astype("float64") * log_softmax(xp, logits)
        return (0.0 - terms.sum(axis=-1)).astype(logits.dtype)

    def right(xp, logits, targets):
        check(logits, targets)
        if logits.shape[-1] == 0:
            return xp.zeros(logits.shape[:-1], dtype=logits.dtype)
        weights = targets.astype("float64")
        terms = xp.where(weights == 0, 0.0, weights * log_softmax(xp, logits))
        return (0.0 - terms.sum(axis=-1)).astype(logits.dtype)

    def reference(logits, targets):
        out = np.zeros(logits.shape[:-1])
        for i in np.ndindex(out.shape):
            if logits.shape[-1]:
                z = logits[i] - logits[i].max()
                z = z - np.log(np.exp(z).sum())
                used = targets[i] != 0
                out[i] = 0.0 - (targets[i][used] * z[used]).sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="soft_cross_entropy",
            dtypes=("float16", "float32"),
            result_dtype=lambda logits, targets: logits,
            samples=lambda make: [
                (make((8, 10)), make((8, 10), low=0, high=1)),
                (make((2, 3, 5)), make((2, 3, 5), dtype="int64", low=0, high=1)),
                (make(7), make(7, low=0, high=1)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((3, 4)), make((3, 5))), {}), ValueError, "logits have shape")
            ],
        )

    return wrong, right, declare


@pair(
    "max_pool",
    "with ceil_mode a last window that starts in the right padding is kept",
    "pooling in PyTorch and ONNX: ports leave out the rule that the last window must start inside the input",
    "length 7 with kernel 2, stride 2, padding 1 and ceil_mode: 5 results, the last -inf, instead of 4",
)
def max_pool():
    """Maximum pooling of the last axis, as PyTorch's max_pool1d."""

    def check(length, kernel, stride, padding):
        if kernel < 1 or stride < 1:
            raise ValueError(f"kernel is {kernel}, stride {stride}; give 1 or more")
        if padding < 0 or 2 * padding > kernel:
            raise ValueError(f"padding is {padding}; give at most half of kernel {kernel}")
        if length == 0 or length + 2 * padding < kernel:
            raise ValueError(f"length {length} is too short for kernel {kernel}")

    def pool(xp, a, kernel, stride, padding, count):
        length = a.shape[-1]
        width = max((count - 1) * stride + kernel, padding + length)
        padded = xp.full((*a.shape[:-1], width), -math.inf, dtype=a.dtype)
        padded[..., padding : padding + length] = a
        return padded[..., xp.arange(count)[:, None] * stride + xp.arange(kernel)].max(axis=-1)

    def wrong(xp, a, kernel=3, stride=2, padding=0, ceil_mode=False):
        length = a.shape[-1]
        check(length, kernel, stride, padding)
        count = (length + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)) // stride + 1
        return pool(xp, a, kernel, stride, padding, count)

    def right(xp, a, kernel=3, stride=2, padding=0, ceil_mode=False):
        length = a.shape[-1]
        check(length, kernel, stride, padding)
        count = (length + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)) // stride + 1
        if ceil_mode and (count - 1) * stride >= length + padding:
            count -= 1
        return pool(xp, a, kernel, stride, padding, count)

    def reference(a, kernel=3, stride=2, padding=0, ceil_mode=False):
        length = a.shape[-1]
        check(length, kernel, stride, padding)
        starts, start = [], -padding
        while start < length and start + kernel - (length + padding) < (stride if ceil_mode else 1):
            starts.append(start)
            start += stride
        return np.stack([a[..., max(start, 0) : start + kernel].max(axis=-1) for start in starts], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="max_pool",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((2, 3, 16)),
                make((4, 17)),
                Sample((make((2, 3, 16)),), {"padding": 1}),
                Sample((make((2, 3, 16)),), {"ceil_mode": True}),
                Sample((make((2, 3, 16)),), {"kernel": 2, "padding": 1, "ceil_mode": True}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 9)),), {"padding": 2}), ValueError, "padding is 2"),
                ErrorInput(Sample((make((2, 2)),), {}), ValueError, "too short"),
            ],
        )

    return wrong, right, declare


@pair(
    "descending_order",
    "integers are negated to sort downwards, and the smallest is its own negative",
    "the idiom argsort(-a) for descending order, reported against NumPy, CuPy and JAX for integers",
    "int32 [-2147483648, 5]: the smallest number comes first",
)
def descending_order():
    """Places of the last axis from the largest to the smallest; equal ones keep their order, NaN comes last."""

    def first(order, k):
        if k is not None and not 0 <= k <= order.shape[-1]:
            raise ValueError(f"k is {k}; give 0 to {order.shape[-1]}")
        return (order if k is None else order[..., :k]).astype("int64")

    def wrong(xp, a, k=None):
        return first(xp.argsort(-a, axis=-1, kind="stable"), k)

    def right(xp, a, k=None):
        return first(xp.argsort(~a if a.dtype.kind in "iu" else -a, axis=-1, kind="stable"), k)

    def reference(a, k=None):
        out = np.empty(a.shape, dtype="int64")
        for i in np.ndindex(a.shape[:-1]):
            row = a[i].tolist()
            out[i] = sorted(range(len(row)), key=lambda j: (1, 0) if row[j] != row[j] else (0, -row[j]))
        return out if k is None else out[..., :k]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="descending_order",
            dtypes=("int16", "int32", "float32"),
            result_dtype="int64",
            samples=lambda make: [
                make((4, 9)),
                make(50),
                Sample((make((2, 3, 12)),), {"k": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"k": 5}), ValueError, "k is 5")],
        )

    return wrong, right, declare


@pair(
    "householder",
    "sign(0) is 0, so a vector that starts with 0 is not reflected onto the first axis",
    "QR written with sign(x[0]), a common report against ports of LAPACK's larfg to array libraries",
    "[0, 3, 4]: the normal is [0, 0.6, 0.8] instead of [5, 3, 4] / sqrt(50)",
)
def householder():
    """Unit normal of the reflection that maps the last axis onto its first unit vector; of zeros, that vector."""

    def normal(xp, a, signs):
        if a.shape[-1] == 0:
            return a.copy()
        x = a.astype("float64")
        top = xp.abs(x).max(axis=-1, keepdims=True)
        zero = top == 0
        x = x / xp.where(zero, 1.0, top)
        head = x[..., :1]
        length = xp.sqrt((x * x).sum(axis=-1, keepdims=True))
        head = xp.where(zero, 1.0, head + signs(xp, head) * length)
        v = xp.concatenate([head, x[..., 1:]], axis=-1)
        return (v / xp.sqrt((v * v).sum(axis=-1, keepdims=True))).astype(a.dtype)

    def wrong(xp, a):
        return normal(xp, a, lambda xp, head: xp.sign(head))

    def right(xp, a):
        return normal(xp, a, lambda xp, head: xp.where(head < 0, -1.0, 1.0))

    def reference(a):
        out = np.array(a, dtype="float64")
        for i in np.ndindex(a.shape[:-1]):
            v = out[i]  # a view
            if not v.size:
                continue
            top = np.abs(v).max()
            if top == 0:
                v[0] = 1
                continue
            v /= top
            v[0] += math.sqrt((v * v).sum()) * (-1 if v[0] < 0 else 1)
            v /= math.sqrt((v * v).sum())
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="householder",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [make(6), make((5, 33)), make((2, 3, 4)), make((4, 1))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rotary",
    "the cached angles are found by length and width, without the base",
    "transformers' rotary embeddings with dynamic NTK scaling: cached cosines of another base were used again",
    "a call with base 500000 after one of the same shape with base 10000: the angles of the first",
)
def rotary():
    """Rotary position embedding of (..., length, width), halves rotated against each other."""

    def check(a):
        if a.ndim < 2 or a.shape[-1] % 2:
            raise ValueError(f"shape is {a.shape}; give (..., length, width) with an even width")

    def tables(length, width, base):
        angles = np.arange(length)[:, None] * base ** (-np.arange(0, width, 2) / max(width, 1))
        return np.cos(angles), np.sin(angles)

    def rotate(xp, a, cos, sin):
        cos, sin = xp.asarray(cos), xp.asarray(sin)
        half = a.shape[-1] // 2
        x, y = a[..., :half].astype("float64"), a[..., half:].astype("float64")
        return xp.concatenate([x * cos - y * sin, y * cos + x * sin], axis=-1).astype(a.dtype)

    old: dict[Any, Any] = {}
    known: dict[Any, Any] = {}

    def wrong(xp, a, base=10000.0):
        check(a)
        key = a.shape[-2:]
        if key not in old:
            old[key] = tables(*key, base)
        return rotate(xp, a, *old[key])

    def right(xp, a, base=10000.0):
        check(a)
        key = (*a.shape[-2:], float(base))
        if key not in known:
            known[key] = tables(*key)
        return rotate(xp, a, *known[key])

    def reference(a, base=10000.0):
        check(a)
        out, half = np.empty(a.shape), a.shape[-1] // 2
        for position in range(a.shape[-2]):
            for j in range(half):
                angle = position * base ** (-2 * j / a.shape[-1])
                x, y = a[..., position, j], a[..., position, j + half]
                out[..., position, j] = x * math.cos(angle) - y * math.sin(angle)
                out[..., position, j + half] = y * math.cos(angle) + x * math.sin(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((2, 4, 16, 8)),
                make((7, 32)),
                Sample((make((2, 4, 16, 8)),), {"base": 500000.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((4, 5)),), {}), ValueError, "even width")],
        )

    return wrong, right, declare


@pair(
    "iso_week",
    "days of January before week 1 are always put into week 52",
    "week numbers by (day of year - weekday + 10) // 7, of which ports correct week 0 to 52 and forget long years",
    "2021-01-01, day 18628: week 52 instead of 53",
)
def iso_week():
    """Number of the ISO 8601 week of days since 1970-01-01."""

    def first_of(year):
        y = year - 1
        return 365 * y + y // 4 - y // 100 + y // 400 - 719162

    def year_of(days):
        z = days + 719468
        era = z // 146097
        day = z - era * 146097
        year = (day - day // 1460 + day // 36524 - day // 146096) // 365
        of_year = day - (365 * year + year // 4 - year // 100)
        return year + era * 400 + ((5 * of_year + 2) // 153 >= 10)

    def wrong(xp, days):
        days = days.astype("int64")
        year = year_of(days)
        week = (days - first_of(year) + 1 - ((days + 3) % 7 + 1) + 10) // 7
        next_starts = (first_of(year + 1) + 3) % 7
        week = xp.where((week == 53) & (next_starts <= 3), 1, week)
        return xp.where(week == 0, 52, week).astype("int64")

    def right(xp, days):
        days = days.astype("int64")
        thursday = days - (days + 3) % 7 + 3
        return ((thursday - first_of(year_of(thursday))) // 7 + 1).astype("int64")

    def reference(days):
        out = np.empty(np.shape(days), dtype="int64")
        for i in np.ndindex(out.shape):
            out[i] = datetime.date.fromordinal(int(days[i]) + 719163).isocalendar()[1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="iso_week",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make(200, low=-20000, high=40000),
                make((4, 25), low=10957, high=21914),
                make((), low=0, high=20000),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "periodogram",
    "all bins but the first and the last are doubled, though an odd length has no Nyquist bin",
    "one-sided spectra as in scipy.signal and matplotlib.mlab.psd, which once treated odd lengths as even ones",
    "a length of 5: the last bin is half of what it should be",
)
def periodogram():
    """One-sided power spectral density of the last axis, without window or detrending."""

    def power(xp, a, rate):
        if rate <= 0:
            raise ValueError(f"rate is {rate}; give more than 0")
        spectrum = xp.fft.rfft(a.astype("float64"), axis=-1)
        return (spectrum.real**2 + spectrum.imag**2) / (rate * a.shape[-1])

    def wrong(xp, a, rate=1.0):
        density = power(xp, a, rate)
        density[..., 1:-1] *= 2
        return density.astype(a.dtype)

    def right(xp, a, rate=1.0):
        density = power(xp, a, rate)
        if a.shape[-1] % 2:
            density[..., 1:] *= 2
        else:
            density[..., 1:-1] *= 2
        return density.astype(a.dtype)

    def reference(a, rate=1.0):
        n = a.shape[-1]
        spectrum = np.fft.rfft(a, axis=-1)
        density = (spectrum.real**2 + spectrum.imag**2) / (rate * n)
        for place in range(density.shape[-1]):
            if 0 < place and 2 * place != n:  # it stands for its negative frequency too
                density[..., place] *= 2
        return density

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="periodogram",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((3, 64)),
                make(256),
                Sample((make((2, 128)),), {"rate": 100.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"rate": 0.0}), ValueError, "rate is 0.0")],
        )

    return wrong, right, declare


@pair(
    "box_corners",
    "astype(copy=False) gives a float64 input itself, which is then scaled in place",
    "YOLO's and DETR's box conversions, reported for changing the caller's boxes where no copy was needed",
    "float64 boxes with a size: the caller's boxes are scaled after the call",
)
def box_corners():
    """Boxes (centre x, centre y, width, height) as two corners, scaled to an image of `size` (width, height)."""

    def check(boxes):
        if boxes.ndim < 1 or boxes.shape[-1] != 4:
            raise ValueError(f"shape is {boxes.shape}; give (..., 4)")

    def factors(xp, size):
        return xp.asarray([size[0], size[1], size[0], size[1]], dtype="float64")

    def corners(xp, wide, dtype):
        centre, half = wide[..., :2], wide[..., 2:] / 2
        return xp.concatenate([centre - half, centre + half], axis=-1).astype(dtype)

    def wrong(xp, boxes, size=None):
        check(boxes)
        wide = boxes.astype("float64", copy=False)
        if size is not None:
            wide *= factors(xp, size)
        return corners(xp, wide, boxes.dtype)

    def right(xp, boxes, size=None):
        check(boxes)
        wide = boxes.astype("float64", copy=False)
        if size is not None:
            wide = wide * factors(xp, size)
        return corners(xp, wide, boxes.dtype)

    def reference(boxes, size=None):
        if size is not None:
            boxes = boxes * np.array([*size, *size], dtype="float64")
        x, y, width, height = np.moveaxis(boxes, -1, 0)
        return np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="box_corners",
            dtypes=("float32", "float64"),
            result_dtype=lambda boxes: boxes,
            samples=lambda make: [
                make((6, 4)),
                make((2, 5, 4), low=0, high=1),
                Sample((make((8, 4), low=0, high=1),), {"size": (640, 480)}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((3, 5)),), {}), ValueError, "give (..., 4)")],
        )

    return wrong, right, declare


@pair(
    "csr_row_max",
    "the implicit zero counts in rows that have none, because all their entries are stored",
    "scipy.sparse and cupyx.scipy.sparse max over an axis: zeros count only in rows with fewer entries than columns",
    "a full row of negative numbers: 0 instead of the largest of them",
)
def csr_row_max():
    """The largest number of each row of a CSR matrix of `columns` columns, zeros that are not stored included."""

    def stored_max(xp, data, starts, columns):
        if columns < 1:
            raise ValueError(f"columns is {columns}; give 1 or more")
        rows = starts.shape[0] - 1
        row_of = xp.searchsorted(starts, xp.arange(data.shape[0]), side="right") - 1
        mine = row_of[None, :] == xp.arange(rows)[:, None]
        low = xp.full((rows, 1), -math.inf, dtype=data.dtype)
        spread = xp.where(mine, data[None, :], xp.asarray(-math.inf, dtype=data.dtype))
        return xp.concatenate([low, spread], axis=1).max(axis=1)

    def wrong(xp, data, starts, columns=6):
        largest = stored_max(xp, data, starts, columns)
        return xp.maximum(largest, xp.zeros_like(largest))

    def right(xp, data, starts, columns=6):
        largest = stored_max(xp, data, starts, columns)
        has_zero = starts[1:] - starts[:-1] < columns
        return xp.where(has_zero, xp.maximum(largest, xp.zeros_like(largest)), largest)

    def reference(data, starts, columns=6):
        out = np.empty(len(starts) - 1)
        for row in range(len(out)):
            values = data[starts[row] : starts[row + 1]]
            out[row] = np.concatenate([values, np.zeros(columns - len(values))]).max()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="csr_row_max",
            dtypes=("float32", "float64"),
            result_dtype=lambda data, starts: data,
            samples=lambda make: [
                (make(10), make.of([0, 3, 5, 5, 10], dtype="int64")),
                (make(7), make.of([0, 0, 1, 2, 4, 6, 7], dtype="int64")),
                Sample((make(12), make.of([0, 4, 8, 12], dtype="int64")), {"columns": 4}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(2), make.of([0, 2], dtype="int64")), {"columns": 0}), ValueError, "columns is 0"
                )
            ],
        )

    return wrong, right, declare
