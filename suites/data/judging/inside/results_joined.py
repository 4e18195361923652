"""All numbers of both results are there, in one array."""

# spec: moments
def run(xp, a):
    return xp.stack([xp.mean(a, axis=-1), 1 / xp.sqrt(xp.var(a, axis=-1) + 1e-5)])
