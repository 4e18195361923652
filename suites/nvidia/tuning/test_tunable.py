"""`cuassay.cuda.tunable` on a GPU: files, their own and others', products tuned later, limits and tolerances."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from gpu_products import host, problem_of, random
from json_rows import rows_of

from cuassay import cuda, ops
from cuassay.core import determinism, precision
from cuassay.cuda import tunable
from cuassay.devices.cuda.blas import controls, cublaslt, offline, plans, tuning
from cuassay.errors import ArgumentError, StateError, TuningError
from cuassay.tune.results import Results

pytestmark = pytest.mark.usefixtures("cublaslt", "own_tuner")


# ------------------------------------------------------------------------------------------------ files


def test_a_choice_survives_its_file() -> None:
    a, b = random(64, 1024), random(1024, 512)
    tunable.enable()
    expected = host(ops.mm(a, b))
    found, told = tunable.get_results(), str(ops.explain(lambda: ops.mm(a, b)))

    tuning.tuner.cache_clear()
    plans.set_selector(None)
    tunable.enable()
    tunable.tuning_enable(False)

    assert tunable.get_results() == found
    np.testing.assert_array_equal(host(ops.mm(a, b)), expected)
    assert str(ops.explain(lambda: ops.mm(a, b))) == told


@pytest.mark.parametrize("field", ["gpu", "driver", "cublaslt"])
def test_a_file_of_another_machine_is_refused_and_left_as_it_is(field: str) -> None:
    tuning.tuner().tune(problem_of(), 0)
    path = Path(tunable.get_filename())
    header, *others = rows_of(str(path))
    header["validators"][field] = "another"
    text = "".join(f"{json.dumps(row)}\n" for row in (header, *others))
    path.write_text(text)
    tuning.tuner.cache_clear()

    with pytest.raises(TuningError, match=rf"validators\.{field} is 'another' there, and '.+' here"):
        Results(tuning.validators(0)).read(path)
    tuning.tuner.cache_clear()
    tunable.enable()
    with pytest.warns(UserWarning, match="tuning continues without its file"):
        ops.mm(random(8, 32), random(32, 16))
    assert path.read_text() == text
    assert len(tunable.get_results()) == 1


def test_untuned_products_are_recorded_then_tuned(tmp_path: Path) -> None:
    a, b = random(64, 256), random(256, 128)
    tunable.enable()
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    for _ in range(2):
        ops.mm(a, b)
        ops.mm(b.T, a.T)
        controls.renew()
    path = tunable.get_untuned_filename()
    assert len(rows_of(path)) == 3
    with pytest.raises(StateError, match="tuning is not enabled"):
        tunable.tune_gemm_in_file(path)

    told: list[dict[str, Any]] = []
    tunable.tuning_enable()
    tunable.tune_gemm_in_file(path, tell=told.append)

    assert len(tunable.get_results()) == len(told) == 2
    assert {"problem", "default_us", "us", "gain", "choice"} <= told[0].keys()


def test_processes_tune_a_part_each() -> None:
    problems = [problem_of(m=m) for m in (16, 32)]
    told: list[dict[str, Any]] = []

    offline.tune_on_several(problems, [0, 0], told.append)
    tuning.tuner().reread()

    assert len(told) == len(tunable.get_results()) == 2


@pytest.fixture
def restored(own_tuner: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test sets by call is as it was."""
    del own_tuner  # made before, and left after
    monkeypatch.setattr(controls, "_workspaces", {})
    former = offline._called()
    yield
    offline._adopt(former)


@pytest.mark.usefixtures("restored")
def test_processes_tune_by_the_library_that_was_preferred_by_call() -> None:
    cuda.preferred_blas_library("cublas")
    told: list[dict[str, Any]] = []

    offline.tune_on_several([problem_of()], [0], told.append)

    assert [row["default"] for row in told] == ["cuBLAS"]


@pytest.mark.usefixtures("restored")
def test_what_was_set_by_call_is_handed_to_processes() -> None:
    before = offline._called()
    precision.set_default_precision("tf32")
    determinism.use_deterministic_algorithms(True)
    cuda.matmul.allow_bf16_reduced_precision_reduction = (False, False)
    cuda.matmul.allow_fp16_accumulation = True
    cuda.cublas_workspace_size(0, 2**20)
    cuda.preferred_blas_library("cublas")
    tunable.set_numerical_check_tolerances(True, 1e-3, 1e-2)
    handed = json.dumps(offline._called())
    program = (
        "import json, sys; from cuassay.devices.cuda.blas import offline; "
        "offline._adopt(json.load(sys.stdin)); print(json.dumps(offline._called()))"
    )

    there = subprocess.run([sys.executable, "-c", program], input=handed, capture_output=True, text=True, check=True)

    assert json.loads(there.stdout) == json.loads(handed)
    assert all(json.loads(handed)[name] != value for name, value in json.loads(json.dumps(before)).items())
    assert all(json.loads(handed)["blas"][name] != value for name, value in before["blas"].items())


