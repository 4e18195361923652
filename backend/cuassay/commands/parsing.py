"""How the command line is read and written: examples in each help, what a misspelt word was meant to be, colour."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

from cuassay.core.nearest import did_you_mean

__all__ = ["Parser", "is_coloured", "output_file", "painted"]

_STYLES = {"bold": "1", "faint": "2", "red": "31"}


class Parser(argparse.ArgumentParser):
    """A parser whose help ends with examples, and whose errors name the word that was likely meant.

    Subcommands are made by the same class.

    Parameters
    ----------
    example : str
        Command lines, one a line, shown below the options.
    **options
        For `argparse.ArgumentParser`.
    """

    def __init__(self, *, example: str = "", **options: Any) -> None:
        if example:
            shown = "\n".join(f"  {line}" for line in example.splitlines())
            options |= {"epilog": f"example:\n{shown}", "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Print the usage and one line, and exit with status 2."""
        word = re.search(r"invalid choice: '([^']*)'|unrecognized arguments: (\S+)", message)
        meant = "" if word is None else did_you_mean(word[1] or word[2], _words(self))
        self.print_usage(sys.stderr)
        self.exit(2, f"{painted(f'{self.prog}: error:', 'red', sys.stderr)} {message}{meant}\n")


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every option, choice and subcommand of a parser and of those below it."""
    for action in parser._actions:  # noqa: SLF001  argparse has no public way to its options
        yield from action.option_strings
        choices = action.choices or ()
        yield from (str(choice) for choice in choices)
        if isinstance(choices, dict):
            for below in choices.values():
                yield from _words(below)


def output_file(text: str) -> Path:
    """The file that an argument names, to be written when the work is done: refused now where that cannot succeed."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file in it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written; name a file in a folder that exists")
    return path


def is_coloured(stream: IO[str]) -> bool:
    """Whether to write colours to `stream`: a terminal, unless NO_COLOR is set; FORCE_COLOR colours any stream."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def painted(text: str, style: str, stream: IO[str]) -> str:
    """`text` in a style, such as ``"red"``, if `stream` takes colours."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if is_coloured(stream) else text
