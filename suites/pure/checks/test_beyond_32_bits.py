"""Arrays of more elements than 32 bits count: here of more than 13 bits, with faults at that limit."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, devices, ops
from cuassay.core.units import format_bytes
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import beyond_32_bits, marked
from cuassay.testing.generated.beyond_32_bits import check_beyond_32_bits
from cuassay.testing.generated.checks import CHECKS

CPU, SIM = Device("cpu"), Device("sim")

#: The largest number of elements that the faults of this file count, and that of the arrays that the check makes.
LIMIT, LENGTH = 2**13, 2**13 + 99


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond_32_bits, "_LENGTH", LENGTH)
    monkeypatch.setattr(beyond_32_bits, "_PERIODS", (41, 263))
    monkeypatch.setattr(beyond_32_bits, "_PATIENCE_S", 600.0)
    monkeypatch.setattr(beyond_32_bits, "_HOST_PATIENCE_S", 600.0)
    monkeypatch.setattr(beyond_32_bits, "_CHUNK", 2**10)


def spec_of(fn: Any, reference: Any = lambda a: a * 2, **fields: Any) -> OpSpec:
    fields = {"dtypes": ("float32",), "samples": lambda make: [make(67)], "name": "f", **fields}
    return OpSpec(fn=fn, reference=reference, **fields)


def said(fn: Any, *given: Any, device: Device = CPU, **fields: Any) -> str:
    return failure(check_beyond_32_bits, spec_of(fn, *given, **fields), device)


def flat(change: Callable[[Any, Any], None]) -> Callable[..., Any]:
    """A function that doubles, and then changes the flat result of an array of more elements than the limit."""

    def fn(xp: Any, a: Any) -> Any:
        out = a * a.dtype.type(2)
        if a.size > LIMIT:
            change(out.reshape(-1), a.reshape(-1))
        return out

    return fn


# ------------------------------------------------------------------------------------------------ faults


def wrapped(out: Any, a: Any) -> None:
    out[LIMIT:] = out[: a.size - LIMIT]


def left_out(out: Any, a: Any) -> None:
    out[LIMIT:] = 0


def never_written(out: Any, a: Any) -> None:
    out[a.size // 2 :] = 0


def last_alone(out: Any, a: Any) -> None:
    out[-1] += 1


def first_alone(out: Any, a: Any) -> None:
    out[0] += 1


def one_at_the_limit(out: Any, a: Any) -> None:
    out[LIMIT] = np.nan


def larger_once(out: Any, a: Any) -> None:
    out[3 * 263 + 11] *= 1.01


def smaller_once(out: Any, a: Any) -> None:
    out[4 * 263 + 11] *= 0.99


def other_sign(out: Any, a: Any) -> None:
    out[5 * 263 + 11] *= -1


FAULTS: dict[Callable[[Any, Any], None], int] = {
    wrapped: LIMIT,
    left_out: LIMIT,
    never_written: LENGTH // 2,
    last_alone: LENGTH - 1,
    first_alone: 0,
    one_at_the_limit: LIMIT,
    larger_once: 3 * 263 + 11,
    smaller_once: 4 * 263 + 11,
    other_sign: 5 * 263 + 11,
}


@pytest.mark.parametrize("device", [CPU, SIM], ids=str)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_fault_at_the_limit_is_found_with_its_index(fault: Callable[[Any, Any], None], device: Device) -> None:
    message = said(flat(fault), device=device)

    assert (
        f"right for 263 numbers, wrong if a larger array repeats them: the first element that differs has index "
        f"{FAULTS[fault]:,}; is an index" in message
    )
    assert "sample: 0: shape 67, resized to 8291, repeating 263 numbers" in message


DTYPES = ("bool", "int8", "int64", "uint16", "float16", "bfloat16", "float64", "complex64", "complex128")


@pytest.mark.parametrize("device", [CPU, SIM], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_faults_are_found_in_every_dtype(dtype: str, device: Device) -> None:
    def same(xp: Any, a: Any) -> Any:
        return a.copy()

    def wrapping(xp: Any, a: Any) -> Any:
        out = a.copy()
        out[LIMIT:] = a[: max(a.size - LIMIT, 0)]
        return out

    fields: dict[str, Any] = {"dtypes": (dtype,), "device": device}

    assert said(same, np.copy, **fields) == ""
    assert "has index 8,19" in said(wrapping, np.copy, **fields)  # bits may agree by chance in the first ones


def doubled(xp: Any, a: Any) -> Any:
    return a * a.dtype.type(2)


@pytest.mark.parametrize("device", [CPU, SIM], ids=str)
def test_right_function_passes(device: Device) -> None:
    assert said(doubled, device=device) == ""


@pytest.mark.parametrize("ulps", [1, -1])
def test_other_roundings_of_some_elements_are_accepted(ulps: int) -> None:
    """A tail that another loop computes need not have the same bits, nor a zero the same sign."""

    def rounded(out: Any, a: Any) -> None:
        out[5::7] = np.nextafter(out[5::7], np.float32(ulps * np.inf))
        out[out == 0] = -0.0

    assert said(flat(rounded)) == ""


def test_other_roundings_do_not_hide_a_fault() -> None:
    def rounded(out: Any, a: Any) -> None:
        out[5::7] = np.nextafter(out[5::7], np.float32(np.inf))
        last_alone(out, a)

    assert "the first element that differs has index 5;" in said(flat(rounded))


def test_memory_of_the_result_holds_no_earlier_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right result that an earlier call left there would stand in for the part that a kernel leaves out."""
    written: list[int] = []
    monkeypatch.setattr(beyond_32_bits, "_spoil", lambda xp, nbytes: written.append(nbytes))

    said(doubled)

    assert written == [4 * LENGTH]


