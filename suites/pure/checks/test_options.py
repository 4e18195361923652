"""Options of calls: those of other samples, alone and combined, values near them, and axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.errors import RaceError
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import options
from cuassay.testing.generated.options import (
    check_axis_beyond,
    is_number,
    is_plain,
    keeps_bounds,
    names_axis,
    options_of,
    runs,
    with_each_axis,
    with_mixed_options,
    with_near_options,
    with_one_other_option,
    with_options_of,
    with_other_options,
)
from cuassay.testing.samples import HostArray, Samples

CPU = Device("cpu")
FLOAT32 = np.dtype("float32")
MAKE = Samples(1, "float32")
A = MAKE((3, 5))


def first(a: Any, *others: Any, **given: Any) -> Any:
    """Any options are accepted, and none changes the result."""
    return a * 1


def spec_of(*samples: Any, fn: Any = None, reference: Any = first, dtype: str = "float32", **declared: Any) -> OpSpec:
    made = [one if isinstance(one, Sample) else Sample(one[0], one[1]) for one in samples] or [Sample((A,))]
    return OpSpec(**{
        "fn": fn or (lambda xp, *args, **given: first(*args, **given)), "name": "optional", "dtypes": (dtype,),
        "reference": reference, "samples": lambda make: made, **declared,
    })  # fmt: skip


def call(**given: Any) -> Sample:
    return Sample((A,), given)


def kwargs(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    return [dict(sample.kwargs) for sample in samples]


def like(reference: Any) -> Any:
    """A function with the results of a reference, which rejects as a library may: not with an error of NumPy."""

    def fn(xp: Any, *args: Any, **given: Any) -> Any:
        try:
            return reference(*args, **given)
        except ValueError as error:
            raise RuntimeError("not this call") from error

    return fn


# ------------------------------------------------------------------------------------------------ kinds of values


@pytest.mark.parametrize("value", [True, 3, 2.5, "word", None, (), (1, "a", None), ((1, 2.5), False)], ids=repr)
def test_numbers_words_none_and_tuples_of_them_are_plain(value: Any) -> None:
    assert is_plain(value)


@pytest.mark.parametrize("value", [[1], np.zeros(2), (1, [2]), {"a": 1}, 1j, ((1, 1j),)], ids=repr)
def test_other_values_are_not_plain(value: Any) -> None:
    assert not is_plain(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, True), (2.5, True), (np.int8(3), True), (np.uint8(3), True), (np.float32(2), True), (True, False),
     (np.True_, False), ("3", False), (None, False), (1j, False)],
    ids=repr,
)  # fmt: skip
def test_truth_values_are_not_numbers(value: Any, expected: bool) -> None:
    assert is_number(value) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("axis", True), ("axes", True), ("dim", True), ("keepdims", True), ("over_axis", True), ("size", False)],
)
def test_options_that_name_an_axis(name: str, expected: bool) -> None:
    assert names_axis(name) is expected


def test_options_include_defaults() -> None:
    def fn(xp: Any, a: Any, *, eps: float = 0.5, axis: int = 0) -> Any:
        return a * 1

    found = options_of(spec_of(fn=fn, reference=lambda a, **given: a * 1), call(axis=1, other=2))

    assert {name: found[name] for name in ("eps", "axis", "other")} == {"eps": 0.5, "axis": 1, "other": 2}


# ------------------------------------------------------------------------------------------------ of other samples


def test_samples_get_the_options_of_others() -> None:
    spec = spec_of(Sample((A,), {"k": 1}, "one"), Sample((MAKE(4),), {"k": 2, "l": 3}, "two"))

    found = list(with_other_options(spec, CPU, FLOAT32))

    assert [(sample.args[0].shape, dict(sample.kwargs)) for sample in found] == [
        ((3, 5), {"k": 1}), ((3, 5), {"k": 2, "l": 3}), ((4,), {"k": 2, "l": 3}), ((4,), {"k": 1}),
    ]  # fmt: skip
    assert [sample.label for sample in found][1::2] == [
        f"{found[0].label}, options {{'k': 2, 'l': 3}}", f"{found[2].label}, options {{'k': 1}}",
    ]  # fmt: skip


@pytest.mark.parametrize("order", [1, -1])
def test_options_that_are_not_plain_are_not_exchanged(order: int) -> None:
    samples = [call(k=1), call(k=np.zeros(2, np.float32))][::order]

    assert list(with_other_options(spec_of(*samples), CPU, FLOAT32)) == []


def test_options_that_the_reference_rejects_are_not_exchanged() -> None:
    def reference(a: Any, k: int) -> Any:
        if a.shape[0] == 3 and k == 2:
            raise ValueError("not both")
        return a * 1

    spec = spec_of(call(k=1), Sample((MAKE(4),), {"k": 2}), reference=reference)

    assert [sample.args[0].shape for sample in with_other_options(spec, CPU, FLOAT32)] == [(4,), (4,)]


def rows(*numbers: int) -> HostArray:
    return MAKE.of(numbers, dtype="int32")


def test_options_that_fall_below_an_index_are_not_exchanged() -> None:
    spec = spec_of(Sample((A, rows(1, 4)), {"n": 5}), Sample((A, rows(1, 7)), {"n": 8}))

    assert kwargs(with_other_options(spec, CPU, FLOAT32)) == [{"n": 5}, {"n": 8}]


@pytest.mark.parametrize("function", [with_other_options, with_near_options, with_each_axis])
def test_samples_have_at_most_2048_elements(function: Any) -> None:
    samples = [Sample((MAKE(count),), {"axis": 0, "k": count, "l": 1.5}) for count in (2048, 2049, 2040)]

    found = {sample.args[0].shape[0] for sample in function(spec_of(*samples), CPU, FLOAT32)}

    assert found == {2048, 2040}


# ------------------------------------------------------------------------------------------------ near values


def near(*samples: Sample, **declared: Any) -> list[dict[str, Any]]:
    return kwargs(with_near_options(spec_of(*samples, **declared), CPU, FLOAT32))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"eps": 2.0}, [1.8, 1.4, 0.0], id="a float"),
        pytest.param({"eps": -2.0}, [-1.8, -1.4, 0.0], id="a negative float"),
        pytest.param({"eps": 0.0}, [], id="zero"),
        pytest.param({"count": 7}, [8, 28], id="a large integer"),
        pytest.param({"count": 4}, [5], id="an integer between the extents"),
        pytest.param({"count": 5}, [6], id="an extent"),
        pytest.param({"count": 63}, [64, 252], id="63"),
        pytest.param({"count": 64}, [65], id="64"),
        pytest.param({"count": -7}, [-6], id="a negative integer"),
        pytest.param({"seed": 7}, [8, 28, 0], id="a seed"),
        pytest.param({"seed": -1}, [0], id="a seed of -1"),
        pytest.param({"seed": 0}, [1], id="a seed of 0"),
        pytest.param({"axis": 1}, [], id="an axis"),
        pytest.param({"is_open": True}, [], id="a truth value"),
        pytest.param({"word": "all"}, [], id="a word"),
    ],
)
def test_options_become_near_values(given: dict[str, Any], expected: list[Any]) -> None:
    assert near(call(**given)) == [{name: other} for name in given for other in expected]


@pytest.mark.parametrize(
    ("shape", "count", "expected"),
    [
        pytest.param((9, 8), 2, [3, 8], id="four times as large as an extent"),
        pytest.param((9, 7), 2, [3], id="four times larger than an extent"),
        pytest.param((9, 8), 1, [2], id="one"),
        pytest.param((1, 1), 2, [3, 8], id="larger than all extents"),
        pytest.param((2, 1), 2, [3], id="as large as an extent"),
        pytest.param((), 2, [3, 8], id="no extents"),
    ],
)
def test_integers_are_quadrupled_on_their_side_of_the_extents(shape: Any, count: int, expected: list[int]) -> None:
    assert near(Sample((MAKE(shape),), {"count": count})) == [{"count": other} for other in expected]


def test_near_value_is_in_the_label_and_the_rest_of_the_call_stays() -> None:
    first_, *_ = with_near_options(spec_of(Sample((A,), {"eps": 2.0, "word": "all"}, "drawn")), CPU, FLOAT32)

    assert first_.args[0] is A
    assert first_.kwargs == {"eps": 1.8, "word": "all"}
    assert first_.label.endswith("drawn, eps=1.8")


def test_integer_of_both_signs_may_be_zero() -> None:
    assert near(call(shift=-7), call(shift=7)) == [
        {"shift": -6},
        {"shift": 0},
        {"shift": 8},
        {"shift": 28},
        {"shift": 0},
    ]
    assert near(call(shift=-1), call(shift=7))[:1] == [{"shift": 0}]
    assert near(call(shift=-1), call(shift=7)).count({"shift": 0}) == 2
    assert {"shift": 0} not in near(call(shift=-7), call(shift=0))
    assert {"shift": 0} not in near(call(shift=0), call(shift=7))
    assert [one["shift"] for one in near(call(shift=-7), call(shift=7.0))][:2] == [-6, 7.0 * 0.9]


def test_values_of_other_options_are_left_out() -> None:
    assert near(call(low=2.0, high=1.8)) == [
        {"low": 1.4, "high": 1.8}, {"low": 0.0, "high": 1.8}, {"low": 2.0, "high": 1.8 * 0.9},
        {"low": 2.0, "high": 1.8 * 0.7}, {"low": 2.0, "high": 0.0},
    ]  # fmt: skip

    def fn(xp: Any, a: Any, *, low: float, high: int = 8) -> Any:
        return a * 1

    assert near(call(low=7), fn=fn) == [{"low": 28}]


def test_truth_value_next_to_a_number_does_not_count_as_one() -> None:
    assert {"seed": 0, "is_open": False} in near(call(seed=7, is_open=False))


@pytest.mark.parametrize(
    ("at_zero", "is_tried"),
    [
        pytest.param(lambda a: a * 1, True, id="finite"),
        pytest.param(lambda a: a * np.inf, False, id="infinite"),
        pytest.param(lambda a: np.where(a == a.max(), np.nan, a), False, id="one NaN"),
        pytest.param(lambda a: a[:1], False, id="another shape"),
        pytest.param(lambda a: a > 0, True, id="truth values"),
    ],
)
def test_float_becomes_zero_where_the_result_is_alike(at_zero: Any, is_tried: bool) -> None:
    found = near(call(eps=2.0), reference=lambda a, eps: a * 1 if eps else at_zero(a))

    assert found[:2] == [{"eps": 1.8}, {"eps": 1.4}]
    assert ({"eps": 0.0} in found) is is_tried


def test_integer_of_both_signs_becomes_zero_whatever_the_result() -> None:
    found = near(call(shift=-7), call(shift=7), reference=lambda a, shift: a * 1 if shift else a[:1])

    assert {"shift": 0} in found


def test_results_that_are_infinite_at_other_values_are_tried() -> None:
    found = near(call(eps=2.0), reference=lambda a, eps: a * (1 if eps == 2 else np.inf))

    assert found == [{"eps": 1.8}, {"eps": 1.4}]


def rejecting(number: float) -> Any:
    def of(a: Any, eps: float) -> Any:
        if eps == number:
            raise ValueError("not this")
        return a * 1

    return of


def test_near_values_that_the_reference_or_the_function_rejects_are_left_out() -> None:
    assert near(call(eps=2.0), reference=rejecting(1.4)) == [{"eps": 1.8}, {"eps": 0.0}]
    assert near(call(eps=2.0), fn=like(rejecting(1.8))) == [{"eps": 1.4}, {"eps": 0.0}]


def test_near_values_need_a_reference() -> None:
    assert near(call(eps=2.0), reference=None) == []


# ------------------------------------------------------------------------------------------------ ends of a range


def at_ends(*args: Any, **given: Any) -> list[dict[str, Any]]:
    """The first of the near values, if it is at both ends of an input's range."""
    found = with_near_options(spec_of(Sample(args, given)), CPU, FLOAT32)
    return kwargs(one for one in found if "the ends of an input's range" in one.label)


