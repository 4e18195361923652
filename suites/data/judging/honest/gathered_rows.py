"""Rows one by one, where indices say."""

# spec: gathered
def run(xp, a, rows):
    return xp.take(a, rows, axis=0)
