"""The right function for ../wrong/histogram_constant.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def histogram(xp, a, *, bins=10):
    a = a.ravel()
    low, high = a.min(), a.max()
    flat = high == low
    low, high = xp.where(flat, low - 0.5, low), xp.where(flat, high + 0.5, high)
    at = xp.clip(((a - low) * (bins / (high - low))).astype("int64"), 0, bins - 1)
    return (at[:, None] == xp.arange(bins)).sum(axis=0)


test_histogram = conformance(OpSpec(
    fn=histogram,
    reference=lambda a, *, bins=10: np.histogram(a, bins)[0],
    dtypes=("float64",),
    samples=lambda make: [make(100), make((8, 9))],
))
