"""A matrix product of CuPy arrays as one value: routes are made for it, and emulations compute it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from cuassay.core.precision import Mode

__all__ = ["MOST_ALIGNED", "Multiply", "Product", "alignment_of"]

Array = Any

#: Alignment of addresses in bytes, up to which routes distinguish it.
MOST_ALIGNED = 256


@dataclass(frozen=True, slots=True)
class Product:
    """``out = activation(alpha * a @ b + beta * c + bias)``, as an emulation receives it.

    Attributes
    ----------
    a, b, out : cupy.ndarray
        (..., M, K), (..., K, N) and (..., M, N), of one dtype; a and b broadcast over the axes before the last two.
    c : cupy.ndarray or None
        Broadcasts to `out`; None if beta is 0.
    bias : cupy.ndarray or None
        (N,), added to each row.
    alpha, beta : number
        Factors.
    activation : str or None
        ``"relu"`` or ``"gelu_tanh"``.
    mode : str
        The precision mode of float32 operands.
    """

    a: Array
    b: Array
    out: Array
    c: Array = None
    bias: Array = None
    alpha: complex = 1.0
    beta: complex = 0.0
    activation: str | None = None
    mode: Mode = "ieee"


#: Computes a product, in order of the current stream.
Multiply = Callable[[Product], None]


def alignment_of(*arrays: Array | None) -> int:
    """Return the largest power of two, up to 256, that divides every address (in bytes)."""
    bits = reduce(or_, (array.data.ptr for array in arrays if array is not None), MOST_ALIGNED)
    return bits & -bits
