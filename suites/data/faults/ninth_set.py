"""Sixty wrong functions with right twins, declared as a maintainer would, and frozen before the first run."""
import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import numpy as np

from cuassay import devices, ops
from cuassay.ops import shapes
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


def of_device(array):
    """The backend of an array, and the index of its device."""
    device = array.device
    if isinstance(device, str):
        return devices.backend("cpu"), 0
    return devices.backend(device.kind), device.index


# Values


@pair("step_at_knot", "values", "own; torch.bucketize's `right`", "an element equal to a knot, such as 0.0", "extremal")
def step_at_knot():
    knots, levels = (-1.0, 0.0, 2.0), (1.0, 0.5, 0.25, 0.125)

    def wrong(xp, a):  # a new level begins at its knot
        at = xp.searchsorted(xp.asarray(knots, dtype=a.dtype), a)
        return xp.asarray(levels, dtype=a.dtype)[at]

    def right(xp, a):
        at = xp.searchsorted(xp.asarray(knots, dtype=a.dtype), a, side="right")
        return xp.asarray(levels, dtype=a.dtype)[at]

    def declare(fn):
        return OpSpec(
            fn=fn, name="step_at_knot", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), make(17)],
            reference=lambda a: np.array(levels)[np.searchsorted(np.array(knots), a, side="right")],
        )

    return wrong, right, declare


@pair("auc_ties", "values", "CangyuanLi/rapidstats#25", "equal scores in both classes", "values", "extremal")
def auc_ties():
    def wrong(xp, p, n):  # ranks by order of appearance: a tie counts for one side alone
        both = xp.concatenate([p, n])
        ranks = xp.argsort(xp.argsort(both, kind="stable"), kind="stable") + 1
        u = ranks[: p.size].sum() - p.size * (p.size + 1) / 2
        return (u / (p.size * n.size)).astype(p.dtype)

    def right(xp, p, n):
        wins = (p[:, None] > n) + 0.5 * (p[:, None] == n)
        return wins.mean().astype(p.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn, name="auc_ties", dtypes=("float32", "float64"), result_dtype=lambda p, n: p,
            samples=lambda make: [(make(40), make(31))],
            reference=lambda p, n: ((p[:, None] > n) + 0.5 * (p[:, None] == n)).mean(),
        )

    return wrong, right, declare


@pair("longest_run_at_end", "values", "own", "a row whose longest run of True ends with the row", "values")
def longest_run_at_end():
    def wrong(xp, a):  # measures a run when it ends, so not the one that the row ends
        at = xp.arange(1, a.shape[-1] + 1)
        last = xp.maximum.accumulate(xp.where(a, 0, at), axis=-1)
        before = xp.concatenate([xp.zeros_like(last[..., :1]), last[..., :-1]], axis=-1)
        return xp.where(a, 0, at - before - 1).max(axis=-1, initial=0)

    def right(xp, a):
        at = xp.arange(1, a.shape[-1] + 1)
        last = xp.maximum.accumulate(xp.where(a, 0, at), axis=-1)
        return (at - last).max(axis=-1, initial=0)

    def longest(row):
        best = run = 0
        for one in row:
            run = run + 1 if one else 0
            best = max(best, run)
        return best

    def declare(fn):
        return OpSpec(
            fn=fn, name="longest_run_at_end", dtypes=("bool",), result_dtype="int64",
            samples=lambda make: [make((3, 60))],
            reference=lambda a: np.apply_along_axis(longest, -1, a).astype(np.int64) if a.size else np.zeros(a.shape[:-1], np.int64),
        )

    return wrong, right, declare


@pair("bit_length_by_log2", "values", "own", "2**49 - 1, whose log2 rounds to 49", "extremal")
def bit_length_by_log2():
    def wrong(xp, a):
        return (xp.floor(xp.log2(a)) + 1).astype("int64")

    def right(xp, a):
        powers = xp.asarray(2 ** np.arange(63, dtype=np.int64))
        return (a[..., None] >= powers).sum(axis=-1).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn, name="bit_length_by_log2", dtypes=("int64",), result_dtype="int64",
            samples=lambda make: [make((5, 33), low=1, high=10**15)],  # times in nanoseconds
            reference=lambda a: np.array([max(int(x), 0).bit_length() for x in a.ravel()], np.int64).reshape(a.shape),
        )

    return wrong, right, declare


@pair("padding_token_wraps", "values", "vllm-project/vllm#57762", "a row with the padding token -1", "values")
def padding_token_wraps():
    def wrong(xp, logits, tokens):  # -1 is the last token of the vocabulary
        out = logits.copy()
        old = xp.take_along_axis(logits, tokens, axis=-1)
        xp.put_along_axis(out, tokens, xp.where(old > 0, old / 1.25, old * 1.25), axis=-1)
        return out

    def right(xp, logits, tokens):
        seen = (tokens[..., None] == xp.arange(logits.shape[-1])).any(axis=-2)
        return xp.where(seen, xp.where(logits > 0, logits / 1.25, logits * 1.25), logits)

    def reference(logits, tokens):
        out = logits.copy()
        for row, seen in zip(out, tokens, strict=True):
            for t in {int(t) for t in seen if 0 <= t < row.size}:
                row[t] = row[t] / 1.25 if row[t] > 0 else row[t] * 1.25
        return out

    def declare(fn):
        return OpSpec(
            fn=fn, name="padding_token_wraps", dtypes=("float32", "float64"),
            samples=lambda make: [(make((2, 50)), make((2, 6), dtype="int64", low=-1, high=48))],
            reference=reference,
        )

    return wrong, right, declare


@pair("clip_amplifies", "lists", "own; torch.nn.utils.clip_grad_norm_", "gradients whose norm is below max_norm", "values")
def clip_amplifies():
    def norm(xp, grads):
        return xp.sqrt(sum((g * g).sum() for g in grads))

    def wrong(xp, grads, max_norm=1.0):
        scale = max_norm / (norm(xp, grads) + 1e-6)
        return [g * scale for g in grads]

    def right(xp, grads, max_norm=1.0):
        scale = xp.minimum(max_norm / (norm(xp, grads) + 1e-6), 1)
        return [g * scale for g in grads]

    def declare(fn):
        return OpSpec(
            fn=fn, name="clip_amplifies", dtypes=("float32", "float64"),
            samples=lambda make: [Sample(([make((3, 4)), make(17), make((2, 2, 5))],), {"max_norm": 1.0})],
            reference=lambda grads, max_norm=1.0: right(np, grads, max_norm),
        )

    return wrong, right, declare


