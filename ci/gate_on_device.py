"""Test the A/B gate on a device: its noise, three comparisons of unchanged suites, and planted slow-downs.

    python ci/gate_on_device.py [--device cuda:0] [--out FILE.json] [--state DIR] [--benchmarks 30] [--repeats 3]

On the head side the ten longest benchmarks keep the device busy for longer, by 0.5, 1, 2 and 5 % of their medians. In
all processes they begin with a launch of `spin`, so that only the cycles differ, and the noise profile includes the
noise of that launch. With --state, the same command continues where it was stopped. The exit status is 0 if unchanged
suites gave only the verdicts same and ambiguous, and every slow-down that a noise class promises to find was found;
else 1.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuassay.benchmarking import gate
from cuassay.benchmarking.ab import Outcome, compare, profile
from cuassay.benchmarking.arms import RECORD, arm
from cuassay.benchmarking.comparison import Comparison, Side, progress
from cuassay.benchmarking.noise import Profile

SHARES = (0.005, 0.01, 0.02, 0.05)


def _side(options: argparse.Namespace, folder: Path, extra: Sequence[str] = ()) -> Side:
    workload = ["-m", "cuassay.benchmarking.sample", "--device", options.device, "--record", RECORD]
    workload += ["--limit", str(options.benchmarks), "--seconds", str(options.seconds)]
    scatter = ["--scatter", str(options.scatter)] if options.scatter else []
    return Side(arm(sys.executable, folder, workload, "base"), [*extra, *scatter])


def _comparison(options: argparse.Namespace, folder: Path, head: Sequence[str] = (), base: Sequence[str] = ()) -> Any:
    sides = {"base": _side(options, folder, base), "head": _side(options, folder, head)}
    return Comparison(sides, folder, seeded=bool(options.scatter), told=progress)


def _plan(noise: Profile, chosen: Sequence[str]) -> dict[str, float]:
    """Return the share of its median that is planted in each chosen benchmark: the four `SHARES` in turn."""
    quiet = sorted(chosen, key=lambda name: noise.noises[name].noise)
    return {name: SHARES[place % len(SHARES)] for place, name in enumerate(quiet)}


def _spins(seconds: dict[str, float]) -> list[str]:
    return [word for name, one in seconds.items() for word in ("--spin", f"{name}={one}")]


def _summary(outcome: Outcome) -> dict[str, Any]:
    words = {word: len(outcome.of(word)) for word in ("slower", "faster", "ambiguous", "same")}
    pairs = sum(one.pairs for one in outcome.verdicts) / len(outcome.verdicts)
    shown = {"starts": outcome.starts, "pairs": round(pairs, 1), "seconds": round(outcome.seconds, 1)}
    return {**words, **shown, "shift": outcome.shift, "shift_s": outcome.shift_s}


def main(argv: Sequence[str] | None = None) -> int:
    """Run all comparisons; return the exit status."""
    options = _parser().parse_args(argv)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        state = Path(options.state or temporary)
        listed = _comparison(options, state / "listed").medians("n", 0, "base")
        chosen = sorted(listed, key=listed.__getitem__, reverse=True)[: options.planted]
        base = _spins(dict.fromkeys(chosen, 0.0))
        noise, medians = profile(_comparison(options, state / "noise", base, base), options.processes)
        unchanged = [
            compare(_comparison(options, state / f"aa{number}", base, base), noise) for number in range(options.repeats)
        ]
        planted = _plan(noise, chosen)
        head = _spins({name: share * medians[name] for name, share in planted.items()})
        found = compare(_comparison(options, state / "planted", head, base), noise)
    findings = _findings(noise, medians, unchanged, planted, found, time.monotonic() - begun)
    text = json.dumps(findings, indent=1)
    print(text)
    if options.out:
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        Path(options.out).write_text(text + "\n", encoding="utf-8")
    return int(bool(findings["false_alarms"] or findings["missed"]))


def _finite(promise: float) -> float | None:
    return promise if math.isfinite(promise) else None  # None is for classes that only report: JSON has no infinity


def _findings(
    noise: Profile, medians: dict[str, float], unchanged: Sequence[Outcome], planted: dict[str, float], found: Outcome,
    seconds: float,
) -> dict[str, Any]:  # fmt: skip
    words = {one.name: one.word for one in found.verdicts}
    kinds = {name: gate.class_of(noise.noises[name].noise) for name in planted}
    alarms = [one.name for outcome in unchanged for one in (*outcome.of("slower"), *outcome.of("faster"))]
    alarms += [one.name for one in (*found.of("slower"), *found.of("faster")) if one.name not in planted]
    missed = [name for name, share in planted.items() if share >= kinds[name].promise and words[name] != "slower"]
    return {
        "facts": dict(noise.facts),
        "noise": {name: {"noise": one.noise, "median_s": medians[name]} for name, one in noise.noises.items()},
        "unchanged": [_summary(one) for one in unchanged],
        "planted": [
            {"benchmark": name, "share": share, "promise": _finite(kinds[name].promise), "word": words[name]}
            | next({"effect": one.effect, "pairs": one.pairs} for one in found.verdicts if one.name == name)
            for name, share in planted.items()
        ],
        "planted_summary": _summary(found),
        "false_alarms": alarms,
        "missed": missed,
        "seconds": round(seconds, 1),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", help="the table as JSON, such as reports/ledger/gates/2026-01-31-nvidia-h200.json")
    parser.add_argument("--state", help="keeps finished processes")
    parser.add_argument("--benchmarks", type=int, default=30)
    parser.add_argument("--planted", type=int, default=10, help="benchmarks with a slow-down")
    parser.add_argument("--repeats", type=int, default=3, help="comparisons of the unchanged suite")
    parser.add_argument("--processes", type=int, default=12, help="processes of the noise profile")
    parser.add_argument("--seconds", type=float, default=0.05, help="most time for each benchmark in a process")
    parser.add_argument("--scatter", type=float, default=0.0, help="simulated noise, for sim")
    return parser


if __name__ == "__main__":
    sys.exit(main())
