"""The right function for ../wrong/ema_decay_rounds.py."""

from cuassay.testing import OpSpec, Sample, conformance


def ema(xp, average, p, *, decay=0.9999):
    dtype = average.dtype
    if dtype.itemsize == 2:
        average, p = average.astype("float32"), p.astype("float32")
    return (average * decay + p * (1 - decay)).astype(dtype)


test_ema = conformance(OpSpec(
    fn=ema,
    reference=lambda average, p, *, decay=0.9999: average * decay + p * (1 - decay),
    dtypes=("float16", "float32"),
    samples=lambda make: [(make(100), make(100)), Sample((make((3, 5)), make((3, 5))), {"decay": 0.9})],
))
