"""Matrix products: how arrays of any strides become operands of `gemm`.

CuPy's own `matmul` is not used: from three dimensions on it fails for bfloat16 and computes float16 at float32's
speed (cupy#10317). Row-major ``C = A B`` is asked of the column-major library as ``C^T = B^T A^T``.
Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.linalg`.
"""

from __future__ import annotations

from typing import Any

import cupy

from cuassay.devices.cuda.elementwise import add
from cuassay.devices.cuda.gemm import Operand, gemm
from cuassay.ops import registry

__all__ = ["register"]

Array = Any

_NO_TRANSPOSE, _TRANSPOSE = 0, 1


def matmul(a: Array, b: Array, *, out: Array) -> None:
    """NumPy's matmul into `out`, on the current stream."""
    if not out.size:
        return
    if a.shape[-1] == 0:
        out.fill(0)
        return
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    stack = out.shape[: len(out.shape) - (a.ndim > 1) - (b.ndim > 1)]
    target = out.reshape(*stack, left.shape[-2], right.shape[-1]) if out.flags.c_contiguous else None
    result = cupy.empty((*stack, left.shape[-2], right.shape[-1]), out.dtype) if target is None else target
    _product(left.astype(out.dtype, copy=False), right.astype(out.dtype, copy=False), result)
    if target is None:
        cupy.copyto(out, result.reshape(out.shape))


def _product(a: Array, b: Array, out: Array) -> None:
    if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous:  # one tall product instead of a stack of small ones
        a, out = a.reshape(-1, a.shape[-1]), out.reshape(-1, out.shape[-1])
    count = out.size // (out.shape[-2] * out.shape[-1])
    left, right = _operand(a, out.shape[:-2], count), _operand(b, out.shape[:-2], count)
    gemm(out.shape[-1], out.shape[-2], a.shape[-1], right, left, out, count)


def _operand(array: Array, stack: tuple[int, ...], count: int) -> Operand:
    """`array` broadcast over `stack`, copied only where cuBLAS cannot read it as it lies."""
    if array.ndim > 2 and array.shape[:-2] != stack:
        array = cupy.broadcast_to(array, (*stack, *array.shape[-2:]))
    flat = array if array.ndim <= 3 else array.reshape(count, *array.shape[-2:])
    found = _readable(flat)
    return found if found is not None else _readable(cupy.ascontiguousarray(flat))  # type: ignore[return-value]


def _readable(array: Array) -> Operand | None:
    rows, columns = array.shape[-2:]
    size = array.dtype.itemsize
    row, column = (stride // size for stride in array.strides[-2:])
    batch = array.strides[0] // size if array.ndim == 3 else 0
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return Operand(array, _NO_TRANSPOSE, max(row, columns, 1) if rows > 1 else max(columns, 1), batch)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return Operand(array, _TRANSPOSE, max(column, rows, 1) if columns > 1 else max(rows, 1), batch)
    return None


def linear(a: Array, weight: Array, bias: Array, *, out: Array) -> None:
    """``a @ weight.T + bias``: the product into `out`, the bias added there."""
    matmul(a, weight.T, out=out)
    add(out, bias, out=out)


def register() -> None:
    """Enter these into the registry."""
    table: dict[str, registry.Implementation] = {"matmul": matmul, "linear": linear}
    for name, implementation in table.items():
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
