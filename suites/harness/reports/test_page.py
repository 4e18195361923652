"""The page, the short forms, and the command that writes them."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuassay_reports import units
from cuassay_reports.analysis import load
from cuassay_reports.charts import sparkline
from cuassay_reports.command import main, run
from cuassay_reports.page import build
from cuassay_reports.render import render_html, render_markdown, render_text

Make = Callable[..., Any]

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Outline(html.parser.HTMLParser):
    """Collects ids, links to them, and whether every tag is closed by its own."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.add(tag)
        self.ids += [values["id"]] if values.get("id") else []
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(demo: Path) -> str:
    return render_html(build(load(demo)))


def test_the_page_is_well_formed_and_its_links_lead_somewhere(page: str) -> None:
    outline = Outline(page)

    assert outline.open == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)


def test_the_page_asks_for_nothing_and_runs_its_own_script_only(page: str) -> None:
    outline = Outline(page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    assert all(link.startswith("#") for link in outline.links)
    assert not outline.tags & {"link", "img", "iframe"}
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    assert not re.search(r"url\(|@import|https?://", page)


def test_the_page_puts_the_verdict_first_then_devices_failures_support_timings_skips(page: str) -> None:
    order = [
        page.index(text)
        for text in ("<h1", 'id="devices"', 'id="failures"', 'id="support"', 'id="timings"', 'id="skips"')
    ]

    assert order == sorted(order)
    assert "2 tests failed on cuda:0" in page[order[0] : order[1]]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1 CUDA device is visible", id="why-a-device-is-absent"),
        pytest.param("--cuassay-seed 2026", id="reproduction-line"),
        pytest.param("worst at (17, 511)", id="whole-message"),
        pytest.param("NVIDIA H200", id="device-name"),
        pytest.param("4.31 TB/s (copy of 1 GiB)", id="measured-limit"),
        pytest.param("softmax does not claim float8_e4m3fn", id="skip-reason"),
        pytest.param("6b2f7c19e0 + changes", id="revision"),
        pytest.param("cupy <b>", id="peer"),
    ],
)
def test_the_page_shows(page: str, text: str) -> None:
    assert text in page


def test_an_error_of_set_up_is_a_failure(write_rows: Make, test_row: Make) -> None:
    page = build(load(write_rows("r1", test_row("error", reason="no set-up"), test_row(device="cpu:0"))))

    assert (page.tone, page.headline) == ("bad", "1 test failed on cuda:0")
    assert [failure.reason for failure in page.failures] == ["no set-up"]


HOSTILE = "<script>alert(1)</script>\"'&{{ 7*7 }}|`"


COUNTS = ("killed", "survived", "uncovered")
JUDGED = "declaration candidate digest device reason nonce message cheats weak probes jail reproduce check".split()


@pytest.fixture
def hostile(write_rows: Make, test_row: Make, time_row: Make, device_row: Make) -> Path:
    names = {"device": HOSTILE, "dtype": HOSTILE}
    device = device_row(HOSTILE, name=HOSTILE, versions={HOSTILE: HOSTILE})[1]
    missing = {**device, "missing": {HOSTILE: HOSTILE}}
    texts = dict.fromkeys(("nodeid", "op", "check", "reason", "message", "reproduce"), HOSTILE)
    timed = {**names, "case": HOSTILE, "benchmark": HOSTILE, "bytes": 8}
    rows = [
        ("device", missing),
        test_row("failed", **names, **texts),
        test_row("skipped", **names, **{**texts, "nodeid": HOSTILE + "2"}),
        time_row(1.0, **timed),
        time_row(1.0, **{**timed, "implementation": HOSTILE}),
        ("limit", {"device": HOSTILE, "limit": "bandwidth", "value": 9.0, "unit": "B/s", "how": HOSTILE}),
        ("verdict", dict.fromkeys(JUDGED, HOSTILE) | {"tier": "program", "verdict": "wrong"}),
        ("mutation", {"source": HOSTILE, "function": HOSTILE, "survivors": HOSTILE, **dict.fromkeys(COUNTS, 1)}),
    ]
    write_rows("r1", *rows)
    return write_rows("r2", *rows, command=HOSTILE, commit=HOSTILE)


def test_nothing_from_a_file_becomes_markup(hostile: Path) -> None:
    page = render_html(build(load(hostile)))

    assert page.count("<script") == 1  # ours
    assert Outline(page).open == []


def test_template_braces_in_a_file_are_text(hostile: Path) -> None:
    assert "49" not in re.sub(r"<(style|script)>.*?</\1>", "", render_html(build(load(hostile))), flags=re.DOTALL)


def test_a_pipe_in_a_file_does_not_add_a_column_to_a_markdown_table(hostile: Path) -> None:
    lines = [line for line in render_markdown(build(load(hostile))).splitlines() if line.startswith("|")]
    tables = "\n".join(lines).split("|:--")

    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if "script" in line}
    assert len(tables) > 1
    assert widths == {4, 6}
    assert not any(re.search(r"(?<![\\`])<script", line.partition("`")[0]) for line in lines)


