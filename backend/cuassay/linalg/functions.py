"""The eight functions on plain arrays. Each calls the op of its name, and checks the `info` that it returns."""

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
    """The solution, the squared norm of each column of ``b - a @ solution``, and the rank and singular values of a."""

    solution: Array
    residuals: Array
    rank: Array
    singular_values: Array


def solve(a: Array, b: Array, *, check_errors: bool = True) -> Array:
    """Solve ``a @ x = b`` for a square `a`.

    Parameters
    ----------
    a : array
        (..., N, N).
    b : array
        (..., N, K), or a vector (N,), as in NumPy 2. Stacks broadcast.
    check_errors : bool
        Whether to wait for the device, and raise if a matrix is singular.

    Returns
    -------
    array
        `x`, with the shape of `b` (stacks broadcast) and the promoted dtype.

    Raises
    ------
    LinAlgError
        If a matrix is singular: a pivot is exactly 0.
    ShapeError, DTypeError
        If the shapes do not fit, or LAPACK does not support the dtype.
    """
    _check_dtype("solve", a, b)
    check_errors = flag("check_errors", check_errors)
    vector = b.ndim == 1
    a, b = _broadcast_stacks(a, b[:, None] if vector else b)
    x, info = ops.solve(a, b)
    _raise_on_failure("solve", "is singular", info, check_errors)
    return x[..., 0] if vector else x


def inv(a: Array, *, check_errors: bool = True) -> Array:
    """Return the inverse of `a` (..., N, N). Raises as `solve` does.

    To multiply by the inverse, use `solve`, which is faster and more accurate.
    """
    _check_dtype("inv", a)
    check_errors = flag("check_errors", check_errors)
    inverse, info = ops.inv(a)
    _raise_on_failure("inv", "is singular", info, check_errors)
    return inverse


def det(a: Array) -> Array:
    """Return the determinant of `a` (..., N, N), of shape (...). It is 0 for a singular matrix, and 1 if N is 0."""
    _check_dtype("det", a)
    return ops.det(a)


def cholesky(a: Array, *, check_errors: bool = True) -> Array:
    """Return the lower triangular `L` (..., N, N) with ``a = L @ L.H``.

    Parameters
    ----------
    a : array
        (..., N, N), Hermitian and positive definite. Only its lower triangle is read.
    check_errors : bool
        Whether to wait for the device, and raise if a matrix has no such factor. If False, that factor is arbitrary.

    Raises
    ------
    ShapeError, DTypeError
        If `a` is not a stack of square matrices, or LAPACK does not support its dtype.
    LinAlgError
        If a matrix is not positive definite.
    """
    _check_dtype("cholesky", a)
    check_errors = flag("check_errors", check_errors)
    factor, info = ops.cholesky(a)
    _raise_on_failure("cholesky", "is not positive definite", info, check_errors)
    return factor


def qr(a: Array, mode: str = "reduced") -> QR:
    """Factor ``a = Q @ R`` into orthonormal columns and an upper triangle. The library chooses the signs.

    Parameters
    ----------
    a : array
        (..., M, N). Below, K = min(M, N).
    mode : str
        ``"reduced"``: Q (..., M, K), R (..., K, N); ``"complete"``: Q (..., M, M), R (..., M, N).

    Returns
    -------
    QR
        Q and R.

    Raises
    ------
    ShapeError, DTypeError
        If `a` is not a stack of matrices, or LAPACK does not support its dtype.
    ArgumentError
        If `mode` is another value.
    """
    _check_dtype("qr", a)
    return QR(*ops.qr(a, mode=mode))


