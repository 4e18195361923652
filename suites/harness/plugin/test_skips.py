"""Skips that name what is missing, required devices, and what the terminal says at the end."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

NEEDS_GRAPHS = """
    from cuassay.testing import requires
    @requires("graphs", "count>=2", "streams")
    def test_graph(device): pass
"""

KNOWN = """
    import pytest
    @pytest.mark.xfail
    def test_known(device): raise ValueError
"""

BROKEN = """
    import pytest
    @pytest.fixture
    def broken(): raise ValueError
    def test_broken(device, broken): pass
"""


def test_a_skip_names_everything_missing_in_one_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(NEEDS_GRAPHS)

    result = pytester.runpytest("--device", "cpu", "-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED ?1? test_*.py:*: cpu:0: no graphs: *; cpu:0: count>=2 needed; it has 1"])


def test_a_skip_and_its_device_are_in_the_junit_file(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(NEEDS_GRAPHS)

    pytester.runpytest("--device", "cpu", "--junitxml=junit.xml")

    case = ET.parse(pytester.path / "junit.xml").find(".//testcase")  # noqa: S314  written by this test
    assert case is not None
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert properties["device"] == "cpu:0"
    assert len(properties["fingerprint"] or "") == 12
    assert "cpu:0: no graphs" in str(case.find("skipped").get("message"))  # type: ignore[union-attr]


def test_requirements_of_a_class_and_of_its_test_add_up(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import requires
        @requires("vmm")
        class TestBoth:
            @requires("graphs")
            def test_one(self, device): pass
    """)

    result = pytester.runpytest("--device", "cpu", "-rs")

    result.stdout.fnmatch_lines(["*cpu:0: no graphs: *; cpu:0: no vmm: *"])


def test_an_op_asks_for_its_own_class_of_a_dtype_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_PROFILE", "mps")
    pytester.makepyfile("""
        from cuassay.testing import dtypes, ops
        @ops("add", "sum")
        @dtypes("complex64")
        def test_one(device, dtype, op): pass
    """)

    result = pytester.runpytest_subprocess("--device", "sim", "-rsp")

    result.stdout.fnmatch_lines_random(["PASSED *complex64-add?", "SKIPPED * Metal * no complex reduction*"])


def test_a_test_whose_devices_were_not_chosen_is_seen(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import devices, requires
        @devices("cuda:*")
        @requires("graphs")
        def test_cuda(device): pass
    """)

    result = pytester.runpytest("--device", "cpu", "-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["ran nowhere (1):", "*test_cuda: needs a device of cuda:?; selected: cpu:0;*"])


def test_what_ran_on_one_device_is_not_listed_as_run_nowhere(pytester: pytest.Pytester, toy_kind: object) -> None:
    pytester.makepyfile("""
        from cuassay.testing import devices, requires
        @requires("graphs")
        def test_graph(device): pass
        def test_everywhere(device): pass
    """)

    result = pytester.runpytest_subprocess("--device", "cpu,toy", "-q")

    result.stdout.fnmatch_lines(["cpu:0: *1 passed*", "toy:0: *1 passed*", "ran nowhere (1):", "  *test_graph: *"])


def test_the_table_counts_and_lists_what_ran_on_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from cuassay.testing import devices, requires
        @requires("graphs")
        def test_graph(device): pass
        @pytest.fixture
        def broken(): raise ValueError("no set-up")
        @devices("cpu")
        def test_broken(device, broken): pass
        @devices("sim")
        def test_bad(device): assert False
    """)

    result = pytester.runpytest("--device", "cpu,sim")

    result.stdout.fnmatch_lines(["cpu:0: 1 skipped, 1 error", "sim:0: 1 passed, 1 failed"])
    assert "ran nowhere" not in result.stdout.str()


def test_requirements_without_a_device_are_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import requires
        @requires("graphs")
        def test_nothing(): pass
    """)

    result = pytester.runpytest("--device", "cpu")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*requires(...) needs a device; add the parameter `device` to the test*"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def test_plain(): pass", "*required device cpu:0: no test passed or failed on it; no collected test takes*"),
        (NEEDS_GRAPHS, "*required device cpu:0: no test passed or failed on it; there were 1 skipped*"),
        ("x = 1", "*required device cpu:0: no test passed or failed on it*"),
        (KNOWN, "*required device cpu:0: no test passed or failed on it*"),
        (BROKEN, "*required device cpu:0: no test passed or failed on it*"),
    ],
    ids=["none takes it", "all skipped", "nothing collected", "known failure", "no set-up"],
)
def test_a_required_device_that_ran_nothing_fails_the_session(
    pytester: pytest.Pytester, source: str, message: str
) -> None:
    pytester.makepyfile(source)

    result = pytester.runpytest("--require-device", "cpu:0")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([message])


def test_a_required_device_that_ran_a_test_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(device): pass")

    result = pytester.runpytest("--require-device", "cpu", "--device", "sim")

    result.assert_outcomes(passed=2)  # what is required is chosen as well
    assert result.ret == pytest.ExitCode.OK


def test_what_ran_nowhere_is_told_with_its_first_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.mark.parametrize("reason", ["one", "two"])
        def test_skipped(device, reason): pytest.skip(reason)
    """)

    result = pytester.runpytest("--device", "cpu")

    result.stdout.fnmatch_lines(["ran nowhere (1):", "  *::test_skipped: one"])


def test_a_required_device_is_not_judged_by_what_is_only_collected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(device): pass")

    assert pytester.runpytest("--require-device", "cpu", "--collect-only").ret == pytest.ExitCode.OK


def test_an_absent_required_device_ends_the_session_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(device): pass")

    result = pytester.runpytest_subprocess("--require-device", "cpu:3")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stderr.fnmatch_lines(["*--require-device: cpu:3 does not exist*"])


def test_a_required_device_is_judged_under_xdist_too(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile("def test_plain(): pass", test_cpu="def test_one(device): pass")

    idle = pytester.runpytest_subprocess("-n2", "--require-device", "cpu", "-k", "plain")
    busy = pytester.runpytest_subprocess("-n2", "--require-device", "cpu")

    assert (idle.ret, busy.ret) == (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK)


def test_the_header_names_devices_revision_and_seed(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--device", "cpu")

    result.stdout.fnmatch_lines(["cuassay: devices cpu:0; revision *; seed 2026"])


def test_a_known_failure_is_expected_to_fail_and_strict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import ops
        from cuassay.testing.opspec import KnownFailure, OpSpec
        known = [KnownFailure(reason="issue 7", check="fails"), KnownFailure(reason="issue 8", check="passes")]
        spec = OpSpec(fn=lambda xp, a: a, name="same", dtypes=("float32",), known_failures=known)
        @ops(spec)
        def test_fails(device, dtype, op): raise ValueError
        @ops(spec)
        def test_passes(device, dtype, op): pass
    """)

    result = pytester.runpytest("--device", "cpu", "-rx")

    result.assert_outcomes(xfailed=1, failed=1)
    result.stdout.fnmatch_lines(["XFAIL *test_fails*issue 7*"])
