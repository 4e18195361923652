"""Operations over lists of CuPy arrays, each by a single launch; only `foreach_max` launches once for each array.

A call makes `Tables`, uploads them and launches; a plan keeps them.
Kernels: kernels/multi_tensor.cu. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.multi_tensor`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cupy

from cuassay.arrays.dtypes import FLOATS, compute_dtype, dtype_name
from cuassay.core.participants import join
from cuassay.devices.cuda.driver.cupy_private import is_c_contiguous
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.ops.tables import BLOCK, KEEPER, Tables
from cuassay.ops import Op, registry
from cuassay.ops.schema import Arguments

__all__ = ["register", "word"]

Array = Any
Arrays = Sequence[Any]
Run = Callable[[], None]

#: Packs a thread, elementwise and for norms. A norm's block leaves one number, so it takes more packs.
_PACKS, _NORM_PACKS = 1, 64


class _Scalars(ctypes.Structure):
    """``Scalars`` of multi_tensor.cu."""

    _fields_ = (("cell", ctypes.c_uint64), ("b", ctypes.c_double), ("scalar", ctypes.c_double))


class _ListLaunch:
    """An implementation made from a function that prepares one launch, which is run at once or kept as a plan."""

    def __init__(self, ready: Callable[..., Run]) -> None:
        self._ready = ready

    def __call__(self, *arguments: Any, **scalars: Any) -> None:
        """Make the tables, and launch."""
        self._ready(*arguments, **scalars)()

    def prepare(self, op: Op, bound: Arguments, out: Array) -> Run:
        """Return the launch with its tables."""
        return self._ready(**bound) if out is None else self._ready(**bound, out=out)


def _pointwise(operation: str, a: Arrays, b: Any = None, *, scalar: Any = 0.0) -> Run:
    """Prepare ``a = operation(a, b, scalar)``; b is a list or a number; numbers may be on the host or the device."""
    listed = isinstance(b, list | tuple)
    kind = a[0].dtype, b[0].dtype if listed else a[0].dtype
    scalars = _Scalars()
    given: tuple[tuple[str, Any], ...] = (("b", None if listed else b), ("scalar", scalar))
    for field, value in given:
        if hasattr(value, "dtype"):
            scalars.cell = value.data.ptr
        elif value is not None:
            setattr(scalars, field, value)
    tables = Tables([a, b if listed else None], _PACKS)
    flags = f"{word(listed)}, {tables.off}"
    name = f"pointwise<{operation}, {dtype_name(kind[0])}, {dtype_name(kind[1])}, {flags}, {_PACKS}>"
    arguments = (tables.tensors, tables.chunks, scalars)
    return _held(name, tables, arguments, (a, b, scalar))


def _held(name: str, tables: Tables, arguments: tuple[Any, ...], kept: Any) -> Run:
    """Return a launch of one block a chunk, which keeps the tables and the arrays they refer to alive."""
    fire = kernel("multi_tensor.cu", name).bind(tables.blocks, BLOCK, arguments)

    def run(kept: Any = (tables, kept)) -> None:
        tables.use(kept)
        fire()

    return run


def word(truth: Any) -> str:
    """Return a template argument."""
    return "true" if truth else "false"


def _add(a: Arrays, b: Any, *, alpha: float) -> Run:
    return _pointwise("Add", a, b, scalar=alpha)


def _lerp(a: Arrays, b: Arrays, weight: Any) -> Run:
    return _pointwise("Lerp", a, b, scalar=weight)


def _unscale(grads: Arrays, found_inf: Array, inv_scale: Array) -> Run:
    dtype = grads[0].dtype
    tables = Tables([grads], _PACKS)
    arguments = (tables.tensors, tables.chunks, found_inf, inv_scale)
    return _held(f"unscale<{dtype_name(dtype)}, {_PACKS}>", tables, arguments, grads)


def _norm(a: Arrays, *, ord: float, out: Array) -> Run:  # noqa: A002  NumPy's name
    dtype = a[0].dtype
    order = "Largest" if ord == math.inf else "SumOfSquares"
    tables = Tables([a], _NORM_PACKS, parts=True)
    name = f"norms<{order}, {dtype_name(dtype)}, {dtype_name(compute_dtype(dtype))}, {_NORM_PACKS}>"
    if not is_c_contiguous(out):
        return _through(name, tables, out, a)
    return _held(name, tables, (tables.tensors, tables.chunks, tables.parts, tables.arrivals, out), a)


def _through(name: str, tables: Tables, out: Array, kept: Any) -> Run:
    """Compute into a separate array, and copy it to a strided `out`."""
    dense = cupy.empty(out.shape, out.dtype)
    fire = _held(name, tables, (tables.tensors, tables.chunks, tables.parts, tables.arrivals, dense), (kept, dense))

    def run() -> None:
        fire()
        cupy.copyto(out, dense)

    return run


def foreach_max(a: Arrays, *, out: Array) -> None:
    """Write the `amax` of each array to its element of `out`."""
    amax = registry.op("amax")
    for place, array in enumerate(a):
        amax(array, out=out[place])


class _GlobalNorm:
    """The norm pass of one list, prepared; new gradients of the same shapes change only its table."""

    def __init__(self, grads: Arrays, norm: Any, found_inf: Any, grad_scale: Any, *, accumulate: bool) -> None:
        self._cells = norm, found_inf, grad_scale
        self._accumulate, self._dtype = bool(accumulate), grads[0].dtype
        self._bind(Tables([grads], _NORM_PACKS, parts=True))

    def _bind(self, tables: Tables) -> None:
        self._tables = tables
        pointers = [0 if cell is None else cell for cell in self._cells]
        arguments = (tables.tensors, tables.chunks, tables.parts, tables.arrivals, *pointers, self._accumulate)
        name = f"global_norm<{dtype_name(self._dtype)}, {_NORM_PACKS}>"
        self._fire = kernel("multi_tensor.cu", name).bind(tables.blocks, BLOCK, arguments)

    def __call__(self) -> None:
        """Launch."""
        self._tables.use(self._tables)
        self._fire()

    def rebind(self, changed: Arguments) -> Run | None:
        """Use other gradients, if nothing else changes and they fit; otherwise return None."""
        tables = self._tables.replaced(0, changed["grads"]) if set(changed) == {"grads"} else None
        if tables is None:
            return None
        self._bind(tables)
        return self


def register() -> None:
    """Add these implementations to the registry."""
    join("cuda", KEEPER)
    table: dict[str, Callable[..., Run]] = {
        "foreach_add_": _add,
        "foreach_mul_": partial(_pointwise, "Mul"),
        "foreach_lerp_": _lerp,
        "foreach_copy_": partial(_pointwise, "Copy"),
        "foreach_zero_": partial(_pointwise, "Zero"),
        "foreach_unscale_": _unscale,
        "foreach_norm": _norm,
        "global_norm_": _GlobalNorm,
    }
    for name, ready in table.items():
        registry.implement(name, kind="cuda", dtypes=FLOATS)(_ListLaunch(ready))
    registry.implement("foreach_max", kind="cuda", dtypes=FLOATS)(foreach_max)
