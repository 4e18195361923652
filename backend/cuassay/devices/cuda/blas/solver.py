"""Linear algebra on CuPy arrays: cuSOLVER, and cuBLAS for stacks of small matrices.

Nothing here waits for the device: the libraries write failures to `info` on the device. Both libraries are
column-major, so they receive transposes. CuPy calls neither of them in a capture, so these operations are rejected
there. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.solver`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import cupy
import numpy as np
from cupy.cuda import device

from cuassay.devices.cuda.blas.gemm import gemm
from cuassay.devices.cuda.driver.cupy_private import cublas, cusolver
from cuassay.devices.cuda.memory.alignment import require_aligned
from cuassay.errors import CaptureError
from cuassay.ops import decompositions, registry

__all__ = ["register"]

Array = Any

#: The letter by which the libraries name a dtype.
_LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}

#: Up to this size one batched call factors a stack; larger matrices are factored one by one. CuPy has the same limit.
_BATCHED = 256

#: Up to this size a stack of Hermitian matrices goes to the batched Jacobi method; cuSOLVER has this limit for SVD too.
_JACOBI = 32


def solve(a: Array, b: Array, x: Array, info: Array) -> None:
    """Solve by LU with partial pivoting."""
    _solve(a, b.astype(x.dtype, copy=False), x, info)


def inv(a: Array, inverse: Array, info: Array) -> None:
    """Invert by LU with partial pivoting, solving for the columns of the identity."""
    one = cupy.eye(a.shape[-1], dtype=a.dtype)
    _solve(a, cupy.broadcast_to(one, a.shape), inverse, info)


def _solve(a: Array, b: Array, x: Array, info: Array) -> None:
    if not (x.size and a.size):
        info[...] = 0
        return
    factors, pivots, codes = _factored(a.swapaxes(-2, -1), x.dtype)
    columns = _copied(b.swapaxes(-2, -1), x.dtype)
    _substitute(factors, pivots, columns)
    x[...] = columns.reshape(*b.shape[:-2], b.shape[-1], b.shape[-2]).swapaxes(-2, -1)
    info[...] = codes.reshape(info.shape)


def _copied(stack: Array, dtype: Any) -> Array:
    """Return a C-contiguous copy of shape (matrices, rows, columns)."""
    return stack.astype(dtype, order="C", copy=True).reshape(-1, *stack.shape[-2:])


def _routine(library: Any, name: str, dtype: Any) -> Any:
    return getattr(library, _LETTERS[np.dtype(dtype).char] + name)


def _pointers(stack: Array) -> Array:
    """Return the address of each matrix, on the device.

    Keep a reference, or the next allocation may reuse the memory.
    """
    step = stack.shape[1] * stack.shape[2] * stack.itemsize
    return cupy.arange(stack.data.ptr, stack.data.ptr + step * len(stack), step, dtype=np.uint64)


def _factored(transposed: Array, dtype: Any) -> tuple[Array, Array, Array]:
    """Factor each matrix, given its transpose in C order (its column-major form): LU factors, pivots from 1, codes."""
    factors = _copied(transposed, dtype)
    count, n, _ = factors.shape
    pivots, codes = cupy.empty((count, n), np.int32), cupy.empty(count, np.int32)
    if count > 1 and n <= _BATCHED:
        batched, addresses = _routine(cublas(), "getrfBatched", dtype), _pointers(factors)
        batched(device.get_cublas_handle(), n, addresses.data.ptr, n, pivots.data.ptr, codes.data.ptr, count)
        return factors, pivots, codes
    handle = device.get_cusolver_handle()
    length = _routine(cusolver(), "getrf_bufferSize", dtype)(handle, n, n, factors.data.ptr, n)
    workspace, factor = cupy.empty(length, dtype), _routine(cusolver(), "getrf", dtype)
    for place in range(count):
        factor(
            handle, n, n, factors[place].data.ptr, n, workspace.data.ptr, pivots[place].data.ptr,
            codes[place:].data.ptr,
        )  # fmt: skip
    return factors, pivots, codes


def _substitute(factors: Array, pivots: Array, columns: Array) -> None:
    """Solve in place: `columns` is (matrices, K, N), and each row is a right-hand side."""
    count, n, _ = factors.shape
    k, dtype = columns.shape[1], factors.dtype
    if count > 1 and n <= _BATCHED:
        status = np.zeros(1, np.int32)  # the status of the arguments, on the host
        batched, left, right = _routine(cublas(), "getrsBatched", dtype), _pointers(factors), _pointers(columns)
        batched(
            device.get_cublas_handle(), cublas().CUBLAS_OP_N, n, k, left.data.ptr, n, pivots.data.ptr,
            right.data.ptr, n, status.ctypes.data, count,
        )  # fmt: skip
        return
    handle, unused = device.get_cusolver_handle(), cupy.empty(1, np.int32)
    substitute = _routine(cusolver(), "getrs", dtype)
    for place in range(count):
        substitute(
            handle, cublas().CUBLAS_OP_N, n, k, factors[place].data.ptr, n, pivots[place].data.ptr,
            columns[place].data.ptr, n, unused.data.ptr,
        )  # fmt: skip


def det(a: Array, *, out: Array) -> None:
    """Compute the product of the pivots of LU; each exchange of rows changes the sign."""
    if not a.size:
        out[...] = 1
        return
    factors, pivots, codes = _factored(a, a.dtype)  # the transpose has the same determinant
    exchanges = (pivots != cupy.arange(1, a.shape[-1] + 1, dtype=np.int32)).sum(axis=-1) % 2
    diagonal = cupy.diagonal(factors, axis1=-2, axis2=-1)
    product = cupy.prod(diagonal, axis=-1)
    signed = cupy.where(exchanges == 1, -product, product)
    out[...] = cupy.where(codes > 0, 0, signed).reshape(out.shape)  # after a pivot of 0 the factors are meaningless


def cholesky(a: Array, factor: Array, info: Array) -> None:
    """Factor `a`, of which only the lower triangle is read: in column-major order it is the upper one."""
    if not a.size:
        info[...] = 0
        return
    stack = _copied(a, a.dtype)
    count, n, _ = stack.shape
    codes, handle = cupy.empty(count, np.int32), device.get_cusolver_handle()
    upper = cublas().CUBLAS_FILL_MODE_UPPER
    if count > 1 and n <= _BATCHED:
        batched, addresses = _routine(cusolver(), "potrfBatched", a.dtype), _pointers(stack)
        batched(handle, upper, n, addresses.data.ptr, n, codes.data.ptr, count)
    else:
        length = _routine(cusolver(), "potrf_bufferSize", a.dtype)(handle, upper, n, stack.data.ptr, n)
        workspace, single = cupy.empty(length, a.dtype), _routine(cusolver(), "potrf", a.dtype)
        for place in range(count):
            matrix, code = stack[place].data.ptr, codes[place:].data.ptr
            single(handle, upper, n, matrix, n, workspace.data.ptr, length, code)
    factor[...] = cupy.tril(stack).reshape(factor.shape)
    info[...] = codes.reshape(info.shape)


def qr(a: Array, q: Array, r: Array, *, mode: str) -> None:
    """Decompose by Householder reflections."""
    q[...], r[...] = cupy.linalg.qr(a, mode)


def svd(a: Array, u: Array, s: Array, vh: Array, info: Array, *, full_matrices: bool) -> None:
    """Decompose by QR iteration, or stacks up to 32 by 32 by Jacobi's method.

    Without convergence values are not finite.
    """
    u[...], s[...], vh[...] = cupy.linalg.svd(a, full_matrices=full_matrices)
    info[...] = _unlike_numbers(s)


def _unlike_numbers(values: Array) -> Array:
    """Return 1 for each row with an infinity or NaN, else 0."""
    return (~cupy.isfinite(values).all(axis=-1)).astype(np.int32)


def eigh(a: Array, w: Array, v: Array, info: Array, *, uplo: str) -> None:
    """Decompose by divide and conquer, or stacks up to 32 by 32 by Jacobi's method."""
    if not a.size:
        info[...] = 0
        return
    if a.ndim == 2 or a.shape[-1] <= _JACOBI:
        w[...], v[...] = cupy.linalg.eigh(a, UPLO=uplo)
    else:
        for place in np.ndindex(a.shape[:-2]):
            w[place], v[place] = cupy.linalg.eigh(a[place], UPLO=uplo)
    info[...] = _unlike_numbers(w)


