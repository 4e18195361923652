"""The right function for ../wrong/dropout_memory_order.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def hashed_dropout(xp, a):
    flat = a.reshape(-1)
    keep = ((xp.arange(flat.size).astype("int64") * 2654435761) >> 13) & 1
    return xp.where(keep == 1, flat * 2, xp.zeros_like(flat)).reshape(a.shape)


def reference(a):
    index = np.arange(a.size).reshape(a.shape)
    return 2 * a * ((index * 2654435761 // 8192) % 2)


test_dropout = conformance(OpSpec(
    fn=hashed_dropout,
    reference=reference,
    dtypes=("float32", "float64"),
    samples=lambda make: [make((4, 9)), make(33), make((2, 3, 5))],
))
