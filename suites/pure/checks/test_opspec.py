"""Declaring: what a spec fills in by itself, and what it refuses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cuassay import from_host, ops, set_default_precision
from cuassay.core.precision import default_precision
from cuassay.devices.sim import BACKEND
from cuassay.errors import CapabilityNameError, SpecError
from cuassay.ops import Call, interpose
from cuassay.testing import ErrorInput, KnownFailure, OpSpec, Sample, Tolerance, Work, conformance
from cuassay.testing.check_names import AROUND_FORMULA, CHECK_NAMES, OF_DEVICES, OF_OTHER_KIND
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.opspec import REDUCED
from cuassay.testing.own_specs import own_specs
from cuassay.testing.tolerance import BY_CLASS, FUNCTION


def double(xp: Any, a: Any) -> Any:
    return a + a


def test_a_function_alone_is_a_spec() -> None:
    spec = OpSpec(fn=double)

    assert (spec.name, spec.dtypes) == ("double", ("float32", "float64"))
    assert spec.kinds == {"values", "empty", "scalar", "extremal"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({}, "either fn= or op=; got neither", id="nothing"),
        pytest.param({"fn": double, "op": ops.add}, "got both", id="both"),
        pytest.param({"op": ops.add}, "has no reference", id="op-without-reference"),
        pytest.param({"fn": double, "dtypes": ("float33",)}, "'float33' is not a dtype", id="unknown-dtype"),
        pytest.param({"op": ops.exp, "reference": np.exp, "dtypes": ("int8",)}, "not declared", id="undeclared-dtype"),
        pytest.param({"fn": lambda xp, a, b, c: a}, "takes 3 arrays", id="no-samples-for-three"),
        pytest.param({"fn": lambda a: a}, "takes no array by position; its first parameter is xp", id="no-namespace"),
        pytest.param({"fn": double, "samples": [1]}, r"samples= takes a function; got \[1\]", id="samples-as-list"),
        pytest.param({"fn": double, "tolerance": 1e-5}, r"write Tolerance\(ulps=...\)", id="tolerance-as-number"),
        pytest.param({"op": double}, "op= takes a declared operation", id="op-undeclared"),
        pytest.param({"fn": double, "known_failures": "x"}, "several KnownFailure", id="failures-as-text"),
        pytest.param({"fn": double, "known_failures": ["x"]}, "several KnownFailure", id="texts-as-failures"),
        pytest.param(
            {"fn": double, "error_inputs": lambda make: [(make(3), ValueError, "x")]},
            r"yields ErrorInput\(sample, error, match\)",
            id="error-inputs-as-tuples",
        ),
        pytest.param({"fn": double, "result_dtype": "float33"}, "'float33' is not a dtype", id="unknown-result"),
        pytest.param(
            {"op": ops.exp, "reference": np.exp, "result_dtype": "int8"}, "schema determines", id="op-with-result"
        ),
        pytest.param(
            {"fn": double, "result_dtype": lambda a, b: a},
            "its result_dtype= raises TypeError.*; it is called with .*: write result_dtype=lambda",
            id="result-raises",
        ),
        pytest.param(
            {"fn": double, "result_dtype": lambda a: "flaot32"},
            "result_dtype= gives 'flaot32' for float32: 'flaot32' is not a dtype.*did you mean 'float32'",
            id="unknown-result-of-function",
        ),
        pytest.param({"fn": lambda xp, *arrays: arrays[0]}, "takes any number of arrays; .* samples=", id="stars"),
        pytest.param({"fn": np.sum}, r"its first parameter is xp, the array namespace \(here 'a'\)", id="of-numpy"),
        pytest.param({"dtype": "float32"}, "OpSpec has no field 'dtype' .did you mean 'dtypes'", id="misspelt-field"),
        pytest.param(
            {"fn": double, "has_default_samples": True},
            "OpSpec has no field 'has_default_samples'; fields: .*without, like$",
            id="field-that-is-derived",
        ),
        pytest.param(
            {"fn": double, "samples": lambda make: [make(3, min=3)]},
            r"^double: make has no argument 'min'; it takes a shape, low= and high= .*, dtype= and layout=$",
            id="unknown-argument-of-make",
        ),
        pytest.param(
            {"fn": double, "samples": lambda make: [make(3, hihg=3)]},
            r"^double: make has no argument 'hihg' \(did you mean 'high'\?\); it takes",
            id="misspelt-argument-of-make",
        ),
        pytest.param(
            {"fn": double, "samples": lambda make: [make(3, dtype="bol")]},
            r"^double: make: 'bol' is not a dtype that cuassay knows \(did you mean 'bool'\?\); give one of",
            id="misspelt-dtype-of-make",
        ),
        pytest.param(
            {"fn": double, "samples": lambda make: [make.full(3, 1, dtype="flaot32")]},
            r"^double: make: 'flaot32' is not a dtype .*did you mean 'float32'",
            id="misspelt-dtype-of-full",
        ),
        pytest.param({"fn": double, "samples": lambda make: []}, "no sample of kind 'values'", id="no-samples"),
        pytest.param({"fn": lambda xp, a: (a, a > 0)}, "gives a tuple of float64, bool; .*of one kind", id="two-kinds"),
        pytest.param({"fn": lambda xp, a: []}, "gives a list of nothing; a spec compares", id="an-empty-list"),
        pytest.param({"fn": lambda xp, a: [a, None]}, "gives a list of float64, NoneType; a spec", id="a-list-of-none"),
        pytest.param({"fn": lambda: 1}, "takes no array by position", id="no-parameter"),
        pytest.param({"fn": lambda xp, a: a.nothing()}, "its fn raises AttributeError.* reference=", id="fn-raises"),
        pytest.param(
            {"fn": double, "reference": lambda a, b: a},
            "its reference= raises TypeError.*; it gets exactly a sample's arguments",
            id="reference-raises",
        ),
        pytest.param(
            {"fn": double, "samples": lambda make: make(3)},
            r"its samples= raises TypeError.*; it is called with .* write samples=lambda make: \[make",
            id="samples-raise",
        ),
        pytest.param(
            {"fn": double, "unclaimed": {"cpu": ("float33",)}}, "'float33' is not a dtype", id="unknown-unclaimed"
        ),
        pytest.param({"fn": double, "work": lambda a: 3}, "work= gives a Work; got 3", id="work-as-number"),
        pytest.param({"fn": double, "work": lambda: 3}, "its work= raises TypeError", id="work-raises"),
        pytest.param({"fn": lambda xp, a: None}, "gives None; a spec compares one array", id="no-result"),
        pytest.param({"fn": double, "reference": lambda a: None}, "the reference of double gives None", id="no-answer"),
        pytest.param(
            {"fn": double, "samples": lambda make: [np.ones(3)]},
            "claims float32, but its samples are arrays of float64; make them",
            id="samples-of-one-dtype",
        ),
        pytest.param({"fn": double, "known_failures": (KnownFailure(reason=" "),)}, "without a reason", id="no-reason"),
        pytest.param(
            {"fn": double, "without": ("aliasing",)}, r"maps checks to reasons; got \('aliasing',\)", id="no-mapping"
        ),
        pytest.param(
            {"fn": double, "like": {"cpu": "exp"}}, "is a function, and like= is for ops", id="function-like-op"
        ),
        pytest.param(
            {"op": ops.exp, "reference": np.exp, "like": {"cpu": "xep"}},
            "'xep' for 'cpu'; name another op",
            id="like-none",
        ),
        pytest.param(
            {"op": ops.exp, "reference": np.exp, "like": {"cdua": "log"}}, "like= names 'cdua'", id="like-nowhere"
        ),
        pytest.param(
            {"fn": double, "known_failures": (KnownFailure(reason="x", dtype="int8"),)},
            "known_failures= names int8, which dtypes= does not claim; remove the entry, or add int8 to dtypes=",
            id="unclaimed",
        ),
        pytest.param(
            {"fn": double, "known_failures": (KnownFailure(reason="x", kind="cuda:0"),)},
            "'cuda:0', which is not a kind of device; write kind='cuda'",
            id="kind-with-index",
        ),
        pytest.param(
            {"fn": double, "known_failures": (KnownFailure(reason="x", kind="cdua"),)},
            "write kind='cuda'",
            id="misspelt-kind",
        ),
        pytest.param(
            {"fn": double, "known_failures": (KnownFailure(reason="x", kind="my gpu"),)},
            "give the name of a kind",
            id="no-kind",
        ),
        pytest.param(
            {"fn": double, "known_failures": (KnownFailure(reason="x", check="test_values"),)},
            "write check='values'",
            id="check-as-test",
        ),
        pytest.param(
            {"fn": double, "known_failures": (KnownFailure(reason="x", check="vaules"),)},
            "known failure of check='vaules'; did you mean 'values'",
            id="misspelt-check",
        ),
        pytest.param(
            {"fn": double, "unclaimed": {"cdua": "float32"}},
            "unclaimed= names 'cdua', which is not a kind of device; write 'cuda'",
            id="misspelt-kind-unclaimed",
        ),
        pytest.param({"fn": double, "unclaimed": {"gpu": "float32"}}, "names 'gpu'.* write 'cuda'", id="gpu-unclaimed"),
        pytest.param(
            {"fn": double, "known_failures": (KnownFailure(reason="x", kind="gpu"),)},
            "write kind='cuda'",
            id="gpu-fails",
        ),
        pytest.param({"fn": double, "supports_grad": True}, "supports_grad= is for ops", id="gradient-of-function"),
        pytest.param(
            {"fn": double, "unclaimed": {"cuda:0": "float32"}},
            "unclaimed= names 'cuda:0', which is not a kind of device; write 'cuda'",
            id="unclaimed-with-index",
        ),
        pytest.param(
            {"fn": double, "dtypes": ("float32",), "unclaimed": {"sim": ("float16",)}},
            "unclaimed= names float16 for sim, which dtypes= does not claim",
            id="unclaimed-anyway",
        ),
    ],
)
def test_a_spec_that_says_nothing_testable_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        OpSpec(**arguments)


def test_names_that_are_near_none_are_let_stand() -> None:
    known = KnownFailure(reason="x", kind="elsewhere", check="my_own_property")

    spec = OpSpec(fn=double, known_failures=(known,), unclaimed={"elsewhere": "float32"})

    assert spec.known_failures == (known,)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: make(OpSpec, double),
            r"OpSpec takes its fields by name; got \(<function double .*; write OpSpec\(fn=\.\.\.",
        ),
        (
            lambda: make(KnownFailure, reason="x", checks="values"),
            r"no field 'checks' \(did you mean 'check'\?\); fields: ",
        ),
        (lambda: make(Work, byte=3), "Work has no field 'byte' .did you mean 'bytes'"),
        (
            lambda: make(Tolerance, rtol=1e-3),
            "Tolerance has no field 'rtol'; ulps= counts in .* rtol=1e-5 in float32 is ulps=84; fields: ulps, growth",
        ),
        (lambda: make(Sample, (), kwarg={}), "Sample has no field 'kwarg' .did you mean 'kwargs'"),
        (lambda: make(conformance, fn=double), r"write conformance\(OpSpec\(fn=.*\)\)"),
        (lambda: make(conformance), "conformance takes an OpSpec; got nothing"),
    ],
    ids=["by-position", "failure", "work", "tolerance", "sample", "conformance", "nothing"],
)
def test_fields_that_there_are_not_are_told(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        declare()


def make(declared: Any, *given: Any, **fields: Any) -> Any:
    """What a type checker would refuse."""
    return declared(*given, **fields)


def test_dtypes_are_named_by_objects_and_scalar_types_too() -> None:
    assert OpSpec(fn=double, dtypes=(np.float32, np.dtype("int8"))).dtypes == ("float32", "int8")
    assert OpSpec(fn=double, dtypes=np.float16).dtypes == ("float16",)
    assert OpSpec(fn=double, result_dtype=np.float32).result_dtype == "float32"
    known = KnownFailure(reason="x", dtype=np.dtype("int8"))
    assert OpSpec(fn=double, dtypes=np.int8, known_failures=[known]).known_failures[0].covers("cpu", "int8", "values")


def test_arrays_of_the_user_s_own_may_have_the_dtype_under_test() -> None:
    spec = OpSpec(fn=double, samples=lambda make: [np.ones(3, make.dtype)])

    assert [sample.args[0].dtype for sample in spec.draw(0, "float64")] == [np.float64]


def test_an_unnamed_function_is_named_after_its_variable_once() -> None:
    unnamed, named = OpSpec(fn=lambda xp, a: a), OpSpec(fn=double)
    for spec in (unnamed, named):
        spec.name_after("test_norm")
        spec.name_after("test_other")

    assert (unnamed.name, named.name) == ("norm", "double")


def test_one_name_may_stand_alone() -> None:
    spec = OpSpec(fn=double, dtypes="uint8", requires="graphs", unclaimed={"sim": "uint8"})

    assert (spec.dtypes, spec.requires, spec.unclaimed) == (("uint8",), ("graphs",), {"sim": ("uint8",)})


def test_a_function_is_not_tested_in_what_it_does_not_claim_on_a_kind() -> None:
    spec = OpSpec(fn=double, dtypes=("int8", "uint8"), unclaimed={"sim": "uint8"})

    assert spec.why_unsupported("sim", "uint8") == "sim:0: double does not claim uint8 there"
    assert [spec.why_unsupported(*case) for case in (("sim", "int8"), ("cpu", "uint8"))] == [None, None]


def test_an_unknown_requirement_is_refused() -> None:
    with pytest.raises(CapabilityNameError, match="'graps'"):
        OpSpec(fn=double, requires=("graps",))


@pytest.mark.parametrize(
    ("known", "case", "covered"),
    [
        (KnownFailure(reason="x"), ("cpu:0", "float32", "values"), True),
        (KnownFailure(reason="x", kind="cuda"), ("cpu:0", "float32", "values"), False),
        (KnownFailure(reason="x", kind="cuda", check="out"), ("cuda:1", "float32", "out"), True),
        (KnownFailure(reason="x", kind="cuda", check="out"), ("cuda:1", "float32", "values"), False),
        (KnownFailure(reason="x", dtype="float64"), ("cpu", "float32", "values"), False),
        (KnownFailure(reason="x", kind="elsewhere"), ("cpu", "float32", "values"), False),
    ],
)
def test_a_known_failure_covers_what_it_names(known: KnownFailure, case: tuple[str, str, str], covered: bool) -> None:
    spec = OpSpec(fn=double, known_failures=(known,))

    assert (spec.known_failure(*case) is known) is covered


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("spec", own_specs(), ids=lambda spec: spec.name)
def test_our_specs_claim_what_runs(spec: OpSpec, device: str) -> None:
    assert set(spec.claims(device)) == {d for d in spec.dtypes if spec.why_unsupported(device, d) is None}


@pytest.mark.parametrize(
    ("check", "kind", "left"),
    [
        ("values", "cpu", False),
        ("layouts", "cpu", True),
        ("extremal", "cpu", False),
        ("values", "sim", False),
        ("extremal", "sim", True),
        ("layouts", "cuda", False),
        ("graph_replay", "sim", True),
    ],
)
def test_an_op_leaves_checks_of_shared_code_to_the_one_it_is_like(check: str, kind: str, left: bool) -> None:
    spec = OpSpec(op=ops.log, reference=np.log, like={"cpu": "exp", "sim": "cpu"})

    assert spec.leaves_to_other(check, kind) is left


def test_what_the_host_cannot_run_is_checked_where_the_host_s_code_runs() -> None:
    spec = OpSpec(op=ops.log, reference=np.log, like={"sim": "cpu"})

    assert not spec.leaves_to_other("graph_replay", "sim")
    assert spec.leaves_to_other("layouts", "sim")


def test_the_checks_that_are_left_to_others_exist() -> None:
    assert set(CHECK_NAMES) >= AROUND_FORMULA | OF_OTHER_KIND | OF_DEVICES
    assert not AROUND_FORMULA & OF_OTHER_KIND


def test_what_our_ops_are_like_is_tested_in_full() -> None:
    specs = {spec.name: spec for spec in own_specs()}
    pairs = [(spec, kind, other) for spec in specs.values() for kind, other in spec.like.items()]

    assert pairs
    assert not [str(pair) for pair in pairs if pair[2] in specs and pair[1] in specs[pair[2]].like]
    assert not [str(pair) for pair in pairs if pair[2] not in specs and pair[1:] != ("sim", "cpu")]


def test_every_declared_op_has_a_spec() -> None:
    missing = {op.name for op in ops.ops()} - {spec.name for spec in own_specs()}

    assert not missing, f"declare an OpSpec for {', '.join(sorted(missing))} in backend/cuassay/testing/specs"


@pytest.mark.parametrize("spec", own_specs(), ids=lambda spec: spec.name)
def test_every_spec_has_something_to_measure_and_counts_its_work(spec: OpSpec) -> None:
    samples = list(spec.draw_bench(1, "float32" if "float32" in spec.dtypes else spec.dtypes[0], REDUCED))
    work = [spec.least_work(sample) for sample in samples]

    assert all(isinstance(one, Work) and one.bytes > 0 for one in work)
    assert work


def test_the_work_of_a_function_is_every_array_once() -> None:
    spec = OpSpec(fn=double)

    assert spec.least_work(Sample((np.ones((4, 8), np.float32),))) == Work(bytes=2 * 4 * 8 * 4)


def test_the_reference_computes_wide_from_exactly_the_given_numbers() -> None:
    spec = OpSpec(fn=double, dtypes=("float16",))

    answer = spec.expected(Sample((np.array([65_504], np.float16),)))

    assert (answer.dtype, answer[0]) == (np.float64, 131_008.0)


def test_an_unsupported_dtype_has_a_reason_in_words() -> None:
    spec = OpSpec(fn=double, requires=("graphs",))

    assert "no graphs: work runs when it is called" in str(spec.why_unsupported("cpu", "float32"))


def test_a_dtype_that_one_kind_does_not_claim_others_do() -> None:
    spec = OpSpec(fn=double, unclaimed={"sim": ("float64",)})

    assert (spec.claims("cpu"), spec.claims("sim")) == (("float32", "float64"), ("float32",))


def test_an_error_of_an_op_grows_with_no_terms_and_one_of_a_function_with_all() -> None:
    sample = Sample((np.full(6, 2.0, np.float32),))

    of_op = OpSpec(op=ops.exp, reference=np.exp).scale(sample, np.ones(6))
    of_function = OpSpec(fn=double).scale(sample, np.ones(6))

    assert [(float(size.max()), terms) for size, terms in (of_op, of_function)] == [(1.0, 1), (2.0, 6)]


def test_a_magnitude_may_divide_by_zero() -> None:
    spec = OpSpec(op=ops.exp, reference=np.exp, magnitude=lambda a: 1 / a)

    size, _ = spec.scale(Sample((np.array([0, -2], np.float32),)), np.ones(2))

    assert size.tolist() == [np.inf, 0.5]


@pytest.mark.parametrize(
    "spec", [spec for spec in own_specs() if spec.op and not spec.op.schema.outputs], ids=lambda spec: spec.name
)
def test_an_op_that_writes_its_parameters_is_given_copies(spec: OpSpec) -> None:
    for sample in spec.draw(0, spec.dtypes[0], "values"):
        args, kwargs = sample.host()
        given = [(array, array.copy()) for array in arrays_in([*args, *kwargs.values()])]

        spec.run("cpu", args, kwargs)

        assert all(np.array_equal(array, before, equal_nan=True) for array, before in given)


def test_of_lists_of_two_arrays_each_list_begins_further_into_its_memory() -> None:
    (spec,) = (spec for spec in own_specs() if spec.name == "fused_adam_")
    written = ("params", "exp_avgs", "exp_avg_sqs")
    found: list[list[int]] = []

    def watch(call: Call, proceed: Callable[[Call], Any]) -> Any:
        if call.op is spec.op and len(call.arguments["params"]) == 2:
            found.append([begin(call.arguments[name][0]) for name in written])
        return proceed(call)

    with interpose(watch):
        for sample in spec.draw(0, spec.dtypes[0], "values"):
            spec.run("cpu", *sample.host())

    assert found
    assert all(0 == places[0] < places[1] < places[2] for places in found)


def arrays_in(values: Iterable[Any]) -> Iterator[np.ndarray[Any, Any]]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list):
            yield from arrays_in(value)


def begin(array: np.ndarray[Any, Any]) -> int:
    """Elements between the memory's beginning and the array's."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return (array.ctypes.data - base.ctypes.data) // array.itemsize


