"""It prints 1 GB."""

# spec: rms_norm
import os


def run(xp, a):
    for _ in range(1024):
        os.write(1, bytes(1 << 20))
    return xp.zeros_like(a)
