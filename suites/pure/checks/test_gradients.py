"""Checks of derivatives: which calls are tried, and which wrong gradients are found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuassay import Device, ops
from cuassay.errors import GradientError, RaceError
from cuassay.ops import Formula, rules
from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.execution import REGISTERED
from cuassay.testing.generated.gradients import (
    _assert_finite,
    _Call,
    _check_differences,
    _check_far,
    _check_rounding,
    _differentiable,
    _dtypes,
    _gradients,
    _of_other_options,
    _rounding,
    _samples,
    _shortened,
    _where_defined,
    assert_has_derivative,
)
from cuassay.testing.samples import HostArray, Sample

CPU = Device("cpu")


def spec_of(op: Any, samples: Any, reference: Any, **fields: Any) -> OpSpec:
    fields = {"dtypes": ("float64",), **fields}
    return OpSpec(op=op, samples=samples, reference=reference, supports_grad=True, **fields)


def shapes_of(drawn: list[Sample]) -> list[tuple[Any, ...]]:
    return [tuple(one.shape for one in sample.args if isinstance(one, HostArray)) for sample in drawn]


# ------------------------------------------------------------------------------------------------ what is tried


def of_sums(*drawn: Sample) -> OpSpec:
    return spec_of(ops.add, lambda make: list(drawn), np.add)


def ones(*shapes: tuple[int, ...], **fields: Any) -> Sample:
    return Sample(tuple(HostArray(np.ones(shape)) for shape in shapes), **fields)


@pytest.mark.parametrize(
    ("shapes", "is_tried"), [(((29, 20), (20,)), True), (((30, 20), (1,)), False)], ids=["600 elements", "601"]
)
def test_broadcast_call_of_at_most_600_elements_is_tried(shapes: Any, is_tried: bool) -> None:
    spec = of_sums(ones((3, 5), (3, 5)), ones(*shapes, kind="broadcast"))

    assert (shapes in shapes_of(_samples(spec, CPU, "float64"))) is is_tried


def test_three_broadcast_calls_are_tried() -> None:
    broadcast = [((rows, 5), (5,)) for rows in (2, 3, 4, 6)]
    spec = of_sums(ones((3, 5), (3, 5)), *(ones(*shapes, kind="broadcast") for shapes in broadcast))

    assert [one for one in shapes_of(_samples(spec, CPU, "float64")) if one in broadcast] == broadcast[:3]


def test_largest_call_one_of_each_number_of_axes_and_two_layouts_are_tried() -> None:
    spec = spec_of(
        ops.exp,
        lambda make: [make(7), make((2, 3)), make((4, 5)), make((2, 3, 4)), make((300, 3)), make(0)],
        np.exp,
    )
    drawn = _samples(spec, CPU, "float64")

    assert shapes_of(drawn) == [((2, 3, 4),), ((4, 5),), ((7,),), ((2, 3, 4),), ((2, 3, 4),)]
    assert [one.args[0].layout for one in drawn[-2:]] == ["transposed", "strided"]


def test_call_is_shortened_where_all_of_its_options_are_too_large() -> None:
    samples = lambda make: [make((3, 5)), *(Sample((make(shape),), {"axis": 0}) for shape in ((30, 40), (50, 40)))]  # noqa: E731
    spec = spec_of(ops.sum, samples, lambda a, axis=None: a.sum(axis))
    (found,) = _of_other_options(spec, CPU, np.dtype("float64"), [ones((3, 5))])

    assert (found.args[0].shape, dict(found.kwargs)) == ((2, 3), {"axis": 0})


def test_options_that_are_tried_already_are_not_tried_again() -> None:
    samples = lambda make: [make((3, 5)), Sample((make((2, 3)),), {"axis": 0}), Sample((make(0),), {"axis": -1})]  # noqa: E731
    spec = spec_of(ops.sum, samples, lambda a, axis=None: a.sum(axis))
    several = [ones((3, 5)), ones((2, 3), kwargs={"axis": 0})]

    assert _of_other_options(spec, CPU, np.dtype("float64"), several) == []
    assert shapes_of(_of_other_options(spec, CPU, np.dtype("float64"), several[:1])) == [((2, 3),)]


@pytest.mark.parametrize(
    ("shapes", "short"),
    [
        (((1, 50, 7), (7,)), ((1, 3, 2), (2,))),
        (((50, 7), (1, 7)), ((3, 2), (1, 2))),
        (((2, 3, 9),), ((2, 3, 4),)),
        (((40, 40),), ((2, 2),)),
        (((0, 9),), ((0, 2),)),
    ],
    ids=str,
)
def test_extents_become_2_3_and_4_and_1_stays_1(shapes: Any, short: Any) -> None:
    assert shapes_of([_shortened(ones(*shapes))]) == [short]


def test_array_by_name_is_shortened_too() -> None:
    short = _shortened(Sample((HostArray(np.ones((9, 8))),), {"weight": HostArray(np.ones(4))}))

    assert (short.args[0].shape, short.kwargs["weight"].shape) == ((4, 3), (2,))


def test_numbers_become_positive_only_where_the_op_is_undefined_for_some() -> None:
    spec = spec_of(ops.log, lambda make: [make(9)], np.log)
    defined, undefined = (Sample((HostArray(np.array(values)),)) for values in ([1.0, 4.0], [-1.0, 4.0]))

    assert _where_defined(spec, defined) is defined
    assert _where_defined(spec, undefined).host()[0][0].tolist() == [1.25, 4.25]


def test_real_floating_point_dtypes_are_tried_the_widest_first() -> None:
    spec = spec_of(
        ops.exp, lambda make: [make(9)], np.exp, dtypes=("bfloat16", "float32", "float64", "complex64", "float16")
    )

    assert _dtypes(spec, CPU)[0] == "float64"
    assert sorted(_dtypes(spec, CPU)) == ["bfloat16", "float16", "float32", "float64"]


def test_op_without_floating_point_numbers_is_skipped() -> None:
    spec = spec_of(ops.add, lambda make: [(make(9), make(9))], np.add, dtypes=("int32",))

    with pytest.raises(pytest.skip.Exception, match="add has no floating dtype here"):
        _dtypes(spec, CPU)


@pytest.mark.parametrize(("dtype", "half"), [("float64", 2.0**-53), ("float32", 2.0**-24), ("int64", 0.0)])
def test_rounding_is_half_a_unit_in_the_last_place_of_1(dtype: str, half: float) -> None:
    assert _rounding(dtype) == half


# ------------------------------------------------------------------------------------------------ what is found


def of_exp(dtypes: tuple[str, ...] = ("float64",)) -> OpSpec:
    return spec_of(ops.exp, lambda make: [make((3, 5))], np.exp, dtypes=dtypes)


@pytest.fixture
def derive(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces the derivative of `exp` for one test; its formula gets the gradient and the result."""

    def replace(formula: Any) -> None:
        table = {**rules._derivatives, "exp": {"a": Formula(lambda g, forward: formula(g, forward.out), ("out",))}}
        monkeypatch.setattr(rules, "_derivatives", table)

    return replace


