"""The right function for ../wrong/int8_accumulator.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def int8_product(xp, a, b):
    return a.astype("int32") @ b.astype("int32")


test_product = conformance(OpSpec(
    fn=int8_product,
    reference=lambda a, b: np.einsum("ik,kj->ij", a.astype(np.int32), b.astype(np.int32)),
    dtypes=("int8",),
    samples=lambda make: [(make((4, 6)), make((6, 5))), (make((3, 8)), make((8, 1)))],
))
