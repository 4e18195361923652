"""Aliasing: the copy is made by ascontiguousarray, which returns a contiguous input itself.

Shown by a contiguous input: writing to the result changes the input.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def row_major_copy(xp, a):
    return xp.ascontiguousarray(a)


test_copy = conformance(OpSpec(
    fn=row_major_copy,
    reference=lambda a: np.array(a),
    dtypes=("float32", "int32"),
    samples=lambda make: [make((3, 5)), make(17)],
))
