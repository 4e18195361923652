"""The right function for ../wrong/rolling_sum_poisoned.py."""

import numpy as np

from cuassay.testing import OpSpec, Sample, conformance


def rolling_sum(xp, a, *, window=4):
    last = a.shape[-1] - window + 1
    return sum(a[..., i:i + last] for i in range(window))


test_rolling = conformance(OpSpec(
    fn=rolling_sum,
    reference=lambda a, *, window=4: np.lib.stride_tricks.sliding_window_view(a, window, axis=-1).sum(-1),
    dtypes=("float32", "float64"),
    samples=lambda make: [make(50), Sample((make((3, 20)),), {"window": 7})],
))
