"""``cuassay tune`` on a GPU: which products it takes, what it prints, what it keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.cli import main
from cuassay.devices.cuda.blas import offline, tuning
from cuassay.tune.results import append_untuned
from cuassay.tune.shapes import GemmShape

pytestmark = pytest.mark.usefixtures("cublaslt")

SHAPES = {"square": [64, 96, 128], "llama3_8b": {"nk": [[64, 32]], "m": [1, 2]}}


@pytest.fixture(autouse=True)
def quick(on_cuda: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUASSAY_TUNABLEOP_MAX_TUNING_DURATION_MS", "30")
    tuning.tuner.cache_clear()
    yield
    tuning.tuner.cache_clear()


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps(SHAPES))
    return path


@pytest.fixture
def untuned(tmp_path: Path) -> Path:
    for extent in (64, 96):
        problem = offline.problem_of(GemmShape(m=extent, n=extent, k=extent))
        append_untuned(tmp_path / "untuned.jsonl", "gemm", problem.plain())
    return tmp_path / "untuned.jsonl"


def tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    tuning.tuner.cache_clear()
    assert main(["tune", *arguments, "--out", str(tmp_path / "results.jsonl"), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_all_lists_of_a_file_or_one_or_some(tmp_path: Path, shapes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(tuned(tmp_path, capsys, f"{shapes}:square", "--limit", "2")["products"]) == 2
    assert len(tuned(tmp_path, capsys, f"{shapes}:square")["products"]) == 1
    assert len(tuned(tmp_path, capsys, str(shapes))["products"]) == 2
    found = tuned(tmp_path, capsys, str(shapes), "--dtype", "float32")
    assert len(found["products"]) == 5
    assert all("float32 float32 -> float32" in row["problem"] for row in found["products"])


def test_recorded_products(tmp_path: Path, untuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(tuned(tmp_path, capsys, str(untuned))["products"]) == 2
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3


def test_public_products(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(tuned(tmp_path, capsys, "--shapes", "gpt2_124m_nanogpt", "--limit", "1")["products"]) == 1


def test_two_processes_share_the_work(tmp_path: Path, untuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tuned(tmp_path, capsys, str(untuned), "--device", "cuda:0", "--device", "cuda:0")

    assert len(found["products"]) == 2
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3


def test_a_table_and_progress(tmp_path: Path, untuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(untuned), "--out", str(tmp_path / "results.jsonl")]) == 0

    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].split() == ["product", "default", "µs", "tuned", "µs", "gain", "choice"]
    assert [line.split()[0] for line in lines[1:]] == ["gemm", "gemm", "geometric"]
    assert "[2/2] gemm" in shown.err


def test_the_table_fits_the_terminal(
    tmp_path: Path, untuned: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    assert main(["tune", str(untuned), "--out", str(tmp_path / "results.jsonl")]) == 0

    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "needs either a file or --shapes NAME; got neither"),
        (["{shapes}", "--shapes", "square"], "got both"),
        (["--shapes", "cubes"], "--shapes has no list 'cubes'"),
        (["{shapes}:cubes"], "has no list 'cubes'"),
        (["{shapes}", "--limit", "0"], "--limit must be 1 or more"),
        (["{untuned}", "--dtype", "float16"], "leave --dtype out"),
        (["nowhere.json"], "gives no shapes"),
    ],
    ids=["nothing", "both", "name", "list", "limit", "dtype", "file"],
)
def test_what_cannot_be_tuned_is_told(
    shapes: Path, untuned: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["tune", *(one.format(shapes=shapes, untuned=untuned) for one in arguments)]) == 2

    assert message in capsys.readouterr().err


def test_a_file_of_another_machine_ends_it_before_anything_is_tuned(
    tmp_path: Path, shapes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(tmp_path, capsys, f"{shapes}:square", "--limit", "1")
    path = tmp_path / "results.jsonl"
    header, *rows = path.read_text().splitlines()
    foreign = json.loads(header)
    foreign["validators"]["gpu"] = "another"
    path.write_text("\n".join([json.dumps(foreign), *rows, ""]))
    before = path.read_text()
    tuning.tuner.cache_clear()

    assert main(["tune", f"{shapes}:square", "--out", str(path)]) == 2

    assert "another" in capsys.readouterr().err
    assert path.read_text() == before