def test_wrong_shape_and_dtype_of_a_large_result_are_found() -> None:
    def shorter(xp: Any, a: Any) -> Any:
        return doubled(xp, a)[: LIMIT + 1]

    def wider(xp: Any, a: Any) -> Any:
        return (a * 2).astype("float64" if a.size > LIMIT else a.dtype)

    assert "the result has shape (8193,) and dtype float32; (8291,) and float32 were expected" in said(shorter)
    assert "the result has shape (8291,) and dtype float64; (8291,) and float32 were expected" in said(wider)


def test_function_that_is_wrong_for_a_period_is_not_called_with_more() -> None:
    sizes: list[int] = []

    def wrong(xp: Any, a: Any) -> Any:
        sizes.append(a.size)
        return a * 3

    message = said(wrong)

    assert "out of tolerance" in message
    assert "larger array" not in message
    assert 263 in sizes
    assert max(sizes) < LIMIT


# ------------------------------------------------------------------------------------------------ which functions


def sizes_of(fn: Callable[..., Any], reference: Any, **fields: Any) -> set[tuple[int, ...]]:
    """The shapes of the first array in calls of more elements than the limit."""

    def noting(xp: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0].size > LIMIT:
            shapes.add(args[0].shape)
        return fn(xp, *args, **kwargs)

    shapes: set[tuple[int, ...]] = set()
    assert said(noting, reference, **fields) == ""
    return shapes


@pytest.mark.parametrize(
    ("fn", "reference"),
    [
        (lambda xp, a: xp.cumsum(a), np.cumsum),
        (lambda xp, a: xp.sort(a), np.sort),
        (lambda xp, a: a[::-1].copy(), lambda a: a[::-1]),
        (lambda xp, a: xp.roll(a, 1), lambda a: np.roll(a, 1)),
        (lambda xp, a: a * xp.arange(a.size), lambda a: a * np.arange(a.size)),
        (lambda xp, a: a - a.mean(), lambda a: a - a.mean()),
        (lambda xp, a: a.sum(), np.sum),
        (lambda xp, a: a[:-1] + a[1:], lambda a: a[:-1] + a[1:]),
    ],
    ids=["running sum", "sorted", "reversed", "rolled", "by index", "centred", "sum", "neighbours"],
)
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_other_functions_than_elementwise_ones_are_not_called(fn: Any, reference: Any, dtype: str) -> None:
    assert sizes_of(fn, reference, dtypes=(dtype,)) == set()


def samples(*shapes: Any) -> Callable[[Any], list[Any]]:
    return lambda make: [make(shape) for shape in shapes]


