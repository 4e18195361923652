"""``cuassay fleet run``, ``ab``, ``judge`` and ``worker``: a run, a comparison or verdicts, by many machines."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuassay.benchmarking import gate
from cuassay.commands.ab import lines
from cuassay.commands.judge import add_judging_arguments, chosen_nonce, judge_options, known_verdicts
from cuassay.commands.parsing import Parser, output_file
from cuassay.commands.verdicts import compare, record, show, tell_weak, write_json
from cuassay.errors import ArgumentError
from cuassay_reports.outputs import COMPARISON, RECORD

if TYPE_CHECKING:
    from cuassay.core.device import Device
    from cuassay.fleet.driver import Job

__all__ = ["add_fleet_commands"]

#: What each worker imports as the main module of this process.
_MAIN = "cuassay.cli"

_RUN_EXAMPLE = """\
cuassay fleet run tests --local 4 --device sim
cuassay fleet run tests --scheduler tls://gpu-0:8786 --device cuda --durations results --option=-m --option=smoke"""


def add_fleet_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    """Declare ``fleet run``, ``fleet ab``, ``fleet judge`` and ``fleet worker``."""
    fleet = commands.add_parser(
        "fleet",
        help="run tests, compare or judge on the workers of a dask cluster, and write one result",
        example="cuassay fleet run tests --local 4",
    )
    below = fleet.add_subparsers(required=True, metavar="COMMAND")
    _add_run(below)
    _add_ab(below)
    _add_judge(below)
    _add_worker(below)


def _add_run(below: argparse._SubParsersAction[Parser]) -> None:
    run = below.add_parser("run", help="divide tests among the workers of a cluster", example=_RUN_EXAMPLE)
    run.add_argument(
        "tests",
        nargs="*",
        metavar="TESTS",
        help="as pytest takes them, in the workers' folder; default: all tests there",
    )
    _add_where(run)
    run.add_argument(
        "--device", action="append", default=[], metavar="KIND",
        help="kind of device, such as cuda; repeatable; default: the accelerators of the workers, else cpu",
    )  # fmt: skip
    run.add_argument(
        "--benchmarks", action="store_true",
        help="measure the benchmarks among TESTS, or without TESTS cuassay's operations; one at a time on a device",
    )  # fmt: skip
    run.add_argument(
        "--option", action="append", default=[], metavar="WORD", help="a word for pytest, as in --option=-m; repeatable"
    )
    run.add_argument(
        "--durations", action="append", type=Path, default=[], metavar="FILE|DIR",
        help="results of earlier runs: how long each test takes, so that all workers end at about the same time",
    )  # fmt: skip
    run.add_argument(
        "--shards", type=int, metavar="N", help="approximate number of shards; default: few, with short ones last"
    )
    run.add_argument(
        "--out", type=output_file(RECORD, makes_folders=True), default="reports/out/fleet/tests.jsonl", metavar="FILE",
        help="default: %(default)s",
    )  # fmt: skip
    run.set_defaults(command=_run)


def _add_worker(below: argparse._SubParsersAction[Parser]) -> None:
    worker = below.add_parser(
        "worker",
        help="offer the devices of this machine, one worker each, and run tests in this folder",
        example="cuassay fleet worker --scheduler tls://gpu-0:8786 --device cuda",
    )
    worker.add_argument("--scheduler", required=True, metavar="ADDRESS", help="address of a dask scheduler")
    _add_tls(worker)
    worker.add_argument(
        "--device", action="append", default=[], metavar="KIND", help="default: the accelerators here, else cpu"
    )
    worker.set_defaults(command=_worker)


