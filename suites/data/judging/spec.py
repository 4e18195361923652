"""Declarations that the candidates in these folders are judged by."""

import numpy as np

from cuassay.testing import OpSpec, Sample, Tolerance


def rms(xp, a):
    return (a / xp.sqrt(xp.mean(a * a, axis=-1, keepdims=True) + 1e-6)).astype(a.dtype)


rms_norm = OpSpec(
    fn=rms,
    name="rms_norm",
    dtypes=("float32",),
    samples=lambda make: [make((3, 257)), make((2, 3, 64))],
    reference=lambda a: a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-6),
    bench=lambda make, sizes: [make((16, 129))],
)

mean = OpSpec(
    fn=lambda xp, a: xp.mean(a),
    name="mean",
    dtypes=("float32",),
    samples=lambda make: [make(33), make(2**13)],
    reference=np.mean,
)

tanh = OpSpec(fn=lambda xp, a: xp.tanh(a), name="tanh", dtypes=("float32",), reference=np.tanh)

product = OpSpec(
    fn=lambda xp, a, b: a @ b,
    name="product",
    dtypes=("float32",),
    samples=lambda make: [(make((17, 33)), make((33, 5))), (make((4, 96)), make((96, 8)))],
    reference=lambda a, b: a @ b,
)

affine = OpSpec(
    fn=lambda xp, a, *, scale=2.0, shift=0.0: a * scale + shift,
    name="affine",
    dtypes=("float32",),
    samples=lambda make: [make((64, 65)), Sample((make(33),), {"scale": -0.5, "shift": 1.0})],
    reference=lambda a, *, scale=2.0, shift=0.0: a * scale + shift,
)

argmax = OpSpec(
    fn=lambda xp, a: xp.argmax(a, axis=-1),
    name="argmax",
    dtypes=("float32",),
    samples=lambda make: [make((3, 257)), make((2, 3, 64))],
    reference=lambda a: np.argmax(a, axis=-1),
)

softmax = OpSpec(
    fn=lambda xp, a: (lambda e: e / e.sum(axis=-1, keepdims=True))(xp.exp(a - a.max(axis=-1, keepdims=True))),
    name="softmax",
    dtypes=("float32",),
    samples=lambda make: [make((5, 33)), make((2, 3, 64))],
    reference=lambda a: np.exp(a - a.max(-1, keepdims=True)) / np.exp(a - a.max(-1, keepdims=True)).sum(-1, keepdims=True),
    bench=lambda make, sizes: [make((8, 200))],
)

