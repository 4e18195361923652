"""What `cuassay.cuda` answers where CUDA is asked for another kind's device, or is not there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from cuassay import cuda
from cuassay.errors import DeviceError, LibraryNotFoundError


@pytest.mark.parametrize(
    "ask",
    [cuda.memory_allocated, cuda.memory_reserved, cuda.memory_stats, cuda.memory_summary, cuda.reset_peak_memory_stats],
    ids=lambda ask: ask.__name__,
)
def test_figures_of_another_kinds_device_are_refused_not_zero(ask: Callable[..., Any]) -> None:
    with pytest.raises(DeviceError, match="sim:0 is not a CUDA device"):
        ask("sim")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
@pytest.mark.parametrize("device", [None, 0, "cuda", "sim"], ids=str)
def test_a_stream_without_cuda_says_what_to_install(device: int | str | None) -> None:
    with pytest.raises(LibraryNotFoundError, match=r"libcuda .*; install (cuassay\[cuda13\]|NVIDIA's driver)"):
        cuda.current_stream(device)
