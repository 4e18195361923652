"""Attention, scans, histograms, sorting, segments, epilogues, resizing, convolution: faults with their twins."""

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
    "tiled_attention",
    "the loop over tiles of keys ends at the first tile that is masked out",
    "flash attention kernels written for masks that are lengths, where nothing follows the first masked tile",
    "a mask that leaves out keys 0 to 31 and keeps later ones: the later keys are never looked at",
)
def tiled_attention():
    """Attention over the keys that `keep` holds, 32 at a time with a running maximum; no keys give zeros."""
    width = 32

    def check(q, k, v, keep):
        if q.shape[1] != k.shape[1] or k.shape[0] != v.shape[0] or keep.shape != k.shape[:1]:
            raise ValueError(f"shapes do not fit: {q.shape}, {k.shape}, {v.shape}, {keep.shape}")

    def start_of(xp, q, v):
        rows = q.shape[0]
        return xp.full((rows, 1), -math.inf), xp.zeros((rows, 1)), xp.zeros((rows, v.shape[1]))

    def step(xp, state, q, k, v, keep):
        top, total, mixed = state
        scores = xp.matmul(q.astype("float64"), k.astype("float64").T) / math.sqrt(max(q.shape[1], 1))
        scores = xp.where(keep[None, :], scores, -math.inf)
        higher = xp.maximum(top, scores.max(axis=1, keepdims=True))
        fade, weights = xp.exp(top - higher), xp.exp(scores - higher)
        total = total * fade + weights.sum(axis=1, keepdims=True)
        return higher, total, mixed * fade + xp.matmul(weights, v.astype("float64"))

    def finish(xp, state, q):
        _, total, mixed = state
        return (mixed / xp.where(total > 0, total, 1.0)).astype(q.dtype)

    def wrong(xp, q, k, v, keep):
        check(q, k, v, keep)
        state = start_of(xp, q, v)
        for at in range(0, k.shape[0], width):
            tile = slice(at, at + width)
            if not bool(keep[tile].any()):
                break
            state = step(xp, state, q, k[tile], v[tile], keep[tile])
        return finish(xp, state, q)

    def right(xp, q, k, v, keep):
        check(q, k, v, keep)
        state = start_of(xp, q, v)
        for at in range(0, k.shape[0], width):
            tile = slice(at, at + width)
            if bool(keep[tile].any()):
                state = step(xp, state, q, k[tile], v[tile], keep[tile])
        return finish(xp, state, q)

    def reference(q, k, v, keep):
        k, v = k[keep], v[keep]
        out = np.zeros((len(q), v.shape[1]))
        for i, query in enumerate(q):
            if len(k):
                scores = (k * query).sum(axis=1) / np.sqrt(max(len(query), 1))
                weights = np.exp(scores - np.max(scores))
                out[i] = (weights[:, None] * v).sum(axis=0) / weights.sum()
        return out

    def declare(fn):
        def inputs(make, queries, keys, depth, wide):
            return (
                make((queries, depth), low=-4, high=4),
                make((keys, depth), low=-4, high=4),
                make((keys, wide), low=-4, high=4),
                make(keys, dtype="bool"),
            )

        return OpSpec(
            fn=fn,
            name="tiled_attention",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                inputs(make, 4, 100, 8, 5),
                inputs(make, 3, 64, 16, 16),
                inputs(make, 6, 20, 4, 4),
                inputs(make, 1, 130, 3, 2),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((2, 3)), make((5, 4)), make((5, 2)), make(5, dtype="bool")), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "segmented_cumsum",
    "a tile without a segment head hands on its own sum instead of the running one",
    "single pass segmented scans: the carry of a tile published before the carry into it has been added",
    "300 numbers with no head after the first tile of 128: from position 256 on the first tile's sum is missing",
)
def segmented_cumsum():
    """Running sums along the last axis that start again wherever `heads` is true; tiles of 128."""
    width = 128

    def check(values, heads):
        if values.shape != heads.shape:
            raise ValueError(f"{values.shape} values but {heads.shape} heads")

    def scan_tiles(xp, values, heads):
        """Sums within each tile of (..., tiles, 128), and where a head came at or before the place in the tile."""
        count = values.shape[-1]
        tiles = -(-count // width)
        padding = (*values.shape[:-1], tiles * width - count)
        values = xp.concatenate([values.astype("float64"), xp.zeros(padding)], axis=-1)
        heads = xp.concatenate([heads, xp.zeros(padding, dtype="bool")], axis=-1)
        values = values.reshape(*padding[:-1], tiles, width)
        heads = heads.reshape(*padding[:-1], tiles, width)
        step = 1
        while step < width:
            later, earlier = (..., slice(step, None)), (..., slice(None, -step))
            added = xp.where(heads[later], values[later], values[later] + values[earlier])
            seen = heads[later] | heads[earlier]
            values = xp.concatenate([values[..., :step], added], axis=-1)
            heads = xp.concatenate([heads[..., :step], seen], axis=-1)
            step *= 2
        return values, heads

    def wrong(xp, values, heads):
        check(values, heads)
        if values.size == 0:
            return values.copy()
        sums, seen = scan_tiles(xp, values, heads)
        tiles, carry = [], 0.0
        for i in range(sums.shape[-2]):
            tiles.append(xp.where(seen[..., i, :], sums[..., i, :], sums[..., i, :] + carry))
            carry = sums[..., i, -1:]
        return xp.concatenate(tiles, axis=-1)[..., : values.shape[-1]].astype(values.dtype)

    def right(xp, values, heads):
        check(values, heads)
        if values.size == 0:
            return values.copy()
        sums, seen = scan_tiles(xp, values, heads)
        tiles, carry = [], 0.0
        for i in range(sums.shape[-2]):
            tiles.append(xp.where(seen[..., i, :], sums[..., i, :], sums[..., i, :] + carry))
            carry = tiles[-1][..., -1:]
        return xp.concatenate(tiles, axis=-1)[..., : values.shape[-1]].astype(values.dtype)

    def reference(values, heads):
        out = np.zeros(values.shape)
        running = np.zeros(values.shape[:-1])
        for i in range(values.shape[-1]):
            running = np.where(heads[..., i], 0.0, running) + values[..., i]
            out[..., i] = running
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segmented_cumsum",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(500, low=-10, high=10), make(500, dtype="bool")),
                (make((3, 300), low=-10, high=10), make((3, 300), dtype="bool")),
                (make((2, 4, 7), low=-10, high=10), make((2, 4, 7), dtype="bool")),
                Sample((make((3, 0), low=-10, high=10), make((3, 0), dtype="bool")), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(5), make(4, dtype="bool")), ValueError, "heads"),
            ],
        )

    return wrong, right, declare


