"""Which calls are put together from samples, and how their results are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import ErrorInput, OpSpec, Sample
from cuassay.testing.generated import combined
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.samples import HostArray, Samples
from cuassay.testing.tolerance import FEWER_DIGITS

CPU = Device("cpu")
FLOAT32 = np.dtype("float32")
MAKE = Samples(1, "float32")


def spec_of(fn: Callable[..., Any], reference: Any, samples: Any = None, **declared: Any) -> OpSpec:
    return OpSpec(
        fn=lambda xp, a, **options: fn(a, **options), reference=reference, name="f", dtypes=("float32",),
        samples=samples or (lambda make: [make(9)]), **declared,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw fewer calls, because a check of 256 takes half a second."""
    monkeypatch.setattr(combined, "_MOST_CALLS", 48)


def checked(spec: OpSpec) -> str:
    return failure(CHECKS["combined"], spec, "cpu:0", FLOAT32)


def same(a: Any) -> Any:
    return a * 1


def test_a_right_function_passes() -> None:
    assert not checked(spec_of(same, same, lambda make: [make(9), make((3, 4))]))


def one_more(a: Any) -> Any:
    return a + 1


def in_place_if_large(a: Any) -> Any:
    if a.size > 60:
        a += 1
        return a
    return a + 1


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        pytest.param(in_place_if_large, "the result is an input, or a view of one", id="in place"),
        pytest.param(lambda a: a + (2 if a.shape == (3, 3) else 1), "wrong for a mixture of them", id="a square"),
        pytest.param(
            lambda a: np.where(a == 2.5, 0, a + 1).astype(a.dtype), "wrong for a number of the function's code",
            id="a number",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_a_mixture_is_found(fn: Any, said: str) -> None:
    spec = OpSpec(
        fn=lambda xp, a: fn(a), reference=one_more, name="f", dtypes=("float32",),
        samples=lambda make: [make((3, 4)), make(9)],
    )  # fmt: skip

    assert said in checked(spec)


def test_a_declared_message_for_a_call_that_the_reference_accepts_is_found() -> None:
    def bounded(a: Any, k: int, most: int) -> Any:
        if k > most:
            raise ValueError("k is beyond the rows")
        return a[k:]

    def declared(off: int) -> OpSpec:
        return OpSpec(
            fn=lambda xp, a, k: bounded(a, k, a.shape[0] - off), reference=lambda a, k: bounded(a, k, a.shape[0]),
            name="f", dtypes=("float32",),
            samples=lambda make: [Sample((make((6, 2)),), {"k": 1}), Sample((make((3, 2)),), {"k": 2})],
            error_inputs=lambda make: [
                ErrorInput(Sample((make((3, 2)),), {"k": 9}), error=ValueError, match="k is beyond the rows")
            ],
        )  # fmt: skip

    assert not checked(declared(0))
    assert "the function rejects this call" in checked(declared(1))


def test_the_first_six_samples_get_named_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    monkeypatch.setattr(combined, "_with_named_numbers", lambda spec, base: tried.append(base.args[0].values.size))
    monkeypatch.setattr(combined, "_systematic_calls", lambda spec, bases: ())
    monkeypatch.setattr(combined, "_random_calls", lambda spec, bases: ())

    assert not checked(spec_of(same, same, lambda make: [make(size) for size in (2**13 + 1, 2**13, *range(11, 18))]))
    assert tried == [2**13, 11, 12, 13, 14, 15]


def test_at_most_128_calls_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def counted(*args: Any, **options: Any) -> None:
        nonlocal count
        count += 1

    monkeypatch.setattr(combined, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(combined, "_MOST_CALLS", 256)
    monkeypatch.setattr(combined, "_with_named_numbers", lambda spec, base: None)
    monkeypatch.setattr(combined, "_compare", counted)

    assert not checked(spec_of(same, same))
    assert count == 128


# ------------------------------------------------------------------------------------------------ calls


def shapes_of(spec: OpSpec, *bases: Sample) -> list[Any]:
    """The shapes of the first argument of each systematic call."""
    return [sample.args[0].shape for _, sample in combined._systematic_calls(spec, bases)]


def test_extents_are_made_equal_in_pairs_and_all_together() -> None:
    spec = spec_of(same, same)

    assert shapes_of(spec, Sample((MAKE((3, 4)),))) == [(4, 4), (3, 3)]
    assert shapes_of(spec, Sample((MAKE((3, 1)),))) == []
    assert shapes_of(spec, Sample((MAKE((2, 3, 4)),))) == [
        (3, 3, 4), (4, 3, 4), (2, 2, 4), (2, 4, 4), (2, 3, 2), (2, 3, 3), (4, 4, 4),
    ]  # fmt: skip
    assert len(shapes_of(spec, Sample((MAKE((2, 3, 4, 5)),)))) == 6 + 1


def test_six_samples_are_changed_in_a_fixed_order() -> None:
    bases = [Sample((MAKE((3, 4)),)) for _ in range(8)]

    assert len(shapes_of(spec_of(same, same), *bases)) == 12


def test_an_axis_of_a_broadcast_sample_is_cut() -> None:
    bases = [Sample((MAKE((2, 1, 4)), MAKE(4)), kind=kind, label="drawn") for kind in ("values", "broadcast")]
    cut = [
        sample for _, sample in combined._systematic_calls(spec_of(same, same), bases) if "one element" in sample.label
    ]

    assert [tuple(one.shape for one in sample.args) for sample in cut] == [
        ((1, 1, 4), (4,)), ((2, 1, 1), (4,)), ((2, 1, 4), (1,)),
    ]  # fmt: skip
    assert (cut[0].args[0].values == bases[1].args[0].values[:1]).all()
    assert cut[1].label == "drawn, axis 2 of input 0 has one element"


@pytest.mark.parametrize(
    ("options", "is_declared"),
    [
        pytest.param({"axis": 1}, True, id="one"),
        pytest.param({"axis": 2}, True, id="another sample's"),
        pytest.param({"axis": 3}, False, id="new"),
        pytest.param({"axis": 1, "mode": "wrap"}, True, id="of two samples"),
        pytest.param({"mode": "clip"}, False, id="a new word"),
        pytest.param({"weights": [1]}, False, id="an equal list"),
        pytest.param({}, True, id="none"),
    ],
)
def test_options_of_samples_are_declared(options: Any, is_declared: bool) -> None:
    bases = [Sample((), {"axis": 1}), Sample((), {"axis": 2, "mode": "wrap", "weights": [1]})]

    assert combined._has_declared_options(bases, Sample((), options)) is is_declared
    assert combined._has_declared_options(bases, bases[1])


def test_calls_of_equal_shapes_and_options_are_alike() -> None:
    base = Sample((MAKE((3, 4)),), {"axis": 1})

    assert combined._is_alike(base, Sample((MAKE((3, 4)),), {"axis": 1}))
    assert not combined._is_alike(base, Sample((MAKE((4, 3)),), {"axis": 1}))
    assert not combined._is_alike(base, Sample((MAKE((3, 4)),), {"axis": 0}))
    assert not combined._is_alike(base, Sample((MAKE((3, 4)),), {}))


def test_a_combination_has_the_extents_and_options_that_are_asked_for() -> None:
    base = Sample((MAKE((3, 4)), 5), {"axis": 0})
    found = combined._combination(spec_of(same, same), base, {3: 7}, Sample(base.args, {"axis": 1}), None)

    assert found.args[0].shape == (7, 4)
    assert (found.args[1], found.kwargs) == (5, {"axis": 1})
    assert found.label == "arrays of 7x4, options {'axis': 1}"


@pytest.mark.parametrize(("extent", "shape"), [(2**11, (2**11, 4)), (2**11 + 1, (3, 4))])
def test_a_combination_has_at_most_8192_elements(extent: int, shape: tuple[int, ...]) -> None:
    base = Sample((MAKE((3, 4)),))

    assert combined._combination(spec_of(same, same), base, {3: extent}, base, None).args[0].shape == shape


def test_an_array_that_keeps_its_shape_keeps_its_numbers() -> None:
    base = Sample((MAKE((3, 4)), MAKE(4)))
    found = combined._combination(spec_of(same, same), base, {3: 7}, base, None)

    assert found.args[1] is base.args[1]


def test_one_axis_in_four_is_broadcast() -> None:
    chance = np.random.default_rng(1)
    found = [combined._broadcast((3, 0, 4), chance) for _ in range(400)]

    assert set(found) == {(3, 0, 4), (1, 0, 4), (3, 0, 1)}
    assert 40 < sum(shape != (3, 0, 4) for shape in found) < 100
    assert combined._broadcast((), chance) == ()


def test_extents_become_others_of_the_call_or_of_a_list() -> None:
    chance, base = np.random.default_rng(1), Sample((MAKE((6, 11, 1)),))
    drawn = [combined._extents(base, chance) for _ in range(400)]
    new = [one[6] for one in drawn if 6 in one]

    assert set().union(*drawn) == {6, 11}
    assert 130 < len(new) < 270
    assert {6, 11} <= set(new)
    assert {1, 520} <= set(new) <= {6, 11, *combined._EXTENTS}


@pytest.mark.parametrize(
    ("args", "extents"),
    [
        pytest.param((MAKE((4, 3)), MAKE((1, 7))), [3, 4, 7], id="floats"),
        pytest.param((MAKE((4, 3)), np.array([0, 2, 4])), [], id="row offsets"),
        pytest.param((MAKE((4, 3)), HostArray(np.array([0, 1, 4, 3]))), [], id="offsets of host arrays"),
        pytest.param((MAKE((4, 3)), MAKE(3, dtype="int32", low=0, high=9)), [3, 4], id="drawn integers"),
        pytest.param((MAKE((4, 3)), np.ones(3, np.float32)), [3, 4], id="fixed floats"),
    ],
)
def test_extents_that_fixed_integers_describe_stay(args: Any, extents: list[int]) -> None:
    assert combined._extents_of(Sample(args)) == extents


# ------------------------------------------------------------------------------------------------ numbers of the code


def limited(a: Any) -> Any:
    return np.minimum(a, 2.5) + 1e5 * 0


def logarithm(a: Any) -> Any:
    return np.log2(a)


def test_half_of_the_floats_are_numbers_of_the_code() -> None:
    base = Sample((MAKE(400),), label="drawn")
    found = combined._with_named_numbers(spec_of(limited, limited), base)

    assert found is not None
    assert found.label == "drawn, numbers from the function's code"
    changed = found.args[0].values[found.args[0].values != base.args[0].values]
    assert 140 < changed.size < 260
    assert 2.5 in changed
    assert np.abs(changed).max() <= 1e4
    assert not np.isin(changed, 2.0**-4).any()


@pytest.mark.parametrize(("low", "high"), [(1.0, 2.0), (2.5, 3.0)])
def test_numbers_of_the_code_stay_in_the_range(low: float, high: float) -> None:
    base = Sample((MAKE(400, low=low, high=high),))
    found = combined._with_named_numbers(spec_of(limited, limited), base)

    values = found.args[0].values if found is not None else base.args[0].values
    assert low <= values.min() <= values.max() <= high
    assert (2.5 in values) is (low <= 2.5 <= high)


def test_numbers_next_to_powers_of_two_are_tried_with_a_logarithm() -> None:
    base = Sample((MAKE(2000, low=0.01, high=2000),))
    found = combined._with_named_numbers(spec_of(logarithm, logarithm), base)

    assert found is not None
    below = np.nextafter(np.float32(2), np.float32(0))
    assert {2.0**-4, 2.0, float(below), 1024.0} <= set(found.args[0].values.tolist())
    assert not {2.0**-5, 2048.0} & set(found.args[0].values.tolist())


def test_both_signs_of_powers_and_the_next_smaller_numbers_are_known() -> None:
    powers, below, negative, negative_below = combined._next_to_powers(FLOAT32)

    assert powers.tolist() == [2.0**power for power in range(-4, 11)]
    assert (below < powers).all()
    assert (below.astype(np.float32) == np.nextafter(powers.astype(np.float32), np.float32(0))).all()
    assert (negative == -powers).all()
    assert (negative_below == -below).all()


def test_a_call_without_arrays_to_change_is_not_tried() -> None:
    assert (
        combined._with_named_numbers(spec_of(limited, limited), Sample((HostArray(np.ones(3, np.float32)), 3))) is None
    )


# ------------------------------------------------------------------------------------------------ comparison


@pytest.mark.parametrize(
    ("options", "is_larger"),
    [
        pytest.param({"degree": 4}, False, id="as large"),
        pytest.param({"degree": 5}, True, id="larger"),
        pytest.param({"degree": -5}, True, id="larger and negative"),
        pytest.param({"degree": 3}, False, id="between"),
        pytest.param({"degree": "five"}, False, id="a word"),
        pytest.param({"order": 9}, False, id="of no sample"),
        pytest.param({}, False, id="none"),
    ],
)
def test_an_option_larger_than_any_declared_one_costs_digits(options: Any, is_larger: bool) -> None:
    bases = [Sample((), {"degree": -4}), Sample((), {"degree": 2}), Sample((), {"order": "C"})]

    assert combined._least_error(bases, Sample((), options)) == (FEWER_DIGITS if is_larger else 0.0)


def compared(got: Any, expected: Any, values: Any = None, **options: Any) -> str:
    """The failure of a function that gives `got`."""
    given = np.ones(3, np.float32) if values is None else values
    spec = spec_of(lambda a: np.array(got) if np.shape(got) else a[:0] * 1.0, lambda a: np.array(expected))
    return failure(combined._compare, spec, CPU, FLOAT32, Sample((given,)), Sample((given,), label="mixed"), **options)


ONE = np.float32(1)


@pytest.mark.parametrize(
    ("got", "expected", "is_found"),
    [
        pytest.param([ONE, ONE], [1.0, 1.0], False, id="right"),
        pytest.param([ONE, 2 * ONE], [1.0, 1.0], True, id="wrong"),
        pytest.param([ONE, 2 * ONE], [1.0, np.nan], False, id="NaN expected"),
        pytest.param([ONE, 2 * ONE], [1.0, np.inf], False, id="infinity expected"),
        pytest.param([ONE, ONE], [1.0], True, id="another shape"),
        pytest.param([1, 2], [1, 3], True, id="integers"),
        pytest.param([1, 2], [1, 2], False, id="right integers"),
    ],
)
def test_finite_results_are_compared(got: Any, expected: Any, is_found: bool) -> None:
    found = compared(got, expected)

    assert bool(found) is is_found
    assert ("sample: mixed" in found) is is_found
    assert bool(compared(got, expected, is_exact=True)) is is_found


@pytest.mark.parametrize(("floor", "is_found"), [(0.2, False), (0.02, True)])
def test_a_least_error_is_relative_to_the_largest_result(floor: float, is_found: bool) -> None:
    got, expected = [ONE, 10 * ONE, np.float32(np.inf)], [2.0, 10.0, np.inf]

    assert bool(compared(got, expected, floor=floor)) is is_found
    assert bool(compared([*got[:2], ONE], [2.0, 10.0, np.nan], floor=floor)) is is_found


def test_an_empty_result_of_another_dtype_fails_as_a_comparison() -> None:
    empty = np.zeros(0, np.float32)
    spec = spec_of(lambda a: a.astype(np.float64), same, result_dtype="float32")

    assert "float64" in failure(combined._compare, spec, CPU, FLOAT32, Sample((empty,)), Sample((empty,)))


def test_a_result_that_is_an_input_fails_if_others_are_not() -> None:
    spec, sample = spec_of(lambda a: a, same), Sample((np.ones(3, np.float32),), label="mixed")

    assert not failure(combined._compare, spec, CPU, FLOAT32, sample, sample)
    found = failure(combined._compare, spec, CPU, FLOAT32, sample, sample, is_own=True)
    assert "the result is an input, or a view of one" in found
    assert "sample: mixed" in found


def test_integers_that_wrap_in_the_reference_are_not_compared() -> None:
    given = np.array([100, 1], np.int8)
    spec = OpSpec(
        fn=lambda xp, a: np.array([7, 2], np.int8), reference=lambda a: a + a, name="double", dtypes=("int8",),
        samples=lambda make: [make(2, low=0, high=9)],
    )  # fmt: skip

    sample, small = Sample((given,)), Sample((np.array([3, 1], np.int8),))
    assert not failure(combined._compare, spec, CPU, np.dtype("int8"), sample, sample)
    assert failure(combined._compare, spec, CPU, np.dtype("int8"), small, small)


@pytest.mark.parametrize(("is_exact", "is_found"), [(False, False), (True, True)])
def test_an_integer_at_a_step_may_be_the_next_one_unless_numbers_are_exact(is_exact: bool, is_found: bool) -> None:
    values = np.array([1.0, 2.5], np.float32)
    spec = spec_of(lambda a: np.floor(a).astype(np.int64) - (a == 1), lambda a: np.floor(a).astype(np.int64))
    sample = Sample((values,), label="mixed")

    assert bool(failure(combined._compare, spec, CPU, FLOAT32, sample, sample, is_exact=is_exact)) is is_found


@pytest.mark.parametrize(("is_exact", "is_found"), [(False, False), (True, True)])
def test_where_the_last_digit_decides_on_the_shape_nothing_is_compared(is_exact: bool, is_found: bool) -> None:
    spec = spec_of(lambda a: a[a >= 1] * ONE * 3, lambda a: a[a >= 1])
    sample = Sample((np.array([1.0, 2.5, 1.0], np.float32),), label="mixed")

    assert bool(failure(combined._compare, spec, CPU, FLOAT32, sample, sample, is_exact=is_exact)) is is_found


@pytest.mark.parametrize(("rounding", "off", "is_found"), [(0.0, 0.05, True), (0.25, 0.95, False), (0.25, 1.05, True)])
def test_four_times_the_rounding_error_on_the_host_is_allowed(
    rounding: float, off: float, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combined, "host_rounding", lambda spec, sample: rounding)

    assert bool(compared([ONE, ONE, np.float32(1 + off)], [1.0, 1.0, 1.0])) is is_found


def test_integers_are_put_next_to_multiples_of_numbers_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(lambda a: a % 640, lambda a: a % 640)
    given = Samples(1, "int32")(200, low=0, high=2000, dtype="int32")
    floats = Sample((given, 3), {"axis": 0}, label="drawn")

    found = combined._with_named_numbers(spec, floats)

    assert found is not None
    assert {639, 640, 641} <= set(found.args[0].values.tolist())
    assert (found.args[0].dtype, found.args[1], found.kwargs) == (np.int32, 3, {"axis": 0})
    assert found.label == "drawn, numbers from the function's code"


def test_call_with_numbers_of_the_code_is_compared_as_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    exact: list[bool] = []

    def compare(*given: Any, is_exact: bool = False, **options: Any) -> None:
        exact.append(is_exact)

    monkeypatch.setattr(combined, "_compare", compare)
    spec = spec_of(limited, limited)

    assert not checked(spec)
    assert exact[0] is True
    assert exact.count(True) == 1
    assert len(exact) > 1


def test_each_square_matrix_in_turn_describes_a_path() -> None:
    matrix, ones, fixed = Samples(1, "float32")((6, 6)), Samples(1, "float32")(6), HostArray(np.ones((6, 6)))
    base = Sample((ones, matrix, fixed, 4, matrix), {"axis": 0}, label="drawn")

    found = list(combined._along_paths(base, np.random.default_rng(0)))

    assert [one.label for one in found] == [f"drawn, input {place} is a graph of one path" for place in (1, 4)]
    for place, one in zip((1, 4), found, strict=True):
        changed = [at for at, (new, old) in enumerate(zip(one.args, base.args, strict=True)) if new is not old]
        assert changed == [place]
        assert (one.args[place].shape, one.kwargs) == ((6, 6), {"axis": 0})
