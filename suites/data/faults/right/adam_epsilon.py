"""The right function for ../wrong/adam_epsilon.py."""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def adam(xp, p, g, m, v, *, step=1, lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * xp.abs(v) + (1 - beta2) * g * g
    corrected = v / (1 - beta2 ** step)
    return p - lr / (1 - beta1 ** step) * m / (xp.sqrt(corrected) + eps)


def reference(p, g, m, v, *, step=1, lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8):
    mean = (beta1 * m + (1 - beta1) * g) / (1 - beta1 ** step)
    square = (beta2 * np.abs(v) + (1 - beta2) * g**2) / (1 - beta2 ** step)
    return p - lr * mean / (np.sqrt(square) + eps)


test_adam = conformance(OpSpec(
    fn=adam,
    reference=reference,
    dtypes=("float32",),
    samples=lambda make: [tuple(make(100) for _ in range(4)),
                          Sample(tuple(make((3, 7)) for _ in range(4)), {"step": 10, "lr": 0.1})],
))
