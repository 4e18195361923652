"""Kinds of bugs from the trackers of array libraries, in functions of other kinds: faults with their twins."""

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
    "max_drawdown",
    "the rest after whole blocks is taken as a[-0:] where there is none",
    "blocked scans: the tail is sliced from the end by n % block, which is the whole array where that is 0",
    "64 rising prices: the tail is everything, measured from the last peak; 63 instead of 0",
)
def max_drawdown():
    """The largest fall from an earlier peak, along the last axis; 0 where nothing falls. In blocks of 32."""

    block = 32

    def running_peak(xp, a):
        shift = 1
        while shift < a.shape[-1]:
            a = xp.concatenate([a[..., :shift], xp.maximum(a[..., shift:], a[..., :-shift])], axis=-1)
            shift *= 2
        return a

    def scan(xp, part, peak, worst):
        peaks = running_peak(xp, xp.concatenate([peak, part], axis=-1))[..., 1:]
        return peaks[..., -1:], xp.maximum(worst, (peaks - part).max(axis=-1, keepdims=True))

    def start(xp, a):
        shape = (*a.shape[:-1], 1)
        return xp.full(shape, -math.inf, dtype=a.dtype), xp.zeros(shape, dtype=a.dtype)

    def wrong(xp, a):
        peak, worst = start(xp, a)
        whole, rest = divmod(a.shape[-1], block)
        for i in range(whole):
            peak, worst = scan(xp, a[..., i * block : (i + 1) * block], peak, worst)
        tail = a[..., -rest:]
        if tail.shape[-1]:
            peak, worst = scan(xp, tail, peak, worst)
        return worst[..., 0]

    def right(xp, a):
        peak, worst = start(xp, a)
        for first in range(0, a.shape[-1], block):
            peak, worst = scan(xp, a[..., first : first + block], peak, worst)
        return worst[..., 0]

    def reference(a):
        fall = np.maximum.accumulate(a, axis=-1) - a
        return fall.max(axis=-1, initial=0.0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="max_drawdown",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(20, low=1, high=100),
                make((3, 50), low=1, high=100),
                make((2, 2, 75), low=1, high=100),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "polygon_area",
    "products of int32 coordinates are widened only after they are taken",
    "int32 arithmetic in kernels: the accumulator is int64, the product that goes into it is not",
    "opposite corners (-36000, -36000), (36000, -36000), ...: a cross product of 2.6e9 wraps around",
)
def polygon_area():
    """Twice the signed area of a polygon with integer corners, by the shoelace formula, exact in int64."""

    def rolled(xp, a):
        return xp.concatenate([a[..., 1:], a[..., :1]], axis=-1)

    def check(x, y):
        if x.shape != y.shape:
            raise ValueError(f"x has shape {x.shape}, y has shape {y.shape}; give one of each a corner")

    def wrong(xp, x, y):
        check(x, y)
        cross = x * rolled(xp, y) - rolled(xp, x) * y
        return cross.sum(axis=-1, dtype="int64")

    def right(xp, x, y):
        check(x, y)
        x, y = x.astype("int64"), y.astype("int64")
        cross = x * rolled(xp, y) - rolled(xp, x) * y
        return cross.sum(axis=-1, dtype="int64")

    def reference(x, y):
        x, y = x.astype("int64"), y.astype("int64")
        return (x * np.roll(y, -1, axis=-1) - np.roll(x, -1, axis=-1) * y).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="polygon_area",
            dtypes=("int32",),
            samples=lambda make: [
                (make(3, low=-1000, high=1000), make(3, low=-1000, high=1000)),
                (make((4, 5), low=-36000, high=36000), make((4, 5), low=-36000, high=36000)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(3), make(4))), ValueError, "x has shape")],
        )

    return wrong, right, declare


