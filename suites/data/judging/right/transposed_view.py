"""A view: the strides are exchanged, nothing is moved."""

# spec: transposed
def run(xp, a):
    return a.T
