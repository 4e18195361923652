"""Tell an attached profiler when to collect, under the names of ``torch.cuda.profiler``.

Under ``nsys profile --capture-range=cudaProfilerApi`` only work between `start` and `stop` is collected.
`cuassay.profile` needs no external tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Start collecting. Raises `LibraryNotFoundError` without CUDA."""
    _call("cudaProfilerStart", "starting the profiler's collection")


def stop() -> None:
    """Stop collecting."""
    _call("cudaProfilerStop", "stopping the profiler's collection")


@contextmanager
def profile() -> Iterator[None]:
    """Collect only the work of the block."""
    start()
    try:
        yield
    finally:
        stop()


def _call(name: str, doing: str) -> None:
    from cuassay.devices.cuda.driver.check import check
    from cuassay.devices.cuda.driver.cudart import cudart

    function = getattr(cudart(), name)
    check(function(), doing)