@pair(
    "harmonic_mean",
    "keepdims with a negative axis puts the axis in the wrong place",
    "list.insert(-1, 1) inserts before the last entry, so a negative axis ends up one place too early",
    "shape (4, 9), axis=-1, keepdims=True: (1, 4) instead of (4, 1)",
)
def harmonic_mean():
    """n over the sum of reciprocals along an axis."""

    def mean(a, axis):
        return a.shape[axis] / (1 / a).sum(axis=axis)

    def wrong(xp, a, axis=-1, keepdims=False):
        out = mean(a, axis)
        if keepdims:
            shape = list(out.shape)
            shape.insert(axis, 1)
            out = out.reshape(tuple(shape))
        return out

    def right(xp, a, axis=-1, keepdims=False):
        out = mean(a, axis)
        if keepdims:
            shape = list(a.shape)
            shape[axis] = 1
            out = out.reshape(tuple(shape))
        return out

    def reference(a, axis=-1, keepdims=False):
        return 1 / (1 / a).mean(axis=axis, keepdims=keepdims)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="harmonic_mean",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 9), low=0.5, high=10),
                Sample((make((3, 5, 7), low=0.5, high=10),), {"axis": -2}),
                Sample((make((6, 8), low=0.5, high=10),), {"axis": 0, "keepdims": True}),
                Sample((make((3, 5, 7), low=0.5, high=10),), {"axis": 1, "keepdims": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "calibrate_channels",
    "which axis holds the channels is guessed from lengths",
    "image libraries that infer channels-last from a shape: wrong where width and number of channels are equal",
    "an image of shape (4, 6, 4) with channel_axis=0: gains are applied along the width",
)
def calibrate_channels():
    """(image - dark) * gain with one dark level and gain for each channel; channels are on the first or last axis."""

    def check(image, dark, gain, channel_axis):
        if channel_axis not in (0, -1):
            raise ValueError(f"channel_axis is {channel_axis}; give 0 or -1")
        if not dark.shape == gain.shape == (image.shape[channel_axis],):
            raise ValueError(f"{image.shape[channel_axis]} channels; dark has {dark.shape}, gain has {gain.shape}")

    def along_first(values, image):
        return values.reshape((values.shape[0],) + (1,) * (image.ndim - 1))

    def wrong(xp, image, dark, gain, channel_axis=-1):
        check(image, dark, gain, channel_axis)
        if image.shape[-1] != gain.shape[0]:  # channels first
            dark, gain = along_first(dark, image), along_first(gain, image)
        return (image - dark) * gain

    def right(xp, image, dark, gain, channel_axis=-1):
        check(image, dark, gain, channel_axis)
        if channel_axis == 0:
            dark, gain = along_first(dark, image), along_first(gain, image)
        return (image - dark) * gain

    def reference(image, dark, gain, channel_axis=-1):
        moved = np.moveaxis(image, channel_axis, -1)
        return np.moveaxis((moved - dark) * gain, -1, channel_axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="calibrate_channels",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((5, 6, 3), low=0, high=255), make(3, low=0, high=8), make(3, low=0.5, high=2)),
                Sample(
                    (make((4, 7, 9), low=0, high=255), make(4, low=0, high=8), make(4, low=0.5, high=2)),
                    {"channel_axis": 0},
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 3, 4)), make(4), make(4)), {"channel_axis": 1}), ValueError, "channel_axis")
            ],
        )

    return wrong, right, declare


@pair(
    "walsh_hadamard",
    "the result is a scratch buffer that the next call writes again",
    "plans that keep a workspace: the unnormalised path returns the workspace itself instead of a copy",
    "first = f(a); second = f(b): first now holds the transform of b",
)
def walsh_hadamard():
    """The Walsh-Hadamard transform along the last axis, whose length is a power of 2; ortho divides by sqrt(n)."""

    scratch = {}

    def check(n):
        if n < 1 or n & (n - 1):
            raise ValueError(f"the last axis has length {n}; give a power of 2")

    def stages(xp, a, buffers):
        n, half, source = a.shape[-1], 1, a
        for stage in range(n.bit_length() - 1):
            target = buffers[stage % 2]
            pairs = source.reshape((*a.shape[:-1], n // (2 * half), 2, half))
            into = target.reshape((*a.shape[:-1], n // (2 * half), 2, half))
            into[..., 0, :] = pairs[..., 0, :] + pairs[..., 1, :]
            into[..., 1, :] = pairs[..., 0, :] - pairs[..., 1, :]
            source, half = target, 2 * half
        return source

    def finish(xp, a, out, ortho):
        if ortho:
            return out * (1 / math.sqrt(a.shape[-1]))
        return xp.copy(out) if out is a else out

    def wrong(xp, a, ortho=False):
        check(a.shape[-1])
        key = (id(xp), a.shape, str(a.dtype))
        if key not in scratch:
            scratch[key] = (xp.empty(a.shape, dtype=a.dtype), xp.empty(a.shape, dtype=a.dtype))
        return finish(xp, a, stages(xp, a, scratch[key]), ortho)

    def right(xp, a, ortho=False):
        check(a.shape[-1])
        buffers = (xp.empty(a.shape, dtype=a.dtype), xp.empty(a.shape, dtype=a.dtype))
        return finish(xp, a, stages(xp, a, buffers), ortho)

    def reference(a, ortho=False):
        matrix = np.ones((1, 1))
        while len(matrix) < a.shape[-1]:
            matrix = np.block([[matrix, matrix], [matrix, -matrix]])
        out = a @ matrix
        return out / math.sqrt(a.shape[-1]) if ortho else out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="walsh_hadamard",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(8),
                make((3, 16)),
                Sample((make((2, 3, 32)),), {"ortho": True}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 6)),)), ValueError, "power of 2")],
        )

    return wrong, right, declare


