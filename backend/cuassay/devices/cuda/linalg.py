"""Matrix products: from an op's arrays to a product of `gemm`, where all end; `cuassay.ops.explain` shows the way.

CuPy's own `matmul` is not used: from three dimensions on it fails for bfloat16 and computes float16 at float32's
speed (cupy#10317). Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.linalg`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import HALVES, dtype_name, promote
from cuassay.core.precision import Mode, resolved
from cuassay.devices.cuda.gemm import Product, bind, gemm
from cuassay.ops import Op, registry
from cuassay.ops.explain import is_explaining, within

__all__ = ["register"]

Array = Any
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Matrices:
    """An op on matrices: `product` makes of its arguments the product to compute."""

    product: Callable[..., Product]

    def __call__(self, *arrays: Array, out: Array, **scalars: Any) -> None:
        """Compute into `out`, on the current stream."""
        _compute(self.product(*arrays, out=out, **scalars))

    def prepare(self, op: Op, bound: Arguments, out: Array) -> Callable[[], None]:
        """The product made ready; where an operand must be cast first, the op as it is."""
        product = self.product(*op.schema.pick_arrays(bound), out=out, **{n: bound[n] for n in op.schema.scalar_names})
        return bind(product) if _is_plain(product) else partial(_compute, product)


# ------------------------------------------------------------------------------------------------ ops as products


def matmul(a: Array, b: Array, *, out: Array, precision: Mode | None) -> Product:
    """NumPy's matmul: a vector gains an axis, and so does the output."""
    target = out
    if b.ndim == 1:
        b, target = b[:, None], target[..., None]
    if a.ndim == 1:
        a, target = a[None, :], target[..., None, :]
    return Product(a, b, target, mode=resolved(precision))


def mm(a: Array, b: Array, *, out: Array, precision: Mode | None, out_dtype: Any) -> Product:
    """Two matrices, or as many pairs: `bmm` is the same here."""
    return Product(a, b, out, mode=resolved(precision))


def addmm(
    c: Array, a: Array, b: Array, *, out: Array, alpha: complex, beta: complex, precision: Mode | None,
    activation: str | None = None,
) -> Product:  # fmt: skip
    """A row of `c` added as it is rides along with the product; anything else is the library's third operand."""
    product = Product(a, b, out, alpha=alpha, activation=activation, mode=resolved(precision))
    if beta == 0:
        return product  # c is not read: its NaN stays out, as BLAS has it
    if beta == 1 and _is_row(c, out):
        return replace(product, bias=c.reshape(-1))
    return replace(product, c=c, beta=beta)


def _is_row(c: Array, out: Array) -> bool:
    return bool(c.ndim and c.shape[-1] == out.shape[-1] == c.size)


def linear(
    a: Array, weight: Array, bias: Array, *, out: Array, activation: str | None, precision: Mode | None
) -> Product:
    """`addmm` of the rows of `a`: ``addmm(bias, a, weight.T)``; leading axes are folded by `blas.layouts`."""
    if a.ndim == 1:
        a, out = a[None, :], out[None, :]
    return addmm(bias, a, weight.T, out=out, alpha=1.0, beta=1.0, activation=activation, precision=precision)


# ------------------------------------------------------------------------------------------------ what is not plain


def _is_plain(p: Product) -> bool:
    """Whether the library takes the arrays as they are: one dtype, not empty."""
    dtype = p.out.dtype
    if not (p.a.dtype == dtype and p.b.dtype == dtype and p.out.size and p.a.shape[-1]):
        return False
    third = p.c if p.bias is None else p.bias
    return third is None or bool(third.dtype == dtype and (third is p.c or third.strides[0] == dtype.itemsize))


def _compute(p: Product) -> None:
    if not _is_plain(p):
        _carefully(p)
        return
    gemm(p.a, p.b, p.out, p.c, p.bias, alpha=p.alpha, beta=p.beta, activation=p.activation, mode=p.mode)


def _carefully(p: Product) -> None:
    """Cast the operands to their common dtype; the output, where it has another, from the nearest the library has."""
    if not p.out.size:
        return
    if p.a.shape[-1] == 0:
        _without_terms(p)
        return
    dtype = promote(*(array.dtype for array in (p.a, p.b, p.c, p.bias) if array is not None))
    result = p.out.dtype if _is_direct(dtype, p.out.dtype) else np.dtype(np.float32) if _is_half(dtype) else dtype
    into = p.out if result == p.out.dtype else cupy.empty(p.out.shape, result)
    cast = replace(
        p, a=_cast(p.a, dtype), b=_cast(p.b, dtype), out=into, c=_cast(p.c, result),
        bias=None if p.bias is None else cupy.ascontiguousarray(_cast(p.bias, result)),
    )  # fmt: skip
    gemm(cast.a, cast.b, into, cast.c, cast.bias, alpha=p.alpha, beta=p.beta, activation=p.activation, mode=p.mode)
    if into is not p.out:
        cupy.copyto(p.out, into, casting="unsafe")


def _is_direct(dtype: np.dtype[Any], result: np.dtype[Any]) -> bool:
    return dtype == result or (_is_half(dtype) and result == np.float32)


def _is_half(dtype: np.dtype[Any]) -> bool:
    return dtype_name(dtype) in HALVES


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    return array if array is None or array.dtype == dtype else array.astype(dtype)


def _without_terms(p: Product) -> None:
    """A sum of nothing: what is added, and its activation."""
    add, out = registry.op("add"), p.out
    out.fill(0)
    if p.c is not None:
        add(out, registry.op("mul")(_cast(p.c, out.dtype), p.beta), out=out)
    if p.bias is not None:
        add(out, _cast(p.bias, out.dtype), out=out)
    if p.activation == "relu":
        registry.op("relu")(out, out=out)
    elif p.activation is not None:
        registry.op("gelu")(out, approximate="tanh", out=out)


class _Linear(_Matrices):
    """`linear` says that it is an `addmm`."""

    def __call__(self, *arrays: Array, out: Array, **scalars: Any) -> None:
        """Compute into `out`, on the current stream."""
        if not is_explaining():
            _compute(self.product(*arrays, out=out, **scalars))
            return
        a, weight, bias = arrays
        with within(f"addmm(bias {bias.shape}, a {a.shape}, weight.T {weight.T.shape})"):
            _compute(self.product(*arrays, out=out, **scalars))


def register() -> None:
    """Enter these into the registry."""
    table: dict[str, registry.Implementation] = {
        "matmul": _Matrices(matmul),
        "mm": _Matrices(mm),
        "bmm": _Matrices(mm),
        "addmm": _Matrices(addmm),
        "baddbmm": _Matrices(addmm),
        "linear": _Linear(linear),
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
