"""Calls that give two optional arrays, of which each sample gives one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated.optional_arrays import with_several_optional_arrays
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
