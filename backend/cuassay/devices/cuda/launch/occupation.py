"""What a measurement gives to the device: work that keeps its stream busy, and a read that empties its cache."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np
from cuda.bindings import driver

from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.driver.context import at
from cuassay.devices.cuda.launch.launch import kernel

__all__ = ["flush_cache", "spin"]

#: Blocks that read the eviction buffer: several for each multiprocessor of any card.
_EVICTION_PARTS = 1024


def spin(index: int, cycles: int) -> None:
    """Keep the current stream of device `index` busy for `cycles` of its clock, without touching memory."""
    with at(index):
        kernel("spin.cu", "spin")(1, 1, (cycles,))


def flush_cache(index: int) -> None:
    """Read twice what the level-2 cache of device `index` holds, on the current stream.

    A written buffer would leave dirty lines, whose write-back falls into what is timed next: 15 µs on an H200. Lines
    that an earlier launch made persisting become ordinary ones first: reading other memory does not evict those.
    """
    with at(index):
        _end_persistence()
        buffer, parts = _eviction_buffer(index)
        length = buffer.size // parts.size
        read = kernel("reduce.cu", "reduce_rows<Max, float32, float32, float32, 4>")
        read((parts.size, 1), 256, (buffer, parts, 1, buffer.size, length))


def _end_persistence() -> None:
    """Reset the persisting lines of the current device's level-2 cache.

    They are asked for by an access policy window. How much of the cache is set aside does not tell whether there are
    any: on an H100 the driver answers more than 0 where nobody has set the limit.
    """
    status = driver.cuCtxResetPersistingL2Cache()
    if status[0] != driver.CUresult.CUDA_ERROR_NOT_SUPPORTED:  # a card before compute capability 8.0 has none
        check(status, "resetting persisting lines of the level-2 cache")


@cache
def _eviction_buffer(index: int) -> tuple[Any, Any]:
    """What is read, and a result a part; outside CuPy's pool, whose use is what `memory_in_use` tells."""
    nbytes = 2 * max(runtime.get_device_properties(index).L2_cache_size, 32 * 2**20)
    size = -(-nbytes // (16 * _EVICTION_PARTS)) * 4 * _EVICTION_PARTS  # each part a whole number of 16-byte loads
    memory = cupy.cuda.Memory(4 * (size + _EVICTION_PARTS))
    values = cupy.ndarray((size + _EVICTION_PARTS,), np.float32, cupy.cuda.MemoryPointer(memory, 0))
    values.fill(0)
    return values[:size], values[size:]
