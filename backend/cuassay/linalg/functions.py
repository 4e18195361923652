"""The eight functions on plain arrays: each calls the op of its name, and looks at the `info` that it gives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cuassay import devices, ops
from cuassay.arrays.dtypes import as_dtype, dtype_name, promote
from cuassay.core.device import VALUELESS_KINDS
from cuassay.errors import DTypeError, LinAlgError, ShapeError
from cuassay.ops import registry
from cuassay.ops.arguments import flag
from cuassay.ops.decompositions import LAPACK

__all__ = ["QR", "SVD", "Eigen", "LeastSquares", "cholesky", "det", "eigh", "inv", "lstsq", "qr", "solve", "svd"]

Array = Any


class QR(NamedTuple):
    """``a = Q @ R``."""

    Q: Array
    R: Array


class SVD(NamedTuple):
    """``a = U * S @ Vh``."""

    U: Array
    S: Array
    Vh: Array


class Eigen(NamedTuple):
    """``a @ eigenvectors = eigenvectors * eigenvalues``."""

    eigenvalues: Array
    eigenvectors: Array


class LeastSquares(NamedTuple):
    """The solution; the squared norm of each column of ``b - a @ solution``; rank and singular values of a."""

    solution: Array
    residuals: Array
    rank: Array
    singular_values: Array


def solve(a: Array, b: Array, *, check_errors: bool = True) -> Array:
    """The `x` of ``a @ x = b``, a square.

    Parameters
    ----------
    a : array
        (..., N, N).
    b : array
        (..., N, K), or a vector (N,), as in NumPy 2; stacks broadcast.
    check_errors : bool
        Wait, and raise where a matrix is singular.

    Returns
    -------
    array
        The shape of `b`, stacks broadcast; the promoted dtype.

    Raises
    ------
    LinAlgError
        If a matrix is singular: a pivot is exactly 0.
    ShapeError, DTypeError
        If the arguments do not fit together, or are of a dtype that LAPACK does not have.
    """
    _check_dtype("solve", a, b)
    check_errors = flag("check_errors", check_errors)
    vector = b.ndim == 1
    a, b = _broadcast_stacks(a, b[:, None] if vector else b)
    x, info = ops.solve(a, b)
    _look("solve", "is singular", info, check_errors)
    return x[..., 0] if vector else x


def inv(a: Array, *, check_errors: bool = True) -> Array:
    """The inverse of `a` (..., N, N); raises as `solve` does, which is faster and more exact for a right side."""
    _check_dtype("inv", a)
    check_errors = flag("check_errors", check_errors)
    inverse, info = ops.inv(a)
    _look("inv", "is singular", info, check_errors)
    return inverse


def det(a: Array) -> Array:
    """The determinant of `a` (..., N, N), shape (...); 0 where singular, 1 where N is 0."""
    _check_dtype("det", a)
    return ops.det(a)


def cholesky(a: Array, *, check_errors: bool = True) -> Array:
    """The lower triangular `L` (..., N, N) of ``a = L @ L.H``.

    Parameters
    ----------
    a : array
        (..., N, N), Hermitian and positive definite; its lower triangle is read.
    check_errors : bool
        Wait, and raise where a matrix has no such factor; else that factor holds anything.

    Raises
    ------
    ShapeError, DTypeError
        If `a` is not a stack of square matrices, or has a dtype without LAPACK.
    LinAlgError
        If a matrix is not positive definite.
    """
    _check_dtype("cholesky", a)
    check_errors = flag("check_errors", check_errors)
    factor, info = ops.cholesky(a)
    _look("cholesky", "is not positive definite", info, check_errors)
    return factor


def qr(a: Array, mode: str = "reduced") -> QR:
    """Orthonormal columns times an upper triangle; the signs are the library's.

    Parameters
    ----------
    a : array
        (..., M, N); K = min(M, N).
    mode : str
        ``"reduced"``: Q (..., M, K), R (..., K, N); ``"complete"``: (..., M, M), (..., M, N).

    Raises
    ------
    ShapeError, DTypeError
        If `a` is not a stack of matrices, or has a dtype without LAPACK.
    ArgumentError
        If `mode` is another.
    """
    _check_dtype("qr", a)
    return QR(*ops.qr(a, mode=mode))


def svd(a: Array, full_matrices: bool = True, *, check_errors: bool = True) -> SVD:
    """Singular values, descending, and their vectors; signs are the library's.

    Parameters
    ----------
    a : array
        (..., M, N); K = min(M, N).
    full_matrices : bool
        U (..., M, M) and Vh (..., N, N), or (..., M, K) and (..., K, N).
    check_errors : bool
        Wait, and raise where it did not converge.

    Raises
    ------
    LinAlgError
        If it did not converge, as where there is NaN.
    """
    _check_dtype("svd", a)
    check_errors = flag("check_errors", check_errors)
    u, s, vh, info = ops.svd(a, full_matrices=full_matrices)
    _look("svd", "has no decomposition that converged", info, check_errors)
    return SVD(u, s, vh)


def eigh(a: Array, UPLO: str = "L", *, check_errors: bool = True) -> Eigen:
    """Eigenvalues, ascending, and orthonormal eigenvectors (columns) of Hermitian matrices.

    Parameters
    ----------
    a : array
        (..., N, N), of which one triangle is read.
    UPLO : str
        Which: ``"L"`` or ``"U"``.
    check_errors : bool
        Wait, and raise where it did not converge.

    Raises
    ------
    LinAlgError
        If it did not converge, as where there is NaN.
    """
    _check_dtype("eigh", a)
    check_errors = flag("check_errors", check_errors)
    w, v, info = ops.eigh(a, uplo=UPLO)
    _look("eigh", "has no decomposition that converged", info, check_errors)
    return Eigen(w, v)


def lstsq(a: Array, b: Array, rcond: float | None = None, *, check_errors: bool = True) -> LeastSquares:
    """The shortest of the `x` that make ``|b - a @ x|`` least, of any rank.

    Parameters
    ----------
    a : array
        (..., M, N).
    b : array
        (..., M, K), or a vector (M,); stacks broadcast.
    rcond : float, optional
        Singular values up to `rcond` times the largest count as 0; otherwise the dtype's epsilon times max(M, N).
    check_errors : bool
        Wait, and raise where the singular values did not converge.

    Returns
    -------
    LeastSquares
        Residuals stand there for any rank, unlike NumPy's and torch's, which leave them out where it is not full.

    Raises
    ------
    LinAlgError
        If the singular values did not converge.
    """
    _check_dtype("lstsq", a, b)
    check_errors = flag("check_errors", check_errors)
    vector = b.ndim == 1
    a, b = _broadcast_stacks(a, b[:, None] if vector else b)
    x, residuals, rank, s, info = ops.lstsq(a, b, rcond=rcond)
    _look("lstsq", "has no singular values that converged", info, check_errors)
    return LeastSquares(x[..., 0] if vector else x, residuals[..., 0] if vector else residuals, rank, s)


# ------------------------------------------------------------------------------------------------ parts


def _check_dtype(name: str, *arrays: Array) -> None:
    """Raise `DTypeError` unless the promoted dtype is one of LAPACK's."""
    for array, parameter in zip(arrays, "ab", strict=False):
        registry.owner_of(array, f"{name}'s {parameter}")
    dtype = promote(*(as_dtype(array.dtype) for array in arrays))
    if dtype_name(dtype) not in LAPACK:
        raise DTypeError(
            f"{name} computes in {', '.join(LAPACK)}: LAPACK and cuSOLVER have nothing else; got {dtype_name(dtype)}; "
            "cast to float32 first"
        )


