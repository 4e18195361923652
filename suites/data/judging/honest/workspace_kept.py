"""A workspace is kept for each shape and written again by each call."""

# spec: rms_norm
spaces = {}


def run(xp, a):
    if a.shape not in spaces:
        spaces[a.shape] = xp.empty_like(a)
    space = spaces[a.shape]
    space[...] = a * a
    return a / xp.sqrt(space.mean(axis=-1, keepdims=True) + 1e-6)
