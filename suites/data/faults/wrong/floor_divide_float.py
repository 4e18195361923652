"""Integer division goes through float64 and floor.

Shown by int64 beyond 2**53.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def floor_divide(xp, a, *, divisor=7):
    return xp.floor(a / divisor).astype(a.dtype)


test_floor_divide = conformance(OpSpec(
    fn=floor_divide,
    reference=lambda a, *, divisor=7: (a - np.mod(a, divisor)) // divisor,
    dtypes=("int32", "int64"),
))