@pair("causal_offset", "values", "flash-attention 2.1, alignment of the causal mask", "fewer queries than keys", "values")
def causal_offset():
    def attend(xp, scores, offset):
        q, k = scores.shape[-2:]
        seen = xp.arange(k) <= xp.arange(q)[:, None] + offset
        kept = xp.where(seen, scores, -math.inf)
        with np.errstate(invalid="ignore"):
            e = xp.exp(kept - kept.max(axis=-1, keepdims=True, initial=-math.inf))
            return e / e.sum(axis=-1, keepdims=True)

    def wrong(xp, scores):  # right for square scores: the last query is not aligned to the last key
        return attend(xp, scores, 0)

    def right(xp, scores):
        return attend(xp, scores, scores.shape[-1] - scores.shape[-2])

    def declare(fn):
        return OpSpec(
            fn=fn, name="causal_offset", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((2, 7, 7)), make((3, 3))],
            reference=lambda scores: right(np, scores),
        )

    return wrong, right, declare


# Special values


@pair("exclusive_sum_subtracts", "special values", "own", "an infinity, or a large number before small ones", "extremal")
def exclusive_sum_subtracts():
    def wrong(xp, a):
        return xp.cumsum(a, axis=-1) - a

    def right(xp, a):
        out = xp.zeros_like(a)
        out[..., 1:] = xp.cumsum(a[..., :-1], axis=-1)
        return out

    def reference(a):
        out = np.zeros_like(a)
        out[..., 1:] = np.cumsum(a[..., :-1], axis=-1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn, name="exclusive_sum_subtracts", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), make(8)], reference=reference,
        )

    return wrong, right, declare


@pair("signed_sqrt_zero", "special values", "own", "-0.0, whose sign is lost", "extremal")
def signed_sqrt_zero():
    def wrong(xp, a):
        return xp.sign(a) * xp.sqrt(xp.abs(a))

    def right(xp, a):
        return xp.copysign(xp.sqrt(xp.abs(a)), a)

    def declare(fn):
        return OpSpec(
            fn=fn, name="signed_sqrt_zero", dtypes=("float16", "float32", "float64"),
            reference=lambda a: np.copysign(np.sqrt(np.abs(a)), a),
        )

    return wrong, right, declare


@pair("masked_mean_poisoned", "special values", "own; 0 * nan under padding masks", "NaN or infinity where the mask is False", "extremal")
def masked_mean_poisoned():
    def wrong(xp, a, mask):
        m = mask.astype(a.dtype)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (a * m).sum(axis=-1) / m.sum(axis=-1)

    def right(xp, a, mask):
        with np.errstate(invalid="ignore", divide="ignore"):
            return xp.where(mask, a, 0).sum(axis=-1) / mask.sum(axis=-1).astype(a.dtype)

    def reference(a, mask):
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(mask, a, 0).sum(axis=-1) / mask.sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn, name="masked_mean_poisoned", dtypes=("float32", "float64"),
            samples=lambda make: [(make((5, 33)), make((5, 33), dtype="bool"))], reference=reference,
        )

    return wrong, right, declare


@pair("exponent_by_bits", "special values", "own", "subnormal numbers", "extremal")
def exponent_by_bits():
    def wrong(xp, a):  # -127 for 0 and 128 for infinities and NaN, as the bits say
        return ((a.view("int32") >> 23) & 255) - 127

    def right(xp, a):
        e = xp.frexp(a)[1] - 1
        return xp.where(xp.isfinite(a), xp.where(a == 0, -127, e), 128).astype("int32")

    def declare(fn):
        return OpSpec(
            fn=fn, name="exponent_by_bits", dtypes=("float32",), result_dtype="int32",
            samples=lambda make: [make((5, 33)), make(40)],
            reference=lambda a: np.where(np.isfinite(a), np.where(a == 0, -127, np.frexp(a)[1] - 1), 128),
        )

    return wrong, right, declare


@pair("reciprocal_scale", "special values", "own", "a row of subnormal numbers: 1 / max is infinite", "extremal")
def reciprocal_scale():
    def wrong(xp, a):
        m = xp.abs(a).max(axis=-1, keepdims=True, initial=0)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return a * (1 / xp.where(m == 0, 1, m))

    def right(xp, a):
        m = xp.abs(a).max(axis=-1, keepdims=True, initial=0)
        with np.errstate(invalid="ignore"):
            return a / xp.where(m == 0, 1, m)

    def declare(fn):
        return OpSpec(
            fn=fn, name="reciprocal_scale", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33))], reference=lambda a: right(np, a),
        )

    return wrong, right, declare


@pair("softmax_global_max", "special values", "own", "rows whose numbers differ by more than 100", "extremal", "values")
def softmax_global_max():
    def wrong(xp, a):  # one maximum for all rows: a row far below it becomes 0 / 0
        with np.errstate(invalid="ignore"):
            e = xp.exp(a - a.max(initial=-math.inf))
            return e / e.sum(axis=-1, keepdims=True)

    def right(xp, a):
        with np.errstate(invalid="ignore"):
            e = xp.exp(a - a.max(axis=-1, keepdims=True, initial=-math.inf))
            return e / e.sum(axis=-1, keepdims=True)

    def declare(fn):
        return OpSpec(
            fn=fn, name="softmax_global_max", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((4, 33)), make((2, 3, 8))], reference=lambda a: right(np, a),
        )

    return wrong, right, declare


@pair("gemm_beta_zero", "special values", "own; BLAS: C is not read where beta is 0", "beta=0 with NaN or infinity in c", "extremal")
def gemm_beta_zero():
    def wrong(xp, a, b, c, beta=1.0):
        return a @ b + beta * c

    def right(xp, a, b, c, beta=1.0):
        return a @ b + beta * c if beta else a @ b

    def declare(fn):
        return OpSpec(
            fn=fn, name="gemm_beta_zero", dtypes=("float32", "float64"),
            samples=lambda make: [
                Sample((make((4, 6)), make((6, 5)), make((4, 5))), {"beta": 0.5}),
                Sample((make((3, 8)), make((8, 2)), make((3, 2))), {"beta": 0.0}),
            ],
            reference=lambda a, b, c, beta=1.0: right(np, a, b, c, beta),
        )

    return wrong, right, declare


# Promotion and result dtypes


@pair("python_number_widens", "promotion", "own; NumPy 2 (NEP 50)", "a Python number next to a float32 array", "promotion", "python")
def python_number_widens():
    def wrong(xp, a, b):  # an array of a Python number is a float64 array
        b = xp.asarray(b)
        return a + b * 0.5

    def right(xp, a, b):
        return a + b * 0.5

    def declare(fn):
        return OpSpec(
            fn=fn, name="python_number_widens", dtypes=("float16", "float32"),
            result_dtype=lambda a, b: np.result_type(a, b).name, reference=lambda a, b: a + b * 0.5,
        )

    return wrong, right, declare


