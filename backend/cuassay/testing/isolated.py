"""The worker of ``pytest --cuassay-isolate``: it collects, runs the tests that its controller names, and reports each.

To other plugins it is a worker of pytest-xdist: ``config.workerinput`` is set, and nothing is printed. What it sends
goes through a pipe, so that the kernel keeps it when this process is killed. `cuassay.testing.controller` reads
it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pluggy
import pytest

from cuassay.testing.isolation import LOST
from cuassay.testing.node import Told
from cuassay.testing.reserving import held
from cuassay.testing.skips import case_of

__all__ = ["Sent", "Worker", "keyed", "main", "restored"]

#: Plugins of pytest itself that send reports.
_PYTESTS = ("reports", "subtests")

#: A test's name and how many tests of the same name are before it: pytest allows two of one name.
Key = tuple[str, int]

#: A report: whether it is sent plain, and its attributes, or what pytest-xdist would send.
Sent = tuple[bool, dict[str, Any]]


def keyed(nodeids: Iterable[str]) -> Iterator[Key]:
    """Number the tests of each name."""
    seen: Counter[str] = Counter()
    for nodeid in nodeids:
        yield nodeid, seen[nodeid]
        seen[nodeid] += 1


class Worker:
    """A pytest plugin: runs what the controller asks for, and sends it what happens.

    Parameters
    ----------
    told : dict
        ``workerinput`` of the session; its ``cuassay_faults`` is the descriptor of the file for stacks.
    orders, reports : Connection
        From the controller, and to it.
    """

    def __init__(self, told: dict[str, Any], orders: Connection, reports: Connection) -> None:
        self._told = told
        self._output: dict[str, Any] = {}
        self._config: pytest.Config
        self._orders = orders
        self._reports = reports
        self._process = os.getpid()
        self._is_unwell = False
        self._unsent: list[tuple[object, ...]] = []
        self._test: list[Sent] = []

    def __repr__(self) -> str:
        return f"Worker({self._process})"

    def _send(self, *message: object) -> None:
        """Send `message`, with the one that was kept for it: each write costs more than what it says."""
        self._unsent.append(message)
        self._flush()

    def _flush(self) -> None:
        messages, self._unsent = self._unsent, []
        if messages and os.getpid() == self._process:  # a fork of a test is not the worker
            self._reports.send(messages)

    @property
    def is_lost(self) -> bool:
        """Whether a device of this process is lost."""
        return bool(self._config.stash.get(LOST, None))

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        """Be a worker before the first plugin is configured."""
        config = self._config = yield
        config.workerinput = Told(self._told["workerinput"])  # type: ignore[attr-defined]
        config.workeroutput = self._output  # type: ignore[attr-defined]
        self._faults = config.workerinput["cuassay_faults"]  # type: ignore[attr-defined]
        self._silence(config)
        if hasattr(config.option, "benchmark_disable"):
            config.option.benchmark_disable = True
        return config

    def _silence(self, config: pytest.Config) -> None:
        """Let reporters print nothing, and what pytest-timeout writes before it ends the process go next to the stacks.

        Plugins replace pytest's reporter by their own, which takes the standard output that it finds; so there is one.
        """
        faults = open(self._faults, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115  to the end
        writer = pytest.TerminalReporter(config, faults)._tw  # noqa: SLF001  pytest has no public one
        config.get_terminal_writer = lambda: writer  # type: ignore[method-assign]
        self._nowhere = Path(os.devnull).open("w")  # noqa: SIM115  to the end
        self._stdout, sys.stdout = sys.stdout, self._nowhere

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Let tests print, now that the reporters are made."""
        sys.stdout = self._stdout

    def pytest_internalerror(self, excrepr: object) -> None:
        """Print an error of pytest or of a plugin where it can be seen."""
        sys.stderr.write(f"{excrepr}\n")

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Write the stack of a crash where the controller finds it, instead of on the terminal."""
        faulthandler.enable(self._faults)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests of the order, until one loses its device or the session must stop."""
        _load_devices(session.items)  # while the controller collects, or another worker runs tests
        self._send("ready")
        order: tuple[Sequence[Key], int] = self._orders.recv()
        wanted, session.testsfailed = order
        found = dict(zip(keyed(item.nodeid for item in session.items), session.items, strict=True))
        missing = [key for key in wanted if key not in found]
        if missing:
            self._send("missing", missing)
        items = [(key, found[key]) for key in wanted if key in found]
        for place, (key, item) in enumerate(items):
            following = items[place + 1][1] if place + 1 < len(items) else None
            _save_coverage()
            os.ftruncate(self._faults, 0)  # of the test before
            os.lseek(self._faults, 0, os.SEEK_SET)
            with held(item, self._flush):  # the time of the test does not run while it waits
                self._send("start", key)
                self._test = []
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._unsent.append(("finish", key, self._test))  # goes with the start of the next
            if session.shouldfail or session.shouldstop or self.is_lost or self._is_unwell:
                break
        self._flush()
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self) -> tuple[str, str, str]:
        """Spare the silent reporter the words: the process that reports finds them."""
        return "", "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report until the test has ended, as pytest-xdist sends it, or plain where that changes nothing."""
        self._is_unwell = self._is_unwell or hasattr(report, "cuassay_infrastructure")
        hook = self._config.hook.pytest_report_to_serializable
        is_plain = type(report) is pytest.TestReport and report.longrepr is None and _is_pytests(hook)
        sent = vars(report).copy() if is_plain else hook(config=self._config, report=report)
        self._test.append((is_plain, sent))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        """Send a test's warning as text: its class may not be importable elsewhere. The controller collects itself."""
        if when == "runtest":
            category = warning_message.category
            plain = (str(warning_message.message), category.__name__, warning_message.filename, warning_message.lineno)
            self._send("warning", plain, nodeid, location)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Pass on `pytest.exit`; Ctrl-C reaches the controller by itself."""
        if isinstance(excinfo.value, pytest.exit.Exception):
            self._send("exit", str(excinfo.value), excinfo.value.returncode)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Say that this worker came to its end, why it stopped early, what its plugins left; print no summary."""
        sys.stdout = self._nowhere
        self._send("end", str(session.shouldfail or ""), str(session.shouldstop or ""), self._output)


