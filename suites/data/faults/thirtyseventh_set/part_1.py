"""A deep-learning library, twelve areas from embedding bags to metrics: faults with their twins."""

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
    "bag_peak",
    "a bag that holds nothing but padding keeps the start value of the maximum",
    "embedding bags with mode max: bags of padding alone returned the lowest number of the dtype instead of zeros",
    "a row of indices that all equal the padding index: -inf where zeros are due",
)
def bag_peak():
    """The largest number of each column among the rows that a bag names, without padding; an empty bag gives zeros."""

    def check(table, indices):
        if table.ndim != 2 or indices.ndim != 2:
            raise ValueError(f"table and indices are {table.ndim}-d and {indices.ndim}-d; give 2-d arrays")
        if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= table.shape[0]):
            raise IndexError(f"an index is outside of the table of {table.shape[0]} rows")

    def peaks(xp, table, indices, padding):
        keep = indices != padding
        return keep, xp.where(keep[:, :, None], table[indices], -math.inf).max(axis=1).astype(table.dtype)

    def nothing(xp, table, indices):
        return xp.zeros((indices.shape[0], table.shape[1]), dtype=table.dtype)

    def wrong(xp, table, indices, padding=0):
        check(table, indices)
        if indices.size == 0:
            return nothing(xp, table, indices)
        return peaks(xp, table, indices, padding)[1]

    def right(xp, table, indices, padding=0):
        check(table, indices)
        if indices.size == 0:
            return nothing(xp, table, indices)
        keep, best = peaks(xp, table, indices, padding)
        return xp.where(keep.any(axis=1)[:, None], best, xp.zeros_like(best))

    def reference(table, indices, padding=0):
        check(table, indices)
        out = np.zeros((indices.shape[0], table.shape[1]))
        for bag, places in enumerate(indices):
            rows = table[places[places != padding]]
            if len(rows):
                out[bag] = rows.max(axis=0)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bag_peak",
            dtypes=("float32", "float64"),
            result_dtype=lambda table, indices: table,
            samples=lambda make: [
                (make((10, 6)), make((5, 4), dtype="int64", low=0, high=9)),
                Sample((make((7, 3)), make((9, 3), dtype="int64", low=0, high=6)), {"padding": 6}),
                Sample((make((7, 3)), make((0, 4), dtype="int64", low=0, high=6)), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((4, 3)), make((2, 2), dtype="int64", low=4, high=4)), IndexError, "table of 4 rows")
            ],
        )

    return wrong, right, declare


@pair(
    "overhang_mean_pool",
    "the divisor of a last window that hangs over the padded end counts places that do not exist",
    "average pooling with ceil_mode and count_include_pad: the divisor must stop at the end of the padding",
    "size 3, stride 2, no padding, length 8: the last window holds two numbers but is divided by three",
)
def overhang_mean_pool():
    """Means over windows of the last axis; padding counts as zeros, and a last, partial window is kept."""

    def windows(length, size, stride, padding):
        if size < 1 or stride < 1:
            raise ValueError(f"size is {size} and stride {stride}; give 1 or more")
        if not 0 <= padding <= size // 2:
            raise ValueError(f"padding is {padding}; give 0 to {size // 2}")
        if length + 2 * padding < size:
            raise ValueError(f"length {length} with padding {padding} is shorter than a window of {size}")
        count = -(-(length + 2 * padding - size) // stride) + 1
        if (count - 1) * stride >= length + padding:  # it would begin in the padding at the end
            count -= 1
        return count

    def sums(xp, a, count, size, stride, padding):
        length = a.shape[-1]
        places = xp.arange(count)[:, None] * stride - padding + xp.arange(size)[None, :]
        if length == 0:
            return xp.zeros((*a.shape[:-1], count), dtype="float64")
        inside = (places >= 0) & (places < length)
        taken = a.astype("float64")[..., xp.clip(places, 0, length - 1)]
        return xp.where(inside, taken, 0.0).sum(axis=-1)

    def wrong(xp, a, size=3, stride=2, padding=0):
        count = windows(a.shape[-1], size, stride, padding)
        return (sums(xp, a, count, size, stride, padding) / size).astype(a.dtype)

    def right(xp, a, size=3, stride=2, padding=0):
        count = windows(a.shape[-1], size, stride, padding)
        starts = xp.arange(count) * stride - padding
        ends = xp.minimum(starts + size, a.shape[-1] + padding)
        return (sums(xp, a, count, size, stride, padding) / (ends - starts)).astype(a.dtype)

    def reference(a, size=3, stride=2, padding=0):
        length = a.shape[-1]
        out = []
        for i in range(windows(length, size, stride, padding)):
            start = i * stride - padding
            end = min(start + size, length + padding)
            out.append(a[..., max(start, 0) : min(end, length)].sum(axis=-1) / (end - start))
        return np.stack(out, axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="overhang_mean_pool",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((2, 3, 17)),
                Sample((make((4, 12)),), {"size": 4, "padding": 1}),
                Sample((make(30),), {"size": 2}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(9),), {"padding": 2}), ValueError, "padding is 2; give 0 to 1")
            ],
        )

    return wrong, right, declare


