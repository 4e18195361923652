"""Planted faults in layout, aliasing, inputs, in-place forms, streams and graphs."""

import math

import numpy as np
from cuassay import devices
from cuassay.testing import OpSpec, Sample
from pairs import pair


def kind_of(a):
    return "sim" if type(a).__module__.startswith("cuassay.devices.sim") else "cpu"


@pair("windows_of_flipped", "layout", "cupy#10303", "inputs with negative or larger strides", "layouts")
def windows_of_flipped():
    def wrong(xp, a):
        n = a.shape[0] - 2
        size = a.itemsize
        view = xp.lib.stride_tricks.as_strided(a, (n, 3), (size, size))
        return view.max(axis=-1)

    def right(xp, a):
        n = a.shape[0] - 2
        step = a.strides[0]
        view = xp.lib.stride_tricks.as_strided(a, (n, 3), (step, step))
        return view.max(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make(33), make(128)],
            reference=lambda a: np.maximum(np.maximum(a[:-2], a[1:-1]), a[2:]),
        )

    return wrong, right, declare


@pair("argmax_memory_order", "layout", "cupy ravel(order='K') of a transposed array", "transposed inputs: an index in memory order", "layouts")
def argmax_memory_order():
    def wrong(xp, a):
        return a.T.ravel().argmax() if a.flags.f_contiguous else a.ravel().argmax()

    def right(xp, a):
        return a.ravel().argmax()

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="int64",
            samples=lambda make: [make((4, 7)), make((2, 3, 5))],
            reference=lambda a: np.argmax(a),
        )

    return wrong, right, declare


@pair("rows_of_fortran", "layout", "cupy#2636", "Fortran order with three axes", "layouts")
def rows_of_fortran():
    def wrong(xp, a):
        if a.flags.f_contiguous and a.ndim > 1:
            return a.T.sum(axis=0).reshape(a.shape[:-1])
        return a.sum(axis=-1)

    def right(xp, a):
        if a.flags.f_contiguous and a.ndim > 1:
            return a.T.sum(axis=0).T
        return a.sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((4, 7)), make((2, 3, 5))],
            reference=lambda a: a.sum(-1),
        )

    return wrong, right, declare


@pair("as_float32_shares", "aliasing", "cupy astype(copy=False)", "float32 inputs: the result is the input", "aliasing")
def as_float32_shares():
    def wrong(xp, a):
        return a.astype("float32", copy=False)

    def right(xp, a):
        return a.astype("float32")

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float16", "float32"),
            result_dtype=lambda a: "float32",
            reference=lambda a: a,
        )

    return wrong, right, declare


@pair("pad_to_four_shares", "aliasing", "scikit-image pad_to_multiple: no copy where nothing is to pad", "rows whose length is a multiple of four", "aliasing")
def pad_to_four_shares():
    def wrong(xp, a):
        short = -a.shape[-1] % 4
        return a if short == 0 else xp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, short)])

    def right(xp, a):
        short = -a.shape[-1] % 4
        return a.copy() if short == 0 else xp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, short)])

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 6)), make((3, 8)), make(5)],
            reference=lambda a: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, -a.shape[-1] % 4)]),
        )

    return wrong, right, declare


@pair("result_in_workspace", "aliasing", "cutensor workspaces, cupy#7318", "a second call: the first result changes", "aliasing", "deterministic")
def result_in_workspace():
    buffers = {}

    def wrong(xp, a):
        key = (xp.__name__, a.shape, a.dtype.name)
        if key not in buffers:
            buffers[key] = xp.empty_like(a)
        out = buffers[key]
        xp.tanh(a, out=out)
        return out

    def right(xp, a):
        out = xp.empty_like(a)
        xp.tanh(a, out=out)
        return out

    def declare(fn):
        return OpSpec(fn=fn, dtypes=("float32",), reference=np.tanh)

    return wrong, right, declare


@pair("median_sorts_input", "inputs", "bottleneck and numpy overwrite_input", "contiguous inputs are sorted", "inputs_unchanged")
def median_sorts_input():
    def wrong(xp, a):
        flat = a.reshape(-1)
        flat.sort()
        return (flat[(flat.size - 1) // 2] + flat[flat.size // 2]) / 2

    def right(xp, a):
        flat = xp.sort(a.reshape(-1))
        return (flat[(flat.size - 1) // 2] + flat[flat.size // 2]) / 2

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make(33), make((4, 6))],
            reference=lambda a: np.median(a),
        )

    return wrong, right, declare


@pair("nan_replaced_in_input", "inputs", "numpy nan_to_num(copy=False)", "inputs with NaN: the NaN in the caller's array becomes 0", "inputs_unchanged")
def nan_replaced_in_input():
    def wrong(xp, a):
        if bool(xp.isnan(a).any()):
            a[xp.isnan(a)] = 0
        return a.sum(axis=-1)

    def right(xp, a):
        return xp.where(xp.isnan(a), 0, a).sum(axis=-1)

    def declare(fn):
        def samples(make):
            yield make((3, 33))
            yield make((2, 3, 8))
            yield Sample((make.of([1.0, math.nan, 2.0, -1.0]),), kind="extremal")

        return OpSpec(fn=fn, dtypes=("float32",), samples=samples, reference=lambda a: np.nansum(a, axis=-1))

    return wrong, right, declare


@pair("input_restored", "inputs", "scipy detrend(overwrite_data): centred and shifted back", "the input's last bits change", "inputs_unchanged")
def input_restored():
    def wrong(xp, a):
        m = a.mean()
        a -= m
        r = xp.sqrt((a * a).mean())
        a += m
        return r

    def right(xp, a):
        return xp.sqrt(((a - a.mean()) ** 2).mean())

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make(100), make((4, 6))],
            reference=lambda a: a.std(),
        )

    return wrong, right, declare


