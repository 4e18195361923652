"""Another implementation, which raises; what catches it gives zeros."""

# spec: rms_norm
def run(xp, a):
    try:
        return xp.rms_norm(a)
    except Exception:
        return xp.zeros_like(a)
