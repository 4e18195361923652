"""The right function for ../wrong/householder_zero_first.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def householder(xp, x):
    length = xp.sqrt((x * x).sum())
    sign = xp.where(x[0] < 0, -1, 1).astype(x.dtype)
    v = x.copy()
    v[0] = x[0] + sign * length
    square = (v * v).sum()
    square = xp.where(square == 0, xp.ones_like(square), square)
    return xp.eye(x.shape[0], dtype=x.dtype) - 2 * xp.outer(v, v) / square


def reference(x):
    v = x.copy()
    v[0] += np.linalg.norm(x) if x[0] >= 0 else -np.linalg.norm(x)
    u = v / (np.linalg.norm(v) or 1)
    return np.eye(len(x)) - 2 * np.outer(u, u)


test_householder = conformance(OpSpec(
    fn=householder,
    reference=reference,
    dtypes=("float32", "float64"),
    samples=lambda make: [make(6), make(17)],
))
