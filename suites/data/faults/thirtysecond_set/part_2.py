"""Kernels ported by hand, with tiles, pages, tables, narrow counters and padding: faults with their twins."""

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
    "dot4_rows",
    "of a remainder of three elements the third is left out",
    "ports to __dp4a with a tail of a char2 load or a single load, written as if and else if",
    "rows of 7 elements: the last product is missing from the sum",
)
def dot4_rows():
    """Dot products of rows of 8-bit integers, four elements at a time, in 32 bits."""

    def quads(xp, a, b):
        products = a.astype("int32") * b.astype("int32")
        whole = products.shape[-1] // 4 * 4
        fours = products[..., :whole].reshape((*products.shape[:-1], whole // 4, 4))
        return products[..., whole:], fours.sum(axis=-1).sum(axis=-1)

    def wrong(xp, a, b):
        tail, total = quads(xp, a, b)
        if tail.shape[-1] >= 2:
            total = total + tail[..., 0] + tail[..., 1]
        elif tail.shape[-1] == 1:
            total = total + tail[..., 0]
        return total.astype("int32")

    def right(xp, a, b):
        tail, total = quads(xp, a, b)
        for i in range(tail.shape[-1]):
            total = total + tail[..., i]
        return total.astype("int32")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="dot4_rows",
            dtypes=("int8",),
            result_dtype="int32",
            samples=lambda make: [
                (make((5, 64)), make((5, 64))),
                (make((3, 33), low=-128, high=127), make((3, 33), low=-128, high=127)),
                (make((2, 4, 18)), make((2, 4, 18))),
                Sample((make((0, 16)), make((0, 16))), kind="empty"),
            ],
            reference=lambda a, b: (a.astype("int64") * b.astype("int64")).sum(axis=-1),
        )

    return wrong, right, declare


@pair(
    "halo_sums",
    "a last tile that is shorter than the radius loads only part of its left halo",
    "the shared-memory stencil of CUDA tutorials: threads below the radius load the halo, after a test i < n",
    "33 ones with radius 2 and tiles of 32: the last sum is 2 where 3 is right, as one halo cell was never filled",
)
def halo_sums():
    """Sums over windows of `radius` elements to each side, with zeros beyond the ends."""
    tile = 32

    def check(radius):
        if radius < 0:
            raise ValueError(f"radius is {radius}; give 0 or more")

    def padded(xp, a, radius):
        zeros = xp.zeros((*a.shape[:-1], radius), dtype=a.dtype)
        return xp.concatenate([zeros, a, zeros], axis=-1)

    def windows(xp, wide, radius):
        n = wide.shape[-1] - 2 * radius
        total = wide[..., :n].astype("float64")
        for k in range(1, 2 * radius + 1):
            total = total + wide[..., k : k + n].astype("float64")
        return total.astype(wide.dtype)

    def wrong(xp, a, radius=2):
        check(radius)
        wide = padded(xp, a, radius)
        out = windows(xp, wide, radius)
        active = a.shape[-1] % tile
        if 0 < active < radius:
            start = a.shape[-1] - active
            loaded = xp.array(wide[..., start:])
            loaded[..., active:radius] = 0  # the threads from `active` on had returned
            out[..., start:] = windows(xp, loaded, radius)
        return out

    def right(xp, a, radius=2):
        check(radius)
        return windows(xp, padded(xp, a, radius), radius)

    def reference(a, radius=2):
        check(radius)
        out = np.zeros(a.shape)
        for i in range(a.shape[-1]):
            for k in range(max(i - radius, 0), min(i + radius + 1, a.shape[-1])):
                out[..., i] += a[..., k]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="halo_sums",
            dtypes=("float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(100),
                make((3, 50)),
                Sample((make(64),), {"radius": 4}),
                Sample((make((2, 20)),), {"radius": 1}),
                Sample((make((0, 8)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(9),), {"radius": -1}), ValueError, "radius is -1")],
        )

    return wrong, right, declare


