"""Convolution on CuPy arrays: one strided copy unfolds the windows, then cuBLAS multiplies.

Images in channels-last memory order stay in that order when they are unfolded, and when `out` has it: nothing is
transposed.
Called by `cuassay.ops`; OpSpec: `cuassay.testing.specs.conv`.
"""

from __future__ import annotations

from typing import Any

import cupy
from cupy.lib.stride_tricks import as_strided

from cuassay.arrays.layout import is_channels_last
from cuassay.core.precision import Mode, resolved
from cuassay.devices.cuda.blas.gemm import gemm
from cuassay.devices.cuda.memory.alignment import on_aligned
from cuassay.ops import registry
from cuassay.ops.convolution import Geometry, geometry

__all__ = ["register"]

Array = Any


@on_aligned
def slow_conv2d(
    a: Array, weight: Array, bias: Array | None, *, out: Array, precision: Mode | None, **window: Any
) -> None:
    """Compute into `out`, on the current stream; as many images at a time as unfold into 256 MiB."""
    if not out.size:
        return
    g = geometry({"a": a, "weight": weight, "bias": bias, **window})
    a, weight = a.astype(out.dtype, copy=False), weight.astype(out.dtype, copy=False)
    bias = None if bias is None else cupy.ascontiguousarray(bias.astype(out.dtype, copy=False))
    last = g.groups == 1 and is_channels_last(a.shape, a.strides)
    target = _target(out, channels_last=last)
    for images in g.chunks(out.dtype.itemsize):
        convolve = _channels_last if last else _channels_first
        convolve(_windows(a[images], g, channels_last=last), weight, bias, target[images], g, resolved(precision))
    if target is not out:
        cupy.copyto(out, target)


def _target(out: Array, *, channels_last: bool) -> Array:
    """Return `out` if the product can write to it directly, else memory in the product's order."""
    if channels_last:
        if out.transpose(0, 2, 3, 1).flags.c_contiguous:
            return out
        n, filters, height, width = out.shape
        return cupy.empty((n, height, width, filters), out.dtype).transpose(0, 3, 1, 2)
    return out if out.flags.c_contiguous else cupy.empty(out.shape, out.dtype)


def _windows(a: Array, g: Geometry, *, channels_last: bool) -> Array:
    """Return the windows contiguously, one after another; a view of the image if it already has this layout."""
    padded = a
    if any(g.padding):
        shape = (len(a), *g.padded, g.channels) if channels_last else (len(a), g.channels, *g.padded)
        padded = cupy.zeros(shape, a.dtype)
        padded = padded.transpose(0, 3, 1, 2) if channels_last else padded
        rows, columns = g.inside
        padded[:, :, rows, columns] = a
    (_, *extents), strides = g.windows(padded.strides, channels_last=channels_last)
    return cupy.ascontiguousarray(as_strided(padded, (len(a), *extents), strides))


def _channels_first(windows: Array, weight: Array, bias: Array | None, out: Array, g: Geometry, mode: Mode) -> None:
    """Multiply filters by columns, image by image; the bias is a column that broadcasts."""
    places = g.output[0] * g.output[1]
    filters, inner = g.filters // g.groups, g.channels // g.groups * g.kernel[0] * g.kernel[1]
    columns = windows.reshape(len(windows), g.groups * inner, places)
    product = out.reshape(len(windows), g.filters, places)
    rows = cupy.ascontiguousarray(weight).reshape(g.filters, inner)
    for group in range(g.groups):
        mine = slice(group * filters, (group + 1) * filters)
        right = columns[:, group * inner : (group + 1) * inner]
        _multiply(rows[mine], right, product[:, mine], None if bias is None else bias[mine, None], mode)


def _channels_last(windows: Array, weight: Array, bias: Array | None, out: Array, g: Geometry, mode: Mode) -> None:
    """Multiply rows by filters, all images at once; the bias is a row."""
    inner = g.channels * g.kernel[0] * g.kernel[1]
    rows = windows.reshape(len(windows) * g.output[0] * g.output[1], inner)
    filters = cupy.ascontiguousarray(weight.transpose(0, 2, 3, 1)).reshape(g.filters, inner)
    product = out.transpose(0, 2, 3, 1).reshape(len(rows), g.filters)
    if not rows.shape[1]:
        product[...] = 0 if bias is None else bias
    elif bias is None:
        gemm(rows, filters.T, product, mode=mode)
    else:
        gemm(rows, filters.T, product, bias=bias, mode=mode)


def _multiply(a: Array, b: Array, out: Array, c: Array | None, mode: Mode) -> None:
    if not a.shape[1]:
        out[...] = 0 if c is None else c
    elif c is None:
        gemm(a, b, out, mode=mode)
    else:
        gemm(a, b, out, c=c, beta=1.0, mode=mode)


def register() -> None:
    """Add this implementation to the registry."""
    registry.implement("slow_conv2d", kind="cuda", dtypes=registry.op("slow_conv2d").schema.dtypes)(slow_conv2d)
