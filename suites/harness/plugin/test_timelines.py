"""``pytest --cuassay-timeline DIR`` keeps a page for each test that fails or is slow."""

from __future__ import annotations

import json

import pytest

from cuassay.testing.timelines import page_name

TESTS = """
import cuassay, numpy as np, pytest
from cuassay import ops

def test_right(device):
    ops.exp(cuassay.from_host(np.ones(4, np.float32), device))

def test_wrong(device):
    ops.exp(cuassay.from_host(np.ones(4, np.float32), device))
    assert False

def test_skipped(device):
    ops.exp(cuassay.from_host(np.ones(4, np.float32), device))
    pytest.skip("not here")

def test_without_work(): assert False

def test_with_its_own(device):
    x = cuassay.from_host(np.ones(4, np.float32), device)
    with cuassay.profile() as p:
        ops.exp(x)
    assert [span.name for span in p.timeline.spans if span.kind == "op"] == ["exp"]
"""


def test_a_failed_test_leaves_a_page_and_others_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)

    found = pytester.runpytest("--device", "sim", "--cuassay-timeline", "pages")

    found.assert_outcomes(passed=2, failed=2, skipped=1)
    (page,) = (pytester.path / "pages").iterdir()
    assert page.name == page_name("test_it.py::test_wrong[sim:0]")
    assert "exp" in page.read_text(encoding="utf-8")
    found.stdout.fnmatch_lines([f"*{page.name}"])


@pytest.mark.parametrize(("record", "link"), [("r.jsonl", "pages/"), ("out/r.jsonl", "../pages/"), ("a/b/r.jsonl", "")])
def test_the_row_of_a_failed_test_names_its_page_as_seen_from_the_record(
    pytester: pytest.Pytester, record: str, link: str
) -> None:
    pytester.makepyfile(test_it=TESTS)
    (pytester.path / record).parent.mkdir(parents=True, exist_ok=True)

    pytester.runpytest(
        "--device", "sim", "--cuassay-timeline", "pages", "--cuassay-record", record, "-k", "wrong or right"
    )

    rows = map(json.loads, (pytester.path / record).read_text().splitlines())
    named = {row["nodeid"]: row.get("timeline") for row in rows if row["record"] == "test"}
    wrong = "test_it.py::test_wrong[sim:0]"
    assert named == {wrong: link + page_name(wrong), "test_it.py::test_right[sim:0]": None}


def test_slow_tests_leave_pages_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)

    pytester.runpytest("--device", "sim", "--cuassay-timeline", "pages", "--cuassay-timeline-slow", "0", "-k", "right")

    assert [page.name for page in (pytester.path / "pages").iterdir()] == [page_name("test_it.py::test_right[sim:0]")]


def test_names_of_pages_are_files_and_differ() -> None:
    long, other = (page_name(f"a/test_it.py::test_x[{'x' * 300}-{end}]") for end in ("/1", "/2"))

    assert long != other
    assert "/" not in long
    assert len(long) < 150
