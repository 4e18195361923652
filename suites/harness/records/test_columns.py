"""The schema of results: what a row may say, and what makes two fingerprints different."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cuassay_reports.columns import (
    SCHEMA,
    TABLES,
    ResultFormatError,
    columns_of,
    validate,
)

ROW = {"record": "test", "schema": SCHEMA, "run": "r", "nodeid": "t", "outcome": "passed"}


def test_the_schema_needs_only_the_standard_library() -> None:
    code = "import sys, cuassay_reports.columns, cuassay_reports.facts, cuassay_reports.intervals\n"
    code += "print([m for m in ('pandas', 'jinja2', 'numpy') if m in sys.modules])"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"


@pytest.mark.parametrize("record", TABLES)
def test_every_table_explains_its_columns_and_names_them_once(record: str) -> None:
    columns = columns_of(record)

    assert len({column.name for column in columns}) == len(columns)
    assert all(column.meaning for column in columns)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"schema": SCHEMA + 1}, "upgrade cuassay", id="newer-schema"),
        pytest.param({"schema": "1"}, "positive whole number", id="schema-is-text"),
        pytest.param({"record": "tset"}, "use one of: run, device, test, time, limit", id="table"),
        pytest.param({"record": 3}, "not a table of results", id="table-is-number"),
        pytest.param({"outcome": "ok"}, "use one of: passed, failed", id="choice"),
        pytest.param({"device": None}, "'device' must be a text, got None", id="null"),
        pytest.param({"headroom": float("inf")}, "must be a finite number", id="infinite"),
        pytest.param({"colour": "red"}, "unknown column 'colour'", id="unknown"),
    ],
)
def test_a_row_that_breaks_the_schema_is_named_by_column(change: dict[str, object], said: str) -> None:
    with pytest.raises(ResultFormatError, match=said):
        validate({**ROW, **change})


def test_a_row_without_a_required_column_says_what_it_means() -> None:
    row = {name: value for name, value in ROW.items() if name != "nodeid"}

    with pytest.raises(ResultFormatError, match=r"lacks 'nodeid' \(pytest's id of the test\)"):
        validate(row)
