"""ci/judge_times.py on the simulated device, with one small candidate and one verdict: what it prints and keeps."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

CI = Path(__file__).parents[3] / "ci"

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="candidates are judged on Linux")

DECLARED = """
from cuassay.testing import OpSpec

doubled = OpSpec(
    fn=lambda xp, a: a * 2,
    name="doubled",
    dtypes=("float32",),
    samples=lambda make: [make((3, 5))],
    reference=lambda a: a * 2,
    bench=lambda make, sizes: [make((8, 9))],
)
"""


@pytest.fixture
def judge_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with one declaration of an operation on small arrays and one candidate for it."""
    monkeypatch.syspath_prepend(str(CI))
    script = importlib.import_module("judge_times")
    (tmp_path / "spec.py").write_text(DECLARED)
    (tmp_path / "doubled.py").write_text("def run(xp, a):\n    return a + a\n")
    monkeypatch.setattr(script, "TIMED", tmp_path)
    monkeypatch.setattr(script, "CANDIDATES", {"program": ("doubled",), "kernel": ("of_a_gpu_only",)})
    return script


def test_each_verdict_is_told_and_kept(
    judge_times: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.json"

    status = judge_times.main(["--device", "sim", "--nonces", "2", "--copies", "0", "--out", str(rows)])

    kept = json.loads(rows.read_text(encoding="utf-8"))
    assert status == 0
    assert [(row["tier"], row["name"], row["verdict"]) for row in kept] == [("program", "doubled", "correct")] * 2
    assert all(row["measured"] > 0 for row in kept)
    assert all(bool(row["withheld"]) is (row["judged"] is None) for row in kept)
    assert "program doubled: 2 verdicts, " in capsys.readouterr().out


def test_verdicts_a_second_are_counted(judge_times: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    judge_times.main(["--device", "sim", "--nonces", "0", "--copies", "2", "--jobs", "2"])

    assert "2 verdicts with --jobs 2 in " in capfd.readouterr().out


def test_an_empty_call_is_timed(
    judge_times: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judge_times, "EMPTY_SHAPE", (3, 5))

    judge_times.main(["--device", "cpu", "--nonces", "0", "--copies", "0", "--empty", "8"])

    assert capsys.readouterr().out.startswith("an empty call, 60 bytes: ")
