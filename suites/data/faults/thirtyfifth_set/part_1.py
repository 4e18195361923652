"""Frames, dates, byte strings, SQL windows, hashing, packing, quantiles, metrics, missing: faults with their twins."""

import math
import struct
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
    "weekdays_between",
    "reversed dates: the wrong one of the two end dates is counted",
    "numpy.busday_count with the first date after the second: it included the wrong end until NumPy 1.25",
    "begin on a Saturday, end on the Friday before it: 0 is right, -1 comes out",
)
def weekdays_between():
    """Monday to Friday dates in [begin, end), days since 1970; reversed, minus those in (end, begin]."""

    def before(xp, days):
        from_monday = days + 3  # 1970-01-01 was a Thursday
        weeks = from_monday // 7
        return weeks * 5 + xp.minimum(from_monday - weeks * 7, 5)

    def wrong(xp, begin, end):
        begin, end = begin.astype("int64"), end.astype("int64")
        return before(xp, end) - before(xp, begin)

    def right(xp, begin, end):
        begin, end = begin.astype("int64"), end.astype("int64")
        late = (begin > end).astype("int64")
        return before(xp, end + late) - before(xp, begin + late)

    def reference(begin, end):
        return np.busday_count(begin.astype("int64").astype("M8[D]"), end.astype("int64").astype("M8[D]"))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="weekdays_between",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(60, low=-40000, high=40000), make(60, low=-40000, high=40000)),
                (make((6, 9), low=0, high=30), make((6, 9), low=0, high=30)),
                Sample(
                    (make((5, 1), low=18000, high=20000), make(7, low=18000, high=20000)),
                    kind="broadcast",
                ),
                Sample((make(0, low=0, high=30), make(0, low=0, high=30)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "decayed_totals",
    "growing weights overflow instead of a recurrence",
    "vectorised exponentially weighted sums: multiply by a growing exponential, cumsum, divide; NaN in long series",
    "a series that spans more than 1024 half-lives, such as 600 events 0 to 20 apart with a half-life of 4",
)
def decayed_totals():
    """A counter that decays by half every `halflife`; gaps[i] is the time since the event before."""

    def check(amounts, gaps, halflife):
        if not halflife > 0:
            raise ValueError(f"halflife is {halflife}; give more than 0")
        if amounts.shape != gaps.shape:
            raise ValueError("amounts and gaps have different shapes")

    def wrong(xp, amounts, gaps, halflife=4.0):
        check(amounts, gaps, halflife)
        lives = xp.cumsum(gaps.astype("float64"), axis=-1) / halflife
        grown = xp.cumsum(amounts.astype("float64") * xp.exp2(lives), axis=-1)
        return (grown * xp.exp2(-lives)).astype(amounts.dtype)

    def right(xp, amounts, gaps, halflife=4.0):
        check(amounts, gaps, halflife)
        if amounts.shape[-1] == 0:
            return amounts.copy()
        kept = xp.exp2(gaps.astype("float64") / -halflife)
        wide = amounts.astype("float64")
        total = wide[..., 0]
        totals = [total]
        for i in range(1, wide.shape[-1]):
            total = total * kept[..., i] + wide[..., i]
            totals.append(total)
        return xp.stack(totals, axis=-1).astype(amounts.dtype)

    def reference(amounts, gaps, halflife=4.0):
        check(amounts, gaps, halflife)
        out = np.zeros(amounts.shape)
        for row in np.ndindex(amounts.shape[:-1]):
            total = 0.0
            for i, amount in enumerate(amounts[row]):
                total = total * 0.5 ** (gaps[row][i] / halflife) + amount
                out[row][i] = total
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="decayed_totals",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(50, low=0, high=100), make(50, low=0, high=20)),
                (make((3, 24), low=0, high=100), make((3, 24), low=0, high=20)),
                Sample((make(40, low=0, high=100), make(40, low=0, high=20)), {"halflife": 1.5}),
                Sample((make((2, 0), low=0, high=100), make((2, 0), low=0, high=20)), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, low=0, high=1), make(4, low=0, high=1)), {"halflife": 0.0}),
                    ValueError,
                    "halflife is 0",
                )
            ],
            bench=lambda make, sizes: [(make(sizes.length, low=0, high=100), make(sizes.length, low=0, high=20))],
        )

    return wrong, right, declare


