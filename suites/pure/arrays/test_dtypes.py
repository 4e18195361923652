"""Names, promotion and limits of dtypes, against NumPy where NumPy decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.arrays import dtypes
from cuassay.arrays.dtypes import ALL, COMPLEX, FLOATS, FP8, INTEGERS, as_dtype, dtype_name, promote
from cuassay.core.capability import DTYPE_NAMES
from cuassay.errors import DTypeError

NUMPY_NAMES = [name for name in ALL if name not in (*FP8, "bfloat16")]
NUMBERS = [True, 2, 2.0, 2j]


def test_every_capability_name_is_a_dtype() -> None:
    assert ALL == DTYPE_NAMES
    assert sorted((*dtypes.BOOL, *INTEGERS, *FP8, *FLOATS, *COMPLEX)) == sorted(ALL)


@pytest.mark.parametrize("name", ALL)
def test_names_survive_the_round_trip(name: str) -> None:
    dtype = as_dtype(name)

    assert dtype_name(dtype) == dtype_name(name) == dtype_name(dtype.type) == name


@pytest.mark.parametrize("given_as", [ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), "bfloat16"])
def test_a_dtype_has_one_object(given_as: object) -> None:
    assert as_dtype(given_as) is as_dtype("bfloat16")


@pytest.mark.parametrize(
    "unknown", ["float99", "float128", None, object, "U3", np.dtype("datetime64[s]"), np.dtype(">f4"), 3, [("a", "f4")]]
)
def test_an_unknown_dtype_is_refused_with_what_exists(unknown: object) -> None:
    with pytest.raises(DTypeError, match="give one of bool, int8"):
        as_dtype(unknown)


@pytest.mark.parametrize("name", ["complex32", "complex_half", "chalf"])
def test_complex_half_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(DTypeError, match="NumPy has no such dtype"):
        as_dtype(name)


@pytest.mark.parametrize(("a", "b"), list(product(NUMPY_NAMES, repeat=2)))
def test_promotion_is_numpys_where_numpy_decides(a: str, b: str) -> None:
    assert promote(as_dtype(a), as_dtype(b)) == np.promote_types(a, b)


@given(names=st.lists(st.sampled_from(NUMPY_NAMES), min_size=1, max_size=4), number=st.sampled_from([None, *NUMBERS]))
def test_several_operands_promote_as_numpys_result_type(names: list[str], number: complex | None) -> None:
    operands: list[Any] = [*map(np.dtype, names), *([] if number is None else [number])]

    assert promote(*operands) == np.result_type(*operands)


@pytest.mark.parametrize(("name", "number"), list(product(NUMPY_NAMES, NUMBERS)))
def test_a_number_is_weak_as_numpys(name: str, number: complex) -> None:
    assert promote(number, np.dtype(name)) == np.result_type(np.dtype(name), number)


@given(
    names=st.lists(st.sampled_from([*NUMPY_NAMES, "bfloat16"]), min_size=1, max_size=4),
    numbers=st.lists(st.sampled_from(NUMBERS), max_size=2),
    draw=st.randoms(use_true_random=False),
)
def test_the_order_of_operands_does_not_matter(names: list[str], numbers: list[complex], draw: random.Random) -> None:
    operands: list[Any] = [*map(as_dtype, names), *numbers]
    shuffled = operands.copy()
    draw.shuffle(shuffled)

    assert promote(*shuffled) == promote(*operands)


@pytest.mark.parametrize("name", [name for name in NUMPY_NAMES if name != "float16"])
def test_bfloat16_promotes_as_float16_does(name: str) -> None:
    with_float16 = np.promote_types("float16", name).name

    assert dtype_name(promote(as_dtype("bfloat16"), as_dtype(name))) == with_float16.replace("float16", "bfloat16")


def test_the_two_halves_meet_in_float32() -> None:
    assert promote(as_dtype("float16"), as_dtype("bfloat16")) == np.float32


@pytest.mark.parametrize(("name", "number"), list(product(["bfloat16", *FP8], [True, 2, 2.0])))
def test_python_numbers_leave_narrow_floats_as_they_are(name: str, number: float) -> None:
    assert promote(as_dtype(name), number) is as_dtype(name)
    assert promote(number, as_dtype(name)) is as_dtype(name)


@pytest.mark.parametrize(("fp8", "other"), [(fp8, other) for fp8, other in product(FP8, ALL) if fp8 != other])
def test_fp8_promotes_with_nothing_else(fp8: str, other: str) -> None:
    with pytest.raises(DTypeError, match="cast one explicitly"):
        promote(as_dtype(fp8), as_dtype(other))


@pytest.mark.parametrize("fp8", FP8)
def test_fp8_promotes_with_itself_but_not_with_complex_numbers(fp8: str) -> None:
    assert promote(as_dtype(fp8), as_dtype(fp8)) is as_dtype(fp8)
    with pytest.raises(DTypeError, match="cast the array first"):
        promote(as_dtype(fp8), 1j)


def test_numbers_alone_do_not_promote() -> None:
    with pytest.raises(DTypeError, match="only Python numbers"):
        promote(1, 2.0)


def test_a_dtype_of_foreign_byte_order_does_not_promote() -> None:
    with pytest.raises(DTypeError, match="not a dtype that cuassay knows"):
        promote(np.dtype(">f4"), np.dtype(">f4"))


@pytest.mark.parametrize(
    ("name", "compute", "reference"),
    [
        ("bool", "bool", "bool"),
        ("uint16", "uint16", "uint16"),
        ("float8_e5m2", "float32", "float64"),
        ("bfloat16", "float32", "float64"),
        ("float16", "float32", "float64"),
        ("float32", "float32", "float64"),
        ("float64", "float64", "float64"),
        ("complex64", "complex64", "complex128"),
    ],
)
def test_computing_and_reference_dtypes(name: str, compute: str, reference: str) -> None:
    assert dtype_name(dtypes.compute_dtype(name)) == compute
    assert dtype_name(dtypes.reference_dtype(as_dtype(name))) == reference


@pytest.mark.parametrize(
    ("name", "epsilon", "largest", "smallest"),
    [
        ("float8_e4m3fn", 2.0**-3, 448.0, 2.0**-9),
        ("float8_e5m2", 2.0**-2, 57344.0, 2.0**-16),
        ("bfloat16", 2.0**-7, (2 - 2.0**-7) * 2.0**127, 2.0**-133),
        ("float16", 2.0**-10, 65504.0, 2.0**-24),
        ("float32", 2.0**-23, (2 - 2.0**-23) * 2.0**127, 2.0**-149),
        ("float64", 2.0**-52, (2 - 2.0**-52) * 2.0**1023, 2.0**-1074),
        ("complex64", 2.0**-23, (2 - 2.0**-23) * 2.0**127, 2.0**-149),
    ],
)
def test_limits_are_those_of_the_format(name: str, epsilon: float, largest: float, smallest: float) -> None:
    limits = dtypes.epsilon(name), dtypes.largest(name), dtypes.smallest_subnormal(name)

    assert limits == (epsilon, largest, smallest)
    assert {type(limit) for limit in limits} == {float}


@pytest.mark.parametrize("limit", [dtypes.epsilon, dtypes.largest, dtypes.smallest_subnormal], ids=lambda f: f.__name__)
def test_integers_have_no_floating_point_limits(limit: Callable[[str], float]) -> None:
    with pytest.raises(DTypeError, match="int32 is not a floating-point dtype"):
        limit("int32")
