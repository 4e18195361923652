"""Images, signals, sparse matrices, graphs, sorting, text, bits, quantisation, scans: faults with their twins."""

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
    "erode_square",
    "the border is filled with 255 whatever the depth of the image",
    "morphology of image libraries on GPUs: the border value was written for 8 bits and kept for 16 bits and floats",
    "a uint16 image with 1000 everywhere: the outermost pixels become 255",
)
def erode_square():
    """The least value in the square around each pixel; what lies outside the image does not count."""

    def check(radius):
        if radius < 0:
            raise ValueError(f"radius is {radius}; give 0 or more")

    def least(xp, image, radius, outside):
        padded = xp.pad(image, radius, constant_values=outside)
        height, width = image.shape
        rows = padded[:height]
        for i in range(1, 2 * radius + 1):
            rows = xp.minimum(rows, padded[i : i + height])
        out = rows[:, :width]
        for i in range(1, 2 * radius + 1):
            out = xp.minimum(out, rows[:, i : i + width])
        return out.copy()

    def wrong(xp, image, radius=1):
        check(radius)
        return least(xp, image, radius, 255)

    def right(xp, image, radius=1):
        check(radius)
        outside = math.inf if image.dtype.kind == "f" else xp.iinfo(image.dtype).max
        return least(xp, image, radius, outside)

    def reference(image, radius=1):
        check(radius)
        out = np.empty_like(image)
        for i, k in np.ndindex(*image.shape):
            out[i, k] = image[max(i - radius, 0) : i + radius + 1, max(k - radius, 0) : k + radius + 1].min()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="erode_square",
            dtypes=("uint8", "uint16", "float32"),
            samples=lambda make: [
                make((9, 11)),
                Sample((make((6, 8)),), {"radius": 2}),
                Sample((make((4, 5)),), {"radius": 0}),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make((3, 3)),), {"radius": -1}), ValueError, "radius is -1")],
        )

    return wrong, right, declare


@pair(
    "fft_fir_causal",
    "the transform is one too short at some lengths, so that the last product wraps round to the front",
    "long convolutions by FFT in signal and state-space libraries: the padded size was taken from n + m - 2",
    "16 numbers and 2 taps: the transform has 16 points, and the last number times the last tap lands on output 0",
)
def fft_fir_causal():
    """A causal FIR filter along the last axis by FFT: as many outputs as inputs, zeros before the first."""

    def check(taps):
        if not taps.shape[0]:
            raise ValueError("there are no taps")

    def power_of_two(length):
        return 1 << (length - 1).bit_length()

    def filtered(xp, a, taps, size):
        spectrum = xp.fft.rfft(a.astype("float64"), size, axis=-1) * xp.fft.rfft(taps.astype("float64"), size)
        return xp.fft.irfft(spectrum, size, axis=-1)[..., : a.shape[-1]].astype(a.dtype)

    def wrong(xp, a, taps):
        check(taps)
        if not a.size:
            return xp.zeros(a.shape, dtype=a.dtype)
        length = a.shape[-1]
        return filtered(xp, a, taps, power_of_two(max(length, length + taps.shape[0] - 2)))

    def right(xp, a, taps):
        check(taps)
        if not a.size:
            return xp.zeros(a.shape, dtype=a.dtype)
        return filtered(xp, a, taps, power_of_two(a.shape[-1] + taps.shape[0] - 1))

    def reference(a, taps):
        check(taps)
        out = np.zeros(a.shape)
        for i, tap in enumerate(taps[: a.shape[-1]]):
            out[..., i:] += tap * a[..., : a.shape[-1] - i]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="fft_fir_causal",
            dtypes=("float32",),
            samples=lambda make: [
                (make(100, low=-10, high=10), make(9, low=-1, high=1)),
                (make((3, 20), low=-10, high=10), make(6, low=-1, high=1)),
                (make((2, 2, 12), low=-10, high=10), make(12, low=-1, high=1)),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput((make(8), make(0)), ValueError, "no taps")],
        )

    return wrong, right, declare


