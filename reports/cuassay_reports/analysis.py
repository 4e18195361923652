"""The public functions over frames in one place, for a notebook.

`load` reads files. `series` returns the points of every benchmark; `change_points`, `slower_since`, `suspects` and
`roster` return what changed over the runs. `compare` compares two runs, and `export` writes files for other tools. Each
function documents the columns of its frame.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cuassay_reports.compare import SERIES, changes
from cuassay_reports.frames import pd
from cuassay_reports.history import change_points, roster, series, slower_since, suspects
from cuassay_reports.load import FRAMES, Results, Row, load, records

__all__ = [
    "FORMATS", "against", "change_points", "compare", "export", "load", "roster", "series", "slower_since", "suspects",
]  # fmt: skip


def compare(results: Results, a: str, b: str) -> pd.DataFrame:
    """Compare the timings of two commits or runs.

    Parameters
    ----------
    results : Results
        The results that `load` returned; both runs must be in them.
    a, b : str
        The old and the new one: the id of a run, or the first digits of a commit.

    Returns
    -------
    pandas.DataFrame
        The rows of `b` in the form of `compare.changes`, compared with those of `a`.

    Raises
    ------
    LookupError
        If no run has that id or commit, or one run is on both sides.
    """
    old, new = _runs(results, a), _runs(results, b)
    if set(old) & set(new):
        raise LookupError(f"{a!r} and {b!r} name the same run, {min(set(old) & set(new))}; name two")
    places = {run: place for place, run in enumerate([*old, *new])}
    found = changes(_only(results, places))
    return found[found["run"].isin(new)].reset_index(drop=True)


def against(results: Results, baseline: str) -> Results:
    """Return the newest runs of every subject, preceded by those of `baseline`, for `changes` to compare.

    Raises
    ------
    LookupError
        If no run has that id or commit.
    """
    old = _runs(results, baseline)
    newest = [run for run in results.latest().times["run"].unique() if run not in old]
    return _only(results, {run: place for place, run in enumerate([*old, *newest])})


def _runs(results: Results, name: str) -> list[str]:
    runs = results.runs
    found = runs.loc[(runs["run"] == name) | (runs["commit"].str.startswith(name) if name else False), "run"]
    if found.empty:
        known = ", ".join(_named(row) for row in records(runs.tail(5)))
        raise LookupError(f"no run or commit begins with {name!r}; the newest here are: {known}")
    return list(found)


def _named(run: Row) -> str:
    return f"{run['run']} ({run['commit'][:10]})" if run["commit"] else str(run["run"])


def _only(results: Results, places: dict[str, int]) -> Results:
    """Return the results of these runs, in this order."""
    frames = {}
    for name in FRAMES:
        frame = getattr(results, name)
        kept = frame[frame["run"].isin(list(places))]
        order = kept["run"].map(places)
        moved = kept.assign(order=order) if "order" in kept else kept
        frames[name] = moved.iloc[order.argsort(kind="stable")].reset_index(drop=True)
    return replace(results, **frames)


def export(results: Results, path: str | Path, form: str) -> Path:
    """Write timings for another tool, and return the path.

    Parameters
    ----------
    results : Results
        The results that `load` returned.
    path : path
        The file to write; its folder is created.
    form : str
        ``csv`` or ``parquet``: every timing, with commit and start of its run (Parquet needs pyarrow).
        ``bencher``: the newest timings as Bencher Metric Format. ``github``: the newest timings as
        github-action-benchmark's ``customSmallerIsBetter``, without those for which more is better.

    Raises
    ------
    ValueError
        If the form is not one of ``FORMATS``.
    ImportError
        If the form is ``parquet`` and pyarrow is not installed.
    """
    if form not in FORMATS:
        raise ValueError(f"form {form!r} is not known; use one of: {', '.join(FORMATS)}")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    FORMATS[form](results, target)
    return target


def _table(results: Results) -> pd.DataFrame:
    revisions = results.runs[["run", "commit"]]
    plain = results.times.drop(columns=["samples", "extra", "schema"])
    return plain.merge(revisions, on="run", how="left")


def _parquet(results: Results, path: Path) -> None:
    try:
        _table(results).to_parquet(path, index=False)
    except ImportError as error:
        raise ImportError(
            "Parquet needs pyarrow, which is not installed; install it with: pip install pyarrow"
        ) from error


def _csv(results: Results, path: Path) -> None:
    _table(results).to_csv(path, index=False)


def _newest(results: Results) -> list[tuple[str, dict[str, Any]]]:
    rows = results.latest().times.drop_duplicates(["subject", *SERIES], keep="last")
    return [(" ".join(str(row[name]) for name in ["subject", *SERIES] if row[name]), row) for row in records(rows)]


def _bencher(results: Results, path: Path) -> None:
    """Write Bencher Metric Format: a time is a `latency` in nanoseconds, and other quantities have their unit."""
    found = {}
    for name, row in _newest(results):
        scale, measure = (1e9, "latency") if row["unit"] == "s" else (1.0, row["unit"])
        figures = {"value": row["median"], "lower_value": row["q25"], "upper_value": row["q75"]}
        found[name] = {measure: {key: value * scale for key, value in figures.items() if value == value}}  # noqa: PLR0124
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def _github(results: Results, path: Path) -> None:
    rows = [(name, row) for name, row in _newest(results) if row["better"] == "less"]
    found = [{"name": name, "unit": row["unit"], "value": row["median"], **_range(row)} for name, row in rows]
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def _range(row: dict[str, Any]) -> dict[str, str]:
    half = (row["q75"] - row["q25"]) / 2
    return {"range": f"{half:g}"} if half == half else {}  # noqa: PLR0124


FORMATS: dict[str, Callable[[Results, Path], None]] = {
    "bencher": _bencher,
    "csv": _csv,
    "github": _github,
    "parquet": _parquet,
}
"""The function that writes each form of `export`."""
