"""Samples: the same numbers everywhere, in every layout."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay import ops
from cuassay.arrays.dtypes import epsilon, largest
from cuassay.core.capability import DTYPE_NAMES
from cuassay.errors import SpecError
from cuassay.testing import Sample, samples
from cuassay.testing.default_samples import _shape_label, binary, default_samples, required_names, unary
from cuassay.testing.samples import (
    BENCH_TILE,
    LAYOUTS,
    MARGIN,
    BenchSamples,
    HostArray,
    Samples,
    is_permutation,
    is_sorted,
    normalized,
)

SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4)]


def test_the_numbers_of_a_seed_never_change() -> None:
    values = Samples(2026, "float32", "add")((1000,)).values

    digest = hashlib.sha256(values.tobytes()).hexdigest()[:16]
    assert digest == "6ce97d73b5d1b7c3"


@pytest.mark.parametrize(
    "other", [Samples(2027, "float32", "add"), Samples(2026, "float32", "mul")], ids=["seed", "op"]
)
def test_another_seed_or_op_gives_other_numbers(other: Samples) -> None:
    assert (other(100).values != Samples(2026, "float32", "add")(100).values).any()


@pytest.mark.parametrize("dtype", DTYPE_NAMES)
def test_drawn_numbers_stay_in_their_range(dtype: str) -> None:
    values = Samples(1, dtype)((1000,), low=-2, high=2).values

    assert values.dtype.name == dtype
    assert (np.abs(values.astype(np.complex128)) <= 2 * 2**0.5).all()
    assert len(np.unique(values.astype(np.complex128))) > 1


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("uint64", 0, 2**64 - 1),
        ("uint64", 2**64 - 9, 2**64 - 1),
        ("int64", -(2**63), 2**63 - 1),
        ("int64", 2**62, 2**62 + 7),
    ],
    ids=["uint64", "end of uint64", "int64", "within int64"],
)
@pytest.mark.parametrize("shape", [1000, (10, 100)], ids=str)
def test_integers_beyond_float64_are_drawn_from_all_of_their_range(dtype: str, low: int, high: int, shape: Any) -> None:
    values = Samples(1, dtype)(shape, low=low, high=high).values

    assert low <= int(values.min()) < low + (high - low) // 4
    assert high - (high - low) // 4 < int(values.max()) <= high
    assert len(np.unique(values)) >= min(high - low + 1, 990)


def test_one_integer_beyond_float64_is_drawn() -> None:
    assert Samples(1, "uint64")((), low=2**64 - 1, high=2**64 - 1).values == 2**64 - 1


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("span", [{}, {"low": -2, "high": 2}], ids=["free", "range"])
def test_real_and_imaginary_parts_are_drawn_apart(dtype: str, span: dict[str, float]) -> None:
    values = Samples(1, dtype)((100,), **span).values

    assert (values.real != values.imag).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_holds_the_same_numbers(layout: str, shape: tuple[int, ...]) -> None:
    array = Samples(1, "float32")(shape).laid_out(layout)

    view = LAYOUTS[layout].view(array.base(), shape)

    np.testing.assert_array_equal(view, array.values)
    assert np.shares_memory(view, view.base if view.base is not None else view)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("contiguous", "offset", "inside")])
def test_a_layout_is_not_contiguous(layout: str) -> None:
    array = Samples(1, "float32")((3, 5)).laid_out(layout)

    assert not LAYOUTS[layout].view(array.base(), (3, 5)).flags.c_contiguous


def test_an_offset_array_begins_three_elements_into_its_memory() -> None:
    base = Samples(1, "float32")((3, 5)).laid_out("offset").base()

    assert LAYOUTS["offset"].view(base, (3, 5)).ctypes.data - base.ctypes.data == 3 * base.itemsize


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_survives_the_way_to_a_device(layout: str, device: str) -> None:
    array = Samples(1, "float32")((3, 5)).laid_out(layout)

    there, here = array.on(device), LAYOUTS[layout].view(array.base(), (3, 5))

    assert there.strides == here.strides


@given(st.sampled_from([unary, binary]), st.sampled_from(["bool", "int8", "float8_e4m3fn", "bfloat16", "complex64"]))
def test_two_draws_are_equal(generator: object, dtype: str) -> None:
    first, second = (list(generator(Samples(3, dtype))) for _ in range(2))

    assert [s.label for s in first] == [s.label for s in second]
    assert all(a.values.tobytes() == b.values.tobytes() for s, t in zip(first, second, strict=True)
               for a, b in zip(s.args, t.args, strict=True) if isinstance(a, HostArray))  # fmt: skip


def test_arrays_and_tuples_become_labelled_samples() -> None:
    make = Samples(1, "float32")

    drawn = list(normalized([make((2, 3)), (make(4), make(5), 2.0), Sample((make(()),), {"axis": 0})]))

    assert [sample.label for sample in drawn] == ["0: shape 2x3", "1: shapes 4, 5", "2: shape 0-d, axis=0"]


def test_an_unknown_kind_of_sample_is_refused() -> None:
    with pytest.raises(SpecError, match="kind 'strange'"):
        list(normalized([Sample((1,), kind="strange")]))  # type: ignore[arg-type]


def test_a_sample_that_is_given_an_array_says_to_give_a_tuple() -> None:
    with pytest.raises(
        SpecError, match=r"as a tuple; got HostArray\(\(4,\), float32, contiguous\); write Sample\(\(a, b\)\)"
    ):
        Sample(Samples(1, "float32")(4))  # type: ignore[arg-type]


def test_a_sample_is_called_by_its_arrays_those_in_lists_too() -> None:
    make = Samples(1, "float32")
    drawn = [([make(3), make((2, 5))],), (make(()), 2.0), Sample((make(4),), {"axis": 0})]

    labels = [sample.label for sample in normalized(drawn)]

    assert labels == ["0: shapes 3, 2x5", "1: shape 0-d", "2: shape 4, axis=0"]


def test_a_large_array_of_a_benchmark_repeats_its_first_numbers() -> None:
    values = BenchSamples(2026, "float32", "add")((2, BENCH_TILE)).values

    assert (values[0] == values[1]).all()
    assert (values[0] == Samples(2026, "float32", "add")(BENCH_TILE).values).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_small_array_of_a_benchmark_has_the_numbers_of_a_test(dtype: str) -> None:
    small, same = (made(2026, dtype, "add")((3, 5)).values for made in (BenchSamples, Samples))

    assert (small.dtype, (small == same).all()) == (same.dtype, True)


def test_large_integers_are_drawn_from_all_of_their_range() -> None:
    values = Samples(1, "int64")((1000,), low=-(2**40), high=2**40).values

    assert values.dtype == np.int64
    assert (values.min() < -(2**39), values.max() > 2**39) == (True, True)
    assert (values.min() >= -(2**40), values.max() <= 2**40) == (True, True)


@pytest.mark.parametrize(
    ("array", "expected"),
    [([1, 2, 2], True), ([1, 3, 2], False), ([1, 2], False), ([[1, 2, 3], [3, 2, 1]], False), (5, False)],
    ids=["sorted", "not", "short", "one of two rows", "without axes"],
)
def test_numbers_in_order_along_the_last_axis_are_sorted(array: Any, expected: bool) -> None:
    assert is_sorted(np.asarray(array)) is expected


@pytest.mark.parametrize("largest", [None, False], ids=["by default", "without"])
def test_extremal_numbers_hold_the_largest_ones_unless_they_are_not_wanted(largest: bool | None) -> None:
    samples = Samples(1, "float32")
    values = (samples.extremal() if largest is None else samples.extremal(largest=largest)).values
    most = np.abs(values[np.isfinite(values)]).max()

    assert bool(most == np.finfo(np.float32).max) == (largest is None)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_far_numbers_are_twice_as_far_as_exponentials_reach(dtype: str) -> None:
    values = Samples(1, dtype).far().values.astype(np.float64)
    reach = np.log(largest(dtype))

    assert values[1:-1].tolist() == [-1, 0, 1]
    np.testing.assert_allclose(values[[0, -1]], [-2 * reach, 2 * reach], rtol=2 * epsilon(dtype))


@pytest.mark.parametrize("generator", [unary, binary], ids=["unary", "binary"])
def test_wide_integers_have_both_signs_and_more_bits_than_float32_holds(generator: Any) -> None:
    (wide,) = (sample for sample in generator(Samples(1, "int64")) if "26 bits" in sample.label)

    for values in (array.values for array in wide.args):
        assert (values.min() < -(2**24), values.max() > 2**24) == (True, True)
        assert np.abs(values).max() <= 2**25
        assert (values != values.astype(np.float32)).any()
    assert not [sample for sample in generator(Samples(1, "float32")) if "26 bits" in sample.label]


@pytest.mark.parametrize(
    ("array", "expected"),
    [([2, 0, 1], True), ([0, 1, 2], False), ([1, 0], False), ([3, 1, 2], False), ([[2, 0, 1]], False),
     ([2.0, 0, 1], False), ([0, 0, 1, 0], False)],
    ids=["other order", "in order", "two", "from 1", "rows", "floats", "twice"],
)  # fmt: skip
def test_a_permutation_is_each_place_once_in_another_order(array: Any, expected: bool) -> None:
    assert is_permutation(np.asarray(array)) is expected


@pytest.mark.parametrize(
    ("dtype", "low", "high", "ends"),
    [
        ("int32", -2, 2, (-2, 2)),
        ("int8", None, None, (-3, 3)),
        ("uint8", None, None, (0, 3)),
        ("int8", -900, 900, (-128, 127)),
    ],
)
def test_integers_include_both_ends_of_their_range(
    dtype: str, low: float | None, high: float | None, ends: tuple[int, int]
) -> None:
    values = Samples(1, dtype)(5000, low=low, high=high).values

    assert (values.min(), values.max()) == ends


@pytest.mark.parametrize(
    ("options", "span", "is_free"),
    [
        ({}, None, True),
        ({"low": 1}, (1, 3.0), False),
        ({"high": 1}, (-3.0, 1), False),
        ({"low": 2, "high": 2}, (2, 2), False),
    ],
    ids=str,
)
def test_an_array_knows_the_range_that_was_asked_for(options: Any, span: Any, is_free: bool) -> None:
    array = Samples(1, "float32")(9, **options)

    assert (array.span, array.is_free, array.layout) == (span, is_free, "contiguous")


@pytest.mark.parametrize(
    ("dtype", "poison"), [("bool", True), ("uint8", 255), ("int16", 2**15 - 1), ("float16", 65_504), ("float32", None)]
)
def test_memory_around_a_view_holds_the_largest_number(dtype: str, poison: Any) -> None:
    base = Samples(1, dtype).full(4, 0).laid_out("inside").base()

    assert base.size == 4 + 2 * MARGIN
    assert not base[MARGIN:-MARGIN].any()
    assert (base[:MARGIN] == (np.finfo(np.float32).max if poison is None else poison)).all()


def test_only_the_first_array_is_laid_out_where_that_is_asked_for() -> None:
    make = Samples(1, "float32")
    sample = Sample((2.0, make((2, 3)), np.ones((2, 3))), {"weight": make(3)}, label="drawn")
    all_of_it, first = sample.laid_out("strided"), sample.laid_out("strided", only_first=True)

    assert [one.layout for one in (*all_of_it.args[1:], all_of_it.kwargs["weight"])] == ["strided"] * 3
    assert {getattr(first.args[2], "layout", ""), first.kwargs["weight"].layout} == {"", "contiguous"}
    assert (first.args[0], first.args[1].layout, first.label) == (2.0, "strided", "drawn, strided")


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
def test_extremal_integers_are_the_ends_and_their_neighbours(dtype: str) -> None:
    limits = np.iinfo(dtype)

    values = Samples(2026, dtype, "add").extremal().values

    ends = [limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max]
    assert set(values.ravel().tolist()) == set(ends)


def test_a_function_may_write_into_copies_of_a_sample() -> None:
    sample = Sample((np.ones(3), [Samples(1, "float32")(3)]), {"weight": np.ones(3)})
    before = [one.tolist() for one in (sample.host()[0][0], sample.host()[0][1][0], sample.host()[1]["weight"])]

    (first, (member,)), named = sample.copied()
    for one in (first, member, named["weight"]):
        one[...] = 7

    assert [one.tolist() for one in (sample.host()[0][0], sample.host()[0][1][0], sample.host()[1]["weight"])] == before


def test_numbers_of_a_transposed_array_are_laid_out_from_c_order() -> None:
    a = np.arange(6.0).reshape(2, 3).T

    (found,) = Sample((a,)).laid_out("strided").host()[0]

    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, a)


def test_extremal_numbers_may_be_of_another_dtype() -> None:
    assert Samples(1, "float32").extremal(dtype="int8").dtype == np.int8


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([1, 2], False), ([1, 2, 2], True), ([1, 3, 2], False), ([[1, 2, 3], [2, 1, 3]], False), (5, False)],
)
def test_three_numbers_in_order_are_sorted(numbers: Any, expected: bool) -> None:
    assert samples.is_sorted(np.array(numbers)) is expected


def test_sizes_are_counted_in_64_bits() -> None:
    assert samples._size((2**17, 2**17)) == 2**34


def test_numbers_of_a_host_array_are_an_array() -> None:
    assert isinstance(samples.HostArray([1.0, 2.0]).values, np.ndarray)  # type: ignore[arg-type]


def test_an_unknown_option_of_make_is_refused() -> None:
    with pytest.raises(SpecError, match="hihg"):
        samples.Samples(1, "float32")(3, hihg=2)


def test_the_second_of_two_far_arrays_is_the_first_one_turned() -> None:
    make = samples.Samples(1, "float32")
    drawn = default_samples("f", lambda xp, a, b: a + b, None, has_reference=True)(make)
    (far,) = (sample for sample in drawn if sample.label == "exp overflows")
    one, other = (given.values for given in far.args)

    assert one.tolist() == other[::-1].tolist() != other.tolist()
    assert other.flags.c_contiguous


def test_an_extent_next_to_a_power_of_two_is_named_from_31_on() -> None:
    labels = {_shape_label((extent,)) for extent in (30, 31, 32, 129)}

    assert labels == {"shape 30", "shape 31, one below 32", "shape 32, exactly 32", "shape 129, one above 128"}


def test_names_of_parameters_that_a_call_must_give_by_place() -> None:
    def fn(xp: Any, a: Any, /, b: Any, scale: float = 1, *, axis: int, **rest: Any) -> None: ...

    found = required_names(list(inspect.signature(fn).parameters.values()))

    assert found == ["xp", "a", "b"]


@pytest.mark.parametrize(("dtype", "number"), [("int32", 2), ("float32", 1.1), ("bfloat16", 1.1)])
def test_a_python_number_next_to_an_array_is_of_its_kind(dtype: str, number: float) -> None:
    drawn = [sample for sample in binary(samples.Samples(1, dtype), largest=False) if sample.kind == "python"]

    assert {one for sample in drawn for one in sample.args if not hasattr(one, "values")} == {number}


def test_numbers_whose_exponential_overflows_are_for_functions_with_a_reference() -> None:
    def labels(fn: Any, op: Any, *, has_reference: bool) -> set[str]:
        drawn = default_samples("f", fn, op, has_reference=has_reference)(samples.Samples(1, "float32"))
        return {sample.label for sample in drawn}

    fn = lambda xp, a: a  # noqa: E731
    assert "exp overflows" in labels(fn, None, has_reference=True)
    assert "exp overflows" not in labels(fn, None, has_reference=False)
    assert "exp overflows" not in labels(None, ops.exp, has_reference=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "bool"])
def test_edges_of_a_dtype_are_in_it(dtype: str) -> None:
    assert samples.Samples(1, dtype).extremal().values.dtype.name == dtype
