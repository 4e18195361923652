"""The right function for ../wrong/fake_quantize_zero_row.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def fake_quantize(xp, a):
    scale = xp.abs(a).max(axis=-1, keepdims=True) / 7
    scale = xp.where(scale == 0, xp.ones_like(scale), scale)
    return xp.rint(a / scale) * scale


def reference(a):
    scale = np.abs(a).max(-1, keepdims=True) / 7
    return np.where(scale == 0, 0, np.round(a / np.where(scale == 0, 1, scale)) * scale)


test_fake_quantize = conformance(OpSpec(
    fn=fake_quantize,
    reference=reference,
    dtypes=("float32",),
    samples=lambda make: [make((4, 16)), make(9)],
))
