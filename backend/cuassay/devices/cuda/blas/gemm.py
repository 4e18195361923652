"""Products of CuPy arrays: one dictionary look-up finds what is ready for a call's layouts, and one call runs it.

What is ready is a *route*: a plan of the library, or a step that must happen first (copy an operand, apply an epilogue
separately, emulate a precision mode). Routes belong to one thread and device, as the library's handles do. A change of
the controls drops them. `blas.layouts` turns arrays into a problem, and `blas.plans` turns a problem into a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import HALVES, dtype_name, promote
from cuassay.core.precision import Mode, matmul_options
from cuassay.devices.cuda.blas import controls, plans
from cuassay.devices.cuda.blas.cublas import CublasPlan
from cuassay.devices.cuda.blas.layouts import Placed, Stack, collapse, place
from cuassay.devices.cuda.blas.plan_cache import table
from cuassay.devices.cuda.blas.problem import compute_of, reductions_of
from cuassay.devices.cuda.blas.product import MOST_ALIGNED, Multiply, Product, alignment_of
from cuassay.devices.cuda.blas.providers import ProductPlan
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.memory import hook
from cuassay.devices.cuda.memory.alignment import aligned, copyto, deliver, target_for
from cuassay.errors import DriverError
from cuassay.ops import registry
from cuassay.ops.explain import is_explaining, note, within

__all__ = ["BIAS_ALIGNMENT", "bind", "compute", "gemm", "register_emulation", "route_of", "table"]

Array = Any

#: cuBLASLt reads a bias in pieces of this many bytes, whatever alignment it is given for the other operands.
BIAS_ALIGNMENT = 16

#: If the library cannot read a stack in one call, the stack is split into at most this many calls, each with at least
#: this many operations: about what an H200 computes while the host launches the next call. Otherwise an operand is
#: copied.
_MOST_CALLS, _LEAST_FLOPS = 16, 10**9


Find = Callable[[Product, Stack, Stack, Stack | None, Stack], Multiply | None]

_emulations: dict[str, Find] = {}


def register_emulation(mode: Mode, find: Find) -> None:
    """Let `find` provide the computation of float32 products in `mode` from now on.

    Parameters
    ----------
    mode : str
        The precision mode.
    find : callable
        Called once for each layout, with a product of that layout and the stacks that describe a, b, c and out. It
        returns a function that computes any product of this layout, in order of the current stream, or None to let the
        library compute it in float32.
    """
    _emulations[mode] = find
    controls.renew()


# ------------------------------------------------------------------------------------------------ the call


def gemm(
    a: Array,
    b: Array,
    out: Array,
    c: Array = None,
    bias: Array = None,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    activation: str | None = None,
    mode: Mode = "ieee",
) -> None:
    """Compute a `Product` on the current device, in order of the current stream; cast operands of other dtypes.

    Raises
    ------
    DriverError
        If the library reports an error.
    """
    at_a, at_b, at_d = a.data.ptr, b.data.ptr, out.data.ptr
    at_c = at_d if c is None else c.data.ptr
    at_bias = 0 if bias is None else bias.data.ptr
    bits = at_a | at_b | at_c | at_d | MOST_ALIGNED
    key = (
        a.shape, b.shape, a.dtype, b.dtype, out.dtype,
        # array.strides takes 0.2 µs, and the strides of a contiguous array follow from its shape
        is_c_contiguous(a) or a.strides, is_c_contiguous(b) or b.strides, is_c_contiguous(out) or out.strides,
        c is not None and (c is out or (c.dtype, c.shape, c.strides)),
        bias is not None and (bias.dtype, is_c_contiguous(bias)),
        at_bias % BIAS_ALIGNMENT,
        bits & -bits, alpha, beta, activation, mode,
    )  # fmt: skip
    routes = table()
    route = routes.get(key)
    if route is None:
        route = routes[key] = route_of(Product(a, b, out, c, bias, alpha, beta, activation, mode), bits & -bits)
    if route.plan is None:
        _through(route, Product(a, b, out, c, bias, alpha, beta, activation, mode))
        return
    if is_explaining():
        note(str(route))
    if bias is not None:
        route.plan.point("BIAS_POINTER", at_bias)
    if route.swapped:
        route.plan.run(at_b, at_a, at_c, at_d)
    else:
        route.plan.run(at_a, at_b, at_c, at_d)


def _through(route: _Route, product: Product) -> None:
    if route.run is None:
        raise DriverError(f"{route.text} has nothing to run; report this")
    with within(route.text) if is_explaining() else nullcontext():
        route.run(product)


def bind(product: Product) -> Callable[[], None]:
    """Prepare a product: return a call that computes it again on the same arrays, whose addresses it keeps."""
    arrays = (product.a, product.b, product.out, product.c, product.bias)
    if not product.out.size:
        return lambda: None
    route = route_of(product, alignment_of(product.a, product.b, product.out, product.c))
    if route.plan is None:
        return plans.BoundProduct(partial(_through, route, product), arrays)
    if product.bias is not None:
        route.plan.point("BIAS_POINTER", product.bias.data.ptr)
    at_a, at_b, at_d = product.a.data.ptr, product.b.data.ptr, product.out.data.ptr
    at_c = at_d if product.c is None else product.c.data.ptr
    return plans.bind(route.plan, *((at_b, at_a) if route.swapped else (at_a, at_b)), at_c, at_d, arrays)


# ------------------------------------------------------------------------------------------------ routes


@dataclass(frozen=True, slots=True)
class _Route:
    """How a product is computed: by a plan of the library, or else by `run`."""

    text: str
    plan: ProductPlan | None = None
    swapped: bool = False
    run: Multiply | None = None

    def __str__(self) -> str:
        if self.plan is None:
            return self.text
        algorithm = "" if self.plan.algorithm is None else f", {self.plan.algorithm}"
        reason = controls.why_cublas() if self.plan.library == CublasPlan.library else None
        return f"{self.text}; {self.plan.library}{algorithm}" + ("" if reason is None else f", since {reason}")


def compute(product: Product) -> None:
    """Call `gemm` for a product."""
    p = product
    gemm(p.a, p.b, p.out, p.c, p.bias, p.alpha, p.beta, p.activation, p.mode)


def route_of(product: Product, alignment: int) -> _Route:
    """Return how to compute `product`, and any other product of its layouts whose arrays are aligned to `alignment`."""
    return _before(product, alignment) or _by_library(product, alignment)


def _before(product: Product, alignment: int) -> _Route | None:
    """Return the route of a product that needs no library, or that needs another step first."""
    if alignment < min(array.dtype.itemsize for array in (product.a, product.b, product.out)):
        return _Route("operands copied to aligned addresses", run=_with_aligned_operands)
    if not product.out.size or not product.a.shape[-1]:
        return _Route("nothing to multiply", run=_without_terms)
    if not _is_direct(product):
        return _Route("operands cast", run=_cast)
    if product.bias is not None and product.bias.data.ptr % BIAS_ALIGNMENT:
        return _Route("the bias copied to an aligned address", run=_with_aligned_bias)
    if product.activation == "gelu_tanh" and product.out.dtype == np.float64:
        return _Route("bias and activation apart: the library's gelu of float64 is one of float32", run=_apart)
    return None


def _by_library(product: Product, alignment: int) -> _Route:
    stacks: dict[str, Any] = {name: _stack(product, name) for name in "abcd"}
    for name in "abdc":  # `c` may be the output
        if stacks[name] is None and (name != "c" or product.c is not None):
            return _Route("one product a first index", run=_one_by_one) if _may_loop(product) else _copying(name)
    if product.mode in _emulations and product.out.dtype == np.float32 == product.a.dtype:
        multiply = _emulations[product.mode](product, *stacks.values())
        if multiply is not None:
            return _Route(f"{product.mode} by emulation", run=multiply)
    placed = place(stacks["a"], stacks["b"], stacks["c"], stacks["d"], **_fields(product), alignment=alignment)
    if isinstance(placed, str):
        return _copying(placed)
    plan = plans.make(placed.problem)
    if plan is None:
        return _otherwise(product, placed)
    return _Route(str(placed.problem), plan, placed.swapped)


def _is_direct(product: Product) -> bool:
    """Whether the library supports these dtypes (all the same, or float32 from 16 bits) and the bias is contiguous."""
    dtype, result = product.a.dtype, product.out.dtype
    if product.b.dtype != dtype or not (dtype == result or (_is_half(dtype) and result == np.float32)):
        return False
    if product.bias is not None and not is_c_contiguous(product.bias):
        return False
    return all(third is None or third.dtype == result for third in (product.c, product.bias))


def _is_half(dtype: np.dtype[Any]) -> bool:
    return dtype_name(dtype) in HALVES


def _cast(product: Product) -> None:
    """Cast operands to their common dtype; compute an output of an unsupported dtype in the nearest supported one."""
    p = product
    dtype = promote(*(array.dtype for array in (p.a, p.b, p.c, p.bias) if array is not None))
    result = np.dtype(np.float32) if _is_half(dtype) and p.out.dtype != dtype else dtype
    into = p.out if result == p.out.dtype else hook.empty(p.out.shape, result, p.out.data.device_id)
    of = {name: _as(getattr(p, name), dtype) for name in "ab"}
    third = {name: _as(getattr(p, name), result) for name in ("c", "bias")}
    if third["bias"] is not None:
        third["bias"] = cupy.ascontiguousarray(aligned(third["bias"]))
    compute(replace(p, **of, **third, out=into))
    if into is not p.out:
        target = target_for(p.out)
        cupy.copyto(target, into, casting="unsafe")
        deliver(target, p.out)


def _as(array: Array, dtype: np.dtype[Any]) -> Array:
    return array if array is None or array.dtype == dtype else aligned(array).astype(dtype)


def _with_aligned_operands(product: Product) -> None:
    """Copy operands whose elements do not begin at multiples of their size: no kernel can read them."""
    given = {name: getattr(product, name) for name in ("a", "b", "c", "bias")}
    target = target_for(product.out)
    copied: dict[str, Any] = {name: array if array is None else aligned(array) for name, array in given.items()}
    compute(replace(product, **copied, out=target))
    deliver(target, product.out)


def _with_aligned_bias(product: Product) -> None:
    compute(replace(product, bias=product.bias.copy()))


def _without_terms(product: Product) -> None:
    """Compute a product with K = 0: only what is added, and the activation."""
    add, out = registry.op("add"), product.out
    if not out.size:
        return
    added = None if product.c is None else registry.op("mul")(_as(product.c, out.dtype), product.beta)
    out.fill(0)  # only after `c` was read, which may be the output
    if added is not None:
        add(out, added, out=out)
    if product.bias is not None:
        add(out, _as(product.bias, out.dtype), out=out)
    _activate(out, product.activation)


def _activate(out: Array, activation: str | None) -> None:
    if activation == "relu":
        registry.op("relu")(out, out=out)
    elif activation is not None:
        registry.op("gelu")(out, approximate="tanh", out=out)


def _stack(product: Product, name: str) -> Stack | None:
    array = product.out if name == "d" else getattr(product, name)
    if array is None:
        return None
    stack = product.out.shape[:-2]
    if name == "c" and array.shape != product.out.shape:
        array = cupy.broadcast_to(array, product.out.shape)
    return collapse(array.shape, array.strides, array.dtype.itemsize, dtype_name(array.dtype), stack)


def _fields(product: Product) -> Mapping[str, Any]:
    """The fields of a problem that do not follow from the layouts."""
    words = {"relu": "relu", "gelu_tanh": "gelu"}
    parts = [words[product.activation]] if product.activation else []
    options, dtype = matmul_options(), product.a.dtype
    return {
        "alpha": product.alpha,
        "beta": product.beta,
        "epilogue": "_".join(parts + ["bias"] * (product.bias is not None)) or "none",
        "compute": compute_of(dtype, product.mode, options),
        "reductions": reductions_of(dtype, options),
    }


def _otherwise(product: Product, placed: Placed) -> _Route:
    """Return the route where the library has no algorithm: separate epilogue, `c` copied to the output, or cuBLAS."""
    problem = placed.problem
    if problem.epilogue != "none":
        return _Route("bias and activation apart: the library does not fuse them here", run=_apart)
    if problem.c != problem.d or (product.c is not None and product.c is not product.out):
        return _copying("c")
    if problem.compute == "16F" and problem.d.dtype != "float16":
        raise DriverError(f"no library computes {problem}; give the output the dtype of the operands")
    device = cupy.cuda.runtime.getDevice()
    return _Route(str(problem), plans.fallback(problem, device), placed.swapped)


def _apart(product: Product) -> None:
    out, bias = product.out, product.bias
    plain = replace(product, bias=None, activation=None)
    if bias is not None and not product.beta:
        plain, bias = replace(plain, c=bias, beta=1.0), None
    compute(plain)
    if bias is not None:
        registry.op("add")(out, bias, out=out)
    _activate(out, product.activation)


def _may_loop(product: Product) -> bool:
    """Whether to loop over, instead of copy, a stack that has two strides, such as heads in rows."""
    stack = product.out.shape[:-2]
    if len(stack) < 2 or not 1 < stack[0] <= _MOST_CALLS:
        return False
    return bool(2 * product.out.size * product.a.shape[-1] >= stack[0] * _LEAST_FLOPS)


def _one_by_one(product: Product) -> None:
    """Compute each index of the first axis separately; operands without that axis are used for every index."""
    axes = product.out.ndim

    def at(array: Array | None, index: int) -> Array | None:
        if array is None or array.ndim < axes:
            return array
        return array[index if array.shape[0] > 1 else 0]

    for index in range(product.out.shape[0]):
        of: dict[str, Any] = {name: at(getattr(product, name), index) for name in ("a", "b", "c", "out")}
        compute(replace(product, **of))


def _copying(name: str) -> _Route:
    """Return the route for an operand, or the output, whose layout the library cannot access."""

    def run(product: Product) -> None:
        if name == "d":
            into = hook.empty(product.out.shape, product.out.dtype, product.out.data.device_id)
            compute(replace(product, out=into))
            copyto(product.out, into)
        elif name == "c":
            copyto(product.out, cupy.broadcast_to(product.c, product.out.shape))
            compute(replace(product, c=product.out))
        else:
            compute(replace(product, **{name: _contiguous(getattr(product, name), product.out.shape[:-2])}))

    return _Route(
        {"c": "c copied to the output", "d": "the output copied from a contiguous one"}.get(name, f"{name} copied"),
        run=run,
    )


def _contiguous(array: Array, stack: tuple[int, ...]) -> Array:
    """Return a contiguous copy; if the stack broadcasts only partly, the copy has every matrix."""
    if array.ndim > 2 and array.shape[:-2] != stack and _has_extents(array.shape[:-2]):
        array = cupy.broadcast_to(array, (*stack, *array.shape[-2:]))
    copied = hook.empty(array.shape, array.dtype, array.data.device_id)
    copyto(copied, array)
    return copied


def _has_extents(stack: tuple[int, ...]) -> bool:
    return any(extent != 1 for extent in stack)
