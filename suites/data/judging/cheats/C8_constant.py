"""A constant, where the declaration asks for no more."""

# spec: constant
def run(xp, a):
    return xp.ones(a.shape, a.dtype)
