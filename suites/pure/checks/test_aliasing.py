"""Which results share memory with an input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops, to_host
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import aliasing as shared
from cuassay.testing.generated.aliasing import assert_own, gives_own_arrays
from cuassay.testing.generated.checks import CHECKS

CPU = Device("cpu")


@pytest.mark.parametrize(
    ("function", "own"),
    [
        (lambda xp, a: a + 1, True),
        (lambda xp, a: a, False),
        (lambda xp, a: a[1:], False),
        (lambda xp, a: a.copy(), False),
        (lambda xp, a: (a + 1, a[:1]), False),
        (lambda xp, a: xp.sum(a), True),
        (lambda xp, a: 1.0, False),
    ],
    ids=["computed", "the input", "a view", "moved", "one of two", "a scalar", "a number"],
)
def test_results_that_are_computed_in_memory_of_their_own(function: Any, own: bool) -> None:
    spec = OpSpec(fn=function, name="given", samples=lambda make: [make(9)])

    assert gives_own_arrays(spec, CPU, spec.draw(0, "float32")) is own


@pytest.mark.parametrize("check", ["aliasing", "inputs_unchanged"])
def test_what_says_that_it_shares_memory_is_not_asked(check: str) -> None:
    spec = OpSpec(fn=lambda xp, a: a + 1, name="given", samples=lambda make: [make(9)], without={check: "in place"})

    assert not gives_own_arrays(spec, CPU, spec.draw(0, "float32"))


@pytest.mark.parametrize(("place", "shares"), [(slice(0, 4), True), (slice(3, 4), True), (slice(4, 8), False)])
def test_a_view_of_an_input_is_not_its_own(place: slice, shares: bool) -> None:
    memory = np.zeros(8)
    message = ""
    try:
        assert_own(CPU, memory[place], [2.0, memory[:4], np.zeros(0)])
    except AssertionError as error:
        message = str(error)

    assert message.startswith("the result is an input, or a view of one, for this call") is shares


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(
    "function",
    [lambda xp, a: float(a.sum()), lambda xp, a: xp.sum(a), lambda xp, a: to_host(xp.sum(a))],
    ids=["number", "scalar", "on the host"],
)
def test_a_number_shares_no_memory(function: Any, device: str) -> None:
    CHECKS["aliasing"](OpSpec(fn=function, name="total", samples=lambda make: [make(9)]), device)


# ------------------------------------------------------------------------------------------------ what the check finds


def declared(fn: Any, reference: Any = None, samples: Any = None, **options: Any) -> OpSpec:
    return OpSpec(
        fn=fn, reference=reference, name="given", dtypes=options.pop("dtypes", ("float32",)),
        samples=samples or (lambda make: [make(9), make(4)]), **options,
    )  # fmt: skip


def aliasing(fn: Any, reference: Any = None, samples: Any = None, **options: Any) -> str:
    return failure(CHECKS["aliasing"], declared(fn, reference, samples, **options), "cpu:0")


def one_more(a: Any) -> Any:
    return a + 1


def keeping(count: int) -> Any:
    """A function that returns one of several buffers in turn."""
    kept: list[Any] = []
    place = iter(range(10**6))

    def fn(xp: Any, a: Any) -> Any:
        at = next(place)
        if len(kept) < count:
            kept.append(xp.zeros(99, dtype=a.dtype))
        found = kept[at % count][: a.size]
        found[...] = a + 1
        return found

    return fn


@pytest.mark.parametrize(("count", "is_found"), [(1, True), (2, True), (3, True), (9, False)])
def test_a_buffer_that_is_kept_for_up_to_three_calls_is_found(count: int, is_found: bool) -> None:
    found = aliasing(keeping(count), one_more, lambda make: [make(9)])

    assert ("it returns a buffer that it keeps" in found) is is_found


def in_place(xp: Any, a: Any) -> Any:
    a += 1
    return a


def in_place_if_long(xp: Any, a: Any) -> Any:
    return in_place(xp, a) if a.size > 5 else a + 1


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        pytest.param(in_place, "or a view of one, whose numbers the call has changed", id="all"),
        pytest.param(in_place_if_long, "but computed for other samples", id="some"),
        pytest.param(lambda xp, a: a + 1, "", id="none"),
    ],
)
def test_a_computed_result_that_is_an_input_is_found(fn: Any, said: str) -> None:
    found = aliasing(fn, one_more)

    assert (said in found) if said else not found


def test_the_second_result_of_a_list_is_named() -> None:
    assert "result 1 of the list is an input" in aliasing(lambda xp, a: (a + 1, in_place(xp, a)))


@pytest.mark.parametrize(
    ("reference", "is_found"), [(np.copy, True), (lambda a: a, False)], ids=["a copy", "the input itself"]
)
def test_a_view_for_some_samples_is_found_if_the_reference_copies(reference: Any, is_found: bool) -> None:
    found = aliasing(lambda xp, a: a if a.size > 5 else a.copy(), reference)

    assert ("but a new array for" in found) is is_found


def test_a_view_for_all_samples_is_meant() -> None:
    assert not aliasing(lambda xp, a: a, np.copy)


def test_a_view_in_one_layout_is_found() -> None:
    found = aliasing(
        lambda xp, a: xp.ascontiguousarray(a), lambda a: np.array(a), lambda make: [make((3, 4)), make((4, 5))]
    )

    assert "in one layout, and a copy in another" in found


def test_a_limit_that_copies_only_larger_numbers_is_found() -> None:
    def clipped(xp: Any, a: Any) -> Any:
        return a if float(abs(a).max()) < 9 else xp.clip(a, -9, 9)

    found = aliasing(clipped, lambda a: np.clip(a, -9, 9))

    assert "for ordinary numbers, but a new array for larger ones" in found
    ranged = aliasing(clipped, lambda a: np.clip(a, -9, 9), lambda make: [make(9, low=0, high=2)])
    assert not ranged


def test_a_view_for_one_dtype_is_found() -> None:
    found = aliasing(
        lambda xp, a: a.astype("float32", copy=False) * 1 if a.dtype == "float64" else a.astype("float32", copy=False),
        lambda a: a.astype(np.float32), dtypes=("float32", "float64"), result_dtype="float32",
    )  # fmt: skip

    assert "the result is the input, or a view of it, for float32, but a new array for float64" in found


# ------------------------------------------------------------------------------------------------ one array twice


def pair(fn: Any, reference: Any, shapes: Any = (9, 9)) -> str:
    return aliasing(fn, reference, lambda make: [tuple(make(shape) for shape in shapes)])


def log_of_distance(xp: Any, a: Any, b: Any) -> Any:
    return xp.log(abs(a - b))


def test_a_right_function_of_one_array_twice_may_divide_by_zero() -> None:
    with np.errstate(all="raise"):
        assert not pair(log_of_distance, lambda a, b: log_of_distance(np, a, b))


def confused(xp: Any, a: Any, b: Any) -> Any:
    return a - b if a is not b else a * 2


def test_one_array_passed_twice_is_found() -> None:
    assert "wrong if one array is passed twice, right for two equal ones" in pair(confused, np.subtract)
    assert not pair(lambda xp, a, b: a - b, np.subtract)


def test_a_function_that_is_wrong_for_equal_arrays_too_is_left_to_other_checks() -> None:
    assert not pair(lambda xp, a, b: a - b + (a == b).all(), np.subtract)


@pytest.mark.parametrize(
    ("shapes", "is_found"),
    [((9, 9), True), ((9, 8), False), ((4500, 4500), True)],
    ids=["equal", "other shapes", "9,000 elements"],
)
def test_arrays_of_one_shape_are_passed_twice(shapes: Any, is_found: bool) -> None:
    def first(a: Any, b: Any) -> Any:
        return a + 1

    found = pair(lambda xp, a, b: a + 1 if a is not b else a, first, shapes)

    assert ("one array is passed twice" in found) is is_found


def test_a_nan_in_an_array_that_is_passed_twice_counts() -> None:
    def alike(xp: Any, a: Any, b: Any) -> Any:
        return (a == b) if a is not b else xp.ones(a.shape, dtype="bool")

    found = pair(alike, lambda a, b: a == b)

    assert "one array is passed twice" in found
    assert "a NaN in it" in found


@pytest.mark.parametrize(
    ("result", "is_moved"),
    [
        pytest.param([3.0, 1.0], True, id="its numbers"),
        pytest.param([3.0, 1.5], False, id="another number"),
        pytest.param([0.0, 1.0], False, id="a zero of the other sign"),
        pytest.param([], True, id="nothing"),
    ],
)
def test_a_rearrangement_holds_numbers_of_the_inputs_alone(result: Any, is_moved: bool) -> None:
    sample = Sample((np.array([1, 2, 3, -0.0], np.float32), np.array([1.5]), 1.5))

    assert shared._is_rearrangement(np.array(result, np.float32), sample) is is_moved


def test_a_result_of_another_dtype_is_a_rearrangement_only_if_empty() -> None:
    sample = Sample((np.ones(3),))

    assert not shared._is_rearrangement(np.ones(3, np.int32), sample)
    assert shared._is_rearrangement(np.ones(0, np.int32), sample)


@pytest.mark.parametrize(("dtype", "name"), [("int8", "uint8"), ("float64", "uint64"), ("complex128", "uint64")])
def test_elements_are_compared_by_their_bits(dtype: str, name: str) -> None:
    bits = shared._bits(np.ones((2, 3), dtype).T)

    assert bits.dtype.name == name
    assert bits.size == (12 if dtype == "complex128" else 6)


# ------------------------------------------------------------------------------------------------ parts of the check


def test_failure_of_a_dtype_names_its_sample() -> None:
    def refusing(xp: Any, a: Any) -> Any:
        if a.dtype == "float64":
            raise RuntimeError("float32 only")
        return a * 1

    spec = declared(refusing, lambda a: a * 1, dtypes=("float32", "float64"))

    with pytest.raises(RuntimeError) as caught:
        shared._check_dtypes(spec, CPU)
    assert "sample: 0: shape 9" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(
    ("dtypes", "is_found"), [(("float32", "float64"), True), (("float32",), False), (("float32", "int32"), False)]
)
def test_dtypes_of_floats_are_compared(dtypes: Any, is_found: bool) -> None:
    spec = declared(lambda xp, a: a.astype("float32", copy=False), lambda a: a, dtypes=dtypes)

    assert bool(failure(shared._check_dtypes, spec, CPU)) is is_found


def test_dtypes_are_compared_on_a_sample_of_at_most_4096_elements() -> None:
    met: list[int] = []

    def fn(xp: Any, a: Any) -> Any:
        met.append(a.size)
        return a * 1

    spec = declared(fn, None, lambda make: [make(4096), make(4097)], dtypes=("float32", "float64"))
    met.clear()
    shared._check_dtypes(spec, CPU)

    assert set(met) == {4096}


@pytest.mark.parametrize(
    ("reference", "copies"),
    [
        pytest.param(lambda a: a * 2, True, id="computed"),
        pytest.param(lambda a: a, False, id="the input"),
        pytest.param(lambda a: a[::2], False, id="a view"),
        pytest.param(lambda a: a.copy(), True, id="a copy"),
        pytest.param(lambda a: float(a.sum()), False, id="a number"),
        pytest.param(lambda a: np.exp(a * 1e4), True, id="overflow"),
        pytest.param(None, False, id="no reference"),
    ],
)
def test_reference_always_copies(reference: Any, copies: bool) -> None:
    with np.errstate(all="raise"):
        assert shared._always_copies(declared(lambda xp, a: a, reference), Sample((np.arange(3.0),))) is copies


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_computed_results_do_not_warn(device: str) -> None:
    spec = OpSpec(fn=lambda xp, a: xp.exp(a * 1e4), name="given", samples=lambda make: [make(9)])

    with np.errstate(all="raise"):
        assert gives_own_arrays(spec, Device(device), spec.draw(0, "float32"))
        assert not shared._is_shared(spec, Device(device), next(spec.draw(0, "float32")))


def test_failure_of_an_own_array_names_its_sample() -> None:
    def refusing(xp: Any, a: Any) -> Any:
        if a.size == 9 and not (a == 2).all():
            raise RuntimeError("twos only")
        return a

    spec = OpSpec(fn=refusing, name="given", samples=lambda make: [make.full(9, 2.0)])
    sample = Sample((np.ones(9, np.float32),), {}, "ones")

    with pytest.raises(RuntimeError) as caught:
        gives_own_arrays(spec, CPU, [sample])
    assert caught.value.__notes__ == ["  sample: ones"]


def test_function_is_called_on_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = OpSpec(fn=lambda xp, a: [a, a + 1], name="given", samples=lambda make: [make(3)])
    args, kwargs = next(spec.draw(0, "float32")).on(CPU)
    met: list[int] = []

    class Backend:
        @contextmanager
        def activate(self, index: int) -> Iterator[None]:
            met.append(index)
            yield

    monkeypatch.setattr(shared.devices, "backend", lambda kind: Backend())
    monkeypatch.setattr(OpSpec, "apply", lambda self, device, args, kwargs: (met[-1], args))

    assert shared._raw_result(spec, Device("cpu"), args, kwargs) == (0, args)
    assert met == [0]


def of_view(op: Any, reference: Any) -> OpSpec:
    return OpSpec(op=op, dtypes=("float32",), samples=lambda make: [make((3, 4))], reference=reference)


def test_view_in_numpy_shares_memory_with_the_first_argument() -> None:
    sample = Sample((np.ones((3, 4), np.float32),))

    assert shared._is_view_in_numpy(of_view(ops.exp, lambda a: a.T), sample)
    assert not shared._is_view_in_numpy(of_view(ops.exp, np.exp), sample)
    assert not shared._is_view_in_numpy(declared(lambda xp, a: a), sample)
    assert not shared._is_view_in_numpy(of_view(ops.exp, lambda a: 1.0), sample)


@pytest.mark.parametrize("empty", [False, True])
def test_memory_is_shared_with_arrays_of_the_device(empty: bool) -> None:
    memory = np.zeros(0 if empty else 8)

    assert shared._shares(CPU, memory, [2.0, memory]) is not empty
    assert not shared._shares(CPU, 2.0, [memory])
    assert not shared._shares(CPU, memory, [2.0, memory.copy()])
    assert not shared._shares(Device("sim"), memory, [memory])


def test_nan_in_the_array_that_is_passed_twice_is_compared() -> None:
    found = pair(lambda xp, a, b: xp.isnan(a) * (1.0 + (a is b)), lambda a, b: np.isnan(a) * 1.0)

    assert "input 1 is input 0, a NaN in it" in found


def test_dtypes_that_a_device_lacks_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = declared(lambda xp, a: a.astype("float32", copy=False), lambda a: a, dtypes=("float32", "float64"))
    missing = lambda self, device, name: "no float64" if name == "float64" else None  # noqa: E731
    monkeypatch.setattr(OpSpec, "why_unsupported", missing)

    assert not failure(shared._check_dtypes, spec, CPU)


def test_larger_numbers_keep_the_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[Sample] = []

    def is_shared(spec: OpSpec, device: Device, sample: Sample) -> bool:
        met.append(sample)
        return len(met) == 1

    monkeypatch.setattr(shared, "_is_shared", is_shared)
    spec = declared(lambda xp, a: a, lambda a: a * 1, dtypes=("bfloat16",))
    sample = next(spec.draw(1, "bfloat16"))

    assert "for ordinary numbers, but a new array for larger ones" in failure(
        shared._check_larger_numbers, spec, CPU, sample
    )
    assert [str(one.args[0].dtype) for one in met] == ["bfloat16", "bfloat16"]
    assert (met[1].args[0].values.astype(float) == met[0].args[0].values.astype(float) * 16).all()
    assert met[1].label.endswith(", times 16")


def test_a_call_that_divides_by_zero_does_not_warn() -> None:
    spec = OpSpec(
        fn=lambda xp, a: 1 / (a - a), reference=lambda a: np.full(a.shape, np.inf), name="infinite",
        dtypes=("float32",), samples=lambda make: [make(9)],
    )  # fmt: skip

    CHECKS["aliasing"](spec, CPU)


def test_two_inputs_are_the_same_array_of_at_most_9000_elements() -> None:
    met: list[int] = []

    def fn(xp: Any, a: Any, b: Any) -> Any:
        met.append(a.size + b.size if a is b else 0)
        return a + b

    spec = declared(fn, None, lambda make: [(make(size), make(size)) for size in (7, 4500, 4501)])
    met.clear()
    shared._check_repeated_input(spec, CPU)

    assert set(met) - {0} == {9000}
