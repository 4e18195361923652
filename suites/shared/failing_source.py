"""A source of memory whose calls raise or last, for tests of what the allocator does meanwhile and afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cuassay.core.interrupts import mark_early, mark_late
from cuassay.memory import CachingAllocator, IntegerSource

MIB = 2**20
TOTAL = 64 * MIB
PATIENCE = 10
CALLS = ("reserve", "release", "span", "map", "unmap", "alias", "synchronize", "record", "wait", "query")


class Driver(IntegerSource):
    """One call of it can be made to raise, before or after it is done, or to wait until it is told to go on.

    Attributes
    ----------
    raises, stops_in : str
        The method whose next call raises, or stops; empty: none.
    error : BaseException
        What it raises.
    is_late : bool
        Whether it does its work before it raises, and says so.
    skipped : int
        Calls of the method that pass before.
    """

    def __init__(self, granularity: int = 0, *, is_lazy: bool = False) -> None:
        super().__init__(TOTAL, granularity=granularity, is_lazy=is_lazy)
        self.raises = self.stops_in = ""
        self.error: BaseException = RuntimeError("the driver failed")
        self.is_late = False
        self.skipped = 0
        self.entered, self.goes_on = threading.Event(), threading.Event()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in CALLS:
            return found
        return lambda *arguments: self._call(name, found, arguments)

    def _call(self, name: str, found: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self.stops_in == name:
            self.stops_in = ""
            self.entered.set()
            assert self.goes_on.wait(PATIENCE)
        if self.raises != name:
            return found(*arguments)
        if self.skipped:
            self.skipped -= 1
            return found(*arguments)
        self.raises = ""
        if self.is_late:
            found(*arguments)
            mark_late(self.error)
        else:
            mark_early(self.error)
        raise self.error

    @property
    def held(self) -> int:
        """Bytes in use."""
        return self.total - self.free


def made(granularity: int = 0, *, is_lazy: bool = False) -> tuple[Driver, CachingAllocator]:
    source = Driver(granularity, is_lazy=is_lazy)
    return source, CachingAllocator(source, total=TOTAL, config="")


@contextmanager
def stopped(source: Driver, call: str, work: Callable[[], object]) -> Iterator[list[Any]]:
    """`work` runs in a thread and stops in `call`; behind the block it goes on to its end."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:  # noqa: BLE001  # what came of it is the test's to judge
            outcome.append(error)

    source.stops_in = call
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert source.entered.wait(PATIENCE), f"{call} was not called"
        yield outcome
    finally:
        source.goes_on.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()
