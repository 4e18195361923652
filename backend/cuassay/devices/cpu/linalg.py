"""Matrix products on NumPy arrays.

Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.linalg`. The float32 precision modes are imitated part by part,
so that a test of precision is meaningful without a GPU. NumPy's BLAS computes, with the number of threads that
``CUASSAY_CPU_THREADS`` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product as pairs_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import as_dtype, compute_dtype, promote
from cuassay.arrays.rounding import narrowed, round_tf32, round_to, split
from cuassay.core.precision import Mode, resolved
from cuassay.devices.cpu.elementwise import gelu, relu, widened
from cuassay.devices.cpu.info import blas, limited_threads
from cuassay.ops import products, registry
from cuassay.ops.explain import is_explaining, note, within

__all__ = ["register"]

Array = NDArray[Any]

#: How a mode rounds both operands of a float32 product.
_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "tf32": round_tf32,
    "bf16": lambda x: round_to(x, as_dtype("bfloat16")),
    "fp16": lambda x: round_to(x, as_dtype("float16")),
}

#: For each mode: the parts that an operand is split into, and the products of parts to add (of a, of b), largest first.
_SPLITTING: dict[str, tuple[str, int, tuple[tuple[int, int], ...]]] = {
    "tf32x3": ("tf32", 2, ((0, 0), (0, 1), (1, 0))),
    "bf16x3": ("bfloat16", 2, ((0, 0), (0, 1), (1, 0))),
    "bf16x6": ("bfloat16", 3, ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0))),
    "bf16x9": ("bfloat16", 3, tuple(sorted(pairs_of(range(3), range(3)), key=sum))),
}


def _product(a: Array, b: Array, mode: str) -> Array:
    """Return ``a @ b`` for operands in the dtype of the computation; float32 operands follow `mode`."""
    if is_explaining():
        libraries = ", ".join(f"{pool['internal_api']} {pool.get('version')}" for pool in blas())
        note(f"numpy.matmul in {a.dtype}, {mode}; {libraries or 'no BLAS known'}")
    with limited_threads():
        if a.dtype != np.float32 or b.dtype != np.float32:
            return np.asarray(np.matmul(a, b))
        if mode in _SPLITTING:
            return _split_product(a, b, *_SPLITTING[mode])
        if mode in _ROUNDING:
            a, b = _ROUNDING[mode](a), _ROUNDING[mode](b)
        return np.asarray(np.matmul(a, b))


def _split_product(a: Array, b: Array, dtype: str, parts: int, terms: Sequence[tuple[int, int]]) -> Array:
    """Add the products of the parts, the small ones first. Infinities and NaN come only from the leading parts.

    The further parts of a number that is not finite are zeros, and infinity times a zero would be NaN.
    """
    left, right = split(a, dtype, parts), split(b, dtype, parts)
    largest = np.matmul(left[0], right[0])
    finite = [(np.where(np.isfinite(x[0]), x[0], np.float32(0)), *x[1:]) for x in (left, right)]
    rest = np.zeros_like(largest)
    for of_a, of_b in reversed(terms[1:]):
        rest += np.matmul(finite[0][of_a], finite[1][of_b])
    return np.asarray(largest + rest)


def _multiply(a: Array, b: Array, precision: Mode | None, dtype: np.dtype[Any]) -> Array:
    """Return the product of operands of `dtype`, in the dtype of the computation, not yet rounded to the output's."""
    wide, mode = compute_dtype(dtype), resolved(precision)
    return _product(widened(a, wide), widened(b, wide), mode if dtype == np.float32 else "ieee")


def matmul(a: Array, b: Array, *, out: Array, precision: Mode | None) -> None:
    """Multiply; 16-bit products accumulate in float32, and float32 products follow the precision mode."""
    out[...] = narrowed(_multiply(a, b, precision, promote(a.dtype, b.dtype)), out.dtype)


def mm(a: Array, b: Array, *, out: Array, precision: Mode | None, out_dtype: Any) -> None:
    """Do what `matmul` does, rounded once to the output's dtype."""
    matmul(a, b, out=out, precision=precision)


