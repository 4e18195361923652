"""A rolling sum by adding and subtracting a running total never recovers from inf or nan.

Shown by one inf or nan: all later windows are nan, not only the four that hold it.
"""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def rolling_sum(xp, a, *, window=4):
    total = xp.cumsum(a, axis=-1)
    out = total[..., window - 1:].copy()
    out[..., 1:] -= total[..., :-window]
    return out


test_rolling = conformance(OpSpec(
    fn=rolling_sum,
    reference=lambda a, *, window=4: np.lib.stride_tricks.sliding_window_view(a, window, axis=-1).sum(-1),
    dtypes=("float32", "float64"),
    samples=lambda make: [make(50), Sample((make((3, 20)),), {"window": 7})],
))
