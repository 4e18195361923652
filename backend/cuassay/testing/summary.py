"""What the terminal shows of devices: a line at the start, a table at the end, and the verdict on required devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from cuassay.core import settings
from cuassay.testing.skips import case_of

if TYPE_CHECKING:
    from cuassay.core.device import Device
    from cuassay.testing.presence import Presence

__all__ = ["Outcomes", "Tally", "counted", "first_line", "header"]

_SHOWN = 20

#: Advice about functions that are their own reference.
_WITHOUT_REFERENCE = (
    "  This finds what differs between devices, dtypes, layouts, sizes, streams and calls. It cannot find a wrong",
    "  formula: a wrong constant, sign, axis or term is the same on both sides. Give reference=, the formula written",
    "  another way in NumPy, such as reference=scipy.special.softmax, or declare what must hold: relations=('odd',).",
)


def header(presence: Presence, root: str) -> list[str]:
    """The lines that say what is tested: devices, profile of simulated ones, revision and seed."""
    from cuassay.results.fingerprint import revision

    devices = ", ".join(map(str, presence.devices)) or "none"
    simulates = any(device.kind == "sim" for device in presence.devices)
    profile = f"; sim profile {settings.get('CUASSAY_SIM_PROFILE')}" if simulates else ""
    found = revision(root)
    commit = "unknown" if found.commit is None else found.commit[:12] + ("+dirty" if found.dirty else "")
    asked = presence.absent if presence.is_explicit else {}
    absent = [f"cuassay: no {kind}: {reason}" for kind, reason in asked.items()]
    first = f"cuassay: devices {devices}{profile}; revision {commit}; seed {settings.get('CUASSAY_SEED')}"
    return [first, *_shared(presence.devices), *absent]


def _shared(devices: Iterable[Device]) -> Iterator[str]:
    """A line for each device that is a part of a GPU, or that several processes share."""
    from cuassay.devices import backend

    for device in devices:
        sharing = getattr(backend(device.kind), "sharing", None)
        if sharing is not None and (facts := sharing(device.index)):
            yield f"cuassay: {device}: {', '.join(f'{name.upper()} {value}' for name, value in facts.items())}"


class Outcomes:
    """Counts outcomes by device, and finds the tests that ran on no device."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._ran: set[str] = set()
        self._skipped: dict[str, str] = {}
        self._own_references: set[str] = set()
        self._unasked: dict[str, list[str]] = {}
        self._refused_ends: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Outcomes({len(self._counts)} devices, {len(self._ran)} tests ran)"

    def compared_with_themselves(self) -> Iterator[str]:
        """Lines about functions without a reference: what their tests cannot find, and what to do about it."""
        if self._own_references:
            names = sorted(self._own_references)
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            yield f"without reference=, so compared with themselves on NumPy arrays ({len(names)}): {shown}"
            yield from _WITHOUT_REFERENCE

    def options_of_no_sample(self) -> Iterator[str]:
        """Lines about options of functions that no sample passes; nothing if there are none."""
        if self._unasked:
            names = [f"{name} ({', '.join(options)})" for name, options in sorted(self._unasked.items())]
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            option = next(iter(self._unasked.values()))[0]
            yield f"options that no sample gives; only their defaults are tested: {shown}"
            yield f"  Give them in samples=, as in Sample((make((3, 5)),), {{{option!r}: value}})."

    def refused_ends(self) -> Iterator[str]:
        """Lines about ends of declared integer ranges that references refuse; nothing if there are none."""
        if count := len(self._refused_ends):
            yield f"ends of integer ranges that the reference refuses, so that they are not tested ({count}):"
            yield from (f"  {where}: {why}" for where, why in sorted(self._refused_ends.items())[:_SHOWN])
            yield "  make includes both ends: for indices into N places give low=0 and high=N - 1."

    def add(self, nodeid: str, told: Mapping[str, Any], outcome: str, why: str) -> None:
        """Count one case. `told` may contain its device and op; `why` is the reason for a skip.

        If a generated check is skipped only because the device lacks what it needs, or because its declaration leaves
        it out, it is not reported as having run nowhere: nobody asked for that check by name.
        """
        if "device" in told:
            self._counts.setdefault(told["device"], Counter())[outcome] += 1
        if told.get("own_reference"):
            self._own_references.add(told["op"])
        if told.get("unasked_options"):
            self._unasked[told["op"]] = told["unasked_options"]
        for where, error in told.get("refused_ends", ()):
            self._refused_ends.setdefault(f"{told['op']}: {where}", error)
        name = _name(nodeid, told)
        if outcome == "skipped":
            if not told.get("is_of_check"):
                self._skipped.setdefault(name, why)
        else:
            self._ran.add(name)

    def idle(self, required: Iterable[str]) -> list[str]:
        """A message for each required device on which no test passed or failed."""
        names = [name for name in required if not self._ran_on(name)]
        return [f"required device {name}: no test passed or failed on it; {self._why(name)}" for name in names]

    def _ran_on(self, device: str) -> bool:
        counts = self._counts.get(device, Counter())
        return any(counts[outcome] for outcome in ("passed", "failed"))

    def _why(self, device: str) -> str:
        counts = self._counts.get(device, Counter())
        if not counts:
            return "no collected test takes `device`, or none was selected"
        return f"there were {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}"

    def table(self) -> Iterator[str]:
        """A line for each device."""
        for device, counts in sorted(self._counts.items()):
            yield f"{device}: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}"

    def nowhere(self) -> Iterator[str]:
        """The tests that ran on no device, each with the first reason."""
        names = sorted(self._skipped.keys() - self._ran)
        if names:
            yield f"ran nowhere ({len(names)}):"
        yield from (f"  {name}: {self._skipped[name]}" for name in names[:_SHOWN])
        if len(names) > _SHOWN:
            yield f"  and {len(names) - _SHOWN} more; -rs lists every skip"


