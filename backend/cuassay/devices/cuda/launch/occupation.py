"""What a measurement runs on the device besides the work itself: a busy kernel, and a read that evicts the cache."""

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

#: The number of blocks that read the eviction buffer: several for each multiprocessor of any GPU.
_EVICTION_PARTS = 1024


def spin(index: int, cycles: int) -> None:
    """Keep the current stream of device `index` busy for `cycles` of its clock, without touching memory."""
    with at(index):
        kernel("spin.cu", "spin")(1, 1, (cycles,))


def flush_cache(index: int) -> None:
    """Read twice the size of the level-2 cache of device `index`, on the current stream.

    Writing would leave dirty lines, which are written back during the work that is timed next: 15 µs on an H200.
    Persisting lines of earlier launches are reset to normal ones first, because reading other memory does not evict
    them.
    """
    with at(index):
        _end_persistence()
        buffer, parts = _eviction_buffer(index)
        length = buffer.size // parts.size
        read = kernel("reduce.cu", "reduce_rows<Max, float32, float32, float32, 4>")
        read((parts.size, 1), 256, (buffer, parts, 1, buffer.size, length))


def _end_persistence() -> None:
    """Reset the persisting lines of the current device's level-2 cache.

    An access policy window makes lines persisting. The size of the cache's set-aside part does not tell whether there
    are any: on an H100 the driver reports more than 0 even if nobody has set the limit.
    """
    status = driver.cuCtxResetPersistingL2Cache()
    if status[0] != driver.CUresult.CUDA_ERROR_NOT_SUPPORTED:  # not supported before compute capability 8.0
        check(status, "resetting persisting lines of the level-2 cache")


@cache
def _eviction_buffer(index: int) -> tuple[Any, Any]:
    """Return the buffer to read, and one result for each part.

    Outside of CuPy's pool, which `memory_in_use` measures.
    """
    nbytes = 2 * max(runtime.get_device_properties(index).L2_cache_size, 32 * 2**20)
    size = -(-nbytes // (16 * _EVICTION_PARTS)) * 4 * _EVICTION_PARTS  # each part a whole number of 16-byte loads
    memory = cupy.cuda.Memory(4 * (size + _EVICTION_PARTS))
    values = cupy.ndarray((size + _EVICTION_PARTS,), np.float32, cupy.cuda.MemoryPointer(memory, 0))
    values.fill(0)
    return values[:size], values[size:]
