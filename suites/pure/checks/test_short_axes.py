"""What is found in calls with short axes and without rows, and which of them require nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.errors import DeviceError
from cuassay.testing import ErrorInput, OpSpec, Sample
from cuassay.testing.generated import short_axes
from cuassay.testing.generated.short_axes import check_empty_batch, check_short
from cuassay.testing.samples import HostArray

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")


def ones(*shapes: Any, dtype: str = "float32") -> Sample:
    return Sample(tuple(HostArray(np.ones(shape, dtype)) for shape in shapes), label="drawn")


def spec_of(fn: Any, reference: Any, **fields: Any) -> OpSpec:
    wrapped = lambda xp, *given: fn(*given)  # noqa: E731
    fields = {"dtypes": ("float32",), "samples": lambda make: [make((4, 7))], **fields}
    return OpSpec(fn=wrapped, reference=reference, name="f", **fields)


# ------------------------------------------------------------------------------------------------ short axes


def padded(a: Any) -> Any:
    """Two zeros at each end of the rows."""
    return np.pad(a, [(0, 0)] * (a.ndim - 1) + [(2, 2)])


def with_ends(a: Any) -> Any:
    """The same, but wrong for rows of one number: the ends are slices of the row."""
    return np.concatenate([a[..., :2] * 0, a, a[..., -2:] * 0], axis=-1)


def raising(error: type[Exception], fn: Any = padded) -> Any:
    """The function that raises this error on purpose for rows of one number."""

    def call(a: Any, *others: Any) -> Any:
        if a.shape[-1] == 1:
            raise error("a row of one number")
        return fn(a)

    return call


def reading(a: Any, *others: Any) -> Any:
    """Breaks for rows of one number: it reads the second one."""
    return padded(a) + 0 * a[..., 1].item(0)


def reading_after_dividing(a: Any) -> Any:
    """Breaks in the same way, after a division by zero."""
    return reading(np.zeros(1) / (a.shape[-1] - 1) + a)


def dividing(a: Any, *others: Any) -> Any:
    return padded(a) + 0 * (1 // (a.shape[-1] - 1))


def short(fn: Any, reference: Any = padded, short_: int = 1, rows: int = 4, length: int = 7, **fields: Any) -> str:
    spec = spec_of(fn, reference, samples=lambda make: [make((rows, length))], **fields)
    return failure(check_short, spec, CPU, FLOAT32, ones((rows, short_)), ones((rows, length)))


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        pytest.param(padded, "", id="right"),
        pytest.param(with_ends, "shape is (4, 3); expected (4, 5)", id="another shape"),
        pytest.param(
            reading, "the function reads beyond the end of a short axis: IndexError: index 1 is out", id="read"
        ),
        pytest.param(reading_after_dividing, "the function reads beyond the end of a short axis", id="a division"),
        pytest.param(dividing, "a call with a short axis breaks: ZeroDivisionError: ", id="an error"),
        pytest.param(raising(IndexError), "", id="an IndexError on purpose"),
        pytest.param(raising(ValueError), "", id="a ValueError on purpose"),
        pytest.param(raising(TypeError), "", id="a TypeError on purpose"),
    ],
)
def test_short_axis_for_which_a_function_fails_is_found(fn: Any, said: str) -> None:
    found = short(fn)

    assert said in found
    assert bool(found) is bool(said)
    if said:
        assert "sample: drawn" in found
    if " breaks" in said or " reads " in said:
        assert "the reference gives a result of shape (4, 5): give it too, or raise an error for such inputs" in found


@pytest.mark.parametrize("fn", [with_ends, reading, dividing], ids=["shape", "read", "error"])
@pytest.mark.parametrize("reference", [None, raising(ValueError)], ids=["its own reference", "rejected"])
def test_short_axis_requires_nothing_without_a_reference_that_takes_it(fn: Any, reference: Any) -> None:
    def only_long(a: Any) -> Any:
        return fn(a) if a.shape[-1] > 1 else np.zeros((1,))

    assert short(only_long if reference is None else fn, reference) == ""


@pytest.mark.parametrize("fn", [with_ends, dividing], ids=["shape", "error"])
def test_shapes_for_longer_axes_must_agree(fn: Any) -> None:
    def for_two(a: Any) -> Any:
        """Another shape for an axis that is longer by 2."""
        return fn(a)[:1] if a.shape[-1] == 9 else fn(a)

    assert short(for_two) == ""


@pytest.mark.parametrize("by", [1, 2, 5])
def test_shapes_are_compared_for_axes_longer_by_1_2_and_5(by: int) -> None:
    tried = lambda a: with_ends(a)[:1] if a.shape[-1] == 7 + by else with_ends(a)  # noqa: E731

    assert short(tried) == ""
    assert short_axes._LONGER == (1, 2, 5)


def test_the_result_must_grow_by_one_element_for_each_of_the_axis() -> None:
    twice = lambda fn: lambda a: np.concatenate([fn(a), fn(a)], axis=-1)  # noqa: E731
    jumping = lambda fn: lambda a: fn(a) if a.shape[-1] < 12 else np.concatenate([fn(a), fn(a)], axis=-1)  # noqa: E731
    other = lambda a: padded(a) if a.shape[-1] > 1 else padded(a)[..., :4]  # noqa: E731

    assert short(twice(with_ends), twice(padded)) == ""
    assert short(jumping(with_ends), jumping(padded)) == ""
    assert short(with_ends, other) == ""


def test_axis_that_is_not_shorter_requires_nothing() -> None:
    """Nor does one that is as long as before: the two samples then have the same shapes."""
    assert short(lambda a: padded(a)[..., :-1] if a.shape[-1] == 9 else padded(a), short_=9) == ""
    assert short(lambda a: padded(a)[..., :-1] if a.shape[-1] == 6 else padded(a), short_=6) != ""


def test_several_axes_that_change_require_nothing() -> None:
    spec = spec_of(with_ends, padded)

    assert failure(check_short, spec, CPU, FLOAT32, ones((3, 1)), ones((4, 7))) == ""
    assert failure(check_short, spec, CPU, FLOAT32, ones((4, 1)), ones((4, 7))) != ""


@pytest.mark.parametrize(
    ("second", "may"), [("int64", True), ("uint8", True), ("float32", False), ("bool", False)], ids=str
)
def test_integers_next_to_an_array_may_be_indices_of_the_longer_axis(second: str, may: bool) -> None:
    sample = Sample((*ones((4, 1)).args, *ones(3, dtype=second).args), label="drawn")
    options = Sample((*ones((4, 7)).args, *ones(3, dtype=second).args), label="drawn")
    spec = spec_of(
        reading, lambda a, index: padded(a), samples=lambda make: [(make((4, 7)), make(3, dtype=second, low=0, high=1))]
    )

    assert short_axes._may_index(sample) is may
    assert bool(failure(check_short, spec, CPU, FLOAT32, sample, options)) is not may


def test_a_single_array_of_integers_has_no_indices() -> None:
    assert not short_axes._may_index(ones((4, 1), dtype="int64"))
    assert not short_axes._may_index(Sample((2.0,)))


@pytest.mark.parametrize(
    ("reference", "is_found"),
    [
        pytest.param(padded, True, id="finite"),
        pytest.param(lambda a: padded(a) * (np.nan if a.shape[-1] == 1 else 1), False, id="NaN"),
        pytest.param(lambda a: padded(a).astype("int32"), True, id="integers"),
        pytest.param(lambda a: padded(a)[:0], False, id="nothing"),
    ],
)
def test_breaking_is_found_where_the_reference_gives_finite_numbers(reference: Any, is_found: bool) -> None:
    spec = spec_of(dividing, reference)

    found = failure(short_axes._check_breaking, spec, ones((4, 1)))

    assert bool(found) is is_found
    assert ("sample: drawn" in found) is is_found


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (((4, 7),), ((4, 1),), [(7, 1)]),
        (((4, 7), (7, 2)), ((4, 1), (1, 2)), [(7, 1)]),
        (((4, 7),), ((4, 7),), []),
        (((4, 7),), ((3, 9),), [(4, 3), (7, 9)]),
    ],
    ids=str,
)
def test_extents_that_change_are_named_once(before: Any, after: Any, changes: Any) -> None:
    assert sorted(short_axes._changes(ones(*before), ones(*after))) == changes


@pytest.mark.parametrize(
    ("reference", "grown"),
    [
        (padded, 2),
        (lambda a: a[..., :1] if a.shape[-1] > 7 else a[..., :3], -2),
        (lambda a: a.sum(-1), None),
        (lambda a: a.T @ a, None),
        (lambda a: a.sum() if a.shape[-1] == 7 else a, None),
    ],
    ids=["longer", "shorter", "the same", "twice", "other dimensions"],
)
def test_growth_is_that_of_the_only_axis_that_changes(reference: Any, grown: int | None) -> None:
    spec = spec_of(reference, reference)

    assert short_axes._grown(spec, ones((4, 7)), ones((4, 9))) == grown


# ------------------------------------------------------------------------------------------------ no rows


def flat_mean(a: Any) -> Any:
    """Breaks without rows: reshape cannot tell the length of a row."""
    return a.reshape(a.shape[0], -1).mean(axis=-1)


def mean(a: Any) -> Any:
    return a.sum(axis=tuple(range(1, a.ndim))) / max(1, a[:1].size)


def refusing(error: type[Exception], message: str = "there must be a row") -> Any:
    def fn(a: Any) -> Any:
        if not a.shape[0]:
            raise error(message)
        return mean(a)

    return fn


def no_rows(fn: Any, reference: Any = mean, *shapes: Any, **fields: Any) -> str:
    shapes = shapes or ((4, 3, 5),)
    spec = spec_of(fn, reference, samples=lambda make: [tuple(make(shape) for shape in shapes)], **fields)
    return failure(check_empty_batch, spec, CPU, FLOAT32, ones(*shapes))


def test_call_without_rows_that_breaks_is_found() -> None:
    said = no_rows(flat_mean)

    assert said.startswith("a call without rows breaks: ValueError: cannot reshape array of size 0 into shape (0,")
    assert "the reference gives an empty result of shape (0,): accept empty arrays, or raise an error for them" in said
    assert "sample: drawn, resized to 0x3x5" in said


@pytest.mark.parametrize(
    ("fn", "reference", "shapes"),
    [
        pytest.param(mean, mean, (), id="right"),
        pytest.param(lambda a: flat_mean(a), None, (), id="its own reference"),
        pytest.param(refusing(ValueError), mean, (), id="refused on purpose"),
        pytest.param(refusing(DeviceError), mean, (), id="refused by this package"),
        pytest.param(lambda a: mean(a) + a.max() * 0, mean, (), id="a maximum of nothing"),
        pytest.param(lambda a: mean(a) + a.argmax() * 0, mean, (), id="an index of a maximum of nothing"),
        pytest.param(flat_mean, refusing(ValueError), (), id="the reference refuses"),
        pytest.param(flat_mean, lambda a: mean(a) if a.size else np.zeros(1), (), id="another shape"),
        pytest.param(lambda a: flat_mean(a).sum(), lambda a: mean(a).sum(), (), id="a sum"),
        pytest.param(lambda a: flat_mean(a)[None], lambda a: mean(a)[None], (), id="not the first axis"),
        pytest.param(lambda a: flat_mean(a), mean, ((1, 3, 5),), id="one row"),
        pytest.param(lambda a: a + 1 // len(a), lambda a: a + 1 // max(1, len(a)), ((4,),), id="one axis"),
        pytest.param(lambda a, b: flat_mean(a), lambda a, b: mean(a), ((4, 3, 5), (4,)), id="an extent of two arrays"),
        pytest.param(
            lambda a: flat_mean(a)[:, None] * flat_mean(a), lambda a: mean(a)[:, None] * mean(a), (), id="twice"
        ),
    ],
)
def test_other_calls_without_rows_pass(fn: Any, reference: Any, shapes: Any) -> None:
    assert no_rows(fn, reference, *shapes) == ""


def test_rows_are_those_of_the_array_with_the_most() -> None:
    fn, reference = (lambda a, b: flat_mean(b) + 0 * a.sum()), (lambda a, b: mean(b) + 0 * a.sum())

    assert "resized to 2x3, 0x5" in no_rows(fn, reference, (2, 3), (4, 5))
    assert no_rows(fn, reference, (7, 3), (4, 5)) == ""


def test_two_rows_are_enough() -> None:
    assert no_rows(flat_mean, mean, (2, 3, 5)) != ""


def test_refusing_no_rows_with_a_declared_message_is_found() -> None:
    """The reference accepts the call, and rejects the bad input that is declared with this message."""

    def reference(a: Any) -> Any:
        if a.shape[-1] == 2:
            raise ValueError("give rows of another length, not 2")
        return mean(a)

    def fn(a: Any) -> Any:
        if a.shape[-1] == 2 or not len(a):
            raise ValueError("give rows of another length, not 0")
        return mean(a)

    bad = lambda make: [ErrorInput(make((4, 2)), error=ValueError, match="rows of another length")]  # noqa: E731

    assert "the function rejects this call (ValueError: give rows" in no_rows(fn, reference, error_inputs=bad)
    assert no_rows(fn, reference) == ""


def test_means_of_nothing_do_not_warn() -> None:
    def warning(a: Any) -> Any:
        if not len(a):
            warnings.warn("mean of nothing", RuntimeWarning, stacklevel=1)
        return mean(a)

    assert no_rows(warning, warning) == ""
    assert no_rows(lambda a: mean(a) + np.float32(0) / len(a), lambda a: mean(a)) == ""


@pytest.mark.parametrize(
    ("reference", "shape", "gives"),
    [(mean, (4,), True), (mean, (5,), False), (refusing(ValueError), (4,), True), (lambda a: 1 // 0, (4,), False)],
    ids=["the shape", "another", "right", "an error"],
)
def test_reference_gives_a_shape_or_not(reference: Any, shape: Any, gives: bool) -> None:
    spec: Any = spec_of(mean, mean)
    object.__setattr__(spec, "reference", reference)

    assert short_axes._gives(spec, ones((4, 3)), shape) is gives
