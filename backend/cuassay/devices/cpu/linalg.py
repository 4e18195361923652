"""Matrix products on NumPy arrays, through the BLAS NumPy was built with.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.linalg`. The float32 precision modes are imitated by
rounding the operands, so that a test of precision means something without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype, compute_dtype
from cuassay.arrays.rounding import round_tf32, round_to
from cuassay.core.precision import current_precision
from cuassay.devices.cpu.elementwise import widened
from cuassay.devices.cpu.info import limited_threads
from cuassay.ops import registry

__all__ = ["register"]

Array = NDArray[Any]

#: What each precision mode does to a float32 operand; the split modes are at least as good as float32 itself.
_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "tf32": round_tf32,
    "bf16": lambda x: round_to(x, as_dtype("bfloat16")),
    "fp16": lambda x: round_to(x, as_dtype("float16")),
}


def matmul(a: Array, b: Array, *, out: Array) -> None:
    """16-bit products accumulate in float32; float32 ones follow `cuassay.precision`."""
    wide = compute_dtype(out.dtype)
    left, right = widened(a, wide), widened(b, wide)
    rounding = _ROUNDING.get(current_precision()) if out.dtype == np.float32 else None
    if rounding is not None:
        left, right = rounding(left), rounding(right)
    with limited_threads():
        out[...] = np.matmul(left, right).astype(out.dtype, copy=False)


def register() -> None:
    """Enter these into the registry."""
    registry.implement("matmul", kind="cpu", dtypes=registry.op("matmul").schema.dtypes)(matmul)
