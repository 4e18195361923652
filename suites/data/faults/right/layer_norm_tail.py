"""The right function for ../wrong/layer_norm_tail.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance

CHUNK = 128


def layer_norm(xp, a, eps=1e-5):
    width = a.shape[-1]
    count, mean, m2 = 0, 0.0, 0.0
    for start in range(0, width, CHUNK):
        part = a[..., start:start + CHUNK]
        k = part.shape[-1]
        part_mean = part.mean(axis=-1, keepdims=True)
        part_m2 = ((part - part_mean) ** 2).sum(axis=-1, keepdims=True)
        delta = part_mean - mean
        total = count + k
        mean = mean + delta * (k / total)
        m2 = m2 + part_m2 + delta * delta * (count * k / total)
        count = total
    return (a - mean) / xp.sqrt(m2 / width + eps)


def reference(a, eps=1e-5):
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + eps)


test_layer_norm = conformance(OpSpec(
    fn=layer_norm,
    reference=reference,
    dtypes=("float32", "float64"),
    samples=lambda make: [make((4, 64)), make((2, 3, 300))],
))
