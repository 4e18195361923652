"""Fingerprints: which differences forbid a comparison, and which are only reported."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuassay_reports.facts import FINGERPRINT, difference, digest, soft_difference

H200 = {"kind": "cuda", "name": "NVIDIA H200", "driver": "580.65", "cuda": "13.0", "uuid": "GPU-0f1e-2d", "cores": 16}

FACTS = st.dictionaries(
    st.sampled_from([fact.name for fact in FINGERPRINT] + ["uptime", "hz"]),
    st.one_of(st.text(max_size=5), st.integers(), st.none()),
)


@given(FACTS)
def test_a_digest_does_not_depend_on_order_or_on_a_round_trip_through_json(facts: dict[str, object]) -> None:
    backwards = dict(reversed(facts.items()))

    assert digest(facts) == digest(backwards) == digest(json.loads(json.dumps(facts)))


@given(FACTS, FACTS)
def test_equal_digests_mean_that_nothing_refuses(old: dict[str, object], new: dict[str, object]) -> None:
    assert digest(old) != digest(new) or difference(old, new) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"name": "NVIDIA H100"}, "name NVIDIA H200 -> NVIDIA H100", id="model"),
        pytest.param({"driver": "590.12"}, "driver 580.65 -> 590.12", id="driver-branch"),
        pytest.param({"cuda": "12.9"}, "cuda 13.0 -> 12.9", id="cuda-major"),
    ],
)
def test_a_hard_fact_refuses(change: dict[str, object], said: str) -> None:
    new = {**H200, **change}

    assert difference(H200, new) == [said]
    assert digest(H200) != digest(new)


@pytest.mark.parametrize(("hidden_in", "said"), [("old", "cuda.core -> nothing"), ("new", "nothing -> cuda.core")])
def test_a_module_that_was_hidden_in_one_run_only_refuses(hidden_in: str, said: str) -> None:
    hidden = {**H200, "without": "cuda.core"}

    assert difference(*((hidden, H200) if hidden_in == "old" else (H200, hidden))) == [f"without {said}"]
    assert difference(hidden, hidden) == []


def test_a_run_that_hid_nothing_has_the_digest_of_one_that_did_not_record_it() -> None:
    assert digest({**H200, "without": "nothing"}) == digest(H200) != digest({**H200, "without": "torch"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"uuid": "GPU-9a9b-2d"}, "uuid 0f1e -> 9a9b", id="specimen"),
        pytest.param({"cores": 32}, "cores 16 -> 32", id="cores"),
        pytest.param({"driver": "580.95"}, "driver 580.65 -> 580.95", id="driver-patch"),
        pytest.param({"versions": {"cublas": "13.2"}}, "cublas unknown -> 13.2", id="library"),
        pytest.param({"cuda": "13.1"}, "cuda 13.0 -> 13.1", id="cuda-minor"),
    ],
)
def test_a_soft_fact_is_reported_and_does_not_refuse(change: dict[str, object], said: str) -> None:
    new = {**H200, **change}

    assert (difference(H200, new), digest(H200) == digest(new)) == ([], True)
    assert soft_difference(H200, new) == [said]


@pytest.mark.parametrize("recorded_by", ["older run", "newer run"])
def test_a_fact_that_one_run_did_not_record_does_not_refuse(recorded_by: str) -> None:
    told = {**H200, "clocks": "boost"}
    pair = (told, H200) if recorded_by == "older run" else (H200, told)

    assert difference(*pair) == []


@pytest.mark.parametrize("fact", ["cpu", "cores"])
def test_the_host_is_a_hard_fact_where_the_host_computes(fact: str) -> None:
    old = {"kind": "cpu", "cpu": "A", "cores": "1"}

    assert difference(old, {**old, fact: "B"})


def test_what_changes_with_every_run_is_never_compared() -> None:
    assert (difference({"sm_clock": 1}, {"sm_clock": 2}), soft_difference({"hz": 1}, {"hz": 2})) == ([], [])