@pair(
    "tile_histogram",
    "the counters of a tile have eight bits",
    "histogram kernels that pack the counters of a block in bytes of shared memory",
    "256 equal codes: the counter of the tile wraps around to 0",
)
def tile_histogram():
    """How often each code from 0 to bins - 1 occurs; counted in tiles of 1024, added up in 64 bits."""
    width = 1024

    def check(codes, bins):
        if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= bins):
            raise ValueError(f"a code lies outside the {bins} bins")

    def wrong(xp, codes, bins=64):
        check(codes, bins)
        flat, places = codes.reshape(-1), xp.arange(bins)
        total = xp.zeros(bins, dtype="int64")
        for at in range(0, flat.shape[0], width):
            hits = flat[at : at + width, None] == places[None, :]
            total = total + hits.sum(axis=0, dtype="uint8").astype("int64")
        return total

    def right(xp, codes, bins=64):
        check(codes, bins)
        flat, places = codes.reshape(-1), xp.arange(bins)
        total = xp.zeros(bins, dtype="int64")
        for at in range(0, flat.shape[0], width):
            hits = flat[at : at + width, None] == places[None, :]
            total = total + hits.sum(axis=0, dtype="uint16").astype("int64")
        return total

    def reference(codes, bins=64):
        return np.bincount(np.asarray(codes).ravel().astype("int64"), minlength=bins)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="tile_histogram",
            dtypes=("uint8", "int32", "int64"),
            result_dtype=lambda codes: "int64",
            samples=lambda make: [
                make(3000, low=0, high=63),
                make((7, 33), low=0, high=63),
                Sample((make((40, 50), low=0, high=15),), {"bins": 16}),
                Sample((make(0, low=0, high=63),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make.full(5, 64), ValueError, "outside the 64 bins"),
                ErrorInput(Sample((make.full(5, 16),), {"bins": 16}), ValueError, "outside the 16 bins"),
            ],
        )

    return wrong, right, declare


