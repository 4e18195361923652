"""Caches, sampling, formats, optimisers, pooling, resampling, scans, time, grids, routing: faults with their twins."""

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
    "kv_offset",
    "offsets are multiplied in the 32 bits of the block table",
    "paged attention kernels: block number times block stride in int32, found when caches passed 2^31 elements",
    "int32 blocks up to 100000 with page=32: block 99999 times 32 times 1024 wraps around and is negative",
)
def kv_offset():
    """Where a slot of a block starts in a paged cache, in elements; -1 for a block that is not allocated (negative)."""

    def check(page, width):
        if page < 1 or width < 1:
            raise ValueError(f"page is {page} and width is {width}; give 1 or more")

    def wrong(xp, blocks, slots, page=16, width=1024):
        check(page, width)
        offsets = (blocks * page + slots) * width
        return xp.where(blocks < 0, -1, offsets).astype("int64")

    def right(xp, blocks, slots, page=16, width=1024):
        check(page, width)
        offsets = (blocks.astype("int64") * page + slots) * width
        return xp.where(blocks < 0, -1, offsets)

    def reference(blocks, slots, page=16, width=1024):
        blocks, slots = np.broadcast_arrays(blocks, slots)
        out = np.empty(blocks.shape, dtype="int64")
        for i in np.ndindex(out.shape):
            block, slot = int(blocks[i]), int(slots[i])
            out[i] = -1 if block < 0 else block * page * width + slot * width
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="kv_offset",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(50, low=-1, high=100_000), make(50, low=0, high=15)),
                (make((4, 9), low=-1, high=100_000), make((4, 9), low=0, high=15)),
                Sample((make((3, 7), low=-1, high=100_000), make((3, 7), low=0, high=7)), {"page": 8}),
                Sample((make(20, low=-1, high=100_000), make(20, low=0, high=15)), {"width": 512}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(3, low=0, high=9), make(3, low=0, high=9)), {"page": 0}), ValueError, "page is 0"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "draw_token",
    "a uniform number of exactly 1 draws the last token even if its weight is 0",
    "samplers on curand_uniform, whose numbers are in (0, 1]: the index past the end was clipped to the last token",
    "weights [1, 2, 0] with a uniform number of 1: token 2, which has no weight, instead of token 1",
)
def draw_token():
    """The token of each row that a uniform number from 0 to 1 draws by the row's weights; -1 if none has a weight."""

    def wrong(xp, weights, uniform):
        tokens = weights.shape[-1]
        if tokens == 0:
            return xp.full(uniform.shape, -1, dtype="int64")
        upto = xp.cumsum(weights.astype("float64"), axis=-1)
        total = upto[..., -1]
        passed = (upto <= (uniform.astype("float64") * total)[..., None]).sum(axis=-1)
        return xp.where(total > 0, xp.minimum(passed, tokens - 1), -1).astype("int64")

    def right(xp, weights, uniform):
        tokens = weights.shape[-1]
        if tokens == 0:
            return xp.full(uniform.shape, -1, dtype="int64")
        upto = xp.cumsum(weights.astype("float64"), axis=-1)
        passed = (upto <= (uniform.astype("float64") * upto[..., -1])[..., None]).sum(axis=-1)
        last = xp.where(weights > 0, xp.arange(tokens), -1).max(axis=-1)
        return xp.minimum(passed, last).astype("int64")

    def reference(weights, uniform):
        out = np.full(np.shape(uniform), -1, dtype="int64")
        for i in np.ndindex(out.shape):
            row = [float(w) for w in weights[i]]
            total = 0.0
            for w in row:
                total += w
            target, reached = float(uniform[i]) * total, 0.0
            for token, w in enumerate(row):
                if w > 0:
                    out[i] = token
                    reached += w
                    if reached > target:
                        break
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="draw_token",
            dtypes=("float16", "float32"),
            result_dtype="int64",
            samples=lambda make: [
                (make((12, 30), low=0, high=1), make(12, low=0, high=1)),
                (make((2, 5, 8), low=0, high=1), make((2, 5), low=0, high=1)),
                (make((40, 3), low=0, high=100), make(40, low=0, high=1)),
                (make((3, 1), low=0, high=1), make(3, low=0, high=1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "mx_exponent",
    "the exponent is taken from a rounded logarithm",
    "MX and block floating point quantisers: floor(log2(amax)) in float32, one too large right below powers of two",
    "a block in float32 whose largest number is the last one below 8: log2 rounds to 3.0, so the exponent is 1, not 0",
)
def mx_exponent():
    """Shared exponents of blocks for FP4 (E2M1): of the largest magnitude, less 2, from -127 to 127.

    The last block may be short. A block of zeros has -127, one with NaN or infinity has 128.
    """

    def largest(xp, a, block):
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")
        length = a.shape[-1]
        blocks = -(-length // block)
        wide = xp.abs(a.astype("float32"))
        rest = xp.zeros((*a.shape[:-1], blocks * block - length), dtype="float32")
        return xp.concatenate([wide, rest], axis=-1).reshape((*a.shape[:-1], blocks, block)).max(axis=-1)

    def wrong(xp, a, block=32):
        top = largest(xp, a, block)
        usable = xp.isfinite(top) & (top > 0)
        exponent = xp.floor(xp.log2(xp.where(usable, top, 1))) - 2
        exponent = xp.clip(exponent, -127, 127)
        exponent = xp.where(top == 0, -127, exponent)
        return xp.where(xp.isfinite(top), exponent, 128).astype("int64")

    def right(xp, a, block=32):
        top = largest(xp, a, block)
        usable = xp.isfinite(top) & (top > 0)
        exponent = xp.frexp(xp.where(usable, top, 1))[1].astype("int64") - 3
        exponent = xp.clip(exponent, -127, 127)
        exponent = xp.where(top == 0, -127, exponent)
        return xp.where(xp.isfinite(top), exponent, 128).astype("int64")

    def reference(a, block=32):
        powers = 2.0 ** np.arange(-127, 129)
        out = np.empty((*a.shape[:-1], math.ceil(a.shape[-1] / block)), dtype="int64")
        for i in np.ndindex(out.shape):
            numbers = np.abs(a[i[:-1]][i[-1] * block : (i[-1] + 1) * block])
            if not np.isfinite(numbers).all():
                out[i] = 128
                continue
            power = int(np.searchsorted(powers, numbers.max(), side="right")) - 1 - 127
            out[i] = max(power - 2, -127)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mx_exponent",
            dtypes=("float16", "float32"),
            result_dtype="int64",
            samples=lambda make: [
                make((3, 64)),
                make((2, 100), low=-1000, high=1000),
                make(32, low=-0.01, high=0.01),
                Sample((make((2, 3, 48)),), {"block": 16}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"block": 0}), ValueError, "block is 0")],
        )

    return wrong, right, declare


