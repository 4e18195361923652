"""The right function for ../wrong/weight_cache_identity.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def normed_linear(xp, x, weight):
    return x @ (weight / xp.sqrt((weight * weight).sum(axis=0, keepdims=True)))


test_linear = conformance(OpSpec(
    fn=normed_linear,
    reference=lambda x, weight: x @ (weight / np.linalg.norm(weight, axis=0)),
    dtypes=("float32", "float64"),
    samples=lambda make: [(make((4, 8)), make((8, 5))), (make((1, 3)), make((3, 3)))],
))
