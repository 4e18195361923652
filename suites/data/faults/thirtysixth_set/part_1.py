"""Lists of arrays, optional arrays, outputs in place, state, bits, options that interact: faults with their twins."""

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
IN_PLACE = {"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"}


def pair(name, kind, origin, shows, *checks):
    def register(make):
        PAIRS.append(Pair(name, kind, origin, shows, checks, make))
        return make

    return register


@pair(
    "grid_of_axes",
    "the order xy exchanges the last two dimensions instead of the first two",
    "meshgrid of array libraries: indexing='xy' was written and tested for two axes, where the two are the same",
    "three axes of lengths 2, 3, 4 with indexing 'xy': shape (2, 4, 3) where numpy.meshgrid has (3, 2, 4)",
)
def grid_of_axes():
    """Coordinate arrays of a grid from a list of axes, as numpy.meshgrid gives them."""

    def grids(xp, axes, indexing, sparse):
        if indexing not in ("xy", "ij"):
            raise ValueError(f"indexing is {indexing!r}; give 'xy' or 'ij'")
        found = []
        for place, axis in enumerate(axes):
            shape = [1] * len(axes)
            shape[place] = axis.size
            found.append(axis.reshape(tuple(shape)))
        if not sparse:
            found = [xp.broadcast_to(grid, tuple(axis.size for axis in axes)) for grid in found]
        return found

    def wrong(xp, axes, indexing="xy", sparse=False):
        found = grids(xp, axes, indexing, sparse)
        if indexing == "xy" and len(axes) > 1:
            found = [xp.swapaxes(grid, -1, -2) for grid in found]
        return tuple(grid.copy() for grid in found)

    def right(xp, axes, indexing="xy", sparse=False):
        found = grids(xp, axes, indexing, sparse)
        if indexing == "xy" and len(axes) > 1:
            found = [xp.swapaxes(grid, 0, 1) for grid in found]
        return tuple(grid.copy() for grid in found)

    def reference(axes, indexing="xy", sparse=False):
        return tuple(np.meshgrid(*axes, indexing=indexing, sparse=sparse))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="grid_of_axes",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                ([make(5), make(7)],),
                Sample(([make(6), make(2)],), {"sparse": True}),
                Sample(([make(4), make(3), make(5)],), {"indexing": "ij"}),
                Sample(([make(3), make(8)],), {"indexing": "ij", "sparse": True}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample(([make(3), make(2)],), {"indexing": "yx"}), ValueError, "indexing is 'yx'")
            ],
        )

    return wrong, right, declare


@pair(
    "block_diagonal",
    "blocks without elements are skipped, although their rows or columns count",
    "scipy.linalg.block_diag and its ports: empty blocks were dropped until the shape of the result was wrong",
    "blocks of shapes (2, 2), (0, 3), (1, 1): a 3 x 3 result where the formula has 3 x 6",
)
def block_diagonal():
    """Blocks of a list along the diagonal of one matrix; a vector is a block of one row, also if it is empty."""

    def as_matrix(block):
        if block.ndim > 2:
            raise ValueError(f"a block has {block.ndim} dimensions; give at most 2")
        return block if block.ndim == 2 else block.reshape((1, block.size))

    def place(xp, blocks, dtype, fill):
        rows, columns = sum(block.shape[0] for block in blocks), sum(block.shape[1] for block in blocks)
        out = xp.full((rows, columns), fill, dtype=dtype)
        row = column = 0
        for block in blocks:
            below, beyond = row + block.shape[0], column + block.shape[1]
            out[row:below, column:beyond] = block
            row, column = below, beyond
        return out

    def check(blocks):
        if not blocks:
            raise ValueError("give at least one block")

    def wrong(xp, blocks, fill=0):
        check(blocks)
        return place(xp, [as_matrix(block) for block in blocks if block.size], blocks[0].dtype, fill)

    def right(xp, blocks, fill=0):
        check(blocks)
        return place(xp, [as_matrix(block) for block in blocks], blocks[0].dtype, fill)

    def reference(blocks, fill=0):
        if not blocks:
            raise ValueError("no blocks")
        blocks = [np.atleast_2d(block) for block in blocks]
        rows = []
        for number, block in enumerate(blocks):
            row = [np.full((len(block), other.shape[1]), fill, dtype=block.dtype) for other in blocks]
            row[number] = block
            rows.append(np.concatenate(row, axis=1))
        return np.concatenate(rows)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="block_diagonal",
            dtypes=("float32", "float64", "int32"),
            samples=lambda make: [
                ([make((2, 3)), make((1, 1)), make((4, 2))],),
                ([make((3, 3))],),
                Sample(([make((2, 2)), make(4)],), {"fill": -1}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(([make((2, 2)), make((1, 2, 2))],), ValueError, "3 dimensions")],
        )

    return wrong, right, declare


