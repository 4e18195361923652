"""What the fork server of a local fleet does before it forks workers: start the template, and import what they need.

multiprocessing's fork server imports this module by name, so importing it must do the work. In other processes the
import does nothing.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module

from cuassay.fleet import template

__all__ = ["MODULES", "is_fork_server"]

#: What a worker imports from its start to its first shard. No library of a GPU is among it.
MODULES = (
    "distributed",
    "dask.multiprocessing",
    "cuassay.fleet.shard",
    "cuassay.devices.cpu",
)


def is_fork_server() -> bool:
    """Whether this process is a fork server of multiprocessing, which runs no file and no module."""
    return any("multiprocessing.forkserver" in word for word in sys.orig_argv)


def _prepare() -> None:
    with suppress(OSError):  # each worker then starts its own warm process
        template.start()
    sys.path[:] = filter(None, sys.path)  # a file of the project must not take the place of a library
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in each worker; a fork would lose the threads
    for name in MODULES:
        with suppress(ImportError):  # the worker will raise it where it can be told
            import_module(name)
    gc.collect()
    gc.freeze()  # a fork would copy what the collector touches


if is_fork_server():
    _prepare()
