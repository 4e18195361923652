"""Planted faults of the domain of machine learning: layers, losses, attention, optimizers, quantization, dropout."""

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


IN_PLACE = {"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"}


def _softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


@pair(
    "layer_norm",
    "cancellation in a one-pass variance",
    "flax LayerNorm's use_fast_variance: E[x^2] - E[x]^2",
    "rows whose mean is far above their spread, such as 3000 + noise in float32",
)
def layer_norm():
    """Normalizes the last axis, without weights."""

    def wrong(xp, x, eps=1e-5):
        mean = x.mean(axis=-1, keepdims=True)
        variance = xp.maximum((x * x).mean(axis=-1, keepdims=True) - mean * mean, 0)
        return (x - mean) / xp.sqrt(variance + eps)

    def right(xp, x, eps=1e-5):
        centred = x - x.mean(axis=-1, keepdims=True)
        centred = centred - centred.mean(axis=-1, keepdims=True)  # what the rounded mean left
        return centred / xp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)

    def reference(x, eps=1e-5):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="layer_norm",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [make((4, 48)), Sample((make((2, 3, 65)),), {"eps": 1e-3})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "masked_attention",
    "finite number in place of -inf in a mask",
    "Hugging Face's -10000 and -1e9 in attention masks; pytorch#41508",
    "a query whose keys are all masked: the mean of all values instead of 0",
)
def masked_attention():
    """Attention with a mask of what may be seen; a query that sees nothing gives 0."""

    def wrong(xp, q, k, v, mask):
        scores = q @ xp.swapaxes(k, -1, -2) * (1 / q.shape[-1] ** 0.5)
        scores = xp.where(mask, scores, -1e9)
        e = xp.exp(scores - scores.max(axis=-1, keepdims=True))
        return (e / e.sum(axis=-1, keepdims=True)) @ v

    def right(xp, q, k, v, mask):
        scores = q @ xp.swapaxes(k, -1, -2) * (1 / q.shape[-1] ** 0.5)
        scores = xp.where(mask, scores, -np.inf)
        highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        e = xp.exp(scores - xp.where(highest == -np.inf, 0.0, highest))
        total = e.sum(axis=-1, keepdims=True)
        return (e / xp.where(total == 0, 1.0, total)) @ v

    def reference(q, k, v, mask):
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
        scores = np.where(mask, scores, -np.inf)
        highest = scores.max(-1, keepdims=True, initial=-np.inf)
        e = np.exp(scores - np.where(highest == -np.inf, 0.0, highest))
        total = e.sum(-1, keepdims=True)
        return (e / np.where(total == 0, 1.0, total)) @ v

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="masked_attention",
            dtypes=("float32", "float64"),
            result_dtype=lambda q, *_: q,
            samples=lambda make: [
                (make((2, 9, 8)), make((2, 24, 8)), make((2, 24, 8)), make((2, 9, 24), dtype="bool")),
                (make((5, 16)), make((33, 16)), make((33, 16)), make((5, 33), dtype="bool")),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "dropout_with_mask_of_seed",
    "random numbers by the place in memory instead of the index",
    "pytorch: dropout drops other elements of a channels_last tensor for one seed",
    "an input in Fortran order, such as a transposed matrix, drops other elements",
)
def dropout_with_mask_of_seed():
    """Dropout whose mask depends on the seed and on each element's index."""

    def wrong(xp, x, p=0.5, seed=0):
        keep = np.random.default_rng(seed).random(x.size) >= p
        # the mask in the order of x's memory, so that both are read in one sweep
        columns = x.flags.f_contiguous and not x.flags.c_contiguous
        keep = xp.asarray(keep.reshape(x.shape, order="F" if columns else "C"))
        return xp.where(keep, x / (1 - p), xp.zeros_like(x))

    def right(xp, x, p=0.5, seed=0):
        keep = xp.asarray(np.random.default_rng(seed).random(x.size).reshape(x.shape) >= p)
        return xp.where(keep, x / (1 - p), xp.zeros_like(x))

    def reference(x, p=0.5, seed=0):
        keep = np.random.default_rng(seed).random(x.shape) >= p
        return np.where(keep, x / (1 - p), 0.0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dropout",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [
                Sample((make((6, 31)),), {"seed": 3}),
                Sample((make((2, 5, 16)),), {"p": 0.25, "seed": 11}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "mask_padding",
    "masked by a product",
    "own; jax and torch code that multiplies by a mask, where 0 * inf is NaN",
    "NaN or an infinity in a padded position stays, as NaN",
)
def mask_padding():
    """Zeros behind the length of each row, as before a pooling."""

    def wrong(xp, x, lengths):
        valid = xp.arange(x.shape[1])[None, :] < lengths[:, None]
        return x * valid[:, :, None].astype(x.dtype)

    def right(xp, x, lengths):
        valid = xp.arange(x.shape[1])[None, :] < lengths[:, None]
        return xp.where(valid[:, :, None], x, xp.zeros_like(x))

    def reference(x, lengths):
        valid = np.arange(x.shape[1])[None, :] < lengths[:, None]
        return np.where(valid[:, :, None], x, 0.0)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mask_padding",
            dtypes=("bfloat16", "float16", "float32"),
            result_dtype=lambda x, *_: x,
            samples=lambda make: [
                (make((3, 12, 8)), make((3,), dtype="int64", low=1, high=12)),
                (make((5, 7, 2)), make((5,), dtype="int64", low=0, high=7)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "fake_quantize",
    "halves rounded up instead of to even",
    "pytorch quantization: nearbyint in the kernels, floor(x + 0.5) in backends that differ from them",
    "numbers that lie halfway between two levels, such as 0.0625 at scale 0.125",
)
def fake_quantize():
    """Rounds to the levels of 8 bits and back; halves go to the even level."""

    def wrong(xp, x, scale=0.125, zero_point=0):
        level = xp.floor(x * (1 / scale) + 0.5) + zero_point
        return (xp.clip(level, -128, 127) - zero_point) * scale

    def right(xp, x, scale=0.125, zero_point=0):
        level = xp.rint(x * (1 / scale)) + zero_point
        return (xp.clip(level, -128, 127) - zero_point) * scale

    def reference(x, scale=0.125, zero_point=0):
        return (np.clip(np.rint(x / scale) + zero_point, -128, 127) - zero_point) * scale

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fake_quantize",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [make((5, 33)), Sample((make((64,)),), {"scale": 0.03125, "zero_point": 7})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "round_to_e4m3",
    "subnormal numbers of a small format forgotten",
    "ml_dtypes and Triton: conversions to float8_e4m3 below 2^-6",
    "numbers below 2^-6 keep three bits of mantissa; below 2^-10 they should become 0",
)
def round_to_e4m3():
    """Rounds to the numbers of float8_e4m3fn, up to 448, and saturates."""

    def wrong(xp, x):
        size = xp.abs(x)
        exponent = xp.frexp(xp.where(xp.isfinite(x), size, 0.0))[1]
        step = xp.ldexp(xp.ones_like(x), xp.maximum(exponent, -100) - 4)
        return xp.copysign(xp.minimum(xp.rint(size / step) * step, 448), x)

    def right(xp, x):
        size = xp.abs(x)
        exponent = xp.frexp(xp.where(xp.isfinite(x), size, 0.0))[1]
        step = xp.ldexp(xp.ones_like(x), xp.maximum(exponent, -5) - 4)
        return xp.copysign(xp.minimum(xp.rint(size / step) * step, 448), x)

    def reference(x):
        size = np.minimum(np.abs(x), 448)
        exponent = np.maximum(np.floor(np.log2(np.maximum(size, 2.0**-6))), -6)
        step = 2.0 ** (exponent - 3)
        return np.copysign(np.minimum(np.round(size / step) * step, 448), x)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="round_to_e4m3",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [make((2, 6)), make((9,), low=1, high=500)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "l2_normalize",
    "constant that is 0 in half precision",
    "pytorch: F.normalize and Adam's eps=1e-8 in float16 give NaN",
    "a row of zeros in float16: 0 / 0",
)
def l2_normalize():
    """Rows of length 1; a row of zeros stays."""

    def wrong(xp, x, eps=1e-12):
        norm = xp.sqrt(xp.square(x.astype("float32")).sum(axis=-1, keepdims=True)).astype(x.dtype)
        return x / xp.maximum(norm, eps)

    def right(xp, x, eps=1e-12):
        wide = x.astype("float32")
        norm = xp.sqrt(xp.square(wide).sum(axis=-1, keepdims=True))
        return (wide / xp.maximum(norm, eps)).astype(x.dtype)

    def reference(x, eps=1e-12):
        return x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), eps)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="l2_normalize",
            dtypes=("float16", "float32"),
            result_dtype=lambda x: x,
            samples=lambda make: [make((7, 24)), make((2, 3, 40))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "clip_gradients",
    "NaN lost in a comparison",
    "own; like min(1, coefficient) in copies of torch's clip_grad_norm_",
    "one NaN in one gradient: the other gradient, and the rest of it, pass as if the norm were small",
)
def clip_gradients():
    """Scales two gradients so that their common norm is at most max_norm."""

    def wrong(xp, a, b, max_norm=1.0):
        norm = xp.sqrt((a * a).sum() + (b * b).sum())
        factor = xp.where(norm > max_norm, max_norm / (norm + 1e-6), xp.ones_like(norm))
        return a * factor, b * factor

    def right(xp, a, b, max_norm=1.0):
        norm = xp.sqrt((a * a).sum() + (b * b).sum())
        factor = xp.minimum(max_norm / (norm + 1e-6), xp.ones_like(norm))
        return a * factor, b * factor

    def reference(a, b, max_norm=1.0):
        norm = np.sqrt((a * a).sum() + (b * b).sum())
        factor = np.minimum(max_norm / (norm + 1e-6), 1.0)
        return a * factor, b * factor

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="clip_gradients",
            dtypes=("float32", "float64"),
            result_dtype=lambda a, *_: a,
            samples=lambda make: [
                (make((8, 5)), make((5,))),
                Sample((make((4, 4)), make((3,))), {"max_norm": 100.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "sgd_with_momentum",
    "a result that is an input",
    "pytorch: the momentum buffer of SGD's first step was the gradient itself, without a clone",
    "the returned buffer shares the gradient's memory: the next backward pass overwrites it",
)
def sgd_with_momentum():
    """The new parameter and the new momentum buffer; without a buffer, that of the first step."""

    def wrong(xp, p, g, buffer=None, lr=0.1, momentum=0.9):
        buffer = g if buffer is None else momentum * buffer + g
        return p - lr * buffer, buffer

    def right(xp, p, g, buffer=None, lr=0.1, momentum=0.9):
        buffer = g.copy() if buffer is None else momentum * buffer + g
        return p - lr * buffer, buffer

    def reference(p, g, buffer=None, lr=0.1, momentum=0.9):
        buffer = g * 1.0 if buffer is None else momentum * buffer + g
        return p - lr * buffer, buffer

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sgd_with_momentum",
            dtypes=("float32", "float64"),
            result_dtype=lambda p, *_: p,
            samples=lambda make: [
                (make((6, 7)), make((6, 7)), make((6, 7))),
                Sample((make((3, 11)), make((3, 11))), {"lr": 0.01}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "adagrad_step",
    "written to the copy that reshape made",
    "apex and others: flattened parameters, view(-1) replaced by reshape(-1)",
    "a parameter that is not contiguous, such as a transposed one, is not updated",
)
def adagrad_step():
    """One step of Adagrad, in place in the parameter and in the sum of squares; returns both."""

    def wrong(xp, p, g, squares, lr=0.1):
        flat_p, flat_g, flat_squares = p.reshape(-1), g.reshape(-1), squares.reshape(-1)
        flat_squares += flat_g * flat_g
        flat_p -= lr * flat_g / (xp.sqrt(flat_squares) + 1e-8)
        return p, squares

    def right(xp, p, g, squares, lr=0.1):
        squares += g * g
        p -= lr * g / (xp.sqrt(squares) + 1e-8)
        return p, squares

    def reference(p, g, squares, lr=0.1):
        squares = squares + g * g
        return p - lr * g / (np.sqrt(squares) + 1e-8), squares

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="adagrad_step",
            dtypes=("float32", "float64"),
            result_dtype=lambda p, *_: p,
            samples=lambda make: [
                (make((5, 13)), make((5, 13)), make((5, 13), low=0, high=9)),
                Sample((make((70,)), make((70,)), make((70,), low=0, high=9)), {"lr": 0.5}),
            ],
            reference=reference,
            without=IN_PLACE,
        )

    return wrong, right, declare


@pair(
    "unscale_or_skip",
    "overflow looked for in a sum that overflows itself",
    "apex's first loss scaler: isfinite(grad.sum())",
    "finite gradients in float16 whose sum is beyond 65504: the step is skipped",
)
def unscale_or_skip():
    """The gradient without its scale; zeros if any of it overflowed, so that nothing is stepped."""

    def wrong(xp, g, scale=1024.0):
        return xp.where(xp.isfinite(g.sum()), g * (1 / scale), xp.zeros_like(g))

    def right(xp, g, scale=1024.0):
        return xp.where(xp.isfinite(g).all(), g * (1 / scale), xp.zeros_like(g))

    def reference(g, scale=1024.0):
        return g / scale if np.isfinite(g).all() else np.zeros_like(g)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unscale_or_skip",
            dtypes=("float16", "float32"),
            result_dtype=lambda g: g,
            samples=lambda make: [make((6, 17)), Sample((make((50,), low=-500, high=500),), {"scale": 64.0})],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "route_to_experts",
    "order of ties",
    "argsort(x)[::-1] for top-k; jax and numpy promise the lower index first, reversed and unstable sorts do not",
    "two experts with equal logits: the higher index comes first; also NaN comes first",
)
def route_to_experts():
    """Indices of the k largest logits of each token, the largest first, the lower index first among equals."""

    def wrong(xp, logits, k=2):
        return xp.argsort(logits, axis=-1)[..., ::-1][..., :k]

    def right(xp, logits, k=2):
        return xp.argsort(-logits, axis=-1, kind="stable")[..., :k]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="route_to_experts",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [make((12, 8)), Sample((make((2, 5, 16)),), {"k": 4})],
            reference=lambda logits, k=2: np.argsort(-logits, axis=-1, kind="stable")[..., :k],
        )

    return wrong, right, declare


