"""The clamp uses fmax and fmin, which prefer the number, so nan becomes the lower limit.

Shown by nan.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def clip(xp, a, low=-1.0, high=1.0):
    return xp.fmin(xp.fmax(a, low), high)


test_clip = conformance(OpSpec(
    fn=clip,
    reference=lambda a, low=-1.0, high=1.0: np.clip(a, low, high),
    dtypes=("float16", "float32"),
))
