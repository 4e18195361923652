"""The ``cuassay report`` command: read results, and write the page or the short form."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cuassay_reports import analysis, units
from cuassay_reports.acknowledged import acknowledgements
from cuassay_reports.files import COMPRESSED
from cuassay_reports.load import OURS, Results, load, records
from cuassay_reports.outcomes import DEFAULT, FINDINGS, as_json, as_junit, as_suspects, findings, parse_fail_on
from cuassay_reports.outputs import JUNIT, MARKDOWN, REPORT, REPORT_PAGE, why_not_written
from cuassay_reports.page import Page, build
from cuassay_reports.render import render_html, render_markdown, render_text
from cuassay_reports.rows import WRITERS, Rejected, not_of_results
from cuassay_reports.terminal import columns, fitted
from cuassay_reports.verdicts import THRESHOLDS, Thresholds

__all__ = ["FOUND", "OPTIONS", "UNREADABLE", "compare", "main", "run"]

UNREADABLE = 2
"""The exit status if the input cannot be read or the output cannot be written."""

FOUND = 1
"""The exit status if a run that is shown did not finish, or something that the user named was found."""

OPTIONS = ("json", "junit", "fail_on", "threshold", "baseline", "suspects", "strict")
"""The options that the command line passes to `run` by name."""

#: The most lines and files without a result that are named.
_NAMED = 20


def run(
    paths: Sequence[str | Path],
    html: str | Path | None = None,
    md: str | Path | None = None,
    *,
    json: str | Path | None = None,
    junit: str | Path | None = None,
    fail_on: str = "",
    threshold: float | None = None,
    baseline: str = "",
    suspects: bool = False,
    strict: bool = False,
) -> int:
    """Write the report of the results in `paths`; print a summary if no output is named.

    Failed tests change the exit status only if `fail_on` says so. An incomplete run always does, because its missing
    tests may have failed.

    Parameters
    ----------
    paths : sequence of path
        Result files, or folders of them.
    html, md : path, optional
        The files for the page and for the short form; folders are created.
    json, junit : path, optional
        The files for the verdicts as JSON, and for the findings named in `fail_on` (by default failed, slower and
        vanished) as JUnit's XML.
    fail_on : str
        Findings that make the exit status 1, separated by commas: words of `cuassay_reports.outcomes.FINDINGS`.
    threshold : float, optional
        The percentage below which a timing has not changed; by default 2, and 5 on another machine.
    baseline : str
        The run, or the first digits of the commit, to compare the newest timings with; by default the previous run.
    suspects : bool
        Whether to print only the input of ``cuassay ab -``: the newest run's suspects, its commit and the previous one.
    strict : bool
        Whether to reject unreadable files and lines without a result; otherwise they are named and omitted.

    Returns
    -------
    int
        0; or 1 if a run is incomplete or something in `fail_on` was found; or 2 if nothing can be read or a file cannot
        be written. The reason is printed.
    """
    try:
        words = parse_fail_on(fail_on)
        _require_own_files(html, md, json, junit)
        results = load(*paths, strict=strict)
        is_text = not suspects and {html, md, json, junit} == {None}
        _require_results(results, "report")
        if not is_text:  # the text itself names what was omitted
            _tell(results.rejected, "report")
        accepted = acknowledgements(map(Path, paths))
        page = build(results, accepted, thresholds=_thresholds(threshold), baseline=baseline)
        if suspects:
            sys.stdout.write(as_suspects(page))
            return 0
        _write_verdicts(page, json, junit, words or DEFAULT)
        if is_text or html is not None or md is not None:
            _write(page, html, md)
    except (OSError, ValueError, LookupError) as error:
        sys.stderr.write(f"cuassay report: {error}\n")
        return UNREADABLE
    for one in [] if is_text else page.unfinished:
        sys.stderr.write(f"cuassay report: run {one.run} is incomplete: {one.why}\n")
    found = findings(page)
    for word in words:
        for each in found[word]:
            sys.stderr.write(f"cuassay report: {word}: {each['name']}: {each['reason']}\n")
    return FOUND if page.unfinished or any(found[word] for word in words) else 0


#: What the options ``--html``, ``--md``, ``--json`` and ``--junit`` write.
_OUTPUTS = (REPORT_PAGE, MARKDOWN, REPORT, JUNIT)


def _require_own_files(*paths: str | Path | None) -> None:
    """Raise `ValueError` if an output file exists and holds something else, before anything is read."""
    for path, output in zip(paths, _OUTPUTS, strict=True):
        if path is not None and (reason := why_not_written(Path(path), output)) is not None:
            raise ValueError(reason)


def _require_results(results: Results, command: str) -> None:
    """Raise `LookupError` if there is no run; for a single file, in one message with the reason."""
    if not results.runs.empty:
        return
    files = [str(file) for file in results.files]
    if len(files) == 1 and {one.place for one in results.rejected} <= {*files}:
        reasons = [one.reason for one in results.rejected] or [not_of_results(0)]
        raise LookupError(f"{files[0]}: {reasons[0]}")
    _tell(results.rejected, command)
    raise LookupError(f"no result in {', '.join(files)}; {WRITERS}")


def _thresholds(percent: float | None) -> Thresholds:
    if percent is None:
        return THRESHOLDS
    if not 0 < percent < 100:
        raise ValueError(f"--threshold {percent:g} is not a percentage of a change; use one above 0 and below 100")
    return replace(THRESHOLDS, floor=percent / 100, weak=max(THRESHOLDS.weak, percent / 100))


def compare(a: str, b: str, path: str | Path) -> int:
    """Print the timings of `b` with those of `a`; return 1 if one is slower, and 2 if they cannot be compared.

    Parameters
    ----------
    a, b : str
        The id of a run, or the first digits of a commit; `a` is the old one. Two result files mean the newest run with
        times in each.
    path : path
        The file or folder of results with both; ignored if `a` and `b` are files.
    """
    try:
        are_files = _are_files(a, b)
        if not are_files and not Path(path).exists():
            raise FileNotFoundError(f"{path} does not exist; name the folder of result files by --results DIR")
        results = load(a, b) if are_files else load(path)
        _require_results(results, "compare")
        _tell(results.rejected, "compare")
        if are_files:
            a, b = _newest_run(a), _newest_run(b)
        found = analysis.compare(results, a, b)
    except (OSError, LookupError) as error:
        sys.stderr.write(f"cuassay compare: {error}\n")
        return UNREADABLE
    for row in records(found):
        whose = "" if row["implementation"] == OURS else row["implementation"]
        name = " ".join(filter(None, [*(row[key] for key in ("benchmark", "dtype", "case", "device")), whose]))
        change = units.signed_percent(row["change"])
        why = row["why"].removeprefix(f"{row['change']:+.1%}, ")  # the change is said already
        line = f"{row['verdict'] or 'not compared':12} {change:>9}  {name}: {why}"
        sys.stdout.write(fitted(line, columns(sys.stdout)) + "\n")
    return FOUND if (found["verdict"] == "slower").any() else 0


def _are_files(a: str, b: str) -> bool:
    """Return whether both sides are files; raises `LookupError` if only one is, or is named like a file."""
    if Path(a).is_file() and Path(b).is_file():
        return True
    named = [one for one in (a, b) if one.endswith((".jsonl", COMPRESSED))]
    missing = [one for one in named if not Path(one).is_file()]
    if missing:
        raise LookupError(f"{missing[0]} is not a file; {_SIDES}; give: cuassay compare RUN RUN --results FILE")
    if named:
        runs = " ".join("RUN" if one in named else shlex.quote(one) for one in (a, b))
        file = shlex.quote(named[0])
        raise LookupError(
            f"{named[0]} is a file and the other side is not; {_SIDES}; give: cuassay compare {runs} --results {file}"
        )
    return False


_SIDES = "A and B are two result files, or two runs or commits of the files that --results names"


def _newest_run(file: str) -> str:
    """Return the newest run with times in a file."""
    results = load(file)
    _require_results(results, "compare")
    if results.times.empty:
        raise LookupError(f"{file} holds no times; name a file with times: `cuassay run` writes them")
    return str(results.times["run"].iloc[-1])


def _tell(rejected: Sequence[Rejected], command: str) -> None:
    for one in rejected[:_NAMED]:
        sys.stderr.write(f"cuassay {command}: left out {one.place}: {one.reason}\n")
    if len(rejected) > _NAMED:
        sys.stderr.write(f"cuassay {command}: and {len(rejected) - _NAMED:,} more lines or files\n")


def _write(page: Page, html: str | Path | None, md: str | Path | None) -> None:
    if html is not None:
        _save(Path(html), render_html(page))
    if md is not None:
        _save(Path(md), render_markdown(page))
    if html is None and md is None:
        sys.stdout.write(render_text(page, columns(sys.stdout)))


def _write_verdicts(page: Page, json: str | Path | None, junit: str | Path | None, words: Sequence[str]) -> None:
    if json is not None:
        _save(Path(json), as_json(page))
    if junit is not None:
        _save(Path(junit), as_junit(page, words))


def _save(path: Path, text: str) -> None:
    if str(path) == "-":
        sys.stdout.write(text)
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}; name a file that you may write to") from error
    sys.stdout.write(f"wrote {path}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv`, by default the process's own arguments."""
    parser = argparse.ArgumentParser(prog="cuassay report", description="Turn result files into a report.")
    parser.add_argument(
        "paths", nargs="+", metavar="DIR|FILE", help="result files (*.jsonl, *.jsonl.gz), or folders of them"
    )
    parser.add_argument("--html", metavar="FILE", help="write the page")
    parser.add_argument("--md", metavar="FILE", help="write a short form in Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts as JSON; - is standard output")
    parser.add_argument("--junit", metavar="FILE", help="write the findings as JUnit's XML; - is standard output")
    parser.add_argument(
        "--fail-on",
        default="",
        metavar="WORDS",
        help=f"exit with 1 on any of: {','.join(FINDINGS)}",
    )
    parser.add_argument("--threshold", type=float, metavar="PERCENT", help="ignore smaller changes of a timing")
    parser.add_argument("--baseline", default="", metavar="RUN", help="compare with this run or commit")
    parser.add_argument(
        "--suspects",
        action="store_true",
        help="print only the suspects, as `cuassay ab -` reads them from its standard input",
    )
    parser.add_argument("--strict", action="store_true", help="reject lines and files without a result")
    options = parser.parse_args(argv)
    named = {name: getattr(options, name) for name in OPTIONS}
    return run(options.paths, options.html, options.md, **named)
