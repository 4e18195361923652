"""One candidate of ``cuassay fleet judge``, judged on a worker in a process of its own.

The verdict goes to a file as one line after all processes of the candidate have ended. Without a candidate, the line
describes the declaration.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cuassay import devices
from cuassay.core.device import Device
from cuassay.errors import CuassayError
from cuassay.judging.candidates import Candidates
from cuassay.judging.linux import keep_freed_memory
from cuassay.judging.referee import JudgeOptions, Referee
from cuassay.judging.spec_file import load_declaration

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Judge one candidate; gives the exit status, which is 0 for any verdict."""
    asked = _parser().parse_args(argv)
    sys.dont_write_bytecode = True  # a candidate without a jail could read the declaration compiled
    keep_freed_memory()
    try:
        row = _row(asked)
    except CuassayError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    asked.out.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return 0


def _row(asked: argparse.Namespace) -> Mapping[str, Any]:
    declaration = load_declaration(asked.spec)
    told = json.loads(asked.options)
    options = JudgeOptions(**{**told, "device": devices.find(Device(told["device"]))})
    with Candidates(declaration, options) as candidates:
        referee = Referee(declaration, options, candidates.start, candidates.ours())
        if asked.candidate is not None:
            nonce = None if asked.nonce is None else int(asked.nonce, 16)
            return {"record": "verdict", **referee.judge(asked.candidate, nonce=nonce).as_json()}
    return {
        "record": "declaration",
        "declaration": declaration.spec.name,
        "name": declaration.name,
        "digest": declaration.digest,
        "weak": referee.weak,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cuassay.fleet.judged", description="Judge on this machine.")
    parser.add_argument("spec", metavar="SPEC.py::NAME")
    parser.add_argument("--candidate", type=Path, metavar="FILE", help="default: describe the declaration")
    parser.add_argument("--options", required=True, metavar="JSON", help="as a verdict keeps them")
    parser.add_argument("--nonce", metavar="HEX", help="default: a new one, drawn after the candidate was loaded")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
