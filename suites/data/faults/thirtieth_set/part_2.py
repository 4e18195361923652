"""Merges, padding, fast paths, rounds, fused options, plans, workspaces, saturation: faults with their twins."""

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
    "chunked_covariance",
    "the merge step counts a shorter last chunk as a whole one",
    "Chan's pairwise update in a reduction kernel: the block size is passed where the count of the block belongs",
    "128 zeros and then a single 8 in both rows, ddof 0: 21.2 instead of 0.492",
)
def chunked_covariance():
    """The covariance of two signals along the last axis, in one pass over chunks of 64; NaN for too few numbers."""
    chunk = 64

    def run(xp, a, b, ddof, size_of):
        total = a.shape[-1]
        if total <= ddof or total == 0:
            return xp.full(a.shape[:-1], float("nan"), dtype=a.dtype)
        wide_a, wide_b = a.astype("float64"), b.astype("float64")
        mean_a = mean_b = moment = xp.zeros(a.shape[:-1], dtype="float64")
        count = 0
        for start in range(0, total, chunk):
            part_a, part_b = wide_a[..., start : start + chunk], wide_b[..., start : start + chunk]
            new_a, new_b = part_a.mean(axis=-1), part_b.mean(axis=-1)
            own = ((part_a - new_a[..., None]) * (part_b - new_b[..., None])).sum(axis=-1)
            size = size_of(part_a)
            step_a, step_b = new_a - mean_a, new_b - mean_b
            moment = moment + own + step_a * step_b * (count * size / (count + size))
            mean_a = mean_a + step_a * (size / (count + size))
            mean_b = mean_b + step_b * (size / (count + size))
            count += size
        return (moment / (total - ddof)).astype(a.dtype)

    def wrong(xp, a, b, ddof=1):
        return run(xp, a, b, ddof, lambda part: chunk)

    def right(xp, a, b, ddof=1):
        return run(xp, a, b, ddof, lambda part: part.shape[-1])

    def reference(a, b, ddof=1):
        if a.shape[-1] <= ddof or a.shape[-1] == 0:
            return np.full(a.shape[:-1], np.nan)
        product = (a - a.mean(-1, keepdims=True)) * (b - b.mean(-1, keepdims=True))
        return product.sum(-1) / (a.shape[-1] - ddof)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="chunked_covariance",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(128), make(128)),
                (make((3, 40)), make((3, 40))),
                Sample((make((2, 192), low=0, high=50), make((2, 192), low=0, high=50)), {"ddof": 0}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "zero_point_matmul",
    "the correction by both zero points counts the padding of the inner axis",
    "int8 products with dp4a: the inner axis K is padded to a multiple of 4, which enters a_zero * b_zero * K",
    "rows of length 3 with a_zero=2, b_zero=5: each result is 10 too large",
)
def zero_point_matmul():
    """(a - a_zero) @ (b - b_zero) for int8 matrices, added up in int32, four products at a time."""

    def run(xp, a, b, a_zero, b_zero, padded):
        inner = a.shape[-1]
        more = -inner % 4
        left, right = a.astype("int32"), b.astype("int32")
        if more:
            left = xp.concatenate([left, xp.zeros((a.shape[0], more), dtype="int32")], axis=1)
            right = xp.concatenate([right, xp.zeros((more, b.shape[1]), dtype="int32")], axis=0)
        rows, columns = left.sum(axis=1, keepdims=True), right.sum(axis=0, keepdims=True)
        length = left.shape[1] if padded else inner
        out = left @ right - b_zero * rows - a_zero * columns + length * a_zero * b_zero
        return out.astype("int32")

    def wrong(xp, a, b, a_zero=0, b_zero=0):
        return run(xp, a, b, a_zero, b_zero, True)

    def right(xp, a, b, a_zero=0, b_zero=0):
        return run(xp, a, b, a_zero, b_zero, False)

    def reference(a, b, a_zero=0, b_zero=0):
        return (a.astype("int64") - a_zero) @ (b.astype("int64") - b_zero)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="zero_point_matmul",
            dtypes=("int8",),
            result_dtype="int32",
            samples=lambda make: [
                (make((4, 30), low=-128, high=127), make((30, 6), low=-128, high=127)),
                Sample((make((3, 10), low=-128, high=127), make((10, 5), low=-128, high=127)), {"a_zero": 7}),
                Sample(
                    (make((5, 16), low=-128, high=127), make((16, 7), low=-128, high=127)),
                    {"a_zero": 3, "b_zero": -5},
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "bray_curtis_matrix",
    "the fast path for a square result takes both sets for one",
    "pairwise-distance kernels that compute half of a square result and mirror it, because X against X is square",
    "x = [[1]], y = [[3]]: 0 instead of 0.5",
)
def bray_curtis_matrix():
    """sum |x - y| / sum (x + y) of each row of x with each row of y; 0 where both rows are zero."""

    def compare(xp, x, y):
        x, y = x.astype("float64")[:, None, :], y.astype("float64")[None, :, :]
        apart, together = xp.abs(x - y).sum(axis=-1), (x + y).sum(axis=-1)
        return xp.where(together > 0, apart / xp.where(together > 0, together, 1.0), 0.0)

    def wrong(xp, x, y):
        out = compare(xp, x, y)
        if x.shape[0] == y.shape[0]:
            place = xp.arange(x.shape[0])
            upper = xp.where(place[:, None] < place[None, :], out, 0.0)
            out = upper + upper.T
        return out.astype(x.dtype)

    def right(xp, x, y):
        return compare(xp, x, y).astype(x.dtype)

    def reference(x, y):
        out = np.zeros((len(x), len(y)))
        for i, j in np.ndindex(out.shape):
            together = (x[i] + y[j]).sum()
            if together > 0:
                out[i, j] = np.abs(x[i] - y[j]).sum() / together
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bray_curtis_matrix",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 5), low=0, high=10), make((9, 5), low=0, high=10)),
                (make((20, 3), low=0, high=1), make((4, 3), low=0, high=1)),
                (make((1, 8), low=0, high=100), make((7, 8), low=0, high=100)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "version_roots",
    "one round of pointer jumping too few for long chains",
    "pointer jumping with floor instead of ceil of log2(n) rounds",
    "40 versions, each one step back from the next: the last 7 get the roots 1 to 7 instead of 0",
)
def version_roots():
    """The first ancestor of each version along the last axis; it comes from that `back` places before; 0: from none."""

    def run(xp, back, rounds):
        length = back.shape[-1]
        place = xp.broadcast_to(xp.arange(length, dtype="int64"), back.shape)
        parent = xp.maximum(place - back.astype("int64"), 0)
        for _ in range(rounds):
            parent = xp.take_along_axis(parent, parent, axis=-1)
        return parent

    def wrong(xp, back):
        return run(xp, back, max(back.shape[-1].bit_length() - 1, 0))

    def right(xp, back):
        return run(xp, back, max(back.shape[-1] - 1, 0).bit_length())

    def reference(back):
        out = np.zeros(back.shape, dtype="int64")
        for at in np.ndindex(back.shape):
            step = int(back[at])
            out[at] = out[(*at[:-1], max(at[-1] - step, 0))] if step and at[-1] else at[-1]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="version_roots",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make(40, low=0, high=6),
                make((3, 17), low=0, high=3),
                make((2, 2, 9), low=0, high=9),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "sgd_update",
    "maximize turns the sign of the weight decay too",
    "fused SGD in torch.optim: the gradient is negated before the decay is added, and a fused kernel swapped the two",
    "param [1], grad [0], lr=1, weight_decay=0.5, maximize=True: 1.5 instead of 0.5",
)
def sgd_update():
    """A later step of torch.optim.SGD, from the velocity so far: the new parameters and the new velocity."""

    def check(lr):
        if lr < 0:
            raise ValueError(f"lr is {lr}; give 0 or more")

    def step(param, grad, velocity, lr, momentum, nesterov):
        velocity = momentum * velocity + grad
        move = grad + momentum * velocity if nesterov else velocity
        return param - lr * move, velocity

    def wrong(xp, param, grad, velocity, lr=0.1, momentum=0.9, weight_decay=0.0, maximize=False, nesterov=False):
        check(lr)
        grad = grad + weight_decay * param
        if maximize:
            grad = -grad
        return step(param, grad, velocity, lr, momentum, nesterov)

    def right(xp, param, grad, velocity, lr=0.1, momentum=0.9, weight_decay=0.0, maximize=False, nesterov=False):
        check(lr)
        if maximize:
            grad = -grad
        grad = grad + weight_decay * param
        return step(param, grad, velocity, lr, momentum, nesterov)

    def reference(param, grad, velocity, lr=0.1, momentum=0.9, weight_decay=0.0, maximize=False, nesterov=False):
        grad = (-1 if maximize else 1) * grad + weight_decay * param
        velocity = momentum * velocity + grad
        return param - lr * (grad + momentum * velocity if nesterov else velocity), velocity

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sgd_update",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(100), make(100), make(100)),
                Sample((make((4, 9)), make((4, 9)), make((4, 9))), {"weight_decay": 0.05, "nesterov": True}),
                Sample((make((7, 3)), make((7, 3)), make((7, 3))), {"lr": 0.5, "maximize": True}),
                Sample((make(33), make(33), make(33)), {"momentum": 0.0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(4), make(4)), {"lr": -1.0}), ValueError, "lr is -1")
            ],
        )

    return wrong, right, declare


