"""Which calls close to declared bad inputs are tried, and what a function must reject and accept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import ErrorInput, OpSpec, Sample
from cuassay.testing.generated import partial_errors
from cuassay.testing.generated.partial_errors import ordinary_samples
from cuassay.testing.samples import HostArray


def test_ordinary_samples_of_rows_have_at_most_nine_thousand_elements() -> None:
    spec = OpSpec(
        fn=lambda xp, a: a, name="same",
        samples=lambda make: [make(9), make((2, 4500)), make((1, 9001)), *(make((2, n)) for n in range(1, 6))],
    )  # fmt: skip
    found = ordinary_samples(spec, Device("cpu"), "float32")

    assert [sample.args[0].values.size for sample in found] == [9000, 2, 4, 6]


CPU = Device("cpu")
FLOAT64 = np.dtype("float64")


# ------------------------------------------------------------------------------------------------ one row, two numbers


def refusing_zero_rows(a: Any, *, each: bool = True) -> Any:
    found = (a == 0).all(axis=-1)
    if found.any() if each else found.all():
        raise ValueError("a row of zeros")
    return a / np.abs(a).sum(axis=-1, keepdims=True)


def rows(each: bool, *, refuses: Any = refusing_zero_rows) -> OpSpec:
    return OpSpec(
        fn=lambda xp, a: refusing_zero_rows(a, each=each), reference=refuses, name="rows", dtypes=("float64",),
        samples=lambda make: [make((4, 3), low=1)],
        error_inputs=lambda make: [ErrorInput(Sample((make.full((4, 3), 0),)), error=ValueError, match="zeros")],
    )  # fmt: skip


BAD = Sample((HostArray(np.zeros((4, 3))),))


@pytest.mark.parametrize("each", [True, False], ids=["each row", "all rows at once"])
def test_one_bad_row_among_good_ones_is_rejected(each: bool) -> None:
    spec = rows(each)
    ordinary = ordinary_samples(spec, CPU, FLOAT64)
    found = failure(partial_errors.check_partial_errors, spec, CPU, BAD, ValueError, ordinary)

    assert ("no error, but the reference raises ValueError where one row of many" in found) is not each
    assert not failure(partial_errors.check_partial_errors, spec, CPU, BAD, LookupError, ordinary)


@pytest.mark.parametrize(
    ("bad", "right", "count"),
    [
        pytest.param(np.zeros((4, 3)), np.ones((5, 2)), 1, id="one number throughout"),
        pytest.param(np.zeros((4, 3)), np.ones((2, 2)), 1, id="two rows"),
        pytest.param(np.zeros((4, 3)), np.ones((1, 2)), 0, id="one row"),
        pytest.param(np.zeros((4, 3)), np.ones(5), 0, id="no rows"),
        pytest.param(np.arange(3.0), np.ones((5, 2)), 0, id="several numbers"),
        pytest.param(np.zeros((0, 3)), np.ones((5, 2)), 0, id="nothing"),
        pytest.param(np.zeros(3, np.float32), np.ones((5, 2)), 0, id="another dtype"),
    ],
)
def test_the_last_row_is_that_of_the_bad_input(bad: Any, right: Any, count: int) -> None:
    given = HostArray(right.copy())
    found = list(partial_errors._with_one_row(Sample((bad, 1)), [Sample((given, 1), label="drawn")]))

    assert given.values.tolist() == right.tolist()
    assert len(found) == count
    for sample in found:
        assert sample.args[0].values.tolist() == [*right[:-1].tolist(), [0.0, 0.0]]
        assert (sample.args[1], sample.label) == (1, "drawn, the last row of input 0 is 0.0")


def test_calls_of_other_options_get_no_bad_row() -> None:
    right = Sample((np.ones((5, 2)),), {"axis": 1})

    assert not list(partial_errors._with_one_row(Sample((np.zeros(2),), {"axis": 0}), [right]))
    assert not list(partial_errors._with_one_row(Sample((np.zeros(2), 1), {"axis": 1}), [right]))


def test_calls_of_an_equal_array_as_an_option_get_a_bad_row() -> None:
    right = Sample((np.ones((5, 2)),), {"weights": np.ones(2)})

    assert len(list(partial_errors._with_one_row(Sample((np.zeros(2),), {"weights": np.ones(2)}), [right]))) == 1
    assert not list(partial_errors._with_one_row(Sample((np.zeros(2),), {"weights": np.zeros(2)}), [right]))


def permuted(order: Any, is_bad: Any) -> Any:
    if is_bad(order):
        raise ValueError("give a permutation")
    return order * 1


def by_sum(order: Any) -> bool:
    return bool(order.sum() != order.size * (order.size - 1) // 2 or order.min() < 0 or order.max() >= order.size)


def exactly(order: Any) -> bool:
    return sorted(order.tolist()) != list(range(order.size))


@pytest.mark.parametrize(
    ("is_bad", "match", "is_found"),
    [(exactly, "permutation", False), (by_sum, "permutation", True), (by_sum, "another", False)],
)
def test_two_wrong_numbers_in_a_permutation_are_rejected(is_bad: Any, match: str, is_found: bool) -> None:
    spec = OpSpec(
        fn=lambda xp, order: permuted(order, is_bad), reference=lambda order: permuted(order, exactly), name="order",
        dtypes=("int64",), samples=lambda make: [make.of(np.random.default_rng(1).permutation(9))],
    )  # fmt: skip
    bad = [ErrorInput(Sample((np.zeros(9, np.int64),)), error=ValueError, match=match)]

    found = failure(partial_errors.check_nearly_right, spec, CPU, np.dtype("int64"), bad)

    assert ("1 is moved from one number to another in an ordinary input: look at each" in found) is is_found


def test_two_numbers_are_exchanged_copied_and_moved() -> None:
    for name, wanted in (("exchanged", [3, 2, 1]), ("copied", [3, 2, 3]), ("moved", [2, 2, 2])):
        flat = np.array([1, 2, 3])
        next(change for said, change in partial_errors._CHANGES.items() if name in said)(flat, 0, 2)
        assert flat.tolist() == wanted


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (HostArray(np.arange(3)), 18), (HostArray(np.arange(2)), 0), (HostArray(np.ones(3, np.bool_)), 0),
        (HostArray(np.ones((1, 3), np.float32)), 18), (3, 0),
    ],
    ids=["three integers", "two", "truth values", "floats", "a number"],
)  # fmt: skip
def test_three_changes_are_drawn_six_times(given: Any, count: int) -> None:
    found = list(partial_errors._nearly_right(Sample((0, given))))

    assert len(found) == count
    assert all(one.args[1].shape == given.shape for one, _ in found)


# ------------------------------------------------------------------------------------------------ next to an error


def scaled(a: Any, k: int, off: float = 0.0, least: int = 0) -> Any:
    if k < least:
        raise ValueError(f"k is {k}; give {least} or more")
    return a * (1.0 + (off if k == 0 else 0.0))


def options(off: float = 0.0, least: int = 0, reference_least: int = 0) -> OpSpec:
    return OpSpec(
        fn=lambda xp, a, k: scaled(a, k, off, least), reference=lambda a, k: scaled(a, k, 0.0, reference_least),
        name="scaled", dtypes=("float64",),
        samples=lambda make: [Sample((make(9),), {"k": k}) for k in (2, 5)],
    )  # fmt: skip


def next_to(spec: OpSpec, k: Any = -1, size: float = 1.0, match: str = "k is") -> str:
    bad = ErrorInput(Sample((np.full(3, size),), {"k": k}, label="bad"), error=ValueError, match=match)
    return failure(partial_errors.check_next_to_errors, spec, CPU, FLOAT64, bad)


def test_the_option_next_to_a_rejected_one_is_tried() -> None:
    assert not next_to(options())
    assert next_to(options(off=1.0)).startswith("k=-1 raises as declared, but k=0 is wrong")
    assert "sample: bad, k=0" in next_to(options(off=1.0))
    assert not next_to(options(off=1.0), k=-2)


def test_the_option_next_to_a_rejected_one_is_taken() -> None:
    found = next_to(options(least=1))

    assert "the function rejects this call (ValueError: k is 0; give 1 or more), but the reference accepts it" in found
    assert not next_to(options(least=1), match="")
    assert not next_to(options(least=1, reference_least=1))


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e3])
@pytest.mark.parametrize(("off", "is_found"), [(2.0**-27, False), (2.0**-24, True)])
def test_half_of_the_digits_of_float64_suffice(size: float, off: float, is_found: bool) -> None:
    assert bool(next_to(options(off=off), size=size)) is is_found


def test_integers_next_to_an_error_are_exact() -> None:
    spec = OpSpec(
        fn=lambda xp, a, k: a * k + (k == 0), reference=lambda a, k: a * k, name="times", dtypes=("int64",),
        samples=lambda make: [Sample((make(9),), {"k": k}) for k in (2, 5)],
    )  # fmt: skip
    sample = Sample((np.full(3, 2**40),), {"k": 0})

    assert failure(partial_errors._compare_roughly, spec, CPU, np.dtype("int64"), sample, np.ones(3, np.int64))


@pytest.mark.parametrize(
    ("value", "given", "nearer"),
    [
        pytest.param(-1, [2, 5], [0], id="below"),
        pytest.param(9, [2, 5], [8], id="above"),
        pytest.param(1, [2, 5], [2], id="just below"),
        pytest.param(2, [2, 5], [], id="the least"),
        pytest.param(5, [2, 5], [], id="the most"),
        pytest.param(-1, [2.0], [], id="floats"),
        pytest.param(-1, [], [], id="nothing"),
        pytest.param(-1.0, [2], [], id="a float"),
        pytest.param(True, [2], [], id="a truth value"),
        pytest.param((-1, 9), [(2, 3), (5, 4)], [(0, 9), (-1, 8)], id="a tuple"),
        pytest.param((3, 3), [(2, 5), (4, 9)], [(3, 4)], id="each place of a tuple has its own range"),
        pytest.param((-1, 3), [(2, 3), (5, 4), 7, (1,)], [(0, 3)], id="among other values"),
    ],
)
def test_an_option_moves_one_step_towards_ordinary_ones(value: Any, given: Any, nearer: Any) -> None:
    assert list(partial_errors._nearer(value, given)) == nearer


@pytest.mark.parametrize(
    ("message", "match", "says"),
    [
        ("k is 3", "k is", True), ("k is 3", "k is 9", True), ("k is -3", "k is 9", True), ("k is 3", "n is 9", False),
        ("k is 3", r"k is 9$", False), ("k is 3", r"k is \d$", True),
        ("n (3)", "n (9)", False),
    ],
)  # fmt: skip
def test_a_message_may_differ_from_plain_text_in_its_numbers(message: str, match: str, says: bool) -> None:
    assert partial_errors._says(message, match) is says


@pytest.mark.parametrize(
    ("reference", "kwargs", "needs"),
    [
        pytest.param(lambda a, k: a * k, {"k": 2}, True, id="an option that is needed"),
        pytest.param(lambda a, k=2: a * k, {"k": 2}, False, id="an option with a default"),
        pytest.param(lambda a: a.missing(), {}, False, id="no option"),
    ],
)
def test_a_reference_that_rejects_a_call_without_its_options_needs_them(
    reference: Any, kwargs: dict[str, Any], needs: bool
) -> None:
    spec = OpSpec(fn=lambda xp, a, k=2: a * k, name="times", samples=lambda make: [make(3)])
    object.__setattr__(spec, "reference", reference)

    assert partial_errors._needs_options(spec, Sample((np.ones(3),), kwargs)) is needs


def looping(a: Any) -> Any:
    for one in a:
        a = a + one
    return a


def raising(a: Any) -> Any:
    for one in a:
        if one:
            raise ValueError("no")
    return a


def while_true(a: Any) -> Any:
    while a.any():
        a = a - 1
    return a


@pytest.mark.parametrize(
    ("reference", "ends"),
    [(looping, False), (raising, True), (while_true, False), (lambda a: a * 1, True), (np.negative, True)],
    ids=["a loop", "a loop that raises", "while", "no loop", "no Python code"],
)
def test_a_reference_that_raises_or_has_no_loop_seems_to_end(reference: Any, ends: bool) -> None:
    assert partial_errors._seems_to_end(reference) is ends
