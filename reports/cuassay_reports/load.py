"""Result files as pandas frames: read, check, fill in, and tell which rows are the newest.

`load` is public for anyone who wants the numbers in a notebook. Every frame has all columns of its
table in `columns`, whatever schema a row was written by, and a few joined ones, so that no one
needs to merge. What the numbers mean is decided elsewhere.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cuassay_reports.columns import TABLES, Column, ResultFormatError
from cuassay_reports.endings import Ending, endings
from cuassay_reports.facts import digest
from cuassay_reports.frames import pd
from cuassay_reports.intervals import net
from cuassay_reports.lines import Lines, Rejected, Row, read_lines

__all__ = ["OURS", "Results", "Row", "grouped_by", "load", "records"]


@dataclass(frozen=True)
class Results:
    """The rows of all files, one frame a table.

    Text that is unknown is ``""``; numbers that are unknown are NA or NaN. Every frame has `started`
    (UTC) of its run, and `subject`: the device as people tell it from others, across runs.

    Attributes
    ----------
    runs, devices, tests, times, limits : pandas.DataFrame
        Sorted by the start of the run; the columns are those of the table in ``columns.TABLES``.
        `times` and `tests` also have the `digest` of their device's fingerprint; `runs` have `ended_early`: why the
        run is incomplete, ``""`` where it is complete. The figures of `times` are freed of the empty
        interval where their run measured it, and `raw` is the median as measured.
    files : tuple of path
        What was read.
    torn : int
        Last lines left unfinished by a killed writer, and ignored.
    rejected : tuple of Rejected
        Lines and files that hold no result, and were left out.
    begun : mapping
        Run to the (part, test) that the processes of an incomplete run had begun last.
    """

    runs: pd.DataFrame
    devices: pd.DataFrame
    tests: pd.DataFrame
    times: pd.DataFrame
    limits: pd.DataFrame
    files: tuple[Path, ...] = ()
    torn: int = 0
    rejected: tuple[Rejected, ...] = ()
    begun: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{len(getattr(self, name))} {name}" for name in ("runs", "devices", "tests", "times", "limits")
        )
        return f"Results({counts} of {len(self.files)} files)"

    def latest(self) -> Results:
        """Return the same, of each subject only the newest run that has tests, and that has times.

        So a run of tests alone does not hide the timings of the run before it, nor one of grouped timings the others.
        """
        grouped = self.times["groups"] != ""
        return replace(
            self,
            devices=_of_runs(self.devices, _newest_runs(self.devices, self.tests, self.times)),
            tests=_of_runs(self.tests, _newest_runs(self.tests)),
            times=pd.concat(
                [_of_runs(part, _newest_runs(part)) for part in (self.times[~grouped], self.times[grouped])]
            ),
            limits=_of_runs(self.limits, _newest_runs(self.times)),
        )


OURS = "cuassay"
"""The implementation that peers are compared with, where a row names no other."""


def load(*paths: str | os.PathLike[str], strict: bool = False) -> Results:
    """Read result files; a folder stands for every ``*.jsonl`` in it and below.

    A line that is not a row of the schema, and a file that cannot be read, are left out and named in `rejected`. The
    last line of a file may be unfinished.

    Parameters
    ----------
    strict : bool
        Raise at the first line or file that would be left out.

    Raises
    ------
    FileNotFoundError
        A path does not exist, or holds no result file.
    ResultFormatError
        With `strict`: a line is not a row of the schema; the message names file and line.
    OSError
        With `strict`: a file cannot be read.
    """
    files = tuple(dict.fromkeys(file for path in paths for file in _files(Path(path))))
    read = [_lines(file, strict=strict) for file in files]
    rejected = tuple(one for found in read for one in found.rejected)
    for first in rejected if strict else ():
        raise ResultFormatError(f"{first.place}: {first.reason}")
    rows: dict[str, list[Row]] = {record: [] for record in TABLES}
    for found in read:
        for row in found.rows:
            rows[row["record"]] += _unfolded(row)
    rows["time"] = [net(row) if "empty" in row else row for row in rows["time"]]
    return replace(_results(rows), files=files, torn=sum(found.torn for found in read), rejected=rejected)


def _lines(file: Path, *, strict: bool) -> Lines:
    try:
        return read_lines(file)
    except OSError as error:
        if strict:
            raise
        return Lines([], [Rejected(str(file), f"this file cannot be read: {error.strerror}")], 0)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of `frame` in order, each by column name."""
    return frame.to_dict("records")  # type: ignore[return-value]  # its keys are typed as Hashable


