"""How verdicts are shown in a terminal, written as JSON, and recorded as rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cuassay.commands.parsing import painted

if TYPE_CHECKING:
    from cuassay.judging.verdict import Verdict

__all__ = ["compare", "record", "show", "tell_weak", "write_json"]


def tell_weak(name: str, weak: Sequence[str]) -> None:
    """Warn of a declaration that lets the stock mutants `weak` pass."""
    if weak:
        print(
            f"{name} is a weak declaration: these wrong functions pass it: {', '.join(weak)}; give samples for which "
            "their results are wrong, or --allow-weak if the right result is a constant",
            file=sys.stderr,
        )


def show(verdict: Verdict) -> None:
    """Print a verdict for a terminal."""
    style = "bold" if verdict.verdict == "correct" else "red"
    print(f"{painted(verdict.verdict, style, sys.stdout)}  {verdict.path}: {verdict.reason}")
    if verdict.verdict in ("wrong", "refused") and verdict.worst:
        first, *lines = verdict.worst.removeprefix("load: ").splitlines()
        dtype = f" in {verdict.dtype}" if verdict.dtype else ""
        on = f" on {verdict.sample}{dtype}" if verdict.sample else ""
        how = "" if first in verdict.reason else f": {first}"  # a refusal's reason is the cheat
        if on or how:
            print(f"  check: {verdict.failing_check}{on}{how}", *(f"  {line}" for line in lines[:11]), sep="\n")
    for seen in verdict.cheat:
        if str(seen) != verdict.reason:
            print(f"  {seen}")
    for case in verdict.cases:
        print(f"  {case.told()}")
    if verdict.verdict == "correct" and verdict.not_probed:
        print(f"  not probed: {'; '.join(f'{name}: {why}' for name, why in verdict.not_probed.items())}")
    if verdict.verdict in ("wrong", "refused"):
        print(f"  reproduce: {verdict.reproduce}")
    sys.stdout.flush()


def compare(verdict: Verdict, known: Sequence[Verdict]) -> None:
    """Print whether a verdict is the one on the same candidate among the `known` ones, which are repeated."""
    before = next((one for one in known if one.candidate_digest == verdict.candidate_digest), None)
    if before is None:
        return
    if before.declaration_digest != verdict.declaration_digest:
        print("  replay: the declaration has changed since then")
    same = before.same_finding(verdict)
    print("  replay: the same verdict" if same else f"  replay: it was {before.verdict}: {before.reason}")


def write_json(path: Path, verdicts: Sequence[Verdict]) -> None:
    """Write verdicts to a file that ``--replay`` reads."""
    path.write_text(json.dumps([one.as_json() for one in verdicts], indent=1) + "\n", encoding="utf-8")


def record(path: Path, command: str, verdicts: Sequence[Verdict], workers: Sequence[str | None]) -> None:
    """Append the rows of a run to a result file; `workers` of a fleet, or None, gave the verdicts."""
    from cuassay.results.record import Recorder, begin

    with Recorder(path) as recorder:
        begin(recorder, command, Path.cwd())
        for verdict, worker in zip(verdicts, workers, strict=True):
            recorder.write("verdict", **_row(verdict), worker=worker)


def _row(verdict: Verdict) -> Mapping[str, object]:
    """Return the columns of a ``verdict`` row."""
    ratios = [case.ratio_low for case in verdict.cases if case.ratio_low is not None]
    missing = [f"{part}: {state}" for part, state in verdict.jail.items() if state != "on"]
    return {
        "declaration": verdict.declaration,
        "candidate": verdict.candidate,
        "digest": verdict.candidate_digest,
        "device": verdict.device,
        "tier": verdict.tier,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "check": verdict.failing_check or None,
        "sample": verdict.sample or None,
        "dtype": verdict.dtype or None,
        "message": verdict.worst or None,
        "cheats": ", ".join(f"{one.id} {one.certainty}" for one in verdict.cheat) or None,
        "weak": ", ".join(verdict.weak) or None,
        "probes": " ".join(f"{name.replace(' ', '_')}={count}" for name, count in sorted(verdict.probes.items()))
        or None,
        "headroom": verdict.headroom,
        "looks_like": verdict.looks_like or None,
        "calls": verdict.calls,
        "verified": verdict.verified_calls,
        "ratio": min(ratios, default=None),
        "clock": verdict.cases[0].clock if verdict.cases else None,
        "cases": [
            {name: value for name, value in asdict(case).items() if value not in (None, "", {})}
            for case in verdict.cases
        ]
        or None,
        "nonce": verdict.nonce,
        "jail": ", ".join(missing) or None,
        "reproduce": verdict.reproduce,
        "duration": verdict.seconds,
    }
