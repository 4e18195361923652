"""``cuassay help COMMAND``: the same as ``cuassay COMMAND --help``."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from cuassay.commands.parsing import Parser

__all__ = ["add_help_command"]


def add_help_command(
    commands: argparse._SubParsersAction[Parser], parser: Callable[[], argparse.ArgumentParser]
) -> None:
    """Declare ``help``, for what `parser` makes."""
    told = commands.add_parser("help", help="print the help of a command", example="cuassay help memory viz")
    told.add_argument("words", nargs="*", metavar="COMMAND", help="the command; default: cuassay itself")
    told.set_defaults(command=lambda options: _print(options.words, parser()))


def _print(words: list[str], parser: argparse.ArgumentParser) -> int:
    parser.parse_args([*words, "--help"])  # which prints, and exits
    return 0
