"""What linear algebra asks of its arguments, and which library of the host is preferred.

A factorization has several outputs, `info` among them, which `cuassay.linalg` reads. The last two axes are a matrix,
those before it a stack.
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


def solve(bound: Arguments) -> Shapes:
    """Square `a` (..., N, N), `b` (..., N, K): `x` as `b`, `info` (...)."""
    stack, rows, _ = _square("solve", bound)
    return _right("solve", bound, stack, rows), stack


def inv(bound: Arguments) -> Shapes:
    """Square `a` (..., N, N): `inverse` as `a`, `info` (...)."""
    stack, rows, _ = _square("inv", bound)
    return (*stack, rows, rows), stack


def det(bound: Arguments) -> Shape:
    """Square `a` (..., N, N) gives (...)."""
    return _square("det", bound)[0]


def cholesky(bound: Arguments) -> Shapes:
    """Square `a` (..., N, N): `factor` as `a`, `info` (...)."""
    stack, rows, _ = _square("cholesky", bound)
    return (*stack, rows, rows), stack


def qr(bound: Arguments) -> Shapes:
    """`a` (..., M, N), K = min(M, N), or M where complete: `q` (..., M, K), `r` (..., K, N)."""
    stack, rows, columns = _matrices("qr", bound)
    mode = bound["mode"]
    if not isinstance(mode, str) or mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr's mode must be 'reduced' or 'complete'; got {shown(mode)}; give one of the two")
    inner = rows if mode == "complete" else min(rows, columns)
    return (*stack, rows, inner), (*stack, inner, columns)


def svd(bound: Arguments) -> Shapes:
    """`a` (..., M, N), K = min(M, N): `u` (..., M, K), `s` (..., K), `vh` (..., K, N); full: (M, M) and (N, N)."""
    stack, rows, columns = _matrices("svd", bound)
    inner, full = min(rows, columns), flag("full_matrices", bound["full_matrices"])
    left, right = (rows, columns) if full else (inner, inner)
    return (*stack, rows, left), (*stack, inner), (*stack, right, columns), stack


def eigh(bound: Arguments) -> Shapes:
    """Square `a` (..., N, N): `w` (..., N), `v` as `a`, `info` (...)."""
    stack, rows, _ = _square("eigh", bound)
    uplo = bound["uplo"]
    if not isinstance(uplo, str) or uplo not in ("L", "U"):
        raise ArgumentError(
            f"eigh's uplo must be 'L' or 'U', the triangle that is read; got {shown(uplo)}; give one of the two"
        )
    return (*stack, rows), (*stack, rows, rows), stack


def lstsq(bound: Arguments) -> Shapes:
    """`a` (..., M, N), `b` (..., M, K): `x` (..., N, K), `residuals` (..., K), `rank` (...), `s` (..., min(M, N))."""
    stack, rows, columns = _matrices("lstsq", bound)
    if bound["rcond"] is not None and as_real(bound["rcond"]) is None:
        raise ArgumentError(f"lstsq's rcond must be a real number; got {shown(bound['rcond'])}; give one, or None")
    count = _right("lstsq", bound, stack, rows)[-1]
    return (*stack, columns, count), (*stack, count), stack, (*stack, min(rows, columns)), stack


def dtypes(words: str) -> Callable[[np.dtype[Any]], tuple[np.dtype[Any], ...]]:
    """From the registry dtype to those of the outputs: a letter each, ``s`` the same, ``r`` real, ``i`` int32."""

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
