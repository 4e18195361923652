"""One benchmark over many runs: the points that may stand on one line.

Only points of one fingerprint are joined; a change of driver starts a new line.
"""

from __future__ import annotations

from typing import Any

from cuassay_reports.compare import SERIES
from cuassay_reports.frames import pd
from cuassay_reports.load import Results

__all__ = ["history", "lines"]


def history(results: Results) -> pd.DataFrame:
    """Return every timing in order, with what a plot over commits needs.

    Returns
    -------
    pandas.DataFrame
        ``results.times`` with `commit` and `dirty` of the run, and `step`: the median over the one
        before it in the same series on the same fingerprint, less 1 (NaN for a first point).
    """
    revisions = results.runs[["run", "commit", "dirty"]]
    points = results.times.merge(revisions, on="run", how="left").sort_values("order", kind="stable", ignore_index=True)
    step = points.groupby(["subject", "digest", *SERIES], sort=False)["median"].pct_change()
    return points.assign(step=step)


def lines(results: Results) -> dict[tuple[Any, ...], list[float]]:
    """Return (digest, series...) to its medians, oldest first, of the series with a known fingerprint."""
    known = results.times[results.times["digest"] != ""]
    points = known.drop_duplicates(["run", "digest", *SERIES], keep="last")
    grouped = points.groupby(["digest", *SERIES], sort=False)["median"]
    return {tuple(key): [float(value) for value in medians] for key, medians in grouped}