@pair(
    "cosine_transform",
    "the cache of plans has the length as its key, without the option of scaling",
    "cached DCT and FFT plans: the normalisation became part of the plan but not of its key",
    "length 1: after a call without ortho, [3] with ortho gives 6 instead of 3",
)
def cosine_transform():
    """The DCT of type 2 along the last axis, as scipy.fft.dct(a, norm="ortho" if ortho else None)."""

    def plan(length, ortho):
        at = np.arange(length)
        matrix = 2 * np.cos(np.pi * ((2 * at[:, None] + 1) * at[None, :]) / (2 * length))
        if ortho:
            matrix *= np.sqrt(np.where(at == 0, 1, 2) / (4 * length))
        return matrix

    def run(xp, a, plans, key, ortho):
        if key not in plans:
            if len(plans) == 64:
                plans.clear()
            plans[key] = plan(a.shape[-1], ortho)
        return (a.astype("float64") @ xp.asarray(plans[key])).astype(a.dtype)

    by_length: dict[Any, Any] = {}
    by_both: dict[Any, Any] = {}

    def wrong(xp, a, ortho=False):
        return run(xp, a, by_length, a.shape[-1], ortho)

    def right(xp, a, ortho=False):
        return run(xp, a, by_both, (a.shape[-1], ortho), ortho)

    def reference(a, ortho=False):
        length = a.shape[-1]
        out = np.zeros(a.shape)
        for k in range(length):
            out[..., k] = 2 * (a * np.cos(np.pi * ((2 * np.arange(length) + 1) * k) / (2 * length))).sum(-1)
            if ortho:
                out[..., k] /= np.sqrt((2 if k else 4) * length)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="cosine_transform",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 16)),
                make(45),
                Sample((make((2, 3, 32)),), {"ortho": True}),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "block_span",
    "the workspace is not cleared before a shorter last block",
    "staging a tile in shared memory: the last tile loads fewer numbers, and the reduction runs over the whole tile",
    "[0, 9, 1] with size=2: the last block spans 8 instead of 0",
)
def block_span():
    """The largest minus the smallest number of each block of `size` along the last axis; the last may be shorter."""

    def check(size):
        if size < 1:
            raise ValueError(f"size is {size}; give 1 or more")

    def run(xp, a, size, whole):
        check(size)
        length = a.shape[-1]
        out = xp.zeros((*a.shape[:-1], -(-length // size)), dtype=a.dtype)
        if length == 0:
            return out
        tile = xp.zeros((*a.shape[:-1], size), dtype=a.dtype)
        tile[...] = a[..., :1]
        for block, start in enumerate(range(0, length, size)):
            many = min(size, length - start)
            tile[..., :many] = a[..., start : start + many]
            used = tile if whole else tile[..., :many]
            out[..., block] = used.max(axis=-1) - used.min(axis=-1)
        return out

    def wrong(xp, a, size=32):
        return run(xp, a, size, True)

    def right(xp, a, size=32):
        return run(xp, a, size, False)

    def reference(a, size=32):
        blocks = [a[..., start : start + size] for start in range(0, a.shape[-1], size)]
        out = np.zeros((*a.shape[:-1], len(blocks)))
        for k, block in enumerate(blocks):
            out[..., k] = block.max(-1) - block.min(-1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="block_span",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(96),
                Sample((make((4, 40)),), {"size": 8}),
                Sample((make((2, 3, 20)),), {"size": 64}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"size": 0}), ValueError, "size is 0")],
        )

    return wrong, right, declare


