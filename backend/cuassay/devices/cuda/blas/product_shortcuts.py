"""A fast path past dispatch for the simplest matrix products: dense operands of one dtype, on the only device.

What follows from the layouts is computed once, and so is the library's plan (see `gemm`). A product that is repeated on
the same addresses becomes a graph, as a plan does: on an H200 the host needs 1.5 µs to launch it, and 7.0 for the
library's call. A loop often repeats its addresses, either because it passes the same output or because the allocator
first reuses the memory that was freed last. A graph holds addresses, not arrays: for the same layouts it computes the
same product on whichever arrays are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Literal

import cupy
import numpy as np

from cuassay.arrays.dtypes import as_dtype
from cuassay.core.precision import Mode, current_precision
from cuassay.devices.cuda.blas.gemm import BIAS_ALIGNMENT, gemm, route_of
from cuassay.devices.cuda.blas.plan_cache import PlanCache, table
from cuassay.devices.cuda.blas.plans import BoundProduct
from cuassay.devices.cuda.blas.product import MOST_ALIGNED, Product
from cuassay.devices.cuda.blas.providers import ProductPlan
from cuassay.devices.cuda.driver.context import refused_in_child
from cuassay.devices.cuda.driver.cupy_private import dense_layout_of, layout_of
from cuassay.devices.cuda.eager.shortcuts import Shortcut
from cuassay.devices.cuda.memory import hook
from cuassay.ops import Op, registry

__all__ = ["Products", "install"]

Array = Any
Shape = tuple[int, ...]

#: The arguments of `gemm`, in order; see `Product`.
GemmArguments = tuple[Any, ...]

#: A product with more operations takes an H200 longer than its call takes the host.
_MOST_FLOPS = 10**9

_ndarray: Any = cupy.ndarray
_fresh = hook.fresh
_current_stream = cupy.cuda.get_current_stream
refused_in_child(globals(), "_current_stream", "_fresh")


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """What the operands' layouts decide.

    Attributes
    ----------
    out : tuple
        The output's layout.
    nbytes : int
        The output's bytes; 0 if dispatch must handle the call.
    sizes : tuple of int
        The bytes of each operand.
    is_dense : bool
        Whether the layouts determine where every element of the operands is.
    """

    out: tuple[np.dtype[Any], Shape, bool]
    nbytes: int
    sizes: tuple[int, ...]
    is_dense: bool

    def is_apart(self, addresses: Sequence[int]) -> bool:
        """Whether the output, whose address is last, shares no memory with the operands."""
        start = addresses[-1]
        end = start + self.nbytes
        for address, nbytes in zip(addresses, self.sizes):  # noqa: B905, SIM110  a loop costs half of what all() does
            if address < end and start < address + nbytes:
                return False
        return True


@dataclass(frozen=True, slots=True, eq=False)
class _ReadyProduct:
    """The library's plan for one form.

    Attributes
    ----------
    plan : ProductPlan
        The plan.
    swapped : bool
        Whether the plan takes the second operand first.
    may_repeat : bool
        Whether repeated calls become graphs: only short products without a workspace, because each graph keeps its
        workspace.
    """

    plan: ProductPlan
    swapped: bool
    may_repeat: bool

    def run(self, addresses: tuple[int, ...], *, workspace: int = 0) -> None:
        """Compute on the addresses of the operands (with a bias, if any) and of the output, on the current stream."""
        first, second, out = addresses[0], addresses[1], addresses[-1]
        if len(addresses) > 3:
            self.plan.point("BIAS_POINTER", addresses[2])
        if self.swapped:
            first, second = second, first
        self.plan.run(first, second, out, out, workspace=workspace)

    def graph(self, addresses: tuple[int, ...]) -> BoundProduct:
        """Return a call on these addresses that will become a graph."""
        return BoundProduct(partial(self.run, addresses), None, self.plan.workspace_nbytes)


class Products(Shortcut):
    """Serves `op` on matrices, as long as the registry has the implementation that this object replaces.

    Parameters
    ----------
    op : Op
        An op that one function implements in all its dtypes.
    shape : callable
        Maps the operands' shapes to the output's; returns None if dispatch must handle the call.
    spread : callable
        Maps the operands and the output to the arguments of `gemm`; the first two and the bias are operands.
    """

    def __init__(self, op: Op, shape: Callable[..., Shape | None], spread: Callable[..., GemmArguments]) -> None:
        super().__init__(op)
        self._shape, self._spread = shape, spread
        self._types = (_ndarray,) * len(op.schema.arrays)
        self._implementation = registry.find(op, "cuda", as_dtype(op.schema.dtypes[0]))

    def serve(self, operands: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]) -> Any:
        """Return the result; or do nothing and return `NotImplemented`."""
        if scalars or tuple(map(type, operands)) != self._types:
            return NotImplemented
        if registry.routes is not self.routes:
            self.forget()
        layouts = tuple(map(dense_layout_of, operands))
        form = self.forms.get(layouts) or self.admit(layouts, self._found(layouts))
        if not form.nbytes:
            return NotImplemented
        is_new = out is None
        if is_new:
            dtype, shape, _ = form.out
            out = _fresh(shape, dtype, form.nbytes, 0, _current_stream().ptr)
            if not form.is_dense:
                gemm(*self._spread(*operands, out))
                return out
        elif not form.is_dense or out.__class__ is not _ndarray or layout_of(out) != form.out:
            return NotImplemented
        addresses = (*[array.data.ptr for array in operands], out.data.ptr)
        key, cache = (form, current_precision(), addresses), table(0)
        known = cache.repeats.get(key, 0)
        if known.__class__ is BoundProduct:
            known()
        elif is_new or form.is_apart(addresses):  # checked for a graph when it was made
            self._compute(cache, key, known, operands, out)
        else:
            return NotImplemented
        return out

    def _compute(
        self,
        cache: PlanCache,
        key: tuple[_Form, Mode, tuple[int, ...]],
        calls: int,
        operands: tuple[Any, ...],
        out: Array,
    ) -> None:
        """Compute without a graph: with the library's plan if that is all there is to do, else with `gemm`."""
        form, mode, addresses = key
        bits = addresses[0] | addresses[1] | addresses[-1] | MOST_ALIGNED
        ready = cache.get((form, mode, bits & -bits))
        if ready is None:
            ready = cache[form, mode, bits & -bits] = self._made_ready(operands, out, bits & -bits)
        if not ready or (len(addresses) > 3 and addresses[2] % BIAS_ALIGNMENT):
            gemm(*self._spread(*operands, out))
            return
        ready.run(addresses)
        if ready.may_repeat and cache.count(key, calls + 1):
            cache.keep(key, ready.graph(addresses))

    def _found(self, layouts: Any) -> _Form:
        dtypes, shapes, *_ = zip(*layouts, strict=True)
        dtype, shape = dtypes[0], self._shape(*shapes)
        is_mine = registry.find(self.op, "cuda", dtype) is self._implementation
        if shape is None or not is_mine or dtypes.count(dtype) < len(dtypes):
            shape = (0,)
        sizes = tuple(prod(extents) * dtype.itemsize for extents in shapes)
        is_dense = all((c or f) and nbytes for (_, _, c, f), nbytes in zip(layouts, sizes, strict=True))
        return _Form((dtype, shape, True), prod(shape) * dtype.itemsize, sizes, is_dense)

    def _made_ready(self, operands: tuple[Any, ...], out: Array, alignment: int) -> _ReadyProduct | Literal[False]:
        """Return the library's plan for this form, or False if more must be done."""
        product = Product(*self._spread(*operands, out))
        route = route_of(product, alignment)
        if route.plan is None:
            return False
        is_short = 2 * out.size * product.a.shape[-1] <= _MOST_FLOPS
        return _ReadyProduct(route.plan, route.swapped, is_short and not route.plan.workspace_nbytes)


