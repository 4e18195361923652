"""The width of text for a terminal, and the wrapping of longer lines. Needs only the standard library."""

from __future__ import annotations

import os
import textwrap
from typing import IO

__all__ = ["columns", "fitted"]

#: Tables do not fit into narrower lines, and terminals are not narrower.
_LEAST = 20


def columns(stream: IO[str]) -> int | None:
    """Return the width of the terminal behind `stream`: COLUMNS if it is set; None if there is no terminal."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return max(_LEAST, int(given))
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except OSError:  # a file, a pipe, or a stream without a descriptor
        return None
    return max(_LEAST, found) if found > 0 else None


def fitted(line: str, width: int | None) -> str:
    """Wrap `line` at spaces to at most `width` columns, with lines after the first indented by four more.

    Longer words stay whole, so that a path can be copied.
    """
    if width is None or len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    parts = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(parts)
