"""Where a reference in the dtype itself decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import natively
from cuassay.testing.generated.natively import check_far_units, check_orders, check_predicate, decided, with_number
from cuassay.testing.samples import HostArray

CPU, SIM, FLOAT32 = Device("cpu"), Device("sim"), np.dtype("float32")
EPS = 2.0**-23


@pytest.mark.parametrize(
    ("narrow", "expected", "size", "is_decided"),
    [
        (1 + 64 * EPS, 1.0, 1.0, True),
        (1 + 65 * EPS, 1.0, 1.0, False),
        (1 - 65 * EPS, 1.0, 1.0, False),
        (1 + 65 * EPS, 1.0, 2.0, True),
        (np.inf, 1.0, 1.0, False),
        (1.0, np.nan, 1.0, False),
        (1.0, np.inf, np.inf, False),
        (1j, 1j, 1.0, True),
        (2j, 1j, 1.0, False),
    ],
)
def test_a_narrow_answer_decides_where_it_is_off_by_rounding_only(
    narrow: complex, expected: complex, size: float, is_decided: bool
) -> None:
    kind, wide = (np.complex64, np.complex128) if isinstance(narrow, complex) else (np.float32, np.float64)
    found = decided(np.array([narrow], kind), np.array([expected], wide), "float32", size)

    assert found.tolist() == [is_decided]


@pytest.mark.parametrize(("size", "part", "place"), [(9, 1 / 3, 3), (9, 0.5, 4), (1, 0.5, 0), (9, 1.0, 8), (9, 0.0, 0)])
def test_a_number_is_put_behind_a_part_of_the_others(size: int, part: float, place: int) -> None:
    array = np.zeros((1, size))

    assert np.flatnonzero(with_number(7.0, part)(array)).tolist() == [place]
    assert not array.any()
    assert np.flatnonzero(with_number(7.0)(np.zeros(9))).tolist() == [3]


def test_narrow_result_is_compared_in_float64() -> None:
    """The difference of two float32 numbers may need more digits than float32 has."""
    found = decided(np.array([1 + EPS], np.float32), np.array([1 - 63.5 * EPS]), "float32", 1.0)

    assert found.tolist() == [False]


# ------------------------------------------------------------------------------------------------ units


def free(values: Any, dtype: Any = np.float32) -> HostArray:
    return HostArray(np.asarray(values, dtype), is_free=True)


ONES = Sample((free(np.linspace(1, 2, 9)),), label="drawn")


def spec_of(fn: Any, reference: Any, dtype: str = "float32", samples: Any = None) -> OpSpec:
    return OpSpec(
        fn=lambda xp, *given: fn(*given), reference=reference, name="f", dtypes=(dtype,),
        samples=samples or (lambda make: [make(9)]),
    )  # fmt: skip


def units(fn: Any, reference: Any, device: Device = CPU, dtype: str = "float32") -> str:
    sample = Sample((free(np.linspace(1, 2, 9), dtype),), label="drawn")
    return failure(check_far_units, spec_of(fn, reference, dtype), device, np.dtype(dtype), sample)


def met_units(reference: Any, device: Device = CPU, dtype: str = "float32") -> list[float]:
    """The binary exponents of the first number, in the order in which they are tried."""
    met: list[float] = []

    def fn(a: Any) -> Any:
        met.append(round(np.log2(np.float64(a.reshape(-1)[0])), 3))
        return reference(a)

    assert units(fn, reference, device, dtype) == ""
    return list(dict.fromkeys(one for one in met if abs(one) > 3))


@pytest.mark.parametrize(
    ("reference", "device", "dtype", "exponents"),
    [
        pytest.param(lambda a: a * 2, CPU, "float32", [80, -80], id="floats"),
        pytest.param(lambda a: a * 2, CPU, "float16", [10, -10], id="float16"),
        pytest.param(lambda a: a * 2, CPU, "float64", [], id="float64"),
        pytest.param(lambda a: a > 1, CPU, "float32", [80, -80, 126, -132], id="truth values"),
        pytest.param(lambda a: (a > 1).astype("int32"), CPU, "float32", [80, -80, 126, -132], id="integers"),
        pytest.param(lambda a: (a > 1).astype("uint8"), CPU, "float32", [80, -80, 126, -132], id="unsigned"),
        pytest.param(lambda a: (a > 1).sum(), CPU, "float32", [80, -80, 126], id="a count"),
        pytest.param(lambda a: a > a.mean(), CPU, "float32", [80, -80, 126], id="of all numbers"),
    ],
)
def test_units_in_which_numbers_are_tried(reference: Any, device: Device, dtype: str, exponents: list[float]) -> None:
    assert met_units(reference, device, dtype) == exponents


def test_subnormal_numbers_are_tried_on_the_host_alone() -> None:
    def flushing(a: Any) -> Any:
        """Wrong for subnormal numbers."""
        return abs(a) > 2.0**-126

    nonzero = lambda a: abs(a) > 0  # noqa: E731

    assert "sample: drawn, all subnormal" in units(flushing, nonzero)
    assert units(flushing, nonzero, SIM) == ""
    assert units(nonzero, nonzero, SIM) == ""


def norm(a: Any) -> Any:
    return np.sqrt((a * a).sum(keepdims=True))


def safe_norm(a: Any) -> Any:
    most = np.abs(a).max()
    return most * norm(a / most)


def test_result_that_is_lost_in_an_intermediate_step_is_found() -> None:
    said = units(norm, safe_norm)

    assert said.startswith(
        "right for the sample's own numbers, wrong for others: times 2^80; if such numbers are not meant, give the "
        "samples a range: make(shape, low=, high=)"
    )
    assert "sample: drawn, times 2^80" in said
    assert "in units of 2^-80" in units(lambda a: norm(a) if a[0] < 1 else safe_norm(a), safe_norm)
    assert units(safe_norm, safe_norm) == ""


def test_result_that_the_reference_loses_too_is_not_compared() -> None:
    assert units(norm, norm) == ""


def test_step_that_overflows_in_the_reference_excuses_the_result() -> None:
    wrong_above = lambda fn: lambda a: fn(a) ^ (a > 2**70)  # noqa: E731
    squared, plain = (lambda a: a * a > 4), (lambda a: a > 4)

    assert units(wrong_above(squared), squared) == ""
    assert units(wrong_above(plain), plain) != ""


def test_units_that_the_reference_rejects_are_not_tried() -> None:
    def picky(a: Any) -> Any:
        if a[0] > 2**70:
            raise ValueError("too large")
        return safe_norm(a)

    assert "in units of 2^-80" in units(norm, picky)


@pytest.mark.parametrize(
    ("reference", "is_of_each"),
    [
        pytest.param(lambda a: a > 1.5, True, id="truth values"),
        pytest.param(lambda a: np.sign(a).astype("int32"), True, id="integers"),
        pytest.param(lambda a: (a > 1.5).astype("uint8"), True, id="unsigned"),
        pytest.param(lambda a: a * 2, False, id="floats"),
        pytest.param(lambda a: (a > 1.5)[:5], False, id="another shape"),
        pytest.param(lambda a: a > a.mean(), False, id="of all numbers"),
        pytest.param(lambda a: np.argsort(a), False, id="positions"),
    ],
)
def test_results_of_each_number_alone(reference: Any, is_of_each: bool) -> None:
    assert natively._is_of_each_number(spec_of(reference, reference), ONES) is is_of_each


def in_two_places(most: float) -> Any:
    """A number above `most` changes the next result too."""
    return lambda a: (a > most) | (np.roll(a, 1) > most)


@pytest.mark.parametrize(
    ("reference", "is_of_each"),
    [
        pytest.param(lambda a: a > 65503, True, id="one result changes"),
        pytest.param(in_two_places(65503), False, id="two results change"),
        pytest.param(in_two_places(65504), True, id="none changes"),
        pytest.param(lambda a: a > 1 if a.max() < 9 else 1 // 0, False, id="rejected"),
    ],
)
def test_one_huge_number_is_that_of_float16_and_may_change_one_result(reference: Any, is_of_each: bool) -> None:
    assert natively._is_of_each_number(spec_of(reference, reference), ONES) is is_of_each


# ------------------------------------------------------------------------------------------------ what is compared


def compared(got: Any, expected: Any, narrow: Any = None, **options: Any) -> str:
    """The failure of one result; `narrow` is the reference's result in float32, and the size is that of the input 1."""
    given = [np.asarray(one) for one in (got, expected, expected if narrow is None else narrow)]
    spec = OpSpec(
        fn=lambda xp, a: given[0], reference=lambda a: given[1], name="f", dtypes=("float32",),
        samples=lambda make: [make(given[1].shape)],
    )  # fmt: skip
    sample = Sample((free(np.ones(given[1].shape)),), label="drawn")
    return failure(natively._compare_decided, spec, CPU, FLOAT32, sample, given[2], **options)


