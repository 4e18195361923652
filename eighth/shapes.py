"""Planted faults in sizes, tails, reductions, indices, broadcasting and options."""

import numpy as np
from cuassay.testing import OpSpec, Sample
from pairs import pair


@pair("block_tail", "sizes", "triton#630: a loop over whole blocks", "more than 1024 numbers, not a multiple of 1024", "sizes")
def block_tail():
    block = 1024

    def wrong(xp, a):
        n = a.shape[-1]
        if n <= block:
            return a.max(axis=-1)
        whole = a[..., : n // block * block].reshape(*a.shape[:-1], n // block, block)
        return whole.max(axis=-1).max(axis=-1)

    def right(xp, a):
        n = a.shape[-1]
        if n <= block:
            return a.max(axis=-1)
        whole = a[..., : n // block * block].reshape(*a.shape[:-1], n // block, block).max(axis=-1).max(axis=-1)
        return whole if n % block == 0 else xp.maximum(whole, a[..., n // block * block :].max(axis=-1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 100)), make((2, 4, 33)), make((2, 2048))],
            reference=lambda a: a.max(-1),
        )

    return wrong, right, declare


@pair("grid_of_rows", "sizes", "CUDA grid.y of 65,535; cupy#10290", "more than 65,535 rows", "sizes")
def grid_of_rows():
    def wrong(xp, a):
        out = xp.zeros_like(a)
        rows = a.reshape(-1, a.shape[-1])
        out.reshape(-1, a.shape[-1])[:65535] = rows[:65535] / (1 + xp.abs(rows[:65535]).sum(axis=-1, keepdims=True))
        return out

    def right(xp, a):
        return a / (1 + xp.abs(a).sum(axis=-1, keepdims=True))

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((30, 10)), make((2, 4, 33))],
            reference=lambda a: a / (1 + np.abs(a).sum(-1, keepdims=True)),
        )

    return wrong, right, declare


@pair("half_positions", "sizes", "rotary and ALiBi positions in float16", "positions beyond 2048 in float16", "sizes")
def half_positions():
    def wrong(xp, a):
        return a - 0.125 * xp.arange(a.shape[-1]).astype(a.dtype)

    def right(xp, a):
        return (a.astype("float32") - 0.125 * xp.arange(a.shape[-1], dtype="float32")).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float16",),
            result_dtype=lambda a: a,
            samples=lambda make: [make((4, 64)), make(100)],
            reference=lambda a: a - 0.125 * np.arange(a.shape[-1]),
        )

    return wrong, right, declare


@pair("ranks_int16", "indices", "cupy#758: indices in a narrow dtype", "more than 32,767 numbers in a row", "sizes")
def ranks_int16():
    def wrong(xp, a):
        return a.argsort(axis=-1).astype("int16").astype("int64")

    def right(xp, a):
        return a.argsort(axis=-1).astype("int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="int64",
            samples=lambda make: [make((4, 64)), make(100)],
            reference=lambda a: np.argsort(a, axis=-1),
        )

    return wrong, right, declare


@pair("max_pads_zero", "tails", "triton tl.load(other=0.0) before a maximum", "negative rows whose length is not a multiple of 32", "units", "zeros")
def max_pads_zero():
    def padded(xp, a, value):
        short = -a.shape[-1] % 32
        return xp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, short)], constant_values=value).max(axis=-1)

    def wrong(xp, a):
        return padded(xp, a, 0)

    def right(xp, a):
        return padded(xp, a, -np.inf)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 100)), make((2, 4, 50))],
            reference=lambda a: a.max(-1),
        )

    return wrong, right, declare


@pair("negative_axis", "indices", "cupy#10167", "axis=-2", "an axis by its negative number")
def negative_axis():
    def wrong(xp, a, axis=0):
        if axis == 0:
            return a[1:] - a[:-1]
        return a[:, 1:] - a[:, :-1]

    def right(xp, a, axis=0):
        if axis in (0, -2):
            return a[1:] - a[:-1]
        return a[:, 1:] - a[:, :-1]

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((5, 7)), Sample((make((5, 7)),), {"axis": 1}), Sample((make((4, 6)),), {"axis": -1})],
            reference=lambda a, axis=0: np.diff(a, axis=axis),
        )

    return wrong, right, declare


@pair("scatter_duplicates", "indices", "numpy and cupy: out[index] += values", "an index that occurs twice", "values")
def scatter_duplicates():
    def wrong(xp, values, index):
        out = xp.zeros(8, values.dtype)
        out[index] += values
        return out

    def right(xp, values, index):
        out = xp.zeros(8, values.dtype)
        xp.add.at(out, index, values)
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [(make(20), make(20, low=0, high=7, dtype="int64")), (make(5), make(5, low=0, high=7, dtype="int64"))],
            reference=lambda values, index: np.bincount(index, values, 8),
        )

    return wrong, right, declare


@pair("histogram_last_edge", "indices", "numpy histogram: the last bin includes its right edge", "a number equal to the last edge", "zeros", "halves")
def histogram_last_edge():
    def wrong(xp, a):
        place = xp.floor((a + 2) * 2).astype("int64")
        inside = (place >= 0) & (place < 8)
        return xp.bincount(xp.where(inside, place, 8).ravel(), minlength=9)[:8]

    def right(xp, a):
        place = xp.where(a == 2, 7, xp.floor((a + 2) * 2).astype("int64"))
        inside = (place >= 0) & (place < 8)
        return xp.bincount(xp.where(inside, place, 8).ravel(), minlength=9)[:8]

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="int64",
            samples=lambda make: [make(100), make((4, 9))],
            reference=lambda a: np.histogram(a, bins=8, range=(-2, 2))[0],
        )

    return wrong, right, declare


