"""Which integers are tried, when their sums wrap around in the reference, and which wrong functions of them fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import integers
from cuassay.testing.generated.integers import (
    check_default_integers,
    check_given_integers,
    in_64_bits,
    wraps_in_reference,
)
from cuassay.testing.samples import HostArray, Samples

CPU = Device("cpu")


def doubled(a: Any) -> Any:
    return a + a


def refusing_few(a: Any) -> Any:
    if a.size < 3:
        raise ValueError("give three numbers or more")
    return a * 1


@pytest.mark.parametrize(
    ("number", "dtype", "reference", "wraps"),
    [
        pytest.param(100, "int8", doubled, True, id="signed"),
        pytest.param(63, "int8", doubled, False, id="small"),
        pytest.param(200, "uint8", doubled, False, id="unsigned"),
        pytest.param(2**62, "int64", doubled, False, id="64 bits"),
        pytest.param(1, "int8", refusing_few, True, id="refused"),
        pytest.param(1, "int8", lambda a: np.full(2, np.nan), False, id="NaN"),
    ],
)
def test_signed_integers_wrap_where_64_bits_give_another_result(
    number: int, dtype: str, reference: Callable[[Any], Any], wraps: bool
) -> None:
    spec = OpSpec(
        fn=lambda xp, a: reference(a), reference=reference, name="f", dtypes=(dtype,), samples=lambda make: [make(4)]
    )

    assert wraps_in_reference(spec, Sample((np.array([number, 1], dtype),))) is wraps


def spec_of(fn: Callable[..., Any], reference: Any, dtype: str, samples: Any = None, **options: Any) -> OpSpec:
    return OpSpec(fn=lambda xp, a: fn(a), reference=reference, name="f", dtypes=(dtype,), samples=samples, **options)


def chance() -> np.random.Generator:
    return np.random.default_rng(3)


def test_integers_of_the_whole_range_have_its_ends() -> None:
    drawn = integers._of_whole_range((5, 5), np.dtype("int8"), chance())

    assert (drawn.shape, drawn.dtype) == ((5, 5), np.int8)
    assert {-128, 127, -127, 126, 0, 1} <= set(drawn.reshape(-1).tolist())
    assert sorted(integers._of_whole_range((3,), np.dtype("uint8"), chance()).tolist()) == [0, 1, 255]


@pytest.mark.parametrize(
    ("dtype", "ends"),
    [
        ("int8", (-128, 127)),
        ("uint8", (0, 255)),
        ("int32", (-(2**31), 2**31 - 1)),
        ("int64", (-(2**61), 2**61 - 1)),
        ("uint64", (0, 2**62 - 1)),
    ],
)
def test_sums_of_two_integers_of_64_bits_stay_in_range(dtype: str, ends: tuple[int, int]) -> None:
    assert integers._ends(dtype) == ends


def test_integers_are_widened_and_other_arrays_are_not() -> None:
    given = (np.ones(2, np.int8), np.ones(2, np.float32), np.ones(2, np.bool_), 3)
    wide = in_64_bits(Sample(given, {"weights": np.ones(2, np.uint16)}, label="drawn"))

    assert [one.dtype.name for one in wide.args[:3]] == ["int64", "float32", "bool"]
    assert (wide.args[3], wide.kwargs["weights"].dtype.name, wide.label) == (3, "int64", "drawn")


# ------------------------------------------------------------------------------------------------ default samples


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("end", [0, 1])
def test_both_ends_of_a_narrow_dtype_are_tried(dtype: str, end: int) -> None:
    limits = np.iinfo(dtype)
    number = (limits.min, limits.max)[end]
    wrong = spec_of(lambda a: a + (a == number), lambda a: a * 1, dtype)

    assert not failure(check_default_integers, spec_of(lambda a: a * 1, lambda a: a * 1, dtype), CPU, np.dtype(dtype))
    assert failure(check_default_integers, wrong, CPU, np.dtype(dtype))


@pytest.mark.parametrize(
    ("fn", "reference", "dtype", "is_found"),
    [
        pytest.param(lambda a: (a + a) // 2, lambda a: (a + a) // 2, "int8", True, id="overflow"),
        pytest.param(lambda a: (a + a) // 2, None, "int8", True, id="overflow without a reference"),
        pytest.param(lambda a: (a + a) // 2, None, "uint8", False, id="a hash"),
        pytest.param(lambda a: (a + a) // 2, lambda a: a * 1, "uint8", True, id="overflow of unsigned integers"),
    ],
)
def test_overflow_of_a_step_fails(fn: Any, reference: Any, dtype: str, is_found: bool) -> None:
    found = failure(check_default_integers, spec_of(fn, reference, dtype), CPU, np.dtype(dtype))

    assert bool(found) is is_found
    assert not found or "integers over the whole range of the dtype" in found


@pytest.mark.parametrize(
    ("fn", "dtype"),
    [
        pytest.param(lambda a: np.maximum(a, -1000), "int64", id="negative ones"),
        pytest.param(lambda a: np.minimum(a, 2**60 + 1), "int64", id="large ones"),
        pytest.param(lambda a: a.astype(np.float64).astype(np.int64), "int64", id="through float64"),
        pytest.param(lambda a: np.where(a == 10**18, 0, a), "int64", id="a power of ten"),
        pytest.param(lambda a: np.where((a > 2**50) & (a & (a + 1) == 0), 0, a), "int64", id="next to a power of two"),
        pytest.param(
            lambda a: a.astype(np.float64).astype(np.uint64) if a.dtype == np.uint64 else a * 1, "uint64",
            id="unsigned through float64",
        ),
    ],
)  # fmt: skip
def test_integers_of_62_bits_are_tried(fn: Any, dtype: str) -> None:
    found = failure(check_default_integers, spec_of(fn, lambda a: a * 1, dtype), CPU, np.dtype(dtype))

    assert "integers of 62 bits" in found


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_a_right_function_of_integers_of_62_bits_passes(dtype: str) -> None:
    def half_sum(a: Any, b: Any) -> Any:
        return (a + b) // 2

    spec = OpSpec(fn=lambda xp, a, b: half_sum(a, b), reference=half_sum, name="mean", dtypes=(dtype,))

    assert not failure(check_default_integers, spec, CPU, np.dtype(dtype))


def test_integers_of_62_bits_are_not_tried_without_a_reference() -> None:
    spec = spec_of(lambda a: a.astype(np.float64).astype(np.int64), None, "int64")

    assert not failure(check_default_integers, spec, CPU, np.dtype("int64"))


def test_squares_powers_and_their_neighbours_are_edges() -> None:
    edges = integers._edges().tolist()

    assert {9, 10, 11, 10**18 - 1, 10**18, 10**18 + 1, 1, 2, 3, 2**60 - 1, 2**60, 2**60 + 1} <= set(edges)
    assert edges[:3] == [10**18 - 1, 10**18, 10**18 + 1]
    roots = edges[3 * 78 + 1 :: 3]
    assert len(roots) == 64
    assert all(2**26 <= round(one**0.5) < 2**30 and round(one**0.5) ** 2 == one for one in roots)


# ------------------------------------------------------------------------------------------------ given samples


MAKE8 = Samples(1, "int8")


def ends_tried(*spans: tuple[int, int]) -> list[Any]:
    """The numbers of each call at the ends of ranges; a list of numbers for an array with several."""
    like = Sample(tuple(MAKE8(9, low=low, high=high) for low, high in spans), label="drawn")
    sample = Sample(tuple(HostArray(one.values.copy(), span=one.span) for one in like.args), label="drawn")
    return [[sorted(set(one.values.tolist())) for one in call.args] for call in integers._of_ends(sample, like)]


def test_one_array_is_tried_near_each_end_and_at_each_end() -> None:
    low, high, *ends = ends_tried((-80, 80))

    assert low[0][0] >= -80
    assert low[0][-1] <= -60
    assert len(low[0]) > 2
    assert high[0][0] >= 60
    assert high[0][-1] <= 80
    assert len(high[0]) > 2
    assert ends == [[[-80]], [[80]]]


def test_two_arrays_are_tried_at_their_ends_alone_and_together() -> None:
    (low_first, low_second), _, *ends = ends_tried((-80, 80), (8, 88))

    assert low_first[-1] <= -60
    assert low_second[-1] <= 18
    alone = [one for one in ends if sum(len(numbers) == 1 for numbers in one) == 1]
    together = [one for one in ends if one not in alone]
    assert [one[0] if len(one[0]) == 1 else one[1] for one in alone] == [[-80], [80], [8], [88]]
    assert together == [[[-80], [8]], [[-80], [88]], [[80], [8]], [[80], [88]]]


def test_at_most_eight_ends_are_combined() -> None:
    calls = ends_tried(*[(-80, 80)] * 4)

    assert len(calls) == 2 + 8 + 8


@pytest.mark.parametrize("number", [-100, 100, 32, -33, 99, 81])
def test_a_fault_at_an_end_or_a_step_of_a_range_is_found(number: int) -> None:
    def wrong(a: Any) -> Any:
        return (a + (a == number)).astype(a.dtype)

    def samples(make: Any) -> Any:
        return [make.of(range(-20, 20)), make(40, low=-100, high=100)]

    right, faulty = (spec_of(fn, lambda a: a * 1, "int8", samples) for fn in (lambda a: a * 1, wrong))
    drawn = MAKE8(40, low=-100, high=100)
    like = Sample((HostArray(np.where(drawn.values == number, 5, drawn.values).astype(np.int8), span=drawn.span),))

    assert not failure(integers._check_ranges, right, CPU, np.dtype("int8"), like, chance())
    found = failure(integers._check_ranges, faulty, CPU, np.dtype("int8"), like, chance())
    assert bool(found) is (number != 81)
    assert not found or found.startswith("right for the sample's own numbers, wrong for others")


@pytest.mark.parametrize(
    ("given", "is_filled"),
    [
        pytest.param(MAKE8(9, low=-32, high=32), True, id="of 64 steps"),
        pytest.param(MAKE8(9, low=-32, high=31), False, id="of 63 steps"),
        pytest.param(MAKE8(9), False, id="free"),
        pytest.param(MAKE8(1, low=-90, high=90), False, id="one number"),
        pytest.param(MAKE8(2, low=-90, high=90), True, id="two numbers"),
        pytest.param(HostArray(np.arange(9, dtype=np.int8), span=(0, 90)), False, id="sorted"),
        pytest.param(Samples(1, "int16")(9, low=-90, high=90), False, id="another dtype"),
        pytest.param(3, False, id="a number"),
    ],
)
def test_wide_ranges_are_filled_with_their_ends(given: Any, is_filled: bool) -> None:
    filled = integers._filled_with_edges(np.dtype("int8"), 0, chance(), given)

    assert (filled is not given) is is_filled
    if is_filled:
        assert {*map(int, given.span)} <= set(filled.values.tolist())


def test_the_steps_of_a_range_are_spread_over_the_rounds() -> None:
    given = MAKE8(12, low=-100, high=100)
    rounds = [integers._filled_with_edges(np.dtype("int8"), place, chance(), given) for place in range(4)]
    met = set[int]().union(*(set(one.values.tolist()) for one in rounds))

    assert all(len(set(one.values.tolist()) - {-100, 100}) >= 8 for one in rounds)
    assert {-100, 100, 0, 9, -9, 10, 64} <= met
    few = MAKE8(40, low=-100, high=100)
    assert integers._filled_with_edges(np.dtype("int8"), 3, chance(), few) is few


def test_one_sample_of_each_range_is_tried() -> None:
    def samples(make: Any) -> Any:
        yield from (make((4, 8), low=0), make(9, low=0), make((9, 1), low=1), make(3, low=1))
        yield from (make(6), make(16 * 1025 + 1, low=2), make(16 * 1025, low=3), make(5, low=4), make(5, low=5))

    found = integers._of_each_range(spec_of(np.negative, np.negative, "int8", samples), CPU, np.dtype("int8"))

    assert [one.args[0].shape for one in found] == [(9,), (9, 1), (6,), (16 * 1025,)]


def given(fn: Any, *, reference: Any = None, dtype: str = "int8", samples: Any = None) -> str:
    """The failure of a function whose samples are given."""
    spec = spec_of(fn, reference or (lambda a: a * 1), dtype, samples or (lambda make: [make(9), make(40)]))
    return failure(check_given_integers, spec, CPU, np.dtype(dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_a_right_function_of_given_integers_passes(dtype: str) -> None:
    assert not given(lambda a: a * 1, dtype=dtype)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        pytest.param(lambda a: np.maximum(a, -127), "wrong for integers of the whole range", id="the least"),
        pytest.param(lambda a: np.where((a == 127).all(), 0, a), "all integers the largest", id="all the largest"),
        pytest.param(lambda a: a * (1 + (set(a.tolist()) == {0, 1})), "all integers 0 or 1", id="zeros and ones"),
    ],
)
def test_numbers_that_free_integers_may_have_are_tried(fn: Any, said: str) -> None:
    assert said in given(lambda a: fn(a).astype(np.int8))


def test_sample_of_integers_of_the_whole_range_is_named() -> None:
    found = given(lambda a: np.maximum(a, -127).astype(np.int8))

    assert "sample: 1: shape 40, integers of the whole range" in found


def test_integers_of_a_range_are_not_replaced() -> None:
    assert not given(lambda a: np.clip(a, 2, 9), samples=lambda make: [make(9, low=2, high=9)])


def test_integers_that_float64_rounds_are_tried() -> None:
    def through_float64(a: Any) -> Any:
        return a.astype(np.float64).astype(np.uint64) if a.dtype == np.uint64 else a * 1

    assert "integers of 54 bits" in given(through_float64, dtype="uint64")
    assert not given(through_float64, reference=through_float64, dtype="uint64")
    assert not given(through_float64, dtype="uint64", samples=lambda make: [make(257)])
    assert "integers of 54 bits" in given(through_float64, dtype="uint64", samples=lambda make: [make(256)])


TEXT = b"the quick brown fox"


@pytest.mark.parametrize(
    ("letters", "is_text"),
    [
        pytest.param(list(TEXT), True, id="a text"),
        pytest.param(list(TEXT.replace(b" ", b"")), False, id="no spaces"),
        pytest.param(list(b"abc abc abcdef"), False, id="seven letters"),
        pytest.param(list(b"abc abc abcdefg"), True, id="eight letters"),
        pytest.param([*TEXT, 31], False, id="a control character"),
        pytest.param([*TEXT, 127], False, id="delete"),
        pytest.param([*TEXT, 255], True, id="Latin-1"),
        pytest.param([*TEXT, 159], False, id="before Latin-1"),
    ],
)
def test_fixed_printable_characters_are_a_text(letters: list[int], is_text: bool) -> None:
    values = np.array(letters, np.uint8)

    assert integers._is_text(Sample((HostArray(values),))) is is_text
    assert not integers._is_text(Sample((HostArray(values, span=(0, 255)),)))
    assert not integers._is_text(Sample((HostArray(values, is_free=True),)))
    assert not integers._is_text(Sample((HostArray(values.reshape(1, -1)),)))
    assert not integers._is_text(Sample((HostArray(values), 1)))
    assert not integers._is_text(Sample((HostArray(values),), {"table": values}))
    assert not integers._is_text(Sample(()))


def upper(a: Any) -> Any:
    return np.where((a >= ord("a")) & (a <= ord("z")), a - 32, a)


@pytest.mark.parametrize(
    ("letter", "beyond", "is_found"),
    [(32, 0, True), (126, 0, True), (160, 0, False), (160, 233, True), (255, 233, True), (127, 233, False)],
)
def test_each_printable_character_is_tried(letter: int, beyond: int, is_found: bool) -> None:
    text = bytes([*TEXT, beyond]).strip(b"\0")
    found = given(
        lambda a: (upper(a) + ((a == letter) & (a.max() > 121))).astype(np.uint8), reference=upper, dtype="uint8",
        samples=lambda make: [make.of(text)],
    )  # fmt: skip

    assert ("each printable character" in found) is is_found


@pytest.mark.parametrize(
    ("narrow", "wide", "got", "is_found"),
    [
        pytest.param([1, 2], [1, 2], [1, 2], False, id="right"),
        pytest.param([1, 2], [1, 2], [1, 3], True, id="wrong"),
        pytest.param([1, 2], [1, 300], [1, 44], False, id="out of range"),
        pytest.param([1, 127], [1, 300], [1, 127], False, id="saturated on purpose"),
        pytest.param([1, 127], [1, 300], [1, 44], True, id="saturated in the reference alone"),
        pytest.param([-128, 127], [-300, 300], [-128, 127], False, id="saturated at both ends"),
        pytest.param([1, 44], [2, 300], [1, 0], False, id="not trusted"),
        pytest.param([1, 44], [1, 300], [2, 0], True, id="trusted next to one out of range"),
        pytest.param([-128, 44], [-128, 300], [-127, 0], True, id="the least integer is in range"),
        pytest.param([127, 44], [127, 300], [126, 0], True, id="the largest integer is in range"),
        pytest.param([0, 1], [1, 1], [0, 1], True, id="wraps in the reference, in range in 64 bits"),
    ],
)
def test_integers_are_compared_with_those_in_64_bits_where_they_are_in_range(
    narrow: Any, wide: Any, got: Any, is_found: bool
) -> None:
    result = np.array(got, np.int8)
    spec = spec_of(lambda a: result, lambda a: np.array(narrow), "int8", lambda make: [make(2)])
    sample = Sample((np.zeros(2, np.int8),))

    found = failure(integers._compare_trusted, spec, CPU, np.dtype("int8"), sample, np.array(wide))

    assert bool(found) is is_found


def test_integers_of_another_dtype_are_not_free() -> None:
    assert integers._is_free(MAKE8(9), np.dtype("int8"))
    assert not integers._is_free(MAKE8(9), np.dtype("int16"))
    assert not integers._is_free(MAKE8(9, low=0), np.dtype("int8"))
    assert not integers._is_free(MAKE8(9).values, np.dtype("int8"))


@pytest.mark.parametrize("check", [check_default_integers, check_given_integers], ids=["default", "given"])
@pytest.mark.parametrize("refused", ["int8", "int64"])
def test_integers_that_the_reference_refuses_are_not_tried(check: Any, refused: str) -> None:
    def is_whole(a: Any) -> bool:
        return a.size and a.max() == 127

    def reference(a: Any) -> Any:
        if a.dtype == refused and is_whole(a):
            raise ValueError(f"give other numbers than {refused}")
        return a * 1

    samples = None if check is check_default_integers else (lambda make: [make(9)])
    spec = spec_of(lambda a: (a + is_whole(a)).astype(a.dtype), reference, "int8", samples)

    assert not failure(check, spec, CPU, np.dtype("int8"))


def test_very_many_integers_are_tried_for_three_sets_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    monkeypatch.setattr(
        integers, "check_many_integers", lambda spec, device, dtype, sample: tried.append(sample.kwargs["shift"])
    )
    spec = OpSpec(
        fn=lambda xp, a, shift: a * 1, reference=lambda a, shift: a * 1, name="f", dtypes=("int8",),
        samples=lambda make: [Sample((make(9),), {"shift": shift}) for shift in range(5)],
    )  # fmt: skip

    check_given_integers(spec, CPU, np.dtype("int8"))

    assert tried == [0, 1, 2]


FLOAT_CASES = [
    pytest.param([0.5, 1.5], [0.5, 1.5], [0.5, 1.5], False, id="right"),
    pytest.param([0.5, 1.5], [0.5, 1.5], [0.5, 1.6], True, id="wrong"),
    pytest.param([0.5, 1.5], [0.5, 2.5], [0.5, 1.6], False, id="not trusted"),
    pytest.param([0.5, 1.5], [0.5, 1.5 * (1 + 2.0**-41)], [0.5, 1.6], True, id="trusted up to rounding"),
    pytest.param([0.5, 1.5], [0.5, 1.5 * (1 + 2.0**-39)], [0.5, 1.6], False, id="not trusted beyond rounding"),
    pytest.param([-0.5, -1.5], [-0.5, -1.5], [-0.5, -1.6], True, id="negative"),
    pytest.param([0.5, np.inf], [0.5, np.inf], [0.5, 1.0], False, id="infinity"),
    pytest.param([2.0**10, 1.0], [2.0**10, 1.0], [2.0**10, 1.01], True, id="next to a large one"),
]


def trusted(narrow: Any, wide: Any, got: Any, dtype: str = "int8", size: int = 2, **options: Any) -> bool:
    result = np.asarray(got)
    spec = OpSpec(
        fn=lambda xp, a: result, reference=lambda a: np.array(narrow), name="f", dtypes=(dtype,),
        samples=lambda make: [make(size)], **options,
    )  # fmt: skip
    sample = Sample((np.zeros(size, dtype),))
    with np.errstate(all="raise"):
        return bool(failure(integers._compare_trusted, spec, CPU, np.dtype(dtype), sample, np.array(wide)))


@pytest.mark.parametrize(("narrow", "wide", "got", "is_found"), FLOAT_CASES)
def test_floats_are_compared_where_those_of_wide_integers_are_the_same(
    narrow: Any, wide: Any, got: Any, is_found: bool
) -> None:
    assert trusted(narrow, wide, np.array(got, np.float32)) is is_found


def test_floats_of_narrow_integers_are_relative_to_each_result_or_1() -> None:
    unit = 2.0**-23
    assert not trusted([0.0, 1.0], [0.0, 1.0], np.float32([6 * unit, 1.0]))
    assert trusted([0.0, 1.0], [0.0, 1.0], np.float32([10 * unit, 1.0]))
    assert not trusted([2.0, 1.0], [2.0, 1.0], np.float32([2 + 14 * unit, 1.0]))
    assert trusted([2.0, 1.0], [2.0, 1.0], np.float32([2 + 20 * unit, 1.0]))


@pytest.mark.parametrize(
    ("dtype", "size", "off"),
    [("int8", 2, 2.0**-19), ("int8", 3, 2.0**-19), ("int8", 4, 2.0**-12.5), ("int32", 2, 2.0**11)],
)
def test_floats_of_sums_and_of_wide_integers_are_relative_to_the_largest_integer(
    dtype: str, size: int, off: float
) -> None:
    """Two integers for each result, or integers that float32 does not hold."""
    found = [trusted([0.0, 1.0], [0.0, 1.0], np.float32([part * off, 1.0]), dtype, size) for part in (0.25, 4)]

    assert found == [False, True]


@pytest.mark.parametrize(
    ("narrow", "wide", "got", "is_found"),
    [
        pytest.param([True, False], [True, False], [True, False], False, id="right"),
        pytest.param([True, False], [True, False], [True, True], True, id="wrong"),
        pytest.param([True, False], [True, True], [True, False], False, id="not trusted"),
        pytest.param([True, False], [False, True], [False, True], False, id="as for wide integers"),
    ],
)
def test_truth_values_are_compared_where_those_of_wide_integers_are_the_same(
    narrow: Any, wide: Any, got: Any, is_found: bool
) -> None:
    assert trusted(narrow, wide, np.array(got)) is is_found


def test_results_of_another_kind_are_left_to_other_checks() -> None:
    assert not trusted([0.5, 1.5], [0.5, 1.5], np.array([7, 7]))
    assert not trusted([1, 2], [1, 2], np.array([True, True]))
    assert trusted([1, 2], [1, 2], np.array([1, 2, 3]))
    assert not trusted([], [], np.zeros(0, np.float32))


@pytest.mark.parametrize("number", [0, 1])
def test_ends_of_a_range_are_near_if_they_are_in_its_eighth(number: int) -> None:
    given = HostArray(np.zeros(4000, np.int16), span=(-40, 41))
    found = integers._near(given, (-40, 41), number)

    assert set(found.values.tolist()) == set(range(-40, -29) if number == 0 else range(31, 42))
    assert (found.dtype, found.span) == (np.int16, (-40, 41))


def test_integers_of_54_and_55_bits_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    spec = spec_of(lambda a: a * 1, lambda a: a * 1, "uint64", lambda make: [make(200)])
    monkeypatch.setattr(
        integers, "run_sample", lambda spec, device, sample: drawn.append(sample) or sample.host()[0][0]
    )

    integers._check_beyond_float64(spec, CPU, np.dtype("uint64"), chance())

    (found,) = drawn
    values = found.args[0].values
    assert (values.min() >= 2**53, values.max() < 2**55, values.max() > 2**54) == (True, True, True)
    assert found.label.endswith(", integers of 54 bits")
    assert np.log2(values.astype(float)).min() < 53.2


def test_zeros_and_ones_that_the_reference_refuses_are_not_tried() -> None:
    def refusing(a: Any) -> Any:
        if a.max() <= 1:
            raise RuntimeError("larger ones")
        return a * 1

    spec = spec_of(lambda a: a * (1 + (a.max() <= 1)), refusing, "int8", lambda make: [make(9)])
    like = next(spec.draw(1, "int8"))

    assert not failure(integers._check_zeros_and_ones, spec, CPU, np.dtype("int8"), like)


def test_arrays_of_two_shapes_keep_them_at_the_ends_of_their_ranges() -> None:
    like = Sample((Samples(1, "int8")(9, low=-80, high=80), Samples(1, "int8")((2, 3), low=8, high=88)))
    sample = Sample(tuple(HostArray(one.values.copy(), span=one.span) for one in like.args), label="drawn")
    calls = list(integers._of_ends(sample, like))

    assert all([one.shape for one in call.args] == [(9,), (2, 3)] for call in calls)
    assert [call.label for call in calls[:4]] == [
        "drawn, all near the lower end", "drawn, all near the upper end",
        "drawn, all of input 0 are -80", "drawn, all of input 0 are 80",
    ]  # fmt: skip
    assert calls[-1].label == "drawn, all of input 0 are 80 and of input 1 are 88"


def test_integers_are_rounded_as_float64_rounds_them() -> None:
    rounded = integers._through_float64(HostArray(np.array([2**53 + 1, 2**53 + 2, 2**24 + 1], np.uint64)), np.uint64)

    assert (rounded.values.tolist(), rounded.dtype) == ([2**53, 2**53 + 2, 2**24 + 1], np.uint64)
    assert integers._through_float64(3, np.uint64) == 3