@pair(
    "cautious_update",
    "equal signs are found by a product that underflows",
    "cautious optimisers: mask = update * grad > 0 in half precision dropped most of the small gradients",
    "updates and gradients of 1e-4 in float16 (1e-30 in float32): the product is 0, so everything is masked",
)
def cautious_update():
    """An update kept where its sign is the gradient's, else 0, times size / (number kept + 1)."""

    def scaled(xp, update, keep):
        wide = update.astype("float64")
        factor = update.size / (keep.sum() + 1.0)
        return xp.where(keep, wide * factor, 0.0).astype(update.dtype)

    def wrong(xp, update, grad):
        return scaled(xp, update, update * grad > 0)

    def right(xp, update, grad):
        return scaled(xp, update, ((update > 0) & (grad > 0)) | ((update < 0) & (grad < 0)))

    def reference(update, grad):
        kept = np.sign(update) * np.sign(grad) == 1
        out = np.zeros(update.shape)
        out[kept] = update[kept] * (update.size / (np.count_nonzero(kept) + 1))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cautious_update",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make(64), make(64)),
                (make((7, 33)), make((7, 33))),
                (make((2, 3, 5), low=-0.1, high=0.1), make((2, 3, 5), low=-100, high=100)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "causal_conv",
    "a short input forgets the older part of the state",
    "Mamba-like decoders: the convolution's state was replaced by the last inputs, padded by zeros in short prefills",
    "one new step with a filter of 4: the new state is [0, 0, x] where it should be the old one moved by one",
)
def causal_conv():
    """A causal filter for each channel over (batch, channels, time), and the state for the next call.

    The state holds the last inputs before these, one less than the filter is long.
    """

    def join(xp, a, state, filters):
        if state.shape[-1] != filters.shape[-1] - 1:
            raise ValueError(f"the state holds {state.shape[-1]} steps, not {filters.shape[-1] - 1}")
        return xp.concatenate([state, a], axis=-1).astype("float64")

    def convolve(xp, full, filters, like):
        total = xp.zeros(like.shape, dtype="float64")
        wide = filters.astype("float64")
        for k in range(filters.shape[-1]):
            total = total + full[..., k : k + like.shape[-1]] * wide[:, k : k + 1]
        return total.astype(like.dtype)

    def wrong(xp, a, state, filters):
        full = join(xp, a, state, filters)
        held, steps = state.shape[-1], a.shape[-1]
        last = a[..., max(steps - held, 0) :]
        missing = xp.zeros((*a.shape[:-1], held - last.shape[-1]), dtype=a.dtype)
        return convolve(xp, full, filters, a), xp.concatenate([missing, last], axis=-1)

    def right(xp, a, state, filters):
        full = join(xp, a, state, filters)
        return convolve(xp, full, filters, a), full[..., a.shape[-1] :].astype(a.dtype)

    def reference(a, state, filters):
        batch, channels, steps = a.shape
        taps = filters.shape[-1]
        out, after = np.zeros(a.shape), np.zeros(state.shape)
        for b in range(batch):
            for c in range(channels):
                recent = list(state[b, c])
                for t in range(steps):
                    window = [*recent, a[b, c, t]]
                    out[b, c, t] = sum(window[k] * filters[c, k] for k in range(taps))
                    recent = window[1:]
                after[b, c] = recent
        return out, after

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="causal_conv",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                (make((2, 3, 20)), make((2, 3, 3)), make((3, 4))),
                (make((1, 8, 7)), make((1, 8, 1)), make((8, 2))),
                (make((3, 2, 5)), make((3, 2, 4)), make((2, 5))),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((1, 2, 5)), make((1, 2, 4)), make((2, 4))), ValueError, "holds 4 steps, not 3")
            ],
        )

    return wrong, right, declare


