"""The range is not widened if all values are equal: 0 / 0 is cast to an integer.

Shown by a constant input, also by a single element.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def histogram(xp, a, *, bins=10):
    a = a.ravel()
    low, high = a.min(), a.max()
    at = xp.clip(((a - low) * (bins / (high - low))).astype("int64"), 0, bins - 1)
    return (at[:, None] == xp.arange(bins)).sum(axis=0)


test_histogram = conformance(OpSpec(
    fn=histogram,
    reference=lambda a, *, bins=10: np.histogram(a, bins)[0],
    dtypes=("float64",),
    samples=lambda make: [make(100), make((8, 9))],
))