@pair(
    "sync_moments",
    "a rank without rows counts as one row",
    "synchronised batch normalisation: counts clamped to one so that an empty batch on a rank divides by no zero",
    "counts [0, 5, 9]: the mean of the rank with count 0 gets the weight 1",
)
def sync_moments():
    """The mean and the variance of a batch from those of its ranks, weighted by their rows."""

    def check(means, variances, counts):
        if means.ndim != 2 or means.shape != variances.shape or counts.shape != means.shape[:1]:
            raise ValueError(f"shapes {means.shape}, {variances.shape} and {counts.shape} do not fit")

    def merge(means, variances, counts, total):
        rows = counts[:, None]
        wide = means.astype("float64")
        mean = (rows * wide).sum(axis=0) / total
        variance = (rows * (variances.astype("float64") + (wide - mean) ** 2)).sum(axis=0) / total
        return mean.astype(means.dtype), variance.astype(means.dtype)

    def wrong(xp, means, variances, counts):
        check(means, variances, counts)
        counts = xp.maximum(counts.astype("float64"), 1.0)
        return merge(means, variances, counts, xp.maximum(counts.sum(), 1.0))

    def right(xp, means, variances, counts):
        check(means, variances, counts)
        counts = counts.astype("float64")
        return merge(means, variances, counts, xp.maximum(counts.sum(), 1.0))

    def reference(means, variances, counts):
        check(means, variances, counts)
        total = int(counts.sum())
        mean, second = np.zeros(means.shape[1]), np.zeros(means.shape[1])
        if total:
            mean = np.average(means, axis=0, weights=counts)
            second = np.average(variances + (means - mean) ** 2, axis=0, weights=counts)
        return mean, second

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sync_moments",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (
                    make((4, 6), low=-3, high=3),
                    make((4, 6), low=0, high=4),
                    make(4, dtype="int64", low=0, high=32),
                ),
                (
                    make((8, 3), low=-50, high=50),
                    make((8, 3), low=0, high=9),
                    make(8, dtype="int64", low=0, high=1000),
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "key_masked_attention",
    "a mask of keys is taken for a mask of queries and keys if the batch is as large as the number of queries",
    "attention layers that guess from a 2-d mask's shape whether its first axis is the batch or the queries",
    "a batch of 3 with 3 queries each: keep[b, k] is used as keep[q, k]",
)
def key_masked_attention():
    """Attention with a mask of keys for each member of the batch; without any key the result is zero."""

    def check(q, k, v, keep):
        if q.ndim != 3 or k.ndim != 3 or k.shape != v.shape or (q.shape[0], q.shape[2]) != (k.shape[0], k.shape[2]):
            raise ValueError(f"shapes {q.shape}, {k.shape} and {v.shape} do not fit")
        if keep.shape != k.shape[:2]:
            raise ValueError(f"the mask has shape {keep.shape}; give {k.shape[:2]}")

    def attend(xp, q, k, v, keep):
        if k.shape[1] == 0:
            return xp.zeros(q.shape, dtype=q.dtype)
        wide = [x.astype("float64") for x in (q, k, v)]
        scores = xp.matmul(wide[0], wide[1].transpose(0, 2, 1)) / math.sqrt(max(q.shape[2], 1))
        scores = xp.where(keep, scores, -math.inf)
        top = scores.max(axis=-1, keepdims=True)
        weights = xp.exp(scores - xp.where(xp.isfinite(top), top, 0.0))
        total = weights.sum(axis=-1, keepdims=True)
        return xp.matmul(weights / xp.where(total > 0, total, 1.0), wide[2]).astype(q.dtype)

    def wrong(xp, q, k, v, keep):
        check(q, k, v, keep)
        full = keep.shape == (q.shape[1], k.shape[1])
        return attend(xp, q, k, v, keep[None, :, :] if full else keep[:, None, :])

    def right(xp, q, k, v, keep):
        check(q, k, v, keep)
        return attend(xp, q, k, v, keep[:, None, :])

    def reference(q, k, v, keep):
        check(q, k, v, keep)
        out = np.zeros(q.shape)
        for b in range(len(q)):
            keys, values = k[b][keep[b]], v[b][keep[b]]
            if len(keys):
                scores = q[b] @ keys.T / np.sqrt(max(q.shape[2], 1))
                weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
                out[b] = weights / weights.sum(axis=-1, keepdims=True) @ values
        return out

    def declare(fn):
        def call(make, batch, queries, keys, width):
            return (
                make((batch, queries, width), low=-3, high=3),
                make((batch, keys, width), low=-3, high=3),
                make((batch, keys, width), low=-3, high=3),
                make((batch, keys), dtype="bool"),
            )

        return OpSpec(
            fn=fn,
            name="key_masked_attention",
            dtypes=("float32", "float64"),
            result_dtype=lambda q, k, v, keep: q,
            samples=lambda make: [
                call(make, 2, 5, 7, 8),
                call(make, 3, 1, 9, 4),
                call(make, 2, 6, 6, 4),
                call(make, 1, 1, 1, 1),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "token_loss_in_chunks",
    "the mean is the mean of the chunks' means",
    "losses in chunks and accumulated gradients: averaging means, though chunks differ in tokens that count",
    "20 tokens in chunks of 8, some to be ignored: chunks with few tokens weigh as much as full ones",
)
def token_loss_in_chunks():
    """Cross-entropy of tokens, computed a chunk at a time; tokens of the class to ignore count for nothing."""

    def check(logits, targets, ignore, chunk, reduction):
        if chunk < 1:
            raise ValueError(f"chunk is {chunk}; give 1 or more")
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction is {reduction!r}; give 'mean' or 'sum'")
        if logits.ndim != 2 or targets.shape != logits.shape[:1]:
            raise ValueError(f"shapes {logits.shape} and {targets.shape} do not fit")
        if bool((((targets < 0) | (targets >= logits.shape[1])) & (targets != ignore)).any()):
            raise ValueError(f"a target is none of {logits.shape[1]} classes")

    def parts(xp, logits, targets, ignore, chunk):
        if logits.shape[1] == 0:  # then all targets are to be ignored
            return
        for start in range(0, logits.shape[0], chunk):
            rows, places = logits[start : start + chunk].astype("float64"), targets[start : start + chunk]
            keep = places != ignore
            top = rows.max(axis=1)
            chosen = xp.arange(logits.shape[1])[None, :] == places[:, None]
            picked = xp.where(chosen, rows, 0.0).sum(axis=1)
            losses = xp.log(xp.exp(rows - top[:, None]).sum(axis=1)) + top - picked
            yield xp.where(keep, losses, 0.0).sum(), int(keep.sum())

    def wrong(xp, logits, targets, ignore=-1, chunk=64, reduction="mean"):
        check(logits, targets, ignore, chunk, reduction)
        total, chunks = xp.zeros((), dtype="float64"), 0
        for loss, count in parts(xp, logits, targets, ignore, chunk):
            if count:
                total = total + (loss / count if reduction == "mean" else loss)
                chunks += 1
        return (total / max(chunks, 1) if reduction == "mean" else total).astype(logits.dtype)

    def right(xp, logits, targets, ignore=-1, chunk=64, reduction="mean"):
        check(logits, targets, ignore, chunk, reduction)
        total, tokens = xp.zeros((), dtype="float64"), 0
        for loss, count in parts(xp, logits, targets, ignore, chunk):
            total = total + loss
            tokens += count
        return (total / max(tokens, 1) if reduction == "mean" else total).astype(logits.dtype)

    def reference(logits, targets, ignore=-1, chunk=64, reduction="mean"):
        check(logits, targets, ignore, chunk, reduction)
        rows = np.flatnonzero(targets != ignore)
        if len(rows) == 0:
            return np.zeros(())
        kept = logits[rows]
        top = kept.max(axis=1)
        losses = np.log(np.exp(kept - top[:, None]).sum(axis=1)) + top - kept[np.arange(len(rows)), targets[rows]]
        return np.asarray(losses.mean() if reduction == "mean" else losses.sum())

    def declare(fn):
        def call(make, tokens, classes, low, **options):
            logits = make((tokens, classes), low=-20, high=20)
            return Sample((logits, make(tokens, dtype="int64", low=low, high=classes - 1)), options)

        return OpSpec(
            fn=fn,
            name="token_loss_in_chunks",
            dtypes=("float32", "float64"),
            result_dtype=lambda logits, targets: logits,
            samples=lambda make: [
                call(make, 20, 5, -1),
                call(make, 32, 7, 0, chunk=8),
                call(make, 12, 9, 0, ignore=0, reduction="sum"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(call(make, 4, 3, 0, chunk=0), ValueError, "chunk is 0"),
                ErrorInput(call(make, 4, 3, 0, reduction="all"), ValueError, "reduction is 'all'"),
            ],
        )

    return wrong, right, declare


@pair(
    "adamax_step",
    "maximising turns the sign of the weight decay too",
    "optimisers with maximize: the gradient was negated after the decay had been added to it, so weights grew",
    "maximize=True and weight_decay=0.1 together; each alone is right",
)
def adamax_step():
    """One step of Adamax; returns the parameters and both states."""

    def check(param, grad, momentum, peak, weight_decay, step):
        if step < 1:
            raise ValueError(f"step is {step}; give 1 or more")
        if weight_decay < 0:
            raise ValueError(f"weight_decay is {weight_decay}; give 0 or more")
        if not param.shape == grad.shape == momentum.shape == peak.shape:
            raise ValueError("the four arrays differ in shape")

    def update(xp, param, gradient, momentum, peak, lr, step):
        momentum = 0.9 * momentum.astype("float64") + 0.1 * gradient
        peak = xp.maximum(0.999 * peak.astype("float64"), abs(gradient) + 1e-8)
        moved = param.astype("float64") - lr / (1 - 0.9**step) * momentum / peak
        return tuple(x.astype(param.dtype) for x in (moved, momentum, peak))

    def wrong(xp, param, grad, momentum, peak, lr=0.01, weight_decay=0.0, maximize=False, step=1):
        check(param, grad, momentum, peak, weight_decay, step)
        gradient = grad.astype("float64") + weight_decay * param.astype("float64")
        return update(xp, param, -gradient if maximize else gradient, momentum, peak, lr, step)

    def right(xp, param, grad, momentum, peak, lr=0.01, weight_decay=0.0, maximize=False, step=1):
        check(param, grad, momentum, peak, weight_decay, step)
        gradient = grad.astype("float64")
        gradient = (-gradient if maximize else gradient) + weight_decay * param.astype("float64")
        return update(xp, param, gradient, momentum, peak, lr, step)

    def reference(param, grad, momentum, peak, lr=0.01, weight_decay=0.0, maximize=False, step=1):
        check(param, grad, momentum, peak, weight_decay, step)
        gradient = (-1 if maximize else 1) * grad + weight_decay * param
        momentum = 0.9 * momentum + 0.1 * gradient
        peak = np.maximum(0.999 * peak, np.abs(gradient) + 1e-8)
        return param - lr / (1 - 0.9**step) * momentum / peak, momentum, peak

    def declare(fn):
        def call(make, shape, kind="values", **options):
            arrays = [make(shape, low=-3, high=3) for _ in range(3)]
            return Sample((*arrays, make(shape, low=0.5, high=4)), options, kind=kind)

        return OpSpec(
            fn=fn,
            name="adamax_step",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                call(make, 40),
                call(make, (5, 9), weight_decay=0.1, step=7),
                call(make, 33, maximize=True, lr=0.5),
                call(make, (), kind="scalar"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(call(make, 3, step=0), ValueError, "step is 0")],
        )

    return wrong, right, declare


@pair(
    "polynomial_rate",
    "the cycle of step 0 has no length",
    "polynomial decay with cycle: the number of cycles is ceil(step / span), which is 0 at step 0",
    "step 0 with cycle=True: nan where the full rate is due",
)
def polynomial_rate():
    """The learning rate at each step: a polynomial from the rate to the floor, once or in longer and longer cycles."""

    def check(steps, span):
        if span < 1:
            raise ValueError(f"span is {span}; give 1 or more")
        if steps.size and int(steps.min()) < 0:
            raise ValueError("a step is negative")

    def decay(done, rate, floor, power):
        return (rate - floor) * (1.0 - done) ** power + floor

    def wrong(xp, steps, rate=0.1, floor=0.001, span=100, power=1.0, cycle=False):
        check(steps, span)
        steps = steps.astype("float64")
        end = span * xp.ceil(steps / span) if cycle else span
        return decay(xp.minimum(steps, end) / end, rate, floor, power)

    def right(xp, steps, rate=0.1, floor=0.001, span=100, power=1.0, cycle=False):
        check(steps, span)
        steps = steps.astype("float64")
        end = span * xp.maximum(xp.ceil(steps / span), 1.0) if cycle else span
        return decay(xp.minimum(steps, end) / end, rate, floor, power)

    def reference(steps, rate=0.1, floor=0.001, span=100, power=1.0, cycle=False):
        check(steps, span)
        out = np.empty(steps.shape)
        for i in np.ndindex(steps.shape):
            step = int(steps[i])
            end = span * max(-(-step // span), 1) if cycle else span
            out[i] = (rate - floor) * (1 - min(step, end) / end) ** power + floor
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="polynomial_rate",
            dtypes=("int32", "int64"),
            result_dtype="float64",
            samples=lambda make: [
                make(50, low=0, high=150),
                Sample((make(64, low=0, high=1000),), {"cycle": True}),
                Sample((make((4, 9), low=0, high=1000),), {"cycle": True, "span": 30, "power": 2.0}),
                Sample((make(20, low=0, high=150),), {"rate": 3.0, "floor": 0.0, "power": 0.5}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(5, low=0, high=9),), {"span": 0}), ValueError, "span is 0"),
                ErrorInput(make(5, low=-9, high=-1), ValueError, "a step is negative"),
            ],
        )

    return wrong, right, declare


@pair(
    "stretch_contrast",
    "a channel of one colour turns black",
    "automatic contrast of images: a guarded divisor makes a constant channel zero, though it must stay as it is",
    "a channel whose pixels are all 0.4, or an image of one pixel: 0 where 0.4 is due",
)
def stretch_contrast():
    """Each channel of images (..., height, width) stretched to 0 to 1; a channel of one colour stays as it is."""

    def check(a):
        if a.ndim < 2:
            raise ValueError(f"the image is {a.ndim}-d; give 2 or more axes")

    def limits(a):
        wide = a.astype("float64")
        return wide, wide.min(axis=(-2, -1), keepdims=True), wide.max(axis=(-2, -1), keepdims=True)

    def wrong(xp, a):
        check(a)
        if a.size == 0:
            return a.copy()
        wide, low, high = limits(a)
        return ((wide - low) / xp.maximum(high - low, 1e-12)).astype(a.dtype)

    def right(xp, a):
        check(a)
        if a.size == 0:
            return a.copy()
        wide, low, high = limits(a)
        flat = high == low
        return xp.where(flat, wide, (wide - low) / xp.where(flat, 1.0, high - low)).astype(a.dtype)

    def reference(a):
        check(a)
        out = np.array(a, dtype="float64")
        for i in np.ndindex(a.shape[:-2]):
            if a[i].size and a[i].max() > a[i].min():
                out[i] = (a[i] - a[i].min()) / (a[i].max() - a[i].min())
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="stretch_contrast",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 8, 10), low=0, high=1),
                make((2, 3, 5, 4), low=0, high=1),
                make((6, 7), low=0, high=1),
                Sample((make((0, 3, 4, 4), low=0, high=1),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make(5, low=0, high=1), ValueError, "the image is 1-d")],
        )

    return wrong, right, declare


