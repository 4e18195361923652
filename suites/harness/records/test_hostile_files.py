"""Files from elsewhere, spoilt in any way, end in a page or in one of our errors: never in a traceback."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from cuassay import cli
from cuassay.errors import ArgumentError
from cuassay.memory import snapshot
from cuassay.observe.timeline import render
from cuassay_reports.command import run as report
from cuassay_reports.facts import digest

Make = Callable[..., Any]

SEED = 2026

#: Each number is a file, always the same one. `ci/run endurance` makes ten times as many.
FILES = int(os.environ.get("CUASSAY_TEST_FILES", "1000"))

#: Files that one report reads: starting pandas for each would take minutes.
AT_ONCE = 250

#: Snapshots of one test.
SNAPSHOTS = 500

DEEP = "[" * 100_000
#: What is put in the place of a value, as JSON text.
HOSTILE = (
    "null", "true", "0", "-1", "-0.0", "1e308", "1e-308", "1e999", "NaN", "-Infinity", str(2**63), str(-(2**63) - 1),
    str(2**64), str(10**400), "9" * 5000, '""', '"a"', '"\\ud800"', '"\\udcff\\ud800"', '"\\u0000"', '"<script>"',
    '"2026-W01-1"', '"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59Z"', '"2026-02-30T00:00:00Z"', '"cpu:0"', '"x * y"',
    "[]", "{}", '["a"]', "[1, 2]", '{"a": [1]}', "[" * 30 + "]" * 30, "[NaN]", f"[{10**400}]", '{"versions": ["a"]}',
    '{"versions": {"a": null}, "memory": "much"}', '{"name": ["n"], "cpu": {"c": 1}}', '{"\\ud800": 1}', '"passed"',
)  # fmt: skip
#: What is put between two bytes.
BYTES = (b"\x00", b"\xff", b"\xed\xa0\x80", b"\n", b"\r", b'"', b"{", b"}", b"[", b",", b"1e9", b"\\u", b"\xef\xbb\xbf")


def spoilt_value(data: Any, dice: random.Random) -> Any:
    """`data` with one of its values, at any depth, replaced, removed or copied to another name."""
    value = dice.choice(list(places(data)))
    holder, key = value
    what = dice.random()
    if what < 0.8:
        holder[key] = Raw(dice.choice(HOSTILE))
    elif what < 0.9:
        del holder[key]
    elif isinstance(holder, dict):
        holder[dice.choice([*holder, "unknown"])] = holder[key]
    else:
        holder.append(holder[key])
    return data


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Each (container, key) within `data`."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from places(data[key])


class Raw(str):
    """JSON text that represents itself."""

    __slots__ = ()


def text_of(data: Any) -> str:
    """`data` as JSON, with the raw texts in it."""
    if isinstance(data, Raw):
        return str(data)
    if isinstance(data, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{text_of(value)}" for key, value in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ",".join(map(text_of, data)) + "]"
    return json.dumps(data)


def spoilt_bytes(data: bytes, dice: random.Random) -> bytes:
    """`data` with a few bytes changed, cut out, put in or doubled."""
    for _ in range(dice.randint(1, 3)):
        at, length = dice.randrange(len(data) + 1), dice.choice((0, 1, 1, 5, 40))
        new = dice.choice((b"", bytes([dice.randrange(256)]), dice.choice(BYTES), data[at : at + length] * 2))
        data = data[:at] + new + data[at + length :]
    return data


FACTS = {"kind": "cuda", "name": "GPU", "cpu": "CPU", "driver": "1", "memory": 2**30, "versions": {"numpy": "2"}}


def rows_of(number: int) -> list[dict[str, Any]]:
    """A whole small run: every fifth on a device of its own, which the page shows, the others make one history."""
    device, common = f"cuda:{number if number % 5 == 0 else 1}", {"schema": 1, "run": f"r{number}"}
    test = {"record": "test", "device": device, "op": "add", "dtype": "float32", "outcome": "passed", "headroom": 0.1}
    time = {
        "record": "time", "benchmark": "add", "device": device, "case": "8", "clock": "device", "median": 1e-5, "n": 9,
        "q25": 0.9e-5, "q75": 1.1e-5, "samples": [1e-5, 1.1e-5], "bytes": 4096, "flops": 4096,
        "groups": "all" if number % 10 == 0 else "",  # each group of peers takes the page 60 ms
    }  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"record": "run", "started": "2026-01-01T12:00:00Z", "machine": FACTS, "seed": 1, "dirty": False},
        {"record": "plan", "part": "tests", "process": 7, "tests": 3},
        {"record": "device", "device": device, "present": True, "fingerprint": FACTS, "digest": digest(FACTS),
         "missing": {"graphs": "why"}, "memory": 2**30},
        {"record": "begin", "part": "tests", "process": 7, "nodeid": "t.py::test_*"},
        {**test, "nodeid": f"t.py::test_*[{device}]", "checks": "values out"},
        {**test, "nodeid": f"t.py::test_b[{device}]", "check": "b", "outcome": "failed", "reason": "r", "message": "m"},
        {**time, "implementation": "cuassay"},
        {**time, "implementation": "torch"},
        {**time, "implementation": "cuassay", "groups": ""},
        {"record": "limit", "device": device, "limit": "bandwidth", "value": 4e12, "unit": "B/s"},
        {"record": "end", "part": "tests", "process": 7},
    ]  # fmt: skip
    return [{**row, **common} for row in rows]


def spoilt_results(number: int) -> bytes:
    dice = random.Random(f"{SEED}-{number}")  # noqa: S311  the same files each time
    rows = copy.deepcopy(rows_of(number))
    if dice.random() < 0.7:
        for _ in range(dice.randint(1, 3)):
            spoilt_value(dice.choice(rows), dice)
        return "\n".join(map(text_of, rows)).encode() + b"\n"
    return spoilt_bytes("\n".join(map(json.dumps, rows)).encode() + b"\n", dice)


def told(paths: Sequence[Path], html: Path, *, strict: bool = False) -> tuple[int, str]:
    """The status of a report, and what it says."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = report(list(paths), html, strict=strict)
    return status, said.getvalue()


