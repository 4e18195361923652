"""Each place of the page shows its own number or word: small runs in which no two of them are alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from cuassay_reports.analysis import load
from cuassay_reports.attention import Attention, LastingChange, Suspect
from cuassay_reports.page import build
from cuassay_reports.render import render_html

Make = Callable[..., Any]


@pytest.fixture
def folder(write_rows: Make, device_row: Make, test_row: Make, time_row: Make) -> Path:
    """Two runs: one test fails in both and one in the second alone, a skip is new, a timing is slower."""
    old, new = (
        test_row("failed", nodeid="t.py::old"),
        test_row("failed", nodeid="t.py::fresh", reproduce="pytest again"),
    )
    write_rows("r1", device_row(), old, test_row(nodeid="t.py::fresh"), test_row(nodeid="t.py::left"), time_row(1.0))
    passed = [test_row(nodeid=f"t.py::ok[{number}]", dtype="int32", headroom=0.25) for number in range(1200)]
    skipped = [test_row("skipped", nodeid=f"t.py::skip[{number}]", reason="no fp8", check="out") for number in range(3)]
    left = test_row("skipped", nodeid="t.py::left", reason="no graphs", dtype="int8", op="gelu")
    known = test_row("xfailed", nodeid="t.py::known", dtype="float64", reason="one ulp off")
    absent = "device", {"device": "cuda:1", "present": False, "reason": "1 CUDA device is visible"}
    present = device_row()[0], {**device_row()[1], "missing": {"peer_access": "one GPU"}}
    limit = "limit", {"device": "cuda:0", "limit": "bandwidth", "value": 4e12, "unit": "B/s", "how": "copy of 1 GiB"}
    times = [
        time_row(1.5, spread=0.1, bytes=3 * 10**12),
        time_row(0.1, case="9x9", bytes=8 * 10**11),
        time_row(2.5, clock="host"),
        time_row(3.0, implementation="torch"),
    ]
    return write_rows(
        "r2", present, absent, limit, old, new, *passed, *skipped, left, known, *times, command="cuassay run here"
    )


@pytest.fixture
def page(folder: Path) -> str:
    (folder / "cut.jsonl").write_text('{"record":"run"')
    (folder / "wrong.jsonl").write_text("nonsense\n" * 23)
    (folder / "wrong_lines.jsonl").write_text('{"record": "later"}\n' + "nonsense\n" * 23)
    return render_html(build(load(folder)))


def part(page: str, name: str) -> str:
    """One section of the page, on one line, with single spaces."""
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    return " ".join((found[0] if found else "").split())


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without their markup."""
    cells = (re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>.*?</tr>", text))
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in row] for row in cells]


def test_the_head_counts_what_the_runs_hold(page: str) -> None:
    figures = re.findall(r'<dt>([\w ]+)</dt><dd class="(\w+)">([\d,]+)</dd>', page)

    assert figures == [
        ("device", "plain", "1"), ("passed", "good", "1,200"), ("failed", "bad", "2"), ("known failure", "warn", "1"),
        ("skipped", "muted", "4"), ("timings", "plain", "4"), ("slower", "warn", "1"), ("faster", "muted", "0"),
    ]  # fmt: skip
    assert '<h1><span class="mark bad" aria-hidden="true">✕</span>2 tests failed on cuda:0</h1>' in page
    assert "default-src &#39;none&#39;; style-src" in page or "default-src 'none'; style-src" in page


def test_a_clean_run_has_the_sign_of_one(write_rows: Make, device_row: Make, test_row: Make) -> None:
    page = render_html(build(load(write_rows("r1", device_row(), test_row()))))

    assert '<span class="mark good" aria-hidden="true">✓</span>Everything that ran passed' in page


def test_a_card_holds_the_facts_of_its_device_alone(page: str) -> None:
    present, absent = part(page, "devices").split("</article>")[:2]

    assert re.findall(r'<i class="(\w+)" style="flex:(\d+)">', present) == [
        ("failed", "2"), ("passed", "1200"), ("xfailed", "1"), ("skipped", "4")
    ]  # fmt: skip
    for text in ("2 failed", "1,200 passed", "1 known failure", "4 skipped"):
        assert f">{text}</span>" in present
    assert "<dt>bandwidth</dt><dd>4.00 TB/s (copy of 1 GiB)</dd>" in present
    assert "Lacks 1 capability</summary>" in present
    assert '<dt class="mono">peer_access</dt><dd>one GPU</dd>' in present
    assert '<p class="soft">1 CUDA device is visible</p>' in absent
    assert 'class="card absent"' in absent
    assert "Lacks" not in absent


