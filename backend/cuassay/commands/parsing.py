"""The parsing and the style of the command line: examples in each help, suggestions for misspelt words, colour."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

from cuassay.core.nearest import did_you_mean, nearest
from cuassay_reports.outputs import Output, why_not_written

__all__ = ["Parser", "is_coloured", "output_file", "painted"]

#: How the help names a subcommand.
_COMMAND = "COMMAND"

_STYLES = {"bold": "1", "faint": "2", "red": "31"}


class Parser(argparse.ArgumentParser):
    """A parser whose help ends with examples, and whose errors suggest the word that was probably meant.

    Subcommands use the same class.

    Parameters
    ----------
    example : str
        Command lines, one per line, shown below the options.
    **options
        Options of `argparse.ArgumentParser`.
    """

    def __init__(self, *, example: str = "", **options: Any) -> None:
        if example:
            shown = "\n".join(f"  {line}" for line in example.splitlines())
            options |= {"epilog": f"example:\n{shown}", "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**options)
        self.set_defaults(prog=self.prog)  # the innermost command, for its messages

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and let the innermost command report an unknown word, not its parent."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and not self._commands():
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage and one line, and exit with status 2; if a command is missing, print the whole help."""
        if message.endswith(f"required: {_COMMAND}"):
            self.print_help(sys.stderr)
            self._refuse(f"no command was given; choose one of {', '.join(self._commands())}")
        self.print_usage(sys.stderr)
        self._refuse(message + self._meant(message))

    def _refuse(self, message: str) -> NoReturn:
        self.exit(2, f"{painted(f'{self.prog}: error:', 'red', sys.stderr)} {message}\n")

    def _meant(self, message: str) -> str:
        if (word := re.search(r"invalid choice: '([^']*)'", message)) is not None:
            return did_you_mean(word[1], re.findall(r"[\w-]+", message.partition("choose from")[2]))
        if (word := re.search(r"unrecognized arguments: (-\S+)", message)) is not None:
            near = nearest(word[1].strip("-"), options := {option.strip("-"): option for option in self._options()})
            return "" if near is None else f" (did you mean {options[near]!r}?)"
        return ""

    def _options(self) -> Iterator[str]:
        for action in self._actions:
            yield from action.option_strings

    def _commands(self) -> tuple[str, ...]:
        """Return the names of the subcommands."""
        below = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
        return tuple(name for choices in below for name in choices)


def output_file(output: Output, *, makes_folders: bool = False) -> Callable[[str], Path]:
    """Return the type of an argument that names a file, which is written at the end.

    A file that cannot be written, or that holds something else than `output`, is rejected now. With `makes_folders` the
    file's folder need not exist.
    """

    def accepted(text: str) -> Path:
        path = Path(text)
        if path.is_dir():
            raise argparse.ArgumentTypeError(f"{text} is a folder; name a file in it")
        written = path if path.exists() else path.parent
        if (written.exists() or not makes_folders) and not os.access(written, os.W_OK):
            raise argparse.ArgumentTypeError(f"{text} cannot be written; name a file in a folder that exists")
        if (reason := why_not_written(path, output)) is not None:
            raise argparse.ArgumentTypeError(reason)
        return path

    return accepted


def is_coloured(stream: IO[str]) -> bool:
    """Return whether to colour `stream`: a terminal, unless NO_COLOR is set; FORCE_COLOR colours any stream."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def painted(text: str, style: str, stream: IO[str]) -> str:
    """Return `text` in a style, such as ``"red"``, if `stream` takes colours."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if is_coloured(stream) else text
