"""The right function for ../wrong/causal_mask_with_cache.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def attention(xp, q, k, v):
    scores = q @ k.T / q.shape[-1] ** 0.5
    row, column = xp.arange(q.shape[0])[:, None], xp.arange(k.shape[0])[None, :]
    scores = xp.where(column > row + (k.shape[0] - q.shape[0]), -xp.inf, scores)
    e = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def reference(q, k, v):
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        n = len(k) - len(q) + i + 1
        s = k[:n] @ q[i] / np.sqrt(q.shape[1])
        p = np.exp(s - s.max())
        out[i] = p @ v[:n] / p.sum()
    return out


test_attention = conformance(OpSpec(
    fn=attention,
    reference=reference,
    dtypes=("float32",),
    samples=lambda make: [(make((8, 16)), make((8, 16)), make((8, 16))), (make((3, 8)), make((11, 8)), make((11, 4)))],
))
