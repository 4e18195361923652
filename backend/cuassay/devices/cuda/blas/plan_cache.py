"""What a thread has ready for products: plans by everything that decides them, and graphs by the addresses as well.

Handles, descriptors and graphs belong to one thread and one device. Plans also depend on the controls and the options
of products, which seldom change; a change drops everything made before.
"""

from __future__ import annotations

import threading
from typing import Any

import cupy

from cuassay.core.precision import MatmulOptions, matmul_options
from cuassay.devices.cuda.blas import controls
from cuassay.devices.cuda.driver.graph_driver import capture_status

__all__ = ["PlanCache", "provisional", "table"]

#: The most plans that a thread keeps for a device. Beyond that all are dropped, so that shapes that never repeat do not
#: fill the memory.
_MOST_PLANS = 8192

#: The most graphs that a thread keeps for a device, with about 0.1 MiB of device memory each, and the most calls it
#: counts.
_MOST_GRAPHS, _MOST_COUNTED = 256, 4096

#: When this many graphs have found no room, the existing ones count as stale.
_MOST_REFUSED = 4096

#: Calls on the same addresses before a graph is made, which takes as long as ten calls.
_PATIENCE = 8

#: A generation that the controls never have.
_NEVER = -1


class PlanCache(dict[Any, Any]):
    """What one thread has ready on one device: plans, by everything that decides them.

    Attributes
    ----------
    repeats : dict
        By that key and the addresses: how often a product was called, then the graph of the call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repeats: dict[Any, Any] = {}
        self._graphs = 0
        self._refused = 0
        self._patience = _PATIENCE

    def count(self, key: Any, calls: int) -> bool:
        """Record that `key` was called `calls` times; return True when it is time to make a graph."""
        if calls >= self._patience:
            return True
        if len(self.repeats) >= _MOST_COUNTED:
            self.repeats = {key: value for key, value in self.repeats.items() if type(value) is not int}
        self.repeats[key] = calls
        return False

    def keep(self, key: Any, graph: Any) -> None:
        """Store a graph if there is room.

        If there has been no room for long, drop all graphs and double the number of calls before a graph is made, so
        that addresses that seldom repeat do not cost more than they save.
        """
        if self._graphs >= _MOST_GRAPHS:
            self._refused += 1
            if self._refused < _MOST_REFUSED:
                self.repeats[key] = 0
                return
            self.repeats, self._graphs, self._refused, self._patience = {}, 0, 0, 2 * self._patience
        self.repeats[key] = graph
        self._graphs += 1


class _Tables:
    """The `PlanCache` of each device, for one state of the controls and options.

    The tables of a capture in which something was decided provisionally get a generation that never occurs, so that
    each call checks whether the capture has ended. `during` is the generation of the controls at that time.
    """

    __slots__ = ("by_device", "during", "generation", "options")

    def __init__(self, generation: int, options: MatmulOptions | None) -> None:
        self.by_device: dict[int, PlanCache] = {}
        self.generation = generation
        self.during: int | None = None
        self.options = options


class _ThreadState(threading.local):
    tables = _Tables(_NEVER, None)


_state = _ThreadState()


def table(device: int | None = None) -> PlanCache:
    """Return what this thread has ready for `device` (None: the current one) and the current controls."""
    tables, options = _state.tables, matmul_options()
    if tables.generation != controls.generation or tables.options is not options:
        tables = _state.tables = _renewed(tables, options)
    if device is None:
        device = cupy.cuda.runtime.getDevice()
    cache = tables.by_device.get(device)
    if cache is None or len(cache) > _MOST_PLANS:
        cache = tables.by_device[device] = PlanCache()
    return cache


def _renewed(tables: _Tables, options: MatmulOptions) -> _Tables:
    """Return new tables; during a capture, the provisional ones as long as nothing else has changed."""
    if tables.during == controls.generation and tables.options is options and _is_capturing():
        return tables
    return _Tables(controls.generation, options)


def _is_capturing() -> bool:
    return capture_status(cupy.cuda.get_current_stream().ptr) != "none"


def provisional() -> None:
    """Keep what this thread has ready until its next call outside any capture of this thread; then make it again.

    For callers that cannot decide while the current stream is being captured.
    """
    tables = _state.tables
    if tables.during is None:
        tables.during, tables.generation = tables.generation, _NEVER