RANGED = MAKE(5, low=-2, high=4)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"low": -1.0, "high": 1.0}, {"low": -2.0, "high": 4.0}, id="in order"),
        pytest.param({"high": 1.0, "low": -1.0}, {"low": -2.0, "high": 4.0}, id="in the other order"),
        pytest.param({"low": -2.0, "high": 4.0}, {"low": -2.0, "high": 4.0}, id="at the ends"),
        pytest.param({"low": -1.0, "high": 1.0, "n": 3}, {"low": -2.0, "high": 4.0, "n": 3}, id="next to an integer"),
    ],
)
def test_two_floats_become_the_ends_of_a_range(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert at_ends(RANGED, **given) == [expected]


def test_ends_are_in_the_label() -> None:
    spec = spec_of(Sample((RANGED,), {"low": -1.0, "high": 1.0}, "drawn"))

    wide, *_ = with_near_options(spec, CPU, FLOAT32)

    assert wide.label.endswith("drawn, low=-2 and high=4, the ends of an input's range")


@pytest.mark.parametrize(
    ("args", "given"),
    [
        pytest.param((A,), {"low": -1.0, "high": 1.0}, id="no range"),
        pytest.param((A.values,), {"low": -1.0, "high": 1.0}, id="an array of NumPy"),
        pytest.param((MAKE.of([0.5, 1]),), {"low": -1.0, "high": 1.0}, id="given numbers"),
        pytest.param((RANGED,), {"low": -1.0}, id="one float"),
        pytest.param((RANGED,), {"low": -1.0, "high": 1.0, "eps": 0.5}, id="three floats"),
        pytest.param((RANGED,), {"low": -1, "high": 1}, id="integers"),
        pytest.param((RANGED,), {"low": -2.5, "high": 1.0}, id="below the range"),
        pytest.param((RANGED,), {"low": -1.0, "high": 4.5}, id="above the range"),
    ],
)
def test_floats_that_are_not_of_a_range_stay(args: Any, given: dict[str, Any]) -> None:
    assert at_ends(*args, **given) == []


def test_ends_are_those_of_the_first_range_that_holds_both() -> None:
    narrow, other = MAKE(5, low=0, high=1), MAKE(5, low=-9, high=9)

    assert at_ends([narrow, RANGED], other, low=-1.0, high=1.0) == [{"low": -2.0, "high": 4.0}]


def test_ends_that_the_reference_or_the_function_rejects_are_left_out() -> None:
    def rejecting_ends(a: Any, low: float, high: float) -> Any:
        if high == 4:
            raise ValueError("too high")
        return a * 1

    base = Sample((RANGED,), {"low": -1.0, "high": 1.0})
    found = with_near_options(spec_of(base, reference=rejecting_ends), CPU, FLOAT32)
    assert {"low": -2.0, "high": 4.0} not in kwargs(found)
    found = with_near_options(spec_of(base, fn=like(rejecting_ends)), CPU, FLOAT32)
    assert {"low": -2.0, "high": 4.0} not in kwargs(found)


# ------------------------------------------------------------------------------------------------ whether it runs


def raising(error: type[Exception]) -> Any:
    def fn(xp: Any, a: Any, *, fails: bool = False) -> Any:
        if fails:
            raise error("this one")
        return a * 1

    return fn


def test_function_may_reject_undeclared_options_with_any_error() -> None:
    spec = spec_of(fn=raising(ZeroDivisionError))

    assert runs(spec, CPU, call())
    assert not runs(spec, CPU, call(fails=True))
    assert not runs(spec, CPU, call(unknown=1))


def test_race_is_not_a_rejection() -> None:
    with pytest.raises(RaceError, match="this one"):
        runs(spec_of(fn=raising(RaceError)), CPU, call(fails=True))


# ------------------------------------------------------------------------------------------------ mixed options


def others(sample: Sample, *several: Sample, **declared: Any) -> list[dict[str, Any]]:
    return kwargs(with_one_other_option(spec_of(*several, **declared), sample, list(several)))


def test_one_option_is_of_another_call_or_omitted() -> None:
    one, other = call(k=1, l=2), call(k=3, m=4)

    assert others(one, one, other) == [
        {"k": 3, "l": 2}, {"k": 1, "l": 2, "m": 4}, {"l": 2}, {"k": 1},
    ]  # fmt: skip


def test_label_names_the_options() -> None:
    one = Sample((A,), {"k": 1}, "drawn")

    assert [mixed.label for mixed in with_one_other_option(spec_of(one), one, [one])] == ["drawn, options {}"]


def test_only_option_is_not_replaced_alone() -> None:
    assert others(call(k=1), call(k=1), call(k=3)) == [{}]
    assert others(call(), call(), call(k=3)) == []
    assert others(call(), call(), call(k=3, l=4)) == [{"k": 3}, {"l": 4}]


def test_options_that_are_not_plain_are_neither_taken_nor_left() -> None:
    odd = call(k=3, l=[1])

    assert others(odd, odd, call(k=1, l=2)) == []
    assert others(call(k=1, l=2), odd) == [{"l": 2}, {"k": 1}]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [(0, [-2]), (1, [-1]), (2, []), (-1, []), (None, []), ((0, 1), [(1, 0), (-2, -1)]), ((0, -1), [(-1, 0), (-2, -1)])],
    ids=str,
)
def test_axis_is_counted_from_the_other_end(axis: Any, expected: list[Any]) -> None:
    one = call(axis=axis)

    assert others(one, one) == [{}, *({"axis": other} for other in expected)]


