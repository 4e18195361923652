"""Whether this process was forked from one that had initialised the driver, which does not work in the child.

It does not matter who initialised it: cuassay, CuPy or another library. `runtime` decides which calls raise.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from cuassay.core.loaded_driver import NOT_INITIALIZED, driver_is_up, loaded_driver
from cuassay.errors import ForkError

__all__ = ["NOT_INITIALIZED", "driver_is_up", "error", "is_child", "is_refused"]


@dataclass
class _State:
    used: bool = False
    child: bool = False


_state = _State()


def is_child() -> bool:
    """Whether a parent process had initialised the driver before the fork that made this process."""
    return _state.child


def error() -> ForkError:
    """Return the exception to raise in such a child."""
    return ForkError(
        f"CUDA was initialised before this process ({os.getpid()}) was forked, and a fork cannot use it; start "
        "workers with multiprocessing's 'spawn' or 'forkserver' method, or touch CUDA only after the fork"
    )


def _before() -> None:
    _state.used = _state.child or driver_is_up()


def _in_child() -> None:
    _state.child = _state.used


def is_refused() -> bool:
    """Whether a loaded driver refuses to be initialised, as in a child of a fork that was not seen here.

    This calls the driver's symbol directly, because cuda.bindings crashed in such a child.
    """
    driver = loaded_driver()
    return driver is not None and bool(driver.cuInit(0) == NOT_INITIALIZED)


os.register_at_fork(before=_before, after_in_child=_in_child)
