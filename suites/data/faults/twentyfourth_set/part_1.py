"""Attention, optimisers, schedules, interpolation, sorting, top-k, sets and graphs: faults with their twins."""

import math
from collections.abc import Callable
from fractions import Fraction
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
    "rotary_dynamic",
    "a longer call leaves its state behind for shorter ones",
    "transformers' dynamic NTK rotary embedding: the tables scaled for a long sequence were kept for short ones",
    "trained=16: length 40, then length 10 of the same width: the second is rotated with the base of the first",
)
def rotary_dynamic():
    """Rotary positions whose base grows with the length, once that is over the length trained on."""

    def check(a, trained):
        if a.ndim < 2 or a.shape[-1] % 2:
            raise ValueError(f"the shape is {a.shape}; give (..., length, an even width)")
        if trained < 1:
            raise ValueError(f"trained is {trained}; give 1 or more")

    def tables(length, width, trained):
        base = 10000.0 * max(1.0, length / trained)
        speeds = base ** (-2.0 * np.arange(width // 2) / max(width, 1))
        angles = np.arange(length)[:, None] * speeds
        return np.cos(angles), np.sin(angles)

    def rotate(xp, a, cos, sin):
        cos, sin = xp.asarray(cos.astype("float32")), xp.asarray(sin.astype("float32"))
        half = a.shape[-1] // 2
        first, second = a[..., :half].astype("float32"), a[..., half:].astype("float32")
        return xp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1).astype(a.dtype)

    kept: dict[tuple[int, int], tuple[Any, Any]] = {}

    def wrong(xp, a, trained=64):
        check(a, trained)
        length, width = a.shape[-2:]
        key = (width, trained)
        if key not in kept:
            kept[key] = tables(trained, width, trained)
        if length > len(kept[key][0]):
            kept[key] = tables(length, width, trained)
        cos, sin = kept[key]
        return rotate(xp, a, cos[:length], sin[:length])

    def right(xp, a, trained=64):
        check(a, trained)
        length, width = a.shape[-2:]
        cos, sin = tables(length, width, trained)
        return rotate(xp, a, cos, sin)

    def reference(a, trained=64):
        length, width = a.shape[-2:]
        if width % 2:
            raise ValueError("odd width")
        out = np.array(a)
        base = 10000 * length / trained if length > trained else 10000
        for position in range(length):
            for i in range(width // 2):
                angle = position / base ** (2 * i / width)
                x, y = a[..., position, i], a[..., position, i + width // 2]
                out[..., position, i] = x * math.cos(angle) - y * math.sin(angle)
                out[..., position, i + width // 2] = x * math.sin(angle) + y * math.cos(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary_dynamic",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((2, 12, 8)),
                Sample((make((3, 40, 16)),), {"trained": 16}),
                Sample((make((30, 4)),), {"trained": 32}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((5, 3)),), {}), ValueError, "even width"),
                ErrorInput(Sample((make((5, 4)),), {"trained": 0}), ValueError, "trained is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "nesterov_step",
    "an input is written, in one dtype and on a rare branch",
    "gradient sanitising as in optax.zero_nans, ported with astype(copy=False) and assignment by a mask",
    "float32, a gradient with one NaN: the step is right, but the caller's gradient has 0 where it had NaN",
)
def nesterov_step():
    """A step of SGD with Nesterov momentum; entries of the gradient that are not finite count as 0."""

    def check(momentum):
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum}; give 0 or more and less than 1")

    def step(weights, velocity, gradient, rate, momentum):
        moved = momentum * velocity.astype("float32") + gradient
        result = weights.astype("float32") - (rate * gradient + (rate * momentum) * moved)
        return result.astype(weights.dtype), moved.astype(velocity.dtype)

    def wrong(xp, weights, velocity, gradient, rate=0.1, momentum=0.9):
        check(momentum)
        clean = gradient.astype("float32", copy=False)
        bad = ~xp.isfinite(clean)
        if bad.any():
            clean[bad] = 0.0
        return step(weights, velocity, clean, rate, momentum)

    def right(xp, weights, velocity, gradient, rate=0.1, momentum=0.9):
        check(momentum)
        clean = gradient.astype("float32", copy=False)
        clean = xp.where(xp.isfinite(clean), clean, xp.zeros_like(clean))
        return step(weights, velocity, clean, rate, momentum)

    def reference(weights, velocity, gradient, rate=0.1, momentum=0.9):
        clean = np.array([g if math.isfinite(g) else 0.0 for g in gradient.ravel().tolist()], dtype="float64")
        clean = clean.reshape(gradient.shape)
        moved = momentum * velocity + clean
        return weights - rate * (clean + momentum * moved), moved

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nesterov_step",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make(50), make(50), make(50)),
                Sample((make((6, 7)), make((6, 7)), make((6, 7))), {"rate": 0.01}),
                Sample((make((3, 4, 5)), make((3, 4, 5)), make((3, 4, 5))), {"momentum": 0.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(4), make(4)), {"momentum": 1.0}), ValueError, "momentum is 1.0")
            ],
        )

    return wrong, right, declare


