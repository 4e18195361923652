"""Referees for the declarations of ``suites/data/judging``, one for each, with one warm process each."""

from __future__ import annotations

import re
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from cuassay import Device
from cuassay.judging.candidates import Candidates
from cuassay.judging.referee import JudgeOptions, Referee
from cuassay.judging.scan import parse_policy
from cuassay.judging.spec_file import load_declaration

DATA = Path(__file__).parents[1] / "data" / "judging"

#: Cheats that may be right, and gain nothing then: seconds of work that their times must contain.
WORK_S = dict.fromkeys(
    ("T4_patched_timer", "T9_cache_by_identity", "event_array", "function_detour", "got_patch", "ptrace"), 0.03
)

#: Right candidates whose times depend on how often they were called: no figure is given.
DRIFTING = ("fast_first", "slow_first")

#: Right candidates that keep the machine busy while others run; what they leave behind is called `BUSY_NAME`.
BUSY, BUSY_NAME = ("T13_busy_process", "T13_busy_thread"), "cuassay-busy"

#: What is not stopped, and why; the page about the judge says so, too.
NOT_STOPPED = {
    "no_race_checks": "the simulated device checks the order of streams in the candidate's process",
    "no_device": "host code of the program tier may leave out copies that other candidates make",
}


def candidates(folder: str) -> list[Path]:
    return sorted((DATA / folder).glob("*.py"))


def declared_name(candidate: Path) -> str:
    found = re.search(r"^# spec: (\w+)$", candidate.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{candidate.name} names no spec"
    return found[1]


def busy() -> set[str]:
    """The running threads, of any process of this machine, with the name that candidates in `BUSY` give themselves."""
    found = set()
    for name in Path("/proc").glob("[0-9]*/task/*/comm"):
        with suppress(OSError):  # it has ended
            if name.read_text(encoding="utf-8", errors="replace").rstrip() == BUSY_NAME:
                found.add(name.parent.name)
    return found


class Referees:
    """Makes a referee at first use; one that takes no time is another one."""

    def __init__(self, device: str = "sim", *, data: Path = DATA, **options: Any) -> None:
        self._data = data
        self._options = {"seconds": 120.0, **options}
        self._device, self._held = Device(device), ExitStack()
        self._made: dict[str, Referee] = {}
        self._started: dict[str, Candidates] = {}

    def of(self, name: str) -> Referee:
        if name not in self._made:
            options = JudgeOptions(device=self._device, policy=parse_policy(""), **self._options)
            declaration = load_declaration(f"{self._data}/spec.py::{name}")
            started = self._started[name] = self._held.enter_context(Candidates(declaration, options))
            self._made[name] = Referee(declaration, options, started.start, started.ours())
        return self._made[name]

    def zygote(self, name: str) -> int:
        """The process that the candidates of a declaration are forked from."""
        return self._started[name].zygote

    def close(self) -> None:
        self._held.close()
