"""cuBLAS: a batch of strided products by ``cublasGemmStridedBatchedEx``, through ctypes and handles of this module.

CuPy's binding cannot be captured, and its handle cannot keep a workspace. The allocator provides a workspace for each
call, so that it is ordered with the stream and, inside a capture, belongs to the graph's pool. There is no bias and no
activation, and `c` must be `d`: `devices.cuda.blas.gemm` does what the library cannot.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import cupy
import numpy as np

from cuassay.core import settings
from cuassay.core.handle import Handle
from cuassay.devices.cuda.blas import controls
from cuassay.devices.cuda.blas.handles import ThreadHandles
from cuassay.devices.cuda.blas.problem import COMPUTE_TYPES, DATA_TYPES, Problem
from cuassay.devices.cuda.driver.check import guarded
from cuassay.devices.cuda.launch.launch import conclude
from cuassay.devices.cuda.memory import hook
from cuassay.errors import DriverError

__all__ = ["CublasPlan", "current_handle", "version"]

#: ``CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION``: by default a product split along K adds its 16-bit parts in 16
#: bits. bfloat16 (3, 1025) x (1025, 2) then had an error of 0.75 ulp, where 0.5 ulp is possible.
_DEFAULT_MATH, _WIDE_REDUCTION = 0, 16
_REDUCED = 4

_ALGORITHM_DEFAULT = -1

#: Advice for each cublasStatus_t.
_STATUS: dict[int, tuple[str, str]] = {
    1: ("CUBLAS_STATUS_NOT_INITIALIZED", "check that the driver serves this cuBLAS (cuassay devices -v)"),
    3: ("CUBLAS_STATUS_ALLOC_FAILED", "free memory on the device"),
    7: ("CUBLAS_STATUS_INVALID_VALUE", "this is an error in cuassay: report the shapes and strides"),
    8: ("CUBLAS_STATUS_ARCH_MISMATCH", "this dtype needs a newer device"),
    13: ("CUBLAS_STATUS_EXECUTION_FAILED", "run under compute-sanitizer; an earlier kernel may have failed"),
    14: ("CUBLAS_STATUS_INTERNAL_ERROR", "run under compute-sanitizer; an earlier kernel may have failed"),
    15: ("CUBLAS_STATUS_NOT_SUPPORTED", "use another dtype, or contiguous operands"),
}


@cache
def _library() -> Any:
    with guarded("cublas"):
        from cuda import pathfinder

        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)


@cache
def version() -> str:
    """Return the library's version, such as ``13.1.0``; no device is needed."""
    parts = []
    for part in range(3):  # libraryPropertyType: major, minor, patch
        number = ctypes.c_int()
        _check(_library().cublasGetProperty(part, ctypes.byref(number)), "asking cuBLAS for its version")
        parts.append(str(number.value))
    return ".".join(parts)


def _check(status: int, doing: str) -> None:
    if status:
        name, advice = _STATUS.get(status, (f"cublasStatus_t {status}", "look it up in cuBLAS' manual"))
        raise DriverError(f"{doing} failed: {name}; {advice}", status=name, code=status)


def _new_handle() -> ctypes.c_void_p:
    found = ctypes.c_void_p()
    _check(_library().cublasCreate_v2(ctypes.byref(found)), "making a cuBLAS handle")
    return found


_handles = ThreadHandles(_new_handle)


def current_handle(device: int) -> int:
    """Return the address of this thread's ``cublasHandle_t``, on the current stream, with cuBLAS' own workspace."""
    handle = _handles.on(device)
    stream = ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)
    _check(_library().cublasSetStream_v2(handle, stream), "setting cuBLAS' stream")
    return int(handle.value or 0)


class CublasPlan(Handle):
    """A problem, ready to be called by this thread on the current device.

    See `cublaslt.CublasLtPlan` for the parameters.
    """

    library = "cuBLAS"
    algorithm = None

    def __init__(self, problem: Problem, device: int) -> None:
        self.problem = problem
        self.workspace_nbytes = controls.workspace_nbytes(device, "cublas")
        self._handle = _handles.on(device)
        self._lease = _handles.lease  # as long as this exists, no other thread gets the handle
        self._factors: np.ndarray[Any, Any] = np.array([problem.alpha, problem.beta], problem.scale_dtype)
        self._math = _DEFAULT_MATH if problem.reductions & _REDUCED else _WIDE_REDUCTION
        self._blocking: bool = settings.get("CUASSAY_LAUNCH_BLOCKING")

    def __repr__(self) -> str:
        return f"CublasPlan({self.problem}; {self.library})"

    def point(self, name: str, address: int) -> None:
        """Raise `DriverError`: the library fuses neither a bias nor scales."""
        raise DriverError(f"cuBLAS reads no {name}; report this")

    def run(self, a: int, b: int, c: int, d: int, *, workspace: int = 0) -> None:
        """Compute on these addresses, in order of the current stream; `c` must be `d`.

        See `cublaslt.CublasLtPlan.run` for the parameters.

        Raises
        ------
        DriverError
            If the library reports an error.
        """
        library, handle, p = _library(), self._handle, self.problem
        memory = None if workspace else hook.allocate(self.workspace_nbytes)
        stream = cupy.cuda.get_current_stream().ptr
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(stream)), "setting cuBLAS' stream")
        # This must follow cublasSetStream_v2, which resets the workspace to cuBLAS' own.
        size, address = ctypes.c_size_t(self.workspace_nbytes), workspace if memory is None else memory.ptr
        _check(library.cublasSetWorkspace_v2(handle, ctypes.c_void_p(address), size), "setting cuBLAS' workspace")
        _check(library.cublasSetMathMode(handle, self._math), "setting cuBLAS' math mode")
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        alpha = self._factors.ctypes.data
        _check(
            library.cublasGemmStridedBatchedEx_64(
                handle, int(p.transpose_a), int(p.transpose_b), integer(p.m), integer(p.n), integer(p.k),
                pointer(alpha),
                pointer(a), DATA_TYPES[p.a.dtype], integer(p.a.leading), integer(p.a.batch_stride),
                pointer(b), DATA_TYPES[p.b.dtype], integer(p.b.leading), integer(p.b.batch_stride),
                pointer(alpha + self._factors.itemsize),
                pointer(d), DATA_TYPES[p.d.dtype], integer(p.d.leading), integer(p.d.batch_stride),
                integer(p.batch), COMPUTE_TYPES[p.compute], _ALGORITHM_DEFAULT,
            ),
            str(p),
        )  # fmt: skip
        if self._blocking:
            conclude(0, stream, repr(self))
