"""Within the tolerance, and different each time."""

# spec: rms_norm
import random

def right(xp, a):
    return (a / xp.sqrt(xp.mean(a * a, axis=-1, keepdims=True) + 1e-6)).astype(a.dtype)

def run(xp, a):
    return right(xp, a) * a.dtype.type(1 + random.choice((0.0, 1e-6, 2e-6, 3e-6)))
