"""``cuassay bisect``: find the commit that made a benchmark slower, by the comparisons of ``cuassay ab``."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cuassay.benchmarking import gate
from cuassay.benchmarking.ab import Verdict, compare
from cuassay.benchmarking.arms import Arm, arm_of_commit, git, state_folder
from cuassay.benchmarking.bisect import Found, Step, search
from cuassay.benchmarking.comparison import Comparison, Side, progress
from cuassay.benchmarking.noise import Profile
from cuassay.commands.ab import add_common, tell_uncommitted, workload
from cuassay.commands.parsing import Parser
from cuassay.commands.suspects import fill_in
from cuassay.errors import ArgumentError, MeasurementError
from cuassay_reports.outputs import BISECTION

__all__ = ["add_bisect_command"]

_SHORT = 10

#: The most benchmarks that a message names.
_NAMED = 5


def add_bisect_command(commands: argparse._SubParsersAction[Parser]) -> None:
    """Declare ``bisect``."""
    parser = commands.add_parser(
        "bisect",
        help="find the commit that made a benchmark slower, by a binary search with comparisons of ab",
        example="cuassay bisect gelu* --good v1.2 --bad main --device cuda:0\n"
        "cuassay bisect - --profile noise.json  # after: cuassay report history --suspects |",
    )
    parser.add_argument(
        "benchmark", metavar="BENCHMARK",
        help="its name, with or without dtype and case, or a pattern that matches one; "
        "-: read the output of cuassay report --suspects",
    )  # fmt: skip
    parser.add_argument("--good", metavar="COMMIT", help="an older commit at which it was fast")
    parser.add_argument("--bad", metavar="COMMIT", default="HEAD", help="a newer commit (default: %(default)s)")
    parser.add_argument(
        "--build",
        metavar="COMMAND",
        help="a command to run in each checkout before measuring it; a commit where it fails is skipped",
    )
    add_common(parser, BISECTION, selects=False)
    parser.add_argument("--profile", metavar="FILE", help="the noise profile of this runner, from: cuassay aa")
    parser.set_defaults(command=_bisect)


def _bisect(options: argparse.Namespace) -> int:
    options.base, options.head, options.only = "-", None, []
    if options.benchmark != "-":
        options.base, options.head, options.only = options.good, options.bad, [options.benchmark]
    if options.base is None:
        raise ArgumentError("--good is missing: name an older commit at which the benchmark was fast, such as a tag")
    if not fill_in(options):
        print("no suspects: there is nothing to search")
        return 0
    commits = _commits(options.base, options.head)
    tell_uncommitted()
    known = Profile.load(Path(options.profile)) if options.profile else None
    with state_folder(options.state, "cuassay-bisect-") as folder:
        bench = _Bench(options, folder.absolute(), known)
        found = {}
        for pattern in options.only:
            name = bench.require(pattern, commits)
            found[name] = search(commits, partial(bench.verdict, name), partial(bench.why_skipped, name))
            print("\n".join(lines(name, found[name])))
    if options.json:
        options.json.write_text(json.dumps(_columns(found), indent=1) + "\n", encoding="utf-8")
    return int(any(one.is_slower and one.total.verdict.gates for one in found.values()))


def _commits(good: str, bad: str) -> list[str]:
    """Return the full names of `good` and of the later commits up to `bad`, along first parents."""
    ends = {name: git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") for name in (good, bad)}
    for name, commit in ends.items():
        if commit is None:
            raise ArgumentError(
                f"{name!r} is not a commit of this repository; run this inside the repository, and give a commit"
            )
    if git("merge-base", "--is-ancestor", good, bad) is None:
        raise ArgumentError(f"{good!r} is not an ancestor of {bad!r}; give the older commit as --good")
    between = (git("rev-list", "--first-parent", "--reverse", f"{good}..{bad}") or "").split()
    if not between:
        raise ArgumentError(f"there is no commit between {good!r} and {bad!r}; give two different commits")
    return [str(ends[good]), *between]


@dataclass
class _Bench:
    """Measures commits of the surrounding repository, each in its own checkout."""

    options: argparse.Namespace
    folder: Path
    profile: Profile | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    arms: dict[str, Arm] = field(default_factory=dict)

    def arm(self, commit: str) -> Arm:
        """Return a commit, checked out and built."""
        if commit not in self.arms:
            made = arm_of_commit(commit, self.folder / "trees" / commit[:12], workload(self.options), commit[:_SHORT])
            self._build(made)
            self.arms[commit] = made
        return self.arms[commit]

    def _build(self, made: Arm) -> None:
        tree = made.folder or self.folder
        marker = tree.with_name(f"{tree.name}.built")
        command = self.options.build
        if not command or (marker.exists() and marker.read_text(encoding="utf-8") == command):
            return
        try:
            done = subprocess.run(_words(command), cwd=tree, capture_output=True, check=False)
        except OSError as error:
            raise MeasurementError(f"{made.name} does not build: {error}; look at --build {command!r}") from error
        if done.returncode:
            output = (done.stdout + done.stderr).decode(errors="replace")
            raise MeasurementError(f"{made.name} does not build: {_last_line(output)}")
        marker.write_text(command, encoding="utf-8")

    def comparison(self, place: str, sides: Mapping[str, str]) -> Comparison:
        """Return a comparison of some commits, on the device that the first one used."""
        extra = ["--scatter", str(self.options.scatter)] if self.options.scatter else []
        ready = {side: Side(self.arm(commit), extra) for side, commit in sides.items()}
        return Comparison(
            ready, self.folder / place, self.options.run is None, bool(extra), progress, facts=self.facts
        )  # fmt: skip

    def _probe(self, pattern: str, commit: str) -> Comparison:
        return self.comparison(_place(pattern, commit), {"base": commit})

    def names(self, pattern: str, commit: str) -> list[str]:
        """Return the benchmarks of a commit that match; if none has the name itself, also each whose name it begins."""
        probe = self._probe(pattern, commit)
        found = probe.medians("s", 0, "base", [pattern, f"{pattern} *"])
        self.facts = self.facts or probe.facts
        return [pattern] if pattern in found else sorted(found)

    def require(self, pattern: str, commits: Sequence[str]) -> str:
        """Return the only benchmark that matches at both ends of the range."""
        for commit in (commits[0], commits[-1]):
            names = self.names(pattern, commit)
            if len(names) != 1:
                measured = self._probe(pattern, commit).medians("s", 0, "base")
                raise ArgumentError(_not_one(pattern, names, sorted(measured), commit[:_SHORT]))
        if self.profile is not None:
            self.profile.require(self.facts, Path(self.options.profile))
        return names[0]

    def why_skipped(self, name: str, commit: str) -> str | None:
        """Return why `name` cannot be measured at `commit`, or None if it can.

        Raises
        ------
        MeasurementError
            If nothing can be measured, not even the oldest commit, which was measured before.
        """
        try:
            return None if name in self.names(name, commit) else f"it has no benchmark {name!r}"
        except MeasurementError as error:
            oldest = self._probe(name, next(iter(self.arms)))
            oldest.medians("again", len(list(oldest.folder.glob("again*.jsonl"))), "base", [name])
            log = self.folder / _place(name, commit) / "s00-base.log"
            return _last_line(log.read_text(encoding="utf-8")) if log.exists() else str(error)

    def verdict(self, name: str, base: str, head: str) -> Verdict:
        """Return the gate's verdict on `head`."""
        comparison = self.comparison(_place(name, base, head), {"base": base, "head": head})
        outcome = compare(comparison, self.profile, only=[name])
        verdict = next(one for one in outcome.verdicts if one.name == name)
        progress(_step_line(Step(base, head, verdict)))
        return verdict


