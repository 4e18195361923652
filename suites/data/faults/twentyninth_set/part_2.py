"""Kernels and layers: attention, routing, quantisation, sampling, optimizers, pooling: faults with their twins."""

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
    "sink_attention",
    "keys that are both sinks and in the window are attended twice while the sequence is short",
    "decoding with attention sinks: the kept first keys and the last keys are joined without removing their overlap",
    "one head, keys [[1], [0]], values [[1], [0]], query [1], sinks=1, window=2: 0.8446, where 0.7311 is right",
)
def sink_attention():
    """One query for each head on the first `sinks` keys and the last `window` keys; each key counts once."""

    def check(sinks, window):
        if sinks < 0 or window < 1:
            raise ValueError(f"sinks is {sinks}, window is {window}; give 0 or more, and 1 or more")

    def attend(xp, query, keys, values):
        if keys.shape[1] == 0:
            return xp.zeros((keys.shape[0], values.shape[2]), dtype=query.dtype)
        scores = (keys.astype("float64") * query.astype("float64")[:, None, :]).sum(axis=-1)
        scores = scores / math.sqrt(query.shape[-1])
        weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return (weights[:, :, None] * values.astype("float64")).sum(axis=1).astype(query.dtype)

    def pick(xp, a, sinks, start):
        return xp.concatenate([a[:, :sinks], a[:, start:]], axis=1)

    def wrong(xp, query, keys, values, sinks=4, window=16):
        check(sinks, window)
        start = max(keys.shape[1] - window, 0)
        return attend(xp, query, pick(xp, keys, sinks, start), pick(xp, values, sinks, start))

    def right(xp, query, keys, values, sinks=4, window=16):
        check(sinks, window)
        start = max(keys.shape[1] - window, sinks)
        return attend(xp, query, pick(xp, keys, sinks, start), pick(xp, values, sinks, start))

    def reference(query, keys, values, sinks=4, window=16):
        check(sinks, window)
        out = np.zeros((keys.shape[0], values.shape[2]))
        length = keys.shape[1]
        seen = [i for i in range(length) if i < sinks or i >= length - window]
        for head in range(keys.shape[0]):
            if seen:
                scores = keys[head, seen] @ query[head] / np.sqrt(query.shape[1])
                weights = np.exp(scores - scores.max())
                out[head] = weights @ values[head, seen] / weights.sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sink_attention",
            dtypes=("float16", "float32"),
            result_dtype=lambda query, keys, values: query,
            samples=lambda make: [
                (make((2, 8)), make((2, 50, 8)), make((2, 50, 8))),
                Sample((make((3, 4)), make((3, 24, 4)), make((3, 24, 5))), {"sinks": 2, "window": 7}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make((1, 4)), make((1, 9, 4)), make((1, 9, 4))), {"window": 0}), ValueError, "window"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "expert_slots",
    "third choices are queued behind the second choices only, not behind the first ones too",
    "GShard routing written for two choices and then run with more: the offset is replaced instead of added up",
    "one expert, capacity 8, choices [[0, 0, 0]]: slots [0, 1, 1] where the third is 2",
)
def expert_slots():
    """Slot expert * capacity + place of each choice, -1 if full; all first choices come before the second ones."""

    def check(choices, capacity):
        if choices.ndim != 2:
            raise ValueError(f"choices has {choices.ndim} dimensions; give tokens by choices")
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; give 1 or more")

    def route(xp, choices, experts, capacity, queued):
        check(choices, capacity)
        columns = []
        before = xp.zeros(experts, dtype="int64")
        for column in range(choices.shape[1]):
            expert = choices[:, column].astype("int64")
            chosen = (expert[:, None] == xp.arange(experts)[None, :]).astype("int64")
            place = ((xp.cumsum(chosen, axis=0) - 1 + before) * chosen).sum(axis=1)
            kept = (chosen.sum(axis=1) > 0) & (place < capacity)
            columns.append(xp.where(kept, expert * capacity + place, -1))
            before = queued(before, chosen.sum(axis=0))
        if not columns:
            return xp.zeros(choices.shape, dtype="int64")
        return xp.stack(columns, axis=1)

    def wrong(xp, choices, experts=8, capacity=4):
        return route(xp, choices, experts, capacity, lambda before, taken: taken)

    def right(xp, choices, experts=8, capacity=4):
        return route(xp, choices, experts, capacity, lambda before, taken: before + taken)

    def reference(choices, experts=8, capacity=4):
        check(choices, capacity)
        out = np.full(choices.shape, -1, dtype="int64")
        used = [0] * experts
        for column in range(choices.shape[1]):
            for token in range(choices.shape[0]):
                expert = int(choices[token, column])
                if 0 <= expert < experts:
                    if used[expert] < capacity:
                        out[token, column] = expert * capacity + used[expert]
                    used[expert] += 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="expert_slots",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make((20, 2), low=0, high=7),
                Sample((make((33, 1), low=0, high=3),), {"experts": 4, "capacity": 6}),
                Sample((make((15, 2), low=0, high=5),), {"experts": 6, "capacity": 10}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(make(6, low=0, high=7), ValueError, "dimensions"),
                ErrorInput(Sample((make((6, 2), low=0, high=7),), {"capacity": 0}), ValueError, "capacity is 0"),
            ],
        )

    return wrong, right, declare


