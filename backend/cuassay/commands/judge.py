"""``cuassay judge``: verdicts on untrusted kernels, by a trusted declaration."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuassay.commands.parsing import Parser, output_file
from cuassay.commands.verdicts import compare, record, show, tell_weak, write_json
from cuassay.errors import SettingError
from cuassay_reports.outputs import RECORD, VERDICTS

if TYPE_CHECKING:
    from cuassay.core.device import Device
    from cuassay.judging.referee import JudgeOptions, Referee
    from cuassay.judging.verdict import Verdict

__all__ = ["add_judge_command", "add_judging_arguments", "chosen_nonce", "judge_options", "known_verdicts"]

_EXAMPLE = """\
cuassay judge spec.py::rms_norm candidate.py --device sim
cuassay judge spec.py::rms_norm submissions/*.py --device cuda:0 --jobs 8 --json verdicts.json
cuassay judge spec.py::rms_norm kernel.cu --tier kernel --device cuda:0
cuassay judge spec.py::rms_norm candidate.py --replay verdicts.json"""


def add_judge_command(commands: argparse._SubParsersAction[Parser]) -> None:
    """Declare ``judge``."""
    judge = commands.add_parser(
        "judge",
        help="judge untrusted kernels by a trusted declaration: correct, wrong, refused or undecided",
        example=_EXAMPLE,
    )
    judge.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="candidates to judge at a time; timing runs alone"
    )
    add_judging_arguments(judge)
    judge.set_defaults(command=_judge)


def add_judging_arguments(judge: Parser) -> None:
    """Declare what ``judge`` and ``fleet judge`` have in common."""
    judge.add_argument(
        "spec", metavar="SPEC.py::NAME", help="the declaration: an OpSpec with a reference; it is imported"
    )
    judge.add_argument(
        "candidates", nargs="+", type=Path, metavar="CANDIDATE",
        help="a file with run(xp, *arrays), or kernel.cu with launch.json in its folder; it gets its own process",
    )  # fmt: skip
    judge.add_argument("--device", default="sim", metavar="D", help="where candidates run (default: %(default)s)")
    judge.add_argument(
        "--tier", choices=("program", "kernel"), default="program",
        help="program: Python with a host side; kernel: CUDA C++ that a trusted runner launches (default: %(default)s)",
    )  # fmt: skip
    judge.add_argument(
        "--json", type=output_file(VERDICTS), metavar="FILE", help="write the verdicts, which --replay reads"
    )
    judge.add_argument(
        "--record", type=output_file(RECORD, makes_folders=True), metavar="FILE",
        help="append the verdicts to this result file",
    )  # fmt: skip
    judge.add_argument(
        "--seconds", type=float, default=30.0, metavar="S",
        help="most seconds for all calls of one candidate together (default: %(default)g)",
    )  # fmt: skip
    judge.add_argument(
        "--replay", type=Path, metavar="FILE", help="repeat verdicts of --json, with their options and nonces"
    )
    judge.add_argument(
        "--policy",
        default="",
        metavar="WORDS",
        help="how to treat library calls: library=flag (default), allow, refuse",
    )
    judge.add_argument(
        "--nonce", metavar="HEX", help="draw inputs from this number, which a verdict names, to repeat it"
    )
    judge.add_argument(
        "--allow-unjailed",
        action="store_true",
        help="run candidates even if parts of the jail (the sandbox of a candidate) are missing",
    )
    judge.add_argument(
        "--allow-weak",
        action="store_true",
        help="call candidates correct even if the declaration lets pass functions that are known to be wrong",
    )
    judge.add_argument("--no-times", action="store_true", help="only check, without timing")
    judge.add_argument(
        "--cheats", action=_ListCheats, nargs=0, help="list the cheats that verdicts name by number, and exit"
    )
    judge.add_argument(
        "--schema", action=_PrintSchema, nargs=0, help="print the JSON Schema of what --json writes, and exit"
    )


class _PrintSchema(argparse.Action):
    """Prints the JSON Schema of verdicts and ends the command, as ``--help`` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the schema, in JSON itself."""
        from cuassay.judging.json_schema import verdicts_schema

        print(json.dumps(verdicts_schema(), indent=1))
        parser.exit()


class _ListCheats(argparse.Action):
    """Prints the catalogue of cheats and ends the command, as ``--help`` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print a line for each cheat."""
        from cuassay.judging.catalogue import CATALOGUE, CHEATS

        print(f"catalogue {CATALOGUE}; T: timing, C: correctness, X: attacks on the judge, B: a matter of policy")
        print(*(f"{number:<4} {cheat}" for number, cheat in CHEATS.items()), sep="\n")
        parser.exit()


def _judge(options: argparse.Namespace) -> int:
    from cuassay import devices
    from cuassay.judging.candidates import Candidates
    from cuassay.judging.linux import keep_freed_memory
    from cuassay.judging.referee import Referee
    from cuassay.judging.spec_file import load_declaration
    from cuassay.judging.verdict import exit_status

    if options.jobs < 1:
        raise SettingError(f"--jobs is {options.jobs}; it must be above 0")
    known = known_verdicts(options)
    keep_freed_memory()
    declaration = load_declaration(options.spec)
    asked = judge_options(options, known, devices.find, apart=options.jobs > 1)
    with ExitStack() as held:
        candidates = held.enter_context(Candidates(declaration, asked))
        referee = Referee(declaration, asked, candidates.start, candidates.ours())
        tell_weak(declaration.spec.name, referee.weak)
        verdicts = _verdicts(referee, options, known)
    if options.json is not None:
        write_json(options.json, verdicts)
    if options.record is not None:
        record(options.record, f"cuassay judge {options.spec}", verdicts, [None] * len(verdicts))
    return exit_status(verdicts)


def known_verdicts(options: argparse.Namespace) -> list[Verdict]:
    """Check what can be checked before anything runs; return the verdicts that --replay repeats."""
    from cuassay.judging.verdict import read_verdicts

    if not options.seconds > 0:
        raise SettingError(f"--seconds is {options.seconds:g}; it must be above 0")
    for candidate in options.candidates:
        if not candidate.is_file():
            raise SettingError(f"{candidate} is not a file; name files with run(xp, *arrays)")
    known = [] if options.replay is None else read_verdicts(options.replay)
    if (known[0].tier if known else options.tier) == "program":
        _refuse_kernels(options.candidates)
    return known


def _refuse_kernels(candidates: Sequence[Path]) -> None:
    """Reject candidates that are not Python, before anything runs."""
    for candidate in candidates:
        if candidate.suffix in (".cu", ".cuh"):
            raise SettingError(f"{candidate} is CUDA C++; give --tier kernel --device cuda:0")
        if candidate.suffix == ".ptx":
            raise SettingError(f"{candidate} is PTX; give CUDA C++, by --tier kernel --device cuda:0")


def judge_options(
    options: argparse.Namespace, known: Sequence[Verdict], find: Callable[[Device], Device], *, apart: bool
) -> JudgeOptions:
    """Return the options of the command or, with --replay, those of the repeated verdicts, on the device found."""
    from cuassay.core.device import HOST_KINDS, Device
    from cuassay.judging.referee import JudgeOptions
    from cuassay.judging.scan import parse_policy

    if options.tier == "kernel" and Device(options.device).kind in HOST_KINDS:
        raise SettingError(f"--tier kernel compiles CUDA C++, and {options.device} runs none; give --device cuda:0")
    if not known:
        return JudgeOptions(
            device=find(Device(options.device)), tier=options.tier, seconds=options.seconds,
            times=not options.no_times, policy=parse_policy(options.policy), apart=apart,
            allow_unjailed=options.allow_unjailed, allow_weak=options.allow_weak,
        )  # fmt: skip
    recorded: dict[str, Any] = dict(known[0].options)
    return JudgeOptions(**{**recorded, "device": find(Device(recorded["device"]))})


def _verdicts(referee: Referee, options: argparse.Namespace, known: Sequence[Verdict]) -> list[Verdict]:
    """Return one verdict per candidate, in order; each is shown as soon as it and all before it are ready."""
    nonces = [chosen_nonce(options, candidate, known) for candidate in options.candidates]
    found = []
    with ThreadPoolExecutor(options.jobs) as pool:
        judged = [
            pool.submit(referee.judge, candidate, nonce=nonce)
            for candidate, nonce in zip(options.candidates, nonces, strict=True)
        ]
        for one in judged:
            found.append(one.result())
            show(found[-1])
            compare(found[-1], known)
    return found


def chosen_nonce(options: argparse.Namespace, candidate: Path, known: Sequence[Verdict]) -> int | None:
    """Return the requested nonce, or that of the candidate's known verdict; None draws a new one."""
    from cuassay.judging.plan import digest_of

    if options.replay is None and options.nonce is None:
        return None
    text = options.nonce
    if options.replay is not None:
        digest = digest_of(candidate, known[0].tier) if known else ""
        text = next((one.nonce for one in known if one.candidate_digest == digest), None)
        if text is None:
            raise SettingError(
                f"{options.replay} holds no verdict on {candidate} as it is now; judge it without --replay"
            )
    try:
        return int(text, 16)
    except ValueError:
        raise SettingError(f"--nonce is {text!r}; give the hexadecimal digits of a verdict's nonce") from None
