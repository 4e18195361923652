"""The right function for ../wrong/argsort_descending_ties.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def argsort_descending(xp, a):
    return xp.argsort(-a, axis=-1, kind="stable")


test_argsort = conformance(OpSpec(
    fn=argsort_descending,
    reference=lambda a: np.lexsort((-a,), axis=-1),
    dtypes=("float16", "float32"),
    samples=lambda make: [make((3, 12)), make(25)],
))
