"""The derivative of a convolution: two convolutions, and a sum for the bias.

The derivative by the image is a convolution of the gradient, spread by the stride, with the rotated weight. The
derivative by the weight is a convolution of the images with the gradient as weight, with stride and dilation exchanged
(V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", arXiv 1603.07285).
"""

from __future__ import annotations

from typing import Any

from cuassay.ops import catalog as ops
from cuassay.ops import registry
from cuassay.ops.convolution import Geometry, geometry
from cuassay.ops.rules import Formula, Forward

__all__ = ["SLOW_CONV2D", "placed"]

Array = Any


def placed(grad: Array, shape: tuple[int, ...], index: Any) -> Array:
    """Return zeros of `shape` with `grad` at `index`: the derivative of a view by slices."""
    backend = registry.backend_of(type(grad))
    if backend is None:  # a traced array records the operation itself
        return grad.placed(shape, index)
    whole = backend.empty(shape, grad.dtype, backend.device_of(grad).index)
    whole.fill(0)
    ops.copy(grad, out=whole[index])
    return whole


def _geometry(forward: Forward) -> Geometry:
    options = {name: getattr(forward, name) for name in ("stride", "padding", "dilation", "groups")}
    return geometry({"a": forward.a, "weight": forward.weight, "bias": None, **options})


def _by_image(grad: Array, forward: Forward) -> Array:
    """Put the gradient of output o at ``o * stride + (K - 1) * dilation - padding``, and convolve with the weight."""
    g = _geometry(forward)
    shape, index, taken = list(grad.shape[:2]), [slice(None)] * 2, [slice(None)] * 2
    for axis in range(2):
        reach = g.dilation[axis] * (g.kernel[axis] - 1)
        extent, begin, step = g.size[axis] + reach, reach - g.padding[axis], g.stride[axis]
        first = max(0, -(begin // step))
        last = min(g.output[axis] - 1, (extent - 1 - begin) // step)
        shape.append(extent)
        count = max(0, last - first + 1)
        taken.append(slice(first, first + count))
        start = begin + first * step
        index.append(slice(start, start + (count - 1) * step + 1, step) if count else slice(0, 0))
    spread = placed(grad[tuple(taken)], tuple(shape), tuple(index))
    filters, channels = g.filters // g.groups, g.channels // g.groups
    turned = ops.copy(forward.weight[:, :, ::-1, ::-1])
    turned = turned.reshape((g.groups, filters, channels, *g.kernel)).swapaxes(1, 2)
    turned = turned.reshape((g.channels, filters, *g.kernel))
    options = {"dilation": g.dilation, "groups": g.groups, "precision": forward.precision}
    return ops.slow_conv2d(spread, turned, **options)


def _by_weight(grad: Array, forward: Forward) -> Array:
    """Convolve with the roles exchanged: each channel of a group is an image, and each image is a channel."""
    g = _geometry(forward)
    channels = g.channels // g.groups
    images = forward.a.reshape((g.images, g.groups, channels, *g.size)).transpose((2, 1, 0, 3, 4))
    images = images.reshape((channels, g.groups * g.images, *g.size))
    options = {"stride": g.dilation, "dilation": g.stride, "padding": g.padding, "groups": g.groups}
    found = ops.slow_conv2d(images, grad.swapaxes(0, 1), precision=forward.precision, **options)
    return found[:, :, : g.kernel[0], : g.kernel[1]].swapaxes(0, 1)


#: The formulas by parameter.
SLOW_CONV2D = {
    "a": Formula(_by_image, ("weight",)),
    "weight": Formula(_by_weight, ("a",)),
    "bias": Formula(lambda grad, forward: ops.sum(grad, axis=(0, 2, 3))),
}
