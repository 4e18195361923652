"""``cuassay ab`` and ``cuassay aa``: whether HEAD is slower than BASE, and how noisy this runner is."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from cuassay import devices
from cuassay.benchmarking import gate
from cuassay.benchmarking.ab import Outcome, Verdict, compare, profile
from cuassay.benchmarking.arms import RECORD, arm, git, state_folder
from cuassay.benchmarking.comparison import Comparison, Side, progress
from cuassay.benchmarking.noise import Profile
from cuassay.commands.parsing import Parser, output_file
from cuassay.commands.suspects import fill_in
from cuassay.core.device import HOST_KINDS, VALUELESS_KINDS
from cuassay.errors import ArgumentError
from cuassay_reports.outputs import COMPARISON, NOISES, PROFILE, Output

__all__ = ["add_ab_commands", "add_common", "tell_uncommitted", "workload"]

_ORDER = {"slower": 0, "faster": 1, "ambiguous": 2, "same": 3}

_SHOWN_SAME = 40

#: The least number of processes of a noise profile.
_LEAST = 3


def add_ab_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    """Declare ``ab`` and ``aa``."""
    ab = commands.add_parser(
        "ab",
        help="decide whether HEAD is slower than BASE, by fresh processes in turn",
        example="cuassay ab main HEAD --device cuda:0 --profile noise.json --fail-on slower",
    )
    ab.add_argument(
        "base", metavar="BASE",
        help="a commit, wheel, folder of sources, interpreter, or command; -: read cuassay report --suspects",
    )  # fmt: skip
    ab.add_argument("head", metavar="HEAD", nargs="?", help="the same")
    add_common(ab, COMPARISON)
    ab.add_argument("--profile", metavar="FILE", help="the noise profile of this runner, from: cuassay aa")
    ab.add_argument(
        "--budget", type=float, default=gate.BUDGET, help="probability of any false alarm (default: %(default)s)"
    )
    ab.add_argument("--fail-on", choices=("slower",), help="exit with 1 if a benchmark is slower")
    ab.set_defaults(command=_ab)
    aa = commands.add_parser(
        "aa",
        help="measure the noise of this runner, and write the noise profile that ab reads",
        example="cuassay aa --device cuda:0 --out noise.json",
    )
    aa.add_argument(
        "target", nargs="?", default=sys.executable, metavar="TARGET", help="as BASE; default: this package"
    )
    add_common(aa, NOISES)
    aa.add_argument("--processes", type=int, default=20, help="fresh processes, 3 or more (default: %(default)s)")
    aa.add_argument(
        "--out", type=output_file(PROFILE, makes_folders=True), default="reports/out/noise.json", metavar="FILE",
        help="the profile (default: %(default)s)",
    )  # fmt: skip
    aa.set_defaults(command=_aa)


def add_common(parser: argparse.ArgumentParser, outcome: Output, *, selects: bool = True) -> None:
    """Add the options of every command that compares; `selects` adds those that choose benchmarks.

    `outcome` is what ``--json`` writes.
    """
    parser.add_argument(
        "--device", default="", metavar="D", help="the device; default: the first accelerator, else cpu"
    )
    if selects:
        parser.add_argument(
            "--only", action="append", default=[], metavar="PATTERN", help="benchmarks by name; repeatable"
        )
        parser.add_argument("--limit", type=int, metavar="N", help="the first N benchmarks")
    else:
        parser.set_defaults(limit=None)
    parser.add_argument(
        "--seconds", type=float, default=0.1, help="seconds for each benchmark in a process (default: %(default)s)"
    )
    parser.add_argument(
        "--state",
        metavar="DIR",
        help="keep finished processes here, so that the same command continues where it stopped",
    )
    parser.add_argument("--json", type=output_file(outcome), metavar="FILE", help="write the outcome as JSON")
    parser.add_argument(
        "--run",
        metavar="COMMAND",
        help=f"what to measure instead of the declared operations; it writes rows to {RECORD}",
    )
    parser.add_argument("--scatter", type=float, help=argparse.SUPPRESS)  # simulated noise, to test the gate


def _ab(options: argparse.Namespace) -> int:
    if not fill_in(options):
        print("no suspects: there is nothing to compare")
        return 0
    with state_folder(options.state, "cuassay-ab-") as folder:
        comparison = _comparison(options, folder, {"base": options.base, "head": options.head})
        known = None
        if options.profile:
            known = Profile.load(Path(options.profile))
            comparison.medians("p", 0, "base", options.only)  # measured for the machine's fingerprint
            comparison.starts -= 1
            known.require(comparison.facts, Path(options.profile))
        outcome = compare(comparison, known, budget=options.budget, only=options.only)
    print("\n".join(lines(outcome, profiled=known is not None)))
    _save(options, outcome.columns())
    return 1 if options.fail_on and any(one.gates for one in outcome.of("slower")) else 0


def _aa(options: argparse.Namespace) -> int:
    if options.processes < _LEAST:
        raise ArgumentError(f"--processes is {options.processes}; noise is measured by {_LEAST} or more")
    with state_folder(options.state, "cuassay-ab-") as folder:
        comparison = _comparison(options, folder, {"base": options.target})
        found, medians = profile(comparison, options.processes, options.only)
    found.save(Path(options.out))
    print(f"{'noise':>8} {'gate at':>8} {'median':>10}  benchmark")
    for name, noise in sorted(found.noises.items(), key=lambda one: one[1].noise):
        print(f"{noise.noise:8.2%} {_promise(gate.class_of(noise.noise).promise):>8} {medians[name]:10.3g}  {name}")
    print(f"wrote {options.out}: {len(found.noises)} benchmarks, {options.processes} processes")
    _save(options, {"noises": {name: one.noise for name, one in found.noises.items()}, "medians": medians})
    return 0


def tell_uncommitted() -> None:
    """Tell that uncommitted changes are not measured, if there are any."""
    if git("status", "--porcelain", "--untracked-files=no"):
        progress("the working tree has uncommitted changes; only commits are measured")


def _comparison(options: argparse.Namespace, folder: Path, targets: dict[str, str]) -> Comparison:
    extra = ["--scatter", str(options.scatter)] if options.scatter else []
    sides = {side: Side(arm(name, folder, workload(options), side), extra) for side, name in targets.items()}
    selects = options.run is None and not any(RECORD in name for name in targets.values())
    if all(side.arm.folder is not None for side in sides.values()):  # both are commits
        tell_uncommitted()
    return Comparison(sides, folder, selects, seeded=bool(options.scatter), told=progress)


def workload(options: argparse.Namespace) -> list[str]:
    """Return the arguments for each interpreter: the declared operations, or the user's command without its own.

    Raises
    ------
    ArgumentError
        If the user's command does not say where its rows go, or its device is named outside of it.
    """
    if options.run is not None:
        if options.device:
            raise ArgumentError(
                f"--device has no effect with --run; got --device {options.device}; name the device inside the command"
            )
        if RECORD not in options.run:
            raise ArgumentError(
                f"the command of --run does not write a record; got {options.run!r}; add --cuassay-record {RECORD}, "
                "which becomes the file of each process"
            )
        words = options.run.split()
        return words[1:] if words and Path(words[0]).name.startswith("python") else ["-m", *words]
    where = options.device or str(_first_device())
    words = [
        "-m",
        "cuassay.benchmarking.sample",
        "--device",
        where,
        "--record",
        RECORD,
        "--seconds",
        str(options.seconds),
    ]
    return [*words, *(["--limit", str(options.limit)] if options.limit else [])]


def _first_device() -> str:
    kinds = sorted(set(devices.kinds()) - set(VALUELESS_KINDS), key=lambda kind: (kind in HOST_KINDS, kind))
    return next(f"{kind}:0" for kind in kinds if devices.backend(kind).why_absent() is None)


def lines(outcome: Outcome, *, profiled: bool) -> Iterator[str]:
    """Yield the outcome as text: one line per benchmark, changed ones first."""
    yield (
        f"{outcome.base} -> {outcome.head}: {len(outcome.verdicts)} benchmarks, {outcome.starts} processes, "
        f"{outcome.seconds:.0f} s"
    )
    if not profiled:
        yield "no noise profile: changes below 2 % may be missed; write one with: cuassay aa --out noise.json"
    if outcome.shift or outcome.shift_s:
        yield (
            f"common to all benchmarks, and taken off: {outcome.shift:+.2%}, and {outcome.shift_s * 1e9:+.0f} ns a call"
        )
    yield from (f"not compared: {name}" for name in outcome.missing)
    ordered = sorted(outcome.verdicts, key=lambda one: (_ORDER[one.word], -abs(one.effect)))
    same = [one for one in ordered if one.word == "same"]
    for one in ordered:
        if one.word != "same" or same.index(one) < _SHOWN_SAME:
            yield _line(one)
            yield from (f"{'':18}{line}" for line in outcome.changes.get(one.name, ()))
    if len(same) > _SHOWN_SAME:
        yield f"and {len(same) - _SHOWN_SAME} more that are the same"
    yield ", ".join(f"{len(outcome.of(word))} {word}" for word in ("slower", "faster", "ambiguous", "same"))


def _line(one: Verdict) -> str:
    noise = "unknown" if one.noise is None else f"{one.noise:.2%}"
    details = f"noise {noise}, gate at {_promise(one.promise)}, {one.pairs} pairs: {one.why}"
    return f"{one.word:9} {one.effect:+7.2%}  {one.name}  ({details})"


def _promise(promise: float) -> str:
    return f"{promise:.1%}" if math.isfinite(promise) else "never"


def _save(options: argparse.Namespace, outcome: object) -> None:
    if options.json:
        options.json.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