@pair(
    "pair_rank",
    "a composite key overflows the integers of its inputs",
    "unique rows and edges by a * width + b, as in many graph libraries: the key was not wider than the columns",
    "int32, a = [0, 50000], b = [0, 50000]: the key wraps around to a negative number and the ranks are swapped",
)
def pair_rank():
    """The place of each pair (a, b) among the sorted distinct pairs, as numpy.unique(axis=0) gives its inverse."""

    def check(a, b):
        if a.ndim != 1 or a.shape != b.shape:
            raise ValueError(f"the shapes are {a.shape} and {b.shape}; give two lists of one length")

    def place(xp, order, new):
        ranks = xp.zeros(order.shape, dtype="int64")
        ranks[order] = xp.cumsum(new.astype("int64"))
        return ranks

    def wrong(xp, a, b):
        check(a, b)
        if a.shape[0] == 0:
            return xp.zeros(0, dtype="int64")
        low = b.min(keepdims=True)
        width = b.max(keepdims=True) - low + 1
        key = (a - a.min(keepdims=True)) * width + (b - low)
        order = xp.argsort(key, kind="stable")
        key = key[order]
        new = xp.concatenate([xp.zeros(1, dtype="bool"), key[1:] != key[:-1]])
        return place(xp, order, new)

    def right(xp, a, b):
        check(a, b)
        if a.shape[0] == 0:
            return xp.zeros(0, dtype="int64")
        order = xp.argsort(b, kind="stable")
        order = order[xp.argsort(a[order], kind="stable")]
        a, b = a[order], b[order]
        new = xp.concatenate([xp.zeros(1, dtype="bool"), (a[1:] != a[:-1]) | (b[1:] != b[:-1])])
        return place(xp, order, new)

    def reference(a, b):
        if a.ndim != 1 or a.shape != b.shape:
            raise ValueError("not two lists of one length")
        pairs = list(zip(a.tolist(), b.tolist(), strict=True))
        places = {one: i for i, one in enumerate(sorted(set(pairs)))}
        return np.array([places[one] for one in pairs], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pair_rank",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(40), make(40)),
                (make(60, low=-200, high=200), make(60, low=-200, high=200)),
                (make(25, low=0, high=9), make(25)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(3), make(4)), {}), ValueError, "one length")],
        )

    return wrong, right, declare


