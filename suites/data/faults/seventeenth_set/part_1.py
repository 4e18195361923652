"""Images, out=, codecs, selection, histograms, reflections, areas, diagonals, CSR, quantisation, dates, attention."""

import bisect
import datetime
import math
from collections.abc import Callable
from fractions import Fraction
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
    "resize_bilinear",
    "a cache of tables between calls whose key leaves out an option",
    "cached interpolation tables and rotary tables keyed by sizes alone, as in early rotary embeddings of transformers",
    "a (6, 6) image resized to (9, 9) by align_corners=False and then by align_corners=True: the first table is reused",
)
def resize_bilinear():
    """Images (..., height, width) resized to size=(height, width), with the two conventions of torch's interpolate."""

    def table(length, wanted, align_corners):
        place = np.arange(wanted, dtype="float64")
        if align_corners:
            place = place * ((length - 1) / (wanted - 1) if wanted > 1 else 0.0)
        else:
            place = (place + 0.5) * (length / wanted) - 0.5
        place = np.clip(place, 0.0, length - 1)
        lower = np.floor(place).astype("int64")
        return lower, np.minimum(lower + 1, length - 1), place - lower

    def check(a, size):
        if min(size) < 1:
            raise ValueError(f"size is {size}; give 1 or more")
        if a.ndim < 2 or min(a.shape[-2:]) < 1:
            raise ValueError(f"no pixels in an image of shape {a.shape}")

    def resize(xp, a, rows, columns):
        values = a.astype("float64")
        lower, upper, weight = (xp.asarray(part) for part in rows)
        weight = weight[:, None]
        values = xp.take(values, lower, axis=-2) * (1 - weight) + xp.take(values, upper, axis=-2) * weight
        lower, upper, weight = (xp.asarray(part) for part in columns)
        values = xp.take(values, lower, axis=-1) * (1 - weight) + xp.take(values, upper, axis=-1) * weight
        return values.astype(a.dtype)

    few: dict = {}
    all_of: dict = {}

    def wrong(xp, a, size, align_corners=False):
        check(a, size)
        tables = []
        for length, wanted in zip(a.shape[-2:], size):
            if (length, wanted) not in few:
                few[length, wanted] = table(length, wanted, align_corners)
            tables.append(few[length, wanted])
        return resize(xp, a, *tables)

    def right(xp, a, size, align_corners=False):
        check(a, size)
        tables = []
        for length, wanted in zip(a.shape[-2:], size):
            key = length, wanted, bool(align_corners)
            if key not in all_of:
                all_of[key] = table(*key)
            tables.append(all_of[key])
        return resize(xp, a, *tables)

    def reference(a, size, align_corners=False):
        check(a, size)

        def matrix(length, wanted):
            out = np.zeros((wanted, length))
            for i in range(wanted):
                if not align_corners:
                    place = (2 * i + 1) * length / (2 * wanted) - 0.5
                elif wanted == 1:
                    place = 0.0
                else:
                    place = i * (length - 1) / (wanted - 1)
                out[i] = np.maximum(0.0, 1.0 - np.abs(np.arange(length) - min(max(place, 0.0), length - 1.0)))
            return out

        return matrix(a.shape[-2], size[0]) @ a @ matrix(a.shape[-1], size[1]).T

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="resize_bilinear",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                Sample((make((2, 5, 7), low=0, high=255),), {"size": (9, 4)}),
                Sample((make((6, 4), low=0, high=255),), {"size": (3, 8), "align_corners": True}),
                Sample((make((1, 3, 3), low=0, high=1),), {"size": (6, 6)}),
                Sample((make((4, 10), low=0, high=1),), {"size": (4, 5), "align_corners": False}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 4), low=0, high=1),), {"size": (0, 4)}), ValueError, "give 1 or more"),
            ],
        )

    return wrong, right, declare


