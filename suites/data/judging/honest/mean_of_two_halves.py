"""A sum in two parts, as split by blocks."""

# spec: mean
def run(xp, a):
    half = a.size // 2
    return ((a[:half].sum() + a[half:].sum()) / a.dtype.type(a.size)).astype(a.dtype)
