"""Sixty wrong functions with right twins, declared as a maintainer would, and frozen before the first run."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay import devices
from cuassay.testing import ErrorInput, OpSpec, Sample


class Pair(NamedTuple):
    """`shows` says on which inputs the two differ, `checks` which checks were expected to find it before the first run.

    `make` returns the wrong function, the right one, and what declares either as an `OpSpec`.
    """

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


# Planted faults in dtypes, promotion, overflow, special values and cancellation.
@pair("mse_unsigned", "promotion", "scikit-learn#28827", "unsigned integers with a < b", "values")
def mse_unsigned():
    def wrong(xp, a, b):
        d = (a - b).astype("float32") if a.dtype.kind == "u" else a - b
        return (d * d).mean(axis=-1)

    def right(xp, a, b):
        d = a.astype("float32") - b.astype("float32")
        return (d * d).mean(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("uint8", "float32"),
            result_dtype=lambda a, b: "float32",
            samples=lambda make: [(make((3, 40), low=0, high=200), make((3, 40), low=0, high=200))],
            reference=lambda a, b: ((a.astype(float) - b) ** 2).mean(-1),
        )

    return wrong, right, declare


@pair("gelu_constant", "promotion", "numpy NEP 50, cupy#8536", "float32 and float16 arrays: the result is float64", "wider_result", "values")
def gelu_constant():
    def wrong(xp, a):
        return 0.5 * a * (1 + xp.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a * a * a)))

    def right(xp, a):
        return 0.5 * a * (1 + xp.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a * a * a)))

    def declare(fn):
        c = math.sqrt(2 / math.pi)
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 65)), make(257)],
            reference=lambda a: a / (1 + np.exp(-2 * c * (a + 0.044715 * a**3))),
        )

    return wrong, right, declare


@pair("count_uint8", "dtype", "cupy#758: arithmetic in a narrow integer", "more than 255 positive numbers in a row", "sizes")
def count_uint8():
    def wrong(xp, a):
        return (a > 0).astype("uint8").sum(axis=-1, dtype="uint8").astype("int64")

    def right(xp, a):
        return (a > 0).sum(axis=-1, dtype="int64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="int64",
            samples=lambda make: [make((4, 50)), make((2, 3, 17))],
            reference=lambda a: np.count_nonzero(a > 0, axis=-1),
        )

    return wrong, right, declare


@pair("mean_int32", "overflow", "numpy mean of int32 on accelerators", "sums beyond 2^31", "full_range")
def mean_int32():
    def wrong(xp, a):
        return (a.sum(axis=-1, dtype=a.dtype) / a.shape[-1]).astype("float64")

    def right(xp, a):
        return a.mean(axis=-1, dtype="float64")

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("int32",),
            result_dtype="float64",
            samples=lambda make: [make((3, 33)), make((2, 5, 8))],
            reference=lambda a: a.astype(float).mean(-1),
        )

    return wrong, right, declare


@pair("midpoint_int", "overflow", "scipy#12836", "two numbers whose sum leaves the dtype", "full_range")
def midpoint_int():
    def wrong(xp, a, b):
        return (a + b) >> 1

    def right(xp, a, b):
        return (a & b) + ((a ^ b) >> 1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("int8", "int32"),
            samples=lambda make: [(make(33), make(33)), (make((3, 5)), make((3, 5)))],
            reference=lambda a, b: (a.astype("int64") + b) >> 1,
        )

    return wrong, right, declare


@pair("gamma_wraps", "overflow", "scikit-image#5413", "a gain above one: bright pixels become dark", "values")
def gamma_wraps():
    def wrong(xp, a, gamma=1.0, gain=1.0):
        table = (255 * gain * xp.linspace(0, 1, 256) ** gamma).astype("int64").astype("uint8")
        return table[a]

    def right(xp, a, gamma=1.0, gain=1.0):
        table = xp.minimum(255 * gain * xp.linspace(0, 1, 256) ** gamma, 255).astype("uint8")
        return table[a]

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("uint8",),
            samples=lambda make: [
                make((5, 7), high=255),
                Sample((make((5, 7), high=255),), {"gamma": 2.0}),
                Sample((make((5, 7), high=255),), {"gain": 1.5}),
            ],
            reference=lambda a, gamma=1.0, gain=1.0: np.minimum(255 * gain * np.linspace(0, 1, 256)[a] ** gamma, 255).astype("uint8"),
        )

    return wrong, right, declare


@pair("softplus_threshold", "overflow", "pytorch softplus: threshold compared without beta", "beta * a beyond 88 while a < 20", "values", "extremal", "units")
def softplus_threshold():
    def wrong(xp, a, beta=1.0):
        return xp.where(a > 20, a, xp.log1p(xp.exp(beta * a)) / beta)

    def right(xp, a, beta=1.0):
        t = beta * a
        return xp.where(t > 20, a, xp.log1p(xp.exp(xp.minimum(t, 20))) / beta)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 40)), Sample((make((3, 40)),), {"beta": 10.0})],
            reference=lambda a, beta=1.0: np.logaddexp(0, beta * a) / beta,
        )

    return wrong, right, declare


@pair("hypot_naive", "overflow", "numpy hypot; cupy abs of complex", "numbers beyond 1e19 or below 1e-19", "full_range", "extremal")
def hypot_naive():
    def wrong(xp, a, b):
        return xp.sqrt(a * a + b * b)

    def right(xp, a, b):
        return xp.hypot(a, b)

    def declare(fn):
        return OpSpec(fn=fn, dtypes=("float32",), reference=np.hypot)

    return wrong, right, declare


@pair("rms_half", "overflow", "onnxruntime#29034", "float16 numbers above 255", "full_range", "units", "extremal", "accumulation")
def rms_half():
    def wrong(xp, a):
        return xp.sqrt((a * a).mean(axis=-1, dtype="float32")).astype(a.dtype)

    def right(xp, a):
        w = a.astype("float32")
        return xp.sqrt((w * w).mean(axis=-1)).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float16",),
            result_dtype=lambda a: a,
            samples=lambda make: [make((3, 64)), make((2, 3, 100))],
            reference=lambda a: np.sqrt(np.square(a).mean(-1)),
        )

    return wrong, right, declare


@pair("variance_moments", "reductions", "pytorch layer_norm: E[x^2] - E[x]^2", "numbers far from zero", "units", "stress")
def variance_moments():
    def wrong(xp, a):
        m = a.mean(axis=-1, keepdims=True)
        return (a - m) / xp.sqrt((a * a).mean(axis=-1, keepdims=True) - m * m + 1e-3)

    def right(xp, a):
        d = a - a.mean(axis=-1, keepdims=True)
        return d / xp.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-3)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 64)), make((2, 3, 100))],
            reference=lambda a: (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-3),
        )

    return wrong, right, declare


@pair("geometric_mean", "overflow", "scipy gmean by a product", "long rows: the product leaves the dtype", "sizes", "units")
def geometric_mean():
    def wrong(xp, a):
        return xp.prod(a, axis=-1) ** (1 / a.shape[-1])

    def right(xp, a):
        return xp.exp(xp.log(a).mean(axis=-1))

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 20), low=0.5, high=2), make((2, 5, 7), low=0.5, high=2)],
            reference=lambda a: np.exp(np.log(a).mean(-1)),
        )

    return wrong, right, declare


@pair("clamp_nan", "special values", "pytorch#15338", "NaN becomes the lower bound", "stress", "extremal")
def clamp_nan():
    def wrong(xp, a, low=-1.0, high=1.0):
        return xp.where(a > low, xp.where(a < high, a, high), low).astype(a.dtype)

    def right(xp, a, low=-1.0, high=1.0):
        return xp.where(a < low, low, xp.where(a > high, high, a)).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float16", "float32"),
            samples=lambda make: [make((3, 33)), Sample((make(65),), {"low": -0.5, "high": 2.0})],
            reference=lambda a, low=-1.0, high=1.0: np.clip(a, low, high),
        )

    return wrong, right, declare


@pair("logsumexp_empty_row", "special values", "scipy logsumexp: a row of minus infinity", "a row that is all minus infinity", "stress", "infinities", "extremal")
def logsumexp_empty_row():
    def wrong(xp, a):
        m = a.max(axis=-1, keepdims=True)
        return (xp.log(xp.exp(a - m).sum(axis=-1, keepdims=True)) + m)[..., 0]

    def right(xp, a):
        m = a.max(axis=-1, keepdims=True)
        m = xp.where(xp.isfinite(m), m, 0)
        return (xp.log(xp.exp(a - m).sum(axis=-1, keepdims=True)) + m)[..., 0]

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 33)), make((2, 4, 5))],
            reference=lambda a: np.logaddexp.reduce(a, axis=-1),
        )

    return wrong, right, declare


@pair("argmax_nan", "special values", "oneflow#7606, pytorch#1810", "NaN in a row: 0 instead of its place", "stress", "extremal")
def argmax_nan():
    def wrong(xp, a):
        return (a == a.max(axis=-1, keepdims=True)).argmax(axis=-1)

    def right(xp, a):
        return a.argmax(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="int64",
            samples=lambda make: [make((3, 33)), make((2, 4, 5))],
            reference=lambda a: np.argmax(a, axis=-1),
        )

    return wrong, right, declare


@pair("entropy_zero", "special values", "scipy xlogy", "a probability of zero", "zeros")
def entropy_zero():
    def wrong(xp, p):
        return -(p * xp.log(p)).sum(axis=-1)

    def right(xp, p):
        return -xp.where(p > 0, p * xp.log(xp.where(p > 0, p, 1)), 0 * p).sum(axis=-1)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 33), low=0.0, high=1.0), make((2, 4, 5), low=0.0, high=1.0)],
            reference=lambda p: -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(-1),
        )

    return wrong, right, declare


@pair("unit_vector_zero", "special values", "pytorch normalize without its eps", "a vector of zeros", "zeros")
def unit_vector_zero():
    def wrong(xp, a):
        return a / xp.sqrt((a * a).sum(axis=-1, keepdims=True))

    def right(xp, a):
        n = xp.sqrt((a * a).sum(axis=-1, keepdims=True))
        return a / xp.where(n == 0, 1, n)

    def declare(fn):
        def reference(a):
            n = np.linalg.norm(a, axis=-1, keepdims=True)
            return np.divide(a, n, out=np.zeros_like(a), where=n > 0)

        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 33)), make((2, 4, 5))],
            reference=reference,
        )

    return wrong, right, declare


@pair("quantize_half", "special values", "onnxruntime QuantizeLinear: half away from zero", "numbers half-way between two steps", "halves", "zeros")
def quantize_half():
    def wrong(xp, a):
        return xp.clip(xp.floor(a / 0.5 + 0.5), -128, 127).astype("int8")

    def right(xp, a):
        return xp.clip(xp.round(a / 0.5), -128, 127).astype("int8")

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="int8",
            samples=lambda make: [make((3, 33)), make(100, low=-80, high=80)],
            reference=lambda a: np.clip(np.rint(a / 0.5), -128, 127),
        )

    return wrong, right, declare


@pair("isclose_infinite", "special values", "numpy isclose of equal infinities", "two equal infinities", "extremal", "infinities")
def isclose_infinite():
    def wrong(xp, a, b):
        return xp.abs(a - b) <= 1e-6 + 1e-4 * xp.abs(b)

    def right(xp, a, b):
        return xp.isclose(a, b, rtol=1e-4, atol=1e-6)

    def declare(fn):
        def samples(make):
            a = make((3, 33))
            return [(a, make((3, 33))), (a, a), (make(20), make(20))]

        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            result_dtype="bool",
            samples=samples,
            reference=lambda a, b: np.isclose(a, b, rtol=1e-4, atol=1e-6),
        )

    return wrong, right, declare


@pair("moving_average", "reductions", "cupy#8401", "a large number: all later windows lose digits", "units", "stress", "sizes")
def moving_average():
    def wrong(xp, a):
        c = xp.cumsum(xp.concatenate([xp.zeros_like(a[..., :1]), a], axis=-1), axis=-1)
        return (c[..., 4:] - c[..., :-4]) / 4

    def right(xp, a):
        return (a[..., :-3] + a[..., 1:-2] + a[..., 2:-1] + a[..., 3:]) / 4

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 33)), make(64)],
            reference=lambda a: np.lib.stride_tricks.sliding_window_view(a, 4, axis=-1).mean(-1),
        )

    return wrong, right, declare


@pair("norm_p", "overflow", "pytorch norm with p above 2", "numbers whose eighth power overflows", "units", "extremal", "full_range")
def norm_p():
    def wrong(xp, a, p=8):
        return (xp.abs(a) ** p).sum(axis=-1) ** (1 / p)

    def right(xp, a, p=8):
        m = xp.abs(a).max(axis=-1, keepdims=True)
        s = xp.where(m > 0, m, 1)
        return m[..., 0] * ((xp.abs(a) / s) ** p).sum(axis=-1) ** (1 / p)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 33)), Sample((make((3, 33)),), {"p": 3})],
            reference=lambda a, p=8: np.linalg.norm(a, p, axis=-1),
        )

    return wrong, right, declare


# Planted faults in layout, aliasing, inputs, in-place forms, streams and graphs.
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


# Planted faults in cache keys, state between calls, random numbers and errors.
@pair("window_cache_dtype", "cache keys", "cupy#2685: a kernel cached by its shape", "float32 and float64 in turns", "second_call")
def window_cache_dtype():
    kept = {}

    def window(xp, n, dtype, key):
        if key not in kept:
            kept[key] = xp.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / n), dtype)
        return kept[key]

    def wrong(xp, a):
        n = a.shape[-1]
        return a * window(xp, n, a.dtype, ("wrong", xp.__name__, n))

    def right(xp, a):
        n = a.shape[-1]
        return a * window(xp, n, a.dtype, ("right", xp.__name__, n, a.dtype.name))

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32", "float64"),
            samples=lambda make: [make((3, 32)), make(50)],
            reference=lambda a: a * np.sin(np.pi * np.arange(a.shape[-1]) / a.shape[-1]) ** 2,
        )

    return wrong, right, declare


@pair("rotary_cache_base", "cache keys", "rotary tables kept by length only", "two bases in turns", "values", "second_call")
def rotary_cache_base():
    kept = {}

    def rotate(xp, a, base, key):
        n, d = a.shape[-2] , a.shape[-1] // 2
        if key not in kept:
            angle = np.arange(n)[:, None] / base ** (np.arange(d) / d)
            kept[key] = xp.asarray(np.cos(angle), a.dtype), xp.asarray(np.sin(angle), a.dtype)
        c, s = kept[key]
        u, v = a[..., :d], a[..., d:]
        return xp.concatenate([u * c - v * s, v * c + u * s], axis=-1)

    def wrong(xp, a, base=10000.0):
        return rotate(xp, a, base, ("wrong", xp.__name__, a.dtype.name, a.shape[-2:]))

    def right(xp, a, base=10000.0):
        return rotate(xp, a, base, ("right", xp.__name__, a.dtype.name, a.shape[-2:], base))

    def declare(fn):
        def reference(a, base=10000.0):
            n, d = a.shape[-2], a.shape[-1] // 2
            turn = np.exp(1j * np.arange(n)[:, None] / base ** (np.arange(d) / d))
            z = (a[..., :d] + 1j * a[..., d:]) * turn
            return np.concatenate([z.real, z.imag], -1)

        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((2, 6, 8)), Sample((make((3, 5, 4)),), {"base": 500.0})],
            reference=reference,
        )

    return wrong, right, declare


@pair("mask_cache_extent", "cache keys", "nvidia cccl#7622", "the same number of queries with another number of keys", "values", "second_call", "sizes")
def mask_cache_extent():
    kept = {}

    def masked(xp, s, key):
        q, k = s.shape[-2:]
        if key not in kept:
            kept[key] = xp.asarray(np.tril(np.ones((q, k), bool), k - q))
        return xp.where(kept[key][:, :k], s, -1e9).astype(s.dtype)

    def wrong(xp, s):
        return masked(xp, s, ("wrong", xp.__name__, s.shape[-2]))

    def right(xp, s):
        return masked(xp, s, ("right", xp.__name__, s.shape[-2:]))

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((2, 6, 6)), make((3, 8, 8)), make((4, 9))],
            reference=lambda s: np.where(np.tril(np.ones(s.shape[-2:], bool), s.shape[-1] - s.shape[-2]), s, -1e9),
        )

    return wrong, right, declare


@pair("table_of_first_device", "cache keys", "cupy memoize without for_each_device", "a second device in one process", "values", "DeviceError")
def table_of_first_device():
    kept = {}

    def wrong(xp, a):
        if "table" not in kept:
            kept["table"] = xp.asarray([0.25, 0.5, 0.25], "float32")
        t = kept["table"]
        return a[..., :-2] * t[0] + a[..., 1:-1] * t[1] + a[..., 2:] * t[2]

    def right(xp, a):
        if xp.__name__ not in kept:
            kept[xp.__name__] = xp.asarray([0.25, 0.5, 0.25], "float32")
        t = kept[xp.__name__]
        return a[..., :-2] * t[0] + a[..., 1:-1] * t[1] + a[..., 2:] * t[2]

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 32)), make(50)],
            reference=lambda a: (a[..., :-2] + 2 * a[..., 1:-1] + a[..., 2:]) / 4,
        )

    return wrong, right, declare


@pair("kept_window_scaled", "state", "scipy get_window kept by lru_cache and written to", "a second call with the same length", "deterministic", "second_call", "values")
def kept_window_scaled():
    kept = {}

    def window(xp, a, owner):
        key = owner, xp.__name__, a.shape[-1], a.dtype.name
        if key not in kept:
            kept[key] = xp.asarray(np.hanning(a.shape[-1]), a.dtype)
        return kept[key]

    def wrong(xp, a, gain=1.0):
        w = window(xp, a, "wrong")
        if gain != 1.0:
            w *= gain
        return a * w

    def right(xp, a, gain=1.0):
        return a * (window(xp, a, "right") * gain)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 32)), Sample((make((2, 50)),), {"gain": 0.5})],
            reference=lambda a, gain=1.0: a * np.hanning(a.shape[-1]) * gain,
        )

    return wrong, right, declare


@pair("errors_silenced", "state", "numpy.seterr left changed", "any call: warnings are off afterwards", "state")
def errors_silenced():
    def wrong(xp, a):
        np.seterr(invalid="ignore", divide="ignore")
        return a / (xp.abs(a) + 1)

    def right(xp, a):
        with np.errstate(invalid="ignore", divide="ignore"):
            return a / (xp.abs(a) + 1)

    def declare(fn):
        return OpSpec(fn=fn, dtypes=("float32",), reference=lambda a: a / (np.abs(a) + 1))

    return wrong, right, declare


@pair("running_mean", "state", "batch norm in training mode", "the same input a second time", "deterministic", "values")
def running_mean():
    mean = {}

    def wrong(xp, a):
        key = xp.__name__, a.shape
        mean[key] = a.mean() if key not in mean else 0.9 * mean[key] + 0.1 * a.mean()
        return a - mean[key]

    def right(xp, a):
        return a - a.mean()

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((4, 6)), make(33)],
            reference=lambda a: a - a.mean(),
        )

    return wrong, right, declare


@pair("global_seed", "random", "libraries that call numpy.random.seed", "any call: the user's generator starts again", "state")
def global_seed():
    def wrong(xp, a, seed=0):
        np.random.seed(seed)
        keep = np.random.random_sample(a.shape) < 0.75
        return a * xp.asarray(keep, a.dtype)

    def right(xp, a, seed=0):
        keep = np.random.RandomState(seed).random_sample(a.shape) < 0.75
        return a * xp.asarray(keep, a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((4, 6)), Sample((make(33),), {"seed": 7})],
            reference=lambda a, seed=0: np.where(np.random.RandomState(seed).random_sample(a.shape) < 0.75, a, 0),
        )

    return wrong, right, declare


@pair("noise_not_seeded", "random", "dither from a generator of the module", "two equal calls", "deterministic")
def noise_not_seeded():
    shared = np.random.default_rng(3)

    def wrong(xp, a, seed=0):
        noise = shared.random(a.shape)
        return xp.floor(a * 4 + xp.asarray(noise, a.dtype)) / 4

    def right(xp, a, seed=0):
        noise = np.random.default_rng(seed).random(a.shape)
        return xp.floor(a * 4 + xp.asarray(noise, a.dtype)) / 4

    def declare(fn):
        # stochastic rounding: the result is a multiple of 1/4 near the input, so there is no reference but the function
        return OpSpec(fn=fn, dtypes=("float32",), samples=lambda make: [make((4, 6)), make(33)])

    return wrong, right, declare


@pair("flag_after_error", "errors", "a switch that an exception leaves set", "a good call after a bad one", "errors")
def flag_after_error():
    flags = {"transposed": False}

    def wrong(xp, a, b, trans=False):
        flags["transposed"] = flags["transposed"] or trans
        if a.shape[-1] != b.shape[0]:
            raise ValueError(f"shapes {a.shape} and {b.shape} do not fit")
        r = a @ b
        r = -r if flags["transposed"] else r
        flags["transposed"] = False
        return r

    def right(xp, a, b, trans=False):
        if a.shape[-1] != b.shape[0]:
            raise ValueError(f"shapes {a.shape} and {b.shape} do not fit")
        r = a @ b
        return -r if trans else r

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [(make((4, 6)), make((6, 3)))],
            reference=lambda a, b, trans=False: -(a @ b) if trans else a @ b,
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 6)), make((5, 3))), {"trans": True}), ValueError, "do not fit")
            ],
        )

    return wrong, right, declare


@pair("lengths_not_checked", "errors", "zip stops at the shorter list", "two lengths: no error", "errors")
def lengths_not_checked():
    def wrong(xp, a, weights=(1.0, 2.0, 1.0)):
        return sum(w * a[i] for i, w in zip(range(a.shape[0]), weights, strict=False))

    def right(xp, a, weights=(1.0, 2.0, 1.0)):
        if len(weights) != a.shape[0]:
            raise ValueError(f"{len(weights)} weights for {a.shape[0]} rows")
        return sum(w * a[i] for i, w in enumerate(weights))

    def declare(fn):
        return OpSpec(
            fn=fn,
            dtypes=("float32",),
            samples=lambda make: [make((3, 20)), Sample((make((2, 7)),), {"weights": (0.5, 0.5)})],
            reference=lambda a, weights=(1.0, 2.0, 1.0): np.tensordot(np.asarray(weights), a, 1),
            error_inputs=lambda make: [ErrorInput(make((4, 20)), ValueError, "weights for 4 rows")],
        )

    return wrong, right, declare


# Planted faults in sizes, tails, reductions, indices, broadcasting and options.
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