def _add_ab(below: argparse._SubParsersAction[Parser]) -> None:
    ab = below.add_parser(
        "ab",
        help="decide whether HEAD is slower than BASE; each worker compares a share of cuassay's operations",
        example="cuassay fleet ab main HEAD --scheduler tls://gpu-0:8786 --device cuda --fail-on slower",
    )
    ab.add_argument("base", metavar="BASE", help="as in cuassay ab, on the workers' machines")
    ab.add_argument("head", metavar="HEAD", help="the same")
    _add_where(ab)
    ab.add_argument(
        "--device", metavar="KIND", help="kind of device; default: the accelerators of this machine, else cpu"
    )
    ab.add_argument("--only", action="append", default=[], metavar="PATTERN", help="benchmarks by name; repeatable")
    ab.add_argument("--limit", type=int, metavar="N", help="the first N benchmarks")
    ab.add_argument(
        "--seconds", type=float, default=0.1, help="seconds for each benchmark in a process (default: %(default)s)"
    )
    ab.add_argument("--profile", metavar="FILE", help="the noise profile, a file on each worker, from: cuassay aa")
    ab.add_argument(
        "--budget", type=float, default=gate.BUDGET, help="probability of any false alarm (default: %(default)s)"
    )
    ab.add_argument("--fail-on", choices=("slower",), help="exit with 1 if a benchmark is slower")
    ab.add_argument("--json", type=output_file(COMPARISON), metavar="FILE", help="write the outcome as JSON")
    ab.set_defaults(command=_ab)


def _add_judge(below: argparse._SubParsersAction[Parser]) -> None:
    judge = below.add_parser(
        "judge",
        help="judge candidates as cuassay judge does, each on one of the workers",
        example="cuassay fleet judge spec.py::rms_norm submissions/*.py --scheduler tls://gpu-0:8786 --device cuda",
    )
    _add_where(judge)
    add_judging_arguments(judge)
    judge.set_defaults(command=_judge)


