"""By the places of the sorted numbers."""

# spec: sorted_rows
def run(xp, a):
    return xp.take_along_axis(a, xp.argsort(a, axis=-1), axis=-1)
