"""``ci/gate_on_device.py``, whole but short, on the simulated device: what it plants is found, and nothing else."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

SHORT = "--device sim --scatter 0.0005 --benchmarks 12 --planted 4 --repeats 1 --processes 4 --seconds 0.02"


@pytest.mark.slow
@pytest.mark.weekly
def test_planted_slow_downs_are_found_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "ci")
    script: Any = importlib.import_module("gate_on_device")

    status = script.main([*SHORT.split(), "--out", str(tmp_path / "gates" / "sim.json")])

    told = json.loads((tmp_path / "gates" / "sim.json").read_text())
    assert (status, told["missed"], told["false_alarms"]) == (0, [], [])
    assert [one["word"] for one in told["planted"]] == ["slower"] * 4
    assert [one["effect"] for one in told["planted"]] == pytest.approx([0.005, 0.01, 0.02, 0.05], abs=0.001)
    assert told["unchanged"][0]["starts"] <= 20
