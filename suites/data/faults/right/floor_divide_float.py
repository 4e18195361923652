"""The right function for ../wrong/floor_divide_float.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def floor_divide(xp, a, *, divisor=7):
    return a // divisor


test_floor_divide = conformance(OpSpec(
    fn=floor_divide,
    reference=lambda a, *, divisor=7: (a - np.mod(a, divisor)) // divisor,
    dtypes=("int32", "int64"),
))