@pair(
    "lerp_out",
    "out= is overwritten before an input that shares its memory is read",
    "moving averages written as lerp(average, value, out=average): NumPy before 1.13 and own kernels with out=",
    "out=start, as for a moving average in place: start is read after end * weight was written over it",
)
def lerp_out():
    """(1 - weight) * start + weight * end, into out if it is given; out may be one of the inputs."""

    def check(start, end, weight, out):
        shape = np.broadcast_shapes(start.shape, end.shape)
        if not 0 <= weight <= 1:
            raise ValueError(f"weight is {weight}; give 0 to 1")
        if out is not None and (out.shape != shape or out.dtype != start.dtype):
            raise ValueError(f"out is {out.dtype} of shape {out.shape}; give {start.dtype} of shape {shape}")
        return shape

    def wrong(xp, start, end, weight=0.5, out=None):
        shape = check(start, end, weight, out)
        if out is None:
            out = xp.empty(shape, dtype=start.dtype)
        xp.multiply(end, weight, out=out)
        out += start * (1 - weight)
        return out

    def right(xp, start, end, weight=0.5, out=None):
        shape = check(start, end, weight, out)
        mixed = start * (1 - weight) + end * weight
        if out is None:
            out = xp.empty(shape, dtype=start.dtype)
        out[...] = mixed
        return out

    def reference(start, end, weight=0.5, out=None):
        check(start, end, weight, None)
        both = np.stack(np.broadcast_arrays(start, end), axis=-1)
        return np.sum(both * np.array([1 - weight, weight]), axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lerp_out",
            dtypes=("float32", "float64"),
            result_dtype=lambda start, end: start,
            samples=lambda make: [
                (make(33), make(33)),
                Sample((make((4, 9)), make((4, 9))), {"weight": 0.1}),
                Sample((make((2, 3, 5)), make((2, 3, 5))), {"weight": 1.0}),
                Sample((make((6, 5)), make(5)), {"weight": 0.25}, kind="broadcast"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4), make(4)), {"weight": 1.5}), ValueError, "give 0 to 1"),
            ],
        )

    return wrong, right, declare


@pair(
    "varint_offsets",
    "the bit length of an integer by the logarithm of a float64",
    "bit lengths as floor(log2(x)) + 1: recipes for NumPy and columnar encoders, wrong just below high powers of two",
    "a value of 2**56 - 1 (or 2**49 - 1): log2 rounds up to the whole number, and the value counts one byte too many",
)
def varint_offsets():
    """Where the LEB128 bytes of each number start, and where the last ones end; a is read in C order."""

    def running(xp, lengths):
        out = xp.zeros(lengths.size + 1, dtype="int64")
        out[1:] = xp.cumsum(lengths)
        return out

    def wrong(xp, a):
        values = xp.maximum(a.reshape(-1), 1).astype("float64")
        bits = xp.floor(xp.log2(values)).astype("int64") + 1
        return running(xp, (bits + 6) // 7)

    def right(xp, a):
        values = a.reshape(-1).astype("uint64")
        lengths = xp.ones(values.shape, dtype="int64")
        for shift in range(7, 64, 7):
            lengths += (values >> shift) != 0
        return running(xp, lengths)

    def reference(a):
        out = [0]
        for number in np.asarray(a).ravel().tolist():
            out.append(out[-1] + max(1, -(-(number % 2**64).bit_length() // 7)))
        return np.array(out, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="varint_offsets",
            dtypes=("int64", "uint64"),
            samples=lambda make: [
                make(40, low=0, high=300),
                make((4, 8), low=0, high=2**31),
                make(50, low=0, high=2**60),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "top_k_mask",
    "ties at the k-th place are all kept",
    "top-k filters of samplers (transformers, vLLM): logits below the k-th value are dropped, equal ones all stay",
    "[2, 1, 1, 1] with k=2 keeps four logits where the first two are asked for",
)
def top_k_mask():
    """Exactly k logits along the last axis, the others minus infinity; of equal ones the earlier stay."""

    def check(a, k):
        if not 1 <= k <= a.shape[-1]:
            raise ValueError(f"k is {k}; give 1 to {a.shape[-1]}")

    def wrong(xp, a, k=4):
        check(a, k)
        least = xp.sort(a, axis=-1)[..., a.shape[-1] - k, None]
        return xp.where(a >= least, a, xp.asarray(-math.inf, dtype=a.dtype))

    def right(xp, a, k=4):
        check(a, k)
        order = xp.argsort(-a, axis=-1, kind="stable")
        ranks = xp.argsort(order, axis=-1, kind="stable")
        return xp.where(ranks < k, a, xp.asarray(-math.inf, dtype=a.dtype))

    def reference(a, k=4):
        check(a, k)
        out = np.full(a.shape, -math.inf)
        for i in np.ndindex(a.shape[:-1]):
            row = a[i].tolist()
            for j in sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]:
                out[(*i, j)] = row[j]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="top_k_mask",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(20, low=-20, high=20),
                Sample((make((3, 17), low=-20, high=20),), {"k": 1}),
                Sample((make((2, 4, 9), low=-5, high=5),), {"k": 9}),
                Sample((make((5, 32), low=-5, high=5),), {"k": 7}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 5), low=-5, high=5),), {"k": 6}), ValueError, "give 1 to 5"),
                ErrorInput(Sample((make((2, 5), low=-5, high=5),), {"k": 0}), ValueError, "give 1 to 5"),
            ],
        )

    return wrong, right, declare


