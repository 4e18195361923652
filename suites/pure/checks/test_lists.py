"""Which lists of arrays are tried, and which wrong lists are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import lists
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.execution import REGISTERED
from cuassay.testing.samples import HostArray, Samples

CPU = Device("cpu")
MAKE = Samples(1, "float32")


def pairs(make: Any) -> list[Any]:
    return [Sample(([make(3), make(4)],))]


def spec_of(fn: Any, reference: Any = None, samples: Any = pairs, dtypes: Any = ("float32",)) -> OpSpec:
    return OpSpec(fn=fn, reference=reference, name="given", dtypes=dtypes, samples=samples)


def doubled(xp: Any, arrays: Any) -> Any:
    return [array * 2 for array in arrays]


def doubled_on_host(arrays: Any) -> Any:
    return doubled(np, arrays)


def check(fn: Any, reference: Any = doubled_on_host, samples: Any = pairs) -> str:
    return failure(CHECKS["lists"], spec_of(fn, reference, samples), CPU)


# ------------------------------------------------------------------------------------------------ what is tried


@pytest.mark.parametrize(
    ("spec", "applies"),
    [
        pytest.param(spec_of(doubled, doubled_on_host), True, id="lists"),
        pytest.param(spec_of(lambda xp, a: (a, a), None, lambda make: [make(3)]), True, id="a tuple is returned"),
        pytest.param(spec_of(lambda xp, a: a, None, lambda make: [make(3)]), False, id="one array"),
        pytest.param(
            OpSpec(op=ops.cat, samples=lambda make: [([make(3)],)], reference=lambda arrays: np.concatenate(arrays)),
            False, id="an op",
        ),
    ],
)  # fmt: skip
def test_functions_of_lists_are_checked(spec: OpSpec, applies: bool) -> None:
    assert REGISTERED["lists"].applies(spec) is applies


def members_of(sample: Sample) -> list[Any]:
    return [sample.args, dict(sample.kwargs), sample.label]


def test_lists_are_repeated_to_other_lengths() -> None:
    found = list(lists._of_other_counts(Sample((["a", "b"], 5), {"more": ["c", "d"], "axis": 0}, "drawn")))

    assert members_of(found[0]) == [(["a"], 5), {"more": ["c"], "axis": 0}, "drawn, lists of 1"]
    assert members_of(found[1])[0][0] == ["a", "b", "a", "b", "a", "b", "a", "b", "a"]
    assert [len(one.args[0]) for one in found] == [1, 9, 33, 130]
    assert [len(one.kwargs["more"]) for one in found] == [1, 9, 33, 130]


@pytest.mark.parametrize(
    ("args", "kwargs", "count"),
    [
        pytest.param((["a"] * 9,), {}, 4, id="of nine"),
        pytest.param((["a"] * 3,), {}, 5, id="of three"),
        pytest.param((["a"], ["a", "b"]), {}, 0, id="of two lengths"),
        pytest.param((["a"],), {"more": ["a", "b"]}, 0, id="another length by name"),
        pytest.param(([],), {}, 0, id="empty"),
        pytest.param(("a",), {}, 0, id="no list"),
    ],
)
def test_lists_of_one_length_are_repeated(args: Any, kwargs: Any, count: int) -> None:
    assert len(list(lists._of_other_counts(Sample(args, kwargs)))) == count


def test_middle_array_is_made_empty_along_each_axis() -> None:
    arrays = [MAKE(3), MAKE((2, 5, 4), dtype="float64"), MAKE(6)]

    found = list(lists._with_empty_member(Sample((7, arrays), {"axis": 0}, "drawn")))

    assert [one.args[1][1].shape for one in found] == [(0, 5, 4), (2, 0, 4), (2, 5, 0)]
    assert [one.label for one in found] == [
        f"drawn, array 1 of the list has shape {shape}" for shape in ((0, 5, 4), (2, 0, 4), (2, 5, 0))
    ]
    for one in found:
        assert (one.args[0], one.kwargs, len(one.args[1])) == (7, {"axis": 0}, 3)
        assert (one.args[1][0], one.args[1][2], one.args[1][1].dtype) == (arrays[0], arrays[2], np.float64)


def test_list_by_name_gets_an_empty_array_too() -> None:
    (found,) = lists._with_empty_member(Sample((7,), {"arrays": [MAKE(3), MAKE(4)], "axis": 0}))

    assert [one.shape for one in found.kwargs["arrays"]] == [(3,), (0,)]
    assert (found.args, found.kwargs["axis"]) == ((7,), 0)


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(([MAKE(3)], [MAKE(3)]), id="two lists"),
        pytest.param((MAKE(3),), id="no list"),
        pytest.param(([],), id="an empty list"),
        pytest.param(([MAKE(3), 2.0],), id="a number in the middle"),
        pytest.param(([MAKE(3), MAKE(())],), id="no axis"),
    ],
)
def test_no_array_of_the_list_is_made_empty(args: Any) -> None:
    assert list(lists._with_empty_member(Sample(args))) == []


# ------------------------------------------------------------------------------------------------ what is found


def test_right_functions_of_lists_pass() -> None:
    assert not check(doubled)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        pytest.param(lambda xp, arrays: doubled(xp, arrays)[:1], "is a list of 1 arrays; expected 2", id="one too few"),
        pytest.param(
            lambda xp, arrays: [*doubled(xp, arrays), arrays[0][:0]], "is a list of 3 arrays; expected 2",
            id="one too many",
        ),
        pytest.param(
            lambda xp, arrays: [arrays[0] * 2, arrays[1].reshape(2, 2) * 2],
            "result 1 of the list has the shape (2, 2); expected (4,)", id="another shape",
        ),
    ],
)  # fmt: skip
def test_another_number_or_shape_of_arrays_is_found(fn: Any, said: str) -> None:
    found = check(fn)

    assert said in found
    assert "0: shapes 3, 4" in found


def test_dtype_of_each_array_is_that_on_the_host() -> None:
    spec = spec_of(lambda xp, arrays: [array * 2 if xp is np else (array * 2).astype("float64") for array in arrays])
    sample = next(spec.draw(1, "float32"))

    lists._check_members(spec, CPU, sample)
    with pytest.raises(AssertionError, match="result 0 of the list is float64; expected float32"):
        lists._check_members(spec, Device("sim"), sample)


def test_dtypes_are_unknown_where_the_function_does_not_run_on_the_host() -> None:
    def elsewhere(xp: Any, arrays: Any) -> Any:
        if xp is np:
            raise RuntimeError("another library")
        return doubled(xp, arrays)

    spec = spec_of(elsewhere, doubled_on_host)
    sample = next(spec.draw(1, "float32"))

    assert lists._dtypes(spec, sample) == []
    assert lists._dtypes(spec_of(doubled), sample) == ["float32", "float32"]
    lists._check_members(spec, Device("sim"), sample)


def test_lists_that_the_reference_refuses_have_no_members() -> None:
    def refusing(arrays: Any) -> Any:
        if len(arrays) == 1:
            raise ValueError("two arrays")
        return doubled(np, arrays)

    single = Sample(([HostArray(np.ones(3, np.float32))],))

    lists._check_members(spec_of(lambda xp, arrays: arrays * 3, refusing), CPU, single)
    with pytest.raises(AssertionError, match="a list of 3 arrays; expected 1"):
        lists._check_members(spec_of(lambda xp, arrays: arrays * 3, doubled_on_host), CPU, single)


@pytest.mark.parametrize("count", [1, 9, 33, 130])
def test_a_fault_of_lists_of_another_length_is_found(count: int) -> None:
    found = check(lambda xp, arrays: [array * (2 + (len(arrays) == count)) for array in arrays])

    assert f"lists of {count}" in found


def test_a_wrong_list_of_another_length_is_found_by_its_members() -> None:
    found = check(lambda xp, arrays: doubled(xp, arrays)[:32])

    assert "the result is a list of 32 arrays; expected 33" in found
    assert "lists of 33" in found


def joined_if_any(xp: Any, arrays: Any) -> Any:
    """The sums of the arrays; an array without elements is left out."""
    return xp.stack([xp.sum(array) for array in arrays if array.size])


def test_an_empty_array_that_is_left_out_is_found() -> None:
    found = check(joined_if_any, lambda arrays: np.stack([np.sum(array) for array in arrays]))

    assert "wrong where one array of a list has no elements: is it left out?" in found
    assert "array 1 of the list has shape (0,)" in found


def test_a_wrong_number_for_an_empty_array_is_found() -> None:
    def sums(xp: Any, arrays: Any) -> Any:
        return xp.stack([xp.sum(array) if array.size else xp.ones((), dtype=array.dtype) for array in arrays])

    assert "no elements: is it left out?" in check(sums, lambda arrays: np.stack([np.sum(array) for array in arrays]))


def test_empty_array_that_the_function_refuses_is_not_required() -> None:
    def sums(xp: Any, arrays: Any) -> Any:
        if not all(array.size for array in arrays):
            raise ValueError("an array has no elements")
        return xp.stack([xp.sum(array) for array in arrays])

    assert not check(sums, lambda arrays: np.stack([np.sum(array) for array in arrays]))


def test_overflow_in_a_list_does_not_warn() -> None:
    samples = lambda make: [Sample(([make.of([1e3, 1.0])],))]  # noqa: E731

    assert not check(
        lambda xp, arrays: [xp.exp(array) for array in arrays],
        lambda arrays: [np.exp(array) for array in arrays],
        samples,
    )