def test_an_op_says_itself_whether_it_is_deterministic() -> None:
    assert OpSpec(op=ops.exp, reference=np.exp, deterministic=False).deterministic
    assert not OpSpec(fn=double, deterministic=False).deterministic


def test_a_function_may_refuse_a_sample_and_an_op_may_not() -> None:
    def picky(xp: Any, a: Any) -> Any:
        if not a.size:
            raise ValueError("nothing is given")
        return a

    empty, some = (Sample((np.ones(size, np.float32),)) for size in (0, 2))
    spec = OpSpec(fn=picky)

    assert (str(spec.refusal(empty)), spec.refusal(some)) == ("nothing is given", None)
    assert OpSpec(op=ops.exp, reference=np.exp).refusal(some) is None


def test_a_function_without_a_reference_is_its_own() -> None:
    specs = OpSpec(fn=double), OpSpec(fn=double, reference=lambda a: 2 * a), OpSpec(op=ops.exp, reference=np.exp)

    assert [spec.is_its_own_reference for spec in specs] == [True, False, False]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"fn": lambda a, w: a * w, "reference": lambda a, w: a * w},
            r"fn takes \(a, w\), as reference= does; .* fn=lambda xp, a, w",
        ),
        (
            {
                "fn": lambda a, w, axis=-1: a,
                "reference": lambda a, w, axis=-1: a,
                "samples": lambda make: [(make(3), make(3))],
            },
            r"fn takes \(a, w\), as reference= does; .* fn=lambda xp, a, w",
        ),
        ({"fn": lambda xp, a: a, "reference": lambda xp, a: a}, "a reference is called without xp: write reference="),
        ({"fn": lambda xp, a: a, "dtypes": ("fp16",)}, "did you mean 'float16'"),
        (
            {"fn": lambda xp, a: a, "samples": lambda make: [make((2, 3))], "reference": lambda a: a.tolist()},
            "omit .tol",
        ),
        (
            {"fn": lambda xp, a: a, "samples": lambda make: [make(5, low=5, high=2)]},
            "low=5 is above high=2; exchange them",
        ),
        (
            {"fn": lambda xp, a: a, "samples": lambda make: [make(4, 33)]},
            r"one int or tuple; got make\(4, 33\); write make\(\(4, 33\)\)",
        ),
        (
            {"fn": lambda xp, a: a, "samples": lambda make: [make((4, 33), 0.0, 1.0)]},
            r"got make\(\(4, 33\), 0.0, 1.0\); give low=, high=, dtype= and layout= by name",
        ),
        (
            {
                "fn": lambda xp, i: i,
                "samples": lambda make: [make(999, dtype="int64", low=0, high=9)],
                "reference": lambda i: np.zeros(9)[i],
            },
            "for indices into N places write make",
        ),
    ],
)
def test_usual_mistakes_are_told_with_what_to_write(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        OpSpec(name="mistaken", **declared)


def test_a_reference_is_asked_once_about_a_sample() -> None:
    asked: list[int] = []

    def reference(a: Any) -> Any:
        asked.append(a.size)
        return a * 2

    spec = OpSpec(fn=lambda xp, a: a * 2, reference=reference, samples=lambda make: [make(3), make(4)])
    first, second = spec.draw(0, "float32")
    asked.clear()

    answers = [spec.expected(sample) for sample in (first, second, first, second)]

    assert asked == [3, 4]
    assert spec.refusal(first) is None
    assert answers[0] is answers[2]
    assert not answers[0].flags.writeable


def test_a_function_that_is_its_own_reference_is_called_each_time() -> None:
    """It may keep something, which a second call shows."""
    calls: list[int] = []
    spec = OpSpec(fn=lambda xp, a: (calls.append(1), a * 2)[1], samples=lambda make: [make(3)])
    (sample,) = spec.draw(0, "float32")
    calls.clear()

    spec.expected(sample)
    spec.expected(sample)

    assert len(calls) == 2


def test_a_function_has_no_declared_operation() -> None:
    with pytest.raises(SpecError, match="double is a function: it has no schema, out=, meta or plan; declare it for"):
        _ = OpSpec(fn=double).declared
    assert OpSpec(op=ops.exp, reference=np.exp).declared is ops.exp


def test_a_message_shows_all_arguments_of_a_call() -> None:
    def reference(a: Any, b: Any, **options: Any) -> Any:
        raise TypeError("not so")

    with pytest.raises(SpecError, match=r"exactly a sample's arguments, here an array \(3,\), 2, axis=0, words='xxxx"):
        OpSpec(
            fn=lambda xp, a, b, axis, words: a, reference=reference, name="shown",
            samples=lambda make: [Sample((make(3), 2), {"axis": 0, "words": "x" * 99})],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda: np.seterr(all="raise"), np.geterr),
        (lambda: np.set_printoptions(precision=3), np.get_printoptions),
        (lambda: os.environ.update(CUASSAY_TRIED="1", PATH=""), lambda: dict(os.environ)),
        (lambda: os.environ.pop("CUASSAY_KEPT", ""), lambda: dict(os.environ)),
        (lambda: set_default_precision("tf32"), default_precision),
    ],
    ids=["errors", "printing", "variables", "a variable less", "precision"],
)
@pytest.mark.parametrize("part", ["fn", "samples"])
def test_what_a_function_changes_when_it_is_declared_is_put_back(
    part: str, change: Callable[[], Any], state: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_KEPT", "0")

    def changing(*given: Any) -> Any:
        change()
        changed.append(state())
        return given[-1] if part == "fn" else [given[0](3)]

    before, changed = state(), list[Any]()
    OpSpec(**{"fn": double, "samples": lambda make: [make(3)], part: changing})

    assert changed[0] != before
    assert state() == before


@pytest.mark.parametrize("index", [0, 1])
def test_a_function_runs_while_its_device_is_the_current_one(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    current, met = list[int](), list[int]()

    @contextmanager
    def activate(backend: Any, index: int) -> Iterator[None]:
        current.append(index)
        yield
        current.pop()

    monkeypatch.setattr(type(BACKEND), "activate", activate)
    spec = OpSpec(fn=lambda xp, a: (met.extend(current), a)[1], name="watched")
    with BACKEND.simulated(devices=2, memory=2**20):
        spec.run(f"sim:{index}", (from_host(np.ones(3, np.float32), f"sim:{index}"),), {})

    assert met == [index]


@pytest.mark.parametrize(("flops", "shown"), [(0, None), (7, 7)])
def test_operations_that_are_not_counted_have_no_column(flops: int, shown: int | None) -> None:
    assert Work(bytes=3, flops=flops).columns() == {"bytes": 3, "flops": shown}
    assert Work(bytes=3) == Work(bytes=3, flops=0)


def test_the_bytes_of_a_call_are_read_and_written_once() -> None:
    sample = Sample((np.ones((4, 8), np.float32), 2.0))
    rows = OpSpec(fn=lambda xp, a, b: xp.sum(a, axis=0) * b, name="rows", samples=lambda make: [(make((2, 3)), 2.0)])

    assert rows.touched(sample) == 4 * 8 * 4 + 8 * 4
    assert OpSpec(op=ops.exp, reference=np.exp).touched(Sample(sample.args[:1])) == 2 * 4 * 8 * 4


def on_sim_only(xp: Any, a: Any) -> Any:
    if isinstance(a, np.ndarray):
        raise TypeError("takes arrays of sim")
    return a * 2


@pytest.mark.parametrize("work", [None, lambda a: Work(bytes=2 * a.nbytes)], ids=["by default", "declared"])
def test_work_of_a_function_for_one_device_is_that_of_its_reference(work: Any) -> None:
    bench = lambda make, sizes: [make((64, 64))]  # noqa: E731
    spec = OpSpec(fn=on_sim_only, reference=lambda a: a * 2, dtypes=("float32",), work=work, bench=bench)

    assert spec.least_work(Sample((np.ones((4, 8), np.float32),))).bytes == 2 * 4 * 8 * 4
    CHECKS["bench"](spec, "sim")


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        (OpSpec(fn=double), FUNCTION),
        (OpSpec(fn=double, tolerance=Tolerance(ulps=3)), Tolerance(ulps=3)),
        (OpSpec(op=ops.exp, reference=np.exp), BY_CLASS["elementwise"]),
        (OpSpec(op=ops.sum, reference=np.sum), BY_CLASS["reduction"]),
    ],
    ids=["function", "its own", "elementwise", "reduction"],
)
def test_the_tolerance_in_force_is_the_one_given_or_that_of_the_class(spec: OpSpec, rule: Tolerance) -> None:
    assert spec.rule == rule


