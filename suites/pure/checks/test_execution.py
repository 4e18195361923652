"""How checks run: which calls are refused, which numbers take the place of others, and what failures say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops, to_host
from cuassay.errors import ArgumentError, RaceError, SpecError
from cuassay.testing import OpSpec, Sample
from cuassay.testing.compare import collecting
from cuassay.testing.generated import execution
from cuassay.testing.generated.execution import (
    REGISTERED,
    Check,
    check,
    filled_from,
    has,
    is_function,
    is_op,
    is_safely_taken,
    moves,
    must_raise,
    overwrite,
    refusal_of,
    run_sample,
    run_unchanging,
    runs_on_host,
    turned,
    verify,
)
from cuassay.testing.guards import LeakError
from cuassay.testing.samples import HostArray, Samples

CPU, FLOAT32 = Device("cpu"), np.dtype("float32")
MAKE = Samples(1, "float32")


def spec_of(fn: Any, reference: Any = None, samples: Any = None, **fields: Any) -> OpSpec:
    fields = {"dtypes": ("float32",), **fields}
    return OpSpec(fn=fn, reference=reference, name="given", samples=samples or (lambda make: [make(4)]), **fields)


def of_op(op: Any) -> OpSpec:
    return OpSpec(op=op, dtypes=("float32",), samples=lambda make: [make((3, 3))], reference=lambda a: a)


FUNCTION = spec_of(lambda xp, a: a)


def sample_of(*numbers: float, label: str = "drawn", **fields: Any) -> Sample:
    return Sample((HostArray(np.array(numbers, np.float32)),), {}, label, **fields)


# ------------------------------------------------------------------------------------------------ what checks apply to


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(of_op(ops.exp), (True, False, False), id="an op"),
        pytest.param(of_op(ops.copy), (True, False, True), id="an op that moves its input"),
        pytest.param(of_op(ops.qr), (False, False, False), id="an op of several results"),
        pytest.param(FUNCTION, (False, True, False), id="a function"),
    ],
)
def test_ops_functions_and_ops_that_move_their_input(spec: OpSpec, expected: Any) -> None:
    assert (is_op(spec), is_function(spec), moves(spec)) == expected


def test_spec_has_samples_of_some_kinds() -> None:
    spec = spec_of(lambda xp, a: a, samples=lambda make: [make(4), Sample((make(0),), kind="empty")])

    assert [has(kind)(spec) for kind in ("empty", "scalar", "values")] == [True, False, True]  # type: ignore[arg-type]


def test_check_needs_a_place_in_the_order() -> None:
    def check_nothing_known(spec: Any, device: Any) -> None:
        """Nothing."""

    with pytest.raises(SpecError, match=r"'nothing_known' has no place .*; add it to CHECK_NAMES in cuassay"):
        check()(check_nothing_known)
    assert "nothing_known" not in REGISTERED


def test_check_is_registered_with_what_its_function_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "REGISTERED", {})

    def check_values(spec: Any, device: Any, dtype: Any) -> None:
        """Values."""

    def check_lists(spec: Any, device: Any) -> None: ...

    applies = lambda spec: spec is FUNCTION  # noqa: E731
    assert check(applies, needs=["streams"], dtypes=["float32"])(check_values) is check_values
    assert check()(check_lists) is check_lists
    values, lists = execution.REGISTERED.values()
    assert values == Check("values", "Values.", check_values, applies, ("streams",), True, ("float32",))
    assert lists == Check("lists", "", check_lists, execution._always, (), False, ())
    assert [*execution.REGISTERED] == ["values", "lists"]
    assert lists.applies(FUNCTION)


# ------------------------------------------------------------------------------------------------ a run of a check


def made(function: Any) -> Check:
    doc = "The first paragraph,\n    in two lines.\n\n    A second one."
    return Check("values", doc, function, is_function, (), False)


def test_failure_names_the_check_and_the_case() -> None:
    def fails(spec: OpSpec, device: Device) -> None:
        assert isinstance(device, Device)
        raise AssertionError("wrong")

    found = failure(made(fails), FUNCTION, "sim")

    assert found.startswith("wrong\n")
    assert "check: values: The first paragraph, in two lines.\n" in found
    assert "op: given on sim" in found
    assert "A second one" not in found


def test_check_that_the_spec_opts_out_of_is_skipped() -> None:
    def fails(spec: OpSpec, device: Device) -> None:
        raise AssertionError("called")

    spec = spec_of(lambda xp, a: a, without={"values": "it draws"})

    with pytest.raises(pytest.skip.Exception, match="given opts out of values: it draws"):
        made(fails)(spec, "cpu")


@pytest.mark.parametrize(("leaks", "is_found"), [(0, False), (1, False), (2, True)])
def test_memory_that_two_runs_leave_in_use_is_a_leak(leaks: int, is_found: bool) -> None:
    calls: list[Device] = []

    def leaking(spec: OpSpec, device: Device) -> None:
        calls.append(device)
        if len(calls) <= leaks:
            raise LeakError("4 bytes are in use")

    found = failure(made(leaking), FUNCTION, "cpu")

    assert found.startswith("4 bytes are in use; a second run of the check leaked again, so this is no") is is_found
    assert len(calls) == 1 + bool(leaks)


def test_signalling_nan_does_not_warn_in_a_check() -> None:
    made(lambda spec, device: np.float32(np.inf) - np.float32(np.inf))(FUNCTION, "cpu")


def test_filled_sample_is_named_with_its_numbers() -> None:
    def failing(fn: Any) -> str:
        def check_filled() -> None:
            with filled_from(spec_of(fn, lambda a: a), CPU, FLOAT32, sample_of(1), sample_of(2, label="drawn, two")):
                raise AssertionError("wrong")

        return failure(check_filled)

    assert failing(lambda xp, a: a).startswith("right for the sample's own numbers, wrong for others: two\n")
    assert "right for the sample's own numbers" not in failing(lambda xp, a: a + 1)
    assert "sample: drawn, two" in failing(lambda xp, a: a + 1)


# ------------------------------------------------------------------------------------------------ refused calls


def raising(error: Exception) -> Any:
    def fn(xp: Any, a: Any) -> Any:
        if a.size == 2:
            raise error
        return a

    return fn


@pytest.mark.parametrize(
    ("error", "runs", "is_taken"),
    [
        (ValueError("no"), False, False),
        (TypeError("no"), False, False),
        (IndexError("no"), False, False),
        (ZeroDivisionError("no"), False, False),
        (FloatingPointError("no"), False, False),
        (RuntimeError("no"), False, False),
        (KeyError("no"), False, False),
        (AssertionError("no"), False, False),
        (RaceError("no"), True, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_call_that_the_function_refuses_on_the_host_is_not_taken(error: Exception, runs: bool, is_taken: bool) -> None:
    spec = spec_of(raising(error), lambda a: a)

    assert runs_on_host(spec, sample_of(1, 2)) is runs
    assert is_safely_taken(spec, sample_of(1, 2)) is is_taken
    assert runs_on_host(spec, sample_of(1))
    assert is_safely_taken(spec, sample_of(1))


def test_call_that_breaks_on_the_host_is_taken() -> None:
    """A function for one library may break in any way on the host's arrays."""
    spec = spec_of(lambda xp, a: getattr(a, "data_ptr"), lambda a: a)  # noqa: B009  an attribute of torch's tensors

    assert runs_on_host(spec, sample_of(1, 2))


