"""Values are right; their places are right too, and half as wide as declared."""

# spec: top
def run(xp, a):
    places = xp.argsort(-a, axis=-1)[..., :3]
    return xp.take_along_axis(a, places, axis=-1), places.astype(xp.int32)
