"""Declaring: what a spec fills in by itself, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import ops
from cuassay.errors import CapabilityNameError, SpecError
from cuassay.testing.opspec import REDUCED, KnownFailure, OpSpec, Work, own_specs
from cuassay.testing.samples import Sample


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
        pytest.param({"fn": double, "dtypes": ("float33",)}, "claims 'float33'", id="unknown-dtype"),
        pytest.param({"op": ops.exp, "reference": np.exp, "dtypes": ("int8",)}, "not declared", id="undeclared-dtype"),
        pytest.param({"fn": lambda xp, a, b, c: a}, "takes 3 arrays", id="no-samples-for-three"),
        pytest.param({"fn": lambda a: a}, "takes 0 arrays; .* its first parameter is xp", id="no-namespace"),
        pytest.param({"fn": double, "samples": [1]}, r"samples= takes a function; got \[1\]", id="samples-as-list"),
        pytest.param({"fn": double, "tolerance": 1e-5}, r"write Tolerance\(ulps=...\)", id="tolerance-as-number"),
        pytest.param({"op": double}, "op= takes a declared operation", id="op-undeclared"),
        pytest.param({"fn": double, "known_failures": "x"}, "several KnownFailure", id="failures-as-text"),
        pytest.param(
            {"fn": double, "error_inputs": lambda make: [(make(3), ValueError, "x")]},
            r"yields ErrorInput\(sample, error, match\)",
            id="error-inputs-as-tuples",
        ),
        pytest.param({"fn": double, "result_dtype": "float33"}, "'float33' is no dtype", id="unknown-result"),
        pytest.param({"op": ops.exp, "reference": np.exp, "result_dtype": "int8"}, "schema says", id="op-with-result"),
        pytest.param({"fn": double, "samples": lambda make: []}, "no sample of kind 'values'", id="no-samples"),
        pytest.param({"fn": lambda xp, a: (a, a)}, "gives a tuple of 2", id="two-results"),
        pytest.param({"fn": lambda xp, a: a.nothing()}, "reference raise AttributeError", id="reference-raises"),
        pytest.param({"fn": double, "known_failures": (KnownFailure(reason=" "),)}, "without a reason", id="no-reason"),
        pytest.param(
            {"fn": double, "known_failures": (KnownFailure(reason="x", dtype="int8"),)},
            "does not claim",
            id="unclaimed",
        ),
    ],
)
def test_a_spec_that_says_nothing_testable_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        OpSpec(**arguments)


def test_one_name_may_stand_alone() -> None:
    spec = OpSpec(fn=double, dtypes="float16", requires="graphs")

    assert (spec.dtypes, spec.requires) == (("float16",), ("graphs",))


def test_an_unknown_requirement_is_refused() -> None:
    with pytest.raises(CapabilityNameError, match="'graps'"):
        OpSpec(fn=double, requires=("graps",))


@pytest.mark.parametrize(
    ("known", "case", "covered"),
    [
        (KnownFailure(reason="x"), ("cpu:0", "float32", "values"), True),
        (KnownFailure(reason="x", kind="cuda"), ("cpu:0", "float32", "values"), False),
        (KnownFailure(reason="x", kind="cuda", check="out"), ("cuda:1", "float32", "out"), True),
        (KnownFailure(reason="x", dtype="float64"), ("cpu", "float32", "values"), False),
    ],
)
def test_a_known_failure_covers_what_it_names(known: KnownFailure, case: tuple[str, str, str], covered: bool) -> None:
    spec = OpSpec(fn=double, known_failures=(known,))

    assert (spec.known_failure(*case) is known) is covered


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("spec", own_specs(), ids=lambda spec: spec.name)
def test_our_specs_claim_what_runs(spec: OpSpec, device: str) -> None:
    assert set(spec.claims(device)) == {d for d in spec.dtypes if spec.why_unsupported(device, d) is None}


def test_every_declared_op_has_a_spec() -> None:
    assert {spec.name for spec in own_specs()} == {op.name for op in ops.ops()}


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