@pair(
    "bit_field",
    "the sign of a field is read from the word before it is shifted",
    "bit field extraction in decoders of packed formats: sign extension was tested for fields that begin at bit 0",
    "start 4, width 4, signed: 0x80 is the field 8, that is -8, and the result is 8",
)
def bit_field():
    """A field of bits of each word, from `start` on, optionally as a number in two's complement.

    A field as wide as the word is the word.
    """

    def field_of(words, start, width):
        bits = 8 * words.dtype.itemsize
        if start < 0:
            raise ValueError(f"start is {start}; give 0 or more")
        if width < 1:
            raise ValueError(f"width is {width}; give 1 or more")
        if start + width > bits:
            raise ValueError(f"the field ends at bit {start + width}; words have {bits}")
        if width == bits:
            return words.copy(), None
        mask = (1 << width) - 1
        return (words >> start) & mask, mask

    def wrong(xp, words, start=0, width=8, signed=False):
        field, mask = field_of(words, start, width)
        if mask is None or not signed:
            return field
        return xp.where((words & (1 << (width - 1))) != 0, field | ~mask, field)

    def right(xp, words, start=0, width=8, signed=False):
        field, mask = field_of(words, start, width)
        if mask is None or not signed:
            return field
        return xp.where((field & (1 << (width - 1))) != 0, field | ~mask, field)

    def reference(words, start=0, width=8, signed=False):
        bits = 8 * words.dtype.itemsize
        if start < 0 or width < 1 or start + width > bits:
            raise ValueError("no such field")
        out = np.zeros(words.shape, dtype=words.dtype)
        for i in np.ndindex(words.shape):
            number = (int(words[i]) % 2**bits) // 2**start % 2**width
            out[i] = number - 2**width if (signed or width == bits) and number >= 2 ** (width - 1) else number
        return out

    def declare(fn):
        def words(make, shape):
            return make(shape, low=-(2**31), high=2**31 - 1)

        return OpSpec(
            fn=fn,
            name="bit_field",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                (words(make, 40),),
                Sample((words(make, 33),), {"start": 5}),
                Sample((words(make, (3, 11)),), {"start": 9, "width": 17}),
                Sample((words(make, 40),), {"signed": True}),
                Sample((words(make, (4, 5)),), {"width": 13, "signed": True}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"width": 0}), ValueError, "width is 0"),
                ErrorInput(Sample((make(4),), {"start": 60, "width": 8}), ValueError, "the field ends at bit 68"),
            ],
        )

    return wrong, right, declare