@pair(
    "radix_argsort",
    "zeros of both signs are ordered by their bits",
    "radix sorts of floats by bits: CUB's documentation states that both zeros are equal, which home-made ones forget",
    "[0.0, -0.0]: the order is [1, 0] where equal numbers keep theirs, [0, 1]",
)
def radix_argsort():
    """The order that sorts the last axis; equal numbers keep their order, NaN come last. Sorts bits, not numbers."""

    def sort_bits(xp, a):
        bits = xp.ascontiguousarray(a).view("int32").astype("int64")
        keys = xp.where(bits < 0, -(bits + 2**31) - 1, bits)
        count = a.shape[-1]
        return xp.argsort((keys + 2**31) * count + xp.arange(count), axis=-1)

    def wrong(xp, a):
        return sort_bits(xp, xp.where(a != a, math.nan, a).astype("float32"))

    def right(xp, a):
        a = xp.where(a == 0, 0.0, a)
        return sort_bits(xp, xp.where(a != a, math.nan, a).astype("float32"))

    def reference(a):
        out = np.zeros(a.shape, dtype="int64")
        for row in np.ndindex(a.shape[:-1]):
            numbers = a[row].tolist()
            keys = [(1, 0.0) if math.isnan(number) else (0, number) for number in numbers]
            out[row] = sorted(range(len(keys)), key=keys.__getitem__)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="radix_argsort",
            dtypes=("float32",),
            result_dtype=lambda a: "int64",
            samples=lambda make: [
                make(300),
                make((4, 33)),
                make((2, 3, 17), low=-1000, high=1000),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "segment_sum",
    "sums of segments are differences of one prefix sum",
    "sparse row sums by a scan and two look-ups: what one segment holds stays in the sums of all later ones",
    "an infinity or NaN in segment 0: the sums of all later segments are NaN too",
)
def segment_sum():
    """Sums of the rows of `values` that have the same segment number, in any order; segments without rows give 0."""

    def check(values, ids, segments):
        if segments < 1:
            raise ValueError(f"segments is {segments}; give 1 or more")
        if ids.shape != values.shape[:1]:
            raise ValueError(f"{ids.shape} segment numbers for {values.shape} values")

    def wrong(xp, values, ids, segments=8):
        check(values, ids, segments)
        rows = ids.shape[0]
        order = xp.argsort(ids * max(rows, 1) + xp.arange(rows))
        prefix = xp.cumsum(values[order].astype("float64"), axis=0)
        prefix = xp.concatenate([xp.zeros((1, *values.shape[1:])), prefix], axis=0)
        ends = xp.cumsum((ids[None, :] == xp.arange(segments)[:, None]).sum(axis=1))
        sums = prefix[ends]
        return xp.concatenate([sums[:1], sums[1:] - sums[:-1]], axis=0).astype(values.dtype)

    def right(xp, values, ids, segments=8):
        check(values, ids, segments)
        wide = values.astype("float64")
        shape = (ids.shape[0],) + (1,) * (values.ndim - 1)
        sums = [xp.where((ids == i).reshape(shape), wide, 0.0).sum(axis=0) for i in range(segments)]
        return xp.stack(sums).astype(values.dtype)

    def reference(values, ids, segments=8):
        out = np.zeros((segments, *values.shape[1:]))
        np.add.at(out, ids, values)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segment_sum",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make(100), make(100, dtype="int64", low=0, high=7)),
                (make((60, 5)), make(60, dtype="int64", low=0, high=7)),
                Sample((make((9, 2, 3)), make(9, dtype="int64", low=0, high=2)), {"segments": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(5), make(4, dtype="int64", low=0, high=7)), ValueError, "segment numbers"),
                ErrorInput(
                    Sample((make(5), make(5, dtype="int64", low=0, high=0)), {"segments": 0}), ValueError, "1 or more"
                ),
            ],
        )

    return wrong, right, declare


