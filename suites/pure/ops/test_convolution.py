"""Convolution compared with the loops that define it, and how many images it unfolds at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cuassay import ops
from cuassay.ops.convolution import Geometry

_pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
_padding = st.tuples(st.integers(0, 2), st.integers(0, 2))

#: The most bytes of unfolded images at once.
_MOST = 2**28


def looped(a: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Each number of the result as a sum over channels and the window."""
    padded = np.pad(a, ((0, 0), (0, 0), *((pad, pad) for pad in padding)))
    reach = [(extent - 1) * spread + 1 for extent, spread in zip(weight.shape[2:], dilation, strict=True)]
    extents = [(n - r) // step + 1 for n, r, step in zip(padded.shape[2:], reach, stride, strict=True)]
    found = np.zeros((len(a), len(weight), *extents))
    channels, filters = weight.shape[1], len(weight) // groups
    for image, one, row, column in np.ndindex(found.shape):
        first, top, left = one // filters * channels, row * stride[0], column * stride[1]
        window = padded[
            image, first : first + channels, top : top + reach[0] : dilation[0], left : left + reach[1] : dilation[1]
        ]
        found[image, one, row, column] = (window * weight[one]).sum()
    return found


@given(
    size=st.tuples(st.integers(5, 7), st.integers(5, 7)),
    kernel=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    stride=_pairs,
    padding=_padding,
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.integers(1, 2),
    last=st.booleans(),
)
def test_a_convolution_is_its_loops(
    size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int, last: bool
) -> None:
    numbers = np.random.default_rng(0)
    a = numbers.integers(-4, 5, (2, 2 * groups, *size)).astype(np.float32)
    weight = numbers.integers(-4, 5, (groups, 2, *kernel)).astype(np.float32)
    given = np.moveaxis(np.moveaxis(a, 1, -1).copy(), -1, 1) if last else a

    found = ops.slow_conv2d(given, weight, None, stride=stride, padding=padding, dilation=dilation, groups=groups)

    np.testing.assert_array_equal(found, looped(a, weight, stride, padding, dilation, groups))


_extents = st.tuples(st.integers(1, 40), st.integers(1, 40))


@given(images=st.integers(1, 50), channels=st.integers(1, 400), kernel=_extents, output=_extents)
def test_images_are_unfolded_once_each_and_as_many_as_memory_takes(
    images: int, channels: int, kernel: Any, output: Any
) -> None:
    call = Geometry(images, channels, 1, 1, (99, 99), kernel, output, (1, 1), (0, 0), (1, 1))
    of_one = channels * int(np.prod(kernel)) * int(np.prod(output)) * 4

    parts = [range(images)[part] for part in call.chunks(4)]

    assert [image for part in parts for image in part] == list(range(images))
    assert all(len(part) == 1 or len(part) * of_one <= _MOST for part in parts)
    assert all((len(part) + 1) * of_one > _MOST for part in parts[:-1])
