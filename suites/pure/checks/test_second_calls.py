"""What a call leaves behind for the next one, and whether a function is wrong in its first call with a shape too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device
from cuassay.errors import RaceError
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import second_calls
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.options import MOST_OF_OPTIONS
from cuassay.testing.generated.second_calls import (
    _check_coarse_first,
    _check_first_of_shape,
    _check_shorter,
    _check_sorted_first,
    _check_widest_first,
    _is_alike,
    _of_new_shape,
    _result_dtype,
    is_wrong_at_first,
)
from cuassay.testing.samples import HostArray

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")


@pytest.mark.parametrize(
    ("reference", "wrong"),
    [
        pytest.param(lambda a: a, False, id="right"),
        pytest.param(lambda a: a + 1, True, id="wrong"),
        pytest.param(lambda a: a + (a.shape[0] == 9 + 5 * 11), True, id="wrong in the last one"),
        pytest.param(lambda a: a + (a.shape[0] == 9 + 6 * 11), False, id="wrong in the next one"),
        pytest.param(lambda a: a + (a.shape[0] == 9), False, id="wrong in the shape itself"),
    ],
)
def test_a_function_is_wrong_at_first_where_one_of_five_new_shapes_is(reference: Any, wrong: bool) -> None:
    spec = OpSpec(fn=lambda xp, a: a.copy(), name="same", samples=lambda make: [make(8)], reference=reference)

    assert is_wrong_at_first(spec, CPU, np.dtype("float32"), Sample((np.ones(9, np.float32),))) is wrong


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_a_shape_that_the_reference_refuses_shows_nothing_of_first_calls(error: type[Exception]) -> None:
    def picky(a: Any) -> Any:
        if a.shape[0] > 9:
            raise error("too long")
        return a

    spec = OpSpec(fn=lambda xp, a: a.copy(), name="same", samples=lambda make: [make(9)], reference=picky)

    assert not is_wrong_at_first(spec, CPU, np.dtype("float32"), Sample((np.ones(9, np.float32),)))


@pytest.mark.parametrize("fills_again", [True, False])
def test_a_buffer_that_is_kept_for_all_lengths_of_one_padded_length(fills_again: bool) -> None:
    buffers: dict[Any, Any] = {}

    def block_sums(xp: Any, a: Any) -> Any:
        padded = -(-a.shape[0] // 16) * 16
        buffer = buffers.setdefault((padded, a.dtype), xp.zeros(padded, a.dtype))
        if fills_again:
            buffer[...] = 0
        buffer[: a.shape[0]] = a
        return buffer.reshape(-1, 16).sum(axis=1)

    spec = OpSpec(
        fn=block_sums, name="block_sums", dtypes=("float32",), samples=lambda make: [make(40)],
        reference=lambda a: np.add.reduceat(a, range(0, a.shape[0], 16)),
    )  # fmt: skip
    if fills_again:
        CHECKS["second_call"](spec, CPU)
    else:
        with pytest.raises(AssertionError, match=r"after a call with 64 elements .* than before it: does a buffer"):
            CHECKS["second_call"](spec, CPU)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ([1.0, 2.0], [1.0, 2.01], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([0.0], [1e-7], True),
        ([0.0], [1e-5], False),
        ([np.nan, np.inf], [np.nan, np.inf], True),
        ([np.nan], [1.0], False),
        ([1, 2], [2, 1], False),
        ([True], [False], False),
        ([1j], [2j], False),
        ([1.0], [1.0, 1.0], False),
        (["a"], ["b"], True),
        (["a"], ["b", "b"], False),
    ],
    ids=str,
)
def test_results_are_alike_but_for_the_order_of_additions(one: Any, other: Any, alike: bool) -> None:
    assert _is_alike(np.array(one), np.array(other)) is alike


@pytest.mark.parametrize(
    ("shapes", "times", "expected"),
    [
        (((3, 5), (5,)), 1, ((3, 16), (16,))),
        (((3, 5), (5,)), 3, ((3, 38), (38,))),
        (((1, 1),), 1, ((1, 1),)),
        (((2,),), 1, ((13,),)),
        (((),), 1, ((),)),
    ],
    ids=str,
)
def test_longest_extent_of_a_call_of_a_new_shape_is_11_longer(shapes: Any, times: int, expected: Any) -> None:
    sample = Sample(tuple(HostArray(np.ones(shape)) for shape in shapes))

    assert tuple(one.shape for one in _of_new_shape(sample, 11 * times).args) == expected


class Kept:
    """A function that adds zeros which it keeps for each key, by default for each shape."""

    def __init__(self, key: Any = lambda a: a.shape) -> None:
        self.key = key
        self.zeros: dict[Any, Any] = {}

    def __call__(self, xp: Any, a: Any) -> Any:
        return a + self.zeros.setdefault(self.key(a), xp.zeros(a.shape, a.dtype))


def of_kept(fn: Any, dtypes: tuple[str, ...]) -> OpSpec:
    return OpSpec(fn=fn, name="kept", dtypes=dtypes, samples=lambda make: [make(40)], reference=lambda a: a)


WIDENED = "the dtype of the result depends on earlier calls"


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        (("float32", "float64"), "float64 for float32 inputs after a call with float64 inputs .* float32 otherwise"),
        (("int64", "int32", "int16", "int8", "float64"), "float64 for int8 inputs after a call with float64 inputs"),
        (("int8", "float64", "int16"), "int16 for int8 inputs after a call with float64 inputs"),
        (("float64",), None),
    ],
    ids=["two", "five", "the second pair", "one"],
)
def test_array_that_is_kept_in_the_dtype_of_an_earlier_call_is_found(
    dtypes: tuple[str, ...], message: str | None
) -> None:
    _check_widest_first(of_kept(Kept(lambda a: (a.shape, a.dtype)), dtypes), CPU, dtypes)

    if message is None:
        _check_widest_first(of_kept(Kept(), dtypes), CPU, dtypes)
    else:
        with pytest.raises(AssertionError, match=f"{WIDENED}: {message}"):
            _check_widest_first(of_kept(Kept(), dtypes), CPU, dtypes)


def test_dtype_of_a_length_that_the_function_rejects_is_not_compared() -> None:
    def short(xp: Any, a: Any) -> Any:
        if a.shape[0] > 40:
            raise ValueError("too long")
        return a + 0

    _check_widest_first(of_kept(short, ("float32", "float64")), CPU, ("float32", "float64"))


def rounding(key: Any) -> Any:
    """A function that keeps a factor, 1/3, in the dtype of the first call with each key."""
    kept: dict[Any, Any] = {}
    return lambda xp, a: (a * kept.setdefault(key(a), (xp.ones((), a.dtype) / 3).astype(a.dtype))).astype(a.dtype)


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32", "int32"), ("float64",)], ids=str)
def test_number_that_is_kept_in_a_coarser_dtype_is_found(dtypes: tuple[str, ...]) -> None:
    fields: dict[str, Any] = {
        "name": "third", "dtypes": dtypes, "samples": lambda make: [make(40)], "reference": lambda a: a / 3,
    }  # fmt: skip
    _check_coarse_first(OpSpec(fn=rounding(lambda a: (a.shape, a.dtype)), **fields), CPU, dtypes)

    wrong = OpSpec(fn=rounding(lambda a: a.shape), **fields)
    if len(dtypes) == 1:
        _check_coarse_first(wrong, CPU, dtypes)
    else:
        with pytest.raises(AssertionError, match="float64 after a call of the same shape in float32: does the key of"):
            _check_coarse_first(wrong, CPU, dtypes)


def test_number_that_is_kept_in_the_coarsest_of_three_dtypes_is_found() -> None:
    def key(a: Any) -> Any:
        return a.shape, "float32" if a.dtype.itemsize == 4 else "others"

    dtypes = ("float16", "float32", "float64")
    spec = OpSpec(
        fn=rounding(key), name="third", dtypes=dtypes, samples=lambda make: [make(40)], reference=lambda a: a / 3
    )

    with pytest.raises(AssertionError, match="float64 after a call of the same shape in float16"):
        _check_coarse_first(spec, CPU, dtypes)


def test_error_allowed_after_a_coarse_call_grows_with_the_numbers() -> None:
    dtypes = ("float32", "float64")
    spec = OpSpec(
        fn=lambda xp, a: a * a.dtype.type(1 / 3), name="third", dtypes=dtypes, reference=lambda a: a / 3,
        samples=lambda make: [make(40, low=1e6, high=2e6)],
    )  # fmt: skip

    _check_coarse_first(spec, CPU, dtypes)


def lengths_met(check: Any, *dtypes: str) -> set[int]:
    """The lengths of the calls of a check, without that of the sample."""
    met: set[int] = set()

    def noting(xp: Any, a: Any, labels: Any) -> Any:
        met.add(a.shape[0])
        return a + 0

    spec = OpSpec(
        fn=noting, name="noting", dtypes=dtypes, reference=lambda a, labels: a,
        samples=lambda make: [(make(40), make(40, dtype="int64", low=0, high=9999))],
    )  # fmt: skip
    met.clear()
    check(spec)
    return met - {40}


def test_each_check_calls_the_function_with_lengths_of_its_own() -> None:
    """A length that another check has used may be in a cache already."""
    found = [
        lengths_met(lambda spec: is_wrong_at_first(spec, CPU, FLOAT32, next(spec.draw(2026, "float32"))), "float32"),
        lengths_met(lambda spec: _check_first_of_shape(spec, CPU, FLOAT32), "float32"),
        lengths_met(lambda spec: _check_sorted_first(spec, CPU, FLOAT32), "float32"),
        lengths_met(lambda spec: _check_coarse_first(spec, CPU, spec.dtypes), "float32", "float64"),
        lengths_met(lambda spec: _check_widest_first(spec, CPU, spec.dtypes), "float32", "float64"),
        lengths_met(lambda spec: _check_shorter(spec, CPU, FLOAT32), "float32"),
    ]

    assert all(found)
    assert sum(map(len, found)) == len(set[int]().union(*found))


@pytest.mark.parametrize("check", [_check_first_of_shape, _check_sorted_first, _check_shorter])
def test_race_in_a_call_of_a_new_shape_is_an_error(check: Any) -> None:
    def racing(xp: Any, a: Any, labels: Any) -> Any:
        if a.shape[0] != 40:
            raise RaceError("two streams")
        return a + 0

    spec = OpSpec(
        fn=racing, name="racing", dtypes=("float32",), reference=lambda a, labels: a,
        samples=lambda make: [(make(40), make(40, dtype="int64", low=0, high=9999))],
    )  # fmt: skip

    with pytest.raises(RaceError, match="two streams"):
        check(spec, CPU, FLOAT32)


def counting(wrong: Any) -> Any:
    """The input plus one where `wrong` says so of the number of the call with this shape."""
    calls: dict[Any, int] = {}

    def fn(xp: Any, a: Any) -> Any:
        calls[a.shape] = calls.get(a.shape, 0) + 1
        return a + 1 if a.shape != (40,) and wrong(calls[a.shape]) else a + 0

    return fn


@pytest.mark.parametrize(
    ("wrong", "is_found"),
    [(lambda call: call == 1, True), (lambda call: call == 2, False), (lambda call: True, False)],
    ids=["first", "second", "both"],
)
def test_first_call_with_a_shape_is_right_if_the_second_is(wrong: Any, is_found: bool) -> None:
    spec = of_kept(counting(wrong), ("float32",))

    if is_found:
        with pytest.raises(AssertionError, match="wrong in the first call with a shape, right in the second"):
            _check_first_of_shape(spec, CPU, np.dtype("float32"))
    else:
        _check_first_of_shape(spec, CPU, np.dtype("float32"))


def choosing(is_kept: bool) -> Any:
    """The largest label, for which sorted labels are read at their end; the choice may be kept for a shape."""
    kept: dict[Any, Any] = {}

    def fn(xp: Any, a: Any, labels: Any) -> Any:
        is_in_order = bool((labels[1:] >= labels[:-1]).all())
        chosen = kept.setdefault(labels.shape, is_in_order) if is_kept else is_in_order
        return a * (labels[-1] if chosen else labels.max()).astype(a.dtype)

    return fn


@pytest.mark.parametrize("is_kept", [False, True], ids=["right", "kept"])
def test_choice_of_algorithm_that_is_kept_for_a_shape_is_found(is_kept: bool) -> None:
    spec = OpSpec(
        fn=choosing(is_kept), name="scaled", dtypes=("float32",), reference=lambda a, labels: a * labels.max(),
        samples=lambda make: [(make(40), make(40, dtype="int64", low=0, high=9999))],
    )  # fmt: skip

    if is_kept:
        with pytest.raises(AssertionError, match="is the choice of algorithm cached by shape"):
            _check_sorted_first(spec, CPU, np.dtype("float32"))
    else:
        _check_sorted_first(spec, CPU, np.dtype("float32"))


def test_integers_in_order_are_not_tried_where_there_are_none() -> None:
    _check_sorted_first(of_kept(counting(lambda call: True), ("float32",)), CPU, FLOAT32)


@pytest.mark.parametrize(
    ("extent", "deterministic", "found"),
    [(40, True, 64), (2, True, 64), (64, True, 128), (130, True, 192), (1, True, 0), (40, False, 0)],
    ids=["40", "2", "64", "130", "1", "random"],
)
def test_buffer_that_is_kept_is_found_in_deterministic_functions_of_an_axis(
    extent: int, deterministic: bool, found: int
) -> None:
    buffers: dict[Any, Any] = {}

    def sums(xp: Any, a: Any) -> Any:
        """Sums of the elements and of those that the buffer holds from longer calls."""
        padded = -(-a.shape[0] // 8) * 8
        buffer = buffers.setdefault(padded, xp.zeros(padded, a.dtype))
        buffer[: a.shape[0]] = a
        return buffer.sum()

    spec = OpSpec(
        fn=sums, name="sums", dtypes=("float32",), samples=lambda make: [make(extent)],
        reference=lambda a: a.sum(), deterministic=deterministic,
    )  # fmt: skip

    if found:
        with pytest.raises(AssertionError, match=f"another result after a call with {found} elements along an axis"):
            _check_shorter(spec, CPU, np.dtype("float32"))
    else:
        _check_shorter(spec, CPU, np.dtype("float32"))


def second_call(fn: Any, reference: Any = lambda a: a, **fields: Any) -> str:
    fields = {"dtypes": ("float32",), "samples": lambda make: [make((3, 40))], **fields}
    spec = OpSpec(fn=fn, name="f", reference=reference, **fields)
    return failure(CHECKS["second_call"], spec, CPU)


def test_layout_that_is_kept_for_a_shape_is_found() -> None:
    kept: dict[Any, Any] = {}

    def fn(xp: Any, a: Any) -> Any:
        return a + (kept.setdefault(a.shape, a.flags.c_contiguous) != a.flags.c_contiguous)

    assert second_call(fn).startswith("transposed inputs of float32, after other calls with inputs of the same shape\n")


def test_layout_that_is_wrong_in_the_first_call_too_is_told_of_as_such() -> None:
    said = second_call(lambda xp, a: a + (not a.flags.c_contiguous))

    assert said.startswith(
        "wrong for transposed inputs of float32, also in the first call with a shape: no earlier call is the cause\n"
    )


def test_function_that_is_wrong_in_the_first_call_is_left_to_another_check() -> None:
    assert second_call(lambda xp, a: a + 1) == ""


def test_option_that_is_kept_for_a_shape_is_found() -> None:
    kept: dict[Any, Any] = {}

    def keeping(xp: Any, a: Any, k: int = 0) -> Any:
        return a + kept.setdefault(a.shape, k)

    def wrong(xp: Any, a: Any, k: int = 0) -> Any:
        return a + k + (k == 2)

    fields = {"samples": lambda make: [Sample((make((3, 40)),), {"k": k}) for k in (1, 2)]}
    reference = lambda a, k=0: a + k  # noqa: E731

    assert second_call(keeping, reference, **fields).startswith("with other options, after a call with inputs of the")
    assert second_call(wrong, reference, **fields).startswith("wrong with these options, also in the first call")


def test_dtype_of_a_length_that_is_rejected_alone_is_not_compared() -> None:
    def picky(xp: Any, a: Any) -> Any:
        if a.shape[0] == 40 + 13:
            raise ValueError("not this length")
        return a + 0

    _check_widest_first(of_kept(picky, ("float32", "float64")), CPU, ("float32", "float64"))


@pytest.mark.parametrize(("length", "met"), [(MOST_OF_OPTIONS, MOST_OF_OPTIONS), (MOST_OF_OPTIONS + 1, 40)])
def test_dtype_is_that_of_the_longest_call_of_few_elements(length: int, met: int) -> None:
    lengths: list[int] = []
    spec = OpSpec(
        fn=lambda xp, a: (lengths.append(a.shape[0]), a + 0)[1], name="noting", dtypes=("float32",),
        reference=lambda a: a, samples=lambda make: [make(40), make(length)],
    )  # fmt: skip
    lengths.clear()

    assert _result_dtype(spec, CPU, "float32", 7) == "float32"
    assert set(lengths) == {met + 7}


@pytest.mark.parametrize(("extent", "met"), [(2, 9), (1, 1)])
def test_an_extent_of_one_is_not_made_longer(extent: int, met: int) -> None:
    lengths: list[int] = []
    spec = OpSpec(
        fn=lambda xp, a: (lengths.append(a.shape[0]), a + 0)[1], name="noting", dtypes=("float32",),
        reference=lambda a: a, samples=lambda make: [make(extent)],
    )  # fmt: skip
    lengths.clear()

    assert _result_dtype(spec, CPU, "float32", 7) == "float32"
    assert set(lengths) == {met}


@pytest.mark.parametrize("size", [1 / 64, 4.0])
def test_error_allowed_after_a_coarse_call_is_of_512_roundings(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(second_calls, "compare_values", lambda *args, limit: limits.append(limit))
    spec = of_kept(lambda xp, a: a + 0, ("float32",))

    second_calls._verify_loosely(spec, CPU, FLOAT32, Sample((np.full(9, size, np.float32),)))

    assert limits == [512 * 2.0**-23 * max(1.0, size)]


def test_shape_that_the_reference_rejects_is_not_called_first() -> None:
    met: set[int] = set()

    def picky(a: Any) -> Any:
        if a.shape[0] > 40:
            raise ValueError("too long")
        return a

    spec = OpSpec(
        fn=lambda xp, a: (met.add(a.shape[0]), a + 0)[1], name="f", dtypes=("float32",), reference=picky,
        samples=lambda make: [make(40)],
    )  # fmt: skip
    _check_first_of_shape(spec, CPU, FLOAT32)

    assert met <= {40}


def test_two_optional_arrays_of_which_each_sample_gives_one_work_together() -> None:
    def fn(a: Any, b: Any = None, c: Any = None) -> Any:
        return a + (0 if b is None else b) + (0 if c is None else c)

    def wrong(xp: Any, a: Any, b: Any = None, c: Any = None) -> Any:
        return fn(a, b, c) + (b is not None and c is not None)

    fields = {"samples": lambda make: [Sample((make(40),), {name: make(40)}) for name in ("b", "c")]}

    said = second_call(wrong, fn, **fields)
    assert said.startswith("with two optional arrays of which each sample gives one: do they work together?\n")


def test_a_sample_of_two_axes_is_tried_in_several_layouts() -> None:
    """The layouts of an array of one axis are fewer: nothing can be transposed."""
    spec = OpSpec(
        fn=lambda xp, a: xp.where(xp.asarray(a.flags.c_contiguous or a.strides[0] > a.strides[-1]), a, a + 1),
        reference=lambda a: a * 1, name="by_strides", dtypes=("float32",),
        samples=lambda make: [make(200), make((3, 5))],
    )  # fmt: skip

    assert "transposed inputs of float32" in failure(CHECKS["second_call"], spec, CPU)


def test_a_new_shape_is_that_of_a_small_sample() -> None:
    sizes = (7, MOST_OF_OPTIONS, MOST_OF_OPTIONS + 1)
    spec = OpSpec(
        fn=lambda xp, a: a * 1, reference=lambda a: a, name="same", dtypes=("float32",),
        samples=lambda make: [make(size) for size in sizes],
    )  # fmt: skip
    found = second_calls._unmet(spec, CPU, FLOAT32, 1)

    assert found is not None
    assert MOST_OF_OPTIONS < found.args[0].shape[0] < MOST_OF_OPTIONS + 100


@pytest.mark.parametrize("has_reference", [True, False])
def test_only_a_reference_can_take_long(has_reference: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_calls, "is_quick", lambda seconds, sample, larger: False)
    reference = (lambda a: a) if has_reference else None
    spec = OpSpec(fn=lambda xp, a: a * 1, reference=reference, name="same", samples=lambda make: [make(9)])
    sample = spec.draw(0, "float32")

    assert second_calls._is_quick(spec, next(sample), next(spec.draw(0, "float32"))) is not has_reference


def test_a_call_without_arrays_has_no_new_shape() -> None:
    assert _of_new_shape(Sample((3,))).args == (3,)