@pair(
    "centre_of_mass",
    "a small number keeps the division safe where all weights are zero, but gives another answer",
    "weighted means with eps in the denominator: 0 / eps is 0, not the answer that the documentation gives",
    "a row without mass, of length 9: 0 instead of its middle, 4",
)
def centre_of_mass():
    """The mean position along the last axis, weighted by mass; the middle of the axis where there is no mass."""

    def sums(xp, mass):
        wide = mass.astype("float64")
        place = xp.arange(mass.shape[-1], dtype="float64")
        return (wide * place).sum(axis=-1), wide.sum(axis=-1)

    def wrong(xp, mass):
        moment, total = sums(xp, mass)
        return (moment / (total + 1e-30)).astype(mass.dtype)

    def right(xp, mass):
        moment, total = sums(xp, mass)
        middle = (mass.shape[-1] - 1) / 2
        none = total == 0
        return xp.where(none, middle, moment / xp.where(none, 1.0, total)).astype(mass.dtype)

    def reference(mass):
        n = mass.shape[-1]
        out = np.full(mass.shape[:-1], (n - 1) / 2)
        for i in np.ndindex(out.shape):
            if mass[i].sum() != 0:
                out[i] = mass[i] @ np.arange(n) / mass[i].sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="centre_of_mass",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(30, low=0, high=1),
                make((4, 9), low=0, high=1),
                make((2, 3, 12), low=0, high=50),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "pack_valid",
    "the number of valid entries is the place of the first invalid one, which argmin gives as 0 where there is none",
    "argmax and argmin of a mask as a search: they answer 0 for 'not found'",
    "a row whose mask is all true: every entry is replaced by fill",
)
def pack_valid():
    """The entries where mask is true, moved to the front of the last axis in their order; the rest is fill."""

    def packed(xp, values, mask):
        order = xp.argsort(~mask, axis=-1, kind="stable")
        return xp.take_along_axis(values, order, axis=-1), xp.take_along_axis(mask, order, axis=-1)

    def filled(xp, moved, count, fill):
        place = xp.arange(moved.shape[-1])
        return xp.where(place < count[..., None], moved, fill).astype(moved.dtype)

    def wrong(xp, values, mask, fill=0):
        if not values.shape[-1]:
            return xp.copy(values)
        moved, front = packed(xp, values, mask)
        return filled(xp, moved, front.argmin(axis=-1), fill)

    def right(xp, values, mask, fill=0):
        if not values.shape[-1]:
            return xp.copy(values)
        moved, _ = packed(xp, values, mask)
        return filled(xp, moved, mask.sum(axis=-1), fill)

    def reference(values, mask, fill=0):
        out = np.full_like(values, fill)
        for i in np.ndindex(values.shape[:-1]):
            kept = values[i][mask[i]]
            out[i][: len(kept)] = kept
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pack_valid",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                (make(25), make(25, dtype="bool")),
                (make((4, 40)), make((4, 40), dtype="bool")),
                Sample((make((2, 3, 30)), make((2, 3, 30), dtype="bool")), {"fill": -1}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "leaderboard",
    "a stable ascending order, reversed, is not stable",
    "descending sorts by argsort()[::-1]: equal keys come out in reverse",
    "two players with equal scores: the later one comes first",
)
def leaderboard():
    """Ids by falling score along the last axis; equal scores keep the order of entry."""

    def check(scores, ids):
        if scores.shape != ids.shape:
            raise ValueError(f"scores have shape {scores.shape}, ids have shape {ids.shape}; give an id for each score")

    def wrong(xp, scores, ids):
        check(scores, ids)
        order = xp.argsort(scores, axis=-1, kind="stable")[..., ::-1]
        return xp.take_along_axis(ids, order, axis=-1)

    def right(xp, scores, ids):
        check(scores, ids)
        order = xp.argsort(-scores, axis=-1, kind="stable")
        return xp.take_along_axis(ids, order, axis=-1)

    def reference(scores, ids):
        return np.take_along_axis(ids, np.argsort(-scores, axis=-1, kind="stable"), axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="leaderboard",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(20), make(20, dtype="int64", low=0, high=9999)),
                (make((3, 8), low=0, high=100), make((3, 8), dtype="int64", low=0, high=9999)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "block_sums",
    "the padding of the last block is never written",
    "kernels that round a length up to the block: the buffer comes from empty(), and its tail is read",
    "length 37 in blocks of 16: the last sum includes 11 numbers of whatever was in memory",
)
def block_sums():
    """Sums of absolute values of blocks along the last axis, as scales of blocks need; the last may be shorter."""

    def check(block):
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")

    def add(xp, padded, block):
        return xp.abs(padded.reshape((*padded.shape[:-1], padded.shape[-1] // block, block))).sum(axis=-1)

    def wrong(xp, a, block=16):
        check(block)
        n = a.shape[-1]
        padded = xp.empty((*a.shape[:-1], -(-n // block) * block), dtype=a.dtype)
        padded[..., :n] = a
        return add(xp, padded, block)

    def right(xp, a, block=16):
        check(block)
        n = a.shape[-1]
        padded = xp.zeros((*a.shape[:-1], -(-n // block) * block), dtype=a.dtype)
        padded[..., :n] = a
        return add(xp, padded, block)

    def reference(a, block=16):
        starts = range(0, a.shape[-1], block)
        sums = [np.abs(a[..., i : i + block]).sum(axis=-1) for i in starts]
        return np.stack(sums, axis=-1) if sums else np.zeros((*a.shape[:-1], 0))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="block_sums",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(64),
                make((3, 48)),
                Sample((make((2, 40)),), {"block": 8}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"block": 0}), ValueError, "block is 0")],
        )

    return wrong, right, declare


@pair(
    "quadratic_forms",
    "squeeze() without an axis also drops a batch of one",
    "batched products of vectors: [:, None, :] @ m @ [:, :, None] and then squeeze()",
    "one vector, shape (1, 4): the result has shape () instead of (1,)",
)
def quadratic_forms():
    """x @ matrix @ x for each vector x on the last axis."""

    def check(x, matrix):
        if matrix.shape != (x.shape[-1], x.shape[-1]):
            raise ValueError(f"vectors have length {x.shape[-1]}, the matrix has shape {matrix.shape}")

    def wrong(xp, x, matrix):
        check(x, matrix)
        return xp.matmul(xp.matmul(x[..., None, :], matrix), x[..., :, None]).squeeze()

    def right(xp, x, matrix):
        check(x, matrix)
        return xp.matmul(xp.matmul(x[..., None, :], matrix), x[..., :, None])[..., 0, 0]

    def reference(x, matrix):
        return ((x @ matrix) * x).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="quadratic_forms",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((7, 4)), make((4, 4))),
                (make((2, 3, 6)), make((6, 6))),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 3)), make((4, 4)))), ValueError, "length 3")],
        )

    return wrong, right, declare


