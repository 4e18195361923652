"""``ci/nvbench_check.py``: what counts as agreement with NVBench, and why the check is skipped where it cannot run."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay import Device
from cuassay.benchmarking.timing import Timing


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "ci")
    return importlib.import_module("nvbench_check")


def series(median_s: float, **columns: Any) -> Timing:
    return Timing((median_s,) * 30, (), "device", "cold", **{"queued": True, **columns})


@pytest.mark.parametrize(
    ("ours", "theirs_s", "explanation"),
    [
        pytest.param(series(101e-6), 100e-6, "", id="within-the-tolerance"),
        pytest.param(series(105e-6), 100e-6, None, id="beyond-it"),
        pytest.param(series(95e-6), 100e-6, None, id="beyond-it-below"),
        pytest.param(series(5.5e-6), 5e-6, "at most two steps of the event clock", id="a-step"),
        pytest.param(series(30e-6, queued=False), 19e-6, "our series is live: it contains gaps of the host", id="live"),
        pytest.param(series(105e-6, settled=False), 100e-6, "our series did not settle", id="unsettled"),
        pytest.param(
            series(105e-6, throttled=3), 100e-6, "the GPU was throttled during 3 of 30 of our samples", id="throttled"
        ),
    ],
)
def test_a_difference_is_within_two_percent_or_explained(
    script: Any, ours: Timing, theirs_s: float, explanation: str | None
) -> None:
    row = script.compared("add", ours, theirs_s, written=lambda: ours)

    assert row["explanation"] == explanation


@pytest.mark.parametrize(
    ("written_s", "explanation"),
    [(14.2e-6, "NVBench's samples write back its flush; so flushed, ours takes 14.20 µs"), (11.6e-6, None)],
)
def test_a_flush_by_writing_explains_what_it_reproduces(script: Any, written_s: float, explanation: str | None) -> None:
    row = script.compared("sum", series(11.4e-6), 14.3e-6, written=lambda: series(written_s))

    assert (row["explanation"], row["written_s"]) == (explanation, written_s)


def test_without_a_gpu_the_check_is_skipped_with_the_reason(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--device", "sim"]) == 0
    assert capsys.readouterr().out == "skipped: NVBench measures CUDA devices; got sim:0\n"


def test_the_ten_operations_are_declared_and_have_a_benchmark(script: Any) -> None:
    found = script.chosen(Device("sim"))

    assert set(found) == {script.CONTROL, *script.NAMES}
    assert len(script.NAMES) == 10
    for call in found.values():
        call()


def test_without_nvbench_the_reason_says_what_to_install(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuassay import devices

    monkeypatch.setattr(type(devices.backend("cuda")), "why_absent", lambda self: None)
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)

    assert script.why_skipped(Device("cuda:0")) == "NVBench is not installed; install cuda-bench"


def test_a_measurement_without_samples_ends_with_its_reason(script: Any) -> None:
    state = SimpleNamespace(samples=None, skip_reason=None)

    with pytest.raises(SystemExit, match="kept no sample of add: it discarded every sample as throttled"):
        script._median("add", state)
