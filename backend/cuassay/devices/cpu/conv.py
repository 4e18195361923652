"""Convolution on NumPy arrays: unfold the windows, then multiply matrices.

Called by `cuassay.ops`; OpSpec: `cuassay.testing.specs.conv`. `linalg` computes the products, with their rounding and
precision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from cuassay.core.precision import Mode
from cuassay.devices.cpu.linalg import addmm, matmul
from cuassay.ops import registry
from cuassay.ops.convolution import Geometry, geometry

__all__ = ["register"]

Array = NDArray[Any]


def slow_conv2d(
    a: Array, weight: Array, bias: Array | None, *, out: Array, precision: Mode | None, **window: Any
) -> None:
    """Multiply filters by unfolded channels, a few images at a time and group by group; 16-bit sums are in float32."""
    g = geometry({"a": a, "weight": weight, "bias": bias, **window})
    for images in g.chunks(out.dtype.itemsize):
        some = replace(g, images=len(a[images]))
        _convolve(_unfolded(a[images], some), weight, bias, out[images], some, precision)


def _convolve(
    columns: Array, weight: Array, bias: Array | None, out: Array, g: Geometry, precision: Mode | None
) -> None:
    filters, inner = g.filters // g.groups, columns.shape[1] // g.groups
    product = np.empty((g.images, g.filters, columns.shape[2]), out.dtype)
    for group in range(g.groups):
        mine = slice(group * filters, (group + 1) * filters)
        left = weight[mine].reshape(filters, inner)
        right = columns[:, group * inner : (group + 1) * inner]
        if bias is None:
            matmul(left, right, out=product[:, mine], precision=precision)
        else:
            addmm(bias[mine, None], left, right, out=product[:, mine], alpha=1.0, beta=1.0, precision=precision)
    out[...] = product.reshape(out.shape)


def _unfolded(a: Array, g: Geometry) -> Array:
    """Return (N, C * KH * KW, OH * OW): a column for each position of the window."""
    padded = np.zeros((g.images, g.channels, *g.padded), a.dtype)
    padded[:, :, *g.inside] = a
    view = as_strided(padded, *g.windows(padded.strides, channels_last=False))
    shape = g.images, g.channels * g.kernel[0] * g.kernel[1], g.output[0] * g.output[1]
    return np.ascontiguousarray(view).reshape(shape)


def register() -> None:
    """Add this implementation to the registry."""
    registry.implement("slow_conv2d", kind="cpu", dtypes=registry.op("slow_conv2d").schema.dtypes)(slow_conv2d)