@pair(
    "histogram_uniform",
    "the bin of a number on an edge depends on a rounded multiplication",
    "numpy.histogram before 1.11: with equal bins the fast path put numbers on edges into the bin below or above",
    "numbers on an edge or next to it: 0.7 of range 0 to 1 with 10 bins in float32, 0.29 with 100 bins in float64",
)
def histogram_uniform():
    """How many numbers are in each of the bins whose edges are linspace(low, high); the last bin is closed."""

    def check(bins, low, high):
        if bins < 1:
            raise ValueError(f"bins is {bins}; give 1 or more")
        if not low < high:
            raise ValueError(f"low is {low}, not less than high, {high}")

    def wrong(xp, a, bins=10, low=0.0, high=1.0):
        check(bins, low, high)
        values = a.reshape(-1)
        values = values[(values >= low) & (values <= high)]
        places = xp.floor((values - low) * (bins / (high - low))).astype("int64")
        return xp.bincount(xp.minimum(places, bins - 1), minlength=bins).astype("int64")

    def right(xp, a, bins=10, low=0.0, high=1.0):
        check(bins, low, high)
        values = a.reshape(-1).astype("float64")
        values = values[(values >= low) & (values <= high)]
        edges = xp.asarray(np.linspace(low, high, bins + 1))
        places = xp.searchsorted(edges, values, side="right") - 1
        return xp.bincount(xp.minimum(places, bins - 1), minlength=bins).astype("int64")

    def reference(a, bins=10, low=0.0, high=1.0):
        check(bins, low, high)
        edges = np.linspace(low, high, bins + 1).tolist()
        counts = [0] * bins
        for number in np.asarray(a, dtype="float64").ravel().tolist():
            if low <= number < high:
                counts[bisect.bisect_right(edges, number) - 1] += 1
            elif number == high:
                counts[-1] += 1
        return np.array(counts, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="histogram_uniform",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make(60, low=0, high=1),
                Sample((make((5, 6)),), {"bins": 7, "low": -2.0, "high": 2.5}),
                Sample((make(20, low=0, high=1),), {"bins": 100}),
                Sample((make((3, 4, 2)),), {"bins": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4),), {"bins": 0}), ValueError, "bins is 0"),
                ErrorInput(Sample((make(4),), {"low": 1.0, "high": 1.0}), ValueError, "not less than high"),
            ],
        )

    return wrong, right, declare


