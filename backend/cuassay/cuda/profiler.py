"""Tell a profiler that is attached when to collect, by the names of ``torch.cuda.profiler``.

Under ``nsys profile --capture-range=cudaProfilerApi`` only what lies between `start` and `stop` is collected.
`cuassay.profile` needs no tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Collect from here. Raises `LibraryNotFoundError` without CUDA."""
    _call("cudaProfilerStart", "starting the profiler's collection")


def stop() -> None:
    """Collect no more."""
    _call("cudaProfilerStop", "stopping the profiler's collection")


@contextmanager
def profile() -> Iterator[None]:
    """Collect what the block does."""
    start()
    try:
        yield
    finally:
        stop()


def _call(name: str, doing: str) -> None:
    from cuassay.devices.cuda.driver import runtime
    from cuassay.devices.cuda.driver.check import check

    function = getattr(runtime.cudart(), name)
    check(function(), doing)
