"""Calls with arrays of two dtypes, for functions whose `result_dtype` says which dtype the result then has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, ops
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.promoted import _coarser, _mixed, check_promoted, says_what_promotes
from cuassay.testing.samples import HostArray

CPU = Device("cpu")
WIDE = ("float32", "float64")


def promoted(*names: str) -> str:
    return np.result_type(*names).name


def of_the_first(one: str, *others: str) -> str:
    return one


def of_one_dtype(one: str, other: str) -> str:
    """The rule of a function that is not meant for two dtypes."""
    if one != other:
        raise ValueError("one dtype")
    return one


def of_floats(one: str, other: str) -> str:
    """The rule of a function that is not meant for integers next to floats."""
    return one if one == other else {("float32", "float64"): "float64", ("float64", "float32"): "float64"}[one, other]


def added(xp: Any, a: Any, b: Any) -> Any:
    return a + b


def spec_of(fn: Any = added, **fields: Any) -> OpSpec:
    fields = {
        "dtypes": WIDE,
        "result_dtype": promoted,
        "samples": lambda make: [(make((3, 5)), make((3, 5)))],
        **fields,
    }
    return OpSpec(fn=fn, name="given", reference=lambda a, b: a + b, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"dtypes": ("int8", "int64")}, True),
        ({"result_dtype": "float64"}, False),
        ({"result_dtype": None}, False),
        ({"result_dtype": of_the_first}, False),
        ({"result_dtype": of_one_dtype}, False),
        ({"result_dtype": of_floats, "dtypes": ("int32", *WIDE)}, True),
        ({"dtypes": ("float32",)}, False),
        ({"dtypes": ("float16", "float32")}, False),
    ],
    ids=[
        "floats",
        "integers",
        "one dtype for all",
        "no rule",
        "the first",
        "a rule for one dtype",
        "a rule for some dtypes",
        "one dtype",
        "float16",
    ],
)
def test_rule_that_is_the_same_in_either_order_says_what_promotes(fields: dict[str, Any], expected: bool) -> None:
    spec = spec_of(**fields)

    assert says_what_promotes(spec) is expected
    assert CHECKS["promotion"].applies(spec) is expected


def test_op_has_its_own_samples_of_two_dtypes() -> None:
    assert not says_what_promotes(OpSpec(op=ops.add, reference=lambda a, b: a + b))


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_promoted_result_passes(dtype: str, device: str) -> None:
    CHECKS["promotion"](spec_of(dtypes=("int32", *WIDE)), device, np.dtype(dtype))


def in_the_first(xp: Any, a: Any, b: Any) -> Any:
    return (a + b).astype(a.dtype)


def in_the_second(xp: Any, a: Any, b: Any) -> Any:
    return (a + b).astype(b.dtype)


def without_fractions(xp: Any, a: Any, b: Any) -> Any:
    """The second array in the first one's dtype, in a result of the right dtype."""
    return (a + b.astype(a.dtype)).astype(np.result_type(a, b))


@pytest.mark.parametrize(
    ("fn", "dtypes", "message"),
    [
        (in_the_first, ("float32", "float64"), "dtype is float32"),
        (in_the_second, ("float64", "float32"), "dtype is float32"),
        (without_fractions, ("int32", "float64"), "out of tolerance"),
    ],
)
def test_result_in_one_of_two_dtypes_is_found(fn: Any, dtypes: tuple[str, str], message: str) -> None:
    spec = spec_of(fn, dtypes=dtypes)

    with pytest.raises(AssertionError, match=message) as caught:
        CHECKS["promotion"](spec, CPU, np.dtype(dtypes[0]))
    assert f"the second array in {dtypes[1]}" in str(caught.value)


def tried(dtype: str, **fields: Any) -> set[tuple[str, str]]:
    """The pairs of dtypes that the function gets on the device, and on the host."""
    met = set()

    def noting(xp: Any, a: Any, b: Any) -> Any:
        met.add((a.dtype.name, b.dtype.name))
        return a + b

    spec = spec_of(noting, **fields)
    met.clear()
    check_promoted(spec, CPU, np.dtype(dtype))
    return met


def test_first_array_is_in_the_dtype_under_test_and_the_second_in_each_other_one() -> None:
    dtypes = ("int16", "float16", "float32", "float64")

    assert tried("float32", dtypes=dtypes) == {("float32", "int16"), ("float32", "float64")}


def test_largest_call_of_at_most_4096_elements_is_tried() -> None:
    sizes: list[int] = []

    def noting(xp: Any, a: Any, b: Any) -> Any:
        if a.dtype != b.dtype:
            sizes.append(a.size + b.size)
        return a + b

    samples = lambda make: [(make(count), make(count)) for count in (4, 2048, 2049)]  # noqa: E731
    check_promoted(spec_of(noting, samples=samples), CPU, np.dtype("float32"))

    assert set(sizes) == {4096}


def test_dtype_that_does_not_run_is_not_mixed() -> None:
    assert tried("float32", dtypes=("int16", *WIDE), unclaimed={"cpu": ("float64",)}) == {("float32", "int16")}


def test_two_dtypes_that_the_function_rejects_are_not_compared() -> None:
    def picky(xp: Any, a: Any, b: Any) -> Any:
        if a.dtype != b.dtype:
            raise TypeError("one dtype")
        return a + b

    check_promoted(spec_of(picky), CPU, np.dtype("float32"))


@pytest.mark.parametrize(
    ("dtype", "other", "expected"),
    [("int32", "float32", [1.25, 2.25]), ("int32", "int64", [1, 2]), ("float32", "float64", [1, 2]),
     ("float64", "int8", [1, 2])],
)  # fmt: skip
def test_second_array_gets_the_other_dtype_and_fractions_if_it_alone_is_of_floats(
    dtype: str, other: str, expected: list[float]
) -> None:
    first, second = (HostArray(np.array([1, 2], dtype)) for _ in range(2))
    mixed = _mixed(Sample((first, 3.0, second), label="drawn"), np.dtype(dtype), np.dtype(other))

    assert mixed is not None
    assert [one.dtype.name for one in mixed.args[::2]] == [dtype, other]
    assert mixed.args[2].values.tolist() == expected
    assert mixed.args[0].values.tolist() == [1, 2]
    assert (mixed.args[1], mixed.label) == (3.0, f"drawn, the second array in {other}")


@pytest.mark.parametrize(
    "dtypes", [["float32"], ["float32"] * 3, ["float32", "int32"], ["int32", "float32"]], ids="-".join
)
def test_other_calls_than_those_of_two_arrays_of_the_dtype_are_not_mixed(dtypes: list[str]) -> None:
    sample = Sample(tuple(HostArray(np.ones(2, name)) for name in dtypes))

    assert _mixed(sample, np.dtype("float32"), np.dtype("float64")) is None


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [
        ("float32", "float64", "float32"),
        ("float64", "float32", "float32"),
        ("float64", "int8", "float64"),
        ("int8", "float64", "float64"),
        ("int16", "int8", "int16"),
    ],
)
def test_values_are_exact_to_the_coarser_of_two_floating_point_dtypes(name: str, other: str, expected: str) -> None:
    assert _coarser(name, other).name == expected


def test_the_largest_sample_of_at_most_4096_elements_is_mixed() -> None:
    """Both arrays count."""
    met: list[int] = []

    def fn(xp: Any, a: Any, b: Any) -> Any:
        met.append(a.size)
        return a + b

    spec = spec_of(fn, samples=lambda make: [(make(size), make(size)) for size in (7, 2048, 2049)])
    met.clear()
    check_promoted(spec, CPU, np.dtype("float32"))

    assert set(met) == {2048}
