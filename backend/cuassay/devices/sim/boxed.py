"""The only implementation of all operations: log the accesses, unwrap, and let kind `cpu` compute, in stream order.

The simulated device has no kernels; the cpu kind imitates precision modes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.core.precision import current_precision, precision
from cuassay.devices.sim import calls
from cuassay.devices.sim.array import SimArray
from cuassay.devices.sim.device import SimDevice
from cuassay.errors import CapabilityError
from cuassay.ops import Op, dispatch, registry

__all__ = ["register", "run"]


def run(op: Op, bound: dict[str, Any], dtype: np.dtype[Any], out: Any) -> None:
    """Serve one call of `op`; `cuassay.ops.registry.Fallback` describes the arguments.

    Raises
    ------
    CapabilityError
        If the device lacks the dtype in this class of operation; the message gives the reason.
    """
    accesses = _accesses(op, bound, out)
    home = accesses[0][0].owner
    _require(op, dtype, home)
    work = _work(op, bound, dtype, out)
    with home.machine.working():
        queue = home.machine.current_queue(home)
        others = [home.machine.current_queue(device) for device in {a.owner for a, _ in accesses} - {home}]
        for other in others:
            queue.waits(other.clock, other.finished)
        calls.submit(queue, home, op.name, accesses, work, flops=_flops(op, accesses))
        for other in others:
            other.waits(queue.clock, queue.finished)


def _accesses(op: Op, bound: dict[str, Any], out: Any) -> list[tuple[SimArray, bool]]:
    """Return each array and whether it is written, as the schema says; `out` is written."""
    found: list[tuple[SimArray, bool]] = []
    for param in op.schema.arrays:
        some = (array for _, array in param.members(bound[param.name]))
        found += [(array, param.access != "read") for array in some if isinstance(array, SimArray)]
    return [*found, *((one, True) for one in _each(out))]


def _each(out: Any) -> Sequence[Any]:
    """The outputs of a call, one by one."""
    return out if isinstance(out, tuple) else () if out is None else (out,)


def _require(op: Op, dtype: np.dtype[Any], home: SimDevice) -> None:
    name = f"{op.schema.op_class}:{dtype_name(dtype)}"
    answer = home.machine.answer(name)
    if not answer:
        raise CapabilityError(f"{home.device}: {op.name} has no {name}: {answer.reason}; cast, or use another device")


def _work(op: Op, bound: dict[str, Any], dtype: np.dtype[Any], out: Any) -> Callable[[], None]:
    """Return the computation, with the current precision mode, whenever it runs."""
    unwrapped = _unwrapped(op, bound)
    target, mode = calls.unwrapped(out, SimArray), current_precision()

    def work() -> None:
        with precision(mode):
            dispatch.redispatch(op, "cpu", unwrapped, dtype, target)

    return work


def _unwrapped(op: Op, bound: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with host memory for arrays; an array in a scalar's place stays, and is rejected later."""
    if not op.schema.scalar_names:
        found: dict[str, Any] = calls.unwrapped(bound, SimArray)
        return found
    arrays = {name: bound[name] for name in op.schema.array_names}
    return {**bound, **calls.unwrapped(arrays, SimArray)}


def _flops(op: Op, accesses: list[tuple[SimArray, bool]]) -> float:
    first, last = accesses[0][0], accesses[-1][0]
    inner = 2.0 * first.shape[-1] if op.schema.op_class == "matmul" and first.ndim else 1.0
    return last.size * inner


def register() -> None:
    """Register the fallback; it supports what kind `cpu` does."""
    registry.backend("cpu")  # loads its kernels, because two kinds do not import each other
    registry.register_fallback("sim", run, like="cpu")
