"""What ran, what held, and what did not run: the support matrix and the skips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cuassay_reports.analysis import load
from cuassay_reports.matrix import STATES, dtypes_in_order, support
from cuassay_reports.skips import by_reason, new_since, without_device

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        (["passed", "passed"], "passed"),
        (["passed", "failed"], "failed"),
        (["passed", "error"], "failed"),
        (["passed", "skipped", "xfailed"], "passed"),
        (["skipped", "xfailed"], "xfailed"),
        (["skipped", "skipped"], "skipped"),
    ],
)
def test_a_cell_sums_up_its_checks(write_rows: Make, test_row: Make, outcomes: list[str], state: str) -> None:
    rows = [test_row(outcome, check=f"check{number}") for number, outcome in enumerate(outcomes)]

    cells = support(load(write_rows("r1", *rows)).tests)

    assert cells["state"].item() == state


def test_what_was_tested_on_one_device_only_is_not_run_on_the_other(write_rows: Make, test_row: Make) -> None:
    rows = [test_row(device="cpu:0"), test_row(device="sim:0", op="exp", dtype="float16")]

    cells = support(load(write_rows("r1", *rows)).tests).set_index(["device", "op", "dtype"])

    assert len(cells) == 8
    assert cells.loc[("sim:0", "softmax", "float32"), "state"] == "not run"
    assert cells["state"].value_counts().to_dict() == {"not run": 6, "passed": 2}


def test_a_cell_keeps_reasons_and_the_worst_head_room(write_rows: Make, test_row: Make) -> None:
    rows = [
        test_row(check="a", headroom=0.2),
        test_row(check="b", headroom=0.7),
        test_row("skipped", check="c", reason="no graphs"),
    ]

    cell = support(load(write_rows("r1", *rows)).tests).iloc[0]

    assert (cell["headroom"], cell["reasons"], cell["passed"], cell["skipped"]) == (0.7, ("no graphs",), 2, 1)


def test_tests_of_no_op_or_no_device_are_in_no_cell(write_rows: Make, test_row: Make) -> None:
    cells = support(load(write_rows("r1", test_row(op=None), test_row(device=None, nodeid="x"))).tests)

    assert cells.empty
    assert "state" in cells


def test_dtypes_stand_in_a_fixed_order_and_unknown_ones_last() -> None:
    assert dtypes_in_order(["float32", "mine", "bool", "bfloat16", "float32"]) == [
        "bool",
        "bfloat16",
        "float32",
        "mine",
    ]


def test_every_state_has_a_meaning() -> None:
    assert all(STATES.values())


def test_skips_are_grouped_by_reason_most_frequent_first(write_rows: Make, test_row: Make) -> None:
    rows = [
        test_row("skipped", check="a", reason="no graphs"),
        test_row("skipped", check="b"),
        test_row("skipped", check="a", reason="no graphs", device="cpu:0", op="exp"),
        test_row(check="c"),
    ]

    found = by_reason(load(write_rows("r1", *rows)).tests)

    assert found["reason"].tolist() == ["no graphs", "no reason given"]
    assert found.loc[0, ["count", "devices", "ops"]].tolist() == [2, ("cuda:0", "cpu:0"), ("softmax", "exp")]


@pytest.mark.parametrize(
    ("nodeid", "device", "left"),
    [
        ("f.py::t[sim:0-float32-add]", "sim:0", "f.py::t[float32-add]"),
        ("f.py::t[float32-cuda:10]", "cuda:1", "f.py::t[float32-cuda:10]"),
        ("f.py::t[cuda:1]", "cuda:1", "f.py::t"),
        ("f.py::t", "", "f.py::t"),
    ],
)
def test_a_device_is_taken_out_of_an_id(nodeid: str, device: str, left: str) -> None:
    assert without_device(nodeid, device) == left


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ("passed", "failed", True),
        ("skipped", "failed", True),
        ("failed", "failed", False),
        ("error", "failed", False),
        ("passed", "skipped", True),
        ("skipped", "skipped", False),
        ("failed", "skipped", True),
        ("skipped", "passed", False),
    ],
)
def test_what_was_lost_since_the_run_before(write_rows: Make, test_row: Make, before: str, now: str, new: bool) -> None:
    write_rows("r1", test_row(before))

    found = new_since(load(write_rows("r2", test_row(now))))

    assert list(found["before"]) == ([before] if new else [])


def test_a_first_run_has_nothing_new(write_rows: Make, test_row: Make) -> None:
    assert new_since(load(write_rows("r1", test_row("failed")))).empty


@pytest.mark.parametrize(("outcome", "new"), [("failed", 1), ("skipped", 0)])
def test_an_added_test_is_news_only_if_it_fails(write_rows: Make, test_row: Make, outcome: str, new: int) -> None:
    write_rows("r1", test_row(check="old"))

    assert len(new_since(load(write_rows("r2", test_row(outcome, check="added"))))) == new


@pytest.mark.parametrize(
    ("before", "now", "new"), [("failed", "failed", 0), ("passed", "failed", 1), ("passed", "skipped", 1)]
)
def test_a_test_in_a_moved_file_is_compared_with_itself(
    write_rows: Make, test_row: Make, before: str, now: str, new: int
) -> None:
    write_rows("r1", test_row(before, nodeid="suites/test_ops.py::test_sum"))

    found = new_since(load(write_rows("r2", test_row(now, nodeid="suites/ops/test_ops.py::test_sum"))))

    assert list(found["before"]) == [before] * new


def test_two_tests_that_may_have_become_one_are_not_taken_for_it(write_rows: Make, test_row: Make) -> None:
    write_rows("r1", *(test_row("failed", nodeid=f"test_{file}.py::test_sum") for file in ("a", "b")))

    assert list(new_since(load(write_rows("r2", test_row("failed", nodeid="test_c.py::test_sum"))))["before"]) == [""]


def test_a_test_of_the_same_name_in_a_new_file_is_another_test(write_rows: Make, test_row: Make) -> None:
    kept = test_row("passed", nodeid="test_a.py::test_sum")
    write_rows("r1", kept)

    found = new_since(load(write_rows("r2", kept, test_row("failed", nodeid="test_b.py::test_sum"))))

    assert list(found["before"]) == [""]