def grouped_by(rows: Iterable[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows by their values of `names`, both in the order given.

    Thousands of groups of a few rows: a frame for each of them takes milliseconds.
    """
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def _files(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    found = sorted(file for file in path.rglob("*.jsonl") if file.is_file())
    if not found:
        what = "holds no *.jsonl file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; name result files, or a folder with some: `cuassay run` writes them")
    return found


def _unfolded(row: Row) -> list[Row]:
    """The tests that a folded row stands for, one row each; any other row as it is."""
    checks = row.get("checks", "").split() if row["record"] == "test" else ()
    common = {name: value for name, value in row.items() if name != "checks"}
    return [{**common, "nodeid": row["nodeid"].replace("*", check, 1), "check": check} for check in checks] or [row]


def _results(rows: Mapping[str, list[Row]]) -> Results:
    ended = endings(row for table in rows.values() for row in table)
    frames = {record: _frame(rows[record], TABLES[record]) for record in TABLES if record not in _ABOUT_RUNS}
    runs = _runs(frames, ended)
    devices = frames["device"].drop_duplicates(["run", "device"], keep="last")
    subjects = pd.Series([_subject(d, f) for d, f in _pairs(devices)], index=devices.index, dtype="str")
    digests = [
        digest(facts) if facts else old for (_, facts), old in zip(_pairs(devices), devices["digest"], strict=True)
    ]
    told = pd.Series(digests, index=devices.index, dtype="str")  # an older writer counted other facts in
    devices = _dated(devices.assign(subject=subjects, digest=told), runs)
    known = devices[["run", "device", "subject", "digest"]]
    return Results(
        runs=runs,
        devices=devices,
        tests=_dated(_with_subject(frames["test"], known), runs).drop_duplicates(["run", "nodeid"], keep="last"),
        times=_dated(_with_subject(_with_raw(_with_ours(frames["time"]), rows["time"]), known), runs),
        limits=_dated(_with_subject(frames["limit"], known), runs),
        begun={run: ending.begun for run, ending in ended.items() if ending.begun},
    )


def _frame(rows: list[Row], columns: Iterable[Column]) -> pd.DataFrame:
    shown = [column for column in columns if column.name != "record"]
    return pd.DataFrame({column.name: _series(rows, column) for column in shown})


def _series(rows: list[Row], column: Column) -> pd.Series[Any]:
    missing = _MISSING[column.kind] if column.default is None else column.default
    return pd.Series([row.get(column.name, missing) for row in rows], dtype=_DTYPES[column.kind])


_DTYPES = {
    **dict.fromkeys(("str", "time"), "str"),
    **dict.fromkeys(("object", "list"), "object"),
    "int": "Int64",
    "float": "float64",
    "bool": "boolean",
}
_MISSING = {"str": "", "time": "", "int": pd.NA, "float": float("nan"), "bool": pd.NA, "object": None, "list": None}


#: Tables of which only `endings` reads the rows.
_ABOUT_RUNS = ("plan", "begin", "end")


def _runs(frames: Mapping[str, pd.DataFrame], ended: Mapping[str, Ending]) -> pd.DataFrame:
    """Return one row a run, oldest first; a run whose own row was never written comes before all."""
    runs = frames["run"].drop_duplicates("run")
    planned = pd.Series([*ended], name="run", dtype="str")
    seen = pd.concat([*(frame["run"] for frame in frames.values()), planned]).drop_duplicates()
    runs = seen.to_frame().merge(runs, on="run", how="left")
    runs["ended_early"] = pd.Series(
        [ended.get(run, Ending()).why for run in runs["run"]], index=runs.index, dtype="str"
    )
    runs["started"] = pd.to_datetime(runs["started"], utc=True, format="ISO8601")
    texts = [column.name for column in TABLES["run"] if column.kind in ("str", "time") and column.name in runs]
    texts.remove("started")
    runs[texts] = runs[texts].fillna("")
    ordered: pd.DataFrame = runs.sort_values(["started", "run"], na_position="first", ignore_index=True)
    return ordered


def _dated(frame: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add the run's start and its place in time, and put the rows in that order."""
    order = runs[["run", "started"]].assign(order=range(len(runs)))
    return frame.merge(order, on="run").sort_values("order", kind="stable", ignore_index=True)


def _with_ours(times: pd.DataFrame) -> pd.DataFrame:
    """Say of every row whether it is what peers are compared with."""
    return times.assign(ours=times["ours"].fillna(times["implementation"] == OURS).astype(bool))


def _with_raw(times: pd.DataFrame, rows: list[Row]) -> pd.DataFrame:
    return times.assign(raw=pd.Series([row.get("raw", row["median"]) for row in rows], dtype="float64"))


def _with_subject(frame: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """Join the device's subject and digest; a device without a row of its own stands for itself."""
    columns = zip(known["run"], known["device"], known["subject"], known["digest"], strict=True)
    table = {(run, device): (subject, digest) for run, device, subject, digest in columns}
    places = zip(frame["run"], frame["device"], strict=True)
    found = [table.get((run, device), (device, "")) for run, device in places]
    return frame.assign(
        subject=pd.Series([subject for subject, _ in found], index=frame.index, dtype="str"),
        digest=pd.Series([digest for _, digest in found], index=frame.index, dtype="str"),
    )


def _pairs(devices: pd.DataFrame) -> Iterable[tuple[str, Mapping[str, object]]]:
    facts = (value if isinstance(value, Mapping) else {} for value in devices["fingerprint"])
    return zip(devices["device"], facts, strict=True)


def _subject(device: str, fingerprint: Mapping[str, object]) -> str:
    """Tell a device from others of its name, without what may change between two runs of it.

    The specimen is left out on purpose: a pool lends another one each time, and the page shows
    the newest state of the model. Comparing is stricter: it asks for equal digests.
    """
    names = [device, fingerprint.get("name") or fingerprint.get("cpu")]
    if not fingerprint.get("driver") and fingerprint.get("name") != fingerprint.get("cpu"):
        names.append(fingerprint.get("cpu"))  # it lives on the host, so the host is part of what it is
    return " · ".join(dict.fromkeys(str(name) for name in names if name))


def _newest_runs(*frames: pd.DataFrame) -> pd.DataFrame:
    seen = pd.concat([frame[["subject", "run", "order"]] for frame in frames])
    newest = seen.sort_values("order", kind="stable").drop_duplicates("subject", keep="last")
    return newest[["subject", "run"]]


def _of_runs(frame: pd.DataFrame, newest: pd.DataFrame) -> pd.DataFrame:
    return frame.merge(newest, on=["subject", "run"]).sort_values("order", kind="stable", ignore_index=True)