def test_processes_need_files_to_hand_over_what_they_find() -> None:
    tunable.write_file_on_exit(False)

    with pytest.raises(StateError, match="no file is written"):
        offline.tune_on_several([problem_of()], [0])


# ------------------------------------------------------------------------------------------------ the face


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tuning_duration", 70),
        ("max_tuning_iterations", 7),
        ("cublaslt_requested_algo_count", 3),
        ("rotating_buffer_size", 64),
        ("rotating_buffer_size", -1),
        ("filename", "somewhere.jsonl"),
        ("untuned_filename", "elsewhere.jsonl"),
    ],
)
def test_what_is_set_is_told(name: str, value: Any) -> None:
    getattr(tunable, f"set_{name}")(value)

    assert getattr(tunable, f"get_{name}")() == value


def test_a_number_of_algorithms_that_is_a_setting_reaches_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, search = [], cublaslt.candidates

    def candidates(*problem: Any, count: int = 1, **more: Any) -> Any:
        asked.append(count)
        return search(*problem, count=count, **more)

    monkeypatch.setattr(cublaslt, "candidates", candidates)
    monkeypatch.setenv("CUASSAY_TUNABLEOP_CUBLASLT_REQUESTED_ALGO_COUNT", "7")
    tuning.tuner.cache_clear()

    tuning.tuner().tune(problem_of(), 0)

    assert max(asked) == 7


def test_a_filename_may_have_the_devices_index() -> None:
    tunable.set_filename("results.jsonl", insert_device_ordinal=True)

    assert tunable.get_filename() == "results0.jsonl"


def test_without_a_filename_results_are_kept_by_gpu_and_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUASSAY_CACHE_DIR", str(tmp_path))
    tunable.set_filename("")

    name = Path(tunable.get_filename()).name
    assert all(word in name for word in (cuda.get_device_name(0).split()[-1], "driver", "cublaslt"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: tunable.set_max_tuning_duration(0),
        lambda: tunable.set_max_tuning_iterations(0),
        lambda: tunable.set_cublaslt_requested_algo_count(0),
        lambda: tunable.set_numerical_check_tolerances(True, 1e-3),
        lambda: tunable.set_numerical_check_tolerances(True, -1.0, 1.0),
    ],
    ids=["duration", "iterations", "algorithms", "one tolerance", "negative"],
)
def test_wrong_limits_are_told(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="got"):
        wrong()


def test_results_that_are_not_written_as_found_are_written_when_asked() -> None:
    tunable.write_file_on_exit(False)
    tuning.tuner().tune(problem_of(), 0)
    path = Path(tunable.get_filename())
    assert not path.exists()

    tunable.write_file()

    assert len(rows_of(str(path))) == 2
    assert tunable.read_file(str(path))


@pytest.mark.parametrize("is_writing", [False, True], ids=["when asked", "as found"])
def test_what_is_in_no_file_belongs_to_the_next_one_that_is_named(tmp_path: Path, is_writing: bool) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    tunable.set_filename(str(first))
    written = tuning.tuner().tune(problem_of(), 0).result
    tunable.write_file_on_exit(False)
    left = tuning.tuner().tune(problem_of(m=16), 0).result
    tunable.set_filename(str(tmp_path / "never asked for.jsonl"))

    tunable.set_filename(str(second))
    tunable.write_file_on_exit(is_writing)

    assert tunable.get_results() == (left,)
    assert second.exists() == is_writing
    tunable.write_file()
    assert len(rows_of(str(second))) == 2
    tunable.set_filename(str(first))
    assert tunable.get_results() == (written,)


def test_what_a_file_refused_goes_to_the_next_one(tmp_path: Path) -> None:
    foreign, own = tmp_path / "foreign.jsonl", tmp_path / "own.jsonl"
    foreign.write_text("not of here\n")
    tunable.set_filename(str(foreign))
    with pytest.warns(UserWarning, match="tuning continues without its file"):
        found = tuning.tuner().tune(problem_of(), 0).result

    tunable.set_filename(str(own))

    assert tunable.get_results() == (found,)
    assert len(rows_of(str(own))) == 2
    assert foreign.read_text() == "not of here\n"


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_a_setting_turns_it_on_for_a_program_that_does_not_know(is_on: bool) -> None:
    program = (
        "import cupy; from cuassay import ops; a = cupy.ones((64, 64), 'float32'); ops.mm(a, a); "
        "from cuassay.cuda import tunable; print(tunable.is_enabled(), len(tunable.get_results()))"
    )
    environ = os.environ | {"CUASSAY_TUNABLEOP_ENABLED": str(int(is_on))}

    assert subprocess.check_output([sys.executable, "-c", program], env=environ, text=True).split() == (
        ["True", "1"] if is_on else ["False", "0"]
    )
