"""Arrays of more than 2^31 elements: a part of the result is the result of a part, which no wrapped index gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import devices, ops
from cuassay.testing import exclusive

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

pytestmark = [pytest.mark.usefixtures("on_cuda"), exclusive]

#: Rows and columns of a matrix, long rows and short ones. No extent is a multiple of a pack.
LONG, SHORT = (65_537, 32_771), (2_097_169, 1_025)

#: Where the last element with an index of 31 bits is, and what is compared around it and at the end.
EDGE, PART = 2**31, 4_099

#: Bytes of the largest test: an int8 array, its int64 running sum and what the pool rounds up.
NBYTES = 24 * 2**30


@pytest.fixture(scope="module")
def bytes_of_all() -> Iterator[Any]:
    """A row of int8, as many as a matrix of `LONG` holds, whose period divides no extent."""
    reason = devices.backend("cuda").why_absent()  # asked here too, as `on_cuda` comes after fixtures of a module
    if reason is not None:
        pytest.skip(f"no CUDA device: {reason}")
    if cupy.cuda.runtime.memGetInfo()[0] < NBYTES:
        pytest.skip(f"less than {NBYTES >> 30} GiB of the device's memory is free")
    period = cupy.asarray((np.arange(25_013) * 37 % 251 - 125).astype(np.int8))
    made = cupy.resize(period, LONG[0] * LONG[1])
    yield made
    del made
    cupy.get_default_memory_pool().free_all_blocks()


def assert_same(found: Any, expected: Any) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert bool((found == expected).all())


# ------------------------------------------------------------------------------------------------ element by element

ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "relu": ops.relu,
    "abs": ops.abs,
    "add": lambda a: ops.add(a, a),
    "add a number": lambda a: ops.add(a, 1),
    "less": lambda a: ops.less(a, 3),
    "maximum": lambda a: ops.maximum(a, a),
    "clamp": lambda a: ops.clamp(a, min=-5, max=7),
    "where": lambda a: ops.where(ops.less(a, 3), a, 0),
    "where of arrays": lambda a: ops.where(ops.less(a, 3), a, a),
    "logical_not": ops.logical_not,
    "copy": ops.copy,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_row(bytes_of_all: Any, name: str) -> None:
    function = ELEMENTWISE[name]

    found = function(bytes_of_all)

    for part in (slice(0, PART), slice(EDGE - PART, EDGE + PART), slice(-PART, None)):
        assert_same(found[part], function(bytes_of_all[part].copy()))


@pytest.mark.parametrize("name", ["relu", "add", "add a number", "where of arrays", "copy"])
def test_a_transposed_matrix(bytes_of_all: Any, name: str) -> None:
    function, turned = ELEMENTWISE[name], bytes_of_all.reshape(LONG).T

    found = function(turned)

    for part in (slice(0, 2), slice(-2, None)):
        assert_same(found[part], function(turned[part].copy()))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_vector_broadcast_along_a_matrix(bytes_of_all: Any, axis: int) -> None:
    matrix = bytes_of_all.reshape(LONG)
    vector = bytes_of_all[: LONG[1 - axis]].reshape((1, -1) if axis == 0 else (-1, 1))

    found = ops.add(matrix, vector)

    along = vector if axis == 0 else vector[-2:]
    assert_same(found[-2:], ops.add(matrix[-2:].copy(), along))


# ------------------------------------------------------------------------------------------------ rows and columns

ROWS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda a: ops.softmax(a, axis=-1),
    "log_softmax": lambda a: ops.log_softmax(a, axis=-1),
    "softmax_backward": lambda a: ops.softmax_backward(a, a, axis=-1),
    "layer_norm": lambda a: ops.layer_norm(a, a[0], a[0]),
    "logsumexp": lambda a: ops.logsumexp(a, axis=-1),
    "sum": lambda a: ops.sum(a, axis=-1),
    "mean": lambda a: ops.mean(a, axis=-1),
    "var": lambda a: ops.var(a, axis=-1),
    "amax": lambda a: ops.amax(a, axis=-1),
    "argmax": lambda a: ops.argmax(a, axis=-1),
    "cumsum": lambda a: ops.cumsum(a, axis=-1),
}


@pytest.fixture(scope="module")
def halves_of_all(bytes_of_all: Any) -> Any:
    """The same as numbers of float16 from -4 to 4."""
    return ops.mul(bytes_of_all.astype("float16"), 2.0**-5)


@pytest.mark.parametrize("shape", [LONG, SHORT], ids=["long", "short"])
@pytest.mark.parametrize("name", ROWS)
def test_the_last_rows(halves_of_all: Any, name: str, shape: tuple[int, int]) -> None:
    function, rows = ROWS[name], min(shape[0], halves_of_all.size // shape[1])
    matrix = halves_of_all[: rows * shape[1]].reshape(rows, shape[1])
    part = slice(rows - rows % 8 - 16, rows)  # whole packs before it: rows of the part are aligned as in the whole

    found = function(matrix)

    few = matrix[part].copy()
    expected = ops.layer_norm(few, matrix[0], matrix[0]) if name == "layer_norm" else function(few)
    assert found[part].shape == expected.shape
    assert bool(cupy.allclose(found[part], expected, rtol=2**-10, atol=2**-12))


@pytest.mark.parametrize("name", ["sum", "amax", "argmax"])
def test_columns(bytes_of_all: Any, name: str) -> None:
    matrix, turned = bytes_of_all.reshape(LONG), cupy.ascontiguousarray(bytes_of_all.reshape(LONG).T)

    found = getattr(ops, name)(matrix, axis=0)

    assert_same(found, getattr(ops, name)(turned, axis=-1))


# ------------------------------------------------------------------------------------------------ all of it


@pytest.fixture
def one_more(bytes_of_all: Any) -> Iterator[int]:
    """Where the largest number of all is."""
    place = EDGE + 77
    before = int(bytes_of_all[place])
    bytes_of_all[place] = 127
    yield place
    bytes_of_all[place] = before


def test_the_largest_is_found(bytes_of_all: Any, one_more: int) -> None:
    assert int(ops.amax(bytes_of_all)) == 127
    assert int(ops.argmax(bytes_of_all, axis=0)) == one_more


def test_running_and_whole_sums(bytes_of_all: Any) -> None:
    parts = [ops.sum(part) for part in cupy.array_split(bytes_of_all, 7)]

    running, whole = ops.cumsum(bytes_of_all, axis=0), ops.sum(bytes_of_all)

    assert int(whole) == int(running[-1]) == sum(map(int, parts))
    step = running[EDGE - PART : EDGE + PART] - running[EDGE - PART - 1 : EDGE + PART - 1]
    assert_same(step.astype("int8"), bytes_of_all[EDGE - PART : EDGE + PART])


# ------------------------------------------------------------------------------------------------ places


@pytest.mark.parametrize("count", [2, 9])
def test_joined_rows(bytes_of_all: Any, count: int) -> None:
    small = bytes_of_all[: 3 * (count - 1)].reshape(count - 1, 3)

    found = ops.cat([bytes_of_all, *small])

    assert_same(found[: bytes_of_all.size], bytes_of_all)
    assert_same(found[bytes_of_all.size :], small.ravel())


@pytest.mark.parametrize("count", [2, 9])
def test_joined_columns(bytes_of_all: Any, count: int) -> None:
    matrix = bytes_of_all.reshape(LONG)
    narrow = [matrix[:, place : place + 1].copy() for place in range(count - 1)]

    found = ops.cat([matrix, *narrow], axis=1)

    assert_same(found[-3:, : LONG[1]], matrix[-3:])
    assert_same(found[-3:, LONG[1] :], matrix[-3:, : count - 1])


def test_joined_columns_of_more_than_two_to_the_32_words(bytes_of_all: Any) -> None:
    """An odd number of columns makes a word of one byte."""
    matrix = bytes_of_all.reshape(LONG)

    found = ops.cat([matrix, matrix], axis=1)

    assert found.size > 2**32
    assert_same(found[-99:, : LONG[1]], matrix[-99:])
    assert_same(found[-99:, LONG[1] :], matrix[-99:])


@pytest.mark.parametrize("columns", [(3, 4), (0, 13)], ids=["odd", "even"])
def test_padded(bytes_of_all: Any, columns: tuple[int, int]) -> None:
    matrix = bytes_of_all.reshape(LONG)

    found = ops.pad(matrix, widths=((1, 2), columns), value=9)

    before, after = columns
    assert_same(found[-5:-2, before : before + LONG[1]], matrix[-3:])
    assert bool((found[-2:] == 9).all())
    assert bool((found[-5:, before + LONG[1] :] == 9).all())
    assert found.shape == (LONG[0] + 3, LONG[1] + before + after)


def test_rows_by_index(bytes_of_all: Any) -> None:
    matrix, index = bytes_of_all.reshape(LONG), cupy.arange(LONG[0])[::-1].copy()

    found = ops.embedding(index, matrix)

    assert_same(found[-3:], matrix[2::-1])
    assert_same(found[:3], matrix[: LONG[0] - 4 : -1])


def test_elements_by_index(bytes_of_all: Any) -> None:
    index = cupy.asarray([EDGE - 1, EDGE, EDGE + 1, bytes_of_all.size - 1, 0])

    assert_same(ops.gather(bytes_of_all, index, axis=0), bytes_of_all[index])
