"""Linear algebra on NumPy arrays: LAPACK through NumPy, or through SciPy if that is preferred.

Matrices are processed one by one, so that a singular matrix does not affect the others: its results are NaN and its
`info` is 1. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.solver`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.devices.cpu.info import limited_threads
from cuassay.ops import decompositions, registry

__all__ = ["register"]

Array = NDArray[Any]
Function = Callable[..., Sequence[Any]]


def _apply(function: Function, inputs: Sequence[Array], outputs: Sequence[Array], info: Array | None = None) -> None:
    """Apply `function` to each matrix of the inputs, and write the results to the outputs."""
    _linalg()  # load the library before its threads are limited
    with limited_threads(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of an ill-conditioned matrix, NumPy does not
        for index in np.ndindex(inputs[0].shape[:-2]):
            failed = False
            try:
                results = function(*(one[index] for one in inputs))
            except np.linalg.LinAlgError:  # SciPy's is the same class
                results, failed = [np.nan if one.dtype.kind in "fc" else 0 for one in outputs], True
            for out, result in zip(outputs, results, strict=True):
                out[index] = result
            if info is not None:
                info[index] = failed


def solve(a: Array, b: Array, x: Array, info: Array) -> None:
    """Solve by LU with partial pivoting."""
    _apply(lambda a, b: (_linalg().solve(a, b, **_unchecked()),) if a.size and b.size else (b,), (a, b), (x,), info)


def inv(a: Array, inverse: Array, info: Array) -> None:
    """Invert by LU with partial pivoting."""
    _apply(lambda a: (np.linalg.inv(a),), (a,), (inverse,), info)


def det(a: Array, *, out: Array) -> None:
    """Compute by LU with partial pivoting; 0 for a singular matrix."""
    with limited_threads(), np.errstate(all="ignore"):
        out[...] = np.linalg.det(a)


def cholesky(a: Array, factor: Array, info: Array) -> None:
    """Factor `a`, of which only the lower triangle is read."""
    _apply(lambda a: (_cholesky(a),), (a,), (factor,), info)


def qr(a: Array, q: Array, r: Array, *, mode: str) -> None:
    """Decompose by Householder reflections."""
    _apply(lambda a: np.linalg.qr(a, mode=mode), (a,), (q, r))  # type: ignore[call-overload]  # mode is checked


def svd(a: Array, u: Array, s: Array, vh: Array, info: Array, *, full_matrices: bool) -> None:
    """Decompose by divide and conquer."""
    _apply(lambda a: _svd(a, full_matrices=full_matrices), (a,), (u, s, vh), info)


def eigh(a: Array, w: Array, v: Array, info: Array, *, uplo: str) -> None:
    """Decompose: NumPy by divide and conquer, SciPy by relatively robust representations."""
    _apply(lambda a: _eigh(a, uplo), (a,), (w, v), info)


def lstsq(
    a: Array, b: Array, x: Array, residuals: Array, rank: Array, s: Array, info: Array, *, rcond: float | None
) -> None:
    """Solve by singular values; values up to `rcond` times the largest count as 0."""

    def one(a: Array, b: Array) -> Sequence[Any]:
        a = a.astype(x.dtype, copy=False)
        u, values, vh = _svd(a, full_matrices=False)
        least = np.finfo(x.dtype).eps * max(a.shape) if rcond is None else rcond
        kept = values > least * values.max(initial=0)
        inverse = np.where(kept, 1 / values, 0).astype(values.dtype)
        found = vh.conj().T @ (inverse[:, None] * (u.conj().T @ b))
        rest = b - a @ found
        return found, (rest.real**2 + rest.imag**2).sum(axis=0), int(kept.sum()), values

    _apply(one, (a, b), (x, residuals, rank, s), info)


def _linalg() -> Any:
    """Return the preferred library's namespace, which has the names of ``numpy.linalg``."""
    return import_module("scipy.linalg") if decompositions.library() == "scipy" else np.linalg


def _cholesky(a: Array) -> Array:
    if not np.isfinite(np.tril(a)).all():
        raise np.linalg.LinAlgError  # NaN is not positive; not every LAPACK reports it
    return np.linalg.cholesky(a)


def _unchecked() -> dict[str, bool]:
    """Return options that turn off SciPy's check for finite values, which also covers the triangle that is not read."""
    return {"check_finite": False} if decompositions.library() == "scipy" else {}


def _svd(a: Array, *, full_matrices: bool) -> Sequence[Any]:
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError  # NumPy's LAPACK raises this, SciPy's raises ValueError
    found: Sequence[Any] = (_linalg() if a.size else np.linalg).svd(a, full_matrices=full_matrices)
    return found


def _eigh(a: Array, uplo: str) -> Sequence[Any]:
    if not np.isfinite(np.tril(a) if uplo == "L" else np.triu(a)).all():
        raise np.linalg.LinAlgError  # LAPACK's divide and conquer returns NaN or fails, depending on the version
    if decompositions.library() == "scipy" and a.size:
        found: Sequence[Any] = _linalg().eigh(a, lower=uplo == "L", **_unchecked())
        return found
    return np.linalg.eigh(a, UPLO="L" if uplo == "L" else "U")


def register() -> None:
    """Add these implementations to the registry."""
    for implementation in (solve, inv, det, cholesky, qr, svd, eigh, lstsq):
        name = implementation.__name__
        registry.implement(name, kind="cpu", dtypes=decompositions.LAPACK)(implementation)
