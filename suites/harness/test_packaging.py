"""What we ship, what it needs, and that it works elsewhere; also that the storeys' contracts notice a breach."""

from __future__ import annotations

import email.message
import email.parser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from cuassay.core import extras

ROOT = Path(__file__).parents[2]

# A registry's or a mirror's address, in any file; in pieces, so that this file has none.
REGISTRIES = "|".join(
    ("pypi" + r"\.org", "python" + r"hosted\.", "anaconda" + r"\.org", "/simple" + "/", "index-" + "url")
)


def run(*command: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUASSAY_", "PY", "COV"))}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env={**clean, **(env or {})}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.parser.Parser().parsestr(archive.read(name).decode())


def contents(wheel: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, ROOT / "ci" / "wheel.py", wheel)


def test_the_wheel_holds_both_packages_whole_and_nothing_else(wheel: Path) -> None:
    done = contents(wheel)
    assert done.returncode == 0, done.stderr


def test_a_test_in_the_wheel_is_noticed(wheel: Path, tmp_path: Path) -> None:
    fat = Path(shutil.copy(wheel, tmp_path))
    with zipfile.ZipFile(fat, "a") as archive:
        archive.writestr("suites/pure/test_it.py", "")
    done = contents(fat)
    assert done.returncode != 0
    assert "not ours to ship: suites/pure/test_it.py" in done.stderr


@pytest.mark.parametrize("name", ["cuassay/py.typed", "cuassay/errors.py", "cuassay_reports/py.typed"])
def test_a_file_missing_from_the_wheel_is_noticed(wheel: Path, tmp_path: Path, name: str) -> None:
    thin = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(thin, "w") as archive:
        for held in whole.namelist():
            if held != name:
                archive.writestr(held, whole.read(held))
    done = contents(thin)
    assert done.returncode != 0
    assert f"missing: {name}" in done.stderr


def test_a_base_installation_brings_no_cuda_package(metadata: email.message.Message) -> None:
    needs = metadata.get_all("Requires-Dist", [])
    base = {re.split(r"[\[<>=; ]", need)[0] for need in needs if "extra ==" not in need}
    assert base == {"ml-dtypes", "numpy", "pytest"}


def test_extras_are_one_for_each_cuda_major_and_each_further_task(metadata: email.message.Message) -> None:
    assert set(metadata.get_all("Provides-Extra", [])) == {
        "asv", "benchmark", "cache", "completion", "cuda12", "cuda13", "cupti", "fleet", "jit", "mutate", "nvtx",
        "report",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["benchmark", "report"])
def test_job_installs_what_the_extra_names(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["dependency-groups"][name] == project["project"]["optional-dependencies"][name]


def test_messages_name_the_packages_of_each_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = project["project"]["optional-dependencies"]
    named = {extra: {without_version(need) for need in needs} for extra, needs in extras.EXTRAS.items()}
    assert named == {extra: {without_version(need) for need in needs} for extra, needs in declared.items()}


def without_version(need: str) -> str:
    return re.split("[<>=]", need)[0]


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("report", "pip install jinja2 pandas"),
        ("benchmark", "pip install 'pytest-benchmark<6' threadpoolctl"),
    ],
)
def test_command_that_installs_an_extra_suits_a_shell(extra: str, command: str) -> None:
    assert extras.pip_install(extra) == command


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Name", "cuassay"),
        ("License-Expression", "Apache-2.0"),
        ("License-File", "LICENSE"),
        ("Requires-Python", ">=3.11"),
    ],
)
def test_the_metadata_says_what_we_are(metadata: email.message.Message, field: str, value: str) -> None:
    assert metadata[field] == value


def test_no_tracked_file_holds_a_registry_address() -> None:
    done = run("git", "grep", "-nIE", REGISTRIES, "--", ".", ":!reports/ledger")
    assert (done.returncode, done.stdout) == (1, "")  # git grep's status for "found nothing"


# ---------------------------------------------------------------------------------------------- installed elsewhere


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts' folder of a new environment that holds our wheel, and borrows all else from this one."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel]
    done = run(*pip)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin"


@pytest.mark.slow
def test_the_plugin_tests_another_project_on_every_device(elsewhere: Path, tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "def test_ones(device, xp):\n    total = xp.ones(4).sum()\n    assert float(total) == 4\n"
    )
    done = run(elsewhere / "python", "-m", "pytest", "--device", "all", "-v", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"test_ones\[cpu:0\] PASSED", done.stdout)
    assert re.search(r"test_ones\[sim:0\] PASSED", done.stdout)


@pytest.mark.slow
def test_the_command_lists_devices_where_only_the_wheel_is(elsewhere: Path, tmp_path: Path) -> None:
    done = run(elsewhere / "cuassay", "devices", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cpu:0" in done.stdout


# ---------------------------------------------------------------------------------------------- contracts


@pytest.mark.parametrize(
    ("module", "forbidden", "contract"),
    [
        ("cuassay/core", "numpy", "Words need the standard library alone"),
        ("cuassay/core", "cuassay.arrays", "Storeys: import downwards only"),
        ("cuassay/arrays", "cuassay.ops", "Storeys: import downwards only"),
        ("cuassay/benchmarking", "cuassay.cli", "Storeys: import downwards only"),
        ("cuassay/devices/sim", "cuassay.devices.cpu", "Storeys: import downwards only"),
        ("cuassay/arrays", "cupy", "No driver, by no way round"),
        ("cuassay/ops", "cuassay.devices", "Devices register themselves"),
        ("cuassay/testing", "cuda.bindings.driver", "Only the cuda room names a CUDA library"),
        ("cuassay/ops", "pytest", "Only the harness knows pytest and asv"),
        ("cuassay_reports", "cuassay.core", "Reports read result files"),
        ("cuassay/testing", "cuassay_reports.load", "The harness knows reports by their schema"),
    ],
)
def test_an_import_across_the_storeys_is_noticed(tmp_path: Path, module: str, forbidden: str, contract: str) -> None:
    for source in ("backend", "reports"):
        shutil.copytree(ROOT / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__", "ledger", "out"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    source = "reports" if module == "cuassay_reports" else "backend"
    (tmp_path / source / module / "planted.py").write_text(f"import {forbidden}\n")
    paths = f"{tmp_path / 'backend'}{os.pathsep}{tmp_path / 'reports'}"
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = run(sys.executable, "-c", lint, "--no-cache", cwd=tmp_path, env={"PYTHONPATH": paths})
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"{re.escape(contract)}.* BROKEN", done.stdout)
