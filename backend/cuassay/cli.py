"""The ``cuassay`` command: devices, settings, run, report, compare and the commands of `cuassay.commands`.

Each subcommand is a function from its options to an exit status: 0 for success, 1 for a failure, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cuassay import devices
from cuassay.commands.ab import add_ab_commands
from cuassay.commands.bisect import add_bisect_command
from cuassay.commands.capabilities import add_capabilities_command
from cuassay.commands.completion import add_completion_command
from cuassay.commands.fleet import add_fleet_commands
from cuassay.commands.help import add_help_command
from cuassay.commands.judge import add_judge_command
from cuassay.commands.memory import add_memory_commands
from cuassay.commands.mutate import add_mutate_command
from cuassay.commands.parsing import Parser, painted
from cuassay.commands.tune import add_tune_command
from cuassay.core import extras, settings
from cuassay.core.capability import FEATURES, QUANTITIES
from cuassay.core.device import Device
from cuassay.core.units import format_bytes
from cuassay.errors import CapabilityError, CuassayError
from cuassay_reports.terminal import columns, fitted

__all__ = ["main", "parser"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    options = parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = options.command
    for name, meant in settings.misspelt().items():
        print(f"cuassay: {name} is not a setting; did you mean {meant}?", file=sys.stderr)
    try:
        status = command(options)
        sys.stdout.flush()
    except CuassayError as error:
        print(f"{painted(f'{options.prog}:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{options.prog}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe; the interpreter flushes again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, for `main` and for the documentation."""
    whole = Parser(
        prog="cuassay",
        description="Test and measure declared operations on every device present.",
        example="cuassay devices -v\ncuassay run --device sim --out results\ncuassay report results --html report.html",
    )
    whole.add_argument("-V", "--version", action="version", version=f"cuassay {_version()}")
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    _add_devices(commands)
    add_capabilities_command(commands)
    _add_settings(commands)
    _add_run(commands)
    _add_report(commands)
    _add_compare(commands)
    add_ab_commands(commands)
    add_bisect_command(commands)
    add_memory_commands(commands)
    add_tune_command(commands)
    add_fleet_commands(commands)
    add_mutate_command(commands)
    add_judge_command(commands)
    add_completion_command(commands, parser)
    add_help_command(commands, parser)
    return whole


def _add_devices(commands: argparse._SubParsersAction[Parser]) -> None:
    listing = commands.add_parser(
        "devices", help="list the devices, what each can do, and why others are absent", example="cuassay devices -v"
    )
    listing.add_argument(
        "-v", "--verbose", action="store_true", help="also show capabilities, and each CUDA library's path and version"
    )
    listing.add_argument("--json", action="store_true", help="the same as JSON")
    listing.set_defaults(command=_devices)


def _add_settings(commands: argparse._SubParsersAction[Parser]) -> None:
    shown = commands.add_parser(
        "settings",
        help="list every environment variable that is read, and its value",
        example="cuassay settings --json",
    )
    shown.add_argument("--json", action="store_true", help="the same as JSON")
    shown.set_defaults(command=_settings)


def _add_run(commands: argparse._SubParsersAction[Parser]) -> None:
    run = commands.add_parser(
        "run",
        help="test and measure cuassay's own operations; write result files (your own: pytest --cuassay-record)",
        example="cuassay run --device sim --out results",
    )
    run.add_argument(
        "--device", action="append", metavar="D", help="cuda:0, sim, cuda:*, all; repeatable; default: all"
    )
    run.add_argument(
        "--out", default="reports/out/run", metavar="DIR", help="folder of the result files (default: %(default)s)"
    )
    run.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="processes that run the tests at the same time, each with its own context on a GPU; default: as many "
        "as cores, up to 8; measurements run alone",
    )
    run.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="fresh processes that measure, one after another; a timing is the median of theirs (default: 1)",
    )
    steps = run.add_mutually_exclusive_group()  # without both, nothing would be done
    steps.add_argument("--no-tests", action="store_true", help="only measure")
    steps.add_argument("--no-times", action="store_true", help="only test")
    run.set_defaults(command=_run)


def _add_report(commands: argparse._SubParsersAction[Parser]) -> None:
    report = commands.add_parser(
        "report",
        help="read result files; print a summary, or write a page",
        example="cuassay report results\ncuassay report results --html report.html --md -",
    )
    report.add_argument("paths", nargs="+", metavar="DIR|FILE", help="result files (*.jsonl), or folders of them")
    report.add_argument("--html", metavar="FILE", help="write the page; - is standard output")
    report.add_argument("--md", metavar="FILE", help="write a short form in Markdown; - is standard output")
    report.add_argument("--json", metavar="FILE", help="write the verdicts as JSON; - is standard output")
    report.add_argument("--junit", metavar="FILE", help="write the findings as JUnit's XML; - is standard output")
    report.add_argument(
        "--fail-on",
        default="",
        metavar="WORDS",
        help="exit with 1 on any of these, separated by commas: failed, slower, vanished (benchmarks that the newest "
        "run lacks), uncompared (a newest run without any compared time), skipped (tests that the run before did not "
        "skip), nowhere (tests that ran on no device)",
    )
    report.add_argument(
        "--threshold", type=float, metavar="PERCENT", help="ignore smaller changes of a timing (default: 2)"
    )
    report.add_argument(
        "--baseline", default="", metavar="RUN", help="the run or commit to compare with; default: the run before"
    )
    report.add_argument(
        "--suspects",
        action="store_true",
        help="print only the suspects, as `cuassay ab -` reads them from its standard input",
    )
    report.add_argument(
        "--strict", action="store_true", help="reject lines and files without a result instead of omitting them"
    )
    report.set_defaults(command=_report)


