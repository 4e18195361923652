"""Streams: the handle keeps the stream that was current at its first call and launches all later work there.

Shown by a call on a side stream after a call on the default stream; on one stream it is right.
"""

import numpy as np

from cuassay import devices
from cuassay.testing import OpSpec, conformance


def backend(xp):
    return devices.backend("cuda" if xp.__name__ == "cupy" else "sim")


_stream = {}


def squash(xp, a):
    if xp is np:
        return a / (1 + xp.abs(a))
    runtime = backend(xp)
    stream = _stream.setdefault(xp.__name__, runtime.current_stream(a.device.index))
    with runtime.use_stream(stream):
        return a / (1 + xp.abs(a))


test_squash = conformance(OpSpec(
    fn=squash,
    dtypes=("float32",),
    samples=lambda make: [make((3, 5)), make(100)],
))