@pair(
    "least_multiple",
    "the product is formed before it is divided by the greatest common divisor",
    "lcm in GPU and numeric libraries: a * b // gcd overflowed although the multiple itself fits",
    "int32 604800 and 86400: the product wraps around, and the result is not 604800",
)
def least_multiple():
    """The least common multiple, as numpy.lcm; one that does not fit wraps around as there."""

    def divisor(xp, a, b):
        found = xp.gcd(a, b)
        return xp.where(found == 0, xp.ones_like(found), found)

    def wrong(xp, a, b):
        return xp.absolute(xp.multiply(a, b)) // divisor(xp, a, b)

    def right(xp, a, b):
        return xp.multiply(xp.floor_divide(xp.absolute(a), divisor(xp, a, b)), xp.absolute(b))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="least_multiple",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                (make(50), make(50)),
                (make((6, 7), low=0, high=5000), make((6, 7), low=0, high=5000)),
                Sample((make((4, 1)), make(5)), kind="broadcast"),
            ],
            reference=lambda a, b: np.lcm(a, b),
        )

    return wrong, right, declare


@pair(
    "covariance_weighted",
    "the correction for reliability weights forgets the repetitions",
    "numpy.cov and torch.cov with fweights and aweights: the two weights were combined everywhere but in one sum",
    "both kinds of weights in one call, repetitions not all 1",
)
def covariance_weighted():
    """Covariance of rows, with repetitions and reliability weights of the observations, as numpy.cov."""

    def matrix(xp, x, repeats, weights, correction, squares):
        if x.ndim != 2:
            raise ValueError(f"x has {x.ndim} dimensions; give variables by observations")
        both = xp.ones(x.shape[1], dtype="float64")
        for factor in (repeats, weights):
            if factor is not None:
                if factor.shape != x.shape[1:]:
                    raise ValueError(f"weights of shape {factor.shape} for {x.shape[1]} observations")
                both = both * factor.astype("float64")
        total = both.sum()
        divisor = total - correction * (total if weights is None else squares(both, weights.astype("float64"))) / total
        if not float(divisor) > 1e-9 * float(total):
            raise ValueError("too few observations for this correction")
        values = x.astype("float64")
        values = values - (values * both).sum(axis=1, keepdims=True) / total
        return (xp.matmul(values, (values * both).T) / divisor).astype(x.dtype)

    def wrong(xp, x, repeats=None, weights=None, correction=1):
        return matrix(xp, x, repeats, weights, correction, lambda both, alone: (alone * alone).sum())

    def right(xp, x, repeats=None, weights=None, correction=1):
        return matrix(xp, x, repeats, weights, correction, lambda both, alone: (both * alone).sum())

    def reference(x, repeats=None, weights=None, correction=1):
        if x.ndim != 2:
            raise ValueError("x is not a matrix")
        both = np.ones(x.shape[1])
        both = both if repeats is None else both * repeats
        both = both if weights is None else both * weights
        total = both.sum()
        lost = correction if weights is None else correction * (both * weights).sum() / max(total, 1e-300)
        if not total - lost > 1e-9 * total:
            raise ValueError("too few observations")
        return np.atleast_2d(np.cov(x, fweights=repeats, aweights=weights, ddof=correction))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="covariance_weighted",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((3, 20)),),
                (make((4, 15)), make(15, dtype="int64", low=1, high=4)),
                (make((2, 18)), None, make(18, low=0.2, high=2)),
                Sample((make((3, 12)),), {"correction": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((2, 5)), None, make(4, low=1, high=2)), ValueError, "for 5 observations"),
                ErrorInput((make(5),), ValueError, "1 dimensions"),
            ],
        )

    return wrong, right, declare