@pair(
    "microscaled_fp4",
    "the exponent of a block whose largest number is just below a power of two is one too large",
    "OCP MX formats: floor(log2(x)) in the dtype of x rounds up to the next integer; the exponent bits do not",
    "float16 [63.97, 3.0]: log2 is 6.0, the first number becomes 64 where it saturates to 48",
)
def microscaled_fp4():
    """Numbers rounded to E2M1 with one power of two for each block along the last axis; inf and NaN spoil a block."""

    def check(a, block):
        if a.ndim == 0:
            raise ValueError("a has no dimensions; give 1 or more")
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")

    def rounded(xp, a, exponent, block):
        scale = xp.exp2(exponent.astype("float64") - 2)
        numbers = a.astype("float64") / scale
        size = xp.abs(numbers)
        step = xp.where(size < 2, 0.5, xp.where(size < 4, 1.0, 2.0))
        return xp.copysign(xp.minimum(xp.rint(size / step) * step, 6.0), numbers) * scale

    def quantised(xp, a, block, exponent_of):
        check(a, block)
        parts = []
        for start in range(0, a.shape[-1], block):
            part = a[..., start : start + block]
            top = xp.abs(part).max(axis=-1, keepdims=True)
            usable = xp.isfinite(top)
            safe = xp.where(usable & (top > 0), top, xp.ones_like(top))
            part = xp.where(usable, part, xp.zeros_like(part))
            parts.append(xp.where(usable, rounded(xp, part, exponent_of(safe), block), math.nan))
        return xp.concatenate(parts, axis=-1).astype(a.dtype) if parts else a.copy()

    def wrong(xp, a, block=32):
        return quantised(xp, a, block, lambda top: xp.floor(xp.log2(top)))

    def right(xp, a, block=32):
        return quantised(xp, a, block, lambda top: xp.frexp(top)[1] - 1)

    def reference(a, block=32):
        check(a, block)
        grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        out = np.zeros(a.shape)
        for start in range(0, a.shape[-1], block):
            for i in np.ndindex(a.shape[:-1]):
                part = a[i][start : start + block]
                top = np.abs(part).max()
                if not np.isfinite(top):
                    out[i][start : start + block] = np.nan
                elif top > 0:
                    scale = 2.0 ** (math.frexp(top)[1] - 3)
                    away = np.abs(np.minimum(np.abs(part) / scale, 6)[:, None] - grid)
                    near = away.argmin(axis=-1)
                    tied = (near % 2 == 1) & (near < 7)
                    tied[tied] = away[tied, near[tied]] == away[tied, near[tied] + 1]
                    out[i][start : start + block] = np.sign(part) * grid[near + tied] * scale
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="microscaled_fp4",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make((3, 96)),
                make((4, 70), low=-64, high=64),
                Sample((make((2, 3, 40)),), {"block": 16}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"block": 0}), ValueError, "block is 0")],
        )

    return wrong, right, declare


