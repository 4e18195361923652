"""Aliasing: the working copy is only a copy if the dtype changes; in float32 the input is overwritten.

Shown by float32: look at the input after the call. float16 is right.
"""

from cuassay.testing import OpSpec, conformance


def softmax(xp, a):
    x = a.astype("float32" if a.dtype.itemsize == 2 else a.dtype, copy=False)
    x -= x.max(axis=-1, keepdims=True)
    e = xp.exp(x)
    return (e / e.sum(axis=-1, keepdims=True)).astype(a.dtype)


test_softmax = conformance(OpSpec(
    fn=softmax,
    dtypes=("float16", "float32"),
    samples=lambda make: [make((3, 33)), make(9)],
))
