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
from json_rows import text_of

ROOT = Path(__file__).parents[3]
SOURCES = f"{ROOT / 'backend'}{os.pathsep}{ROOT / 'reports'}"
COMMIT = "9f3c2100aa" * 4

# Replaces the runner's Python: writes each pytest session down with one row of results, and ends it as told; the
# rest is as it is. SLEEP is what a session of speed takes; or it kills the job.
FAKE_PYTHON = f"""#!/usr/bin/env bash
if [ "$1 $2" = "-m pytest" ]; then
    echo "$*${{WITHOUT_MODULES:+, hidden by ${{PYTHONPATH%%:*}}: $WITHOUT_MODULES}}" >>sessions.log
    shard=whole
    while [ $# -gt 0 ]; do
        case $1 in
            --cuassay-record) rows=$2 ;;
            --cuassay-run) run=$2 ;;
            --device) device=$2 ;;
            --cuassay-shard) shard=$2 ;;
            suites/speed/*) shard=speed ;;
        esac
        shift
    done
    outcome=${{OUTCOME:-passed}}
    row='{{"record":"test","schema":1,"run":"%s","nodeid":"t.py::t[%s-%s]","outcome":"%s","device":"%s"}}\\n'
    printf "$row" "$run" "$device" "$shard" "$outcome" "$device" >>"$rows"
    echo "the last words of $shard"
    [ "$shard" = speed ] && if [ "$SLEEP" = kill ]; then kill -KILL "$(cat job)"; else sleep "$SLEEP"; fi
    [ "$shard" = "${{SPOILT:-$shard}}" ] && exit "$STATUS"
    exit 0
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


def start(root: Path, *arguments: str, status: int = 0, **more: str) -> Outcome:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUASSAY_", "PYTHON"))}
    told = {"PYTHONPATH": SOURCES, "CUASSAY_REVISION": COMMIT, "STATUS": str(status), "SLEEP": "0", **more}
    environment = {**clean, **told, "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [
        "bash",
        "-c",
        'echo $$ >job; exec "$@"',
        "-",
        str(root / "ci" / "run"),
        "--python",
        str(root / "bin" / "python"),
        "gpu",
        *arguments,
    ]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=100)
    log, out = root / "sessions.log", root / "results"
    return Outcome(
        status=done.returncode,
        output=done.stdout + done.stderr,
        sessions=log.read_text().splitlines() if log.exists() else [],
        ledger=sorted((root / "reports" / "ledger").glob("*.jsonl.gz")),
        out=sorted(file.name for file in out.iterdir()) if out.exists() else [],
    )


def test_a_good_run_ends_well_with_its_record_in_the_ledger_and_in_the_folder_asked_for(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results")

    (file,) = found.ledger
    row = json.loads(text_of(file).splitlines()[0])
    assert found.status == 0, found.output
    assert (row["commit"], row["command"]) == (COMMIT, "ci/run gpu --device sim:0")
    assert [file.name, "gpu.log", "report.html", "report.md"] == [f for f in found.out if not f.startswith("suites-")]


def test_every_session_requires_the_device_and_records_into_the_run(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results", "--jobs", "1")

    run = json.loads(text_of(found.ledger[0]).splitlines()[0])["run"]
    suites, speed = found.sessions
    assert "suites/devices suites/nvidia" in suites
    assert "--cuassay-shard" not in suites
    assert "suites/speed" in speed
    assert all(
        f"--require-device sim:0 --cuassay-record results/rows.jsonl --cuassay-run {run}" in s for s in found.sessions
    )


def test_the_suites_run_in_parts_then_what_must_be_alone_then_speed(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results", "--jobs", "3")

    shards = [session.partition("--cuassay-shard ")[2].split(" ")[0] for session in found.sessions]
    tests = [row for row in map(json.loads, text_of(found.ledger[0]).splitlines()) if row["record"] == "test"]
    assert (set(shards[:3]), shards[3:]) == ({"1/3", "2/3", "3/3"}, ["alone", ""])
    assert len({session.partition("--junit-xml ")[2].split(" ")[0] for session in found.sessions[:4]}) == 4
    assert len({row["nodeid"] for row in tests}) == 5
    assert "== outcomes\nsim:0: 4 passed\n" in found.output


def test_a_failed_part_shows_its_end(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results", "--jobs", "2", status=3, SPOILT="2/2")

    assert found.status == 1
    assert "gpu failed: suites (3);\n" in found.output
    assert "1/2: status 0: the last words of 1/2\n2/2: status 3: the last words of 2/2\n" in found.output
    assert (checkout / "results" / "suites-2.log").read_text() == "the last words of 2/2\n"


def test_after_failed_suites_all_else_still_runs_and_the_job_fails(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results", "--jobs", "2", status=3)

    assert found.status == 1
    assert "gpu failed: suites (3); alone (3); speed (3);" in found.output
    assert len(found.sessions) == 4
    assert len(found.ledger) == 1
    assert "report.html" in found.out


def test_a_device_on_which_nothing_ran_fails_the_job(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results", "--jobs", "2", OUTCOME="skipped")

    assert found.status == 1
    assert "ERROR required device sim:0: no test passed or failed on it; there were 3 skipped" in found.output
    assert "gpu failed: outcomes (1);" in found.output


def test_speed_that_outlasts_the_time_given_is_cut_short_and_the_record_is_whole(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results", "--jobs", "1", "--seconds", "20", SLEEP="60")

    assert found.status == 0, found.output
    assert "gpu passed; speed was cut short by --seconds 20: what it had measured is kept" in found.output
    assert "t.py::t[sim:0-speed]" in text_of(found.ledger[0])


def test_a_job_killed_in_speed_has_left_its_ledger(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results", "--jobs", "1", SLEEP="kill")

    assert "t.py::t[sim:0-whole]" in text_of(found.ledger[0])
    assert "t.py::t[sim:0-speed]" not in text_of(found.ledger[0])


def test_a_device_that_is_not_there_fails_the_health_check(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:9", "--out", "results")

    assert found.status == 1
    assert "gpu failed: health (1);" in found.output
    assert "sim:9 does not exist" in found.output


def test_hidden_modules_are_hidden_in_every_session_and_the_ledger_says_so(checkout: Path) -> None:
    found = start(checkout, "--device", "sim:0", "--out", "results", "--jobs", "2", "--without", "nvmath,cuda.core")

    row = json.loads(text_of(found.ledger[0]).splitlines()[0])
    assert found.status == 0, found.output
    assert len(found.sessions) == 4
    assert {one.partition(", hidden by ")[2] for one in found.sessions} == {f"{checkout}/ci/without: nvmath,cuda.core"}
    assert row["command"] == "ci/run gpu --device sim:0 --without nvmath,cuda.core"
    assert "hidden, as if not installed: nvmath,cuda.core" in found.output


def test_a_module_that_nothing_can_be_without_is_refused(checkout: Path) -> None:
    found = start(checkout, "--without", "nvmath,cuda-core")

    assert found.status == 2
    assert "cuda-core is not an optional module; --without takes: nvmath torch cuda.core numba" in found.output


def test_an_unknown_argument_is_refused(checkout: Path) -> None:
    found = start(checkout, "--fast")

    assert found.status == 2
    assert (
        "unknown argument '--fast'; it takes --device D, --out DIR, --jobs N, --seconds S and --without M,..."
        in found.output
    )
