"""``requires(..., when=...)``: requirements of some cases of a test."""

from __future__ import annotations

import pytest

SIZES = """
    import pytest
    from cuassay.testing import dtypes, requires
    @requires("{need}", when={when})
    @dtypes("float16", "float32")
    @pytest.mark.parametrize("size", [10, 1000])
    def test_it(device, dtype, size): pass
"""


def skipped(pytester: pytest.Pytester, when: str) -> set[str]:
    """The parameters of the cases that are skipped on cpu, which has no graphs, and on sim, which has them."""
    pytester.makepyfile(SIZES.format(when=when, need="graphs"))
    result = pytester.runpytest("-v", "--device", "cpu,sim")
    told = [line.partition("test_it[")[2] for line in result.outlines if "SKIPPED" in line and "::test_it[" in line]
    return {line.partition("]")[0] for line in told}


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("'float16'", {"cpu:0-float16-10", "cpu:0-float16-1000"}),
        ("('float16', 'float32')", {f"cpu:0-float{bits}-{n}" for n in (10, 1000) for bits in (16, 32)}),
        ("'cpu'", {f"cpu:0-float{bits}-{n}" for n in (10, 1000) for bits in (16, 32)}),
        ("'sim'", set()),
        ("['cpu:0', 'float32']", {"cpu:0-float32-10", "cpu:0-float32-1000"}),
        ("('sim', 'float32')", set()),
        ("lambda size: size > 100", {"cpu:0-float16-1000", "cpu:0-float32-1000"}),
        ("lambda size, dtype: size * dtype.itemsize > 2000", {"cpu:0-float32-1000"}),
        ("lambda device, size=5: device.kind == 'cuda'", set()),
    ],
    ids=["dtype", "dtypes", "kind", "another kind", "device and dtype", "neither", "size", "size and dtype", "default"],
)
def test_a_requirement_holds_for_the_cases_that_when_names(
    pytester: pytest.Pytester, when: str, expected: set[str]
) -> None:
    assert skipped(pytester, when) == expected


@pytest.mark.parametrize("profile", ["mps", "h200"])
def test_a_profile_of_the_simulator_decides_as_a_device_does(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_PROFILE", profile)
    pytester.makepyfile(SIZES.format(when="lambda size: size > 100", need="float64"))

    result = pytester.runpytest_subprocess("--device", "sim", "-rs")

    result.assert_outcomes(**({"passed": 2, "skipped": 2} if profile == "mps" else {"passed": 4}))


def test_requirements_with_and_without_a_condition_add_up(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import requires
        @requires("vmm")
        @requires("graphs", when="cpu")
        @requires("ipc", when="sim")
        def test_it(device): pass
    """)

    result = pytester.runpytest("--device", "cpu", "-rs")

    result.stdout.fnmatch_lines(["SKIPPED * cpu:0: no graphs: *; cpu:0: no vmm: *"])
    assert "no ipc" not in result.stdout.str()


@pytest.mark.parametrize(
    ("when", "told"),
    [
        (
            "'float61'",
            "when= names neither a dtype nor a device: * 'float61' is not a dtype that cuassay knows (did you*",
        ),
        ("()", "when= takes dtypes, devices or a function of the test's parameters; got (); write one such as*"),
        ("3", "when= takes dtypes, devices or a function of the test's parameters; got 3;*"),
        ("lambda *sizes: True", "when= takes a function of parameters by their names; got (?sizes); name each one"),
    ],
    ids=["no such word", "nothing", "number", "any arguments"],
)
def test_a_condition_that_cannot_be_read_is_an_error_of_collection(
    pytester: pytest.Pytester, when: str, told: str
) -> None:
    pytester.makepyfile(test_it=SIZES.format(when=when, need="graphs"))

    result = pytester.runpytest("--device", "cpu")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*test_it.py:3: {told}"])


def test_a_condition_on_what_the_test_does_not_take_is_its_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import requires
        @requires("graphs", when="float16")
        def test_it(device): pass
    """)

    result = pytester.runpytest("--device", "cpu")

    result.assert_outcomes(errors=1)
    told = "requires(...): when= takes 'dtype', which is not a parameter of this test; its parameters: device; *"
    result.stdout.fnmatch_lines([f"*::test_it?cpu:0?: {told}"])


def test_a_condition_reads_the_case_of_a_class_in_the_style_of_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import unittest
        from cuassay.testing import requires
        from cuassay.testing.torchlike import dtypes, instantiate_device_type_tests
        class TestIt(unittest.TestCase):
            @requires("graphs", when=("cpu", "float16"))
            @dtypes("float16", "float32")
            def test_it(self, device, dtype): pass
        instantiate_device_type_tests(TestIt, globals())
    """)

    result = pytester.runpytest("-v", "-rs", "--device", "cpu,sim")

    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["*::test_it_cpu_float16 SKIPPED*", "SKIPPED * cpu:0: no graphs: *"])
