"""Arrays whose elements do not begin at multiples of their size: copied byte by byte, or refused; never read as if."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import devices, jit, linalg, ops, random
from cuassay.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("on_cuda")


BACKEND = devices.backend("cuda")


def at_odd_strides(values: Any) -> Any:
    """A matrix whose rows are one byte further apart than whole elements."""
    row = values.shape[1] * values.itemsize
    memory = cupy.zeros((len(values), row + 1), cupy.uint8)
    memory[:, :row] = cupy.asarray(values.view(np.uint8).reshape(len(values), row))
    return cupy.ndarray(values.shape, values.dtype, memory.data, (row + 1, values.itemsize))


def at_an_odd_address(values: Any) -> Any:
    """A contiguous array that begins one byte past a multiple of its element's size."""
    memory = cupy.zeros(values.nbytes + 1, cupy.uint8)
    memory[1:] = cupy.asarray(values.view(np.uint8).reshape(-1))
    return cupy.ndarray(values.shape, values.dtype, memory.data + 1)


PLACES: dict[str, Callable[[Any], Any]] = {"strides": at_odd_strides, "address": at_an_odd_address}

#: Calls of one or two matrices of 3 x 3; what NumPy computes of them.
CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (ops.add, np.add),
    "add a number": (lambda a, b, **out: ops.add(a, 1.5, **out), lambda a, b: a + np.float32(1.5)),
    "relu": (lambda a, b, **out: ops.relu(a, **out), lambda a, b: np.maximum(a, 0)),
    "copy": (lambda a, b, **out: ops.copy(a, **out), lambda a, b: a),
    "softmax": (
        lambda a, b, **out: ops.softmax(a, axis=-1, **out),
        lambda a, b: np.exp(a) / np.exp(a).sum(axis=-1, keepdims=True),
    ),
    "mm": (ops.mm, np.matmul),
    "addmm": (lambda a, b, **out: ops.addmm(a, a, b, **out), lambda a, b: a + a @ b),
}


def values(seed: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (3, 3)).astype(dtype)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("place", PLACES)
def test_an_operand_is_read_where_its_elements_lie(place: str, name: str) -> None:
    call, expected = CALLS[name]
    a, b = values(1), values(2)

    result = call(PLACES[place](a), cupy.asarray(b))

    np.testing.assert_allclose(result.get(), expected(a, b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("place", PLACES)
def test_a_result_is_written_where_its_elements_lie(place: str, name: str) -> None:
    call, expected = CALLS[name]
    a, b = values(1), values(2)
    out = PLACES[place](np.zeros((3, 3), np.float32))

    assert call(cupy.asarray(a), PLACES[place](b), out=out) is out

    np.testing.assert_allclose(devices.to_host(out), expected(a, b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_a_prepared_body_writes_where_the_elements_lie(place: str) -> None:
    pytest.importorskip("pycparser", reason="pycparser is not installed")
    body = jit.elementwise("template <typename T> T thrice(T x) { return 3 * x; }")
    a, out = values(1), PLACES[place](np.zeros((3, 3), np.float32))

    for given, result in ((cupy.asarray(a), out), (PLACES[place](a), cupy.zeros((3, 3), np.float32))):
        body.op.prepare(given, out=result).run()

        np.testing.assert_array_equal(devices.to_host(result), 3 * a)


@pytest.mark.parametrize("place", PLACES)
def test_a_sum_a_cast_and_a_read_take_such_an_array(place: str) -> None:
    a = values(3, "float64")
    there = PLACES[place](a)

    np.testing.assert_allclose(ops.sum(there).get(), a.sum())
    np.testing.assert_array_equal(ops.cast(there, dtype="float32").get(), a.astype(np.float32))
    np.testing.assert_array_equal(devices.to_host(there), a)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float16", "int64"])
@pytest.mark.parametrize("place", PLACES)
def test_elements_of_any_size_are_added(place: str, dtype: str) -> None:
    a = (values(4) * 100).astype(dtype)

    np.testing.assert_array_equal(ops.add(PLACES[place](a), PLACES[place](a)).get(), a + a)


def test_bytes_between_the_elements_stay_as_they_are() -> None:
    memory = cupy.full(3 * 13, 7, cupy.uint8)
    out = cupy.ndarray((3, 3), cupy.float32, memory.data, (13, 4))

    ops.copy(cupy.zeros((3, 3), cupy.float32), out=out)

    assert memory.reshape(3, 13)[:, 12].get().tolist() == [7, 7, 7]
    assert not memory.reshape(3, 13)[:, :12].any()


def test_complex_numbers_at_half_their_size_are_read() -> None:
    whole = cupy.asarray(np.arange(9, dtype=np.float32))

    np.testing.assert_array_equal(ops.add(whole[1:].view(cupy.complex64), 1j).get(), [1 + 3j, 3 + 5j, 5 + 7j, 7 + 9j])


def test_a_list_is_refused() -> None:
    with pytest.raises(ArgumentError, match="must begin at a multiple of its elements' size"):
        ops.foreach_zero_([cupy.zeros(4, cupy.float32), at_an_odd_address(values(1))])


def test_a_factorization_is_refused() -> None:
    with pytest.raises(ArgumentError, match="elements begin at multiples of their size"):
        linalg.solve(at_odd_strides(values(5)), cupy.asarray(values(6)))


@pytest.mark.parametrize("place", PLACES)
def test_random_numbers_are_those_of_any_other_array(place: str) -> None:
    out = PLACES[place](np.zeros((3, 3), np.float32))

    random.uniform(generator=random.Generator("cuda", seed=7), out=out)

    expected = random.uniform((3, 3), generator=random.Generator("cuda", seed=7), device="cuda")
    np.testing.assert_array_equal(devices.to_host(out), devices.to_host(expected))