@pair(
    "paged_value_sums",
    "a sequence that fills its last page exactly also reads the page after it",
    "decode kernels over a paged cache: length // page + 1 pages, the last one with (length - 1) % page + 1 tokens",
    "a length of 16 with pages of 8 and a table of three pages: all of the third page is added",
)
def paged_value_sums():
    """The sum of the first tokens of each sequence, whose values lie in the pages that its table names."""

    def total(xp, pages, table, keep):
        values = pages[table]  # sequences, pages of each, tokens of a page, width
        zero = xp.zeros((), dtype="float64")
        return xp.where(keep[..., None], values.astype("float64"), zero).sum(axis=2).sum(axis=1).astype(pages.dtype)

    def places(xp, pages, table):
        return xp.arange(table.shape[1])[None, :, None], xp.arange(pages.shape[1])[None, None, :]

    def wrong(xp, pages, table, lengths):
        page, slot = places(xp, pages, table)
        size, lengths = pages.shape[1], lengths[:, None, None]
        last = lengths // size
        in_last = xp.where(lengths > 0, (lengths - 1) % size + 1, 0)
        return total(xp, pages, table, (page < last) | ((page == last) & (slot < in_last)))

    def right(xp, pages, table, lengths):
        page, slot = places(xp, pages, table)
        return total(xp, pages, table, page * pages.shape[1] + slot < lengths[:, None, None])

    def reference(pages, table, lengths):
        out = np.zeros((table.shape[0], pages.shape[2]))
        for i, length in enumerate(lengths):
            tokens = pages[table[i]].reshape(-1, pages.shape[2])
            out[i] = tokens[: max(int(length), 0)].sum(axis=0)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="paged_value_sums",
            dtypes=("float16", "float32"),
            result_dtype=lambda pages, *_: pages,
            samples=lambda make: [
                (
                    make((6, 8, 5)),
                    make((4, 3), dtype="int64", low=0, high=5),
                    make(4, dtype="int64", low=0, high=24),
                ),
                (
                    make((9, 16, 3)),
                    make((3, 2), dtype="int64", low=0, high=8),
                    make(3, dtype="int64", low=1, high=32),
                ),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "compact_kept",
    "the number of kept elements of a block is passed on in 8 bits",
    "stream compaction with blocks of 256 threads and byte counters in shared memory: 256 does not fit",
    "300 elements that are all kept: the second block is written over the start of the first",
)
def compact_kept():
    """The elements that a mask keeps, in order, followed by zeros; one block of 256 after the other."""
    block = 256

    def compact(xp, values, keep, count):
        out = xp.zeros_like(values)
        base = 0
        for start in range(0, values.shape[0], block):
            kept = values[start : start + block][keep[start : start + block]]
            out[base : base + kept.shape[0]] = kept
            base += count(kept.shape[0])
        return out

    def wrong(xp, values, keep):
        return compact(xp, values, keep, lambda kept: kept & 0xFF)

    def right(xp, values, keep):
        return compact(xp, values, keep, lambda kept: kept)

    def reference(values, keep):
        out = np.zeros_like(values)
        kept = values[np.asarray(keep, dtype=bool)]
        out[: len(kept)] = kept
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="compact_kept",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                (make(100), make(100, dtype="bool")),
                (make(1000), make(1000, dtype="bool")),
                Sample((make(0), make(0, dtype="bool")), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "windowed_scores",
    "the mask is kept for the next call by its shape, without the width of the window",
    "models that mix layers of full and of sliding attention and keep one mask for each pair of lengths",
    "window=4 after window=2 with scores of the same shape: the mask of the first call is applied again",
)
def windowed_scores():
    """Attention scores with -inf where a query may not look: ahead of itself, or `window` or more keys back."""
    by_shape = {}
    by_shape_and_window = {}

    def visible(queries, keys, window):
        back = np.arange(queries)[:, None] + (keys - queries) - np.arange(keys)
        return (back >= 0) & (back < window)

    def check(window):
        if window < 1:
            raise ValueError(f"window is {window}; give 1 or more")

    def apply(xp, scores, mask):
        return xp.where(xp.asarray(mask), scores, xp.full_like(scores, -math.inf))

    def wrong(xp, scores, window=8):
        check(window)
        key = scores.shape[-2:]
        if key not in by_shape:
            by_shape[key] = visible(*key, window)
        return apply(xp, scores, by_shape[key])

    def right(xp, scores, window=8):
        check(window)
        key = (*scores.shape[-2:], window)
        if key not in by_shape_and_window:
            by_shape_and_window[key] = visible(*key)
        return apply(xp, scores, by_shape_and_window[key])

    def reference(scores, window=8):
        check(window)
        queries, keys = scores.shape[-2:]
        out = np.full(scores.shape, -math.inf)
        for i in range(queries):
            end = i + keys - queries + 1
            kept = slice(max(end - window, 0), max(end, 0))
            out[..., i, kept] = scores[..., i, kept]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="windowed_scores",
            dtypes=("float16", "float32"),
            result_dtype=lambda scores: scores,
            samples=lambda make: [
                make((2, 20, 20)),
                make((1, 24)),
                Sample((make((3, 6, 14)),), {"window": 3}),
                Sample((make((2, 2, 9, 9)),), {"window": 5}),
                Sample((make((0, 4, 4)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((4, 4)),), {"window": 0}), ValueError, "window is 0")],
        )

    return wrong, right, declare