@pair(
    "householder_vector",
    "the sign of zero is zero",
    "QR by hand with -sign(x[0]) * norm(x): numpy.sign(0) is 0, and the reflection then maps x to -x",
    "a vector whose first entry is 0, such as [0, 3, 4]: the vector returned is x / norm(x)",
)
def householder_vector():
    """The unit vector v for which x - 2 v (v @ x) is a multiple of the first unit vector, and v[0] does not cancel."""

    def scaled(xp, x):
        values = x.astype("float64")
        top = xp.abs(values).max(axis=-1, keepdims=True)
        return values / xp.where(top == 0, 1.0, top)

    def finish(xp, x, values, sign):
        norm = xp.sqrt((values * values).sum(axis=-1, keepdims=True))
        v = xp.concatenate([values[..., :1] + sign * norm, values[..., 1:]], axis=-1)
        length = xp.sqrt((v * v).sum(axis=-1, keepdims=True))
        first = (xp.arange(x.shape[-1]) == 0).astype("float64")
        return xp.where(length == 0, first, v / xp.where(length == 0, 1.0, length)).astype(x.dtype)

    def wrong(xp, x):
        if x.shape[-1] == 0:
            return x.copy()
        values = scaled(xp, x)
        return finish(xp, x, values, xp.sign(values[..., :1]))

    def right(xp, x):
        if x.shape[-1] == 0:
            return x.copy()
        values = scaled(xp, x)
        return finish(xp, x, values, xp.where(values[..., :1] < 0, -1.0, 1.0))

    def reference(x):
        out = np.zeros(x.shape)
        for i in np.ndindex(x.shape[:-1]):
            row = x[i].tolist()
            if not all(map(math.isfinite, row)):
                out[i] = math.nan
            elif not any(row):
                out[(*i, slice(0, 1))] = 1.0
            else:
                top = max(map(abs, row))
                row = [number / top for number in row]
                norm = math.hypot(*row)
                row[0] = row[0] - norm if row[0] < 0 else row[0] + norm
                out[i] = np.array(row) / math.hypot(*row)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="householder_vector",
            dtypes=("float32", "float64"),
            result_dtype=lambda x: x,
            samples=lambda make: [
                make(5),
                make((4, 7)),
                make((2, 3, 16), low=-1000, high=1000),
                make((6, 1)),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "polygon_area",
    "cancellation: the shoelace formula far from the origin",
    "areas of small parcels in projected coordinates: GEOS and others take the first point off before they multiply",
    "a square of side 1 at (500000.3, 4649776.7): products of 2e12 cancel, and the area is off by 1e-4 and more",
)
def polygon_area():
    """Signed areas of polygons (..., points, 2), counterclockwise positive; coordinates may be far from the origin."""

    def check(points):
        if points.ndim < 2 or points.shape[-1] != 2:
            raise ValueError(f"points are of shape {points.shape}; give (..., points, 2)")

    def shoelace(xp, values):
        x, y = values[..., 0], values[..., 1]
        return (x * xp.roll(y, -1, axis=-1) - xp.roll(x, -1, axis=-1) * y).sum(axis=-1) / 2

    def wrong(xp, points):
        check(points)
        return shoelace(xp, points.astype("float64")).astype(points.dtype)

    def right(xp, points):
        check(points)
        values = points.astype("float64")
        return shoelace(xp, values - values[..., :1, :]).astype(points.dtype)

    def reference(points):
        check(points)
        out = np.zeros(points.shape[:-2])
        for i in np.ndindex(out.shape):
            corners = [(Fraction(x), Fraction(y)) for x, y in points[i].tolist()]
            twice = sum(
                ((x - u) * (v + y) for (x, y), (u, v) in zip(corners, corners[1:] + corners[:1])),
                Fraction(0),
            )
            out[i] = float(twice / 2)
        return out

    def magnitude(points):
        values = points - points[..., :1, :]
        x, y = values[..., 0], values[..., 1]
        return (np.abs(x * np.roll(y, -1, axis=-1)) + np.abs(np.roll(x, -1, axis=-1) * y)).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="polygon_area",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((7, 2), low=0, high=1),
                make((4, 10, 2), low=-180, high=180),
                make((3, 12, 2), low=0, high=10_000_000),
            ],
            reference=reference,
            magnitude=magnitude,
            error_inputs=lambda make: [
                ErrorInput(make((5, 3), low=0, high=1), ValueError, "points, 2"),
            ],
        )

    return wrong, right, declare