@pytest.mark.parametrize(
    ("drawn", "shape"),
    [
        pytest.param(samples((3, 5), 7), (LENGTH,), id="fewest axes"),
        pytest.param(samples((3, 5)), (3, 2764), id="last axis"),
        pytest.param(samples((4, 4)), (4, 2073), id="equal extents"),
        pytest.param(samples((2, 3, 1)), (2, 3, 1382), id="an extent of one"),
    ],
)
def test_an_axis_of_the_sample_is_made_long(drawn: Any, shape: tuple[int, ...]) -> None:
    assert sizes_of(doubled, lambda a: a * 2, samples=drawn) == {shape}


def test_another_axis_is_made_long_if_the_last_has_a_fixed_extent() -> None:
    def of_three(a: Any) -> Any:
        if a.shape[-1] != 3:
            raise ValueError("three colours")
        return a * 2

    assert sizes_of(lambda xp, a: of_three(a), of_three, samples=samples((5, 3))) == {(2764, 3)}


def test_several_arrays_and_numbers_are_given() -> None:
    def fn(xp: Any, a: Any, b: Any, *, by: Any, k: float) -> Any:
        return a * b * by + k

    def drawn(make: Any) -> Any:
        yield Sample((make(5), make(5)), {"by": make(()), "k": 0.5})

    assert sizes_of(fn, lambda a, b, *, by, k: a * b * by + k, samples=drawn) == {(LENGTH,)}


def test_second_array_that_is_read_from_the_start_again_is_found() -> None:
    def fn(xp: Any, a: Any, b: Any) -> Any:
        return a - b[xp.arange(a.size) % LIMIT]

    drawn = lambda make: [(make(5), make(5))]  # noqa: E731

    assert "has index 8,192;" in said(fn, lambda a, b: a - b, samples=drawn)


@pytest.mark.parametrize(
    "drawn",
    [
        pytest.param(lambda make: [(make((3, 5)), make(5))], id="broadcast"),
        pytest.param(lambda make: [(make(5), np.arange(5))], id="sorted"),
        pytest.param(lambda make: [(make(5), np.array([3, 1, 4, 0, 2]))], id="permutation"),
    ],
)
def test_arrays_that_cannot_be_repeated_are_left_out(drawn: Any) -> None:
    assert sizes_of(lambda xp, a, b: (a + b).astype(a.dtype), lambda a, b: a + b, samples=drawn) == set()


def test_smallest_real_dtype_is_taken() -> None:
    met: set[str] = set()

    def fn(xp: Any, a: Any) -> Any:
        met.add(a.dtype.name if a.size > LIMIT else "")
        return a * a.dtype.type(2)

    assert said(fn, dtypes=("complex64", "float64", "float16", "float32")) == ""
    assert met == {"", "float16"}
    met.clear()
    assert said(fn, dtypes=("complex64", "float64")) == ""
    assert met == {"", "float64"}


