"""The comparison of random bodies with a compiler tells what differs and how many bodies it compared."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pycparser", reason="pycparser is not installed")
if shutil.which("g++") is None:
    pytest.skip("g++ is not installed", allow_module_level=True)


@pytest.fixture
def bodies() -> Any:
    described = importlib.util.spec_from_file_location("bodies", Path(__file__).parents[3] / "ci" / "bodies.py")
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def test_equal_results_end_with_status_0(bodies: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert bodies.main(["3", "7"]) == 0

    assert capsys.readouterr().out.startswith("3 bodies from seed 7, 0 differ (")


def test_each_seed_that_differs_is_named(
    bodies: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    computed, raised = bodies.computed, bodies.draw(9).code

    def planted(one: Any) -> Any:
        if one.code == raised:
            raise ValueError("planted")
        return np.full_like(computed(one), 77) if one.code == bodies.draw(8).code else computed(one)

    monkeypatch.setattr(bodies, "computed", planted)
    monkeypatch.setattr(bodies, "_STEP", 2)

    assert bodies.main(["4", "7"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("seed 8, ")
    assert told[0].endswith(": another result")
    assert told[1].startswith("seed 9, ")
    assert told[1].endswith(": ValueError('planted')")
    assert told[2].startswith("4 bodies from seed 7, 2 differ (")


def test_no_source_is_begun_after_the_time(bodies: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert bodies.main(["3", "--seconds", "-1"]) == 0

    assert capsys.readouterr().out.startswith("0 of 3 bodies from seed 0, 0 differ (")