def test_a_failure_says_whether_it_is_new_and_how_to_run_it(page: str) -> None:
    old, fresh = part(page, "failures").split("</article>")[:2]

    assert ("badge bad" in old, "badge bad" in fresh) == (False, True)
    assert ("<pre" in old, '<pre class="shell">pytest again</pre>' in fresh) == (False, True)
    assert '<p class="id mono">t.py::old</p>' in old


@pytest.mark.parametrize(
    ("timeline", "is_linked"),
    [
        ("pages/test_x-1a2b.html", True),
        ("../pages/t.html", True),
        ("", False),
        ("javascript:alert(1).html", False),
        ("../../etc/t.html", False),
        ("//host/t.html", False),
    ],
)
def test_a_failure_links_the_page_of_its_timeline(
    write_rows: Make, test_row: Make, timeline: str, is_linked: bool
) -> None:
    failed = test_row("failed", timeline=timeline) if timeline else test_row("failed")

    shown = part(render_html(build(load(write_rows("r1", failed)))), "failures")

    assert (f'<a href="{timeline}">Timeline</a>' in shown) is is_linked
    assert (">Timeline<" in shown) is is_linked


def test_failures_are_folded_behind_the_twelfth(write_rows: Make, test_row: Make) -> None:
    failed = [test_row("failed", nodeid=f"t.py::test[{number}]") for number in range(14)]

    shown = part(render_html(build(load(write_rows("r1", *failed)))), "failures").split('<details class="more">')

    assert [text.count("<article") for text in shown] == [12, 2]


def test_a_picture_of_the_errors_stands_with_its_failure(folder: Path) -> None:
    shown = build(load(folder))
    drawn = replace(shown, failures=[replace(shown.failures[0], picture=Markup("<svg>drawn</svg>"))])

    assert "<svg>drawn</svg>" in part(render_html(drawn), "failures")


def test_a_cell_shows_its_state_and_why(page: str) -> None:
    grid = part(page, "support").partition("<tbody>")[2]

    found = re.findall(r'class="s ([\w-]+)" role="img" aria-label="([\w ]+)" title="([^"]*)">(.)<', grid)
    assert found[:4] == [
        ("not-run", "not run", "softmax int8: not run", "·"),
        ("passed", "passed", "softmax int32: 1200 passed worst error 25 % of tolerance", "✓"),
        ("failed", "failed", "softmax float32: 2 failed, 3 skipped no fp8", "✕"),
        ("xfailed", "xfailed", "softmax float64: 1 xfailed one ulp off", "!"),
    ]
    assert found[4][0] == "skipped"


def test_a_timing_has_each_number_in_its_column(page: str) -> None:
    _, first, second = rows(part(page, "timings"))

    assert first == ["softmax", "float32 8x8", "1.50 s", "± 5 %", "2.50 s", "2.00 TB/s", "50 %", "▴ +50.0 % slower",
                     "", "torch 2.00×"]  # fmt: skip
    assert second == ["float32 9x9", "100 ms", "± 0.5 %", "", "8.00 TB/s", "200 %", "new", "", ""]


def test_what_is_hovered_over_says_why(page: str) -> None:
    timings = part(page, "timings")

    assert timings.count('title="slower: +50.0%, beyond the spread of 10.0%"') == 2  # in the list, and in the table
    assert 'rowspan="2">softmax' in timings
    assert '<span class="bar" aria-hidden="true"><i style="width:50%">' in timings
    assert '<span class="bar over" aria-hidden="true"><i style="width:100%">' in timings
    assert 'title="of the measured bandwidth">50 %' in timings
    assert 'title="above the measured bandwidth: the data stayed in a cache' in timings
    assert '<span class="peer faster" title="ours is faster' in timings
    assert '<p class="small">Compared with run r1.</p>' in timings


