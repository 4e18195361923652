"""Calls that give two optional arrays, of which each sample gives one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.optional_arrays import _fitted, with_several_optional_arrays
from cuassay.testing.samples import HostArray


def by_name(xp: Any, a: Any, *, weights: Any = None, offsets: Any = None) -> Any:
    return a * (1 if weights is None else weights) + (0 if offsets is None else offsets)


def by_place(xp: Any, a: Any, weights: Any = None, offsets: Any = None) -> Any:
    return by_name(xp, a, weights=weights, offsets=offsets)


def of_any_number(xp: Any, *arrays: Any, scale: float = 1.0, weights: Any = None, offsets: Any = None) -> Any:
    return by_name(xp, scale * sum(arrays[1:], arrays[0]), weights=weights, offsets=offsets)


def shapes_of(fn: Any, samples: Any) -> list[tuple[list[Any], dict[str, Any]]]:
    """The calls that are tried, with the shape in place of each array."""
    spec = OpSpec(
        fn=fn,
        name=fn.__name__,
        dtypes=("float64",),
        samples=samples,
        reference=lambda *args, **kwargs: fn(np, *args, **kwargs),
    )

    def shape(value: Any) -> Any:
        return value.shape if isinstance(value, HostArray) else value

    calls = with_several_optional_arrays(spec, Device("cpu"), np.dtype("float64"))
    return [(list(map(shape, one.args)), {name: shape(value) for name, value in one.kwargs.items()}) for one in calls]


@pytest.mark.parametrize(
    ("fn", "second", "args", "kwargs"),
    [
        (by_name, lambda a, w: Sample((a,), {"weights": w}), [(4, 5)], {"weights": (5,), "offsets": (5,)}),
        (by_place, lambda a, w: Sample((a, w)), [(4, 5), (5,)], {"offsets": (5,)}),
        (by_place, lambda a, w: Sample((a, w, None)), [(4, 5), (5,), (5,)], {}),
        (
            of_any_number,
            lambda a, w: Sample((a, a), {"scale": 2.0, "weights": w}),
            [(4, 5), (4, 5)],
            {"scale": 2.0, "weights": (5,), "offsets": (5,)},
        ),
    ],
    ids=["by name", "by place", "None by place", "any number of arrays"],
)
def test_array_of_another_sample_is_added_to_a_call_and_fits_it(
    fn: Any, second: Any, args: list[Any], kwargs: dict[str, Any]
) -> None:
    found = shapes_of(fn, lambda make: [second(make((4, 5)), make(5)), Sample((make((2, 3)),), {"offsets": make(3)})])

    assert found == [(args, kwargs)]


def test_arrays_that_a_sample_gives_together_are_not_tried() -> None:
    def samples(make: Any) -> list[Any]:
        both = {"weights": make(5), "offsets": make(5)}
        return [Sample((make((4, 5)),), {name: one}) for name, one in both.items()] + [Sample((make((4, 5)),), both)]

    assert shapes_of(by_name, samples) == []


def test_further_array_of_any_number_is_not_taken_for_an_option() -> None:
    def samples(make: Any) -> list[Any]:
        arrays = tuple(make((4, 5)) for _ in range(4))
        return [Sample(arrays, {"weights": make(5)}), Sample(arrays, {"offsets": make(5)})]

    assert shapes_of(of_any_number, samples) == [([(4, 5)] * 4, {"weights": (5,), "offsets": (5,)})]


def two_samples(make: Any, first: Any, second: Any) -> list[Sample]:
    return [Sample((first,), {"weights": make(5)}), Sample((second,), {"offsets": make(3)})]


def test_call_without_an_array_at_the_end_does_not_count() -> None:
    samples = lambda make: [*two_samples(make, make((4, 5)), make((2, 3))), Sample((2.0,), {"weights": make(7)})]  # noqa: E731

    assert shapes_of(by_name, samples) == [([(4, 5)], {"weights": (5,), "offsets": (5,)})]


@pytest.mark.parametrize("first", [True, False])
def test_array_is_not_added_where_a_call_has_no_array_to_fit_it_to(first: bool) -> None:
    def samples(make: Any) -> list[Sample]:
        return two_samples(make, *((2.0, make((2, 3))) if first else (make((4, 5)), 2.0)))

    assert shapes_of(by_name, samples) == []


@pytest.mark.parametrize(("length", "is_tried"), [(2043, True), (2044, False)], ids=["2,048 elements", "2,049"])
def test_call_of_at_most_2048_elements_gets_another_array(length: int, is_tried: bool) -> None:
    samples = lambda make: two_samples(make, make(length), make(3))  # noqa: E731

    def fn(xp: Any, a: Any, *, weights: Any = None, offsets: Any = None) -> Any:
        return a if weights is None or offsets is None else a + weights[0] + offsets[0]

    assert bool(shapes_of(fn, samples)) is is_tried


def test_two_arrays_that_the_function_rejects_together_are_not_tried() -> None:
    def either(xp: Any, a: Any, *, weights: Any = None, offsets: Any = None) -> Any:
        if weights is not None and offsets is not None:
            raise ValueError("give one of them")
        return by_name(xp, a, weights=weights, offsets=offsets)

    assert shapes_of(either, lambda make: two_samples(make, make((4, 5)), make((2, 3)))) == []


def test_function_that_is_its_own_reference_gets_no_other_array() -> None:
    spec = OpSpec(fn=by_name, name="given", samples=lambda make: two_samples(make, make((4, 5)), make((2, 3))))

    assert list(with_several_optional_arrays(spec, Device("cpu"), np.dtype("float64"))) == []


def test_option_with_another_default_than_none_is_not_an_optional_array() -> None:
    def fn(xp: Any, a: Any, *, weights: Any = 1.0, offsets: Any = None) -> Any:
        return by_name(xp, a, weights=weights, offsets=offsets)

    assert shapes_of(fn, lambda make: two_samples(make, make((4, 5)), make((2, 3)))) == []


def test_added_array_is_named_in_the_label_and_has_the_numbers_of_the_other_sample() -> None:
    reference = lambda *args, **kwargs: by_name(np, *args, **kwargs)  # noqa: E731
    samples = lambda make: two_samples(make, make((4, 5)), make((2, 3)))  # noqa: E731
    spec = OpSpec(fn=by_name, name="given", samples=samples, reference=reference)
    (found,) = with_several_optional_arrays(spec, Device("cpu"), np.dtype("float64"))
    first, second = (sample.kwargs for sample in spec.draw(2026, "float64"))

    assert found.label.endswith(", with offsets of another sample")
    assert found.kwargs["weights"].values.tolist() == first["weights"].values.tolist()
    assert found.kwargs["offsets"].values.tolist() == np.resize(second["offsets"].values, 5).tolist()


@pytest.mark.parametrize(
    ("shape", "before", "after", "expected"),
    [
        ((5,), (4, 5), (2, 3), (3,)),
        ((4, 5), (4, 5), (2, 3), (2, 3)),
        ((5,), (4, 5), (7, 2, 3), (3,)),
        ((4,), (4, 5), (3,), (4,)),
        ((5,), (5, 5), (7, 8), (8,)),
        ((1, 6), (4, 5), (2, 3), (1, 6)),
        ((), (4, 5), (2, 3), ()),
    ],
    ids=str,
)
def test_extents_are_those_at_the_same_place_from_the_end(shape: Any, before: Any, after: Any, expected: Any) -> None:
    assert _fitted(HostArray(np.ones(shape)), before, after).shape == expected


def test_arguments_behind_the_added_array_stay_as_they_are() -> None:
    def fn(xp: Any, a: Any, weights: Any = None, offsets: Any = None, scale: float = 1.0) -> Any:
        return scale * by_name(xp, a, weights=weights, offsets=offsets)

    def samples(make: Any) -> list[Sample]:
        return [Sample((make((4, 5)), make(5), None, 2.0)), Sample((make((2, 3)),), {"offsets": make(3)})]

    assert shapes_of(fn, samples) == [([(4, 5), (5,), (5,), 2.0], {})]