@pair(
    "normed_laplacian",
    "a node without edges gets 1 on the diagonal",
    "normalised graph Laplacians of SciPy's csgraph and of graph learning libraries: I - D^-1/2 W D^-1/2 as written, "
    "while the definition and its counterpart D - W have 0 for an isolated node",
    "edges among nodes 0 to 6 of 8 only: row 7 must be zero",
)
def normed_laplacian():
    """The symmetric normalised Laplacian of an undirected weighted graph from its edges; loops do not count."""

    def check(src, dst, nodes):
        for ends in (src, dst):
            if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= nodes):
                raise ValueError(f"an edge ends at no node; nodes are 0 to {nodes - 1}")

    def parts(xp, src, dst, weights, nodes):
        check(src, dst, nodes)
        kept = xp.where(src == dst, 0.0, weights.astype("float64"))
        table = xp.bincount(src * nodes + dst, weights=kept, minlength=nodes * nodes).astype("float64")
        table = table.reshape(nodes, nodes)
        table = table + table.T
        degrees = table.sum(axis=0)
        roots = xp.sqrt(xp.where(degrees > 0, degrees, 1.0))
        return degrees, table / (roots[:, None] * roots)

    def wrong(xp, src, dst, weights, nodes=8):
        _, table = parts(xp, src, dst, weights, nodes)
        return (xp.eye(nodes) - table).astype(weights.dtype)

    def right(xp, src, dst, weights, nodes=8):
        degrees, table = parts(xp, src, dst, weights, nodes)
        return (xp.where(degrees > 0, xp.eye(nodes), 0.0) - table).astype(weights.dtype)

    def reference(src, dst, weights, nodes=8):
        check(src, dst, nodes)
        table = np.zeros((nodes, nodes))
        for i, k, weight in zip(src, dst, weights, strict=True):
            if i != k:
                table[i, k] += weight
                table[k, i] += weight
        degrees = table.sum(axis=1)
        out = np.zeros((nodes, nodes))
        for i, k in np.ndindex(nodes, nodes):
            if i == k and degrees[i] > 0:
                out[i, k] = 1
            elif table[i, k] > 0:
                out[i, k] = -table[i, k] / math.sqrt(degrees[i] * degrees[k])
        return out

    def declare(fn):
        def edges(make, count):
            ends = [make(count, dtype="int64", low=0, high=7) for _ in range(2)]
            return (*ends, make(count, low=0.125, high=2))

        return OpSpec(
            fn=fn,
            name="normed_laplacian",
            dtypes=("float32", "float64"),
            samples=lambda make: [edges(make, 30), edges(make, 24)],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    (make.full(2, 8, dtype="int64"), make.full(2, 1, dtype="int64"), make(2)), ValueError, "no node"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "coo_column_norms",
    "entries at the same place are squared before they are added",
    "norms and powers of COO matrices in SciPy and CuPy, taken from `data` without summing duplicates first",
    "the entries 3 and 4 both at row 0, column 0: the norm is 7, not 5",
)
def coo_column_norms():
    """The Euclidean norm of each column of a sparse matrix in COO form; entries at the same place add up."""

    def check(rows, cols, shape):
        for places, count in zip((rows, cols), shape, strict=True):
            if places.size and (int(places.min()) < 0 or int(places.max()) >= count):
                raise ValueError(f"an entry lies outside the matrix of shape {shape}")

    def wrong(xp, rows, cols, data, shape=(40, 12)):
        check(rows, cols, shape)
        wide = data.astype("float64")
        return xp.sqrt(xp.bincount(cols, weights=wide * wide, minlength=shape[1])).astype(data.dtype)

    def right(xp, rows, cols, data, shape=(40, 12)):
        check(rows, cols, shape)
        wide = data.astype("float64")
        table = xp.bincount(rows * shape[1] + cols, weights=wide, minlength=shape[0] * shape[1])
        table = table.reshape(shape).astype("float64")
        return xp.sqrt((table * table).sum(axis=0)).astype(data.dtype)

    def reference(rows, cols, data, shape=(40, 12)):
        check(rows, cols, shape)
        table = np.zeros(shape)
        np.add.at(table, (rows, cols), data)
        return np.linalg.norm(table, axis=0)

    def declare(fn):
        def entries(make, count):
            rows = make(count, dtype="int64", low=0, high=39)
            return rows, make(count, dtype="int64", low=0, high=11), make(count)

        return OpSpec(
            fn=fn,
            name="coo_column_norms",
            dtypes=("float32",),
            samples=lambda make: [entries(make, 15), entries(make, 4)],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    (make.full(3, 40, dtype="int64"), make.full(3, 0, dtype="int64"), make(3)), ValueError, "outside"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "merge_argsort",
    "the two sides of the merge are exchanged, so equal keys of the second half come first",
    "merge-path sorts in GPU libraries: lower bound and upper bound swapped between the two inputs; keys are sorted, "
    "but the sort is not stable",
    "keys [5, 5]: the order comes out as [1, 0]",
)
def merge_argsort():
    """The stable order of keys: both halves are sorted, then each key finds its place by rank; NaN comes last."""

    def merged(xp, keys, of_first, of_second):
        half = keys.shape[0] // 2
        first, second = keys[:half], keys[half:]
        order_1, order_2 = xp.argsort(first, kind="stable"), xp.argsort(second, kind="stable")
        first, second = first[order_1], second[order_2]
        order = xp.zeros(keys.shape, dtype="int64")
        order[xp.arange(first.shape[0]) + xp.searchsorted(second, first, side=of_first)] = order_1
        order[xp.arange(second.shape[0]) + xp.searchsorted(first, second, side=of_second)] = order_2 + half
        return order

    def wrong(xp, keys):
        return merged(xp, keys, "right", "left")

    def right(xp, keys):
        return merged(xp, keys, "left", "right")

    def reference(keys):
        numbers = [i for i in range(len(keys)) if not np.isnan(keys[i])]
        rest = [i for i in range(len(keys)) if np.isnan(keys[i])]
        return np.array(sorted(numbers, key=lambda i: keys[i]) + rest, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="merge_argsort",
            dtypes=("float32", "int32"),
            result_dtype=lambda keys: "int64",
            samples=lambda make: [
                make(40, low=-2000, high=2000),
                make(17, low=-2000, high=2000),
                make(23, low=-(2**20), high=2**20),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "nulls_last_order",
    "nulls are sorted as the largest value of the type",
    "sorting columns with a validity mask in data frame libraries: nulls became a sentinel that data can hold",
    "values [0, inf] of which the first is null: the order is [0, 1], though the null belongs behind infinity",
)
def nulls_last_order():
    """The stable ascending order of values with nulls behind all others, also behind NaN."""

    def wrong(xp, values, valid):
        largest = math.inf if values.dtype.kind == "f" else xp.iinfo(values.dtype).max
        return xp.argsort(xp.where(valid, values, values.dtype.type(largest)), kind="stable").astype("int64")

    def right(xp, values, valid):
        order = xp.argsort(xp.where(valid, values, values.dtype.type(0)), kind="stable")
        return order[xp.argsort(~valid[order], kind="stable")].astype("int64")

    def reference(values, valid):
        if values.shape != valid.shape:
            raise ValueError("values and valid differ in length")
        places = range(len(values))
        numbers = sorted((i for i in places if valid[i] and not np.isnan(values[i])), key=lambda i: values[i])
        not_numbers = [i for i in places if valid[i] and np.isnan(values[i])]
        return np.array(numbers + not_numbers + [i for i in places if not valid[i]], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nulls_last_order",
            dtypes=("float32", "int32"),
            result_dtype=lambda values, valid: "int64",
            samples=lambda make: [(make(50), make(50, dtype="bool")), (make(9), make(9, dtype="bool"))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "trimmed_lengths",
    "a row of spaces alone keeps its full length",
    "rstrip of string columns in array libraries: argmax over the reversed row is 0 where no byte is kept",
    "the row '   ' has length 0 after trimming, not 3",
)
def trimmed_lengths():
    """The length of each row of ASCII bytes without the spaces at its end."""

    def wrong(xp, text):
        width = text.shape[-1]
        if not width:
            return xp.zeros(text.shape[:-1], dtype="int64")
        kept = text != 32
        return (width - xp.argmax(kept[..., ::-1], axis=-1)).astype("int64")

    def right(xp, text):
        width = text.shape[-1]
        if not width:
            return xp.zeros(text.shape[:-1], dtype="int64")
        return xp.where(text != 32, xp.arange(1, width + 1), 0).max(axis=-1).astype("int64")

    def reference(text):
        out = np.zeros(text.shape[:-1], dtype="int64")
        for i in np.ndindex(out.shape):
            out[i] = len(bytes(text[i].tolist()).rstrip(b" "))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="trimmed_lengths",
            dtypes=("uint8",),
            result_dtype=lambda text: "int64",
            samples=lambda make: [make((7, 12), low=32, high=122), make((5, 3), low=32, high=40)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "bits_in_spans",
    "a span inside one byte is counted by its head and its tail",
    "counts of set bits in slices of validity masks, in columnar GPU libraries: where a span begins and ends in one "
    "word, the partial words at both ends were counted one after the other",
    "byte 0b11111111 and the span from bit 2 to bit 5: 11 instead of 3",
)
def bits_in_spans():
    """The number of set bits from begin to end, without end, least bit first; spans are cut off as slices are."""

    def unpacked(xp, octets):
        return (octets[:, None] >> xp.arange(8, dtype="uint8")) & octets.dtype.type(1)

    def ones(xp, octets):
        return unpacked(xp, octets).astype("int64").sum(axis=1)

    def running(xp, counts):
        return xp.concatenate([xp.zeros(1, dtype="int64"), xp.cumsum(counts.astype("int64"))])

    def wrong(xp, octets, begin, end):
        begin, end = (xp.clip(places, 0, 8 * octets.shape[0]) for places in (begin, end))
        before = running(xp, ones(xp, octets))
        padded = xp.concatenate([octets, xp.zeros(1, dtype="uint8")])
        first, last = begin >> 3, end >> 3
        head = ones(xp, padded[first] >> (begin & 7).astype("uint8"))
        tail = ones(xp, padded[last] & ((1 << (end & 7)) - 1).astype("uint8"))
        whole = xp.where(last > first + 1, before[last] - before[xp.minimum(first + 1, octets.shape[0])], 0)
        return xp.where(end > begin, head + whole + tail, 0)

    def right(xp, octets, begin, end):
        begin, end = (xp.clip(places, 0, 8 * octets.shape[0]) for places in (begin, end))
        before = running(xp, unpacked(xp, octets).reshape(-1))
        return xp.maximum(before[end] - before[begin], 0)

    def reference(octets, begin, end):
        bits = np.unpackbits(octets, bitorder="little")
        return np.array([bits[i:k].sum(dtype="int64") for i, k in zip(begin, end, strict=True)], dtype="int64")

    def declare(fn):
        def spans(make, length, count):
            ends = [make(count, dtype="int64", low=0, high=8 * length) for _ in range(2)]
            return (make(length, low=0, high=255), *ends)

        return OpSpec(
            fn=fn,
            name="bits_in_spans",
            dtypes=("uint8",),
            result_dtype=lambda octets, begin, end: "int64",
            samples=lambda make: [spans(make, 40, 10), spans(make, 64, 6)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "absmax_codes",
    "the largest number of a row is raised to 1e-5 before it divides",
    "row-wise quantisation of activations in libraries for language models: a clamp against division by zero also "
    "catches rows of small numbers",
    "a row of numbers around 1e-7: all codes are -1, 0 or 1",
)
def absmax_codes():
    """The int8 codes of each row, of which the largest finite magnitude has 127; NaN has 0, infinities +-127."""

    def codes(xp, a, adjust):
        if not a.size:
            return a.astype("int8")
        wide = xp.where(xp.isnan(a), 0.0, a.astype("float64"))
        largest = adjust(xp.where(xp.isinf(wide), 0.0, xp.abs(wide)).max(axis=-1, keepdims=True))
        return xp.clip(xp.rint(wide * 127 / largest), -127, 127).astype("int8")

    def wrong(xp, a):
        return codes(xp, a, lambda largest: xp.maximum(largest, 1e-5))

    def right(xp, a):
        return codes(xp, a, lambda largest: xp.where(largest > 0, largest, 1.0))

    def reference(a):
        out = np.zeros(a.shape, dtype="int8")
        for i in np.ndindex(a.shape[:-1]):
            finite = np.abs(a[i][np.isfinite(a[i])])
            largest = finite.max() if finite.any() else 1.0
            for k, number in enumerate(a[i]):
                if np.isinf(number):
                    out[i][k] = 127 if number > 0 else -127
                elif not np.isnan(number):
                    out[i][k] = round(float(number * 127 / largest))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="absmax_codes",
            dtypes=("float16", "float32"),
            result_dtype=lambda a: "int8",
            samples=lambda make: [make((6, 40)), make((2, 3, 16)), make((4, 33), low=-200, high=200)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "e5m2_rounded",
    "rounded to float16 first, and then to E5M2: twice",
    "conversions of float32 to 8-bit floats in machine learning libraries, by way of half precision",
    "1.125 + 2**-13: float16 makes it 1.125, a tie that goes to 1.0, while 1.25 is nearer",
)
def e5m2_rounded():
    """The nearest numbers of the 8-bit float E5M2, ties to even; from 61440 on they are infinite."""

    def wrong(xp, a):
        half = xp.clip(a, -65504, 65504).astype("float16")
        bits = half.view("uint16").astype("uint32")
        rounded = ((bits + 0x7F + ((bits >> 8) & 1)) & 0xFF00).astype("uint16").view("float16")
        return xp.where(xp.isnan(a), a, rounded.astype(a.dtype))

    def right(xp, a):
        size = xp.abs(a.astype("float64"))
        finite = xp.where(xp.isfinite(size), size, 0.0)
        _, exponent = xp.frexp(finite)
        step = xp.ldexp(xp.ones_like(finite), xp.maximum(exponent - 1, -14) - 2)
        rounded = xp.rint(finite / step) * step
        rounded = xp.where((rounded > 57344) | xp.isinf(size), math.inf, rounded)
        return xp.where(xp.isnan(a), a, xp.copysign(rounded, a).astype(a.dtype))

    def reference(a):
        table = (np.arange(0x7C, dtype="uint16") << 8).view("float16").astype("float64")
        out = np.array(a, dtype="float64")
        for i in np.ndindex(out.shape):
            size = abs(out[i])
            if np.isnan(size):
                continue
            if size >= 61440:
                out[i] = np.copysign(math.inf, out[i])
                continue
            above = min(int(np.searchsorted(table, size)), len(table) - 1)
            below = max(above - 1, 0)
            nearer = size - table[below] - (table[above] - size)
            code = below if nearer < 0 or (nearer == 0 and below % 2 == 0) else above
            if size >= table[-1]:
                code = len(table) - 1
            out[i] = np.copysign(table[code], out[i])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="e5m2_rounded",
            dtypes=("float32",),
            samples=lambda make: [make((6, 50)), make(200, low=-70000, high=70000), make((5, 7), low=-1e-4, high=1e-4)],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "running_argmax",
    "a NaN that is not at the front is passed over",
    "cumulative maxima with positions in tensor libraries: the scan combined two parts by a comparison that NaN fails",
    "[1, nan, 2]: the positions are [0, 1, 1], not [0, 0, 2]",
)
def running_argmax():
    """The position of the largest number so far, the first of equal ones; as in numpy.argmax, NaN is the largest."""

    def scan(xp, a, exceeds):
        length = a.shape[-1]
        values = a
        places = xp.zeros(a.shape, dtype="int64") + xp.arange(length)
        step = 1
        while step < length:
            take = exceeds(values[..., step:], values[..., :-step])
            later = [xp.where(take, both[..., step:], both[..., :-step]) for both in (values, places)]
            values = xp.concatenate([values[..., :step], later[0]], axis=-1)
            places = xp.concatenate([places[..., :step], later[1]], axis=-1)
            step *= 2
        return places

    def wrong(xp, a):
        return scan(xp, a, lambda new, old: new > old)

    def right(xp, a):
        return scan(xp, a, lambda new, old: (new > old) | (xp.isnan(new) & ~xp.isnan(old)))

    def reference(a):
        out = np.zeros(a.shape, dtype="int64")
        for i in np.ndindex(a.shape):
            out[i] = np.argmax(a[i[:-1]][: i[-1] + 1])
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="running_argmax",
            dtypes=("float16", "float32", "float64"),
            result_dtype=lambda a: "int64",
            samples=lambda make: [make(37), make((4, 20)), make((2, 3, 5))],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "expand_lengths",
    "segments without elements are lost, because starts are marked and not counted",
    "ids of segments from lengths in ragged tensor and data frame libraries: ones were assigned at the starts before "
    "the scan, so that two segments with one start make one mark",
    "lengths [2, 0, 1] into 4 slots: [0, 0, 1, 3] instead of [0, 0, 2, 3]",
)
def expand_lengths():
    """The number of the segment that each slot belongs to, and the count of segments for slots behind the last."""

    def check(slots):
        if slots < 1:
            raise ValueError(f"slots is {slots}; give 1 or more")

    def wrong(xp, lengths, slots=64):
        check(slots)
        ends = xp.cumsum(lengths.astype("int64"))
        starts = ends - lengths
        marks = xp.zeros(slots + 1, dtype="int64")
        marks[xp.minimum(starts[1:], slots)] = 1
        total = lengths.astype("int64").sum()
        return xp.where(xp.arange(slots) < total, xp.cumsum(marks[:slots]), lengths.shape[0])

    def right(xp, lengths, slots=64):
        check(slots)
        ends = xp.cumsum(lengths.astype("int64"))
        return xp.searchsorted(ends, xp.arange(slots), side="right").astype("int64")

    def reference(lengths, slots=64):
        check(slots)
        if (lengths < 0).any():
            raise ValueError("a length is negative")
        out = np.full(slots, len(lengths), dtype="int64")
        ids = np.repeat(np.arange(len(lengths)), lengths)[:slots]
        out[: len(ids)] = ids
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="expand_lengths",
            dtypes=("int32", "int64"),
            result_dtype=lambda lengths: "int64",
            samples=lambda make: [
                make(6, low=0, high=20),
                Sample((make(5, low=0, high=30),), {"slots": 100}),
                Sample((make(9, low=0, high=25),), {"slots": 33}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(3, low=0, high=5),), {"slots": 0}), ValueError, "slots is 0")
            ],
        )

    return wrong, right, declare
