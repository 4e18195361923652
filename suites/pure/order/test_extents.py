"""Where an array lies, as plain numbers: its span and its overlaps are those of its bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.arrays import layout
from cuassay.order.extents import Extent, span_of

_BYTES = {1: np.dtype("uint8"), 2: np.dtype("uint16"), 4: np.dtype("float32")}


def made(axes: list[tuple[int, int]], itemsize: int, address: int) -> Extent:
    shape, strides = tuple(length for length, _ in axes), tuple(stride for _, stride in axes)
    return Extent("cuda:0", address, shape, strides, _BYTES[itemsize], span_of(address, shape, strides, itemsize))


_axes = st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5)), max_size=3)
_extents = st.builds(made, _axes, st.sampled_from([1, 2, 4]), st.integers(100, 120))


def bytes_of(extent: Extent) -> set[int]:
    starts = np.full((), extent.address)
    for length, stride in zip(extent.shape, extent.strides, strict=True):
        starts = np.add.outer(starts, np.arange(length) * stride)
    return {int(start) + byte for start in starts.flat for byte in range(extent.itemsize)}


@given(_extents)
def test_a_span_begins_and_ends_with_the_bytes_and_is_dense_only_without_gaps(extent: Extent) -> None:
    touched, span = bytes_of(extent), extent.span

    assert span.high - span.low == (max(touched) + 1 - min(touched) if touched else 0)
    assert not touched or span.low == min(touched)
    assert not span.dense or touched == set(range(span.low, span.high))


@given(_extents, _extents)
def test_numpy_finds_the_overlap_of_two_without_reading_either(one: Extent, other: Extent) -> None:
    if one.nbytes and other.nbytes:
        assert layout.overlap(one, other) == bool(bytes_of(one) & bytes_of(other))


@pytest.mark.parametrize(
    ("strides", "is_dense"),
    [((12, 4), True), ((4, 8), True), ((-12, 4), True), ((24, 4), False), ((0, 4), False)],
    ids=["C", "Fortran", "reversed", "gaps", "repeated"],
)
def test_arrays_without_gaps_are_dense(strides: tuple[int, int], is_dense: bool) -> None:
    assert span_of(1000, (2, 3), strides, 4).dense is is_dense