@pair(
    "bilinear_points",
    "the row pitch is that of the input, the data those of a contiguous copy",
    "gathers ported from pitched C images, and CuPy kernels that pass the strides of the array before the copy",
    "an image that is the transpose of another: neighbours are read from wrong places, or out of bounds",
)
def bilinear_points():
    """The values of an image at points (y, x) in pixels, bilinear; points outside take the edge."""

    def check(image):
        if image.ndim != 2 or 0 in image.shape:
            raise ValueError(f"the shape is {image.shape}; give an image with pixels")

    def gather(xp, image, y, x, pitch):
        height, width = image.shape
        valid = ~(xp.isnan(y) | xp.isnan(x))
        y = xp.clip(xp.where(valid, y, 0.0).astype("float64"), 0, height - 1)
        x = xp.clip(xp.where(valid, x, 0.0).astype("float64"), 0, width - 1)
        top, left = xp.floor(y).astype("int64"), xp.floor(x).astype("int64")
        bottom, right = xp.minimum(top + 1, height - 1), xp.minimum(left + 1, width - 1)
        down, along = y - top, x - left
        flat = xp.ravel(image).astype("float64")
        upper = (1 - along) * flat[top * pitch + left] + along * flat[top * pitch + right]
        lower = (1 - along) * flat[bottom * pitch + left] + along * flat[bottom * pitch + right]
        return xp.where(valid, (1 - down) * upper + down * lower, math.nan).astype(image.dtype)

    def wrong(xp, image, y, x):
        check(image)
        return gather(xp, image, y, x, image.strides[0] // image.itemsize)

    def right(xp, image, y, x):
        check(image)
        return gather(xp, image, y, x, image.shape[1])

    def reference(image, y, x):
        if image.ndim != 2 or 0 in image.shape:
            raise ValueError("no image")
        y, x = np.broadcast_arrays(y, x)
        out = np.full(y.shape, math.nan)
        for at in np.ndindex(y.shape):
            if math.isnan(y[at]) or math.isnan(x[at]):
                continue
            row = min(max(float(y[at]), 0.0), image.shape[0] - 1.0)
            column = min(max(float(x[at]), 0.0), image.shape[1] - 1.0)
            lines = []
            for line in (int(row), min(int(row) + 1, image.shape[0] - 1)):
                part = column - int(column)
                after = image[line, min(int(column) + 1, image.shape[1] - 1)]
                lines.append(image[line, int(column)] * (1 - part) + after * part)
            part = row - int(row)
            out[at] = lines[0] * (1 - part) + lines[1] * part
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bilinear_points",
            dtypes=("float16", "float32"),
            result_dtype=lambda image, y, x: image,
            samples=lambda make: [
                (make((9, 12)), make(40, low=0, high=8), make(40, low=0, high=11)),
                (make((5, 7)), make(20), make(20)),
                (make((16, 6)), make((4, 5), low=-2, high=18), make((4, 5), low=-2, high=8)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4), make(3), make(3)), {}), ValueError, "an image")],
        )

    return wrong, right, declare


@pair(
    "reachable",
    "too few rounds of doubling for the longest path",
    "transitive closure by repeated squaring with int(log2(n)) rounds, where n - 1 steps may be needed",
    "nodes=7 and the path 0-1-2-3-4-5-6: two rounds reach 4 steps, so 5 and 6 are not reached from 0",
)
def reachable():
    """Which nodes each node of a directed graph reaches, itself included, from lists of edges."""

    def start(xp, source, target, nodes):
        if source.shape != target.shape:
            raise ValueError(f"the shapes are {source.shape} and {target.shape}; give as many sources as targets")
        for ends in (source, target):
            if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= nodes):
                raise ValueError(f"an edge leaves the {nodes} nodes")
        linked = xp.eye(nodes, dtype="bool")
        linked[source, target] = True
        return linked

    def double(linked, rounds):
        for _ in range(rounds):
            steps = linked.astype("float32")
            linked = (steps @ steps) > 0
        return linked

    def wrong(xp, source, target, nodes=9):
        return double(start(xp, source, target, nodes), int(math.log2(nodes)))

    def right(xp, source, target, nodes=9):
        return double(start(xp, source, target, nodes), (nodes - 1).bit_length())

    def reference(source, target, nodes=9):
        if source.shape != target.shape:
            raise ValueError("not as many")
        after = [set() for _ in range(nodes)]
        for a, b in zip(source.ravel().tolist(), target.ravel().tolist(), strict=True):
            if not (0 <= a < nodes and 0 <= b < nodes):
                raise ValueError("an edge leaves the nodes")
            after[a].add(b)
        out = np.zeros((nodes, nodes), dtype="bool")
        for first in range(nodes):
            waiting = [first]
            while waiting:
                node = waiting.pop()
                if not out[first, node]:
                    out[first, node] = True
                    waiting.extend(after[node])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="reachable",
            dtypes=("int32", "int64"),
            result_dtype="bool",
            samples=lambda make: [
                (make(14, low=0, high=8), make(14, low=0, high=8)),
                Sample((make(40, low=0, high=15), make(40, low=0, high=15)), {"nodes": 16}),
                Sample((make(32, low=0, high=6), make(32, low=0, high=6)), {"nodes": 7}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make.full(3, 9), make.full(3, 0)), {}), ValueError, "leaves the 9 nodes")
            ],
        )

    return wrong, right, declare


