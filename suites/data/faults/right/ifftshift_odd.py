"""The right function for ../wrong/ifftshift_odd.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def ifftshift(xp, a):
    return xp.roll(a, -(a.shape[-1] // 2), axis=-1)


test_ifftshift = conformance(OpSpec(
    fn=ifftshift,
    reference=lambda a: np.fft.ifftshift(a, axes=-1),
    dtypes=("float32", "complex64"),
    samples=lambda make: [make((4, 8)), make(16)],
))
