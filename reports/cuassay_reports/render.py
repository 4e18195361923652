"""The report as one HTML page and as short Markdown.

Style, charts and one small script are inside the page, which makes no requests. The script filters and sorts the
timings and zooms a history; without it everything can still be read. The page's policy allows only this script, by its
digest. The template engine escapes everything that came from a file.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup

from cuassay_reports import units
from cuassay_reports.matrix import STATES
from cuassay_reports.page import Page
from cuassay_reports.peer_summary import BEHIND
from cuassay_reports.terminal import fitted

__all__ = ["render_html", "render_markdown", "render_text"]


def render_html(page: Page) -> str:
    """Return the page: one self-contained file, light and dark, for screen, phone and paper."""
    return _environment(escape=True).get_template("page.html.j2").render(page=page)


def render_markdown(page: Page) -> str:
    """Return the short form, for a job's summary or a pull request."""
    return _environment(escape=False).get_template("summary.md.j2").render(page=page)


def render_text(page: Page, width: int | None = None) -> str:
    """Return the short form for a terminal of `width` columns; a command that repeats a failure stays on one line."""
    text = _environment(escape=False).get_template("summary.txt.j2").render(page=page)
    whole = {failure.reproduce for failure in page.failures}
    return "\n".join(line if line.strip() in whole else fitted(line, width) for line in text.split("\n"))


# Colour is never the only distinction: each state also has a sign.
_STATE_SIGNS = {"passed": "✓", "failed": "✕", "xfailed": "!", "skipped": "–", "not run": "·"}
_TONE_SIGNS = {"good": "✓", "bad": "✕", "warn": "▴", "plain": ""}
_VERDICT_SIGNS = {"faster": "▾", "slower": "▴", "same": "=", "ambiguous": "?", "": ""}

#: The failures that are shown at once; the others are folded, so that later sections remain visible.
_SHOWN_FAILURES = 12

#: The slow-downs whose plots are shown at once.
_SHOWN_SLOWDOWNS = 12

#: The terminal columns that cases share; a longer case moves only its own figures to the right.
_MOST_OF_A_CASE = 40

#: The number of runs that are listed.
_SHOWN_RUNS = 50

#: The number of lines and files without a result that are named.
_SHOWN_REJECTED = 20

# Column heads of the matrix must be narrow; their titles have the full names.
_SHORT_DTYPES = {"float": "f", "bfloat": "bf", "complex": "c", "uint": "u", "int": "i", "bool": "bool"}


def _short_dtype(name: str) -> str:
    """Return ``'f32'`` for float32, ``'e4m3'`` for float8_e4m3fn."""
    eight = re.fullmatch(r"float8_(e\dm\d)\w*", name)
    if eight:
        return eight[1]
    return re.sub(r"\A\D+", lambda word: _SHORT_DTYPES.get(word[0], word[0]), name)


def _cell_text(text: str) -> str:
    """Escape `text` for a cell of a Markdown table."""
    flat = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", flat)


def _code(text: str) -> str:
    """Return `text` as inline code in a cell of a Markdown table."""
    flat = " ".join(str(text).split()).replace("|", "\\|")
    ticks = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    space = " " if "`" in flat else ""
    return f"{ticks}{space}{flat}{space}{ticks}" if flat else ""


@cache
def _environment(*, escape: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=escape,  # noqa: S701  # Markdown and plain text have no markup to escape; their templates quote
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    script = _template("page.js")
    environment.filters |= {"percent": units.percent, "cell": _cell_text, "code": _code, "short": _short_dtype}
    environment.globals |= {
        "states": STATES,
        "sign": _STATE_SIGNS,
        "verdict_sign": _VERDICT_SIGNS,
        "tone_sign": _TONE_SIGNS,
        "count": units.count,
        "shown_failures": _SHOWN_FAILURES,
        "shown_slowdowns": _SHOWN_SLOWDOWNS,
        "shown_rejected": _SHOWN_REJECTED,
        "most_of_a_case": _MOST_OF_A_CASE,
        "behind": BEHIND,
        "shown_runs": _SHOWN_RUNS,
        "style": Markup(_template("style.css")),  # noqa: S704  # ours, not a result's
        "script": Markup(script),  # noqa: S704  a file of this package
        "script_digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return environment


def _template(name: str) -> str:
    return (resources.files("cuassay_reports") / "templates" / name).read_text(encoding="utf-8")
