"""Shifted by the first number, which loses less than by none."""

# spec: variance
def run(xp, a):
    shifted = (a - a[..., :1]).astype("float64")
    return ((shifted * shifted).mean(axis=-1) - shifted.mean(axis=-1) ** 2).astype(a.dtype)
