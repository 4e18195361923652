"""The checks that apply to most functions: each finds a small wrong function, and passes the right one next to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, ops
from cuassay.devices.sim.capture import SimCapture
from cuassay.testing import ErrorInput, OpSpec
from cuassay.testing.generated import checks
from cuassay.testing.generated.checks import CHECKS, _must_leave_inputs, _signature
from cuassay.testing.generated.execution import REGISTERED
from cuassay.testing.samples import HostArray, Sample

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")


def spec_of(fn: Any, reference: Any = None, **fields: Any) -> OpSpec:
    fields = {"dtypes": ("float32",), "samples": lambda make: [make((3, 5))], **fields}
    return OpSpec(fn=fn, name="given", reference=reference, **fields)


def run(check: str, spec: OpSpec, message: str | None, dtype: Any = FLOAT32) -> None:
    """The check passes if there is no message, and fails with it otherwise."""
    if message is None:
        CHECKS[check](spec, CPU, dtype)
    else:
        with pytest.raises(AssertionError, match=message):
            CHECKS[check](spec, CPU, dtype)


# ------------------------------------------------------------------------------------------------ empty arrays


def array(dtype: str = "float32", **kwargs: Any) -> Sample:
    return Sample((HostArray(np.ones(3, dtype)),), kwargs)


def test_signature_is_of_dtypes_and_options_in_any_order() -> None:
    assert _signature(array(axis=0, keepdims=True)) == _signature(array(keepdims=True, axis=0))
    assert _signature(array()) == _signature(Sample((HostArray(np.ones((0, 4), np.float32)),)))
    assert len({_signature(one) for one in (array(), array("int32"), array(axis=0), array(axis=1))}) == 4


def empties(make: Any) -> list[Sample]:
    return [
        Sample((make((3, 5)),), {"axis": 0, "keepdims": True}),
        Sample((make((0, 5)),), {"keepdims": True, "axis": 0}, kind="empty"),
    ]


def sums(wide: bool) -> Any:
    """Sums, which are in float64 if there is nothing to add up."""

    def fn(xp: Any, a: Any, axis: int = 0, keepdims: bool = False) -> Any:
        result = a.sum(axis=axis, keepdims=keepdims)
        return result.astype("float64") if wide and not a.size else result

    return fn


@pytest.mark.parametrize("wide", [False, True], ids=["right", "float64"])
def test_result_for_no_elements_has_the_dtype_of_calls_with_equal_options(wide: bool) -> None:
    reference = lambda a, axis=0, keepdims=False: a.sum(axis=axis, keepdims=keepdims)  # noqa: E731

    message = "the result is float64, and float32 for ordinary inputs" if wide else None
    run("zero_size", spec_of(sums(wide), reference, samples=empties), message)


# ------------------------------------------------------------------------------------------------ layouts


def in_memory_order(xp: Any, a: Any) -> Any:
    return a.ravel(order="K").reshape(a.shape) * 2


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda xp, a: a * 2, None),
        (in_memory_order, "right for contiguous inputs, wrong for transposed ones"),
        (lambda xp, a: a * 3, "out of tolerance"),
    ],
    ids=["right", "order in memory", "always wrong"],
)
def test_strides_of_an_input_are_read(fn: Any, message: str | None) -> None:
    run("layouts", spec_of(fn, lambda a: a * 2), message)


def test_call_that_writes_to_an_input_that_is_not_contiguous_is_found() -> None:
    def fn(xp: Any, a: Any) -> Any:
        result = a * 2
        if not a.flags.c_contiguous:
            a[...] = 0
        return result

    run("layouts", spec_of(fn, lambda a: a * 2), "the call changed its input; work on a copy")


def test_first_input_alone_may_be_transposed() -> None:
    def fn(xp: Any, a: Any, b: Any) -> Any:
        if a.flags.f_contiguous and not b.flags.f_contiguous:
            a = in_memory_order(xp, a) / 2
        return a + b

    pair = lambda make: [(make((3, 5)), make((3, 5)))]  # noqa: E731
    message = "right for contiguous inputs, wrong where the first one alone is transposed"
    run("layouts", spec_of(fn, lambda a, b: a + b, samples=pair), message)
    run("layouts", spec_of(lambda xp, a, b: a + b, lambda a, b: a + b, samples=pair), None)


# ------------------------------------------------------------------------------------------------ conduct


def emptied(xp: Any, a: Any) -> Any:
    result = a * 2
    a[...] = 0
    return result


def doubled_in_place(xp: Any, a: Any) -> Any:
    a *= 2
    return a


def doubled(xp: Any, a: Any) -> Any:
    return a * 2


IN_PLACE = {"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"}


@pytest.mark.parametrize(("fn", "message"), [(doubled, None), (emptied, "the call changed its input; work on a copy")])
def test_call_that_changes_its_input_is_found(fn: Any, message: str | None) -> None:
    run("inputs_unchanged", spec_of(fn, lambda a: a * 2), message)


@pytest.mark.parametrize(
    ("fn", "reference", "message"),
    [
        (doubled_in_place, lambda a: a * 2, None),
        (doubled, lambda a: a * 2, "no call changed an input, although the declaration opts out of inputs_unchanged"),
        (lambda xp, a: a + 0, lambda a: a, None),
        (lambda xp, a: a + 0, lambda a: a + 1, "no call changed an input"),
    ],
    ids=["in place", "a new array", "nothing to write", "wrong"],
)
def test_function_that_is_declared_to_work_in_place_writes(fn: Any, reference: Any, message: str | None) -> None:
    run("written", spec_of(fn, reference, without=IN_PLACE), message)


def test_function_in_place_has_nothing_to_write_where_nan_stays() -> None:
    samples = lambda make: [make.of([np.nan, 1.0])]  # noqa: E731

    run("written", spec_of(lambda xp, a: a + 0, lambda a: a + 0, without=IN_PLACE, samples=samples), None)


@pytest.mark.parametrize("check", ["values", "inputs_unchanged", "deterministic", "written"])
def test_overflow_does_not_warn(check: str) -> None:
    samples = lambda make: [make.of([1e3, 1.0])]  # noqa: E731
    without = IN_PLACE if check == "written" else {}

    run(
        check,
        spec_of(lambda xp, a: xp.exp(a, out=a if without else None), np.exp, samples=samples, without=without),
        None,
    )


@pytest.mark.parametrize(
    ("check", "fn", "message"),
    [
        ("values", doubled, None),
        ("values", lambda xp, a: a * 3, "out of tolerance"),
        ("extremal", doubled, None),
        ("extremal", lambda xp, a: np.nan_to_num(a) * 2, "nan|inf"),
        ("zero_dim", doubled, None),
        ("zero_dim", lambda xp, a: a * 2 if a.ndim else a * 3, "out of tolerance"),
    ],
)
def test_wrong_result_for_samples_of_one_kind_is_found(check: str, fn: Any, message: str | None) -> None:
    run(check, OpSpec(fn=fn, name="given", dtypes=("float32",), reference=lambda a: a * 2), message)


def test_result_that_is_a_python_number_is_compared_with_the_next_one() -> None:
    run("deterministic", spec_of(lambda xp, a: float(a.sum()), lambda a: a.sum()), None)


def test_captured_call_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = OpSpec(op=ops.exp, dtypes=("float32",), samples=lambda make: [make((3, 5))], reference=np.exp)
    CHECKS["graph_replay"](spec, "sim", FLOAT32)

    monkeypatch.setattr(SimCapture, "replay", lambda self: None)
    with pytest.raises(AssertionError, match="out of tolerance"):
        CHECKS["graph_replay"](spec, "sim", FLOAT32)


def test_only_functions_in_place_must_write() -> None:
    assert CHECKS["written"].applies(spec_of(doubled_in_place, without=IN_PLACE))
    assert not CHECKS["written"].applies(spec_of(doubled))


def in_turn(period: int) -> Any:
    """Results that differ in their last digits in one of `period` calls."""
    calls = iter(range(10_000))
    return lambda xp, a: a * 2 + (next(calls) % period == period - 1) * np.float32(2**-20)


@pytest.mark.parametrize("period", [2, 3, 4], ids=str)
def test_one_of_four_calls_with_another_result_is_found(period: int) -> None:
    run("deterministic", spec_of(in_turn(period), lambda a: a * 2), "two calls on the same inputs give different")


def test_call_that_returns_an_earlier_result_is_found() -> None:
    kept: dict[Any, Any] = {}

    def fn(xp: Any, a: Any) -> Any:
        return kept.setdefault((a.shape, a.dtype), a * 2).copy()

    run("deterministic", spec_of(fn, lambda a: a * 2), "does the function cache something from the first call")
    run("deterministic", spec_of(doubled, lambda a: a * 2), None)


def test_function_that_is_wrong_from_the_first_call_is_not_said_to_cache() -> None:
    run("deterministic", spec_of(lambda xp, a: a * 3, lambda a: a * 2), None)


def test_function_that_is_declared_to_be_random_may_change_from_call_to_call() -> None:
    assert CHECKS["deterministic"].applies(spec_of(doubled))
    assert not CHECKS["deterministic"].applies(spec_of(doubled, deterministic=False))


@pytest.mark.parametrize(
    ("dtypes", "applies"), [(("bool",), False), (("bool", "int32"), True), (("float32",), True)], ids=str
)
def test_python_numbers_are_not_given_to_functions_of_truth_values(dtypes: tuple[str, ...], applies: bool) -> None:
    samples = lambda make: [(make(4), make(4)), Sample((make(4), True), kind="python")]  # noqa: E731

    assert CHECKS["python_scalars"].applies(spec_of(lambda xp, a, b: a + b, dtypes=dtypes, samples=samples)) is applies


# ------------------------------------------------------------------------------------------------ errors


def root(*, changes: bool = False, is_wrong: bool = False, once: bool = False, keeps: bool = False) -> Any:
    """A root that rejects negative numbers, with one fault."""
    state = {"raised": 0}

    def fn(xp: Any, a: Any) -> Any:
        if (a < 0).any():
            if changes:
                a[...] = 0
            state["raised"] += 1
            if not (once and state["raised"] % 2 == 0):
                raise ValueError("a root of a negative number")
            return a
        return xp.sqrt(a) + (is_wrong or (keeps and state["raised"] > 0))

    return fn


def reference_root(a: Any) -> Any:
    if (a < 0).any():
        raise ValueError("a root of a negative number")
    return np.sqrt(a)


def of_roots(fn: Any, match: str = "negative") -> OpSpec:
    return spec_of(
        fn, reference_root, samples=lambda make: [make((3, 5), low=0, high=3)],
        error_inputs=lambda make: [ErrorInput(make.of([1.0, -1.0]), ValueError, match)],
    )  # fmt: skip


def test_call_that_raises_only_the_first_time_is_found() -> None:
    calls = iter(range(100))

    def fn(xp: Any, a: Any) -> Any:
        if a.shape == (2,) and next(calls) == 0:
            raise ValueError("a root of a negative number")
        return xp.sqrt(abs(a))

    run("errors", of_roots(fn), "the same call has raised before")


def test_one_bad_row_among_good_ones_must_raise() -> None:
    def fn(xp: Any, a: Any) -> Any:
        if (a < 0).all():
            raise ValueError("a root of a negative number")
        return xp.sqrt(abs(a))

    spec = spec_of(
        fn, reference_root, samples=lambda make: [make((3, 5), low=0, high=3)],
        error_inputs=lambda make: [ErrorInput(make.full((3, 5), -1), ValueError, "negative")],
    )  # fmt: skip
    run("errors", spec, "where one row of many is as in the declared bad input: look at each row")


@pytest.mark.parametrize(
    ("fn", "match", "message"),
    [
        (root(), "negative", None),
        (root(), "positive", "ValueError does not say 'positive'"),
        (lambda xp, a: xp.sqrt(abs(a)), "negative", r"ValueError \('negative'\) was not raised"),
        (root(changes=True), "negative", "a call that raised an error has changed its input; validate before writing"),
        (root(keeps=True), "negative", "wrong after a call that raised an error"),
        (root(once=True), "negative", "was not raised"),
        (root(is_wrong=True), "negative", None),
    ],
    ids=["right", "another text", "no error", "input changed", "state kept", "once", "wrong for all numbers"],
)
def test_call_that_must_raise_does_so_and_leaves_nothing_behind(fn: Any, match: str, message: str | None) -> None:
    run("errors", of_roots(fn, match), message)


@pytest.mark.parametrize(
    ("args", "without", "expected"),
    [
        ((1.0,), {}, True),
        ((1.0,), IN_PLACE, False),
        (([1.0, 2.0],), IN_PLACE, True),
        ((1.0, [1.0]), IN_PLACE, True),
    ],
    ids=["function", "in place", "lists in place", "a list among others"],
)
def test_inputs_of_a_call_that_raises_are_left_except_by_functions_in_place(
    args: Any, without: dict[str, str], expected: bool
) -> None:
    assert _must_leave_inputs(spec_of(doubled, without=without), Sample(args)) is expected


# ------------------------------------------------------------------------------------------------ dtypes


@pytest.mark.parametrize(
    ("supported", "message"),
    [
        (("float32", "float64"), None),
        (("float32",), "add has no implementation on cpu:0 for float64, which dtypes= claims; add it"),
        (("float32", "float64", "int8"), "add on cpu:0 is also implemented for int8, which dtypes= does not claim"),
    ],
    ids=["equal", "one too few", "one too many"],
)
def test_claimed_dtypes_are_the_supported_ones(
    supported: tuple[str, ...], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = OpSpec(op=ops.add, dtypes=("float32", "float64"), reference=np.add)
    monkeypatch.setattr(devices, "supported_dtypes", lambda op, device: supported)

    if message is None:
        CHECKS["dtypes"](spec, CPU)
    else:
        with pytest.raises(AssertionError, match=message):
            CHECKS["dtypes"](spec, CPU)


def test_missing_dtypes_are_listed_in_order_for_an_op_only(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = OpSpec(op=ops.add, dtypes=("int8", "float64", "int32", "float32", "int16"), reference=np.add)
    monkeypatch.setattr(devices, "supported_dtypes", lambda op, device: ())

    with pytest.raises(AssertionError, match="for float32, float64, int16, int32, int8, which dtypes= claims"):
        CHECKS["dtypes"](spec, CPU)
    assert [CHECKS["dtypes"].applies(one) for one in (spec, spec_of(doubled))] == [True, False]


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        pytest.param(OpSpec(op=ops.exp, samples=lambda make: [make(9)], reference=np.exp), 2, id="an op"),
        pytest.param(OpSpec(fn=lambda xp, a: a, name="given", samples=lambda make: [make(9)]), 4, id="a function"),
    ],
)
def test_call_of_an_op_is_repeated_once_and_that_of_a_function_three_times(
    spec: OpSpec, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Sample] = []

    def run_sample(spec: OpSpec, device: Device, sample: Sample) -> Any:
        calls.append(sample)
        return np.ones(9)

    monkeypatch.setattr(checks, "run_sample", run_sample)
    monkeypatch.setattr(checks, "_check_other_numbers", lambda *given: None)
    REGISTERED["deterministic"].function(spec, Device("cpu"), np.dtype("float32"))

    assert len(calls) == count


@pytest.mark.parametrize(
    ("spec", "layouts", "full_precision"),
    [
        pytest.param(OpSpec(op=ops.exp, reference=np.exp, dtypes=("float64",)), True, False, id="op"),
        pytest.param(
            OpSpec(op=ops.foreach_zero_, samples=lambda make: [([make(3)],)], reference=np.zeros_like), False, False,
            id="op over lists",
        ),
        pytest.param(OpSpec(fn=lambda xp, a: a, name="same", dtypes=("float64",)), True, True, id="function"),
        pytest.param(OpSpec(fn=lambda xp, a: a, name="same", dtypes=("float32",)), True, False, id="no float64"),
    ],
)  # fmt: skip
def test_what_layouts_and_precision_are_asked_of(spec: OpSpec, layouts: bool, full_precision: bool) -> None:
    assert REGISTERED["layouts"].applies(spec) is layouts
    assert REGISTERED["full_precision"].applies(spec) is full_precision


def test_promotion_is_checked_of_samples_and_of_rules() -> None:
    def mixed(make: Any) -> list[Any]:
        return [make(3), Sample((make(3), make(3, dtype="float64")), kind="promotion")]

    declared = spec_of(lambda xp, a, b=0: a + b, lambda a, b=0: a + b, samples=mixed)

    assert REGISTERED["promotion"].applies(declared)
    assert not REGISTERED["promotion"].applies(spec_of(lambda xp, a: a))


def test_two_samples_of_one_number_of_axes_share_the_layouts() -> None:
    met: list[tuple[int, ...]] = []

    def fn(xp: Any, a: Any) -> Any:
        met.append(a.strides)
        return a * 2

    spec = spec_of(fn, lambda a: a * 2, samples=lambda make: [make((3, 5)), make((4, 6))])
    met.clear()
    run("layouts", spec, None)

    assert len(set(met)) > 5


def by_pointer(xp: Any, a: Any, factor: float = 2.0) -> Any:
    """As a kernel of `cuda` does, which reads the pointer of each array: those of NumPy have none."""
    return a.data.ptr if isinstance(a, np.ndarray) else a * factor


@pytest.mark.parametrize("check", ["values", "layouts", "second_call", "combined", "sizes", "bench", "side_stream"])
def test_function_that_breaks_on_the_host_passes_on_its_device(check: str) -> None:
    bench = lambda make, sizes: [make((64, 64))]  # noqa: E731
    spec = spec_of(by_pointer, lambda a, factor=2.0: a * factor, bench=bench)

    CHECKS[check](spec, "sim", *([FLOAT32] if CHECKS[check].per_dtype else []))
