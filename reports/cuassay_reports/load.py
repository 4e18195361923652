"""Result files as pandas frames: read, check, fill in, and find the newest rows.

`load` is public, for use in notebooks. Every frame has all columns of its table in `columns`, whichever schema a row
was written by, and a few joined columns, so that no merge is needed. Other modules decide what the numbers mean.
"""

from __future__ import annotations

import os
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cuassay_reports.cache import Cache
from cuassay_reports.columns import SERIES, TABLES
from cuassay_reports.endings import Ending, endings
from cuassay_reports.facts import digest
from cuassay_reports.files import COMPRESSED, result_files
from cuassay_reports.frames import pd
from cuassay_reports.gather import Table, gather
from cuassay_reports.intervals import FIGURES
from cuassay_reports.lines import Row
from cuassay_reports.rows import Rejected
from cuassay_reports.tables import Codes, codes, distinct, frame, numbered, order, texts

__all__ = ["FRAMES", "OURS", "Results", "Row", "grouped_by", "load", "records"]


@dataclass(frozen=True)
class Results:
    """The rows of all files, in one frame per table.

    Unknown text is ``""``; unknown numbers are NA or NaN. Every frame has `started` (UTC) of its run, and `subject`: a
    description of the device that distinguishes it across runs.

    Attributes
    ----------
    runs, devices, tests, times, limits, mutations, shards, verdicts : pandas.DataFrame
        Sorted by the start of the run; the columns are those of the table in ``columns.TABLES``. `devices` has one row
        for each device of a run, and of each worker of a fleet. `times` and `tests` also have the `digest` of their
        device's fingerprint. `runs` have `ended_early`: why the run is incomplete, or ``""``. The figures of `times` do
        not contain the empty interval if their run measured it; `raw` is the median as measured, and `series` is a
        number that identifies a series: the subject, its digest, and the columns of ``columns.SERIES``.
    files : tuple of path
        The files that were read.
    torn : int
        The number of unfinished last lines of killed writers, which are ignored.
    rejected : tuple of Rejected
        Lines and files without a result, which were omitted.
    begun : mapping
        For each incomplete run, the last (part, test) that its processes began.
    """

    runs: pd.DataFrame
    devices: pd.DataFrame
    tests: pd.DataFrame
    times: pd.DataFrame
    limits: pd.DataFrame
    mutations: pd.DataFrame = field(default_factory=pd.DataFrame)
    shards: pd.DataFrame = field(default_factory=pd.DataFrame)
    verdicts: pd.DataFrame = field(default_factory=pd.DataFrame)
    files: tuple[Path, ...] = ()
    torn: int = 0
    rejected: tuple[Rejected, ...] = ()
    begun: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, name))} {name}" for name in FRAMES[:5])
        return f"Results({counts} of {len(self.files)} files)"

    def latest(self) -> Results:
        """Return the results with only the newest run of each subject that has tests, and the newest that has times.

        A run with only tests therefore does not hide earlier timings, and a run with only grouped timings does not hide
        others.
        """
        return self._latest

    @cached_property
    def _latest(self) -> Results:
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
"""The implementation that peers are compared with, unless a row names another."""


def load(*paths: str | os.PathLike[str], strict: bool = False, cached: bool = True) -> Results:
    """Read result files; a folder means every ``*.jsonl`` and ``*.jsonl.gz`` in it and below.

    A line that is not a row of the schema, and a file that cannot be read, are omitted and named in `rejected`. The
    last line of a file may be unfinished.

    Parameters
    ----------
    strict : bool
        Whether to raise at the first line or file that would be omitted.
    cached : bool
        Whether to use and keep a copy of a large folder; see `cuassay_reports.cache`. It needs pyarrow.

    Raises
    ------
    FileNotFoundError
        If a path does not exist, or holds no result file.
    ResultFormatError
        With `strict`, if a line is not a row of the schema; the message names file and line.
    OSError
        With `strict`, if a file cannot be read.
    """
    files = tuple(dict.fromkeys(file for path in paths for file in _files(Path(path))))
    is_folder = len(paths) == 1 and Path(paths[0]).is_dir()
    copy = Cache(Path(paths[0]), files) if is_folder and cached and not strict else None
    known = None if copy is None else copy.read()
    if known is not None:
        return _restored(*known, files)
    before = {} if copy is None else copy.state()
    found = gather(files, strict=strict)
    results = replace(_results(found.tables), files=files, torn=found.torn, rejected=tuple(found.rejected))
    del found  # the copy needs its memory
    if copy is not None:
        copy.write({name: getattr(results, name) for name in FRAMES}, _facts(results), before)
    return results


