"""More precise than asked for."""

# spec: product
def run(xp, a, b):
    return (a.astype("float64") @ b.astype("float64")).astype(a.dtype)
