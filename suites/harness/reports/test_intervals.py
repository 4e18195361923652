"""The empty interval: taken off where it was measured, estimated from peers where it was not."""

from __future__ import annotations

from typing import Any

import pytest

from cuassay_reports.intervals import FEWEST_PEERS, net, offsets, shift

Row = dict[str, Any]


def row(case: int, median: float, **columns: Any) -> Row:
    told = {"benchmark": "add", "case": str(case), "implementation": "torch", "clock": "device", "cache": "cold"}
    return {**told, "median": median, "minimum": median, "q25": median, "q75": median, **columns}


def run(extra_s: float, peers: int = FEWEST_PEERS, **columns: Any) -> list[Row]:
    return [row(case, 10e-6 + case * 1e-6 + extra_s, **columns) for case in range(peers)]


def test_a_row_is_freed_of_its_empty_interval_and_keeps_the_raw_median() -> None:
    freed = net(row(1, 5e-6, empty=1e-6, samples=[4e-6, 6e-6]))

    assert (freed["median"], freed["q25"], freed["minimum"]) == pytest.approx((4e-6, 4e-6, 4e-6))
    assert freed["samples"] == pytest.approx([3e-6, 5e-6])
    assert freed["raw"] == 5e-6


def test_a_row_shorter_than_its_empty_interval_stays_as_it_is() -> None:
    assert net(row(1, 1e-6, empty=2e-6)) == row(1, 1e-6, empty=2e-6)


def test_the_shift_of_two_runs_is_that_of_their_peers() -> None:
    found = shift(run(0.0), run(1.8e-6))

    assert found is not None
    assert (found.seconds, found.rows) == (pytest.approx(1.8e-6), FEWEST_PEERS)


def test_a_shift_says_how_far_its_rows_disagree() -> None:
    new = run(1.8e-6, 20)
    new[3]["median"] += 0.5e-6
    new[4]["median"] += 0.5e-6

    found = shift(run(0.0, 20), new)

    assert found is not None
    assert (found.seconds, found.uncertain_s) == (pytest.approx(1.8e-6), pytest.approx(0.5e-6))


@pytest.mark.parametrize(
    "columns",
    [{"implementation": "cuassay"}, {"ours": True}, {"cache": "warm"}, {"clock": "host"}, {"groups": "square"}],
    ids=lambda columns: next(iter(columns)),
)
def test_only_cold_samples_of_peers_tell_a_shift(columns: Row) -> None:
    assert shift(run(0.0, **columns), run(1.8e-6, **columns)) is None


def test_too_few_peers_tell_nothing() -> None:
    assert shift(run(0.0, FEWEST_PEERS - 1), run(1.8e-6, FEWEST_PEERS - 1)) is None


def test_long_samples_tell_nothing_about_microseconds() -> None:
    long = [row(case, 1e-3) for case in range(FEWEST_PEERS)]

    assert shift(long, long) is None


def test_runs_stand_on_the_newest_that_measured_its_empty_interval() -> None:
    measured = [net(one) for one in run(1.3e-6, empty=1.3e-6)]

    assert offsets([run(2.9e-6), measured, run(1.3e-6)]) == pytest.approx([2.9e-6, 0.0, 1.3e-6])


def test_without_a_measured_one_runs_stand_on_the_newest() -> None:
    assert offsets([run(0.0), run(1.6e-6)]) == pytest.approx([-1.6e-6, 0.0])


def test_a_run_without_common_peers_is_left_where_it_is() -> None:
    assert offsets([run(5e-6, 2), run(0.0)]) == [0.0, 0.0]