@pair("dtype_of_first", "promotion", "own", "float16 next to float32, or a float32 before a float64", "promotion")
def dtype_of_first():
    def wrong(xp, a, b):
        return ((a + b) * 0.5).astype(a.dtype)

    def right(xp, a, b):
        return (a + b) * 0.5

    def declare(fn):
        return OpSpec(
            fn=fn, name="dtype_of_first", dtypes=("float32", "float64"),
            result_dtype=lambda a, b: np.result_type(a, b).name, reference=lambda a, b: (a + b) * 0.5,
        )

    return wrong, right, declare


@pair("uint64_index_mixed", "promotion", "own; uint64 with int64 is float64", "uint64 numbers above 2**53", "extremal")
def uint64_index_mixed():
    def wrong(xp, a):
        with np.errstate(invalid="ignore"):
            return (a + xp.arange(a.shape[-1])).astype(a.dtype)

    def right(xp, a):
        return a + xp.arange(a.shape[-1]).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn, name="uint64_index_mixed", dtypes=("uint32", "uint64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33))],
            reference=lambda a: a + np.arange(a.shape[-1]).astype(a.dtype),
        )

    return wrong, right, declare


# Integer overflow


@pair("pair_index_int32", "integer overflow", "own; flat index of a triangle of pairs", "i above 46341", "extremal")
def pair_index_int32():
    def wrong(xp, i, j):
        with np.errstate(over="ignore"):
            return (i * (i - 1) // 2 + j).astype("int64")

    def right(xp, i, j):
        i = i.astype("int64")
        return i * (i - 1) // 2 + j

    def declare(fn):
        return OpSpec(
            fn=fn, name="pair_index_int32", dtypes=("int32",), result_dtype="int64",
            samples=lambda make: [(make(40), make(40))],
            reference=lambda i, j: i.astype(np.int64) * (i.astype(np.int64) - 1) // 2 + j,
        )

    return wrong, right, declare


@pair("peak_of_int8", "integer overflow", "own; abs(-128) is -128", "-128 as the peak of a row", "extremal")
def peak_of_int8():
    def wrong(xp, a):
        return xp.abs(a).max(axis=-1).astype("int16")

    def right(xp, a):
        return xp.maximum(a.max(axis=-1).astype("int16"), -a.min(axis=-1).astype("int16"))

    def declare(fn):
        return OpSpec(
            fn=fn, name="peak_of_int8", dtypes=("int8",), result_dtype="int16",
            samples=lambda make: [make((5, 33))],
            reference=lambda a: np.abs(a.astype(np.int16)).max(axis=-1),
        )

    return wrong, right, declare


@pair("saturates_upwards_only", "integer overflow", "own", "two negative numbers whose sum is below the least", "extremal")
def saturates_upwards_only():
    def wrong(xp, a, b):
        total = a + b
        return xp.where((a > 0) & (b > 0) & (total < 0), xp.asarray(np.iinfo(str(a.dtype)).max, dtype=a.dtype), total)

    def right(xp, a, b):
        info = np.iinfo(str(a.dtype))
        return xp.clip(a.astype("int64") + b.astype("int64"), info.min, info.max).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn, name="saturates_upwards_only", dtypes=("int8", "int32"), result_dtype=lambda a, b: a,
            samples=lambda make: [(make((5, 33)), make((5, 33)))], reference=lambda a, b: right(np, a, b),
        )

    return wrong, right, declare


@pair("group_sum_by_weights", "integer overflow", "own; bincount's weights are float64", "int64 numbers above 2**53", "extremal")
def group_sum_by_weights():
    groups = 6

    def wrong(xp, a, ids):
        return xp.bincount(ids, weights=a, minlength=groups).astype("int64")

    def right(xp, a, ids):
        return xp.where(ids == xp.arange(groups)[:, None], a, 0).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn, name="group_sum_by_weights", dtypes=("int64",), result_dtype="int64",
            samples=lambda make: [(make(40), make(40, dtype="int64", low=0, high=groups - 1))],
            reference=lambda a, ids: np.array([a[ids == k].sum() for k in range(groups)], np.int64),
        )

    return wrong, right, declare


# Precision


@pair("log1mexp_cancels", "precision", "own; Machler's log1mexp", "numbers near 0, such as -0.001", "values", "precision")
def log1mexp_cancels():
    def wrong(xp, a):
        return xp.log1p(-xp.exp(a))

    def right(xp, a):
        with np.errstate(divide="ignore", invalid="ignore"):
            return xp.where(a > -0.6931, xp.log(-xp.expm1(a)), xp.log1p(-xp.exp(a)))

    def declare(fn):
        return OpSpec(
            fn=fn, name="log1mexp_cancels", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33), low=-30, high=-1e-5)], reference=lambda a: right(np, a),
        )

    return wrong, right, declare


@pair("mean_of_halves_overflows", "precision", "pytorch/pytorch#44350", "float16 numbers whose sum is above 65504", "extremal")
def mean_of_halves_overflows():
    def wrong(xp, a):
        with np.errstate(over="ignore"):
            return a.sum(axis=-1) / a.shape[-1]

    def right(xp, a):
        return (a.sum(axis=-1, dtype="float32") / a.shape[-1]).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn, name="mean_of_halves_overflows", dtypes=("float16", "float32"), result_dtype=lambda a: a,
            samples=lambda make: [make((3, 24)), make((2, 5, 16))], reference=lambda a: a.mean(axis=-1),
        )

    return wrong, right, declare


# Shapes


@pair("squeeze_all", "shapes", "Blaizzy/mlx-vlm#1094", "a batch of one row", "batch", "values")
def squeeze_all():
    def wrong(xp, a, w):
        return xp.squeeze((a * w).sum(axis=-1, keepdims=True))

    def right(xp, a, w):
        return xp.squeeze((a * w).sum(axis=-1, keepdims=True), axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn, name="squeeze_all", dtypes=("float32", "float64"),
            samples=lambda make: [(make((3, 24)), make(24)), (make((2, 5, 16)), make(16))],
            reference=lambda a, w: (a * w).sum(axis=-1),
        )

    return wrong, right, declare


@pair("cap_by_mask", "shapes", "own; NumPy gives scalars for 0-d arrays", "a 0-d array", "scalar")
def cap_by_mask():
    def wrong(xp, a):
        out = a * 0.5
        out[out > 1] = 1
        return out

    def right(xp, a):
        half = a * 0.5
        return xp.where(half > 1, 1, half)

    def declare(fn):
        return OpSpec(
            fn=fn, name="cap_by_mask", dtypes=("float32", "float64"),
            reference=lambda a: np.where(a * 0.5 > 1, 1, a * 0.5),
        )

    return wrong, right, declare


