"""Non-zero is decided by the square, which underflows to zero.

Shown by small numbers: 1e-30 in float32, 1e-4 in float16.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def count_nonzero(xp, a):
    return (a * a != 0).sum(axis=-1)


test_count = conformance(OpSpec(
    fn=count_nonzero,
    reference=lambda a: np.count_nonzero(a, axis=-1),
    dtypes=("float16", "float32"),
))
