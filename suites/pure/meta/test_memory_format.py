"""Arrays without memory have the memory formats that arrays with memory have."""

from __future__ import annotations

import cuassay
from cuassay import ops

SHAPE = 2, 3, 4, 5
LAST = 240, 4, 60, 12


def test_formats_are_asked_for_kept_and_suggested_without_memory() -> None:
    a = cuassay.empty_like(cuassay.empty(SHAPE, "float32", "meta"), memory_format="channels_last")

    found = ops.add(ops.relu(a), 1.0)

    assert (found.shape, found.strides) == (SHAPE, LAST)
    assert ops.suggest_memory_format(found) == "channels_last"
    assert ops.copy(found, memory_format="contiguous").flags.c_contiguous
    assert ops.softmax(found, axis=1).flags.c_contiguous
