"""The schema of results: what a row may say, and what makes two fingerprints different."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay_reports.columns import (
    FINGERPRINT,
    SCHEMA,
    TABLES,
    ResultFormatError,
    columns_of,
    difference,
    digest,
    validate,
)

ROW = {"record": "test", "schema": SCHEMA, "run": "r", "nodeid": "t", "outcome": "passed"}


def test_the_schema_needs_only_the_standard_library() -> None:
    code = "import sys, cuassay_reports.columns; print([m for m in ('pandas', 'jinja2', 'numpy') if m in sys.modules])"

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
        pytest.param({"record": 3}, "no table of results", id="table-is-number"),
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


FACTS = st.dictionaries(
    st.sampled_from([fact.name for fact in FINGERPRINT] + ["uptime", "hz"]),
    st.one_of(st.text(max_size=5), st.integers(), st.none()),
)


@given(FACTS)
def test_a_digest_does_not_depend_on_order_or_on_a_round_trip_through_json(facts: dict[str, object]) -> None:
    backwards = dict(reversed(facts.items()))

    assert digest(facts) == digest(backwards) == digest(json.loads(json.dumps(facts)))


@given(FACTS, FACTS)
def test_digests_differ_exactly_when_a_difference_can_be_named(old: dict[str, object], new: dict[str, object]) -> None:
    assert (digest(old) == digest(new)) is (difference(old, new) == [])


def test_a_difference_names_the_library_inside_the_versions() -> None:
    old = {"driver": "580.65", "versions": {"numpy": "2.4.6", "cublas": "13.1"}, "sm_clock": 1500}
    new = {"driver": "580.65", "versions": {"numpy": "2.4.6", "cublas": "13.2"}, "sm_clock": 1980}

    assert difference(old, new) == ["cublas 13.1 -> 13.2"]