def test_op_runs_on_the_host_and_overflow_is_no_error() -> None:
    assert runs_on_host(of_op(ops.exp), sample_of(1, 2))
    with np.errstate(all="raise"):
        assert runs_on_host(spec_of(lambda xp, a: xp.exp(a)), sample_of(1e4))


@pytest.mark.parametrize(
    "error", [ValueError("no"), RuntimeError("no"), AssertionError("no"), SpecError("a list of nothing")], ids=repr
)
def test_call_that_the_reference_refuses_is_not_taken(error: Exception) -> None:
    refusing = raising(error)
    spec = spec_of(lambda xp, a: a, lambda a: refusing(np, a))

    assert not is_safely_taken(spec, sample_of(1, 2))
    assert refusal_of(spec, sample_of(1, 2)) is error
    assert is_safely_taken(spec, sample_of(1))
    assert refusal_of(spec, sample_of(1)) is None


# ------------------------------------------------------------------------------------------------ other numbers


def test_arrays_are_overwritten_one_after_another() -> None:
    sample = Sample(([MAKE(2), MAKE(3)], 5.0, HostArray(np.arange(3.0))))
    arrays = [[np.zeros(2, np.float32), np.zeros(3, np.float32)], 7.0, np.zeros(3)]

    overwrite(CPU, arrays, sample)

    assert all((one == other.values).all() for one, other in zip(arrays[0], sample.args[0], strict=True))
    assert (arrays[1], arrays[2].tolist()) == (7.0, [0, 1, 2])
    with pytest.raises(ValueError, match="zip"):
        overwrite(CPU, arrays[:1], sample)