F = np.float32


@pytest.mark.parametrize(
    ("got", "expected", "narrow", "is_found"),
    [
        pytest.param(F([2]), F([1]), F([1]), True, id="wrong"),
        pytest.param(F([1]), F([1]), F([1]), False, id="right"),
        pytest.param(F([2]), F([1]), F([3]), False, id="undecided"),
        pytest.param(F([2, 7]), F([1, 7]), F([1, 3]), True, id="decided once"),
        pytest.param(F([1, 7]), F([1, 2]), F([1, 3]), False, id="wrong where undecided"),
        pytest.param(F([2, 2]), F([1]), F([1]), False, id="another shape"),
        pytest.param(F([2]), F([1]), F([1, 1]), False, id="another narrow shape"),
        pytest.param([2], [1], [1], True, id="integers"),
        pytest.param([1], [1], [1], False, id="right integers"),
        pytest.param([2], [1], [3], False, id="undecided integers"),
        pytest.param([True], [False], [False], True, id="truth values"),
        pytest.param(F([2]), [1], [1], False, id="floats for integers"),
        pytest.param(F([1]), F([0]), F([0]), True, id="zero"),
        pytest.param(F([1]), F([2.0**-103]), F([2.0**-103]), False, id="the least size"),
        pytest.param(F([1]), F([2.0**-102]), F([2.0**-102]), True, id="above the least size"),
        pytest.param(F([1]), F([np.inf]), F([np.inf]), False, id="infinite"),
    ],
)
def test_results_are_compared_where_the_reference_is_right_in_the_dtype_itself(
    got: Any, expected: Any, narrow: Any, is_found: bool
) -> None:
    assert bool(compared(got, expected, narrow)) is is_found


