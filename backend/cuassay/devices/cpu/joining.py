"""Joining the arrays of a list, on NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.joining`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.ops import registry

__all__ = ["register"]

Array = NDArray[Any]


def cat(a: Sequence[Array], *, axis: int, out: Array) -> None:
    """Join arrays along `axis`, each cast to the dtype of `out`."""
    along = np.moveaxis(out, axis, 0)
    start = 0
    for part in (np.moveaxis(one, axis, 0) for one in a):
        along[start : start + len(part)] = part
        start += len(part)


def stack(a: Sequence[Array], *, axis: int, out: Array) -> None:
    """Join arrays along a new axis."""
    along = np.moveaxis(out, axis, 0)
    for place, one in enumerate(a):
        along[place, ...] = one


def register() -> None:
    """Add these implementations to the registry."""
    for name, implementation in (("cat", cat), ("stack", stack)):
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
