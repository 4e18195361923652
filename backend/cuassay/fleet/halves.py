"""One worker's share of ``cuassay fleet ab``: both halves of each pair are measured here, by turns.

Nothing of a pair is ever on another machine. The verdicts go to a file as one line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from cuassay.benchmarking import gate
from cuassay.benchmarking.ab import compare
from cuassay.benchmarking.arms import RECORD, arm, state_folder
from cuassay.benchmarking.comparison import Comparison, Side
from cuassay.benchmarking.noise import Profile
from cuassay.errors import CuassayError

__all__ = ["main"]

_SAMPLE = "cuassay.benchmarking.sample"


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the benchmarks of one shard; gives the exit status."""
    asked = _parser().parse_args(argv)
    only = asked.only_in.read_text(encoding="utf-8").splitlines()
    words = ["-m", _SAMPLE, "--device", asked.device, "--record", RECORD, "--seconds", str(asked.seconds)]
    try:
        with state_folder(None, "cuassay-ab-") as folder:
            targets = {"base": asked.base, "head": asked.head}
            sides = {side: Side(arm(name, folder, words, side)) for side, name in targets.items()}
            comparison = Comparison(sides, folder)
            known = _profile(asked.profile, comparison, only)
            outcome = compare(comparison, known, budget=asked.budget, only=only)
    except CuassayError as error:
        sys.stderr.write(f"cuassay fleet ab: {error}\n")
        return 2
    asked.out.write_text(json.dumps({"record": "comparison", **outcome.columns()}) + "\n", encoding="utf-8")
    return 0


def _profile(path: Path | None, comparison: Comparison, only: Sequence[str]) -> Profile | None:
    """The noise of this machine; refused if it is that of another one."""
    if path is None:
        return None
    known = Profile.load(path)
    comparison.medians("p", 0, "base", only)
    comparison.starts -= 1
    known.require(comparison.facts, path)
    return known


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cuassay.fleet.halves", description="Compare on this machine.")
    parser.add_argument("base")
    parser.add_argument("head")
    parser.add_argument("--device", required=True, metavar="D")
    parser.add_argument("--only-in", type=Path, required=True, metavar="FILE", help="the names of the benchmarks")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--budget", type=float, default=gate.BUDGET)
    parser.add_argument("--profile", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