@pair(
    "count_matches",
    "overlapping occurrences are all counted",
    "string columns on a GPU: one thread per position counts matches, while str.count skips past each one it finds",
    "a needle that overlaps itself: 'aa' in 'aaa' is 1, 2 comes out",
)
def count_matches():
    """How often `needle` occurs in each row of bytes, without overlaps, as bytes.count counts."""

    def starts(xp, rows, needle):
        if len(needle) == 0:
            raise ValueError("needle is empty")
        places = rows.shape[-1] - len(needle) + 1
        if places < 1:
            return xp.zeros((*rows.shape[:-1], 1), dtype="bool")
        found = xp.ones((*rows.shape[:-1], places), dtype="bool")
        for i, byte in enumerate(needle):
            found = found & (rows[..., i : i + places] == byte)
        return found

    def wrong(xp, rows, needle=(97, 98)):
        return starts(xp, rows, needle).astype("int64").sum(axis=-1)

    def right(xp, rows, needle=(97, 98)):
        found = starts(xp, rows, needle)
        count = xp.zeros(rows.shape[:-1], dtype="int64")
        free = xp.zeros(rows.shape[:-1], dtype="int64")
        for place in range(found.shape[-1]):
            taken = found[..., place] & (free <= place)
            count = count + taken
            free = xp.where(taken, place + len(needle), free)
        return count

    def reference(rows, needle=(97, 98)):
        if len(needle) == 0:
            raise ValueError("needle is empty")
        out = np.zeros(rows.shape[:-1], dtype="int64")
        for row in np.ndindex(out.shape):
            out[row] = rows[row].tobytes().count(bytes(needle))
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="count_matches",
            dtypes=("uint8",),
            result_dtype="int64",
            samples=lambda make: [
                make((12, 30), low=97, high=100),
                Sample((make((8, 25), low=97, high=99),), {"needle": (99,)}),
                Sample((make((10, 40), low=97, high=98),), {"needle": (97, 98, 98)}),
                Sample((make((6, 32), low=97, high=99),), {"needle": (97, 98, 97)}),
                Sample((make((0, 8), low=97, high=99),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 5), low=97, high=99),), {"needle": ()}), ValueError, "needle is empty")
            ],
        )

    return wrong, right, declare


@pair(
    "range_window_sums",
    "RANGE ends at the current row, as ROWS does: later peers are left out",
    "SQL window frames in query engines: RANGE BETWEEN n PRECEDING AND CURRENT ROW without the rows of equal key",
    "two rows of the same key: the first of them misses the value of the second",
)
def range_window_sums():
    """Sums of the values whose key is from key - preceding to key, for each row, in the order of the rows."""

    def check(keys, values, preceding):
        if preceding < 0:
            raise ValueError(f"preceding is {preceding}; give 0 or more")
        if keys.ndim != 1 or keys.shape != values.shape:
            raise ValueError("keys and values must be one-dimensional and of one length")

    def framed(xp, keys, values, preceding, last_of):
        order = xp.argsort(keys, kind="stable")
        ordered = keys[order].astype("int64")
        sums = xp.cumsum(values[order].astype("int64"))
        sums = xp.concatenate([xp.zeros(1, dtype="int64"), sums])
        first = xp.searchsorted(ordered, ordered - preceding, side="left")
        return (sums[last_of(ordered)] - sums[first])[xp.argsort(order)]

    def wrong(xp, keys, values, preceding=10):
        check(keys, values, preceding)
        return framed(xp, keys, values, preceding, lambda ordered: xp.arange(1, ordered.shape[0] + 1))

    def right(xp, keys, values, preceding=10):
        check(keys, values, preceding)
        return framed(xp, keys, values, preceding, lambda ordered: xp.searchsorted(ordered, ordered, side="right"))

    def reference(keys, values, preceding=10):
        check(keys, values, preceding)
        keys, values = keys.astype("int64"), values.astype("int64")
        inside = (keys[None, :] <= keys[:, None]) & (keys[None, :] >= keys[:, None] - preceding)
        return (inside * values[None, :]).sum(axis=1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="range_window_sums",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                (make(40, low=0, high=400), make(40, low=-50, high=50)),
                Sample((make(25, low=-1000, high=1000), make(25, low=-50, high=50)), {"preceding": 300}),
                Sample((make(30, low=0, high=500), make(30, low=0, high=9)), {"preceding": 0}),
                Sample((make(0, low=0, high=9), make(0, low=0, high=9)), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, low=0, high=9), make(4, low=0, high=9)), {"preceding": -1}),
                    ValueError,
                    "preceding is -1",
                )
            ],
        )

    return wrong, right, declare


