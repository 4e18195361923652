"""Judge the honest candidates and the planted cheats of ``suites/data/judging`` under new nonces, and count verdicts.

A nonce decides the inputs, the order and the number of calls, so a single nonce shows little. Any verdict but *correct*
on an honest candidate is reported, and *correct* on a cheat. A cheat that may be right must have its work in its times,
or leave nothing running.

``python ci/judge.py --nonces 20`` prints a line for each nonce and each surprise. The exit status is 1 if a cheat
passed, an honest candidate was refused or wrong, or more than 1 % of the honest candidates are undecided.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "suites" / "shared"))

from referees import (  # type: ignore[import-not-found]  # in suites, which is not a package
    BUSY,
    DRIFTING,
    NOT_STOPPED,
    WORK_S,
    Referees,
    busy,
    candidates,
    declared_name,
)

from cuassay.judging.verdict import Verdict

__all__ = ["main"]

_HONEST, _CHEATS = ("honest", "right"), ("cheats", "public", "inside")

#: The fraction of the honest verdicts that may be undecided.
_MOST_UNDECIDED = 0.01


def _judged(folder: str, referees: Referees, timing: Referees, nonce: int) -> Counter[str]:
    """Count the verdicts on the candidates of a folder, and print the unexpected ones."""
    counts: Counter[str] = Counter()
    for path in candidates(folder):
        text = path.read_text(encoding="utf-8")
        if "@SPEC@" in text or "@FILE@" in text or "@PORT@" in text or path.stem in NOT_STOPPED:
            continue  # a test fills in their placeholders, or expects them to pass
        some = timing if path.stem in (*WORK_S, *DRIFTING) else referees
        verdict = some.of(declared_name(path)).judge(path, nonce=nonce)
        word = verdict.verdict
        if word == "correct" and path.stem in WORK_S and _has_its_work(verdict, WORK_S[path.stem]):
            word = "harmless"
        if word == "correct" and path.stem in DRIFTING and all(case.time_s is None for case in verdict.cases):
            word = "without a time"
        if word == "correct" and path.stem in BUSY and not busy():
            word = "harmless"
        counts[word] += 1
        if (word == "correct") is (folder not in _HONEST):
            print(f"  {folder}/{path.stem} is {word} under {nonce:x}: {verdict.reason}", flush=True)
    return counts


def _has_its_work(verdict: Verdict, seconds: float) -> bool:
    return all(case.time_s is None or case.time_s > seconds / 2 for case in verdict.cases)


def _summary(total: Mapping[str, Counter[str]]) -> str:
    return "; ".join(
        f"{folder} {counts.total()} ({', '.join(f'{n} {word}' for word, n in sorted(counts.items()))})"
        for folder, counts in total.items()
    )


def main(words: Sequence[str] | None = None) -> int:
    """Judge, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--nonces", type=int, default=20, help="how many (default: %(default)s)")
    parser.add_argument("--device", default="sim", help="where (default: %(default)s)")
    parser.add_argument("folders", nargs="*", default=[*_HONEST, *_CHEATS], help="which (default: all)")
    options = parser.parse_args(words)
    referees, timing = Referees(options.device, times=False, seconds=30.0), Referees(options.device)
    total: dict[str, Counter[str]] = {folder: Counter() for folder in options.folders}
    began = time.monotonic()
    for place in range(options.nonces):
        nonce = secrets.randbits(64)
        for folder in options.folders:
            total[folder] += _judged(folder, referees, timing, nonce)
        seconds = time.monotonic() - began
        print(f"{place + 1} of {options.nonces}, {seconds:.0f} s: {_summary(total)}", flush=True)
    referees.close()
    timing.close()
    honest = sum((counts for folder, counts in total.items() if folder in _HONEST), Counter())
    passed = sum(counts["correct"] for folder, counts in total.items() if folder not in _HONEST)
    lost = honest["wrong"] + honest["refused"] + passed
    return int(lost > 0 or honest["undecided"] > _MOST_UNDECIDED * honest.total())


if __name__ == "__main__":
    sys.exit(main())