def right(grad: Any, out: Any) -> Any:
    return ops.mul(grad, out)


def twice(grad: Any, out: Any) -> Any:
    return ops.mul(right(grad, out), 2.0)


def off_in_float32(grad: Any, out: Any) -> Any:
    """Off by 64 roundings of float32, and right in float64."""
    return ops.mul(right(grad, out), 1 + 2.0**-17 * (str(out.dtype) == "float32"))


def in_single(grad: Any, out: Any) -> Any:
    return ops.cast(ops.cast(right(grad, out), dtype="float32"), dtype=out.dtype)


def cubed_on_the_way(grad: Any, out: Any) -> Any:
    """Right, but the cube of a large result overflows."""
    squares = ops.mul(out, out)
    return ops.div(ops.mul(grad, ops.mul(squares, out)), squares)


@pytest.mark.parametrize(
    ("formula", "dtype", "message"),
    [
        (right, "float64", None),
        (right, "float32", None),
        (right, "bfloat16", None),
        (twice, "float64", "gradient"),
        (off_in_float32, "float32", "gradient 0 in float32 differs by up to"),
        (off_in_float32, "float64", None),
        (in_single, "float64", "gradient 0 in float64 was rounded to float32: each number in it is float32's"),
        (cubed_on_the_way, "float32", "gradient 0 is .* where the value is finite"),
    ],
)
def test_wrong_derivative_is_found(derive: Any, formula: Any, dtype: str, message: str | None) -> None:
    derive(formula)

    if message is None:
        CHECKS["gradients"](of_exp((dtype,)), CPU)
    else:
        with pytest.raises(AssertionError, match=message) as caught:
            CHECKS["gradients"](of_exp((dtype,)), CPU)
        assert dtype in str(caught.value) + "".join(getattr(caught.value, "__notes__", []))


