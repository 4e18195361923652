"""The squared distance is expanded to |x|^2 + |y|^2 - 2 x.y, which cancels for points that are close to each other and far from 0.

Shown by two sets near 1000 with distances near 1, or by equal points.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def cdist(xp, x, y):
    square = (x * x).sum(axis=-1)[:, None] + (y * y).sum(axis=-1)[None, :] - 2 * (x @ y.T)
    return xp.sqrt(xp.maximum(square, 0))


test_cdist = conformance(OpSpec(
    fn=cdist,
    reference=lambda x, y: np.linalg.norm(x[:, None] - y[None], axis=-1),
    dtypes=("float32",),
    samples=lambda make: [(make((20, 8)), make((30, 8))), (make((1, 3)), make((4, 3)))],
))