layer_norm = OpSpec(
    fn=lambda xp, a, w, b: (a - a.mean(-1, keepdims=True)) / xp.sqrt(a.var(-1, keepdims=True) + 1e-5) * w + b,
    name="layer_norm",
    dtypes=("float32",),
    samples=lambda make: [(make((4, 96)), make(96), make(96)), (make((2, 3, 33)), make(33), make(33))],
    reference=lambda a, w, b: (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * w + b,
)

silu = OpSpec(
    fn=lambda xp, a: a / (1 + xp.exp(-a)), name="silu", dtypes=("float32",), reference=lambda a: a / (1 + np.exp(-a))
)

prefix_sum = OpSpec(
    fn=lambda xp, a: xp.cumsum(a, axis=-1),
    name="prefix_sum",
    dtypes=("float32",),
    samples=lambda make: [make((3, 65)), make((2, 128))],
    reference=lambda a: np.cumsum(a, axis=-1),
)

sorted_rows = OpSpec(
    fn=lambda xp, a: xp.sort(a, axis=-1),
    name="sorted_rows",
    dtypes=("float32",),
    samples=lambda make: [make((3, 65)), make((2, 128))],
    reference=lambda a: np.sort(a, axis=-1),
)

outer = OpSpec(
    fn=lambda xp, a, b: a[:, None] * b[None, :],
    name="outer",
    dtypes=("float32", "float16"),
    samples=lambda make: [(make(33), make(65)), (make(4), make(128))],
    reference=lambda a, b: a[:, None] * b[None, :],
)

variance = OpSpec(
    fn=lambda xp, a: xp.var(a, axis=-1),
    name="variance",
    dtypes=("float32",),
    samples=lambda make: [make((5, 129)), make((2, 3, 64))],
    reference=lambda a: np.var(a, axis=-1),
)

total = OpSpec(
    fn=lambda xp, a: xp.sum(a, axis=0),
    name="total",
    dtypes=("int32", "int64"),
    samples=lambda make: [make((9, 33)), make((64, 5))],
    reference=lambda a: np.sum(a, axis=0),
)

transposed = OpSpec(
    fn=lambda xp, a: xp.ascontiguousarray(a.T),
    name="transposed",
    dtypes=("float32", "int32"),
    samples=lambda make: [make((9, 33)), make((64, 5))],
    reference=lambda a: a.T,
)

constant = OpSpec(
    fn=lambda xp, a: xp.ones_like(a),
    name="constant",
    dtypes=("float32",),
    samples=lambda make: [make(33)],
    reference=np.ones_like,
)

loose = OpSpec(
    fn=lambda xp, a: xp.tanh(a),
    name="loose",
    dtypes=("float32",),
    samples=lambda make: [make(33)],
    reference=np.tanh,
    tolerance=Tolerance(ulps=1e5),
)

unreferenced = OpSpec(fn=lambda xp, a: a * 0, name="unreferenced", dtypes=("float32",))

scaled_norm = OpSpec(
    fn=lambda xp, a, *, axis=-1, eps=1e-6: a / xp.sqrt(xp.mean(a * a, axis=axis, keepdims=True) + eps),
    name="scaled_norm",
    dtypes=("float32",),
    samples=lambda make: [
        Sample((make((5, 33)),), {"axis": -1, "eps": 1e-6}),
        Sample((make((2, 3, 64)),), {"axis": 1, "eps": 1e-6}),
    ],
    reference=lambda a, *, axis=-1, eps=1e-6: a / np.sqrt((a * a).mean(axis=axis, keepdims=True) + eps),
    bench=lambda make, sizes: [Sample((make((16, 129)),), {"axis": -1, "eps": 1e-6})],
)

gathered = OpSpec(
    fn=lambda xp, a, rows: a[rows],
    name="gathered",
    dtypes=("float32",),
    samples=lambda make: [(make((5, 33)), make.of([4, 0, 2], dtype="int64")), (make((3, 8)), make.of([2, 1, 0, 0], dtype="int64"))],
    reference=lambda a, rows: a[rows],
)

moments = OpSpec(
    fn=lambda xp, a: (xp.mean(a, axis=-1), 1 / xp.sqrt(xp.var(a, axis=-1) + 1e-5)),
    name="moments",
    dtypes=("float32",),
    samples=lambda make: [make((5, 129)), make((2, 3, 64))],
    reference=lambda a: (np.mean(a, axis=-1), 1 / np.sqrt(np.var(a, axis=-1) + 1e-5)),
    bench=lambda make, sizes: [make((16, 200))],
)


def largest(xp, a):
    places = xp.argsort(-a, axis=-1)[..., :3]
    return xp.take_along_axis(a, places, axis=-1), places


largest_values = OpSpec(
    fn=lambda xp, a: largest(xp, a)[0],
    name="largest_values",
    dtypes=("float32",),
    samples=lambda make: [make((5, 33)), make((2, 3, 64))],
    reference=lambda a: largest(np, a)[0],
    bench=lambda make, sizes: [make((16, 129))],
)

largest_places = OpSpec(
    fn=lambda xp, a: largest(xp, a)[1],
    name="largest_places",
    dtypes=("float32",),
    samples=lambda make: [make((5, 33)), make((2, 3, 64))],
    reference=lambda a: largest(np, a)[1],
)

top = (largest_values, largest_places)

weighted = OpSpec(
    fn=lambda xp, a, w, b: a * w + b,
    name="weighted",
    dtypes=("float32",),
    samples=lambda make: [(make((4, 96)), make.full(96, 1.0), make.full(96, 0.0))],
    reference=lambda a, w, b: a * w + b,
    bench=lambda make, sizes: [(make((16, 129)), make.full(129, 1.0), make.full(129, 0.0))],
)
