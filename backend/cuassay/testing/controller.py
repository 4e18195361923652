"""``pytest --cuassay-isolate``: this process collects and reports, and a worker process runs the tests.

What ends the worker costs the test that it ran: that one is reported once, as failed, and the rest goes on in a fresh
process. A failure of the machine, as `cuassay.testing.infrastructure` tells them from those of a test, is not reported
but run again, once. The other side is `cuassay.testing.isolated`.
"""

from __future__ import annotations

import builtins
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.core import settings
from cuassay.results.lifeline import Lifeline
from cuassay.testing.isolated import Key, keyed
from cuassay.testing.told import told_of
from cuassay.testing.trail import Trail

if TYPE_CHECKING:
    from cuassay.testing.presence import Presence

__all__ = ["Controller", "refuse_debugger"]

_WORKER = "cuassay.testing.isolated"

#: Milliseconds between two looks at a worker that sends nothing.
_POLL_MS = 100

#: Seconds that a worker may take to end by itself, and that its own guard may be late.
_PATIENCE_SECONDS = 10.0

#: Workers in a row that may end before their first test: a third would end as they did.
_FALSE_STARTS = 2

#: Lines of a stack that say nothing of the test.
_OTHERS = re.compile(
    r'^  File ".*/(_pytest|pluggy|cuassay/testing|cuassay/results)/|^  File "<frozen runpy>"|^Extension modules'
)

_Message = tuple[Any, ...]