@pair(
    "lag_in_partition",
    "a lag of two or more reaches into the partition before",
    "group-by shift and SQL LAG: the partition is compared with that of the row before, not of the row lagged to",
    "periods=2: the second row of a partition gets a value of another partition instead of the fill",
)
def lag_in_partition():
    """The value `periods` rows earlier in the same partition, in the order of the rows, or `fill`."""

    def check(partition, values, periods):
        if periods < 1:
            raise ValueError(f"periods is {periods}; give 1 or more")
        if partition.ndim != 1 or partition.shape != values.shape:
            raise ValueError("partition and values must be one-dimensional and of one length")

    def lagged(xp, partition, values, periods, fill, compared):
        check(partition, values, periods)
        if periods >= values.shape[0]:
            return xp.full(values.shape, fill, dtype=values.dtype)
        order = xp.argsort(partition, kind="stable")
        ids, ordered = partition[order], values[order]
        before = xp.concatenate([xp.full(periods, fill, dtype=values.dtype), ordered[:-periods]])
        inside = xp.concatenate([xp.zeros(compared, dtype="bool"), ids[compared:] == ids[:-compared]])
        return xp.where(inside, before, xp.full(values.shape, fill, dtype=values.dtype))[xp.argsort(order)]

    def wrong(xp, partition, values, periods=1, fill=0.0):
        return lagged(xp, partition, values, periods, fill, 1)

    def right(xp, partition, values, periods=1, fill=0.0):
        return lagged(xp, partition, values, periods, fill, periods)

    def reference(partition, values, periods=1, fill=0.0):
        check(partition, values, periods)
        seen, out = {}, np.full(values.shape, fill)
        for i, (key, value) in enumerate(zip(partition.tolist(), values.tolist(), strict=True)):
            rows = seen.setdefault(key, [])
            if len(rows) >= periods:
                out[i] = rows[-periods]
            rows.append(value)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="lag_in_partition",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(40, dtype="int64", low=0, high=5), make(40)),
                Sample((make(35, dtype="int64", low=0, high=4), make(35)), {"periods": 3, "fill": -1.0}),
                Sample((make(0, dtype="int64", low=0, high=4), make(0)), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, dtype="int64", low=0, high=2), make(4)), {"periods": 0}),
                    ValueError,
                    "periods is 0",
                )
            ],
        )

    return wrong, right, declare


_MIX_1, _MIX_2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_QUIET_NAN = 0x7FF8000000000000


@pair(
    "key_partitions",
    "zeros of both signs hash apart although they are equal",
    "hash joins and group-by on float keys in GPU frames and Spark: the bits are hashed without normalising -0.0",
    "any -0.0 among the keys",
)
def key_partitions():
    """The partition of a hash join for float keys: equal keys meet in one, and so do all NaN."""

    def check(buckets):
        if buckets < 1:
            raise ValueError(f"buckets is {buckets}; give 1 or more")

    def mixed(xp, keys, buckets, shape):
        bits = xp.where(xp.isnan(keys), xp.full(keys.shape, _QUIET_NAN, dtype="uint64"), keys.view("uint64"))
        for factor in (_MIX_1, _MIX_2):
            bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(factor)
        bits = bits ^ (bits >> np.uint64(33))
        return (bits % np.uint64(buckets)).astype("int64").reshape(shape)

    def wrong(xp, keys, buckets=64):
        check(buckets)
        return mixed(xp, keys.reshape(-1).astype("float64"), buckets, keys.shape)

    def right(xp, keys, buckets=64):
        check(buckets)
        flat = keys.reshape(-1).astype("float64")
        return mixed(xp, xp.where(flat == 0, xp.zeros(flat.shape, dtype="float64"), flat), buckets, keys.shape)

    def reference(keys, buckets=64):
        check(buckets)
        keys = np.asarray(keys)
        out = np.zeros(keys.shape, dtype="int64")
        for place in np.ndindex(keys.shape):
            key = float(keys[place])
            key = abs(key) if key == 0 else key
            bits = _QUIET_NAN if math.isnan(key) else struct.unpack("<Q", struct.pack("<d", key))[0]
            for factor in (_MIX_1, _MIX_2):
                bits = (bits ^ (bits >> 33)) * factor % 2**64
            out[place] = (bits ^ (bits >> 33)) % buckets
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="key_partitions",
            dtypes=("float32", "float64"),
            result_dtype="int64",
            samples=lambda make: [
                make(50),
                make((4, 9)),
                Sample((make(33, low=-1e6, high=1e6),), {"buckets": 10}),
                Sample((make(0),), kind="empty"),
                Sample((make(()),), kind="scalar"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"buckets": 0}), ValueError, "buckets is 0")],
        )

    return wrong, right, declare


