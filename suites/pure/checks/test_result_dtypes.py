"""Which dtype a result must have, and which is the least precise one of a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, ops
from cuassay.arrays.dtypes import as_dtype
from cuassay.errors import DeviceError
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.result_dtypes import coarsest, floats_of, result_dtype

CPU = Device("cpu")


def arrays(*dtypes: str) -> list[Any]:
    return [np.ones(3, as_dtype(name)) for name in dtypes]


def names(dtypes: Any) -> list[str]:
    return [one.name for one in dtypes]


@pytest.mark.parametrize(
    ("dtypes", "floats"),
    [
        (("float32", "int32", "float16"), ["float32", "float16"]),
        (("bfloat16", "float8_e4m3fn"), ["bfloat16", "float8_e4m3fn"]),
        (("complex64", "bool", "int8"), []),
        ((), []),
    ],
    ids=str,
)
def test_floating_point_arrays_are_those_of_real_numbers(dtypes: tuple[str, ...], floats: list[str]) -> None:
    assert names(one.dtype for one in floats_of(Sample((*arrays(*dtypes), 2.0)))) == floats


def test_floating_point_arrays_are_also_options() -> None:
    (weight,) = arrays("float64")

    assert floats_of(Sample((2.0,), {"weight": weight})) == [weight]


@pytest.mark.parametrize(
    ("dtype", "dtypes", "found"),
    [
        ("float32", ("float16",), "float16"),
        ("float32", ("float64",), "float32"),
        ("float64", ("int8", "bool"), "float64"),
        ("float32", ("float16", "bfloat16", "float64"), "bfloat16"),
        ("int32", ("float64",), "float64"),
        ("int32", ("int8", "bool"), "int32"),
        ("bool", ("complex64",), "complex64"),
        ("int32", ("complex128", "float64"), "complex128"),
        ("complex128", ("complex64",), "complex64"),
        ("complex64", (), "complex64"),
    ],
    ids=str,
)
def test_least_precise_dtype_of_a_call(dtype: str, dtypes: tuple[str, ...], found: str) -> None:
    assert coarsest(Sample(tuple(arrays(*dtypes))), as_dtype(dtype)).name == found


def spec_of(fn: Any, **fields: Any) -> OpSpec:
    return OpSpec(fn=fn, name="f", **{"dtypes": ("float32",), "samples": lambda make: [make(3)], **fields})


def test_result_of_an_op_has_the_dtype_of_its_schema() -> None:
    spec = OpSpec(op=ops.equal, reference=np.equal)

    assert result_dtype(spec, Sample(tuple(arrays("float32", "float32")))) == np.dtype("bool")


def test_declared_dtype_is_the_results() -> None:
    spec = spec_of(lambda xp, a: a.astype("float16"), result_dtype="float16", tolerance=None)

    assert result_dtype(spec, Sample(tuple(arrays("float32")))) == np.dtype("float16")


def test_declared_dtype_is_not_that_of_two_mixed_dtypes() -> None:
    spec = spec_of(lambda xp, a: a, result_dtype="float32")
    mixed = Sample(tuple(arrays("float64")), kind="promotion")

    assert result_dtype(spec, mixed) == np.dtype("float64")
    assert result_dtype(spec, Sample(tuple(arrays("float64")))) == np.dtype("float32")


@pytest.mark.parametrize(
    ("args", "kind", "given"),
    [
        ((*arrays("float32", "int8"),), "values", ["float32", "int8"]),
        ((*arrays("float32"), 2.0), "values", ["float32"]),
        ((*arrays("float16"), 2.0), "python", ["float16", "float16"]),
        ((2, *arrays("float16")), "python", ["float16", "float16"]),
        ((2j, *arrays("float16", "int8")), "python", ["float16", "float16", "int8"]),
        (("mode", *arrays("float16")), "python", ["float16"]),
        ((2, 3.0), "python", []),
    ],
    ids=str,
)
def test_rule_gets_the_dtypes_of_a_call(args: Any, kind: Any, given: list[str]) -> None:
    met: list[str] = []

    def rule(*dtypes: str) -> str:
        met[:] = dtypes
        return "float64"

    spec = spec_of(lambda xp, a: np.asarray(a, "float64"), result_dtype=rule)

    assert result_dtype(spec, Sample(args, kind=kind)) == np.dtype("float64")
    assert met == given


def test_dtype_of_a_function_is_that_of_its_result_on_the_host() -> None:
    sample = Sample(tuple(arrays("float32")))

    assert result_dtype(spec_of(lambda xp, a: a > 0), sample) == np.dtype("bool")
    assert result_dtype(spec_of(lambda xp, a: 2), sample) == np.dtype("int64")


def test_finding_the_dtype_neither_warns_nor_writes_an_input() -> None:
    def fn(xp: Any, a: Any) -> Any:
        result = a / 0 if a.dtype == np.float64 else a * 1
        a[:] = 7
        return result

    sample = Sample(tuple(arrays("float64")))

    with np.errstate(all="raise"):
        assert result_dtype(spec_of(fn), sample) == np.dtype("float64")
    assert sample.args[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("error", [TypeError, ValueError, AttributeError, RuntimeError, DeviceError])
def test_function_that_does_not_run_on_the_host_has_no_dtype(error: type[Exception]) -> None:
    def fn(xp: Any, a: Any) -> Any:
        if a.size == 5:
            raise error("for one device")
        return a

    assert result_dtype(spec_of(fn), Sample((np.ones(5),))) is None
