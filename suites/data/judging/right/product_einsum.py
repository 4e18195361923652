"""The library's sum by indices."""

# spec: product
def run(xp, a, b):
    return xp.einsum("ij,jk->ik", a, b)
