"""Generated tests as a user meets them: collected under their names, failing with all one needs, in the wheel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuassay import to_host
from cuassay.errors import SpecError
from cuassay.testing import ErrorInput, OpSpec
from cuassay.testing.check_names import CHECK_NAMES, RELATION_NAMES
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.execution import REGISTERED, check
from cuassay.testing.generated.relations import RELATIONS
from cuassay.testing.generated.result_dtypes import result_dtype
from cuassay.testing.own_specs import own_specs

TEN_LINES = """
    from cuassay.testing import OpSpec, conformance

    test_norm = conformance(OpSpec(fn=lambda xp, a: xp.linalg.norm(a)))
    test_hypot = conformance(OpSpec(fn=lambda xp, a, b: xp.sqrt(a * a + b * b), dtypes=("float32",)))
"""


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_function_declared_in_two_lines_is_tested_on_each_device(pytester: pytest.Pytester, device: str) -> None:
    pytester.makepyfile(TEN_LINES)

    result = pytester.runpytest_inprocess("--device", device, "-v")

    result.stdout.fnmatch_lines([f"*::test_norm::test_values[[]{device}:0-float32] PASSED*"])
    result.stdout.fnmatch_lines([f"*::test_hypot::test_broadcast[[]{device}:0-float32] PASSED*"])
    assert result.ret == 0


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("fn=lambda xp, a: a + 1, samples=lambda make: [make(3)]", id="one-sample"),
        pytest.param("fn=lambda xp, a: a.argmax(), samples=lambda make: [make((3, 4))], dtypes=('int8',)", id="index"),
        pytest.param("fn=lambda xp, a: float(a.sum())", id="python-number"),
        pytest.param("fn=lambda xp, a: a > 0", id="booleans"),
        pytest.param("fn=lambda xp, a: xp.max(a)", id="undefined-for-nothing"),
        pytest.param("fn=lambda xp, a: xp.sqrt(a), dtypes=('int8', 'float16', 'float32')", id="integers-to-floats"),
        pytest.param(
            "fn=lambda xp, a, b: xp.matmul(a, b), samples=lambda make: [(make((3, 4)), make((4, 2)))]", id="tuple"
        ),
    ],
)
def test_functions_of_many_sorts_conform(pytester: pytest.Pytester, spec: str) -> None:
    pytester.makepyfile(f"from cuassay.testing import OpSpec, conformance\ntest_it = conformance(OpSpec({spec}))")

    result = pytester.runpytest_inprocess("--device", "sim", "--device", "cpu")

    assert result.ret == 0
    assert result.parseoutcomes()["passed"] >= 6


def test_a_wrong_function_fails_with_the_worst_element_and_a_line_to_reproduce(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import numpy as np
        from cuassay.testing import OpSpec, conformance

        def halved_tail(xp, a):
            out = xp.array(a)
            if out.size > 32: out[..., -1] = out[..., -1] * 0.5
            return out

        test_tail = conformance(OpSpec(fn=halved_tail, reference=lambda a: a, dtypes=("float32",)))
    """)

    result = pytester.runpytest_inprocess("--device", "sim", "-k", "test_values")

    result.stdout.fnmatch_lines([
        "*1 of 33 elements (3.03%) are out of tolerance",
        "*worst at (32,): got *, expected *",
        "*error * against tolerance * (*x over)",
        "*op: halved_tail on sim:0 in float32",
        "*seed: 2026",
        "*reproduce: CUASSAY_SEED=2026 pytest --cuassay-device sim:0 *::test_tail::test_values[[]sim:0-float32]*",
        "*sample: shape 33, one above 32",
    ])  # fmt: skip
    assert result.ret == 1


@pytest.mark.parametrize("root", ["", "elsewhere"], ids=["here", "elsewhere"])
def test_a_test_of_the_package_is_reproduced_by_its_module(pytester: pytest.Pytester, root: str) -> None:
    pytester.mkdir("elsewhere")
    pytester.makepyfile(
        plant="""
        from cuassay import devices
        from cuassay.ops import registry

        devices.backend("cpu")
        wrong = registry.substituted("relu", kind="cpu", wrap=lambda kernel: lambda a, *, out: kernel(-a, out=out))
        wrong.__enter__()
    """
    )

    result = pytester.runpytest_subprocess(
        *("--pyargs", "cuassay.testing.generated", "--device", "cpu", "-k", "test_values and float32 and relu"),
        *("-p", "plant", "--cuassay-record", "rows.jsonl", f"--rootdir={pytester.path / root}"),
    )

    line = (
        "CUASSAY_SEED=2026 pytest --cuassay-device cpu:0 --pyargs "
        "'cuassay.testing.generated.test_conformance::test_values[cpu:0-float32-relu]'"
    )
    result.assert_outcomes(failed=1, deselected=result.parseoutcomes()["deselected"])
    assert f"reproduce: {line}" in result.stdout.str()
    assert line in (pytester.path / "rows.jsonl").read_text()


