"""The right function for ../wrong/lion_sign_of_zero.py."""

import numpy as np

from cuassay.testing import OpSpec, conformance


def lion(xp, p, g, m, *, lr=1e-2, beta=0.9):
    return p - lr * xp.sign(beta * m + (1 - beta) * g)


def reference(p, g, m, *, lr=1e-2, beta=0.9):
    update = beta * m + (1 - beta) * g
    return p - lr * (1.0 * (update > 0) - (update < 0))


test_lion = conformance(OpSpec(
    fn=lion,
    reference=reference,
    dtypes=("float32",),
    samples=lambda make: [(make(64), make(64), make(64)), (make((3, 5)), make((3, 5)), make((3, 5)))],
))
