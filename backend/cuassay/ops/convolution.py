"""The geometry of a convolution by unfolding: the shape rule, and the windows of an image as strides.

The position of each window follows from strides, in the same way for every device kind. ``(N, C, H, W)`` is viewed as
``(N, C, KH, KW, OH, OW)``, which is a view of the padded image, and the product reads a copy of that view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cuassay.core.numbers import as_whole
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, ShapeError
from cuassay.ops.schema import Arguments

__all__ = ["Geometry", "conv2d", "geometry"]

Shape = tuple[int, ...]
Pair = tuple[int, int]

#: The bytes of unfolded images that exist at the same time, unless a single image needs more.
_UNFOLDED = 2**28

#: The most elements along an axis: no memory could hold a larger padded image.
_MOST = 2**48


@dataclass(frozen=True, slots=True)
class Geometry:
    """The extents of one call.

    Attributes
    ----------
    images, channels, filters, groups : int
        N, C, O and G.
    size, kernel, output, stride, padding, dilation : tuple of int
        Height and width of each.
    """

    images: int
    channels: int
    filters: int
    groups: int
    size: Pair
    kernel: Pair
    output: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    @property
    def shape(self) -> Shape:
        """The output's shape, (N, O, OH, OW)."""
        return self.images, self.filters, *self.output

    @property
    def padded(self) -> Pair:
        """The height and width of a padded image."""
        height, width = (extent + 2 * pad for extent, pad in zip(self.size, self.padding, strict=True))
        return height, width

    @property
    def inside(self) -> tuple[slice, slice]:
        """The position of the image in the padded image."""
        rows, columns = (slice(pad, pad + n) for n, pad in zip(self.size, self.padding, strict=True))
        return rows, columns

    def windows(self, strides: Sequence[int], *, channels_last: bool) -> tuple[Shape, Shape]:
        """Return shape and strides of the view of a padded image (N, C, H, W) with these `strides`.

        The shape is (N, C, KH, KW, OH, OW) or, if the channels are last in memory, (N, OH, OW, KH, KW, C).
        """
        image, channel, row, column = strides
        down, right = self.stride
        tall, wide = self.dilation
        kernel = (row * tall, column * wide)
        output = (row * down, column * right)
        if channels_last:
            return (
                (self.images, *self.output, *self.kernel, self.channels),
                (image, *output, *kernel, channel),
            )
        return (self.images, self.channels, *self.kernel, *self.output), (image, channel, *kernel, *output)

    def chunks(self, itemsize: int) -> Iterator[slice]:
        """Return slices of the images, each of as many images as unfold into `_UNFOLDED` bytes."""
        taken = self.kernel[0] * self.kernel[1] * self.output[0] * self.output[1] * self.channels * itemsize
        step = max(1, _UNFOLDED // max(1, taken))
        return (slice(first, min(first + step, self.images)) for first in range(0, self.images, step))


def conv2d(bound: Arguments) -> Shape:
    """Map (N, C, H, W) with weight (O, C / groups, KH, KW) and bias (O,) to (N, O, OH, OW)."""
    return geometry(bound).shape


def geometry(bound: Arguments) -> Geometry:
    """Check a call and return its extents.

    Raises
    ------
    ShapeError, ArgumentError
        If the shapes do not match, a window does not fit into the image, or a number is out of range.
    """
    a, weight = tuple(bound["a"].shape), tuple(bound["weight"].shape)
    groups = _whole("groups", bound["groups"], 1)
    if len(a) != 4 or len(weight) != 4 or a[1] != weight[1] * groups or weight[0] % groups:
        raise ShapeError(
            f"slow_conv2d needs images (N, C, H, W) and weight (O, C / groups, KH, KW), O a multiple of groups; "
            f"got {a}, {weight} and groups={groups}; reshape an operand"
        )
    bias = bound["bias"]
    given = None if bias is None else tuple(getattr(bias, "shape", ()))
    if given not in (None, weight[:1]):
        raise ShapeError(f"slow_conv2d's bias must have shape {weight[:1]}; got {given}; give one number a filter")
    stride, dilation = pair("stride", bound["stride"], 1), pair("dilation", bound["dilation"], 1)
    padding = pair("padding", bound["padding"], 0)
    size, kernel = (a[2], a[3]), (weight[2], weight[3])
    output = _output(size, kernel, stride, padding, dilation)
    return Geometry(a[0], a[1], weight[0], groups, size, kernel, output, stride, padding, dilation)


def _output(size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Pair:
    reach = [spread * (extent - 1) + 1 for extent, spread in zip(kernel, dilation, strict=True)]
    room = [extent + 2 * pad for extent, pad in zip(size, padding, strict=True)]
    if min(kernel) < 1 or any(one > other for one, other in zip(reach, room, strict=True)):
        raise ShapeError(
            f"a window of {kernel}, dilated {reach}, does not fit into images of {size}, padded {room}; pad more"
        )
    if max(room) >= _MOST:
        raise ShapeError(f"padded images are beyond any memory; got images of {size}, padded {shown(room)}; pad less")
    height, width = ((n - r) // step + 1 for n, r, step in zip(room, reach, stride, strict=True))
    return height, width


def pair(name: str, value: Any, least: int) -> Pair:
    """Return a pair from a whole number for both axes, or from two. Raises `ArgumentError`."""
    given = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(given) != 2:
        raise ArgumentError(f"{name} must be a whole number or two, for height and width; got {shown(value)}")
    return _whole(name, given[0], least), _whole(name, given[1], least)


def _whole(name: str, value: Any, least: int) -> int:
    whole = as_whole(value)
    if whole is None or whole < least:
        raise ArgumentError(f"{name} must be a whole number of {least} or more; got {shown(value)}; correct it")
    return whole
