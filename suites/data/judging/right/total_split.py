"""In three parts."""

# spec: total
def run(xp, a):
    parts = [a[start::3].sum(axis=0) for start in range(3)]
    return parts[0] + parts[1] + parts[2]
