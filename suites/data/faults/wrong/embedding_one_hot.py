"""Rows are gathered by a product with a one-hot matrix, so 0 * inf of a row that nobody asked for becomes nan.

Shown by inf or nan in any row of the table.
"""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def embedding(xp, table, *, index):
    chosen = xp.asarray(index)[:, None] == xp.arange(table.shape[0])
    return chosen.astype(table.dtype) @ table


test_embedding = conformance(OpSpec(
    fn=embedding,
    reference=lambda table, *, index: np.take(table, index, axis=0),
    dtypes=("float32",),
    samples=lambda make: [Sample((make((10, 4)),), {"index": (3, 0, 3, 9)}), Sample((make((4, 17)),), {"index": (1,)})],
))
