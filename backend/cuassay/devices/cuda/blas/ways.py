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

#: Graphs a thread keeps for a device; beyond, the oldest goes.
_MOST_GRAPHS = 512


class Ways(dict[Any, Any]):
    """Ways by what decides.

    Attributes
    ----------
    graphs : dict
        Calls made graphs, by what decides and the addresses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.graphs: dict[Any, Any] = {}

    def keep(self, key: Any, graph: Any) -> None:
        """Enter a graph."""
        if len(self.graphs) >= _MOST_GRAPHS:
            del self.graphs[next(iter(self.graphs))]
        self.graphs[key] = graph


class _Tables(threading.local):
    def __init__(self) -> None:
        self.by_device: dict[int, Ways] = {}
        self.generation = -1
        self.options: MatmulOptions | None = None


_tables = _Tables()


def table(device: int | None = None) -> Ways:
    """What this thread has ready for `device` (None: the current one), and for the controls as they are."""
    tables, options = _tables, matmul_options()
    if tables.generation != controls.generation or tables.options is not options:
        tables.by_device, tables.generation, tables.options = {}, controls.generation, options
    if device is None:
        device = cupy.cuda.runtime.getDevice()
    ways = tables.by_device.get(device)
    if ways is None or len(ways) > _MOST_WAYS:
        ways = tables.by_device[device] = Ways()
    return ways