@pair("tree_sum_odd_level", "shapes", "own; reductions by halves", "10 columns: 10, 5, and then one is dropped", "values")
def tree_sum_odd_level():
    def even(xp, a):
        if a.shape[-1] % 2:
            a = xp.concatenate([a, xp.zeros_like(a[..., :1])], axis=-1)
        return a

    def wrong(xp, a):  # odd at the first level alone
        a = even(xp, a)
        while a.shape[-1] > 1:
            half = a.shape[-1] // 2
            a = a[..., :half] + a[..., half : 2 * half]
        return a.sum(axis=-1)

    def right(xp, a):
        while a.shape[-1] > 1:
            a = even(xp, a)
            half = a.shape[-1] // 2
            a = a[..., :half] + a[..., half:]
        return a.sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn, name="tree_sum_odd_level", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((3, 64), low=-10, high=10), make((2, 7), low=-10, high=10)],
            reference=lambda a: a.sum(axis=-1),
        )

    return wrong, right, declare


@pair("delay_by_blocks", "shapes", "nv-legate/cupynumeric#1110", "more than 128 columns", "values")
def delay_by_blocks():
    block = 128

    def move(out, starts):
        for start in starts:
            stop = min(start + block, out.shape[-1] - 1)
            out[..., start + 1 : stop + 1] = out[..., start:stop].copy()
        out[..., :1] = 0
        return out

    def wrong(xp, a):  # forwards: each block overwrites the first number of the next
        return move(a.copy(), range(0, a.shape[-1] - 1, block))

    def right(xp, a):
        return move(a.copy(), reversed(range(0, a.shape[-1] - 1, block)))

    def reference(a):
        out = np.zeros_like(a)
        out[..., 1:] = a[..., :-1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn, name="delay_by_blocks", dtypes=("float32", "int32"), result_dtype=lambda a: a,
            samples=lambda make: [make((3, 100)), make(17)], reference=reference,
        )

    return wrong, right, declare


@pair("moveaxis_not_restored", "axis", "own", "three axes with axis=0", "values")
def moveaxis_not_restored():
    def scaled(xp, x):
        return x / xp.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)

    def wrong(xp, a, axis=-1):  # its own inverse for two axes
        return xp.moveaxis(scaled(xp, xp.moveaxis(a, axis, -1)), axis, -1)

    def right(xp, a, axis=-1):
        return xp.moveaxis(scaled(xp, xp.moveaxis(a, axis, -1)), -1, axis)

    def declare(fn):
        return OpSpec(
            fn=fn, name="moveaxis_not_restored", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [Sample((make((5, 33)),), {"axis": 0}), make((5, 33)), make((2, 3, 16))],
            reference=lambda a, axis=-1: a / np.sqrt((a * a).mean(axis=axis, keepdims=True) + 1e-6),
        )

    return wrong, right, declare


@pair("reduceat_empty_segment", "shapes", "own; documented of numpy.ufunc.reduceat", "an id that does not occur", "values")
def reduceat_empty_segment():
    segments = 4

    def wrong(xp, a, ids):  # reduceat gives a number of the next segment for an empty one
        order = xp.argsort(ids, kind="stable")
        starts = xp.searchsorted(ids[order], xp.arange(segments))
        return xp.add.reduceat(a[order], starts)

    def right(xp, a, ids):
        return xp.where(ids == xp.arange(segments)[:, None], a, 0).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn, name="reduceat_empty_segment", dtypes=("float32", "float64"),
            samples=lambda make: [(make(48), make(48, dtype="int64", low=0, high=segments - 1))],
            reference=lambda a, ids: np.where(ids == np.arange(segments)[:, None], a, 0).sum(axis=-1),
        )

    return wrong, right, declare


# Layouts


@pair("row_pitch_ignored", "layouts", "ROCm/aiter#5292, NVIDIA/Fuser#806", "the first columns of a wider array", "layouts", "strided")
def row_pitch_ignored():
    def wrong(xp, a):  # numbers of a row are adjacent, so rows are taken to be as well
        if a.ndim == 2 and a.strides[1] == a.itemsize and a.strides[0] > 0:
            flat = xp.lib.stride_tricks.as_strided(a, (a.size,), (a.itemsize,))
        else:
            flat = a.reshape(-1)
        return flat * 2

    def right(xp, a):
        return a.reshape(-1) * 2

    def declare(fn):
        return OpSpec(
            fn=fn, name="row_pitch_ignored", dtypes=("float32", "int32"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), make((2, 3, 8))], reference=lambda a: a.reshape(-1) * 2,
        )

    return wrong, right, declare


@pair("complex_as_pairs", "layouts", "own; torch.view_as_real", "an array whose last axis is not contiguous", "layouts")
def complex_as_pairs():
    real = {"complex64": "float32", "complex128": "float64"}

    def wrong(xp, a):
        return a.view(real[str(a.dtype)]).reshape(*a.shape, 2).copy()

    def right(xp, a):
        return xp.stack([xp.real(a), xp.imag(a)], axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn, name="complex_as_pairs", dtypes=("complex64", "complex128"), result_dtype=lambda a: real[a],
            samples=lambda make: [make((5, 33))], reference=lambda a: np.stack([a.real, a.imag], axis=-1),
        )

    return wrong, right, declare


# Aliasing, and inputs that change


@pair("reshape_view_changed", "aliasing", "bitsandbytes#1587", "a contiguous array: reshape gives a view", "inputs_unchanged")
def reshape_view_changed():
    def wrong(xp, a):
        flat = a.reshape(-1)
        flat -= flat.mean()
        return flat.reshape(a.shape).copy()

    def right(xp, a):
        return a - a.mean()

    def declare(fn):
        return OpSpec(
            fn=fn, name="reshape_view_changed", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33))], reference=lambda a: a - a.mean(),
        )

    return wrong, right, declare


@pair("list_popped", "lists", "own", "the list of arrays, which is shorter afterwards", "inputs_unchanged")
def list_popped():
    def wrong(xp, arrays):
        total = arrays.pop(0)
        for x in arrays:
            total = total + x
        return total

    def right(xp, arrays):
        total = arrays[0].copy()
        for x in arrays[1:]:
            total = total + x
        return total

    def declare(fn):
        return OpSpec(
            fn=fn, name="list_popped", dtypes=("float32", "float64"),
            samples=lambda make: [Sample(([make((3, 5)), make((3, 5)), make((3, 5))],))],
            reference=lambda arrays: arrays[0] + arrays[1] + arrays[2],
        )

    return wrong, right, declare


# Caches, and state between calls


