"""The decay is rounded to the array's dtype first: 0.9999 is 1 in float16, and nothing is ever averaged in.

Shown by float16 where p is thousands of times larger than the average (average 0, p 1000: 0 instead of 0.1).
"""

from cuassay.testing import OpSpec, Sample, conformance


def ema(xp, average, p, *, decay=0.9999):
    decay = average.dtype.type(decay)
    return average * decay + p * (1 - decay)


test_ema = conformance(OpSpec(
    fn=ema,
    reference=lambda average, p, *, decay=0.9999: average * decay + p * (1 - decay),
    dtypes=("float16", "float32"),
    samples=lambda make: [(make(100), make(100)), Sample((make((3, 5)), make((3, 5))), {"decay": 0.9})],
))
