"""The ledger: one file of 1 or 2 MB for each run on a real machine, kept with the code it measured.

A ledger file keeps what is useful for years: every outcome, every figure, why a test failed, some of the samples, and
the beginning of each failure message. `cuassay_reports.columns` defines the rows.

``python -m cuassay.benchmarking.ledger write FILE... --out reports/ledger`` makes the file of a run from the files that
its processes wrote. ``... begin FILE --command TEXT`` begins a run and prints its id, for ``--cuassay-run``. ``... end
FILE --run ID`` records that the run finished. ``... check FILE --require-device D`` prints what all processes of a run
executed together, and which of them died.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuassay.core.device import HOST_KINDS, Device
from cuassay.errors import ResultError
from cuassay.results.record import Recorder, begin
from cuassay_reports.columns import ResultFormatError
from cuassay_reports.endings import endings
from cuassay_reports.files import COMPRESSED, result_files
from cuassay_reports.lines import encoded
from cuassay_reports.rows import read_rows

if TYPE_CHECKING:
    from cuassay.testing.summary import Outcomes

__all__ = [
    "MAX_MESSAGE_CHARACTERS",
    "MAX_SAMPLES",
    "Row",
    "file_name",
    "main",
    "outcomes",
    "read",
    "slug",
    "trimmed",
    "write",
]

#: The largest number of characters of all failures of a run. The outcomes of several thousand tests add about 1 MB.
MAX_MESSAGE_CHARACTERS = 250_000

#: How many evenly spaced samples of a series are kept. The median and quartiles are those of all samples.
MAX_SAMPLES = 20

#: Lengths to which failure messages are cut: the first one with which all fit in `MAX_MESSAGE_CHARACTERS`.
MESSAGE_LENGTHS = (4000, 500, 0)

#: The name of the process that began a run.
_COMMAND = "command"

#: Appears in the id of a test that ran on no device, because none of its devices was selected.
_NOWHERE = re.compile(r"[\[-]nowhere[-\]]")

_FIGURES = ("median", "minimum", "q25", "q75", "empty")

_TABLES = ("run", "plan", "device", "limit", "condition", "time", "test", "begin", "end")

Row = Mapping[str, Any]


def read(paths: Iterable[str | Path]) -> list[Row]:
    """Read the rows of result files. A folder means every ``*.jsonl`` and ``*.jsonl.gz`` in it and its subfolders.

    An incomplete last line is ignored.

    Raises
    ------
    ResultError
        If a file cannot be read or holds something else; the message names the line.
    """
    return [row for path in paths for file in _files(Path(path)) for row in _rows(file)]


def _files(path: Path) -> Iterable[Path]:
    return result_files(path) if path.is_dir() else [path]


def _rows(path: Path) -> Iterable[Row]:
    try:
        return read_rows(path, strict=True).rows
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error}; name a result file, or a folder of some") from error
    except ResultFormatError as error:
        raise ResultError(str(error)) from error


def trimmed(rows: Iterable[Row], message_length: int = MESSAGE_LENGTHS[0]) -> list[Row]:
    """Return the rows to keep, by table: each device once, fewer samples per series, and passed tests folded.

    The passed checks of one op, dtype and device become one row with the worst head-room, which `cuassay_reports.load`
    unfolds again.
    """
    rows = list(rows)
    tables: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        tables[row["record"]].append(row)
    tables["device"] = list({row["device"]: row for row in tables["device"]}.values())
    tables["time"] = [_thinned(row) for row in tables["time"]]
    tables["test"] = [
        *_folded(tables["test"]),
        *(_shortened(r, message_length) for r in tables["test"] if not _folds(r)),
    ]
    tables["begin"] = _unfinished(rows)
    return [row for table in _TABLES for row in tables[table]]


def _unfinished(rows: Iterable[Row]) -> list[Row]:
    """Return the begin rows that name what a process was running when it died. Finished tests need no begin row."""
    last = {(run, *begun) for run, ending in endings(rows).items() for begun in ending.begun}
    return [
        row for row in rows if row["record"] == "begin" and (row["run"], row.get("part", ""), row["nodeid"]) in last
    ]


def _thinned(row: Row) -> Row:
    """Keep few samples, with four digits, and the figures with six digits. Both are finer than any clock's step."""
    samples = row.get("samples", [])
    step = max(1.0, len(samples) / MAX_SAMPLES)
    kept = [samples[int(place * step)] for place in range(min(MAX_SAMPLES, len(samples)))]
    figures = {name: float(f"{row[name]:.6g}") for name in _FIGURES if name in row}
    return {**row, **figures, **({"samples": [float(f"{sample:.4g}") for sample in kept]} if kept else {})}


