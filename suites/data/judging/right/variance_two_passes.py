"""By the differences from the mean."""

# spec: variance
def run(xp, a):
    centred = a - a.mean(axis=-1, keepdims=True)
    return (centred * centred).mean(axis=-1)