def test_default_axis_is_counted_from_the_other_end() -> None:
    def fn(xp: Any, a: Any, axis: int = 1, k: int = 0) -> Any:
        return a * 1

    one = call(k=2)

    assert others(one, one, fn=fn) == [{}, {"k": 2, "axis": -1}]


@pytest.mark.parametrize(
    ("given", "is_axes"),
    [({"axes": (0, 1)}, True), ({"dim": (0, 1)}, True), ({"dims": (0, 1)}, True), ({"shape": (0, 1)}, False),
     ({"axes": (0, 1.5)}, False), ({"axes": (0, True)}, False), ({"axes": "ab"}, False), ({"axes": "01"}, False)],
    ids=repr,
)  # fmt: skip
def test_axes_are_tuples_of_integers_by_name(given: dict[str, Any], is_axes: bool) -> None:
    assert (len(others(call(**given), call(**given))) > 1) is is_axes


BELOW = Sample((A, rows(1, 4)), {"n": 5, "m": 3})


@pytest.mark.parametrize(
    ("several", "mixed", "keeps"),
    [
        pytest.param([BELOW], Sample((A, rows(1, 4)), {"n": 6}), True, id="still larger"),
        pytest.param([BELOW], Sample((A, rows(1, 4)), {"n": 4}), False, id="as large"),
        pytest.param([BELOW], Sample((A, rows(1, 4)), {}), False, id="omitted"),
        pytest.param([BELOW], Sample((A, rows(1, 4)), {"n": 5.0}), False, id="a float"),
        pytest.param([BELOW], Sample((A, rows(1, 9)), {"n": 5}), False, id="a larger index"),
        pytest.param([BELOW], Sample((A, rows()), {"n": 0}), True, id="no index"),
        pytest.param([BELOW], Sample((A, rows(1, 4)), {"n": 5, "m": 0}), True, id="never larger"),
        pytest.param([BELOW, Sample((A, rows(9)), {"n": 5})], Sample((A, rows(9)), {"n": 4}), True, id="not always"),
        pytest.param([BELOW, Sample((A,), {"n": 5})], Sample((A, rows(9)), {"n": 4}), True, id="not always an index"),
        pytest.param([BELOW], Sample((A,), {"n": 5}), True, id="without the index"),
    ],
)
def test_option_above_all_indices_stays_above_them(several: list[Sample], mixed: Sample, keeps: bool) -> None:
    assert keeps_bounds(spec_of(), several, mixed) is keeps


