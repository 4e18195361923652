"""A row of ones times the matrix."""

# spec: total
def run(xp, a):
    return xp.ones((1, a.shape[0]), "int64").dot(a.astype("int64"))[0]