@pytest.mark.parametrize(("count", "shown", "more"), [(12, 12, ""), (15, 12, "and 3 more below")])
def test_a_dozen_changes_are_listed(folder: Path, count: int, shown: int, more: str) -> None:
    page = build(load(folder))

    listed = part(render_html(replace(page, changed=page.changed * count)), "timings").partition("</ul>")[0]

    assert listed.count('<span class="verdict') == shown
    assert more in listed
    assert listed.count("more below") == bool(more)


def test_what_did_not_run_is_counted_by_reason(page: str) -> None:
    skips = part(page, "skips")

    assert "1 test that ran in the run before is skipped now." in skips
    assert '<span class="mono">t.py::left</span> <span class="soft">no graphs</span>' in skips
    assert "4 tests ran on no device at all." in skips
    assert rows(skips)[1:] == [["3", "no fp8", "softmax", "cuda:0"], ["1", "no graphs", "gelu", "cuda:0"]]


def test_the_end_names_runs_files_and_what_could_not_be_read(page: str) -> None:
    origin = part(page, "origin")

    assert rows(origin)[1][:3] == ["2026-01-02 12:00 UTC", "unknown revision", "cuassay run here"]
    assert "not a file of results: none of its 23 lines is a row of a result" in origin
    assert "25 lines or files left out" in origin
    assert origin.count("this line is not JSON") == 18  # and one that is, of a record that is not known
    assert "and 5 more</li>" in origin
    assert "1 unfinished last line ignored" in page


SLOWDOWN = LastingChange(
    benchmark="gemm", what="8x8", device="cuda:0", change="+9 %", level="1.1 ms", noise="0.3 %", since="c0ffee",
    before="beef", started="2026-01-02", points=3, acknowledged="known", plot=Markup(),
)  # fmt: skip
SUSPECT = Suspect(
    benchmark="gemm", what="8x8", device="cuda:0", change="+4 %", deviations="7 deviations",
    kind="jump", is_slower=True, is_ours=True, before="beef", commit="c0ffee",
)  # fmt: skip
NOTHING: dict[str, Any] = {
    **dict.fromkeys(("slowdowns", "acknowledged", "faster", "suspects", "vanished", "new", "noise"), ()), "shift": ""
}  # fmt: skip


def with_attention(folder: Path, **found: Any) -> str:
    noted = Attention(**NOTHING | found)
    return part(render_html(replace(build(load(folder)), attention=noted)), "attention")


def test_a_slow_down_that_stands_is_told_whole(folder: Path) -> None:
    text = with_attention(folder, slowdowns=[SLOWDOWN], shift="+2 %")

    assert "The newest run as a whole moved +2 %" in text
    assert "▴ +9 %</span> <b>gemm</b>" in text
    assert (
        "now 1.1 ms, since <code>c0ffee</code> (2026-01-02), 3 runs there, noise 0.3 %; last good <code>beef</code>. "
        "Acknowledged: known</p>"
    ) in text


@pytest.mark.parametrize(("count", "lists", "told"), [(12, [12], ""), (13, [12, 1], "1 more</summary>")])
def test_a_dozen_slow_downs_are_shown_at_once(folder: Path, count: int, lists: list[int], told: str) -> None:
    text = with_attention(folder, slowdowns=[SLOWDOWN] * count)

    assert [shown.count("<li>") for shown in text.split('<details class="more">')] == lists
    assert told in text


@pytest.mark.parametrize(("count", "shown", "more"), [(24, 24, ""), (26, 24, "and 2 more")])
def test_suspects_are_listed_up_to_24(folder: Path, count: int, shown: int, more: str) -> None:
    text = with_attention(folder, suspects=[SUSPECT] * count)

    assert text.count('<span class="verdict ambiguous" title="7 deviations">+4 %') == shown
    assert text.count('<li class="soft">and ') == bool(more)
    assert more in text


def test_a_benchmark_that_vanished_is_a_warning_and_a_new_one_is_none(folder: Path) -> None:
    text = with_attention(folder, vanished=["gone"], new=["a", "b"])

    assert '<details class="warn"><summary>1 benchmark vanished</summary><ul><li class="mono">gone</li>' in text
    assert "<details><summary>2 benchmarks new</summary>" in text
