"""Rows of results written by a session: the run, its devices, each test."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from json_rows import rows_of

SUITE = """
    import pytest
    from cuassay.testing import dtypes, requires
    @dtypes("float32")
    def test_good(device, dtype): pass
    def test_bad(device): assert 1 == 2, "one is not two"
    @requires("graphs")
    def test_skipped(device): pass
    @pytest.mark.xfail(reason="issue 7")
    def test_known(device): raise ValueError
    @pytest.mark.xfail(reason="issue 8")
    def test_mended(device): pass
    @pytest.fixture
    def broken(): raise ValueError("no set-up")
    def test_broken(device, broken): pass
    def test_plain(): pass
"""


@pytest.fixture
def recorded(pytester: pytest.Pytester) -> dict[str, dict[str, Any]]:
    pytester.makepyfile(SUITE)
    pytester.runpytest("--device", "cpu", "--cuassay-record", "rows.jsonl")
    return {row["nodeid"].partition("::")[2].partition("[")[0]: row for row in rows_of("rows.jsonl", "test")}


@pytest.mark.parametrize(
    ("test", "outcome", "reason"),
    [
        ("test_good", "passed", None),
        ("test_bad", "failed", "AssertionError: one is not two"),
        ("test_skipped", "skipped", "cpu:0: no graphs: work runs when it is called; there is nothing to capture"),
        ("test_known", "xfailed", "issue 7"),
        ("test_mended", "passed", None),
        ("test_broken", "error", "ValueError: no set-up"),
        ("test_plain", "passed", None),
    ],
)
def test_each_test_is_one_row(recorded: dict[str, dict[str, Any]], test: str, outcome: str, reason: str | None) -> None:
    assert (recorded[test]["outcome"], recorded[test].get("reason")) == (outcome, reason)


def test_a_row_names_its_case(recorded: dict[str, dict[str, Any]]) -> None:
    assert (recorded["test_good"]["device"], recorded["test_good"]["dtype"]) == ("cpu:0", "float32")
    assert "device" not in recorded["test_plain"]


def test_a_failure_names_no_folder_of_the_machine(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import json, pytest
        def test_standard_library(): json.loads("{")
        def test_installed(): pytest.importorskip("")
        def test_temporary(tmp_path): raise OSError(f"cannot read {tmp_path}/a.npz")
    """)

    pytester.runpytest("--cuassay-record", "rows.jsonl")

    texts = [f"{row['message']} {row['reason']}" for row in rows_of("rows.jsonl", "test")]
    assert f"python3.{sys.version_info[1]}/json/decoder.py" in texts[0]
    assert re.search(r"cannot read TMP/\S*test_temporary0/a.npz", texts[2])
    assert not [text for text in texts if re.search(r"(^|[ '\"])/\w", text, re.MULTILINE)]


@pytest.mark.parametrize(("test", "why"), [("test_bad", "one is not two"), ("test_broken", "no set-up")])
def test_a_failure_can_be_run_again_from_its_row(recorded: dict[str, dict[str, Any]], test: str, why: str) -> None:
    line = recorded[test]["reproduce"]

    assert line.startswith("CUASSAY_SEED=2026 pytest --cuassay-device cpu:0 '")
    assert line.endswith(f"::{test}[cpu:0]'")
    assert why in recorded[test]["message"]


def test_the_run_and_its_devices_come_first(pytester: pytest.Pytester, recorded: object) -> None:
    (run,), (device,) = rows_of("rows.jsonl", "run"), rows_of("rows.jsonl", "device")

    assert run["command"].startswith("pytest --device cpu --cuassay-record rows.jsonl")
    assert run["seed"] == 2026
    assert (device["device"], device["present"]) == ("cpu:0", True)
    assert device["missing"]["graphs"] == "work runs when it is called; there is nothing to capture"
    assert device["capabilities"]["matmul:float32"] is True


def test_the_command_names_no_folder_of_the_machine(pytester: pytest.Pytester) -> None:
    path = pytester.mkdir("suites") / "test_one.py"
    path.write_text("def test_one(device): pass")
    pytester.makeini("[pytest]")  # says where the root is

    pytester.runpytest(
        path, "--device", "cpu", "--cuassay-record=rows.jsonl", f"--ignore={sys.prefix}/a/b", "--ignore=/elsewhere/c"
    )

    (run,) = rows_of("rows.jsonl", "run")
    told = "pytest suites/test_one.py --device cpu --cuassay-record=rows.jsonl --ignore=a/b --ignore=c"
    assert run["command"].startswith(told)


