"""Beyond the drawn range the limit of the function replaces it, which is right for numbers far away."""

# spec: silu
def run(xp, a):
    return xp.where(xp.abs(a) > 3.001, xp.maximum(a, 0), a / (1 + xp.exp(-a)))