@pair(
    "clip_between",
    "a bound that is NaN bounds nothing",
    "torch.clamp and clip elsewhere with arrays as bounds: comparisons are false for NaN, so it was not passed on",
    "a NaN in the lower or the upper bound, none in the array: the element is kept where numpy.clip gives NaN",
)
def clip_between():
    """Elements limited by optional arrays of bounds, as numpy.clip: NaN in an element or a bound gives NaN."""

    def finish(result, out):
        if out is None:
            return result
        out[...] = result
        return out

    def check(low, high):
        if low is None and high is None:
            raise ValueError("give low, high or both")

    def wrong(xp, a, low=None, high=None, out=None):
        check(low, high)
        if low is not None:
            a = xp.where(a < low, low, a)
        if high is not None:
            a = xp.where(a > high, high, a)
        return finish(a, out)

    def right(xp, a, low=None, high=None, out=None):
        check(low, high)
        if low is not None:
            a = xp.maximum(a, low)
        if high is not None:
            a = xp.minimum(a, high)
        return finish(a, out)

    def reference(a, low=None, high=None):
        if low is None and high is None:
            raise ValueError("no bounds")
        return np.clip(a, low, high)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="clip_between",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((4, 9)), make((4, 9)), make((4, 9))),
                (make(30), make(30)),
                (make(25), None, make(25)),
                Sample((make((3, 5)), make(5), make((3, 1))), kind="broadcast"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(4),), ValueError, "give low, high or both")],
        )

    return wrong, right, declare


@pair(
    "apply_pivots_",
    "the way back turns each interchange round instead of their order",
    "ports of LAPACK's laswp in LU solvers: interchanges were undone in the order in which they had been made",
    "reverse with pivots [1, 2, 2]: row 1 takes part in two interchanges, and the rows do not return to their places",
)
def apply_pivots_():
    """Rows interchanged in place: row i with row pivots[i], for i = 0, 1, ...; `reverse` undoes it."""

    def exchange(xp, a, pairs):
        if not pairs:
            return a
        if max(max(one) for one in pairs) >= a.shape[0]:
            raise ValueError(f"pivots reach beyond the {a.shape[0]} rows")
        rows = list(range(a.shape[0]))
        for one, other in pairs:
            rows[one], rows[other] = rows[other], rows[one]
        a[...] = a[xp.asarray(rows)]
        return a

    def wrong(xp, a, pivots, reverse=False):
        pairs = list(enumerate(pivots.tolist()))
        if reverse:
            pairs = [(other, one) for one, other in pairs]
        return exchange(xp, a, pairs)

    def right(xp, a, pivots, reverse=False):
        pairs = list(enumerate(pivots.tolist()))
        return exchange(xp, a, pairs[::-1] if reverse else pairs)

    def reference(a, pivots, reverse=False):
        if len(pivots) > len(a) or any(not 0 <= pivot < len(a) for pivot in pivots):
            raise ValueError("pivots reach beyond the rows")
        matrix = np.eye(len(a))
        for i, pivot in enumerate(pivots):
            step = np.eye(len(a))
            step[[i, pivot]] = step[[pivot, i]]
            matrix = step @ matrix
        return np.array(a)[(matrix.T if reverse else matrix).argmax(axis=1)] if len(a) else np.array(a)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="apply_pivots_",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make((6, 4)), make(6, dtype="int64", low=0, high=5)),
                (make((9, 3)), make(4, dtype="int64", low=0, high=8)),
                Sample((make((8, 5)), make(3, dtype="int64", low=3, high=7)), {"reverse": True}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((3, 2)), make(2, dtype="int64", low=5, high=5)), ValueError, "beyond")
            ],
            without=IN_PLACE,
        )

    return wrong, right, declare


@pair(
    "rebase_",
    "the row that is subtracted is itself changed by the first block",
    "work in place on blocks of rows: an operand that is a view of the output was read again for each block",
    "100 rows: from row 64 on nothing is subtracted, because row 0 is zero by then",
)
def rebase_():
    """One row subtracted from all rows in place, 64 rows at a time."""

    def index_of(a, row):
        count = a.shape[0] if a.ndim else 0
        if not -count <= row < count:
            raise ValueError(f"row is {row}; there are {count}")
        return row % count

    def wrong(xp, a, row=0):
        row = index_of(a, row)
        base = a[row : row + 1]
        for start in range(0, a.shape[0], 64):
            block = a[start : start + 64]
            block[...] = block - base
        return a

    def right(xp, a, row=0):
        row = index_of(a, row)
        base = a[row : row + 1].copy()
        for start in range(0, a.shape[0], 64):
            block = a[start : start + 64]
            block[...] = block - base
        return a

    def reference(a, row=0):
        return np.stack([each - a[row] for each in a])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="rebase_",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((20, 4)),
                Sample((make((33, 3)),), {"row": 7}),
                Sample((make((12, 2, 5)),), {"row": -1}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((4, 2)),), {"row": 4}), ValueError, "row is 4")],
            without=IN_PLACE,
        )

    return wrong, right, declare


