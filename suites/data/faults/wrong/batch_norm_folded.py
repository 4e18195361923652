"""Inference batch norm folds mean into a shift that is rounded to the input's dtype, so x * scale + shift cancels.

Shown by float16 inputs whose mean is large compared with the deviation (mean 500, var 1e-2): most digits are lost.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def batch_norm(xp, x, mean, var, weight, bias, eps=1e-5):
    dtype = x.dtype
    scale = (weight / xp.sqrt(xp.abs(var) + eps)).astype(dtype)
    shift = (bias - mean * scale).astype(dtype)
    return x * scale + shift


test_batch_norm = conformance(OpSpec(
    fn=batch_norm,
    reference=lambda x, mean, var, weight, bias, eps=1e-5: (x - mean) * (weight / np.sqrt(np.abs(var) + eps)) + bias,
    dtypes=("float16", "float32"),
    result_dtype=lambda x, *rest: x,
    samples=lambda make: [(make((8, 6)), make(6), make(6), make(6), make(6))],
))
