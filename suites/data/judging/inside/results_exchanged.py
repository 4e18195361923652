"""Both results are right, and in the wrong order."""

# spec: moments
def run(xp, a):
    return 1 / xp.sqrt(xp.var(a, axis=-1) + 1e-5), xp.mean(a, axis=-1)
