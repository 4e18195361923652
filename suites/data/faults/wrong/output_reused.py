"""Aliasing: the result is a module-level buffer by shape and dtype, given out again at the next call.

Shown by two calls with equal shapes: the first result changes.
"""

from cuassay.testing import OpSpec, conformance

_outputs = {}


def gelu(xp, a):
    key = xp.__name__, a.shape, str(a.dtype)
    if key not in _outputs:
        _outputs[key] = xp.empty_like(a)
    out = _outputs[key]
    out[...] = 0.5 * a * (1 + xp.tanh(0.7978845608 * (a + 0.044715 * a * a * a)))
    return out


test_gelu = conformance(OpSpec(
    fn=gelu,
    dtypes=("float32",),
    samples=lambda make: [make((3, 5)), make(257)],
))
