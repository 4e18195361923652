"""Strides, byte ranges and overlap, against arrays that NumPy made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from cuassay.arrays import layout
from cuassay.errors import ShapeError

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def views(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[Any]]:
    """A view of a small array, by steps, reversed axes and transposition; and the array it looks at."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    base = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    cuts = tuple(slice(draw(st.integers(0, n)), None, draw(st.sampled_from([1, 2, 3]))) for n in shape)
    flips = tuple(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in shape)
    return base[cuts][flips].transpose(draw(st.permutations(range(base.ndim)))), base


def touched(view: NDArray[Any], base: NDArray[Any]) -> set[int]:
    """The bytes of `base` that belong to elements of `view`, by looking at every element."""
    start = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    offsets = [start + int(np.dot(index, view.strides)) for index in np.ndindex(view.shape)]
    return {offset + byte for offset in offsets for byte in range(view.itemsize)}


@given(shape=SHAPES, dtype=st.sampled_from(["int8", "float32", "complex128"]))
def test_contiguous_strides_are_numpys(shape: tuple[int, ...], dtype: str) -> None:
    array = np.empty(shape, dtype)
    strides = layout.contiguous_strides(shape, array.itemsize)

    assert layout.is_contiguous(shape, strides, array.itemsize)
    assert as_strided(array, shape, strides).flags.c_contiguous
    if array.size:
        assert strides == array.strides


@given(pair=views())
def test_contiguity_is_numpys(pair: tuple[NDArray[Any], NDArray[Any]]) -> None:
    view, _ = pair

    assert layout.is_contiguous(view.shape, view.strides, view.itemsize) == view.flags.c_contiguous


@given(pair=views())
def test_the_byte_range_is_that_of_the_elements(pair: tuple[NDArray[Any], NDArray[Any]]) -> None:
    view, base = pair
    start = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    low, high = layout.byte_range(view.shape, view.strides, view.itemsize, start)

    seen = touched(view, base)
    assert (low, high) == ((min(seen), max(seen) + 1) if seen else (start, start))


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((), (), (100, 104)),
        ((0, 3), (12, 4), (100, 100)),
        ((5,), (0,), (100, 104)),
        ((5,), (-4,), (84, 104)),
        ((2, 3), (-12, 8), (88, 120)),
    ],
    ids=["scalar", "empty", "broadcast", "reversed", "mixed"],
)
def test_byte_ranges_of_special_layouts(shape: tuple[int, ...], strides: tuple[int, ...], expected: object) -> None:
    assert layout.byte_range(shape, strides, 4, offset=100) == expected


@given(shapes=st.lists(SHAPES, max_size=3))
def test_shapes_broadcast_as_numpys_or_not_at_all(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ShapeError):
            layout.broadcast_shapes(*shapes)
    else:
        assert layout.broadcast_shapes(*shapes) == expected


def test_the_message_names_every_shape() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\), \(1,\), \(4,\)"):
        layout.broadcast_shapes((2, 3), (1,), (4,))


@pytest.mark.parametrize(("axis", "expected"), [(0, 0), (2, 2), (-1, 2), (-3, 0)])
def test_axes_count_from_either_end(axis: int, expected: int) -> None:
    assert layout.normalize_axis(axis, 3) == expected


@pytest.mark.parametrize(
    ("axis", "ndim", "advice"), [(3, 3, "give -3 to 2"), (-4, 3, "give -3 to 2"), (0, 0, "a scalar has no axis")]
)
def test_an_axis_that_does_not_exist_is_refused(axis: int, ndim: int, advice: str) -> None:
    with pytest.raises(ShapeError, match=advice):
        layout.normalize_axis(axis, ndim)


@given(data=st.data())
def test_overlap_is_sharing_a_byte(data: st.DataObject) -> None:
    view, base = data.draw(views())
    start, step = data.draw(st.integers(0, base.size)), data.draw(st.integers(1, 4))
    other = base.reshape(-1)[start::step]

    assert layout.overlap(view, other) == bool(touched(view, base) & touched(other, base))


def test_even_and_odd_columns_do_not_overlap() -> None:
    array = np.zeros((100, 100))

    assert not layout.overlap(array[:, ::2], array[:, 1::2])
    assert layout.overlap(array[:, ::2], array[:, ::3])


def test_what_is_too_hard_to_decide_counts_as_overlap() -> None:
    # Whether two sums of twenty even strides can be equal is a hard knapsack.
    strides = tuple(int(step) * 2 for step in np.random.default_rng(0).integers(200_000, 250_000, 20))
    buffer = np.zeros(2**24, dtype=np.int8)
    a = as_strided(buffer, (2,) * 20, strides)
    b = as_strided(buffer[500_000:], (2,) * 20, tuple(step + 2 for step in strides))

    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type] # the stub lists two values only
    assert layout.overlap(a, b)


@given(
    axes=st.lists(st.tuples(st.integers(0, 4), st.integers(-8, 8)), max_size=3),
    itemsize=st.sampled_from([1, 2, 4]),
)
def test_internal_overlap_is_two_elements_on_one_byte(axes: list[tuple[int, int]], itemsize: int) -> None:
    shape, strides = tuple(extent for extent, _ in axes), tuple(stride for _, stride in axes)
    starts = [int(np.dot(index, strides)) if axes else 0 for index in np.ndindex(shape)]
    used = [start + byte for start in starts for byte in range(itemsize)]

    assert layout.has_internal_overlap(shape, strides, itemsize) == (len(used) != len(set(used)))


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((1000, 1000), (4000, 4), False),
        ((1000, 1000), (4, 4000), False),
        ((1000, 1000), (0, 4), True),
        ((1000, 1000), (-4000, -4), False),
    ],
    ids=["rows", "columns", "broadcast", "reversed"],
)
def test_internal_overlap_of_large_arrays(shape: tuple[int, ...], strides: tuple[int, ...], expected: bool) -> None:
    assert layout.has_internal_overlap(shape, strides, 4) == expected


@given(
    shape=st.lists(st.integers(0, 3), max_size=3).map(tuple),
    steps=st.lists(st.integers(-9, 9), min_size=3, max_size=3),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    address=st.integers(0, 16),
)
def test_an_array_is_aligned_where_each_of_its_elements_is(
    shape: tuple[int, ...], steps: list[int], itemsize: int, address: int
) -> None:
    strides = steps[: len(shape)]
    begins = [address + int(np.dot(index, strides)) for index in np.ndindex(shape)]

    found = layout.is_aligned(shape, strides, itemsize, address)

    assert found == all(begin % itemsize == 0 for begin in begins)
