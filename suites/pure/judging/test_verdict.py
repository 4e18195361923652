"""The verdict: its JSON form, exit statuses, what a replay must repeat; what a source scan and a policy say."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

from cuassay.errors import ArgumentError, JudgingError, SettingError
from cuassay.judging.json_schema import verdicts_schema
from cuassay.judging.limits import Limits
from cuassay.judging.scan import parse_policy, scan
from cuassay.judging.verdict import CaseTime, Evidence, Verdict, exit_status, read_verdicts


def verdict(word: str = "correct", **fields: object) -> Verdict:
    told = {
        "reason": "why",
        "candidate": "a.py",
        "declaration": "rms",
        "device": "sim:0",
        "tier": "program",
        "nonce": "f",
    }
    return Verdict(**{"verdict": word, **told, **fields})  # type: ignore[arg-type]


SEEN = Evidence(id="T9", certainty="proven", evidence="kept")
CASE = CaseTime(label="3", dtype="float32", time_s=1e-3, q25=1e-3, q75=2e-3, n=12, error_s=1e-5)


def test_json_gives_the_same_verdict_back(tmp_path: Path) -> None:
    one = verdict("refused", cheat=(SEEN,), cases=(CASE,), weak=("zeros",), jail={"net": "on"}, probes={"values": 2})
    path = tmp_path / "verdicts.json"

    path.write_text(json.dumps([one.as_json()]))

    assert read_verdicts(path) == [one]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"schema": 1}',
        '[{"schema": 2}]',
        "[3]",
        '{"schema": 2, "verdict": "perfect", "reason": ""}',
        "[" * 10**5,
    ],
)
def test_what_is_not_a_verdict_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text(text)

    with pytest.raises(JudgingError):
        read_verdicts(path)


def test_a_verdict_of_another_word_is_refused() -> None:
    with pytest.raises(JudgingError, match="correct, wrong, refused, undecided"):
        verdict("perfect")


def test_evidence_of_an_unknown_cheat_is_refused() -> None:
    with pytest.raises(JudgingError, match="Z9"):
        Evidence(id="Z9", certainty="proven", evidence="")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["correct"], 0), (["wrong"], 1), (["refused"], 1), (["undecided"], 3), ([], 0),
        (["correct", "undecided"], 3), (["undecided", "wrong", "correct"], 1),
    ],
)  # fmt: skip
def test_the_exit_status_is_that_of_the_worst(words: list[str], status: int) -> None:
    assert exit_status(map(verdict, words)) == status


def test_times_are_not_part_of_what_a_replay_repeats() -> None:
    one = verdict(cases=(CASE,), seconds=1.0)

    assert one.same_finding(replace(one, cases=(), seconds=2.0))


@pytest.mark.parametrize(
    "changed",
    [
        {"verdict": "wrong"}, {"failing_check": "values"}, {"sample": "3 rows"}, {"cheat": (SEEN,)},
        {"weak": ("zeros",)}, {"looks_like": "bfloat16"}, {"calls": 7},
    ],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_a_replay_repeats_every_part_of_what_was_found(changed: dict[str, Any]) -> None:
    one = verdict()

    assert not one.same_finding(replace(one, **changed))


@pytest.mark.parametrize(
    ("ratios", "line"),
    [
        ((None, None), "3 float32: 1000 µs ± 10, host clock"),
        ((1.5, 2.0), "3 float32: 1000 µs ± 10, host clock, 1.5 to 2 times as fast as declared"),
    ],
    ids=["alone", "against the declared"],
)
def test_a_time_is_told_with_its_ratio_to_the_declared_function(ratios: tuple[float, float], line: str) -> None:
    assert replace(CASE, ratio_low=ratios[0], ratio_high=ratios[1]).told() == line


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_is_above_zero(value: float) -> None:
    with pytest.raises(ArgumentError, match=r"Limits\(call_s=\) must be above 0"):
        Limits(call_s=value)


# ------------------------------------------------------------------------------------------------ scan


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("def run(xp, a, b): return xp.matmul(a, b)", "B1"),
        ("def run(xp, a, b): return a @ b", "B1"),
        ("def run(xp, a, b): return matmul(a, b)", "B1"),
        ("import torch", "B1"),
        ("try:\n    pass\nexcept Exception:\n    pass", "B2"),
        ("kept = None\ndef run(xp, a):\n    global kept", "B3"),
        ("import ctypes", "X2"),
    ],
)
def test_a_source_scan_hints(source: str, number: str) -> None:
    (found,) = scan(source, is_python=True, policy=parse_policy(""))

    assert (found.id, found.certainty) == (number, "hint")


def test_a_policy_refuses_or_allows_library_calls() -> None:
    source = "def run(xp, a, b): return a @ b"

    (refused,) = scan(source, is_python=True, policy=parse_policy("library=refuse"))

    assert (refused.id, refused.certainty) == ("B1", "proven")
    assert scan(source, is_python=True, policy=parse_policy("library=allow")) == []


def test_a_kernel_that_includes_a_library_is_told() -> None:
    (found,) = scan('#include <cub/cub.cuh>\n#include "mine.h"', is_python=False, policy=parse_policy(""))

    assert found.id == "B1"


@pytest.mark.parametrize("source", ["def run(:", "\0", "(" * 5000])
def test_a_source_that_cannot_be_parsed_hints_at_nothing(source: str) -> None:
    assert scan(source, is_python=True, policy=parse_policy("")) == []


@pytest.mark.parametrize(
    ("text", "meant"), [("libary=allow", "library"), ("library=alow", "allow"), ("library", "flag, allow, refuse")]
)
def test_a_misspelt_policy_is_answered(text: str, meant: str) -> None:
    with pytest.raises(SettingError, match=meant):
        parse_policy(text)


@pytest.mark.parametrize(("policy", "certainty"), [("", "hint"), ("library=refuse", "indicated")])
def test_a_source_that_is_too_long_is_not_parsed(policy: str, certainty: str) -> None:
    source = "x = [" + "1," * 100_000 + "]\nimport torch\n"

    (found,) = scan(source, is_python=True, policy=parse_policy(policy))

    assert (found.id, found.certainty) == ("X11", certainty)


# ------------------------------------------------------------------------------------------------ JSON Schema


#: What JSON's names for types mean in Python; a truth value is not a number.
TYPES = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def unfit(schema: dict[str, Any], value: Any, place: str = "") -> list[str]:
    """The places in a value that do not fit a JSON Schema, of which only what ours uses is known."""
    known = {"$schema", "title", "description", "type", "const", "enum", "items", "properties", "required"}
    assert set(schema) <= {*known, "additionalProperties"}
    allowed = schema.get("type", list(TYPES))
    if not any(TYPES[name](value) for name in ([allowed] if isinstance(allowed, str) else allowed)):
        return [place]
    if value != schema.get("const", value) or value not in schema.get("enum", [value]):
        return [place]
    if isinstance(value, list):
        return [one for part in value for one in unfit(schema.get("items", {}), part, f"{place}[]")]
    if not isinstance(value, dict):
        return []
    found = [f"{place}.{name}" for name in schema.get("required", ()) if name not in value]
    for name, part in value.items():
        inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
        found += unfit(inner, part, f"{place}.{name}")
    return found


FULL = verdict(
    "refused", cheat=(SEEN,), cases=(CASE, replace(CASE, time_s=None)), weak=("zeros",),
    jail={"net": "on"}, probes={"values": 2}, headroom=0.5, options={"times": True, "seconds": 30.0},
)  # fmt: skip


def test_verdicts_fit_the_schema_and_it_names_each_field() -> None:
    schema = verdicts_schema()

    assert unfit(schema, json.loads(json.dumps([FULL.as_json(), verdict().as_json()]))) == []
    assert list(schema["items"]["properties"]) == list(FULL.as_json())
    for record in (schema["items"], *(schema["items"]["properties"][name]["items"] for name in ("cases", "cheat"))):
        assert record["description"].endswith(".")


def test_the_schema_tells_the_meaning_of_each_field_of_a_verdict_and_of_a_time() -> None:
    fields = verdicts_schema()["items"]["properties"]

    assert [name for name, one in fields.items() if not one.get("description")] == []
    assert [name for name, one in fields["cases"]["items"]["properties"].items() if not one.get("description")] == []
    assert fields["nonce"]["description"].startswith("The number, in hexadecimal digits")


def test_the_schema_requires_the_fields_without_a_default() -> None:
    needed = json.loads(json.dumps(verdict().as_json()))
    for one in fields(Verdict):
        if one.default is not MISSING or one.default_factory is not MISSING:
            del needed[one.name]

    assert unfit(verdicts_schema(), [needed]) == []
    for name in needed:
        assert unfit(verdicts_schema(), [{other: value for other, value in needed.items() if other != name}]) != []


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"schema": 1}, "[].schema"),
        ({"verdict": "maybe"}, "[].verdict"),
        ({"nonce": 7}, "[].nonce"),
        ({"calls": True}, "[].calls"),
        ({"headroom": "half"}, "[].headroom"),
        ({"probes": {"values": "two"}}, "[].probes.values"),
        ({"weak": [1]}, "[].weak[]"),
        ({"cheat": [{"id": "T9", "certainty": "sure", "evidence": ""}]}, "[].cheat[].certainty"),
        ({"cases": [{}]}, "[].cases[].label"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else None,
)
def test_the_schema_refuses_what_a_verdict_cannot_be(changed: dict[str, Any], place: str) -> None:
    row = {**json.loads(json.dumps(FULL.as_json())), **changed}

    assert place in unfit(verdicts_schema(), [row])
