"""A GPT-2 trained on the GPU, compared with torch's: losses of 200 steps, eager and captured, and peak memory."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("sklearn", reason="scikit-learn, whose texts are trained on, is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a warning that torch gives at its start is not ours
    import torch

from gpt2_peer import TorchTrainer

from cuassay import cuda, from_host

pytestmark = pytest.mark.usefixtures("on_cuda")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_gpt2.py"
DEVICE, STEPS = "cuda:0", 200


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_gpt2", EXAMPLE)
    module = sys.modules["train_gpt2"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peer(example: ModuleType, config: Any, **options: Any) -> TorchTrainer:
    params = {name: host.astype(np.float32) for name, host in example.initial(config).items()}
    return TorchTrainer(torch, config, params, DEVICE, **options)


def on_torch(tokens: np.ndarray) -> Any:
    return torch.tensor(tokens.tolist(), device=DEVICE)


@pytest.fixture(scope="module")
def losses_of_torch(example: ModuleType) -> list[float]:
    text, alphabet = example.load()
    config = example.Config(len(alphabet))
    trainer, source = peer(example, config), example.batches(text, config)
    return [float(trainer.step(*map(on_torch, next(source)))) for _ in range(STEPS)]


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_the_losses_are_those_of_torch(example: ModuleType, losses_of_torch: list[float], captured: bool) -> None:
    text, alphabet = example.load()
    trainer = example.Trainer(example.Config(len(alphabet)), DEVICE, captured=captured)

    losses = trainer.train(text, STEPS)

    assert losses == pytest.approx(losses_of_torch, rel=0.01)
    trainer.close()


def test_a_backward_pass_takes_no_more_memory_than_in_torch(example: ModuleType) -> None:
    text, alphabet = example.load()
    config = example.Config(len(alphabet), context=256, width=384, heads=6, layers=4, batch=16)
    tokens, following = next(example.batches(text, config))
    trainer, other = example.Trainer(config, DEVICE), peer(example, config, fused=True)
    given, theirs = (tokens, following), [on_torch(one) for one in (tokens, following)]
    trainer.step(*given)
    other.step(*theirs)
    arrays = [from_host(one[:, None], DEVICE) for one in given]
    ours = _peak(cuda, lambda: trainer.gradients(*arrays))

    expected = _peak(torch.cuda, lambda: other.backward(*theirs))

    assert ours <= 1.05 * expected


def _peak(library: Any, call: Any) -> int:
    """Bytes allocated at most during a call, besides those allocated before it."""
    library.synchronize()
    library.reset_peak_memory_stats()
    before = library.memory_allocated()
    kept = call()
    library.synchronize()
    most = library.max_memory_allocated() - before
    del kept
    return int(most)
