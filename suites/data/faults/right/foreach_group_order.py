"""The right function for ../wrong/foreach_group_order.py."""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def foreach_mul(xp, *arrays, factor=3.0):
    groups = {}
    for i, a in enumerate(arrays):
        groups.setdefault(a.shape, []).append(i)
    out = [None] * len(arrays)
    for members in groups.values():
        for i, b in zip(members, xp.stack([arrays[i] for i in members]) * factor):
            out[i] = b
    return xp.concatenate([b.ravel() for b in out])


test_foreach = conformance(OpSpec(
    fn=foreach_mul,
    reference=lambda *arrays, factor=3.0: np.concatenate([(a * factor).ravel() for a in arrays]),
    dtypes=("float32",),
    samples=lambda make: [(make(3), make(3), make((2, 4))), Sample((make((2, 3)), make(5), make((2, 3))), {"factor": -0.5})],
))