@pair(
    "set_diagonal_",
    "reshape(-1) of an array that is not contiguous is a copy, and what is written there is lost",
    "cupy.fill_diagonal and others that wrote through ravel() or reshape(-1): no effect on transposed arrays",
    "a transposed matrix, or some columns of a wider one (w[:, 1:8]): it comes back unchanged",
)
def set_diagonal_():
    """Write values to a diagonal of a matrix, in place; offset is positive above the main diagonal."""

    def start(a, values, offset):
        if a.ndim != 2:
            raise ValueError(f"a has {a.ndim} axes; give a matrix")
        row, column = max(-offset, 0), max(offset, 0)
        count = max(min(a.shape[0] - row, a.shape[1] - column), 0)
        if values.shape != (count,):
            raise ValueError(f"values are of shape {values.shape}; the diagonal is of length {count}")
        return row, column, count

    def wrong(xp, a, values, offset=0):
        row, column, count = start(a, values, offset)
        step = a.shape[1] + 1
        first = row * a.shape[1] + column
        flat = a.reshape(-1)
        flat[first : first + count * step : step] = values
        return a

    def right(xp, a, values, offset=0):
        row, column, count = start(a, values, offset)
        places = xp.arange(count)
        a[places + row, places + column] = values.copy()
        return a

    def reference(a, values, offset=0):
        start(a, values, offset)
        out = np.array(a)
        numbers = iter(values.tolist())
        for i in range(a.shape[0]):
            if 0 <= i + offset < a.shape[1]:
                out[i, i + offset] = next(numbers)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="set_diagonal_",
            dtypes=("float32", "float64", "int32"),
            samples=lambda make: [
                (make((5, 7)), make(5)),
                (make((9, 4)), make(4)),
                Sample((make((4, 6)), make(4)), {"offset": 2}),
                Sample((make((5, 5)), make(4)), {"offset": -1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput((make((4, 6)), make(5)), ValueError, "the diagonal is of length 4"),
            ],
            without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"},
        )

    return wrong, right, declare


@pair(
    "csr_order",
    "rows without entries at the end: bincount without minlength",
    "COO to CSR by cumsum(bincount(rows)): graph libraries and own code, where the last rows or nodes have no entries",
    "rows [0, 0, 1] with n_rows=4: the pointers end in 0, 0 and not in 3, 3",
)
def csr_order():
    """CSR row pointers of a COO matrix, and the order that brings its entries there; rows are below n_rows."""

    def check(rows, n_rows):
        if rows.ndim != 1:
            raise ValueError(f"rows have {rows.ndim} axes; give one")
        if n_rows < 0:
            raise ValueError(f"n_rows is {n_rows}; give 0 or more")

    def wrong(xp, rows, n_rows):
        check(rows, n_rows)
        order = xp.argsort(rows, kind="stable").astype("int64")
        counts = xp.bincount(rows)
        pointers = xp.zeros(n_rows + 1, dtype="int64")
        pointers[1 : 1 + counts.size] = xp.cumsum(counts)
        return pointers, order

    def right(xp, rows, n_rows):
        check(rows, n_rows)
        order = xp.argsort(rows, kind="stable").astype("int64")
        counts = xp.bincount(rows, minlength=n_rows)
        pointers = xp.zeros(n_rows + 1, dtype="int64")
        pointers[1:] = xp.cumsum(counts)
        return pointers, order

    def reference(rows, n_rows):
        check(rows, n_rows)
        entries = [[] for _ in range(n_rows)]
        for place, row in enumerate(rows.tolist()):
            entries[row].append(place)
        pointers = [0]
        for places in entries:
            pointers.append(pointers[-1] + len(places))
        order = [place for places in entries for place in places]
        return np.array(pointers, dtype="int64"), np.array(order, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="csr_order",
            dtypes=("int32", "int64"),
            result_dtype=lambda rows: "int64",
            samples=lambda make: [
                Sample((make(60, low=0, high=4),), {"n_rows": 5}),
                Sample((make(90, low=0, high=6),), {"n_rows": 7}),
                Sample((make(33, low=0, high=0),), {"n_rows": 1}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((3, 4), low=0, high=1),), {"n_rows": 2}), ValueError, "give one"),
            ],
        )

    return wrong, right, declare


