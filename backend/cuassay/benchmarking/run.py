"""What ``cuassay run`` does: test and measure the declared operations, each in a child process of its own.

A child that crashes, hangs in the driver or loses its device takes nothing else with it: its rows up to there are
on the disk. This file starts the children, shows how far they are, and says how they ended.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cuassay.benchmarking.record import Recorder, begin

__all__ = ["Child", "progress_line", "run"]

_GENERATED_TESTS = "cuassay.testing.conformance"
_MEASUREMENTS = "cuassay.benchmarking.measure"
_POLL_SECONDS = 0.25

#: Seconds between two lines where the output is no terminal, so that a log stays short and a watchdog stays calm.
_LINE_SECONDS = 15.0

_EXPECTED = re.compile(rb"^(?:collected|measuring) (\d+)", re.MULTILINE)


@dataclass(slots=True)
class Child:
    """One child process: what it is called, its command, where its rows and its output go."""

    name: str
    command: Sequence[str]
    rows: Path
    log: Path
    record: str
    outcomes: Counter[str] = field(default_factory=Counter)
    _read: int = 0

    def done(self) -> int:
        """Number of rows written so far."""
        if self.rows.exists():
            with self.rows.open("rb") as file:
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self._read += len(line)
                    self._count(line)
        return self.outcomes.total()

    def _count(self, line: bytes) -> None:
        with suppress(ValueError):
            row = json.loads(line)
            if row.get("record") == self.record:
                self.outcomes[row.get("outcome", "measured")] += 1

    def expected(self) -> int | None:
        """Number of rows to come in all, once the child has said so."""
        found = _EXPECTED.search(self.log.read_bytes())
        return int(found[1]) if found else None


def run(selectors: Sequence[str], out: Path, *, tests: bool = True, times: bool = True) -> int:
    """Run the children one after another and write result files into `out`.

    Parameters
    ----------
    selectors : sequence of str
        Devices as ``--device`` takes them.
    out : path
        Folder of the result files and the children's logs; created.

    Returns
    -------
    int
        0 when every test passed or was skipped with a reason and everything was measured, else 1.
    """
    out.mkdir(parents=True, exist_ok=True)
    identity = _write_run(selectors, out)
    children = [
        child for child, wanted in zip(_children(selectors, out, identity), (tests, times), strict=True) if wanted
    ]
    failed = [child.name for child in children if not _finish(child)]
    print(f"results: {out}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _write_run(selectors: Sequence[str], out: Path) -> str:
    with Recorder(out / "run.jsonl") as recorder:
        begin(recorder, f"cuassay run {' '.join(f'--device {selector}' for selector in selectors)}")
        return recorder.run


def _children(selectors: Sequence[str], out: Path, identity: str) -> Iterator[Child]:
    devices = [f"--cuassay-device={selector}" for selector in selectors]
    rows = out / "tests.jsonl"
    pytest = [sys.executable, "-m", "pytest", "--pyargs", _GENERATED_TESTS, "-q", "-ra", "-p", "no:cacheprovider"]
    # No settings and no conftest of the project around decide how the generated tests run.
    pytest += ["-c", os.devnull, "--noconftest", "--rootdir", str(out), *devices]
    pytest += [f"--cuassay-record={rows}", f"--cuassay-run={identity}"]
    yield Child("tests", [*pytest, "-v", "--no-header"], rows, out / "tests.log", "test")
    rows = out / "times.jsonl"
    measure = [sys.executable, "-m", _MEASUREMENTS, *(f"--device={selector}" for selector in selectors)]
    yield Child("times", [*measure, f"--record={rows}", f"--run={identity}"], rows, out / "times.log", "time")


def _finish(child: Child) -> bool:
    """Run `child` to its end, showing progress; True when it went well."""
    started = time.monotonic()
    with child.log.open("wb") as log, subprocess.Popen(child.command, stdout=log, stderr=subprocess.STDOUT) as process:
        shown = 0.0
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            shown = _show(child, time.monotonic() - started, shown)
    line = progress_line(child.name, child.done(), child.done(), time.monotonic() - started)
    counts = ", ".join(f"{number:,} {what}" for what, number in sorted(child.outcomes.items()))
    print(f"{_line_start()}{line}: {counts or 'nothing'}")
    if process.returncode:
        print(f"{child.name} ended with status {process.returncode}; the end of {child.log}:\n{_tail(child.log)}")
    return process.returncode == 0


def _line_start() -> str:
    return "\r\033[K" if sys.stdout.isatty() else ""


def _show(child: Child, elapsed: float, shown: float) -> float:
    """Show where `child` is, where that is due; gives when it was last shown."""
    if not sys.stdout.isatty() and elapsed - shown < _LINE_SECONDS:
        return shown
    line = progress_line(child.name, child.done(), child.expected(), elapsed)
    print(_line_start() + line, end="" if sys.stdout.isatty() else "\n", flush=True)
    return elapsed


def progress_line(name: str, done: int, expected: int | None, elapsed: float) -> str:
    """How far, since when, and how long it will take at this pace."""
    if expected is None:
        return f"{name}: starting, {elapsed:.0f} s"
    line = f"{name}: {done:,} of {expected:,}, {elapsed:.0f} s"
    if 0 < done < expected:
        line += f", about {elapsed * (expected - done) / done:.0f} s left"
    return line


def _tail(log: Path, lines: int = 40) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
