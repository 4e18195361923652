"""ci/run gpu: each step runs whatever failed before it, and the record is there in any case."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = f"{ROOT / 'backend'}{os.pathsep}{ROOT / 'reports'}"
COMMIT = "9f3c2100aa" * 4

# Stands in for the runner's Python: writes each pytest session down and ends it as told; the rest is as it is.
FAKE_PYTHON = f"""#!/usr/bin/env bash
if [ "$1 $2" = "-m pytest" ]; then
    echo "$*" >>sessions.log
    exit "$STATUS"
fi
exec {sys.executable} "$@"
"""


@dataclass
class Outcome:
    status: int
    output: str
    sessions: list[str]
    ledger: list[Path]
    out: list[str]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of ci/ with the interpreter above."""
    shutil.copytree(ROOT / "ci", tmp_path / "ci", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in (("python", FAKE_PYTHON), ("nvidia-smi", "#!/bin/sh\necho one GPU\n")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    return tmp_path


def start(root: Path, *arguments: str, status: int = 0) -> Outcome:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUASSAY_", "PYTHON"))}
    told = {"PYTHONPATH": SOURCES, "CUASSAY_REVISION": COMMIT, "STATUS": str(status)}
    environment = {**clean, **told, "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [str(root / "ci" / "run"), "--python", str(root / "bin" / "python"), "gpu", *arguments]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=100)
    log, out = root / "sessions.log", root / "results"
    return Outcome(
        status=done.returncode,
        output=done.stdout + done.stderr,
        sessions=log.read_text().splitlines() if log.exists() else [],
        ledger=sorted((root / "reports" / "ledger").glob("*.jsonl")),
        out=sorted(file.name for file in out.iterdir()) if out.exists() else [],
    )


def test_a_good_run_ends_well_with_its_record_in_the_ledger_and_in_the_folder_asked_for(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results")

    (file,) = found.ledger
    row = json.loads(file.read_text().splitlines()[0])
    assert found.status == 0, found.output
    assert (row["commit"], row["command"]) == (COMMIT, "ci/run gpu --device sim:0")
    assert found.out == [file.name, "gpu.log", "report.html", "report.md"]


def test_both_sessions_require_the_device_and_record_into_the_run(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results")

    run = json.loads(found.ledger[0].read_text().splitlines()[0])["run"]
    suites, speed = found.sessions
    assert "suites/devices suites/nvidia" in suites
    assert "suites/speed" in speed
    assert all(
        f"--require-device sim:0 --cuassay-record results/rows.jsonl --cuassay-run {run}" in s for s in found.sessions
    )


def test_after_failed_suites_all_else_still_runs_and_the_job_fails(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results", status=3)

    assert found.status == 1
    assert "gpu failed: suites (3); speed (3);" in found.output
    assert len(found.sessions) == 2
    assert len(found.ledger) == 1
    assert "report.html" in found.out


def test_a_device_that_is_not_there_fails_the_health_check(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:9", "--out", "results")

    assert found.status == 1
    assert "gpu failed: health (1);" in found.output
    assert "sim:9 does not exist" in found.output


def test_an_unknown_argument_is_refused(checkout: Path) -> None:
    found = start(checkout, "--fast")

    assert found.status == 2
    assert "unknown argument '--fast'; it takes --device D and --out DIR" in found.output
