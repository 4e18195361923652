"""A GPT-2 trained by autograd on every device: as torch does it, captured, and with blocks computed again."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, to_host
from cuassay.autograd import gradcheck, value_and_grad
from cuassay.random import manual_seed
from cuassay.testing import requires

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_gpt2.py"

STEPS = 8

#: torch 1.13.1 on the host: the same model, parameters and characters, in float32, by ``suites/shared/gpt2_peer.py``.
TORCH = [2.99967, 2.99366, 2.97041, 3.00252, 2.94594, 2.97834, 2.96641, 2.96953]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_gpt2", EXAMPLE)
    module = sys.modules["train_gpt2"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def config(example: ModuleType) -> Any:
    return example.Config(vocabulary=20, context=12, width=16, heads=4, layers=2, batch=4)


@pytest.fixture
def text() -> np.ndarray:
    """A text of 20 characters."""
    return np.random.default_rng(3).integers(0, 20, 200).astype(np.int32)


def test_it_learns_as_in_torch(device: Device, example: ModuleType, config: Any, text: np.ndarray) -> None:
    losses = example.Trainer(config, str(device)).train(text, STEPS)

    assert losses == pytest.approx(TORCH, rel=1e-4)


@requires("graphs")
def test_replayed_it_learns_the_same(device: Device, example: ModuleType, config: Any, text: np.ndarray) -> None:
    eager, captured = (example.Trainer(config, str(device), captured=captured) for captured in (False, True))

    losses = captured.train(text, STEPS)

    assert losses == eager.train(text, STEPS)
    captured.close()


@pytest.mark.parametrize("captured", [False, pytest.param(True, marks=requires("graphs"))], ids=["eager", "captured"])
def test_blocks_computed_again_drop_the_same_numbers(
    device: Device, example: ModuleType, config: Any, text: np.ndarray, captured: bool
) -> None:
    losses = []
    for checkpointed in (False, True):
        manual_seed(7)
        chosen = replace(config, dropout=0.1, checkpointed=checkpointed)
        trainer = example.Trainer(chosen, str(device), captured=captured)
        losses.append(trainer.train(text, 4))
        trainer.close()

    assert losses[0] == losses[1]


@requires("float64")
def test_its_gradients_are_those_of_differences(
    device: Device, example: ModuleType, config: Any, text: np.ndarray
) -> None:
    model = example.Model(config, str(device), "float64")
    tokens, following = (from_host(one[:, None], device) for one in next(example.batches(text, config)))
    params = {name: from_host(host + 0.1, device) for name, host in example.initial(config).items()}

    gradcheck(lambda params: model.loss(params, tokens, following), (params,), elements=1, atol=1e-8)
    value, grads = value_and_grad(model.loss)(params, tokens, following)
    assert {name: one.shape for name, one in grads.items()} == {name: one.shape for name, one in params.items()}
    assert np.isfinite(to_host(value))