@pytest.mark.parametrize("first", range(0, FILES, AT_ONCE))
def test_spoilt_result_files_make_a_page(tmp_path: Path, first: int) -> None:
    files = [tmp_path / f"{number}.jsonl" for number in range(first, first + AT_ONCE)]
    for number, file in enumerate(files, start=first):
        file.write_bytes(spoilt_results(number))

    try:
        status, said = told(files, tmp_path / "page.html")
    except Exception as error:
        guilty = next((file.name for file in files if is_guilty(file)), "several together")
        raise AssertionError(f"{guilty}: {error!r}") from error

    assert status in (0, 1)
    assert "left out" in said
    assert "could be read there" in (tmp_path / "page.html").read_text()


def is_guilty(file: Path) -> bool:
    try:
        told([file], file.with_suffix(".html"))
    except Exception:  # noqa: BLE001  any
        return True
    return False


FRAME = {"filename": "a.py", "line": 1, "name": "f"}


def a_snapshot() -> dict[str, Any]:
    blocks = [
        {"address": 0, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": [dict(FRAME)]},
        {"address": 512, "size": 512, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {
        "device": 0, "address": 0, "total_size": 1024, "allocated_size": 512, "stream": 0, "frames": [],
        "segment_type": "small", "blocks": blocks,
    }  # fmt: skip
    events = [
        {"action": action, "addr": 0, "size": 512, "stream": 0, "time_us": place, "frames": [dict(FRAME)]}
        for place, action in enumerate(("segment_alloc", "alloc", "free_requested", "free_completed", "alloc"))
    ]
    host = {name: copy.deepcopy(value) for name, value in segment.items() if name != "device"}
    return {"segments": [segment], "device_traces": [events], "host_segments": [host], "host_traces": []}


def spoilt_snapshot(number: int) -> bytes:
    dice = random.Random(f"{SEED}-{number}")  # noqa: S311
    data, what = a_snapshot(), dice.random()
    if what < 0.7:
        for _ in range(dice.randint(1, 3)):
            spoilt_value(data, dice)
        return text_of(data).encode()
    return spoilt_bytes(json.dumps(data).encode() if what < 0.9 else pickle.dumps(data, protocol=4), dice)


@pytest.mark.parametrize("first", range(0, FILES, SNAPSHOTS))
def test_spoilt_snapshots_make_a_page_or_are_refused(tmp_path: Path, first: int) -> None:
    refused = 0
    for number in range(first, first + SNAPSHOTS):
        file = tmp_path / "snapshot"
        file.write_bytes(spoilt_snapshot(number))
        try:
            render(snapshot.load(file))
        except ArgumentError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"snapshot {number}: {error!r}") from error

    assert 0 < refused < SNAPSHOTS


def test_a_segment_without_a_device_is_of_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = a_snapshot()
    del data["segments"][0]["device"]
    (tmp_path / "s.json").write_text(json.dumps(data))

    assert cli.main(["memory", "viz", str(tmp_path / "s.json"), "-o", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.startswith("device 0: peak 512 B in 5 events\n")


def test_a_path_that_is_no_text_is_escaped_on_the_page(tmp_path: Path) -> None:
    data = a_snapshot()
    data["device_traces"][0][4]["frames"][0]["filename"] = "\udcff.py"
    (tmp_path / "s.json").write_text(json.dumps(data))

    assert cli.main(["memory", "viz", str(tmp_path / "s.json"), "-o", str(tmp_path / "page.html")]) == 0
    assert "\\udcff.py:1 f" in (tmp_path / "page.html").read_text()


BAD_ROWS = {
    "number-of-64-bits": {"record": "time", "n": 2**63},
    "number-of-400-digits": {"record": "time", "median": 10**400},
    "week": {"record": "run", "started": "2026-W01-1"},
    "surrogate": {"record": "test", "nodeid": "\ud800"},
    "versions": {"record": "device", "fingerprint": {"versions": ["numpy"]}},
    "memory": {"record": "device", "fingerprint": {"memory": "much"}},
    "not-a-number": {"record": "time", "median": float("nan")},
    "deep": {"record": "run", "extra": {"a": json.loads("[" * 30 + "]" * 30)}},
    "checks": {"record": "test", "checks": "a " * 1000},
}


@pytest.mark.parametrize("bad", [*BAD_ROWS, "nested"])
def test_a_bad_row_is_named_counted_and_left_out_and_strict_refuses_it(tmp_path: Path, bad: str) -> None:
    good = rows_of(1)
    lines = [json.dumps(row) for row in good]
    if bad == "nested":
        lines.insert(3, DEEP)
    else:
        place = next(place for place, row in enumerate(good) if row["record"] == BAD_ROWS[bad]["record"])
        lines.insert(3, json.dumps({**good[place], **BAD_ROWS[bad]}))
    file = tmp_path / "r.jsonl"
    file.write_text("\n".join(lines) + "\n")

    status, said = told([file], tmp_path / "page.html")

    assert status == 0
    assert said.startswith(f"cuassay report: left out {file}:4: ")
    page = (tmp_path / "page.html").read_text()
    assert "1 line or file left out: no result could be read there." in page
    assert f"{file}:4" in page
    assert told([file], tmp_path / "page.html", strict=True)[0] == 2


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("/proc/self/mem")  # reading its start fails for everyone, root as well
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, rows_of(1))) + "\n")

    status, said = told([tmp_path], tmp_path / "page.html")

    assert (status, "a.jsonl: this file cannot be read: " in said) == (0, True)
    assert told([tmp_path], tmp_path / "page.html", strict=True)[0] == 2
