"""The bridge to pytest-benchmark: once as a test by default, measured when asked, figures where people look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuassay.benchmarking import measure
from cuassay.testing.opspec import own_specs

BENCHMARK = """
    import numpy as np
    from cuassay import from_host, ops
    from cuassay.testing import devices
    from cuassay.testing.opspec import Work

    @devices("sim")
    def test_add(device, device_benchmark):
        a = from_host(np.ones(1000, np.float32), device)
        found = device_benchmark(
            {"cuassay": lambda: ops.add(a, a), "peer": lambda: ops.mul(a, a)}, device, work=Work(bytes=12000), op="add"
        )
        print("series:", *found)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the sessions inside are no worker's
    pytester.makeconftest("from cuassay.benchmarking.pytest_benchmark import device_benchmark")
    pytester.makepyfile(BENCHMARK)
    return pytester


@pytest.mark.parametrize("arguments", [[], ["--benchmark-disable"], ["--benchmark-disable", "--benchmark-json=b.json"]])
def test_a_benchmark_runs_once_as_a_test_by_default(project: pytest.Pytester, arguments: list[str]) -> None:
    result = project.runpytest_subprocess("-s", "--device", "sim", *arguments)

    result.stdout.fnmatch_lines(["*series:"])
    result.stdout.no_fnmatch_line("*Name (time in*")
    result.assert_outcomes(passed=1)


def test_asked_to_measure_it_shows_pytest_benchmarks_table(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("-s", "--device", "sim", "--benchmark-only")

    result.stdout.fnmatch_lines(["*series: cuassay peer", "*Name (time in us)*", "test_add[[]sim:0[]]*"])
    result.assert_outcomes(passed=1)


def test_the_json_holds_device_samples_and_rates(project: pytest.Pytester) -> None:
    project.runpytest_subprocess("--device", "sim", "--benchmark-json=b.json")

    (benchmark,) = json.loads((project.path / "b.json").read_text())["benchmarks"]

    told = benchmark["extra_info"]
    assert (told["device"], told["clock"], told["cache"], told["op"]) == ("sim:0", "device", "cold", "add")
    assert told["bytes_per_s"] == pytest.approx(12000 / benchmark["stats"]["median"])
    assert told["peer_median_s"] > 0


def test_two_runs_can_be_compared(project: pytest.Pytester) -> None:
    project.runpytest_subprocess("--device", "sim", "--benchmark-autosave")

    result = project.runpytest_subprocess("--device", "sim", "--benchmark-compare")

    result.stdout.fnmatch_lines(["test_add[[]sim:0[]] (*", "test_add[[]sim:0[]] (*"])


def test_the_measuring_child_says_how_much_and_writes_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tuple(spec for spec in own_specs() if spec.name in ("add", "matmul"))
    monkeypatch.setattr(measure, "own_specs", lambda: few)

    status = measure.main(["--device", "sim", "--record", str(tmp_path / "times.jsonl"), "--run", "r1"])

    rows = [json.loads(line) for line in (tmp_path / "times.jsonl").read_text().splitlines()]
    times = [row for row in rows if row["record"] == "time"]
    assert status == 0
    assert capsys.readouterr().out.startswith("measuring 6 cases\n")
    assert {row["run"] for row in rows} == {"r1"}
    assert {(row["benchmark"], row["device"], row["clock"]) for row in times} == {
        ("add", "sim:0", "device"),
        ("matmul", "sim:0", "device"),
    }
    assert len(times) == 6
    assert [row["limit"] for row in rows if row["record"] == "limit"] == ["bandwidth", "compute", "compute", "launch"]
