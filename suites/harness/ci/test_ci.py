"""ci/: jobs that anybody can start, pins without addresses, and bundles that leave out what is there."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
CI = ROOT / "ci"
JOBS = sorted(script.stem for script in CI.glob("*.sh"))
MACHINES = tomllib.loads((CI / "matrix.toml").read_text())["machine"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINS = [line for line in (CI / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]

# Replaces uv: makes the environment without pip, and writes down each installation.
FAKE_UV = f"""#!/usr/bin/env bash
if [ "$1" = venv ]; then
    exec {sys.executable} -m venv --without-pip "${{@: -1}}"
fi
echo "$*" >>uv.log
[ ! -e uv-fails ]
"""

PROBE = """#!/usr/bin/env bash
# shows what a job is given
# groups: test compile
echo "$PYTHON|${PYTHONPATH:-}|$*"
"""


def run(*command: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUASSAY_", "PYTHON"))}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env={**clean, **(env or {})}, capture_output=True, text=True, check=False)


def python(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, CI / script, *arguments)


class Checkout:
    """A copy of what ci/run reads, with a job `probe` that shows what it is given."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(CI, root / "ci", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", root)
        (root / "ci" / "probe.sh").write_text(PROBE)
        uv = root / "bin" / "uv"
        uv.parent.mkdir()
        uv.write_text(FAKE_UV)
        uv.chmod(uv.stat().st_mode | stat.S_IXUSR)

    def start(self, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return run(self.root / "ci" / "run", *arguments, cwd=self.root, env={"PATH": path, **env})

    @property
    def installations(self) -> list[str]:
        log = self.root / "uv.log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("job", JOBS)
def test_without_a_job_each_job_is_listed_with_what_it_does(job: str) -> None:
    done = run(CI / "run")
    assert done.returncode == 2
    assert re.search(rf"^  {job} +\w.*$", done.stderr, re.MULTILINE)


def test_an_unknown_job_is_refused_with_the_nearest_and_all_others() -> None:
    done = run(CI / "run", "tset")
    assert done.returncode == 2
    assert done.stderr.startswith("ci/run: there is no job 'tset' (did you mean 'test'?); jobs: ab, ")


def test_an_unknown_job_without_python_is_refused_too(tmp_path: Path) -> None:
    for name in ("bash", "dirname", "basename", "sed"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = run(CI / "run", "tset", env={"PATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr.startswith("ci/run: there is no job 'tset'; jobs: ab, ")


@pytest.mark.parametrize("word", ["-h", "--help", "help"])
def test_help_lists_the_jobs(word: str) -> None:
    done = run(CI / "run", word)
    assert done.returncode == 0
    assert "  test " in done.stdout


@pytest.mark.parametrize("job", JOBS)
def test_each_job_names_only_groups_that_exist(job: str) -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    header = (CI / f"{job}.sh").read_text().splitlines()[2]
    assert header.startswith("# groups:")
    assert set(header.removeprefix("# groups:").split()) <= set(groups)


def test_a_first_start_installs_us_and_the_groups_of_the_job(checkout: Checkout) -> None:
    done = checkout.start("probe", "one", "two")
    assert done.stdout == f"{checkout.root}/.venv/bin/python||one two\n", done.stderr
    [installation] = checkout.installations
    assert installation.endswith("--editable . --group test --group compile")


def test_an_environment_of_the_user_stays_as_it_is(checkout: Checkout) -> None:
    (checkout.root / ".venv").mkdir()
    done = checkout.start("probe")
    assert done.stdout == f"{checkout.root}/.venv-ci/bin/python||\n", done.stderr
    assert "ci/run: .venv was not made by ci/run and stays as it is\n" in done.stderr
    assert list((checkout.root / ".venv").iterdir()) == []


def test_a_second_start_installs_nothing(checkout: Checkout) -> None:
    checkout.start("probe")
    assert checkout.start("probe").returncode == 0
    assert len(checkout.installations) == 1


def test_changed_dependencies_are_installed_again(checkout: Checkout) -> None:
    checkout.start("probe")
    with (checkout.root / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    checkout.start("probe")
    assert len(checkout.installations) == 2


def test_another_pin_is_installed_in_place_of_ours(checkout: Checkout) -> None:
    checkout.start("probe")
    checkout.start("probe", CUASSAY_PINS="pytest==9.2.*")
    constraints = (checkout.root / ".venv" / "constraints.txt").read_text().splitlines()
    assert [pin for pin in constraints if pin.startswith("pytest=")] == ["pytest==9.2.*"]
    assert len(checkout.installations) == 2


def test_an_installation_that_failed_is_tried_again(checkout: Checkout) -> None:
    broken = checkout.root / "uv-fails"
    broken.touch()
    assert checkout.start("probe").returncode != 0
    broken.unlink()
    assert checkout.start("probe").returncode == 0
    assert len(checkout.installations) == 2


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_given_interpreter_is_used_as_it_is(checkout: Checkout, how: str) -> None:
    if how == "option":
        done = checkout.start("--python", sys.executable, "probe")
    else:
        done = checkout.start("probe", CUASSAY_PYTHON=sys.executable)
    paths = f"{checkout.root}/backend:{checkout.root}/reports"
    assert done.stdout == f"{sys.executable}|{paths}|\n", done.stderr
    assert not checkout.installations
    assert not (checkout.root / ".venv").exists()


def test_an_interpreter_that_does_not_run_is_refused(checkout: Checkout) -> None:
    done = checkout.start("--python", "/nowhere/python", "probe")
    assert done.returncode == 2
    assert "/nowhere/python does not run" in done.stderr


def test_an_interpreter_that_is_not_named_is_asked_for() -> None:
    done = run(CI / "run", "--python")
    assert done.returncode == 2
    assert done.stderr == "ci/run: --python needs the path of an interpreter\n"


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine["name"])
def test_each_machine_runs_jobs_that_exist_by_a_workflow_that_exists(machine: dict[str, Any]) -> None:
    assert machine["workflow"] in {file.stem for file in WORKFLOWS}
    assert set(machine["jobs"]) <= set(JOBS)


@pytest.mark.parametrize("workflow", [file.stem for file in WORKFLOWS if "matrix.py" in file.read_text()])
def test_each_workflow_gets_a_leg_for_each_job_of_its_machines(workflow: str) -> None:
    done = python("matrix.py", workflow)
    assert done.returncode == 0, done.stderr
    legs = json.loads(done.stdout)["include"]
    wanted = {(f"{row['name']} {job}", job) for row in MACHINES if row["workflow"] == workflow for job in row["jobs"]}
    assert {(leg["name"], leg["job"]) for leg in legs} == wanted
    assert all(leg["runs-on"] for leg in legs)


def test_what_a_commit_changes_is_mutated_at_every_push_and_its_parent_is_there() -> None:
    rows = [row for row in MACHINES if "mutate" in row["jobs"]]
    assert {row["workflow"] for row in rows} == {"cpu"}

    text = (WORKFLOWS[0].parent / "cpu.yml").read_text(encoding="utf-8")
    checkout = text.partition("  leg:")[2].partition("- uses: actions/checkout")[2].partition("- uses:")[0]
    assert int(re.search(r"fetch-depth: (\d+)", checkout)[1]) >= 2  # type: ignore[index]


def test_a_workflow_without_machines_is_an_error_and_no_empty_matrix() -> None:
    done = python("matrix.py", "nowhere")
    assert done.returncode != 0
    assert "'nowhere'" in done.stderr


@pytest.mark.parametrize("version", ["9.1", "9.2"])
def test_pytest_of_both_current_branches_is_tested(version: str) -> None:
    pins = [next(pin for pin in [*row.get("pins", []), *PINS] if pin.startswith("pytest=")) for row in MACHINES]
    assert any(pin.startswith(f"pytest=={version}.") for pin in pins)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_use_the_four_actions_and_ci_run_alone(workflow: Path) -> None:
    text = workflow.read_text()
    actions = set(re.findall(r"uses: (\S+)@", text))
    known = {"actions/checkout", "actions/setup-python", "actions/upload-artifact", "actions/download-artifact"}
    assert actions <= known
    assert "ci/run " in text or "workflow_run" in text
    assert "pip install" not in text


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_what_may_write_to_a_pull_request_runs_none_of_its_code(workflow: Path) -> None:
    text = workflow.read_text()

    assert "pull_request_target" not in text
    if "pull-requests: write" in text:
        assert "actions/checkout" not in text
        assert not re.search(r"^  pull_request:", text, re.MULTILINE)


def test_a_workflow_that_waits_for_others_names_them() -> None:
    names = {re.search(r"^name: (\S+)$", file.read_text(), re.MULTILINE)[1] for file in WORKFLOWS}  # type: ignore[index]
    awaited = {name for file in WORKFLOWS for name in re.findall(r"workflows: \[(\S+)\]", file.read_text())}

    assert awaited
    assert awaited <= names


@pytest.mark.parametrize("pin", PINS)
def test_constraints_are_names_and_versions_alone(pin: str) -> None:
    assert re.fullmatch(r"[a-z0-9_-]+==[\d.*]+(; python_version [<>=]+ \"[\d.]+\")?(  # .*)?", pin)


def test_whatever_we_require_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [need for extra in project["project"]["optional-dependencies"].values() for need in extra]
    groups = [need for group in project["dependency-groups"].values() for need in group if isinstance(need, str)]
    names = {re.split(r"[\[<>=]", need)[0] for need in [*project["project"]["dependencies"], *extras, *groups]}
    pinned = {re.split(r"==", pin)[0] for pin in PINS}
    # No machine of ours runs CUDA 12: nothing says which of its versions are good together.
    assert names - pinned == {"cupy-cuda12x"}


def test_a_given_pin_replaces_ours_whatever_its_spelling() -> None:
    done = python("pins.py", "ML-DTypes==0.5.*")
    pins = [line for line in done.stdout.splitlines() if re.match("ml.dtypes", line, re.IGNORECASE)]
    assert pins == ["ML-DTypes==0.5.*"]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(CI)
    return importlib.import_module("offline")


@pytest.mark.parametrize(
    ("line", "name", "version"),
    [
        ("numpy==2.5.2", "numpy", "2.5.2"),
        ("numpy  2.5.2", "numpy", "2.5.2"),
        ("torch==2.11.0+cu130", "torch", "2.11.0+cu130"),
        ("Jinja2", "jinja2", ""),
        ("ml_dtypes==0.6.0  # a comment", "ml-dtypes", "0.6.0"),
        ("cuassay 0.1.0 /some/where", "cuassay", "0.1.0"),
        ("triton @ file:///wheels/triton-3.6.0.whl", "triton", ""),
        ("-e git+ssh://host/tool.git@abc#egg=tool", "tool", ""),
    ],
)
def test_what_is_installed_is_read_in_every_form(offline: ModuleType, line: str, name: str, version: str) -> None:
    assert offline.parse_installed(f"{line}\n") == {name: version}


def test_the_heading_of_pip_list_is_no_package(offline: ModuleType) -> None:
    text = "Package Version\n------- -------\nnumpy   2.5.2\n"
    assert offline.parse_installed(text) == {"numpy": "2.5.2"}


def test_a_line_that_is_no_package_is_refused_and_shown(offline: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"cannot read '--index"):
        offline.parse_installed("--index somewhere\n")


def test_a_bundle_leaves_out_what_is_installed_and_ourselves(offline: ModuleType) -> None:
    resolved = {"cuassay": "0.1.0", "asv": "0.6.6", "ml-dtypes": "0.6.0"}
    assert offline.bundled(resolved, {"ml-dtypes": ""}) == {"asv": "0.6.6"}


def test_the_install_line_reaches_no_index_and_keeps_what_is_there(offline: ModuleType) -> None:
    line = offline.install_line(Path("dist/offline"))
    assert "--no-index --no-deps" in line
    assert "--target site dist/offline/*.whl" in line


# ------------------------------------------------------------------------------------------------ plain English


@pytest.mark.parametrize(
    ("line", "count"),
    [("x is no array", 1), ("there is no network", 0), ("it is told of once", 2), ("a plain sentence", 0)],
)
def test_phrase_that_readers_stumble_on_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, count: int
) -> None:
    monkeypatch.syspath_prepend(CI)
    file = tmp_path / "page.md"
    file.write_text(f"First line.\n{line}\n")
    found = list(importlib.import_module("words").found(file))
    assert len(found) == count
    assert all(place.startswith(f"{file}:2: ") for place in found)


@pytest.mark.parametrize("page", sorted((ROOT / "reports" / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_page_of_the_documentation_has_none_of_the_phrases(monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    monkeypatch.syspath_prepend(CI)
    words = importlib.import_module("words")
    assert page.name == "writing.md" or list(words.found(page)) == []
