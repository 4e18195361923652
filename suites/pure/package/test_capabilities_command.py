"""``cuassay capabilities``: operations by dtype and device, and the reasons for what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cuassay import devices, ops
from cuassay.cli import main
from cuassay.core.capability import DTYPE_NAMES
from cuassay.ops import registry


@pytest.fixture
def rows(capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str, str], tuple[bool, str | None]]:
    """The rows of cpu and sim by device, operation and dtype."""
    assert main(["capabilities", "--device", "cpu", "--device", "sim", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    return {(row["device"], row["op"], row["dtype"]): (row["supported"], row["reason"]) for row in told}


def test_checks_are_listed_with_what_each_requires(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capabilities", "--checks"]) == 0

    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["values"] == "Every ordinary sample agrees with the reference."
    assert {"extremal", "side_stream", "second_call"} <= lines.keys()


def test_names_and_patterns_choose_what_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capabilities", "softmax", "log_*max", "--device", "cpu", "--json"]) == 0
    assert {row["op"] for row in json.loads(capsys.readouterr().out)} == {"softmax", "log_softmax"}
    assert main(["capabilities", "values", "--checks"]) == 0
    assert capsys.readouterr().out == "values: Every ordinary sample agrees with the reference.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["softmx"], "no operation is named 'softmx' (did you mean 'softmax'?)"),
        (["value", "--checks"], "no check is named 'value' (did you mean 'values'?)"),
    ],
)
def test_an_unknown_name_is_an_error_that_suggests_another(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["capabilities", *words]) == 2
    assert said in capsys.readouterr().err


def test_json_has_a_row_for_each_operation_dtype_and_device(rows: dict[tuple[str, str, str], object]) -> None:
    names = [op.name for op in ops.ops()]
    assert list(rows) == [(at, op, dtype) for at in ("cpu:0", "sim:0") for op in names for dtype in DTYPE_NAMES]


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_json_says_what_the_registry_says(
    rows: dict[tuple[str, str, str], tuple[bool, str | None]], device: str
) -> None:
    said = {key[1:] for key, (supported, _) in rows.items() if supported and key[0] == device}
    assert said == {(op.name, dtype) for op in ops.ops() for dtype in devices.supported_dtypes(op, device)}


def test_a_reason_is_given_exactly_where_something_is_missing(
    rows: dict[tuple[str, str, str], tuple[bool, str | None]],
) -> None:
    assert all(supported is (reason is None) for supported, reason in rows.values())
    assert rows["cpu:0", "exp", "int32"] == (False, "exp is not defined for int32")


def run(device: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "cuassay", "capabilities", "--device", device, *arguments]
    environment = dict(os.environ)  # readline sets COLUMNS in the process itself, which its children would take
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def test_the_table_numbers_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_SIM_PROFILE", "mps")

    head, *lines = map(str.split, run("sim").splitlines())

    names = {op.name for op in ops.ops()}
    cells = {line[0]: dict(zip(head[1:], line[1:], strict=True)) for line in lines if line[0] in names}
    reasons = {line[0][:-1]: " ".join(line[1:]) for line in lines if line[0] not in names}
    assert head[0] == "sim:0"
    assert (cells["exp"]["i32"], cells["exp"]["f32"]) == (".", "yes")
    assert reasons[cells["exp"]["f64"]] == "Metal has no 64-bit floating point"
    assert reasons[cells["sum"]["c64"]] == "Metal Performance Shaders have no complex reduction"
    assert len({*reasons.values()}) == len(reasons)


def test_a_narrow_terminal_gets_the_same_cells_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_SIM_PROFILE", "mps")
    wide = run("sim")
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run("sim")

    assert 50 < max(map(len, narrow.splitlines())) <= 60 < max(map(len, wide.splitlines()))
    assert cells_of(narrow) == cells_of(wide)


def cells_of(table: str) -> dict[tuple[str, str], str]:
    """The cells by operation and dtype, whether or not the table is in parts."""
    found: dict[tuple[str, str], str] = {}
    names = {op.name for op in ops.ops()}
    for name, *row in filter(None, map(str.split, table.splitlines())):
        if name == "sim:0":
            head = row
        elif name in names:
            found |= {(name, dtype): cell for dtype, cell in zip(head, row, strict=True)}
    return found


def test_json_gives_the_capability_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_SIM_PROFILE", "mps")

    told = json.loads(run("sim", "--json"))

    found = [row for row in told if (row["op"], row["dtype"]) == ("add", "float64")]
    reason = "no storage:float64: Metal has no 64-bit floating point"
    assert found == [{"op": "add", "dtype": "float64", "device": "sim:0", "supported": False, "reason": reason}]


def test_an_operation_without_kernels_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as undo:
        undo.setattr(registry, "_ops", dict(registry._ops))
        ops.declare("test_half(a) -> out", shape=lambda bound: (), dtypes=("float32", "float64"), op_class="storage")
        assert main(["capabilities", "--device", "cpu"]) == 0

    *_, row, _, reason = capsys.readouterr().out.splitlines()
    assert row.split() == ["test_half", *"." * 13, "1", "1", ".", "."]
    assert reason == "1: there is no kernel"


def test_libraries_that_are_absent_for_one_reason_share_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("one", "", "", "none is here"), ("two", "/lib/two.so", "7.1", ""), ("three", "", "", "none is here")]
    monkeypatch.setattr(type(devices.backend("cuda")), "libraries", lambda self: rows)

    assert main(["devices", "-v"]) == 0

    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "two          7.1  /lib/two.so" in lines
    assert "one, three absent: none is here" in lines


def test_a_kind_that_is_not_here_is_told_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    reason = devices.backend("cuda").why_absent()
    if reason is None:
        pytest.skip("there is a CUDA device")

    assert main(["capabilities", "--device", "cpu", "--device", "cuda:*"]) == 0

    assert capsys.readouterr().out.endswith(f"cuda absent: {reason}\n")


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("cpu:7", "cuassay capabilities: cpu:7 does not exist: the last is cpu:0\n"),
        ("cdua", "cuassay capabilities: there is no device kind 'cdua' (did you mean 'cuda'?); known: "),
        ("cpu:x", "cuassay capabilities: "),
    ],
)
def test_a_wrong_device_is_told_in_one_line(capsys: pytest.CaptureFixture[str], device: str, told: str) -> None:
    assert main(["capabilities", "--device", device]) == 2

    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(told)