@pytest.mark.parametrize(("roundings", "is_found"), [(255, False), (300, True)])
def test_by_result_four_times_64_roundings_of_it_are_allowed(roundings: int, is_found: bool) -> None:
    got = np.array([2.0**-20 * (1 + roundings * EPS)], np.float32)

    assert bool(compared(got, np.array([2.0**-20]), by_result=True)) is is_found
    assert compared(got, np.array([2.0**-20])) == ""


@pytest.mark.parametrize(("error", "is_found"), [(0.1, False), (1.0, True)])
def test_last_digits_of_inputs_may_move_a_result_twice(error: float, is_found: bool) -> None:
    steep = lambda a: 1e6 * (a - 1) + 1  # noqa: E731
    sample = Sample((free([1.0]),))
    spec = spec_of(lambda a: np.float32([1 + error]), steep, samples=lambda make: [make(1)])

    said = failure(natively._compare_decided, spec, CPU, FLOAT32, sample, np.float32([1]))

    assert bool(said) is is_found


# ------------------------------------------------------------------------------------------------ orders


@pytest.mark.parametrize(
    ("given", "is_wide"),
    [
        (HostArray(np.ones(3), span=(1.0, 100.0)), True),
        (HostArray(np.ones(3), span=(1.0, 99.0)), False),
        (HostArray(np.ones(3), span=(-100.0, -1.0)), True),
        (HostArray(np.ones(3), span=(-1.0, 100.0)), False),
        (HostArray(np.ones(3), span=(0.0, 100.0)), False),
        (HostArray(np.ones(3)), False),
        (HostArray(np.ones(3, np.int64), span=(1.0, 100.0)), False),
        (HostArray(np.ones(0), span=(1.0, 100.0)), False),
        (np.ones(3), False),
        (3.0, False),
    ],
    ids=["100", "99", "negative", "both signs", "zero", "no range", "integers", "empty", "an array", "a number"],
)
def test_ranges_of_one_sign_and_two_orders_are_wide(given: Any, is_wide: bool) -> None:
    assert natively._is_wide(given) is is_wide


