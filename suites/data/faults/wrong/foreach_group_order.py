"""A list function batches arrays of equal shape and returns the results group by group, not in the order of the list.

Shown by a list in which a shape comes again after another shape.
"""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def foreach_mul(xp, *arrays, factor=3.0):
    groups = {}
    for a in arrays:
        groups.setdefault(a.shape, []).append(a)
    out = []
    for members in groups.values():
        out.extend(xp.stack(members) * factor)
    return xp.concatenate([b.ravel() for b in out])


test_foreach = conformance(OpSpec(
    fn=foreach_mul,
    reference=lambda *arrays, factor=3.0: np.concatenate([(a * factor).ravel() for a in arrays]),
    dtypes=("float32",),
    samples=lambda make: [(make(3), make(3), make((2, 4))), Sample((make((2, 3)), make(5), make((2, 3))), {"factor": -0.5})],
))
