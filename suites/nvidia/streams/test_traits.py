"""The traits of CuPy arrays, from which a sanitizer makes extents later; no GPU is needed."""

# ruff: noqa: E402  what is imported further down needs what is asked for first

from __future__ import annotations

import gc
from typing import Any

import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.arrays.layout import byte_range
from cuassay.devices.cuda.facts import extent, extent_of, traits_of

ADDRESS = 1 << 20


class Owner:
    """Owns made-up memory, and says when it is gone."""

    alive = 0

    def __init__(self) -> None:
        Owner.alive += 1

    def __del__(self) -> None:
        Owner.alive -= 1


def array(shape: tuple[int, ...] = (4, 6)) -> Any:
    memory = cupy.cuda.UnownedMemory(ADDRESS, 4096, Owner(), 0)
    return cupy.ndarray(shape, "float32", cupy.cuda.MemoryPointer(memory, 64))


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[1:3],
        lambda a: a[:, ::2],
        lambda a: a[::-1, 1],
        lambda a: a[:0],
        lambda a: a[1, 2],
        lambda a: cupy.ndarray((), "float32", a.data),
    ],
    ids=["whole", "transposed", "rows", "columns", "reversed", "empty", "element", "scalar"],
)
def test_the_extent_is_that_of_the_array(view: Any) -> None:
    one = view(array())
    made = extent_of(traits_of(one))

    assert (made.memory, made.address, made.shape, made.strides) == ("cuda:0", one.data.ptr, one.shape, one.strides)
    assert (made.dtype, made.nbytes, made.is_told) == (one.dtype, one.nbytes, False)
    assert extent(one).span == made.span
    low, high, _ = made.span
    assert (low, high) == byte_range(one.shape, one.strides, 4, one.data.ptr) if one.size else low == high


def test_traits_are_hashable_and_keep_no_memory_alive() -> None:
    one = array()
    kept = {traits_of(one): 1}
    del one
    gc.collect()

    assert Owner.alive == 0
    assert kept[traits_of(array())] == 1


def test_traits_are_those_of_the_time_at_which_they_were_read() -> None:
    one = array()
    before = traits_of(one)
    one.shape = (24,)

    assert extent_of(before).shape == (4, 6)
    assert extent_of(traits_of(one)).shape == (24,)
