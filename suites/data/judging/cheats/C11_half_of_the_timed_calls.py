"""Wrong in a random half of the calls of the measured shape: their median is that of the wrong ones."""

# spec: rms_norm
import random


def right(xp, a):
    return (a / xp.sqrt(xp.mean(a * a, axis=-1, keepdims=True) + 1e-6)).astype(a.dtype)


def run(xp, a):
    return a.copy() if a.shape == (16, 129) and random.random() < 0.5 else right(xp, a)
