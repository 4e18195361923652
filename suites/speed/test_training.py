"""A step of a GPT-2, captured: forward, backward and AdamW, compared with torch's in a CUDA graph.

Sizes are those of a small model of characters at which kernels, not launches, take the time.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gpt2_peer import TorchTrainer

from cuassay import Device, cuda
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark, is_measuring
from cuassay.results.record import Recorder
from cuassay.testing import devices as on

EXAMPLE = Path(__file__).parents[1] / "examples" / "train_gpt2.py"
SIZES = {"context": 256, "width": 384, "heads": 6, "layers": 6, "batch": 16}

#: Where nothing is measured.
AS_TEST = {"context": 16, "width": 32, "heads": 2, "layers": 1, "batch": 2}


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_gpt2", EXAMPLE)
    module = sys.modules["train_gpt2"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_step(example: ModuleType, config: Any, tokens: np.ndarray, following: np.ndarray, device: Device) -> Any:
    """torch's step on one batch, recorded; None where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that torch gives at its start is not ours
        import torch

        torch.ones(1, device=str(device))
    params = {name: host.astype(np.float32) for name, host in example.initial(config).items()}
    trainer = TorchTrainer(torch, config, params, str(device), capturable=True, fused=True)
    given = [torch.tensor(one.tolist(), device=str(device)) for one in (tokens, following)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            trainer.step(*given)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        trainer.step(*given)
    graph.trainer = trainer  # its memory is the graph's
    return graph.replay


@on("cuda:*")
def test_captured_step(
    device: Device,
    example: ModuleType,
    device_benchmark: DeviceBenchmark,
    recorder: Recorder | None,
    pytestconfig: pytest.Config,
) -> None:
    config = example.Config(vocabulary=96, **(SIZES if is_measuring(pytestconfig) else AS_TEST))
    text = np.random.default_rng(0).integers(0, 96, 20_000).astype(np.int32)
    tokens, following = next(example.batches(text, config))
    trainer = example.Trainer(config, str(device), captured=True)
    for _ in range(4):
        trainer.step(tokens, following)
    calls: dict[str, Callable[[], Any]] = {"cuassay": trainer.repeat}
    if (peer := torch_step(example, config, tokens, following, device)) is not None:
        calls["torch"] = peer

    timings = device_benchmark(calls, device, cache="warm", op="gpt2", dtype="float32", case="captured step")

    for name, timing in timings.items() if recorder is not None else ():
        recorder.write_time(**timing_row("gpt2", device, name, timing, case="captured step"))
    if "torch" in timings:
        device_benchmark.note(speedup=timings["torch"].median_s / timings["cuassay"].median_s)
    device_benchmark.note(allocated=cuda.max_memory_allocated(device.index))
    assert np.isfinite(trainer.step(tokens, following))
    trainer.close()
