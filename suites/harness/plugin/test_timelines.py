"""``pytest --cuassay-timeline DIR`` keeps a page for each test that fails or is slow."""

from __future__ import annotations

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


def test_slow_tests_leave_pages_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)

    pytester.runpytest("--device", "sim", "--cuassay-timeline", "pages", "--cuassay-timeline-slow", "0", "-k", "right")

    assert [page.name for page in (pytester.path / "pages").iterdir()] == [page_name("test_it.py::test_right[sim:0]")]


def test_names_of_pages_are_files_and_differ() -> None:
    long, other = (page_name(f"a/test_it.py::test_x[{'x' * 300}-{end}]") for end in ("/1", "/2"))

    assert long != other
    assert "/" not in long
    assert len(long) < 150