@pair(
    "token_by_number",
    "a number of exactly 0 draws the first token even if its weight is 0 or filtered out",
    "inverse sampling with searchsorted on the side 'left': a uniform generator on [0, 1) does give 0",
    "weights [0, 1, 1], number 0: token 0, which cannot occur, where token 1 is right",
)
def token_by_number():
    """The token whose share [start, end) of the weights holds the number; weights below min_p of the largest go."""

    def check(weights, numbers, min_p):
        if weights.shape[:-1] != numbers.shape or weights.ndim == 0 or weights.shape[-1] == 0:
            raise ValueError(f"weights {weights.shape} and numbers {numbers.shape}; give one number for each row")
        if not 0 <= min_p <= 1:
            raise ValueError(f"min_p is {min_p}; give 0 to 1")

    def drawn(xp, weights, numbers, min_p, passed):
        check(weights, numbers, min_p)
        weights = weights.astype("float64")
        kept = (weights > 0) & (weights >= min_p * weights.max(axis=-1, keepdims=True))
        ends = xp.cumsum(xp.where(kept, weights, 0.0), axis=-1)
        target = numbers.astype("float64") * ends[..., -1]
        token = passed(ends, target[..., None]).astype("int64").sum(axis=-1)
        count = weights.shape[-1]
        last = xp.max(xp.where(kept, xp.arange(count), -1), axis=-1)
        return xp.minimum(token, last)

    def wrong(xp, weights, numbers, min_p=0.0):
        return drawn(xp, weights, numbers, min_p, lambda ends, target: ends < target)

    def right(xp, weights, numbers, min_p=0.0):
        return drawn(xp, weights, numbers, min_p, lambda ends, target: ends <= target)

    def reference(weights, numbers, min_p=0.0):
        check(weights, numbers, min_p)
        out = np.full(numbers.shape, -1, dtype="int64")
        for i in np.ndindex(numbers.shape):
            row = weights[i]
            tokens = [t for t in range(len(row)) if row[t] > 0 and row[t] >= min_p * row.max()]
            total = 0.0
            for t in tokens:
                total += row[t]
            end = 0.0
            for t in tokens:
                out[i] = t
                end += row[t]
                if numbers[i] * total < end:
                    break
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="token_by_number",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                (make((9, 40), low=0, high=1), make(9, low=0, high=1)),
                Sample((make((2, 5, 17), low=0, high=1), make((2, 5), low=0, high=1)), {"min_p": 0.4}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((3, 4), low=0, high=1), make(2, low=0, high=1)), ValueError, "one number for each row")
            ],
        )

    return wrong, right, declare


