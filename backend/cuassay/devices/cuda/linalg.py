"""Matrix products by cuBLAS' extended GEMM, through CuPy's handle.

CuPy's own `matmul` is not used: from three dimensions on it fails for bfloat16 and computes float16 at float32's
speed (cupy#10317). Row-major ``C = A B`` is asked of the column-major library as ``C^T = B^T A^T``.
Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.linalg`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.precision import current_precision
from cuassay.ops import registry

__all__ = ["register"]

Array = Any

#: dtype to (cudaDataType, name of the compute type, dtype of alpha and beta). 16-bit products accumulate in float32.
_TYPES: dict[np.dtype[Any], tuple[int, str, type]] = {
    as_dtype("float16"): (2, "CUBLAS_COMPUTE_32F", np.float32),
    as_dtype("bfloat16"): (14, "CUBLAS_COMPUTE_32F", np.float32),
    as_dtype("float32"): (0, "CUBLAS_COMPUTE_32F", np.float32),
    as_dtype("float64"): (1, "CUBLAS_COMPUTE_64F", np.float64),
    as_dtype("complex64"): (4, "CUBLAS_COMPUTE_32F", np.complex64),
    as_dtype("complex128"): (5, "CUBLAS_COMPUTE_64F", np.complex128),
}

#: float32 in a mode other than ieee. The split modes compute as ieee does, which is at least as precise.
_FLOAT32_MODES: dict[str, str] = {
    "tf32": "CUBLAS_COMPUTE_32F_FAST_TF32",
    "bf16": "CUBLAS_COMPUTE_32F_FAST_16BF",
    "fp16": "CUBLAS_COMPUTE_32F_FAST_16F",
}

_GEMM_DEFAULT = -1

#: ``CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION``: by default a product split along K adds its 16-bit parts in 16
#: bits; bfloat16 (3, 1025) x (1025, 2) was measured 0.75 units in the last place off where half a unit is possible.
_WIDE_REDUCTION = 16

_NO_TRANSPOSE, _TRANSPOSE = 0, 1


@dataclass(frozen=True, slots=True)
class _Operand:
    """A stack of matrices as cuBLAS takes it: transposed or not, leading dimension, distance from one to the next."""

    array: Array
    transpose: int
    leading: int
    batch_stride: int


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
    _gemm(left, right, out, count)


def _operand(array: Array, stack: tuple[int, ...], count: int) -> _Operand:
    """`array` broadcast over `stack`, copied only where cuBLAS cannot read it as it lies."""
    if array.ndim > 2 and array.shape[:-2] != stack:
        array = cupy.broadcast_to(array, (*stack, *array.shape[-2:]))
    flat = array if array.ndim <= 3 else array.reshape(count, *array.shape[-2:])
    found = _readable(flat)
    return found if found is not None else _readable(cupy.ascontiguousarray(flat))  # type: ignore[return-value]


def _readable(array: Array) -> _Operand | None:
    rows, columns = array.shape[-2:]
    size = array.dtype.itemsize
    row, column = (stride // size for stride in array.strides[-2:])
    batch = array.strides[0] // size if array.ndim == 3 else 0
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return _Operand(array, _NO_TRANSPOSE, max(row, columns, 1) if rows > 1 else max(columns, 1), batch)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return _Operand(array, _TRANSPOSE, max(column, rows, 1) if columns > 1 else max(rows, 1), batch)
    return None


def _gemm(a: _Operand, b: _Operand, out: Array, count: int) -> None:
    from cupy_backends.cuda.libs import cublas  # here, because importing it loads the library

    rows, columns, inner = out.shape[-2], out.shape[-1], a.array.shape[-1]
    data_type, compute, scalar = _TYPES[out.dtype]
    if out.dtype == np.float32:
        compute = _FLOAT32_MODES.get(current_precision(), compute)
    one: np.ndarray[Any, Any] = np.ones((), scalar)
    zero: np.ndarray[Any, Any] = np.zeros((), scalar)
    handle = cupy.cuda.device.get_cublas_handle()
    pointer_mode, math_mode = cublas.getPointerMode(handle), cublas.getMathMode(handle)
    cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
    cublas.setMathMode(handle, _WIDE_REDUCTION)
    try:
        cublas.gemmStridedBatchedEx(
            handle, b.transpose, a.transpose, columns, rows, inner,
            one.ctypes.data, b.array.data.ptr, data_type, b.leading, b.batch_stride,
            a.array.data.ptr, data_type, a.leading, a.batch_stride,
            zero.ctypes.data, out.data.ptr, data_type, columns, rows * columns, count,
            getattr(cublas, compute), _GEMM_DEFAULT,
        )  # fmt: skip
    finally:
        cublas.setPointerMode(handle, pointer_mode)
        cublas.setMathMode(handle, math_mode)


def register() -> None:
    """Enter these into the registry."""
    registry.implement("matmul", kind="cuda", dtypes=registry.op("matmul").schema.dtypes)(matmul)