def _two(a: Shape, b: Shape) -> Shape | None:
    return (a[0], b[1]) if len(a) == 2 == len(b) and a[1] == b[0] else None


def _many(a: Shape, b: Shape) -> Shape | None:
    return (a[0], a[1], b[2]) if len(a) == 3 == len(b) and a[0] == b[0] and a[2] == b[1] else None


def _layer(a: Shape, weight: Shape, bias: Shape) -> Shape | None:
    plain = len(a) == 2 == len(weight) and a[1] == weight[1] and bias == weight[:1]
    return (a[0], weight[0]) if plain else None


def _plain(a: Array, b: Array, out: Array) -> GemmArguments:
    return a, b, out, None, None, 1.0, 0.0, None, current_precision()


def _biased(a: Array, weight: Array, bias: Array, out: Array) -> GemmArguments:
    return a, weight.T, out, None, bias, 1.0, 0.0, None, current_precision()


#: The shape rule and the arguments of each op.
_SERVED: dict[str, tuple[Callable[..., Shape | None], Callable[..., GemmArguments]]] = {
    "mm": (_two, _plain),
    "matmul": (lambda a, b: _two(a, b) or _many(a, b), _plain),
    "bmm": (_many, _plain),
    "linear": (_layer, _biased),
}


def install() -> None:
    """Make these ops, which must be implemented, try a shortcut first."""
    for name, (shape, spread) in _SERVED.items():
        Products(registry.op(name), shape, spread).install()
