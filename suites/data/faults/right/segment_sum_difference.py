"""The right function for ../wrong/segment_sum_difference.py."""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def segment_sum(xp, a, *, offsets):
    return xp.stack([a[..., start:stop].sum(axis=-1) for start, stop in zip(offsets, offsets[1:])], axis=-1)


test_segment_sum = conformance(OpSpec(
    fn=segment_sum,
    reference=lambda a, *, offsets: np.stack([a[..., i:j].sum(-1) for i, j in zip(offsets, offsets[1:])], -1),
    dtypes=("float32",),
    samples=lambda make: [Sample((make(64),), {"offsets": (0, 3, 10, 11, 64)}),
                          Sample((make((3, 20)),), {"offsets": (0, 5, 12, 20)})],
))
