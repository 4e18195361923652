"""`pad` on CuPy arrays, by CuPy's fill and copy.

Called by `cuassay.ops`; OpSpec: `cuassay.testing.specs.storage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuassay.devices.cuda.memory import alignment
from cuassay.ops import registry

__all__ = ["register"]

Array = Any


@alignment.on_aligned
def pad(a: Array, *, widths: Sequence[Sequence[int]], value: float, out: Array) -> None:
    """`value` everywhere, and `a` inside."""
    if not out.size:
        return
    out.fill(np.asarray(value, out.dtype)[()])
    inside = out[tuple(slice(before, before + extent) for (before, _), extent in zip(widths, a.shape, strict=True))]
    if a.size:
        alignment.copyto(inside, a)


def register() -> None:
    """Enter it into the registry."""
    registry.implement("pad", kind="cuda", dtypes=registry.op("pad").schema.dtypes)(pad)
