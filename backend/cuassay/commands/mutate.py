"""``cuassay mutate``: how many small faults in the code under test its tests detect, and which they miss."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cuassay.commands.parsing import Parser, output_file
from cuassay.errors import SettingError
from cuassay.results.fingerprint import usable_cores
from cuassay_reports.outputs import RECORD

if TYPE_CHECKING:
    from cuassay.mutation.baseline import Baseline
    from cuassay.mutation.mutant import Mutant
    from cuassay.mutation.outcome import Outcome, Score, Verdict

__all__ = ["add_mutate_command"]

_EXAMPLE = """\
cuassay mutate test_rms.py --device sim      # mutants of the functions that test_rms.py declares
cuassay mutate tests/test_pool.py --source mylib/pool.py --limit 50"""


def add_mutate_command(commands: argparse._SubParsersAction[Parser]) -> None:
    """Declare ``mutate``."""
    mutate = commands.add_parser(
        "mutate",
        help="plant small faults in the code under test, and report those that its tests miss",
        example=_EXAMPLE,
    )
    mutate.add_argument("tests", nargs="+", metavar="TESTS", help="test files, folders or ids, as pytest takes them")
    mutate.add_argument(
        "--source", action="append", default=[], metavar="FILE[::FUNCTION]",
        help="what to change: Python or CUDA C++; repeatable; default: the functions that the tests declare by OpSpec",
    )  # fmt: skip
    mutate.add_argument("--device", action="append", default=[], metavar="D", help="as pytest's --device; repeatable")
    mutate.add_argument("--jobs", type=int, metavar="N", help="mutants at the same time; default: as many as cores")
    mutate.add_argument(
        "--parts", type=int, default=1, metavar="N", help="processes that run the tests without a mutant (default: 1)"
    )
    mutate.add_argument("--limit", type=int, metavar="N", help="most mutants: a sample that depends only on --seed")
    mutate.add_argument("--seed", type=int, default=0, metavar="N", help="chooses the sample (default: 0)")
    mutate.add_argument("--seconds", type=float, metavar="S", help="stop after this time, including the first run")
    mutate.add_argument("--equivalents", type=Path, metavar="FILE", help="TOML list of mutants that change nothing")
    mutate.add_argument(
        "--record", type=output_file(RECORD, makes_folders=True), metavar="FILE",
        help="append the scores to this result file",
    )  # fmt: skip
    mutate.add_argument("--fail-under", type=float, default=0.0, metavar="PERCENT", help="exit 1 below this score")
    mutate.add_argument(
        "--stock", action="store_true", help="also replace declared functions by zeros, a copy, a stale answer, ..."
    )
    mutate.add_argument("--list", action="store_true", help="print the mutants and run none")
    mutate.set_defaults(command=_mutate)


def _mutate(options: argparse.Namespace) -> int:
    from cuassay.mutation import campaign
    from cuassay.mutation.baseline import Baseline
    from cuassay.mutation.project import find_mutants, project_root

    jobs = usable_cores() if options.jobs is None else options.jobs
    if jobs < 1:
        raise SettingError(f"--jobs is {jobs}; give 1 or more")
    if options.parts < 1:
        raise SettingError(f"--parts is {options.parts}; give 1 or more")
    if options.limit is not None and options.limit < 1:
        raise SettingError(f"--limit is {options.limit}; give 1 or more")
    campaign.require_coverage()
    _require_tests(options.tests)
    root, here = project_root(Path.cwd()), Path.cwd().resolve()
    sources = [_below(root, here, source) for source in options.source]
    named = find_mutants(root, sources, Baseline()) if sources else None
    equivalents = _equivalents(options.equivalents)
    devices = tuple(f"--cuassay-device={device}" for device in options.device)
    budget = options.seconds or float("inf")
    folder, tests = here.relative_to(root).as_posix(), tuple(options.tests)
    changed = tuple(dict.fromkeys(mutant.path for mutant in named or ()))
    plan = campaign.Campaign(root, folder, tests, devices, jobs, options.parts, budget, sources=changed)
    print("mutate: running the tests without a mutant", flush=True)
    baseline = campaign.measure_baseline(plan)
    print(f"mutate: {_passed(baseline)}")
    found = find_mutants(root, [], baseline, stock=options.stock) if named is None else named
    mutants = campaign.sampled(found, options.limit, options.seed)
    if options.list:
        for mutant in mutants:
            print(_titled(mutant, root))
        return 0
    print(f"mutate: {len(mutants):,} mutants, {jobs} at a time", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a terminated job shows its scores, as after Ctrl-C
    outcomes = campaign.run_mutants(plan, mutants, baseline, equivalents, partial(_tell, root=root))
    return _close(options, outcomes, len(mutants), root)


def _require_tests(tests: Sequence[str]) -> None:
    for test in tests:
        if not Path(test.partition("::")[0]).exists():
            raise SettingError(
                f"{test} does not exist in {Path.cwd()}; name files, folders or ids such as t.py::test_a"
            )


def _below(root: Path, here: Path, source: str) -> str:
    """Return a source relative to the current folder as a path relative to the root."""
    name, mark, function = source.partition("::")
    path = (here / name).resolve()
    return (path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)) + mark + function


def _equivalents(path: Path | None) -> Mapping[str, str]:
    from cuassay.mutation.equivalents import read_equivalents

    return {} if path is None else read_equivalents(path)


def _passed(found: Baseline) -> str:
    text = f"{len(set(found.durations) - set(found.failed)):,} tests pass in {sum(found.durations.values()):.1f} s"
    if found.failed:
        text += f"; {len(found.failed):,} fail without a mutant and are left out"
    return text + (f"; {found.left_out:,} did not start within half of --seconds" if found.left_out else "")


def _tell(outcome: Outcome, *, root: Path) -> None:
    """Print a survivor as soon as it is found."""
    if outcome.verdict in {"survived", "uncovered"}:
        what = f"{outcome.tests:,} tests passed" if outcome.verdict == "survived" else outcome.note
        note = f"; {outcome.note}" if outcome.verdict == "survived" and outcome.note else ""
        print(f"\n{outcome.verdict}  {_titled(outcome.mutant, root)}\n  {what}{note}", flush=True)


def _titled(mutant: Mutant, root: Path) -> str:
    text = (root / mutant.path).read_text(encoding="utf-8")
    changed = "\n".join(f"  {line}" for line in mutant.diff(text).splitlines())
    where = f"{mutant.path}:{mutant.line}" + (f" {mutant.function}" if mutant.function else "")
    return f"{where}: {mutant.edit.operator} [{mutant.identity}]\n{changed}"


def _close(options: argparse.Namespace, outcomes: Sequence[Outcome], planned: int, root: Path) -> int:
    from cuassay.mutation.outcome import scores

    found = scores(outcomes)
    print()
    for score in found:
        print(_line(score))
    counts = {verdict: sum(score.counts.get(verdict, 0) for score in found) for verdict in _COUNTED}
    judged = sum(score.judged for score in found)
    share = 100 * counts["killed"] / judged if judged else 0.0
    listed = ", ".join(f"{number:,} {verdict}" for verdict, number in counts.items() if number)
    if judged:
        print(f"mutation score: {share:.1f} % ({counts['killed']:,} of {judged:,}); {listed}")
    elif planned:
        print(f"no mutation score: none of {planned:,} mutants was judged{f'; {listed}' if listed else ''}")
    else:
        print(
            "no mutation score: there is nothing to change in the tested functions, such as a comparison or a constant"
        )
    if len(outcomes) < planned:
        print(f"stopped early: {planned - len(outcomes):,} of {planned:,} mutants did not run", file=sys.stderr)
    if options.record is not None:
        _record(options, outcomes, found, root)
    has_nothing_to_judge = not judged and planned == counts["equivalent"]
    return int(share < options.fail_under and not has_nothing_to_judge)


_COUNTED: tuple[Verdict, ...] = ("killed", "survived", "uncovered", "invalid", "equivalent")


def _line(score: Score) -> str:
    share = "  –  " if score.share is None else f"{100 * score.share:4.0f} %"
    return f"{share}  {score.counts.get('killed', 0):3} of {score.judged:3}  {score.path} {score.function}".rstrip()


def _record(options: argparse.Namespace, outcomes: Sequence[Outcome], found: Sequence[Score], root: Path) -> None:
    from cuassay.results.record import Recorder, begin

    survivors: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes:
        if outcome.verdict in {"survived", "uncovered"}:
            mutant = outcome.mutant
            survivors.setdefault((mutant.path, mutant.function), []).append(_titled(mutant, root))
    with Recorder(options.record) as recorder:
        begin(recorder, f"cuassay mutate {' '.join(options.tests)}", root)
        for score in found:
            recorder.write(
                "mutation",
                source=score.path,
                function=score.function or None,
                device=",".join(options.device) or None,
                **{verdict: score.counts.get(verdict, 0) for verdict in _COUNTED},
                survivors=survivors.get((score.path, score.function))
                and "\n".join(survivors[score.path, score.function]),
            )
