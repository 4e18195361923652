"""Windows of an image as strides: whatever the numbers, they are those of the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from cuassay.ops.convolution import geometry

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(
    images=st.integers(1, 3), channels=st.integers(1, 3), kernel=PAIR, stride=PAIR, dilation=PAIR,
    more=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    last=st.booleans(),
)  # fmt: skip
def test_each_window_holds_what_it_looks_at(
    images: int, channels: int, kernel: Any, stride: Any, dilation: Any, more: Any, last: bool
) -> None:
    size = [d * (k - 1) + 1 + m for k, d, m in zip(kernel, dilation, more, strict=True)]
    a = np.arange(images * channels * size[0] * size[1]).reshape(images, channels, *size)
    if last:
        a = np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    weight = np.zeros((1, channels, *kernel))
    window = {"stride": stride, "padding": 0, "dilation": dilation, "groups": 1}
    g = geometry({"a": a, "weight": weight, "bias": None, **window})

    seen = as_strided(a, *g.windows(a.strides, channels_last=last))
    seen = seen.transpose(0, 5, 3, 4, 1, 2) if last else seen

    n, c, i, j, y, x = np.indices(seen.shape)
    np.testing.assert_array_equal(seen, a[n, c, y * stride[0] + i * dilation[0], x * stride[1] + j * dilation[1]])


@given(images=st.integers(0, 20), extent=st.integers(1, 64))
def test_chunks_are_all_images_once(images: int, extent: int) -> None:
    a, weight = np.zeros((images, 1, extent, extent)), np.zeros((1, 1, 1, 1))
    g = geometry({"a": a, "weight": weight, "bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1})

    places = [place for chunk in g.chunks(2**20) for place in range(images)[chunk]]

    assert places == list(range(images))


@pytest.mark.parametrize(("itemsize", "at_once"), [(2, 4), (4, 2), (8, 1), (16, 1)])
def test_as_many_images_are_unfolded_at_a_time_as_fit(
    itemsize: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, weight = np.zeros((8, 3, 6, 5)), np.zeros((1, 3, 3, 2))
    g = geometry({"a": a, "weight": weight, "bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1})
    monkeypatch.setattr("cuassay.ops.convolution._UNFOLDED", 4 * (3 * 3 * 2) * (4 * 4) * 2)

    first, *_ = g.chunks(itemsize)

    assert first == slice(0, at_once)
