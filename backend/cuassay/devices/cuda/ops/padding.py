"""`pad` on CuPy arrays, by a kernel that writes each element once.

Kernel: kernels/padding.cu. Called by `cuassay.ops`; OpSpec: `cuassay.testing.specs.storage`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops.layouts import MAX_AXES, pack_length
from cuassay.ops import registry

__all__ = ["register"]

Array = Any

_BLOCK = 256


class _Padding(ctypes.Structure):
    """``Padding`` of padding.cu."""

    _fields_ = (
        ("n", ctypes.c_int64),
        ("axes", ctypes.c_int64),
        *((name, ctypes.c_int64 * MAX_AXES) for name in ("extent", "before", "length", "stride")),
    )


@dataclass
class _Axis:
    """An axis of the output: its extent, where the input begins, the input's length, and its stride in elements."""

    extent: int
    before: int
    length: int
    stride: int

    def is_one_with(self, inner: _Axis) -> bool:
        """Whether both can be merged into one axis: the inner axis has no padding, and the strides match."""
        return inner.extent == inner.length and self.stride == inner.length * inner.stride

    def merged(self, inner: _Axis) -> _Axis:
        """Return both axes as one."""
        extent, before, length = (number * inner.extent for number in self.numbers())
        return _Axis(extent, before, length, inner.stride)

    def numbers(self) -> tuple[int, int, int]:
        """Return the numbers that are counted in elements."""
        return self.extent, self.before, self.length


@alignment.on_aligned
def pad(a: Array, *, widths: Sequence[Sequence[int]], value: float, out: Array) -> None:
    """Fill with `value`, and copy `a` inside."""
    if not out.size:
        return
    axes = _axes(a, widths)
    number = np.asarray(value, out.dtype)
    if not is_c_contiguous(out) or len(axes) > MAX_AXES:
        out.fill(number[()])
        inside = out[tuple(slice(before, before + extent) for (before, _), extent in zip(widths, a.shape, strict=True))]
        if a.size:
            alignment.copyto(inside, a)
        return
    inner, *others = axes
    length = pack_length((a, out), *inner.numbers(), *(axis.stride for axis in others)) if inner.stride == 1 else 1
    is_whole = length > 1
    shared = [
        length if is_whole and axis is inner else 1 for axis in axes
    ]  # elements that a number of this axis counts
    described = _Padding(out.size // shared[0], len(axes))
    for place, (axis, by) in enumerate(zip(axes, shared, strict=True)):
        described.extent[place], described.before[place], described.length[place] = (
            one // by for one in axis.numbers()
        )
        described.stride[place] = axis.stride * by
    if not is_whole:
        length = pack_length((out,))
    bits = np.dtype(f"uint{8 * out.dtype.itemsize}")
    launched = kernel("padding.cu", f"pad<{bits.name}, {length}, {'true' if is_whole else 'false'}>")
    threads = out.size // length if is_whole else -(-out.size // length)
    launched(-(-threads // _BLOCK), _BLOCK, (a, number.reshape(1).view(bits)[0], out, described))


def _axes(a: Array, widths: Sequence[Sequence[int]]) -> list[_Axis]:
    """Return the axes from the innermost outwards, with neighbours merged; one of extent 1 if there are none."""
    axes: list[_Axis] = []
    for (before, after), length, stride in zip(reversed(widths), reversed(a.shape), reversed(a.strides), strict=True):
        axis = _Axis(before + length + after, before, length, stride // a.dtype.itemsize)
        if axis.extent == 1 and length == 1:
            continue
        if axes and axis.is_one_with(axes[-1]):
            axis = axis.merged(axes.pop())
        axes.append(axis)
    return axes or [_Axis(1, 0, 1, 1)]


def register() -> None:
    """Add the implementation to the registry."""
    registry.implement("pad", kind="cuda", dtypes=registry.op("pad").schema.dtypes)(pad)