FRAMES = ("runs", "devices", "tests", "times", "limits", "mutations", "shards", "verdicts")
"""The names of the frames of `Results`."""


def _facts(results: Results) -> dict[str, Any]:
    rejected = [(one.place, one.reason) for one in results.rejected]
    return {"torn": results.torn, "rejected": rejected, "begun": dict(results.begun)}


def _restored(frames: Mapping[str, pd.DataFrame], facts: Mapping[str, Any], files: tuple[Path, ...]) -> Results:
    rejected = tuple(Rejected(place, reason) for place, reason in facts["rejected"])
    begun = {run: tuple((part, test) for part, test in tests) for run, tests in facts["begun"].items()}
    return Results(**frames, files=files, torn=facts["torn"], rejected=rejected, begun=begun)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of `frame` in order, as mappings from column names to Python values; None for `pandas.NA`.

    ``DataFrame.to_dict`` takes two to four times as long, because it looks up each column again.
    """
    names = list(map(str, frame.columns))
    columns = [map(_own, column.tolist()) for _, column in frame.items()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _own(value: Any) -> Any:
    if value is pd.NA:
        return None
    return value.item() if isinstance(value, np.generic) else value


def grouped_by(rows: Iterable[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows by their values of `names`, both in the given order.

    There may be thousands of groups with few rows, and a frame for each would take milliseconds.
    """
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def _files(path: Path) -> Iterable[Path]:
    if path.exists() and not path.is_dir():
        return [path]
    found = result_files(path)
    if not found:
        what = f"holds no *.jsonl or *{COMPRESSED} file" if path.is_dir() else "does not exist"
        if str(path) == "-":
            raise FileNotFoundError("- does not stand for standard input here; name /dev/stdin to read results from it")
        raise FileNotFoundError(
            f"{path} {what}; name result files, or a folder with some: `pytest --cuassay-record FILE` writes them"
        )
    return found


def _results(tables: Mapping[str, Table]) -> Results:
    raw = _take_off_empty_intervals(tables["time"])
    ended = endings(_rows_that_end(tables))
    frames = {record: frame(tables[record]) for record in TABLES if record not in _ABOUT_RUNS}
    runs = _runs(frames, ended)
    devices = _devices(frames["device"], runs)
    known: dict[tuple[str, ...], tuple[str, str]] = {
        (row["run"], row["device"], row["worker"]): (row["subject"], row["digest"])
        for row in records(devices[[*_PLACE, "subject", "digest"]])
    }
    times = _with_subject(_with_ours(frames["time"]).assign(raw=raw), tables["time"], known)
    return Results(
        runs=runs,
        devices=devices,
        tests=_dated(_with_subject(frames["test"], tables["test"], known), runs).drop_duplicates(
            ["run", "nodeid"], keep="last"
        ),
        times=_dated(times.assign(series=_series(times, tables["time"])), runs),
        limits=_dated(_with_subject(frames["limit"], tables["limit"], known), runs),
        mutations=_dated(frames["mutation"], runs),
        shards=_dated(frames["shard"], runs),
        verdicts=_dated(frames["verdict"], runs),
        begun={run: ending.begun for run, ending in ended.items() if ending.begun},
    )


def _take_off_empty_intervals(times: Table) -> npt.NDArray[np.float64]:
    """Apply `intervals.net` to all rows in place; return the medians as measured."""
    columns: Any = times.columns
    empty, median = np.array(columns["empty"].values), np.array(columns["median"].values)
    seconds = np.where((empty > 0) & (empty < median), empty, 0.0)
    for name in FIGURES:
        columns[name].values = array("d", (np.array(columns[name].values) - seconds).tobytes())
    samples = columns["samples"]
    of_samples = np.repeat(seconds, np.maximum(np.array(samples.lengths, dtype=np.int64), 0))
    samples.flat = array("d", (np.array(samples.flat) - of_samples).tobytes())
    return median[order(times)]


