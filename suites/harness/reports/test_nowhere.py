"""Which tests no device ran: in one run, over the jobs of a commit, and through the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuassay_reports.analysis import load
from cuassay_reports.command import main
from cuassay_reports.skips import nowhere

Make = Callable[..., Any]

COMMIT = "a" * 40


def idle(folder: Path) -> list[str]:
    """The names of the tests that ran nowhere."""
    found: list[str] = nowhere(load(folder))["test"].tolist()
    return found


def test_a_test_that_every_device_skipped_ran_nowhere(write_rows: Make, test_row: Make) -> None:
    rows = [
        test_row("skipped", device="cpu:0", check="graph", reason="cpu has no graphs"),
        test_row("skipped", device="sim:0", check="graph", reason="off"),
        test_row("skipped", device="cpu:0", check="values", reason="x"),
        test_row("failed", device="sim:0", check="values"),
    ]

    found = nowhere(load(write_rows("r1", *rows)))

    assert found["test"].tolist() == ["test_graph[float32-softmax]"]
    assert found["reasons"].item() == ("cpu has no graphs", "off")


def test_the_reason_is_that_of_the_newest_run(write_rows: Make, test_row: Make, device_row: Make) -> None:
    for run, line in (("r1", 3), ("r2", 5)):
        row = test_row("skipped", nodeid="t.py::t[cuda:0]", reason=f"k.py:{line}: it waits")
        folder = write_rows(run, device_row(), row, commit=COMMIT)

    assert nowhere(load(folder))["reasons"].item() == ("k.py:5: it waits",)


def test_a_check_that_its_declaration_leaves_out_does_not_count(write_rows: Make, test_row: Make) -> None:
    rows = [
        test_row("skipped", device="cpu:0", check="aliasing", reason="clip_ opts out of aliasing: in place"),
        test_row("skipped", device="cpu:0", check="waits", reason="off"),
    ]

    assert idle(write_rows("r1", *rows)) == ["test_waits[float32-softmax]"]


@pytest.mark.parametrize(("other", "left"), [("passed", []), ("failed", []), ("skipped", ["t.py::t[float32]"])])
def test_what_another_job_ran_did_not_run_nowhere(
    write_rows: Make, test_row: Make, device_row: Make, other: str, left: list[str]
) -> None:
    """Both jobs have the same device; the second is the newest run of it."""
    ran, skipped = (test_row(outcome, nodeid="t.py::t[cuda:0-float32]") for outcome in (other, "skipped"))
    write_rows("r1", device_row(), ran, commit=COMMIT)

    assert idle(write_rows("r2", device_row(), skipped, commit=COMMIT)) == left


def test_a_run_of_a_few_tests_hides_no_others_where_no_commit_is_known(
    write_rows: Make, test_row: Make, device_row: Make
) -> None:
    """The newest run of the device was of another test; the one before it says what became of this one."""
    write_rows("r1", device_row(), test_row("passed", nodeid="t.py::t[cuda:0]"), test_row("passed", nodeid="t.py::u"))
    write_rows("r2", device_row(), test_row("passed", nodeid="t.py::u"))
    cpu = {"device": "cpu:0", "nodeid": "t.py::t[cpu:0]"}

    folder = write_rows("r3", device_row("cpu:0"), test_row("skipped", **cpu))

    assert idle(folder) == []


@pytest.mark.parametrize(
    "columns", [{"commit": "b" * 40}, {"commit": COMMIT, "dirty": True}, {}], ids=["commit", "dirty", "unknown"]
)
def test_an_earlier_state_of_the_code_does_not_count(
    write_rows: Make, test_row: Make, device_row: Make, columns: dict[str, Any]
) -> None:
    write_rows("r1", device_row(), test_row("passed", nodeid="t.py::t[cuda:0]"), **columns)

    folder = write_rows("r2", device_row(), test_row("skipped", nodeid="t.py::t[cuda:0]"), commit=COMMIT)

    assert idle(folder) == ["t.py::t"]


@pytest.mark.parametrize(
    ("nodeid", "columns"),
    [
        ("t.py::t[nowhere]", {}),
        ("t.py::t[nowhere-10]", {}),
        ("t.py::TestTNOWHERE::test_x_nowhere", {"template": "TestT::test_x"}),
    ],
)
@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_job_without_the_device_leaves_the_test_to_others(
    write_rows: Make, test_row: Make, nodeid: str, columns: dict[str, str], *, elsewhere: bool
) -> None:
    row = {"nodeid": nodeid, "outcome": "skipped", "reason": "needs a device of cuda", **columns}
    folder: Path = write_rows("r1", ("test", row), commit=COMMIT)
    if elsewhere:
        ran = nodeid.replace("NOWHERE", "CUDA").replace("nowhere", "cuda:0-float32")
        write_rows("r2", test_row("passed", nodeid=ran, **columns), commit=COMMIT)

    assert idle(folder) == ([] if elsewhere else ["t.py::TestT::test_x" if columns else "t.py::t"])


def test_classes_of_one_template_are_one_test(write_rows: Make, test_row: Make) -> None:
    made = {"template": "TestT::test_x", "dtype": "float32"}
    rows = [
        test_row("skipped", nodeid="t.py::TestTCUDA::test_x_cuda_float32", **made),
        test_row("passed", nodeid="t.py::TestTCPU::test_x_cpu_float32", **made, device="cpu:0"),
    ]

    assert idle(write_rows("r1", *rows)) == []


@pytest.mark.parametrize(("words", "status"), [("nowhere", 1), ("skipped", 1), ("failed", 0), ("", 0)])
def test_a_job_fails_on_what_did_not_run_if_it_names_it(
    write_rows: Make, test_row: Make, device_row: Make, capsys: pytest.CaptureFixture[str], words: str, status: int
) -> None:
    write_rows("r1", device_row(), test_row("passed", nodeid="t.py::t[cuda:0]"), commit="b" * 40)
    row = test_row("skipped", nodeid="t.py::t[cuda:0]", reason="no card")
    folder = write_rows("r2", device_row(), row, commit=COMMIT)

    assert main([str(folder), "--fail-on", words]) == status
    told = capsys.readouterr()
    assert "SKIPPED NOW t.py::t[cuda:0]: no card\nRAN NOWHERE t.py::t: no card\n" in told.out
    assert told.err.count(f"cuassay report: {words}: t.py::t") == status


def test_records_of_several_jobs_say_what_no_device_ran(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_REVISION", COMMIT)
    pytester.makepyfile(
        test_it="""
        import pytest
        from cuassay.testing import devices, requires
        @devices("sim")
        def test_simulator(device): pass
        @devices("cuda")
        def test_card(device): pass
        @requires("graphs")
        def test_graph(device): pass
        @requires("memory>=999TiB")
        def test_large(device): pass
        @pytest.mark.skip(reason="later")
        def test_later(): pass
        """
    )
    for job in ("cpu", "sim"):
        pytester.runpytest(f"--device={job}", f"--cuassay-record={job}.jsonl")
    capsys.readouterr()

    assert main(["cpu.jsonl", "sim.jsonl", "--fail-on", "nowhere"]) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("RAN NOWHERE")]
    assert {line.partition("::")[2].partition(":")[0] for line in told} == {"test_card", "test_large", "test_later"}