@pair(
    "streaming_attention",
    "a block without any permitted key turns the running maximum into nan",
    "online softmax in blocks, as in early Triton flash attention: exp(-inf - -inf) before the first permitted key",
    "block=16, a query whose first 16 keys are masked and the others not: nan, where the others have weights",
)
def streaming_attention():
    """Attention with a mask, by blocks of keys; a query without any permitted key gives zeros."""

    def attend(xp, q, k, v, mask, block, shift):
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")
        q, keys, values = q.astype("float64") / math.sqrt(q.shape[-1]), k.astype("float64"), v.astype("float64")
        top = xp.full((*q.shape[:-1], 1), -math.inf)
        total = xp.zeros((*q.shape[:-1], 1))
        added = xp.zeros((*q.shape[:-1], v.shape[-1]))
        for i in range(0, k.shape[-2], block):
            scores = xp.matmul(q, xp.swapaxes(keys[..., i : i + block, :], -1, -2))
            scores = xp.where(mask[..., i : i + block], scores, -math.inf)
            new = xp.maximum(top, scores.max(axis=-1, keepdims=True))
            base = shift(xp, new)
            weights, kept = xp.exp(scores - base), xp.exp(top - base)
            total = total * kept + weights.sum(axis=-1, keepdims=True)
            added = added * kept + xp.matmul(weights, values[..., i : i + block, :])
            top = new
        result = added / xp.where(total == 0, math.nan, total)
        return xp.where(mask.any(axis=-1)[..., None], result, 0.0).astype(v.dtype)

    def wrong(xp, q, k, v, mask, block=16):
        return attend(xp, q, k, v, mask, block, lambda xp, new: new)

    def right(xp, q, k, v, mask, block=16):
        return attend(xp, q, k, v, mask, block, lambda xp, new: xp.where(new == -math.inf, 0.0, new))

    def reference(q, k, v, mask, block=16):
        mask = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
        out = np.zeros((*q.shape[:-1], v.shape[-1]))
        for at in np.ndindex(q.shape[:-1]):
            keys, values = k[at[:-1]], v[at[:-1]]
            if not mask[at].any():
                continue
            scores = np.where(mask[at], keys @ (q[at] / math.sqrt(q.shape[-1])), -math.inf)
            weights = np.exp(scores - scores.max())
            out[at] = weights / weights.sum() @ values
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="streaming_attention",
            dtypes=("float16", "float32"),
            result_dtype=lambda q, k, v, *_: v,
            samples=lambda make: [
                (make((10, 8)), make((40, 8)), make((40, 8)), make((10, 40), dtype="bool")),
                (make((2, 12, 4)), make((2, 32, 4)), make((2, 32, 6)), make((12, 32), dtype="bool")),
                Sample((make((7, 16)), make((50, 16)), make((50, 5)), make((7, 50), dtype="bool")), {"block": 24}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((2, 4)), make((3, 4)), make((3, 4)), make((2, 3), dtype="bool")), {"block": 0}),
                    ValueError,
                    "block is 0",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "warm_restarts",
    "a logarithm that should be a whole number is a little less",
    "torch's CosineAnnealingWarmRestarts: the cycle of a step as int(log(..., T_mult)), inexact at restarts",
    "period=10, factor=3, step 1210: log(243) / log(3) is 4.999..., so the rate is the lowest, not the highest",
)
def warm_restarts():
    """The learning rate of each step: a cosine from peak to floor, restarted in cycles that grow by a factor."""

    def check(step, period, factor):
        if period < 1 or factor < 2:
            raise ValueError(f"period is {period} and factor {factor}; give at least 1 and 2")
        if step.size and int(step.min()) < 0:
            raise ValueError("a step is negative")

    def cosine(xp, part, peak, floor):
        return floor + (peak - floor) * 0.5 * (1.0 + xp.cos(math.pi * part))

    def wrong(xp, step, period=10, factor=3, peak=1.0, floor=0.0):
        check(step, period, factor)
        step = step.astype("float64")
        cycle = xp.floor(xp.log(step * (factor - 1) / period + 1.0) / math.log(factor))
        length = period * float(factor) ** cycle
        start = (length - period) / (factor - 1)
        return cosine(xp, (step - start) / length, peak, floor)

    def right(xp, step, period=10, factor=3, peak=1.0, floor=0.0):
        check(step, period, factor)
        starts, lengths = [0], [period]
        while starts[-1] + lengths[-1] < 2**63:
            starts.append(starts[-1] + lengths[-1])
            lengths.append(lengths[-1] * factor)
        starts = xp.asarray(starts, dtype="int64")
        lengths = xp.asarray([float(length) for length in lengths], dtype="float64")
        step = step.astype("int64")
        cycle = xp.searchsorted(starts, step, side="right") - 1
        return cosine(xp, (step - starts[cycle]).astype("float64") / lengths[cycle], peak, floor)

    def reference(step, period=10, factor=3, peak=1.0, floor=0.0):
        out = np.zeros(step.shape)
        for at in np.ndindex(step.shape):
            left, length = int(step[at]), period
            if left < 0:
                raise ValueError("a step is negative")
            while left >= length:
                left, length = left - length, length * factor
            out[at] = floor + (peak - floor) * (1 + math.cos(math.pi * left / length)) / 2
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="warm_restarts",
            dtypes=("int32", "int64"),
            result_dtype="float64",
            samples=lambda make: [
                make(40, low=0, high=1210),  # five cycles
                Sample((make((5, 6), low=0, high=1000),), {"period": 8, "factor": 2, "peak": 0.3}),
                Sample((make(30, low=0, high=400),), {"period": 5, "factor": 4, "floor": 0.01}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=9),), {"factor": 1}), ValueError, "factor 1"),
                ErrorInput(Sample((make.full(4, -1),), {}), ValueError, "negative"),
            ],
        )

    return wrong, right, declare


