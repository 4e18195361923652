"""The right function for ../wrong/table_of_another_stream.py."""

import numpy as np

from cuassay import devices
from cuassay.testing import OpSpec, conformance


def backend(xp):
    return devices.backend("cuda" if xp.__name__ == "cupy" else "sim")


_tables = {}


def add_positions(xp, a):
    if xp is np:
        return a + xp.sin(xp.arange(a.shape[-1]).astype(a.dtype))
    here = backend(xp).current_stream(a.device.index)
    key = a.shape[-1], str(a.dtype)
    if key not in _tables:
        _tables[key] = xp.sin(xp.arange(a.shape[-1]).astype(a.dtype)), here
    table, made_on = _tables[key]
    here.wait_stream(made_on)
    return a + table


test_add_positions = conformance(OpSpec(
    fn=add_positions,
    dtypes=("float32",),
    samples=lambda make: [make((3, 16)), make(40)],
))
