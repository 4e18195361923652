"""The check that draws sizes, options and patterns together: what it finds, what it must not refuse, what it draws.

Each wrong function is right on every sample as it is declared, however often that is drawn; its right twin passes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay.testing import ErrorInput, OpSpec, Sample
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.patterns import may_be_filled, patterned
from cuassay.testing.samples import SPAN, HostArray, Samples

Function = Callable[..., Any]


def combined(fn: Function, dtype: str = "float32", **declared: Any) -> None:
    CHECKS["combined"](OpSpec(fn=fn, name="f", dtypes=(dtype,), **declared), "cpu:0", np.dtype(dtype))


# ------------------------------------------------------------------------------------------------ what it finds


def kept_sum(stops: bool) -> Function:
    """Sums of blocks of 32 whose mask keeps something; the wrong one ends at the first block that keeps nothing."""

    def fn(xp: Any, a: Any, keep: Any) -> Any:
        total = xp.zeros((), a.dtype)
        for at in range(0, a.shape[0], 32):
            if stops and not keep[at : at + 32].any():
                break
            total = total + xp.where(keep[at : at + 32], a[at : at + 32], 0).sum()
        return total

    return fn


def masked(make: Any) -> list[Any]:
    return [(make(100), make(100, dtype="bool")), (make(70), make(70, dtype="bool"))]


def test_a_block_of_a_mask_that_is_all_false() -> None:
    declared: Any = {"samples": masked, "reference": lambda a, keep: np.array(a[keep].sum())}
    combined(kept_sum(stops=False), **declared)
    with pytest.raises(AssertionError, match="wrong for a mixture of them") as told:
        combined(kept_sum(stops=True), **declared)
    assert "input 1:" in str(told.value)


def scaled(keeps: bool) -> Function:
    """Numbers times a table of a length and a pace; the wrong one keeps the table by the length alone."""
    tables: dict[Any, Any] = {}

    def fn(xp: Any, a: Any, pace: int = 1, reverse: bool = False) -> Any:
        key = (a.shape[-1],) if keeps else (a.shape[-1], pace)
        table = tables.setdefault(key, np.arange(a.shape[-1]) * pace)
        return a * xp.asarray((table[::-1] if reverse else table).copy())

    return fn


def paces(make: Any) -> list[Any]:
    return [make(7), Sample((make(12),), {"pace": 3}), Sample((make(5),), {"pace": 2, "reverse": True})]


def test_an_option_at_a_length_of_another_call() -> None:
    def reference(a: Any, pace: int = 1, reverse: bool = False) -> Any:
        return a * (np.arange(a.shape[-1])[:: -1 if reverse else 1] * pace)

    combined(scaled(keeps=False), "int64", samples=paces, reference=reference)
    with pytest.raises(AssertionError, match="wrong for a mixture of them"):
        combined(scaled(keeps=True), "int64", samples=paces, reference=reference)


def with_bias(guesses: bool) -> Function:
    """A bias for each row, (m, 1), or for each column, (n,); the wrong one tells them apart by their length."""

    def fn(xp: Any, a: Any, bias: Any) -> Any:
        if guesses:
            flat = bias.reshape(-1)
            return a + (flat if flat.shape[0] == a.shape[1] else flat[:, None])
        return a + bias

    return fn


def test_extents_that_become_equal() -> None:
    def samples(make: Any) -> list[Any]:
        return [(make((6, 9)), make((6, 1))), (make((5, 3)), make(3))]

    combined(with_bias(guesses=False), samples=samples, reference=lambda a, bias: a + bias)
    with pytest.raises(AssertionError, match="arrays of "):
        combined(with_bias(guesses=True), samples=samples, reference=lambda a, bias: a + bias)


def test_counts_of_equal_codes() -> None:
    def counted(dtype: str) -> Function:
        return lambda xp, a: (a[:, None] == xp.arange(8)).sum(axis=0, dtype=dtype).astype("int64")

    def count(a: Any) -> Any:
        return np.bincount(a, minlength=8)

    declared: Any = {
        "samples": lambda make: [make(600, low=0, high=7)], "reference": count, "result_dtype": "int64",
    }  # fmt: skip
    combined(counted("int64"), "int32", **declared)
    with pytest.raises(AssertionError, match=r"input 0: .*numbers"):
        combined(counted("uint8"), "int32", **declared)


def met_shapes(samples: Any) -> set[tuple[tuple[int, ...], ...]]:
    """The shapes of each call."""
    met: set[tuple[tuple[int, ...], ...]] = set()

    def fn(xp: Any, a: Any, b: Any) -> Any:
        met.add((a.shape, b.shape))
        return a + b

    combined(fn, samples=samples, reference=lambda a, b: a + b)
    return met


def test_lengths_that_no_sample_has() -> None:
    met = {one[-1] for one, _ in met_shapes(lambda make: [(make(6), make(6)), (make((4, 9)), make((4, 9)))])}

    assert len(met - {4, 6, 9}) > 5
    assert max(met) > 60


def test_axes_of_one_element_where_a_sample_is_broadcast_and_nowhere_else() -> None:
    def pair(make: Any) -> tuple[Any, Any]:
        return make((4, 9)), make((4, 9))

    apart = {(a, b) for a, b in met_shapes(lambda make: [pair(make)]) if a != b}
    broadcast = met_shapes(lambda make: [pair(make), Sample((make((3, 5)), make(5)), kind="broadcast")])

    assert apart == set()
    assert {((1, 5), (5,)), ((3, 1), (5,)), ((3, 5), (1,))} <= broadcast
    assert {(a, b) for a, b in broadcast if len(a) == len(b) and a != b}


def stretched(copies: bool) -> Function:
    """The numbers again and again, as many as `like` has; the wrong one gives the input where it has as many."""

    def fn(xp: Any, a: Any, like: Any) -> Any:
        missing = like.shape[-1] - a.shape[-1]
        if missing == 0 and not copies:
            return a
        place = xp.arange(like.shape[-1]) * a.shape[-1] // max(like.shape[-1], 1)
        return a[place] * 1.0 + (0.5 if missing else 0.0)

    return fn


def test_a_result_that_is_the_input_of_a_call_that_no_sample_is() -> None:
    def reference(a: Any, like: Any) -> Any:
        place = np.arange(like.shape[-1]) * a.shape[-1] // max(like.shape[-1], 1)
        return a[place] + (0.5 if like.shape[-1] != a.shape[-1] else 0.0)

    declared: Any = {"samples": lambda make: [(make(5), make(9)), (make(12), make(7))], "reference": reference}
    combined(stretched(copies=True), **declared)
    with pytest.raises(AssertionError, match="the result is an input, or a view of one, for this call"):
        combined(stretched(copies=False), **declared)


def windowed(most: int) -> Function:
    """Sums of `window` numbers each, after `padding` zeros on both sides; refuses what is longer than `most` says."""

    def fn(xp: Any, a: Any, window: int = 3, padding: int = 0) -> Any:
        if window > a.shape[-1] + most * padding:
            raise ValueError(f"a window of {window} is too long")
        edge = xp.zeros((padding,), a.dtype)
        padded = xp.concatenate([edge, a, edge])
        return sum(padded[at : padded.shape[0] - window + 1 + at] for at in range(window))

    return fn


def test_a_call_that_is_refused_and_that_the_reference_takes() -> None:
    def reference(a: Any, window: int = 3, padding: int = 0) -> Any:
        return np.lib.stride_tricks.sliding_window_view(np.pad(a, padding), window).sum(axis=-1)

    declared: Any = {
        "samples": lambda make: [make(20), Sample((make(9),), {"window": 8}), Sample((make(7),), {"padding": 4})],
        "reference": reference,
        "error_inputs": lambda make: [ErrorInput(Sample((make(2),), {"window": 5}), ValueError, "window of 5")],
    }
    combined(windowed(2), **declared)
    with pytest.raises(AssertionError, match=r"the function rejects this call .* but the reference accepts it"):
        combined(windowed(0), **declared)


def test_a_reference_is_not_asked_about_a_bad_input_on_which_it_never_ends() -> None:
    asked: list[int] = []

    def reference(a: Any, step: int = 1) -> Any:
        asked.append(step)
        return a * step

    def fn(xp: Any, a: Any, step: int = 1) -> Any:
        if step < 1:
            raise ValueError(f"a step of {step}")
        return a * step

    combined(
        fn, reference=reference, samples=lambda make: [make(20), Sample((make(9),), {"step": 3})],
        error_inputs=lambda make: [ErrorInput(Sample((make(2),), {"step": 0}), ValueError, "step of 0")],
    )  # fmt: skip
    assert 0 not in asked


def test_one_message_for_two_reasons_says_nothing_where_the_reference_knows_one() -> None:
    def fn(xp: Any, a: Any, window: int = 3, padding: int = 0) -> Any:
        if window % 2 == 0 or window > a.shape[-1] + 2 * padding:
            raise ValueError(f"a window of {window} is even or too long")
        edge = xp.zeros((padding,), a.dtype)
        padded = xp.concatenate([edge, a, edge])
        return sum(padded[at : padded.shape[0] - window + 1 + at] for at in range(window))

    def reference(a: Any, window: int = 3, padding: int = 0) -> Any:
        return np.lib.stride_tricks.sliding_window_view(np.pad(a, padding), window).sum(axis=-1)

    bad = [({"window": 4}, 9), ({"window": 9}, 2)]
    combined(
        fn, reference=reference,
        samples=lambda make: [make(20), Sample((make(9),), {"window": 7}), Sample((make(7),), {"padding": 4})],
        error_inputs=lambda make: [
            ErrorInput(Sample((make(length),), options), ValueError, "is even or too long") for options, length in bad
        ],
    )  # fmt: skip


def test_a_shape_of_which_the_reference_makes_something_else_is_left_out() -> None:
    def fn(xp: Any, a: Any, b: Any) -> Any:
        return ((a @ xp.linalg.pinv(a) @ b - b) ** 2).sum(axis=0)

    combined(
        fn, "float64", reference=lambda a, b: np.linalg.lstsq(a, b)[1],
        samples=lambda make: [(make((8, 3)), make((8, 2)))],
    )  # fmt: skip


def test_what_the_reference_never_refuses_may_be_refused() -> None:
    def fn(xp: Any, a: Any, window: int = 3) -> Any:
        if window > a.shape[-1]:
            raise ValueError(f"a window of {window} is too long")
        return a * window

    combined(
        fn, reference=lambda a, window=3: a * window,
        samples=lambda make: [make(20), Sample((make(9),), {"window": 8})],
        error_inputs=lambda make: [ErrorInput(Sample((make(2),), {"window": 5}), ValueError, "window of 5")],
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ what it lets pass


def test_numbers_that_rounding_decides_are_left_out() -> None:
    """Where a mean of equal numbers is compared with them, or a variance divided by, the last digit decides."""

    def normalized(xp: Any, a: Any) -> Any:
        centred = a - a.mean()
        return centred / xp.sqrt((centred * centred).mean())

    combined(normalized, samples=lambda make: [make(40), make((3, 50))], reference=lambda a: (a - a.mean()) / a.std())
    combined(
        lambda xp, a: (a > a.mean()).astype("int64"),
        samples=lambda make: [make(40)], reference=lambda a: (a > a.mean()).astype("int64"), result_dtype="int64",
    )  # fmt: skip


def test_the_order_of_equal_numbers_is_left_open() -> None:
    combined(
        lambda xp, a: xp.flip(xp.argsort(xp.flip(a, 0), kind="stable"), 0),
        samples=lambda make: [make(40)], reference=lambda a: (39 if a.size == 40 else a.size - 1) - _reversed(a),
        result_dtype="int64",
    )  # fmt: skip


def _reversed(a: Any) -> Any:
    """Positions of the ascending numbers, of equal ones the last first."""
    return (a.size - 1) - np.flip(np.argsort(np.flip(a), kind="stable"))


def test_what_was_written_down_stays_as_it_is() -> None:
    """Lengths that must add up to the size of another array, sorted offsets, and a permutation."""

    def fn(xp: Any, a: Any, lengths: Any, offsets: Any, order: Any) -> Any:
        assert int(lengths.sum()) == 6
        assert sorted(offsets.tolist()) == offsets.tolist()
        assert sorted(order.tolist()) == list(range(order.shape[0]))
        return a[:1] * 2

    def samples(make: Any) -> list[Any]:
        return [
            (make(6), make.of([1, 3, 2], dtype="int64"), make.of([0, 1, 4, 6]), make.of([2, 0, 1, 3], dtype="int64"))
        ]

    combined(fn, samples=samples, reference=lambda a, lengths, offsets, order: a[:1] * 2)


def test_many_extents_do_not_make_a_huge_array() -> None:
    """Of six axes, all made 520 long, no array is made."""
    met: list[int] = []

    def fn(xp: Any, a: Any) -> Any:
        met.append(a.size)
        return a + 1

    combined(fn, samples=lambda make: [make((2, 3, 4, 5, 6, 7))], reference=lambda a: a + 1)

    assert max(met) <= 2**13


def test_calls_are_the_same_for_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def shapes(seed: str) -> list[tuple[int, ...]]:
        met: list[tuple[int, ...]] = []
        monkeypatch.setenv("CUASSAY_SEED", seed)
        combined(lambda xp, a: met.append(a.shape) or -a, samples=lambda make: [make((4, 9))], reference=lambda a: -a)
        return met

    assert shapes("3") == shapes("3") != shapes("4")


def test_a_slow_reference_ends_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is one that each call of the reference moves on by a fifth of a second."""
    clock = [0.0]
    monkeypatch.setattr("cuassay.testing.generated.combined.time", SimpleNamespace(thread_time=lambda: clock[0]))
    met: list[int] = []

    def reference(a: Any) -> Any:
        clock[0] += 0.2
        met.append(a.size)
        return -a

    combined(lambda xp, a: -a, samples=lambda make: [make(9)], reference=reference)

    assert 10 < len(met) < 40


