"""A distribution whose files include cuassay's packages, as a wheel's do; an editable installation names none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["install_with_files"]


def install_with_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the distribution ``whole``, with an empty plugin of pytest, into `folder`, for processes started later."""
    info = folder / "whole-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: whole\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pytest11]\nwhole = whole\n")
    (info / "RECORD").write_text("cuassay/__init__.py,,\ncuassay_reports/__init__.py,,\n")
    (folder / "whole.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