def test_bad_inputs_are_drawn_as_samples_are() -> None:
    spec = OpSpec(
        fn=double, error_inputs=lambda make: [ErrorInput(make(3), ValueError, "x"), ErrorInput((), TypeError, "y")]
    )

    drawn = list(spec.draw_errors(0, "float32"))

    assert [(bad.sample.label, bad.error, bad.match) for bad in drawn] == [
        ("0: shape 3", ValueError, "x"), ("1: ", TypeError, "y"),
    ]  # fmt: skip
    assert list(OpSpec(fn=double).draw_errors(0, "float32")) == []


@pytest.mark.parametrize(
    ("function", "has"),
    [
        (lambda xp, a: a, False),
        (lambda xp, a: (a, a), True),
        (lambda xp, a: [a], True),
        (lambda xp, a: a[0], True),
    ],
    ids=["an array", "a tuple", "a list", "takes a list"],
)
def test_lists_are_known_by_what_a_function_takes_and_gives(function: Any, has: bool) -> None:
    takes = function(None, [1]) == 1
    spec = OpSpec(fn=function, name="listed", samples=lambda make: [([make(3), make(3)],) if takes else make(3)])

    assert spec.has_lists is has
    assert not OpSpec(op=ops.exp, reference=np.exp).has_lists


def test_a_refused_call_of_make_is_shown_by_the_users_own_line() -> None:
    def samples(make: Any) -> Any:
        return [make(3, dtype="bol")]

    with pytest.raises(SpecError) as caught:
        OpSpec(fn=double, samples=samples)

    assert caught.traceback[-1].name == "samples"


