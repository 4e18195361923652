"""The negated numbers sorted the other way round."""

# spec: sorted_rows
def run(xp, a):
    return -xp.sort(-a, axis=-1)[..., ::-1]
