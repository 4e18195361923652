"""Descending order comes from sorting the negated keys; the smallest integer has no negation.

Shown by -2**31 in int32 (it becomes the largest), and by nan, which goes last instead of first.
"""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def topk(xp, a, *, k=3):
    return -xp.sort(-a, axis=-1)[..., :k]


test_topk = conformance(OpSpec(
    fn=topk,
    reference=lambda a, *, k=3: np.sort(a, axis=-1)[..., ::-1][..., :k],
    dtypes=("float32", "int32"),
    samples=lambda make: [make((4, 20)), Sample((make(9),), {"k": 9})],
))