@pair(
    "pre_emphasis",
    "astype(copy=False) is the input itself where the dtype is already right, and is then written",
    "functions that compute in float64 in place: safe for float32, destructive for float64",
    "float64: the same array given twice has two different results, because the first call filtered it",
)
def pre_emphasis():
    """a[i] - coefficient * a[i - 1] along the last axis, as before a speech recogniser; the first entry stays."""

    def check(coefficient):
        if not 0 <= coefficient <= 1:
            raise ValueError(f"coefficient is {coefficient}; give 0 to 1")

    def wrong(xp, a, coefficient=0.97):
        check(coefficient)
        work = a.astype("float64", copy=False)
        work[..., 1:] -= coefficient * work[..., :-1]
        return work.astype(a.dtype)

    def right(xp, a, coefficient=0.97):
        check(coefficient)
        work = a.astype("float64")
        work[..., 1:] -= coefficient * work[..., :-1]
        return work.astype(a.dtype)

    def reference(a, coefficient=0.97):
        return np.concatenate([a[..., :1], a[..., 1:] - coefficient * a[..., :-1]], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pre_emphasis",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                make(50),
                make((3, 21)),
                Sample((make((2, 30)),), {"coefficient": 0.5}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"coefficient": 1.5}), ValueError, "coefficient is 1.5")
            ],
        )

    return wrong, right, declare


@pair(
    "integer_root",
    "a root of int64 taken in float64, which rounds up just below large squares",
    "integer square roots by floor(sqrt(n)): right for all n below 2**52",
    "k * k - 1 with k = 2**30: k instead of k - 1",
)
def integer_root():
    """The largest integer whose square is at most n, for n of 0 or more."""

    def wrong(xp, n):
        return xp.floor(xp.sqrt(n.astype("float64"))).astype("int64")

    def right(xp, n):
        root = xp.floor(xp.sqrt(n.astype("float64"))).astype("int64")
        return xp.where(root * root > n, root - 1, root)

    def reference(n):
        return np.array([math.isqrt(int(one)) for one in n.ravel()], dtype="int64").reshape(n.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="integer_root",
            dtypes=("int64",),
            samples=lambda make: [
                make.of([0, 1, 2, 3, 4, 8, 9, 15, 16, 24, 25]),
                make(40, low=0, high=10**6),
                make((4, 7), low=0, high=2**62),
            ],
            reference=reference,
        )

    return wrong, right, declare
