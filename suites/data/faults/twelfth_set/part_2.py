"""Layers, training, graphs, sorting, sampling, linear algebra, statistics, bits: twenty faults with their twins."""

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
    "rotary_embedding",
    "hidden state: the longest call so far decides the frequencies",
    "Hugging Face Transformers, dynamic NTK rotary embeddings: after one long sequence short ones kept the scaled base",
    "a call longer than max_position, and after it a shorter one of the same width",
)
def rotary_embedding():
    """Rotary position embedding of (..., length, width); the base grows where length exceeds max_position."""

    longest = {}

    def check(a):
        if a.ndim < 2 or a.shape[-1] % 2 or a.shape[-1] < 4:
            raise ValueError(f"the shape is {a.shape}; give (..., length, width) with an even width of 4 or more")

    def rotate(xp, a, length, max_position, base):
        width = a.shape[-1]
        if length > max_position:
            base = base * (length / max_position) ** (width / (width - 2))
        rates = base ** (-xp.arange(0, width, 2, dtype="float64") / width)
        angles = xp.arange(a.shape[-2], dtype="float64")[:, None] * rates
        cos, sin = xp.cos(angles), xp.sin(angles)
        left = a[..., : width // 2].astype("float64")
        right_half = a[..., width // 2 :].astype("float64")
        out = [left * cos - right_half * sin, right_half * cos + left * sin]
        return xp.concatenate(out, axis=-1).astype(a.dtype)

    def wrong(xp, a, max_position=64, base=10000.0):
        check(a)
        key = (a.shape[-1], max_position, base)
        longest[key] = max(longest.get(key, 0), a.shape[-2])
        return rotate(xp, a, longest[key], max_position, base)

    def right(xp, a, max_position=64, base=10000.0):
        check(a)
        return rotate(xp, a, a.shape[-2], max_position, base)

    def reference(a, max_position=64, base=10000.0):
        length, width = a.shape[-2:]
        half = width // 2
        if length > max_position:
            base *= (length / max_position) ** (width / (width - 2))
        out = np.empty_like(a)
        for place in range(length):
            for i in range(half):
                angle = place * base ** (-2 * i / width)
                x, y = a[..., place, i], a[..., place, i + half]
                out[..., place, i] = x * math.cos(angle) - y * math.sin(angle)
                out[..., place, i + half] = y * math.cos(angle) + x * math.sin(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary_embedding",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((2, 20, 8)),
                Sample((make((3, 30, 16)),), {"max_position": 32}),
                Sample((make((24, 12)),), {"base": 500.0}),
                Sample((make((2, 40, 6)),), {"max_position": 32}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((3, 5)),)), ValueError, "even width")],
        )

    return wrong, right, declare