def test_gradients_that_change_from_call_to_call_are_found(derive: Any) -> None:
    calls = iter(range(1000))
    derive(lambda grad, out: ops.mul(right(grad, out), 1 + 1e-12 * (next(calls) % 2)))

    with pytest.raises(AssertionError, match="differ"):
        CHECKS["gradients"](of_exp(), CPU)


def test_error_of_24_roundings_of_the_largest_element_is_allowed(derive: Any) -> None:
    spec, sample = of_exp(("float32",)), Sample((HostArray(np.full(4, -4, np.float32)),))  # its gradients are below 1
    derive(lambda grad, out: ops.add(right(grad, out), 2.0**-20 * (str(out.dtype) == "float32")))

    _check_rounding(spec, CPU, "float32", sample, 2.0**-24)
    with pytest.raises(AssertionError, match="differs by up to"):
        _check_rounding(spec, CPU, "float32", sample, 2.0**-26)


def test_gradients_of_no_elements_are_right() -> None:
    _check_rounding(of_exp(("float32",)), CPU, "float32", Sample((HostArray(np.zeros(0, np.float32)),)), 2.0**-24)


@pytest.mark.parametrize("number", [-800.0, 100.0], ids=["zero", "beyond float32"])
def test_gradients_that_are_zero_or_beyond_float32_are_not_rounded_to_it(number: float) -> None:
    _check_differences(of_exp(), CPU, Sample((HostArray(np.full(4, number)),)))


def test_overflow_on_the_way_to_a_gradient_does_not_warn() -> None:
    (gradient,) = _gradients(of_exp(), CPU, Sample((HostArray(np.full(4, 1e3)),)))

    assert np.isinf(gradient).all()


def test_gradient_is_by_floating_point_arguments_only() -> None:
    samples = lambda make: [(make(4), 2.0)]  # noqa: E731
    spec = spec_of(ops.mul, samples, np.multiply)

    assert len(_gradients(spec, CPU, next(spec.draw(1, "float64")))) == 1