def _folds(row: Row) -> bool:
    return row["outcome"] == "passed" and {"op", "dtype", "device", "check"} <= row.keys() and _starred(row) is not None


def _starred(row: Row) -> str | None:
    """Return the node id with ``*`` in place of the check, or None if the id cannot be restored from that."""
    name = f"::test_{row['check']}["
    return row["nodeid"].replace(name, "::test_*[") if row["nodeid"].count(name) == 1 else None


def _folded(tests: Iterable[Row]) -> Iterator[Row]:
    cells: dict[Hashable, list[Row]] = defaultdict(list)
    for row in tests:
        if _folds(row):
            cells[_starred(row)].append(row)
    for name, cell in cells.items():
        kept = {column: cell[0][column] for column in ("record", "schema", "run", "device", "op", "dtype", "outcome")}
        worst = max((row["headroom"] for row in cell if "headroom" in row), default=None)
        row = {**kept, "nodeid": name, "checks": " ".join(row["check"] for row in cell)}
        yield row if worst is None else {**row, "headroom": float(f"{worst:.3g}")}


def _shortened(row: Row, length: int) -> Row:
    without = {"duration", "seed"} if row["outcome"] in ("passed", "skipped") else set()
    kept = {name: value for name, value in row.items() if name not in without}
    for name in kept.keys() & {"reason", "message"}:
        kept[name] = kept[name].replace(f"{Path.cwd()}/", "")  # the path of the tree is specific to the machine
    if "message" in kept:
        kept["message"] = kept["message"][:length]
    return {name: value for name, value in kept.items() if name != "message" or value}


def file_name(rows: Iterable[Row]) -> str:
    """Return ``<date>-<device>-<commit>.jsonl.gz``, such as ``2026-01-31-nvidia-h200-9f3c2100.jsonl.gz``.

    The device is the first accelerator that was present, else the first device.

    Raises
    ------
    ResultError
        If the rows do not belong to exactly one run that has a run row.
    """
    found = list(rows)
    runs = {row["run"]: row for row in found if row["record"] == "run"}
    if len(runs) != 1 or {row["run"] for row in found} != runs.keys():
        raise ResultError(
            f"a ledger file holds one run with its own row; got the run rows {', '.join(runs) or 'of none'} and rows "
            f"of {len({row['run'] for row in found})} runs; name the files of one run"
        )
    (run,) = runs.values()
    commit = run.get("commit", "unknown")[:8] + ("-dirty" if run.get("dirty") else "")
    return f"{run['started'][:10]}-{slug(_device_name(found))}-{commit}{COMPRESSED}"


def _device_name(rows: Iterable[Row]) -> str:
    present = [row for row in rows if row["record"] == "device" and row["present"]]
    present.sort(key=lambda row: row["device"].partition(":")[0] in HOST_KINDS)
    return str(present[0].get("fingerprint", {}).get("name", present[0]["device"])) if present else "no device"


