"""asv: what it collects from the OpSpecs, and what it makes of results written at home."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cuassay.benchmarking.asv import PARAM_NAMES, main, series, series_name, write
from cuassay.benchmarking.cases import DTYPES, case_label, case_labels, cases
from cuassay.errors import SpecError
from cuassay.results.record import Recorder
from cuassay.testing import OpSpec
from cuassay.testing.opspec import REDUCED
from cuassay.testing.own_specs import own_specs
from cuassay.testing.presence import sizes_for

ROOT = Path(__file__).parents[3]
MEASURED = [spec for spec in own_specs() if spec.bench is not None]

FACTS = {"kind": "cuda", "name": "NVIDIA H200", "driver": "580.95.05", "cuda": "13.0", "architecture": "x86_64"}
FACTS |= {"system": "Linux", "python": "CPython 3.12.3"}


@pytest.mark.parametrize("spec", MEASURED, ids=lambda spec: spec.name)
def test_each_op_with_benchmark_sizes_has_a_series(spec: OpSpec) -> None:
    found: Any = series("cpu")[f"track_{spec.name}"]

    assert found.benchmark_name == series_name(spec.name)
    assert (found.unit, tuple(found.param_names)) == ("seconds", PARAM_NAMES)
    assert found.params == [list(DTYPES), list(case_labels(spec, "cpu", "float32"))]


def test_a_users_specs_have_series_in_every_dtype_they_claim() -> None:
    spec = OpSpec(fn=lambda xp, a: a + a, name="mine", dtypes=("float64", "int8"), bench=lambda make, sizes: [make(7)])
    unmeasured = OpSpec(fn=lambda xp, a: a, name="other")

    ((name, track),) = series("sim", [spec, unmeasured]).items()
    found: Any = track

    assert (name, found.params) == ("track_mine", [["float64", "int8"], ["7"]])
    assert len(found("int8", "7")["samples"]) > 1


def test_two_series_of_one_name_are_refused() -> None:
    specs = [OpSpec(fn=lambda xp, a: a, bench=lambda make, sizes: [make(3)]) for _ in range(2)]

    with pytest.raises(SpecError, match="several specs are named 'function'"):
        series("cpu", specs)


def test_series_are_told_apart_by_source_and_version() -> None:
    found: list[Any] = list(series("cpu").values())

    assert len({one.version for one in found}) == len({one.pretty_source for one in found}) == len(found)


@pytest.mark.parametrize("spec", MEASURED, ids=lambda spec: spec.name)
def test_labels_without_numbers_are_those_of_the_cases(spec: OpSpec) -> None:
    drawn = [case_label(sample) for sample in spec.draw_bench(0, "float32", REDUCED)]

    assert list(case_labels(spec, "sim", "float32")) == drawn
    assert sizes_for("sim") == REDUCED


def test_labels_of_an_accelerators_sizes_take_no_memory() -> None:
    (softmax,) = (spec for spec in MEASURED if spec.name == "softmax")

    assert case_labels(softmax, "cuda:0", "float32") == ("8x12x1024x1024", "1024x50257")


def test_a_series_measures_what_its_parameters_name() -> None:
    track: Any = series("sim")["track_add"]
    (case,) = cases(next(spec for spec in MEASURED if spec.name == "add"), "sim", "float32")

    track.setup("float32", case.label)
    result = track("float32", case.label)

    assert result["number"] == 1
    assert min(result["samples"]) > 0


@pytest.mark.parametrize(("dtype", "case"), [("bool", "1x128x768"), ("float32", "of another machine")])
def test_what_a_device_cannot_do_is_not_applicable(dtype: str, case: str) -> None:
    track: Any = series("sim")["track_gelu"]

    with pytest.raises(NotImplementedError):
        track.setup(dtype, case)


@pytest.mark.parametrize(("setting", "device"), [("sim:1", "sim:1"), ("cpu,sim", "cpu:0")])
def test_the_first_device_of_the_setting_is_measured(
    setting: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUASSAY_DEVICES", setting)
    measured: list[str] = []
    monkeypatch.setattr("cuassay.benchmarking.asv.cases", lambda spec, where, dtype: measured.append(str(where)) or ())

    with pytest.raises(StopIteration):
        series()["track_add"]("float32", "1x128x768")

    assert measured == [device]


# -------------------------------------------------------------------------------------------------- asv itself


class Repository:
    """A git repository with asv's configuration and two commits, and the results of a run of each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copy(ROOT / "asv.conf.json", root)
        home = root / "home"
        home.mkdir()
        who = {f"GIT_{role}_{what}": "x@y" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        self.environment = {**os.environ, **who, "HOME": str(home), "GIT_CONFIG_GLOBAL": os.devnull}
        self.run("git", "init", "-q", "-b", "main")
        self.commits = [self._commit(number) for number in (1, 2)]

    def _commit(self, number: int) -> str:
        self.run("git", "commit", "-q", "--allow-empty", "-m", f"commit {number}")
        return self.run("git", "rev-parse", "HEAD").strip()

    def measure(self, number: int, seconds: float) -> Path:
        with Recorder(self.root / "ledger" / f"{number}.jsonl", run=f"r{number}") as recorder:
            recorder.write_run(started=f"2026-01-0{number}T12:00:00Z", commit=self.commits[number - 1])
            specimen = {"digest": f"{number}123456789ab", "fingerprint": {**FACTS, "uuid": f"GPU-{number}"}}
            recorder.write_device(device="cuda:0", present=True, **specimen)
            for dtype in DTYPES:
                recorder.write_time(**_time(dtype, seconds))
                recorder.write_time(**{**_time(dtype, 1.0), "implementation": "torch"})
        return recorder.path

    def asv(self, *arguments: str) -> str:
        return self.run(sys.executable, "-m", "asv", *arguments)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _time(dtype: str, seconds: float) -> dict[str, object]:
    samples = [seconds * factor for factor in (0.99, 1.0, 1.01)]
    told = {"benchmark": "add", "device": "cuda:0", "case": "8x8", "implementation": "cuassay", "clock": "device"}
    return {**told, "dtype": dtype, "median": seconds, "n": 3, "samples": samples}


def stored(folder: Path, *times: dict[str, object], **about: object) -> Any:
    """asv's results of a run of these timings."""
    results = pytest.importorskip("asv.results", reason="asv is an extra")
    with Recorder(folder / "rows.jsonl", run="r1") as recorder:
        recorder.write_run(started="2026-01-02T00:00:00Z", commit="9f3c2100aa" * 4, **about)
        recorder.write_device(device="cuda:0", present=True, digest="0123456789ab", fingerprint=FACTS)
        for time in times:
            recorder.write_time(**time)
    write([recorder.path], folder / "results")
    (path,) = (folder / "results").rglob("9f3c*.json")
    return results.Results.load(str(path))


def values(found: Any) -> dict[tuple[str, ...], float]:
    (name,) = found.get_all_result_keys()
    params = found.get_result_params(name)
    return dict(zip(product(*params), found.get_result_value(name, params), strict=True))


def test_each_time_is_stored_under_its_own_dtype_and_case(tmp_path: Path) -> None:
    wide = {**_time("float32", 3e-5), "case": "9x9"}

    found = values(stored(tmp_path, _time("float32", 1e-5), _time("bfloat16", 2e-5), wide))

    assert {key: value for key, value in found.items() if not math.isnan(value)} == {
        ("'float32'", "'8x8'"): 1e-5,
        ("'bfloat16'", "'8x8'"): 2e-5,
        ("'float32'", "'9x9'"): 3e-5,
    }


@pytest.mark.parametrize(
    "other",
    [{"clock": "host"}, {"cache": "warm"}, {"mode": "graph"}, {"unit": "B"}],
    ids=lambda other: next(iter(other)),
)
def test_what_was_measured_another_way_is_no_point_of_the_series(tmp_path: Path, other: dict[str, object]) -> None:
    found = stored(tmp_path, _time("float32", 1e-5), {**_time("float32", 1.0), **other})

    assert list(values(found).values()) == [1e-5]


@pytest.mark.parametrize(
    ("about", "day"), [({}, 2), ({"committed": "2026-01-01T00:00:00Z"}, 1)], ids=["started", "committed"]
)
def test_a_point_has_the_date_of_its_commit(tmp_path: Path, about: dict[str, object], day: int) -> None:
    date = stored(tmp_path, _time("float32", 1e-5), **about).date

    assert datetime.fromtimestamp(date / 1000, UTC) == datetime(2026, 1, day, tzinfo=UTC)


def test_a_series_has_the_date_of_its_run(tmp_path: Path) -> None:
    found = stored(tmp_path, _time("float32", 1e-5), committed="2026-01-01T00:00:00Z").started_at

    day = datetime(2026, 1, 2, tzinfo=UTC)
    assert {name: datetime.fromtimestamp(date / 1000, UTC) for name, date in found.items()} == {"ops.track_add": day}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    pytest.importorskip("asv", reason="asv is an extra")
    made = Repository(tmp_path_factory.mktemp("repository"))
    for number, seconds in ((1, 1e-5), (2, 2e-5)):
        made.measure(number, seconds)
    assert main([str(made.root / "ledger"), "--out", str(made.root / "reports" / "asv" / "results")]) == 0
    return made


def test_publish_draws_gpu_driver_branch_and_cuda_major_as_axes(repository: Repository) -> None:
    repository.asv("publish")

    index = json.loads((repository.root / "reports" / "asv" / "html" / "index.json").read_text())

    axes = index["params"]
    assert (axes["gpu"], axes["driver"], axes["cuda"]) == (["NVIDIA H200"], ["580"], ["13"])
    assert axes["machine"] == ["nvidia-h200-driver-580-cuda-13"]  # though the pool lent two specimens
    assert list(index["benchmarks"]) == ["ops.track_add"]
    assert index["benchmarks"]["ops.track_add"]["unit"] == "seconds"


def test_show_prints_our_figures_by_dtype_and_no_peers(repository: Repository) -> None:
    shown = repository.asv("show", repository.commits[1])

    assert "ops.track_add" in shown
    assert "bfloat16" in shown
    assert "20.0" in shown
    assert "1.00s" not in shown


def test_compare_finds_the_slower_commit(repository: Repository) -> None:
    compared = repository.asv("compare", *repository.commits)

    assert re.search(r"10\.0.*20\.0.*\| +2 \|", compared)
    assert "ops.track_add('float32', '8x8')" in compared


def test_asv_collects_our_series(repository: Repository) -> None:
    shutil.copytree(ROOT / "suites" / "benchmarks", repository.root / "suites" / "benchmarks")

    repository.asv("check", "--environment", f"existing:{sys.executable}")


def test_a_run_with_hidden_libraries_has_series_of_its_own(tmp_path: Path) -> None:
    for number, hidden in enumerate(({}, {"without": "nvmath"}), start=1):
        with Recorder(tmp_path / "ledger" / f"{number}.jsonl", run=f"r{number}") as recorder:
            recorder.write_run(started="2026-01-02T00:00:00Z", commit="9f3c2100aa" * 4)
            recorder.write_device(device="cuda:0", present=True, digest="0123456789ab", fingerprint={**FACTS, **hidden})
            recorder.write_time(**_time("float32", number * 1e-5))
    write([tmp_path / "ledger" / "1.jsonl", tmp_path / "ledger" / "2.jsonl"], tmp_path / "results")

    assert {path.name for path in (tmp_path / "results").iterdir() if path.is_dir()} == {
        "nvidia-h200-driver-580-cuda-13",
        "nvidia-h200-driver-580-cuda-13-without-nvmath",
    }


def two_runs(folder: Path) -> Path:
    """Two runs of one commit: the first measured two dtypes, the second one of them and a third."""
    for number, times in enumerate(({"float32": 1e-5, "bfloat16": 2e-5}, {"float32": 3e-5, "float16": 4e-5}), start=1):
        with Recorder(folder / "ledger" / f"{number}.jsonl", run=f"r{number}") as recorder:
            recorder.write_run(started=f"2026-01-0{number}T00:00:00Z", commit="9f3c2100aa" * 4)
            facts = {**FACTS, "uuid": f"GPU-{number}"}
            recorder.write_device(device="cuda:0", present=True, digest="0123456789ab", fingerprint=facts)
            for dtype, seconds in times.items():
                recorder.write_time(**_time(dtype, seconds))
    return folder / "ledger"


def test_two_runs_of_a_commit_keep_every_series_and_the_newer_figure(tmp_path: Path) -> None:
    results = pytest.importorskip("asv.results", reason="asv is an extra")

    written = write([two_runs(tmp_path)], tmp_path / "results")

    (path,) = (tmp_path / "results").rglob("9f3c*.json")
    found = {dtype: value for (dtype, _), value in values(results.Results.load(str(path))).items()}
    assert (written, found) == (1, {"'float32'": 3e-5, "'bfloat16'": 2e-5, "'float16'": 4e-5})


def test_a_series_of_two_runs_has_the_date_of_the_newer(tmp_path: Path) -> None:
    results = pytest.importorskip("asv.results", reason="asv is an extra")
    write([two_runs(tmp_path)], tmp_path / "results")

    (path,) = (tmp_path / "results").rglob("9f3c*.json")
    (date,) = results.Results.load(str(path)).started_at.values()
    assert datetime.fromtimestamp(date / 1000, UTC) == datetime(2026, 1, 2, tzinfo=UTC)


def test_virtual_times_alone_are_refused_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs(tmp_path)
    for file in tmp_path.rglob("*.jsonl"):
        file.write_text(file.read_text().replace('"clock":"device"', '"clock":"device","unit":"virtual s"'))

    assert main([str(tmp_path), "--out", str(tmp_path / "results")]) == 2

    assert "virtual times of sim and the host's clock are left out" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_commit_that_asv_cannot_find_is_named(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository.root)
    known = repository.measure(1, 1e-5)

    assert main([str(known), str(two_runs(repository.root / "other")), "--out", str(repository.root / "out")]) == 0

    told = capsys.readouterr().err
    assert f"commit {'9f3c2100aa' * 4} is not in the repository here" in told
    assert repository.commits[0] not in told