def test_arrays_of_another_device_are_overwritten() -> None:
    sample = sample_of(1, 2)
    arrays, _ = sample_of(5, 6).on("sim")

    overwrite(Device("sim"), arrays, sample)

    assert to_host(arrays[0]).tolist() == [1, 2]


def test_numbers_are_turned_and_free_floats_halved() -> None:
    free = HostArray(np.array([4, 2, 6], np.float32), layout="strided", is_free=True)
    ranged = HostArray(np.array([4, 2, 6], np.float32), span=(2, 6))
    integers, ordered = HostArray(np.array([4, 2, 6]), is_free=True), HostArray(np.array([1, 2, 3]))
    found = turned(Sample((free, [ranged, integers], ordered, np.array([3.0, 1]), 2), {"axis": 0}, "drawn"))

    assert found.args[0].values.tolist() == [3, 2, 1]
    assert (found.args[0].layout, found.args[0].is_free, found.args[0].dtype) == ("contiguous", True, np.float32)
    assert [one.values.tolist() for one in found.args[1]] == [[6, 4, 2], [6, 4, 2]]
    assert (found.args[2].values.tolist(), found.args[3].values.tolist(), found.args[4]) == ([1, 2, 3], [1, 3], 2)
    assert (found.kwargs, found.label) == ({"axis": 0}, "drawn, new numbers")


@pytest.mark.parametrize("others", [(), (2,), ([HostArray(np.ones(2))],)], ids=["alone", "a number", "a list"])
def test_sorted_numbers_are_turned_if_there_is_no_other_array(others: Any) -> None:
    found = turned(Sample((HostArray(np.array([1, 2, 3])), *others)))

    assert found.args[0].values.tolist() == [3, 1, 2]


# ------------------------------------------------------------------------------------------------ written inputs


def writing(xp: Any, a: Any) -> Any:
    if a.size == 3:
        a[0] = 7
    return a * 2


def run_three(without: Any = (), plain: Sample | None = None) -> str:
    spec = spec_of(writing, lambda a: a * 2, without=dict.fromkeys(without, "in place"))
    return failure(run_unchanging, spec, CPU, sample_of(1, 2, 3, label="three"), "it writes there", plain)


def test_function_that_writes_an_input_is_found() -> None:
    assert run_three().startswith("it writes there\n  input 0 (a): ")
    assert "sample: three" in run_three()
    assert run_three(plain=sample_of(1)).startswith("it writes there\n")
    assert run_three(plain=sample_of(4, 5, 6)).startswith("the function writes an input\n")
    assert not run_three(["inputs_unchanged"])


def test_result_of_a_function_that_writes_nothing_is_returned() -> None:
    with np.errstate(all="raise"):
        found = run_unchanging(spec_of(lambda xp, a: xp.exp(a)), CPU, sample_of(1e4, 0), "")
        assert found.tolist() == run_sample(spec_of(lambda xp, a: xp.exp(a)), CPU, sample_of(1e4, 0)).tolist()
    assert found.tolist() == [np.inf, 1]
    assert run_unchanging(of_op(ops.exp), CPU, sample_of(0), "").tolist() == [1]


# ------------------------------------------------------------------------------------------------ comparison


def refusing_two(a: Any) -> Any:
    if a.size == 2:
        raise ValueError("two numbers")
    return a * 2


def refusing_two_everywhere(xp: Any, a: Any) -> Any:
    return refusing_two(a)


def verified(fn: Any, samples: list[Sample], **fields: Any) -> str:
    return failure(verify, spec_of(fn, refusing_two), CPU, FLOAT32, samples, **fields)


def test_each_sample_is_compared() -> None:
    wrong = lambda xp, a: a * 2 + (a.size == 3)  # noqa: E731

    assert not verified(wrong, [sample_of(1), sample_of(1, 2, 3, 4)])
    assert "sample: three" in verified(wrong, [sample_of(1), sample_of(1, 2, 3, label="three")])
    assert verified(lambda xp, a: a * 2, [sample_of(1)], run=lambda *given: run_sample(*given) + 1)