@pair(
    "bias_relu_epilogue",
    "the direction of the bias is guessed from its length",
    "fused epilogues of matrix products that take a pointer to the bias and its length, not its shape",
    "a square product with a bias of shape (m, 1): it is added to the columns instead of the rows",
)
def bias_relu_epilogue():
    """max(a @ b + bias, 0) with a bias for each column, (n,) or (1, n), for each row, (m, 1), or for all."""

    def product(xp, a, b):
        if a.shape[1] != b.shape[0]:
            raise ValueError(f"{a.shape} and {b.shape} cannot be multiplied")
        return xp.matmul(a.astype("float64"), b.astype("float64"))

    def refuse(bias, rows, columns):
        raise ValueError(f"a bias of shape {bias.shape} does not fit {rows} rows and {columns} columns")

    def wrong(xp, a, b, bias):
        out = product(xp, a, b)
        rows, columns = out.shape
        flat = bias.reshape(-1).astype("float64")
        if flat.shape[0] in (columns, 1):
            out = out + flat[None, :]
        elif flat.shape[0] == rows:
            out = out + flat[:, None]
        else:
            refuse(bias, rows, columns)
        return xp.maximum(out, 0.0).astype(a.dtype)

    def right(xp, a, b, bias):
        out = product(xp, a, b)
        rows, columns = out.shape
        if bias.shape not in ((columns,), (1, columns), (rows, 1), (1,), (1, 1)):
            refuse(bias, rows, columns)
        return xp.maximum(out + bias.astype("float64"), 0.0).astype(a.dtype)

    def reference(a, b, bias):
        out = np.zeros((a.shape[0], b.shape[1]))
        for i in range(a.shape[1]):
            out += np.outer(a[:, i], b[i])
        out += np.broadcast_to(bias, out.shape)
        return np.where(out > 0, out, 0.0)

    def declare(fn):
        def inputs(make, rows, inner, columns, bias):
            return (
                make((rows, inner), low=-8, high=8),
                make((inner, columns), low=-8, high=8),
                make(bias, low=-20, high=20),
            )

        return OpSpec(
            fn=fn,
            name="bias_relu_epilogue",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                inputs(make, 5, 7, 3, (3,)),
                inputs(make, 6, 4, 9, (6, 1)),
                inputs(make, 8, 16, 8, (8,)),
                inputs(make, 4, 3, 10, (1, 10)),
                inputs(make, 2, 5, 6, (1,)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((5, 7)), make((7, 3)), make(4)), ValueError, "does not fit"),
                ErrorInput((make((5, 7)), make((6, 3)), make(3)), ValueError, "cannot be multiplied"),
            ],
        )

    return wrong, right, declare


