"""Whether two CuPy arrays share memory, which a call with ``out=`` must know about its operands."""

from __future__ import annotations

from typing import Any

from cuassay.arrays.layout import byte_range
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous

__all__ = ["overlap"]

Array = Any


def overlap(a: Array, b: Array) -> str:
    """Return ``"none"``, ``"partial"`` or ``"same"``, by byte range: interleaved arrays count as overlapping.

    An exact answer would take more time than it is worth.
    """
    if is_c_contiguous(a) and is_c_contiguous(b):
        start_a, start_b = a.data.ptr, b.data.ptr
        if start_a + a.nbytes <= start_b or start_b + b.nbytes <= start_a:
            return "none"
    if a.size == 0 or b.size == 0:
        return "none"
    (low_a, high_a), (low_b, high_b) = _range(a), _range(b)
    if high_a <= low_b or high_b <= low_a:
        return "none"
    same = a.data.ptr == b.data.ptr and a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
    return "same" if same else "partial"


def _range(array: Array) -> tuple[int, int]:
    return byte_range(array.shape, array.strides, array.dtype.itemsize, array.data.ptr)
