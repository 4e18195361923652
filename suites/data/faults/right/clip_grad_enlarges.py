"""The right function for ../wrong/clip_grad_enlarges.py."""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def clip_grad_norm(xp, *grads, max_norm=1.0):
    total = xp.sqrt(sum((g * g).sum() for g in grads))
    factor = xp.minimum(max_norm / (total + 1e-6), 1.0)
    return xp.concatenate([(g * factor).ravel() for g in grads])


def reference(*grads, max_norm=1.0):
    flat = np.concatenate([g.ravel() for g in grads])
    return flat * min(max_norm / (np.sqrt((flat * flat).sum()) + 1e-6), 1.0)


test_clip_grad = conformance(OpSpec(
    fn=clip_grad_norm,
    reference=reference,
    dtypes=("float32",),
    samples=lambda make: [(make(30), make((4, 5))), Sample((make((5, 5)), make(40), make(3)), {"max_norm": 5.0})],
))
