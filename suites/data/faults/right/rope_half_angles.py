"""The right function for ../wrong/rope_half_angles.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def rope(xp, a):
    length, width = a.shape[-2:]
    angle = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    cos, sin = xp.asarray(np.cos(angle)).astype(a.dtype), xp.asarray(np.sin(angle)).astype(a.dtype)
    even, odd = a[..., 0::2], a[..., 1::2]
    return xp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(a.shape)


def reference(a):
    length, width = a.shape[-2:]
    angle = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    turned = (a[..., 0::2] + 1j * a[..., 1::2]) * np.exp(1j * angle)
    return np.stack([turned.real, turned.imag], -1).reshape(a.shape)


test_rope = conformance(OpSpec(
    fn=rope,
    reference=reference,
    dtypes=("float16", "float32"),
    samples=lambda make: [make((2, 40, 16)), make((5, 8))],
))
