"""What the tests of ``cuassay run`` share."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuassay.benchmarking import run


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the generated tests, importable by the child; the working directory is a project of its own."""
    module = tmp_path / "lib" / "test_generated_stand_in.py"
    module.parent.mkdir()
    monkeypatch.syspath_prepend(module.parent)
    monkeypatch.setenv("PYTHONPATH", str(module.parent), prepend=":")
    monkeypatch.setattr(run, "_GENERATED_TESTS", module.stem)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return module