@pair(
    "batched_pick",
    "the row of the order is the row of the result modulo its number of rows",
    "gather kernels that flatten the batch axes: a modulus is right for broadcast leading axes only",
    "values (2, 2, 2) and order (2, 1, 2) = [[[0, 1]], [[1, 0]]]: the second and third rows of the result are reversed",
)
def batched_pick():
    """Numbers of `values` at the places in `order` along the last axis; the other axes are broadcast, as in NumPy."""

    def gather(xp, values, rows, order):
        flat = values.reshape(-1)
        return xp.take(flat, rows * values.shape[-1] + order)

    def wrong(xp, values, order):
        batch = np.broadcast_shapes(values.shape[:-1], order.shape[:-1])
        places, many = order.shape[-1], int(np.prod(batch, dtype="int64"))
        if many * places == 0:
            return xp.zeros((*batch, places), dtype=values.dtype)
        rows = xp.arange(many, dtype="int64")
        sets = int(np.prod(order.shape[:-1], dtype="int64"))
        groups = int(np.prod(values.shape[:-1], dtype="int64"))
        picked = xp.take(order.astype("int64").reshape((sets, places)), rows % sets, axis=0)
        return gather(xp, values, (rows % groups)[:, None], picked).reshape((*batch, places))

    def right(xp, values, order):
        batch = np.broadcast_shapes(values.shape[:-1], order.shape[:-1])
        places = order.shape[-1]
        if int(np.prod(batch, dtype="int64")) * places == 0:
            return xp.zeros((*batch, places), dtype=values.dtype)
        groups = int(np.prod(values.shape[:-1], dtype="int64"))
        rows = xp.arange(groups, dtype="int64").reshape((*values.shape[:-1], 1))
        rows = xp.broadcast_to(rows, (*batch, places))
        return gather(xp, values, rows, xp.broadcast_to(order.astype("int64"), (*batch, places)))

    def reference(values, order):
        batch = np.broadcast_shapes(values.shape[:-1], order.shape[:-1])
        values = np.broadcast_to(values, (*batch, values.shape[-1]))
        order = np.broadcast_to(order, (*batch, order.shape[-1]))
        out = np.zeros(order.shape, dtype=values.dtype)
        for at in np.ndindex(batch):
            out[at] = values[at][order[at]]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="batched_pick",
            dtypes=("float32", "int32"),
            result_dtype=lambda values, order: values,
            samples=lambda make: [
                (make((4, 9)), make((4, 6), dtype="int64", low=0, high=8)),
                (make((2, 3, 8)), make((2, 3, 8), dtype="int64", low=0, high=7)),
                (make((2, 3, 8)), make((1, 3, 5), dtype="int64", low=0, high=7)),
                Sample((make((5, 7)), make(4, dtype="int64", low=0, high=6)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "q15_product",
    "the one product that does not fit wraps around instead of saturating",
    "CMSIS-DSP's arm_mult_q15 saturates; rewrites leave it out, because only -1 times -1 overflows",
    "-32768 times -32768: -32768 instead of 32767",
)
def q15_product():
    """The product of two fractions in Q15: rounded, halves upwards, and saturated to int16."""

    def scaled(a, b):
        return (a.astype("int32") * b.astype("int32") + (1 << 14)) >> 15

    def wrong(xp, a, b):
        return scaled(a, b).astype("int16")

    def right(xp, a, b):
        return xp.minimum(scaled(a, b), 32767).astype("int16")

    def reference(a, b):
        return np.clip(np.floor(a.astype("float64") * b / 32768 + 0.5), -32768, 32767).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="q15_product",
            dtypes=("int16",),
            samples=lambda make: [
                (make(200, low=-32768, high=32767), make(200, low=-32768, high=32767)),
                (make((5, 33), low=-32768, high=32767), make((5, 33), low=-400, high=400)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "softplus_beta",
    "the linear range begins at a limit of x instead of one of beta * x",
    "torch.nn.Softplus: the threshold applies to beta * x; kernels that were written for beta=1 compare x",
    "50 with beta=0.02: 50 instead of 65.7",
)
def softplus_beta():
    """log(1 + exp(beta * x)) / beta; x itself where exp(beta * x) would swamp the 1."""
    limit = 40.0

    def run(xp, a, beta, is_linear):
        if not beta > 0:
            raise ValueError(f"beta is {beta}; give more than 0")
        scaled = beta * a
        curve = xp.log1p(xp.exp(xp.minimum(scaled, limit))) / beta
        return xp.where(is_linear(a, scaled), a, curve)

    def wrong(xp, a, beta=1.0):
        return run(xp, a, beta, lambda a, scaled: a > limit)

    def right(xp, a, beta=1.0):
        return run(xp, a, beta, lambda a, scaled: scaled > limit)

    def reference(a, beta=1.0):
        return np.logaddexp(0, beta * a) / beta

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="softplus_beta",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 50)),
                make(64, low=-90, high=90),
                Sample((make((4, 25)),), {"beta": 2.0}),
                Sample((make(100),), {"beta": 0.25}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"beta": 0.0}), ValueError, "beta is 0")],
        )

    return wrong, right, declare


