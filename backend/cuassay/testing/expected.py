"""What was expected of the tests and did not happen: a failure where the user asks for it.

Four questions, each with an option of its own: did a test run on no device at all, was one skipped that ran in an
earlier record, were more skipped than allowed, and did one pass without checking anything. A plugin of the process that
prints.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from cuassay.testing.summary import Outcomes, counted, first_line

__all__ = ["Expected", "parse_budgets", "ran_in"]

#: Tests named for each question.
_SHOWN = 20

#: Outcomes of a test that ran.
_RAN = ("passed", "failed", "error", "xfailed")


def parse_budgets(texts: Iterable[str]) -> dict[str, int]:
    """Read ``N`` and ``DEVICE=N``: most skips of the session, under the empty name, and of devices and kinds.

    Raises
    ------
    pytest.UsageError
        If one has another form.
    """
    budgets = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not number.isdecimal():
            raise pytest.UsageError(
                f"--cuassay-skip-budget takes N or DEVICE=N; got {text!r}; write 20, cuda=5 or cuda:0=5"
            )
        budgets[name] = int(number)
    return budgets


def ran_in(path: Path) -> frozenset[str]:
    """The tests that ran in the record at `path`.

    Raises
    ------
    pytest.UsageError
        If it is not a record.
    """
    from cuassay_reports.files import content_of  # brings gzip, which a session without a baseline never needs

    try:
        rows = [json.loads(line) for line in content_of(path).splitlines()]
        ran = frozenset(row["nodeid"] for row in rows if row["record"] == "test" and row["outcome"] in _RAN)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pytest.UsageError(
            f"--cuassay-skip-baseline {path} is not a record: {error!r}; name a file that --cuassay-record wrote"
        ) from None
    if not ran:
        raise pytest.UsageError(
            f"--cuassay-skip-baseline {path}: no test ran in it; name a record of a run that tested"
        )
    return ran


class Expected:
    """Counts skips, and fails the session by them.

    Parameters
    ----------
    budgets : mapping of str to int
        As `parse_budgets` reads them.
    baseline : set of str
        Node ids that ran before.
    fails_nowhere : bool
        Whether a test that ran on no device fails the session.

    Tests that checked nothing fail it wherever their reports say so, as `cuassay.testing.unchecked` makes them.
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
        told = getattr(report, "cuassay", {})
        why = first_line(report) if outcome == "skipped" else ""
        self._outcomes.add(report.nodeid, told, outcome, why)
        if outcome == "skipped":
            device = told.get("device", "")
            self._skips.update({"", device, device.partition(":")[0]})
            if report.nodeid in self._baseline:
                self._newly[report.nodeid] = why

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session where something was skipped that should not have been, or checked nothing."""
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
