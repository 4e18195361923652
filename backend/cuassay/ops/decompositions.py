"""The shape rules of linear algebra, and which host library is preferred.

A factorization has several outputs. One of them is `info`, which `cuassay.linalg` checks. The last two axes of an
array are a matrix, and the axes before them are a stack of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from cuassay.core.numbers import as_real
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, CapabilityError, ShapeError
from cuassay.ops.arguments import flag
from cuassay.ops.schema import Arguments

__all__ = [
    "LAPACK",
    "LIBRARIES",
    "cholesky",
    "det",
    "dtypes",
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
Shapes = tuple[Shape, ...]

#: The dtypes that LAPACK and cuSOLVER compute in; neither has 16-bit factorizations.
LAPACK = ("float32", "float64", "complex64", "complex128")

LIBRARIES = ("default", "numpy", "scipy", "cusolver")

_INT32 = np.dtype(np.int32)
_preferred = "default"


def preferred_linalg_library(backend: str | None = None) -> str:
    """Set the preferred library for linear algebra, and return the preference; None only returns it.

    Parameters
    ----------
    backend : str, optional
        ``"default"``, ``"cusolver"`` and ``"numpy"`` use NumPy's LAPACK on the host; kind `cuda` always uses cuSOLVER.
        ``"scipy"`` uses SciPy on the host for solve, svd, eigh and lstsq, with newer drivers for symmetric matrices.

    Raises
    ------
    ArgumentError
        If `backend` is not one of these names.
    CapabilityError
        If SciPy is not installed.
    """
    global _preferred  # noqa: PLW0603  one preference for the process, as in torch
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
    """Return the library that computes for host arrays: ``numpy`` or ``scipy``."""
    return "scipy" if _preferred == "scipy" else "numpy"


def real_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of magnitudes: float32 for complex64."""
    found: np.dtype[Any] = np.zeros((), dtype).real.dtype
    return found


# ------------------------------------------------------------------------------------------------ rules


def solve(bound: Arguments) -> Shapes:
    """Map square `a` (..., N, N) and `b` (..., N, K) to `x` like `b` and `info` (...)."""
    stack, rows, _ = _square("solve", bound)
    return _right("solve", bound, stack, rows), stack


def inv(bound: Arguments) -> Shapes:
    """Map square `a` (..., N, N) to `inverse` like `a` and `info` (...)."""
    stack, rows, _ = _square("inv", bound)
    return (*stack, rows, rows), stack


def det(bound: Arguments) -> Shape:
    """Map square `a` (..., N, N) to (...)."""
    return _square("det", bound)[0]


def cholesky(bound: Arguments) -> Shapes:
    """Map square `a` (..., N, N) to `factor` like `a` and `info` (...)."""
    stack, rows, _ = _square("cholesky", bound)
    return (*stack, rows, rows), stack


def qr(bound: Arguments) -> Shapes:
    """Map `a` (..., M, N) to `q` (..., M, K) and `r` (..., K, N); K is min(M, N), or M if the mode is complete."""
    stack, rows, columns = _matrices("qr", bound)
    mode = bound["mode"]
    if not isinstance(mode, str) or mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr's mode must be 'reduced' or 'complete'; got {shown(mode)}; give one of the two")
    inner = rows if mode == "complete" else min(rows, columns)
    return (*stack, rows, inner), (*stack, inner, columns)


def svd(bound: Arguments) -> Shapes:
    """Map `a` (..., M, N) to `u`, `s` (..., min(M, N)), `vh` and `info`; `full_matrices` makes `u` and `vh` square."""
    stack, rows, columns = _matrices("svd", bound)
    inner, full = min(rows, columns), flag("full_matrices", bound["full_matrices"])
    left, right = (rows, columns) if full else (inner, inner)
    return (*stack, rows, left), (*stack, inner), (*stack, right, columns), stack


def eigh(bound: Arguments) -> Shapes:
    """Map square `a` (..., N, N) to `w` (..., N), `v` like `a` and `info` (...)."""
    stack, rows, _ = _square("eigh", bound)
    uplo = bound["uplo"]
    if not isinstance(uplo, str) or uplo not in ("L", "U"):
        raise ArgumentError(
            f"eigh's uplo must be 'L' or 'U', the triangle that is read; got {shown(uplo)}; give one of the two"
        )
    return (*stack, rows), (*stack, rows, rows), stack


def lstsq(bound: Arguments) -> Shapes:
    """Map `a` (..., M, N) and `b` (..., M, K) to the shapes of the five outputs.

    They are `x` (..., N, K), `residuals` (..., K), `rank` (...), `s` (..., min(M, N)) and `info` (...).
    """
    stack, rows, columns = _matrices("lstsq", bound)
    if bound["rcond"] is not None and as_real(bound["rcond"]) is None:
        raise ArgumentError(f"lstsq's rcond must be a real number; got {shown(bound['rcond'])}; give one, or None")
    count = _right("lstsq", bound, stack, rows)[-1]
    return (*stack, columns, count), (*stack, count), stack, (*stack, min(rows, columns)), stack


def dtypes(words: str) -> Callable[[np.dtype[Any]], tuple[np.dtype[Any], ...]]:
    """Return a rule from the registry dtype to the outputs' dtypes; letters: ``s`` same, ``r`` real, ``i`` int32."""

    def rule(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        found = {"s": dtype, "r": real_dtype(dtype), "i": _INT32}
        return tuple(found[letter] for letter in words)

    return rule


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
