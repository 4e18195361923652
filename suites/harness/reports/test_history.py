"""History: steps named at their commit, suspects, creep, what stays until it is acknowledged, what vanished."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay_reports.acknowledged import NAME, acknowledgements
from cuassay_reports.analysis import change_points, load, roster, series, slower_since, suspects
from cuassay_reports.columns import ResultFormatError
from cuassay_reports.load import Results
from cuassay_reports.page import build
from cuassay_reports.render import render_html
from cuassay_reports.steps import segments, segments_of

Make = Callable[..., Any]
Factor = Callable[[str, int], float]


@pytest.fixture
def made(write_rows: Make, device_row: Make, time_row: Make) -> Callable[..., Results]:
    """A history of given numbers of runs and benchmarks: a factor of each, and given noise."""

    def make(runs: int, names: Iterable[str], factor: Factor, *, noise: float = 0.003, **device: Any) -> Results:
        dice, names = random.Random(18), list(names)  # noqa: S311  the same history each time
        for number in range(runs):
            medians = {name: 1e-3 * factor(name, number) * dice.gauss(1.0, noise) for name in names}
            rows = [time_row(median, benchmark=name) for name, median in medians.items() if median > 0]
            facts = {**device, "uuid": f"GPU-{number % 3}"}
            started = f"2026-01-{1 + number // 24:02}T{number % 24:02}:00:00Z"
            folder = write_rows(f"r{number}", device_row(**facts), *rows, started=started, commit=commit(number))
        return load(folder)

    return make


def commit(number: int) -> str:
    return f"{number:08x}" * 5


def names(count: int) -> list[str]:
    return [f"b{number}" for number in range(count)]


def test_two_percent_steps_are_named_at_their_commit(made: Make) -> None:
    where = {name: 6 + 28 * number // 40 for number, name in enumerate(names(40))}

    found = change_points(made(40, names(160), lambda name, run: 1.02 if run >= where.get(name, 99) else 1.0))

    told = {row.benchmark: int(row.commit[:8], 16) for row in found.itertuples()}
    assert told.keys() == where.keys()
    assert len(found) == len(where)
    assert {name: at for name, at in told.items() if abs(at - where[name]) > 2} == {}
    assert set(found["word"]) == {"slower"}
    assert found["change"].tolist() == pytest.approx([0.02] * 40, abs=0.006)  # the shortest level has six points


def test_unchanged_series_have_few_suspects_and_no_steps(made: Make) -> None:
    results = made(30, names(300), lambda name, run: 1.0)

    assert len(suspects(results)) <= 3
    assert change_points(results).empty


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.02])
def test_unchanged_series_have_few_suspects_at_any_noise(made: Make, noise: float) -> None:
    assert len(suspects(made(25, names(300), lambda name, run: 1.0, noise=noise))) <= 3


def test_a_creep_of_less_than_one_percent_a_run_is_a_suspect_within_four(made: Make) -> None:
    found = suspects(made(24, names(20), lambda name, run: 1.008 ** max(0, run - 19) if name == "b3" else 1.0))

    assert [(row.benchmark, row.kind) for row in found.itertuples()] == [("b3", "creep")]


def test_a_step_is_still_shown_after_twenty_runs(made: Make) -> None:
    found = slower_since(made(40, names(20), lambda name, run: 1.1 if name == "b3" and run >= 20 else 1.0))

    assert [(row.benchmark, row.commit, row.before_commit) for row in found.itertuples()] == [
        ("b3", commit(20), commit(19))
    ]
    assert found["change"].item() == pytest.approx(0.1, abs=0.003)


def test_one_last_point_is_a_suspect_and_no_step(made: Make) -> None:
    found = build(made(30, names(20), lambda name, run: 1.1 if name == "b3" and run == 29 else 1.0))

    assert [row.benchmark for row in found.attention.suspects] == ["b3"]
    assert list(found.attention.slowdowns) == []


def test_one_fast_last_point_takes_no_slow_down_back(made: Make) -> None:
    found = slower_since(made(30, names(20), lambda name, run: 1.1 if name == "b3" and 20 <= run < 29 else 1.0))

    assert [(row.benchmark, row.commit) for row in found.itertuples()] == [("b3", commit(20))]


def test_two_last_points_are_a_step(made: Make) -> None:
    found = slower_since(made(30, names(20), lambda name, run: 1.1 if name == "b3" and run >= 28 else 1.0))

    assert [(row.benchmark, row.commit) for row in found.itertuples()] == [("b3", commit(28))]


def test_a_level_of_another_kind_of_host_is_no_step(made: Make) -> None:
    slow = {3, 8, 14, 27, 28, 29}
    results = made(30, names(20), lambda name, run: 1.7 if name == "b3" and run in slow else 1.0)

    assert change_points(results).empty


def test_a_series_may_come_back_to_a_level_that_it_had(made: Make) -> None:
    results = made(30, names(20), lambda name, run: 1.0 if name == "b3" and 10 <= run < 20 else 1.1)

    found = change_points(results)

    assert [(row.commit, row.word) for row in found.itertuples()] == [(commit(10), "faster"), (commit(20), "slower")]


@pytest.mark.parametrize(("first", "count"), [(4, 0), (5, 1)])
def test_four_points_before_are_too_few_for_a_step(made: Make, first: int, count: int) -> None:
    results = made(first + 3, names(20), lambda name, run: 1.7 if name == "b3" and run >= first else 1.0)

    assert len(change_points(results)) == count


def test_a_step_of_a_peer_is_not_reported_as_ours(write_rows: Make, device_row: Make, time_row: Make) -> None:
    for run in range(20):
        rows = [time_row(1.0, case=str(case)) for case in range(9)]
        peer = time_row(1.5 if run >= 10 else 1.0, case="0", implementation="torch")
        folder = write_rows(f"r{run}", device_row(), *rows, peer, started=f"2026-01-01T{run:02}:00:00Z")

    results = load(folder)

    assert change_points(results)["implementation"].tolist() == ["torch"]
    assert not build(results).attention.slowdowns


def test_a_step_that_was_taken_back_is_in_the_history_and_not_open(made: Make) -> None:
    results = made(40, names(20), lambda name, run: 1.1 if name == "b3" and 10 <= run < 20 else 1.0)

    assert change_points(results)["word"].tolist() == ["slower", "faster"]
    assert slower_since(results).empty


def test_where_more_is_better_a_rise_is_faster(write_rows: Make, device_row: Make, time_row: Make) -> None:
    for run in range(20):
        row = time_row(1e9 * (1.1 if run >= 10 else 1.0), better="more", unit="B/s")
        folder = write_rows(f"r{run}", device_row(), row, started=f"2026-01-01T{run:02}:00:00Z")

    assert change_points(load(folder))["word"].tolist() == ["faster"]


def test_what_a_whole_run_took_longer_is_no_step_of_any_series(made: Make) -> None:
    results = made(30, names(20), lambda name, run: 1.05 if run % 4 == 3 else 1.0)

    points = series(results)
    assert change_points(results).empty
    assert suspects(results).empty
    assert points.loc[points["run"] == "r7", "shift"].iloc[0] == pytest.approx(0.05, abs=0.003)


def test_an_acknowledged_step_carries_its_reason_and_a_later_one_none(made: Make, tmp_path: Path) -> None:
    results = made(45, names(20), lambda name, run: 1.1 ** ((run >= 15) + (run >= 30)) if name == "b3" else 1.0)
    (tmp_path / NAME).write_text(
        f'[[slower]]\nbenchmark = "b3"\ndevice = "cuda:0"\nsince = "{commit(15)[:10]}"\nreason = "NaN is handled now"\n'
    )

    found = slower_since(results, acknowledgements([tmp_path]))

    assert dict(zip(found["commit"], found["acknowledged"], strict=True)) == {
        commit(15): "NaN is handled now",
        commit(30): "",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[slower]\n", "not TOML"),
        ('[[slower]]\nbenchmark = "a"\nsince = "1"\n', "entry 1 lacks 'reason'"),
        ('[[slower]]\nbenchmark = "a"\nsince = "1"\nreason = "r"\nop = "a"\n', "unknown key 'op'"),
        ('[[slower]]\nbenchmark = "a"\nsince = ""\nreason = "r"\n', "entry 1"),
        ('[[faster]]\nbenchmark = "a"\n', "holds faster"),
    ],
    ids=["toml", "missing", "unknown", "empty", "table"],
)
def test_a_broken_acknowledgement_is_an_error_that_names_the_place(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / NAME).write_text(text)

    with pytest.raises(ResultFormatError, match=told):
        acknowledgements([tmp_path])


def test_vanished_and_new_series_are_reported(made: Make) -> None:
    def factor(name: str, run: int) -> float:
        return 0.0 if (name == "b1" and run >= 8) or (name == "b2" and run < 9) else 1.0

    found = roster(made(10, names(5), factor))

    assert [(row.benchmark, row.status, row.last_run) for row in found.itertuples()] == [
        ("b1", "vanished", "r7"),
        ("b2", "new", "r9"),
    ]


def test_another_driver_makes_nothing_new_or_vanished(made: Make, write_rows: Make, device_row: Make) -> None:
    made(3, names(3), lambda name, run: 1.0)

    assert roster(load(write_rows("r9", device_row(driver="590.1"), started="2026-02-01T00:00:00Z"))).empty


def test_steps_are_those_that_asv_finds() -> None:
    detect_steps = pytest.importorskip("asv.step_detect", reason="the extra asv is not installed").detect_steps
    dice = np.random.default_rng(18)
    levels = dice.choice([0.0, 0.02, 0.05, -0.03], size=(20, 3)).repeat(20, axis=1)

    for level in levels:
        points = level + dice.normal(0.0, 0.003, level.size)
        theirs = [left for left, *_ in detect_steps(list(1 + points))]
        assert [part.start for part in segments(points)] == theirs


def test_many_series_are_split_as_each_alone() -> None:
    dice = np.random.default_rng(4)
    many = [0.05 * (np.arange(length) > length // 3) + dice.normal(0, 0.004, length) for length in [40, 60, 3, 0] * 40]

    assert segments_of(many) == [segments(values) for values in many]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_a_short_series_is_one_segment(count: int) -> None:
    assert [(part.start, part.stop) for part in segments([1.0] * count)] == [(0, count)] * bool(count)


def test_a_single_outlier_is_no_step() -> None:
    assert len(segments([0.0] * 20 + [0.5] + [0.0] * 20)) == 1


def test_the_top_of_the_page_says_what_got_slower_by_how_much_and_since_when(made: Make) -> None:
    results = made(30, names(20), lambda name, run: 1.1 if name == "b3" and run >= 20 else 1.0)

    shown = build(results)
    page = render_html(shown)

    assert shown.headline.endswith("1 slow-down is not acknowledged")
    assert page.index('id="attention"') < page.index('id="devices"')
    assert f"since <code>{commit(20)[:10]}</code>" in page
    assert f"last good <code>{commit(19)[:10]}</code>" in page
    assert page.count('<line class="slower"') == 1
    assert f"{commit(20)[:10]} · 2026-01-01 20:00 · 1." in page  # on hovering


def test_an_acknowledged_slow_down_leaves_the_headline(made: Make, tmp_path: Path) -> None:
    results = made(30, names(20), lambda name, run: 1.1 if name == "b3" and run >= 20 else 1.0)
    (tmp_path / NAME).write_text(f'[[slower]]\nbenchmark = "b3"\nsince = "{commit(20)}"\nreason = "NaN"\n')

    shown = build(results, acknowledgements([tmp_path]))

    assert "unacknowledged" not in shown.headline
    assert "Acknowledged: NaN" in render_html(shown)


def test_the_page_names_suspects_and_what_vanished(made: Make) -> None:
    def factor(name: str, run: int) -> float:
        return 0.0 if name == "b1" and run == 19 else 1.04 if name == "b3" and run == 19 else 1.0

    found = build(made(20, names(20), factor)).attention

    assert [(row.benchmark, row.is_slower) for row in found.suspects] == [("b3", True)]
    assert found.vanished == ["b1 float32 8x8 on cuda:0"]
