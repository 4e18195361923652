"""The driver's handles of cuassay's streams: a pool of 32 for each device and priority.

A pool hands out its streams in turn and skips those that are being captured. They live as long as the process, because
the driver keeps half a MiB of device memory for each stream even after it is destroyed. They are non-blocking, as
torch's are: nothing is implicitly ordered with the legacy default stream.
"""

from __future__ import annotations

import os
from functools import cache

import cupy

from cuassay.core import watchers
from cuassay.core.round_robin import RoundRobin
from cuassay.core.watchers import Occurrence
from cuassay.devices.cuda.driver.check import check
from cuassay.devices.cuda.driver.context import at, explained

__all__ = ["priority_range", "take_stream"]


def take_stream(index: int, priority: int) -> int:
    """Return the handle of the next stream of device `index`; `priority` is limited to `priority_range`."""
    return _pool(index, _clamped(index, priority)).take()


@cache
def _pool(index: int, priority: int) -> RoundRobin[int]:
    def make() -> int:
        with at(index), explained(f"making a stream on cuda:{index}"):
            made = int(cupy.cuda.runtime.streamCreateWithPriority(cupy.cuda.runtime.streamNonBlocking, priority))
        if watchers.state.watchers:
            watchers.tell(Occurrence("stream_made", f"cuda:{index}", made, made))
        return made

    def is_free(address: int) -> bool:
        try:
            with at(index):
                return not cupy.cuda.runtime.streamIsCapturing(address)
        except RuntimeError:  # CuPy's error for a capture that a call has broken
            return False

    return RoundRobin(make, usable=is_free)


os.register_at_fork(after_in_child=_pool.cache_clear)


def _clamped(index: int, priority: int) -> int:
    if not priority:
        return 0
    least, greatest = priority_range(index)
    return max(greatest, min(least, priority))


@cache
def priority_range(index: int) -> tuple[int, int]:
    """Return the lowest and the highest stream priority of device `index`; lower numbers go first."""
    from cuda.bindings import runtime as cudart

    with at(index):
        least, greatest = check(cudart.cudaDeviceGetStreamPriorityRange(), f"asking cuda:{index} for priorities")
    return int(least), int(greatest)