@pair(
    "lamb_step",
    "parameters that are all zero get a trust ratio of 0 and never move",
    "LAMB: the ratio of norms is 1 if either norm is 0; here only the norm of the update is looked at",
    "parameters [0, 0], gradients [1, 2]: they stay [0, 0], where the step is about lr",
)
def lamb_step():
    """The parameters after one step of LAMB, from the gradient and the two kept moments before the step."""

    def check(step):
        if step < 1:
            raise ValueError(f"step is {step}; give 1 or more")

    def move(xp, p, g, m, v, step, decay):
        check(step)
        p, g = p.astype("float64"), g.astype("float64")
        m = 0.9 * m.astype("float64") + 0.1 * g
        v = 0.99 * v.astype("float64") + 0.01 * g * g
        update = m / (1 - 0.9**step) / (xp.sqrt(v / (1 - 0.99**step)) + 1e-6) + decay * p
        return update, xp.sqrt((p * p).sum()), xp.sqrt((update * update).sum())

    def wrong(xp, p, g, m, v, step=1, lr=0.01, decay=0.0):
        update, of_p, of_update = move(xp, p, g, m, v, step, decay)
        ratio = xp.where(of_update != 0, of_p / xp.where(of_update != 0, of_update, 1.0), 1.0)
        return (p.astype("float64") - lr * ratio * update).astype(p.dtype)

    def right(xp, p, g, m, v, step=1, lr=0.01, decay=0.0):
        update, of_p, of_update = move(xp, p, g, m, v, step, decay)
        usable = (of_update != 0) & (of_p != 0)
        ratio = xp.where(usable, of_p / xp.where(usable, of_update, 1.0), 1.0)
        return (p.astype("float64") - lr * ratio * update).astype(p.dtype)

    def reference(p, g, m, v, step=1, lr=0.01, decay=0.0):
        check(step)
        mean = (0.9 * m + 0.1 * g) / (1 - 0.9**step)
        square = (0.99 * v + 0.01 * g**2) / (1 - 0.99**step)
        update = mean / (np.sqrt(square) + 1e-6) + decay * p
        norms = np.sqrt(np.sum(p**2)), np.sqrt(np.sum(update**2))
        ratio = norms[0] / norms[1] if norms[0] != 0 and norms[1] != 0 else 1.0
        return p - lr * ratio * update

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lamb_step",
            dtypes=("float32", "float64"),
            result_dtype=lambda p, g, m, v: p,
            samples=lambda make: [
                (make(65), make(65), make(65, low=-1, high=1), make(65, low=0, high=2)),
                Sample(
                    (make((7, 9)), make((7, 9)), make((7, 9), low=-1, high=1), make((7, 9), low=0, high=2)),
                    {"step": 12, "lr": 0.1, "decay": 0.05},
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4), make(4), make(4), make(4, low=0, high=1)), {"step": 0}), ValueError, "step is 0"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "conv_same",
    "with a stride the left padding is that of stride 1, so all windows are shifted unless stride divides length - 1",
    "padding 'SAME' of TensorFlow in ports: the total depends on the length and the stride, not on the kernel alone",
    "[0, 1, 2, 3], kernel [1, 1, 1], stride 2: [1, 6], where padding only on the right gives [3, 5]",
)
def conv_same():
    """Convolution of (channels, length) with (out, channels / groups, kernel); ceil(length / stride) results."""

    def check(x, kernel, stride, dilation, groups):
        if stride < 1 or dilation < 1 or groups < 1:
            raise ValueError(f"stride {stride}, dilation {dilation}, groups {groups}; give 1 or more")
        if x.shape[0] != kernel.shape[1] * groups or kernel.shape[0] % groups:
            raise ValueError(f"x {x.shape} and kernel {kernel.shape} do not fit {groups} groups")

    def convolved(xp, x, kernel, stride, dilation, groups, left):
        length, taps = x.shape[1], kernel.shape[2]
        count = -(-length // stride)
        need = (count - 1) * stride + (taps - 1) * dilation + 1
        padded = xp.zeros((x.shape[0], max(left + length, need)), dtype="float64")
        padded[:, left : left + length] = x.astype("float64")
        each, made = kernel.shape[1], kernel.shape[0] // groups
        rows = []
        for group in range(groups):
            total = xp.zeros((made, count), dtype="float64")
            part = padded[group * each : (group + 1) * each]
            for tap in range(taps):
                start = tap * dilation
                at = part[:, start : start + (count - 1) * stride + 1 : stride]
                total = total + kernel[group * made : (group + 1) * made, :, tap].astype("float64") @ at
            rows.append(total)
        return xp.concatenate(rows, axis=0).astype(x.dtype)

    def wrong(xp, x, kernel, stride=1, dilation=1, groups=1):
        check(x, kernel, stride, dilation, groups)
        if x.shape[1] == 0:
            return xp.zeros((kernel.shape[0], 0), dtype=x.dtype)
        return convolved(xp, x, kernel, stride, dilation, groups, (kernel.shape[2] - 1) * dilation // 2)

    def right(xp, x, kernel, stride=1, dilation=1, groups=1):
        check(x, kernel, stride, dilation, groups)
        length = x.shape[1]
        if length == 0:
            return xp.zeros((kernel.shape[0], 0), dtype=x.dtype)
        reach = (-(-length // stride) - 1) * stride + (kernel.shape[2] - 1) * dilation + 1
        return convolved(xp, x, kernel, stride, dilation, groups, max(reach - length, 0) // 2)

    def reference(x, kernel, stride=1, dilation=1, groups=1):
        check(x, kernel, stride, dilation, groups)
        length, (made, each, taps) = x.shape[1], kernel.shape
        count = math.ceil(length / stride)
        left = max((count - 1) * stride + (taps - 1) * dilation + 1 - length, 0) // 2
        padded = np.pad(x, ((0, 0), (left, stride + taps * dilation)))
        out = np.zeros((made, count))
        for o in range(made):
            first = o // (made // groups) * each
            for i in range(count):
                for tap in range(taps):
                    out[o, i] += kernel[o, :, tap] @ padded[first : first + each, i * stride + tap * dilation]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="conv_same",
            dtypes=("float32", "float64"),
            result_dtype=lambda x, kernel: x,
            samples=lambda make: [
                (make((3, 32)), make((5, 3, 3))),
                Sample((make((4, 33)), make((6, 2, 5))), {"stride": 2, "groups": 2}),
                Sample((make((2, 21)), make((3, 2, 4))), {"dilation": 3}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 9)), make((2, 4, 3))), {"stride": 0}), ValueError, "stride 0"),
                ErrorInput((make((4, 9)), make((2, 3, 3))), ValueError, "do not fit"),
            ],
        )

    return wrong, right, declare


