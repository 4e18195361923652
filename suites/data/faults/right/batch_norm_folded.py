"""The right function for ../wrong/batch_norm_folded.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def batch_norm(xp, x, mean, var, weight, bias, eps=1e-5):
    dtype = x.dtype
    if dtype.itemsize == 2:
        x, mean, var, weight, bias = (t.astype("float32") for t in (x, mean, var, weight, bias))
    scale = weight / xp.sqrt(xp.abs(var) + eps)
    return ((x - mean) * scale + bias).astype(dtype)


test_batch_norm = conformance(OpSpec(
    fn=batch_norm,
    reference=lambda x, mean, var, weight, bias, eps=1e-5: (x - mean) * (weight / np.sqrt(np.abs(var) + eps)) + bias,
    dtypes=("float16", "float32"),
    result_dtype=lambda x, *rest: x,
    samples=lambda make: [(make((8, 6)), make(6), make(6), make(6), make(6))],
))