def _is_pytests(hook: pluggy.HookCaller) -> bool:
    """Whether no plugin has a say in how a report is sent; it may be given other reports by pytest's own."""
    return all(one.plugin_name in _PYTESTS for one in hook.get_hookimpls())


def restored(config: pytest.Config, sent: Sent) -> Any:
    """The report that a worker sent."""
    is_plain, data = sent
    if not is_plain:
        return config.hook.pytest_report_from_serializable(config=config, data=data)
    report = pytest.TestReport.__new__(pytest.TestReport)  # its constructor differs between versions of pytest
    report.__dict__.update(data)
    return report


def _load_devices(items: Iterable[pytest.Item]) -> None:
    """Import what the tests' devices need: the time limit of the first test is not for that."""
    kinds = {case["device"].kind for item in items if (case := case_of(item))}
    if kinds:
        from cuassay.devices import backend

        for kind in kinds:
            backend(kind)


def _save_coverage() -> None:
    """Write what coverage.py has measured, if it measures this process: a kill in the next test would erase it."""
    coverage = sys.modules.get("coverage")
    measured = coverage.Coverage.current() if coverage is not None else None
    if measured is not None:
        measured.save()


def main(argv: Sequence[str]) -> None:
    """Run one session for the controller at the other end of two pipes."""
    orders, reports = (Connection(int(argv[0]), writable=False), Connection(int(argv[1]), readable=False))
    told: dict[str, Any] = orders.recv()
    sys.path[:] = told["path"]
    worker = Worker(told, orders, reports)
    status = pytest.main(told["args"], plugins=[worker])
    sys.stdout.flush()
    sys.stderr.flush()
    if worker.is_lost:
        os._exit(int(status))  # a driver whose context is dead may hang while the interpreter ends


if __name__ == "__main__":
    main(sys.argv[1:])
