"""The right function for ../wrong/tuned_after_ten_calls.py."""

from cuassay.testing import OpSpec, conformance

_calls = {}


def vector_cube(xp, a):
    flat, whole = a.reshape(-1), a.size // 4 * 4
    out = xp.empty_like(flat)
    out[:whole] = (flat[:whole].reshape(-1, 4) ** 3).reshape(-1)
    out[whole:] = flat[whole:] ** 3
    return out.reshape(a.shape)


def cube(xp, a):
    _calls[a.shape] = _calls.get(a.shape, 0) + 1
    return a ** 3 if _calls[a.shape] <= 10 else vector_cube(xp, a)


test_cube = conformance(OpSpec(
    fn=cube,
    dtypes=("float32", "float64"),
    samples=lambda make: [make((3, 5)), make(64)],
))