def _words(command: str) -> list[str]:
    """Split a command into the words that its program receives."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ArgumentError(f"--build {command!r} cannot be split into words: {error}; close its quotes") from error


def _not_one(pattern: str, names: Sequence[str], measured: Sequence[str], commit: str) -> str:
    """Return why a pattern does not identify a single benchmark of those `measured` at one end of the range."""
    if names:
        return f"{pattern!r} matches {len(names)} benchmarks: {_some(names)} at {commit}; give the name of one"
    has = f", which has {_some(measured)}" if measured else ""
    return f"{pattern!r} matches no benchmark at {commit}{has}; correct the name, or give commits that have it"


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _place(name: str, *commits: str) -> str:
    """Return the folder for the processes that measure a benchmark at some commits."""
    return f"{zlib.crc32(name.encode()):08x}/{'-'.join(commit[:12] for commit in commits)}"


def _last_line(output: str) -> str:
    found = [line.strip() for line in output.splitlines() if line.strip()]
    return found[-1] if found else "its process failed and printed nothing"


def lines(name: str, found: Found) -> Iterator[str]:
    """Yield the result as text."""
    yield f"{name}: {len(found.steps)} comparisons"
    yield from (f"  {_step_line(step)}" for step in found.steps)
    yield from (f"  skipped {commit[:_SHORT]}: {reason}" for commit, reason in found.skipped.items())
    if not found.is_slower:
        yield f"not searched: {found.total.head[:_SHORT]} is {found.total.verdict.word} ({found.total.verdict.why})"
        return
    yield _sentence(name, found)
    yield from (f"  {git('log', '-1', '--format=%h %as %an: %s', commit)}" for commit in found.commits)


def _sentence(name: str, found: Found) -> str:
    verdict, total = found.step.verdict, found.total.verdict
    level = gate.confirmation_level(1)
    sure = f"{verdict.why}, at a confidence of {level:.1%}; the whole range: {total.effect:+.2%}"
    if len(found.commits) == 1:
        return f"{found.commits[0][:_SHORT]} made {name} slower: {sure}"
    left = [*found.skipped, *found.ambiguous]
    among = sum(commit in left for commit in found.commits)
    reason = f"{among} of them could not be measured or decided" if among else "the steps between them are too small"
    return f"one or more of {len(found.commits)} commits made {name} slower ({reason}): {sure}"


def _step_line(step: Step) -> str:
    verdict = step.verdict
    return f"{step.base[:_SHORT]}..{step.head[:_SHORT]}  {verdict.word:9} {verdict.effect:+7.2%}  {verdict.pairs} pairs"


def _columns(found: Mapping[str, Found]) -> dict[str, Any]:
    return {name: {"slower": one.is_slower, **_finite(asdict(one))} for name, one in found.items()}


def _finite(plain: dict[str, Any]) -> dict[str, Any]:
    """Replace infinities by None for JSON."""
    for step in (plain["total"], plain["step"], *plain["steps"]):
        for key, value in step["verdict"].items():
            if value == float("inf"):
                step["verdict"][key] = None
    return plain
