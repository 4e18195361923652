"""What linear algebra asks of its arguments, and which library of the host is preferred.

An operation has one output here, a factorization several: these write their parameters, as torch's ``_ex`` functions
with ``out=`` do. `cuassay.linalg` allocates them and reads `info`. The last two axes are a matrix, those before it a
stack.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import dtype_name, promote
from cuassay.core.numbers import as_real
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, CapabilityError, DTypeError, ShapeError
from cuassay.ops.arguments import flag
from cuassay.ops.schema import Arguments

__all__ = [
    "LAPACK",
    "LIBRARIES",
    "cholesky",
    "det",
    "eigh",
    "inv",
    "library",
    "lstsq",
    "preferred_linalg_library",
    "qr",
    "real_dtype",
    "solve",
    "svd",
]

Shape = tuple[int, ...]

#: What LAPACK and cuSOLVER compute in: neither has 16-bit factorizations.
LAPACK = ("float32", "float64", "complex64", "complex128")

LIBRARIES = ("default", "numpy", "scipy", "cusolver")

_INT32 = np.dtype(np.int32)
_preferred = "default"


def preferred_linalg_library(backend: str | None = None) -> str:
    """Prefer a library for linear algebra from here; gives the one in force. None only asks.

    Parameters
    ----------
    backend : str, optional
        ``"default"`` and ``"cusolver"`` (all that kind `cuda` has): NumPy's LAPACK on the host; ``"numpy"``: the same;
        ``"scipy"``: SciPy's there for solve, svd, eigh and lstsq, whose drivers for symmetric matrices are newer.

    Raises
    ------
    ArgumentError
        If it is another.
    CapabilityError
        If it is not installed.
    """
    global _preferred  # noqa: PLW0603  one preference a process, as torch has it
    if backend is not None:
        wanted = str(backend).lower()
        if wanted not in LIBRARIES:
            raise ArgumentError(
                f"{shown(backend)} is not a library of linear algebra; give one of {', '.join(LIBRARIES)}"
            )
        if wanted == "scipy" and find_spec("scipy") is None:
            raise CapabilityError("SciPy's LAPACK was asked for and SciPy is not installed; install scipy")
        _preferred = wanted
    return _preferred


def library() -> str:
    """The library that serves host arrays now: ``numpy`` or ``scipy``."""
    return "scipy" if _preferred == "scipy" else "numpy"


def real_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype of a magnitude: float32 for complex64."""
    found: np.dtype[Any] = np.zeros((), dtype).real.dtype
    return found


# ------------------------------------------------------------------------------------------------ rules


def solve(bound: Arguments) -> Shape:
    """Square `a` (..., N, N), `b` and `x` (..., N, K), `info` (...)."""
    stack, rows, _ = _square("solve_", bound)
    shape = _right("solve_", bound, stack, rows)
    _check("solve_", bound, x=(shape, _promoted(bound)), info=(stack, _INT32))
    return ()


def inv(bound: Arguments) -> Shape:
    """Square `a` and `inverse` (..., N, N), `info` (...)."""
    stack, rows, _ = _square("inv_", bound)
    _check("inv_", bound, inverse=((*stack, rows, rows), bound["a"].dtype), info=(stack, _INT32))
    return ()


def det(bound: Arguments) -> Shape:
    """Square `a` (..., N, N) gives (...)."""
    return _square("det", bound)[0]


def cholesky(bound: Arguments) -> Shape:
    """Square `a` and `factor` (..., N, N), `info` (...)."""
    stack, rows, _ = _square("cholesky_", bound)
    _check("cholesky_", bound, factor=((*stack, rows, rows), bound["a"].dtype), info=(stack, _INT32))
    return ()


def qr(bound: Arguments) -> Shape:
    """`a` (..., M, N), K = min(M, N), or M where complete: `q` (..., M, K), `r` (..., K, N)."""
    stack, rows, columns = _matrices("qr_", bound)
    if bound["mode"] not in ("reduced", "complete"):
        raise ArgumentError(f"qr_'s mode must be 'reduced' or 'complete'; got {shown(bound['mode'])}; give one")
    inner = rows if bound["mode"] == "complete" else min(rows, columns)
    dtype = bound["a"].dtype
    _check("qr_", bound, q=((*stack, rows, inner), dtype), r=((*stack, inner, columns), dtype))
    return ()


