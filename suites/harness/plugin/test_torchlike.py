"""Classes of torch's device-type tests with their imports changed: which tests are made, what each decorator does."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from unittest import SkipTest

import pytest

from cuassay.testing import torchlike

BEGINNING = """
import unittest
import numpy as np
import pytest
from cuassay.devices import find, namespace
from cuassay.testing.torchlike import *
from cuassay.testing import torchlike

class TestFoo(TestCase):
"""
END = "\ninstantiate_device_type_tests(TestFoo, globals())\n"


def written(pytester: pytest.Pytester, tests: str, end: str = END) -> None:
    """Write a file with a template of these tests."""
    pytester.makepyfile(test_it=BEGINNING + tests + end)


def outcomes(pytester: pytest.Pytester, tests: str, *arguments: str, end: str = END) -> dict[str, str]:
    """Test, by its name and its class, to its outcome and the reason for it."""
    written(pytester, tests, end)
    result = pytester.runpytest("-rA", "--tb=short", *arguments)
    lines = [line.split(" - ", 1) for line in result.outlines if " test_it.py::" in line]
    found = {line[0].split("::", 1)[1]: (line[0].split()[0], line[1] if len(line) > 1 else "") for line in lines}
    return {test: f"{outcome} {reason}".strip() for test, (outcome, reason) in found.items()}


def test_names_are_those_of_torch(pytester: pytest.Pytester) -> None:
    tests = """
    def test_plain(self): assert self.device_type in ("cpu", "sim")
    def test_place(self, device): assert device in ("cpu", "sim:0")
    @dtypes(np.float32, "int64")
    def test_kinds(self, device, dtype): assert namespace(device).ones(2, dtype).dtype == dtype
    @dtypes(("int8", "float32"), ("int8", "float64"))
    def test_pairs(self, device, dtypes): assert dtypes[0] == np.int8
    @parametrize("n, word", [(1, "a"), subtest((2, "b"), name="second")])
    @dtypes("float32")
    def test_more(self, device, dtype, n, word): assert word == "ab"[n - 1]
    """

    found = outcomes(pytester, tests, "--device", "cpu,sim")

    expected = [
        f"TestFoo{kind.upper()}::test_{name}"
        for kind in ("cpu", "sim")
        for name in (
            f"plain_{kind}",
            f"place_{kind}",
            f"kinds_{kind}_float32",
            f"kinds_{kind}_int64",
            f"pairs_{kind}_int8_float32",
            f"pairs_{kind}_int8_float64",
            f"more_n_1_word_a_{kind}_float32",
            f"more_second_{kind}_float32",
        )
    ]
    assert found == dict.fromkeys(expected, "PASSED")


def test_a_made_test_is_run_by_its_name(pytester: pytest.Pytester) -> None:
    written(pytester, "    def test_place(self, device): pass\n")

    pytester.runpytest("test_it.py::TestFooSIM::test_place_sim", "--device", "cpu,sim").assert_outcomes(passed=1)
    pytester.runpytest("--device", "cpu,sim", "-k", "TestFooCPU").assert_outcomes(passed=1, deselected=1)


DECORATED = {
    "onlyCPU": ("@onlyCPU", "PASSED", "SKIPPED Only runs on cpu"),
    "onlyCUDA": ("@onlyCUDA", "SKIPPED Only runs on cuda", "SKIPPED Only runs on cuda"),
    "onlyOn": ("@onlyOn(['sim', 'cuda'])", "SKIPPED Only runs on ['sim', 'cuda']", "PASSED"),
    "onlyNativeDeviceTypes": ("@onlyNativeDeviceTypes", "PASSED", "SKIPPED Only runs on ('cpu', 'cuda')"),
    "onlyAccelerator": ("@onlyAccelerator", "SKIPPED Only runs on accelerators", "PASSED"),
    "skipCPUIf": ("@skipCPUIf(True, 'slow')", "SKIPPED slow", "PASSED"),
    "skipCPUIf false": ("@skipCPUIf(False, 'slow')", "PASSED", "PASSED"),
    "skipIf attribute": ("@skipIf('no_lapack', 'no LAPACK')", "SKIPPED no LAPACK", "SKIPPED no LAPACK"),
    "skipSIM": ("@torchlike.skipSIM", "PASSED", "SKIPPED marked as skipped on sim"),
    "skipMPS": ("@torchlike.skipMPS", "PASSED", "PASSED"),
    "skipXPUIf": ("@torchlike.skipXPUIf(True, 'why')", "PASSED", "PASSED"),
    "skipCUDAIfRocm": ("@torchlike.skipCUDAIfRocm", "PASSED", "PASSED"),
    "skipCUDAIfNotRocm": ("@torchlike.skipCUDAIfNotRocm", "PASSED", "PASSED"),
    "unittest": ("@unittest.skip('later')", "SKIPPED later", "SKIPPED later"),
    "pytest": ("@pytest.mark.skip(reason='later')", "SKIPPED later", "SKIPPED later"),
    "largeTensorTest": ("@largeTensorTest('999999GB', device='sim')", "SKIPPED sim:0: * needed; it has *", "SKIPPED *"),
    "largeTensorTest small": ("@largeTensorTest(lambda self, device: 1024)", "PASSED", "PASSED"),
}


@pytest.mark.parametrize(("decorator", "on_cpu", "on_sim"), DECORATED.values(), ids=DECORATED)
def test_skips_by_device(pytester: pytest.Pytester, decorator: str, on_cpu: str, on_sim: str) -> None:
    written(pytester, f"    no_lapack = True\n    {decorator}\n    def test_x(self, device): pass\n")

    result = pytester.runpytest("--device", "cpu,sim", "-v", "-rs")

    for kind, told in (("cpu", on_cpu), ("sim", on_sim)):
        outcome, _, reason = told.partition(" ")
        result.stdout.fnmatch_lines([f"*::test_x_{kind} {outcome}*"])
        result.stdout.fnmatch_lines([f"*{reason.replace('[', '[[]')}*"])


def test_tests_for_rocm_are_skipped_on_cuda() -> None:
    on_cuda = SimpleNamespace(device_type="cuda")

    with pytest.raises(SkipTest, match="for ROCm"):
        torchlike.skipCUDAIfNotRocm(lambda self: None)(on_cuda)
    assert torchlike.skipCUDAIfRocm(lambda self: "run")(on_cuda) == "run"


def test_dtypes_of_a_device_type_replace_the_others(pytester: pytest.Pytester) -> None:
    tests = """
    @dtypesIfCPU("float64")
    @torchlike.dtypesIfSIM("float16", "float32")
    @dtypes("int8")
    def test_x(self, device, dtype): pass
    """

    found = outcomes(pytester, tests, "--device", "cpu,sim")

    names = ["CPU::test_x_cpu_float64", "SIM::test_x_sim_float16", "SIM::test_x_sim_float32"]
    assert sorted(found) == [f"TestFoo{name}" for name in names]


def test_a_dtype_that_a_device_lacks_skips_with_the_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_SIM_PROFILE", "mps")
    written(pytester, "    @dtypes(('int8', 'float64'))\n    def test_x(self, device, dtypes): assert False\n")

    result = pytester.runpytest_subprocess("--device", "sim", "-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*sim:0: no float64: *"])


def test_expected_failures_are_told_and_must_fail(pytester: pytest.Pytester) -> None:
    tests = """
    @expectedFailure("sim")
    def test_known(self, device): assert not device.startswith("sim")
    @expectedFailureCPU
    def test_passing(self, device): pass
    @expectedFailure("cpu", dtype=np.float32)
    @dtypes(np.float32, np.float64)
    def test_one_dtype(self, device, dtype): assert dtype != np.float32
    """

    found = outcomes(pytester, tests, "--device", "cpu,sim")

    told = {name.partition("::")[2]: outcome.split()[0] for name, outcome in found.items()}
    assert told["test_known_sim"] == told["test_one_dtype_cpu_float32"] == "XFAIL"
    assert told["test_passing_cpu"] == told["test_one_dtype_sim_float32"] == "FAILED"
    assert told["test_known_cpu"] == told["test_passing_sim"] == told["test_one_dtype_cpu_float64"] == "PASSED"


def test_device_count(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_SIM_DEVICES", "2")
    tests = """
    @deviceCountAtLeast(2)
    def test_two(self, devices): assert devices == ["sim:0", "sim:1"]
    """
    written(pytester, tests)

    result = pytester.runpytest_subprocess("--device", "cpu,sim:*", "-v", "-rs")

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*test_two_sim PASSED*", "SKIPPED*fewer than 2 devices are selected: cpu*"])


def test_tolerances_are_set_for_a_dtype_and_reset(pytester: pytest.Pytester) -> None:
    tests = """
    @precisionOverride({np.float32: 0.5})
    @dtypes(np.float32, np.float64)
    def test_precision(self, device, dtype):
        assert self.precision == (0.5 if dtype == np.float32 else 0)
        if dtype == np.float32:
            self.assertEqual(namespace(device).ones(3, dtype), np.full(3, 1.4, dtype))
    @toleranceOverride({"float32": tol(atol=0, rtol=0.25)})
    @precisionOverride({"float32": 7})
    @dtypes("float32")
    def test_tolerance(self, device, dtype):
        assert (self.precision, self.rel_tol) == (0, 0.25)
        self.assertNotEqual(np.float32(1), np.float32(1.4))
    def test_then(self, device): assert (self.precision, self.rel_tol) == (0, 0)
    """

    found = outcomes(pytester, tests, "--device", "cpu,sim")

    assert len(found) == 8
    assert set(found.values()) == {"PASSED"}


def test_tf32_runs_twice_where_a_device_has_it(pytester: pytest.Pytester) -> None:
    tests = """
    seen = []
    @dtypes("float32", "float64")
    @tf32_on_and_off(0.01)
    def test_product(self, device, dtype):
        from cuassay.core.precision import current_precision
        self.seen.append((device, dtype.name, current_precision(), self.precision))
        a = namespace(device).full((64, 64), 1 / 3, dtype)
        self.assertEqual(a @ a, np.full((64, 64), 64 / 9, dtype))
    def test_z(self, device):
        expected = [("float32", "ieee", 0.0), ("float32", "tf32", 0.01), ("float64", "ieee", 0.0)]
        if device == "sim:0":
            assert [found[1:] for found in self.seen if found[0] == device] == expected
    """

    found = outcomes(pytester, tests, "--device", "cpu,sim")

    assert set(found.values()) == {"PASSED"}


IMPORTING = "from cuassay.testing.torchlike import"
REFUSED = {
    "library": (f"{IMPORTING} disablecuDNN", "*does not offer disablecuDNN; leave it out*"),
    "ops": (f"{IMPORTING} ops", "*does not offer ops; write conformance(OpSpec(...))*"),
    "version": (f"{IMPORTING} skipCUDAIfVersionLessThan", "*skipCUDAIf(condition, reason)*"),
    "no dtypes": ("def test_x(self, device, dtype): pass", "*test_x takes 'dtype'*add @dtypes*"),
    "mixed": ("@dtypes('int8', ('int8', 'int8'))\n    def test_x(self): pass", "*is a tuple and one is not*"),
    "only one": ("@dtypesIfCPU('int8')\n    def test_x(self, dtype): pass", "*one device type only*"),
    "twice": ("@dtypes('int8')\n    @dtypes('int8')\n    def test_x(self, dtype): pass", "*@dtypes for all twice*"),
    "size": (
        "@largeTensorTest('12 pages')\n    def test_x(self): pass",
        "*'12 pages' is not a number of bytes; write*",
    ),
    "not a dtype": ("@dtypes(4)\n    def test_x(self, dtype): pass", "*4 is not a dtype; give one of*"),
}


@pytest.mark.parametrize(("source", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_supported_says_what_to_use(pytester: pytest.Pytester, source: str, message: str) -> None:
    pytester.makepyfile(test_it=source if source.startswith("from") else f"{BEGINNING}    {source}{END}")

    result = pytester.runpytest("--device", "cpu")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


@pytest.mark.parametrize("arguments", ["only_for='cuda'", "only_for=('xpu', 'mps')", "except_for=['cpu']"])
def test_a_template_without_a_device_is_reported(pytester: pytest.Pytester, arguments: str) -> None:
    end = f"\ninstantiate_device_type_tests(TestFoo, globals(), {arguments})"
    written(pytester, "    def test_x(self, device): pass\n", end)

    result = pytester.runpytest("--device", "cpu", "-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["ran nowhere (1):", "*TestFoo::test_x: needs a device *choose more with --device"])


def test_set_up_and_helpers_of_the_template_work(pytester: pytest.Pytester) -> None:
    tests = """
    @classmethod
    def setUpClass(cls): cls.ready = [cls.device_type]
    def setUp(self): self.made = self._make()
    def _make(self): return namespace(self.get_primary_device()).zeros(2)
    def test_x(self, device):
        assert self.ready == [self.device_type] and find(device).kind == self.device_type
        self.assertEqual(self.made, np.zeros(2))
    """

    assert set(outcomes(pytester, tests, "--device", "cpu,sim").values()) == {"PASSED"}


def test_records_and_the_table_know_the_case(pytester: pytest.Pytester, tmp_path: Path) -> None:
    tests = """
    @onlyCPU
    @dtypes("float32")
    def test_x(self, device, dtype): pass
    @onlyCUDA
    def test_y(self, device): pass
    """
    written(pytester, tests)

    result = pytester.runpytest("--device", "cpu,sim", f"--cuassay-record={tmp_path / 'run.jsonl'}")

    result.stdout.fnmatch_lines(
        ["cpu:0: 1 passed, 1 skipped", "sim:0: 2 skipped", "ran nowhere (1):", "*TestFoo::test_y: *"]
    )
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    told = {row["nodeid"].rpartition("::")[2]: row for row in rows if row["record"] == "test"}
    assert told["test_x_cpu_float32"]["dtype"] == "float32"
    assert told["test_y_sim"]["device"] == "sim:0"
    assert told["test_y_sim"]["reason"].endswith("Only runs on cuda")


def test_a_test_that_fails_names_the_element(pytester: pytest.Pytester) -> None:
    found = outcomes(pytester, "    def test_x(self, device): self.assertEqual([np.ones(2)], [np.array([1, 2.])])\n")

    assert "TestFooCPU::test_x_cpu" in found
    assert found["TestFooCPU::test_x_cpu"].startswith("FAILED")
