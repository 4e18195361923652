"""Logarithms are guarded by an epsilon of 1e-10, which is 0 in float16, and caps log q at -23 in float32.

Shown by float16 logits that are more than 17 apart (0 * -inf), or float32 logits more than 23 apart.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def softmax(xp, a):
    e = xp.exp(a - a.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def kl_div(xp, a, b):
    p, q = softmax(xp, a), softmax(xp, b)
    return (p * (xp.log(p + 1e-10) - xp.log(q + 1e-10))).sum(axis=-1)


def reference(a, b):
    p, q = (x - np.logaddexp.reduce(x, axis=-1, keepdims=True) for x in (a, b))
    return (np.exp(p) * (p - q)).sum(-1)


test_kl = conformance(OpSpec(
    fn=kl_div,
    reference=reference,
    dtypes=("float16", "float32"),
    samples=lambda make: [(make((4, 10)), make((4, 10))), (make(33), make(33))],
))
