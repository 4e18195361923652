"""The right function for ../wrong/inverse_cdf_zero.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def draw(xp, weights, u):
    weights, u = xp.maximum(weights, 0), xp.abs(u) % 1
    cdf = xp.cumsum(weights)
    at = (cdf[None, :] <= (u * cdf[-1])[:, None]).sum(axis=-1)
    return xp.minimum(at, weights.shape[0] - 1)


def reference(weights, u):
    cdf = np.cumsum(np.maximum(weights, 0))
    return np.minimum(np.searchsorted(cdf, np.abs(u) % 1 * cdf[-1], side="right"), len(weights) - 1)


test_draw = conformance(OpSpec(
    fn=draw,
    reference=reference,
    dtypes=("float64",),
    samples=lambda make: [(make(12), make(20)), (make(5), make(3))],
))