def test_sample_that_the_reference_refuses_must_be_refused() -> None:
    found = verified(lambda xp, a: a * 2, [sample_of(1, 2, label="two"), sample_of(1)])

    assert found.startswith("the reference refuses these inputs (ValueError: two numbers); cpu:0 gives array([2., 4.]")
    assert "sample: two" in found
    assert not verified(refusing_two_everywhere, [sample_of(1, 2), sample_of(1)])
    assert not verified(refusing_two_everywhere, [sample_of(1), sample_of(1, 2)])


def test_samples_that_are_all_refused_are_skipped() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"given refuses these inputs itself, on every .*: two numbers"):
        verified(refusing_two_everywhere, [sample_of(1, 2), sample_of(3, 4)])
    assert not verified(refusing_two_everywhere, [])


def test_declared_sample_must_be_accepted_in_some_dtype() -> None:
    def in_float64(a: Any) -> Any:
        if a.dtype.kind == "i":
            raise ValueError("no integers")
        return a * 2

    declared = {"samples": lambda make: [make(1), make(2)], "dtypes": ("float32", "int32")}
    in_all, in_one = (
        OpSpec(fn=lambda xp, a, of=of: of(a), reference=of, **declared) for of in (refusing_two, in_float64)
    )
    tried = [list(spec.draw(0, "int32", "values")) for spec in (in_all, in_one)]

    found = failure(verify, in_all, CPU, np.dtype("int32"), tried[0], is_declared=True)
    assert "both reject this sample of samples= in every dtype, so it tests nothing (ValueError: two numbers)" in found
    assert "sample: 1: shape 2" in found
    with pytest.raises(pytest.skip.Exception, match="no integers"):
        verify(in_one, CPU, np.dtype("int32"), tried[1], is_declared=True)
    verify(in_all, CPU, np.dtype("int32"), tried[0])


def test_ratio_of_the_error_to_its_tolerance_is_kept() -> None:
    told: dict[str, Any] = {}
    with collecting(told):
        verified(lambda xp, a: a * np.float32(2 + 2.0**-22), [sample_of(1)])

    assert 0 < told["headroom"] < 1


def test_declared_error_must_be_raised() -> None:
    def call(error: Exception | None) -> Any:
        def raise_it() -> str:
            if error is not None:
                raise error
            return "a result"

        return raise_it

    assert not failure(must_raise, call(ArgumentError("no (axis)")), ArgumentError, r"\(axis")
    assert failure(must_raise, call(ArgumentError("no (axis)")), ArgumentError, "(axis)?=").endswith("no (axis)")
    assert failure(must_raise, call(ArgumentError("no (axis)")), ArgumentError, "no (axis)").endswith(
        "ArgumentError does not say 'no (axis)': no (axis); match is a regular expression: give re.escape(...)"
    )
    assert failure(must_raise, call(TypeError("no")), ArgumentError, "no").startswith(
        "ArgumentError was declared, TypeError was raised: no; correct one"
    )
    assert failure(must_raise, call(None), ArgumentError, "no").startswith(
        "ArgumentError ('no') was not raised; got 'a"
    )


def test_the_first_of_several_refusals_is_named() -> None:
    def refusing(a: Any) -> Any:
        raise ValueError(f"{a.size} numbers")

    spec = spec_of(lambda xp, a: refusing(a), lambda a: a if a.size == 4 else refusing(a), dtypes=("float64",))

    with pytest.raises(pytest.skip.Exception, match="ValueError: 2 numbers"):
        verify(spec, CPU, FLOAT32, [sample_of(1, 2), sample_of(1, 2, 3)])


def test_a_refused_sample_whose_label_names_its_dtype_may_be_meant_for_others() -> None:
    def reference(a: Any) -> Any:
        if a.dtype.kind == "i":
            raise ValueError("floats only")
        return a * 2

    spec = spec_of(
        lambda xp, a: reference(a), reference, lambda make: [Sample((make(3),), label=f"numbers of {make.dtype}")],
        dtypes=("float32", "int32"),
    )  # fmt: skip

    with pytest.raises(pytest.skip.Exception, match="floats only"):
        verify(spec, CPU, np.dtype("int32"), list(spec.draw(1, "int32", "values")), is_declared=True)
