"""What every shortcut shares: the forms of call that it keeps, their number, and when they are dropped.

A shortcut serves a call that it recognises and returns `NotImplemented` for every other one, which dispatch then serves
or refuses. Finding out what is obvious in such a call costs dispatch more host time than the driver takes to launch.
Forms are kept by key: what decides the work but for addresses. A change of the registry drops them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cupy

from cuassay.core import settings
from cuassay.devices.cuda.driver import runtime
from cuassay.ops import Op, registry

__all__ = ["Shortcut", "forget"]

#: Forms that a shortcut keeps; with one more, all are dropped.
_MOST_KEPT = 4096

_installed: list[Shortcut] = []


class Shortcut:
    """Serves calls of `op` past dispatch.

    Attributes
    ----------
    forms : dict
        By key: what was made ready.
    routes : object
        The registry's routes that the forms hold for.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self.forget()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.op.name}, {len(self.forms)} forms kept)"

    def serve(self, operands: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]) -> Any:
        """The result; or `NotImplemented`, and nothing is done. It calls `forget` where `routes` are not current."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop the forms."""
        self.forms: dict[Any, Any] = {}
        self.routes = registry.routes

    def admit(self, key: Any, form: Any) -> Any:
        """Keep `form`, which is returned."""
        if len(self.forms) >= _MOST_KEPT:
            self.forget()
        self.forms[key] = form
        return form

    def install(self) -> None:
        """Let calls of the op try it, unless a call must first select one of several devices, or launches block."""
        if runtime.device_count() == 1 and not settings.get("CUASSAY_LAUNCH_BLOCKING"):
            _installed.append(self)
            self.op.shortcuts[cupy.ndarray] = (self.serve,)  # calling a method costs half of calling an object


def forget() -> None:
    """Drop the forms of every shortcut: whoever replaces a kernel must call it, or the former one is still launched.

    The graphs of products are dropped by `blas.controls.renew`.
    """
    for shortcut in _installed:
        shortcut.forget()
