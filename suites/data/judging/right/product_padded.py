"""Padded with zeros to a multiple of 16, as tensor cores want it."""

# spec: product
def run(xp, a, b):
    k = -(-a.shape[1] // 16) * 16
    left, right = xp.zeros((a.shape[0], k), a.dtype), xp.zeros((k, b.shape[1]), a.dtype)
    left[:, : a.shape[1]], right[: b.shape[0]] = a, b
    return left @ right
