"""What may be compared with what, and the verdicts: faster, slower, same, ambiguous."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from cuassay_reports.analysis import load
from cuassay_reports.compare import changes, judge, peers, throughput
from cuassay_reports.history import history, lines
from cuassay_reports.timings import sections

Make = Callable[..., Any]


def measured(median: float, spread: float = 0.01, n: int = 50, better: str = "less") -> dict[str, Any]:
    return {
        "median": median,
        "q25": median * (1 - spread / 2),
        "q75": median * (1 + spread / 2),
        "n": n,
        "better": better,
    }


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        pytest.param(measured(1.0), measured(1.10), "slower", id="slower"),
        pytest.param(measured(1.0), measured(0.90), "faster", id="faster"),
        pytest.param(measured(1.0, better="more"), measured(1.10, better="more"), "faster", id="more-is-better"),
        pytest.param(measured(1.0), measured(1.015), "same", id="under-the-floor"),
        pytest.param(measured(1.0, 0.08), measured(1.05, 0.08), "same", id="within-the-spread"),
        pytest.param(measured(1.0, 0.30), measured(1.05, 0.30), "ambiguous", id="too-noisy-to-say-same"),
        pytest.param(measured(1.0, 0.09), measured(1.095, 0.12), "ambiguous", id="overlap"),
        pytest.param(measured(1.0, n=3), measured(1.10), "ambiguous", id="few-samples"),
        pytest.param(measured(1.0, n=3), measured(1.0), "same", id="few-samples-no-change"),
        pytest.param(measured(1.0, math.nan), measured(1.10), "ambiguous", id="no-quartiles"),
        pytest.param(measured(0.0), measured(1.0), "ambiguous", id="zero"),
    ],
)
def test_the_verdict_on_two_measurements(old: dict[str, Any], new: dict[str, Any], word: str) -> None:
    verdict = judge(old, new)

    assert verdict.word == word
    assert verdict.reason


@pytest.mark.parametrize("change", [0.005, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("spread", [0.001, 0.05, 0.3])
def test_swapping_old_and_new_never_keeps_faster_or_slower(change: float, spread: float) -> None:
    opposite = {"faster": "slower", "slower": "faster"}
    one, other = measured(1.0, spread), measured(1.0 + change, spread)

    there, back = judge(one, other).word, judge(other, one).word

    assert there != "faster"
    assert there not in opposite or back != there


def test_a_change_is_against_the_run_before_on_the_same_fingerprint(
    write_rows: Make, device_row: Make, time_row: Make
) -> None:
    write_rows("r1", device_row(), time_row(5.0))
    write_rows("r2", device_row(), time_row(2.0))
    write_rows("r3", device_row(driver="590.12"), time_row(9.0))

    row = changes(load(write_rows("r4", device_row(), time_row(1.0)))).iloc[0]

    assert (row["previous"], row["previous_run"], row["change"], row["verdict"]) == (2.0, "r2", -0.5, "faster")


def test_another_driver_is_not_compared_and_the_reason_names_it(
    write_rows: Make, device_row: Make, time_row: Make
) -> None:
    write_rows("r1", device_row(driver="570.86"), time_row(1.0))
    write_rows("r2", device_row(driver="580.65"), time_row(1.0))

    row = changes(load(write_rows("r3", device_row(driver="590.12"), time_row(3.0)))).iloc[0]

    assert row["verdict"] == ""
    assert row["why"] == "not compared: driver 580.65 -> 590.12"


def test_timings_without_a_fingerprint_are_never_compared(write_rows: Make, time_row: Make) -> None:
    write_rows("r1", time_row(1.0))

    row = changes(load(write_rows("r2", time_row(3.0)))).iloc[0]

    assert (row["verdict"], row["why"]) == ("", "not compared: the run recorded no fingerprint of this device")


@pytest.mark.parametrize(
    "column",
    [
        {"case": "9x9"},
        {"dtype": "float16"},
        {"clock": "host"},
        {"cache": "warm"},
        {"mode": "graph"},
        {"implementation": "cupy"},
    ],
    ids=lambda column: next(iter(column)),
)
def test_a_series_is_one_case_measured_one_way(
    write_rows: Make, device_row: Make, time_row: Make, column: dict[str, str]
) -> None:
    write_rows("r1", device_row(), time_row(1.0))

    row = changes(load(write_rows("r2", device_row(), time_row(3.0, **column)))).iloc[0]

    assert row["why"] == "first measurement"


def limit(name: str, value: float, **columns: Any) -> tuple[str, dict[str, Any]]:
    unit = {"bandwidth": "B/s", "compute": "FLOP/s"}[name]
    return "limit", {"device": "cuda:0", "limit": name, "value": value, "unit": unit, **columns}


@pytest.mark.parametrize(
    ("limits", "fraction", "bound"),
    [
        pytest.param([limit("bandwidth", 100.0)], 0.5, "bandwidth", id="memory"),
        pytest.param([limit("bandwidth", 100.0), limit("compute", 400.0)], 0.5, "bandwidth", id="memory-is-nearer"),
        pytest.param([limit("bandwidth", 100.0), limit("compute", 250.0)], 0.8, "compute", id="compute-is-nearer"),
        pytest.param(
            [limit("compute", 400.0), limit("compute", 250.0, dtype="float32")], 0.8, "compute", id="of-the-dtype"
        ),
        pytest.param([limit("bandwidth", 80.0), limit("bandwidth", 100.0)], 0.5, "bandwidth", id="best-of-several"),
        pytest.param([limit("bandwidth", 100.0), limit("bandwidth", 80.0)], 0.5, "bandwidth", id="best-first"),
        pytest.param([], math.nan, "", id="not-measured"),
    ],
)
def test_the_fraction_is_of_the_nearer_limit(
    write_rows: Make, time_row: Make, limits: list[Any], fraction: float, bound: str
) -> None:
    results = load(write_rows("r1", time_row(2.0, bytes=100, flops=400), *limits))

    row = throughput(results.times, results.limits).iloc[0]

    assert (row["bytes_per_s"], row["flop_per_s"], row["bound"]) == (50.0, 200.0, bound)
    assert row["fraction"] == pytest.approx(fraction, nan_ok=True)


def test_a_share_of_the_bandwidth_is_not_claimed_for_work_that_arithmetic_limits(
    write_rows: Make, time_row: Make
) -> None:
    results = load(write_rows("r1", time_row(2.0, bytes=100, flops=40_000), limit("bandwidth", 100.0)))

    row = throughput(results.times, results.limits).iloc[0]

    assert (row["bound"], bool(row["intense"])) == ("", True)


def test_a_limit_of_another_run_or_device_does_not_count(write_rows: Make, time_row: Make) -> None:
    write_rows("r1", limit("bandwidth", 100.0))
    results = load(write_rows("r2", time_row(2.0, bytes=100), limit("bandwidth", 100.0, device="cuda:1")))

    assert throughput(results.times, results.limits)["bound"].item() == ""


def test_modelled_times_have_no_throughput_and_no_measured_peers(write_rows: Make, time_row: Make) -> None:
    modelled = time_row(1.0, bytes=100, unit="virtual s")
    results = load(write_rows("r1", modelled, time_row(2.0, bytes=100, implementation="torch")))

    rates = throughput(results.times, results.limits).set_index("unit")["bytes_per_s"]
    assert (math.isnan(rates["virtual s"]), rates["s"]) == (True, 50.0)
    assert peers(results.times).empty


def test_a_size_has_no_throughput(write_rows: Make, time_row: Make) -> None:
    results = load(write_rows("r1", time_row(2.0, bytes=100, unit="B")))

    assert math.isnan(throughput(results.times, results.limits)["bytes_per_s"].item())


def test_peers_takes_results_or_their_times(write_rows: Make, time_row: Make) -> None:
    results = load(write_rows("r1", time_row(1.0), time_row(2.0, implementation="torch")))

    assert peers(results).equals(peers(results.times))
    assert peers(results)["ratio"].tolist() == [2.0]


def test_a_peer_that_takes_twice_as_long_has_ratio_two_and_its_spread(write_rows: Make, time_row: Make) -> None:
    results = load(write_rows("r1", time_row(1.0, spread=0.1), time_row(2.0, spread=0.1, implementation="torch")))

    row = peers(results.times).iloc[0]

    assert (row["peer"], row["ratio"], row["verdict"]) == ("torch", 2.0, "faster")
    assert row["low"] == pytest.approx(1.9 / 1.05)
    assert row["high"] == pytest.approx(2.1 / 0.95)


def test_the_implementation_that_peers_are_compared_with_may_have_a_name_of_its_own(
    write_rows: Make, time_row: Make
) -> None:
    rows = time_row(1.0, implementation="mine", ours=True), time_row(2.0, implementation="dot")

    row = peers(load(write_rows("r1", *rows)).times).iloc[0]

    assert (row["implementation"], row["peer"], row["ratio"]) == ("mine", "dot", 2.0)


def test_a_peer_of_another_case_clock_or_run_is_no_peer(write_rows: Make, time_row: Make) -> None:
    write_rows("r1", time_row(1.0, implementation="cupy"))
    other = [time_row(1.0, implementation="torch", case="9x9"), time_row(1.0, implementation="torch", clock="host")]

    assert peers(load(write_rows("r2", time_row(1.0), *other)).times).empty


def test_queued_samples_are_not_compared_with_live_ones_of_another_run(
    write_rows: Make, device_row: Make, time_row: Make
) -> None:
    write_rows("r1", device_row(), time_row(2.0))  # of a time when rows did not say it
    write_rows("r2", device_row(), time_row(2.0, launches="live"))

    row = changes(load(write_rows("r3", device_row(), time_row(1.0, launches="queued")))).iloc[0]

    assert (row["verdict"], row["why"]) == ("", "first measurement")


def test_a_peer_that_had_to_be_measured_live_is_a_peer(write_rows: Make, time_row: Make) -> None:
    rows = (time_row(1.0, launches="queued"), time_row(2.0, implementation="torch", launches="live"))

    row = peers(load(write_rows("r1", *rows)).times).iloc[0]

    assert (row["peer"], row["ratio"], row["launches"]) == ("torch", 2.0, "queued")


def test_a_new_fingerprint_starts_a_new_line(write_rows: Make, device_row: Make, time_row: Make) -> None:
    write_rows("r1", device_row(), time_row(1.0))
    write_rows("r2", device_row(), time_row(2.0))
    results = load(write_rows("r3", device_row(driver="590.12"), time_row(3.0)))

    assert sorted(lines(results).values()) == [[1.0, 2.0], [3.0]]
    assert history(results)["step"].tolist() == pytest.approx([math.nan, 1.0, math.nan], nan_ok=True)


def test_a_case_measured_twice_in_a_run_is_one_point_the_last(
    write_rows: Make, device_row: Make, time_row: Make
) -> None:
    results = load(write_rows("r1", device_row(), time_row(1.0), time_row(2.0)))

    assert list(lines(results).values()) == [[2.0]]


def test_history_carries_the_revision_of_each_point(write_rows: Make, time_row: Make) -> None:
    results = load(write_rows("r1", time_row(1.0), commit="a" * 40, dirty=False))

    assert history(results)["commit"].item() == "a" * 40


def test_a_peer_measured_twice_is_compared_by_the_last(write_rows: Make, time_row: Make) -> None:
    results = load(write_rows("r1", time_row(1.0), *(time_row(m, implementation="torch") for m in (3.0, 2.0))))

    assert peers(results.times)["ratio"].tolist() == [2.0]


def test_half_the_distance_of_the_quartiles_is_shown(write_rows: Make, time_row: Make) -> None:
    (section,) = sections(load(write_rows("r1", time_row(1.0, spread=0.08))))

    assert [row.spread for row in section.rows] == ["± 4 %"]


def test_a_peer_that_got_slower_is_none_of_ours_that_did(write_rows: Make, device_row: Make, time_row: Make) -> None:
    for run, median in (("r1", 2.0), ("r2", 3.0)):
        folder = write_rows(run, device_row(), time_row(1.0), time_row(median, implementation="torch"))

    (section,) = sections(load(folder))

    assert (section.slower, section.count) == (0, 2)


def test_another_card_of_the_model_is_compared_and_named(write_rows: Make, device_row: Make, time_row: Make) -> None:
    write_rows("r1", device_row(uuid="GPU-1"), time_row(1.0))

    row = changes(load(write_rows("r2", device_row(uuid="GPU-2", cores=32), time_row(1.1)))).iloc[0]

    assert (row["verdict"], row["weak"]) == ("slower", True)
    assert "uuid 1 -> 2" in row["why"]
    assert "cores 16 -> 32" in row["why"]


def test_another_card_may_be_faster_too(write_rows: Make, device_row: Make, time_row: Make) -> None:
    write_rows("r1", device_row(uuid="GPU-1"), time_row(1.0))

    row = changes(load(write_rows("r2", device_row(uuid="GPU-2"), time_row(0.8)))).iloc[0]

    assert (row["verdict"], row["weak"]) == ("faster", True)


@pytest.mark.parametrize(
    ("columns", "change"),
    [({}, 1.04), ({}, 0.96), ({"clock": "host"}, 1.5), ({"launches": "live"}, 1.5)],
    ids=["within five percent", "within five percent, faster", "host's clock", "live"],
)
def test_another_card_decides_no_small_change_and_nothing_of_the_hosts(
    write_rows: Make, device_row: Make, time_row: Make, columns: dict[str, str], change: float
) -> None:
    write_rows("r1", device_row(uuid="GPU-1"), time_row(1.0, **columns))

    row = changes(load(write_rows("r2", device_row(uuid="GPU-2"), time_row(change, **columns)))).iloc[0]

    assert row["verdict"] == "ambiguous"


@pytest.mark.parametrize(
    ("medians", "verdict"),
    [
        ((2.8, 3.7, 3.0, 2.8, 3.6), "ambiguous"),
        ((2.8, 3.7, 3.0, 2.8, 3.8), "slower"),
        ((3.7, 2.8, 2.8, 3.6), "slower"),
        ((3.7, *[2.8] * 8, 3.6), "slower"),
    ],
    ids=["between levels seen", "beyond them", "too few runs", "seen long ago"],
)
def test_a_level_that_the_series_has_had_is_no_verdict_on_another_card(
    write_rows: Make, device_row: Make, time_row: Make, medians: tuple[float, ...], verdict: str
) -> None:
    for number, median in enumerate(medians, 1):
        rows = device_row(uuid=f"GPU-{number}"), time_row(median)
        folder = write_rows(f"r{number}", *rows, started=f"2026-01-{number:02}T12:00:00Z")

    row = changes(load(folder)).iloc[0]

    assert row["verdict"] == verdict
    assert ("but its last 4 runs took between 2.80 s and 3.70 s" in row["why"]) == (verdict == "ambiguous")


def test_a_common_shift_of_short_samples_is_taken_off(write_rows: Make, device_row: Make, time_row: Make) -> None:
    def rows(extra: float) -> list[Any]:
        peers = [time_row(10e-6 + extra, case=str(case), implementation="torch") for case in range(10)]
        return [*peers, time_row(10e-6 + extra, case="0")]

    write_rows("r1", device_row(uuid="GPU-1"), *rows(0.0))
    found = changes(load(write_rows("r2", device_row(uuid="GPU-2"), *rows(1.8e-6))))

    assert set(found["verdict"]) == {"same"}
    assert found["shift"].tolist() == pytest.approx([1.8e-6] * 11)
    assert "estimated from 10 rows of peers" in found["why"].iloc[0]


def test_without_peers_a_change_of_a_few_microseconds_is_ambiguous(
    write_rows: Make, device_row: Make, time_row: Make
) -> None:
    write_rows("r1", device_row(uuid="GPU-1"), time_row(10e-6))

    row = changes(load(write_rows("r2", device_row(uuid="GPU-2"), time_row(12e-6)))).iloc[0]

    assert row["verdict"] == "ambiguous"
    assert "empty intervals" in row["why"]


def test_measured_empty_intervals_need_no_estimate(write_rows: Make, device_row: Make, time_row: Make) -> None:
    def rows(empty: float) -> list[Any]:
        peers = [time_row(9e-6 + empty, case=str(case), implementation="torch", empty=empty) for case in range(10)]
        return [time_row(8.7e-6 + empty, empty=empty), *peers]

    write_rows("r1", device_row(uuid="GPU-1"), *rows(1.3e-6))

    row = changes(load(write_rows("r2", device_row(uuid="GPU-2"), *rows(2.9e-6)))).iloc[0]

    assert (row["verdict"], row["shift"]) == ("same", 0.0)
    assert "shift" not in row["why"]
    assert row["median"] == pytest.approx(8.7e-6)
    assert row["raw"] == 11.6e-6


def test_a_case_whose_peers_moved_as_well_is_ambiguous_on_another_card(
    write_rows: Make, device_row: Make, time_row: Make
) -> None:
    for run, median in (("r1", 1.0), ("r2", 1.2)):
        rows = [time_row(median), time_row(median, implementation="torch"), time_row(median, implementation="cupy")]
        folder = write_rows(run, device_row(uuid=f"GPU-{run}"), *rows)

    found = changes(load(folder))

    assert set(found["verdict"]) == {"ambiguous"}
    assert "but peers moved by +20.0%" in found["why"].iloc[0]


def test_peers_that_moved_the_other_way_explain_nothing(write_rows: Make, device_row: Make, time_row: Make) -> None:
    for run, ours, peer in (("r1", 1.0, 1.0), ("r2", 1.2, 0.85)):
        rows = [time_row(ours), time_row(peer, implementation="torch"), time_row(peer, implementation="cupy")]
        folder = write_rows(run, device_row(uuid=f"GPU-{run}"), *rows)

    found = changes(load(folder))
    ours = found[found["implementation"] == "cuassay"].iloc[0]

    assert "but peers moved" not in ours["why"]


def test_the_page_keeps_the_median_as_measured(write_rows: Make, device_row: Make, time_row: Make) -> None:
    (section,) = sections(load(write_rows("r1", device_row(), time_row(10e-6, empty=2e-6), time_row(1.0, case="b"))))

    assert [(row.median, row.raw) for row in section.rows] == [
        ("8.00 µs", "10.0 µs with the empty interval"),
        ("1.00 s", ""),
    ]
