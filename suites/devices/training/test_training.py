"""A real run on every device: the example that trains on scikit-learn's digits, eagerly and captured."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cuassay import Device, to_host
from cuassay.testing import requires

pytest.importorskip("sklearn", reason="scikit-learn, whose digits are trained on, is not installed")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_mlp.py"
EPOCHS = 10


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_mlp", EXAMPLE)
    module = sys.modules["train_mlp"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data(example: ModuleType) -> Any:
    return example.load()


@pytest.fixture(scope="module")
def on_the_host(example: ModuleType, data: Any) -> Any:
    """The trainer and the loss curve of the readable implementation."""
    trainer = example.Trainer("cpu")
    return trainer, trainer.train(data, EPOCHS)


#: The curve of the loss whose backward pass was written by hand, before this one was differentiated.
BY_HAND = [0.8724, 0.2485, 0.1661, 0.1046, 0.0824, 0.0681, 0.0545, 0.0502, 0.0400, 0.0438]


def test_it_learns_as_it_did_with_gradients_written_by_hand(
    device: Device, example: ModuleType, data: Any, on_the_host: Any
) -> None:
    trainer, losses = on_the_host
    if device.kind != "cpu":
        trainer = example.Trainer(str(device))
        losses = trainer.train(data, EPOCHS)

    assert trainer.accuracy(data) >= 0.97
    # float16: on the host the curve is the same, elsewhere sums are made in another order
    assert losses == pytest.approx(BY_HAND, **({"abs": 1e-3} if device.kind == "cpu" else {"rel": 0.25, "abs": 0.01}))
    assert trainer.scaler.get_growth_tracker() == EPOCHS * 11 % 100  # no step was skipped


@requires("graphs")
def test_replayed_it_learns_the_same(device: Device, example: ModuleType, data: Any) -> None:
    eager, captured = (example.Trainer(str(device), captured=captured) for captured in (False, True))

    losses = eager.train(data, 3)

    assert captured.train(data, 3) == losses
    captured.close()


@pytest.mark.parametrize("captured", [False, pytest.param(True, marks=requires("graphs"))], ids=["eager", "captured"])
def test_a_step_that_overflows_is_skipped_and_recovered_from(
    device: Device, example: ModuleType, data: Any, captured: bool
) -> None:
    trainer = example.Trainer(str(device), captured=captured)
    trainer.train(data, 1)
    params = [to_host(param) for param in trainer.params]

    before, after = trainer.overflow()

    assert after == before / 2
    assert all(np.array_equal(to_host(now), then) for now, then in zip(trainer.params, params, strict=True))
    losses = trainer.train(data, 2)
    assert losses[-1] < losses[0] < 1.0
    trainer.close()
