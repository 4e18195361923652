"""More precise than asked for."""

# spec: rms_norm
def run(xp, a):
    b = a.astype("float64")
    return (b / xp.sqrt(xp.mean(b * b, axis=-1, keepdims=True) + 1e-6)).astype(a.dtype)