@pair(
    "padding_attention",
    "meaning of an argument guessed from its shape",
    "attention layers that take a padding mask or a score mask by shape (Keras and TensorFlow Addons attention masks)",
    "as many sequences in the batch as keys in a sequence: the padding mask is taken for a (query, key) mask",
)
def padding_attention():
    """Attention of (batch, length, width) arrays; keep is (batch, keys); queries without a key give 0."""

    def attend(xp, q, k, v, keep):
        wide = "float64"
        scores = xp.matmul(q.astype(wide), xp.swapaxes(k.astype(wide), -1, -2)) / math.sqrt(q.shape[-1])
        keep = xp.broadcast_to(keep, scores.shape)
        scores = xp.where(keep, scores, -math.inf)
        some = keep.any(axis=-1, keepdims=True)
        top = xp.where(some, scores.max(axis=-1, keepdims=True), 0.0)
        weights = xp.where(keep, xp.exp(scores - top), 0.0)
        total = xp.where(some, weights.sum(axis=-1, keepdims=True), 1.0)
        weights = weights / total
        # A masked value may be NaN or infinite; it must not meet its weight 0.
        terms = xp.where(keep[..., None], weights[..., None] * v.astype(wide)[:, None, :, :], 0.0)
        return (terms.sum(axis=-2) + 0.0).astype(v.dtype)

    def wrong(xp, q, k, v, keep):
        if keep.shape == (q.shape[-2], k.shape[-2]):
            return attend(xp, q, k, v, keep[None, :, :])
        return attend(xp, q, k, v, keep[:, None, :])

    def right(xp, q, k, v, keep):
        return attend(xp, q, k, v, keep[:, None, :])

    def reference(q, k, v, keep):
        out = np.zeros(q.shape[:2] + v.shape[2:], v.dtype)
        for b in range(q.shape[0]):
            if keep[b].any():
                scores = q[b] @ k[b][keep[b]].T / np.sqrt(q.shape[-1])
                weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
                weights = weights / weights.sum(axis=-1, keepdims=True)
                out[b] = weights @ v[b][keep[b]] + 0.0
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="padding_attention",
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [
                (make((2, 5, 8)), make((2, 5, 8)), make((2, 5, 8)), make((2, 5), dtype="bool")),
                (make((3, 6, 4)), make((3, 9, 4)), make((3, 9, 7)), make((3, 9), dtype="bool")),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "masked_softmax",
    "a large number in place of minus infinity",
    "BERT and its ports: (1 - mask) * -10000 added to the scores",
    "a row without a kept place (the plain softmax comes out), or scores that differ by more than 10000",
)
def masked_softmax():
    """Softmax of the last axis over the places where keep is true; 0 elsewhere, also in rows without any."""

    def wrong(xp, a, keep):
        x = a.astype("float32") + xp.where(keep, 0.0, -10000.0).astype("float32")
        if not x.size:
            return x.astype(a.dtype)
        e = xp.exp(x - x.max(axis=-1, keepdims=True))
        return (e / e.sum(axis=-1, keepdims=True)).astype(a.dtype)

    def right(xp, a, keep):
        x = xp.where(keep, a.astype("float32"), -math.inf).astype("float32")
        if not x.size:
            return x.astype(a.dtype)
        some = xp.broadcast_to(keep, x.shape).any(axis=-1, keepdims=True)
        top = xp.where(some, x.max(axis=-1, keepdims=True), 0.0)
        e = xp.where(keep, xp.exp(x - top), 0.0)
        total = xp.where(some, e.sum(axis=-1, keepdims=True), 1.0)
        # Not e / total: where a kept score is NaN its row is NaN, but the masked places are 0.
        return xp.where(keep, e / total, 0.0).astype(a.dtype)

    def reference(a, keep):
        out = np.zeros(np.broadcast_shapes(a.shape, keep.shape), a.dtype)
        a, keep = np.broadcast_arrays(a, keep)
        for row in np.ndindex(a.shape[:-1]):
            kept = a[row][keep[row]]
            if kept.size:
                e = np.exp(kept - kept.max())
                out[row][keep[row]] = e / e.sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="masked_softmax",
            dtypes=("float16", "float32"),
            result_dtype=lambda a, keep: a,
            samples=lambda make: [
                (make((4, 33)), make((4, 33), dtype="bool")),
                (make((2, 3, 40)), make((2, 3, 40), dtype="bool")),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "radix_argsort",
    "order of bit patterns in place of order of numbers",
    "CUB and Thrust radix sort: -0.0 was sorted before +0.0, so it was not stable",
    "0.0 before -0.0 in a row (they are equal, so stable order keeps them), or a NaN whose sign bit is set",
)
def radix_argsort():
    """Stable indices that sort the last axis, NaN last, by integer keys."""

    def order(xp, a):
        bits = a.view("int32" if a.dtype.itemsize == 4 else "int64")
        low = 0x7FFFFFFF if a.dtype.itemsize == 4 else 0x7FFFFFFFFFFFFFFF
        keys = xp.where(bits < 0, bits ^ low, bits)
        return xp.argsort(keys, axis=-1, kind="stable").astype("int64")

    def wrong(xp, a):
        return order(xp, a)

    def right(xp, a):
        one_zero = xp.where(a == 0, xp.zeros_like(a), a)
        return order(xp, xp.where(xp.isnan(a), xp.full_like(a, math.nan), one_zero))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="radix_argsort",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [make(50), make((4, 33))],
            reference=lambda a: np.argsort(a, axis=-1, kind="stable"),
        )

    return wrong, right, declare


