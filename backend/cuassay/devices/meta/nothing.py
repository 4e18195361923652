"""The one implementation of every operation: none. Dispatch has checked the arguments and made the result by then.

What a kernel alone would find is asked here: options that it does not know, numbers that its dtype does not hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuassay.core.precision import resolved
from cuassay.devices.meta.array import MetaArray
from cuassay.ops import Op, dispatch, registry

__all__ = ["register", "run"]


def run(op: Op, bound: dict[str, Any], dtype: np.dtype[Any], out: Any) -> None:
    """Serve one call of `op`; arguments as `cuassay.ops.registry.Fallback` has them.

    Raises
    ------
    KernelNotFoundError
        If kind `cpu`, whose dtypes are those of this kind, does not compute `op` in `dtype`.
    ArgumentError, OverflowError
        As the kernel of kind `cpu` does, where the values of arrays do not matter.
    """
    if op.schema.elementwise and out is not None:
        none = {name: _without_elements(value) for name, value in bound.items()}
        dispatch.redispatch(op, "cpu", none, dtype, _without_elements(out))
    elif op.composite is None and registry.find(op, "cpu", dtype) is None:
        raise registry.not_found(op, "meta", dtype)
    elif "precision" in bound:
        resolved(bound["precision"])


def _without_elements(value: Any) -> Any:
    """An array of the host in the place of each of ours; it fits to all others, as it has no elements."""
    if isinstance(value, tuple):
        return tuple(map(_without_elements, value))
    return np.empty(0, value.dtype) if isinstance(value, MetaArray) else value


def register() -> None:
    """Enter the fallback; it supports what kind `cpu` does."""
    registry.backend("cpu")  # loads its kernels; the rooms of two kinds do not import each other
    registry.register_fallback("meta", run, like="cpu")