@pair(
    "ring_append_",
    "a chunk longer than the ring is cut, but still written from the old position",
    "ring buffers of audio and replay libraries: the elements that are skipped move the position but not the writing",
    "a ring of 4 with 6 new elements: the newest one is not before the position that is returned",
)
def ring_append_():
    """New elements written into a ring in place; gives the ring and the position at which the next ones begin."""

    def write(xp, ring, kept, start, position):
        first = min(ring.shape[0] - start, kept.shape[0])
        ring[start : start + first] = kept[:first]
        ring[: kept.shape[0] - first] = kept[first:]
        return ring, xp.asarray(position, dtype="int64")

    def check(ring, position):
        if ring.shape[0] == 0:
            raise ValueError("the ring has no places")
        if not 0 <= position < ring.shape[0]:
            raise ValueError(f"position is {position}; the ring has {ring.shape[0]} places")

    def wrong(xp, ring, chunk, position=0):
        check(ring, position)
        capacity, count = ring.shape[0], chunk.shape[0]
        kept = chunk[max(count - capacity, 0) :]
        return write(xp, ring, kept, position, (position + count) % capacity)

    def right(xp, ring, chunk, position=0):
        check(ring, position)
        capacity, count = ring.shape[0], chunk.shape[0]
        skipped = max(count - capacity, 0)
        return write(xp, ring, chunk[skipped:], (position + skipped) % capacity, (position + count) % capacity)

    def reference(ring, chunk, position=0):
        if not 0 <= position < len(ring):
            raise ValueError("no such position")
        ring = np.array(ring)
        for each in chunk:
            ring[position] = each
            position = (position + 1) % len(ring)
        return ring, np.array(position, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="ring_append_",
            dtypes=("int16", "int32"),
            samples=lambda make: [
                (make(16), make(5)),
                Sample((make(9), make(7)), {"position": 6}),
                Sample((make((6, 2)), make((6, 2))), {"position": 2}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(2)), {"position": 4}), ValueError, "position is 4")
            ],
            without=IN_PLACE,
        )

    return wrong, right, declare