@pair(
    "u8s8_matmul",
    "saturation in an intermediate of few bits",
    "oneDNN, FBGEMM and ONNX Runtime int8 products on CPUs without VNNI: vpmaddubsw saturates pairs to int16",
    "two neighbouring products whose sum leaves int16, such as 255 * 127 twice",
)
def u8s8_matmul():
    """Product of a uint8 matrix of activations and an int8 matrix of weights, added up in int32."""

    def check(a, b):
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise ValueError(f"the shapes are {a.shape} and {b.shape}; give (m, k) and (k, n)")

    def products(a, b):
        return a.astype("int32")[:, :, None] * b.astype("int32")[None, :, :]

    def wrong(xp, a, b):
        check(a, b)
        terms = products(a, b)
        if terms.shape[1] % 2:
            tail = xp.zeros((terms.shape[0], 1, terms.shape[2]), dtype="int32")
            terms = xp.concatenate([terms, tail], axis=1)
        pairs = xp.clip(terms[:, ::2, :] + terms[:, 1::2, :], -32768, 32767)
        return pairs.sum(axis=1, dtype="int32")

    def right(xp, a, b):
        check(a, b)
        return products(a, b).sum(axis=1, dtype="int32")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="u8s8_matmul",
            dtypes=("int8",),
            result_dtype="int32",
            samples=lambda make: [
                (make((7, 16), dtype="uint8", low=0, high=255), make((16, 5))),
                (make((3, 33), dtype="uint8", low=0, high=255), make((33, 9))),
            ],
            reference=lambda a, b: np.matmul(a.astype(np.int32), b.astype(np.int32)),
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 3), dtype="uint8", low=0, high=9), make((4, 2)))), ValueError, "the shapes")
            ],
        )

    return wrong, right, declare


@pair(
    "quantize",
    "halves rounded up in place of to even",
    "quantised kernels (TFLite and PyTorch backends disagreed: floor(x + 0.5) or roundf against nearbyint)",
    "numbers halfway between two steps, such as 0.03125 or 0.15625 at the scale 0.0625",
)
def quantize():
    """int8 codes of numbers: rint(a / scale) + zero_point, saturated; NaN gives the zero point."""

    def codes(xp, rounded, zero_point):
        steps = rounded + zero_point
        return xp.clip(xp.where(xp.isnan(steps), zero_point, steps), -128, 127).astype("int8")

    def check(scale):
        if not scale > 0:
            raise ValueError(f"scale is {scale}; give a positive number")

    def wrong(xp, a, scale=0.0625, zero_point=0):
        check(scale)
        return codes(xp, xp.floor(a.astype("float64") / scale + 0.5), zero_point)

    def right(xp, a, scale=0.0625, zero_point=0):
        check(scale)
        return codes(xp, xp.rint(a.astype("float64") / scale), zero_point)

    def reference(a, scale=0.0625, zero_point=0):
        out = np.empty(a.shape, np.int8)
        for i in np.ndindex(a.shape):
            x = float(a[i]) / scale
            if math.isnan(x):
                out[i] = zero_point
            elif abs(x) > 1e6:
                out[i] = 127 if x > 0 else -128
            else:
                out[i] = min(max(round(x) + zero_point, -128), 127)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="quantize",
            dtypes=("float16", "float32"),
            result_dtype="int8",
            samples=lambda make: [
                Sample((make(100, low=-3.3, high=3.3),), {"scale": 0.03}),
                Sample((make((3, 41)),), {"scale": 0.017, "zero_point": 11}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(3),), {"scale": 0.0}), ValueError, "scale is 0")],
        )

    return wrong, right, declare