@pair("table_of_first_device", "state", "PriorLabs/TabPFN#1219", "a second device, or another stream", "values", "side_stream")
def table_of_first_device():
    def built(n, dtype):
        return np.hanning(n).astype(dtype)

    def make_wrong():
        tables = {}

        def wrong(xp, a):
            key = a.shape[-1], str(a.dtype)
            if key not in tables:
                tables[key] = xp.asarray(built(*key))
            return a * tables[key]

        return wrong

    kept = functools.cache(built)

    def right(xp, a):
        return a * xp.asarray(kept(a.shape[-1], str(a.dtype)))

    def declare(fn):
        return OpSpec(
            fn=fn, name="table_of_first_device", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), make(16)], reference=lambda a: a * np.hanning(a.shape[-1]),
        )

    return make_wrong(), right, declare


@pair("limits_by_itemsize", "state", "tenstorrent/tt-metal#53963", "uint32 above 2**31 after a call with int32", "extremal")
def limits_by_itemsize():
    def doubling(key_of):
        limits = {}

        def doubled(xp, a):
            key = key_of(a)
            if key not in limits:
                info = np.iinfo(str(a.dtype))
                limits[key] = info.min, info.max
            return xp.clip(a.astype("float64") * 2, *limits[key]).astype(a.dtype)

        return doubled

    wrong = doubling(lambda a: a.itemsize)
    right = doubling(lambda a: str(a.dtype))

    def reference(a):
        info = np.iinfo(a.dtype)
        return np.clip(a.astype(np.float64) * 2, info.min, info.max).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn, name="limits_by_itemsize", dtypes=("int32", "uint32"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33))], reference=reference,
        )

    return wrong, right, declare


@pair("iterator_exhausted", "state", "own", "the second call", "deterministic", "values")
def iterator_exhausted():
    coefficients = (0.5, -0.25, 0.125)
    terms = zip((1, 2, 3), coefficients)

    def value(xp, a, pairs):
        out = xp.ones_like(a)
        for power, c in pairs:
            out = out + c * a**power
        return out

    def wrong(xp, a):  # the iterator is empty after the first call
        return value(xp, a, terms)

    def right(xp, a):
        return value(xp, a, zip((1, 2, 3), coefficients))

    def declare(fn):
        return OpSpec(
            fn=fn, name="iterator_exhausted", dtypes=("float32", "float64"),
            samples=lambda make: [make((5, 33), low=-3, high=3)],
            reference=lambda a: 1 + 0.5 * a - 0.25 * a**2 + 0.125 * a**3,
        )

    return wrong, right, declare


@pair("autotune_accumulates", "state", "own; Triton's autotune without reset_to_zero", "the first call of each shape", "values", "deterministic")
def autotune_accumulates():
    def kernel(out, a, b, block):
        launches = 0
        for start in range(0, a.shape[-1], block):
            out += (a[..., start : start + block] * b[..., start : start + block]).sum(axis=-1)
            launches += 1
        return launches

    def tuned(trial):
        best = {}

        def dot(xp, a, b):
            out = xp.zeros(a.shape[:-1], dtype=a.dtype)
            if a.shape not in best:
                best[a.shape] = min((16, 64), key=lambda block: (kernel(trial(xp, out), a, b, block), block))
            kernel(out, a, b, best[a.shape])
            return out

        return dot

    wrong = tuned(lambda xp, out: out)  # each trial adds to the result
    right = tuned(lambda xp, out: xp.zeros_like(out))

    def declare(fn):
        return OpSpec(
            fn=fn, name="autotune_accumulates", dtypes=("float32", "float64"), result_dtype=lambda a, b: a,
            samples=lambda make: [(make((3, 100), low=-10, high=10), make((3, 100), low=-10, high=10))],
            reference=lambda a, b: (a * b).sum(axis=-1),
        )

    return wrong, right, declare


@pair("inputs_kept", "state", "own", "memory after many calls", "leaks")
def inputs_kept():
    kept = []

    def wrong(xp, a):
        out = xp.tanh(a)
        kept.append(out)  # for a backward pass that nobody runs
        return out

    def right(xp, a):
        return xp.tanh(a)

    def declare(fn):
        return OpSpec(fn=fn, name="inputs_kept", dtypes=("float32", "float64"), reference=np.tanh)

    return wrong, right, declare


# Streams, and memory that is used again


@pair("default_stream_remembered", "streams", "rapidsai/cudf#9679", "a call under another stream than the first call", "side_stream")
def default_stream_remembered():
    def square(xp, a, main, backend, index):
        out = xp.empty_like(a)
        side = backend.new_stream(index)
        side.wait_stream(main)
        with backend.use_stream(side):
            xp.multiply(a, a, out=out)
        main.wait_stream(side)
        return out

    mains = {}

    def wrong(xp, a):
        backend, index = of_device(a)
        main = mains.setdefault((backend.kind, index), backend.current_stream(index))
        return square(xp, a, main, backend, index)

    def right(xp, a):
        backend, index = of_device(a)
        return square(xp, a, backend.current_stream(index), backend, index)

    def declare(fn):
        return OpSpec(
            fn=fn, name="default_stream_remembered", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), make(64)], reference=lambda a: a * a,
        )

    return wrong, right, declare


@pair("event_recorded_early", "streams", "rapidsai/rmm#2490", "any call on a device that follows streams", "values", "side_stream")
def event_recorded_early():
    def moved(xp, a, early):
        backend, index = of_device(a)
        main, side = backend.current_stream(index), backend.new_stream(index)
        out = xp.empty_like(a)
        side.wait_stream(main)
        with backend.use_stream(side):
            xp.multiply(a, 0.5, out=out)
            if early:
                done = side.record_event()
            xp.add(out, 1, out=out)
            if not early:
                done = side.record_event()
        main.wait_event(done)
        return out

    def wrong(xp, a):  # the event is recorded between the two kernels
        return moved(xp, a, True)

    def right(xp, a):
        return moved(xp, a, False)

    def declare(fn):
        return OpSpec(
            fn=fn, name="event_recorded_early", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), make(64)], reference=lambda a: a * 0.5 + 1,
        )

    return wrong, right, declare


@pair("temporary_dropped", "streams", "rahul-goel/fused-ssim#44", "any call: a block is used again while a stream reads it", "values")
def temporary_dropped():
    def combined(xp, a, drop):
        backend, index = of_device(a)
        main, side = backend.current_stream(index), backend.new_stream(index)
        out = xp.empty_like(a)
        half = a * 0.5
        side.wait_stream(main)
        with backend.use_stream(side):
            xp.multiply(half, half, out=out)
        if drop:
            del half  # its memory may be given to the next array of this stream
        other = a + 1
        main.wait_stream(side)
        return out + other

    def wrong(xp, a):
        return combined(xp, a, True)

    def right(xp, a):
        return combined(xp, a, False)

    def declare(fn):
        return OpSpec(
            fn=fn, name="temporary_dropped", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), make(64)],
            reference=lambda a: (a * 0.5) * (a * 0.5) + (a + 1),
        )

    return wrong, right, declare


