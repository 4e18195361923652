"""pytest-benchmark under xdist, and turned off: no run that was asked for figures ends well without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TEST = """
def test_speed(device_benchmark):
    device_benchmark(lambda: None, "cpu")
"""


@pytest.mark.parametrize("option", ["--benchmark-json=b.json", "--benchmark-only", "--benchmark-autosave"])
def test_figures_that_workers_would_not_measure_are_refused(pytester: pytest.Pytester, option: str) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    pytester.makepyfile(TEST)

    result = pytester.runpytest_subprocess("-n2", option, "--device", "cpu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*workers of xdist measure none; add -n0*"])


def test_a_benchmark_that_a_worker_cannot_record_is_an_error(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    pytester.makepyfile(TEST, test_other="def test_other(): pass")

    result = pytester.runpytest_subprocess("-n2", "-W", "error", "--cuassay-record=r.jsonl", "--device", "cpu")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*workers of xdist measure none*add -n0*--benchmark-disable*"])


def test_a_benchmark_that_runs_once_is_recorded_as_a_test(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    pytester.makepyfile(TEST)

    result = pytester.runpytest_subprocess("-n2", "--cuassay-record=r.jsonl", "--benchmark-disable", "--device", "cpu")

    result.assert_outcomes(passed=1)


def test_with_n0_they_are_measured(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # this test may itself run in a worker
    pytester.makepyfile(TEST)

    result = pytester.runpytest_subprocess("-n0", "--benchmark-json=b.json", "--device", "cpu")

    result.assert_outcomes(passed=1)
    assert "test_speed" in (pytester.path / "b.json").read_text()


def test_without_pytest_benchmark_the_test_is_skipped_with_the_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)

    result = pytester.runpytest_subprocess("-p", "no:benchmark", "-rs", "--device", "cpu")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*pytest-benchmark is turned off*"])


PARAMETRIZED = """
import pytest

class Size:
    name = "large"

@pytest.mark.parametrize("size", [Size()], ids=["large"])
def test_speed(device, size, device_benchmark):
    device_benchmark(lambda: sum(range(100)), device)
"""


@pytest.fixture
def saved(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a run that pytest-benchmark saved."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(PARAMETRIZED)
    pytester.runpytest_subprocess("--benchmark-autosave", "--device", "cpu").assert_outcomes(passed=1)
    (path,) = pytester.path.glob(".benchmarks/*/*.json")
    return path


def test_parameters_are_plain_and_the_fingerprint_is_in_machine_info(saved: Path) -> None:
    told = json.loads(saved.read_text())

    assert told["benchmarks"][0]["params"] == {"device": "cpu:0", "size": "large"}
    assert told["machine_info"]["cuassay"]["cpu:0"]["kind"] == "cpu"


def test_a_comparison_on_the_same_machine_is_made(pytester: pytest.Pytester, saved: Path) -> None:
    result = pytester.runpytest_subprocess("--benchmark-compare", "--device", "cpu")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*test_speed*"])


def test_a_comparison_across_hard_facts_is_refused(pytester: pytest.Pytester, saved: Path) -> None:
    told = json.loads(saved.read_text())
    told["machine_info"]["cuassay"]["cpu:0"]["cpu"] = "Another CPU"
    saved.write_text(json.dumps(told))

    result = pytester.runpytest_subprocess("--benchmark-compare", "--device", "cpu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["ERROR cuassay: the saved times are not comparable, cpu:0: cpu Another CPU -> *"])
    result.stdout.no_fnmatch_line("*(NOW)*")