@pair(
    "product_of_the_others",
    "division by the element that was multiplied in",
    "PyTorch, early prod backward (total / x: wrong at zeros, later handled apart)",
    "a zero in a row (0 / 0 at its place), or an infinity",
)
def product_of_the_others():
    """For each element the product of the other elements of its row: the gradient of prod."""

    def wrong(xp, a):
        wide = a.astype("float64")
        return (xp.prod(wide, axis=-1, keepdims=True) / wide).astype(a.dtype)

    def right(xp, a):
        wide = a.astype("float64")
        if a.shape[-1] == 0:
            return a.copy()
        others = [
            xp.prod(xp.concatenate([wide[..., :i], wide[..., i + 1 :]], axis=-1), axis=-1) for i in range(a.shape[-1])
        ]
        return xp.stack(others, axis=-1).astype(a.dtype)

    def reference(a):
        out = np.ones(a.shape, a.dtype)
        for i in range(a.shape[-1]):
            for j in range(a.shape[-1]):
                if i != j:
                    out[..., i] = out[..., i] * a[..., j]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="product_of_the_others",
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [make((6, 5)), make((2, 3, 7)), make(4)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "categorical",
    "closed end of an interval where it must be open",
    "PyTorch multinomial (drew categories of probability 0), searchsorted(side='left') on the running sum in samplers",
    "the number 0.0 with a first weight of 0, or a number exactly at a step of the running sum",
)
def categorical():
    """The category that each given number of [0, 1] draws from its row of weights, by the running sum."""

    def check(w, u):
        if w.ndim != 2 or w.shape[1] == 0 or u.shape != w.shape[:1]:
            raise ValueError(f"the shapes are {w.shape} and {u.shape}; give (rows, categories) and (rows,)")

    def wrong(xp, w, u):
        check(w, u)
        steps = xp.cumsum(w.astype("float64"), axis=-1)
        mark = u.astype("float64") * steps[:, -1]
        index = (steps < mark[:, None]).sum(axis=-1)
        return xp.minimum(index, w.shape[1] - 1).astype("int64")

    def right(xp, w, u):
        check(w, u)
        steps = xp.cumsum(w.astype("float64"), axis=-1)
        mark = u.astype("float64") * steps[:, -1]
        index = (steps <= mark[:, None]).sum(axis=-1)
        last = xp.where(w > 0, xp.arange(w.shape[1]), 0).max(axis=-1)
        return xp.minimum(index, last).astype("int64")

    def reference(w, u):
        out = np.zeros(len(u), np.int64)
        for row in range(len(u)):
            total = 0.0
            for x in w[row]:
                total += float(x)
            running, last = 0.0, 0
            for i, x in enumerate(w[row]):
                running += float(x)
                out[row] += running <= float(u[row]) * total
                last = i if x > 0 else last
            out[row] = min(out[row], last)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="categorical",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make((20, 9), low=0, high=1), make(20, low=0, high=1)),
                (make((7, 33), low=0, high=1), make(7, low=0, high=1)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 0), low=0, high=1), make(2, low=0, high=1))), ValueError, "the shapes")
            ],
        )

    return wrong, right, declare


@pair(
    "merged_variance",
    "equal shares assumed",
    "synchronised batch normalisation before counts were exchanged (Apex, PyTorch): workers with unequal batches",
    "two shards with different numbers of rows",
)
def merged_variance():
    """Mean and variance of the columns over the rows of two shards."""

    def check(a, b):
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or not len(a) + len(b):
            raise ValueError(f"the shapes are {a.shape} and {b.shape}; give rows of equal width, at least one")

    def wrong(xp, a, b):
        check(a, b)
        x, y = (a, b) if len(a) and len(b) else (a, a) if len(a) else (b, b)
        x, y = x.astype("float64"), y.astype("float64")
        half = (x.mean(axis=0) - y.mean(axis=0)) / 2
        mean = (x.mean(axis=0) + y.mean(axis=0)) / 2
        variance = (x.var(axis=0) + y.var(axis=0)) / 2 + half * half
        return mean.astype(a.dtype), variance.astype(a.dtype)

    def right(xp, a, b):
        check(a, b)
        both = xp.concatenate([a, b], axis=0).astype("float64")
        return both.mean(axis=0).astype(a.dtype), both.var(axis=0).astype(a.dtype)

    def reference(a, b):
        rows = np.vstack([a, b])
        mean = np.add.reduce(rows) / len(rows)
        return mean, np.add.reduce((rows - mean) ** 2) / len(rows)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="merged_variance",
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [
                (make((16, 5)), make((16, 5))),
                (make((33, 8)), make((33, 8))),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((2, 3)), make((2, 4)))), ValueError, "equal width")],
        )

    return wrong, right, declare


