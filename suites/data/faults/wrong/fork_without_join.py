"""Streams: one branch runs on a side stream, and nothing makes the caller's stream wait for it before the sum.

Shown on any device with streams, as a race; the values are usually right.
"""

import numpy as np

from cuassay import devices
from cuassay.testing import OpSpec, conformance


def backend(xp):
    return devices.backend("cuda" if xp.__name__ == "cupy" else "sim")


def two_branches(xp, a):
    left = xp.empty_like(a)
    if xp is np:
        left[...] = xp.exp(-a * a)
        return left + xp.sin(a)
    runtime, index = backend(xp), a.device.index
    here, side = runtime.current_stream(index), runtime.new_stream(index)
    side.wait_stream(here)
    with runtime.use_stream(side):
        left[...] = xp.exp(-a * a)
    right = xp.sin(a)
    return left + right


test_two_branches = conformance(OpSpec(
    fn=two_branches,
    dtypes=("float32",),
    samples=lambda make: [make((3, 5)), make(257)],
))