def test_bounds_are_those_of_integers() -> None:
    of_floats = Sample((A, MAKE.of([1, 4])), {"n": 5})
    unsigned = Sample((A, MAKE.of([1, 4], dtype="uint8")), {"n": 5})

    assert keeps_bounds(spec_of(), [of_floats], Sample(of_floats.args, {"n": 2}))
    assert not keeps_bounds(spec_of(), [unsigned], Sample(unsigned.args, {"n": 2}))


def test_default_keeps_bounds_too() -> None:
    def fn(xp: Any, a: Any, index: Any = None, n: int = 9) -> Any:
        return a * 1

    assert keeps_bounds(
        spec_of(fn=fn, reference=lambda a, index=None, n=9: a * 1), [BELOW], Sample((A, rows(1, 4)), {})
    )


def test_mixed_options_keep_bounds() -> None:
    other = Sample((A, rows(1, 7)), {"n": 8, "m": 2})

    assert others(BELOW, BELOW, other) == [{"n": 8, "m": 3}, {"n": 5, "m": 2}, {"n": 5}]


def test_combinations_are_of_options_that_some_samples_lack() -> None:
    spec = spec_of(call(k=1, l=2), call(k=3))

    found = kwargs(one for one in with_mixed_options(spec, CPU, FLOAT32) if "resized" in one.label)

    assert found == [{}, {"l": 2}, {"k": 1}, {"k": 1, "l": 2}, {"k": 3}, {"k": 3, "l": 2}]


