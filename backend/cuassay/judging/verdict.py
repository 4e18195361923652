"""The verdict on one candidate: a frozen record, its JSON form and the exit status.

Only the judge writes verdicts. ``correct`` means that all checks passed and no cheat of this catalogue was found, with
these probes and in this jail. It is not a proof.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from cuassay.errors import JudgingError
from cuassay.judging.catalogue import CATALOGUE, CHEATS

__all__ = ["SCHEMA", "CaseTime", "Certainty", "Evidence", "Outcome", "Verdict", "exit_status", "read_verdicts"]

#: The version of the JSON form. It increases if a field changes its meaning, and not if a field is added.
SCHEMA = 2

Outcome = Literal["correct", "wrong", "refused", "undecided"]

#: ``proven`` refuses; ``indicated`` leaves the verdict undecided; ``hint`` is shown.
Certainty = Literal["proven", "indicated", "hint"]

_STATUS: Mapping[Outcome, int] = {"correct": 0, "wrong": 1, "refused": 1, "undecided": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A cheat that was seen: its number in the catalogue, its certainty, and a description of what was seen."""

    id: str
    certainty: Certainty
    evidence: str

    def __post_init__(self) -> None:
        if self.id not in CHEATS or self.certainty not in get_args(Certainty):
            raise JudgingError(f"no cheat {self.id!r} of certainty {self.certainty!r}; see cuassay.judging.catalogue")

    def __str__(self) -> str:
        return f"{self.id} ({CHEATS[self.id]}), {self.certainty}: {self.evidence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTime:
    """The time of one case.

    Attributes
    ----------
    label, dtype : str
        The problem.
    time_s, q25, q75 : float or None
        Seconds per call, minus those of an empty call, and the quartiles of all calls; None if the figure is withheld.
        In the program tier `time_s` is that of the fastest calls, or the median if most calls take much longer, and in
        the kernel tier the median; see `cuassay.judging.figures`.
    n : int
        The number of timed calls.
    error_s : float
        The standard error of `time_s`, including that of the empty calls and the offset between processes.
    offset : float
        The relative offset between two processes that run the same program, which `error_s`, `ratio_low` and
        `ratio_high` include.
    floor_s, fraction : float or None
        The least time that the device's peak rates allow, and its fraction of `time_s`; None if the rates are
        unknown.
    reference_s, ratio_low, ratio_high : float or None
        The declared implementation's time with the same protocol, and its ratio to the candidate's, less and plus two
        standard errors: above 1 the candidate is faster.
    drift : float or None
        The median of later calls divided by that of earlier ones if they differ clearly; else None.
    clock : str
        ``host``: the judge's clock, which includes the candidate's host code. ``device``: that of the kernel tier.
    tier : str
        ``program`` or ``kernel``.
    withheld : str
        Why no figure is given; empty if there is one.
    """

    label: str
    dtype: str
    time_s: float | None
    q25: float | None
    q75: float | None
    n: int
    error_s: float
    floor_s: float | None = None
    fraction: float | None = None
    reference_s: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    drift: float | None = None
    clock: str = "host"
    tier: str = "program"
    withheld: str = ""
    offset: float = 0.0

    def told(self) -> str:
        """Return the line for a terminal."""
        what = f"{self.label} {self.dtype}"
        if self.time_s is None:
            return f"{what}: no time is given: {self.withheld}"
        against = f", {self.ratio_low:.3g} to {self.ratio_high:.3g} times as fast as declared" if self.ratio_low else ""
        return f"{what}: {self.time_s * 1e6:.4g} µs ± {self.error_s * 1e6:.2g}, {self.clock} clock{against}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The whole verdict on one candidate.

    Attributes
    ----------
    verdict : str
        ``correct``, ``wrong``, ``refused`` (a proven cheat, an impossible time, or a violation of the policy) or
        ``undecided`` (something was missing, or a cheat is indicated).
    reason : str
        The reason as one sentence.
    candidate, declaration : str
        The candidate's file name, and the declaration's name.
    path : str
        The candidate's file as given to the command; it distinguishes files of the same name in several folders.
    device, tier : str
        The device and the tier.
    failing_check, sample, dtype, worst : str
        The check that failed, its inputs, the dtype under test, and the comparison's text; empty if none failed. If an
        undecided candidate exceeded the time for its calls, the check is ``time limit``; if it imports a GPU library
        that this machine lacks, ``missing library``; if workers of a fleet or their judges ended while they judged it,
        ``judge lost``.
    reproduce : str
        A command that repeats the verdict.
    cheat : tuple of Evidence
        The cheats that were seen.
    cases : tuple of CaseTime
        The times; empty unless the verdict is ``correct``.
    probes : mapping of str to int
        The number of passed probes, by name.
    not_probed : mapping of str to str
        What the candidate was not probed for, such as other shapes or another value of an option, and why.
    headroom : float or None
        The worst error divided by its tolerance; 1 is the limit.
    looks_like : str
        The precision that the errors suggest; empty if it is the declared one.
    weak : tuple of str
        The stock mutants that the declaration lets pass.
    verified_calls, timed_calls, calls : int
        The number of timed calls whose outputs were compared, of timed calls, and of all calls.
    nonce : str
        The number, in hexadecimal digits, from which inputs, order and number of calls were derived.
    is_nonce_given : bool
        Whether the caller chose the nonce. Whoever knows it can know all inputs, so such a verdict is worth less.
    declaration_digest, candidate_digest, device_digest : str
        The first 16 digits of the SHA-256.
    jail : mapping of str to str
        For each part of the jail ``on``, or why it is off.
    group : str
        Whether a control group limited the candidate's memory: ``on``, or why not. Without a group the supervisor
        checks memory from time to time, which is later and misses some; the jail counts as complete either way.
    seconds : float
        The duration of the judging in seconds.
    options : mapping
        The options that decide the verdict, for a replay.
    catalogue : int
        The version of the catalogue of cheats that the numbers in `cheat` refer to.
    """

    verdict: Outcome
    reason: str
    candidate: str
    declaration: str
    device: str
    tier: str
    nonce: str
    failing_check: str = ""
    sample: str = ""
    worst: str = ""
    reproduce: str = ""
    cheat: tuple[Evidence, ...] = ()
    cases: tuple[CaseTime, ...] = ()
    probes: Mapping[str, int] = field(default_factory=dict)
    not_probed: Mapping[str, str] = field(default_factory=dict)
    headroom: float | None = None
    looks_like: str = ""
    weak: tuple[str, ...] = ()
    verified_calls: int = 0
    timed_calls: int = 0
    calls: int = 0
    declaration_digest: str = ""
    candidate_digest: str = ""
    device_digest: str = ""
    jail: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    seconds: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    is_nonce_given: bool = False
    path: str = ""
    dtype: str = ""
    catalogue: int = CATALOGUE

    def __post_init__(self) -> None:
        if self.verdict not in _STATUS:
            raise JudgingError(f"a verdict is one of {', '.join(_STATUS)}; got {self.verdict!r}")

    @property
    def status(self) -> int:
        """The exit status of the command for this verdict alone."""
        return _STATUS[self.verdict]

    def same_finding(self, other: Verdict) -> bool:
        """Return whether two verdicts agree apart from times, as a replay must."""
        return self._finding() == other._finding()

    def _finding(self) -> tuple[Any, ...]:
        return self.verdict, self.failing_check, self.sample, self.cheat, self.weak, self.looks_like, self.calls

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form, which names its schema."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, row: Any) -> Verdict:
        """Make a verdict from the result of `as_json`.

        Raises
        ------
        JudgingError
            If it has another schema, or is not a verdict.
        """
        if not isinstance(row, Mapping) or row.get("schema") != SCHEMA:
            found = row.get("schema") if isinstance(row, Mapping) else row
            raise JudgingError(f"a verdict has schema {SCHEMA}; got {found!r:.80}; give a file that --json wrote")
        known = {one.name for one in fields(cls)}
        given = {name: value for name, value in row.items() if name in known}
        try:
            given["cheat"] = tuple(Evidence(**one) for one in given.get("cheat", ()))
            given["cases"] = tuple(CaseTime(**one) for one in given.get("cases", ()))
            given["weak"] = tuple(given.get("weak", ()))
            return cls(**given)
        except TypeError as error:
            raise JudgingError(f"not a verdict: {error}; give a file that --json wrote") from error


def exit_status(verdicts: Iterable[Verdict]) -> int:
    """Return 1 if a candidate is wrong or refused, else 3 if one is undecided, else 0."""
    found = {one.status for one in verdicts}
    return next((status for status in (1, 3) if status in found), 0)


def read_verdicts(path: Path) -> list[Verdict]:
    """Read the verdicts that ``--json`` wrote.

    Raises
    ------
    JudgingError
        If the file cannot be read, or does not contain verdicts.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise JudgingError(f"{path} holds no verdicts: {error}; give a file that --json wrote") from error
    return [Verdict.from_json(row) for row in (rows if isinstance(rows, list) else [rows])]