@pair(
    "temperature_softmax",
    "works in place where the conversion made no copy",
    "Hugging Face logits processors and SciPy/scikit-learn helpers: astype(copy=False), then an in-place division",
    "the caller's float32 logits after a call with a temperature other than 1; a second call on them",
)
def temperature_softmax():
    """Softmax of the last axis at a temperature."""

    def check(temperature):
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; give a positive number")

    def finish(xp, x, dtype):
        e = xp.exp(x)
        return (e / e.sum(axis=-1, keepdims=True)).astype(dtype)

    def wrong(xp, a, temperature=1.0):
        check(temperature)
        if not a.size:
            return a.copy()
        x = a.astype("float32", copy=False)
        top = x.max(axis=-1, keepdims=True)
        if temperature == 1.0:
            return finish(xp, x - top, a.dtype)
        x -= top
        x /= temperature
        return finish(xp, x, a.dtype)

    def right(xp, a, temperature=1.0):
        check(temperature)
        if not a.size:
            return a.copy()
        x = a.astype("float32")
        return finish(xp, (x - x.max(axis=-1, keepdims=True)) / temperature, a.dtype)

    def reference(a, temperature=1.0):
        out = np.empty(a.shape, a.dtype)
        for row in np.ndindex(a.shape[:-1]):
            x = a[row] / temperature
            if x.size:
                e = np.exp(x - np.max(x))
                out[row] = e / e.sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="temperature_softmax",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [make((3, 33)), Sample((make((2, 50)),), {"temperature": 0.7})],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(5),), {"temperature": 0.0}), ValueError, "temperature")],
        )

    return wrong, right, declare


@pair(
    "alibi_scores",
    "the result is a workspace that the next call overwrites",
    "outputs of CUDA graphs and static buffers (torch.compile reduce-overhead: outputs overwritten by a later run)",
    "two calls of one shape: the first result, kept by the caller, changes to the second",
)
def alibi_scores():
    """Scores (heads, length, length) less a slope for each head times the distance."""

    buffers = {}

    def penalty(xp, a):
        if a.ndim != 3:
            raise ValueError(f"the scores have {a.ndim} axes; give (heads, queries, keys)")
        heads, queries, keys = a.shape
        slopes = 2.0 ** (-8.0 * xp.arange(1, heads + 1, dtype="float64") / max(heads, 1))
        distance = xp.abs(xp.arange(queries)[:, None] - xp.arange(keys)[None, :])
        return slopes[:, None, None] * distance

    def wrong(xp, a):
        less = penalty(xp, a)
        key = (id(xp), a.shape, str(a.dtype))
        if key not in buffers:
            buffers[key] = xp.empty(a.shape, dtype=a.dtype)
        buffers[key][...] = (a.astype("float64") - less).astype(a.dtype)
        return buffers[key]

    def right(xp, a):
        return (a.astype("float64") - penalty(xp, a)).astype(a.dtype)

    def reference(a):
        out = np.array(a)
        for h, i, j in np.ndindex(a.shape):
            out[h, i, j] -= 2 ** (-8 * (h + 1) / a.shape[0]) * abs(i - j)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="alibi_scores",
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [make((4, 9, 9)), make((8, 5, 17))],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((3, 3)), ValueError, "2 axes")],
        )

    return wrong, right, declare


@pair(
    "gather_last",
    "flattened in the order of memory",
    "custom CUDA kernels that take data pointers without contiguous(); common, no one issue remembered",
    "a transposed (Fortran-ordered) array: elements of other rows are gathered",
)
def gather_last():
    """take_along_axis on the last axis of a matrix, by flat positions."""

    def check(a, index):
        if a.ndim != 2 or index.ndim != 2 or len(a) != len(index):
            raise ValueError(f"the shapes are {a.shape} and {index.shape}; give (rows, columns) and (rows, places)")

    def gather(xp, a, index, order):
        check(a, index)
        width = a.shape[1]
        column = xp.where(index < 0, index + width, index)
        flat = xp.arange(len(a))[:, None] * width + column
        return xp.take(a.ravel(order=order), flat)

    def wrong(xp, a, index):
        return gather(xp, a, index, "A")

    def right(xp, a, index):
        return gather(xp, a, index, "C")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gather_last",
            dtypes=("float32", "int64"),
            result_dtype=lambda a, index: a,
            samples=lambda make: [
                (make((6, 20)), make((6, 4), dtype="int64", low=0, high=19)),
                (make((3, 33)), make((3, 50), dtype="int64", low=-33, high=32)),
            ],
            reference=lambda a, index: np.array([row[i] for row, i in zip(a, index)], a.dtype).reshape(index.shape),
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 3)), make((3, 3), dtype="int64", low=0, high=2))), ValueError, "the shapes")
            ],
        )

    return wrong, right, declare


