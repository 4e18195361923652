"""A shard of ``cuassay fleet judge``: candidates that one process of a worker judges, one after the other.

The rows go to a file. Verdicts are written after the processes of all candidates have ended, so that none of them can
change one. Without candidates, one row describes the declaration.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
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
    """Judge the candidates of one shard; gives the exit status, which is 0 for any verdict."""
    asked = _parser().parse_args(argv)
    sys.dont_write_bytecode = True  # a candidate without a jail could read the declaration compiled
    keep_freed_memory()
    try:
        rows = _rows(asked)
    except CuassayError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    _append(asked.out, rows)
    return 0


def _rows(asked: argparse.Namespace) -> list[Mapping[str, Any]]:
    declaration = load_declaration(asked.spec)
    told = json.loads(asked.options)
    options = JudgeOptions(**{**told, "device": devices.find(Device(told["device"]))})
    with Candidates(declaration, options) as candidates:
        referee = Referee(declaration, options, candidates.start, candidates.ours())
        if asked.candidates is not None:
            names = asked.candidates.read_text(encoding="utf-8").splitlines()
            return [_judged(referee, name, asked.out) for name in names]
    described = {"name": declaration.name, "digest": declaration.digest, "weak": referee.weak}
    return [{"record": "declaration", "declaration": declaration.spec.name, **described}]


def _judged(referee: Referee, name: str, out: Path) -> Mapping[str, Any]:
    """The row of a candidate. Another row is written at once, so that the driver knows which one is under way."""
    _append(out, [{"record": "begin", "nodeid": name}])
    _, path, nonce = json.loads(name)
    try:
        verdict = referee.judge(Path(path), nonce=None if nonce is None else int(nonce, 16))
    except (CuassayError, OSError) as error:
        return {"record": "failed", "nodeid": name, "why": str(error)}
    return {"record": "verdict", "nodeid": name, **verdict.as_json()}


def _append(out: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with out.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cuassay.fleet.judged", description="Judge on this machine.")
    parser.add_argument("spec", metavar="SPEC.py::NAME")
    parser.add_argument(
        "--candidates", type=Path, metavar="FILE", help="lines [place, path, nonce or null]; default: the declaration"
    )
    parser.add_argument("--options", required=True, metavar="JSON", help="as a verdict keeps them")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