@pair(
    "max_pool",
    "when rounding up, a last window that starts in the padding on the right is kept and gives -inf",
    "torch.nn.MaxPool1d with ceil_mode: windows that start in the right padding are ignored",
    "[1, 2, 3], size 2, stride 2, pad 1, ceil: [1, 3, -inf], where [1, 3] is right",
)
def max_pool():
    """The largest number of each window along the last axis; `ceil` lets a last window reach past the padding."""

    def check(a, size, stride, pad):
        if size < 1 or stride < 1 or not 0 <= 2 * pad <= size:
            raise ValueError(f"size {size}, stride {stride}, pad {pad}; pad at most half a window")
        if a.ndim == 0 or a.shape[-1] == 0 or a.shape[-1] + 2 * pad < size:
            raise ValueError(f"a {a.shape} is shorter than a window of {size}")

    def pooled(xp, a, size, stride, pad, count):
        length = a.shape[-1]
        at = xp.arange(count)[:, None] * stride - pad + xp.arange(size)[None, :]
        inside = (at >= 0) & (at < length)
        numbers = a[..., xp.clip(at, 0, length - 1)]
        return xp.where(inside, numbers, xp.full_like(numbers, -math.inf)).max(axis=-1)

    def wrong(xp, a, size=3, stride=2, pad=1, ceil=False):
        check(a, size, stride, pad)
        room = a.shape[-1] + 2 * pad - size
        count = (room + stride - 1 if ceil else room) // stride + 1
        return pooled(xp, a, size, stride, pad, count)

    def right(xp, a, size=3, stride=2, pad=1, ceil=False):
        check(a, size, stride, pad)
        room = a.shape[-1] + 2 * pad - size
        count = (room + stride - 1 if ceil else room) // stride + 1
        if (count - 1) * stride >= a.shape[-1] + pad:
            count -= 1
        return pooled(xp, a, size, stride, pad, count)

    def reference(a, size=3, stride=2, pad=1, ceil=False):
        check(a, size, stride, pad)
        length = a.shape[-1]
        windows = []
        start = -pad
        while start < length and (start + size <= length + pad or ceil):
            windows.append(a[..., max(start, 0) : start + size].max(axis=-1))
            if start + size >= length + pad:
                break
            start += stride
        return np.stack(windows, axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="max_pool",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((3, 31)),
                Sample((make((2, 4, 20)),), {"ceil": True}),
                Sample((make((5, 30)),), {"size": 3, "stride": 3, "pad": 1, "ceil": True}),
                Sample((make(24),), {"size": 4, "stride": 4, "pad": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"pad": 2}), ValueError, "half a window")],
        )

    return wrong, right, declare