@pair(
    "not_known",
    "an algorithm for distinct values meets repeated ones",
    "numpy.in1d's sort of both lists together without its assume_unique: a repetition looks like a match",
    "values [1, 1], known [2]: the first 1 equals its neighbour in the sorted list and counts as known",
)
def not_known():
    """Where the values are not among the known ones; nan is never known."""

    def wrong(xp, values, known):
        flat = xp.ravel(values)
        both = xp.concatenate([flat, xp.ravel(known)])
        order = xp.argsort(both, kind="stable")
        both = both[order]
        same = xp.zeros(both.shape, dtype="bool")
        same[order[:-1]] = both[1:] == both[:-1]
        return ~same[: flat.shape[0]].reshape(values.shape)

    def right(xp, values, known):
        table = xp.sort(xp.ravel(known))
        if table.shape[0] == 0:
            return xp.ones(values.shape, dtype="bool")
        flat = xp.ravel(values)
        at = xp.minimum(xp.searchsorted(table, flat), table.shape[0] - 1)
        return (table[at] != flat).reshape(values.shape)

    def reference(values, known):
        out = np.ones(values.shape, dtype="bool")
        for at in np.ndindex(values.shape):
            for other in known.ravel():
                if values[at] == other:
                    out[at] = False
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="not_known",
            dtypes=("float32", "float64"),
            result_dtype="bool",
            samples=lambda make: [
                (make.of([3, 1, 4, 15, 9, 2, 6, 5, 35, 8, 97]), make.of([2, 7, 1, 8, 28, 18, 4, 59, 0, 45])),
                (make(30), make(20)),
                (make((6, 7)), make(15)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "wavetable",
    "a remainder that is rounded up to the divisor",
    "periodic lookups by x % 1.0, which is 1.0 for tiny negative x; the index is then one past the table",
    "a phase of -1e-20: the remainder is 1.0, the index is the length of the table and IndexError is raised",
)
def wavetable():
    """A periodic table read at phases in periods, linear between entries; a phase that is not finite gives nan."""

    def look_up(xp, phase, table, wrap):
        if table.ndim != 1 or table.shape[0] == 0:
            raise ValueError(f"the shape of the table is {table.shape}; give a list of numbers")
        length = table.shape[0]
        valid = xp.isfinite(phase)
        place = (xp.where(valid, phase, 0.0).astype("float64") % 1.0) * length
        whole = xp.floor(place)
        part, index = place - whole, wrap(whole.astype("int64"), length)
        wide = table.astype("float64")
        between = (1.0 - part) * wide[index] + part * wide[(index + 1) % length]
        between = xp.where(part == 0, wide[index], between)
        return xp.where(valid, between, math.nan).astype(table.dtype)

    def wrong(xp, phase, table):
        return look_up(xp, phase, table, lambda index, length: index)

    def right(xp, phase, table):
        return look_up(xp, phase, table, lambda index, length: index % length)

    def reference(phase, table):
        if table.ndim != 1 or not len(table):
            raise ValueError("no table")
        out = np.full(phase.shape, math.nan)
        for at in np.ndindex(phase.shape):
            if math.isfinite(phase[at]):
                place = Fraction(float(phase[at])) % 1 * len(table)
                index = math.floor(place)
                part, before, after = float(place - index), table[index], table[(index + 1) % len(table)]
                out[at] = {0.0: before, 1.0: after}.get(part, (1 - part) * before + part * after)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="wavetable",
            dtypes=("float32", "float64"),
            result_dtype=lambda phase, table: table,
            samples=lambda make: [
                (make(50), make(16)),
                (make((4, 9)), make(7)),
                (make(30, low=-100, high=100), make(33)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4), make(0)), {}), ValueError, "list of numbers")],
        )

    return wrong, right, declare


