"""Attention, pooling, resampling, sparse, graphs, quantisation, selection, scans, shares, bits, bytes, averages."""

import math
import zlib
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
    "rotary_embedding",
    "positions are counted in the dtype of the activations",
    "Hugging Face transformers' Llama and GPT-NeoX: positions made in half precision, so long contexts lost positions",
    "float16 with offset 3001, or more than 2049 positions: odd positions beyond 2048 take a neighbour's rotation",
)
def rotary_embedding():
    """Rotary position embedding of (..., length, width): the halves of the last axis are rotated by position."""

    def rotate(xp, x, positions, base):
        width = x.shape[-1]
        if width % 2:
            raise ValueError(f"the last axis has {width} elements; give an even number")
        frequencies = base ** (-xp.arange(width // 2, dtype="float64") * 2 / max(width, 1))
        angles = positions.astype("float64")[:, None] * frequencies
        cos, sin = xp.cos(angles), xp.sin(angles)
        wide = x.astype("float64")
        first, second = wide[..., : width // 2], wide[..., width // 2 :]
        rotated = [first * cos - second * sin, second * cos + first * sin]
        return xp.concatenate(rotated, axis=-1).astype(x.dtype)

    def wrong(xp, x, offset=0, base=10000.0):
        positions = xp.arange(offset, offset + x.shape[-2], dtype="int64").astype(x.dtype)
        return rotate(xp, x, positions, base)

    def right(xp, x, offset=0, base=10000.0):
        positions = xp.arange(offset, offset + x.shape[-2], dtype="int64")
        return rotate(xp, x, positions, base)

    def reference(x, offset=0, base=10000.0):
        length, width = x.shape[-2:]
        half = width // 2
        out = np.empty_like(x)
        for t in range(length):
            for j in range(half):
                angle = (offset + t) * base ** (-2 * j / width)
                c, s = math.cos(angle), math.sin(angle)
                out[..., t, j] = x[..., t, j] * c - x[..., t, half + j] * s
                out[..., t, half + j] = x[..., t, half + j] * c + x[..., t, j] * s
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary_embedding",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((5, 8)),
                make((2, 3, 33, 16)),
                Sample((make((2, 7, 12)),), {"offset": 100}),
                Sample((make((4, 9, 6)),), {"base": 500.0}),
            ],
            error_inputs=lambda make: [ErrorInput(make((4, 5)), ValueError, "even")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "max_pool_ceil",
    "ceil mode keeps a last window that starts in the padding behind the input",
    "PyTorch's pooling shape and its ONNX and MPS ports: the rule that the last window starts inside was left out",
    "5 elements, kernel 2, stride 3, padding 1, ceil mode: a third result of -inf where there are two",
)
def max_pool_ceil():
    """Maxima of windows of the last axis, as torch.nn.functional.max_pool1d gives."""

    def check(kernel, stride, padding):
        if kernel < 1 or stride < 1:
            raise ValueError(f"kernel is {kernel} and stride is {stride}; give 1 or more")
        if not 0 <= 2 * padding <= kernel:
            raise ValueError(f"padding is {padding}; give 0 to half of the kernel, {kernel}")

    def windows(length, kernel, stride, padding, ceil_mode):
        room = length + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)
        return max(room // stride + 1, 0) if length else 0

    def pool(xp, a, count, kernel, stride, padding):
        length = a.shape[-1]
        if count == 0:
            return xp.empty((*a.shape[:-1], 0), dtype=a.dtype)
        lowest = -math.inf if a.dtype.kind == "f" else int(np.iinfo(a.dtype.name).min)
        behind = max((count - 1) * stride + kernel - padding - length, 0)
        before = xp.full((*a.shape[:-1], padding), lowest, dtype=a.dtype)
        after = xp.full((*a.shape[:-1], behind), lowest, dtype=a.dtype)
        padded = xp.concatenate([before, a, after], axis=-1)
        out = xp.full((*a.shape[:-1], count), lowest, dtype=a.dtype)
        for j in range(kernel):
            out = xp.maximum(out, padded[..., j : j + (count - 1) * stride + 1 : stride])
        return out

    def wrong(xp, a, kernel=2, stride=None, padding=0, ceil_mode=False):
        stride = kernel if stride is None else stride
        check(kernel, stride, padding)
        count = windows(a.shape[-1], kernel, stride, padding, ceil_mode)
        return pool(xp, a, count, kernel, stride, padding)

    def right(xp, a, kernel=2, stride=None, padding=0, ceil_mode=False):
        stride = kernel if stride is None else stride
        check(kernel, stride, padding)
        count = windows(a.shape[-1], kernel, stride, padding, ceil_mode)
        if count and (count - 1) * stride - padding >= a.shape[-1]:
            count -= 1
        return pool(xp, a, count, kernel, stride, padding)

    def reference(a, kernel=2, stride=None, padding=0, ceil_mode=False):
        stride = kernel if stride is None else stride
        length = a.shape[-1]
        steps = (length + 2 * padding - kernel) / stride
        steps = math.ceil(steps) if ceil_mode else math.floor(steps)
        starts = [i * stride - padding for i in range(steps + 1)]
        parts = [a[..., max(start, 0) : start + kernel] for start in starts]
        maxima = [part.max(axis=-1) for part in parts if part.shape[-1]]  # none where a window begins behind the end
        return np.stack(maxima, axis=-1) if maxima else np.empty((*a.shape[:-1], 0), dtype=a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="max_pool_ceil",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make((3, 10)),
                Sample((make((2, 3, 11)),), {"kernel": 3, "stride": 2, "padding": 1}),
                Sample((make((4, 10)),), {"kernel": 3, "stride": 2, "ceil_mode": True}),
                Sample((make((2, 16)),), {"kernel": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"padding": 2}), ValueError, "padding is 2")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "ell_matvec",
    "padding is multiplied by the first element of the vector",
    "ELLPACK kernels of CUSP and of JAX-style padded sparse arrays: 0 * x[0] stood for nothing, and infinity made NaN",
    "x[0] is inf or NaN: every row that has padding becomes NaN, also those that do not use column 0",
)
def ell_matvec():
    """A sparse matrix in ELL form times a vector; the column -1 marks padding, whatever value stands there."""

    def gather(xp, columns, x):
        return x[xp.where(columns >= 0, columns, 0)].astype("float64")

    def wrong(xp, columns, values, x):
        if x.shape[0] == 0:
            return xp.zeros(columns.shape[:-1], dtype=values.dtype)
        kept = xp.where(columns >= 0, values.astype("float64"), 0.0)
        return (kept * gather(xp, columns, x)).sum(axis=-1).astype(values.dtype)

    def right(xp, columns, values, x):
        if x.shape[0] == 0:
            return xp.zeros(columns.shape[:-1], dtype=values.dtype)
        products = xp.where(columns >= 0, values.astype("float64") * gather(xp, columns, x), 0.0)
        return products.sum(axis=-1).astype(values.dtype)

    def reference(columns, values, x):
        out = np.zeros(columns.shape[0])
        for row in range(columns.shape[0]):
            for column, value in zip(columns[row], values[row], strict=True):
                if column >= 0:
                    out[row] += value * x[column]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ell_matvec",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 4), low=-1, high=8, dtype="int64"), make((6, 4)), make(9)),
                (make((20, 3), low=-1, high=4, dtype="int32"), make((20, 3)), make(5)),
                (make((3, 1), low=-1, high=0, dtype="int64"), make((3, 1)), make(1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "reachable",
    "one squaring too few",
    "transitive closure and min-plus shortest paths by repeated squaring on GPUs: only floor(log2(n)) rounds",
    "a directed path through 6 vertices: the last is not reachable from the first; 7 and 10 to 15 fail likewise",
)
def reachable():
    """Which vertices are reachable from which, each from itself too, by squaring the matrix of a directed graph."""

    def close(xp, adjacency, rounds):
        reached = adjacency | xp.eye(adjacency.shape[-1], dtype="bool")
        for _ in range(rounds):
            steps = reached.astype("float32")
            reached = xp.matmul(steps, steps) > 0
        return reached

    def check(adjacency):
        if adjacency.ndim < 2 or adjacency.shape[-1] != adjacency.shape[-2]:
            raise ValueError(f"the shape is {tuple(adjacency.shape)}; give square matrices")

    def wrong(xp, adjacency):
        check(adjacency)
        n = adjacency.shape[-1]
        return close(xp, adjacency, int(math.log2(n)) if n else 0)

    def right(xp, adjacency):
        check(adjacency)
        n = adjacency.shape[-1]
        return close(xp, adjacency, (n - 1).bit_length() if n else 0)

    def reference(adjacency):
        out = np.zeros(adjacency.shape, dtype="bool")
        n = adjacency.shape[-1]
        for batch in np.ndindex(adjacency.shape[:-2]):
            for start in range(n):
                found, todo = {start}, [start]
                while todo:
                    vertex = todo.pop()
                    for other in range(n):
                        if adjacency[batch][vertex, other] and other not in found:
                            found.add(other)
                            todo.append(other)
                for vertex in found:
                    out[batch][start, vertex] = True
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="reachable",
            dtypes=("bool",),
            samples=lambda make: [make((7, 7)), make((3, 12, 12)), make((1, 1))],
            error_inputs=lambda make: [ErrorInput(make((3, 4)), ValueError, "square")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "requantize",
    "negative ties are rounded up, not away from zero",
    "gemmlowp and TensorFlow Lite ports: a rounding shift to the right that adds one half whatever the sign",
    "accumulators of -32 with multiplier 2**30 and shift 36: exactly -0.5 gives 0 where -1 is meant",
)
def requantize():
    """Accumulators times a multiplier for each channel, by 2**shift, to int8; halves are rounded away from zero."""

    def check(shift):
        if not 1 <= shift <= 62:
            raise ValueError(f"shift is {shift}; give 1 to 62")

    def saturate(xp, rounded, zero_point):
        return xp.clip(rounded + zero_point, -128, 127).astype("int8")

    def wrong(xp, accumulators, multipliers, shift=31, zero_point=0):
        check(shift)
        product = accumulators.astype("int64") * multipliers.astype("int64")
        return saturate(xp, (product + (1 << (shift - 1))) >> shift, zero_point)

    def right(xp, accumulators, multipliers, shift=31, zero_point=0):
        check(shift)
        product = accumulators.astype("int64") * multipliers.astype("int64")
        size = (xp.abs(product) + (1 << (shift - 1))) >> shift
        return saturate(xp, xp.where(product < 0, -size, size), zero_point)

    def reference(accumulators, multipliers, shift=31, zero_point=0):
        accumulators, multipliers = np.broadcast_arrays(accumulators, multipliers)
        out = np.empty(accumulators.shape, dtype="int8")
        for i in np.ndindex(out.shape):
            product = int(accumulators[i]) * int(multipliers[i])
            rounded = (2 * abs(product) + 2**shift) // 2 ** (shift + 1)
            out[i] = min(max((rounded if product >= 0 else -rounded) + zero_point, -128), 127)
        return out

    def declare(fn):
        normalized = {"low": 2**30, "high": 2**31 - 1}
        return OpSpec(
            fn=fn,
            name="requantize",
            dtypes=("int32",),
            samples=lambda make: [
                (make((4, 9), low=-150, high=150), make(9, **normalized)),
                Sample((make((5, 8), low=-5000, high=5000), make(8, **normalized)), {"shift": 36}),
                Sample((make((2, 3, 4), low=-5000, high=5000), make(4, **normalized)), {"shift": 37, "zero_point": -5}),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3), make(3)), {"shift": 0}), ValueError, "shift is 0")
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "top_k",
    "k = 0 gives everything",
    "the slice a[-k:] after a sort or partition, in top-k helpers of SciPy- and scikit-learn-like code",
    "k=0: the whole sorted axis where no element is asked for",
)
def top_k():
    """The k largest elements along an axis, the largest first; NaN counts as the largest, as in a sort."""

    def ascending(xp, a, k, axis):
        if not 0 <= k <= a.shape[axis]:
            raise ValueError(f"k is {k}; give 0 to {a.shape[axis]}")
        return xp.sort(xp.moveaxis(a, axis, -1), axis=-1)

    def wrong(xp, a, k=1, axis=-1):
        largest = ascending(xp, a, k, axis)[..., -k:]
        return xp.ascontiguousarray(xp.moveaxis(xp.flip(largest, axis=-1), -1, axis))

    def right(xp, a, k=1, axis=-1):
        largest = ascending(xp, a, k, axis)[..., a.shape[axis] - k :]
        return xp.ascontiguousarray(xp.moveaxis(xp.flip(largest, axis=-1), -1, axis))

    def reference(a, k=1, axis=-1):
        rows = np.moveaxis(a, axis, -1)
        out = np.empty((*rows.shape[:-1], k), dtype=a.dtype)
        for i in np.ndindex(rows.shape[:-1]):
            out[i] = np.sort(rows[i])[::-1][:k]
        return np.moveaxis(out, -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="top_k",
            dtypes=("float32", "float64", "int32"),
            samples=lambda make: [
                make(20),
                Sample((make((4, 17)),), {"k": 3}),
                Sample((make((6, 5, 3)),), {"k": 4, "axis": 0}),
                Sample((make((2, 8)),), {"k": 8}),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5),), {"k": 6}), ValueError, "k is 6"),
                ErrorInput(Sample((make(5),), {"k": -1}), ValueError, "k is -1"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "gated_scan",
    "the recurrence is solved by a division by the running product of the gates",
    "short PyTorch and JAX versions of Mamba and of linear attention with decay: cumsum(x / decay) * decay",
    "a gate of exactly 0, which should forget: NaN from there on; so do a thousand gates of 0.1",
)
def gated_scan():
    """state[t] = gates[t] * state[t - 1] + inputs[t] along the last axis, from state[0] = inputs[0]."""

    def check(gates, inputs):
        if gates.shape != inputs.shape:
            raise ValueError(f"gates are {tuple(gates.shape)}, inputs {tuple(inputs.shape)}; give one shape")

    def wrong(xp, gates, inputs):
        check(gates, inputs)
        decay = xp.cumprod(gates.astype("float64"), axis=-1)
        states = decay * xp.cumsum(inputs.astype("float64") / decay, axis=-1)
        return states.astype(inputs.dtype)

    def right(xp, gates, inputs):
        check(gates, inputs)
        if inputs.shape[-1] == 0:
            return xp.zeros(inputs.shape, dtype=inputs.dtype)
        wide_gates, wide_inputs = gates.astype("float64"), inputs.astype("float64")
        states = [wide_inputs[..., 0]]
        for t in range(1, inputs.shape[-1]):
            states.append(wide_gates[..., t] * states[-1] + wide_inputs[..., t])
        return xp.stack(states, axis=-1).astype(inputs.dtype)

    def reference(gates, inputs):
        out = np.zeros(inputs.shape)
        for i in np.ndindex(inputs.shape[:-1]):
            state = None
            for t in range(inputs.shape[-1]):
                state = inputs[i][t] if state is None else gates[i][t] * state + inputs[i][t]
                out[i][t] = state
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gated_scan",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(20, low=0, high=1), make(20)),
                (make((3, 40), low=0, high=1), make((3, 40))),
                (make((2, 3, 65), low=0, high=1), make((2, 3, 65))),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "allocate",
    "of equal remainders the last is served first",
    "money libraries and apportionment by largest remainders: an ascending argsort reversed, which reverses ties too",
    "total 100 over weights [1, 1, 1]: [33, 33, 34] where the first gets the odd cent, [34, 33, 33]",
)
def allocate():
    """A total in cents shared by weights, by largest remainders; among equal ones the first gets the cent."""

    def floors(xp, weights, total):
        if not 0 <= total < 2**31:
            raise ValueError(f"total is {total}; give 0 to 2**31 - 1")
        wide = weights.astype("int64")
        whole = wide.sum(axis=-1, keepdims=True)
        products, divisor = wide * total, xp.where(whole == 0, 1, whole)
        shares, remainders = products // divisor, products % divisor
        left = xp.where(whole == 0, 0, total - shares.sum(axis=-1, keepdims=True))
        return shares, remainders, left

    def wrong(xp, weights, total=10000):
        shares, remainders, left = floors(xp, weights, total)
        order = xp.flip(xp.argsort(remainders, axis=-1, kind="stable"), axis=-1)
        rank = xp.argsort(order, axis=-1, kind="stable")
        return shares + (rank < left)

    def right(xp, weights, total=10000):
        shares, remainders, left = floors(xp, weights, total)
        order = xp.argsort(-remainders, axis=-1, kind="stable")
        rank = xp.argsort(order, axis=-1, kind="stable")
        return shares + (rank < left)

    def reference(weights, total=10000):
        out = np.zeros(weights.shape, dtype="int64")
        for i in np.ndindex(weights.shape[:-1]):
            row = [int(weight) for weight in weights[i]]
            if sum(row) == 0:
                continue
            shares = [total * weight // sum(row) for weight in row]
            by_remainder = sorted(range(len(row)), key=lambda j: (-(total * row[j] % sum(row)), j))
            for j in by_remainder[: total - sum(shares)]:
                shares[j] += 1
            out[i] = shares
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="allocate",
            dtypes=("uint16", "uint32"),
            samples=lambda make: [
                make(9, high=50000),
                make((5, 7), high=50000),
                Sample((make((2, 3, 4), high=60000),), {"total": 123457}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(3),), {"total": -1}), ValueError, "total is -1")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "bfloat16_bits",
    "the rounding carry runs through NaN",
    "bfloat16 conversions of Eigen, TensorFlow and PyTorch's CPU kernels before they tested for NaN",
    "float32 NaN of bits 0x7fffffff becomes 0x8000, which is -0; 0x7f800001 becomes infinity; the sign of NaN stays",
)
def bfloat16_bits():
    """float32 numbers rounded to bfloat16, ties to even, as bits in uint16; every NaN is 0x7fc0."""

    def nearest(bits):
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")

    def wrong(xp, a):
        return nearest(a.view("uint32"))

    def right(xp, a):
        quiet = xp.asarray(0x7FC00000, dtype="uint32")
        return nearest(xp.where(xp.isnan(a), quiet, a.view("uint32")))

    def reference(a):
        out = np.empty(a.shape, dtype="uint16")
        for i in np.ndindex(a.shape):
            size = abs(float(a[i]))
            if math.isnan(size):
                out[i] = 0x7FC0
                continue
            if math.isinf(size):
                bits = 0x7F80
            else:
                exponent = max(math.frexp(size)[1] - 1, -126) if size else -126
                steps = round(math.ldexp(size, 7 - exponent))  # halves to even
                bits = ((exponent + 126) << 7) + steps  # 256 steps carry into the exponent
            out[i] = bits | (0x8000 if math.copysign(1.0, float(a[i])) < 0 else 0)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bfloat16_bits",
            dtypes=("float32",),
            result_dtype=lambda a: "uint16",
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "adler32",
    "bytes are taken in memory order",
    "content hashes of arrays in caches and in dask-like tokenizers: ravel(order='A') and tobytes('A')",
    "a 2-D array in Fortran order, such as a transpose: another checksum than its contiguous copy",
)
def adler32():
    """The Adler-32 checksum of the bytes of an array in C order, as zlib.adler32 gives."""

    def checksum(xp, flat):
        flat = flat.astype("int64")
        n = flat.shape[0]
        low = (1 + flat.sum()) % 65521
        high = (n + (xp.arange(n, 0, -1, dtype="int64") % 65521 * flat).sum()) % 65521
        return (high * 65536 + low).astype("uint32")

    def wrong(xp, data):
        return checksum(xp, data.ravel(order="A"))

    def right(xp, data):
        return checksum(xp, data.ravel(order="C"))

    def reference(data):
        return np.asarray(zlib.adler32(data.tobytes(order="C")), dtype="uint32")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adler32",
            dtypes=("uint8",),
            result_dtype=lambda data: "uint32",
            samples=lambda make: [
                make(300, high=255),
                make((3, 64), high=255),
                make((2, 5, 7), high=255),
                Sample((make((0, 4)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "weight_average",
    "out is written before the new weights are read",
    "in-place averages of weights (EMA, SWA) in training loops: decay into out first, then add what out held",
    "out is the array of new weights: they are lost, and the result is decay * average * (2 - decay)",
)
def weight_average():
    """The exponential moving average of weights after a step, into `out` if given, which may be either input."""

    def check(average, weights, decay):
        if average.shape != weights.shape:
            raise ValueError(f"average is {tuple(average.shape)}, weights {tuple(weights.shape)}; give one shape")
        if not 0 <= decay <= 1:
            raise ValueError(f"decay is {decay}; give 0 to 1")

    def wrong(xp, average, weights, decay=0.99, out=None):
        check(average, weights, decay)
        if out is None:
            out = xp.empty_like(average)
        xp.multiply(average, decay, out=out)
        out += weights * (1 - decay)
        return out

    def right(xp, average, weights, decay=0.99, out=None):
        check(average, weights, decay)
        result = average * decay + weights * (1 - decay)
        if out is None:
            return result
        out[...] = result
        return out

    def reference(average, weights, decay=0.99):
        return average * decay + weights * (1 - decay)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weight_average",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(50), make(50)),
                (make((4, 9)), make((4, 9))),
                Sample((make((2, 3, 5)), make((2, 3, 5))), {"decay": 0.5}),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3), make(3)), {"decay": 1.5}), ValueError, "decay is 1.5")
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "resize_linear",
    "the table of weights is kept by sizes alone",
    "PyTorch on MPS: keys of cached graphs that left out an option, align_corners of upsampling among them",
    "9 elements to 5, then the same with align_corners=True: the second call gives the first one's result",
)
def resize_linear():
    """Linear interpolation of the last axis to another size, as torch.nn.functional.interpolate gives."""

    def table(n, size, align_corners):
        if n < 1 or size < 1:
            raise ValueError(f"{n} elements to {size}; give 1 or more")
        left, right, fractions = [], [], []
        for i in range(size):
            if align_corners:
                position = i * (n - 1) / (size - 1) if size > 1 else 0.0
            else:
                position = max((i + 0.5) * n / size - 0.5, 0.0)
            start = min(int(position), n - 1)
            left.append(start)
            right.append(min(start + 1, n - 1))
            fractions.append(position - start)
        return left, right, fractions

    def blend(xp, a, left, right, fractions):
        left, right = xp.asarray(left, dtype="int64"), xp.asarray(right, dtype="int64")
        fractions = xp.asarray(fractions, dtype="float64")
        wide = a.astype("float64")
        out = xp.take(wide, left, axis=-1) * (1 - fractions) + xp.take(wide, right, axis=-1) * fractions
        return out.astype(a.dtype)

    tables = {}

    def wrong(xp, a, size=8, align_corners=False):
        key = (a.shape[-1], size)
        if key not in tables:
            tables[key] = table(*key, align_corners)
        return blend(xp, a, *tables[key])

    def right(xp, a, size=8, align_corners=False):
        return blend(xp, a, *table(a.shape[-1], size, align_corners))

    def reference(a, size=8, align_corners=False):
        n = a.shape[-1]
        out = np.empty((*a.shape[:-1], size))
        for i in range(size):
            position = (i + 0.5) * n / size - 0.5
            if align_corners:
                position = i * (n - 1) / (size - 1) if size > 1 else 0
            position = max(position, 0)
            start = int(position)
            weight = position - start
            out[..., i] = a[..., start] * (1 - weight) + a[..., min(start + 1, n - 1)] * weight
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="resize_linear",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 5)),
                Sample((make((4, 9)),), {"size": 5}),
                Sample((make((2, 3, 6)),), {"size": 11, "align_corners": True}),
                Sample((make((2, 7)),), {"size": 1}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"size": 0}), ValueError, "4 elements to 0")],
            reference=reference,
        )

    return wrong, right, declare