@pair(
    "adaptive_mean_pool",
    "all windows are taken to be equally long",
    "adaptive average pooling rebuilt with a fixed kernel size for ONNX and mobile back ends",
    "7 numbers into 5 windows, or 11 into 4: some windows are one longer than ceil(7 / 5), and lose their last number",
)
def adaptive_mean_pool():
    """Means of `size` windows along the last axis; window i is from floor(i * n / size) to ceil((i + 1) * n / size)."""

    def check(a, size):
        if size < 1:
            raise ValueError(f"size is {size}; give 1 or more")
        if a.shape[-1] == 0:
            raise ValueError("there is nothing to pool along an axis of length 0")

    def wrong(xp, a, size=4):
        check(a, size)
        length = a.shape[-1]
        window = -(-length // size)
        starts = xp.arange(size) * length // size
        return a.astype("float64")[..., starts[:, None] + xp.arange(window)].mean(axis=-1).astype(a.dtype)

    def right(xp, a, size=4):
        check(a, size)
        length = a.shape[-1]
        starts = xp.arange(size) * length // size
        ends = (xp.arange(1, size + 1) * length + size - 1) // size
        places = starts[:, None] + xp.arange(-(-length // size) + 1)
        numbers = a.astype("float64")[..., xp.minimum(places, length - 1)]
        total = xp.where(places < ends[:, None], numbers, 0.0).sum(axis=-1)
        return (total / (ends - starts)).astype(a.dtype)

    def reference(a, size=4):
        length = a.shape[-1]
        if length == 0:
            raise ValueError("nothing to pool")
        windows = [a[..., i * length // size : math.ceil((i + 1) * length / size)] for i in range(size)]
        return np.stack([window.mean(axis=-1) for window in windows], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adaptive_mean_pool",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                make((3, 32)),
                make((2, 5, 10)),
                Sample((make((4, 9)),), {"size": 6}),
                Sample((make((2, 49)),), {"size": 7}),
                Sample((make(13),), {"size": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"size": 0}), ValueError, "size is 0"),
                ErrorInput(make((2, 0)), ValueError, "nothing to pool"),
            ],
        )

    return wrong, right, declare


@pair(
    "fourier_resample",
    "the highest kept frequency is not folded when an even number of samples is left",
    "scipy.signal.resample before its repair of the unpaired component, which had been right for longer results only",
    "100 samples into 64, or any shorter even number: the component at half the new rate has half of its height",
)
def fourier_resample():
    """A periodic real signal at `count` places along the last axis, as scipy.signal.resample does."""

    def check(a, count):
        if count < 1:
            raise ValueError(f"count is {count}; give 1 or more")
        if a.shape[-1] == 0:
            raise ValueError("there is no signal along an axis of length 0")

    def kept(xp, a, count):
        spectrum = xp.fft.rfft(a.astype("float64"), axis=-1)[..., : count // 2 + 1]
        missing = count // 2 + 1 - spectrum.shape[-1]
        zeros = xp.zeros((*a.shape[:-1], missing), dtype="complex128")
        return xp.concatenate([spectrum, zeros], axis=-1)

    def back(xp, a, spectrum, count):
        return (xp.fft.irfft(spectrum, count, axis=-1) * (count / a.shape[-1])).astype(a.dtype)

    def wrong(xp, a, count=64):
        check(a, count)
        length = a.shape[-1]
        spectrum = kept(xp, a, count)
        if length < count and length % 2 == 0:  # this component is there twice from now on
            spectrum[..., length // 2] *= 0.5
        return back(xp, a, spectrum, count)

    def right(xp, a, count=64):
        check(a, count)
        length = a.shape[-1]
        spectrum = kept(xp, a, count)
        if length < count and length % 2 == 0:  # this component is there twice from now on
            spectrum[..., length // 2] *= 0.5
        if count < length and count % 2 == 0:  # and this one was there twice until now
            spectrum[..., count // 2] *= 2
        return back(xp, a, spectrum, count)

    def reference(a, count=64):
        length = a.shape[-1]
        if length == 0:
            raise ValueError("no signal")
        fewer = min(length, count)
        places, wanted = np.arange(length) / length, np.arange(count) / count
        kernel = np.zeros((length, count))
        for f in range(-(fewer // 2), fewer // 2 + 1):
            edge = fewer % 2 == 0 and abs(f) == fewer // 2
            factor = 0.5 if edge and count >= length else 1.0
            kernel += factor * np.cos(2 * np.pi * f * (wanted[None, :] - places[:, None]))
        return a @ kernel / length

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fourier_resample",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 40), low=-10, high=10),
                make(64, low=-10, high=10),
                Sample((make((2, 21), low=-10, high=10),), {"count": 33}),
                Sample((make((2, 30), low=-10, high=10),), {"count": 15}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(8),), {"count": 0}), ValueError, "count is 0"),
                ErrorInput(make((2, 0)), ValueError, "no signal"),
            ],
        )

    return wrong, right, declare


@pair(
    "ell_row_max",
    "an implicit zero takes part in rows that store every column",
    "maxima of sparse matrices: zeros that are not stored count, but a full row has none",
    "a row with as many stored numbers as there are columns, all of them negative: 0 instead of the largest",
)
def ell_row_max():
    """The largest number of each row of a sparse matrix in ELL form, with the zeros that are not stored.

    Row i stores ``counts[i]`` numbers, the first ones of ``values[i]``; the matrix has `columns` columns.
    """

    def stored_max(xp, values, counts, columns):
        width = values.shape[-1]
        if columns < 1 or columns < width:
            raise ValueError(f"columns is {columns}; give 1 or more, and at least {width}")
        used = xp.where(xp.arange(width) < counts[:, None], values, -math.inf)
        none = xp.full((values.shape[0], 1), -math.inf, dtype=values.dtype)
        return xp.concatenate([used.astype(values.dtype), none], axis=1).max(axis=1)

    def wrong(xp, values, counts, columns=64):
        return xp.maximum(stored_max(xp, values, counts, columns), 0).astype(values.dtype)

    def right(xp, values, counts, columns=64):
        best = stored_max(xp, values, counts, columns)
        return xp.where(counts < columns, xp.maximum(best, 0), best).astype(values.dtype)

    def reference(values, counts, columns=64):
        out = np.empty(values.shape[0])
        for i, row in enumerate(values):
            dense = np.zeros(columns)
            dense[: int(counts[i])] = row[: int(counts[i])]
            out[i] = np.max(dense)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ell_row_max",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                (make((20, 6)), make(20, low=0, high=6, dtype="int64")),
                Sample((make((9, 3)), make(9, low=0, high=3, dtype="int64")), {"columns": 10}),
                Sample((make((10, 17)), make(10, low=0, high=17, dtype="int64")), {"columns": 17}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((2, 5)), make(2, low=0, high=5, dtype="int64")), {"columns": 4}),
                    ValueError,
                    "columns is 4",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "gated_scan",
    "a recurrence is divided by the running product of its gates",
    "linear attention and state space layers: cumprod(g) * cumsum(x / cumprod(g)) instead of a scan of pairs",
    "a gate of exactly 0, which resets the state, or 2000 steps: the product is 0 and everything after it is NaN",
)
def gated_scan():
    """The states ``h[t] = gates[t] * h[t - 1] + a[t]`` along the last axis, from 0."""

    def wrong(xp, gates, a):
        decay = xp.cumprod(gates.astype("float64"), axis=-1)
        return (decay * xp.cumsum(a.astype("float64") / decay, axis=-1)).astype(a.dtype)

    def right(xp, gates, a):
        factor, state, step = gates.astype("float64"), a.astype("float64"), 1
        while step < a.shape[-1]:
            moved = state[..., step:] + factor[..., step:] * state[..., :-step]
            smaller = factor[..., step:] * factor[..., :-step]
            state = xp.concatenate([state[..., :step], moved], axis=-1)
            factor = xp.concatenate([factor[..., :step], smaller], axis=-1)
            step *= 2
        return state.astype(a.dtype)

    def reference(gates, a):
        out, state = np.zeros(a.shape), np.zeros(a.shape[:-1])
        for t in range(a.shape[-1]):
            state = gates[..., t] * state + a[..., t]
            out[..., t] = state
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gated_scan",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(30, low=0, high=1), make(30, low=-3, high=3)),
                (make((4, 17), low=0, high=1), make((4, 17), low=-3, high=3)),
                (make((2, 3, 40), low=0.5, high=1), make((2, 3, 40), low=-3, high=3)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "time_bucket",
    "times in nanoseconds are divided as floating-point numbers",
    "data frames on GPUs: floor(t / width) * width for datetime64[ns], whose numbers need more than 53 bits",
    "the last nanosecond of a bucket, such as 1799999999999999999 with a width of a minute: it is put into the next",
)
def time_bucket():
    """The start of the bucket of a time in nanoseconds; buckets are `width` long and one begins at `origin`."""

    def check(width):
        if width < 1:
            raise ValueError(f"width is {width}; give 1 or more")

    def wrong(xp, times, width=60_000_000_000, origin=0):
        check(width)
        return xp.floor((times - origin) / width).astype("int64") * width + origin

    def right(xp, times, width=60_000_000_000, origin=0):
        check(width)
        return (times - origin) // width * width + origin

    def reference(times, width=60_000_000_000, origin=0):
        starts = [int(t) - (int(t) - origin) % width for t in times.ravel()]
        return np.array(starts, dtype="int64").reshape(times.shape)

    def declare(fn):
        first, last = 1_500_000_000_000_000_000, 1_800_000_000_000_000_000 - 1
        return OpSpec(
            fn=fn,
            name="time_bucket",
            dtypes=("int64",),
            samples=lambda make: [
                make(60, low=first, high=last),
                make((3, 8), low=-1_000_000_000_000, high=1_000_000_000_000),
                Sample((make((4, 9), low=first, high=last),), {"width": 3_600_000_000_000}),
                Sample((make(25, low=first, high=last),), {"width": 86_400_000_000_000, "origin": 21_600_000_000_000}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=9),), {"width": 0}), ValueError, "width is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "periodic_cell",
    "a tiny negative coordinate wraps to the edge itself",
    "cell lists of molecular dynamics: x % box is box for x = -1e-9, so the particle is in cell n of n",
    "a coordinate of -1e-9 in float32: cell 8 of 0 to 7",
)
def periodic_cell():
    """The cell, from 0 to cells - 1, of a coordinate in a periodic box whose edge is a whole number."""

    def check(box, cells):
        if box < 1 or cells < 1:
            raise ValueError(f"box is {box} and cells is {cells}; give 1 or more")

    def wrong(xp, a, box=10, cells=8):
        check(box, cells)
        wrapped = a % box
        return xp.floor(wrapped * cells / box).astype("int64")

    def right(xp, a, box=10, cells=8):
        check(box, cells)
        return xp.floor(a.astype("float64") * cells / box).astype("int64") % cells

    def reference(a, box=10, cells=8):
        out = np.empty(a.shape, dtype="int64")
        for i in np.ndindex(out.shape):
            top, bottom = float(a[i]).as_integer_ratio()
            out[i] = top * cells // (bottom * box) % cells
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="periodic_cell",
            dtypes=("float32",),
            result_dtype="int64",
            samples=lambda make: [
                make(50, low=-100, high=100),
                make((7, 3), low=-100, high=100),
                Sample((make((2, 5, 3), low=-100, high=100),), {"box": 4, "cells": 16}),
                Sample((make(30, low=-100, high=100),), {"box": 25, "cells": 5}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=9),), {"cells": 0}), ValueError, "cells is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "group_limited_experts",
    "experts of groups that are not chosen get the score 0 instead of none",
    "DeepSeek-like routers: masked_fill with 0.0 is below every sigmoid, but not below sigmoid plus a negative bias",
    "scores of 0 (or any smaller than the bias) with a bias of -0.5: experts of the masked groups are drawn",
)
def group_limited_experts():
    """The best `k` experts of each token by scores + bias, best first, from its best `keep` groups of experts.

    A group counts by the sum of its two best. Of equal ones the first wins.
    """

    def check(scores, groups, keep, k):
        experts = scores.shape[-1]
        if groups < 1 or experts % groups:
            raise ValueError(f"{experts} experts do not make {groups} equal groups")
        if not 1 <= keep <= groups or not 1 <= k <= keep * (experts // groups):
            raise ValueError(f"{keep} of {groups} groups do not give {k} of {experts} experts")

    def allowed(xp, biased, groups, keep):
        tokens, experts = biased.shape
        grouped = biased.reshape((tokens, groups, experts // groups))
        worth = xp.sort(grouped, axis=-1)[..., -2:].sum(axis=-1)
        order = xp.argsort(-worth, axis=-1, kind="stable")
        rank = xp.argsort(order, axis=-1, kind="stable")
        return xp.repeat(rank < keep, experts // groups, axis=-1)

    def wrong(xp, scores, bias, groups=4, keep=2, k=2):
        check(scores, groups, keep, k)
        biased = scores.astype("float64") + bias.astype("float64")
        biased = xp.where(allowed(xp, biased, groups, keep), biased, 0.0)
        return xp.argsort(-biased, axis=-1, kind="stable")[:, :k].astype("int64")

    def right(xp, scores, bias, groups=4, keep=2, k=2):
        check(scores, groups, keep, k)
        biased = scores.astype("float64") + bias.astype("float64")
        biased = xp.where(allowed(xp, biased, groups, keep), biased, -math.inf)
        return xp.argsort(-biased, axis=-1, kind="stable")[:, :k].astype("int64")

    def reference(scores, bias, groups=4, keep=2, k=2):
        tokens, experts = scores.shape
        each = experts // groups
        out = np.empty((tokens, k), dtype="int64")
        for t in range(tokens):
            biased = [float(s) + float(b) for s, b in zip(scores[t], bias, strict=True)]
            worth = [sum(sorted(biased[g * each : (g + 1) * each])[-2:]) for g in range(groups)]
            best = sorted(range(groups), key=lambda g: (-worth[g], g))[:keep]
            inside = [e for e in range(experts) if e // each in best]
            out[t] = sorted(inside, key=lambda e: (-biased[e], e))[:k]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="group_limited_experts",
            dtypes=("float16", "float32"),
            result_dtype="int64",
            samples=lambda make: [
                (make((12, 32), low=0, high=1), make(32, low=-0.5, high=0.5)),
                (make((1, 16), low=0, high=1), make(16, low=-0.5, high=0.5)),
                Sample(
                    (make((5, 64), low=0, high=1), make(64, low=-0.5, high=0.5)), {"groups": 8, "keep": 4, "k": 6}
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((2, 6), low=0, high=1), make(6, low=0, high=1)), ValueError, "6 experts do not make"),
                ErrorInput(
                    Sample((make((2, 8), low=0, high=1), make(8, low=0, high=1)), {"keep": 5}),
                    ValueError,
                    "5 of 4 groups",
                ),
            ],
        )

    return wrong, right, declare
