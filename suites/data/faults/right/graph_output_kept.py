"""The right function for ../wrong/graph_output_kept.py."""

import numpy as np

from cuassay import cuda
from cuassay.testing import OpSpec, conformance

_graphs = {}


def silu(xp, a):
    if xp is np or a.size == 0:
        return a / (1 + xp.exp(-a))
    key = a.shape, str(a.dtype)
    if key not in _graphs:
        _graphs[key] = cuda.make_graphed_callables(lambda x: x / (1 + xp.exp(-x)), (a,))
    return _graphs[key](a).copy()


test_silu = conformance(OpSpec(
    fn=silu,
    dtypes=("float32",),
    samples=lambda make: [make((3, 5)), make(64)],
))
