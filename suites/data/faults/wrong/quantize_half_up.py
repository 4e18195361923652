"""floor(x + 0.5) rounds halves up, the format rounds them to even.

Shown by values that are an odd multiple of half the scale, such as 0.125 at 0.25.
"""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def quantize(xp, a, *, scale=0.25):
    return xp.clip(xp.floor(a / scale + 0.5), -128, 127).astype("int8")


test_quantize = conformance(OpSpec(
    fn=quantize,
    reference=lambda a, *, scale=0.25: np.clip(np.round(a / scale), -128, 127).astype(np.int8),
    dtypes=("float32",),
    samples=lambda make: [make((3, 65)), Sample((make(20),), {"scale": 0.5})],
))
