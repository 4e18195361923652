"""The scale of a row of zeros is 0 and the row becomes nan.

Shown by a row that is all zero.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def fake_quantize(xp, a):
    scale = xp.abs(a).max(axis=-1, keepdims=True) / 7
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