@pair(
    "fake_quantise",
    "a range that does not hold zero: the zero point is clipped away from where it belongs",
    "observers of asymmetric quantisation (torch.ao, own exporters) that did not extend minimum and maximum to zero",
    "a row of positive numbers, such as 5 to 6: the zero point -1275 is clipped to 0 and all come out as at most 1",
)
def fake_quantise():
    """Rows rounded to 2**bits levels between their minimum and maximum, extended to hold 0, and back again."""

    def check(bits):
        if not 2 <= bits <= 8:
            raise ValueError(f"bits is {bits}; give 2 to 8")

    def levels(xp, a, values, low, high, bits):
        top = 2**bits - 1
        scale = (high - low) / top
        scale = xp.where(scale == 0, 1.0, scale)
        zero = xp.clip(xp.round(-low / scale), 0, top)
        codes = xp.clip(xp.round(values / scale) + zero, 0, top)
        return ((codes - zero) * scale).astype(a.dtype)

    def wrong(xp, a, bits=8):
        check(bits)
        if a.shape[-1] == 0:
            return a.copy()
        values = a.astype("float64")
        low, high = values.min(axis=-1, keepdims=True), values.max(axis=-1, keepdims=True)
        return levels(xp, a, values, low, high, bits)

    def right(xp, a, bits=8):
        check(bits)
        if a.shape[-1] == 0:
            return a.copy()
        values = a.astype("float64")
        low = xp.minimum(values.min(axis=-1, keepdims=True), 0.0)
        high = xp.maximum(values.max(axis=-1, keepdims=True), 0.0)
        return levels(xp, a, values, low, high, bits)

    def reference(a, bits=8):
        check(bits)
        out = np.zeros(a.shape)
        for i in np.ndindex(a.shape[:-1]):
            row = a[i].tolist()
            low, high = min([0.0, *row]), max([0.0, *row])
            step = (high - low) / (2**bits - 1)
            if step > 0:
                zero = round(-low / step)
                codes = (min(max(round(number / step) + zero, 0), 2**bits - 1) for number in row)
                out[i] = [(code - zero) * step for code in codes]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fake_quantise",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: a,
            samples=lambda make: [
                make(50, low=-6, high=6),
                make((4, 33), low=-6, high=6),
                Sample((make((2, 3, 64), low=-1, high=8),), {"bits": 4}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(8, low=-6, high=6),), {"bits": 9}), ValueError, "give 2 to 8"),
            ],
        )

    return wrong, right, declare