@pair(
    "sketch_registers",
    "a hash without any one bit has one leading zero too few",
    "HyperLogLog ports that take the leading zeros from a logarithm and clamp its argument to 1",
    "key 0, which murmur's finaliser maps to hash 0: register 0 is 28, not 29",
)
def sketch_registers():
    """The registers of a HyperLogLog sketch of 32-bit keys: the most leading zeros plus one, per register."""

    def check(precision):
        if not 1 <= precision <= 12:
            raise ValueError(f"precision is {precision}; give 1 to 12")

    def hashed(xp, keys):
        h = keys.reshape(-1).astype("int64") & 0xFFFFFFFF
        h = h.astype("uint64")
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            h = ((h ^ (h >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
        return (h ^ (h >> np.uint64(16))).astype("int64")

    def registers(xp, hashes, ranks, precision):
        mine = (hashes >> (32 - precision))[:, None] == xp.arange(1 << precision, dtype="int64")[None, :]
        held = xp.where(mine, ranks[:, None], xp.zeros(mine.shape, dtype="int64"))
        return xp.concatenate([xp.zeros((1, 1 << precision), dtype="int64"), held]).max(axis=0)

    def wrong(xp, keys, precision=4):
        check(precision)
        hashes, width = hashed(xp, keys), 32 - precision
        rest = xp.maximum(hashes & ((1 << width) - 1), 1)
        ranks = width - xp.floor(xp.log2(rest.astype("float64"))).astype("int64")
        return registers(xp, hashes, ranks, precision)

    def right(xp, keys, precision=4):
        check(precision)
        hashes, width = hashed(xp, keys), 32 - precision
        rest = hashes & ((1 << width) - 1)
        ranks = xp.full(rest.shape, width + 1, dtype="int64")
        for bit in range(width):
            ranks = ranks - (rest >= (1 << bit))
        return registers(xp, hashes, ranks, precision)

    def reference(keys, precision=4):
        check(precision)
        out = np.zeros(1 << precision, dtype="int64")
        for key in np.asarray(keys).reshape(-1).tolist():
            h = key & 0xFFFFFFFF
            for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
                h = (h ^ (h >> shift)) * factor & 0xFFFFFFFF
            h ^= h >> 16
            rest = h & ((1 << (32 - precision)) - 1)
            place = h >> (32 - precision)
            out[place] = max(out[place], 32 - precision - rest.bit_length() + 1)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sketch_registers",
            dtypes=("int32", "int64"),
            result_dtype="int64",
            samples=lambda make: [
                make(100, low=0, high=2**31 - 1),
                Sample((make((5, 30), low=0, high=1_000_000),), {"precision": 6}),
                Sample((make(0, low=0, high=1_000_000),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=9),), {"precision": 0}), ValueError, "precision is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "unpack_fixed_width",
    "a value that spreads over three bytes loses its highest bits",
    "bit-packed columns of Parquet and ORC: the reader loads two bytes for each value of up to 16 bits",
    "a width of 11, 13, 14 or 15 bits, where offset within the byte plus width exceeds 16",
)
def unpack_fixed_width():
    """Numbers of `width` bits each, packed from the lowest bit on; an incomplete last one is dropped."""

    def check(width):
        if not 1 <= width <= 16:
            raise ValueError(f"width is {width}; give 1 to 16")

    def unpacked(xp, packed, width, reach):
        check(width)
        packed = packed.reshape(-1)
        first = xp.arange(packed.shape[0] * 8 // width, dtype="int64") * width
        padded = xp.concatenate([packed.astype("int64"), xp.zeros(reach, dtype="int64")])
        window = padded[first // 8]
        for i in range(1, reach):
            window = window | (padded[first // 8 + i] << (8 * i))
        return (window >> (first % 8)) & ((1 << width) - 1)

    def wrong(xp, packed, width=5):
        return unpacked(xp, packed, width, 2)

    def right(xp, packed, width=5):
        return unpacked(xp, packed, width, 3)

    def reference(packed, width=5):
        check(width)
        data = packed.reshape(-1).astype("uint8").tobytes()
        number = int.from_bytes(data, "little")
        count = len(data) * 8 // width
        return np.array([number >> (i * width) & ((1 << width) - 1) for i in range(count)], dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="unpack_fixed_width",
            dtypes=("uint8",),
            result_dtype="int64",
            samples=lambda make: [
                make(40, low=0, high=255),
                Sample((make(33, low=0, high=255),), {"width": 10}),
                Sample((make(52, low=0, high=255),), {"width": 13}),
                Sample((make(0, low=0, high=255),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=255),), {"width": 17}), ValueError, "width is 17")
            ],
        )

    return wrong, right, declare


@pair(
    "shuffle_bytes",
    "bytes after the last whole element are shuffled with the rest",
    "byte-shuffle filters of HDF5, Blosc and numcodecs: a buffer that is no multiple of the element size",
    "a length that is no multiple of the width, such as 50 bytes with width 4",
)
def shuffle_bytes():
    """All first bytes of the elements, then all second bytes and so on; bytes after the last whole element stay."""

    def check(width):
        if width < 1:
            raise ValueError(f"width is {width}; give 1 or more")

    def wrong(xp, data, width=4):
        check(width)
        data = data.reshape(-1)
        filled = xp.concatenate([data, xp.zeros(-data.shape[0] % width, dtype=data.dtype)])
        return filled.reshape(-1, width).T.reshape(-1)[: data.shape[0]]

    def right(xp, data, width=4):
        check(width)
        data = data.reshape(-1)
        whole = data.shape[0] // width * width
        return xp.concatenate([data[:whole].reshape(-1, width).T.reshape(-1), data[whole:]])

    def reference(data, width=4):
        check(width)
        data = data.reshape(-1).tolist()
        count = len(data) // width
        out = [data[i * width + byte] for byte in range(width) for i in range(count)]
        return np.array(out + data[count * width :], dtype="uint8")

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="shuffle_bytes",
            dtypes=("uint8",),
            samples=lambda make: [
                make(64, low=0, high=255),
                Sample((make(96, low=0, high=255),), {"width": 8}),
                Sample((make(30, low=0, high=255),), {"width": 2}),
                Sample((make(0, low=0, high=255),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=255),), {"width": 0}), ValueError, "width is 0")
            ],
        )

    return wrong, right, declare


@pair(
    "nearest_rank",
    "one rank too high where percent of the length is a whole number",
    "inverted-CDF quantiles in array libraries: int(q * n) as the index instead of ceil(q * n) - 1",
    "rows of even length with the default of 50 percent: the upper of the two middle values",
)
def nearest_rank():
    """The smallest value that at least `percent` of the values on the last axis do not exceed."""

    def check(a, percent):
        if not 0 <= percent <= 100:
            raise ValueError(f"percent is {percent}; give 0 to 100")
        if a.shape[-1] == 0:
            raise ValueError("no values")

    def wrong(xp, a, percent=50):
        check(a, percent)
        count = a.shape[-1]
        return xp.sort(a, axis=-1)[..., min(percent * count // 100, count - 1)]

    def right(xp, a, percent=50):
        check(a, percent)
        return xp.sort(a, axis=-1)[..., max(-(-percent * a.shape[-1] // 100), 1) - 1]

    def reference(a, percent=50):
        check(a, percent)
        ordered = np.sort(a, axis=-1)
        ranks = np.arange(1, a.shape[-1] + 1)
        return ordered[..., np.argmax(ranks * 100 >= percent * a.shape[-1])]

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="nearest_rank",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((3, 33), low=-100, high=100),
                Sample((make((2, 4, 75), low=-100, high=100),), {"percent": 90}),
                Sample((make((5, 21), low=0, high=1),), {"percent": 25}),
                Sample((make((0, 7), low=0, high=1),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((2, 4), low=0, high=1),), {"percent": 101}), ValueError, "percent is 101"),
                ErrorInput(Sample((make((2, 0), low=0, high=1),)), ValueError, "no values"),
            ],
        )

    return wrong, right, declare


@pair(
    "calibration_gap",
    "a confidence of exactly 1 falls into no bin",
    "expected calibration error in metric libraries: half-open bins lose the predictions that are certain",
    "confidences that are exactly 1, as saturated softmax gives",
)
def calibration_gap():
    """The expected calibration error: gaps between mean confidence and accuracy of equal bins, by their share."""

    def check(confidence, correct, bins):
        if bins < 1:
            raise ValueError(f"bins is {bins}; give 1 or more")
        if confidence.shape != correct.shape:
            raise ValueError("confidence and correct have different shapes")

    def gaps(xp, confidence, correct, bins, place):
        wide = confidence.reshape(-1).astype("float64")
        excess = wide - correct.reshape(-1).astype("float64")
        bin_of = place(xp.floor(wide * bins))
        total = xp.zeros((), dtype="float64")
        for i in range(bins):
            total = total + xp.abs(xp.where(bin_of == i, excess, xp.zeros(excess.shape, dtype="float64")).sum())
        return (total / max(wide.shape[0], 1)).astype(confidence.dtype)

    def wrong(xp, confidence, correct, bins=10):
        check(confidence, correct, bins)
        return gaps(xp, confidence, correct, bins, lambda bin_of: bin_of)

    def right(xp, confidence, correct, bins=10):
        check(confidence, correct, bins)
        return gaps(xp, confidence, correct, bins, lambda bin_of: xp.minimum(bin_of, bins - 1))

    def reference(confidence, correct, bins=10):
        check(confidence, correct, bins)
        sums = [0.0] * bins
        for p, hit in zip(confidence.reshape(-1).tolist(), correct.reshape(-1).tolist(), strict=True):
            sums[min(int(p * bins), bins - 1)] += p - hit
        return np.asarray(sum(abs(s) for s in sums) / max(confidence.size, 1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="calibration_gap",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(80, low=0, high=1), make(80, dtype="bool")),
                Sample((make((6, 20), low=0, high=1), make((6, 20), dtype="bool")), {"bins": 15}),
                Sample((make(0, low=0, high=1), make(0, dtype="bool")), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(
                    Sample((make(4, low=0, high=1), make(4, dtype="bool")), {"bins": 0}), ValueError, "bins is 0"
                )
            ],
        )

    return wrong, right, declare


@pair(
    "gather_or_fill",
    "integers pass through float64 because missing is NaN for a while",
    "pandas reindex and nullable integers: large identifiers changed by the way over float64 with NaN",
    "int64 values beyond 2**53, such as 2**53 + 1",
)
def gather_or_fill():
    """values[positions], with `fill` where a position is negative or past the end, as for unmatched rows of a join."""

    def known(xp, values, positions):
        count = values.shape[0]
        return (positions >= 0) & (positions < count), xp.clip(positions, 0, max(count - 1, 0))

    def wrong(xp, values, positions, fill=-1):
        if values.shape[0] == 0:
            return xp.full(positions.shape, fill, dtype=values.dtype)
        valid, safe = known(xp, values, positions)
        wide = xp.where(valid, values.astype("float64")[safe], xp.full(positions.shape, np.nan))
        return xp.where(xp.isnan(wide), xp.full(positions.shape, float(fill)), wide).astype(values.dtype)

    def right(xp, values, positions, fill=-1):
        filled = xp.full(positions.shape, fill, dtype=values.dtype)
        if values.shape[0] == 0:
            return filled
        valid, safe = known(xp, values, positions)
        return xp.where(valid, values[safe], filled)

    def reference(values, positions, fill=-1):
        out = np.full(positions.shape, fill, dtype=values.dtype)
        for place in np.ndindex(positions.shape):
            if 0 <= positions[place] < len(values):
                out[place] = values[positions[place]]
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="gather_or_fill",
            dtypes=("int32", "int64"),
            samples=lambda make: [
                (make(30), make(40, dtype="int64", low=-1, high=29)),
                (make(12), make((5, 6), dtype="int64", low=-1, high=11)),
                Sample((make(20), make(25, dtype="int64", low=-1, high=19)), {"fill": 0}),
                Sample((make(0), make(5, dtype="int64", low=-1, high=-1)), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare
