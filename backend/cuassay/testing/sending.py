"""The part of an isolated worker that does not depend on how it was made: it runs tests and sends their reports.

The reports go through a pipe, so that the kernel keeps them when this process is killed. `cuassay.testing.controller`
reads them. `cuassay.testing.isolated` and `cuassay.testing.forked` define the workers.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import pluggy
import pytest

from cuassay.core.device import Device
from cuassay.testing.isolation import LOST
from cuassay.testing.reserving import held
from cuassay.testing.skips import case_of

__all__ = ["Key", "Order", "Sender", "Sent", "keyed", "load_devices", "restored"]

#: pytest's own plugins that implement the serialization of reports.
_PYTESTS = ("reports", "subtests")

#: A test's node id, and the number of earlier tests with the same id: pytest allows duplicates.
Key = tuple[str, int]

#: The tests to run, the number of tests that failed before, and the devices to describe for the record.
Order = tuple[Sequence[Key], int, Sequence[str]]

#: A report: whether it is sent as plain attributes, and these, or what pytest-xdist would send.
Sent = tuple[bool, dict[str, Any]]


def keyed(nodeids: Iterable[str]) -> Iterator[Key]:
    """Number the tests of each node id."""
    seen: Counter[str] = Counter()
    for nodeid in nodeids:
        yield nodeid, seen[nodeid]
        seen[nodeid] += 1


class Sender:
    """A pytest plugin that runs the tests that the controller orders, and sends it the results.

    Parameters
    ----------
    orders, reports : Connection
        The pipes from and to the controller.
    """

    def __init__(self, orders: Connection, reports: Connection) -> None:
        self._output: dict[str, Any] = {}
        self._config: pytest.Config
        self._faults: int
        self._orders = orders
        self._reports = reports
        self._process = os.getpid()
        self._is_unwell = False
        self._unsent: list[tuple[object, ...]] = []
        self._test: list[Sent] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._process})"

    def send(self, *message: object) -> None:
        """Send `message` with the one that was held back for it; fewer writes cost less time."""
        self._unsent.append(message)
        self._flush()

    def _flush(self) -> None:
        messages, self._unsent = self._unsent, []
        if messages and os.getpid() == self._process:  # a process that a test forked is not the worker
            self._reports.send_bytes(pickle.dumps(messages, pickle.HIGHEST_PROTOCOL))  # `send` takes twice as long

    def send_end(self, session: pytest.Session) -> None:
        """Send that this worker has finished, why it stopped early, and the output of its plugins."""
        self.send("end", str(session.shouldfail or ""), str(session.shouldstop or ""), self._output)

    def write_beside_stacks(self, config: pytest.Config) -> None:
        """Redirect what pytest-timeout writes before it ends the process to the file for crash stacks."""
        faults = open(self._faults, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115  kept
        writer = pytest.TerminalReporter(config, faults)._tw  # noqa: SLF001  pytest has no public one
        config.get_terminal_writer = lambda: writer  # type: ignore[method-assign]

    @property
    def is_lost(self) -> bool:
        """Whether this process has lost a device."""
        return bool(self._config.stash.get(LOST, None))

    def run_tests(self, session: pytest.Session) -> None:
        """Run the ordered tests, until a test loses its device or the session must stop."""
        order: Order = self._orders.recv()
        wanted, session.testsfailed, described = order
        if described:
            from cuassay.testing.device_facts import device_columns

            self.send("devices", [device_columns(Device(name)) for name in described])
        found = dict(zip(keyed(item.nodeid for item in session.items), session.items, strict=True))
        missing = [key for key in wanted if key not in found]
        if missing:
            self.send("missing", missing)
        items = [(key, found[key]) for key in wanted if key in found]
        for place, (key, item) in enumerate(items):
            following = items[place + 1][1] if place + 1 < len(items) else None
            _save_coverage()
            if os.lseek(self._faults, 0, os.SEEK_CUR):  # the previous test has left something
                os.ftruncate(self._faults, 0)
                os.lseek(self._faults, 0, os.SEEK_SET)
            with held(item, self._flush):  # the wait for the device does not count as time of the test
                self.send("start", key, item.location)
                self._test = []
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._unsent.append(("finish", key, self._test))  # sent with the start of the next test
            if session.shouldfail or session.shouldstop or self.is_lost or self._is_unwell:
                break
        self._flush()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store a report until the test has ended, serialized as for pytest-xdist, or plain if that is equivalent."""
        self._is_unwell = self._is_unwell or hasattr(report, "cuassay_infrastructure")
        hook = self._config.hook.pytest_report_to_serializable
        is_plain = type(report) is pytest.TestReport and report.longrepr is None and _is_pytests(hook)
        sent = vars(report).copy() if is_plain else hook(config=self._config, report=report)
        self._test.append((is_plain, sent))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        """Send a test's warning as text, because its class may not be importable in the controller."""
        if when == "runtest":
            category = warning_message.category
            plain = (str(warning_message.message), category.__name__, warning_message.filename, warning_message.lineno)
            self.send("warning", plain, nodeid, location)


def _is_pytests(hook: pluggy.HookCaller) -> bool:
    """Whether only pytest's own plugins serialize reports."""
    return all(one.plugin_name in _PYTESTS for one in hook.get_hookimpls())


def restored(config: pytest.Config, sent: Sent) -> Any:
    """Restore the report that a worker sent."""
    is_plain, data = sent
    if not is_plain:
        return config.hook.pytest_report_from_serializable(config=config, data=data)
    report = pytest.TestReport.__new__(pytest.TestReport)  # its constructor differs between versions of pytest
    report.__dict__.update(data)
    return report


def load_devices(items: Iterable[pytest.Item]) -> None:
    """Import the backends of the tests' devices, so that this does not count as time of the first test."""
    kinds = {case["device"].kind for item in items if (case := case_of(item))}
    if kinds:
        from cuassay.devices import backend

        for kind in kinds:
            backend(kind)


def _save_coverage() -> None:
    """Save the data of coverage.py, if it measures this process, because a kill in the next test would lose it."""
    coverage = sys.modules.get("coverage")
    measured = coverage.Coverage.current() if coverage is not None else None
    if measured is not None:
        measured.save()
