"""A prepared call, which its owner runs many times."""

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
    """A prepared call: `run` computes on the same arrays again and returns `out`."""

    op: Op
    device: Device
    dtype: str
    execute: Callable[[], Any]
    out: Any
    bound: Mapping[str, Any] = field(default_factory=dict)
    renew: Callable[[Mapping[str, Any]], Callable[[], Any] | None] | None = None

    def run(self) -> Any:
        """Compute, and return the output array, or None if the op makes none."""
        try:
            self.execute()
        except (ArithmeticError, TypeError, ValueError) as error:
            blame(self.op.schema, self.bound, self.dtype, self.out, error)
        return self.out

    def rebind(self, **changed: Any) -> Plan:
        """Return a plan of the same call with these arguments changed; this plan must not be run again.

        The implementation keeps prepared state that is still valid: for a fused optimizer, a new learning rate costs
        microseconds, and new gradients of the same shapes cost only new pointers. All checks of `Op.prepare` are made.
        A change that is refused leaves this plan as it was.
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
    """Run a plan, or prepare one, with its device current."""
    if backend.is_current(index):
        return run()
    with backend.activate(index):
        return run()