def test_combinations_are_of_plain_options() -> None:
    found = with_mixed_options(spec_of(call(k=1, l=2), call(k=[3], l=4)), CPU, FLOAT32)

    assert {"k": [3], "l": 2} not in kwargs(found)


def test_combined_options_keep_bounds() -> None:
    spec = spec_of(BELOW, Sample((A, rows(1, 7)), {"n": 8, "m": 2}))

    found = kwargs(one for one in with_mixed_options(spec, CPU, FLOAT32) if "resized" in one.label)

    assert found == [{"n": n, **m} for m in ({}, {"m": 3}, {"m": 2}) for n in (5, 8)]


def test_mixed_options_are_tried_once_each() -> None:
    found = list(with_mixed_options(spec_of(call(k=1), call(k=2)), CPU, FLOAT32))

    assert [(sample.args[0].shape, dict(sample.kwargs)) for sample in found] == [
        ((3, 5), {}),
    ]  # fmt: skip


def test_options_are_mixed_next_to_samples_that_have_an_array_for_one() -> None:
    several = [call(w=np.ones(5), k=2), call(w=None, k=0), call(w=None, k=1)]

    found = kwargs(one for one in with_mixed_options(spec_of(*several), CPU, FLOAT32) if "resized" not in one.label)

    assert found == [{"k": 0}, {"w": None}, {"k": 1}, {}]


