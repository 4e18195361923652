"""Which numbers far beyond the samples are tried, and which wrong results for them are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import far
from cuassay.testing.generated.far import (
    check_branch_cuts,
    check_far,
    check_far_complex,
    check_large_complex,
    check_small_complex,
)
from cuassay.testing.samples import HostArray, Samples

CPU = Device("cpu")
MAKE = Samples(1, "float32")


def spec_of(fn: Any, reference: Any, dtype: str = "float32", samples: Any = None, **fields: Any) -> OpSpec:
    samples = samples or (lambda make: [make(9)])
    return OpSpec(fn=fn, reference=reference, name="given", dtypes=(dtype,), samples=samples, **fields)


def drawn(spec: OpSpec) -> Sample:
    return next(spec.draw(1, spec.dtypes[0]))


def check(checked: Any, fn: Any, reference: Any, dtype: str = "float32", samples: Any = None) -> str:
    spec = spec_of(fn, reference, dtype, samples)
    return failure(checked, spec, CPU, np.dtype(dtype), drawn(spec))


# ------------------------------------------------------------------------------------------------ what is tried


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("times 128", [192.0, -256.0]),
        ("negative, times 2^20", [-1.5 * 2**20, -(2.0**21)]),
        ("positive, times 2^34", [1.5 * 2**34, 2.0**35]),
    ],
)
def test_numbers_are_multiplied(label: str, expected: list[float]) -> None:
    found = far._FAR[label](np.array([1.5, -2.0], np.float32))

    assert (found.tolist(), found.dtype) == (expected, np.float32)
    assert list(far._FAR) == ["times 128", "negative, times 2^20", "positive, times 2^34"]


def test_factors_keep_the_digits_of_float64_and_of_integers() -> None:
    assert far._times(2.0)(np.array([1 + 2.0**-50])).tolist() == [2 + 2.0**-49]
    assert far._times(2.0)(np.array([2**30 + 1], np.int64)).tolist() == [2**31 + 2]
    assert far._times(0.5, sign=1)(np.array([-(2**30 + 2)], np.int32)).tolist() == [2**29 + 1]


COMPLEX = HostArray(np.array([1 + 2j, -3j], np.complex64), is_free=True)


def test_free_complex_arrays_are_changed() -> None:
    real, ranged = MAKE(2), HostArray(COMPLEX.values, span=(-1, 1))
    given = Sample((COMPLEX, real, ranged, COMPLEX.values, 2j), {"axis": 0}, "drawn")
    found = list(far._of_other_units(given, (3, -1)))

    assert [one.args[0].values.tolist() for one in found] == [[8 + 16j, -24j], [0.5 + 1j, -1.5j]]
    assert [one.label for one in found] == ["drawn, times 2^3", "drawn, times 2^-1"]
    for one in found:
        assert all(new is old for new, old in zip(one.args[1:], given.args[1:], strict=True))
        assert (one.kwargs, one.args[0].dtype) == ({"axis": 0}, np.complex64)
    assert [one.label for one in far._of_other_units(given)] == ["drawn, times 2^80", "drawn, times 2^-80"]


def test_nothing_is_tried_without_free_complex_numbers() -> None:
    assert list(far._of_other_units(Sample((MAKE(2), HostArray(COMPLEX.values), 3)))) == []


def test_imaginary_parts_become_a_signed_zero_in_a_copy() -> None:
    array = np.array([1 + 2j, -4 - 1j])
    for zero in (0.0, -0.0):
        found = far._with_imaginary(array, zero)
        assert found.real.tolist() == [1, -4]
        assert found.imag.tolist() == [0, 0]
        assert (np.signbit(found.imag) == np.signbit(zero)).all()
    assert array.tolist() == [1 + 2j, -4 - 1j]


# ------------------------------------------------------------------------------------------------ real numbers


def softplus(a: Any) -> Any:
    return np.logaddexp(0, a)


@pytest.mark.parametrize(
    ("fn", "label"),
    [
        pytest.param(lambda xp, a: xp.log1p(xp.exp(a)), "times 128", id="an exponential overflows"),
        pytest.param(lambda xp, a: softplus(xp.maximum(a, -1e5)) - (a < -1e5), "negative, times 2^20", id="a mask"),
        pytest.param(lambda xp, a: xp.minimum(softplus(a), np.float32(1e9)), "positive, times 2^34", id="a minimum"),
    ],
)
def test_numbers_far_beyond_the_samples_are_tried(fn: Any, label: str) -> None:
    found = check(check_far, fn, softplus)

    assert "wrong for numbers far beyond the samples" in found
    assert f"0: shape 9, {label}" in found
    assert not check(check_far, lambda xp, a: softplus(a), softplus)


def test_nothing_is_tried_without_a_reference() -> None:
    for checked, dtype in (
        (check_far, "float32"), (check_far_complex, "complex64"), (check_small_complex, "complex64"),
        (check_large_complex, "complex64"), (check_branch_cuts, "complex64"),
    ):  # fmt: skip
        assert not check(checked, lambda xp, a: xp.nan_to_num(a * 3).clip(-400, 400), None, dtype)


def test_numbers_that_the_reference_refuses_are_not_tried() -> None:
    def refusing(a: Any) -> Any:
        if np.abs(a).max() > 9:
            raise RuntimeError("too large")
        return softplus(a)

    assert not check(check_far, lambda xp, a: xp.log1p(xp.exp(a)), refusing)


# ------------------------------------------------------------------------------------------------ what is compared


def decided(got: Any, reference: Any, dtype: str = "float32", numbers: Any = (1.0, 2.0, 4.0), **fields: Any) -> str:
    """The failure of a function that gives these numbers for the given ones."""
    spec = spec_of(lambda xp, a: np.asarray(got), reference, dtype, lambda make: [make.of(list(numbers))], **fields)
    return failure(far._compare_decided, spec, CPU, np.dtype(dtype), drawn(spec))


def tripled(a: Any) -> Any:
    return a * 3


EPS = np.finfo(np.float32).eps


@pytest.mark.parametrize(
    ("got", "reference", "is_found"),
    [
        pytest.param([3, 6, 12], tripled, False, id="right"),
        pytest.param([3, 6, 12 * (1 + 2.0**-10)], tripled, True, id="wrong"),
        pytest.param([3, 6], tripled, False, id="another shape"),
        pytest.param([3, 6, 13], lambda a: a * 3 if a.dtype == np.float64 else (a * 3)[:2], False, id="a narrow shape"),
        pytest.param([3, 6, 13], lambda a: a * 3 if a.dtype == np.float64 else 1 / 0, False, id="narrow fails"),
        pytest.param([3, 6, 13], lambda a: a * 3 + (a.dtype == np.float32), False, id="the reference is not sure"),
        pytest.param(
            [3, 6, 13], lambda a: a * 3 + (a.dtype == np.float32) * (a > 3), False, id="not sure of the wrong one"
        ),
        pytest.param(
            [3, 7, 13], lambda a: a * 3 + (a.dtype == np.float32) * (a > 3), True, id="sure of another wrong one"
        ),
        pytest.param([], lambda a: a[:0], False, id="nothing"),
    ],
)
def test_floats_are_compared_where_the_reference_gives_the_same_in_the_dtype(
    got: Any, reference: Any, is_found: bool
) -> None:
    found = decided(np.array(got, np.float32), reference)

    assert bool(found) is is_found


@pytest.mark.parametrize(("off", "is_found"), [(0, False), (137, False), (139, True)], ids=str)
def test_function_may_be_four_times_less_precise_than_the_reference(off: int, is_found: bool) -> None:
    """In float32 the reference is off by 32 units; 4 times as many are allowed, and 10 for rounding."""

    def reference(a: Any) -> Any:
        return a * (1 + 32 * EPS if a.dtype == np.float32 else 1)

    got = np.array([1, 1, 1 + off * EPS], np.float32)

    assert bool(decided(got, reference, numbers=(1.0, 1.0, 1.0))) is is_found


def test_effect_of_the_last_digits_of_inputs_is_allowed() -> None:
    """The inputs' last digits change the difference by many of its own units."""
    shift = np.float32(1) - np.float32(2.0**-12)
    got = np.array([2.0**-12 + 2.0**-23] * 3, np.float32)

    assert not decided(got, lambda a: a - shift, numbers=(1.0, 1.0, 1.0))
    assert decided(got + np.float32(2.0**-16), lambda a: a - shift, numbers=(1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("got", "reference", "is_found"),
    [
        pytest.param([1, 2, 4], lambda a: a, False, id="right"),
        pytest.param([1, 2, 5], lambda a: a, True, id="wrong"),
        pytest.param([1, 1, 2], lambda a: a * 0 + 1, True, id="constant"),
        pytest.param([7, 6, 5], lambda a: 8 - a, False, id="smaller than for half of the inputs"),
        pytest.param([1, 2, 5], lambda a: a + (a.dtype == np.float32) * (a > 3), False, id="not sure of it"),
    ],
)
def test_integers_are_compared_where_they_grow(got: Any, reference: Any, is_found: bool) -> None:
    found = decided(np.array(got), lambda a: reference(a).astype(np.int64))

    assert bool(found) is is_found


@pytest.mark.parametrize("kind", ["int32", "bool"])
def test_results_of_another_kind_are_not_compared(kind: str) -> None:
    assert not decided(np.array([1, 0, 0]).astype(kind), tripled)


@pytest.mark.parametrize(
    ("got", "is_equal"),
    [([1.0, -2.0], True), ([1 + EPS, -2.0], True), ([1 + 2 * EPS, -2.0], False), ([1.0, -2 * (1 + EPS)], True),
     ([1.0, -2 * (1 + 2 * EPS)], False), ([1 - 2 * EPS, -2.0], False), ([np.nan, -2.0], False)],
    ids=str,
)  # fmt: skip
def test_results_are_equal_within_one_unit(got: Any, is_equal: bool) -> None:
    with np.errstate(all="raise"):
        assert far._is_equal(np.array(got, np.float32), np.array([1.0, -2.0])) is is_equal


def test_infinite_results_do_not_warn() -> None:
    with np.errstate(all="raise"):
        assert not far._is_equal(np.array([np.inf]), np.array([np.inf]))


def grows(reference: Any, numbers: Any) -> Any:
    spec = spec_of(lambda xp, a: reference(a), reference, samples=lambda make: [make(3)])
    sample = Sample((HostArray(np.array(numbers, np.float32), is_free=True),))
    found = far._grows(spec, sample, spec.expected(sample))
    return found if isinstance(found, bool) else found.tolist()


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param(lambda a: a.astype(np.int64), [True, True, True], id="of the same sign"),
        pytest.param(lambda a: np.sign(a).astype(np.int64), [True, True, True], id="as large"),
        pytest.param(lambda a: np.full(3, 2**24 + 3), [True, True, True], id="as large, with 25 bits"),
        pytest.param(lambda a: 5 - np.abs(a).astype(np.int64), [False, False, False], id="smaller"),
        pytest.param(lambda a: np.where(np.abs(a) < 3, 3, -9), [True, False, False], id="of another sign"),
        pytest.param(lambda a: np.where(np.abs(a) < 3, 0, -9), [True, True, True], id="zero before"),
    ],
)
def test_integers_grow_with_the_inputs(reference: Any, expected: Any) -> None:
    assert grows(reference, [2, 4, -4]) == expected


def test_integers_of_another_shape_do_not_grow() -> None:
    assert grows(lambda a: a[np.abs(a) >= 2].astype(np.int64), [2, 4, -4]) is False


def test_integers_do_not_grow_where_the_reference_refuses_half_of_the_inputs() -> None:
    def refusing(a: Any) -> Any:
        if np.abs(a).max() == 2:
            raise ValueError("too small")
        return a.astype(np.int64)

    assert grows(refusing, [2, 4, -4]) is False


# ------------------------------------------------------------------------------------------------ complex numbers


def size_by_squares(xp: Any, a: Any) -> Any:
    return xp.sqrt(a.real**2 + a.imag**2)


def test_squares_of_complex_numbers_that_overflow_are_found() -> None:
    found = check(check_far_complex, size_by_squares, np.abs, "complex64")

    assert "does an exponential overflow" in found
    assert "times 2^80" in found
    assert not check(check_far_complex, lambda xp, a: abs(a), np.abs, "complex64")
    assert not check(check_far_complex, size_by_squares, np.abs, "complex128")
    assert not check(check_far_complex, size_by_squares, lambda a: size_by_squares(np, a), "complex64")


def test_squares_of_complex_numbers_that_underflow_are_found() -> None:
    found = check(check_far_complex, lambda xp, a: abs(a) * (abs(a) > 1e-9), np.abs, "complex64")

    assert "times 2^-80" in found


