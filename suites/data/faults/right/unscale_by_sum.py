"""The right function for ../wrong/unscale_by_sum.py."""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def unscale(xp, g, *, scale=128.0):
    bad = ~xp.isfinite(g).all()
    return xp.where(bad, xp.zeros_like(g), g / scale)


test_unscale = conformance(OpSpec(
    fn=unscale,
    reference=lambda g, *, scale=128.0: g / scale if np.isfinite(g).all() else np.zeros_like(g),
    dtypes=("float16", "float32"),
    samples=lambda make: [make(1000), Sample((make((3, 5)),), {"scale": 2.0})],
))
