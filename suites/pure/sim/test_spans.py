"""Which bytes an array occupies, and which accesses a later one covers: both compared with the bytes themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.core.device import Device
from cuassay.devices.sim import BACKEND
from cuassay.errors import RaceError
from cuassay.order.accesses import Access
from cuassay.order.clock import Queue

QUEUE = Queue(1, "stream 1", Device("sim", 0))

_parts = st.builds(slice, st.integers(0, 5), st.integers(0, 5), st.sampled_from([None, 1, 2, 3, -1]))
_index = st.tuples(_parts, _parts)
_dtypes = st.sampled_from(["uint8", "uint16", "float32"])


@pytest.fixture(scope="module")
def whole() -> Iterator[Any]:
    """Five rows of eight bytes."""
    with BACKEND.simulated(devices=1):
        yield BACKEND.from_host(np.zeros((5, 8), np.uint8), 0)


@pytest.fixture
def x() -> Iterator[Any]:
    """64 bytes in four rows, of a machine of its own."""
    with BACKEND.simulated(devices=1):
        made = BACKEND.namespace(0).zeros((4, 16), np.uint8)
        BACKEND.synchronize(0)
        yield made
        BACKEND.synchronize(0)


def view(whole: Any, index: Any, dtype: str, turned: bool) -> Any:
    part = whole.view(dtype)[index]
    return part.T if turned else part


def bytes_of(array: Any) -> set[int]:
    """Every byte of every element, counted from the start of the arena."""
    starts = array.raw.__array_interface__["data"][0] - array.owner.arena.base
    offsets = np.zeros((), np.int64)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        offsets = np.add.outer(offsets, np.arange(extent) * stride)
    return {int(one) + starts + byte for one in offsets.flat for byte in range(array.itemsize)}


@given(index=_index, dtype=_dtypes, turned=st.booleans())
def test_a_span_begins_and_ends_with_the_arrays_bytes(whole: Any, index: Any, dtype: str, turned: bool) -> None:
    array = view(whole, index, dtype, turned)
    span, touched = array.span, bytes_of(array)

    assert span.high - span.low == (max(touched) + 1 - min(touched) if touched else 0)
    assert not touched or span.low == min(touched)
    assert not span.dense or touched == set(range(span.low, span.high))
    assert span.dense or not (array.flags.c_contiguous or array.flags.f_contiguous)


def access(array: Any) -> Access:
    return Access(QUEUE, 1, True, array.span, array.raw, "test", ("test", 1))


@given(one=_index, other=_index, dtypes=st.tuples(_dtypes, _dtypes), turned=st.booleans())
def test_an_access_covers_nothing_that_it_does_not_touch(
    whole: Any, one: Any, other: Any, dtypes: tuple[str, str], turned: bool
) -> None:
    first, second = view(whole, one, dtypes[0], False), view(whole, other, dtypes[1], turned)
    covers = access(first).covers(access(second))

    assert not covers or bytes_of(second) <= bytes_of(first)
    if first.span.dense and first.size and second.size:
        assert covers == (bytes_of(second) <= set(range(first.span.low, first.span.high)))


def strided(shape: tuple[int, int], strides: tuple[int, int]) -> Any:
    return lambda x: x.__array_namespace__().lib.stride_tricks.as_strided(x, shape, strides)


NEIGHBOURS = [
    pytest.param(lambda x: x[::2, ::2], lambda x: x[1::2, 1::2], id="another place"),
    pytest.param(strided((2, 3), (32, 3)), strided((2, 3), (34, 2)), id="other strides"),
    pytest.param(strided((3, 1), (16, 32)), strided((1, 2), (16, 32)), id="another shape"),
]


@pytest.mark.parametrize(("first", "second"), NEIGHBOURS)
def test_a_strided_access_does_not_hide_another_one(x: Any, first: Any, second: Any) -> None:
    with BACKEND.use_stream(BACKEND.new_stream(0)):
        first(x).fill(1)
        second(x).fill(2)
    only_first = first(x)[1:2, :1]

    with BACKEND.use_stream(BACKEND.new_stream(0)), pytest.raises(RaceError):
        only_first.fill(3)


def test_the_same_strided_access_again_replaces_the_first(x: Any) -> None:
    with BACKEND.use_stream(BACKEND.new_stream(0)):
        for value in range(4):
            x[::2, ::2].fill(value)

    assert len(x.owner.log) == 1
