"""Of both halves, merged."""

# spec: variance
def run(xp, a):
    n = a.shape[-1] // 2
    parts = [(a[..., :n], n), (a[..., n:], a.shape[-1] - n)]
    mean = a.mean(axis=-1, keepdims=True)
    return sum(((part - mean) ** 2).sum(axis=-1) for part, count in parts if count) / a.dtype.type(a.shape[-1])