# ------------------------------------------------------------------------------------------------ patterns


@given(
    st.sampled_from(["bool", "uint8", "int32", "float32", "float64"]),
    st.lists(st.integers(0, 9), max_size=3),
    st.sampled_from([None, (0, 1), (5, 200)]),
    st.integers(0, 2**32),
)
def test_patterns_keep_to_the_range_the_dtype_and_the_shape(
    dtype: str, shape: list[int], span: tuple[int, int] | None, seed: int
) -> None:
    make = Samples(seed, dtype)
    drawn = make((3, 4)) if span is None else make((3, 4), low=span[0], high=span[1])

    filled, label = patterned(drawn, tuple(shape), np.random.default_rng(seed))

    assert (filled.shape, filled.dtype, filled.span, filled.is_free) == (
        tuple(shape), drawn.dtype, drawn.span, drawn.is_free,
    )  # fmt: skip
    assert label
    if dtype != "bool" and filled.values.size:
        low, high = span or (SPAN if dtype.startswith("float") else (drawn.values.min(), drawn.values.max()))
        assert low <= filled.values.min()
        assert filled.values.max() <= high


def test_each_pattern_is_met() -> None:
    chance, make = np.random.default_rng(0), Samples(0, "float32")

    numbers = {patterned(make(30), (4, 50), chance)[1] for _ in range(300)}
    masks = {patterned(make(30, dtype="bool"), (4, 50), chance)[1] for _ in range(300)}

    assert numbers == {
        "any numbers", "all numbers equal", "all numbers the least", "all numbers the largest",
        "the numbers of a row equal", "only two numbers", "numbers in ascending order", "numbers in descending order",
        "all numbers equal but one", "numbers in runs", "many numbers the least or the largest",
        "numbers close to one another, at an end of their range",
    }  # fmt: skip
    assert masks == {
        "any numbers", "all false", "all true", "one true", "one false", "false at first, any then",
        "any at first, false then", "in blocks of a power of two",
    }  # fmt: skip