@pair(
    "next_fit_rows",
    "a sequence that fills a row exactly begins a new one",
    "packing of sequences into training rows: '<' for '<=' in the test of whether the next sequence still fits",
    "lengths [10, 6] with capacity 16: rows [0, 1] where [0, 0] is due",
)
def next_fit_rows():
    """The row into which each sequence is packed, in their order; a row takes `capacity` tokens."""

    def check(lengths, capacity):
        if lengths.ndim != 1:
            raise ValueError(f"lengths are {lengths.ndim}-d; give one axis")
        if lengths.size and (int(lengths.min()) < 1 or int(lengths.max()) > capacity):
            raise ValueError(f"a sequence has not 1 to {capacity} tokens")

    def pack(xp, lengths, fits):
        rows, row, used = [], 0, 0
        for i in range(lengths.shape[0]):
            length = int(lengths[i])
            if used and not fits(used + length):
                row, used = row + 1, 0
            used += length
            rows.append(row)
        return xp.asarray(rows, dtype="int64")

    def wrong(xp, lengths, capacity=16):
        check(lengths, capacity)
        return pack(xp, lengths, lambda used: used < capacity)

    def right(xp, lengths, capacity=16):
        check(lengths, capacity)
        return pack(xp, lengths, lambda used: used <= capacity)

    def reference(lengths, capacity=16):
        check(lengths, capacity)
        rows, free = np.zeros(len(lengths), dtype="int64"), capacity
        for i, length in enumerate(lengths.tolist()):
            rows[i] = rows[i - 1] if i else 0
            if length > free:
                rows[i] += 1
                free = capacity
            free -= length
        return rows

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="next_fit_rows",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make(12, low=1, high=16),
                Sample((make(25, low=1, high=200),), {"capacity": 512}),
                Sample((make(0, low=1, high=16),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make(4, low=17, high=20), ValueError, "not 1 to 16 tokens")],
        )

    return wrong, right, declare


