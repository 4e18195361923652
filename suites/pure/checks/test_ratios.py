"""Counts and positions computed from a ratio: which lengths and shares are tried, and which roundings fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import ratios
from cuassay.testing.generated.ratios import check_ratios, check_shares
from cuassay.testing.generated.selection import by_options

CPU, SIM = Device("cpu"), Device("sim")
FLOAT32 = np.dtype("float32")


def rising(*shape: int) -> Any:
    """Different numbers, so that each selected element can be told from the others."""
    return np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape) / 3


def exact(a: Any, size: int) -> Any:
    """Elements at equal distances, by integers alone."""
    return a[..., np.arange(size) * a.shape[-1] // size]


def rounded(a: Any, size: int) -> Any:
    return a[..., np.floor(np.arange(size) * (a.shape[-1] / size)).astype(np.int64)]


def selecting(fn: Callable[..., Any], reference: Any = exact) -> OpSpec:
    return OpSpec(
        fn=lambda xp, a, size: fn(a, size), reference=reference, name="selected", dtypes=("float32",),
        samples=lambda make: [Sample((make(9),), {"size": 4})],
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(9,), (3, 9)], ids=["a vector", "rows"])
def test_elements_selected_by_a_rounded_ratio_fail(shape: tuple[int, ...]) -> None:
    sample = Sample((rising(*shape),), {"size": 4})

    check_ratios(selecting(exact), CPU, FLOAT32, sample)
    with pytest.raises(AssertionError, match="wrong elements are selected for some lengths and size"):
        check_ratios(selecting(rounded), CPU, FLOAT32, sample)


@pytest.mark.parametrize(("device", "count"), [(CPU, 128), (SIM, 24)], ids=["cpu", "sim"])
def test_as_many_pairs_of_lengths_are_tried_as_a_device_has_time_for(
    device: Device, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[Any, int]] = []

    def compared(spec: OpSpec, device: Device, dtype: Any, sample: Sample, result: Any) -> None:
        tried.append((sample.args[0].shape, sample.kwargs["size"]))

    monkeypatch.setattr(ratios, "compare", compared)
    monkeypatch.setattr(ratios, "run_sample", lambda spec, device, sample: None)
    check_ratios(selecting(exact), device, FLOAT32, Sample((rising(3, 9),), {"size": 4}))

    assert len(tried) == count
    assert all(shape[0] == 2 and 64 <= shape[1] < 400 and 64 <= size < 400 for shape, size in tried)
    assert any(shape[1] > 300 for shape, _ in tried)


@pytest.mark.parametrize(
    ("sample", "reference"),
    [
        pytest.param(Sample((rising(9),), {"size": 4}), None, id="no reference"),
        pytest.param(Sample((rising(9),), {"size": 4}), lambda a, size: exact(a, size) + 100, id="other numbers"),
        pytest.param(Sample((rising(9),), {"size": 9}), exact, id="all elements"),
        pytest.param(Sample((rising(9, 9),), {"size": 4}), exact, id="a square"),
        pytest.param(Sample((rising(4, 9),), {"size": 4}), exact, id="another extent of that size"),
        pytest.param(Sample((rising(3, 9),), {"size": 4}), lambda a, size: exact(a, size)[0], id="an axis less"),
        pytest.param(Sample((rising(9),), {"size": 4}), lambda a, size: exact(a, min(size, 4)), id="no more than four"),
    ],
)
def test_other_functions_select_nothing(sample: Sample, reference: Any) -> None:
    fn = exact if reference is None else reference
    check_ratios(selecting(lambda a, size: -fn(a, size), reference), CPU, FLOAT32, sample)


def chosen_from(fn: Callable[..., Any], sample: Sample) -> Any:
    spec = OpSpec(
        fn=fn, reference=lambda *args, **kwargs: fn(np, *args, **kwargs), name="f", dtypes=("float32",),
        samples=lambda make: [sample],
    )  # fmt: skip
    return ratios._chosen_from(spec, sample)


def test_the_option_of_the_size_is_found_among_others() -> None:
    def selected(xp: Any, a: Any, start: int = 0, size: int = 4) -> Any:
        return exact(a, size) + 0 * start

    name, extent, put = chosen_from(selected, Sample((rising(9),), {"start": 1}))

    assert (name, extent, put(7)) == ("size", 9, 7)


def test_a_size_in_a_tuple_is_found() -> None:
    def resized(xp: Any, a: Any, shape: tuple[int, int]) -> Any:
        return exact(exact(a.T, shape[0]).T, shape[1])

    found = chosen_from(resized, Sample((rising(5, 9),), {"shape": (3, 4)}))

    assert (found[0], found[1], found[2](7)) == ("shape", 5, (7, 4))


def test_a_number_is_not_the_size_of_two_axes() -> None:
    def resized(xp: Any, a: Any, size: int) -> Any:
        return exact(exact(a.T, size).T, 4)

    assert chosen_from(resized, Sample((rising(5, 9),), {"size": 3})) is None


def test_two_arrays_are_not_selected_from() -> None:
    def selected(xp: Any, a: Any, b: Any, size: int) -> Any:
        return exact(a, size)

    assert chosen_from(selected, Sample((rising(9), rising(9)), {"size": 4})) is None


@pytest.mark.parametrize(
    ("value", "put"),
    [
        pytest.param(4, 7, id="the size"),
        pytest.param(5, None, id="another number"),
        pytest.param(4.0, None, id="a float"),
        pytest.param((4, 2), (7, 2), id="a tuple"),
        pytest.param((2, 4), (2, 7), id="its second number"),
        pytest.param((4, 4), None, id="twice in a tuple"),
        pytest.param((4, 2.0), None, id="a tuple with a float"),
        pytest.param((3, 2), None, id="not in the tuple"),
    ],
)
def test_an_option_that_holds_the_size_can_be_set(value: Any, put: Any) -> None:
    found = ratios._option_setter(value, 4)

    assert (None if found is None else found(7)) == put


# ------------------------------------------------------------------------------------------------ shares


def head(a: Any, count: int) -> Any:
    return a * (np.arange(a.shape[-1]) < count).astype(a.dtype)


def share_spec(fn: Callable[..., Any], reference: Any, *values: float) -> OpSpec:
    return OpSpec(
        fn=lambda xp, a, share: fn(a, share), reference=reference, name="shared", dtypes=("float32",),
        samples=lambda make: [Sample((make(8, low=1),), {"share": value}) for value in values],
    )  # fmt: skip


def shares_of(spec: OpSpec, device: Device = CPU) -> None:
    check_shares(spec, device, FLOAT32, by_options(spec, device, FLOAT32, most=2048))


def exact_share(a: Any, share: float) -> Any:
    return head(a, round(a.shape[-1] * share))


def rounded_down(a: Any, share: float) -> Any:
    return head(a, int(a.shape[-1] * share))


def test_a_share_that_is_rounded_down_fails() -> None:
    shares_of(share_spec(exact_share, exact_share, 0.0, 0.5, 1.0))
    with pytest.raises(AssertionError, match=r"wrong for share=0\.\d+ of 100 elements: is an index"):
        shares_of(share_spec(rounded_down, exact_share, 0.0, 0.5, 1.0))


def test_a_function_may_be_right_where_its_reference_rounds_down() -> None:
    shares_of(share_spec(exact_share, rounded_down, 0.0, 0.5, 1.0))
    with pytest.raises(AssertionError, match="wrong for share="):
        shares_of(share_spec(lambda a, share: head(a, int(100 * share) + 2), rounded_down, 0.0, 0.5, 1.0))


@pytest.mark.parametrize("percent", [0, 29, 100])
def test_each_percentage_is_tried(percent: int) -> None:
    def wrong(a: Any, share: int) -> Any:
        return head(a, a.shape[-1] * share // 100 + (a.shape[-1] == 100 and share == percent) * (1 - percent // 50))

    def right(a: Any, share: int) -> Any:
        return head(a, a.shape[-1] * share // 100)

    shares_of(share_spec(right, right, 0, 100))
    with pytest.raises(AssertionError, match=f"wrong for share={percent} of 100 elements"):
        shares_of(share_spec(wrong, right, 0, 100))


def tried_on(device: Device, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> list[float]:
    """The shares that are compared on a device, if a call of the reference takes this long."""
    tried: list[float] = []
    monkeypatch.setattr(ratios, "seconds_of_reference", lambda spec, sample: seconds)
    monkeypatch.setattr(
        ratios, "_compare_share", lambda spec, device, dtype, sample, name: tried.append(sample.kwargs[name])
    )
    shares_of(share_spec(exact_share, exact_share, 0.0, 0.5, 1.0), device)
    return tried


def test_all_shares_are_tried_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried_on(CPU, monkeypatch) == [share / 100 for share in range(1, 100)]


def test_some_shares_are_tried_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(set(tried_on(SIM, monkeypatch))) == 24


@pytest.mark.parametrize(("seconds", "count"), [(0.099, 99), (0.1, 4)])
def test_few_shares_are_tried_with_a_slow_reference(
    seconds: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(set(tried_on(CPU, monkeypatch, seconds))) == count


def test_no_shares_are_tried_without_a_reference() -> None:
    shares_of(share_spec(rounded_down, None, 0.0, 0.5, 1.0))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param((0, 3), [0, 1, 2, 3], id="percentages"),
        pytest.param((5, 100), list(range(5, 101)), id="up to a hundred"),
        pytest.param((0, 101), None, id="above a hundred"),
        pytest.param((-1, 3), None, id="negative"),
        pytest.param((3, 3), None, id="one value"),
        pytest.param((0.25, 0.28), [0.25, 0.26, 0.27, 0.28], id="fractions"),
        pytest.param((0.0, 0.02), [0.01, 0.02], id="from zero"),
        pytest.param((0.98, 1.0), [0.98, 0.99], id="up to one"),
        pytest.param((0.0, 1.0), None, id="only zero and one"),
        pytest.param((0.5, 1.5), None, id="above one"),
        pytest.param((-0.5, 0.5), None, id="fractions below zero"),
        pytest.param((0.25, "half"), None, id="a word among them"),
    ],
)
def test_options_between_zero_and_one_or_a_hundred_may_be_shares(values: Any, found: Any) -> None:
    spec = share_spec(exact_share, exact_share, 0.0)
    several = [Sample((rising(8),), {"share": value}) for value in values]

    assert ratios._declared_shares(spec, several) == ({} if found is None else {"share": found})


def test_one_axis_at_a_time_has_a_hundred_elements() -> None:
    shapes = [one.args[0].shape for one in ratios._of_hundred(Sample((rising(3, 1, 5, 3),)))]

    assert shapes == [(100, 1, 2, 100), (2, 1, 100, 2)]
