"""Which existing files an output may be written to. Needs only the standard library.

An option for an output may be given the name of a source or of another file by mistake, as where the name after
``--cuassay-record`` is forgotten. So a file that has content is only replaced, or appended to, if the beginning of
that content is what the option writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BISECTION",
    "COMPARISON",
    "JUNIT",
    "MARKDOWN",
    "MEMORY_PAGE",
    "NOISES",
    "PROFILE",
    "RECORD",
    "REPORT",
    "REPORT_PAGE",
    "VERDICTS",
    "Output",
    "why_not_written",
]

#: How many bytes of a file are read to recognize it.
_BEGINNING = 1 << 16


@dataclass(frozen=True, slots=True)
class Output:
    """A kind of output: its name in messages, and a regular expression that the beginning of such a file matches."""

    name: str
    pattern: bytes
    is_appended: bool = False


RECORD = Output("a record of results", rb'\s*\{.*"record"\s*:', is_appended=True)
REPORT_PAGE = Output("the page of a report", rb"\s*<!DOCTYPE html>.*<title>[^<]* \xc2\xb7 cuassay</title>")
MEMORY_PAGE = Output("a page about memory", rb"\s*<!DOCTYPE html>.*<title>memory of ")
MARKDOWN = Output("the short form of a report", rb"\s*## .*\n\| device \| \| passed \| failed \| skipped \|")
JUNIT = Output("the findings of a report", rb'\s*<\?xml.*<testsuite name="cuassay report"')
REPORT = Output("the verdicts of a report", rb'\s*\{\s*"headline"\s*:')
VERDICTS = Output("verdicts of cuassay judge", rb'\s*\[\s*\{.*"verdict"\s*:')
COMPARISON = Output("the outcome of a comparison", rb'\s*\{.*"verdicts"\s*:')
BISECTION = Output("the outcome of a bisection", rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"slower"\s*:')
NOISES = Output("the outcome of cuassay aa", rb'\s*\{\s*"noises"\s*:')
PROFILE = Output("a noise profile", rb'\s*\{\s*"facts of noise profile ')


def why_not_written(path: Path, output: Output) -> str | None:
    """Return why `output` must not be written to `path`, and what to do; None if it may be.

    A file that is absent, empty or not a regular file, such as a pipe, may be written to. One that cannot be read is
    left to the writer, which reports it.
    """
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            beginning = file.read(_BEGINNING)
    except OSError:
        return None
    if not beginning or re.match(output.pattern, beginning, re.DOTALL):
        return None
    kept = "nothing is appended to it" if output.is_appended else "it is not replaced"
    return f"{path} is not {output.name}, so {kept}; name another file, or remove this one first"
