"""Budgets of skips: how they are read, what is counted, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cuassay.testing.expected import Expected, parse_budgets, ran_in


class Terminal:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.lines.append(f"== {title}")

    def write_line(self, line: str, **how: bool) -> None:
        assert how == {"red": True}
        self.lines.append(line)


def report(name: str, outcome: str, device: str = "", **more: Any) -> pytest.TestReport:
    when = "setup" if outcome == "skipped" else "call"
    why: Any = ("file.py", 1, "Skipped: not here") if outcome == "skipped" else None
    told = pytest.TestReport(name, ("", 0, ""), {}, outcome, why, when)  # type: ignore[arg-type]
    vars(told).update({"cuassay": {"device": device} if device else {}, **more})
    return told


def ended(expected: Expected, *reports: pytest.TestReport, status: int = 0, collects: bool = False) -> tuple[int, Any]:
    """The session's exit status after these reports, and the lines of its summary."""
    session, terminal = SimpleNamespace(exitstatus=status), Terminal()
    session.config = SimpleNamespace(option=SimpleNamespace(collectonly=collects))
    for one in reports:
        expected.pytest_runtest_logreport(one)
    expected.pytest_sessionfinish(session)  # type: ignore[arg-type]
    expected.pytest_terminal_summary(terminal)  # type: ignore[arg-type]
    return session.exitstatus, terminal.lines


def test_budgets_are_read_by_device_and_for_all() -> None:
    assert parse_budgets(["20", "cuda=5", "cuda:0=0"]) == {"": 20, "cuda": 5, "cuda:0": 0}


def test_a_budget_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match="there is no device kind 'gpu'; known: cpu, sim, cuda, meta"):
        parse_budgets(["gpu:0=5"])


@pytest.mark.parametrize("text", ["few", "cuda=", "-1", "cuda=1.5", ""])
def test_a_budget_of_another_form_says_how_to_write_it(text: str) -> None:
    with pytest.raises(pytest.UsageError, match=rf"takes N or DEVICE=N; got '{text}'; write 20, cuda=5 or cuda:0=5"):
        parse_budgets([text])


@pytest.mark.parametrize(
    ("outcome", "ran"), [("passed", True), ("failed", True), ("error", True), ("xfailed", True), ("skipped", False)]
)
def test_a_baseline_knows_which_tests_ran(tmp_path: Path, outcome: str, ran: bool) -> None:
    rows = [
        {"record": "session"},
        {"record": "test", "nodeid": "a", "outcome": outcome},
        {"record": "test", "nodeid": "b", "outcome": "passed"},
    ]
    file = tmp_path / "record.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))

    assert ran_in(file) == ({"a", "b"} if ran else {"b"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"record": "test"}', "is not a record: KeyError"),
        ("[1]", "is not a record: TypeError"),
        ("no", "is not a record: "),
        ('{"record": "test", "nodeid": "a", "outcome": "skipped"}', "no test ran in it; name a record of a run"),
    ],
)
def test_a_baseline_of_another_form_is_a_usage_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "record.jsonl"
    file.write_text(text)

    with pytest.raises(pytest.UsageError, match=message):
        ran_in(file)


@pytest.mark.parametrize(
    ("budgets", "verdicts"),
    [
        ({"": 3}, []),
        ({"": 2}, ["ERROR 3 tests were skipped, and 2 may be; see them with -rs"]),
        ({"sim": 2, "cuda": 1}, []),
        ({"sim": 1, "sim:1": 1}, ["ERROR 2 tests were skipped on sim, and 1 may be; see them with -rs"]),
        ({"cuda:0": 0}, ["ERROR 1 test was skipped on cuda:0, and 0 may be; see them with -rs"]),
    ],
)
def test_skips_are_counted_by_device_kind_and_in_all(budgets: dict[str, int], verdicts: list[str]) -> None:
    skips = [report(f"test_{name}", "skipped", name) for name in ("sim:0", "sim:1", "cuda:0")]
    status, lines = ended(
        Expected(budgets, frozenset(), fails_nowhere=False), report("test_a", "passed", "cpu"), *skips
    )

    assert status == (pytest.ExitCode.TESTS_FAILED if verdicts else 0)
    assert lines == ([f"== {SECTION}", *verdicts] if verdicts else [])


SECTION = "cuassay: what was expected and did not happen"


def test_skips_of_the_baseline_are_named_up_to_twenty() -> None:
    names = [f"test_{number}" for number in range(21)]
    expected = Expected({}, frozenset(names), fails_nowhere=False)
    skips = [report(name, "skipped") for name in (*names, "test_new")]
    _, (_, first, *others, more) = ended(expected, *skips)

    assert repr(expected) == "Expected(22 skips, 21 new)"
    assert first == "ERROR 21 tests were skipped that ran in the baseline:"
    assert others == [f"  {name}: not here" for name in names[:20]]
    assert more == "  and 1 more"


def test_tests_that_checked_nothing_fail_the_session() -> None:
    passed, failed = (report(f"test_{outcome}", outcome, cuassay_unchecked=True) for outcome in ("passed", "failed"))
    status, lines = ended(Expected({}, frozenset(), fails_nowhere=False), passed, failed)

    assert status == pytest.ExitCode.TESTS_FAILED
    assert lines[1:] == ["ERROR 1 test passed and checked nothing:", "  test_passed"]


@pytest.mark.parametrize(
    ("status", "after"),
    [
        (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED),
        (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.TESTS_FAILED),
        (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERRUPTED),
    ],
)
def test_a_session_that_ended_otherwise_keeps_its_status(status: int, after: int) -> None:
    expected = Expected({"": 0}, frozenset(), fails_nowhere=False)

    assert ended(expected, report("test_a", "skipped"), status=status)[0] == after
    assert ended(expected, status=status, collects=True)[0] == status


@pytest.mark.parametrize("fails_nowhere", [False, True])
def test_a_test_that_ran_on_no_device_fails_only_where_asked(fails_nowhere: bool) -> None:
    status, lines = ended(Expected({}, frozenset(), fails_nowhere=fails_nowhere), report("test_a", "skipped"))

    assert (status == pytest.ExitCode.TESTS_FAILED) is fails_nowhere
    assert ("ERROR ran nowhere (1):" in lines) is fails_nowhere