def svd(bound: Arguments) -> Shape:
    """`a` (..., M, N), K = min(M, N): `u` (..., M, K), `s` (..., K), `vh` (..., K, N); full: (M, M) and (N, N)."""
    stack, rows, columns = _matrices("svd_", bound)
    inner, full, dtype = min(rows, columns), flag("full_matrices", bound["full_matrices"]), bound["a"].dtype
    _check(
        "svd_", bound,
        u=((*stack, rows, rows if full else inner), dtype), s=((*stack, inner), real_dtype(dtype)),
        vh=((*stack, columns if full else inner, columns), dtype), info=(stack, _INT32),
    )  # fmt: skip
    return ()


def eigh(bound: Arguments) -> Shape:
    """Square `a` and `v` (..., N, N), `w` (..., N), `info` (...)."""
    stack, rows, _ = _square("eigh_", bound)
    if bound["uplo"] not in ("L", "U"):
        raise ArgumentError(
            f"eigh_'s uplo must be 'L' or 'U', the triangle that is read; got {shown(bound['uplo'])}; give one"
        )
    dtype = bound["a"].dtype
    _check("eigh_", bound, w=((*stack, rows), real_dtype(dtype)), v=((*stack, rows, rows), dtype), info=(stack, _INT32))
    return ()


def lstsq(bound: Arguments) -> Shape:
    """`a` (..., M, N), `b` (..., M, K): `x` (..., N, K), `residuals` (..., K), `rank` (...), `s` (..., min(M, N))."""
    stack, rows, columns = _matrices("lstsq_", bound)
    if bound["rcond"] is not None and as_real(bound["rcond"]) is None:
        raise ArgumentError(f"lstsq_'s rcond must be a real number; got {shown(bound['rcond'])}; give one, or None")
    count = _right("lstsq_", bound, stack, rows)[-1]
    dtype = _promoted(bound)
    real = real_dtype(dtype)
    _check(
        "lstsq_", bound,
        x=((*stack, columns, count), dtype), residuals=((*stack, count), real), rank=(stack, _INT32),
        s=((*stack, min(rows, columns)), real), info=(stack, _INT32),
    )  # fmt: skip
    return ()


# ------------------------------------------------------------------------------------------------ parts of rules


def _matrices(name: str, bound: Arguments) -> tuple[Shape, int, int]:
    shape = tuple(bound["a"].shape)
    if len(shape) < 2:
        raise ShapeError(f"{name} needs a matrix (..., M, N); got shape {shape}; give two dimensions or more")
    return shape[:-2], shape[-2], shape[-1]


def _square(name: str, bound: Arguments) -> tuple[Shape, int, int]:
    stack, rows, columns = _matrices(name, bound)
    if rows != columns:
        raise ShapeError(f"{name} needs square matrices (..., N, N); got {(*stack, rows, columns)}; lstsq takes others")
    return stack, rows, columns


def _right(name: str, bound: Arguments, stack: Shape, rows: int) -> Shape:
    shape = tuple(bound["b"].shape)
    if len(shape) < 2 or shape[:-1] != (*stack, rows):
        raise ShapeError(
            f"{name} needs b with shape {(*stack, rows, 'K')}, as many matrices and rows as a; got {shape}; "
            "reshape or broadcast it"
        )
    return shape


def _promoted(bound: Arguments) -> np.dtype[Any]:
    return promote(bound["a"].dtype, bound["b"].dtype)


def _check(name: str, bound: Arguments, **wanted: tuple[Shape, Any]) -> None:
    """Each parameter that is written has its shape and dtype."""
    for parameter, (shape, dtype) in wanted.items():
        array = bound[parameter]
        if tuple(array.shape) != shape:
            raise ShapeError(f"{name}'s {parameter} must have shape {shape}; got {tuple(array.shape)}; allocate it so")
        if array.dtype != dtype:
            raise DTypeError(
                f"{name}'s {parameter} must be {dtype_name(dtype)}; got {dtype_name(array.dtype)}; allocate it so"
            )