@pair(
    "neighbour_sum",
    "values of one segment leak into the next through a prefix sum",
    "segment sums as differences of a cumulative sum, as in Lift-Splat-Shoot's cumsum_trick and scan-based SpMV",
    "nodes=3, an inf or nan on an edge to node 0: the sums of nodes 1 and 2 are nan, too",
)
def neighbour_sum():
    """The sum, for each node, of the rows that edges bring to it."""

    def check(rows, target, nodes):
        if target.ndim != 1 or rows.shape[:1] != target.shape:
            raise ValueError(f"the shapes are {rows.shape} and {target.shape}; give one target for each row")
        if target.size and (int(target.min()) < 0 or int(target.max()) >= nodes):
            raise ValueError(f"a target is not one of {nodes} nodes")

    def wrong(xp, rows, target, nodes=8):
        check(rows, target, nodes)
        order = xp.argsort(target, kind="stable")
        sums = xp.cumsum(rows[order].astype("float64"), axis=0)
        sums = xp.concatenate([xp.zeros((1, *rows.shape[1:])), sums], axis=0)
        ends = xp.searchsorted(target[order], xp.arange(nodes + 1, dtype=target.dtype))
        return (sums[ends[1:]] - sums[ends[:-1]]).astype(rows.dtype)

    def right(xp, rows, target, nodes=8):
        check(rows, target, nodes)
        mine = target[None, :] == xp.arange(nodes, dtype=target.dtype)[:, None]
        mine = mine.reshape(mine.shape + (1,) * (rows.ndim - 1))
        return xp.where(mine, rows.astype("float64")[None], 0.0).sum(axis=1).astype(rows.dtype)

    def reference(rows, target, nodes=8):
        if target.ndim != 1 or rows.shape[:1] != target.shape:
            raise ValueError("not one target for each row")
        out = np.zeros((nodes, *rows.shape[1:]))
        for row, node in zip(rows, target.tolist(), strict=True):
            if not 0 <= node < nodes:
                raise ValueError("no such node")
            out[node] += row
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="neighbour_sum",
            dtypes=("float16", "float32"),
            result_dtype=lambda rows, *_: rows,
            samples=lambda make: [
                (make(40), make(40, dtype="int64", low=0, high=7)),
                (make((30, 6)), make(30, dtype="int32", low=0, high=7)),
                Sample((make((50, 3)), make(50, dtype="int64", low=0, high=19)), {"nodes": 20}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3), make(4, dtype="int64", low=0, high=7)), {}), ValueError, "each row"),
                ErrorInput(
                    Sample((make(3), make(3, dtype="int64", low=5, high=7)), {"nodes": 5}), ValueError, "of 5 nodes"
                ),
            ],
        )

    return wrong, right, declare