def slug(text: str) -> str:
    """Return the lower-case letters and digits of `text`, with hyphens between them, for use in a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def write(paths: Iterable[str | Path], folder: str | Path) -> Path:
    """Merge the result files of one run into a small file in `folder`, and return its path.

    Writing the same run again replaces its file. Another run of the same day and commit gets a number.

    Raises
    ------
    ResultError
        As in `read` and `file_name`.
    """
    rows = read(paths)
    name = file_name(rows)
    lines = b"".join(map(encoded, trimmed(rows, _message_length(rows))))
    path = _free(Path(folder) / name, rows[0]["run"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(lines, mtime=0))  # without a time, so that the same rows give the same bytes
    return path


def _message_length(rows: Iterable[Row]) -> int:
    lengths = [len(row.get("message", "")) for row in rows if row["record"] == "test"]
    within = (most for most in MESSAGE_LENGTHS if sum(min(one, most) for one in lengths) <= MAX_MESSAGE_CHARACTERS)
    return next(within, 0)


def _free(path: Path, run: str) -> Path:
    """Return `path`, with a number appended if another run has that name."""
    candidate, number = path, 1
    while candidate.exists() and {row["run"] for row in read([candidate])} != {run}:
        number += 1
        candidate = path.with_name(f"{path.name.removesuffix(COMPRESSED)}-{number}{COMPRESSED}")
    return candidate


def outcomes(rows: Iterable[Row]) -> Outcomes:
    """Return the outcomes of the cases in `rows`, regardless of which process ran them."""
    from cuassay.testing.summary import Outcomes  # imports pytest, which other commands do not need

    found = Outcomes()
    for row in rows:
        if row["record"] == "test" and ("device" in row or _NOWHERE.search(row["nodeid"])):
            found.add(row["nodeid"], row, row["outcome"], row.get("reason", ""))
    return found


def _check(paths: Iterable[str], required: Iterable[str]) -> int:
    rows = read(paths)
    found = outcomes(rows)
    verdicts = [*found.idle(str(Device(name)) for name in required), *_dead(rows)]
    for line in (*found.table(), *found.nowhere(), *(f"ERROR {verdict}" for verdict in verdicts)):
        sys.stdout.write(f"{line}\n")
    return int(bool(verdicts))


def _dead(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a line for each process that did not finish, except the run's own process, which is still running."""
    for run, ending in endings(row for row in rows if row.get("part") != _COMMAND).items():
        begun = "".join(f"; {part} had begun {nodeid}" for part, nodeid in ending.begun)
        if ending.why:
            yield f"run {run} is incomplete: {ending.why}{begun}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv`, by default the arguments of the process, and return its exit status."""
    options = _parser().parse_args(argv)
    try:
        if options.action == "begin":
            with Recorder(options.file) as recorder:
                begin(recorder, options.command)
                recorder.write("plan", part=_COMMAND)
            sys.stdout.write(f"{recorder.run}\n")
        elif options.action == "end":
            with Recorder(options.file, run=options.run) as recorder:
                recorder.write_end(options.reason, part=_COMMAND)
        elif options.action == "check":
            return _check(options.paths, options.require_device)
        else:
            sys.stdout.write(f"{write(options.paths, options.out)}\n")
    except ResultError as error:
        sys.stderr.write(f"ledger: {error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cuassay.benchmarking.ledger", description="One small file a run.")
    actions = parser.add_subparsers(dest="action", required=True)
    beginning = actions.add_parser("begin", help="write the row of a new run and print its id")
    beginning.add_argument("file", help="result file that the run's processes append to")
    beginning.add_argument("--command", default="", help="what is run, without machine paths")
    ending = actions.add_parser("end", help="say that the run came to its end")
    ending.add_argument("file", help="the result file")
    ending.add_argument("--run", required=True, metavar="ID", help="what `begin` printed")
    ending.add_argument("--reason", metavar="TEXT", help="what ended it before its last part")
    checking = actions.add_parser("check", help="say what ran on each device, and what on none")
    checking.add_argument("paths", nargs="+", metavar="DIR|FILE", help="result files of one run, or folders of them")
    checking.add_argument(
        "--require-device", action="append", default=[], metavar="D", help="fail unless a test passed or failed on it"
    )
    writing = actions.add_parser("write", help="merge and trim the files of one run; print the name of the result")
    writing.add_argument("paths", nargs="+", metavar="DIR|FILE", help="result files, or folders of them")
    writing.add_argument("--out", required=True, metavar="DIR", help="the ledger's folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
