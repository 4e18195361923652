"""Which integers of one sample are put into another, and how many integers of a range are tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import crossed
from cuassay.testing.generated.crossed import check_crossed, check_many_integers
from cuassay.testing.samples import HostArray, Samples

CPU, INT32 = Device("cpu"), np.dtype("int32")
MAKE = Samples(1, "int32")


def chance() -> np.random.Generator:
    return np.random.default_rng(3)


def drawn(size: Any, low: int, high: int, dtype: str = "int32") -> HostArray:
    return Samples(1, "int32")(size, low=low, high=high, dtype=dtype)


# ------------------------------------------------------------------------------------------------ options of another


def test_list_is_called_with_the_options_of_another_sample() -> None:
    arrays = [MAKE(3)]
    one, other = Sample((arrays,), {"axis": 0, "mode": "a"}, "one"), Sample((arrays,), {"axis": 1}, "other")

    (found,) = crossed._of_list(one, other)

    assert (found.args, dict(found.kwargs)) == ((arrays,), {"axis": 1, "mode": "a"})
    assert found.label == "one, with the options of: other"


@pytest.mark.parametrize(
    ("args", "mine", "theirs"),
    [
        pytest.param((MAKE(3),), {"axis": 0}, {"axis": 1}, id="no list"),
        pytest.param(([MAKE(3)],), {"axis": 0}, {}, id="no options"),
        pytest.param(([MAKE(3)],), {"axis": 0}, {"axis": 0}, id="the same options"),
        pytest.param(([MAKE(3)],), {"w": np.ones(2)}, {"w": np.ones(2)}, id="equal arrays"),
    ],
)
def test_call_does_not_get_the_options_of_another(args: Any, mine: Any, theirs: Any) -> None:
    assert list(crossed._of_list(Sample(args, mine), Sample(args, theirs))) == []


# ------------------------------------------------------------------------------------------------ integers of another


@pytest.mark.parametrize(
    ("given", "is_drawn"),
    [
        pytest.param(drawn(9, 0, 5), True, id="of a range"),
        pytest.param(drawn(2, 0, 5), True, id="two"),
        pytest.param(drawn(1, 0, 5), False, id="one"),
        pytest.param(drawn(9, 0, 5, "uint8"), True, id="unsigned"),
        pytest.param(drawn(9, 0, 5, "float32"), False, id="floats"),
        pytest.param(MAKE(9), False, id="free"),
        pytest.param(HostArray(np.array([3, 1, 1])), False, id="fixed"),
        pytest.param(np.array([3, 1, 1]), False, id="of NumPy"),
        pytest.param(3, False, id="a number"),
    ],
)
def test_unordered_integers_of_a_range_are_drawn(given: Any, is_drawn: bool) -> None:
    assert crossed._is_drawn(given) is is_drawn


@pytest.mark.parametrize(
    ("theirs", "has_others"),
    [
        pytest.param(np.array([2, 5], np.int32), False, id="inside"),
        pytest.param(np.array([1, 5], np.int32), True, id="below"),
        pytest.param(np.array([2, 6], np.int32), True, id="above"),
        pytest.param(np.array([2, 6], np.int64), False, id="another dtype"),
        pytest.param(np.array([], np.int32), False, id="nothing"),
        pytest.param(np.array([1, 0, 2], np.int32), False, id="a permutation"),
        pytest.param([1, 9], False, id="a list"),
        pytest.param(9, False, id="a number"),
    ],
)
def test_other_integers_are_outside_the_range(theirs: Any, has_others: bool) -> None:
    assert crossed._has_other_integers(HostArray(np.array([3, 2, 3], np.int32), span=(2, 5)), theirs) is has_others
    assert not crossed._has_other_integers(HostArray(np.array([3, 2, 3], np.int32)), theirs)


def test_integers_of_another_sample_are_drawn_three_times() -> None:
    weight = HostArray(np.ones(6))
    sample = Sample((drawn((2, 3), 0, 5), drawn(30, 7, 9), weight, 4), {"axis": 0}, "one")
    other = Sample((drawn(50, 20, 22), drawn(4, 7, 9), weight, 5), {"axis": 1}, "other")

    found = list(crossed._crossed(sample, other, chance()))

    assert len(found) == 3
    for one in found:
        assert set(one.args[0].values.reshape(-1).tolist()) <= {20, 21, 22}
        assert (one.args[0].shape, one.args[0].dtype) == ((2, 3), np.int32)
        assert set(one.args[1].values.tolist()) == {7, 8, 9}
        assert (one.args[2] is weight, one.args[3], one.kwargs) == (True, 4, {"axis": 0})
        assert one.label == "one, with the integers of input 0 of: other"
    assert (found[0].args[1].values != sample.args[1].values).any()
    assert (found[0].args[1].values != found[1].args[1].values).any()


def test_integers_of_several_inputs_are_named() -> None:
    sample, other = (Sample((drawn(9, low, 5 + low), drawn(9, low, 5 + low)), {}, "one") for low in (0, 9))

    assert {one.label for one in crossed._crossed(sample, other, chance())} == {
        "one, with the integers of input 0, 1 of: one"
    }


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Sample((drawn(9, 0, 5),)), id="the same range"),
        pytest.param(Sample((drawn(9, 10, 15), 3)), id="more arguments"),
        pytest.param(Sample((drawn(9, 10, 15, "int64"),)), id="another dtype"),
    ],
)
def test_nothing_is_crossed(other: Sample) -> None:
    assert list(crossed._crossed(Sample((drawn(9, 0, 5),)), other, chance())) == []


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_integers_are_drawn_between_both_ends(dtype: str) -> None:
    found = crossed._drawn(drawn(9, 3, 5, dtype), (40,), chance())

    assert (set(found.tolist()), found.dtype) == ({3, 4, 5}, np.dtype("uint64" if dtype == "uint64" else "int64"))


def test_array_of_the_host_is_contiguous_and_of_the_given_dtype() -> None:
    found = crossed._host_array(np.arange(6).reshape(2, 3).T, drawn(3, 0, 5, "int8"))

    assert (found.values.flags.c_contiguous, found.dtype, found.values[0].tolist()) == (True, np.int8, [0, 3])


# ------------------------------------------------------------------------------------------------ the checks


def spec_of(fn: Any, reference: Any, samples: Any, dtypes: Any = ("int32",)) -> OpSpec:
    return OpSpec(fn=fn, reference=reference, name="given", dtypes=dtypes, samples=samples)


def two_ranges(make: Any) -> list[Any]:
    return [Sample((make(9, low=low, high=low + 5),), {"shift": shift}) for low, shift in ((0, 1), (20, 2))]


def wrong_if_crossed(xp: Any, a: Any, shift: int) -> Any:
    return a + shift + ((a >= 20) & (shift == 1))


def shifted(a: Any, shift: int) -> Any:
    return a + shift


def cross(fn: Any, reference: Any, samples: Any) -> str:
    return failure(check_crossed, spec_of(fn, reference, samples), CPU, INT32)


def test_fault_of_integers_with_an_option_of_another_sample_is_found() -> None:
    found = cross(wrong_if_crossed, shifted, two_ranges)

    assert "wrong for others: with the integers of input 0 of: 1" in found
    assert not cross(lambda xp, a, shift: a + shift, shifted, two_ranges)
    assert not cross(wrong_if_crossed, None, two_ranges)


def test_integers_that_the_reference_refuses_are_not_crossed() -> None:
    def refusing(a: Any, shift: int) -> Any:
        if shift == 1 and a.max() >= 20:
            raise RuntimeError("too large")
        return a + shift

    assert not cross(wrong_if_crossed, refusing, two_ranges)


@pytest.mark.parametrize(("size", "is_found"), [(9000, True), (9001, False)])
def test_samples_of_at_most_9000_elements_are_crossed(size: int, is_found: bool) -> None:
    def samples(make: Any) -> list[Any]:
        return [Sample((make(size, low=low, high=low + 5),), {"shift": shift}) for low, shift in ((0, 1), (20, 2))]

    assert bool(cross(wrong_if_crossed, shifted, samples)) is is_found


@pytest.mark.parametrize(("before", "is_found"), [(4, True), (5, False)])
def test_six_samples_are_crossed(before: int, is_found: bool) -> None:
    def samples(make: Any) -> list[Any]:
        return [*(Sample((make(9, low=0, high=5),), {"shift": 3}) for _ in range(before)), *two_ranges(make)]

    assert bool(cross(wrong_if_crossed, shifted, samples)) is is_found


def of_lists(make: Any) -> list[Any]:
    return [
        Sample(([make(4), make(0)],), {"shift": 1}, "with an empty one"), Sample(([make(4), make(4)],), {"shift": 2}),
    ]  # fmt: skip


def joined(arrays: Any, shift: int) -> Any:
    return np.concatenate([array + shift for array in arrays])


def breaks_if_crossed(xp: Any, arrays: Any, shift: int) -> Any:
    if shift == 2:
        arrays[1].reshape(4)
    return xp.concatenate([array + shift for array in arrays])


def wrong_list_if_crossed(xp: Any, arrays: Any, shift: int) -> Any:
    return xp.concatenate([array + shift + (shift == 2 and len(arrays[1]) == 0) for array in arrays])


def test_list_that_breaks_with_the_options_of_another_sample_is_found() -> None:
    found = cross(breaks_if_crossed, joined, of_lists)

    assert "the reference gives a result, and the function breaks: ValueError: cannot reshape" in found
    assert "sample: with an empty one, with the options of: 1" in found


def test_wrong_list_with_the_options_of_another_sample_is_found() -> None:
    found = cross(wrong_list_if_crossed, joined, of_lists)

    assert "out of tolerance" in found
    assert "with the options of: 1" in found
    assert not cross(lambda xp, arrays, shift: xp.concatenate([x + shift for x in arrays]), joined, of_lists)


@pytest.mark.parametrize("fn", [breaks_if_crossed, wrong_list_if_crossed])
def test_options_that_the_reference_refuses_are_not_crossed(fn: Any) -> None:
    def refusing(arrays: Any, shift: int) -> Any:
        if shift == 2 and not arrays[1].size:
            raise RuntimeError("an empty array")
        return joined(arrays, shift)

    assert not cross(fn, refusing, of_lists)


# ------------------------------------------------------------------------------------------------ very many


class Met:
    """A function that adds one, and keeps the arrays of its longest call."""

    def __init__(self) -> None:
        self.longest: tuple[Any, ...] = (np.zeros(0),)

    def __call__(self, xp: Any, *args: Any) -> Any:
        if args[0].size > self.longest[0].size:
            self.longest = args
        return args[0] + 1


def many(*args: Any, reference: Any = None, seconds: float | None = None) -> tuple[Any, ...]:
    """The arrays of the longest call, for a reference that takes the given seconds."""
    met = Met()
    spec = spec_of(met, reference or (lambda *args: args[0] + 1), lambda make: [make(3)], ("int32", "uint8", "int8"))
    if seconds is not None:
        vars(spec)["timed"] = lambda sample: (spec.expected(sample), seconds)
    met.longest = (np.zeros(0),)
    assert not failure(check_many_integers, spec, CPU, INT32, Sample(args))
    return met.longest


def test_every_integer_of_a_range_is_tried() -> None:
    (found,) = many(drawn(9, -7000, 7000))

    assert found.shape == (2**14,)
    assert set(found.tolist()) == set(range(-7000, 7001))
    assert found.dtype == np.int32


def test_wide_range_is_drawn_from() -> None:
    (found,) = many(drawn(9, -(10**6), 10**6))

    assert (found.size, found.min() >= -(10**6), found.max() <= 10**6) == (2**14, True, True)
    assert len(set(found.tolist())) > 2**13


def test_range_of_as_many_integers_as_are_tried_is_tried_whole() -> None:
    assert len(set(many(drawn(9, 0, 2**14 - 1))[0].tolist())) == 2**14
    assert len(set(many(drawn(9, 0, 2**14))[0].tolist())) < 2**14


def test_rows_of_a_matrix_are_added() -> None:
    assert many(drawn((3, 5), 0, 9))[0].shape == (2**14 // 5 + 1, 5)
    assert many(drawn((3, 1, 5), 0, 9))[0].shape == (2**14 // 5 + 1, 1, 5)


def test_at_most_twice_as_many_integers_are_tried_as_are_asked_for() -> None:
    assert many(drawn((3, 2, 5), 0, 9))[0].size == 30


def test_integers_of_two_arrays_are_drawn() -> None:
    first, second = many(drawn(9, 0, 9), drawn(9, 100, 109))

    assert (first.size, second.size) == (2**14, 2**14)
    assert (set(first.tolist()), set(second.tolist())) == (set(range(10)), set(range(100, 110)))


@pytest.mark.parametrize(
    "args",
    [
        pytest.param((drawn(9, 0, 9), 3), id="a number"),
        pytest.param((drawn(9, 0, 9), drawn(8, 0, 9)), id="two shapes"),
        pytest.param((drawn(9, 0, 9), MAKE(9)), id="free integers"),
        pytest.param((drawn(9, 0, 9), drawn(9, 0, 9).values), id="of NumPy"),
        pytest.param((drawn(2**14, 0, 9),), id="as many already"),
    ],
)
def test_not_many_integers_are_tried(args: Any) -> None:
    assert many(*args)[0].size <= args[0].values.size


def test_no_arrays_are_no_integers() -> None:
    spec = spec_of(lambda xp, a: a + 1, None, lambda make: [make(3)])

    assert not failure(check_many_integers, spec, CPU, INT32, Sample(()))


@pytest.mark.parametrize(
    ("seconds", "size"), [(0.0, 2**14), (0.2 * 9 / 100, 100), (0.2 * 9 / 10, 10), (0.2 * 9 / 8.9, 9), (1.0, 9)]
)
def test_reference_takes_a_fifth_of_a_second(seconds: float, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpSpec, "timed", lambda self, sample: (None, seconds))
    met = Met()
    spec = spec_of(met, lambda a: a + 1, lambda make: [make(3)])
    calls = Sample((drawn(9, 0, 9),))
    monkeypatch.setattr(OpSpec, "expected", lambda self, sample: sample.host()[0][0].astype(np.int64) + 1)

    check_many_integers(spec, CPU, INT32, calls)

    assert abs(met.longest[0].size - size) <= 1


def test_one_wrong_integer_of_a_range_is_found() -> None:
    spec = spec_of(lambda xp, a: a + (a == 4321), lambda a: a * 1, lambda make: [make(9, low=0, high=9999)])

    found = failure(check_many_integers, spec, CPU, INT32, Sample((drawn(9, 0, 9999),), {}, "drawn"))

    assert "wrong for others: very many of its integers" in found


def test_many_integers_that_the_reference_refuses_are_not_tried() -> None:
    def refusing(a: Any) -> Any:
        if a.size > 9:
            raise RuntimeError("too many")
        return a * 1

    spec = spec_of(lambda xp, a: a + (a.size > 9), refusing, lambda make: [make(9, low=0, high=9999)])

    assert not failure(check_many_integers, spec, CPU, INT32, Sample((drawn(9, 0, 9999),)))
    never = spec_of(
        lambda xp, a: a + 1, lambda a: refusing(np.zeros(10)) if a.max() > 9000 else a, lambda make: [make(3)]
    )
    assert not failure(check_many_integers, never, CPU, INT32, Sample((drawn(99, 0, 9999),)))
