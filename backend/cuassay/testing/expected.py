"""Fail a session, if the user asks for it, because tests did not run or did not check anything.

Four options ask for it: if a test ran on no device, if a test was skipped that ran in an earlier record, if more tests
were skipped than allowed, and if a test passed without checking anything. This plugin runs in the process that reports.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from cuassay.testing.summary import Outcomes, counted, first_line

__all__ = ["Expected", "parse_budgets", "ran_in"]

#: The most tests that are listed for each option.
_SHOWN = 20

#: Outcomes of tests that ran.
_RAN = ("passed", "failed", "error", "xfailed")


def parse_budgets(texts: Iterable[str]) -> dict[str, int]:
    """Parse ``N`` and ``DEVICE=N``: the most skips of the session (with an empty name), and of devices and kinds.

    Raises
    ------
    pytest.UsageError
        If a text has another form, or names an unknown kind of device.
    """
    from cuassay import devices

    budgets = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not number.isdecimal():
            raise pytest.UsageError(
                f"--cuassay-skip-budget takes N or DEVICE=N; got {text!r}; write 20, cuda=5 or cuda:0=5"
            )
        kind, known = name.partition(":")[0], devices.kinds()
        if kind and kind not in known:  # a budget that no skip counts against would never fail
            raise pytest.UsageError(
                f"--cuassay-skip-budget {text}: there is no device kind {kind!r}; known: {', '.join(known)}"
            )
        budgets[name] = int(number)
    return budgets


def ran_in(path: Path) -> frozenset[str]:
    """The node ids of tests that ran in the record at `path`.

    Raises
    ------
    pytest.UsageError
        If the file is not a record, or no test ran.
    """
    from cuassay_reports.files import content_of  # imports gzip, which a session without a baseline does not need

    try:
        rows = [json.loads(line) for line in content_of(path).splitlines()]
        ran = frozenset(row["nodeid"] for row in rows if row["record"] == "test" and row["outcome"] in _RAN)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"is not a record: {error!r}"
        raise pytest.UsageError(
            f"--cuassay-skip-baseline {path} {what}; name a file that --cuassay-record wrote"
        ) from None
    if not ran:
        raise pytest.UsageError(
            f"--cuassay-skip-baseline {path}: no test ran in it; name a record of a run that tested"
        )
    return ran


class Expected:
    """A plugin that counts skips, and fails the session if there are too many.

    Tests that checked nothing also fail the session, if their reports say so; see `cuassay.testing.unchecked`.

    Parameters
    ----------
    budgets : mapping of str to int
        The result of `parse_budgets`.
    baseline : set of str
        Node ids of tests that ran before.
    fails_nowhere : bool
        Whether a test that ran on no device fails the session.
    """

    def __init__(self, budgets: Mapping[str, int], baseline: frozenset[str], *, fails_nowhere: bool) -> None:
        self._budgets = budgets
        self._baseline = baseline
        self._fails_nowhere = fails_nowhere
        self._outcomes = Outcomes()
        self._skips: Counter[str] = Counter()
        self._newly: dict[str, str] = {}
        self._unchecked: list[str] = []
        self._verdicts: list[str] = []

    def __repr__(self) -> str:
        return f"Expected({self._skips.total()} skips, {len(self._newly)} new)"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one report."""
        if getattr(report, "cuassay_unchecked", False) and report.passed:
            self._unchecked.append(report.nodeid)
        outcome = counted(report)
        if outcome is None:
            return
        columns = getattr(report, "cuassay", {})
        why = first_line(report) if outcome == "skipped" else ""
        self._outcomes.add(report.nodeid, columns, outcome, why)
        if outcome == "skipped":
            device = columns.get("device", "")
            self._skips.update({"", device, device.partition(":")[0]})
            if report.nodeid in self._baseline:
                self._newly[report.nodeid] = why

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session if a test was skipped that should not have been, or checked nothing."""
        if session.config.option.collectonly:
            return
        self._verdicts = list(self._judged())
        if self._verdicts and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _judged(self) -> Iterator[str]:
        for name, most in self._budgets.items():
            if self._skips[name] > most:
                where = f" on {name}" if name else ""
                yield f"{_skipped(self._skips[name])}{where}, and {most} may be; see them with -rs"
        if self._newly:
            yield f"{_skipped(len(self._newly))} that ran in the baseline:"
            yield from (f"  {nodeid}: {why}" for nodeid, why in list(self._newly.items())[:_SHOWN])
            yield from _more(len(self._newly))
        if self._fails_nowhere:
            yield from self._outcomes.nowhere()
        if self._unchecked:
            yield f"{_tests(len(self._unchecked))} passed and checked nothing:"
            yield from (f"  {nodeid}" for nodeid in self._unchecked[:_SHOWN])
            yield from _more(len(self._unchecked))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the verdicts."""
        if self._verdicts:
            terminalreporter.section("cuassay: what was expected and did not happen")
        for verdict in self._verdicts:
            terminalreporter.write_line(f"ERROR {verdict}" if not verdict.startswith(" ") else verdict, red=True)


def _tests(number: int) -> str:
    return f"{number:,} test{'' if number == 1 else 's'}"


def _skipped(number: int) -> str:
    return f"{_tests(number)} {'was' if number == 1 else 'were'} skipped"


def _more(number: int) -> Iterator[str]:
    if number > _SHOWN:
        yield f"  and {number - _SHOWN:,} more"
