"""More precise than asked for."""

# spec: softmax
def run(xp, a):
    b = a.astype("float64")
    e = xp.exp(b - b.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)).astype(a.dtype)