def test_a_page_of_a_run_without_anything_in_it_says_so(write_rows: Make) -> None:
    page = render_html(build(load(write_rows("r1"))))

    assert Outline(page).open == []
    assert "No device was recorded" in page


def test_what_the_user_named_has_its_peers_next_to_it_and_its_verdict_counts(
    write_rows: Make, device_row: Make, time_row: Make
) -> None:
    for name, median in (("r1", 1.0), ("r2", 2.0)):
        mine = time_row(median, implementation="mine", ours=True)
        folder = write_rows(name, device_row(), mine, time_row(1.0, implementation="dot"))

    (section,) = build(load(folder)).timings
    (row,) = section.rows
    assert ([peer.name for peer in row.peers], section.slower) == (["dot"], 1)


def test_a_clean_run_is_called_passed_and_a_slower_one_is_not(
    write_rows: Make, device_row: Make, test_row: Make, time_row: Make
) -> None:
    folder = write_rows("r1", device_row(), test_row(), time_row(1.0))
    clean = render_text(build(load(folder)))
    write_rows("r2", device_row(), test_row(), time_row(1.5))

    assert clean.startswith("Everything that ran passed, on 1 device\n")
    slower = render_text(build(load(folder)))
    assert slower.startswith("Everything that ran passed; 1 timing got slower\n")
    assert "\n  Compared with " in slower


@pytest.mark.parametrize(("outcome", "told"), [("passed", ""), ("failed", "; 1 test failed on cuda:0")])
def test_a_run_that_was_interrupted_is_not_called_passed(
    write_rows: Make, device_row: Make, test_row: Make, outcome: str, told: str
) -> None:
    end = "end", {"reason": "interrupted"}
    folder = write_rows("r1", device_row(), test_row(outcome, device="cuda:0"), end)

    page = build(load(folder))

    assert (page.tone, page.headline) == ("bad", f"The run is incomplete: interrupted{told}")


def test_a_later_run_that_recorded_nothing_is_incomplete(write_rows: Make, device_row: Make, test_row: Make) -> None:
    write_rows("r1", device_row(), test_row())
    folder = write_rows("r2", ("plan", {"part": "tests", "process": 1, "tests": 3}))

    page = build(load(folder))

    assert page.tone == "bad"
    assert page.headline.startswith("The run is incomplete: process 'tests' did not finish")
    assert [one.run for one in page.unfinished] == ["r2"]


def test_an_interruption_of_an_older_run_is_past(write_rows: Make, device_row: Make, test_row: Make) -> None:
    write_rows("r1", device_row(), test_row(), ("end", {"reason": "interrupted"}))
    folder = write_rows("r2", device_row(), test_row())

    assert render_text(build(load(folder))).startswith("Everything that ran passed")


@pytest.mark.parametrize(("count", "folded"), [(12, ""), (14, "2 more failures")])
def test_many_failures_are_folded_so_that_what_follows_is_seen(
    write_rows: Make, device_row: Make, test_row: Make, count: int, folded: str
) -> None:
    failed = [test_row("failed", nodeid=f"t.py::test[{number}]", reason="wrong") for number in range(count)]

    page = render_html(build(load(write_rows("r1", device_row(), *failed))))

    outline = Outline(page)
    assert outline.open == []
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)
    assert page.count('<article class="failure">') == count
    assert ('<details class="more">' in page) is bool(folded)
    assert folded in page


def test_a_terminal_gets_ten_failures_and_the_number_of_the_others(write_rows: Make, test_row: Make) -> None:
    failed = [test_row("failed", nodeid=f"t.py::test[{number}]", reason="wrong") for number in range(12)]

    shown = render_text(build(load(write_rows("r1", *failed))))

    assert shown.count("FAILED ") == 10
    assert "and 2 more failures; the page (--html) has all" in shown


def test_a_refused_comparison_names_the_change_on_the_page(write_rows: Make, device_row: Make, time_row: Make) -> None:
    write_rows("r1", device_row(driver="580.65"), time_row(1.0))

    page = render_html(build(load(write_rows("r2", device_row(driver="590.12"), time_row(1.0)))))

    assert "Not compared: driver 580.65 -&gt; 590.12" in page


def test_host_and_device_time_of_a_case_share_a_row(write_rows: Make, device_row: Make, time_row: Make) -> None:
    page = render_html(build(load(write_rows("r1", device_row(), time_row(2e-6), time_row(9e-6, clock="host")))))

    assert page.count("2.00 µs") == 1
    assert page.count("9.00 µs") == 1
    assert page.count('scope="rowgroup" rowspan="1"') == 1


def test_a_peer_alone_has_a_row_of_its_own(write_rows: Make, time_row: Make) -> None:
    page = render_html(build(load(write_rows("r1", time_row(2e-6, implementation="torch")))))

    assert '<span class="badge plain">torch</span>' in page


