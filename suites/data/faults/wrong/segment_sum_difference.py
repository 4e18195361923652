"""A segment's sum is the difference of two prefix sums, so a large number in an early segment destroys all later ones.

Shown by 1e8 in the first segment and ordinary numbers after it.
"""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def segment_sum(xp, a, *, offsets):
    total = xp.zeros((*a.shape[:-1], a.shape[-1] + 1), a.dtype)
    total[..., 1:] = xp.cumsum(a, axis=-1)
    return xp.stack([total[..., stop] - total[..., start] for start, stop in zip(offsets, offsets[1:])], axis=-1)


test_segment_sum = conformance(OpSpec(
    fn=segment_sum,
    reference=lambda a, *, offsets: np.stack([a[..., i:j].sum(-1) for i, j in zip(offsets, offsets[1:])], -1),
    dtypes=("float32",),
    samples=lambda make: [Sample((make(64),), {"offsets": (0, 3, 10, 11, 64)}),
                          Sample((make((3, 20)),), {"offsets": (0, 5, 12, 20)})],
))
