"""The referee judges candidates by a declaration. Only the referee writes verdicts.

It fails closed: a candidate that did not answer all calls, or could not be confined, is not called correct.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cuassay.core.device import HOST_KINDS, Device
from cuassay.judging.baseline import Baseline, StartTimed, measured
from cuassay.judging.catalogue import CATALOGUE
from cuassay.judging.clocks import (
    FLOOR_SLACK,
    busy_seconds,
    case_times,
    declared_times,
    empty_intervals,
    is_impossible,
    peaks_of,
)
from cuassay.judging.heap import kept_memory
from cuassay.judging.missing import missing_library
from cuassay.judging.precision import looks_like
from cuassay.judging.reply import escaped, escaped_path
from cuassay.judging.results import Results
from cuassay.judging.scan import Policy, parse_policy, scan
from cuassay.judging.schedule import Schedule, claimed, schedule
from cuassay.judging.spec_file import Declaration
from cuassay.judging.strength import weaknesses
from cuassay.judging.subject import Subject
from cuassay.judging.trial import Trial, hear
from cuassay.judging.turns import Turns
from cuassay.judging.verdict import CaseTime, Evidence, Outcome, Verdict
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

__all__ = ["JudgeOptions", "Opened", "Referee", "Start"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """How candidates are judged.

    Attributes
    ----------
    device : Device
        The device on which the candidate runs.
    tier : str
        ``program`` or ``kernel``. The kernel tier needs a device that compiles CUDA C++.
    seconds : float
        The most seconds that all calls of one candidate may take together.
    times : bool
        Whether the calls are timed.
    policy : mapping
        The decisions about benign shortcuts; see `cuassay.judging.scan`.
    allow_unjailed, allow_weak : bool
        Whether to judge even if parts of the jail are missing, or if the declaration lets stock mutants pass.
    apart : bool
        Whether to check the candidate while others are checked, and to time it alone afterwards. Otherwise checks and
        timed calls are mixed.
    """

    device: Device
    tier: Literal["program", "kernel"] = "program"
    seconds: float = 30.0
    times: bool = True
    policy: Policy = field(default_factory=lambda: parse_policy(""))
    allow_unjailed: bool = False
    allow_weak: bool = False
    apart: bool = False

    def told(self) -> dict[str, Any]:
        """Return the options in the form that a verdict keeps for a replay."""
        return {
            "device": str(self.device), "tier": self.tier, "seconds": self.seconds, "times": self.times,
            "policy": dict(self.policy), "allow_unjailed": self.allow_unjailed, "allow_weak": self.allow_weak,
            "apart": self.apart,
        }  # fmt: skip

    def words(self) -> Iterator[str]:
        """Yield the command line words for these options: the device, and the options that differ from the defaults."""
        yield from ("--device", str(self.device))
        plain = JudgeOptions(device=self.device)
        differ = {one.name for one in fields(self) if getattr(self, one.name) != getattr(plain, one.name)}
        if "tier" in differ:
            yield from ("--tier", self.tier)
        if "seconds" in differ:
            yield from ("--seconds", f"{self.seconds:.12g}")
        if "policy" in differ:
            yield from ("--policy", ",".join(f"{name}={word}" for name, word in self.policy.items()))
        if "apart" in differ and self.times:
            yield from ("--jobs", "2")  # any number above 1 separates timing from checks
        yield from (option for name, option in _SWITCHES.items() if name in differ)


#: Command line options without a value.
_SWITCHES = {"times": "--no-times", "allow_unjailed": "--allow-unjailed", "allow_weak": "--allow-weak"}


class Opened(Subject, Protocol):
    """A candidate whose process has started."""

    @property
    def source(self) -> bytes:
        """The content of its files, which were read once."""

    @property
    def problem(self) -> str:
        """Why it cannot be called; empty if it can."""

    @property
    def is_confined(self) -> bool:
        """Whether every part of the jail is on."""

    @property
    def jail(self) -> Mapping[str, str]:
        """Each part of the jail: ``on``, or the reason why it is off."""

    @property
    def group(self) -> str:
        """Whether a control group limits its memory: ``on``, or why not."""

    def evidence(self) -> Sequence[Evidence]:
        """Return cheats that were seen apart from its answers."""


#: Starts a candidate's file in its own process.
Start = Callable[[Path], AbstractContextManager[Opened]]


class Referee:
    """Judges candidates of one declaration.

    Parameters
    ----------
    declaration : Declaration
        The declaration that candidates are judged by.
    options : JudgeOptions
        How they are judged.
    start : callable
        ``start(path)`` starts a candidate.
    ours : callable, optional
        Starts a trusted process with the declared function, for calls on a sample of every case.
    """

    def __init__(
        self,
        declaration: Declaration,
        options: JudgeOptions,
        start: Start,
        ours: StartTimed | None = None,
    ) -> None:
        self.declaration, self.options = declaration, options
        self._start, self._ours = start, ours
        self._turns = Turns()
        self.results = Results(declaration.specs)
        self.dtypes = claimed(declaration.spec, options.device)
        self.weak = tuple(self._weaknesses())

    def __repr__(self) -> str:
        return f"Referee({self.declaration.spec.name} on {self.options.device})"

    def _weaknesses(self) -> Iterator[str]:
        """Yield the stock mutants that pass, for inputs that depend only on the declaration."""
        nonce = int(self.declaration.digest, 16)
        plan = self._plan(nonce, layouts=False, times=False, bench=False)
        yield from weaknesses(self.results, plan, nonce)

    def _plan(self, nonce: int, *, layouts: bool, times: bool, bench: bool = True) -> Schedule:
        device = self.options.device
        return schedule(self.results, device, nonce, dtypes=self.dtypes, layouts=layouts, times=times, bench=bench)

    def judge(self, candidate: Path, *, nonce: int | None = None) -> Verdict:
        """Return the verdict on the candidate in a file.

        Parameters
        ----------
        nonce : int, optional
            The nonce of another verdict, to repeat it. By default the system draws a new one after the candidate is
            loaded.
        """
        with np.errstate(invalid="ignore"), kept_memory():  # unwritten bits may be a signalling NaN
            return self._judged(candidate, nonce)

    def _judged(self, candidate: Path, nonce: int | None) -> Verdict:
        began = time.perf_counter()
        found = _Found(path=candidate, is_nonce_given=nonce is not None)
        if self.options.apart and self.options.times:
            with self._turns.together():
                self._hear(found, nonce, times=False)
            trial = found.trial
            if trial is not None and trial.finding is None and not trial.ended and not found.problem:
                with self._turns.alone():
                    self._hear(found, found.nonce + 1, times=True)
                found.nonce -= 1
        else:
            with self._turns.alone() if self.options.times else self._turns.together():
                self._hear(found, nonce, times=self.options.times)
        return replace(self._verdict(found), seconds=round(time.perf_counter() - began, 3))

    def _hear(self, found: _Found, nonce: int | None, *, times: bool) -> None:
        with self._start(found.path) as subject:
            found.read(subject.source, self.options.policy)
            found.jail, found.is_confined = dict(subject.jail), subject.is_confined
            found.problem, found.group = subject.problem, subject.group
            found.nonce = secrets.randbits(64) if nonce is None else nonce  # drawn after the candidate was loaded
            if found.problem or "start" in found.jail or not (found.is_confined or self.options.allow_unjailed):
                return
            plan = self._plan(found.nonce, layouts=subject.takes_layouts, times=times)
            found.not_probed = plan.not_probed
            found.trial = hear(subject, plan, found.nonce, most_seconds=self.options.seconds)
            found.evidence += subject.evidence()
        if times and found.trial.finding is None and not found.trial.ended:
            found.cases = self._times(found.trial)

    def _times(self, trial: Trial) -> tuple[CaseTime, ...]:
        """Return the time of each case. The trusted processes are timed after this candidate has ended."""
        results, device = self.results, self.options.device
        if self.options.tier == "kernel":
            baseline = Baseline([declared_times(results, device, trial)], [empty_intervals(device, trial)])
        else:
            baseline = measured(self._ours, trial.shapes, busy_s=busy_seconds(device))
        return case_times(
            results, trial, baseline, tier=self.options.tier, on="host" if device.kind in HOST_KINDS else "device",
            peaks=partial(peaks_of, device, self.dtypes),
        )  # fmt: skip

    def _verdict(self, found: _Found) -> Verdict:
        spec, trial = self.declaration.spec, found.trial or Trial()
        precision = self._precision(trial)
        if precision:
            within = "beyond" if trial.finding is not None else "within"
            text = f"the errors look like those of {precision}, {within} the tolerance"
            found.evidence.append(Evidence(id="C6", certainty="hint", evidence=text))
        if trial.finding is not None:
            found.evidence += trial.finding.cheat
        for case in filter(is_impossible, found.cases):
            excess = f"{case.time_s:.3g} s is less than {FLOOR_SLACK:g} of the least possible {case.floor_s:.3g} s"
            text = f"{case.label} {case.dtype}: {excess}"
            found.evidence.append(Evidence(id="T14", certainty="proven", evidence=text))
        verdict, reason, check = self._decided(found, trial)
        failed = trial.finding
        return Verdict(
            verdict=verdict, reason=reason, candidate=escaped(found.path.name), declaration=spec.name,
            device=str(self.options.device), tier=self.options.tier, nonce=f"{found.nonce:x}",
            failing_check=check, sample=failed.sample if failed else "", dtype=failed.dtype if failed else "",
            worst=failed.text if failed else found.problem,
            reproduce=self._reproduce(found), cheat=tuple(dict.fromkeys(found.evidence)),
            cases=found.cases if verdict == "correct" else (), probes=trial.passed,
            not_probed=_not_probed(found, trial),
            headroom=round(trial.headroom, 4) if trial.finding is None and found.trial else None, looks_like=precision,
            weak=self.weak, verified_calls=trial.verified, timed_calls=trial.timed, calls=trial.calls,
            declaration_digest=self.declaration.digest, candidate_digest=found.digest,
            device_digest=_device_digest(self.options.device), jail=found.jail, options=self.options.told(),
            is_nonce_given=found.is_nonce_given, group=found.group, path=escaped_path(found.path),
        )  # fmt: skip

    def _precision(self, trial: Trial) -> str:
        """Return the precision that the errors of a result suggest; empty if they suggest none."""
        pairs: dict[OpSpec, list[tuple[Sample, NDArray[Any]]]] = {}
        for sample, outputs in (pair for some in trial.errors.values() for pair in some):
            for spec, output in zip(self.results.of(sample), outputs, strict=False):
                pairs.setdefault(spec, []).append((sample, output))
        return next(filter(None, (looks_like(spec, some) for spec, some in pairs.items())), "")

    def _decided(self, found: _Found, trial: Trial) -> tuple[Outcome, str, str]:
        """Return the worst verdict that applies, the reason as one sentence, and the check that failed."""
        failed = trial.finding
        proven = next((one for one in found.evidence if one.certainty == "proven"), None)
        if proven is not None:
            check = "policy" if proven.id.startswith("B") else "evidence"
            return "refused", str(proven), "load" if found.problem else failed.check if failed else check
        library = missing_library(found.problem or (failed.text if failed else ""))
        if library is not None:
            return "undecided", _LIBRARY_IS_MISSING.format(library), "missing library"
        if found.problem:
            return "wrong", f"it cannot be loaded: {found.problem.removeprefix('load: ')}{_seen_files(found)}", "load"
        if failed is not None:
            return "wrong", failed.text.splitlines()[0], failed.check
        doubt = self._doubt(found, trial)
        if doubt:
            return (
                "undecided",
                doubt,
                "time limit" if doubt == trial.ended and trial.seconds > self.options.seconds else "",
            )
        return (
            "correct",
            f"all checks passed, no cheat was found: catalogue {CATALOGUE}, {trial.calls} calls, nonce {found.nonce:x}",
            "",
        )

    def _doubt(self, found: _Found, trial: Trial) -> str:
        """Return why a candidate is not called correct although no check failed; empty if it is called correct."""
        if found.trial is None:
            missing = ", ".join(f"{part} ({why})" for part, why in found.jail.items() if why != "on")
            return f"it did not run: the jail lacks {missing}; --allow-unjailed runs it all the same"
        indicated = next((str(one) for one in found.evidence if one.certainty == "indicated"), "")
        weak = f"the declaration is weak: it lets pass {', '.join(self.weak)}; --allow-weak judges by it all the same"
        return trial.ended or indicated or (weak if self.weak and not self.options.allow_weak else "")

    def _reproduce(self, found: _Found) -> str:
        file = escaped_path(Path(self.declaration.given or self.declaration.path))
        words = [
            "cuassay",
            "judge",
            f"{file}::{self.declaration.name}",
            escaped_path(found.path),
            *self.options.words(),
        ]
        return shlex.join([*words, "--nonce", f"{found.nonce:x}"])


_LIBRARY_IS_MISSING = (
    "it imports {}, which is not installed here; judge it on a machine that has it, with --device cuda:0, or let it "
    "compute with xp"
)


def _not_probed(found: _Found, trial: Trial) -> dict[str, str]:
    """Return what the candidate was not probed for, by name, and why."""
    dropped = dict.fromkeys(sorted(trial.not_varied), "the declared function itself fails for other values")
    return {**dropped, **found.not_probed}


def _seen_files(found: _Found) -> str:
    """Return which files a candidate may open, as a remark on an error that may be caused by the jail."""
    is_of_file = any(name in found.problem for name in ("FileNotFoundError", "PermissionError"))
    is_hidden = "on" in (found.jail.get("mount"), found.jail.get("files"))
    return "; its jail shows it its own files, Python and the installed libraries" if is_of_file and is_hidden else ""


@dataclass(slots=True)
class _Found:
    """The findings about one candidate so far."""

    path: Path
    digest: str = ""
    nonce: int = 0
    is_nonce_given: bool = False
    group: str = ""
    problem: str = ""
    jail: Mapping[str, str] = field(default_factory=dict)
    is_confined: bool = False
    trial: Trial | None = None
    evidence: list[Evidence] = field(default_factory=list)
    cases: tuple[CaseTime, ...] = ()
    not_probed: Mapping[str, str] = field(default_factory=dict)

    def read(self, source: bytes, policy: Policy) -> None:
        """Record what the source shows. A second start of the same source adds nothing."""
        digest = hashlib.sha256(source).hexdigest()[:16]
        if digest != self.digest:
            self.digest = digest
            text = source.decode(errors="replace")
            self.evidence += scan(text, is_python=self.path.suffix == ".py", policy=policy)


def _device_digest(device: Device) -> str:
    from cuassay import devices
    from cuassay.results.fingerprint import device_fingerprint, digest

    return digest(device_fingerprint(devices.backend(device.kind).identity(device.index)))[:16]
