"""Planted faults in dtypes, promotion, overflow, special values and cancellation."""

import math

import numpy as np
from cuassay.testing import OpSpec, Sample
from pairs import pair


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
