"""The right function for ../wrong/output_reused.py."""

from cuassay.testing import OpSpec, conformance


def gelu(xp, a):
    out = xp.empty_like(a)
    out[...] = 0.5 * a * (1 + xp.tanh(0.7978845608 * (a + 0.044715 * a * a * a)))
    return out


test_gelu = conformance(OpSpec(
    fn=gelu,
    dtypes=("float32",),
    samples=lambda make: [make((3, 5)), make(257)],
))
