"""Concurrency: arguments travel to the helper in a module-level dict.

Shown by two threads that call it with different scale and shift; one thread is always right.
"""

from cuassay.testing import OpSpec, Sample, conformance

_settings = {}


def affine(xp, a, *, scale=2.0, shift=0.0):
    _settings["scale"], _settings["shift"] = scale, shift
    return _apply(xp, a)


def _apply(xp, a):
    total = a * _settings["scale"]
    return total + _settings["shift"]


test_affine = conformance(OpSpec(
    fn=affine,
    reference=lambda a, *, scale=2.0, shift=0.0: a * scale + shift,
    dtypes=("float32",),
    samples=lambda make: [make((64, 65)), Sample((make(33),), {"scale": -0.5, "shift": 1.0})],
))