def _broadcast_stacks(a: Array, b: Array) -> tuple[Array, Array]:
    """Both with the same axes before the last two, by broadcasting."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[:-2] == b.shape[:-2]:
        return a, b  # the operation says what is wrong, if anything is
    try:
        stack = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    except (RuntimeError, ValueError) as error:  # RuntimeError: 64 axes, where NumPy broadcasts 32
        raise ShapeError(
            f"stacks of matrices must broadcast; got a {tuple(a.shape)} and b {tuple(b.shape)}; reshape one"
        ) from error
    xp = devices.namespace(registry.device_of(a, "the matrix"))
    return xp.broadcast_to(a, (*stack, *a.shape[-2:])), xp.broadcast_to(b, (*stack, *b.shape[-2:]))


def _look(name: str, what: str, info: Array, wanted: bool) -> None:
    """Wait, and raise for the matrices that failed; on a kind without values none can be looked at."""
    if not wanted or registry.device_of(info, "info").kind in VALUELESS_KINDS:
        return
    codes = devices.to_host(info)
    if codes.any():
        places = np.argwhere(codes).tolist()
        which = f"matrix {tuple(places[0])}" if codes.ndim else "the matrix"
        more = f", and {len(places) - 1} more of {codes.size}" if len(places) > 1 else ""
        raise LinAlgError(
            f"{name}: {which} {what}{more} (info {codes.flat[np.flatnonzero(codes)[0]]}); "
            "look at its condition, use lstsq, or give check_errors=False and go on with the others"
        )
