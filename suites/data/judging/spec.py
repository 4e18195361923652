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
