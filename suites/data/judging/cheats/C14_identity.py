"""It returns its input."""

# spec: tanh
def run(xp, a):
    return a.copy()
