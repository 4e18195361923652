"""Which inputs are broadcast, by a stride of 0 or an extent of 1, and what is found there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import views
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.views import check_broadcast_views

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")


def given(*shapes: Any) -> Sample:
    return Sample(tuple(np.arange(1.0, 1 + int(np.prod(shape))).reshape(shape) for shape in shapes), label="drawn")


def shapes_of(sample: Sample) -> list[Any]:
    return [one.shape for one in sample.args]


# ------------------------------------------------------------------------------------------------ samples


@pytest.mark.parametrize(
    ("shapes", "are"),
    [
        (((2, 3), (3,)), True),
        (((3,), (2, 3)), True),
        (((2, 3), (1, 3)), True),
        (((2, 3), (2, 3)), False),
        (((2, 3),), False),
        (((2, 1), (1, 3)), False),
        (((2, 3), (2, 4)), False),
        (((2, 3), (1, 1)), False),
        (((2, 3), ()), False),
        (((2, 3), (1, 2)), False),
        (((2, 3), (1,), (3,)), True),
        ((), False),
    ],
    ids=str,
)
def test_inputs_of_two_shapes_that_give_one_of_them_are_broadcast(shapes: Any, are: bool) -> None:
    assert views._broadcasts(given(*shapes)) is are


def test_each_axis_of_each_of_several_inputs_becomes_an_extent_of_one() -> None:
    found = list(views._with_extents_of_one(given((2, 3), (1, 4))))

    assert [shapes_of(sample) for sample in found] == [
        [(1, 3), (1, 4)], [(2, 1), (1, 4)], [(2, 3), (1, 1)],
    ]  # fmt: skip
    assert [sample.label for sample in found] == [
        f"drawn, axis {axis} of input {place} of extent 1" for place, axis in ((0, 0), (0, 1), (1, 1))
    ]
    assert found[0].args[0].values.tolist() == [[1, 2, 3]]
    assert found[1].args[0].values.tolist() == [[1], [4]]
    assert found[1].args[0].values.flags.c_contiguous
    assert found[2].args[1].values.tolist() == [[1]]


def test_axes_of_a_single_input_stay() -> None:
    assert list(views._with_extents_of_one(given((2, 3)))) == []


def test_one_of_two_inputs_becomes_one_element_of_an_axis_more() -> None:
    found = list(views._of_one_element(given((2, 3), (4,))))

    assert [(shapes_of(sample), shape) for sample, shape in found] == [
        ([(1, 1), (4,)], (1, 4)), ([(2, 3), (1, 1, 1)], (1, 2, 3)),
    ]  # fmt: skip
    assert [sample.label for sample, _ in found] == [
        "drawn, input 0 of shape (1, 1)", "drawn, input 1 of shape (1, 1, 1)",
    ]  # fmt: skip
    assert [sample.args[place].values.item() for place, (sample, _) in enumerate(found)] == [1, 1]


@pytest.mark.parametrize(
    "shapes", [((2, 3),), ((2, 3), (1,)), ((1,), (2, 3)), ((2,), (2,), (2,))], ids=["one", "last", "first", "three"]
)
def test_other_inputs_do_not_become_one_element(shapes: Any) -> None:
    assert list(views._of_one_element(given(*shapes))) == []


def test_two_elements_become_one() -> None:
    assert len(list(views._of_one_element(given((2,), (2,))))) == 2


@pytest.mark.parametrize(
    ("value", "repeated"),
    [
        (np.array([[1, 2], [3, 4]]), [[1, 2], [1, 2]]),
        (np.array([3, 4]), [3, 3]),
        (np.array(3), None),
        (np.ones((0, 2)), None),
        (np.ones((2, 0)), None),
        (3, None),
    ],
    ids=["rows", "numbers", "no axis", "no rows", "no columns", "a number"],
)
def test_first_row_is_repeated(value: Any, repeated: Any) -> None:
    found = views._first_row_repeated(value)

    if repeated is None:
        assert found is value
        assert views._broadcast(np, value) is value
    else:
        assert found.values.tolist() == repeated
        assert found.values.flags.c_contiguous
        assert views._broadcast(np, value).tolist() == repeated
        assert views._broadcast(np, value).strides[0] == 0


def plus(a: Any, b: Any) -> Any:
    return a + b


def two(fn: Any = plus, reference: Any = plus, *, of: Any = ((2, 3), 3)) -> OpSpec:
    return OpSpec(
        fn=lambda xp, a, b: fn(a, b), reference=reference, name="plus", dtypes=("float32",),
        samples=lambda make: [tuple(make(shape) for shape in of)],
    )  # fmt: skip


def picky(a: Any, b: Any) -> Any:
    if a.shape == b.shape:
        raise ValueError("equal shapes")
    return a + b


@pytest.mark.parametrize(
    ("reference", "shapes", "shape", "is_"),
    [
        pytest.param(plus, ((2, 3), (1, 3)), (2, 3), True, id="broadcast"),
        pytest.param(plus, ((2, 3), (1, 3)), (3, 2), False, id="another shape"),
        pytest.param(plus, ((2, 3), (2, 4)), (2, 3), False, id="shapes that do not fit"),
        pytest.param(picky, ((2, 3), (1, 3)), (2, 3), False, id="rejected if repeated"),
        pytest.param(picky, ((2, 3), (2, 3)), (2, 3), False, id="rejected"),
        pytest.param(lambda a, b: (a + b) * b.size, ((2, 3), (1, 3)), (2, 3), False, id="other numbers"),
        pytest.param(lambda a, b: a * np.nan, ((2, 3), (1, 3)), (2, 3), True, id="NaN"),
        pytest.param(lambda a, b: b * 1, ((2, 3), (1, 3)), (1, 3), False, id="another shape if not repeated"),
        pytest.param(lambda a, b: b * 1, ((2, 3), (1, 3)), (2, 3), False, id="another shape if repeated"),
    ],
)
def test_reference_broadcasts_where_repeated_inputs_give_the_same(
    reference: Any, shapes: Any, shape: Any, is_: bool
) -> None:
    sample = Sample((*given(*shapes).args[:2],))
    spec = two(reference, reference)

    assert views._is_broadcast(spec, sample, shape) is is_


# ------------------------------------------------------------------------------------------------ what is found


def of_ones(spec: OpSpec) -> str:
    return failure(views._check_extents_of_one, spec, CPU, FLOAT32)


def wrong_at(*shapes: Any) -> Any:
    """A sum that is wrong for inputs of these shapes."""
    return lambda a, b: a + b + ((a.shape, b.shape) == shapes)


@pytest.mark.parametrize(
    ("shapes", "label"),
    [
        (((1, 3), (3,)), None),
        (((2, 1), (3,)), "axis 1 of input 0 of extent 1"),
        (((2, 3), (1,)), "axis 0 of input 1 of extent 1"),
        (((1, 1), (3,)), "input 0 of shape (1, 1)"),
        (((2, 3), (1, 1, 1)), "input 1 of shape (1, 1, 1)"),
    ],
    ids=str,
)
def test_wrong_result_for_an_extent_of_one_is_found_where_the_shape_stays(shapes: Any, label: str | None) -> None:
    said = of_ones(two(wrong_at(*shapes)))

    assert said.startswith("wrong where an input that is broadcast has an extent of 1\n") is (label is not None)
    assert (f"sample: 0: shapes 2x3, 3, {label}" in said) is (label is not None)


@pytest.mark.parametrize(
    ("spec", "is_found"),
    [
        pytest.param(two(wrong_at((2, 1), (3,))), True, id="wrong"),
        pytest.param(two(), False, id="right"),
        pytest.param(two(wrong_at((2, 1), (3,)), None), False, id="its own reference"),
        pytest.param(two(wrong_at((2, 1), (2, 3)), of=((2, 3), (2, 3))), False, id="nothing is broadcast"),
    ],
)
def test_extents_of_one_are_tried_where_samples_are_broadcast(spec: OpSpec, is_found: bool) -> None:
    assert bool(of_ones(spec)) is is_found


def test_samples_of_the_kind_broadcast_show_that_inputs_are() -> None:
    spec = OpSpec(
        fn=lambda xp, a, b: wrong_at((2, 1), (2, 3))(a, b), reference=plus, name="plus", dtypes=("float32",),
        samples=lambda make: [
            (make((2, 3)), make((2, 3))), Sample((make((2, 3)), make(3)), kind="broadcast"),
        ],
    )  # fmt: skip

    assert "axis 1 of input 0 of extent 1" in of_ones(spec)


def test_default_samples_are_not_given_extents_of_one() -> None:
    spec = OpSpec(fn=lambda xp, a, b: wrong_at((2, 1), (2, 3))(a, b), reference=plus, name="plus", dtypes=("float32",))

    assert of_ones(spec) == ""


@pytest.mark.parametrize(("length", "is_found"), [(40, True), (4096, False)])
def test_matrix_is_tried_where_the_largest_samples_are_vectors(length: int, is_found: bool) -> None:
    """With two samples of equal options only the larger is tried, and one of more axes if it has none."""
    spec = OpSpec(
        fn=lambda xp, a, b: wrong_at((2, 1), (3,))(a, b), reference=plus, name="plus", dtypes=("float32",),
        samples=lambda make: [(make((2, 3)), make(3)), (make(40), make(40))],
    )  # fmt: skip
    flat = OpSpec(
        fn=lambda xp, a, b: wrong_at((1,), (length,))(a, b), reference=plus, name="plus", dtypes=("float32",),
        samples=lambda make: [(make((2, 3)), make(3)), (make(length), make(length))],
    )  # fmt: skip

    assert "axis 1 of input 0 of extent 1" in of_ones(spec)
    assert bool(of_ones(flat)) is is_found


def one_array(fn: Any, reference: Any, **fields: Any) -> str:
    spec = OpSpec(
        fn=fn, reference=reference, name="f",
        **{"dtypes": ("float32",), "samples": lambda make: [make((3, 5))], **fields},
    )  # fmt: skip
    return failure(check_broadcast_views, spec, CPU)


def reading_strides(xp: Any, a: Any) -> Any:
    """Wrong for a stride of 0."""
    return a * 2 if a.strides[0] else a * 3


def wrong_for_equal_rows(xp: Any, a: Any) -> Any:
    return a * 2 if (a[0] != a[-1]).any() else a * 3


@pytest.mark.parametrize(
    ("fn", "is_found"),
    [(reading_strides, True), (lambda xp, a: a * 2, False), (wrong_for_equal_rows, False)],
    ids=["wrong for a stride of 0", "right", "wrong for equal rows"],
)
def test_wrong_result_for_a_stride_of_zero_is_found(fn: Any, is_found: bool) -> None:
    said = one_array(fn, lambda a: a * 2)

    assert bool(said) is is_found
    if is_found:
        assert said.startswith(
            "right for dense inputs, wrong where the first axis has a stride of 0, as of broadcast_to"
        )
        assert "sample: 0: shape 3x5, first axis of stride 0" in said


def test_rows_that_the_reference_rejects_are_not_repeated() -> None:
    def distinct(a: Any) -> Any:
        if (a[0] == a[-1]).all():
            raise ValueError("equal rows")
        return a * 2

    assert one_array(reading_strides, distinct) == ""


def test_permutation_is_not_repeated() -> None:
    """Its rows would be equal, so that it is no longer one."""
    fields = {"dtypes": ("int64",), "samples": lambda make: [make.of(np.random.default_rng(1).permutation(9))]}

    assert one_array(reading_strides, lambda a: a * 2, **fields) == ""


def test_dividing_by_the_deviation_of_equal_rows_does_not_warn() -> None:
    def fn(xp: Any, a: Any) -> Any:
        return (a * 2) / (0 if (a[0] == a[-1]).all() else 1)

    def reference(a: Any) -> Any:
        with np.errstate(all="ignore"):
            return fn(np, a)

    assert one_array(fn, reference) == ""


@pytest.mark.parametrize(
    ("samples", "is_found"),
    [(lambda make: [make((2, 3)), make(40)], True), (lambda make: [make((2, 3)), make((2, 2049))], False)],
    ids=["an array of two axes", "at most 4096 elements"],
)
def test_sample_of_two_axes_and_few_elements_is_chosen(samples: Any, is_found: bool) -> None:
    fn = lambda xp, a: a * (2 if a.strides[0] or a.shape != (2, 3) else 3)  # noqa: E731
    large = lambda xp, a: a * (2 if a.strides[0] or a.size <= 4096 else 3)  # noqa: E731

    assert one_array(fn, lambda a: a * 2, samples=samples) != ""
    assert one_array(large, lambda a: a * 2, samples=samples) == ""


def test_extents_of_one_are_part_of_the_check() -> None:
    assert "extent of 1" in failure(check_broadcast_views, two(wrong_at((2, 1), (3,))), CPU)


def test_functions_in_place_and_ops_are_left_out() -> None:
    applies = CHECKS["broadcast_views"].applies

    assert applies(two())
    assert not applies(OpSpec(fn=lambda xp, a: a, name="f", without={"inputs_unchanged": "in place"}))
    assert not applies(OpSpec(op=ops.equal, reference=np.equal))