@pair("flat_index_uint8", "indices", "cupy#758", "a table of more than 255 numbers", "sizes", "values")
def flat_index_uint8():
    def wrong(xp, table, index):
        start = index * index.dtype.type(table.shape[1])
        return table.reshape(-1)[start]

    def right(xp, table, index):
        return table[index, 0]

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [
                (make((8, 16)), make(20, low=0, high=7, dtype="uint8")),
                (make((5, 3)), make((2, 4), low=0, high=4, dtype="uint8")),
            ],
            reference=lambda table, index: table[index, 0],
        )

    return wrong, right, declare


@pair("bias_by_extent", "broadcasting", "a channel axis guessed from the extents", "as many columns as channels", "shapes whose extents are equal")
def bias_by_extent():
    def wrong(xp, a, bias):
        if a.shape[-1] == bias.shape[0]:
            return a + bias
        return a + bias.reshape(-1, *[1] * (a.ndim - 2))

    def right(xp, a, bias):
        return a + bias.reshape(-1, *[1] * (a.ndim - 2))

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [(make((2, 3, 4, 5)), make(3)), (make((1, 6, 8)), make(6))],
            reference=lambda a, bias: a + bias.reshape(-1, *[1] * (a.ndim - 2)),
        )

    return wrong, right, declare


@pair("slope_or_default", "options", "alpha = alpha or 0.01", "an option of zero", "an option of zero")
def slope_or_default():
    def wrong(xp, a, slope=None):
        slope = slope or 0.01
        return xp.where(a > 0, a, slope * a)

    def right(xp, a, slope=None):
        slope = 0.01 if slope is None else slope
        return xp.where(a > 0, a, slope * a)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((5, 7)), Sample((make(33),), {"slope": 0.2})],
            reference=lambda a, slope=None: np.maximum(a, 0) + (0.01 if slope is None else slope) * np.minimum(a, 0),
        )

    return wrong, right, declare


@pair("count_of_first_axis", "reductions", "a mean over several axes divided by the first", "axis=(0, 1)", "values")
def count_of_first_axis():
    def wrong(xp, a, axis=-1, ddof=0):
        first = axis[0] if isinstance(axis, tuple) else axis
        n = a.shape[first]
        d = a - a.mean(axis=axis, keepdims=True)
        return (d * d).sum(axis=axis) / (n - ddof)

    def right(xp, a, axis=-1, ddof=0):
        return a.var(axis=axis, ddof=ddof)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [
                make((5, 7)),
                Sample((make((5, 7)),), {"axis": 0, "ddof": 1}),
                Sample((make((2, 5, 7)),), {"axis": (0, 2)}),
            ],
            reference=lambda a, axis=-1, ddof=0: np.var(a, axis=axis, ddof=ddof),
        )

    return wrong, right, declare


@pair("row_without_keys", "special values", "flash-attention, cubecl#1070: a row that is masked as a whole", "a mask row of False only", "zeros", "values")
def row_without_keys():
    def wrong(xp, s, keep):
        s = xp.where(keep, s, -xp.inf)
        e = xp.exp(s - s.max(axis=-1, keepdims=True))
        return (e / e.sum(axis=-1, keepdims=True)).astype("float32")

    def right(xp, s, keep):
        s = xp.where(keep, s, -xp.inf)
        m = s.max(axis=-1, keepdims=True)
        e = xp.exp(s - xp.where(xp.isfinite(m), m, 0))
        n = e.sum(axis=-1, keepdims=True)
        return (e / xp.where(n == 0, 1, n)).astype("float32")

    def declare(fn):
        def reference(s, keep):
            e = np.exp(np.clip(s, -500, 500)) * keep
            n = e.sum(-1, keepdims=True)
            return np.divide(e, n, out=np.zeros_like(e), where=n > 0)

        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="float32",
            samples=lambda make: [(make((4, 9)), make((4, 9), dtype="bool")), (make((2, 3, 16)), make((2, 3, 16), dtype="bool"))],
            reference=reference,
        )

    return wrong, right, declare


@pair("irfft_odd", "sizes", "numpy irfft without n", "rows of odd length", "sizes", "values")
def irfft_odd():
    def wrong(xp, a):
        f = xp.fft.rfft(a, axis=-1)
        f[..., f.shape[-1] // 2 :] = 0
        return xp.fft.irfft(f, axis=-1).astype(a.dtype)

    def right(xp, a):
        f = xp.fft.rfft(a, axis=-1)
        f[..., f.shape[-1] // 2 :] = 0
        return xp.fft.irfft(f, n=a.shape[-1], axis=-1).astype(a.dtype)

    def declare(fn):
        def reference(a):
            f = np.fft.fft(a, axis=-1)
            n = a.shape[-1]
            high = np.minimum(np.arange(n), n - np.arange(n)) >= (n // 2 + 1) // 2
            return np.fft.ifft(np.where(high, 0, f), axis=-1).real

        return OpSpec(
            fn=fn,
            dtypes=("float32", "float64"),
            samples=lambda make: [make((3, 64)), make(128)],
            reference=reference,
        )

    return wrong, right, declare
