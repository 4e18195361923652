"""Which errors checks of intermediate precision and of special numbers allow, and where they compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import precision, special
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.comparison import explained_rounding, host_rounding
from cuassay.testing.generated.filling import conditioning, last_digit_moves
from cuassay.testing.rounding_error import rounding_error
from cuassay.testing.samples import HostArray
from cuassay.testing.tolerance import FUNCTION, Tolerance, allowed

CPU, HALF, FLOAT32 = Device("cpu"), np.dtype("float16"), np.dtype("float32")
EPS = 2.0**-10


@dataclass
class Compared:
    """The samples that are compared, with what is expected and allowed."""

    samples: list[Sample] = field(default_factory=list)
    expected: list[Any] = field(default_factory=list)
    limits: list[Any] = field(default_factory=list)
    dtypes: list[Any] = field(default_factory=list)

    def __call__(self, spec: OpSpec, device: Device, dtype: Any, sample: Sample, result: Any, **options: Any) -> None:
        self.samples.append(sample)
        self.dtypes.append(np.dtype(dtype).name)
        self.expected.append(options.get("expected"))
        self.limits.append(options.get("limit"))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Compared:
    """What is compared, without comparing it."""
    found = Compared()
    monkeypatch.setattr(precision, "compare_values", found)
    monkeypatch.setattr(special, "compare_values", found)
    return found


def given(*arrays: Any) -> Sample:
    return Sample(tuple(HostArray(np.asarray(one), is_free=True) for one in arrays), label="drawn")


def spec_of(reference: Any, fn: Any = None, dtype: str = "float16", samples: Any = None, **fields: Any) -> OpSpec:
    def same(xp: Any, *arrays: Any) -> Any:
        return np.asarray(reference(*arrays)).astype(dtype)

    return OpSpec(
        fn=same if fn is None else lambda xp, *arrays: fn(*arrays), reference=reference, name="f", dtypes=(dtype,),
        samples=samples or (lambda make: [make((3, 5))]), **fields,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ sums

TERMS = given(np.resize(np.array([0.25, 0.5], HALF), (3, 4097)))


def total(a: Any) -> Any:
    return a.sum(-1)


def test_sum_may_be_off_by_eight_roundings_those_of_its_inputs_and_a_sum_in_float32(compared: Compared) -> None:
    spec = spec_of(total)
    expected = spec.expected(TERMS)
    own = rounding_error(lambda args, kwargs: spec.run("cpu", args, kwargs), *TERMS.on("cpu"))
    assert own is not None

    precision._check_sums(spec, CPU, TERMS)

    wide = allowed(FUNCTION, np.float32, terms=4097, magnitude=expected)
    assert compared.limits[0] == pytest.approx(8 * EPS * np.abs(expected) + 2 * own.inputs + wide)
    assert compared.dtypes == ["float16"]


def test_running_sum_may_be_off_by_nine_roundings_and_a_sum_in_float32(compared: Compared) -> None:
    spec = spec_of(lambda a: -a.cumsum(-1))
    expected = spec.expected(TERMS)

    precision._check_running_sums(spec, CPU, TERMS)

    wide = allowed(FUNCTION, np.float32, terms=4097, magnitude=expected)
    assert compared.limits[0] == pytest.approx(9 * EPS * np.abs(expected) + wide)
    assert compared.dtypes == ["float16"]


@pytest.mark.parametrize(
    ("reference", "sums", "running"),
    [
        pytest.param(total, True, False, id="sums"),
        pytest.param(lambda a: a.cumsum(-1), False, True, id="running sums"),
        pytest.param(lambda a: (a > 0).sum(-1), False, False, id="counts"),
        pytest.param(lambda a: a.sum(), False, False, id="one sum"),
        pytest.param(lambda a: a * 2, False, False, id="nothing grows"),
        pytest.param(lambda a: a.cumsum(-1) + 1, False, False, id="not proportional"),
        pytest.param(lambda a: (a > 0).cumsum(-1), False, False, id="running counts"),
    ],
)
def test_sums_are_told_from_other_results(reference: Any, sums: bool, running: bool, compared: Compared) -> None:
    spec = spec_of(reference, lambda a: np.asarray(reference(a)))
    precision._check_sums(spec, CPU, TERMS)
    assert len(compared.limits) == sums
    precision._check_running_sums(spec, CPU, TERMS)
    assert len(compared.limits) == sums + running


def rejecting(fn: Any, is_bad: Any) -> Any:
    def picky(*arrays: Any) -> Any:
        if is_bad(*arrays):
            raise ValueError("rejected")
        return fn(*arrays)

    return picky


def test_sums_that_the_reference_rejects_are_not_compared(compared: Compared) -> None:
    picky = rejecting(total, lambda a: a.shape[-1] > 4000)

    precision._check_sums(spec_of(picky), CPU, TERMS)
    precision._check_running_sums(spec_of(picky), CPU, TERMS)
    assert compared.limits == []


@pytest.mark.parametrize(("size", "is_tried"), [(4096, True), (4097, False)])
def test_samples_of_at_most_4096_elements_are_made_long(size: int, is_tried: bool, compared: Compared) -> None:
    spec = spec_of(total, samples=lambda make: [make((2, 4)), make((1, size))])

    CHECKS["accumulation"](spec, CPU)

    rows = {one.args[0].shape[0] for one in compared.samples}
    assert rows == ({1} if is_tried else {2})


# ------------------------------------------------------------------------------------------------ overflow


def of_list(reference: Any, fn: Any, terms: int = 8) -> OpSpec:
    return spec_of(reference, fn, samples=lambda make: [Sample(([make(4), make(4)],))], terms=lambda arrays: terms)


LISTS = Sample(([HostArray(np.ones(4, HALF), is_free=True) for _ in range(2)],), label="drawn")


def overflowed(results: Any, got: Any, compared: Compared, dtype: str = "float64") -> None:
    """Compare results of a sum of lists that are `results` for large numbers."""

    def reference(arrays: Any) -> Any:
        return np.asarray(results if arrays[0][0] > 100 else np.ones(len(results))).astype(dtype)

    precision._check_overflow(of_list(reference, lambda arrays: np.asarray(got)), CPU, LISTS)


def test_errors_of_a_quarter_of_the_largest_result_that_fits_are_allowed(compared: Compared) -> None:
    overflowed([100.0, -400.0, 32751.0, 32752.0, np.inf], np.arange(5.0).astype(HALF), compared)

    assert compared.limits[0].tolist() == [32751 / 4] * 5
    assert compared.expected[0].tolist() == [100, -400, 32751, 3, 4]
    assert compared.samples[0].label == "drawn, times 128"
    assert compared.samples[0].args[0][0].values.tolist() == [128.0] * 4


def test_result_that_does_not_fit_is_taken_as_it_is(compared: Compared) -> None:
    overflowed([1e5, 2e5], np.array([1e5 + 2.0**-30, 2e5]), compared)

    assert compared.expected[0].tolist() == [1e5 + 2.0**-30, 2e5]
    assert compared.limits[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("results", "got", "dtype"),
    [
        pytest.param([1.0, 2.0], [1, 2], "float64", id="integers given"),
        pytest.param([1.0, 2.0], [1.0], "float64", id="another shape"),
        pytest.param([1, 2], [1.0, 2.0], "int64", id="integers expected"),
    ],
)
def test_other_results_of_large_numbers_are_not_compared(
    results: Any, got: Any, dtype: str, compared: Compared
) -> None:
    overflowed(results, got, compared, dtype)

    assert compared.limits == []


@pytest.mark.parametrize(
    ("reference", "terms", "sample", "is_tried"),
    [
        pytest.param(lambda arrays: sum(one.sum() for one in arrays), 8, LISTS, True, id="a sum"),
        pytest.param(lambda arrays: sum(one.sum() for one in arrays), 1, LISTS, False, id="of one term"),
        pytest.param(
            lambda arrays: sum(one.sum() for one in arrays), 8, Sample(([np.ones(4, HALF)] * 2,)), False, id="not free"
        ),
        pytest.param(
            rejecting(lambda arrays: arrays[0].sum(), lambda arrays: arrays[0][0] > 100), 8, LISTS, False, id="rejected"
        ),
    ],
)
def test_sums_of_lists_are_tried_with_large_numbers(
    reference: Any, terms: int, sample: Sample, is_tried: bool, compared: Compared
) -> None:
    spec = of_list(reference, lambda arrays: np.asarray(reference(arrays), HALF), terms)

    precision._check_overflow(spec, CPU, sample)

    assert bool(compared.limits) is is_tried


# ------------------------------------------------------------------------------------------------ products


def test_cancelling_products_may_be_off_by_eight_deviations(compared: Compared) -> None:
    spec = spec_of(lambda a, b: 3 * (a @ b), samples=lambda make: [(make((2, 5)), make((5, 3)))])
    sample = given(np.ones((2, 5), HALF), np.ones((5, 3), HALF))

    precision._check_cancelling(spec, CPU, sample)

    filled = compared.samples[0]
    first, second = (one.values.astype(np.float64) for one in filled.args)
    scale = 3 * (np.abs(first) @ np.abs(second)) / (1024 * 1.457)
    expected = 3 * (first @ second)
    assert compared.expected[0] == pytest.approx(expected)
    assert compared.limits[0] == pytest.approx(4 * EPS * np.abs(expected) + 8 * np.sqrt(1024 / 12) * EPS * scale)


@pytest.mark.parametrize(
    "is_bad",
    [lambda a, b: a.shape[-1] == 1024, lambda a, b: a.shape[-1] == 1024 and (b > 0).all()],
    ids=["all", "positive ones"],
)
def test_products_that_the_reference_rejects_are_not_compared(is_bad: Any, compared: Compared) -> None:
    picky = rejecting(lambda a, b: a @ b, is_bad)
    spec = spec_of(picky, samples=lambda make: [(make((2, 5)), make((5, 3)))])

    precision._check_cancelling(spec, CPU, given(np.ones((2, 5), HALF), np.ones((5, 3), HALF)))

    assert compared.limits == []


def test_float32_result_of_16_bits_may_be_off_by_three_roundings_of_the_host(compared: Compared) -> None:
    def cancelling(a: Any, b: Any) -> Any:
        wide = np.promote_types(a.dtype, "float32")
        return a.astype(wide) * b.astype(wide) + 1000 - 1000

    spec = spec_of(
        lambda a, b: a * b,
        cancelling,
        result_dtype="float32",
        samples=lambda make: [(make((3, 5)), make((3, 5)))],
    )  # fmt: skip

    precision._check_wide_of_narrow(spec, CPU, HALF)

    sample = compared.samples[0]
    args, kwargs = sample.changed(lambda value: HostArray(value.astype(np.float32)))
    single = Sample(args, kwargs)
    magnitude, terms = spec.scale(sample, spec.expected(sample))
    rounding = host_rounding(spec, single)
    limit = allowed(FUNCTION, np.float32, terms=terms, magnitude=magnitude) + 3 * rounding
    assert np.any(rounding > 0)
    assert compared.limits[0] == pytest.approx(limit)
    assert compared.expected[0] == pytest.approx(spec.expected(sample))


@pytest.mark.parametrize(
    ("reference", "fn", "samples", "is_compared"),
    [
        pytest.param(lambda a: a * 2, lambda a: a * np.float32(2), None, True, id="float32"),
        pytest.param(lambda a: a * 2, lambda a: a * np.float64(2), None, True, id="float64"),
        pytest.param(lambda a: a * 2, lambda a: a * 2, None, False, id="float16"),
        pytest.param(lambda a: a * 2, lambda a: (a * np.float32(2))[:1], None, False, id="another shape"),
        pytest.param(
            lambda a: a * 2, lambda a: a * np.float32(2), lambda make: [make((3, 5), dtype="float32")], False,
            id="float32 given",
        ),
        pytest.param(
            lambda a: a * 2, lambda a: a * np.float32(2) if a.dtype == HALF else 1 // 0, None, False, id="float16 alone"
        ),
    ],
)  # fmt: skip
def test_float32_results_of_16_bits_are_compared(
    reference: Any, fn: Any, samples: Any, is_compared: bool, compared: Compared
) -> None:
    spec = spec_of(reference, fn, result_dtype="float32", samples=samples)

    precision._check_wide_of_narrow(spec, CPU, HALF)

    assert bool(compared.limits) is is_compared


@pytest.mark.parametrize(("size", "is_tried"), [(2048, True), (2049, False)])
def test_lists_of_at_most_4096_elements_are_mixed(size: int, is_tried: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    monkeypatch.setattr(precision, "compare", lambda spec, device, dtype, sample, result: tried.append(1))
    spec = OpSpec(
        fn=lambda xp, arrays: arrays[0][:5] + arrays[1][:5], reference=lambda arrays: arrays[0][:5] + arrays[1][:5],
        name="f", dtypes=("float32", "float64"), samples=lambda make: [Sample(([make(2048), make(size)],))],
    )  # fmt: skip

    CHECKS["mixed_lists"](spec, CPU)

    assert bool(tried) is is_tried


# ------------------------------------------------------------------------------------------------ special numbers

NUMBERS = given(np.linspace(-3, 3, 24, dtype=np.float32))


def of_float32(reference: Any, fn: Any = None) -> OpSpec:
    return spec_of(reference, fn, dtype="float32", samples=lambda make: [make(24)])


def test_special_number_may_be_off_by_explained_rounding_and_two_last_digits(compared: Compared) -> None:
    spec = of_float32(lambda a: np.exp(a) - 1)

    assert special._check(spec, CPU, FLOAT32, NUMBERS, NUMBERS) is None

    expected = spec.expected(NUMBERS)
    limit = explained_rounding(spec, FLOAT32, NUMBERS, expected) + 2 * conditioning(spec, NUMBERS)
    assert compared.limits[0] == pytest.approx(limit)
    assert compared.expected[0] == pytest.approx(expected)


def with_special(a: Any) -> Any:
    return np.where(np.arange(a.size) == 1, np.nan, np.where(np.arange(a.size) == 2, np.inf, a))


@pytest.mark.parametrize(
    ("options", "excused"), [({}, [1]), ({"only_finite": True}, [1, 2]), ({"is_finite": True}, None)], ids=str
)
def test_special_results_of_the_reference_are_excused(options: Any, excused: Any, compared: Compared) -> None:
    spec = of_float32(with_special, lambda a: np.full_like(a, 7))

    special._check(spec, CPU, FLOAT32, NUMBERS, NUMBERS, **options)

    if excused is None:
        assert compared.expected == []
    else:
        assert np.flatnonzero(compared.expected[0] == 7).tolist() == excused


def test_result_of_another_shape_is_compared_as_it_is(compared: Compared) -> None:
    special._check(of_float32(with_special, lambda a: a[:5]), CPU, FLOAT32, NUMBERS, NUMBERS)

    assert compared.expected[0].shape == (24,)
    assert np.isnan(compared.expected[0][1])


def test_results_next_to_a_large_number_may_be_off_by_four_last_digits(compared: Compared) -> None:
    """The large number is 8 / epsilon; results that are wrong by 1 do not depend on it."""
    reference = lambda a: a + 5.0  # noqa: E731
    spec = of_float32(reference, lambda a: (a + 5 + (np.arange(a.size) == 20) * (a.max() > 1e6)).astype(a.dtype))

    special._check_spike(spec, CPU, FLOAT32, NUMBERS)

    sample = compared.samples[0]
    expected = spec.expected(sample)
    terms = spec.scale(NUMBERS, spec.expected(NUMBERS))[1]
    limit = allowed(FUNCTION, FLOAT32, terms=terms, magnitude=np.maximum(np.abs(expected), 3.0))
    assert compared.limits[0] == pytest.approx(limit + 4 * last_digit_moves(spec, sample), rel=1e-12)
    assert (last_digit_moves(spec, sample) > 0).any()
    assert sample.args[0].values[4] == 8 / 2.0**-23
    assert sample.label == "drawn, one number is 6.71e+07"


def near_overflow(reference: Any, fn: Any = None, **fields: Any) -> OpSpec:
    return spec_of(reference, fn, samples=lambda make: [make(8)], **fields)


FEW = given(np.array([1, -2, 0.5, -0.25, 1, 1, 2, 3], HALF))


def test_linear_results_near_overflow_may_be_off_by_roundings_of_the_terms(compared: Compared) -> None:
    spec = near_overflow(lambda a: (a - a[::-1]) / 2, terms=lambda a: 9)

    special._check_near_overflow(spec, CPU, HALF, FEW)

    sample = compared.samples[0]
    numbers = sample.args[0].values.astype(np.float64)
    assert numbers == pytest.approx(4094 * np.array([2, 3, 1.5, 1.25, 2, 2, 3, 4]), rel=EPS)
    expected = spec.expected(sample)
    rounding = 4 * 3 * EPS * numbers.max()
    assert compared.limits[0] == pytest.approx(np.maximum(FUNCTION.most * np.abs(expected), rounding))
    assert compared.expected[0] == pytest.approx(expected)
    assert sample.label == "drawn, numbers from 4,094 up"


@pytest.mark.parametrize(
    ("spec", "is_compared"),
    [
        pytest.param(near_overflow(lambda a: a / 2), True, id="linear"),
        pytest.param(near_overflow(None, lambda a: a / 2), False, id="its own reference"),
        pytest.param(near_overflow(lambda a: a + 1), False, id="not linear"),
        pytest.param(near_overflow(lambda a: a / 2, tolerance=Tolerance(ulps=4.0)), True, id="a tolerance"),
        pytest.param(
            near_overflow(lambda a: a / 2, tolerance=Tolerance(ulps=4.0, computed_in="self")), False, id="in float16"
        ),
        pytest.param(near_overflow(rejecting(lambda a: a / 2, lambda a: a.max() > 4000)), False, id="rejected"),
    ],
)
def test_linear_functions_of_float16_are_tried_near_overflow(
    spec: OpSpec, is_compared: bool, compared: Compared
) -> None:
    special._check_near_overflow(spec, CPU, HALF, FEW)

    assert bool(compared.limits) is is_compared


def test_function_that_does_not_declare_float16_is_not_called_in_it() -> None:
    met: set[str] = set()
    spec = OpSpec(
        fn=lambda xp, a: (met.add(a.dtype.name), a * 2)[1], reference=lambda a: a * 2, name="f", dtypes=("bfloat16",),
        samples=lambda make: [make(9)],
    )  # fmt: skip
    met.clear()

    CHECKS["accumulation"](spec, CPU)

    assert met == set()
