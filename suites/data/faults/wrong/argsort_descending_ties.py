"""A stable ascending order is reversed, which reverses equal elements too.

Shown by equal elements in a row.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def argsort_descending(xp, a):
    return xp.flip(xp.argsort(a, axis=-1, kind="stable"), axis=-1)


test_argsort = conformance(OpSpec(
    fn=argsort_descending,
    reference=lambda a: np.lexsort((-a,), axis=-1),
    dtypes=("float16", "float32"),
    samples=lambda make: [make((3, 12)), make(25)],
))
