"""One row after another."""

# spec: outer
def run(xp, a, b):
    out = xp.empty((a.shape[0], b.shape[0]), a.dtype)
    for row in range(a.shape[0]):
        out[row] = b * a[row]
    return out