def test_the_line_to_reproduce_names_the_file_from_where_it_was_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]")
    (pytester.mkdir("tests") / "test_it.py").write_text(
        "from cuassay.testing import OpSpec, conformance\n"
        "test_wrong = conformance(OpSpec(fn=lambda xp, a: a, reference=lambda a: a + 1, dtypes=('float32',)))\n"
    )
    monkeypatch.chdir(pytester.path / "tests")

    result = pytester.runpytest_inprocess("--device", "cpu", "-k", "test_values")

    result.stdout.fnmatch_lines(["*reproduce: * 'test_it.py::test_wrong::test_values[[]cpu:0-float32]'"])


def test_the_line_to_reproduce_runs_that_one_test(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        test_wrong = conformance(OpSpec(fn=lambda xp, a: a + 1, reference=lambda a: a, dtypes=("float32",)))
    """)

    result = pytester.runpytest_inprocess(
        "--cuassay-device", "sim:0", f"{path.name}::test_wrong::test_values[sim:0-float32]"
    )

    result.assert_outcomes(failed=1)


def test_a_known_failure_is_expected_to_fail_and_says_why(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import numpy
        from cuassay.testing import OpSpec, conformance
        from cuassay.testing.opspec import KnownFailure

        known = KnownFailure(kind="sim", check="values", reason="issue 12")
        test_off = conformance(OpSpec(
            fn=lambda xp, a: a + (0 if xp is numpy else 1), dtypes=("float32",), known_failures=(known,)
        ))
    """)

    result = pytester.runpytest_inprocess("--device", "sim", "--device", "cpu", "-k", "test_values", "-rx")

    result.stdout.fnmatch_lines(["*XFAIL*test_values*sim:0-float32*issue 12*"])
    result.assert_outcomes(passed=1, xfailed=1)