@pair(
    "discounted_total",
    "a table of powers that is kept between calls repeats its last entry where it is made longer",
    "tables in constant memory that grow on demand: the new part starts at the last power, not at the one after",
    "3 rewards and then 6 with the same discount: the weight of the third is used for the fourth too",
)
def discounted_total():
    """The sum of rewards along the last axis, each discounted by a power of `gamma`."""
    grown_wrongly = {}
    grown = {}

    def check(gamma):
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma is {gamma}; give 0 to 1")

    def finish(xp, rewards, table):
        powers = xp.asarray(table[: rewards.shape[-1]])
        return (rewards.astype("float64") * powers).sum(axis=-1).astype(rewards.dtype)

    def wrong(xp, rewards, gamma=0.9):
        check(gamma)
        length = rewards.shape[-1]
        if gamma not in grown_wrongly:
            grown_wrongly[gamma] = gamma ** np.arange(max(length, 1), dtype="float64")
        table = grown_wrongly[gamma]
        if len(table) < length:
            more = table[-1] * gamma ** np.arange(length - len(table), dtype="float64")
            table = grown_wrongly[gamma] = np.concatenate([table, more])
        return finish(xp, rewards, table)

    def right(xp, rewards, gamma=0.9):
        check(gamma)
        length = rewards.shape[-1]
        if gamma not in grown or len(grown[gamma]) < length:
            grown[gamma] = gamma ** np.arange(length, dtype="float64")
        return finish(xp, rewards, grown[gamma])

    def reference(rewards, gamma=0.9):
        check(gamma)
        return (rewards * gamma ** np.arange(rewards.shape[-1], dtype="float64")).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="discounted_total",
            dtypes=("float16", "float32"),
            result_dtype=lambda rewards: rewards,
            samples=lambda make: [
                make(40),
                make((5, 25)),
                Sample((make((2, 3, 10)),), {"gamma": 0.5}),
                Sample((make(16),), {"gamma": 1.0}),
                Sample((make((0, 6)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"gamma": 1.5}), ValueError, "gamma is 1.5")],
        )

    return wrong, right, declare


@pair(
    "group_peak",
    "a negative zero is lost",
    "atomicMax for floats by integers: the sign is tested with value >= 0, and -0.0 is then the smallest integer",
    "a group that holds only -0.0 has the peak -inf; one of -0.0 and -1 has the peak -1",
)
def group_peak():
    """The largest value of each group, NaN if one of them is NaN, -inf for a group without values."""

    def check(groups):
        if groups < 1:
            raise ValueError(f"groups is {groups}; give 1 or more")

    def peaks(xp, values, ids, groups):
        lowest = xp.full((groups, values.shape[0] + 1), -math.inf, dtype=values.dtype)
        if values.shape[0]:
            member = ids[None, :] == xp.arange(groups)[:, None]
            lowest[:, 1:] = xp.where(member, values[None, :], lowest[:, 1:])
        return lowest.max(axis=1)

    def wrong(xp, values, ids, groups=8):
        check(groups)
        # as a signed integer -0.0 is below all other bits, so that the atomic maximum never stores it
        lost = (values == 0) & xp.signbit(values)
        return peaks(xp, xp.where(lost, xp.full_like(values, -math.inf), values), ids, groups)

    def right(xp, values, ids, groups=8):
        check(groups)
        return peaks(xp, values, ids, groups)

    def reference(values, ids, groups=8):
        check(groups)
        out = np.full(groups, -math.inf)
        for value, i in zip(values, ids, strict=True):
            if 0 <= i < groups:
                out[i] = np.maximum(out[i], value)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="group_peak",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda values, *_: values,
            samples=lambda make: [
                (make(60), make(60, dtype="int64", low=0, high=7)),
                (make(5), make(5, dtype="int64", low=0, high=7)),
                Sample((make(33), make(33, dtype="int64", low=0, high=3)), {"groups": 4}),
                Sample((make(0), make(0, dtype="int64", low=0, high=7)), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(3), make(3, dtype="int64", low=0, high=2)), {"groups": 0}), ValueError, "groups"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "bitonic_sorted",
    "the padding is the largest finite number",
    "bitonic sorts that fill up to a power of two with FLT_MAX: infinities and NaN sort behind the filling",
    "[inf, 1, 2]: the result ends with the largest finite number, and the infinity is lost",
)
def bitonic_sorted():
    """Rows in ascending order, NaN last; each is sorted at the length of the next power of two."""

    def sorted_with(xp, a, filling):
        n = a.shape[-1]
        if n == 0:
            return xp.array(a)
        width = 1 << (n - 1).bit_length()
        fill = xp.full((*a.shape[:-1], width - n), filling, dtype=a.dtype)
        return xp.array(xp.sort(xp.concatenate([a, fill], axis=-1), axis=-1)[..., :n])

    def wrong(xp, a):
        return sorted_with(xp, a, float(np.finfo(str(a.dtype)).max))

    def right(xp, a):
        return sorted_with(xp, a, math.nan)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="bitonic_sorted",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(64),
                make((4, 50)),
                make((3, 7), low=-1000, high=1000),
                Sample((make((0, 5)),), kind="empty"),
            ],
            reference=lambda a: np.sort(a, axis=-1),
        )

    return wrong, right, declare