def test_mixed_options_that_were_tried_are_tried_at_another_length() -> None:
    one, other = call(k=1, l=2), call(k=3, l=4)

    found = [
        (sample.args[0].shape, dict(sample.kwargs)) for sample in with_mixed_options(spec_of(one, other), CPU, FLOAT32)
    ]

    alone = [{"k": 3, "l": 2}, {"k": 1, "l": 4}, {"l": 2}, {"k": 1}, {"l": 4}, {"k": 3}]
    assert found[:6] == [((3, 5), one_) for one_ in alone]
    combined = [
        {},
        {"l": 2},
        {"l": 4},
        {"k": 1},
        {"k": 1, "l": 2},
        {"k": 1, "l": 4},
        {"k": 3},
        {"k": 3, "l": 2},
        {"k": 3, "l": 4},
    ]
    assert found[6] == ((3, 5), {})
    assert found[7:] == [((3, 6), one_) for one_ in combined]


def test_combinations_are_of_the_sample_with_the_most_axes() -> None:
    samples = [Sample((MAKE(40),), {"k": 1, "l": 2}), Sample((MAKE((2, 3)),), {"k": 3, "l": 4})]

    found = [sample for sample in with_mixed_options(spec_of(*samples), CPU, FLOAT32) if "resized" in sample.label]

    assert {sample.args[0].shape for sample in found} == {(2, 4)}
    assert found[-1].label.endswith("resized to 2x4, options {'k': 3, 'l': 4}")


def test_combined_options_are_in_the_order_of_their_names() -> None:
    given = {"s": 1, "q": 2, "p": 3, "r": 4}

    *_, last = with_mixed_options(spec_of(call(**given)), CPU, FLOAT32)

    assert list(last.kwargs) == ["p", "q", "r", "s"]


def test_24_combinations_are_tried_in_order() -> None:
    samples = [call(k=number, l=min(number, 2)) for number in range(5)]

    found = kwargs(one for one in with_mixed_options(spec_of(*samples), CPU, FLOAT32) if "resized" in one.label)

    of_l = [{}, {"l": 0}, {"l": 1}, {"l": 2}]
    assert found == [{**k, **other} for k in ({}, *({"k": number} for number in range(5))) for other in of_l]


@pytest.mark.parametrize(("values", "expected"), [(3, 16), (4, 24)])
def test_at_most_24_combinations_are_tried(values: int, expected: int) -> None:
    samples = [call(k=number, l=number) for number in range(values)]

    found = [dict(one.kwargs) for one in with_mixed_options(spec_of(*samples), CPU, FLOAT32) if "resized" in one.label]

    assert len(found) == expected
    assert len({repr(sorted(given.items())) for given in found}) == expected


def test_combinations_that_are_rejected_are_left_out() -> None:
    def picky(a: Any, **given: Any) -> Any:
        if given in ({"k": 1, "l": 4}, {}):
            raise ValueError("not these two")
        return a * 1

    samples = [call(k=1, l=2), call(k=3, l=4)]
    of_reference = kwargs(with_mixed_options(spec_of(*samples, reference=picky), CPU, FLOAT32))
    of_function = kwargs(with_mixed_options(spec_of(*samples, fn=like(picky)), CPU, FLOAT32))

    assert of_reference == of_function
    assert {"k": 1, "l": 4} not in of_reference
    assert {} not in of_reference
    assert {"k": 3, "l": 2} in of_reference


def test_mixed_options_need_a_reference_and_samples() -> None:
    assert list(with_mixed_options(spec_of(call(k=1, l=2), reference=None), CPU, FLOAT32)) == []
    assert list(with_mixed_options(spec_of(Sample((MAKE(2049),), {"k": 1})), CPU, FLOAT32)) == []


# ------------------------------------------------------------------------------------------------ drawn options


class Chance:
    """Gives these numbers in turn, and notes below which ones they were drawn."""

    def __init__(self, *numbers: Any) -> None:
        self.numbers = list(numbers)
        self.limits: list[Any] = []

    def integers(self, *limits: Any) -> Any:
        self.limits.append(limits)
        return self.numbers.pop(0)


