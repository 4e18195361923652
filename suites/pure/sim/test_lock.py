"""Every call holds the machine's lock while it changes what threads share: memory, clocks and the log of accesses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
import pytest

from cuassay import devices, ops
from cuassay.devices.sim import BACKEND
from cuassay.devices.sim.device import SimDevice
from cuassay.order.accesses import AccessLog
from cuassay.order.clock import Host, Queue

#: Seconds after which a thread counts as blocked.
PATIENCE = 10

#: What changes state, by class; all callers hold the lock.
WATCHED: dict[type, tuple[str, ...]] = {
    SimDevice: ("allocate", "reserve", "launch", "also", "settle", "wait_all", "host_waits"),
    AccessLog: ("add", "check", "forget", "clear", "users"),
    Queue: ("waits",),
    Host: ("joins",),
}


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with BACKEND.simulated(devices=1, memory=2**26):
        lock: Any = BACKEND.machine.lock

        def demanding(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(method)
            def under_lock(*arguments: Any, **options: Any) -> Any:
                assert lock._is_owned(), f"{name} without the machine's lock"
                return method(*arguments, **options)

            return under_lock

        for kind, names in WATCHED.items():
            for name in names:
                monkeypatch.setattr(kind, name, demanding(f"{kind.__name__}.{name}", getattr(kind, name)))
        yield
        monkeypatch.undo()


def matrix() -> Any:
    return BACKEND.from_host(np.eye(4, dtype=np.float32), 0)


def captured(end: Callable[[Any], Any]) -> None:
    array, capture, stream = matrix(), BACKEND.new_capture(0), BACKEND.new_stream(0)
    capture.begin(stream)
    with BACKEND.use_stream(stream):
        kept = ops.add(array, array)
        BACKEND.namespace(0).random.random_sample(3)
    end(capture)
    del kept


def replayed(capture: Any) -> None:
    capture.end()
    capture.replay()
    capture.reset()


def waited() -> None:
    event, stream = BACKEND.new_event(0, timing=True), BACKEND.new_stream(0)
    with BACKEND.use_stream(stream):
        ops.add(matrix(), 1.0)
    event.record(stream)
    stream.query()
    event.query()
    event.wait(BACKEND.new_stream(0))
    BACKEND.new_stream(0).wait_stream(stream)
    event.synchronize()
    stream.synchronize()
    BACKEND.synchronize(0)


def pinned() -> None:
    host = BACKEND.empty_pinned((4, 4), "float32", 0)
    host[...] = 1
    there = matrix()
    devices.copy(host, there, non_blocking=True)
    devices.copy(there, host, non_blocking=True)
    BACKEND.synchronize(0)
    host.sum()


def cached() -> None:
    allocator = BACKEND.allocator(0)
    blocks = [allocator.malloc(nbytes) for nbytes in (100, 2**18)]
    for block in blocks:
        allocator.record_stream(block, 1)
        allocator.free(block)
    allocator.empty_cache()


class Lock:
    """Notes how many calls are marked as working when somebody asks for it."""

    def __init__(self, machine: Any) -> None:
        self.machine, self.found = machine, list[int]()

    def acquire(self) -> None:
        self.found.append(self.machine.busy)

    def release(self) -> None:
        self.found.append(self.machine.busy)


def test_a_call_is_marked_as_working_only_while_it_holds_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = BACKEND.machine
    lock = Lock(machine)
    monkeypatch.setattr(machine, "lock", lock)

    with machine.working():
        assert machine.busy == 1

    assert lock.found == [0, 0]


def test_an_array_can_be_dropped_while_another_thread_holds_the_lock() -> None:
    arrays = [matrix()]

    with BACKEND.machine.working():
        thread = threading.Thread(target=arrays.clear)
        thread.start()
        thread.join(PATIENCE)
        is_blocked = thread.is_alive()

    thread.join(PATIENCE)
    assert not is_blocked


CALLS: dict[str, Callable[[], Any]] = {
    "from_host": matrix,
    "to_host": lambda: BACKEND.to_host(matrix()),
    "empty": lambda: BACKEND.empty((3,), "float32", 0),
    "creation": lambda: BACKEND.namespace(0).arange(4.0),
    "ufunc": lambda: np.exp(matrix()),
    "in place": lambda: matrix().__iadd__(1),
    "function": lambda: np.concatenate([matrix(), matrix()]),
    "fancy index": lambda: matrix()[[1, 0]],
    "assignment": lambda: matrix().__setitem__(0, 5),
    "number": lambda: float(matrix()[0, 0]),
    "list": lambda: matrix().tolist(),
    "op": lambda: ops.add(matrix(), matrix()),
    "product": lambda: ops.matmul(matrix(), matrix()),
    "random": lambda: BACKEND.namespace(0).random.default_rng(1).random(3),
    "copy": lambda: devices.copy(matrix(), matrix()),
    "streams and events": waited,
    "replay": lambda: captured(replayed),
    "capture that is given up": lambda: captured(lambda capture: capture.reset()),
    "pinned": pinned,
    "cached": cached,
}


@pytest.mark.parametrize("name", CALLS)
def test_state_changes_under_the_lock(name: str) -> None:
    CALLS[name]()
