"""fp8 products. CuPy has no fp8 dtype: on this device kind an fp8 array holds its codes as uint8.

cuBLASLt multiplies fp8 in one layout: `a` row-major, `b` column-major, K and the row strides multiples of 16. Other
layouts are copied into this one. Everything else (another K, one column, two operands of e5m2, GPUs before compute
capability 8.9, no cuBLASLt) is decoded to float16, which holds every number of both formats, and multiplied there.
Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.scaled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import cupy
import numpy as np

from cuassay.arrays.dtypes import dtype_name
from cuassay.devices.cuda.blas import plans
from cuassay.devices.cuda.blas.gemm import compute, table
from cuassay.devices.cuda.blas.layouts import Stack, collapse, place
from cuassay.devices.cuda.blas.product import Product, alignment_of
from cuassay.devices.cuda.blas.providers import ProductPlan
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.driver.libraries import why_no_cublaslt
from cuassay.devices.cuda.memory.alignment import aligned
from cuassay.ops import Op, products
from cuassay.ops.explain import is_explaining, note

__all__ = ["Scaled"]

Array = Any

#: The first compute capability whose tensor cores support fp8.
_FP8_COMPUTE = (8, 9)

#: The outputs that cuBLASLt computes from fp8; a bias has the output's dtype (for float32, cuBLASLt would read
#: bfloat16).
_OUTPUTS, _BIASED = ("bfloat16", "float16", "float32"), ("bfloat16", "float16")

#: A single column is both row-major and column-major. The library takes it for row-major, and its result is then wrong.
_MIN_COLUMNS = 2


class Scaled:
    """`scaled_mm`: by cuBLASLt's fp8 where it is available and supports the operands, otherwise through float16."""

    def __call__(
        self, a: Array, b: Array, scale_a: Array, scale_b: Array, bias: Array | None, *, out: Array, **named: Any
    ) -> None:
        """Compute into `out`, on the current stream."""
        if not out.size:
            return
        of_a, of_b = products.formats({"a": a, "b": b, **named})
        scales = _contiguous(scale_a, np.float32), _contiguous(scale_b, np.float32)
        bias = None if bias is None else _contiguous(bias, bias.dtype)
        kind = products.scaling({"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b})
        if _fits(a, b, bias, out, of_a, of_b):
            left, right = _row_major(a), _row_major(b.T).T
            plan = _plan(left, right, bias, out, (of_a, of_b, kind, named["fast_accum"]))
            if plan is not None:
                _point(plan, scales, bias)
                plan.run(right.data.ptr, left.data.ptr, out.data.ptr, out.data.ptr)
                return
        _decoded_product(_decoded(a, of_a), _decoded(b, of_b), scales, bias, out)

    def prepare(self, op: Op, bound: Mapping[str, Any], out: Array) -> Callable[[], None]:
        """Prepare the call as one graph."""
        arrays = op.schema.pick_arrays(bound)
        scalars = {name: bound[name] for name in op.schema.scalar_names}
        return plans.BoundProduct(partial(self, *arrays, out=out, **scalars), (*arrays, out))


def _contiguous(array: Array, dtype: Any) -> Array:
    """Return `array` as the library reads scales and a bias: contiguous, at a multiple of 16 bytes."""
    if is_c_contiguous(array) and array.dtype == dtype and array.data.ptr % 16 == 0:
        return array
    return cupy.array(aligned(array), dtype, order="C")


def _fits(a: Array, b: Array, bias: Array | None, out: Array, of_a: str, of_b: str) -> bool:
    wanted = dtype_name(out.dtype)
    return bool(
        _has_fp8(out.data.device_id)
        and a.shape[1] % 16 == 0 < a.shape[1]
        and b.shape[1] >= _MIN_COLUMNS
        and is_c_contiguous(out)
        and (of_a, of_b) != ("float8_e5m2", "float8_e5m2")
        and (wanted in _OUTPUTS if bias is None else wanted in _BIASED and bias.dtype == out.dtype)
    )


@cache
def _has_fp8(device: int) -> bool:
    properties = runtime.get_device_properties(device)
    return why_no_cublaslt() is None and (properties.major, properties.minor) >= _FP8_COMPUTE


def _row_major(codes: Array) -> Array:
    if is_c_contiguous(codes) and codes.data.ptr % 16 == 0:
        return codes
    return codes.copy(order="C")


def _plan(a: Array, b: Array, bias: Array | None, out: Array, how: tuple[Any, ...]) -> ProductPlan | None:
    """Return the plan for these shapes, this alignment and these scales, or None if the library has none."""
    alignment = alignment_of(a, b, out, bias)
    key = ("scaled", a.shape, b.shape, out.dtype, bias is None, alignment, *how)
    known = table()
    if key not in known:
        known[key] = _made(a, b, bias, out, alignment, how)
    found: ProductPlan | None = known[key]
    return found


def _made(
    a: Array, b: Array, bias: Array | None, out: Array, alignment: int, how: tuple[Any, ...]
) -> ProductPlan | None:
    of_a, of_b, kind, fast = how
    placed = place(
        _stack(a, of_a), _stack(b, of_b), None, _stack(out, dtype_name(out.dtype)),
        compute="32F", epilogue="none" if bias is None else "bias", scaling=kind, fast_accumulation=fast,
        alignment=alignment,
    )  # fmt: skip
    return None if isinstance(placed, str) else plans.make(placed.problem)


def _stack(array: Array, dtype: str) -> Stack:
    # One matrix of whole elements always collapses.
    return collapse(array.shape, array.strides, array.dtype.itemsize, dtype, ())  # type: ignore[return-value]


def _point(plan: ProductPlan, scales: tuple[Array, Array], bias: Array | None) -> None:
    """Set the pointers; the library's first operand is `b`, because the output is row-major."""
    if is_explaining():
        note(f"{plan.problem}; {plan.library}, {plan.algorithm}")
    plan.point("A_SCALE_POINTER", scales[1].data.ptr)
    plan.point("B_SCALE_POINTER", scales[0].data.ptr)
    if bias is not None:
        plan.point("BIAS_POINTER", bias.data.ptr)


def _decoded_product(a: Array, b: Array, scales: tuple[Array, Array], bias: Array | None, out: Array) -> None:
    wide = cupy.zeros(out.shape, np.float32)
    if a.shape[1]:
        compute(Product(a, b, wide))
    wide *= scales[0] * scales[1]
    if bias is not None:
        wide += bias.astype(np.float32)
    cupy.copyto(out, wide, casting="unsafe")


def _decoded(codes: Array, name: str) -> Array:
    """Decode to float16, exactly: e5m2 is its upper byte, and the exponent of e4m3 is smaller by 8."""
    if is_explaining():
        reason = why_no_cublaslt() or "cuBLASLt does not take these operands as they are"
        note(f"{name} decoded to float16: {reason}")
    wide = codes.astype(np.uint16)
    if name == "float8_e5m2":
        return (wide << 8).view(np.float16)
    magnitude = wide & 0x7F
    halves = ((wide & 0x80) << 8 | magnitude << 7).view(np.float16) * np.float16(256)
    return cupy.where(magnitude == 0x7F, np.float16("nan"), halves)