def test_a_reference_that_raises_is_shown_without_frames_of_the_declaration() -> None:
    def reference(a: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(SpecError) as caught:
        OpSpec(fn=double, reference=reference)

    assert caught.traceback[-1].name == "check"


def test_a_name_is_kept_as_it_is_given() -> None:
    def function(xp: Any, a: Any) -> Any:
        return a

    assert OpSpec(fn=function, name="another").name == "another"
    assert OpSpec(fn=function).name == "function"


def test_a_check_is_left_out_with_a_reason() -> None:
    with pytest.raises(SpecError, match="leaves 'aliasing' out without a reason; write without="):
        OpSpec(fn=double, without={"aliasing": " "})


def test_samples_that_cannot_be_drawn_are_told_with_the_dtype() -> None:
    def samples(make: Any) -> Any:
        if make.dtype == "float16":
            raise KeyError(make.dtype)
        return [make(3)]

    with pytest.raises(SpecError, match="its samples= raises KeyError: 'float16'; they are drawn in float16, which it"):
        OpSpec(fn=double, dtypes=("float32", "float16"), samples=samples)


def test_the_dtype_of_a_known_failure_is_named_by_a_scalar_type_too() -> None:
    assert KnownFailure(reason="x", dtype=np.float32).dtype == "float32"


def test_a_number_stays_one_for_the_reference_of_an_op() -> None:
    met: list[Any] = []

    def reference(a: Any, b: Any) -> Any:
        met.append(b)
        return a + b

    spec = OpSpec(op=ops.add, samples=lambda make: [(make(3), make(3))], reference=reference, dtypes=("float32",))
    spec.expected(Sample((np.ones(3, np.float32), 2.0), kind="python"))

    assert type(met[-1]) is float


def test_a_dtype_that_cannot_be_stored_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Without:
        """Capabilities without storage of float16."""

        def missing(self, word: str) -> str | None:
            return "no storage" if word == "storage:float16" else None

    monkeypatch.setattr("cuassay.testing.opspec.devices.capabilities", lambda device: Without())
    spec = OpSpec(fn=double, dtypes=("float32",))

    assert spec.why_unsupported("cpu", "float16") == "no storage"
    assert spec.why_unsupported("cpu", "float32") is None