@pytest.mark.parametrize(("seconds", "period"), [(0.0, 263), (1.0, 41)])
def test_function_or_reference_that_is_slow_gets_a_short_period(
    seconds: float, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this test goes only while a reference runs; the first call is of the sample and is not read."""
    now = [0.0]
    monkeypatch.setattr(beyond_32_bits.time, "thread_time", lambda: now[0])

    def reference(a: Any) -> Any:
        now[0] += 60 * seconds
        return a * 2

    assert f"repeating {period} numbers" in said(flat(last_alone), reference)


def test_very_slow_reference_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond_32_bits, "_PATIENCE_S", -1.0)
    assert sizes_of(doubled, lambda a: a * 2) == set()


def test_reference_gets_no_numbers_that_it_rejects() -> None:
    """A reference may reject arrays that are longer, and then nothing is compared."""

    def picky(a: Any) -> Any:
        if a.size > 67:
            raise ValueError("too long")
        return a * 2

    assert sizes_of(doubled, picky) == set()


def test_only_functions_are_checked() -> None:
    check = CHECKS["beyond_32_bits"]

    assert check.applies(spec_of(doubled))
    assert not check.applies(OpSpec(op=ops.equal, reference=np.equal))


# ------------------------------------------------------------------------------------------------ skips


def reason(fn: Any, device: Device = CPU, **fields: Any) -> str:
    with pytest.raises(pytest.skip.Exception) as skipped:
        CHECKS["beyond_32_bits"](spec_of(fn, **fields), device)
    return str(skipped.value)


def test_skip_says_how_much_memory_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 4 * 8 * LENGTH
    monkeypatch.setattr(type(devices.backend("cpu")), "memory_info", lambda self, index: (needed - 1, 2**40))

    assert reason(doubled) == (
        f"f in arrays of 8,291 elements needs {format_bytes(needed)} of free memory, 4 times its inputs and result; "
        f"cpu:0 has {format_bytes(needed - 1)}"
    )

    monkeypatch.setattr(type(devices.backend("cpu")), "memory_info", lambda self, index: (needed, 2**40))
    assert said(doubled) == ""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError("none left"), "f needs more memory for 8,291 elements than cpu:0 has: none left"),
        (ValueError("too many"), "f refuses arrays of 8,291 elements: ValueError: too many"),
        (NotImplementedError("31 bits"), "f refuses arrays of 8,291 elements: NotImplementedError: 31 bits"),
        (RuntimeError("31 bits"), "f refuses arrays of 8,291 elements: RuntimeError: 31 bits"),
    ],
    ids=["memory", "refused", "not implemented", "as torch"],
)
def test_refusal_of_large_arrays_is_a_skip(error: Exception, text: str) -> None:
    def fn(xp: Any, a: Any) -> Any:
        if a.size > LIMIT:
            raise error
        return doubled(xp, a)

    assert reason(fn) == text


def test_runtime_error_that_nobody_raised_on_purpose_is_no_refusal() -> None:
    def fn(xp: Any, a: Any) -> Any:
        if a.size > LIMIT:
            changing = {0: 0}
            for key in changing:
                changing[key + 1] = 0  # CPython's own RuntimeError
        return doubled(xp, a)

    with pytest.raises(RuntimeError, match="changed size"):
        check_beyond_32_bits(spec_of(fn), CPU)


def test_loop_over_elements_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this test goes by a millisecond for each element."""
    now = [0.0]
    monkeypatch.setattr(beyond_32_bits.time, "thread_time", lambda: now[0])

    def fn(xp: Any, a: Any) -> Any:
        now[0] += a.size * 1e-3
        return doubled(xp, a)

    monkeypatch.setattr(beyond_32_bits, "_HOST_PATIENCE_S", 6.0)
    assert reason(fn).startswith("f would keep the host busy for some 6 s with 8,291 elements, as a Python loop")
    monkeypatch.setattr(beyond_32_bits, "_HOST_PATIENCE_S", 7.0)
    assert said(fn) == ""


def test_another_error_is_raised() -> None:
    def fn(xp: Any, a: Any) -> Any:
        if a.size > LIMIT:
            raise OverflowError("an int32")
        return doubled(xp, a)

    with pytest.raises(OverflowError, match="an int32") as raised:
        check_beyond_32_bits(spec_of(fn), CPU)
    assert any("resized to 8291" in note for note in raised.value.__notes__)


def test_check_can_be_opted_out_of() -> None:
    assert reason(flat(last_alone), without={"beyond_32_bits": "31 bits"}) == "f opts out of beyond_32_bits: 31 bits"


def test_dtype_that_the_device_lacks_is_a_skip() -> None:
    assert "does not claim float32" in reason(doubled, unclaimed={"cpu": ("float32",)})


def test_it_needs_a_device_with_memory_of_its_own_and_runs_alone() -> None:
    check = CHECKS["beyond_32_bits"]

    def test() -> None: ...

    marks = [mark.name for mark in getattr(marked(test, check), "pytestmark", [])]

    assert check.needs == ("device_memory", "memory>=16GiB")
    assert sorted(marks) == ["cuassay_exclusive", "cuassay_requires"]
    assert [name for name, one in CHECKS.items() if one.is_alone] == ["beyond_32_bits"]


# ------------------------------------------------------------------------------------------------ memory


@pytest.fixture
def large_results() -> Iterator[list[Any]]:
    gc.disable()  # arrays must be free before the garbage collector runs
    yield []
    gc.enable()


@pytest.mark.parametrize("error", [None, ValueError, OverflowError], ids=["passes", "skipped", "raises"])
def test_large_arrays_are_free_afterwards(large_results: list[Any], error: type[Exception] | None) -> None:
    def fn(xp: Any, a: Any) -> Any:
        out = np.array(a * a.dtype.type(2))
        if a.size > LIMIT:
            large_results.extend([weakref.ref(a), weakref.ref(out)])
            if error is not None:
                raise error("too many")
        return out

    raised: list[BaseException] = []
    try:
        check_beyond_32_bits(spec_of(fn), CPU)
    except (pytest.skip.Exception, OverflowError) as kept:
        raised.append(kept)

    assert len(large_results) == 2
    assert [ref() for ref in large_results] == [None, None]
    assert len(raised) == (error is not None)


def test_failure_keeps_no_large_array(large_results: list[Any]) -> None:
    def fn(xp: Any, a: Any) -> Any:
        out = flat(last_alone)(xp, a)
        if a.size > LIMIT:
            large_results.append(weakref.ref(out))
        return out

    with pytest.raises(AssertionError) as raised:
        check_beyond_32_bits(spec_of(fn), CPU)

    assert "has index 8,290;" in str(raised.value)
    assert [ref() for ref in large_results] == [None]


@pytest.mark.parametrize("fn", [doubled, flat(last_alone)], ids=["right", "wrong"])
def test_cached_memory_is_released(monkeypatch: pytest.MonkeyPatch, fn: Any) -> None:
    released: list[int] = []
    monkeypatch.setattr(type(devices.backend("sim")), "release_cached", lambda self, index: released.append(index))

    said(fn, device=SIM)

    assert released == [0, 0]  # before free memory is asked for, and at the end


def test_functions_for_one_library_are_checked() -> None:
    """The host cannot run such a function, so that its dtype is known from the call on the device alone."""

    def fn(xp: Any, a: Any) -> Any:
        if isinstance(a, np.ndarray):
            raise TypeError("an array of another library")
        return flat(last_alone)(xp, a)

    assert "has index 8,290;" in said(fn, device=SIM)


def test_functions_without_a_reference_or_samples_are_checked() -> None:
    fields: dict[str, Any] = {"samples": None, "dtypes": ("float32", "float64")}

    assert said(doubled, None, **fields) == ""
    assert "has index 8,290;" in said(flat(last_alone), None, **fields)


def test_partial_functions_are_checked() -> None:
    assert said(functools.partial(lambda xp, a, k: a * a.dtype.type(k), k=2)) == ""


def test_work_of_copying_the_inputs_is_not_that_of_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy to a GPU that others use keeps the host busy, and the longer the larger the arrays are."""
    now = [0.0]
    monkeypatch.setattr(beyond_32_bits.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(beyond_32_bits, "_HOST_PATIENCE_S", 6.0)
    on = Sample.on

    def copying(self: Sample, device: Any) -> Any:
        args, kwargs = on(self, device)
        now[0] += args[0].size * 1e-3
        return args, kwargs

    monkeypatch.setattr(Sample, "on", copying)

    assert said(doubled) == ""


def test_equal_results_may_have_nan_and_roundings() -> None:
    wanted = np.array([1.0, np.nan, 1e6, np.inf])

    assert beyond_32_bits._agrees(wanted * (1 + 2.0**-40), wanted)
    assert not beyond_32_bits._agrees(wanted * (1 + 2.0**-20), wanted)
    assert not beyond_32_bits._agrees(wanted[:3], wanted)


@pytest.mark.parametrize(("shape", "along"), [((140, 5), 3), ((40, 5), 7), ((5, 4), 53)])
def test_axis_that_is_made_long_has_an_odd_length_of_at_least_three(shape: tuple[int, int], along: int) -> None:
    spec = spec_of(doubled, samples=lambda make: [make(shape)])
    found = beyond_32_bits._repeated(spec, CPU, np.dtype("float32"))

    assert found is not None
    assert found.period.args[0].shape == (shape[0], along)


def test_bounds_of_a_short_row_are_filled_from_the_period() -> None:
    row = np.arange(5, dtype=np.uint32)
    found = beyond_32_bits._bounds(np, np.array([[9, 8, 7]], np.uint32), row)

    assert found.tolist() == [[9, 8, 7, 3, 4]] * 4
