"""The end of a session: which failure to begin with, and what tests without a reference cannot find."""

from __future__ import annotations

import os

import pytest

from cuassay_reports.analysis import load

KEPT = """
    from cuassay.testing import OpSpec, conformance

    kept = {}

    def keeps_its_result(xp, a):
        result = kept.setdefault((type(a), a.shape, str(a.dtype)), xp.empty(a.shape, a.dtype))
        result[...] = xp.tanh(a)
        return result

    test_kept = conformance(OpSpec(fn=keeps_its_result, dtypes=("float64",)))
"""

TAIL = """
    import numpy as np
    from cuassay.testing import OpSpec, conformance

    def without_tail(xp, a):
        result = xp.tanh(a)
        result[..., 32:] = 0
        return result

    test_tail = conformance(OpSpec(
        fn=without_tail, reference=np.tanh, dtypes=("float32",), samples=lambda make: [make((4, 33))],
    ))
"""


def test_the_check_that_names_the_cause_comes_first(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(KEPT)

    result = pytester.runpytest_inprocess("--device", "cpu", "-q", "-p", "no:randomly")

    result.stdout.fnmatch_lines(["keeps_its_result: * checks failed; look at aliasing first: * may follow from it"])
    failed = [line for line in result.outlines if line.startswith("FAILED")]
    assert "test_aliasing" in failed[0]


def test_numbers_that_are_named_come_before_sizes_at_which_they_occur(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance

        def mean(xp, a, mask):
            return xp.where(mask, a, 0).sum(axis=-1) / mask.sum(axis=-1)

        test_mean = conformance(OpSpec(
            fn=mean,
            reference=lambda a, mask: (a * mask).sum(axis=-1) / mask.sum(axis=-1).clip(1),
            dtypes=("float64",),
            samples=lambda make: [(make((5, 33)), make((5, 33), dtype="bool"))],
        ))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-q")

    result.stdout.fnmatch_lines(["mean: * checks failed; look at zeros first: *sizes* may follow from it"])


def test_two_declarations_of_one_name_are_told_apart(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance

        def double(xp, a):
            return a * 2

        test_one = conformance(OpSpec(fn=double, reference=lambda a: a * 3, dtypes=("float32",)))
        test_other = conformance(OpSpec(fn=double, reference=lambda a: a * 4, dtypes=("float32",)))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-q", "-k", "values or layouts")

    result.stdout.fnmatch_lines(["double (test_one): 2 checks failed; *", "double (test_other): 2 checks failed; *"])


def test_workers_failures_are_shown_in_the_order_of_causes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TAIL)

    result = pytester.runpytest_subprocess("--device", "cpu", "-q", "-n", "2", "-k", "values or layouts or stress")

    failed = [line.partition("::test_tail::")[2].partition("[")[0] for line in result.outlines if "FAILED" in line]
    assert failed == ["test_values", "test_layouts", "test_stress"]
    result.stdout.fnmatch_lines(["without_tail: 3 checks failed; look at values first: *"])


def test_a_wrong_function_is_not_said_to_keep_something(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TAIL)

    result = pytester.runpytest_inprocess("--device", "cpu", "-q", "-k", "values or deterministic or second_call")

    result.assert_outcomes(failed=1, passed=2)


def test_a_check_of_calls_in_turn_is_no_cause_where_the_first_call_is_wrong(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import numpy as np
        from cuassay.testing import OpSpec, conformance

        def turned(xp, a):
            return a[::-1] * 1 if not a.flags["C_CONTIGUOUS"] else a * 1

        test_turned = conformance(OpSpec(fn=turned, samples=lambda make: [make((4, 6))], reference=lambda a: a))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-q", "-k", "layouts or second_call")

    result.stdout.fnmatch_lines(["turned: 2 checks failed; look at layouts first: second_call may follow from it"])


def test_of_one_error_in_every_check_the_plain_one_comes_first(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance

        test_beyond = conformance(OpSpec(fn=lambda xp, a: a[..., 100], samples=lambda make: [make((4, 6))],
                                         reference=lambda a: a[..., 0]))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-q", "-k", "state or deterministic or values")

    result.stdout.fnmatch_lines(["beyond: 3 checks failed; look at values first: *"])


def test_what_a_function_without_a_reference_hides_is_said_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import numpy as np
        from cuassay.testing import OpSpec, conformance

        test_silu = conformance(OpSpec(fn=lambda xp, a: a / (1 + xp.exp(-a))))
        test_sine = conformance(OpSpec(fn=lambda xp, a: xp.sin(a), reference=np.sin))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-q", "-k", "values")

    result.stdout.fnmatch_lines(["without reference=, so compared with themselves on NumPy arrays (1): silu"])
    result.stdout.fnmatch_lines(["*cannot find a wrong*"])


def test_options_that_no_sample_gives_are_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, Sample, conformance

        def scaled(xp, a, factor=1.0, *, power=1):
            return a**power * factor

        def samples(make):
            return [make((3, 5)), Sample((make((3, 5)),), {"power": 2})]

        test_scaled = conformance(OpSpec(fn=scaled, samples=samples))
        def given(make):
            return [Sample((make(5), 2.0), {"power": 3})]

        test_given = conformance(OpSpec(fn=scaled, name="given", samples=given))
    """)

    result = pytester.runpytest_inprocess("--device", "cpu", "-q", "-k", "wider_result")

    result.stdout.fnmatch_lines(
        ["options that no sample gives*: scaled (factor)", "  Give them in samples=*{'factor': value})."]
    )


def test_nothing_is_said_where_every_function_has_a_reference(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TAIL)

    result = pytester.runpytest_inprocess("--device", "cpu", "-q", "-k", "wider_result")

    result.stdout.no_fnmatch_line("*compared with themselves*")


def test_a_failure_without_a_reference_does_not_say_which_side_is_wrong(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(KEPT)

    result = pytester.runpytest_inprocess(
        "--device", "cpu", "-q", "-k", "full_range or stress or second_call or aliasing or layouts"
    )

    result.stdout.fnmatch_lines(["*note: expected is what the same function gives*either result may be wrong"])


def test_the_row_of_a_failure_has_the_map_of_its_errors(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TAIL)

    pytester.runpytest_inprocess("--device", "cpu", "-k", "values", "--cuassay-record", "out.jsonl")

    (row,) = load(pytester.path / "out.jsonl").tests.to_dict("records")
    assert row["error_map"] == {"rows": 4, "columns": 33, "percent": [[0] * 32 + [100]] * 4}


def test_who_asks_for_times_without_bench_is_told_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)  # pytest-benchmark measures nothing in a worker
    pytester.makepyfile(TAIL)

    result = pytester.runpytest_subprocess("--device", "cpu", "-q", "--benchmark-only")

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["nothing to measure: no declaration gives bench=; write bench=lambda make, sizes: *"])


ASKED = """
    from cuassay.testing import OpSpec, conformance, ops, requires

    SPEC = OpSpec(fn=lambda xp, a: xp.tanh(a), name="plain", reference=np.tanh, dtypes=("float32",))

    @requires("graphs")
    def test_asks(device): pass

    @requires("graphs")
    @ops(SPEC)
    def test_asks_with_a_declaration(device, op): pass

    test_needs = conformance(OpSpec(
        fn=lambda xp, a: xp.tanh(a), reference=np.tanh, dtypes=("float32",), requires=("graphs",),
    ))
"""


def test_what_was_asked_for_may_not_run_nowhere_and_a_generated_check_of_graphs_may(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(TAIL.replace("result[..., 32:] = 0", "pass") + ASKED)

    result = pytester.runpytest_subprocess("--device", "cpu", "-q", "--cuassay-fail-nowhere", "-p", "no:randomly")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = [line.strip().partition("::")[2].partition(":")[0] for line in result.outlines if line.startswith("  test_")]
    assert {"test_asks", "test_asks_with_a_declaration[plain]", "test_needs"} <= set(said)
    assert "test_tail" not in said


def test_a_check_that_a_declaration_leaves_out_may_run_nowhere(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance

        def negate(xp, a):
            a *= -1
            return a

        test_negate = conformance(OpSpec(
            fn=negate,
            reference=lambda a: -a,
            dtypes=("float32",),
            without={"inputs_unchanged": "in place", "aliasing": "in place", "deterministic": "in place"},
        ))
    """)

    result = pytester.runpytest_inprocess("--device", "sim", "-q", "-rs", "--cuassay-fail-nowhere")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["SKIPPED * negate opts out of aliasing: in place"])
    result.stdout.no_fnmatch_line("*ran nowhere*")


RANGES = """
    import numpy as np
    from cuassay.testing import OpSpec, conformance

    def indices(high):
        return lambda make: [(make((5, 3)), make(4, dtype="int64", low=0, high=high))]

    def refuses(a, i):
        if (i == i[0]).all():
            raise ValueError("equal indices")
        return a[i]

    def taken(xp, a, i):
        return a[i]

    def declare(high, fn, reference):  # the name decides what is drawn: never 5, also for high=5
        return OpSpec(fn=fn, reference=reference, samples=indices(high), dtypes=("float32",), name="gathered")

    test_taken = conformance(declare(5, taken, lambda a, i: a[i]))
    test_right = conformance(declare(4, taken, lambda a, i: a[i]))
    test_both = conformance(declare(4, lambda xp, a, i: refuses(a, i), refuses))
"""


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["one", "xdist"])
def test_an_end_of_a_range_that_the_reference_refuses_is_reported_once(
    pytester: pytest.Pytester, words: tuple[str, ...]
) -> None:
    pytester.makepyfile(RANGES)

    result = pytester.runpytest_subprocess("--device", "cpu", "-W", "error", "-k", "zeros", *words)

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "ends of integer ranges that the reference refuses, so that they are not tested (1):",
            "  gathered: input 1 (i) at high=5: IndexError: index 5 is out of bounds for axis 0 with size 5",
            "  make includes both ends: for indices into N places give low=0 and high=N - 1.",
        ],
        consecutive=True,
    )


def test_ends_that_the_reference_takes_are_not_mentioned(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RANGES)

    result = pytester.runpytest("--device", "cpu", "-k", "(test_right or test_both) and zeros")

    assert result.ret == 0
    result.stdout.no_fnmatch_line("*ends of integer ranges*")
