"""pytest-benchmark under xdist, and turned off: no run that was asked for figures ends well without them."""

from __future__ import annotations

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

    result = pytester.runpytest_subprocess("-n2", "--cuassay-record=r.jsonl", "--device", "cpu")

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
