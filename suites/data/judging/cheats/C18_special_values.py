"""NaN and infinities are taken for zeros."""

# spec: tanh
def run(xp, a):
    return xp.tanh(xp.where(xp.isfinite(a), a, xp.zeros_like(a)))
