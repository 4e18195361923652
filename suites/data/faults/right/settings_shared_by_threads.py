"""The right function for ../wrong/settings_shared_by_threads.py."""

from cuassay.testing import OpSpec, Sample, conformance


def affine(xp, a, *, scale=2.0, shift=0.0):
    return _apply(xp, a, scale, shift)


def _apply(xp, a, scale, shift):
    total = a * scale
    return total + shift


test_affine = conformance(OpSpec(
    fn=affine,
    reference=lambda a, *, scale=2.0, shift=0.0: a * scale + shift,
    dtypes=("float32",),
    samples=lambda make: [make((64, 65)), Sample((make(33),), {"scale": -0.5, "shift": 1.0})],
))
