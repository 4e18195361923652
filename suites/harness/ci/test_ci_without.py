"""ci/without: an interpreter that finds it on its path lacks the modules named, whatever is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "ci" / "without"


def told(code: str, hidden: str) -> str:
    """What `code` prints in a fresh interpreter that lacks the modules `hidden`."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER), "WITHOUT_MODULES": hidden}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


FIND = """
import importlib.util
for name in ("hypothesis", "numpy", "numpy.fft", "importlib.resources"):
    print(name, importlib.util.find_spec(name) is not None)
"""


@pytest.mark.parametrize(
    ("hidden", "lacking"),
    [("", set()), ("hypothesis", {"hypothesis"}), ("numpy.fft,hypothesis", {"numpy.fft", "hypothesis"})],
)
def test_what_is_hidden_is_not_found_and_all_else_is(hidden: str, lacking: set[str]) -> None:
    found = dict(line.split() for line in told(FIND, hidden).splitlines())

    assert {name for name, is_there in found.items() if is_there == "False"} == lacking


IMPORT = """
try:
    {statement}
    print("imported")
except ModuleNotFoundError as error:
    print(error.name)
"""


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("import hypothesis", "hypothesis"),
        ("from hypothesis import strategies", "hypothesis"),
        ("import hypothesis.strategies", "hypothesis"),
        ("import hypothesis_like", "hypothesis_like"),
        ("import json", None),
    ],
)
def test_to_import_it_fails_as_if_it_were_not_installed(statement: str, missing: str | None) -> None:
    assert told(IMPORT.format(statement=statement), "hypothesis") == (missing or "imported")


def test_a_process_started_by_one_that_lacks_it_lacks_it_too() -> None:
    inner = IMPORT.format(statement="import hypothesis")
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"

    assert told(code, "hypothesis") == "hypothesis"


WHY = """
from cuassay.devices.cuda.driver.libraries import why_no_cublaslt
print(why_no_cublaslt())
"""


@pytest.mark.parametrize("hidden", ["nvmath", "nvmath.bindings", "nvmath,cuda.core"])
def test_without_its_bindings_cublaslt_is_absent_with_the_reason(hidden: str) -> None:
    reason = told(WHY, hidden)

    assert reason.startswith("cublasLt cannot be used: No module named 'nvmath")
    assert "pip install 'PATH[cuda13]', where PATH is a clone or a wheel of cuassay" in reason


def test_pytest_starts_and_its_tests_lack_the_module(tmp_path: Path) -> None:
    """pytest keeps Python's finder as an attribute of a class of its own, which must not bind it once more."""
    (tmp_path / "test_it.py").write_text("def test_it():\n    import numpy.fft\n")
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    code = f"import pytest; pytest.main({arguments})"

    assert "No module named 'numpy.fft'" in told(code, "numpy.fft")
