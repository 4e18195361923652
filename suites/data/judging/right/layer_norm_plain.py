"""As declared."""

# spec: layer_norm
def run(xp, a, w, b):
    return (a - a.mean(-1, keepdims=True)) / xp.sqrt(a.var(-1, keepdims=True) + 1e-5) * w + b