@pair(
    "resize_linear",
    "the kept places and weights are those of the first call with these lengths, whatever `corners` says",
    "a cache of resize tables keyed by input and output length, without the option that moves the sampling points",
    "[0, 1] to 4 numbers, then with corners=True: again [0, 0.25, 0.75, 1], where [0, 0.333, 0.667, 1] is right",
)
def resize_linear():
    """Linear interpolation of the last axis to `size` numbers, by centres or, with `corners`, from end to end."""

    def check(a, size):
        if a.ndim == 0 or a.shape[-1] == 0 or size < 1:
            raise ValueError(f"a {a.shape}, size {size}; give 1 or more numbers")

    def table(length, size, corners):
        index = np.arange(size, dtype="float64")
        centres = np.maximum((index + 0.5) * length / size - 0.5, 0)
        at = index * (length - 1) / max(size - 1, 1) if corners else centres
        low = np.minimum(np.floor(at).astype("int64"), length - 1)
        return low, np.minimum(low + 1, length - 1), at - low

    def resized(xp, a, tables):
        low, high, share = (xp.asarray(part) for part in tables)
        wide = a.astype("float64")
        return (wide[..., low] * (1 - share) + wide[..., high] * share).astype(a.dtype)

    kept_wrong: dict[Any, Any] = {}
    kept_right: dict[Any, Any] = {}

    def wrong(xp, a, size=8, corners=False):
        check(a, size)
        key = a.shape[-1], size
        if key not in kept_wrong:
            kept_wrong[key] = table(a.shape[-1], size, corners)
        return resized(xp, a, kept_wrong[key])

    def right(xp, a, size=8, corners=False):
        check(a, size)
        key = a.shape[-1], size, bool(corners)
        if key not in kept_right:
            kept_right[key] = table(a.shape[-1], size, corners)
        return resized(xp, a, kept_right[key])

    def reference(a, size=8, corners=False):
        check(a, size)
        length = a.shape[-1]
        out = np.zeros((*a.shape[:-1], size))
        for i in range(size):
            at = i * (length - 1) / max(size - 1, 1) if corners else max((i + 0.5) * length / size - 0.5, 0)
            low = min(int(at), length - 1)
            out[..., i] = a[..., low] * (1 - (at - low)) + a[..., min(low + 1, length - 1)] * (at - low)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="resize_linear",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 20)),
                Sample((make((2, 12)),), {"size": 31, "corners": True}),
                Sample((make((2, 3, 16)),), {"size": 5}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"size": 0}), ValueError, "size 0")],
        )

    return wrong, right, declare


@pair(
    "segmented_scan",
    "a block without a start passes on only its own sum, so a segment over three blocks loses the first",
    "prefix sums across blocks: the carry of a block without a flag must include the carry that it received",
    "96 ones in blocks of 32 with one start at 0: the last sum is 64, where 96 is right",
)
def segmented_scan():
    """Running sums that begin again wherever `starts` is true; scanned in blocks with a carry between them."""

    def check(a, starts, block):
        if a.ndim != 1 or a.shape != starts.shape:
            raise ValueError(f"a {a.shape} and starts {starts.shape}; give two of one length")
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")

    def scanned(xp, a, starts, block, next_carry):
        check(a, starts, block)
        length = a.shape[0]
        if length == 0:
            return xp.zeros(0, dtype=a.dtype)
        blocks = -(-length // block)
        sums = xp.zeros(blocks * block, dtype="float64")
        closed = xp.zeros(blocks * block, dtype="bool")
        sums[:length] = a.astype("float64")
        closed[:length] = starts
        sums, closed = sums.reshape(blocks, block), closed.reshape(blocks, block)
        distance = 1
        while distance < block:
            before = xp.concatenate([xp.zeros((blocks, distance)), sums[:, :-distance]], axis=1)
            flag = xp.concatenate([xp.zeros((blocks, distance), dtype="bool"), closed[:, :-distance]], axis=1)
            sums = xp.where(closed, sums, sums + before)
            closed = closed | flag
            distance *= 2
        carry = xp.zeros((), dtype="float64")
        rows = []
        for i in range(blocks):
            rows.append(xp.where(closed[i], sums[i], sums[i] + carry))
            carry = next_carry(rows[i][-1], sums[i, -1])
        return xp.concatenate(rows)[:length].astype(a.dtype)

    def wrong(xp, a, starts, block=32):
        return scanned(xp, a, starts, block, lambda whole, own: own)

    def right(xp, a, starts, block=32):
        return scanned(xp, a, starts, block, lambda whole, own: whole)

    def reference(a, starts, block=32):
        check(a, starts, block)
        out = np.zeros(a.shape)
        total = 0.0
        for i in range(len(a)):
            total = a[i] if starts[i] else total + a[i]
            out[i] = total
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="segmented_scan",
            dtypes=("float16", "float32"),
            result_dtype=lambda a, starts: a,
            samples=lambda make: [
                (make(100), make(100, dtype="bool")),
                (make(256), make(256, dtype="bool")),
                Sample((make(45), make(45, dtype="bool")), {"block": 16}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(4), make(3, dtype="bool")), ValueError, "one length")],
        )

    return wrong, right, declare


@pair(
    "transposition_sort",
    "rows of odd length get one round too few, so a smallest number at the end does not reach the front",
    "odd-even transposition: n rounds for n numbers; pairs of rounds counted as n // 2 leave one out if n is odd",
    "[2, 3, 1]: [2, 1, 3], where [1, 2, 3] is right",
)
def transposition_sort():
    """Rows sorted by odd-even transposition, NaN last."""

    def exchange(xp, a, first):
        last = first + (a.shape[-1] - first) // 2 * 2
        left, right = a[..., first:last:2], a[..., first + 1 : last : 2]
        swap = (left > right) | (xp.isnan(left) & ~xp.isnan(right))
        low, high = xp.where(swap, right, left), xp.where(swap, left, right)
        a[..., first:last:2] = low
        a[..., first + 1 : last : 2] = high

    def check(a):
        if a.ndim == 0:
            raise ValueError("a has no dimensions; give 1 or more")

    def wrong(xp, a):
        check(a)
        a = a.copy()
        for _ in range(a.shape[-1] // 2):
            exchange(xp, a, 0)
            exchange(xp, a, 1)
        return a

    def right(xp, a):
        check(a)
        a = a.copy()
        for _ in range((a.shape[-1] + 1) // 2):
            exchange(xp, a, 0)
            exchange(xp, a, 1)
        return a

    def reference(a):
        check(a)
        return np.sort(a, axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="transposition_sort",
            dtypes=("float16", "float32", "int32"),
            samples=lambda make: [make(64), make((2, 101)), make((3, 4, 16))],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make(()), ValueError, "no dimensions")],
        )

    return wrong, right, declare


