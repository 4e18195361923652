"""The fork server of a local fleet: one process that imports dask, from which all workers fork.

A worker that starts as a new interpreter imports dask, NumPy and cuassay for itself, which takes more than a second of
processor time. The fork server does so once, while the client itself still imports dask.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

__all__ = ["METHOD", "start", "use"]

#: What dask calls this way to start workers, and its setting for it.
METHOD = {"distributed.worker.multiprocessing-method": "forkserver"}

_PRELOADED = "cuassay.fleet.preloaded"


def start(modules: Sequence[str] = ()) -> bool:
    """Start the fork server, if this system allows it; returns at once.

    The server keeps the environment and the working folder of this moment. It ends with this process.

    Parameters
    ----------
    modules : sequence of str
        What it also imports.

    Returns
    -------
    bool
        Whether there is one.
    """
    if sys.platform != "linux" or find_spec("distributed") is None:
        return False
    from multiprocessing import forkserver

    forkserver.set_forkserver_preload([_PRELOADED, *modules])
    forkserver.ensure_running()
    return True


def use() -> dict[str, str]:
    """Let dask use the fork server that was started; returns its settings for that."""
    from distributed import utils

    # dask would import pandas here, and have the fork server import it, both only to make its own tests faster
    utils._forkserver_preload_set = True  # noqa: SLF001  has no public name
    return dict(METHOD)
