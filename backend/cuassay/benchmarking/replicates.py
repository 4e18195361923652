"""Replicates over fresh processes: one row for each series, whose samples are the medians of the processes.

Samples of one process vary less than those of different processes, which have other addresses, clocks and orders of
allocations. The quartiles of process medians therefore show how much a repetition would vary.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cuassay.benchmarking.ledger import read
from cuassay.errors import MeasurementError
from cuassay.results.lifeline import Lifeline
from cuassay_reports.columns import SERIES

__all__ = ["merged", "replicated"]

Row = Mapping[str, Any]

#: The tables of a process whose rows are kept unchanged. Its plan and end rows are not kept.
_KEPT = ("limit", "condition")

_HEAD = ("record", "schema", "run")


def replicated(module: Sequence[str], processes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run `module` in fresh processes, one after the other, and yield the table and the columns of each row.

    Parameters
    ----------
    module : sequence of str
        The name of a module and its arguments. ``--record FILE`` is appended.
    processes : int
        The number of processes.

    Raises
    ------
    MeasurementError
        If a process fails.
    """
    with tempfile.TemporaryDirectory(prefix="cuassay-") as folder, Lifeline() as lifeline:
        files = [Path(folder) / f"{number}.jsonl" for number in range(processes)]
        for number, file in enumerate(files, 1):
            command = lifeline.command([*module, "--record", str(file)])
            sys.stdout.write(f"process {number} of {processes}\n")
            sys.stdout.flush()
            done = subprocess.run(command, check=False, pass_fds=lifeline.inherited)
            if done.returncode:
                raise MeasurementError(
                    f"process {number} of {processes} ended with status {done.returncode}; its output is above"
                )
        rows = [row for file in files for row in read([file])]
    yield from ((row["record"], _columns(row)) for row in rows if row["record"] in _KEPT)
    yield from (("time", one) for one in merged(row for row in rows if row["record"] == "time"))


def merged(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield one row for each series. Its samples are the medians of its `rows`, the ``time`` rows of all processes."""
    series: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        series.setdefault(tuple(row.get(name) for name in SERIES), []).append(row)
    yield from map(_merged, series.values())


def _merged(rows: Sequence[Row]) -> dict[str, Any]:
    medians = [row["median"] for row in rows]
    low, _, high = statistics.quantiles(medians, n=4, method="inclusive") if len(medians) > 1 else medians * 3
    throttled = [row["throttled"] for row in rows if "throttled" in row]
    return {
        **_columns(rows[0]),
        "median": statistics.median(medians),
        "q25": low,
        "q75": high,
        "minimum": min(row.get("minimum", row["median"]) for row in rows),
        "n": len(medians),
        "samples": medians,
        "processes": len(medians),
        "empty": statistics.median(row.get("empty", 0.0) for row in rows) or None,
        "settled": all(row.get("settled", True) for row in rows),
        "throttled": sum(throttled) if throttled else None,
        "modes": None,
    }


def _columns(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _HEAD}
