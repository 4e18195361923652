"""Which arrays become chains, and which functions that take too few steps are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops
from cuassay.testing import OpSpec
from cuassay.testing.generated import chains
from cuassay.testing.generated.chains import check_chains
from cuassay.testing.samples import HostArray, Samples

CPU = Device("cpu")
MAKE = Samples(1, "int32")


def index(size: int, low: int, high: int, dtype: str = "int32") -> HostArray:
    return Samples(1, "int32")(size, low=low, high=high, dtype=dtype)


@pytest.mark.parametrize(
    ("given", "is_index"),
    [
        pytest.param(index(9, 0, 5), True, id="from 0"),
        pytest.param(index(9, 0, 5, "uint8"), True, id="unsigned"),
        pytest.param(index(9, 1, 5), False, id="from 1"),
        pytest.param(index(9, -1, 5), False, id="from -1"),
        pytest.param(index((3, 3), 0, 5), False, id="a matrix"),
        pytest.param(index(9, 0, 5, "float32"), False, id="floats"),
        pytest.param(MAKE(9), False, id="free integers"),
        pytest.param(HostArray(np.arange(9)), False, id="without a range"),
        pytest.param(np.arange(9), False, id="an array of NumPy"),
        pytest.param(3, False, id="a number"),
    ],
)
def test_vector_of_integers_from_zero_is_an_index(given: Any, is_index: bool) -> None:
    assert chains._is_index(given) is is_index


def test_two_indices_of_one_range_are_the_edges_of_a_chain() -> None:
    weight = HostArray(np.ones(6))
    sources, targets, other, axis = chains._edges((index(6, 0, 4), index(6, 0, 4, "int64"), weight, 3))  # type: ignore[misc]

    assert (sources.values.tolist(), targets.values.tolist()) == ([0, 1, 2, 3, 3, 3], [1, 2, 3, 4, 4, 4])
    assert (sources.dtype, targets.dtype) == (np.int32, np.int64)
    assert (other is weight, axis) == (True, 3)


@pytest.mark.parametrize(
    ("args", "are_edges"),
    [
        pytest.param((index(6, 0, 4), index(6, 0, 4)), True, id="edges"),
        pytest.param((index(6, 0, 6), index(6, 0, 6)), True, id="as many nodes as fit"),
        pytest.param((index(6, 0, 7), index(6, 0, 7)), False, id="too many nodes"),
        pytest.param((index(6, 0, 3), index(6, 0, 3)), False, id="too few nodes"),
        pytest.param((index(6, 0, 4), index(6, 0, 5)), False, id="two ranges"),
        pytest.param((index(6, 0, 4), index(7, 0, 4)), False, id="two shapes"),
        pytest.param((index(6, 0, 4),), False, id="one index"),
        pytest.param((index(6, 0, 4),) * 3, False, id="three indices"),
        pytest.param((index(6, 0, 4), MAKE(6)), False, id="one index and other integers"),
    ],
)
def test_lists_of_edges(args: Any, are_edges: bool) -> None:
    assert (chains._edges(args) is not None) is are_edges


def test_square_array_of_truth_values_becomes_an_adjacency_matrix() -> None:
    found = chains._chained(HostArray(np.ones((2, 3, 3), bool), is_free=True))

    assert found.values.tolist() == [[[False, True, False], [False, False, True], [False, False, False]]] * 2
    assert found.values.flags.writeable


def test_index_of_each_node_becomes_the_one_before() -> None:
    found = chains._chained(index(5, 0, 4, "int16"))

    assert (found.values.tolist(), found.dtype) == ([0, 0, 1, 2, 3], np.int16)


def flags(*shape: int, is_free: bool = True) -> HostArray:
    return HostArray(np.ones(shape, bool), is_free=is_free)


@pytest.mark.parametrize(
    ("given", "is_changed"),
    [
        pytest.param(flags(2, 2), True, id="four elements"),
        pytest.param(flags(1, 1), False, id="one element"),
        pytest.param(flags(3, 1, 1), False, id="three elements"),
        pytest.param(flags(2, 3), False, id="not square"),
        pytest.param(flags(4), False, id="a vector"),
        pytest.param(flags(3, 3, 4), False, id="not square at the end"),
        pytest.param(flags(3, 3, is_free=False), False, id="fixed"),
        pytest.param(HostArray(np.ones((3, 3)), is_free=True), False, id="floats"),
        pytest.param(index(4, 0, 3), True, id="four nodes"),
        pytest.param(index(3, 0, 2), False, id="three nodes"),
        pytest.param(index(5, 0, 5), False, id="beyond the last node"),
        pytest.param(index(5, 0, 3), False, id="not up to the last node"),
        pytest.param(index(5, 1, 4), False, id="not from the first node"),
        pytest.param(7, False, id="a number"),
    ],
)
def test_arrays_that_may_be_graphs_are_changed(given: Any, is_changed: bool) -> None:
    assert (chains._chained(given) is not given) is is_changed


# ------------------------------------------------------------------------------------------------ the check


def steps(a: Any, count: int) -> Any:
    """Which nodes are reached in up to `count` steps of doubled length."""
    reached = a | np.eye(a.shape[-1], dtype=bool)
    for _ in range(count):
        reached = (reached.astype(np.int64) @ reached.astype(np.int64)) > 0
    return reached


def check(fn: Any, reference: Any, samples: Any, dtype: str = "bool", **fields: Any) -> str:
    spec = OpSpec(
        fn=None if "op" in fields else fn, reference=reference, name=None if "op" in fields else "given",
        dtypes=(dtype,), samples=samples, **fields,
    )  # fmt: skip
    return failure(check_chains, spec, CPU, np.dtype(dtype))


def test_too_few_steps_along_a_graph_are_found() -> None:
    samples = lambda make: [make((20, 20), dtype="bool")]  # noqa: E731
    found = check(lambda xp, a: steps(a, 2), lambda a: steps(a, 5), samples)

    assert "right for the sample's own numbers, wrong for others: a chain: each node is linked only to the" in found
    assert not check(lambda xp, a: steps(a, 5), lambda a: steps(a, 5), samples)
    assert not check(lambda xp, a: steps(a, 2), None, samples)


def roots(parents: Any, count: int) -> Any:
    for _ in range(count):
        parents = parents[parents]
    return parents


@pytest.mark.parametrize(("size", "is_found"), [(40, True), (9000, True), (9001, False)])
def test_too_few_steps_along_parents_are_found(size: int, is_found: bool) -> None:
    def wrong(xp: Any, a: Any) -> Any:
        return roots(a, 2 if (a[1:] == np.arange(size - 1)).all() else 14)

    found = check(wrong, lambda a: roots(a, 14), lambda make: [make(size, low=0, high=size - 1)], "int32")

    assert ("each node is linked only to the next" in found) is is_found


def test_chain_that_the_reference_refuses_is_not_tried() -> None:
    def refusing(a: Any) -> Any:
        if a.sum() == a.shape[0] - 1:
            raise RuntimeError("a chain")
        return steps(a, 5)

    assert not check(lambda xp, a: steps(a, 2), refusing, lambda make: [make((20, 20), dtype="bool")])


def test_op_is_not_given_a_chain() -> None:
    samples = lambda make: [make((8, 8), dtype="bool")]  # noqa: E731

    assert not check(None, lambda a: np.logical_not(a) ^ (a.sum() == 7), samples, op=ops.logical_not)


def test_function_that_is_right_for_edges_of_a_chain_passes_and_a_wrong_one_fails() -> None:
    samples = lambda make: [(make(12, low=0, high=9), make(12, low=0, high=9))]  # noqa: E731
    right = lambda a, b: a + b  # noqa: E731
    wrong = lambda xp, a, b: a + b + ((b - a) == 1).all()  # noqa: E731

    assert not check(lambda xp, a, b: a + b, right, samples, "int32")
    assert "each node is linked only to the next" in check(wrong, right, samples, "int32")
