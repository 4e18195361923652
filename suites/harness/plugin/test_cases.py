"""From arguments to cases: ids, order, composition with a project's own parametrization, errors of collection."""

from __future__ import annotations

import pytest


def collected(pytester: pytest.Pytester, source: str, *arguments: str) -> list[str]:
    pytester.makepyfile(source)
    result = pytester.runpytest("--collect-only", "-q", "--device", "cpu", *arguments)
    return [line.partition("::")[2] for line in result.outlines if "::" in line]


def test_ids_are_device_then_dtype_then_op_in_whatever_order_they_are_asked(pytester: pytest.Pytester) -> None:
    source = """
        from cuassay.testing import dtypes, ops
        @dtypes("bfloat16")
        @ops("softmax", "exp")
        def test_values(op, dtype, device): pass
    """

    assert collected(pytester, source) == ["test_values[cpu:0-bfloat16-softmax]", "test_values[cpu:0-bfloat16-exp]"]


def test_the_op_is_in_the_id_where_the_test_is_not_generated_for_it(pytester: pytest.Pytester) -> None:
    source = """
        from cuassay.testing import OpSpec, conformance, ops
        spec = OpSpec(fn=lambda xp, a: a + a, name="double", dtypes=("float32",))
        test_double = conformance(spec)
        @ops(spec)
        def test_own(device, dtype, op): pass
    """

    found = collected(pytester, source)

    assert {"test_double::test_values[cpu:0-float32]", "test_own[cpu:0-float32-double]"} <= set(found)


def test_a_projects_own_marks_compose(pytester: pytest.Pytester) -> None:
    source = """
        import pytest
        from cuassay.testing import dtypes
        @dtypes("float32", "float64")
        @pytest.mark.parametrize("n", [1, 2])
        def test_sum(device, dtype, n): pass
    """

    expected = [f"test_sum[cpu:0-{dtype}-{n}]" for dtype in ("float32", "float64") for n in (1, 2)]
    assert collected(pytester, source) == expected


def test_dtypes_are_dtype_objects_and_may_be_given_as_such(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import numpy as np
        import ml_dtypes
        from cuassay.testing import dtypes
        @dtypes(np.float32, np.dtype("int8"), ml_dtypes.bfloat16)
        def test_kind(device, dtype):
            assert isinstance(dtype, np.dtype)
    """)

    pytester.runpytest("--device", "cpu").assert_outcomes(passed=3)


def test_tests_that_differ_in_nothing_but_their_dtypes_get_their_own(pytester: pytest.Pytester) -> None:
    source = """
        from cuassay.testing import dtypes
        @dtypes("float32")
        def test_single(device, dtype): pass
        @dtypes("float64")
        def test_double(device, dtype): pass
    """

    assert collected(pytester, source) == ["test_single[cpu:0-float32]", "test_double[cpu:0-float64]"]


def test_a_module_scoped_fixture_may_ask_for_the_device(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.fixture(scope="module")
        def table(device): return [device]
        def test_table(table, xp, device): assert table == [device]
    """)

    pytester.runpytest("--device", "cpu").assert_outcomes(passed=1)


def test_a_spec_is_collected_under_the_variables_name(pytester: pytest.Pytester) -> None:
    source = """
        from cuassay.testing import OpSpec, conformance
        test_double = conformance(OpSpec(fn=lambda xp, a: a + a, dtypes=("float32",)))
    """

    assert "test_double::test_values[cpu:0-float32]" in collected(pytester, source)