_NOTHING_TO_MEASURE = (
    "nothing to measure: no declaration gives bench=; "
    "write bench=lambda make, sizes: [make((sizes.length, sizes.width))]"
)


class Tally:
    """A pytest plugin that summarizes the outcomes, in the process that prints.

    Parameters
    ----------
    required : iterable of Device
        Devices on which at least one test must run.
    is_part : bool
        Whether other processes run the rest of the cases. Then neither required devices nor tests that ran nowhere are
        reported, because they may have run in another process.
    """

    def __init__(self, required: Iterable[Device] = (), *, is_part: bool = False) -> None:
        self._required = () if is_part else tuple(map(str, required))
        self._is_part = is_part
        self._outcomes = Outcomes()
        self._verdicts: list[str] = []
        self._causes: list[str] = []
        self._left_out = 0

    def __repr__(self) -> str:
        return f"Tally({self._outcomes!r})"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one report of a test that takes `device`."""
        told = getattr(report, "cuassay", None)
        outcome = counted(report)
        if told is not None and outcome is not None:
            self._outcomes.add(report.nodeid, told, outcome, first_line(report) if outcome == "skipped" else "")

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count the deselected tests of declarations."""
        self._left_out += sum("op" in case_of(item) for item in items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session if a required device ran nothing; order failures so that the likely cause comes first."""
        if session.config.option.collectonly:
            return
        self._order_failures(session.config.pluginmanager.get_plugin("terminalreporter"))
        self._verdicts = self._outcomes.idle(self._required)
        if self._verdicts and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _order_failures(self, terminalreporter: Any) -> None:
        failed = [] if terminalreporter is None else terminalreporter.stats.get("failed", [])
        if len(failed) > 1:
            from cuassay.testing.causes import cause_lines, ordered_by_cause

            failed[:] = ordered_by_cause(failed)
            self._causes = list(cause_lines(failed))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, what ran nowhere, and the verdict."""
        outcomes = self._outcomes
        told = (
            *outcomes.nowhere(), *outcomes.compared_with_themselves(), *outcomes.options_of_no_sample(),
            *outcomes.refused_ends(),
        )  # fmt: skip
        told = () if self._is_part else told
        lines = [*self._causes, *self._outcomes.table(), *told]
        if not lines and self._left_out and terminalreporter.config.getoption("benchmark_only", default=False):
            lines = [_NOTHING_TO_MEASURE]
        if lines or self._verdicts:
            terminalreporter.section("cuassay")
        for line in lines:
            terminalreporter.write_line(line)
        for verdict in self._verdicts:
            terminalreporter.write_line(f"ERROR {verdict}", red=True)


def first_line(report: pytest.TestReport) -> str:
    """The reason why `report` was skipped or failed, in one line."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return str(text).strip().partition("\n")[0]


def counted(report: pytest.TestReport) -> str | None:
    """The outcome to count, or None: that of a test's call, unless set-up or tear-down failed or skipped it."""
    if report.when == "call":
        return "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
    if report.failed:
        return "error"
    return "skipped" if report.skipped else None


def _name(nodeid: str, told: Mapping[str, str]) -> str:
    """The test without its device: the function, and the op if there is one."""
    base = nodeid.partition("[")[0]
    if "template" in told:
        base = f"{nodeid.partition('::')[0]}::{told['template']}"
    return f"{base}[{told['op']}]" if "op" in told else base