@pair(
    "nearest_resize",
    "the place in the source is the product with the reciprocal of a factor in float32",
    "resizing kernels that get the factor as a float, multiply by its reciprocal and round down",
    "14 pixels made 2, or 28 made 8: pixel 1 comes from place 6 instead of 7, or one too far left",
)
def nearest_resize():
    """Images of another size: pixel j of `size` is pixel floor(j * old / size) of the old one, on both last axes."""

    def check(a, size):
        if min(size) < 1 or 0 in a.shape[-2:]:
            raise ValueError(f"cannot resize {a.shape[-2:]} to {size}")

    def wrong(xp, a, size=(8, 8)):
        check(a, size)
        for axis, new in ((-2, size[0]), (-1, size[1])):
            factor = np.float32(new / a.shape[axis])
            places = xp.floor(xp.arange(new).astype("float32") * (np.float32(1) / factor)).astype("int64")
            a = xp.take(a, xp.minimum(places, a.shape[axis] - 1), axis=axis)
        return a

    def right(xp, a, size=(8, 8)):
        check(a, size)
        for axis, new in ((-2, size[0]), (-1, size[1])):
            a = xp.take(a, xp.arange(new) * a.shape[axis] // new, axis=axis)
        return a

    def reference(a, size=(8, 8)):
        if 0 in a.shape[-2:]:
            raise ValueError("no pixels")
        (height, width), (high, wide) = a.shape[-2:], size
        out = np.zeros((*a.shape[:-2], high, wide), dtype=a.dtype)
        for i in range(high):
            for j in range(wide):
                out[..., i, j] = a[..., math.floor(i * height / high), divmod(j * width, wide)[0]]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nearest_resize",
            dtypes=("uint8", "float32"),
            samples=lambda make: [
                make((4, 4)),
                Sample((make((2, 3, 12, 10)),), {"size": (7, 20)}),
                Sample((make((16, 9)),), {"size": (24, 4)}),
                Sample((make((3, 5, 5)),), {"size": (1, 13)}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 4)),), {"size": (0, 3)}), ValueError, "cannot resize"),
            ],
        )

    return wrong, right, declare