def lstsq(
    a: Array, b: Array, x: Array, residuals: Array, rank: Array, s: Array, info: Array, *, rcond: float | None
) -> None:
    """Solve by singular values; values up to `rcond` times the largest count as 0."""
    a, b = a.astype(x.dtype, copy=False), b.astype(x.dtype, copy=False)
    u, values, vh = cupy.linalg.svd(a, full_matrices=False)
    least = np.finfo(x.dtype).eps * max(a.shape[-2:]) if rcond is None else rcond
    kept = values > values[..., :1] * float(least)  # values are in descending order
    inverse = cupy.where(kept, 1 / cupy.where(kept, values, 1), 0).astype(values.dtype)
    x[...] = _product(_adjoint(vh), inverse[..., None] * _product(_adjoint(u), b))
    rest = b - _product(a, x)
    residuals[...] = (rest.real**2 + rest.imag**2).sum(axis=-2)
    rank[...] = kept.sum(axis=-1)
    s[...] = values
    info[...] = _unlike_numbers(values)


def _adjoint(a: Array) -> Array:
    return cupy.ascontiguousarray(a.swapaxes(-2, -1).conj())


def _product(a: Array, b: Array) -> Array:
    """Compute ``a @ b`` in full precision, whatever precision mode is in force."""
    out = cupy.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
    if out.size and a.shape[-1]:
        gemm(cupy.ascontiguousarray(a), cupy.ascontiguousarray(b), out, mode="ieee")
    return out


def _outside_captures(implementation: Callable[..., None]) -> Callable[..., None]:
    """Wrap `implementation`: load cuSOLVER, and reject calls while the current stream is being captured.

    Arrays with misaligned elements are rejected too, because results would be written to copies of them.
    """

    @wraps(implementation)
    def run(*arrays: Array, **named: Any) -> None:
        if cupy.cuda.get_current_stream().is_capturing():
            raise CaptureError(
                f"{implementation.__name__} cannot be captured: CuPy calls neither cuSOLVER nor cuBLAS in a capture; "
                "call it before, and capture what uses its result"
            )
        cusolver()
        require_aligned(implementation.__name__, *arrays, *named.values())
        implementation(*arrays, **named)

    return run


def register() -> None:
    """Add these implementations to the registry."""
    for implementation in (solve, inv, det, cholesky, qr, svd, eigh, lstsq):
        name = implementation.__name__
        registry.implement(name, kind="cuda", dtypes=decompositions.LAPACK)(_outside_captures(implementation))