@pair(
    "bit_length",
    "integers taken through a floating logarithm",
    "int(log2(n)) + 1 for bit lengths and next powers of two; common, no one issue remembered",
    "numbers just below a large power of two, such as 2**24 - 1 or the largest of the dtype",
)
def bit_length():
    """Bits of the magnitude of integers, as int.bit_length."""

    def wrong(xp, a):
        size = xp.abs(a.astype("float32"))
        return xp.where(a == 0, 0, xp.floor(xp.log2(xp.where(a == 0, 1, size))) + 1).astype("int32")

    def right(xp, a):
        # abs of the least int64 is itself, which as uint64 is its magnitude.
        rest = xp.abs(a.astype("int64")).astype("uint64")
        count = xp.zeros(a.shape, dtype="int32")
        for step in (32, 16, 8, 4, 2, 1):
            shifted = rest >> step
            count = count + xp.where(shifted > 0, step, 0).astype("int32")
            rest = xp.where(shifted > 0, shifted, rest)
        return count + (rest > 0).astype("int32")

    def reference(a):
        return np.array([int(x).bit_length() for x in a.ravel()], np.int32).reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bit_length",
            dtypes=("int32", "int64"),
            result_dtype="int32",
            samples=lambda make: [make(40), make((3, 33), low=-100000, high=100000)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "connected_components",
    "a fixed number of rounds taken for convergence",
    "label propagation with a cap on iterations; common, no one issue remembered",
    "a long chain of nodes: more components than there are",
)
def connected_components():
    """For each node of a graph (bool matrix, undirected) the least node that it is connected with."""

    def spread(xp, a, rounds):
        if a.ndim != 2 or a.shape[0] != a.shape[1]:
            raise ValueError(f"the shape is {a.shape}; give a square matrix")
        nodes = len(a)
        labels = xp.arange(nodes, dtype="int64")
        if not nodes:
            return labels
        link = a | a.T | (labels[:, None] == labels[None, :])
        for _ in range(rounds):
            labels = xp.where(link, labels[None, :], nodes).min(axis=1)
        return labels

    def wrong(xp, a):
        return spread(xp, a, 6)

    def right(xp, a):
        return spread(xp, a, len(a))

    def reference(a):
        labels = np.full(len(a), -1, np.int64)
        for root in range(len(a)):
            waiting = [root] if labels[root] < 0 else []
            while waiting:
                node = waiting.pop()
                if labels[node] < 0:
                    labels[node] = root
                    waiting.extend(np.flatnonzero(a[node] | a[:, node]))
        return labels

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="connected_components",
            dtypes=("bool",),
            result_dtype="int64",
            samples=lambda make: [make((12, 12)), make((33, 33))],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((2, 3)), ValueError, "square matrix")],
        )

    return wrong, right, declare


@pair(
    "householder",
    "the sign of zero is zero",
    "Householder reflections with sign(x[0]) * norm in ports and teaching codes; common, no one issue remembered",
    "a vector whose first element is 0 (or -0.0) and another is not: alpha is 0",
)
def householder():
    """The vector v and the number alpha with H = 1 - 2 v v' / v'v and H x = alpha e1, for the last axis."""

    def reflect(xp, a, sign):
        if a.ndim == 0 or a.shape[-1] == 0:
            raise ValueError(f"the shape is {a.shape}; the last axis needs an element")
        wide = a.astype("float64")
        alpha = -sign * xp.sqrt((wide * wide).sum(axis=-1))
        v = xp.concatenate([(wide[..., 0] - alpha)[..., None], wide[..., 1:]], axis=-1)
        return v.astype(a.dtype), alpha.astype(a.dtype)

    def wrong(xp, a):
        return reflect(xp, a, xp.sign(a[..., 0]).astype("float64") if a.ndim and a.shape[-1] else None)

    def right(xp, a):
        return reflect(xp, a, xp.where(a[..., 0] < 0, -1.0, 1.0) if a.ndim and a.shape[-1] else None)

    def reference(a):
        v, alpha = a.copy(), np.zeros(a.shape[:-1])
        for row in np.ndindex(a.shape[:-1]):
            norm = np.linalg.norm(a[row])
            alpha[row] = norm if a[row][0] < 0 else -norm
            v[row][0] = a[row][0] - alpha[row]
        return v, alpha

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="householder",
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [make((4, 7)), make((2, 3, 33)), make(5)],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((2, 0)), ValueError, "needs an element")],
        )

    return wrong, right, declare


