"""By halves, until one row is left."""

# spec: total
def run(xp, a):
    rows = a.astype("int64")
    while rows.shape[0] > 1:
        half = rows.shape[0] // 2
        rest = rows[2 * half :]
        rows = xp.concatenate([rows[:half] + rows[half : 2 * half], rest])
    return rows[0]
