"""The small number that is added below the root is left out: it counts for numbers near zero alone."""

# spec: rms_norm
def run(xp, a):
    return (a / xp.sqrt(xp.mean(a * a, axis=-1, keepdims=True))).astype(a.dtype)