@pair(
    "add_months",
    "years that end in 00 count as leap years",
    "the leap year of 1900 in spreadsheets, and date kernels that test year % 4 alone for the length of February",
    "2100-01-31 and one month: 2100-03-01 where 2100-02-28 is right",
)
def add_months():
    """Days since 1970-01-01 moved by whole months; a day that the month does not have becomes its last one."""

    def to_civil(xp, days):
        days = days.astype("int64") + 719468
        era = days // 146097
        day = days - era * 146097
        year = (day - day // 1460 + day // 36524 - day // 146096) // 365
        day = day - (365 * year + year // 4 - year // 100)
        month = (5 * day + 2) // 153
        day = day - (153 * month + 2) // 5 + 1
        month = xp.where(month < 10, month + 3, month - 9)
        return year + era * 400 + (month <= 2), month, day

    def from_civil(xp, year, month, day):
        year = year - (month <= 2)
        era = year // 400
        year = year - era * 400
        day = (153 * xp.where(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
        return era * 146097 + year * 365 + year // 4 - year // 100 + day - 719468

    def move(xp, days, months, is_leap):
        year, month, day = to_civil(xp, days)
        total = year * 12 + (month - 1) + months.astype("int64")
        year, month = total // 12, total % 12 + 1
        short = (month == 4) | (month == 6) | (month == 9) | (month == 11)
        february = xp.where(is_leap(year), 29, 28)
        last = xp.where(month == 2, february, xp.where(short, 30, 31))
        return from_civil(xp, year, month, xp.minimum(day, last)).astype(days.dtype)

    def wrong(xp, days, months):
        return move(xp, days, months, lambda year: year % 4 == 0)

    def right(xp, days, months):
        return move(xp, days, months, lambda year: (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)))

    def reference(days, months):
        days, months = np.broadcast_arrays(days, months)
        out = np.zeros(days.shape, dtype="int64")
        epoch = datetime.date(1970, 1, 1)
        for i in np.ndindex(out.shape):
            date = epoch + datetime.timedelta(days=int(days[i]))
            year, month = divmod(date.year * 12 + date.month - 1 + int(months[i]), 12)
            first = datetime.date(year, month + 1, 1)
            following = datetime.date(year + (month == 11), (month + 1) % 12 + 1, 1)
            out[i] = (first - epoch).days + min(date.day, (following - first).days) - 1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="add_months",
            dtypes=("int32", "int64"),
            result_dtype=lambda days, months: days,
            samples=lambda make: [
                (make(12, low=0, high=60_000), make(12, low=-24, high=24)),
                (make((3, 4), low=-20_000, high=60_000), make((3, 4), dtype="int64", low=-600, high=600)),
                Sample((make((2, 5), low=0, high=60_000), make(5, low=0, high=11)), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "causal_attention",
    "an option with a shape: causal, and more keys than queries",
    "flash-attention before 2.1 aligned the causal mask to the top left corner when the lengths differ",
    "causal=True with 1 query and 5 keys, as in decoding with a cache: the query sees the first key alone",
)
def causal_attention():
    """Softmax attention; causal lines up the last query with the last key, and a query without keys gives zeros."""

    def check(q, k, v):
        if q.shape[-1] != k.shape[-1]:
            raise ValueError(f"q has width {q.shape[-1]} and k {k.shape[-1]}")
        if k.shape[-2] != v.shape[-2]:
            raise ValueError(f"{k.shape[-2]} keys and {v.shape[-2]} values")

    def attend(xp, q, k, v, allowed):
        if k.shape[-2] == 0:
            batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
            return xp.zeros((*batch, q.shape[-2], v.shape[-1]), dtype=q.dtype)
        wide_q, wide_k, wide_v = q.astype("float64"), k.astype("float64"), v.astype("float64")
        scores = xp.matmul(wide_q, xp.swapaxes(wide_k, -1, -2)) / math.sqrt(max(q.shape[-1], 1))
        if allowed is not None:
            scores = xp.where(allowed, scores, -math.inf)
        top = scores.max(axis=-1, keepdims=True)
        weights = xp.exp(scores - xp.where(top == -math.inf, 0.0, top))
        total = weights.sum(axis=-1, keepdims=True)
        return xp.matmul(weights / xp.where(total == 0, 1.0, total), wide_v).astype(q.dtype)

    def wrong(xp, q, k, v, causal=False):
        check(q, k, v)
        allowed = xp.arange(k.shape[-2])[None, :] <= xp.arange(q.shape[-2])[:, None] if causal else None
        return attend(xp, q, k, v, allowed)

    def right(xp, q, k, v, causal=False):
        check(q, k, v)
        past = k.shape[-2] - q.shape[-2]
        allowed = xp.arange(k.shape[-2])[None, :] <= xp.arange(q.shape[-2])[:, None] + past if causal else None
        return attend(xp, q, k, v, allowed)

    def reference(q, k, v, causal=False):
        check(q, k, v)
        batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        q, k, v = (np.broadcast_to(part, (*batch, *part.shape[-2:])) for part in (q, k, v))
        out = np.zeros((*batch, q.shape[-2], v.shape[-1]))
        for *i, j in np.ndindex((*batch, q.shape[-2])):
            seen = k.shape[-2] - (q.shape[-2] - 1 - j if causal else 0)
            if seen > 0:
                keys, values = k[tuple(i)][:seen], v[tuple(i)][:seen]
                scores = (keys * q[(*i, j)]).sum(axis=-1) / math.sqrt(max(q.shape[-1], 1))
                factors = np.exp(scores - scores.max())
                out[(*i, j)] = (factors[:, None] * values).sum(axis=0) / factors.sum()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="causal_attention",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                Sample(tuple(make((7, 8), low=-4, high=4) for _ in range(3)), {"causal": True}),
                Sample(tuple(make((2, 6, 4), low=-4, high=4) for _ in range(3)), {"causal": True}),
                (
                    make((2, 3, 5, 4), low=-4, high=4),
                    make((2, 3, 9, 4), low=-4, high=4),
                    make((2, 3, 9, 6), low=-4, high=4),
                ),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    (make((3, 4), low=-4, high=4), make((5, 6), low=-4, high=4), make((5, 6), low=-4, high=4)),
                    ValueError,
                    "q has width 4 and k 6",
                ),
            ],
        )

    return wrong, right, declare