def addmm(
    c: Array, a: Array, b: Array, *, out: Array, alpha: complex, beta: complex, precision: Mode | None,
    activation: str | None = None,
) -> None:  # fmt: skip
    """Compute ``activation(beta * c + alpha * a @ b)``, rounded once; if beta is 0, `c` is not read."""
    wide = compute_dtype(out.dtype)
    result = _multiply(a, b, precision, promote(a.dtype, b.dtype)).astype(wide, copy=False) * wide.type(alpha)
    if beta != 0:
        result = result + widened(c, wide) * wide.type(beta)
    out[...] = narrowed(_activated(np.asarray(result, wide), activation), out.dtype)


def _activated(x: Array, activation: str | None) -> Array:
    if activation == "relu":
        relu(x, out=x)
    elif activation is not None:
        gelu(x, approximate="tanh", out=x)
    return x


def linear(
    a: Array, weight: Array, bias: Array | None, *, out: Array, activation: str | None, precision: Mode | None
) -> None:
    """Do what `addmm` does on the rows of `a`; without a bias nothing is added."""
    added = "no bias" if bias is None else f"bias {bias.shape}"
    c, beta = (out, 0.0) if bias is None else (bias, 1.0)
    with within(f"addmm({added}, a {a.shape}, weight.T {weight.T.shape})"):
        addmm(c, a, weight.T, out=out, alpha=1.0, beta=beta, precision=precision, activation=activation)


def grouped_mm(a: Array, b: Array, *, out: Array, offs: tuple[int, ...], precision: Mode | None) -> None:
    """Multiply group by group."""
    out[...] = 0
    for group, (first, last) in enumerate(products.groups(offs, len(b), len(a))):
        matmul(a[first:last], b[group], out=out[first:last], precision=precision)


def scaled_mm(
    a: Array, b: Array, scale_a: Array, scale_b: Array, bias: Array | None, *, out: Array, **named: Any
) -> None:
    """Decode the codes, multiply in float32, scale, and round once."""
    of_a, of_b = products.formats({"a": a, "b": b, **named})
    left, right = (x.view(as_dtype(name)).astype(np.float32) for x, name in ((a, of_a), (b, of_b)))
    result = _product(left, right, "ieee") * scale_a.astype(np.float32) * scale_b.astype(np.float32)
    if bias is not None:
        result = result + bias.astype(np.float32)
    out[...] = result.astype(out.dtype, copy=False)


def mixed_linear(
    a: Array, weight: Array, scale: Array, bias: Array | None, *, out: Array, activation: str | None
) -> None:
    """Multiply the weights as they are, scale the sums of each group of terms, and round once."""
    form, wide = products.mixed_form({"a": a, "weight": weight, "scale": scale}), compute_dtype(a.dtype)
    numbers = widened(weight if form.bits == 8 else _unpacked(weight), wide)
    rows, scales = widened(a, wide), widened(scale, wide).reshape(form.rows, form.groups)
    result = np.zeros(out.shape, wide)
    for group in range(form.groups):
        terms = slice(group * form.group, (group + 1) * form.group)
        result += _product(rows[..., terms], numbers[:, terms].T, "ieee") * scales[:, group]
    if bias is not None:
        result += widened(bias, wide)
    out[...] = narrowed(_activated(result, activation), out.dtype)


def _unpacked(codes: Array) -> Array:
    """Return the numbers of 4 bits, two of each code: the first is in the low half."""
    halves = np.stack((codes & 15, codes >> 4), axis=-1)
    return ((halves ^ 8).astype(np.int8) - np.int8(8)).reshape(len(codes), 2 * codes.shape[1])


def register() -> None:
    """Add these implementations to the registry."""
    table: dict[str, registry.Implementation] = {
        "matmul": matmul,
        "mm": mm,
        "bmm": mm,
        "addmm": addmm,
        "baddbmm": addmm,
        "linear": linear,
        "grouped_mm": grouped_mm,
        "scaled_mm": scaled_mm,
        "mixed_linear": mixed_linear,
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cpu", dtypes=registry.op(name).schema.dtypes)(implementation)