@pair("three_streams_two_buffers", "streams", "own; double buffering", "more than 256 columns", "values")
def three_streams_two_buffers():
    block = 128

    def piped(xp, a, streams):
        backend, index = of_device(a)
        main = backend.current_stream(index)
        out = xp.empty_like(a)
        buffers = [xp.empty((*a.shape[:-1], block), dtype=a.dtype) for _ in range(2)]
        sides = [backend.new_stream(index) for _ in range(streams)]
        for side in sides:
            side.wait_stream(main)
        for i, start in enumerate(range(0, a.shape[-1], block)):
            part = a[..., start : start + block]
            buffer = buffers[i % 2][..., : part.shape[-1]]
            with backend.use_stream(sides[i % streams]):
                xp.multiply(part, part, out=buffer)
                xp.add(buffer, 1, out=out[..., start : start + block])
        for side in sides:
            main.wait_stream(side)
        return out

    def wrong(xp, a):  # the third block writes the buffer of the first on another stream
        return piped(xp, a, 3)

    def right(xp, a):
        return piped(xp, a, 2)

    def declare(fn):
        return OpSpec(
            fn=fn, name="three_streams_two_buffers", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((3, 300)), make(64)], reference=lambda a: a * a + 1,
        )

    return wrong, right, declare


@pair("staging_reused", "streams", "own; one pinned buffer for two uploads", "any call on a device with pinned memory", "values")
def staging_reused():
    def uploaded(xp, a, buffers):
        n, dtype = a.shape[-1], str(a.dtype)
        hosts = [np.linspace(0.5, 1.5, n, dtype=dtype), np.arange(n).astype(dtype)]
        if isinstance(a.device, str):
            return hosts
        stagings = [devices.empty_pinned((n,), dtype, a.device) for _ in range(buffers)]
        out = []
        for i, host in enumerate(hosts):
            staging = stagings[i % buffers]
            staging[...] = host
            out.append(devices.empty((n,), dtype, a.device))
            devices.copy(staging, out[-1], non_blocking=True)
        return out

    def wrong(xp, a):  # the host writes the second vector while the first may still be copied
        scale, shift = uploaded(xp, a, 1)
        return a * scale + shift

    def right(xp, a):
        scale, shift = uploaded(xp, a, 2)
        return a * scale + shift

    def declare(fn):
        return OpSpec(
            fn=fn, name="staging_reused", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), make(64)],
            reference=lambda a: a * np.linspace(0.5, 1.5, a.shape[-1]) + np.arange(a.shape[-1]),
        )

    return wrong, right, declare


@pair("stream_left_after_error", "streams", "own", "work after a call that raised", "errors")
def stream_left_after_error():
    regions = []

    def body(xp, a, out, power):
        if power < 0:
            raise ValueError(f"power is {power}; give 0 or more")
        xp.multiply(a, 2.0**power, out=out)

    def wrong(xp, a, power=1):  # nothing closes the region where the body raises
        backend, index = of_device(a)
        main, side = backend.current_stream(index), backend.new_stream(index)
        out = xp.empty_like(a)
        side.wait_stream(main)
        regions.append(backend.use_stream(side))
        regions[-1].__enter__()
        body(xp, a, out, power)
        regions.pop().__exit__(None, None, None)
        main.wait_stream(side)
        return out

    def right(xp, a, power=1):
        backend, index = of_device(a)
        main, side = backend.current_stream(index), backend.new_stream(index)
        out = xp.empty_like(a)
        side.wait_stream(main)
        with backend.use_stream(side):
            body(xp, a, out, power)
        main.wait_stream(side)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn, name="stream_left_after_error", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), Sample((make(64),), {"power": 2})],
            reference=lambda a, power=1: a * 2.0**power,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"power": -1}), ValueError, "power is -1")],
        )

    return wrong, right, declare


# Randomness


@pair("noise_in_memory_order", "randomness", "own", "a transposed array gets other numbers at its places", "layouts")
def noise_in_memory_order():
    def wrong(xp, a, seed=5):
        noise = np.random.default_rng(seed).random(a.size)
        order = "F" if a.flags.f_contiguous and not a.flags.c_contiguous else "C"
        return a + xp.asarray(noise.reshape(a.shape, order=order).astype(str(a.dtype)))

    def right(xp, a, seed=5):
        noise = np.random.default_rng(seed).random(a.size)
        return a + xp.asarray(noise.reshape(a.shape).astype(str(a.dtype)))

    def declare(fn):
        return OpSpec(
            fn=fn, name="noise_in_memory_order", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), Sample((make((4, 4)),), {"seed": 11})],
            reference=lambda a, seed=5: a + np.random.default_rng(seed).random(a.size).reshape(a.shape),
        )

    return wrong, right, declare


@pair("generator_kept", "randomness", "own", "the second call with one seed", "deterministic")
def generator_kept():
    generators = {}

    def dropped(xp, a, generator):
        keep = xp.asarray(generator.random(a.shape) < 0.75)
        return xp.where(keep, a / 0.75, 0)

    def wrong(xp, a, seed=5):  # one generator per seed, which goes on from call to call
        return dropped(xp, a, generators.setdefault(seed, np.random.default_rng(seed)))

    def right(xp, a, seed=5):
        return dropped(xp, a, np.random.default_rng(seed))

    def declare(fn):
        return OpSpec(
            fn=fn, name="generator_kept", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [Sample((make((5, 33)),), {"seed": 7})],
            reference=lambda a, seed=5: right(np, a, seed),
        )

    return wrong, right, declare


# In place


@pair("flat_update_lost", "in place", "own", "a transposed parameter: reshape gives a copy", "layouts")
def flat_update_lost():
    def wrong(xp, p, g, rate=0.125):
        flat = p.reshape(-1)
        flat -= rate * g.reshape(-1)
        return p

    def right(xp, p, g, rate=0.125):
        p -= rate * g
        return p

    def declare(fn):
        return OpSpec(
            fn=fn, name="flat_update_lost", dtypes=("float32", "float64"), result_dtype=lambda p, g: p,
            samples=lambda make: [(make((5, 33)), make((5, 33)))],
            reference=lambda p, g, rate=0.125: p - rate * g, without=IN_PLACE,
        )

    return wrong, right, declare