def test_complex_result_of_another_shape_is_not_compared() -> None:
    def reference(a: Any) -> Any:
        return np.abs(a) if a.dtype == np.complex128 else np.abs(a)[1:]

    assert not check(check_far_complex, size_by_squares, reference, "complex64")


def test_small_complex_numbers_that_lose_digits_are_found() -> None:
    found = check(check_small_complex, lambda xp, a: xp.exp(a) - 1, np.expm1, "complex128")

    assert "wrong for small complex numbers: does a difference lose their digits?" in found
    assert "times 2^-27" in found
    assert not check(check_small_complex, lambda xp, a: np.expm1(a), np.expm1, "complex128")


def tangent(xp: Any, a: Any) -> Any:
    return (xp.exp(a) - xp.exp(-a)) / (xp.exp(a) + xp.exp(-a))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_large_complex_numbers_that_give_nan_are_found(dtype: str) -> None:
    found = check(check_large_complex, tangent, np.tanh, dtype)

    assert "NaN for large complex numbers: is infinity divided by infinity?" in found
    assert "times 2^9" in found
    assert not check(check_large_complex, lambda xp, a: np.tanh(a), np.tanh, dtype)
    assert not check(check_large_complex, tangent, lambda a: tangent(np, a), dtype)


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        pytest.param(lambda xp, a: np.tanh(a) * 2, np.tanh, id="wrong, but not NaN"),
        pytest.param(lambda xp, a: tangent(xp, a).real, lambda a: np.tanh(a).real, id="a real result"),
        pytest.param(lambda xp, a: tangent(xp, a)[1:], np.tanh, id="another shape"),
        pytest.param(tangent, lambda a: np.tanh(a) if a.dtype == np.complex128 else np.tanh(a)[1:], id="narrow shape"),
        pytest.param(tangent, lambda a: np.tanh(a) if a.dtype == np.complex128 else 1 / 0, id="narrow fails"),
        pytest.param(
            tangent, lambda a: np.tanh(a) * (1 if a.dtype == np.complex128 else np.nan), id="NaN in the dtype itself"
        ),
    ],
)
def test_large_complex_numbers_are_compared_only_where_nan_is_lost(fn: Any, reference: Any) -> None:
    assert not check(check_large_complex, fn, reference, "complex64")


