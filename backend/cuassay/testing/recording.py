"""Write the outcomes of a session as rows of a result file.

Only the process that prints the summary writes: under xdist the controller, from the workers' reports. A row is written
before each test, so that a record names the test during which the process died. A row that cannot be written stops no
test. It is counted, reported at the end, and makes the session fail.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.core.device import Device
from cuassay.errors import ArgumentError
from cuassay.results.part import TESTS, Part
from cuassay.results.record import Recorder, begin
from cuassay.testing import rerun
from cuassay.testing.device_facts import device_columns
from cuassay.testing.infrastructure import FAILED_BY_THE_MACHINE
from cuassay.testing.summary import first_line
from cuassay_reports.columns import SERIES

if TYPE_CHECKING:
    from cuassay.benchmarking.conditions import Watch
    from cuassay.testing.presence import Presence

__all__ = ["TIMELINE", "Recording"]

#: The property of a report that names the page with the test's timeline.
TIMELINE = "cuassay_timeline"

#: The most modules that are named if they could not be collected.
_NAMED = 3

#: The report's entries that become columns of its row.
_CARRIED = ("device", "dtype", "op", "check", "template", "headroom", "error_map")


class Recording:
    """A pytest plugin that writes the run, its devices and each test's outcome to one file.

    Parameters
    ----------
    path : Path
        The file.
    presence : Presence
        The session's devices.
    run : str or None
        The id of a run that another process has begun; None to begin one.
    root : Path
        The root of the project; paths below it are written relative to it.
    shard : str, optional
        The part of the run's tests that this session runs, such as ``2/4``; by default all.
    """

    def __init__(
        self, path: Path, presence: Presence, *, run: str | None, root: Path, shard: str | None = None
    ) -> None:
        self._recorder = Recorder(path, run=run)
        self._part = Part(self._recorder, f"{TESTS} {shard}" if shard else TESTS)
        self._writes_run = run is None
        self._presence = presence
        self._root = root
        self._open: dict[str, list[pytest.TestReport]] = {}
        self._test = ""
        self._watch: Watch | None = None
        self._timed: dict[tuple[object, ...], str] = {}
        self._planned = self._done = 0
        self._not_collected: list[str] = []

    def __repr__(self) -> str:
        return f"Recording({self._recorder!r})"

    @property
    def run(self) -> str:
        """The id of the run; other writers to the same file use it too."""
        return self._recorder.run

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be collected, because its tests are not in the plan."""
        if report.failed:
            self._not_collected.append(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Any:
        """Write the run, the plan and the devices before the first test."""
        if self._writes_run:
            self._write_run(session.config)
        if not session.config.option.collectonly:
            self._plan(len(session.items))
        devices = self._presence.devices if self._presence.is_decided else ()
        controller = session.config.pluginmanager.get_plugin("cuassay_controller")
        if controller is not None and controller.is_run_by_workers(session):
            controller.describe(devices)
        else:
            self.write_devices(map(device_columns, devices))
        for kind, reason in self._presence.absent.items():
            self._part.write("device", device=f"{kind}:0", present=False, reason=reason)
        return (yield)

    def write_devices(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Write rows of devices, as `device_columns` returns them."""
        for row in rows:
            self._part.write("device", **row)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Write the plan under xdist, where the workers collect, all of them the same tests."""
        if len(ids) != self._planned:
            self._plan(len(ids))

    def _plan(self, number: int) -> None:
        self._planned = number
        self._part.plan(tests=number)

    def _write_run(self, config: pytest.Config) -> None:
        words = [_relative(word, self._root) for word in config.invocation_params.args]
        begin(self._part, " ".join(["pytest", *words]), self._root)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember which test the next times belong to, and write it in case the process dies."""
        self._test = nodeid
        self._part.begin(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store a test's three reports, and write its row with the last one."""
        phases = self._open.setdefault(report.nodeid, [])
        phases.append(report)
        if report.when not in ("setup", "call"):  # the teardown, or a worker's crash, which has no phase
            del self._open[report.nodeid]
            self._write_test(_row(phases))

    def _write_test(self, row: dict[str, object]) -> None:
        self._done += 1
        self._part.write("test", **row)

    def look(self, device: Device) -> None:
        """Record the clocks, power and temperature of `device` at intervals, as long as calls follow."""
        if self._watch is None:
            from cuassay.benchmarking.conditions import Watch  # imports the timer, which few sessions need

            self._watch = Watch(self._part.write)
        self._watch.look(device)

    def write_time(self, **columns: object) -> None:
        """Write one measured series of this run.

        Raises
        ------
        ArgumentError
            If another test has recorded the same series, because a report would keep only the last one.
        """
        first = self._timed.setdefault(tuple(map(columns.get, SERIES)), self._test)
        if first != self._test:
            told = [columns.get(name) for name in ("benchmark", "case", "dtype", "implementation")]
            raise ArgumentError(
                f"{first} has recorded the figures of {', '.join(map(str, filter(None, told)))} on {columns['device']} "
                "in this run, and a report keeps one of them; give this a name of its own: name= of an OpSpec, op= or "
                "case= of device_benchmark"
            )
        self._part.write("time", **columns)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write how the session ended; if it stopped early, or rows were lost, it does not succeed."""
        if session.config.option.collectonly:
            return
        self._write_unfinished()
        if self._watch is not None:
            self._watch.close()
        reason = self._why_early(session, exitstatus)
        self._part.end(reason)
        if (reason or self._part.lost) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write_unfinished(self) -> None:
        for phases in self._open.values():
            row = _row(phases)
            if row["outcome"] == "passed":  # only the phases so far
                told = "the session ended before this test did"
                row |= {"outcome": "error", "message": told, "reason": told}
            self._write_test(row)
        self._open.clear()

    def _why_early(self, session: pytest.Session, exitstatus: int) -> str | None:
        """Why the session ended before its last test, or None."""
        told = [str(session.shouldfail or session.shouldstop or "")] if self._done < self._planned else []
        if exitstatus == pytest.ExitCode.INTERRUPTED:
            told.insert(0, "interrupted")
        if exitstatus == pytest.ExitCode.INTERNAL_ERROR:
            told.insert(0, "pytest failed")
        if self._not_collected:
            told.append(f"{len(self._not_collected)} not collected: {', '.join(self._not_collected[:_NAMED])}")
        if self._done < self._planned and not any(told):
            told = [f"ended after {self._done:,} of {self._planned:,} tests"]
        return ", ".join(filter(None, told)) or None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report the rows that could not be written."""
        if self._part.lost:
            terminalreporter.write_line(f"ERROR cuassay: {self._part.told()}", red=True)

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        self._recorder.close()


def _row(phases: list[pytest.TestReport]) -> dict[str, object]:
    told: dict[str, object] = {}
    for report in phases:
        told |= getattr(report, "cuassay", {})
    decisive = _decisive(phases)
    target = str(told.get("target", quote(decisive.nodeid)))
    told = {name: value for name, value in told.items() if name in _CARRIED}
    outcome = _outcome(decisive)
    row = {
        "nodeid": decisive.nodeid,
        "outcome": outcome,
        "duration": float(sum(report.duration for report in phases)),
        "reason": _reason(decisive, outcome),
        **told,
    }
    pages = [page for report in phases for name, page in report.user_properties if name == TIMELINE]
    if pages:
        row["timeline"] = str(pages[0])
    if outcome not in ("failed", "error"):
        row.pop("error_map", None)  # a failed comparison that the test expected
    else:
        row |= {"message": _portable(decisive.longreprtext), "reproduce": rerun.line(target, told.get("device"))}
    return row


def _decisive(phases: list[pytest.TestReport]) -> pytest.TestReport:
    """The report that determines the outcome: that of a failure, or else a skip, or else the call."""
    for outcome in ("failed", "skipped"):
        for report in phases:
            if report.outcome == outcome:
                return report
    return next((report for report in phases if report.when == "call"), phases[-1])


def _outcome(report: pytest.TestReport) -> str:
    if report.outcome == "failed":
        is_own = report.when == "call" and not _other_cause(report)
        return "failed" if is_own else "error"
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "passed"
    return report.outcome


def _other_cause(report: pytest.TestReport) -> str:
    """Why a test failed that is not to blame: its process was lost, or the machine failed; otherwise empty."""
    is_machine = hasattr(report, "cuassay_infrastructure")
    return FAILED_BY_THE_MACHINE if is_machine else getattr(report, "cuassay_lost", "")


def _reason(report: pytest.TestReport, outcome: str) -> str | None:
    if outcome == "passed":
        return None
    if outcome == "xfailed":
        return str(getattr(report, "wasxfail", ""))
    what, line = _other_cause(report), first_line(report).removeprefix("Failed: ")
    return _portable(line if line.startswith(what) else f"{what}: {line}")


#: Paths up to the installed packages or the standard library, and paths of pytest's temporary folders.
_LIBRARY = re.compile(r"(?<![\w.])/[^\s:'\"]*/(?=(?:site|dist)-packages/|python3\.\d+/)")
_TEMPORARY = re.compile(r"(?<![\w.])/[^\s:'\"]*/pytest-of-[^/\s]+/pytest-\d+/")


def _portable(text: str) -> str:
    """The text without this machine's paths of libraries and temporary files, so that equal failures read alike."""
    return _TEMPORARY.sub("TMP/", _LIBRARY.sub("", text))


def _relative(word: object, root: Path) -> str:
    """A word of the command line, without this machine's path to the project or the interpreter."""
    text = str(word).replace(f"{root}/", "").replace(f"{sys.prefix}/", "")
    name, equals, value = text.rpartition("=")
    return name + equals + (Path(value).name if value.startswith("/") else value)
