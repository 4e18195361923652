"""Matrix products: turns an op's arrays into a product of `gemm`; `cuassay.ops.explain` shows the steps.

CuPy's own `matmul` is not used: for three or more dimensions it fails for bfloat16, and computes float16 at the speed
of float32 (cupy#10317). Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.linalg`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cuassay.core.precision import Mode, resolved
from cuassay.devices.cuda.blas import fp8, mixed, plans, product_shortcuts
from cuassay.devices.cuda.blas.gemm import bind, gemm
from cuassay.devices.cuda.blas.plans import BoundProduct
from cuassay.devices.cuda.blas.product import Product
from cuassay.ops import Op, products, registry
from cuassay.ops.explain import is_explaining, within

__all__ = ["register"]

Array = Any

#: The arguments of `gemm`, in order; see `Product`.
Arguments = tuple[Any, ...]


class _Products:
    """An op on matrices: `spread` turns its arguments into those of `gemm`."""

    def __init__(self, spread: Callable[..., Arguments]) -> None:
        self._spread = spread

    def __call__(self, *arrays: Array, out: Array, **scalars: Any) -> None:
        """Compute into `out`, on the current stream."""
        gemm(*self._spread(*arrays, out=out, **scalars))

    def prepare(self, op: Op, bound: Mapping[str, Any], out: Array) -> Callable[[], None]:
        """Prepare the product."""
        scalars = {name: bound[name] for name in op.schema.scalar_names}
        return bind(Product(*self._spread(*op.schema.pick_arrays(bound), out=out, **scalars)))


def matmul(a: Array, b: Array, *, out: Array, precision: Mode | None) -> Arguments:
    """NumPy's matmul: a vector gains an axis, and so does the output."""
    target = out
    if b.ndim == 1:
        b, target = b[:, None], target[..., None]
    if a.ndim == 1:
        a, target = a[None, :], target[..., None, :]
    return a, b, target, None, None, 1.0, 0.0, None, resolved(precision)


def mm(a: Array, b: Array, *, out: Array, precision: Mode | None, out_dtype: Any) -> Arguments:
    """The product of two matrices, or of stacks of matrices: `bmm` is the same here."""
    return a, b, out, None, None, 1.0, 0.0, None, resolved(precision)


def addmm(
    c: Array, a: Array, b: Array, *, out: Array, alpha: complex, beta: complex, precision: Mode | None,
    activation: str | None = None,
) -> Arguments:  # fmt: skip
    """A row of `c` with beta 1 becomes the bias; any other `c` is the library's third operand."""
    if beta == 0:
        return a, b, out, None, None, alpha, 0.0, activation, resolved(precision)  # NaN of `c` is ignored, as in BLAS
    if c.data.ptr == out.data.ptr:  # `c` is `out`: a bias would be read while it is written
        return a, b, out, out, None, alpha, beta, activation, resolved(precision)
    if beta == 1 and c.ndim and c.shape[-1] == out.shape[-1] == c.size:
        row = c if c.ndim == 1 else c.reshape(-1)
        return a, b, out, None, row, alpha, 0.0, activation, resolved(precision)
    return a, b, out, c, None, alpha, beta, activation, resolved(precision)


def linear(
    a: Array, weight: Array, bias: Array | None, *, out: Array, activation: str | None, precision: Mode | None
) -> Arguments:
    """`addmm` on the rows of `a`: ``addmm(bias, a, weight.T)``; `blas.layouts` folds the leading axes."""
    if a.ndim == 1:
        a, out = a[None, :], out[None, :]
    return a, weight.T, out, None, bias, 1.0, 0.0, activation, resolved(precision)


class _Linear(_Products):
    """`linear`, which explains itself as an `addmm`."""

    def __call__(self, *arrays: Array, out: Array, **scalars: Any) -> None:
        """Compute into `out`, on the current stream."""
        if not is_explaining():
            gemm(*self._spread(*arrays, out=out, **scalars))
            return
        a, weight, bias = arrays
        added = "no bias" if bias is None else f"bias {bias.shape}"
        with within(f"addmm({added}, a {a.shape}, weight.T {weight.T.shape})"):
            gemm(*self._spread(*arrays, out=out, **scalars))


class _Grouped:
    """`grouped_mm`: one product for each group, on the group's rows; the rows after the last group are set to 0."""

    def __call__(self, a: Array, b: Array, *, out: Array, offs: tuple[int, ...], precision: Mode | None) -> None:
        """Compute into `out`, on the current stream."""
        mode = resolved(precision)
        spans = products.groups(offs, len(b), len(a))
        for group, (first, last) in enumerate(spans):
            if last > first:
                gemm(a[first:last], b[group], out[first:last], mode=mode)
        end = spans[-1][1] if spans else 0
        if end < len(a):
            out[end:] = 0

    def prepare(self, op: Op, bound: Mapping[str, Any], out: Array) -> Callable[[], None]:
        """Prepare all groups as one graph."""
        return BoundProduct(partial(self, out=out, **bound), (bound["a"], bound["b"], out))


def _tuned() -> plans.Selector:
    from cuassay.devices.cuda.blas.tuning import tuner  # a process that does not tune does not load it

    return tuner().select


def register() -> None:
    """Add these implementations to the registry."""
    table: dict[str, registry.Implementation] = {
        "matmul": _Products(matmul),
        "mm": _Products(mm),
        "bmm": _Products(mm),
        "addmm": _Products(addmm),
        "baddbmm": _Products(addmm),
        "linear": _Linear(linear),
        "grouped_mm": _Grouped(),
        "mixed_linear": mixed.Mixed(),
    }
    for name, implementation in table.items():
        registry.implement(name, kind="cuda", dtypes=registry.op(name).schema.dtypes)(implementation)
    product_shortcuts.install()
    plans.offer(_tuned)
    registry.implement("scaled_mm", kind="cuda", dtypes=("uint8",))(fp8.Scaled())