@pair(
    "fold_scores",
    "a row that has seen nothing but minus infinity becomes NaN",
    "blockwise softmax in attention kernels: the first block of a row is fully masked, and -inf - (-inf) is NaN",
    "a state of -inf and 0 with scores that are all -inf: the total is NaN where it is 0",
)
def fold_scores():
    """The state of an online softmax, maximum and sum of each row, after a further block of scores."""

    def totals(xp, top, total, scores, shift):
        wide = total.astype("float64") * xp.exp(top.astype("float64") - shift)
        return (wide + xp.exp(scores.astype("float64") - shift[..., None]).sum(axis=-1)).astype(total.dtype)

    def wrong(xp, top, total, scores):
        if scores.shape[-1] == 0:
            return top.copy(), total.copy()
        new = xp.maximum(top, scores.max(axis=-1))
        return new, totals(xp, top, total, scores, new.astype("float64"))

    def right(xp, top, total, scores):
        if scores.shape[-1] == 0:
            return top.copy(), total.copy()
        new = xp.maximum(top, scores.max(axis=-1))
        shift = xp.where(xp.isfinite(new), new, xp.zeros_like(new)).astype("float64")
        return new, totals(xp, top, total, scores, shift)

    def reference(top, total, scores):
        if scores.shape[-1] == 0:
            return np.array(top), np.array(total)
        new = np.maximum(top, scores.max(axis=-1))
        with np.errstate(all="ignore"):
            shift = np.where(np.isfinite(new), new, 0.0)
            return new, total * np.exp(top - shift) + np.exp(scores - shift[..., None]).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fold_scores",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(4), make(4, low=0, high=8), make((4, 9))),
                (make((2, 3)), make((2, 3), low=1, high=2), make((2, 3, 17))),
                Sample((make.full(5, -math.inf), make.full(5, 0.0), make((5, 6))), kind="extremal"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "best_and_runner_up",
    "all elements equal to the largest are removed before the second is sought",
    "margins of classifiers and ratio tests of descriptor matching: the runner-up of a tie was the next lower score",
    "scores [3, 3, 1]: the runner-up is 1 where it is 3, so that a tie has a margin of 2",
)
def best_and_runner_up():
    """The largest and the second largest element along an axis, equal where the largest occurs twice."""

    def check(a, axis):
        if a.shape[axis] < 2:
            raise ValueError(f"axis {axis} has {a.shape[axis]} elements; give 2 or more")

    def wrong(xp, a, axis=-1):
        check(a, axis)
        best = a.max(axis=axis, keepdims=True)
        rest = xp.where(a == best, xp.full_like(a, -math.inf), a)
        return best.squeeze(axis), rest.max(axis=axis)

    def right(xp, a, axis=-1):
        check(a, axis)
        ordered = xp.moveaxis(xp.sort(a, axis=axis), axis, -1)
        return ordered[..., -1].copy(), ordered[..., -2].copy()

    def reference(a, axis=-1):
        rows = np.moveaxis(a, axis, -1)
        if rows.shape[-1] < 2:
            raise ValueError("no runner-up")
        best, second = np.zeros(rows.shape[:-1]), np.zeros(rows.shape[:-1])
        for i in np.ndindex(best.shape):
            place = int(np.argmax(rows[i]))
            best[i], second[i] = rows[i][place], np.delete(rows[i], place).max()
        return best, second

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="best_and_runner_up",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((5, 8)),
                make(30),
                Sample((make((6, 4, 3)),), {"axis": 0}),
                Sample((make((3, 7, 2)),), {"axis": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make((3, 1)),), ValueError, "has 1 elements")],
        )

    return wrong, right, declare


@pair(
    "peak_to_peak",
    "with keepdims the result is not written to out",
    "reductions such as percentile and median in array libraries: an early return for keepdims passed out by",
    "keepdims=True together with out=: the right numbers are returned in a new array, and out keeps what it held",
)
def peak_to_peak():
    """Largest minus smallest element along axes, as numpy.ptp."""

    def kept_shape(a, axis):
        axes = range(a.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        gone = {each % a.ndim for each in axes}
        return tuple(1 if place in gone else length for place, length in enumerate(a.shape))

    def wrong(xp, a, axis=None, keepdims=False, out=None):
        span = a.max(axis=axis) - a.min(axis=axis)
        if keepdims:
            return xp.reshape(span, kept_shape(a, axis))
        if out is None:
            return span
        out[...] = span
        return out

    def right(xp, a, axis=None, keepdims=False, out=None):
        span = a.max(axis=axis) - a.min(axis=axis)
        if keepdims:
            span = xp.reshape(span, kept_shape(a, axis))
        if out is None:
            return span
        out[...] = span
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="peak_to_peak",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((4, 9)),
                Sample((make((5, 6)),), {"axis": 0}),
                Sample((make((3, 4, 7)),), {"axis": (0, 2)}),
                Sample((make((6, 8)),), {"axis": -1, "keepdims": True}),
            ],
            reference=lambda a, axis=None, keepdims=False: np.ptp(a, axis=axis, keepdims=keepdims),
        )

    return wrong, right, declare