PATTERNS: dict[str, Callable[[Any], bool]] = {
    "all numbers equal": lambda a: len(np.unique(a)) == 1,
    "only two numbers": lambda a: len(np.unique(a)) == 2,
    "the numbers of a row equal": lambda a: bool((a == a[:, :1]).all()) and len(np.unique(a)) > 1,
    "numbers in ascending order": lambda a: bool((np.diff(a, axis=-1) >= 0).all()),
    "numbers in descending order": lambda a: bool((np.diff(a, axis=-1) <= 0).all()),
    "all numbers equal but one": lambda a: sorted(np.unique(a, return_counts=True)[1]) == [1, a.size - 1],
    "numbers in runs": lambda a: int((np.diff(a.reshape(-1)) != 0).sum()) < a.size // 2,
    "numbers close to one another, at an end of their range": lambda a: float(np.ptp(a)) < 1e-3,
    "many numbers the least or the largest": lambda a: int(((a == a.min()) | (a == a.max())).sum()) > a.size // 2,
    "all false": lambda a: not a.any(),
    "all true": lambda a: bool(a.all()),
    "one true": lambda a: int(a.sum()) == 1,
    "one false": lambda a: int(a.sum()) == a.size - 1,
    "in blocks of a power of two": lambda a: bool((a == a[:1]).all()),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_what_it_is_called(name: str) -> None:
    chance = np.random.default_rng(0)
    dtype = "bool" if "true" in name or "false" in name or "blocks" in name else "float32"
    met = [patterned(Samples(0, dtype)(30), (4, 50), chance) for _ in range(300)]

    found = [filled.values for filled, label in met if label == name]

    assert found
    assert all(PATTERNS[name](values) for values in found)


@pytest.mark.parametrize(("name", "end"), [("false at first, any then", 0), ("any at first, false then", -1)])
def test_a_mask_is_false_up_to_some_place_or_from_it_on(name: str, end: int) -> None:
    """In most of them the column at that end is false, and another one is not."""
    chance = np.random.default_rng(0)
    met = [patterned(Samples(0, "bool")(30), (4, 50), chance) for _ in range(400)]
    found = [filled.values for filled, label in met if label == name]

    is_so = [not values[:, end].any() and values.any() for values in found]

    assert sum(is_so) > 0.8 * len(found) > 8


def test_ends_are_among_many_numbers_and_a_single_one_is_any() -> None:
    chance, make = np.random.default_rng(0), Samples(0, "int32")

    many = [patterned(make(30, low=5, high=500), (4, 50), chance, at_ends=True)[0].values for _ in range(9)]
    single = [float(patterned(Samples(0, "float32")(9, low=1, high=2), (1,), chance)[0].values[0]) for _ in range(50)]

    assert all((values.min(), values.max()) == (5, 500) for values in many)
    assert len({*single}) > 20


def test_a_broadcast_sample_without_elements_is_taken() -> None:
    def samples(make: Any) -> list[Any]:
        return [(make((4, 9)), make(9)), Sample((make((0, 3)), make(3)), kind="broadcast")]

    combined(lambda xp, a, b: a + b, samples=samples, reference=lambda a, b: a + b)


@pytest.mark.parametrize(("dtypes", "combined_in", "signed_zeros_in"), [
    (("float16", "float32"), {"float32"}, {"float16", "float32"}),
    (("float16",), set(), {"float16"}),
    (("int32",), {"int32"}, set()),
])  # fmt: skip
def test_no_test_is_made_in_a_dtype_of_which_a_check_says_nothing(
    pytester: pytest.Pytester, dtypes: tuple[str, ...], combined_in: set[str], signed_zeros_in: set[str]
) -> None:
    pytester.makepyfile(f"""
        from cuassay.testing import OpSpec, conformance

        test_f = conformance(OpSpec(fn=lambda xp, a: -a, reference=lambda a: -a, dtypes={dtypes}))
    """)

    names = pytester.runpytest("--collect-only", "-q", "--device", "cpu").outlines

    assert {name.rsplit("-", 1)[-1].rstrip("]") for name in names if "::test_combined[" in name} == combined_in
    assert {name.rsplit("-", 1)[-1].rstrip("]") for name in names if "::test_signed_zeros[" in name} == signed_zeros_in


def test_what_has_an_order_is_not_filled() -> None:
    make = Samples(0, "int64")
    assert may_be_filled(make(9, low=0, high=99))
    assert not may_be_filled(HostArray(np.sort(make(9, low=0, high=99).values), span=(0, 99)))
    assert not may_be_filled(HostArray(np.array([2, 0, 1, 3]), span=(0, 3)))
    assert not may_be_filled(make.of([3, 1, 2]))
    assert not may_be_filled(make(0, low=0, high=3))
    assert not may_be_filled(3)


@pytest.mark.parametrize("check", ["combined", "sizes", "second_call", "zeros"])
def test_an_array_without_axes_keeps_none(check: str) -> None:
    def fn(xp: Any, a: Any, scale: Any) -> Any:
        assert scale.ndim == 0
        return a * scale

    spec = OpSpec(fn=fn, dtypes=("float32",), samples=lambda make: [(make(9), make(()))], reference=np.multiply)
    CHECKS[check](spec, "cpu:0", *((np.dtype("float32"),) if check in ("combined", "zeros") else ()))


@pytest.mark.parametrize("check", ["zeros", "units", "stress"])
def test_an_option_that_is_a_ragged_tuple_is_passed_on(check: str) -> None:
    spec = OpSpec(
        fn=lambda xp, a, pad: a * pad[1], reference=lambda a, pad: a * pad[1], name="f", dtypes=("float32",),
        samples=lambda make: [Sample((make(9),), {"pad": ((1, 2), 3)})],
    )  # fmt: skip

    CHECKS[check](spec, "cpu:0", np.dtype("float32"))


def test_an_option_may_be_an_array_that_was_written_down() -> None:
    weights = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

    def weighted(a: Any, weight: Any, power: int = 1) -> Any:
        if power < 1:
            raise ValueError(f"a power of {power}")
        if a.shape[-1] == a.shape[-2]:  # so that calls with equal extents are refused
            raise ValueError("square")
        return (a * weight) ** power

    combined(
        lambda xp, a, weight, power=1: weighted(a, xp.asarray(weight, a.dtype), power), "float64", reference=weighted,
        samples=lambda make: [
            Sample((make((2, 3)),), {"weight": weights}), Sample((make((5, 2, 3)),), {"weight": weights, "power": 2}),
        ],
        error_inputs=lambda make: [
            ErrorInput(Sample((make((2, 3)),), {"weight": weights, "power": 0}), ValueError, "power of 0"),
        ],
    )  # fmt: skip


def test_a_sample_that_function_and_reference_refuse_is_left_out() -> None:
    def doubled(a: Any) -> Any:
        if a.ndim < 2:
            raise ValueError("two axes are needed")
        return a * 2

    combined(lambda xp, a: doubled(a), reference=doubled, samples=lambda make: [make(5), make((3, 4))])