def _add_compare(commands: argparse._SubParsersAction[Parser]) -> None:
    comparing = commands.add_parser(
        "compare",
        help="compare the recorded timings of two commits or runs",
        example="cuassay compare 4f2a91c 9e07b3d --results results",
    )
    comparing.add_argument("a", metavar="A", help="the old run: first digits of a commit, the id of a run, or a file")
    comparing.add_argument("b", metavar="B", help="the new run")
    comparing.add_argument("--results", default="reports/out/run", metavar="DIR|FILE", help="default: %(default)s")
    comparing.set_defaults(command=_compare)


def _version() -> str:
    try:
        return version("cuassay")
    except PackageNotFoundError:
        return "from a source tree"


def _run(options: argparse.Namespace) -> int:
    from cuassay.benchmarking import run
    from cuassay.benchmarking.termination import exit_on_sigterm
    from cuassay.testing.presence import Presence

    selectors = options.device or ["all"]
    Presence(selectors).devices  # noqa: B018  raises if a device does not exist, before any child process starts
    jobs = run.default_jobs() if options.jobs is None else options.jobs
    steps = {"tests": not options.no_tests, "times": not options.no_times}
    with exit_on_sigterm():  # also ends the child processes
        return run.run(selectors, Path(options.out), jobs=jobs, processes=options.processes, **steps)


def _report(options: argparse.Namespace) -> int:
    command = _reports()
    named = {name: getattr(options, name) for name in command.OPTIONS}
    status: int = command.run(options.paths, options.html, options.md, **named)
    return status


def _compare(options: argparse.Namespace) -> int:
    status: int = _reports().compare(options.a, options.b, options.results)
    return status


def _reports() -> Any:
    """Return the module that reads results. Raises `CapabilityError` if a distribution that it needs is missing."""
    try:
        from cuassay_reports import command
    except ModuleNotFoundError as error:
        if error.name not in ("jinja2", "markupsafe", "pandas"):
            raise
        raise CapabilityError(
            f"a report needs {error.name}, which is not installed; install it with: {extras.pip_install('report')}"
        ) from error
    return command


def _settings(options: argparse.Namespace) -> int:
    rows = settings.describe()
    if options.json:
        print(json.dumps([{f: getattr(row, f) for f in row.__slots__} for row in rows], indent=2))
        return 0
    for row in rows:
        other = f" (or {', '.join(row.aliases)})" if row.aliases else ""
        print(f"{row.name} = {row.value!r}   [{row.type}; {row.source}]")
        print(fitted(f"    {row.meaning}{other}", columns(sys.stdout)))
    return 0


def _devices(options: argparse.Namespace) -> int:
    found = [_kind(kind, verbose=options.verbose) for kind in devices.kinds()]
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(fitted(line, columns(sys.stdout)) for kind in found for line in _kind_lines(kind)))
    return 0


def _kind(kind: str, *, verbose: bool) -> dict[str, Any]:
    backend = devices.backend(kind)
    reason = backend.why_absent()
    described: dict[str, Any] = {"kind": kind, "absent": reason, "devices": []}
    for index in range(0 if reason else backend.count()):
        described["devices"].append(_device(Device(kind, index), verbose=verbose))
    libraries = getattr(backend, "libraries", None)
    if verbose and libraries is not None:
        rows = [*libraries(), *getattr(backend, "other_libraries", list)()]
        described["libraries"] = [dict(zip(("name", "path", "version", "absent"), row, strict=True)) for row in rows]
    return described


def _device(device: Device, *, verbose: bool) -> dict[str, Any]:
    backend = devices.backend(device.kind)
    described: dict[str, Any] = {"device": str(device), **backend.identity(device.index)}
    described["memory"] = int(devices.capabilities(device).answer("memory").value)
    if verbose:
        answers = {name: devices.capabilities(device).answer(name) for name in (*FEATURES, *QUANTITIES)}
        described["capabilities"] = {name: answer.value or True for name, answer in answers.items() if answer}
        described["missing"] = {name: answer.reason for name, answer in answers.items() if not answer}
    return described


def _kind_lines(kind: dict[str, Any]) -> Iterable[str]:
    if kind["absent"]:
        yield painted(f"{kind['kind']:<8} absent: {kind['absent']}", "faint", sys.stdout)
    for device in kind["devices"]:
        facts = {
            key: value
            for key, value in device.items()
            if key not in ("device", "name", "memory", "capabilities", "missing")
        }
        name = painted(f"{device['device']:<8}", "bold", sys.stdout)
        yield f"{name} {device['name']}, {format_bytes(device['memory'])}"
        yield from (f"           {key}: {value}" for key, value in facts.items() if value)
        yield from _capability_lines(device)
    yield from _library_lines(kind.get("libraries", ()))


def _library_lines(libraries: Iterable[dict[str, str]]) -> Iterable[str]:
    """A line for each library that is present, and one for all that are absent for the same reason."""
    absent: dict[str, list[str]] = {}
    for library in libraries:
        if library["absent"]:
            absent.setdefault(library["absent"], []).append(library["name"])
        else:
            yield f"           {library['name']:<12} {library['version']}  {library['path']}"
    yield from (f"           {', '.join(names)} absent: {reason}" for reason, names in absent.items())


def _capability_lines(device: dict[str, Any]) -> Iterable[str]:
    if "capabilities" in device:
        yield f"           can: {', '.join(device['capabilities'])}"
        yield from (f"           no {name}: {reason}" for name, reason in device["missing"].items())