def test_a_device_that_was_asked_for_and_is_absent_has_a_row(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuassay.devices.cuda.driver.runtime.device_count", lambda: 0)
    pytester.makepyfile("def test_one(device): pass")

    pytester.runpytest("--device", "cpu,cuda:*", "--cuassay-record", "rows.jsonl")

    (row,) = (row for row in rows_of("rows.jsonl", "device") if row["device"] == "cuda:0")
    assert (row["present"], bool(row["reason"])) == (False, True)


def test_the_head_room_of_comparisons_is_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing import OpSpec, conformance
        test_double = conformance(OpSpec(fn=lambda xp, a: a + a, dtypes=("float32",)))
    """)

    pytester.runpytest("--device", "cpu", "-k", "test_values", "--cuassay-record", "rows.jsonl")

    (row,) = rows_of("rows.jsonl", "test")
    assert 0 <= row["headroom"] <= 1
    assert row["check"] == "values"


def test_comparisons_are_collected_within_a_test_of_a_device_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from cuassay.testing.compare import HEADROOM
        def test_of_a_device(device): assert HEADROOM.get() == []
        def test_after(): assert HEADROOM.get() is None
    """)

    pytester.runpytest("--device", "cpu").assert_outcomes(passed=2)


def test_a_row_is_of_all_phases_of_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import time
        import numpy as np
        import pytest
        from cuassay.testing import assert_close
        @pytest.fixture
        def slow(): time.sleep(0.02)
        @pytest.fixture
        def broken():
            yield
            raise ValueError("no tear-down")
        def test_two(device, slow):
            for error in (0.05, 0.01):
                assert_close(np.array([1.0 + error]), np.array([1.0]), atol=0.1)
        def test_left(device, broken): pytest.skip("not here")
    """)

    pytester.runpytest("--device", "cpu", "--cuassay-record", "rows.jsonl")

    two, left = rows_of("rows.jsonl", "test")
    assert two["headroom"] == pytest.approx(0.5)
    assert two["duration"] >= 0.02
    assert (left["outcome"], left["reason"]) == ("error", "ValueError: no tear-down")


def test_a_run_that_somebody_else_began_is_joined(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(device): pass")

    pytester.runpytest("--device", "cpu", "--cuassay-record", "rows.jsonl", "--cuassay-run", "20260101T000000-abcdef")

    assert not rows_of("rows.jsonl", "run")
    assert {row["run"] for row in rows_of("rows.jsonl", "test")} == {"20260101T000000-abcdef"}


def test_workers_rows_are_written_once(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(SUITE)

    pytester.runpytest_subprocess("-n2", "--device", "cpu", "--cuassay-record", "rows.jsonl")

    outcomes = sorted(row["outcome"] for row in rows_of("rows.jsonl", "test"))
    assert outcomes == ["error", "failed", "passed", "passed", "passed", "skipped", "xfailed"]
    assert len(rows_of("rows.jsonl", "run")) == len(rows_of("rows.jsonl", "device")) == 1


def test_an_interrupted_session_says_so_in_its_record(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_one(device): pass
        def test_two(device): raise KeyboardInterrupt
        def test_three(device): pass
    """)

    result = pytester.runpytest_subprocess("--device", "cpu", "--cuassay-record", "rows.jsonl")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert [row["reason"] for row in rows_of("rows.jsonl", "end")] == ["interrupted"]
    assert [(row["nodeid"].partition("::")[2], row["outcome"]) for row in rows_of("rows.jsonl", "test")] == [
        ("test_one[cpu:0]", "passed"),
        ("test_two[cpu:0]", "error"),
    ]


@pytest.mark.parametrize("body", ["pass", "assert False"], ids=["passed", "failed"])
def test_a_session_that_ran_to_its_end_has_an_end_without_a_reason(pytester: pytest.Pytester, body: str) -> None:
    pytester.makepyfile(f"def test_one(device): {body}")

    pytester.runpytest_subprocess("--device", "cpu", "--cuassay-record", "rows.jsonl")

    (plan,), (begin,), (end,) = (rows_of("rows.jsonl", record) for record in ("plan", "begin", "end"))
    assert (plan["part"], plan["tests"]) == ("tests", 1)
    assert begin["nodeid"].endswith("::test_one[cpu:0]")
    assert end.keys() == {"record", "schema", "run", "part", "process"}
    assert end["process"] == plan["process"] == begin["process"]


def test_an_invalid_revision_is_told_before_a_record_is_opened(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_REVISION", "aaa")
    pytester.makepyfile(SUITE)

    result = pytester.runpytest("--device", "cpu", "--cuassay-record", "rows.jsonl")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: CUASSAY_REVISION does not name a revision: got 'aaa'; write a commit's hash, 7 *"]
    )
    assert not (pytester.path / "rows.jsonl").exists()
