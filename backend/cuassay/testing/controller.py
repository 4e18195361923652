"""``pytest --cuassay-isolate``: this process collects and reports, and a worker process runs the tests.

If the worker ends, only the test that it ran is affected: it is reported once, as failed, and the other tests go on in
a fresh process. A failure of the machine (see `cuassay.testing.infrastructure`) is not reported; the test runs again,
once. The worker's side is `cuassay.testing.isolated`.
"""

from __future__ import annotations

import builtins
import signal
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.testing.case_columns import case_columns
from cuassay.testing.child import Child, Children
from cuassay.testing.forking import can_fork
from cuassay.testing.sending import Key, Sent, keyed, restored

if TYPE_CHECKING:
    from cuassay.core.device import Device
    from cuassay.testing.presence import Presence

__all__ = ["Controller", "refuse_debugger"]

#: Workers in a row that may end before their first test. After that many, the next would end in the same way.
_FALSE_STARTS = 2


def refuse_debugger(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` if a debugger is requested, because the worker has no terminal."""
    for name in ("usepdb", "trace"):
        if config.getoption(name, default=False):
            asked = {"usepdb": "--pdb"}.get(name, f"--{name}")
            raise pytest.UsageError(f"{asked} needs the tests in this process; leave out --cuassay-isolate")


class Controller:
    """A pytest plugin that gives the collected tests to workers, and reports their results as if they ran here."""

    def __init__(self, config: pytest.Config, presence: Presence) -> None:
        self._config = config
        self._children = Children(config, presence)
        self._child: Child | None = None
        self._items: dict[Key, pytest.Item] = {}
        self._waiting: dict[Key, None] = {}
        self._running: Key | None = None
        self._reports: list[pytest.TestReport] = []
        self._again: dict[Key, str] = {}
        self._verdicts: list[str] = []
        self._stop: tuple[str, str] = ("", "")
        self._undescribed: list[str] = []

    def __repr__(self) -> str:
        return f"Controller({len(self._waiting)} tests to run, {self._children.count} processes)"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Start the first worker if it cannot be forked, so that it collects while this process does."""
        if not self._config.option.collectonly and self._children.why_started():
            self._start(None)

    def _start(self, session: pytest.Session | None) -> Child:
        self._child = self._children.take(session)
        return self._child

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say why workers are not forked from this process, because starting them takes longer."""
        why = self._children.why_started() if can_fork() and not self._config.option.collectonly else None
        return [f"cuassay: each worker collects for itself: {why}"] if why else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests in workers; leave sessions without tests to pytest."""
        if not self.is_run_by_workers(session):
            return None
        self._items = dict(zip(keyed(item.nodeid for item in session.items), session.items, strict=True))
        self._waiting = dict.fromkeys(self._items)
        false_starts = 0
        try:
            while self._waiting and not any(self._stop):
                before = len(self._waiting), len(self._again)
                self._run_worker(session)
                false_starts = false_starts + 1 if before == (len(self._waiting), len(self._again)) else 0
                if false_starts == _FALSE_STARTS:
                    self._fail(session, f"{false_starts} workers in a row ended before their first test")
        except (KeyboardInterrupt, session.Interrupted):
            if self._child is not None:
                self._child.interrupt()
            raise
        self._children.dismiss()
        if self._waiting:
            self._fail(session, self._stop[0] or self._stop[1])
        return True

    @staticmethod
    def is_run_by_workers(session: pytest.Session) -> bool:
        """Whether the session has tests for workers to run."""
        is_refused = bool(session.testsfailed) and not session.config.option.continue_on_collection_errors
        return bool(session.items) and not session.config.option.collectonly and not is_refused

    def describe(self, devices: Iterable[Device]) -> None:
        """Have a worker describe these devices for the record, because this process must not touch them."""
        self._undescribed = list(map(str, devices))

    @staticmethod
    def _fail(session: pytest.Session, reason: str) -> None:
        session.shouldfail = reason
        raise session.Failed(reason)

    # ---------------------------------------------------------------------------------------------- one worker

    def _run_worker(self, session: pytest.Session) -> None:
        """Give the waiting tests to one worker, and handle its messages until it ends."""
        child = self._child or self._start(session)
        child.run((list(self._waiting), session.testsfailed, self._undescribed))
        is_ended = False
        for name, *values in child.messages():
            is_ended = is_ended or name == "end"
            getattr(self, f"_on_{name}")(*values)
            if session.shouldfail and name == "finish":
                break  # the worker stops at the same test by itself
            if session.shouldstop and not any(self._stop):
                raise session.Interrupted(session.shouldstop)
        if session.shouldfail:
            self._await_end(child)
            raise session.Failed(session.shouldfail)
        if not is_ended:
            self._report_death(child)
        elif (how := child.bad_end()) is not None:
            self._verdicts.append(f"a worker ended after its last test: {how}")
        self._close()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)

    def _await_end(self, child: Child) -> None:
        for name, *_ in child.messages():
            if name == "start":
                child.process.send_signal(signal.SIGINT)
        self._close()

    def _close(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            child.close()
            child.node.went_down(None if hasattr(child.node, "workeroutput") else "it came to no end")

    def _on_ready(self) -> None:
        """Nothing to do: the worker has collected."""

    def _on_devices(self, rows: Sequence[dict[str, object]]) -> None:
        self._undescribed = []
        recording: Any = self._config.pluginmanager.get_plugin("cuassay_recording")
        recording.write_devices(rows)

    def _on_start(self, key: Key, location: tuple[str, int | None, str]) -> None:
        self._running, self._reports = key, []
        if self._child is not None:
            self._child.since = time.monotonic()
        if len(self._waiting) > 1:
            self._children.prepare()
        item = self._items[key]
        item.__dict__["location"] = location  # a cached property, which takes longer than the rest of this method
        self._config.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)

    def _on_finish(self, key: Key, reports: Sequence[Sent]) -> None:
        self._reports = [restored(self._config, sent) for sent in reports]
        causes = [report.cuassay_infrastructure for report in self._reports if _is_infrastructure(report)]
        if causes and key not in self._again:
            self._again[key] = causes[0]
            self._children.move()
            self._waiting[key] = self._waiting.pop(key)  # runs after the others
            self._running = None
        else:
            self._publish(key)

    def _publish(self, key: Key) -> None:
        """Report the test to all plugins of this process."""
        if self._child is not None:
            self._child.since = None
        item, self._running = self._items[key], None
        del self._waiting[key]
        for report in self._reports:
            self._config.hook.pytest_runtest_logreport(report=report)
        self._config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _on_missing(self, keys: Sequence[Key]) -> None:
        for key in keys:
            told = "it was collected here and not in the worker; let collecting give the same tests in each process"
            self._reports = list(_lost(self._items[key], "not collected", told, 0.0))
            self._publish(key)

    def _on_warning(self, plain: tuple[str, str, str, int], nodeid: str, location: Any) -> None:
        message, name, filename, lineno = plain
        category = getattr(builtins, name, None) or type(name, (Warning,), {})
        recorded = warnings.WarningMessage(category(message), category, filename, lineno)
        told = {"warning_message": recorded, "when": "runtest", "nodeid": nodeid, "location": location}
        self._config.hook.pytest_warning_recorded.call_historic(kwargs=told)

    def _on_exit(self, reason: str, status: int | None) -> None:
        if self._child is not None:
            self._child.interrupt()
        pytest.exit(reason, returncode=status)

    def _on_end(self, shouldfail: str, shouldstop: str, output: dict[str, Any]) -> None:
        self._stop = (shouldfail, shouldstop)
        if self._child is not None:
            self._child.node.workeroutput = output

    def _report_death(self, child: Child) -> None:
        """Report the test that ran when the worker died."""
        outcome, how = child.death()
        if self._running is None:
            last = "before its first test" if len(self._waiting) == len(self._items) else "between two tests"
            self._verdicts.append(f"a worker ended {last}: {how.replace('its process', 'it')}")
            return
        key = self._running
        seconds = time.monotonic() - (child.since or time.monotonic())
        self._reports = list(_lost(self._items[key], outcome, f"{how}\n{child.stacks()}".strip(), seconds))
        child.trail.add_to(self._reports[0].longrepr)
        self._publish(key)

    # ---------------------------------------------------------------------------------------------- the end

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """Show how a test was lost, or that the machine failed it twice."""
        outcome = "failed by the machine" if _is_infrastructure(report) else getattr(report, "cuassay_lost", None)
        return ("failed", "L", (outcome.upper(), {"red": True})) if outcome and report.failed else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Close the last worker; fail the session if a worker died outside of a test."""
        self._close()
        if self._verdicts and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the tests that ran again, and the number of processes."""
        again = [f"  {nodeid}: {why}" for (nodeid, _), why in self._again.items()]
        if again or self._verdicts or self._children.count > 1:
            terminalreporter.section("cuassay isolation")
            terminalreporter.write_line(f"{self._children.count} worker processes ran the tests")
        if again:
            terminalreporter.write_line(f"failed by the machine, and run again in a fresh process ({len(again)}):")
        for line in again:
            terminalreporter.write_line(line)
        for verdict in self._verdicts:
            terminalreporter.write_line(f"ERROR {verdict}", red=True)

    def pytest_unconfigure(self) -> None:
        """Kill a worker that is left, so that none outlives the session."""
        if self._child is not None:
            self._child.process.kill()
        self._close()
        self._children.dismiss()


def _is_infrastructure(report: pytest.TestReport) -> bool:
    return bool(getattr(report, "cuassay_infrastructure", None))


def _lost(item: pytest.Item, outcome: str, how: str, seconds: float) -> Iterator[pytest.TestReport]:
    """The reports for a test whose worker died before sending any: a failed call and an empty teardown."""
    try:
        pytest.fail(f"{outcome}: {how}", pytrace=False)
    except pytest.fail.Exception as error:
        shown = pytest.ExceptionInfo.from_exception(error).getrepr(style="value")
    told = case_columns(item)
    properties = [*item.user_properties, *((name, told[name]) for name in ("device", "dtype", "op") if name in told)]
    for when, result, text in (("call", "failed", shown), ("teardown", "passed", None)):
        report = pytest.TestReport(
            item.nodeid, item.location, dict.fromkeys(item.keywords, 1), result, text, when,  # type: ignore[arg-type]
            user_properties=properties, duration=seconds if when == "call" else 0.0,
        )  # fmt: skip
        report.__dict__["cuassay_lost"] = outcome
        if told:
            report.__dict__["cuassay"] = told
        yield report