@pytest.mark.parametrize("zero", ["0", "-0"])
def test_ignored_sign_of_zero_on_a_branch_cut_is_found(zero: str) -> None:
    def root(xp: Any, a: Any) -> Any:
        is_wrong = (a.imag == 0) & (np.signbit(a.imag) == (zero == "-0"))
        return xp.where(is_wrong, np.conj(xp.sqrt(a)), xp.sqrt(a))

    found = check(check_branch_cuts, root, np.sqrt, "complex64")

    assert "wrong on a branch cut: is the sign of zero ignored?" in found
    assert found.endswith(f"imaginary parts of {zero}")
    assert not check(check_branch_cuts, lambda xp, a: xp.sqrt(a), np.sqrt, "complex64")


@pytest.mark.parametrize(
    ("checked", "fn", "reference"),
    [
        (check_far_complex, size_by_squares, np.abs),
        (check_small_complex, lambda xp, a: xp.exp(a) - 1, np.expm1),
        (check_large_complex, tangent, np.tanh),
        (check_branch_cuts, lambda xp, a: xp.sqrt(a.real + 0j), np.sqrt),
    ],
)
def test_complex_numbers_that_the_reference_refuses_are_not_tried(checked: Any, fn: Any, reference: Any) -> None:
    def refusing(a: Any) -> Any:
        if not 0.1 < np.abs(a).max() < 9 or not a.imag.any():
            raise RuntimeError("not such numbers")
        return reference(a)

    assert not check(checked, fn, refusing, "complex64")


def test_wide_complex_numbers_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(far, "_of_other_units", lambda sample: asked.append(sample.args[0].dtype) or [])

    assert not check(check_far_complex, lambda xp, a: abs(a), np.abs, "complex64")
    assert not check(check_far_complex, lambda xp, a: abs(a), np.abs, "complex128")
    assert asked == [np.complex64]