def _rows_that_end(tables: Mapping[str, Table]) -> Iterator[Row]:
    """Yield what `endings` needs of each row, for the runs that planned or ended anything."""
    planned = {run for record in ("plan", "end") for run in distinct(tables[record], "run")}
    for record in _ABOUT_RUNS:
        for row in records(frame(tables[record])):
            yield {name: value for name, value in row.items() if not _is_unknown(value)} | {"record": record}
    tests = records(frame(tables["test"])[["run", "nodeid"]]) if planned else []
    yield from ({"record": "test", **row} for row in tests if row["run"] in planned)
    rows = {run: {"record": "time", "run": run} for run in planned}
    runs = distinct(tables["time"], "run")
    for number, count in enumerate(np.bincount(codes(tables["time"], "run"), minlength=len(runs))):
        yield from [rows[runs[number]]] * int(count) if runs[number] in rows else ()


def _is_unknown(value: object) -> bool:
    return value is None or value is pd.NA


def _devices(found: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    devices = found.drop_duplicates(_PLACE, keep="last")
    subjects = pd.Series([_subject(d, f) for d, f in _pairs(devices)], index=devices.index, dtype="str")
    digests = [
        digest(facts) if facts else old for (_, facts), old in zip(_pairs(devices), devices["digest"], strict=True)
    ]
    current = pd.Series(digests, index=devices.index, dtype="str")  # an older writer included other facts
    return _dated(devices.assign(subject=subjects, digest=current), runs)


#: The columns that identify a device in all runs: workers of a fleet may have devices of the same name.
_PLACE = ["run", "device", "worker"]

#: Tables whose rows only `endings` reads.
_ABOUT_RUNS = ("plan", "begin", "end")


def _runs(frames: Mapping[str, pd.DataFrame], ended: Mapping[str, Ending]) -> pd.DataFrame:
    """Return one row per run, oldest first; runs whose own row was never written come first."""
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


def _dated(found: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add the run's start and its place in time, and sort the rows by it."""
    place = pd.Index(runs["run"]).get_indexer(found["run"])
    dated = found.assign(started=runs["started"].array.take(place), order=place)
    if np.all(np.diff(place) >= 0):
        return dated.reset_index(drop=True)
    return dated.iloc[np.argsort(place, kind="stable")].reset_index(drop=True)


def _with_ours(times: pd.DataFrame) -> pd.DataFrame:
    """Set for every row whether it is the implementation that peers are compared with."""
    return times.assign(ours=times["ours"].fillna(times["implementation"] == OURS).astype(bool))


def _with_subject(found: pd.DataFrame, table: Table, known: Mapping[tuple[str, ...], tuple[str, str]]) -> pd.DataFrame:
    """Join the device's subject and digest; a device without its own row is its own subject."""
    places = numbered([codes(table, name) for name in _PLACE])
    _, firsts = np.unique(places, return_index=True)
    names = [tuple(row[name] for name in _PLACE) for row in records(found[_PLACE].iloc[firsts])]
    devices = [known.get(name, (name[1], "")) for name in names]
    return found.assign(
        subject=texts([subject for subject, _ in devices], places),
        digest=texts([digest for _, digest in devices], places),
    )


def _series(times: pd.DataFrame, table: Table) -> Codes:
    """Return a number for each timing, the same for all points of a series."""
    machine = numbered([pd.factorize(times[name])[0] for name in ("subject", "digest")])
    return numbered([machine, *(codes(table, name) for name in SERIES)])


def _pairs(devices: pd.DataFrame) -> Iterable[tuple[str, Mapping[str, object]]]:
    facts = (value if isinstance(value, Mapping) else {} for value in devices["fingerprint"])
    return zip(devices["device"], facts, strict=True)


def _subject(device: str, fingerprint: Mapping[str, object]) -> str:
    """Identify a device by its name and properties that do not change between two of its runs.

    The individual device is omitted on purpose: a pool provides another one each time, and the page shows the newest
    state of the model. Comparisons are stricter and require equal digests.
    """
    names = [device, fingerprint.get("name") or fingerprint.get("cpu")]
    if not fingerprint.get("driver") and fingerprint.get("name") != fingerprint.get("cpu"):
        names.append(fingerprint.get("cpu"))  # the device is simulated by the host, so the host identifies it too
    return " · ".join(dict.fromkeys(str(name) for name in names if name))


def _newest_runs(*frames: pd.DataFrame) -> pd.DataFrame:
    seen = pd.concat([frame[["subject", "run", "order"]] for frame in frames])
    newest = seen.sort_values("order", kind="stable").drop_duplicates("subject", keep="last")
    return newest[["subject", "run"]]


def _of_runs(frame: pd.DataFrame, newest: pd.DataFrame) -> pd.DataFrame:
    return frame.merge(newest, on=["subject", "run"]).sort_values("order", kind="stable", ignore_index=True)