@pair(
    "keep_top",
    "a shortcut returns the input itself",
    "top-k sparsifiers with `if k >= n: return a`: the caller changes the result in place and with it the input",
    "k=4 and rows of 3 entries: the result is the very array that was given",
)
def keep_top():
    """The k largest entries of each row, the others 0; of equal ones the first, and nan is the largest."""

    def rest(xp, a, k):
        length = a.shape[-1]
        order = (length - 1 - xp.argsort(a[..., ::-1], axis=-1, kind="stable"))[..., ::-1]
        rank = xp.argsort(order, axis=-1, kind="stable")
        return xp.where(rank < k, a, xp.zeros_like(a))

    def wrong(xp, a, k=4):
        if k < 0:
            raise ValueError(f"k is {k}; give 0 or more")
        if k >= a.shape[-1]:
            return a
        return rest(xp, a, k)

    def right(xp, a, k=4):
        if k < 0:
            raise ValueError(f"k is {k}; give 0 or more")
        if k >= a.shape[-1]:
            return a.copy()
        return rest(xp, a, k)

    def reference(a, k=4):
        out = np.zeros_like(a)
        length = a.shape[-1]
        for at in np.ndindex(a.shape[:-1]):
            row = a[at].tolist()
            places = sorted(range(length), key=lambda i: (0, 0) if math.isnan(row[i]) else (1, -row[i]))
            for i in places[:k]:
                out[(*at, i)] = row[i]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="keep_top",
            dtypes=("float16", "float32", "int32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(30),
                make((5, 12)),
                Sample((make((3, 4, 20)),), {"k": 7}),
                Sample((make((6, 9)),), {"k": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(5),), {"k": -1}), ValueError, "k is -1")],
        )

    return wrong, right, declare


@pair(
    "radix_order",
    "keys made of bits tell apart numbers that are equal",
    "radix sorts of floats by their bits, as in early CUB: -0.0 came before 0.0, and nan with a sign first",
    "[0.0, -0.0]: the order is [1, 0], where a stable order of equal numbers is [0, 1]",
)
def radix_order():
    """The stable order of the numbers in each row, nan last, by whole-number keys that a radix sort can use."""

    def by_keys(xp, a):
        size = a.dtype.itemsize
        bits = a.view(f"int{8 * size}")
        keys = bits ^ ((bits >> (8 * size - 1)) & (2 ** (8 * size - 1) - 1))
        return xp.argsort(keys, axis=-1, kind="stable").astype("int64")

    def wrong(xp, a):
        return by_keys(xp, a)

    def right(xp, a):
        zero, nan = xp.zeros_like(a), xp.full_like(a, math.nan)
        return by_keys(xp, xp.where(a == 0, zero, xp.where(xp.isnan(a), nan, a)))

    def reference(a):
        out = np.zeros(a.shape, dtype="int64")
        for at in np.ndindex(a.shape[:-1]):
            row = a[at].tolist()
            out[at] = sorted(range(len(row)), key=lambda i: (1, 0) if math.isnan(row[i]) else (0, row[i]))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="radix_order",
            dtypes=("float16", "float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [make(60), make((4, 17)), make((2, 3, 8), low=-1000, high=1000)],
            reference=reference,
        )

    return wrong, right, declare
