"""A simulated machine whose races are found by itself, or by the sanitizer while the machine computes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cuassay.devices.sim import BACKEND
from cuassay.observe.sanitizer import Sanitizer

__all__ = ["ENGINES", "Judged", "judged"]

#: Who judges.
ENGINES = ("sim", "sanitizer")


@dataclass
class Judged:
    """`engine` judges; `accesses` gives how many accesses a later launch could still race with."""

    engine: str
    accesses: Callable[[], int]

    def __getattr__(self, name: str) -> Any:
        return getattr(BACKEND, name)


@contextmanager
def judged(engine: str, **machine: Any) -> Iterator[Judged]:
    """A fresh machine, judged by `engine`."""
    with BACKEND.simulated(**machine, finds_races=engine == "sim"):
        if engine == "sim":
            yield Judged(engine, lambda: sum(len(device.log) for device in BACKEND.machine.devices))
            return
        sanitizer = Sanitizer()
        sanitizer.start()
        try:
            yield Judged(engine, lambda: len(sanitizer.engine))
        finally:
            sanitizer.stop()
