"""Operations whose body is a user's text: a kernel is written around it for the arrays of a call.

NVRTC gets the text unchanged. `cuassay.jit.body` has parsed it and knows which parameters are arrays, numbers and
references. Contiguous arrays are loaded and stored in 16 bytes, others element by element. A body computes 16-bit
floats in float, and its result is rounded once. Kernels: written by `body_text` around kernels/body.cuh, with
kernels/complex.cuh for complex numbers. Called by `cuassay.jit`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import compute_dtype, dtype_name
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.eager.repeated import Repeated
from cuassay.devices.cuda.launch.launch import Kernel
from cuassay.devices.cuda.launch.source import Compiled, compile_source
from cuassay.devices.cuda.memory import alignment
from cuassay.devices.cuda.ops.body_text import OPTIONS, kernel_text
from cuassay.devices.cuda.ops.layouts import MAX_AXES, merged_axes, pack_length
from cuassay.jit import Body, Elementwise, provide
from cuassay.ops import Op

__all__ = ["BodyKernel", "implementation", "layout_of", "register"]

Array = Any

_BLOCK = 256


class BodyKernel:
    """The operation of one body, on the current stream; it is an implementation that offers plans."""

    only_launches = True  # see `repeated`

    def __init__(self, found: Elementwise) -> None:
        self._found, self._body = found, found.body
        self._arrays = len(found.body.inputs) - len(found.scalars)

    def __call__(self, *given: Any, out: Array = None, **scalars: Any) -> None:
        """Write `out`, or, with several outputs, the last arrays given."""
        outs = given[self._arrays :] or (out,)
        if outs[0].size:
            launched, grid, arguments, deliver = self._ready(given[: self._arrays], outs, scalars)
            launched(grid, _BLOCK, arguments)
            deliver()

    def prepare(self, op: Op, bound: Mapping[str, Any], out: Array) -> Callable[[], None]:
        """Prepare one launch if every element begins at a multiple of its size; otherwise return the call as it is."""
        given = [bound[name] for name in op.schema.array_names]
        scalars = {name: bound[name] for name in op.schema.scalar_names}
        outs = given[self._arrays :] or [out]
        if not outs[0].size or not all(map(_is_aligned, (*given, *outs))):
            return lambda: self(*given, out=out, **scalars)
        launched, grid, arguments, _ = self._ready(given[: self._arrays], outs, scalars)
        return launched.bind(grid, _BLOCK, arguments)

    def _ready(
        self, operands: Sequence[Any], outs: Sequence[Array], scalars: Mapping[str, Any]
    ) -> tuple[Kernel, int, tuple[Any, ...], Callable[[], None]]:
        """Return the kernel, its grid and arguments, and a function that copies results to misaligned outputs."""
        wide = compute_dtype(outs[0].dtype)
        operands = [_aligned(one) if isinstance(one, cupy.ndarray) else np.asarray(one, wide)[()] for one in operands]
        targets = [alignment.target_for(out) for out in outs]
        arrays = [*targets, *(one for one in operands if isinstance(one, cupy.ndarray))]
        numbers = self._found.numbers(wide, scalars)
        dense = all(is_c_contiguous(array) and array.size == targets[0].size for array in arrays)
        length = pack_length(arrays) if dense else 1
        form = _Form(
            self._body,
            tuple(_type_of(one) for one in operands),
            dtype_name(targets[0].dtype),
            len(numbers),
            length if dense else 0,
        )
        size = targets[0].size
        where = size if dense else layout_of(arrays)
        arguments = (*operands, *numbers, *targets, where)

        def deliver() -> None:
            for target, out in zip(targets, outs, strict=True):
                alignment.deliver(target, out)

        return _kernel(form), -(-size // (_BLOCK * length)), arguments, deliver


def _aligned(array: Array) -> Array:
    return alignment.aligned(array)


def _is_aligned(value: Any) -> bool:
    return not isinstance(value, cupy.ndarray) or alignment.is_aligned(value)


def _type_of(operand: Any) -> str:
    """Return the dtype of an array; empty for a number, which has the type that the body computes in."""
    return dtype_name(operand.dtype) if isinstance(operand, cupy.ndarray) else ""


def layout_of(arrays: Sequence[Array], *, in_c_order: bool = False) -> Any:
    """Return the ``Layout`` of body.cuh for arrays that broadcast to the shape of the first; see `merged_axes`."""
    filled: Any = _structure(len(arrays))(n=arrays[0].size)
    axes = merged_axes(*arrays, in_c_order=in_c_order)
    filled.axes = len(axes)
    for position, (extent, strides) in enumerate(axes):
        filled.extent[position] = extent
        for place, stride in enumerate(strides):
            filled.stride[place][position] = stride
    return filled


@cache
def _structure(arrays: int) -> type[Any]:
    fields = (
        ("n", ctypes.c_int64),
        ("axes", ctypes.c_int64),
        ("extent", ctypes.c_int64 * MAX_AXES),
        ("stride", ctypes.c_int64 * MAX_AXES * arrays),
    )
    return type(f"Layout{arrays}", (ctypes.Structure,), {"_fields_": fields})


# ------------------------------------------------------------------------------------------------ the kernel


@dataclass(frozen=True, slots=True)
class _Form:
    """Everything that decides the text of a kernel.

    Attributes
    ----------
    body : Body
        What the kernel computes.
    operands : tuple of str
        The dtype of each operand; ``""`` for a number.
    out : str
        The dtype of the outputs.
    scalars : int
        The number of numbers that follow.
    pack : int
        The elements that a thread loads at once from contiguous arrays; 0 for arrays with any strides.
    """

    body: Body
    operands: tuple[str, ...]
    out: str
    scalars: int
    pack: int


@cache
def _kernel(form: _Form) -> Kernel:
    text = kernel_text(form.body, form.operands, form.out, form.scalars, form.pack)

    def build(arch: str) -> Compiled:
        return compile_source(
            text, name_expressions=["run"], arch=arch, options=OPTIONS, file=f"{form.body.entry.name}.cu"
        )

    return Kernel(build, "run")


# ------------------------------------------------------------------------------------------------ for the kind


def implementation(found: Elementwise) -> BodyKernel:
    """Return the implementation of a body's operation."""
    return BodyKernel(found)


def _served(found: Elementwise) -> BodyKernel:
    if found.op.schema.outputs:
        Repeated(found.op).install()
    return implementation(found)


def register() -> None:
    """Serve bodies on kind `cuda`."""
    provide("cuda", _served)
