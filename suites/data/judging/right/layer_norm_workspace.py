"""Its workspaces are kept for each shape."""

# spec: layer_norm
spaces = {}


def run(xp, a, w, b):
    if a.shape not in spaces:
        spaces[a.shape] = xp.empty_like(a)
    space = spaces[a.shape]
    space[...] = a - a.mean(axis=-1, keepdims=True)
    return space / xp.sqrt((space * space).mean(axis=-1, keepdims=True) + 1e-5) * w + b
