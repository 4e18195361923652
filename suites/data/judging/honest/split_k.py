"""The sum over k in two parts."""

# spec: product
def run(xp, a, b):
    half = a.shape[1] // 2
    return a[:, :half] @ b[:half] + a[:, half:] @ b[half:]