@pair(
    "has_overflow",
    "a test of all elements made on their sum",
    "Apex and DeepSpeed loss scalers: isfinite(grad.sum()) in half precision skipped steps with finite gradients",
    "finite gradients whose sum leaves the dtype, such as 100 times 1000 in float16",
)
def has_overflow():
    """Whether any of the gradients is infinite or NaN, for a loss scaler."""

    def wrong(xp, a):
        return xp.logical_not(xp.isfinite(a.sum(dtype=a.dtype)))

    def right(xp, a):
        return xp.logical_not(xp.isfinite(a).all())

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="has_overflow",
            dtypes=("float16", "float32"),
            result_dtype="bool",
            samples=lambda make: [make(100), make((5, 33))],
            reference=lambda a: np.array(any(not math.isfinite(x) for x in a.ravel().tolist())),
        )

    return wrong, right, declare


@pair(
    "add_positions",
    "positions counted in the dtype of the activations",
    "Hugging Face Transformers, rotary positions counted in half precision: past 2048 (256 in bfloat16) they fall together",
    "float16 with an offset or a length that passes 2048",
)
def add_positions():
    """Adds sinusoidal positions to (..., length, width); offset is the position of the first row (a cache's length)."""

    def add(xp, a, dtype, offset):
        if a.ndim < 2 or a.shape[-1] % 2:
            raise ValueError(f"the shape is {a.shape}; give (..., length, width) with an even width")
        width = a.shape[-1]
        places = xp.arange(a.shape[-2], dtype=dtype) + xp.asarray(offset, dtype=dtype)
        rates = 10000.0 ** (-xp.arange(0, width, 2, dtype="float64") / max(width, 1))
        angles = places.astype("float64")[:, None] * rates
        waves = xp.stack([xp.sin(angles), xp.cos(angles)], axis=-1).reshape(a.shape[-2:])
        return (a.astype("float64") + waves).astype(a.dtype)

    def wrong(xp, a, offset=0):
        return add(xp, a, a.dtype, offset)

    def right(xp, a, offset=0):
        return add(xp, a, "float64", offset)

    def reference(a, offset=0):
        out = a.copy()
        for i in range(a.shape[-2]):
            for j in range(a.shape[-1]):
                angle = (i + offset) / 10000 ** (2 * (j // 2) / a.shape[-1])
                out[..., i, j] += math.cos(angle) if j % 2 else math.sin(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="add_positions",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((2, 20, 8)),
                make((33, 16)),
                Sample((make((3, 1, 12)),), {"offset": 50}),
                Sample((make((2, 9, 6)),), {"offset": 1000}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((4, 3)), ValueError, "even width")],
        )

    return wrong, right, declare


@pair(
    "segment_sum",
    "reduceat gives an element for an empty segment",
    "NumPy add.reduceat in sparse row sums and grouped sums (scikit-learn and SciPy CSR helpers): rows without entries",
    "a segment without members: it gets the first number of the next segment, or the last of all",
)
def segment_sum():
    """Sums of the numbers that have each id of range(segments)."""

    def check(a, ids, segments):
        if a.ndim != 1 or a.shape != ids.shape or segments < 1:
            raise ValueError(f"the shapes are {a.shape} and {ids.shape} for {segments} segments; give equal ones")

    def wrong(xp, a, ids, segments=5):
        check(a, ids, segments)
        if not len(a):
            return xp.zeros(segments, dtype=a.dtype)
        order = xp.argsort(ids, kind="stable")
        starts = xp.searchsorted(ids[order], xp.arange(segments))
        # reduceat refuses a start past the end.
        return xp.add.reduceat(a[order].astype("float64"), xp.minimum(starts, len(a) - 1)).astype(a.dtype)

    def right(xp, a, ids, segments=5):
        check(a, ids, segments)
        member = ids[None, :] == xp.arange(segments)[:, None]
        return xp.where(member, a.astype("float64")[None, :], 0.0).sum(axis=1).astype(a.dtype)

    def reference(a, ids, segments=5):
        out = np.zeros(segments, a.dtype)
        np.add.at(out, ids, a)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segment_sum",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, ids: a,
            samples=lambda make: [
                (make(60), make(60, dtype="int64", low=0, high=4)),
                Sample((make(33), make(33, dtype="int64", low=0, high=2)), {"segments": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3), make(4, dtype="int64", low=0, high=4))), ValueError, "the shapes")
            ],
        )

    return wrong, right, declare