@pair(
    "rotary_embedding",
    "cache without the dtype in its key",
    "Hugging Face: cos and sin of rotary embeddings cached in half precision and used later in float32",
    "a call in float16 and then one in float32 or float64 of that length and width: three digits are right",
)
def rotary_embedding():
    """Rotates pairs (i, i + width / 2) of the last axis by position; tables are cached."""
    narrow: dict[Any, Any] = {}
    wide: dict[Any, Any] = {}

    def tables(length, width, base):
        angles = np.arange(length)[:, None] * base ** (-np.arange(0, width, 2) / width)
        return np.cos(angles), np.sin(angles)

    def rotate(xp, x, cos, sin):
        half = x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        return xp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def checked(x):
        if x.shape[-1] % 2:
            raise ValueError(f"the width must be even, not {x.shape[-1]}")
        return x.shape[-2], x.shape[-1]

    def wrong(xp, x, base=10000.0):
        key = (*checked(x), base)
        if key not in narrow:
            narrow[key] = tuple(table.astype(x.dtype) for table in tables(*key))
        work = xp.result_type(x.dtype, "float32")
        cos, sin = (xp.asarray(table.astype(work)) for table in narrow[key])
        return rotate(xp, x.astype(work), cos, sin).astype(x.dtype)

    def right(xp, x, base=10000.0):
        key = (*checked(x), base)
        if key not in wide:
            wide[key] = tables(*key)
        work = xp.result_type(x.dtype, "float32")
        cos, sin = (xp.asarray(table.astype(work)) for table in wide[key])
        return rotate(xp, x.astype(work), cos, sin).astype(x.dtype)

    def reference(x, base=10000.0):
        width = x.shape[-1]
        angles = np.arange(x.shape[-2])[:, None] / base ** (np.arange(width // 2) * 2 / width)
        first, second = np.split(x, 2, axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary_embedding",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [make((2, 9, 8)), Sample((make((3, 2, 20, 16)),), {"base": 500.0})],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((4, 7)), ValueError, "must be even")],
        )

    return wrong, right, declare


@pair(
    "stochastic_round",
    "generator that goes on between calls of one seed",
    "own; like torch.manual_seed hoisted out of a step: one generator for each seed",
    "the second call with one seed draws other numbers than the first",
)
def stochastic_round():
    """Rounds to a multiple of step, up with a probability of the remainder, by the numbers of a seed."""
    generators: dict[int, Any] = {}

    def rounded(xp, x, step, draws):
        level = xp.floor(x.astype("float64") / step + xp.asarray(draws))
        return (level * step).astype(x.dtype)

    def wrong(xp, x, seed=0, step=0.25):
        if seed not in generators:
            generators[seed] = np.random.default_rng(seed)
        return rounded(xp, x, step, generators[seed].random(x.shape))

    def right(xp, x, seed=0, step=0.25):
        return rounded(xp, x, step, np.random.default_rng(seed).random(x.shape))

    def reference(x, seed=0, step=0.25):
        return np.floor(x / step + np.random.default_rng(seed).random(x.shape)) * step

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="stochastic_round",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [
                Sample((make((4, 33)),), {"seed": 1}),
                Sample((make((100,)),), {"seed": 2, "step": 0.5}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "attention_pool",
    "squeeze without an axis",
    "many reports, such as output.squeeze() in Hugging Face poolers: a batch of one loses its axis",
    "a batch of one, or a width of one: an axis is missing",
)
def attention_pool():
    """One vector for each sequence: its tokens, weighted by a softmax of their product with a query."""

    def wrong(xp, x, query):
        scores = x @ query
        e = xp.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        weights = e / e.sum(axis=-1, keepdims=True)
        return (weights[:, None, :] @ x).squeeze()

    def right(xp, x, query):
        scores = x @ query
        e = xp.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        weights = e / e.sum(axis=-1, keepdims=True)
        return (weights[:, None, :] @ x).squeeze(axis=1)

    def reference(x, query):
        weights = _softmax(np.einsum("bld,d->bl", x, query))
        return np.einsum("bl,bld->bd", weights, x)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="attention_pool",
            dtypes=("float32", "float64"),
            result_dtype=lambda x, *_: x,
            samples=lambda make: [(make((3, 10, 8)), make((8,))), (make((2, 33, 16)), make((16,)))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "position_ids",
    "narrow integer as accumulator",
    "Hugging Face: attention_mask.cumsum(-1) - 1; masks in int8 wrap where the sum keeps its dtype, as with cub",
    "more than 127 tokens in an int8 mask, or 255 in a uint8 one",
)
def position_ids():
    """Positions of the tokens that a mask keeps, from 0; padding has 1."""

    def wrong(xp, mask):
        positions = xp.cumsum(mask, axis=-1, dtype=mask.dtype) - 1
        return xp.where(mask == 0, 1, positions).astype("int64")

    def right(xp, mask):
        positions = xp.cumsum(mask, axis=-1, dtype="int64") - 1
        return xp.where(mask == 0, 1, positions).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="position_ids",
            dtypes=("int8", "uint8", "int64"),
            result_dtype="int64",
            samples=lambda make: [make((3, 40), low=0, high=1), make((2, 2, 64), low=0, high=1)],
            reference=lambda mask: np.where(mask == 0, 1, np.cumsum(mask.astype("int64"), axis=-1) - 1),
        )

    return wrong, right, declare


@pair(
    "grouped_query_attention",
    "tile in place of repeat",
    "ports of grouped-query attention, such as torch's repeat for repeat_interleave of key heads",
    "more than one head of keys, shared by more than one head of queries, such as 4 and 2",
)
def grouped_query_attention():
    """Attention in which neighbouring heads of queries share a head of keys and values."""

    def attend(xp, q, k, v):
        scores = q @ xp.swapaxes(k, -1, -2) * (1 / q.shape[-1] ** 0.5)
        e = xp.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        return (e / e.sum(axis=-1, keepdims=True)) @ v

    def wrong(xp, q, k, v):
        share = q.shape[1] // k.shape[1]
        return attend(xp, q, xp.tile(k, (1, share, 1, 1)), xp.tile(v, (1, share, 1, 1)))

    def right(xp, q, k, v):
        share = q.shape[1] // k.shape[1]
        return attend(xp, q, xp.repeat(k, share, axis=1), xp.repeat(v, share, axis=1))

    def reference(q, k, v):
        heads = np.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
        scores = np.einsum("bhqd,bhkd->bhqk", q, k[:, heads]) / np.sqrt(q.shape[-1])
        return _softmax(scores) @ v[:, heads]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="grouped_query_attention",
            dtypes=("float32", "float64"),
            result_dtype=lambda q, *_: q,
            samples=lambda make: [
                (make((2, 4, 5, 8)), make((2, 4, 12, 8)), make((2, 4, 12, 8))),
                (make((1, 4, 7, 16)), make((1, 1, 9, 16)), make((1, 1, 9, 16))),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "gelu_in_scratch",
    "scratch memory shared by streams and threads",
    "own; like a cuBLAS or split-k workspace kept for each shape and used on every stream",
    "sim: two streams without a wait between them, at one shape; cpu: two threads at once, by chance only",
)
def gelu_in_scratch():
    """GELU by tanh, with intermediate results in memory that is kept for the next call."""
    kept: dict[Any, Any] = {}

    def into(xp, x, t):
        xp.multiply(x, x, out=t)
        xp.multiply(t, 0.044715, out=t)
        xp.add(t, 1.0, out=t)
        xp.multiply(t, x, out=t)
        xp.multiply(t, (2 / np.pi) ** 0.5, out=t)
        xp.tanh(t, out=t)
        xp.add(t, 1.0, out=t)
        return t * x * 0.5

    def wrong(xp, x):
        key = (str(getattr(x, "device", "cpu")), x.shape, str(x.dtype))
        if key not in kept:
            kept[key] = xp.empty(x.shape, x.dtype)
        return into(xp, x, kept[key])

    def right(xp, x):
        return into(xp, x, xp.empty(x.shape, x.dtype))

    def reference(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x * (1 + 0.044715 * (x * x)))))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gelu_in_scratch",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [make((4, 33)), make((2, 3, 16))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "cosine_similarity",
    "eps applied to the product instead of each factor",
    "pytorch: cosine_similarity clamped the product of the norms, later each of them",
    "both rows short: norms of 1e-7 and eps 1e-8, where the product is below eps and each norm is not",
)
def cosine_similarity():
    """Cosine of the angle between rows; norms below eps count as eps."""

    def wrong(xp, x, y, eps=1e-8):
        product = xp.sqrt((x * x).sum(axis=-1)) * xp.sqrt((y * y).sum(axis=-1))
        return (x * y).sum(axis=-1) / xp.maximum(product, eps)

    def right(xp, x, y, eps=1e-8):
        x = x / xp.maximum(xp.sqrt((x * x).sum(axis=-1, keepdims=True)), eps)
        y = y / xp.maximum(xp.sqrt((y * y).sum(axis=-1, keepdims=True)), eps)
        return (x * y).sum(axis=-1)

    def reference(x, y, eps=1e-8):
        x = x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), eps)
        y = y / np.maximum(np.sqrt((y * y).sum(-1, keepdims=True)), eps)
        return (x * y).sum(-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cosine_similarity",
            dtypes=("float32", "float64"),
            result_dtype=lambda x, *_: x,
            samples=lambda make: [
                (make((6, 24)), make((6, 24))),
                Sample((make((2, 4, 10)), make((2, 4, 10))), {"eps": 1e-6}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "flash_attention",
    "padding of the last block not masked",
    "flash attention in Triton: keys padded with zeros get exp(0 - m) in the denominator",
    "a number of keys that is no multiple of 64, such as 100",
)
def flash_attention():
    """Attention in blocks of 64 keys, with a running maximum and denominator."""
    block = 64

    def blocks(xp, q, k, v, masked):
        length = k.shape[0]
        if length == 0:
            return xp.zeros((q.shape[0], v.shape[1]), q.dtype)
        behind = -length % block
        k, v = (xp.pad(each, ((0, behind), (0, 0))) for each in (k, v))
        top = xp.full((q.shape[0], 1), -np.inf, q.dtype)
        total = xp.zeros((q.shape[0], 1), q.dtype)
        out = xp.zeros((q.shape[0], v.shape[1]), q.dtype)
        for start in range(0, length, block):
            scores = q @ k[start : start + block].T * (1 / q.shape[1] ** 0.5)
            if masked:
                scores = xp.where(xp.arange(start, start + block) < length, scores, -np.inf)
            new = xp.maximum(top, scores.max(axis=-1, keepdims=True))
            base = xp.where(new == -np.inf, xp.zeros_like(new), new)
            e, shrink = xp.exp(scores - base), xp.exp(top - base)
            total = total * shrink + e.sum(axis=-1, keepdims=True)
            out = out * shrink + e @ v[start : start + block]
            top = new
        return out / total

    def wrong(xp, q, k, v):
        return blocks(xp, q, k, v, masked=False)

    def right(xp, q, k, v):
        return blocks(xp, q, k, v, masked=True)

    def reference(q, k, v):
        return _softmax(q @ k.T / np.sqrt(q.shape[1])) @ v

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="flash_attention",
            dtypes=("float32", "float64"),
            result_dtype=lambda q, *_: q,
            samples=lambda make: [
                (make((16, 8)), make((64, 8)), make((64, 8))),
                (make((33, 16)), make((128, 16)), make((128, 16))),
            ],
            reference=reference,
        )

    return wrong, right, declare