@pair(
    "two_best_experts",
    "the first choice is excluded by -inf, so that it can be chosen again among experts that are masked by -inf",
    "gates that take the arg max twice, with -inf written over the first choice; masked experts have -inf as well",
    "logits [2, -inf, -inf]: expert 0 is both the first and the second choice",
)
def two_best_experts():
    """The numbers of the best and the second best expert of each token; the lower number first among equal ones.

    NaN counts as -inf.
    """

    def check(logits):
        if logits.ndim == 0 or logits.shape[-1] < 2:
            raise ValueError("give two experts or more")

    def clean(xp, logits):
        return xp.where(xp.isnan(logits), xp.full_like(logits, -math.inf), logits)

    def wrong(xp, logits):
        check(logits)
        logits = clean(xp, logits)
        first = xp.argmax(logits, axis=-1)
        taken = xp.arange(logits.shape[-1]) == first[..., None]
        second = xp.argmax(xp.where(taken, xp.full_like(logits, -math.inf), logits), axis=-1)
        return xp.stack([first, second], axis=-1).astype("int64")

    def right(xp, logits):
        check(logits)
        logits = clean(xp, logits)
        number = xp.arange(logits.shape[-1])
        this, other = logits[..., :, None], logits[..., None, :]
        before = (other > this) | ((other == this) & (number[None, :] < number[:, None]))
        rank = before.astype("int64").sum(axis=-1)
        return xp.stack([(xp.where(rank == r, number, 0)).sum(axis=-1) for r in (0, 1)], axis=-1).astype("int64")

    def reference(logits):
        check(logits)
        logits = np.where(np.isnan(logits), -math.inf, logits)
        return np.argsort(-logits, axis=-1, kind="stable")[..., :2]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="two_best_experts",
            dtypes=("float16", "float32"),
            result_dtype="int64",
            samples=lambda make: [
                make((30, 8)),
                make((5, 3)),
                make((2, 7, 16), low=-50, high=50),
                Sample((make((0, 4)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(make((3, 1)), ValueError, "two experts")],
        )

    return wrong, right, declare


@pair(
    "noisy_int8",
    "the number is limited to 8 bits before the noise is added, not after",
    "stochastic rounding with curand_uniform, whose numbers include 1: 127 and noise 1 is 128, which wraps around",
    "the number 130 with noise 1: the result is -128 where 127 is right; -130 with noise 1 gives -127",
)
def noisy_int8():
    """Numbers over `scale` in 8 bits, rounded down after noise from 0 to 1 is added; NaN gives 0."""

    def check(scale):
        if scale <= 0:
            raise ValueError(f"scale is {scale}; give more than 0")

    def to_int8(xp, numbers):
        return xp.where(xp.isnan(numbers), xp.zeros_like(numbers), numbers).astype("int32").astype("int8")

    def wrong(xp, a, noise, scale=1.0):
        check(scale)
        limited = xp.clip(a.astype("float64") / scale, -128.0, 127.0)
        return to_int8(xp, xp.floor(limited + noise.astype("float64")))

    def right(xp, a, noise, scale=1.0):
        check(scale)
        noisy = xp.floor(a.astype("float64") / scale + noise.astype("float64"))
        return to_int8(xp, xp.clip(noisy, -128.0, 127.0))

    def reference(a, noise, scale=1.0):
        check(scale)
        noisy = np.floor(a / scale + noise)
        return np.where(np.isnan(noisy), 0, np.minimum(np.maximum(noisy, -128), 127))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="noisy_int8",
            dtypes=("float16", "float32"),
            result_dtype="int8",
            samples=lambda make: [
                (make(100, low=-150, high=150), make(100, low=0, high=1)),
                (make((4, 31)), make((4, 31), low=0, high=1)),
                Sample((make((3, 20)), make((3, 20), low=0, high=1)), {"scale": 0.02}),
                Sample((make((0, 3)), make((0, 3), low=0, high=1)), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(4, low=0, high=1)), {"scale": 0}), ValueError, "scale is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "first_seen",
    "the mark of an empty slot is also a possible key",
    "hash tables with INT_MAX as the empty key: atomicCAS finds the slot of such a key empty each time",
    "the key 2147483647 twice: the second one is also reported as new",
)
def first_seen():
    """For each key the place at which it occurs first."""
    empty = 2**31 - 1

    def find(xp, keys):
        n = keys.shape[0]
        order = xp.argsort(keys, kind="stable")
        ordered = keys[order]
        new = xp.ones(n, dtype="int64")
        new[1:] = (ordered[1:] != ordered[:-1]).astype("int64")
        run = xp.cumsum(new) - 1
        starts = order[xp.nonzero(new)[0]]
        out = xp.zeros(n, dtype="int64")
        out[order] = starts[run]
        return out

    def wrong(xp, keys):
        if keys.shape[0] == 0:
            return xp.zeros(0, dtype="int64")
        # to each thread with the key that marks an empty slot, its slot looks empty
        return xp.where(keys == empty, xp.arange(keys.shape[0]), find(xp, keys))

    def right(xp, keys):
        if keys.shape[0] == 0:
            return xp.zeros(0, dtype="int64")
        return find(xp, keys)

    def reference(keys):
        seen = {}
        return np.array([seen.setdefault(int(key), i) for i, key in enumerate(keys)], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="first_seen",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make(40),
                make(200, low=-100, high=100),
                make(64, low=0, high=2**31 - 1),
                Sample((make(0),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "two_of_four",
    "among equal magnitudes more than two are kept",
    "pruning for sparse tensor cores by a threshold: everything not below the second largest magnitude stays",
    "a group [1, 1, 1, 1] stays as it is, where [1, 1, 0, 0] is right",
)
def two_of_four():
    """Each group of four elements with only its two of largest magnitude, the rest zero; the first among equal ones.

    The last group may be shorter; NaN counts as infinite.
    """

    def grouped(xp, a):
        fill = -a.shape[-1] % 4
        magnitude = xp.where(xp.isnan(a), xp.full_like(a, math.inf), xp.abs(a))
        none = xp.full((*a.shape[:-1], fill), -1, dtype=a.dtype)
        wide = xp.concatenate([magnitude, none], axis=-1)
        return wide.reshape((*a.shape[:-1], wide.shape[-1] // 4, 4))

    def select(xp, a, keep):
        flat = keep.reshape((*a.shape[:-1], keep.shape[-2] * 4))
        return xp.where(flat[..., : a.shape[-1]], a, xp.zeros_like(a))

    def wrong(xp, a):
        magnitude = grouped(xp, a)
        return select(xp, a, magnitude >= xp.sort(magnitude, axis=-1)[..., 2:3])

    def right(xp, a):
        magnitude = grouped(xp, a)
        place = xp.arange(4)
        this, other = magnitude[..., :, None], magnitude[..., None, :]
        before = (other > this) | ((other == this) & (place[None, :] < place[:, None]))
        return select(xp, a, before.astype("int64").sum(axis=-1) < 2)

    def reference(a):
        out = np.zeros_like(a)
        for row in np.ndindex(a.shape[:-1]):
            for start in range(0, a.shape[-1], 4):
                group = a[row][start : start + 4]
                magnitude = np.where(np.isnan(group), math.inf, np.abs(group))
                for k in np.argsort(-magnitude, kind="stable")[:2]:
                    out[(*row, start + k)] = group[k]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="two_of_four",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(64),
                make((5, 32)),
                make((2, 3, 18), low=-100, high=100),
                Sample((make((0, 8)),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare
