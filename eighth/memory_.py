"""Planted faults in cache keys, state between calls, random numbers and errors."""

import numpy as np
from cuassay.testing import ErrorInput, OpSpec, Sample
from pairs import pair


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