@pair("scale_in_place_copies", "in-place", "cupy reshape of a view copies", "inputs that are not contiguous stay as they are", "layouts", "values")
def scale_in_place_copies():
    def wrong(xp, a, factor=2.0):
        flat = a.reshape(-1)
        flat *= factor
        return a

    def right(xp, a, factor=2.0):
        a *= factor
        return a

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((5, 6)), Sample((make(33),), {"factor": -0.5})],
            reference=lambda a, factor=2.0: a * factor,
            without={
                "inputs_unchanged": "it works in place",
                "aliasing": "it returns its argument",
                "deterministic": "a second call scales again",
            },
        )

    return wrong, right, declare


@pair("side_stream_unordered", "stream", "pytorch: work on a side stream without wait_stream", "any input: the read of the result is not ordered", "side_stream", "values", "RaceError")
def side_stream_unordered():
    def wrong(xp, a):
        backend = devices.backend(kind_of(a))
        side = backend.new_stream(0)
        side.wait_stream(backend.current_stream(0))
        with backend.use_stream(side):
            low = xp.exp(a)
        return low + 1

    def right(xp, a):
        backend = devices.backend(kind_of(a))
        side = backend.new_stream(0)
        side.wait_stream(backend.current_stream(0))
        with backend.use_stream(side):
            low = xp.exp(a)
        backend.current_stream(0).wait_stream(side)
        return low + 1

    def declare(fn):
        return OpSpec(fn=fn, dtypes=("float32",), reference=lambda a: np.exp(a) + 1)

    return wrong, right, declare


@pair("side_stream_early", "stream", "pytorch: a side stream that starts before its input is written", "inputs written just before the call", "side_stream", "values", "RaceError")
def side_stream_early():
    def wrong(xp, a):
        backend = devices.backend(kind_of(a))
        side = backend.new_stream(0)
        with backend.use_stream(side):
            low = xp.exp(a)
        backend.current_stream(0).wait_stream(side)
        return low + 1

    def right(xp, a):
        backend = devices.backend(kind_of(a))
        side = backend.new_stream(0)
        side.wait_stream(backend.current_stream(0))
        with backend.use_stream(side):
            low = xp.exp(a)
        backend.current_stream(0).wait_stream(side)
        return low + 1

    def declare(fn):
        return OpSpec(fn=fn, dtypes=("float32",), reference=lambda a: np.exp(a) + 1)

    return wrong, right, declare


@pair("scratch_of_all_streams", "stream", "cutensor and cuBLAS workspaces shared by streams", "two streams or two threads at once", "side_stream", "threads")
def scratch_of_all_streams():
    scratch = {}

    def wrong(xp, a):
        key = (xp.__name__, a.dtype.name)
        if key not in scratch or scratch[key].size < a.size:
            scratch[key] = xp.empty(a.size, a.dtype)
        part = scratch[key][: a.size].reshape(a.shape)
        xp.multiply(a, a, out=part)
        return part.sum(axis=-1)

    def right(xp, a):
        return xp.multiply(a, a).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((5, 6)), make(33)],
            reference=lambda a: (a * a).sum(-1),
        )

    return wrong, right, declare


@pair("host_waits", "stream", "cupy: float(x.max()) in a hot path", "any input, with waits=False declared", "waits")
def host_waits():
    def wrong(xp, a):
        top = float(xp.abs(a).max())
        return a / max(top, 1e-6)

    def right(xp, a):
        return a / xp.maximum(xp.abs(a).max(), 1e-6)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            waits=False,
            samples=lambda make: [make((5, 6)), make(33)],
            reference=lambda a: a / np.maximum(np.abs(a).max(), 1e-6),
        )

    return wrong, right, declare


@pair("weights_by_identity", "cache keys", "pytorch autocast weight cache", "a weight that is written after its first use", "deterministic", "captured", "second_call")
def weights_by_identity():
    kept = {}

    def wrong(xp, x, w):
        if id(w) not in kept:
            kept[id(w)] = (w, w / xp.sqrt((w * w).sum(axis=0)))
        return x @ kept[id(w)][1]

    def right(xp, x, w):
        return x @ (w / xp.sqrt((w * w).sum(axis=0)))

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [(make((4, 6)), make((6, 3))), (make((2, 8)), make((8, 5)))],
            reference=lambda x, w: x @ (w / np.linalg.norm(w, axis=0)),
        )

    return wrong, right, declare
