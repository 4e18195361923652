"""The transform's length is the next power of two of the input's length without the filter's tail, so the end wraps to the beginning.

Shown by lengths just below or at a power of two: 64 samples and 5 taps. 50 or 100 samples are right.
"""

import numpy as np

from cuassay.testing import OpSpec, conformance


def fft_filter(xp, a, taps):
    n = a.shape[-1]
    length = 1 << (max(n, taps.shape[-1]) - 1).bit_length()
    out = xp.fft.irfft(xp.fft.rfft(a, length) * xp.fft.rfft(taps, length), length)
    return out[..., :n].astype(a.dtype)


def reference(a, taps):
    return np.apply_along_axis(lambda row: np.convolve(row, taps)[:len(row)], -1, a)


test_fft_filter = conformance(OpSpec(
    fn=fft_filter,
    reference=reference,
    dtypes=("float32", "float64"),
    samples=lambda make: [(make(100), make(5)), (make((3, 50)), make(7))],
))