def drawn(sample: Sample, several: list[Sample], *numbers: Any) -> dict[str, Any]:
    chance: Any = Chance(*numbers)
    found = with_options_of(spec_of(*several), several, sample, chance)
    assert chance.numbers == []
    return dict(found.kwargs)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        pytest.param((1, 0), {"k": 5}, id="kept"),
        pytest.param((1, 1, 1), {"k": 7}, id="of another call"),
        pytest.param((1, 1, 0, 3), {"k": 10}, id="similar"),
        pytest.param((2, 1), {}, id="omitted"),
        pytest.param((2, 0), {"k": 5}, id="not omitted"),
    ],
)
def test_options_are_drawn(numbers: Any, expected: dict[str, Any]) -> None:
    assert drawn(call(k=5), [call(k=5), call(k=7), call()], *numbers) == expected


def test_options_are_omitted_taken_and_kept_by_equal_chances() -> None:
    several = [call(k=5), call(k=7), call()]
    similar: Any = Chance(1, 1, 0, 3)
    omitted: Any = Chance(2, 1)

    with_options_of(spec_of(*several), several, several[0], similar)
    with_options_of(spec_of(*several), several, several[0], omitted)

    assert similar.limits == [(3,), (2,), (2,), (0, 9)]
    assert omitted.limits == [(3,), (2,)]


def test_options_are_drawn_in_the_order_of_their_names() -> None:
    several = [call(k=5, j=6), call(j=8, k=9)]

    assert drawn(several[0], several, 1, 1, 1, 0, 0) == {"k": 5, "j": 8}
    assert drawn(several[0], several, 1, 0, 1, 1, 1) == {"k": 9, "j": 6}


def test_call_stays_if_options_are_not_plain_or_break_a_bound() -> None:
    assert drawn(call(k=5), [call(k=5), call(k=[1])]) == {"k": 5}
    several = [Sample((A, rows(4)), {"n": 5}), Sample((A, rows(1)), {"n": 2})]
    assert drawn(several[0], several, 1, 1, 1) == {"n": 5}


@pytest.mark.parametrize(
    ("name", "value", "numbers", "expected", "limits"),
    [
        pytest.param("k", 5, (3,), 8, (0, 9), id="an integer"),
        pytest.param("k", 2, (0,), 2, (0, 9), id="two"),
        pytest.param("k", 1, (), 1, None, id="one"),
        pytest.param("k", 2.5, (), 2.5, None, id="a float"),
        pytest.param("k", True, (), True, None, id="a truth value"),
        pytest.param("axis", 5, (), 5, None, id="an axis"),
        pytest.param("k", (1, 2, 7), ([9, 3, 5],), (3, 5, 9), (1, 22, 3), id="a sorted tuple"),
        pytest.param("k", (7, 2), ([9, 3],), (9, 3), (1, 22, 2), id="a tuple in no order"),
        pytest.param("k", (4, 4), ([9, 3],), (9, 3), (1, 16, 2), id="a tuple of equal numbers"),
        pytest.param("k", (0, 4), (), (0, 4), None, id="a tuple with 0"),
        pytest.param("k", (1, 2.5), (), (1, 2.5), None, id="a tuple with a float"),
        pytest.param("k", (), (), (), None, id="an empty tuple"),
        pytest.param("axes", (1, 2), (), (1, 2), None, id="axes"),
    ],
)
def test_similar_values(name: str, value: Any, numbers: Any, expected: Any, limits: Any) -> None:
    chance: Any = Chance(*numbers)

    found = options._similar(name, value, chance)

    assert (found, type(found)) == (expected, type(value))
    assert chance.limits == ([] if limits is None else [limits])


# ------------------------------------------------------------------------------------------------ axes


def along(*samples: Sample, **declared: Any) -> list[tuple[Any, Any]]:
    found = with_each_axis(spec_of(*samples, **declared), CPU, FLOAT32)
    return [(sample.args[0].shape, sample.kwargs.get("axis")) for sample in found]


def test_axis_is_moved_to_each_other_place() -> None:
    assert along(Sample((MAKE((2, 3)),), {"axis": 0})) == [((2, 3), -2), ((3, 2), -1), ((3, 2), 1)]
    assert along(Sample((MAKE((2, 3)),), {"axis": -1})) == [((3, 2), -2), ((3, 2), 0), ((2, 3), 1)]


def test_moved_axis_keeps_its_numbers() -> None:
    spec = spec_of(Sample((A, MAKE(5)), {"axis": 0, "k": 1}, "drawn"))

    *_, moved = with_each_axis(spec, CPU, FLOAT32)

    np.testing.assert_array_equal(moved.args[0].values, A.values.T)
    assert moved.args[0].values.flags.c_contiguous
    assert moved.args[1].shape == (5,)
    assert moved.kwargs == {"axis": 1, "k": 1}
    assert moved.label.endswith("drawn, along axis 1 instead of 0")


