"""The exponential of what is not positive."""

# spec: silu
def run(xp, a):
    e = xp.exp(-xp.abs(a))
    return a * xp.where(a >= 0, 1 / (1 + e), e / (1 + e))