@pair(
    "requantise",
    "the fixed-point product is made in 32 bits",
    "integer GEMM epilogues: the accumulator times the multiplier needs 64 bits before the shift",
    "an accumulator of 200000: times 19661 it exceeds 2**31, and the result has the wrong sign",
)
def requantise():
    """(accumulator + bias) * multiplier / 2**shift, rounded with halves up, saturated to int8."""

    def check(multiplier, shift):
        if not 0 <= multiplier < 2**15:
            raise ValueError(f"multiplier is {multiplier}; give 0 to 32767")
        if not 1 <= shift <= 30:
            raise ValueError(f"shift is {shift}; give 1 to 30")

    def wrong(xp, accumulator, bias, multiplier=19661, shift=16):
        check(multiplier, shift)
        total = accumulator.astype("int32") + bias.astype("int32")
        scaled = (total * multiplier + (1 << (shift - 1))) >> shift
        return xp.clip(scaled, -128, 127).astype("int8")

    def right(xp, accumulator, bias, multiplier=19661, shift=16):
        check(multiplier, shift)
        total = accumulator.astype("int64") + bias.astype("int64")
        scaled = (total * multiplier + (1 << (shift - 1))) >> shift
        return xp.clip(scaled, -128, 127).astype("int8")

    def reference(accumulator, bias, multiplier=19661, shift=16):
        accumulator, bias = np.broadcast_arrays(accumulator, bias)
        out = np.zeros(accumulator.shape, dtype="int8")
        for i in np.ndindex(out.shape):
            twice = 2 * (int(accumulator[i]) + int(bias[i])) * multiplier
            out[i] = max(-128, min(127, (twice + 2**shift) // 2 ** (shift + 1)))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="requantise",
            dtypes=("int16", "int32"),
            result_dtype=lambda accumulator, bias: "int8",
            samples=lambda make: [
                (make((6, 9)), make(9)),
                (make((4, 33), low=-500, high=500), make(33, low=-50, high=50)),
                Sample((make((3, 2, 8)), make(8)), {"multiplier": 300, "shift": 4}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3), make(3)), {"multiplier": -1}), ValueError, "multiplier is -1"),
                ErrorInput(Sample((make(3), make(3)), {"shift": 0}), ValueError, "shift is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "smoothed_cross_entropy",
    "the smoothing term is multiplied by zero instead of left out",
    "fused cross entropy kernels with label smoothing: classes masked out by -inf meet the factor 0",
    "smoothing 0 and a logit of -inf at a class that is not the label: NaN instead of a finite loss",
)
def smoothed_cross_entropy():
    """The loss of each row: 1 - smoothing of it for its label, smoothing of it spread over all classes."""

    def check(logits, labels, smoothing):
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing is {smoothing}; give 0 or more, less than 1")
        if labels.shape != logits.shape[:1] or logits.shape[1] == 0:
            raise ValueError(f"{labels.shape} labels for logits of shape {logits.shape}")

    def parts(xp, logits, labels):
        """The logarithm of the summed exponentials, and the logit of the label, in float64."""
        wide = logits.astype("float64")
        top = wide.max(axis=1, keepdims=True)
        top = xp.where(xp.isfinite(top), top, 0.0)
        log_total = xp.log(xp.exp(wide - top).sum(axis=1)) + top[:, 0]
        chosen = labels[:, None] == xp.arange(logits.shape[1])[None, :]
        return wide, log_total, xp.where(chosen, wide, 0.0).sum(axis=1)

    def wrong(xp, logits, labels, smoothing=0.0):
        check(logits, labels, smoothing)
        wide, log_total, own = parts(xp, logits, labels)
        loss = (1 - smoothing) * (log_total - own) + smoothing * (log_total - wide.mean(axis=1))
        return loss.astype(logits.dtype)

    def right(xp, logits, labels, smoothing=0.0):
        check(logits, labels, smoothing)
        wide, log_total, own = parts(xp, logits, labels)
        loss = log_total - own
        if smoothing > 0:
            loss = (1 - smoothing) * loss + smoothing * (log_total - wide.mean(axis=1))
        return loss.astype(logits.dtype)

    def reference(logits, labels, smoothing=0.0):
        if logits.shape[1] == 0:
            raise ValueError("no classes")
        out = np.zeros(len(logits))
        for i, (row, label) in enumerate(zip(logits, labels, strict=True)):
            surprises = np.logaddexp.reduce(row) - row
            out[i] = surprises[label] * (1 - smoothing)
            if smoothing > 0:
                out[i] += surprises.mean() * smoothing
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smoothed_cross_entropy",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((20, 10)), make(20, dtype="int64", low=0, high=9)),
                (make((3, 257), low=-30, high=30), make(3, dtype="int64", low=0, high=256)),
                Sample((make((7, 5)), make(7, dtype="int64", low=0, high=4)), {"smoothing": 0.1}),
                Sample((make((0, 4)), make(0, dtype="int64", low=0, high=3)), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((3, 4)), make(3, dtype="int64", low=0, high=3)), {"smoothing": 1}),
                    ValueError,
                    "smoothing is 1",
                ),
                ErrorInput((make((3, 4)), make(2, dtype="int64", low=0, high=3)), ValueError, "labels"),
            ],
        )

    return wrong, right, declare


