"""The verdict: its JSON form, exit statuses, what a replay must repeat; what a source scan and a policy say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cuassay.errors import ArgumentError, JudgingError, SettingError
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
CASE = CaseTime(label="3", dtype="float32", median_s=1e-3, q25=1e-3, q75=2e-3, n=12, error_s=1e-5)


def test_json_gives_the_same_verdict_back(tmp_path: Path) -> None:
    one = verdict("refused", cheat=(SEEN,), cases=(CASE,), weak=("zeros",), jail={"net": "on"}, probes={"values": 2})
    path = tmp_path / "verdicts.json"

    path.write_text(json.dumps([one.as_json()]))

    assert read_verdicts(path) == [one]


@pytest.mark.parametrize(
    "text", ["", "{}", '{"schema": 2}', '[{"schema": 1}]', "[3]", '{"schema": 1, "verdict": "perfect", "reason": ""}']
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
    assert not one.same_finding(replace(one, cheat=(SEEN,)))
    assert not one.same_finding(replace(one, verdict="wrong"))


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