def orders(fn: Any, reference: Any, *spans: Any) -> tuple[str, list[Any]]:
    """The failure, and the arrays of the last call."""
    met: list[Any] = []
    arrays = [HostArray(np.ones((3, 7), np.float32), span=span) for span in spans]

    def noting(*given: Any) -> Any:
        met[:] = [one.copy() for one in given]
        return fn(*given)

    spec = spec_of(noting, reference, samples=lambda make: [tuple(make((3, 7), low=1, high=2) for _ in spans)])
    return failure(check_orders, spec, CPU, FLOAT32, Sample(tuple(arrays), label="drawn")), met


def test_numbers_of_each_order_of_magnitude_are_tried() -> None:
    said, (wide, negative, narrow) = orders(
        lambda a, b, c: a * 1, lambda a, b, c: a * 1, (1e-3, 1e3), (-8.0, -8e-6), (1.0, 2.0)
    )

    assert said == ""
    assert np.sort(wide.reshape(-1)) == pytest.approx(np.geomspace(1e-3, 1e3, 21), rel=1e-6)
    assert np.sort(negative.reshape(-1)) == pytest.approx(np.geomspace(-8.0, -8e-6, 21), rel=1e-6)
    assert (narrow == 1).all()
    assert (wide.shape, wide.dtype) == ((3, 7), np.float32)
    assert (np.diff(wide.reshape(-1)) < 0).any()


def test_digits_that_are_lost_for_small_numbers_are_found() -> None:
    lossy, precise = (lambda a: np.log(1 + a)), np.log1p

    said, _ = orders(lossy, precise, (1e-6, 1.0))
    assert "sample: drawn, numbers of each order of magnitude of the range" in said
    assert orders(precise, precise, (1e-6, 1.0))[0] == ""
    assert orders(lossy, lossy, (1e-6, 1.0))[0] == ""
    assert orders(lossy, None, (1e-6, 1.0))[0] == ""
    assert orders(lossy, precise, (0.5, 1.0))[0] == ""


def test_numbers_that_the_reference_rejects_are_left_out() -> None:
    def picky(a: Any) -> Any:
        if a.min() < 1e-3:
            raise ValueError("too small")
        return np.log1p(a)

    assert orders(lambda a: np.log(1 + a), picky, (1e-6, 1.0))[0] == ""


# ------------------------------------------------------------------------------------------------ predicates


def predicate(fn: Any, reference: Any, *arrays: Any) -> str:
    given = tuple(arrays) or (free(np.linspace(1, 2, 9)),)
    spec = spec_of(fn, reference, samples=lambda make: [tuple(make(9) for _ in given)])
    return failure(check_predicate, spec, CPU, FLOAT32, Sample(given, label="drawn"))


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan], ids=str)
def test_wrong_truth_value_for_a_special_number_is_found(number: float) -> None:
    def fn(a: Any) -> Any:
        return (a > 1.5) ^ ((a == number) | (np.isnan(a) & np.isnan(number)))

    assert f"sample: drawn, one number is {number}" in predicate(fn, lambda a: a > 1.5)
    assert predicate(lambda a: a > 1.5, lambda a: a > 1.5) == ""


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        pytest.param(lambda a: (a > 1.5) ^ np.isnan(a), None, id="its own reference"),
        pytest.param(lambda a: np.where(np.isnan(a), 7, a), lambda a: a * 1, id="floats"),
        pytest.param(lambda a: np.isnan(a).any(), lambda a: a.sum() < 0, id="not element by element"),
        pytest.param(
            lambda a: (a > 1.5) ^ ~np.isfinite(a), lambda a: a > 1.5 if np.isfinite(a).all() else 1 // 0, id="rejected"
        ),
    ],
)
def test_other_results_for_special_numbers_are_not_compared(fn: Any, reference: Any) -> None:
    assert predicate(fn, reference) == ""


def test_special_numbers_are_put_into_both_arrays_and_into_the_first_alone() -> None:
    first, second = free(np.ones(9)), free(np.full(9, 2.0))
    found = list(natively._with_specials(Sample((first, second, 3), label="drawn")))

    assert [one.label for one in found] == [
        f"drawn, one number {of}is {number}" for number in ("inf", "-inf", "nan") for of in ("", "of the first input ")
    ]
    places = [[np.flatnonzero(~np.isfinite(one.args[at].values)).tolist() for at in (0, 1)] for one in found]
    assert places == [[[3], [3]], [[3], []]] * 3
    assert str(found[2].args[0].values[3]) == "-inf"
    assert len(list(natively._with_specials(Sample((first,))))) == 3
