"""One call of cuBLAS: a batch of strided matrix products, in column-major order, on the current stream.

Through ctypes and handles of our own: CuPy's binding refuses to be captured, and its handle cannot keep a workspace.
The workspace is taken from CuPy's pool for each call, so that it is ordered with the stream, and inside a capture
belongs to the graph's own pool. How arrays become operands is `linalg`'s.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.precision import current_precision
from cuassay.devices.cuda import runtime
from cuassay.devices.cuda.check import guarded
from cuassay.errors import DriverError

__all__ = ["Operand", "gemm"]

#: dtype to (cudaDataType_t, cublasComputeType_t, dtype of alpha and beta). 16-bit products accumulate in float32.
_TYPES: dict[np.dtype[Any], tuple[int, int, type]] = {
    as_dtype("float16"): (2, 68, np.float32),
    as_dtype("bfloat16"): (14, 68, np.float32),
    as_dtype("float32"): (0, 68, np.float32),
    as_dtype("float64"): (1, 70, np.float64),
    as_dtype("complex64"): (4, 68, np.complex64),
    as_dtype("complex128"): (5, 70, np.complex128),
}

#: cublasComputeType_t of float32 in a mode other than ieee. The split modes compute as ieee does: at least as precise.
_FLOAT32_MODES: dict[str, int] = {"tf32": 77, "bf16": 75, "fp16": 74}

#: ``CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION``: by default a product split along K adds its 16-bit parts in 16
#: bits; bfloat16 (3, 1025) x (1025, 2) was measured 0.75 units in the last place off where half a unit is possible.
_WIDE_REDUCTION = 16

_ALGORITHM_DEFAULT = -1

#: What NVIDIA recommends for Hopper, and for what came before; bytes.
_WORKSPACE_HOPPER, _WORKSPACE = 32 * 2**20, 4 * 2**20

#: What to do about cublasStatus_t.
_STATUS: dict[int, tuple[str, str]] = {
    1: ("CUBLAS_STATUS_NOT_INITIALIZED", "check that the driver serves this cuBLAS (cuassay devices -v)"),
    3: ("CUBLAS_STATUS_ALLOC_FAILED", "free memory on the device"),
    7: ("CUBLAS_STATUS_INVALID_VALUE", "this is an error in cuassay: report the shapes and strides"),
    8: ("CUBLAS_STATUS_ARCH_MISMATCH", "this dtype needs a newer device"),
    13: ("CUBLAS_STATUS_EXECUTION_FAILED", "run under compute-sanitizer; an earlier kernel may have failed"),
    14: ("CUBLAS_STATUS_INTERNAL_ERROR", "run under compute-sanitizer; an earlier kernel may have failed"),
    15: ("CUBLAS_STATUS_NOT_SUPPORTED", "use another dtype, or contiguous operands"),
}


@dataclass(frozen=True, slots=True)
class Operand:
    """A stack of matrices as cuBLAS takes it: transposed or not, leading dimension, distance from one to the next."""

    array: Any
    transpose: int
    leading: int
    batch_stride: int


class _Handles(threading.local):
    """cuBLAS handles by device: one a thread, as a handle must not be used by two at once."""

    def __init__(self) -> None:
        self.by_device: dict[int, ctypes.c_void_p] = {}


_handles = _Handles()


@cache
def _library() -> Any:
    with guarded("cublas"):
        from cuda import pathfinder

        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)


def _check(status: int, doing: str) -> None:
    if status:
        name, advice = _STATUS.get(status, (f"cublasStatus_t {status}", "look it up in cuBLAS' manual"))
        raise DriverError(f"{doing} failed: {name}; {advice}", status=name, code=status)


def _handle(device: int) -> ctypes.c_void_p:
    """The handle of this thread on the current device `device`, made at its first use."""
    found = _handles.by_device.get(device)
    if found is None:
        found = ctypes.c_void_p()
        cupy.cuda.runtime.free(0)  # a thread that has called nothing yet has no context
        _check(_library().cublasCreate_v2(ctypes.byref(found)), "making a cuBLAS handle")
        _check(_library().cublasSetMathMode(found, _WIDE_REDUCTION), "setting cuBLAS' math mode")
        _handles.by_device[device] = found
    return found


@cache
def _workspace_nbytes(device: int) -> int:
    return _WORKSPACE_HOPPER if runtime.get_device_properties(device).major >= 9 else _WORKSPACE


def gemm(rows: int, columns: int, inner: int, a: Operand, b: Operand, out: Any, batch: int) -> None:
    """``out = a @ b`` in column-major order: a (rows, inner), b (inner, columns), out (rows, columns) contiguous.

    Raises
    ------
    DriverError
        What cuBLAS answered.
    """
    device = cupy.cuda.runtime.getDevice()
    handle, library = _handle(device), _library()
    workspace = cupy.cuda.alloc(_workspace_nbytes(device))
    stream = ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)
    _check(library.cublasSetStream_v2(handle, stream), "setting cuBLAS' stream")
    # After the stream: setting one takes the workspace back to cuBLAS' own.
    size = ctypes.c_size_t(_workspace_nbytes(device))
    _check(library.cublasSetWorkspace_v2(handle, ctypes.c_void_p(workspace.ptr), size), "setting cuBLAS' workspace")
    data_type, compute, scalar = _TYPES[out.dtype]
    if out.dtype == np.float32:
        compute = _FLOAT32_MODES.get(current_precision(), compute)
    factors: np.ndarray[Any, Any] = np.array([1, 0], scalar)
    one, zero = factors.ctypes.data, factors.ctypes.data + factors.itemsize
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    _check(
        library.cublasGemmStridedBatchedEx_64(
            handle, a.transpose, b.transpose, integer(rows), integer(columns), integer(inner), pointer(one),
            pointer(a.array.data.ptr), data_type, integer(a.leading), integer(a.batch_stride),
            pointer(b.array.data.ptr), data_type, integer(b.leading), integer(b.batch_stride),
            pointer(zero), pointer(out.data.ptr), data_type, integer(rows), integer(rows * columns),
            integer(batch), compute, _ALGORITHM_DEFAULT,
        ),
        f"a product of ({rows}, {inner}) and ({inner}, {columns}), {batch} of them, in {out.dtype}",
    )  # fmt: skip
