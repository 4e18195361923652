"""A call made ready, which its owner runs again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.ops import registry
from cuassay.ops.arguments import blame
from cuassay.ops.operation import Op

__all__ = ["Plan", "on"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A call made ready: `run` computes on the same arrays again and gives `out`."""

    op: Op
    device: Device
    dtype: str
    execute: Callable[[], Any]
    out: Any
    bound: Mapping[str, Any] = field(default_factory=dict)
    renew: Callable[[Mapping[str, Any]], Callable[[], Any] | None] | None = None

    def run(self) -> Any:
        """Compute; gives the output array (None where the op makes none)."""
        try:
            self.execute()
        except (ArithmeticError, TypeError, ValueError) as error:
            blame(self.op.schema, self.bound, self.dtype, self.out, error)
        return self.out

    def rebind(self, **changed: Any) -> Plan:
        """A plan of the same call with these arguments changed; this one may no longer be run.

        What an implementation has made ready and can keep, it keeps: of a fused optimizer a new learning rate costs
        microseconds, new gradients of the same shapes their addresses. Everything is checked as `Op.prepare` does.
        """
        backend = registry.backend(self.device.kind)
        try:
            run = None if self.renew is None else on(backend, self.device.index, partial(self.renew, changed))
        except (ArithmeticError, TypeError, ValueError) as error:
            blame(self.op.schema, {**self.bound, **changed}, self.dtype, self.out, error)
        if run is None:
            return self.op.prepare(**{**self.bound, **changed}, out=self.out)
        execute = partial(on, backend, self.device.index, run)
        return replace(self, execute=execute, bound={**self.bound, **changed})

    def __repr__(self) -> str:
        return f"Plan({self.op.name}, {self.dtype}, {self.device})"


def on(backend: Backend, index: int, run: Callable[[], Any]) -> Any:
    """Run a plan, or prepare a new one, with its device current."""
    if backend.is_current(index):
        return run()
    with backend.activate(index):
        return run()
