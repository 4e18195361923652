"""Ours compared with the best peer by group: which rows count, what the means are, what is said of the worst."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuassay_reports.analysis import load
from cuassay_reports.page import build
from cuassay_reports.peer_summary import WORST, PeerSummary, compared_with_best, peer_summaries
from cuassay_reports.render import render_html, render_markdown, render_text

Make = Callable[..., Any]

BEHIND_TEXT = "behind: the peer's kernel is not a candidate, or the tuner found another faster"


@pytest.fixture
def product(time_row: Make) -> Make:
    """Rows of one case: medians by implementation."""

    def make(case: str, medians: dict[str, float], groups: str = "square", **columns: Any) -> list[Any]:
        told = {"benchmark": "mm", "case": case, "groups": groups, "mode": "graph", "cache": "cold", **columns}
        return [time_row(median, implementation=name, **told) for name, median in medians.items()]

    return make


@pytest.fixture
def stand(write_rows: Make, device_row: Make) -> Callable[..., PeerSummary]:
    def make(*rows: Any) -> PeerSummary:
        (summary,) = peer_summaries(load(write_rows("r1", device_row(), *rows)))
        return summary

    return make


def test_the_ratio_is_to_the_fastest_of_the_peers(product: Make, stand: Make) -> None:
    summary = stand(*product("8x8x8", {"cuassay": 2.0, "torch": 5.0, "cupy": 3.0}))

    assert summary.peers == ["cupy", "torch"]
    assert [(row.peer, row.ratio) for row in summary.worst] == [("cupy", "1.500×")]


def test_ours_untuned_is_no_peer(product: Make, stand: Make) -> None:
    summary = stand(*product("8x8x8", {"cuassay": 2.0, "cuassay untuned": 1.0, "torch": 4.0}))

    assert summary.peers == ["torch"]
    assert (summary.groups[0].mean, summary.groups[0].tuning) == ("2.000×", "0.500×")


def test_samples_are_compared_round_by_round(time_row: Make, stand: Make) -> None:
    told = {"benchmark": "mm", "groups": "square"}
    ours = time_row(4.0, samples=[1.0, 1.0, 4.0, 4.0, 4.0], **told)
    torch = time_row(1.1, samples=[1.1, 1.1, 1.1, 4.4, 4.4], implementation="torch", **told)

    assert stand(ours, torch).worst[0].ratio == "1.100×"


def test_samples_of_unlike_rounds_are_compared_by_their_medians(time_row: Make, stand: Make) -> None:
    told = {"benchmark": "mm", "groups": "square"}
    ours = time_row(2.0, samples=[1.0, 2.0, 3.0], **told)
    torch = time_row(3.0, samples=[3.0, 3.0], implementation="torch", **told)

    assert stand(ours, torch).worst[0].ratio == "1.500×"


def test_a_peer_measured_live_counts_next_to_graphs(product: Make, stand: Make) -> None:
    rows = [
        *product("8x8x8", {"cuassay": 2.0, "torch": 4.0}),
        *product("8x8x8", {"cupy": 1.0}, mode="stream", launches="live"),
    ]

    assert stand(*rows).worst[0].peer == "cupy"


def test_means_are_geometric_and_by_group(product: Make, stand: Make) -> None:
    summary = stand(
        *product("1x8x8", {"cuassay": 1.0, "torch": 4.0}, "llama m<=128"),
        *product("512x8x8", {"cuassay": 1.0, "torch": 1.0}, "llama"),
        *product("64x8x8", {"cuassay": 2.0, "torch": 1.0}, "m<=128"),
    )

    found = {group.name: (group.count, group.mean, group.least, group.behind) for group in summary.groups}
    assert found == {
        "all": (3, "1.260×", "0.500×", 1),
        "llama": (2, "2.000×", "1.000×", 0),
        "m<=128": (2, "1.414×", "0.500×", 1),
    }


def test_what_differs_as_two_runs_do_is_not_behind(product: Make, stand: Make) -> None:
    rows = [
        *product("8x8x8", {"cuassay": 1.0, "torch": 0.995}),
        *product("9x9x9", {"cuassay": 1.0, "torch": 0.98}),
    ]

    assert stand(*rows).groups[0].behind == 1


def test_peers_are_those_of_the_benchmark(product: Make, write_rows: Make, device_row: Make) -> None:
    rows = [
        *product("8x8x8", {"cuassay": 1.0, "torch": 2.0}),
        *product("8x8x8", {"cuassay": 1.0, "cupy": 2.0}, benchmark="bmm"),
    ]

    found = peer_summaries(load(write_rows("r1", device_row(), *rows)))

    assert {one.benchmark: one.peers for one in found} == {"mm": ["torch"], "bmm": ["cupy"]}


def test_only_so_many_of_the_worst_are_shown_the_worst_first(product: Make, stand: Make) -> None:
    rows = [row for size in range(1, 20) for row in product(f"{size}x8x8", {"cuassay": 1.0, "torch": size / 10})]

    worst = stand(*rows).worst

    assert [row.case for row in worst] == [f"{size}x8x8" for size in range(1, WORST + 1)]


@pytest.mark.parametrize(
    ("ours", "torch", "spread", "reason"),
    [
        (1.0, 1.05, 0.01, "no room, torch at 95 % of the compute limit"),
        (2.0, 1.999, 0.01, "within the spread of 1.0 %, torch at 50 % of the compute limit"),
        (2.0, 1.9, 0.1, "within the spread of 10 %, torch at 53 % of the compute limit"),
        (2.0, 2.1, 0.001, "no candidate was faster by more, torch at 48 % of the compute limit"),
        (1.05, 1.2, 0.01, "no candidate was faster by more, torch at 83 % of the compute limit"),
        (1.2, 1.05, 0.01, f"{BEHIND_TEXT}, torch at 95 % of the compute limit"),
    ],
    ids=["no room", "noise", "behind in noise", "nothing better", "room for the peer", "behind"],
)
def test_the_reason_of_the_worst(
    product: Make, stand: Make, ours: float, torch: float, spread: float, reason: str
) -> None:
    limit = {"device": "cuda:0", "limit": "compute", "value": 1e12, "unit": "FLOP/s"}
    rows = product("8x8x8", {"cuassay": ours, "torch": torch}, flops=10**12, bytes=1000, spread=spread)

    assert stand(("limit", limit), *rows).worst[0].reason == reason


def test_without_limits_a_reason_says_less(product: Make, stand: Make) -> None:
    summary = stand(*product("8x8x8", {"cuassay": 2.0, "torch": 1.0}))

    assert summary.worst[0].reason == BEHIND_TEXT
    assert summary.groups[0].fraction == "–"


def test_a_case_without_peers_is_left_out(product: Make, stand: Make) -> None:
    summary = stand(*product("8x8x8", {"cuassay": 2.0}), *product("9x9x9", {"cuassay": 2.0, "torch": 1.0}))

    assert summary.groups[0].count == 1


def test_other_timings_have_no_summary(write_rows: Make, device_row: Make, time_row: Make) -> None:
    results = load(write_rows("r1", device_row(), time_row(1.0), time_row(2.0, implementation="torch")))

    assert compared_with_best(results).empty
    assert peer_summaries(results) == []


def test_a_run_of_grouped_timings_does_not_hide_the_others(
    write_rows: Make, device_row: Make, time_row: Make, product: Make
) -> None:
    write_rows("r1", device_row(), time_row(1.0, benchmark="softmax"))
    results = load(write_rows("r2", device_row(), *product("8x8x8", {"cuassay": 1.0, "torch": 2.0})))

    text = render_text(build(results))

    assert "softmax" in text
    assert text.count("8x8x8") == 1


@pytest.mark.parametrize("render", [render_html, render_markdown, render_text])
def test_every_form_shows_it(render: Callable[..., str], write_rows: Make, device_row: Make, product: Make) -> None:
    rows = product("8x7x6 NT", {"cuassay": 2.0, "torch": 3.0}, "llama m<=128", choice="cuBLASLt, split-k 4")
    folder: Path = write_rows("r1", device_row(), *rows)

    text = render(build(load(folder)))

    for shown in ("8x7x6 NT", "1.500×", "cuBLASLt, split-k 4", "0.99"):
        assert shown in text