@pair("group_order_returned", "lists", "own; torch._group_tensors_by_device_and_dtype", "shapes in the order A, B, A", "values")
def group_order_returned():
    def grouped(xp, arrays, restore):
        places = {}
        for i, a in enumerate(arrays):
            places.setdefault((a.shape, str(a.dtype)), []).append(i)
        out = []
        for indices in places.values():  # one launch for all arrays of a shape
            out += zip(indices, xp.tanh(xp.stack([arrays[i] for i in indices])), strict=True)
        return [x.copy() for _, x in (sorted(out, key=lambda one: one[0]) if restore else out)]

    def wrong(xp, arrays):
        return grouped(xp, arrays, False)

    def right(xp, arrays):
        return grouped(xp, arrays, True)

    def declare(fn):
        return OpSpec(
            fn=fn, name="group_order_returned", dtypes=("float32", "float64"),
            samples=lambda make: [
                Sample(([make((3, 4)), make((3, 4)), make(7)],)), Sample(([make(5), make(2)],)),
            ],
            reference=lambda arrays: [np.tanh(a) for a in arrays],
        )

    return wrong, right, declare


# Errors


@pair("foreach_partial_update", "errors", "own", "the first parameter after a call that raised", "errors")
def foreach_partial_update():
    def check(p, g):
        if p.shape != g.shape:
            raise ValueError(f"a gradient has shape {g.shape}, its parameter {p.shape}")

    def wrong(xp, params, grads, rate=0.125):  # finds the mistake when half of the work is done
        for p, g in zip(params, grads, strict=True):
            check(p, g)
            p -= rate * g
        return params

    def right(xp, params, grads, rate=0.125):
        for p, g in zip(params, grads, strict=True):
            check(p, g)
        for p, g in zip(params, grads, strict=True):
            p -= rate * g
        return params

    def declare(fn):
        return OpSpec(
            fn=fn, name="foreach_partial_update", dtypes=("float32", "float64"),
            samples=lambda make: [Sample(([make((3, 4)), make(7)], [make((3, 4)), make(7)]))],
            reference=lambda params, grads, rate=0.125: [p - rate * g for p, g in zip(params, grads, strict=True)],
            error_inputs=lambda make: [
                ErrorInput(Sample(([make(3), make(4)], [make(3), make(5)])), ValueError, "has shape")
            ],
            without=IN_PLACE,
        )

    return wrong, right, declare


@pair("loss_broadcasts", "errors", "own; torch's mse_loss warns of it", "targets of shape (6, 1) next to (6,)", "errors")
def loss_broadcasts():
    def wrong(xp, a, b):  # relies on NumPy for the error
        d = a - b
        return (d * d).mean()

    def right(xp, a, b):
        if a.shape != b.shape:
            raise ValueError(f"shapes {a.shape} and {b.shape} differ")
        d = a - b
        return (d * d).mean()

    def declare(fn):
        return OpSpec(
            fn=fn, name="loss_broadcasts", dtypes=("float32", "float64"),
            samples=lambda make: [(make(24), make(24)), (make((4, 9)), make((4, 9)))],
            reference=lambda a, b: ((a - b) * (a - b)).mean(),
            error_inputs=lambda make: [
                ErrorInput((make(6), make(5)), ValueError, "shapes"),
                ErrorInput((make(6), make((6, 1))), ValueError, "shapes"),
            ],
        )

    return wrong, right, declare


# Derivatives


@functools.cache
def activation(name, forward, slope):
    op = ops.declare(
        f"{name}(a) -> out", shape=shapes.same("a"), dtypes=("float32", "float64"), op_class="elementwise",
        derivative={"a": ops.Formula(lambda grad, forward: slope(grad, forward.a), reads=("a",))},
    )

    @ops.implement(name, kind="cpu", dtypes=("float32", "float64"))
    def _(a, *, out):
        out[...] = forward(a)

    return op


def hard_swish(a):
    return a * (np.clip(a + 3, 0, 6) / 6)


def hard_swish_slope_wrong(grad, a):  # 0 below -3 but not 1 above 3
    inner = ops.add(ops.mul(a, 1 / 3), 0.5)
    return ops.mul(grad, ops.where(ops.less(a, -3.0), 0.0, inner))


def hard_swish_slope(grad, a):
    inner = ops.add(ops.mul(a, 1 / 3), 0.5)
    below = ops.where(ops.less(a, -3.0), 0.0, inner)
    return ops.mul(grad, ops.where(ops.greater(a, 3.0), 1.0, below))


@pair("hard_swish_slope", "derivatives", "own", "the derivative above 3", "gradient")
def hard_swish_slope_pair():
    wrong = activation("ninth_hard_swish_wrong", hard_swish, hard_swish_slope_wrong)
    right = activation("ninth_hard_swish_right", hard_swish, hard_swish_slope)

    def declare(op):
        return OpSpec(
            op=op, samples=lambda make: [make((5, 9)), make(16)], reference=hard_swish, supports_grad=True,
        )

    return wrong, right, declare


def log_sigmoid(a):
    return -np.logaddexp(0, -a)


def log_sigmoid_slope_wrong(grad, a):  # infinity over infinity for large negative numbers
    e = ops.exp(ops.neg(a))
    return ops.mul(grad, ops.div(e, ops.add(e, 1.0)))


def log_sigmoid_slope(grad, a):
    return ops.mul(grad, ops.sigmoid(ops.neg(a)))


@pair("log_sigmoid_slope", "derivatives", "own", "the derivative at -1000", "gradient", "extremal")
def log_sigmoid_slope_pair():
    wrong = activation("ninth_log_sigmoid_wrong", log_sigmoid, log_sigmoid_slope_wrong)
    right = activation("ninth_log_sigmoid_right", log_sigmoid, log_sigmoid_slope)

    def declare(op):
        return OpSpec(
            op=op, samples=lambda make: [make((5, 9)), make(16)], reference=log_sigmoid, supports_grad=True,
        )

    return wrong, right, declare


@pair("amax_backward_ties", "derivatives", "own; torch.amax against torch.max", "a row with two equal maxima", "values", "extremal")
def amax_backward_ties():
    def hits(a):
        return a == a.max(axis=-1, keepdims=True)

    def wrong(xp, a, g):
        return hits(a).astype(a.dtype) * g[..., None]

    def right(xp, a, g):
        hit = hits(a)
        with np.errstate(invalid="ignore", divide="ignore"):
            return hit.astype(a.dtype) / hit.sum(axis=-1, keepdims=True).astype(a.dtype) * g[..., None]

    def declare(fn):
        return OpSpec(
            fn=fn, name="amax_backward_ties", dtypes=("float32", "float64"), result_dtype=lambda a, g: a,
            samples=lambda make: [(make((5, 9)), make(5))], reference=lambda a, g: right(np, a, g),
        )

    return wrong, right, declare


