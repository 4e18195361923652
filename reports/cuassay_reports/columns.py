"""The only schema of results: the rows that a result file may hold, and the meaning of each column.

A result file is JSON lines: every line is one JSON object, written by a single ``os.write``. The field ``record`` names
the row's table. This module defines names, types, units and required columns. It needs only the standard library, so
that the writer (``cuassay.results.record``) and the readers (the rest of this package) share it, and it accesses no
file.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cuassay_reports.facts import FINGERPRINT, Kind
from cuassay_reports.values import expected, is_of

__all__ = [
    "CASE",
    "SCHEMA",
    "SERIES",
    "TABLES",
    "Column",
    "ResultFormatError",
    "check",
    "columns_of",
    "validate",
]

SCHEMA = 1
"""The version of this schema. It increases if a column changes its meaning, and not if one is added."""


class ResultFormatError(ValueError):
    """A row does not follow the schema of results."""


@dataclass(frozen=True)
class Column:
    """One column: its name, the JSON type of its values, their unit and meaning.

    A column that is not ``required`` is omitted if nothing is known; it is never null. Readers then fill in `default`;
    None means unknown.
    """

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()
    default: str | None = None


_COMMON = (
    Column("record", "str", "the table of this row", required=True),
    Column("schema", "int", "version of the schema the row was written by", required=True),
    Column("run", "str", "id of the run; rows of several files may share one", required=True),
)

_WORKER = Column("worker", "str", "name of the worker of a fleet that ran it; left out where one session ran all")

_DEVICE = Column("device", "str", "name of the device, such as cuda:0", required=True)

_RUN = (
    Column("started", "time", "when the run began: UTC, ISO 8601 with seconds", required=True),
    Column("command", "str", "the command line, without machine paths"),
    Column("commit", "str", "full hash of the measured commit"),
    Column("dirty", "bool", "the working tree differed from that commit"),
    Column("committed", "time", "when the commit was made: UTC, ISO 8601 with seconds"),
    Column("revision_source", "str", "who named the commit", choices=("environment", "file", "git")),
    Column("machine", "object", "fingerprint of the host alone"),
    Column("digest", "str", "digest of that fingerprint"),
    Column("seed", "int", "base seed of every random input"),
    Column("extra", "object", "anything else worth keeping; readers ignore it"),
)

_DEVICE_ROW = (
    _DEVICE,
    Column("present", "bool", "the device was there", required=True),
    Column("reason", "str", "why an absent device is absent"),
    Column("fingerprint", "object", "facts by the names in facts.FINGERPRINT; there may be more"),
    Column("digest", "str", "digest of the hard facts; readers ask the fingerprint where there is one"),
    Column("memory", "int", "size of the device's memory", unit="B"),
    Column("capabilities", "object", "capability name to its value: true, a number, a text"),
    Column("missing", "object", "capability name to the reason why the device lacks it"),
    _WORKER,
    Column("extra", "object", "anything else worth keeping; readers ignore it"),
)

_TEST = (
    Column("nodeid", "str", "pytest's id of the test", required=True),
    Column("outcome", "str", "how it ended", required=True,
           choices=("passed", "failed", "skipped", "xfailed", "error")),
    Column("device", "str", "name of the device; left out where a test needs none"),
    Column("op", "str", "name of the op under test"),
    Column("dtype", "str", "dtype under test"),
    Column("check", "str", "which property was tested, such as values, out, zero_size"),
    Column("template", "str", "the class and test it was made of, where a class is instantiated for each device kind"),
    Column("checks", "str", "the checks a folded row represents, by spaces; each takes the place of * in nodeid"),
    Column("reason", "str", "why it was skipped or is expected to fail; a failure's first line"),
    Column("message", "str", "the failure's whole text"),
    Column("reproduce", "str", "one shell line that runs this failure again"),
    Column("timeline", "str", "the page of its timeline, as seen from the folder of the result file"),
    Column("duration", "float", "wall time of set-up, call and tear-down", unit="s"),
    Column("headroom", "float", "worst observed error over its tolerance: 1 is the limit"),
    Column("error_map", "object", "where a failure's wrong elements are: rows and columns of the result, and the "
           "percentage of each cell of a coarse grid over them"),
    Column("seed", "int", "seed of this test's inputs"),
    _WORKER,
)  # fmt: skip

_TIME = (
    Column("benchmark", "str", "what was measured; an op's name for the ops' benchmarks", required=True),
    _DEVICE,
    Column("case", "str", "the problem, such as 8192x768", required=True),
    Column("implementation", "str", "whose code ran: cuassay, or a peer such as cupy", required=True),
    Column("ours", "bool", "its case's other implementations are peers of it; left out: whether it is cuassay"),
    Column("clock", "str", "whose clock: the device's or the host's", required=True,
           choices=("device", "host")),
    Column("median", "float", "median of the samples", unit="unit", required=True),
    Column("n", "int", "number of samples", required=True),
    Column("groups", "str", "names of the groups of cases that it is summed up with, by spaces"),
    Column("choice", "str", "which of several kernels or algorithms ran"),
    Column("dtype", "str", "dtype of the inputs"),
    Column("cache", "str", "state of the last-level cache before each sample", choices=("cold", "warm")),
    Column("mode", "str", "one launch a call, or the replay of a graph", choices=("stream", "graph")),
    Column("launches", "str", "queued: all of a sample were in the stream before the first ran, so that no gap of the "
           "host is in it; live: they ran as they came", choices=("queued", "live")),
    Column("unit", "str", "unit of the samples: s, virtual s where a simulated device's model gives them, or another",
           default="s"),
    Column("better", "str", "which direction is better", choices=("less", "more"), default="less"),
    Column("minimum", "float", "least sample", unit="unit"),
    Column("q25", "float", "first quartile", unit="unit"),
    Column("q75", "float", "third quartile", unit="unit"),
    Column("samples", "list", "every sample in order", unit="unit"),
    Column("empty", "float", "what of each figure is the empty interval: two events with nothing between them, shared "
           "by the calls of a sample; readers take it off", unit="s"),
    Column("settled", "bool", "the standard error of the median was as small as asked for when sampling ended"),
    Column("throttled", "int", "samples that were taken while the device held its clocks down"),
    Column("processes", "int", "fresh processes that measured it; the samples are then their medians"),
    Column("modes", "str", "how far apart two groups of samples are, if there are two"),
    Column("bytes", "int", "bytes that must be read and written once", unit="B"),
    Column("flops", "int", "floating-point operations of the definition", unit="FLOP"),
    Column("memory", "int", "peak device memory beyond the inputs", unit="B"),
    _WORKER,
    Column("extra", "object", "anything else worth keeping; readers ignore it"),
)  # fmt: skip

_LIMIT = (
    _DEVICE,
    Column("limit", "str", "which ceiling", required=True, choices=("bandwidth", "compute", "launch", "empty")),
    Column("value", "float", "the ceiling as measured in this run", unit="unit", required=True),
    Column("unit", "str", "unit of the value", required=True, choices=("B/s", "FLOP/s", "s")),
    Column("dtype", "str", "dtype it holds for; left out, all"),
    Column("how", "str", "how it was measured, such as: copy of 1 GiB"),
    _WORKER,
)

_MUTATION = (
    Column("source", "str", "file that was changed, from the project's root", required=True),
    Column("function", "str", "function or kernel that was changed; left out at module level"),
    Column("device", "str", "devices that the tests ran on, by commas; left out: the tests' own"),
    Column("killed", "int", "mutants that a test found", required=True),
    Column("survived", "int", "mutants that all their tests passed", required=True),
    Column("uncovered", "int", "mutants of lines that no test runs", required=True),
    Column("invalid", "int", "mutants that do not compile; they do not count"),
    Column("equivalent", "int", "mutants listed as changing nothing; they do not count"),
    Column("survivors", "str", "the changes that no test found, as diffs"),
)

_VERDICT = (
    Column("declaration", "str", "name of the declaration that the candidate was judged by", required=True),
    Column("candidate", "str", "name of the candidate's file", required=True),
    Column("digest", "str", "first 16 digits of the SHA-256 of that file", required=True),
    _DEVICE,
    Column("tier", "str", "program: Python with a host side; kernel: launched by a trusted runner", required=True,
           choices=("program", "kernel")),
    Column("verdict", "str", "correct: no check failed, no cheat found; wrong; undecided; refused: a proven cheat, "
           "a time that is not possible, or what the policy forbids", required=True,
           choices=("correct", "wrong", "refused", "undecided")),
    Column("reason", "str", "why, in one sentence", required=True),
    Column("check", "str", "the check that failed"),
    Column("sample", "str", "the inputs on which it failed"),
    Column("dtype", "str", "the dtype in which it failed"),
    Column("message", "str", "the failure's whole text"),
    Column("cheats", "str", "what was seen, by number in the catalogue and certainty, by commas"),
    Column("weak", "str", "stock mutants that the declaration lets pass, by commas"),
    Column("probes", "str", "probes that were passed, as name=count by spaces"),
    Column("headroom", "float", "worst observed error over its tolerance: 1 is the limit"),
    Column("looks_like", "str", "the precision that the errors look like; left out where it is the declared one"),
    Column("calls", "int", "calls of the candidate"),
    Column("verified", "int", "timed calls whose outputs were compared"),
    Column("ratio", "float", "how many times as fast as the declared implementation at least: the least of its cases"),
    Column("clock", "str", "whose clock took the time: the host's ranks nobody", choices=("device", "host")),
    Column("cases", "list", "the times of the cases, by the names in the JSON form of a verdict"),
    Column("nonce", "str", "of which inputs, order and number of calls were made", required=True),
    Column("jail", "str", "parts of the jail that were missing, with reasons; left out where none was"),
    Column("reproduce", "str", "one shell line that repeats the verdict"),
    Column("duration", "float", "what the verdict took", unit="s"),
    _WORKER,
    Column("extra", "object", "anything else worth keeping; readers ignore it"),
)  # fmt: skip

_PART = (
    Column("part", "str", "which part of the run this process does, such as tests 2/4"),
    Column("process", "int", "id of that process"),
)

_PLAN = (
    *_PART,
    Column("tests", "int", "outcomes that the part is going to record"),
    Column("times", "int", "timings that the part is going to record"),
    Column("parts", "str", "names of the parts that other processes are going to do, separated by commas"),
)

_BEGIN = (
    Column("nodeid", "str", "pytest's id of a test that begins", required=True),
    *_PART,
)

_SHARD = (
    Column("attempt", "int", "number of the attempt at a shard of a fleet", required=True),
    Column("worker", "str", "name of the worker that had it", required=True),
    Column("kind", "str", "kind of device that it needed", required=True),
    Column("tests", "int", "tests in it", required=True),
    Column("waited", "float", "how long it had been ready before the worker took it", unit="s", required=True),
    Column("duration", "float", "from there to its end", unit="s", required=True),
    Column("how", "str", "ended: its rows count; lost: with its worker; refused: the worker was not fit for it; "
           "stopped: another attempt ended first", required=True, choices=("ended", "lost", "refused", "stopped")),
)  # fmt: skip

_CONDITION = (
    _DEVICE,
    Column("when", "str", "relative to the timings of this run", required=True, choices=("before", "during", "after")),
    Column("sm_clock", "float", "streaming-multiprocessor clock", unit="MHz"),
    Column("memory_clock", "float", "memory clock", unit="MHz"),
    Column("power", "float", "power drawn", unit="W"),
    Column("temperature", "float", "temperature of the device", unit="°C"),
    Column("throttle", "str", "what holds the clocks down: none, power cap, thermal..."),
    Column("ecc", "bool", "error correction is on"),
    Column("processes", "int", "processes that compute on the device, this one with them"),
    Column("reason", "str", "why nothing is known"),
    _WORKER,
)

_END = (
    *_PART,
    Column("reason", "str", "what ended the part before its last test or timing, such as: interrupted; left out where "
           "it came to its end"),
    Column("lost", "int", "rows that could not be recorded"),
)  # fmt: skip

TABLES: Mapping[str, tuple[Column, ...]] = MappingProxyType({
    "run": _COMMON + _RUN,
    "device": _COMMON + _DEVICE_ROW,
    "test": _COMMON + _TEST,
    "time": _COMMON + _TIME,
    "limit": _COMMON + _LIMIT,
    "condition": _COMMON + _CONDITION,
    "mutation": _COMMON + _MUTATION,
    "verdict": _COMMON + _VERDICT,
    "shard": _COMMON + _SHARD,
    "plan": _COMMON + _PLAN,
    "begin": _COMMON + _BEGIN,
    "end": _COMMON + _END,
})  # fmt: skip
"""The columns of each table, in the order in which they are shown."""

CASE = ["benchmark", "device", "dtype", "case", "clock", "cache", "mode", "unit"]
"""The columns that two implementations must share to be compared."""

SERIES = [*CASE, "implementation", "launches"]
"""The columns that two measurements must share to be points of one series."""

_NAMED = {record: {column.name: column for column in columns} for record, columns in TABLES.items()}
_TYPED = {fact.name: fact.kind for fact in FINGERPRINT if fact.kind is not None}
_FINGERPRINTS = ("fingerprint", "machine")


def columns_of(record: str) -> tuple[Column, ...]:
    """Return the columns of one table.

    Raises
    ------
    ResultFormatError
        If no table has that name.
    """
    try:
        return TABLES[record]
    except (KeyError, TypeError):
        known = ", ".join(TABLES)
        raise ResultFormatError(f"record {record!r} is not a table of results; use one of: {known}") from None


def validate(row: Mapping[str, object]) -> None:
    """Check one row against the schema.

    A row of an older schema may have columns that were removed. A row of a newer schema is rejected, because its
    numbers could have another meaning.

    Raises
    ------
    ResultFormatError
        If the table or a column is unknown, a required column is missing, or a value has a wrong type, is not finite or
        is not one of the column's choices. The message names the column.
    """
    schema = _schema_of(row)
    record = row.get("record")
    columns = _NAMED.get(record) if isinstance(record, str) else None
    if columns is None:
        columns_of(record if isinstance(record, str) else repr(record))
        return
    for column in columns.values():
        if column.required and column.name not in row:
            raise ResultFormatError(f"{record} row lacks {column.name!r} ({column.meaning}); it is required")
    for name, value in row.items():
        if name in columns:
            check(str(record), columns[name], value)
        elif schema == SCHEMA:
            known = ", ".join(columns)
            raise ResultFormatError(f"{record} row has an unknown column {name!r}; known are: {known}")


def _schema_of(row: Mapping[str, object]) -> int:
    schema = row.get("schema")
    if not isinstance(schema, int) or not is_of("int", schema) or schema < 1:
        raise ResultFormatError(f"row has schema {reprlib.repr(schema)}; a positive whole number is required")
    if schema > SCHEMA:
        raise ResultFormatError(f"row has schema {schema}, this reader knows up to {SCHEMA}; upgrade cuassay")
    return schema


def check(record: str, column: Column, value: object) -> None:
    """Check one value; raises like `validate`."""
    if not is_of(column.kind, value):
        got = f"{reprlib.repr(value)} ({type(value).__name__})"
        raise ResultFormatError(f"{record} column {column.name!r} must be {expected(column.kind, got)}")
    if column.choices and value not in column.choices:
        allowed = ", ".join(column.choices)
        raise ResultFormatError(f"{record} column {column.name!r} is {reprlib.repr(value)}; use one of: {allowed}")
    if column.name in _FINGERPRINTS and isinstance(value, Mapping):
        _check_facts(record, column.name, value)


def _check_facts(record: str, column: str, facts: Mapping[str, object]) -> None:
    for name, kind in _TYPED.items():
        if facts.get(name) is not None and not is_of(kind, facts[name]):
            got = f"{reprlib.repr(facts[name])} ({type(facts[name]).__name__})"
            raise ResultFormatError(f"{record} column {column!r}: the fact {name!r} must be {expected(kind, got)}")