def test_default_axis_is_moved() -> None:
    def fn(xp: Any, a: Any, axis: int = -1) -> Any:
        return a * 1

    assert along(Sample((MAKE((2, 3)),)), fn=fn) == [((3, 2), -2), ((3, 2), 0), ((2, 3), 1)]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="no axis"),
        pytest.param({"axis": None}, id="all axes"),
        pytest.param({"axis": (0, 1)}, id="several"),
        pytest.param({"axis": True}, id="a truth value"),
        pytest.param({"axis": 0, "k": [1]}, id="an option that is not plain"),
    ],
)
def test_axis_that_is_not_an_integer_stays(given: dict[str, Any]) -> None:
    assert along(call(**given)) == []


def test_axis_beyond_the_array_moves_nothing() -> None:
    assert along(Sample((MAKE((2, 3)),), {"axis": 2})) == [((2, 3), axis) for axis in (-2, -1, 0, 1)]
    assert along(Sample((MAKE((2, 3)),), {"axis": -3})) == [((2, 3), axis) for axis in (-2, -1, 0, 1)]
    assert along(Sample((MAKE((2, 3)),), {"axis": -2}))[0] == ((3, 2), -1)


def test_sample_of_the_most_axes_is_added() -> None:
    vector, block = Sample((MAKE(40),), {"axis": 0}), Sample((MAKE((2, 1, 3)),), {"axis": 0})

    assert {len(shape) for shape, _ in along(vector, block)} == {1, 3}
    assert [shape for shape, _ in along(block, block)].count((2, 1, 3)) == 1


@pytest.mark.parametrize(("shape", "count"), [((2, 1, 1024), 6), ((3, 1, 683), 1)], ids=["2048", "2049"])
def test_sample_of_the_most_axes_has_at_most_2048_elements(shape: tuple[int, ...], count: int) -> None:
    assert len(along(Sample((MAKE(2048),), {"axis": 0}), Sample((MAKE(shape),), {"axis": 0}))) == count


def test_axes_that_are_rejected_are_left_out() -> None:
    def picky(a: Any, axis: int) -> Any:
        if axis == -1:
            raise ValueError("from the front")
        return a * 1

    base = Sample((MAKE((2, 3)),), {"axis": 0})

    assert along(base, reference=picky) == [((2, 3), -2), ((3, 2), 1)]
    assert along(base, fn=like(picky)) == [((2, 3), -2), ((3, 2), 1)]
    assert along(base, reference=None) == []


def beyond(fn: Any, reference: Any = lambda a, axis: np.sum(a, axis=axis), *samples: Sample) -> str:
    """What the check says; empty if it passes."""
    spec = spec_of(*(samples or (call(axis=0),)), fn=fn, reference=reference)
    try:
        check_axis_beyond(spec, CPU, FLOAT32)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("taken", "axis"),
    [(range(-2, 3), 2), (range(-3, 2), -3), (range(-9, 9), 2), (range(-2, 2), None), (range(-9, -3), None)],
    ids=str,
)
def test_axis_beyond_the_array_must_be_rejected(taken: Any, axis: int | None) -> None:
    def fn(xp: Any, a: Any, axis: int) -> Any:
        if axis not in (0, *taken):
            raise ValueError("no such axis")
        return xp.sum(a, axis=axis % 2)

    told = beyond(fn)

    message = f"axis={axis} of arrays of 2 dimensions gives a result, but the reference raises AxisError: "
    assert told.startswith("" if axis is None else message)
    assert (told == "") is (axis is None)


def folded(xp: Any, a: Any, axis: Any = None) -> Any:
    return xp.sum(a, axis=axis % 2 if type(axis) is int else axis)


def test_axis_beyond_that_the_reference_takes_or_rejects_otherwise_is_left_alone() -> None:
    def rejecting_it(a: Any, axis: int) -> Any:
        if axis not in (0, 1):
            raise ValueError("no such axis")
        return np.sum(a, axis=axis)

    assert beyond(folded) != ""
    assert beyond(folded, lambda a, axis: np.sum(a, axis=axis % 2)) == ""
    assert beyond(folded, rejecting_it) == ""
    assert beyond(folded, None) == ""
    assert beyond(folded, lambda a, axis: np.sum(a, axis=axis), call(axis=None)) == ""
    assert "sample: " in beyond(folded)