@pair(
    "table_lookup",
    "keys are padded to whole warps with 0, and the query 0 finds the padding",
    "hash tables in CUDA whose empty slot is marked by a number that may also be a key",
    "query [0], keys [5], values [7], default=-1: 0 instead of -1",
)
def table_lookup():
    """The value whose key equals each query, the first of equal keys; `default` where there is none."""
    warp = 32

    def run(xp, query, keys, values, default, padding_counts):
        length = keys.shape[0]
        if length == 0:
            return xp.full(query.shape, default, dtype=values.dtype)
        more = -length % warp
        slots = xp.concatenate([keys.astype("int64"), xp.zeros(more, dtype="int64")])
        held = xp.concatenate([values, xp.zeros(more, dtype=values.dtype)])
        same = query.astype("int64")[..., None] == slots
        if not padding_counts:
            same = same & (xp.arange(length + more) < length)
        found = xp.take(held, same.argmax(axis=-1))
        return xp.where(same.any(axis=-1), found, default).astype(values.dtype)

    def wrong(xp, query, keys, values, default=-1):
        return run(xp, query, keys, values, default, True)

    def right(xp, query, keys, values, default=-1):
        return run(xp, query, keys, values, default, False)

    def reference(query, keys, values, default=-1):
        table = {}
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            table.setdefault(key, value)
        out = np.full(query.shape, default, dtype=values.dtype)
        for at in np.ndindex(query.shape):
            out[at] = table.get(int(query[at]), default)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="table_lookup",
            dtypes=("int32", "float32"),
            result_dtype=lambda query, keys, values: values,
            samples=lambda make: [
                (
                    make((4, 10), dtype="int64", low=0, high=1000),
                    make(200, dtype="int64", low=0, high=1000),
                    make(200),
                ),
                Sample(
                    (
                        make(30, dtype="int64", low=0, high=300),
                        make(64, dtype="int64", low=0, high=300),
                        make(64),
                    ),
                    {"default": 5},
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "image_sampling",
    "points exactly on the last row or column count as outside",
    "bilinear gathers with the test x < width - 1, which keeps the load of the right neighbour in bounds",
    "image [[1, 2], [3, 4]], row 0, column 1: 0 instead of 2",
)
def image_sampling():
    """An image at the points (rows, columns) by bilinear interpolation; `fill` for points outside of the image."""

    def run(xp, image, rows, columns, fill, is_inside):
        height, width = image.shape
        if height == 0 or width == 0:
            return xp.full(rows.shape, fill, dtype=image.dtype)
        inside = is_inside(rows, height) & is_inside(columns, width)
        y = xp.where(inside, rows, 0.0).astype("float64")
        x = xp.where(inside, columns, 0.0).astype("float64")
        top, left = xp.floor(y).astype("int64"), xp.floor(x).astype("int64")
        bottom, across = xp.minimum(top + 1, height - 1), xp.minimum(left + 1, width - 1)
        flat = image.astype("float64").reshape(-1)
        down, over = y - top, x - left
        upper = xp.take(flat, top * width + left) * (1 - over) + xp.take(flat, top * width + across) * over
        lower = xp.take(flat, bottom * width + left) * (1 - over) + xp.take(flat, bottom * width + across) * over
        return xp.where(inside, upper * (1 - down) + lower * down, fill).astype(image.dtype)

    def wrong(xp, image, rows, columns, fill=0.0):
        return run(xp, image, rows, columns, fill, lambda at, size: (at >= 0) & (at < size - 1))

    def right(xp, image, rows, columns, fill=0.0):
        return run(xp, image, rows, columns, fill, lambda at, size: (at >= 0) & (at <= size - 1))

    def reference(image, rows, columns, fill=0.0):
        height, width = image.shape
        out = np.full(rows.shape, float(fill))
        for at in np.ndindex(rows.shape):
            y, x = rows[at], columns[at]
            if 0 <= y <= height - 1 and 0 <= x <= width - 1:
                weights_y = np.clip(1 - np.abs(np.arange(height) - y), 0, None)
                weights_x = np.clip(1 - np.abs(np.arange(width) - x), 0, None)
                out[at] = weights_y @ image @ weights_x
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="image_sampling",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 7)), make(40, low=0, high=5), make(40, low=0, high=6)),
                (make((3, 9)), make((4, 5), low=-1, high=3), make((4, 5), low=-2, high=9)),
                Sample((make((5, 5)), make(30, low=-2, high=6), make(30, low=-2, high=6)), {"fill": -1.0}),
            ],
            reference=reference,
        )

    return wrong, right, declare
