"""``cuassay judge``: a verdict on kernels that nobody trusts, by a declaration that is trusted."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuassay.commands.parsing import Parser, output_file, painted
from cuassay.errors import SettingError

if TYPE_CHECKING:
    from cuassay.judging.referee import JudgeOptions, Referee
    from cuassay.judging.verdict import CaseTime, Verdict

__all__ = ["add_judge_command"]

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
    judge.add_argument("spec", metavar="SPEC.py::NAME", help="the declaration: an OpSpec with a reference; it is imported")
    judge.add_argument(
        "candidates", nargs="+", type=Path, metavar="CANDIDATE",
        help="a file with run(xp, *arrays), or kernel.cu beside launch.json; it runs in a process of its own",
    )  # fmt: skip
    judge.add_argument("--device", default="sim", metavar="D", help="where candidates run (default: %(default)s)")
    judge.add_argument(
        "--tier", choices=("program", "kernel"), default="program",
        help="program: Python with a host side; kernel: CUDA C++ that a trusted runner launches (default: %(default)s)",
    )  # fmt: skip
    judge.add_argument("--jobs", type=int, default=1, metavar="N", help="candidates at a time; time is taken alone")
    judge.add_argument("--json", type=output_file, metavar="FILE", help="write the verdicts, which --replay reads")
    judge.add_argument("--record", type=Path, metavar="FILE", help="append the verdicts to this result file")
    judge.add_argument(
        "--seconds", type=float, default=30.0, metavar="S",
        help="most seconds that the calls of one candidate take together (default: %(default)g)",
    )  # fmt: skip
    judge.add_argument(
        "--replay", type=Path, metavar="FILE", help="repeat verdicts of --json, with their options and nonces"
    )
    judge.add_argument(
        "--policy", default="", metavar="WORDS", help="what library calls count as: library=flag (default), allow, refuse"
    )
    judge.add_argument("--nonce", metavar="HEX", help="draw inputs by this number, for a verdict that is known")
    judge.add_argument(
        "--allow-unjailed", action="store_true", help="run candidates although parts of the jail are missing"
    )
    judge.add_argument(
        "--allow-weak", action="store_true", help="call candidates correct although stock mutants pass the declaration"
    )
    judge.add_argument("--no-times", action="store_true", help="only check")
    judge.set_defaults(command=_judge)


def _judge(options: argparse.Namespace) -> int:
    from cuassay.judging.process import Candidates
    from cuassay.judging.referee import Referee
    from cuassay.judging.spec_file import load_declaration
    from cuassay.judging.verdict import exit_status, read_verdicts

    if options.jobs < 1 or not options.seconds > 0:
        raise SettingError(f"--jobs is {options.jobs} and --seconds {options.seconds:g}; both must be above 0")
    for candidate in options.candidates:
        if not candidate.is_file():
            raise SettingError(f"{candidate} is not a file; name files with run(xp, *arrays)")
    declaration = load_declaration(options.spec)
    known = [] if options.replay is None else read_verdicts(options.replay)
    asked = _options(options, known)
    with ExitStack() as held:
        candidates = held.enter_context(Candidates(declaration, asked))
        referee = Referee(declaration, asked, candidates.start, candidates.ours())
        _tell_weak(referee)
        verdicts = _verdicts(referee, options, known)
    if options.json is not None:
        options.json.write_text(json.dumps([one.as_json() for one in verdicts], indent=1) + "\n", encoding="utf-8")
    if options.record is not None:
        _record(options, verdicts)
    return exit_status(verdicts)
