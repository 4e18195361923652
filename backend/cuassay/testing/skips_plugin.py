"""Apply tables of skips and expected failures to a session; a pytest plugin.

Each test gets the entry that covers it when it is collected, before ``-k`` and shards deselect tests. At the end, the
session fails for entries that cover no test, if the tests that they name were collected. Under xdist the workers send
the controller which entries they have used.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.errors import SettingError
from cuassay.testing import skips
from cuassay.testing.skips_table import Entry, SkipTable, read_tables

if TYPE_CHECKING:
    from cuassay.testing.presence import Presence

__all__ = ["SkipTables", "register"]

_ENTRY = pytest.StashKey[Entry]()

#: The start of pytest's message about an unexpected pass.
_UNEXPECTED = "[XPASS(strict)] "

#: The key under which a worker of xdist sends the used entries to its controller.
_USED_KEY = "cuassay_used_skips"


def register(config: pytest.Config, presence: Presence) -> None:
    """Register the plugin if the project has tables. Raises `pytest.UsageError` if a table is invalid."""
    paths: list[Path] = config.getini("cuassay_skips")
    check = config.getoption("cuassay_check_skips")
    if not paths:
        if check:
            raise pytest.UsageError("--check-skips: there are no tables; name them by the ini option cuassay_skips")
        return
    from cuassay.devices import kinds

    try:
        table = read_tables(paths, root=config.rootpath, kinds=kinds(), today=date.today())  # noqa: DTZ011  a local day
    except SettingError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(SkipTables(table, presence, check=check), "cuassay_skip_tables")


class SkipTables:
    """Applies a table to a session's tests, and checks that its entries are used.

    Parameters
    ----------
    table : SkipTable
        The entries.
    presence : Presence
        The devices under test. An entry for other kinds need not cover a test in this session.
    check : bool
        Run the tests that the table skips, and report which pass.
    """

    def __init__(self, table: SkipTable, presence: Presence, *, check: bool) -> None:
        self._table = table
        self._presence = presence
        self._check = check
        self._used: set[str] = set()
        self._unused: list[Entry] = []
        self._is_whole = True
        self._has_collected = False
        self._passes: dict[str, dict[str, bool]] = {}

    def __repr__(self) -> str:
        return f"SkipTables({self._table!r})"

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Remember the entry of a test; mark the test if it is expected to fail."""
        case = skips.case_of(item)
        kind, dtype = (case["device"].kind if "device" in case else None), getattr(case.get("dtype"), "name", None)
        found = self._table.find(item.nodeid, kind, dtype)
        self._used.update(entry.where for entry in found)
        if not found:
            return
        entry = item.stash[_ENTRY] = found[0]
        if entry.action == "xfail" or self._check:
            item.add_marker(pytest.mark.xfail(reason=entry.told, strict=entry.action == "xfail"))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember whether a file could not be collected, because then no entry can be called unused."""
        self._is_whole = self._is_whole and not report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip the tests that the table skips, before any device is used."""
        entry = item.stash.get(_ENTRY, None)
        if entry is not None and entry.action == "skip" and not self._check:
            raise pytest.skip.Exception(entry.told, _use_item_location=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Say what to do about an unexpected pass; attach the entry to the report for the controller."""
        report: pytest.TestReport = yield
        entry = item.stash.get(_ENTRY, None)
        if entry is None:
            return report
        if entry.action == "skip":
            report.__dict__["cuassay_skip"] = entry.where
        elif isinstance(report.longrepr, str) and report.longrepr.startswith(_UNEXPECTED):
            report.longrepr = f"{_UNEXPECTED}the test passes now; remove the entry at {entry.where}: {entry.reason}"
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the passing tests among those that the table skips."""
        where = getattr(report, "cuassay_skip", None)
        if where is None or (report.skipped and not hasattr(report, "wasxfail")):
            return
        if report.when == "call" or not report.passed:
            passes = self._passes.setdefault(where, {})
            passes[report.nodeid] = report.passed and passes.get(report.nodeid, True)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Send the used entries to the controller of xdist, which collects nothing."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None and self._is_whole:
            output[_USED_KEY] = sorted(self._used)
        self._has_collected = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Receive the entries that a worker of xdist has used."""
        told = getattr(node, "workeroutput", {}).get(_USED_KEY)
        if told is not None:
            self._used.update(told)
            self._has_collected = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session for entries that cover no test."""
        if hasattr(session.config, "workerinput") or not (self._is_whole and self._has_collected):
            return
        self._unused = list(self._find_unused(session.config))
        if self._unused and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _find_unused(self, config: pytest.Config) -> Iterator[Entry]:
        here = {device.kind for device in self._presence.devices} if self._presence.is_decided else set()
        for entry in self._table.entries:
            may_match = not entry.devices or bool(here & {*entry.devices})
            if entry.where not in self._used and may_match and _was_collected(entry.test, config):
                yield entry

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the entries to change, each with its file and line."""
        notes = [*self._notes()]
        if notes or self._unused:
            terminalreporter.section("tables of skips")
        for note in notes:
            terminalreporter.write_line(note)
        for entry in self._unused:
            told = f"{entry.where}: {entry.test} covers no collected test; correct or remove the entry ({entry.owner})"
            terminalreporter.write_line(f"ERROR {told}", red=True)

    def _notes(self) -> Iterator[str]:
        for entry in self._table.expired:
            yield f"{entry.where}: {entry.test} expired on {entry.until} and no longer applies ({entry.owner})"
        if not self._check:
            return
        named = {entry.where: entry for entry in self._table.entries}
        for where, passes in self._passes.items():
            if passed := sum(passes.values()):
                yield _advice(named[where], passed, len(passes))
        if not any(map(any, map(dict.values, self._passes.values()))):
            yield f"--check-skips: none of the {sum(map(len, self._passes.values()))} skipped tests that ran passes"


def _advice(entry: Entry, passed: int, ran: int) -> str:
    if passed == ran:
        return f"{entry.where}: all {ran} skipped tests of {entry.test} pass; remove the entry ({entry.owner})"
    return f"{entry.where}: {passed} of {ran} skipped tests of {entry.test} pass; narrow the entry ({entry.owner})"


def _was_collected(test: str, config: pytest.Config) -> bool:
    """Whether the session collected every test that `test` may name, as far as its arguments show."""
    left_out = ("ignore", "ignore_glob", "lf", "pyargs")
    if any(config.getoption(name, default=None) for name in left_out):
        return False
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        return True
    file = config.rootpath / _fixed_part(test)
    folders = (config.invocation_params.dir / arg for arg in config.args if "::" not in arg)
    return any(file.is_relative_to(folder.resolve()) for folder in folders)


def _fixed_part(test: str) -> str:
    """The file of a test, or the folder above its first wildcard."""
    file = test.partition("::")[0].partition("[")[0]
    fixed = re.split(r"[*?]", file, maxsplit=1)[0]
    return fixed if fixed == file else fixed.rpartition("/")[0]