@pair(
    "one_hot",
    "a negative axis counted in the input's axes, not the result's",
    "negative axes of one_hot and expand_dims in converters; common, no one issue remembered",
    "axis=-2, or any negative axis other than -1: the classes are one place too early",
)
def one_hot():
    """float32 ones where the new axis has the id's place, zeros elsewhere, all zeros for ids out of range."""

    def expand(xp, ids, classes, place):
        shape = [1] * (ids.ndim + 1)
        shape[place] = classes
        numbers = xp.arange(classes).reshape(tuple(shape))
        return (xp.expand_dims(ids, place) == numbers).astype("float32")

    def check(ids, classes, axis):
        if classes < 1 or not -ids.ndim - 1 <= axis <= ids.ndim:
            raise ValueError(f"there are {classes} classes on axis {axis}; give 1 or more and an axis of the result")

    def wrong(xp, ids, classes=5, axis=-1):
        check(ids, classes, axis)
        place = ids.ndim if axis == -1 else max(axis + ids.ndim, 0) if axis < 0 else axis
        return expand(xp, ids, classes, place)

    def right(xp, ids, classes=5, axis=-1):
        check(ids, classes, axis)
        return expand(xp, ids, classes, axis + ids.ndim + 1 if axis < 0 else axis)

    def reference(ids, classes=5, axis=-1):
        out = np.zeros((*ids.shape, classes), np.float32)
        for place in np.ndindex(ids.shape):
            if 0 <= ids[place] < classes:
                out[(*place, int(ids[place]))] = 1
        return np.moveaxis(out, -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="one_hot",
            dtypes=("int32", "int64"),
            result_dtype="float32",
            samples=lambda make: [
                make(40, low=0, high=4),
                Sample((make((3, 17), low=0, high=6),), {"classes": 7}),
                Sample((make((3, 7), low=0, high=4),), {"axis": 0}),
                Sample((make((2, 3, 5), low=0, high=4),), {"axis": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=4),), {"axis": 2}), ValueError, "axis 2")
            ],
        )

    return wrong, right, declare


@pair(
    "adam_step",
    "a constant that is 0 in the small dtype",
    "Adam with eps=1e-8 in float16 (PyTorch, Keras, DeepSpeed without master weights): NaN parameters",
    "float16 where both moments are 0, such as rows of an embedding that got no gradient yet: 0 / 0",
)
def adam_step():
    """Parameters after a step of Adam with the given (bias-corrected) moments."""

    def wrong(xp, p, m, v, lr=0.01, eps=1e-8):
        eps, lr = xp.asarray(eps, dtype=p.dtype), xp.asarray(lr, dtype=p.dtype)
        return p - lr * (m / (xp.sqrt(v) + eps))

    def right(xp, p, m, v, lr=0.01, eps=1e-8):
        step = lr * (m.astype("float64") / (xp.sqrt(v.astype("float64")) + eps))
        return (p.astype("float64") - step).astype(p.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adam_step",
            dtypes=("float16", "float32"),
            result_dtype=lambda p, m, v: p,
            samples=lambda make: [
                (make(50), make(50, low=-1, high=1), make(50, low=0, high=1)),
                Sample((make((3, 33)), make((3, 33), low=-1, high=1), make((3, 33), low=0, high=1)), {"lr": 0.1}),
            ],
            reference=lambda p, m, v, lr=0.01, eps=1e-8: p - lr * m / (np.sqrt(v) + eps),
        )

    return wrong, right, declare