def test_a_faulty_function_fails_its_generated_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        wrong = dict(fn=lambda xp, a: a + a + 1, reference=lambda a: a + a, dtypes=("float32",))
        test_double = conformance(OpSpec(**wrong))
    """)

    result = pytester.runpytest("--device", "cpu", "-k", "test_values")

    result.assert_outcomes(failed=1, deselected=None)
    result.stdout.fnmatch_lines(["*reproduce: CUASSAY_SEED=*--cuassay-device cpu:0*"])


def test_a_projects_python_functions_do_not_rename_the_generated_tests(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\npython_functions = check_*")
    source = """
        from cuassay.testing import OpSpec, conformance
        test_double = conformance(OpSpec(fn=lambda xp, a: a + a, dtypes=("float32",)))
    """

    assert "test_double::test_values[cpu:0-float32]" in collected(pytester, source)


@pytest.mark.parametrize(
    ("decorator", "message"),
    [
        ('requires("grphs")', "*test_wrong.py:2: 'grphs' names no capability*features: streams*"),
        (
            'dtypes("float31")',
            "*test_wrong.py:2: 'float31' is not a dtype*(did you mean 'float32'?); give one of bool*",
        ),
        ('devices("gpu")', "*test_wrong.py:2: there is no device kind 'gpu' (did you mean 'cuda'?); known: *"),
        ('devices("cudda")', "*test_wrong.py:2: there is no device kind 'cudda' (did you mean 'cuda'?); known: *"),
        ('ops("sotfmax")', "*test_wrong.py:2: 'sotfmax' is not one of our ops; ops: *softmax*"),
        ("requires()", "*test_wrong.py:2: got (); give at least one name of a requirement*"),
        ("ops", "*test_wrong.py:2: @ops is written without parentheses; write @ops()*"),
        ("ops(['add'])", "*test_wrong.py:2: @ops got a list; give the specs one by one, such as @ops(*specs)*"),
    ],
    ids=["requires", "dtypes", "devices", "misspelt-device", "ops", "nothing", "bare", "list"],
)
def test_an_unknown_name_is_a_collection_error_at_its_line(
    pytester: pytest.Pytester, decorator: str, message: str
) -> None:
    assert_refused(pytester, decorator, "device, op", message)


def assert_refused(pytester: pytest.Pytester, decorator: str, arguments: str, message: str) -> None:
    """A test so decorated, that takes `arguments`, is an error of the collection with `message`."""
    imports = "from cuassay.testing import devices, dtypes, ops, requires"
    pytester.makepyfile(test_wrong=f"{imports}\n@{decorator}\ndef test_wrong({arguments}): pass\n")

    result = pytester.runpytest("--device", "cpu")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([message])


@pytest.mark.parametrize(
    ("decorator", "message"),
    [
        ('dtypes("float32")', "*test_wrong.py:*: @dtypes has no effect on a test that does not take `dtype`"),
        ('devices("cpu")', "*test_wrong.py:*: @devices has no effect on a test that does not take `device`"),
        ("ops()", "*test_wrong.py:*: @ops has no effect on a test that does not take `op`"),
    ],
    ids=["dtypes", "devices", "ops"],
)
def test_cases_for_an_argument_that_the_test_does_not_take_are_refused(
    pytester: pytest.Pytester, decorator: str, message: str
) -> None:
    assert_refused(pytester, decorator, "", message)


def test_keyword_and_last_failed_select_by_device_and_dtype(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import dtypes
        @dtypes("float32", "float64")
        def test_one(device, dtype): assert dtype.name != "float64"
    """)
    pytester.runpytest("--device", "cpu").assert_outcomes(passed=1, failed=1)

    pytester.runpytest("--device", "cpu", "--lf").assert_outcomes(failed=1)
    pytester.runpytest("--device", "cpu", "-k", "cpu and float32").assert_outcomes(passed=1, deselected=1)


def test_collecting_asks_no_kind_that_was_not_chosen(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import cuassay.devices
        def refuse(kind):
            raise RuntimeError(f"{kind} was asked")
        real = cuassay.devices.backend
        cuassay.devices.backend = lambda kind: real(kind) if kind == "cpu" else refuse(kind)
    """)
    pytester.makepyfile("def test_one(device): pass")

    pytester.runpytest_subprocess("--device", "cpu").assert_outcomes(passed=1)


def test_other_parameters_may_bear_our_names(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("op", ["add", "mul"])
        @pytest.mark.parametrize("dtype", ["float32", None])
        def test_own(device, dtype, op):
            assert str(device) == "cpu:0"

        @pytest.mark.parametrize("n, dtype", [(1, "float32")])
        def test_pair(device, n, dtype):
            assert dtype == "float32"
        """
    )

    result = pytester.runpytest("--device", "cpu")

    result.assert_outcomes(passed=5)