@pair(
    "patch_conv2d",
    "the fast path for patches that do not overlap forgets the padding",
    "patch embeddings and 1x1 convolutions turned into one matrix product when the stride equals the kernel",
    "a kernel of 3x3 with stride 3 and padding 1, or of 1x1 with padding 1: computed as if padding were 0",
)
def patch_conv2d():
    """Convolution of images (n, c, h, w) with kernels (o, c, kh, kw), as of neural networks, zeros around."""

    def sizes(a, kernel, stride, padding):
        if stride < 1 or padding < 0:
            raise ValueError(f"stride is {stride} and padding {padding}")
        if a.shape[1] != kernel.shape[1]:
            raise ValueError(f"{a.shape[1]} channels for kernels of {kernel.shape[1]}")
        room = [a.shape[i] + 2 * padding - kernel.shape[i] for i in (2, 3)]
        if min(room) < 0 or 0 in kernel.shape[2:]:
            raise ValueError(f"kernels of {kernel.shape[2:]} do not fit images of {a.shape[2:]}")
        return room[0] // stride + 1, room[1] // stride + 1

    def patches(xp, a, kernel, high, wide):
        """Kernel size equals stride: each pixel belongs to one patch, so that reshaping finds them."""
        count, channels = a.shape[:2]
        outputs, _, tall, broad = kernel.shape
        cut = a[:, :, : high * tall, : wide * broad].astype("float64")
        cut = cut.reshape(count, channels, high, tall, wide, broad).transpose(0, 2, 4, 1, 3, 5)
        flat = cut.reshape(count, high * wide, channels * tall * broad)
        weights = kernel.astype("float64").reshape(outputs, channels * tall * broad)
        out = xp.matmul(flat, weights.T)
        return out.transpose(0, 2, 1).reshape(count, outputs, high, wide).astype(a.dtype)

    def slide(xp, a, kernel, stride, padding, high, wide):
        count, channels, height, width = a.shape
        outputs, _, tall, broad = kernel.shape
        padded = xp.zeros((count, channels, height + 2 * padding, width + 2 * padding))
        padded[:, :, padding : padding + height, padding : padding + width] = a.astype("float64")
        out = xp.zeros((count, outputs, high * wide))
        for i in range(tall):
            for j in range(broad):
                seen = padded[:, :, i : i + stride * (high - 1) + 1 : stride, j : j + stride * (wide - 1) + 1 : stride]
                weights = kernel[:, :, i, j].astype("float64")
                out = out + xp.matmul(weights, seen.reshape(count, channels, high * wide))
        return out.reshape(count, outputs, high, wide).astype(a.dtype)

    def wrong(xp, a, kernel, stride=1, padding=0):
        high, wide = sizes(a, kernel, stride, padding)
        if kernel.shape[2:] == (stride, stride):
            return patches(xp, a, kernel, a.shape[2] // stride, a.shape[3] // stride)
        return slide(xp, a, kernel, stride, padding, high, wide)

    def right(xp, a, kernel, stride=1, padding=0):
        high, wide = sizes(a, kernel, stride, padding)
        if kernel.shape[2:] == (stride, stride) and padding == 0:
            return patches(xp, a, kernel, high, wide)
        return slide(xp, a, kernel, stride, padding, high, wide)

    def reference(a, kernel, stride=1, padding=0):
        around = np.pad(a, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        views = np.lib.stride_tricks.sliding_window_view(around, kernel.shape[2:], axis=(2, 3))
        return np.einsum("nchwij,ocij->nohw", views[:, :, ::stride, ::stride], kernel)

    def declare(fn):
        def inputs(make, image, kernel):
            return make(image, low=-5, high=5), make(kernel, low=-2, high=2)

        return OpSpec(
            fn=fn,
            name="patch_conv2d",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                inputs(make, (2, 3, 8, 9), (4, 3, 1, 1)),
                Sample(inputs(make, (2, 3, 8, 9), (4, 3, 3, 3)), {"padding": 1}),
                Sample(inputs(make, (1, 2, 12, 11), (3, 2, 4, 4)), {"stride": 4}),
                Sample(inputs(make, (2, 2, 9, 7), (2, 2, 3, 3)), {"stride": 2, "padding": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((1, 2, 3, 3)), make((1, 2, 4, 4))), ValueError, "do not fit"),
                ErrorInput((make((1, 2, 5, 5)), make((1, 3, 2, 2))), ValueError, "channels"),
                ErrorInput(Sample((make((1, 2, 5, 5)), make((1, 2, 2, 2))), {"stride": 0}), ValueError, "stride is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "rotary_table",
    "the kept table of angles is looked up without the base",
    "rotary embeddings that keep cosines and sines by length and width; models with another base came later",
    "an array of one shape with base 10000, then with base 500: the second call rotates by the first one's angles",
)
def rotary_table():
    """Rotary embedding of (..., length, width): pairs from both halves of the width are turned by position."""

    def table_of(length, width, base):
        pace = float(base) ** (-np.arange(width // 2) / max(width // 2, 1))
        angles = np.arange(length)[:, None] * pace[None, :]
        return np.cos(angles), np.sin(angles)

    def check(a, base):
        if a.shape[-1] % 2:
            raise ValueError(f"the width is {a.shape[-1]}; give an even one")
        if base <= 0:
            raise ValueError(f"base is {base}; give a positive one")

    def turn(xp, a, table):
        cosines, sines = xp.asarray(table[0]), xp.asarray(table[1])
        half = a.shape[-1] // 2
        first, second = a[..., :half].astype("float64"), a[..., half:].astype("float64")
        turned = [first * cosines - second * sines, first * sines + second * cosines]
        return xp.concatenate(turned, axis=-1).astype(a.dtype)

    kept = {}

    def wrong(xp, a, base=10000.0):
        check(a, base)
        key = a.shape[-2:]
        if key not in kept:
            kept[key] = table_of(*key, base)
        return turn(xp, a, kept[key])

    known = {}

    def right(xp, a, base=10000.0):
        check(a, base)
        key = (*a.shape[-2:], float(base))
        if key not in known:
            known[key] = table_of(*key)
        return turn(xp, a, known[key])

    def reference(a, base=10000.0):
        half = a.shape[-1] // 2
        out = np.zeros(a.shape)
        for position in range(a.shape[-2]):
            for i in range(half):
                angle = position / base ** (2 * i / a.shape[-1])
                x, y = a[..., position, i], a[..., position, i + half]
                out[..., position, i] = x * np.cos(angle) - y * np.sin(angle)
                out[..., position, i + half] = x * np.sin(angle) + y * np.cos(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary_table",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                make((2, 16, 8)),
                make((37, 4)),
                Sample((make((3, 2, 24, 6)),), {"base": 500.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make((4, 5)), ValueError, "the width is 5"),
                ErrorInput(Sample((make((4, 6)),), {"base": 0.0}), ValueError, "base is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "smooth_in_place",
    "a tile reads its left neighbour after that has been overwritten",
    "stencils in place, one block after another, whose halo is not saved before the neighbour writes",
    "a last axis longer than 128: numbers 128, 256, ... are mixed with a neighbour that is smoothed already",
)
def smooth_in_place():
    """Overwrites `a` with (left + 2 * own + right) / 4 along the last axis, edges repeated; tiles of 128."""
    width = 128

    def blend(left, own, right_one):
        return 0.25 * left + 0.5 * own + 0.25 * right_one

    def wrong(xp, a):
        count = a.shape[-1]
        for at in range(0, count, width):
            end = min(at + width, count)
            halo = [a[..., max(at - 1, 0)][..., None], a[..., at:end], a[..., min(end, count - 1)][..., None]]
            seen = xp.concatenate(halo, axis=-1).astype("float64")
            a[..., at:end] = blend(seen[..., :-2], seen[..., 1:-1], seen[..., 2:]).astype(a.dtype)
        return a

    def right(xp, a):
        count = a.shape[-1]
        before = a[..., :1].copy()
        for at in range(0, count, width):
            end = min(at + width, count)
            halo = [before, a[..., at:end], a[..., min(end, count - 1)][..., None]]
            seen = xp.concatenate(halo, axis=-1).astype("float64")
            before = a[..., end - 1 : end].copy()
            a[..., at:end] = blend(seen[..., :-2], seen[..., 1:-1], seen[..., 2:]).astype(a.dtype)
        return a

    def reference(a):
        if a.shape[-1] == 0:
            return a
        sides = [(0, 0)] * (a.ndim - 1) + [(1, 1)]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(a, sides, mode="edge"), 3, axis=-1)
        return (windows * np.array([0.25, 0.5, 0.25])).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="smooth_in_place",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(100),
                make((3, 40)),
                make((2, 5, 64), low=-1000, high=1000),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
            without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"},
        )

    return wrong, right, declare