def test_a_planted_fault_fails_tests_whose_ids_name_the_op(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        from cuassay import devices
        from cuassay.ops import registry

        devices.backend("cpu")
        wrong = registry.substituted("relu", kind="cpu", wrap=lambda kernel: lambda a, *, out: kernel(-a, out=out))
        wrong.__enter__()
    """)

    result = pytester.runpytest_subprocess(
        "--pyargs",
        "cuassay.testing.generated",
        "--device",
        "sim",
        "-k",
        "test_values and (float32-relu or float32-exp])",
    )

    result.stdout.fnmatch_lines(["*FAILED*::test_values[[]sim:0-float32-relu]*"])
    result.assert_outcomes(failed=1, passed=1)


def test_checks_of_shared_code_are_generated_for_one_op(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import numpy
        from cuassay import ops
        from cuassay.testing import OpSpec, conformance
        test_log = conformance(OpSpec(
            op=ops.log, reference=numpy.log, dtypes=("float32",), like={"cpu": "exp"}
        ))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "--device", "sim", "--collect-only", "-q", "-k", "out")

    result.stdout.fnmatch_lines(["*::test_out[[]sim:0-float32]"])
    result.stdout.no_fnmatch_line("*::test_out[[]cpu:0*")


def test_a_declaration_that_says_nothing_testable_is_an_error_of_collection(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        test_none = conformance(OpSpec(fn=lambda xp, a, b, c: a))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu")

    result.stdout.fnmatch_lines(["*SpecError: function takes 3 arrays; *samples=*"])
    assert result.ret == 2


def test_an_unnamed_function_goes_by_the_name_of_its_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        test_twice = conformance(OpSpec(fn=lambda xp, a: a * 2, reference=lambda a: a * 3, dtypes=("float32",)))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-k", "test_values")

    result.stdout.fnmatch_lines(["*op: twice on cpu:0 in float32"])


@pytest.mark.parametrize(
    ("also", "warnings"), [pytest.param("", 1, id="alone"), pytest.param("test_twice = twice", 0, id="held-twice")]
)
def test_generated_tests_that_no_name_collects_are_told(pytester: pytest.Pytester, also: str, warnings: int) -> None:
    pytester.makepyfile(f"""
        from cuassay.testing import OpSpec, conformance
        twice = conformance(OpSpec(fn=lambda xp, a: a * 2, dtypes=("float32",)))
        {also}
        def test_next(): pass
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-W", "default::pytest.PytestCollectionWarning")

    assert result.parseoutcomes().get("warnings", result.parseoutcomes().get("warning", 0)) == warnings
    assert ("twice holds generated tests, which are not run" in result.stdout.str()) == bool(warnings)


def test_generated_tests_that_are_not_assigned_are_told_with_their_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        def twice(xp, a):
            return a * 2
        conformance(OpSpec(fn=twice, dtypes=("float32",)))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-W", "default::pytest.PytestCollectionWarning")

    advice = "are not run, because they are not assigned; write test_twice = conformance(...)"
    result.stdout.fnmatch_lines([f"*the tests that conformance(...) makes in line 4 {advice}"])
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_generated_tests_of_a_loop_are_assigned(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        for factor in (2, 3):
            spec = OpSpec(fn=lambda xp, a, factor=factor: a * factor, dtypes=("float32",), name=f"times{factor}")
            globals()[f"test_{factor}"] = conformance(spec)
        test_again = conformance(spec)
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "--collect-only", "-q", "-W", "error")

    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("claim", "outcomes"),
    [
        pytest.param("", {"passed": 1, "failed": 1}, id="nothing-said"),
        pytest.param(", deterministic=False", {"passed": 1}, id="said"),
    ],
)
def test_a_function_unlike_each_time_fails_unless_it_says_so(
    pytester: pytest.Pytester, claim: str, outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(f"""
        from itertools import count
        from cuassay.testing import OpSpec, conformance

        turn = count()
        drifting = lambda xp, a: a * (1 + next(turn) % 2 * 1e-15)
        test_it = conformance(OpSpec(fn=drifting, reference=lambda a: a, dtypes=("float64",){claim}))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-k", "deterministic or values")

    found = result.parseoutcomes()
    assert {word: number for word, number in found.items() if word in ("passed", "failed")} == outcomes


@pytest.mark.parametrize(
    ("claim", "outcomes"),
    [
        pytest.param(", result_dtype='float32'", {"failed": 1}, id="named"),
        pytest.param(", result_dtype=lambda a: a", {"failed": 1}, id="as-the-input"),
    ],
)
def test_a_result_of_another_dtype_than_said_fails(
    pytester: pytest.Pytester, claim: str, outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(f"""
        from cuassay.testing import OpSpec, conformance
        test_wide = conformance(OpSpec(fn=lambda xp, a: a.astype("float64"), dtypes=("float32",){claim}))
    """)

    result = pytester.runpytest_inprocess("--device", "sim", "-k", "test_values")

    found = result.parseoutcomes()
    assert {word: number for word, number in found.items() if word in ("passed", "failed")} == outcomes
    assert ("dtype is float64; expected float32" in result.stdout.str()) == ("failed" in outcomes)


def test_a_dtype_said_by_all_inputs_is_asked_of_declared_dtypes_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        wider = {("float16", "float16"): "float16"}
        test_product = conformance(OpSpec(
            fn=lambda xp, a, b: a * b, dtypes=("float16", "float32"),
            result_dtype=lambda a, b: wider.get((a, b), "float32"),
        ))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-k", "python_scalars or promotion")

    result.assert_outcomes(passed=4)


def test_an_error_that_does_not_say_what_it_should_fails() -> None:
    def first(xp: Any, a: Any) -> Any:
        if a.ndim == 0:
            raise ValueError("something is wrong")
        return xp.sum(a, axis=0)

    spec = OpSpec(
        fn=first,
        samples=lambda make: [make((2, 3))],
        error_inputs=lambda make: [ErrorInput(make(()), ValueError, "no first element")],
    )

    with pytest.raises(AssertionError, match="ValueError does not say 'no first element': something is wrong"):
        CHECKS["errors"](spec, "cpu", np.dtype("float32"))


def test_a_result_on_another_device_fails() -> None:
    spec = OpSpec(fn=lambda xp, a: to_host(a), reference=lambda a: a)

    with pytest.raises(AssertionError, match="is on cpu:0, not on sim:0"):
        CHECKS["values"](spec, "sim", np.dtype("float32"))


def test_bad_inputs_are_written_as_samples_are(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import ErrorInput, OpSpec, Sample, conformance

        def first(xp, a, axis=0):
            if a.ndim == 0:
                raise ValueError("a 0-d array has no first element")
            return xp.sum(a, axis=axis)

        def bad(make):
            yield ErrorInput(make(()), ValueError, "no first element")
            yield ErrorInput(Sample((make(3),), {"axis": 1}), Exception, "out of bounds")

        test_first = conformance(OpSpec(
            fn=first, samples=lambda make: [make((2, 3))], error_inputs=bad, dtypes=("float32",)
        ))
    """)

    result = pytester.runpytest_inprocess("--device", "sim", "--device", "cpu", "-k", "test_errors")

    result.assert_outcomes(passed=2, deselected=result.parseoutcomes()["deselected"])


@pytest.mark.parametrize(
    ("kept", "outcomes"),
    [
        pytest.param("WEIGHTS.setdefault(xp, xp.ones(1))", {"passed": 2}, id="made-once"),
        pytest.param("WEIGHTS.setdefault(len(WEIGHTS), xp.ones(1))", {"failed": 2}, id="at-each-call"),
    ],
)
def test_what_is_made_at_the_first_call_and_kept_is_no_leak(
    pytester: pytest.Pytester, kept: str, outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(f"""
        from cuassay.testing import OpSpec, conformance
        WEIGHTS = {{}}
        test_it = conformance(OpSpec(fn=lambda xp, a: a * {kept}.astype(a.dtype), dtypes=("float32",)))
    """)

    result = pytester.runpytest_inprocess("--device", "sim", "-k", "values or unchanged")

    result.assert_outcomes(**outcomes, deselected=result.parseoutcomes()["deselected"])
    if "failed" in outcomes:
        result.stdout.fnmatch_lines(
            ["*bytes) of device memory are still in use after the test; *; a second run of the*"]
        )


def test_what_fails_is_not_run_a_second_time(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        KEPT = []

        def leaks(xp, a):
            KEPT.append(a * 2)
            return a

        one = lambda make: [make(3)]
        test_it = conformance(OpSpec(fn=leaks, reference=lambda a: a + 1, samples=one, dtypes=("float32",)))

        def test_calls():
            assert len(KEPT) == 2  # by the check, and on NumPy's arrays for the dtype
    """)

    result = pytester.runpytest_inprocess("--device", "sim", "-k", "values or calls")

    result.assert_outcomes(failed=1, passed=1, deselected=result.parseoutcomes()["deselected"])


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        pytest.param(
            'TypeError("eps is -1")', "ValueError was declared, TypeError was raised: eps is -1", id="another"
        ),
        pytest.param('ValueError("bad")', "ValueError does not say 'eps is': bad", id="says-another"),
    ],
)
def test_an_error_of_another_type_than_declared_is_told(pytester: pytest.Pytester, raised: str, message: str) -> None:
    pytester.makepyfile(f"""
        from cuassay.testing import ErrorInput, OpSpec, conformance

        def norm(xp, a):
            if a.size == 4:
                raise {raised}
            return a

        bad = lambda make: [ErrorInput(make(4), ValueError, "eps is")]
        test_it = conformance(OpSpec(fn=norm, samples=lambda make: [make(3)], error_inputs=bad, dtypes=("float32",)))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-k", "test_errors")

    result.assert_outcomes(failed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines([f"*AssertionError: {message}*"])


PRODUCT = """
    from cuassay.testing import OpSpec, Sample, conformance

    def samples(make):
        return [make((4, 3)), make((3, 4)), make((5, 4)), make((2, 3)), make((7, 3))]

    def three_rows(xp, a):
        if xp.__name__ == "numpy" and a.shape[1] == 4 and a.dtype.kind == "f":
            raise ValueError("not for four")
        return a * 2

    test_some = conformance(OpSpec(fn=three_rows, samples=samples, dtypes=("float32", "int32")))
"""


def test_what_the_reference_refuses_every_check_leaves_out(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PRODUCT)

    result = pytester.runpytest_inprocess("--device", "cpu")

    assert result.ret == 0


def test_declared_sample_that_is_refused_in_every_dtype_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PRODUCT.replace('"float32", "int32"', '"float32",'))

    result = pytester.runpytest_inprocess("--device", "cpu")

    result.assert_outcomes(failed=1, passed=16, skipped=3)
    result.stdout.fnmatch_lines(["E *both reject this sample of samples= in every dtype*ValueError: not for four*"])


def test_a_function_that_refuses_all_ordinary_samples_is_told_to_bring_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        test_product = conformance(OpSpec(fn=lambda xp, a, b: a @ xp.concatenate([b, b]), name="product"))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu")

    result.stdout.fnmatch_lines(["*SpecError: product *give samples=*"])


@pytest.mark.parametrize(
    ("held", "message"),
    [
        pytest.param("OpSpec(fn=twice)", "test_it is an OpSpec, *; write test_it = conformance(OpSpec(*", id="spec"),
        pytest.param(
            "[conformance(OpSpec(fn=twice))]", "test_it is a list of generated tests, *a name each*", id="list"
        ),
        pytest.param(
            "(conformance(OpSpec(fn=twice)), 1)", "test_it is a tuple of generated tests, *a name each*", id="tuple"
        ),
        pytest.param("{'a': conformance(OpSpec(fn=twice))}", "test_it is a dict of generated tests, *", id="dict"),
    ],
)
def test_what_looks_like_generated_tests_and_is_none_is_told(
    pytester: pytest.Pytester, held: str, message: str
) -> None:
    pytester.makepyfile(f"""
        from cuassay.testing import OpSpec, conformance
        def twice(xp, a): return a * 2
        test_it = {held}
    """)

    result = pytester.runpytest_inprocess("--device", "cpu")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{message}"])


def test_data_under_a_test_s_name_is_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, ops
        test_cases, test_names, test_text = [1, 2], {}, "x"
        test_specs = [OpSpec(fn=lambda xp, a: a, dtypes="float32")]
        @ops(*test_specs)
        def test_one(op): pass
    """)

    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_samples_whose_dtypes_the_device_lacks_are_left_out(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_PROFILE", "mps-macos13")

    result = pytester.runpytest_subprocess(
        *("--pyargs", "cuassay.testing.generated", "--device", "sim", "-p", "no:cacheprovider"),
        *("-k", "float32 and ((cast and values) or (promotion and -add) or (errors and foreach_mul_))"),
    )

    found = result.parseoutcomes()
    assert result.ret == 0
    assert found["passed"] >= 3


def test_a_sample_that_nothing_remains_of_is_skipped_with_the_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_PROFILE", "mps")
    pytester.makepyfile("""
        from cuassay.testing import ErrorInput, OpSpec, conformance
        bad = lambda make: [ErrorInput(make(3, dtype="float64"), ValueError, "too wide")]
        test_it = conformance(OpSpec(fn=lambda xp, a: a + 1, error_inputs=bad, dtypes=("float32",)))
    """)

    result = pytester.runpytest_subprocess("--device", "sim", "-k", "errors", "-rs")

    result.assert_outcomes(skipped=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["*no storage:float64: Metal has no 64-bit floating point*"])


def test_a_function_that_writes_its_input_does_not_spoil_the_sample() -> None:
    def emptied(xp: Any, a: Any) -> Any:
        total = a + 1
        a[...] = 0
        return total

    spec = OpSpec(fn=emptied, reference=lambda a: a + 1, dtypes=("float32",))
    sample = next(spec.draw(0, "float32", "values"))
    before = sample.host()[0][0].copy()

    result_dtype(spec, sample)
    spec.touched(sample)

    np.testing.assert_array_equal(sample.host()[0][0], before)


def test_checks_of_users_functions_are_not_run_on_our_ops() -> None:
    from cuassay.testing.generated import test_conformance as ours

    wanted = {f"test_{name}" for name, check in CHECKS.items() if any(check.applies(spec) for spec in own_specs())}
    assert {name for name in vars(ours) if name.startswith("test_")} == wanted
    assert "test_second_call" not in wanted


def test_the_names_that_a_spec_may_use_are_those_of_checks_and_relations() -> None:
    assert set(CHECK_NAMES) == set(REGISTERED)
    assert tuple(CHECKS) == CHECK_NAMES
    assert tuple(RELATIONS) == RELATION_NAMES


def test_a_check_without_a_place_in_the_order_says_where_to_add_it() -> None:
    def check_novelty(spec: OpSpec, device: Any) -> None:
        """Anything."""

    with pytest.raises(SpecError, match="'novelty' has no place in the order of checks; add it to CHECK_NAMES"):
        check()(check_novelty)

    assert "novelty" not in REGISTERED


def test_the_function_stays_the_function_after_the_generated_tests_are_imported() -> None:
    import cuassay.testing.generated.test_conformance
    from cuassay import testing

    assert testing.conformance is cuassay.testing.generated.conformance
    assert repr(testing.conformance(OpSpec(fn=lambda xp, a: a + a, name="double"))) == "Conformance(double)"
