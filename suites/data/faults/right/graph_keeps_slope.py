"""The right function for ../wrong/graph_keeps_slope.py."""

import numpy as np

from cuassay import cuda
from cuassay.testing import OpSpec, Sample, conformance

_graphs = {}


def leaky_relu(xp, a, *, slope=0.01):
    def run(x):
        return xp.where(x > 0, x, x * slope)

    if xp is np or a.size == 0:
        return run(a)
    key = a.shape, str(a.dtype), slope
    if key not in _graphs:
        _graphs[key] = cuda.make_graphed_callables(run, (a,))
    return _graphs[key](a).copy()


test_leaky = conformance(OpSpec(
    fn=leaky_relu,
    reference=lambda a, *, slope=0.01: np.maximum(a, 0) + slope * np.minimum(a, 0),
    dtypes=("float32",),
    samples=lambda make: [make((3, 5)), Sample((make(40),), {"slope": 0.2}), Sample((make(40),), {"slope": 0.3})],
))