@pytest.mark.parametrize(
    ("check", "name", "error"),
    [
        ("gradients_streams", "cuassay.devices.sim.stream.SimStream.wait_stream", RaceError),
        ("gradients_graph", "cuassay.devices.sim.capture.SimCapture.replay", AssertionError),
    ],
)
def test_gradient_on_a_side_stream_or_in_a_graph_is_computed_there(
    check: str, name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    CHECKS[check](of_exp(), "sim")

    monkeypatch.setattr(name, lambda self, *args: None)
    with pytest.raises(error):
        CHECKS[check](of_exp(), "sim")


def test_streams_and_graphs_are_needed() -> None:
    assert [REGISTERED[name].needs for name in ("gradients", "gradients_streams", "gradients_graph")] == [
        (), ("streams",), ("graphs",)
    ]  # fmt: skip


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gradient_that_is_not_finite_names_its_place(bad: float) -> None:
    second = np.ones((2, 3))
    second[1, 2] = bad
    _assert_finite([np.ones(3), np.full(3, 1e300)])

    with pytest.raises(AssertionError, match=rf"gradient 1 is {bad} at \(1, 2\), where the value is finite"):
        _assert_finite([np.ones(3), second])


def test_claimed_derivative_must_exist() -> None:
    assert_has_derivative(of_exp())

    spec: Any = SimpleNamespace(name="qr", declared=ops.qr)
    with pytest.raises(GradientError, match="qr claims supports_grad and has no derivative: it has several outputs"):
        assert_has_derivative(spec)
    assert list(_differentiable(spec)) == []


def test_op_is_differentiated_by_the_arrays_that_have_a_formula() -> None:
    index = spec_of(
        ops.gather,
        lambda make: [(make((3, 5)), make((3, 5), dtype="int64", low=0, high=2))],
        lambda a, index: np.take_along_axis(a, index, 0),
    )

    assert list(_differentiable(index)) == [0]
    assert list(_differentiable(of_sums(ones((3, 5), (3, 5))))) == [0, 1]


def test_call_needs_a_derivative() -> None:
    spec: Any = SimpleNamespace(name="qr", declared=ops.qr)

    with pytest.raises(GradientError, match="qr claims supports_grad"):
        _Call(spec, CPU, ones((3, 3)))


def test_numbers_that_are_not_finite_do_not_tell_whether_gradients_are_rounded(derive: Any) -> None:
    """A NaN next to numbers that are all float32's."""
    derive(lambda grad, out: ops.mul(in_single(grad, out), ops.div(out, out)))
    sample = Sample((HostArray(np.array([1e3, 0.5, 0.25, 0.125])),))

    with pytest.raises(AssertionError, match="gradient 0 in float64 was rounded to float32"):
        _check_differences(of_exp(), CPU, sample)


def elements_checked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []

    def check(function: Any, chosen: Any, *, elements: int) -> None:
        asked.append((elements, float(np.abs(chosen[0]).max())))

    monkeypatch.setattr("cuassay.testing.generated.gradients.gradcheck", check)
    return asked


def test_four_elements_are_changed_and_eight_of_larger_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = elements_checked(monkeypatch)
    spec = of_exp()
    sample = _samples(spec, CPU, "float64")[0]
    most = float(np.abs(sample.host()[0][0]).max())

    _check_differences(spec, CPU, sample)
    _check_far(spec, CPU, "float64")

    assert asked == [(4, most), (8, 16 * most)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_larger_numbers_of_other_dtypes_have_no_differences(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = elements_checked(monkeypatch)

    _check_far(of_exp((dtype,)), CPU, dtype)

    assert asked == []


def test_sixteen_bits_and_ranges_get_no_larger_numbers(derive: Any) -> None:
    derive(lambda grad, out: ops.mul(right(grad, out), np.inf))
    ranged = spec_of(ops.exp, lambda make: [make((3, 5), low=0, high=1)], np.exp)

    _check_far(of_exp(("float16",)), CPU, "float16")
    _check_far(ranged, CPU, "float64")
    with pytest.raises(AssertionError, match="where the value is finite") as caught:
        _check_far(of_exp(("float32",)), CPU, "float32")
    assert "times 16, float32" in "".join(caught.value.__notes__)


def test_the_smallest_call_of_other_options_is_tried() -> None:
    drawn = [ones(shape, kwargs={"axis": 0}) for shape in ((5, 6), (2, 3), (4, 5))]
    spec = spec_of(ops.sum, lambda make: drawn, lambda a, axis=None: a.sum(axis))

    assert shapes_of(_of_other_options(spec, CPU, np.dtype("float64"), [])) == [((2, 3),)]


def test_checks_of_streams_need_streams() -> None:
    assert CHECKS["gradients_streams"].needs == ("streams",)
