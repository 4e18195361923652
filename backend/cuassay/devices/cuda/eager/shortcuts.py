"""What all shortcuts share: the forms of calls that they keep, how many, and when they are dropped.

A shortcut serves a call that it recognises, and returns `NotImplemented` for every other call, which dispatch then
serves or rejects. Without it, dispatch takes more host time to analyse such a simple call than the driver takes to
launch it. Forms are kept by key: everything that decides the work except addresses. A change of the registry drops
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cupy

from cuassay.core import settings
from cuassay.devices.cuda.driver import runtime
from cuassay.ops import Op, registry

__all__ = ["Shortcut", "forget"]

#: The most forms that a shortcut keeps; one more drops all of them.
_MOST_KEPT = 4096

_installed: list[Shortcut] = []


class Shortcut:
    """Serves calls of `op` without dispatch.

    Attributes
    ----------
    forms : dict
        What was prepared, by key.
    routes : object
        The registry's routes for which the forms are valid.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self.forget()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.op.name}, {len(self.forms)} forms kept)"

    def serve(self, operands: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]) -> Any:
        """Return the result; or do nothing and return `NotImplemented`. Calls `forget` if `routes` are not current."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop the forms."""
        self.forms: dict[Any, Any] = {}
        self.routes = registry.routes

    def admit(self, key: Any, form: Any) -> Any:
        """Keep `form` and return it."""
        if len(self.forms) >= _MOST_KEPT:
            self.forget()
        self.forms[key] = form
        return form

    def install(self) -> None:
        """Make calls of the op try this first, unless a call must select one of several devices, or launches block."""
        if runtime.device_count() == 1 and not settings.get("CUASSAY_LAUNCH_BLOCKING"):
            _installed.append(self)
            self.op.shortcuts[cupy.ndarray] = (self.serve,)  # calling a method costs half of calling an object


def forget() -> None:
    """Drop the forms of every shortcut; code that replaces a kernel must call it, or the old kernel is still launched.

    `blas.controls.renew` drops the graphs of products.
    """
    for shortcut in _installed:
        shortcut.forget()