def test_markdown_lists_failures_and_what_changed(demo: Path) -> None:
    text = render_markdown(build(load(demo)))

    assert text.lstrip().startswith("## ❌ 2 tests failed on cuda:0")
    assert "### Timings that changed on cuda:0" in text
    assert "| `layer_norm` |" in text


def test_the_command_writes_both_forms_and_makes_their_folders(demo: Path, tmp_path: Path) -> None:
    page, short = tmp_path / "out" / "r.html", tmp_path / "out" / "r.md"

    assert main([str(demo), "--html", str(page), "--md", str(short)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert short.read_text(encoding="utf-8").startswith("## ")


def test_the_command_prints_a_summary_where_no_file_is_named(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([demo]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith("2 tests failed on cuda:0\n")
    assert "matmul" in printed


@pytest.mark.parametrize("content", [None, "nonsense\nnonsense\n"], ids=["absent", "broken"])
def test_unreadable_input_ends_with_two_and_the_reason(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.jsonl"
    if content is not None:
        path.write_text(content)

    assert run([path]) == 2
    assert "r.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5e-5, "s", "15.0 µs"),
        (9.996e-7, "s", "1.00 µs"),
        (0.0, "s", "0.00 ns"),
        (8.3e-6, "virtual s", "8.30 virtual µs"),
        (4.31e12, "B/s", "4.31 TB/s"),
        (6.6e14, "FLOP/s", "660 TFLOP/s"),
        (512.0, "B", "512 B"),
        (1.5 * 2**30, "B", "1.50 GiB"),
        (math.nan, "s", "–"),
    ],
)
def test_numbers_have_three_digits_and_a_fitting_unit(value: float, unit: str, text: str) -> None:
    assert units.quantity(value, unit) == text


@pytest.mark.parametrize(("value", "text"), [(0.87, "87 %"), (0.05, "5 %"), (0.004, "0.4 %"), (math.inf, "–")])
def test_shares_keep_a_digit_only_below_one_percent(value: float, text: str) -> None:
    assert units.percent(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.031, "+3.1 %"), (-0.1, "−10.0 %"), (-0.0001, "0.0 %")])
def test_changes_carry_a_true_sign_and_zero_none(value: float, text: str) -> None:
    assert units.signed_percent(value) == text


@pytest.mark.parametrize(
    "values", [[], [1.0], [1.0, math.nan], [0.0, -1.0]], ids=["none", "one", "nan", "not-positive"]
)
def test_a_line_needs_two_points(values: list[float]) -> None:
    assert sparkline(values, "label") == ""


def test_a_line_goes_up_when_the_values_do() -> None:
    svg = sparkline([1.0, 1.0, 2.0], 'say "hi"')

    heights = [float(point.partition(",")[2]) for point in re.search(r'points="([^"]*)"', svg)[1].split()]
    assert heights[0] == heights[1] > heights[2]
    assert "&#34;hi&#34;" in svg


def test_a_terminal_gets_peers_and_medians_in_one_column(write_rows: Make, device_row: Make, time_row: Make) -> None:
    rows = time_row(1.0), time_row(2.0, implementation="torch"), time_row(3.0, case="other", unit="virtual s")

    shown = render_text(build(load(write_rows("r1", device_row(), *rows)))).splitlines()

    ours, peer, virtual = (next(line for line in shown if word in line) for word in ("1.00 s", "torch", "virtual"))
    assert peer.strip() == "torch takes 2.00× as long"
    assert ours.index("1.00 s") + len("1.00 s") == virtual.index("virtual s") + len("virtual s")
    assert all(line == line.rstrip() for line in shown)


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_narrow_terminal_gets_whole_words_and_whole_commands(
    write_rows: Make, device_row: Make, time_row: Make, test_row: Make,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int,
) -> None:  # fmt: skip
    command = "CUASSAY_SEED=1 pytest --cuassay-device sim:0 " + " ".join(["'test_a.py::test_speed'"] * 9)
    failed = test_row(outcome="failed", reason="the values differ " * 9, reproduce=command)
    folder = write_rows("r1", device_row(), failed, time_row(1.0, case="many words in one case of a benchmark " * 4))
    wide = render_text(build(load(folder)))
    monkeypatch.setenv("COLUMNS", str(columns))

    run([folder])

    narrow = capsys.readouterr().out
    assert f"\n  {command}\n" in narrow
    assert max(len(line) for line in narrow.splitlines() if line.strip() != command) <= columns
    assert narrow.split() == wide.split()


def test_live_launches_and_host_times_are_told_next_to_queued_ones(
    write_rows: Make, device_row: Make, time_row: Make
) -> None:
    queued = time_row(1.0, launches="queued"), time_row(3.0, clock="host")
    live = time_row(2.0, case="waits", launches="live"), time_row(1.0, implementation="torch", launches="live")

    page = render_text(build(load(write_rows("r1", device_row(), *queued, *live))))

    assert page.count("live launches") == 1
