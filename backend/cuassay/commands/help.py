"""``cuassay help COMMAND``: the same as ``cuassay COMMAND --help``."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from cuassay.commands.parsing import Parser

__all__ = ["add_help_command"]


def add_help_command(
    commands: argparse._SubParsersAction[Parser], parser: Callable[[], argparse.ArgumentParser]
) -> None:
    """Declare ``help`` for the command line that `parser` makes."""
    shown = commands.add_parser("help", help="print the help of a command", example="cuassay help memory viz")
    shown.add_argument("words", nargs="*", metavar="COMMAND", help="the command; default: cuassay itself")
    shown.set_defaults(command=lambda options: _print(options.words, parser()))


def _print(words: list[str], parser: argparse.ArgumentParser) -> int:
    parser.parse_args([*words, "--help"])  # prints the help, and exits
    return 0
