"""The total is kept in float16, so it overflows although the mean is an ordinary number.

Shown by float16 rows whose sum is above 65504: 257 values near 1000.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def nanmean(xp, a):
    lost = xp.isnan(a)
    total = xp.where(lost, xp.zeros_like(a), a).sum(axis=-1)
    return (total / (~lost).sum(axis=-1)).astype(a.dtype)


test_nanmean = conformance(OpSpec(
    fn=nanmean,
    reference=lambda a: np.nanmean(a, axis=-1),
    dtypes=("float16", "float32"),
    result_dtype=lambda a: a,
    samples=lambda make: [make((3, 257)), make((2, 3, 40))],
))
