"""What ``cuassay report`` does: read results, write the page or the short form."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cuassay_reports.columns import ResultFormatError
from cuassay_reports.load import load
from cuassay_reports.page import Page, build
from cuassay_reports.render import render_html, render_markdown, render_text

__all__ = ["UNREADABLE", "main", "run"]

UNREADABLE = 2
"""Exit status when the input cannot be read or the output not written."""


def run(paths: Sequence[str | Path], html: str | Path | None = None, md: str | Path | None = None) -> int:
    """Write the report of the results in `paths`; print a summary where neither file is named.

    It only reports: failed tests in the results do not make it fail.

    Parameters
    ----------
    paths : sequence of path
        Result files, or folders of them.
    html, md : path, optional
        Where to write the page, and the short form; folders are created.

    Returns
    -------
    int
        0, or 2 where a file cannot be read or written; the reason is printed.
    """
    try:
        _write(build(load(*paths)), html, md)
    except (OSError, ResultFormatError) as error:
        sys.stderr.write(f"cuassay report: {error}\n")
        return UNREADABLE
    return 0


def _write(page: Page, html: str | Path | None, md: str | Path | None) -> None:
    if html is not None:
        _save(Path(html), render_html(page))
    if md is not None:
        _save(Path(md), render_markdown(page))
    if html is None and md is None:
        sys.stdout.write(render_text(page))


def _save(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"wrote {path}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv`, by default the process's own arguments."""
    parser = argparse.ArgumentParser(prog="cuassay report", description="Turn result files into a report.")
    parser.add_argument("paths", nargs="+", metavar="DIR|FILE", help="result files (*.jsonl), or folders of them")
    parser.add_argument("--html", metavar="FILE", help="write the page")
    parser.add_argument("--md", metavar="FILE", help="write a short form in Markdown")
    options = parser.parse_args(argv)
    return run(options.paths, options.html, options.md)
