"""`cat` and `stack` on CuPy arrays: a copy by CuPy for each array, into its part of the result.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.joining`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuassay.arrays.layout import normalize_axis
from cuassay.devices.cuda.memory import alignment
from cuassay.ops import registry

__all__ = ["register"]

Array = Any


def cat(a: Sequence[Array], *, axis: int, out: Array) -> None:
    """One after another along `axis`, each cast to the dtype of `out`."""
    before = (slice(None),) * normalize_axis(axis, out.ndim)
    start = 0
    for one in a:
        end = start + one.shape[len(before)]
        _put(one, out[(*before, slice(start, end))])
        start = end


def stack(a: Sequence[Array], *, axis: int, out: Array) -> None:
    """One after another along the new axis."""
    before = (slice(None),) * normalize_axis(axis, out.ndim)
    for place, one in enumerate(a):
        _put(one, out[(*before, place)])


def _put(one: Array, part: Array) -> None:
    if one.size:
        alignment.copyto(part, alignment.aligned(one).astype(part.dtype, copy=False))


def register() -> None:
    """Enter these into the registry."""
    for name, implementation in (("cat", cat), ("stack", stack)):
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
