"""Two results of one kind, as a list."""

# spec: moments
def run(xp, a):
    mean = a.sum(axis=-1, keepdims=True) / a.shape[-1]
    centred = a - mean
    return [mean[..., 0], (xp.sum(centred * centred, axis=-1) / a.shape[-1] + 1e-5) ** -0.5]
