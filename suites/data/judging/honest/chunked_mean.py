"""Partial sums of chunks, whose last one is shorter."""

# spec: mean
def run(xp, a):
    total = sum(a[start : start + 1000].sum() for start in range(0, a.size, 1000))
    return (total / a.size).astype(a.dtype)