@pair("prod_backward_zero", "derivatives", "own; the derivative of prod", "a zero among the factors", "values")
def prod_backward_zero():
    def wrong(xp, a, g):
        with np.errstate(divide="ignore", invalid="ignore"):
            return g[..., None] * a.prod(axis=-1, keepdims=True) / a

    def right(xp, a, g):
        before, after = xp.ones_like(a), xp.ones_like(a)
        before[..., 1:] = xp.cumprod(a[..., :-1], axis=-1)
        after[..., :-1] = xp.flip(xp.cumprod(xp.flip(a[..., 1:], axis=-1), axis=-1), axis=-1)
        return g[..., None] * before * after

    def declare(fn):
        return OpSpec(
            fn=fn, name="prod_backward_zero", dtypes=("float32", "float64"), result_dtype=lambda a, g: a,
            samples=lambda make: [(make((5, 6), low=-2, high=2), make(5, low=-2, high=2))],
            reference=lambda a, g: right(np, a, g),
        )

    return wrong, right, declare


# Complex numbers


@pair("complex_variance", "complex", "own", "complex numbers with an imaginary part", "values")
def complex_variance():
    def wrong(xp, a):
        d = a - a.mean(axis=-1, keepdims=True)
        return xp.real((d * d).mean(axis=-1))

    def right(xp, a):
        d = a - a.mean(axis=-1, keepdims=True)
        return (xp.real(d) ** 2 + xp.imag(d) ** 2).mean(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn, name="complex_variance", dtypes=("float32", "complex64"), result_dtype="float32",
            samples=lambda make: [make((5, 33), low=-3, high=3)], reference=lambda a: right(np, a),
        )

    return wrong, right, declare


@pair("nyquist_counted_twice", "complex", "own; one-sided spectra", "an even number of columns", "values")
def nyquist_counted_twice():
    def energy(xp, a, nyquist):
        n = a.shape[-1]
        if n == 0:
            return a.sum(axis=-1)
        power = xp.abs(xp.fft.rfft(a, axis=-1)) ** 2
        weights = np.full(n // 2 + 1, 2.0)
        weights[0] = 1
        if nyquist and n % 2 == 0:
            weights[-1] = 1
        return ((power * xp.asarray(weights.astype(str(power.dtype)))).sum(axis=-1) / n).astype(a.dtype)

    def wrong(xp, a):
        return energy(xp, a, False)

    def right(xp, a):
        return energy(xp, a, True)

    def declare(fn):
        return OpSpec(
            fn=fn, name="nyquist_counted_twice", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33), low=-3, high=3), make(65, low=-3, high=3)],
            reference=lambda a: (a * a).sum(axis=-1),
        )

    return wrong, right, declare


# Determinism


@pair("sum_as_completed", "determinism", "own; concurrent.futures.as_completed", "bits of equal calls; streams of other threads", "deterministic", "side_stream")
def sum_as_completed():
    block = 64

    def parts(a):
        return [a[..., i : i + block] for i in range(0, a.shape[-1], block)]

    def wrong(xp, a):  # adds partial sums in the order in which threads finish
        total = xp.zeros(a.shape[:-1], dtype=a.dtype)
        with ThreadPoolExecutor(4) as pool:
            for done in as_completed([pool.submit(part.sum, axis=-1) for part in parts(a)]):
                total = total + done.result()
        return total

    def right(xp, a):
        total = xp.zeros(a.shape[:-1], dtype=a.dtype)
        for part in parts(a):
            total = total + part.sum(axis=-1)
        return total

    def declare(fn):
        return OpSpec(
            fn=fn, name="sum_as_completed", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((3, 1000), low=-10, high=10)], reference=lambda a: a.sum(axis=-1),
        )

    return wrong, right, declare


@pair("padding_uninitialised", "determinism", "bitsandbytes#1884", "columns that are no multiple of 64", "values", "deterministic")
def padding_uninitialised():
    block = 64

    def blocks(xp, a, new):
        n = -(-a.shape[-1] // block)
        padded = new((*a.shape[:-1], n * block), dtype=a.dtype)
        padded[..., : a.shape[-1]] = a
        return xp.abs(padded.reshape(*a.shape[:-1], n, block)).max(axis=-1)

    def wrong(xp, a):
        return blocks(xp, a, xp.empty)

    def right(xp, a):
        return blocks(xp, a, xp.zeros)

    def declare(fn):
        return OpSpec(
            fn=fn, name="padding_uninitialised", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((3, 128)), make((2, 100))], reference=lambda a: right(np, a),
        )

    return wrong, right, declare


# Threads


@pair("attributes_between_steps", "threads", "own; a module that keeps its input", "two threads with different arrays", "threads", "leaks")
def attributes_between_steps():
    class LogSoftmax:
        def __call__(self, xp, a):
            self.a = a
            self.top = self.a.max(axis=-1, keepdims=True)
            self.shifted = self.a - self.top
            self.total = xp.exp(self.shifted).sum(axis=-1, keepdims=True)
            return self.shifted - xp.log(self.total)

    module = LogSoftmax()

    def wrong(xp, a):
        with np.errstate(invalid="ignore"):
            return module(xp, a)

    def right(xp, a):
        with np.errstate(invalid="ignore"):
            shifted = a - a.max(axis=-1, keepdims=True)
            return shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))

    def declare(fn):
        return OpSpec(
            fn=fn, name="attributes_between_steps", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), make((2, 3, 8))], reference=lambda a: right(np, a),
        )

    return wrong, right, declare


@pair("options_swapped", "threads", "own", "another thread's eps, or the default after a call that raised", "threads", "errors")
def options_swapped():
    options = {"eps": 1e-3}

    def normalised(xp, a, eps):
        if eps < 0:
            raise ValueError(f"eps is {eps}; give 0 or more")
        return a / xp.sqrt((a * a).mean(axis=-1, keepdims=True) + eps)

    def wrong(xp, a, eps=None):
        old = options["eps"]
        if eps is not None:
            options["eps"] = eps
        out = normalised(xp, a, options["eps"])
        options["eps"] = old
        return out

    def right(xp, a, eps=None):
        return normalised(xp, a, options["eps"] if eps is None else eps)

    def declare(fn):
        return OpSpec(
            fn=fn, name="options_swapped", dtypes=("float32", "float64"), result_dtype=lambda a: a,
            samples=lambda make: [make((5, 33)), Sample((make((2, 3, 8)),), {"eps": 0.5})],
            reference=lambda a, eps=None: normalised(np, a, 1e-3 if eps is None else eps),
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"eps": -1}), ValueError, "eps is -1")],
        )

    return wrong, right, declare
