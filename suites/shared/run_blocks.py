"""Run blocks of Python, given as JSON on standard input, one after the other in one namespace.

A statement whose first line has a comment such as ``# RaceError: why`` must raise that error.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from typing import Any

from cuassay.errors import CuassayError


def subclasses(base: type[Exception]) -> dict[str, type[Exception]]:
    below = {name: one for direct in base.__subclasses__() for name, one in subclasses(direct).items()}
    return {base.__name__: base, **below}


def expected(line: str) -> type[Exception] | None:
    """The error that a line's comment begins with."""
    found = re.search(r"# (\w+Error)\b", line)
    return None if found is None else subclasses(CuassayError)[found[1]]


def run(place: str, text: str, names: dict[str, Any]) -> None:
    for statement in ast.parse(text).body:
        code = compile(ast.Module([statement], []), place, "exec")
        error = expected(text.splitlines()[statement.lineno - 1])
        try:
            exec(code, names)  # noqa: S102  a page of our own documentation
        except Exception as raised:
            if error is None or not isinstance(raised, error):
                raise SystemExit(f"{place}, line {statement.lineno} of the block: {raised!r}") from raised
        else:
            if error is not None:
                raise SystemExit(f"{place}, line {statement.lineno} of the block: no {error.__name__} was raised")


if __name__ == "__main__":
    sys.path.insert(0, "")  # the files that the page shows
    shared: dict[str, Any] = {"__name__": "__main__"}
    for place, text in json.load(sys.stdin):
        run(place, text, shared)
