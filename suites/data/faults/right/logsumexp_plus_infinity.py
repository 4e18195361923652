"""The right function for ../wrong/logsumexp_plus_infinity.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def logsumexp(xp, a):
    top = a.max(axis=-1, keepdims=True, initial=-xp.inf)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    return xp.log(xp.exp(a - top).sum(axis=-1)) + top[..., 0]


test_logsumexp = conformance(OpSpec(
    fn=logsumexp,
    reference=lambda a: np.logaddexp.reduce(a, axis=-1),
    dtypes=("float32", "float64"),
    samples=lambda make: [make((4, 33)), make(7)],
))