def _add_where(parser: Parser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--scheduler", metavar="ADDRESS", help="address of a dask scheduler, such as tls://gpu-0:8786")
    where.add_argument("--local", type=int, metavar="N", help="start N workers on this machine, for this run")
    _add_tls(parser)
    parser.add_argument(
        "--wheel", type=Path, metavar="FILE", help="workers must have this wheel; default: the files of this folder"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds to wait for a worker, and for the scheduler, there 30 at most (default: %(default)g)",
    )


def _add_tls(parser: Parser) -> None:
    parser.add_argument("--tls-ca-file", metavar="FILE", help="certificate of the authority, PEM")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate of this process, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM")


def _run(options: argparse.Namespace) -> int:
    from cuassay.benchmarking.termination import exit_on_sigterm
    from cuassay.fleet import clusters, forks
    from cuassay.fleet.durations import recorded_durations
    from cuassay.fleet.run import Asked, run_fleet

    _check(options, "local", "shards")
    is_forked = options.local is not None and forks.start([_MAIN])
    clusters.require_dask()
    job = _job(options)
    words = ["--benchmarks"] if options.benchmarks else []
    asked = Asked(
        tests=tuple(options.tests),
        options=tuple(options.option),
        kinds=tuple(options.device),
        durations=recorded_durations(options.durations),
        shards=options.shards,
        benchmarks=options.benchmarks,
        command=f"cuassay fleet run {shlex.join([*words, *options.option, *options.tests])}".rstrip(),
    )
    with exit_on_sigterm(), _cluster(options, options.device, is_forked=is_forked) as client:
        return run_fleet(client, job, asked, options.out)


def _ab(options: argparse.Namespace) -> int:
    from cuassay.benchmarking.termination import exit_on_sigterm
    from cuassay.fleet import clusters, forks
    from cuassay.fleet.comparing import AskedComparison, compare_on_fleet
    from cuassay.fleet.places import default_kinds

    _check(options, "local", "limit")
    is_forked = options.local is not None and forks.start([_MAIN])
    clusters.require_dask()
    kind = options.device or default_kinds()[0]
    asked = AskedComparison(
        base=options.base,
        head=options.head,
        kind=kind,
        only=tuple(options.only),
        limit=options.limit,
        seconds=options.seconds,
        budget=options.budget,
        profile=options.profile,
    )
    with exit_on_sigterm(), _cluster(options, [kind], is_forked=is_forked) as client:
        outcome, shares = compare_on_fleet(client, _job(options), asked)
    print("\n".join(lines(outcome, profiled=options.profile is not None)))
    for share in shares:
        shift = f"common shift {share.outcome.shift:+.2%}, {share.outcome.shift_s * 1e9:+.0f} ns a call, taken off"
        print(f"{share.worker}: {len(share.outcome.verdicts)} benchmarks in {share.outcome.starts} processes; {shift}")
    if options.json:
        details = {"shares": [{"worker": share.worker, **share.outcome.columns()} for share in shares]}
        options.json.write_text(json.dumps({**outcome.columns(), **details}, indent=1) + "\n", encoding="utf-8")
    return int(bool(options.fail_on) and any(one.gates for one in outcome.of("slower")))


def _judge(options: argparse.Namespace) -> int:
    from cuassay.benchmarking.termination import exit_on_sigterm
    from cuassay.fleet import clusters, forks
    from cuassay.fleet.verdicts import AskedVerdicts, judge_on_fleet, models
    from cuassay.judging.verdict import Verdict, exit_status

    _check(options, "local")
    known = known_verdicts(options)
    asked = AskedVerdicts(
        spec=options.spec,
        candidates=tuple(options.candidates),
        options=judge_options(options, known, _first, apart=False),
        nonces=tuple(chosen_nonce(options, candidate, known) for candidate in options.candidates),
    )
    is_forked = options.local is not None and forks.start([_MAIN])
    clusters.require_dask()
    job = _job(options)

    def tell(verdict: Verdict) -> None:
        show(verdict)
        compare(verdict, known)

    with exit_on_sigterm(), _cluster(options, [asked.options.device.kind], is_forked=is_forked) as client:
        cards = models(client, asked.options.device.kind)
        found = judge_on_fleet(client, job, asked, tell_weak, tell)
    if asked.options.times and len(cards) > 1:
        print(f"times of different devices are not for ranking: {', '.join(cards)}", file=sys.stderr)
    verdicts = [one.verdict for one in found]
    if options.json is not None:
        write_json(options.json, verdicts)
    if options.record is not None:
        record(options.record, f"cuassay fleet judge {options.spec}", verdicts, [one.worker for one in found])
    return exit_status(verdicts)


def _first(device: Device) -> Device:
    """The device of a worker, which has one of a kind."""
    from cuassay.core.device import Device

    return Device(device.kind)


def _job(options: argparse.Namespace) -> Job:
    from cuassay.fleet.code import FOLDER, digest_of, of_wheel
    from cuassay.fleet.driver import Job
    from cuassay.results.record import new_run_id

    code, digest = of_wheel(options.wheel) if options.wheel else (FOLDER, digest_of(FOLDER))
    return Job(run=new_run_id(), code=code, digest=digest, wait_s=options.wait)


def _check(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        number = getattr(options, name)
        if number is not None and number < 1:
            raise ArgumentError(f"--{name} is {number}; give 1 or more")


@contextmanager
def _cluster(options: argparse.Namespace, kinds: Sequence[str], *, is_forked: bool) -> Iterator[Any]:
    from cuassay.fleet import clusters
    from cuassay.fleet.places import default_kinds

    if options.local is None:
        with clusters.connected(options.scheduler, _security(options), options.wait) as client:
            yield client
    else:
        with clusters.local_cluster(kinds or default_kinds(), options.local, is_forked=is_forked) as client:
            yield client


def _security(options: argparse.Namespace) -> Any:
    from cuassay.fleet.clusters import security_of

    return security_of(options.tls_ca_file, options.tls_cert, options.tls_key)


def _worker(options: argparse.Namespace) -> int:
    from cuassay.benchmarking.termination import exit_on_sigterm
    from cuassay.fleet import clusters
    from cuassay.fleet.places import default_kinds

    clusters.require_dask()
    with exit_on_sigterm():
        clusters.work(options.scheduler, options.device or default_kinds(), _security(options))
    return 0
