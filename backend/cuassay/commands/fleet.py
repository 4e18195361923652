"""``cuassay fleet run`` and ``cuassay fleet worker``: the tests of one run on many machines, as one record."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cuassay.commands.parsing import Parser
from cuassay.errors import ArgumentError

__all__ = ["add_fleet_commands"]

_RUN_EXAMPLE = """\
cuassay fleet run tests --local 4 --device sim
cuassay fleet run tests --scheduler tls://gpu-0:8786 --device cuda --durations results --option=-m --option=smoke"""


def add_fleet_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    """Declare ``fleet run`` and ``fleet worker``."""
    fleet = commands.add_parser(
        "fleet",
        help="run tests on the workers of a dask cluster, and write one record",
        example="cuassay fleet run tests --local 4",
    )
    below = fleet.add_subparsers(required=True, metavar="COMMAND")
    _add_run(below)
    _add_worker(below)


def _add_run(below: argparse._SubParsersAction[Parser]) -> None:
    run = below.add_parser("run", help="divide tests among the workers of a cluster", example=_RUN_EXAMPLE)
    run.add_argument(
        "tests",
        nargs="*",
        metavar="TESTS",
        help="as pytest takes them, in the folder of the workers; default: all there",
    )
    where = run.add_mutually_exclusive_group(required=True)
    where.add_argument("--scheduler", metavar="ADDRESS", help="of a dask scheduler, such as tls://gpu-0:8786")
    where.add_argument("--local", type=int, metavar="N", help="start N workers on this machine, for this run")
    _add_tls(run)
    run.add_argument(
        "--device", action="append", default=[], metavar="KIND",
        help="kind of device, such as cuda; repeatable; default: the accelerators of the workers, else cpu",
    )  # fmt: skip
    run.add_argument(
        "--option", action="append", default=[], metavar="WORD", help="a word for pytest, as in --option=-m; repeatable"
    )
    run.add_argument(
        "--wheel", type=Path, metavar="FILE", help="workers must have this wheel; default: the files of this folder"
    )
    run.add_argument(
        "--durations", action="append", type=Path, default=[], metavar="FILE|DIR",
        help="results of earlier runs: how long each test takes, so that all workers end at about the same time",
    )  # fmt: skip
    run.add_argument("--shards", type=int, metavar="N", help="about how many; default: few, the last ones short")
    run.add_argument(
        "--wait", type=float, default=60.0, metavar="S", help="seconds to wait for a worker (default: %(default)g)"
    )
    run.add_argument(
        "--out", type=Path, default=Path("reports/out/fleet/tests.jsonl"), metavar="FILE", help="default: %(default)s"
    )
    run.set_defaults(command=_run)


def _add_worker(below: argparse._SubParsersAction[Parser]) -> None:
    worker = below.add_parser(
        "worker",
        help="offer the devices of this machine, one worker each, and run tests in this folder",
        example="cuassay fleet worker --scheduler tls://gpu-0:8786 --device cuda",
    )
    worker.add_argument("--scheduler", required=True, metavar="ADDRESS", help="of a dask scheduler")
    _add_tls(worker)
    worker.add_argument(
        "--device", action="append", default=[], metavar="KIND", help="default: the accelerators here, else cpu"
    )
    worker.set_defaults(command=_worker)


def _add_tls(parser: Parser) -> None:
    parser.add_argument("--tls-ca-file", metavar="FILE", help="certificate of the authority, PEM")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate of this process, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM")


def _run(options: argparse.Namespace) -> int:
    from cuassay.benchmarking.termination import exit_on_sigterm
    from cuassay.fleet import clusters
    from cuassay.fleet.code import FOLDER, digest_of, of_wheel
    from cuassay.fleet.driver import Job
    from cuassay.fleet.durations import recorded_durations
    from cuassay.fleet.run import Asked, run_fleet
    from cuassay.results.record import new_run_id

    clusters.require_dask()
    _check(options)
    code, digest = of_wheel(options.wheel) if options.wheel else (FOLDER, digest_of(FOLDER))
    job = Job(run=new_run_id(), code=code, digest=digest, wait_s=options.wait)
    asked = Asked(
        tests=tuple(options.tests),
        options=tuple(options.option),
        kinds=tuple(options.device),
        durations=recorded_durations(options.durations),
        shards=options.shards,
        command=f"cuassay fleet run {shlex.join([*options.option, *options.tests])}".rstrip(),
    )
    with exit_on_sigterm(), _cluster(options) as client:
        return run_fleet(client, job, asked, options.out)


def _check(options: argparse.Namespace) -> None:
    for name in ("local", "shards"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise ArgumentError(f"--{name} is {number}; give 1 or more")


@contextmanager
def _cluster(options: argparse.Namespace) -> Iterator[Any]:
    from cuassay.fleet import clusters
    from cuassay.fleet.places import default_kinds

    if options.local is None:
        with clusters.connected(options.scheduler, _security(options)) as client:
            yield client
    else:
        with clusters.local_cluster(options.device or default_kinds(), options.local) as client:
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