@pair(
    "min_p_draw",
    "a uniform number at the top of its range draws token 0",
    "samplers by inverse cumulative sums: if none exceeds the target, argmax over false values returns place 0",
    "a uniform number of 1: token 0, even if the filter removed it, where the last kept token is due",
)
def min_p_draw():
    """A token for each row of logits and each given uniform number, among tokens of at least min_p times the best."""

    def check(logits, uniforms, min_p):
        if not 0 < min_p <= 1:
            raise ValueError(f"min_p is {min_p}; give more than 0 and at most 1")
        if logits.ndim != 2 or uniforms.shape != logits.shape[:1] or logits.shape[1] == 0:
            raise ValueError(f"shapes {logits.shape} and {uniforms.shape} do not fit")

    def passed(xp, logits, uniforms, min_p):
        wide = logits.astype("float64")
        weights = xp.exp(wide - wide.max(axis=1, keepdims=True))
        keep = weights >= min_p
        sums = xp.cumsum(xp.where(keep, weights, 0.0), axis=1)
        return keep, sums > uniforms.astype("float64")[:, None] * sums[:, -1:]

    def wrong(xp, logits, uniforms, min_p=0.1):
        check(logits, uniforms, min_p)
        return passed(xp, logits, uniforms, min_p)[1].argmax(axis=1).astype("int64")

    def right(xp, logits, uniforms, min_p=0.1):
        check(logits, uniforms, min_p)
        keep, above = passed(xp, logits, uniforms, min_p)
        last = logits.shape[1] - 1 - keep[:, ::-1].argmax(axis=1)
        return xp.where(above.any(axis=1), above.argmax(axis=1), last).astype("int64")

    def reference(logits, uniforms, min_p=0.1):
        check(logits, uniforms, min_p)
        out = np.zeros(len(logits), dtype="int64")
        for i, row in enumerate(logits):
            weights = np.exp(row - row.max())
            kept = np.flatnonzero(weights >= min_p)
            sums = np.cumsum(weights[kept])
            place = np.searchsorted(sums, uniforms[i] * sums[-1], side="right")
            out[i] = kept[min(place, len(kept) - 1)]
        return out

    def declare(fn):
        def call(make, rows, tokens, **options):
            return Sample((make((rows, tokens), low=-6, high=6), make(rows, low=0, high=1)), options)

        return OpSpec(
            fn=fn,
            name="min_p_draw",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                call(make, 6, 40),
                call(make, 9, 12, min_p=0.01),
                call(make, 1, 1),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(call(make, 2, 4, min_p=0), ValueError, "min_p is 0")],
        )

    return wrong, right, declare