def svd(a: Array, full_matrices: bool = True, *, check_errors: bool = True) -> SVD:
    """Compute singular values, in descending order, and singular vectors. The library chooses the signs.

    Parameters
    ----------
    a : array
        (..., M, N). Below, K = min(M, N).
    full_matrices : bool
        True: U (..., M, M) and Vh (..., N, N). False: U (..., M, K) and Vh (..., K, N).
    check_errors : bool
        Whether to wait for the device, and raise if a decomposition did not converge.

    Returns
    -------
    SVD
        U, S (..., K) and Vh.

    Raises
    ------
    LinAlgError
        If a decomposition did not converge, for example because of NaN.
    """
    _check_dtype("svd", a)
    check_errors = flag("check_errors", check_errors)
    u, s, vh, info = ops.svd(a, full_matrices=full_matrices)
    _raise_on_failure("svd", "has no decomposition that converged", info, check_errors)
    return SVD(u, s, vh)


def eigh(a: Array, UPLO: str = "L", *, check_errors: bool = True) -> Eigen:
    """Compute eigenvalues, in ascending order, and orthonormal eigenvectors (columns) of Hermitian matrices.

    Parameters
    ----------
    a : array
        (..., N, N). Only one triangle is read.
    UPLO : str
        The triangle to read: ``"L"`` or ``"U"``.
    check_errors : bool
        Whether to wait for the device, and raise if a decomposition did not converge.

    Returns
    -------
    Eigen
        Eigenvalues (..., N) and eigenvectors (..., N, N).

    Raises
    ------
    LinAlgError
        If a decomposition did not converge, for example because of NaN.
    """
    _check_dtype("eigh", a)
    check_errors = flag("check_errors", check_errors)
    w, v, info = ops.eigh(a, uplo=UPLO)
    _raise_on_failure("eigh", "has no decomposition that converged", info, check_errors)
    return Eigen(w, v)


def lstsq(a: Array, b: Array, rcond: float | None = None, *, check_errors: bool = True) -> LeastSquares:
    """Return the shortest `x` that minimizes ``|b - a @ x|``, for any rank.

    Parameters
    ----------
    a : array
        (..., M, N).
    b : array
        (..., M, K), or a vector (M,). Stacks broadcast.
    rcond : float, optional
        Singular values up to `rcond` times the largest count as 0. The default is the dtype's epsilon times max(M, N).
    check_errors : bool
        Whether to wait for the device, and raise if the singular values did not converge.

    Returns
    -------
    LeastSquares
        Residuals are given for any rank, while NumPy and torch omit them unless the rank is full.

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
    _raise_on_failure("lstsq", "has no singular values that converged", info, check_errors)
    return LeastSquares(x[..., 0] if vector else x, residuals[..., 0] if vector else residuals, rank, s)


# ------------------------------------------------------------------------------------------------ parts


def _check_dtype(name: str, *arrays: Array) -> None:
    """Raise `DTypeError` unless LAPACK supports the promoted dtype."""
    for array, parameter in zip(arrays, "ab", strict=False):
        registry.owner_of(array, f"{name}'s {parameter}")
    dtype = promote(*(as_dtype(array.dtype) for array in arrays))
    if dtype_name(dtype) not in LAPACK:
        raise DTypeError(
            f"{name} computes in {', '.join(LAPACK)}: LAPACK and cuSOLVER have nothing else; got {dtype_name(dtype)}; "
            "cast to float32 first"
        )


def _broadcast_stacks(a: Array, b: Array) -> tuple[Array, Array]:
    """Broadcast all axes of `a` and `b` except the last two."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[:-2] == b.shape[:-2]:
        return a, b  # the op checks the shapes
    try:
        stack = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    except (RuntimeError, ValueError) as error:  # RuntimeError: 64 axes, where NumPy broadcasts 32
        raise ShapeError(
            f"stacks of matrices must broadcast; got a {tuple(a.shape)} and b {tuple(b.shape)}; reshape one"
        ) from error
    xp = devices.namespace(registry.device_of(a, "the matrix"))
    return xp.broadcast_to(a, (*stack, *a.shape[-2:])), xp.broadcast_to(b, (*stack, *b.shape[-2:]))


def _raise_on_failure(name: str, what: str, info: Array, wanted: bool) -> None:
    """Wait for the device, and raise if a matrix failed. A device kind without values cannot be checked."""
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
