"""The order of calls: checks, warm-up and timed calls are mixed, and timed calls of a case come in short runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cuassay import Device
from cuassay.judging.results import Results
from cuassay.judging.schedule import Schedule, schedule
from cuassay.testing import OpSpec, Sample

SPEC = OpSpec(
    fn=lambda xp, a: a + 1,
    name="one",
    dtypes=("float32", "float64"),
    samples=lambda make: [make(3), make((2, 5))],
    reference=lambda a: a + np.asarray(1, a.dtype),
    bench=lambda make, sizes: [make(64), make(96)],
)


def planned(nonce: int, *, times: bool = True) -> Schedule:
    return schedule(Results([SPEC]), Device("cpu"), nonce, dtypes=SPEC.dtypes, layouts=True, times=times)


def cases(plan: Schedule) -> list[tuple[str, str] | None]:
    probes = [plan.probes[place] for place in plan.order]
    return [(probe.case, probe.dtype) if probe.case else None for probe in probes]


@pytest.mark.parametrize("times", [True, False])
def test_each_probe_gets_all_of_its_calls(times: bool) -> None:
    plan = planned(5, times=times)

    assert Counter(plan.order) == {place: len(probe.draws) for place, probe in enumerate(plan.probes)}


def test_most_timed_calls_follow_one_of_their_case() -> None:
    for nonce in range(5):
        found = cases(planned(nonce))
        timed = [place for place, case in enumerate(found) if case is not None]
        after = [place for place in timed if place and found[place - 1] == found[place]]

        assert len(set(filter(None, found))) == 2
        assert len(after) > 0.6 * len(timed)


def test_measured_calls_of_equal_shapes_are_cases_of_their_own() -> None:
    spec = replace(SPEC, bench=lambda make, sizes: [make(64), Sample((make(64, layout="strided"),), label="strided")])

    plan = schedule(Results([spec]), Device("cpu"), 3, dtypes=("float32",), layouts=True, times=True)

    assert {probe.case for probe in plan.probes} - {""} == {"64", "64, strided, strided"}


def test_no_long_run_gives_the_timed_calls_away() -> None:
    for nonce in range(5):
        found = cases(planned(nonce))
        starts = [place for place in range(1, len(found)) if found[place] and found[place] != found[place - 1]]

        assert len(starts) >= 2 * 3
        assert None in found[starts[0] : starts[-1]]


def test_the_order_follows_from_the_nonce() -> None:
    assert planned(7).order == planned(7).order
    assert planned(7).order != planned(8).order
