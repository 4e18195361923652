"""Which errors are spread over whole lines, and which wrong functions the checks of special numbers find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.arrays.dtypes import as_dtype
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import special
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.special import is_spread
from cuassay.testing.samples import HostArray


def lines(*texts: str) -> Any:
    return np.array([[letter == "x" for letter in text] for text in texts])


@pytest.mark.parametrize(
    ("bad", "spread"),
    [
        pytest.param(lines("xxxxx", ".....", "....."), True, id="a row"),
        pytest.param(lines("x....", "x....", "x...."), True, id="a column"),
        pytest.param(lines("xxxx.", ".....", "....."), True, id="four of five"),
        pytest.param(lines("xxx..", ".....", "....."), False, id="three of five"),
        pytest.param(lines("xxxxx", "x....", "....."), False, id="a row and a number"),
        pytest.param(lines("xx", ".."), False, id="short rows"),
        pytest.param(lines("....."), False, id="nothing"),
        pytest.param(np.array(True), False, id="no axes"),
        pytest.param(lines("xxxxx", "xxxx.", "xxxxx"), True, id="all of it"),
    ],
)
def test_errors_over_whole_lines_are_spread(bad: Any, spread: bool) -> None:
    assert is_spread(bad, np.ones_like(bad)) is spread


def test_errors_are_spread_over_the_places_that_are_looked_at() -> None:
    bad, among = lines("xxx...", "......", "......"), lines("xxx...", "xxxxxx", "xxxxxx")

    assert is_spread(bad, among)
    assert not is_spread(bad, np.ones_like(bad))
    assert is_spread(bad, np.ones_like(bad), share=0.5)


# ------------------------------------------------------------------------------------------------ the checks


CPU = Device("cpu")
FLOAT32 = np.dtype("float32")


def spec_of(fn: Any, reference: Any, dtype: str = "float32", samples: Any = None) -> OpSpec:
    return OpSpec(
        fn=lambda xp, a: fn(a), reference=reference, name="f", dtypes=(dtype,),
        samples=samples or (lambda make: [make(24)]),
    )  # fmt: skip


def checked(name: str, fn: Any, reference: Any, samples: Any = None, dtype: str = "float32") -> str:
    return failure(CHECKS[name], spec_of(fn, reference, dtype, samples), "cpu:0", np.dtype(dtype))


def same(a: Any) -> Any:
    return a * 1


#: Wrong results for numbers that the check of zeros tries.
OF_ZEROS: dict[str, tuple[Any, str]] = {
    "all zero": (lambda a: a + (a == 0).all(), "all zero"),
    "every other": (lambda a: a + ((a == 0).mean() == 0.5), "every other number is 0"),
    "constant": (lambda a: a + (a == 2).all(), "all numbers are 2"),
    "minus one to one": (lambda a: a + (np.isin(a, [-1, 0, 1]).all() and a.any()), "numbers are -1, 0 and 1"),
}


@pytest.mark.parametrize("name", OF_ZEROS)
def test_a_fault_at_zeros_and_equal_numbers_is_found(name: str) -> None:
    fn, said = OF_ZEROS[name]

    assert said in checked("zeros", lambda a: fn(a).astype(a.dtype), same)


@pytest.mark.parametrize("check", ["zeros", "units"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_right_function_of_special_numbers_passes(check: str, dtype: str) -> None:
    assert not checked(check, same, same, dtype=dtype)
    assert not checked(check, np.abs, np.abs, lambda make: [make(24, low=-1, high=1)], dtype=dtype)


@pytest.mark.parametrize(
    ("number", "span", "is_tried"),
    [
        pytest.param(-4, (-4, 6), True, id="the lower end"),
        pytest.param(6, (-4, 6), True, id="the upper end"),
        pytest.param(0, (-4, 6), True, id="zero within the range"),
        pytest.param(0, (0, 6), True, id="zero at its end"),
        pytest.param(0, (1, 6), False, id="zero outside"),
        pytest.param(1, (1, 6), True, id="one"),
        pytest.param(-6, (-6, -1), True, id="the least of negative numbers"),
    ],
)
def test_the_ends_of_a_range_and_zero_within_it_are_tried(
    number: float, span: tuple[float, float], is_tried: bool
) -> None:
    low, high = span
    found = checked(
        "zeros",
        lambda a: np.where(a == number, 9, a).astype(a.dtype),
        same,
        lambda make: [make(24, low=low, high=high)],
    )

    assert (f"input 0 is {number}" in found) is is_tried


@pytest.mark.parametrize(
    ("is_wrong", "where"),
    [
        pytest.param(
            lambda a: (a[::2] == 1).all() and not (a[1::2] == 1).any(), "every other number", id="every other"
        ),
        pytest.param(lambda a: (a[12:] == 1).all() and not (a[:12] == 1).any(), "the last half", id="the last half"),
        pytest.param(lambda a: (a == 1).all(), "each number", id="each"),
    ],
)
def test_the_end_of_a_range_is_put_at_some_and_all_places(is_wrong: Any, where: str) -> None:
    found = checked("zeros", lambda a: (a + is_wrong(a)).astype(a.dtype), same, lambda make: [make(24, low=1, high=6)])

    assert f"{where} of input 0 is 1" in found


def test_an_infinite_result_at_the_end_of_a_range_is_not_compared() -> None:
    def inverse(a: Any) -> Any:
        return 1 / a

    assert not checked(
        "zeros",
        lambda a: np.where(a == 0, 9, inverse(a)).astype(a.dtype),
        inverse,
        lambda make: [make(24, low=0, high=6)],
    )


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        pytest.param(lambda a: a / (np.abs(a) + 2.0**-34) * np.abs(a), "in units of 2^-27", id="an epsilon"),
        pytest.param(lambda a: np.where(a * a < 1e-4, 0, a), "in units of 2^-", id="a threshold"),
        pytest.param(lambda a: np.clip(a, -4, 4), "times 16", id="a limit"),
    ],
)
def test_a_fault_in_other_units_is_found(fn: Any, said: str) -> None:
    def sign(a: Any) -> Any:
        return np.asarray(fn(a), a.dtype)

    assert said in checked("units", sign, same)


# ------------------------------------------------------------------------------------------------ one large number


def spike(fn: Any, reference: Any, size: int = 24) -> str:
    spec = spec_of(fn, reference)
    sample = Sample((HostArray(np.linspace(-3, 3, size, dtype=np.float32), is_free=True),), label="drawn")
    return failure(special._check_spike, spec, CPU, FLOAT32, sample)


def test_an_error_of_a_large_result_is_not_that_of_a_spike() -> None:
    def with_one_large(a: Any, size: float = 1e7) -> Any:
        return a + np.where(np.arange(a.size) == 2, size, 0).astype(a.dtype)

    assert not spike(lambda a: with_one_large(a, 1e7 + 3), with_one_large)


@pytest.mark.parametrize(
    ("places", "is_found"),
    [
        pytest.param(lambda at, size: at == size - 1, True, id="one number"),
        pytest.param(lambda at, size: at < size // 2, True, id="half of them"),
        pytest.param(lambda at, size: at >= 0, False, id="all of them, as a Fourier transform has it"),
        pytest.param(lambda at, size: at < 0, False, id="none of them"),
    ],
)
def test_results_that_do_not_depend_on_a_large_number_stay(places: Any, is_found: bool) -> None:
    def wrong(a: Any) -> Any:
        is_wrong = places(np.arange(a.size), a.size) & (a.max() > 1e6) & (a < 1e6)
        return (a + 0.05 * is_wrong).astype(a.dtype)

    assert bool(spike(wrong, same)) is is_found


def test_a_large_number_is_put_within_the_array() -> None:
    spiked = special._spiked(np.ones((3, 4), np.float32))

    assert np.argwhere(spiked > 1).tolist() == [[0, 2]]
    assert spiked[0, 2] == 2.0**26


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        pytest.param(lambda a: a + (a.max() > 1e6), None, id="no reference"),
        pytest.param(lambda a: (a + (a.max() > 1e6)).astype(np.int64), lambda a: a.astype(np.int64), id="integers"),
        pytest.param(lambda a: (a + (a.max() > 1e6))[:9], same, id="another shape"),
        pytest.param(lambda a: a + (a.max() > 1e6), lambda a: np.where(a > 1e6, np.inf, a), id="infinity expected"),
    ],
)
def test_other_results_for_a_large_number_are_not_compared(fn: Any, reference: Any) -> None:
    assert not spike(lambda a: np.asarray(fn(a)), reference)


# ------------------------------------------------------------------------------------------------ float16


@pytest.mark.parametrize(
    ("reference", "is_linear"),
    [
        pytest.param(same, True, id="itself"),
        pytest.param(np.sum, True, id="a sum"),
        pytest.param(np.abs, False, id="absolute"),
        pytest.param(np.square, False, id="square"),
        pytest.param(lambda a: a + 1, False, id="one more"),
        pytest.param(lambda a: a * np.sign(a[0]), False, id="of the first number's sign"),
        pytest.param(lambda a: (a > 0).astype(np.int64), False, id="integers"),
    ],
)
def test_a_linear_reference_is_told_from_others(reference: Any, is_linear: bool) -> None:
    spec = spec_of(reference, reference)
    sample = Sample((HostArray(np.array([-3, 2, 1, 0.5], np.float32), is_free=True),))

    assert special._is_linear(spec, sample) is is_linear


def test_sums_of_float16_that_overflow_on_the_way_fail() -> None:
    def mean(a: Any, dtype: Any) -> Any:
        return (np.add.reduce(a, dtype=dtype) / dtype(a.size)).astype(a.dtype)

    def wide(a: Any) -> Any:
        return mean(a, np.float64)

    samples = lambda make: [make(64)]  # noqa: E731
    assert not checked("units", wide, wide, samples, "float16")
    assert "a step overflows float16" in checked("units", lambda a: mean(a, np.float16), wide, samples, "float16")


# ------------------------------------------------------------------------------------------------ which are tried


@pytest.mark.parametrize(
    ("given", "spans"),
    [
        (HostArray(np.ones(3), span=(-1.0, 1.0)), True),
        (HostArray(np.ones(3), span=(-0.9, 1.0)), False),
        (HostArray(np.ones(3), span=(-1.0, 0.9)), False),
        (HostArray(np.ones(3)), False),
        (HostArray(np.ones(3, np.int64), span=(-1.0, 1.0)), False),
        (np.ones(3), False),
    ],
    ids=["from -1 to 1", "from -0.9", "to 0.9", "no range", "integers", "an array"],
)
def test_ranges_that_include_minus_one_and_one(given: Any, spans: bool) -> None:
    assert special._spans_minus_one_to_one(given) is spans


def tried(monkeypatch: pytest.MonkeyPatch, check: Any, *samples: Any) -> list[Any]:
    """The labels and the first numbers of what is tried."""
    met: list[Any] = []
    monkeypatch.setattr(
        special, "_check", lambda spec, device, dtype, base, sample: met.append((sample.label, sample.args[0].values))
    )
    check(spec_of(same, same), CPU, FLOAT32, Sample(samples, label="drawn"))
    return met


def test_ranges_that_include_zero_are_tried_next_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ranged = HostArray(np.full(9, 2, np.float32), span=(0.0, 3.0))

    found = tried(monkeypatch, special._check_next_to_zero, ranged)

    assert [label for label, _ in found] == [
        "drawn, numbers next to zero 2^-27 times as large", "drawn, numbers next to zero 2^-8 times as large",
        "drawn, some numbers next to zero",
    ]  # fmt: skip
    assert [values[0] for _, values in found[:2]] == [2 * 2.0**-27, 2 * 2.0**-8]


def test_free_numbers_are_tried_next_to_zero_in_some_places(monkeypatch: pytest.MonkeyPatch) -> None:
    free = HostArray(np.full(9, 2, np.float32), is_free=True)
    above = HostArray(np.full(9, 2, np.float32), span=(1.0, 3.0))

    assert [label for label, _ in tried(monkeypatch, special._check_next_to_zero, free)] == [
        "drawn, some numbers next to zero"
    ]
    assert tried(monkeypatch, special._check_next_to_zero, above) == []


def test_four_checks_of_complex_numbers_are_made_of_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[Any] = []
    names = ["check_far_complex", "check_small_complex", "check_large_complex", "check_branch_cuts"]
    for name in names:
        monkeypatch.setattr(
            special, name, lambda spec, device, dtype, sample, name=name: met.append((name, sample.args[0].shape))
        )
    spec = OpSpec(
        fn=lambda xp, a, k=0: a * 1, reference=lambda a, k=0: a * 1, name="f", dtypes=("complex64",),
        samples=lambda make: [Sample((make(n),), {"k": k}) for n, k in ((24, 1), (9001, 2), (8, 3))],
    )  # fmt: skip

    special._check_complex(spec, CPU, np.dtype("complex64"))

    assert met == [(name, (24,)) for name in names]


def test_numbers_of_minus_one_to_one_have_the_dtype_of_the_array() -> None:
    found = special._minus_one_to_one(np.random.default_rng(0), np.ones((9, 9), np.float16))

    assert (found.dtype, found.shape) == (np.float16, (9, 9))
    assert set(found.reshape(-1).tolist()) == {-1, 0, 1}


@pytest.mark.parametrize(
    ("dtype", "is_tried"), [("float32", True), ("float64", True), ("float16", False), ("bfloat16", False)]
)
def test_ranges_of_precise_floats_are_tried_next_to_zero(
    dtype: str, is_tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[str] = []
    monkeypatch.setattr(special, "_check_next_to_zero", lambda *given: met.append("zero"))
    monkeypatch.setattr(special, "check_orders", lambda *given: met.append("orders"))
    samples = lambda make: [make(9, low=0, high=1)]  # noqa: E731

    CHECKS["units"](spec_of(same, same, dtype, samples), "cpu:0", as_dtype(dtype))

    assert met == ["zero", "orders"] * is_tried


def test_a_fault_next_to_a_large_number_is_told_with_the_number() -> None:
    said = spike(lambda a: (a + 0.05 * (a.max() > 1e6) * (np.arange(a.size) == 20)).astype(a.dtype), same)

    assert said.startswith("right for the sample's own numbers, wrong for others: one number is 6.71e+07\n")
    assert "sample: drawn, one number is 6.71e+07" in said


def test_nothing_is_marked_by_a_mask_of_false() -> None:
    args, _ = special._all_false(Sample((HostArray(np.ones(3, np.bool_)), HostArray(np.ones(3)), 2))).host()

    assert [np.asarray(one).tolist() for one in args] == [[False] * 3, [1.0] * 3, 2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (HostArray(np.ones(3), span=(0, 1)), True),
        (HostArray(np.ones(3, np.int64), span=(0, 1)), False),
        (HostArray(np.ones(3)), False),
        (1.0, False),
    ],
    ids=["floats of a range", "integers of a range", "any floats", "a number"],
)
def test_floats_of_a_requested_range_have_one(given: Any, expected: bool) -> None:
    assert special._has_range(given) is expected