def refuse_debugger(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` where tests are to be debugged: the worker has no terminal."""
    for name in ("usepdb", "trace"):
        if config.getoption(name, default=False):
            asked = {"usepdb": "--pdb"}.get(name, f"--{name}")
            raise pytest.UsageError(f"{asked} needs the tests in this process; leave out --cuassay-isolate")


class _Child:
    """One worker process, the pipes to it, and the file in which it leaves the stacks of a crash."""

    def __init__(self, config: pytest.Config, presence: Presence) -> None:
        theirs, self._orders = Pipe(duplex=False)
        self._reports, sent = Pipe(duplex=False)
        self._ready = select.poll()
        self._ready.register(self._reports, select.POLLIN)
        self._faults = TemporaryFile()  # noqa: SIM115  closed with the child
        shared = TemporaryFile()  # noqa: SIM115  closed below: the pages keep it
        Trail.make_room(shared)
        self.trail = Trail(shared.fileno())
        self._lifeline = Lifeline()
        self.limit = float(settings.get("CUASSAY_HANG_SECONDS"))
        self.since: float | None = None
        command = [_WORKER, str(theirs.fileno()), str(sent.fileno())]
        self.process = subprocess.Popen(
            self._lifeline.command(command),
            cwd=config.invocation_params.dir,
            pass_fds=[*self._lifeline.inherited, *(one.fileno() for one in (theirs, sent, self._faults, shared))],
        )
        told: dict[str, object] = {
            "cuassay_replaced_by": "us",
            "cuassay_faults": self._faults.fileno(),
            "cuassay_trail": shared.fileno(),
        }
        for one in (theirs, sent, shared):
            one.close()
        if presence.is_explicit or presence.is_decided:
            told["cuassay"] = presence.to_worker()
        words = [os.fspath(word) for word in config.invocation_params.args]
        self._order({"workerinput": told, "args": words, "path": sys.path})

    def __repr__(self) -> str:
        return f"_Child({self.process.pid})"

    def _order(self, message: object) -> None:
        with suppress(OSError):  # it is dead already, which `messages` finds
            self._orders.send(message)

    def run(self, keys: Sequence[Key], failed: int) -> None:
        """Ask for these tests; `failed` tests have failed before, as ``--maxfail`` counts them."""
        self._order((list(keys), failed))

    def messages(self) -> Iterator[_Message]:
        """What the worker sends, until it has ended."""
        while True:
            try:
                if self._ready.poll(_POLL_MS):
                    yield self._reports.recv()
                    continue
            except (EOFError, OSError, pickle.UnpicklingError):  # the last message may be cut
                return
            if self.process.poll() is not None and not self._ready.poll(0):
                return  # a process that it forked may hold the pipe open
            if self._is_overdue():
                self.process.kill()

    def _is_overdue(self) -> bool:
        """Whether not even the worker's own guard has ended a test."""
        return bool(self.limit and self.since) and time.monotonic() - (self.since or 0) > self.limit + _PATIENCE_SECONDS

    def death(self) -> tuple[str, str]:
        """What ended the process, in words: ``crashed`` or ``timed out``, and how."""
        status, overdue = self._wait(), self._is_overdue()
        if overdue or self.stacks().startswith("Timeout"):
            return "timed out", f"it ran longer than the {self.limit:g} s of CUASSAY_HANG_SECONDS"
        if status is None:
            return "crashed", "its process does not end, even when killed"
        if status < 0:
            return "crashed", f"its process was killed by {_signal_name(-status)}"
        return "crashed", f"its process ended with status {status}"

    def bad_end(self) -> str | None:
        """How the process ended, if pytest did not end it; None where all is well."""
        status = self._wait()
        if status is None or status < 0:
            return f"killed by {_signal_name(-(status or -signal.SIGKILL))}"
        return None

    def stacks(self) -> str:
        """What the worker left in the file for stacks."""
        size = os.fstat(self._faults.fileno()).st_size
        return "".join(_own_frames(os.pread(self._faults.fileno(), size, 0).decode(errors="replace")))

    def _wait(self) -> int | None:
        for _ in range(2):
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(_PATIENCE_SECONDS)
            self.process.kill()
        return None

    def interrupt(self) -> None:
        """Let the worker undo its fixtures and end."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)  # Ctrl-C has reached it as well
            return
        self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Wait for the process, or kill it; twice is allowed."""
        self._orders.close()
        self._wait()
        for held in (self._reports, self._faults, self._lifeline, self.trail):
            held.close()


def _own_frames(text: str) -> Iterator[str]:
    """The lines of a stack without what pytest and the worker have on it."""
    return (line for line in text.splitlines(keepends=True) if not _OTHERS.search(line))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Controller:
    """A pytest plugin: gives the collected tests to workers, and reports what they send as if it ran here."""

    def __init__(self, config: pytest.Config, presence: Presence) -> None:
        self._config = config
        self._presence = presence
        self._child: _Child | None = None
        self._items: dict[Key, pytest.Item] = {}
        self._waiting: dict[Key, None] = {}
        self._running: Key | None = None
        self._reports: list[pytest.TestReport] = []
        self._again: dict[Key, str] = {}
        self._processes = 0
        self._verdicts: list[str] = []
        self._stop: tuple[str, str] = ("", "")

    def __repr__(self) -> str:
        return f"Controller({len(self._waiting)} tests to run, {self._processes} processes)"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Start the first worker: it collects while this process does."""
        if not self._config.option.collectonly:
            self._start()

    def _start(self) -> _Child:
        self._processes += 1
        self._child = _Child(self._config, self._presence)
        return self._child

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests in workers; leave to pytest what runs none."""
        if session.config.option.collectonly or not session.items or self._is_refused(session):
            return None
        self._items = dict(zip(keyed(item.nodeid for item in session.items), session.items, strict=True))
        self._waiting = dict.fromkeys(self._items)
        false_starts = 0
        try:
            while self._waiting and not any(self._stop):
                left = len(self._waiting)
                self._live(session)
                false_starts = false_starts + 1 if left == len(self._waiting) else 0
                if false_starts == _FALSE_STARTS:
                    self._fail(session, f"{false_starts} workers in a row ended before their first test")
        except (KeyboardInterrupt, session.Interrupted):
            if self._child is not None:
                self._child.interrupt()
            raise
        if self._waiting:
            self._fail(session, self._stop[0] or self._stop[1])
        return True

    @staticmethod
    def _is_refused(session: pytest.Session) -> bool:
        return bool(session.testsfailed) and not session.config.option.continue_on_collection_errors

    @staticmethod
    def _fail(session: pytest.Session, reason: str) -> None:
        session.shouldfail = reason
        raise session.Failed(reason)

    # ---------------------------------------------------------------------------------------------- one worker

    def _live(self, session: pytest.Session) -> None:
        """Give what waits to one worker, until it has ended."""
        child = self._child or self._start()
        child.run(list(self._waiting), session.testsfailed)
        is_ended = False
        for name, *values in child.messages():
            is_ended = is_ended or name == "end"
            getattr(self, f"_on_{name}")(*values)
            if session.shouldfail and name == "finish":
                break  # the worker stops at the same test
            if session.shouldstop and not any(self._stop):
                raise session.Interrupted(session.shouldstop)
        if session.shouldfail:
            self._await_end(child)
            raise session.Failed(session.shouldfail)
        if not is_ended:
            self._mourn(child)
        elif (how := child.bad_end()) is not None:
            self._verdicts.append(f"a worker ended after its last test: {how}")
        self._close()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)

    def _await_end(self, child: _Child) -> None:
        for name, *_ in child.messages():
            if name == "start":
                child.process.send_signal(signal.SIGINT)
        self._close()

    def _close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _on_start(self, key: Key) -> None:
        self._running, self._reports = key, []
        if self._child is not None:
            self._child.since = time.monotonic()
        item = self._items[key]
        self._config.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)

    def _on_finish(self, key: Key, reports: Sequence[dict[str, Any]]) -> None:
        restore = self._config.hook.pytest_report_from_serializable
        self._reports = [restore(config=self._config, data=data) for data in reports]
        causes = [report.cuassay_infrastructure for report in self._reports if _is_infrastructure(report)]
        if causes and key not in self._again:
            self._again[key] = causes[0]
            self._waiting[key] = self._waiting.pop(key)  # after the others
            self._running = None
        else:
            self._publish(key)

    def _publish(self, key: Key) -> None:
        """Report the test to every plugin of this process."""
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

    def _on_end(self, shouldfail: str, shouldstop: str) -> None:
        self._stop = (shouldfail, shouldstop)

    def _mourn(self, child: _Child) -> None:
        """Report the test that took the worker with it."""
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
        """Say with -v what became of a test that was lost."""
        outcome = getattr(report, "cuassay_lost", None)
        return ("failed", "L", (outcome.upper(), {"red": True})) if outcome and report.failed else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the last worker; one that vanished makes the session fail."""
        self._close()
        if self._verdicts and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what ran again, and how many processes it took."""
        again = [f"  {nodeid}: {why}" for (nodeid, _), why in self._again.items()]
        if again or self._verdicts or self._processes > 1:
            terminalreporter.section("cuassay isolation")
            terminalreporter.write_line(f"{self._processes} worker processes ran the tests")
        if again:
            terminalreporter.write_line(f"failed by the machine, and run again in a fresh process ({len(again)}):")
        for line in again:
            terminalreporter.write_line(line)
        for verdict in self._verdicts:
            terminalreporter.write_line(f"ERROR {verdict}", red=True)

    def pytest_unconfigure(self) -> None:
        """Let no worker outlive the session."""
        if self._child is not None:
            self._child.process.kill()
        self._close()


def _is_infrastructure(report: pytest.TestReport) -> bool:
    return bool(getattr(report, "cuassay_infrastructure", None))


def _lost(item: pytest.Item, outcome: str, how: str, seconds: float) -> Iterator[pytest.TestReport]:
    """The reports of a test that sent none: it failed, and there was nothing to undo."""
    try:
        pytest.fail(f"{outcome}: {how}", pytrace=False)
    except pytest.fail.Exception as error:
        shown = pytest.ExceptionInfo.from_exception(error).getrepr(style="value")
    told = told_of(item)
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
