"""The variance from the differences."""

# spec: layer_norm
def run(xp, a, w, b):
    centred = a - a.mean(axis=-1, keepdims=True)
    scale = 1 / xp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)
    return centred * scale * w + b
