"""Where a NaN is put that results do not depend on, and which triangle of a matrix gets other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import unused
from cuassay.testing.generated.selection import generator
from cuassay.testing.generated.unused import check_unread_triangle, check_unused
from cuassay.testing.samples import HostArray

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")


def free(values: Any) -> HostArray:
    """An array of floats that may be given any number."""
    return HostArray(np.asarray(values, np.float32), is_free=True)


def spec_of(fn: Any, reference: Any, samples: Any = None, **fields: Any) -> OpSpec:
    return OpSpec(
        fn=lambda xp, *given, **options: fn(*given, **options), reference=reference, name="f", dtypes=("float32",),
        samples=samples or (lambda make: [(make(9), make(9, low=0, high=1, dtype="bool"))]), **fields,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ masks

ONES = free(np.arange(1.0, 7))
TWOS = free(np.full(6, 2.0))
MASK = np.array([True, False, True, True, False, True])


def chosen(a: Any, mask: Any) -> Any:
    return np.where(mask, a, 0).astype(a.dtype)


def multiplied(a: Any, mask: Any) -> Any:
    """Wrong behind the mask: zero times NaN is NaN."""
    return a * mask.astype(a.dtype)


def masked(fn: Any, reference: Any = chosen, mask: Any = MASK, a: Any = ONES) -> str:
    return failure(check_unused, spec_of(fn, reference), CPU, Sample((a, mask), label="drawn"))


def test_nan_behind_a_mask_that_spoils_a_result_is_found() -> None:
    said = masked(multiplied)

    assert said.startswith("a NaN that a result does not depend on spoils it: 1 of 6 results, the first at (")
    assert "the reference gives the same for any number there; leave it out, for example by where()" in said
    assert said.endswith("sample: drawn, a NaN in float array 0")
    assert "input 0 there: nan" in said


@pytest.mark.parametrize(
    ("fn", "reference", "mask", "is_found"),
    [
        pytest.param(chosen, chosen, MASK, False, id="right"),
        pytest.param(multiplied, None, MASK, False, id="its own reference"),
        pytest.param(multiplied, chosen, MASK.astype("int32"), True, id="integers"),
        pytest.param(multiplied, chosen, MASK.astype("uint8"), True, id="unsigned integers"),
        pytest.param(multiplied, chosen, MASK.astype("float32"), False, id="floats"),
        pytest.param(multiplied, chosen, np.ones(6, np.bool_), False, id="nothing is masked"),
        pytest.param(lambda a, m: multiplied(a, m[0]), lambda a, m: chosen(a, m[0]), MASK[None], False, id="shape"),
        pytest.param(multiplied, lambda a, m: np.where(m, a, a * 1e-30), MASK, False, id="the reference reads it"),
        pytest.param(multiplied, lambda a, m: np.where(m, a, np.inf), MASK, False, id="an infinite result"),
        pytest.param(lambda a, m: multiplied(a, m).astype("int32"), chosen, MASK, False, id="integers given"),
        pytest.param(multiplied, lambda a, m: chosen(a, m).astype("int32"), MASK, False, id="integers expected"),
        pytest.param(lambda a, m: multiplied(a, m)[:5], chosen, MASK, True, id="another shape"),
        pytest.param(lambda a, m: multiplied(a, m).sum(), lambda a, m: chosen(a, m).sum(), MASK, True, id="a sum"),
    ],
)
def test_nan_behind_a_mask(fn: Any, reference: Any, mask: Any, is_found: bool) -> None:
    with np.errstate(all="ignore"):
        assert bool(masked(fn, reference, mask)) is is_found


@pytest.mark.parametrize("number", [-1e3, 0.5, 1e3])
def test_reference_must_give_the_same_for_three_numbers(number: float) -> None:
    assert masked(multiplied, lambda a, m: chosen(a, m) + (a == number)) == ""
    assert unused._NUMBERS == (-1e3, 0.5, 1e3)


def test_reference_that_rejects_one_of_the_numbers_requires_nothing() -> None:
    def picky(a: Any, mask: Any) -> Any:
        if (a == 0.5).any():
            raise ValueError("not 0.5")
        return chosen(a, mask)

    assert masked(multiplied, picky) == ""


def test_each_free_array_gets_a_nan() -> None:
    spec = spec_of(
        lambda a, b, m: chosen(a, m) + multiplied(b, m), lambda a, b, m: chosen(a, m) + chosen(b, m),
        samples=lambda make: [(make(6), make(6), make(6, low=0, high=1, dtype="bool"))],
    )  # fmt: skip

    assert "a NaN in float array 1" in failure(check_unused, spec, CPU, Sample((ONES, TWOS, MASK), label="drawn"))
    assert failure(check_unused, spec, CPU, Sample((ONES, TWOS.values, MASK))) == ""


def test_eight_places_behind_a_mask_and_eight_others_are_tried() -> None:
    """The reference reads all of them, so that each place is a try."""
    met: list[int] = []

    def noting(a: Any, mask: Any) -> Any:
        met.extend(np.flatnonzero(np.isnan(a)).tolist())
        return a * 1

    check_unused(spec_of(noting, lambda a, mask: a * 1), CPU, Sample((free(np.ones(500)), np.arange(500) >= 400)))

    chance = generator()
    assert met == [*chance.permutation(400)[:8], *chance.integers(0, 500, 8)]


@pytest.mark.parametrize(("size", "count"), [(1, 1), (3, 3), (9, 8)])
def test_no_more_places_are_tried_than_an_array_has(size: int, count: int) -> None:
    met: list[int] = []

    def noting(a: Any, c: Any, beta: float) -> Any:
        met.extend(np.flatnonzero(np.isnan(c)).tolist())
        return a + c.sum()

    spec = spec_of(
        noting, lambda a, c, beta: a + c.sum(), samples=lambda make: [Sample((make(6), make(9)), {"beta": 1.0})]
    )
    check_unused(spec, CPU, Sample((ONES.values, free(np.ones(size))), {"beta": 0.0}))

    assert met == generator().integers(0, size, 8)[:count].tolist()


def test_reference_that_rejects_nan_requires_nothing() -> None:
    def finite(a: Any, index: Any) -> Any:
        if np.isnan(a).any():
            raise ValueError("a NaN")
        return rows_at(a, index)

    spec = spec_of(
        first_row_times_zero, finite, samples=lambda make: [(make((4, 3)), make(3, low=0, high=3, dtype="int64"))]
    )

    assert failure(check_unused, spec, CPU, Sample((TABLE, np.array([1, -1, 2])))) == ""
    assert masked(multiplied, lambda a, m: chosen(a, m) if np.isfinite(a).all() else 1 // 0) == ""


@pytest.mark.parametrize(
    ("options", "is_found"),
    [({"beta": 0.0}, True), ({"beta": -0.0}, True), ({"beta": 1.0}, False), ({"beta": 0}, False), ({}, False)],
    ids=str,
)
def test_operand_that_an_option_of_zero_cancels_gets_a_nan(options: dict[str, Any], is_found: bool) -> None:
    spec = spec_of(
        lambda a, c, beta=0.0: a + beta * c, lambda a, c, beta=0.0: a + (beta * c if beta else 0 * a),
        samples=lambda make: [(make(6), make(6))],
    )  # fmt: skip
    said = failure(check_unused, spec, CPU, Sample((ONES, TWOS), options, "drawn"))

    assert bool(said) is is_found
    assert ("a NaN in float array 1" in said) is is_found


def test_operand_of_one_element_or_none_that_is_cancelled() -> None:
    spec = spec_of(
        lambda a, c, beta: a + (beta * c).sum(), lambda a, c, beta: a + (beta * c).sum() if beta else a * 1,
        samples=lambda make: [Sample((make(6), make(1)), {"beta": 0.0})],
    )  # fmt: skip

    assert failure(check_unused, spec, CPU, Sample((ONES, free([2.0])), {"beta": 0.0})) != ""
    assert failure(check_unused, spec, CPU, Sample((ONES, free([])), {"beta": 0.0})) == ""


# ------------------------------------------------------------------------------------------------ marks


def rows_at(a: Any, index: Any) -> Any:
    """The rows at an index, and 0 for each negative one."""
    return np.where(index[:, None] < 0, 0, a[np.maximum(index, 0)]).astype(a.dtype)


def first_row_times_zero(a: Any, index: Any) -> Any:
    return a[np.maximum(index, 0)] * (index >= 0)[:, None]


def last_row_times_zero(a: Any, index: Any) -> Any:
    return a[index] * (index >= 0)[:, None]


TABLE = free(np.arange(1.0, 13).reshape(4, 3))


@pytest.mark.parametrize(
    ("fn", "index", "is_found"),
    [
        pytest.param(rows_at, [1, -1, 2], False, id="right"),
        pytest.param(first_row_times_zero, [1, -1, 2], True, id="the first row"),
        pytest.param(last_row_times_zero, [1, -1, 2], True, id="the last row"),
        pytest.param(first_row_times_zero, [1, 0, 2], False, id="no mark"),
    ],
)
def test_row_that_a_mark_reads_is_found(fn: Any, index: list[int], is_found: bool) -> None:
    spec = spec_of(fn, rows_at, samples=lambda make: [(make((4, 3)), make(3, low=0, high=3, dtype="int64"))])
    said = failure(check_unused, spec, CPU, Sample((TABLE, np.array(index)), label="drawn"))

    assert bool(said) is is_found
    if is_found:
        column = 0 if fn is first_row_times_zero else 2
        assert f"1 of 9 results, the first at (1, {column})" in said


def test_unsigned_integers_mark_nothing() -> None:
    spec = spec_of(
        first_row_times_zero, rows_at, samples=lambda make: [(make((4, 3)), make(3, low=0, high=3, dtype="uint8"))]
    )

    assert failure(check_unused, spec, CPU, Sample((TABLE, np.array([1, 255, 2], np.uint8)[:0]))) == ""


def without_label(a: Any, labels: Any) -> Any:
    """The mean of the rows that have a label."""
    return a[labels >= 0].sum(axis=0)


def times_weight(a: Any, labels: Any) -> Any:
    return (a * (labels >= 0)[:, None]).sum(axis=0)


@pytest.mark.parametrize(("fn", "is_found"), [(times_weight, True), (without_label, False)], ids=["wrong", "right"])
def test_row_without_a_label_that_spoils_a_result_is_found(fn: Any, is_found: bool) -> None:
    spec = spec_of(fn, without_label, samples=lambda make: [(make((4, 3)), make(4, low=0, high=3, dtype="int64"))])
    said = failure(check_unused, spec, CPU, Sample((TABLE, np.array([0, -1, 2, 1]))))

    assert bool(said) is is_found


@pytest.mark.parametrize(
    ("labels", "shape", "places"),
    [
        ([0, -1, 2, 1], (4, 3), [3]),
        ([-1, -2, 2, 1], (4, 3), [0, 3]),
        ([-1, 0, -1, -1], (4, 3), [0, 6]),
        ([0, 0, 0, -1], (4, 2, 5), [30]),
        ([-1, 0, 0, -1], (4,), [0, 3]),
        ([0, 0, 0, 0], (4, 3), []),
        ([0, -1, 0], (4, 3), []),
        ([-1], (), []),
    ],
    ids=str,
)
def test_at_most_two_rows_without_a_label_are_tried(labels: list[int], shape: Any, places: list[int]) -> None:
    array = np.ones(shape, np.float32)

    assert unused._in_marked_rows(Sample((array, np.array(labels))), array) == places
    assert unused._in_marked_rows(Sample((array, np.array(labels, np.float32))), array) == []


def test_rows_of_several_arrays_of_labels_are_tried_in_order() -> None:
    array = np.ones((4, 3), np.float32)
    sample = Sample((array, np.array([0, 0, 0, -1]), np.array([0, -1, 0, -1])))

    assert unused._in_marked_rows(sample, array) == [3, 9]


@pytest.mark.parametrize(
    ("got", "is_unused", "said"),
    [
        ([np.nan, 1, np.nan], [True, True, True], "2 of 3 results, the first at (0,)"),
        ([np.nan, 1, np.nan], [False, True, True], "1 of 3 results, the first at (2,)"),
        ([np.nan, 1, np.nan], [False, True, False], ""),
        ([np.nan, 1, np.nan], True, "2 of 3 results, the first at (0,)"),
        ([np.nan, 1, np.nan], [True, True], ""),
        ([0, 1, np.inf], True, ""),
        (np.nan, True, "1 of 1 results, the first at ()"),
    ],
    ids=str,
)
def test_results_that_do_not_depend_on_the_nan_are_checked(got: Any, is_unused: Any, said: str) -> None:
    spec = spec_of(lambda a: np.asarray(got, np.float32), lambda a: a * 1, samples=lambda make: [make(3)])
    found = failure(unused._check, spec, CPU, Sample((ONES,), label="drawn"), np.asarray(is_unused))

    assert said in found
    assert bool(found) is bool(said)


# ------------------------------------------------------------------------------------------------ triangles


def lower(a: Any, *, lower: bool = True) -> Any:
    return np.tril(a) if lower else np.triu(a)


def always_lower(a: Any, *, lower: bool = True) -> Any:
    return np.tril(a) + 0


def symmetric_sum(a: Any, *, lower: bool = True) -> Any:
    """Right only for symmetric matrices."""
    return np.where(np.tri(a.shape[-1], dtype=bool), (a + np.swapaxes(a, -1, -2)) / 2, 0).astype(a.dtype)


def symmetric(make: Any) -> list[Any]:
    a = np.random.default_rng(3).uniform(-1, 1, (2, 4, 4))
    return [Sample((make.of(a + a.swapaxes(1, 2)),), {"lower": True})]


def triangle(fn: Any, reference: Any = lower, samples: Any = symmetric) -> str:
    return failure(check_unread_triangle, spec_of(fn, reference, samples), CPU, FLOAT32)


def test_triangle_that_is_read_by_mistake_is_found() -> None:
    said = triangle(symmetric_sum)

    assert said.startswith("wrong for other numbers in the triangle that the reference does not read: is the wrong one")
    assert "other numbers in the upper triangle of input 0" in said
    assert "sample: " in said
    assert triangle(lower) == ""


def test_option_that_is_not_given_names_a_triangle_by_its_default() -> None:
    def fn(xp: Any, a: Any, *, lower: bool = True) -> Any:
        return symmetric_sum(a)

    spec = OpSpec(
        fn=fn, reference=lower, name="f", dtypes=("float32",),
        samples=lambda make: [(one.args[0],) for one in symmetric(make)],
    )  # fmt: skip

    assert failure(check_unread_triangle, spec, CPU, FLOAT32) != ""


@pytest.mark.parametrize(
    ("name", "is_found"),
    [("lower", True), ("upper", True), ("uplo", True), ("UPLO", True), ("triangle", True), ("fill_mode", True),
     ("cut", False)],
)  # fmt: skip
def test_options_that_name_a_triangle(name: str, is_found: bool) -> None:
    samples = lambda make: [Sample(one.args, {name: 1}) for one in symmetric(make)]  # noqa: E731

    assert bool(triangle(lambda a, **k: symmetric_sum(a), lambda a, **k: lower(a), samples)) is is_found


def test_function_that_is_its_own_reference_or_reads_both_triangles_passes() -> None:
    whole = lambda a, *, lower: a + np.swapaxes(a, -1, -2)  # noqa: E731

    assert triangle(symmetric_sum, None) == ""
    assert triangle(symmetric_sum, whole) == ""


def test_matrix_that_the_reference_rejects_with_other_numbers_is_left_out() -> None:
    def picky(a: Any, *, lower: bool) -> Any:
        if not np.allclose(a, np.swapaxes(a, -1, -2)):
            raise ValueError("not symmetric")
        return np.tril(a)

    assert triangle(symmetric_sum, picky) == ""


@pytest.mark.parametrize(("extent", "is_found"), [(94, True), (95, False)])
def test_matrix_has_at_most_9000_elements(extent: int, is_found: bool) -> None:
    samples = lambda make: [Sample((make.of(np.eye(extent) + 1),), {"lower": True})]  # noqa: E731
    wrong = lambda a, *, lower: np.where((np.triu(a, 1) == 0.5).any(), 7, np.tril(a)).astype(a.dtype)  # noqa: E731

    assert bool(triangle(wrong, samples=samples)) is is_found


@pytest.mark.parametrize(
    ("name", "cut", "changed"),
    [
        ("lower", np.tril_indices, [[1, 2, 3], [4.0, 5, 6], [2.0, 3.5, 9]]),
        ("upper", np.triu_indices, [[1, 3.0, 1.0], [4, 5, 1.5], [7, 8, 9]]),
    ],
    ids=["lower", "upper"],
)
def test_numbers_of_a_triangle_are_reordered_and_halved(name: str, cut: Any, changed: Any) -> None:
    matrix = np.arange(1.0, 10).reshape(3, 3)
    sample = Sample((2, matrix), {"lower": True}, "drawn")

    other = unused._with_triangle(sample, 1, matrix, cut, name)

    assert other is not None
    assert other.args[1].values.tolist() == changed
    assert (other.args[0], other.kwargs) == (2, {"lower": True})
    assert other.label == f"drawn, other numbers in the {name} triangle of input 1"
    assert matrix.tolist() == np.arange(1.0, 10).reshape(3, 3).tolist()


@pytest.mark.parametrize(
    ("array", "is_matrix"),
    [
        (np.ones((2, 2)), True), (np.ones((3, 2, 2), np.complex64), True), (np.ones((2, 3)), False),
        (np.ones(4), False), (np.ones((1, 1)), False), (np.ones((2, 2), np.int64), False), (4.0, False),
        (np.ones((2, 2, 1)), False),
    ],
    ids=["matrix", "complex batch", "not square", "vector", "one number", "integers", "a number", "batch"],
)  # fmt: skip
def test_only_square_matrices_of_floats_have_triangles(array: Any, is_matrix: bool) -> None:
    found = unused._with_triangle(Sample((array,)), 0, array, np.triu_indices, "upper")

    assert (found is not None) is is_matrix


@pytest.mark.parametrize(("least", "is_marked"), [(0, False), (-1, True)])
def test_rows_are_marked_by_negative_numbers_alone(
    least: int, is_marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(unused, "_check_marked", lambda spec, device, sample: asked.append(sample))
    sample = Sample((ONES, np.array([least, 0, 1, 2, 3, 4])), label="drawn")

    check_unused(spec_of(lambda a, rows: a * 1, lambda a, rows: a * 1), CPU, sample)

    assert bool(asked) is is_marked
