"""With its options."""

# spec: affine
def run(xp, a, *, scale=2.0, shift=0.0):
    out = a * scale
    out += shift
    return out
