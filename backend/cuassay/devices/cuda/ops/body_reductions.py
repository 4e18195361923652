"""Reductions whose functions are a user's text: two kernels are written around it for the arrays of a call.

Arrays of any strides are read element by element, with a part of a row for each block; the shape alone decides the
parts.
Kernels: written by `body_text` around kernels/body.cuh. Called by `cuassay.jit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import compute_dtype, dtype_name
from cuassay.devices.cuda.launch.launch import Kernel
from cuassay.devices.cuda.launch.source import Compiled, compile_source
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops.bodies import layout_of
from cuassay.devices.cuda.ops.body_text import OPTIONS, reduction_text
from cuassay.jit import Body, Reduction, provide_reductions
from cuassay.ops.shapes import reduced_axes

__all__ = ["BodyReduction", "register"]

Array = Any

_BLOCK = 256
_MAX_GRID_Y = 65_535

#: The fewest elements in a part of a row, and the most parts.
_MIN_PART, _MAX_PARTS = 4_096, 1_024


class BodyReduction:
    """The operation of one text, on the current stream."""

    def __init__(self, found: Reduction) -> None:
        self._body, self._identity, self._scalars = found.body, found.identity, found.scalars

    def __call__(self, *given: Array, axis: Any, keepdims: bool, out: Array, **numbers: Any) -> None:
        """Compute into `out`."""
        if not out.size:
            return
        wide = compute_dtype(out.dtype)
        identity = np.asarray(self._identity).astype(wide)[()]
        scalars = [np.asarray(numbers[name]).astype(wide)[()] for name in self._scalars]
        arrays = _rows_last([alignment.aligned(one) for one in given], axis)
        width = prod(arrays[0].shape) // out.size
        parts = max(1, min(_MAX_PARTS // out.size, width // _MIN_PART))
        partial = cupy.empty((out.size, parts), wide)
        types = tuple(dtype_name(one.dtype) for one in arrays)
        run, last = _kernels(self._body, types, dtype_name(out.dtype), len(scalars))
        if width:
            sizes = out.size, width, -(-width // parts)
            grid = parts, min(out.size, _MAX_GRID_Y), 1
            run(grid, _BLOCK, (*arrays, *scalars, partial, identity, *sizes, layout_of(arrays, in_c_order=True)))
        target = out if out.flags.c_contiguous and alignment.is_aligned(out) else cupy.empty(out.shape, out.dtype)
        last(-(-out.size // _BLOCK), _BLOCK, (partial, target, identity, out.size, parts if width else 0))
        alignment.deliver(target, out)


def _rows_last(arrays: Sequence[Array], axis: Any) -> list[Array]:
    """Return views of the broadcast shape, with the reduced axes last."""
    shape = np.broadcast_shapes(*(one.shape for one in arrays))
    axes = reduced_axes(axis, len(shape))
    order = [*(place for place in range(len(shape)) if place not in axes), *axes]
    return [cupy.broadcast_to(one, shape).transpose(order) if shape else one for one in arrays]


@cache
def _kernels(body: Body, operands: tuple[str, ...], out: str, scalars: int) -> tuple[Kernel, Kernel]:
    text = reduction_text(body, operands, out, scalars)

    def build(arch: str) -> Compiled:
        return compile_source(text, name_expressions=["run", "last"], arch=arch, options=OPTIONS, file="reduction.cu")

    return Kernel(build, "run"), Kernel(build, "last")


def register() -> None:
    """Serve reductions of texts on kind `cuda`."""
    provide_reductions("cuda", BodyReduction)
