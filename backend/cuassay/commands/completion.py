"""``cuassay completion``: a script that completes commands and options in a shell, written by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from cuassay.commands.parsing import Parser
from cuassay.core import extras
from cuassay.errors import CapabilityError

__all__ = ["add_completion_command"]

_SHELLS = ("bash", "zsh", "tcsh")


def add_completion_command(
    commands: argparse._SubParsersAction[Parser], parser: Callable[[], argparse.ArgumentParser]
) -> None:
    """Declare ``completion`` for the command line that `parser` makes."""
    completion = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in a shell",
        example="cuassay completion bash > ~/.local/share/bash-completion/completions/cuassay",
    )
    completion.add_argument("shell", choices=_SHELLS, help="which shell the script is for")
    completion.set_defaults(command=lambda options: _print(options.shell, parser()))


def _print(shell: str, parser: argparse.ArgumentParser) -> int:
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise CapabilityError(
            "completion scripts need shtab, which is not installed; "
            f"install it with: {extras.pip_install('completion')}"
        ) from error
    print(shtab.complete(parser, shell=shell))
    return 0
