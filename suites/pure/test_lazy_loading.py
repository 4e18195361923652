"""Whoever imports only the ops still finds the kinds of devices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("imported", ["from cuassay import ops", "import cuassay.ops as ops"], ids=["from", "import"])
def test_first_array_loads_its_kind(imported: str) -> None:
    code = f"{imported}; import numpy; print(ops.add(numpy.ones(2), 1.0).tolist())"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr) == ("[2.0, 2.0]", "")


@pytest.mark.parametrize("module", ["amp", "cuda", "devices", "jit", "linalg", "ops", "optim", "random"])
def test_a_module_is_there_without_importing_it(module: str) -> None:
    code = f"import cuassay; print(cuassay.{module}.__name__)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr) == (f"cuassay.{module}", "")


def test_importing_the_package_imports_neither_numpy_nor_a_kind_of_device() -> None:
    code = "import sys, cuassay; print([m for m in sys.modules if m in ('numpy', 'cupy') or 'cuassay.devices' in m])"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("module", ["cuassay.cli", "cuassay.benchmarking.sample", "cuassay.testing"])
def test_a_command_and_a_process_of_a_comparison_import_no_pytest(module: str) -> None:
    code = f"import sys, {module}; print('pytest' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


@pytest.mark.parametrize("options", [(), ("-p", "no:xdist")], ids=["with xdist", "without xdist"])
def test_a_session_of_a_project_that_does_not_use_us_imports_no_numpy(tmp_path: Path, options: tuple[str, ...]) -> None:
    loaded = "[m for m in sys.modules if m == 'numpy' or 'cuassay.devices' in m]"
    (tmp_path / "test_foreign.py").write_text(f"import sys\n\ndef test_it():\n    assert {loaded} == []\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_foreign.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
