"""The single fallback of every operation: it computes nothing, because dispatch has already made the result.

It makes the checks that otherwise only a kernel makes: unknown options, and numbers beyond the dtype's range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuassay.core.precision import resolved
from cuassay.devices.meta.array import MetaArray
from cuassay.ops import Op, dispatch, registry

__all__ = ["register", "run"]


def run(op: Op, bound: dict[str, Any], dtype: np.dtype[Any], out: Any) -> None:
    """Serve one call of `op`; the arguments are those of `cuassay.ops.registry.Fallback`.

    Raises
    ------
    KernelNotFoundError
        If kind `cpu`, whose dtypes this kind shares, does not compute `op` in `dtype`.
    ArgumentError, OverflowError
        As the kernel of kind `cpu` does for reasons other than the arrays' values.
    """
    if op.schema.elementwise and out is not None:
        none = {name: _without_elements(value) for name, value in bound.items()}
        dispatch.redispatch(op, "cpu", none, dtype, _without_elements(out))
    elif op.composite is None and registry.find(op, "cpu", dtype) is None:
        raise registry.not_found(op, "meta", dtype)
    elif "precision" in bound:
        resolved(bound["precision"])


def _without_elements(value: Any) -> Any:
    """Replace each meta array by an empty array of the host, which broadcasts with every other empty array."""
    if isinstance(value, tuple):
        return tuple(map(_without_elements, value))
    return np.empty(0, value.dtype) if isinstance(value, MetaArray) else value


def register() -> None:
    """Register the fallback; it supports what kind `cpu` supports."""
    registry.backend("cpu")  # loads its kernels; device packages do not import each other
    registry.register_fallback("meta", run, like="cpu")
