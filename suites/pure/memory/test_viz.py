"""The page of a snapshot: its figures, its pictures, that it needs no other file; and the command that writes it."""

from __future__ import annotations

import html.parser
import json
import random
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from cuassay import cli
from cuassay.memory import CachingAllocator, HostAllocator, IntegerSource
from cuassay.memory.snapshot import dump
from cuassay.observe.timeline import render
from cuassay.observe.usage import COLUMNS, EARLIER, HOST, OTHERS, SITES, Usage, site_of, usages

MIB = 2**20


class Page(html.parser.HTMLParser):
    """What a page holds: figures by id, rows of the tables, rectangles, links to elsewhere, elements left open."""

    VOID = frozenset(("meta", "rect", "br"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.figures: dict[str, int] = {}
        self.rows: list[list[str]] = []
        self.rects: list[dict[str, str | None]] = []
        self.paths: list[str] = []
        self.elsewhere: list[str] = []
        self.open: list[str] = []
        self.text: dict[str, str] = {}
        self._id = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if "id" in found:
            self._id = str(found["id"])
            if "data-bytes" in found:
                self.figures[self._id] = int(str(found["data-bytes"]))
        self.elsewhere += [f"{tag} {name}" for name in ("src", "href", "xlink:href") if name in found]
        if tag == "tr":
            self.rows.append([])
        if tag == "td" and "data-bytes" in found:
            self.rows[-1].append(str(found["data-bytes"]))
        if tag == "rect":
            self.rects.append(found)
        if tag == "path":
            self.paths.append(str(found["d"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open and data.strip() and self.rows:
            self.rows[-1].append(data.strip())
        if "script" in self.open:
            self.text.setdefault(self._id, data)

    def site(self, function: str) -> list[str]:
        """The row of the call site in that function."""
        return next(row for row in self.rows if row and row[0].endswith(f" {function}"))


def weights(allocator: CachingAllocator) -> Any:
    return allocator.malloc(30 * MIB)


def activations(allocator: CachingAllocator) -> Any:
    return allocator.malloc(12 * MIB)


@pytest.fixture
def snapshot(allocator: CachingAllocator) -> dict[str, Any]:
    """Weights stay; activations come and go twice, three at a time; one block is from before."""
    allocator.malloc(20 * MIB)
    allocator.record_history()
    weights(allocator)
    for _ in range(2):
        for block in [activations(allocator) for _ in range(3)]:
            allocator.free(block)
    activations(allocator)
    return allocator.snapshot()


# ------------------------------------------------------------------------------------------------ figures


def test_the_page_holds_the_peak_and_what_each_call_site_held_then(snapshot: dict[str, Any]) -> None:
    page = Page(render(snapshot))

    assert page.figures["peak-device-0"] == (20 + 30 + 36) * MIB
    at_peak, most = page.site("weights")[1], page.site("weights")[3]
    assert (int(at_peak), int(most)) == (30 * MIB, 30 * MIB)
    assert int(page.site("activations")[1]) == 36 * MIB
    assert page.site("activations")[-1] == "7"
    assert int(next(row for row in page.rows if row and row[0] == EARLIER)[1]) == 20 * MIB


def test_the_page_stands_alone_and_is_well_formed(snapshot: dict[str, Any]) -> None:
    text = render(snapshot, "a <title> & more")
    page = Page(text)

    assert page.elsewhere == []
    assert page.open == []
    assert not re.search(r"https?://|@import|url\(|fetch\(", text)
    assert "<title>a &lt;title&gt; &amp; more</title>" in text
    assert "prefers-color-scheme:dark" in text


def test_the_timeline_has_an_area_a_call_site_and_the_reserved_line(snapshot: dict[str, Any]) -> None:
    page = Page(render(snapshot))
    (usage,) = usages(snapshot)

    assert len(page.paths) == len(usage.sites) + 1
    for path in page.paths[:-1]:
        assert (path[0], path[-1]) == ("M", "Z")
        assert all(-1 <= float(y) <= 301 for y in re.findall(r",(-?[\d.]+)", path))


def test_every_block_is_drawn_and_tells_who_asked(allocator: CachingAllocator, snapshot: dict[str, Any]) -> None:
    page = Page(render(snapshot))
    data = json.loads(page.text["blocks"])

    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    assert len(page.rects) == len(data["blocks"]) == len(blocks)
    live = {block["address"]: block for block in blocks if block["frames"]}
    for text, stack in data["blocks"]:
        address = int(text.partition(":")[0], 16)
        assert bool(data["stacks"][stack]) == (address in live)
    assert any("weights" in line for stack in data["stacks"] for line in stack)
    for segment in snapshot["segments"]:
        assert f'data-segment="{segment["address"]:#x}"' in render(snapshot)


def test_names_from_elsewhere_cannot_leave_their_place(snapshot: dict[str, Any]) -> None:
    evil = '</script><script>alert("1")</script>'
    for event in snapshot["device_traces"][0]:
        event["frames"] = [{"filename": evil, "line": 1, "name": evil}]
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            block["frames"] = [{"filename": evil, "line": 1, "name": evil}]

    text = render(snapshot, evil)

    assert text.count("<script") == 2
    assert Page(text).open == []


def test_torchs_own_words_are_understood(snapshot: dict[str, Any]) -> None:
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            block["state"] = block["state"].replace("active_pending_free", "active_awaiting_free")
    snapshot["device_traces"].append([])

    assert Page(render(snapshot)).figures["peak-device-0"] == 86 * MIB


def test_pinned_host_memory_has_its_own_pictures(snapshot: dict[str, Any]) -> None:
    host = HostAllocator(IntegerSource(granularity=0), config="")
    host.record_history()
    weights(host)
    held = host.snapshot()

    page = Page(render(snapshot | {"host_segments": held["segments"], "host_traces": held["device_traces"]}))

    assert page.figures == {"peak-device-0": 86 * MIB, "peak-pinned-host-memory": 30 * MIB}


def test_a_snapshot_without_events_or_memory_still_is_a_page(allocator: CachingAllocator) -> None:
    empty = render(allocator.snapshot())
    allocator.malloc(3 * MIB)
    still = Page(render(allocator.snapshot()))

    assert "nothing was taken" in empty
    assert still.figures["peak-device-0"] == 3 * MIB
    assert len(still.rects) == 2


# ------------------------------------------------------------------------------------------------ usage


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
def test_columns_keep_the_peak_and_add_up(granularity: int) -> None:
    """A random program of 2 * 10^4 events: every column adds up to at most the peak, one of them is it."""
    allocator = CachingAllocator(IntegerSource(granularity=granularity), config="")
    chance, live, total, peak = random.Random(5), [], 0, 0  # noqa: S311
    allocator.record_history(context="state")
    for _ in range(10_000):
        if live and chance.random() < 0.5:
            block = live.pop(chance.randrange(len(live)))
            total -= block.nbytes
            allocator.free(block)
        else:
            live.append(allocator.malloc(chance.randrange(1, 4 * MIB)))
            total += live[-1].nbytes
            peak = max(peak, total)

    (usage,) = usages(allocator.snapshot())

    sums = [sum(column) for column in usage.columns]
    assert usage.peak == max(sums) == peak
    assert sums[-1] == total
    assert len(usage.columns) <= COLUMNS + 1
    assert list(usage.times) == sorted(usage.times)
    assert max(usage.reserved) == allocator.statistics().reserved_bytes.all.peak


def frames_of(site: str) -> list[dict[str, Any]]:
    return [{"filename": f"/x/{site}.py", "line": 1, "name": site}]


def traced(*moves: tuple[int, int, str]) -> list[dict[str, Any]]:
    """Events of (microseconds, bytes, site): what a site asked for, or, negative, gave back; what it never asked for
    is from before.
    """
    events: list[dict[str, Any]] = []
    live: dict[str, list[int]] = {}
    for number, (time, nbytes, site) in enumerate(moves, start=1):
        event = {"time_us": time, "size": abs(nbytes), "stream": 0, "frames": frames_of(site)}
        if nbytes > 0:
            live.setdefault(site, []).append(number * MIB)
            events.append({**event, "action": "alloc", "addr": number * MIB})
        else:
            before = live.get(site) or [-number * MIB]
            events.append({**event, "action": "free_completed", "addr": before.pop()})
    return events


def used(*moves: tuple[int, int, str], **parts: Any) -> Usage:
    (usage,) = usages({"segments": [], "device_traces": [traced(*moves)], **parts})
    return usage


def test_a_site_keeps_its_own_most_and_what_it_held_at_the_first_peak() -> None:
    usage = used((100, 3, "f"), (110, 2, "g"), (120, -3, "f"), (130, 1, "f"), (140, 2, "h"), (150, -2, "h"))

    assert (usage.peak, usage.peak_us, usage.events) == (5, 10, 6)
    assert {site.name.split()[-1]: (site.most, site.at_peak, site.requests) for site in usage.sites} == {
        "f": (3, 3, 2),
        "g": (2, 2, 1),
        "h": (2, 0, 1),
    }


def test_what_is_given_back_unasked_was_there_before() -> None:
    usage = used((0, 3, "f"), (10, -4, "before"), (20, 1, "f"))

    assert (usage.peak, sum(usage.columns[0])) == (7, 7)
    assert {site.name: site.most for site in usage.sites}[EARLIER] == 4


def test_what_other_streams_still_use_is_held(allocator: CachingAllocator) -> None:
    block = allocator.malloc(3 * MIB)
    allocator.record_stream(block, 7)
    allocator.free(block)

    (usage,) = usages(allocator.snapshot())

    assert usage.peak == 3 * MIB


@pytest.mark.parametrize("actions", [("segment_alloc", "segment_free"), ("segment_map", "segment_unmap")])
def test_what_is_reserved_at_a_moment_counts_what_came_then(actions: tuple[str, str]) -> None:
    trace = traced((5, 3, "f"), (5000, 2, "g"))
    taken = {"action": actions[0], "addr": 0, "size": 20, "stream": 0, "frames": [], "time_us": 5}
    given = {**taken, "action": actions[1], "size": 8, "time_us": 5000}

    (usage,) = usages({"segments": [], "device_traces": [[taken, trace[0], given, trace[1]]]})

    assert (usage.reserved[0], usage.reserved[-1]) == (20, 12)


def test_host_memory_of_which_nothing_is_left_is_told_too() -> None:
    found = usages({"segments": [], "device_traces": [], "host_traces": [traced((0, 3, "f"), (1, -3, "f"))]})

    assert [(usage.name, usage.peak) for usage in found] == [(HOST, 3)]


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (("/x/site-packages/torch/a.py", "/home/me/train.py"), "me/train.py"),
        (("/x/site-packages/torch/a.py", "/x/site-packages/lib/b.py"), "torch/a.py"),
    ],
    ids=["own below a library", "libraries alone"],
)
def test_a_site_is_the_innermost_line_of_ones_own(files: tuple[str, ...], name: str) -> None:
    assert site_of([{"filename": file, "line": 7, "name": "run"} for file in files]) == f"{name}:7 run"


def test_the_others_keep_their_most_together() -> None:
    named = [(time, 10, f"f{time}") for time in range(SITES)]

    usage = used(*named, (50, 3, "x"), (60, 2, "y"), (70, -3, "x"), (80, 1, "z"))

    assert (usage.sites[-1].name, usage.sites[-1].most, usage.sites[-1].requests) == (OTHERS, 5, 3)


@pytest.mark.parametrize("more", [1, 5])
def test_more_call_sites_than_have_names_are_gathered(allocator: CachingAllocator, more: int) -> None:
    allocator.record_history()
    scope: dict[str, Any] = {}
    for number in range(SITES + more):
        exec(f"def f{number}(a, n): return a.malloc(n)", scope)  # noqa: S102  as many lines as are needed
        scope[f"f{number}"](allocator, (number + 1) * MIB)

    (usage,) = usages(allocator.snapshot())

    assert len(usage.sites) == SITES + 1
    assert usage.sites[-1].name == OTHERS
    assert sum(site.at_peak for site in usage.sites) == usage.peak
    assert usage.sites[-1].at_peak == sum(range(1, more + 1)) * MIB


@pytest.mark.parametrize(("time", "text"), [(10, "10 µs"), (5000, "5 ms"), (2_000_000, "2 s")])
def test_the_time_of_the_peak_is_told_in_a_fitting_unit(time: int, text: str) -> None:
    snapshot = {"segments": [], "device_traces": [traced((7, 1, "f"), (7 + time, 2, "f"))]}

    assert f"{text} after the first of 2 events" in render(snapshot)


def test_areas_lie_on_one_another() -> None:
    page = Page(render({"segments": [], "device_traces": [traced((0, 3, "f"), (10, 2, "g"))]}))

    highest = [min(float(y) for y in re.findall(r",(-?[\d.]+)", path)) for path in page.paths]
    assert highest == pytest.approx([300 - 284 * 3 / 5, 16], abs=0.1)


def segment_of(address: int, blocks: list[tuple[str, int]]) -> dict[str, Any]:
    starts = accumulate((size for _, size in blocks), initial=address)
    return {
        "device": 0,
        "address": address,
        "stream": 0,
        "total_size": sum(size for _, size in blocks),
        "allocated_size": sum(size for state, size in blocks if state == "active_allocated"),
        "blocks": [
            {"address": start, "size": size, "requested_size": 0, "state": state, "frames": []}
            for start, (state, size) in zip(starts, blocks, strict=False)
        ],
    }


def test_narrow_blocks_of_one_state_are_drawn_as_one() -> None:
    live, free = "active_allocated", "inactive"
    sizes = [(live, 400), (live, 400), (free, 400), (free, 400), *[(live, 600)] * 3, (live, 5000), (live, 991_600)]

    page = Page(render({"segments": [segment_of(0, sizes)], "device_traces": []}))

    assert [text.partition(" (")[0] for text, _ in json.loads(page.text["blocks"])["blocks"]] == [
        "2 blocks, live, 800 B",
        "2 blocks, free, 800 B",
        "2 blocks, live, 1.172 KiB",
        f"{1600 + 1200:#x}: live, 600 bytes",
        f"{1600 + 1800:#x}: live, 5,000 bytes",
        f"{1600 + 6800:#x}: live, 991,600 bytes",
    ]


def test_the_largest_segments_come_first() -> None:
    segments = [segment_of(address, [("inactive", size)]) for address, size in ((16, 10), (32, 30), (64, 20))]

    text = render({"segments": segments, "device_traces": []})

    assert re.findall(r'data-segment="(\w+)"', text) == ["0x20", "0x40", "0x10"]


def test_a_hundred_thousand_events_and_ten_thousand_blocks_are_a_page_of_moderate_size() -> None:
    frames = [[{"filename": f"/x/model{n}.py", "line": n, "name": "forward"}] for n in range(40)]
    trace = []
    for number in range(50_000):
        event = {"addr": number * 512, "size": 512 * (1 + number % 7), "stream": 0, "time_us": 10 * number}
        trace.append({**event, "action": "alloc", "frames": frames[number % 40]})
        trace.append({**event, "action": "free_completed", "frames": [], "time_us": 10 * number + 5})
    block = {"size": 512, "requested_size": 500, "state": "active_allocated"}
    blocks = [{**block, "address": 512 * n, "frames": frames[n % 40]} for n in range(10_000)]
    whole = 512 * len(blocks)
    segment = {"device": 0, "address": 0, "total_size": whole, "allocated_size": whole, "stream": 0, "blocks": blocks}

    text = render({"segments": [segment], "device_traces": [trace]})

    assert len(text) < 1_000_000
    assert len(Page(text).rects) <= 1000


# ------------------------------------------------------------------------------------------------ the command


@pytest.mark.parametrize("name", ["s.json", "s.json.gz", "s.pickle"])
def test_the_command_writes_the_page(
    snapshot: dict[str, Any], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dump(snapshot, tmp_path / name, "torch" if name.endswith("pickle") else "json")

    status = cli.main(["memory", "viz", str(tmp_path / name), "-o", str(tmp_path / "page.html")])

    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert status == 0
    assert page.figures["peak-device-0"] == 86 * MIB
    assert "86 MiB" in capsys.readouterr().out


def test_an_earlier_page_is_replaced_and_another_file_is_not(
    snapshot: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "s.json", tmp_path / "page.html"
    dump(snapshot, file, "json")
    before = file.read_bytes()

    assert [cli.main(["memory", "viz", str(file), "-o", str(page)]) for _ in range(2)] == [0, 0]
    assert cli.main(["memory", "viz", str(file), "-o", str(file)]) == 2

    assert file.read_bytes() == before
    assert f"{file} is not a page about memory, so it is not replaced; name another" in capsys.readouterr().err


def test_page_has_the_name_of_the_snapshot_by_default(
    snapshot: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    dump(snapshot, tmp_path / "s.json.gz", "json")
    monkeypatch.chdir(tmp_path / "here")

    assert cli.main(["memory", "viz", "../s.json.gz"]) == 0

    assert Page(Path("s.html").read_text(encoding="utf-8")).figures["peak-device-0"] == 86 * MIB
    assert capsys.readouterr().out.endswith("wrote s.html\n")


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("nonsense")

    assert cli.main(["memory", "viz", str(tmp_path / "x"), "-o", str(tmp_path / "page.html")]) == 2
    assert "holds no snapshot" in capsys.readouterr().err
    assert cli.main(["memory", "viz", str(tmp_path / "absent"), "-o", str(tmp_path / "page.html")]) == 2
    assert "cannot be read" in capsys.readouterr().err
