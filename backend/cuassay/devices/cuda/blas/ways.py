"""What a thread has ready for products: ways by all that decides, graphs by addresses too; made anew after a change.

Handles, descriptors and graphs belong to one thread and one device. The controls and the options of products decide as
well, and change seldom: after a change nothing made before is found any more.
"""

from __future__ import annotations

import threading
from typing import Any

import cupy

from cuassay.core.precision import MatmulOptions, matmul_options
from cuassay.devices.cuda.blas import controls

__all__ = ["Ways", "table"]

#: Ways a thread keeps for a device; beyond, all are found anew: shapes that vary without end must not fill the memory.
_MOST_WAYS = 8192

#: Graphs a thread keeps for a device, each with about 0.1 MiB of its memory; calls before one is made, at the cost of ten.
_MOST_GRAPHS, _PATIENCE = 256, 8


class Ways(dict[Any, Any]):
    """Ways by what decides.

    Attributes
    ----------
    graphs : dict
        Calls made graphs, by what decides and the addresses.
    patience : int
        Calls on the same addresses before a graph is made of them: twice as many after each time there were too many
        graphs, so that addresses that come again but seldom do not cost more than they save.
    """

    def __init__(self) -> None:
        super().__init__()
        self.graphs: dict[Any, Any] = {}
        self.patience = _PATIENCE

    def keep(self, key: Any, graph: Any) -> None:
        """Enter a graph; with one too many, all others go."""
        if len(self.graphs) >= _MOST_GRAPHS:
            self.graphs.clear()
            self.patience *= 2
        self.graphs[key] = graph


class _Tables:
    """Ways by device, for the controls and the options as they were."""

    __slots__ = ("by_device", "generation", "options")

    def __init__(self, generation: int, options: MatmulOptions | None) -> None:
        self.by_device: dict[int, Ways] = {}
        self.generation = generation
        self.options = options


class _Own(threading.local):
    tables = _Tables(-1, None)


_own = _Own()


def table(device: int | None = None) -> Ways:
    """What this thread has ready for `device` (None: the current one), and for the controls as they are."""
    tables, options = _own.tables, matmul_options()
    if tables.generation != controls.generation or tables.options is not options:
        tables = _own.tables = _Tables(controls.generation, options)
    if device is None:
        device = cupy.cuda.runtime.getDevice()
    ways = tables.by_device.get(device)
    if ways is None or len(ways) > _MOST_WAYS:
        ways = tables.by_device[device] = Ways()
    return ways
