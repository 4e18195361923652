"""Arrays whose elements do not begin at multiples of their size: a kernel that reads one ends the context.

CuPy makes such arrays, as NumPy does, by `view` and by strides that are not multiples of the item size; its own kernels
fail on them too. This module copies their bytes to memory where the elements are aligned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import cupy
import numpy as np

from cuassay.arrays import layout
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.memory import hook
from cuassay.errors import ArgumentError

__all__ = ["aligned", "copyto", "deliver", "is_aligned", "on_aligned", "require_aligned", "target_for"]

Array = Any


def is_aligned(array: Array) -> bool:
    """Whether every element of `array` begins at a multiple of its size."""
    itemsize, address = array.dtype.itemsize, array.data.ptr
    if is_c_contiguous(array):
        return bool(address % itemsize == 0)
    return layout.is_aligned(array.shape, array.strides, itemsize, address)


def aligned(array: Array) -> Array:
    """Return `array`, or a contiguous copy of it if its elements are misaligned."""
    if is_aligned(array):
        return array
    copied = _empty_like(array)
    _copy_bytes(array, copied)
    return copied


def target_for(out: Array) -> Array:
    """Return `out`, or memory to compute into if its elements are misaligned; pass the result to `deliver`."""
    return out if is_aligned(out) else _empty_like(out)


def deliver(target: Array, out: Array) -> None:
    """Copy `target` into `out`, if these are different arrays."""
    if target is not out:
        copyto(out, target)


def copyto(out: Array, a: Array) -> None:
    """Copy `a`, of the same dtype, into `out` on the current stream; strides may differ, and `a` may broadcast."""
    if is_aligned(a) and is_aligned(out):
        cupy.copyto(out, a)
    else:
        _copy_bytes(cupy.broadcast_to(a, out.shape), out)


def on_aligned(implementation: Callable[..., None]) -> Callable[..., None]:
    """Wrap `implementation` so that it gets copies of misaligned arrays, and `out` is copied back."""

    @wraps(implementation)
    def run(*arrays: Any, out: Array, **named: Any) -> None:
        target = target_for(out)
        implementation(*map(_aligned_or_other, arrays), out=target, **named)
        deliver(target, out)

    return run


def require_aligned(name: str, *arrays: Any) -> None:
    """Raise `ArgumentError` if an element of one of `arrays` does not begin at a multiple of its size."""
    for array in arrays:
        if isinstance(array, cupy.ndarray) and not is_aligned(array):
            raise ArgumentError(
                f"{name} needs arrays whose elements begin at multiples of their size; got {array.dtype} of shape "
                f"{array.shape} and strides {array.strides} at {array.data.ptr:#x}; copy it first with cuassay.ops.copy"
            )


def _aligned_or_other(value: Any) -> Any:
    """Return `aligned(value)` for an array, and any other value, such as a missing bias, unchanged."""
    return aligned(value) if isinstance(value, cupy.ndarray) else value


def _empty_like(array: Array) -> Array:
    return hook.empty(array.shape, array.dtype, array.data.device_id)


def _copy_bytes(a: Array, out: Array) -> None:
    cupy.copyto(_bytes_of(out), _bytes_of(a))


def _bytes_of(array: Array) -> Array:
    """Return a view with one more axis, for the bytes of an element."""
    shape, strides = (*array.shape, array.dtype.itemsize), (*array.strides, 1)
    return cupy.ndarray(shape, np.uint8, array.data, strides)
