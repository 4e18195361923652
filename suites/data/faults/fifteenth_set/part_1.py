"""Powers, masked means, filters, top-k, matrices of counts, distances, pools, rotary, rates, CSR, blocks, trends."""

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
    "next_power_of_two",
    "a logarithm in float64 decides about integers",
    "the many nextpow2 helpers written 2 ** ceil(log2(n)), which round away the last bits of large sizes",
    "2**50 + 1: the answer is 2**50, less than the number itself, instead of 2**51",
)
def next_power_of_two():
    """The least power of two that is not less than n, for n up to 2**62; 1 for what is below 1."""

    def wrong(xp, n):
        exponent = xp.ceil(xp.log2(xp.maximum(n, 1).astype("float64")))
        return xp.left_shift(xp.ones_like(n), exponent.astype("int64"))

    def right(xp, n):
        bits = xp.maximum(n, 1) - 1
        for shift in (1, 2, 4, 8, 16, 32):
            bits = bits | (bits >> shift)
        return bits + 1

    def reference(n):
        out = np.ones(n.shape, dtype="int64")
        for i in np.ndindex(n.shape):
            if n[i] > 1:
                out[i] = 1 << (int(n[i]) - 1).bit_length()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="next_power_of_two",
            dtypes=("int64",),
            samples=lambda make: [
                make(100, low=0, high=70),
                make((7, 33), low=1, high=1 << 20),
                make(200, low=1, high=1 << 62),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "masked_mean",
    "the entries of a mask are counted before it is broadcast",
    "numpy's mean with where=, which must broadcast the mask in _count_reduce_items; pooling over padded tokens",
    "a mask of shape (4, 1) over an array of shape (4, 6): each sum is divided by 1 instead of 6",
)
def masked_mean():
    """The mean of the entries where the mask holds; the mask broadcasts to the array. NaN where there are none."""

    def finish(xp, a, mask, count, axis, keepdims):
        total = xp.where(mask, a.astype("float64"), 0.0).sum(axis=axis, keepdims=keepdims)
        return xp.where(count > 0, total / xp.maximum(count, 1), math.nan).astype(a.dtype)

    def wrong(xp, a, mask, axis=-1, keepdims=False):
        return finish(xp, a, mask, mask.sum(axis=axis, keepdims=keepdims), axis, keepdims)

    def right(xp, a, mask, axis=-1, keepdims=False):
        mask = xp.broadcast_to(mask, a.shape)
        return finish(xp, a, mask, mask.sum(axis=axis, keepdims=keepdims), axis, keepdims)

    def reference(a, mask, axis=-1, keepdims=False):
        mask = np.broadcast_to(mask, a.shape)
        total = np.where(mask, a, 0.0).sum(axis=axis, keepdims=keepdims)
        count = np.count_nonzero(mask, axis=axis, keepdims=keepdims)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="masked_mean",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                (make((4, 9)), make((4, 9), dtype="bool")),
                (make((2, 5, 8)), make(8, dtype="bool")),
                Sample((make((5, 7, 3)), make((5, 7, 3), dtype="bool")), {"axis": 1}),
                Sample((make((5, 7)), make((5, 7), dtype="bool")), {"axis": 0, "keepdims": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "exponential_average",
    "the closed form divides by a power that underflows in a long series",
    "the vectorised exponential moving average of many answers and libraries: cumsum(x / decay**t) * decay**t",
    "8000 ones with alpha 0.1: wrong from entry 6737 on, then NaN; alpha 1: NaN from entry 1 on",
)
def exponential_average():
    """y[0] = x[0], then y[t] = alpha * x[t] + (1 - alpha) * y[t - 1], along an axis."""

    def check(alpha):
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha is {alpha}; give more than 0 and at most 1")

    def wrong(xp, a, alpha=0.1, axis=-1):
        check(alpha)
        x = xp.moveaxis(a, axis, -1).astype("float64")
        power = (1 - alpha) ** xp.arange(x.shape[-1], dtype="float64")
        parts = alpha * x / power
        y = xp.cumsum(xp.concatenate([x[..., :1], parts[..., 1:]], axis=-1), axis=-1) * power
        return xp.moveaxis(y.astype(a.dtype), -1, axis)

    def right(xp, a, alpha=0.1, axis=-1):
        check(alpha)
        x = xp.moveaxis(a, axis, 0).astype("float64")
        if x.shape[0] == 0:
            return a.copy()
        rows = [x[0]]
        for t in range(1, x.shape[0]):
            rows.append(alpha * x[t] + (1 - alpha) * rows[-1])
        return xp.moveaxis(xp.stack(rows).astype(a.dtype), 0, axis)

    def reference(a, alpha=0.1, axis=-1):
        x = np.moveaxis(a, axis, 0)
        y = np.array(x, dtype="float64")
        for t in range(1, len(x)):
            y[t] = alpha * x[t] + (1 - alpha) * y[t - 1]
        return np.moveaxis(y, 0, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="exponential_average",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(200, low=-100, high=100),
                Sample((make((4, 64), low=-100, high=100),), {"alpha": 0.3}),
                Sample((make((50, 3), low=-100, high=100),), {"axis": 0}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"alpha": 0.0}), ValueError, "alpha is 0")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "keep_top_k",
    "entries that tie with the last one are all kept",
    "top-k filters of text generators: logits < topk(logits, k)[..., -1:] leaves more than k where numbers are equal",
    "[2, 1, 1, 1] with k 2: four numbers stay instead of two",
)
def keep_top_k():
    """The k largest numbers of each row stay, of equal ones the first; the others become -inf. NaN is least."""

    def check(k):
        if k < 1:
            raise ValueError(f"k is {k}; give 1 or more")

    def wrong(xp, logits, k=5):
        check(k)
        if k >= logits.shape[-1]:
            return logits.copy()
        least = xp.sort(xp.where(xp.isnan(logits), -math.inf, logits), axis=-1)[..., -k, None]
        return xp.where(logits >= least, logits, xp.asarray(-math.inf, dtype=logits.dtype))

    def right(xp, logits, k=5):
        check(k)
        if k >= logits.shape[-1]:
            return logits.copy()
        order = xp.argsort(-logits, axis=-1, kind="stable")
        rank = xp.argsort(order, axis=-1)
        return xp.where(rank < k, logits, xp.asarray(-math.inf, dtype=logits.dtype))

    def reference(logits, k=5):
        out = np.full(logits.shape, -np.inf)
        for i in np.ndindex(logits.shape[:-1]):
            row = logits[i]
            order = sorted(range(len(row)), key=lambda j: (math.isnan(row[j]), 0.0 if math.isnan(row[j]) else -row[j]))
            for j in order[:k]:
                out[i][j] = row[j]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="keep_top_k",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make(50),
                make((3, 100), low=-20, high=20),
                Sample((make((2, 4, 33)),), {"k": 1}),
                Sample((make((2, 8)),), {"k": 20}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"k": 0}), ValueError, "k is 0")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "confusion_matrix",
    "a flat index is computed in the labels' own dtype",
    "segmentation metrics: bincount(n * truth + predicted), where labels read from images are uint8",
    "truth 18, predicted 18, of 19 classes in uint8: 360 wraps to 104, which is counted as (5, 9)",
)
def confusion_matrix():
    """How often each class was predicted for each true class; labels outside of the classes are ignored."""

    def count(xp, truth, predicted, index, classes):
        known = (truth >= 0) & (truth < classes) & (predicted >= 0) & (predicted < classes)
        return xp.bincount(index[known], minlength=classes * classes).reshape(classes, classes)

    def wrong(xp, truth, predicted, classes=5):
        return count(xp, truth, predicted, truth * classes + predicted, classes)

    def right(xp, truth, predicted, classes=5):
        truth, predicted = truth.astype("int64"), predicted.astype("int64")
        return count(xp, truth, predicted, truth * classes + predicted, classes)

    def reference(truth, predicted, classes=5):
        out = np.zeros((classes, classes), dtype="int64")
        for t, p in zip(truth.ravel().tolist(), predicted.ravel().tolist(), strict=True):
            if 0 <= t < classes and 0 <= p < classes:
                out[t, p] += 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="confusion_matrix",
            dtypes=("uint8", "int32", "int64"),
            samples=lambda make: [
                (make(200, low=0, high=5), make(200, low=0, high=4)),
                (make((4, 30), low=0, high=4), make((4, 30), low=0, high=4)),
                Sample((make((2, 8, 8), low=0, high=10), make((2, 8, 8), low=0, high=9)), {"classes": 10}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "pairwise_distances",
    "with more than 25 points distances come from a product, which cancels",
    "torch.cdist, which takes x*x + y*y - 2*x*y from 26 points on: distances of near points far from 0 were wrong",
    "30 points near 1000 with distances of about 1, in float32: off by up to 0.9; NaN next to infinities",
)
def pairwise_distances():
    """Euclidean distances of all points of a from all points of b, over leading axes."""

    def check(a, b):
        if a.shape[-1] != b.shape[-1]:
            raise ValueError(f"points have {a.shape[-1]} and {b.shape[-1]} coordinates; give as many")

    def direct(xp, a, b):
        step = a[..., :, None, :].astype("float64") - b[..., None, :, :].astype("float64")
        return xp.sqrt((step * step).sum(axis=-1)).astype(a.dtype)

    def wrong(xp, a, b):
        check(a, b)
        if a.shape[-2] <= 25 and b.shape[-2] <= 25:
            return direct(xp, a, b)
        squares = (a * a).sum(axis=-1)[..., :, None] + (b * b).sum(axis=-1)[..., None, :]
        return xp.sqrt(xp.maximum(squares - 2 * xp.matmul(a, xp.swapaxes(b, -1, -2)), 0))

    def right(xp, a, b):
        check(a, b)
        return direct(xp, a, b)

    def reference(a, b):
        step = a[..., :, None, :] - b[..., None, :, :]
        return np.sqrt((step**2).sum(axis=-1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pairwise_distances",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((7, 3)), make((5, 3))),
                (make((2, 4, 16)), make((2, 6, 16))),
                (make((40, 8)), make((30, 8))),
            ],
            error_inputs=lambda make: [ErrorInput((make((4, 3)), make((4, 2))), ValueError, "coordinates")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "max_pool_ceil",
    "a last window that begins in the padding is not dropped",
    "max_pool with ceil_mode in torch and its exports: the last window must begin inside the input or the left padding",
    "15 numbers, kernel 2, stride 2, padding 1, ceil_mode: 9 results, the last of them -inf, instead of 8",
)
def max_pool_ceil():
    """Maxima of windows along the last axis; with ceil_mode a last window may be cut, but has to begin in the input."""

    def check(kernel, stride, padding):
        if kernel < 1 or stride < 1:
            raise ValueError(f"kernel is {kernel}, stride is {stride}; give 1 or more")
        if not 0 <= padding <= kernel // 2:
            raise ValueError(f"padding is {padding}; give at most half of the kernel")

    def pool(xp, a, kernel, stride, padding, windows):
        length, windows = a.shape[-1], max(windows, 0)
        needed = max((windows - 1) * stride + kernel, padding + length)
        padded = xp.full((*a.shape[:-1], needed), -math.inf, dtype=a.dtype)
        padded[..., padding : padding + length] = a
        out = xp.full((*a.shape[:-1], windows), -math.inf, dtype=a.dtype)
        if windows:
            for i in range(kernel):
                out = xp.maximum(out, padded[..., i : i + (windows - 1) * stride + 1 : stride])
        return out

    def wrong(xp, a, kernel=2, stride=None, padding=0, ceil_mode=False):
        stride = kernel if stride is None else stride
        check(kernel, stride, padding)
        spare = a.shape[-1] + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)
        return pool(xp, a, kernel, stride, padding, spare // stride + 1)

    def right(xp, a, kernel=2, stride=None, padding=0, ceil_mode=False):
        stride = kernel if stride is None else stride
        check(kernel, stride, padding)
        spare = a.shape[-1] + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)
        windows = spare // stride + 1
        if ceil_mode and (windows - 1) * stride >= a.shape[-1] + padding:
            windows -= 1
        return pool(xp, a, kernel, stride, padding, windows)

    def reference(a, kernel=2, stride=None, padding=0, ceil_mode=False):
        stride, length = stride or kernel, a.shape[-1]
        columns, start = [], -padding
        while True:
            whole = start + kernel <= length + padding
            cut = ceil_mode and start < length and start - stride + kernel < length + padding
            if not (cut or (whole and not ceil_mode)):
                break
            window = a[..., max(start, 0) : max(start + kernel, 0)]
            columns.append(window.max(axis=-1, initial=-np.inf))
            start += stride
        return np.stack(columns, axis=-1) if columns else np.zeros((*a.shape[:-1], 0))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="max_pool_ceil",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                make((2, 3, 10)),
                Sample((make((2, 12)),), {"kernel": 3, "stride": 2, "padding": 1}),
                Sample((make((2, 3, 11)),), {"kernel": 3, "stride": 2, "ceil_mode": True}),
                Sample((make((4, 16)),), {"kernel": 2, "stride": 2, "padding": 1, "ceil_mode": True}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"padding": 2}), ValueError, "padding is 2")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "rotary",
    "a kept table of cosines has the dtype of the call that made it",
    "rotary embeddings of language models: cos_cached made in the first call's half precision and kept for all",
    "a call in float16, then one in float32 that is no longer: cosines rounded to 11 bits",
)
def rotary():
    """Turns pairs (i, i + width/2) of each position by position * base ** (-2i/width)."""

    def check(x):
        if x.shape[-1] % 2:
            raise ValueError(f"width is {x.shape[-1]}; give an even one")

    def table(xp, end, width, base):
        turn = base ** (-2.0 * xp.arange(width // 2, dtype="float64") / max(width, 1))
        angle = xp.arange(end, dtype="float64")[:, None] * turn
        return xp.cos(angle), xp.sin(angle)

    def turned(xp, x, cos, sin):
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        return xp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    kept = {}

    def wrong(xp, x, base=10000.0, offset=0):
        check(x)
        end, key = offset + x.shape[-2], (id(xp), x.shape[-1], base)
        if key not in kept or kept[key][0].shape[0] < end:
            kept[key] = tuple(part.astype(x.dtype) for part in table(xp, end, x.shape[-1], base))
        cos, sin = (part[offset:end] for part in kept[key])
        return turned(xp, x.astype("float32"), cos, sin).astype(x.dtype)

    def right(xp, x, base=10000.0, offset=0):
        check(x)
        cos, sin = table(xp, offset + x.shape[-2], x.shape[-1], base)
        return turned(xp, x.astype("float64"), cos[offset:], sin[offset:]).astype(x.dtype)

    def reference(x, base=10000.0, offset=0):
        out, half = np.zeros(x.shape), x.shape[-1] // 2
        for t in range(x.shape[-2]):
            for i in range(half):
                angle = (offset + t) * base ** (-2.0 * i / x.shape[-1])
                a, b = x[..., t, i], x[..., t, half + i]
                out[..., t, i] = a * np.cos(angle) - b * np.sin(angle)
                out[..., t, half + i] = a * np.sin(angle) + b * np.cos(angle)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rotary",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((2, 4, 16, 8)),
                make((3, 33, 64)),
                Sample((make((2, 4, 1, 8)),), {"offset": 37}),
                Sample((make((12, 16)),), {"base": 500000.0}),
            ],
            error_inputs=lambda make: [ErrorInput((make((3, 5)),), ValueError, "width is 5")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "warm_restarts",
    "a quotient of logarithms finds the cycle, and falls short where one begins",
    "torch's CosineAnnealingWarmRestarts: int(math.log(epoch / T_0 * (T_mult - 1) + 1, T_mult))",
    "step 1210 with first 10, factor 3: log(243) / log(3) is below 5, so the lowest rate instead of the highest",
)
def warm_restarts():
    """Learning rates that fall along a cosine and begin anew; each cycle is `factor` times as long as the last."""

    def check(first, factor):
        if first < 1 or factor < 1:
            raise ValueError(f"first is {first}, factor is {factor}; give 1 or more")

    def rate(xp, since, length, top, bottom):
        return bottom + 0.5 * (top - bottom) * (1 + xp.cos(math.pi * since / length))

    def wrong(xp, step, first=10, factor=2, top=0.1, bottom=0.0):
        check(first, factor)
        if factor == 1:
            return rate(xp, (step % first).astype("float64"), first, top, bottom)
        cycle = xp.floor(xp.log(step.astype("float64") / first * (factor - 1) + 1) / math.log(factor))
        length = first * float(factor) ** cycle
        return rate(xp, step - (length - first) / (factor - 1), length, top, bottom)

    def right(xp, step, first=10, factor=2, top=0.1, bottom=0.0):
        check(first, factor)
        if factor == 1:
            return rate(xp, (step.astype("int64") % first).astype("float64"), first, top, bottom)
        starts, lengths = [0], [first]
        while starts[-1] + lengths[-1] < 2**63:
            starts.append(starts[-1] + lengths[-1])
            lengths.append(lengths[-1] * factor)
        starts = xp.asarray(starts, dtype="int64")
        lengths = xp.asarray([float(length) for length in lengths], dtype="float64")
        step = step.astype("int64")
        cycle = xp.searchsorted(starts, step, side="right") - 1
        return rate(xp, (step - starts[cycle]).astype("float64"), lengths[cycle], top, bottom)

    def reference(step, first=10, factor=2, top=0.1, bottom=0.0):
        out = np.zeros(step.shape)
        for i in np.ndindex(step.shape):
            since, length = int(step[i]), first
            if factor == 1:
                since %= first
            while since >= length:
                since, length = since - length, length * factor
            out[i] = bottom + 0.5 * (top - bottom) * (1 + math.cos(math.pi * since / length))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="warm_restarts",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                make(100, low=0, high=2000),
                Sample((make((4, 25), low=0, high=2000),), {"factor": 3}),
                Sample((make(60, low=0, high=300),), {"first": 50, "factor": 1, "bottom": 0.01}),
            ],
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=9),), {"first": 0}), ValueError, "first is 0")
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "csr_times_vector",
    "rows are differences of one running sum, so what is in a row reaches those behind it",
    "segment sums by cumsum and subtraction, as in scatter helpers: one inf, NaN or 1e20 spoils the rest",
    "an infinity in the first row: every later row is NaN; 1e20 there: later rows are 0",
)
def csr_times_vector():
    """The product of a matrix in compressed rows and a vector."""

    def wrong(xp, data, indices, indptr, x):
        products = data.astype("float64") * x.astype("float64")[indices]
        sums = xp.concatenate([xp.zeros(1, dtype="float64"), xp.cumsum(products)])
        return (sums[indptr[1:]] - sums[indptr[:-1]]).astype(data.dtype)

    def right(xp, data, indices, indptr, x):
        products = data.astype("float64") * x.astype("float64")[indices]
        rows = xp.searchsorted(indptr, xp.arange(data.shape[0], dtype=indptr.dtype), side="right") - 1
        return xp.bincount(rows, weights=products, minlength=indptr.shape[0] - 1).astype(data.dtype)

    def reference(data, indices, indptr, x):
        out = np.zeros(len(indptr) - 1)
        for row in range(len(out)):
            for i in range(indptr[row], indptr[row + 1]):
                out[row] += data[i] * x[indices[i]]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="csr_times_vector",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (
                    make(12),
                    make(12, dtype="int64", low=0, high=5),
                    make.of([0, 3, 3, 7, 12], dtype="int64"),
                    make(6),
                ),
                (
                    make(200),
                    make(200, dtype="int64", low=0, high=49),
                    make.of(range(0, 201, 5), dtype="int64"),
                    make(50),
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "blockwise_rounding",
    "blocks are taken in the order of memory, results are put back in the order of rows",
    "quantize_blockwise of 8-bit optimizers, which read the storage of tensors that were not contiguous",
    "a transposed matrix: its numbers come back at other places",
)
def blockwise_rounding():
    """Rounds each block of consecutive numbers, row after row, to 255 steps of the block's largest magnitude."""

    def check(block):
        if block < 1:
            raise ValueError(f"block is {block}; give 1 or more")

    def rounded(xp, a, flat, block):
        flat = flat.astype("float64")
        rest = -flat.shape[0] % block
        blocks = xp.concatenate([flat, xp.zeros(rest, dtype="float64")]).reshape(-1, block)
        scale = xp.abs(blocks).max(axis=1, keepdims=True) / 127
        scale = xp.where(scale == 0, 1.0, scale)
        out = xp.rint(blocks / scale) * scale
        return out.reshape(-1)[: flat.shape[0]].reshape(a.shape).astype(a.dtype)

    def wrong(xp, a, block=16):
        check(block)
        return rounded(xp, a, a.ravel(order="K"), block)

    def right(xp, a, block=16):
        check(block)
        return rounded(xp, a, a.reshape(-1), block)

    def reference(a, block=16):
        flat = np.array(a, dtype="float64").reshape(-1)
        for i in range(0, len(flat), block):
            scale = np.abs(flat[i : i + block]).max() / 127
            scale = 1.0 if scale == 0 else scale
            flat[i : i + block] = np.rint(flat[i : i + block] / scale) * scale
        return flat.reshape(a.shape)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="blockwise_rounding",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(100),
                make((6, 32), low=-10, high=10),
                Sample((make((3, 5, 7)),), {"block": 8}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"block": 0}), ValueError, "block is 0")],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "remove_steps",
    "astype without a copy: what is meant for the copy is written to the input",
    "scipy.signal.detrend and its ports: overwrite_data was not respected where the data needed no conversion",
    "a float64 input is changed by the call; a float32 one is not",
)
def remove_steps():
    """Subtracts from each stretch between breaks its mean, along an axis."""

    def parts(length, breaks):
        edges = [0, *breaks, length]
        if any(end < start for start, end in zip(edges, edges[1:], strict=False)):
            raise ValueError(f"breaks are {breaks}; give rising places up to {length}")
        return [(start, end) for start, end in zip(edges, edges[1:], strict=False) if end > start]

    def level(xp, a, work, breaks, axis):
        rows = xp.moveaxis(work, axis, 0)
        for start, end in parts(rows.shape[0], breaks):
            rows[start:end] -= rows[start:end].mean(axis=0)
        return work.astype(a.dtype)

    def wrong(xp, a, breaks=(), axis=-1):
        return level(xp, a, a.astype("float64", copy=False), breaks, axis)

    def right(xp, a, breaks=(), axis=-1):
        return level(xp, a, a.astype("float64"), breaks, axis)

    def reference(a, breaks=(), axis=-1):
        rows = np.moveaxis(a, axis, 0)
        out = np.array(rows, dtype="float64")
        edges = [0, *breaks, len(rows)]
        for i in range(len(edges) - 1):
            part = rows[edges[i] : edges[i + 1]]
            if len(part):
                out[edges[i] : edges[i + 1]] = part - part.mean(axis=0)
        return np.moveaxis(out, 0, axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="remove_steps",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(64),
                Sample((make((3, 40)),), {"breaks": (10, 25)}),
                Sample((make((30, 4)),), {"breaks": (15,), "axis": 0}),
            ],
            error_inputs=lambda make: [ErrorInput(Sample((make(8),), {"breaks": (9,)}), ValueError, "breaks are")],
            reference=reference,
        )

    return wrong, right, declare