@pair(
    "channel_codes_uint8",
    "the range of a channel of one sign does not reach to zero",
    "affine quantisation per channel: observers must extend the range to zero, or the zero point is clipped",
    "a channel between 2 and 5: a zero point of -170 is clipped to 0, and large numbers saturate at 255",
)
def channel_codes_uint8():
    """Affine codes 0 to 255 of each channel; the range of a channel includes zero, which has a code of its own."""

    def encode(xp, a, axis, limits):
        moved = xp.moveaxis(a, axis, 0)
        if a.size == 0:
            return xp.zeros(a.shape, dtype="uint8")
        rows = moved.reshape(moved.shape[0], -1).astype("float64")
        low, high = limits(rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True))
        scale = xp.where(high > low, (high - low) / 255.0, 1.0)
        zero = xp.clip(xp.rint(-low / scale), 0, 255)
        codes = xp.clip(xp.rint(rows / scale) + zero, 0, 255).astype("uint8")
        return xp.moveaxis(codes.reshape(moved.shape), 0, axis)

    def wrong(xp, a, axis=0):
        return encode(xp, a, axis, lambda low, high: (low, high))

    def right(xp, a, axis=0):
        return encode(xp, a, axis, lambda low, high: (xp.minimum(low, 0.0), xp.maximum(high, 0.0)))

    def reference(a, axis=0):
        moved = np.moveaxis(a, axis, 0)
        out = np.zeros(moved.shape, dtype="uint8")
        for i, channel in enumerate(moved):
            if channel.size:
                low, high = min(channel.min(), 0.0), max(channel.max(), 0.0)
                scale = (high - low) / 255.0 if high > low else 1.0
                out[i] = np.clip(np.rint(channel / scale) + np.rint(-low / scale), 0, 255)
        return np.moveaxis(out, 0, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="channel_codes_uint8",
            dtypes=("float32", "float64"),
            result_dtype="uint8",
            samples=lambda make: [
                make((4, 50), low=-6, high=6),
                Sample((make((3, 40, 6), low=-6, high=6),), {"axis": -1}),
                Sample((make((30, 5), low=-0.5, high=0.5),), {"axis": 1}),
                Sample((make((0, 5), low=-6, high=6),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "average_precision",
    "equal scores are ranked by their place",
    "average precision without thresholds: tied scores must share one precision, or the order of the data decides",
    "scores [1, 1] with labels [1, 0]: 1 where 0.5 is due",
)
def average_precision():
    """The average precision of scores for true labels; equal scores share one threshold, no true label gives 0."""

    def check(scores, labels):
        if scores.ndim != 1 or scores.shape != labels.shape:
            raise ValueError(f"shapes {scores.shape} and {labels.shape} do not fit")

    def wrong(xp, scores, labels):
        check(scores, labels)
        hits = labels[xp.argsort(-scores, kind="stable")].astype("float64")
        precision = xp.cumsum(hits) / xp.arange(1, scores.shape[0] + 1)
        return ((hits * precision).sum() / xp.maximum(hits.sum(), 1.0)).astype(scores.dtype)

    def right(xp, scores, labels):
        check(scores, labels)
        hits = labels.astype("float64")
        above = (scores[None, :] >= scores[:, None]).astype("float64")
        precision = (above * hits[None, :]).sum(axis=1) / above.sum(axis=1)
        return ((hits * precision).sum() / xp.maximum(hits.sum(), 1.0)).astype(scores.dtype)

    def reference(scores, labels):
        check(scores, labels)
        total, area = int(labels.sum()), 0.0
        for threshold in np.unique(scores[labels]):
            chosen = scores >= threshold
            area += (labels & (scores == threshold)).sum() / total * (labels & chosen).sum() / chosen.sum()
        return np.asarray(area)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="average_precision",
            dtypes=("float32", "float64"),
            result_dtype=lambda scores, labels: scores,
            samples=lambda make: [
                (make(40, low=-3, high=3), make(40, dtype="bool")),
                (make(7, low=0, high=1), make(7, dtype="bool")),
                Sample((make(0, low=0, high=1), make(0, dtype="bool")), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare
