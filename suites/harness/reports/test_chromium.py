"""The page in a browser: the history of 200 runs of 300 benchmarks, with six steps, light, dark and on a phone."""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
import subprocess
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cuassay_reports.analysis import load
from cuassay_reports.page import build
from cuassay_reports.render import render_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not on PATH; the page is looked at in a browser"),
]

RUNS, BENCHMARKS = 200, 300

#: Benchmark to the run of its step and the factor.
PLANTED = {3: (60, 1.05), 17: (100, 1.03), 40: (150, 1.10), 77: (180, 1.02), 120: (120, 0.9), 200: (190, 1.2)}

#: What is asked of the page once it is drawn.
PROBE = """
const top = (found) => [...document.querySelectorAll(found)].map((one) => one.getBoundingClientRect().top);
const field = document.querySelector("input.filter");
const rows = () => [...document.querySelectorAll("table.timings tbody tr:not([hidden])")];
const all = rows().length;
field.value = "op77 float32"; field.dispatchEvent(new Event("input"));
const filtered = rows().map((row) => row.cells[0].textContent);
field.value = ""; field.dispatchEvent(new Event("input"));
const heads = [...document.querySelectorAll("table.timings thead button")];
heads.find((head) => head.textContent === "time").click();
const fastest = rows()[0].cells[0].textContent;
heads.find((head) => head.textContent === "time").click();
const slowest = rows()[0].cells[0].textContent;
const plot = document.querySelector("svg.history"), box = plot.getBoundingClientRect();
plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.right - 2 }));
const reading = plot.nextElementSibling.textContent;
const last = () => +[...plot.querySelectorAll("circle")].pop().getAttribute("cx");
const before = last();
plot.dispatchEvent(new PointerEvent("pointerdown", { clientX: box.left + box.width * 0.5 }));
plot.dispatchEvent(new PointerEvent("pointerup", { clientX: box.left + box.width * 0.75 }));
const zoomed = last();
plot.dispatchEvent(new MouseEvent("dblclick"));
const told = document.createElement("pre");
told.id = "told";
told.textContent = JSON.stringify({
  plots: top("ul.lasting svg.history"), wide: document.documentElement.scrollWidth, view: innerWidth,
  all, filtered, fastest, slowest, reading, before, zoomed, after: last(),
});
document.body.append(told);
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    dice = random.Random(5)  # noqa: S311  the same history each time
    facts = {"kind": "cuda", "name": "Example GPU", "driver": "580.1", "system": "Linux", "capability": "9.0"}
    lines = []
    for run in range(RUNS):
        started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=12 * run)
        named = {"schema": 1, "run": f"r{run:03}"}
        told = {"started": started.isoformat(timespec="seconds"), "commit": f"{run:08x}" * 5}
        lines += [{"record": "run", **named, **told}]
        lines += [{"record": "device", **named, "device": "cuda:0", "present": True, "fingerprint": facts}]
        lines += [{"record": "time", **named, **timing(number, run, dice)} for number in range(BENCHMARKS)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    path = folder / "report.html"
    path.write_text(render_html(build(load(folder))), encoding="utf-8")
    return path


def timing(number: int, run: int, dice: random.Random) -> dict[str, Any]:
    at, factor = PLANTED.get(number, (RUNS, 1.0))
    median = (10 + number) * 1e-6 * (factor if run >= at else 1.0) * dice.gauss(1.0, 0.003)
    figures = {"median": median, "q25": median * 0.998, "q75": median * 1.002, "n": 30}
    how = {"device": "cuda:0", "clock": "device", "implementation": "cuassay", "dtype": "float32"}
    return {"benchmark": f"op{number}", "case": f"{2 ** (number % 8)}x128", **how, **figures}


def chromium(page: Path, *options: str, wide: int = 1280, tall: int = 1600) -> str:
    fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={wide},{tall}"]
    command = [str(CHROMIUM), *fixed, f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture(scope="module", params=[(1280, 1600), (390, 844)], ids=["desktop", "phone"])
def told(request: pytest.FixtureRequest, page: Path) -> dict[str, Any]:
    """What the page answers to the probe, which the policy of the page itself would refuse."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", f"<script>{{{PROBE}}}</script></body>")
    wide, tall = request.param
    probed = page.with_name(f"probed-{wide}.html")
    probed.write_text(text, encoding="utf-8")
    found = re.search(r'<pre id="told">(.*?)</pre>', chromium(probed, "--dump-dom", wide=wide, tall=tall), re.DOTALL)
    assert found is not None
    answer: dict[str, Any] = json.loads(found[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
    return answer


def test_all_six_steps_are_drawn_near_the_top(told: dict[str, Any]) -> None:
    assert len(told["plots"]) == len(PLANTED)
    assert max(told["plots"]) < (1400 if told["view"] > 600 else 2200)


def test_the_page_is_as_wide_as_the_window(told: dict[str, Any]) -> None:
    assert told["wide"] <= told["view"]


def test_the_script_filters_and_sorts_the_timings(told: dict[str, Any]) -> None:
    assert told["all"] == BENCHMARKS
    assert told["filtered"] == ["op77"]
    assert told["fastest"] == "op0"
    assert told["slowest"] in ("op298", "op299")  # nearer to one another than their noise


def test_a_history_is_read_by_pointing_and_zoomed_by_dragging(told: dict[str, Any]) -> None:
    assert told["reading"].startswith(f"{RUNS - 1:08x}")
    assert told["zoomed"] > told["before"]
    assert told["after"] == told["before"]


def test_the_script_runs_under_the_policy_of_the_page(page: Path) -> None:
    assert 'class="filter"' in chromium(page, "--dump-dom")


@pytest.mark.parametrize(("scheme", "is_dark"), [(0, True), (1, False)], ids=["dark", "light"])
def test_the_page_follows_the_colours_of_the_reader(page: Path, tmp_path: Path, scheme: int, is_dark: bool) -> None:
    picture = tmp_path / "page.png"

    chromium(page, f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}", tall=400)

    assert (first_pixel(picture) < 128) == is_dark


def first_pixel(picture: Path) -> int:
    """The red of the first pixel of a PNG: its first row has no row above to be relative to."""
    data = picture.read_bytes()
    place, packed = 8, b""
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        if data[place + 4 : place + 8] == b"IDAT":
            packed += data[place + 8 : place + 8 + size]
        place += size + 12
    return zlib.decompress(packed)[1]
