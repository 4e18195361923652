"""The ``cuassay`` command: how it is started, and what it says of settings that nobody reads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cuassay
from cuassay.cli import main


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert (ended.value.code, capsys.readouterr().out) == (0, f"cuassay {cuassay.__version__}\n")


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "cuassay", "settings"], capture_output=True, text=True, check=True)

    assert "CUASSAY_SEED" in done.stdout


def test_a_misspelt_setting_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUASSAY_SEEDS", "7")

    assert main(["settings"]) == 0

    assert capsys.readouterr().err == "cuassay: CUASSAY_SEEDS is no setting; did you mean CUASSAY_SEED?\n"
