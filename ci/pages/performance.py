"""The tables of the performance page, from the newest records in the ledger."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cuassay_reports import units
from cuassay_reports.compare import peers
from cuassay_reports.load import Results, load, records
from cuassay_reports.peer_summary import peer_summaries
from pages.tables import table

__all__ = ["fill"]

LEDGER = Path(__file__).parents[2] / "reports" / "ledger"

#: Implementations that show a limit of the machine or another variant of ours; users could not use them instead.
_LIMITS = ("copy", "ceiling")
_OURS = "cuassay"

_CASE = ["benchmark", "case", "dtype", "clock", "cache", "mode"]


def fill(text: str) -> str:
    """Return the page with each comment ``<!-- table: NAME -->`` replaced by that table."""
    suites = load(_newest("ci/run gpu"))
    products = load(_newest("python -m cuassay.benchmarking.products"))
    for name, found in (
        ("suites", _head(suites) + _benchmarks(suites)),
        ("slower", _slower(suites)),
        ("products", _head(products) + _products(products)),
    ):
        text = text.replace(f"<!-- table: {name} -->", found)
    return text


def _newest(command: str) -> Path:
    """Return the ledger file with the newest run of this command, among runs with every library present."""
    runs = [
        (row["started"], file) for file in LEDGER.glob("*.jsonl.gz") if (row := _run_of(file)) and _is(row, command)
    ]
    return max(runs)[1]


def _is(row: dict[str, Any], command: str) -> bool:
    return str(row.get("command", "")).startswith(command) and "without" not in row.get("machine", {})


def _run_of(file: Path) -> dict[str, Any]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = (json.loads(line) for line in lines)
        return next((row for row in rows if row["record"] == "run"), {})


def _head(results: Results) -> str:
    run = records(results.runs)[0]
    device = next(row for row in records(results.devices) if row["device"].startswith("cuda"))
    facts = device["fingerprint"]
    versions = facts.get("versions", {})
    named = ", ".join(
        f"{name} {versions[name]}" for name in ("torch", "cupy", "cublas", "cublaslt") if name in versions
    )
    return (
        f"{facts.get('name')}, driver {facts.get('driver')}, {named}. Commit `{run['commit'][:10]}`, "
        f"{run['started']:%Y-%m-%d}. Command:\n\n```sh\n{run['command']}\n```\n\n"
    )


def _benchmarks(results: Results) -> str:
    times = results.times[results.times["device"].str.startswith("cuda")]
    text = ""
    for benchmark, rows in times.groupby("benchmark", sort=True):
        head = ("case", "dtype", "clock", "cache", "ours", "peers: time, and theirs over ours")
        text += f"### {benchmark}\n\n" + table(head, _cases(records(rows))) + "\n"
    return text


def _cases(rows: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    cases: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        cases.setdefault(tuple(str(row[name]) for name in _CASE), []).append(row)
    for (_, case, dtype, clock, cache, mode), found in cases.items():
        ours = next((row for row in found if row["ours"]), found[0])
        others = "; ".join(_compared(row, ours) for row in found if row is not ours)
        tags = cache if mode == "stream" else f"{cache}, {mode}"
        yield case, dtype, clock, tags, _time(ours), others


def _compared(row: dict[str, Any], ours: dict[str, Any]) -> str:
    return f"{row['implementation']} {_time(row)} ({row['median'] / ours['median']:.2f})"


def _time(row: dict[str, Any]) -> str:
    return units.quantity(row["median"], row["unit"])


def _slower(results: Results) -> str:
    found = peers(results.times)
    behind = found[(found["verdict"] == "slower") & ~found["peer"].isin(_LIMITS)].sort_values("ratio")
    rows = (
        (row["benchmark"], row["case"], row["dtype"], row["peer"], f"{row['ratio']:.2f}")
        for row in records(behind)
        if not row["peer"].startswith(_OURS)
    )
    return table(("benchmark", "case", "dtype", "faster peer", "its time over ours"), rows)


def _products(results: Results) -> str:
    text = ""
    for summary in peer_summaries(results):
        rows = ((group.name, group.count, group.mean, group.least, group.behind) for group in summary.groups)
        text += f"Peers: {', '.join(summary.peers)}.\n\n"
        text += table(("shapes", "count", "geometric mean", "least", "below 0.99"), rows) + "\n"
    return text