@pair(
    "ctc_loss",
    "without labels the path of blanks is counted twice, so the loss is too small by log(2)",
    "CTC: the last label's state is at 2 * count - 1, which for no labels is -1, the last blank again",
    "logits [[0, 0]], no labels: 0.0, where log(2) is right",
)
def ctc_loss():
    """-log of the probability of the labels by CTC, from logits (frames, classes); there may be no labels."""

    def check(logits, labels):
        if logits.ndim != 2 or labels.ndim != 1 or logits.shape[0] == 0:
            raise ValueError(f"logits {logits.shape} and labels {labels.shape}; give frames by classes, and labels")

    def paths(xp, logits, labels, blank):
        check(logits, labels)
        wide = logits.astype("float64")
        top = wide.max(axis=1, keepdims=True)
        scores = wide - top - xp.log(xp.exp(wide - top).sum(axis=1, keepdims=True))
        states = xp.full(2 * labels.shape[0] + 1, blank, dtype="int64")
        states[1::2] = labels
        low = xp.full(2, -math.inf)
        skips = xp.concatenate([xp.zeros(2, dtype="bool"), (states[2:] != blank) & (states[2:] != states[:-2])])
        skips = skips[: states.shape[0]]
        path = xp.full(states.shape, -math.inf)
        path[:2] = scores[0, states[:2]]
        for frame in range(1, logits.shape[0]):
            stepped = xp.concatenate([low[:1], path[:-1]])
            skipped = xp.concatenate([low, path])[: states.shape[0]]
            path = xp.logaddexp(xp.logaddexp(path, stepped), xp.where(skips, skipped, -math.inf))
            path = xp.where(path == -math.inf, path, path + scores[frame, states])
        return path

    def wrong(xp, logits, labels, blank=0):
        path = paths(xp, logits, labels, blank)
        count = labels.shape[0]
        return (-xp.logaddexp(path[2 * count], path[2 * count - 1])).astype(logits.dtype)

    def right(xp, logits, labels, blank=0):
        path = paths(xp, logits, labels, blank)
        count = labels.shape[0]
        if count == 0:
            return (-path[0]).astype(logits.dtype)
        return (-xp.logaddexp(path[2 * count], path[2 * count - 1])).astype(logits.dtype)

    def reference(logits, labels, blank=0):
        check(logits, labels)
        top = logits.max(axis=1, keepdims=True)
        scores = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
        states = [blank]
        for label in labels:
            states += [int(label), blank]
        path = {0: scores[0, blank]}
        if len(states) > 1:
            path[1] = scores[0, states[1]]
        for frame in range(1, len(logits)):
            reached = {}
            for i, state in enumerate(states):
                places = [i, i - 1]
                if state != blank and i >= 2 and state != states[i - 2]:
                    places.append(i - 2)
                found = [path[k] for k in places if path.get(k, -math.inf) != -math.inf]
                if found:
                    reached[i] = np.logaddexp.reduce(found) + scores[frame, state]
            path = reached
        ends = [path[k] for k in {len(states) - 1, len(states) - 2} if k in path]
        return np.asarray(-np.logaddexp.reduce(ends) if ends else math.inf)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ctc_loss",
            dtypes=("float32", "float64"),
            result_dtype=lambda logits, labels: logits,
            samples=lambda make: [
                (make((20, 7)), make(5, dtype="int64", low=1, high=6)),
                (make((9, 3)), make(4, dtype="int64", low=1, high=2)),
                Sample((make((12, 5)), make(3, dtype="int64", low=0, high=3)), {"blank": 4}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(6), make(2, dtype="int64", low=1, high=2)), ValueError, "frames by classes")
            ],
        )

    return wrong, right, declare


@pair(
    "scatter_add_flat",
    "the sums of an array in another memory order go to a copy and are lost",
    "astype keeps the memory order of its input, so that reshape(-1) of a transposed array is no longer a view",
    "numpy.zeros((2, 3)).T, index [0], values [1]: all zeros, where the first is 1",
)
def scatter_add_flat():
    """`a` with `values` added at flat positions in C order; positions may occur more than once."""

    def check(index, values):
        if index.ndim != 1 or index.shape != values.shape:
            raise ValueError(f"index {index.shape} and values {values.shape}; give two of one length")

    def wrong(xp, a, index, values):
        check(index, values)
        total = a.astype("float64")
        xp.add.at(total.reshape(-1), index, values.astype("float64"))
        return total.astype(a.dtype)

    def right(xp, a, index, values):
        check(index, values)
        flat = a.astype("float64").reshape(-1)
        xp.add.at(flat, index, values.astype("float64"))
        return flat.reshape(a.shape).astype(a.dtype)

    def reference(a, index, values):
        check(index, values)
        out = a.flatten(order="C")
        for place, number in zip(index, values, strict=True):
            out[place] += number
        return out.reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="scatter_add_flat",
            dtypes=("float16", "float32"),
            result_dtype=lambda a, index, values: a,
            samples=lambda make: [
                (make((6, 7)), make(15, dtype="int64", low=0, high=41), make(15)),
                (make(30), make(50, dtype="int64", low=0, high=29), make(50)),
                (make((2, 3, 4)), make(9, dtype="int64", low=0, high=23), make(9)),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make(4), make(3, dtype="int64", low=0, high=3), make(2)), ValueError, "one length")
            ],
        )

    return wrong, right, declare
