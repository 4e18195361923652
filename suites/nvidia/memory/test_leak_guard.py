"""What the leak guard counts on CUDA: arrays that are still in use, not the plans that CuPy's FFT caches."""

from __future__ import annotations

import gc

import pytest

import cuassay
from cuassay.testing.guards import LeakError, memory_returned

if not cuassay.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

import cupy

SIZES = (2**20 + 7, 2**18 + 3)


def test_cached_fft_plans_are_no_leak() -> None:
    cache = cupy.fft.config.get_plan_cache()
    cache.clear()

    with memory_returned("cuda:0"):
        for size in SIZES:
            cupy.fft.rfft(cupy.ones(size, cupy.float32))

    assert cache.get_curr_memsize() > 0


def test_plans_that_the_cache_drops_hide_no_leak() -> None:
    kept = []
    cupy.fft.rfft(cupy.ones(SIZES[0], cupy.float32))
    gc.collect()  # what earlier tests left in cycles, and is collected below, would hide as many bytes
    guard = memory_returned("cuda:0")
    guard.__enter__()

    cupy.fft.config.get_plan_cache().clear()
    kept.append(cupy.ones(256, cupy.float32))

    with pytest.raises(LeakError, match="1,024 bytes"):
        guard.__exit__(None, None, None)
    assert kept
